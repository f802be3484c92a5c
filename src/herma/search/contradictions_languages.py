"""The same in German, Chinese, Japanese, Korean; vocabularies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, Literal

from herma.facts.extract import HOW, attribute_of, is_known, names
from herma.text import Late, stem

# ---------- recall.claims.words
#
# The words by which claims are told apart from everything else that is said.

Words = frozenset[str]


def _words(text: str) -> Words:
    return frozenset(text.split())


ELSEWHERE: Final = _words(
    """
    if whether would suppose supposing imagine pretend wish hypothetically assuming unless otherwise said says
    told wrote writes claims claimed asked asks according quote quoted story novel fiction dream dreamt dreamed
    example fictional character scenario let let's
    """
)
"""Make a whole sentence somebody else's, or not so."""
DOUBTS: Final = _words(
    """
    maybe perhaps might could should will shall want wants wanted planning going gonna thinking considering hope
    hopes hoping please can cannot never nearly almost try trying probably possibly presumably
    """
)
NO_START: Final = _words(
    """
    what which who whom whose where why how when while after before until once though although as is are am do
    does did can could should would will has have was were
    """
)
"""A sentence that begins so asks, or tells of another time."""
OPENERS: Final = {
    **dict.fromkeys(("actually", "correction", "update", "turns", "wait", "edit"), True),
    **dict.fromkeys(
        _words(
            """
            ok okay so and oh well hey hi hello yes yeah no fyi btw sorry reminder anyway then again though out it quick
            heads up just think
            """
        ),
        False,
    ),
}
"""Words before the sentence proper; True where they say that it was thought otherwise before."""
LABELS: Final = frozenset(OPENERS) | _words(
    "done noted note notes todo ps nb summary result fixed changed new reminder important info hinweis korrektur status"
)
"""Before a colon these are no name of who speaks."""
PASSING: Final = _words("actually just recently currently finally")
"""Say nothing about what is claimed."""
ADDING: Final = _words("another also too additional extra both either besides plus")
"""What is claimed with these comes besides something else."""
FLEETING: Final = _words("today tonight tomorrow temporarily sometimes occasionally usually often still")
"""What is claimed with these may be so for a day."""
NOBODY: Final = _words(
    """
    it this that these those there here he she they you his her their its everything everyone everybody someone
    somebody something anything nothing nobody people others one some any each every all many most which what
    who a an another other and or not no so
    """
)
"""Name nothing that another message could name."""
EMPTY: Final = _words(
    """
    problem issue question thing idea point reason answer result way rest error bug fact truth weather food part
    step trick catch difference advantage downside output message text line code function concern focus
    """
)
"""Every message may mean another one by these."""
PLACES: Final = _words("first second third next last following best worst")
BE: Final = _words("is are was were")
CHANGED: Final = _words(
    """
    changed switched moved updated rescheduled postponed pushed shifted renamed extended raised lowered
    increased reduced upgraded downgraded migrated bumped relocated transferred set brought adjusted cut
    """
)
GREW: Final = _words("went dropped rose grew fell climbed jumped decreased improved grown risen fallen gone")
REACHED: Final = _words("reached hit")
LIES: Final = _words("on at in under with to by via")
PUT: Final = _words(
    """
    hosted deployed located based running stored kept scheduled set planned due called named listening served
    saved placed booked written built implemented made
    """
)
STATES: Final = _words(
    """
    runs run listens lives live sits resides uses use costs points starts begins opens works work leaves departs
    arrives ends closes
    """
)
OURS: Final = _words("deploy ship store keep host meet publish park bank")
"""What people do with things somewhere."""
PLURAL: Final = _words("run use live work have do set cut")
"""Verbs of many things, and nouns."""
HAVE: Final = _words("have own has")
DID: Final = _words("finished read watched completed written visited collected")
LEFT: Final = _words("replaced dropped ditched renamed")
OF_THINGS: Final = BE | CHANGED | GREW | STATES | _words("has got does")
LINKS: Final = BE | CHANGED | GREW | STATES | OURS | HAVE | LEFT | _words("joined prefer prefers using am")
"""Without any of these English claims nothing."""
MOVED_ABROAD: Final = _words(
    """
    verschoben verlegt geandert erhoht gesenkt umgestellt umbenannt gewechselt umgezogen verlangert verkurzt
    aktualisiert angehoben gesetzt
    """
)
GERMAN: Final = _words(
    """
    ist sind lauft laufen steht liegt wohne lebe arbeite wurde wurden haben habe bin betragt heisst heißt lautet nutzen
    nutze verwenden verwende benutze benutzen
    """
)
"""Verbs one of which is in whatever is read of German."""
TELLING: Final = (
    CHANGED
    | GREW
    | REACHED
    | LEFT
    | MOVED_ABROAD
    | frozenset(word for word, otherwise in OPENERS.items() if otherwise)
    | _words("now nowadays longer anymore new joined far total instead")
    | _words("jetzt nun inzwischen mittlerweile neuer neue neues neuen statt umgestiegen gezogen umgezogen")
)
"""Without any of these nothing says that it was otherwise before."""
SPEAKING: Final = _words("my our i we mein meine unser unsere ich wir the der die das")
ARTICLES: Final = _words(
    """
    a an the my our your new own current der die das den dem ein eine einen mein meine unser unsere
    """
)
SMALL: Final = _words("of for in on at with to from by and der des fur von im am")
CLASSES: Final = _words("target server service environment instance machine application app")
"""Say what kind of thing it is; left out where there is another word: "staging" and "the staging server" are one."""
TIMES: Final = _words("date time day")
SINGLE: Final = _words(
    """
    port version url host hostname branch address deadline budget timeout limit ip domain region size password
    editor shell username email birthday dose rent salary capacity theme
    """
)
"""Has one value at a time, whoever says it."""
LIVING: Final = _words("live reside based living work working favorite favourite prefer wohne lebe arbeite")
"""Tell of what a person has one of."""
ONE_NAME: Final = {
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
ABROAD_NOT_THINGS: Final = _words("这 這 那 他 她 它 你 您 因为 因為 但 所以 如果 就 还 還 都 也 不 只 或")


# ---------- recall.claims.claim
#
# A claim, and when a later one says otherwise. Pure.
#
# The thing is a set of stems, so that "the port of staging" and "the staging port" are one; what is said of it has a
# kind (a time, a number, a name), and only claims of one kind can disagree: that a meeting is in room 4 does not deny
# that it is on Friday.

Kind = Literal["when", "number", "name"]
Relation = Literal["is", "at", "use", "any"]
"""How the thing and what is said of it belong together; `any` where something changed to it."""
NONE: Words = frozenset()
SINGLE_WORDS = SINGLE | LIVING | frozenset(name.split()[-1] for name in names())
"""One of these is in whatever claims something that has one value, in English."""
_WHEN = re.compile(
    r"(?:mon|tues|wednes|thurs|fri|satur|sun)days?|(?:jan|febr)uary|march|april|may|june|july|august|(?:sept|nov|dec)ember|october"
    r"|\d{1,2}:\d\d|(?:\d{1,2})?(?:am|pm)|noon|midnight|hourly|daily|weekly|monthly|every|tomorrow|morning|evening|afternoon"
    r"|\d{4}-\d\d-\d\d|o'clock|(?:mon|diens|donners|frei|sams|sonn)tags?|mittwochs?|uhr|januar|februar|marz|mai|juni|juli|oktober|dezember"
)
_NUMBER = re.compile(
    r"[€$£~#]?\d[\d.,:%/-]*[a-z%]{0,4}|(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty|forty|fifty|hundred"
    r"|ein|zwei|drei|vier|funf|sechs|sieben|acht|neun|zehn)"
)
_DIGITS = re.compile(r"\d[\d.,]*\d|\d")
_VERSIONED = re.compile(r"v?\d{1,4}(?:\.\d{1,4}){0,3}")


_DOING = {
    "locat": ("live", "based", "living", "wohne", "lebe", "住", "搬"),
    "employ": ("work", "arbeite", "工作", "上班"),
}
_DOING["job"] = _DOING["employ"]


@dataclass(frozen=True, slots=True)
class Claim:
    """What a thing is said to be. `new`: that it was not so before; `weak`: of the past, for the day or besides others,
    so it makes nothing else outdated; `single`: it can be but one; `former`: what it is said to be no longer.
    """

    thing: Words
    value: Words
    kind: Kind = "name"
    relation: Relation = "is"
    new: bool = False
    weak: bool = False
    single: bool = False
    former: Words = NONE


def says_otherwise(later: Claim, earlier: Claim) -> bool:
    """Whether the later claim makes the earlier one outdated."""
    if later.weak:
        return False
    if later.former and _same(later.former, earlier.value) and (not later.thing or _about_the_same(later, earlier)):
        return not later.value or not _same(later.value, earlier.value)
    if not later.value or not earlier.value or not _about_the_same(later, earlier) or later.kind != earlier.kind:
        return False
    if not (later.new or (later.single and earlier.single)) or not _comparable(later, earlier):
        return False
    return not _same(later.value, earlier.value)


def says_the_same(later: Claim, earlier: Claim) -> bool:
    """Whether the later claim repeats the earlier one."""
    return (later.kind, later.thing) == (earlier.kind, earlier.thing) and _same(later.value, earlier.value)


def _about_the_same(one: Claim, other: Claim) -> bool:
    return bool(one.thing) and one.thing == other.thing


def _comparable(one: Claim, other: Claim) -> bool:
    if one.kind != "name" or "any" in (one.relation, other.relation):
        return True
    return one.relation == other.relation or {one.relation, other.relation} == {"is", "use"}


def _same(one: Words, other: Words) -> bool:
    """Whether two values may be the same: one says more than the other."""
    return one <= other or other <= one


def key_of(words: Sequence[str], kind: Kind = "name") -> Words:
    """The thing that these words name, whatever their order and number."""
    named = [ONE_NAME.get(word, word) for word in _bare(words)]
    known = attribute_of(" ".join(named), str) if named and is_known(" ".join(named)) else ""
    left = {stem(word) for word in (known.split() if known else named) if word not in SMALL}
    if kind == "when":
        left = left - {stem(word) for word in TIMES} or left
    fewer = left - {stem(word) for word in CLASSES}
    return frozenset(fewer or left)


def is_single(words: Sequence[str], *, own: bool) -> bool:
    """Whether what these words name has one value at a time. `own`: somebody said "my" or "our"."""
    named = [ONE_NAME.get(word, word) for word in _bare(words)]
    if not named:
        return False
    if named[0] == "favorite" and own:
        return not named[-1].endswith("s") or len(named) < 2
    if own and is_known(" ".join(named)):
        return True
    return bool(SINGLE & set(named)) and (own or len(named) > 1)


def signs_of(thing: Words) -> tuple[tuple[str, ...], ...]:
    """For each word of a thing, pieces one of which is in any text that names it."""
    return tuple(_pieces(word) for word in thing if not word.startswith("@"))


@lru_cache(maxsize=4_096)
def _pieces(word: str) -> tuple[str, ...]:
    others = [short for short, long in ONE_NAME.items() if stem(long) == word]
    known = [name for name, kept in names().items() if word in map(stem, kept.split())]
    return tuple(
        dict.fromkeys(
            (
                word[: max(2, min(4, len(word) - 1))] if word.isascii() else word[:2],
                *others,
                *known,
                *_DOING.get(word, ()),
            )
        )
    )


def value_of(words: Sequence[str], *, versions: bool = True) -> tuple[Words, Kind, tuple[str, ...]]:
    """What is said of a thing: its words, their kind, and what they add to the thing ("port 5433": "port"). No words
    where it says how the thing is, and not what.
    """
    named = _bare(words)
    if not named or len(named) > 7:
        return NONE, "name", ()
    if named[0] == "port" and len(named) > 1 and named[1].isdigit():
        return frozenset((named[1],)), "number", ("port",)
    if versions and len(named) == 2 and _has_versions(named[0]) and _VERSIONED.fullmatch(named[1]):
        return frozenset((named[1].lstrip("v"),)), "number", (named[0],)
    if any(_WHEN.fullmatch(word) for word in named[:4]):
        return frozenset(word for word in named if word not in SMALL), "when", ()
    if _NUMBER.fullmatch(named[0]):
        digits = frozenset(_DIGITS.findall(" ".join(named))) or frozenset(named[:1])
        return digits, "number", ()
    if _tells_how(words, named):
        return NONE, "name", ()
    return frozenset(word for word in named if word not in SMALL), "name", ()


def _has_versions(name: str) -> bool:
    """Whether a number after this name may be its version, and is not the third floor, or May."""
    if len(name) < 3 or not name.isalpha() or _WHEN.fullmatch(name):
        return False
    return name not in ("version", "room", "floor", "gate", "level")


def _tells_how(words: Sequence[str], named: Sequence[str]) -> bool:
    first = named[0]
    if first in HOW or (first.endswith("ly") and len(named) > 1):
        return True
    given = bool(words) and words[0] in ARTICLES
    return not given and len(first) > 4 and first.endswith(("ing", "ed"))


def _bare(words: Sequence[str]) -> list[str]:
    at = 0
    while at < len(words) and words[at] in ARTICLES:
        at += 1
    return [word for word in words[at:] if word not in ARTICLES]


# ---------- recall.claims.abroad
#
# Claims in German, Chinese, Japanese and Korean, by the few ways in which they are made plainly. Pure and linear.

_EAST = Late(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7a3]")
_NOT_SO = Late(
    r"\b(?:vielleicht|wahrscheinlich|eventuell|konnten?|sollten?|soll|wenn|falls|ob|mochten?|wollen|will|bald|plane[n]?|angenommen"
    r"|sagte|sagt|meinte|schrieb|stell dir vor)\b"
)
_NOW = Late(r"\b(?:jetzt|nun|inzwischen|mittlerweile|ab sofort|neuerdings|seit kurzem)\b ?")
_THE = (
    r"(?:(?P<own>mein|meine|meinen|unser|unsere|unseren)|der|die|das|den|dem) (?P<fresh>neue[rsn]? )?"
    r"(?P<thing>[\w./-]+(?: [\w./-]+){0,3}?)"
)
_THE_TOO = re.sub(r"P<(\w+)>", r"P<\g<1>2>", _THE)
"""The same where a pattern has it twice."""
_MOVED = f"(?:{'|'.join(sorted(MOVED_ABROAD))})"
_GERMAN_IS = Late(
    rf"^(?:{_THE}|(?P<bare>[\w./-]{{3,30}})) (?:ist|sind|lauft|laufen|steht|liegt|betragt|heißt|heisst|lautet)"
    r"(?P<gone> nicht mehr (?P<old>[^,]{1,40}),? sondern)?(?P<never> nicht mehr)?"
    r"(?P<at> (?:am|auf|in|im|bei|um|an))?(?: der| dem| den)? (?P<value>[^,;]{1,60})$"
)
_GERMAN_MADE = Late(
    rf"^(?:(?:wir haben|ich habe) {_THE}|{_THE_TOO} wurden?) (?:vo[nm] (?P<old>[^,]{{1,40}}?) )?"
    rf"(?:auf|nach|zu|in|zum|ins) (?:den |die |das )?(?P<value>[^,;]{{1,60}}?) {_MOVED}$"
)
_GERMAN_FROM = Late(
    r"^(?:wir sind|ich bin) von (?P<old>[^,]{1,40}?) (?:auf|zu) (?P<value>[^,;]{1,40}?)"
    r" (?:umgestiegen|gewechselt|umgezogen)$"
)
_GERMAN_LIVES = Late(
    r"^ich (?:wohne|lebe) in (?P<value>[^,;]{1,40})|^ich bin nach (?P<moved>[^,;]{1,40}?) (?:um)?gezogen$"
)
_GERMAN_WORKS = Late(r"^ich arbeite (?P<how>bei|fur|als) (?P<value>[^,;]{1,40})$")
_GERMAN_USES = Late(
    r"^(?:wir|ich) (?:nutzen?|verwenden?|benutzen?) (?P<value>[^,;]{1,40}?)"
    r" (?:fur|als) (?P<thing>[^,;]{1,40}?)(?: statt (?P<old>[^,;]{1,40}))?$"
)

_HAN = r"(?P<thing>[\u3400-\u9fffa-z0-9]{2,14}?)"
_KANA = r"(?P<thing>[\u3040-\u30ff\u3400-\u9fff]{2,12}?)"
_MADE = r"(?:改成|改為|改为|換成|换成|換到|换到|變成|变成|調整為|调整为|改到|移到|搬到|升到|升級到|升级到|降到)了?"
_ONCE = r"(?:原本|原来|原來|一开始|一開始|之前|目前|現在|现在)"
_SET = r"(?:定在|定为|定為|是|為|为|設在|设在|選在|选在)"
_ZH_VALUE = r"(?P<value>[^，。,；;]{1,40})"
_ZH_DOUBT = Late(
    r"可能|也许|也許|打算|如果|是否|要不要|会不会|會不會|应该|應該|想要|也是|也用|假如|他说|她说|他說|她說|吗$|嗎$|[什怎哪]|かもしれ|つもり|아마|もし|만약"
)
_ZH_HOME = Late(rf"^我(?P<now>现在|現在|目前|已经|已經|刚|剛)?(?:住在|定居在?){_ZH_VALUE}")
_ZH_MOVED = Late(rf"^我(?:现在|現在|已经|已經|刚|剛)?(?:搬到|搬去){_ZH_VALUE}")
_ZH_WORK = Late(r"^我(?P<now>现在|現在|目前|已经|已經)?在(?P<value>[^，。,；;]{1,20}?)(?:工作|上班)了?$")
_ZH_NOT = Late(
    rf"^(?:我[們们]?的)?{_HAN}(?:已经|已經)?不(?:再)?是(?P<old>[^，。,；;]{{1,20}}?)了?[，,]?(?:而是|现在是|現在是|改成){_ZH_VALUE}"
)
_ZH_CHANGED = (
    Late(rf"{_HAN}(?:[从從由](?P<old>[^，。,]{{1,30}}?))?{_MADE}{_ZH_VALUE}"),
    Late(rf"(?:目前|現在|现在)的?{_HAN}(?:是|為|为){_ZH_VALUE}"),
    Late(rf"^(?:我[們们]?的?)?{_HAN}(?:目前|現在|现在)(?:是|為|为){_ZH_VALUE}"),
)
_ZH_IS = (
    Late(rf"我[們们]?{_ONCE}?的?{_HAN}(?:想先|先|想|就|原本|本来|本來)?{_SET}{_ZH_VALUE}"),
    Late(rf"^{_HAN}(?:是|为|為){_ZH_VALUE}"),
)
_JA_MADE = Late(rf"{_KANA}を(?:(?P<old>[^、。]{{1,30}}?)から)?(?P<value>[^、。]{{1,30}}?)に(?:変更|変え|移し|切り替え)")
_JA_IS = Late(
    rf"(?:私|僕|わたし)の{_KANA}は(?P<now>今は|今|現在は?)?、?(?P<value>[^、。]{{1,30}}?)(?:です|だ|でした)(?:$|[、。])"
)
_KO_MADE = Late(
    r"(?:(?:내|제|나의|우리) )?(?P<thing>\S{2,12}?)(?:을|를) (?:(?P<old>[^,.]{1,20}?)에서 )?"
    r"(?P<value>[^,.]{1,40}?)(?:으로|로) (?:바꿨|바꾸었|변경|옮겼)"
)
_KO_IS = Late(
    r"(?:내|제|나의) (?P<thing>\S{2,12}?)(?:은|는) (?P<now>이제 )?(?P<value>[^,.]{1,40}?)(?:이다|입니다|예요|이에요)"
)
_ENOUGH = "改換换變变調调移搬升降現现再変切住的今"
TELLS_ABROAD = Late(
    f"[{_ENOUGH}目喜好工上바변옮이私제내]"
    f"(?:(?<=[{_ENOUGH}])|(?<=目)前|(?<=喜)[欢歡]|(?<=好)き|(?<=工)作|(?<=上)班|(?<=바)[꿨꾸]|(?<=변)경|(?<=옮)겼|(?<=이)제|"
    "(?<=私)の|(?<=[제내]) )"
)
"""Without any of these nothing is told here that makes anything outdated. What an expression begins with is looked for
five times as fast where it is one set of characters.
"""
_LEAD = Late(
    r"^(?:我[們们]?)?(?:後來|后来|已經|已经|又|再|就|先|也|都|決定|决定)*(?:把|將|将)?(?:我[們们]?的|原本的|目前的|现在|現在|目前)?的?"
)


def abroad(sentence: str) -> Iterator[Claim]:
    """What one folded sentence claims."""
    if not sentence.isascii() and _EAST.search(sentence):
        if not _ZH_DOUBT.search(sentence):
            yield from _eastern(sentence)
    elif not GERMAN.isdisjoint(sentence.split()) and not _NOT_SO.search(sentence):
        yield from _german(sentence)


# ── German ──


def _german(sentence: str) -> Iterator[Claim]:
    plain = _NOW.sub("", sentence).strip(" ,")
    new = plain != sentence
    if found := _GERMAN_LIVES.match(plain):
        moved = found["moved"]
        yield from _claim(["location"], moved or found["value"], new=new or bool(moved), single=True)
    elif found := _GERMAN_WORKS.match(plain):
        yield from _claim(["job" if found["how"] == "als" else "employer"], found["value"], new=new, single=True)
    elif found := _GERMAN_FROM.match(plain):
        yield Claim(NONE, _value(found["value"]), relation="any", new=True, former=_value(found["old"]))
    elif found := _GERMAN_USES.match(plain):
        old = _value(found["old"] or "")
        yield from _claim(found["thing"].split(), found["value"], "use", new=new or bool(old), former=old)
    elif found := _GERMAN_MADE.match(plain):
        old = _value(found["old"] or "")
        thing = found["thing"] or found["thing2"]
        yield from _claim(thing.split(), found["value"], "any", new=True, former=old)
    elif found := _GERMAN_IS.match(plain):
        yield from _german_is(found, new=new)


def _german_is(found: re.Match[str], *, new: bool) -> Iterator[Claim]:
    thing = (found["thing"] or found["bare"]).split()
    if found["bare"] in (
        "das",
        "es",
        "er",
        "sie",
        "dies",
        "hier",
        "was",
        "wer",
        "wo",
        "wie",
        "wann",
        "ich",
        "dort",
        "alles",
    ):
        return
    if found["never"]:
        yield Claim(key_of(thing), NONE, relation="any", new=True, former=_value(found["value"]))
        return
    relation: Relation = "at" if found["at"] else "is"
    old = _value(found["old"] or "")
    fresh = new or bool(found["fresh"]) or bool(old)
    own = bool(found["own"])
    value = found["value"]
    if value.startswith(("in ", "im ", "nicht ", "sehr ", "zu ")):
        return
    single = own and (is_known(" ".join(thing)) or thing[0].startswith("lieblings") or is_single(thing, own=True))
    yield from _claim(thing, value, relation, new=fresh, single=single, former=old)


def _claim(
    thing: list[str], said: str, relation: Relation = "is", *, new: bool, single: bool = False, former: Words = NONE
) -> Iterator[Claim]:
    value, kind, more = value_of(said.split())
    if value:
        key = key_of([*thing, *(word for word in more if word not in thing)], kind)
        yield Claim(key, value, kind, relation, new=new, single=single, former=former)


def _value(text: str) -> Words:
    value, _, more = value_of(text.split())
    return value | frozenset(more)


# ── Chinese, Japanese, Korean ──


def _eastern(sentence: str) -> Iterator[Claim]:
    if found := _ZH_HOME.match(sentence):
        yield Claim(frozenset(("locat",)), _run(found["value"]), new=bool(found["now"]), single=True)
    elif found := _ZH_MOVED.match(sentence):
        yield Claim(frozenset(("locat",)), _run(found["value"]), new=True, single=True)
    elif found := _ZH_WORK.match(sentence):
        yield Claim(frozenset(("employ",)), _run(found["value"]), new=bool(found["now"]), single=True)
    elif found := _ZH_NOT.match(sentence):
        yield from _run_claim(found["thing"], found["value"], new=True, former=found["old"])
    else:
        yield from _eastern_other(sentence)


def _eastern_other(sentence: str) -> Iterator[Claim]:
    for pattern in (*_ZH_CHANGED, _JA_MADE, _KO_MADE):
        if found := pattern.search(sentence):
            old = found["old"] if "old" in found.groupdict() else None
            yield from _run_claim(found["thing"], found["value"], new=True, former=old or "")
            return
    for pattern in (_JA_IS, _KO_IS):
        if found := pattern.search(sentence):
            yield from _run_claim(found["thing"], found["value"], new=bool(found["now"]))
            return
    for pattern in _ZH_IS:
        if found := pattern.search(sentence):
            yield from _run_claim(found["thing"], found["value"], new=False)
            return


def _run_claim(thing: str, value: str, *, new: bool, former: str = "") -> Iterator[Claim]:
    named = _LEAD.sub("", thing, count=1)
    if len(named) < 2 or any(named.startswith(word) for word in ABROAD_NOT_THINGS):
        return
    known = is_known(named)
    key = key_of([named]) if known else frozenset((named.replace("的", ""),))
    if said := _run(value):
        single = known or named.startswith(("最喜欢", "最喜歡", "好きな"))
        yield Claim(key, said, "name", "any" if new else "is", new=new, single=single, former=_run(former))


def _run(value: str) -> Words:
    """A value without spaces between its words is one word; what ends a sentence is no part of it."""
    plain = re.sub(r"[了啦的呢。.！!]+$", "", value.strip())
    return frozenset((plain,)) if plain else NONE
