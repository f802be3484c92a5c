"""Projects and users: each has files of its own, and nothing leaks from one to another."""

from __future__ import annotations

from pathlib import Path

import pytest

from herma import Add, Herma, Scope
from herma.errors import UsageError
from herma.prompt.assemble import RULE


def test_a_project_has_its_own_block_beside_the_home(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("Everywhere."))
        h.memory.apply("memory", Add("Only in acme."), scope=Scope(project="acme"))
        prompt = h.session(project="acme").snapshot.text
        assert prompt.count(RULE) == 4
        assert prompt.index("MEMORY (your personal notes)") < prompt.index("PROJECT MEMORY (your notes on acme)")
        assert "Everywhere." in prompt
        assert "Only in acme." in prompt
        for other in (h.session(), h.session(project="other")):
            assert "Only in acme." not in other.snapshot.text
            assert "Everywhere." in other.snapshot.text


def test_the_tool_writes_to_the_project_unless_told_otherwise(home: Path) -> None:
    with Herma.open(home) as h:
        session = h.session(project="acme", user="one")
        session.call_tool("memory", {"action": "add", "target": "memory", "content": "for the project"})
        session.call_tool("memory", {"action": "add", "target": "memory", "content": "too", "scope": "project"})
        session.call_tool("memory", {"action": "add", "target": "memory", "content": "for all", "scope": "home"})
        session.call_tool("memory", {"action": "add", "target": "user", "content": "about one", "scope": "home"})
        assert h.memory.entries("memory", scope=Scope(project="acme")) == ["for the project", "too"]
        assert h.memory.entries("memory") == ["for all"]
        assert h.memory.entries("user") == []
        assert h.memory.entries("user", scope=Scope(user="one")) == ["about one"]
        error = h.session().call_tool("memory", {"action": "add", "content": "x", "scope": "project"})
        assert "no project" in error


def test_a_user_goes_on_with_their_own_conversations_only(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session(user="one", title="Plan") as hers:
            hers.before_model("a secret of one")
            hers.after_model("noted")
        for name in (hers.id, hers.id[:6], "Plan"):
            with pytest.raises(UsageError, match="no session"):
                h.session(resume=name, user="two")
            assert h.session(resume=name, user="one").id == hers.id
        assert h.session(resume=hers.id).id == hers.id, "who keeps the home may open everything"


def test_each_block_has_its_own_limit(home: Path) -> None:
    with Herma.open(home, flags={"memory.memory_char_limit": 20}) as h:
        assert h.memory.apply("memory", Add("x" * 20)).ok
        assert h.memory.apply("memory", Add("y" * 20), scope=Scope(project="p")).ok
        assert not h.memory.apply("memory", Add("z"), scope=Scope(project="p")).ok


def test_with_a_user_only_that_users_profile_is_read_and_written(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("user", Add("The home's owner."))
        one, two = h.session(user="one"), h.session(user="two")
        one.call_tool("memory", {"action": "add", "target": "user", "content": "One likes tea."})
        two.call_tool("memory", {"action": "add", "target": "user", "content": "Two likes coffee."})
        assert one.snapshot.text == two.snapshot.text == ""
        assert "One likes tea." in h.session(user="one").snapshot.text
        assert "coffee" not in h.session(user="one").snapshot.text
        assert "owner" not in h.session(user="one").snapshot.text
        assert "tea" not in h.session().snapshot.text
        assert h.memory.entries("user") == ["The home's owner."]
        assert [change.after for change in h.memory.history(scope=Scope(user="one"))] == ["One likes tea."]
        assert [change.after for change in h.memory.history()] == ["The home's owner."]


def test_undo_stays_in_its_scope(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("home"))
        h.memory.apply("memory", Add("project"), scope=Scope(project="p"))
        h.memory.apply("user", Add("user"))
        h.memory.undo()
        h.memory.undo()
        assert h.memory.entries("memory") == h.memory.entries("user") == []
        assert h.memory.entries("memory", scope=Scope(project="p")) == ["project"]
        with pytest.raises(UsageError, match="nothing to undo"):
            h.memory.undo()
        h.memory.undo(scope=Scope(project="p"))
        assert h.memory.entries("memory", scope=Scope(project="p")) == []


def test_undo_by_number_works_on_the_document_it_changed(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("user", Add("kept"))
        change = h.memory.apply("memory", Add("taken back"), scope=Scope(project="p"))
        h.memory.undo(change.change)  # type: ignore[union-attr]
        assert h.memory.entries("memory", scope=Scope(project="p")) == []
        assert h.memory.entries("user") == ["kept"]


@pytest.mark.parametrize(
    "key", ["../../outside", "..", "/etc/passwd", "a" * 3000, "日本", "x\ny", "\udcff-bytes", "nul\x00"]
)
def test_any_key_is_a_scope_within_the_home(home: Path, key: str) -> None:
    with Herma.open(home) as h:
        scope = Scope(project=key, user=key)
        session = h.session(project=key, user=key)
        assert '"success": true' in session.call_tool("memory", {"action": "add", "content": "one"})
        assert h.memory.apply("user", Add("two"), scope=scope).ok
        assert h.memory.entries("memory", scope=scope) == ["one"]
        assert len(h.memory.history(scope=scope)) == 2
        h.memory.undo(scope=scope)
        assert h.memory.entries("user", scope=scope) == []
    files = [path.relative_to(home).parts for path in home.rglob("*.md")]
    assert all(parts[0] == "memories" and len(parts) == 4 for parts in files)
    assert [path.name for path in home.parent.iterdir()] == [home.name]


def test_a_profile_is_a_home_of_its_own(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("default"))
        with pytest.raises(UsageError, match="profile"):
            h.memory.apply("memory", Add("elsewhere"), scope=Scope(profile="work"))
    with Herma.open(home, profile="work") as h:
        assert h.memory.entries("memory") == []
        h.memory.apply("memory", Add("at work"), scope=Scope(profile="work"))
        assert h.memory.history()[0].scope.profile == "work"
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == ["default"]
