"""Herma for asyncio: the same names, awaited.

    async with aio.open() as h, h.session(source="cli") as s:
        request = await s.before_model("fix the login bug")

The core is synchronous; here its calls run in threads. The calls of a session run one after another, in the order in
which they were made; all others run beside each other. Cancelling an await takes back a call that has not begun, and
nothing else: what a thread has begun it finishes, so that what was written stays written, and the next call of the
session comes after it.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from herma.aio.keepers import (
    AsyncCurator,
    AsyncEpisodes,
    AsyncFacts,
    AsyncIndex,
    AsyncMemory,
    AsyncProviders,
    AsyncReviews,
    AsyncSkills,
    AsyncTail,
    AsyncTools,
    AsyncTranscripts,
)
from herma.aio.threads import Face, Threaded, Threads
from herma.app import Herma
from herma.session import Session
from herma.tools.registry import Json
from herma.types import Compression, Message, SessionInfo, Snapshot
from herma.types.session import Circumstances, SessionView
from herma.wiring.tidy import Tidy

__all__ = [
    "AsyncCurator",
    "AsyncEpisodes",
    "AsyncFacts",
    "AsyncHerma",
    "AsyncIndex",
    "AsyncMemory",
    "AsyncProviders",
    "AsyncReviews",
    "AsyncSession",
    "AsyncSkills",
    "AsyncTail",
    "AsyncTools",
    "AsyncTranscripts",
    "Opening",
    "open",
]
P = ParamSpec("P")
THREADS = 4
"""How many calls of one Herma, besides those of its sessions, run at the same time."""


class _Leavable(Protocol):
    async def _leave(self, *, failed: bool) -> None: ...


F = TypeVar("F", bound=_Leavable)


class Opening(Generic[F]):
    """What is about to be opened: `async with` it, which closes it in the end, or await it and close it yourself."""

    def __init__(self, make: Callable[[], Coroutine[Any, Any, F]]) -> None:
        self._make = make
        self._opened: F | None = None

    def __await__(self) -> Generator[Any, None, F]:
        return self._make().__await__()

    async def __aenter__(self) -> F:
        self._opened = await self._make()
        return self._opened

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._opened is not None:
            await self._opened._leave(failed=exc is not None)


class AsyncSession(Face):
    """`herma.session.Session`, awaited."""

    _inner: Session

    before_model = Threaded(Session.before_model)
    call_tool = Threaded(Session.call_tool)
    after_model = Threaded(Session.after_model)
    interrupt = Threaded(Session.interrupt)
    heard = Threaded(Session.heard)
    rewind = Threaded(Session.rewind)
    reload = Threaded(Session.reload)
    compress = Threaded(Session.compress)
    continue_with = Threaded(Session.continue_with)
    before_compression = Threaded(Session.before_compression)
    working_memory = Threaded(Session.working_memory)
    stored_messages = Threaded(Session.stored_messages)

    @property
    def id(self) -> str:
        return self._inner.id

    @property
    def info(self) -> SessionInfo:
        return self._inner.info

    @property
    def model(self) -> str:
        return self._inner.model

    @property
    def circumstances(self) -> Circumstances:
        return self._inner.circumstances

    @property
    def system_prompt(self) -> str:
        return self._inner.system_prompt

    @property
    def prompt_digest(self) -> str:
        return self._inner.prompt_digest

    @property
    def tools(self) -> list[Json]:
        return self._inner.tools

    @property
    def tools_digest(self) -> str:
        return self._inner.tools_digest

    @property
    def snapshot(self) -> Snapshot:
        return self._inner.snapshot

    @property
    def warnings(self) -> tuple[str, ...]:
        return self._inner.warnings

    @property
    def tokens(self) -> int:
        return self._inner.tokens

    @property
    def last_compression(self) -> Compression | None:
        return self._inner.last_compression

    @property
    def messages(self) -> tuple[Message, ...]:
        return self._inner.messages

    def view(self) -> SessionView:
        """The session as it stands."""
        return self._inner.view()

    async def reset(self) -> AsyncSession:
        """End this conversation and begin another in the same place. → the new one, with memory as it is now."""
        fresh = await self._threads.run(self._inner.reset)
        await self.close()  # its thread ends, too
        return AsyncSession(fresh, Threads(1, "session"))

    async def close(self, reason: str = "closed") -> None:
        """End the session, after the calls that were made before; closing twice does no harm."""
        await self._threads.run_last(lambda: self._inner.close(reason))

    async def _leave(self, *, failed: bool) -> None:
        await self.close("error" if failed else "closed")


class _OpensSession(Generic[P]):
    """A method of `Herma` that opens a session."""

    def __init__(self, method: Callable[Concatenate[Herma, P], Session]) -> None:
        self.__doc__ = method.__doc__
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, face: AsyncHerma, owner: type | None = None) -> Callable[P, Opening[AsyncSession]]:
        def call(*args: P.args, **options: P.kwargs) -> Opening[AsyncSession]:
            method: Callable[P, Session] = getattr(face._inner, self._name)

            async def make() -> AsyncSession:
                threads = Threads(1, "session")
                return AsyncSession(await threads.run(functools.partial(method, *args, **options)), threads)

            return Opening(make)

        return call


class AsyncHerma(Face):
    """`herma.Herma`, awaited."""

    _inner: Herma

    def __init__(self, inner: Herma, threads: Threads) -> None:
        super().__init__(inner, threads)
        self.memory = AsyncMemory(inner.memory, threads)
        self.transcripts = AsyncTranscripts(inner.transcripts, threads)
        self.tools = AsyncTools(inner.tools, threads)
        self.episodes = AsyncEpisodes(inner.episodes, threads)
        self.facts = AsyncFacts(inner.facts, threads)
        self.skills = AsyncSkills(inner.skills, threads)
        self.reviews = AsyncReviews(inner.reviews, threads)

    session = _OpensSession(Herma.session)
    branch = _OpensSession(Herma.branch)
    search = Threaded(Herma.search)
    restore = Threaded(Herma.restore)
    tidy = Threaded(Tidy.__call__)
    expand = Threaded(Herma.expand)
    cost = Threaded(Herma.cost)
    working_memory = Threaded(Herma.working_memory)
    doctor = Threaded(Herma.doctor)

    @property
    def curator(self) -> AsyncCurator:
        return AsyncCurator(self._inner.curator, self._threads)

    @property
    def index(self) -> AsyncIndex:
        return AsyncIndex(self._inner.index, self._threads)

    @property
    def providers(self) -> AsyncProviders:
        return AsyncProviders(self._inner.providers, self._threads)

    @property
    def home(self) -> Path:
        return self._inner.home

    async def close(self) -> None:
        """Let go of the databases; writes that were begun are finished first. Closing twice does no harm."""
        await self._threads.run_last(self._inner.close)

    async def _leave(self, *, failed: bool) -> None:  # noqa: ARG002  a memory has no good or bad end
        await self.close()


def open(  # noqa: A001  as in `Herma.open`
    home: str | Path | None = None,
    url: str | None = None,
    profile: str | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    clock: Callable[[], float] = time.time,
) -> Opening[AsyncHerma]:
    """Open a home, as `Herma.open` does."""

    async def make() -> AsyncHerma:
        threads = Threads(THREADS, "Herma")
        return await threads.run(lambda: AsyncHerma(Herma.open(home, url, profile, flags=flags, clock=clock), threads))

    return Opening(make)
