"""Episodic memory as everybody uses it: `h.episodes`.

A conversation that ends is read once, bounded, and becomes one episode and one state; when it goes on and ends again,
they are made again. No model is needed; `improve` takes what one proposes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, get_args

from herma.episodes.aside import Aside
from herma.episodes.finding import Finder
from herma.episodes.shown import digest, state_text
from herma.episodes.similar import Language
from herma.episodes.unended import Unended
from herma.episodes.value import least_valuable
from herma.episodes.verdict import Verdict, verdicts
from herma.errors import StoreChanged, UsageError
from herma.ports.episodes import (
    SOURCES_WITHOUT,
    EpisodeFilter,
    EpisodeLookup,
    EpisodeRows,
    Glimpses,
    StateRows,
)
from herma.safety.scan import scan
from herma.types import Scope, SessionInfo
from herma.types.episodes import LONGEST_RESULT, Digest, Episode, EpisodeHit, Forgotten, Outcome, SessionState

if TYPE_CHECKING:
    from herma.ports.vectors import VectorIndex

Found: TypeAlias = list[Episode]
Hits: TypeAlias = list[EpisodeHit]
Digests: TypeAlias = list[Digest]
FIRST, LAST, AT_MOST = 40, 360, 4_500
"""Messages from the beginning and from the end of a conversation that are read, and characters of each."""
MOST = 10_000
_YEAR_10000 = 253_402_300_800.0
DRAIN = 5.0
"""Seconds that a question waits for episodes that are being made."""
_AT_A_TIME = 200
_OPENING = 2.0
"""The same for a session that is being opened: it must not hang on a database that is busy."""
_LATEST = 40
"""Of a project, and of all, that are looked at for the best to show."""


@dataclass(frozen=True, slots=True)
class Tables:
    """Where everything is kept."""

    rows: EpisodeRows
    lookup: EpisodeLookup
    states: StateRows
    glimpses: Glimpses


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What making episodes anew came to."""

    looked_at: int = 0
    made: int = 0
    empty: int = 0


class _Ended(NamedTuple):
    """A conversation that ended: where, and why."""

    conversation: str
    folder: str
    reason: str


class Episodes:
    """Finished conversations of one home."""

    def __init__(
        self,
        tables: Tables,
        *,
        profile: str = "",
        most: int = MOST,
        language: Language | None = None,
        vectors: Callable[[], VectorIndex | None] = lambda: None,
        clock: Callable[[], float] = time.time,
        alive: Callable[[], None] = lambda: None,
        judged: Callable[[str, Verdict], None] = lambda _name, _verdict: None,
    ) -> None:
        """`judged` is told how skills did that were read in a conversation."""
        self._rows = tables.rows
        self._lookup = tables.lookup
        self._states = tables.states
        self._glimpses = tables.glimpses
        self._profile = profile
        self._most = most
        self._finder = Finder(self._rows, self._lookup, language or Language(), vectors, profile=profile, clock=clock)
        self._clock = clock
        self._check = alive
        self._judged = judged
        self.unended = Unended(self._glimpses, clock)
        """Conversations whose program was killed; told which ones are open here."""
        self._aside: Aside[_Ended] = Aside(lambda ended: self._record(*ended), "herma-episodes")

    # ── making ──

    def record_later(self, conversation: str, *, folder: str = "", reason: str = "") -> None:
        """Make or renew an episode in the background; whoever asks for episodes gets it."""
        self._aside.put(_Ended(conversation, folder, reason))

    def wait(self, timeout: float = DRAIN) -> bool:
        """Until everything that ended has its episode. → False when that took too long."""
        return self._aside.wait(timeout)

    @property
    def trouble(self) -> str:
        """Why the last episode could not be made; empty where none failed."""
        return self._aside.trouble

    def record(self, conversation: str, *, folder: str = "", reason: str = "") -> Episode | None:
        """Make or renew the episode and the state of a conversation. → the episode; None where there was nothing in it.

        `reason` is why its last session ended, where the caller knows before it is written down.
        """
        self._alive()
        return self._record(conversation, folder, reason)

    def _record(self, conversation: str, folder: str, reason: str) -> Episode | None:
        from herma.episodes.build import build, merged  # loaded when one is made: beginning a session only reads
        from herma.episodes.state import snapshot
        from herma.episodes.steps import steps_of

        sessions = self._glimpses.sessions(conversation)
        if not sessions or not makes_episodes(sessions[0]):
            return None
        conversation = sessions[0].conversation
        messages = self._glimpses.glimpse(conversation, FIRST, LAST, AT_MOST)
        if not messages:
            self._rows.remove(conversation)
            return None
        last = sessions[-1]
        info = replace(last, end_reason=reason or last.end_reason)
        now = max(self._clock(), last.last_active)
        steps = steps_of(messages)
        state = snapshot(messages, info, at=now, folder=folder or last.folder, branch=last.branch, steps=steps)
        self._states.put_state(state or SessionState(conversation, last.id, last.scope, now))  # looked at, once
        made = build(messages, info, steps)
        known = self._rows.of_conversation(conversation)
        if made is None:
            if known is not None:  # everything in it was taken back
                self._rows.remove(conversation)
            return None
        alone = sessions[0].reason == "branch"  # it begins like another, which it does not outdate
        return self._put(merged(_kept_by_model(made, known), known), known, alone=alone)

    def improve(self, conversation: str, by_model: Callable[[Episode], Episode]) -> Episode | None:
        """Let a model say better what an episode was. Only what is said in words is taken over, and only if it scans
        clean; what is counted (tools, times, messages) stays as it was. → the episode now; None where there is none.
        """
        self._alive()
        known = self._rows.of_conversation(conversation)
        if known is None:
            return None
        proposed = by_model(known)
        if not isinstance(proposed, Episode):
            raise UsageError(f"A model's account of an episode is an Episode, not {type(proposed).__name__}.")
        texts = {
            "task": proposed.task[:300],
            "result": proposed.result[:LONGEST_RESULT],
            "error": proposed.error[:200],
            "remedy": proposed.remedy[:300],
            "category": proposed.category[:40],
        }
        lines = {name: " ".join(text.split()) for name, text in texts.items()}
        clean = {name: text for name, text in lines.items() if text and not scan(text)}
        outcome = proposed.outcome if proposed.outcome in get_args(Outcome) else known.outcome
        why = known.why if scan(proposed.why) else " ".join(proposed.why[:200].split())
        better = replace(known, outcome=outcome, why=why, built_by="model", **clean)  # type: ignore[arg-type]
        return self._put(better, known)

    def rebuild(
        self,
        conversations: Sequence[str] | None = None,
        *,
        everything: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> Rebuilt:
        """Make episodes for these conversations, or for all that have none yet or went on since; with `everything`,
        for all there are.
        """
        self._alive()
        wanted = self._due(everything=everything) if conversations is None else conversations
        made = empty = 0
        for done, conversation in enumerate(wanted, 1):
            try:
                one = self.record(conversation)
            except StoreChanged:  # deleted while this went on
                one = None
            made, empty = made + (one is not None), empty + (one is None)
            if progress is not None:
                progress(done, len(wanted))
        return Rebuilt(len(wanted), made, empty)

    # ── finding ──

    def list(
        self,
        *,
        scope: Scope | None = None,
        project: str | None = None,
        outcome: Outcome | None = None,
        category: str | None = None,
        archived: bool | None = False,
        limit: int = 20,
        offset: int = 0,
    ) -> Found:
        """The newest first, of everybody in this home or of one scope's user."""
        self._alive()
        user = None if scope is None else scope.user
        which = EpisodeFilter(self._profile, user, project, outcome, category, archived)
        return list(self._rows.select(which, max(limit, 0), max(offset, 0)))

    def get(self, episode: int | str) -> Episode | None:
        """One episode, by its number or by the id of its conversation."""
        self._alive()
        if isinstance(episode, int):
            return self._rows.get([episode]).get(episode)
        return self._rows.of_conversation(episode)

    def search_similar(self, task: str, limit: int = 5, *, scope: Scope | None = None, not_of: str = "") -> Hits:
        """Earlier work on the like of this, the nearest first: by words and, with an embedder, by meaning.

        Each path gives twice as many candidates as are wanted. `not_of` leaves a conversation out.
        """
        self._alive()
        if not isinstance(task, str):
            raise UsageError(f"A task is text, not {type(task).__name__}.", hint='For example: "fix the build".')
        return self._finder.similar(task, limit, scope.user if scope else "", not_of)

    def newest(self, scope: Scope, limit: int = _LATEST) -> Found:
        """The latest live ones of this user that nothing newer stands for: of the project, then of all."""
        self._alive(_OPENING)
        of_project = EpisodeFilter(self._profile, scope.user, scope.project, superseded=False)
        of_all = EpisodeFilter(self._profile, scope.user, superseded=False)
        found = [*self._rows.select(of_project, limit), *self._rows.select(of_all, limit)]
        return list({one.id: one for one in found}.values())

    def conversation_of(self, info: SessionInfo) -> str:
        """Which conversation a session belongs to, also where it has just gone on and nothing of it is stored yet."""
        self._check()
        before = info.parent if info.reason in ("resume", "compression") and info.parent else info.id
        sessions = self._glimpses.sessions(before)
        return sessions[0].conversation if sessions else info.conversation

    def used(self, episodes: Sequence[Episode]) -> None:
        """Note that a model was shown these."""
        if episodes:
            self._rows.mark([one.id for one in episodes], used=self._clock())

    # ── states ──

    def state(self, conversation: str) -> SessionState | None:
        """Where the work stood when a conversation was last left: by its id, or by that of any of its sessions."""
        self._alive()
        return self.unended.of(conversation, self._states.state_of(conversation))

    def left_open(self, scope: Scope, *, not_of: str = "") -> SessionState | None:
        """The state in which the last conversation of this project was left, or broke off, if there is something to go
        on with."""
        self._alive(_OPENING)
        where = replace(scope, profile=self._profile)
        found = self.unended.newest(where, self._states.newest_state(where, not_of=not_of), not_of)
        return found if found is not None and found.unfinished else None

    @staticmethod
    def describe(state: SessionState) -> str:
        """A state in lines for people and models; nothing in it that the scanner objects to."""
        return state_text(state)

    # ── forgetting ──

    def forget(self, *, most: int | None = None, ids: Sequence[int] | None = None, dry_run: bool = False) -> Forgotten:
        """Put the least valuable away, or these: they leave search and prompts, and stay in the digest of a month."""
        self._alive()
        if ids is not None:
            return self._put_away(ids, dry_run=dry_run)
        limit = self._most if most is None else max(most, 0)
        return self._put_away(least_valuable(self._lookup.weights(), limit, self._clock()), dry_run=dry_run)

    def _put_away(self, chosen: Sequence[int], *, dry_run: bool) -> Forgotten:
        known = self._rows.get(chosen)
        episodes = tuple(known[number] for number in chosen if number in known and known[number].archived is None)
        if not dry_run:
            for at in range(0, len(episodes), _AT_A_TIME):
                self._rows.mark([one.id for one in episodes[at : at + _AT_A_TIME]], archived=self._clock())
        months: dict[str, Found] = {}
        for one in episodes:
            months.setdefault(_month(one.ended), []).append(one)
        digests = tuple(digest(month, sorted(found, key=_by_time)) for month, found in sorted(months.items()))
        left = self._lookup.live_count() - (len(episodes) if dry_run else 0)
        return Forgotten(episodes, digests, left, dry_run)

    def restore(self, ids: Sequence[int]) -> Found:
        """Take episodes out of the archive again. → those that were in it."""
        self._alive()
        known = self._rows.get(ids)
        away = [one for one in known.values() if one.archived is not None]
        self._rows.unarchive({one.id: self._finder.terms(one) for one in away}, self._clock())
        return list(self._rows.get([one.id for one in away]).values())

    def digests(self, *, user: str | None = None) -> Digests:
        """What was put away, a few lines per month, newest month first."""
        self._alive()
        return [
            digest(month, self._lookup.archived_in(month, self._profile, user))
            for month, _ in self._lookup.months(self._profile, user)
        ]

    def count(self) -> int:
        """How many are live."""
        self._alive()
        return self._lookup.live_count()

    # ── inside ──

    def _alive(self, patience: float = DRAIN) -> None:
        """Before every answer: the memory is open, and what has just ended is in it."""
        self._check()
        self._aside.wait(patience)

    def _put(self, episode: Episode, known: Episode | None, *, alone: bool = False) -> Episode:
        from herma.episodes.task import task_key

        stamped = replace(episode, updated=self._clock())
        key = f"{task_key(stamped.task)}\n{stamped.conversation}" if alone else task_key(stamped.task)
        kept = self._rows.put(stamped, key, self._finder.terms(stamped))
        for skill, verdict in verdicts(known, kept).items():
            self._judged(skill, verdict)
        over = self._lookup.live_count() - self._most
        if over > 0 and over >= max(1, self._most // 100):  # not one by one: the weights of all are read
            self._put_away(least_valuable(self._lookup.weights(), self._most, self._clock()), dry_run=False)
        return kept

    def _due(self, *, everything: bool) -> Sequence[str]:
        found: tuple[str, ...] = ()
        while some := self._glimpses.without_episode(_AT_A_TIME, found[-1] if found else "", everything):
            found += tuple(some)
        return found


def makes_episodes(first: SessionInfo) -> bool:
    """Which conversations become episodes: what the user's agent does, and what the clock starts.

    What was delegated is a step of whoever delegated it, and a review is about another conversation.
    """
    return first.reason != "delegation" and first.source not in SOURCES_WITHOUT


def _kept_by_model(made: Episode, known: Episode | None) -> Episode:
    """What a model said stays, unless the conversation went on since."""
    if known is None or known.built_by != "model" or made.last_message > known.last_message:
        return made
    words = ("task", "outcome", "why", "result", "error", "remedy", "category", "built_by")
    return replace(made, **{name: getattr(known, name) for name in words})


def _month(at: float) -> str:
    """In UTC, as the database has it; an import may say any time."""
    return time.strftime("%Y-%m", time.gmtime(at)) if 0 <= at < _YEAR_10000 else "unknown"


def _by_time(episode: Episode) -> tuple[float, int]:
    return episode.ended, episode.id
