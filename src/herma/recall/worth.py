"""Whether something that was found is worth telling the model unasked. Pure.

What speaks for a message is measured so that it means the same in a small and in a large home: shares of what was
asked, weighed by how rare each word is there, and how far its cosine stands out of what any message has. How these
count was learnt from questions with known answers, small talk, and questions to the wrong history
(benchmarks/prefetch.py, docs/explanation/prefetch.md).
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from herma.recall.plainly import Asked

LONGEST, ENDING = 1_500, 1_000
"""Characters of a message that are looked at, and how many of them from its end: what is wanted stands there."""
_BLOCK = re.compile(r"```.{0,20000}?(?:```|\Z)", re.DOTALL)
_LINK = re.compile(r"https?://\S{1,2000}")
_SIGNS = str.maketrans(dict.fromkeys('"“”„‟«»＂:*()[]{}<>|', " "))
_CHATTER = """
absolut agre alright amaz anyth anywai apolog appreci awesom bore btw bye care cheer congrat congratul cool cours danke
definit enjoi even everyth exactli excel fantast fine fun funni glad gladli good great guess haha happi hello hmm hope
idea interest kind lol love luck mate merci mind moment morn nice night noth oop perfect pleas pleasur problem question
quick realli right sens soon sorri sound sweet talk thank thing think true understand weekend welcom wish wonder wonder
wow yai yeah yep yup gracias bitte
"""
CHATTER = frozenset((*_CHATTER.split(), "谢谢", "謝謝", "感谢", "感謝", "非常", "帮助", "再见", "晚安", "早安", "辛苦"))
"""What people say whatever they are about, as stems: it is searched for, and speaks for nothing."""
_OPERATORS = frozenset(("AND", "OR", "NOT"))


@dataclass(frozen=True, slots=True)
class Evidence:
    """What speaks for one message: `covered` and `beside`, the share of what was asked that it has, alone and with the
    turns next to it; `rare`, how much that is, where a word that nobody else said is 1; `unknown`, the share of what
    was asked that was never said at all; `words`, how many things were asked for; `near`, by how many deviations its
    cosine is above that of any message, None where nothing was compared by meaning. `asked`: how plainly; `few`: how
    small the home is yet, from 0 to 1.
    """

    covered: float = 0.0
    beside: float = 0.0
    rare: float = 0.0
    unknown: float = 0.0
    words: int = 0
    near: float | None = None
    asked: Asked = ""
    few: float = 0.0


@dataclass(frozen=True, slots=True)
class Model:
    """A logistic model: the weight of each kind of evidence, and the chance from which on it is told."""

    constant: float
    beside: float
    rare: float
    unknown: float
    words: float
    near: float
    least: float


BY_WORDS = Model(constant=-6.32, beside=4.02, rare=0.66, unknown=-3.49, words=2.75, near=0.0, least=0.77)
BY_BOTH = Model(constant=-7.21, beside=3.5, rare=0.92, unknown=-4.09, words=2.89, near=0.57, least=0.8)


FEW, MANY = 40, 150
"""Up to so many messages a home is small, and from so many on it is not."""
_EASIER: Mapping[Asked, tuple[float, float]] = {"plain": (-1.5, 0.4), "own": (-0.5, 0.1), "run on": (-3.49, 0.4)}
"""The weight of what was never said, and the limit, for plain questions to a small home. There little is like anything
else by chance, and that a word was never said tells little: hardly any was.
"""


def chance(evidence: Evidence) -> float:
    """How likely it is that this helps, from 0 to 1. Nothing that has none of the words, and no meaning, does."""
    if not evidence.words or (not evidence.rare and evidence.near is None):
        return 0.0
    model = model_for(evidence)
    weights = (model.beside, model.rare, model.unknown, model.words, model.near)
    total = model.constant + sum(weight * value for weight, value in zip(weights, features(evidence), strict=True))
    return 1.0 / (1.0 + math.exp(-max(-30.0, min(30.0, total))))


def model_for(evidence: Evidence) -> Model:
    return eased(BY_WORDS if evidence.near is None else BY_BOTH, evidence)


def eased(model: Model, evidence: Evidence) -> Model:
    """The model for a question that is plainly put, the more so the fewer messages there are."""
    if not evidence.few or not evidence.asked:
        return model
    unknown, least = _EASIER[evidence.asked]
    return replace(
        model,
        unknown=model.unknown + (unknown - model.unknown) * evidence.few,
        least=model.least + (least - model.least) * evidence.few,
    )


def few(messages: int) -> float:
    """How much a home of so many messages is a small one, from 0 to 1."""
    return max(0.0, min(1.0, math.log(MANY / max(1, messages)) / math.log(MANY / FEW)))


def features(evidence: Evidence) -> tuple[float, ...]:
    """The evidence as numbers that a linear model can weigh: none can outweigh all others."""
    return (
        evidence.beside,
        min(evidence.rare, 4.0),
        evidence.unknown,
        min(math.log1p(evidence.words), 3.0),
        max(-2.0, min(evidence.near or 0.0, 6.0)),
    )


def rarity(said: int, messages: int) -> float:
    """How much a word tells that so many of all messages have: 1 for one that none has, 0 for one that all have."""
    most = math.log1p(2.0 * messages + 1.0)
    return math.log1p(max(0.0, messages - said + 0.5) / (said + 0.5)) / most if messages > 0 else 0.0


def weigh(
    own: AbstractSet[str],
    with_next: AbstractSet[str],
    said: Mapping[str, int],
    messages: int,
    near: float | None = None,
    asked: Asked = "",
) -> Evidence:
    """The evidence for a message that has `own` of the words asked for, and `with_next` together with the turns beside
    it. `said`: in how many messages each word occurs.
    """
    worth = {word: rarity(count, messages) for word, count in said.items()}
    whole = sum(worth.values())
    if not whole:
        return Evidence(words=len(said), near=near, asked=asked)
    got = sum(value for word, value in worth.items() if word in own)
    around = sum(value for word, value in worth.items() if word in own or word in with_next)
    never = sum(value for word, value in worth.items() if not said[word])
    return Evidence(got / whole, around / whole, got, never / whole, len(said), near, asked, few(messages))


def stands_out(cosine: float, others: Sequence[float]) -> float | None:
    """By how many deviations a cosine is above those of messages taken at random; None where these are too few."""
    if len(others) < FEWEST:
        return None
    middle = sum(others) / len(others)
    spread = math.sqrt(sum((other - middle) ** 2 for other in others) / len(others))
    return (cosine - middle) / spread if spread > 1e-6 else None


FEWEST = 16
"""Cosines that it takes to know what is usual."""


def question_of(text: str) -> str:
    """What a user says, as a question to search: no code blocks and links, nothing of it read as an operator."""
    said = _LINK.sub(" ", _BLOCK.sub(" ", text[: 10 * LONGEST] if len(text) <= 10 * LONGEST else text[-10 * LONGEST :]))
    if len(said) > LONGEST:
        said = f"{said[: LONGEST - ENDING]} {said[-ENDING:]}"
    words = said.translate(_SIGNS).split()
    return " ".join(word.lower() if word in _OPERATORS else word.lstrip("-") for word in words)
