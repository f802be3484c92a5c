"""The user asked that something be remembered: then it is kept, if need be in their own words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from herma.curated import MemoryStore
from herma.errors import UsageError
from herma.reflect.book import LONGEST, Book
from herma.reflect.cadence import MEMORY_TOOL
from herma.reflect.gate import Propose, action_of
from herma.reflect.hearing import standing
from herma.reflect.likeness import nearest, restates
from herma.reflect.requests import remember_request, sentences
from herma.safety.scan import scan
from herma.transcript.wire import text_of
from herma.types import (
    Add,
    Author,
    MemoryOp,
    Message,
    Origin,
    OverBudget,
    Replace,
    ReviewAction,
    Scope,
    Staged,
    Target,
    Who,
)

_ABOUT_ME = re.compile(
    r"\b(?:i|i'm|i'd|i've|i'll|me|my|mine|myself|we|our|call me)\b|我|我们|私|僕|俺|저|나는|제|내 ", re.IGNORECASE
)
_ASKED = "The user asked to remember — "
"""What stands before their words. The dash lets what they state plainly become a fact."""
_LONG, _SHORT = 600, 6


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is to be kept, in the user's own words, and the message in which they asked."""

    words: str
    message: int


def wanted_in(messages: Sequence[Message]) -> Wanted | None:
    """What the user asked for in the last turn, unless a memory was saved in it."""
    begins = [at for at, one in enumerate(messages) if one.role == "user"]
    if not begins:
        return None
    turn = messages[begins[-1] :]
    text = text_of(turn[0].content)
    asked = remember_request(text)
    if asked is None or saved_in(turn):
        return None
    if asked.what:
        return Wanted(asked.what, turn[0].id)
    pointed = _pointed_at(text, [text_of(messages[at].content) for at in begins[:-1]])
    return Wanted(pointed, turn[0].id)


def saved_in(turn: Sequence[Message]) -> bool:
    """Whether the model saved a memory in a turn: one that is on disk, waits for a person, or was there already."""
    asked = {
        str(call.get("id"))
        for message in turn
        for call in message.tool_calls
        if (call.get("function") or {}).get("name") == MEMORY_TOOL
    }
    return any(one.role == "tool" and one.tool_call_id in asked and _succeeded(text_of(one.content)) for one in turn)


def keep(
    wanted: Wanted,
    scope: Scope,
    session: str,
    memory: MemoryStore,
    propose: Propose,
    known: Sequence[str],
    book: Book,
) -> None:
    """Write the user's own words, or say why not. What there is no room for waits for a person."""
    if not wanted.words:
        book.refuse("memory add", "unclear", "The user asked to remember something, and it is not clear what.")
        book.notice = "You asked to remember something, but it is not clear what: say it in one sentence."
        return
    target, text = entry_for(wanted.words)
    like, entry = nearest(wanted.words, known)
    if like == "same":
        book.note(ReviewAction("memory add", "known", entry[:LONGEST], target))
        return
    findings = scan(text)
    if findings:
        why = f"The scanner objects ({findings[0].rule}: {findings[0].why})."
        book.refuse("memory add", "scanned", why, target=target)
        book.notice = f"What you asked to remember was not saved. {why}"
        return
    author = Author(Who.REVIEW, Origin.USER_SAID, session, wanted.message)
    op: MemoryOp = Add(text)
    if like == "changed" and restates(text, entry):  # their newest word holds, and the history keeps the older one
        for there, where in _places(scope):
            if entry in standing(memory, there, where):
                op, target, scope = Replace(entry, text), there, where
    try:
        outcome = memory.apply(target, op, scope=scope, author=author, reason="the user asked to remember it")
    except UsageError as exc:  # switched off
        book.refuse("memory add", "off", str(exc), target=target)
        book.notice = f"What you asked to remember was not saved. {exc} {exc.hint}".strip()
        return
    if isinstance(outcome, OverBudget):
        outcome = propose(target, [op], scope, author, "the user asked to remember it", although_full=True)
    book.note(action_of(op, target, outcome))
    if isinstance(outcome, Staged):
        book.notice = (
            f"What you asked to remember waits for you. {outcome.message} "
            f"Decide with: herma memory approve {outcome.pending}"
        )
    elif not outcome.ok:
        book.notice = f"What you asked to remember was not saved. {outcome.message}"


def _places(scope: Scope) -> list[tuple[Target, Scope]]:
    """Every document that a session of this scope is shown."""
    return [("user", scope), ("memory", replace(scope, project="")), ("memory", scope)]


def entry_for(words: str) -> tuple[Target, str]:
    """The entry for somebody's own words, and where it belongs: about themselves, or about the world."""
    line = " ".join(words.split())
    short = line if len(line) <= _LONG else line[: _LONG - 1] + "…"
    return ("user" if _ABOUT_ME.search(words) else "memory"), f"{_ASKED}{short}"


def _pointed_at(text: str, before: Sequence[str]) -> str:
    """What "remember this" points at: the rest of the message, else what the user said last."""
    rest = " ".join(one for one in sentences(text) if remember_request(one) is None).strip()
    if len(rest) >= _SHORT:
        return rest
    return before[-1].strip() if before and len(before[-1].strip()) >= _SHORT else ""


def _succeeded(answer: str) -> bool:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("success") is True
