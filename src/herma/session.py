"""★ Start here: one conversation with a model, turn by turn.

    open → before_model → call_tool → after_model → close

The prefix only grows: `system_prompt` and `tools` are fixed when the session opens, and what was sent is stored as it
was sent, so that the next request (also of a resumed session) begins with the same bytes. The user's message is on disk
before the model is called; the replies are on disk before `after_model` returns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

from herma.curated.live import LiveMemory
from herma.errors import UsageError
from herma.ports import CallRows, TokenCounter
from herma.prompt.budget import Plan
from herma.prompt.fence import fence
from herma.prompt.ledger import FIVE_MINUTES, ONE_HOUR
from herma.prompt.tiers import cache_breakpoints
from herma.reflect.ear import Ear
from herma.tools import Tools
from herma.tools.registry import Json, ToolContext, Turn
from herma.transcript import Transcripts
from herma.transcript.replay import is_complete, with_addition
from herma.transcript.wire import all_from_wire, text_of
from herma.turn.account import Account, Before, Frame, before
from herma.turn.compressing import Room
from herma.turn.handed import as_kept, handed_out, replies_of, tells_of_changes, user_content
from herma.turn.meter import Meter
from herma.turn.moving import cut_off, last_turn, lies_in, spoken_in, stand_in, start_session, turn_begins
from herma.turn.others import News, Others, nobody
from herma.turn.recalled import fit, said_in
from herma.turn.watchers import Watchers
from herma.turn.window import Budget, hold
from herma.types import Author, Compression, Content, Message, Origin, Reason, SessionInfo, Usage, Who
from herma.types.session import NOWHERE, Circumstances, MemoryWrite, Move, SessionView

CacheMarks: TypeAlias = Literal["5m", "1h"]
"""How long a provider that wants to be told should keep the prefix."""
_LIVES: Mapping[str, float] = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_REMEMBERED = 1_000  # messages of a resumed conversation that are looked at for words from outside


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
    rebuilt: Callable[[SessionInfo, Reason | None], Parts]
    """The same with its prompt built anew: of this session or, with a reason, of one that follows it."""
    anew: Callable[[], Session]
    calls: CallRows
    counter: TokenCounter
    watchers: Watchers = field(default_factory=Watchers)
    room: Room = field(default_factory=Room)
    circumstances: Circumstances = NOWHERE
    folder: str = ""
    shown: str | None = None
    """The state of curated memory that the prompt shows, where that is not how it is now."""
    budget: Budget = field(default_factory=Budget)
    cache_lifetime: float = FIVE_MINUTES
    goes_on_from: Before | None = None
    live_updates: bool = True
    result_tokens: int = 500
    written: Callable[[int], None] = lambda _: None
    """Told how many messages were committed, once a turn has got further: the index follows in the background."""
    news: News = nobody
    """How a session stands in the store: another program may have it open too."""
    warnings: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()  # what others say in the prompt


class Session:
    """Opened by `Herma.session()`; a context manager. Not for several threads at once: a conversation has one order."""

    def __init__(
        self, parts: Parts, history: Sequence[Message] = (), *, stored: bool = False, after: SessionInfo | None = None
    ) -> None:
        self._history = list(history)
        self._stored = stored
        self._open = True
        self._seen: dict[str, str] = {}
        self._goes_on_from = after
        self._ear = Ear()
        self._in_turn = bool(history) and not is_complete(history[-1:])
        self._take(parts)
        self._ear.listen(self._history[-_REMEMBERED:])
        self._watchers.opened(self.view())

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
        self._watchers = parts.watchers
        self._others = Others(parts.news, lambda id_: parts.transcripts.messages(id_, include_hidden=True))
        self._warnings = list(parts.warnings)
        self._recalled = said_in(self._history)
        for text in parts.outside:
            self._ear.heard.add(text, Origin.TOOL_OUTPUT)
        frame = Frame(self.id, self.system_prompt, self.tools, self.model, parts.counter, parts.cache_lifetime)
        self.prompt_digest, self.tools_digest = frame.prompt_digest, frame.tools_digest
        self._meter = Meter(Account(frame, parts.goes_on_from), parts.calls)
        self._meter.account.carry_on(self._history)
        self._anchored = False
        self._told_at_start = parts.memory.told if parts.shown is None else parts.shown
        who = Who.REVIEW if parts.circumstances.context == "review" else Who.TOOL
        author = Author(who, Origin.AGENT_CONCLUDED, session=self.id)
        self._context = ToolContext(parts.info.scope, author, heard=self._ear.heard, written=self._wrote)

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
            self._begin_turn(user_content(text), recall)
        elif not self._history:
            raise UsageError("There is nothing to send yet.", hint="Begin with before_model(text).")
        else:
            self._parts.room.see_to(self)
        self._meter.called(self._history, self._parts.clock(), _LIVES.get(cache_marks or ""))
        request: list[Json] = [{"role": "system", "content": self.system_prompt}, *map(handed_out, self._history)]
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
        came = all_from_wire(replies_of(reply), self._parts.clock())
        self._parts.room.answered(usage, self.tokens)
        replies = self._append([as_kept(message, self._parts.result_tokens, self._seen) for message in came])
        if not self._meter.answered(replies, usage) and usage is not None:
            self._parts.transcripts.record_usage(self.id, usage)
        self._parts.written(len(replies) + 1)
        if self._in_turn and is_complete(replies):
            self._in_turn = False
            self._watchers.completed(self.view(), last_turn(self._history))

    def interrupt(self, partial: str = "") -> None:
        """The turn was cut off: keep what came so far, marked, so that the conversation can go on."""
        self._check_open()
        if self._history and not is_complete(self._history[-1:]):
            self._in_turn = False
            self._meter.answered(self._append(all_from_wire(cut_off(self._history, partial), self._parts.clock())))

    def heard(self, text: str, origin: Origin = Origin.TOOL_OUTPUT) -> None:
        """The model was shown text from outside: what it repeats of it waits for a person's decision."""
        self._ear.told(text, origin)

    @property
    def tokens(self) -> int:
        """What a request takes as the conversation stands."""
        return self._meter.account.tokens

    @property
    def last_compression(self) -> Compression | None:
        """What came of the last try to make room, by itself or not."""
        return self._parts.room.last

    def working_memory(self) -> Plan:
        """The model's window as it stands: what each part of it holds, and what went elsewhere."""
        parts = self._parts
        return hold(parts.budget.of(self.model), parts.counter, self.system_prompt, self.tools, self._history)

    def view(self) -> SessionView:
        """The session as it stands, for those who follow it."""
        parts, messages = self._parts, tuple(self._history)
        return SessionView(
            self.info, self.circumstances, messages, self.model, parts.folder, self.system_prompt, tuple(self.tools)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know about this session: text that was withheld, parts that failed."""
        return (*self._warnings, *self._parts.room.said, *self._watchers.troubles)

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
        if not self._in_turn:
            self._catch_up()
        first = turn_begins(self._history, turns)
        message = self._history[first]
        for session_id, target in spoken_in(self._history[first:], self.id).items():
            self._parts.transcripts.rewind(session_id, target)
        self._meter.account.cut(first, self._history[first:])
        old = self.view()
        del self._history[first:]
        self._in_turn = False
        self._recalled = said_in(self._history)
        self.remember_what_was_told()
        self._watchers.switched(old, self.view(), "rewind")
        return text_of(message.content)

    def reload(self) -> None:
        """Build the prompt anew, with memory and files as they are now. The provider's cache loses all of it.

        The conversation goes on as a new session with another `id`, whose row is written with its next message; what
        was sent before stays on record.
        """
        self._check_open()
        self.interrupt()
        self._go_on("reload", lambda: self._parts.rebuilt(self.info, "resume" if self._stored else None))

    def compress(self, topic: str = "", *, force: bool = True) -> Compression:
        """Make room now, as it happens by itself when the window fills: go on with a summary, see `continue_with`.

        For a person who asks for it, and after `ModelOverflow`. `topic` gets more room in the summary.
        """
        self._check_open()
        return self._parts.room.make(self, topic=topic, force=force)

    def before_compression(self) -> str:
        """What external memories want a summary not to miss. It is text from outside: material, not instructions."""
        self._check_open()
        return self._watchers.compressing(self.view())

    def continue_with(self, messages: Sequence[Message], *, in_place: bool = False) -> None:
        """Go on with messages that stand for the conversation so far. An unfinished turn goes on after them.

        As a new session of the same conversation, with its prompt built anew; or `in_place`, with the prompt as it is
        and all earlier messages hidden. Every message stays in the transcript. When this fails, nothing has changed.
        """
        self._check_open()
        stored = self.info if self._stored else self._goes_on_from
        if stored is None or not messages:
            raise UsageError("There is no conversation yet that these messages could stand for.")
        stays = in_place and self._stored and lies_in(self._history, self.id)
        same = replace(self._parts, shown=self._told_at_start)
        self._go_on("compression", lambda: same if stays else self._parts.rebuilt(stored, "compression"), messages)

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
        try:
            if self._stored:
                self._parts.transcripts.end(self.id, reason)
        finally:
            self._watchers.closing(self.view(), reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("error" if kind is not None else "closed")

    # ── steps ──

    def _begin_turn(self, clean: Content, recall: str) -> None:
        self._catch_up()
        self._parts.room.see_to(self, clean)
        self._context = replace(self._context, turn=Turn())
        additions = [fence(self._recall(clean, recall), kind="recall"), self._memory_update()]
        sent = with_addition(clean, "\n\n".join(filter(None, additions)))
        message = Message("user", clean, sent=sent if sent != clean else None, told=self._parts.memory.told)
        try:
            self._append(all_from_wire([message], self._parts.clock()))
        except BaseException:
            self.remember_what_was_told()  # the model was not told after all
            raise
        self._in_turn = True

    def _catch_up(self) -> None:
        """Go on from what another program has said in this session, too; an unfinished turn of ours ends before it."""
        stored = self.info if self._stored else self._goes_on_from
        fresh = self._others.look(stored, self._history, branches=not self._stored) if stored else []
        self.interrupt()
        if fresh:
            self._history += fresh
            self._ear.listen(fresh)
            self._meter.account.add(fresh)
            self._recalled |= said_in(fresh)
            self.remember_what_was_told()

    def _recall(self, clean: Content, given: str) -> str:
        """What the caller and the parts that follow the session have found for this turn."""
        found = self._watchers.recall(self.view(), text_of(clean)) if self._watchers else []
        kept, warnings = fit(found, self._recalled)
        self._warnings += (warning for warning in warnings if warning not in self._warnings)
        return self._ear.recalled(given, kept)

    def _wrote(self, write: MemoryWrite) -> None:
        self._watchers.written(self.view(), write)

    def _go_on(self, how: Move, made: Callable[[], Parts], instead: Sequence[Message] = ()) -> None:
        """The one way in which a conversation gets another prompt or other messages: these are on disk first."""
        old = self.view()
        self._meter.answered(())
        self._watchers.closing(old, how)
        parts = made()  # after that: who adds to the prompt knows all that was said
        new = parts.info.id != self.id
        if instead:
            told = parts.memory.told if parts.shown is None else parts.shown
            prompt = parts.system_prompt if new else None
            self._history, last = stand_in(
                self._parts.transcripts, self._meter.account, self._history, instead, parts.info, told, prompt
            )
            self._seen.clear()  # what a result would be said to equal may be out of sight now
        else:
            last = before(self._meter.account.last, self._history, "reload")
        ends = self._stored and new
        if ends and not instead:
            self._goes_on_from = self.info
        self._stored = bool(instead) or (self._stored and not new)
        self._take(replace(parts, goes_on_from=last))
        if instead or tells_of_changes(self._history):
            self.remember_what_was_told()
        if ends:
            self._parts.transcripts.end(old.id, how)
        self._watchers.switched(old, self.view(), how)

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
            start_session(self._parts.transcripts, self.info, self.system_prompt)
            self._stored = True
        ids = self._parts.transcripts.append(self.id, weighed)
        stored = [replace(message, id=id_, session_id=self.id) for message, id_ in zip(weighed, ids, strict=True)]
        self._history += stored
        self._ear.listen(stored)
        account.add(stored)
        return stored

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("This session is closed.", hint="Open a new one: Herma.session().")
