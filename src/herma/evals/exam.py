"""Questions out of the user's own history, each with the message that it was made from: no model, the same every time.

    content      a few words of the message that are neither everywhere nor a hash
    paraphrase   fewer of them, in another order and another form ("migrations", "migrate")
    dated        the rarest of them, and the day on which it was said

What is asked for is known, so finding it can be counted; how people really ask is another matter, and harder.
"""

from __future__ import annotations

import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from herma.evals.data import Question
from herma.recall.match import fold
from herma.recall.stem import stem
from herma.recall.stopwords import STOP_WORDS

KINDS = ("content", "paraphrase", "dated")
WORDS = 5
"""Words of a question."""
LEAST_WORDS = 4
"""A message with fewer such words says too little to be asked for."""
LONGEST = 4_000
"""Characters of a message that are looked at."""
COMMON = 0.02
"""A word in a larger share of messages tells none of them apart."""
_WORD = re.compile(r"[^\W\d_]{4,24}")
_RUN = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{2,}")
_PIECE = 3
_ENDINGS = ("ing", "ed", "s", "")


@dataclass(frozen=True, slots=True)
class Said:
    """A message that a question may be made of."""

    id: int
    session: str
    text: str
    at: float = 0.0


def questions(history: Sequence[Said], count: int, seed: int = 0) -> list[Question]:
    """At most `count` of each kind, spread over the sessions. Messages that say the same all count as right."""
    known = {one.id: _words(one.text) for one in history}
    spread: Counter[str] = Counter(word for words in known.values() for word in words)
    most = max(3, int(COMMON * len(history)))
    same: dict[str, list[int]] = defaultdict(list)
    for one in history:
        same[_plain(one.text)].append(one.id)
    asked: list[Question] = []
    draw = random.Random(seed)  # noqa: S311  nothing secret: the same exam every time
    taken = 0
    for one in _in_turns(history, draw):
        telling = [word for word in known[one.id] if spread[word] <= most]
        if len(telling) < LEAST_WORDS:
            continue
        gold = tuple(map(str, same[_plain(one.text)]))
        for kind in KINDS:
            text = _asked(kind, telling, spread, one.at, draw)
            if text:
                asked.append(Question(f"{kind}-{one.id}", one.session, kind, text, gold))
        taken += 1
        if taken == count:
            break
    return asked


def _in_turns(history: Sequence[Said], draw: random.Random) -> Iterator[Said]:
    """One message of each session, then another of each: a long session is not the whole exam."""
    sessions: dict[str, list[Said]] = defaultdict(list)
    for one in history:
        sessions[one.session].append(one)
    piles = [draw.sample(pile, len(pile)) for pile in sessions.values()]
    draw.shuffle(piles)
    while piles:
        for pile in piles:
            yield pile.pop()
        piles = [pile for pile in piles if pile]


def _asked(kind: str, telling: Sequence[str], spread: Counter[str], at: float, draw: random.Random) -> str:
    """Words that occur elsewhere too come before those that occur here only: people seldom remember the latter."""
    by_spread = sorted(telling, key=lambda word: (spread[word] == 1, spread[word]))[: 2 * WORDS]
    chosen = set(draw.sample(by_spread, min(WORDS, len(by_spread))))
    words = [word for word in telling if word in chosen]
    if kind == "content":
        return " ".join(words)
    if kind == "paraphrase":
        fewer = draw.sample(words, max(3, len(words) - 2))
        return " ".join(_inflected(word, draw) for word in fewer)
    if not at:
        return ""
    return " ".join(words[:2]) + time.strftime(" on %Y-%m-%d", time.localtime(at))


def _inflected(word: str, draw: random.Random) -> str:
    """The word in another form that is still known as the same one; itself where there is none."""
    if not word.isascii():
        return word
    root = stem(word)
    forms = [root + ending for ending in _ENDINGS if root + ending != word and stem(root + ending) == root]
    return draw.choice(forms) if forms else word


def _words(text: str) -> list[str]:
    """Content words in order, each once; scripts without spaces in pieces."""
    folded = fold(text[:LONGEST])
    found: dict[str, None] = {}
    for match in _WORD.finditer(folded):
        word = match[0]
        if _RUN.search(word) is None and word not in STOP_WORDS:
            found[word] = None
    for run in _RUN.finditer(folded):
        for start in range(0, len(run[0]) - _PIECE + 1, _PIECE):
            found[run[0][start : start + _PIECE]] = None
    return list(found)


def _plain(text: str) -> str:
    return " ".join(fold(text).split())
