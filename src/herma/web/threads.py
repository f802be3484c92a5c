"""Work that may take long, beside the event loop, in threads that hold nothing up when the program ends.

The framework's own pool waits for its threads at the end: with a store that is busy, Ctrl-C would take as long as that.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Threads:
    """At most so many at once; whoever comes then waits, and blocks nobody."""

    def __init__(self, most: int = 16) -> None:
        self._room = asyncio.Semaphore(most)

    async def run(self, work: Callable[[], T]) -> T:
        """What comes of it; its error is raised here. When this is cancelled, nobody waits for it any more."""
        async with self._room:
            done: concurrent.futures.Future[T] = concurrent.futures.Future()
            threading.Thread(target=_run, args=(work, done), name="herma: page", daemon=True).start()
            return await asyncio.wrap_future(done)


def _run(work: Callable[[], T], done: concurrent.futures.Future[T]) -> None:
    if not done.set_running_or_notify_cancel():
        return
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 (handed to whoever waits, who raises it)
        done.set_exception(error)
    else:
        done.set_result(result)
