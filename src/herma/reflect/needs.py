"""What looking back is given: how it goes, and what it works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herma.reflect.look_back import Limits, Window
from herma.types import ReviewWrites, Scope, SessionView, Target

if TYPE_CHECKING:
    from herma.curated import MemoryStore
    from herma.episodes import Episodes
    from herma.ports import ChatModel
    from herma.ports.reviews import ReviewRows
    from herma.prompt.ledger import Prices
    from herma.reflect.gate import Propose
    from herma.skills import SkillLibrary


@dataclass(frozen=True, slots=True)
class Policy:
    """How looking back goes; see `review.*` in the configuration."""

    enabled: bool = True
    memory_every: int = 10
    skills_every: int = 10
    writes: ReviewWrites = "apply"
    skill_writes: ReviewWrites = "stage"
    at_end: bool = True
    min_turns: int = 3
    idle_minutes: float = 60.0
    boundaries: tuple[str, ...] = ("idle", "day", "topic")
    limits: Limits = field(default_factory=Limits)
    drain: float = 5.0
    keep_days: float = 90.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What looking back works with; `app` puts it together."""

    rows: ReviewRows
    memory: MemoryStore
    propose: Propose
    skills: Callable[[], SkillLibrary]
    episodes: Callable[[], Episodes]
    model: Callable[[str], ChatModel | None]
    """For a purpose of background work, behind the meter; None if no model is set."""
    why_no_model: Callable[[], str]
    window: Callable[[str], Window]
    load: Callable[[str], SessionView | None]
    """A stored session as it would be sent."""
    clock: Callable[[], float] = time.time
    alive: Callable[[], None] = lambda: None
    price_of: Callable[[str], Prices | None] = lambda _: None
    elsewhere: Callable[[Target, Scope], Sequence[str]] = lambda *_: ()
    """Entries that are kept outside the files."""
    failed: Callable[[str, str], None] = lambda *_: None
