"""Whether a text repeats what came from outside. Pure, linear."""

from __future__ import annotations

from collections.abc import Iterable

_RUN = 24
_STEP = 12


def repeats(content: str, sources: Iterable[str]) -> bool:
    """Whether `content` says again a run of some seven words of a source, whatever the spacing, case and punctuation.

    Windows of 24 letters at every 12th position: a repeated run of 36 letters cannot slip between them.
    """
    said = _letters(content)
    if not said:
        return False
    last = max(0, len(said) - _RUN)
    windows = {said[start : start + _RUN] for start in [*range(0, last, _STEP), last]}
    return any(window in heard for heard in map(_letters, sources) for window in windows)


def _letters(text: str) -> str:
    return "".join(character for character in text.casefold() if character.isalnum())
