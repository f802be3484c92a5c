"""Which of several messages says what another, later one says otherwise. Pure, and rather silent than wrong.

What each message claims, and when two claims disagree, is the business of `claims`. An earlier claim about the same
thing with another value is possibly outdated: by a claim that says so ("now", "changed to", "no longer"), or where the
thing can have one value only ("my time zone"). Nothing is hidden: the later one comes first, the earlier is marked.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace

from herma.recall.claims import (
    LABELS,
    NONE,
    Claim,
    Words,
    claims,
    says_otherwise,
    says_the_same,
    signs_of,
    tells,
    tells_of_a_change,
)

_PAST = re.compile(
    r"\b(?:originally|original|at first|initial(?:ly)?|first|used to|before|previous(?:ly)?|earlier|former(?:ly)?|old"
    r"|chang(?:e|ed|es)|histor(?:y|ical)|over time|evolv\w*|was|were)\b"
    r"|一开始|一開始|原本|原来|原來|最初|以前|之前|当初|當初|曾经|曾經|过去|過去|先後|先后|变化|變化|元々|もともと|当時|원래|예전|처음",
)
_CHANGES = 24
"""Changes whose earlier claims are looked for."""
_NAMED = re.compile(r"(\w[\w .'-]{1,24}): ")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message: folded text, when it was said, whose it is as far as that is known, and who of the two spoke."""

    id: int
    text: str
    at: float
    who: str = ""
    role: str = "user"


@dataclass(frozen=True, slots=True)
class _Made:
    """A claim, and the message that made it."""

    at: float
    id: int
    claim: Claim


def outdated(spoken: Sequence[Spoken]) -> dict[int, int]:
    """Message → the latest one that says otherwise."""
    found: dict[int, int] = {}
    for made in _by_speaker(spoken).values():
        made.sort(key=lambda one: (one.at, one.id))
        same: dict[Words, list[_Made]] = defaultdict(list)
        for one in made:
            same[one.claim.thing].append(one)
        nameless = same.pop(NONE, [])
        for thing in same.values():
            for one in thing:
                later = _latest_word(one, [*thing, *nameless] if nameless else thing)
                if later is not None:
                    found[one.id] = max(found.get(one.id, later), later)
    return found


def asks_for_the_past(question: str) -> bool:
    """Whether a question is about how something was, so that the earlier message may be the right one."""
    return _PAST.search(question.casefold()) is not None


def latest_first(order: Sequence[int], by: dict[int, int]) -> list[int]:
    """The same order, with each message that makes another outdated before that one."""
    arranged = list(order)
    for older, newer in by.items():
        if older in arranged and newer in arranged:
            at, later = arranged.index(older), arranged.index(newer)
            if at < later:
                arranged.insert(at, arranged.pop(later))
    return arranged


def _by_speaker(spoken: Sequence[Spoken]) -> dict[str, list[_Made]]:
    """What is claimed, by whom. Only sentences that may tell of a change are read at first, and then those about what
    changed: most of what is said is neither.
    """
    telling = {
        one.id: claims(one.text, one.role, tells_of_a_change if one.role == "assistant" else tells) for one in spoken
    }
    later = [claim for made in telling.values() for claim in made if claim.new and not claim.weak][:_CHANGES]
    if not later and sum(any(claim.single for claim in made) for made in telling.values()) < 2:
        return {}
    about = tuple(
        {signs_of(claim.thing) for claim in later if claim.thing}
        | {_signs(claim.former) for claim in later if claim.former}
    )
    found: dict[str, list[_Made]] = defaultdict(list)
    for one in spoken:
        more = claims(one.text, one.role, lambda text: _is_about(text, about)) if about else []
        named = _NAMED.match(one.text)
        speaker = named[1] if named and named[1].split()[-1] not in LABELS else ""
        for claim in dict.fromkeys((*telling[one.id], *more)):
            # an assistant repeats what it was told: only a change that it tells of makes anything outdated
            told = replace(claim, weak=True) if one.role == "assistant" and not claim.new else claim
            found[f"{one.who}/{speaker}"].append(_Made(one.at, one.id, told))
    return found


def _is_about(text: str, about: Sequence[tuple[tuple[str, ...], ...]]) -> bool:
    return any(all(any(map(text.__contains__, pieces)) for pieces in thing) for thing in about)


def _signs(value: Words) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) for word in value)


def _latest_word(one: _Made, others: Sequence[_Made]) -> int | None:
    """The message that has the last word on what `one` claims, where it says otherwise."""
    later = [other for other in others if (other.at, other.id) > (one.at, one.id) and other.id != one.id]
    for other in sorted(later, key=lambda other: (other.at, other.id), reverse=True):
        if says_otherwise(other.claim, one.claim):
            return other.id
        if says_the_same(other.claim, one.claim):
            return None
    return None
