"""`herma memory`: every command prints one JSON value when asked for it, and explains itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import pytest

from herma.memory.cli import memory

if TYPE_CHECKING:
    from tests.surface.conftest import Person

EVERY = [
    ["list"],
    ["add", "Another."],
    ["replace", "One", "Two."],
    ["replace", "One", "Two.", "--dry-run"],
    ["remove", "One"],
    ["remove", "One", "--dry-run"],
    ["mark", "One", "--confirm"],
    ["status"],
    ["log"],
    ["diff"],
    ["diff", "1"],
    ["blame"],
    ["undo"],
    ["undo", "--dry-run"],
    ["pending"],
    ["approve", "all"],
    ["reject", "all"],
    ["adopt"],
    ["adopt", "--dry-run"],
    ["tidy", "--yes"],
    ["tidy", "--dry-run"],
    ["tail", "list"],
    ["tail", "search", "One"],
    ["tail", "restore", "1"],
    ["tail", "forget", "1"],
    ["tail", "forget", "1", "--dry-run"],
    ["tail", "unforget", "1"],
    ["reset", "--yes"],
    ["reset", "--dry-run"],
]


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
@pytest.mark.parametrize("filled", [True, False], ids=["filled", "empty"])
def test_json_is_one_value(person: Person, words: list[str], filled: bool) -> None:
    if filled:
        person("add", "One.")
        person.stage("The release is on the first of May, says a page.")
    ran = person(*words, "--json")
    assert isinstance(ran.json, dict)
    assert ran.json["ok"] is (ran.code == 0)


def test_every_command_is_tried_above() -> None:
    assert {words[0] for words in EVERY} == set(memory.list_commands(click.Context(memory)))


@pytest.mark.parametrize("words", EVERY, ids=" ".join)
def test_json_when_the_database_is_foreign(person: Person, words: list[str]) -> None:
    (person.home / "herma.db").write_bytes(b"not a database" * 100)
    person.file.parent.mkdir()
    person.file.write_text("One.", encoding="utf-8")
    ran = person(*words, "--json")
    assert isinstance(ran.json, dict)
    assert "Traceback" not in ran.err
    assert (person.home / "herma.db").read_bytes() == b"not a database" * 100


def test_help_has_examples(person: Person) -> None:
    for words in EVERY:
        shown = person(*words[: 2 if words[0] == "tail" else 1], "--help").out
        assert "Examples:" in shown
        assert "--json" in shown
        assert "--project" in shown
