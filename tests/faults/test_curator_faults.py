"""The curator in accidents: killed at every step, two at once, files that make no sense."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.homes import matrix
from tests.homes import skill_text as document

from herma import Author, Herma, Origin, Who
from herma.skills.files import CuratorFiles, SkillFileWriter
from herma.skills.rows import CuratorMemory, SkillUsageRows
from herma.testing import FixedClock

AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
DAY = 86_400.0
NAMES = ("ask", "bake", "cut", "dig")
needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def prepared(home: Path) -> float:
    """Four skills that are due for the archive. → now."""
    clock = FixedClock(1_700_000_000.0)
    with Herma.open(home, clock=clock) as h:
        for name in NAMES:
            assert h.skills.create(name, document(name), author=AGENT, despite_similar=True, category="c").ok
        clock.advance(95 * DAY)
        h.curator.run()
        clock.advance(8 * DAY)
    return clock()


def everything_is_somewhere(home: Path) -> None:
    """Every skill is on the shelf or in the archive, once and whole."""
    for name in NAMES:
        places = [home / "skills/c" / name / "SKILL.md", home / "skills/.archive" / name / "SKILL.md"]
        assert [path.read_text() for path in places if path.exists()] == [document(name)]


def killed_in(home: Path, now: float, owner: type, name: str, times: int, *, after: bool, rollback: str = "") -> None:
    """A run, or a rollback, in a process of its own that dies at the nth call of a method."""
    pid = os.fork()
    if pid == 0:
        real = getattr(owner, name)
        calls = [0]

        def dying(*args: object, **more: object) -> object:
            calls[0] += 1
            if calls[0] < times:
                return real(*args, **more)
            if after:
                real(*args, **more)
            os.kill(os.getpid(), signal.SIGKILL)
            return None

        setattr(owner, name, dying)
        try:
            with Herma.open(home, clock=FixedClock(now)) as h:
                h.curator.rollback(rollback) if rollback else h.curator.run()
        finally:
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL
    everything_is_somewhere(home)


STEPS = [(CuratorFiles, "write"), (SkillFileWriter, "move"), (SkillUsageRows, "set_states"), (CuratorFiles, "remember")]
CALLS = [(owner, name, times, after) for owner, name in STEPS for times in (1, 2) for after in (False, True)]


@needs_fork
@pytest.mark.parametrize(
    ("owner", "name", "times", "after"),
    matrix(CALLS, ordinary=lambda owner, name, times, after: times == 2 and after == (owner is SkillUsageRows)),
)
def test_killed_at_any_step_the_next_run_does_the_rest_and_rollback_works(
    home: Path, owner: type, name: str, times: int, after: bool
) -> None:
    now = prepared(home)
    killed_in(home, now, owner, name, times, after=after)
    with Herma.open(home, clock=FixedClock(now + 60)) as h:
        h.curator.run()
        everything_is_somewhere(home)
        assert sorted(kept.name for kept in h.skills.archived()) == list(NAMES)
        assert {one.state for one in h.skills.usage().values()} == {"archived"}
        assert [one for one in h.curator.reports() if one.state == "running"] == []
        assert h.curator.run().moves == ()
        for report in h.curator.reports():
            if any(move.after == "archived" for move in report.moves):
                assert h.curator.rollback(report.id).ok
        assert sorted(skill.path for skill in h.skills.list()) == [f"c/{each}" for each in NAMES]


@needs_fork
@pytest.mark.parametrize("after", [False, True])
def test_killed_half_way_a_rollback_alone_puts_it_right(home: Path, after: bool) -> None:
    now = prepared(home)
    killed_in(home, now, SkillFileWriter, "move", 3, after=after)
    with Herma.open(home, clock=FixedClock(now + 60)) as h:
        done = h.curator.rollback()
        assert done.ok
        assert sorted(skill.name for skill in h.skills.list()) == list(NAMES)
        assert {one.state for one in h.skills.usage().values()} == {"stale"}
        assert h.curator.report().state == "interrupted"


@needs_fork
def test_a_killed_rollback_is_finished_by_the_next(home: Path) -> None:
    now = prepared(home)
    with Herma.open(home, clock=FixedClock(now)) as h:
        run = h.curator.run().id
    killed_in(home, now, SkillFileWriter, "move", 3, after=False, rollback=run)
    with Herma.open(home, clock=FixedClock(now + 60)) as h:
        assert h.curator.rollback(run).ok
        assert sorted(skill.name for skill in h.skills.list()) == list(NAMES)


def test_skills_written_by_others_during_a_run_are_not_lost(home: Path) -> None:
    now = prepared(home)
    trouble: list[BaseException] = []

    def write(h: Herma) -> None:
        try:
            for number in range(10):
                assert h.skills.create(f"new-{number}", document(f"new-{number}"), despite_similar=True).ok
        except BaseException as exc:  # noqa: BLE001  told below
            trouble.append(exc)

    with Herma.open(home, clock=FixedClock(now)) as h:
        thread = threading.Thread(target=write, args=(h,))
        thread.start()
        report = h.curator.run()
        thread.join()
        assert (trouble, report.state) == ([], "done")
        assert len(h.skills.list()) == 10
        assert len(h.skills.archived()) == len(NAMES)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"seen": "x"}', b"\xff", b"[" * 100_000])
def test_notes_that_make_no_sense_are_begun_anew(home: Path, text: bytes) -> None:
    now = prepared(home)
    (home / "skills/.curator.json").write_bytes(text)
    for report in (home / "logs/curator").glob("*/report.json"):
        report.write_bytes(text)
    with Herma.open(home, clock=FixedClock(now)) as h:
        assert CuratorFiles(home).memory() == CuratorMemory()
        assert h.curator.reports() == []
        assert h.curator.run().moves == ()  # nothing goes without notice
        assert h.curator.status().last_run == now
