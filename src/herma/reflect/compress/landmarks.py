"""What a summary must not lose: paths, identifiers, numbers and open tasks, found without a model.

Every pattern begins with something that a search can jump to and repeats possessively, so reading is linear.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias

Kind: TypeAlias = Literal["path", "identifier", "number"]

_URL = re.compile(r"\bhttps?://[^\s<>\"'`)\]]++")
_EDGE_OF_WORD = r"(?<![\w@+~.\\/-])"
_SLASHED = re.compile(rf"{_EDGE_OF_WORD}(?:[A-Za-z]:(?=[\\/]))?+[\w@+~.-]*+(?:[\\/][\w@+~.-]*+)++")
_DOTTED = re.compile(rf"{_EDGE_OF_WORD}[\w@+-]++(?:\.[\w@+-]++)++(?![\\/])")
_ROOTED = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[\\/]\w")
_SUFFIXED = re.compile(r"\.[A-Za-z]\w{0,9}$")
_FILE = re.compile(
    r"\.(?:py|js|ts|tsx|jsx|go|rs|c|h|cc|cpp|hpp|java|kt|rb|php|sh|sql|md|txt|json|jsonl|yaml|yml|toml|ini|cfg|conf|env|lock"
    r"|log|csv|html|css|ipynb|xml|db|service|tf|proto)$",
    re.IGNORECASE,
)
_QUOTED = re.compile(r"`([^`\s][^`\n]{0,78})`")
_IDENTIFIER = re.compile(
    r"\b(?:(?!\d)[A-Za-z0-9]++(?:_++[A-Za-z0-9]++)++"  # snake_case, CONSTANT_CASE
    r"|[a-z]++[A-Z]\w++|[A-Z][a-z0-9]++[A-Z]\w++"  # camelCase, PascalCase
    r"|[A-Z]{2,10}+-\d++"  # TICKET-12
    r"|v?\d++\.\d++\.\d++[\w.+-]*+"  # 1.2.3
    r"|(?=\w*\d)(?=\w*[a-f])[0-9a-f]{7,40}+)\b"  # a hash
)
_NUMBER = re.compile(
    r"(?<![\w.-])\d{4}-\d{2}-\d{2}(?!\d)"
    r"|(?<![\w.,-])\d[\d,.]*+ ?(?:%|ms|s|min|h|days?|KB|MB|GB|TB|kB|Hz|px|USD|EUR|[$€£¥])(?!\w)"
    r"|(?<![\w.])[$€£¥]\d[\d,.]*+"
    r"|(?<![\w.,-])(?:\d{1,3}(?:,\d{3})++|\d{3,}+)(?![\w.])"
)
_LABELS = "Todo|todo|Next(?: steps?)?|Remaining|Still open|Open|Left to do"
_ASIAN_LABELS = "待办|待做|下一步|还需要|未完成|やること|次にやること|残り"
_UNFINISHED = (
    "still (?:need|have|needs|has) to|remains to|not (?:yet )?(?:done|finished|fixed)|have yet to"
    "|needs? to be (?:done|fixed|checked)|blocked (?:on|by)|waiting for"
)
_TASK = re.compile(
    r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]*+\[ \][ \t]*+(?P<box>\S[^\n]{2,300})"
    rf"|(?:\b(?:TODO|FIXME)|^[^\n\w]{{0,10}}(?:{_LABELS}|{_ASIAN_LABELS}))[ \t]*+[:：][ \t]*+"
    r"(?P<label>\S[^\n]{2,300})"
    rf"|^(?P<said>[^\n]{{0,200}}?\b(?:{_UNFINISHED})\b[^\n]{{0,200}})",
    re.MULTILINE,
)
_DONE = re.compile(r"^[ \t]*+(?:[-*+]|\d{1,3}[.)])[ \t]*+\[[xX✓✔]\][ \t]*+(?P<task>\S[^\n]{2,300})", re.MULTILINE)
_EDGE = ".,;:!?)]}»”’'\""
_READ = 200_000
"""Characters of one text that are looked at; a longer one is machine output, and its beginning and end will do."""


@dataclass(frozen=True, slots=True, order=True)
class Landmark:
    """One thing by which work is found again."""

    kind: Kind
    text: str


def landmarks(text: str) -> list[Landmark]:
    """Paths, identifiers and numbers of a text, each once, in the order in which they first appear."""
    found = sorted((start, Landmark(kind, value)) for kind, start, value in _candidates(bounded(text)) if value)
    return list(dict.fromkeys(mark for _, mark in found))


def _candidates(text: str) -> Iterator[tuple[Kind, int, str]]:
    """One pass per pattern; what overlaps something that an earlier pass found is left to it."""
    spans: list[tuple[int, int]] = []
    passes: tuple[tuple[Kind, re.Pattern[str]], ...] = (
        ("path", _URL),
        ("path", _SLASHED),
        ("path", _DOTTED),
        ("identifier", _QUOTED),
        ("identifier", _IDENTIFIER),
        ("number", _NUMBER),
    )
    for kind, pattern in passes:
        fresh: list[tuple[int, int]] = []
        at = 0
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            start, value = match.start(group), match.group(group).rstrip(_EDGE)
            if pattern in (_SLASHED, _DOTTED) and not _is_path(value):
                continue
            while at < len(spans) and spans[at][1] <= start:
                at += 1
            if at < len(spans) and spans[at][0] < start + len(value):
                continue
            fresh.append((start, start + len(value)))
            yield kind, start, value
        spans = sorted([*spans, *fresh])


def _is_path(word: str) -> bool:
    """`and/or` and `3.14` are none."""
    parts = [part for part in re.split(r"[\\/]", word) if part]
    if len(parts) < 2:
        return bool(_FILE.search(word))
    return len(parts) > 2 or bool(_ROOTED.match(word) or _SUFFIXED.search(parts[-1]))


def open_tasks(text: str) -> list[str]:
    """Lines that say what is still to be done, without those that are ticked off later in the same text."""
    text = bounded(text)
    done = {_plain(match["task"]) for match in _DONE.finditer(text)}
    tasks = (" ".join((match["box"] or match["label"] or match["said"]).split()) for match in _TASK.finditer(text))
    return list(dict.fromkeys(task for task in tasks if _plain(task) not in done))


def finished_tasks(text: str) -> set[str]:
    """What a text ticks off, in a form that can be compared."""
    return {_plain(match["task"]) for match in _DONE.finditer(bounded(text))}


def same_task(task: str, finished: set[str]) -> bool:
    return _plain(task) in finished


def survives(mark: Landmark, summary: str) -> bool:
    """Whether a summary still names it. A path may be named by its last two parts."""
    if mark.text in summary:
        return True
    parts = re.split(r"[\\/]", mark.text)
    return mark.kind == "path" and len(parts) > 2 and "/".join(parts[-2:]) in summary


def bounded(text: str) -> str:
    return text if len(text) <= _READ else f"{text[: _READ // 2]}\n{text[-_READ // 2 :]}"


def _plain(task: str) -> str:
    return "".join(char for char in task.casefold() if char.isalnum())
