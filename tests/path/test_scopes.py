"""Projects and users: each has files of its own, and nothing leaks from one to another."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.homes import of_files, talk

from herma import Add, Herma, Scope
from herma.errors import UsageError
from herma.memory.files import folder_name
from herma.prompt.assemble import RULE
from herma.types import Context, Target


def test_a_project_has_its_own_block_beside_the_home(h: Herma) -> None:
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


def test_the_tool_writes_to_the_project_unless_told_otherwise(h: Herma, home: Path) -> None:
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


def test_a_user_goes_on_with_their_own_conversations_only(h: Herma, home: Path) -> None:
    with h.session(user="one", title="Plan") as hers:
        talk(hers, "a secret of one", reply="noted")
    for name in (hers.id, hers.id[:6], "Plan"):
        with pytest.raises(UsageError, match="no session"):
            h.session(resume=name, user="two")
        assert h.session(resume=name, user="one").id == hers.id
    assert h.session(resume=hers.id).id == hers.id, "who keeps the home may open everything"


def test_a_parent_must_be_a_session_of_the_same_user(h: Herma) -> None:
    with h.session(user="one") as hers:
        talk(hers, "a secret of one", reply="noted")
    contexts: tuple[Context, ...] = ("primary", "subagent")
    for context in contexts:
        with pytest.raises(UsageError, match="no session"):
            h.session(parent=hers.id, user="two", context=context)
    assert [one.content for one in h.session(parent=hers.id, user="one").messages] == ["a secret of one", "noted"]
    h.memory.apply("user", Add("The owner's own."))
    for context in contexts:
        unnamed = h.session(parent=hers.id, context=context)
        assert unnamed.info.scope.user == "one", "as with resume, it is of the parent's user"
        assert "The owner's own." not in unnamed.system_prompt


COLLIDING = ("12869/u", "45380/u")
"""Two keys with the same folder name: the same last part, and the same first 32 bits of their hashes."""


@pytest.mark.parametrize("kind", ["user", "project"])
def test_two_keys_with_the_same_folder_name_have_folders_of_their_own(home: Path, kind: str) -> None:
    one, two = COLLIDING
    assert folder_name(one) == folder_name(two)
    target: Target = "user" if kind == "user" else "memory"
    with Herma.open(home) as h:
        assert h.memory.apply(target, Add("a secret of one"), scope=Scope(**{kind: one})).ok
        assert h.memory.entries(target, scope=Scope(**{kind: two})) == []
        theirs = h.session(user=two) if kind == "user" else h.session(project=two)
        assert "a secret of one" not in theirs.system_prompt
        assert h.memory.apply(target, Add("said by two"), scope=Scope(**{kind: two})).ok
    with Herma.open(home) as h:
        assert h.memory.entries(target, scope=Scope(**{kind: one})) == ["a secret of one"]
        assert h.memory.entries(target, scope=Scope(**{kind: two})) == ["said by two"]


@pytest.mark.parametrize("user", [" ", "\n", "one ", "\tone", "one\N{NO-BREAK SPACE}"])
def test_white_space_around_an_id_makes_nobody_another_user(h: Herma, user: str) -> None:
    h.memory.apply("user", Add("a secret of the owner"))
    for call in (h.memory.entries, lambda target, scope: h.memory.apply(target, Add("x"), scope=scope)):
        with pytest.raises(UsageError, match="white space"):
            call("user", scope=Scope(user=user))
    with pytest.raises(UsageError, match="white space"):
        h.session(user=user)
    assert h.memory.entries("user") == ["a secret of the owner"]


@of_files
@pytest.mark.parametrize("kind", ["user", "project"])
def test_a_folder_from_before_keys_were_stored_stays_with_who_wrote_there_first(home: Path, kind: str) -> None:
    one, two = COLLIDING
    target: Target = "user" if kind == "user" else "memory"
    with Herma.open(home) as h:
        h.memory.apply(target, Add("a secret of one"), scope=Scope(**{kind: one}))
    (key,) = home.glob("memories/*/*/.key")
    key.unlink()
    with Herma.open(home) as h:
        assert h.memory.entries(target, scope=Scope(**{kind: two})) == []
        assert h.memory.apply(target, Add("said by two"), scope=Scope(**{kind: two})).ok
        assert h.memory.entries(target, scope=Scope(**{kind: one})) == ["a secret of one"]
        assert h.memory.apply(target, Add("more of one"), scope=Scope(**{kind: one})).ok
    assert key.read_text() == one


def test_undo_by_number_does_not_reach_another_users_change(h: Herma) -> None:
    h.memory.apply("user", Add("a secret of one"), scope=Scope(user="one"))
    (change,) = h.memory.history("user", scope=Scope(user="one"))
    with pytest.raises(UsageError, match="no change"):
        h.memory.undo(change.id, scope=Scope(user="two"))
    assert h.memory.undo(change.id, scope=Scope(user="one")).ok


def test_each_block_has_its_own_limit(home: Path) -> None:
    with Herma.open(home, flags={"memory.memory_char_limit": 20}) as h:
        assert h.memory.apply("memory", Add("x" * 20)).ok
        assert h.memory.apply("memory", Add("y" * 20), scope=Scope(project="p")).ok
        assert not h.memory.apply("memory", Add("z"), scope=Scope(project="p")).ok


def test_with_a_user_only_that_users_profile_is_read_and_written(h: Herma, home: Path) -> None:
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


def test_undo_stays_in_its_scope(h: Herma, home: Path) -> None:
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


@of_files
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
