"""Those who follow one session, behind one object: each is told, and none can fail a turn or hold it up for long."""

from __future__ import annotations

import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from herma.errors import HermaWarning
from herma.ports import Observer, Watcher
from herma.providers.guard import Guard, Health, Trouble
from herma.types import CompletedTurn, MemoryWrite, SessionView


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
