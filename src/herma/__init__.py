"""Herma: memory that any agent can carry across sessions.

    from herma import Herma, Add

    with Herma.open() as h:
        h.memory.apply("memory", Add("The project uses pytest with xdist."))
        with h.session(source="cli") as s:
            request = s.before_model("fix the login bug")
            s.after_model("Done.")
        h.search("login bug")

The map, in the order of a turn:

    app          opens everything            session, opener   ★ start here: one turn, top to bottom
    prompt       what the model is shown     recall            what was said before, found again
    tools        what the model may call     curated           MEMORY.md and USER.md
    transcript   every message, for good     index             words of all messages, rebuilt at any time
    turn         the steps of one turn       providers         external memories, as guests
    safety       scans what comes in         store             files and SQLite
    reflect      learning, making room       skills            what was learnt to do
    episodes     what was done before        facts             exact answers to exact questions
    models       chat models and embedders   jobs              work in the background
    agent        the reference agent's turn  evals             how well search, routing and scanning do
    wiring       settings → parts            doctor            what is wrong, and how to put it right

Names are loaded when they are first used, so importing the package costs next to nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herma import errors as errors
    from herma.agent.loop import Agent as Agent
    from herma.app import Herma as Herma
    from herma.compression.engine import ContextEngine as ContextEngine
    from herma.compression.engine import EngineNeeds as EngineNeeds
    from herma.compression.summary import Condensed as Condensed
    from herma.compression.summary import Expansion as Expansion
    from herma.compression.summary import LeftAlone as LeftAlone
    from herma.episodes.types import Episode as Episode
    from herma.episodes.types import EpisodeHit as EpisodeHit
    from herma.episodes.types import Restored as Restored
    from herma.episodes.types import SessionState as SessionState
    from herma.errors import HermaError as HermaError
    from herma.errors import HermaWarning as HermaWarning
    from herma.facts.facts import Fact as Fact
    from herma.memory.archive import TailEntry as TailEntry
    from herma.memory.tidy import TidyReport as TidyReport
    from herma.prompt.fence import StreamScrubber as StreamScrubber
    from herma.prompt.fence import sanitize as sanitize
    from herma.providers.base import MemoryProvider as MemoryProvider
    from herma.review.rows import Review as Review
    from herma.review.rows import ReviewAction as ReviewAction
    from herma.safety.scan import scan as scan
    from herma.search.query import ConversationSummary as ConversationSummary
    from herma.search.query import Dropped as Dropped
    from herma.search.query import Hit as Hit
    from herma.search.query import SearchReport as SearchReport
    from herma.session import Session as Session
    from herma.skills.types import Parameter as Parameter
    from herma.skills.types import Skill as Skill
    from herma.skills.types import SkillChange as SkillChange
    from herma.skills.types import SkillMatch as SkillMatch
    from herma.skills.types import SkillMatches as SkillMatches
    from herma.skills.types import SkillOutcome as SkillOutcome
    from herma.skills.types import SkillPending as SkillPending
    from herma.skills.types import SkillRefused as SkillRefused
    from herma.skills.types import SkillReport as SkillReport
    from herma.skills.types import SkillStaged as SkillStaged
    from herma.skills.types import SkillUnchanged as SkillUnchanged
    from herma.skills.types import SkillUsage as SkillUsage
    from herma.skills.types import SkillWritten as SkillWritten
    from herma.types import Add as Add
    from herma.types import Ambiguous as Ambiguous
    from herma.types import Applied as Applied
    from herma.types import Author as Author
    from herma.types import Blocked as Blocked
    from herma.types import Change as Change
    from herma.types import Drifted as Drifted
    from herma.types import Duplicate as Duplicate
    from herma.types import Entry as Entry
    from herma.types import Finding as Finding
    from herma.types import MemoryOp as MemoryOp
    from herma.types import MemoryOutcome as MemoryOutcome
    from herma.types import Message as Message
    from herma.types import NoMatch as NoMatch
    from herma.types import Origin as Origin
    from herma.types import OverBudget as OverBudget
    from herma.types import Pending as Pending
    from herma.types import Remove as Remove
    from herma.types import Replace as Replace
    from herma.types import Scope as Scope
    from herma.types import SessionInfo as SessionInfo
    from herma.types import Snapshot as Snapshot
    from herma.types import Staged as Staged
    from herma.types import Suggestion as Suggestion
    from herma.types import Usage as Usage
    from herma.types import Who as Who

__version__ = "0.1.0"

_HOMES = {
    "herma.agent.loop": ("Agent",),
    "herma.app": ("Herma",),
    "herma.compression.engine": (
        "ContextEngine",
        "EngineNeeds",
    ),
    "herma.compression.summary": (
        "Condensed",
        "Expansion",
        "LeftAlone",
    ),
    "herma.episodes.types": (
        "Episode",
        "EpisodeHit",
        "Restored",
        "SessionState",
    ),
    "herma.errors": (
        "HermaError",
        "HermaWarning",
    ),
    "herma.facts.facts": ("Fact",),
    "herma.memory.archive": ("TailEntry",),
    "herma.memory.tidy": ("TidyReport",),
    "herma.prompt.fence": (
        "StreamScrubber",
        "sanitize",
    ),
    "herma.providers.base": ("MemoryProvider",),
    "herma.review.rows": (
        "Review",
        "ReviewAction",
    ),
    "herma.safety.scan": ("scan",),
    "herma.search.query": (
        "ConversationSummary",
        "Dropped",
        "Hit",
        "SearchReport",
    ),
    "herma.session": ("Session",),
    "herma.skills.types": (
        "Parameter",
        "Skill",
        "SkillChange",
        "SkillMatch",
        "SkillMatches",
        "SkillOutcome",
        "SkillPending",
        "SkillRefused",
        "SkillReport",
        "SkillStaged",
        "SkillUnchanged",
        "SkillUsage",
        "SkillWritten",
    ),
    "herma.types": (
        "Add",
        "Ambiguous",
        "Applied",
        "Author",
        "Blocked",
        "Change",
        "Drifted",
        "Duplicate",
        "Entry",
        "Finding",
        "MemoryOp",
        "MemoryOutcome",
        "Message",
        "NoMatch",
        "Origin",
        "OverBudget",
        "Pending",
        "Remove",
        "Replace",
        "Scope",
        "SessionInfo",
        "Snapshot",
        "Staged",
        "Suggestion",
        "Usage",
        "Who",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", "errors", *_MODULE_OF]  # noqa: PLE0604  tests/arch has the exact list


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "errors":
        return import_module("herma.errors")
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'herma' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
