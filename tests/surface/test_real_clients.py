"""Real programs against loopback models: one session says it, a session of another client knows it.

The programs take 1.3 GB, so they are installed by hand, or by CI; the tests are skipped without them:

    npm install --prefix .venv/clients @anthropic-ai/claude-code@2 @openai/codex@0.169 @google/gemini-cli@0.61 \\
        opencode-ai@1 @qwen-code/qwen-code@0.15 @modelcontextprotocol/inspector@0.15
    ./run test -- tests/surface/test_real_clients.py tests/surface/test_mcp.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.homes import eventually
from tests.other_apis import other_apis

from herma import Herma
from herma.connect.clients import Program
from herma.connect.connect import write_bundle
from herma.testing import Answer, Asked, ScriptedModel

pytestmark = pytest.mark.slow
FOLDER = Path(sys.prefix) / "clients" / "node_modules" / ".bin"
SAID = "The kiosk printer answers on 10.4.7.9."
QUESTION = "Where does the kiosk printer answer?"
SERVER = "The staging database listens on port 5433."
MEMORY_CALL = {"action": "add", "target": "memory", "content": "The kiosk printer is in room 12."}


class Machine:
    """A person's machine: a folder of their own, a project, this program and the clients on the PATH."""

    def __init__(self, user: Path, model: ScriptedModel, url: str, asked: list[Any]) -> None:
        self.user, self.model, self.url, self._asked = user, model, url, asked
        self.home = user / ".herma"
        self.folder = user / "shop"
        self.folder.mkdir()
        self.env = {
            "HOME": str(user),
            "PATH": os.pathsep.join([str(FOLDER), str(Path(sys.executable).parent), os.environ["PATH"]]),
        }

    def run(self, *words: str, **environment: str) -> str:
        done = subprocess.run(
            words, cwd=self.folder, env={**self.env, **environment}, capture_output=True, text=True, timeout=240,
            stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{words}: {done.stdout}\n{done.stderr}"
        return done.stdout

    def claude(self, prompt: str, *words: str) -> str:
        quiet = {"CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1"}
        return self.run(
            "claude", "-p", prompt, *words, ANTHROPIC_BASE_URL=self.model.root, ANTHROPIC_API_KEY="none", **quiet
        )

    def codex(self, prompt: str) -> str:
        provider = f'{{name="loopback",base_url="{self.url}/v1",wire_api="responses",env_key="LOOPBACK_KEY"}}'
        given = ("-c", "model_provider=loopback", "-c", "model=m", "-c", f"model_providers.loopback={provider}")
        trusted = ("--skip-git-repo-check", "--dangerously-bypass-hook-trust")
        return self.run("codex", "exec", *trusted, *given, prompt, LOOPBACK_KEY="none")

    def gemini(self, prompt: str) -> str:
        place = {"GEMINI_API_KEY": "none", "GOOGLE_GEMINI_BASE_URL": self.url}
        return self.run("gemini", "--skip-trust", "-m", "gemini-2.5-flash", "-p", prompt, **place)

    def opencode(self, prompt: str) -> str:
        return self.run("opencode", "run", prompt)

    def qwen(self, prompt: str) -> str:
        place = {"OPENAI_API_KEY": "none", "OPENAI_BASE_URL": self.model.url, "OPENAI_MODEL": "m"}
        return self.run("qwen", "-p", prompt, **place)

    def sent(self) -> str:
        """Return everything that the models were sent so far."""
        return json.dumps([self._asked, [one.body for one in self.model.requests]], ensure_ascii=False)

    def until_captured(self, client: str, text: str) -> None:
        def captured() -> bool:
            with Herma.open(self.home) as h:
                snippets = [hit.snippet for hit in h.search(text, source=client).hits]
            return any(text in one.replace(">>>", "").replace("<<<", "") for one in snippets)

        eventually(captured)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    missing = [name for name in ("claude", "codex", "gemini", "opencode", "qwen") if not (FOLDER / name).exists()]
    if missing:
        pytest.skip(f"{', '.join(missing)} not installed in {FOLDER}; see the top of this file")

    def script(asked: Asked) -> str | Answer:
        said, tools = json.dumps(asked.messages), [tool.get("name") for tool in asked.tools]
        if "Keep the room" not in said or "mcp__herma__memory" in said:
            return "Noted."
        if "mcp__herma__memory" in tools:
            return Answer.calling("mcp__herma__memory", MEMORY_CALL)
        return Answer.calling("Bash", {"command": "sleep 1", "description": "Wait for the server"})

    user = tmp_path / "user"
    user.mkdir()
    with ScriptedModel(script) as model, other_apis() as (url, asked):
        made = Machine(user, model, url, asked)
        (user / ".gemini").mkdir()
        chosen = {"security": {"auth": {"selectedType": "gemini-api-key"}}, "telemetry": {"enabled": False}}
        (user / ".gemini" / "settings.json").write_text(json.dumps(chosen))
        (user / ".qwen").mkdir()
        (user / ".qwen" / "settings.json").write_text('{"security": {"auth": {"selectedType": "openai"}}}')
        options = {"baseURL": model.url, "apiKey": "none"}
        provider = {"npm": "@ai-sdk/openai-compatible", "name": "L", "options": options, "models": {"m": {"name": "m"}}}
        text = json.dumps({"provider": {"loopback": provider}, "model": "loopback/m", "autoupdate": False})
        (user / ".config" / "opencode").mkdir(parents=True)
        (user / ".config" / "opencode" / "opencode.jsonc").write_text(f"// mine\n{text}\n")
        yield made
        subprocess.run(["pkill", "-f", f"herma.mcp.events {made.home}$"], check=False)


def files_of(folder: Path) -> dict[str, bytes]:
    own = ("gemini/settings.json", "codex/hooks.json", "claude/settings.json")
    names = [*(f".{name}" for name in own), ".config/opencode/opencode.jsonc"]
    return {name: (folder / name).read_bytes() for name in names if (folder / name).exists()}


def test_one_client_says_it_and_the_others_know_it(machine: Machine) -> None:
    before = files_of(machine.user)
    clients = ("claude-code", "codex", "gemini", "opencode", "qwen")
    machine.run("herma", "remember", SERVER)
    machine.run("herma", "connect", *clients, "--yes")
    assert machine.claude(SAID).strip() == "Noted."
    machine.until_captured("claude-code", SAID)
    ask: dict[str, Callable[[str], str]] = {
        "codex": machine.codex,
        "gemini": machine.gemini,
        "opencode": machine.opencode,
        "qwen": machine.qwen,
    }
    for client, run in ask.items():
        machine.model.requests.clear()
        machine._asked.clear()
        run(QUESTION)
        sent = machine.sent()
        assert "10.4.7.9" in sent, client
        assert SERVER in sent, client
        machine.until_captured(client, "kiosk printer answer")
    with Herma.open(machine.home) as h:
        for client in clients:  # what our own hooks put there is not taken for what was said
            for info in h.transcripts.list(source=client):
                said = [str(one.content) for one in h.transcripts.messages(info.id) if one.role != "system"]
                assert not any("memory-context" in text or SERVER in text for text in said), (client, said)
    status = json.loads(machine.run("herma", "connect", "status", "--json"))["clients"]
    assert {one["name"]: one["verdict"].partition(".")[0] for one in status} == dict.fromkeys(clients, "Memory arrives")
    machine.run("herma", "connect", *clients, "--remove", "--yes")
    assert files_of(machine.user) == before
    assert "herma" not in (machine.user / ".qwen" / "settings.json").read_text()  # Qwen Code writes it anew


def test_a_client_writes_through_its_tools(machine: Machine) -> None:
    """Claude Code calls the MCP server; the entry belongs to its session."""
    machine.run("herma", "connect", "claude-code", "--yes")
    allowed = ("--allowedTools", "mcp__herma__memory,Bash(sleep:*)", "--output-format", "json")
    out = machine.claude("Keep the room of the printer.", *allowed)
    session = json.loads(out)["session_id"]
    with Herma.open(machine.home) as h:
        [change] = h.memory.changes()
        assert change.author.session == f"claude-code-{session}"
        assert h.memory.entries("memory") == [MEMORY_CALL["content"]]


def test_the_plugin_is_what_claude_code_expects(machine: Machine) -> None:
    bundle = machine.user / "plugin"
    write_bundle("claude-code", bundle, Program(("herma",)))
    for path in (bundle, bundle / ".claude-plugin" / "plugin.json"):
        assert "passed" in machine.run("claude", "plugin", "validate", str(path)).casefold()
    machine.run("herma", "remember", SERVER)
    machine.claude(QUESTION, "--plugin-dir", str(bundle))
    assert SERVER in machine.sent()
