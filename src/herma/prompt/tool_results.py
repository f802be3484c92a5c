"""Shorten what tools returned, without a model: the shape and the errors stay, the bulk goes.

The kind of a result (JSON, a table, a log, code, plain text) is decided by its looks. Each kind is tried with less and
less detail until it fits; anything else is cut in the middle. The transcript has the full text, and the note in the
short version says how to get it.
"""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from herma.prompt.tokens import estimate
from herma.text import LazyPattern

LIMIT = 500
LONG = 50
"""Code and logs with more lines than this are shortened even if they fit."""
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_OVERWRITTEN = re.compile(r"^(?:[^\r\n]*+\r(?!\n))++", re.MULTILINE)


def digest(text: str) -> str:
    """Return what identifies a result among those that were already sent."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def compress_result(
    text: str,
    *,
    limit_tokens: int = LIMIT,
    reference: str | None = None,
    seen: Mapping[str, str] = MappingProxyType({}),
    count: Callable[[str], int] = estimate,
) -> str:
    """Return at most `limit_tokens` of `text`, and never more characters than it has.

    `reference` is the id of the tool call; `seen` maps the digests of earlier results to the ids of their calls.
    """
    clean = _ANSI.sub("", text) if "\x1b" in text else text
    clean = _OVERWRITTEN.sub("", clean) if "\r" in clean else clean

    def fits(candidate: str) -> bool:
        return len(candidate) <= len(text) and count(candidate) <= limit_tokens

    earlier = seen.get(digest(text))
    if earlier is not None:
        same = f"[The same result as that of {_call(earlier)}; session_search with {_call(earlier)} shows it in full.]"
        if fits(same) and len(same) < len(clean):
            return same
    kind = kind_of(clean)
    fitting = fits(clean)
    if fitting and not (kind in ("code", "log") and len(clean.splitlines()) > LONG):
        return clean
    where = "session_search finds the full text in the transcript"
    if reference is not None:
        where = f"session_search with {_call(reference)} shows it in full"
    note = f"[Shortened from about {count(text):,} tokens; {where}.]"
    shorter = next((one for shown in _shorter(clean, kind) if fits(one := f"{shown}\n{note}")), None)
    if shorter is not None:
        return shorter
    return clean if fitting else _cut_middle(clean, note, fits, limit_tokens)


def trouble_lines(text: str) -> list[str]:
    """Return what went wrong, one line each: of a traceback, its last line."""
    lines = text.split("\n")
    return [lines[after - 1].strip() for _, after in _trouble(lines)]


def _call(reference: str) -> str:
    return f'tool_call_id "{reference}"'


def _shorter(text: str, kind: Kind) -> Iterator[str]:
    """Yield shorter and shorter versions of a text of this kind."""
    if kind == "json" and (parsed := parse_json(text)) is not None:
        for detail in _DETAILS:
            yield json.dumps(_shorten(parsed[0], detail, detail.depth), ensure_ascii=False, separators=(", ", ": "))
    elif kind == "table" and (table := parse_table(text)) is not None:
        for detail in _DETAILS:
            yield "\n".join(_table_lines(table, detail))
    elif kind in ("code", "log"):
        lines = text.splitlines()
        trouble = list(_trouble(lines))
        for amount in _AMOUNTS:
            yield _pick(lines, trouble, amount)


def _cut_middle(text: str, note: str, fits: Callable[[str], bool], limit_tokens: int) -> str:
    """Return the beginning and the end, as much as fits, with the note between them."""
    for marker in (f"\n{note}\n", "\n[…]\n", "…"):
        size = min(len(text), limit_tokens * 8)
        while size >= 8:
            head, tail = text[: size * 3 // 5], text[-(size - size * 3 // 5) :]
            candidate = f"{_whole_lines(head)}{marker}{_whole_lines(tail[::-1])[::-1]}"
            if fits(candidate):
                return candidate
            size = size * 4 // 5
        if fits(marker.strip()):
            return marker.strip()
    return ""


def _whole_lines(text: str) -> str:
    """Return `text` up to its last line break, unless that would cost more than a fifth of it."""
    cut = text.rfind("\n")
    return text[:cut] if cut > len(text) * 4 // 5 else text


Kind: TypeAlias = Literal["json", "table", "log", "code", "text"]

_LOG_LINE = LazyPattern(
    r"\s*(?:\[?\d{4}-\d\d-\d\d[T _]\d\d:\d\d|\[?\d\d:\d\d:\d\d|\[?[A-Z][a-z]{2} +\d{1,2} \d\d:\d\d"
    r"|\[?(?:TRACE|DEBUG|INFO|NOTICE|WARN(?:ING)?|ERROR|FATAL|CRITICAL)\b|(?:debug|info|warn|warning|error)[ :\]]"
    r"|\d{1,3}(?:\.\d{1,3}){3} - |[\w./-]++::\S++ (?:PASSED|FAILED|ERROR|SKIPPED)|(?:PASSED|FAILED|ok|not ok)\b"
    r"|\[ *\d+(?:\.\d+|/\d+|%)|(?:npm|yarn|pip|cargo|make)(?:\[\d+\])? |E  +|Traceback |  File \""
    r"|(?:Get|Hit|Step|Layer):? ?\d)"
)
_CODE_LINE = LazyPattern(
    r"\s*(?:\d+[\t|:→]\s*)?(?:(?:async )?def |class \w|import \w|from \w[\w.]* import|return\b|if\b.*[:{]$|for\b.*[:{]$"
    r"|while\b|el(?:se|if)\b|try:|except\b|with\b.*:$|@\w|#include|#define|#if|using \w|namespace |template ?<|public "
    r"|private |static |protected |func |fn |let |const |var |struct |enum |impl |type \w|interface |export |package "
    r"|void |int |char |switch|case\b.*:|self\.|this\.|//|/\*|\*/| \* |#!|\}|\]|\)|</?\w+[^>]*>"
    r"|[\w.\[\]]+ ?[-+*/|&:]?= |[\w.]+\(.*\)[;,:{]?$)"
    r"|.*[;{]\s*$"
)
_DIFF_LINE = LazyPattern(r"(?:diff --git |index [0-9a-f]{7}|@@ -\d|[-+]{3} [ab/]|[-+](?![-+ ]*$))")
_RULE = frozenset("-=─━|+:┼╪│┃├┤┌┐└┘┬┴╞╡ \t")
_NUMBERED = LazyPattern(r"\s{0,10}(\d{1,7})[\t|:→]")
_GAPS = LazyPattern(r" {2,}|\t+")


def kind_of(text: str) -> Kind:
    """Return the kind of `text`; the most certain kinds are tried first."""
    if parse_json(text) is not None:
        return "json"
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) > 1 and _share(_LOG_LINE, lines) >= 0.4:
        return "log"
    if _is_listing(lines):
        return "code"
    if parse_table(text) is not None:
        return "table"
    if len(lines) < 3:
        return "text"
    diff = any(line.startswith(("diff --git ", "@@ -")) for line in lines[:20]) and _share(_DIFF_LINE, lines) >= 0.1
    return "code" if diff or _share(_CODE_LINE, lines) >= 0.4 else "text"


def _share(pattern: LazyPattern, lines: Sequence[str]) -> float:
    return sum(pattern.match(line[:300]) is not None for line in lines) / len(lines)


def _is_listing(lines: Sequence[str]) -> bool:
    """Return whether each line begins with its number, as many tools show files."""
    numbers = [match[1] for line in lines if (match := _NUMBERED.match(line))]
    if len(lines) < 3 or len(numbers) != len(lines):
        return False
    first = int(numbers[0])
    return all(first + at <= int(number) <= first + 4 * at for at, number in enumerate(numbers))


# ── JSON ──

_TROUBLE_KEY = LazyPattern(r"err(?:or)?s?|exception|fail(?:ed|ure|ures)?|warn(?:ing)?s?|traceback|fatal|reason", re.I)
_STATUS = frozenset({"status", "state", "level", "outcome", "conclusion", "severity"})


@dataclass(frozen=True, slots=True)
class _Detail:
    """The limits for a structure that is shown."""

    depth: int
    items: int
    characters: int
    keys: int


_DETAILS = (
    _Detail(8, 4, 200, 40),
    _Detail(6, 3, 120, 30),
    _Detail(5, 2, 80, 20),
    _Detail(4, 2, 60, 14),
    _Detail(3, 1, 40, 10),
    _Detail(2, 1, 30, 8),
    _Detail(1, 1, 20, 5),
)


def parse_json(text: str) -> tuple[Any] | None:
    """Return the value of a JSON document, or the list of the values of JSON lines; in a tuple, as it may be null."""
    if text.lstrip()[:1] not in ("{", "["):
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


def _shorten(value: Any, detail: _Detail, depth: int, *, trouble: bool = False) -> Any:
    if isinstance(value, str):
        limit = detail.characters * (3 if trouble else 1)
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return _shorten_object(value, detail, depth)
    if isinstance(value, list):
        return _shorten_list(value, detail, depth)
    return value


def _shorten_object(value: dict[str, Any], detail: _Detail, depth: int) -> Any:
    if depth <= 0:
        return f"{{{len(value)} keys}}" if value else {}
    troubled = [key for key in value if _TROUBLE_KEY.fullmatch(key)][: detail.keys]
    first = list(value)[: detail.keys]
    shown = {
        _cut(key, 80): _shorten(value[key], detail, depth - 1, trouble=key in troubled)
        for key in dict.fromkeys([*first, *troubled])
    }
    if len(value) > len(shown):
        shown["…"] = f"{len(value) - len(shown):,} more keys"
    return shown


def _shorten_list(value: list[Any], detail: _Detail, depth: int) -> Any:
    if depth <= 0:
        return f"[{len(value):,} items: {_types(value)}]" if value else []
    if len(value) <= detail.items + 1:
        return [_shorten(item, detail, depth - 1) for item in value]
    first = range(detail.items)
    troubled = [at for at, item in enumerate(value) if at >= detail.items and _in_trouble(item)][: detail.items]
    shown: list[Any] = []
    last = -1
    for at in dict.fromkeys([*first, *troubled, len(value) - 1]):
        if at > last + 1:
            shown.append(f"… {at - last - 1:,} items left out")
        if at > last:
            shown.append(_shorten(value[at], detail, depth - 1))
            last = at
    shown.append(f"({len(value):,} items: {_types(value)})")
    return shown


def _types(items: Sequence[Any]) -> str:
    names = {dict: "objects", list: "lists", str: "strings", bool: "booleans", type(None): "nulls"}
    return "/".join(sorted({names.get(type(item), "numbers") for item in items}))


def _in_trouble(item: Any) -> bool:
    """Return whether an item reports an error, by a key with a value or by its status."""
    if not isinstance(item, dict):
        return isinstance(item, str) and _TROUBLE_KEY.search(item[:200]) is not None
    for key, value in item.items():
        if value and _TROUBLE_KEY.fullmatch(key) and value not in ("none", "None", "ok"):
            return True
        if key in _STATUS and isinstance(value, str) and _TROUBLE_KEY.fullmatch(value):
            return True
        if key in ("ok", "success") and value is False:
            return True
    return False


# ── tables ──

Style: TypeAlias = Literal["csv", "tsv", "delimited", "markdown", "grid", "columns"]
_NUMBER = LazyPattern(r"[-+]?(?:\d[\d,_]*)?\.?\d+(?:[eE][-+]?\d+)?%?")


class Table(NamedTuple):
    """A table that was recognised: how it is written, its columns and its rows."""

    style: Style
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def parse_table(text: str) -> Table | None:
    """Return the table that `text` is, if any: at least three lines, two columns, and nearly all rows alike."""
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) < 3:
        return None
    return _ruled(lines) or _delimited(lines) or _aligned(lines)


def _ruled(lines: Sequence[str]) -> Table | None:
    """Read Markdown tables, boxes of +---+ and the tables of databases: cells between bars, a rule under the header."""
    ruled = [line for line in lines if _is_rule(line)]
    barred = [line for line in lines if any(bar in line for bar in "|│┃") and not _is_rule(line)]
    if not ruled or len(barred) < 2 or len(ruled) + len(barred) < 0.9 * len(lines):
        return None
    rows = [tuple(cell.strip() for cell in re.split(r"[|│┃]", line.strip().strip("|│┃"))) for line in barred]
    return _even("markdown" if barred[0].lstrip().startswith("|") and len(ruled) == 1 else "grid", rows)


def _is_rule(line: str) -> bool:
    return any(pair in line for pair in ("--", "==", "──", "━━")) and _RULE.issuperset(line)


def _delimited(lines: Sequence[str]) -> Table | None:
    for delimiter in "\t,;|":
        if delimiter not in lines[0]:
            continue
        try:
            rows = [tuple(cell.strip() for cell in row) for row in csv.reader(lines, delimiter=delimiter)]
        except csv.Error:
            continue
        if delimiter == "," and _reads_like_prose(rows):
            continue
        table = _even("csv" if delimiter == "," else "tsv" if delimiter == "\t" else "delimited", rows)
        if table is not None:
            return table
    return None


def _aligned(lines: Sequence[str]) -> Table | None:
    """Read columns that two or more spaces separate, under a header in capitals, as many commands print them."""
    if not re.fullmatch(r"[A-Z#%][A-Z0-9 _/%().#-]*", lines[0].strip()):
        return None
    rows = [tuple(cell for cell in _GAPS.split(line.strip()) if cell) for line in lines]
    return _even("columns", rows)


def _even(style: Style, rows: list[tuple[str, ...]]) -> Table | None:
    """Return a table if nearly all rows have the same number of cells; the others are filled up or cut."""
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


def _table_lines(table: Table, detail: _Detail) -> Iterator[str]:
    """Yield the columns, the extremes of numeric ones, and the first and last rows."""
    width = detail.characters // 2
    columns = table.columns[: detail.keys]
    more = f" and {len(table.columns) - len(columns)} more" if len(table.columns) > len(columns) else ""
    yield f"[{table.style} table: {len(table.rows):,} rows × {len(table.columns)} columns]"
    yield f"columns: {', '.join(_cut(name, width) or '(no name)' for name in columns)}{more}"
    for at, name in enumerate(columns):
        extremes = _extremes(table, at)
        if extremes:
            yield f"{_cut(name, width)}: {extremes}"
    first, last = 2 * detail.items, detail.items
    rows = list(enumerate(table.rows, 1))
    shown = rows if len(rows) <= first + last else rows[:first] + rows[-last:]
    for number, row in shown:
        yield f"{number:,}: {' | '.join(_cut(cell, width) for cell in row[: detail.keys])}"
        if number == first and len(rows) > len(shown):
            yield f"… {len(rows) - len(shown):,} rows left out …"


def _extremes(table: Table, column: int) -> str:
    """Return the smallest and largest value of a numeric column with their rows; "" for other columns."""
    cells = [(row[column], number) for number, row in enumerate(table.rows, 1) if row[column]]
    values = [(_number(cell), cell, number) for cell, number in cells if _NUMBER.fullmatch(cell[:40])]
    if len(values) < 2 or len(values) < 0.8 * len(cells):
        return ""
    low, high = min(values, key=lambda value: value[0]), max(values, key=lambda value: value[0])
    if low[0] == high[0]:
        return f"always {low[1]}"
    return f"{low[1]} (row {low[2]:,}) … {high[1]} (row {high[2]:,})"


def _number(cell: str) -> float:
    return float(cell.rstrip("%").replace(",", "").replace("_", "") or 0)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: max(0, limit - 1)]}…"


# ── logs and code ──

_TROUBLE = LazyPattern(
    r"\b(?i:error|errors|err!|warn|warning|warnings|fatal|panic|panicked|critical|exception|traceback|failed|failure|fail"
    r"|denied|refused|segfault|aborted|unhandled|not found|no such file|cannot|undefined reference|timed out|killed"
    r"|oomkilled|assertion)\b|\b[A-Z]\w*(?:Error|Exception|Warning)\b|^E {2,}|\bE\d{3,4}\b"
)
_NO_TROUBLE = LazyPattern(r"\b(?:0|no|without) (?:errors?|warnings?|failures?|failed)\b", re.IGNORECASE)
_FRAME = LazyPattern(r"\s|$")


@dataclass(frozen=True, slots=True)
class _Amount:
    """The number of lines to show, of lines around an error, and their width."""

    first: int
    last: int
    trouble: int
    around: int
    width: int


_AMOUNTS = (
    _Amount(25, 10, 40, 1, 400),
    _Amount(25, 10, 20, 1, 160),
    _Amount(15, 8, 16, 1, 140),
    _Amount(10, 6, 12, 0, 120),
    _Amount(6, 4, 8, 0, 100),
    _Amount(3, 3, 5, 0, 80),
    _Amount(1, 1, 2, 0, 60),
)


def _trouble(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the place of each error: its line, and the first line after it that does not belong to it."""
    after = 0
    for at, line in enumerate(lines):
        head = line[:500]
        if at < after or not _TROUBLE.search(head) or _NO_TROUBLE.search(head):
            continue
        after = at + 1
        if head.lstrip().startswith("Traceback"):
            while after < len(lines) and after < at + 30 and _FRAME.match(lines[after]):
                after += 1
            after = min(after + 1, len(lines))
        yield at, after


def _pick(lines: Sequence[str], trouble: Sequence[tuple[int, int]], amount: _Amount) -> str:
    """Return the first and last lines, and the errors between them with line numbers, the last errors first."""
    chosen = set(range(min(amount.first, len(lines)))) | set(range(max(0, len(lines) - amount.last), len(lines)))
    errors: set[int] = set()
    for at, after in reversed(trouble):
        span = range(max(0, at - amount.around), min(len(lines), after + amount.around))
        wanted = set(span) if len(span) <= 12 else {*span[:3], *span[-6:]}
        if len(errors | wanted) > amount.trouble * (1 + 2 * amount.around):
            break
        errors |= wanted
    out: list[str] = []
    last = -1
    for at in sorted(chosen | errors):
        if at > last + 1:
            out.append(f"… {at - last - 1:,} lines left out …")
        line = lines[at] if len(lines[at]) <= amount.width else f"{lines[at][: amount.width - 1]}…"
        out.append(line if at in chosen else f"{at + 1}: {line}")
        last = at
    return "\n".join(out)
