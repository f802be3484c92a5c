"""The home that is looked at: opened once for all requests, and anew when its configuration changes."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from herma import config
from herma.doctor import Diagnosis, diagnose
from herma.errors import UsageError

if TYPE_CHECKING:
    from herma.app import Herma


@dataclass(slots=True)
class _Opened:
    h: Herma
    stamp: tuple[object, ...]
    users: int = 0


class House:
    """Used by the threads of several requests. What the configuration said before is closed when nobody uses it."""

    def __init__(self, home: Path, opener: Callable[[], Herma], *, clock: Callable[[], float] = time.time) -> None:
        self.home = home
        self.clock = clock
        self._opener = opener
        self._mutex = threading.Lock()  # guards the next line
        self._now: _Opened | None = None
        self._looking = threading.Lock()  # guards the next line; whoever comes meanwhile waits for the same answer
        self._diagnosis: tuple[float, Diagnosis] | None = None

    @contextmanager
    def opened(self) -> Iterator[Herma]:
        """The memory, for as long as the block runs. Raises what `Herma.open` raises."""
        held = self._take()
        try:
            yield held.h
        finally:
            self._give_back(held)

    def doctor(self, *, at_most: float = 0.0) -> Diagnosis:
        """What the doctor says, at most so many seconds old. Works for a home that cannot be opened, too."""
        with self._looking:
            kept = self._diagnosis
            if kept is None or not 0 <= time.monotonic() - kept[0] < at_most:
                kept = time.monotonic(), diagnose(self.home, self._settings(), clock=self.clock)
                self._diagnosis = kept
            return kept[1]

    def close(self) -> None:
        with self._mutex:
            held, self._now = self._now, None
        if held is not None and not held.users:
            held.h.close()

    def _settings(self) -> config.Settings | None:
        try:
            with self.opened() as h:
                return h.settings
        except UsageError:
            return None  # the doctor reads it once more, and says what is wrong with it

    def _configuration(self) -> tuple[Path, ...]:
        project = config.project_file(None, os.environ)
        return (self.home / config.HOME_FILE, self.home / ".env", *([project] if project else []))

    def _take(self) -> _Opened:
        with self._mutex:
            stamp = tuple(_stamp(path) for path in self._configuration())
            before = self._now
            if before is None or before.stamp != stamp:
                self._now = _Opened(self._opener(), stamp)
                if before is not None and not before.users:
                    before.h.close()
            assert self._now is not None
            self._now.users += 1
            return self._now

    def _give_back(self, held: _Opened) -> None:
        with self._mutex:
            held.users -= 1
            over = held is not self._now and not held.users
        if over:
            held.h.close()


def _stamp(path: Path) -> object:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino
