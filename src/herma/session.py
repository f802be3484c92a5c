"""★ Start here: one conversation with a model, turn by turn.

    open → before_model → call_tool → after_model → close

The prefix only grows: `system_prompt` and `tools` are fixed when the session opens, and what was sent is stored as it
was sent, so that the next request (also of a resumed session) begins with the same bytes. The user's message is on disk
before the model is called; the replies are on disk before `after_model` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from herma.curated.live import LiveMemory
from herma.errors import UsageError
from herma.prompt.fence import fence, sanitize
from herma.prompt.results import compress_result, digest
from herma.tools import Tools
from herma.tools.registry import Json, ToolContext, Turn
from herma.transcript import Transcripts
from herma.transcript.replay import INTERRUPTED, as_sent, is_complete, unanswered, with_addition
from herma.transcript.wire import all_from_wire, text_of
from herma.types import Author, Content, Message, Origin, SessionInfo, Usage, Who

_CUT_OFF = "[This reply was interrupted.]"
_NOT_RUN = "[Interrupted before this tool had run.]"


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session works with; `app` puts it together."""

    info: SessionInfo
    system_prompt: str
    memory: LiveMemory
    transcripts: Transcripts
    tools: Tools
    clock: Callable[[], float]
    replayed: Callable[[SessionInfo], list[Message]]
    live_updates: bool = True
    result_tokens: int = 500
    warnings: tuple[str, ...] = ()


class Session:
    """Opened by `Herma.session()`; a context manager. Not for several threads at once: a conversation has one order."""

    def __init__(self, parts: Parts, history: Sequence[Message] = (), *, stored: bool = False) -> None:
        self.id = parts.info.id
        self.info = parts.info
        self.system_prompt = parts.system_prompt
        self.snapshot = parts.memory.snapshot
        self.tools: list[Json] = parts.tools.schemas()
        self.warnings = parts.warnings
        self._parts = parts
        self._history = list(history)
        self._stored = stored
        self._open = True
        self._anchored = False
        self._seen: dict[str, str] = {}
        self._told_at_start = parts.memory.told
        author = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=self.id)
        self._context = ToolContext(parts.info.scope, author)

    # ── one turn ──

    def before_model(self, text: Content = None, *, recall: str = "") -> list[Json]:
        """The request to send: with a text, the user's message that begins a turn; without one, its next step.

        The message is committed first. `recall` is text from elsewhere that may help: it is fenced into this message.
        """
        self._check_open()
        if text is not None:
            self._begin_turn(text, recall)
        elif not self._history:
            raise UsageError("There is nothing to send yet.", hint="Begin with before_model(text).")
        return [{"role": "system", "content": self.system_prompt}, *map(as_sent, self._history)]

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run a tool for the model. → a JSON string; a write is on disk before this returns. Stores no message."""
        self._check_open()
        return self._parts.tools.call(name, arguments, self._context)

    def after_model(
        self, reply: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], *, usage: Usage | None = None
    ) -> None:
        """Store what came back, in one transaction: a text, or messages (tool calls with the results they got)."""
        self._check_open()
        if isinstance(reply, str):
            reply = {"role": "assistant", "content": reply}
        given = [reply] if isinstance(reply, Mapping) else list(reply)
        self._append([self._shortened(message) for message in all_from_wire(given, self._parts.clock())])
        if usage is not None:
            self._parts.transcripts.record_usage(self.id, usage)

    def interrupt(self, partial: str = "") -> None:
        """The turn was cut off: keep what came so far, marked, so that the conversation can go on."""
        self._check_open()
        if self._history and not is_complete(self._history):
            self._append(self._closing(partial))

    def heard(self, text: str, origin: Origin = Origin.TOOL_OUTPUT) -> None:
        """The model was shown text from outside: what it repeats of it waits for a person's decision."""
        self._context.turn.outside.append((text, origin))

    # ── moving about ──

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it stands, hidden messages left out."""
        return tuple(self._history)

    def stored_messages(self) -> list[Message]:
        """The conversation read back from the transcript: what a resumed session would send."""
        return self._parts.replayed(self.info) if self._stored else []

    def begin_with(self, messages: Sequence[Message]) -> None:
        """Take over the beginning of another conversation."""
        self._append(all_from_wire(messages, self._parts.clock()))

    def remember_what_was_told(self) -> None:
        """Go back to what the model knows after the last message: the next one tells it what changed since."""
        told = next((message.told for message in reversed(self._history) if message.told), None)
        self._parts.memory.recall(told or self._told_at_start)

    def rewind(self, turns: int = 1) -> str:
        """Take back the last turns. → the text of the first one taken back, to be edited. Nothing is deleted."""
        self._check_open()
        begins = [index for index, message in enumerate(self._history) if message.role == "user"]
        if not 1 <= turns <= len(begins):
            raise UsageError(f"There are {len(begins)} turns; {turns} cannot be taken back.")
        first = begins[-turns]
        message = self._history[first]
        self._parts.transcripts.rewind(self.id, message.id)
        del self._history[first:]
        self.remember_what_was_told()
        return text_of(message.content)

    def close(self, reason: str = "closed") -> None:
        """End the session; closing twice does no harm. An unfinished turn is kept, marked as interrupted."""
        if not self._open:
            return
        self.interrupt()
        self._open = False
        if self._stored:
            self._parts.transcripts.end(self.id, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close("error" if exc is not None else "closed")

    # ── steps ──

    def _begin_turn(self, text: Content, recall: str) -> None:
        self.interrupt()
        self._context = replace(self._context, turn=Turn())
        clean = _cleaned(text)
        additions = [fence(recall, kind="recall"), self._memory_update()]
        sent = with_addition(clean, "\n\n".join(filter(None, additions)))
        message = Message("user", clean, sent=sent if sent != clean else None, told=self._parts.memory.told)
        try:
            self._append(all_from_wire([message], self._parts.clock()))
        except BaseException:
            self.remember_what_was_told()  # the model was not told after all
            raise

    def _memory_update(self) -> str:
        """What changed in curated memory since the model was last told."""
        memory = self._parts.memory
        if not self._anchored:
            memory.anchor()
            self._anchored = True
        return fence(memory.update(), kind="update") if self._parts.live_updates else ""

    def _append(self, messages: list[Message]) -> None:
        """Commit messages and go on from them."""
        if not self._stored:
            info = self.info
            self._parts.transcripts.start(
                info.source,
                title=info.title,
                parent=info.parent,
                reason=info.reason,
                scope=info.scope,
                model=info.model,
                system_prompt=self.system_prompt,
                session_id=info.id,
                started=info.started,
            )
            self._stored = True
        ids = self._parts.transcripts.append(self.id, messages)
        self._history += [replace(message, id=id_) for message, id_ in zip(messages, ids, strict=True)]

    def _shortened(self, message: Message) -> Message:
        """A tool's result as the model gets it again and again: short. The whole of it is in the transcript."""
        if message.role != "tool" or not isinstance(message.content, str) or message.sent is not None:
            return replace(message, content=_cleaned(message.content)) if message.role == "assistant" else message
        limit, call_id = self._parts.result_tokens, message.tool_call_id
        short = compress_result(message.content, limit_tokens=limit, reference=call_id, seen=self._seen)
        if call_id:
            self._seen.setdefault(digest(message.content), call_id)
        return replace(message, sent=short.text) if short.text != message.content else message

    def _closing(self, partial: str) -> list[Message]:
        """What makes an unfinished turn whole: results for tools that did not run, and the reply as far as it came."""
        missing = [Message("tool", _NOT_RUN, tool_call_id=call_id) for call_id in unanswered(self._history)]
        text = sanitize(partial).strip()
        reply = Message("assistant", f"{text}\n\n{_CUT_OFF}".lstrip(), finish_reason=INTERRUPTED)
        return all_from_wire([*missing, reply], self._parts.clock())

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("This session is closed.", hint="Open a new one: Herma.session().")


def _cleaned(content: Content) -> Content:
    """What came back or in, without any fence: recalled text is never taken for something that was said."""
    if isinstance(content, list):
        return [
            {**part, "text": sanitize(part["text"])} if isinstance(part.get("text"), str) else part for part in content
        ]
    return sanitize(content) if content is not None else None
