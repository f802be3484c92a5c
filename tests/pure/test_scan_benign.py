"""Notes that real people keep. None of them may be refused: every finding blocks a write."""

from __future__ import annotations

import pytest
from tests.pure.test_scan_attacks import corpus

from herma.safety.scan import scan

NOTES = [note for notes in corpus("notes.txt").values() for note in notes]


@pytest.mark.parametrize("note", NOTES)
def test_an_ordinary_note_passes(note: str) -> None:
    assert scan(note) == []


def test_there_are_enough_notes_to_mean_something() -> None:
    assert len(set(NOTES)) >= 150


def test_notes_together_pass_too() -> None:
    assert scan("\n§\n".join(NOTES)) == []


def test_a_byte_order_mark_at_the_start_passes() -> None:
    assert scan("\ufeffUser prefers tabs.") == []


def test_nothing_and_blank_pass() -> None:
    assert scan("") == []
    assert scan(" \n\t\n ") == []
