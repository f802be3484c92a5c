"""The query language: any text → `Query`. Nothing is ever a syntax error; `describe` says how it was read.

    docker config            messages with either word; more and rarer words rank higher
    "connection reset"       the words in this order
    login AND (sso OR saml)  each side must occur; OR binds tighter than AND
    -staging  NOT staging    must not occur
    deploy*                  the beginning of a word
    role:user source:cli project:shop session:ID
    since:2026-03 before:yesterday on:2026-03-05 since:7d

Dates in plain language ("last week", "in March") are read too. They filter where they can mean nothing but the time of
the conversation, and otherwise prefer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from herma.recall.dates import MOST_WORDS, Span, read_value, spoken_dates, words_of_date
from herma.recall.frames import unframed
from herma.recall.stopwords import CJK_FILLERS, NAMES, STOP_WORDS

MOST_TERMS = 64
"""Distinct words and phrases that are used; a pasted page needs no more to be found."""
MOST_TEXT = 20_000
"""Characters that are read."""

Kind = Literal["word", "phrase", "prefix"]


@dataclass(frozen=True, slots=True)
class Term:
    """Something to look for, as it was written."""

    text: str
    kind: Kind = "word"

    def __str__(self) -> str:
        return {"word": self.text, "phrase": f"“{self.text}”", "prefix": f"{self.text}*"}[self.kind]


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
_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uac00-\ud7af\uff66-\uff9f\U00020000-\U0003ffff"
HAS_CJK = re.compile(f"[{_CJK}]")
_FILLER = re.compile("|".join(map(re.escape, CJK_FILLERS)))
_CJK_MARKS = re.compile("[，。、！？；：（）【】「」『』《》〈〉…]")
_LEFT = "([{<)]}>'`,;:!?…¿¡*=|&~^。，、！？；：（）【】「」『』《》〈〉"
_RIGHT = "([{<)]}>'`@%$,.;:!?…*=|&~^/\\-。，、！？；：（）【】「」『』《》〈〉"
_ELISION = re.compile(r"^(?:qu|[cdjlmnst])'(?=\w{3})", re.IGNORECASE)
_ROLES = {
    **{role: role for role in ("user", "assistant", "tool", "system")},
    **dict.fromkeys(("me", "human"), "user"),
    **dict.fromkeys(("agent", "ai", "bot", "model"), "assistant"),
}
_TALK = """
asked chat chats chatted conversation conversations discuss discussed discussion mention mentioned said spoke talk
talked talking told besprochen gesagt gesprochen parlé dit hablamos dijo 聊了 聊 讨论 討論 说了 說了 我们 我們
"""
_ABOUT_TALK = frozenset(_TALK.split())
"""Words that make a date in the same sentence mean the time of the conversation, not of something told in it.

Not "did": "what did I paint last year" was mostly told at another time than it happened.
"""
_DOING = "debugged decided did do doing fixed message messages session sessions work worked working gemacht"
_ABOUT_DOING = frozenset(_DOING.split())
"""Words that say as little about what is sought, where nothing else is said but when."""


_LISTS = {"role": "roles", "source": "sources", "project": "projects", "session": "sessions"}
_DATES = {"since": "since", "after": "since", "before": "before", "until": "before", "on": "on", "date": "on"}
_IDLE_CJK = re.compile(
    "我们|我們|我|你|您|在|和|跟|与|與|都|又|还|還|聊|谈|談|讨论|討論|说|說|提到|分享|了|过|過|的|什么|什麼|甚麼|哪些|话题|話題"
    "|内容|內容|事情|那天|这天|這天|当天|當天|很多|一些|些|呢|吗|嗎|吧|话した|話した|した|しました|について|何を|何|か|を|に|は|の"
)
_TALK_CJK = re.compile("聊|讨论|討論|说了|說了")


@dataclass(slots=True)
class _Reading:
    """What has been read so far."""

    groups: list[list[Term]] = field(default_factory=lambda: [[]])
    none_of: list[Term] = field(default_factory=list)
    lists: dict[str, list[str]] = field(default_factory=lambda: {name: [] for name in _LISTS})
    dates: list[Span] = field(default_factory=list)
    plain: list[str] = field(default_factory=list)
    operators: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    negate: bool = False
    joined: bool = False


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
            if name.casefold() in _DATES and value:  # since:last week, without quotes
                spent = words_of_date([value, *words[1:]], now) - 1
            _bare(reading, " ".join(words[: spent + 1]), now)
    return _finish(text, reading, now)


# ── one token at a time ──


def _quoted(reading: _Reading, minus: bool, name: str | None, quoted: str, now: float) -> None:
    quoted = " ".join(quoted.split())
    if name and _operator(reading, name, quoted, now):
        return
    term = Term(f"{name}:{quoted}" if name else quoted, "phrase")
    if any(letter.isalnum() for letter in term.text):
        _put(reading, term, minus)


def _bare(reading: _Reading, token: str, now: float) -> None:
    operator = token.strip("()")
    if operator in ("AND", "OR", "NOT"):
        reading.negate = operator == "NOT"
        reading.operators.append(operator)
        if operator == "AND" and reading.groups[-1]:
            reading.groups.append([])
        reading.joined = reading.joined or operator == "AND"
        return
    found = _FIELD.match(token) if ":" in token else None
    if found and not found[1] and _operator(reading, found[2], found[3], now):
        return
    minus = len(token) > 2 and token[0] == "-" and token[1].isalnum()  # not -v, not --verbose
    body = token[1:] if minus else token
    prefix = "*" in body and body.rstrip(_RIGHT.replace("*", "")).endswith("*") and not HAS_CJK.search(body)
    word = strip(body)
    if not word:
        return
    term = Term(word, "prefix" if prefix and word[-1].isalnum() else "word")
    if not (minus or reading.negate or prefix):
        reading.plain.append(token)
    _put(reading, term, minus)


def _put(reading: _Reading, term: Term, minus: bool) -> None:
    if minus or reading.negate:
        reading.none_of.append(term)
        reading.negate = False
        return
    reading.groups[-1].append(term)


def _operator(reading: _Reading, name: str, value: str, now: float) -> bool:
    """Take `name:value` as a filter. False: it is none, so the text counts as words."""
    name = name.casefold()
    if name in _LISTS:
        values = [item for item in (strip(part) for part in value.split(",")) if item]
        if name == "role":
            values = [_ROLES[item.casefold()] for item in values if item.casefold() in _ROLES]
            if not values:
                reading.notes.append(f"{name}:{value} names no role (user, assistant, tool, system): read as words.")
        reading.lists[name].extend(values)
        return bool(values)
    if name in _DATES and value:
        span = read_value(strip(value), now)
        if span is None:
            if name != "date":
                reading.notes.append(
                    f"{name}:{value} is no date I can read (2026-03-05, 7d, yesterday): read as words."
                )
            return False
        kind = _DATES[name]
        words = f"{name}:{value}"
        if kind == "since":
            span = Span(span.since, None, words)
        elif kind == "before":
            span = Span(None, span.since, words)
        reading.dates.append(replace(span, words=words, hard=True, at=(0, 0)))
        return True
    return False


def strip(word: str) -> str:
    """A word without the punctuation around it; what belongs to it (`C#`, `C++`, `.env`, `@me`) stays."""
    word = word.rstrip(_RIGHT).lstrip(_LEFT)
    word = _ELISION.sub("", word.removesuffix("'s"))
    return word if any(letter.isalnum() or ord(letter) > 0x2000 for letter in word) else ""


# ── the whole ──


def _finish(text: str, reading: _Reading, now: float) -> Query:
    plain = " ".join(reading.plain)
    spoken, spent = _spoken(plain, now, filtered=bool(reading.dates))
    framed, ignored = spent | _framing(plain), list[str]()
    groups = [_content(group, framed, ignored) for group in reading.groups]
    if not any(groups):  # there is nothing but a frame
        ignored = []
        groups = [_content(group, spent, ignored) for group in reading.groups]
    if not any(groups) and not spoken:
        groups, ignored = [[term for group in reading.groups for term in _split_cjk(group)]], []
    if not any(groups) and not any((spoken, reading.none_of, reading.dates, *reading.lists.values())):
        groups = [[Term(operator) for operator in reading.operators]]
    every = list(dict.fromkeys(term for group in groups for term in group))
    if len(every) > MOST_TERMS:
        reading.notes.append(f"Only the first {MOST_TERMS} of {len(every):,} different words were used.")
        every = every[:MOST_TERMS]
    return Query(
        text=text,
        any_of=tuple(every),
        all_of=_required(groups, every, joined=reading.joined),
        none_of=tuple(dict.fromkeys(reading.none_of))[:MOST_TERMS],
        dates=(*reading.dates, *spoken),
        ignored=tuple(dict.fromkeys(ignored)),
        notes=tuple(reading.notes),
        plain=" ".join([plain, *(term.text for group in reading.groups for term in group if term.kind == "phrase")]),
        **{_LISTS[name]: tuple(dict.fromkeys(values)) for name, values in reading.lists.items()},
    )


def _required(groups: Sequence[Sequence[Term]], kept: Sequence[Term], *, joined: bool) -> tuple[tuple[Term, ...], ...]:
    """Joined by AND, every group must occur. Quoted phrases must too: one of those that stand side by side."""
    known = set(kept)
    required = []
    for group in groups:
        alternatives = tuple(dict.fromkeys(term for term in group if term in known))
        phrases = tuple(term for term in alternatives if term.kind == "phrase")
        if joined and len(groups) > 1:
            required.append(alternatives)
        elif phrases:
            required.append(phrases)
    return tuple(dict.fromkeys(group for group in required if group))


def _spoken(plain: str, now: float, *, filtered: bool) -> tuple[list[Span], set[str]]:
    """Dates in plain language, and the words that are spent on them."""
    found = spoken_dates(plain, now)
    if not found or filtered:
        return [], set()
    rest = plain
    for span in sorted(found, key=lambda span: span.at, reverse=True):
        rest = rest[: span.at[0]] + " " + rest[span.at[1] :]
    left = [strip(word).casefold() for word in rest.split()]
    alone = all(word in STOP_WORDS or word in _ABOUT_TALK or word in _ABOUT_DOING or _is_idle(word) for word in left)
    about_talk = any(word in _ABOUT_TALK for word in left) or bool(_TALK_CJK.search(rest))
    spent = {strip(word).casefold() for span in found if span.relative for word in span.words.split()}
    hard = len(found) == 1 and (alone or (about_talk and found[0].relative))
    if hard:  # the sentence is about when we talked: neither the date nor the talking is its subject
        spent |= _ABOUT_TALK | {span.words for span in found}
    if hard and alone:
        named = {strip(word).casefold() for span in found for word in span.words.split()}
        spent |= _ABOUT_DOING | named | {word for word in left if word}
    return [replace(span, hard=hard) for span in found], spent


def _is_idle(word: str) -> bool:
    """Whether nothing is left of a word but talk about talking: "我们聊了哪些话题"."""
    return not _IDLE_CJK.sub("", word)


def _framing(plain: str) -> set[str]:
    """Words that occur only in what frames the question."""
    rest = unframed(plain)
    if rest == plain:
        return set()
    kept = {strip(word).casefold() for word in rest.split()}
    return {word for word in (strip(word).casefold() for word in plain.split()) if word not in kept}


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


# ── saying how it was read ──


def describe(query: Query) -> str:
    """One plain sentence: what a person would want to correct."""
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
        edge = f"{_moment(span.since)} to {_moment(span.before)}"
    elif span.since is not None:
        edge = f"from {_moment(span.since)} on"
    elif span.before is not None:
        edge = f"before {_moment(span.before)}"
    return f"“{span.words}” read as {edge}{'' if span.hard else ' (preferred, not required)'}"


def _moment(seconds: float) -> str:
    import time

    local = time.localtime(seconds)
    return time.strftime("%Y-%m-%d" if local[3:5] == (0, 0) else "%Y-%m-%d %H:%M", local)


def _either(group: Sequence[Term]) -> str:
    words = " or ".join(map(str, group[:8]))
    return f"({words})" if len(group) > 1 else words


def _list(terms: Sequence[Term]) -> str:
    more = f" and {len(terms) - 12} more" if len(terms) > 12 else ""
    return ", ".join(map(str, terms[:12])) + more
