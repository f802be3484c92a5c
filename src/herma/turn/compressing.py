"""Making room: ask the engine what may stand for the conversation, and commit it. One program at a time.

The order, also towards external memories: what they want to be kept (`on_pre_compress`), the engine, the end of the old
session, the new one with its prompt built anew, the switch. When any of it fails, the conversation is as it was.

The engine may be a user's: what it raises is caught once, counted and shown, and what it answers is looked at before
anything is replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol, TypeAlias

from herma.errors import StoreError
from herma.ports import ContextEngine, Watcher
from herma.prompt.families import UNKNOWN_WINDOW
from herma.providers.guard import Guard
from herma.transcript.replay import unanswered
from herma.transcript.wire import text_of
from herma.types import Compression, Condensed, Content, LeftAlone, Message, SessionView, Usage

Hold: TypeAlias = Callable[[str], AbstractContextManager[bool]]
"""Takes the lock of a conversation at once; yields whether it was free."""
_REMEMBERED = 20
"""Sentences for people that a session keeps; the log has all of them."""
_GROWTH = 1.1
"""How much longer a conversation must be before it is tried again by itself, after a try that did not make room."""


def _log() -> logging.Logger:
    return logging.getLogger("herma.compress")  # not while importing, which has no effect


class Conversation(Protocol):
    """What a session lets itself be asked for this."""

    @property
    def id(self) -> str: ...

    @property
    def tokens(self) -> int: ...

    def view(self) -> SessionView: ...

    def before_compression(self) -> str: ...

    def continue_with(self, messages: Sequence[Message], *, in_place: bool = False) -> None: ...


class Room(Watcher):
    """How one session makes room. It follows the session, so that the engine hears what happens."""

    def __init__(
        self,
        engine: ContextEngine | None = None,
        *,
        hold: Hold = lambda _: nullcontext(True),
        gone_on: Callable[[SessionView], bool] = lambda _: False,
        count: Callable[[str], int] = len,
        in_place: bool = False,
        automatic: bool = False,
        why_not: str = "",
        guessed: bool = False,
        name: str = "",
    ) -> None:
        """`gone_on`: whether another program has taken the conversation further than this session.

        `why_not`: for people, why there is no engine. `guessed`: the window is not known, so nothing happens by itself.
        """
        self.name = name or f"the context engine {getattr(engine, 'name', '')}".strip()
        self.guard = Guard(self.name)
        self.said: list[str] = [why_not] if why_not else []
        self.last: Compression | None = None
        """What came of the last try."""
        self._engine = engine
        self._hold = hold
        self._gone_on = gone_on
        self._count = count
        self._in_place = in_place
        self._automatic = automatic and engine is not None
        self._why_not = why_not or "No context engine is set."
        self._guessed = guessed
        self._not_below = 0.0

    # ── by itself ──

    def see_to(self, conversation: Conversation, content: Content = None) -> None:
        """Before a request: make room if it calls for it. `content` is what the user is about to say.

        Whatever goes wrong, the turn goes on; people are told.
        """
        if not self._automatic:
            if self._guessed and conversation.tokens >= UNKNOWN_WINDOW:
                self._say(
                    f"This conversation is longer than {UNKNOWN_WINDOW:,} tokens, and how many fit into the model's "
                    "window is not known, so it is not shortened by itself. Set context.window, or call compress()."
                )
            return
        tokens = conversation.tokens + (self._count(text_of(content)) if content else 0)
        if tokens < self._not_below or not self._due(tokens):
            return
        try:
            done = self.make(conversation, tokens=tokens)
        except StoreError as exc:
            done = LeftAlone(f"It could not be written: {exc}")
        if isinstance(done, LeftAlone):
            self._say(f"The conversation fills the window and was not shortened. {done.reason}", *done.notes)

    def _due(self, tokens: int) -> bool:
        engine = self._engine
        assert engine is not None
        due = self.guard.ask("should_compress", lambda: engine.should_compress(tokens), otherwise=False) is True
        held_back = getattr(engine, "held_back", "")
        if not due and isinstance(held_back, str) and held_back:
            self._say(held_back)
        return due

    def answered(self, usage: Usage | None, estimated: int) -> None:
        """What the last call took; where nobody measured it, what was counted."""
        engine = self._engine
        if engine is not None:
            took = usage or Usage(input=estimated)
            self.guard.ask("update_from_response", lambda: engine.update_from_response(took), None)

    # ── when somebody wants it ──

    def make(
        self, conversation: Conversation, *, tokens: int | None = None, topic: str = "", force: bool = False
    ) -> Compression:
        """Shorten it now. Nothing leaves the transcript."""
        engine = self._engine
        if engine is None:
            return LeftAlone(self._why_not)
        with self._hold(conversation.view().info.conversation) as free:
            if not free:
                return LeftAlone("Another program is shortening this conversation at this moment.")
            if unanswered(conversation.view().messages):
                return LeftAlone("A tool was called and has not answered yet; give its result first.")
            if self._gone_on(conversation.view()):
                return LeftAlone("Another program has gone on with this conversation; resume it to see where it is.")
            size = conversation.tokens if tokens is None else tokens
            done = self._condensed(engine, conversation, size, topic, force=force)
            if isinstance(done, Condensed):
                conversation.continue_with(done.messages, in_place=self._in_place)
            self.last = done
        self._not_below = _retry_from(done, size, force=force)
        self._report(done)
        return done

    def _condensed(
        self, engine: ContextEngine, conversation: Conversation, tokens: int, topic: str, *, force: bool
    ) -> Compression:
        """What the engine makes of it, if that may stand for the conversation."""
        outside = conversation.before_compression()
        old = conversation.view().messages
        failures = self.guard.health.failures
        done = self.guard.ask(
            "compress",
            lambda: engine.compress(old, current_tokens=tokens, focus_topic=topic, force=force, memory_context=outside),
            None,
        )
        if isinstance(done, LeftAlone):
            return done
        if self.guard.health.failures > failures:
            last = self.guard.health.last
            return LeftAlone(f"{self.name} failed: {last.why if last else 'it said nothing'}.")
        wrong = unfit(done, old)
        if wrong or not isinstance(done, Condensed):
            self.guard.count("compress", wrong)
            return LeftAlone(f"What {self.name} answered cannot stand for the conversation: {wrong}.")
        return done

    def _report(self, done: Compression) -> None:
        if isinstance(done, LeftAlone):
            _log().info("Not shortened: %s %s", done.reason, " ".join(done.notes))
            return
        by = f" by {done.model}" if done.model else ""
        _log().info("Shortened from %d to %d tokens (%s%s).", done.tokens_before, done.tokens_after, done.how, by)
        for note in done.notes:
            _log().warning("%s", note)
        self._say(*done.notes)

    def _say(self, *sentences: str) -> None:
        for sentence in sentences:
            if sentence not in self.said:
                self.said.append(sentence)
                _log().warning("%s", sentence)
        del self.said[:-_REMEMBERED]

    # ── what the engine hears ──

    def opened(self, view: SessionView) -> None:
        if self._engine is not None:
            self._engine.on_session_start(view.id, boundary_reason="resume" if view.messages else "new")

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        if self._engine is None:
            return
        if reset:
            self._engine.on_reset()
        if reason in ("reload", "compression"):
            self._engine.on_session_start(new.id, boundary_reason=reason, old_session_id=old.id)

    def closing(self, view: SessionView, reason: str) -> None:
        if self._engine is None:
            return
        self._engine.on_session_end(view.id, view.messages)
        if reason == "reset":
            self._engine.on_reset()


def unfit(done: object, old: Sequence[Message]) -> str:
    """Why an engine's answer cannot stand for these messages; nothing if it can. Pure."""
    from herma.reflect.compress.extract import last_request, plain_text  # most sessions never come to this

    if not isinstance(done, Condensed):
        return f"it is {type(done).__name__}, not Condensed or LeftAlone"
    messages = done.messages
    if not messages or not all(isinstance(message, Message) for message in messages):
        return "it has no messages"
    roles = {message.role for message in messages}
    if not roles <= {"user", "assistant", "tool"}:
        return f"it has messages of {', '.join(sorted(roles - {'user', 'assistant', 'tool'}))}"
    if messages[0].role != "user" and (not old or old[0].role == "user"):
        return f"it begins with a message of {messages[0].role}"
    asked = last_request(old)
    if asked and not any(asked in plain_text(message) for message in messages):
        return "the user's last request is not in it"
    calls = {str(call.get("id")) for message in messages for call in message.tool_calls}
    results = {message.tool_call_id for message in messages if message.role == "tool"}
    if results - calls:
        return "it parts a tool's result from its call"
    return ""


def _retry_from(done: Compression, tokens: int, *, force: bool) -> float:
    """From which size on it is tried again by itself: later where this try made no room."""
    if isinstance(done, Condensed):
        return done.tokens_after * _GROWTH
    return 0.0 if force else tokens * _GROWTH
