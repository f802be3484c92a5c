"""Claims in German, Chinese, Japanese and Korean, by the few ways in which they are made plainly. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Iterator

from herma.facts.attributes import is_known
from herma.late import Late
from herma.recall.claims import words as vocabulary
from herma.recall.claims.claim import NONE, Claim, Relation, Words, is_single, key_of, value_of

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
_MOVED = f"(?:{'|'.join(sorted(vocabulary.MOVED_ABROAD))})"
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
    elif not vocabulary.GERMAN.isdisjoint(sentence.split()) and not _NOT_SO.search(sentence):
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
    if len(named) < 2 or any(named.startswith(word) for word in vocabulary.ABROAD_NOT_THINGS):
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
