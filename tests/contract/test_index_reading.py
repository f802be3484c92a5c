"""Reading messages finds what the index finds in them: where the index cannot be asked, they are read."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.feeds import Feed
from tests.homes import matrix

from herma import Herma
from herma.index.sync import Index
from herma.search.candidates import selected, terms_of
from herma.search.match import Spelled, units
from herma.search.query import parse

_WORDS = """
port Porto ports getCompressionTip get_compression_tip dry-run dryRun C# csharp C++ .NET
node.js v1.2.3 10.0.0.1 user@example.com foo/bar.py 東京 東京都庁 京都 카페에서 서울 file \ufb01le
re\u0301sume\u0301 résumé running runs study studies my we be connection reset connections
HTTPServer2 x86_64 don't it's naïve ประเทศไทย हिन्दी Straße ㅋㅋㅋ A1b2C3d4e5 snake_Case9 the configの値
日本語test test123abc foo bar ｶﾞﾗｽ ガラス σοφος ΣΟΦΟΣ
"""
WORDS = tuple(_WORDS.split())
BETWEEN = (" ", " ", ", ", ". ", "\n", " - ", "/")


def queries(chance: random.Random) -> Iterator[str]:
    yield from WORDS
    for _ in range(80):
        one, other, third = chance.choices(WORDS, k=3)
        yield f"{one} {other}"
        yield f"{one} AND {other}"
        yield f"{one} -{other}"
        yield f'"{one} {other}"'
        yield f'("{one}" AND {other}) OR {third}'


@pytest.mark.parametrize("seed", matrix(range(6), lambda seed: seed < 1))
def test_reading_finds_what_the_index_finds(home: Path, seed: int) -> None:
    chance, feed = random.Random(seed), Feed()
    for _ in range(120):
        feed.append("".join(chance.choice(WORDS) + chance.choice(BETWEEN) for _ in range(chance.randint(1, 7))))
    index = Index(Herma.open(home), feed=feed)
    assert index.wait(20)
    differ = []
    for text in queries(chance):
        query = parse(text, 0.0)
        indexed = {one.message_id for one in index.find(terms_of(query), 5_000).candidates}
        looked_for = units(query)
        read = {id_ for id_, said in feed.texts.items() if selected(query, Spelled(said), looked_for)}
        if query.any_of and indexed != read:
            differ.append((text, [feed.texts[id_] for id_ in sorted(indexed ^ read)][:2]))
    index.close()
    assert differ == []
