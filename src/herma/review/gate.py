"""Decide what a review may write: durable, new, grounded in the conversation, and not from outside; and keep what the
user asks to be remembered, if need be in their own words.

Precision before recall: doubtful facts are not kept. A fact that matters comes up again; one that should not have been
kept is shown in every session until a person notices. Code judges every write, not the prompt; a person's entry is
only ever proposed for change.
"""

from __future__ import annotations

import itertools
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from herma.errors import UsageError
from herma.memory.entries import apply, parse, unique
from herma.memory.tidy import COVERED, content_of, coverage, likeness, nearest, overtakes
from herma.review.proposal import is_echo
from herma.review.rows import LONGEST, MEMORY_TOOL, ReviewAction, ReviewRecord, ReviewWrites
from herma.safety.scan import scan
from herma.skills.rows import (
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    SkillOp,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUnchanged,
    SkillWritten,
    WriteSkillFile,
)
from herma.text import NOT_ENGLISH, STOP_WORDS, LazyPattern
from herma.transcript.messages import text_of
from herma.transcript.provenance import SeenText, sources_of
from herma.types import (
    TARGETS,
    Add,
    Applied,
    Author,
    Blocked,
    Change,
    Duplicate,
    MemoryOp,
    MemoryOutcome,
    Message,
    Origin,
    OverBudget,
    Remove,
    Replace,
    Scope,
    SessionView,
    Staged,
    StoreStatus,
    Target,
    Who,
)

if TYPE_CHECKING:
    from herma.memory.store import MemoryStore
    from herma.skills.library import SkillLibrary
    from herma.transcript.log import Transcripts

# ── how much of a file one review may take away ──────────────────────────────────────────────────────────────────────

MOST = 0.25
"""The share of a text that one review may change."""


def lost(before: Sequence[str], after: Sequence[str], successors: Mapping[str, str]) -> int:
    """Return the characters of entries that are gone. A reworded entry loses what its successor does not say in the
    same words and order."""
    kept = set(after)
    return sum(_missing(entry, successors.get(entry, "")) for entry in before if entry not in kept)


def excess_loss(before: Sequence[str], after: Sequence[str], successors: Mapping[str, str]) -> str:
    """Return a sentence if more would be lost than may be; "" if not. Adding is never a loss."""
    total, gone = sum(map(len, before)), lost(before, after, successors)
    if gone <= MOST * total:
        return ""
    share = f"{gone:,} of {total:,} characters ({100 * gone / total:.0f} %)"
    return f"{share} would change; one review may change {100 * MOST:.0f} %."


def allowed_together(
    entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target
) -> tuple[list[MemoryOp], list[tuple[MemoryOp, str, str]]]:
    """Return as many operations as fit together, find their entries and lose little enough; and the others, each with
    the check that refused it (`loss`, `known`, `no match`, `no room`, `blocked`) and a sentence."""
    chosen: list[MemoryOp] = []
    refused: list[tuple[MemoryOp, str, str]] = []
    for op in sorted(ops, key=lambda op: isinstance(op, Add)):  # operations that make room go first
        result = apply(entries, [*chosen, op], limit, target)
        if not isinstance(result.outcome, Applied):
            refused.append((op, _CHECKS.get(type(result.outcome).__name__, "blocked"), result.outcome.message))
        elif too_much := excess_loss(entries, result.entries, result.successors):
            refused.append((op, "loss", too_much))
        else:
            chosen.append(op)
    return chosen, refused


_CHECKS = {"Duplicate": "known", "OverBudget": "no room", "NoMatch": "no match", "Ambiguous": "no match"}


def _missing(entry: str, successor: str) -> int:
    words = entry.split()
    if not successor or not words:
        return len(entry)
    from rapidfuzz.distance import LCSseq

    return round(len(entry) * (1 - LCSseq.similarity(words, successor.split()) / len(words)))


# ── abbreviations: js for JavaScript, NYC, k8s, twenty-five, 1.5k ────────────────────────────────────────────────────
#
# A model that writes out what a person said in short has made nothing up. Only whole words that a person said count,
# and no stop words: "on" does not stand for Ontario.

_CHINESE_DIGITS = "零一二三四五六七八九"
_TOKEN = re.compile(rf"[{_CHINESE_DIGITS}十百千]|[^\W_{_CHINESE_DIGITS}十百千]+")
_LONGEST_WORD, _MOST_WORDS = 32, 20_000
_NUMERONYM = re.compile(r"([a-z])(\d{1,2})([a-z])")
_VOWELS = frozenset("aeiou")
_THOUSANDS = re.compile(r"(?<![\d.,])(\d{1,4})(?:[.,](\d))? ?(?:k|thousand)\b")
_SHORTEST, _LONGEST_SKELETON = 2, 4
_ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_NUMBER_WORDS = {
    **{word: (str(number), 1) for words in (_ONES, _CHINESE_DIGITS) for number, word in enumerate(words)},
    **{word: (str(number), 2) for number, word in enumerate(_TEENS, 10)},
    **{word: (str(number), 2) for number, word in enumerate(_TENS, 2)},
    "dozen": ("12", 2),
    "half": ("5", 2),
    "quarter": ("25", 2),
    "十": ("1", 2),
    "hundred": ("1", 3),
    "百": ("1", 3),
    "thousand": ("1", 4),
    "千": ("1", 4),
}
"""Words that say a number → the digits that it may have, and how many places it fills."""
_BETWEEN = frozenset(("and", "a", "point"))


class Abbreviations:
    """The words of a person, each of which may stand for longer ones."""

    def __init__(self, said: Iterable[str]) -> None:
        self.foreign = False
        """True if any of it is in a language or script that writes names otherwise than English does."""
        self._words: set[str] = set()
        self._numbers: set[tuple[frozenset[str], int]] = set()
        self._thousands: set[str] = set()
        for text in said:
            folded = text.casefold()
            words = [word for word in _TOKEN.findall(folded)[:_MOST_WORDS] if len(word) <= _LONGEST_WORD]
            self.foreign = self.foreign or is_foreign(words)
            self._words.update(words)
            self._numbers.update(numbers(words))
            for whole, tenth in _THOUSANDS.findall(folded):
                self._thousands.add(str(int(whole) * 1_000 + int(tenth or 0) * 100))

    def names(self, name: Sequence[str]) -> bool:
        """Return whether a name of one or several words was said in short."""
        parts = [plain(word) for word in name]
        begins = parts[0][:1]
        return any(
            stands_for(word, parts, several=len(name) > 1)
            for word in (plain(each) for each in self._words if each not in STOP_WORDS)
            if word.startswith(begins)
        )

    def counts(self, number: str) -> bool:
        """Return whether a number was said in words, or as so many thousands."""
        bare = re.sub(r"[^\d]", "", number)
        if bare in self._thousands:
            return True
        needed = set(bare) - {"0"}
        return bool(needed) and any(needed <= digits and len(bare) <= places for digits, places in self._numbers)


def numbers(words: Sequence[str]) -> Iterator[tuple[frozenset[str], int]]:
    """Yield the numbers that were said in words: the digits that they may have, and how many."""
    digits: set[str] = set()
    places = 0
    for word in (*words, ""):
        if word in _NUMBER_WORDS:
            said, more = _NUMBER_WORDS[word]
            digits.update(said)
            places += more
        elif word not in _BETWEEN and places:
            yield frozenset(digits), places
            digits, places = set(), 0


def stands_for(short: str, parts: Sequence[str], *, several: bool = False) -> bool:
    """Return whether a word is short for a name: its first letters, those of its parts, its consonants, or k8s.

    A name of `several` words must be named with all of them: "Anna" does not name Anna Smith.
    """
    whole = "".join(parts)
    if counted := _NUMERONYM.fullmatch(short):
        first, between, last = counted.groups()
        return len(whole) == int(between) + 2 and whole.startswith(first) and whole.endswith(last)
    short = short.rstrip("0123456789")
    if len(short) < _SHORTEST or short[0] != whole[:1]:
        return False
    if len(parts) > 1 and _of_parts(short, parts):
        return True
    if several:
        return False
    skeleton = _VOWELS.isdisjoint(short[1:]) and len(short) <= _LONGEST_SKELETON
    ends = short[-1] == whole[-1] and 2 * len(short) >= len(whole)
    letters = iter(whole)
    return whole.startswith(short) or ((skeleton or ends) and all(letter in letters for letter in short))


def _of_parts(short: str, parts: Sequence[str]) -> bool:
    """Return whether it is made of the beginnings of all parts, in order: semver, vscode, usd."""
    reached = {0}
    for part in parts:
        reached = {
            at + length
            for at in reached
            for length in range(1, min(len(part), len(short) - at) + 1)
            if short.startswith(part[:length], at)
        }
    return len(short) in reached


def is_foreign(words: Sequence[str]) -> bool:
    """Return whether words are rather of another language than of English."""
    known = sum(word in STOP_WORDS and word not in NOT_ENGLISH for word in words)
    other = sum(not word.isascii() or (word in NOT_ENGLISH and len(word) > 1) for word in words)
    return other > 0 and other >= known


def plain(text: str) -> str:
    """Return lower case without marks: ü is u, ß is ss."""
    if text.isascii():
        return text.casefold()
    return "".join(mark for mark in unicodedata.normalize("NFKD", text.casefold()) if not unicodedata.combining(mark))


# ── grounding: names, numbers and paths that were not named are made up ───────────────────────────────────────────────
#
# Other words for what was said are fine, and so is another language; only what can hardly be said in other words is
# looked for. A weak model invents such things, or repeats the question that it was asked.

_LONGEST_STATEMENT = 4_000
_WORD = re.compile(r"[^\W_]++(?:[._/:@'’-][^\W_]++)*+")
_COMMON = re.compile(r"\d{1,2}|(?:19|20)\d\d|\d{4}-\d\d(?:-\d\d)?|\d{1,2}:\d\d(?::\d\d)?|\d{1,3}(?:st|nd|rd|th|s)?")
"""Small numbers, years, days and times: a model may count, or write in digits what was said in words."""
_SMALL = 12
_NAME = re.compile(r"[A-Z][a-zà-öø-ÿ]{2,}+|[A-Z][a-z]++[A-Z]\w++")
_ENDS = (".", "!", "?", ":", ";", "—", "–", "(", '"', "“", "‘", "-", "*", "•", "/")
_ENGLISH = frozenset(("the", "is", "are", "of", "to", "with", "and", "for", "has", "uses", "user", "user's"))
_NOT_NAMES = frozenset(
    (
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "may", "june", "july", "august", "september", "october"),
        *("november", "december", "english", "markdown", "user", "agent", "assistant", "internet"),
    )
)
_NUMBER = re.compile(r"\d+(?:[.,'’:]\d+)*+")
_RUN = re.compile(r"[A-Z]\w*+(?: (?:of )?[A-Z]\w*+)++")
"""Several words that make one name."""
_STEM = 5
_MARKS = re.compile(r"[\W_]+")


class GroundingIndex:
    """Everything that was said, by anybody, as one text without blanks.

    `said` by the user is also searched for abbreviations, and for numbers in words.
    """

    def __init__(self, texts: Iterable[str], said: Iterable[str] = ()) -> None:
        self._dense = "\n".join(map(_dense, texts))
        self._said = Abbreviations(said)

    def missing(self, text: str) -> str:
        """Return the first thing in a statement that was not named; "" if there is none."""
        absent = [anchor for anchor in anchors(text) if not self._has(anchor)]
        if absent:
            runs = [run for run in _RUN.findall(text[:_LONGEST_STATEMENT]) if self._said.names(run.split())]
            absent = [anchor for anchor in absent if not any(anchor in run.split() for run in runs)]
        return next(iter(absent), "")

    def _has(self, anchor: str) -> bool:
        """Return whether it was named; the beginning of a long word is enough, as in Postgres and PostgreSQL."""
        wanted = _dense(anchor)
        if wanted in self._dense or (wanted.isalpha() and len(wanted) > _STEM and wanted[:_STEM] in self._dense):
            return True
        if any(mark.isdigit() for mark in wanted):
            return _NUMBER.fullmatch(wanted) is not None and self._said.counts(wanted)
        return self._said.foreign or self._said.names([anchor])


def anchors(text: str) -> list[str]:
    """Return what can hardly be said in other words: names, and words with digits in them."""
    text = text[:_LONGEST_STATEMENT]
    english = not _ENGLISH.isdisjoint(text.casefold().split())  # other languages may capitalise all nouns
    found: dict[str, None] = {}
    before = "."
    for match in _WORD.finditer(text):
        word = match.group()
        begins = before.endswith(_ENDS) or not before
        before = text[match.end() : match.end() + 2].strip() or word
        if any(mark.isdigit() for mark in word):
            common = _COMMON.fullmatch(word) and (not word.isdigit() or len(word) == 4 or int(word) <= _SMALL)
            if not common:
                found[word] = None
        elif english and not begins:
            name = re.sub(r"['’]s$", "", word)
            if _NAME.fullmatch(name) and name.casefold() not in _NOT_NAMES:
                found[name] = None
    return list(found)


def _dense(text: str) -> str:
    """Return letters and digits alone: UTF-8 is utf8, and 12,500 is 12500."""
    return _MARKS.sub("", plain(text))


# ── entries that were removed do not come back by themselves ─────────────────────────────────────────────────────────

_MOST_REMOVED = 500
"""Newest removed entries that are compared."""


class RemovedEntry(NamedTuple):
    """An entry that was in a file once, and when it was removed."""

    text: str
    at: float


def removed_entries(changes: Iterable[Change]) -> list[RemovedEntry]:
    """Return the entries that are gone, the newest first. `changes` are all of one file, in any order."""
    gone: dict[str, RemovedEntry] = {}
    for change in sorted(changes, key=lambda one: one.id):
        before, after = unique(parse(change.before)), unique(parse(change.after))
        for text in after:
            gone.pop(text, None)
        for text in before:
            if text not in set(after):
                gone.pop(text, None)  # so that the newest stand last
                gone[text] = RemovedEntry(text, change.at)
    return list(reversed(gone.values()))[:_MOST_REMOVED]


def was_removed(text: str, removed: Iterable[RemovedEntry], said: Sequence[Message]) -> RemovedEntry | None:
    """Return the removed entry that a text would bring back, unless the user said it again since.

    `said` are the user's messages. A correction is not the entry that it corrects: texts that differ in a number, a
    name with digits or a negation are different facts.
    """
    for entry in removed:
        if likeness(text, entry.text) == "same" and not _said_again(text, entry.at, said):
            return entry
    return None


def _said_again(text: str, since: float, said: Iterable[Message]) -> bool:
    """Return whether one newer message of the user has most of its words, and every value in it."""
    wanted = content_of(text)
    for message in said:
        if message.timestamp > since and isinstance(message.content, str):
            content = content_of(message.content)
            if wanted.values <= content.values and coverage(wanted.words, content.words) >= COVERED:
                return True
    return False


# ── whether a text is worth keeping ──────────────────────────────────────────────────────────────────────────────────

_LONGEST_ENTRY, _SHORTEST_ENTRY = 600, 12
REASONS: Mapping[str, str] = {
    "status": "it says how far some work is, which is outdated soon",
    "one-off": "it is about one day or one event",
    "temporary": "it holds for this conversation only",
    "transient": "it is a failure that passes, and does not say how to avoid it",
    "too long": f"it is longer than {_LONGEST_ENTRY} characters; say it in a sentence or two",
    "too short": "it is too short to be understood later",
    "known": "it is there already, in these or other words",
    "changed": "an entry says something else about the same; correct that one with replace",
    "removed": "it was removed from memory, and the user has not said it again since",
    "outside": "it repeats what a tool, a page or another memory said, not the user",
    "echo": "it repeats the question that was asked",
    "unfounded": "it names something that was not named in this conversation",
}
"""Each reason in words that fit after "Not saved: "."""


def _any(*words: str, also: str = "") -> re.Pattern[str]:
    """Match one of these words or phrases, or `also` one of scripts without spaces."""
    return re.compile(rf"\b(?:{'|'.join(words)})\b" + (f"|{also}" if also else ""))


_DAYS = "monday|tuesday|wednesday|thursday|friday|saturday|sunday"
_ALWAYS = _any(
    *("every", "each", "always", "never", "usually", "generally", "by default", "birthday", "anniversary", "born"),
    *("daily", "nightly", "weekly"),
    also="每|总是|生日",
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
    also="正在|进行中|已完成",
)
_ONE_OFF = _any(
    *("today", "tomorrow", "yesterday", "tonight", "this (?:morning|afternoon|evening|week|weekend|month|sprint)"),
    f"(?:next|last) (?:week|weekend|month|{_DAYS})",
    *("right now", "at the moment", "at present", "for now"),
    also="今天|明天|昨天|本周|下周",
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
    also="假装|扮演|暂时|本次对话",
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
    ),
    *("unreachable", "could not", "couldn't", "cannot connect", "not (?:working|available|responding|found)", "broken"),
    *(r"returned (?:an? )?(?:error|[45]\d\d)", "rate.?limit(?:ed)?", "doesn't work", "does not work"),
)
_LESSON = _any(
    *("unless", "because", "when", "if", "instead", "requires?", "needs?", "must", "without", "use", "fix(?:ed)? by"),
    *("solved by", "remedy", "work ?around", "behind", "so that"),
)


class Known(NamedTuple):
    """The texts that a new entry is compared with."""

    entries: Sequence[str] = ()
    """Entries that are in the files, wait in the inbox, or are in the archive."""
    removed: Sequence[RemovedEntry] = ()
    said: Sequence[Message] = ()
    """The text that the user typed."""
    seen: SeenText | None = None
    """Text from outside in this conversation."""
    grounding: GroundingIndex | None = None
    """Everything that was said in it; without it, statements need no ground."""


class GateRefusal(NamedTuple):
    """Why a text is not kept; `entry` is the one that it collides with."""

    reason: str
    entry: str = ""

    @property
    def sentence(self) -> str:
        about = f": “{self.entry[:120]}”" if self.entry else ""
        return f"Not saved: {REASONS[self.reason]}{about}."


def judge(text: str, known: Known, *, replacing: str = "") -> GateRefusal | None:
    """Return why a text should not be kept; None if it should. `replacing` is the entry whose place it takes."""
    if is_echo(text):
        return GateRefusal("echo")
    if (passing := durable(text)) is not None:
        return GateRefusal(passing)
    like, entry = nearest(text, [one for one in known.entries if one != replacing])
    if like == "same":
        return GateRefusal("known", entry)
    if like == "changed" and not replacing:
        return GateRefusal("changed", entry)
    if (removed := was_removed(text, known.removed, known.said)) is not None:
        return GateRefusal("removed", removed.text)
    if known.seen is not None and known.seen.outsider([text], [replacing]) is not None:
        return GateRefusal("outside")
    invented = known.grounding.missing(text) if known.grounding is not None else ""
    return GateRefusal("unfounded", invented) if invented and invented not in replacing else None


def durable(text: str) -> str | None:
    """Return why a text will not hold for long; None if nothing says so."""
    folded = " ".join(text.casefold().replace("’", "'").split())
    if len(text) > _LONGEST_ENTRY:
        return "too long"
    if len(folded) < _SHORTEST_ENTRY and folded.isascii():
        return "too short"
    if _TEMPORARY.search(folded):
        return "temporary"
    if _ALWAYS.search(folded):  # a habit may name days and states
        return None
    if _STATUS.search(folded):
        return "status"
    if _ONE_OFF.search(folded) or (_EVENT.search(folded) and _MOMENT.search(folded)):
        return "one-off"
    return "transient" if _FAILURE.search(folded) and not _LESSON.search(folded) else None


# ── what a conversation rests on ─────────────────────────────────────────────────────────────────────────────────────

_CHANGES = 400
"""Newest changes of a file in which removed entries are looked for."""


def seen_in(view: SessionView, transcripts: Transcripts) -> SeenText:
    """Return all text that a conversation has seen, from the transcript: summarised messages, too."""

    def earlier() -> Iterator[tuple[Message, bool]]:
        begin = next((id_ for id_ in (view.id, view.info.parent) if id_ and transcripts.get(id_)), "")
        if begin:
            yield from sources_of(transcripts, begin)
        yield from ((message, view.info.imported is not None) for message in view.messages)

    seen = SeenText(earlier)
    seen.add_prompt(view.system_prompt, view.prompt_outside)
    for text, origin in view.marked:
        seen.mark(text, origin)
    return seen


class KnownEntries:
    """Curated memory as a session of one scope knows it."""

    def __init__(self, store: MemoryStore, scope: Scope) -> None:
        self._store = store
        self._scope = scope

    def entries(self) -> list[str]:
        """Return the entries of every file that such a session is shown."""
        return unique(entry for target, where in self.places() for entry in self._standing(target, where))

    def places(self) -> list[tuple[Target, Scope]]:
        found: list[tuple[Target, Scope]] = [("user", self._scope), ("memory", replace(self._scope, project=""))]
        return [*found, ("memory", self._scope)] if self._scope.project else found

    def place_of(self, entry: str) -> tuple[Target, Scope] | None:
        """Return the file that has an entry."""
        return next((place for place in self.places() if entry in self._standing(*place)), None)

    def compared_in(self, view: SessionView, seen: SeenText) -> Callable[[Target, Scope], Known]:
        """Return what a new entry of a conversation has to be compared with, file by file."""
        typed: tuple[Message, ...] = ()
        if view.info.imported is None:
            typed = tuple(replace(one, content=seen.typed(one)) for one in view.messages if one.role == "user")
        texts = [*_everything(view), *self.entries()]
        grounding = GroundingIndex(texts, [text_of(one.content) for one in typed])

        def known(target: Target, scope: Scope) -> Known:
            waiting = [
                op.content
                for one in self._store.pending()
                if one.target == target
                for op in one.operations
                if not isinstance(op, Remove)
            ]
            archive = self._store.archive
            archived = [*archive.list(target, scope=scope), *archive.list(target, scope=scope, forgotten=True)]
            removed = [
                entry
                for where in dict.fromkeys((scope, replace(scope, project="")))
                for entry in removed_entries(self._store.history(target, scope=where, limit=_CHANGES))
            ]
            standing = [*self.entries(), *waiting, *(entry.text for entry in archived)]
            return Known(standing, removed, typed, seen, grounding)

        return known

    def _standing(self, target: Target, scope: Scope) -> list[str]:
        """Return the entries of a file; none if it is switched off."""
        try:
            return self._store.entries(target, scope=scope)
        except UsageError:
            return []


def _everything(view: SessionView) -> Iterator[str]:
    """Yield what the model was given: the prompt, what was said and sent, its calls and their results."""
    yield view.system_prompt
    for message in view.messages:
        yield text_of(message.content)
        if message.sent is not None:
            yield text_of(message.sent)
        for call in message.tool_calls:
            yield str(call.get("function", ""))


# ── memory and skills as a review may change them ────────────────────────────────────────────────────────────────────


class GatedMemory:
    """Curated memory for one review."""

    def __init__(
        self, store: MemoryStore, known: Callable[[Target, Scope], Known], record: ReviewRecord, writes: ReviewWrites
    ) -> None:
        self.asked = ""
        """The user's requests to remember; an entry that says only that is theirs, in any words."""
        self._store = store
        self._known = known
        self._record = record
        self._writes = writes
        self._at_first: dict[tuple[Target, Scope], list[str]] = {}

    def entries(self, target: Target, *, scope: Scope | None = None) -> list[str]:
        return self._store.entries(target, scope=scope)

    def status(self, *, scope: Scope | None = None) -> list[StoreStatus]:
        return self._store.status(scope=scope)

    def apply(
        self, target: Target, ops: Sequence[MemoryOp], *, scope: Scope | None, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Judge every operation; then write or propose all of them as one change, or none."""
        where = scope or Scope()
        for op in ops:
            if refused := self.objection(target, op, where, author):
                self.refuse(op, target, *refused)
                return self._blocked(target, where, refused[1])
        if too_much := self._loss(target, ops, where):
            for op in ops:
                self.refuse(op, target, "loss", too_much)
            return self._blocked(target, where, f"Not done: {too_much}")
        return self.write(target, ops, where, author, reason)

    def objection(
        self, target: Target, op: MemoryOp, scope: Scope, author: Author, besides: Sequence[str] = ()
    ) -> tuple[str, str] | None:
        """Return why an operation may not be carried out, in one word and in a sentence; None if it may.

        `besides` are entries that are about to be written with it.
        """
        if isinstance(op, Remove):
            return None
        if findings := scan(op.content):
            return "scanned", f"Not saved: the scanner objects ({findings[0].rule}: {findings[0].why})."
        if not author.origin.trusted:
            return "outside", f"Not saved: {REASONS['outside']}."
        named = op.old_text if isinstance(op, Replace) else None
        replaced = next((one for one in self.entries(target, scope=scope) if named and named in one), "")
        known = self._known(target, scope)
        refusal = judge(op.content, known._replace(entries=[*known.entries, *besides]), replacing=replaced)
        return None if refusal is None else (refusal.reason, refusal.sentence)

    def refuse(self, op: MemoryOp, target: Target, why: str, sentence: str) -> None:
        """Record that an operation was refused."""
        self._record.refuse(_name_of(op), why, sentence, text=_text_of(op), target=target)

    def write(
        self, target: Target, ops: Sequence[MemoryOp], scope: Scope, author: Author, reason: str = ""
    ) -> MemoryOutcome:
        """Write or propose what was judged, and record it."""
        if self.asked and all(isinstance(op, Add) and likeness(op.content, self.asked) == "same" for op in ops):
            author = replace(author, origin=Origin.USER_SAID)
        if self._writes == "stage" or self.touching_a_persons(target, ops, scope):
            why = reason or "proposed by a review"
            outcome = self._store.propose(target, ops, scope=scope, author=author, reason=why)
        else:
            outcome = self._store.apply(target, ops, scope=scope, author=author, reason=reason)
        for op in ops:
            self._record.note(action_of(op, target, outcome))
        return outcome

    def touching_a_persons(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> list[MemoryOp]:
        """Return the operations that drop or change an entry that a person wrote or approved."""
        if all(isinstance(op, Add) for op in ops):
            return []
        theirs = [entry.text for entry in self._store.describe(target, scope=scope) if entry.of_a_person]
        return [op for op in ops if not isinstance(op, Add) and any(op.old_text in text for text in theirs)]

    def limit(self, target: Target, scope: Scope) -> int:
        return self._store.room(target, scope=scope)[1]

    def _loss(self, target: Target, ops: Sequence[MemoryOp], scope: Scope) -> str:
        """Return a sentence if too much of what was there when this review began would be gone."""
        now = self.entries(target, scope=scope)
        first = self._at_first.setdefault((target, scope), now)
        if all(isinstance(op, Add) for op in ops):
            return ""
        result = apply(now, ops, self.limit(target, scope), target)
        done = isinstance(result.outcome, Applied)
        return excess_loss(first, result.entries, result.successors) if done else ""

    def _blocked(self, target: Target, scope: Scope, sentence: str) -> Blocked:
        size = self._store.status(scope=scope)[TARGETS.index(target)]
        return Blocked(message=sentence, target=target, entry_count=size.entry_count, used=size.used, limit=size.limit)


def action_of(op: MemoryOp, target: Target, outcome: MemoryOutcome) -> ReviewAction:
    """Return what came of an operation, for the record."""
    made = ReviewAction(_name_of(op), "refused", _text_of(op)[:LONGEST], target)
    match outcome:
        case Applied():
            return replace(made, result="applied", change=outcome.change)
        case Staged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case Duplicate():
            return replace(made, result="known")
        case _:
            return replace(made, why=type(outcome).__name__.lower(), said=outcome.message)


def _name_of(op: MemoryOp) -> str:
    return f"memory {type(op).__name__.lower()}"


def _text_of(op: MemoryOp) -> str:
    return op.old_text if isinstance(op, Remove) else op.content


class GatedSkills:
    """The skill library for one review. It changes only files that the model read in this review."""

    def __init__(self, library: SkillLibrary, record: ReviewRecord, writes: ReviewWrites) -> None:
        self.library = library
        self._record = record
        self._writes = writes
        self._read: set[tuple[str, str]] = set()

    def viewed(self, name: str, file: str) -> None:
        """Record that the model was shown a file of a skill."""
        self._read.add(_file_of(name, file))

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome:
        outcome: SkillOutcome
        if refused := self._objection(op):
            outcome = refused
        elif self._writes == "stage":
            outcome = self.library.propose(op, author=author, reason="proposed by a review")
        else:
            outcome = self.library.apply(op, author=author, reason="review")
        self._record.note(_skill_action(op, outcome))
        return outcome

    def _objection(self, op: SkillOp) -> SkillRefused | None:
        if isinstance(op, DeleteSkill) and not op.absorbed_into:
            message = "A review archives a skill only when another one takes over: say which in absorbed_into."
            return SkillRefused(name=op.name, kind="invalid", message=message)
        if isinstance(op, CreateSkill):
            return None
        file = op.file if isinstance(op, PatchSkill | WriteSkillFile) else getattr(op, "file", "SKILL.md")
        if _file_of(op.name, file) in self._read or self._is_new_file(op):
            return None
        message = f"Read {file} of {op.name} with skill_view first; a file that was not read is not changed."
        return SkillRefused(name=op.name, kind="invalid", message=message)

    def _is_new_file(self, op: SkillOp) -> bool:
        if not isinstance(op, WriteSkillFile):
            return False
        skill = self.library.resolve(op.name)
        return not isinstance(skill, SkillRefused) and self.library.read_file(skill.path, op.file) is None


def _file_of(name: str, file: str) -> tuple[str, str]:
    return name.rpartition("/")[2].casefold(), file or "SKILL.md"


def _skill_action(op: SkillOp, outcome: SkillOutcome) -> ReviewAction:
    """Return what came of an operation on a skill, for the record."""
    made = ReviewAction(f"skill {_VERBS.get(type(op), 'change')}", "refused", op.name[:LONGEST], "skill")
    match outcome:
        case SkillWritten():
            return replace(made, result="applied", change=outcome.change)
        case SkillStaged():
            return replace(made, result="staged", pending=outcome.pending, said=outcome.message)
        case SkillUnchanged():
            return replace(made, result="known")
        case SkillRefused():
            return replace(made, why=outcome.kind, said=outcome.message)


_VERBS: dict[type, str] = {
    CreateSkill: "create",
    EditSkill: "edit",
    PatchSkill: "patch",
    DeleteSkill: "archive",
    WriteSkillFile: "write",
}


# ── what the user asks to be remembered ──────────────────────────────────────────────────────────────────────────────
#
# Only plain requests count: a question about remembering, a quotation or a negation does not. Reading is linear.

_ASKS = LazyPattern(
    r"^(?:(?:ok(?:ay)?|hey|hi|also|and|please|pls|so|yes|no|by the way|btw|for (?:the )?(?:future|next time)"
    r"|from now on)[,:;!.\s]+){0,3}"
    r"(?:(?:can|could|will|would) you (?:please )?|(?:i want|i need|i'd like|i would like) you to "
    r"|you (?:should|must) )?"
    r"(?:please |just )?"
    r"(?:(?:always )?remember|for (?:future|later) reference|note to self|store (?:this|that)(?=:)"
    r"|keep in mind|don'?t (?:ever )?forget|do not forget|make a note|take note"
    r"|note(?= that\b| down\b|:)"
    r"|memori[sz]e|save (?:this|that|it)?(?: to| in)? ?(?:your )?memory|add (?:this |that |it )?to (?:your )?memory)"
    r"(?: (?:that|the following|this(?= for\b|\W*$|\s*[:,–—-])))?(?: for (?:the future|next time|later))?"
    r"\b[\s:,–—-]*(?P<what>.*)$",
    re.IGNORECASE,
)
_ASIAN = LazyPattern(
    r"^(?:请|麻烦|帮我|另外|还有|以后)?[，,\s]{0,3}(?:你要|你|要)?(?:记住|记一下|记下来?|记得|别忘了|不要忘记)[：:，,\s]{0,3}(?P<what>.*)$"
    r"|^(?P<ja>.{2,300}?)(?:を|って|と)?(?:覚えておいて|覚えて|記憶して|忘れないで)(?:ください|ね|下さい)?[。.!！]?$"
    r"|^(?P<ko>.{2,300}?)(?:을|를|라고)? ?(?:기억해|잊지 마)[^\s]{0,4}[.!]?$"
)
_OTHERS = LazyPattern(
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
_AFTERWARDS = LazyPattern(
    r"^(?P<what>.{6,400}?)[,;–—-]{1,2} ?(?:(?:and|so|but) )?(?:please )?"
    r"(?:remember (?:that|this|it)|don'?t forget (?:that|this|it)|keep (?:that|this|it) in mind)(?:,? please)?[.!]*$",
    re.IGNORECASE,
)
"""The fact comes first: "We deploy on Tuesdays, remember that."."""
_PATTERNS = (_ASKS, _ASIAN, _OTHERS, _AFTERWARDS)
_NOT_ASKING = LazyPattern(
    r"^(?:do|did|don't|didn't|what|when|who|where|why|how|if|whether)\b[^?]{0,80}\bremember(?:ed)?\b"
    r"|\bremember(?:s|ed|ing)? (?:when|how|why|the (?:time|day)|if|whether|me)\b"
    r"|\bi (?:can'?t |don'?t |do )?remember\b",
    re.IGNORECASE,
)
_ABBREVIATED = LazyPattern(
    r"(?:^|[\s(])(?:\w|\w\.\w|dr|mr|mrs|ms|prof|st|vs|etc|e\.g|i\.e|approx|no|nr|tel|inc|ltd|bzw|ca)\.$", re.IGNORECASE
)
_ABOUT_ME = re.compile(
    r"\b(?:i|i'm|i'd|i've|i'll|me|my|mine|myself|we|our|call me)\b|我|我们|私|僕|俺|저|나는|제|내 ", re.IGNORECASE
)
_TAG = re.compile(r"^[ \t]{0,8}<([a-z][\w-]{1,40})(?: [^<>\n]{0,300})?>", re.IGNORECASE | re.MULTILINE)
_MOST_TAGS = 50
_SHORTEST_REQUEST, _LONGEST_REQUEST = 6, 600
_SHOWN = "(?:text|page|file|attachment|document|link|message|conversation|chat|discussion)s?"
_POINTING = LazyPattern(
    r"^(?:(?:all (?:of )?)?(?:this|that|it|these)?"
    r"|(?:what|everything|all|anything)(?: (?!not\b)\S{1,20}){0,3}? (?:says?|said|tells?|told|writes?|wrote|written"
    r"|shows?|showed|shown|mention(?:s|ed)|discussed|talked|explain(?:s|ed)|decided|agreed|learned|sent|pasted|see|above"
    r"|below)"
    rf"(?: (?:me|you|us|here|so far|earlier|before|today|just now|about(?: .*)?|(?:in|on) (?:this|that|the) {_SHOWN}))*"
    rf"|(?:what|everything|all|anything)(?:(?:'s| is| that is)? (?:in|on|from) (?:this|that|the|our) {_SHOWN})?"
    rf"|(?:our|the|this|that) (?:above|{_SHOWN})(?: (?:above|below))?|这个|这些|これ)$",
    re.IGNORECASE,
)
"""Words that name no fact, but something that was said or shown."""


def remember_request(text: str) -> str | None:
    """Return what a message of the user asks to be remembered; "" if it only points at what was said before, None if it
    does not ask."""
    for sentence in sentences(text):
        if sentence.endswith(("?", "？")) and not re.search(r"\b(?:can|could|will|would) you\b", sentence[:40].lower()):
            continue
        found = (pattern.match(sentence) for pattern in _PATTERNS)
        match = None if _NOT_ASKING.search(sentence) else next(filter(None, found), None)
        if match is None:
            continue
        what = " ".join(next((part for part in match.groups() if part), "").split()).strip(" ?？")
        if _POINTING.match(what.strip(".!。！")):
            return ""
        if len(what) >= _SHORTEST_REQUEST or not what.isascii():
            return what[:_LONGEST_REQUEST]
    return None


def sentences(text: str) -> list[str]:
    """Return the sentences of a text, without what is not the user's own words: quoted lines, code, and what stands
    between tags, which programs add."""
    found: list[str] = []
    fenced = False
    for row in _untagged(text[:20_000]).split("\n"):
        line = row.strip()
        if line.startswith("```"):
            fenced = not fenced
        elif line and not fenced and not line.startswith((">", '"', "“")):
            goes_on = False  # after the full stop of an abbreviation or an initial
            for part in filter(None, re.split(r"(?<=[.!?。！？])\s+", line)):
                if goes_on:
                    found[-1] += f" {part}"
                else:
                    found.append(part)
                goes_on = _ABBREVIATED.search(part[-12:]) is not None
    return found


def _untagged(text: str) -> str:
    """Return a text without blocks such as `<document>…</document>` that begin a line."""
    pieces, at = [], 0
    for opening in list(itertools.islice(_TAG.finditer(text), _MOST_TAGS)):
        closing = f"</{opening[1]}>"
        end = text.find(closing, opening.end())
        if opening.start() >= at and end >= 0:
            pieces.append(text[at : opening.start()])
            at = end + len(closing)
    return "".join([*pieces, text[at:]])


class RememberRequest(NamedTuple):
    """A text that the user asked to keep, in their own words, and the message with the request."""

    words: str
    message: int


def wanted_in(messages: Sequence[Message], seen: SeenText | None = None) -> RememberRequest | None:
    """Return what the user asked for in the last turn, unless a memory was saved in it.

    Only what the person typed counts; with `seen`, a sentence that text from outside has word for word does not.
    """
    seen = seen or SeenText()
    begins = [at for at, one in enumerate(messages) if one.role == "user"]
    if not begins:
        return None
    turn = messages[begins[-1] :]
    own = sentences(seen.typed(turn[0]))
    asked = remember_request("\n".join(one for one in own if remember_request(one) is None or not seen.quotes(one)))
    if asked is None or saved_in(turn):
        return None
    if not asked:  # "remember this" points at the rest of the message, else at what the user said last
        rest = " ".join(one for one in own if remember_request(one) is None).strip()
        before = seen.typed(messages[begins[-2]]).strip() if len(begins) > 1 else ""
        asked = next((text for text in (rest, before) if len(text) >= _SHORTEST_REQUEST), "")
    return RememberRequest(asked, turn[0].id)


def saved_in(turn: Sequence[Message]) -> bool:
    """Return whether the model saved a memory in a turn: stored, proposed, or known already."""
    asked = {
        str(call.get("id"))
        for message in turn
        for call in message.tool_calls
        if (call.get("function") or {}).get("name") == MEMORY_TOOL
    }
    return any(one.role == "tool" and one.tool_call_id in asked and _succeeded(text_of(one.content)) for one in turn)


def keep(wanted: RememberRequest, scope: Scope, session: str, memory: MemoryStore, record: ReviewRecord) -> None:
    """Write the user's own words, or record why not. If there is no room, propose them."""
    if not wanted.words:
        record.refuse("memory add", "unclear", "The user asked to remember something, and it is not clear what.")
        record.notice = "You asked to remember something, but it is not clear what: say it in one sentence."
        return
    target, text = entry_for(wanted.words)
    known = KnownEntries(memory, scope)
    like, entry = nearest(wanted.words, known.entries())
    if like == "same":
        record.note(ReviewAction("memory add", "known", entry[:LONGEST], target))
        return
    if findings := scan(text):
        why = f"The scanner objects ({findings[0].rule}: {findings[0].why})."
        record.refuse("memory add", "scanned", why, target=target)
        record.notice = f"Your note was not saved. {why}"
        return
    author = Author(Who.REVIEW, Origin.USER_SAID, session, wanted.message)
    op: MemoryOp = Add(text)
    if like == "changed" and overtakes(text, entry) and (place := known.place_of(entry)):
        op, (target, scope) = Replace(entry, text), place  # the newest word holds; the history keeps the older one
    reason = "the user asked to remember it"
    try:
        outcome = memory.apply(target, op, scope=scope, author=author, reason=reason)
    except UsageError as exc:  # switched off
        record.refuse("memory add", "off", str(exc), target=target)
        record.notice = f"Your note was not saved. {exc} {exc.hint}".strip()
        return
    if isinstance(outcome, OverBudget):
        outcome = memory.propose(target, op, scope=scope, author=author, reason=reason, although_full=True)
    record.note(action_of(op, target, outcome))
    if isinstance(outcome, Staged):
        decide = f"Decide with: herma inbox approve m{outcome.pending}"
        record.notice = f"Your note waits in the inbox. {outcome.message} {decide}"
    elif not outcome.ok:
        record.notice = f"Your note was not saved. {outcome.message}"


def remembered(text: str) -> tuple[Target, str]:
    """Return the file and the entry for a text that a person gives to be remembered, without a "remember that"."""
    found = remember_request(text) if len(text) <= _LONGEST_REQUEST and len(sentences(text)) == 1 else None
    return entry_for(found) if found else (entry_for(text)[0], text)


def entry_for(words: str) -> tuple[Target, str]:
    """Return the file and the entry for a person's own words: USER.md if they are about themselves.

    Only the first letter becomes a capital, if an ordinary word begins, not a command or a name.
    """
    line = " ".join(words.split())
    short = line if len(line) <= _LONGEST_REQUEST else line[: _LONGEST_REQUEST - 1] + "…"
    first = re.split(r"\W", short, maxsplit=1)[0]
    sentence = short[:1].upper() + short[1:] if first in STOP_WORDS else short
    return ("user" if _ABOUT_ME.search(words) else "memory"), sentence


def _succeeded(answer: str) -> bool:
    try:
        value = json.loads(answer)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("success") is True
