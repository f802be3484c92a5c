"""Which fact a question asks for: "what is my time zone?" → the user's time zone. Pure and linear; no guessing.

A question may be put in several ways ("which port does staging use?", "what's the port of staging", "staging's port?")
and mean one of a few things; these are given in order, and the first that anything is known about counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from herma.facts.attributes import attribute_of, choice_of, folded, is_known
from herma.facts.extract import PERSONAL, USER
from herma.late import Late

LONGEST = 200
_AFTER = (
    r"(?:,?\s+(?:again|now|currently|right now|these days|today|at the moment|please|called|set to|by the way"
    r"|nochmal|eigentlich|jetzt|gerade|bitte))*"
)
_IS = r"(?:'s|\s+is|\s+are|s)"
_POLITE = Late(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|remind me(?: of)?|tell me|do you (?:know|remember)"
    r"|can you (?:tell me|remind me(?: of)?)|please|quick question|i forgot|sorry|sag mir|weißt du(?: noch)?|und|also"
    r"|请问|請問)[\s,:!.-]*(?<=[\s,:!.问問-]))+"
)
_WHAT = r"(?:what|which|who|when|where)"
_MINE = Late(rf"^{_WHAT}{_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_CALLED = Late(rf"^(?:what|who){_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?)\s+(?:called|named){_AFTER}$")
_WHOSE = Late(rf"^{_WHAT}{_IS}\s+(?:the\s+)?(?P<who>[\w.-]{{2,30}})'s\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_THE = Late(rf"^{_WHAT}{_IS}\s+the\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_TOLD = Late(rf"^(?:what\s+)?(?:my|our)\s+(?P<attribute>.{{1,40}}?)(?:{_IS}(?:\s+{_WHAT})?)?{_AFTER}$")
_DAY = Late(rf"^(?:on\s+)?(?:what|which)\s+(?:day|date)\s+is\s+(?P<attribute>(?:my|our|the)\s+.{{1,50}}?){_AFTER}$")
_FAVORITE = Late(rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+my\s+(?P<how>favou?rite){_AFTER}$")
_DO = Late(
    rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>.{{1,50}}?)\s+(?:do|does|am|are)\s+"
    rf"(?:i|we|the project|the user)"
    rf"(?:\s+(?:use|have|prefer|like|run|work with|using|in|on|speak))?(?:\s+(?:most|for work|at work|here))?{_AFTER}$"
)
_DOES = Late(
    rf"^(?:(?:in|on)\s+)?(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+(?:does|do|is|are)\s+"
    rf"(?P<thing>(?:the\s+|my\s+|our\s+)?[\w./' -]{{2,40}}?)"
    rf"(?:\s+(?:use|run|listen|have)(?:\s+(?:on|at))?|\s+(?:on|running on|using|listening on)){_AFTER}$"
)
_USED_BY = Late(
    rf"^(?:what|which)\s+(?P<attribute>[\w -]{{1,40}}?)\s+is\s+used\s+(?:by|for|in)\s+"
    rf"(?P<thing>[\w./' -]{{2,40}}?){_AFTER}$"
)
_FOR = Late(
    rf"^what\s+(?:do|does|am|are)\s+(?:i|we|the project)\s+(?:use|using|run|prefer)\s+(?:for|as)\s+"
    rf"(?:the\s+|my\s+|our\s+|an?\s+)?(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_CHOICE = Late(
    r"^(?:(?:do|does)\s+(?:i|we|the user)\s+(?:prefer|like|use|want)\s+|what\s+do\s+i\s+prefer,?\s+)?"
    r"(?P<one>[^\s,][^,]{0,40}?)\s+or\s+(?P<other>[^,]{1,40})$"
)
_BARE = Late(r"^(?:(?P<who>[\w.-]{2,30})'s\s+)?(?P<attribute>[\w./-]{2,30}(?:\s+(?:of\s+|for\s+)?[\w./-]{2,30}){0,3})$")
_OF = Late(r"^(?P<attribute>[\w -]{2,30}?)\s+(?:of|for)\s+(?:(?P<own>my|our)\s+)?(?P<who>[\w.-]{2,30})$")
_WORDS = """
is are was were do does did can could should would will may might have has had make makes run fix add show tell give go
get let use write explain please what which who when where why how help need want
"""
_VERBS = frozenset(_WORDS.split())
"""Whoever says one of these where a name is expected asks for something else."""
_FIXED: tuple[tuple[Late, str], ...] = (
    (
        Late(rf"^where\s+(?:do i live|am i based|am i located|am i living|is my home|do i reside){_AFTER}$"),
        "location",
    ),
    (Late(rf"^(?:what|which)\s+(?:city|town|country|place)\s+do i live in{_AFTER}$"), "location"),
    (Late(rf"^in\s+(?:what|which)\s+(?:city|town|country|place)\s+do i live{_AFTER}$"), "location"),
    (
        Late(
            rf"^where\s+do i work{_AFTER}$|^who\s+do i work for{_AFTER}$"
            r"|^(?:what|which)\s+company\s+do i work (?:for|at)$"
        ),
        "employer",
    ),
    (Late(rf"^what\s+do i do for (?:a living|work){_AFTER}$"), "job"),
    (Late(r"^when\s+was i born$|^when\s+do i have (?:my|a) birthday$"), "birthday"),
    (Late(r"^who\s+am i$|^what\s+am i called$"), "name"),
    (Late(r"^(?:in\s+)?(?:what|which)\s+time\s*zone\s+am i(?:\s+in)?$"), "time zone"),
    (Late(rf"^wo\s+(?:wohne|lebe)\s+ich{_AFTER}$|^in\s+welcher\s+stadt\s+(?:wohne|lebe)\s+ich$"), "location"),
    (Late(rf"^(?:wo|bei\s+wem)\s+arbeite\s+ich{_AFTER}$|^für\s+wen\s+arbeite\s+ich$"), "employer"),
    (Late(rf"^wann\s+(?:habe\s+ich\s+geburtstag|bin\s+ich\s+geboren){_AFTER}$"), "birthday"),
    (Late(r"^wie\s+heiße\s+ich$|^wer\s+bin\s+ich$"), "name"),
    (Late(r"^in\s+welcher\s+zeitzone\s+(?:bin|lebe|wohne|arbeite)\s+ich$"), "time zone"),
    (Late(r"^我(?:现在|現在|目前)?住在?(?:哪|哪里|哪裡|哪儿|什么地方|什麼地方)$"), "location"),
    (Late(r"^我(?:现在|現在|目前)?在(?:哪|哪里|哪裡|哪儿|哪家公司|什么公司|什麼公司)(?:工作|上班)$"), "employer"),
    (Late(r"^我叫(?:什么|什麼|啥)(?:名字)?$|^我是(?:谁|誰)$"), "name"),
    (
        Late(r"^我(?:什么时候|什麼時候|哪天|几号|幾號)过?過?生日$|^我的?生日(?:是)?(?:哪天|几号|幾號)$"),
        "birthday",
    ),
    (Late(r"^我(?:现在|現在|目前)?(?:在|用)(?:哪个|哪個|什么|什麼)(?:时区|時區)$"), "time zone"),
    (Late(r"^(?:私|僕|わたし)は?どこに住んで(?:いる|いますか|いるか|ますか|る)?$"), "location"),
    (Late(r"^(?:나|저|내가|제가)(?:는)?\s*어디(?:에)?\s*(?:살아|살아요|사나요|살지)$"), "location"),
)
_DE_MINE = Late(
    rf"^(?:was|wie|wer|wann|wo|welches|welche|welcher)\s+(?:ist|sind|lautet|heißt|war)\s+(?:mein|meine|unser|unsere)\s+"
    rf"(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_DE_THE = Late(
    rf"^(?:was|wie|wer|wann|wo|welches|welche|welcher)\s+(?:ist|lautet)\s+(?:der|die|das)\s+(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_DE_DOES = Late(
    r"^(?:auf\s+)?(?:welchem|welchen|welche|welcher|welches)\s+(?P<attribute>[\w-]{2,30})\s+"
    r"(?:läuft|nutzt|benutzt|verwendet|hat|hört)\s+(?:der\s+|die\s+|das\s+)?(?P<thing>[\w./ -]{2,40}?)$"
)
_ZH_HOW = r"(?:什么|什麼|啥|哪个|哪個|哪里|哪裡|哪一天|什么时候|什麼時候|多少|几号|幾號|几月几日|谁|誰)"
_ZH = Late(
    r"^(?:我|我们|我們)的(?P<attribute>[^\s的是]{1,12}?)(?:现在|現在|目前)?"
    rf"(?:是|在)?{_ZH_HOW}?(?:呢|来着|來著)?$"
)
_ZH_FAVORITE = Late(rf"^我(?:的)?(?P<attribute>最喜[欢歡]的[^\s的是]{{1,10}}?)(?:现在|現在)?是{_ZH_HOW}$")
_ZH_THING = Late(
    rf"^(?P<attribute>[^\s是我你他她它这那這]{{2,20}}?)(?:现在|現在|目前)?是{_ZH_HOW}(?:呢|来着|來著)?$"
    r"|^(?P<thing>[^\s是我你他她它这那這]{2,16}?)(?:用|使用|在)(?:的)?(?:哪个|哪個|什么|什麼|哪一个)(?P<what>[^\s的是]{1,8}?)$"
)
_JA = Late(
    r"^(?:私|僕|わたし)の(?P<attribute>[^\sは]{1,15})(?:は|って)?(?:何|なに|なん|どこ|いつ|いくつ)?(?:ですか|でしたか|だっけ|でしたっけ|か)?$"
)
_KO = Late(
    r"^(?:내|제|나의|저의)\s*(?P<attribute>\S{1,12}?)(?:은|는|이|가)?\s*(?:뭐야|뭐예요|무엇인가요|무엇입니까|뭔가요|뭐지|언제야|어디야|언제인가요|어디인가요)?$"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for. `subject` is None where it may be the user's, the project's or the home's; "" where it is of
    anybody but the user. `others` is what else may be meant, if nothing is known about this.
    """

    attribute: str
    subject: str | None = USER
    others: tuple[Question, ...] = ()

    def readings(self) -> tuple[Question, ...]:
        return (self, *self.others)


def read(text: str, stem: Callable[[str], str] = str) -> Question | None:
    """The fact that a text asks for; None for everything that is not plainly such a question."""
    if len(text) > LONGEST:
        return None
    asked = text.rstrip(" .!…。！").endswith(("?", "？"))
    said = _POLITE.sub("", folded(text).strip(" ?!.。？！…"), count=1)
    if not said:
        return None
    for pattern, attribute in _FIXED:
        if pattern.match(said):
            return Question(attribute)
    found = [one for one in _readings(said, asked, stem) if one.attribute]
    if not found:
        return None
    return Question(found[0].attribute, found[0].subject, tuple(found[1:]))


def _readings(said: str, asked: bool, stem: Callable[[str], str]) -> Iterator[Question]:
    """What a text may ask for, the likeliest first; the first way of asking that fits counts."""
    for way in (_of_a_choice, _of_somebody, _of_mine, _of_use, _of_the, _abroad, _bare):
        found = [Question(attribute_of(name, stem), whose) for name, whose in way(said, asked)]
        if way is _of_a_choice and found:
            choice = _CHOICE.match(said)
            yield Question(choice_of(choice["one"], choice["other"]) if choice else "")
            return
        if found:
            yield from found
            return


_Reading = tuple[str, str | None]


def _of_a_choice(said: str, asked: bool) -> Iterator[_Reading]:
    found = _CHOICE.match(said)
    if found and (said.startswith(("do ", "does ", "what do ")) or (asked and len(said.split()) < 6)):
        yield said, USER


def _of_somebody(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _WHOSE.match(said):
        if found["who"] == "user":
            yield found["attribute"], USER
            return
        yield found["attribute"], found["who"]
        yield f"{found['who']} {found['attribute']}", ""


def _of_mine(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _CALLED.match(said):
        yield f"{found['attribute']} name", None
        yield found["attribute"], None
    elif (found := _DAY.match(said)) or (found := _MINE.match(said)):
        yield found["attribute"], None
    elif found := _FAVORITE.match(said):
        yield f"{found['how']} {found['attribute']}", None
    elif (found := _TOLD.match(said)) and (
        is_known(found["attribute"]) or said.endswith(("what", "when", "where", "who"))
    ):
        yield found["attribute"], None


def _of_use(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _FOR.match(said) or _DO.match(said):
        yield found["attribute"], None
    elif (found := _USED_BY.match(said) or _DOES.match(said)) and not _VERBS & {
        *found["attribute"].split(),
        *found["thing"].split(),
    }:
        yield f"{found['thing']} {found['attribute']}", None


def _of_the(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    found = _THE.match(said)
    if found is None:
        return
    attribute = found["attribute"]
    # the name, the address: whose, nobody said
    yield attribute, "" if attribute_of(attribute) in PERSONAL else None
    if of := _OF.match(attribute):
        if of["own"]:
            if attribute_of(of["attribute"]) == "name":
                yield of["who"], None
        else:
            yield of["attribute"], of["who"]


def _abroad(said: str, asked: bool) -> Iterator[_Reading]:  # noqa: ARG001
    if found := _DE_MINE.match(said):
        yield found["attribute"], None
    elif found := _DE_DOES.match(said):
        yield f"{found['thing']} {found['attribute']}", None
    elif (found := _DE_THE.match(said)) and attribute_of(found["attribute"]) not in PERSONAL:
        yield found["attribute"], None
    elif said.isascii():
        return
    elif found := _ZH_FAVORITE.match(said):
        yield found["attribute"], None
    else:
        for pattern in (_ZH, _JA, _KO):
            if (found := pattern.match(said)) and is_known(found["attribute"]):
                yield found["attribute"], None
                return
        if found := _ZH_THING.match(said):
            yield found["attribute"] or f"{found['thing']}的{found['what']}", ""


def _bare(said: str, asked: bool) -> Iterator[_Reading]:
    """A name with a question mark and nothing else: "staging port?"."""
    found = _BARE.match(said) if asked and said.isascii() else None
    if found is None or set(said.replace("'s", "").split()) & _VERBS:
        return
    if found["who"]:
        yield found["attribute"], found["who"]
        yield f"{found['who']} {found['attribute']}", ""
    elif len(found["attribute"].split()) > 1:
        yield found["attribute"], ""
