"""What `from herma import …` offers: this exact list. A new name is added here and to the changelog."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import herma

PUBLIC = [
    *("Herma", "Session", "Agent", "HermaError", "HermaWarning", "errors", "__version__"),
    *("scan", "sanitize", "StreamScrubber", "MemoryProvider", "wrap"),
    *("Message", "Attachment", "SessionInfo", "Usage", "SearchReport", "Hit", "Dropped", "ConversationSummary"),
    *("Add", "Replace", "Remove", "MemoryOp"),
    *("MemoryOutcome", "Applied", "Duplicate", "OverBudget", "NoMatch", "Ambiguous", "Blocked", "Drifted", "Staged"),
    *("Suggestion", "Author", "Who", "Origin", "Scope", "Entry", "Change", "Pending", "Finding", "Snapshot"),
    *("ArchivedEntry", "TidyReport"),
    *("Episode", "EpisodeHit", "Fact", "Restored", "SessionState"),
    *("Review", "ReviewAction"),
    *("Skill", "Parameter", "SkillMatch", "SkillMatches", "SkillUsage", "SkillChange", "SkillPending", "SkillReport"),
    *("SkillOutcome", "SkillWritten", "SkillUnchanged", "SkillStaged", "SkillRefused"),
    *("ContextEngine", "EngineNeeds", "Compressed", "NotCompressed", "Expansion"),
]


def test_the_public_names_are_exactly_these() -> None:
    assert len(herma.__all__) == len(set(herma.__all__))
    assert sorted(herma.__all__) == sorted(PUBLIC)


def test_type_checkers_read_the_same_list() -> None:
    stub = ast.parse(Path(herma.__file__).with_suffix(".pyi").read_text("utf-8"))
    imported = {alias.asname for one in stub.body if isinstance(one, ast.ImportFrom) for alias in one.names}
    assert imported == {*PUBLIC, "telemetry"} - {"__version__"}
    found: dict[str, object] = {}
    exec("from herma import *", found)
    assert sorted(found.keys() - {"__builtins__"}) == sorted(PUBLIC)


def test_each_of_them_is_there() -> None:
    assert [name for name in PUBLIC if not hasattr(herma, name)] == []
    assert sorted(PUBLIC) == sorted(name for name in dir(herma) if name in PUBLIC)
    assert not hasattr(herma, "nonsense")


@pytest.mark.parametrize(
    ("old", "new"), [("Condensed", "Compressed"), ("LeftAlone", "NotCompressed"), ("TailEntry", "ArchivedEntry")]
)
def test_earlier_names_warn(old: str, new: str) -> None:
    with pytest.warns(DeprecationWarning, match=f"now herma.{new}"):
        assert getattr(herma, old) is getattr(herma, new)


def test_earlier_attributes_warn(tmp_path: Path) -> None:
    with herma.Herma.open(tmp_path) as h, h.session(source="test") as session:
        renamed = [
            (session, "heard", "mark_untrusted"),
            (session, "circumstances", "environment"),
            (h.memory, "tail", "archive"),
            (h.skills, "history", "changes"),
            (h.skills, "shelf", "listing"),
            (herma.Message("user"), "told", "memory_version"),
        ]
        for where, old, new in renamed:
            with pytest.warns(DeprecationWarning, match=f"{old} is now {new}"):
                assert getattr(where, old) == getattr(where, new)
