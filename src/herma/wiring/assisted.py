"""Search with a model at its side."""

from __future__ import annotations

from collections.abc import Callable

from herma.recall.assisted import AssistedSearch
from herma.recall.expand import Expander
from herma.recall.search import Searcher
from herma.recall.summaries import Summariser
from herma.transcript import Transcripts
from herma.wiring.models import Models


def assisted_search(searcher: Searcher, kept: Transcripts, models: Callable[[], Models]) -> AssistedSearch:
    """Its models are behind the meter, and asked for when they are needed."""
    return AssistedSearch(
        searcher,
        Expander(
            lambda: models().get("auxiliary", purpose="query_expansion"), why_not=lambda: models().why_not("auxiliary")
        ),
        Summariser(
            kept,
            lambda: models().get("auxiliary", purpose="search_summary"),
            why_not=lambda: models().why_not("auxiliary"),
        ),
    )
