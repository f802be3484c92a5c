"""What Herma makes is its owner's only: every folder and every file, also those above, whatever the umask allows."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from tests.homes import herma

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


def by_memory(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("a fact"))
        h.memory.apply("memory", Add("a fact"), scope=Scope(project="shop"))
        h.memory.apply("user", Add("a fact"), scope=Scope(user="ada"))


def by_a_session(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session(source="test", project="shop") as session:
            session.before_model("Where?")
            session.call_tool("memory", {"action": "add", "target": "memory", "content": "CI runs on ARM."})
            session.after_model("There.")
        h.search("where")


def by_commands(home: Path) -> None:
    assert herma(home, "config", "set", "memory.user_char_limit", "1400", "--profile", "work").code == 0
    assert herma(home, "memory", "add", "Tests need Redis.", "--project", "shop").code == 0
    assert herma(home, "backup", "create", "--name", "first").code == 0
    (made,) = (home / "backups").glob("*-first.tar.zst")
    other = home.with_name("other")
    assert herma(other, "backup", "restore", str(made), "--yes").code == 0
    assert (other / "memories" / "projects").is_dir()


@pytest.mark.parametrize("make", [by_memory, by_a_session, by_commands])
def test_what_is_made_is_its_owners_only(tmp_path: Path, make: object) -> None:
    assert callable(make)
    make(tmp_path / "above" / "home")
    assert exposed(tmp_path / "above") == []
