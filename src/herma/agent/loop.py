"""An agent: a model with tools in a session. One turn:

    before_model → ask the model → run the tools it calls → after_model, and again until it calls none

Every step is on disk before the next one begins. Setting `cancel` ends the request to the model within a tenth of a
second; the text so far is kept, and the conversation can go on.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from herma.compression.summary import Compressed, NotCompressed
from herma.errors import (
    HermaError,
    ModelCancelled,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelUnreachable,
    UsageError,
)
from herma.prompt.fence import StreamScrubber, sanitize
from herma.types import Attachment, Content, Reply, ToolCall, Usage

if TYPE_CHECKING:
    from herma.models.client import ChatModel
    from herma.session import Session

Ended: TypeAlias = Literal["answered", "empty", "interrupted", "out of steps"]


@dataclass(frozen=True, slots=True)
class Asking:
    """A request is sent; `step` counts those of the turn, from 1."""

    step: int


@dataclass(frozen=True, slots=True)
class AgentText:
    """A piece of the answer, without recalled text."""

    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool is about to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Called:
    """A tool has run. `result` is sent to the model; `ok` says whether it reports success."""

    call: ToolCall
    result: str
    ok: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class AgentCompressed:
    """The conversation was too long: the result of its compression."""

    outcome: Compressed | NotCompressed


@dataclass(frozen=True, slots=True)
class AgentNotice:
    """A note for people; sent once."""

    text: str


AgentEvent: TypeAlias = Asking | AgentText | Calling | Called | AgentCompressed | AgentNotice


@dataclass(frozen=True, slots=True)
class TurnReport:
    """A finished turn, which is on disk."""

    text: str
    """The answer; the text so far, if the turn was interrupted."""
    ended: Ended
    steps: int
    """Requests to the model."""
    calls: tuple[Called, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """Sum of all steps, as far as the server reported it."""
    measured: bool = False
    """True if the server reported the usage of every step."""
    model: str = ""
    """The model that answered last, as its server calls it."""
    notes: tuple[str, ...] = ()


Show: TypeAlias = Callable[[AgentEvent], None]
Json: TypeAlias = dict[str, Any]
MAX_STEPS = 50
_FINISHES = {
    "length": "The answer was cut off at its maximum length (model.max_tokens).",
    "content_filter": "The answer was withheld or cut off by the model's provider.",
}


class Agent:
    """A model in a session. One turn at a time, in one thread."""

    def __init__(
        self,
        session: Session,
        model: ChatModel,
        *,
        max_steps: int = MAX_STEPS,
        tools: bool = True,
        show: Show = lambda _: None,
    ) -> None:
        """`show` is called with each event. After `max_steps` steps with tools the model must answer. With
        `tools=False` it is offered none.
        """
        if max_steps < 1:
            raise UsageError(f"max_steps must be 1 or more, got {max_steps}.")
        self.session = session
        self.model = model
        self._max_steps = max_steps
        self._with_tools = tools
        self._show = show
        self._warned: set[str] = set()

    def turn(
        self,
        text: Content,
        *,
        attachments: Sequence[Attachment] = (),
        recall: str = "",
        cancel: threading.Event | None = None,
    ) -> TurnReport:
        """Send a message to the model, and run its tools until it has answered. `attachments` are texts from outside.

        After a `ModelError` the turn is open: `go_on` retries it, and the next `turn` closes it. If a part of the
        answer had arrived, it is kept and closes the turn.
        """
        run = _Run(self._show, cancel or threading.Event())
        return self._work(run, lambda: self.session.before_model(text, attachments=attachments, recall=recall))

    def go_on(self, *, cancel: threading.Event | None = None) -> TurnReport:
        """Continue an open turn: the model was not reached, or the program ended in the middle of it."""
        if not self.unfinished:
            raise UsageError("The last turn is finished.", hint="Start another one: turn(text).")
        return self._work(_Run(self._show, cancel or threading.Event()), self.session.before_model)

    @property
    def unfinished(self) -> bool:
        """Return whether the last message has no answer yet."""
        messages = self.session.messages
        return bool(messages) and (messages[-1].role != "assistant" or bool(messages[-1].tool_calls))

    # ── steps ──

    def _work(self, run: _Run, begin: Callable[[], list[Json]]) -> TurnReport:
        try:
            request = begin()
            self._pass_on(run)
            while not run.over:
                run.steps += 1
                reply = self._ask(run, request)
                self._take(run, reply)
                if not run.over:
                    request = self.session.before_model()
                    self._pass_on(run)
        except ModelCancelled as stopped:
            self._stop(run, stopped.partial)
        except KeyboardInterrupt:  # Ctrl-C during a tool
            self._stop(run, "".join(run.said))
        except ModelError as failed:
            if failed.partial.strip():
                self.session.interrupt(failed.partial)
            elif isinstance(failed, ModelRefused | ModelUnreachable):
                self.session.unsent()
            raise
        except HermaError:
            raise
        except BaseException:  # the program ends, or `show` failed: keep the text so far
            with suppress(HermaError):
                self.session.interrupt("".join(run.said))
            raise
        return run.report()

    def _stop(self, run: _Run, partial: str) -> None:
        self.session.interrupt(partial)
        run.ended, run.text = "interrupted", sanitize(partial).strip()

    def _ask(self, run: _Run, request: list[Json]) -> Reply:
        """Return the model's answer. If the request is too long, compress the conversation, once a turn."""
        try:
            return self._asked(run, request)
        except ModelOverflow:
            if run.compressed or run.said:
                raise
            run.compressed = True
            self.session.unsent()
            outcome = self.session.compress()
            run.show(AgentCompressed(outcome))
            self._pass_on(run)
            if not isinstance(outcome, Compressed):
                raise
        return self._asked(run, self.session.before_model())

    def _asked(self, run: _Run, request: list[Json]) -> Reply:
        run.show(Asking(run.steps))
        scrubber = StreamScrubber()
        run.said = []

        def hear(piece: str) -> None:
            run.say(scrubber.feed(piece))

        reply = self.model.reply(
            request, tools=self.session.tools if self._with_tools else (), on_text=hear, cancel=run.cancel
        )
        run.say(scrubber.flush())
        if not run.said and reply.text:  # it came in one piece
            run.say(sanitize(reply.text))
        return reply

    def _take(self, run: _Run, reply: Reply) -> None:
        """Store the reply, after its tools have run."""
        run.count(reply)
        usage = reply.usage if reply.measured else None
        if not reply.tool_calls:
            self.session.after_model(reply.message, usage=usage)
            run.text = sanitize(reply.text).strip()
            run.ended = "answered" if run.text else "empty"
            if reply.finish_reason in _FINISHES:
                run.note(_FINISHES[reply.finish_reason])
            elif run.ended == "empty":
                run.note("The model sent an empty answer.")
            return
        if run.steps > self._max_steps + 1:  # it calls tools although it must answer
            self.session.after_model([reply.message, *self._refused(reply)], usage=usage)
            self.session.interrupt(reply.text)
            run.ended, run.text = "out of steps", sanitize(reply.text).strip()
            run.note(f"The turn was stopped after {run.steps} steps (chat.max_steps).")
            return
        run.said = []  # stored with the calls
        results = self._refused(reply) if run.steps > self._max_steps else []
        try:
            for call in reply.tool_calls if not results else ():
                if run.cancel.is_set():
                    break
                results.append(self._run_tool(run, call))
        finally:  # results of tools that ran are stored, whatever stops the others
            self.session.after_model([reply.message, *results], usage=usage)
        if run.cancel.is_set():
            self._stop(run, "")

    def _run_tool(self, run: _Run, call: ToolCall) -> Json:
        run.show(Calling(call))
        begun = time.monotonic()
        result = self.session.call_tool(call.name, call.arguments)
        done = Called(call, result, worked(result), time.monotonic() - begun)
        run.calls.append(done)
        run.show(done)
        return _result(call, result)

    def _refused(self, reply: Reply) -> list[Json]:
        why = f"Not run: this turn has used all of its {self._max_steps} steps with tools. Answer with what you have."
        return [_result(call, json.dumps({"success": False, "error": why})) for call in reply.tool_calls]

    def _pass_on(self, run: _Run) -> None:
        """Report each warning of the session once."""
        for warning in self.session.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                run.note(warning)


@dataclass(slots=True)
class _Run:
    """One turn while it runs."""

    show: Show
    cancel: threading.Event
    steps: int = 0
    said: list[str] = field(default_factory=list)
    """The text of this step so far."""
    text: str = ""
    ended: Ended | None = None
    compressed: bool = False
    usage: Usage = field(default_factory=Usage)
    measured: bool = True
    model: str = ""
    calls: list[Called] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def over(self) -> bool:
        return self.ended is not None

    def say(self, text: str) -> None:
        if text:
            self.said.append(text)
            self.show(AgentText(text))

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.show(AgentNotice(text))

    def count(self, reply: Reply) -> None:
        self.usage, self.measured = self.usage + reply.usage, self.measured and reply.measured
        self.model = reply.model

    def report(self) -> TurnReport:
        return TurnReport(
            self.text,
            self.ended or "interrupted",
            self.steps,
            tuple(self.calls),
            self.usage,
            self.measured and self.steps > 0,
            self.model,
            tuple(self.notes),
        )


def worked(result: str) -> bool:
    """Return whether a tool reports success: a failed one returns JSON with `error`."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return True
    return not isinstance(value, Mapping) or not (value.get("error") or value.get("success") is False)


def _result(call: ToolCall, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
