"""A program that was killed keeps no state of its work: who comes next is told all the same, out of the transcript."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from herma import Herma
from herma.episodes.episodes import UNENDED_LAST as LAST
from herma.testing import FixedClock

DAY = 86_400.0
KILLED = """
import os, signal, sys
from herma import Herma

home, project = sys.argv[1:]
h = Herma.open(home)
session = h.session(project=project)
session.before_model("Move the billing service to the new queue.")
session.after_model("Done so far: the consumer.\\n\\nNext steps:\\n- [ ] move the producer\\n- [ ] drop the old queue")
session.before_model("Go on with the producer.")
print(session.id, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def killed(home: Path, project: str = "") -> str:
    """A session that is left in the middle of a turn by kill -9. → its id."""
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(home), project], capture_output=True, text=True, check=False
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


def test_the_next_session_of_the_project_is_told_where_a_killed_one_stood(home: Path) -> None:
    session_id = killed(home, "billing")
    with Herma.open(home) as h:
        session = h.session(project="billing")
        prompt = session.system_prompt
        assert "Broken off here, or still open in another program, on " in prompt
        assert "move the producer" in prompt
        assert "drop the old queue" in prompt
        assert "move the producer" not in h.session(project="other").system_prompt
        assert "move the producer" not in h.session().system_prompt
        assert h.episodes.count() == 0, "nothing is kept of it: it may still go on"
        session.close()
        state = h.episodes.state(session_id)
        assert state is not None
        assert (state.ended, state.finished) == (False, False)
        assert state.last_request == "Go on with the producer."
        assert "when it broke off" in h.episodes.describe(state)
        restored = h.restore("the billing queue", project="billing")
        assert restored.state == state
        assert "move the producer" in restored.text


def test_once_it_is_gone_on_with_and_ended_its_own_state_counts(home: Path) -> None:
    session_id = killed(home)
    with Herma.open(home) as h:
        with h.session(resume=session_id) as session:
            session.before_model("Both are done now?")
            session.after_model("Yes, both are done.")
            assert h.episodes.left_open(session.info.scope) is None, "it is open here"
        h.episodes.wait()
        state = h.episodes.state(session_id)
        assert state is not None
        assert state.ended
        assert state.last_request == "Both are done now?"
        assert "Broken off" not in h.session().system_prompt


@pytest.fixture
def other(home: Path, clock: FixedClock) -> Iterator[Herma]:
    """The same home in another program."""
    with Herma.open(home, clock=clock) as opened:
        yield opened


def test_what_ended_later_comes_before_it(h: Herma, other: Herma, clock: FixedClock) -> None:
    broken = other.session()  # never ended, as after a kill; and not known to be open in the second one
    broken.before_model("Translate the manual, please.")
    clock.advance(60)
    first = h.session()
    assert "Translate the manual" in first.system_prompt
    first.before_model("Rename the flag.")
    clock.advance(60)
    assert "Rename the flag" not in h.session().system_prompt, "it is open here"
    first.after_model("Renamed.\n\nNext steps:\n- [ ] update the docs")
    first.close()
    h.episodes.wait()
    later = h.session().system_prompt
    assert "update the docs" in later
    assert "Translate the manual" not in later


def test_nobody_is_reminded_of_what_broke_off_long_ago_or_is_the_work_of_others(
    h: Herma, other: Herma, clock: FixedClock
) -> None:
    for session in (other.session(user="ada"), other.session(source="subagent"), other.session(project="site")):
        session.before_model("Count the sheep in the field.")
    assert "Count the sheep" not in h.session().system_prompt
    assert "Count the sheep" in h.session(user="ada").system_prompt
    other.session().before_model("Translate the manual, please.")
    clock.advance(29 * DAY)
    assert "Translate the manual" in h.session().system_prompt
    clock.advance(2 * DAY)
    assert "Translate the manual" not in h.session().system_prompt
    assert h.restore("the manual").state is None


def test_only_the_end_of_a_long_conversation_is_read(h: Herma) -> None:
    session = h.transcripts.start("library")
    box = {"role": "assistant", "content": "- [ ] feed the cat"}
    talk = [{"role": "user", "content": "go on"}, {"role": "assistant", "content": "Going on."}] * LAST
    h.transcripts.append(session, [{"role": "user", "content": "What is to do?"}, box, *talk])
    state = h.episodes.state(session)
    assert state is not None
    assert state.open_tasks == ()
    assert not state.ended
