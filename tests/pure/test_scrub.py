"""However a stream is cut, the scrubbed reply is the same, and it is what `sanitize` gives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.prompt.fence import NOTES, StreamScrubber, fence, sanitize

OPEN, CLOSE = "<memory-context>", "</memory-context>"
RECALL = fence("the password is swordfish")
FRAGMENTS = [
    "<", ">", "/", " ", "\n", "\n", "\r\n", "\r", "mem", "ory-context", OPEN, CLOSE, f"{OPEN}\n", f"\n{CLOSE}",
    "[", "[Recalled from", *NOTES.values(), *(f"{OPEN}\n{note}\n" for note in NOTES.values()), RECALL, f"\n{RECALL}\n",
    f"\r\n{OPEN}\r\n{NOTES['update']}\r\n", "secret", "text",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=25).map("".join)


def scrub(pieces: list[str]) -> str:
    scrubber = StreamScrubber()
    return "".join([*map(scrubber.feed, pieces), scrubber.flush()])


def cut(text: str, points: list[int]) -> list[str]:
    edges = [0, *sorted(point % (len(text) + 1) for point in points), len(text)]
    return [text[start:end] for start, end in pairwise(edges)]


@settings(max_examples=600)
@given(TEXTS, st.lists(st.integers(0, 10_000), max_size=12))
def test_the_cut_does_not_matter(text: str, points: list[int]) -> None:
    clean = sanitize(text)
    assert scrub(cut(text, points)) == clean
    assert scrub(list(text)) == clean


@given(st.text(alphabet="abc <>/&%;\n", max_size=60))
def test_text_without_the_name_passes(text: str) -> None:
    assert scrub(list(text)) == text
    piece = "twenty characters ok"
    assert StreamScrubber().feed(piece) is piece


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        (f"{RECALL}\nDone.", "\nDone."),
        (f"Sure.\n{RECALL}\nDone.", "Sure.\n\nDone."),
        (RECALL, ""),
        (f"{OPEN}\n{NOTES['recall']}\nnever closed", f"[memory-context]\n{NOTES['recall']}\nnever closed"),
        (f"What does the {OPEN} tag do?", f"What does the {OPEN} tag do?"),
        (f"```\n{OPEN}\nx = 1\n{CLOSE}\n```\nThat is it.", f"```\n{OPEN}\nx = 1\n{CLOSE}\n```\nThat is it."),
        ("I use <memory for it", "I use <memory for it"),
    ],
)
def test_replies(reply: str, shown: str) -> None:
    for size in (1, 2, 3, 5, 20, len(reply)):
        assert scrub([reply[at : at + size] for at in range(0, len(reply), size)]) == shown


@pytest.mark.parametrize(
    ("piece", "at_once"),
    [
        ("plain text", "plain text"),
        ("a <", "a <"),
        ("x </memory", "x </memory"),
        (f"the {OPEN} tag", f"the {OPEN} tag"),
        ("<div>", "<div>"),
        ("<", ""),
        ("so:\n<mem", "so:\n"),
        (f"so:\n{OPEN}", "so:\n"),
        (f"so:\n{OPEN} is", f"so:\n{OPEN} is"),
        (f"so:\n{OPEN}\n", "so:\n"),
        (f"so:\n{OPEN}\nx = 1\n", f"so:\n{OPEN}\nx = 1\n"),
        (f"so:\n{OPEN}\n[Recalled from my", f"so:\n{OPEN}\n[Recalled from my"),
    ],
)
def test_only_what_could_become_a_tag_is_held_back(piece: str, at_once: str) -> None:
    scrubber = StreamScrubber()
    assert scrubber.feed(piece) == at_once
    assert at_once + scrubber.flush() == piece


def test_a_scrubber_is_as_new_after_the_flush() -> None:
    scrubber = StreamScrubber()
    assert scrubber.feed(f"a\n{OPEN}\n{NOTES['recall']}\nb") == "a\n"
    assert scrubber.flush() == f"[memory-context]\n{NOTES['recall']}\nb"
    assert scrubber.feed("</mem") + scrubber.flush() == "</mem"
    assert scrubber.feed("d") == "d"


def test_long_streams_of_hostile_pieces() -> None:
    for unit in (f"{OPEN}\n", "<", "\n<", f"\n{CLOSE}", f"{OPEN}\n{NOTES['recall']}\n", " ", f"\n{RECALL}", "\r"):
        for first in ("<", f"{OPEN}\n{NOTES['update']}\n"):
            pieces = [first, *[unit] * 20_000]
            assert scrub(pieces) == sanitize("".join(pieces))
