"""Working memory: which part of the model's window may hold what, what it holds now, and what went elsewhere.

A window is divided into slots. Each slot has a share; what does not fit into its slot goes somewhere else, and where is
written down: nothing leaves the window without a receipt.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, TypeAlias, get_args

from herma.errors import ConfigError

Slot: TypeAlias = Literal["system", "memory", "conversation", "tools", "reply"]
SLOTS: tuple[Slot, ...] = get_args(Slot)
LABELS: Mapping[Slot, str] = MappingProxyType(
    {
        "system": "system prompt",
        "memory": "injected memory",
        "conversation": "conversation",
        "tools": "tool results",
        "reply": "reply",
    }
)
WHERE: Mapping[Slot, str] = MappingProxyType(
    {
        "system": "cut; project files and skills are named with how to read them",
        "memory": "left in memory; session_search and the memory files have it",
        "conversation": "compressed; the transcript has every message",
        "tools": "shortened; the transcript has the full results",
        "reply": "not asked for; the model's answer is limited to its slot",
    }
)
"""Where a slot's overflow goes, unless the caller says otherwise."""

Shares: TypeAlias = Mapping[Slot, float]
PROFILES: Mapping[str, Shares] = MappingProxyType(
    {
        "default": {"system": 8, "memory": 12, "conversation": 30, "tools": 35, "reply": 15},
        "coding": {"system": 10, "memory": 8, "conversation": 22, "tools": 45, "reply": 15},
        "chat": {"system": 8, "memory": 20, "conversation": 47, "tools": 10, "reply": 15},
    }
)
"""Per cent of the window, per slot."""
_FILLS: Mapping[Slot, str] = MappingProxyType(
    {"system": "S", "memory": "M", "conversation": "C", "tools": "T", "reply": "R"}
)


@dataclass(frozen=True, slots=True)
class Use:
    """One slot: its room, and what it holds. `used` may be more than `room`; the difference has overflowed."""

    slot: Slot
    room: int
    used: int = 0

    @property
    def free(self) -> int:
        return max(0, self.room - self.used)

    @property
    def over(self) -> int:
        return max(0, self.used - self.room)


@dataclass(frozen=True, slots=True)
class Overflow:
    """What did not fit: from which slot, how many tokens, and where it went."""

    slot: Slot
    tokens: int
    where: str


@dataclass(frozen=True, slots=True)
class Plan:
    """A window, divided."""

    window: int
    uses: tuple[Use, ...]
    overflows: tuple[Overflow, ...] = ()
    note: str = ""

    def __getitem__(self, slot: Slot) -> Use:
        return next(use for use in self.uses if use.slot == slot)

    @property
    def used(self) -> int:
        return sum(use.used for use in self.uses)

    @property
    def free(self) -> int:
        """What is left of the whole window; overflowing slots borrow from the others."""
        return max(0, self.window - self.used)


def shares_of(profile: str = "default", changes: Mapping[str, float] | None = None) -> Shares:
    """The shares of a profile, with single ones changed. A wrong one is a ConfigError that says what is wrong."""
    if profile not in PROFILES:
        raise ConfigError(
            f"{profile!r} is not a budget profile.", hint=f"There are {', '.join(PROFILES)}; every share can be set."
        )
    shares: dict[Slot, float] = dict(PROFILES[profile])
    for name, share in (changes or {}).items():
        slot = next((slot for slot in SLOTS if slot == name), None)
        if slot is None:
            raise ConfigError(f"{name!r} is not a slot of the window.", hint=f"The slots are {', '.join(SLOTS)}.")
        shares[slot] = share
    check(shares)
    return MappingProxyType(shares)


def check(shares: Mapping[Slot, float]) -> None:
    """Refuse shares that cannot be: below zero, not a number, or more than the whole window in sum."""
    for slot, share in shares.items():
        if not 0 <= share <= 100:  # also refuses what is not a number
            raise ConfigError(f"The share of {LABELS[slot]} must be between 0 and 100 per cent, not {share:g}.")
    total = sum(shares.values())
    if total > 100.0001:
        parts = ", ".join(f"{slot} {share:g}" for slot, share in shares.items())
        raise ConfigError(
            f"The shares of the window add up to {total:g} per cent ({parts}).", hint="They may be at most 100 in sum."
        )


def plan(
    window: int,
    shares: Shares | None = None,
    usage: Mapping[Slot, int] | None = None,
    *,
    where: Mapping[Slot, str] | None = None,
    note: str = "",
) -> Plan:
    """Divide a window of so many tokens, enter what each slot uses, and say what overflowed and where it went."""
    if window <= 0:
        raise ConfigError(f"A window of {window:,} tokens cannot be divided.", hint="Set the model's context window.")
    shares = PROFILES["default"] if shares is None else shares
    check(shares)
    usage = usage or {}
    uses = tuple(Use(slot, int(window * shares.get(slot, 0.0) / 100), max(0, usage.get(slot, 0))) for slot in SLOTS)
    goes = {**WHERE, **(where or {})}
    return Plan(window, uses, tuple(Overflow(use.slot, use.over, goes[use.slot]) for use in uses if use.over), note)


@dataclass(frozen=True, slots=True)
class WorkingMemory:
    """The budget of one session: a window and its shares. `with_usage` gives the plan for what is in it now."""

    window: int
    shares: Shares = field(default_factory=shares_of)
    note: str = ""

    def room(self, slot: Slot) -> int:
        """Tokens that a slot may hold."""
        return self.with_usage({})[slot].room

    def with_usage(self, usage: Mapping[Slot, int], *, where: Mapping[Slot, str] | None = None) -> Plan:
        return plan(self.window, self.shares, usage, where=where, note=self.note)


# ── order ──


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of text and how much it matters: the higher, the more."""

    text: str
    weight: float = 0.0


def place(pieces: Iterable[Piece]) -> list[Piece]:
    """Order pieces so that the important ones stand at the front and at the end: models read the middle least.

    The most important is first, the second is last, the third is second, and so on; the least important is in the
    middle. Among equals the given order decides.
    """
    ranked = sorted(pieces, key=lambda piece: -piece.weight)
    return ranked[0::2] + ranked[1::2][::-1]


# ── drawing ──


def draw(plan: Plan, width: int = 72) -> str:
    """The window as a bar with numbers, for `herma context show`."""
    inner = max(10, width - 2)
    cells = _cells([min(use.used, plan.window) for use in plan.uses], max(plan.window, plan.used), inner)
    bar = "".join(_FILLS[use.slot] * count for use, count in zip(plan.uses, cells, strict=True))
    lines = [f"[{bar.ljust(inner, '·')}]"]
    name = max(map(len, LABELS.values()))
    digits = len(f"{max(plan.window, plan.used):,}")
    for use in plan.uses:
        percent = f"{100 * use.used / use.room:.0f}%" if use.room else "—"
        over = f"  {use.over:,} over" if use.over else ""
        label = f"{_FILLS[use.slot]} {LABELS[use.slot]:{name}}"
        lines.append(f"{label}  {use.used:>{digits},} of {use.room:>{digits},}  {percent:>5}{over}")
    lines.append(f"  {'window':{name}}  {plan.used:>{digits},} of {plan.window:>{digits},}  {plan.free:,} free")
    lines += [f"  {LABELS[gone.slot]}: {gone.tokens:,} tokens {gone.where}" for gone in plan.overflows]
    if plan.note:
        lines.append(f"  {plan.note}")
    return "\n".join(lines)


def _cells(parts: Sequence[int], whole: int, width: int) -> list[int]:
    """Whole cells for each part, none for nothing, at least one for something, never more than the bar has."""
    cells = [0 if not part else max(1, round(width * part / whole)) for part in parts]
    while sum(cells) > width:
        cells[cells.index(max(cells))] -= 1
    return cells
