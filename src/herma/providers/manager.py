"""Discovery; one provider per session; events."""

from __future__ import annotations

import atexit
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from herma.errors import ProviderError, UsageError
from herma.features import Watcher
from herma.prompt.assemble import ContextFile, is_injection, show
from herma.providers.base import MemoryProvider
from herma.providers.guard import FAILURES, PAUSE, Guard, Health, Trouble
from herma.safety.scan import scan
from herma.types import (
    MOVES,
    Add,
    CompletedTurn,
    Content,
    Contribution,
    MemoryOp,
    MemoryWrite,
    Message,
    Occasion,
    Remove,
    SessionView,
    Who,
)
from herma.worker import Lane

# ---------- providers.discovery
#
# Where providers come from: bundled ones, folders under the home's `plugins/`, and installed packages.
#
# Nothing is loaded because it lies somewhere: only the one that `memory.provider` names is. A plugin is a folder with
# an `__init__.py` that has a `MemoryProvider` in it, or a function `register(ctx)` that hands one to
# `ctx.register_memory_provider(…)`. A package names its class or such a function under the entry point
# `herma.providers`.

ENTRY_POINTS = "herma.providers"
BUNDLED = "herma.providers.bundled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOOKED_AT = 8_192
_MARKS = ("register_memory_provider", "MemoryProvider")
_DESCRIPTION = re.compile(r"^description:[ \t]*(\S[^\n]*)$", re.MULTILINE)
_LOADING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that is there to be used; it has not been loaded."""

    name: str
    kind: Literal["bundled", "plugin", "package"]
    where: str
    description: str = ""


def discover(home: Path) -> list[Found]:
    """Everything that could be used, each name once: bundled ones first, then the home's, then packages."""
    found: dict[str, Found] = {}
    for one in (*_bundled(), *_plugins(home), *_packages()):
        found.setdefault(one.name, one)
    return list(found.values())


def find(home: Path, name: str) -> Found:
    """The provider of this name. `UsageError` with those that are there."""
    for one in (look for kind in (_bundled(), _plugins(home), _packages()) for look in kind):
        if one.name == name:
            return one
    names = ", ".join(one.name for one in discover(home))
    hint = f"There are: {names}." if names else f"Put it into {home / 'plugins' / 'NAME'}, or install its package."
    raise UsageError(f"There is no memory provider {name!r}.", hint=hint)


def load(found: Found) -> MemoryProvider:
    """A fresh provider. Runs its code: `ProviderError` says what is missing, anything else is the provider's own."""
    if found.kind == "package":
        named: Any = next(one for one in _points() if one.name == found.name).load()
    else:
        with _LOADING:
            named = _module(found)
    provider = _made(named)
    if provider is None:
        raise ProviderError(
            f"{found.where} has neither a MemoryProvider nor a register(ctx) that gives one.",
            hint="The how-to on writing a provider shows both.",
        )
    return provider


# ── looking ──


def _bundled() -> Iterator[Found]:
    package = importlib.import_module(BUNDLED)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            yield Found(module.name, "bundled", f"{BUNDLED}.{module.name}")


def _plugins(home: Path) -> Iterator[Found]:
    try:
        folders = sorted((home / "plugins").iterdir())
    except OSError:
        return
    for folder in folders:
        start = folder / "__init__.py"
        if _NAME.fullmatch(folder.name) and any(mark in _beginning(start) for mark in _MARKS):
            said = _DESCRIPTION.search(_beginning(folder / "plugin.yaml"))
            yield Found(folder.name, "plugin", str(folder), said[1].strip("\"' ")[:200] if said else "")


def _packages() -> Iterator[Found]:
    for point in _points():
        if _NAME.fullmatch(point.name):
            package = point.dist.name if point.dist else ""
            yield Found(point.name, "package", point.value, f"from the package {package}" if package else "")


def _points() -> list[EntryPoint]:
    return list(entry_points(group=ENTRY_POINTS))


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_LOOKED_AT).decode("utf-8", "replace")
    except OSError:
        return ""


# ── loading ──


def _module(found: Found) -> ModuleType:
    if found.kind == "bundled":
        return importlib.import_module(found.where)
    folder = Path(found.where)
    _check_private(folder)
    name = f"_herma_plugins_{hashlib.sha256(found.where.encode()).hexdigest()[:8]}.{found.name.replace('-', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[found.where]
    )
    if spec is None or spec.loader is None:
        raise ProviderError(f"{folder} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, so that it can import from itself
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_private(folder: Path) -> None:
    """Code that others may change is not run."""
    if os.name != "nt":
        for path in (folder, folder / "__init__.py"):
            if path.stat().st_mode & 0o002:
                raise ProviderError(f"Everybody may write to {path}, so it is not run.", hint=f"chmod o-w {path}")


class _Collector:
    """What `register(ctx)` is given. Hooks and commands of other programs have no place here."""

    def __init__(self) -> None:
        self.provider: MemoryProvider | None = None

    def register_memory_provider(self, provider: MemoryProvider) -> None:
        self.provider = self.provider or provider

    def __getattr__(self, name: str) -> Any:
        if name.startswith("register_"):
            return lambda *_, **__: None
        raise AttributeError(name)


def _made(named: Any) -> MemoryProvider | None:
    """A provider out of a module, a class, a function or an instance."""
    if inspect.isclass(named):
        return named()  # type: ignore[return-value]
    if inspect.ismodule(named):
        register = getattr(named, "register", None)
        if callable(register):
            return _registered(register)
        for value in vars(named).values():
            own = inspect.isclass(value) and issubclass(value, MemoryProvider) and not inspect.isabstract(value)
            if own and value.__module__.startswith(named.__name__):
                return value()  # type: ignore[no-any-return]
        return None
    return _registered(named) if callable(named) else None


def _registered(register: Any) -> MemoryProvider | None:
    """What a function gives: to the collector it is handed, or back."""
    collector = _Collector()
    takes = inspect.signature(register).parameters
    given = register(collector) if takes else register()
    return collector.provider or (given if isinstance(given, MemoryProvider) else None)


# ---------- providers.calling
#
# How a provider is called: with what it takes, and in the shapes that its method names promise. Pure.

Json = dict[str, Any]


def accepted(method: Callable[..., Any], named: Mapping[str, Any]) -> Json:
    """Those of the named arguments that a method takes: older ones know fewer."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, or by somebody who overrides this too
        return dict(named)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(named)
    taken = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in named.items() if name in taken}


def circumstances(view: SessionView, *, home: str, profile: str) -> Json:
    """Where and for whom a session takes place, as `initialize` is told it."""
    info, around = view.info, view.circumstances
    return {
        "platform": around.platform or info.source,
        "source": info.source,
        "hermes_home": home,
        "agent_context": around.context,
        "agent_identity": info.scope.profile or profile,
        "agent_workspace": "herma",
        "user_id": info.scope.user,
        "user_name": around.user_name,
        "chat_id": info.scope.chat,
        "chat_type": around.chat_type,
        "thread_id": around.thread,
        "parent_session_id": info.parent or "",
        "session_title": info.title or "",
        "system_message": around.system_message,
        "project": info.scope.project,
        "folder": view.folder,
        "model": view.model,
    }


def plain(messages: Iterable[Message]) -> list[Json]:
    """Messages as models speak them, as they were said: without anything that was recalled into them."""
    return [_plain(message) for message in messages]


def mirrored(write: MemoryWrite, view: SessionView) -> list[tuple[str, str, str, Json]]:
    """Action, target, content and metadata of each operation of a write."""
    metadata = {
        "write_origin": "assistant_tool",
        "execution_context": "foreground",
        "session_id": view.id,
        "parent_session_id": view.info.parent or "",
        "platform": view.circumstances.platform or view.info.source,
        "tool_name": "memory",
        "project": write.scope.project,
    }
    return [
        (_action(op), write.target, getattr(op, "content", ""), _filled({**metadata, "old_text": _old_text(op)}))
        for op in write.operations
    ]


def tool_schemas(given: object) -> tuple[list[Json], list[str]]:
    """Schemas as `Tool` takes them, unwrapped, each name once; and what is wrong with the others."""
    found: dict[str, Json] = {}
    wrong: list[str] = []
    if not isinstance(given, Sequence) or isinstance(given, str):
        return [], [f"its tools are {type(given).__name__}, not a list"]
    for schema in given:
        inner = schema.get("function", schema) if isinstance(schema, Mapping) else {}
        name = inner.get("name") if isinstance(inner, Mapping) else None
        if not isinstance(name, str) or not name.isascii() or not name.replace("_", "").replace("-", "").isalnum():
            wrong.append("a tool has no name that models accept")
        elif name in found:
            wrong.append(f"it has two tools called {name}")
        else:
            parameters = inner.get("parameters")
            made = {
                "name": name,
                "description": str(inner.get("description", "")),
                "parameters": dict(parameters) if isinstance(parameters, Mapping) else dict(_NO_PARAMETERS),
            }
            objection = _objection(made)
            if objection:
                wrong.append(f"its tool {name} is refused: {objection}")
            else:
                found[name] = made
    return list(found.values()), wrong


def _objection(schema: Json) -> str:
    """Why the model must not be shown a tool: its schema is text from outside, and part of every request."""
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return "its schema is not JSON"
    if len(text) > LONGEST_SCHEMA:
        return f"its schema has {len(text):,} characters"
    rules = dict.fromkeys(finding.rule for finding in scan(text) if is_injection(finding))
    return f"the scanner objects ({', '.join(rules)})" if rules else ""


_NO_PARAMETERS: Json = {"type": "object", "properties": {}}
LONGEST_SCHEMA = 20_000
"""Characters that the schema of one tool may have."""


def tool_answer(text: object) -> Json:
    """What a tool of a provider said, as our tools answer."""
    try:
        value = json.loads(text if isinstance(text, str) else json.dumps(text, default=repr))
    except (TypeError, ValueError, RecursionError):
        value = text if isinstance(text, str) else f"an answer that is no text: {type(text).__name__}"
    return value if isinstance(value, dict) else {"result": value}


def text_of(content: Content) -> str:
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def _plain(message: Message) -> Json:
    value: Json = {"role": message.role, "content": message.content if message.content is not None else ""}
    if message.tool_calls:
        value["tool_calls"] = [dict(call) for call in message.tool_calls]
    if message.tool_call_id is not None:
        value["tool_call_id"] = message.tool_call_id
    if message.tool_name is not None:
        value["name"] = message.tool_name
    return value


def _action(op: MemoryOp) -> str:
    return "add" if isinstance(op, Add) else "remove" if isinstance(op, Remove) else "replace"


def _old_text(op: MemoryOp) -> str:
    return "" if isinstance(op, Add) else op.old_text


def _filled(values: Json) -> Json:
    return {name: value for name, value in values.items() if value}


# ---------- providers.seat
#
# The external memory of one session: it follows the session, adds its block to the prompt, and brings its tools.
#
# It hears of everything in order, in the background; only recall, tools and the beginning are waited for, each with a
# deadline. What it says is text from outside: scanned, fenced, and known as somebody else's words.

LONGEST_BLOCK = 8_000
"""Characters that a provider may add to the system prompt."""
READ = 200_000
"""Characters of it that are looked at; the rest would not be shown anyway."""


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a provider may take: to begin and to recall, for a tool, and to take in what is left at the end."""

    recall: float = 8.0
    tool: float = 60.0
    drain: float = 5.0


class Seat(Watcher):
    """One provider in one session."""

    def __init__(
        self,
        name: str,
        load: Callable[[], MemoryProvider],
        view: SessionView,
        guard: Guard,
        *,
        home: str,
        profile: str = "",
        deadlines: Deadlines | None = None,
        left: Callable[[Seat], None] = lambda _: None,
    ) -> None:
        self.name = name
        self.guard = guard
        self.session_id = view.id
        self.deadlines = deadlines or Deadlines()
        self.deadline = self.contribution_deadline = self.deadlines.recall
        self.tools: list[Json] = []
        self.abandoned: list[str] = []
        self._load = load
        self._told = circumstances(view, home=home, profile=profile)
        self._left = left
        self._begun = threading.Event()
        self._gone = False
        self._provider: MemoryProvider | None = None
        self._lane = Lane(f"herma: {name}, handing over", lost=self._lost)

    def begin(self, reserved: Sequence[str]) -> tuple[str, ...]:
        """Load and initialise it. → what people should know. One that takes too long takes part once it is there."""
        warnings: list[str] = []
        unanswered = object()
        given = self.guard.ask("initialize", self._start, unanswered, within=self.deadlines.recall)
        if given is unanswered:
            last = self.guard.health.last
            return (f"The memory provider {self.name} takes no part: {last.why if last else 'it is left out'}.",)
        schemas, wrong = tool_schemas(given)
        for schema in schemas:
            if schema["name"] in reserved:
                wrong.append(f"its tool {schema['name']} is refused, because there is one of that name")
            else:
                self.tools.append(schema)
        for why in wrong:
            self.guard.count("get_tool_schemas", why)
            warnings.append(f"The memory provider {self.name}: {why}.")
        return tuple(warnings)

    @property
    def begun(self) -> bool:
        """Whether it takes part."""
        return self._provider is not None

    @property
    def failed(self) -> bool:
        """Whether it will never take part: it was tried, and could not begin."""
        return self._begun.is_set() and self._provider is None

    def _start(self) -> object:
        try:
            provider = self._load()
            if not provider.is_available():
                why = getattr(provider, "unavailable_reason", str)()
                raise ProviderError(f"It is not available{f': {why}' if why else ''}")
            provider.initialize(self.session_id, **accepted(provider.initialize, self._told))
            tools = provider.get_tool_schemas()
            self._provider = provider
            if self._gone:  # the session did not wait for it
                self._shut_down(within=None)
            return tools
        finally:
            self._begun.set()

    # ── the prompt and the tools ──

    def contribute(self, occasion: Occasion) -> Contribution:
        """Its block, scanned and cut to what is left for memory."""
        if self._provider is None:
            return Contribution()
        self._lane.flush(self.deadlines.recall / 2)  # so that it answers with what it was told
        block = self._provider.system_prompt_block()
        if not isinstance(block, str):
            raise ProviderError(f"Its block is {type(block).__name__}, not text")
        if not block.strip():
            return Contribution()
        cap = max(200, min(LONGEST_BLOCK, occasion.memory_tokens * 3)) if occasion.memory_tokens else LONGEST_BLOCK
        shown = show(ContextFile(f"the memory provider {self.name}", block[:READ]), cap)
        return Contribution(providers=((self.name, shown.text),), warnings=shown.warnings)

    def call_tool(self, name: str, arguments: Json) -> Json:
        """Run one of its tools for the model."""
        provider = self._provider
        if provider is None:
            return {"success": False, "error": f"{self.name} is not there."}
        named = accepted(provider.handle_tool_call, {"session_id": self.session_id})

        def question() -> object:
            return provider.handle_tool_call(name, arguments, **named)

        unanswered = object()
        given = self.guard.ask(name, question, unanswered, within=self.deadlines.tool)
        if given is unanswered:
            last = self.guard.health.last
            return {"success": False, "error": f"{name} failed: {last.why if last else 'the provider is left out'}."}
        return tool_answer(given)

    # ── what happens ──

    def turn_began(self, view: SessionView, text: str) -> str:
        provider = self._provider
        if provider is None or not text.strip():
            return ""
        about = {"session_id": view.id, "model": view.model}
        provider.on_turn_start(view.turns + 1, text, **accepted(provider.on_turn_start, about))
        return provider.prefetch(text, **accepted(provider.prefetch, {"session_id": view.id}))

    def compressing(self, view: SessionView) -> str:
        self._lane.flush(self.deadlines.recall / 2)  # so that it knows what was said
        return self._provider.on_pre_compress(plain(view.messages)) if self._provider else ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        if not turn.user.strip() or not turn.reply.strip():
            return
        said = view.messages
        at = {"session_id": view.id}
        self._tell(
            "sync_turn",
            lambda provider: provider.sync_turn(
                turn.user, turn.reply, **accepted(provider.sync_turn, {**at, "messages": plain(said)})
            ),
        )
        self._tell(
            "queue_prefetch",
            lambda provider: provider.queue_prefetch(turn.user, **accepted(provider.queue_prefetch, at)),
        )

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        if write.author.who is Who.REVIEW:
            return
        for action, target, content, metadata in mirrored(write, view):
            self._tell("on_memory_write", _mirror(action, target, content, metadata))

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        self.session_id = new.id
        about: Json = {"parent_session_id": old.id, "reset": reset, "reason": reason}
        if reason == "rewind":
            about["rewound"] = True
        self._tell(
            "on_session_switch",
            lambda provider: provider.on_session_switch(new.id, **accepted(provider.on_session_switch, about)),
        )

    def closing(self, view: SessionView, reason: str) -> None:
        if view.messages:
            said = view.messages
            self._tell("on_session_end", lambda provider: provider.on_session_end(plain(said)))
        if reason not in MOVES:
            self.leave()

    def delegated(self, view: SessionView) -> None:
        """A session that this one started for a part of its work has ended."""
        task = next((text_of(one.content) for one in view.messages if one.role == "user"), "")
        result = next((text_of(one.content) for one in reversed(view.messages) if one.role == "assistant"), "")
        about = {"child_session_id": view.id}
        self._tell(
            "on_delegation",
            lambda provider: provider.on_delegation(task, result, **accepted(provider.on_delegation, about)),
        )

    # ── the end ──

    def flush(self, timeout: float) -> bool:
        """Wait until everything has been handed over. → whether that was so in time."""
        return self._lane.flush(timeout)

    @property
    def waiting(self) -> int:
        return self._lane.waiting

    def leave(self) -> None:
        """Hand over what is left, and let it go. Leaving twice does no harm."""
        self.abandoned += self._lane.close(self.deadlines.drain)
        if self.abandoned:
            self.guard.count("the end", f"{len(self.abandoned)} things could not be handed over in time")
        self._gone = True
        self._shut_down(within=self.deadlines.drain)
        self._left(self)

    def _shut_down(self, *, within: float | None) -> None:
        provider, self._provider = self._provider, None
        if provider is not None:
            self.guard.ask("shutdown", provider.shutdown, None, within=within)

    def _tell(self, what: str, news: Callable[[MemoryProvider], object]) -> None:
        def work() -> None:
            self._begun.wait()
            provider = self._provider
            if provider is None or self.guard.left_out(what):
                return
            self.guard.ask(what, lambda: news(provider), None)

        self._lane.put(what, work)

    def _lost(self, what: str) -> None:
        self.guard.count(what, "it is so far behind that the oldest was given up")


def _mirror(action: str, target: str, content: str, metadata: Json) -> Callable[[MemoryProvider], Any]:
    def news(provider: MemoryProvider) -> None:
        provider.on_memory_write(action, target, content, **accepted(provider.on_memory_write, {"metadata": metadata}))

    return news


# ---------- providers.roster
#
# `h.providers`: which external memory is in use, how it has been, and which others there are.


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """The provider that is configured. `available` is None where nobody asked it."""

    name: str
    found: Found | None = None
    available: bool | None = None
    why: str = ""
    health: Health = field(default_factory=Health)
    sessions: int = 0
    """Sessions of this process that it takes part in."""
    waiting: int = 0
    """Things that are still to be handed over to it."""


class Providers:
    """One external memory at most takes part: the one that `memory.provider` names."""

    def __init__(
        self,
        home: Path,
        name: str,
        *,
        profile: str = "",
        deadlines: Deadlines | None = None,
        failures: int = FAILURES,
        pause: float = PAUSE,
        shown: Callable[[Trouble], None] = lambda _: None,
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        self._home = home
        self._name = name.strip()
        self._profile = profile
        self._deadlines = deadlines or Deadlines()
        self._options: dict[str, Any] = {"shown": shown, "failures": failures, "pause": pause}
        self._guard = Guard(self._name, **self._options)  # over all sessions
        self._alive = alive
        self._mutex = threading.Lock()
        self._seats: list[Seat] = []
        self._drains_at_exit = False

    @property
    def active(self) -> str:
        """The name of the provider that takes part in sessions, or nothing."""
        return self._name

    def list(self) -> list[Found]:
        """Every provider that could be used."""
        self._alive()
        return discover(self._home)

    def status(self, *, ask: bool = True) -> ProviderStatus:
        """How the configured provider is. `ask` loads it and asks whether it is available, within its deadline."""
        self._alive()
        if not self._name:
            return ProviderStatus("")
        with self._mutex:
            seats = list(self._seats)
        health = _together([self._guard.health, *(seat.guard.health for seat in seats)])
        waiting = sum(seat.waiting for seat in seats)
        status = ProviderStatus(self._name, health=health, sessions=len(seats), waiting=waiting)
        return self._asked(status) if ask else status

    def seat(self, view: SessionView, reserved: Sequence[str]) -> tuple[Seat | None, tuple[str, ...]]:
        """The provider's place in a session, and what people should know. A review has none: it only looks back."""
        if not self._name or view.circumstances.context == "review":
            return None, ()
        try:
            found = find(self._home, self._name)
        except UsageError as exc:
            self._guard.count("discovery", f"{exc} {exc.hint}")
            return None, (f"{exc} {exc.hint} Sessions go on without it.",)
        if self._guard.left_out("initialize"):
            last = self._guard.health.last
            return None, (
                f"{self._name} failed so often that it is left out for a while ({last.why if last else ''}).",
            )
        seat = Seat(
            self._name,
            lambda: load(found),
            view,
            Guard(self._name, **self._options),
            home=str(self._home),
            profile=self._profile,
            deadlines=self._deadlines,
            left=self._leave,
        )
        with self._mutex:
            if not self._drains_at_exit:
                self._drains_at_exit = True
                atexit.register(_drain, weakref.ref(self))
            self._seats.append(seat)
        warnings = seat.begin(reserved)
        self._guard.note("initialize", failed=not seat.begun)
        if seat.failed:
            self._leave(seat)
            return None, warnings
        return seat, warnings

    def watcher(self) -> Watcher:
        """Tells the provider of a session when another that it started for a part of its work has ended."""
        return _Delegations(self)

    def flush(self, timeout: float) -> bool:
        """Wait until everything has been handed over, in all sessions. → whether that was so in time."""
        until = time.monotonic() + timeout
        with self._mutex:
            seats = list(self._seats)
        return all(seat.flush(max(0.0, until - time.monotonic())) for seat in seats)

    def close(self) -> None:
        """Let it go, in sessions that were not closed too."""
        with self._mutex:
            seats = list(self._seats)
        for seat in seats:
            seat.leave()

    def of_session(self, session_id: str) -> Seat | None:
        with self._mutex:
            return next((seat for seat in self._seats if seat.session_id == session_id), None)

    def _asked(self, status: ProviderStatus) -> ProviderStatus:
        try:
            found = find(self._home, self._name)
        except UsageError as exc:
            return ProviderStatus(self._name, why=f"{exc} {exc.hint}", available=False, health=status.health)
        guard = Guard(self._name)

        def question() -> tuple[bool, str]:
            provider = load(found)
            fine = bool(provider.is_available())
            return fine, "" if fine else str(getattr(provider, "unavailable_reason", str)() or "")

        available, why = guard.ask("is_available", question, (False, ""), within=self._deadlines.recall)
        last = guard.health.last
        return ProviderStatus(
            self._name,
            found,
            available,
            last.why if last else why,
            status.health,
            status.sessions,
            status.waiting,
        )

    def _leave(self, seat: Seat) -> None:
        with self._mutex:
            if seat in self._seats:
                self._seats.remove(seat)
        self._guard.take_over(seat.guard.health)


def _drain(providers: weakref.ref[Providers]) -> None:
    """A program that ends without closing anything: what was said is handed over all the same, within the deadline."""
    left = providers()
    if left is not None:
        left.flush(left._deadlines.drain)


class _Delegations(Watcher):
    name = "delegation"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    def closing(self, view: SessionView, reason: str) -> None:
        parent = view.info.parent
        if reason in MOVES or view.circumstances.context != "subagent" or not parent or not view.messages:
            return
        seat = self._providers.of_session(parent)
        if seat is not None:
            seat.delegated(view)


def _together(healths: Sequence[Health]) -> Health:
    """Several as one: sums, and the state and trouble of the one that is worst off."""
    states = [health.state for health in healths]
    troubles = [health.last for health in healths if health.last is not None]
    return Health(
        "paused" if "paused" in states else "busy" if "busy" in states else "well",
        sum(health.asked for health in healths),
        sum(health.failures for health in healths),
        sum(health.timeouts for health in healths),
        sum(health.skipped for health in healths),
        troubles[-1] if troubles else None,
    )
