"""What is done about a value that is only partly there: it says so where the rest would be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from types import MappingProxyType

from herma.errors import StoreError
from herma.store.sqlite.payloads import unpack
from herma.store.sqlite.salvage_pages import Value
from herma.store.sqlite.salvage_tables import Reading

CUT = "\n[The rest of this text could not be read when the database was repaired.]"
LOST = "[This part could not be read when the database was repaired.]"
CELLS = ("content", "parts", "tool_calls", "reasoning", "sent", "sent_parts", "extra")
"""Columns of a message whose values may be in pieces."""
JSON_COLUMNS: dict[str, dict[str, Value]] = {
    "messages": {"parts": None, "tool_calls": None, "sent_parts": None, "extra": None},
    "curated_entries": {"tags": "[]"},
    "episodes": {"steps": "[]", "tools": "{}", "skills_applied": "[]", "skills_created": "[]"},
    "session_states": {"open_tasks": "[]", "files": "[]"},
    "reviews": {"actions": "[]"},
    "curated_inbox": {"operations": None},
    "skill_inbox": {"operation": None},
}
"""Columns that hold JSON, and what takes the place of a value that is none any more."""
_JSON = JSON_COLUMNS["messages"]


def is_whole(payload: dict[str, Value]) -> bool:
    """Whether a payload is what its hash says."""
    codec, data = payload["codec"], payload["data"]
    if not isinstance(codec, str) or not isinstance(data, bytes):
        return False
    try:
        return sha256(unpack(codec, data).encode()).digest() == payload["hash"]
    except (StoreError, UnicodeError):
        return False


def say_cut(values: dict[str, Value], count: int, reading: Reading) -> None:
    """Mark the text at which a row breaks off. A value that is not plain text is of no use without its end."""
    last = reading.shape.columns[count - 1].name if count else ""
    text = values.get(last)
    if last in _JSON or isinstance(text, bytes):
        values[last] = None
        if values["content"] is None and values["parts"] is None:
            values["content"] = CUT.strip()
    elif last in CELLS and isinstance(text, str):
        values[last] = text + CUT
    if values["content"] is None and values["parts"] is None and count <= 4:
        values["content"] = CUT.strip()


def mend_json(table: str, values: dict[str, Value]) -> bool:
    """Replace values that are no JSON any more. → whether there were any. What cannot be empty then fits no table."""
    wrong = {
        name: instead
        for name, instead in JSON_COLUMNS.get(table, {}).items()
        if isinstance(text := values.get(name), str) and not _is_json(text)
    }
    if table == "messages" and wrong:
        say_lost(found := dict(wrong), values)
        wrong = found
    values.update(wrong)
    return bool(wrong)


def mended_pieces(cell: bytes, there: set[int], column: str) -> tuple[Value, set[int]]:
    """A value in pieces, with a line for each that is gone. → and the payloads that it still needs."""
    try:
        pieces = json.loads(cell)
        if not isinstance(pieces, list) or not all(isinstance(piece, str | int) for piece in pieces):
            raise ValueError("not pieces")
    except ValueError:
        return None if column in _JSON else LOST, set()
    used = {piece for piece in pieces if isinstance(piece, int) and piece in there}
    if all(isinstance(piece, str) or piece in there for piece in pieces):
        return cell, used
    whole = [piece if isinstance(piece, str) or piece in there else LOST for piece in pieces]
    if column in _JSON and not _is_json("".join(piece if isinstance(piece, str) else "A" for piece in whole)):
        return None, set()
    return json.dumps(whole, ensure_ascii=False).encode(), used


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def say_lost(changed: dict[str, Value], values: Mapping[str, Value] = MappingProxyType({})) -> None:
    """A message whose parts are gone as a whole says so in plain text."""
    for parts, text in (("parts", "content"), ("sent_parts", "sent")):
        if parts in changed and changed[parts] is None and values.get(text) is None:
            changed.setdefault(text, LOST)
