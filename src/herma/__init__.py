"""Herma: memory that any agent can carry across sessions.

    from herma import Herma, Add

    with Herma.open() as h:
        h.memory.apply("memory", Add("The project uses pytest with xdist."))
        with h.session(source="cli") as s:
            request = s.before_model("fix the login bug")
            s.after_model("Done.")
        h.search("login bug")

The map, in the order of a turn:

    session      ★ start here: one turn      app                opens everything, and how a session begins
    features     what may join a session     config, text       settings; words, sizes, folding
    prompt       what the model is sent      tools              what the model may call
    memory       MEMORY.md and USER.md       transcript         every message, for good
    search       find past messages          index              words and vectors of all messages, rebuilt at any time
    skills       procedures, as files        episodes, facts    earlier work; exact answers from memory
    review       learning, within a budget   compression        a summary where the window is full
    safety       scan text from outside      providers          external memory providers
    models       chat models and embedders   store              files and databases, backup and repair
    worker       background work             doctor             check a home, and repair it
    agent        the reference agent         aio                the same names, awaited
    mcp, proxy   for other agents            integrations       for agent frameworks
    importers    memory of other agents      connect            set other agents up to use this memory
    cli, web     commands and dashboard      evals, testing     measure search; test your own agent

Names are loaded when they are first used, so importing the package is fast. `__init__.pyi` has them for type checkers.
"""

from __future__ import annotations

__version__ = "0.1.0"

_HOMES = {
    "herma.agent.loop": "Agent",
    "herma.app": "Herma",
    "herma.compression.engine": "ContextEngine EngineNeeds",
    "herma.compression.summary": "Compressed Expansion NotCompressed",
    "herma.episodes.rows": "Episode EpisodeHit Restored SessionState",
    "herma.errors": "HermaError HermaWarning",
    "herma.facts.facts": "Fact",
    "herma.memory.archive": "ArchivedEntry",
    "herma.memory.tidy": "TidyReport",
    "herma.prompt.fence": "StreamScrubber sanitize",
    "herma.providers.base": "MemoryProvider",
    "herma.review.rows": "Review ReviewAction",
    "herma.safety.scan": "scan",
    "herma.search.query": "ConversationSummary Dropped Hit SearchReport",
    "herma.session": "Session",
    "herma.skills.rows": (
        "Parameter Skill SkillChange SkillMatch SkillMatches SkillOutcome SkillPending SkillRefused SkillReport "
        "SkillStaged SkillUnchanged SkillUsage SkillWritten"
    ),
    "herma.proxy.conversations": "wrap",
    "herma.types": (
        "Add Ambiguous Applied Attachment Author Blocked Change Drifted Duplicate Entry Finding MemoryOp "
        "MemoryOutcome Message NoMatch Origin OverBudget Pending Remove Replace Scope SessionInfo Snapshot Staged "
        "Suggestion Usage Who"
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_RENAMED = {"Condensed": "Compressed", "LeftAlone": "NotCompressed", "TailEntry": "ArchivedEntry"}
"""Names of earlier versions: they warn, and go with the next version."""

__all__ = sorted([*_MODULE_OF, "__version__", "errors"])  # noqa: PLE0605  read by type checkers from __init__.pyi


def __getattr__(name: str) -> object:  # without typing, which a hook would load for this alone
    from importlib import import_module

    if name in ("errors", "aio", "telemetry"):
        return import_module("herma.models.telemetry" if name == "telemetry" else f"herma.{name}")
    if name in _RENAMED:
        import warnings

        warnings.warn(f"herma.{name} is now herma.{_RENAMED[name]}.", DeprecationWarning, stacklevel=2)
        name = _RENAMED[name]
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'herma' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
