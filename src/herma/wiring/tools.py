"""What a model may call."""

from __future__ import annotations

from herma.curated import MemoryStore
from herma.recall.search import Searcher
from herma.tools import Tools
from herma.tools.memory import memory_tool
from herma.tools.session_search import session_search_tool
from herma.transcript import Transcripts
from herma.wiring.ground import Ground


def tools(ground: Ground, memory: MemoryStore, kept: Transcripts, searcher: Searcher) -> Tools:
    return Tools([memory_tool(memory), session_search_tool(searcher, kept)], alive=ground.alive)
