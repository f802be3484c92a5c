"""`herma memory tidy` and `herma memory tail`: shown first, asked for, and taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from herma import Add, Herma, Remove

if TYPE_CHECKING:
    from tests.surface.conftest import Person


TWICE = ("The tests run with pytest -n 2.", "Tests run with pytest -n 2. CI uses the same command.")
REST = (
    "Screenshots of broken layouts belong into the ticket and not into the chat.",
    "Customers in the northern region are billed quarterly by invoice.",
)
PORT = "The staging database listens on port 5433."


@pytest.fixture
def filled(person: Person) -> Person:
    with Herma.open(person.home) as h:
        h.memory.apply("memory", [Add(text) for text in (*TWICE, *REST)])
    return person


@pytest.fixture
def tailed(person: Person) -> Person:
    with Herma.open(person.home) as h:
        h.memory.apply("memory", Add(PORT))
        h.memory.apply("memory", Remove(PORT, kept="room"))
    return person


# ── tidy ──


def test_a_dry_run_shows_the_difference(filled: Person) -> None:
    ran = filled("tidy", "--dry-run")
    assert ran.code == 0
    assert "MEMORY.md: 1 proposal" in ran.out
    assert "say once" in ran.out
    assert f"- {TWICE[0]}" in ran.out
    assert "Nothing was changed." in ran.out
    assert TWICE[0] in filled.file.read_text()


def test_without_a_terminal_it_wants_a_yes(filled: Person) -> None:
    ran = filled("tidy")
    assert ran.code != 0
    assert "--yes" in ran.err
    assert TWICE[0] in filled.file.read_text()


def test_it_is_done_and_taken_back(filled: Person) -> None:
    ran = filled("tidy", "--yes")
    assert ran.code == 0
    assert "undo" in ran.out
    assert TWICE[0] not in filled.file.read_text()
    assert "tidy: 1 merged" in filled("diff").out
    again = filled("tidy", "--yes")
    assert "Everything is in order." in again.out
    assert filled("undo").code == 0
    assert TWICE[0] in filled.file.read_text()


def test_json_says_everything(filled: Person) -> None:
    planned = filled("tidy", "--dry-run", "--json").json
    memory = next(one for one in planned["files"] if one["target"] == "memory")
    (one,) = memory["proposals"]
    assert (one["kind"], one["entries"], one["by_model"]) == ("merge", list(TWICE), False)
    assert memory["outcome"] is None
    assert memory["used_after"] == memory["used"] - one["frees"]
    done = filled("tidy", "--yes", "--json", "--target", "memory").json
    assert done["files"][0]["outcome"]["outcome"] == "Applied"
    assert filled("tidy", "--json").json["files"][0]["proposals"] == []


def test_what_is_too_much_for_one_pass_is_named(person: Person) -> None:
    with Herma.open(person.home, flags={"memory.memory_char_limit": 300}) as h:
        h.memory.apply(
            "memory", [Add("The harbour office " + "keeps ledgers " * 9), Add("Quiet " + "rooms and halls " * 8)]
        )
    ran = person("tidy", "--dry-run", env={"HERMA_MEMORY_MEMORY_CHAR_LIMIT": "300"})
    assert "Left for another pass" in ran.out


def test_an_empty_memory_is_in_order(person: Person) -> None:
    assert "Everything is in order." in person("tidy").out


# ── tail ──


def test_the_tail_is_listed_and_searched(tailed: Person) -> None:
    listed = tailed("tail", "list")
    assert PORT in listed.out
    assert "to make room" in listed.out
    assert tailed("tail", "list", "--json").json["entries"][0]["why"] == "room"
    assert PORT in tailed("tail", "search", "staging", "database").out
    (hit,) = tailed("tail", "search", "staging database", "--json").json["entries"]
    assert hit["id"] == 1
    assert hit["found_by"]
    assert "shares staging, database" in tailed("tail", "search", "staged", "databases").out  # as the entry has them
    assert "Nothing in the long tail" in tailed("tail", "search", "zebra").out
    assert tailed("tail", "search", "-- -n").code == 0


def test_an_entry_is_put_back(tailed: Person) -> None:
    ran = tailed("tail", "restore", "1")
    assert ran.code == 0
    assert PORT in tailed.file.read_text()
    assert "empty" in tailed("tail", "list").out
    assert tailed("undo").code == 0
    assert PORT in tailed("tail", "list").out
    missing = tailed("tail", "restore", "9")
    assert missing.code != 0
    assert "no entry 9" in missing.err


def test_forgetting_and_taking_it_back(tailed: Person) -> None:
    assert "Would forget" in tailed("tail", "forget", "1", "--dry-run").out
    assert PORT in tailed("tail", "list").out
    ran = tailed("tail", "forget", "1")
    assert "herma memory tail unforget 1" in ran.out
    assert "empty" in tailed("tail", "list").out
    assert PORT in tailed("tail", "list", "--forgotten").out
    assert "already" in tailed("tail", "forget", "1").out
    assert "unforget" in tailed("tail", "restore", "1").err
    assert "Back in the long tail" in tailed("tail", "unforget", "1").out
    assert "not forgotten" in tailed("tail", "unforget", "1").out
    assert tailed("tail", "forget", "7").code != 0


def test_under_write_approval_an_agent_forgets_nothing(tailed: Person) -> None:
    env = {"CLAUDECODE": "1", "HERMA_MEMORY_WRITE_APPROVAL": "true"}
    ran = tailed("tail", "forget", "1", env=env)
    assert ran.code != 0
    assert PORT in tailed("tail", "list").out
    staged = tailed("tail", "restore", "1", env=env)
    assert "Nothing is stored yet" in staged.out


def test_what_waits_says_that_it_moves(person: Person) -> None:
    with Herma.open(person.home) as h:
        h.memory.apply("memory", Add(PORT))
        h.memory.propose("memory", [Remove(PORT, kept="room")])
    assert "to the long tail" in person("pending").out
    assert person("pending", "--json").json["pending"][0]["operations"][0]["kept"] == "room"
