"""Read any text as a query: words, operators, filters, brackets and dates; and describe it in words.

    docker config            messages with either word; more and rarer words rank higher
    "connection reset"       the words in this order
    login AND (sso OR saml)  each side must occur; OR binds tighter than AND, and brackets bind tightest
    -staging  NOT staging    must not occur; as do NOT (staging OR canary), -source:cron
    deploy*                  a prefix
    role:user source:cli project:shop session:ID
    since:2026-03 before:yesterday on:2026-03-05 since:7d

Nothing is a syntax error; `describe` says how a query was read. Dates in plain language ("last week", "in March") are
read too: they filter if they can only mean the time of the conversation, and otherwise prefer. Also here: the values
that a search takes and returns, and how its arguments are checked.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Generic, Literal, NamedTuple, TypedDict, TypeVar, get_args

from herma.errors import UsageError
from herma.search.dates import MOST_WORDS, Span, framing, read_value, spoken, two_readings, words_of_date
from herma.text import CJK, CJK_FILLERS, HAS_CJK, NAMES, RIGHT, STOP_WORDS, LazyPattern, strip
from herma.types import Scope, SessionInfo

# ── what a search returns ──


@dataclass(frozen=True, slots=True)
class Hit:
    """A message that was found, and why."""

    session_id: str
    message_id: int
    role: str
    snippet: str
    score: float
    timestamp: float
    conversation: str
    session: SessionInfo | None = None
    why: tuple[str, ...] = ()
    outdated_by: int | None = None
    """A later message that contradicts this one, which is possibly outdated."""


@dataclass(frozen=True, slots=True)
class Dropped:
    """The number of matches that a rule hid, and how to see them."""

    rule: str
    count: int
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A model's summary of what a conversation says about the question. Without a text, `note` says why.

    The model got `characters` of the conversation's `of`.
    """

    conversation: str
    session_id: str
    text: str = ""
    note: str = ""
    model: str = ""
    seconds: float = 0.0
    characters: int = 0
    of: int = 0


@dataclass(frozen=True, slots=True)
class SearchReport:
    """The hits, the parsed query, the searched parts and the hidden hits."""

    query: str
    hits: tuple[Hit, ...] = ()
    understood: str = ""
    searched: str = ""
    sessions: int = 0
    """Number of sessions in the home."""
    dropped: tuple[Dropped, ...] = ()
    notes: tuple[str, ...] = ()
    lag: int = 0
    took_ms: float = 0.0
    mode: str = "words"
    """The mode of the search: hybrid, words or vectors; words too if there were no vectors to compare."""
    embedding_ms: float = 0.0
    """Milliseconds for embedding the question."""
    widened: bool = False
    """True if the query found nothing, and the hits are those of a wider one."""
    also: tuple[str, ...] = ()
    """Words that a model proposed and that were searched for too."""
    summaries: tuple[ConversationSummary, ...] = ()
    """If requested: summaries of the first conversations, in the order of the hits."""


# ── AND, OR and brackets, read from left to right into groups of which each must occur: pure, linear ──
#
#     a b OR c             [a b c]               side by side is an OR: any of them
#     a AND (b OR c)       [a] [b c]
#     (a AND b) OR c       [a c] [b c]           the same as groups
#     NOT (a OR b)         neither
#
# A bracket that is not closed ends with the text; one that was never opened is ignored.

T = TypeVar("T")

MOST_GROUPS = 16
"""Groups that one bracket may have; more are joined into one."""
MOST_DEPTH = 32
"""Brackets within brackets that are followed."""


@dataclass(slots=True)
class _Level(Generic[T]):
    """The groups of one pair of brackets: those that an AND closed, and those that still grow."""

    closed: list[list[T]] = field(default_factory=list)
    growing: list[list[T]] = field(default_factory=list)
    negated: bool = False


class Groups(Generic[T]):
    """Build groups piece by piece."""

    def __init__(self) -> None:
        self._levels: list[_Level[T]] = [_Level()]
        self._too_deep = 0
        self.loosened = False
        """True if there were too many brackets to follow."""

    @property
    def negated(self) -> bool:
        """Return whether the next piece is in a bracket that must not occur."""
        return self._levels[-1].negated

    def put(self, item: T) -> None:
        growing = self._levels[-1].growing
        if not growing:
            growing.append([])
        for group in growing:
            group.append(item)

    def conjoin(self) -> None:
        """Close the growing groups, at an AND."""
        level = self._levels[-1]
        level.closed += level.growing
        level.growing = []

    def open(self, *, negated: bool) -> None:
        if len(self._levels) > MOST_DEPTH:
            self._too_deep += 1
            return
        self._levels.append(_Level(negated=negated or self._levels[-1].negated))

    def close(self) -> list[list[T]]:
        """Close a bracket. → its groups if they must not occur; other groups join the bracket around it."""
        if self._too_deep or len(self._levels) == 1:
            self._too_deep = max(0, self._too_deep - 1)
            return []
        self.conjoin()
        level = self._levels.pop()
        if level.negated:
            return level.closed
        if level.closed:
            around = self._levels[-1]
            around.growing = self._either(around.growing, level.closed)
        return []

    def finish(self) -> tuple[list[list[T]], list[T]]:
        """→ the groups, and what must not occur because of a bracket that was never closed."""
        unwanted, self._too_deep = list[T](), 0
        while len(self._levels) > 1:
            unwanted += [item for group in self.close() for item in group]
        self.conjoin()
        return self._levels[0].closed or [[]], unwanted

    def _either(self, some: list[list[T]], others: list[list[T]]) -> list[list[T]]:
        """Return groups that mean: all of these, or all of those."""
        if not some:
            return others
        if len(some) == len(others) == 1:
            some[0].extend(others[0])
            return some
        if self.loosened or len(some) * len(others) > MOST_GROUPS:
            self.loosened = True
            whole = some[0] if len(some) == 1 else [item for group in some for item in group]
            whole.extend(item for group in others for item in group)
            return [whole]
        return [[*one, *other] for one in some for other in others]


# ── the query ──

MOST_TERMS = 64
"""Distinct words and phrases that are used: enough to find a pasted page."""
MOST_TEXT = 20_000
"""Characters that are read."""

LONGEST_WORD = 1_000
"""Characters of one word that are looked for."""
MOST_PARTS, PARTS_IN_ALL = 32, 128
"""Parts of one phrase or joined word (`a.b.c`) that are looked for, and of all of them. The index compares every part
with every place of the part before it, so parts that a text repeats are expensive.
"""
_BRIEF = 80

Kind = Literal["word", "phrase", "prefix"]


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for, as it was written."""

    text: str
    kind: Kind = "word"

    def __str__(self) -> str:
        text = brief(self.text)
        return {"word": text, "phrase": f"“{text}”", "prefix": f"{text}*"}[self.kind]


def brief(text: str) -> str:
    """Shorten what was typed for a message."""
    return text if len(text) <= _BRIEF else text[:_BRIEF] + "…"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it was read: `any_of` ranks, one of each group in `all_of` must occur, `none_of` must not."""

    text: str
    any_of: tuple[Term, ...] = ()
    all_of: tuple[tuple[Term, ...], ...] = ()
    none_of: tuple[Term, ...] = ()
    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    """Filters that must not hold: ("source", "cron")."""
    dates: tuple[Span, ...] = ()
    ignored: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    plain: str = ""
    """The query in plain language: without filters, operators and what must not occur."""

    @property
    def hard_dates(self) -> tuple[Span, ...]:
        return tuple(span for span in self.dates if span.hard)

    @property
    def soft_dates(self) -> tuple[Span, ...]:
        return tuple(span for span in self.dates if not span.hard)


_QUOTES = str.maketrans(dict.fromkeys("“”„‟«»＂", '"') | {"’": "'", "‘": "'", "\0": " "})
_TOKEN = re.compile(r'(?P<minus>-?)(?:(?P<name>[A-Za-z]+):)?"(?P<quoted>[^"]*)"|(?P<bare>[^\s"]+)|"')
_FIELD = re.compile(r"(-?)([A-Za-z]+):(.+)$", re.DOTALL)
_FILLER = re.compile("|".join(map(re.escape, CJK_FILLERS)))
_PART = LazyPattern(rf"[{CJK}]|(?:(?![{CJK}])[^\W_])+")
_CJK_MARKS = re.compile("[，。、！？；：（）【】「」『』《》〈〉…]")
_OPENED = re.compile(r"(-|AND|OR|NOT)?(\(+)")
_ENDS = ").,;:!?…"
ROLES = {
    **{role: role for role in ("user", "assistant", "tool", "system")},
    **dict.fromkeys(("me", "human"), "user"),
    **dict.fromkeys(("agent", "ai", "bot", "model"), "assistant"),
}
_ROLE_NAMES = "user, assistant, tool, system"
LISTS = {"role": "roles", "source": "sources", "project": "projects", "session": "sessions"}
_DATES = {"since": "since", "after": "since", "before": "before", "until": "before", "on": "on", "date": "on"}


@dataclass(slots=True)
class _Reading:
    """The parts of the query that were read so far."""

    groups: Groups[Term] = field(default_factory=Groups)
    none_of: list[Term] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in LISTS})
    excluded: list[tuple[str, str]] = field(default_factory=list)
    dates: list[Span] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    negate: bool = False
    last: Term | None = None
    linked: set[Term] = field(default_factory=set)
    """Terms beside an OR."""
    link: bool = False


def parse(text: str, now: float) -> Query:
    """Read any text. Linear in its length; `now` (seconds since 1970) is what relative dates count from."""
    whole = text.encode("utf-8", "replace").decode("utf-8").translate(_QUOTES)
    reading = _Reading()
    if len(whole) > MOST_TEXT:
        reading.notes.append(f"Only the first {MOST_TEXT:,} characters of the query were read.")
        whole = whole[:MOST_TEXT]
    tokens, spent = list(_TOKEN.finditer(whole)), 0
    for place, found in enumerate(tokens):
        if spent:
            spent -= 1
        elif found["quoted"] is not None:
            _quoted(reading, found["minus"] == "-", found["name"], found["quoted"], now)
        elif found["bare"]:
            words = [one["bare"] or "" for one in tokens[place : place + MOST_WORDS]]
            name, _, value = words[0].partition(":")
            if name.lstrip("-(").casefold() in _DATES and value:  # since:last week, without quotes
                spent = words_of_date([value, *words[1:]], now) - 1
            _bracketed(reading, " ".join(words[: spent + 1]), now)
    return _finish(text, reading, now)


def _quoted(reading: _Reading, minus: bool, name: str | None, quoted: str, now: float) -> None:
    quoted = " ".join(quoted.split())
    if name and _operator(reading, name, quoted, now, minus=minus):
        return
    term = Term(_first_parts(reading, f"{name}:{quoted}" if name else quoted, "phrase"), "phrase")
    if any(letter.isalnum() for letter in term.text):
        _put(reading, term, minus)


def _bracketed(reading: _Reading, token: str, now: float) -> None:
    """Read a token, and the brackets that open before and close after it; those inside are part of it."""
    if "(" not in token and ")" not in token:
        _bare(reading, token, now)
        return
    opened = _OPENED.match(token) if "(" in token else None
    if opened:
        if opened[1] in ("AND", "OR", "NOT"):
            _bare(reading, opened[1], now)
        reading.negate = reading.negate or opened[1] == "-"
        for _ in opened[2]:
            reading.groups.open(negated=reading.negate)
            reading.negate = False
        token = token[opened.end() :]
    body = token.rstrip(_ENDS) if ")" in token else token
    closing = token[len(body) :].count(")") - max(0, body.count("(") - body.count(")"))
    if token:
        _bare(reading, token, now)
    for _ in range(closing):
        _close(reading)


def _close(reading: _Reading) -> None:
    unwanted = reading.groups.close()
    if len(unwanted) > 1:
        reading.notes.append("NOT (… AND …) was read as: none of these.")
    reading.none_of += [term for group in unwanted for term in group]


def _bare(reading: _Reading, token: str, now: float) -> None:
    operator = token.strip("()")
    if operator in ("AND", "OR", "NOT"):
        reading.negate = operator == "NOT"
        reading.operators.append(operator)
        if operator == "AND":
            reading.groups.conjoin()
        if operator == "OR" and reading.last:
            reading.linked.add(reading.last)
        reading.link = operator == "OR"
        return
    found = _FIELD.match(token) if ":" in token else None
    if found and _operator(reading, found[2], found[3], now, minus=found[1] == "-"):
        return
    minus = len(token) > 2 and token[0] == "-" and token[1].isalnum()  # not -v, not --verbose
    body = token[1:] if minus else token
    prefix = "*" in body and body.rstrip(RIGHT.replace("*", "")).endswith("*") and not HAS_CJK.search(body)
    word = strip(body[:LONGEST_WORD])
    if not word:
        return
    if len(body) > LONGEST_WORD:
        reading.notes.append(f"Of a very long word the first {LONGEST_WORD:,} characters were looked for.")
    whole, word = word, word if HAS_CJK.search(word) else _first_parts(reading, word, "word")
    prefix = prefix and word == whole
    term = Term(word, "prefix" if prefix and unicodedata.category(word[-1])[0] in "LMN" else "word")
    if not (minus or reading.negate or reading.groups.negated or prefix):
        reading.plain.append(token)
    _put(reading, term, minus)


def _parts(text: str) -> Iterator[re.Match[str]]:
    """Yield where the index divides a text. Signs that belong to a letter, such as vowels in Hindi, do not divide."""
    if not text.isascii():
        text = "".join("a" if unicodedata.category(letter)[0] == "M" else letter for letter in text)
    return _PART.finditer(text)


def _first_parts(reading: _Reading, text: str, kind: Kind) -> str:
    """Cut a phrase or a joined word to the parts that are looked for."""
    parts = list(islice(_parts(text), MOST_PARTS + 1))
    if len(parts) <= MOST_PARTS:
        return text
    reading.notes.append(f"Of a very long {kind} the first {MOST_PARTS} parts were looked for.")
    return text[: parts[-2].end()]


def _affordable(reading: _Reading, terms: Iterable[Term]) -> list[Term]:
    """Return the terms whose parts are not too many. Single words are free, and so are words of Chinese, Japanese or
    Korean, whose pairs are looked for one by one.
    """
    kept, room = list[Term](), PARTS_IN_ALL
    for term in terms:
        joined = term.kind == "phrase" or not HAS_CJK.search(term.text)
        parts = sum(1 for _ in _parts(term.text)) if joined else 1
        if parts < 2 or parts <= room:
            kept.append(term)
            room -= parts if parts > 1 else 0
        else:
            reading.notes.append("Of many long phrases and joined words only the first were looked for.")
    return kept


def _put(reading: _Reading, term: Term, minus: bool) -> None:
    if minus or reading.negate:
        reading.none_of.append(term)
        reading.negate = False
        return
    reading.groups.put(term)
    if reading.link:
        reading.linked.add(term)
    reading.last, reading.link = term, False


def _operator(reading: _Reading, name: str, value: str, now: float, *, minus: bool) -> bool:
    """Take `name:value` as a filter. → False if it is not one, and the text counts as words."""
    name, against = name.casefold(), minus or reading.negate or reading.groups.negated
    if name in LISTS:
        values = [item for item in (strip(part) for part in value.split(",")) if item]
        if name == "role":
            values = [ROLES[item.casefold()] for item in values if item.casefold() in ROLES]
            if not values:
                reading.notes.append(
                    f"“{name}:{brief(value)}” is not a role ({_ROLE_NAMES}), so it was searched as text."
                )
        if against:
            reading.excluded += [(name, item) for item in values]
        else:
            reading.lists[name].extend(values)
        reading.negate = reading.negate and not values
        return bool(values)
    if name in _DATES and value:
        span = read_value(strip(value), now)
        if span is None:
            if name != "date":
                said = f"“{name}:{brief(value)}” is not a date, so it was searched as text."
                reading.notes.append(f"{said} Try 2026-03-05, 7d or yesterday.")
            return False
        kind = _DATES[name]
        words = f"{name}:{value}"
        if kind == "since":
            span = Span(span.start, None, words)
        elif kind == "before":
            span = Span(None, span.start, words)
        reading.notes += [note for note in [two_readings(strip(value), now)] if note]
        reading.dates.append(replace(span, words=words, hard=True, at=(0, 0), outside=against))
        reading.negate = False
        return True
    return False


def _finish(text: str, reading: _Reading, now: float) -> Query:
    plain = " ".join(reading.plain)
    read, unwanted = reading.groups.finish()
    if reading.groups.loosened:
        reading.notes.append("There are too many brackets: any of the words in them is searched for.")
    dated, spent = spoken(plain, now, filtered=bool(reading.dates))
    framed, ignored = spent | framing(plain), list[str]()
    groups = [_content(group, framed, ignored) for group in read]
    if not any(groups):  # nothing but phrases such as "can you list"
        ignored = []
        groups = [_content(group, spent, ignored) for group in read]
    if not any(groups) and not dated:
        groups, ignored = [[term for group in read for term in _split_cjk(group)]], []
    none_of = [*reading.none_of, *unwanted]
    if not any(groups) and not any((dated, none_of, reading.excluded, reading.dates, *reading.lists.values())):
        groups = [[Term(operator) for operator in reading.operators]]
    every = _affordable(reading, dict.fromkeys(term for group in groups for term in group))
    if len(every) > MOST_TERMS:
        reading.notes.append(f"Only the first {MOST_TERMS} of {len(every):,} different words were used.")
        every = every[:MOST_TERMS]
    return Query(
        text=text,
        any_of=tuple(every),
        all_of=_required(groups, every, reading.linked),
        none_of=tuple(_affordable(reading, dict.fromkeys(none_of)))[:MOST_TERMS],
        excluded=tuple(dict.fromkeys(reading.excluded)),
        dates=(*reading.dates, *dated),
        ignored=tuple(dict.fromkeys(ignored)),
        notes=tuple(dict.fromkeys(reading.notes)),
        plain=" ".join([plain, *dict.fromkeys(term.text for group in read for term in group if term.kind == "phrase")]),
        **{LISTS[name]: tuple(dict.fromkeys(values)) for name, values in reading.lists.items()},
    )


def _required(
    groups: Sequence[Sequence[Term]], kept: Sequence[Term], linked: set[Term]
) -> tuple[tuple[Term, ...], ...]:
    """Return what must occur: every group joined by AND; and quoted phrases, one of those that are side by side, or
    what an OR gives beside one.
    """
    known = set(kept)
    required = []
    for group in groups:
        alternatives = tuple(dict.fromkeys(term for term in group if term in known))
        phrases = tuple(term for term in alternatives if term.kind == "phrase")
        either = tuple(term for term in alternatives if term in linked)
        if len(groups) > 1:
            required.append(alternatives)
        elif phrases and not any(term in linked for term in phrases):
            required.append(phrases)
        elif phrases and len(either) < len(alternatives):
            required.append(tuple(term for term in alternatives if term in linked or term.kind == "phrase"))
    return tuple(dict.fromkeys(group for group in required if group))


def _content(group: Iterable[Term], spent: set[str], ignored: list[str]) -> list[Term]:
    """Return the terms without fillers and parts of a date that was read."""
    terms = _split_cjk(group, [word for word in spent if HAS_CJK.search(word)])
    shouting = not any(letter.islower() for term in terms for letter in term.text)
    kept = []
    for place, term in enumerate(terms):
        if term.kind == "word" and (term.text.casefold() in spent or _is_filler(term.text, place, shouting=shouting)):
            ignored.append(term.text)
        else:
            kept.append(term)
    return kept


def _is_filler(word: str, place: int, *, shouting: bool) -> bool:
    if word.casefold() not in STOP_WORDS:
        return False
    if not shouting and len(word) > 1 and word.isupper():
        return False  # IT, US, WHO
    return not (place and word in NAMES)


def _split_cjk(group: Iterable[Term], spent: Iterable[str] = ()) -> list[Term]:
    """Cut the fillers out of runs of Chinese, Japanese and Korean; a term that is all filler stays whole."""
    terms, cut = list[Term](), None
    for term in group:
        if term.kind != "word" or term.text.isascii() or not HAS_CJK.search(term.text):
            terms.append(term)
            continue
        cut = cut or re.compile("|".join(map(re.escape, sorted(spent, key=len, reverse=True))) or "(?!)")
        text = cut.sub(" ", term.text)
        words = [strip(word) for word in _CJK_MARKS.sub(" ", _FILLER.sub(" ", text)).split()]
        terms.extend(Term(word) for word in words if word)
        if not any(words) and text.strip():
            terms.append(term)
    return terms


def describe(query: Query) -> str:
    """Return how a query was read, in one sentence that a person can check."""
    parts = []
    must = {term for group in query.all_of for term in group}
    free = [term for term in query.any_of if term not in must]
    if query.all_of:
        parts.append("must contain " + " and ".join(_either(group) for group in query.all_of))
    if free:
        verb = "ranked by" if query.all_of else ("with" if len(free) == 1 else "with any of")
        parts.append(f"{verb} {_list(free)}")
    if query.none_of:
        parts.append(f"without {_list(query.none_of)}")
    for name, values in (("role", query.roles), ("source", query.sources), ("project", query.projects)):
        if values:
            parts.append(f"{name} {' or '.join(values)}")
    if query.sessions:
        parts.append(f"in session {' or '.join(query.sessions)}")
    parts.extend(f"not {name} {value}" for name, value in query.excluded)
    parts.extend(_dated(span) for span in query.dates)
    if not parts:
        return "Nothing to look for."
    sentence = "Messages " + "; ".join(parts) + "."
    if query.ignored:
        sentence += f" Not searched for: {', '.join(query.ignored[:12])}."
    return sentence


def _dated(span: Span) -> str:
    edge = ""
    if span.since is not None and span.before is not None:
        edge = f"{_described_moment(span.since)} to {_described_moment(span.before)}"
    elif span.since is not None:
        edge = f"from {_described_moment(span.since)} on"
    elif span.before is not None:
        edge = f"before {_described_moment(span.before)}"
    outside = "not " if span.outside else ""
    return f"“{span.words}” read as {outside}{edge}{'' if span.hard else ' (preferred, not required)'}"


def _described_moment(seconds: float) -> str:
    local = time.localtime(seconds)
    return time.strftime("%Y-%m-%d" if local[3:5] == (0, 0) else "%Y-%m-%d %H:%M", local)


def _either(group: Sequence[Term]) -> str:
    words = " or ".join(map(str, group[:8]))
    return f"({words})" if len(group) > 1 else words


def _list(terms: Sequence[Term]) -> str:
    more = f" and {len(terms) - 12} more" if len(terms) > 12 else ""
    return ", ".join(map(str, terms[:12])) + more


# ── the arguments of a search: a wrong one is an error, and never taken for something else ──

Level = Literal["session", "message"]
Sort = Literal["newest", "oldest"] | None
Mode = Literal["hybrid", "words", "vectors"]
MODES: tuple[Mode, ...] = get_args(Mode)
MOST_HITS = 200
_FAR = 200_000_000_000
"""Seconds from 1970 that still have a date (the year 8307); infinity and NaN are not below it."""


class SearchOptions(TypedDict, total=False):
    """The options of a search."""

    limit: int
    level: Level
    scope: Scope | None
    current_session: str | None
    role: str | Sequence[str] | None
    source: str | Sequence[str] | None
    project: str | Sequence[str] | None
    since: str | float | None
    before: str | float | None
    sort: Sort
    include_archived: bool
    explain: bool
    mode: Mode | None


class AnswerOptions(NamedTuple):
    """The expected form of the answer."""

    limit: int
    level: Level
    sort: Sort
    explain: bool
    mode: Mode = "hybrid"


def several(value: str | Sequence[str] | None) -> tuple[str, ...]:
    given = value.split(",") if isinstance(value, str) else value or ()
    return tuple(item.strip() for item in given if item.strip())


def known_roles(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """Return the roles that are named, by any of their names."""
    return tuple(ROLES[name.casefold()] for name in several(value) if name.casefold() in ROLES)


def no_roles(value: str | Sequence[str] | None) -> list[str]:
    return [
        f"{brief(name)!r} is not a role (user, assistant, tool, system); it was not used."
        for name in several(value)
        if name.casefold() not in ROLES
    ]


def edges(since: str | float | None, before: str | float | None, now: float) -> list[Span]:
    """Return the spans of these keyword arguments, which were checked."""
    spans = []
    if since not in (None, ""):
        spans.append(Span(moment_of("since", since, now), None, f"since:{since}"))
    if before not in (None, "") and (at := moment_of("before", before, now)) is not None:
        spans.append(Span(None, at, f"before:{before}"))
    return [span for span in spans if (span.since, span.before) != (None, None)]


def moment_of(name: str, value: str | float | None, now: float) -> float | None:
    """Return the beginning of a time, given in seconds or as in a query; None for one without a beginning."""
    if isinstance(value, str) and (span := read_value(value, now)) is not None:
        return span.start
    if isinstance(value, str) or value is None or not abs(value) < _FAR:
        raise UsageError(
            f"{name}: {value!r:.40} is not a date.",
            hint="Use 2026-03-05, 2026-03, 7d, yesterday or 'last week', or seconds since 1970.",
        )
    return value
