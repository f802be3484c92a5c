"""Statements in an entry (pure)."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from herma.text import Late

# ---------- facts.attributes
#
# What things about somebody are called: many words, one attribute. Pure.

_SYNONYMS = """
time zone: timezone, time-zone, tz, local time zone, zeitzone, fuseau horaire, zona horaria
time zone: 时区, 時區, タイムゾーン, 시간대
name: full name, first name, real name, vorname, nom, nombre, 名字, 姓名, 名前, 氏名, 이름, 성함
nickname: nick name, preferred name, handle, spitzname, 昵称, 暱稱, ニックネーム, 별명
pronouns: pronoun, 代词
location: city, home town, hometown, residence, home city, place of residence, country, wohnort, stadt, ville, ciudad
location: 城市, 所在地, 居住地, 住址, 住所, 居住城市, 場所, 거주지, 사는 곳
address: home address, postal address, adresse, dirección, 地址, 주소
employer: company, workplace, work place, place of work, arbeitgeber, firma
employer: 公司, 单位, 單位, 会社, 勤務先, 회사, 직장
job: occupation, profession, job title, role, position, work, beruf
job: 职业, 職業, 职位, 職位, 岗位, 仕事, 직업, 직책
team: 团队, 團隊, チーム, 팀
birthday: birth date, birthdate, date of birth, geburtstag, anniversaire, cumpleaños, 生日, 出生日期, 誕生日, 생일
age: alter, 年龄, 年齡, 年齢, 나이
email: e-mail, email address, e-mail address, mail address
email: 邮箱, 郵箱, 电子邮件, 電子郵件, メール, メールアドレス, 이메일
phone: phone number, telephone, telephone number, mobile, mobile number, cell phone
phone: 电话, 電話, 手机, 手機, 電話番号, 전화번호
language: preferred language, native language, mother tongue, reply language, answer language, sprache, muttersprache
language: 语言, 語言, 母语, 言語, 언어
editor: text editor, code editor, ide, 编辑器, 編輯器, エディタ, エディター, 에디터, 편집기
shell: terminal shell, シェル
operating system: os, platform, betriebssystem, 操作系统, 作業系統, 系统, 운영체제
package manager: 包管理器, パッケージマネージャー, 패키지 매니저
programming language: main language, 编程语言, 程式語言, プログラミング言語, 프로그래밍 언어
database: db, datenbank, 数据库, 資料庫, データベース, 데이터베이스
test framework: test runner, testing framework, tests, testing, 测试框架, テストフレームワーク
python version: version of python
deployment: deploy, deploys, deploying, deployments, 部署, デプロイ, 배포
web framework: framework, 框架, フレームワーク, 프레임워크
theme: colour scheme, color scheme, 主题, 主題, テーマ, 테마
deadline: due date, abgabetermin, 截止日期, 締め切り, 마감일
budget: 预算, 預算, 予算, 예산
diet: dietary preference, dietary restriction, food preference, 饮食, 飲食, 食事
allergy: allergies, 过敏, 過敏, アレルギー, 알레르기
favorite color: favourite colour, favourite color, favorite colour, 最喜欢的颜色, 好きな色
favorite food: favourite food, 最喜欢的食物, 好きな食べ物
"""
_EMPTY = re.compile(
    r"^(?:the|a|an|my|our|your|his|her|their|current|currently|own|new|actual|exact|user's|users|in use)\s+"
)
_MILD = re.compile(r"^(?:preferred|usual|default|main|primary)\s+")
"""Tell little before what the table knows ("my preferred editor"), much before all else ("default branch")."""
_SMALL = frozenset(
    ("of", "for", "the", "a", "an", "in", "on", "at", "to", "my", "our", "s", "des", "der", "fur", "von")
)
_SPELLINGS = {
    "favourite": "favorite",
    "colour": "color",
    "db": "database",
    "repo": "repository",
    "env": "environment",
    "prod": "production",
    "dir": "directory",
    "config": "configuration",
}
_SIGNS = re.compile(r"[^\w\s/+#.'-]+")
LONGEST = 60


def _table() -> dict[str, str]:
    """Every name → the one that is kept."""
    lines = [line.partition(": ") for line in _SYNONYMS.strip().splitlines()]
    names = {_spaced(name): canonical for canonical, _, others in lines for name in others.split(",")}
    return names | {canonical: canonical for canonical, _, _ in lines}


def _spaced(name: str) -> str:
    """Folded; what Chinese puts between a thing and its attribute is a space."""
    return " ".join(folded(name).replace("的", " ").split())


def folded(text: str) -> str:
    """Lower case, one kind of apostrophe, one space between words."""
    return " ".join(unicodedata.normalize("NFKC", text).replace("’", "'").casefold().split())


_CANONICAL = _table()


def names() -> Mapping[str, str]:
    """Every name that the table has → the one that is kept."""
    return MappingProxyType(_CANONICAL)


def attribute_of(words: str, stem: Callable[[str], str] = str) -> str:
    """The attribute that these words name: from the table, else their stems. "" when they name none."""
    said = _bare(words)
    if (known := _known(said)) is not None:
        return known
    if not said or len(said) > LONGEST or _EMPTY.match(f"{said} "):
        return ""
    return " ".join(stem(word) for word in said.split())


def is_known(words: str) -> bool:
    """Whether the table has these words."""
    return _known(_bare(words)) is not None


def key_of(attribute: str, stem: Callable[[str], str] = str) -> str:
    """By what attributes are compared: "staging port", "the port of staging" and "staging's port" are one."""
    said = _bare(attribute)
    if (known := _known(said)) is not None:
        return known
    words = (word.removesuffix("'s").removesuffix("'") for word in said.split())
    named = {stem(_SPELLINGS.get(word, word)) for word in words if word and word not in _SMALL}
    return " ".join(sorted(named))


def _bare(words: str) -> str:
    """Folded, without signs and without the words before it that tell nothing."""
    said = _spaced(_SIGNS.sub(" ", folded(words[: 4 * LONGEST]))).strip(" .-")
    for _ in range(4):
        if said in _CANONICAL or (shorter := _EMPTY.sub("", said, count=1)) == said:
            break
        said = shorter
    return said


def _known(said: str) -> str | None:
    return _CANONICAL.get(said) or _CANONICAL.get(_MILD.sub("", said, count=1))


def choice_of(one: str, other: str) -> str:
    """The attribute of preferring one of two: the same whichever is preferred."""
    return " or ".join(sorted((folded(one), folded(other))))


# ---------- facts.naming
#
# Whether words name something, or only tell how it is: "Postgres", and not "slow". Pure.

_HOW = """
able about above active affordable afraid again alive almost alone also alt always angry annoying another approved
asleep available awake away awesome awful awkward back bad based because being best better big billig bit blocked
bored boring broken buggy busy canceled cancelled careful cheap clean clear close closed cloudy cold comfortable
complete completed confused confusing cool correct cosy cozy crazy critical crowded curious cute dangerous dead
deprecated different difficult dirty disabled divorced done down dringend dry due dusty early easy empty enabled
enough excited exhausting expensive fair fancy fast fast-paced fertig fine finished fixed flaky fragile free fresh
friendly frozen full full-time fun funny geschlossen gone good grateful great groß gut happy hard healthy heavy
helpful high hiring horrible hot huge idle ill important impossible in-house inactive injured interesting invalid
just kalt kaputt kind klar klein krank langsam large late later laut lazy leaky leer leicht leise less lieb limited
little live locked long lost lot loud lovely low lucky mad mandatory married mess messy missing more most much müde
near nearby nearly necessary nervous nett neu new nice noisy not nothing now obsolete occupied off offen offline ok
okay old on online only open optional out outdated over overdue part-time pending perfect permanent polite poor
possible pregnant pretty pricey private problem protected proud public quiet quite rainy rather reachable ready real
rejected reliable remote-only required responsible retired right risky rude rusty sad safe same scary schlecht
schnell schwer schön secret separate shaky short sicher sick silly similar simple slow small smart so sold some
something soon sore sorry special stable stale steady still stressful strict strong stuck such sunny sure tall
temporary terrible teuer that there tight tiny tired to today tomorrow too traurig true ugly unable unavailable
unclear uncomfortable under unemployed unhappy unhealthy unklar unknown unlocked unreachable unreliable unsicher
unstable unused up upset urgent useful useless vacant valid very voll warm weak weg weird well wet what when where
whether who why wichtig wide windy wonderful working worse worth wrong young
"""
HOW = frozenset(_HOW.split())
"""Tell how a thing is, and never which."""
_ENDINGS = ("ful", "less", "ous", "able", "ible")
_WHERE = frozenset(
    ("in", "on", "at", "under", "with", "from", "by", "out", "about", "near", "behind", "around", "auf", "im")
)
_NAMING_NAMING = re.compile(r"[0-9A-Z/_:@#]")
_ARTICLES = frozenset(("a", "an", "the", "ein", "eine", "der", "die", "das"))


def tells_how(words: Sequence[str], *, done: bool = False) -> bool:
    """Whether what is said of a thing describes it. `done`: what somebody does is a name for it ("my job is teaching").

    Words as they were written: what begins with a capital is a name as a rule.
    """
    if not words:
        return False
    first, given = words[0], False
    while first.lower() in _ARTICLES and len(words) > 1:
        words, given = words[1:], True
        first = words[0]
    if first.lower() in HOW:
        return not (first[0].isupper() and len(words) > 1)
    if first[0].isupper() or _NAMING_NAMING.search(first):
        return False
    if first in _WHERE:
        return not any(_NAMING_NAMING.search(word) for word in words[1:])
    if first.endswith("ly") and len(words) > 1:
        return True
    if given or done or len(first) <= 5:
        return False
    return first.endswith(("ing", "ed", *_ENDINGS))


# ---------- facts.stating
#
# A fact as an entry states it, and what of a sentence is its value. Pure.

USER = "user"
LONGEST_VALUE = 120
_NEGATED = Late(
    r"^(?:not|no|never|n/a|none|unknown|tbd|\?|undecided|still|being|going|about|for|to|that|because|"
    r"不|没|沒|未|无|無)(?!\w)|^(?:不|没|沒|未)",
    re.IGNORECASE,
)
_GOES_ON = Late(
    r"\s*(?:,?\s+(?:but|because|since|so that|although|though|while)\s|,?\s+and\s+(?:i|he|she|they|we|it|his|her"
    r"|their|the|also|"
    r"is|has|lives|works|prefers|likes|uses|wants|speaks|would)\s|,\s+(?:an?|who|which|where|so|not)\s|\s\(|，|；"
    r"|（)",
    re.IGNORECASE,
)
"""Where a sentence turns to something else."""


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact as an entry states it."""

    subject: str
    attribute: str
    value: str


def value_of(text: str, *, plain: bool = False) -> str:
    """The value without what surrounds it; "" when it says nothing. `plain`: it ends at a comma, too."""
    value = _GOES_ON.split(" ".join(text.split()), maxsplit=1)[0].strip(" .。;；,，")
    if plain:
        value = re.split(r",\s+(?![A-Z])", value)[0]
    value = value.strip("\"'`“”„«»「」 .")
    if not value or len(value) > LONGEST_VALUE or _NEGATED.match(value):
        return ""
    return value


# ---------- facts.abroad
#
# Facts that entries in German, Chinese, Japanese and Korean state plainly. Pure and linear.

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


# ---------- facts.extract
#
# Facts out of an entry of curated memory, by the few ways in which people state them plainly. Pure and linear.
#
# Conservative: a sentence that hedges, denies, asks or tells of the past states nothing. What is missed here is still
# found by search; what is wrong here would be told as certain.

_MOST = 40
"""Statements that one entry may make."""
_CLAUSE = Late(r"(?<=[a-z0-9)\]'\"`])[.;]\s+(?=\S)|[。；\n]+|\s[—–]\s")
_TITLES = frozenset(["dr", "mr", "mrs", "ms", "mx", "prof", "rev", "capt", "sgt", "hr"])
"""A full stop after these ends nothing: a name follows."""
_SHORTENED = frozenset(
    [
        "inc",
        "ltd",
        "co",
        "corp",
        "rd",
        "ave",
        "blvd",
        "str",
        "jr",
        "sr",
        "etc",
        "approx",
        "ca",
        "nr",
        "no",
        "vs",
        "bzw",
        "vol",
        "dept",
        "univ",
    ]
)
"""After these it ends a clause only where the next one begins like one."""
_MONTHS = frozenset(
    [
        "januar",
        "jänner",
        "februar",
        "märz",
        "april",
        "mai",
        "juni",
        "juli",
        "august",
        "september",
        "oktober",
        "november",
        "dezember",
    ]
)
_HEDGED = Late(
    r"(?<!\w)(?:maybe|perhaps|probably|possibly|might|may be|could be|unsure|not sure|unknown|not known|used to"
    r"|formerly|previously|was(?! born)|were|had|if|when|unless|should|would|whether|asked|wants? to|vielleicht"
    r"|wahrscheinlich)(?!\w)"
    r"|可能|也许|也許|大概|不确定|不確定|以前|曾经|曾經|如果|かもしれ|たぶん|以前|もし|아마|만약",
    re.IGNORECASE,
)
_NO_LABELS = frozenset(
    (
        *(
            "note",
            "notes",
            "todo",
            "warning",
            "important",
            "example",
            "tip",
            "hint",
            "lesson",
            "reminder",
            "fix",
            "fixed",
        ),
        *(
            "bug",
            "update",
            "remember",
            "context",
            "summary",
            "goal",
            "http",
            "https",
            "error",
            "result",
            "task",
            "done",
        ),
        *("question", "answer", "see", "also", "p.s", "ps", "caution", "rule", "rules", "step", "next", "why", "how"),
        *("what", "when", "where"),
    )
)
"""What stands before a colon and names no attribute."""
_OWNER = r"(?:(?:the )?user(?:'s)?|my|(?P<who>[A-Z][\w.-]{1,30})'s)"

_OWNED = Late(
    rf"^(?P<owner>{_OWNER})\s+(?P<attribute>[^\s,:][^,:\n]{{0,58}}?)\s+(?:is|are)\s+(?:now\s+)?(?P<value>\S.*)$"
)
_LABEL = Late(
    r"^(?P<owner>(?:[Tt]he )?[Uu]ser(?:'s)?\s+|[Mm]y\s+)?(?P<attribute>[^\s:：][^:：\n]{0,38}?)"
    r"\s*[:：]\s*(?P<value>\S.*)$"
)
_DOES = Late(
    r"^(?:(?:the )?user|i|he|she|they|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
    r"(?:(?P<lives>(?:now\s+)?(?:lives?|resides?|is based|is located|am based|live) in|(?:has |have )?moved to)"
    r"|(?P<works>works? (?:at|for))|(?P<job>works? as|is employed as)|(?P<born>was born on|is born on|born on)"
    r"|(?P<speaks>(?:is a )?native speaker of))\s+(?P<value>\S.*)$",
    re.IGNORECASE,
)
_PREFERS = Late(
    r"^(?:(?:the )?user|i|he|she|they|we|(?P<who>[A-Z][\w.-]{1,30}))?\s*(?:now\s+)?(?:strongly\s+)?prefers?\s+"
    r"(?P<value>[^\n]{1,60}?)\s+(?:(?P<over>over|to|rather than|instead of)\s+(?P<other>[^\n,.;]{1,40})"
    r"|for\s+(?P<for>[^\n,.;]{1,50}))"
    r"(?:\s*[,;(].*)?$",
    re.IGNORECASE,
)
_USES = Late(
    r"^(?:(?:the )?(?P<whose>user|project|team|repo|repository|app|code ?base)|i|we|he|she|they"
    r"|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
    r"(?:now\s+)?(?:uses?|runs?|switched(?: from [^\n]{1,40}?)? to)\s+(?P<value>[^\n]{1,60}?)\s+(?P<how>for|as)\s+"
    r"(?:the\s+|its\s+|their\s+|an?\s+|my\s+|our\s+)?(?P<attribute>[^\n,.;]{1,50})$",
    re.IGNORECASE,
)
_NOUNS = (
    "port|version|url|host|hostname|branch|path|folder|directory|address|deadline|budget|database|region|domain|bucket|endpoint|"
    "server|user|username|repository|repo|framework|language|license|licence|timeout|limit|schema|queue|topic|cluster|namespace|"
    "currency|format|encoding|editor|shell|theme|size|code name|codename|name|owner|maintainer|lead|manager|target|"
    "provider|linter|formatter|registry|vendor|supplier|carrier|channel|venue|supervisor|browser|ip"
)
_RUNS = Late(
    r"^(?:the |our |my )?(?P<thing>[\w.+#/-]{2,30}(?:\s+[\w.+#/-]{1,30}){0,3}?)\s+(?:now\s+)?"
    r"(?:uses?|runs? on|listens? on|is (?:served |running )?on|are on|is reachable on)\s+port\s+(?P<value>\d{1,5})$",
    re.IGNORECASE,
)
_THE = Late(
    rf"^(?:[Tt]he|[Oo]ur)\s+(?P<attribute>(?:[\w.+#/-]{{1,30}}\s+){{0,4}}?(?:{_NOUNS})"
    r"(?:\s+(?:of|for)\s+(?:the\s+|our\s+)?[\w.-]{2,30}(?:\s+[\w.-]{2,30})?)?)\s+is\s+(?:now\s+)?(?P<value>\S.*)$"
)
_EXTRACT_NAMING = Late(r"[0-9A-Z/._:@]|[^\x00-\x7f]")
_IS_NOW = Late(r"^(?P<attribute>[A-Z]?[\w.+#/ -]{1,50}?)\s+is now\s+(?P<value>\S.*)$")


def statements(entry: str, subject: str, stem: Callable[[str], str] = str) -> tuple[Statement, ...]:
    """The facts that an entry states, in order, each key once; `subject` is what a bare label is about."""
    found: dict[tuple[str, str], Statement] = {}
    clauses = [clause.strip(" \t-*•.。") for clause in _clauses(entry[:8_000])]
    clauses = [clause for clause in clauses if clause]
    for clause in clauses[:_MOST]:
        if len(clause) > 300 or clause.endswith(("?", "？")) or _HEDGED.search(clause):
            continue
        for said in _read(clause, subject, stem, alone=len(clauses) == 1):
            if said.attribute and said.value:
                found[said.subject, said.attribute] = said
    return tuple(found.values())


def _clauses(entry: str) -> Iterator[str]:
    start = 0
    for found in _CLAUSE.finditer(entry):
        before, after = entry[max(start, found.start() - 40) : found.start()], entry[found.end() : found.end() + 12]
        if not (found[0].startswith(".") and _shortens(before.split()[-2:], after)):
            yield entry[start : found.start()]
            start = found.end()
    yield entry[start:]


def _shortens(words: list[str], after: str) -> bool:
    """Whether a full stop after these words marks a word cut short, and no end: "Dr. Weiss", "St. Gallen", "3. Mai"."""
    if not words:
        return False
    last = words[-1].strip("(\"'`").lower()
    if last == "st":  # a saint, unless a name stands before: then it is a street
        return len(words) < 2 or not words[-2][:1].isupper()
    if last.isdigit():
        return len(last) < 3 and (after.split() or [""])[0].strip(",.;").lower() in _MONTHS
    return last in _TITLES or (last in _SHORTENED and (after[:1].islower() or after[:1].isdigit()))


def _read(clause: str, subject: str, stem: Callable[[str], str], *, alone: bool) -> Iterator[Statement]:
    """At most one statement: the first pattern that fits."""
    for pattern in (_preferred, _used, _runs, _done, _owned, german, east_asian, _labelled, _noun):
        if (said := pattern(clause, subject, stem, alone)) is not None:
            if said.attribute and said.value:
                yield said
            return


_Stem = Callable[[str], str]


def _owned(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:  # noqa: ARG001
    found = _OWNED.match(clause) or _OWNED.match(clause[:1].lower() + clause[1:])
    if found is None:
        return None
    attribute, value = attribute_of(found["attribute"], stem), value_of(found["value"])
    if tells_how(value.split(), done=attribute == "job"):
        return Statement(_who(found), attribute, "")  # "my car is broken" says how it is, not which one
    return Statement(_who(found), attribute, value)


def _labelled(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:
    """`Timezone: Europe/Berlin`. A label that the table does not know counts only where it is all there is."""
    found = _LABEL.match(clause)
    if found is None:
        return None
    label, value = found["attribute"], value_of(found["value"])
    words = folded(label).split()
    known = is_known(label)
    if not known and sum(map(str.isalpha, label)) < 2:
        return None  # a time of day, the letter of a disk
    telling = [word for word in words if word not in ("of", "for", "the")]
    if not known and (not alone or not 1 <= len(telling) <= 3 or words[0] in _NO_LABELS or len(value.split()) > 8):
        return None
    if set(words) & _NO_LABELS and not known:
        return None
    whose = USER if found["owner"] or (known and attribute_of(label) in PERSONAL) else subject
    return Statement(whose, attribute_of(label, stem), value)


PERSONAL = frozenset(
    {
        "time zone",
        "name",
        "nickname",
        "pronouns",
        "location",
        "address",
        "employer",
        "job",
        "birthday",
        "age",
        "phone",
        "diet",
        "allergy",
    }
)
"""Attributes of people: a note on them is about the user unless it names somebody."""


def _done(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:  # noqa: ARG001
    found = _DOES.match(clause)
    if found is None or (found["who"] and folded(found["who"]) in ("the", "it", "this", "that")):
        return None
    kinds = {"lives": "location", "works": "employer", "job": "job", "born": "birthday", "speaks": "language"}
    attribute = next(name for group, name in kinds.items() if found[group])
    said = re.split(r"\s+as\s+an?\s+", found["value"], maxsplit=1)[0] if attribute == "employer" else found["value"]
    return Statement(_who(found), attribute, value_of(said, plain=True))


def _preferred(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:  # noqa: ARG001
    found = _PREFERS.match(clause)
    if found is None:
        return None
    value = value_of(found["value"])
    if found["over"]:
        return Statement(_who(found), choice_of(value, value_of(found["other"])), value) if value else None
    return Statement(_who(found), attribute_of(found["for"], stem), value)


def _used(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:  # noqa: ARG001
    found = _USES.match(clause)
    if found is None:
        return None
    whose = subject
    if found["who"]:
        whose = _who(found)
    elif found["whose"] and folded(found["whose"]) == "user":
        whose = USER
    return Statement(whose, attribute_of(found["attribute"], stem), value_of(found["value"]))


def _runs(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:  # noqa: ARG001
    """`Staging uses port 5433`."""
    found = _RUNS.match(clause)
    if found is None or folded(found["thing"]).split()[0] in (
        "it",
        "this",
        "that",
        "he",
        "she",
        "they",
        "i",
        "we",
        "user",
    ):
        return None
    return Statement(subject, attribute_of(f"{found['thing']} port", stem), found["value"])


def _noun(clause: str, subject: str, stem: _Stem, alone: bool) -> Statement | None:
    found = _THE.match(clause)
    if found is None and alone:
        found = _IS_NOW.match(clause)
    if found is None:
        return None
    value = value_of(found["value"], plain=True)
    words = value.split()
    if len(words) > 6 or (len(words) > 1 and not _EXTRACT_NAMING.search(words[0])) or tells_how(words):
        return None  # "the database is read-only on Fridays" says how it is, not which one
    return Statement(subject, attribute_of(found["attribute"], stem), value)


def _who(found: re.Match[str]) -> str:
    return folded(found["who"]) if found["who"] and folded(found["who"]) not in ("user", "the", "i", "we") else USER
