"""What parts recall for a turn, made fit for the user's message: scanned, cut to size, and nothing said twice. Pure.

It comes from elsewhere, so a paragraph that the scanner takes for an attack is withheld and named. What the
conversation was already sent is left out: it is still there, and would only cost again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from herma.prompt.context import ContextFile, show
from herma.prompt.tags import TAG
from herma.turn.account import recalled_in
from herma.turn.watchers import Recalled
from herma.types import Message

LARGEST = 12_000
"""Characters that one part may add to a message."""
_READ = 200_000
"""Characters that are looked at; more would not be shown anyway."""
_ITEM = re.compile(r"[-*•] |\d{1,3}[.)] ")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def fit(recalled: Iterable[Recalled], said: set[str]) -> tuple[list[Recalled], list[str]]:
    """What is left to be put into the message, and what people should know. `said` is what has been sent; it grows."""
    kept: list[Recalled] = []
    warnings: list[str] = []
    for one in recalled:
        shown = show(ContextFile(one.by, one.text[:_READ]), LARGEST)
        warnings += shown.warnings
        text = unsaid(shown.text, said)
        if text:
            kept.append(Recalled(one.by, text, one.outside))
    return kept, warnings


def unsaid(text: str, said: set[str]) -> str:
    """`text` without the paragraphs and list items that were said before. What is left counts as said."""
    left: list[str] = []
    fresh: set[str] = set()
    for paragraph in _PARAGRAPH.split(text):
        kept, keys = _unsaid_lines(paragraph.split("\n"), said)
        fresh |= keys
        if kept:
            left.append("\n".join(kept))
    said |= fresh
    return "\n\n".join(left).strip() if fresh else ""


def said_in(messages: Sequence[Message]) -> set[str]:
    """What a conversation was sent of earlier recall."""
    said: set[str] = set()
    for message in messages:
        if message.sent is not None:
            unsaid(recalled_in(message.sent).removesuffix(f"\n</{TAG}>"), said)
    return said


def _unsaid_lines(lines: Sequence[str], said: set[str]) -> tuple[list[str], set[str]]:
    """The lines of a paragraph that are new, and what they say. A list is looked at item by item, headings go along."""
    if not any(map(_is_item, lines)):
        key = _key("\n".join(lines))
        if not key or (len(lines) == 1 and key.startswith("#")):
            return list(lines) if key else [], set()
        return ([], set()) if key in said else (list(lines), {key})
    kept: list[str] = []
    keys: set[str] = set()
    dropped = False
    for line in lines:
        if _is_item(line):
            dropped = _key(line) in said
            keys |= set() if dropped else {_key(line)}
        elif not line[:1].isspace():
            dropped = False
        if not dropped:
            kept.append(line)
    return (kept, keys) if keys else ([], set())


def _is_item(line: str) -> bool:
    return _ITEM.match(line.lstrip()) is not None


def _key(text: str) -> str:
    return " ".join(text.split())
