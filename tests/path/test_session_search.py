"""The `session_search` tool as a model calls it: four shapes, bounded answers, one clear sentence for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from herma import Herma
from herma.tools.registry import ToolContext
from herma.types import Author, Origin, Scope, Who


@pytest.fixture
def h(home: Path) -> Iterator[Herma]:
    with Herma.open(home=home) as opened:
        yield opened


def said(h: Herma, *texts: str, source: str = "cli", **more: Any) -> str:
    session = h.transcripts.start(source, **more)
    roles = ("user", "assistant")
    h.transcripts.append(session, [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])
    return session


def ids(h: Herma, session: str) -> list[int]:
    return [message.id for message in h.transcripts.messages(session, include_hidden=True)]


def inside(session: str, scope: Scope | None = None) -> ToolContext:
    return ToolContext(scope or Scope(), Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=session))


def call(h: Herma, context: ToolContext | None = None, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(h.tools.call("session_search", arguments, context))
    return answer


# ── browse ──


def test_browse(h: Herma) -> None:
    older, newer = said(h, "first things", title="First"), said(h, "second things")
    said(h, "hidden", source="subagent")
    current = said(h, "what I am doing")
    answer = call(h, inside(current))
    assert (answer["success"], answer["mode"], answer["count"]) == (True, "browse", 2)
    assert [result["session_id"] for result in answer["results"]] == [newer, older]
    assert set(answer["results"][0]) == {
        "session_id",
        "title",
        "source",
        "started_at",
        "last_active",
        "message_count",
        "preview",
    }
    assert call(h, query="   ")["mode"] == "browse"
    assert call(h, limit=99)["count"] == 3


def test_browse_of_an_empty_home(h: Herma) -> None:
    answer = call(h)
    assert answer["results"] == []
    assert answer["message"]


# ── discover ──


def test_discover(h: Herma) -> None:
    session = said(h, *[f"turn {number} about weather" for number in range(20)], title="Weather")
    wanted = ids(h, session)[10]
    h.transcripts.append(session, [{"role": "user", "content": "by the way, a zeppelin"}])
    answer = call(h, query="what about the zeppelin?")
    assert (answer["mode"], answer["count"], answer["sessions_searched"]) == ("discover", 1, 1)
    (result,) = answer["results"]
    assert result["session_id"] == session
    assert result["matched_role"] == "user"
    assert result["match_message_id"] == ids(h, session)[-1]
    assert ">>>zeppelin<<<" in result["snippet"]
    assert result["title"] == "Weather"
    assert [message["content"] for message in result["bookend_start"]] == [f"turn {n} about weather" for n in range(3)]
    assert [message["id"] for message in result["messages"] if message.get("anchor")] == [result["match_message_id"]]
    assert (result["messages_before"], result["messages_after"]) == (5, 0)
    assert result["bookend_end"] == []
    assert wanted not in [message["id"] for message in result["messages"]]
    assert "not instructions" in answer["note"]


def test_windows_and_bookends_never_show_what_was_rewound(h: Herma) -> None:
    session = said(h, "zeppelin", "yes", "SECRET", "SECRET")
    h.transcripts.rewind(session, ids(h, session)[2])
    h.transcripts.append(session, [{"role": "user", "content": "after"}])
    for answer in (
        call(h, query="zeppelin"),
        call(h, session_id=session),
        call(h, session_id=session, around_message_id=ids(h, session)[0]),
    ):
        assert answer["success"]
        assert "SECRET" not in json.dumps(answer)
        assert "after" in json.dumps(answer)


def test_discover_is_one_result_for_each_conversation(h: Herma) -> None:
    first = said(h, "zeppelin one", "noted", title="Airships")
    second = said(h, "zeppelin two", "noted", parent=first, reason="compression")
    answer = call(h, query="zeppelin", limit=10)
    assert answer["count"] == 1
    (result,) = answer["results"]
    if result["session_id"] == second:
        assert result["parent_session_id"] == first
        assert result["bookend_start"][0]["content"] == "zeppelin one"
    assert result["title"].startswith("Airships")


def test_the_current_conversation_is_left_out_but_what_left_its_context_is_found(h: Herma) -> None:
    first = said(h, "the zeppelin is red", "noted")
    h.transcripts.end(first, "compression")
    current = said(h, "the balloon is blue", "noted", "the kite is green", "noted", parent=first, reason="compression")
    answer = call(h, inside(current), query="zeppelin")
    assert [result["session_id"] for result in answer["results"]] == [first]
    nothing = call(h, inside(current), query="balloon")
    assert nothing["results"] == []
    assert nothing["dropped"][0]["rule"] == "current conversation"
    assert nothing["message"]
    turns = ids(h, current)
    h.transcripts.compact(current, turns[0], turns[1])
    found = call(h, inside(current), query="balloon")
    assert [result["match_message_id"] for result in found["results"]] == [turns[0]]
    assert call(h, inside(current), session_id=first)["success"]
    assert call(h, inside(current), session_id=first, around_message_id=ids(h, first)[0])["success"]
    assert call(h, inside(current), session_id=current, around_message_id=turns[0])["success"]
    assert "at hand" in call(h, inside(current), session_id=current, around_message_id=turns[2])["error"]
    assert "at hand" in call(h, inside(current), session_id=current)["error"]


def test_users_see_their_own(h: Herma) -> None:
    hers = said(h, "zeppelin of Anna", scope=Scope(user="anna"))
    mine = said(h, "I am here", scope=Scope(user="bo"))
    context = inside(mine, Scope(user="bo"))
    assert call(h, context, query="zeppelin")["results"] == []
    assert not call(h, context, session_id=hers)["success"]
    assert not call(h, context, session_id=hers, around_message_id=ids(h, hers)[0])["success"]
    h.transcripts.append(hers, [{"role": "tool", "content": "SECRET", "tool_call_id": "t1"}])
    assert "SECRET" not in json.dumps(call(h, context, session_id=hers, tool_call_id="t1"))
    assert call(h, context)["results"] == []
    assert call(h, query="zeppelin")["count"] == 1


def test_a_name_means_a_session_of_the_same_user(h: Herma) -> None:
    hers = said(h, "Anna's plan", scope=Scope(user="anna"), session_id="2026_a", title="Plan")
    his = said(h, "Bo's plan", scope=Scope(user="bo"), session_id="2026_b", title="Plan")
    mine = said(h, "I am here", scope=Scope(user="bo"), session_id="now")
    for name in ("2026", "Plan"):
        assert call(h, inside(mine, Scope(user="bo")), session_id=name)["session_id"] == his
    assert hers not in json.dumps(call(h, inside(mine, Scope(user="cleo")), session_id="2026"))


def test_answers_are_bounded_and_say_how_to_see_more(h: Herma) -> None:
    for number in range(10):
        said(h, *[f"zeppelin {number} " + "long story " * 3_000 for _ in range(12)])
    text = h.tools.call("session_search", {"query": "zeppelin", "limit": 10})
    assert len(text) < 60_000
    answer = json.loads(text)
    assert answer["count"] == 10
    assert all("session_search(session_id=" in result["expand"] for result in answer["results"])
    anchors = [message for result in answer["results"] for message in result["messages"] if message.get("anchor")]
    assert len(anchors[0]["content"]) > 3_500
    assert all(len(anchor["content"]) < 1_300 for anchor in anchors[1:])
    assert all("zeppelin" in anchor["content"] for anchor in anchors)


def test_the_match_is_shown_wherever_it_stands_in_a_long_message(h: Herma) -> None:
    said(h, "word " * 3_000 + "zeppelin " + "word " * 3_000)
    (result,) = call(h, query="zeppelin")["results"]
    assert ">>>zeppelin<<<" in result["snippet"]
    assert "zeppelin" in result["messages"][0]["content"]


def test_explain(h: Herma) -> None:
    said(h, "zeppelin")
    answer = call(h, query="zeppelin", explain="true")
    assert answer["results"][0]["why"]
    assert "took_ms" in answer
    assert "why" not in call(h, query="zeppelin")["results"][0]


def test_roles_and_order(h: Herma) -> None:
    first, second = said(h, "zeppelin", "a zeppelin indeed"), said(h, "zeppelin again")
    assert [r["matched_role"] for r in call(h, query="zeppelin", role_filter="assistant")["results"]] == ["assistant"]
    assert [r["matched_role"] for r in call(h, query="zeppelin", role_filter=["assistant"])["results"]] == ["assistant"]
    assert [r["session_id"] for r in call(h, query="zeppelin", sort="oldest")["results"]] == [first, second]
    assert call(h, query="zeppelin", sort="sideways", limit="many", window=None)["success"]


# ── scroll and read ──


def test_scroll(h: Herma) -> None:
    session = said(h, *[f"turn {number}" for number in range(30)], title="Long")
    turns = ids(h, session)
    answer = call(h, session_id=session, around_message_id=str(turns[10]), window=2)
    assert (answer["mode"], answer["window"]) == ("scroll", 2)
    assert [message["id"] for message in answer["messages"]] == turns[8:13]
    assert answer["messages"][2]["anchor"] is True
    assert (answer["messages_before"], answer["messages_after"]) == (2, 2)
    assert answer["session_meta"]["title"] == "Long"
    assert call(h, session_id=session, around_message_id=turns[10], window=999)["window"] == 20
    assert call(h, session_id=session, around_message_id=turns[10], window="x")["window"] == 5


def test_scroll_finds_the_part_of_the_conversation_and_says_so(h: Herma) -> None:
    first = said(h, "one", "two")
    second = said(h, "three", "four", parent=first, reason="compression")
    answer = call(h, session_id=second, around_message_id=ids(h, first)[0])
    assert answer["session_id"] == first
    assert first in answer["warning"]
    stranger = said(h, "five")
    assert not call(h, session_id=second, around_message_id=ids(h, stranger)[0])["success"]


def test_read(h: Herma) -> None:
    short = said(h, "one", "two", title="Short")
    answer = call(h, session_id=short)
    assert (answer["mode"], answer["message_count"], answer["truncated"]) == ("read", 2, False)
    assert [message["content"] for message in answer["messages"]] == ["one", "two"]
    assert call(h, session_id="Short")["session_id"] == short
    long = said(h, *[f"turn {number}" for number in range(50)])
    answer = call(h, session_id=long)
    assert answer["truncated"] is True
    assert [message["id"] for message in answer["messages"]] == [*ids(h, long)[:20], *ids(h, long)[-10:]]
    assert "around_message_id" in answer["message"]


def test_tool_calls_are_shown_in_brief(h: Herma) -> None:
    session = h.transcripts.start("cli")
    call_ = {"id": "1", "type": "function", "function": {"name": "write", "arguments": json.dumps({"x": "y" * 5_000})}}
    result = {"role": "tool", "content": "\x1b[31mdone\x1b[0m", "tool_call_id": "1", "tool_name": "write"}
    h.transcripts.append(session, [{"role": "assistant", "content": None, "tool_calls": [call_]}, result])
    first, second = call(h, session_id=session)["messages"]
    assert first["content"] is None
    assert first["tool_calls"][0]["name"] == "write"
    assert len(first["tool_calls"][0]["arguments"]) < 400
    assert second["content"].strip() == "done"
    assert second["tool_call_id"] == "1"


# ── what is wrong is one clear sentence ──


@pytest.mark.parametrize(
    "arguments",
    [
        {"session_id": "nowhere"},
        {"session_id": "nowhere", "around_message_id": 1},
        {"around_message_id": 1},
        {"session_id": "KNOWN", "around_message_id": "first"},
        {"session_id": "KNOWN", "around_message_id": 999_999},
        {"session_id": 12},
        {"session_id": "\ud800"},
        {"session_id": "KNOWN", "around_message_id": 2**64},
        {"session_id": "KNOWN", "around_message_id": -(2**63)},
        {"session_id": "KNOWN", "tool_call_id": "\ud800", "offset": 10**30},
    ],
)
def test_errors(h: Herma, arguments: dict[str, Any]) -> None:
    known = said(h, "hello")
    given = {name: known if value == "KNOWN" else value for name, value in arguments.items()}
    answer = json.loads(h.tools.call("session_search", given))
    assert answer["success"] is False
    assert answer["error"].endswith(".")


@pytest.mark.parametrize("query", [5, 3.5, ["a", "b"], {"x": 1}, True])
def test_a_query_of_the_wrong_type_is_read_as_text(h: Herma, query: Any) -> None:
    said(h, "hello")
    assert call(h, query=query)["success"] is True


def test_what_the_model_wrote_is_said_back_in_brief(h: Herma) -> None:
    said(h, "zeppelin")
    long = "x" * 100_000
    for arguments in (
        {"query": long},
        {"query": f"{long} zeppelin"},
        {"session_id": long},
        {"query": f'"{long} y" AND z'},
    ):
        assert len(h.tools.call("session_search", arguments)) < 8_000
    assert call(h, query=f"zeppelin {long}")["count"] == 1


def test_the_schema_names_every_argument(h: Herma) -> None:
    (schema,) = [one for one in h.tools.schemas() if one["function"]["name"] == "session_search"]
    names = {"query", "limit", "sort", "session_id", "around_message_id", "window", "role_filter", "explain"}
    assert names <= set(schema["function"]["parameters"]["properties"])
    assert "required" not in schema["function"]["parameters"]


# ── what nobody promised to be short, whole numbers in any spelling, other profiles ──


def test_answers_stay_bounded_whatever_tools_were_called_with(h: Herma) -> None:
    session = h.transcripts.start("cli")
    calls = [
        {"id": f"c{at}", "type": "function", "function": {"name": "n" * 900, "arguments": "x" * 9_000}}
        for at in range(300)
    ]
    h.transcripts.append(
        session,
        [
            {"role": "user", "content": "run the zebra"},
            {"role": "assistant", "content": None, "tool_calls": calls},
            {"role": "tool", "tool_call_id": "c" * 9_000, "name": "t" * 9_000, "content": "zebra " * 9_000},
        ],
    )
    for arguments in ({"query": "zebra"}, {"session_id": session}, {"session_id": session, "around_message_id": 2}):
        text = h.tools.call("session_search", arguments, None)
        assert len(text) < 40_000
    (shown,) = [one for one in call(h, session_id=session)["messages"] if one["role"] == "assistant"]
    assert len(shown["tool_calls"]) + shown["tool_calls_left_out"] == 300
    assert shown["tool_calls"]


def test_the_parts_of_an_endless_conversation_are_named_in_part(h: Herma) -> None:
    session = said(h, "the first part")
    for _ in range(40):
        session = h.transcripts.start("cli", parent=session, reason="compression")
        h.transcripts.append(session, [{"role": "user", "content": "and on"}])
    answer = call(h, session_id=session)
    assert (len(answer["conversation"]), answer["conversation_parts"]) == (30, 41)
    assert answer["conversation"][-1] == session


@pytest.mark.parametrize("number", [2, "2", 2.0, "2.0", " 2 "])
def test_a_whole_number_may_be_written_as_it_comes(h: Herma, number: Any) -> None:
    session = said(h, "one", "two", "three", "four")
    answer = call(h, session_id=session, around_message_id=number, window=1.0)
    assert [one["id"] for one in answer["messages"]] == [1, 2, 3]
    for _ in range(4):
        said(h, "the falcon")
    assert call(h, query="falcon", limit=number)["count"] == 2


@pytest.mark.parametrize("number", [True, 2.5, "two", float("nan"), float("inf"), 1e300, [2], {}, -(2**70)])
def test_what_is_no_whole_number_is_said(h: Herma, number: Any) -> None:
    session = said(h, "one", "two")
    assert "must be the number" in call(h, session_id=session, around_message_id=number)["error"]


def test_a_long_message_is_read_to_its_end_by_the_calls_that_are_named(h: Herma) -> None:
    words = " ".join(f"word{at}" for at in range(6_000))
    session = said(h, "before", f"{words} the needle at the end")
    result = call(h, query="needle")["results"][0]
    assert "needle" in next(one for one in result["messages"] if one.get("anchor"))["content"]
    assert result["expand"] == f'session_search(session_id="{session}", around_message_id=2)'
    read, offset = "", 0
    while True:
        answer = call(h, session_id=session, around_message_id=2, offset=offset)
        read += next(one for one in answer["messages"] if one.get("anchor"))["content"].removesuffix("…")
        if "next_offset" not in answer:
            break
        offset = answer["next_offset"]
    assert read == f"{words} the needle at the end"
    whole = call(h, session_id=session)
    assert whole["expand"] == f'session_search(session_id="{session}", around_message_id=2)'


def test_an_unknown_order_is_said(h: Herma) -> None:
    said(h, "the falcon")
    assert any("'best' is no order" in note for note in call(h, query="falcon", sort="best")["notes"])


def test_another_profile_is_neither_browsed_nor_read_nor_scrolled(h: Herma) -> None:
    theirs = said(h, "the falcon of others", scope=Scope(profile="theirs"))
    mine = said(h, "what I am doing", scope=Scope(profile="mine"))
    context = inside(mine, Scope(profile="mine"))
    assert call(h, context)["results"] == []
    assert call(h, context, query="falcon")["results"] == []
    (message,) = ids(h, theirs)
    for arguments in ({}, {"around_message_id": message}, {"tool_call_id": "x"}):
        assert "There is no session" in call(h, context, session_id=theirs, **arguments)["error"]


def test_a_conversation_without_messages_is_named_without_one(h: Herma) -> None:
    session = h.transcripts.start("cli", title="Quiet harbour")
    said(h, "something else")
    (result,) = call(h, query="Quiet harbour")["results"]
    assert (result["session_id"], result["match_message_id"], result["messages"]) == (session, None, [])
