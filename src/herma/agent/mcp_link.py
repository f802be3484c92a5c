"""The connection to one MCP server. Lives in the event loop of `mcp_servers`; every method but `call` runs there.

One task opens the connection, holds it, and closes it, because its parts have to be left where they were entered. A
server is a guest: whatever goes wrong with it is caught here, kept as a sentence, and costs its tools only.
"""

from __future__ import annotations

import asyncio
import math
import os
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from typing import Any, Literal, TypeAlias

from herma.agent.mcp_wire import ToolFailed, UnsetError, filled, reason
from herma.configservers import McpServer

State: TypeAlias = Literal["waiting", "connecting", "connected", "failed", "closed"]
_PAGES = 20
_BEGINNING = 2.0
"""Seconds that the end waits for a program that is just being started."""
_SAID = 300
"""Characters of a server's last words that are told."""


class Link:
    """One server. `ready` is set once it is known whether it can be used."""

    def __init__(self, server: McpServer, *, deadline: float, value_of: Callable[[str], str]) -> None:
        self.server = server
        self.deadline = server.connect_timeout or deadline
        self.state: State = "waiting"
        self.why = ""
        self.listed: list[tuple[str, str, object]] = []
        self.ready = threading.Event()
        self._value_of = value_of
        self._client: Any = None
        self._over: asyncio.Event | None = None
        self._begun: asyncio.Event | None = None
        self._scope: Any = None
        self._closing = False

    async def keep(self) -> None:
        """Connect, and hold the connection until it is closed."""
        import anyio

        if self._closing:
            self.ready.set()
            return
        self.state, self.why, self._over, self._begun = "connecting", "", asyncio.Event(), asyncio.Event()
        words = _LastWords()
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.deadline) as scope:
                self._scope = scope
                await self._hold(scope, words)
            if self.state == "connecting":
                self._failed(f"it did not begin within {self.deadline:g} s", words)
            else:
                self._ended()
        except UnsetError as exc:
            self._failed(str(exc), words)
        except Exception as exc:  # noqa: BLE001  a guest may do anything; it is told, and the agent goes on
            self._failed(reason(exc), words)
        finally:
            words.close()
            self.ready.set()

    async def _hold(self, scope: Any, words: _LastWords) -> None:
        from mcp import Client

        async with self._target(words) as target, Client(target) as client:
            self.listed = await _tools_of(client)
            scope.deadline = math.inf
            self._client, self.state = client, "connected"
            self.ready.set()
            assert self._over is not None
            await self._over.wait()

    @asynccontextmanager
    async def _target(self, words: _LastWords) -> AsyncIterator[Any]:
        from mcp import StdioServerParameters, stdio_client
        from mcp.client.streamable_http import streamable_http_client
        from mcp.shared._httpx_utils import create_mcp_http_client

        def value(text: str) -> str:
            return filled(text, self._value_of)

        given = self.server
        if given.command:
            env = {"HERMA_SESSION": "chat"} | {name: value(text) for name, text in given.env.items()}
            args = [value(text) for text in given.args]
            where = os.path.expanduser(given.cwd) if given.cwd else None  # noqa: PTH111
            program = StdioServerParameters(command=value(given.command), args=args, env=env, cwd=where)
            yield self._noted(stdio_client(program, errlog=words.file))
            return
        headers = {name: value(text) for name, text in given.headers.items()}
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(create_mcp_http_client(headers))
            yield self._noted(streamable_http_client(value(given.url), http_client=client))

    @asynccontextmanager
    async def _noted(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """The transport, and a note when it has begun: in the middle of that a program would be left behind."""
        async with transport as streams:
            assert self._begun is not None
            self._begun.set()
            yield streams

    async def close(self) -> None:
        """Close it for good, or give up connecting."""
        self._closing = True
        if self._over is not None:
            self._over.set()
        if self.state == "connecting" and self._begun is not None:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._begun.wait(), _BEGINNING)
            if self.state == "connecting" and self._scope is not None:
                self._scope.cancel()

    @property
    def usable(self) -> bool:
        return self.state == "connected"

    async def ask(self, tool: str, arguments: dict[str, Any], timeout: float) -> Any:
        """The server's answer; `ToolFailed` where there is none. What ends the connection is not only a refusal."""
        from mcp import MCPError
        from mcp.types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        name = self.server.name
        try:
            return await self._client.call_tool(tool, arguments, read_timeout_seconds=timeout)
        except MCPError as exc:
            if exc.code == REQUEST_TIMEOUT:
                raise ToolFailed(f"{name} did not answer within {timeout:g} s.") from exc
            if exc.code == CONNECTION_CLOSED:
                self._lost(reason(exc))
            raise ToolFailed(f"{name} failed: {reason(exc)}") from exc
        except Exception as exc:
            self._lost(reason(exc))
            raise ToolFailed(f"{name} failed: {reason(exc)}") from exc

    def _lost(self, why: str) -> None:
        self.state, self.why = "failed", f"the connection ended ({why})"
        if self._over is not None:
            self._over.set()

    def _ended(self) -> None:
        if self.state == "connected":
            self.state = "closed"
        self._client = None

    def _failed(self, why: str, words: _LastWords) -> None:
        if self.state == "closed":
            return
        said = words.text()
        self.state, self._client = "failed", None
        self.why = f"{why}; it said: {said}" if said and said not in why else why


async def _tools_of(client: Any) -> list[tuple[str, str, object]]:
    found: list[tuple[str, str, object]] = []
    cursor: str | None = None
    for _ in range(_PAGES):
        page = await client.list_tools(cursor=cursor)
        found += ((tool.name, tool.description or "", tool.input_schema) for tool in page.tools)
        cursor = page.next_cursor
        if not cursor:
            break
    return found


class _LastWords:
    """What a server writes on stderr: read so that it is never held up by it, and the end of it kept for a failure."""

    def __init__(self) -> None:
        read, write = os.pipe()
        self.file = os.fdopen(write, "w", encoding="utf-8")
        self._kept: deque[bytes] = deque(maxlen=8)
        self._thread = threading.Thread(target=self._read, args=(read,), name="herma: mcp stderr", daemon=True)
        self._thread.start()

    def _read(self, handle: int) -> None:
        with os.fdopen(handle, "rb", buffering=0) as pipe:
            while piece := pipe.read(4_096):
                self._kept.append(piece)

    def text(self) -> str:
        lines = b"".join(self._kept).decode("utf-8", "replace").strip().splitlines()
        return " ".join(lines[-1].split())[-_SAID:] if lines else ""

    def close(self) -> None:
        """The thread ends when the last process that could write there has ended too."""
        self.file.close()
