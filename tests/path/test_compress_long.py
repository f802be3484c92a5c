"""Two hundred turns, several compressions: what was said once is found again at the end, and the prefix only grew."""

from __future__ import annotations

import json
import re
from pathlib import Path

from herma import Herma
from herma.compression.summary import Compressed, parse
from herma.session import Session
from herma.testing import Asked, ScriptedModel
from herma.transcript.messages import is_summary, text_of
from herma.types import Usage

LONG = "The weather was talked about, and the garden, and what to do on Sunday. " * 6
FACTS = {
    5: ("The boat house key hangs behind the third beam.", "boat house key", "third beam"),
    40: ("My sister's allergy is to hazelnut, never to almond.", "sister allergy", "hazelnut"),
    90: ("The pump needs gasket model KX-4417.", "pump gasket", "KX-4417"),
    150: ("The invoice of the mason is number 20931.", "mason invoice", "20931"),
}


def notes(asked: Asked) -> str:
    """A plausible summary: it names some messages by number, and none of the facts."""
    numbers = [int(number) for number in re.findall(r"^#(\d+) ", asked.last, re.MULTILINE)]
    first, last = min(numbers), max(numbers)
    return f"""\
## Goal
- Look after the garden [#{first}-{min(last, first + 3)}]

## Done
- Many steps of the work were talked through [#{first}-{last}]

## Next steps
- Go on with the next step [#{last}]
"""


def run(session: Session) -> list[str]:
    """Two hundred turns. → the session's ids, one after the other."""
    ids = [session.id]
    for turn in range(200):
        said = FACTS[turn][0] if turn in FACTS else f"Step {turn}: look at src/part_{turn % 9}/bed.py."
        request = session.before_model(f"{said} {LONG}")
        assert request[0]["content"] == session.system_prompt
        if session.id != ids[-1]:
            ids.append(session.id)
        session.after_model(f"Done with {turn}. {LONG}", usage=Usage(input=session.tokens, output=60))
    return ids


def found_by_search(session: Session, query: str) -> str:
    answer = json.loads(session.call_tool("session_search", {"query": query, "limit": 10}))
    here = [one for one in answer["results"] if one["session_id"] != session.id]
    return json.dumps(here, ensure_ascii=False)


def check(h: Herma, session: Session, ids: list[str]) -> None:
    assert len(ids) >= 4, "three compressions at least"
    assert {member.id for member in h.transcripts.conversation(session.id)} == set(ids)
    assert sum(is_summary(text_of(message.content)) for message in session.messages) == 1
    h.index.wait()
    for said, query, needle in FACTS.values():
        assert needle in found_by_search(session, query), said
        report = h.search(query, limit=10, level="message", current_session=session.id)
        original = next(hit for hit in report.hits if needle in hit.snippet)
        (message,) = h.expand(f"#{original.message_id}", session=session.id).messages
        assert text_of(message.content).startswith(said)
        seen = json.loads(session.call_tool("session_search", {"around_message_id": original.message_id}))
        assert needle in json.dumps(seen["messages"])


def test_with_a_model(home: Path) -> None:
    with ScriptedModel(notes) as model:
        flags = {"context.window": 24_000, "model.url": model.url, "model.name": "gpt-main", "review.enabled": False}
        with Herma.open(home, flags=flags) as h, h.session(title="Garden") as session:
            ids = run(session)
            done = session.last_compression
            assert isinstance(done, Compressed)
            assert done.how == "model"
            check(h, session, ids)
            text = next(
                text_of(message.content) for message in session.messages if is_summary(text_of(message.content))
            )
            done_line = parse(text).of("done")[0]
            behind = h.expand(str(done_line), session=session.id)
            assert len(behind.messages) > 20
            assert not behind.missing
        with Herma.open(home, flags=flags) as h, h.session(resume="Garden") as again:
            assert again.id == ids[-1]
            check(h, again, ids)


def test_without_a_model(home: Path) -> None:
    with Herma.open(home, flags={"context.window": 24_000}) as h, h.session() as session:
        check(h, session, run(session))
