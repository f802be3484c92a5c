"""kill -9 at any point: what was acknowledged is there exactly once, and nothing is half-written."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.faults.crashing import NEEDS_FORK, after, die, forked
from tests.homes import matrix

from herma import Add, Change, Herma, Replace
from herma.memory import files
from herma.memory.files import FILES, MemoryRows
from herma.types import TARGETS

pytestmark = NEEDS_FORK

BIG = {"memory.memory_char_limit": 1_000_000, "memory.user_char_limit": 1_000_000}


def assert_whole(h: Herma, home: Path) -> list[Change]:
    """Whole entries, and a history without gaps that ends in what the file holds."""
    for target in TARGETS:
        changes = h.memory.history(target)
        before = ""
        for change in reversed(changes):
            assert change.before == before, f"a gap before change {change.id}"
            before = change.after
        path = home / "memories" / FILES[target]
        assert (path.read_bytes() if path.exists() else b"") == before.encode()
    return h.memory.history()


def write_until_killed(home: Path, acknowledge: int, first: int) -> None:
    """Add to both files and say each number once it is acknowledged."""
    with Herma.open(home, flags=BIG) as h:
        for number in range(first, first + 10_000):
            assert h.memory.apply(TARGETS[number % 2], Add(f"<{number}>")).ok
            os.write(acknowledge, f"{number}\n".encode())


@pytest.mark.slow
@pytest.mark.parametrize("seed", matrix(range(4), lambda seed: seed == 0))
def test_kill_at_random_points_loses_nothing_acknowledged(home: Path, seed: int) -> None:
    """Fifty kills in each home."""
    chance = random.Random(seed)
    acknowledged: list[int] = []
    started = 0
    for _ in range(50):
        reader, writer = os.pipe()

        def work(writer: int = writer, first: int = started) -> None:
            write_until_killed(home, writer, first)

        pid = forked(work)
        os.close(writer)
        wanted = chance.randrange(3)
        said = b""
        while said.count(b"\n") < wanted and (more := os.read(reader, 4096)):
            said += more
        time.sleep(chance.random() * 0.004)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        while more := os.read(reader, 4096):
            said += more
        os.close(reader)
        acknowledged += [int(number) for number in said.split(b"\n")[:-1]]
        started = max([started, *(number + 2 for number in acknowledged)])
        with Herma.open(home, flags=BIG) as h:
            changes = assert_whole(h, home)
            there = h.memory.entries("memory") + h.memory.entries("user")
            texts = (home / "memories" / "MEMORY.md", home / "memories" / "USER.md")
            raw = "".join(path.read_text() for path in texts if path.exists())
        assert len(there) == len(set(there))
        assert {f"<{number}>" for number in acknowledged} <= set(there)
        assert all(raw.count(entry) == 1 for entry in there)
        assert len(changes) == len(there), "one change for each entry, none for what never happened"
    assert len(acknowledged) > 20, "children were killed before they could write; the test proves nothing"


# ── crash points, one by one ──


POINTS: dict[str, tuple[Callable[[pytest.MonkeyPatch], None], bool]] = {
    "before the temporary file": (lambda m: m.setattr(files, "prepare", die), False),
    "after the temporary file": (lambda m: after(files, "prepare", m), False),
    "before the intent": (lambda m: m.setattr(MemoryRows, "intend", die), False),
    "after the intent": (lambda m: after(MemoryRows, "intend", m), False),
    "before the rename": (lambda m: m.setattr(files, "install", die), False),
    "after the rename": (lambda m: m.setattr("herma.store.files.sync_folder", die), True),
    "after everything": (lambda m: after(files, "install", m), True),
}


@pytest.fixture(params=POINTS, ids=list(POINTS))
def crashed(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> bool:
    """A home where a replacement of "one" by "two" was cut off. → whether the file had been replaced."""
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("one", "lesson"))
    prepare_death, replaced = POINTS[request.param]

    def work() -> None:
        prepare_death(monkeypatch)
        with Herma.open(home) as h:
            h.memory.apply("memory", Replace("one", "two"))

    pid = forked(work)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    return replaced


def test_a_crash_at_this_point_is_settled(home: Path, crashed: bool) -> None:
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == (["two"] if crashed else ["one"])
        changes = assert_whole(h, home)
        assert [change.action for change in changes] == (["replace", "add"] if crashed else ["add"])
        assert h.memory.describe("memory")[0].category == "lesson"
        assert h.memory.apply("memory", Add("three")).ok
        assert [path.name for path in (home / "memories").iterdir() if path.suffix == ".tmp"] == []
        h.memory.undo()
        h.memory.undo()
        assert h.memory.entries("memory") == (["one"] if crashed else [])
        assert_whole(h, home)


def test_a_hand_edit_after_the_crash_is_kept(home: Path, crashed: bool) -> None:
    (home / "memories" / "MEMORY.md").write_text("by hand")
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["by hand"]
        assert h.memory.apply("memory", Add("three")).ok
        changes = assert_whole(h, home)
        expected = ["add", "edited by hand", "replace", "add"] if crashed else ["add", "edited by hand", "add"]
        assert [change.action for change in changes] == expected


def test_two_crashes_in_a_row_are_settled(home: Path, crashed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    def again() -> None:
        after(MemoryRows, "intend", monkeypatch)
        with Herma.open(home) as h:
            h.memory.apply("memory", Add("three"))

    pid = forked(again)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == (["two"] if crashed else ["one"])
        assert len(assert_whole(h, home)) == 1 + crashed
