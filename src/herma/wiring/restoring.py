"""What is known for a task: curated memory, skills and episodes under one budget."""

from __future__ import annotations

from collections.abc import Callable

from herma.counting import counter_for
from herma.curated import MemoryStore
from herma.episodes import Episodes
from herma.restoring import Restorer
from herma.skills import SkillLibrary
from herma.types import SkillMatches
from herma.wiring.ground import Ground
from herma.wiring.sessions import window_budget


def restorer(
    ground: Ground, memory: MemoryStore, episodes: Episodes, library: Callable[[], SkillLibrary]
) -> tuple[Restorer, int]:
    """It, and the tokens that a window has for memory."""
    settings = ground.settings
    counter = counter_for(settings.model.name or None)

    def find(task: str, limit: int) -> SkillMatches:
        return library().find(task, limit)

    room = window_budget(settings.context).of(settings.model.name or None).room("memory")
    return Restorer(memory.load, episodes, find, counter.count), room
