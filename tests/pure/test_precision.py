"""What is worth keeping: durable, new, not taken out before, nobody else's words. And how much may go at once."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import apply, parse, unique
from herma.review.gate import (
    MOST,
    Grounds,
    Known,
    Tombstone,
    buried,
    check_loss,
    durable,
    is_echo,
    judge,
    likeness,
    lost,
    tombstones,
    within,
)
from herma.review.proposal import Proposal, read_proposal
from herma.review.review import apart, distance, pause_between, topic_change
from herma.review.rows import DIVIDES, Divide
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
    refusal = judge(text, Known(grounds=Grounds(SAID)))
    assert (refusal.entry if refusal else "") == made_up
    assert refusal is None or refusal.reason == "unfounded"
    if made_up:
        assert judge(text, Known(grounds=Grounds(SAID)), replacing=f"It was {made_up} before.") is None
        assert judge(text, Known(grounds=Grounds([*SAID, f"well, {made_up.upper()}"]))) is None


@given(SENTENCE)
def test_what_was_said_rests_on_it(text: str) -> None:
    assert Grounds([text]).missing(text) == ""


def test_a_form_filled_in_with_its_own_words_is_an_echo() -> None:
    for text in ("the new entry, for add and replace", "What the user wanted, in one sentence."):
        refusal = judge(text, Known())
        assert refusal is not None
        assert refusal.reason == "echo"
    assert not is_echo("The user wants tests to be run before each commit.")


# ── what was taken out ──


def change(number: int, before: list[str], after: list[str]) -> Change:
    return Change(number, float(number), Scope(), "user", Author(), "x", "\n§\n".join(before), "\n§\n".join(after))


def entries_of(text: str) -> list[str]:
    return unique(parse(text))


def test_tombstones_are_read_off_the_history() -> None:
    changes = [
        change(1, [], ["a", "b"]),
        change(2, ["a", "b"], ["b", "c"]),
        change(3, ["b", "c"], ["c"]),
        change(4, ["c"], ["c", "a"]),
    ]
    assert [stone.text for stone in tombstones(reversed(changes), entries_of)] == ["b"]
    assert [stone.text for stone in tombstones(changes[:3], entries_of)] == ["b", "a"]


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5), max_size=8))
def test_what_stands_is_not_buried_and_what_once_stood_is(states: list[list[str]]) -> None:
    walk = [change(n + 1, before, after) for n, (before, after) in enumerate(zip([[], *states], states, strict=False))]
    gone = {stone.text for stone in tombstones(walk, entries_of)}
    now = set(states[-1]) if states else set()
    assert gone == {entry for state in states for entry in state} - now


def test_only_the_user_brings_it_back() -> None:
    stones = [Tombstone("The user lives in Lisbon.", 100.0, "user")]
    text = "The user lives in Lisbon"
    assert buried(text, stones, ()) is not None
    assert buried(text, stones, [Message("user", "I live in Lisbon", timestamp=50.0)]) is not None
    assert buried(text, stones, [Message("user", "where do I live?", timestamp=150.0)]) is not None
    assert buried(text, stones, [Message("user", "I do live in Lisbon, you know", timestamp=150.0)]) is None
    assert buried("The user lives in Porto", stones, ()) is None


# ── how much may go ──

ENTRIES = st.lists(st.text("abc xyz", min_size=5, max_size=40).map(str.strip).filter(bool), unique=True, max_size=8)


@given(ENTRIES, st.lists(st.text("pqr", min_size=1, max_size=20), max_size=4))
def test_adding_is_no_loss(entries: list[str], more: list[str]) -> None:
    assert lost(entries, [*entries, *more]) == 0
    assert check_loss(entries, [*more, *entries]) is None


@given(ENTRIES, st.data())
def test_the_loss_is_what_went(entries: list[str], data: st.DataObject) -> None:
    kept = data.draw(st.lists(st.sampled_from(entries), unique=True)) if entries else []
    gone = sum(map(len, entries)) - sum(map(len, kept))
    assert lost(entries, kept) == gone
    assert (check_loss(entries, kept) is not None) == (gone > MOST * sum(map(len, entries)))


def test_a_word_corrected_is_a_small_loss() -> None:
    before = "The dev server of the shop runs on port 8080 behind the proxy"
    after = before.replace("8080", "8081")
    assert 0 < lost([before], [after], {before: after}) < 0.1 * len(before)
    assert lost([before], [after]) == len(before)


PART = st.text("abcxyz", min_size=1, max_size=4)
OPS = st.one_of(
    st.builds(Add, st.text("pqr ", min_size=3, max_size=30).map(str.strip).filter(bool)),
    st.builds(Remove, st.text("abcxyz", min_size=1, max_size=4)),
    st.builds(
        Replace, st.text("abcxyz", min_size=1, max_size=4), st.text("abc pqr", min_size=3).map(str.strip).filter(bool)
    ),
)


@given(ENTRIES, st.lists(OPS, max_size=6))
def test_what_is_allowed_can_be_done_and_loses_little(entries: list[str], ops: list[MemoryOp]) -> None:
    allowed = within(entries, ops, 2000, "user")
    assert len(allowed.operations) + len(allowed.refused) == len(ops)
    if allowed.operations:
        result = apply(entries, allowed.operations, 2000, "user")
        assert isinstance(result.outcome, Applied)
        gone = sum(len(entry) for entry in entries if entry not in result.entries and entry not in result.successors)
        assert gone <= MOST * sum(map(len, entries))


# ── what a model answers ──


@given(st.text(max_size=200))
def test_no_answer_is_too_odd_to_be_read(text: str) -> None:
    assert isinstance(read_proposal(text), Proposal | str)
    assert isinstance(read_proposal('{"memory": [' + text + "]}"), Proposal | str)


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=20)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["action", "target", "x"]), inner),
)


@given(st.dictionaries(st.sampled_from(["memory", "episode", "skill"]), JSON))
def test_nor_any_shape(value: dict[str, object]) -> None:
    assert isinstance(read_proposal(f"Sure! {json.dumps(value)} Anything else?"), Proposal | str)


def test_an_account_that_is_too_long_is_left_out() -> None:
    read = read_proposal('{"episode": {"task": "x", "result": "' + "y" * 201 + '", "outcome": "great"}}')
    assert isinstance(read, Proposal)
    assert read.episode == {"task": "x"}


# ── boundaries ──


def test_time_makes_a_boundary() -> None:
    idle, day = tuple[Divide, ...](("idle",)), tuple[Divide, ...](("day",))
    noon = time.mktime((2026, 5, 3, 12, 0, 0, 0, 0, -1))
    late = time.mktime((2026, 5, 3, 23, 50, 0, 0, 0, -1))
    assert pause_between(noon, noon + 59 * 60, 60, DIVIDES) is None
    assert pause_between(noon, noon + 3600, 60, DIVIDES) == "idle"
    assert pause_between(noon, noon + 3600, 60, day) is None
    assert pause_between(late, late + 1200, 60, DIVIDES) == "day"
    assert pause_between(late, late + 1200, 60, idle) is None
    assert pause_between(noon, noon + 10**6, 0, idle) is None
    assert pause_between(noon, noon - 10**6, 60, DIVIDES) is None


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
    assert found is not None
    assert (found.why, found.last_message) == ("topic", 12)
    assert topic_change(chat(*before, *after[:2]), 0) is None
    assert topic_change(chat(*before, *after), 2) is None
    assert topic_change(chat(*before, *before[:3]), 0) is None
    assert topic_change(chat(*["ok"] * 9), 0) is None


@given(st.lists(st.text(max_size=60), max_size=5), st.lists(st.text(max_size=60), max_size=5))
def test_distances_are_between_0_and_1(one: list[str], other: list[str]) -> None:
    assert 0.0 <= distance(one, other) <= 1.0 + 1e-9
    assert distance(one, other) == pytest.approx(distance(other, one))


def test_directions() -> None:
    assert apart([1.0, 0.0], [0.0, 2.0]) == pytest.approx(1.0)
    assert apart([1.0, 1.0], [2.0, 2.0]) == pytest.approx(0.0)
    assert apart([0.0], [1.0]) == 0.0
