"""Every message of every session, and the way from a summary back to them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from herma.errors import HermaWarning, StoreError, UsageError
from herma.store.sqlite.messages import SqliteMessages
from herma.store.sqlite.sessions import SqliteSessions
from herma.transcript import Transcripts
from herma.transcript.retention import Keeping
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
    from herma.reflect.compress.expand import expand

    ground.alive()
    named = kept.resolve(session) if session else None
    if session and named is None:
        raise UsageError(f"There is no session {session!r}.", hint="`herma sessions list` shows them.")
    return expand(line, SqliteMessages(ground.database), kept, kept.get(named) if named else None)


def expire_due(ground: Ground, kept: Callable[[], Transcripts]) -> None:
    """Delete what need not be kept any longer, where transcripts are kept for a limited time."""
    retention = ground.settings.retention
    if not retention.days and not retention.by_source:
        return
    keeping = Keeping.read(retention.days, retention.by_source)
    try:
        kept().expire(keeping)
        kept().purge_expired()
    except StoreError as exc:  # a home that cannot be written, or is busy: the session matters more
        warnings.warn(f"What need not be kept any longer is still there: {exc}", HermaWarning, stacklevel=4)
