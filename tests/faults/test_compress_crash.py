"""kill -9 in the middle of a compression: afterwards there is the old state or the new one, and nothing is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.homes import matrix

from herma import Herma
from herma.compression.summary import Compressed
from herma.session import Session
from herma.testing import Answer, ScriptedModel
from herma.transcript.messages import is_summary, text_of

pytestmark = pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs kill -9")
LONG = "More was said about the garden and the weir. " * 12
TURNS = 12

CHILD = """
import os, signal, sys
from herma import Herma
from herma.session import Session
from herma.transcript.log import Transcripts

home, session_id, where, in_place = sys.argv[1:5]

def dies(owner, name, *, after, when=lambda *a, **k: True):
    real = getattr(owner, name)
    def wrapped(*args, **options):
        hit = when(*args, **options)
        if hit and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        answer = real(*args, **options)
        if hit:
            os.kill(os.getpid(), signal.SIGKILL)
        return answer
    setattr(owner, name, wrapped)

flags = {"context.window": 100_000, "compression.in_place": in_place == "True"}
with Herma.open(home, flags=flags) as h:
    session = h.session(resume=session_id)
    if where == "before anything":
        dies(Session, "continue_with", after=False)
    elif where == "before the new session":
        dies(Transcripts, "start", after=False)
    elif where == "after its row":
        dies(Transcripts, "start", after=True)
    elif where == "before its messages":
        dies(Transcripts, "append", after=False)
    elif where == "after its messages":
        dies(Transcripts, "append", after=True)
    elif where == "before the end of the old":
        dies(Transcripts, "end", after=False)
    elif where == "after the end of the old":
        dies(Transcripts, "end", after=True)
    session.compress()
    os.kill(os.getpid(), signal.SIGKILL)
"""
PLACES = {
    "before anything": False,
    "before the new session": False,
    "after its row": False,
    "before its messages": False,
    "after its messages": True,
    "before the end of the old": True,
    "after the end of the old": True,
    "at the very end": True,
}


def begun(home: Path) -> str:
    with Herma.open(home) as h, h.session(title="Garden") as session:
        for turn in range(TURNS):
            session.before_model(f"Step {turn}: look at src/part_{turn % 5}/bed.py. {LONG}")
            session.after_model(f"Fixed plant_{turn % 5}(). {LONG}")
        return session.id


def is_new(session: Session) -> bool:
    return any(is_summary(text_of(message.content)) for message in session.messages)


def check(home: Path, first: str, *, new: bool | None) -> None:
    """Everything that was said is there, one of the two states holds, and the conversation goes on and is shortened."""
    with Herma.open(home, flags={"context.window": 100_000}) as h:
        said = [text_of(message.content) for message in h.transcripts.messages(first, include_hidden=True)]
        assert all(any(text.startswith(f"Step {turn}:") for text in said) for turn in range(TURNS))
        with h.session(resume=first) as session:
            assert new is None or is_new(session) == new
            kept = [text_of(message.content) for message in session.messages]
            assert kept[-1].startswith(f"Fixed plant_{(TURNS - 1) % 5}"), "it ends where it ended"
            assert is_new(session) or len(kept) == 2 * TURNS
            session.before_model(f"Go on. {LONG}")
            session.after_model(f"Yes. {LONG}")
            done = session.compress()
            assert isinstance(done, Compressed), "the lock died with its holder"
        assert len(h.transcripts.list()) == 1
        assert h.doctor().healthy, h.doctor().checks


ELSEWHERE = ("before the new session", "after its row", "before the end of the old", "after the end of the old")
"""Steps that a compression in place does not take."""


@pytest.mark.parametrize(
    ("where", "in_place"),
    matrix(
        [(where, in_place) for where in PLACES for in_place in (False, True) if not in_place or where not in ELSEWHERE],
        ordinary=lambda where, in_place: (
            where in ("before its messages", "after its messages")
            or (not in_place and where in ("after its row", "before the end of the old"))
        ),
    ),
)
def test_killed_at_every_step(home: Path, where: str, in_place: bool) -> None:
    first = begun(home)
    child = subprocess.run(
        [sys.executable, "-c", CHILD, str(home), first, where, str(in_place)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL, child.stderr
    check(home, first, new=PLACES[where])


def test_killed_while_the_model_writes(home: Path) -> None:
    first = begun(home)
    with ScriptedModel([Answer("## Goal\n- x", wait=60)]) as model:
        code = textwrap.dedent(
            f"""
            from herma import Herma
            flags = {{"context.window": 100_000, "review.enabled": False}}
            flags |= {{"model.url": {model.url!r}, "model.name": "gpt-main"}}
            with Herma.open({str(home)!r}, flags=flags) as h:
                h.session(resume={first!r}).compress()
            """
        )
        child = subprocess.Popen([sys.executable, "-c", code])
        try:
            for _ in range(600):
                if model.requests:
                    break
                time.sleep(0.05)
            assert model.requests
        finally:
            os.kill(child.pid, signal.SIGKILL)
            child.wait(30)
    check(home, first, new=False)
