"""Terms are found in real text as the index finds them, and marked where they stand."""

from __future__ import annotations

import unicodedata

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.index.postings import tokenizer
from herma.index.sync import clean
from herma.search.match import LONGEST as EXCERPT
from herma.search.match import SNIPPET_LONGEST as LONGEST
from herma.search.match import Spelled, excerpt, fold, holds, legible, matches, snippet, units
from herma.search.query import Term, parse
from herma.text import stem

TEXT = st.text(alphabet=st.sampled_from("abcdefgXYZ 日本語東京の.-_/@#'\n\t😀éß0123"), max_size=400)


def marked(query: str, text: str) -> list[str]:
    folded = fold(text)
    places = sorted(place for unit in units(parse(query, 0.0)) for place in unit.find(folded, 99))
    return [text[start:end] for start, end in places]


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("running plans", "He runs. Planning planets; plan!", ["runs", "Planning", "plan"]),
        ("foo/bar.py", "see src/foo/bar.py:3", ["foo/bar.py"]),
        (
            "getCompressionTip",
            "get_compression_tip() and GetCompressionTip",
            ["get_compression_tip", "GetCompressionTip"],
        ),
        ("C#", "I like C# and c#, not C.", ["C#", "c#"]),
        ("user@example.com", "Mail user@example.com.", ["user@example.com"]),
        ("école", "Écoles d'été", ["Écoles"]),
        ("都", "東京都庁", ["都"]),
        ("東京都", "東京の都", ["東京"]),
        ("deploy*", "deployment, deploys, redeploy", ["deployment", "deploys"]),
        ('"connection reset"', "connections reset; the connection was reset", ["connections reset"]),
        ("studies", "study", ["study"]),
        ("config", "configの値", ["config"]),
    ],
)
def test_finding(query: str, text: str, expected: list[str]) -> None:
    assert marked(query, text) == expected


@given(st.text(max_size=60), TEXT)
def test_places_lie_in_the_text(query: str, text: str) -> None:
    folded = fold(text)
    assert len(folded) == len(text)
    for unit in units(parse(query, 0.0)):
        for start, end in unit.find(folded, 50):
            assert 0 <= start < end <= len(text)
            assert unit.part in folded


@given(TEXT, TEXT)
def test_snippets_are_bounded_lines_of_the_text(query: str, text: str) -> None:
    line = snippet(text, matches(text, fold(text), units(parse(query, 0.0))))
    assert len(line) <= LONGEST
    assert "\n" not in line
    bare = line.replace(">>>", "").replace("<<<", "").strip("…")
    assert " ".join(bare.split()) in " ".join(text.split())
    text = "alpha here. " + "filler words " * 60 + "alpha beside beta here. " + "more filler " * 60
    line = snippet(text, matches(text, fold(text), units(parse("alpha beta", 0.0))))
    assert ">>>alpha<<< beside >>>beta<<<" in line, "it shows where most of the words are"
    assert line[0] == line[-1] == "…"


@pytest.mark.parametrize(
    ("query", "text", "expected"),
    [
        ("port", "A weekend in Porto", "A weekend in Porto"),
        ("compression", "see getCompressionTip", "see get>>>Compression<<<Tip"),
        ("compressionTip", "see getCompressionTip", "see get>>>CompressionTip<<<"),
        ("getcompressiontip", "see get_compression_tip", "see >>>get_compression_tip<<<"),
        ("server", "HTTPServer2 crashed", "HTTP>>>Server<<<2 crashed"),
        ("1.2.3", "released v1.2.3", "released v>>>1.2.3<<<"),
        ("csharp", "a C# client", "a >>>C#<<< client"),
        ("हिन्दी", "हिन्दी में", ">>>हिन्दी<<< में"),
        ("acme", "the Acme™ brand", "the >>>Acme<<<™ brand"),
    ],
)
def test_what_matched_is_marked_and_nothing_else(query: str, text: str, expected: str) -> None:
    assert snippet(text, matches(text, fold(text), units(parse(query, 0.0)))) == expected


def test_letters_that_the_index_takes_for_the_same_are_folded_alike() -> None:
    tokens = tokenizer(apsw.Connection(":memory:"))
    folded: dict[str, set[str]] = {}
    for letter in filter(str.isalpha, map(chr, range(0x80, 0x20000))):
        folded.setdefault(" ".join(tokens(clean(f"q{letter}q"))), set()).add(fold(f"q{letter}q"))
    assert {index: ours for index, ours in folded.items() if len(ours) > 1} == {}


@given(st.text(alphabet=st.sampled_from("aeuo\u0301\u0308 \u1109\u1165\u11af\ufb01ｶﾞｽ한東😀"), max_size=60))
def test_legible_text_is_read_as_it_was(text: str) -> None:
    assert unicodedata.normalize("NFKC", legible(text)) == unicodedata.normalize("NFKC", text)


@pytest.mark.parametrize(
    ("term", "text", "there"),
    [
        *((Term("東京都"), "東京都庁", True), (Term("東京都"), "東京", False)),
        *(
            (Term("exact words", "phrase"), text, text == "the exact words")
            for text in ("the exact words", "words exact")
        ),
        (Term("we use my foo/bar.py first", "phrase"), "here we use my foo/bar.py first", True),
        (Term("be it", "phrase"), "so be it", True),
    ],
)
def test_every_part_of_a_term_must_be_there(term: Term, text: str, there: bool) -> None:
    assert holds(term, Spelled(text)) is there


ENGLISH = """
caresses ponies ties cats feed agreed plastered motoring sing conflated troubled sized hopping falling hissing failing
filing happy sky relational conditional rational valenci digitizer conformabli radicalli differentli vileli analogousli
vietnamization predication operator feudalism decisiveness hopefulness callousness formaliti sensitiviti sensibiliti
triplicate formative formalize electriciti electrical hopeful goodness revival allowance inference airliner adjustable
defensible irritant replacement adjustment dependent adoption communism activate angulariti homologous effective
bowdlerize probate rate cease controll roll configuration connections debugging repositories y by yes abcs
"""


def test_stems_are_those_of_the_index() -> None:
    divide = apsw.Connection(":memory:").fts5_tokenizer("porter", ["unicode61", "remove_diacritics", "2"])
    for word in ENGLISH.split():
        assert divide(word.encode(), apsw.FTS5_TOKENIZE_QUERY, None, include_offsets=False) == [(stem(word),)]


def test_an_excerpt_is_the_sentence_that_matters() -> None:
    text = "Good morning. " * 40 + "We store passwords with argon2 now. " + "See you later. " * 40
    assert "We store passwords with argon2 now." in excerpt(text, units(parse("argon2 passwords", 0.0)))
    endless = excerpt("and so on " * 100 + "argon2 " + "and on " * 100, units(parse("argon2", 0.0)))
    assert (endless[0], "argon2" in endless, endless[-1]) == ("…", True, "…")


@given(st.text(max_size=2_000), st.text(max_size=30))
def test_an_excerpt_is_one_short_line(text: str, question: str) -> None:
    found = excerpt(text, units(parse(question, 0.0)))
    assert len(found) <= EXCERPT + 4
    assert "\n" not in found
