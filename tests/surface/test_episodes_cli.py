"""`herma episodes`, `herma brief` and `herma memory facts`: for people, for programs, and what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.homes import Ran, herma, talk, tool_messages

from herma import Add, Herma
from herma.testing import FixedClock

Type = Callable[..., Ran]


@pytest.fixture
def typed(home: Path) -> Type:
    return partial(herma, home)


@pytest.fixture
def done(home: Path) -> list[str]:
    """Three conversations: one that failed and was resolved, one that succeeded, one that failed. → their ids."""
    clock = FixedClock()
    found = []
    with Herma.open(home, clock=clock) as h:
        h.memory.apply("user", Add("User moved to Oslo"))
        with h.session(source="cli", project="shop") as s:
            s.before_model("run the tests of the shop")
            for number, output in (
                ("pytest", "ImportError: yaml"),
                ("pip install yaml", "ok"),
                ("pytest -q", "9 passed"),
            ):
                s.after_model(tool_messages("terminal", {"command": number}, output, number))
            s.after_model("All tests pass now.\n\nNext steps:\n- deploy it")
        found.append(s.id)
        for said, answer in (
            ("draw the \x1b[31mhouse plan", "Drawn, done."),
            ("do the impossible", "I couldn't do it."),
        ):
            clock.advance(86_400)
            with h.session(source="cli") as s:
                talk(s, said, reply=answer)
            found.append(s.id)
    return found


# ── episodes ──


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("episodes list", "No episodes yet"),
        ("episodes list --by-month", "No archived episodes"),
        ("episodes list x", "No similar episodes"),
        ("memory facts list", "No facts yet"),
    ],
)
def test_nothing_yet(typed: Type, words: str, said: str) -> None:
    assert said in typed(*words.split()).out


def test_a_list_for_people_and_for_programs(typed: Type, done: list[str]) -> None:
    out = typed("episodes", "list").out
    assert "failed but resolved" in out
    assert "run the tests of the shop" in out
    assert "\x1b" not in out
    value = typed("episodes", "list", "--json", "--limit", "2").json
    assert ([one["session"] for one in value["episodes"]], value["more"]) == ([done[2], done[1]], True)
    (only,) = typed("episodes", "list", "--json", "--outcome", "resolved", "--project", "shop").json["episodes"]
    assert (only["session"], only["built_by"], only["success"]) == (done[0], "rules", True)
    assert "draw the" in typed("episodes", "list", "the", "house", "plans").out
    similar = typed("episodes", "list", "shop tests", "--json").json["episodes"][0]
    assert (similar["session"], similar["similarity"] > 0.5) == (done[0], True)


def test_one_episode(typed: Type, done: list[str]) -> None:
    for wanted in ("1", done[0]):
        out = typed("episodes", "show", wanted).out
        for said in ("failed but resolved: the error was overcome", "ImportError: yaml", "pip install yaml"):
            assert said in out
        for said in ("rules, without a model", "Next step: deploy it"):
            assert said in out
    value = typed("episodes", "show", "1", "--json").json
    assert value["episode"]["remedy"] == "terminal: pip install yaml; terminal: pytest -q worked"
    assert value["state"]["open_tasks"] == ["deploy it"]


def test_archiving_and_restoring(typed: Type, done: list[str]) -> None:
    shown = typed("episodes", "archive", "--keep", "2", "--dry-run").out
    assert "1 episode would be archived. Nothing was changed." in shown
    assert "impossible" in shown
    refused = typed("episodes", "archive", "--keep", "2")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    gone = typed("episodes", "archive", "--keep", "2", "--yes").out
    assert "Archived 1 episode" in gone
    assert "episodes archive --undo 3" in gone
    assert "do the impossible" in typed("episodes", "list", "--by-month").out
    assert typed("episodes", "list", "--by-month", "--json").json["digests"][0]["episodes"] == [3]
    assert "impossible" in typed("episodes", "list", "--archived").out
    assert "Would be restored: 3" in typed("episodes", "archive", "--undo", "3", "--dry-run").out
    assert "Restored: 3" in typed("episodes", "archive", "--undo", "3").out
    assert "None of these" in typed("episodes", "archive", "--undo", "3").out
    assert typed("episodes", "archive", "3", "--yes", "--json").json["kept"] == 2
    assert "Nothing to archive" in typed("episodes", "archive").out


def test_making_them_anew(typed: Type, done: list[str]) -> None:
    assert "Read 0 conversations" in typed("index", "rebuild", "--episodes").out
    value = typed("index", "rebuild", "--episodes", "--all", "--json").json
    assert (value["looked_at"], value["made"], value["empty"]) == (3, 3, 0)
    assert "1 episode" in typed("index", "rebuild", "--episodes", done[0]).out


# ── brief ──


def test_what_is_known_for_a_task(typed: Type, done: list[str]) -> None:
    words = ("brief", "run the shop tests", "--project", "shop")
    for said in ("User moved to Oslo", "Next step: deploy it", ": run the tests of the shop → All tests pass now."):
        assert said in typed(*words).out
    value = typed(*words, "--json").json
    assert [one["kind"] for one in value["blocks"]] == ["state", "memory", "episodes"]
    assert value["state"]["next_step"] == "deploy it"
    small = typed("brief", "run", "the", "shop tests", "--json", "--budget", "5").json
    assert ([one["kind"] for one in small["blocks"]], small["budget_tokens"]) == (["memory"], 5)
    assert any("never shortened" in note for note in small["notes"])


@pytest.mark.parametrize(
    "words",
    [
        *(["episodes", "show", "99"], ["episodes", "show", "nosuch"], ["episodes", "show"], ["index", "rebuild", "x"]),
        *(["episodes", "archive", "--undo", "99"], ["episodes", "archive", "--undo"]),
        *(["episodes", "archive", "1", "--keep", "3"], ["episodes", "list", "--outcome", "odd"]),
        *(["brief"], ["brief", " "], ["brief", "x", "--budget", "0"], ["brief", "x", "--project", ""]),
        *(["memory", "facts", "list", "99"], ["memory", "facts", "forget", "99"], ["memory", "facts", "ask"]),
        *(["memory", "facts", "set", "a"], ["memory", "facts", "set", "a", " "], ["memory", "facts", "ask", " "]),
    ],
)
def test_what_is_wrong_is_said(typed: Type, done: list[str], words: list[str]) -> None:
    result = typed(*words)
    assert (result.code, result.out) == (2, "")
    assert result.err.startswith("herma: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("episodes forget --keep 2 --dry-run", "episodes archive --keep 2 --dry-run"),
        ("episodes restore 1", "episodes archive --undo 1"),
        ("episodes digests", "episodes list --by-month"),
        ("restore the shop", "brief the shop"),
        ("review log", "learned list"),
        ("review status", "learned list"),
    ],
)
def test_old_spellings_work_and_say_the_new_one(typed: Type, done: list[str], old: str, new: str) -> None:
    before, after = typed(*old.split()), typed(*new.split())
    assert (before.code, before.out) == (after.code, after.out)
    assert "is now" in before.err


# ── facts ──


@pytest.fixture
def known(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        h.memory.apply("user", Add("User lives in Rome"))
        clock.advance(60)
        h.memory.apply("user", Add("User moved to Oslo"))
        h.memory.apply("user", Add("Timezone: Europe/Oslo"))


def test_facts(typed: Type, known: None) -> None:
    out = typed("memory", "facts", "list").out
    assert ("Oslo" in out, "Rome" in out) == (True, False)
    assert typed("memory", "facts", "ask", "where do I live?").out.startswith("Oslo\n")
    history = typed("memory", "facts", "list", "city", "--json").json["facts"]
    assert [(one["value"], one["until"] is None) for one in history] == [("Oslo", True), ("Rome", False)]
    shown = typed("memory", "facts", "list", str(history[0]["id"])).out
    assert "User moved to Oslo" in shown
    assert "memory, change m2" in shown
    assert "No fact about" in typed("memory", "facts", "list", "shoe size").out
    result = typed("memory", "facts", "ask", "what is my shoe size?")
    assert (result.code, "No certain answer" in result.out) == (1, True)
    assert typed("memory", "facts", "ask", "--json", "tell me a joke").json == {"ok": True, "fact": None}


def test_facts_are_stated_and_forgotten(typed: Type, known: None) -> None:
    asked = ("memory", "facts", "ask", "what is my shoe size?")
    assert "shoe size = 42" in typed("memory", "facts", "set", "shoe size", "42").out
    assert typed(*asked).out.startswith("42\n")
    assert typed("memory", "facts", "ask", "shoe", "size?").out.startswith("42\n")
    assert typed("memory", "facts", "ask", "size").code == 1
    number = str(typed("memory", "facts", "list", "shoe size", "--json").json["facts"][0]["id"])
    assert "Would be forgotten" in typed("memory", "facts", "forget", number, "--dry-run").out
    assert "forget --undo" in typed("memory", "facts", "forget", number).out
    assert typed(*asked).code == 1
    assert "Used again: " in typed("facts", "unforget", number).out
    assert typed("index", "rebuild", "--facts", "--json").json["ok"] is True
    assert typed(*asked).code == 0
