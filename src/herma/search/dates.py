"""Read times as people write them: `2026-03`, `7d`, "last week", "in March", "three days ago", "上周".

A date becomes a `Span` of seconds since 1970, in the local time of this machine. English is read, and the commonest
words of Chinese, Japanese and Korean. Pure and linear; the clock is passed in.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from herma.text import STOP_WORDS, strip, unframed

# ── the words of dates ──


def _numbered_names(names: str, first: int) -> dict[str, int]:
    return {name: number for number, group in enumerate(names.split(), first) for name in group.split("|")}


MONTHS = _numbered_names(
    "january|jan february|feb march|mar april|apr may june|jun july|jul august|aug september|sep|sept october|oct "
    "november|nov december|dec",
    1,
)
WEEKDAYS = _numbered_names("monday tuesday wednesday thursday friday saturday sunday", 0)
NUMBERS = _numbered_names("a|an|one two|couple three four five six seven eight nine ten eleven twelve", 1)
UNITS = {name: unit[0] for unit in ("hour", "day", "week", "month", "year") for name in (unit, f"{unit}s")}
UNITS["night"] = "d"

LAST = frozenset(("last", "past", "previous"))
EDGES: dict[str, Literal["in", "since", "before"]] = {
    **dict.fromkeys(("in", "on", "during", "from"), "in"),
    **dict.fromkeys(("since", "after"), "since"),
    **dict.fromkeys(("before", "until", "till"), "before"),
}

DAYS_BACK = {
    "today": 0,
    "this morning": 0,
    "tonight": 0,
    "yesterday": 1,
    "last night": 1,
    "the day before yesterday": 2,
    "day before yesterday": 2,
}
DAYS_BACK_CJK = {"昨天": 1, "前天": 2, "今天": 0, "昨日": 1, "一昨日": 2, "어제": 1, "그저께": 2, "오늘": 0}
PERIODS_CJK = {
    "上周": (1, "w"),
    "上週": (1, "w"),
    "上星期": (1, "w"),
    "上个月": (1, "m"),
    "上個月": (1, "m"),
    "去年": (1, "y"),
    "先週": (1, "w"),
    "先月": (1, "m"),
    "昨年": (1, "y"),
    "지난주": (1, "w"),
    "지난달": (1, "m"),
    "작년": (1, "y"),
}


DAY = 86_400.0
_UNIT_DAYS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 30.0, "y": 365.0}
_ISO = re.compile(r"(\d{4})(?:[-/](\d{1,2})(?:[-/](\d{1,2})(?:[T ](\d{1,2}):(\d{2}))?)?)?$")
_GERMAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})$")
_SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})(?:/(\d{4}|\d{2}))?$")
_RELATIVE = re.compile(r"(\d{1,4}) ?(h|d|w|m|y|mo|hours?|days?|weeks?|months?|years?)$")
_WORD = re.compile(r"[\w'’]+(?:[-/]\w+)*")
_ORDINAL = re.compile(r"(\d{1,2})(?:st|nd|rd|th|\.)?$")
_CJK_DATE = re.compile(
    r"(?:(\d{4}) ?[年년] ?)?(\d{1,2}) ?[月월](?:(?:份|分)? ?(\d{1,2}) ?[日号號일])?|(\d{4}) ?[年년](?![代間间])"
)


@dataclass(frozen=True, slots=True)
class Span:
    """A period, open at `None`, and the words it was read from. `hard` filters, otherwise it prefers.

    `at` are the character offsets of the words in the text.
    """

    since: float | None
    before: float | None
    words: str = ""
    hard: bool = True
    at: tuple[int, int] = (0, 0)
    relative: bool = False
    """True if the words depend on the present ("last week"), so that messages do not repeat them."""
    outside: bool = False
    """True if all other times are meant."""
    edge: float | None = None
    """Start of "since" and end of "before", if not `since`: of "about 2 weeks ago", the day itself."""

    @property
    def start(self) -> float | None:
        return self.since if self.edge is None else self.edge

    def covers(self, moment: float) -> bool:
        inside = (self.since is None or moment >= self.since) and (self.before is None or moment < self.before)
        return inside != self.outside


def read_value(value: str, now: float) -> Span | None:
    """Return the span of a value of since:, before: or on:, or None if it is not a date."""
    value = value.strip().casefold().replace("_", " ")
    iso = _iso(_GERMAN.sub(r"\3-\2-\1", value)) or _stamp(value) or _slashed(value, now)
    if iso:
        return iso
    if value in ("now", "tomorrow"):  # in a sentence these are the time of something else
        return Span(now, now, value, relative=True) if value == "now" else _day_back(-1, now)
    back = _RELATIVE.match(value)
    if back:
        since = now - int(back[1]) * _UNIT_DAYS[back[2][0]] * DAY
        return Span(since, now, value, relative=True)
    spoken = [span for span in spoken_dates(value.replace("-", " "), now) if span.since is not None]
    if spoken:
        return spoken[0]
    if value in MONTHS:
        return _month_of(MONTHS[value], None, now)
    if value in WEEKDAYS:
        return _weekday(value, now)
    return None


MOST_WORDS = 4
"""Words that one date takes at most."""


def words_of_date(words: Sequence[str], now: float) -> int:
    """Return how many of these words, from the first on, are one date; 1 if no more than the first can be."""
    for count in range(min(len(words), MOST_WORDS), 1, -1):
        text = " ".join(words[:count]).rstrip(",.;:!?)")
        if all(words[:count]) and any(span.at == (0, len(text)) for span in spoken_dates(text, now)):
            return count
    return 1


def _iso(value: str) -> Span | None:
    found = _ISO.match(value)
    if not found:
        return None
    year, month, day = int(found[1]), int(found[2] or 0), int(found[3] or 0)
    if not 1970 <= year < 3000 or month > 12 or (found[2] and not month) or (found[3] and not day):
        return None
    if day and time.localtime(_at(year, month, day, 12)).tm_mday != day:  # the 31st of February
        return None
    if found[4]:
        minute = _at(year, month, day, int(found[4]) % 24, int(found[5]) % 60)
        return Span(minute, minute + 60, value)
    if day:
        return Span(_at(year, month, day), _at(year, month, day + 1), value)
    if month:
        return Span(_at(year, month), _at(year, month + 1), value)
    return Span(_at(year), _at(year + 1), value)


def _slashed(value: str, now: float) -> Span | None:
    """Read 05/03/2026, 5/3/26 or 5/3 as day and month, as with dots; the other way round if only that is a date.

    Without a year, it is the last such day.
    """
    found = _SLASHED.match(value)
    if not found:
        return None
    day, month = int(found[1]), int(found[2])
    if month > 12 >= day:
        day, month = month, day
    if found[3] is None:
        year, this_month, today, _ = _today(now)
        year -= (month, day) > (this_month, today)
    else:
        year = int(found[3]) + (2000 if len(found[3]) == 2 else 0)
    span = _iso(f"{year}-{month}-{day}")
    return None if span is None else replace(span, words=value)


def two_readings(value: str, now: float) -> str:
    """Return how an ambiguous date with slashes was read; "" for every other value."""
    found = _SLASHED.match(value.strip())
    if not found or not (0 < int(found[1]) <= 12 and 0 < int(found[2]) <= 12) or int(found[1]) == int(found[2]):
        return ""
    span = _slashed(value.strip(), now)
    if span is None or span.since is None:
        return ""
    day = time.strftime("%Y-%m-%d", time.localtime(span.since))
    return f"{value.strip()} was read as day/month: {day}. To be sure, write it as 2026-03-05."


def _stamp(value: str) -> Span | None:
    """Read a moment as programs write it: 2026-03-05T10:00:00.5Z, with an offset or in local time."""
    from datetime import datetime

    if len(value) < len("2026-03-05 10:00") or not value[:4].isdecimal() or not 1970 <= int(value[:4]) < 3000:
        return None
    try:
        moment = datetime.fromisoformat(value.upper()).timestamp()
    except (ValueError, OverflowError):
        return None
    return Span(moment, moment + 1, value)


# ── dates inside a sentence ──


def spoken_dates(text: str, now: float) -> list[Span]:
    """Return every date phrase of a text, in order, without overlaps."""
    words = [(found[0].casefold().replace("’", "'"), found.start(), found.end()) for found in _WORD.finditer(text)]
    spans: list[Span] = []
    place = 0
    while place < len(words):
        read = _phrase(words, place, now)
        if read is None:
            place += 1
            continue
        span, used = read
        start, end = words[place][1], words[place + used - 1][2]
        spans.append(replace(span, words=text[start:end], at=(start, end)))
        place += used
    spans.extend(_cjk_dates(text, now))
    return spans


Words = Sequence[tuple[str, int, int]]
Read = tuple[Span, int]


_FIRST_WORDS = frozenset(
    name.split()[0] for names in (EDGES, DAYS_BACK, LAST, NUMBERS, WEEKDAYS, MONTHS, ("this", "the")) for name in names
)
"""A phrase begins with one of these, or with a digit."""


def _phrase(words: Words, place: int, now: float) -> Read | None:
    """Read the phrase that starts at this word. → its span, and how many words it takes."""
    word = words[place][0]
    if word not in _FIRST_WORDS and not word[0].isdecimal():
        return None
    if word in EDGES:
        inner = _period(words, place + 1, now)
        if inner is None:
            return None
        span, used = inner
        kind = EDGES[word]
        if kind == "since":
            span = Span(span.start, None, relative=span.relative)
        elif kind == "before":
            span = Span(None, span.start, relative=span.relative)
        return span, used + 1
    read = _period(words, place, now)
    if read and read[1] == 1 and (word in MONTHS or word in WEEKDAYS or word.isdecimal()):
        return None  # alone it may be a name or a number: only with "in", "on", "since" before it
    return read


def _period(words: Words, place: int, now: float) -> Read | None:
    for reader in (_named_day, _last, _ago, _calendar):
        read = reader(words, place, now)
        if read:
            return read
    if _text(words, place) == "the" and _text(words, place + 1) != "the":
        read = _period(words, place + 1, now)
        return (read[0], read[1] + 1) if read else None
    return None


def _named_day(words: Words, place: int, now: float) -> Read | None:
    for length in (4, 3, 2, 1):
        name = " ".join(word for word, _, _ in words[place : place + length])
        if name in DAYS_BACK and place + length <= len(words):
            return _day_back(DAYS_BACK[name], now), length
    return None


def _last(words: Words, place: int, now: float) -> Read | None:
    """Read last week, this month, past 3 days, last March, last Tuesday."""
    word = _text(words, place)
    if word not in LAST and word != "this":
        return None
    nxt = _text(words, place + 1)
    back = 1 if word in LAST else 0
    if nxt in UNITS:
        return _calendar_unit(UNITS[nxt], back, now), 2
    number = NUMBERS.get(nxt) or (int(nxt) if nxt.isdecimal() and len(nxt) < 4 else 0)
    unit = UNITS.get(_text(words, place + 2), "")
    if number and unit and back:
        return Span(now - number * _UNIT_DAYS[unit] * DAY, now, relative=True), 3
    if nxt in WEEKDAYS:
        return _weekday(nxt, now), 2
    if nxt in MONTHS and nxt != "may":
        return _month_of(MONTHS[nxt], None, now), 2
    return None


def _ago(words: Words, place: int, now: float) -> Read | None:
    """Read 3 days ago, a week ago, a couple of months back."""
    amount, used = _amount(words, place)
    unit = UNITS.get(_text(words, place + used), "") if amount else ""
    if not unit or _text(words, place + used + 1) not in ("ago", "back"):
        return None
    return _long_ago(amount, unit, now), used + 2


def _amount(words: Words, place: int) -> tuple[int, int]:
    if _texts(words, place, 3) == ("a", "couple", "of"):
        return 2, 3
    if _texts(words, place, 2) == ("a", "few"):
        return 3, 2
    word = _text(words, place)
    if word.isdecimal() and len(word) < 4:
        return int(word), 1
    return NUMBERS.get(word, 0), 1


def _calendar(words: Words, place: int, now: float) -> Read | None:
    """Read 2026-03-05, March 2026, March 5th 2026, 5 March, 2025, Monday."""
    word = _text(words, place)
    if (word[:4].isdecimal() and len(word) >= 4) or word.count("/") == 2:
        iso = _iso(word) or (_slashed(word, now) if word.count("/") == 2 else None)
        return (iso, 1) if iso else None
    if word in WEEKDAYS:
        return _weekday(word, now), 1
    if word in MONTHS:
        return _month_first(words, place, now)
    day = _ORDINAL.match(word)
    month = _text(words, place + 1)
    skip = 1
    if month == "of":
        month, skip = _text(words, place + 2), 2
    if day and month in MONTHS and 1 <= int(day[1]) <= 31:
        year = _year(words, place + skip + 1)
        return _day_of(MONTHS[month], int(day[1]), year, now), skip + 1 + (year is not None)
    return None


def _month_first(words: Words, place: int, now: float) -> Read:
    name = _text(words, place)
    day = _ORDINAL.match(_text(words, place + 1))
    if day and 1 <= int(day[1]) <= 31:
        year = _year(words, place + 2)
        return _day_of(MONTHS[name], int(day[1]), year, now), 2 + (year is not None)
    year = _year(words, place + 1)
    return _month_of(MONTHS[name], year, now), 1 + (year is not None)


def _cjk_dates(text: str, now: float) -> Iterator[Span]:
    """Yield dates in Chinese, Japanese and Korean, which have no spaces."""
    if text.isascii():
        return
    for found in _CJK_DATE.finditer(text):
        span = _dates_numbered(found, now)
        if span:
            yield Span(span.since, span.before, found[0], span.hard, found.span())
    for table in (DAYS_BACK_CJK, PERIODS_CJK):
        for name in table:
            start = text.find(name)
            if start < 0:
                continue
            if name in DAYS_BACK_CJK:
                span = _day_back(DAYS_BACK_CJK[name], now)
            else:
                back, unit = PERIODS_CJK[name]
                span = _calendar_unit(unit, back, now)
            yield Span(span.since, span.before, name, span.hard, (start, start + len(name)), relative=True)
            return


def _dates_numbered(found: re.Match[str], now: float) -> Span | None:
    """Read 5月6日, 2026年5月, 2026年; without a year, it is the last such day."""
    if found[4]:
        return _iso(found[4])
    year, month, day = int(found[1] or 0) or None, int(found[2]), int(found[3] or 0)
    if not 1 <= month <= 12 or day > 31 or (found[3] and not day) or (year is not None and not 1970 <= year < 3000):
        return None
    return _day_of(month, day, year, now) if day else _month_of(month, year, now)


# ── arithmetic on the calendar ──


def _at(year: int, month: int = 1, day: int = 1, hour: int = 0, minute: int = 0) -> float:
    """Return local time as seconds since 1970; days and months past the end run on into the next."""
    return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))


def _today(now: float) -> tuple[int, int, int, int]:
    local = time.localtime(now)
    return local.tm_year, local.tm_mon, local.tm_mday, local.tm_wday


def _day_back(back: int, now: float) -> Span:
    year, month, day, _ = _today(now)
    return Span(_at(year, month, day - back), _at(year, month, day - back + 1), relative=True)


def _calendar_unit(unit: str, back: int, now: float) -> Span:
    """Return the calendar week, month or year so many back."""
    year, month, day, weekday = _today(now)
    if unit in ("d", "h"):
        return _day_back(back, now)
    if unit == "w":
        monday = day - weekday - 7 * back
        return Span(_at(year, month, monday), _at(year, month, monday + 7), relative=True)
    if unit == "m":
        return Span(_at(year, month - back), _at(year, month - back + 1), relative=True)
    return Span(_at(year - back), _at(year - back + 1), relative=True)


def _long_ago(amount: int, unit: str, now: float) -> Span:
    """Return a span around that long ago: as exact as the unit is."""
    year, month, day, _ = _today(now - amount * _UNIT_DAYS[unit] * DAY)
    slack = {"h": 0, "d": 0, "w": 3, "m": 15, "y": 180}[unit]
    around = Span(_at(year, month, day - slack), _at(year, month, day + slack + 1), relative=True)
    if unit in "my":
        this_year, this_month, day, _ = _today(now)
        back = amount * 12 if unit == "y" else amount
        year, month = this_year, this_month - back
    return replace(around, edge=_at(year, month, day)) if slack else around


def _weekday(name: str, now: float) -> Span:
    """Return the last day of that name before today."""
    _, _, _, today = _today(now)
    return _day_back((today - WEEKDAYS[name] - 1) % 7 + 1, now)


def _month_of(month: int, year: int | None, now: float) -> Span:
    this_year, this_month, _, _ = _today(now)
    if year is None:
        year = this_year if month <= this_month else this_year - 1
    return Span(_at(year, month), _at(year, month + 1))


def _day_of(month: int, day: int, year: int | None, now: float) -> Span:
    this_year, this_month, today, _ = _today(now)
    if year is None:
        year = this_year if (month, day) <= (this_month, today) else this_year - 1
    return Span(_at(year, month, day), _at(year, month, day + 1))


def _year(words: Words, place: int) -> int | None:
    word = _text(words, place)
    return int(word) if word.isdecimal() and len(word) == 4 and 1970 <= int(word) < 3000 else None


def _text(words: Words, place: int) -> str:
    return words[place][0] if place < len(words) else ""


def _texts(words: Words, place: int, length: int) -> tuple[str, ...]:
    return tuple(word for word, _, _ in words[place : place + length])


# ── does a question ask when something was said, or when it happened? ──

_TALK = """
asked chat chats chatted conversation conversations discuss discussed discussion mention mentioned said spoke talk
talked talking told besprochen gesagt gesprochen parlé dit hablamos dijo 聊了 聊 讨论 討論 说了 說了 我们 我們
"""
_ABOUT_TALK = frozenset(_TALK.split())
"""With these words, a date is the time of the conversation. Not with "did": "what did I paint last year" was mostly
reported at another time than it happened.
"""
_DOING = "debugged decided did do doing fixed message messages session sessions work worked working gemacht"
_ABOUT_DOING = frozenset(_DOING.split())
"""Words that name no subject, if the question has nothing else but a date."""
_IDLE_CJK = re.compile(
    "我们|我們|我|你|您|在|和|跟|与|與|都|又|还|還|聊|谈|談|讨论|討論|说|說|提到|分享|了|过|過|的|什么|什麼|甚麼|哪些|话题|話題"
    "|内容|內容|事情|那天|这天|這天|当天|當天|很多|一些|些|呢|吗|嗎|吧|话した|話した|した|しました|について|何を|何|か|を|に|は|の"
)
_TALK_CJK = re.compile("聊|讨论|討論|说了|說了")


def spoken(plain: str, now: float, *, filtered: bool) -> tuple[list[Span], set[str]]:
    """Return the dates in a question, and the words that only belong to them. `filtered`: there are filters by date."""
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
    if hard:  # neither the date nor the talking is the subject
        spent |= _ABOUT_TALK | {span.words for span in found}
    if hard and alone:
        named = {strip(word).casefold() for span in found for word in span.words.split()}
        spent |= _ABOUT_DOING | named | {word for word in left if word}
    return [replace(span, hard=hard) for span in found], spent


def _is_idle(word: str) -> bool:
    """Return whether a word only says that there was talk: "我们聊了哪些话题"."""
    return not _IDLE_CJK.sub("", word)


def framing(plain: str) -> set[str]:
    """Return the words that occur only in a phrase such as "can you list the order in which I mentioned"."""
    rest = unframed(plain)
    if rest == plain:
        return set()
    kept = {strip(word).casefold() for word in rest.split()}
    return {word for word in (strip(word).casefold() for word in plain.split()) if word not in kept}
