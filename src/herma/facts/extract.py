"""Facts out of an entry of curated memory, by the few ways in which people state them plainly. Pure and linear.

Conservative: a sentence that hedges, denies, asks or tells of the past states nothing. What is missed here is still
found by search; what is wrong here would be told as certain.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from herma.facts.abroad import east_asian, german
from herma.facts.attributes import attribute_of, choice_of, folded, is_known
from herma.facts.naming import tells_how
from herma.facts.stating import LONGEST_VALUE, USER, Statement, value_of
from herma.late import Late

__all__ = ["LONGEST_VALUE", "PERSONAL", "USER", "Statement", "statements"]

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
_NAMING = Late(r"[0-9A-Z/._:@]|[^\x00-\x7f]")
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
    if len(words) > 6 or (len(words) > 1 and not _NAMING.search(words[0])) or tells_how(words):
        return None  # "the database is read-only on Fridays" says how it is, not which one
    return Statement(subject, attribute_of(found["attribute"], stem), value)


def _who(found: re.Match[str]) -> str:
    return folded(found["who"]) if found["who"] and folded(found["who"]) not in ("user", "the", "i", "we") else USER
