"""The weight of a phrase in one message, as a function of FTS5.

FTS5's own `bm25` also says how rare the phrase is in its table. To know that, it looks for the phrase in all of the
table once more; here it is known from all tables together.
"""

from __future__ import annotations

import apsw

K1, B = 1.2, 0.75
"""How soon it no longer matters how often a word occurs, and how much the length of a message does: as in `bm25`."""


def provide(connection: apsw.Connection) -> None:
    """Make `weight(table)` known to a connection."""
    connection.register_fts5_function("weight", _weight)


def _weight(found: apsw.FTS5ExtensionApi, *_: object) -> float:
    times = found.inst_count
    average = found.column_total_size(-1) / found.row_count
    return times * (K1 + 1) / (times + K1 * (1 - B + B * found.column_size(-1) / average))
