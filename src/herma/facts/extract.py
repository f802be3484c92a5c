"""Read facts out of an entry: "My time zone is Europe/Berlin" states the user's time zone. Pure and linear.

Conservative: a sentence that hedges, denies, asks or tells of the past states nothing. What is missed here is still
found by search; what is wrong here would be told as certain. The rules are English and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import NamedTuple

from herma.text import Late, folded, stem

# ── attributes: many words, one name ─────────────────────────────────────────────────────────────────────────────────

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
"""Left out before a name of the table ("my preferred editor"), kept before others ("default branch")."""
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
    """Return every name with the one that is kept."""
    lines = [line.partition(": ") for line in _SYNONYMS.strip().splitlines()]
    names = {_spaced(name): canonical for canonical, _, others in lines for name in others.split(",")}
    return names | {canonical: canonical for canonical, _, _ in lines}


def _spaced(name: str) -> str:
    """Fold, and read the 的 between a thing and its attribute as a space."""
    return " ".join(folded(name).replace("的", " ").split())


_CANONICAL = _table()


def names() -> Mapping[str, str]:
    """Return every name of the table with the one that is kept."""
    return MappingProxyType(_CANONICAL)


def attribute_of(words: str) -> str:
    """Return the attribute that these words name, from the table if it is there; "" if they name none."""
    said = _bare(words)
    if (known := _known(said)) is not None:
        return known
    if not said or len(said) > LONGEST or _EMPTY.match(f"{said} "):
        return ""
    return said


def is_known(words: str) -> bool:
    """Return whether the table has these words."""
    return _known(_bare(words)) is not None


def key_of(attribute: str) -> str:
    """Return the key to compare attributes by: one for "staging port", "the port of staging" and "staging's port"."""
    said = _bare(attribute)
    if (known := _known(said)) is not None:
        return known
    words = (word.removesuffix("'s").removesuffix("'") for word in said.split())
    named = {stem(_SPELLINGS.get(word, word)) for word in words if word and word not in _SMALL}
    return " ".join(sorted(named))


def _bare(words: str) -> str:
    """Fold, and drop signs and the words before it that say nothing ("the", "my current")."""
    said = _spaced(_SIGNS.sub(" ", folded(words[: 4 * LONGEST]))).strip(" .-")
    for _ in range(4):
        if said in _CANONICAL or (shorter := _EMPTY.sub("", said, count=1)) == said:
            break
        said = shorter
    return said


def _known(said: str) -> str | None:
    return _CANONICAL.get(said) or _CANONICAL.get(_MILD.sub("", said, count=1))


def choice_of(one: str, other: str) -> str:
    """Return the attribute of a choice between two: the same whichever is preferred."""
    return " or ".join(sorted((folded(one), folded(other))))


# ── whether words name something, or only describe it: "Postgres", and not "slow" ──────────────────────────────────

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
"""Words that describe a thing and never name it."""
_ENDINGS = ("ful", "less", "ous", "able", "ible")
_WHERE = frozenset(
    ("in", "on", "at", "under", "with", "from", "by", "out", "about", "near", "behind", "around", "auf", "im")
)
_IN_A_NAME = re.compile(r"[0-9A-Z/_:@#]")
_ARTICLES = frozenset(("a", "an", "the", "ein", "eine", "der", "die", "das"))


def tells_how(words: Sequence[str], *, done: bool = False) -> bool:
    """Test if the words about a thing describe it. `done`: what somebody does is a name for it ("my job is teaching").

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
    if first[0].isupper() or _IN_A_NAME.search(first):
        return False
    if first in _WHERE:
        return not any(_IN_A_NAME.search(word) for word in words[1:])
    if first.endswith("ly") and len(words) > 1:
        return True
    if given or done or len(first) <= 5:
        return False
    return first.endswith(("ing", "ed", *_ENDINGS))


# ── statements ───────────────────────────────────────────────────────────────────────────────────────────────────────

USER = "user"
LONGEST_VALUE = 120
PERSONAL = frozenset(
    (
        *("time zone", "name", "nickname", "pronouns", "location", "address", "employer", "job", "birthday", "age"),
        *("phone", "diet", "allergy"),
    )
)
"""Attributes of people: a note on them is about the user unless it names somebody."""
_MOST = 40
"""Statements that one entry may make."""
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
"""Words at which a sentence turns to something else."""
_HEDGED = Late(
    r"(?<!\w)(?:maybe|perhaps|probably|possibly|might|may be|could be|unsure|not sure|unknown|not known|used to"
    r"|formerly|previously|was(?! born)|were|had|if|when|unless|should|would|whether|asked|wants? to)(?!\w)"
    r"|可能|也许|也許|大概|不确定|不確定|以前|曾经|曾經|如果",
    re.IGNORECASE,
)
_CLAUSE = Late(r"(?<=[a-z0-9)\]'\"`])[.;]\s+(?=\S)|[。；\n]+|\s[—–]\s")
_TITLES = frozenset(["dr", "mr", "mrs", "ms", "mx", "prof", "rev", "capt", "sgt"])
"""A full stop after these ends nothing: a name follows."""
_SHORTENED = "inc ltd co corp rd ave blvd str jr sr etc approx ca nr no vs vol dept univ"
_ABBREVIATIONS = frozenset(_SHORTENED.split())
"""A full stop after these ends a clause only if the next word begins like a sentence."""
_MONTH_NAMES = "january february march april may june july august september october november december"
_MONTHS = frozenset(_MONTH_NAMES.split())
_NO_LABEL_WORDS = """
note notes todo warning important example tip hint lesson reminder fix fixed bug update remember context summary goal
http https error result task done question answer see also p.s ps caution rule rules step next why how what when where
"""
_NO_LABELS = frozenset(_NO_LABEL_WORDS.split())
"""Words before a colon that name no attribute."""
_LABEL = Late(
    r"^(?P<owner>(?:[Tt]he )?[Uu]ser(?:'s)?\s+|[Mm]y\s+)?(?P<attribute>[^\s:：][^:：\n]{0,38}?)"
    r"\s*[:：]\s*(?P<value>\S.*)$"
)
_NOUNS = (
    "port|version|url|host|hostname|branch|path|folder|directory|address|deadline|budget|database|region|domain|bucket|"
    "endpoint|server|user|username|repository|repo|framework|language|license|licence|timeout|limit|schema|queue|topic|"
    "cluster|namespace|currency|format|encoding|editor|shell|theme|size|code name|codename|name|owner|maintainer|lead|"
    "manager|target|provider|linter|formatter|registry|vendor|supplier|carrier|channel|venue|supervisor|browser|ip"
)
_THE = Late(
    rf"^(?:[Tt]he|[Oo]ur)\s+(?P<attribute>(?:[\w.+#/-]{{1,30}}\s+){{0,4}}?(?:{_NOUNS})"
    r"(?:\s+(?:of|for)\s+(?:the\s+|our\s+)?[\w.-]{2,30}(?:\s+[\w.-]{2,30})?)?)\s+is\s+(?:now\s+)?(?P<value>\S.*)$"
)
_IS_NOW = Late(r"^(?P<attribute>[A-Z]?[\w.+#/ -]{1,50}?)\s+is now\s+(?P<value>\S.*)$")
_BEGINS_A_NAME = Late(r"[0-9A-Z/._:@]|[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact as an entry states it."""

    subject: str
    attribute: str
    value: str


class StatementRule(NamedTuple):
    """One way to state a fact. The pattern has the groups `value`, those that `attribute` is made of, and perhaps `who`
    (a name), `whose` (the user, or a thing) and `other` (the choice that was not preferred)."""

    pattern: Late
    attribute: str = "{attribute}"
    of_user: bool = True
    """True if it is about the user if it names nobody; else it is about the subject of its file."""
    plain: bool = False
    """True if the value ends at a comma."""
    names: bool = False
    """True if a value counts only if it says which one it is, not how it is ("my car is broken")."""
    known: bool = False
    """True if the attribute must be in the table, unless the group `of` matched."""


_WHO = r"^(?!(?:the|it|this|that)\s(?!user))(?:(?:the )?user|i|he|she|they|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
_ZH_WHO = r"^(?:用户|使用者|我)?(?:现在|現在|目前)?"


def _of_people(verbs: str, value: str = r"(?P<value>\S.*)") -> Late:
    return Late(rf"{_WHO}(?:{verbs})\s+{value}$", re.IGNORECASE)


_RULES = (
    StatementRule(
        Late(
            r"^(?:(?:the )?user|i|he|she|they|we|(?P<who>[A-Z][\w.-]{1,30}))?\s*(?:now\s+)?(?:strongly\s+)?prefers?\s+"
            r"(?P<value>[^\n]{1,60}?)\s+(?:(?:over|to|rather than|instead of)\s+(?P<other>[^\n,.;]{1,40})"
            r"|for\s+(?P<attribute>[^\n,.;]{1,50}))"
            r"(?:\s*[,;(].*)?$",
            re.IGNORECASE,
        )
    ),
    StatementRule(
        Late(
            r"^(?:(?:the )?(?P<whose>user|project|team|repo|repository|app|code ?base)|i|we|he|she|they"
            r"|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
            r"(?:now\s+)?(?:uses?|runs?|switched(?: from [^\n]{1,40}?)? to)\s+(?P<value>[^\n]{1,60}?)\s+(?:for|as)\s+"
            r"(?:the\s+|its\s+|their\s+|an?\s+|my\s+|our\s+)?(?P<attribute>[^\n,.;]{1,50})$",
            re.IGNORECASE,
        ),
        of_user=False,
    ),
    StatementRule(
        Late(
            r"^(?!(?:it|this|that|he|she|they|i|we|user)\s)(?:the |our |my )?"
            r"(?P<thing>[\w.+#/-]{2,30}(?:\s+[\w.+#/-]{1,30}){0,3}?)\s+(?:now\s+)?"
            r"(?:uses?|runs? on|listens? on|is (?:served |running )?on|are on|is reachable on)\s+port\s+"
            r"(?P<value>\d{1,5})$",
            re.IGNORECASE,
        ),
        "{thing} port",
        of_user=False,
    ),
    StatementRule(
        _of_people(r"(?:now\s+)?(?:lives?|resides?|is based|is located|am based) in|(?:has |have )?moved to"),
        "location",
        plain=True,
    ),
    StatementRule(_of_people(r"works? (?:at|for)", r"(?P<value>\S.*?)(?:\s+as\s+an?\s.*)?"), "employer", plain=True),
    StatementRule(_of_people(r"works? as|is employed as"), "job", plain=True),
    StatementRule(_of_people(r"was born on|is born on|born on"), "birthday", plain=True),
    StatementRule(_of_people(r"(?:is a )?native speaker of"), "language", plain=True),
    StatementRule(
        Late(
            r"^(?:(?:[Tt]he )?[Uu]ser(?:'s)?|[Mm]y|(?P<who>[A-Z][\w.-]{1,30})'s)"
            r"\s+(?P<attribute>[^\s,:][^,:\n]{0,58}?)\s+(?:is|are)\s+(?:now\s+)?(?P<value>\S.*)$"
        ),
        names=True,
    ),
    StatementRule(Late(rf"{_ZH_WHO}在\s*(?P<value>[^，,。\s]{{1,30}}?)\s*(?:工作|上班|任职|任職)$"), "employer"),
    StatementRule(Late(rf"{_ZH_WHO}(?:住在|居住在|搬到了?|定居在?)\s*(?P<value>[^\s，,。]\S*.*)$"), "location"),
    StatementRule(Late(rf"{_ZH_WHO}(?:名叫|叫做|叫)\s*(?P<value>[^\s，,。]\S*.*)$"), "name"),
    StatementRule(
        Late(
            rf"{_ZH_WHO}(?:偏好使用|常用|使用|用)\s*(?P<value>[^\s，,。]\S{{0,29}}?)"
            r"\s*(?:作为|作為|做|当)\s*(?P<attribute>\S{1,15})$"
        )
    ),
    StatementRule(
        Late(
            r"^(?:用户|使用者|我)(?P<attribute>最喜[欢歡]的[^\s是为：:，,]{1,10})(?:现在|現在)?(?:是|为|為)\s*(?P<value>\S.*)$"
        )
    ),
    StatementRule(
        Late(
            r"^(?!.*的$)(?:用户|使用者|我[们們]?)(?P<of>的)?(?P<attribute>[^\s是为：:，,]{1,12})(?:现在|現在)?"
            r"(?:是|为|為|：|:)\s*(?P<value>\S.*)$"
        ),
        known=True,
    ),
    StatementRule(
        Late(
            r"^(?!.*的$)(?P<attribute>[^\s是为：:，,我你他她它这那這]{2,14}的[^\s是为：:，,]{1,8}?)(?:现在|現在)?"
            r"(?:是|为|為)\s*(?P<value>(?=.*[0-9A-Za-z])\S{1,40})$"
        ),
        of_user=False,
    ),
)
"""The first rule that matches a clause counts."""


def statements(entry: str, subject: str) -> tuple[Statement, ...]:
    """Return the facts that an entry states, in order, each key once; `subject` is what a bare label is about."""
    found: dict[tuple[str, str], Statement] = {}
    clauses = [clause.strip(" \t-*•.。") for clause in _clauses(entry[:8_000])]
    clauses = [clause for clause in clauses if clause]
    for clause in clauses[:_MOST]:
        if len(clause) > 300 or clause.endswith(("?", "？")) or _HEDGED.search(clause):
            continue
        said = _read(clause, subject, alone=len(clauses) == 1)
        if said and said.attribute and said.value:
            found[said.subject, said.attribute] = said
    return tuple(found.values())


def value_of(text: str, *, plain: bool = False) -> str:
    """Return the value without what surrounds it; "" if it says nothing. `plain`: it ends at a comma, too."""
    value = _GOES_ON.split(" ".join(text.split()), maxsplit=1)[0].strip(" .。;；,，")
    if plain:
        value = re.split(r",\s+(?![A-Z])", value)[0]
    value = value.strip("\"'`“”„«»「」 .")
    return "" if len(value) > LONGEST_VALUE or _NEGATED.match(value) else value


def _clauses(entry: str) -> Iterator[str]:
    start = 0
    for found in _CLAUSE.finditer(entry):
        before, after = entry[max(start, found.start() - 40) : found.start()], entry[found.end() : found.end() + 12]
        if not (found[0].startswith(".") and _is_abbreviation(before.split()[-2:], after)):
            yield entry[start : found.start()]
            start = found.end()
    yield entry[start:]


def _is_abbreviation(words: list[str], after: str) -> bool:
    """Test if a full stop after these words marks a short form, and no end: "Dr. Weiss", "St. Gallen", "3. May"."""
    if not words:
        return False
    last = words[-1].strip("(\"'`").lower()
    if last == "st":  # a saint, unless a name stands before: then it is a street
        return len(words) < 2 or not words[-2][:1].isupper()
    if last.isdigit():
        return len(last) < 3 and (after.split() or [""])[0].strip(",.;").lower() in _MONTHS
    return last in _TITLES or (last in _ABBREVIATIONS and (after[:1].islower() or after[:1].isdigit()))


def _read(clause: str, subject: str, *, alone: bool) -> Statement | None:
    for rule in _RULES:
        found = rule.pattern.match(clause)
        if found and (said := _stated(rule, found.groupdict(), subject)):
            return said
    return _labelled(clause, subject, alone=alone) or _noun(clause, subject, alone=alone)


def _stated(rule: StatementRule, part: Mapping[str, str | None], subject: str) -> Statement | None:
    value, named = value_of(part["value"] or "", plain=rule.plain), part.get("attribute")
    if rule.known and not part["of"] and not is_known(named or ""):
        return None
    other = part.get("other")
    attribute = choice_of(value, value_of(other)) if other else attribute_of(rule.attribute.format_map(part))
    if rule.names and tells_how(value.split(), done=attribute == "job"):
        value = ""
    who = folded(part.get("who") or "")
    if who and who not in ("user", "the", "i", "we"):
        return Statement(who, attribute, value)
    of_user = rule.of_user or who or folded(part.get("whose") or "") == USER
    return Statement(USER if of_user else subject, attribute, value)


def _labelled(clause: str, subject: str, *, alone: bool) -> Statement | None:
    """`Timezone: Europe/Berlin`. A label that the table does not know counts only if the entry has nothing else."""
    found = _LABEL.match(clause)
    if found is None:
        return None
    label, value = found["attribute"], value_of(found["value"])
    if not is_known(label):
        words = folded(label).split()
        if sum(map(str.isalpha, label)) < 2:
            return None  # a time of day, the letter of a disk
        telling = [word for word in words if word not in ("of", "for", "the")]
        if not alone or not 1 <= len(telling) <= 3 or not _NO_LABELS.isdisjoint(words) or len(value.split()) > 8:
            return None
    attribute = attribute_of(label)
    return Statement(USER if found["owner"] or attribute in PERSONAL else subject, attribute, value)


def _noun(clause: str, subject: str, *, alone: bool) -> Statement | None:
    """`The deploy target is hetzner`, but not "the database is read-only on Fridays", which says how it is."""
    found = _THE.match(clause) or (_IS_NOW.match(clause) if alone else None)
    if found is None:
        return None
    value = value_of(found["value"], plain=True)
    words = value.split()
    if len(words) > 6 or (len(words) > 1 and not _BEGINS_A_NAME.search(words[0])) or tells_how(words):
        return None
    return Statement(subject, attribute_of(found["attribute"]), value)
