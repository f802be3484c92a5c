"""Transcripts: start, append, end, hide, delete and list sessions; lineage, titles and retention.

A message that `append` returned an id for is on disk. Rewinding and compacting hide; deleting waits for a grace period.
"""

from __future__ import annotations

import re
import time
import unicodedata
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, Unpack

from herma.config import BY_SOURCE
from herma.errors import ConfigError, StoreChanged, UsageError, check_fields, checked
from herma.transcript import messages as given
from herma.transcript.messages import all_from_wire, new_session_id, preview_of, unknown
from herma.transcript.rows import MessageRows, SessionChange, SessionRows
from herma.types import (
    AnyMessage,
    Deletion,
    Message,
    OutsideSpan,
    Reason,
    Scope,
    SessionFilter,
    SessionInfo,
    SessionMetadata,
    TranscriptStats,
    Usage,
)

# Lineage: pure functions over a group of sessions; missing parents and circles do no harm.
#
# A session goes on with its parent's conversation after `resume` and `compression`. A branch, a delegation and anything
# else with a parent begins a conversation of its own.

CONTINUING: frozenset[Reason] = frozenset({"resume", "compression"})
Family: TypeAlias = Mapping[str, SessionInfo]
"""Sessions by their ids."""


def goes_on(session: SessionInfo) -> bool:
    """Return whether it is another part of its parent's conversation."""
    return session.reason in CONTINUING and session.parent is not None and session.parent != session.id


def ancestors(sessions: Family, session_id: str) -> list[str]:
    """Return the session and those it goes on from, newest first, as far as they are here."""
    chain: dict[str, None] = {}
    at: str | None = session_id
    while at is not None and at in sessions and at not in chain:
        chain[at] = None
        at = sessions[at].parent if goes_on(sessions[at]) else None
    return list(chain)


def tip(sessions: Family, session_id: str) -> str:
    """Return where the conversation goes on from here: along the continuation in which something happened last."""
    following: dict[str, list[str]] = defaultdict(list)
    for session in sessions.values():
        if goes_on(session) and not _is_foreign(session, sessions):
            following[session.parent or ""].append(session.id)
    below = {session_id: ""}  # everything that goes on from here, each with what it goes on from, nearest first
    for at in (order := [session_id]):
        fresh = [other for other in following[at] if other not in below]
        below |= dict.fromkeys(fresh, at)
        order += fresh
    onward: dict[str, tuple[tuple[float, float, str], str]] = {}
    for at in reversed(order[1:]):
        happened = newness(sessions[at])
        latest = max(happened, onward[at][0]) if at in onward else happened
        onward[below[at]] = max(onward.get(below[at], (latest, at)), (latest, at))
    at = session_id
    while at in onward:
        at = onward[at][1]
    return at


def _is_foreign(session: SessionInfo, sessions: Family) -> bool:
    """Return whether an import claims to continue a session of our own: following it would replace what we wrote."""
    parent = sessions.get(session.parent or "")
    return session.imported is not None and parent is not None and parent.imported is None


def resume_target(sessions: Family, session_id: str) -> str:
    """Return the session to open to continue this one: the tip, or the last one with messages."""
    end = tip(sessions, session_id)
    for candidate in ancestors(sessions, end):
        if sessions[candidate].message_count:
            return candidate
    return end


def newness(session: SessionInfo) -> tuple[float, float, str]:
    """Return a key that orders sessions by what happened last in them."""
    return session.last_active, session.started, session.id


def whole(conversation: Iterable[SessionInfo]) -> dict[str, SessionInfo]:
    """Return a conversation by ids. A session that continues a deleted one continues the first one instead."""
    sessions = {session.id: session for session in conversation}
    first = _first(sessions.values())
    for session in sessions.values():
        if session is not first and goes_on(session) and session.parent not in sessions:
            sessions[session.id] = replace(session, parent=first.id)
    return sessions


def one_line(conversation: Sequence[SessionInfo]) -> SessionInfo:
    """Return a conversation as one session: its tip, with the start of the first and the counts of all."""
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
    """Return what was delegated from the sessions `begun`, how that went on, and what was delegated from there."""
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


def delegators(sessions: Family, session_id: str) -> list[str]:
    """Return the conversations that a session was delegated from, as far as they are here, the nearest first."""
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


# Titles of sessions: clean, short, unique; "Name", then "Name #2" where a conversation goes on.

LONGEST = 100
_NUMBER = re.compile(r"^(?P<base>.*\S) #(?P<number>[0-9]{1,9})$")


def sanitized(title: str | None) -> str | None:
    """Return a title as it is kept (see `cleaned`), or None if nothing is left of it."""
    if title is None:
        return None
    clean = cleaned(title)
    if len(clean) > LONGEST:
        raise UsageError(
            f"A title has at most {LONGEST} characters; this one has {len(clean)}.", hint="Give a shorter one."
        )
    return clean or None


def cleaned(title: str) -> str:
    """Without control, zero-width and direction characters, white space collapsed; letters with their accents in one
    way only, so that what looks the same is the same.
    """
    hidden = ("Cc", "Cf", "Cs")  # control, format (zero-width, bidirectional), lone surrogates
    visible = "".join(
        " " if char.isspace() else char for char in title if char.isspace() or unicodedata.category(char) not in hidden
    )
    return unicodedata.normalize("NFC", " ".join(visible.split()))


def base_of(title: str) -> str:
    """Return the title without its number."""
    match = _NUMBER.match(title)
    return match["base"] if match else title


def next_title(title: str, taken: Iterable[str]) -> str:
    """Return the title itself if it is free, else its base with the next number; no number counts as the first."""
    base = base_of(title)
    numbers = [number for other in taken if (number := _number(other, base)) is not None]
    if not numbers:
        return base
    ending = f" #{max(numbers) + 1}"
    return base[: LONGEST - len(ending)].rstrip() + ending


def renamed(sessions: Iterable[SessionInfo], free: Callable[[str, Scope], str]) -> dict[str, str]:
    """Return the titles of those sessions that cannot keep their own: it is taken, here or by one before them."""
    taken: dict[tuple[str, str], set[str]] = defaultdict(set)
    found: dict[str, str] = {}
    for session in sessions:
        if session.title is None:
            continue
        others = taken[session.scope.profile, session.scope.user]
        title = free(session.title, session.scope)
        while title in others:
            title = free(next_title(title, others), session.scope)
        others.add(title)
        if title != session.title:
            found[session.id] = title
    return found


def _number(title: str, base: str) -> int | None:
    if title == base:
        return 1
    match = _NUMBER.match(title)
    return int(match["number"]) if match and match["base"] == base else None


# Deleting with a way back: sessions are marked, hidden everywhere, and purged when the grace period is over.

GRACE_DAYS = 7.0
DAY = 86_400.0
_ATTEMPTS = 5


class Keeping(NamedTuple):
    """For how many days inactive conversations are kept: by source, and all others. Zero keeps them."""

    days: float = 0.0
    by_source: Mapping[str, float] = MappingProxyType({})

    @staticmethod
    def read(days: float, by_source: str) -> Keeping:
        """Read the configuration: `cron=30, subagent=7`."""
        try:
            return Keeping(days, dict(BY_SOURCE.read(by_source)))
        except ValueError as exc:
            raise ConfigError(
                f"retention.by_source has {str(exc)!r}, which is not a source and a number of days.",
                hint="For example: herma config set retention.by_source 'cron=30, subagent=7'",
            ) from exc


def is_within(which: SessionFilter, conversation: Sequence[SessionInfo]) -> bool:
    """Return whether a conversation is no more than a filter allows, taken as a whole: one small session does not make
    a long conversation small, nor one from elsewhere a conversation that is to be left out.
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
        and not any(one.source.lower() in map(str.lower, which.exclude_sources) for one in conversation)
        and all(which.archived in (None, one.archived) for one in conversation)
    )


Ids: TypeAlias = list[int]
Messages: TypeAlias = list[Message]
Sessions: TypeAlias = list[SessionInfo]

SPOKEN = ("user", "assistant")
IMPORT = "import"
"""The source of sessions that a program brings in from elsewhere."""
_FAR = given.MOST_ID
_OPENING = 20
"""Messages of the user among which the first one with words is looked for."""


@checked()
class Transcripts:
    """Every session of one home: `h.transcripts`."""

    def __init__(
        self,
        sessions: SessionRows,
        messages: MessageRows,
        *,
        profile: str = "",
        grace_days: float = GRACE_DAYS,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._sessions = sessions
        self._rows = messages
        self.profile = profile
        self._clock = clock
        self._grace = grace_days * DAY

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
        prompt_outside: Sequence[OutsideSpan] | None = None,
        imported: bool | None = None,
        **place: Unpack[SessionMetadata],
    ) -> str:
        """Begin a session. Return its id. A parent without a reason is a continuation of the same conversation.

        `imported`: it comes from elsewhere, by default where the source is "import". Then its text is from outside, it
        is never continued itself, and no time in it is later than now.

        A title that is taken gets the next number; where a titled session goes on or branches, so does its title.
        `place`: provider (who runs the model), chat_type, folder, branch. `prompt_outside`: the parts of the system
        prompt that came from outside.
        """
        if not isinstance(source, str) or not source.strip():
            raise UsageError("A session needs a source.", hint='For example: start("cli").')
        now = self._clock()
        before = self.get(parent) if parent else None
        session = SessionInfo(
            id=given.session_id(session_id) if session_id is not None else new_session_id(now),
            source=source.strip(),
            scope=self._scope(scope, before),
            started=now if started is None else given.moment("When a session began", started),
            imported=now if imported or (imported is None and source.strip() == IMPORT) else None,
            conversation="",
            model=model,
            parent=parent,
            reason=reason or ("resume" if parent else "new"),
            **given.place(place),
        )
        if session.imported is not None:
            session = replace(session, started=min(session.started, now))
        requested = sanitized(title)
        if requested is None and before is not None and session.reason not in ("delegation", "new"):
            requested = before.title
        spans = {} if prompt_outside is None else {session.id: prompt_outside}
        return self._add(session, requested, system_prompt, spans)

    def append(self, session_id: str, messages: Sequence[AnyMessage], *, standing_for: int | None = None) -> Ids:
        """Add messages, all or none of them. Return their ids, increasing. When this returns, they are on disk.

        Where they stand for earlier ones, those up to the message `standing_for` are compacted in the same step.
        """
        now = self._clock()
        converted = all_from_wire(messages, now)
        late = any(one.timestamp > now for one in converted)
        if late and (info := self.get(session_id)) and info.imported is not None:
            converted = [replace(one, timestamp=min(one.timestamp, now)) for one in converted]
        try:
            return list(self._rows.append(session_id, converted, preview=preview_of(converted), compacts=standing_for))
        except KeyError:
            raise unknown(session_id) from None

    def end(self, session_id: str, reason: str = "closed") -> bool:
        """Say that a session is over; the first reason stands. Return whether this call ended it."""
        ended = self._sessions.end(session_id, self._clock(), reason)
        if not ended:
            self._known(session_id)
        return ended

    def reopen(self, session_id: str) -> None:
        """Take back that a session is over."""
        self._known(session_id)
        self._sessions.update([session_id], {"ended": None, "end_reason": None})

    def update(self, session_id: str, *, model: str | None = None, **place: Unpack[SessionMetadata]) -> SessionInfo:
        """Say where a session takes place now: `model`, `provider`, `chat_type`, `folder`, `branch`. Return as it is
        kept.

        Only given fields change, so that values unknown at the start can be filled in later. The values of each
        call are in the ledger, see `Herma.cost`.
        """
        self._known(session_id)
        named = given.place({name: value for name, value in place.items() if value is not None})
        change = SessionChange(**named)  # type: ignore[typeddict-item]
        if model is not None:
            change["model"] = model
        if change:
            self._sessions.update([session_id], change)
        return self._known(session_id)

    def rename(self, session_id: str, title: str | None) -> str | None:
        """Give a session a title that no other conversation has, or none. Return the title as it is kept."""
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

    def record_usage(self, session_id: str, usage: Usage | Mapping[str, Any]) -> None:
        """Add tokens and money to what a session cost: a `Usage`, or what OpenAI or Anthropic said."""
        if not self._sessions.spend(session_id, given.usage(usage)):
            raise unknown(session_id)

    # ── hiding ──

    def rewind(self, session_id: str, message_id: int, *, any_role: bool = False) -> int:
        """Go back to before a message of the user, or with `any_role` of anybody: it and all after it are hidden, not
        deleted. Return how many.
        """
        target = self._rows.by_ids([message_id]).get(message_id)
        if (
            target is None
            or target.session_id != session_id
            or target.hidden
            or (target.role != "user" and not any_role)
        ):
            raise UsageError(
                f"Message {message_id} is not a visible user message of session {session_id}.",
                hint="A session can be rewound to such a message only.",
            )
        return self._flag(session_id, message_id, _FAR, "", "rewound")

    def restore_rewound(self, session_id: str) -> int:
        """Show again what was rewound. Return how many messages."""
        self._known(session_id)
        return self._flag(session_id, 0, _FAR, "rewound", "")

    def compact(self, session_id: str, first: int, last: int) -> int:
        """Hide messages first … last from the context, because a summary stands for them. Search still finds them."""
        self._known(session_id)
        return self._flag(session_id, first, last, "", "compacted")

    def restore_compacted(self, session_id: str) -> int:
        """Show again what was compacted. Return how many messages."""
        self._known(session_id)
        return self._flag(session_id, 0, _FAR, "compacted", "")

    def archive(self, session_id: str, on: bool = True) -> int:
        """Put the whole conversation away, or take it out again. Return how many sessions that are."""
        members = [member.id for member in self.conversation(session_id)]
        return self._sessions.update(members, {"archived": bool(on)})

    # ── deleting ──

    def delete(self, session_ids: str | Sequence[str], *, whole: bool = True, dry_run: bool = False) -> Deletion:
        """Delete sessions, with what they delegated: `whole` conversations, or just these. Undoable until `until`."""
        wanted = _listed(session_ids)
        for session_id in wanted:
            self._known(session_id)
        return self._mark(wanted, whole=whole, dry_run=dry_run)

    def prune(
        self,
        which: SessionFilter | None = None,
        *,
        older_than_days: float = 90,
        ended_only: bool = True,
        dry_run: bool = False,
    ) -> Deletion:
        """Delete conversations that match, of which no session was active lately or, by default, is still open."""
        check_fields(chosen := which or SessionFilter())
        quiet = self._clock() - older_than_days * DAY
        if chosen.active_before is not None:
            quiet = min(quiet, chosen.active_before)

        def is_over(one: SessionInfo) -> bool:
            return one.last_active <= quiet and (one.ended is not None or not ended_only)

        return self._mark(self._quiet(chosen, quiet, is_over), whole=False, dry_run=dry_run)

    def expire(self, keeping: Keeping, *, dry_run: bool = False) -> Deletion:
        """Delete conversations that were quiet for longer than they are kept. Archived ones stay, and a conversation of
        several sources stays as long as any of them is kept.
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
                chosen |= dict.fromkeys(self._quiet(which, now - days * DAY, is_over))
        return self._mark(list(chosen), whole=False, dry_run=dry_run)

    def deleted(self) -> Sessions:
        """Return what can still be brought back, oldest deletion first."""
        return list(self._sessions.deleted(_FAR))

    def undelete(self, session_ids: str | Sequence[str]) -> Sessions:
        """Bring back deleted sessions, with the rest of their conversations and what they delegated."""
        wanted = _listed(session_ids)
        expired = self._clock() - self._grace  # these may be half purged
        waiting = {one.id: one for one in self._sessions.deleted(2**62) if (one.deleted or 0) >= expired}
        for session_id in wanted:
            if session_id not in waiting:
                raise UsageError(
                    f"There is no deleted session {session_id!r}.",
                    hint="It may have been purged already, or never deleted.",
                )
        conversations = {waiting[session_id].conversation for session_id in wanted}
        chosen = {one.id: one for one in waiting.values() if one.conversation in conversations}
        chosen |= {one.id: one for one in delegated(waiting.values(), list(chosen))}
        self._bring_back(list(chosen.values()))
        return list(self._sessions.get(list(chosen)).values())

    def purge_expired(self) -> Sessions:
        """Remove for good what was deleted longer ago than the grace period. Return what is gone."""
        expired = list(self._sessions.deleted(self._clock() - self._grace))
        for session in expired:
            self._sessions.purge(session.id)
        return expired

    # ── reading ──

    def get(self, session_id: str) -> SessionInfo | None:
        return self._sessions.get([session_id]).get(session_id)

    def resolve(self, text: str, *, user: str | None = None) -> str | None:
        """Return the id meant by an id, a title, or a beginning that only one id has. `UsageError` when several are
        meant.

        Of a title and those with a number behind it, the newest. With a `user`, the sessions of all others are not
        there.
        """
        if not text:
            return None
        known = self.get(text)
        if known is not None:
            return text if user in (None, known.scope.user) else None
        title = cleaned(text)
        titled = self._sessions.titles(title, Scope(profile=self.profile, user=user or "")) if title else ()
        if not any(name == title for name, _ in titled):
            found = self._sessions.with_prefix(text, 4, user)
            if len(found) > 1:
                raise UsageError(f"Several sessions begin with {text!r}.", hint=f"For example: {', '.join(found)}.")
            if found:
                return found[0]
        sessions = self._sessions.get([session_id for _, session_id in titled])
        return max(sessions.values(), key=newness).id if sessions else None

    def system_prompt(self, session_id: str) -> str | None:
        return self._sessions.system_prompt(session_id)

    def prompt_outside(self, session_id: str) -> tuple[OutsideSpan, ...] | None:
        """Return the parts of the system prompt that came from outside; None if they were not recorded."""
        return self._sessions.prompt_outside(session_id)

    def messages(
        self, session_id: str, *, include_hidden: bool = False, after: int | None = None, limit: int | None = None
    ) -> Messages:
        """Return what was said, in order; with `include_hidden`, what was rewound or compacted too."""
        found = list(self._rows.of_session(session_id, hidden=include_hidden, after=after, limit=limit))
        if not found:
            self._known(session_id)
        return found

    def around(self, message_id: int, window: int = 5) -> Messages:
        """Return a message and its neighbours, without rewound ones; nothing if there is no such message."""
        return list(self._rows.around(message_id, max(0, window)))

    def bookends(
        self, session_id: str, n: int = 3, *, outside: tuple[int, int] | None = None, roles: Sequence[str] = SPOKEN
    ) -> tuple[Messages, Messages]:
        """Return the first and last `n` messages with text, none inside the ids `outside`, none twice."""
        first, last = self._rows.edges(session_id, max(0, n), outside, roles)
        return list(first), list(last)

    def conversation(self, session_id: str) -> Sessions:
        """Return all sessions of the same conversation, oldest first."""
        conversation = self._known(session_id).conversation
        return self._sessions.members([conversation])[conversation]

    def tip(self, session_id: str) -> str:
        """Return where the conversation goes on from this session."""
        return tip(self._family(session_id), session_id)

    def resume_target(self, session_id: str) -> str:
        """Return which session to open to go on with this one: the last of the conversation that has messages."""
        return resume_target(self._family(session_id), session_id)

    def next_title(self, title: str, scope: Scope | None = None) -> str:
        """Return the title, or the next one of its kind that is free: "Name", "Name #2"."""
        return self._free_title(sanitized(title) or "Untitled", self._scope(scope, None))

    def stats(self) -> TranscriptStats:
        return self._rows.stats()

    def largest(self, limit: int = 5) -> tuple[int, Sequence[tuple[SessionInfo, int]]]:
        """Return bytes of text of all conversations (what was said, tool calls and results, reasoning), and the largest
        of them as one line each, with theirs.
        """
        total, bytes_of = self._rows.largest(limit)
        members = self._sessions.members(bytes_of)
        return total, [(one_line(some), bytes_of[conversation]) for conversation, some in members.items()]

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
        """Return conversations as one line each, the last active first: the tip's id and title, all counts.

        `which` may say more than the keywords; it then replaces them.
        """
        chosen = which or SessionFilter(
            source=source, project=project, archived=archived, search=search, delegated=delegated
        )
        check_fields(chosen)
        wanted = self._sessions.recent(chosen, limit, max(0, offset))
        return [one_line(members) for members in self._sessions.members(wanted).values()]

    # ── inside ──

    def _mark(self, session_ids: Sequence[str], *, whole: bool, dry_run: bool) -> Deletion:
        """Mark sessions, or the `whole` conversations they belong to, and everything delegated from them."""
        chosen = self._sessions.get(session_ids)
        if whole:
            conversations = {session.conversation for session in chosen.values()}
            chosen = {session.id: session for session in self._sessions.of_conversations(sorted(conversations))}
        for session in self._delegated(chosen):
            chosen.setdefault(session.id, session)
        now = self._clock()
        if chosen and not dry_run:
            self._sessions.update(list(chosen), {"deleted": now})
        messages = sum(session.message_count for session in chosen.values())
        oldest_first = sorted(chosen.values(), key=lambda session: (session.started, session.id))
        return Deletion(tuple(oldest_first), messages, now + self._grace, dry_run)

    def _quiet(self, which: SessionFilter, quiet: float, is_over: Callable[[SessionInfo], bool]) -> Sequence[str]:
        """Return the sessions of conversations of which one matches, all are over, and nothing delegated was active."""
        found = self._sessions.matching(replace(which, active_before=quiet))
        over = {
            conversation: members
            for conversation, members in self._sessions.members(one.conversation for one in found).items()
            if all(map(is_over, members)) and is_within(which, members)
        }
        together = {one.id: one for members in over.values() for one in members}
        together |= {one.id: one for one in self._delegated(together)}
        for session in together.values():
            if session.last_active > quiet:
                for conversation in delegators(together, session.id):
                    over.pop(conversation, None)
        return [session.id for members in over.values() for session in members]

    def _bring_back(self, chosen: Sequence[SessionInfo]) -> None:
        """Restore all of them in one step; a title that is taken by now gets the next number."""
        for attempt in range(1, _ATTEMPTS + 1):
            for session_id, title in renamed(chosen, self._free_title).items():
                self._sessions.update([session_id], {"title": title})
            try:
                self._sessions.update([session.id for session in chosen], {"deleted": None})
            except StoreChanged:  # another writer took a title at this moment
                if attempt == _ATTEMPTS:
                    raise
            else:
                return

    def _delegated(self, chosen: Family) -> Sessions:
        """Return everything delegated from these sessions, however deep, and how it went on, each once."""
        found: dict[str, SessionInfo] = {}
        parents = list(chosen)
        while parents:
            begun = [child.conversation for child in self._sessions.children(parents) if child.reason == "delegation"]
            members = self._sessions.of_conversations(list(dict.fromkeys(begun)))
            new = {one.id: one for one in members if one.id not in found and one.id not in chosen}
            found |= new
            parents = list(new)
        return list(found.values())

    def _add(
        self,
        session: SessionInfo,
        requested: str | None,
        system_prompt: str | None,
        outside: Mapping[str, Sequence[OutsideSpan]],
    ) -> str:
        title = requested
        prompts = {} if system_prompt is None else {session.id: system_prompt}
        while True:
            if requested is not None:
                title = self._free_title(title or requested, session.scope)
            try:
                self._sessions.add([replace(session, title=title)], prompts, outside)
            except StoreChanged:
                if self._sessions.get([session.id], deleted=True):
                    raise UsageError(
                        f"There is a session {session.id} already.", hint="Leave session_id out, or choose another."
                    ) from None
                if requested is None:
                    raise
            else:
                return session.id

    def _free_title(self, title: str, scope: Scope) -> str:
        while True:
            taken = [name for name, _ in self._sessions.titles(base_of(title), scope)]
            free = title if title not in taken else next_title(title, taken)
            if free == title or not self._sessions.titles(free, scope):
                return free
            title = free

    def _scope(self, scope: Scope | None, before: SessionInfo | None) -> Scope:
        if scope is None and before is not None:
            return before.scope
        check_fields(scope := scope or Scope())
        return scope if scope.profile else replace(scope, profile=self.profile)

    def _flag(self, session_id: str, first: int, last: int, old: Any, new: Any) -> int:
        count = self._rows.hide(session_id, first, last, old, new)
        if count:
            opening, _ = self._rows.edges(session_id, _OPENING, None, ("user",))
            self._sessions.update([session_id], {"preview": preview_of(opening)})
        return count

    def _family(self, session_id: str) -> dict[str, SessionInfo]:
        return whole(self.conversation(session_id))

    def _known(self, session_id: str) -> SessionInfo:
        info = self.get(session_id)
        if info is None:
            raise unknown(session_id)
        return info


def _listed(session_ids: str | Sequence[str]) -> list[str]:
    return [session_ids] if isinstance(session_ids, str) else [*session_ids]


def origins(transcripts: Transcripts, session_id: str) -> set[str]:
    """Return the ids of all these sessions. A branch begins with copies, so what a summary in it names is older."""
    found: set[str] = set()
    at: str | None = session_id
    while at is not None and at not in found and transcripts.get(at) is not None:
        members = transcripts.conversation(at)
        found |= {member.id for member in members}
        at = next((member.parent for member in members if member.reason == "branch"), None)
    return found


def resumed_chain(transcripts: Transcripts, info: SessionInfo) -> list[SessionInfo]:
    """A session and those that it went on from without a summary, oldest first. A session that goes on from an imported
    one begins with the turns of that."""
    chain = [info]
    while chain[0].reason == "resume" and chain[0].parent:
        parent = transcripts.get(chain[0].parent)
        if parent is None or parent in chain or (parent.imported is None) != (chain[0].imported is None):
            break
        chain.insert(0, parent)
    return chain
