"""Curated files in every bad state: the session starts, nothing is lost, and the error says what to do."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.homes import filled, herma

from herma import Add, Applied, Drifted, Herma, OverBudget, Remove, Replace
from herma.errors import StoreError


@pytest.fixture
def path(home: Path) -> Path:
    (home / "memories").mkdir()
    return home / "memories" / "MEMORY.md"


def backups(path: Path) -> list[Path]:
    return sorted(path.parent.glob("*.bak.*"))


# ── drift ──


def test_undecodable_bytes_are_backed_up_once_refused_and_adopted(home: Path, path: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", [Add("Das Café öffnet um 8"), Add("two")])
        damaged = path.read_bytes().replace(b"\xc3\xa9", b"\xe9") + b"\n\xc2\xa7\nby hand \xff"
        path.write_bytes(damaged)
        session = h.session()
        assert session.snapshot.text == ""
        assert "not UTF-8" in session.warnings[0]
        assert h.memory.entries("memory") == []
        for op in (Add("three"), Remove("two"), Replace("two", "x")):
            outcome = h.memory.apply("memory", op)
            assert isinstance(outcome, Drifted)
            assert "adopt" in outcome.remedy
            assert outcome.backup == str(backups(path)[0])
        assert isinstance(h.memory.undo(), Drifted)
        assert len(backups(path)) == 1, "the same bytes are kept once, others too"
        assert path.read_bytes() == backups(path)[0].read_bytes() == damaged
        assert "not UTF-8" in h.memory.status()[0].trouble

        adopted = h.memory.adopt("memory")
        assert isinstance(adopted, Applied)
        assert h.memory.entries("memory") == ["Das Café öffnet um 8", "two", "by hand ÿ"]
        assert adopted.backup == str(backups(path)[0])
        assert h.memory.apply("memory", Add("three")).ok
        assert [change.action for change in h.memory.history()] == ["add", "adopt", "batch of 2"]
        assert h.memory.describe("memory")[0].origin is not None, "what was known of it is known still"


def test_an_entry_longer_than_the_limit_is_shown_in_part_refused_and_adopted(home: Path, path: Path) -> None:
    long = " ".join(f"word{number}" for number in range(400))
    path.write_text(f"short\n§\n{long}")
    with Herma.open(home) as h:
        outcome = h.memory.apply("memory", Add("x"))
        assert isinstance(outcome, Drifted)
        assert outcome.backup
        assert path.read_text() == f"short\n§\n{long}"
        session = h.session()
        assert "short" in session.snapshot.text
        assert "more characters" in session.snapshot.text
        assert isinstance(h.memory.adopt("memory"), Applied)
        entries = h.memory.entries("memory")
        assert " ".join(entries[1:]) == long
        assert isinstance(h.memory.apply("memory", Remove("word0")), Applied), "it may shrink now"


def test_a_file_over_its_limit_in_sum_only_shrinks(home: Path, path: Path) -> None:
    with Herma.open(home) as h:
        assert h.memory.apply("memory", [Add("x" * 700), Add("y" * 700), Add("z" * 700)]).ok
    with Herma.open(home, flags={"memory.memory_char_limit": 1000}) as h:
        session = h.session()
        assert "x" * 700 in session.snapshot.text
        assert "y" * 700 not in session.snapshot.text
        assert "[1,406 more characters do not fit the limit of 1,000" in session.snapshot.text
        assert "over its limit" in session.warnings[0]
        over = h.memory.apply("memory", Add("n"))
        assert isinstance(over, OverBudget)
        assert over.suggestions
        assert h.memory.apply("memory", Remove("z")).ok
        assert h.memory.apply("memory", Replace("y", "y" * 300)).ok
        assert isinstance(h.memory.apply("memory", Add("n")), OverBudget)
        assert h.memory.apply("memory", Replace("x", "x" * 600)).ok
        assert h.memory.apply("memory", Add("n")).ok


# ── what is no file, or cannot be reached ──


def folder(path: Path) -> None:
    path.mkdir()


def pipe(path: Path) -> None:
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.symlink_to(path)


def device(path: Path) -> None:
    path.symlink_to("/dev/zero")


def enormous(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


@pytest.mark.parametrize("bad", [folder, pipe, loop, device, enormous])
def test_what_cannot_be_read_never_stops_a_session_and_is_never_written(
    home: Path, path: Path, bad: Callable[[Path], None]
) -> None:
    with Herma.open(home) as h:
        assert h.memory.apply("user", Add("fine")).ok
        bad(path)
        before = path.lstat()
        session = h.session()
        assert "fine" in session.snapshot.text
        assert str(path) in session.warnings[0]
        for outcome in (h.memory.apply("memory", Add("x")), h.memory.adopt("memory")):
            assert isinstance(outcome, Drifted)
            assert outcome.backup is None
        assert isinstance(h.memory.reset("memory"), Drifted)
        assert json.loads(session.call_tool("memory", {"action": "add", "content": "x"}))["success"] is False
        assert h.memory.status()[0].trouble
        assert [change.target for change in h.memory.history()] == ["user"]
        after = path.lstat()
        assert (after.st_ino, after.st_size, after.st_mtime_ns) == (before.st_ino, before.st_size, before.st_mtime_ns)


# ── links ──


def test_a_linked_file_stays_a_link_and_is_replaced_where_it_lies(home: Path, path: Path, tmp_path: Path) -> None:
    real = tmp_path / "elsewhere" / "notes [1].md"
    real.parent.mkdir()
    real.write_text("one")
    path.symlink_to(real)
    with Herma.open(home) as h:
        assert h.memory.apply("memory", Add("two")).ok
        assert path.is_symlink()
        assert real.read_text() == "one\n§\ntwo"
        assert (real.parent / "notes [1].md.lock").exists(), "homes that share the file share the lock"
        assert not (path.parent / "MEMORY.md.lock").exists()
        real.write_bytes(b"\xff")
        assert isinstance(h.memory.apply("memory", Add("x")), Drifted)
        assert isinstance(h.memory.apply("memory", Add("x")), Drifted)
        assert len(backups(real)) == 1
        assert backups(path) == []
    path.unlink()
    path.symlink_to(tmp_path / "not yet" / "there.md")
    with Herma.open(home) as h:
        assert h.session().snapshot.text == ""
        assert h.memory.apply("memory", Add("one")).ok
    assert path.is_symlink()
    assert (tmp_path / "not yet" / "there.md").read_text() == "one"


def test_two_homes_that_share_a_file_do_not_lose_each_others_entries(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    with Herma.open(tmp_path / "a") as first, Herma.open(tmp_path / "b") as second:
        first.memory.apply("memory", Add("from a"))
        (tmp_path / "b" / "memories").mkdir()
        (tmp_path / "b" / "memories" / "MEMORY.md").symlink_to(tmp_path / "a" / "memories" / "MEMORY.md")
        assert second.memory.apply("memory", Add("from b")).ok
        assert first.memory.apply("memory", Add("again a")).ok
        assert first.memory.entries("memory") == second.memory.entries("memory") == ["from a", "from b", "again a"]
        assert [change.action for change in first.memory.history()] == ["add", "edited by hand", "add"]


# ── permissions, as somebody whom they bind ──


@pytest.fixture
def shared_home() -> Iterator[Path]:
    """A home that another user can reach: pytest's own folders are closed to them."""
    root = Path(tempfile.mkdtemp())
    root.chmod(0o755)
    home = root / "home"
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("one"))
        h.memory.apply("memory", Add("two"))
    yield home
    shutil.rmtree(root)


def as_nobody(home: Path, work: Callable[[], None]) -> None:
    """Run `work` in a child to which permissions apply, and fail as it does."""
    if os.geteuid() == 0:
        for each in [home, *home.rglob("*")]:
            os.chown(each, 65534, 65534)
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if os.geteuid() == 0:
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException as exc:  # noqa: BLE001  the child must not run on in the test suite
            os.write(writer, repr(exc).encode()[:4000])
        os._exit(0)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123
        problem = file.read().decode()
    os.waitpid(pid, 0)
    assert not problem, problem


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
quiet_fork = pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")


@needs_fork
@quiet_fork
def test_an_unreadable_file_is_a_warning_and_is_not_written(shared_home: Path) -> None:
    path = shared_home / "memories" / "MEMORY.md"
    before = path.read_bytes()

    def work() -> None:
        path.chmod(0)
        with Herma.open(shared_home) as h:
            session = h.session()
            assert session.snapshot.text == ""
            assert "permission denied" in session.warnings[0]
            outcome = h.memory.apply("memory", Add("x"))
            assert isinstance(outcome, Drifted)
            assert "readable" in outcome.remedy
            assert len(h.memory.history()) == 2

    as_nobody(shared_home, work)
    path.chmod(0o600)
    assert path.read_bytes() == before


@needs_fork
@quiet_fork
@pytest.mark.parametrize("whole", [True, False], ids=["whole home", "memories only"])
def test_a_read_only_folder_can_be_read_and_refuses_writes_clearly(shared_home: Path, whole: bool) -> None:
    folders = [shared_home / "memories"] + ([shared_home] if whole else [])

    def work() -> None:
        for each in folders:
            each.chmod(0o555)
        if whole:
            (shared_home / "herma.db").chmod(0o444)
            (shared_home / "memories" / "MEMORY.md").chmod(0o444)
            (shared_home / "memories" / "MEMORY.md.lock").chmod(0o444)
        with Herma.open(shared_home) as h:
            assert "one\n§\ntwo" in h.session().snapshot.text
            with pytest.raises(StoreError) as caught:
                h.memory.apply("memory", Add("x"))
            assert caught.value.hint
            assert "herma.db" not in str(caught.value), "the folder is at fault"
            assert [change.after for change in h.memory.history()] == ["one\n§\ntwo", "one"]
            assert [status.entry_count for status in h.memory.status()] == [2, 0]
            assert h.memory.describe("memory")[0].created

    as_nobody(shared_home, work)
    for each in folders:
        each.chmod(0o755)
    assert (shared_home / "memories" / "MEMORY.md").read_text() == "one\n§\ntwo"
    with Herma.open(shared_home) as h:
        assert len(h.memory.history()) == 2


@needs_fork
@quiet_fork
def test_a_home_that_cannot_be_created_is_a_clear_error(shared_home: Path) -> None:
    def work() -> None:
        shared_home.chmod(0o555)
        with Herma.open(shared_home / "deeper") as h:
            assert h.session().snapshot.text == ""
            with pytest.raises(StoreError, match="cannot be created"):
                h.memory.apply("memory", Add("x"))

    as_nobody(shared_home, work)


READING = (
    "doctor",
    "memory list",
    "memory status",
    "memory archive list",
    "memory tidy --dry-run",
    "sessions list",
    "sessions stats",
    "search roses",
    "brief water-the-roses",
    "episodes list",
    "facts",
    "skills list",
    "skills status",
    "learned list",
    "cost",
    "index status",
    "log",
    "inbox",
)


@needs_fork
@quiet_fork
def test_reading_commands_work_on_a_read_only_home(shared_home: Path) -> None:
    filled(shared_home)

    def work() -> None:
        for each in [*shared_home.rglob("*"), shared_home]:
            each.chmod(0o555 if each.is_dir() else 0o444)
        for words in READING:
            ran = herma(shared_home, *words.split())
            assert ran.code == 0, (words, ran.err)
            assert words not in ("brief water-the-roses", "search roses") or "Water bed" in ran.out

    as_nobody(shared_home, work)
    for each in [shared_home, *shared_home.rglob("*")]:
        each.chmod(0o755)
