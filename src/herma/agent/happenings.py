"""What happens in a turn, for whoever shows it, and what came of it. Values only."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from herma.types import Condensed, LeftAlone, ToolCall, Usage

Ended: TypeAlias = Literal["answered", "interrupted", "out of steps"]


@dataclass(frozen=True, slots=True)
class Asking:
    """The model is asked; this is the step of the turn, from 1."""

    step: int


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer, as it comes, without anything that was only recalled to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool is about to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Called:
    """A tool has run. `result` is what the model gets, `ok` whether it says that it worked."""

    call: ToolCall
    result: str
    ok: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Shortened:
    """The conversation was too long, and was made shorter; or why not."""

    outcome: Condensed | LeftAlone


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that a person should know; said once."""

    text: str


Happening: TypeAlias = Asking | Said | Calling | Called | Shortened | Noted


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn that is over, and on disk."""

    text: str
    """The answer; what had come of it, if the turn was interrupted."""
    ended: Ended
    steps: int
    """How often the model was asked."""
    calls: tuple[Called, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """All steps together, as far as the server said."""
    measured: bool = False
    """Whether the server said what every step used."""
    model: str = ""
    """The model that answered last, as its server calls it."""
    notes: tuple[str, ...] = ()
