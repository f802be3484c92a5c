"""Entries of MEMORY.md and USER.md: text ↔ entries, and what operations do to them. Pure: no clock, disk or log.

A file holds entries separated by a line with nothing but `§`. Whatever an editor did to it (byte-order mark, CRLF,
blank lines around the delimiter, a trailing newline) is read as the same entries; `join(parse(text))` is the form that
Herma writes. A `§` inside a line is data.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from itertools import combinations
from pathlib import Path
from typing import NamedTuple, TypedDict, get_args

from herma.errors import UsageError
from herma.text import LazyPattern
from herma.types import (
    CATEGORIES,
    DELIMITER,
    Add,
    Ambiguous,
    Applied,
    Author,
    Blocked,
    Duplicate,
    Entry,
    Kept,
    MemoryOp,
    MemoryOutcome,
    NoMatch,
    OverBudget,
    Remove,
    Replace,
    Scope,
    Suggestion,
    Target,
    Who,
)


@dataclass(frozen=True, slots=True)
class Place:
    """One curated document: whose (profile, project or user) and which of the two."""

    target: Target
    profile: str = ""
    project: str = ""
    user: str = ""

    @staticmethod
    def of(target: Target, scope: Scope) -> Place:
        """MEMORY.md belongs to the home or to a project, USER.md to the home or to a user."""
        if target == "memory":
            return Place(target, scope.profile, project=scope.project)
        return Place(target, scope.profile, user=scope.user)

    @property
    def scope(self) -> Scope:
        return Scope(self.profile, self.project, self.user)

    @property
    def key(self) -> dict[str, str]:
        """Return the columns that every table uses for a document."""
        return {"profile": self.profile, "project": self.project, "user": self.user, "target": self.target}


@dataclass(frozen=True, slots=True)
class MemoryDocument:
    """A curated document as it was found: its text, or why it cannot be read. `version` changes with its bytes."""

    text: str
    version: str
    trouble: str = ""
    raw: bytes | None = None
    """The bytes, when they are there but are not text."""
    edited_from: str | None = None
    """The text before, when taking hold of the document just recorded an edit by hand."""


class Moved(NamedTuple):
    """An entry that a change moves to the archive, and the terms by which it is found there."""

    text: str
    why: Kept
    terms: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class NewChange:
    """A change about to be made, as the history will keep it."""

    author: Author
    action: str
    reason: str = ""
    undoes: int | None = None
    notes: Mapping[str, Entry] | None = None
    """Metadata of the entries that the change writes, by text."""
    moved: Sequence[Moved] = ()
    """Entries that go to the archive in the same transaction: they are never in neither place."""


_BLANK = (
    "\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000\ufeff"
)
"""Characters that `str.strip` removes, and the byte-order mark, which the first entry of a file would lose when
read.
"""


def parse(text: str) -> list[str]:
    """Split a file's text into its entries."""
    pieces = (_trim(piece) for piece in clean(text).split(DELIMITER))
    return [piece for piece in pieces if piece]


def join(entries: Iterable[str]) -> str:
    """Return the text of a file with these entries, without a trailing newline."""
    return DELIMITER.join(entries)


def used(entries: Sequence[str]) -> int:
    """Count the characters of the joined text, delimiters included."""
    return sum(map(len, entries)) + len(DELIMITER) * max(0, len(entries) - 1)


def unique(entries: Iterable[str]) -> list[str]:
    """Drop word-for-word repetitions, keeping the first."""
    return list(dict.fromkeys(entries))


def hash_of(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def unfit(content: str) -> str | None:
    """Return why a stripped text cannot be one entry; None if it can."""
    if not content:
        return "The entry is empty."
    if "§" in content and any(line.strip() == "§" for line in content.splitlines()):
        return "A line of its own with only `§` separates entries; add the parts as entries of their own."
    if "\x00" in content:
        return "The entry contains a NUL character."
    if any("\ud800" <= character <= "\udfff" for character in content):
        return "The entry contains half of a surrogate pair, which is not text."
    return None


def clean(content: str) -> str:
    """Return a text as it is stored: newlines unified, outer blanks removed."""
    return content.replace("\r\n", "\n").replace("\r", "\n").strip(_BLANK)


def _trim(piece: str) -> str:
    """Strip blanks, and delimiter lines at the end, which would swallow the next entry when joined."""
    piece = piece.strip(_BLANK)
    if not piece.endswith("\n§"):
        return piece
    end = len(piece)
    while piece.endswith("\n§", 0, end):
        end -= 2
        while end and piece[end - 1] in _BLANK:
            end -= 1
    return piece[:end]


# ── operations ───────────────────────────────────────────────────────────────────────────────────────────────────────

PREVIEW = 80


class Sizes(TypedDict):
    """The fields of every outcome that describe the file."""

    target: Target
    entry_count: int
    used: int
    limit: int


class ApplyResult(NamedTuple):
    """The outcome and the entries after it: the same as before unless the outcome is `Applied`."""

    outcome: MemoryOutcome
    entries: tuple[str, ...]
    successors: Mapping[str, str] = {}
    """Replaced entry → the entry that took its place and inherits its metadata."""


def apply(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target = "memory") -> ApplyResult:
    """Apply all of `ops`, or none: then the outcome names the first operation that failed."""
    before = tuple(entries)
    now = list(entries)
    heirs: dict[str, str] = {}
    for number, op in enumerate(ops, 1):
        failure = _step(now, op, limit, target, heirs)
        if failure is not None:
            return ApplyResult(_in_batch(failure, number, len(ops), before), before)
    if now == list(before):
        only_added = all(isinstance(op, Add) for op in ops)
        same = "Nothing to change: the entries are like that already."
        message = "Entry already exists (no duplicate added)." if only_added else same
        return ApplyResult(Duplicate(message=message, **sizes(before, limit, target)), before)
    size = used(now)
    known = set(before)
    longest = max((len(entry) for entry in now if entry not in known), default=0)
    if (size > limit and size >= used(before)) or longest > limit:
        return ApplyResult(_over_budget(before, size, longest, limit, target, ops), before)
    successors = {old: new for new, old in heirs.items() if old in known}
    return ApplyResult(Applied(message=done_message(ops), **sizes(now, limit, target)), tuple(now), successors)


def operations_of(ops: object) -> tuple[MemoryOp, ...]:
    """Check one operation or several, as a caller gave them. `UsageError` names the first field that is wrong."""
    several = isinstance(ops, Sequence) and not isinstance(ops, str | bytes)
    operations: tuple[MemoryOp, ...] = tuple(ops) if isinstance(ops, Sequence) and several else (ops,)  # type: ignore[assignment]
    if not operations:
        raise UsageError(
            "An empty list of operations changes nothing.", hint="Give at least one Add, Replace or Remove."
        )
    for number, op in enumerate(operations, 1):
        if not isinstance(op, Add | Replace | Remove):
            raise UsageError(
                f"Memory is changed by Add, Replace and Remove, not by {type(op).__name__}; nothing was written.",
                hint='For example: Add("…").',
            )
        if wrong := _wrong_field(op):
            which = f" of operation {number}" if len(operations) > 1 else ""
            raise UsageError(f"{type(op).__name__}{which}: {wrong}; nothing was written.", hint='As in Add("…").')
    return operations


def _wrong_field(op: MemoryOp) -> str:
    """Return what is wrong with a field of an operation; "" if nothing is."""
    for name in ("content", "old_text"):
        value = getattr(op, name, "")
        if not isinstance(value, str):
            return f"{name} must be a str, not {type(value).__name__}"
    if isinstance(op, Remove):
        known = get_args(Kept)
        return "" if op.kept in known else f"kept is one of {', '.join(known[1:])}, not {op.kept!r:.60}"
    if op.category is not None and op.category not in CATEGORIES:
        return f"category is one of {', '.join(CATEGORIES)}, or None, not {op.category!r:.60}"
    if not isinstance(op.tags, tuple | list) or not all(isinstance(tag, str) for tag in op.tags):
        return f"tags are texts in a tuple, not {op.tags!r:.60}"
    return ""


def locate(entries: Sequence[str], old_text: str) -> list[int]:
    """Return the places of entries that contain `old_text`: only the first if all matches are identical."""
    hits = [i for i, entry in enumerate(entries) if old_text in entry]
    return hits[:1] if len({entries[i] for i in hits}) == 1 else hits


def _step(now: list[str], op: MemoryOp, limit: int, target: Target, heirs: dict[str, str]) -> MemoryOutcome | None:
    """Apply one operation to `now`, or return why not. `heirs`: replacing entry → the entry that was replaced first."""
    size = sizes(now, limit, target)
    content = "" if isinstance(op, Remove) else clean(op.content)
    if not isinstance(op, Remove) and (problem := unfit(content)):
        if isinstance(op, Replace) and not content:
            problem = "The new text is empty; use remove to delete an entry."
        return Blocked(message=problem, **size)
    if isinstance(op, Add):
        if content not in now:
            now.append(content)
        return None
    old_text = clean(op.old_text)
    if op.reworded if isinstance(op, Replace) else op.kept:  # `old_text` is the whole entry
        hits = [at for at, entry in enumerate(now) if entry == old_text][:1]
    else:
        hits = locate(now, old_text) if old_text else []
    if not hits:
        what = f"No entry contains {_quote(old_text)}." if old_text else "old_text is empty, so it locates no entry."
        return NoMatch(message=what, entries=tuple(now), **size)
    if len(hits) > 1:
        matches = tuple(_preview(now[i]) for i in hits)
        text = f"{len(hits)} different entries contain {_quote(old_text)}; quote more of the one you mean."
        return Ambiguous(message=text, matches=matches, **size)
    replaced = now.pop(hits[0])
    ancestor = heirs.pop(replaced, replaced)
    if isinstance(op, Replace) and content not in now:  # else it became word for word another entry: one is enough
        now.insert(hits[0], content)
        heirs[content] = ancestor
    return None


def _over_budget(
    before: tuple[str, ...], size: int, longest: int, limit: int, target: Target, ops: Sequence[MemoryOp]
) -> OverBudget:
    what = "This" if len(ops) == 1 else "Together these operations"
    message = (
        f"{what} would bring {target} to {size:,} of {limit:,} characters ({size - limit:,} too many). "
        "Merge or drop entries first."
        if longest <= limit
        else f"One entry of {longest:,} characters cannot fit into {target}, which has {limit:,}. Shorten it."
    )
    return OverBudget(message=message, entries=before, needed=size, **sizes(before, limit, target))


def _in_batch(failure: MemoryOutcome, number: int, count: int, before: tuple[str, ...]) -> MemoryOutcome:
    """In a batch, name the operation that failed and say that none was applied; sizes are those of the file."""
    if count == 1:
        return failure
    message = f"Operation {number}: {failure.message} No operation was applied."
    failure = replace(failure, message=message, entry_count=len(before), used=used(before))
    return replace(failure, entries=before) if isinstance(failure, NoMatch) else failure


def done_message(ops: Sequence[MemoryOp]) -> str:
    """Return a sentence: these operations were applied."""
    if len(ops) > 1:
        return f"Applied {len(ops)} operation(s)."
    return f"Entry {'added' if isinstance(ops[0], Add) else 'replaced' if isinstance(ops[0], Replace) else 'removed'}."


def sizes(entries: Sequence[str], limit: int, target: Target) -> Sizes:
    return {"target": target, "entry_count": len(entries), "used": used(entries), "limit": limit}


def _quote(text: str) -> str:
    return f"“{_preview(text)}”"


def _preview(entry: str) -> str:
    return entry if len(entry) <= PREVIEW else entry[:PREVIEW] + "..."


# ── an agent that drops an entry only because another would not fit: the entry is still true ─────────────────────

_ABOUT = 1 / 3
"""The share of the content words of an old text that a new text about the same has."""


def making_room(entries: Sequence[str], ops: Sequence[MemoryOp], limit: int, target: Target) -> tuple[MemoryOp, ...]:
    """Return the operations, with removals that only make room turned into moves to the archive.

    A removal only makes room if the rest would not fit without it, and if no written text is about the same: such a
    text replaces the old one, which may be wrong by now.
    """
    written = [op for op in ops if not isinstance(op, Remove)]
    if not any(isinstance(op, Remove) and not op.kept for op in ops) or not written:
        return tuple(ops)
    without = [op for op in ops if not isinstance(op, Remove) or op.kept]
    if not isinstance(apply(entries, without, limit, target).outcome, OverBudget):
        return tuple(ops)
    return tuple(_kept(op, entries, written) for op in ops)


def _kept(op: MemoryOp, entries: Sequence[str], written: Sequence[Add | Replace]) -> MemoryOp:
    if not isinstance(op, Remove) or op.kept or not (old := clean(op.old_text)):
        return op
    hits = locate(entries, old)
    if len(hits) != 1 or any(is_about(entries[hits[0]], one.content) for one in written):
        return op
    return replace(op, old_text=entries[hits[0]], kept="room")


def is_about(old: str, new: str) -> bool:
    """Return whether two texts share content: long words, and pairs of characters in scripts without spaces."""
    said, now = _telling(old), _telling(new)
    return not said or len(said & now) >= _ABOUT * len(said)


def _telling(text: str) -> set[str]:
    folded = text.casefold()
    runs = [run for run in re.findall(r"[^\W\d_a-z]{2,}", folded) if not run.isascii()]
    pairs = {run[at : at + 2] for run in runs for at in range(len(run) - 1)}
    return set(re.findall(r"[a-z]{4,}|\d{2,}", folded)) | pairs


# ── which entries are worth most ─────────────────────────────────────────────────────────────────────────────────────


@cache
def _kinds() -> dict[str, LazyPattern]:
    """Return the kinds of entries that should stay longest, by their words in English and Chinese."""
    kinds: dict[str, list[str]] = {}
    for line in Path(__file__).with_name("lasting.txt").read_text("utf-8").splitlines():
        kind, _, words = line.partition(": ")
        kinds.setdefault(kind, []).append(words)
    return {kind: LazyPattern("|".join(words), re.IGNORECASE) for kind, words in kinds.items()}


PINNED = "pinned"
"""A tag that keeps an entry where and as it is."""
_WORTH: Mapping[str, float] = {"preference": 2.0, "lesson": 1.5, "convention": 1.5}
"""The worth of a category; any other is worth 1."""
_PREFERENCE = LazyPattern(
    r"\bprefer|\bfavou?rite|\b(?:(?:dis)?likes?|loves?|hates?|enjoys?|avoids?)\b|喜欢|喜歡|讨厌|討厭|偏好|宁愿|寧願",
    re.IGNORECASE,
)


def lasting(entry: Entry | str) -> str:
    """Return the kind of an entry that should go last (health, safety, identity, standing instruction), or ""."""
    text, category = (entry, None) if isinstance(entry, str) else (entry.text, entry.category)
    found = next((kind for kind, words in _kinds().items() if words.search(text)), "")
    return found or ("identity" if category == "identity" else "")


def least_valuable(entries: Iterable[Entry]) -> list[Entry]:
    """Sort entries by their value to the prompt, the least valuable first.

    Last come pinned entries, health, safety, identity and standing instructions. Before them, entries of a person are
    worth more than those of an agent. Then preferences, lessons and conventions are worth more than other categories,
    entries that were said again more than those said once, and older entries more than newer ones.
    """
    kinds = ["", *reversed(list(_kinds()))]

    def value(one: Entry) -> tuple[object, ...]:
        rank = len(kinds) if PINNED in one.tags else kinds.index(lasting(one))
        category = one.category or ("preference" if _PREFERENCE.search(one.text) else "")
        written = one.changed or one.created or 0.0
        again = (one.confirmed or 0.0) > written
        return rank, one.of_a_person, _WORTH.get(category, 1.0), again, -written, -len(one.text), one.text

    return sorted(entries, key=value)


def duplicates(entries: Sequence[Entry]) -> list[tuple[Entry, Entry]]:
    """Return entries that repeat another one word for word, with the one that stays.

    Only blanks, the first letter's case and the full stop at the end may differ. Of several, a person's stays; entries
    that a person wrote, approved or pinned never go.
    """
    kept: dict[str, Entry] = {}
    for one in sorted(entries, key=lambda entry: not (entry.of_a_person or PINNED in entry.tags)):
        kept.setdefault(_same_words(one.text), one)
    return [
        (one, there)
        for one in entries
        if (there := kept[_same_words(one.text)]) is not one and not one.of_a_person and PINNED not in one.tags
    ]


def _same_words(text: str) -> str:
    plain = " ".join(text.split()).rstrip(".。 ")
    return plain[:1].casefold() + plain[1:]


# ── how to make room: near-duplicates to merge first, then the least valuable entries ────────────────────────────────

SIMILAR = 72.0
"""Token-set similarity, 0 to 100, of two entries that say the same."""

MOST = 3
_ENTRIES_COMPARED = 200
"""Least valuable entries that are compared with each other: the work grows with the square."""


def suggest(entries: Iterable[Entry], excess: int) -> tuple[Suggestion, ...]:
    """Return at most three suggestions, the most useful first; together they free `excess` characters if they can.

    Identity, health, safety and standing instructions are suggested only after everything else.
    """
    ordered = least_valuable(one for one in entries if PINNED not in one.tags)
    kinds = {one.text: lasting(one) for one in ordered}
    alike = _merges([one.text for one in ordered][:_ENTRIES_COMPARED])
    merges = [one for one in alike if not kinds[min(one.entries, key=len)]]  # the longer stays
    spoken_for = {entry for merge in merges for entry in merge.entries}
    delimiter = len(DELIMITER) if len(ordered) > 1 else 0
    drops = [
        Suggestion("drop", (one.text,), len(one.text) + delimiter, _why(one, kinds[one.text]))
        for one in ordered
        if one.text not in spoken_for
    ]
    chosen: list[Suggestion] = []
    for suggestion in [*merges, *drops]:
        if len(chosen) == MOST or (chosen and sum(s.frees for s in chosen) >= excess):
            break
        chosen.append(suggestion)
    return tuple(chosen)


def _why(one: Entry, kind: str) -> str:
    if kind:
        return f"lowest priority of those left; this is about {kind}"
    return (
        "a person wrote it; lowest priority of those left"
        if one.of_a_person
        else "lowest priority, and the newest of these"
    )


def _merges(entries: Sequence[str]) -> list[Suggestion]:
    """Return pairs that say nearly the same, most alike first, no entry in two pairs. Merging keeps the longer one."""
    from rapidfuzz import fuzz

    numbers = {entry: set(re.findall(r"\d+", entry)) for entry in entries}  # "film 9" and "film 19" are two facts
    pairs = [
        (fuzz.token_set_ratio(longer, shorter), longer, shorter)
        for longer, shorter in combinations(sorted(entries, key=len, reverse=True), 2)
        if len(shorter) > 15 and numbers[shorter] <= numbers[longer]
    ]
    merges: list[Suggestion] = []
    taken: set[str] = set()
    for score, a, b in sorted(pairs, reverse=True):
        if score < SIMILAR or len(merges) == MOST:
            break
        if a not in taken and b not in taken:
            taken |= {a, b}
            frees = len(b) + len(DELIMITER)  # the longer stays
            merges.append(Suggestion("merge", (a, b), frees, f"{score:.0f} % alike"))
    return merges


# ── metadata of entries, carried along when they change ──────────────────────────────────────────────────────────────

_SAME_ENTRY = 60.0
"""Least similarity (0 to 100) of an entry before and after a hand edit that reworded it."""
_NOTES_COMPARED = 500
"""A hand edit that takes out more entries than this is a new file, not a reworded one."""


def notes_after(
    ops: Sequence[MemoryOp],
    result: ApplyResult,
    known: Mapping[str, Entry],
    author: Author,
    now: float,
    *,
    vouched: bool,
) -> dict[str, Entry]:
    """Return the metadata of every entry that `ops` wrote or confirmed. `known`: what was known of `inherited` before.

    An entry inherits the creation time, category and tags of the one it replaces; one that was there is confirmed.
    """
    ancestors = {new: old for old, new in result.successors.items()}
    there = set(result.entries)
    notes: dict[str, Entry] = {}
    for op in ops:
        if isinstance(op, Remove) or (text := clean(op.content)) not in there:
            continue
        before = known.get(ancestors.get(text, text))
        category = op.category or (before.category if before else None)
        tags = op.tags or (before.tags if before else ())
        if before and before.text == text:
            notes[text] = replace(
                before, category=category, tags=tags, confirmed=now, vouched=vouched or before.vouched
            )
            if not before.of_a_person and author.who is Who.USER:  # from now on it is theirs
                notes[text] = replace(notes[text], origin=author.origin, change=None)
            continue
        if before and isinstance(op, Replace) and op.reworded:  # it was not stated again
            notes[text] = replace(before, text=text, category=category, tags=tags, vouched=False, change=None)
            continue
        notes[text] = Entry(
            text=text,
            category=category,
            tags=tags,
            origin=author.origin,
            vouched=vouched,
            created=before.created if before and before.created is not None else now,
            changed=now,
            confirmed=now,
        )
    return notes


def inherited(before: Sequence[str], ops: Sequence[MemoryOp], result: ApplyResult) -> list[str]:
    """Return the entries whose metadata `notes_after` builds on: those that were replaced or confirmed."""
    again = {clean(op.content) for op in ops if not isinstance(op, Remove)}
    return [*result.successors, *(text for text in before if text in again and text not in result.successors)]


def carried_over(before: Sequence[str], after: Sequence[str], known: Mapping[str, Entry], now: float) -> list[Entry]:
    """Return metadata for entries of a hand edit: inherited from the entry that was reworded, else new.

    A person's trust in a text does not extend to another text.
    """
    from rapidfuzz import fuzz, process

    old, new = set(before), set(after)
    removed = [entry for entry in before if entry not in new]
    notes = []
    for text in after:
        if text in old or text in known:
            continue
        near = removed if len(removed) <= _NOTES_COMPARED else ()
        best = process.extractOne(text, near, scorer=fuzz.ratio, score_cutoff=_SAME_ENTRY) if near else None
        if best:
            removed.remove(best[0])
        source = known.get(best[0]) if best else None
        entry = source or Entry(text, created=now)
        notes.append(replace(entry, text=text, by=None, vouched=False, changed=now, confirmed=now, change=None))
    return notes


# ── entries out of any other file ────────────────────────────────────────────────────────────────────────────────────

_HEADING = re.compile(r"#{1,6}[ \t]+(?P<text>\S.*?)(?:[ \t]#*)?$")
_BULLET = re.compile(r"(?:[-*+•]|\d{1,3}[.)])[ \t]+(.*)$")
_FENCE = ("```", "~~~")
_BREAKS = (re.compile(r"\n\s*\n"), re.compile(r"\n"), re.compile(r"[.!?]\s+|[。！？](?=[\s\S])"), re.compile(r"\s+"))


def decode(raw: bytes) -> str:
    """Decode bytes that are not UTF-8: UTF-16 with its mark, else UTF-8 in which wrong bytes are of Windows-1252."""
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        return raw.decode("utf-16", "replace")
    codecs.register_error("herma.windows", _as_windows)
    return raw.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "herma.windows")


def _as_windows(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    wrong = error.object[error.start : error.end]
    return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in wrong), error.end


def split(text: str, limit: int) -> list[str]:
    """Split any text into entries of at most `limit` characters: by `§`, else by bullet, with its heading as prefix."""
    pieces = parse(text)
    if len(pieces) == 1:
        pieces = list(_by_bullet(pieces[0]))
    return unique(entry for piece in pieces for part in _shorten(piece, limit) for entry in parse(part))


def _by_bullet(text: str) -> Iterator[str]:
    """Yield one entry per bullet or paragraph.

    Continuation lines, deeper bullets and code stay with theirs. Headings become prefixes; one with nothing of its
    own below it becomes an entry.
    """
    heading, current = "", ""
    in_bullet = fenced = spoken = False
    for line in [*text.splitlines(), ""]:
        stripped = line.strip()
        fence = stripped.startswith(_FENCE)
        titled = None if fenced else _HEADING.match(stripped)
        bullet = None if fenced else _BULLET.match(line)
        continues = bool(current) and bool(stripped) and titled is None and not bullet
        if continues and (fenced or fence or not in_bullet or line[:1].isspace()):
            current += "\n" + line.rstrip()
            fenced ^= fence
            continue
        if current:
            yield current
            current = ""
        if titled is not None:
            if heading and not spoken:
                yield heading
            heading, in_bullet, spoken = titled["text"], False, False
        elif stripped:
            in_bullet = bullet is not None
            body = bullet[1] if bullet else stripped
            current, spoken = f"{heading}: {body}" if heading else body, True
            fenced ^= fence
    if heading and not spoken:
        yield heading


def _shorten(piece: str, limit: int) -> Iterator[str]:
    """Cut after the last paragraph, else line, sentence or word that fits, until every part does."""
    start = 0
    while len(piece) - start > limit:
        window = piece[start : start + limit + 1]
        ends = ([match.end() for match in break_.finditer(window)] for break_ in _BREAKS)
        cut = next((found[-1] for found in ends if found), limit)
        yield window[:cut].strip()
        start += cut
    yield piece[start:].strip()
