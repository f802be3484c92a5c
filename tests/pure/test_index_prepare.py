"""Text becomes words the same way in messages and in queries; rare words are found again in their rows."""

from __future__ import annotations

import re
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from herma.index.postings import FINE, RareWords, look_up, place
from herma.index.sync import LONGEST_WORD, clean, prepare, sought


@pytest.mark.parametrize(
    ("text", "words", "names"),
    [
        ("get_compression_tip", "get compression tip", ["getcompressiontip"]),
        ("getCompressionTip", "get Compression Tip", ["getcompressiontip"]),
        ("get-compression-tip", "get compression tip", ["getcompressiontip"]),
        ("HTTPServerError2", "HTTP Server Error 2", ["httpservererror2"]),
        ("python3", "python 3", ["python3"]),
        ("2026-03-05", "2026 03 05", ["20260305"]),
        ("user@example.com foo/bar.py #1234", "user@example.com foo/bar.py #1234", []),
        ("C# or C++ on .NET", "C# or C++ on .NET", ["csharp", "cplusplus", "dotnet"]),
        ("a3f9c2b1d4e5", "a3f9c2b1d4e5", []),  # a key stays whole
        ("東京都庁", " 東京 京都 都庁 庁 ", []),
        ("我用docker部署", " 我用 用 docker 部署 署 ", []),
        ("서울에서", " 서울 울에 에서 서 ", []),
        ("ｶﾞＡＢ１", " ガ AB 1", ["ab1"]),  # half and full width are one
        ("Plain words, as people write.", "Plain words, as people write.", []),
    ],
)
def test_examples(text: str, words: str, names: list[str]) -> None:
    prepared = prepare(text)
    assert prepared.text == words
    assert list(prepared.names) == names


@pytest.mark.parametrize(
    ("text", "words", "begun"),
    [
        ("都", "都", True),
        ("東京", "東京", False),
        ("東京都庁", "東京 京都 都庁", False),
        ("登录？", "登录", False),
        ("用docker部", "用 docker 部", True),
        ("login", "login", False),
    ],
)
def test_a_query_is_found_where_more_follows(text: str, words: str, begun: bool) -> None:
    found, open_end = sought(text)
    assert (found.split(), open_end) == (words.split(), begun)


@given(st.text())
def test_any_text_can_be_stored_and_width_and_composition_make_no_difference(text: str) -> None:
    prepared = prepare(text)
    for value in (prepared.text, *prepared.names, sought(text)[0]):
        value.encode()
        assert "\0" not in value
    storable = re.sub("[\x00\ud800-\udfff]", " ", text)
    assert prepare(text) == prepare(unicodedata.normalize("NFKC", storable))


@given(st.text(alphabet="aAbB1_-. ", max_size=40))
def test_taking_apart_loses_no_letter(text: str) -> None:
    assert re.sub("[^a-z0-9]", "", prepare(text).text.lower()) == re.sub("[^a-z0-9]", "", text.lower())


@given(st.text(alphabet="東京都庁 a1,", max_size=30), st.data())
def test_every_part_of_a_run_is_in_the_text_as_it_is_sought(text: str, data: st.DataObject) -> None:
    runs = re.findall("[東京都庁]+", text)
    if not runs:
        return
    run = data.draw(st.sampled_from(runs))
    start = data.draw(st.integers(0, len(run) - 1))
    part = run[start : data.draw(st.integers(start + 1, len(run)))]
    words, begun = sought(part)
    document, wanted = prepare(text).text.split(), words.split()
    windows = [document[i : i + len(wanted)] for i in range(len(document))]
    if begun:
        assert any(window and window[-1].startswith(wanted[-1]) for window in windows)
    else:
        assert wanted in windows


def test_a_lot_of_anything_is_prepared_and_endless_words_are_cut() -> None:
    """Quadratic work would not end."""
    for pattern in ("a", "aA", "a1", "a_", "A", "東", "-a", "C#", "+", "_", "a-"):
        text = pattern * (200_000 // len(pattern))
        assert prepare(text).text
        assert sought(text)[0] or pattern in ("+", "_")
    assert len(clean("x" * 4 * LONGEST_WORD)) == LONGEST_WORD


# ── the rare words of a shard ──

weighed = st.lists(st.tuples(st.integers(0, 63_800), st.integers(0, 32_767)), min_size=1, max_size=31)
words = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), weighed, max_size=40)


@settings(max_examples=40)
@given(words, st.text(st.characters(exclude_categories=["Cs"]), min_size=1))
def test_words_are_found_again(given_words: dict[str, list[tuple[int, int]]], absent: str) -> None:
    rare = RareWords()
    for term, pairs in given_words.items():
        rare.add(term, pairs)
    rows = dict(rare.rows())
    assert not dict(rare.rows())
    for term, pairs in given_words.items():
        bucket, name = place(term)
        assert look_up(rows[bucket], name) == [(weight / FINE, age) for weight, age in pairs]
    if absent not in given_words:
        bucket, name = place(absent)
        assert look_up(rows.get(bucket, bytes(2)), name) == []


def test_a_name_is_not_found_across_two_others() -> None:
    row = (2).to_bytes(2, "little") + b"abcdefgh" + bytes([1, 1]) + bytes(8)
    assert look_up(row, b"cdef") == []
    assert look_up(row, b"efgh") == [(0.0, 0)]
