"""The window is divided as configured, and what overflows is named."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import ConfigError
from herma.prompt.tokens import LABELS, PROFILES, SLOTS, Overflow, Slot, WorkingMemory, draw, shares_of


def test_rooms_by_profile() -> None:
    default = WorkingMemory(100_000).plan()
    assert [use.room for use in default.uses] == [8_000, 12_000, 30_000, 35_000, 15_000]
    assert (default.used, default.free, default.overflows) == (0, 100_000, ())
    assert {sum(shares_of(profile).values()) for profile in PROFILES} == {100}
    changed = shares_of("coding", {"tools": 40, "reply": 20})
    assert (changed["tools"], changed["system"]) == (40, PROFILES["coding"]["system"])
    assert WorkingMemory(10_000, changed).room("reply") == 2_000


@pytest.mark.parametrize(
    ("profile", "changes", "says"),
    [
        ("default", {"tools": 50}, "add up to 115 percent"),
        ("default", {"tools": -1}, "tool results must be between 0 and 100"),
        ("default", {"tools": 101}, "between 0 and 100"),
        ("default", {"tools": math.nan}, "between 0 and 100"),
        ("default", {"toolz": 5}, "'toolz' is not a slot"),
        ("gaming", {}, "'gaming' is not a budget profile"),
    ],
)
def test_wrong_shares_are_refused_with_a_reason(profile: str, changes: dict[str, float], says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        shares_of(profile, changes)
    with pytest.raises(ConfigError, match="must be greater than 0"):
        WorkingMemory(0).plan()


def test_overflow_says_where_it_went() -> None:
    divided = WorkingMemory(1_000).plan({"tools": 500, "system": 10}, where={"tools": "kept as message 12"})
    assert divided.overflows == (Overflow("tools", 150, "kept as message 12"),)
    assert (divided["tools"].free, divided["system"].free) == (0, 70)
    assert WorkingMemory(1_000).plan({"memory": 900}).overflows[0].where.startswith("left in memory")


@given(
    st.integers(1, 2_000_000),
    st.dictionaries(st.sampled_from(SLOTS), st.integers(0, 3_000_000)),
    st.integers(0, 200),
)
def test_the_numbers_add_up(window: int, usage: dict[Slot, int], width: int) -> None:
    divided = WorkingMemory(window, note="guessed").plan(usage)
    assert sum(use.room for use in divided.uses) <= window
    assert sum(use.used for use in divided.uses) == sum(usage.values()) == divided.used
    assert {gone.slot: gone.tokens for gone in divided.overflows} == {
        use.slot: use.over for use in divided.uses if use.over
    }
    drawn = draw(divided, width).splitlines()
    assert len(drawn[0]) == max(12, width)
    for use in divided.uses:
        assert any(LABELS[use.slot] in line and f"{use.used:,}" in line for line in drawn)
        assert (use.slot[0].upper() in drawn[0]) == (use.used > 0)
    assert drawn[-1].strip() == "guessed"
