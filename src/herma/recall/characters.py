"""Single Chinese characters as evidence beside pairs of them. Pure, linear.

The index knows text without spaces as pairs of characters. That finds words of two characters, and misses what says the
same with other endings or in other company: 流れる物 and 流体, 继承 and 继任. A character alone says less than a pair,
but what shares several rare ones is more often about the same thing.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence

from herma.recall.query import Query
from herma.recall.rank import Candidate

ALONE = 0.5
"""What a character counts for, where a pair counts 1. From 0.3 to 0.8 four to seven more of a thousand questions are
answered first, in Chinese and in Japanese, in both halves of each."""
_SATURATION, _LENGTH = 0.6, 0.75
_READ = 2_000
_MOST = 32
"""Characters that are looked for."""
_CHARACTER = re.compile("[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]")


def sought(query: Query) -> list[str]:
    """The characters of a question, each once; none where one pair is all there is."""
    text = unicodedata.normalize("NFKC", "".join(term.text for term in query.any_of))
    found = list(dict.fromkeys(_CHARACTER.findall(text)))[:_MOST]
    return found if len(found) > 2 else []


def gains(characters: Sequence[str], candidates: Sequence[Candidate]) -> dict[int, float]:
    """What each candidate gains by them, or loses to those that have more: the best match by pairs alone was 1, and the
    best by both is 1 again, so that all that is not about words counts as much as before.
    """
    best = max((one.own for one in candidates), default=0.0)
    if not characters or best <= 0:
        return {}
    texts = [one.folded[:_READ] for one in candidates]
    average = max(1.0, sum(map(len, texts)) / len(texts))
    norms = [_SATURATION * (1 - _LENGTH + _LENGTH * len(text) / average) for text in texts]
    found = dict.fromkeys((one.id for one in candidates), 0.0)
    for character in characters:
        times = [text.count(character) for text in texts]
        having = len(times) - times.count(0)
        rarity = math.log(1 + (len(times) - having + 0.5) / (having + 0.5))
        for one, count, norm in zip(candidates, times, norms, strict=True):
            if count:
                found[one.id] += ALONE * rarity * count * (_SATURATION + 1) / (count + norm)
    most = max(one.own + found[one.id] for one in candidates)
    return {one.id: (one.own + found[one.id]) / most - one.own / best for one in candidates}
