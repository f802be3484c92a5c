"""How sessions hang together. Pure functions over a group of sessions; missing parents and circles do no harm.

A session goes on with its parent's conversation after `resume` and `compression`. A branch, a delegation and anything
else with a parent begins a conversation of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

from herma.types import Reason, SessionInfo, Usage

CONTINUING: frozenset[Reason] = frozenset({"resume", "compression"})
Sessions = Mapping[str, SessionInfo]
Newness: TypeAlias = tuple[float, float, str]


def goes_on(session: SessionInfo) -> bool:
    """Whether it is another part of its parent's conversation."""
    return session.reason in CONTINUING and session.parent is not None and session.parent != session.id


def ancestors(sessions: Sessions, session_id: str) -> list[str]:
    """The session and those it goes on from, newest first, as far as they are here."""
    chain: dict[str, None] = {}
    at: str | None = session_id
    while at is not None and at in sessions and at not in chain:
        chain[at] = None
        at = sessions[at].parent if goes_on(sessions[at]) else None
    return list(chain)


def tip(sessions: Sessions, session_id: str) -> str:
    """Where the conversation goes on from here: always along the continuation in which, or after which, something
    happened last.
    """
    following: dict[str, list[str]] = defaultdict(list)
    for session in sessions.values():
        if goes_on(session):
            following[session.parent or ""].append(session.id)
    below = {session_id: ""}  # everything that goes on from here, each with what it goes on from, nearest first
    for at in (order := [session_id]):
        fresh = [other for other in following[at] if other not in below]
        below |= dict.fromkeys(fresh, at)
        order += fresh
    onward: dict[str, tuple[Newness, str]] = {}
    for at in reversed(order[1:]):
        happened = newness(sessions[at])
        latest = max(happened, onward[at][0]) if at in onward else happened
        onward[below[at]] = max(onward.get(below[at], (latest, at)), (latest, at))
    at = session_id
    while at in onward:
        at = onward[at][1]
    return at


def resume_target(sessions: Sessions, session_id: str) -> str:
    """What to open when somebody wants to go on with this session: the tip, or before it the last that has messages."""
    end = tip(sessions, session_id)
    for candidate in ancestors(sessions, end):
        if sessions[candidate].message_count:
            return candidate
    return end


def newness(session: SessionInfo) -> Newness:
    """Orders sessions by what happened last in them."""
    return session.last_active, session.started, session.id


def whole(conversation: Iterable[SessionInfo]) -> dict[str, SessionInfo]:
    """A conversation by ids. What goes on from a session that was deleted goes on from the first one instead."""
    sessions = {session.id: session for session in conversation}
    first = _first(sessions.values())
    for session in sessions.values():
        if session is not first and goes_on(session) and session.parent not in sessions:
            sessions[session.id] = replace(session, parent=first.id)
    return sessions


def one_line(conversation: Sequence[SessionInfo]) -> SessionInfo:
    """A conversation as one session: its tip, begun when the first one began, with the counts of all of them."""
    sessions = {session.id: session for session in conversation}
    first = _first(conversation)
    end = sessions[tip(whole(conversation), first.id)]
    by_age = sorted(conversation, key=newness, reverse=True)
    return replace(
        end,
        started=min(session.started for session in conversation),
        title=end.title or next((session.title for session in by_age if session.title), None),
        preview=end.preview or first.preview,
        last_active=by_age[0].last_active,
        message_count=sum(session.message_count for session in conversation),
        tool_call_count=sum(session.tool_call_count for session in conversation),
        usage=sum((session.usage for session in conversation), Usage()),
    )


def delegated(sessions: Iterable[SessionInfo], begun: Iterable[str]) -> list[SessionInfo]:
    """What was delegated from the sessions `begun`, how that went on, and what was delegated from there, each once."""
    members: dict[str, list[SessionInfo]] = defaultdict(list)
    tasks: dict[str, list[str]] = defaultdict(list)
    for session in sessions:
        members[session.conversation].append(session)
        if session.reason == "delegation":
            tasks[session.parent or ""].append(session.conversation)
    waiting = list(begun)
    left_out = set(waiting)
    found: dict[str, SessionInfo] = {}
    while waiting:
        for conversation in tasks.pop(waiting.pop(), ()):
            fresh = {one.id: one for one in members[conversation] if one.id not in found and one.id not in left_out}
            found |= fresh
            waiting += fresh
    return list(found.values())


def delegators(sessions: Sessions, session_id: str) -> list[str]:
    """The conversations that a session was delegated from, as far as they are here, the nearest first."""
    found: dict[str, None] = {}
    at = sessions.get(session_id)
    while at is not None and (begun := sessions.get(at.conversation)) is not None and begun.reason == "delegation":
        at = sessions.get(begun.parent or "")
        if at is None or at.conversation in found:
            break
        found[at.conversation] = None
    return list(found)


def _first(conversation: Iterable[SessionInfo]) -> SessionInfo:
    return min(conversation, key=lambda session: (session.id != session.conversation, session.started, session.id))
