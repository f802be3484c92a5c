"""How the window is divided, and what fills it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, get_args

from herma.errors import ConfigError
from herma.prompt.assemble import RULE
from herma.prompt.tokens import PER_MESSAGE, TokenCounter, count_content, count_message, count_tools, window_of
from herma.transcript.messages import as_sent
from herma.types import Content, Message

# ---------- prompt.budget
#
# Working memory: which part of the model's window may hold what, what it holds now, and what went elsewhere.
#
# A window is divided into slots. Each slot has a share; what does not fit into its slot goes somewhere else, and where
# is written down: nothing leaves the window without a receipt.

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


# ---------- turn.window
#
# What the model's window holds for one conversation: which part is prompt, memory, talk and tool results. Pure.

_MEMORY_BEGINS = (f"\n\n{RULE}\n", "\n\n# Earlier work that may matter here\n")
BORROWED = "more than its share, taken from what is free in the window; nothing was cut for it"
"""What was sent was sent whole: a slot that is over its share has borrowed, and has lost nothing."""
_MEMORY_ENDS = "\n\nThis conversation began on "


@dataclass(frozen=True, slots=True)
class Budget:
    """How windows are divided, as configured. A share of 0 is the profile's."""

    window: int = 0
    profile: str = "default"
    shares: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, model: str | None) -> WorkingMemory:
        """The budget for a model: its window by its name, unless one is configured."""
        window = window_of(model, self.window)
        changes = {slot: share for slot, share in self.shares.items() if share}
        return WorkingMemory(window.tokens, shares_of(self.profile, changes), window.note)


def hold(
    budget: WorkingMemory,
    counter: TokenCounter,
    system_prompt: str,
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[Message],
    hidden: Sequence[Message] = (),
) -> Plan:
    """The window with a conversation in it; `hidden` are messages that a summary stands for."""
    count = counter.count
    memory = memory_of(system_prompt)
    usage: dict[Slot, int] = {
        "system": PER_MESSAGE + count(system_prompt.replace(memory, "", 1)) + count_tools(tools, count),
        "memory": count(memory),
        "conversation": 0,
        "tools": 0,
    }
    left_out = 0
    for message in history:
        tokens = message.tokens if message.tokens is not None else count_message(as_sent(message), count)
        if message.role == "tool":
            usage["tools"] += tokens
            if message.sent is not None:
                left_out += max(0, count_content(message.content, count) - count_content(message.sent, count))
            continue
        injected = count(injected_in(message.content, message.sent))
        usage["memory"] += injected
        usage["conversation"] += max(0, tokens - injected)
    exactly = "exact" if counter.exact else "estimated, rather too high than too low"
    note = "; ".join(filter(None, [budget.note, f"tokens are {exactly} ({counter.name})"]))
    plan = replace(budget, note=note).with_usage(usage, where=dict.fromkeys(SLOTS, BORROWED))
    compressed = sum(message.tokens or count_message(as_sent(message), count) for message in hidden)
    gone = [Overflow("tools", left_out, WHERE["tools"]), Overflow("conversation", compressed, WHERE["conversation"])]
    return replace(plan, overflows=(*plan.overflows, *(one for one in gone if one.tokens)))


def memory_of(system_prompt: str) -> str:
    """The part of a prompt that is memory: the blocks, earlier work, and what external memories say."""
    begins = [at for mark in _MEMORY_BEGINS if (at := system_prompt.find(mark)) >= 0]
    if not begins:
        return ""
    ends = system_prompt.rfind(_MEMORY_ENDS)
    start = min(begins)
    return system_prompt[start : ends if ends > start else len(system_prompt)]


def injected_in(content: Content, sent: Content) -> str:
    """What was added to a message when it was sent."""
    if isinstance(content, str) and isinstance(sent, str) and sent.startswith(content):
        return sent[len(content) :]
    if isinstance(content, list) and isinstance(sent, list) and len(sent) > len(content):
        return "\n".join(str(part.get("text", "")) for part in sent[len(content) :])
    return str(sent) if content is None and isinstance(sent, str) else ""
