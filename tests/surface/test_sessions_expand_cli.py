"""`herma sessions expand`: from a line of a summary back to what was said."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.homes import Ran, herma

from herma import Herma
from herma.compression.summary import parse
from herma.errors import UsageError
from herma.transcript.messages import is_summary, text_of

LONG = "More was said about the garden and the weir. " * 12


@dataclass(frozen=True)
class Garden:
    """A conversation that was shortened, and somebody who types commands at it."""

    home: Path
    first: str
    last: str
    lines: tuple[str, ...]

    def __call__(self, *words: str) -> Ran:
        return herma(self.home, "sessions", "show", "--summary-line", *words)


@pytest.fixture
def garden(home: Path) -> Garden:
    with Herma.open(home, flags={"context.window": 100_000}) as h, h.session(title="Garden") as session:
        first = session.id
        for turn in range(10):
            session.before_model(f"Step {turn}: you must never cut rose_{turn}. {LONG}")
            session.after_model(f"I decided to water bed {turn} first. {LONG}")
        session.compress()
        text = next(text_of(message.content) for message in session.messages if is_summary(text_of(message.content)))
        lines = tuple(str(line) for lines in parse(text).lines.values() for line in lines)
        return Garden(home, first, session.id, lines)


def test_by_the_line_by_numbers_and_by_words(garden: Garden) -> None:
    line = next(line for line in garden.lines if "never cut rose_3" in line)
    whole = garden(line)
    assert whole.code == 0, whole.err
    assert "Step 3: you must never cut rose_3." in whole.out
    assert f"sessions show {garden.first} --around 7" in whole.out
    assert "Step 3:" in garden("#7").out
    assert "Step 3:" in garden("[#7-8]").out
    assert "Step 3:" in garden("never cut rose_3", "Garden").out
    assert "Step 3:" in garden("never cut rose_3", garden.last).out
    for every in garden.lines:
        assert garden(every).code == 0, every


def test_as_json(garden: Garden) -> None:
    found = garden("#7-8, 900", "--json").json
    assert found["ok"]
    assert [message["id"] for message in found["messages"]] == [7, 8]
    assert found["missing"] == [900]
    assert found["line"] == "[#7-8, 900]"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["#900"], "None of the messages"),
        (["nothing like it"], "names no messages"),
        (["nothing like it", "Garden"], "No summary"),
        (["rose", "Garden"], "Several lines"),
        (["#7", "Nowhere"], "no session"),
        ([" "], "--summary-line is empty"),
        (["- "], "Which line?"),
        ([], "requires an argument"),
    ],
)
def test_what_cannot_be_found_is_one_sentence(garden: Garden, words: list[str], said: str) -> None:
    ran = garden(*words)
    assert ran.code == 2
    assert said.lower() in ran.err.lower()
    assert "Traceback" not in ran.err


def test_messages_of_another_conversation_are_not_taken_for_this_one(garden: Garden) -> None:
    with Herma.open(garden.home) as h:
        with h.session() as other:
            other.before_model("Something else.")
            other.after_model("Yes.")
            number = other.messages[0].id
        with pytest.raises(UsageError, match="None of the messages"):
            h.expand(f"#{number}", session=garden.last)
        assert [text_of(one.content) for one in h.expand(f"#{number}").messages] == ["Something else."]
        assert h.expand(f"#7, {number}", session=garden.first).missing == (number,)
        with pytest.raises(UsageError, match="no session"):
            h.expand("#7", session="nowhere")
