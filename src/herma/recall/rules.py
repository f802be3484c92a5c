"""Which messages may be shown. Each rule that leaves something out is counted, and comes with its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from herma.ports import Head, Standing
from herma.ports.search import Admitted
from herma.recall.dates import Span
from herma.types import Dropped, Scope, SessionInfo

HIDDEN_SOURCES = frozenset(("subagent", "tool", "kanban"))
"""Sessions that no person held: their words come back in the session that started them."""
DEMOTED_SOURCES = frozenset(("cron",))
"""Shown after all others: what runs every hour says the same things every hour."""

REMEDIES = {
    "deleted": "herma sessions undelete brings a deleted session back.",
    "rewound": "They were taken back by a rewind; herma sessions show --hidden has them.",
    "archived": "Search with include_archived.",
    "hidden source": "Ask for them by source:, for example source:subagent.",
    "current conversation": "They are in the conversation at hand: look above.",
    "session": "Leave out session:.",
    "source": "Leave out source:.",
    "project": "Leave out project:.",
    "role": "Leave out role:.",
    "date": "Leave out the date, or name a longer time.",
}
OTHERS = frozenset(("another user", "another profile"))
"""What belongs to others is not even counted: the number would say whether they ever used a word."""
CHOSEN = ("date", "role", "source", "project", "session")
"""Rules that the query itself asked for, in the order in which they are given up when nothing is left."""


@dataclass(frozen=True, slots=True)
class Filters:
    """What is asked for, and by whom. `live` are the sessions whose messages the model has before it anyway."""

    roles: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    projects: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    excluded: tuple[tuple[str, str], ...] = ()
    """What must not hold of any: a rule, and the value that is not wanted."""
    dates: tuple[Span, ...] = ()
    scope: Scope | None = None
    current: str | None = None
    live: frozenset[str] = frozenset()
    include_archived: bool = False

    @property
    def narrow(self) -> bool:
        """Whether much of what matches may be left out."""
        chosen = self.roles or self.sources or self.projects or self.sessions or self.dates or self.excluded
        return bool(chosen or self.scope or self.current)

    def against(self, head: Head, session: SessionInfo | Standing | None) -> str:
        """The first rule that keeps a message out, or nothing."""
        return self._withheld(head, session) or self._unwanted(head, session)

    def _withheld(self, head: Head, session: SessionInfo | Standing | None) -> str:
        if session is None:
            return "deleted"
        if self.scope and session.scope.user != self.scope.user:
            return "another user"
        if self.scope and self.scope.profile and session.scope.profile not in ("", self.scope.profile):
            return "another profile"
        if session.deleted is not None:
            return "deleted"
        if head.hidden == "rewound":
            return "rewound"
        if session.archived and not self.include_archived:
            return "archived"
        if session.source in HIDDEN_SOURCES and not _is_one(session.source, self.sources):
            return "hidden source"
        if session.conversation == self.current and not self.left(head):
            return "current conversation"
        return ""

    def _unwanted(self, head: Head, session: SessionInfo | Standing | None) -> str:
        if session is None:
            return ""
        if self.sessions and session.id not in self.sessions and session.conversation not in self.sessions:
            return "session"
        if self.sources and not _is_one(session.source, self.sources):
            return "source"
        if self.projects and not any(same_project(project, session.scope.project) for project in self.projects):
            return "project"
        if self.roles and head.role not in self.roles:
            return "role"
        if not all(span.covers(head.timestamp) for span in self.dates):
            return "date"
        return next((rule for rule, value in self.excluded if _has(rule, value, head, session)), "")

    def without(self, *rules: str) -> Filters:
        """The same, with rules given up that the query asked for."""
        return replace(
            self,
            dates=() if "date" in rules else self.dates,
            roles=() if "role" in rules else self.roles,
            sources=() if "source" in rules else self.sources,
            projects=() if "project" in rules else self.projects,
            sessions=() if "session" in rules else self.sessions,
            excluded=tuple(one for one in self.excluded if one[0] not in rules),
        )

    def admitted(self) -> Admitted:
        """Which messages may pass, as far as that is known without looking at them."""
        elsewhere = self.without("date", "role", "session")
        spans = [span for span in self.dates if not span.outside]

        def wanted(source: str, scope: Scope, archived: bool) -> bool:
            return not elsewhere.against(
                Head(0, "", "", 0.0, "compacted"), Standing("", source, scope, "", archived, None)
            )

        return Admitted(
            wanted,
            self.sessions,
            max((span.since for span in spans if span.since is not None), default=float("-inf")),
            min((span.before for span in spans if span.before is not None), default=float("inf")),
            self.roles,
        )

    def left(self, head: Head) -> bool:
        """Whether a message of the current conversation has left the model's context."""
        return head.hidden == "compacted" or head.session_id not in self.live


def _is_one(source: str, sources: Sequence[str]) -> bool:
    return source in sources or any(source.casefold() == one.casefold() for one in sources)


def _has(rule: str, value: str, head: Head, session: SessionInfo | Standing) -> bool:
    match rule:
        case "source":
            return _is_one(session.source, (value,))
        case "project":
            return same_project(value, session.scope.project)
        case "role":
            return head.role == value
        case _:
            return value in (session.id, session.conversation)


def same_project(wanted: str, project: str) -> bool:
    """The project itself, its last name, or a folder above it."""
    wanted, project = wanted.rstrip("/").casefold(), project.rstrip("/").casefold()
    return project == wanted or project.startswith(wanted + "/") or project.rpartition("/")[2] == wanted


def live_sessions(current: str, members: Sequence[SessionInfo]) -> frozenset[str]:
    """The sessions of a conversation whose text is still before the model: back to the last compression.

    Sessions beside this line count as live too: they are the same conversation, told another way.
    """
    by_id = {member.id: member for member in members}
    left: set[str] = set()
    compressed = False
    seen: set[str] = set()
    at = by_id.get(current)
    while at is not None and at.id not in seen:
        seen.add(at.id)
        if compressed:
            left.add(at.id)
        compressed = compressed or at.reason == "compression"
        at = by_id.get(at.parent or "")
    return frozenset({current, *by_id} - left)


@dataclass(slots=True)
class Sifted:
    """What passed, in the given order, and how much each rule left out."""

    kept: list[Head] = field(default_factory=list)
    dropped: dict[str, int] = field(default_factory=dict)

    def report(self) -> tuple[Dropped, ...]:
        return tuple(Dropped(rule, count, REMEDIES[rule]) for rule, count in self.dropped.items())


def sift(heads: Iterable[Head], sessions: Mapping[str, Standing], filters: Filters) -> Sifted:
    sifted = Sifted()
    for head in heads:
        rule = filters.against(head, sessions.get(head.session_id))
        if not rule:
            sifted.kept.append(head)
        elif rule not in OTHERS:
            sifted.dropped[rule] = sifted.dropped.get(rule, 0) + 1
    return sifted
