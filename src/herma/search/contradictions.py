"""Find messages that a later one contradicts: pure, linear, and silent in case of doubt.

A claim is a thing and its value: "the staging port is 5432", "I live in Lyon", "we switched from MySQL to Postgres".
An earlier claim about the same thing with another value is possibly outdated if the later one tells of a change ("now",
"moved to", "no longer", 改成), or if the thing has one value only ("my time zone"). Questions, plans, doubts and
quotations claim nothing. English and Chinese are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from herma.facts.extract import HOW, is_known, key_of
from herma.text import LazyPattern

READ, LONGEST = 2_000, 300
"""Characters of a message, and of a sentence, that are read."""
_MOST = 20
"""Claims of a message, and replaced values without a thing, that are compared."""


class Spoken(NamedTuple):
    """A message: folded text, time, owner if known, and role."""

    id: int
    text: str
    at: float
    who: str = ""
    role: str = "user"


class Claim(NamedTuple):
    """Hold what a thing is said to be; `former` is what it is no longer.

    Only values of one kind can disagree: that a meeting is in room 4 does not deny that it is on Friday. `new`: it was
    different before; `single`: there is only one value.
    """

    thing: str
    value: frozenset[str] = frozenset()
    kind: str = ""
    former: frozenset[str] = frozenset()
    new: bool = False
    single: bool = False


def outdated(spoken: Sequence[Spoken]) -> dict[int, int]:
    """Return message → the latest one that contradicts it."""
    by_thing: dict[tuple[str, str], list[tuple[int, Claim]]] = defaultdict(list)
    order = sorted(spoken, key=lambda one: (one.at, one.id))
    place = {one.id: at for at, one in enumerate(order)}
    for one in order:
        named = _SPEAKER.match(one.text)
        for claim in claims(one.text[named.end() :] if named else one.text, one.role):
            if claim.new or one.role == "user":  # an assistant repeats the user's words
                by_thing[f"{one.who}/{named[1] if named else ''}", claim.thing].append((one.id, claim))
    found: dict[int, int] = {}
    for (speaker, thing), made in by_thing.items():
        nameless = by_thing.get((speaker, ""), [])[-_MOST:] if thing else []
        later = sorted([*made, *nameless], key=lambda one: place[one[0]], reverse=True)
        for message, claim in made:
            newest = _latest_word(message, claim, later)
            if newest is not None:
                found[message] = max(newest, found.get(message, newest), key=place.__getitem__)
    return found


def _latest_word(message: int, claim: Claim, newest_first: Sequence[tuple[int, Claim]]) -> int | None:
    """Return the message with the latest claim about the same thing, if it contradicts this one."""
    for later, other in newest_first:
        if later == message:
            return None
        if contradicts(other, claim):
            return later
        if other.thing == claim.thing and other.kind == claim.kind and _same(other.value, claim.value):
            return None
    return None


def contradicts(later: Claim, earlier: Claim) -> bool:
    """Return whether the later claim outdates the earlier one."""
    if later.former and _same(later.former, earlier.value) and later.thing in ("", earlier.thing):
        return not _same(later.value, earlier.value)
    if later.thing != earlier.thing or not later.value or not earlier.value or _same(later.value, earlier.value):
        return False
    comparable = bool(later.thing) and later.kind in (earlier.kind, "any")
    return comparable and (later.new or (later.single and earlier.single))


def _same(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return whether two values may be the same: one says more than the other."""
    return bool(one and other) and (one <= other or other <= one)


def latest_first(order: Sequence[int], by: Mapping[int, int]) -> list[int]:
    """Return the same order, with each message that outdates another before that one."""
    arranged = list(order)
    for older, newer in by.items():
        if older in arranged and newer in arranged:
            at, later = arranged.index(older), arranged.index(newer)
            if at < later:
                arranged.insert(at, arranged.pop(later))
    return arranged


_PAST = re.compile(
    r"\b(?:originally|original|at first|initial(?:ly)?|first|used to|before|previous(?:ly)?|earlier|former(?:ly)?|old"
    r"|chang(?:e|ed|es)|histor(?:y|ical)|over time|evolv\w*|was|were)\b"
    r"|一开始|一開始|原本|原来|原來|最初|以前|之前|当初|當初|曾经|曾經|过去|過去|先後|先后|变化|變化",
)


def asks_for_the_past(question: str) -> bool:
    """Return whether a question is about how something was, so that the earlier message may be the right one."""
    return _PAST.search(question.casefold()) is not None


# ── a text → claims ──

_SPEAKER = re.compile(
    r"(?!(?:done|noted?|update|correction|reminder|fyi|ps|edit|summary|status)\b)(\w[\w .'-]{1,24}): "
)
_SENTENCE = re.compile(r"(?<=[.。！？!?\n])(?:(?<![.!?])|(?=\s))|; ")
_PART = LazyPattern(r",? (?:but|and|because|so) (?=(?:i|we|my|our|the) )|, (?=(?:i|we|my|our) )")
_QUOTED = re.compile(r"```.{0,2000}?(?:```|\Z)|(?m:^)>[^\n]*|[\"“„«「『][^\"“”»」』\n]{1,400}[\"”“»」』]", re.DOTALL)
_DOUBTFUL = LazyPattern(
    r"[?？]$|\b(?:if|whether|would|supposing|suppose|imagine|pretend|wish|said|says|wrote|claims|asked|story|novel|dream"
    r"|maybe|perhaps|might|could|should|will|wants?|planning|going|thinking|hope|can|never|nearly|almost|try|trying"
    r"|probably|(?<!\d )may(?! \d)|also|another|too|both|today|tonight|tomorrow|yesterday|temporarily|sometimes|usually"
    r")\b|可能|也许|也許|打算|如果|是否|要不要|会不会|會不會|应该|應該|想要|也是|也用|他说|她说|他說|她說|吗$|嗎$"
)
_OPENING = LazyPattern(
    r"^(?:(?P<corrects>actually|correction|update|turns out|edit)|ok|okay|so|and|oh|well|hey|hi|fyi|btw|sorry|reminder"
    r"|then|done|noted?|heads up|quick note|(?:please )?(?:note|remember|know) that|by the way|please)[,: ]+"
)
_NOW = LazyPattern(r",? (?:now|nowadays|these days|from now on|any ?more|by now)(?![\w'])")
_PASSING = re.compile(r" (?:just|recently|finally|already|currently)(?= )")


def claims(text: str, role: str = "user") -> list[Claim]:
    """Return what a folded text claims, each thing once, as it is said last."""
    found: dict[tuple[str, str, frozenset[str]], Claim] = {}
    for sentence in _SENTENCE.split(_QUOTED.sub(" ", text[:READ].replace("’", "'"))):
        said = sentence.strip(" -*•\t\n")
        if not 4 < len(said) <= LONGEST:
            continue
        plain = said.rstrip(".!。！ ")
        if not said.isascii() and _HAN.search(said):
            made = [*_chinese(plain)]
        else:
            made = [claim for part in _PART.split(plain) for claim in _english(part, role)]
        if made and not _DOUBTFUL.search(said):
            found |= {(one.thing, one.kind, one.former): one for one in made}
        if len(found) > _MOST:
            break
    return list(found.values())


# ── English ──

_THING = r"(?:my|our|the|your) (?P<new>new |current )?(?P<thing>[\w'./ -]{2,60}?)"
_CHANGED = (
    r"(?:changed|switched|moved|updated|rescheduled|postponed|renamed|extended|raised|lowered|increased|reduced|upgraded"
    r"|migrated|bumped|relocated|set|went|pushed|dropped|rose)(?: (?:back|up|down|over))?"
)
_TO = r"(?: from (?P<old>.{1,50}?))? to (?P<value>.+)"
_WE = r"(?:i|we)(?: have|'ve)?"
_PLACED = r"(?:hosted|based|located|scheduled|planned|due|called|named|written|kept|stored)"
_PATTERNS = (
    (rf"{_THING} (?:is|are) (?:no longer|not) (?P<old>.+?)(?:,? (?:but|it'?s|it is) (?P<value>.+))?$", ""),
    (rf"{_THING} (?:(?:has|have|was|were|got)(?: been)? )?{_CHANGED}{_TO}$", ""),
    (rf"{_THING} (?:is|are|runs|starts|opens|leaves|lives|costs)(?: {_PLACED})? (?P<value>.+)$", ""),
    (rf"{_WE} no longer (?:use|using|run) (?P<old>.+?)(?: (?:for|as) (?P<thing>.+))?$", ""),
    (rf"{_WE} (?:replaced|dropped|renamed) (?P<old>.+?) (?:with|by|for|to|in favou?r of) (?P<value>.+)$", ""),
    (r"(?:i live|i'?m (?:based|living)|i am (?:based|living)) (?:in|at) (?P<value>.+)$", "location"),
    (r"i(?: have|'ve)? (?:moved|relocated) (?:back )?to (?P<value>.+)$", "location"),
    (r"i work (?:at|for) (?P<value>.+)$", "employer"),
    (r"i work as (?P<value>.+)$", "job"),
    (rf"{_WE} {_CHANGED} from (?P<old>.+?) to (?P<value>.+)$", ""),
    (rf"{_WE} {_CHANGED} (?:(?:my|our|the) )?(?P<thing>[\w'./ -]{{2,60}}?){_TO}$", ""),
    (rf"{_WE} use (?P<value>.+?) (?:for|as) (?:(?:my|our|the) )?(?P<thing>[\w' -]{{2,40}})$", ""),
)
ENGLISH = tuple((LazyPattern(pattern), thing) for pattern, thing in _PATTERNS)
"""Pattern and thing; the first that fits counts. With `old`, or in the words of a change, it was different before."""
_TELLS_OF_A_CHANGE = re.compile(rf"\b(?:{_CHANGED}|relocated|replaced|renamed)\b")
_NOTHING = frozenset(("way", "problem", "issue", "question", "thing", "idea", "point", "reason", "answer", "error"))
_SINGLE = (["port"], ["version"], ["password"], ["url"], ["address"], ["branch"], ["deadline"])
_SUBJECTS = (("my ", "our ", "the ", "i ", "we ", "i'", "we'"), ("your ", "our ", "the ", "i ", "we "))
"""Beginnings of a sentence of a user, and of an assistant, who speaks of the user's things as "your"."""
_CUT = LazyPattern(
    r",|\(| (?:because|since|so|after|when|while|until|which|who|as of|due to|last|this|instead|again)\b"
)
_ARTICLE = LazyPattern(r"^(?:(?:on|at|in|under|with|to|by|via|a|an|the|my|our|your|port) )+")
_DONE = LazyPattern(r"[a-z-]{2,}(?:ing|ed)\b")
_AT = LazyPattern(r"^(?:on|at|in|under|with|by|via) ")
_WHEN = LazyPattern(
    r"\b(?:(?:mon|tues|wednes|thurs|fri|satur|sun)days?|january|february|march|april|may|june|july|august|(?:sept|nov"
    r"|dec)ember|october|noon|midnight|hourly|daily|weekly|monthly|every|\d\d?:\d\d|\d\d? ?[ap]m|\d{4}-\d\d-\d\d)\b"
)


def _english(sentence: str, role: str) -> Iterator[Claim]:
    new = False
    while opening := _OPENING.match(sentence):
        new, sentence = new or bool(opening["corrects"]), sentence[opening.end() :]
    if not sentence.startswith(_SUBJECTS[role == "assistant"]):
        return
    plain = _PASSING.sub("", _NOW.sub("", sentence.replace("n't ", " not ")))
    new = new or bool(_NOW.search(sentence))
    for pattern, thing in ENGLISH:
        if found := pattern.match(plain):
            yield from _claim(found.groupdict(), thing, new=new, changed=bool(_TELLS_OF_A_CHANGE.search(plain)))
            return


def _claim(groups: Mapping[str, str | None], thing: str, *, new: bool, changed: bool) -> Iterator[Claim]:
    named = groups.get("thing") or ""
    value, kind = _value(groups.get("value") or "")
    former = _value(groups.get("old") or "")[0]
    last = named.split()[-1:]
    if last and last[0] in _NOTHING:
        return
    key = thing or key_of(named)
    if (value and key) or former:
        new = new or changed or bool(former) or groups.get("new") == "new "
        single = bool(thing) or is_known(named) or last in _SINGLE
        yield Claim(key, value, kind or ("any" if changed or former else ""), former, new, single)


def _value(said: str) -> tuple[frozenset[str], str]:
    """Return the words of a value and its kind; none if they say how a thing is, and not what."""
    plain = _CUT.split(said.strip(), maxsplit=1)[0].strip(" .,:!'`*")
    bare = _ARTICLE.sub("", plain)
    words = bare.split()
    if not words or len(words) > 7 or words[0] in HOW or plain.startswith("to ") or " for " in bare:
        return frozenset(), ""
    if (words[0].endswith("ly") and len(words) > 1) or (bare == plain and _DONE.match(bare)):
        return frozenset(), ""
    kind = "when" if _WHEN.search(bare) else "number" if bare[0].isdigit() else "at" if _AT.match(plain) else ""
    return frozenset(words), kind


# ── Chinese ──

_HAN = re.compile("[\u3400-\u9fff]")
_ZH_VALUE = r"(?P<value>[^，。,；;]{1,40})"
_ZH_THING = r"(?P<thing>[\u3400-\u9fffa-z0-9]{2,14}?)"
_ZH_MADE = r"(?:[改换換变變]成|改[到为為]|[换換移搬升降]到|调整为|調整為|升[级級]到)了?"
_ZH_NOW = r"(?:现在|現在|目前)"
_ZH_PATTERNS = (
    (rf"^我(?P<now>{_ZH_NOW}|已[经經]|[刚剛])?(?:住在|定居在?){_ZH_VALUE}", "location"),
    (rf"^我(?P<now>(?:{_ZH_NOW}|已[经經]|[刚剛])?(?:搬到|搬去)){_ZH_VALUE}", "location"),
    (rf"^我(?P<now>{_ZH_NOW}|已[经經])?在(?P<value>[^，。,；;]{{1,20}}?)(?:工作|上班)了?$", "employer"),
    (rf"^{_ZH_THING}(?P<now>不再?是)(?P<old>[^，。,；;]{{1,20}}?)了?[，,]?(?:而是|{_ZH_NOW}是|改成){_ZH_VALUE}", ""),
    (rf"{_ZH_THING}(?:[从從由](?P<old>[^，。,]{{1,30}}?))?(?P<now>{_ZH_MADE}){_ZH_VALUE}", ""),
    (rf"^(?P<now>{_ZH_NOW})的?{_ZH_THING}(?:是|為|为){_ZH_VALUE}", ""),
    (rf"^{_ZH_THING}(?P<now>{_ZH_NOW})的?(?:是|為|为){_ZH_VALUE}", ""),
    (rf"^{_ZH_THING}(?:想先|[先想就]|原本|本[来來])?(?:[定設设選选]在|定?[为為]|是){_ZH_VALUE}", ""),
)
CHINESE = tuple((LazyPattern(pattern), thing) for pattern, thing in _ZH_PATTERNS)
_ZH_LEAD = LazyPattern(
    rf"^(?:我[們们]?|的|[後后][來来]|已[經经]|[又再就先也都把將将]|[決决]定|原本|原[来來]|之前|一[开開]始|{_ZH_NOW})*"
)
_ZH_NOT_THINGS = (*"这這那他她它你您但就还還都也不只或", "因为", "因為", "所以", "如果")


def _chinese(sentence: str) -> Iterator[Claim]:
    for pattern, thing in CHINESE:
        if found := pattern.search(sentence):
            groups = found.groupdict()
            named = _ZH_LEAD.sub("", groups.get("thing") or "", count=1)
            if thing or (len(named) > 1 and not named.startswith(_ZH_NOT_THINGS)):
                key, new = thing or key_of(named), bool(groups.get("now"))
                single = bool(thing) or is_known(named) or named.startswith("最喜")
                yield Claim(key, _run(found["value"]), "any" if new else "", _run(groups.get("old")), new, single)
            return


def _run(value: str | None) -> frozenset[str]:
    """Return a value without spaces as one word, without what ends a sentence."""
    plain = re.sub(r"[了啦的呢]+$", "", (value or "").strip())
    return frozenset((plain,)) if plain else frozenset()
