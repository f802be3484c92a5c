"""What every store of transcripts must keep, as one suite: subclass `TranscriptStoreContract`, give it `stores`.

class TestMyStore(TranscriptStoreContract):
    @pytest.fixture
    def stores(self, tmp_path):
        yield TranscriptStores(sessions, queries, messages, feed, reopen=…)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from herma.errors import StoreChanged
from herma.ports import ChangeFeed, MessageRows, SessionQueries, SessionRows
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
    told="abc",
    tokens=7,
    finish_reason="stop",
    extra={"unknown": [1, None, {"x": "y"}], "content": None},
)


@dataclass(frozen=True, slots=True)
class TranscriptStores:
    """One store behind its ports. `reopen` is another view of the same, as another process has it."""

    sessions: SessionRows
    queries: SessionQueries
    messages: MessageRows
    feed: ChangeFeed
    reopen: Callable[[], TranscriptStores]


def session(session_id: str, started: float = 1.0, **fields: Any) -> SessionInfo:
    return SessionInfo(session_id, "cli", fields.pop("scope", Scope()), started, "", **fields)


def say(stores: TranscriptStores, session_id: str, *texts: str, role: str = "user", at: float = 10.0) -> Sequence[int]:
    return stores.messages.append(session_id, [Message(role, text, timestamp=at) for text in texts], preview="p")


def begin(stores: TranscriptStores, *session_ids: str, **fields: Any) -> None:
    stores.sessions.add([session(session_id, **fields) for session_id in session_ids], {})


def contents(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


class TranscriptStoreContract:
    """The ports' promises, one test each."""

    @pytest.fixture
    def stores(self) -> TranscriptStores:
        raise NotImplementedError("give the contract a store to prove")

    # ── sessions ──

    def test_an_empty_store_answers(self, stores: TranscriptStores) -> None:
        assert stores.sessions.get(["a"]) == {}
        assert list(stores.queries.recent(SessionFilter(), 5, 0)) == []
        assert list(stores.messages.of_session("a", hidden=True)) == []
        assert list(stores.messages.around(1, 2)) == []
        assert stores.messages.stats().messages == stores.feed.message_count() == 0
        assert stores.feed.position().seq == 0
        assert list(stores.feed.since(0, 5)) == []
        assert list(stores.feed.searchable([1])) == []

    def test_a_session_is_kept_as_it_is(self, stores: TranscriptStores) -> None:
        whole = session(
            "a",
            scope=Scope("p", "project", "u", "c"),
            title="Name",
            model="m",
            parent="gone",
            reason="resume",
            ended=5.0,
            end_reason="done",
            archived=True,
            usage=Usage(1, 2, 3, 4, 5, 0.5),
        )
        (kept,) = stores.sessions.add([whole], {"a": "You are.\0"})
        expected = replace(whole, conversation="a", last_active=1.0)
        assert replace(kept, last_active=1.0) == expected
        view = stores.reopen()
        assert view.sessions.get(["a", "b"]) == {"a": expected}
        assert view.sessions.system_prompt("a") == "You are.\0"
        assert view.sessions.system_prompt("b") is None

    def test_conversations_follow_continuations_only(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        for session_id, parent, reason in (("b", "a", "resume"), ("c", "b", "compression"), ("d", "c", "branch")):
            begin(stores, session_id, parent=parent, reason=reason)
        begin(stores, "e", parent="d", reason="delegation")
        begin(stores, "f", parent="nowhere", reason="resume")
        begin(stores, "g", parent="g", reason="resume")
        found = stores.sessions.get(list("abcdefg"))
        assert {one.id: one.conversation for one in found.values()} == dict(zip("abcdefg", "aaadefg", strict=True))
        assert sorted(one.id for one in stores.queries.of_conversations(["a", "d"])) == list("abcd")
        assert sorted(one.id for one in stores.queries.children(["c", "d"])) == ["d", "e"]

    def test_ids_and_titles_are_unique_and_all_or_nothing(self, stores: TranscriptStores) -> None:
        begin(stores, "a", title="Name")
        for taken in (session("a"), session("c", title="Name")):
            with pytest.raises(StoreChanged):
                stores.sessions.add([session("b"), taken], {})
        assert stores.sessions.get(["b", "c"]) == {}
        begin(stores, "u", title="Name", scope=Scope(user="somebody"))

    def test_a_title_moves_within_its_conversation_only(self, stores: TranscriptStores) -> None:
        begin(stores, "a", title="Name")
        begin(stores, "b", parent="a", reason="resume")
        begin(stores, "c")
        with pytest.raises(StoreChanged):
            stores.sessions.update(["c"], {"title": "Name"})
        assert stores.sessions.update(["b"], {"title": "Name"}) == 1
        found = stores.sessions.get(["a", "b"])
        assert (found["a"].title, found["b"].title) == (None, "Name")

    def test_titles_are_found_with_their_numbers(self, stores: TranscriptStores) -> None:
        for number, title in enumerate(("Name", "Name #2", "Name #10", "Names", "name", "Name & Co")):
            begin(stores, str(number), title=title)
        begin(stores, "x", title="Name", scope=Scope(user="somebody"))
        found = stores.queries.titles("Name", Scope())
        assert sorted(found) == [("Name", "0"), ("Name #10", "2"), ("Name #2", "1")]

    def test_the_first_end_stands(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        assert stores.sessions.end("a", 5.0, "done")
        assert not stores.sessions.end("a", 6.0, "again")
        assert not stores.sessions.end("b", 6.0, "unknown")
        assert stores.sessions.get(["a"])["a"].end_reason == "done"

    def test_usage_adds_up(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        for _ in range(2):
            assert stores.sessions.spend("a", Usage(1, 2, 3, 4, 5, 0.25))
        assert stores.sessions.get(["a"])["a"].usage == Usage(2, 4, 6, 8, 10, 0.5)
        assert not stores.sessions.spend("b", Usage())

    def test_ids_are_found_by_their_beginning(self, stores: TranscriptStores) -> None:
        begin(stores, "2026_a", "2026_b", "2027", "20%6", "日本")
        assert sorted(stores.queries.with_prefix("2026", 9)) == ["2026_a", "2026_b"]
        assert list(stores.queries.with_prefix("20%", 9)) == ["20%6"]
        assert list(stores.queries.with_prefix("日", 9)) == ["日本"]
        assert len(stores.queries.with_prefix("2", 2)) == 2
        assert list(stores.queries.with_prefix("2", 9, "somebody")) == []

    def test_filters_choose(self, stores: TranscriptStores) -> None:
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
            assert "".join(sorted(one.id for one in stores.queries.matching(which))) == expected, which
            assert "".join(sorted(stores.queries.recent(which, 9, 0))) == expected, which
        also = [
            SessionFilter(model="big"),
            SessionFilter(min_tokens=100),
            SessionFilter(min_messages=2),
            SessionFilter(project="app/"),
            SessionFilter(search="A", exclude_sources=("x",), started_before=1.0, user="", project="/w/app"),
        ]
        assert [[one.id for one in stores.queries.matching(which)] for which in also] == [["a"]] * 5
        for which in (SessionFilter(provider="p", chat_type="group"), SessionFilter(folder="/w/", branch="y")):
            assert [one.id for one in stores.queries.matching(which)] == ["d"]
        assert [one.id for one in stores.queries.matching(SessionFilter(started_after=50.0))] == ["b"]
        assert [one.id for one in stores.queries.matching(SessionFilter(end_reason="done"))] == ["c"]

    def test_what_stands_for_others_hides_them_in_the_same_step(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        first, second, third = say(stores, "a", "one", "two", "three")
        summary = [Message("user", "short", timestamp=20.0)]
        (fourth,) = stores.messages.append("a", summary, compacts=second)
        assert [one.id for one in stores.messages.of_session("a", hidden=False)] == [third, fourth]
        assert [one.hidden for one in stores.messages.of_session("a", hidden=True)] == [
            "compacted",
            "compacted",
            "",
            "",
        ]
        assert stores.sessions.get(["a"])["a"].message_count == 2
        with pytest.raises(KeyError):
            stores.messages.append("nowhere", summary, compacts=first)

    def test_conversations_come_by_their_newest_session(self, stores: TranscriptStores) -> None:
        begin(stores, "a", "b", "c")
        begin(stores, "a2", parent="a", reason="resume")
        say(stores, "b", "x", at=30.0)
        say(stores, "c", "x", at=20.0)
        say(stores, "a", "x", at=10.0)
        say(stores, "a2", "x", at=40.0)
        assert list(stores.queries.recent(SessionFilter(), 2, 0)) == ["a", "b"]
        assert list(stores.queries.recent(SessionFilter(), 9, 1)) == ["b", "c"]

    # ── messages ──

    def test_a_message_is_kept_exactly(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        (message_id,) = stores.messages.append("a", [EVERYTHING])
        expected = replace(EVERYTHING, id=message_id, session_id="a")
        view = stores.reopen()
        assert list(view.messages.of_session("a", hidden=False)) == [expected]
        assert view.messages.by_ids([message_id, 999]) == {message_id: expected}

    @pytest.mark.parametrize(
        "text",
        ["", "\0", "a\0b", "x" * 20_000, "word " * 20_000, BASE64, f"see {BASE64} and {BASE64}= end", '["a", 1]'],
    )
    def test_any_text_comes_back(self, stores: TranscriptStores, text: str) -> None:
        begin(stores, "a")
        contents: list[Content] = [text, [{"type": "text", "text": text}]]
        for content in contents:
            stores.messages.append("a", [Message("tool", content, timestamp=1.0, reasoning=text, extra={"x": text})])
        for message, content in zip(stores.messages.of_session("a", hidden=False), contents, strict=True):
            assert (message.content, message.reasoning, message.extra) == (content, text, {"x": text})

    def test_large_values_are_stored_once(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        say(stores, "a", *[f"{number} {BASE64}" for number in range(5)], *["word " * 10_000] * 5)
        stats = stores.messages.stats()
        assert stats.payloads == 2
        assert stats.payload_bytes < stats.payload_text_bytes < 2 * 60_000

    def test_ids_increase_and_batches_are_whole(self, stores: TranscriptStores) -> None:
        begin(stores, "a", "b")
        ids = [*say(stores, "a", "1", "2"), *say(stores, "b", "3"), *say(stores, "a", "4")]
        assert ids == sorted(set(ids))
        assert contents(stores.messages.of_session("a", hidden=False)) == ["1", "2", "4"]
        assert contents(stores.messages.of_session("a", hidden=False, after=ids[0], limit=1)) == ["2"]
        with pytest.raises(KeyError):
            say(stores, "nowhere", "x")
        assert list(stores.messages.append("a", [])) == []

    def test_a_session_is_kept_up_to_date_by_its_messages(self, stores: TranscriptStores) -> None:
        begin(stores, "a", started=100.0)
        say(stores, "a", "x", at=50.0)
        first = stores.sessions.get(["a"])["a"]
        assert (first.started, first.last_active, first.preview, first.message_count) == (50.0, 50.0, "p", 1)
        stores.messages.append("a", [replace(EVERYTHING, timestamp=70.0)], preview="other")
        say(stores, "a", "x", at=60.0)
        then = stores.sessions.get(["a"])["a"]
        assert (then.started, then.last_active, then.preview) == (50.0, 70.0, "p")
        assert (then.message_count, then.tool_call_count) == (3, 1)

    def test_hidden_messages_are_there_when_asked_for(self, stores: TranscriptStores) -> None:
        begin(stores, "a", "b")
        ids = say(stores, "a", *"123456")
        other = say(stores, "b", "x")
        assert stores.messages.hide("a", ids[1], ids[2], "", "compacted") == 2
        assert stores.messages.hide("a", ids[2], 2**62, "", "rewound") == 3
        assert contents(stores.messages.of_session("a", hidden=False)) == ["1"]
        assert [one.hidden for one in stores.messages.of_session("a", hidden=True)] == [
            *("", "compacted", "compacted"),
            *("rewound", "rewound", "rewound"),
        ]
        assert stores.sessions.get(["a"])["a"].message_count == 1
        assert contents(stores.messages.of_session("b", hidden=False)) == ["x"]
        assert contents(stores.messages.around(ids[0], 9)) == ["1", "2", "3"]
        assert list(stores.messages.around(ids[4], 9)) == []
        assert contents(stores.messages.around(other[0], 9)) == ["x"]
        assert stores.messages.hide("a", 0, 2**62, "rewound", "") == 3
        assert contents(stores.messages.around(ids[4], 1)) == ["4", "5", "6"]
        with pytest.raises(KeyError):
            stores.messages.hide("nowhere", 0, 9, "", "rewound")

    def test_edges_are_outside_and_never_twice(self, stores: TranscriptStores) -> None:
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

    # ── deleting ──

    def test_a_deleted_session_is_nowhere_until_it_comes_back(self, stores: TranscriptStores) -> None:
        begin(stores, "a", "b", title=None)
        (message_id,) = say(stores, "a", "x")
        stores.sessions.update(["a"], {"deleted": 7.0, "title": "Name"})
        begin(stores, "c", title="Name")
        assert stores.sessions.get(["a"]) == {}
        assert stores.sessions.get(["a"], deleted=True)["a"].deleted == 7.0
        assert [one.id for one in stores.queries.deleted(8.0)] == ["a"]
        assert list(stores.queries.deleted(7.0)) == []
        assert "a" not in stores.queries.recent(SessionFilter(), 9, 0)
        assert [one.id for one in stores.queries.matching(SessionFilter())] == ["b", "c"]
        assert list(stores.queries.with_prefix("a", 9)) == []
        assert list(stores.queries.of_conversations(["a"])) == []
        assert list(stores.messages.of_session("a", hidden=True)) == list(stores.messages.around(message_id, 1)) == []
        assert stores.messages.by_ids([message_id]) == {}
        assert stores.messages.stats().messages == 0
        for call in (lambda: say(stores, "a", "y"), lambda: stores.messages.hide("a", 0, 9, "", "rewound")):
            with pytest.raises(KeyError):
                call()
        with pytest.raises(StoreChanged):
            stores.sessions.update(["a"], {"deleted": None})
        stores.sessions.update(["a"], {"deleted": None, "title": None})
        assert contents(stores.messages.of_session("a", hidden=False)) == ["x"]

    def test_staged_messages_show_when_their_session_does(self, stores: TranscriptStores) -> None:
        begin(stores, "a", deleted=5.0)
        stores.messages.append("a", [Message("user", "x", timestamp=1.0)], staged=True)
        assert list(stores.messages.of_session("a", hidden=True)) == []
        stores.sessions.update(["a"], {"deleted": None})
        assert contents(stores.messages.of_session("a", hidden=False)) == ["x"]

    def test_a_purge_is_for_good_and_told(self, stores: TranscriptStores) -> None:
        stores.sessions.add([session("a"), session("b")], {"a": "prompt", "b": "prompt"})
        gone = [*say(stores, "a", "1", f"2 {BASE64}"), *say(stores, "a", "3")]
        kept = say(stores, "b", f"4 {BASE64}")
        gone += say(stores, "a", "word " * 9999)
        assert stores.sessions.purge("a") == 0  # it is not deleted
        stores.sessions.update(["a"], {"deleted": 5.0})
        before = stores.feed.position().seq
        assert stores.sessions.purge("a") == 4
        told = [change for change in stores.feed.since(before, 99) if change.kind == "purge"]
        assert [message_id for change in told for message_id in change.message_ids] == gone
        assert stores.sessions.get(["a"], deleted=True) == {}
        assert stores.sessions.system_prompt("b") == "prompt"
        assert contents(stores.messages.of_session("b", hidden=False)) == [f"4 {BASE64}"]
        assert stores.messages.stats().payloads == 2
        assert [one.id for one in stores.feed.searchable([*gone, *kept])] == list(kept)
        assert stores.feed.message_count() == 1
        begin(stores, "a")
        assert say(stores, "a", "new")[0] > max(gone)

    # ── the feed ──

    def test_the_feed_tells_every_append_once(self, stores: TranscriptStores) -> None:
        begin(stores, "a", "b")
        ids = [*say(stores, "a", "1", "2"), *say(stores, "b", "3"), *say(stores, "a", "4")]
        end = stores.reopen().feed.position()
        assert (end.seq > 0, bool(end.store_id), bool(end.epoch)) == (True, True, True)
        seen: list[int] = []
        at = 0
        while changes := stores.feed.since(at, 2):
            seen += [message_id for change in changes for message_id in change.message_ids]
            at = changes[-1].seq
        assert (seen, at) == (ids, end.seq)
        assert stores.feed.message_count() == len(ids)

    def test_searchable_text_sees_through_payloads_and_leaves_out_noise(self, stores: TranscriptStores) -> None:
        begin(stores, "a")
        text = "needle " + "word " * 9999 + BASE64
        ids = [*stores.messages.append("a", [EVERYTHING]), *say(stores, "a", text)]
        first, second = stores.feed.searchable(ids)
        assert (first.id, first.session_id, first.role, first.timestamp) == (ids[0], "a", "assistant", 12.5)
        assert first.text.split() == ["sëe", "日本", "🙂", "tool", "f", "a", "1.0"]
        assert second.text.startswith("needle word")
        assert BASE64[:50] not in second.text

    def test_stats_count(self, stores: TranscriptStores) -> None:
        stores.sessions.add([session("a", usage=Usage(1, cost_usd=0.5)), session("b", archived=True)], {})
        begin(stores, "c", parent="a", reason="resume")
        ids = say(stores, "a", "1", "2", at=20.0)
        stores.messages.hide("a", ids[1], ids[1], "", "rewound")
        stats = stores.messages.stats()
        assert (stats.sessions, stats.conversations, stats.messages, stats.hidden_messages) == (3, 2, 1, 1)
        assert (stats.archived_sessions, stats.deleted_sessions, stats.sources) == (1, 0, {"cli": (3, 1)})
        assert (stats.usage, stats.first, stats.last) == (Usage(1, cost_usd=0.5), 1.0, 20.0)
