"""`herma remember`, `inbox`, `log` and `undo`: over memory, skills and deleted sessions, in every scope."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.homes import Ran, herma

from herma import Author, Herma, Origin, Scope, Who

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Type = Callable[..., Ran]

AGENT = {"CLAUDECODE": "1"}
SKILL = "---\nname: release\ndescription: Cut a release of the shop\n---\n1. Tag it.\n"


@pytest.fixture
def type_(home: Path) -> Type:
    return partial(herma, home)


@pytest.fixture
def filled(home: Path) -> Path:
    """A home with a change of each kind, oldest first: memory, a project's memory, a skill, a deleted session."""
    with Herma.open(home=home) as h:
        h.memory.add("memory", "The shop is in Lisbon.")
        h.memory.add("memory", "The shop's tests need Redis.", scope=Scope(project="shop"))
        h.skills.create("release", SKILL)
        session = h.transcripts.start(source="test", title="Plans for May")
        h.transcripts.append(session, [{"role": "user", "content": "Plan the release of May."}])
        h.transcripts.delete(session)
    return home


def test_remember_chooses_the_file(type_: Type, home: Path) -> None:
    assert type_("remember", "I", "prefer short answers.").code == 0
    assert type_("remember", "The staging database listens on 5433.", "--project", "shop").code == 0
    assert type_("remember", "Deploys happen on Tuesdays.", "--target", "user").code == 0
    assert type_("remember", "Remember that we adopted a puppy").code == 0
    with Herma.open(home=home) as h:
        assert h.memory.entries("user") == [
            "I prefer short answers.",
            "Deploys happen on Tuesdays.",
            "We adopted a puppy",
        ]
        assert h.memory.entries("memory", scope=Scope(project="shop")) == ["The staging database listens on 5433."]
    assert type_("remember").code == 2
    assert type_("remember", "The tests need Redis.", env=AGENT).code == 0
    with Herma.open(home=home) as h:
        assert h.memory.history()[0].author.who is Who.TOOL


def test_the_log_lists_every_kind_and_scope(type_: Type, filled: Path) -> None:
    changes = type_("log", "--json").json["changes"]
    assert [one["kind"] for one in changes] == ["sessions", "skills", "memory", "memory"]
    assert [one["id"] for one in changes][1:] == ["s1", "m2", "m1"]
    shown = type_("log").out
    for text in ("Plans for May", "release", "MEMORY.md of shop", "Lisbon"):
        assert text in shown
    assert [one["id"] for one in type_("log", "--project", "shop", "--json").json["changes"]] == ["m2"]
    assert [one["id"] for one in type_("log", "--kind", "skills", "--json").json["changes"]] == ["s1"]
    assert "There are more: herma log --limit 5" in type_("log", "--limit", "1").out
    for typed, text in (("m1", "+ The shop is in Lisbon."), ("s1", "+1. Tag it."), ("2", "Redis")):
        assert text in type_("log", typed).out
    several = type_("log", "1")
    assert (several.code, "m1" in several.err, "s1" in several.err) == (2, True, True)
    assert type_("log", "m77").code == 2


def test_undo_walks_back_over_every_kind(type_: Type, filled: Path) -> None:
    assert type_("undo", "m1", env={**AGENT, "HERMA_MEMORY_WRITE_APPROVAL": "on"}).code == 2
    assert "Restored session" in type_("undo").out
    assert "m2" in type_("undo", "m2", "--dry-run").out
    assert type_("undo").code == 0
    with Herma.open(home=filled) as h:
        assert [one.title for one in h.transcripts.list()] == ["Plans for May"]
        assert h.skills.list() == []
        assert len(h.memory.entries("memory", scope=Scope(project="shop"))) == 1
    assert type_("undo", "--json").json["undone"]["id"] == "m2"
    again = type_("undo")
    assert "Change m1 undone" in again.out
    redo = again.out.split("herma undo ")[1].split()[0]
    assert type_("undo", redo).code == 0
    with Herma.open(home=filled) as h:
        assert h.memory.entries("memory") == ["The shop is in Lisbon."]
    type_("undo")
    nothing = type_("undo", "--json")
    assert (nothing.code, nothing.json["error"]["code"]) == (1, "nothing")


def test_undo_names_what_it_skips(type_: Type, filled: Path, tmp_path: Path) -> None:
    folder = tmp_path / "tidy-desk"
    folder.mkdir()
    (folder / "SKILL.md").write_text(SKILL.replace("release", "tidy-desk").replace("of the shop", "of the desk"))
    with Herma.open(home=filled) as h:
        h.transcripts.undelete([one.id for one in h.transcripts.deleted()])
        assert all(one.outcome.ok for one in h.skills.install(folder))
    done = type_("undo")
    assert "(tidy-desk: installed): Change" in done.err
    assert done.err.startswith("warning: Skipped s")
    assert done.code == 0
    with Herma.open(home=filled) as h:
        assert [one.name for one in h.skills.list()] == ["release"]


def test_an_undo_that_cannot_be_done_is_refused(type_: Type, home: Path) -> None:
    with Herma.open(home=home) as h:
        h.memory.add("memory", "The shop is in Lisbon.")
        h.memory.replace("memory", "Lisbon", "The shop is in Porto.")
        h.memory.add("user", "a" * 700)
        h.memory.remove("user", "aaa")
        h.memory.add("user", "b" * 700)
    for change, why in (("m1", "cannot be undone alone"), ("m4", "Make room first")):
        for words in ((change,), (change, "--dry-run")):
            refused = type_("undo", *words)
            assert refused.code == 1
            assert why in refused.err
    type_("undo", "m2")
    assert type_("undo", "m2").code == 2  # undone already


@pytest.fixture
def proposed(home: Path) -> Path:
    with Herma.open(home=home, flags={"skills.write_approval": True}) as h:
        agent = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
        web = Author(Who.TOOL, Origin.WEB)
        h.memory.add("memory", "The release is on the first of May, says a page.", author=web)
        h.memory.add("memory", "A page says that tea is popular.", author=web, scope=Scope(project="shop"))
        h.skills.create("release", SKILL, author=agent)
    return home


def test_the_inbox_lists_approves_and_rejects(type_: Type, proposed: Path) -> None:
    for words in (("approve", "all"), ("reject", "m1")):
        refused = type_("inbox", *words, "--json", env=AGENT)
        assert (refused.code, refused.json["error"]["code"]) == (2, "people_only")
    items = type_("inbox", "--json").json["pending"]
    assert [one["id"] for one in items] == ["m1", "m2", "s1"]
    shown = type_("inbox").out
    assert "herma inbox approve m1" in shown
    assert "add: The release is on the first of May" in shown
    assert "m1  MEMORY.md: from agent (web), less than a minute ago; expires in 30 days" in shown
    adds: dict[str, object] = {
        "action": "add",
        "content": "A page says that tea is popular.",
        "category": None,
        "tags": [],
    }
    assert items[1]["operations"] == [adds]
    assert "1. Tag it." in type_("inbox", "show", "s1").out
    assert [one["id"] for one in type_("inbox", "list", "--project", "shop", "--json").json["pending"]] == ["m2"]
    unknown = type_("inbox", "approve", "s1", "m9")
    assert unknown.code == 2
    assert "Nothing was decided" in unknown.err
    several = type_("inbox", "approve", "1")
    assert several.code == 2
    assert "m1 or s1" in several.err
    done = type_("inbox", "approve", "2", "s1")
    assert done.code == 0, done.err
    assert "herma undo m1" in done.out
    assert type_("inbox", "reject", "all").code == 0
    for emptied in (["inbox"], ["inbox", "approve", "all"], ["inbox", "reject", "all"]):
        assert type_(*emptied).out == "The inbox is empty.\n"
    with Herma.open(home=proposed) as h:
        assert [one.name for one in h.skills.list()] == ["release"]
        assert h.memory.entries("memory", scope=Scope(project="shop")) == ["A page says that tea is popular."]


def test_a_proposal_that_no_longer_fits_stays(type_: Type, home: Path) -> None:
    with Herma.open(home=home) as h:
        h.memory.add("user", "x " * 400, author=Author(Who.TOOL, Origin.WEB, session="20260101_000000_abcdef01"))
        h.memory.add("user", "y " * 400)
    assert "in session 20260101_000000_abcdef01" in type_("inbox").out
    refused = type_("inbox", "approve", "m1")
    assert refused.code == 1
    assert "stays in the inbox" in refused.err
    assert type_("inbox", "approve", "m1", "--json").json["results"][0]["outcome"] == "OverBudget"
    assert len(type_("inbox", "--json").json["pending"]) == 1
