"""A model with tools in a session; events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from herma.compression.summary import Condensed, LeftAlone
from herma.errors import ModelCancelled, ModelError, ModelOverflow, UsageError
from herma.models.client import ChatModel
from herma.prompt.fence import StreamScrubber, sanitize
from herma.session import Session
from herma.types import Content, Reply, ToolCall, Usage

# ---------- agent.happenings
#
# What happens in a turn, for whoever shows it, and what came of it. Values only.

Ended: TypeAlias = Literal["answered", "interrupted", "out of steps"]


@dataclass(frozen=True, slots=True)
class Asking:
    """The model is asked; this is the step of the turn, from 1."""

    step: int


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of the answer, as it comes, without anything that was only recalled to the model."""

    text: str


@dataclass(frozen=True, slots=True)
class Calling:
    """A tool is about to run."""

    call: ToolCall


@dataclass(frozen=True, slots=True)
class Called:
    """A tool has run. `result` is what the model gets, `ok` whether it says that it worked."""

    call: ToolCall
    result: str
    ok: bool
    seconds: float


@dataclass(frozen=True, slots=True)
class Shortened:
    """The conversation was too long, and was made shorter; or why not."""

    outcome: Condensed | LeftAlone


@dataclass(frozen=True, slots=True)
class Noted:
    """Something that a person should know; said once."""

    text: str


Happening: TypeAlias = Asking | Said | Calling | Called | Shortened | Noted


@dataclass(frozen=True, slots=True)
class TurnReport:
    """One turn that is over, and on disk."""

    text: str
    """The answer; what had come of it, if the turn was interrupted."""
    ended: Ended
    steps: int
    """How often the model was asked."""
    calls: tuple[Called, ...] = ()
    usage: Usage = field(default_factory=Usage)
    """All steps together, as far as the server said."""
    measured: bool = False
    """Whether the server said what every step used."""
    model: str = ""
    """The model that answered last, as its server calls it."""
    notes: tuple[str, ...] = ()


# ---------- agent.loop
#
# One turn of an agent, top to bottom:
#
#     before_model → ask the model → run the tools it wants → after_model, and again until it wants none
#
# Every step is on disk before the next one begins. Whoever wants to stop sets `cancel`: the question to the model ends
# within a tenth of a second, what had come is kept, and the conversation can go on.

Show: TypeAlias = Callable[[Happening], None]
Json: TypeAlias = dict[str, Any]
MAX_STEPS = 50
_FINISHES = {
    "length": "The answer was cut off: it reached the length that the model may give (model.max_tokens).",
    "content_filter": "The answer was withheld or cut off by the model's provider.",
}


def _unseen(_: Happening) -> None:
    return


class Agent:
    """A model that talks in a session. One turn at a time, in one thread."""

    def __init__(
        self,
        session: Session,
        model: ChatModel,
        *,
        max_steps: int = MAX_STEPS,
        tools: bool = True,
        show: Show = _unseen,
    ) -> None:
        """`show` is told what happens, as it happens. After `max_steps` steps with tools the model has to answer.

        Without `tools` it is offered none.
        """
        if max_steps < 1:
            raise UsageError("A turn has at least one step.", hint="Give max_steps=1 or more.")
        self.session = session
        self.model = model
        self._max_steps = max_steps
        self._with_tools = tools
        self._show = show
        self._told: set[str] = set()

    def turn(self, text: Content, *, recall: str = "", cancel: threading.Event | None = None) -> TurnReport:
        """Say something to the model, and let it work until it has answered.

        A `ModelError` means that it could not; the turn is then open, `go_on` tries again, and the next `turn` closes
        it. What had come of an answer by then is kept, and closes the turn.
        """
        run = _Run(self._show, cancel or threading.Event())
        return self._work(run, lambda: self.session.before_model(text, recall=recall))

    def go_on(self, *, cancel: threading.Event | None = None) -> TurnReport:
        """Go on with a turn that is open: the model was not reached, or the program ended in the middle of it."""
        if not self.unfinished:
            raise UsageError("The last turn is over.", hint="Say something: turn(text).")
        return self._work(_Run(self._show, cancel or threading.Event()), self.session.before_model)

    @property
    def unfinished(self) -> bool:
        """Whether the last message waits for an answer."""
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
        except KeyboardInterrupt:  # somebody does not want to wait for a tool either
            self._stop(run, "".join(run.said))
        except ModelError as failed:
            if failed.partial.strip():
                self.session.interrupt(failed.partial)
            raise
        return run.report()

    def _stop(self, run: _Run, partial: str) -> None:
        self.session.interrupt(partial)
        run.ended, run.text = "interrupted", sanitize(partial).strip()

    def _ask(self, run: _Run, request: list[Json]) -> Reply:
        """The model's answer. Where the request is too long, the conversation is made shorter, once a turn."""
        try:
            return self._asked(run, request)
        except ModelOverflow:
            if run.shortened or run.said:
                raise
            run.shortened = True
            outcome = self.session.compress()
            run.show(Shortened(outcome))
            self._pass_on(run)
            if not isinstance(outcome, Condensed):
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
        if not run.said and reply.text:  # it came whole, not in pieces
            run.say(sanitize(reply.text))
        return reply

    def _take(self, run: _Run, reply: Reply) -> None:
        """Store what came, after the tools it asks for have run."""
        run.count(reply)
        usage = reply.usage if reply.measured else None
        if not reply.tool_calls:
            self.session.after_model(reply.message, usage=usage)
            run.ended, run.text = "answered", sanitize(reply.text).strip()
            self._remark(run, reply)
            return
        if run.steps > self._max_steps + 1:  # it was told, and goes on all the same
            self.session.after_model([reply.message, *self._refused(reply)], usage=usage)
            self.session.interrupt(reply.text)
            run.ended, run.text = "out of steps", sanitize(reply.text).strip()
            run.note(f"The turn was ended after {run.steps} steps (chat.max_steps).")
            return
        results = self._refused(reply) if run.steps > self._max_steps else []
        try:
            for call in reply.tool_calls if not results else ():
                if run.cancel.is_set():
                    break
                results.append(self._run_tool(run, call))
        finally:  # what has run is never forgotten, whatever stops the others
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

    def _remark(self, run: _Run, reply: Reply) -> None:
        if reply.finish_reason in _FINISHES:
            run.note(_FINISHES[reply.finish_reason])
        elif not reply.text.strip():
            run.note("The model answered with nothing.")

    def _pass_on(self, run: _Run) -> None:
        """What the session has to say to people, each thing once."""
        for warning in self.session.warnings:
            if warning not in self._told:
                self._told.add(warning)
                run.note(warning)


@dataclass(slots=True)
class _Run:
    """One turn while it runs."""

    show: Show
    cancel: threading.Event
    steps: int = 0
    said: list[str] = field(default_factory=list)
    """What this step has said so far."""
    text: str = ""
    ended: Ended | None = None
    shortened: bool = False
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
            self.show(Said(text))

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.show(Noted(text))

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
    """Whether a tool says that it worked: our tools, and those of others, answer with JSON that has `error` if not."""
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return True
    return not isinstance(value, Mapping) or not (value.get("error") or value.get("success") is False)


def _result(call: ToolCall, content: str) -> Json:
    return {"role": "tool", "tool_call_id": call.id, "name": call.name, "content": content}
