"""What is embedded of a text, and which messages come next: bounded, whole, and the same every time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.index import MESSAGE
from herma.index.vector_store import Reach, VectorTarget
from herma.index.vectors import (
    BEFORE,
    CHANGES,
    MOST_PARTS,
    PART,
    EmbeddableMessage,
    Passage,
    ahead,
    behind,
    changed,
    of_message,
    parts,
    readable,
)
from herma.transcript.rows import FeedChange

TEXT = st.text(alphabet=st.sampled_from("ab c.\n。?!漢é"), max_size=4 * PART)


@given(TEXT)
def test_parts_are_bounded_and_together_are_the_text(text: str) -> None:
    found = parts(text)
    assert len(found) <= MOST_PARTS
    assert all(0 < len(part) <= PART for part in found)
    assert "".join("".join(found).split()) == "".join(text.split())  # short enough for all of it
    first, second = "first. " * 100, "second. " * 100
    assert parts(f"{first}\n\n{second}") == [first.strip(), second.strip()], "a long text is cut at paragraphs"


@given(TEXT, TEXT)
def test_a_message_stands_with_the_end_of_what_was_said_before(text: str, before: str) -> None:
    found = of_message(EmbeddableMessage(7, "s", text, before[-BEFORE:]))
    assert [passage.target.part for passage in found] == list(range(len(found)))
    assert {(passage.target.kind, passage.target.key, passage.target.session_id) for passage in found} <= {
        (MESSAGE, 7, "s")
    }
    assert [passage.text for passage in found[1:]] == parts(text)[1:]
    if found and before[-BEFORE:].split():
        assert found[0].text.endswith(parts(text)[0])
        assert len(found[0].text) <= PART + BEFORE + 1


def test_a_cut_word_is_not_embedded_and_a_digest_is_that_of_the_text() -> None:
    (passage,) = of_message(EmbeddableMessage(1, "s", "yes", ("x" * 300 + " the blue one")[-BEFORE:]))
    assert passage.text == "the blue one\nyes"
    target = VectorTarget(MESSAGE, 1)
    assert Passage(target, "a").digest == Passage(VectorTarget("entry", "x"), "a").digest != Passage(target, "b").digest
    assert Passage(target, "\ud800").digest


@pytest.mark.parametrize(
    ("text", "is_multilingual", "reads"),
    [
        *(("naïve café", False, True), ("docker 部署", False, True), ("我用docker部署好了现在去吃饭", False, False)),
        *(("Привет", False, False), ("Привет", True, True), ("→ 12 … 34", False, True)),
    ],
)
def test_what_a_model_for_english_reads(text: str, is_multilingual: bool, reads: bool) -> None:
    assert readable(text, is_multilingual=is_multilingual) is reads


KEYS = st.dictionaries(
    st.integers(1, 6), st.lists(st.sampled_from(["one", "two", "three"]), min_size=1, max_size=3), max_size=6
)


@given(KEYS, KEYS)
def test_only_keys_whose_texts_differ_are_embedded(wanted: dict[int, list[str]], have: dict[int, list[str]]) -> None:
    def made(texts: dict[int, list[str]]) -> list[Passage]:
        return [
            Passage(VectorTarget(MESSAGE, key, n), text) for key, all_ in texts.items() for n, text in enumerate(all_)
        ]

    stored = {(passage.target.key, passage.target.part): passage.digest for passage in made(have)}
    new, met, stale = changed(made(wanted), stored)
    assert {passage.target.key for passage in new} == {key for key in wanted if wanted[key] != have.get(key)}
    assert set(met) == {key for key in wanted if wanted[key] == have.get(key)}
    assert set(stale) == {key for key in have if have[key] != wanted.get(key)}


@st.composite
def feeds(draw: st.DrawFn) -> list[FeedChange]:
    """Changes with gaps between their numbers; ids never repeat."""
    changes, seq, first = [], 0, 1
    for size in draw(st.lists(st.integers(0, 40), max_size=12)):
        seq += draw(st.sampled_from([1, 1, 2, CHANGES + 5]))
        kind = draw(st.sampled_from(["append", "append", "purge"]))
        changes.append(FeedChange(seq, "append" if kind == "append" else "purge", tuple(range(first, first + size))))
        first += size
    return changes


@given(feeds(), st.integers(1, 50), st.data())
def test_every_message_is_walked_once_whatever_the_batches(
    changes: list[FeedChange], batch: int, data: st.DataObject
) -> None:
    start = data.draw(st.sampled_from([0, *(change.seq for change in changes)]))
    end = changes[-1].seq if changes else 0
    reach, walked = Reach(start, start), list[int]()

    def since(seq: int) -> list[FeedChange]:
        return [change for change in changes if change.seq > seq][:CHANGES]

    while reach.high < end:
        ids, following = ahead(reach, since(reach.high), batch)
        assert following != reach
        walked, reach = walked + ids, following
    forward = len(walked)
    while reach.low > 0:
        ids, following = behind(reach, since(max(0, reach.low - CHANGES)), batch)
        assert following != reach
        assert len(ids) <= batch
        walked, reach = walked + ids, following
    assert sorted(walked) == sorted(n for change in changes if change.kind == "append" for n in change.message_ids)
    assert walked[:forward] == sorted(walked[:forward])
    assert walked[forward:] == sorted(walked[forward:], reverse=True)
    assert reach.walked == len(walked)
