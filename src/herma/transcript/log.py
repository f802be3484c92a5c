"""Transcripts as everybody uses them: sessions begin, messages are added whole, nothing is taken away by accident.

A message that `append` returned an id for is on disk. Rewinding and compacting hide; deleting waits for a grace period.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias, Unpack

from herma.errors import StoreChanged, UsageError
from herma.ports import MessageRows, SessionQueries, SessionRows
from herma.transcript import given, lineage
from herma.transcript.given import new_session_id, unknown
from herma.transcript.retention import GRACE_DAYS, Keeping, Retention
from herma.transcript.titles import base_of, cleaned, next_title, sanitized
from herma.transcript.wire import all_from_wire, preview_of
from herma.types import (
    Deletion,
    Message,
    Reason,
    Scope,
    SessionFilter,
    SessionInfo,
    TranscriptStats,
    Usage,
    Whereabouts,
)

Ids: TypeAlias = list[int]
Messages: TypeAlias = list[Message]
Sessions: TypeAlias = list[SessionInfo]

SPOKEN = ("user", "assistant")
_FAR = given.MOST_ID
_OPENING = 20
"""Messages of the user among which the first one with words is looked for."""


class Transcripts:
    """Every session of one home: `h.transcripts`."""

    def __init__(
        self,
        sessions: SessionRows,
        queries: SessionQueries,
        messages: MessageRows,
        *,
        profile: str = "",
        grace_days: float = GRACE_DAYS,
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._sessions = sessions
        self._queries = queries
        self._rows = messages
        self._profile = profile
        self._clock = clock
        self._alive = alive
        self._retention = Retention(sessions, queries, grace_days=grace_days, clock=clock)

    # ── writing ──

    def start(
        self,
        source: str,
        *,
        title: str | None = None,
        parent: str | None = None,
        reason: Reason | None = None,
        scope: Scope | None = None,
        model: str | None = None,
        system_prompt: str | None = None,
        session_id: str | None = None,
        started: float | None = None,
        **place: Unpack[Whereabouts],
    ) -> str:
        """Begin a session. → its id. A parent without a reason is a continuation of the same conversation.

        A title that is taken gets the next number; where a titled session goes on or branches, so does its title.
        `place`: provider (who runs the model), chat_type, folder, branch.
        """
        self._alive()
        if not isinstance(source, str) or not source.strip():
            raise UsageError("A session needs a source.", hint='For example: start("cli").')
        now = self._clock()
        before = self.get(parent) if parent else None
        session = SessionInfo(
            id=given.session_id(session_id) if session_id is not None else new_session_id(now),
            source=source.strip(),
            scope=self._scope(scope, before),
            started=now if started is None else given.moment("When a session began", started),
            conversation="",
            model=model,
            parent=parent,
            reason=given.reason(reason, parent),
            **given.place(place),
        )
        wish = sanitized(title)
        if wish is None and before is not None and session.reason not in ("delegation", "new"):
            wish = before.title
        return self._add(given.beginning(session, system_prompt), wish, system_prompt)

    def append(
        self, session_id: str, messages: Sequence[Mapping[str, Any] | Message], *, standing_for: int | None = None
    ) -> Ids:
        """Add messages, all or none of them. → their ids, increasing. When this returns, they are on disk.

        Where they stand for earlier ones, those up to the message `standing_for` are compacted in the same step.
        """
        self._alive()
        converted = all_from_wire(messages, self._clock())
        given.text("The id of a session", session_id)
        if standing_for is not None:
            standing_for = given.number("The message that others stand for", standing_for)
        try:
            return list(self._rows.append(session_id, converted, preview=preview_of(converted), compacts=standing_for))
        except KeyError:
            raise unknown(session_id) from None

    def end(self, session_id: str, reason: str = "closed") -> bool:
        """Say that a session is over; the first reason stands. → whether this call ended it."""
        self._alive()
        why = given.text("Why a session ended", reason)
        ended = self._sessions.end(session_id, self._clock(), why)
        if not ended:
            self._known(session_id)
        return ended

    def reopen(self, session_id: str) -> None:
        """Take back that a session is over."""
        self._known(session_id)
        self._sessions.update([session_id], {"ended": None, "end_reason": None})

    def rename(self, session_id: str, title: str | None) -> str | None:
        """Give a session a title that no other conversation has, or none. → the title as it is kept."""
        self._known(session_id)
        clean = sanitized(title)
        try:
            self._sessions.update([session_id], {"title": clean})
        except StoreChanged as exc:
            free = self._free_title(clean or "", self._known(session_id).scope)
            raise UsageError(
                f"Another conversation is called {clean!r} already.", hint=f"This one is free: {free}"
            ) from exc
        return clean

    def record_usage(self, session_id: str, usage: Usage) -> None:
        """Add tokens and money to what a session cost."""
        self._alive()
        if not self._sessions.spend(session_id, given.usage(usage)):
            raise unknown(session_id)

    # ── hiding ──

    def rewind(self, session_id: str, message_id: int) -> int:
        """Go back to before a message of the user: it and all after it are hidden, not deleted. → how many."""
        self._alive()
        target = self._rows.by_ids([given.number("A message", message_id)]).get(message_id)
        if target is None or target.session_id != session_id or target.hidden or target.role != "user":
            raise UsageError(
                f"Message {message_id} is no visible message of the user in session {session_id}.",
                hint="Only to such a message can a session be rewound.",
            )
        return self._flag(session_id, message_id, _FAR, "", "rewound")

    def restore_rewound(self, session_id: str) -> int:
        """Show again what was rewound. → how many messages."""
        self._known(session_id)
        return self._flag(session_id, 0, _FAR, "rewound", "")

    def compact(self, session_id: str, first: int, last: int) -> int:
        """Hide messages first … last from the context, because a summary stands for them. Search still finds them."""
        self._known(session_id)
        first, last = given.number("The first message", first), given.number("The last message", last)
        return self._flag(session_id, first, last, "", "compacted")

    def restore_compacted(self, session_id: str) -> int:
        """Show again what was compacted. → how many messages."""
        self._known(session_id)
        return self._flag(session_id, 0, _FAR, "compacted", "")

    def archive(self, session_id: str, on: bool = True) -> int:
        """Put the whole conversation away, or take it out again. → how many sessions that are."""
        members = [member.id for member in self.conversation(session_id)]
        return self._sessions.update(members, {"archived": bool(on)})

    # ── deleting ──

    def delete(self, session_ids: str | Sequence[str], *, whole: bool = True, dry_run: bool = False) -> Deletion:
        """Delete sessions, with what they delegated: `whole` conversations, or just these. Undoable until `until`."""
        wanted = given.ids(session_ids)
        for session_id in wanted:
            self._known(session_id)
        return self._retention.delete(wanted, whole=whole, dry_run=dry_run)

    def prune(
        self,
        which: SessionFilter | None = None,
        *,
        older_than_days: float = 90,
        ended_only: bool = True,
        dry_run: bool = False,
    ) -> Deletion:
        """Delete conversations that match, of which no session was active lately or, by default, is still open."""
        self._alive()
        days = given.length("How long a conversation was quiet", older_than_days)
        return self._retention.prune(given.session_filter(which), days, ended_only=ended_only, dry_run=dry_run)

    def expire(self, keeping: Keeping, *, dry_run: bool = False) -> Deletion:
        """Delete what has been quiet for longer than it is kept; undoable like every deletion."""
        self._alive()
        return self._retention.expire(given.kind("What is kept", keeping, Keeping), dry_run=dry_run)

    def deleted(self) -> Sessions:
        """What can still be brought back, oldest deletion first."""
        self._alive()
        return list(self._queries.deleted(_FAR))

    def undelete(self, session_ids: str | Sequence[str]) -> Sessions:
        """Bring back deleted sessions, with the rest of their conversations and what they delegated."""
        self._alive()
        return self._retention.undelete(given.ids(session_ids), self._free_title)

    def purge_expired(self) -> Sessions:
        """Remove for good what was deleted longer ago than the grace period. → what is gone."""
        self._alive()
        return self._retention.purge_expired()

    # ── reading ──

    def get(self, session_id: str) -> SessionInfo | None:
        self._alive()
        return self._sessions.get([session_id]).get(session_id)

    def resolve(self, text: str, *, user: str | None = None) -> str | None:
        """The id meant by an id, a title, or a beginning that only one id has. `UsageError` when several are meant.

        Of a title and those with a number behind it, the newest. With a `user`, the sessions of all others are not
        there.
        """
        if not given.text("What is looked for", text):
            return None
        known = self.get(text)
        if known is not None:
            return text if user in (None, known.scope.user) else None
        title = cleaned(text)
        titled = self._queries.titles(title, Scope(profile=self._profile, user=user or "")) if title else ()
        if not any(name == title for name, _ in titled):
            found = self._queries.with_prefix(text, 4, user)
            if len(found) > 1:
                raise UsageError(f"Several sessions begin with {text!r}.", hint=f"For example: {', '.join(found)}.")
            if found:
                return found[0]
        sessions = self._sessions.get([session_id for _, session_id in titled])
        return max(sessions.values(), key=lineage.newness).id if sessions else None

    def system_prompt(self, session_id: str) -> str | None:
        self._alive()
        return self._sessions.system_prompt(session_id)

    def messages(
        self, session_id: str, *, include_hidden: bool = False, after: int | None = None, limit: int | None = None
    ) -> Messages:
        """What was said, in order; with `include_hidden`, what was rewound or compacted too."""
        self._alive()
        after = None if after is None else given.number("The message before", after, -1)
        limit = None if limit is None else given.number("The limit", limit, -1)
        found = list(self._rows.of_session(session_id, hidden=include_hidden, after=after, limit=limit))
        if not found:
            self._known(session_id)
        return found

    def around(self, message_id: int, window: int = 5) -> Messages:
        """A message and its neighbours; rewound ones are never shown. Empty when there is no such message."""
        self._alive()
        message_id, window = given.number("A message", message_id), given.number("The window", window)
        return list(self._rows.around(message_id, window))

    def bookends(
        self, session_id: str, n: int = 3, *, outside: tuple[int, int] | None = None, roles: Sequence[str] = SPOKEN
    ) -> tuple[Messages, Messages]:
        """The first and last `n` messages with text, none of them inside the ids `outside`, none of them twice."""
        self._alive()
        first, last = self._rows.edges(session_id, given.number("How many", n), outside, roles)
        return list(first), list(last)

    def conversation(self, session_id: str) -> Sessions:
        """All sessions of the same conversation, oldest first."""
        info = self._known(session_id)
        members = self._queries.of_conversations([info.conversation])
        return sorted(members, key=lambda member: (member.started, member.id))

    def tip(self, session_id: str) -> str:
        """Where the conversation goes on from this session."""
        return lineage.tip(self._family(session_id), session_id)

    def resume_target(self, session_id: str) -> str:
        """Which session to open to go on with this one: the last of the conversation that has messages."""
        return lineage.resume_target(self._family(session_id), session_id)

    def next_title(self, title: str, scope: Scope | None = None) -> str:
        """The title, or the next one of its kind that is free: "Name", "Name #2"."""
        self._alive()
        return self._free_title(sanitized(title) or "Untitled", self._scope(scope, None))

    def stats(self) -> TranscriptStats:
        self._alive()
        return self._rows.stats()

    def list(
        self,
        which: SessionFilter | None = None,
        *,
        source: str | None = None,
        project: str | None = None,
        archived: bool | None = False,
        search: str | None = None,
        delegated: bool | None = False,
        limit: int = 20,
        offset: int = 0,
    ) -> Sessions:
        """Conversations as one line each, the last active first: tip's id and title, first session's start, all counts.

        `which` may say more than the keywords; it then replaces them.
        """
        self._alive()
        chosen = which or SessionFilter(
            source=source, project=project, archived=archived, search=search, delegated=delegated
        )
        limit, offset = given.number("The limit", limit), given.number("The offset", offset)
        wanted = self._queries.recent(given.session_filter(chosen), limit, offset)
        members: dict[str, list[SessionInfo]] = {conversation: [] for conversation in wanted}
        for session in self._queries.of_conversations(wanted):
            members[session.conversation].append(session)
        return [lineage.one_line(sessions) for sessions in members.values() if sessions]

    # ── inside ──

    def _add(self, session: SessionInfo, wish: str | None, system_prompt: str | None) -> str:
        title = wish
        prompts = {} if system_prompt is None else {session.id: system_prompt}
        while True:
            if wish is not None:
                title = self._free_title(title or wish, session.scope)
            try:
                self._sessions.add([replace(session, title=title)], prompts)
            except StoreChanged:
                if self._sessions.get([session.id], deleted=True):
                    raise UsageError(
                        f"There is a session {session.id} already.", hint="Leave session_id out, or choose another."
                    ) from None
                if wish is None:
                    raise
            else:
                return session.id

    def _free_title(self, title: str, scope: Scope) -> str:
        while True:
            taken = [name for name, _ in self._queries.titles(base_of(title), scope)]
            free = title if title not in taken else next_title(title, taken)
            if free == title or not self._queries.titles(free, scope):
                return free
            title = free

    def _scope(self, scope: Scope | None, before: SessionInfo | None) -> Scope:
        if scope is None and before is not None:
            return before.scope
        scope = given.kind("The scope of a session", scope or Scope(), Scope)
        return scope if scope.profile else replace(scope, profile=self._profile)

    def _flag(self, session_id: str, first: int, last: int, old: Any, new: Any) -> int:
        count = self._rows.hide(session_id, first, last, old, new)
        if count:
            opening, _ = self._rows.edges(session_id, _OPENING, None, ("user",))
            self._sessions.update([session_id], {"preview": preview_of(opening)})
        return count

    def _family(self, session_id: str) -> dict[str, SessionInfo]:
        return lineage.whole(self.conversation(session_id))

    def _known(self, session_id: str) -> SessionInfo:
        info = self.get(session_id)
        if info is None:
            raise unknown(session_id)
        return info
