"""What a model may call."""

from __future__ import annotations

from herma.curated import MemoryStore
from herma.recall.assisted import AssistedSearch
from herma.recall.search import Searcher
from herma.skills import SkillLibrary
from herma.tools import Tools
from herma.tools.memory import memory_tool
from herma.tools.session_search import session_search_tool
from herma.tools.skill_manage import skill_manage_tool
from herma.tools.skills import skill_view_tool, skills_list_tool
from herma.transcript import Transcripts
from herma.wiring.ground import Ground
from herma.wiring.memory import targets_on


def tools(
    ground: Ground,
    memory: MemoryStore,
    kept: Transcripts,
    searcher: Searcher,
    skills: SkillLibrary,
    assisted: AssistedSearch | None = None,
) -> Tools:
    targets = targets_on(ground.settings.memory)
    everything = [
        *([memory_tool(memory, targets)] if targets else []),
        session_search_tool(searcher, kept, assisted),
        skills_list_tool(skills),
        skill_view_tool(skills),
        skill_manage_tool(skills),
    ]
    return Tools(everything, alive=ground.alive)
