"""Tools of MCP servers, offered to the model beside our own.

One thread with one event loop serves all servers and connects to them at once. One task opens, holds and closes each
connection, because its parts have to be left where they were entered. A server that cannot be used is reported once
and costs only its own tools. Everything that a server sends is untrusted: its schemas are scanned before the model
sees them, arguments are checked here, and long results are cut.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import hashlib
import json
import logging
import math
import os
import re
import tempfile
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TextIO, TypeAlias, TypeVar

from herma.errors import HermaError, install_command
from herma.models.endpoints import read_key
from herma.providers.manager import tool_schemas
from herma.tools.registry import Tool, ToolContext
from herma.worker import BackgroundCall, Trouble, TroubleLog, mark_working

if TYPE_CHECKING:
    from herma.config import ChatSettings, McpServer

Json = dict[str, Any]
LONGEST_NAME = 64
"""Maximum characters of a tool's name."""
MOST_TOOLS = 128
"""Tools of all servers together; some models reject more."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
_MOST_COMPLAINTS = 3
_UNCHECKED = ("pattern", "patternProperties", "propertyNames", "format", "$dynamicRef")
"""Keywords that are not checked: checking them may take forever, or load other documents."""
_MOST_REFERENCES = 1_000
"""`$ref`s that are followed for one call: a few lines can expand to millions."""


class ToolFailed(HermaError):
    """A tool of an MCP server gave no result; the model is sent the reason."""


class UnsetError(Exception):
    """A variable that the configuration refers to is not set."""


def tool_name(server: str, tool: str) -> str:
    """Return `server__tool` as models accept it; a longer name ends with a hash."""
    name = f"{server}__{_UNFIT.sub('_', tool)}"
    if len(name) <= LONGEST_NAME and tool == _UNFIT.sub("_", tool):
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def taken_schemas(
    server: str, listed: Sequence[tuple[str, str, object]]
) -> tuple[dict[str, Json], dict[str, str], list[str]]:
    """Return the schemas that the model may be sent, by Herma's name; the server's name of each; and what is wrong with
    the other tools. `listed` has names, descriptions and schemas.
    """
    named = {tool_name(server, name): name for name, _, _ in listed}
    offered = [
        {"name": tool_name(server, name), "description": description, "parameters": parameters}
        for name, description, parameters in listed
    ]
    good, wrong = tool_schemas(offered)
    return {schema["name"]: schema for schema in good}, named, [f"{server}: {sentence}" for sentence in wrong]


def complaints(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """Return what is wrong with arguments by the schema, or "". Patterns and other documents are not checked."""
    jsonschema = import_module("jsonschema")
    registry = import_module("referencing").Registry()
    follow, left = jsonschema.Draft202012Validator.VALIDATORS["$ref"], iter(range(_MOST_REFERENCES))

    def follow_counted(*given: Any) -> Any:
        if next(left, None) is None:
            raise ValueError("too many references")
        return follow(*given)

    unchecked = dict.fromkeys(_UNCHECKED, lambda *_: iter(()))
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, {**unchecked, "$ref": follow_counted})
    try:
        found = sorted(
            kind(dict(schema), registry=registry).iter_errors(dict(arguments)), key=lambda one: list(map(str, one.path))
        )
    except RecursionError:
        return "the arguments are nested too deeply"
    except (
        jsonschema.exceptions._WrappedReferencingError,
        jsonschema.exceptions.UnknownType,
        TypeError,
        ValueError,
        AttributeError,
    ):
        return ""  # the schema is invalid or huge: the server has to decide
    said = [f"{'.'.join(map(str, one.path)) or 'the arguments'}: {_short(one.message)}" for one in found]
    more = len(said) - _MOST_COMPLAINTS
    return "; ".join([*said[:_MOST_COMPLAINTS], *([f"and {more} more"] if more > 0 else [])])


def result_of(content: Sequence[Any], structured: object, failed: bool, longest: int) -> Json:
    """Return a server's answer as the result of a tool: its text, and the type and size of other content."""
    text = "\n".join(filter(None, map(_words, content)))
    if not text and structured is not None:
        try:
            text = json.dumps(structured, ensure_ascii=False, default=str)
        except (ValueError, RecursionError):
            return {"success": False, "error": "The tool's answer is nested too deeply."}
    cut = len(text) - longest
    if cut > 0:
        text = f"{text[:longest]}\n[… {cut:,} more characters were left out.]"
    return {"success": False, "error": text or "The tool failed without a reason."} if failed else {"result": text}


def filled(text: str, value_of: Callable[[str], str]) -> str:
    """Replace `${NAME}` with the value of the variable. Raise `UnsetError` if it is not set."""

    def value(found: re.Match[str]) -> str:
        held = value_of(found[1])
        if not held:
            raise UnsetError(f"the variable {found[1]} is not set, neither in the environment nor in the home's .env")
        return held

    return _VARIABLE.sub(value, text)


def reason(error: BaseException) -> str:
    """Return an error in a line; of a group, the first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = " ".join(str(getattr(error, "message", "") or error).split())
    return _short(words) if words else type(error).__name__


def _words(part: Any) -> str:
    kind = getattr(part, "type", "")
    if kind == "text":
        return str(part.text)
    if kind == "resource" and isinstance(getattr(part.resource, "text", None), str):
        return str(part.resource.text)
    if kind == "resource_link":
        return f"[{part.name}: {part.uri}]"
    data = getattr(part, "data", None) or getattr(getattr(part, "resource", None), "blob", "") or ""
    mime = getattr(part, "mime_type", None) or getattr(getattr(part, "resource", None), "mime_type", None) or kind
    return f"[{mime}, {len(data) * 3 // 4:,} bytes: not shown]"


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:299]}…"


State: TypeAlias = Literal["waiting", "connecting", "connected", "failed", "closed"]
_PAGES = 20
_BEGINNING = 2.0
"""Seconds that closing waits for a program that is just being started."""
_LAST_WORDS = 1.0
"""Seconds that a program that ended before it connected is given to write its last line."""
_TAIL = 4_096
"""Bytes at the end of a server's stderr that are searched for its last line."""
_SAID = 300
"""Characters of a server's last line that are shown."""


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
        if self._closing:
            self.ready.set()
            return
        self.state, self.why, self._over, self._begun = "connecting", "", asyncio.Event(), asyncio.Event()
        # A file, not a pipe: the server can never block on it, and nothing has to be awaited to read its end. It is
        # appended to, so that a server that opens its stderr a second time overwrites nothing.
        try:
            with (
                tempfile.TemporaryDirectory(prefix="herma-mcp-", ignore_cleanup_errors=True) as folder,
                Path(folder, "stderr").open("a", encoding="utf-8") as errors,
            ):
                await self._kept(errors)
        except OSError as exc:
            self.state, self.why = "failed", f"no temporary file: {reason(exc)}"
            self.ready.set()

    async def _kept(self, errors: TextIO) -> None:
        import anyio

        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self.deadline) as scope:
                self._scope = scope
                await self._hold(scope, errors)
            if self.state == "connecting":
                self._failed(f"it did not begin within {self.deadline:g} s", errors)
            else:
                self._ended()
        except UnsetError as exc:
            self._failed(str(exc), errors)
        except Exception as exc:  # noqa: BLE001  a server may fail in any way; it is reported, and the agent goes on
            if self.server.command and self._begun is not None and self._begun.is_set():
                await _until_written(errors)
            self._failed(reason(exc), errors)
        finally:
            if self.state == "connecting":  # cancelled while the library shut the connection down
                self._failed("the connection was closed", errors)
            self.ready.set()

    async def _hold(self, scope: Any, errors: TextIO) -> None:
        from mcp import Client

        async with self._target(errors) as target, Client(target) as client:
            self.listed = await _tools_of(client)
            scope.deadline = math.inf
            self._client, self.state = client, "connected"
            self.ready.set()
            assert self._over is not None
            await self._over.wait()

    @asynccontextmanager
    async def _target(self, errors: TextIO) -> AsyncIterator[Any]:
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
            yield self._noted(stdio_client(program, errlog=errors))
            return
        headers = {name: value(text) for name, text in given.headers.items()}
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(create_mcp_http_client(headers))
            yield self._noted(streamable_http_client(value(given.url), http_client=client))

    @asynccontextmanager
    async def _noted(self, transport: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
        """Open the transport, and note when it is open: cancelled before that, it would leave a program behind."""
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
        """Return the server's answer. Raise `ToolFailed` if there is none."""
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

    def _failed(self, why: str, errors: TextIO) -> None:
        if self.state == "closed":
            return
        said = _last_line(errors)
        self.state, self._client = "failed", None
        self.why = f"{why}; its last line: {said}" if said and said not in why else why


async def _until_written(errors: TextIO) -> None:
    """Wait a moment for a program that ended to say why: the end of its stdout can be seen before its stderr."""
    import anyio

    with anyio.move_on_after(_LAST_WORDS):
        while not _last_line(errors):
            await anyio.sleep(_STEP)


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


def _last_line(errors: TextIO) -> str:
    """Return the last line that a server has written into its stderr file.

    The file is opened again, because a server shares the offset of the handle that it was given.
    """
    with Path(errors.name).open("rb") as text:
        text.seek(max(0, os.fstat(text.fileno()).st_size - _TAIL))
        lines = text.read(_TAIL).decode("utf-8", "replace").strip().splitlines()
    return " ".join(lines[-1].split())[-_SAID:] if lines else ""


T = TypeVar("T")
_STEP = 0.05
"""Seconds between two checks of `cancel`."""
_DRAIN = 5.0
"""Seconds that closing waits for servers to end."""
_LOADING = 20.0
"""Seconds for loading the library, besides connecting."""


class ServerState(NamedTuple):
    """The state of one server."""

    name: str
    state: State
    tools: tuple[str, ...] = ()
    why: str = ""


class McpServers:
    """The servers of one program. Call `begin` at its start, `tools` when a session begins, `close` at the end."""

    def __init__(self, servers: Sequence[McpServer], settings: ChatSettings, home: Path) -> None:
        self._settings = settings
        self._links = [
            Link(server, deadline=settings.connect_timeout, value_of=lambda name: read_key(name, home))
            for server in servers
            if server.enabled
        ]
        self._home = home
        self._loop: asyncio.AbstractEventLoop | None = None
        self._serving: BackgroundCall[None] | None = None
        self._up = threading.Event()
        self._missing = ""
        self._names: dict[str, tuple[str, ...]] = {}
        self._warnings: list[str] = []
        self.cancel = threading.Event()
        """Set it to stop waiting for the running tool."""

    def begin(self) -> None:
        """Start to connect, and return at once."""
        if self._links and self._serving is None:
            self._serving = BackgroundCall("mcp", self._run).start()

    def tools(self) -> list[Tool]:
        """Return the tools of all servers; wait until each has started or its time is over."""
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
                self._warnings.append(f"Two MCP servers have a tool named {name}; the first one is used.")
        if len(found) > MOST_TOOLS:
            self._warnings.append(
                f"The MCP servers have {len(found)} tools; the first {MOST_TOOLS} are used. "
                "List those you need under `tools` in mcp_servers."
            )
        return found[:MOST_TOOLS]

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return what `tools` found wrong with servers."""
        return tuple(self._warnings)

    def states(self) -> list[ServerState]:
        """Return the state of every server, for people."""
        return [
            ServerState(link.server.name, link.state, self._names.get(link.server.name, ()), link.why or self._missing)
            for link in self._links
        ]

    def close(self) -> None:
        """End the servers, and wait a little for that."""
        if self._serving is None:
            return
        self._up.wait(_LOADING)
        loop = self._loop
        if loop is not None and not loop.is_closed():
            try:
                loop.call_soon_threadsafe(self._over.set)
            except RuntimeError:  # it ended in this moment
                return
        self._serving.done.wait(2 * _DRAIN)

    # ── one server ──

    def _tools_of(self, link: Link) -> Iterator[Tool]:
        name = link.server.name
        if not link.usable:
            if not self._missing:
                why = link.why or f"it did not begin within {link.deadline:g} s"
                self._warnings.append(f"The MCP server {name} is not used: {why.rstrip('.')}.")
                self._count(name, "connecting", why)
            return
        mark_working(self._home, name)
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
                return {"success": False, "error": f"Invalid arguments: {wrong}."}
            return self._call(link, theirs, arguments)

        return Tool(schema["name"], schema["description"], schema["parameters"], run)

    def _call(self, link: Link, tool: str, arguments: Json) -> Json:
        name, limit = link.server.name, link.server.timeout or self._settings.tool_timeout
        try:
            if not link.usable:
                self._connect_again(link)
            answer = self._wait(link.ask(tool, arguments, limit), limit, name)
        except ToolFailed as exc:
            if not self.cancel.is_set():  # otherwise the person stopped it
                self._count(name, tool, str(exc))
            raise
        mark_working(self._home, name)
        return result_of(answer.content, answer.structured_content, bool(answer.is_error), self._settings.result_chars)

    def _count(self, server: str, what: str, why: str) -> None:
        """Log a failure for the doctor and the dashboard."""
        TroubleLog(self._home).add(Trouble(f"MCP server {server}", what, why), time.time())

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
            import mcp  # noqa: F401  takes half a second, while the person types
        except ImportError:
            self._missing = f"MCP servers need the package mcp, which is not installed; type: {install_command('chat')}"
            self._up.set()
            return
        for noisy in ("mcp", "httpx2", "client"):  # errors are raised anyway
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
        """Connect again, after the old connection has ended."""
        if link in self._kept:
            await asyncio.wait([self._kept[link]])
        await self._keep(link)

    def _wait(self, work: Coroutine[Any, Any, T], seconds: float, name: str) -> T:
        """Return the result of work in the loop. Stop waiting when `cancel` is set."""
        assert self._loop is not None
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        until = time.monotonic() + seconds + 1.0  # the library's own deadline comes first
        while not concurrent.futures.wait([future], _STEP).done:
            if self.cancel.is_set():
                future.cancel()
                raise ToolFailed("The tool was stopped before it answered.")
            if time.monotonic() > until:
                future.cancel()
                raise ToolFailed(f"{name} did not answer within {seconds:g} s.")
        return future.result()
