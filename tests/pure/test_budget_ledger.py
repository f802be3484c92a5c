"""The ledger says what a cache could reuse, where the prefix broke, why, and what that costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.prompt.fence import fence
from herma.prompt.ledger import FIVE_MINUTES, ONE_HOUR, Ledger, Prices, Request, compare_with_naive, enter, keep

Messages = list[dict[str, Any]]
SYSTEM = {"role": "system", "content": "be good"}


def one(_message: Mapping[str, Any]) -> int:
    return 10


def said(*texts: str) -> Messages:
    roles = ("user", "assistant")
    return [SYSTEM, *({"role": roles[at % 2], "content": text} for at, text in enumerate(texts))]


def grows_only(requests: Sequence[Request]) -> bool:
    """Whether every request begins with the whole of the one before it."""
    sent = [list(request.messages) for request in requests]
    return all(later[: len(earlier)] == earlier for earlier, later in pairwise(sent))


def ledger(*requests: Request, lifetime: float = FIVE_MINUTES) -> Ledger:
    return keep(requests, lifetime=lifetime, count=one)


def test_a_conversation_that_only_grows() -> None:
    kept = ledger(Request(said("a")), Request(said("a", "b", "c")), Request(said("a", "b", "c", "d", "e")))
    assert [(entry.reusable, entry.new, entry.reason) for entry in kept.entries] == [
        (0, 20, "first call"),
        (20, 20, "grew only"),
        (40, 20, "grew only"),
    ]
    assert kept.breaks == ()
    assert kept.hit_share == 60 / 120
    assert (kept.reusable, kept.new, kept.output) == (60, 60, 0)


def test_where_and_why_the_prefix_broke() -> None:
    changed: Messages = [{"role": "system", "content": "be better"}, *said("a", "b", "c")[1:]]
    cases = {
        "system prompt changed": (Request(changed), 0, "system prompt changed"),
        "message changed": (Request(said("a", "B", "c")), 2, "message 2 changed"),
        "compression": (Request(said("summary"), moved="compression"), 1, "the conversation was compressed"),
        "reload": (Request(changed, moved="reload"), 0, "memory was reloaded on request"),
        "tools changed": (Request(said("a", "b", "c"), tools=[{"name": "x"}]), None, "tools changed"),
    }
    for reason, (request, place, why) in cases.items():
        entry = ledger(Request(said("a", "b")), request).entries[1]
        assert (entry.reason, entry.at_message, entry.why) == (reason, place, why)
        assert entry in ledger(Request(said("a", "b")), request).breaks
    gone = ledger(Request(said("a", "b", "c")), Request(said("a"))).entries[1]
    assert (gone.reason, gone.at_message, gone.reusable, gone.new) == ("message changed", 2, 20, 0)


def test_the_order_of_keys_does_not_matter_but_arguments_do() -> None:
    call = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{}"}}],
    }
    reordered = dict(reversed(call.items()))
    spaced = {**call, "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{ }"}}]}
    first = Request([SYSTEM, call])
    assert ledger(first, Request([SYSTEM, reordered])).entries[1].reason == "grew only"
    assert ledger(first, Request([SYSTEM, spaced])).entries[1].reason == "message changed"


def test_idleness_is_a_cause_of_its_own() -> None:
    first, later = Request(said("a"), at=0.0), Request(said("a", "b", "c"), at=301.0)
    entry = ledger(first, later).entries[1]
    assert (entry.reason, entry.reusable, entry.new, entry.expired) == ("idle", 0, 40, True)
    assert "301 s" in entry.why
    assert ledger(first, later, lifetime=ONE_HOUR).entries[1].reason == "grew only"
    assert ledger(first, Request(said("a", "b"), at=300.0)).entries[1].reason == "grew only"
    both = ledger(first, Request(said("x"), at=1_000.0)).entries[1]
    assert (both.reason, both.reusable) == ("message changed", 0)
    assert "also lapsed" in both.why


def test_money() -> None:
    prices = Prices(input=10.0, output=30.0)
    kept = keep(
        [Request(said("a"), output_tokens=100), Request(said("a", "b", "c"), output_tokens=50)],
        prices=prices,
        count=one,
    )
    assert kept.entries[0].cost == pytest.approx((20 * 10 * 1.25 + 100 * 30) / 1e6)
    assert kept.entries[1].cost == pytest.approx((20 * 10 * 0.1 + 20 * 10 * 1.25 + 50 * 30) / 1e6)
    assert kept.cost == pytest.approx(sum(entry.cost for entry in kept.entries))


def test_tools_count_once_and_are_reused() -> None:
    tools = [{"type": "function", "function": {"name": "memory", "description": "keeps things"}}]
    kept = keep([Request(said("a"), tools=tools), Request(said("a", "b"), tools=tools)], count=one)
    assert kept.entries[0].new > 20
    assert kept.entries[1].reusable == kept.entries[0].new
    assert kept.entries[1].new == 10


def test_against_injecting_memory_afresh_every_turn() -> None:
    requests, messages = [], [SYSTEM]
    for turn in range(20):
        messages = [*messages, {"role": "user", "content": f"question {turn}\n\n{fence(f'recall for {turn}')}"}]
        requests.append(Request(messages))
        messages = [*messages, {"role": "assistant", "content": f"answer {turn} " * 20}]
    assert grows_only(requests)
    compared = compare_with_naive(requests, [f"memory at {turn}" for turn in range(20)], prices=Prices(input=1.0))
    assert compared.ours.hit_share > 0.8
    assert compared.other.hit_share < 0.05
    assert all(entry.reason == "system prompt changed" for entry in compared.other.entries[1:])
    assert compared.saved_tokens > 0
    assert compared.saved_money > 0
    same = compare_with_naive(requests, ["memory"] * 20)
    assert same.other.breaks == ()


CONTENTS = st.lists(st.sampled_from(["a", "b", "c"]), max_size=6)


@given(st.lists(st.tuples(CONTENTS, st.floats(0, 1_000)), min_size=1, max_size=8))
def test_every_token_is_either_reusable_or_new(calls: list[tuple[list[str], float]]) -> None:
    clock, requests = 0.0, []
    for texts, wait in calls:
        clock += wait
        requests.append(Request(said(*texts), at=clock))
    kept = keep(requests, count=one)
    for entry, request in zip(kept.entries, requests, strict=True):
        assert entry.input == 10 * len(request.messages)
        assert entry.reusable >= 0
        assert entry.why
    assert kept.entries[0].reason == "first call"
    assert grows_only(requests) == all(entry.reason in ("first call", "grew only", "idle") for entry in kept.entries)
    prefix, entries = None, []
    for at, request in enumerate(requests):
        entry, prefix = enter(prefix, request, call=at, count=one)
        entries.append(entry)
    assert tuple(entries) == kept.entries
