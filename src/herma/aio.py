"""The asynchronous face: one generic proxy, a stub file for types."""

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

from herma.app import Herma, Tidy
from herma.compression.summary import Compression
from herma.episodes.episodes import Episodes
from herma.errors import UsageError
from herma.facts.facts import Facts
from herma.index.sync import Index
from herma.memory.archive import Tail
from herma.memory.store import MemoryStore
from herma.providers.manager import Providers
from herma.review.review import Reviews
from herma.session import Session
from herma.skills.curator import Curator
from herma.skills.library import SkillLibrary
from herma.tools.registry import Json, Tools
from herma.transcript.log import Transcripts
from herma.types import Circumstances, Message, SessionInfo, SessionView, Snapshot

# ---------- aio.threads
#
# How calls are awaited that run in threads.

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


# ---------- aio.keepers
#
# What keeps something, awaited: memory, transcripts, episodes, skills, facts, and who looks after them.


class AsyncMemory(Face):
    """`h.memory`, awaited."""

    apply = Threaded(MemoryStore.apply)
    entries = Threaded(MemoryStore.entries)
    describe = Threaded(MemoryStore.describe)
    load = Threaded(MemoryStore.load)
    history = Threaded(MemoryStore.history)
    undo = Threaded(MemoryStore.undo)
    propose = Threaded(MemoryStore.propose)
    pending = Threaded(MemoryStore.pending)
    approve = Threaded(MemoryStore.approve)
    reject = Threaded(MemoryStore.reject)
    status = Threaded(MemoryStore.status)
    reset = Threaded(MemoryStore.reset)
    adoption = Threaded(MemoryStore.adoption)
    adopt = Threaded(MemoryStore.adopt)
    annotate = Threaded(MemoryStore.annotate)
    change = Threaded(MemoryStore.change)

    def __init__(self, inner: MemoryStore, threads: Threads) -> None:
        super().__init__(inner, threads)
        self.tail = AsyncTail(inner.tail, threads)


class AsyncTail(Face):
    """`h.memory.tail`, awaited."""

    list = Threaded(Tail.list)
    get = Threaded(Tail.get)
    search = Threaded(Tail.search)
    restore = Threaded(Tail.restore)
    forget = Threaded(Tail.forget)
    unforget = Threaded(Tail.unforget)


class AsyncTranscripts(Face):
    """`h.transcripts`, awaited."""

    start = Threaded(Transcripts.start)
    append = Threaded(Transcripts.append)
    end = Threaded(Transcripts.end)
    messages = Threaded(Transcripts.messages)
    get = Threaded(Transcripts.get)
    resolve = Threaded(Transcripts.resolve)
    conversation = Threaded(Transcripts.conversation)
    list = Threaded(Transcripts.list)
    rename = Threaded(Transcripts.rename)
    archive = Threaded(Transcripts.archive)
    delete = Threaded(Transcripts.delete)
    undelete = Threaded(Transcripts.undelete)
    system_prompt = Threaded(Transcripts.system_prompt)
    around = Threaded(Transcripts.around)
    bookends = Threaded(Transcripts.bookends)
    tip = Threaded(Transcripts.tip)
    resume_target = Threaded(Transcripts.resume_target)
    next_title = Threaded(Transcripts.next_title)
    reopen = Threaded(Transcripts.reopen)
    record_usage = Threaded(Transcripts.record_usage)
    rewind = Threaded(Transcripts.rewind)
    restore_rewound = Threaded(Transcripts.restore_rewound)
    compact = Threaded(Transcripts.compact)
    restore_compacted = Threaded(Transcripts.restore_compacted)
    prune = Threaded(Transcripts.prune)
    expire = Threaded(Transcripts.expire)
    deleted = Threaded(Transcripts.deleted)
    purge_expired = Threaded(Transcripts.purge_expired)
    stats = Threaded(Transcripts.stats)


class AsyncEpisodes(Face):
    """`h.episodes`, awaited."""

    list = Threaded(Episodes.list)
    get = Threaded(Episodes.get)
    state = Threaded(Episodes.state)
    search_similar = Threaded(Episodes.search_similar)
    forget = Threaded(Episodes.forget)
    restore = Threaded(Episodes.restore)
    rebuild = Threaded(Episodes.rebuild)
    digests = Threaded(Episodes.digests)
    newest = Threaded(Episodes.newest)
    count = Threaded(Episodes.count)
    left_open = Threaded(Episodes.left_open)
    record = Threaded(Episodes.record)
    improve = Threaded(Episodes.improve)
    wait = Threaded(Episodes.wait)


class AsyncSkills(Face):
    """`h.skills`, awaited."""

    list = Threaded(SkillLibrary.list)
    get = Threaded(SkillLibrary.get)
    view = Threaded(SkillLibrary.view)
    files = Threaded(SkillLibrary.files)
    read_file = Threaded(SkillLibrary.read_file)
    find = Threaded(SkillLibrary.find)
    fill = Threaded(SkillLibrary.fill)
    apply = Threaded(SkillLibrary.apply)
    create = Threaded(SkillLibrary.create)
    patch = Threaded(SkillLibrary.patch)
    edit = Threaded(SkillLibrary.edit)
    delete = Threaded(SkillLibrary.delete)
    restore = Threaded(SkillLibrary.restore)
    record = Threaded(SkillLibrary.record)
    usage = Threaded(SkillLibrary.usage)
    history = Threaded(SkillLibrary.history)
    undo = Threaded(SkillLibrary.undo)
    write_file = Threaded(SkillLibrary.write_file)
    remove_file = Threaded(SkillLibrary.remove_file)
    archive = Threaded(SkillLibrary.archive)
    archived = Threaded(SkillLibrary.archived)
    scan = Threaded(SkillLibrary.scan)
    incoming = Threaded(SkillLibrary.incoming)
    install = Threaded(SkillLibrary.install)
    pin = Threaded(SkillLibrary.pin)
    unpin = Threaded(SkillLibrary.unpin)
    set_state = Threaded(SkillLibrary.set_state)
    vouch = Threaded(SkillLibrary.vouch)
    judge = Threaded(SkillLibrary.judge)
    propose = Threaded(SkillLibrary.propose)
    rehearse = Threaded(SkillLibrary.rehearse)
    pending = Threaded(SkillLibrary.pending)
    approve = Threaded(SkillLibrary.approve)
    reject = Threaded(SkillLibrary.reject)
    change = Threaded(SkillLibrary.change)
    undoable = Threaded(SkillLibrary.undoable)


class AsyncFacts(Face):
    """`h.facts`, awaited."""

    answer = Threaded(Facts.answer)
    get = Threaded(Facts.get)
    list = Threaded(Facts.list)
    history = Threaded(Facts.history)
    state = Threaded(Facts.state)
    forget = Threaded(Facts.forget)
    find = Threaded(Facts.find)
    unforget = Threaded(Facts.unforget)
    rebuild = Threaded(Facts.rebuild)


class AsyncReviews(Face):
    """`h.reviews`, awaited."""

    run = Threaded(Reviews.run)
    log = Threaded(Reviews.log)
    get = Threaded(Reviews.get)
    status = Threaded(Reviews.status)
    wait = Threaded(Reviews.wait)


class AsyncCurator(Face):
    """`h.curator`, awaited."""

    status = Threaded(Curator.status)
    run = Threaded(Curator.run)
    rollback = Threaded(Curator.rollback)
    reports = Threaded(Curator.reports)
    snapshots = Threaded(Curator.snapshots)
    report = Threaded(Curator.report)
    archive = Threaded(Curator.archive)
    archived = Threaded(Curator.archived)
    restore = Threaded(Curator.restore)
    pin = Threaded(Curator.pin)
    unpin = Threaded(Curator.unpin)
    due = Threaded(Curator.due)
    wait = Threaded(Curator.wait)


class AsyncIndex(Face):
    """`h.index`, awaited."""

    status = Threaded(Index.status)
    catch_up = Threaded(Index.catch_up)
    rebuild = Threaded(Index.rebuild)
    verify = Threaded(Index.verify)
    drop = Threaded(Index.drop)
    wait = Threaded(Index.wait)


class AsyncProviders(Face):
    """`h.providers`, awaited."""

    list = Threaded(Providers.list)
    status = Threaded(Providers.status)
    flush = Threaded(Providers.flush)


class AsyncTools(Face):
    """`h.tools`, awaited."""

    _inner: Tools

    call = Threaded(Tools.call)

    def schemas(self) -> list[Json]:
        return self._inner.schemas()


# ---------- aio
#
# Herma for asyncio: the same names, awaited.
#
#     async with aio.open() as h, h.session(source="cli") as s:
#         request = await s.before_model("fix the login bug")
#
# The core is synchronous; here its calls run in threads. The calls of a session run one after another, in the order in
# which they were made; all others run beside each other. Cancelling an await takes back a call that has not begun, and
# nothing else: what a thread has begun it finishes, so that what was written stays written, and the next call of the
# session comes after it.

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
