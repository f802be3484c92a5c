"""A word without the punctuation around it. Pure, linear."""

from __future__ import annotations

import re

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\uff66-\uff9f\U00020000-\U0003ffff"
HAS_CJK = re.compile(f"[{_CJK}]")
_LEFT = "([{<)]}>'`,;:!?…¿¡*=|&~^。，、！？；：（）【】「」『』《》〈〉"
RIGHT = "([{<)]}>'`@%$,.;:!?…*=|&~^/\\-。，、！？；：（）【】「」『』《》〈〉"
_ELISION = re.compile(r"^(?:qu|[cdjlmnst])'(?=\w{3})", re.IGNORECASE)


def strip(word: str) -> str:
    """A word without the punctuation around it; what belongs to it (`C#`, `C++`, `.env`, `@me`) stays."""
    word = word.rstrip(RIGHT).lstrip(_LEFT)
    word = _ELISION.sub("", word.removesuffix("'s"))
    return word if any(letter.isalnum() or ord(letter) > 0x2000 for letter in word) else ""
