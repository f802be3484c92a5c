"""`Herma.open()`: settings → everything wired. The only module that knows every adapter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, get_args

from herma import config
from herma.curated import MemoryStore
from herma.errors import UsageError
from herma.index import Index
from herma.opener import Circumstances, Context, Files, Metering, Opener, Wish
from herma.prompt.budget import Plan
from herma.prompt.ledger import Prices
from herma.recall.search import Searcher
from herma.session import Session
from herma.settings import ContextSettings
from herma.store.context_files import read_project_files, read_soul
from herma.store.files import CuratedFiles
from herma.store.sqlite.calls import SqliteCalls
from herma.store.sqlite.curated import CuratedRows
from herma.store.sqlite.database import Database
from herma.store.sqlite.feed import SqliteFeed
from herma.store.sqlite.inbox import SqliteInbox
from herma.store.sqlite.index_files import SqliteIndexFiles
from herma.store.sqlite.messages import SqliteMessages
from herma.store.sqlite.reader import SqliteReader
from herma.store.sqlite.sessions import SqliteSessions
from herma.tools import Tools
from herma.tools.memory import memory_tool
from herma.tools.session_search import session_search_tool
from herma.transcript import Transcripts
from herma.turn.cost import CostReport, report
from herma.turn.window import Budget
from herma.types import Scope, Target

if TYPE_CHECKING:
    from herma.doctor import Diagnosis


class Herma:
    """An opened memory. Use it in a `with` block, or call `close()`."""

    def __init__(self, settings: config.Settings, *, clock: Callable[[], float] = time.time) -> None:
        self.settings = settings
        self.home = settings.home
        self._clock = clock
        self._process = os.getpid()
        self._closed = False
        self._database = Database(settings.home / "herma.db", busy_timeout=settings.memory.lock_timeout)
        rows = CuratedRows(self._database)
        options = settings.memory
        enabled: dict[Target, bool] = {"memory": options.memory_enabled, "user": options.user_profile_enabled}
        self.memory = MemoryStore(
            CuratedFiles(settings.home, rows, lock_timeout=options.lock_timeout, clock=clock),
            rows,
            SqliteInbox(self._database),
            limits={"memory": options.memory_char_limit, "user": options.user_char_limit},
            enabled=[target for target, on in enabled.items() if on],
            profile=settings.profile,
            write_approval=options.write_approval,
            inbox_days=options.inbox_days,
            clock=clock,
            alive=self._check_alive,
        )
        sessions = SqliteSessions(self._database)
        self.transcripts = Transcripts(
            sessions,
            sessions,
            SqliteMessages(self._database),
            profile=settings.profile,
            grace_days=settings.retention.grace_days,
            clock=clock,
            alive=self._check_alive,
        )
        self.index = Index(SqliteIndexFiles(settings.home), SqliteFeed(self._database))
        searcher = Searcher(
            SqliteReader(self._database),
            self.index,
            members=self.transcripts.conversation,
            clock=clock,
            alive=self._check_alive,
        )
        self.search = searcher.search
        self.tools = Tools(
            [memory_tool(self.memory), session_search_tool(searcher, self.transcripts)], alive=self._check_alive
        )
        self._calls = SqliteCalls(self._database)
        self._opener = Opener(
            self.memory,
            self.transcripts,
            self.tools,
            clock=clock,
            metering=Metering(
                self._calls,
                budget=_budget(settings.context),
                cache_lifetime=settings.prices.cache_minutes * 60.0,
            ),
            model=settings.model.name,
            live_updates=options.live_updates,
            result_tokens=settings.context.tool_result_tokens,
        )

    @classmethod
    def open(
        cls,
        home: str | Path | None = None,
        url: str | None = None,
        profile: str | None = None,
        *,
        flags: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> Self:
        """Open a home: `home`, else HERMA_HOME, HERMES_HOME, `~/.herma`. Nothing is created before the first write."""
        given = dict(flags or {})
        if url is not None:
            given["store.url"] = url
        settings = config.load(home=home, profile=profile, flags=given)
        if settings.store.url:
            raise UsageError(
                f"This version keeps memory in the home only, not at {settings.store.url.split('@')[-1]!r}.",
                hint="Leave store.url empty.",
            )
        return cls(settings, clock=clock)

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
        folder: str | Path | None = None,
        platform: str = "",
        context: Context = "primary",
        user_name: str = "",
        chat: str = "",
        chat_type: str = "",
        thread: str = "",
    ) -> Session:
        """Start a session, or go on with one: its prompt is frozen now, its tools write at once.

        `folder` is where AGENTS.md and the like are looked for; a project that is a folder is one. `platform` is how to
        write for where the answer is read; `context` says who works: the user's agent, or one that was started by it.
        """
        self._check_alive()
        if context not in get_args(Context):
            raise UsageError(f"{context!r} is no context.", hint=f"There are {', '.join(get_args(Context))}.")
        scope = Scope(self.settings.profile, (project or "").strip(), (user or "").strip(), chat)
        wish = Wish(
            source=source,
            scope=scope,
            system_message=system_message,
            title=title,
            parent=parent,
            model=model,
            circumstances=Circumstances(platform, context, user_name, chat_type, thread),
            files=lambda: self._files(folder or scope.project),
        )
        return self._opener.resume(resume, wish) if resume else self._opener.new(wish)

    def branch(self, session_id: str, *, after: int | None = None, source: str = "library") -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        self._check_alive()
        wish = Wish(source=source, scope=Scope(self.settings.profile), files=lambda: self._files(None))
        return self._opener.branch(session_id, wish, after=after)

    def working_memory(self, session: str | None = None) -> Plan:
        """The model's window for a stored session, or for one that would begin now. Opens and writes nothing."""
        self._check_alive()
        wish = Wish(source="library", scope=Scope(self.settings.profile), files=lambda: self._files(None))
        return self._opener.look(session, wish)

    def cost(self, session: str | None = None, since: datetime | float | None = None) -> CostReport:
        """What calls to models took: tokens reused and new, where and why the prefix broke, and the money.

        Of one conversation or of all; `since` is a time as seconds since 1970, or as a `datetime`.
        """
        self._check_alive()
        prices = self.settings.prices
        return report(
            self._calls,
            self.transcripts,
            Prices(prices.input, prices.output, prices.cache_read, prices.cache_write),
            session=session,
            since=since.timestamp() if isinstance(since, datetime) else since,
            lifetime=prices.cache_minutes * 60.0,
        )

    def doctor(self, *, full: bool = False, progress: Callable[[int, int], None] | None = None) -> Diagnosis:
        """Look whether everything is all right, and what to type where it is not. Changes nothing."""
        from herma.doctor import diagnose

        self._check_alive()
        return diagnose(self.home, self.settings, full=full, clock=self._clock, progress=progress)

    def close(self) -> None:
        """Let go of the databases. Closing twice does no harm."""
        self._closed = True
        if self._process == os.getpid():
            self.index.close()
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _files(self, folder: str | Path | None) -> Files:
        place = folder if folder and os.path.isdir(folder) else None  # noqa: PTH112  a project's name may be no path
        return Files(read_soul(self.home), tuple(read_project_files(place)))

    def _check_alive(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.", hint="Open it again in the child: Herma.open()."
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")


def _budget(settings: ContextSettings) -> Budget:
    shares = {
        "system": settings.system_share,
        "memory": settings.memory_share,
        "conversation": settings.conversation_share,
        "tools": settings.results_share,
        "reply": settings.reply_share,
    }
    return Budget(settings.window, settings.profile, shares)
