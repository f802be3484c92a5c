"""What a model may call."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

from herma.tools import Tools
from herma.tools.memory import memory_tool
from herma.tools.registry import Run, Tool
from herma.tools.shown import session_search_shown, skill_manage_shown, skill_view_shown, skills_list_shown
from herma.wiring.ground import Ground
from herma.wiring.memory import targets_on

if TYPE_CHECKING:
    from herma.curated import MemoryStore
    from herma.recall.assisted import AssistedSearch
    from herma.recall.search import Searcher
    from herma.skills import SkillLibrary
    from herma.transcript import Transcripts


def tools(
    ground: Ground,
    memory: MemoryStore,
    kept: Transcripts,
    searcher: Callable[[], Searcher],
    skills: Callable[[], SkillLibrary],
    assisted: Callable[[], AssistedSearch] | None = None,
) -> Tools:
    """Search and skills are made with the first call that needs them; the model is shown all of them from the start."""

    def search() -> Tool:
        from herma.tools.session_search import session_search_tool

        return session_search_tool(searcher(), kept, assisted() if assisted is not None else None)

    def skill_list() -> Tool:
        from herma.tools.skills import skills_list_tool

        return skills_list_tool(skills())

    def skill_view() -> Tool:
        from herma.tools.skills import skill_view_tool

        return skill_view_tool(skills())

    def skill_manage() -> Tool:
        from herma.tools.skill_manage import skill_manage_tool

        return skill_manage_tool(skills())

    targets = targets_on(ground.settings.memory)
    everything = [
        *([memory_tool(memory, targets)] if targets else []),
        session_search_shown(_by(search), assisted=assisted is not None),
        skills_list_shown(_by(skill_list)),
        skill_view_shown(_by(skill_view)),
        skill_manage_shown(_by(skill_manage)),
    ]
    return Tools(everything, alive=ground.alive)


def _by(made: Callable[[], Tool]) -> Run:
    """What this tool does, once it is called."""
    tool = cache(made)
    return lambda arguments, context: tool().run(arguments, context)
