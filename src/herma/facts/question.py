"""Which fact a question asks for: "what is my time zone?" → the user's time zone. Pure and linear; no guessing."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from herma.facts.attributes import attribute_of, choice_of, folded, is_known
from herma.facts.extract import USER

LONGEST = 200
_AFTER = r"(?:\s+(?:again|now|currently|right now|these days|today|at the moment|please|called|set to|by the way))*"
_IS = r"(?:'s|\s+is|\s+are|s)"
_POLITE = re.compile(
    r"^(?:(?:hi|hey|hello|so|ok|okay|and|remind me|tell me|do you (?:know|remember)|can you (?:tell me|remind me)"
    r"|please|"
    r"quick question|i forgot|sorry)[\s,:!.-]+)+"
)
_MINE = re.compile(rf"^(?:what|which|who|when|where){_IS}\s+(?:my|our)\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_WHOSE = re.compile(
    rf"^(?:what|which|who|when|where){_IS}\s+(?P<who>[\w.-]{{2,30}})'s\s+(?P<attribute>.{{1,60}}?){_AFTER}$"
)
_THE = re.compile(rf"^(?:what|which){_IS}\s+the\s+(?P<attribute>.{{1,60}}?){_AFTER}$")
_TOLD = re.compile(rf"^(?:what\s+)?(?:my|our)\s+(?P<attribute>.{{1,40}}?)(?:{_IS})?{_AFTER}$")
_DO = re.compile(
    rf"^(?:what|which)\s+(?P<attribute>.{{1,50}}?)\s+(?:do|does|am|did|are)\s+(?:i|we|the project|the user)\s+"
    rf"(?:use|have|prefer|like|run|work with|using|in|speak)(?:\s+(?:most|for work|at work|here))?{_AFTER}$"
)
_FOR = re.compile(
    rf"^what\s+(?:do|does|am|are)\s+(?:i|we|the project)\s+(?:use|using|run|prefer)\s+(?:for|as)\s+"
    rf"(?:the\s+|my\s+|our\s+|an?\s+)?(?P<attribute>.{{1,50}}?){_AFTER}$"
)
_CHOICE = re.compile(
    r"^(?:do|does)\s+(?:i|we|the user)\s+(?:prefer|like|use|want)\s+(?P<one>[^,]{1,40}?)\s+or\s+(?P<other>[^,]{1,40})$"
)
_FIXED: tuple[tuple[re.Pattern[str], str], ...] = (
    (
        re.compile(rf"^where\s+(?:do i live|am i based|am i located|am i living|is my home|do i reside){_AFTER}$"),
        "location",
    ),
    (re.compile(rf"^(?:what|which)\s+(?:city|town|country|place)\s+do i live in{_AFTER}$"), "location"),
    (
        re.compile(
            rf"^where\s+do i work{_AFTER}$|^who\s+do i work for{_AFTER}$"
            r"|^(?:what|which)\s+company\s+do i work (?:for|at)$"
        ),
        "employer",
    ),
    (re.compile(rf"^what\s+do i do for (?:a living|work){_AFTER}$"), "job"),
    (re.compile(r"^when\s+was i born$"), "birthday"),
    (re.compile(r"^who\s+am i$|^what\s+am i called$"), "name"),
    (re.compile(r"^what\s+time\s*zone\s+am i in$"), "time zone"),
    (re.compile(r"^我(?:现在|現在|目前)?住在?(?:哪|哪里|哪裡|哪儿|什么地方|什麼地方)$"), "location"),
    (re.compile(r"^我(?:现在|現在|目前)?在(?:哪|哪里|哪裡|哪儿|哪家公司|什么公司|什麼公司)(?:工作|上班)$"), "employer"),
    (re.compile(r"^我叫(?:什么|什麼|啥)(?:名字)?$|^我是(?:谁|誰)$"), "name"),
    (re.compile(r"^(?:私|僕|わたし)は?どこに住んで(?:いる|いますか|いるか|ますか|る)?$"), "location"),
    (re.compile(r"^(?:나|저|내가|제가)(?:는)?\s*어디(?:에)?\s*(?:살아|살아요|사나요|살지)$"), "location"),
)
_ZH = re.compile(
    r"^(?:请问|請問)?(?:我|我们|我們)的(?P<attribute>[^\s的是]{1,12}?)(?:现在|現在|目前)?"
    r"(?:是)?(?:什么|什麼|啥|哪个|哪個|哪里|哪裡|哪一天|什么时候|什麼時候|多少|几号|幾號|几月几日)?(?:呢|来着|來著)?$"
)
_JA = re.compile(
    r"^(?:私|僕|わたし)の(?P<attribute>[^\sは]{1,15})(?:は|って)?(?:何|なに|なん|どこ|いつ|いくつ)?(?:ですか|でしたか|だっけ|でしたっけ|か)?$"
)
_KO = re.compile(
    r"^(?:내|제|나의|저의)\s*(?P<attribute>\S{1,12}?)(?:은|는|이|가)?\s*(?:뭐야|뭐예요|무엇인가요|무엇입니까|뭔가요|뭐지|언제야|어디야|언제인가요|어디인가요)?$"
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked for. `subject` is None where it may be the project's or the home's."""

    attribute: str
    subject: str | None = USER


def read(text: str, stem: Callable[[str], str] = str) -> Question | None:
    """The fact that a text asks for; None for everything that is not plainly such a question."""
    if len(text) > LONGEST:
        return None
    said = folded(text).strip(" ?!.。？！…")
    said = _POLITE.sub("", said, count=1)
    if not said:
        return None
    for pattern, attribute in _FIXED:
        if pattern.match(said):
            return Question(attribute)
    if found := _CHOICE.match(said):
        return Question(choice_of(found["one"], found["other"]))
    if found := _WHOSE.match(said):
        return _asked(found["attribute"], stem, found["who"] if found["who"] != "user" else USER)
    if found := _MINE.match(said):
        return _asked(found["attribute"], stem, USER, ours=True)
    if found := _FOR.match(said) or _DO.match(said):
        return _asked(found["attribute"], stem, USER, ours=True)
    if found := _THE.match(said):
        return _asked(found["attribute"], stem, None)
    if (found := _TOLD.match(said)) and is_known(found["attribute"]):
        return _asked(found["attribute"], stem, USER, ours=True)
    for pattern in (_ZH, _JA, _KO):
        if (found := pattern.match(said)) and is_known(found["attribute"]):
            return _asked(found["attribute"], stem, USER, ours=True)
    return None


def _asked(attribute: str, stem: Callable[[str], str], subject: str | None, *, ours: bool = False) -> Question | None:
    """`ours`: what the user calls theirs may be the project's as well."""
    name = attribute_of(attribute, stem)
    if not name:
        return None
    return Question(name, None if ours else subject)
