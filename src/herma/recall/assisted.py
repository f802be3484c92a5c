"""Search with a model at its side: other words to search for, and summaries of what was found. Both on request only.

What was found without the model is there in any case; what the model could not do is said in a note.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Unpack

from herma.recall.asked import SearchOptions
from herma.recall.expand import Expander, united
from herma.recall.search import Searcher
from herma.recall.summaries import USUAL, Summariser
from herma.types import SearchReport

_USUAL_LIMIT = 10


class AssistedSearch:
    """Search as a `Searcher` does it, with two options more."""

    def __init__(self, searcher: Searcher, expander: Expander, summariser: Summariser) -> None:
        self._searcher = searcher
        self._expander = expander
        self._summariser = summariser

    def search(
        self,
        text: str,
        *,
        expand: bool = False,
        summarize: bool = False,
        conversations: int = USUAL,
        **options: Unpack[SearchOptions],
    ) -> SearchReport:
        """`expand`: search for other words too, ranked below. `summarize`: sum up the first conversations found."""
        began = time.perf_counter()
        report = self._searcher.search(text, **options)
        looked_for = self._searcher.looked_for(text)
        if expand:
            report = self._expanded(report, text, options)
        if summarize and report.hits:
            made = self._summariser.summarise(text, report.hits, looked_for, conversations=conversations)
            report = replace(report, summaries=made.summaries, notes=(*report.notes, *made.notes))
        return replace(report, took_ms=round((time.perf_counter() - began) * 1000, 2))

    def _expanded(self, report: SearchReport, text: str, options: SearchOptions) -> SearchReport:
        other = self._expander.alternatives(text)
        if not other.words:
            return replace(report, notes=(*report.notes, other.note))
        found = self._searcher.search(" ".join(other.words), **options)
        limit, level = options.get("limit", _USUAL_LIMIT), options.get("level", "session")
        more = () if found.widened else found.hits
        hits = more if report.widened and more else united(report.hits, more, limit, by=level)
        said = f"Searched too, as {other.model} proposed: {', '.join(other.words)}."
        return replace(
            report, hits=hits, also=other.words, widened=report.widened and not more, notes=(*report.notes, said)
        )
