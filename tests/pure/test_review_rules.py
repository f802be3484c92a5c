"""What a review may keep, by rule: worth keeping, new, grounded, little lost; when it is due; "remember that …"."""

from __future__ import annotations

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.homes import table

from herma.memory.entries import apply
from herma.memory.tidy import likeness
from herma.review.gate import (
    MOST,
    Abbreviations,
    GroundingIndex,
    Known,
    allowed_together,
    durable,
    excess_loss,
    is_foreign,
    judge,
    lost,
    remember_request,
    removed_entries,
    stands_for,
)
from herma.review.proposal import ReviewProposal, problem_of, read_proposal
from herma.review.review import distance, pause_between, topic_change
from herma.review.rows import SPLIT_REASONS, Counters, Due, SplitReason, after, due, hydrated, reviewed
from herma.types import Add, Applied, Author, Change, CompletedTurn, MemoryOp, Message, Remove, Replace, Scope, ToolCall

VOCABULARY = ("tea", "boat", "lamp", "tests", "python", "make", "blue", "house", "garden", "port", "8080")
WORDS = st.lists(st.sampled_from(VOCABULARY), min_size=3)
SENTENCE = WORDS.map(lambda words: "The user knows " + " ".join(words))


def cases(kind: str) -> list[tuple[str, ...]]:
    return table(__file__, "review_cases.tsv", kind)


@pytest.mark.parametrize(("expected", "new", "known"), cases("likeness"))
def test_likeness(expected: str, new: str, known: str) -> None:
    assert likeness(new, known) == expected


@pytest.mark.parametrize(("reason", "text"), [*cases("lasting"), ("too long", "x" * 601)])
def test_what_lasts_and_what_does_not(reason: str, text: str) -> None:
    assert (durable(text) or "") == reason
    refusal = judge(text, Known())
    assert (refusal.reason if refusal else "") == reason


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


@pytest.mark.parametrize(("made_up", "text"), cases("named"))
def test_names_and_numbers_that_nobody_named_are_made_up(made_up: str, text: str) -> None:
    refusal = judge(text, Known(grounding=GroundingIndex(SAID)))
    assert (refusal.entry if refusal else "") == made_up
    assert refusal is None or refusal.reason == "unfounded"
    if made_up:
        assert judge(text, Known(grounding=GroundingIndex(SAID)), replacing=f"It was {made_up} before.") is None
        assert judge(text, Known(grounding=GroundingIndex([*SAID, f"well, {made_up.upper()}"]))) is None


@pytest.mark.parametrize(("reason", "said", "text"), cases("faithful"))
def test_what_was_said_in_short_or_in_other_words_is_kept(reason: str, said: str, text: str) -> None:
    refusal = judge(text, Known(said=(Message("user", said),), grounding=GroundingIndex([said], [said])))
    assert (refusal.reason if refusal else "") == reason


@given(st.lists(st.text("abcdefghij", min_size=2, max_size=9), min_size=2, max_size=5))
def test_initials_stand_for_a_name(parts: list[str]) -> None:
    assert stands_for("".join(part[0] for part in parts), parts, several=True)


@given(st.text(max_size=200), st.text(min_size=1, max_size=20))
def test_any_text_is_heard(said: str, name: str) -> None:
    words = name.split() or ["x"]
    answers = [(heard.names(words), heard.counts(name)) for heard in (Abbreviations([said]), Abbreviations([said]))]
    assert answers[0] == answers[1]
    assert is_foreign(said.casefold().split()) in (True, False)


# ── what was removed, and how much may go ──


def change(number: int, before: list[str], after: list[str]) -> Change:
    return Change(number, float(number), Scope(), "user", Author(), "x", "\n§\n".join(before), "\n§\n".join(after))


@given(st.lists(st.lists(st.sampled_from("abcdef"), unique=True, max_size=5), max_size=8))
def test_removed_is_what_was_there_once_and_is_not_now(states: list[list[str]]) -> None:
    walk = [change(n + 1, before, after) for n, (before, after) in enumerate(zip([[], *states], states, strict=False))]
    now = set(states[-1]) if states else set()
    assert {entry.text for entry in removed_entries(walk)} == {entry for state in states for entry in state} - now


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


@given(st.text(max_size=40), st.text(max_size=40))
def test_whatever_a_model_calls_it_is_judged(name: str, arguments: str) -> None:
    assert isinstance(problem_of(ToolCall("1", name, arguments)), str)
    assert problem_of(ToolCall("1", "memory", '{"action": "add"}')) == ""
    assert "not JSON" in problem_of(ToolCall("1", "memory", "{add"))
    assert "not a JSON object" in problem_of(ToolCall("1", "memory", "[1]"))


# ── when a review is due, and where a long chat is split ──


def call(name: str) -> Message:
    return Message("assistant", None, tool_calls=({"id": "1", "function": {"name": name, "arguments": "{}"}},))


def turn(*steps: str) -> CompletedTurn:
    messages = (Message("user", "hi"), *map(call, steps), Message("assistant", "ok"))
    return CompletedTurn(1, "hi", "ok", messages)


def test_counts_turns_and_work_and_begins_anew_after_a_write() -> None:
    counters = after(after(Counters(), turn("run", "run")), turn("run"))
    assert counters == Counters(turns=2, iterations=3)
    assert after(counters, turn("memory")) == Counters(turns=0, iterations=4)
    assert after(counters, turn("skill_manage", "run")) == Counters(turns=3, iterations=1)


def test_due_by_interval_and_never_with_zero() -> None:
    assert due(Counters(10, 3), 10, 10) == Due(memory=True)
    assert due(Counters(9, 10), 10, 10) == Due(skills=True)
    assert not due(Counters(1000, 1000), 0, 0)
    assert reviewed(Counters(10, 5), Due(memory=True)) == Counters(0, 5)


@given(st.lists(st.sampled_from(["", "run", "memory", "skill_manage"]), max_size=40), st.integers(1, 12))
def test_a_resumed_session_counts_on(steps: list[str], every: int) -> None:
    counters = Counters()
    messages: list[Message] = []
    for step in steps:
        one = turn(step) if step else turn()
        counters = after(counters, one)
        if (what := due(counters, every, 0)).memory:
            counters = reviewed(counters, what)
        messages += one.messages
    assert hydrated(messages, every) == counters


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


# ── what the user asks to be remembered ──


@pytest.mark.parametrize(("what", "text"), [*cases("remember"), ("-", "")])
def test_requests_to_remember(what: str, text: str) -> None:
    assert remember_request(text) == (None if what == "-" else what)


@pytest.mark.parametrize("mark", ["-", "a, ", "bitte,", "remember -", "merk dir "])
def test_long_lines_ask_for_nothing_twice(mark: str) -> None:
    """Reading is linear: a line of dashes is no riddle."""
    found = remember_request(mark * 4_000)
    assert found is None or len(found) <= 600
