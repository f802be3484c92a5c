"""The words by which episodes and entries of the long tail are found, made anew from their texts.

Without the file's list of tables their rows cannot be told from those of indexes that look the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import apsw

from herma.store.sqlite.episodes import episode_of
from herma.store.sqlite.queries import queries
from herma.types import Episode


@dataclass(frozen=True, slots=True)
class Terms:
    """How texts become terms."""

    of_episode: Callable[[Episode], Sequence[str]]
    of_entry: Callable[[str], Sequence[str]]


def terms_anew(connection: apsw.Connection, terms: Terms) -> dict[str, int]:
    """Write them for everything that is kept. → how many rows each table has."""
    sql = queries("salvage")
    rows: list[Any] = connection.execute(queries("episodes")["columns"] + " WHERE e.archived IS NULL").fetchall()
    for episode in map(episode_of, rows):
        connection.executemany(sql["episode_term"], [(term, episode.id) for term in terms.of_episode(episode)])
    entries: list[Any] = connection.execute(sql["tail_entries"]).fetchall()
    for number, text in entries:
        connection.executemany(sql["entry_term"], [(term, number) for term in terms.of_entry(text)])
    counts: list[Any] = connection.execute(sql["count_terms"]).fetchall()
    return dict(counts)
