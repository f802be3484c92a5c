"""What kind of text a tool has returned: JSON, a table, a log, code, or plain text. Decided by looks alone."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["json", "table", "log", "code", "text"]

_LOG_LINE = re.compile(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T _]\d\d:\d\d|\[?\d\d:\d\d:\d\d|\[?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d"
    r"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|(?:debug|info|warn|warning|error)[ :\]]"
    r"|\d{1,3}(?:\.\d{1,3}){3} - |[\w./-]++::\S++ (?:PASSED|FAILED|ERROR|SKIPPED)|(?:PASSED|FAILED|ok|not ok)\b"
    r"|\[ *\d+(?:\.\d+|/\d+|%)|(?:npm|yarn|pip|cargo|make)(?:\[\d+\])? |E  +|Traceback |  File \""
    r"|(?:Get|Hit|Step|Layer):? ?\d)"
)
_CODE_LINE = re.compile(
    r"\s*(?:\d+[\t|:→]\s*)?(?:(?:async )?def |class \w|import \w|from \w[\w.]* import|return\b|if\b.*[:{]$|for\b.*[:{]$"
    r"|while\b|el(?:se|if)\b|try:|except\b|with\b.*:$|@\w|#include|#define|#if|using \w|namespace |template ?<|public "
    r"|private |static |protected |func |fn |let |const |var |struct |enum |impl |type \w|interface |export |package "
    r"|void |int |char |switch|case\b.*:|self\.|this\.|//|/\*|\*/| \* |#!|\}|\]|\)|</?\w+[^>]*>"
    r"|[\w.\[\]]+ ?[-+*/|&:]?= |[\w.]+\(.*\)[;,:{]?$)"
    r"|.*[;{]\s*$"
)
_DIFF_LINE = re.compile(r"(?:diff --git |index [0-9a-f]{7}|@@ -\d|[-+]{3} [ab/]|[-+](?![-+ ]*$))")
_RULES = frozenset("-=─━|+:┼╪│┃├┤┌┐└┘┬┴╞╡ \t")
_NUMBERED = re.compile(r"\s{0,10}(\d{1,7})[\t|:→]")
_DELIMITERS = "\t,;|"
_GAPS = re.compile(r" {2,}|\t+")


@dataclass(frozen=True, slots=True)
class Table:
    """A table that was recognised: how it is written, its columns and its rows."""

    style: Literal["csv", "tsv", "delimited", "markdown", "grid", "columns"]
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def kind_of(text: str) -> Kind:
    """The kind of `text`, with what is certain asked first."""
    if parse_json(text) is not None:
        return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return "text"
    if _is_log(lines):
        return "log"
    if _is_listing(lines):
        return "code"
    if parse_table(text) is not None:
        return "table"
    return "code" if _is_code(lines) else "text"


def parse_json(text: str) -> tuple[Any] | None:
    """The value of a JSON document, or the list of values of JSON lines; in a tuple, for it may be null."""
    start = text.lstrip()[:1]
    if start not in ("{", "["):
        return None
    try:
        return (json.loads(text),)
    except (ValueError, RecursionError):
        pass
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 2 or not all(line.lstrip()[:1] in ("{", "[") for line in lines):
        return None
    try:
        return ([json.loads(line) for line in lines],)
    except (ValueError, RecursionError):
        return None


def _share(pattern: re.Pattern[str], lines: Sequence[str]) -> float:
    return sum(pattern.match(line[:300]) is not None for line in lines) / len(lines)


def _is_log(lines: Sequence[str]) -> bool:
    return _share(_LOG_LINE, lines) >= 0.4 and len(lines) > 1


def _is_listing(lines: Sequence[str]) -> bool:
    """Whether each line begins with its number, as editors and many tools show files."""
    numbers = [match[1] for line in lines if (match := _NUMBERED.match(line))]
    if len(lines) < 3 or len(numbers) != len(lines):
        return False
    first = int(numbers[0])
    return all(first + at <= int(number) <= first + 4 * at for at, number in enumerate(numbers))


def _is_code(lines: Sequence[str]) -> bool:
    if len(lines) < 3:
        return False
    if any(line.startswith(("diff --git ", "@@ -")) for line in lines[:20]) and _share(_DIFF_LINE, lines) >= 0.1:
        return True
    return _share(_CODE_LINE, lines) >= 0.4


# ── tables ──


def parse_table(text: str) -> Table | None:
    """The table that `text` is, or nothing: at least three rows, at least two columns, nearly all rows alike."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 3:
        return None
    return _ruled(lines) or _delimited(lines) or _aligned(lines)


def _ruled(lines: Sequence[str]) -> Table | None:
    """Markdown tables, boxes of +---+ and what databases print: cells between bars, and a rule under the header."""
    ruled = [line for line in lines if _is_rule(line)]
    barred = [line for line in lines if any(bar in line for bar in "|│┃") and not _is_rule(line)]
    if not ruled or len(barred) < 2 or len(ruled) + len(barred) < 0.9 * len(lines):
        return None
    rows = [tuple(cell.strip() for cell in re.split(r"[|│┃]", line.strip().strip("|│┃"))) for line in barred]
    style: Literal["markdown", "grid"] = (
        "markdown" if barred[0].lstrip().startswith("|") and len(ruled) == 1 else "grid"
    )
    return _even(style, rows)


def _is_rule(line: str) -> bool:
    return any(pair in line for pair in ("--", "==", "──", "━━")) and _RULES.issuperset(line)


def _delimited(lines: Sequence[str]) -> Table | None:
    for delimiter in _DELIMITERS:
        if delimiter not in lines[0]:
            continue
        try:
            rows = [tuple(cell.strip() for cell in row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            continue
        if delimiter == "," and _reads_like_prose(rows):
            continue
        styles: dict[str, Literal["csv", "tsv", "delimited"]] = {",": "csv", "\t": "tsv"}
        table = _even(styles.get(delimiter, "delimited"), rows)
        if table is not None:
            return table
    return None


def _aligned(lines: Sequence[str]) -> Table | None:
    """Columns that two or more spaces keep apart, under a header in capitals, as many commands print them."""
    if not re.fullmatch(r"[A-Z#%][A-Z0-9 _/%().#-]*", lines[0].strip()):
        return None
    rows = [tuple(cell for cell in _GAPS.split(line.strip()) if cell) for line in lines]
    return _even("columns", rows)


def _even(
    style: Literal["csv", "tsv", "delimited", "markdown", "grid", "columns"], rows: list[tuple[str, ...]]
) -> Table | None:
    """A table, if nearly all rows have as many cells as most have. Rows that do not are filled up or cut."""
    if len(rows) < (3 if style in ("csv", "tsv", "delimited", "columns") else 2):
        return None
    width, alike = Counter(map(len, rows)).most_common(1)[0]
    if width < 2 or alike < 0.85 * len(rows) or len(rows[0]) != width:
        return None
    fitted = [row[:width] + ("",) * (width - len(row)) for row in rows]
    return Table(style, fitted[0], tuple(fitted[1:]))


def _reads_like_prose(rows: list[tuple[str, ...]]) -> bool:
    cells = [cell for row in rows[:50] for cell in row]
    return sum(len(cell.split()) > 6 for cell in cells) > 0.3 * len(cells)
