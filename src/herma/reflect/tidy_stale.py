"""Which entries have been overtaken by time: dates that passed, paths that are gone, versions that changed. Pure.

What is known outside is asked through `Checks`, which only looks: it opens no connection and runs nothing. A failed
check marks an entry and takes nothing away: the path may be on another machine.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

from herma.reflect.compress.landmarks import landmarks
from herma.reflect.tidy_merge import clauses

MARK = re.compile(r"[ \n]\[tidy: [^\]\n]{1,200}\]$")
"""What a failed check adds to an entry."""
_MONTHS = "jan feb mar apr may jun jul aug sep oct nov dec".split()  # noqa: SIM905  read more easily so
_MONTH = r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]{0,6}\.?"
_DATES = (
    re.compile(r"(?<![\d-])(?P<y>\d{4})-(?P<m>\d{1,2})-(?P<d>\d{1,2})(?![\d-])"),
    re.compile(r"(?<!\d)(?P<y>\d{4})年(?P<m>\d{1,2})月(?P<d>\d{1,2})日"),
    re.compile(rf"(?<!\d)(?P<d>\d{{1,2}})(?:st|nd|rd|th|\.)? {_MONTH},? (?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
    re.compile(rf"\b{_MONTH} (?P<d>\d{{1,2}})(?:st|nd|rd|th)?,? (?P<y>\d{{4}})(?!\d)", re.IGNORECASE),
)
_LIMITED = re.compile(
    r"\b(?:until|till|through|expires?|expiring|deadline|due|ends|valid (?:to|until|through)"
    r"|(?:scheduled|planned) (?:for|on)|upcoming|will (?:be|end|start|happen|launch|ship|take)"
    r"|on (?:vacation|leave|holiday)|out of office"
    r"|bis|frist|gültig|fällig)\b|截止|有效期|到期|まで|期限|마감|까지",
    re.IGNORECASE,
)
_LASTING = re.compile(
    r"\b(?:every|each|yearly|annual|annually|monthly|weekly|recurring|birthday|born|since|was|were|had|did|used to"
    r"|started|released|founded|joined|created|decided|moved|migrated|learnt|learned|happened|jährlich|seit)\b"
    r"|每年|每月|毎年|生日|誕生日",
    re.IGNORECASE,
)
_VERSION = re.compile(
    r"\b(?P<tool>python|node(?:\.?js)?|go|ruby|java|rust|php|elixir|terraform|deno|bun)[ /@-]?v?"
    r"(?P<version>\d+(?:\.\d+){0,2})(?![\w.]*\w*/)",
    re.IGNORECASE,
)
_TOLD = re.compile(r"[<>{}*$%|?]")
"""In a path that only stands for others."""


class Checks(Protocol):
    """What can be looked up without doing anything. None: it cannot be told."""

    def exists(self, path: str) -> bool | None: ...

    def version(self, tool: str) -> tuple[str, str] | None:
        """The version that the project's own files name, and the file that does."""
        ...


class NoChecks:
    """Nothing can be told."""

    def exists(self, path: str) -> bool | None:  # noqa: ARG002
        return None

    def version(self, tool: str) -> tuple[str, str] | None:  # noqa: ARG002
        return None


@dataclass(frozen=True, slots=True)
class Stale:
    """What is the matter with an entry. `whole`: with all of it, so that it can leave the file."""

    what: Literal["date", "path", "version"]
    why: str
    note: str
    whole: bool = False


def bare(text: str) -> str:
    """An entry without the mark of an earlier check."""
    return MARK.sub("", text)


def marked(text: str, note: str, today: datetime.date) -> str:
    return f"{bare(text)} [tidy: {note}, {today.isoformat()}]"


def overtaken(text: str, today: datetime.date, checks: Checks) -> Stale | None:
    """What has become of what an entry says; None where nothing is known to have changed."""
    plain = bare(text)
    parts = clauses(plain)
    for part in parts:
        if (day := passed(part, today)) is not None:
            why = f"{day.isoformat()} has passed"
            return Stale("date", why, f"past since {day.isoformat()}", whole=len(parts) == 1)
    for path in _paths(plain):
        if checks.exists(path) is False:
            return Stale("path", f"{path} is not there", f"{_short(path)} not found")
    for found in _VERSION.finditer(plain):
        tool, said = _tool(found["tool"]), found["version"]
        declared = checks.version(tool)
        if declared is not None and not _agrees(said, declared[0]):
            version, file = declared
            return Stale("version", f"{file} says {tool} {version}", f"{tool} is {version} in {file}")
    return None


def confirmed(text: str, today: datetime.date, checks: Checks) -> bool:
    """Whether what a mark says is known to hold no longer: not where that cannot be told, as on another machine."""
    plain = bare(text)
    note = text[len(plain) :]
    if overtaken(plain, today, checks) is not None:
        return False
    if "not found" in note:
        return any(checks.exists(path) is True for path in _paths(plain))
    if " is " in note:
        return any(checks.version(_tool(found["tool"])) is not None for found in _VERSION.finditer(plain))
    return True


def passed(clause: str, today: datetime.date) -> datetime.date | None:
    """The last date of a clause that is about a limited time, if it is over. What recurs or is a record never is."""
    if not _LIMITED.search(clause) or _LASTING.search(clause):
        return None
    days = list(_days(clause))
    last = max(days, default=None)
    return last if last is not None and last < today - datetime.timedelta(days=1) else None


def _days(clause: str) -> Iterator[datetime.date]:
    for pattern in _DATES:
        for match in pattern.finditer(clause):
            fields = match.groupdict()
            month = fields.get("m") or 1 + _MONTHS.index(fields["month"].lower())
            try:
                yield datetime.date(int(fields["y"]), int(month), int(fields["d"]))
            except ValueError:
                continue


def _paths(text: str) -> list[str]:
    marks = [mark.text for mark in landmarks(text) if mark.kind == "path"]
    return [path for path in marks if "://" not in path and not _TOLD.search(path) and re.search(r"[\\/]", path)][:5]


def _short(path: str) -> str:
    return re.split(r"[\\/]", path.rstrip("\\/"))[-1][:60] or path[:60]


def _tool(name: str) -> str:
    folded = name.lower().replace(".", "")
    return "node" if folded.startswith("node") else folded


def _agrees(said: str, declared: str) -> bool:
    """As far as both go: 3.12 agrees with 3.12.4."""
    return all(one == other for one, other in zip(said.split("."), declared.split("."), strict=False))
