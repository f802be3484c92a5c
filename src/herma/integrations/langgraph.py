"""LangGraph: a `BaseStore` that is durable and searchable.

    from herma.integrations.langgraph import HermaStore

    graph = builder.compile(store=HermaStore(h))

Every put is appended to one transcript, so nothing is overwritten on disk: earlier values stay there, superseded.
"""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from langgraph.store.base import (
    BaseStore,
    GetOp,
    Item,
    ListNamespacesOp,
    MatchCondition,
    Op,
    PutOp,
    Result,
    SearchItem,
    SearchOp,
)

from herma.integrations.items import ItemLog, scope_of

if TYPE_CHECKING:
    from herma.app import Herma

SOURCE = "langgraph"
_MOST_HITS = 200

Place = tuple[tuple[str, ...], str]
"""A namespace and a key."""


class HermaStore(BaseStore):
    """Keep any JSON values under a namespace and a key, and find them by words and meaning.

    Not supported, and refused: time to live. `index` of a put is ignored: the whole value is searchable unless it is
    `False`.
    """

    def __init__(self, app: Herma, name: str = "store", *, user: str | None = None, project: str | None = None) -> None:
        self._app = app
        self._scope = scope_of(app, user, project)
        self._log = ItemLog(app, SOURCE, name, self._scope)
        self._mutex = threading.Lock()  # guards what follows
        self._seen = -1
        self._items: dict[Place, Item] = {}
        self._messages: dict[int, Place] = {}
        self._newest: dict[Place, int] = {}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads see the store as it was before, of several puts to a key the last one counts."""
        with self._mutex:
            self._catch_up()
            results: list[Result] = []
            puts: dict[Place, PutOp] = {}
            for op in ops:
                if isinstance(op, GetOp):
                    results.append(self._items.get((tuple(op.namespace), str(op.key))))
                elif isinstance(op, SearchOp):
                    results.append(self._search(op))
                elif isinstance(op, ListNamespacesOp):
                    results.append(self._namespaces(op))
                elif isinstance(op, PutOp):
                    puts[(tuple(op.namespace), str(op.key))] = op
                    results.append(None)
                else:
                    raise ValueError(f"Unknown operation {type(op).__name__}.")  # noqa: TRY004
            self._put(puts)
            return results

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations in a thread."""
        return await asyncio.to_thread(self.batch, list(ops))

    def _put(self, puts: Mapping[Place, PutOp]) -> None:
        written = []
        for (namespace, key), op in puts.items():
            if op.value is None and (namespace, key) not in self._items:
                continue
            item = {"namespace": list(namespace), "key": key, "value": op.value}
            shown = "" if op.value is None or op.index is False else _words(op.value)
            written.append((item, {"role": "user", "content": f"{'/'.join(namespace)} {key}\n{shown}".strip()}))
        self._log.append(written)
        self._catch_up()

    def _catch_up(self) -> None:
        """Apply what this and other programs appended since the last look."""
        for one in self._log.read(self._seen):
            self._seen = one.message
            place = (tuple(one.item["namespace"]), one.item["key"])
            at = datetime.fromtimestamp(one.at, UTC)
            before = self._items.pop(place, None)
            if one.item["value"] is None:
                self._newest.pop(place, None)
                continue
            created = before.created_at if before else at
            self._items[place] = Item(
                value=one.item["value"], key=place[1], namespace=place[0], created_at=created, updated_at=at
            )
            self._newest[place] = one.message
            self._messages[one.message] = place

    def _search(self, op: SearchOp) -> list[SearchItem]:
        found = self._matching(op.query) if op.query else [(item, None) for item in self._items.values()]
        prefix = tuple(op.namespace_prefix)
        fitting = [
            (item, score)
            for item, score in found
            if item.namespace[: len(prefix)] == prefix and (not op.filter or _fits(item.value, op.filter))
        ]
        return [
            SearchItem(item.namespace, item.key, item.value, item.created_at, item.updated_at, score)
            for item, score in fitting[op.offset : op.offset + op.limit]
        ]

    def _matching(self, query: str) -> list[tuple[Item, float | None]]:
        """Return the items that a search finds, the best first; each once, with its present value."""
        report = self._app.search(query, level="message", limit=_MOST_HITS, source=SOURCE, scope=self._scope)
        found: dict[Place, tuple[Item, float | None]] = {}
        for hit in report.hits:
            place = self._messages.get(hit.message_id)
            if (
                place is not None
                and hit.session_id == self._log.session_id
                and self._newest.get(place) == hit.message_id
            ):
                found.setdefault(place, (self._items[place], hit.score))
        return list(found.values())

    def _namespaces(self, op: ListNamespacesOp) -> list[tuple[str, ...]]:
        names = {namespace for namespace, _ in self._items}
        kept = [name for name in names if all(_is_below(name, each) for each in op.match_conditions or ())]
        if op.max_depth is not None:
            kept = list({name[: op.max_depth] for name in kept})
        return sorted(kept)[op.offset : op.offset + op.limit]


def _is_below(namespace: tuple[str, ...], condition: MatchCondition) -> bool:
    path = tuple(condition.path)
    if len(namespace) < len(path):
        return False
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[len(namespace) - len(path) :]
    return all(wanted in ("*", name) for wanted, name in zip(path, part, strict=True))


_COMPARISONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "$eq": lambda a, b: a == b,
    "$ne": lambda a, b: a != b,
    "$gt": lambda a, b: float(a) > float(b),
    "$gte": lambda a, b: float(a) >= float(b),
    "$lt": lambda a, b: float(a) < float(b),
    "$lte": lambda a, b: float(a) <= float(b),
}


def _fits(have: Any, wanted: Any) -> bool:
    """Return whether a value fits a filter: it is equal, its fields fit, or operators such as `{"$gt": 4}` hold."""
    if isinstance(wanted, list | tuple):
        return isinstance(have, list | tuple) and len(have) == len(wanted) and all(map(_fits, have, wanted))
    if not isinstance(wanted, Mapping):
        return bool(have == wanted)
    if not any(name.startswith("$") for name in wanted):
        return isinstance(have, Mapping) and all(_fits(have.get(name), value) for name, value in wanted.items())
    for name, other in wanted.items():
        if name not in _COMPARISONS:
            raise ValueError(f"Operator {name} not supported")
        if have is None and name not in ("$eq", "$ne"):
            return False
        if not _COMPARISONS[name](have, other):
            return False
    return True


def _words(value: object) -> str:
    """Return the text of a value, for search: every text and number in it, a line each."""
    if isinstance(value, Mapping):
        return "\n".join(f"{name}: {_words(each)}" for name, each in value.items())
    if isinstance(value, list | tuple):
        return "\n".join(map(_words, value))
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
