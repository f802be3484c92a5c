"""Whether something is worth keeping for good: durable, new, not taken out before, and nobody else's words. Pure.

Precision before recall: what is in doubt is not kept. A fact that matters comes up again; one that should not have been
kept is shown in every session until somebody notices.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from herma.reflect.grounds import Grounds, is_echo
from herma.reflect.likeness import coverage, gist, nearest
from herma.reflect.tombstones import Tombstone, buried
from herma.types import Message

Reason: TypeAlias = Literal[
    "status",
    "one-off",
    "temporary",
    "transient",
    "too long",
    "too short",
    "known",
    "changed",
    "removed",
    "outside",
    "echo",
    "unfounded",
]
LONGEST, SHORTEST = 600, 12
SAYS = {
    "status": "it says how far some work is, which is over soon",
    "one-off": "it is about one day or one event",
    "temporary": "it holds for this conversation only",
    "transient": "it is a failure that passes, and says nothing about how to avoid it",
    "too long": f"it is longer than {LONGEST} characters; say it in a sentence or two",
    "too short": "it says too little to be understood later",
    "known": "it is there already, in these or other words",
    "changed": "an entry says something else about the same; correct that one with replace",
    "removed": "it was taken out of memory, and nobody has said it again since",
    "outside": "it repeats what a tool, a page or another memory said, not the user",
    "echo": "it repeats the question that was asked",
    "unfounded": "it names something that nobody has named in this conversation",
}
"""Each reason in words that fit after "Not saved: "."""


def _any(*words: str, also: str = "") -> re.Pattern[str]:
    """One of these words or phrases, or of the words of scripts without spaces."""
    return re.compile(rf"\b(?:{'|'.join(words)})\b" + (f"|{also}" if also else ""))


_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_ALWAYS = _any(
    *("every", "each", "always", "never", "usually", "generally", "by default", "birthday", "anniversary", "born"),
    *("daily", "nightly", "weekly", "immer", "jeden"),
    also="每|总是|生日|毎|誕生日|매일|생일",
)
_STATUS = _any(
    *(r"(?:pr|pull request|mr|issue|ticket|bug) ?#?\d{1,7}", "commit [0-9a-f]{7,40}", "todo", "wip", "in progress"),
    r"next steps?",
    r"(?:is|are|was|were|been|now|all|just) (?:now |just |all )?"
    r"(?:done|finished|completed?|merged|deployed|fixed|passing)",
    r"(?:tests?|build|ci) (?:now )?(?:pass(?:es|ed)?|fails?|failed|is green|are green)",
    r"(?:is|are|was|were) (?:currently |now |just |still )?"
    r"(?:working on|debugging|fixing|implementing|refactoring|migrating|waiting)",
    r"(?:has|have) (?:just |now |already )?(?:finished|completed|merged|deployed|pushed)",
    r"(?:we|i|the (?:user|agent|assistant)) (?:just |finally )?"
    r"(?:fixed|finished|completed|merged|deployed|pushed|ran)",
    *(r"current(?:ly)? (?:task|working|status|step)", "progress so far", "so far we"),
    also="正在|进行中|已完成|作業中|進行中|진행 중",
)
_ONE_OFF = _any(
    *("today", "tomorrow", "yesterday", "tonight", "this (?:morning|afternoon|evening|week|weekend|month|sprint)"),
    f"(?:next|last) (?:week|weekend|month|{_DAYS})",
    *("right now", "at the moment", "at present", "for now", "heute", "morgen früh", "gestern"),
    also="今天|明天|昨天|本周|下周|今日|明日|昨日|오늘|내일|어제",
)
_EVENT = _any(
    *("meeting", "appointment", "call", "flight", "interview", "deadline", "due", "demo", "reservation", "exam"),
    *("delivery", "visit"),
)
_MOMENT = _any(
    *(r"\d{4}-\d{2}-\d{2}", r"\d{1,2}[:.]\d{2} ?(?:am|pm|h|uhr)?", r"\d{1,2} ?(?:am|pm)"),
    *(f"(?:on|by|until) (?:{_DAYS})", r"(?:on|by) the \d{1,2}(?:st|nd|rd|th)"),
)
_TEMPORARY = _any(
    *("pretend", "role-?play", "roleplaying", "in character", "acting as", "act as", "speak(?:ing)? like"),
    *("talk like", "persona of", "only this once", "just this once", "just for now", "(?:only|just) this time"),
    r"(?:for|in|during) (?:this|the current|the present) "
    r"(?:session|conversation|chat|task|reply|answer|exercise|game|story)",
    *("temporar(?:y|ily)", "hypothetical(?:ly)?"),
    also="假装|扮演|暂时|本次对话|一時的|ふりを|임시",
)
_FAILURE = _any(
    *(
        "failed",
        "fails",
        "failing",
        "timed out",
        "(?:an?|any|with|hits?) time-?outs?",
        "is down",
        "was down",
        "crashed",
        "unreachable",
    ),
    *("could not", "couldn't", "cannot connect", "not (?:working|available|responding|found)", "broken"),
    *(r"returned (?:an? )?(?:error|[45]\d\d)", "rate.?limit(?:ed)?", "doesn't work", "does not work"),
)
_LESSON = _any(
    *("unless", "because", "when", "if", "instead", "requires?", "needs?", "must", "without", "use", "fix(?:ed)? by"),
    *("solved by", "remedy", "work ?around", "behind", "so that"),
)


_ADDRESS = re.compile(r"(?:https?|ftp|ssh|git)://[^\s\"'<>“”]{3,200}|[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,4}")


@dataclass(frozen=True, slots=True)
class Known:
    """What there is to compare with: entries that stand or wait, entries that are gone, and what the user said."""

    entries: Sequence[str] = ()
    gone: Sequence[Tombstone] = ()
    said: Sequence[Message] = ()
    outside: Sequence[str] = ()
    """What tools, pages and other memories said in this conversation."""
    grounds: Grounds | None = None
    """Everything that was said in it, by whomever; without it, nobody asks what a statement rests on."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a text is not kept; `entry` is the one that stands in its way."""

    reason: Reason
    entry: str = ""

    @property
    def sentence(self) -> str:
        about = f": “{self.entry[:120]}”" if self.entry else ""
        return f"Not saved: {SAYS[self.reason]}{about}."


def judge(text: str, known: Known, *, about_user: bool = False, replacing: str = "") -> Refusal | None:
    """Why this should not be kept; None if it should. `replacing` is the entry whose place it takes."""
    if is_echo(text):
        return Refusal("echo")
    lasting = durable(text)
    if lasting is not None:
        return Refusal(lasting)
    like, entry = nearest(text, [one for one in known.entries if one != replacing])
    if like == "same":
        return Refusal("known", entry)
    if like == "changed" and not replacing:
        return Refusal("changed", entry)
    stone = buried(text, known.gone, known.said)
    if stone is not None:
        return Refusal("removed", stone.text)
    if (about_user and from_outside(text, known)) or addresses_from_outside(text, known):
        return Refusal("outside")
    invented = known.grounds.missing(text) if known.grounds is not None else ""
    if invented and invented not in replacing:
        return Refusal("unfounded", invented)
    return None


def durable(text: str) -> Reason | None:
    """Why a text will not hold for long; None if nothing says so."""
    if len(text) > LONGEST:
        return "too long"
    folded = " ".join(text.casefold().replace("’", "'").split())
    if len(folded) < SHORTEST and folded.isascii():
        return "too short"
    if _TEMPORARY.search(folded):
        return "temporary"
    if _ALWAYS.search(folded):  # a habit may name days and states
        return None
    if _STATUS.search(folded):
        return "status"
    if _ONE_OFF.search(folded) or (_EVENT.search(folded) and _MOMENT.search(folded)):
        return "one-off"
    if _FAILURE.search(folded) and not _LESSON.search(folded):
        return "transient"
    return None


def from_outside(text: str, known: Known) -> bool:
    """Whether a statement about the user rests on what others said: its words are theirs rather than the user's."""
    words = gist(text).words
    if len(words) < 3 or not known.outside:
        return False
    theirs = max((coverage(words, gist(each).words) for each in known.outside), default=0.0)
    if theirs < 0.6:
        return False
    own = max((coverage(words, gist(_text(message)).words) for message in known.said), default=0.0)
    return own < theirs


def addresses_from_outside(text: str, known: Known) -> bool:
    """Whether it names a web or mail address that others named, and the user did not: what poisoned pages do."""
    named = {address.rstrip(".,;:)") for address in _ADDRESS.findall(text.casefold())}
    own = [_text(message).casefold() for message in known.said]
    others = [each.casefold() for each in known.outside]
    return any(
        any(address in each for each in others) and not any(address in each for each in own) for address in named
    )


def _text(message: Message) -> str:
    return message.content if isinstance(message.content, str) else ""
