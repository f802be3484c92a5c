"""Rare words of a shard: what is put in is found, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.index.postings import FINE, RareWords, look_up, place

weighed = st.lists(st.tuples(st.integers(0, 63_800), st.integers(0, 32_767)), min_size=1, max_size=31)
words = st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), weighed, max_size=40)


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
