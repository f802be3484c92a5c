"""Whether a text repeats what came from outside. Linear."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable

from herma.types import Origin

_RUN = 24
_STEP = 12
_NO_LETTERS = re.compile(r"[\W_]+")


_MOST = 400_000
"""Letters of a conversation that are remembered; the oldest go first."""


class Heard:
    """What one conversation was told, and by whom: the user, or somebody outside."""

    def __init__(self) -> None:
        self._sources: deque[tuple[str, Origin]] = deque()
        self._size = 0

    def add(self, text: str, origin: Origin) -> None:
        letters = _letters(text)[-_MOST:]
        self._sources.append((letters, origin))
        self._size += len(letters)
        while self._size > _MOST:
            self._size -= len(self._sources.popleft()[0])

    def outsider(self, contents: Iterable[str]) -> Origin | None:
        """Whose words these texts say again, if that is somebody outside; what the user said too counts as theirs."""
        for said in map(_letters, contents):
            if any(origin.trusted and _repeats(said, heard) for heard, origin in self._sources):
                continue
            for heard, origin in self._sources:
                if not origin.trusted and _repeats(said, heard):
                    return origin
        return None


def _repeats(said: str, heard: str) -> bool:
    """Whether letters say again a run of some seven words that were heard: spacing, case and punctuation are gone.

    Every 12th window of 24 letters of what was heard is looked for: a repeated run of 36 letters cannot slip between
    them. What is shorter than that must be in there whole.
    """
    if not said:
        return False
    windows = {said[start : start + _RUN] for start in range(max(1, len(said) - _RUN + 1))}
    starts = [*range(0, len(heard) - _RUN, _STEP), max(0, len(heard) - _RUN)]
    if any(heard[start : start + _RUN] in windows for start in starts):
        return True
    return len(said) < _RUN + _STEP and said in heard


def _letters(text: str) -> str:
    return _NO_LETTERS.sub("", text.casefold())
