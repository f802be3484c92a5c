"""`herma.db` missing or cut short while its log, its index or a backup know more: damage, never a new home."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from herma import Add, Herma
from herma.cli.main import cli
from herma.doctor.checks import diagnose
from herma.doctor.repair import Mended, mend, plan
from herma.errors import HermaError, StoreError
from herma.store import backup
from herma.store.backup import restore

KILLED = """
import os, sys
from herma import Add, Herma
h = Herma.open(sys.argv[1])
h.transcripts.start("test", session_id="s")
for number in range(60):
    h.transcripts.append("s", [{"role": "user", "content": f"word{number} zephyr " + "x" * 200}])
h.memory.apply("memory", Add("note"))
if "index" in sys.argv: h.index.rebuild()
os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def crashed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with everything in its log, and an index that has seen it."""
    home = tmp_path_factory.mktemp("crashed") / "home"
    run = subprocess.run([sys.executable, "-c", KILLED, str(home), "index"], check=False, timeout=120)
    assert run.returncode == -signal.SIGKILL
    return home


@pytest.fixture
def home(crashed: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(crashed, tmp_path / "home"))


def without(home: Path, *names: str) -> None:
    for name in names:
        for path in home.glob(name):
            path.unlink()


def refused(home: Path, *, keeps_log: bool = True) -> str:
    """→ why; nothing that is there is changed by asking."""
    before = {path.name: path.read_bytes() for path in home.glob("herma.db*")} | {
        "index": (home / "index.db").read_bytes() if (home / "index.db").exists() else b""
    }
    with Herma.open(home) as h, pytest.raises(StoreError) as caught:
        h.transcripts.append("s", [{"role": "user", "content": "more"}])
    assert "doctor --repair" in caught.value.hint
    with Herma.open(home) as h, pytest.raises(StoreError):
        h.memory.apply("memory", Add("more"))
    typed = CliRunner().invoke(cli, ["--home", str(home), "memory", "add", "more"])
    assert typed.exit_code == 3
    assert "--repair" in typed.stderr
    assert not diagnose(home).healthy
    for name, data in before.items():
        if name == "herma.db-wal" and keeps_log:
            assert (home / name).read_bytes() == data
        if name == "index" and data:
            assert (home / "index.db").read_bytes() == data
    return str(caught.value)


def repaired(home: Path) -> Mended:
    done = [mend(home, fix) for fix in plan(home)]
    (made,) = (each for each in done if each.salvaged)
    assert diagnose(home).healthy
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["note"]
        assert h.memory.apply("memory", Add("more")).ok
    return made


def messages(home: Path) -> int:
    with Herma.open(home) as h:
        try:
            return len(h.transcripts.messages("s"))
        except HermaError:
            return 0


@pytest.mark.parametrize("also", [(), ("index.db",), ("index.db", "herma.db-shm")])
@pytest.mark.parametrize("emptied", [False, True])
def test_a_missing_or_emptied_database_comes_back_from_its_log(
    home: Path, also: tuple[str, ...], emptied: bool
) -> None:
    """SQLite deletes the log of an empty file before it reads anything."""
    without(home, "herma.db", *also)
    if emptied:
        (home / "herma.db").touch()
    assert "herma.db-wal" in refused(home)
    made = repaired(home)
    assert messages(home) == 60
    assert made.kept
    assert (made.kept / "herma.db-wal").stat().st_size > 100_000


@pytest.mark.parametrize("with_log", [True, False])
def test_a_missing_database_comes_back_from_a_backup_with_the_log_on_top(home: Path, with_log: bool) -> None:
    backup.create(home)
    with Herma.open(home) as h:
        h.transcripts.append("s", [{"role": "user", "content": "after the backup"}])
        h.index.rebuild()
        log = (home / "herma.db-wal").read_bytes()
    without(home, "herma.db*", *([] if with_log else ["index.db*"]))
    if with_log:
        (home / "herma.db-wal").write_bytes(log)
    assert "the backups" in refused(home)
    repaired(home)
    assert messages(home) == 60 + with_log


@pytest.mark.parametrize("emptied", [False, True])
def test_with_nothing_but_an_index_it_is_said_what_is_lost(home: Path, emptied: bool) -> None:
    without(home, "herma.db*")
    if emptied:
        (home / "herma.db").touch()
    assert ("was emptied" if emptied else "index.db") in refused(home)
    made = repaired(home)
    assert made.salvaged
    assert any("1–60" in note for note in made.salvaged.notes)
    assert made.kept
    assert (made.kept / "index.db").exists()


def test_a_restore_beside_a_lone_log_keeps_the_log(home: Path) -> None:
    made = backup.create(home)
    with Herma.open(home) as h:
        h.transcripts.append("s", [{"role": "user", "content": "after the backup"}])
        log = (home / "herma.db-wal").read_bytes()
    without(home, "herma.db*")
    (home / "herma.db-wal").write_bytes(log)
    done = restore(home, made)
    assert done.kept
    assert (done.kept / "herma.db-wal").read_bytes() == log
    assert messages(home) == 60


def test_a_log_that_was_deleted_or_cut_in_half_is_damage(home: Path, tmp_path: Path) -> None:
    deleted = Path(shutil.copytree(home, tmp_path / "deleted"))
    without(deleted, "herma.db-wal", "index.db")
    assert "deleted" in refused(deleted)
    for known_by in ("index", "shared memory"):
        _cut_in_half(Path(shutil.copytree(home, tmp_path / known_by)), known_by)


def _cut_in_half(home: Path, known_by: str) -> None:
    log = home / "herma.db-wal"
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    without(home, "herma.db-shm" if known_by == "index" else "index.db")
    why = refused(home, keeps_log=known_by != "index")  # what is left of it is good, and may be moved into the file
    assert "lacks" in why if known_by == "index" else "cut off" in why
    with Herma.open(home) as h, pytest.raises(StoreError):
        h.search("zephyr")
    assert not diagnose(home).healthy, "a search did not build the index anew"
    made = repaired(home)
    assert made.salvaged
    assert any("–60" in note or "cut off" in note for note in made.salvaged.notes)
    assert 0 < messages(home) < 60


def test_a_crash_alone_is_no_damage(home: Path) -> None:
    assert diagnose(home).healthy
    assert messages(home) == 60


def test_files_that_somebody_copied_are_a_new_home(tmp_path: Path) -> None:
    home = tmp_path / "new"
    (home / "memories").mkdir(parents=True)
    (home / "memories" / "MEMORY.md").write_text("copied")
    (home / "state.db").write_bytes(b"theirs")
    backup.create(home)  # has no database
    with Herma.open(home) as h:
        assert h.memory.apply("memory", Add("more")).ok
        assert h.memory.entries("memory") == ["copied", "more"]
    assert (home / "state.db").read_bytes() == b"theirs"


def listening(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(path.name)
    os.chdir(here)


def a_device(path: Path) -> None:
    path.symlink_to("/dev/zero")


COMMANDS = """
import json, sys
from pathlib import Path
from tests.homes import herma
for words in sys.argv[2:]:
    done = herma(Path(sys.argv[1]), *words.split())
    print(json.dumps([words, done.code, done.err]))
"""


@pytest.mark.skipif(os.name == "nt", reason="needs pipes and devices")
@pytest.mark.parametrize(
    ("name", "make"),
    [
        *(("herma.db", make) for make in (os.mkfifo, Path.mkdir, listening, a_device)),
        *((name, os.mkfifo) for name in ("herma.db-wal", "herma.db-shm", "index.db", "index.db-journal")),
        ("herma.db-wal", a_device),
    ],
)
def test_what_is_no_file_is_named_and_nobody_waits_for_it(home: Path, name: str, make: Callable[[Path], None]) -> None:
    if name.startswith("herma.db-"):
        with Herma.open(home) as h:
            h.memory.history()
    without(home, name, "herma.db-*" if name == "herma.db" else name)
    make(home / name)
    command = [sys.executable, "-c", COMMANDS, str(home), "memory add more", "search zephyr", "doctor", "backup create"]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    said = [json.loads(line) for line in run.stdout.splitlines()]
    assert len(said) == 4
    for words, code, err in said:
        assert code in ((1, 3) if name.startswith("herma.db") else (0,)), (words, err)
        if name.startswith("herma.db") and words != "doctor":
            assert "not an ordinary file" in err or "not a Herma database" in err, err
    assert name.startswith("index") or os.path.lexists(home / name)
