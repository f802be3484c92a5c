"""Herma for asyncio: the same names, awaited.

    async with aio.open() as h, h.session(source="cli") as s:
        request = await s.before_model("fix the login bug")

The core is synchronous; here its calls run in threads. The calls of a session run one after another, in the order in
which they were made; all others run beside each other. Cancelling an await takes back a call that has not begun, and
nothing else: what a thread has begun it finishes, so that what was written stays written, and the next call of the
session comes after it.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import time
from collections.abc import Callable, Coroutine, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

from herma.app import Herma
from herma.curated import MemoryStore
from herma.curated.tail import Tail
from herma.episodes import Episodes
from herma.errors import UsageError
from herma.facts import Facts
from herma.reflect.curator import Curator
from herma.reflect.reviews import Reviews
from herma.session import Session
from herma.skills import SkillLibrary
from herma.tools import Tools
from herma.tools.registry import Json
from herma.transcript import Transcripts
from herma.types import Compression, Message, SessionInfo, Snapshot
from herma.wiring.tidy import Tidy

P = ParamSpec("P")
T = TypeVar("T")
THREADS = 4
"""How many calls of one Herma, besides those of its sessions, run at the same time."""


class _Threads:
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


class _Face:
    """What is awaited, in front of what does the work."""

    def __init__(self, inner: Any, threads: _Threads) -> None:
        self._inner = inner
        self._threads = threads


class _Threaded(Generic[P, T]):
    """A method of the inner object, of the same name, that runs in a thread: `apply = _Threaded(MemoryStore.apply)`."""

    def __init__(self, method: Callable[Concatenate[Any, P], T]) -> None:
        self.__doc__ = method.__doc__
        self._name = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, face: _Face, owner: type | None = None) -> Callable[P, Coroutine[Any, Any, T]]:
        async def call(*args: P.args, **options: P.kwargs) -> T:
            method: Callable[P, T] = getattr(face._inner, self._name)
            return await face._threads.run(functools.partial(method, *args, **options))

        return call


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


class AsyncSession(_Face):
    """`herma.session.Session`, awaited."""

    _inner: Session

    before_model = _Threaded(Session.before_model)
    call_tool = _Threaded(Session.call_tool)
    after_model = _Threaded(Session.after_model)
    interrupt = _Threaded(Session.interrupt)
    heard = _Threaded(Session.heard)
    rewind = _Threaded(Session.rewind)
    reload = _Threaded(Session.reload)
    compress = _Threaded(Session.compress)
    continue_with = _Threaded(Session.continue_with)
    before_compression = _Threaded(Session.before_compression)
    working_memory = _Threaded(Session.working_memory)
    stored_messages = _Threaded(Session.stored_messages)

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
                threads = _Threads(1, "session")
                return AsyncSession(await threads.run(functools.partial(method, *args, **options)), threads)

            return Opening(make)

        return call


class AsyncMemory(_Face):
    """`h.memory`, awaited."""

    apply = _Threaded(MemoryStore.apply)
    entries = _Threaded(MemoryStore.entries)
    describe = _Threaded(MemoryStore.describe)
    load = _Threaded(MemoryStore.load)
    history = _Threaded(MemoryStore.history)
    undo = _Threaded(MemoryStore.undo)

    def __init__(self, inner: MemoryStore, threads: _Threads) -> None:
        super().__init__(inner, threads)
        self.tail = AsyncTail(inner.tail, threads)


class AsyncTail(_Face):
    """`h.memory.tail`, awaited."""

    list = _Threaded(Tail.list)
    search = _Threaded(Tail.search)
    restore = _Threaded(Tail.restore)
    forget = _Threaded(Tail.forget)
    unforget = _Threaded(Tail.unforget)


class AsyncTranscripts(_Face):
    """`h.transcripts`, awaited."""

    start = _Threaded(Transcripts.start)
    append = _Threaded(Transcripts.append)
    end = _Threaded(Transcripts.end)
    messages = _Threaded(Transcripts.messages)
    get = _Threaded(Transcripts.get)
    resolve = _Threaded(Transcripts.resolve)
    conversation = _Threaded(Transcripts.conversation)
    list = _Threaded(Transcripts.list)
    rename = _Threaded(Transcripts.rename)
    archive = _Threaded(Transcripts.archive)
    delete = _Threaded(Transcripts.delete)
    undelete = _Threaded(Transcripts.undelete)


class AsyncEpisodes(_Face):
    """`h.episodes`, awaited."""

    list = _Threaded(Episodes.list)
    get = _Threaded(Episodes.get)
    state = _Threaded(Episodes.state)
    search_similar = _Threaded(Episodes.search_similar)
    forget = _Threaded(Episodes.forget)
    restore = _Threaded(Episodes.restore)
    rebuild = _Threaded(Episodes.rebuild)
    digests = _Threaded(Episodes.digests)


class AsyncSkills(_Face):
    """`h.skills`, awaited."""

    list = _Threaded(SkillLibrary.list)
    get = _Threaded(SkillLibrary.get)
    view = _Threaded(SkillLibrary.view)
    find = _Threaded(SkillLibrary.find)
    fill = _Threaded(SkillLibrary.fill)
    apply = _Threaded(SkillLibrary.apply)
    create = _Threaded(SkillLibrary.create)
    patch = _Threaded(SkillLibrary.patch)
    edit = _Threaded(SkillLibrary.edit)
    delete = _Threaded(SkillLibrary.delete)
    restore = _Threaded(SkillLibrary.restore)
    record = _Threaded(SkillLibrary.record)
    usage = _Threaded(SkillLibrary.usage)
    history = _Threaded(SkillLibrary.history)
    undo = _Threaded(SkillLibrary.undo)


class AsyncFacts(_Face):
    """`h.facts`, awaited."""

    answer = _Threaded(Facts.answer)
    get = _Threaded(Facts.get)
    list = _Threaded(Facts.list)
    history = _Threaded(Facts.history)
    state = _Threaded(Facts.state)
    forget = _Threaded(Facts.forget)


class AsyncReviews(_Face):
    """`h.reviews`, awaited."""

    run = _Threaded(Reviews.run)
    log = _Threaded(Reviews.log)
    get = _Threaded(Reviews.get)
    status = _Threaded(Reviews.status)
    wait = _Threaded(Reviews.wait)


class AsyncCurator(_Face):
    """`h.curator`, awaited."""

    status = _Threaded(Curator.status)
    run = _Threaded(Curator.run)
    rollback = _Threaded(Curator.rollback)
    reports = _Threaded(Curator.reports)
    snapshots = _Threaded(Curator.snapshots)


class AsyncTools(_Face):
    """`h.tools`, awaited."""

    _inner: Tools

    call = _Threaded(Tools.call)

    def schemas(self) -> list[Json]:
        return self._inner.schemas()


class AsyncHerma(_Face):
    """`herma.Herma`, awaited."""

    _inner: Herma

    def __init__(self, inner: Herma, threads: _Threads) -> None:
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
    search = _Threaded(Herma.search)
    restore = _Threaded(Herma.restore)
    tidy = _Threaded(Tidy.__call__)
    expand = _Threaded(Herma.expand)
    cost = _Threaded(Herma.cost)
    working_memory = _Threaded(Herma.working_memory)
    doctor = _Threaded(Herma.doctor)

    @property
    def curator(self) -> AsyncCurator:
        return AsyncCurator(self._inner.curator, self._threads)

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
        threads = _Threads(THREADS, "Herma")
        return await threads.run(lambda: AsyncHerma(Herma.open(home, url, profile, flags=flags, clock=clock), threads))

    return Opening(make)
