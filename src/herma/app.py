"""`Herma.open()`: settings → everything wired. The only module that knows every adapter."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from herma import config
from herma.curated import MemoryStore
from herma.errors import UsageError
from herma.index import Index
from herma.opener import Circumstances, Opener, Wish
from herma.recall.search import Searcher
from herma.session import Session
from herma.store.context_files import read_project_files, read_soul
from herma.store.files import CuratedFiles
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
        self._opener = Opener(self.memory, self.transcripts, self.tools, clock=clock, live_updates=options.live_updates)

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
        chat: str = "",
        folder: str | Path | None = None,
        circumstances: Circumstances | None = None,
    ) -> Session:
        """Start a session, or go on with one: its prompt is frozen now, its tools write at once.

        `folder` is where AGENTS.md and the like are looked for; a project that is a folder is one.
        """
        self._check_alive()
        scope = Scope(self.settings.profile, (project or "").strip(), (user or "").strip(), chat)
        place = folder or (scope.project if scope.project and os.path.isdir(scope.project) else None)  # noqa: PTH112
        wish = Wish(
            source=source,
            scope=scope,
            system_message=system_message,
            title=title,
            parent=parent,
            model=model,
            circumstances=circumstances or Circumstances(),
            identity=read_soul(self.home),
            project_files=tuple(read_project_files(place)),
        )
        return self._opener.resume(resume, wish) if resume else self._opener.new(wish)

    def branch(self, session_id: str, *, after: int | None = None, source: str = "library") -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        self._check_alive()
        wish = Wish(source=source, scope=Scope(self.settings.profile), identity=read_soul(self.home))
        return self._opener.branch(session_id, wish, after=after)

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

    def _check_alive(self) -> None:
        if self._process != os.getpid():
            raise UsageError(
                "This Herma was opened before the process forked.", hint="Open it again in the child: Herma.open()."
            )
        if self._closed:
            raise UsageError("This Herma is closed.", hint="Open it again: Herma.open().")
