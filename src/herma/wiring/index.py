"""The indexes over the transcripts: words, and vectors where there is an embedder."""

from __future__ import annotations

from herma.index import Index, Vectors
from herma.ports import Embedder
from herma.ports.vectors import Embeddables
from herma.store.sqlite.feed import SqliteFeed
from herma.store.sqlite.index_files import SqliteIndexFiles
from herma.store.sqlite.index_vectors import SqliteVectors
from herma.store.sqlite.passages import SqlitePassages
from herma.wiring.ground import Ground


def index(ground: Ground) -> Index:
    files = SqliteIndexFiles(ground.home, common_cap=ground.settings.search.common_cap)
    return Index(files, SqliteFeed(ground.database), alive=ground.alive, vectors=vectors(ground))


def vectors(ground: Ground) -> Vectors:
    return Vectors(
        SqliteVectors(ground.home),
        SqliteFeed(ground.database),
        SqlitePassages(ground.database),
        lambda: _metered(ground),
        clock=ground.clock,
        alive=ground.alive,
        sources=lambda: _embeddables(ground),
    )


def _metered(ground: Ground) -> Embedder | None:
    """The embedder; one that wants a key is taken to cost something, and stands behind the meter."""
    found, settings = ground.embedder, ground.settings.embedding
    if found is None or ground.embedder_given or settings.model != "endpoint" or not settings.api_key_env:
        return found
    from herma.reflect.spend_embedding import MeteredEmbedder
    from herma.wiring.models import Models

    return MeteredEmbedder(found, Models(ground).meter, settings.endpoint_model)


def _embeddables(ground: Ground) -> list[Embeddables]:
    from herma.wiring.embeddables import embeddables  # knows other keepers, which words alone do not need

    return embeddables(ground)
