"""The external memory of one session: it follows the session, adds its block to the prompt, and brings its tools.

It hears of everything in order, in the background; only recall, tools and the beginning are waited for, each with a
deadline. What it says is text from outside: scanned, fenced, and known as somebody else's words.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from herma.errors import ProviderError
from herma.ports import Watcher
from herma.prompt.context import ContextFile, show
from herma.providers.base import MemoryProvider
from herma.providers.calling import (
    Json,
    accepted,
    circumstances,
    mirrored,
    plain,
    text_of,
    tool_answer,
    tool_schemas,
)
from herma.providers.guard import Guard
from herma.providers.lane import Lane
from herma.types import MOVES, CompletedTurn, Contribution, MemoryWrite, Occasion, SessionView, Who

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
