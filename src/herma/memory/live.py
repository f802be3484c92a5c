"""What a running session has not been told yet: curated memory as it knows it, against the files as they are.

The prompt of a session is frozen, so changes are told in the next user message, once each, whoever made them. To notice
one costs a stat per file and turn; a file is read only when that differs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herma.errors import StoreError
from herma.memory.entries import CuratedDocuments, CuratedHistory, Place
from herma.types import Snapshot

if TYPE_CHECKING:
    from herma.memory.store import Presenter


_SHORT = 16
"""Hex digits of a version that are kept: enough to tell the texts of one document apart."""


@dataclass(slots=True)
class _Known:
    """One document as the model knows it."""

    text: str
    version: str
    stamp: object


class LiveMemory:
    """The documents that one session sees, and what it knows of each."""

    def __init__(
        self,
        places: Sequence[Place],
        documents: CuratedDocuments,
        history: CuratedHistory,
        presenter: Presenter,
        *,
        settle: Callable[[Place], None],
    ) -> None:
        self._documents = documents
        self._history = history
        self._presenter = presenter
        self._settle = settle
        self.still_kept: Callable[[Place, Collection[str]], set[str]] = lambda _place, _texts: set()
        """Which entries only moved to the long tail. They are true as before, so nothing need be said of them."""
        self._known: dict[Place, _Known] = {}
        found = []
        for place in places:
            stamp = documents.stamp(place)  # before reading: a change in between is noticed later, not lost
            document = documents.read(place)
            found.append((place, document))
            self._known[place] = _Known(document.text, document.version, stamp)
        self.snapshot: Snapshot = presenter.snapshot(found)

    @property
    def told(self) -> str:
        """What the model knows now, as a reference that `recall` understands: the version of each document."""
        return json.dumps({_name(place): known.version[:_SHORT] for place, known in self._known.items()})

    def anchor(self) -> None:
        """Make sure that the history holds the texts that `told` refers to."""
        for place, known in self._known.items():
            if known.text:
                self._record(place)

    def recall(self, told: str) -> None:
        """Go back to what the model knew: the next update is the difference between that and the files."""
        versions = _versions(told)
        for place, known in self._known.items():
            version = versions.get(_name(place), "")
            if version != known.version[:_SHORT]:
                known.text = self._history.text_at(place, version) or ""
                known.version = version
                known.stamp = None

    def update(self) -> str:
        """What changed since the model was last told, as text for it, or nothing. From now on it counts as told."""
        said = [lines for place, known in self._known.items() if (lines := self._changes(place, known))]
        return "\n\n".join(said)

    def _changes(self, place: Place, known: _Known) -> str:
        stamp = self._documents.stamp(place)
        if stamp is not None and stamp == known.stamp:
            return ""
        document = self._documents.read(place)
        if document.trouble:
            return ""  # it will be told when it can be read again; until then the model's knowledge stands
        known.stamp = stamp
        if document.version[: len(known.version)] == known.version and document.text == known.text:
            return ""
        self._record(place)
        before, after = (self._presenter.entries(place, text) for text in (known.text, document.text))
        known.text, known.version = document.text, document.version
        gone = [entry for entry in before if entry not in after]
        new = [entry for entry in after if entry not in before]
        if gone:
            moved = self.still_kept(place, gone)
            gone = [entry for entry in gone if entry not in moved]
        if not gone and not new:
            return ""
        return "\n".join([f"{_title(place)}:", *map(_removed, gone), *map(_added, new)])

    def _record(self, place: Place) -> None:
        try:
            self._settle(place)
        except StoreError:
            return  # a home that cannot be written has nothing to record; the session goes on


def _versions(told: str) -> dict[str, str]:
    """What `told` says. A message from elsewhere may say anything; then the model is taken to know nothing."""
    try:
        versions = json.loads(told)
    except (ValueError, RecursionError):
        return {}
    named = versions.items() if isinstance(versions, dict) else ()
    return {name: version for name, version in named if isinstance(version, str) and version.isascii()}


def _name(place: Place) -> str:
    return "project" if place.project else place.target


def _title(place: Place) -> str:
    return {"memory": "MEMORY", "project": "PROJECT MEMORY", "user": "USER PROFILE"}[_name(place)]


def _added(entry: str) -> str:
    return f"+ {_indented(entry)}"


def _removed(entry: str) -> str:
    return f"- (no longer) {_indented(entry)}"


def _indented(entry: str) -> str:
    return entry.replace("\n", "\n  ")
