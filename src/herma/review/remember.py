""" "remember that …", in the user’s own words."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from herma.errors import UsageError
from herma.memory.store import MemoryStore
from herma.review.gate import Propose, action_of, nearest, restates, standing
from herma.review.rows import LONGEST, MEMORY_TOOL, Book, ReviewAction
from herma.safety.scan import scan
from herma.text import Late
from herma.transcript.messages import text_of
from herma.types import Add, Author, MemoryOp, Message, Origin, OverBudget, Replace, Scope, Staged, Target, Who

# ---------- reflect.requests
#
# Did the user ask for something to be remembered? Then it has to be saved, whatever the model made of it.
#
# Only plain requests count: a question about remembering, a quotation or a negation is none. Pure and linear.

_ASKS = Late(
    r"^(?:(?:ok(?:ay)?|hey|hi|also|and|please|pls|so|yes|no|by the way|btw|for (?:the )?(?:future|next time)"
    r"|from now on)[,:;!.\s]+){0,3}"
    r"(?:(?:can|could|will|would) you (?:please )?|(?:i want|i need|i'd like|i would like) you to "
    r"|you (?:should|must) )?"
    r"(?:please |just )?"
    r"(?:(?:always )?remember|for (?:future|later) reference|note to self|store (?:this|that)(?=:)"
    r"|keep in mind|don'?t (?:ever )?forget|do not forget|make a note|take note"
    r"|note(?= that\b| down\b|:)"
    r"|memori[sz]e|save (?:this|that|it)?(?: to| in)? ?(?:your )?memory|add (?:this |that |it )?to (?:your )?memory)"
    r"(?: (?:this|that|the following|for (?:the future|next time|later)))?"
    r"\b[\s:,–—-]*(?P<what>.*)$",
    re.IGNORECASE,
)
_ASIAN = Late(
    r"^(?:请|麻烦|帮我|另外|还有|以后)?[，,\s]{0,3}(?:你要|你|要)?(?:记住|记一下|记下来?|记得|别忘了|不要忘记)[：:，,\s]{0,3}(?P<what>.*)$"
    r"|^(?P<ja>.{2,300}?)(?:を|って|と)?(?:覚えておいて|覚えて|記憶して|忘れないで)(?:ください|ね|下さい)?[。.!！]?$"
    r"|^(?P<ko>.{2,300}?)(?:을|를|라고)? ?(?:기억해|잊지 마)[^\s]{0,4}[.!]?$"
)
_OTHERS = Late(
    r"^(?:(?:bitte|und|also|ok(?:ay)?|s'il te pla[iî]t|por favor|per favore|пожалуйста|prosz[ęe])[,:;!.\s]+){0,2}"
    r"(?:merke? dir|vergiss (?:bitte )?nicht|nicht vergessen|denke? (?:bitte )?daran|notiere? dir"
    r"|retiens|souviens-toi|rappelle-toi|n'oublie pas|m[ée]morise|recuerda|acu[ée]rdate|no (?:te )?olvides"
    r"|ten en cuenta|ricorda(?:ti)?|non dimenticare|lembra-te|lembre-se|n[ãa]o (?:te )?esque[çc]as?"
    r"|onthoud|vergeet niet|запомни(?:те)?|не забудь(?:те)?|имей(?:те)? в виду|zapami[ęe]taj|pami[ęe]taj)\b"
    r"(?: bitte| bien)?[\s:,–—-]+(?:(?:dass|que|de que|che|dat|что|[żz]e)\b[\s:,]*)?(?P<what>.*)$"
    r"|^(?:覚えておいて|覚えて|忘れないで)(?:ください|下さい|ね)?[、,：:\s]+(?P<ja>.*)$"
    r"|^(?:기억해|잊지 마)(?: ?(?:줘|주세요|둬|세요))?[,：:\s]+(?P<ko>.*)$",
    re.IGNORECASE,
)
_AFTERWARDS = Late(
    r"^(?P<what>.{6,400}?)[,;–—-]{1,2} ?(?:(?:and|so|but) )?(?:please )?"
    r"(?:remember (?:that|this|it)|don'?t forget (?:that|this|it)|keep (?:that|this|it) in mind)(?:,? please)?[.!]*$",
    re.IGNORECASE,
)
"""What is to be kept comes first: "We deploy on Tuesdays, remember that."."""
_PATTERNS = (_ASKS, _ASIAN, _OTHERS, _AFTERWARDS)
_NOT_ASKING = Late(
    r"^(?:do|did|don't|didn't|what|when|who|where|why|how|if|whether)\b[^?]{0,80}\bremember(?:ed)?\b"
    r"|\bremember(?:s|ed|ing)? (?:when|how|why|the (?:time|day)|if|whether|me)\b"
    r"|\bi (?:can'?t |don'?t |do )?remember\b",
    re.IGNORECASE,
)
_ABBREVIATED = Late(
    r"(?:^|[\s(])(?:\w|\w\.\w|dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|approx|no|nr|tel|inc|ltd|bzw|ca)\.$", re.IGNORECASE
)
_SHORTEST, _LONGEST = 6, 600
_POINTING = frozenset(
    {"", "this", "that", "it", "these", "the above", "all this", "all of this", "这个", "这些", "これ"}
)


@dataclass(frozen=True, slots=True)
class RememberThis:
    """What the user wants to be kept; nothing where they only point at what was said before."""

    what: str


def remember_request(text: str) -> RememberThis | None:
    """The request in a message of the user, if there is one: a line or a sentence that asks for it."""
    for sentence in sentences(text):
        if sentence.endswith(("?", "？")) and not sentence.lower().startswith(
            ("can you", "could you", "will", "would")
        ):
            continue
        found = (pattern.match(sentence) for pattern in _PATTERNS)
        match = None if _NOT_ASKING.search(sentence) else next(filter(None, found), None)
        if match is None:
            continue
        what = " ".join(next((part for part in match.groups() if part), "").split()).strip(" ?？")
        if what.casefold().strip(".!。！") in _POINTING:
            return RememberThis("")
        if len(what) >= _SHORTEST or not what.isascii():
            return RememberThis(what[:_LONGEST])
    return None


def sentences(text: str) -> list[str]:
    """Lines, and the sentences in them; quoted lines and code are not the user's own words."""
    found: list[str] = []
    fenced = False
    for row in text[:20_000].split("\n"):
        line = row.strip()
        if line.startswith("```"):
            fenced = not fenced
        elif line and not fenced and not line.startswith((">", '"', "“")):
            found += _split(line)
    return found


def _split(line: str) -> list[str]:
    """The sentences of a line: the point of an abbreviation or of an initial ends none."""
    found: list[str] = []
    open_ = False
    for part in re.split(r"(?<=[.!?。！？])\s+", line):
        if not part:
            continue
        if open_:
            found[-1] += f" {part}"
        else:
            found.append(part)
        open_ = _ABBREVIATED.search(part[-12:]) is not None
    return found


# ---------- reflect.remember
#
# The user asked that something be remembered: then it is kept, if need be in their own words.

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
