"""However a stream is cut, the scrubbed reply is the same, and it is what `sanitize` gives."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.prompt.fence import StreamScrubber, fence, sanitize

FRAGMENTS = [
    "<", ">", "/", " ", "\n", "\r\n", "\t", "-", "_", "memory", "context", "memory-context", "Memory-Context", "mem",
    "ory",    "con", "text", "<memory-context>", "</memory-context>", "<memory-context", "</memory-context",
    "< / memory-context >", "<memory-context/>",
    "&lt;", "&lt", "&", "&amp;", "&#60;", "&#6", "0", ";", "%3c", "%", "3", "c", "\\u003c", "\\",
    "u0", "03c", "x3e", "\u200b", "＜", "＞", "м", "ё", "a", "=", '"', "secret", "&gt;", "&nbsp;", "&#", "x", "3C",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(FRAGMENTS), max_size=40).map("".join)


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


@given(TEXTS)
def test_what_is_clean_stays_as_it_is(text: str) -> None:
    """Scrubbing only ever takes away, except for a mark where a new tag would have come about; and never twice."""
    clean = sanitize(text)
    rest = iter(text)
    assert all(char in rest for char in clean if char != "…")
    assert sanitize(clean) == clean


@given(st.text(alphabet="abc <>/&%;\n", max_size=60))
def test_text_without_the_name_passes(text: str) -> None:
    assert scrub(list(text)) == text


@pytest.mark.parametrize(
    ("reply", "shown"),
    [
        ("text <memory-context>\nsecret\n</memory-context> more", "text  more"),
        ("text <memory-context>secret</memory-context>more", "text more"),
        ("<memory-context> secret", ""),
        ("x\n< memory-context >secret< /memory-context >y", "x\ny"),
        (f"Sure. {fence('the password is swordfish')} Done.", "Sure.  Done."),
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
        ("a < b", "a < b"),
        ("a <", "a "),
        ("a <b", "a <b"),
        ("x </memory", "x "),
        ("x </mess", "x </mess"),
        ("R&D", "R&D"),
        ("R&", "R"),
        ("100%", "100"),
        ("100% of", "100% of"),
        ("if a<memory_limit:", "if a<memory_limit:"),
        ("<div> & <p>", "<div> & <p>"),
    ],
)
def test_only_what_could_become_a_tag_is_held_back(piece: str, at_once: str) -> None:
    scrubber = StreamScrubber()
    assert scrubber.feed(piece) == at_once
    assert at_once + scrubber.flush() == piece


def test_a_scrubber_is_as_new_after_the_flush() -> None:
    scrubber = StreamScrubber()
    assert scrubber.feed("a <memory-context> b") == "a "
    assert scrubber.flush() == ""
    assert scrubber.feed("c </mem") + scrubber.flush() == "c </mem"
    assert scrubber.feed("d") == "d"


def test_a_piece_without_any_tag_is_handed_on_as_it_is() -> None:
    piece = "twenty characters ok"
    assert StreamScrubber().feed(piece) is piece


def test_long_streams_of_hostile_pieces() -> None:
    for unit in ("<memory-context ", "<", "< ", "<memory", "&amp;", " ", "</memory-context "):
        pieces = ["<", *[unit] * 20_000]
        assert scrub(pieces) == sanitize("".join(pieces))
