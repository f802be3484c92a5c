"""ADK services: the same answers as the framework's services in memory, durable, one user at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.adk.events.event import Event
from google.adk.events.event_actions import EventActions
from google.adk.sessions.base_session_service import GetSessionConfig
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.genai import types

from herma import Herma
from herma.integrations.google_adk import HermaMemoryService, HermaSessionService


def said(text: str, author: str = "user", at: float = 1.0, **state: Any) -> Event:
    content = types.Content(role="user" if author == "user" else "model", parts=[types.Part(text=text)])
    return Event(
        author=author, content=content, timestamp=at, invocation_id="i", actions=EventActions(state_delta=state)
    )


def called(at: float) -> Event:
    call = types.FunctionCall(id="c", name="look", args={"q": "x"})
    return Event(
        author="agent", timestamp=at, content=types.Content(role="model", parts=[types.Part(function_call=call)])
    )


def _plain(session: Any) -> Any:
    if session is None:
        return None
    events = [event.model_dump(mode="json", exclude_none=True) for event in session.events]
    return session.app_name, session.user_id, session.id, session.state, events


async def play(service: Any, events: list[Event]) -> list[Any]:
    where = {"app_name": "shop", "user_id": "ann"}
    answers = [await service.get_session(**where, session_id="s1")]
    first = await service.create_session(**where, session_id="s1", state={"a": 1, "app:x": 2, "user:y": 3})
    answers.append(_plain(first))
    for event in events:
        await service.append_event(first, event)
    await service.append_event(first, events[0])  # the same once more
    answers.append(_plain(first))
    answers.append(_plain(await service.get_session(**where, session_id="s1")))
    for config in (
        GetSessionConfig(num_recent_events=1),
        GetSessionConfig(num_recent_events=0),
        GetSessionConfig(after_timestamp=2.0),
    ):
        found = await service.get_session(**where, session_id="s1", config=config)
        answers.append(_plain(found))
    try:
        await service.create_session(**where, session_id="s1")
    except Exception as exc:  # noqa: BLE001 (of whatever class)
        answers.append(type(exc).__name__)
    await service.create_session(app_name="shop", user_id="ben", session_id="s1")
    await service.create_session(app_name="other", user_id="ann", session_id="s2")
    answers.append(_plain(await service.get_session(app_name="shop", user_id="ben", session_id="s1")))
    for user in ("ann", "ben", None):
        listed = (await service.list_sessions(app_name="shop", user_id=user)).sessions
        answers.append(sorted(map(_plain, listed), key=repr))
    answers.append(await service.get_user_state(**where))
    await service.delete_session(**where, session_id="s1")
    await service.delete_session(**where, session_id="never")
    answers.append(await service.get_session(**where, session_id="s1"))
    answers.append(len((await service.list_sessions(app_name="shop", user_id="ann")).sessions))
    again = await service.create_session(**where, session_id="s1")
    answers.append(_plain(again))
    return answers


def test_sessions_answer_as_those_in_memory(h: Herma) -> None:
    def events() -> list[Event]:
        return [
            said("hi", "user", 1.0, **{"b": 2, "temp:z": 1}),
            called(2.0),
            said("Hello.", "agent", at=3.0, **{"user:y": 4, "app:x": 5, "a": 7}),
        ]

    made = events()
    theirs = asyncio.run(play(InMemorySessionService(), [one.model_copy(deep=True) for one in made]))
    ours = asyncio.run(play(HermaSessionService(h), [one.model_copy(deep=True) for one in made]))
    assert ours == theirs


def test_an_event_of_a_session_that_is_not_there_is_refused(h: Herma) -> None:
    async def run(service: Any) -> None:
        session = await service.create_session(app_name="shop", user_id="ann", session_id="s")
        await service.delete_session(app_name="shop", user_id="ann", session_id="s")
        await service.append_event(session, said("hi"))

    with pytest.raises(Exception) as theirs:
        asyncio.run(run(InMemorySessionService()))
    with pytest.raises(type(theirs.value)):
        asyncio.run(run(HermaSessionService(h)))


def test_memory_finds_what_was_said_to_this_application_by_this_user(h: Herma, tmp_path: Path) -> None:
    async def fill() -> None:
        service = HermaSessionService(h)
        for user, text in (("ann", "My staging port is 5433."), ("ben", "My staging port is 9999.")):
            session = await service.create_session(app_name="shop", user_id=user)
            await service.append_event(session, said(text))

    async def ask(opened: Herma, user: str, app: str = "shop") -> list[str]:
        memory = HermaMemoryService(opened)
        found = await memory.search_memory(app_name=app, user_id=user, query="staging port")
        return [str((one.content.parts or [])[0].text) for one in found.memories]

    asyncio.run(fill())
    h.close()
    with Herma.open(tmp_path / "home") as again:
        assert asyncio.run(ask(again, "ann")) == ["My staging port is 5433."]
        assert asyncio.run(ask(again, "ben")) == ["My staging port is 9999."]
        assert asyncio.run(ask(again, "ann", "other")) == []


def test_a_session_of_another_service_is_added_once(h: Herma) -> None:
    async def run() -> str:
        sessions, memory = InMemorySessionService(), HermaMemoryService(h)
        session = await sessions.create_session(app_name="shop", user_id="ann", session_id="s")
        await sessions.append_event(session, said("The warehouse is in Ghent."))
        await memory.add_session_to_memory(session)
        await sessions.append_event(session, said("It opens at nine.", at=2.0))
        await memory.add_session_to_memory(session)
        found = await memory.search_memory(app_name="shop", user_id="ann", query="warehouse Ghent")
        return str((found.memories[0].content.parts or [])[0].text)

    assert asyncio.run(run()) == "The warehouse is in Ghent."
    assert h.transcripts.stats().messages == 2
