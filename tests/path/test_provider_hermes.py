"""Real Hermes Agent: its providers run in Herma, and Herma is a provider in it.

    pytest -m long tests/path/test_provider_hermes.py

installs hermes-agent 0.19.0 and this checkout into a throw-away environment (about two minutes, 500 MB). With
TEST_HERMES=/path/to/bin/python an environment that has both is used.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files, opened

from herma import Herma
from herma.providers.discovery import find, load

ROOT = Path(__file__).resolve().parents[2]
NAMES = ["byterover", "hindsight", "holographic", "honcho", "mem0", "openviking", "retaindb", "supermemory"]
pytestmark = [pytest.mark.long, pytest.mark.timeout(1_200), of_files]  # the other program opens a home of files


@pytest.fixture(scope="session")
def hermes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with Hermes and Herma."""
    if given := os.environ.get("TEST_HERMES"):
        return Path(given)
    folder = tmp_path_factory.mktemp("hermes")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "-q", "hermes-agent==0.19.0", str(ROOT)], check=True)
    return python


@pytest.fixture
def plugins(hermes: Path) -> Path:
    (folder,) = hermes.parent.parent.glob("lib/python3*/site-packages/plugins/memory")
    return folder


def run(hermes: Path, home: Path, *words: str) -> str:
    environ = {**os.environ, "HERMES_HOME": str(home), "HERMA_HOME": str(home.parent / "herma")}
    done = subprocess.run([hermes, *words], capture_output=True, text=True, env=environ, check=False, timeout=300)
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


# ── its providers in Herma ──


@pytest.mark.parametrize("name", NAMES)
def test_its_providers_load_unchanged(plugins: Path, home: Path, name: str) -> None:
    shutil.copytree(plugins / name, home / "plugins" / f"hermes-{name}")
    provider = load(find(home, f"hermes-{name}"), home)
    assert provider.name == name
    assert isinstance(provider.is_available(), bool)
    assert all(field["key"] for field in provider.get_config_schema())
    assert not {"agent", "hermes_constants", "hermes_cli", "plugins.memory"} & sys.modules.keys()


def test_its_local_provider_works_end_to_end(plugins: Path, home: Path) -> None:
    shutil.copytree(plugins / "holographic", home / "plugins" / "hermes-holographic")
    (home / "config.yaml").write_text("memory:\n  provider: hermes-holographic\n")
    with opened(home) as h:
        with h.session() as session:
            said = {"action": "add", "content": "Ann Baker keeps herons by the weir."}
            assert json.loads(session.call_tool("fact_store", said))["fact_id"] == 1
            session.call_tool("memory", {"action": "add", "target": "user", "content": "Likes tea."})
            sent = session.before_model("Where are the herons?")[-1]["content"]
            assert "[from hermes-holographic]" in sent
            assert "Ann Baker keeps herons by the weir." in sent
            session.after_model("By the weir.")
            assert h.providers.flush(30)
            found = json.loads(session.call_tool("fact_store", {"action": "list"}))
            assert {fact["content"] for fact in found["facts"]} == {said["content"], "Likes tea."}
        assert h.providers.status(ask=False).health.failures == 0


def test_facts_of_its_local_provider_are_taken_over(plugins: Path, home: Path) -> None:
    """The bundled provider of the same name reads the same file."""
    test_its_local_provider_works_end_to_end(plugins, home)
    (home / "config.yaml").write_text("memory:\n  provider: holographic\n")
    with opened(home) as h, h.session() as session:
        assert "Ann Baker keeps herons" in session.before_model("Where does she keep herons?")[-1]["content"]
        probed = json.loads(session.call_tool("fact_store", {"action": "probe", "entity": "Ann Baker"}))
        assert [one["content"] for one in probed["results"]] == ["Ann Baker keeps herons by the weir."]
        session.after_model("By the weir.")


# ── Herma in it ──

MANAGER = """
import json, sys
from agent.memory_manager import MemoryManager
from plugins.memory import discover_memory_providers, load_memory_provider

told = {"found": [each[0] for each in discover_memory_providers()]}
manager = MemoryManager()
manager.add_provider(load_memory_provider("herma"))
manager.initialize_all("s-1", platform="cli", agent_context=sys.argv[1])
told["prompt"] = manager.build_system_prompt()
told["tools"] = sorted(manager.get_all_tool_names())
manager.on_turn_start(1, "The grey heron nests by the old weir.")
told["cold"] = manager.prefetch_all("The grey heron nests by the old weir.", session_id="s-1")
manager.sync_all("The grey heron nests by the old weir.", "Noted.", session_id="s-1")
manager.flush_pending(30)
manager.on_memory_write("add", "user", "Likes herons.", {"session_id": "s-1"})
told["kept"] = json.loads(manager.handle_tool_call("herma_remember", {"content": "The boat is green."}))
manager.on_session_switch("s-2", parent_session_id="s-1", reset=True)
told["recalled"] = manager.prefetch_all("Where does the heron nest?", session_id="s-2")
told["search"] = json.loads(manager.handle_tool_call("herma_search", {"query": "heron weir"}))
manager.sync_all("Forget this sentence about otters.", "ok", session_id="s-2")
manager.flush_pending(30)
manager.on_session_switch("s-2", parent_session_id="s-2", rewound=True)
manager.on_session_end([])
manager.shutdown_all()
print(json.dumps(told))
"""


@pytest.fixture
def chosen(hermes: Path, tmp_path: Path) -> Path:
    """A Hermes home in which Herma was set up by Hermes' own command."""
    home = tmp_path / "hermes-home"
    home.mkdir()
    assert "hermes memory setup herma" in run(hermes, home, "-m", "herma.connect.hermes_provider")
    run(hermes, home, str(hermes.parent / "hermes"), "memory", "setup", "herma")
    status = run(hermes, home, str(hermes.parent / "hermes"), "memory", "status")
    assert "available ✓" in status
    assert "herma  (local) ← active" in status
    return home


def used(hermes: Path, home: Path, context: str) -> Any:
    return json.loads(run(hermes, home, "-c", MANAGER, context).splitlines()[-1])


def test_hermes_uses_herma_through_its_own_manager(hermes: Path, chosen: Path) -> None:
    told = used(hermes, chosen, "primary")
    assert "herma" in told["found"]
    assert told["tools"] == ["herma_remember", "herma_search"]
    assert "herma_search" in told["prompt"]
    assert told["cold"] == ""
    assert "The grey heron nests by the old weir." in told["recalled"]
    assert told["search"]["results"][0]["text"] == "The grey heron nests by the old weir."
    assert told["kept"]["success"] is True
    with Herma.open(chosen.parent / "herma", flags={"embedding.model": "none"}) as h:
        assert h.memory.entries("user") == ["Likes herons."]
        assert h.memory.entries("memory") == ["The boat is green."]
        said = [one.content for session in h.transcripts.list() for one in h.transcripts.messages(session.id)]
        assert sorted(map(str, said)) == ["Noted.", "The grey heron nests by the old weir."], "otters were taken back"
    again = used(hermes, chosen, "primary")
    assert "Likes herons." in again["prompt"]


@pytest.mark.parametrize("context", ["subagent", "cron"])
def test_subagents_and_timers_of_hermes_only_read(hermes: Path, chosen: Path, context: str) -> None:
    told = used(hermes, chosen, context)
    assert told["kept"] == {"error": "Memory is read-only here."}
    with Herma.open(chosen.parent / "herma", flags={"embedding.model": "none"}) as h:
        assert h.memory.entries("user") == []
        assert list(h.transcripts.list()) == []
