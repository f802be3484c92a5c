"""Find messages that a later one contradicts: pure, linear, and silent in case of doubt.

A claim is what a sentence plainly says of a thing: that it is, became, or is no longer something: "the staging db runs
on port 5432", "I live in Lyon now", "we switched from MySQL to Postgres". Questions, plans, doubts and quotations claim
nothing, and neither does a sentence that says how something is ("the build is slow"). An earlier claim about the same
thing with another value is possibly outdated if the later one tells of a change ("now", "changed to", "no longer"), or
if the thing has one value only ("my time zone"). English and Chinese are read.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Final, Literal, NamedTuple, TypeAlias

from herma.facts.extract import HOW, attribute_of, is_known, names
from herma.text import Late, stem

Words: TypeAlias = frozenset[str]
Kind: TypeAlias = Literal["when", "number", "name"]
Relation: TypeAlias = Literal["is", "at", "use", "any"]
"""Relation of a thing and its value; `any` if the sentence tells of a change."""
NONE: Words = frozenset()
READ = 2_000
READ_OF_ASSISTANTS = 600
"""Characters of a message that are read. An assistant says first what it did, and explains afterwards."""
_CHANGES = 24
"""Changes whose earlier claims are looked for."""
_MOST_CLAIMS, _LONGEST_SENTENCE, _MOST_PARTS = 20, 300, 8


class Spoken(NamedTuple):
    """A message: folded text, time, whose it is if that is known, and who of the two spoke."""

    id: int
    text: str
    at: float
    who: str = ""
    role: str = "user"


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim about a thing.

    The thing is a set of stems, so that "the port of staging" and "the staging port" are one. Only claims of one kind
    can disagree: that a meeting is in room 4 does not deny that it is on Friday. `new`: it was not so before; `weak`:
    it was so in the past, for the day or besides others, and outdates nothing; `single`: there is only one value;
    `former`: what it is no longer.
    """

    thing: Words
    value: Words
    kind: Kind = "name"
    relation: Relation = "is"
    new: bool = False
    weak: bool = False
    single: bool = False
    former: Words = NONE


def outdated(spoken: Sequence[Spoken]) -> dict[int, int]:
    """Return message → the latest one that contradicts it."""
    found: dict[int, int] = {}
    for made in _by_speaker(spoken).values():
        made.sort(key=lambda one: one[:2])
        same: dict[Words, list[tuple[float, int, Claim]]] = defaultdict(list)
        for one in made:
            same[one[2].thing].append(one)
        nameless = same.pop(NONE, [])
        for thing in same.values():
            for one in thing:
                later = _latest_word(one, sorted([*thing, *nameless], key=lambda one: one[:2]) if nameless else thing)
                if later is not None:
                    found[one[1]] = max(found.get(one[1], later), later)
    return found


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
    r"|一开始|一開始|原本|原来|原來|最初|以前|之前|当初|當初|曾经|曾經|过去|過去|先後|先后|变化|變化|元々|もともと|当時|원래|예전|처음",
)


def asks_for_the_past(question: str) -> bool:
    """Return whether a question is about how something was, so that the earlier message may be the right one."""
    return _PAST.search(question.casefold()) is not None


_NAMED = re.compile(r"(\w[\w .'-]{1,24}): ")


def _by_speaker(spoken: Sequence[Spoken]) -> dict[str, list[tuple[float, int, Claim]]]:
    """Return time, message and claim of everything that is claimed, by speaker.

    First only the sentences are read that may tell of a change, then those about what changed: most are neither.
    """
    telling = {
        one.id: claims(one.text, one.role, tells_of_a_change if one.role == "assistant" else tells) for one in spoken
    }
    later = [claim for made in telling.values() for claim in made if claim.new and not claim.weak][:_CHANGES]
    if not later and sum(any(claim.single for claim in made) for made in telling.values()) < 2:
        return {}
    about = {_signs_of(claim.thing) for claim in later if claim.thing}
    about |= {tuple((word,) for word in claim.former) for claim in later if claim.former}

    def is_about(text: str) -> bool:
        return any(all(any(map(text.__contains__, pieces)) for pieces in thing) for thing in about)

    found: dict[str, list[tuple[float, int, Claim]]] = defaultdict(list)
    for one in spoken:
        more = claims(one.text, one.role, is_about) if about else []
        named = _NAMED.match(one.text)
        speaker = named[1] if named and named[1].split()[-1] not in _LABELS else ""
        for claim in dict.fromkeys((*telling[one.id], *more)):
            if one.role == "assistant" and not claim.new:
                continue  # an assistant repeats what it was told: only a change that it tells of counts
            found[f"{one.who}/{speaker}"].append((one.at, one.id, claim))
    return found


def _latest_word(one: tuple[float, int, Claim], others: Sequence[tuple[float, int, Claim]]) -> int | None:
    """Return the message with the latest claim about the same, if it contradicts `one`."""
    for other in reversed(others):
        if other[:2] <= one[:2] or other[1] == one[1]:
            continue
        if says_otherwise(other[2], one[2]):
            return other[1]
        if (other[2].kind, other[2].thing) == (one[2].kind, one[2].thing) and _same(other[2].value, one[2].value):
            return None
    return None


def says_otherwise(later: Claim, earlier: Claim) -> bool:
    """Return whether the later claim outdates the earlier one."""
    if later.weak:
        return False
    about_the_same = bool(later.thing) and later.thing == earlier.thing
    if later.former and _same(later.former, earlier.value) and (not later.thing or about_the_same):
        return not later.value or not _same(later.value, earlier.value)
    if not later.value or not earlier.value or not about_the_same or later.kind != earlier.kind:
        return False
    if not (later.new or (later.single and earlier.single)):
        return False
    relations = {later.relation, earlier.relation}
    comparable = later.kind != "name" or "any" in relations or len(relations) == 1 or relations == {"is", "use"}
    return comparable and not _same(later.value, earlier.value)


def _same(one: Words, other: Words) -> bool:
    """Return whether two values may be the same: one says more than the other."""
    return one <= other or other <= one


# ── the vocabulary ──


def _words(text: str) -> Words:
    return frozenset(text.split())


_ELSEWHERE: Final = _words(
    """
    if whether would suppose supposing imagine pretend wish hypothetically assuming unless otherwise said says told
    wrote writes claims claimed asked asks according quote quoted story novel fiction dream dreamt dreamed example
    fictional character scenario let let's
    """
)
"""A sentence with one of these is not the speaker's own, or not a fact."""
_DOUBTS: Final = _words(
    """
    maybe perhaps might could should will shall want wants wanted planning going gonna thinking considering hope hopes
    hoping please can cannot never nearly almost try trying probably possibly presumably
    """
)
_NO_START: Final = _words(
    """
    what which who whom whose where why how when while after before until once though although as is are am do does did
    can could should would will has have was were
    """
)
"""A sentence that begins so asks, or tells of another time."""
_CORRECTS: Final = _words("actually correction update turns wait edit")
_OPENERS: Final = _CORRECTS | _words(
    """
    ok okay so and oh well hey hi hello yes yeah no fyi btw sorry reminder anyway then again though out it quick heads
    up just think
    """
)
"""Words before the sentence proper. One of `_CORRECTS` means that it was different before."""
_LABELS: Final = _OPENERS | _words(
    "done noted note notes todo ps nb summary result fixed changed new reminder important info status"
)
"""Before a colon these do not name a speaker."""
_PASSING: Final = _words("actually just recently currently finally")
_WEAK: Final = _words(
    """
    another also too additional extra both either besides plus
    today tonight tomorrow temporarily sometimes occasionally usually often still
    """
)
"""A claim with one of these comes besides others, or holds for a day."""
_NOBODY: Final = _words(
    """
    it this that these those there here he she they you his her their its everything everyone everybody someone somebody
    something anything nothing nobody people others one some any each every all many most which what who a an another
    other and or not no so i we
    """
)
"""Words that name nothing which another message could name."""
_EMPTY: Final = _words(
    """
    problem issue question thing idea point reason answer result way rest error bug fact truth weather food part step
    trick catch difference advantage downside output message text line code function concern focus
    """
)
"""Things that mean something else in every message."""
_ORDINALS: Final = _words("first second third next last following best worst")
_BE: Final = _words("is are was were")
_CHANGED: Final = _words(
    """
    changed switched moved updated rescheduled postponed pushed shifted renamed extended raised lowered increased
    reduced upgraded downgraded migrated bumped relocated transferred set brought adjusted cut
    """
)
_GREW: Final = _words("went dropped rose grew fell climbed jumped decreased improved grown risen fallen gone")
_PUT: Final = _words(
    """
    hosted deployed located based running stored kept scheduled set planned due called named listening served saved
    placed booked written built implemented made
    """
)
_STATES: Final = _words(
    """
    runs run listens lives live sits resides costs points starts begins opens leaves departs arrives ends closes
    """
)
_OURS: Final = _words("deploy ship store keep host meet publish park bank")
"""Verbs for what people do with things somewhere."""
_PLURAL: Final = _words("run use live work have do set cut")
"""Verbs of plural things, which are also nouns."""
_HAVE: Final = _words("have own has")
_DID: Final = _words("finished read watched completed written visited collected")
_LEFT: Final = _words("replaced dropped ditched renamed")
_USE: Final = _words("uses use")
_WORK: Final = _words("works work")
_OF_THINGS: Final = _BE | _CHANGED | _GREW | _STATES | _USE | _WORK | _words("has have got does do")
_LINKS: Final = _OF_THINGS | _OURS | _HAVE | _LEFT | _words("joined prefer prefers using am")
"""English without any of these claims nothing."""
_TELLING: Final = (
    _CHANGED | _GREW | _LEFT | _CORRECTS | _words("now nowadays longer anymore new joined far total instead")
)
"""English without any of these tells of no change."""
_TELLING_PHRASES: Final = ("any more", "these days")
_TELLING_CHINESE: Final = Late(
    "[改換换變变調调移搬升降現现目][成為为到了在前]|[改換换變变調调移搬升降]|不再|最喜[欢歡]|我[^，。]{0,4}[住在]"
)
_SPEAKING: Final = _words("my our i we the")
_ARTICLES: Final = _words("a an the my our your new own current")
_SMALL: Final = _words("of for in on at with to from by and")
_CLASSES: Final = _words("target server service environment instance machine application app")
"""Kinds of things, left out beside another word: "staging" and "the staging server" are one."""
_SINGLE: Final = _words(
    """
    port version url host hostname branch address deadline budget timeout limit ip domain region size password editor
    shell username email birthday dose rent salary capacity theme
    """
)
"""Things with one value at a time, whoever speaks."""
_LIVING: Final = _words("live reside based living work working favorite favourite prefer")
_ONE_NAME: Final = {
    "db": "database",
    "env": "environment",
    "prod": "production",
    "repo": "repository",
    "config": "configuration",
    "favourite": "favorite",
    "favourites": "favorite",
    "favorites": "favorite",
    "colour": "color",
    "deploys": "deploy",
    "deployment": "deploy",
    "deployments": "deploy",
    "postgresql": "postgres",
    "k8s": "kubernetes",
}
_DOING: Final = {
    "locat": ("live", "based", "living", "住", "搬"),
    "employ": ("work", "工作", "上班"),
    "job": ("work", "工作", "上班"),
}
_WHEN = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:jan|febr)uary|march|april|may|june|july|august|october"
    r"|(?:sept|nov|dec)ember|\d{1,2}:\d\d|(?:\d{1,2})?(?:am|pm)|noon|midnight|hourly|daily|weekly|monthly|every"
    r"|tomorrow|morning|evening|afternoon|\d{4}-\d\d-\d\d|o'clock"
)
_NUMBER_WORDS = "one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty"
_NUMBER = re.compile(rf"[€$£~#]?\d[\d.,:%/-]*[a-z%]{{0,4}}|(?:{_NUMBER_WORDS}|forty|fifty|hundred)")
_DIGITS = re.compile(r"\d[\d.,]*\d|\d")
_VERSION = re.compile(r"v?\d{1,4}(?:\.\d{1,4}){0,3}")


@cache
def _single_words() -> Words:
    """Return words one of which is in every English claim about something that has one value."""
    return _SINGLE | _LIVING | {name.split()[-1] for name in names()}


# ── the rules ──


class ClaimRule(NamedTuple):
    """The claim of a verb and the words after it.

    The groups of `rest` are `value` and `old`, `thing` (besides the subject), or `count` and `what`. `thing`: words to
    add to the subject; "@verb": the verb itself.
    """

    verbs: Words
    rest: Late
    relation: Relation | None = "is"
    """None: such a sentence claims nothing."""
    thing: str = ""
    new: bool = False
    only_new: bool = False
    single: bool = False


def _any(words: Words) -> str:
    return f"(?:{'|'.join(sorted(words))})"


_TO = (
    r"(?:(?:back|up|down|over|forward|ahead) )*(?:from (?P<old>[^,]{1,50}?) )?(?:(?:back|up|down|over) )*"
    r"(?:to|until) (?P<value>.+)"
)
_LIES = r"(?:on|at|in|under|with|to|by|via) "
_VALUE, _OLD = r"(?P<value>.+)", r"(?P<old>.+)"
_COUNTED = rf"(?P<count>\d[\d.,]*|{_NUMBER_WORDS}) (?P<what>.+)"
_SINCE = r"(?:(?:been|just|recently|since|meanwhile|already) )*"
_GOT = _words("has have got")

OF_THINGS: Final = (
    ClaimRule(_BE, Late(rf"no longer {_OLD}"), "any", new=True),
    ClaimRule(_BE, Late(rf"not {_OLD}"), "any", only_new=True),
    ClaimRule(_BE, Late(r".*\bnot\b|to "), None),
    ClaimRule(_BE, Late(rf"{_any(_CHANGED)} {_TO}"), "any", new=True),
    ClaimRule(_BE, Late(rf"{_any(_CHANGED)} .*\b(?:to|until)\b"), None),
    ClaimRule(_BE, Late(rf"(?:{_any(_PUT)} )?{_LIES}{_VALUE}"), "at"),
    ClaimRule(_BE, Late(rf"(?:{_any(_PUT)} )?{_VALUE}")),
    ClaimRule(_words("does do"), Late(rf"not use {_OLD}"), "any", only_new=True),
    ClaimRule(_GOT, Late(_SINCE + _COUNTED)),
    ClaimRule(_GOT, Late(rf"{_SINCE}{_any(_CHANGED | _GREW)} {_TO}"), "any", new=True),
    ClaimRule(_CHANGED | _GREW, Late(_TO), "any", new=True),
    ClaimRule(_USE, Late(_VALUE), "use"),
    ClaimRule(_WORK, Late(rf"as {_VALUE}"), thing="job"),
    ClaimRule(_WORK, Late(rf"(?:at|for) {_VALUE}"), thing="employer"),
    ClaimRule(_STATES, Late(rf"(?:{_LIES})?{_VALUE}"), "at"),
)
_AM = _words("am are")
_WE_USE = _words("use using run")
OF_US: Final = (
    ClaimRule(_words("no"), Late(rf"longer (?:use|using|run) {_OLD}"), "any", new=True),
    ClaimRule(_words("do"), Late(rf"not (?:use|using|run) {_OLD}"), "any", only_new=True),
    ClaimRule(_LINKS | _DID, Late(r".*\bnot\b"), None),
    ClaimRule(_AM, Late(rf"(?:based|living|located) in {_VALUE}"), thing="location", single=True),
    ClaimRule(_AM, Late(rf"on {_VALUE}"), "any"),
    ClaimRule(_AM, Late(rf"using (?P<value>.+?) (?:instead of|rather than) {_OLD}"), "use", new=True),
    ClaimRule(_AM, Late(rf"using {_VALUE}"), "use"),
    ClaimRule(_words("live reside"), Late(rf"(?:in|at|near) {_VALUE}"), thing="location", single=True),
    ClaimRule(_WORK, Late(rf"as {_VALUE}"), thing="job", single=True),
    ClaimRule(_WORK, Late(rf"(?:at|for) {_VALUE}"), thing="employer", single=True),
    ClaimRule(_words("joined"), Late(rf"(?!(?:a|an|the|my|our|in) ){_VALUE}"), thing="employer", new=True),
    ClaimRule(_WE_USE, Late(rf"(?P<value>.+?) (?:instead of|rather than) {_OLD}"), "use", new=True),
    ClaimRule(_WE_USE, Late(_VALUE), "use"),
    ClaimRule(_words("prefer"), Late(r"(?P<value>.+?) for (?P<thing>.+)"), "use"),
    ClaimRule(_words("replaced"), Late(rf"(?P<old>.+?) (?:with|by) {_VALUE}"), "any", new=True),
    ClaimRule(_words("renamed"), Late(rf"(?P<old>.+?) to {_VALUE}"), "any", new=True),
    ClaimRule(_words("dropped ditched"), Late(rf"(?P<old>.+?) (?:in favou?r of|for) {_VALUE}"), "any", new=True),
    ClaimRule(
        _words("moved relocated"),
        Late(rf"(?:back |over )?to (?!.* for ){_VALUE}"),
        thing="location",
        new=True,
        single=True,
    ),
    ClaimRule(_CHANGED | _words("went"), Late(_TO), "any", new=True),
    ClaimRule(_CHANGED, Late(rf"(?P<thing>.+?) {_TO}"), "any", new=True),
    ClaimRule(_OURS, Late(r"(?P<value>every .+)"), thing="@verb"),
    ClaimRule(_OURS, Late(rf"{_LIES}{_VALUE}"), thing="@verb"),
    ClaimRule(_OURS, Late(rf"(?P<thing>(?:\S+ ){{1,5}}?){_LIES}{_VALUE}"), thing="@verb"),
    ClaimRule(_HAVE | _DID, Late(_COUNTED), thing="@@verb"),
)
_PREFERS = Late(r"(?P<one>[^,]{1,40}?) (?:over|to) (?P<other>[^,]{1,40})")

_HAN = r"(?P<thing>[\u3400-\u9fffa-z0-9]{2,14}?)"
_ZH_MADE = r"(?:改成|改為|改为|換成|换成|換到|换到|變成|变成|調整為|调整为|改到|移到|搬到|升到|升級到|升级到|降到)了?"
_ZH_ONCE = r"(?:原本|原来|原來|一开始|一開始|之前|目前|現在|现在)"
_ZH_SET = r"(?:定在|定为|定為|是|為|为|設在|设在|選在|选在)"
_ZH_VALUE = r"(?P<value>[^，。,；;]{1,40})"
_ZH_DOUBT = Late(
    r"可能|也许|也許|打算|如果|是否|要不要|会不会|會不會|应该|應該|想要|也是|也用|假如|他说|她说|他說|她說|吗$|嗎$|[什怎哪]"
)
CHINESE: Final = (
    (Late(rf"^我(?P<now>现在|現在|目前|已经|已經|刚|剛)?(?:住在|定居在?){_ZH_VALUE}"), "location"),
    (Late(rf"^我(?P<now>(?:现在|現在|已经|已經|刚|剛)?(?:搬到|搬去)){_ZH_VALUE}"), "location"),
    (Late(r"^我(?P<now>现在|現在|目前|已经|已經)?在(?P<value>[^，。,；;]{1,20}?)(?:工作|上班)了?$"), "employer"),
    (
        Late(
            rf"^(?:我[們们]?的)?{_HAN}(?:已经|已經)?(?P<now>不(?:再)?是)(?P<old>[^，。,；;]{{1,20}}?)了?[，,]?"
            rf"(?:而是|现在是|現在是|改成){_ZH_VALUE}"
        ),
        "",
    ),
    (Late(rf"{_HAN}(?:[从從由](?P<old>[^，。,]{{1,30}}?))?(?P<now>{_ZH_MADE}){_ZH_VALUE}"), ""),
    (Late(rf"(?P<now>目前|現在|现在)的?{_HAN}(?:是|為|为){_ZH_VALUE}"), ""),
    (Late(rf"^(?:我[們们]?的?)?{_HAN}(?P<now>目前|現在|现在)(?:是|為|为){_ZH_VALUE}"), ""),
    (Late(rf"我[們们]?{_ZH_ONCE}?的?{_HAN}(?:想先|先|想|就|原本|本来|本來)?{_ZH_SET}{_ZH_VALUE}"), ""),
    (Late(rf"^{_HAN}(?:是|为|為){_ZH_VALUE}"), ""),
)
"""Pattern and thing of Chinese claims, the first that fits counts. With the group `now` it was not so before."""
_ZH_LEAD = Late(
    r"^(?:我[們们]?)?(?:後來|后来|已經|已经|又|再|就|先|也|都|決定|决定)*(?:把|將|将)?(?:我[們们]?的|原本的|目前的|现在|現在|目前)?的?"
)
_ZH_NOT_THINGS = (*"这這那他她它你您但就还還都也不只或", "因为", "因為", "所以", "如果")


# ── text → claims ──

_SENTENCE = re.compile(r"[.。！？!?\n](?:(?<!\.)|(?<=\w\.)(?=\s|$))")
_QUOTED = re.compile(
    r"```.{0,2000}?(?:```|\Z)|(?m:^)>[^\n]*|[\"“„«「『][^\"“”»」』\n]{1,400}[\"”“»」』]",
    re.DOTALL,
)
_MARKS = ('"', "“", "„", "«", "「", "『", "```", ">")
_TITLES = re.compile(r"\b(dr|mr|mrs|ms|prof|st)\. ")
_SIGNS = ',.;:!?()*"'
_BLANKED = str.maketrans(dict.fromkeys(_SIGNS, " "))
_SIGN = re.compile(f"[{re.escape(_SIGNS)}]")
Gate: TypeAlias = Callable[[str], bool]


def claims(text: str, role: str = "user", gate: Gate = bool) -> list[Claim]:
    """Return what a folded text claims, each thing once, as it is said last. `gate` chooses what is worth reading: the
    whole text first, then each sentence.
    """
    found: dict[tuple[Words, Kind, Words], Claim] = {}
    text = text[: READ_OF_ASSISTANTS if role == "assistant" else READ]
    if not gate(text):
        return []
    text = text.replace("’", "'")
    if any(mark in text for mark in _MARKS):
        text = _QUOTED.sub(_unless_a_name, text)
    if ". " in text:
        text = _TITLES.sub(r"\1 ", text)
    start = 0
    for end in (*_SENTENCE.finditer(text), None):
        sentence = text[start : end.start() if end else None].strip()
        start = end.end() if end else len(text)
        if (end and end[0] in "?？") or not 4 < len(sentence) <= _LONGEST_SENTENCE or not gate(sentence):
            continue
        for claim in (*_chinese(sentence), *_english(sentence, role)):
            if claim.value or claim.former:
                found[claim.thing, claim.kind, claim.former] = claim
        if len(found) > _MOST_CLAIMS:
            break
    return list(found.values())


def tells(text: str) -> bool:
    """Return whether a text may claim something that changed, or that has one value. Quick: most text does not."""
    if tells_of_a_change(text):
        return True
    words = _split(text)
    return not _single_words().isdisjoint(words) and not _SPEAKING.isdisjoint(words)


def tells_of_a_change(text: str) -> bool:
    """Return whether a text may say that something changed."""
    if not text.isascii() and _TELLING_CHINESE.search(text):
        return True
    return not _TELLING.isdisjoint(_split(text)) or any(map(text.__contains__, _TELLING_PHRASES))


def _split(text: str) -> list[str]:
    """Split at signs; beyond ASCII, `translate` takes longer than the expression."""
    return (text.translate(_BLANKED) if text.isascii() else _SIGN.sub(" ", text)).split()


def _unless_a_name(found: re.Match[str]) -> str:
    """A quotation is somebody else's words; one of a few words is a name."""
    inside = found[0][1:-1]
    return inside if len(inside.split()) < 4 and not found[0].startswith((">", "```")) else " "


def _chinese(sentence: str) -> Iterator[Claim]:
    if sentence.isascii() or _ZH_DOUBT.search(sentence):
        return
    found, thing = next(((one, thing) for pattern, thing in CHINESE if (one := pattern.search(sentence))), (None, ""))
    if found is None or not (value := _run(found["value"])):
        return
    groups = found.groupdict()
    new = bool(groups.get("now"))
    if thing:
        yield Claim(frozenset((stem(thing),)), value, new=new, single=True)
        return
    named = _ZH_LEAD.sub("", found["thing"], count=1)
    if len(named) < 2 or named.startswith(_ZH_NOT_THINGS):
        return
    known = is_known(named)
    key = _key_of([named]) if known else frozenset((named.replace("的", ""),))
    single = known or named.startswith(("最喜欢", "最喜歡"))
    former = _run(groups.get("old") or "")
    yield Claim(key, value, relation="any" if new else "is", new=new, single=single, former=former)


def _run(value: str) -> Words:
    """Return a value without spaces as one word, without what ends a sentence."""
    plain = re.sub(r"[了啦的呢。.！!]+$", "", value.strip())
    return frozenset((plain,)) if plain else NONE


# ── one English sentence ──

_LONG_FORMS = (
    *(("isn't", "is not"), ("aren't", "are not"), ("doesn't", "does not"), ("don't", "do not"), ("i'm ", "i am ")),
    *(
        ("we're ", "we are "),
        ("i've ", "i have "),
        ("we've ", "we have "),
        ("it's ", "it is "),
        ("they're ", "they are "),
    ),
    *(("that's ", "that is "), ("wasn't", "was not"), ("can't", "can not"), ("won't", "will not")),
)
_PARTS = Late(
    r"; | [—–-] |: |\b(?:by the way|just so you know|for the record|in the meantime)\b,? ?|,? because |, since "
    r"| and (?=(?:i|we|my|our|the) )|,? but (?=(?:i|we|my|our|the|it) )"
    r"|,? so (?:that )?(?=(?:i|we|my|our|the|it) )|, (?=(?:i|we|my|our|the|so|then) )"
    r"|\b(?:know|note|remember|mind|realised|realized|decided) that "
)
_WHICH = Late(
    r"\b(?:my|our|the) (?P<thing>[\w/ -]{2,40}?), which (?P<said>(?:has|is|was|now|moved|changed|went) [^,]{3,80})"
)
"""A claim in passing about a thing that is named last."""
_CONTRAST = Late(
    r"^(?P<head>.{2,80}? (?:is|are|was|were)) (?:not|no longer) (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?"
    r"(?:,? but(?: rather| now)?|,? (?:it|they|that) (?:is|are)(?: now)?|,? instead(?: it is)?) (?P<rest>.{1,80})$"
)
_NOT = Late(
    r"^(?P<head>.{2,80}? (?:is|are)) (?P<rest>[^,]{1,60}), not (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?$"
)
_IT = Late(
    r"(?:\b(?:i|we) (?:have )?(?:just )?(?:changed|rotated|updated|replaced|renamed|moved|switched|reset|swapped) "
    r"(?P<thing>(?:the|my|our) [\w' -]{2,40}?)|(?P<too>(?:the|my|our) [\w' -]{2,40}?) (?:has |have )?(?:just )?changed)"
    r",? (?:and |so )?(?:it|they) (?:is|are) (?P<rest>[^,]{1,60})"
)
_MAY = Late(
    r"(?<!\d )(?<!of )(?<!in )(?<!by )(?<!is )(?<!to )(?<!until )\bmay(?! \d)\b(?= \w)"
    r"|(?<!my )(?<!our )(?<!the )\bplans? (?:to|on)\b|\bplan is to\b"
)
_NOW = Late(
    r",? ?\b(?<!right )(?:from now on|as of (?:today|now|this \w+)|these days|since then|by now|nowadays|now"
    r"|any ?more|any longer)\b"
)
_STOPS = Late(
    r",(?! but\b)|;|\(| (?:because|since|so|and (?:i|we|it|the|my|our|that|also|will)|after|when|while|until|which|who"
    r"|where|as of|due to|last|this|yesterday|today|recently|instead|again|if)\b"
)


def _english(sentence: str, role: str) -> Iterator[Claim]:
    words = set(sentence.replace(",", " ").split())
    if (not words & _LINKS and "'" not in sentence) or words & _ELSEWHERE:
        return
    if "'" in sentence:
        for short, long in _LONG_FORMS:
            sentence = sentence.replace(short, long)
    if ", which " in sentence and (passing := _WHICH.search(sentence)):
        thing = passing["thing"].split(" the ")[-1].split(" my ")[-1]
        yield from _part(f"the {thing} {passing['said']}", role, new=False)
    if (" it is " in sentence or " they are " in sentence) and (it := _IT.search(sentence)):
        yield from _part(f"{it['thing'] or it['too']} is {it['rest']}", role, new=True)
    corrected = False
    for part in _PARTS.split(sentence, maxsplit=_MOST_PARTS):
        said, new = part.strip(" -*•\t").split(" "), corrected
        while said and (word := said[0].strip(",.:!")) in _OPENERS:
            new = new or (word in _CORRECTS and not (word == "turns" and said[1:2] != ["out"]))
            said = said[1:]
        if said:
            yield from _part(" ".join(said), role, new=new)
        else:
            corrected = new


def _part(part: str, role: str, *, new: bool) -> Iterator[Claim]:
    """Read one part of a sentence with the rules."""
    former = NONE
    if found := _CONTRAST.match(part) or (", not " in part and _NOT.match(part)):
        part, former, new = f"{found['head']} {found['rest']}", _named(found["old"]), True
    new = new or " actually " in part
    later = _NOW.sub(" ", part)
    part, new = later, new or later != part
    words = [word for word in part.strip(" ,").replace(",", " ,").split() if word not in _PASSING]
    if len(words) < 3 or words[0] in _NO_START or _MAY.search(part):
        return
    said = set(words)
    if said & _DOUBTS:
        return
    weak = bool(said & _WEAK) or " as well" in part
    if words[0] in _CHANGED - _PLURAL:
        words = ["we", *words]  # "bumped the timeout to 60"
    reading = _Reading(role, new, weak, former)
    yield from reading.of_us(words) if words[0] in ("i", "we") else reading.of_a_thing(words)


class _Reading:
    """One part of a sentence, and how it is meant."""

    def __init__(self, role: str, new: bool, weak: bool, former: Words) -> None:
        self.role, self.new, self.weak, self.former = role, new, weak, former
        self.own = False

    def of_a_thing(self, words: list[str]) -> Iterator[Claim]:
        at = next((at for at in range(1, min(9, len(words))) if _is_verb(words[at - 1], words[at])), 0)
        if at and (thing := self._subject(words[:at])):
            yield from self._apply(OF_THINGS, thing, words[at], words[at + 1 :])

    def of_us(self, words: list[str]) -> Iterator[Claim]:
        at = 1
        while (
            at < len(words) - 1
            and words[at] in ("have", "had", "just", "recently", "finally", "since", "already")
            and not (words[at] == "have" and re.match(rf"(?:\d|(?:{_NUMBER_WORDS})$)", words[at + 1]))
        ):
            at += 1
        verb, rest = words[at], words[at + 1 :]
        self.own = True
        if verb == "prefer":
            yield from self._preferred(rest)
        elif not (verb in ("moved", "relocated") and words[0] == "we" and rest[:1] == ["to"] and "for" not in rest):
            for claim in self._apply(OF_US, [], verb, rest):
                yield claim if words[0] == "i" or "employ" not in claim.thing else replace(claim, single=False)

    def _apply(self, rules: Sequence[ClaimRule], thing: list[str], verb: str, rest: list[str]) -> Iterator[Claim]:
        text = " ".join(rest).replace(" ,", ",")
        for rule in rules:
            if verb in rule.verbs and (found := rule.rest.match(text)):
                if rule.relation is not None and (self.new or not rule.only_new):
                    self.new = self.new or rule.new
                    self.weak = self.weak or (verb in ("was", "were") and not rule.new)
                    yield from self._claim(rule, found.groupdict(), thing, verb)
                return

    def _claim(self, rule: ClaimRule, groups: dict[str, str | None], thing: list[str], verb: str) -> Iterator[Claim]:
        relation = rule.relation or "is"
        more = groups.get("thing")
        if more:
            named = self._subject(more.split())
            if not named:
                return
            thing = [*thing, *named]
        thing += [rule.thing.replace("@verb", verb)] if rule.thing else []
        if groups.get("count"):
            yield from self._counted(thing, groups["count"] or "", groups["what"] or "")
            return
        old, value = groups.get("old"), groups.get("value")
        if old and not value:
            words, used_for = _for_what(old.split())
            if former := _named(" ".join(words)):
                port = ["port"] if "port" in former and "port" not in thing else []
                key = _key_of([*thing, *used_for, *port])
                yield Claim(key, NONE, relation="any", new=True, former=former - {"port"})
            return
        former = self.former or (_named(old) if old else NONE)
        words, what_for = (value or "").split(), list[str]()
        if relation in ("use", "any") or "for" in words:
            words, what_for = _for_what(words)
        words = _cut(words)
        if old and not what_for:
            what_for = _for_what(old.split())[1]
            former = _named(" ".join(_for_what(old.split())[0])) if what_for else former
        if thing or what_for:
            yield from self._of(thing, words, what_for, relation, former, single=rule.single)
        elif former:
            yield Claim(NONE, _named(" ".join(words)), relation="any", new=True, former=former)
        else:
            said, kind, name = _value_of(words)
            if name and kind == "number":  # a name and its version
                yield Claim(_key_of(name), said, kind, "any", new=self.new, weak=self.weak)

    def _of(
        self,
        thing: list[str],
        words: list[str],
        what_for: list[str],
        relation: Relation,
        former: Words,
        *,
        single: bool,
    ) -> Iterator[Claim]:
        value, kind, more = _value_of(words, versions=relation != "is")
        if value:
            named = [*thing, *what_for, *(word for word in more if word not in thing)]
            single = single or (relation != "at" and _is_single(named, own=self.own))
            key = _key_of(named, kind)
            yield Claim(key, value, kind, relation, new=self.new, weak=self.weak, single=single, former=former)

    def _counted(self, thing: list[str], count: str, said: str) -> Iterator[Claim]:
        """`7 engineers`, `9 chapters so far`: how many there are."""
        what = _cut(said.split())
        for end in (["so", "far"], ["in", "total"], ["already"]):
            if what[-len(end) :] == end:
                what, self.new = what[: -len(end)], True
        self.new = self.new or "so far" in said
        if 0 < len(what) < 5 and not set(what) & _NOBODY:
            kept = frozenset(word for word in thing if word.startswith("@"))
            key = _key_of([*(word for word in thing if word not in kept), *what]) | kept
            yield Claim(key, frozenset((count,)), "number", new=self.new, weak=self.weak)

    def _preferred(self, rest: list[str]) -> Iterator[Claim]:
        if "not" in rest:
            return
        text = " ".join(rest)
        if found := _PREFERS.match(text):
            one, other = _named(found["one"]), _named(found["other"])
            if one and other:
                key = one | other | {"@prefer"}
                yield Claim(key, frozenset(("@", *one)), single=True, new=self.new, weak=self.weak)
            return
        if " for " in text:
            yield from self._apply(OF_US, [], "prefer", rest)
            return
        words = [word for word in _cut(rest) if word not in _ARTICLES]
        if len(words) == 2:  # "dark mode": of modes, the dark one
            yield Claim(_key_of(words[1:]) | {"@prefer"}, frozenset(words[:1]), new=self.new, weak=self.weak)

    def _subject(self, words: list[str]) -> list[str]:
        """Return the thing that words before a verb name; [] if that is not plain."""
        at = 0
        mine = ("your",) if self.role == "assistant" else ("my", "our")
        if not words or (words[0] in ("my", "your") and words[0] not in mine):
            return []
        while at < len(words) and words[at] in (*mine, "the", "our", "new", "current"):
            self.own = self.own or words[at] in (*mine, "our")
            self.new = self.new or (words[at] == "new" and at > 0)
            at += 1
        thing = [word.removesuffix("'s") for word in words[at:] if word != ","]
        if not thing or len(thing) > 6 or not thing[0][0].isalnum() or set(thing) & (_NOBODY | {"old"}):
            return []
        return [] if thing[0] in _ORDINALS or thing[-1] in _EMPTY or thing == ["day"] else thing


def _is_verb(before: str, word: str) -> bool:
    """Return whether a word is the verb of a thing: "the use case is" has a noun where "the tests use" has a verb."""
    return before.endswith("s") if word in _PLURAL else word in _OF_THINGS


def _for_what(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """`B for THING`, `B as THING` → B and the thing."""
    for at, word in enumerate(words):
        if word in ("for", "as") and at:
            return list(words[:at]), _cut(words[at + 1 :])
    return _cut(words), []


def _cut(words: Sequence[str]) -> list[str]:
    """Return the words up to where a sentence turns to something else."""
    text = " ".join(words).replace(" ,", ",")
    return [word.strip(".,:!'`*") for word in _STOPS.split(f"{text} ", maxsplit=1)[0].split()]


def _named(text: str) -> Words:
    value, _, more = _value_of(_cut(text.split()))
    return value | frozenset(more)


# ── things and values ──


def _key_of(words: Sequence[str], kind: Kind = "name") -> Words:
    """Return the thing that these words name, whatever their order and number."""
    named = [_ONE_NAME.get(word, word) for word in _bare(words)]
    known = attribute_of(" ".join(named)) if named and is_known(" ".join(named)) else ""
    left = {stem(word) for word in (known.split() if known else named) if word not in _SMALL}
    if kind == "when":
        left = left - {"date", "time", stem("day")} or left
    fewer = left - {stem(word) for word in _CLASSES}
    return frozenset(fewer or left)


def _is_single(words: Sequence[str], *, own: bool) -> bool:
    """Return whether what these words name has one value at a time. `own`: somebody said "my" or "our"."""
    named = [_ONE_NAME.get(word, word) for word in _bare(words)]
    if not named:
        return False
    if named[0] == "favorite" and own:
        return not named[-1].endswith("s") or len(named) < 2
    if own and is_known(" ".join(named)):
        return True
    return bool(_SINGLE & set(named)) and (own or len(named) > 1)


def _signs_of(thing: Words) -> tuple[tuple[str, ...], ...]:
    """Return, for each word of a thing, pieces one of which is in any text that names it."""
    return tuple(_pieces(word) for word in thing if not word.startswith("@"))


@lru_cache(maxsize=4_096)
def _pieces(word: str) -> tuple[str, ...]:
    others = [short for short, long in _ONE_NAME.items() if stem(long) == word]
    known = [name for name, kept in names().items() if word in map(stem, kept.split())]
    start = word[: max(2, min(4, len(word) - 1))] if word.isascii() else word[:2]
    return tuple(dict.fromkeys((start, *others, *known, *_DOING.get(word, ()))))


def _value_of(words: Sequence[str], *, versions: bool = True) -> tuple[Words, Kind, tuple[str, ...]]:
    """Return the words of a value, their kind, and what they add to the thing ("port 5433": "port").

    No words if they say how the thing is, and not what.
    """
    named = _bare(words)
    if not named or len(named) > 7:
        return NONE, "name", ()
    first = named[0]
    if first == "port" and len(named) > 1 and named[1].isdigit():
        return frozenset((named[1],)), "number", ("port",)
    if versions and len(named) == 2 and _has_versions(first) and _VERSION.fullmatch(named[1]):
        return frozenset((named[1].lstrip("v"),)), "number", (first,)
    if any(_WHEN.fullmatch(word) for word in named[:4]):
        return frozenset(word for word in named if word not in _SMALL), "when", ()
    if _NUMBER.fullmatch(first):
        return frozenset(_DIGITS.findall(" ".join(named))) or frozenset(named[:1]), "number", ()
    given = bool(words) and words[0] in _ARTICLES
    if first in HOW or (first.endswith("ly") and len(named) > 1):
        return NONE, "name", ()
    if not given and len(first) > 4 and first.endswith(("ing", "ed")):
        return NONE, "name", ()
    return frozenset(word for word in named if word not in _SMALL), "name", ()


def _has_versions(name: str) -> bool:
    """Return whether a number after this name may be its version, and is not the third floor, or May."""
    if len(name) < 3 or not name.isalpha() or _WHEN.fullmatch(name):
        return False
    return name not in ("version", "room", "floor", "gate", "level")


def _bare(words: Sequence[str]) -> list[str]:
    return [word for word in words if word not in _ARTICLES]
