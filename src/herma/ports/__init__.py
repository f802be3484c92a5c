"""What the core needs from the outside, as small protocols. Adapters in `store/` implement them; `app` injects them."""

from herma.ports.calls import WHOLE, Call, CallReason, CallRows, CallSum, Counts
from herma.ports.chat import ChatModel
from herma.ports.curated import CuratedDocuments, CuratedHistory, Document, Inbox, Moved, NewChange, Place
from herma.ports.embedding import Embedder
from herma.ports.engine import CompressionRows, ContextEngine, EngineNeeds, EngineOptions, Tries
from herma.ports.index import (
    Found,
    IndexFiles,
    IndexRow,
    IndexState,
    IndexTables,
    IndexUnusable,
    Scored,
    Sieve,
    Sought,
    Terms,
    TextIndex,
)
from herma.ports.observer import Contributor, Observer, Watcher
from herma.ports.search import Head, Spot, Standing, Surroundings, TranscriptReader
from herma.ports.spend import Reservation, SpendRows, Spent, SpentCall
from herma.ports.tokens import TokenCounter
from herma.ports.transcript import (
    ChangeFeed,
    FeedChange,
    MessageRows,
    Position,
    Searchable,
    SessionChange,
    SessionQueries,
    SessionRows,
)

__all__ = [
    "WHOLE",
    "Call",
    "CallReason",
    "CallRows",
    "CallSum",
    "ChangeFeed",
    "ChatModel",
    "CompressionRows",
    "ContextEngine",
    "Contributor",
    "Counts",
    "CuratedDocuments",
    "CuratedHistory",
    "Document",
    "Embedder",
    "EngineNeeds",
    "EngineOptions",
    "FeedChange",
    "Found",
    "Head",
    "Inbox",
    "IndexFiles",
    "IndexRow",
    "IndexState",
    "IndexTables",
    "IndexUnusable",
    "MessageRows",
    "Moved",
    "NewChange",
    "Observer",
    "Place",
    "Position",
    "Reservation",
    "Scored",
    "Searchable",
    "SessionChange",
    "SessionQueries",
    "SessionRows",
    "Sieve",
    "Sought",
    "SpendRows",
    "Spent",
    "SpentCall",
    "Spot",
    "Standing",
    "Surroundings",
    "Terms",
    "TextIndex",
    "TokenCounter",
    "TranscriptReader",
    "Tries",
    "Watcher",
]
