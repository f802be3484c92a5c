"""The LangGraph store: the same answers as the framework's own store in memory, durable, and found by words."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langgraph.store.base import GetOp, ListNamespacesOp, MatchCondition, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore

from herma import Herma
from herma.integrations.langgraph import HermaStore


def _plain(result: Any) -> Any:
    """An answer without times and scores."""
    if isinstance(result, list):
        return [_plain(one) for one in result]
    return (result.namespace, result.key, result.value) if hasattr(result, "namespace") else result


def _sorted(result: Any) -> Any:
    return sorted(map(_plain, result), key=repr)


def play(store: Any) -> list[Any]:
    answers: list[Any] = []
    store.put(("users", "ann"), "colour", {"text": "blue", "n": 1})
    store.put(("users", "ann"), "food", {"text": "noodles", "n": 5, "tags": ["a", "b"]})
    store.put(("users", "ben"), "colour", {"text": "red", "n": 9})
    store.put(("docs", "v1"), "readme", {"text": "hello", "deep": {"a": 1}})
    answers.append(_plain(store.get(("users", "ann"), "colour")))
    answers.append(_plain(store.get(("users", "ann"), "nothing")))
    answers.append(_sorted(store.search(("users",))))
    answers.append(_sorted(store.search(("users", "ann"), filter={"n": 5})))
    operators = ({"$gt": 1}, {"$gte": 5}, {"$lt": 5}, {"$lte": 1}, {"$ne": 1}, {"$eq": 9})
    answers += [_sorted(store.search(("users",), filter={"n": operator})) for operator in operators]
    nested: tuple[dict[str, Any], ...] = (
        {"deep": {"a": {"$gt": 0}}},
        {"deep": {"a": 2}},
        {"deep": {}},
        {"text": "hello", "deep": {"a": 1}},
    )
    answers += [_sorted(store.search((), filter=one)) for one in (*nested, {"tags": ["a", "b"]}, {"tags": ["a"]})]
    answers.append(_plain(store.search(("users",), limit=1, offset=1)))
    answers.append(store.list_namespaces())
    answers.append(store.list_namespaces(prefix=("users",)))
    answers.append(store.list_namespaces(suffix=("*", "v1")))
    answers.append(store.list_namespaces(max_depth=1))
    store.put(("users", "ann"), "colour", {"text": "green"})
    answers.append(_plain(store.get(("users", "ann"), "colour")))
    store.delete(("users", "ann"), "colour")
    store.delete(("users", "ann"), "never")
    answers.append(_plain(store.get(("users", "ann"), "colour")))
    ops = [
        GetOp(("users", "ben"), "colour"),
        PutOp(("users", "ben"), "colour", {"text": "pink"}),
        PutOp(("users", "ben"), "colour", {"text": "grey"}),
        GetOp(("users", "ben"), "colour"),
        SearchOp(("docs",)),
        ListNamespacesOp((MatchCondition("prefix", ("docs",)),)),
    ]
    answers.append([_plain(one) for one in store.batch(ops)])
    answers.append(_plain(store.get(("users", "ben"), "colour")))
    answers.append([_plain(one) for one in asyncio.run(store.abatch([GetOp(("docs", "v1"), "readme")]))])
    return answers


def test_it_answers_as_the_store_in_memory(h: Herma) -> None:
    assert play(HermaStore(h)) == play(InMemoryStore())


@pytest.mark.parametrize(
    ("namespace", "key", "options"),
    [((), "k", {}), (("",), "k", {}), (("a.b",), "k", {}), (("langgraph",), "k", {}), (("a",), "k", {"ttl": 5})],
)
def test_it_refuses_what_the_store_in_memory_refuses(h: Herma, namespace: Any, key: str, options: Any) -> None:
    with pytest.raises(Exception) as theirs:
        InMemoryStore().put(namespace, key, {"a": 1}, **options)
    with pytest.raises(type(theirs.value)):
        HermaStore(h).put(namespace, key, {"a": 1}, **options)


def test_another_program_sees_it_and_words_find_it(h: Herma, tmp_path: Path) -> None:
    store = HermaStore(h)
    for number in range(20):
        store.put(("notes",), f"n{number}", {"text": f"note about topic number {number}"})
    store.put(("notes",), "port", {"text": "the staging database listens on 5433", "owner": "ann"})
    store.put(("notes",), "gone", {"text": "the staging database is slow"})
    store.delete(("notes",), "gone")
    with Herma.open(tmp_path / "home") as other:
        there = HermaStore(other)
        found = there.search(("notes",), query="staging database", limit=3)
        assert next(one.key for one in found) == "port"
        assert "gone" not in [one.key for one in found]
        assert found[0].score is not None
        assert there.search(("notes",), query="staging database", filter={"owner": "ben"}) == []
        there.put(("notes",), "port", {"text": "it moved to 5434"})
        assert "port" not in [one.key for one in there.search(("notes",), query="staging database listens")]
    assert store.get(("notes",), "port").value == {"text": "it moved to 5434"}  # type: ignore[union-attr]


def test_stores_of_two_users_are_apart(h: Herma) -> None:
    HermaStore(h, user="ann").put(("a",), "k", {"text": "secret of ann"})
    assert HermaStore(h, user="ben").search(()) == []
    assert HermaStore(h, user="ben").search((), query="secret") == []
