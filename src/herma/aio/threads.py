"""How calls are awaited that run in threads."""

from __future__ import annotations

import asyncio
import contextvars
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from herma.errors import UsageError

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """Runs calls in threads of its own. With one thread, they run in the order in which they were made."""

    def __init__(self, most: int, owner: str) -> None:
        self._pool = ThreadPoolExecutor(most, thread_name_prefix="herma")
        self._owner = owner
        self._ended = False

    async def run(self, call: Callable[[], T]) -> T:
        return await self._begin(call)

    async def run_last(self, call: Callable[[], None]) -> None:
        """Run it whether somebody still waits for it or not, and let the threads end; the second time does nothing."""
        if not self._ended:
            begun = self._begin(call)
            self._ended = True
            self._pool.shutdown(wait=False)
            await asyncio.shield(begun)

    def _begin(self, call: Callable[[], T]) -> asyncio.Future[T]:
        if self._ended:
            raise UsageError(f"This {self._owner} is closed.", hint="Open it again.")
        variables = contextvars.copy_context()
        return asyncio.get_running_loop().run_in_executor(self._pool, lambda: variables.run(call))


class Face:
    """What is awaited, in front of what does the work."""

    def __init__(self, inner: Any, threads: Threads) -> None:
        self._inner = inner
        self._threads = threads


class Threaded(Generic[P, T]):
    """A method of the inner object, of the same name, that runs in a thread: `apply = Threaded(MemoryStore.apply)`."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        self.__doc__ = method.__doc__
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, face: Face, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
        async def call(*args: P.args, **options: P.kwargs) -> T:
            method: Callable[P, T] = getattr(face._inner, self._name)
            return await face._threads.run(functools.partial(method, *args, **options))

        return call
