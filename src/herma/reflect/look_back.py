"""The quiet pass: the conversation as it was sent, one task after it, and a few steps with memory and skill tools.

The request begins with exactly the bytes that the session sent, so that the provider's cache serves most of it. Nothing
of this enters the transcript, and external memories do not see it.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herma.errors import ModelCancelled, ModelTimeout
from herma.ports import ChatModel
from herma.prompt.weight import count_message, count_messages, count_tools
from herma.reflect.book import Book
from herma.reflect.pauses import was_of_no_use, was_of_use
from herma.reflect.wording import NOT_NOW
from herma.transcript.replay import as_sent
from herma.transcript.wire import text_of
from herma.types import Message, Reply, SessionView, ToolCall

Json = dict[str, Any]
Call = Callable[[str, str], str]
"""Carries out a tool: its name and its arguments as JSON → its answer as JSON."""
ANSWER = 4_096
"""Tokens that an answer may take."""
MOST_IN_VAIN = 2
"""Answers in a row of which nothing can be carried out: the first is told what was wrong."""
_LATE = "review.deadline says how long looking back may take."
_LINE = 160
_LINES = 60


@dataclass(frozen=True, slots=True)
class Window:
    """How much fits into a model's request, and how that is counted."""

    tokens: int
    count: Callable[[str], int]


def prefix_of(view: SessionView, last_message: int | None = None) -> list[Json]:
    """The session's request up to a message, or all of it: what the model was sent, to the byte."""
    said = [one for one in view.messages if last_message is None or one.id <= last_message]
    return [{"role": "system", "content": view.system_prompt}, *map(as_sent, said)]


def request_of(prefix: Sequence[Json], task: str, tools: Sequence[Mapping[str, Any]], window: Window) -> list[Json]:
    """The prefix and the task, if that fits; else the end of the conversation, and a digest of what came before it."""
    asked: Json = {"role": "user", "content": task}
    room = window.tokens - count_tools(tools, window.count) - ANSWER - 2_000
    if count_messages([*prefix, asked], window.count) <= room:
        return [*prefix, asked]
    system, said = prefix[0], list(prefix[1:])
    room -= count_messages([system, asked], window.count) + _LINES * (_LINE // 2)
    first = len(said)
    for at in range(len(said) - 1, -1, -1):
        room -= count_message(said[at], window.count)
        if room < 0:
            break
        if said[at].get("role") == "user":
            first = at
    return [system, {"role": "user", "content": _digest(said[:first])}, *said[first:], asked]


def _digest(said: Sequence[Mapping[str, Any]]) -> str:
    """What came before, in short lines, the newest of them."""
    lines = [
        f"{one.get('role')}: {' '.join(text_of(one.get('content')).split())[:_LINE]}"
        for one in said
        if one.get("role") in ("user", "assistant") and text_of(one.get("content")).strip()
    ]
    left = f"[{len(lines) - _LINES} earlier messages are not shown.]\n" if len(lines) > _LINES else ""
    return f"(The conversation so far, in short:)\n{left}" + "\n".join(lines[-_LINES:])


@dataclass(frozen=True, slots=True)
class Limits:
    """How far a review may go."""

    steps: int = 8
    seconds: float = 120.0


def look_back(
    model: ChatModel,
    request: Sequence[Json],
    tools: Sequence[Mapping[str, Any]],
    call: Only,
    book: Book,
    cancel: threading.Event,
    limits: Limits,
) -> None:
    """Let the model work until it has nothing more to do, or may do no more. Raises what the model raises.

    Between two writes it looks whether it was cancelled: each of them is whole, durable and undoable by itself. Calls
    that cannot be carried out are answered with the reason, once; with more of them it is over.
    """
    messages = list(request)
    until = time.monotonic() + limits.seconds
    in_vain = 0
    for _ in range(limits.steps):
        reply = ask(model, messages, tools, book, cancel, until)
        wrong = [problem_of(wanted, call.allowed) for wanted in reply.tool_calls]
        in_vain = in_vain + 1 if wrong and all(wrong) else 0
        if in_vain >= MOST_IN_VAIN:
            why = f"The model looked back in vain: {wrong[-1]}."
            book.give_up(why, was_of_no_use(model, wrong[-1]))
            return
        if not in_vain:
            was_of_use(model)
        if not reply.tool_calls:
            return
        messages.append(dict(reply.message))
        for wanted in reply.tool_calls:
            _check(cancel)
            messages.append(_result(wanted, call(wanted.name, wanted.arguments)))
    book.notice = book.notice or f"It was ended after {limits.steps} steps."


def problem_of(wanted: ToolCall, allowed: Collection[str]) -> str:
    """Why a call cannot be carried out, whatever the tool would say to it; "" where it can. Pure."""
    if wanted.name not in allowed:
        return f"it called {wanted.name[:60]!r}, which is not carried out then"
    try:
        given = json.loads(wanted.arguments or "{}")
    except (ValueError, RecursionError):
        return f"what it gave to {wanted.name} is no JSON"
    return "" if isinstance(given, Mapping) else f"what it gave to {wanted.name} is no JSON object"


def ask(
    model: ChatModel,
    messages: Sequence[Json],
    tools: Sequence[Mapping[str, Any]],
    book: Book,
    cancel: threading.Event,
    until: float,
    json_schema: Mapping[str, Any] | None = None,
) -> Reply:
    """One answer, counted."""
    _check(cancel)
    left = until - time.monotonic()
    if left <= 0:
        raise ModelTimeout("Looking back took too long.", hint=_LATE)
    try:
        reply = model.reply(
            messages, tools=tools, max_tokens=ANSWER, deadline=left, cancel=cancel, json_schema=json_schema
        )
    except ModelTimeout as exc:
        raise ModelTimeout(str(exc), hint=_LATE, partial=exc.partial, attempts=exc.attempts) from exc
    book.answered(reply, model.name)
    return reply


@dataclass(frozen=True, slots=True)
class Only:
    """Carries out these tools; every other is answered with a refusal."""

    call: Call
    allowed: Collection[str]

    def __call__(self, name: str, arguments: str) -> str:
        if name in self.allowed:
            return self.call(name, arguments)
        return json.dumps({"success": False, "error": NOT_NOW})


def since_of(messages: Sequence[Message], first_message: int) -> str:
    """How the first of the new messages begins, if others came before it."""
    if not messages or first_message <= messages[0].id:
        return ""
    return next((text_of(one.content)[:200] for one in messages if one.id >= first_message and one.role == "user"), "")


def _result(wanted: ToolCall, answer: str) -> Json:
    return {"role": "tool", "tool_call_id": wanted.id, "content": answer}


def _check(cancel: threading.Event) -> None:
    if cancel.is_set():
        raise ModelCancelled("The review was stopped.")
