"""Looking back at conversations: its rows, its models, and how it follows sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from herma.errors import ConfigError
from herma.ports.observer import Watcher
from herma.turn.company import Company, Invite
from herma.types import (
    DIVIDES,
    Author,
    CompletedTurn,
    Context,
    MemoryOp,
    MemoryOutcome,
    Scope,
    SessionInfo,
    SessionView,
    Target,
    Who,
)
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.curated import MemoryStore
    from herma.episodes import Episodes
    from herma.ports import ChatModel
    from herma.reflect.gate import Propose
    from herma.reflect.look_back import Window
    from herma.reflect.needs import Policy
    from herma.reflect.reviews import Reviews
    from herma.reflect.watch import Embed, ReviewWatcher
    from herma.settings import MemorySettings, ReviewSettings
    from herma.skills import SkillLibrary
    from herma.tools import Tools
    from herma.transcript import Transcripts
    from herma.wiring.models import Models

_LEARNS: tuple[Context, ...] = ("primary",)
"""Whose sessions are looked back at: not those of subagents and clocks, where nobody says anything about themselves."""


class Whole(Protocol):
    """The opened memory: what looking back needs of it, each part when it is needed."""

    @property
    def memory(self) -> MemoryStore: ...
    @property
    def transcripts(self) -> Transcripts: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def skills(self) -> SkillLibrary: ...
    @property
    def episodes(self) -> Episodes: ...
    @property
    def models(self) -> Models: ...


class Invited(Protocol):
    """What a session's beginning and its first turn need of it."""

    @property
    def memory(self) -> MemoryStore: ...
    @property
    def reviews(self) -> Reviews: ...


def reviews(ground: Ground, whole: Whole) -> Reviews:
    from herma.providers.guard import Trouble
    from herma.reflect.needs import Needs
    from herma.reflect.reviews import Reviews
    from herma.store.sqlite.reviews import SqliteReviews
    from herma.wiring.troubles import written_down

    shown = written_down(ground)
    needs = Needs(
        rows=SqliteReviews(ground.database),
        memory=whole.memory,
        propose=_proposing(ground),
        skills=lambda: whole.skills,
        episodes=lambda: whole.episodes,
        model=lambda purpose: _model(whole.models, purpose),
        why_no_model=lambda: _why_not(whole.models),
        window=lambda name: _window(ground, name),
        load=lambda session: _stored(whole, session),
        clock=ground.clock,
        alive=ground.alive,
        price_of=lambda name: whole.models.price_of(name),  # noqa: PLW0108  models are made when they are needed
        elsewhere=lambda target, scope: _in_tail(whole.memory, target, scope),
        failed=lambda what, why: shown(Trouble("review", what, why)),
    )
    return Reviews(needs, policy_of(ground.settings.review, ground.settings.memory))


def _model(models: Models, purpose: str) -> ChatModel | None:
    """The model for background work; none where that is switched off, which nobody needs to be told every time."""
    return None if models.meter.caps.off else models.get("auxiliary", purpose=purpose)


def _why_not(models: Models) -> str:
    if models.meter.caps.off:
        return "Background work may spend nothing (spend.daily_usd or spend.daily_tokens is 0), so no model is asked."
    return models.why_not("auxiliary")


def with_reviews(ground: Ground, whole: Invited) -> Invite:
    """In the sessions of the user's own agent: they are looked back at."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.review.enabled or view.circumstances.context not in _LEARNS:
            return Company()
        check(ground.settings.review)
        return Company(
            watchers=[LookingBack(lambda: _watcher(ground, whole.reviews))],
            warnings=_waiting(_proposals(ground, whole.memory, view.scope)),
        )

    return invite


class LookingBack(Watcher):
    """Follows a session for `ReviewWatcher`, which is made when there is something to look back at."""

    name = "review"
    outside = False
    at_once = True  # it stops what runs, and looks at the time

    def __init__(self, made: Callable[[], ReviewWatcher]) -> None:
        self._make = made
        self._made: ReviewWatcher | None = None
        self._began_with: SessionView | None = None

    @property
    def notices(self) -> Sequence[str]:  # type: ignore[override]
        return self._made.notices if self._made is not None else ()

    def opened(self, view: SessionView) -> None:
        self._began_with = view

    def turn_began(self, view: SessionView, text: str) -> str:
        if self._made is None and not view.messages:
            return ""
        return self._watcher.turn_began(view, text)

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._watcher.turn_completed(view, turn)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        if self._made is not None:
            self._made.switched(old, new, reason, reset)

    def closing(self, view: SessionView, reason: str) -> None:
        if self._made is not None or view.messages:
            self._watcher.closing(view, reason)

    @property
    def _watcher(self) -> ReviewWatcher:
        if self._made is None:
            self._made = self._make()
            if self._began_with is not None:
                self._made.opened(self._began_with)
                self._began_with = None
        return self._made


def _watcher(ground: Ground, reviews: Reviews) -> ReviewWatcher:
    from herma.reflect.watch import ReviewWatcher
    from herma.store.sqlite.reviews import SqliteReviews

    return ReviewWatcher(reviews, SqliteReviews(ground.database).covered, ground.clock, _embedding(ground))


def _proposals(ground: Ground, memory: MemoryStore, scope: Scope) -> tuple[int, int]:
    """How many changes of this scope's memory, and of skills, reviews have proposed that wait for a person."""
    from herma.store.sqlite.reviews import SqliteReviews

    of_reviews = [one for one in memory.pending() if one.author.who is Who.REVIEW]
    mine = [one for one in of_reviews if one.scope.user == scope.user and one.scope.project in ("", scope.project)]
    skills = SqliteReviews(ground.database).proposed_skills(ground.settings.profile, ground.clock())
    return len(mine), skills


def _waiting(proposals: tuple[int, int]) -> tuple[str, ...]:
    """A queue that nobody sees helps nobody: a session says what waits."""
    said = []
    for number, group in zip(proposals, ("memory", "skills"), strict=True):
        if number:
            what = "proposal of a review waits" if number == 1 else "proposals of reviews wait"
            said.append(f"{number} {what} for you: herma {group} pending")
    return tuple(said)


def check(settings: ReviewSettings) -> None:
    """Refuse values of `review.*` that mean nothing."""
    _divides(settings)


def policy_of(settings: ReviewSettings, memory: MemorySettings) -> Policy:
    """`review.*`, checked."""
    from herma.reflect.look_back import Limits
    from herma.reflect.needs import Policy

    return Policy(
        enabled=settings.enabled,
        memory_every=memory.nudge_interval if memory.memory_enabled or memory.user_profile_enabled else 0,
        skills_every=settings.skill_interval,
        writes=settings.writes,
        skill_writes=settings.skill_writes,
        at_end=settings.at_end,
        min_turns=settings.min_turns,
        idle_minutes=settings.idle_minutes,
        boundaries=_divides(settings),
        limits=Limits(settings.max_steps, settings.deadline),
        drain=settings.drain,
        keep_days=settings.keep_days,
    )


def _divides(settings: ReviewSettings) -> tuple[str, ...]:
    named = tuple(part.strip() for part in settings.boundaries.split(",") if part.strip())
    for one in named:
        if one not in DIVIDES:
            raise ConfigError(
                f"review.boundaries has {one!r}, which divides nothing.", hint=f"There are {', '.join(DIVIDES)}."
            )
    return named


def _proposing(ground: Ground) -> Propose:
    """Keeps writes for a person, over the same files and rows as everybody's."""
    from herma.curated.inbox import ApprovalQueue
    from herma.curated.writer import Writer
    from herma.ports import Place
    from herma.store.files import CuratedFiles
    from herma.store.sqlite.curated import CuratedRows
    from herma.store.sqlite.inbox import SqliteInbox

    def propose(
        target: Target,
        ops: Sequence[MemoryOp],
        scope: Scope,
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome:
        options, rows = ground.settings.memory, CuratedRows(ground.database)
        files = CuratedFiles(ground.home, rows, lock_timeout=options.lock_timeout, clock=ground.clock)
        limits: dict[Target, int] = {"memory": options.memory_char_limit, "user": options.user_char_limit}
        queue = ApprovalQueue(
            SqliteInbox(ground.database),
            Writer(files, rows, limits, ground.clock),
            days=options.inbox_days,
            clock=ground.clock,
        )
        place = Place.of(target, replace(scope, profile=ground.settings.profile))
        return queue.stage(place, ops, author, reason, although_full=although_full)

    return propose


def _in_tail(memory: MemoryStore, target: Target, scope: Scope) -> list[str]:
    """What is kept outside the files, or was dropped from there by a person: neither is saved anew by itself."""
    tail = memory.tail
    kept, dropped = tail.list(target, scope=scope), tail.list(target, scope=scope, forgotten=True)
    return [entry.text for entry in (*kept, *dropped)]


def _window(ground: Ground, name: str) -> Window:
    from herma.counting import counter_for
    from herma.prompt.families import window_of
    from herma.reflect.look_back import Window

    return Window(window_of(name, ground.settings.context.window).tokens, counter_for(name).count)


def _embedding(ground: Ground) -> Embed | None:
    """Vectors, where they cost nothing but time: no endpoint is asked to tell topics apart."""
    if ground.settings.embedding.model in ("none", "endpoint"):
        return None

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]] | None:
        embedder = ground.embedder
        if embedder is None:
            return None
        return [[float(number) for number in vector] for vector in embedder.passages(texts)]

    return embed


def _stored(whole: Whole, session: str) -> SessionView | None:
    """A stored session as it would be sent: with those before it that it went on from without a summary."""
    from herma.transcript.replay import sendable

    kept = whole.transcripts
    info = kept.get(session)
    if info is None:
        return None
    chain: list[SessionInfo] = [info]
    while chain[-1].reason == "resume" and chain[-1].parent:
        before = kept.get(chain[-1].parent)
        if before is None or before in chain:
            break
        chain.append(before)
    messages = sendable(message for one in reversed(chain) for message in kept.messages(one.id))
    prompt = kept.system_prompt(info.id) or ""
    return SessionView(
        info,
        messages=tuple(messages),
        model=info.model or "",
        folder=info.folder,
        system_prompt=prompt,
        tools=tuple(whole.tools.schemas()),
    )
