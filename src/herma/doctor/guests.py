"""The external memory: is it there, can it work, and what went wrong with it lately?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check
from herma.providers.roster import Providers
from herma.providers.seat import Deadlines
from herma.store.trouble_log import TroubleLog

_LATELY = 7 * 86_400


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
    yield from _lately(home, now)


def _lately(home: Path, now: float) -> Iterator[Check]:
    noted = list(TroubleLog(home).since(now - _LATELY))
    for guest, times in Counter(one.guest for one in noted).most_common():
        last = [one for one in noted if one.guest == guest][-1]
        how_often = "once" if times == 1 else f"{times:,} times"
        sentence = f"{guest} failed {how_often} in the last week, last at {last.what}: {last.why.rstrip('.')}."
        yield Check("guests", "warning", sentence)
