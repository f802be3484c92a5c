"""`Herma.open()`: settings → everything wired. The only module that knows every adapter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack, get_args

from herma import config
from herma.errors import UsageError
from herma.parts import part
from herma.types import Circumstances, Context, Scope
from herma.wiring.ground import Ground
from herma.wiring.names import folder_of as _folder
from herma.wiring.names import name_of as _key

if TYPE_CHECKING:
    from herma.curated import MemoryStore
    from herma.doctor import Diagnosis
    from herma.episodes import Episodes
    from herma.facts import Facts
    from herma.index import Index
    from herma.opener import Files, Opener
    from herma.ports import ChatModel, Embedder
    from herma.prompt.budget import Plan
    from herma.providers.roster import Providers
    from herma.recall.asked import SearchOptions
    from herma.recall.assisted import AssistedSearch
    from herma.recall.prefetching import Prefetch
    from herma.recall.rerank import Reranker
    from herma.recall.search import Searcher
    from herma.reflect.curator import Curator
    from herma.reflect.reviews import Reviews
    from herma.session import Session
    from herma.skills import SkillLibrary
    from herma.store.sqlite.calls import SqliteCalls
    from herma.tools import Tools
    from herma.tools.registry import Tool
    from herma.transcript import Transcripts
    from herma.turn.cost import CostReport
    from herma.types import Expansion, Restored, SearchReport
    from herma.wiring.models import Models, Role
    from herma.wiring.tidy import Tidy


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
        from herma.wiring.memory import memory_store

        return memory_store(self._ground, lambda: self.index.vectors)

    @part
    def transcripts(self) -> Transcripts:
        """Every message of every session."""
        from herma.wiring.transcripts import transcripts

        return transcripts(self._ground)

    @part
    def index(self) -> Index:
        """Words of all messages; derived, so it may be dropped and rebuilt at any time."""
        from herma.wiring.index import index

        return index(self._ground)

    @part
    def episodes(self) -> Episodes:
        """What was done before, one episode per conversation, and where the work stood."""
        from herma.wiring.episodes import episodes

        return episodes(self._ground, lambda: self.index.vectors, lambda name, so: self.skills.judge(name, *so))

    @part
    def skills(self) -> SkillLibrary:
        """Written procedures: SKILL.md files, found for a task, and known by how they did."""
        from herma.wiring.skills import skill_library

        return skill_library(self._ground, lambda: self.index.vectors)

    @part
    def curator(self) -> Curator:
        """Keeps skills in shape, by age and use: `h.curator.run(dry_run=True)` says what is due."""
        from herma.wiring.curator import curator

        return curator(self._ground, lambda: self.skills, lambda: self.models.get("auxiliary", purpose="curate"))

    @part
    def facts(self) -> Facts:
        """Exact answers to exact questions, out of curated memory: "my time zone"."""
        from herma.wiring.facts import facts

        return facts(self._ground, lambda: self.memory)

    @part
    def tools(self) -> Tools:
        """What a model may call."""
        from herma.wiring.tools import tools

        assisted = None if self.models.endpoint("auxiliary") is None else lambda: self._assisted
        return tools(self._ground, self.memory, self.transcripts, lambda: self._searcher, lambda: self.skills, assisted)

    @part
    def providers(self) -> Providers:
        """The external memory that takes part in sessions, and others that could."""
        from herma.wiring.providers import providers

        return providers(self._ground)

    @part
    def models(self) -> Models:
        """The language models that the settings name, and what background work spends on them."""
        from herma.wiring.models import Models

        return Models(self._ground)

    @part
    def reviews(self) -> Reviews:
        """Looking back at conversations, to learn from them."""
        from herma.wiring.reflect import reviews

        return reviews(self._ground, self)

    @part
    def tidy(self) -> Tidy:
        """Curated memory kept in order: `h.tidy(dry_run=True)` says what could be done."""
        from herma.wiring.tidy import tidy

        return tidy(self._ground, self.memory, lambda: self.models.get("auxiliary", purpose="tidy"))

    @part
    def prefetch(self) -> Prefetch:
        """What is looked up in past conversations before each turn: `prefetch.look(text)` says what, and why."""
        from herma.wiring.prefetch import prefetch

        return prefetch(self._ground, self.transcripts, lambda: self.index, lambda: self.facts)

    @part
    def _assisted(self) -> AssistedSearch:
        from herma.wiring.assisted import assisted_search

        return assisted_search(self._searcher, self.transcripts, lambda: self.models)

    @part
    def _searcher(self) -> Searcher:
        from herma.wiring.search import searcher

        return searcher(self._ground, self.transcripts, self.index, lambda: self.reranker)

    @part
    def _calls(self) -> SqliteCalls:
        from herma.wiring import sessions

        return sessions.calls(self._ground)

    @part
    def _opener(self) -> Opener:
        from herma.wiring.everybody import everybody
        from herma.wiring.sessions import opener

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
        from herma.opener import Wish
        from herma.store.git_head import branch_of

        self._check_alive()
        if not resume:  # what is asked for must not be deleted in the same breath
            self._expire_once()
        if context not in get_args(Context):
            raise UsageError(f"{context!r} is no context.", hint=f"There are {', '.join(get_args(Context))}.")
        scope = Scope(self.settings.profile, _key(project, "project"), _key(user, "user"), _key(chat, "chat"))
        wish = Wish(
            source=_key(source, "source"),
            scope=scope,
            system_message=system_message,
            title=title,
            parent=parent,
            model=model,
            circumstances=Circumstances(
                platform, context, user_name, _key(chat_type, "chat type"), thread, system_message
            ),
            files=lambda: self._files(folder or project),
            provider=_key(provider, "provider"),
            folder=(place := _folder(folder or project)),
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
        from herma.wiring.restoring import restorer

        self._check_alive()
        scope = Scope(self.settings.profile, _key(project, "project"), _key(user, "user"))
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
        from herma.wiring.transcripts import expanded

        return expanded(self._ground, self.transcripts, line, session)

    def branch(
        self, session_id: str, *, after: int | None = None, source: str = "library", tools: Sequence[Tool] | None = ()
    ) -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        from herma.opener import Wish

        self._check_alive()
        scope = Scope(self.settings.profile)
        wish = Wish(source=source, scope=scope, files=lambda: self._files(None), tools=tools)
        return self._opener.branch(session_id, wish, after=after)

    def working_memory(self, session: str | None = None) -> Plan:
        """The model's window for a stored session, or for one that would begin now. Opens and writes nothing."""
        from herma.opener import Wish

        self._check_alive()
        wish = Wish(source="library", scope=Scope(self.settings.profile), files=lambda: self._files(None))
        return self._opener.look(session, wish)

    def cost(self, session: str | None = None, since: datetime | float | None = None) -> CostReport:
        """What calls to models took: tokens reused and new, where and why the prefix broke, and the money.

        Of one conversation or of all; `since` is a time as seconds since 1970, or as a `datetime`.
        """
        from herma.wiring.sessions import cost_report

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
        from herma.doctor import diagnose

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
        from herma.wiring.transcripts import expire_due

        if not self._expired:
            expire_due(self._ground, lambda: self.transcripts)
        self._expired = True

    def _files(self, folder: str | Path | None) -> Files:
        from herma.opener import Files
        from herma.store.context_files import read_project_files, read_soul

        place = folder if folder and os.path.isdir(folder) else None  # noqa: PTH112  a project's name may be no path
        return Files(read_soul(self.home), tuple(read_project_files(place)))

    def _check_alive(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.", hint="Open it again in the child: Herma.open()."
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")
