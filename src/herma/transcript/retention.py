"""Deleting with a way back: sessions are marked, hidden everywhere, and purged when the grace period is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from herma.errors import ConfigError, StoreChanged, UsageError
from herma.ports import SessionQueries, SessionRows
from herma.transcript.lineage import descendants
from herma.types import Deletion, Scope, SessionFilter, SessionInfo

GRACE_DAYS = 7.0
DAY = 86_400.0


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how many days of quiet conversations are kept: by source, and all others. Zero is for ever."""

    days: float = 0.0
    by_source: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def read(days: float, by_source: str) -> Keeping:
        """From configuration: `cron=30, subagent=7`."""
        rules: dict[str, float] = {}
        for rule in filter(None, map(str.strip, by_source.split(","))):
            source, _, number = (part.strip() for part in rule.partition("="))
            try:
                rules[source] = float(number)
            except ValueError:
                source = ""
            if not source or not 0 <= rules[source] < float("inf"):
                raise ConfigError(
                    f"retention.by_source has {rule!r}, which is not a source and a number of days.",
                    hint="For example: herma config set retention.by_source 'cron=30, subagent=7'",
                )
        return Keeping(days, rules)


class Retention:
    """What becomes of sessions that nobody wants any more."""

    def __init__(
        self, sessions: SessionRows, queries: SessionQueries, *, grace_days: float, clock: Callable[[], float]
    ) -> None:
        self._sessions = sessions
        self._queries = queries
        self._grace = grace_days * DAY
        self._clock = clock

    def delete(self, session_ids: Sequence[str], *, whole: bool, dry_run: bool = False) -> Deletion:
        """Mark sessions, or the `whole` conversations they belong to, and everything delegated from them."""
        chosen = self._sessions.get(session_ids)
        if whole:
            conversations = {session.conversation for session in chosen.values()}
            chosen = {session.id: session for session in self._queries.of_conversations(sorted(conversations))}
        for session in self._delegated(chosen):
            chosen.setdefault(session.id, session)
        now = self._clock()
        if chosen and not dry_run:
            self._sessions.update(list(chosen), {"deleted": now})
        messages = sum(session.message_count for session in chosen.values())
        return Deletion(tuple(chosen.values()), messages, now + self._grace, dry_run)

    def prune(self, which: SessionFilter, older_than_days: float, *, ended_only: bool, dry_run: bool) -> Deletion:
        """Conversations of which a session matches, and every session has been quiet (and over) for so long."""
        quiet = self._clock() - older_than_days * DAY
        found = self._queries.matching(replace(which, active_before=min(which.active_before or quiet, quiet)))
        conversations: dict[str, list[SessionInfo]] = defaultdict(list)
        for session in self._queries.of_conversations(list(dict.fromkeys(session.conversation for session in found))):
            conversations[session.conversation].append(session)
        chosen = [
            session.id
            for members in conversations.values()
            if all(one.last_active <= quiet and (one.ended is not None or not ended_only) for one in members)
            for session in members
        ]
        return self.delete(chosen, whole=False, dry_run=dry_run)

    def expire(self, keeping: Keeping, *, dry_run: bool = False) -> Deletion:
        """Delete what has been quiet for longer than it is kept, source by source. What is archived stays."""
        rules = [(SessionFilter(source=source, archived=False), days) for source, days in keeping.by_source.items()]
        rules.append((SessionFilter(exclude_sources=tuple(keeping.by_source), archived=False), keeping.days))
        done = [self.prune(which, days, ended_only=False, dry_run=dry_run) for which, days in rules if days > 0]
        sessions = {session.id: session for deletion in done for session in deletion.sessions}
        messages = sum(session.message_count for session in sessions.values())
        return Deletion(tuple(sessions.values()), messages, self._clock() + self._grace, dry_run)

    def undelete(self, session_ids: Sequence[str], free_title: Callable[[str, Scope], str]) -> list[SessionInfo]:
        """Unmark sessions, the rest of their conversations, and what was delegated from them."""
        expired = self._clock() - self._grace  # these may be half purged
        waiting = {one.id: one for one in self._queries.deleted(2**62) if (one.deleted or 0) >= expired}
        for session_id in session_ids:
            if session_id not in waiting:
                raise UsageError(
                    f"There is no deleted session {session_id!r}.",
                    hint="It may have been purged already, or never deleted.",
                )
        conversations = {waiting[session_id].conversation for session_id in session_ids}
        chosen = {one.id: one for one in waiting.values() if one.conversation in conversations}
        children = _by_parent(waiting.values())
        for session_id in list(chosen):
            chosen |= {child.id: child for child in descendants(children, session_id)}
        for session in chosen.values():
            self._bring_back(session, free_title)
        return list(self._sessions.get(list(chosen)).values())

    def purge_expired(self) -> list[SessionInfo]:
        """Remove for good what has waited out the grace period. → what is gone."""
        expired = list(self._queries.deleted(self._clock() - self._grace))
        for session in expired:
            self._sessions.purge(session.id)
        return expired

    def _bring_back(self, session: SessionInfo, free_title: Callable[[str, Scope], str]) -> None:
        try:
            self._sessions.update([session.id], {"deleted": None})
        except StoreChanged:  # its title is somebody else's by now
            title = free_title(session.title or "", session.scope)
            self._sessions.update([session.id], {"title": title})
            self._sessions.update([session.id], {"deleted": None})

    def _delegated(self, chosen: dict[str, SessionInfo]) -> list[SessionInfo]:
        """Everything delegated from these sessions, however deep, and how it went on, each once."""
        found: dict[str, SessionInfo] = {}
        parents = list(chosen)
        while parents:
            begun = [child.conversation for child in self._queries.children(parents) if child.reason == "delegation"]
            members = self._queries.of_conversations(list(dict.fromkeys(begun)))
            new = {one.id: one for one in members if one.id not in found and one.id not in chosen}
            found |= new
            parents = list(new)
        return list(found.values())


def _by_parent(sessions: Iterable[SessionInfo]) -> dict[str, list[SessionInfo]]:
    children: dict[str, list[SessionInfo]] = defaultdict(list)
    for session in sessions:
        if session.parent:
            children[session.parent].append(session)
    return children
