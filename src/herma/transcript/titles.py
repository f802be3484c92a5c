"""Names for sessions: clean, short, unique; "Name", then "Name #2" where a conversation goes on."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

from herma.errors import UsageError

LONGEST = 100
_NUMBER = re.compile(r"^(?P<base>.*\S) #(?P<number>[0-9]{1,9})$")


def sanitized(title: str | None) -> str | None:
    """A title as it is kept (see `cleaned`). None when nothing is left of it."""
    if title is None:
        return None
    if not isinstance(title, str):
        raise UsageError(f"A title is text, not {type(title).__name__}.", hint="Give it as a string.")
    clean = cleaned(title)
    if len(clean) > LONGEST:
        raise UsageError(
            f"A title has at most {LONGEST} characters; this one has {len(clean)}.", hint="Give a shorter one."
        )
    return clean or None


def cleaned(title: str) -> str:
    """Without control, zero-width and direction characters, white space collapsed; letters with their accents in one
    way only, so that what looks the same is the same.
    """
    visible = "".join(" " if char.isspace() else char for char in title if char.isspace() or not _is_hidden(char))
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def base_of(title: str) -> str:
    """The title without its number."""
    match = _NUMBER.match(title)
    return match["base"] if match else title


def next_title(title: str, taken: Iterable[str]) -> str:
    """The title itself if nobody has it, else its base with the next number; an unnumbered one counts as the first."""
    base = base_of(title)
    numbers = [number for other in taken if (number := _number(other, base)) is not None]
    if not numbers:
        return base
    ending = f" #{max(numbers) + 1}"
    return base[: LONGEST - len(ending)].rstrip() + ending


def _number(title: str, base: str) -> int | None:
    if title == base:
        return 1
    match = _NUMBER.match(title)
    return int(match["number"]) if match and match["base"] == base else None


def _is_hidden(char: str) -> bool:
    """Control, format (zero-width, bidirectional) and lone surrogate characters."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs")
