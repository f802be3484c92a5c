"""Words and meaning together. Pure.

What the index of words says and what the index of vectors says are both made relative to their best, weighed and added,
so neither has to be good for the other to be heard. Places in two lists are not added up: where one list is much the
weaker, that loses more than it finds. The weights were chosen across sets of English conversations, each time without
the set or conversation that was then asked (docs/explanation/search-quality.md); the figures change little between half
and twice of each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from herma.recall.rank import Candidate

NEAREST = 60
"""So many messages are near; all others are equally far."""
MEANING = 0.8
"""Weight of being the nearest, where having the best words is worth 1."""
BESIDE_NEAR = 0.15
"""Part of that for standing beside a near one; little, because what is embedded has the end of what came before."""
AMONG_NEAR = 0.15
"""Part of that for being in the same conversation."""
LEAST_SPREAD = 0.06
"""Cosines that lie closer together than this say nothing about which is nearer: few messages, or many alike."""
STANDS_OUT = 0.03
"""How far the nearest must be from the last of the near to be shown where no message has any of the words: half of the
random strings and greetings that were tried stay below, four in five real questions are above."""
LEAST_COMPARED = 8
"""Of fewer, how far apart they are says nothing: one is always nearest."""
FOREIGN = 0.5
"""How far meaning is trusted in Chinese, Japanese and Korean, or by an English model in another European language."""
KEYWORDS = 0.4
"""How far it is trusted where words are put side by side with nothing between: whoever does that means the words."""
ONE_THING = 0.5
"""How far it is trusted where one single thing is looked for."""
HEARD = {"assistant": 0.7}
"""An answer repeats what was asked, at length and in several parts, each of which may be near."""
FREE, CROWDED = 4, 0.03
"""Messages of a conversation that come as they are, and what each further one has to be better by."""


def shares(near: Sequence[tuple[int, float]]) -> dict[int, float]:
    """Cosines, best first → how near each message is: 1 for the nearest, 0 for the last of `NEAREST`."""
    kept = near[:NEAREST]
    if not kept:
        return {}
    best = kept[0][1]
    floor = min(kept[-1][1], best - LEAST_SPREAD)
    return {id_: (cosine - floor) / (best - floor) for id_, cosine in kept}


def stands_out(cosines: Collection[float], least: float = 0.0) -> bool:
    """Whether anything is nearer than everything is to everything. `least` is what is unrelated at most, where that is
    known of the model: then only what is nearer came here, and it is enough where it did not fill the list.
    """
    if not cosines or max(cosines) < least:
        return False
    if least and len(cosines) < NEAREST:
        return True
    return len(cosines) >= LEAST_COMPARED and max(cosines) - min(cosines) >= STANDS_OUT


def fuse(ranked: Sequence[Candidate], near: Mapping[int, float], trust: float = 1.0) -> list[Candidate]:
    """Add what meaning is worth to candidates that are scored by words; best first again."""
    if not near:
        return list(ranked)
    around: dict[str, float] = defaultdict(float)
    for one in ranked:
        around[one.group] = max(around[one.group], near.get(one.id, 0.0))
    for one in ranked:
        beside = max(near.get(one.before or 0, 0.0), near.get(one.after or 0, 0.0))
        own = near.get(one.id, 0.0)
        one.meaning = trust * MEANING * (own + BESIDE_NEAR * beside + AMONG_NEAR * around[one.group])
        one.score += one.meaning
    return sorted(ranked, key=lambda one: (-one.score, -one.timestamp, -one.id))


def by_cosine(candidates: Sequence[Candidate], cosines: Mapping[int, float]) -> list[Candidate]:
    """Those that are near, nearest first, words or not."""
    near = [one for one in candidates if one.id in cosines and one.shown]
    for one in near:
        one.score = one.meaning = cosines[one.id]
    return sorted(near, key=lambda one: (-one.score, -one.timestamp, -one.id))


def spread_out(ranked: Sequence[Candidate], limit: int) -> list[Candidate]:
    """The best `limit`, where every further message of one conversation counts a little less. Then the rest."""
    left, chosen = list(ranked), []
    taken: dict[str, int] = defaultdict(int)
    for _ in range(min(limit, len(left))):
        best = max(range(min(len(left), 3 * limit)), key=lambda at: (_worth(left[at], taken), -at))
        one = left.pop(best)
        taken[one.group] += 1
        chosen.append(one)
    return chosen + left


def _worth(one: Candidate, taken: Mapping[str, int]) -> float:
    return one.score - CROWDED * max(0, taken[one.group] - FREE + 1)
