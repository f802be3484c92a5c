"""One question, one answer: for scripts, timers and other programs."""

from __future__ import annotations

import os
import select
import stat
import sys
from typing import TYPE_CHECKING, Any

from herma.cli import output
from herma.cli.chat.converse import shown_by, stopping
from herma.errors import UsageError
from herma.types import Origin

if TYPE_CHECKING:
    from herma.agent.happenings import Called, TurnReport
    from herma.cli.chat.screen import Screen
    from herma.cli.chat.talk import Talk
    from herma.cli.frame import Context

MOST_PIPED = 4_000_000
"""Bytes that are read from a pipe."""
_PATIENCE = 3.0
"""Seconds after which a person is told what is waited for."""
EXIT_OUT_OF_STEPS = 1
EXIT_INTERRUPTED = 130


def answer(context: Context, talk: Talk, screen: Screen, prompt: str) -> None:
    """Ask, and print what comes. The exit code says whether there is an answer."""
    piped = read_piped(context)
    text = "\n\n".join(filter(None, [prompt.strip(), piped]))
    if not text:
        raise UsageError("There is nothing to ask.", hint='For example: herma chat -p "What did we decide?"')
    with shown_by(screen):
        with stopping(talk) as cancel:
            agent = talk.agent
            for warning in talk.servers.warnings:
                screen.note(warning)
            if piped:
                agent.session.heard(piped, Origin.TOOL_OUTPUT)
            done = agent.turn(text, cancel=cancel)
        screen.end()
    if context.json:
        context.print_json(as_json(talk, done))
    elif not sys.stdout.isatty():
        output.write(done.text)
    if done.ended == "interrupted":
        context.exit(EXIT_INTERRUPTED)
    if done.ended == "out of steps":
        context.exit(EXIT_OUT_OF_STEPS)


def read_piped(context: Context) -> str:
    """What comes by a pipe or from a file; nothing where stdin is a terminal, or closed."""
    try:
        handle = sys.stdin.fileno() if sys.stdin is not None else -1
        if handle < 0 or os.isatty(handle):
            return ""
        mode = os.fstat(handle).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""  # /dev/null, as timers have it
    if os.name == "posix" and not select.select([handle], [], [], _PATIENCE)[0]:
        context.warn("Waiting for the end of what comes on standard input; `< /dev/null` gives nothing.")
    data = _read(handle)
    if len(data) > MOST_PIPED:
        raise UsageError(
            f"What comes by the pipe has more than {MOST_PIPED:,} bytes.",
            hint="Send the part that matters: … | tail -n 500",
        )
    if b"\0" in data:
        raise UsageError("What comes by the pipe is no text.", hint="Turn it into text first: … | strings")
    return data.decode("utf-8-sig", "replace").strip()


def _read(handle: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_PIPED and (piece := os.read(handle, 1 << 16)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def as_json(talk: Talk, done: TurnReport) -> dict[str, Any]:
    """The answer for programs."""
    info = talk.info
    used = done.usage
    return {
        "ok": done.ended == "answered",
        "text": done.text,
        "ended": done.ended,
        "session": talk.session.id,
        "conversation": info.conversation if info else talk.session.id,
        "source": info.source if info else talk.wanted.source,
        "model": done.model or talk.model.name,
        "steps": done.steps,
        "tool_calls": [_call_json(call) for call in done.calls],
        "usage": {
            "measured": done.measured,
            "input": used.input,
            "output": used.output,
            "cache_read": used.cache_read,
            "cache_write": used.cache_write,
            "reasoning": used.reasoning,
        },
        "cost_usd": talk.cost(),
        "notes": list(done.notes),
    }


def _call_json(call: Called) -> dict[str, Any]:
    return {
        "id": call.call.id,
        "name": call.call.name,
        "arguments": call.call.arguments,
        "result": call.result,
        "ok": call.ok,
        "seconds": round(call.seconds, 3),
    }
