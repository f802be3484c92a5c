"""The query language: any text → `Query`. Nothing is ever a syntax error; `described` says how it was read.

    docker config            messages with either word; more and rarer words rank higher
    "connection reset"       the words in this order
    login AND (sso OR saml)  each side must occur; OR binds tighter than AND, and brackets bind tightest
    -staging  NOT staging    must not occur; as do NOT (staging OR canary), -source:cron
    deploy*                  the beginning of a word
    role:user source:cli project:shop session:ID
    since:2026-03 before:yesterday on:2026-03-05 since:7d

Dates in plain language ("last week", "in March") are read too. They filter where they can mean nothing but the time of
the conversation, and otherwise prefer.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from herma.recall.brackets import Groups
from herma.recall.dates import MOST_WORDS, Span, read_value, words_of_date
from herma.recall.stopwords import CJK_FILLERS, NAMES, STOP_WORDS
from herma.recall.stripped import HAS_CJK, RIGHT, strip
from herma.recall.when_told import framing, spoken

MOST_TERMS = 64
"""Distinct words and phrases that are used; a pasted page needs no more to be found."""
MOST_TEXT = 20_000
"""Characters that are read."""

LONGEST_WORD = 1_000
"""Characters of one word that are looked for."""
TOLD = 80
"""Characters of a term that are said back."""

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
    """As much of what was typed as shows what is meant."""
    return text if len(text) <= TOLD else text[:TOLD] + "…"


@dataclass(frozen=True, slots=True)
class Query:
    """A query as it was read: `any_of` ranks, of each group in `all_of` one must occur, `none_of` must not."""

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
    """What was asked in plain language: without filters, operators and what must not occur."""

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
_CJK_MARKS = re.compile("[，。、！？；：（）【】「」『』《》〈〉…]")
_OPENED = re.compile(r"(-|AND|OR|NOT)?(\(+)")
_ENDS = ").,;:!?…"
ROLES = {
    **{role: role for role in ("user", "assistant", "tool", "system")},
    **dict.fromkeys(("me", "human"), "user"),
    **dict.fromkeys(("agent", "ai", "bot", "model"), "assistant"),
}
_ROLE_NAMES = "user, assistant, tool, system"
_LISTS = {"role": "roles", "source": "sources", "project": "projects", "session": "sessions"}
_DATES = {"since": "since", "after": "since", "before": "before", "until": "before", "on": "on", "date": "on"}


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    groups: Groups[Term] = field(default_factory=Groups)
    none_of: list[Term] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _LISTS})
    excluded: list[tuple[str, str]] = field(default_factory=list)
    dates: list[Span] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    negate: bool = False
    last: Term | None = None
    linked: set[Term] = field(default_factory=set)
    """What stands beside an OR."""
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


# ── one token at a time ──


def _quoted(reading: _Reading, minus: bool, name: str | None, quoted: str, now: float) -> None:
    quoted = " ".join(quoted.split())
    if name and _operator(reading, name, quoted, now, minus=minus):
        return
    term = Term(f"{name}:{quoted}" if name else quoted, "phrase")
    if any(letter.isalnum() for letter in term.text):
        _put(reading, term, minus)


def _bracketed(reading: _Reading, token: str, now: float) -> None:
    """A token, and the brackets that open before and close after it; those inside of it are part of it."""
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
    term = Term(word, "prefix" if prefix and unicodedata.category(word[-1])[0] in "LMN" else "word")
    if not (minus or reading.negate or reading.groups.negated or prefix):
        reading.plain.append(token)
    _put(reading, term, minus)


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
    """Take `name:value` as a filter. False: it is none, so the text counts as words."""
    name, against = name.casefold(), minus or reading.negate or reading.groups.negated
    if name in _LISTS:
        values = [item for item in (strip(part) for part in value.split(",")) if item]
        if name == "role":
            values = [ROLES[item.casefold()] for item in values if item.casefold() in ROLES]
            if not values:
                reading.notes.append(f"{name}:{brief(value)} names no role ({_ROLE_NAMES}): read as words.")
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
                reading.notes.append(
                    f"{name}:{brief(value)} is no date I can read (2026-03-05, 7d, yesterday): read as words."
                )
            return False
        kind = _DATES[name]
        words = f"{name}:{value}"
        if kind == "since":
            span = Span(span.since, None, words)
        elif kind == "before":
            span = Span(None, span.since, words)
        reading.dates.append(replace(span, words=words, hard=True, at=(0, 0), outside=against))
        reading.negate = False
        return True
    return False


# ── the whole ──


def _finish(text: str, reading: _Reading, now: float) -> Query:
    plain = " ".join(reading.plain)
    read, unwanted = reading.groups.finish()
    if reading.groups.loosened:
        reading.notes.append("There are too many brackets to follow each: any of what is in them is looked for.")
    dated, spent = spoken(plain, now, filtered=bool(reading.dates))
    framed, ignored = spent | framing(plain), list[str]()
    groups = [_content(group, framed, ignored) for group in read]
    if not any(groups):  # there is nothing but a frame
        ignored = []
        groups = [_content(group, spent, ignored) for group in read]
    if not any(groups) and not dated:
        groups, ignored = [[term for group in read for term in _split_cjk(group)]], []
    none_of = [*reading.none_of, *unwanted]
    if not any(groups) and not any((dated, none_of, reading.excluded, reading.dates, *reading.lists.values())):
        groups = [[Term(operator) for operator in reading.operators]]
    every = list(dict.fromkeys(term for group in groups for term in group))
    if len(every) > MOST_TERMS:
        reading.notes.append(f"Only the first {MOST_TERMS} of {len(every):,} different words were used.")
        every = every[:MOST_TERMS]
    return Query(
        text=text,
        any_of=tuple(every),
        all_of=_required(groups, every, reading.linked),
        none_of=tuple(dict.fromkeys(none_of))[:MOST_TERMS],
        excluded=tuple(dict.fromkeys(reading.excluded)),
        dates=(*reading.dates, *dated),
        ignored=tuple(dict.fromkeys(ignored)),
        notes=tuple(reading.notes),
        plain=" ".join([plain, *dict.fromkeys(term.text for group in read for term in group if term.kind == "phrase")]),
        **{_LISTS[name]: tuple(dict.fromkeys(values)) for name, values in reading.lists.items()},
    )


def _required(
    groups: Sequence[Sequence[Term]], kept: Sequence[Term], linked: set[Term]
) -> tuple[tuple[Term, ...], ...]:
    """Joined by AND, every group must occur. Quoted phrases must too: one of those that stand side by side, or what an
    OR gives beside one.
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
    """The terms that say something: neither fillers nor parts of a date that was read."""
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
    """Runs of Chinese, Japanese and Korean with the fillers cut out; a term that is all filler stays whole."""
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
