"""What things about somebody are called: many words, one attribute. Pure."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from types import MappingProxyType

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
