"""★ Start here: one conversation with a model, turn by turn.

    open → before_model → call_tool → after_model → close

The prefix only grows: `system_prompt` and `tools` are fixed when the session opens, and what was sent is stored as it
was sent, so that the next request (also of a resumed session) begins with the same bytes. The user's message is on disk
before the model is called; the replies are on disk before `after_model` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from herma.curated.live import LiveMemory
from herma.curated.trust import Heard
from herma.errors import UsageError
from herma.ports import CallRows, TokenCounter
from herma.prompt.budget import Plan
from herma.prompt.fence import fence, sanitize
from herma.prompt.ledger import FIVE_MINUTES, ONE_HOUR
from herma.prompt.results import compress_result, digest
from herma.prompt.tiers import cache_breakpoints
from herma.tools import Tools
from herma.tools.registry import Json, ToolContext, Turn
from herma.transcript import Transcripts
from herma.transcript.replay import INTERRUPTED, as_sent, is_complete, unanswered, with_addition
from herma.transcript.wire import all_from_wire, text_of
from herma.turn.account import Account, Before, Frame, before
from herma.turn.meter import Meter
from herma.turn.window import Budget, hold
from herma.types import Author, Content, Message, Origin, SessionInfo, Usage, Who

CacheMarks: TypeAlias = Literal["5m", "1h"]
"""How long a provider that wants to be told should keep the prefix."""
_LIVES: Mapping[str, float] = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_REMEMBERED = 1_000
"""Messages of a resumed conversation that are looked at for words from outside."""
_CUT_OFF = "[This reply was interrupted.]"
_NOT_RUN = "[Interrupted before this tool had run.]"


Context: TypeAlias = Literal["primary", "subagent", "cron", "review"]
"""Who works: the user's own agent, or one that was started for a part, by the clock, or to look back."""


@dataclass(frozen=True, slots=True)
class Circumstances:
    """Where and for whom a session takes place, besides its scope. It reaches external memories too."""

    platform: str = ""
    context: Context = "primary"
    user_name: str = ""
    chat_type: str = ""
    thread: str = ""


NOWHERE = Circumstances()


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
    rebuilt: Callable[[SessionInfo, bool], Parts]
    anew: Callable[[], Session]
    calls: CallRows
    counter: TokenCounter
    circumstances: Circumstances = NOWHERE
    budget: Budget = field(default_factory=Budget)
    cache_lifetime: float = FIVE_MINUTES
    goes_on_from: Before | None = None
    live_updates: bool = True
    result_tokens: int = 500
    written: Callable[[int], None] = lambda _: None
    """Told how many messages were committed, once a turn has got further: the index follows in the background."""
    warnings: tuple[str, ...] = ()


class Session:
    """Opened by `Herma.session()`; a context manager. Not for several threads at once: a conversation has one order."""

    def __init__(self, parts: Parts, history: Sequence[Message] = (), *, stored: bool = False) -> None:
        self._history = list(history)
        self._stored = stored
        self._open = True
        self._seen: dict[str, str] = {}
        self._goes_on_from: SessionInfo | None = None
        self._heard = Heard()
        self._asked: dict[str, str] = {}
        self._take(parts)
        self._listen(self._history[-_REMEMBERED:])

    def _take(self, parts: Parts) -> None:
        """What is fixed from here on."""
        self._parts = parts
        self.info = parts.info
        self.id = parts.info.id
        self.model = parts.info.model or ""
        self.circumstances = parts.circumstances
        self.system_prompt = parts.system_prompt
        self.snapshot = parts.memory.snapshot
        self.tools: list[Json] = parts.tools.schemas()
        self.warnings = parts.warnings
        frame = Frame(self.id, self.system_prompt, self.tools, self.model, parts.counter, parts.cache_lifetime)
        self.prompt_digest, self.tools_digest = frame.prompt_digest, frame.tools_digest
        self._meter = Meter(Account(frame, parts.goes_on_from), parts.calls)
        self._meter.account.carry_on(self._history)
        self._anchored = False
        self._told_at_start = parts.memory.told
        author = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=self.id)
        self._context = ToolContext(parts.info.scope, author, heard=self._heard)

    # ── one turn ──

    def before_model(
        self, text: Content = None, *, recall: str = "", cache_marks: CacheMarks | None = None
    ) -> list[Json]:
        """The request to send: with a text, the user's message that begins a turn; without one, its next step.

        The message is committed first. `recall` is text from elsewhere that may help: it is fenced into this message.
        `cache_marks` puts Anthropic's marks on the copy that is returned.
        """
        self._check_open()
        if cache_marks is not None and cache_marks not in _LIVES:
            raise UsageError(f"Cache marks last {' or '.join(_LIVES)}, not {cache_marks!r}.")
        if text is not None:
            if not isinstance(text, str) and not _are_parts(text):
                raise UsageError("A user's message is text, or a list of parts.", hint='For example: "Why?"')
            self._begin_turn(text, recall)
        elif not self._history:
            raise UsageError("There is nothing to send yet.", hint="Begin with before_model(text).")
        self._meter.called(self._history, self._parts.clock(), _LIVES.get(cache_marks or ""))
        request: list[Json] = [{"role": "system", "content": self.system_prompt}, *map(_handed_out, self._history)]
        return cache_breakpoints(request, lifetime=cache_marks) if cache_marks else request

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run a tool for the model. → a JSON string; a write is on disk before this returns. Stores no message."""
        self._check_open()
        return self._parts.tools.call(name, arguments, self._context)

    def after_model(
        self, reply: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], *, usage: Usage | None = None
    ) -> None:
        """Store what came back, in one transaction: a text, or messages (tool calls with the results they got).

        `usage` is what the provider measured: `input` without what was read from or written to its cache.
        """
        self._check_open()
        given = _replies(reply)
        replies = self._append([self._shortened(message) for message in all_from_wire(given, self._parts.clock())])
        if not self._meter.answered(replies, usage) and usage is not None:
            self._parts.transcripts.record_usage(self.id, usage)
        self._parts.written(len(replies) + 1)

    def interrupt(self, partial: str = "") -> None:
        """The turn was cut off: keep what came so far, marked, so that the conversation can go on."""
        self._check_open()
        if self._history and not is_complete(self._history[-1:]):
            self._meter.answered(self._append(self._closing(partial)))

    def heard(self, text: str, origin: Origin = Origin.TOOL_OUTPUT) -> None:
        """The model was shown text from outside: what it repeats of it waits for a person's decision."""
        if not isinstance(text, str):
            raise UsageError(f"What was heard is text, not {type(text).__name__}.", hint="Give it as a string.")
        try:
            self._heard.add(text, Origin(origin))
        except ValueError as exc:
            known = ", ".join(each.value for each in Origin)
            raise UsageError(f"{origin!r} is no origin.", hint=f"There are {known}.") from exc

    def working_memory(self) -> Plan:
        """The model's window as it stands: what each part of it holds, and what went elsewhere."""
        parts = self._parts
        return hold(parts.budget.of(self.model), parts.counter, self.system_prompt, self.tools, self._history)

    # ── moving about ──

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it stands, hidden messages left out."""
        return tuple(self._history)

    def stored_messages(self) -> list[Message]:
        """The conversation read back from the transcript: what a resumed session would send."""
        stored = self.info if self._stored else self._goes_on_from
        return self._parts.replayed(stored) if stored else []

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
        for session_id, target in self._turns_by_session(first).items():
            self._parts.transcripts.rewind(session_id, target)
        self._meter.account.cut(first, self._history[first:])
        del self._history[first:]
        self.remember_what_was_told()
        return text_of(message.content)

    def reload(self) -> None:
        """Build the prompt anew, with memory and files as they are now. The provider's cache loses all of it.

        The conversation goes on as a new session with another `id`, whose row is written with its next message; what
        was sent before stays on record.
        """
        self._check_open()
        self.interrupt()
        parts = self._parts.rebuilt(self.info, self._stored)
        if self._stored:
            self._parts.transcripts.end(self.id, "reload")
        last = before(self._meter.account.last, self._history, "reload")
        if self._stored:
            self._goes_on_from, self._stored = self.info, False
        self._take(replace(parts, goes_on_from=last))

    def reset(self) -> Session:
        """End this conversation and begin another in the same place. → the new one, with memory as it is now."""
        self.close("reset")
        return self._parts.anew()

    def close(self, reason: str = "closed") -> None:
        """End the session; closing twice does no harm. An unfinished turn is kept, marked as interrupted."""
        if not self._open:
            return
        self.interrupt()
        self._meter.answered(())
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
        if recall:
            self._heard.add(recall, Origin.TOOL_OUTPUT)
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

    def _append(self, messages: list[Message]) -> list[Message]:
        """Commit messages and go on from them."""
        account = self._meter.account
        weighed = [account.weighed(message) for message in messages]
        if not self._stored:
            self._start()
        ids = self._parts.transcripts.append(self.id, weighed)
        stored = [replace(message, id=id_, session_id=self.id) for message, id_ in zip(weighed, ids, strict=True)]
        self._history += stored
        self._listen(stored)
        account.add(stored)
        return stored

    def _listen(self, messages: Sequence[Message]) -> None:
        """Remember who said what. What our own memory tool answers is known already; other tools are outside."""
        for message in messages:
            self._asked |= {str(call.get("id")): str(_function(call).get("name")) for call in message.tool_calls}
            if message.role == "user":
                self._heard.add(text_of(message.content), Origin.USER_SAID)
            elif message.role == "tool" and self._asked.get(message.tool_call_id or "") != "memory":
                self._heard.add(text_of(message.content), Origin.TOOL_OUTPUT)

    def _start(self) -> None:
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

    def _turns_by_session(self, first: int) -> dict[str, int]:
        """Where the user first speaks from this message on, in each session that the conversation went through."""
        begins: dict[str, int] = {}
        for message in self._history[first:]:
            if message.role == "user":
                begins.setdefault(message.session_id or self.id, message.id)
        return begins

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


def _replies(reply: Any) -> list[Mapping[str, Any]]:
    if isinstance(reply, str):
        return [{"role": "assistant", "content": reply}]
    if isinstance(reply, Mapping):
        return [reply]
    if not isinstance(reply, Iterable):
        raise UsageError(
            f"A reply is text or messages, not {type(reply).__name__}.",
            hint='A model that only calls tools: after_model({"role": "assistant", "tool_calls": […]}).',
        )
    return list(reply)


def _are_parts(content: object) -> bool:
    return isinstance(content, list) and all(isinstance(part, dict) for part in content)


def _handed_out(message: Message) -> Json:
    """The message as it is sent, for a caller who may change it: ours stays as it was."""
    return {key: _copied(value) for key, value in as_sent(message).items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _cleaned(content: Content) -> Content:
    """What came back or in, without any fence: recalled text is never taken for something that was said."""
    if isinstance(content, list):
        return [
            {**part, "text": sanitize(part["text"])} if isinstance(part.get("text"), str) else part for part in content
        ]
    return sanitize(content) if content is not None else None


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}
