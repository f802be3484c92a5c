"""How sessions hang together. Pure functions over a group of sessions; missing parents and circles do no harm.

A session goes on with its parent's conversation after `resume` and `compression`. A branch, a delegation and anything
else with a parent begins a conversation of its own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from herma.types import Reason, SessionInfo, Usage

CONTINUING: frozenset[Reason] = frozenset({"resume", "compression"})
Sessions = Mapping[str, SessionInfo]


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
    """Where the conversation goes on from here: the newest continuation of the newest continuation, and so on."""
    following: dict[str, list[SessionInfo]] = defaultdict(list)
    for session in sessions.values():
        if goes_on(session):
            following[session.parent or ""].append(session)
    seen = {session_id}
    at = session_id
    while fresh := [session for session in following[at] if session.id not in seen]:
        at = max(fresh, key=newness).id
        seen.add(at)
    return at


def resume_target(sessions: Sessions, session_id: str) -> str:
    """What to open when somebody wants to go on with this session: the tip, or before it the last that has messages."""
    end = tip(sessions, session_id)
    for candidate in ancestors(sessions, end):
        if sessions[candidate].message_count:
            return candidate
    return end


def newness(session: SessionInfo) -> tuple[float, float, str]:
    """Orders sessions by what happened last in them."""
    return session.last_active, session.started, session.id


def one_line(conversation: Sequence[SessionInfo]) -> SessionInfo:
    """A conversation as one session: its tip, begun when the first one began, with the counts of all of them."""
    sessions = {session.id: session for session in conversation}
    first = min(conversation, key=lambda session: (session.id != session.conversation, session.started, session.id))
    end = sessions[tip(sessions, first.id)]
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


def descendants(children: Mapping[str, Sequence[SessionInfo]], session_id: str) -> list[SessionInfo]:
    """Everything delegated from a session, and from those again, each once."""
    found: dict[str, SessionInfo] = {}
    waiting = [session_id]
    while waiting:
        for child in children.get(waiting.pop(), ()):
            if child.reason == "delegation" and child.id not in found and child.id != session_id:
                found[child.id] = child
                waiting.append(child.id)
    return list(found.values())
