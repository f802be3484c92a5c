"""Herma: open, close, the services as properties, the list of features; the only composition code."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self, Unpack, get_args

from herma import config
from herma.compression.engine import (
    OWN,
    ContextEngine,
    EngineNeeds,
    EngineOptions,
    Room,
    SqliteCompression,
    engine_class,
    is_own,
)
from herma.compression.summary import Compression, Expansion
from herma.config import CompressionSettings, ContextSettings, CuratorSettings, MemorySettings
from herma.episodes.episodes import KIND as EPISODES_KIND
from herma.episodes.episodes import EpisodeContributor, Episodes, EpisodeWatcher, Restorer, Tables
from herma.episodes.episodes import scope_key as episodes_scope_key
from herma.episodes.outcome import Language, Verdict
from herma.episodes.rows import SqliteEpisodes, SqliteGlimpses
from herma.episodes.types import EpisodeFilter
from herma.errors import ConfigError, HermaWarning, ModelCancelled, ModelError, ModelOverflow, StoreError, UsageError
from herma.facts.facts import Facts, SqliteFacts
from herma.features import Company, Invite, Watcher, alone, part
from herma.index.file import SqliteIndexFiles
from herma.index.sync import Index
from herma.index.types import Embeddable, Embeddables
from herma.index.vectors import SqlitePassages, SqliteVectors, Vectors
from herma.memory.archive import KIND as ARCHIVE_KIND
from herma.memory.archive import TERMS, CuratedWatcher, SqliteTail, TailParts, scope_key
from herma.memory.entries import Place, join, parse, unique
from herma.memory.files import CuratedFiles, CuratedRows, SqliteInbox
from herma.memory.store import MemoryStore
from herma.memory.tidy import LocalChecks, Tidying, TidyNeeds
from herma.models.client import ChatModel
from herma.models.embedder import Embedder
from herma.models.endpoints import Endpoint, Role, endpoint_of
from herma.opening import Metering, Opener
from herma.prompt.budget import Budget
from herma.prompt.ledger import Prices, SqliteCalls
from herma.prompt.tokens import counter_for, window_of
from herma.providers.guard import Guard, Noted, Trouble, TroubleLog
from herma.review.rows import DIVIDES
from herma.review.spending import DAY, Meter, PriceOf, Refused, SpendHistory, SqliteSpend, Stopped, history, read_caps
from herma.search.expand import Expander, Summariser
from herma.search.prefetch import FactWatcher, PastWatcher
from herma.search.rank import Reranker
from herma.search.search import AssistedSearch, Searcher
from herma.skills.library import SkillLibrary
from herma.skills.types import SkillMatches
from herma.store.files import alone as files_alone
from herma.store.files import exclusive
from herma.text import STOP_WORDS, stem
from herma.tools.memory import memory_tool
from herma.tools.registry import Json, Run, Tool, ToolContext, Tools
from herma.tools.skills import session_search_shown, skill_manage_shown, skill_view_shown, skills_list_shown
from herma.transcript.log import Keeping, Transcripts
from herma.transcript.rows import SqliteFeed, SqliteMessages, SqliteReader, SqliteSessions
from herma.types import (
    MOVES,
    Author,
    Change,
    Circumstances,
    CompletedTurn,
    Context,
    Contribution,
    MemoryOp,
    MemoryOutcome,
    Message,
    Occasion,
    Reply,
    Scope,
    SessionInfo,
    SessionView,
    Target,
    Usage,
    Who,
)
from herma.worker import Worker

if TYPE_CHECKING:
    from herma.compression.engine import Compressor
    from herma.config import ReviewSettings, Settings
    from herma.doctor.checks import Diagnosis
    from herma.episodes.types import Restored
    from herma.index.types import VectorIndex
    from herma.models.client import RemoteModel, Retry
    from herma.opening import Files
    from herma.prompt.budget import Plan
    from herma.prompt.ledger import CostReport, PriceTable
    from herma.providers.manager import Providers, Seat
    from herma.review.gate import Propose
    from herma.review.proposal import Window
    from herma.review.review import Embed, Policy, Reviews, ReviewWatcher
    from herma.review.spending import Pauses, SpendReport
    from herma.search.prefetch import Prefetch, Prefetcher
    from herma.search.query import SearchOptions, SearchReport
    from herma.session import Session
    from herma.skills.curator import Curator, CuratorOptions
    from herma.skills.files import SkillFiles
    from herma.skills.find import Meanings, Nearest
    from herma.skills.library import Surroundings
    from herma.skills.rows import SkillRows
    from herma.skills.types import SkillOrigin
    from herma.store.database import Database


# ---------- wiring.ground
#
# What every part stands on: the settings, the clock, the database, and whether the memory is still open.


class Ground:
    """Given to each function of this folder."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        alive: Callable[[], None],
        embedder: Embedder | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.alive = alive
        self._given_embedder = embedder

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def embedder_given(self) -> bool:
        """Whether the embedder is the caller's own."""
        return self._given_embedder is not None

    @part
    def database(self) -> Database:
        """`herma.db`; opened with its first statement."""
        from herma.store.database import Database

        return Database(self.home / "herma.db", busy_timeout=self.settings.memory.lock_timeout)

    @part
    def embedder(self) -> Embedder | None:
        """What turns texts into vectors: what was given, else what the settings name, if that is anything. Raises
        `EmbedderError` where one is asked for by name and is not there.
        """
        if self._given_embedder is not None:
            return self._given_embedder
        from herma.errors import EmbedderError
        from herma.models.embedder import make_embedder

        choice = make_embedder(self.settings.embedding, home=self.home)
        if choice.embedder is None and choice.wanted:
            raise EmbedderError(f"{choice.reason}.")
        return choice.embedder

    def close(self) -> None:
        if "database" in self.__dict__:
            self.database.close()


# ---------- wiring.names
#
# Names and folders as sessions are given them.


def folder_of(given: str | Path | None) -> str:
    """Where the work takes place, as a path that means the same tomorrow; nothing where there is no such folder."""
    if not given or not os.path.isdir(given):  # noqa: PTH112  a project's name may be no path
        return ""
    return os.path.abspath(given).encode("utf-8", "backslashreplace").decode()  # noqa: PTH100


def name_of(given: str | None, what: str) -> str:
    """A name as every store can keep it: half a surrogate pair, as undecodable file names have it, is written out."""
    if given is not None and not isinstance(given, str):
        raise UsageError(f"The {what} of a session is text, not {type(given).__name__}.", hint="Give it as a string.")
    return (given or "").strip().encode("utf-8", "backslashreplace").decode()


# ---------- app
#
# `Herma.open()`: settings → everything wired. The only module that knows every adapter.


class Herma:
    """An opened memory. Use it in a `with` block, or call `close()`."""

    def __init__(
        self, settings: config.Settings, *, clock: Callable[[], float] = time.time, embedder: Embedder | None = None
    ) -> None:
        self.settings = settings
        self.home = settings.home
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._expired = False
        self._ground = Ground(settings, clock, self._check_alive, embedder)
        self.reranker: Reranker | None = None  # a second opinion on the first hits of a search, if a program has one

    # ── the parts, each made when it is first used, so that no command loads what it does not need ──

    @part
    def memory(self) -> MemoryStore:
        """Curated memory: MEMORY.md and USER.md."""

        return memory_store(self._ground, lambda: self.index.vectors)

    @part
    def transcripts(self) -> Transcripts:
        """Every message of every session."""

        return transcripts(self._ground)

    @part
    def index(self) -> Index:
        """Words of all messages; derived, so it may be dropped and rebuilt at any time."""

        return index(self._ground)

    @part
    def episodes(self) -> Episodes:
        """What was done before, one episode per conversation, and where the work stood."""

        return episodes(self._ground, lambda: self.index.vectors, lambda name, so: self.skills.judge(name, *so))

    @part
    def skills(self) -> SkillLibrary:
        """Written procedures: SKILL.md files, found for a task, and known by how they did."""

        return skill_library(self._ground, lambda: self.index.vectors)

    @part
    def curator(self) -> Curator:
        """Keeps skills in shape, by age and use: `h.curator.run(dry_run=True)` says what is due."""

        return curator(self._ground, lambda: self.skills, lambda: self.models.get("auxiliary", purpose="curate"))

    @part
    def facts(self) -> Facts:
        """Exact answers to exact questions, out of curated memory: "my time zone"."""

        return facts(self._ground, lambda: self.memory)

    @part
    def tools(self) -> Tools:
        """What a model may call."""

        assisted = None if self.models.endpoint("auxiliary") is None else lambda: self._assisted
        return tools(self._ground, self.memory, self.transcripts, lambda: self._searcher, lambda: self.skills, assisted)

    @part
    def providers(self) -> Providers:
        """The external memory that takes part in sessions, and others that could."""

        return providers(self._ground)

    @part
    def models(self) -> Models:
        """The language models that the settings name, and what background work spends on them."""

        return Models(self._ground)

    @part
    def reviews(self) -> Reviews:
        """Looking back at conversations, to learn from them."""

        return reviews(self._ground, self)

    @part
    def tidy(self) -> Tidy:
        """Curated memory kept in order: `h.tidy(dry_run=True)` says what could be done."""

        return tidy(self._ground, self.memory, lambda: self.models.get("auxiliary", purpose="tidy"))

    @part
    def prefetch(self) -> Prefetch:
        """What is looked up in past conversations before each turn: `prefetch.look(text)` says what, and why."""

        return prefetch(self._ground, self.transcripts, lambda: self.index, lambda: self.facts)

    @part
    def _assisted(self) -> AssistedSearch:

        return assisted_search(self._searcher, self.transcripts, lambda: self.models)

    @part
    def _searcher(self) -> Searcher:

        return searcher(self._ground, self.transcripts, self.index, lambda: self.reranker)

    @part
    def _calls(self) -> SqliteCalls:

        return calls(self._ground)

    @part
    def _opener(self) -> Opener:

        return opener(
            self._ground,
            self.memory,
            self.transcripts,
            self.tools,
            self._calls,
            written=lambda count: self.index.written(count),  # noqa: PLW0108  made after the first reply
            invite=everybody(self._ground, self),
        )

    # ── what a program does with it ──

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        url: str | None = None,
        profile: str | None = None,
        *,
        flags: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
        embedder: Embedder | None = None,
    ) -> Self:
        """Open a home: `home`, else HERMA_HOME, HERMES_HOME, `~/.herma`. Nothing is created before the first write.

        `embedder` is one of your own, in place of what the settings name.
        """
        given = dict(flags or {})
        if url is not None:
            given["store.url"] = url
        settings = config.load(home=home, profile=profile, flags=given)
        if settings.store.url:
            raise UsageError(
                "This version keeps memory in the home only, and store.url names another place.",
                hint="Leave store.url empty.",
            )
        return cls(settings, clock=clock, embedder=embedder)

    def session(
        self,
        source: str = "library",
        *,
        project: str | None = None,
        user: str | None = None,
        resume: str | None = None,
        system_message: str = "",
        title: str | None = None,
        parent: str | None = None,
        model: str | None = None,
        provider: str = "",
        folder: str | Path | None = None,
        platform: str = "",
        context: Context = "primary",
        user_name: str = "",
        chat: str = "",
        chat_type: str = "",
        thread: str = "",
        tools: Sequence[Tool] | None = (),
    ) -> Session:
        """Start a session, or go on with one: its prompt is frozen now, its tools write at once.

        `folder` is where the work takes place, and where AGENTS.md and the like are looked for; a project that is a
        folder is one. `provider` is who runs the model. `platform` is how to write for where the answer is read;
        `context` says who works: the user's agent, or one that was started by it. `tools` are more that the model may
        call; `None`: none at all.
        """
        from herma.opening import Wish
        from herma.prompt.assemble import branch_of

        self._check_alive()
        if not resume:  # what is asked for must not be deleted in the same breath
            self._expire_once()
        if context not in get_args(Context):
            raise UsageError(f"{context!r} is no context.", hint=f"There are {', '.join(get_args(Context))}.")
        scope = Scope(self.settings.profile, name_of(project, "project"), name_of(user, "user"), name_of(chat, "chat"))
        wish = Wish(
            source=name_of(source, "source"),
            scope=scope,
            system_message=system_message,
            title=title,
            parent=parent,
            model=model,
            circumstances=Circumstances(
                platform, context, user_name, name_of(chat_type, "chat type"), thread, system_message
            ),
            files=lambda: self._files(folder or project),
            provider=name_of(provider, "provider"),
            folder=(place := folder_of(folder or project)),
            branch=branch_of(place) if place else "",
            tools=tools,
        )
        return self._opener.resume(resume, wish) if resume else self._opener.new(wish)

    def restore(
        self, task: str, *, project: str | None = None, user: str | None = None, budget_tokens: int | None = None
    ) -> Restored:
        """What is known for a task, as text and as blocks that any agent can use: where the work was left, curated
        memory, skills that fit, and earlier work on the like. Without a budget, as much as a window gives to memory.
        """

        self._check_alive()
        scope = Scope(self.settings.profile, name_of(project, "project"), name_of(user, "user"))
        put_together, room = restorer(self._ground, self.memory, self.episodes, lambda: self.skills)
        return put_together.restore(task, scope, room if budget_tokens is None else budget_tokens)

    def search(
        self, text: str, *, expand: bool = False, summarize: bool = False, **options: Unpack[SearchOptions]
    ) -> SearchReport:
        """Find what was said in any session. The report says how the text was read, what was left out, and why.

        Options are `limit` (10), `level` ("session": one hit for each conversation; "message": the best messages),
        `mode` ("hybrid", "words", "vectors"), `role`, `source`, `project`, `since`, `before`, `sort` ("newest",
        "oldest"), `scope`, `current_session`, `include_archived` and `explain`. With a model: `expand` searches for
        other words too, `summarize` sums up what the first conversations say about it.
        """
        if expand or summarize:
            return self._assisted.search(text, expand=expand, summarize=summarize, **options)
        return self._searcher.search(text, **options)

    def expand(self, line: str, *, session: str | None = None) -> Expansion:
        """The original messages behind a line of a summary: the line as it stands, its numbers (`#12-18`) or, with the
        session that it stands in, words of it.
        """

        return expanded(self._ground, self.transcripts, line, session)

    def branch(
        self, session_id: str, *, after: int | None = None, source: str = "library", tools: Sequence[Tool] | None = ()
    ) -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        from herma.opening import Wish

        self._check_alive()
        scope = Scope(self.settings.profile)
        wish = Wish(source=source, scope=scope, files=lambda: self._files(None), tools=tools)
        return self._opener.branch(session_id, wish, after=after)

    def working_memory(self, session: str | None = None) -> Plan:
        """The model's window for a stored session, or for one that would begin now. Opens and writes nothing."""
        from herma.opening import Wish

        self._check_alive()
        wish = Wish(source="library", scope=Scope(self.settings.profile), files=lambda: self._files(None))
        return self._opener.look(session, wish)

    def cost(self, session: str | None = None, since: datetime | float | None = None) -> CostReport:
        """What calls to models took: tokens reused and new, where and why the prefix broke, and the money.

        Of one conversation or of all; `since` is a time as seconds since 1970, or as a `datetime`.
        """

        self._check_alive()
        since = since.timestamp() if isinstance(since, datetime) else since
        return cost_report(self._ground, self._calls, self.transcripts, session, since)

    def model(self, role: Role = "main", *, purpose: str | None = None) -> ChatModel | None:
        """The model of a role: `main`, or `auxiliary` for background work, which has a purpose and a daily cap.

        `None` if none is set; `models.why_not(role)` says why, and what it would add.
        """
        return self.models.get(role, purpose=purpose)

    def doctor(self, *, full: bool = False, progress: Callable[[int, int], None] | None = None) -> Diagnosis:
        """Look whether everything is all right, and what to type where it is not. Changes nothing."""
        from herma.doctor.checks import diagnose

        self._check_alive()
        return diagnose(self.home, self.settings, full=full, clock=self._clock, progress=progress)

    def close(self) -> None:
        """Let go of the databases. Closing twice does no harm."""
        mine = self.__dict__ if self._process == os.getpid() else {}
        for name in [each for each in ("reviews", "tidy", "curator") if each in mine]:
            mine[name].close()  # they write through parts that must be open
        self._closed = True
        if "episodes" in mine:
            self.episodes.wait()
        for other in [each for each in ("providers", "index") if each in mine]:
            mine[other].close()
        self._ground.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _expire_once(self) -> None:
        """Where transcripts are kept for a limited time, that is seen to at the first session of a process."""

        if not self._expired:
            expire_due(self._ground, lambda: self.transcripts)
        self._expired = True

    def _files(self, folder: str | Path | None) -> Files:
        from herma.opening import Files
        from herma.prompt.assemble import read_project_files, read_soul

        place = folder if folder and os.path.isdir(folder) else None  # noqa: PTH112  a project's name may be no path
        return Files(read_soul(self.home), tuple(read_project_files(place)))

    def _check_alive(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.", hint="Open it again in the child: Herma.open()."
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")


# ---------- wiring.company
#
# Who comes along in every session: each part says for itself, and all of them together are one company.


def together(*invites: Invite) -> Invite:
    """Everybody whom any of these invites, in this order."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        found = [_asked(one, view, rehearsal) for one in invites]
        return Company(
            watchers=[each for one in found for each in one.watchers],
            contributors=[each for one in found for each in one.contributors],
            tools=[each for one in found for each in one.tools],
            warnings=tuple(dict.fromkeys(each for one in found for each in one.warnings)),
            room=next((one.room for one in found if one.room is not None), None),
        )

    return invite


def _asked(invite: Invite, view: SessionView, rehearsal: bool) -> Company:
    """Whoever cannot come because a store cannot be read is named: the session matters more."""
    try:
        return invite(view, rehearsal)
    except StoreError as exc:
        return Company(warnings=(str(exc),))


# ---------- wiring.troubles
#
# What goes wrong with guests and with parts that follow sessions is written down, for the doctor.


def written_down(ground: Ground) -> Callable[[Trouble], None]:
    log = TroubleLog(ground.home)

    def shown(trouble: Trouble) -> None:
        log.add(Noted(ground.clock(), trouble.guest, trouble.what, trouble.why))

    return shown


# ---------- wiring.compression
#
# How sessions are shortened: the engine that the settings name, its models and its lock.


def with_compression(ground: Ground, kept: Transcripts, models: Callable[[], Models]) -> Invite:
    """In every session: what makes room when its window fills."""
    settings = ground.settings
    options = engine_options(settings.compression)

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal:
            return Company()
        window = window_of(view.model or settings.model.name, settings.context.window)
        counter = counter_for(view.model or None)
        needs = EngineNeeds(
            conversation=view.info.conversation,
            window=window.tokens,
            window_known=window.known,
            counter=counter,
            rows=SqliteCompression(ground.database),
            clock=ground.clock,
            models=lambda: summarisers(models()),
            options=options,
        )
        engine, why_not = made_engine(settings.context.engine, needs, written_down(ground), ground.home)
        room = Room(
            engine,
            hold=_hold(ground),
            gone_on=lambda view: _gone_on(kept, view),
            count=counter.count,
            in_place=settings.compression.in_place,
            automatic=window.known and view.circumstances.context != "review",
            why_not=why_not,
            guessed=not window.known and options.enabled,
        )
        return Company(watchers=[room], room=room)

    return invite


def engine_options(settings: CompressionSettings) -> EngineOptions:
    """`compression.*`."""
    return EngineOptions(
        enabled=settings.enabled,
        threshold=settings.threshold,
        tail=settings.tail,
        head=settings.protect_first,
        on_failure=settings.on_failure,
        deadline=settings.deadline,
    )


def made_engine(
    name: str, needs: EngineNeeds, shown: Callable[[Trouble], None], home: Path
) -> tuple[ContextEngine | None, str]:
    """The engine of a session; or none, and why. A user's that cannot be made never keeps a session from opening."""
    if is_own(name):
        return OwnEngine(needs), ""
    guard = Guard(f"the context engine {name}", shown=shown)
    made = guard.ask("making it", lambda: engine_class(name, home)(needs), None)
    last = guard.health.last
    if made is None:
        why = last.why if last else "it made nothing"
        return None, f"context.engine is {name}, and that cannot be used ({why}); nothing is shortened."
    missing = [
        part
        for part in ("name", "should_compress", "compress", "update_from_response", *_TOLD)
        if not hasattr(made, part)
    ]
    if missing:
        guard.count("making it", f"it has no {missing[0]}")
        return None, f"context.engine is {name}, and that has no {', '.join(missing)}; nothing is shortened."
    return made, ""


class OwnEngine:
    """The compressor, loaded when a conversation first fills its window: most never do."""

    name = OWN

    def __init__(self, needs: EngineNeeds) -> None:
        self._needs = needs
        self._made: Compressor | None = None
        self._threshold = needs.options.threshold * needs.window

    @property
    def held_back(self) -> str:
        return self._made.held_back if self._made else ""

    def on_session_start(self, session_id: str, *, boundary_reason: str, old_session_id: str = "") -> None:
        """The conversation stays the same, and with it what was tried."""

    def on_session_end(self, session_id: str, messages: Sequence[Message]) -> None:
        """Nothing is held."""

    def on_reset(self) -> None:
        self._made = None

    def update_from_response(self, usage: Usage) -> None:
        if self._made:
            self._made.update_from_response(usage)

    def should_compress(self, prompt_tokens: int) -> bool:
        return prompt_tokens >= self._threshold and self._compressor.should_compress(prompt_tokens)

    def compress(
        self,
        messages: Sequence[Message],
        *,
        current_tokens: int,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Compression:
        return self._compressor.compress(
            messages,
            current_tokens=current_tokens,
            focus_topic=focus_topic,
            force=force,
            memory_context=memory_context,
        )

    @property
    def _compressor(self) -> Compressor:
        if self._made is None:
            from herma.compression.engine import Compressor

            self._made = Compressor.of(self._needs)
        return self._made


_TOLD = ("on_session_start", "on_session_end", "on_reset")


def summarisers(models: Models) -> list[ChatModel]:
    """Who may be asked for a summary: the auxiliary model, then the main one if that is another."""
    auxiliary, main = models.endpoint("auxiliary"), models.endpoint("main")
    asked = [models.get("auxiliary", purpose="compress")] if auxiliary else []
    if main is not None and (auxiliary is None or (main.url, main.name) != (auxiliary.url, auxiliary.name)):
        asked.append(models.get("main", purpose="compress"))
    return [model for model in asked if model is not None]


def _hold(ground: Ground) -> Callable[[str], AbstractContextManager[bool]]:
    return lambda conversation: files_alone(ground.home, f"compress {conversation}")


def _gone_on(kept: Transcripts, view: SessionView) -> bool:
    """Whether others have shortened the conversation: in another session, or in the same place."""
    if kept.get(view.id) is not None and kept.resume_target(view.id) != view.id:
        return True
    last = kept.around(view.messages[-1].id, 0) if view.messages else []
    return bool(last) and last[0].hidden == "compacted"


# ---------- wiring.curated
#
# How curated memory follows sessions: what the long tail has for a turn, and tidying after the reply.


def with_curated(ground: Ground, memory: Callable[[], MemoryStore], tidy: Callable[[], Tidy]) -> Invite:
    """In every session. Tidying is made after the first reply: before that there is nothing to stop."""
    options = ground.settings.memory
    begun = threading.Event()

    def submit(what: str, work: Callable[[threading.Event], None], owner: str) -> None:
        begun.set()
        tidy().worker.submit(what, work, owner=owner)

    def stop(owner: str) -> None:
        if begun.is_set():
            tidy().worker.cancel(owner)

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        if rehearsal or not (options.memory_enabled or options.user_profile_enabled):
            return Company()
        watcher = CuratedWatcher(
            memory,
            tidy,
            submit,
            stop,
            recalled=options.tail_recall,
            uses=options.tail_uses,
        )
        return Company([watcher])

    return invite


# ---------- wiring.curator
#
# The curator: skills, snapshots and reports under it, and how it follows sessions.

_HOUR, _DAY = 3_600.0, 86_400.0
_ORIGINS: dict[str, SkillOrigin] = {"agent": "agent", "installed": "installed", "user": "user", "found": "found"}
_WORKING = ("primary", "cron")


def curator(ground: Ground, library: Callable[[], SkillLibrary], model: Callable[[], ChatModel | None]) -> Curator:
    from herma.providers.guard import Trouble
    from herma.skills.curator import Curator, CuratorDesk
    from herma.skills.document import read_skill
    from herma.skills.files import CuratorFiles, SkillFiles, SkillFileWriting, SkillSnapshotFiles, external_folders
    from herma.skills.library import Catalogue, Surroundings
    from herma.skills.rows import SkillRows, SqliteSkillUsage

    settings = ground.settings
    rows = SkillRows(ground.database, settings.profile)
    usage = SqliteSkillUsage(ground.database, settings.profile)
    folders = SkillFiles(ground.home, rows, read_skill, external_folders(ground.home, settings.skills.external_dirs))
    writing = SkillFileWriting(ground.home, rows, lock_timeout=settings.memory.lock_timeout, clock=ground.clock)
    shown = written_down(ground)
    desk = CuratorDesk(
        library=library,
        catalogue=Catalogue(folders, usage, Surroundings()),
        usage=usage,
        hold=writing.hold,
        snapshots=SkillSnapshotFiles(ground.home),
        book=CuratorFiles(ground.home, ground.database, settings.profile),
        clock=ground.clock,
        model=model,
        alive=ground.alive,
        failed=lambda what, why: shown(Trouble("the curator", what, why)),
    )
    return Curator(desk, curator_options(settings.curator, approval=settings.skills.write_approval))


def curator_options(settings: CuratorSettings, *, approval: bool = False) -> CuratorOptions:
    """`curator.*`, checked."""
    from herma.skills.curator import CuratorOptions, CuratorRules

    named = [part.strip() for part in settings.origins.split(",") if part.strip()]
    unknown = [name for name in named if name not in _ORIGINS]
    if unknown:
        raise ConfigError(
            f"curator.origins names {unknown[0]!r}.", hint=f"Use {', '.join(_ORIGINS)}, separated by commas."
        )
    if settings.archive_days < settings.stale_days:
        raise ConfigError(
            f"curator.archive_days ({settings.archive_days:g}) is less than curator.stale_days"
            f" ({settings.stale_days:g}).",
            hint="A skill is stale before it goes to the archive.",
        )
    rules = CuratorRules(
        stale=settings.stale_days * _DAY,
        archive=settings.archive_days * _DAY,
        notice=settings.notice_days * _DAY,
        interval=settings.interval_hours * _HOUR,
        most=settings.most_archived,
        origins=frozenset(_ORIGINS[name] for name in named),
        uses=settings.review_uses,
        rate=settings.review_rate,
    )
    idle = settings.min_idle_hours * _HOUR
    return CuratorOptions(rules, settings.enabled, idle, settings.keep_snapshots, approval, settings.consolidate)


def with_curator(ground: Ground, made: Callable[[], Curator]) -> Invite:
    """In every session: a run in the background when it is due and nobody is at work."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.curator.enabled or view.circumstances.context not in _WORKING:
            return Company()
        return Company(watchers=[CuratorWatcher(made, (ground.home / "skills").is_dir)])

    return invite


class CuratorWatcher(Watcher):
    """Says when a reply was given and when a session ended."""

    name = "the curator"

    def __init__(self, made: Callable[[], Curator], needed: Callable[[], bool]) -> None:
        self._made = made
        self._needed = needed

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        if self._needed():
            self._made().later(view.id, ended=False)

    def closing(self, view: SessionView, reason: str) -> None:
        if reason not in MOVES and view.messages and self._needed():
            self._made().later(view.id, ended=True)


# ---------- wiring.episodes
#
# Episodes: their tables under the keeper, and how they follow sessions and are embedded.

_AT_A_TIME = 500


def episodes(
    ground: Ground,
    vectors: Callable[[], VectorIndex | None] = lambda: None,
    judged: Callable[[str, Verdict], None] = lambda _name, _verdict: None,
) -> Episodes:
    rows = SqliteEpisodes(ground.database)
    return Episodes(
        Tables(rows, rows, rows, SqliteGlimpses(ground.database)),
        profile=ground.settings.profile,
        most=ground.settings.episodes.max,
        language=Language(STOP_WORDS, stem),
        vectors=vectors,
        clock=ground.clock,
        alive=ground.alive,
        judged=judged,
    )


def with_episodes(ground: Ground, kept: Callable[[], Episodes]) -> Invite:
    """In every session: the best episodes in its prompt, and one more at its end."""
    shown = ground.settings.episodes.shown

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        return Company([EpisodeWatcher(kept)], [EpisodeContributor(kept, ground.clock, shown)])

    return invite


@dataclass(frozen=True, slots=True)
class EpisodeTexts:
    """Live episodes as the vector index takes them: what was wanted and what came of it."""

    rows: SqliteEpisodes
    kind: str = EPISODES_KIND

    def version(self) -> str:
        return self.rows.version()

    def texts(self) -> Iterator[Embeddable]:
        from herma.index.types import Embeddable

        offset = 0
        while some := self.rows.select(EpisodeFilter(), _AT_A_TIME, offset):
            offset += len(some)
            for one in some:
                text = "\n".join(filter(None, (one.task, one.result, one.error)))
                yield Embeddable(str(one.id), text, episodes_scope_key(one.scope))


def episode_texts(ground: Ground) -> EpisodeTexts:
    return EpisodeTexts(SqliteEpisodes(ground.database))


# ---------- wiring.prefetch
#
# Looking back before each turn: what it searches, and how it comes along in sessions.

_EMBEDDING = 0.4
"""Part of the deadline that embedding the question may take; the rest is for searching."""


def prefetch(ground: Ground, kept: Transcripts, words: Callable[[], Index], facts: Callable[[], Facts]) -> Prefetch:
    from herma.search.prefetch import CHARACTERS, Prefetch, Prefetcher, PrefetchParts
    from herma.search.search import Searcher
    from herma.transcript.rows import SqliteReader

    settings = ground.settings.search
    deadline = settings.prefetch_ms / 1000

    def made(warm: Callable[[], bool]) -> Prefetcher:
        index, reader = words(), SqliteReader(ground.database)
        searcher = Searcher(
            reader,
            index,
            members=kept.conversation,
            clock=ground.clock,
            alive=ground.alive,
            vectors=index.vectors,
            mode=settings.mode,
            wait=_EMBEDDING * deadline,
        )
        vectors = None if settings.mode == "words" else index.vectors
        return Prefetcher(searcher, reader, index, vectors=vectors, warm=warm, clock=ground.clock)

    def room(model: str) -> int:
        """A quarter of what the window gives to memory, at about four characters a token."""
        budget = window_budget(ground.settings.context).of(model or ground.settings.model.name or None)
        return min(CHARACTERS, budget.room("memory"))

    def warm() -> None:
        vectors = words().vectors
        if settings.mode != "words" and vectors is not None and vectors.state().ready:
            vectors.warm()

    parts = PrefetchParts(made, lambda text, scope: facts().answer(text, scope), room, warm)
    return Prefetch(parts, enabled=settings.prefetch, deadline=deadline)


def with_prefetch(ground: Ground, made: Callable[[], Prefetch], facts: Callable[[], Facts]) -> Invite:
    """In every session: who looks back before each turn."""
    settings = ground.settings.search
    sessions = SqliteSessions(ground.database)

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        if rehearsal or not settings.prefetch:
            return Company()
        deadline = settings.prefetch_ms / 1000
        return Company(watchers=[FactWatcher(facts, deadline), PastWatcher(made, sessions.others_spoken, deadline)])

    return invite


# ---------- wiring.providers
#
# The external memory of sessions: found by its name, guarded, and invited to each of them.


def providers(ground: Ground) -> Providers:
    from herma.providers.manager import Deadlines, Providers

    options = ground.settings.providers
    return Providers(
        ground.home,
        ground.settings.memory.provider,
        profile=ground.settings.profile,
        deadlines=Deadlines(options.timeout, options.tool_timeout, options.drain),
        failures=options.failures,
        pause=options.pause,
        shown=written_down(ground),
        alive=ground.alive,
    )


def with_provider(ground: Ground, roster: Callable[[], Providers], reserved: Callable[[], Sequence[str]]) -> Invite:
    """Invites the configured provider; where none is configured, nothing is loaded. `reserved`: names of our tools."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.memory.provider.strip():
            return Company()
        seat, warnings = roster().seat(view, reserved())
        watchers = [roster().watcher()]
        if seat is None:
            return Company(watchers, warnings=warnings)
        return Company([seat, *watchers], [seat], [_tool(seat, schema) for schema in seat.tools], warnings)

    return invite


def _tool(seat: Seat, schema: Json) -> Tool:
    name = schema["name"]

    def run(arguments: Json, context: ToolContext) -> Json:  # noqa: ARG001
        return seat.call_tool(name, arguments)

    return Tool(name, schema["description"], schema["parameters"], run)


# ---------- wiring.reflect
#
# Looking back at conversations: its rows, its models, and how it follows sessions.

_LEARNS: tuple[Context, ...] = ("primary",)
"""Whose sessions are looked back at: not those of subagents and clocks, where nobody says anything about themselves."""


class ReflectWhole(Protocol):
    """The opened memory: what looking back needs of it, each part when it is needed."""

    @property
    def memory(self) -> MemoryStore: ...
    @property
    def transcripts(self) -> Transcripts: ...
    @property
    def tools(self) -> Tools: ...
    @property
    def skills(self) -> SkillLibrary: ...
    @property
    def episodes(self) -> Episodes: ...
    @property
    def models(self) -> Models: ...


class Invited(Protocol):
    """What a session's beginning and its first turn need of it."""

    @property
    def memory(self) -> MemoryStore: ...
    @property
    def reviews(self) -> Reviews: ...


def reviews(ground: Ground, whole: ReflectWhole) -> Reviews:
    from herma.providers.guard import Trouble
    from herma.review.review import Needs, Reviews
    from herma.review.rows import SqliteReviews

    shown = written_down(ground)
    needs = Needs(
        rows=SqliteReviews(ground.database),
        memory=whole.memory,
        propose=_proposing(ground),
        skills=lambda: whole.skills,
        episodes=lambda: whole.episodes,
        model=lambda purpose: _model(whole.models, purpose),
        why_no_model=lambda: _why_not(whole.models),
        window=lambda name: _window(ground, name),
        load=lambda session: _stored(whole, session),
        clock=ground.clock,
        alive=ground.alive,
        price_of=lambda name: whole.models.price_of(name),  # noqa: PLW0108  models are made when they are needed
        elsewhere=lambda target, scope: _in_tail(whole.memory, target, scope),
        failed=lambda what, why: shown(Trouble("review", what, why)),
    )
    return Reviews(needs, policy_of(ground.settings.review, ground.settings.memory))


def _model(models: Models, purpose: str) -> ChatModel | None:
    """The model for background work; none where that is switched off, which nobody needs to be told every time."""
    return None if models.meter.caps.off else models.get("auxiliary", purpose=purpose)


def _why_not(models: Models) -> str:
    if models.meter.caps.off:
        return "Background work may spend nothing (spend.daily_usd or spend.daily_tokens is 0), so no model is asked."
    return models.why_not("auxiliary")


def with_reviews(ground: Ground, whole: Invited) -> Invite:
    """In the sessions of the user's own agent: they are looked back at."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.review.enabled or view.circumstances.context not in _LEARNS:
            return Company()
        check(ground.settings.review)
        return Company(
            watchers=[LookingBack(lambda: _watcher(ground, whole.reviews))],
            warnings=_waiting(_proposals(ground, whole.memory, view.scope)),
        )

    return invite


class LookingBack(Watcher):
    """Follows a session for `ReviewWatcher`, which is made when there is something to look back at."""

    name = "review"
    outside = False
    at_once = True  # it stops what runs, and looks at the time

    def __init__(self, made: Callable[[], ReviewWatcher]) -> None:
        self._make = made
        self._made: ReviewWatcher | None = None
        self._began_with: SessionView | None = None

    @property
    def notices(self) -> Sequence[str]:  # type: ignore[override]
        return self._made.notices if self._made is not None else ()

    def opened(self, view: SessionView) -> None:
        self._began_with = view

    def turn_began(self, view: SessionView, text: str) -> str:
        if self._made is None and not view.messages:
            return ""
        return self._watcher.turn_began(view, text)

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._watcher.turn_completed(view, turn)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        if self._made is not None:
            self._made.switched(old, new, reason, reset)

    def closing(self, view: SessionView, reason: str) -> None:
        if self._made is not None or view.messages:
            self._watcher.closing(view, reason)

    @property
    def _watcher(self) -> ReviewWatcher:
        if self._made is None:
            self._made = self._make()
            if self._began_with is not None:
                self._made.opened(self._began_with)
                self._began_with = None
        return self._made


def _watcher(ground: Ground, reviews: Reviews) -> ReviewWatcher:
    from herma.review.review import ReviewWatcher
    from herma.review.rows import SqliteReviews

    return ReviewWatcher(reviews, SqliteReviews(ground.database).covered, ground.clock, _embedding(ground))


def _proposals(ground: Ground, memory: MemoryStore, scope: Scope) -> tuple[int, int]:
    """How many changes of this scope's memory, and of skills, reviews have proposed that wait for a person."""
    from herma.review.rows import SqliteReviews

    of_reviews = [one for one in memory.pending() if one.author.who is Who.REVIEW]
    mine = [one for one in of_reviews if one.scope.user == scope.user and one.scope.project in ("", scope.project)]
    skills = SqliteReviews(ground.database).proposed_skills(ground.settings.profile, ground.clock())
    return len(mine), skills


def _waiting(proposals: tuple[int, int]) -> tuple[str, ...]:
    """A queue that nobody sees helps nobody: a session says what waits."""
    said = []
    for number, group in zip(proposals, ("memory", "skills"), strict=True):
        if number:
            what = "proposal of a review waits" if number == 1 else "proposals of reviews wait"
            said.append(f"{number} {what} for you: herma {group} pending")
    return tuple(said)


def check(settings: ReviewSettings) -> None:
    """Refuse values of `review.*` that mean nothing."""
    _divides(settings)


def policy_of(settings: ReviewSettings, memory: MemorySettings) -> Policy:
    """`review.*`, checked."""
    from herma.review.proposal import Limits
    from herma.review.review import Policy

    return Policy(
        enabled=settings.enabled,
        memory_every=memory.nudge_interval if memory.memory_enabled or memory.user_profile_enabled else 0,
        skills_every=settings.skill_interval,
        writes=settings.writes,
        skill_writes=settings.skill_writes,
        at_end=settings.at_end,
        min_turns=settings.min_turns,
        idle_minutes=settings.idle_minutes,
        boundaries=_divides(settings),
        limits=Limits(settings.max_steps, settings.deadline),
        drain=settings.drain,
        keep_days=settings.keep_days,
    )


def _divides(settings: ReviewSettings) -> tuple[str, ...]:
    named = tuple(part.strip() for part in settings.boundaries.split(",") if part.strip())
    for one in named:
        if one not in DIVIDES:
            raise ConfigError(
                f"review.boundaries has {one!r}, which divides nothing.", hint=f"There are {', '.join(DIVIDES)}."
            )
    return named


def _proposing(ground: Ground) -> Propose:
    """Keeps writes for a person, over the same files and rows as everybody's."""
    from herma.memory.entries import Place
    from herma.memory.files import CuratedFiles, CuratedRows, SqliteInbox
    from herma.memory.store import ApprovalQueue, Writer

    def propose(
        target: Target,
        ops: Sequence[MemoryOp],
        scope: Scope,
        author: Author,
        reason: str = "",
        *,
        although_full: bool = False,
    ) -> MemoryOutcome:
        options, rows = ground.settings.memory, CuratedRows(ground.database)
        files = CuratedFiles(ground.home, rows, lock_timeout=options.lock_timeout, clock=ground.clock)
        limits: dict[Target, int] = {"memory": options.memory_char_limit, "user": options.user_char_limit}
        queue = ApprovalQueue(
            SqliteInbox(ground.database),
            Writer(files, rows, limits, ground.clock),
            days=options.inbox_days,
            clock=ground.clock,
        )
        place = Place.of(target, replace(scope, profile=ground.settings.profile))
        return queue.stage(place, ops, author, reason, although_full=although_full)

    return propose


def _in_tail(memory: MemoryStore, target: Target, scope: Scope) -> list[str]:
    """What is kept outside the files, or was dropped from there by a person: neither is saved anew by itself."""
    tail = memory.tail
    kept, dropped = tail.list(target, scope=scope), tail.list(target, scope=scope, forgotten=True)
    return [entry.text for entry in (*kept, *dropped)]


def _window(ground: Ground, name: str) -> Window:
    from herma.prompt.tokens import counter_for, window_of
    from herma.review.proposal import Window

    return Window(window_of(name, ground.settings.context.window).tokens, counter_for(name).count)


def _embedding(ground: Ground) -> Embed | None:
    """Vectors, where they cost nothing but time: no endpoint is asked to tell topics apart."""
    if ground.settings.embedding.model in ("none", "endpoint"):
        return None

    def embed(texts: Sequence[str]) -> Sequence[Sequence[float]] | None:
        embedder = ground.embedder
        if embedder is None:
            return None
        return [[float(number) for number in vector] for vector in embedder.passages(texts)]

    return embed


def _stored(whole: ReflectWhole, session: str) -> SessionView | None:
    """A stored session as it would be sent: with those before it that it went on from without a summary."""
    from herma.transcript.messages import sendable

    kept = whole.transcripts
    info = kept.get(session)
    if info is None:
        return None
    chain: list[SessionInfo] = [info]
    while chain[-1].reason == "resume" and chain[-1].parent:
        before = kept.get(chain[-1].parent)
        if before is None or before in chain:
            break
        chain.append(before)
    messages = sendable(message for one in reversed(chain) for message in kept.messages(one.id))
    prompt = kept.system_prompt(info.id) or ""
    return SessionView(
        info,
        messages=tuple(messages),
        model=info.model or "",
        folder=info.folder,
        system_prompt=prompt,
        tools=tuple(whole.tools.schemas()),
    )


# ---------- wiring.skills
#
# Skills: folders and rows under the keeper, what they add to prompts, and how they are embedded.

KIND = "skill"
_ALL = 20_000
_FORM = "by sentences"
"""How skills are made into texts; another form is embedded anew though no file changed."""
_LOOKED_AGAIN = 2.0


def skill_library(ground: Ground, vectors: Callable[[], VectorIndex | None] = lambda: None) -> SkillLibrary:
    from herma.skills.files import SkillFileWriting, read_incoming
    from herma.skills.find import SkillFinder
    from herma.skills.library import Catalogue, SkillLibrary
    from herma.skills.rows import SkillRows, SqliteSkillInbox, SqliteSkillUsage
    from herma.text import STOP_WORDS, Terms, stem

    settings, profile = ground.settings, ground.settings.profile
    rows = SkillRows(ground.database, profile)
    usage = SqliteSkillUsage(ground.database, profile)
    catalogue = Catalogue(_folders(ground, rows), usage, _surroundings(settings.skills.tools))
    return SkillLibrary(
        catalogue,
        SkillFileWriting(ground.home, rows, lock_timeout=settings.memory.lock_timeout, clock=ground.clock),
        rows,
        SqliteSkillInbox(ground.database, profile),
        usage,
        SkillFinder(catalogue, Terms(stem, STOP_WORDS), _nearest(vectors)),
        clock=ground.clock,
        write_approval=settings.skills.write_approval,
        inbox_days=settings.memory.inbox_days,
        read=read_incoming,
        alive=ground.alive,
    )


def with_skills(ground: Ground, library: Callable[[], SkillLibrary]) -> Invite:
    """In every session: the list of skills in its prompt."""
    settings = ground.settings.skills

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        some = settings.index_tokens and (settings.external_dirs.strip() or (ground.home / "skills").is_dir())
        return Company(contributors=[SkillContributor(library, settings.index_tokens)] if some else [])

    return invite


@dataclass(frozen=True, slots=True)
class SkillContributor:
    """Adds the list of skills to a prompt."""

    library: Callable[[], SkillLibrary]
    budget: int

    def contribute(self, occasion: Occasion) -> Contribution:
        from herma.skills.library import prompt_index

        library = self.library()
        usage = library.usage()
        usable = [s for s in library.list() if (known := usage.get(s.name)) is None or known.state != "archived"]
        budget = min(self.budget, occasion.system_tokens)
        return Contribution(skills=prompt_index(usable, usage, budget, occasion.count))


class SkillTexts:
    """Skills as the vector index takes them: name, what it is for, and when; the whole and its sentences."""

    kind = KIND

    def __init__(self, library: Callable[[], SkillLibrary]) -> None:
        self._library = library
        self._looked = (-_LOOKED_AGAIN, "")

    def version(self) -> str:
        """Looked at anew every few seconds: it is asked for with every message that is indexed."""
        at, stamp = self._looked
        if time.monotonic() - at >= _LOOKED_AGAIN:
            stamp = f"{self._library().shelf().stamp} {_FORM}"
            self._looked = (time.monotonic(), stamp)
        return stamp

    def texts(self) -> Iterator[Embeddable]:
        from herma.index.types import Embeddable
        from herma.skills.find import texts_for_meaning

        for skill in self._library().shelf().skills:
            for key, text in texts_for_meaning(skill).items():
                yield Embeddable(key, text)


def _folders(ground: Ground, rows: SkillRows) -> SkillFiles:
    from herma.skills.document import read_skill
    from herma.skills.files import SkillFiles, external_folders

    return SkillFiles(
        ground.home, rows, read_skill, external_folders(ground.home, ground.settings.skills.external_dirs)
    )


def _surroundings(tools: str) -> Surroundings:
    from herma.skills.library import Surroundings

    named = frozenset(part.strip() for part in tools.split(",") if part.strip())
    return Surroundings(tools=named or None)


def _nearest(vectors: Callable[[], VectorIndex | None]) -> Nearest:
    def nearest(task: str, count: int) -> Meanings | None:
        from herma.skills.find import Meanings, by_path

        index = vectors()
        state = index.state() if index is not None else None
        if index is None or state is None or not state.ready:
            return None
        found = index.near(task, max(count, _ALL), kinds=(KIND,))
        cosines = by_path((hit.key, hit.score) for hit in found.hits)
        return Meanings(cosines, found.notes, state.model) if cosines else None

    return nearest


# ---------- wiring.everybody
#
# Who comes along in every session of an opened memory.


class Whole(Protocol):
    """The opened memory; each part is made when it is needed."""

    @property
    def curator(self) -> Curator: ...

    @property
    def episodes(self) -> Episodes: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def memory(self) -> MemoryStore: ...

    @property
    def models(self) -> Models: ...

    @property
    def prefetch(self) -> Prefetch: ...

    @property
    def providers(self) -> Providers: ...

    @property
    def reviews(self) -> Reviews: ...

    @property
    def skills(self) -> SkillLibrary: ...

    @property
    def tidy(self) -> Tidy: ...

    @property
    def tools(self) -> Tools: ...

    @property
    def transcripts(self) -> Transcripts: ...


def everybody(ground: Ground, whole: Whole) -> Invite:
    """Each of them, in this order."""
    return together(
        with_skills(ground, lambda: whole.skills),
        with_episodes(ground, lambda: whole.episodes),
        with_prefetch(ground, lambda: whole.prefetch, lambda: whole.facts),
        with_provider(ground, lambda: whole.providers, whole.tools.names),
        with_compression(ground, whole.transcripts, lambda: whole.models),
        with_reviews(ground, whole),
        with_curator(ground, lambda: whole.curator),
        with_curated(ground, lambda: whole.memory, lambda: whole.tidy),
    )


# ---------- wiring.sessions
#
# How sessions are opened: what they are made of, and how their calls are counted.


def calls(ground: Ground) -> SqliteCalls:
    return SqliteCalls(ground.database)


def opener(
    ground: Ground,
    memory: MemoryStore,
    kept: Transcripts,
    tools: Tools,
    rows: SqliteCalls,
    *,
    written: Callable[[int], None],
    invite: Invite = alone,
) -> Opener:
    settings = ground.settings
    lifetime = settings.prices.cache_minutes * 60.0
    return Opener(
        memory,
        kept,
        tools,
        clock=ground.clock,
        metering=Metering(rows, budget=window_budget(settings.context), cache_lifetime=lifetime),
        model=settings.model.name,
        live_updates=settings.memory.live_updates,
        result_tokens=settings.context.tool_result_tokens,
        written=written,
        invite=invite,
        troubled=written_down(ground),
        news=SqliteSessions(ground.database).news,
    )


def cost_report(
    ground: Ground, rows: SqliteCalls, kept: Transcripts, session: str | None, since: float | None
) -> CostReport:
    from herma.prompt.ledger import Prices, read_prices, report

    prices = ground.settings.prices
    return report(
        rows,
        kept,
        read_prices(Prices(prices.input, prices.output, prices.cache_read, prices.cache_write), prices.by_model),
        session=session,
        since=since,
        lifetime=prices.cache_minutes * 60.0,
    )


def window_budget(settings: ContextSettings) -> Budget:
    shares = {
        "system": settings.system_share,
        "memory": settings.memory_share,
        "conversation": settings.conversation_share,
        "tools": settings.results_share,
        "reply": settings.reply_share,
    }
    return Budget(settings.window, settings.profile, shares)


# ---------- wiring.search
#
# Search over the transcripts.


def searcher(ground: Ground, kept: Transcripts, words: Index, reranker: Callable[[], Reranker | None]) -> Searcher:
    settings = ground.settings.search
    return Searcher(
        SqliteReader(ground.database),
        words,
        members=kept.conversation,
        clock=ground.clock,
        alive=ground.alive,
        vectors=words.vectors,
        mode=settings.mode,
        wait=settings.model_wait,
        reranker=reranker,
    )


# ---------- wiring.index
#
# The indexes over the transcripts: words, and vectors where there is an embedder.


def index(ground: Ground) -> Index:
    files = SqliteIndexFiles(ground.home, common_cap=ground.settings.search.common_cap)
    return Index(files, SqliteFeed(ground.database), alive=ground.alive, vectors=vectors(ground))


def vectors(ground: Ground) -> Vectors:
    return Vectors(
        SqliteVectors(ground.home),
        SqliteFeed(ground.database),
        SqlitePassages(ground.database),
        lambda: _metered(ground),
        clock=ground.clock,
        alive=ground.alive,
        sources=lambda: _embeddables(ground),
    )


def _metered(ground: Ground) -> Embedder | None:
    """The embedder; one that wants a key is taken to cost something, and stands behind the meter."""
    found, settings = ground.embedder, ground.settings.embedding
    if found is None or ground.embedder_given or settings.model != "endpoint" or not settings.api_key_env:
        return found
    from herma.review.spending import MeteredEmbedder

    return MeteredEmbedder(found, Models(ground).meter, settings.endpoint_model)


def _embeddables(ground: Ground) -> list[Embeddables]:

    return embeddables(ground)


# ---------- wiring.transcripts
#
# Every message of every session, and the way from a summary back to them.


def transcripts(ground: Ground) -> Transcripts:
    sessions = SqliteSessions(ground.database)
    return Transcripts(
        sessions,
        sessions,
        SqliteMessages(ground.database),
        profile=ground.settings.profile,
        grace_days=ground.settings.retention.grace_days,
        clock=ground.clock,
        alive=ground.alive,
    )


def expanded(ground: Ground, kept: Transcripts, line: str, session: str | None) -> Expansion:
    """The originals behind a line of a summary."""
    from herma.compression.summary import expand

    ground.alive()
    named = kept.resolve(session) if session else None
    if session and named is None:
        raise UsageError(f"There is no session {session!r}.", hint="`herma sessions list` shows them.")
    return expand(line, SqliteMessages(ground.database), kept, kept.get(named) if named else None)


def expire_due(ground: Ground, kept: Callable[[], Transcripts]) -> None:
    """Delete what need not be kept any longer, where transcripts are kept for a limited time."""
    retention = ground.settings.retention
    if not retention.days and not retention.by_source:
        return
    keeping = Keeping.read(retention.days, retention.by_source)
    try:
        kept().expire(keeping)
        kept().purge_expired()
    except StoreError as exc:  # a home that cannot be written, or is busy: the session matters more
        warnings.warn(f"What need not be kept any longer is still there: {exc}", HermaWarning, stacklevel=4)


# ---------- wiring.memory
#
# Curated memory: files and their history under the keeper.


def memory_store(ground: Ground, vectors: Callable[[], VectorIndex | None] = lambda: None) -> MemoryStore:
    options = ground.settings.memory
    rows = CuratedRows(ground.database)
    return MemoryStore(
        CuratedFiles(ground.home, rows, lock_timeout=options.lock_timeout, clock=ground.clock),
        rows,
        SqliteInbox(ground.database),
        limits={"memory": options.memory_char_limit, "user": options.user_char_limit},
        enabled=targets_on(options),
        profile=ground.settings.profile,
        write_approval=options.write_approval,
        inbox_days=options.inbox_days,
        clock=ground.clock,
        alive=ground.alive,
        tail=TailParts(SqliteTail(ground.database), tail_terms, vectors),
    )


def targets_on(options: MemorySettings) -> list[Target]:
    """Which curated files take part; what is switched off is neither shown nor written nor asked."""
    on: dict[Target, bool] = {"memory": options.memory_enabled, "user": options.user_profile_enabled}
    return [target for target, is_on in on.items() if is_on]


def tail_terms(text: str) -> Sequence[str]:
    """What an entry of the long tail is found by: stems of words that say something."""
    from herma.episodes.outcome import Language, terms_of
    from herma.text import STOP_WORDS, stem

    return terms_of(text, Language(STOP_WORDS, stem), TERMS)


# ---------- wiring.tools
#
# What a model may call.


def tools(
    ground: Ground,
    memory: MemoryStore,
    kept: Transcripts,
    searcher: Callable[[], Searcher],
    skills: Callable[[], SkillLibrary],
    assisted: Callable[[], AssistedSearch] | None = None,
) -> Tools:
    """Search and skills are made with the first call that needs them; the model is shown all of them from the start."""

    def search() -> Tool:
        from herma.tools.session_search import session_search_tool

        return session_search_tool(searcher(), kept, assisted() if assisted is not None else None)

    def skill_list() -> Tool:
        from herma.tools.skills import skills_list_tool

        return skills_list_tool(skills())

    def skill_view() -> Tool:
        from herma.tools.skills import skill_view_tool

        return skill_view_tool(skills())

    def skill_manage() -> Tool:
        from herma.tools.skills import skill_manage_tool

        return skill_manage_tool(skills())

    targets = targets_on(ground.settings.memory)
    everything = [
        *([memory_tool(memory, targets)] if targets else []),
        session_search_shown(_by(search), assisted=assisted is not None),
        skills_list_shown(_by(skill_list)),
        skill_view_shown(_by(skill_view)),
        skill_manage_shown(_by(skill_manage)),
    ]
    return Tools(everything, alive=ground.alive)


def _by(made: Callable[[], Tool]) -> Run:
    """What this tool does, once it is called."""
    tool = cache(made)
    return lambda arguments, context: tool().run(arguments, context)


# ---------- wiring.models
#
# Which models there are: the main one, the auxiliary one for background work, and the meter before the latter.

WITHOUT = (
    "Without a model everything is kept and found as usual; with one, `herma chat` answers, long conversations are "
    "summed up in words, and what is worth remembering is learnt from them by itself."
)
"""What a model would add."""
PURPOSES = (
    *("review", "memory_update", "compress", "episodes", "skills", "tidy", "boundary", "title", "curate"),
    *("search_summary", "query_expansion", "eval"),
)
"""What background work there is."""


class Models:
    """The models that the settings name. Nothing is opened before one is asked."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._made: dict[Endpoint, RemoteModel] = {}
        self._watched: dict[tuple[RemoteModel, str], CountedModel] = {}

    def get(
        self, role: Role = "main", *, purpose: str | None = None, on_retry: Callable[[Retry], None] | None = None
    ) -> ChatModel | None:
        """The model of a role; `None` if there is none, and `why_not` says why.

        With a `purpose`, it is for work that nobody asked for, and behind the meter; the auxiliary model is for such
        work only. `on_retry` is told before the model is asked again.
        """
        self._ground.alive()
        if role == "auxiliary" and purpose is None:
            raise UsageError(
                "The auxiliary model is for background work, which has a purpose.",
                hint=f"Say which: {', '.join(PURPOSES)}.",
            )
        if purpose is not None and purpose not in PURPOSES:
            raise UsageError(f"{purpose!r} is no purpose of background work.", hint=f"There are {', '.join(PURPOSES)}.")
        where = self.endpoint(role)
        if where is None:
            return None
        model = self._counted(self.client(where, on_retry), purpose or "answering")
        if purpose is None:
            return model
        from herma.review.spending import RestingModel

        return RestingModel(model, self.meter, purpose, self.pauses)

    def why_not(self, role: Role = "main") -> str:
        """Why there is no such model, what it would add and how to set one; "" if there is one."""
        if self.endpoint(role) is not None:
            return ""
        model = self._ground.settings.model
        missing = (
            "model.url" if model.name and not model.url else "model.name" if model.url else "model.url and model.name"
        )
        how = "herma config set model.url ollama, and herma config set model.name NAME"
        return f"No model is set ({missing}: empty). {WITHOUT} To set one: {how}."

    def endpoint(self, role: Role = "main") -> Endpoint | None:
        """Where the model of a role is; `None` if the settings name none."""
        return endpoint_of(self._ground.settings, role)

    @part
    def meter(self) -> Meter:
        """What background work may spend, and has spent."""

        return meter(self._ground, self.price_of)

    @part
    def pauses(self) -> Pauses:
        """Which background work rests, because a model's answers could not be used."""
        from herma.review.spending import PauseFile, Pauses

        return Pauses(PauseFile(self._ground.home), self._ground.clock)

    def spending(self, since: float | None = None) -> SpendReport:
        """What background work took today, and since then."""
        self._ground.alive()
        return self.meter.report(since)

    def spending_history(self, *, days: int = 30, calls: int = 20) -> SpendHistory:
        """What background work took, day by day; its newest calls; and what the cap stopped in these days."""
        self._ground.alive()

        return spending_history(self._ground, days=days, calls=calls)

    @part
    def _prices(self) -> PriceTable:
        from herma.prompt.ledger import read_prices

        given = self._ground.settings.prices
        return read_prices(Prices(given.input, given.output, given.cache_read, given.cache_write), given.by_model)

    def price_of(self, model: str) -> Prices | None:
        """What a model's tokens cost; `None` where that is not known."""
        return self._prices.of(model) if self._prices.knows(model) else None

    def _counted(self, model: RemoteModel, what: str) -> CountedModel:
        """The same, whose failures are written down. What is kept for the next question stays one and the same."""

        watched = CountedModel(model, written_down(self._ground), what)
        return self._watched.setdefault((model, what), watched) if model in self._made.values() else watched

    def client(self, where: Endpoint, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
        """What speaks with this place. Not behind the meter: for what somebody asked for."""
        if on_retry is None and where in self._made:
            return self._made[where]
        if where.kind == "anthropic":
            from herma.models.anthropic import anthropic_model

            model = anthropic_model(where, on_retry=on_retry)
        else:
            from herma.models.openai import openai_model

            model = openai_model(where, on_retry=on_retry)
        if on_retry is None:
            self._made[where] = model
        return model


# ---------- wiring.counted
#
# A model is a guest: when it fails, that is written down for the doctor and the dashboard, and raised all the same.


class CountedModel:
    """Implements `ChatModel`. What the caller did (gave up, asked too much) is no failure of the model."""

    def __init__(self, model: ChatModel, troubled: Callable[[Trouble], None], what: str) -> None:
        self._model = model
        self._troubled = troubled
        self._what = what

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        """The answer; see `ChatModel`."""
        try:
            return self._model.reply(messages, **options)
        except (ModelCancelled, ModelOverflow):
            raise
        except ModelError as error:
            self._troubled(Trouble(f"model {self.name}", self._what, str(error)))
            raise


# ---------- wiring.spending
#
# The meter of a home's background work, and what it has written down.


def meter(ground: Ground, price_of: PriceOf) -> Meter:
    spend = ground.settings.spend
    caps = read_caps(spend.daily_usd, spend.daily_tokens, spend.by_purpose)
    log = TroubleLog(ground.home, "spending")

    def stopped(at: float, refused: Refused) -> None:
        if refused.limit != "off":  # who switched it off knows
            log.add(Noted(at, refused.purpose, refused.limit, f"{refused.notice} {refused.hint}"))

    return Meter(SqliteSpend(ground.database), caps, price_of=price_of, clock=ground.clock, stopped=stopped)


def spending_history(ground: Ground, *, days: int, calls: int) -> SpendHistory:
    now = ground.clock()
    noted = TroubleLog(ground.home, "spending").since(now - days * DAY)
    stopped = [Stopped(one.at, one.guest, one.why) for one in noted]
    return history(SqliteSpend(ground.database), stopped, now, days=days, calls=calls)


# ---------- wiring.tidy
#
# Curated memory in order: tidying, and how the texts of the long tail are embedded.

LOCK = ".tidy.lock"
DRAIN = 2.0
"""Seconds that closing waits for tidying; it is due again the next time."""


class Tidy(Tidying):
    """`h.tidy`: call it, or let it happen by itself after a reply."""

    def __init__(self, needs: TidyNeeds, worker: Worker) -> None:
        super().__init__(needs)
        self.worker = worker

    def wait(self, timeout: float = 10.0) -> bool:
        """Until nothing is being tidied. → whether that was so in time."""
        return self.worker.wait(timeout)

    def close(self) -> None:
        self.worker.close(DRAIN)


def tidy(ground: Ground, memory: MemoryStore, model: Callable[[], ChatModel | None]) -> Tidy:
    options = ground.settings.memory
    shown = written_down(ground)
    needs = TidyNeeds(
        memory,
        SqliteTail(ground.database),
        checks=lambda scope: LocalChecks(scope.project),
        model=model,
        alone=lambda: _alone(ground),
        policy=options.tidy,
        days=options.tidy_days,
        clock=ground.clock,
    )
    return Tidy(needs, Worker("herma: tidying", failed=lambda what, why: shown(Trouble("tidying", what, why))))


@dataclass(frozen=True, slots=True)
class TailTexts:
    """The long tail as the vector index takes it."""

    rows: SqliteTail
    kind: str = ARCHIVE_KIND

    def version(self) -> str:
        return self.rows.version()

    def texts(self) -> Iterator[Embeddable]:
        for one in self.rows.select(None):
            if one.forgotten is None:
                yield Embeddable(str(one.id), one.text, scope_key(Place.of(one.target, one.scope)))


def tail_texts(ground: Ground) -> TailTexts:
    return TailTexts(SqliteTail(ground.database))


def _alone(ground: Ground) -> AbstractContextManager[object]:
    """Held by whoever tidies this home; somebody else is waited for only a moment."""
    ground.home.mkdir(parents=True, exist_ok=True)
    return exclusive(ground.home / LOCK, min(0.2, ground.settings.memory.lock_timeout))


# ---------- wiring.embeddables
#
# What is embedded besides transcripts: one line for every keeper whose texts are to be found by meaning.

ENTRY = "entry"
"""The kind of curated entries: their keys are target, project, user and text, their scope is that of episodes."""
SEAM = "\x1f"


def embeddables(ground: Ground) -> list[Embeddables]:
    library = skill_library(ground)
    return [curated_texts(ground), episode_texts(ground), SkillTexts(lambda: library), tail_texts(ground)]


@dataclass(frozen=True, slots=True)
class CuratedTexts:
    """Entries of every document of this home that was ever written to, and of the home's own."""

    files: CuratedFiles
    passages: SqlitePassages
    profile: str
    kind: str = ENTRY

    def version(self) -> str:
        return repr([(place, self.files.stamp(place)) for place in self._places()])

    def texts(self) -> Iterator[Embeddable]:
        for place in self._places():
            for entry in dict.fromkeys(parse(self.files.read(place).text)):
                key = SEAM.join((place.target, place.project, place.user, entry))
                yield Embeddable(key, entry, f"{place.profile}\0{place.user}")

    def _places(self) -> list[Place]:
        own = [Place("memory", self.profile), Place("user", self.profile)]
        return list(dict.fromkeys((*own, *self.passages.places())))


def curated_texts(ground: Ground) -> CuratedTexts:
    files = CuratedFiles(ground.home, CuratedRows(ground.database), clock=ground.clock)
    return CuratedTexts(files, SqlitePassages(ground.database), ground.settings.profile)


# ---------- wiring.assisted
#
# Search with a model at its side.


def assisted_search(searcher: Searcher, kept: Transcripts, models: Callable[[], Models]) -> AssistedSearch:
    """Its models are behind the meter, and asked for when they are needed."""
    return AssistedSearch(
        searcher,
        Expander(
            lambda: models().get("auxiliary", purpose="query_expansion"), why_not=lambda: models().why_not("auxiliary")
        ),
        Summariser(
            kept,
            lambda: models().get("auxiliary", purpose="search_summary"),
            why_not=lambda: models().why_not("auxiliary"),
        ),
    )


# ---------- wiring.facts
#
# Keyed facts over the history of curated memory.

_FEW = 20
"""Changes that are read first: as a rule there are no more new ones."""


def facts(ground: Ground, memory: Callable[[], MemoryStore]) -> Facts:
    rows = CuratedRows(ground.database)
    tail = SqliteTail(ground.database)

    def changes(place: Place, since: int) -> Sequence[Change]:
        """Oldest first. Asking for the history records edits by hand."""
        newest = memory().history(place.target, scope=place.scope, limit=_FEW)
        if len(newest) == _FEW and newest[-1].id > since:
            newest = memory().history(place.target, scope=place.scope)
        return [_with_tail(change, tail) for change in reversed(newest) if change.id > since]

    def places() -> Iterable[Place]:
        return dict.fromkeys(Place.of(change.target, change.scope) for change in rows.changes())

    return Facts(
        SqliteFacts(ground.database),
        changes,
        places,
        lambda text: unique(parse(text)),
        enabled=targets_on(ground.settings.memory),
        profile=ground.settings.profile,
        stem=stem,
        clock=ground.clock,
        alive=ground.alive,
    )


def _with_tail(change: Change, tail: SqliteTail) -> Change:
    """A change as facts see it: an entry that only moved to the long tail to make room says what it said."""
    moved = tail.moved_by(change.id)
    return replace(change, after=join([*unique(parse(change.after)), *moved])) if moved else change


# ---------- wiring.restoring
#
# What is known for a task: curated memory, skills and episodes under one budget.


def restorer(
    ground: Ground, memory: MemoryStore, episodes: Episodes, library: Callable[[], SkillLibrary]
) -> tuple[Restorer, int]:
    """It, and the tokens that a window has for memory."""
    settings = ground.settings
    counter = counter_for(settings.model.name or None)

    def find(task: str, limit: int) -> SkillMatches:
        return library().find(task, limit)

    room = window_budget(settings.context).of(settings.model.name or None).room("memory")
    return Restorer(memory.load, episodes, find, counter.count), room
