"""Which of several messages says what another, later one says otherwise. Pure, linear, and rather silent than wrong.

A message claims something where it says plainly what a thing is or was changed to ("my bank is now Revolut", "we moved
the deadline from Friday to Monday", "把地點改成三樓"). An earlier claim about the same thing with another value is
possibly outdated: by a claim that says so ("now", "changed to"), or where the thing can have one value only ("my time
zone"). Questions, plans and doubts claim nothing. Nothing is hidden: the later one comes first, the earlier is marked.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from herma.facts.attributes import attribute_of, folded, is_known
from herma.recall.stem import stem

READ = 2_000
"""Characters of a message that are looked at."""
_MOST = 20
"""Claims of one message."""
_VERBS = (
    r"(?:changed|switched|moved|updated|rescheduled|postponed|pushed(?: back)?|shifted|renamed|extended|raised|lowered"
    r"|increased|reduced|upgraded|migrated|bumped)"
)
_THING = r"(?P<thing>[a-z][\w'’/-]{0,24}(?: [\w'’/-]{1,24}){0,4}?)"
_END = r"(?=$|,|;| because | since | so (?:that|i|we)\b| instead\b| and (?:i|we|it|the|my)\b)"
_VALUE = rf"(?P<value>[^\s,;].{{0,80}}?){_END}"
_WAS = r"(?:was|were|has been|have been|got|had to be)"
_WHO = r"(?:i|we|they|he|she)(?:'ve|’ve| have| had| has)?(?: just| recently| since| finally| now| already)?"
_HAN = r"(?P<thing>[\u3400-\u9fff]{2,12}?)"
_KANA = r"(?P<thing>[\u3040-\u30ff\u3400-\u9fff]{2,12}?)"
_MADE = r"(?:改成|改為|改为|換成|换成|變成|变成|調整為|调整为|改到|移到)"
_ONCE = r"(?:原本|原来|原來|一开始|一開始|之前|目前|現在|现在)"
_SET = r"(?:定在|定为|定為|是|為|为|設在|设在|選在|选在)"
_VERB_PARTS = tuple(verb.partition("(")[0] for verb in _VERBS[3:-1].split("|"))
"""Patterns come with parts one of which is in whatever they find. Looking for these is many times faster, and most text
has none."""
_NEW = (
    (_VERB_PARTS, rf"\b{_WHO} {_VERBS} (?:my|our|the) {_THING} (?:from .{{1,60}}? )?(?:to|until) {_VALUE}"),
    (_VERB_PARTS, rf"\b(?:my|our|the) {_THING} {_WAS} {_VERBS}(?: from .{{1,60}}?)? (?:to|until) {_VALUE}"),
    (("now",), rf"\b(?:my|our|the) {_THING} (?:is|are) now {_VALUE}"),
    (("now",), r"\b(?:my|our) (?P<thing>favou?rite [\w'’/ -]{1,40}?) (?:is|are) (?P<value>[^\s,;][^,;]{0,80}?) now\b"),
    (("new",), rf"\b(?:my|our|the) new {_THING} (?:is|are) {_VALUE}"),
    (
        (*_VERB_PARTS, "went", "dropped", "rose"),
        rf"\b(?:my|our|the) {_THING} (?:{_VERBS}|went up|went down|dropped|rose) (?:from .{{1,60}}? )?to {_VALUE}",
    ),
    (
        ("改", "換", "换", "變", "变", "調", "调", "移到"),
        rf"{_HAN}(?:[从從由][^，。,]{{1,30}}?)?{_MADE}(?P<value>[^，。,；;]{{1,40}})",
    ),
    (("目前", "現在", "现在"), rf"(?:目前|現在|现在)的?{_HAN}(?:是|為|为)(?P<value>[^，。,；;]{{1,40}})"),
    (
        ("変", "移し", "切り替え"),
        rf"{_KANA}を(?:[^、。]{{1,30}}?から)?(?P<value>[^、。]{{1,30}}?)に(?:変更|変え|移し|切り替え)",
    ),
    (
        ("바", "변경", "옮겼"),
        r"(?P<thing>\S{2,12}?)(?:을|를) (?P<value>[^,.]{1,40}?)(?:으로|로) (?:바꿨|바꾸었|변경|옮겼)",
    ),
)
_OLD = (
    (("my ", "our "), rf"\b(?:my|our) {_THING} (?:is|are|was|were) {_VALUE}"),
    ((" is ", " was "), rf"\bthe {_THING} (?:is|was) {_VALUE}"),
    (("我",), rf"我[們们]?{_ONCE}?的?{_HAN}(?:想先|先|想|就|原本|本来|本來)?{_SET}(?P<value>[^，。,；;]{{1,40}})"),
    (("の",), rf"(?:私|僕|わたし)の{_KANA}は(?P<value>[^、。]{{1,30}}?)(?:です|だ|でした)"),
    (
        ("내 ", "제 ", "나의 "),
        r"(?:내|제|나의) (?P<thing>\S{2,12}?)(?:은|는) (?P<value>[^,.]{1,40}?)(?:이다|입니다|예요|이에요)",
    ),
)
_PLACE = re.compile(
    r"\bi(?:'ve| have)?(?: just| recently| since)? (?:moved|relocated) to (?P<value>[^\s,;.][^,;.]{1,40})"
)
_LIVES = re.compile(r"\bi (?:live|lived|am living|was living) in (?P<value>[^\s,;.][^,;.]{1,40})")
_CLAUSE = re.compile(r"[.。！？!?\n](?:(?<!\.)|(?<=\w\.)(?=\s|$))")
_DOUBT = re.compile(
    r"\b(?:maybe|perhaps|might|could|should|would|if|whether|thinking (?:of|about)|plan(?:ning)? to|want(?:ed)? to"
    r"|going to|let's|can you|please|not)\b|可能|也许|也許|打算|如果|是否|要不要|かもしれ|つもり|아마",
)
_PAST = re.compile(
    r"\b(?:originally|original|at first|initial(?:ly)?|first|used to|before|previous(?:ly)?|earlier|former(?:ly)?|old"
    r"|chang(?:e|ed|es)|histor(?:y|ical)|over time|evolv\w*|was|were)\b"
    r"|一开始|一開始|原本|原来|原來|最初|以前|之前|当初|當初|曾经|曾經|过去|過去|先後|先后|变化|變化|元々|もともと|当時|원래|예전|처음",
)
_NAMED = re.compile(r"(\w[\w .'-]{1,24}): ")
_HINT = re.compile(
    r"\bnow\b|\bnew\b|\bto\b|\bmoved\b|改|換|换|變|变|移到|調整|调整|目前|現在|现在|変|移し|切り替え|바꿨|바꾸|변경|옮겼"
)
_LATER = re.compile(
    rf"\b(?:now|new|relocated|{_VERBS[3:-1]}|went|dropped|rose)\b|[改換换變变調调移變変切]|바꿨|바꾸|변경|옮겼|現在|现在|目前"
)
"""Without any of these nothing says that it was otherwise before."""
_LATER_PARTS = ("now", "new", "relocated", "went", "dropped", "rose", *_VERB_PARTS)
_OWN = re.compile(r"\b(?:my|our|the|i live|i lived)\b|我|私|僕|わたし|(?:^| )(?:내|제|나의) ")
_LEAD = re.compile(
    r"^(?:我[們们]?)?(?:後來|后来|已經|已经|又|再|就|先|也|都|決定|决定)*(?:把|將|将)?(?:我的|原本的|目前的)?"
)
_CHANGES = tuple((parts, re.compile(pattern)) for parts, pattern in _NEW)
_STATES = tuple((parts, re.compile(pattern)) for parts, pattern in _OLD)
_LINKS = (" is ", " are ", " was ", " were ", " to ", " until ", " in ")
"""Without any of these English says of nothing what it is."""


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message of a user: folded text, when it was said, and by whom as far as that is known."""

    id: int
    text: str
    at: float
    who: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """What a thing is said to be; `new` where the message says that it was not so before."""

    thing: str
    value: str
    new: bool
    single: bool = False


def claims(text: str) -> list[Claim]:
    """What a folded text claims, each thing once: what it says last."""
    found: dict[str, Claim] = {}
    for clause, asked in _clauses(text[:READ]):
        if asked or len(clause) > 300 or not _may_claim(clause) or _DOUBT.search(clause):
            continue
        for claim in _claimed(clause):
            if claim.thing and claim.value:
                found[claim.thing] = claim
        if len(found) > _MOST:
            break
    return list(found.values())


def outdated(spoken: Sequence[Spoken]) -> dict[int, int]:
    """Message → the latest one that says otherwise."""
    known: dict[tuple[str, str], list[tuple[float, int, Claim]]] = {}
    if sum("my " in one.text for one in spoken) < 2 and not any(_says_later(one.text[:READ]) for one in spoken):
        return {}
    for one in spoken:
        named = _NAMED.match(one.text)
        who = f"{one.who}/{named[1] if named else ''}"
        for claim in claims(one.text):
            known.setdefault((who, claim.thing), []).append((one.at, one.id, claim))
    found: dict[int, int] = {}
    for said in known.values():
        at, latest, last = max(said, key=lambda each: each[:2])
        for before, id_, claim in said:
            if (before, id_) < (at, latest) and (last.new or (last.single and claim.single)) and _differ(claim, last):
                found[id_] = latest
    return found


def _says_later(text: str) -> bool:
    if text.isascii() and not _has(text, _LATER_PARTS):
        return False
    return _LATER.search(text) is not None


def asks_for_the_past(question: str) -> bool:
    """Whether a question is about how something was, so that the earlier message may be the right one."""
    return _PAST.search(question.casefold()) is not None


def latest_first(order: Sequence[int], by: dict[int, int]) -> list[int]:
    """The same order, with each message that makes another outdated before that one."""
    arranged = list(order)
    for older, newer in by.items():
        if older in arranged and newer in arranged:
            at, later = arranged.index(older), arranged.index(newer)
            if at < later:
                arranged.insert(at, arranged.pop(later))
    return arranged


# ── one clause ──


def _clauses(text: str) -> Iterator[tuple[str, bool]]:
    """Clauses, each with whether it is a question."""
    start = 0
    for end in _CLAUSE.finditer(text):
        yield text[start : end.start()].strip(), end[0] in "?？"
        start = end.end()
    yield text[start:].strip(), False


def _may_claim(clause: str) -> bool:
    return not clause.isascii() or _has(clause, _LINKS)


def _has(clause: str, parts: Sequence[str]) -> bool:
    return any(map(clause.__contains__, parts))


def _claimed(clause: str) -> Iterator[Claim]:
    for part, pattern, new in ((" to ", _PLACE, True), (" in ", _LIVES, False)):
        if part in clause and (found := pattern.search(clause)):
            yield Claim("location", _plain(found["value"]), new=new, single=True)
            return
    for hint, patterns, new in ((_HINT, _CHANGES, True), (_OWN, _STATES, False)):
        possible = [pattern for parts, pattern in patterns if _has(clause, parts)]
        if possible and hint.search(clause) and (read := _first(clause, possible)):
            yield _claim(read, new=new)
            return


def _first(clause: str, patterns: Sequence[re.Pattern[str]]) -> re.Match[str] | None:
    return next((found for pattern in patterns if (found := pattern.search(clause))), None)


def _claim(found: re.Match[str], *, new: bool) -> Claim:
    thing = _trimmed(found["thing"])
    return Claim(attribute_of(thing, stem), _plain(found["value"]), new=new, single=is_known(thing))


def _trimmed(thing: str) -> str:
    """Chinese runs on: what stands before the thing goes, as far as it is known."""
    return _LEAD.sub("", thing, count=1)


def _plain(value: str) -> str:
    return " ".join(re.sub(r"\b(?:now|instead|already|actually)\b", " ", folded(value)).split()).strip(" .,;:'\"")


def _differ(one: Claim, other: Claim) -> bool:
    return one.value not in other.value and other.value not in one.value
