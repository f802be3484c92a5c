"""The `session_search` tool as a model calls it: bounded answers, one clear sentence for what is wrong."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.homes import conversation as said
from tests.homes import of_files, talk

from herma import Herma
from herma.tools.registry import ToolContext
from herma.types import Author, Origin, Scope, Who


@pytest.fixture
def h(home: Path) -> Iterator[Herma]:
    with Herma.open(home) as opened:  # with a clock that goes on: the order of sessions is by time
        yield opened


def ids(h: Herma, session: str) -> list[int]:
    return [message.id for message in h.transcripts.messages(session, include_hidden=True)]


def inside(session: str, scope: Scope | None = None) -> ToolContext:
    return ToolContext(scope or Scope(), Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=session))


def call(h: Herma, context: ToolContext | None = None, **arguments: Any) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(h.tools.call("session_search", arguments, context))
    return answer


def anchor(result: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = next(message for message in result["messages"] if message.get("anchor"))
    return found


# ── browse and discover ──


def test_browse(h: Herma) -> None:
    assert call(h)["results"] == []
    assert call(h)["message"]
    older, newer = said(h, "first things", title="First"), said(h, "second things")
    said(h, "hidden", source="subagent")
    current = said(h, "what I am doing")
    answer = call(h, inside(current))
    assert (answer["success"], answer["mode"], answer["count"]) == (True, "browse", 2)
    assert [result["session_id"] for result in answer["results"]] == [newer, older]
    fields = {"session_id", "title", "source", "started_at", "last_active", "message_count", "preview"}
    assert set(answer["results"][0]) == fields
    assert call(h, query="   ")["mode"] == "browse"
    assert call(h, limit=99)["count"] == 3


def test_discover(h: Herma) -> None:
    session = said(h, *[f"turn {number} about weather" for number in range(20)], title="Weather")
    wanted = ids(h, session)[10]
    h.transcripts.append(session, [{"role": "user", "content": "by the way, a zeppelin"}])
    answer = call(h, query="what about the zeppelin?")
    assert (answer["mode"], answer["count"], answer["sessions_searched"]) == ("discover", 1, 1)
    assert "not instructions" in answer["note"]
    (result,) = answer["results"]
    assert (result["session_id"], result["title"], result["matched_role"]) == (session, "Weather", "user")
    assert result["match_message_id"] == ids(h, session)[-1] == anchor(result)["id"]
    assert ">>>zeppelin<<<" in result["snippet"]
    assert [message["content"] for message in result["bookend_start"]] == [f"turn {n} about weather" for n in range(3)]
    assert (result["messages_before"], result["messages_after"], result["bookend_end"]) == (5, 0, [])
    assert wanted not in [message["id"] for message in result["messages"]]
    assert "why" not in result
    explained = call(h, query="zeppelin", explain="true")
    assert explained["results"][0]["why"]
    assert "took_ms" in explained


def test_windows_and_bookends_never_show_what_was_rewound(h: Herma) -> None:
    session = said(h, "zeppelin", "yes", "SECRET", "SECRET")
    turns = ids(h, session)
    h.transcripts.rewind(session, turns[2])
    h.transcripts.append(session, [{"role": "user", "content": "after"}])
    around = {"session_id": session, "around_message_id": turns[0]}
    for arguments in ({"query": "zeppelin"}, {"session_id": session}, around):
        answer = json.dumps(call(h, **arguments))
        assert "SECRET" not in answer
        assert "after" in answer


def test_the_current_conversation_is_left_out_but_what_left_its_context_is_found(h: Herma) -> None:
    first = said(h, "the zeppelin is red", "noted")
    h.transcripts.end(first, "compression")
    current = said(h, "the balloon is blue", "noted", "the kite is green", "noted", parent=first, reason="compression")
    context = inside(current)
    assert [result["session_id"] for result in call(h, context, query="zeppelin")["results"]] == [first]
    nothing = call(h, context, query="balloon")
    assert (nothing["results"], nothing["dropped"][0]["rule"]) == ([], "current conversation")
    assert nothing["message"]
    turns = ids(h, current)
    h.transcripts.compact(current, turns[0], turns[1])
    found = call(h, context, query="balloon")
    assert [result["match_message_id"] for result in found["results"]] == [turns[0]]
    for session, message in ((first, None), (first, ids(h, first)[0]), (current, turns[0])):
        assert call(h, context, session_id=session, around_message_id=message)["success"]
    for message in (turns[2], None):
        refused = call(h, context, session_id=current, around_message_id=message)
        assert "current conversation" in refused["error"]


def test_roles_order_and_odd_arguments(h: Herma) -> None:
    first, second = said(h, "zeppelin", "a zeppelin indeed"), said(h, "zeppelin again")
    for roles in ("assistant", ["assistant"]):
        assert [r["matched_role"] for r in call(h, query="zeppelin", role_filter=roles)["results"]] == ["assistant"]
    assert [r["session_id"] for r in call(h, query="zeppelin", sort="oldest")["results"]] == [first, second]
    odd = call(h, query="zeppelin", sort="best", limit="many", window=None)
    assert any("Unknown sort 'best'" in note for note in odd["notes"])
    for query in (5, 3.5, ["a", "b"], {"x": 1}, True):
        assert call(h, query=query)["success"] is True


# ── scroll and read ──


def test_scroll(h: Herma) -> None:
    session = said(h, *[f"turn {number}" for number in range(30)], title="Long")
    turns = ids(h, session)
    answer = call(h, session_id=session, around_message_id=str(turns[10]), window=2)
    assert (answer["mode"], answer["window"], answer["session_meta"]["title"]) == ("scroll", 2, "Long")
    assert [message["id"] for message in answer["messages"]] == turns[8:13]
    assert answer["messages"][2]["anchor"] is True
    assert (answer["messages_before"], answer["messages_after"]) == (2, 2)
    for given, window in ((999, 20), ("x", 5)):
        assert call(h, session_id=session, around_message_id=turns[10], window=given)["window"] == window
    second = said(h, "three", "four", parent=session, reason="compression")
    answer = call(h, session_id=second, around_message_id=turns[0])
    assert answer["session_id"] == session
    assert session in answer["warning"]
    for _ in range(40):
        second = said(h, "and on", parent=second, reason="compression")
    answer = call(h, session_id=second)
    assert (len(answer["conversation"]), answer["conversation_parts"]) == (30, 42)
    assert answer["conversation"][-1] == second
    assert not call(h, session_id=second, around_message_id=ids(h, said(h, "five"))[0])["success"]


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


def test_a_long_message_is_read_to_its_end_by_the_calls_that_are_named(h: Herma) -> None:
    words = " ".join(f"word{at}" for at in range(6_000))
    session = said(h, "before", f"{words} the needle at the end")
    result = call(h, query="needle")["results"][0]
    assert "needle" in anchor(result)["content"]
    assert result["expand"] == f'session_search(session_id="{session}", around_message_id=2)'
    read, offset = "", 0
    while offset >= 0:
        answer = call(h, session_id=session, around_message_id=2, offset=offset)
        read += anchor(answer)["content"].removesuffix("…")
        offset = answer.get("next_offset", -1)
    assert read == f"{words} the needle at the end"
    assert call(h, session_id=session)["expand"] == result["expand"]


# ── bounds ──


def test_answers_are_bounded_and_say_how_to_see_more(h: Herma) -> None:
    for number in range(10):
        said(h, *[f"zeppelin {number} " + "long story " * 3_000 for _ in range(12)])
    answer = call(h, query="zeppelin", limit=10)
    assert len(json.dumps(answer)) < 60_000
    assert answer["count"] == 10
    assert all("session_search(session_id=" in result["expand"] for result in answer["results"])
    anchors = [anchor(result)["content"] for result in answer["results"]]
    assert len(anchors[0]) > 3_500
    assert all(len(text) < 1_300 for text in anchors[1:])
    assert all("zeppelin" in text for text in anchors)
    said(h, "word " * 3_000 + "falcon " + "word " * 3_000)
    (result,) = call(h, query="falcon")["results"]
    assert ">>>falcon<<<" in result["snippet"]
    assert "falcon" in result["messages"][0]["content"]


def test_the_models_own_text_is_repeated_in_brief(h: Herma) -> None:
    said(h, "zeppelin")
    long = "x" * 100_000
    arguments: list[dict[str, Any]] = [{"query": long}, {"query": f"{long} zeppelin"}, {"query": f'"{long} y" AND z'}]
    for given in (*arguments, {"session_id": long}):
        assert len(h.tools.call("session_search", given)) < 8_000
    assert call(h, query=f"zeppelin {long}")["count"] == 1


def test_tool_calls_are_shown_in_brief_however_many_there_are(h: Herma) -> None:
    def wanted(id_: str, name: str, arguments: str) -> dict[str, Any]:
        return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}

    session = h.transcripts.start("cli")
    write = wanted("1", "write", json.dumps({"x": "y" * 5_000}))
    result = {"role": "tool", "content": "\x1b[31mdone\x1b[0m", "tool_call_id": "1", "tool_name": "write"}
    h.transcripts.append(session, [{"role": "assistant", "content": None, "tool_calls": [write]}, result])
    first, second = call(h, session_id=session)["messages"]
    assert (first["content"], first["tool_calls"][0]["name"]) == (None, "write")
    assert len(first["tool_calls"][0]["arguments"]) < 400
    assert (second["content"].strip(), second["tool_call_id"]) == ("done", "1")
    session = h.transcripts.start("cli")
    calls = [wanted(f"c{n}", "n" * 900, "x" * 9_000) for n in range(300)]
    flood: list[dict[str, Any]] = [
        {"role": "user", "content": "run the zebra"},
        {"role": "assistant", "content": None, "tool_calls": calls},
        {"role": "tool", "tool_call_id": "c" * 9_000, "name": "t" * 9_000, "content": "zebra " * 9_000},
    ]
    at = h.transcripts.append(session, flood)[1]
    for arguments in ({"query": "zebra"}, {"session_id": session}, {"session_id": session, "around_message_id": at}):
        assert len(h.tools.call("session_search", arguments)) < 40_000
    (shown,) = [one for one in call(h, session_id=session)["messages"] if one["role"] == "assistant"]
    assert shown["tool_calls"]
    assert len(shown["tool_calls"]) + shown["tool_calls_left_out"] == 300


# ── arguments ──

NO_NUMBERS: list[Any] = ["first", 2**64, -(2**63), 2.5, True, float("nan"), float("inf"), 1e300, [2], {}]


def test_errors(h: Herma) -> None:
    known = said(h, "hello")
    wrong: list[dict[str, Any]] = [
        *({"session_id": "nowhere"}, {"session_id": "nowhere", "around_message_id": 1}, {"around_message_id": 1}),
        *({"session_id": 12}, {"session_id": "\ud800"}),
        {"session_id": known, "tool_call_id": "\ud800", "offset": 10**30},
        *({"session_id": known, "around_message_id": number} for number in (*NO_NUMBERS, 999_999)),
    ]
    for given in wrong:
        answer = json.loads(h.tools.call("session_search", given))
        assert answer["success"] is False, given
        assert answer["error"].endswith(".")
        if known in given.values() and given.get("around_message_id", 999_999) != 999_999:
            assert "must be the number" in answer["error"]


def test_a_whole_number_may_be_written_as_it_comes(h: Herma) -> None:
    session = said(h, "one", "two", "three", "four")
    for _ in range(4):
        said(h, "the falcon")
    for number in (2, "2", 2.0, "2.0", " 2 "):
        answer = call(h, session_id=session, around_message_id=number, window=1.0)
        assert [one["id"] for one in answer["messages"]] == [1, 2, 3]
        assert call(h, query="falcon", limit=number)["count"] == 2


# ── whose sessions ──


def test_users_see_their_own(h: Herma) -> None:
    hers = said(h, "zeppelin of Anna", scope=Scope(user="anna"), session_id="2026_a", title="Plan")
    mine = said(h, "I am here", scope=Scope(user="bo"), session_id="now")
    h.transcripts.append(hers, [{"role": "tool", "content": "SECRET", "tool_call_id": "t1"}])
    context = inside(mine, Scope(user="bo"))
    assert call(h, context, query="zeppelin")["results"] == []
    assert call(h, context)["results"] == []
    for arguments in ({}, {"around_message_id": ids(h, hers)[0]}, {"tool_call_id": "t1"}):
        assert call(h, context, session_id=hers, **arguments)["success"] is False
    assert call(h, query="zeppelin")["count"] == 1
    his = said(h, "Bo's plan", scope=Scope(user="bo"), session_id="2026_b", title="Plan")
    for name in ("2026", "Plan"):
        assert call(h, context, session_id=name)["session_id"] == his, "a name means a session of the same user"
    assert hers not in json.dumps(call(h, inside(mine, Scope(user="cleo")), session_id="2026"))
    theirs = said(h, "the falcon of others", scope=Scope(profile="theirs"))
    context = inside(said(h, "what I am doing", scope=Scope(profile="mine")), Scope(profile="mine"))
    assert call(h, context, query="falcon")["results"] == []
    for arguments in ({}, {"around_message_id": ids(h, theirs)[0]}, {"tool_call_id": "x"}):
        assert "There is no session" in call(h, context, session_id=theirs, **arguments)["error"]


@of_files
def test_another_profile_of_the_home_and_only_the_users_own_sessions_there(home: Path) -> None:
    def held(profile: str, user: str | None, text: str) -> str:
        with Herma.open(home, profile=profile) as h, h.session(user=user) as session:
            talk(session, text, reply="Noted.")
            return session.id

    mine = held("work", None, "The gateway listens on port 7007.")
    annas = held("work", "anna", "The gateway of anna listens on port 8008.")
    bobs = held("work", "bob", "The gateway of bob listens on port 9009.")
    held("default", None, "Nothing about it here.")

    def ask(h: Herma, user: str | None, **arguments: object) -> dict[str, Any]:
        with h.session(user=user) as session:
            answer: dict[str, Any] = json.loads(session.call_tool("session_search", arguments))
            return answer

    def found(h: Herma, user: str | None, **arguments: object) -> list[str]:
        return [one["session_id"] for one in ask(h, user, **arguments)["results"]]

    with Herma.open(home) as h:
        assert found(h, None, query="gateway port") == []
        assert ask(h, None, query="gateway port", profile="work")["profile"] == "work"
        assert found(h, None, query="gateway port", profile="work") == [mine]
        assert found(h, "anna", query="gateway port", profile="work") == [annas]
        assert found(h, "anna", profile="work") == [annas]
        assert found(h, "carl", query="gateway port", profile="work") == []
        assert "7007" in json.dumps(ask(h, None, session_id=mine, profile="work"))
        for user, session in (("anna", bobs), ("anna", mine), (None, bobs), ("carl", annas)):
            assert "There is no session" in ask(h, user, session_id=session, profile="work")["error"]
        before = sorted(path for path in home.rglob("*") if path.is_dir())
        for wrong in ("play", "../work", ".hidden", "work/..", "a\0b"):
            assert ask(h, None, query="x", profile=wrong)["success"] is False
        assert "The others are work." in ask(h, None, query="x", profile="play")["hint"]
        assert "leave profile out" in ask(h, None, tool_call_id="x", profile="work")["error"]
        assert sorted(path for path in home.rglob("*") if path.is_dir()) == before, "a search makes no profile"
    with Herma.open(home, profile="work") as h:
        assert len(found(h, None, query="nothing about it", profile="default")) == 1
        assert len(found(h, None, query="gateway port", profile="work")) == 1, "its own"
