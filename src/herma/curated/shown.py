"""Curated documents as a model may see them: within their limit, nothing in them that the scanner objects to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herma.curated.entries import parse, unique, used
from herma.errors import StoreError
from herma.ports import CuratedDocuments, CuratedHistory, Document, Place
from herma.prompt.snapshot import placeholder, render_block, within
from herma.safety.scan import scan
from herma.types import Block, Snapshot, Target


class Presenter:
    """Turns documents into what the prompt shows. What cannot be shown becomes a warning for people."""

    def __init__(self, documents: CuratedDocuments, history: CuratedHistory, limits: Mapping[Target, int]) -> None:
        self._documents = documents
        self._history = history
        self._limits = limits

    def snapshot(self, shown: Sequence[tuple[Place, Document]]) -> Snapshot:
        """The blocks of these documents, in their order."""
        blocks: list[Block] = []
        warnings: list[str] = []
        for place, document in shown:
            where = self._documents.where(place)
            if document.trouble:
                warnings.append(f"{document.trouble}; the session starts without it.")
            entries = unique(parse(document.text))
            limit = self._limits[place.target]
            if used(entries) > limit:
                warnings.append(f"{where} is over its limit of {limit:,} characters; only its beginning is shown.")
            entries = self._presentable(place, entries, warnings)
            if text := render_block(place.target, place.scope, entries, limit):
                blocks.append(Block(place.target, where, text))
        return Snapshot(tuple(blocks), tuple(warnings))

    def entries(self, place: Place, text: str) -> list[str]:
        """The entries of a text, as a block would show them."""
        entries = self._presentable(place, unique(parse(text)), [])
        return within(entries, self._limits[place.target])[0] if entries else []

    def _presentable(self, place: Place, entries: list[str], warnings: list[str]) -> list[str]:
        """The entries, those that the scanner objects to replaced by a placeholder unless a person vouched for them.

        What is beyond the limit will not be shown, so it is not scanned: a file may be of any length.
        """
        limit, where = self._limits[place.target], self._documents.where(place)
        name = where.replace("\\", "/").rsplit("/", 1)[-1]
        shown: list[str] = []
        withheld = size = 0
        for text in entries:
            if size > limit:
                break
            findings = scan(text[:limit])
            if findings and not self._vouched(place, text, warnings):
                withheld += 1
                shown.append(placeholder(name, findings))
            else:
                shown.append(text)
            size += len(shown[-1])
        if withheld:
            warnings.append(f"{withheld} of {len(entries)} entries in {where} are withheld by the scanner.")
        return [*shown, *entries[len(shown) :]]

    def _vouched(self, place: Place, text: str, warnings: list[str]) -> bool:
        """Whether a person trusts this text; when nobody can tell, no."""
        try:
            known = self._history.notes(place, [text])
        except StoreError as exc:
            warning = f"{exc} Entries that the scanner objects to are withheld."
            if warning not in warnings:
                warnings.append(warning)
            return False
        return text in known and known[text].vouched
