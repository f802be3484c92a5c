"""MCP servers of the configuration: their tools, beside our own.

One thread with one event loop serves them all. It begins when somebody asks for it and connects to all of them at once,
so that a person can already type. A server that cannot be used is told once, and costs its own tools only; one whose
connection ends is connected anew at the next call.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections import Counter
from collections.abc import Coroutine, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from herma.agent.mcp_link import Link, State
from herma.agent.mcp_wire import MOST_TOOLS, Json, ToolFailed, complaints, result_of, taken_schemas
from herma.configservers import McpServer
from herma.models.chat.keys import read_key
from herma.settings import ChatSettings
from herma.store.trouble_log import Noted, TroubleLog
from herma.tools.registry import Tool, ToolContext

T = TypeVar("T")
_STEP = 0.05
"""Seconds between two looks at whether somebody wants to stop."""
_DRAIN = 5.0
"""Seconds that the end waits for servers to end."""
_LOADING = 20.0
"""Seconds that loading the library may take, besides connecting."""
WITHOUT_LIBRARY = "MCP servers need the mcp library, which is not installed; type: pip install 'herma[chat]'"


@dataclass(frozen=True, slots=True)
class ServerState:
    """How one server is."""

    name: str
    state: State
    tools: tuple[str, ...] = ()
    why: str = ""


class McpServers:
    """The servers of one program. `begin` when it starts, `tools` when a session begins, `close` in the end."""

    def __init__(self, servers: Sequence[McpServer], settings: ChatSettings, home: Path) -> None:
        self._settings = settings
        self._links = [
            Link(server, deadline=settings.connect_timeout, value_of=lambda name: read_key(name, home))
            for server in servers
            if server.enabled
        ]
        self._log = TroubleLog(home)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._up = threading.Event()
        self._missing = ""
        self._names: dict[str, tuple[str, ...]] = {}
        self._warnings: list[str] = []
        self.cancel = threading.Event()
        """Set by whoever wants the tool that runs now to be given up."""

    def begin(self) -> None:
        """Start to connect, and return at once. Nothing happens where no server is configured."""
        if self._links and self._thread is None:
            self._thread = threading.Thread(target=self._run, name="herma: mcp", daemon=True)
            self._thread.start()

    def tools(self) -> list[Tool]:
        """What the model may call, once every server has begun or had its time."""
        if not self._links:
            return []
        self.begin()
        found: list[Tool] = []
        self._warnings, self._names = [], {}
        until = time.monotonic() + _LOADING
        self._up.wait(_LOADING)
        for link in self._links:
            self._until_ready(link, max(until, time.monotonic() + link.deadline))
            found += self._tools_of(link)
        if self._missing:
            self._warnings = [self._missing]
        for name, times in Counter(tool.name for tool in found).items():
            if times > 1:
                self._warnings.append(f"Two MCP servers have a tool that is called {name}; the first one is used.")
        if len(found) > MOST_TOOLS:
            self._warnings.append(
                f"The MCP servers have {len(found)} tools; the first {MOST_TOOLS} are taken. "
                "Name those you need: tools, in mcp_servers."
            )
        return found[:MOST_TOOLS]

    @property
    def warnings(self) -> tuple[str, ...]:
        """What is wrong with servers, as `tools` found it."""
        return tuple(self._warnings)

    def states(self) -> list[ServerState]:
        """Every server, for people."""
        return [
            ServerState(link.server.name, link.state, self._names.get(link.server.name, ()), link.why or self._missing)
            for link in self._links
        ]

    def close(self) -> None:
        """Let the servers end, and wait a little for that."""
        if self._thread is None:
            return
        self._up.wait(_LOADING)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._over.set)
            except RuntimeError:  # it ended by itself in this moment
                return
        self._thread.join(2 * _DRAIN)

    # ── one server ──

    def _tools_of(self, link: Link) -> Iterator[Tool]:
        name = link.server.name
        if not link.usable:
            if not self._missing:
                why = link.why or f"it did not begin within {link.deadline:g} s"
                self._warnings.append(f"The MCP server {name} is not used: {why.rstrip('.')}.")
                self._count(name, "connecting", why)
            return
        wanted = [one for one in link.listed if link.server.takes(one[0])]
        absent = set(link.server.include or ()) - {one[0] for one in link.listed}
        schemas, names, wrong = taken_schemas(name, wanted)
        self._warnings += [f"A tool of the MCP server {sentence}." for sentence in wrong]
        self._warnings += [f"The MCP server {name} has no tool {tool}." for tool in sorted(absent)]
        self._names[name] = tuple(names[ours] for ours in schemas)
        for ours, schema in schemas.items():
            yield self._tool(link, names[ours], schema)

    def _tool(self, link: Link, theirs: str, schema: Json) -> Tool:
        def run(arguments: Json, context: ToolContext) -> Json:  # noqa: ARG001
            wrong = complaints(arguments, schema["parameters"])
            if wrong:
                return {"success": False, "error": f"The arguments do not fit: {wrong}."}
            return self._call(link, theirs, arguments)

        return Tool(schema["name"], schema["description"], schema["parameters"], run)

    def _call(self, link: Link, tool: str, arguments: Json) -> Json:
        name, limit = link.server.name, link.server.timeout or self._settings.tool_timeout
        try:
            if not link.usable:
                self._connect_again(link)
            answer = self._wait(link.ask(tool, arguments, limit), limit, name)
        except ToolFailed as exc:
            if not self.cancel.is_set():  # then somebody else gave it up
                self._count(name, tool, str(exc))
            raise
        return result_of(answer.content, answer.structured_content, bool(answer.is_error), self._settings.result_chars)

    def _count(self, server: str, what: str, why: str) -> None:
        """Written down for whoever looks later: the doctor and the dashboard."""
        self._log.add(Noted(time.time(), f"MCP server {server}", what, why))

    def _connect_again(self, link: Link) -> None:
        if self._loop is None or self._loop.is_closed():
            raise ToolFailed(f"{link.server.name} is not connected any more.")
        self._wait(self._again(link), link.deadline, link.server.name)
        self._until_ready(link, time.monotonic() + link.deadline)
        if not link.usable:
            raise ToolFailed(f"{link.server.name} cannot be reached: {link.why or 'it does not begin'}.")

    def _until_ready(self, link: Link, until: float) -> None:
        while not (self._missing or self.cancel.is_set() or time.monotonic() > until or link.ready.wait(_STEP)):
            continue

    # ── the loop ──

    def _run(self) -> None:
        try:
            import mcp  # noqa: F401  half a second, while somebody types
        except ImportError:
            self._missing = WITHOUT_LIBRARY
            self._up.set()
            return
        for noisy in ("mcp", "httpx2", "client"):  # what matters of it comes back as an error
            logging.getLogger(noisy).addHandler(logging.NullHandler())
            logging.getLogger(noisy).propagate = False
        asyncio.run(self._serve())

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._kept: dict[Link, asyncio.Task[None]] = {}
        for link in self._links:
            await self._keep(link)
        self._up.set()
        await self._over.wait()
        await asyncio.gather(*(link.close() for link in self._links))
        if self._kept:
            await asyncio.wait(self._kept.values(), timeout=_DRAIN)

    async def _keep(self, link: Link) -> None:
        link.ready.clear()
        task = self._kept[link] = asyncio.get_running_loop().create_task(link.keep())
        task.add_done_callback(lambda _: self._kept.pop(link, None))

    async def _again(self, link: Link) -> None:
        """Connect anew, after what is left of the old connection has ended."""
        if link in self._kept:
            await asyncio.wait([self._kept[link]])
        await self._keep(link)

    def _wait(self, work: Coroutine[Any, Any, T], seconds: float, name: str) -> T:
        """What comes of it in the loop; given up when `cancel` is set."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        until = time.monotonic() + seconds + 1.0  # the library's own deadline comes first
        while not concurrent.futures.wait([future], _STEP).done:
            if self.cancel.is_set():
                future.cancel()
                raise ToolFailed("The tool was stopped before it had answered.")
            if time.monotonic() > until:
                future.cancel()
                raise ToolFailed(f"{name} did not answer within {seconds:g} s.")
        return future.result()
