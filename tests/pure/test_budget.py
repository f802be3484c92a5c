"""The window is divided as configured, what overflows is named, and nothing important is buried in the middle."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import ConfigError
from herma.prompt.budget import (
    LABELS,
    PROFILES,
    SLOTS,
    Overflow,
    Piece,
    Slot,
    WorkingMemory,
    draw,
    place,
    plan,
    shares_of,
)


def test_defaults() -> None:
    divided = plan(100_000)
    assert {use.slot: use.room for use in divided.uses} == {
        "system": 8_000,
        "memory": 12_000,
        "conversation": 30_000,
        "tools": 35_000,
        "reply": 15_000,
    }
    assert divided.used == 0
    assert divided.free == 100_000
    assert divided.overflows == ()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_profile_uses_the_whole_window(profile: str) -> None:
    assert sum(shares_of(profile).values()) == 100


def test_single_shares_can_be_changed() -> None:
    shares = shares_of("coding", {"tools": 40, "reply": 20})
    assert shares["tools"] == 40
    assert shares["system"] == PROFILES["coding"]["system"]
    assert WorkingMemory(10_000, shares).room("reply") == 2_000


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"tools": 50}, "add up to 115 per cent"),
        ({"tools": -1}, "tool results must be between 0 and 100"),
        ({"tools": 101}, "between 0 and 100"),
        ({"tools": math.nan}, "between 0 and 100"),
        ({"toolz": 5}, "'toolz' is not a slot"),
    ],
)
def test_wrong_shares_are_refused_with_a_reason(changes: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        shares_of("default", changes)


def test_wrong_profiles_and_windows_are_refused() -> None:
    with pytest.raises(ConfigError, match="'gaming' is not a budget profile") as caught:
        shares_of("gaming")
    assert "coding" in caught.value.hint
    with pytest.raises(ConfigError, match="cannot be divided"):
        plan(0)


def test_overflow_has_a_receipt() -> None:
    divided = plan(1_000, usage={"tools": 500, "system": 10}, where={"tools": "kept as message 12"})
    assert divided.overflows == (Overflow("tools", 150, "kept as message 12"),)
    assert divided["tools"].free == 0
    assert divided["system"].free == 70
    assert plan(1_000, usage={"memory": 900}).overflows[0].where.startswith("left in memory")


def test_plans_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan(10).window = 11  # type: ignore[misc]


@given(
    st.integers(1, 2_000_000),
    st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 3_000_000)),
    st.integers(0, 200),
)
def test_the_numbers_add_up(window: int, usage: dict[Slot, int], width: int) -> None:
    divided = plan(window, usage=usage, note="guessed")
    assert sum(use.room for use in divided.uses) <= window
    assert sum(use.used for use in divided.uses) == sum(usage.values()) == divided.used
    assert {gone.slot: gone.tokens for gone in divided.overflows} == {
        use.slot: use.over for use in divided.uses if use.over
    }
    drawn = draw(divided, width).splitlines()
    assert len(drawn[0]) == max(12, width)
    for use in divided.uses:
        assert any(LABELS[use.slot] in line and f"{use.used:,}" in line for line in drawn)
        assert ((use.slot[0].upper() if use.slot != "tools" else "T") in drawn[0]) == (use.used > 0)
    assert drawn[-1].strip() == "guessed"


@given(st.lists(st.integers(0, 9), max_size=30))
def test_weight_sinks_to_the_middle(weights: list[int]) -> None:
    order = [piece.weight for piece in place([Piece(str(at), weight) for at, weight in enumerate(weights)])]
    assert sorted(order) == sorted(weights)
    edges = [min(at, len(order) - 1 - at) for at in range(len(order))]
    for at, depth in enumerate(edges):
        for other, deeper in enumerate(edges):
            if deeper > depth:
                assert order[other] <= order[at]


def test_equals_keep_their_order_at_the_front() -> None:
    pieces = [Piece("a", 3), Piece("b", 2), Piece("c", 1), Piece("d", 1)]
    assert [piece.text for piece in place(pieces)] == ["a", "c", "d", "b"]
    assert place([]) == []
