"""`herma tour`: it runs to its end, leaves nothing behind, and does not lie."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma.cli import tour
from herma.cli.main import cli
from herma.cli.tour import Facts, Guide, opened


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary homes are made during the test."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def take(*words: str) -> Result:
    return CliRunner().invoke(cli, ["tour", *words])


def test_the_whole_tour_without_a_terminal(temporary: Path, user_folder: Path) -> None:
    command = [sys.executable, "-m", "herma.cli.main", "tour"]
    env = os.environ | {"CLAUDECODE": "1", "HERMA_MEMORY_WRITE_APPROVAL": "on", "HERMA_MEMORY_USER_CHAR_LIMIT": "9"}
    done = subprocess.run(
        command, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, env=env, cwd=temporary, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert done.stdout.splitlines()[-1] == f"Your turn: {tour.program()} {tour.NEXT}"
    for number in range(1, len(tour.STEPS) + 1):
        assert f"\n{number}  " in done.stdout
    assert "\x1b" not in done.stdout
    assert str(temporary) not in done.stdout
    assert "is now `herma" not in done.stdout, "an old spelling"
    assert list(temporary.glob("herma-tour-*")) == []
    assert not (user_folder / ".herma").exists()


def test_json_has_the_facts_and_keep_keeps(user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tour, "STEPS", [tour.learns, tour.survives])
    (user_folder / ".claude/projects/x").mkdir(parents=True)
    (user_folder / ".claude/projects/x/1.jsonl").write_text('{"type": "user"}')
    done = take("--json", "--keep")
    assert done.exit_code == 0, done.stderr
    value = json.loads(done.stdout)
    assert value["ok"] is True
    assert (value["agents"], value["transcripts"]) == (["Claude Code"], ["Claude Code"])
    steps = {step["step"]: step["facts"] for step in value["steps"]}
    assert list(steps) == ["learns", "survives"]
    assert steps["learns"]["before"] == steps["learns"]["after"]
    assert steps["survives"]["lost"] == 0
    assert steps["survives"]["acknowledged"] >= 45
    assert all(step["calls"] for step in value["steps"])
    assert (Path(value["home"]) / "memories" / "MEMORY.md").is_file()


def test_a_lie_is_found_out(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The scanner lets everything pass; the tour says that malicious text is refused."""
    monkeypatch.setattr("herma.memory.store.scan", lambda _: [])
    monkeypatch.setattr(tour, "STEPS", [tour.refuses])
    done = take()
    assert done.exit_code != 0
    assert "Step 1 (Malicious text is refused) had another result" in done.stderr
    assert tour.NEXT not in done.stdout
    assert list(temporary.glob("herma-tour-*")) == []

    def broken(guide: Guide) -> Facts:
        """A broken step"""
        guide.type("memory", "add", "", code=0)
        return {}

    monkeypatch.setattr(tour, "STEPS", [broken])
    done = take("--json")
    assert (done.exit_code != 0, json.loads(done.stdout)["ok"]) == (True, False)
    assert "Step 1 (A broken step) had another result" in done.stderr


def test_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(**_: str) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", fail)
    done = take()
    assert done.exit_code == 3
    assert "No space left on device" in done.stderr


def test_a_model_installed_here_does_not_change_the_tour(tmp_path: Path) -> None:
    """What is near in meaning would be found where the tour says that nothing is."""
    with opened(tmp_path / "home", tour._environment(tmp_path / "home")) as h:
        assert h.settings.embedding.model == "none"


def test_the_last_line_can_be_pasted_where_the_program_is_not_on_the_path(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    program = tmp_path / "an env" / "herma"
    program.parent.mkdir()
    program.touch(0o755)
    monkeypatch.setattr(sys, "argv", [str(program)])
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tour.program() == f"'{program}'"
    monkeypatch.setenv("PATH", str(program.parent))
    assert tour.program() == "herma"
