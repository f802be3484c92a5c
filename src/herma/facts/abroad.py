"""Facts that entries in German, Chinese, Japanese and Korean state plainly. Pure and linear."""

from __future__ import annotations

import re
from collections.abc import Callable

from herma.facts.attributes import attribute_of, is_known
from herma.facts.naming import tells_how
from herma.facts.stating import USER, Statement, value_of
from herma.late import Late

_ZH_OWNED = Late(
    r"^(?:用户|使用者|我[们們]?)(?P<of>的)?(?P<attribute>[^\s是为：:，,]{1,12})(?:现在|現在)?(?:是|为|為|："
    r"|:)\s*(?P<value>\S.*)$"
)
_ZH_DOES = Late(
    r"^(?:用户|使用者|我)?(?:现在|現在|目前)?(?:(?P<lives>住在|居住在|搬到了?|定居在?)|(?P<named>名叫|叫做|叫)"
    r"|(?P<prefers>偏好使用|常用|使用|用)(?=\S{1,30}(?:作为|作為|做|当)))"
    r"\s*(?P<value>[^\s，,。]\S*.*)$"
)
_ZH_WORKS = Late(r"^(?:用户|使用者|我)?(?:现在|現在|目前)?在\s*(?P<value>[^，,。\s]{1,30}?)\s*(?:工作|上班|任职|任職)$")
_ZH_AS = Late(r"^(?P<value>\S{1,30}?)\s*(?:作为|作為|做|当)\s*(?P<attribute>\S{1,15})$")
_JA = Late(
    r"^(?:ユーザー|ユーザ|私|わたし|僕)(?:の(?P<attribute>[^\sはが、]{1,15})は\s*(?P<value>[^\s、]\S*.*?)"
    r"|は\s*(?P<place>[^\s、]{1,30}?)\s*に(?:住んでいる|住んでいます|在住)"
    r"|は\s*(?P<firm>[^\s、]{1,30}?)\s*(?:に勤めている|で働いている|で働いています|勤務))"
    r"(?:です|だ|である)?$"
)
_KO = Late(
    r"^(?:사용자|나|저|내|제)(?:의|는|은|가)?\s*(?:(?P<attribute>[^\s]{1,12}?)(?:은|는|이"
    r"|가)\s+(?P<value>\S.*?)(?:입니다|이다|이에요|예요)?"
    r"|(?P<place>\S{1,20})에\s*(?:산다|삽니다|살고 있다|거주))$"
)
_ZH_FAVORITE = Late(
    r"^(?:用户|使用者|我)(?P<attribute>最喜[欢歡]的[^\s是为：:，,]{1,10})(?:现在|現在)?(?:是|为|為)\s*(?P<value>\S.*)$"
)
_ZH_THING = Late(
    r"^(?P<attribute>[^\s是为：:，,我你他她它这那這]{2,14}的[^\s是为：:，,]{1,8}?)(?:现在|現在)?(?:是|为|為)\s*(?P<value>\S{1,40})$"
)
_ZH_NAMING = Late(r"[0-9A-Za-z]")
_DE_HEDGED = Late(
    r"(?<!\w)(?:nicht|kein|keine|noch|bald|früher|ehemals|damals|wenn|falls|ob|soll|sollte|könnte|würde)(?!\w)",
    re.IGNORECASE,
)
_DE_WHO = r"(?:ich|(?:der |die )?(?:nutzer|nutzerin|benutzer|benutzerin|anwender)|er|sie)"
_DE_DOES = Late(
    rf"^(?:{_DE_WHO}\s+)(?:jetzt\s+)?(?:(?P<lives>(?:wohnt?|wohne|lebt?|lebe)\s+(?:jetzt\s+)?in)|(?P<works>arbeitet?\s+(?:jetzt\s+)?(?:bei|für))"
    rf"|(?P<job>arbeitet?\s+(?:jetzt\s+)?als)|(?P<named>heiße|heißt))\s+(?P<value>\S.*)$",
    re.IGNORECASE,
)
_DE_MOVED = Late(rf"^{_DE_WHO}\s+(?:bin|ist)\s+nach\s+(?P<value>\S.{{0,40}}?)\s+(?:um)?gezogen$", re.IGNORECASE)
_DE_OWNED = Late(
    r"^(?P<own>mein|meine|unser|unsere)\s+(?P<attribute>[\wäöüß.-]{2,30}(?:\s+[\wäöüß.-]{2,30}){0,2}?)\s+(?:ist|lautet|heißt|sind)\s+"
    r"(?:jetzt\s+)?(?:der\s+(?=\d)|am\s+)?(?P<value>\S.*)$",
    re.IGNORECASE,
)
_DE_OF = Late(
    r"^(?:der|die|das)\s+(?P<attribute>[\wäöüß-]{2,30})\s+(?:des|der)\s+(?:nutzers|nutzerin|benutzers)\s+(?:ist|lautet)\s+(?P<value>\S.*)$",
    re.IGNORECASE,
)
_DE_RUNS = Late(
    r"^(?:der |die |das )?(?P<thing>[\wäöüß./-]{2,30}(?:\s+[\wäöüß./-]{2,30})?)\s+"
    r"(?:läuft|lauscht|hört|nutzt|verwendet|ist)\s+(?:jetzt\s+)?(?:auf\s+)?port\s+(?P<value>\d{1,5})$",
    re.IGNORECASE,
)


def german(clause: str, subject: str, stem: Callable[[str], str], alone: bool) -> Statement | None:  # noqa: ARG001
    if _DE_HEDGED.search(clause):
        return None
    if found := _DE_DOES.match(clause):
        kinds = {"lives": "location", "works": "employer", "job": "job", "named": "name"}
        return Statement(
            USER, next(name for group, name in kinds.items() if found[group]), value_of(found["value"], plain=True)
        )
    if found := _DE_MOVED.match(clause):
        return Statement(USER, "location", value_of(found["value"]))
    if found := _DE_RUNS.match(clause):
        return Statement(subject, attribute_of(f"{found['thing']} port", stem), found["value"])
    if found := _DE_OWNED.match(clause) or _DE_OF.match(clause):
        value = value_of(found["value"])
        return None if tells_how(value.split()) else Statement(USER, attribute_of(found["attribute"], stem), value)
    return None


def east_asian(clause: str, subject: str, stem: Callable[[str], str], alone: bool) -> Statement | None:  # noqa: ARG001
    if clause.isascii():
        return None
    if found := _ZH_WORKS.match(clause):
        return Statement(USER, "employer", value_of(found["value"]))
    if found := _ZH_DOES.match(clause):
        if found["prefers"]:
            used = _ZH_AS.match(found["value"])
            return Statement(USER, attribute_of(used["attribute"]), value_of(used["value"])) if used else None
        return Statement(USER, "location" if found["lives"] else "name", value_of(found["value"]))
    if found := _ZH_FAVORITE.match(clause):
        return Statement(USER, attribute_of(found["attribute"]), value_of(found["value"]))
    if clause.endswith("的"):
        return None  # 新的, 红色的: how it is
    if (found := _ZH_OWNED.match(clause)) and (found["of"] or is_known(found["attribute"])):
        return Statement(USER, attribute_of(found["attribute"]), value_of(found["value"]))
    if (found := _ZH_THING.match(clause)) and _ZH_NAMING.search(found["value"]):
        return Statement(subject, attribute_of(found["attribute"]), value_of(found["value"]))
    if (found := _JA.match(clause)) and (not found["attribute"] or is_known(found["attribute"])):
        if found["attribute"]:
            value = re.sub(r"(?:です|だ|である)$", "", found["value"])
            return Statement(USER, attribute_of(found["attribute"]), value_of(value))
        return Statement(USER, "location" if found["place"] else "employer", value_of(found["place"] or found["firm"]))
    if (found := _KO.match(clause)) and (found["place"] or is_known(found["attribute"])):
        if found["place"]:
            return Statement(USER, "location", value_of(found["place"]))
        return Statement(USER, attribute_of(found["attribute"]), value_of(found["value"]))
    return None
