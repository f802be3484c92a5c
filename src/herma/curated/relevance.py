"""Whether an entry of the long tail helps with what the user says now. Pure.

Precision before recall: what does not help costs tokens in every later call, so small talk recalls nothing, and one
word in common is not enough.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_CHATTER = """
again alright amazing answer ask awesome bye chat cheer come cool day done everyth exactli fine glad go good great
happi hello help hey hi hmm idea just know let like look lot make mean mind morn much need nice night noth ok okai
pleas question realli right say see someth sorri sound start sure talk tell thank thing think thought todai try
understand use want wonder work wow ye yeah yep yes
"""
CHATTER = frozenset(_CHATTER.split())
"""Stems that people say whatever they are about."""
_SHARE = 0.3
"""Part of the question, or of the entry, that both must have in common."""
_FEW = 2
"""A question of so many words may be answered by an entry that has one of them."""
_SURE, _LIKELY, _CLEAR, _MARGIN = 0.84, 0.79, 0.77, 0.035
"""Cosines of e5: near enough by itself, with a word in common, and where it stands out by so much. A question and an
entry that have nothing to do with each other have some 0.72 to 0.77.
"""
KNOWN_MODEL = "e5-small"
"""Models differ in what a cosine means; of others it is not known, so that words decide and meaning only ranks."""
_NEARLY = 0.8
_UNRELATED, _SAME = 0.74, 0.86


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for an entry: the words it shares with the question, and how near it is in meaning."""

    shared: tuple[str, ...] = ()
    of_question: float = 0.0
    of_entry: float = 0.0
    cosine: float | None = None
    calibrated: bool = True
    """Whether it is known what the cosine means."""
    margin: float = 0.0
    """By how much it is nearer than most of the others."""

    @property
    def score(self) -> float:
        """Between 0 and 1."""
        words = (self.of_question + self.of_entry) / 2 * min(1.0, _weight(self.shared) / 2)
        if self.cosine is None:
            return words
        meaning = (self.cosine - _UNRELATED) / (_SAME - _UNRELATED) if self.calibrated else self.cosine / 2
        return max(words, min(1.0, max(0.0, meaning)))

    @property
    def why(self) -> tuple[str, ...]:
        said = [f"shares {', '.join(self.shared[:4])}"] if self.shared else []
        return (*said, *([f"near in meaning ({self.cosine:.2f})"] if self.cosine is not None else []))


def weigh(
    question: Sequence[str],
    entry: Sequence[str],
    cosine: float | None = None,
    *,
    calibrated: bool = True,
    margin: float = 0.0,
) -> Evidence:
    """What speaks for an entry with these terms, asked with those."""
    asked = _telling(question)
    said = set(entry)
    shared = tuple(term for term in asked if term in said)
    whole, own = _weight(asked), _weight(_telling(entry))
    got = _weight(shared)
    return Evidence(shared, got / whole if whole else 0.0, got / own if own else 0.0, cosine, calibrated, margin)


def helps(evidence: Evidence, question: Sequence[str], others: Mapping[str, int], total: int) -> bool:
    """Whether to recall it. `others`: how many entries have each term."""
    asked = _telling(question)
    if not asked:
        return False
    cosine = evidence.cosine or 0.0 if evidence.calibrated else 0.0
    if cosine >= _SURE or (cosine >= _LIKELY and evidence.shared):
        return True
    if cosine >= _CLEAR and evidence.margin >= _MARGIN:
        return True
    enough = _weight(evidence.shared)
    if enough >= 2:
        return max(evidence.of_question, evidence.of_entry) >= _SHARE
    rare = all(others.get(term, 0) <= max(2, total // 20) for term in evidence.shared)
    return enough >= 1 and _weight(asked) <= _FEW and rare


def best_of(scores: Sequence[float]) -> int:
    """How many of these, best first, are nearly as good as the best: the rest only shares its words."""
    return sum(score >= _NEARLY * scores[0] for score in scores)


def says_something(question: Sequence[str]) -> bool:
    """Whether there is anything in it that could be looked for."""
    return bool(_telling(question))


def _telling(terms: Sequence[str]) -> list[str]:
    return [term for term in terms if term not in CHATTER]


def _weight(terms: Sequence[str]) -> float:
    """How many words these are: two characters of a script without spaces are half a word."""
    return sum(1.0 if term.isascii() or len(term) > 2 else 0.5 for term in terms)
