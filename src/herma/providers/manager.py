"""Let external memories take part in sessions: one that is written, and others that only recall.

`Providers` is `h.providers`. `ProviderSession` is one provider in one session; it follows the session as a `Feature`.
A provider learns of everything in order, in the background. Only recall, tools and the beginning are waited for, each
with a deadline. Its text comes from outside: it is scanned, fenced, and marked as untrusted.
"""

from __future__ import annotations

import atexit
import inspect
import json
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herma.errors import ProviderError, UsageError, checked
from herma.features import Feature, is_item, item_mark, unit_key
from herma.prompt.assemble import ContextFile, is_injection, show
from herma.providers.base import MemoryProvider, RecallStatus
from herma.providers.discovery import FoundProvider, discover, find, load
from herma.safety.scan import scan
from herma.tools.registry import Tool, ToolContext
from herma.transcript.messages import text_of, to_wire
from herma.types import (
    MOVES,
    CompletedTurn,
    MemoryWrite,
    Message,
    Origin,
    PromptContribution,
    PromptRequest,
    SessionView,
    Who,
)
from herma.worker import BackgroundCall, Guard, Health, Trouble, Worker

if TYPE_CHECKING:
    from herma.config import Settings

# Call a provider with the arguments that it takes, in the shapes that its method names promise. Pure.

Json = dict[str, Any]


def accepted(method: Callable[..., Any], named: Mapping[str, Any]) -> Json:
    """Those of the named arguments that a method takes: older ones know fewer."""
    try:
        parameters = inspect.signature(method).parameters.values()
    except (TypeError, ValueError):  # written in C, or the class overrides this too
        return dict(named)
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
        return dict(named)
    taken = {parameter.name for parameter in parameters if parameter.kind is not parameter.POSITIONAL_ONLY}
    return {name: value for name, value in named.items() if name in taken}


def environment_of(view: SessionView, *, home: str, profile: str) -> Json:
    """Return the place and the user of a session, as `initialize` takes them."""
    info, around = view.info, view.environment
    return {
        "platform": info.source,
        "platform_hint": around.platform,
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
    """Return messages as models get them, as they were said: without anything that was recalled into them.

    They are copies to the ground: a provider that changes what it is given changes no session.
    """
    kept = ("role", "content", "tool_calls", "tool_call_id", "name")
    wire = ({"content": "", **to_wire(one), "name": one.tool_name} for one in messages)
    return [{name: deepcopy(one[name]) for name in kept if one.get(name) is not None} for one in wire]


def mirrored(write: MemoryWrite, view: SessionView) -> list[tuple[str, str, str, Json]]:
    """Return action, target, content and metadata of each operation of a write."""
    about = {
        "write_origin": "assistant_tool",
        "execution_context": "foreground",
        "session_id": view.id,
        "parent_session_id": view.info.parent or "",
        "platform": view.info.source,
        "tool_name": "memory",
        "project": write.scope.project,
    }
    found: list[tuple[str, str, str, Json]] = []
    for op in write.operations:
        values = {**about, "old_text": getattr(op, "old_text", "")}
        filled = {name: value for name, value in values.items() if value}
        found.append((type(op).__name__.lower(), write.target, getattr(op, "content", ""), filled))
    return found


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
    """Return what a tool of a provider said, as our tools answer."""
    try:
        value = json.loads(text if isinstance(text, str) else json.dumps(text, default=repr))
    except (TypeError, ValueError, RecursionError):
        value = text if isinstance(text, str) else f"an answer that is not text: {type(text).__name__}"
    return value if isinstance(value, dict) else {"result": value}


# One provider in one session.

LONGEST_BLOCK = 8_000
"""Characters that a provider may add to the system prompt."""
READ = 200_000
"""Characters of it that are scanned; the rest would not be shown anyway."""
TOOL_TIMEOUT, BACKGROUND_TIMEOUT, DRAIN, SHUTDOWN = 60.0, 150.0, 5.0, 1.0
"""Seconds that a tool and an event in the background may take, that the end of a session waits for what is left, and
that it leaves to a shutdown at least."""
WAITING = 500
"""Events that may wait for a provider; when more wait, the oldest is dropped."""
_PARKING_REASONS = ("reset", "switched", "branched")
"""Reasons of a session's end after which the same provider object goes on with the next session: /new, /resume,
/branch. It is flushed and notified of the switch, but not shut down."""
MOST_PARKED = 16
"""Providers that may wait for the next session of their place; the oldest of more is shut down."""


class ProviderSession(Feature):
    """One provider in one session."""

    origin = Origin.PROVIDER

    def __init__(self, providers: Providers, found: FoundProvider, view: SessionView, guard: Guard) -> None:
        """A recall source, and any provider in sessions of subagents and timers, recalls and is never written to."""
        self.name = found.name
        self.guard = guard
        self.session_id = view.id
        self.deadline = self.contribution_deadline = providers.deadline
        self._recall_only = found.name != providers.active
        self.read_only = self._recall_only or view.environment.context != "primary"
        self.schemas: list[Json] = []
        self.abandoned: list[str] = []
        self.dropped = 0
        self.place = place_of(view)
        self.parked = False
        self._found, self._providers, self._home = found, providers, providers.home
        around = environment_of(view, home=str(providers.home), profile=providers.profile)
        self._session_values = {**around, "ask_model": providers.ask_model}
        self._begun = threading.Event()
        self._gone = False
        self._switching: threading.Event | None = None
        self._provider: MemoryProvider | None = None
        self._aliases: Mapping[object, object] = {}
        self._running: BackgroundCall[object] | None = None
        self._turn = ("", 0)
        self._lane = providers.worker.lane(f"{found.name}, handing over", most=WAITING, lost=self._lost)

    def begin(self, reserved: Sequence[str]) -> tuple[str, ...]:
        """Load and initialise it, and return warnings for people. One that is too slow takes part once it is ready."""
        warnings: list[str] = []
        unanswered = object()
        given = self.guard.ask("initialize", self._start, unanswered, within=self.deadline)
        if given is unanswered:
            last = self.guard.health.last
            return (f"The memory provider {self.name} takes no part: {last.why if last else 'it is left out'}.",)
        schemas, wrong = tool_schemas(given)
        for schema in schemas:
            if schema["name"] in reserved:
                wrong.append(f"its tool {schema['name']} is refused, because there is one of that name")
            else:
                self.schemas.append(schema)
        for why in wrong:
            self.guard.count("get_tool_schemas", why)
            warnings.append(f"The memory provider {self.name}: {why}.")
        return tuple(warnings)

    @property
    def begun(self) -> bool:
        """Return whether it takes part."""
        return self._provider is not None

    @property
    def failed(self) -> bool:
        """Return whether it will never take part: it was tried, and could not begin."""
        return self._begun.is_set() and self._provider is None

    def _start(self) -> object:
        try:
            provider = load(self._found, self._home)
            if not provider.is_available():
                why = getattr(provider, "unavailable_reason", str)()
                raise ProviderError(f"It is not available{f': {why}' if why else ''}")
            provider.initialize(self.session_id, **accepted(provider.initialize, self._session_values))
            tools: object = provider.get_tool_schemas()
            if self.read_only:
                tools = self._tools_that_read(provider, tools)
            aliases = getattr(provider, "aliases", {})
            self._aliases = dict(aliases) if isinstance(aliases, Mapping) else {}
            self._provider = provider
            if self._gone:  # the session did not wait for it
                self.shut_down(within=None)
            return tools
        finally:
            self._begun.set()

    def _tools_that_read(self, provider: MemoryProvider, tools: object) -> object:
        """Keep the tools that the provider names in `read_tools`; other providers do not say which tools write."""
        reading = () if self._recall_only else getattr(provider, "read_tools", ())
        return [schema for schema in tool_schemas(tools)[0] if schema["name"] in reading]

    # ── the prompt and the tools ──

    def contribute(self, request: PromptRequest) -> PromptContribution:
        """Return its block, scanned and cut to what is left for memory."""
        if self._provider is None or self._recall_only:
            return PromptContribution()
        self._lane.wait(self.deadline / 2)  # so that its answer includes what it received
        block = self._provider.system_prompt_block()
        if not isinstance(block, str):
            raise ProviderError(f"Its block is {type(block).__name__}, not text")
        if not block.strip():
            return PromptContribution()
        cap = max(200, min(LONGEST_BLOCK, request.memory_tokens * 3)) if request.memory_tokens else LONGEST_BLOCK
        shown = show(ContextFile(f"the memory provider {self.name}", block[:READ]), cap)
        return PromptContribution(providers=((self.name, shown.text),), warnings=shown.warnings)

    @property
    def tools(self) -> Sequence[Tool]:
        """Its tools, called through the guard; also under other names that it gives them."""
        shown = {schema["name"]: self._tool(schema) for schema in self.schemas}
        others = ((str(alias), shown.get(str(name))) for alias, name in self._aliases.items())
        hidden = [replace(tool, name=alias, hidden=True) for alias, tool in others if tool is not None]
        return [*shown.values(), *hidden]

    def _tool(self, schema: Json) -> Tool:
        def run(arguments: Json, context: ToolContext) -> Json:  # noqa: ARG001
            return self.call_tool(schema["name"], arguments)

        return Tool(schema["name"], schema["description"], schema["parameters"], run)

    def call_tool(self, name: str, arguments: Json) -> Json:
        """Run one of its tools for the model."""
        provider = self._provider
        if provider is None:
            return {"success": False, "error": f"{self.name} is not there."}
        named = accepted(provider.handle_tool_call, {"session_id": self.session_id})

        def question() -> object:
            return provider.handle_tool_call(name, arguments, **named)

        unanswered = object()
        given = self.guard.ask(name, question, unanswered, within=TOOL_TIMEOUT)
        if given is unanswered:
            last = self.guard.health.last
            return {"success": False, "error": f"{name} failed: {last.why if last else 'the provider is left out'}."}
        return tool_answer(given)

    # ── what happens ──

    def turn_began(self, view: SessionView, text: str) -> str:
        provider = self._provider
        if provider is None or not text.strip():
            return ""
        began = time.monotonic()
        self._turn = turn = (view.id, view.turns + 1)
        if self._switching is not None:  # a turn must not reach the provider before the switch that preceded it
            self._switching.wait(self.deadline / 2)
            self._switching = None
        self._note(turn, "unanswered", 0, 0.0)  # stays if it hangs
        about = {"session_id": view.id, "model": view.model}
        provider.on_turn_start(view.turns + 1, text, **accepted(provider.on_turn_start, about))
        found = provider.prefetch(text, **accepted(provider.prefetch, {"session_id": view.id}))
        took = time.monotonic() - began
        if took > self.deadline or turn != self._turn or turn[0] != self.session_id:
            self.dropped += 1
            self._note(turn, "late", 0, took)
            return ""
        filled = isinstance(found, str) and found.strip()
        own = provider.recall_status() if hasattr(provider, "recall_status") else None
        outcome = getattr(own, "outcome", "") or ("recalled" if filled else "nothing")
        self._note(turn, str(outcome), len(found) if filled else 0, took)
        return attributed(found, self.name) if filled and not self._recall_only else found

    def _note(self, turn: tuple[str, int], outcome: str, characters: int, seconds: float) -> None:
        """Write down the last recall for `herma providers status`. A home that cannot be written has no such file."""
        value = RecallStatus(outcome, characters, round(seconds, 3), turn[0], turn[1], time.time())
        path = recall_file(self._home, self.name)
        temporary = path.with_suffix(f".{os.getpid()}.tmp")
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            temporary.write_text(json.dumps({name: getattr(value, name) for name in value.__slots__}), "utf-8")
            temporary.replace(path)
        except OSError:
            return

    def compressing(self, view: SessionView) -> str:
        if self.read_only:
            return ""
        self._lane.wait(self.deadline / 2)  # so that it knows what was said
        return self._provider.on_pre_compress(plain(view.messages)) if self._provider else ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        if self.read_only or not turn.user.strip() or not turn.reply.strip():
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
        if self.read_only or write.author.who is Who.REVIEW:
            return
        for action, target, content, metadata in mirrored(write, view):
            self._tell("on_memory_write", _mirror(action, target, content, metadata))

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        self.switch_to(new.id, old.id, reason, reset=reset)

    def switch_to(self, new_id: str, old_id: str, reason: str, *, reset: bool) -> None:
        """Tell the provider under which id the conversation, or the next one, goes on."""
        self.session_id = new_id
        about: Json = {"parent_session_id": old_id, "reset": reset, "reason": reason}
        if reason == "rewind":
            about["rewound"] = True
        self._switching = switched = threading.Event()

        def tell(provider: MemoryProvider) -> None:
            try:
                provider.on_session_switch(new_id, **accepted(provider.on_session_switch, about))
            finally:
                switched.set()

        self._tell("on_session_switch", tell)

    def closing(self, view: SessionView, reason: str) -> None:
        if view.messages and not self.read_only:
            said = view.messages
            self._tell("on_session_end", lambda provider: provider.on_session_end(plain(said)))
        if reason in _PARKING_REASONS and not self.failed:
            self._turn = ("", 0)
            self.parked = True
        elif reason not in MOVES:
            leave([self])

    def delegated(self, view: SessionView) -> None:
        """Report that a session which this one started for a part of its work has ended."""
        task = next((text_of(one.content) for one in view.messages if one.role == "user"), "")
        result = next((text_of(one.content) for one in reversed(view.messages) if one.role == "assistant"), "")
        about = {"child_session_id": view.id}
        self._tell(
            "on_delegation",
            lambda provider: provider.on_delegation(task, result, **accepted(provider.on_delegation, about)),
        )

    # ── the end ──

    def flush(self, timeout: float) -> bool:
        """Wait until everything has been handed over. Return whether that was so in time."""
        return self._lane.wait(timeout)

    @property
    def waiting(self) -> int:
        return self._lane.waiting

    def drain(self, within: float) -> None:
        """Hand over what is left, and count what could not be."""
        self.abandoned += self._lane.close(within, 0.0)
        if self.abandoned:
            self.guard.count("the end", f"{len(self.abandoned)} things could not be handed over in time")
        self._gone = True

    def shut_down(self, within: float | None) -> None:
        """Shut it down. A second time does no harm."""
        provider, self._provider = self._provider, None
        if provider is not None:
            self.guard.ask("shutdown", provider.shutdown, None, within=within)
        if within is not None:
            self._providers.forget(self)

    def _tell(self, what: str, notify: Callable[[MemoryProvider], object]) -> None:
        def work(_: threading.Event) -> None:
            self._begun.wait()
            provider = self._provider
            if provider is None or self.guard.left_out(what):
                return
            if self._running is not None and not self._running.done.is_set():
                self.guard.count(what, f"was not handed over, because {self._running.what} has not returned yet")
                return
            self._running = call = self.guard.begin(what, lambda: notify(provider), beside=True)
            if call is not None:
                self.guard.answer(call, None, BACKGROUND_TIMEOUT)

        self._lane.submit(what, work)

    def _lost(self, what: str) -> None:
        self.guard.count(what, "it is so far behind that the oldest was given up")


def leave(opened: Sequence[ProviderSession], within: float | None = None) -> None:
    """Let providers go, in this order. One that hangs takes no time from the others."""
    until = time.monotonic() + (DRAIN if within is None else within)
    for session in opened:  # their lanes run side by side
        session.drain(max(until - time.monotonic(), 0.0))
    for session in opened:
        session.shut_down(max(until - time.monotonic(), SHUTDOWN))


def _mirror(action: str, target: str, content: str, metadata: Json) -> Callable[[MemoryProvider], Any]:
    def notify(provider: MemoryProvider) -> None:
        provider.on_memory_write(action, target, content, **accepted(provider.on_memory_write, {"metadata": metadata}))

    return notify


def place_of(view: SessionView) -> tuple[object, ...]:
    """Return where a session takes place: a provider is handed over to a session of the same place only."""
    scope = view.info.scope
    return scope.profile, scope.user, scope.chat, view.info.source, view.environment.context


def recall_file(home: Path, name: str) -> Path:
    """Return the file that holds the last recall of a provider. It is derived: it may be deleted at any time."""
    return home / "logs" / f"recall-{name}.json"


def last_recall(home: Path, name: str) -> RecallStatus | None:
    """Return the last recall of a provider in any session of this home."""
    try:
        return RecallStatus(**json.loads(recall_file(home, name).read_bytes()[:10_000]))
    except (OSError, ValueError, TypeError):
        return None


# Recall from several providers: each line once, with its sources.

SOURCE_MARK = "[from "
_RANK_OFFSET = 60


class RecallSources(Feature):
    """Providers that only recall, next to the one that is written. Asked at once, each with its own deadline."""

    name = "recall sources"
    origin = Origin.PROVIDER
    at_once = True

    def __init__(self, opened: Sequence[ProviderSession]) -> None:
        self._sessions = opened
        self.deadline = max(session.deadline for session in opened) + 1
        self._troubles: dict[str, str] = {}
        for session in opened:
            session.guard.listen(self._listen)

    @property
    def notices(self) -> Sequence[str]:  # type: ignore[override]
        return tuple(self._troubles.values())

    def _listen(self, trouble: Trouble) -> None:
        sentence = f"{trouble.name} failed at {trouble.what} ({trouble.why}); the session goes on without it."
        self._troubles.setdefault(f"{trouble.name} {trouble.what}", sentence)

    def turn_began(self, view: SessionView, text: str) -> str:
        began = time.monotonic()
        asked = [
            (session, session.guard.begin("prefetch", partial(session.turn_began, view, text)))
            for session in self._sessions
        ]
        answers: list[tuple[str, str]] = []
        for session, call in asked:
            if call is not None:
                left = max(session.deadline - (time.monotonic() - began), 0.0)
                found = session.guard.answer(call, "", left, of=session.deadline)
                if isinstance(found, str):
                    answers.append((session.name, found))
                else:
                    session.guard.count("prefetch", f"answered with {type(found).__name__}, not with text")
        return fused(answers)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        for session in self._sessions:
            session.switched(old, new, reason, reset)

    def closing(self, view: SessionView, reason: str) -> None:  # noqa: ARG002
        for session in self._sessions:
            session.parked = reason in _PARKING_REASONS and not session.failed
        if reason not in MOVES:
            leave([session for session in reversed(self._sessions) if not session.parked], SHUTDOWN)


def units(text: str) -> list[str]:
    """Split recalled text into list items, with the lines that belong to them, and paragraphs, without headings."""
    found: list[str] = []
    for paragraph in text.split("\n\n"):
        fresh = True
        for line in paragraph.split("\n"):
            if line.strip() and not _is_heading(line):
                if fresh or is_item(line):
                    found.append(line.strip())
                else:
                    found[-1] += f"\n{line}"
                fresh = False
    return found


def fused(answers: Sequence[tuple[str, str]]) -> str:
    """Merge what several sources recall: by reciprocal rank, each unit once, with the names of its sources."""
    scores: dict[str, float] = {}
    sources: dict[str, list[str]] = {}
    shown: dict[str, str] = {}
    for name, text in answers:
        for rank, unit in enumerate(units(text)):
            key = unit_key(unit)
            if name not in sources.setdefault(key, []):
                sources[key].append(name)
                scores[key] = scores.get(key, 0.0) + 1 / (_RANK_OFFSET + rank)
            shown.setdefault(key, unit)
    order = sorted(scores, key=lambda key: -scores[key])
    lines = [attributed(shown[key], ", ".join(sources[key])) for key in order]
    return "\n".join(line if is_item(line) else f"- {line}" for line in lines)


def attributed(text: str, source: str) -> str:
    """Mark each list item and each paragraph with the provider that recalled it."""
    lines: list[str] = []
    fresh = True
    for line in text.split("\n"):
        bare = line.lstrip()
        if bare and not _is_heading(line) and (fresh or is_item(bare)):
            bullet = item_mark(bare)
            lines.append(f"{line[: len(line) - len(bare)]}{bullet}{SOURCE_MARK}{source}] {bare[len(bullet) :]}")
            fresh = False
        else:
            lines.append(line)
            fresh = fresh or not bare
    return "\n".join(lines)


def _is_heading(line: str) -> bool:
    bare = line.strip()
    return bare.startswith(("#", "<", "===", "---")) or (bare.endswith(":") and not is_item(bare))


# `h.providers`: which external memories are in use, how they are, and which others are available.


@dataclass(frozen=True, slots=True)
class ProviderStatus:
    """The state of a configured provider. `available` is None if it was not asked."""

    name: str
    found: FoundProvider | None = None
    available: bool | None = None
    why: str = ""
    health: Health = field(default_factory=Health)
    sessions: int = 0
    """Sessions of this process that it takes part in."""
    waiting: int = 0
    """Events that wait to be handed over."""
    dropped: int = 0
    """Recalled texts that came too late and were dropped."""
    details: Mapping[str, str] = field(default_factory=dict)
    """Its own report on its configuration: mode, budget, storage."""
    last: RecallStatus | None = None
    """The last recall in any program that uses this home."""


@checked()
class Providers:
    """The provider that `memory.provider` names takes part; those of `providers.recall_from` only recall."""

    def __init__(
        self,
        home: Path,
        settings: Settings,
        *,
        record_trouble: Callable[[Trouble], None] = lambda _: None,
        ensure_open: Callable[[], None] = lambda: None,
        worker: Worker | None = None,
        ask_model: Callable[[str, str], str] | None = None,
    ) -> None:
        self.home = home
        self.ask_model = ask_model
        self._name, *self._refused = words(settings.memory.provider) or ("",)
        self._sources = tuple(name for name in words(settings.providers.recall_from) if name != self._name)
        self.profile = settings.profile
        self.deadline = settings.providers.timeout
        self._shown = record_trouble
        self._guards = {name: Guard(name, shown=record_trouble) for name in (self._name, *self._sources)}
        self._ensure_open = ensure_open
        self.worker = worker or Worker()
        self._mutex = threading.Lock()
        self._sessions: list[ProviderSession] = []
        self._dropped = 0
        self._drains_at_exit = False

    @property
    def active(self) -> str:
        """The name of the provider that takes part in sessions, or nothing."""
        return self._name

    @property
    def sources(self) -> Sequence[str]:
        """The names of the providers that only recall."""
        return self._sources

    def list(self) -> list[FoundProvider]:
        """Return every provider that can be used."""
        self._ensure_open()
        return discover(self.home)

    def status(self, *, ask: bool = True, name: str = "") -> ProviderStatus:
        """Return the state of a configured provider. `ask` loads it and asks whether it is available."""
        self._ensure_open()
        name = name or self._name
        if not name:
            return ProviderStatus("")
        with self._mutex:
            opened = [session for session in self._sessions if session.name == name]
        status = ProviderStatus(
            name,
            health=sum((session.guard.health for session in opened), self._guard(name).health),
            sessions=sum(not session.parked for session in opened),
            waiting=sum(session.waiting for session in opened),
            dropped=self._dropped + sum(session.dropped for session in opened),
            last=last_recall(self.home, name),
        )
        return self._asked(status) if ask else status

    def make(self, name: str) -> MemoryProvider:
        """Load a provider by its name, without a session: to set it up, test it or compare it."""
        self._ensure_open()
        return load(find(self.home, name), self.home)

    def outside(self) -> Sequence[str]:
        """Return the files of the active provider that are not in the home, and so not in a backup."""
        self._ensure_open()
        nothing: Sequence[str] = ()
        if not self._name:
            return nothing
        home = self.home.resolve()
        ask = self._guard(self._name).ask
        paths = ask("backup_paths", lambda: self.make(self._name).backup_paths(), nothing, within=self.deadline)
        return [path for path in paths if not Path(path).resolve().is_relative_to(home)]

    def attach(self, view: SessionView, reserved: Sequence[str], *, takes_part: bool = True) -> Sequence[Feature]:
        """Return what takes part in a session: the provider, the recall sources, and what reports delegated sessions.

        A review has none: it only reads the conversation. Neither has a session in which none `takes_part`.
        """
        delegations = _Delegations(self)
        if view.environment.context == "review" or not takes_part:
            return [delegations]
        joined = [
            BackgroundCall(name, partial(self._join, name, view, reserved)).start()  # all within one deadline
            for name in filter(None, (self._name, *self._sources))
        ]
        opened = [session for session, _ in (each.answer() for each in joined) if session is not None]
        refused = [
            f"memory.provider names {self._name} and {name}. One takes part at most, so {name} was refused; to let it"
            " recall, name it in providers.recall_from."
            for name in self._refused
        ]
        delegations.notices = (*refused, *(warning for each in joined for warning in each.answer()[1]))
        written = [session for session in opened if session.name == self._name]
        others = [session for session in opened if session.name != self._name]
        return [*written, *([RecallSources(others)] if others else []), delegations]

    def _join(
        self, name: str, view: SessionView, reserved: Sequence[str]
    ) -> tuple[ProviderSession | None, tuple[str, ...]]:
        """Return a provider's place in a session, and warnings for people."""
        if (session := self._take_parked(name, view)) is not None:
            return session, ()
        guard = self._guard(name)
        try:
            found = find(self.home, name)
        except UsageError as exc:
            guard.count("discovery", f"{exc} {exc.hint}")
            return None, (f"{exc} {exc.hint} Sessions go on without it.",)
        if guard.left_out("initialize"):
            last = guard.health.last
            return None, (f"{name} failed so often that it is left out for a while ({last.why if last else ''}).",)
        session = ProviderSession(self, found, view, Guard(name, shown=self._shown))
        with self._mutex:
            if not self._drains_at_exit:
                self._drains_at_exit = True
                atexit.register(_drain, weakref.ref(self))
            self._sessions.append(session)
            forgotten = [each for each in self._sessions if each.parked][:-MOST_PARKED]
        leave(forgotten)
        warnings = session.begin(reserved)
        guard.note("initialize", failed=not session.begun)
        if session.failed:
            self.forget(session)
            return None, warnings
        return session, warnings

    def _take_parked(self, name: str, view: SessionView) -> ProviderSession | None:
        """Return the provider of a session that was left for this one, after notifying it of the switch."""
        with self._mutex:
            waiting = (
                session for session in self._sessions if session.parked and session.name == name and not session.failed
            )
            session = next((session for session in waiting if session.place == place_of(view)), None)
            if session is None:
                return None
            session.parked = False
        goes_on = view.info.parent is not None or view.turns > 0
        why = view.info.reason if view.info.reason in ("resume", "branch") else "resume" if goes_on else "new"
        session.switch_to(view.id, session.session_id, why, reset=not goes_on)
        return session

    def flush(self, timeout: float) -> bool:
        """Wait until everything has been handed over, in all sessions. Return whether that was so in time."""
        until = time.monotonic() + timeout
        with self._mutex:
            opened = list(self._sessions)
        return all(session.flush(max(0.0, until - time.monotonic())) for session in opened)

    def close(self) -> None:
        """Shut all down, newest first, in sessions that were not closed too."""
        with self._mutex:
            opened = self._sessions[::-1]
        leave(opened)

    def of_session(self, session_id: str) -> ProviderSession | None:
        """Return the provider that is written in a session."""
        with self._mutex:
            return next(
                (
                    session
                    for session in self._sessions
                    if (session.session_id, session.name) == (session_id, self._name)
                ),
                None,
            )

    def _guard(self, name: str) -> Guard:
        """Return the guard over all sessions."""
        return self._guards.setdefault(name, Guard(name, shown=self._shown))

    def _asked(self, status: ProviderStatus) -> ProviderStatus:
        try:
            found = find(self.home, status.name)
        except UsageError as exc:
            return replace(status, why=f"{exc} {exc.hint}", available=False)
        guard = Guard(status.name)

        def question() -> tuple[bool, str, dict[str, str]]:
            provider = load(found, self.home)
            fine = bool(provider.is_available())
            why = "" if fine else str(getattr(provider, "unavailable_reason", str)() or "")
            values: Any = provider.get_status_config({}) if hasattr(provider, "get_status_config") else None
            return fine, why, {str(key): str(value) for key, value in dict(values or {}).items()}

        unanswered: tuple[bool, str, dict[str, str]] = (False, "", {})
        available, why, details = guard.ask("is_available", question, unanswered, within=self.deadline)
        last = guard.health.last
        return replace(status, found=found, available=available, why=last.why if last else why, details=details)

    def forget(self, session: ProviderSession) -> None:
        """Forget a provider that was shut down; its failures are remembered."""
        with self._mutex:
            if session in self._sessions:
                self._sessions.remove(session)
                self._dropped += session.dropped
        self._guard(session.name).take_over(session.guard.health)


def words(text: str) -> tuple[str, ...]:
    """Split a list in a setting."""
    return tuple(filter(None, map(str.strip, text.split(","))))


def _drain(providers: weakref.ref[Providers]) -> None:
    """Hand over what is left, within the deadline, if a program ends without closing anything."""
    left = providers()
    if left is not None:
        left.flush(DRAIN)


class _Delegations(Feature):
    name = "delegation"

    def __init__(self, providers: Providers) -> None:
        self._providers = providers

    def closing(self, view: SessionView, reason: str) -> None:
        parent = view.info.parent
        if reason in MOVES or view.environment.context != "subagent" or not parent or not view.messages:
            return
        session = self._providers.of_session(parent)
        if session is not None:
            session.delegated(view)
