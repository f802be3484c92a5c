"""The shape of structured results: what a table or a JSON document looks like, in a few lines."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from herma.prompt.kinds import Table

_NUMBER = re.compile(r"[-+]?(?:\d[\d,_]*)?\.?\d+(?:[eE][-+]?\d+)?%?")
_TROUBLE = re.compile(
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
    troubled = [key for key in value if _TROUBLE.fullmatch(key)][: detail.keys]
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
        return isinstance(item, str) and _TROUBLE.search(item[:200]) is not None
    for key, value in item.items():
        if value and _TROUBLE.fullmatch(key) and value not in ("none", "None", "ok"):
            return True
        if key in _STATUS and isinstance(value, str) and _TROUBLE.fullmatch(value):
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
