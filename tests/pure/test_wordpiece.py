"""Texts into the numbers of a BERT vocabulary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import EmbedderError
from herma.models.bert import LONGEST_WORD, WordPiece, read_vocabulary, words

if TYPE_CHECKING:
    from pathlib import Path

ENTRIES = [
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "the", "bread", "bak", "##er", "##y", "is", "open", "##ed", ",", "!", "$"),
    *("na", "##ive", "東", "京", "a", "##a", "2", "##0", "##2", "##6"),
]
VOCABULARY = {entry: number for number, entry in enumerate(ENTRIES)}


def pieces(text: str, at_most: int = 64) -> list[str]:
    return [ENTRIES[number] for number in WordPiece(VOCABULARY).encode(text, at_most)][1:-1]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The bakery opened, 2026!", ["the", "bak", "##er", "##y", "open", "##ed", ",", "2", "##0", "##2", "##6", "!"]),
        ("BREAD\tbread\u00a0bread", ["bread", "bread", "bread"]),
        ("naïve nai\u0308ve", ["na", "##ive", "na", "##ive"]),
        ("東京the", ["東", "京", "the"]),
        ("$bread", ["$", "bread"]),
        ("breadx", ["[UNK]"]),  # covered in part is not covered
        ("brea\u200bd\x00 \ufffdbread", ["bread", "bread"]),
        ("", []),
        ("[SEP]", ["[UNK]", "[UNK]", "[UNK]"]),  # a text cannot smuggle in a mark of the model
        ("a" * LONGEST_WORD, ["a", *["##a"] * (LONGEST_WORD - 1)]),
        ("a" * (LONGEST_WORD + 1), ["[UNK]"]),
    ],
)
def test_words_are_covered_from_the_left(text: str, found: list[str]) -> None:
    assert pieces(text, 512) == found


@given(st.text(max_size=200), st.integers(2, 20))
def test_a_text_never_gets_more_numbers_than_allowed(text: str, at_most: int) -> None:
    whole = WordPiece(VOCABULARY).encode(text, 10_000)
    cut = WordPiece(VOCABULARY).encode(text, at_most)
    assert cut[0] == VOCABULARY["[CLS]"]
    assert cut[-1] == VOCABULARY["[SEP]"]
    assert len(cut) <= at_most
    assert cut[:-1] == whole[: len(cut) - 1]
    assert len(cut) == min(len(whole), at_most)


@given(st.text(max_size=80))
def test_a_remembered_word_is_the_same_as_a_new_one(text: str) -> None:
    tokenizer = WordPiece(VOCABULARY)
    assert tokenizer.encode(text, 512) == tokenizer.encode(text, 512) == WordPiece(VOCABULARY).encode(text, 512)


@given(st.text(max_size=80))
def test_words_hold_no_white_space_and_no_capitals_that_could_be_small(text: str) -> None:
    for word in words(text):
        assert word.split() == [word]
        assert not any(character.isascii() and character.isupper() for character in word)


def test_both_forms_of_a_vocabulary_are_read(tmp_path: Path) -> None:
    lines, tokenizer = tmp_path / "vocab.txt", tmp_path / "tokenizer.json"
    lines.write_text("\n".join(ENTRIES) + "\n", "utf-8")
    tokenizer.write_text(json.dumps({"model": {"type": "WordPiece", "vocab": VOCABULARY}}), "utf-8")
    assert read_vocabulary(lines).vocabulary == read_vocabulary(tokenizer).vocabulary == VOCABULARY


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("vocab.txt", "the\nbread\n", "has no"),
        ("tokenizer.json", '{"model": {"type": "BPE", "vocab": {}}}', "not of the WordPiece kind"),
        ("tokenizer.json", "[]", "not of the WordPiece kind"),
        ("tokenizer.json", "{", "cannot be read"),
    ],
)
def test_what_is_no_vocabulary_is_refused(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(EmbedderError, match=message):
        read_vocabulary(tmp_path / name)


def test_a_missing_vocabulary_is_named(tmp_path: Path) -> None:
    with pytest.raises(EmbedderError, match="nothing"):
        read_vocabulary(tmp_path / "nothing.txt")
