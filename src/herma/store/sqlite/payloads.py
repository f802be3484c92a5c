"""Large values outside the hot table: cut out of a message when it is written, put back when it is read.

A value stays text while it is small. Otherwise it becomes a list of pieces: text that stays in the row, and payloads
that are stored once however often they occur. Text with NUL characters becomes a piece too, because SQL ends there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypeAlias

import apsw

from herma.errors import StoreError
from herma.store.sqlite.errors import damaged

LARGE = 16 * 1024
"""Text longer than this leaves the row."""
LONG_RUN = 2048
"""A run of base64 longer than this leaves the row, whatever is around it."""
_RUN = re.compile(rf"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{{{LONG_RUN},}}+={{0,2}}")
_BOUND_VARIABLES = 500

_FIND = "SELECT id FROM payloads WHERE hash = ?"
_ADD = "INSERT INTO payloads (hash, size, kind, codec, data) VALUES (?, ?, ?, ?, ?)"
_USE = "INSERT OR IGNORE INTO payload_uses (payload, message) VALUES (?, ?)"


@dataclass(frozen=True, slots=True)
class Payload:
    """A large text, ready to be stored."""

    hash: bytes
    size: int
    kind: str
    codec: str
    data: bytes


Cell: TypeAlias = str | list[str | Payload] | None
"""What a column will hold: text, pieces, or nothing."""
Stored: TypeAlias = str | bytes | None
"""What a column holds."""


def cell(text: str | None) -> Cell:
    """Take apart a value that is large, or that SQL could not hold as text."""
    if text is None or (len(text) < LONG_RUN and "\0" not in text):
        return text
    pieces: list[str | Payload] = []
    end = 0
    for run in _RUN.finditer(text):
        pieces += _plain(text[end : run.start()])
        pieces.append(payload(run[0], "base64"))
        end = run.end()
    if not end and len(text) <= LARGE and "\0" not in text:
        return text
    return pieces + _plain(text[end:])


def payload(text: str, kind: str = "text") -> Payload:
    import zstandard

    raw = text.encode()
    packed = zstandard.compress(raw, 3)
    codec, data = ("zstd", packed) if len(packed) < len(raw) else ("plain", raw)
    return Payload(sha256(raw).digest(), len(raw), kind, codec, data)


def store(connection: apsw.Connection, new: Payload) -> int:
    """Keep a payload unless it is there already. → its id."""
    found: Any = connection.execute(_FIND, (new.hash,)).fetchone()
    if found:
        return int(found[0])
    connection.execute(_ADD, (new.hash, new.size, new.kind, new.codec, new.data))
    return connection.last_insert_rowid()


def stored(connection: apsw.Connection, value: Cell, used: set[int]) -> Stored:
    """The value as its column takes it; ids of payloads it needs are added to `used`."""
    if not isinstance(value, list):
        return value
    pieces = [piece if isinstance(piece, str) else store(connection, piece) for piece in value]
    used.update(piece for piece in pieces if isinstance(piece, int))
    return json.dumps(pieces, ensure_ascii=False).encode()


def use(connection: apsw.Connection, message_id: int, used: set[int]) -> None:
    connection.executemany(_USE, [(payload_id, message_id) for payload_id in sorted(used)])


def texts(
    connection: apsw.Connection, values: Sequence[Stored], *, base64: bool = True
) -> Callable[[Stored], str | None]:
    """Fetch what these column values refer to. → a function that gives the whole text of any of them.

    Without `base64`, a space stands for what no one would search in.
    """
    wanted = {piece for value in values if isinstance(value, bytes) for piece in json.loads(value)}
    found = dict(_fetch(connection, sorted(piece for piece in wanted if isinstance(piece, int)), base64))
    return lambda value: _whole(value, found)


def unpack(codec: str, data: bytes) -> str:
    if codec == "zstd":
        import zstandard

        try:
            data = zstandard.decompress(data)
        except (zstandard.ZstdError, MemoryError) as exc:  # a damaged length asks for any amount of memory
            raise damaged("A stored text in herma.db", exc) from exc
    return data.decode()


def _plain(text: str) -> list[str | Payload]:
    if not text:
        return []
    return [payload(text) if len(text) > LARGE else text]


def _fetch(connection: apsw.Connection, ids: Sequence[int], base64: bool) -> Iterator[tuple[int, str]]:
    for at in range(0, len(ids), _BOUND_VARIABLES):
        some = ids[at : at + _BOUND_VARIABLES]
        marks = ",".join("?" * len(some))
        data = "data" if base64 else "iif(kind = 'base64', x'20', data)"
        codec = "codec" if base64 else "iif(kind = 'base64', 'plain', codec)"
        digest = "hash" if base64 else "iif(kind = 'base64', NULL, hash)"
        rows: Any = connection.execute(
            f"SELECT id, {codec}, {data}, {digest} FROM payloads WHERE id IN ({marks})", some
        )
        for payload_id, how, packed, known in rows:
            text = unpack(how, packed)
            if known is not None and sha256(text.encode()).digest() != known:
                raise damaged("A stored text in herma.db", "it is not what was written")
            yield payload_id, text


def _whole(value: Stored, found: Mapping[int, str]) -> str | None:
    if not isinstance(value, bytes):
        return value
    try:
        return "".join(piece if isinstance(piece, str) else found[piece] for piece in json.loads(value))
    except KeyError as exc:
        raise StoreError(
            f"A stored text refers to piece {exc} of the database, which is gone.", hint="Run: herma doctor"
        ) from exc
