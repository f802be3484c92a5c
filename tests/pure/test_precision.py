"""What is worth keeping: durable, new, not removed before, nobody else's words. And how much may go at once."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import apply
from herma.memory.tidy import likeness
from herma.review.gate import (
    MOST,
    GroundingIndex,
    Known,
    allowed_together,
    durable,
    excess_loss,
    judge,
    lost,
    removed_entries,
)
from herma.review.proposal import ReviewProposal, read_proposal
from herma.review.review import distance, pause_between, topic_change
from herma.review.rows import SPLIT_REASONS, SplitReason
from herma.types import Add, Applied, Author, Change, MemoryOp, Message, Remove, Replace, Scope

VOCABULARY = ("tea", "boat", "lamp", "tests", "python", "make", "blue", "house", "garden", "port", "8080")
WORDS = st.lists(st.sampled_from(VOCABULARY), min_size=3)
SENTENCE = WORDS.map(lambda words: "The user knows " + " ".join(words))


@pytest.mark.parametrize(
    ("new", "known", "is_"),
    [
        ("Project uses pytest with xdist", "The project uses pytest with the xdist plugin", "same"),
        ("Tests run with make test", "Tests are run by `make test`", "same"),
        ("The user prefers tabs", "The user prefers tabs over spaces", "same"),
        ("The user lives in Berlin", "The user lives in Berlin, Germany", "same"),
        ("用户喜欢简短的回答", "用户喜欢简短回答", "same"),
        ("The dev server runs on port 8081", "The dev server runs on port 8080", "changed"),
        ("The user does not like tea", "The user likes tea", "changed"),
        ("The user doesn’t like tea", "The user likes tea", "changed"),
        ("User's name is Anna", "User's name is Bob", "changed"),
        ("The user lives in Paris", "The user lives in Berlin", "changed"),
        ("The user prefers short answers", "The user prefers dark mode", "other"),
        ("The user likes tea", "The user likes coffee", "other"),
        ("The user's dog is called Rex", "The user's cat is called Tom", "other"),
        ("", "The user likes tea", "other"),
    ],
)
def test_likeness(new: str, known: str, is_: str) -> None:
    assert likeness(new, known) == is_


@given(SENTENCE)
def test_a_text_says_what_it_says(text: str) -> None:
    assert likeness(text, text) == "same"
    assert likeness(text.upper(), f"{text}.") == "same"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("User is currently debugging the login bug", "status"),
        ("PR #123 was merged", "status"),
        ("The tests pass now", "status"),
        ("用户正在调试登录问题", "status"),
        ("The user has a meeting on 2026-11-20 at 10:00", "one-off"),
        ("The user asked to fix the bug today", "one-off"),
        ("The API failed with a timeout", "transient"),
        ("For this conversation speak like a pirate", "temporary"),
        ("The agent should pretend to be a cat", "temporary"),
        ("ok", "too short"),
        ("x" * 601, "too long"),
    ],
)
def test_what_does_not_last(text: str, reason: str) -> None:
    assert durable(text) == reason


@pytest.mark.parametrize(
    "text",
    [
        "The user prefers tabs over spaces",
        "The user's birthday is 1990-05-03",
        "pip install fails behind the proxy unless HTTPS_PROXY is set",
        "The user stands up at 9:30 every day",
        "The deploy runs nightly at 02:00",
        "Call the user Max, please",
        "The user works at Acme as a data engineer",
        "Always run make fmt before committing",
        "用户喜欢喝绿茶",
        "Der Benutzer wohnt in Köln und spricht Deutsch",
    ],
)
def test_what_lasts(text: str) -> None:
    assert durable(text) is None
    assert judge(text, Known()) is None


@given(SENTENCE, st.lists(SENTENCE, max_size=5))
def test_nothing_is_kept_twice(text: str, others: list[str]) -> None:
    refusal = judge(text, Known(entries=[*others, text]))
    assert refusal is not None
    assert refusal.reason in ("known", "too long", "changed")
    assert refusal.sentence.startswith("Not saved: ")


def test_a_correction_takes_the_place_of_what_it_corrects() -> None:
    known = Known(entries=["The dev server runs on port 8080"])
    refusal = judge("The dev server runs on port 8081", known)
    assert refusal is not None
    assert (refusal.reason, refusal.entry) == ("changed", known.entries[0])
    assert judge("The dev server runs on port 8081", known, replacing=known.entries[0]) is None


# ── what it rests on ──

SAID = (
    "my cat is called ink, she is forty-four in cat years, and I live in Lisbon since 2019",
    "Noted. The postgres server is db7.example.org, port 5433, with 5 GB of memory. Run `make check` on 3.12.1 first.",
)


@pytest.mark.parametrize(
    ("text", "made_up"),
    [
        ("The user's cat is called Ink.", ""),
        ("The user moved to Lisbon in 2019 and prefers concise answers.", ""),
        ("PostgreSQL runs on db7.example.org at port 5433 with 5GB.", ""),
        ("The user has 2 cats and gets up at 7:30.", ""),  # a model may count, and say a time in other words
        ("Der Nutzer wohnt in einer Stadt mit Hafen.", ""),  # all nouns are written large there
        ("用户住在里斯本。", ""),
        ("The user's name is Alice.", "Alice"),
        ("The user lives in Porto.", "Porto"),
        ("The user's shoe size is 44.", "44"),
        ("The server listens on port 8080.", "8080"),
        ("Tests need version 3.11.4 of the interpreter.", "3.11.4"),
        ("Alice is a friend of the user.", ""),  # the first word of a sentence may be any word
    ],
)
def test_names_and_numbers_that_nobody_named_are_made_up(text: str, made_up: str) -> None:
    refusal = judge(text, Known(grounds=GroundingIndex(SAID)))
    assert (refusal.entry if refusal else "") == made_up
    assert refusal is None or refusal.reason == "unfounded"
    if made_up:
        assert judge(text, Known(grounds=GroundingIndex(SAID)), replacing=f"It was {made_up} before.") is None
        assert judge(text, Known(grounds=GroundingIndex([*SAID, f"well, {made_up.upper()}"]))) is None


# ── what was removed ──


def change(number: int, before: list[str], after: list[str]) -> Change:
    return Change(number, float(number), Scope(), "user", Author(), "x", "\n§\n".join(before), "\n§\n".join(after))


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5), max_size=8))
def test_removed_is_what_was_there_once_and_is_not_now(states: list[list[str]]) -> None:
    walk = [change(n + 1, before, after) for n, (before, after) in enumerate(zip([[], *states], states, strict=False))]
    now = set(states[-1]) if states else set()
    assert {entry.text for entry in removed_entries(walk)} == {entry for state in states for entry in state} - now


# ── how much may go ──

ENTRIES = st.lists(st.text("abc xyz", min_size=5, max_size=40).map(str.strip).filter(bool), unique=True, max_size=8)


@given(ENTRIES, st.lists(st.text("pqr", min_size=1, max_size=20), max_size=4), st.data())
def test_the_loss_is_what_went(entries: list[str], more: list[str], data: st.DataObject) -> None:
    assert lost(entries, [*entries, *more], {}) == 0, "adding is no loss"
    assert excess_loss(entries, [*more, *entries], {}) == ""
    kept = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    gone = sum(map(len, entries)) - sum(map(len, kept))
    assert lost(entries, kept, {}) == gone
    assert bool(excess_loss(entries, kept, {})) == (gone > MOST * sum(map(len, entries)))


def test_a_word_corrected_is_a_small_loss() -> None:
    before = "The dev server of the shop runs on port 8080 behind the proxy"
    after = before.replace("8080", "8081")
    assert 0 < lost([before], [after], {before: after}) < 0.1 * len(before)
    assert lost([before], [after], {}) == len(before)


OPS = st.one_of(
    st.builds(Add, st.text("pqr ", min_size=3, max_size=30).map(str.strip).filter(bool)),
    st.builds(Remove, st.text("abcxyz", min_size=1, max_size=4)),
    st.builds(
        Replace, st.text("abcxyz", min_size=1, max_size=4), st.text("abc pqr", min_size=3).map(str.strip).filter(bool)
    ),
)


@given(ENTRIES, st.lists(OPS, max_size=6))
def test_what_is_allowed_can_be_done_and_loses_little(entries: list[str], ops: list[MemoryOp]) -> None:
    allowed, refused = allowed_together(entries, ops, 2000, "user")
    assert len(allowed) + len(refused) == len(ops)
    if allowed:
        result = apply(entries, allowed, 2000, "user")
        assert isinstance(result.outcome, Applied)
        gone = sum(len(entry) for entry in entries if entry not in result.entries and entry not in result.successors)
        assert gone <= MOST * sum(map(len, entries))


# ── what a model answers ──


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["action", "target", "x"]), inner),
)


@given(st.text(max_size=200), st.dictionaries(st.sampled_from(["memory", "episode", "skill"]), JSON))
def test_no_answer_is_too_odd_to_be_read(text: str, value: dict[str, object]) -> None:
    for answer in (text, '{"memory": [' + text + "]}", f"Sure! {json.dumps(value)} Anything else?"):
        assert isinstance(read_proposal(answer), ReviewProposal | str)


def test_an_account_that_is_too_long_is_left_out() -> None:
    read = read_proposal('{"episode": {"task": "x", "result": "' + "y" * 201 + '", "outcome": "great"}}')
    assert isinstance(read, ReviewProposal)
    assert read.episode == {"task": "x"}


# ── splits ──


def test_time_splits_a_chat() -> None:
    everything, idle, day = SPLIT_REASONS, SPLIT_REASONS[:1], SPLIT_REASONS[1:2]
    noon = time.mktime((2026, 5, 3, 12, 0, 0, 0, 0, -1))
    late = time.mktime((2026, 5, 3, 23, 50, 0, 0, 0, -1))
    cases: list[tuple[float, float, float, tuple[SplitReason, ...], SplitReason | None]] = [
        (noon, 59 * 60, 60, everything, None),
        (noon, 3600, 60, everything, "idle"),
        (noon, 3600, 60, day, None),
        (late, 1200, 60, everything, "day"),
        (late, 1200, 60, idle, None),
        (noon, 10**6, 0, idle, None),
        (noon, -(10**6), 60, everything, None),
    ]
    for last, passed, minutes, watched, why in cases:
        assert pause_between(last, last + passed, minutes, watched) == why


GARDEN = "the {} in the garden behind the old house need plenty of water during summer"
CODE = "the {} module of the compiler raises type errors while parsing generic functions"


def chat(*texts: str) -> list[Message]:
    found = []
    for number, text in enumerate(texts):
        found += [Message("user", text, id=2 * number + 1), Message("assistant", "ok", id=2 * number + 2)]
    return found


def test_another_topic_is_noticed_once_enough_was_said() -> None:
    before = [GARDEN.format(what) for what in ("roses", "beans", "tulips", "apples", "carrots", "leeks")]
    after = [CODE.format(what) for what in ("lexer", "parser", "emitter")]
    found = topic_change(chat(*before, *after), 0)
    assert found == ("topic", 12)
    assert topic_change(chat(*before, *after[:2]), 0) is None
    assert topic_change(chat(*before, *after), 2) is None
    assert topic_change(chat(*before, *before[:3]), 0) is None
    assert topic_change(chat(*["ok"] * 9), 0) is None


@given(st.lists(st.text(max_size=60), max_size=5), st.lists(st.text(max_size=60), max_size=5))
def test_distances_are_between_0_and_1(one: list[str], other: list[str]) -> None:
    assert 0.0 <= distance(one, other) <= 1.0 + 1e-9
    assert distance(one, other) == pytest.approx(distance(other, one))
