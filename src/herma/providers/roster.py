"""`h.providers`: which external memory is in use, how it has been, and which others there are."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from herma.errors import UsageError
from herma.ports import Watcher
from herma.providers.discovery import Found, discover, find, load
from herma.providers.guard import FAILURES, PAUSE, Guard, Health, Trouble
from herma.providers.seat import Deadlines, Seat
from herma.types import MOVES, SessionView


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """The provider that is configured. `available` is None where nobody asked it."""

    name: str
    found: Found | None = None
    available: bool | None = None
    why: str = ""
    health: Health = field(default_factory=Health)
    sessions: int = 0
    """Sessions of this process that it takes part in."""
    waiting: int = 0
    """Things that are still to be handed over to it."""


class Providers:
    """One external memory at most takes part: the one that `memory.provider` names."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        profile: str = "",
        deadlines: Deadlines | None = None,
        failures: int = FAILURES,
        pause: float = PAUSE,
        shown: Callable[[Trouble], None] = lambda _: None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._home = home
        self._name = name.strip()
        self._profile = profile
        self._deadlines = deadlines or Deadlines()
        self._options: dict[str, Any] = {"shown": shown, "failures": failures, "pause": pause}
        self._guard = Guard(self._name, **self._options)  # over all sessions
        self._alive = alive
        self._mutex = threading.Lock()
        self._seats: list[Seat] = []
        self._drains_at_exit = False

    @property
    def active(self) -> str:
        """The name of the provider that takes part in sessions, or nothing."""
        return self._name

    def list(self) -> list[Found]:
        """Every provider that could be used."""
        self._alive()
        return discover(self._home)

    def status(self, *, ask: bool = True) -> ProviderStatus:
        """How the configured provider is. `ask` loads it and asks whether it is available, within its deadline."""
        self._alive()
        if not self._name:
            return ProviderStatus("")
        with self._mutex:
            seats = list(self._seats)
        health = _together([self._guard.health, *(seat.guard.health for seat in seats)])
        waiting = sum(seat.waiting for seat in seats)
        status = ProviderStatus(self._name, health=health, sessions=len(seats), waiting=waiting)
        return self._asked(status) if ask else status

    def seat(self, view: SessionView, reserved: Sequence[str]) -> tuple[Seat | None, tuple[str, ...]]:
        """The provider's place in a session, and what people should know. A review has none: it only looks back."""
        if not self._name or view.circumstances.context == "review":
            return None, ()
        try:
            found = find(self._home, self._name)
        except UsageError as exc:
            self._guard.count("discovery", f"{exc} {exc.hint}")
            return None, (f"{exc} {exc.hint} Sessions go on without it.",)
        if self._guard.left_out("initialize"):
            last = self._guard.health.last
            return None, (
                f"{self._name} failed so often that it is left out for a while ({last.why if last else ''}).",
            )
        seat = Seat(
            self._name,
            lambda: load(found),
            view,
            Guard(self._name, **self._options),
            home=str(self._home),
            profile=self._profile,
            deadlines=self._deadlines,
            left=self._leave,
        )
        with self._mutex:
            if not self._drains_at_exit:
                self._drains_at_exit = True
                atexit.register(_drain, weakref.ref(self))
            self._seats.append(seat)
        warnings = seat.begin(reserved)
        self._guard.note("initialize", failed=not seat.begun)
        if seat.failed:
            self._leave(seat)
            return None, warnings
        return seat, warnings

    def watcher(self) -> Watcher:
        """Tells the provider of a session when another that it started for a part of its work has ended."""
        return _Delegations(self)

    def flush(self, timeout: float) -> bool:
        """Wait until everything has been handed over, in all sessions. → whether that was so in time."""
        until = time.monotonic() + timeout
        with self._mutex:
            seats = list(self._seats)
        return all(seat.flush(max(0.0, until - time.monotonic())) for seat in seats)

    def close(self) -> None:
        """Let it go, in sessions that were not closed too."""
        with self._mutex:
            seats = list(self._seats)
        for seat in seats:
            seat.leave()

    def of_session(self, session_id: str) -> Seat | None:
        with self._mutex:
            return next((seat for seat in self._seats if seat.session_id == session_id), None)

    def _asked(self, status: ProviderStatus) -> ProviderStatus:
        try:
            found = find(self._home, self._name)
        except UsageError as exc:
            return ProviderStatus(self._name, why=f"{exc} {exc.hint}", available=False, health=status.health)
        guard = Guard(self._name)

        def question() -> tuple[bool, str]:
            provider = load(found)
            fine = bool(provider.is_available())
            return fine, "" if fine else str(getattr(provider, "unavailable_reason", str)() or "")

        available, why = guard.ask("is_available", question, (False, ""), within=self._deadlines.recall)
        last = guard.health.last
        return ProviderStatus(
            self._name,
            found,
            available,
            last.why if last else why,
            status.health,
            status.sessions,
            status.waiting,
        )

    def _leave(self, seat: Seat) -> None:
        with self._mutex:
            if seat in self._seats:
                self._seats.remove(seat)
        self._guard.take_over(seat.guard.health)


def _drain(providers: weakref.ref[Providers]) -> None:
    """A program that ends without closing anything: what was said is handed over all the same, within the deadline."""
    left = providers()
    if left is not None:
        left.flush(left._deadlines.drain)


class _Delegations(Watcher):
    name = "delegation"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    def closing(self, view: SessionView, reason: str) -> None:
        parent = view.info.parent
        if reason in MOVES or view.circumstances.context != "subagent" or not parent or not view.messages:
            return
        seat = self._providers.of_session(parent)
        if seat is not None:
            seat.delegated(view)


def _together(healths: Sequence[Health]) -> Health:
    """Several as one: sums, and the state and trouble of the one that is worst off."""
    states = [health.state for health in healths]
    troubles = [health.last for health in healths if health.last is not None]
    return Health(
        "paused" if "paused" in states else "busy" if "busy" in states else "well",
        sum(health.asked for health in healths),
        sum(health.failures for health in healths),
        sum(health.timeouts for health in healths),
        sum(health.skipped for health in healths),
        troubles[-1] if troubles else None,
    )
