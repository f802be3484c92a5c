"""Disks that are full, folders that cannot be written, files that vanish: a clear error, and nothing more lost."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path

import pytest

from herma import Herma, HermaWarning
from herma.errors import StoreError
from herma.store import sqlite as journal
from herma.store.checkup import state_of
from herma.store.sqlite import PAGE_SIZE

from .crashing import together, with_own_mounts

WORDS = [{"role": "user", "content": "words"}]


def incompressible(size: int) -> str:
    return "".join(f"{byte:02x} " for byte in os.urandom(size // 3))


def test_a_full_disk_is_said_and_what_was_there_stays(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        kept = h.transcripts.append(session, WORDS)
        database = h.db
        database.write(lambda connection: connection.run("PRAGMA max_page_count = 30"))

        def fill() -> None:
            for _ in range(100):
                kept.extend(h.transcripts.append(session, [{"role": "tool", "content": incompressible(15_000)}] * 2))

        with pytest.raises(StoreError, match="disk is full") as caught:
            fill()
        assert caught.value.hint
        assert [one.id for one in h.transcripts.messages(session)] == kept
        database.write(lambda connection: connection.run("PRAGMA max_page_count = 1000000"))
        kept += h.transcripts.append(session, WORDS)
        assert [one.id for one in h.transcripts.messages(session)] == kept
    with closing(sqlite3.connect(home / "herma.db")) as checked:
        assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_file_into_which_the_log_was_moved_half_way_is_still_ours(home: Path) -> None:
    """A kill or a full disk in between: the head of the file knows of pages that only the log has."""
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        for number in range(60):
            h.transcripts.append(session, [{"role": "user", "content": f"{number} {incompressible(2_000)}"}])
        before, log = (home / "herma.db").read_bytes(), (home / "herma.db-wal").read_bytes()
    after = (home / "herma.db").read_bytes()
    assert len(after) > len(before)
    (home / "herma.db").write_bytes(after[:PAGE_SIZE] + before[PAGE_SIZE:])
    (home / "herma.db-wal").write_bytes(log)
    assert state_of(home / "herma.db") == ("ours", "")
    with Herma.open(home) as h:
        assert len(h.transcripts.messages(session)) == 60
        h.transcripts.append(session, WORDS)
    with closing(sqlite3.connect(home / "herma.db")) as checked:
        assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


KILLED_HALF_WAY = """
import os, sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("PRAGMA journal_mode = DELETE").fetchall()
database.execute("PRAGMA cache_size = 3")
database.execute("BEGIN IMMEDIATE")
database.execute("UPDATE messages SET content = 'spoiled'")
database.execute("CREATE TABLE spoiled AS SELECT randomblob(3000) FROM messages a, messages b")
os.kill(os.getpid(), 9)
"""


def test_without_a_log_what_was_half_written_is_undone_before_it_is_read(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": f"{number} words"} for number in range(50)])
    subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(home / "herma.db")], check=False)
    assert (home / "herma.db-journal").exists()
    with Herma.open(home) as h:
        assert [one.content for one in h.transcripts.messages(session)] == [f"{number} words" for number in range(50)]
        assert not [check for check in h.doctor().checks if check.state == "problem"]
    assert not (home / "herma.db-journal").exists()


def test_who_has_the_file_open_reads_on_after_another_was_killed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "unsuited_mount", lambda path: "nfs4")
    with Herma.open(home) as h:
        with pytest.warns(HermaWarning, match="lies on nfs4"):
            session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": f"{number} words"} for number in range(50)])
        assert len(h.transcripts.messages(session)) == 50
        subprocess.run([sys.executable, "-c", KILLED_HALF_WAY, str(home / "herma.db")], check=False)
        assert (home / "herma.db-journal").exists()
        assert h.transcripts.messages(session)[7].content == "7 words"


FILL = """
set -e
mount -t tmpfs -o size=6m tmpfs "$1"
exec "$2" -c "$3" "$1/home"
"""


def test_a_full_disk_fails_all_who_share_the_commit_and_nobody_hangs(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        h.db.write(lambda connection: connection.run("PRAGMA max_page_count = 40"))
        kept: list[int] = []

        def write() -> None:
            for _ in range(20):
                kept.extend(h.transcripts.append(session, [{"role": "tool", "content": incompressible(12_000)}]))

        wrong = together(*[write] * 6)
        assert [type(exc) for exc in wrong] == [StoreError] * 6
        assert sorted(kept) == [one.id for one in h.transcripts.messages(session)]


def test_a_file_deleted_under_a_running_process_is_noticed(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, WORDS)
        for name in ("herma.db", "herma.db-wal", "herma.db-shm"):
            (home / name).unlink(missing_ok=True)
        with pytest.raises(StoreError, match="was deleted while it was in use"):
            h.transcripts.append(session, WORDS)
        session = h.transcripts.start("cli")
        h.transcripts.append(session, WORDS)
    with Herma.open(home) as h:
        assert len(h.transcripts.messages(session)) == 1


def test_a_file_that_was_replaced_is_taken_up(home: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with Herma.open(other) as h:
        restored = h.transcripts.start("cli", session_id="restored")
        h.transcripts.append(restored, WORDS)
    with Herma.open(home) as h:
        h.transcripts.append(h.transcripts.start("cli"), WORDS)
        for name in ("herma.db-wal", "herma.db-shm"):
            (home / name).unlink(missing_ok=True)
        shutil.copy(other / "herma.db", home / "herma.db.new")
        (home / "herma.db.new").replace(home / "herma.db")
        assert [line.id for line in h.transcripts.list()] == ["restored"]
        h.transcripts.append(restored, WORDS)
        assert len(h.transcripts.messages(restored)) == 2


READ_ONLY = """
import os, sys
from herma import Herma
from herma.errors import StoreError
import herma.transcript.rows, herma.transcript.rows, herma.transcript  # while this Python may be read
os.setgid(65534); os.setuid(65534)
with Herma.open(sys.argv[1]) as h:
    assert len(h.transcripts.messages("s")) == 1, "cannot read"
    assert h.transcripts.list()[0].id == "s"
    try:
        h.transcripts.append("s", [{"role": "user", "content": "x"}])
    except StoreError as exc:
        print(exc)
"""


@pytest.mark.skipif(not hasattr(os, "getuid") or os.getuid() != 0, reason="needs a user who may become another")
def test_a_home_that_cannot_be_written_can_be_read(tmp_path_factory: pytest.TempPathFactory) -> None:
    home = Path("/tmp") / f"herma-read-only-{os.getpid()}"  # every folder above must be open to strangers
    try:
        with Herma.open(home) as h:
            h.transcripts.append(h.transcripts.start("cli", session_id="s"), WORDS)
        home.chmod(0o555)
        (home / "herma.db").chmod(0o444)
        before = (home / "herma.db").read_bytes()
        python = subprocess.run(
            [sys.executable, "-c", READ_ONLY, str(home)], capture_output=True, text=True, timeout=60, check=False
        )
        if "PermissionError" in python.stderr:
            pytest.skip("strangers cannot run this Python")
        assert (python.returncode, "cannot be written" in python.stdout) == (0, True), python.stderr
        assert (home / "herma.db").read_bytes() == before
        assert [each.name for each in home.iterdir()] == ["herma.db"]
    finally:
        home.chmod(0o755)
        shutil.rmtree(home)


def test_where_a_write_ahead_log_is_not_safe_there_is_none(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "unsuited_mount", lambda path: "nfs4")
    with Herma.open(home) as h:
        with pytest.warns(HermaWarning, match="lies on nfs4") as caught:
            session = h.transcripts.start("cli")
        assert len(caught) == 1
        h.transcripts.append(session, WORDS)
        assert len(h.transcripts.messages(session)) == 1
        assert h.db.write(lambda connection: connection.rows("PRAGMA journal_mode")[0][0]) == "delete"
        assert h.db.write(lambda connection: connection.rows("PRAGMA synchronous")[0][0]) == 3
    assert {each.name for each in home.iterdir()} == {"herma.db"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Herma.open(home) as h:  # said once
            h.transcripts.append(session, WORDS)
    monkeypatch.undo()
    with Herma.open(home) as h:  # moved to a better place
        h.transcripts.append(session, WORDS)
        assert h.db.write(lambda connection: connection.rows("PRAGMA journal_mode")[0][0]) == "wal"
        assert len(h.transcripts.messages(session)) == 3


def test_commits_are_flushed(home: Path) -> None:
    with Herma.open(home) as h:
        h.transcripts.start("cli")
        assert h.db.write(lambda connection: connection.rows("PRAGMA journal_mode")[0][0]) == "wal"
        assert h.db.write(lambda connection: connection.rows("PRAGMA synchronous")[0][0]) == 2
        assert h.db.write(lambda connection: connection.rows("PRAGMA fullfsync")[0][0]) == 1


READ_WHEN_FULL = """
import os, sys
from pathlib import Path
from herma import Herma
from herma.errors import StoreError
home = Path(sys.argv[1])
with Herma.open(home) as h:
    h.transcripts.append(h.transcripts.start("cli", session_id="s"), [{"role": "user", "content": "words"}])
assert [each.name for each in home.iterdir()] == ["herma.db"]
filling = home.parent / "filling"
with filling.open("wb", buffering=0) as file:
    try:
        while file.write(bytes(4096)):
            pass
    except OSError:
        pass
with Herma.open(home) as h:
    assert [one.content for one in h.transcripts.messages("s")] == ["words"], "not one byte is free, and it is read"
    try:
        h.transcripts.append("s", [{"role": "user", "content": "more"}])
    except StoreError as exc:
        assert "disk is full" in str(exc), exc
    else:
        raise AssertionError("written where nothing is free")
    filling.unlink()
    h.transcripts.append("s", [{"role": "user", "content": "more"}])
    assert [one.content for one in h.transcripts.messages("s")] == ["words", "more"], "nothing old is read"
print("done")
"""


def test_a_disk_without_a_free_byte_is_read(home: Path) -> None:
    assert with_own_mounts(FILL, home, READ_WHEN_FULL) == "done\n"


READ_ONLY_DISK = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
exec "$2" -c "$3" "$1"
"""
READ_LOG = """
import sys
from pathlib import Path
from herma import Herma
from herma.errors import StoreError
home = Path(sys.argv[1])
with Herma.open(home) as h:
    try:
        print(len(h.transcripts.messages("s")))
    except StoreError as exc:
        print(exc, exc.hint)
    try:
        h.transcripts.append("s", [{"role": "user", "content": "more"}])
    except StoreError as exc:
        assert "cannot be" in str(exc), exc
    assert h.doctor().healthy
"""


@pytest.mark.parametrize(("shared", "expected"), [(True, "20\n"), (False, "copy the whole folder")])
def test_a_read_only_disk_with_a_log_is_read_or_said_to_be_none(home: Path, shared: bool, expected: str) -> None:
    """A snapshot of a home in use has a log; with the memory that processes share it can be read, without it not."""
    snapshot = home.parent / "snapshot"
    with Herma.open(home) as h:
        session = h.transcripts.start("cli", session_id="s")
        for _ in range(20):
            h.transcripts.append(session, WORDS)
        shutil.copytree(home, snapshot)
    if not shared:
        (snapshot / "herma.db-shm").unlink()
    assert expected in with_own_mounts(READ_ONLY_DISK, snapshot, READ_LOG)


KILLED_WITHOUT_LOG = """
import os, sys
from pathlib import Path
from herma import Herma
from herma.errors import StoreError
home, names = Path(sys.argv[1]), sys.argv[2].split()
h = Herma.open(home)
session = h.transcripts.start("cli", session_id="s")
told = []
for number in range(20):
    told += h.transcripts.append(session, [{"role": "user", "content": "words"}])
assert len(h.transcripts.messages("s")) == 20
for name in names:
    (home / name).unlink()
if "looked" in sys.argv[3]:
    assert len(h.transcripts.messages("s")) == 20
try:
    told += h.transcripts.append(session, [{"role": "user", "content": "words"}])
except StoreError as exc:
    assert "was deleted while it was in use" in str(exc), exc
    assert exc.hint
told += h.transcripts.append(session, [{"role": "user", "content": "words"}])
assert [one.id for one in h.transcripts.messages("s")] == told
print(len(told), flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.parametrize(("names", "how"), [("herma.db-wal", "looked"), ("herma.db-wal herma.db-shm", "written")])
def test_a_log_deleted_under_a_running_process_costs_nothing_that_was_acknowledged(
    home: Path, names: str, how: str
) -> None:
    command = [sys.executable, "-c", KILLED_WITHOUT_LOG, str(home), names, how]
    run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert run.returncode == -9, run.stderr
    with Herma.open(home) as h:
        assert len(h.transcripts.messages("s")) == int(run.stdout)
    with closing(sqlite3.connect(home / "herma.db")) as checked:
        assert checked.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_where_others_have_begun_a_new_log_nothing_is_mixed(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("cli", session_id="s")
        h.transcripts.append(session, WORDS)
        log = home / "herma.db-wal"
        log.rename(home / "elsewhere")
        log.write_bytes((home / "elsewhere").read_bytes())
        before = (home / "herma.db").read_bytes()
        with pytest.raises(StoreError, match="others have begun a new one"):
            h.transcripts.append(session, WORDS)
        assert (home / "herma.db").read_bytes() == before
