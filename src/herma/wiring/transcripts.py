"""Every message of every session."""

from __future__ import annotations

from herma.store.sqlite.messages import SqliteMessages
from herma.store.sqlite.sessions import SqliteSessions
from herma.transcript import Transcripts
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
