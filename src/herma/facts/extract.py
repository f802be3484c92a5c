"""Read facts out of an entry: "My time zone is Europe/Berlin" states the user's time zone. Pure and linear.

Conservative: a sentence that hedges, denies, asks or tells of the past states nothing. Search still finds
a missed fact; a wrong one would be given as certain. The rules are English and Chinese.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from herma.text import LazyPattern, folded, stem

# ── attributes: many words, one name ─────────────────────────────────────────────────────────────────────────────────

_EMPTY = re.compile(
    r"^(?:the|a|an|my|our|your|his|her|their|current|currently|own|new|actual|exact|user's|users|in use)\s+"
)
_MILD = re.compile(r"^(?:preferred|usual|default|main|primary)\s+")
"""Left out before a name of the table ("my preferred editor"), kept before others ("default branch")."""
_SMALL_WORDS = "of for the a an in on at to my our s des der fur von"
_SMALL = frozenset(_SMALL_WORDS.split())
_SPELLINGS = {"favourite": "favorite", "colour": "color", "db": "database", "repo": "repository"} | {
    "env": "environment",
    "prod": "production",
    "dir": "directory",
    "config": "configuration",
}
_SIGNS = re.compile(r"[^\w\s/+#.'-]+")
LONGEST = 60


def _read_words(name: str) -> str:
    return Path(__file__).with_name(name).read_text("utf-8")


def _table() -> dict[str, str]:
    """Return every name with the one that is kept."""
    lines = [line.partition(": ") for line in _read_words("attributes.txt").splitlines()]
    names = {_spaced(name): canonical for canonical, _, others in lines for name in others.split(",")}
    return names | {canonical: canonical for canonical, _, _ in lines}


def _spaced(name: str) -> str:
    """Fold, and read the 的 between a thing and its attribute as a space."""
    return " ".join(folded(name).replace("的", " ").split())


_CANONICAL = _table()


def attribute_of(words: str) -> str:
    """Return the attribute that these words name, from the table if it is there; "" if they name none."""
    said = _bare(words)
    return _known(said) or ("" if len(said) > LONGEST or _EMPTY.match(f"{said} ") else said)


def is_known(words: str) -> bool:
    """Return whether the table has these words."""
    return bool(_known(_bare(words)))


def key_of(attribute: str) -> str:
    """Return the key to compare attributes by: one for "staging port", "the port of staging" and "staging's port"."""
    said = _bare(attribute)
    if known := _known(said):
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


def _known(said: str) -> str:
    return _CANONICAL.get(said) or _CANONICAL.get(_MILD.sub("", said, count=1), "")


def choice_of(one: str, other: str) -> str:
    """Return the attribute of a choice between two: the same whichever is preferred."""
    return " or ".join(sorted((folded(one), folded(other))))


# ── whether words name something, or only describe it: "Postgres", and not "slow" ──────────────────────────────────

HOW = frozenset(_read_words("describing.txt").split())
"""Words that describe a thing and never name it."""
_ENDINGS = ("ful", "less", "ous", "able", "ible")
_PLACE_WORDS = "in on at under with from by out about near behind around auf im"
_WHERE = frozenset(_PLACE_WORDS.split())
_IN_A_NAME = re.compile(r"[0-9A-Z/_:@#]")
_ARTICLES = frozenset(("a", "an", "the", "ein", "eine", "der", "die", "das"))


def tells_how(words: Sequence[str], *, done: bool = False) -> bool:
    """Test if the words about a thing describe it. `done`: an activity is a name for it ("my job is teaching").

    Words as they were written: a word with a capital is usually a name.
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
"""Attributes of people: a note on them is about the user unless it names a person."""
_MOST = 40
"""Statements that one entry may make."""
_NEGATED = LazyPattern(
    r"^(?:not|no|never|n/a|none|unknown|tbd|\?|undecided|still|being|going|about|for|to|that|because|"
    r"不|没|沒|未|无|無)(?!\w)|^(?:不|没|沒|未)",
    re.IGNORECASE,
)
_GOES_ON = LazyPattern(
    r"\s*(?:,?\s+(?:but|because|since|so that|although|though|while)\s|,?\s+and\s+(?:i|he|she|they|we|it|his|her"
    r"|their|the|also|"
    r"is|has|lives|works|prefers|likes|uses|wants|speaks|would)\s|,\s+(?:an?|who|which|where|so|not)\s|\s\(|，|；"
    r"|（)",
    re.IGNORECASE,
)
"""Words at which a sentence turns to something else."""
_HEDGED = LazyPattern(
    r"(?<!\w)(?:maybe|perhaps|probably|possibly|might|may be|could be|unsure|not sure|unknown|not known|used to"
    r"|formerly|previously|was(?! born)|were|had|if|when|unless|should|would|whether|asked|wants? to)(?!\w)"
    r"|可能|也许|也許|大概|不确定|不確定|以前|曾经|曾經|如果",
    re.IGNORECASE,
)
_CLAUSE = LazyPattern(r"(?<=[a-z0-9)\]'\"`])[.;]\s+(?=\S)|[。；\n]+|\s[—–]\s")
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
_LABEL = LazyPattern(
    r"^(?P<owner>(?:[Tt]he )?[Uu]ser(?:'s)?\s+|[Mm]y\s+)?(?P<attribute>[^\s:：][^:：\n]{0,38}?)"
    r"\s*[:：]\s*(?P<value>\S.*)$"
)
_NOUNS = (
    "port|version|url|host|hostname|branch|path|folder|directory|address|deadline|budget|database|region|domain|bucket|"
    "endpoint|server|user|username|repository|repo|framework|language|license|licence|timeout|limit|schema|queue|topic|"
    "cluster|namespace|currency|format|encoding|editor|shell|theme|size|code name|codename|name|owner|maintainer|lead|"
    "manager|target|provider|linter|formatter|registry|vendor|supplier|carrier|channel|venue|supervisor|browser|ip"
)
_THE = LazyPattern(
    rf"^(?:[Tt]he|[Oo]ur)\s+(?P<attribute>(?:[\w.+#/-]{{1,30}}\s+){{0,4}}?(?:{_NOUNS})"
    r"(?:\s+(?:of|for)\s+(?:the\s+|our\s+)?[\w.-]{2,30}(?:\s+[\w.-]{2,30})?)?)\s+is\s+(?:now\s+)?(?P<value>\S.*)$"
)
_IS_NOW = LazyPattern(r"^(?P<attribute>[A-Z]?[\w.+#/ -]{1,50}?)\s+is now\s+(?P<value>\S.*)$")
_BEGINS_A_NAME = LazyPattern(r"[0-9A-Z/._:@]|[^\x00-\x7f]")


@dataclass(frozen=True, slots=True)
class Statement:
    """One fact as an entry states it."""

    subject: str
    attribute: str
    value: str


class StatementRule(NamedTuple):
    """One way to state a fact. The pattern has the groups `value`, those that `attribute` is made of, and perhaps `who`
    (a name), `whose` (the user, or a thing) and `other` (the choice that was not preferred)."""

    pattern: LazyPattern
    attribute: str = "{attribute}"
    of_user: bool = True
    """True: a statement without a name is about the user; False: it is about the subject of its file."""
    plain: bool = False
    """True if the value ends at a comma."""
    names: bool = False
    """True if a value counts only if it says which one it is, not how it is ("my car is broken")."""
    known: bool = False
    """True if the attribute must be in the table, unless the group `of` matched."""


_WHO = r"^(?!(?:the|it|this|that)\s(?!user))(?:(?:the )?user|i|he|she|they|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
_ZH_WHO = r"^(?:用户|使用者|我)?(?:现在|現在|目前)?"


def _of_people(verbs: str, value: str = r"(?P<value>\S.*)") -> LazyPattern:
    return LazyPattern(rf"{_WHO}(?:{verbs})\s+{value}$", re.IGNORECASE)


_RULES = (
    StatementRule(
        LazyPattern(
            r"^(?:(?:the )?user|i|he|she|they|we|(?P<who>[A-Z][\w.-]{1,30}))?\s*(?:now\s+)?(?:strongly\s+)?prefers?\s+"
            r"(?P<value>[^\n]{1,60}?)\s+(?:(?:over|to|rather than|instead of)\s+(?P<other>[^\n,.;]{1,40})"
            r"|for\s+(?P<attribute>[^\n,.;]{1,50}))"
            r"(?:\s*[,;(].*)?$",
            re.IGNORECASE,
        )
    ),
    StatementRule(
        LazyPattern(
            r"^(?:(?:the )?(?P<whose>user|project|team|repo|repository|app|code ?base)|i|we|he|she|they"
            r"|(?P<who>[A-Z][\w.-]{1,30}))?\s*"
            r"(?:now\s+)?(?:uses?|runs?|switched(?: from [^\n]{1,40}?)? to)\s+(?P<value>[^\n]{1,60}?)\s+(?:for|as)\s+"
            r"(?:the\s+|its\s+|their\s+|an?\s+|my\s+|our\s+)?(?P<attribute>[^\n,.;]{1,50})$",
            re.IGNORECASE,
        ),
        of_user=False,
    ),
    StatementRule(
        LazyPattern(
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
        LazyPattern(
            r"^(?:(?:[Tt]he )?[Uu]ser(?:'s)?|[Mm]y|(?P<who>[A-Z][\w.-]{1,30})'s)"
            r"\s+(?P<attribute>[^\s,:][^,:\n]{0,58}?)\s+(?:is|are)\s+(?:now\s+)?(?P<value>\S.*)$"
        ),
        names=True,
    ),
    StatementRule(LazyPattern(rf"{_ZH_WHO}在\s*(?P<value>[^，,。\s]{{1,30}}?)\s*(?:工作|上班|任职|任職)$"), "employer"),
    StatementRule(LazyPattern(rf"{_ZH_WHO}(?:住在|居住在|搬到了?|定居在?)\s*(?P<value>[^\s，,。]\S*.*)$"), "location"),
    StatementRule(LazyPattern(rf"{_ZH_WHO}(?:名叫|叫做|叫)\s*(?P<value>[^\s，,。]\S*.*)$"), "name"),
    StatementRule(
        LazyPattern(
            rf"{_ZH_WHO}(?:偏好使用|常用|使用|用)\s*(?P<value>[^\s，,。]\S{{0,29}}?)"
            r"\s*(?:作为|作為|做|当)\s*(?P<attribute>\S{1,15})$"
        )
    ),
    StatementRule(
        LazyPattern(
            r"^(?:用户|使用者|我)(?P<attribute>最喜[欢歡]的[^\s是为：:，,]{1,10})(?:现在|現在)?(?:是|为|為)\s*(?P<value>\S.*)$"
        )
    ),
    StatementRule(
        LazyPattern(
            r"^(?!.*的$)(?:用户|使用者|我[们們]?)(?P<of>的)?(?P<attribute>[^\s是为：:，,]{1,12})(?:现在|現在)?"
            r"(?:是|为|為|：|:)\s*(?P<value>\S.*)$"
        ),
        known=True,
    ),
    StatementRule(
        LazyPattern(
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
