"""Every message of every session, and the way from a summary back to them."""

from __future__ import annotations

from herma.errors import UsageError
from herma.reflect.compress.expand import expand
from herma.store.sqlite.messages import SqliteMessages
from herma.store.sqlite.sessions import SqliteSessions
from herma.transcript import Transcripts
from herma.types import Expansion
from herma.wiring.ground import Ground


def transcripts(ground: Ground) -> Transcripts:
    sessions = SqliteSessions(ground.database)
    return Transcripts(
        sessions,
        sessions,
        SqliteMessages(ground.database),
        profile=ground.settings.profile,
        grace_days=ground.settings.retention.grace_days,
        clock=ground.clock,
        alive=ground.alive,
    )


def expanded(ground: Ground, kept: Transcripts, line: str, session: str | None) -> Expansion:
    """The originals behind a line of a summary."""
    ground.alive()
    named = kept.resolve(session) if session else None
    if session and named is None:
        raise UsageError(f"There is no session {session!r}.", hint="`herma sessions list` shows them.")
    return expand(line, SqliteMessages(ground.database), kept, kept.get(named) if named else None)
