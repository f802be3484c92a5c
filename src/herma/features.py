"""Feature: what a part may attach to a session (observer, prompt contribution, tools, commands, checks), and the
dispatcher that guards them.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeAlias, TypeVar, overload

from herma.errors import HermaWarning
from herma.prompt.assemble import Prompt, Tiers, assemble
from herma.prompt.budget import memory_of
from herma.providers.guard import Guard, Health, Trouble
from herma.types import CompletedTurn, Contribution, MemoryWrite, Occasion, SessionView

if TYPE_CHECKING:
    from herma.compression.engine import Room
    from herma.tools.registry import Tool


# ---------- parts
#
# Parts of an object that are made when they are first used.

T = TypeVar("T")


class part(Generic[T]):  # noqa: N801  used like `property`
    """Like `functools.cached_property`, but made once even when several threads want it first.

    From Python 3.12 on that takes no lock: each thread would get a part of its own, and all but one would never be
    closed.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.__doc__ = make.__doc__
        self._make = make
        self._name = make.__name__
        self._making = threading.RLock()

    @overload
    def __get__(self, whole: None, owner: type) -> part[T]: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: object | None, owner: type) -> part[T] | T:
        if whole is None:
            return self
        with self._making:
            made: dict[str, T] = whole.__dict__  # the next time it is found there, before this is asked
            if self._name not in made:
                made[self._name] = self._make(whole)
            return made[self._name]


# ---------- ports.observer
#
# How parts follow a session without the session knowing them: they are told what happens, and may add to the prompt.
#
# An observer never fails a turn: what it raises is caught once, counted and shown, and what it is asked for has a
# deadline. What it is told has happened already; only `turn_began` and `compressing` are questions.

LOCAL_DEADLINE = 0.15
"""Seconds that a part of our own may take to recall something for a turn."""


class Observer(Protocol):
    """What a session tells. `Watcher` has all of it, doing nothing."""

    def opened(self, view: SessionView) -> None:
        """A session began, or was taken up again: then it has messages."""
        ...

    def turn_began(self, view: SessionView, text: str) -> str:
        """The user says this; it is not in `view.messages` yet. → text that may help, fenced into their message."""
        ...

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        """A reply is on disk that asks for no more tools. Turns that were interrupted are not announced."""
        ...

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        """The session's tool changed curated memory, durably."""
        ...

    def compressing(self, view: SessionView) -> str:
        """The conversation is about to be shortened. → what the summary should not miss."""
        ...

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        """The same conversation goes on otherwise: another prompt, other messages, perhaps another id.

        `reason` is `reload`, `compression` or `rewind`; with `reset`, a new conversation begins in its place.
        """
        ...

    def closing(self, view: SessionView, reason: str) -> None:
        """The session ends. With a reason of `types.MOVES`, its conversation goes on and `switched` follows."""
        ...


class Watcher:
    """An observer that does nothing: the base of those that care for some of it."""

    name = ""
    """How it is called in warnings; nothing: like its class."""
    deadline = LOCAL_DEADLINE
    """Seconds that a question to it may take."""
    notices: Sequence[str] = ()
    """What people should know, among the warnings of the session; it may grow at any time."""
    outside = True
    """Whether what it recalls was said by others, so that the model's repeating it waits for a person's decision."""
    at_once = False
    """Whether `turn_began` answers from what is at hand, or keeps its deadline by itself: then it is asked in the
    session's own thread, and costs no other. For parts of our own: nobody can be kept from hanging there."""

    def may_recall(self, view: SessionView, text: str) -> bool:  # noqa: ARG002
        """Whether it may have something for this text. Asked before `turn_began`, in the session's own thread, so it
        must tell at once; who says no is not asked, and costs nothing more."""
        return True

    def opened(self, view: SessionView) -> None:
        """Nothing."""

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        """Nothing."""

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        """Nothing."""

    def compressing(self, view: SessionView) -> str:  # noqa: ARG002
        """Nothing."""
        return ""

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        """Nothing."""

    def closing(self, view: SessionView, reason: str) -> None:
        """Nothing."""


class Contributor(Protocol):
    """A part that adds to the system prompt when it is made: at the beginning, and when it is built anew.

    The opening of a session waits for it. One that may take long has a `contribution_deadline`, in seconds.
    """

    def contribute(self, occasion: Occasion) -> Contribution: ...


# ---------- turn.watchers
#
# Those who follow one session, behind one object: each is told, and none can fail a turn or hold it up for long.


@dataclass(frozen=True, slots=True)
class Recalled:
    """What one part recalls for a turn. `outside`: others said it."""

    by: str
    text: str
    outside: bool = True


class Watchers:
    """One per session."""

    def __init__(self, watchers: Sequence[Observer] = (), *, shown: Callable[[Trouble], None] = lambda _: None) -> None:
        self._guarded = [(watcher, guard_of(watcher)) for watcher in watchers]
        self._known: set[tuple[str, str]] = set()
        self._unsaid: deque[str] = deque()
        self._troubles: list[str] = []
        for watcher, guard in self._guarded:
            if guard is getattr(watcher, "guard", None):  # a guest's own guard has somebody who writes it down
                guard.listen(self._note)
            else:
                guard.listen(self._note_of_our_own)
                guard.listen(shown)

    def __bool__(self) -> bool:
        return bool(self._guarded)

    @property
    def troubles(self) -> list[str]:
        """What people should know: what went wrong, and what a part has to say (its `notices`)."""
        said = [notice for watcher, _ in self._guarded for notice in getattr(watcher, "notices", ())]
        return [*self._troubles, *said]

    def health(self) -> dict[str, Health]:
        """How each has been so far, by name."""
        return {guard.guest: guard.health for _, guard in self._guarded}

    # ── questions: all at once, each with its own deadline ──

    def recall(self, view: SessionView, text: str) -> list[Recalled]:
        """What each part recalls for this text; nothing of those that fail or are late."""
        asked = [
            (watcher, guard)
            for watcher, guard in self._guarded
            if _cares(watcher, "turn_began") and _may_recall(watcher, guard, view, text)
        ]
        answers = self._ask(asked, "turn_began", lambda watcher: watcher.turn_began(view, text))
        return [Recalled(by, text, outside) for by, text, outside in answers]

    def compressing(self, view: SessionView) -> str:
        """What the summary should not miss."""
        asked = [(watcher, guard) for watcher, guard in self._guarded if _cares(watcher, "compressing")]
        answers = self._ask(asked, "compressing", lambda watcher: watcher.compressing(view))
        return "\n\n".join(text for _, text, _ in answers)

    def _ask(
        self, asked: Sequence[tuple[Observer, Guard]], what: str, question: Callable[[Observer], object]
    ) -> list[tuple[str, str, bool]]:
        """Those that may take long each in a thread of their own; meanwhile, in this one, those that answer at once."""
        begun = time.monotonic()
        aside = {
            at: guard.begin(what, partial(question, watcher))
            for at, (watcher, guard) in enumerate(asked)
            if not _at_once(watcher)
        }
        here = {
            at: guard.begin(what, partial(question, watcher), wait=False)
            for at, (watcher, guard) in enumerate(asked)
            if at not in aside and not guard.left_out(what)
        }
        found = []
        for at, (watcher, guard) in enumerate(asked):
            call = aside.get(at) or here.get(at)
            if call is None:
                continue
            deadline = getattr(watcher, "deadline", Watcher.deadline)
            text = guard.answer(call, "", max(deadline - (time.monotonic() - begun), 0.0), of=deadline)
            if not isinstance(text, str):
                guard.count(what, f"answered with {type(text).__name__}, not with text")
            elif text.strip():
                found.append((guard.guest, text, bool(getattr(watcher, "outside", True))))
        self._say()
        return found

    # ── news: one after the other, in this thread; whoever takes long puts it aside ──

    def opened(self, view: SessionView) -> None:
        self._tell("opened", lambda watcher: watcher.opened(view))

    def completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._tell("turn_completed", lambda watcher: watcher.turn_completed(view, turn))

    def written(self, view: SessionView, write: MemoryWrite) -> None:
        self._tell("memory_written", lambda watcher: watcher.memory_written(view, write))

    def switched(self, old: SessionView, new: SessionView, reason: str, *, reset: bool = False) -> None:
        self._tell("switched", lambda watcher: watcher.switched(old, new, reason, reset))

    def closing(self, view: SessionView, reason: str) -> None:
        self._tell("closing", lambda watcher: watcher.closing(view, reason))

    def _tell(self, what: str, news: Callable[[Observer], None]) -> None:
        for watcher, guard in self._guarded:
            if _cares(watcher, what):
                guard.ask(what, lambda watcher=watcher: news(watcher), None)  # type: ignore[misc]
        self._say()

    def _note_of_our_own(self, trouble: Trouble) -> None:
        """A part of ours that is late costs a turn nothing but what it might have added: written down, not said."""
        if not trouble.late:
            self._note(trouble)

    def _note(self, trouble: Trouble) -> None:
        """Each kind of trouble is said once a session; all of it is counted. May come from any thread."""
        kind = (trouble.guest, trouble.what)
        if kind in self._known:
            return
        self._known.add(kind)
        sentence = f"{trouble.guest} failed at {trouble.what} ({trouble.why}); the session goes on without it."
        self._troubles.append(sentence)
        self._unsaid.append(sentence)

    def _say(self) -> None:
        """Warnings belong into the thread of the session: only there somebody may catch them."""
        while self._unsaid:
            warnings.warn(self._unsaid.popleft(), HermaWarning, stacklevel=3)


def guard_of(part: object) -> Guard:
    """A guest's own guard, or one for a part of ours."""
    own = getattr(part, "guard", None)
    return own if isinstance(own, Guard) else Guard(name_of(part))


def name_of(part: object) -> str:
    return str(getattr(part, "name", "") or type(part).__name__)


def _may_recall(watcher: Observer, guard: Guard, view: SessionView, text: str) -> bool:
    if not _cares(watcher, "may_recall"):
        return True
    return guard.ask("may_recall", lambda: bool(watcher.may_recall(view, text)), False)  # type: ignore[attr-defined]


def _at_once(watcher: Observer) -> bool:
    return bool(getattr(watcher, "at_once", False))


def _cares(watcher: Observer, what: str) -> bool:
    """Whether it does more than `Watcher` does: nothing costs less than not asking."""
    return getattr(type(watcher), what, None) is not getattr(Watcher, what)


# ---------- turn.company
#
# Who comes along in a session besides the user and the model: parts that follow it, add to its prompt, bring tools.


@dataclass(frozen=True, slots=True)
class Company:
    """Made for one session, and kept through its moves."""

    watchers: Sequence[Observer] = ()
    contributors: Sequence[Contributor] = ()
    tools: Sequence[Tool] = ()
    warnings: tuple[str, ...] = ()
    room: Room | None = None
    """How the session is shortened. It is one of the watchers too."""


Invite: TypeAlias = Callable[[SessionView, bool], Company]
"""Who comes along in this session; with True, for somebody who only looks at what its prompt would be."""


def alone(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
    """Nobody."""
    return Company()


def prompt_with(
    tiers: Tiers,
    company: Company,
    view: SessionView,
    *,
    room: tuple[int, int],
    count: Callable[[str], int],
    rehearsal: bool = False,
) -> Prompt:
    """The prompt with what the company adds. `room` is what the system prompt and memory in it may take, in tokens."""
    if not company.contributors:
        return _noted(assemble(tiers), company.warnings)
    bare = assemble(tiers).text
    memory = memory_of(bare)
    taken = count(memory)
    occasion = Occasion(
        view,
        system_tokens=max(0, room[0] - count(bare) + taken),
        memory_tokens=max(0, room[1] - taken),
        count=count,
        rehearsal=rehearsal,
    )
    gathered, troubles = gather(company.contributors, occasion)
    with_them = replace(
        tiers,
        skills="\n\n".join(filter(None, (tiers.skills, *(one.skills for one in gathered)))),
        episodes=(*tiers.episodes, *(line for one in gathered for line in one.episodes)),
        providers=(*tiers.providers, *(block for one in gathered for block in one.providers)),
        hints=(*tiers.hints, *(hint for one in gathered for hint in one.hints)),
    )
    if with_them.skills and "skills" not in with_them.guidance:
        with_them = replace(with_them, guidance=(*with_them.guidance, "skills"))
    said = [warning for one in gathered for warning in one.warnings]
    return _noted(assemble(with_them), (*company.warnings, *said, *troubles))


def gather(contributors: Sequence[Contributor], occasion: Occasion) -> tuple[list[Contribution], list[str]]:
    """What each part adds, and what went wrong, in words.

    Parts of our own are asked here and now: a thread would cost more than they do. Those that have a
    `contribution_deadline` are asked at once, and waited for that long.
    """
    begun = time.monotonic()
    asked = []
    for part in contributors:
        guard, deadline = guard_of(part), getattr(part, "contribution_deadline", None)
        question = partial(part.contribute, occasion)
        asked.append((deadline, guard, guard.begin("contribute", question, wait=deadline is not None)))
    found: list[Contribution] = []
    troubles: list[str] = []
    for deadline, guard, call in asked:
        failures = guard.health.failures
        left = None if deadline is None else max(deadline - (time.monotonic() - begun), 0.0)
        given = Contribution() if call is None else guard.answer(call, Contribution(), left)
        if isinstance(given, Contribution):
            found.append(given)
        else:
            guard.count("contribute", f"answered with {type(given).__name__}")
        health = guard.health
        if health.failures > failures and health.last is not None:
            troubles.append(f"{guard.guest} added nothing to the prompt ({health.last.why}).")
    return found, troubles


def _noted(prompt: Prompt, warnings: tuple[str, ...]) -> Prompt:
    return replace(prompt, warnings=(*prompt.warnings, *warnings)) if warnings else prompt
