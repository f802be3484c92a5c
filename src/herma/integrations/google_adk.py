"""Google ADK: sessions in Herma's transcripts, and memory that finds what they say.

from herma.integrations.google_adk import HermaMemoryService, HermaSessionService

runner = Runner(agent=…, app_name="shop", session_service=HermaSessionService(h), memory_service=HermaMemoryService(h))
"""

from __future__ import annotations

import asyncio
import json
import uuid
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.memory.base_memory_service import BaseMemoryService, SearchMemoryResponse
from google.adk.memory.memory_entry import MemoryEntry
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State
from google.genai import types

from herma.integrations.items import ItemLog, calling, recall, scope_of
from herma.types import Scope, SessionFilter

if TYPE_CHECKING:
    from herma.app import Herma

SOURCE = "google-adk"
MEMORY_SOURCE = "google-adk-memory"
STATE_SOURCE = "google-adk-state"
_MOST_SESSIONS = 100_000


def _scope(app: Herma, app_name: str, user_id: str) -> Scope:
    """Return the scope of a user of an ADK application: no other user or application shares it."""
    return scope_of(app, user=user_id or None, project=app_name)


class HermaSessionService(BaseSessionService):
    """Keep every event as a message: durable, searchable, and returned as it was."""

    def __init__(self, app: Herma) -> None:
        self._app = app

    async def create_session(
        self,
        *,
        app_name: str,
        user_id: str,
        state: dict[str, Any] | None = None,
        session_id: str | None = None,
    ) -> Session:
        """Create a session; raise `AlreadyExistsError` if its id is taken."""
        wanted = (session_id or "").strip() or str(uuid.uuid4())
        return await asyncio.to_thread(self._create, app_name, user_id, state or {}, wanted)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        """Return a session with its events and the state of the application and the user."""
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        """List the sessions of a user or of all users, without events, the most recently active last."""
        return ListSessionsResponse(sessions=await asyncio.to_thread(self._list, app_name, user_id))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        """Hide a session. Its messages stay in the transcript until a person deletes them."""
        await asyncio.to_thread(self._delete, app_name, user_id, session_id.strip())

    async def get_user_state(self, *, app_name: str, user_id: str) -> dict[str, Any]:
        """Return the state of a user, without the prefix `user:`."""
        return await asyncio.to_thread(self._state, app_name, user_id)

    async def append_event(self, session: Session, event: Event) -> Event:
        """Append an event; it is on disk when this returns. The same event twice counts once."""
        if event.partial:
            return event
        log = self._log(session.app_name, session.user_id, session.id)
        stored = await asyncio.to_thread(log.read)
        if not stored:
            raise SessionNotFoundError(f"Session {session.id} not found.")
        if any(one.item.get("event", {}).get("id") == event.id for one in stored):
            return event
        event = await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        await asyncio.to_thread(self._write, session, event)
        return event

    def _log(self, app_name: str, user_id: str, session_id: str) -> ItemLog:
        return ItemLog(self._app, SOURCE, json.dumps([app_name, session_id]), _scope(self._app, app_name, user_id))

    def _state_log(self, app_name: str, user_id: str) -> ItemLog:
        return ItemLog(self._app, STATE_SOURCE, json.dumps([app_name]), _scope(self._app, app_name, user_id))

    def _create(self, app_name: str, user_id: str, state: dict[str, Any], session_id: str) -> Session:
        log = self._log(app_name, user_id, session_id)
        if log.read():
            raise AlreadyExistsError(f"Session with id {session_id} already exists.")
        own = self._share(app_name, user_id, state)
        item = {"app": app_name, "user": user_id, "id": session_id, "state": own}
        log.append([(item, {"role": "system", "content": f"Session {session_id} of {app_name}"})])
        made = self._get(app_name, user_id, session_id, None)
        assert made is not None
        return made

    def _share(self, app_name: str, user_id: str, delta: Mapping[str, Any]) -> dict[str, Any]:
        """Write what the application and the user share. → what belongs to the session alone."""
        for prefix, owner in ((State.APP_PREFIX, ""), (State.USER_PREFIX, user_id)):
            shared = {key.removeprefix(prefix): value for key, value in delta.items() if key.startswith(prefix)}
            if shared:
                self._state_log(app_name, owner).append([({"state": shared}, {"role": "system", "content": ""})])
        others = (State.APP_PREFIX, State.USER_PREFIX, State.TEMP_PREFIX)
        return {key: value for key, value in delta.items() if not key.startswith(others)}

    def _state(self, app_name: str, owner: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for one in self._state_log(app_name, owner).read():
            merged |= one.item["state"]
        return merged

    def _get(
        self, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None, *, events: bool = True
    ) -> Session | None:
        stored = self._log(app_name, user_id, session_id).read()
        if not stored:
            return None
        state = dict(stored[0].item["state"])
        found = [Event.model_validate(one.item["event"]) for one in stored[1:]]
        for event in found:
            delta = event.actions.state_delta if event.actions else {}
            shared = (State.APP_PREFIX, State.USER_PREFIX)
            state |= {key: value for key, value in delta.items() if not key.startswith(shared)}
        for prefix, owner in ((State.APP_PREFIX, ""), (State.USER_PREFIX, user_id)):
            state |= {prefix + key: value for key, value in self._state(app_name, owner).items()}
        at = found[-1].timestamp if found else stored[0].at
        return Session(
            app_name=app_name,
            user_id=user_id,
            id=session_id,
            state=state,
            events=_chosen(found, config) if events else [],
            last_update_time=at,
        )

    def _list(self, app_name: str, user_id: str | None) -> list[Session]:
        which = SessionFilter(source=SOURCE, profile=self._app.settings.profile, project=app_name, user=user_id)
        sessions = []
        for info in self._app.transcripts.list(which, limit=_MOST_SESSIONS):
            first = self._app.transcripts.messages(info.id, limit=1)
            about = first[0].extra.get("_item", {}) if first else {}
            if about.get("app") == app_name and (user_id is None or about.get("user") == user_id):
                found = self._get(app_name, about["user"], about["id"], None, events=False)
                sessions += [found] if found else []
        return sorted(sessions, key=lambda one: (one.last_update_time, one.user_id, one.id))

    def _delete(self, app_name: str, user_id: str, session_id: str) -> None:
        log = self._log(app_name, user_id, session_id)
        if stored := log.read():
            log.cut(stored[0].message)

    def _write(self, session: Session, event: Event) -> None:
        delta = event.actions.state_delta if event.actions else {}
        self._share(session.app_name, session.user_id, delta or {})
        item = {"event": event.model_dump(mode="json", exclude_none=True, by_alias=False)}
        self._log(session.app_name, session.user_id, session.id).append([(item, _message_of(event))])


def _chosen(events: list[Event], config: GetSessionConfig | None) -> list[Event]:
    if config is None:
        return events
    if config.num_recent_events is not None:
        events = events[-config.num_recent_events :] if config.num_recent_events else []
    if config.after_timestamp is not None:
        events = [event for event in events if event.timestamp >= config.after_timestamp]
    return events


def _message_of(event: Event) -> dict[str, Any]:
    """Return the message that says in words what an event holds."""
    parts = (event.content.parts or []) if event.content else []
    text = "\n".join(part.text for part in parts if part.text)
    for part in parts:
        if part.function_response:
            said = json.dumps(part.function_response.response, ensure_ascii=False, default=str)
            return {"role": "tool", "tool_call_id": part.function_response.id or "", "content": said}
    calls = [
        (part.function_call.id or "", part.function_call.name or "", json.dumps(part.function_call.args or {}))
        for part in parts
        if part.function_call
    ]
    if calls:
        return calling(text or None, calls)
    return {"role": "user" if event.author == "user" else "assistant", "content": text}


class HermaMemoryService(BaseMemoryService):
    """Answer `load_memory` and `preload_memory` from everything that was said to this application by this user."""

    def __init__(self, app: Herma, *, limit: int = 10) -> None:
        self._app = app
        self._limit = limit

    async def add_session_to_memory(self, session: Session) -> None:
        """Keep the events of a session that is not in Herma yet. Adding it again adds only what is new."""
        await self.add_events_to_memory(
            app_name=session.app_name, user_id=session.user_id, events=session.events, session_id=session.id
        )

    async def add_events_to_memory(
        self,
        *,
        app_name: str,
        user_id: str,
        events: Sequence[Event],
        session_id: str | None = None,
        custom_metadata: Mapping[str, object] | None = None,  # noqa: ARG002 (nothing reads it yet)
    ) -> None:
        """Keep events, each once."""
        await asyncio.to_thread(self._add, app_name, user_id, list(events), session_id or "memory")

    async def search_memory(self, *, app_name: str, user_id: str, query: str) -> SearchMemoryResponse:
        """Return what was said that fits a query, the best first."""
        scope = _scope(self._app, app_name, user_id)
        found = await asyncio.to_thread(recall, self._app, query, scope=scope, limit=self._limit, project=app_name)
        return SearchMemoryResponse(
            memories=[
                MemoryEntry(
                    id=str(one.message),
                    author="user" if one.role == "user" else "agent",
                    content=types.Content(role=one.role, parts=[types.Part(text=one.text)]),
                    timestamp=datetime.fromtimestamp(one.at, UTC).isoformat(),
                    custom_metadata={"session": one.session, "score": one.score},
                )
                for one in found
            ]
        )

    def _add(self, app_name: str, user_id: str, events: list[Event], session_id: str) -> None:
        scope, key = _scope(self._app, app_name, user_id), json.dumps([app_name, session_id])
        kept = {one.item.get("event", {}).get("id") for one in ItemLog(self._app, SOURCE, key, scope).read()}
        log = ItemLog(self._app, MEMORY_SOURCE, key, scope)
        kept |= {one.item["event"]["id"] for one in log.read()}
        new = [event for event in events if event.id not in kept and event.content and event.content.parts]
        log.append([({"event": {"id": event.id}}, _message_of(event)) for event in new])
