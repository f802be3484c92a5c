"""The index over the transcripts."""

from __future__ import annotations

from herma.index import Index
from herma.store.sqlite.feed import SqliteFeed
from herma.store.sqlite.index_files import SqliteIndexFiles
from herma.wiring.ground import Ground


def index(ground: Ground) -> Index:
    files = SqliteIndexFiles(ground.home, common_cap=ground.settings.search.common_cap)
    return Index(files, SqliteFeed(ground.database), alive=ground.alive)
