"""Deleting with a way back: sessions are marked, hidden everywhere, and purged when the grace period is over."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from herma.configkey import BY_SOURCE
from herma.errors import ConfigError, StoreChanged, UsageError
from herma.ports import SessionQueries, SessionRows
from herma.transcript.lineage import delegated, delegators, one_line
from herma.transcript.titles import next_title
from herma.types import Deletion, Scope, SessionFilter, SessionInfo

GRACE_DAYS = 7.0
DAY = 86_400.0
_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class Keeping:
    """For how many days of quiet conversations are kept: by source, and all others. Zero is for ever."""

    days: float = 0.0
    by_source: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def read(days: float, by_source: str) -> Keeping:
        """From configuration: `cron=30, subagent=7`."""
        try:
            return Keeping(days, {source: number for source, number, _ in BY_SOURCE.read(by_source)})
        except ValueError as exc:
            raise ConfigError(
                f"retention.by_source has {str(exc)!r}, which is not a source and a number of days.",
                hint="For example: herma config set retention.by_source 'cron=30, subagent=7'",
            ) from exc


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
        oldest_first = sorted(chosen.values(), key=lambda session: (session.started, session.id))
        return Deletion(tuple(oldest_first), messages, now + self._grace, dry_run)

    def prune(self, which: SessionFilter, older_than_days: float, *, ended_only: bool, dry_run: bool) -> Deletion:
        """Conversations of which a session matches, and every session has been quiet (and over) for so long."""
        quiet = self._clock() - older_than_days * DAY
        if which.active_before is not None:
            quiet = min(quiet, which.active_before)

        def is_over(one: SessionInfo) -> bool:
            return one.last_active <= quiet and (one.ended is not None or not ended_only)

        return self.delete(self._conversations(which, quiet, is_over), whole=False, dry_run=dry_run)

    def expire(self, keeping: Keeping, *, dry_run: bool = False) -> Deletion:
        """Delete what has been quiet for longer than it is kept. What is archived stays, and a conversation that went
        through several sources stays as long as any of them is kept.
        """
        now = self._clock()

        def is_over(one: SessionInfo) -> bool:
            days = keeping.by_source.get(one.source, keeping.days)
            return days > 0 and one.last_active <= now - days * DAY and not one.archived

        rules = [(SessionFilter(source=source, archived=False), days) for source, days in keeping.by_source.items()]
        rules.append((SessionFilter(exclude_sources=tuple(keeping.by_source), archived=False), keeping.days))
        chosen: dict[str, None] = {}
        for which, days in rules:
            if days > 0:
                chosen |= dict.fromkeys(self._conversations(which, now - days * DAY, is_over))
        return self.delete(list(chosen), whole=False, dry_run=dry_run)

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
        chosen |= {one.id: one for one in delegated(waiting.values(), list(chosen))}
        self._bring_back(list(chosen.values()), free_title)
        return list(self._sessions.get(list(chosen)).values())

    def purge_expired(self) -> list[SessionInfo]:
        """Remove for good what has waited out the grace period. → what is gone."""
        expired = list(self._queries.deleted(self._clock() - self._grace))
        for session in expired:
            self._sessions.purge(session.id)
        return expired

    def _conversations(self, which: SessionFilter, quiet: float, is_over: Callable[[SessionInfo], bool]) -> list[str]:
        """The sessions of conversations of which one matches, all are over, and nothing delegated was active lately."""
        conversations: dict[str, list[SessionInfo]] = defaultdict(list)
        found = self._queries.matching(replace(which, active_before=quiet))
        for session in self._queries.of_conversations(list(dict.fromkeys(session.conversation for session in found))):
            conversations[session.conversation].append(session)
        over = {
            conversation: members
            for conversation, members in conversations.items()
            if all(map(is_over, members)) and is_within(which, members)
        }
        together = {one.id: one for members in over.values() for one in members}
        together |= {one.id: one for one in self._delegated(together)}
        for session in together.values():
            if session.last_active > quiet:
                for conversation in delegators(together, session.id):
                    over.pop(conversation, None)
        return [session.id for members in over.values() for session in members]

    def _bring_back(self, chosen: Sequence[SessionInfo], free_title: Callable[[str, Scope], str]) -> None:
        """All of them in one step; a title that is somebody else's by now gets the next number."""
        for attempt in range(1, _ATTEMPTS + 1):
            taken: dict[tuple[str, str], set[str]] = defaultdict(set)
            for session in chosen:
                if session.title is None:
                    continue
                others = taken[session.scope.profile, session.scope.user]
                title = free_title(session.title, session.scope)
                while title in others:
                    title = free_title(next_title(title, others), session.scope)
                others.add(title)
                if title != session.title:
                    self._sessions.update([session.id], {"title": title})
            try:
                self._sessions.update([session.id for session in chosen], {"deleted": None})
            except StoreChanged:  # somebody took a title at this moment
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

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


def is_within(which: SessionFilter, conversation: Sequence[SessionInfo]) -> bool:
    """Whether a conversation is no more than a filter allows, taken as a whole: one small session does not make a long
    conversation small, nor one from elsewhere a conversation that is to be left out.
    """
    line = one_line(conversation)
    tokens = sum(getattr(line.usage, name) for name in ("input", "output", "cache_read", "cache_write", "reasoning"))
    bounds = (
        (line.message_count, which.max_messages),
        (line.tool_call_count, which.max_tool_calls),
        (tokens, which.max_tokens),
        (line.usage.cost_usd, which.max_cost),
    )
    return (
        all(most is None or has <= most for has, most in bounds)
        and not any(one.source in which.exclude_sources for one in conversation)
        and all(which.archived in (None, one.archived) for one in conversation)
    )
