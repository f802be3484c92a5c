"""Long tool results, shortened by kind."""

from __future__ import annotations

import csv
import hashlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from herma.prompt.tokens import estimate

# ---------- prompt.kinds
#
# What kind of text a tool has returned: JSON, a table, a log, code, or plain text. Decided by looks alone.

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


# ---------- prompt.shapes
#
# The shape of structured results: what a table or a JSON document looks like, in a few lines.

_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*)?\.?\d+(?:[eE][-+]?\d+)?%?")
_SHAPES_TROUBLE = re.compile(
    r"err(?:or)?s?|exception|fail(?:ed|ure|ures)?|warn(?:ing)?s?|traceback|fatal|reason", re.IGNORECASE
)
_STATUS = frozenset({"status", "state", "level", "outcome", "conclusion", "severity"})


@dataclass(frozen=True, slots=True)
class Detail:
    """How much of a structure to show."""

    depth: int
    items: int
    characters: int
    keys: int


DETAILS = (
    Detail(8, 4, 200, 40),
    Detail(6, 3, 120, 30),
    Detail(5, 2, 80, 20),
    Detail(4, 2, 60, 14),
    Detail(3, 1, 40, 10),
    Detail(2, 1, 30, 8),
    Detail(1, 1, 20, 5),
)


# ── JSON ──


def json_shape(value: Any, detail: Detail) -> str:
    """The document with long strings, long lists and deep levels cut, each with what is missing; errors stay."""
    return json.dumps(_shorten(value, detail, detail.depth), ensure_ascii=False, indent=None, separators=(", ", ": "))


def _shorten(value: Any, detail: Detail, depth: int, *, trouble: bool = False) -> Any:
    if isinstance(value, str):
        limit = detail.characters * (3 if trouble else 1)
        return value if len(value) <= limit else f"{value[:limit]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        return _shorten_object(value, detail, depth)
    if isinstance(value, list):
        return _shorten_list(value, detail, depth)
    return value


def _shorten_object(value: dict[str, Any], detail: Detail, depth: int) -> Any:
    if depth <= 0:
        return f"{{{len(value)} keys}}" if value else {}
    troubled = [key for key in value if _SHAPES_TROUBLE.fullmatch(key)][: detail.keys]
    first = list(value)[: detail.keys]
    shown = {
        _cut(key, 80): _shorten(value[key], detail, depth - 1, trouble=key in troubled)
        for key in dict.fromkeys([*first, *troubled])
    }
    if len(value) > len(shown):
        shown["…"] = f"{len(value) - len(shown):,} more keys"
    return shown


def _shorten_list(value: list[Any], detail: Detail, depth: int) -> Any:
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
    """Whether an item reports an error: by a key with a value, or by its status."""
    if not isinstance(item, dict):
        return isinstance(item, str) and _SHAPES_TROUBLE.search(item[:200]) is not None
    for key, value in item.items():
        if value and _SHAPES_TROUBLE.fullmatch(key) and value not in ("none", "None", "ok"):
            return True
        if key in _STATUS and isinstance(value, str) and _SHAPES_TROUBLE.fullmatch(value):
            return True
        if key in ("ok", "success") and value is False:
            return True
    return False


# ── tables ──


def table_shape(table: Table, detail: Detail) -> str:
    """Columns with their types, row count, first and last rows, and the extremes of numeric columns."""
    return "\n".join(_table_lines(table, detail))


def _table_lines(table: Table, detail: Detail) -> Iterator[str]:
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
    """Smallest and largest value of a numeric column, and the rows they are in; "" for other columns."""
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


# ---------- prompt.results
#
# Shortens what a tool returned, without a model: the shape and the errors stay, the bulk goes.
#
# The full text stays in the transcript; the placeholder says how to get it. Each kind of text is tried with less and
# less detail until it fits; what does not fit in any way is cut in the middle.

LIMIT = 500
LONG = 50
"""Code and logs with more lines than this are shortened even if they would fit."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_OVERWRITTEN = re.compile(r"^(?:[^\r\n]*+\r(?!\n))++", re.MULTILINE)
_RESULTS_TROUBLE = re.compile(
    r"\b(?i:error|errors|err!|warn|warning|warnings|fatal|panic|panicked|critical|exception|traceback|failed|failure|fail"
    r"|denied|refused|segfault|aborted|unhandled|not found|no such file|cannot|undefined reference|timed out|killed"
    r"|oomkilled|assertion)\b|\b[A-Z]\w*(?:Error|Exception|Warning)\b|^E {2,}|\bE\d{3,4}\b"
)
_NO_TROUBLE = re.compile(r"\b(?:0|no|without) (?:errors?|warnings?|failures?|failed)\b", re.IGNORECASE)
_FRAME = re.compile(r"\s|$")


@dataclass(frozen=True, slots=True)
class Compressed:
    """What is left of a result: its text, how many tokens were kept and dropped, and how it was done."""

    text: str
    kept: int
    dropped: int
    how: str

    @property
    def shortened(self) -> bool:
        return self.dropped > 0


@dataclass(frozen=True, slots=True)
class _Lines:
    """How much of a text in lines to show."""

    first: int
    last: int
    trouble: int
    around: int
    width: int


_LINES = (
    _Lines(25, 10, 40, 1, 400),
    _Lines(25, 10, 20, 1, 160),
    _Lines(15, 8, 16, 1, 140),
    _Lines(10, 6, 12, 0, 120),
    _Lines(6, 4, 8, 0, 100),
    _Lines(3, 3, 5, 0, 80),
    _Lines(1, 1, 2, 0, 60),
)


def digest(text: str) -> str:
    """What identifies a result among those already seen."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def compress_result(
    text: str,
    *,
    limit_tokens: int = LIMIT,
    kind: Kind | None = None,
    reference: str | None = None,
    seen: Mapping[str, str] = MappingProxyType({}),
    count: Callable[[str], int] = estimate,
) -> Compressed:
    """At most `limit_tokens` of `text`, and never more characters than it has.

    `reference` is the id of the tool call that this is the result of; `seen` maps the digests of earlier results to
    theirs.
    """
    clean = _ANSI.sub("", text) if "\x1b" in text else text
    clean = _OVERWRITTEN.sub("", clean) if "\r" in clean else clean
    total = count(text)
    fits = _fits(len(text), limit_tokens, count)
    earlier = seen.get(digest(text))
    if earlier is not None:
        same = f"[The same result as that of {_call(earlier)}; session_search with {_call(earlier)} shows it in full.]"
        if fits(same) and len(same) < len(clean):
            return _done(same, total, count, "the same as an earlier result")
    kind = kind or kind_of(clean)
    long = kind in ("code", "log") and len(clean.splitlines()) > LONG
    if not long and fits(clean):
        return _done(clean, total, count, "unchanged" if clean == text else "colours removed")
    note = _note(total, reference)
    for shown, how in _shorter(clean, kind):
        candidate = f"{shown}\n{note}"
        if fits(candidate):
            return _done(candidate, total, count, how)
    if fits(clean):
        return _done(clean, total, count, "unchanged" if clean == text else "colours removed")
    return _done(_cut_middle(clean, note, fits, limit_tokens), total, count, "cut in the middle")


def _fits(characters: int, limit_tokens: int, count: Callable[[str], int]) -> Callable[[str], bool]:
    return lambda candidate: len(candidate) <= characters and count(candidate) <= limit_tokens


def _done(text: str, total: int, count: Callable[[str], int], how: str) -> Compressed:
    kept = count(text)
    return Compressed(text, kept, max(0, total - kept), how)


def _note(total: int, reference: str | None) -> str:
    if reference is None:
        return f"[Shortened from about {total:,} tokens; the transcript has it in full: session_search finds it.]"
    return f"[Shortened from about {total:,} tokens; session_search with {_call(reference)} shows it in full.]"


def _call(reference: str) -> str:
    return f'tool_call_id "{reference}"'


def _shorter(text: str, kind: Kind) -> Iterator[tuple[str, str]]:
    """Shorter and shorter versions of a text of this kind, and what was done."""
    if kind == "json":
        parsed = parse_json(text)
        if parsed is not None:
            for detail in DETAILS:
                yield json_shape(parsed[0], detail), "structure of JSON"
    elif kind == "table":
        table = parse_table(text)
        if table is not None:
            for detail in DETAILS:
                yield table_shape(table, detail), "shape of a table"
    elif kind in ("code", "log"):
        lines = text.splitlines()
        trouble = list(_trouble(lines))
        for levels in _LINES:
            yield (
                _pick(lines, trouble, levels),
                f"first and last lines and errors of {'code' if kind == 'code' else 'a log'}",
            )


# ── lines ──


def _trouble(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where errors are: each as its line and the first line after it that is not part of it."""
    after = 0
    for at, line in enumerate(lines):
        head = line[:500]
        if at < after or not _RESULTS_TROUBLE.search(head) or _NO_TROUBLE.search(head):
            continue
        after = at + 1
        if head.lstrip().startswith("Traceback"):
            while after < len(lines) and after < at + 30 and _FRAME.match(lines[after]):
                after += 1
            after = min(after + 1, len(lines))
        yield at, after


def trouble_lines(text: str) -> list[str]:
    """What went wrong, one line each: of a traceback, its last."""
    lines = text.split("\n")
    return [lines[after - 1].strip() for _, after in _trouble(lines)]


def _pick(lines: Sequence[str], trouble: Sequence[tuple[int, int]], levels: _Lines) -> str:
    """The first and last lines, and the errors between them with their line numbers. The last errors matter most."""
    chosen = set(range(min(levels.first, len(lines)))) | set(range(max(0, len(lines) - levels.last), len(lines)))
    errors: set[int] = set()
    for at, after in reversed(trouble):
        span = range(max(0, at - levels.around), min(len(lines), after + levels.around))
        wanted = set(span) if len(span) <= 12 else {*span[:3], *span[-6:]}
        if len(errors | wanted) > levels.trouble * (1 + 2 * levels.around):
            break
        errors |= wanted
    out: list[str] = []
    last = -1
    for at in sorted(chosen | errors):
        if at > last + 1:
            out.append(f"… {at - last - 1:,} lines left out …")
        line = lines[at] if len(lines[at]) <= levels.width else f"{lines[at][: levels.width - 1]}…"
        out.append(line if at in chosen else f"{at + 1}: {line}")
        last = at
    return "\n".join(out)


# ── anything ──


def _cut_middle(text: str, note: str, fits: Callable[[str], bool], limit_tokens: int) -> str:
    """The beginning and the end, as much as fits, with the note between them."""
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
    """`text` up to its last line break, if that does not cost more than a fifth of it."""
    cut = text.rfind("\n")
    return text[:cut] if cut > len(text) * 4 // 5 else text
