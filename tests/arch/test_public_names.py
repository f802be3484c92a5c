"""What `from herma import …` offers: this exact list. A new name is added here and to the changelog."""

from __future__ import annotations

import herma

PUBLIC = [
    *("Herma", "Session", "Agent", "HermaError", "HermaWarning", "errors", "__version__"),
    *("scan", "sanitize", "StreamScrubber", "MemoryProvider"),
    *("Message", "SessionInfo", "Usage", "SearchReport", "Hit", "Dropped", "ConversationSummary"),
    *("Add", "Replace", "Remove", "MemoryOp"),
    *("MemoryOutcome", "Applied", "Duplicate", "OverBudget", "NoMatch", "Ambiguous", "Blocked", "Drifted", "Staged"),
    *("Suggestion", "Author", "Who", "Origin", "Scope", "Entry", "Change", "Pending", "Finding", "Snapshot"),
    *("TailEntry", "TidyReport"),
    *("Episode", "EpisodeHit", "Fact", "Restored", "SessionState"),
    *("Review", "ReviewAction"),
    *("Skill", "Parameter", "SkillMatch", "SkillMatches", "SkillUsage", "SkillChange", "SkillPending", "SkillReport"),
    *("SkillOutcome", "SkillWritten", "SkillUnchanged", "SkillStaged", "SkillRefused"),
    *("ContextEngine", "EngineNeeds", "Condensed", "LeftAlone", "Expansion"),
]


def test_the_public_names_are_exactly_these() -> None:
    assert len(herma.__all__) == len(set(herma.__all__))
    assert sorted(herma.__all__) == sorted(PUBLIC)


def test_each_of_them_is_there() -> None:
    assert [name for name in PUBLIC if not hasattr(herma, name)] == []
    assert sorted(PUBLIC) == sorted(name for name in dir(herma) if name in PUBLIC)
    assert not hasattr(herma, "nonsense")
