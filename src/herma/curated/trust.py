"""Whether a text repeats what came from outside. Pure, linear."""

from __future__ import annotations

import re
from collections.abc import Iterable

_RUN = 24
_STEP = 12
_NO_LETTERS = re.compile(r"[\W_]+")


def repeats(content: str, sources: Iterable[str]) -> bool:
    """Whether `content` says again a run of some seven words of a source, whatever the spacing, case and punctuation.

    Every 12th window of 24 letters of a source is looked for: a repeated run of 36 letters cannot slip between them.
    A content shorter than that must be in the source whole.
    """
    said = _letters(content)
    if not said:
        return False
    windows = {said[start : start + _RUN] for start in range(max(1, len(said) - _RUN + 1))}
    for heard in map(_letters, sources):
        starts = [*range(0, len(heard) - _RUN, _STEP), max(0, len(heard) - _RUN)]
        if any(heard[start : start + _RUN] in windows for start in starts):
            return True
        if len(said) < _RUN + _STEP and said in heard:
            return True
    return False


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold())
