"""What the core needs from the outside, as small protocols. Adapters in `store/` implement them; `app` injects them.

A module is loaded with the first name that is asked of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herma.ports.calls import WHOLE as WHOLE
    from herma.ports.calls import Call as Call
    from herma.ports.calls import CallReason as CallReason
    from herma.ports.calls import CallRows as CallRows
    from herma.ports.calls import CallSum as CallSum
    from herma.ports.calls import Counts as Counts
    from herma.ports.chat import ChatModel as ChatModel
    from herma.ports.curated import CuratedDocuments as CuratedDocuments
    from herma.ports.curated import CuratedHistory as CuratedHistory
    from herma.ports.curated import Document as Document
    from herma.ports.curated import Inbox as Inbox
    from herma.ports.curated import Moved as Moved
    from herma.ports.curated import NewChange as NewChange
    from herma.ports.curated import Place as Place
    from herma.ports.embedding import Embedder as Embedder
    from herma.ports.engine import CompressionRows as CompressionRows
    from herma.ports.engine import ContextEngine as ContextEngine
    from herma.ports.engine import EngineNeeds as EngineNeeds
    from herma.ports.engine import EngineOptions as EngineOptions
    from herma.ports.engine import Tries as Tries
    from herma.ports.index import Found as Found
    from herma.ports.index import IndexFiles as IndexFiles
    from herma.ports.index import IndexRow as IndexRow
    from herma.ports.index import IndexState as IndexState
    from herma.ports.index import IndexTables as IndexTables
    from herma.ports.index import IndexUnusable as IndexUnusable
    from herma.ports.index import Scored as Scored
    from herma.ports.index import Sieve as Sieve
    from herma.ports.index import Sought as Sought
    from herma.ports.index import Terms as Terms
    from herma.ports.index import TextIndex as TextIndex
    from herma.ports.observer import Contributor as Contributor
    from herma.ports.observer import Observer as Observer
    from herma.ports.observer import Watcher as Watcher
    from herma.ports.search import Head as Head
    from herma.ports.search import Spot as Spot
    from herma.ports.search import Standing as Standing
    from herma.ports.search import Surroundings as Surroundings
    from herma.ports.search import TranscriptReader as TranscriptReader
    from herma.ports.spend import Reservation as Reservation
    from herma.ports.spend import SpendRows as SpendRows
    from herma.ports.spend import Spent as Spent
    from herma.ports.spend import SpentCall as SpentCall
    from herma.ports.tokens import TokenCounter as TokenCounter
    from herma.ports.transcript import ChangeFeed as ChangeFeed
    from herma.ports.transcript import FeedChange as FeedChange
    from herma.ports.transcript import MessageRows as MessageRows
    from herma.ports.transcript import Position as Position
    from herma.ports.transcript import Searchable as Searchable
    from herma.ports.transcript import SessionChange as SessionChange
    from herma.ports.transcript import SessionNews as SessionNews
    from herma.ports.transcript import SessionQueries as SessionQueries
    from herma.ports.transcript import SessionRows as SessionRows

_HOMES = {
    "calls": (
        "WHOLE",
        "Call",
        "CallReason",
        "CallRows",
        "CallSum",
        "Counts",
    ),
    "chat": ("ChatModel",),
    "curated": (
        "CuratedDocuments",
        "CuratedHistory",
        "Document",
        "Inbox",
        "Moved",
        "NewChange",
        "Place",
    ),
    "embedding": ("Embedder",),
    "engine": (
        "CompressionRows",
        "ContextEngine",
        "EngineNeeds",
        "EngineOptions",
        "Tries",
    ),
    "index": (
        "Found",
        "IndexFiles",
        "IndexRow",
        "IndexState",
        "IndexTables",
        "IndexUnusable",
        "Scored",
        "Sieve",
        "Sought",
        "Terms",
        "TextIndex",
    ),
    "observer": (
        "Contributor",
        "Observer",
        "Watcher",
    ),
    "search": (
        "Head",
        "Spot",
        "Standing",
        "Surroundings",
        "TranscriptReader",
    ),
    "spend": (
        "Reservation",
        "SpendRows",
        "Spent",
        "SpentCall",
    ),
    "tokens": ("TokenCounter",),
    "transcript": (
        "ChangeFeed",
        "FeedChange",
        "MessageRows",
        "Position",
        "Searchable",
        "SessionChange",
        "SessionNews",
        "SessionQueries",
        "SessionRows",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_MODULE_OF]  # noqa: PLE0604  the imports above are the same list


if not TYPE_CHECKING:  # else every name would be taken for one that is there

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _MODULE_OF:
            raise AttributeError(f"module 'herma.ports' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"herma.ports.{_MODULE_OF[name]}"), name)
        return value
