"""Control characters, the one kind of strange character that plain ASCII has too."""

from __future__ import annotations

import re
from collections.abc import Iterator

from herma.types import Finding

_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")


def find_controls(text: str) -> Iterator[Finding]:
    """Control characters other than tab and line breaks: they can rewrite what a terminal shows."""
    for match in _CONTROL.finditer(text):
        yield Finding("control_character", match.span(), "medium", f"control character {code_point(match.group())}")


def code_point(char: str) -> str:
    """The usual way of naming a character that cannot be shown."""
    return f"U+{ord(char):04X}"
