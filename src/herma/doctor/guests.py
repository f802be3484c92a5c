"""The external memory: is it there, can it work, and what went wrong with it lately?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check
from herma.providers.roster import Providers
from herma.providers.seat import Deadlines
from herma.store.trouble_log import TroubleLog

_LATELY = 7 * 86_400


@dataclass(frozen=True, slots=True)
class GuestFailures:
    """How often a guest (a provider, a model, a server, a part that follows sessions) failed in the last week, and
    the last time in words: at what, and why.
    """

    name: str
    times: int
    at: float
    what: str
    why: str


def check_provider(home: Path, settings: Settings, now: float) -> Iterator[Check]:
    """Loads the configured provider and asks whether it is available, within its deadline."""
    name = settings.memory.provider.strip()
    if name:
        status = Providers(home, name, deadlines=Deadlines(settings.providers.timeout)).status()
        if status.found is None:
            yield Check("provider", "problem", status.why, "herma providers list")
        elif not status.available:
            why = f": {status.why.rstrip('.')}" if status.why else ""
            sentence = f"The memory provider {name} is not available{why}. Sessions go on without it."
            yield Check("provider", "warning", sentence, "herma providers status")
        else:
            yield Check("provider", "ok", f"The memory provider {name} is available.")
    for guest in failures(home, now):
        how_often = "once" if guest.times == 1 else f"{guest.times:,} times"
        why = guest.why.rstrip(".")
        yield Check(
            "guests", "warning", f"{guest.name} failed {how_often} in the last week, last at {guest.what}: {why}."
        )


def failures(home: Path, now: float) -> tuple[GuestFailures, ...]:
    """Who failed in the last week, in any program, whoever failed most often first."""
    noted = list(TroubleLog(home).since(now - _LATELY))
    last = {one.guest: one for one in noted}
    times = Counter(one.guest for one in noted).most_common()
    return tuple(GuestFailures(name, many, last[name].at, last[name].what, last[name].why) for name, many in times)
