"""The file format: any text a person may leave in the file is read as the same entries again and again."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.memory.entries import _BLANK, clean, join, parse, unfit, unique, used
from herma.types import DELIMITER

EDITOR_TEXT = st.text(alphabet=st.sampled_from("§§\n\n\r \t\ufeff\u2028\x85ab#-"), max_size=60)
ANY_TEXT = EDITOR_TEXT | st.text(max_size=80)


@given(ANY_TEXT, st.data())
def test_what_we_write_is_read_as_the_same_entries(text: str, data: st.DataObject) -> None:
    entries = parse(text)
    assert parse(join(entries)) == entries
    assert used(entries) == len(join(entries))
    kept = [entry for entry in entries if data.draw(st.booleans())]
    assert parse(join(kept)) == kept, "dropping entries does not change the others"


@given(ANY_TEXT)
def test_what_can_be_an_entry_is_one_entry_in_the_file(text: str) -> None:
    content = clean(text)
    if unfit(content) is None:
        assert parse(content) == [content]
        assert parse(join(["before", content, "after"])) == ["before", content, "after"]


@given(st.lists(st.text(alphabet="ab§ \n", min_size=1, max_size=8), max_size=8))
def test_unique_keeps_the_first_of_each(entries: list[str]) -> None:
    assert unique(entries) == sorted(set(entries), key=entries.index)


@pytest.mark.parametrize(
    "text",
    [
        "one\n§\ntwo",
        "\ufeffone\n§\ntwo",
        "one\r\n§\r\ntwo\r\n",
        "one\r§\rtwo",
        "\n\none\n\n§\n\ntwo\n\n\n",
        "one\n§\n\n§\ntwo",
        "one\n§\ntwo\n§",
        "one\n§\ntwo\n§\n",
        "\ufeff \ufeffone\n§\n\ufefftwo",
    ],
)
def test_what_editors_do_to_a_file_changes_no_entry(text: str) -> None:
    assert parse(text) == ["one", "two"]


@pytest.mark.parametrize("text", ["§ 3 of the licence", "see §\nbelow", "costs 5 § today", "a\n §3\nb"])
def test_a_section_sign_inside_a_line_is_data(text: str) -> None:
    assert parse(text) == [text]
    for blank in ("", " \n\t", "\ufeff", "\r\n\r\n", "\ufeff\r\n"):
        assert parse(blank) == []


@pytest.mark.parametrize("content", ["", "a\n§\nb", "a\n § \nb", "§", "a\x00b", "half \ud83d"])
def test_what_cannot_be_an_entry_is_named(content: str) -> None:
    assert unfit(content)


def test_every_character_that_strip_takes_off_is_blank() -> None:
    blanks = {character for character in map(chr, range(sys.maxunicode + 1)) if character.isspace()}
    assert set(_BLANK) == blanks | {"\ufeff"}


def test_a_long_tail_of_delimiters_is_read_in_one_pass() -> None:
    assert parse("a" + "\n§ " * 500_000 + "\n§") == ["a"]
    assert parse("a" + DELIMITER * 200_000 + "b")[-1] == "b"
