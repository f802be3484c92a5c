"""Herma for asyncio: the same names, awaited.

    async with aio.Herma.open() as h, h.session(source="cli") as s:
        request = await s.before_model("fix the login bug")

The core is synchronous; its calls run in threads here. The calls of a session run one after another, in the order in
which they were made; other calls run concurrently. Cancelling an await withdraws a call that has not begun; a call that
has begun is finished, and the next call of the session runs after it.

`aio.pyi` has the types; `scripts/async_types.py` writes it from the synchronous classes.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from herma import app
from herma.errors import UsageError
from herma.features import lazy_property
from herma.session import Session

if TYPE_CHECKING:
    from herma.models.embedder import Embedder

THREADS = 4
"""Calls of one Herma, besides those of its sessions, that run at the same time."""
PARTS = {
    *("memory", "archive", "tail", "transcripts", "tools", "episodes", "facts", "skills", "reviews", "curator"),
    *("index", "providers"),
}
"""Attributes that are awaited objects themselves."""
AT_ONCE = {"schemas", "view"}
"""Methods that neither read nor write: they are not awaited."""
CALLED = {"tidy"}
"""Services that are called themselves. Other services have no asynchronous face: they would block the loop."""

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
        """Run a call even if it is not awaited any more, then end the threads. A second call does nothing."""
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


class AsyncPart:
    """An object of Herma whose methods are awaited. Its values are read directly."""

    def __init__(self, inner: Any, threads: Threads) -> None:
        self._inner = inner
        self._threads = threads

    def __getattr__(self, name: str) -> Any:
        kind = inspect.getattr_static(type(self._inner), name, None)
        if name.startswith("_") or (isinstance(kind, lazy_property) and name not in PARTS | CALLED):
            raise AttributeError(f"The asynchronous {type(self._inner).__name__} has no attribute {name!r}.")
        value = getattr(self._inner, name)
        if name in PARTS and not (kind is None or inspect.isfunction(kind)):
            return AsyncPart(value, self._threads)
        if name in AT_ONCE or not (name in CALLED or (inspect.isroutine(kind) and callable(value))):
            return value

        @functools.wraps(value)
        async def call(*args: Any, **options: Any) -> Any:
            return await self._threads.run(functools.partial(value, *args, **options))

        return call

    def __dir__(self) -> list[str]:
        return [name for name in dir(self._inner) if not name.startswith("_")]


class AsyncSession(AsyncPart):
    """`herma.session.Session`, awaited."""

    async def reset(self) -> AsyncSession:
        """End this conversation and return a new one in the same place, with memory as it is now."""
        fresh = await self._threads.run(self._inner.reset)
        await self.close()  # also ends its thread
        return AsyncSession(fresh, Threads(1, "session"))

    async def close(self, reason: str = "closed") -> None:
        """End the session, after the calls that were made before; closing twice does no harm."""
        await self._threads.run_last(lambda: self._inner.close(reason))


O = TypeVar("O", AsyncSession, "AsyncHerma")  # noqa: E741


class Opening(Generic[O]):
    """Something to open: `async with` it, which closes it in the end, or await it and close it yourself."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, O]]) -> None:
        self._make = make
        self._opened: O | None = None

    def __await__(self) -> Generator[Any, None, O]:
        return self._make().__await__()

    async def __aenter__(self) -> O:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(self._opened, AsyncSession):
            await self._opened.close("closed" if exc is None else "error")
        elif self._opened is not None:
            await self._opened.close()


class AsyncHerma(AsyncPart):
    """`herma.Herma`, awaited. This module exports it as `Herma`."""

    @staticmethod
    def open(
        home: str | Path | None = None,
        url: str | None = None,
        profile: str | None = None,
        *,
        flags: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
        embedder: Embedder | None = None,
    ) -> Opening[AsyncHerma]:
        """Open a home, as `herma.Herma.open` does: `async with` it, or await it and close it yourself."""

        async def make() -> AsyncHerma:
            threads = Threads(THREADS, "Herma")
            opened = functools.partial(app.Herma.open, home, url, profile, flags=flags, clock=clock, embedder=embedder)
            return AsyncHerma(await threads.run(opened), threads)

        return Opening(make)

    def session(self, *args: Any, **options: Any) -> Opening[AsyncSession]:
        return self._session(functools.partial(self._inner.session, *args, **options))

    def branch(self, *args: Any, **options: Any) -> Opening[AsyncSession]:
        return self._session(functools.partial(self._inner.branch, *args, **options))

    def _session(self, opened: Callable[[], Session]) -> Opening[AsyncSession]:
        async def make() -> AsyncSession:
            self._inner.ensure_open()
            threads = Threads(1, "session")
            return AsyncSession(await threads.run(opened), threads)

        return Opening(make)

    async def close(self) -> None:
        """Close the databases after the running calls. Closing twice does no harm."""
        await self._threads.run_last(self._inner.close)


Herma = AsyncHerma
open = AsyncHerma.open  # noqa: A001  as in `Herma.open`
