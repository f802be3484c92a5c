"""Two entries that say the same, said once: the one, and whatever only the other says. Pure.

Nothing is lost: a clause goes only where a single clause of the other entry has all its telling words in the same
order, every number, path and name of it, and denies what it denies.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from herma.curated.entries import unfit
from herma.reflect.compress.landmarks import landmarks
from herma.reflect.likeness import Gist, coverage, gist
from herma.safety.scan import scan
from herma.types import DELIMITER

LEAST = 12
"""Characters that a merge must save to be worth a change."""
_CLAUSES = re.compile(r"(?<=[.;!?])[ \t]+(?=\S)|(?<=[。；！？])[ \t]*(?=\S)|\n+")
_ENDS = (".", ";", "!", "?", ":", "。", "；", "！", "？")
_KEPT = 0.6
"""Part of the telling words of the originals that a model's wording must have."""


def clauses(text: str) -> list[str]:
    """The sentences and lines of an entry."""
    return [clause for part in _CLAUSES.split(text) if (clause := part.strip())]


def merged(one: str, other: str) -> str | None:
    """Both in one entry, if that is shorter and loses nothing; None if they do not say the same."""
    found = [text for pair in ((one, other), (other, one)) if (text := _absorbed(*pair)) is not None]
    best = min(found, key=len, default=None)
    if best is None or saved((one, other), best) < LEAST:
        return None
    marks = (*landmarks(one), *landmarks(other))  # one that goes over the end of a sentence is in none of its clauses
    return best if all(mark.text in best for mark in marks) else None


def saved(entries: Sequence[str], result: str) -> int:
    """Characters that one entry takes less than these, delimiters included."""
    return sum(map(len, entries)) + len(DELIMITER) * (len(entries) - 1) - len(result)


def _absorbed(kept: str, other: str) -> str | None:
    """`kept` with what only `other` says behind it; None where nothing of `other` is said by `kept`."""
    said = [(clause, gist(clause)) for clause in clauses(kept)]
    parts = clauses(other)
    rest = [part for part in parts if not any(_says(clause, known, part) for clause, known in said)]
    if len(rest) == len(parts):
        return None
    text = kept
    for part in rest:
        joint = "\n" if "\n" in kept else " " if text.endswith(_ENDS) else "; "
        text = f"{text}{joint}{part}"
    return text


def _says(clause: str, known: Gist, part: str) -> bool:
    """Whether a clause says everything that a part says."""
    wanted = gist(part)
    if not wanted.words or wanted.negated != known.negated or not wanted.values <= known.values:
        return False
    if not all(mark.text in clause for mark in landmarks(part)):
        return False
    return _in_order(wanted.words, known.words)


def _in_order(words: Sequence[str], among: Sequence[str]) -> bool:
    rest = iter(among)
    return all(word in rest for word in words)


# ── wordings of a model ──


def unfaithful(text: str, originals: Sequence[str]) -> str:
    """Why a model's wording cannot stand for these entries; nothing where it can."""
    problem = unfit(text)
    if problem:
        return problem
    if saved(originals, text) < LEAST:
        return "it saves nothing"
    whole = "\n".join(originals)
    marks, values = landmarks(whole), gist(whole).values
    if lost := next((mark.text for mark in marks if mark.text not in text), ""):
        return f"it leaves out {lost}"
    new = gist(text)
    if values - new.values:
        return f"it leaves out {min(values - new.values)}"
    if added := new.values - values:
        return f"it adds {min(added)}"
    if added_mark := next((mark.text for mark in landmarks(text) if mark.text not in whole), ""):
        return f"it adds {added_mark}"
    if new.negated != any(gist(original).negated for original in originals):
        return "it denies what they say, or says what they deny"
    if min(coverage(set(gist(original).words), new.words) for original in originals) < _KEPT:
        return "it leaves out too much"
    return "the scanner objects to it" if scan(text) else ""
