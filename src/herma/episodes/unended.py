"""Where the work stood in a conversation that nobody ended: its program was killed, or it is still open elsewhere.

A state is kept when a session ends. For one that did not, the last messages are read when somebody asks, and nothing
is kept: it may still go on. Only one conversation of a project is looked at, the one that was last spoken in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from herma.ports.episodes import Glimpses
from herma.types import Scope, SessionInfo, SessionState

LAST, AT_MOST = 120, 4_500
"""Messages from the end that are read, and characters of each."""
STALE = 30 * 86_400.0
"""Seconds after which nobody is reminded of what was broken off."""


class Unended:
    """Reads only. Knows which conversations this program has open itself: they are not left, but gone on with."""

    def __init__(self, glimpses: Glimpses, clock: Callable[[], float]) -> None:
        self._glimpses = glimpses
        self._clock = clock
        self._here: set[str] = set()
        self._read: tuple[tuple[str, float, int], SessionState | None] | None = None
        """What was last made of one, and of what: many sessions may be opened before it goes on."""

    def begun(self, conversation: str) -> None:
        self._here.add(conversation)

    def over(self, conversation: str) -> None:
        self._here.discard(conversation)

    def newest(self, scope: Scope, known: SessionState | None, not_of: str) -> SessionState | None:
        """The state of the conversation that was broken off in this scope after the `known` one was left; else that."""
        since = max(self._clock() - STALE, known.at if known is not None else 0.0)
        found = self._glimpses.unended(scope, since, (not_of, *sorted(self._here)))
        return known if found is None else self._state(found) or known

    def of(self, conversation: str, known: SessionState | None) -> SessionState | None:
        """The state of a conversation as it is now, if it went on after the `known` one was kept; else that."""
        sessions = self._glimpses.sessions(conversation)
        if not sessions or (known is not None and max(one.last_active for one in sessions) <= known.at):
            return known
        return self._state(sessions[0].conversation) or known

    def _state(self, conversation: str) -> SessionState | None:
        sessions = self._glimpses.sessions(conversation)
        if not sessions:
            return None
        last = max(sessions, key=lambda one: (one.last_active, one.started))
        stands = (conversation, last.last_active, sum(one.message_count for one in sessions))
        if self._read is None or self._read[0] != stands:
            self._read = (stands, self._made(conversation, last))
        made = self._read[1]
        return None if made is None else replace(made, ended=last.ended is not None)

    def _made(self, conversation: str, last: SessionInfo) -> SessionState | None:
        from herma.episodes.state import snapshot  # few are broken off

        messages = self._glimpses.glimpse(conversation, 0, LAST, AT_MOST)
        if not messages:
            return None
        return snapshot(messages, last, at=last.last_active, folder=last.folder, branch=last.branch)
