"""What Herma makes is its owner's only: every folder and every file, also those above, whatever the umask allows."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from herma import Add, Herma
from herma.types import Scope

pytestmark = pytest.mark.skipif(os.name == "nt", reason="Windows has other permissions")


@pytest.fixture(autouse=True)
def open_umask() -> object:
    before = os.umask(0o022)
    yield
    os.umask(before)


def exposed(folder: Path) -> list[str]:
    everything = [folder, *folder.rglob("*")]
    return sorted(str(each.relative_to(folder)) for each in everything if stat.S_IMODE(each.stat().st_mode) & 0o077)


def herma(home: Path, *arguments: str) -> None:
    subprocess.run(
        [sys.executable, "-m", "herma.cli.main", *arguments, "--home", str(home)], check=True, capture_output=True
    )


def test_a_home_that_memory_makes(tmp_path: Path) -> None:
    with Herma.open(tmp_path / "above" / "home") as h:
        h.memory.apply("memory", Add("a fact"))
        h.memory.apply("memory", Add("a fact"), scope=Scope(project="shop"))
        h.memory.apply("user", Add("a fact"), scope=Scope(user="ada"))
    assert exposed(tmp_path / "above") == []


def test_a_home_that_a_session_makes(tmp_path: Path) -> None:
    with Herma.open(tmp_path / "above" / "home") as h:
        with h.session(source="test", project="shop") as session:
            session.before_model("Where?")
            session.call_tool("memory", {"action": "add", "target": "memory", "content": "CI runs on ARM."})
            session.after_model("There.")
        h.search("where")
    assert exposed(tmp_path / "above") == []


def test_a_home_that_commands_make(tmp_path: Path) -> None:
    home, other = tmp_path / "above" / "home", tmp_path / "above" / "other"
    herma(home, "config", "set", "memory.user_char_limit", "1400", "--profile", "work")
    herma(home, "memory", "add", "Tests need Redis.", "--project", "shop")
    herma(home, "backup", "create", "--name", "first")
    (made,) = (home / "backups").glob("*-first.tar.zst")
    herma(other, "backup", "restore", str(made), "--yes")
    assert (other / "memories" / "projects").is_dir()
    assert exposed(tmp_path / "above") == []
