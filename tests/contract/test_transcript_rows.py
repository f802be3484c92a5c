"""What the rows of transcripts must keep on every engine."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.homes import of_files

from herma import Herma
from herma.transcript.rows import ChangeFeed, MessageRows, SessionRows
from herma.types import Content, Message, Scope, SessionFilter, SessionInfo, Usage

BASE64 = "iVBORw0KGgo" * 400
EVERYTHING = Message(
    role="assistant",
    content=[
        {"type": "text", "text": "sëe 日本 🙂"},
        {"type": "image_url", "image_url": {"url": f"data:;base64,{BASE64}"}},
    ],
    timestamp=12.5,
    tool_calls=({"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{ "a":\t1.0 }'}},),
    tool_call_id="c0",
    tool_name="tool",
    reasoning="because\0of NUL",
    sent=[{"type": "text", "text": "with memory"}],
    memory_version="abc",
    tokens=7,
    finish_reason="stop",
    extra={"unknown": [1, None, {"x": "y"}], "content": None},
)


class TranscriptStores(NamedTuple):
    sessions: SessionRows
    messages: MessageRows
    feed: ChangeFeed


def session(session_id: str, started: float = 1.0, **fields: Any) -> SessionInfo:
    return SessionInfo(session_id, "cli", fields.pop("scope", Scope()), started, "", **fields)


def say(stores: TranscriptStores, session_id: str, *texts: str, role: str = "user", at: float = 10.0) -> Sequence[int]:
    return stores.messages.append(session_id, [Message(role, text, timestamp=at) for text in texts], preview="p")


def begin(stores: TranscriptStores, *session_ids: str, **fields: Any) -> None:
    stores.sessions.add([session(session_id, **fields) for session_id in session_ids], {})


def contents(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


@pytest.fixture
def stores(h: Herma) -> TranscriptStores:
    return TranscriptStores(SessionRows(h.db), MessageRows(h.db), ChangeFeed(h.db))


def test_filters_choose(stores: TranscriptStores) -> None:
    begin(stores, "a", scope=Scope(project="/w/app"), title="Fix the LOGIN", model="Big-1", usage=Usage(input=100))
    begin(stores, "b", scope=Scope(project="/w/app/sub"), archived=True, started=50.0)
    begin(stores, "c", scope=Scope(project="/w/apple", user="u"), ended=3.0, end_reason="done")
    begin(stores, "d", parent="c", reason="delegation", provider="p", chat_type="group", folder="/w", branch="x/Y")
    say(stores, "a", "x", "y")
    placed = stores.sessions.get(["d"])["d"]
    assert (placed.provider, placed.chat_type, placed.folder, placed.branch) == ("p", "group", "/w", "x/Y")
    chosen: dict[str, SessionFilter] = {
        "ab": SessionFilter(project="/w/app/"),
        "acd": SessionFilter(archived=False),
        "b": SessionFilter(archived=True),
        "c": SessionFilter(user="u"),
        "a": SessionFilter(search="login"),
        "d": SessionFilter(delegated=True),
        "abc": SessionFilter(delegated=False),
        "": SessionFilter(source="x"),
        "bcd": SessionFilter(max_messages=1),
    }
    for expected, which in chosen.items():
        assert "".join(sorted(one.id for one in stores.sessions.matching(which))) == expected, which
        assert "".join(sorted(stores.sessions.recent(which, 9, 0))) == expected, which
    also = [
        SessionFilter(model="big"),
        SessionFilter(min_tokens=100),
        SessionFilter(min_messages=2),
        SessionFilter(project="app/"),
        SessionFilter(search="A", exclude_sources=("x",), started_before=1.0, user="", project="/w/app"),
    ]
    assert [[one.id for one in stores.sessions.matching(which)] for which in also] == [["a"]] * 5
    for which in (SessionFilter(provider="p", chat_type="group"), SessionFilter(folder="/w/", branch="y")):
        assert [one.id for one in stores.sessions.matching(which)] == ["d"]
    assert [one.id for one in stores.sessions.matching(SessionFilter(started_after=50.0))] == ["b"]
    assert [one.id for one in stores.sessions.matching(SessionFilter(end_reason="done"))] == ["c"]


def test_a_message_is_kept_exactly(stores: TranscriptStores) -> None:
    begin(stores, "a")
    (message_id,) = stores.messages.append("a", [EVERYTHING])
    expected = replace(EVERYTHING, id=message_id, session_id="a")
    assert list(stores.messages.of_session("a", hidden=False)) == [expected]
    assert stores.messages.by_ids([message_id, 999]) == {message_id: expected}


@pytest.mark.parametrize(
    "text",
    ["", "\0", "a\0b", "x" * 20_000, "word " * 20_000, BASE64, f"see {BASE64} and {BASE64}= end", '["a", 1]'],
)
def test_any_text_comes_back(stores: TranscriptStores, text: str) -> None:
    begin(stores, "a")
    contents: list[Content] = [text, [{"type": "text", "text": text}]]
    for content in contents:
        stores.messages.append("a", [Message("tool", content, timestamp=1.0, reasoning=text, extra={"x": text})])
    for message, content in zip(stores.messages.of_session("a", hidden=False), contents, strict=True):
        assert (message.content, message.reasoning, message.extra) == (content, text, {"x": text})


def test_large_values_are_stored_once(stores: TranscriptStores) -> None:
    begin(stores, "a")
    say(stores, "a", *[f"{number} {BASE64}" for number in range(5)], *["word " * 10_000] * 5)
    stats = stores.messages.stats()
    assert stats.payloads == 2
    assert stats.payload_bytes < stats.payload_text_bytes < 2 * 60_000


def test_edges_are_outside_and_never_twice(stores: TranscriptStores) -> None:
    begin(stores, "a")
    ids = say(stores, "a", *"1234", "", *"56")
    say(stores, "a", "t", role="tool")
    edges = stores.messages.edges

    def texts(count: int, outside: tuple[int, int] | None) -> list[list[Any]]:
        return [contents(end) for end in edges("a", count, outside, ("user",))]

    assert texts(2, None) == [["1", "2"], ["5", "6"]]
    assert texts(9, None) == [["1", "2", "3", "4", "5", "6"], []]
    assert texts(4, None) == [["1", "2", "3", "4"], ["5", "6"]]
    assert texts(2, (ids[1], ids[3])) == [["1"], ["5", "6"]]
    assert texts(0, None) == [[], []]


def test_searchable_text_sees_through_payloads_and_leaves_out_noise(stores: TranscriptStores) -> None:
    begin(stores, "a")
    text = "needle " + "word " * 9999 + BASE64
    ids = [*stores.messages.append("a", [EVERYTHING]), *say(stores, "a", text)]
    first, second = stores.feed.searchable(ids)
    assert (first.id, first.session_id, first.role, first.timestamp) == (ids[0], "a", "assistant", 12.5)
    assert first.text.split() == ["sëe", "日本", "🙂", "tool", "f", "a", "1.0"]
    assert second.text.startswith("needle word")
    assert BASE64[:50] not in second.text


def test_stats_count(stores: TranscriptStores) -> None:
    stores.sessions.add([session("a", usage=Usage(1, cost_usd=0.5)), session("b", archived=True)], {})
    begin(stores, "c", parent="a", reason="resume")
    ids = say(stores, "a", "1", "2", at=20.0)
    stores.messages.hide("a", ids[1], ids[1], "", "rewound")
    stats = stores.messages.stats()
    assert (stats.sessions, stats.conversations, stats.messages, stats.hidden_messages) == (3, 2, 1, 1)
    assert (stats.archived_sessions, stats.deleted_sessions, stats.sources) == (1, 0, {"cli": (3, 1)})
    assert (stats.usage, stats.first, stats.last) == (Usage(1, cost_usd=0.5), 1.0, 20.0)


@of_files
def test_large_sessions_are_purged_in_slices_and_nothing_is_left(
    stores: TranscriptStores, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herma.transcript.rows.PURGE_SLICE", 7)
    begin(stores, "a", "b")
    gone: list[int] = []
    for number in range(10):
        gone += say(stores, "a", "plain words", f"{number} {BASE64}", "word " * 9999)
        say(stores, "b", str(number))
    stores.sessions.update(["a", "b"], {"deleted": 1.0})
    assert stores.sessions.purge("a") == 30
    told = [change for change in stores.feed.since(0, 999) if change.kind == "purge"]
    assert [message_id for change in told for message_id in change.message_ids] == gone
    stores.sessions.purge("b")
    begin(stores, "a")
    say(stores, "a", "plain words")
    with closing(sqlite3.connect(home / "herma.db")) as database:  # any SQLite reads the words
        sql = "SELECT s.id, m.role, m.content FROM messages m JOIN sessions s ON s.key = m.session"
        assert database.execute(sql).fetchall() == [("a", "user", "plain words")]
        for table in ("payloads", "payload_uses"):
            assert database.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
