"""The pages on frameworks and SDK clients: their commands and programs run in an empty home and print what they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.other_apis import other_apis

from herma import Herma
from herma.cli.main import cli
from herma.testing import Answer, Asked, ScriptedModel

HOW_TO = Path(__file__).parents[2] / "docs" / "how-to"
PAGES = sorted((HOW_TO / "frameworks").glob("*.md"))
KNOWN = "The staging database has the port 5433."
_COMMAND = re.compile(r"^\$ (.+)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d")


def programs(page: Path) -> list[str]:
    return re.findall(r"```py\n(.*?)```", page.read_text("utf-8"), re.DOTALL)


def said(body: object) -> str:
    """What a model on this machine answers: it knows what it is sent, and nothing else."""
    return KNOWN if "5433" in str(body) else "I do not know."


def script(asked: Asked) -> str | Answer:
    if "memory_20250818" in str(asked.tools) and "tool_result" not in str(asked.body):
        return Answer.calling("memory", {"command": "view", "path": "/memories/MEMORY.md"})
    return said(asked.body)


@pytest.fixture
def models(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The usual variables name models on this machine. The OpenAI Agents SDK uses the Responses API."""
    with ScriptedModel(script) as model, other_apis(said) as (url, _):
        monkeypatch.setenv("OPENAI_BASE_URL", f"{url}/v1" if "openai-agents" in request.node.name else model.url)
        monkeypatch.setenv("OPENAI_AGENTS_DISABLE_TRACING", "1")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.root)
        monkeypatch.setenv("GOOGLE_GEMINI_BASE_URL", url)
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GOOGLE_API_KEY"):
            monkeypatch.setenv(name, "none")
        yield


def run(program: str) -> None:
    exec(compile(program, "agent.py", "exec"), {"__name__": "__main__"})


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_says_what_its_commands_print(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    [program] = programs(page)
    commands = _COMMAND.findall(page.read_text("utf-8"))
    assert [command.split(" ")[0] for command, _ in commands][:3] == ["pip", "herma", "python"]
    for command, printed in commands[1:]:
        if command == "python agent.py":
            run(program)
            out = capsys.readouterr().out
        else:
            out = CliRunner().invoke(cli, shlex.split(command)[1:]).stdout
        assert _TIME.sub("", out) == _TIME.sub("", printed)


@pytest.mark.usefixtures("models")
@pytest.mark.parametrize("program", programs(HOW_TO / "wrap-a-client.md"))
def test_a_program_with_a_plain_client_keeps_what_was_said(program: str) -> None:
    run(program)
    with Herma.open() as h:
        [session] = h.transcripts.list()
        assert [message.role for message in h.transcripts.messages(session.id)] == ["user", "assistant"]
