"""A restore that is killed at any of its steps on the disk: the old home or the restored one, and nothing lost after.

`pytest -m long` kills at every step; the ordinary run at some of them, among those the first and the last.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.homes import herma, matrix

from herma import Add, Herma
from herma.doctor.checks import diagnose
from herma.doctor.repair import mend, plan
from herma.errors import StoreBusy
from herma.store import archive, backup
from herma.store.backup import restore
from herma.store.replace import cut_off_restores

from .crashing import NEEDS_FORK

pytestmark = NEEDS_FORK
COUNTED = """
import os, sys
from pathlib import Path
import apsw
from herma.store import backup
home, last, seen = Path(sys.argv[1]), int(sys.argv[2]), 0
def counted(owner, name):
    real = getattr(owner, name)
    def then(*args, **kwargs):
        global seen
        if begun:
            seen += 1
            if seen == last: os._exit(7)
        return real(*args, **kwargs)
    setattr(owner, name, then)
begun = False
def step(what):
    global begun
    begun = True
for name in ("rename", "replace", "unlink", "rmdir", "fsync", "mkdir"): counted(os, name)
backup.restore(home, backup.find(home, "good"), step=step)
print(seen)
"""


def fill(home: Path, text: str) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add(text))
        h.transcripts.append(h.transcripts.start(text), [{"role": "user", "content": f"{text} {n}"} for n in range(20)])
    (home / "skills" / "one").mkdir(parents=True, exist_ok=True)
    (home / "skills" / "one" / "SKILL.md").write_text(text)
    (home / "SOUL.md").write_text(text)


def seen(home: Path) -> tuple[list[str], set[str], str, str]:
    with Herma.open(home) as h:
        sources = {info.source for info in h.transcripts.list()}
        soul = home / "SOUL.md"
        text = soul.read_text() if soul.exists() else ""
        return h.memory.entries("memory"), sources, (home / "skills" / "one" / "SKILL.md").read_text(), text


def prepared(home: Path) -> tuple[object, object]:
    """→ what is in the backup, and what is there before the restore."""
    fill(home, "good")
    (home / "SOUL.md").unlink()
    good = seen(home)
    backup.create(home, name="good")
    fill(home, "later")
    return good, seen(home)


def killed(home: Path, at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COUNTED, str(home), str(at)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def steps(tmp_path: Path) -> int:
    prepared(tmp_path / "counting")
    return int(killed(tmp_path / "counting", -1).stdout)


def repair(home: Path) -> None:
    for fix in plan(home):
        mend(home, fix)


def write(home: Path) -> None:
    with Herma.open(home) as h:
        h.transcripts.start("acknowledged")
        assert h.memory.apply("memory", Add("acknowledged")).ok


ORDERS: dict[str, list[Callable[[Path], object]]] = {
    "write": [write, repair],
    "repair": [repair, write],
    "look, write, repair": [diagnose, write, diagnose, repair],
}


@pytest.mark.parametrize("every", matrix([False, True], lambda every: not every))
def test_a_restore_killed_at_any_step_is_the_old_home_or_the_new_one(tmp_path: Path, every: bool) -> None:
    last = steps(tmp_path)
    assert last > 20
    short = {1, last // 4, last // 2, last * 5 // 8, last * 3 // 4, last - 4, last}
    some = range(1, last + 1) if every else sorted(short)
    outcomes = set()
    for number, at in enumerate(some):
        for name, acts in list(ORDERS.items()) if every else [list(ORDERS.items())[number % 3]]:
            home = tmp_path / f"{at}-{name.split()[0]}"
            good, later = prepared(home)
            run = killed(home, at)
            assert run.returncode == 7, (at, run.stderr)
            begun = bool(cut_off_restores(home))
            if begun:
                assert not diagnose(home).healthy
                (said,) = (check for check in diagnose(home).of("problem") if check.name == "restore")
                assert "before-restore" in said.sentence
                assert "--repair" in said.next
            for act in acts:
                act(home)
            entries, sources, skill, soul = seen(home)
            assert "acknowledged" in entries, (at, name)
            assert "acknowledged" in sources, (at, name)
            rest = ([one for one in entries if one != "acknowledged"], sources - {"acknowledged"}, skill, soul)
            assert rest in (good, later), (at, name, rest)
            assert not begun or rest == good, (at, name)
            outcomes.add(rest == good)
            assert diagnose(home).healthy, (at, name, diagnose(home).of("problem"))
            assert not list(home.glob(".restore*"))
            if rest == good:
                restore(home, backup.find(home, f"{newest_safety(home)}"))
                assert seen(home) == later, "and what was there can be had back"
    assert outcomes == {True, False}


def newest_safety(home: Path) -> str:
    return next(each.name for each in archive.listing(home) if each.manifest and each.manifest.name == "before-restore")


class Killed(BaseException):
    """Nothing that comes after it is done."""


def cut_off(home: Path, at: str) -> None:
    """Begin a restore, and end at this step of those from which it only goes forward."""

    def step(what: str) -> None:
        if what == at:
            raise Killed

    with pytest.raises(Killed):
        restore(home, backup.find(home, "good"), step=step)
    assert cut_off_restores(home)


def test_who_had_the_home_open_before_is_refused_once_and_then_sees_the_restored_state(home: Path) -> None:
    """Nothing is read and nothing is written between a restore that was cut off and its end."""
    good, _ = prepared(home)
    with Herma.open(home) as h:
        cut_off(home, "memories")
        with pytest.raises(StoreBusy, match="just been finished"):
            h.transcripts.start("refused")
        assert not cut_off_restores(home)
        h.transcripts.start("accepted")
    entries, sources, *_ = seen(home)
    assert (entries, sources) == (good[0], good[1] | {"accepted"})  # type: ignore[index]


def test_backups_beside_a_restore_that_was_cut_off(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`herma.db` is unusable at that moment; the commands finish the restore instead of calling that damage."""
    good, _ = prepared(home)
    real = Path.replace

    def replace(path: Path, target: Path) -> Path:
        if target.name == "herma.db":
            raise Killed
        return real(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            restore(home, backup.find(home, "good"))
    assert not (home / "herma.db").read_bytes().startswith(b"SQLite")
    for number, command in enumerate([["create"], ["restore", "good", "--dry-run"], ["verify", "good"]]):
        copy = Path(shutil.copytree(home, tmp_path / str(number)))
        typed = herma(copy, "backup", *command)
        assert typed.code == 0, typed.err
        assert bool(cut_off_restores(copy)) == (command[0] == "verify"), "verify only reads the backup"
        assert seen(copy) == good


def test_what_another_process_wrote_meanwhile_is_kept(home: Path) -> None:
    """It had not found a database, and made one after the old was moved away."""
    good, _ = prepared(home)
    cut_off(home, "herma.db")
    (stage,) = cut_off_restores(home)
    known = (stage / "moves.json").read_text()
    (stage / "moves.json").unlink()
    with Herma.open(home) as h:
        h.transcripts.start("other")
    (stage / "moves.json").write_text(known)
    repair(home)
    assert seen(home) == good
    (kept,) = (home / "backups").glob("before-restore-*/found-*/herma.db")
    assert b"other" in kept.read_bytes()


@pytest.mark.parametrize("secret", [False, True])
def test_secrets_are_in_the_backup_before_a_restore_only_if_it_replaces_them(home: Path, secret: bool) -> None:
    fill(home, "good")
    (home / ".env").write_text("KEY=1")
    made = backup.create(home, with_secrets=secret)
    (home / ".env").write_text("KEY=2")
    safety = restore(home, made).safety
    assert safety
    assert safety.manifest
    assert (".env" in safety.manifest.files) == safety.manifest.secrets == secret
    assert (home / ".env").read_text() == ("KEY=1" if secret else "KEY=2")


def test_a_backup_without_a_database_leaves_an_empty_one(home: Path, tmp_path: Path) -> None:
    """A home without one, beside an index and backups that know one, would be damaged."""
    (tmp_path / "plain" / "memories").mkdir(parents=True)
    (tmp_path / "plain" / "memories" / "MEMORY.md").write_text("plain")
    made = backup.create(tmp_path / "plain", tmp_path / "plain.tar.zst")
    fill(home, "later")
    done = restore(home, made)
    assert "herma.db" in done.removed
    with Herma.open(home) as h:
        assert (h.transcripts.list(), h.memory.entries("memory")) == ([], ["plain"])
    assert diagnose(home).healthy
