"""How one message is shown to a person: who, when, what was said, and tool calls and results in brief."""

from __future__ import annotations

import sys

from herma.cli import output
from herma.cli.sessions.wording import count, one_line, when
from herma.transcript.wording import called, words_of
from herma.types import Message

LONGEST_TEXT = 2_000
LONGEST_RESULT = 400
MOST_LINES = {"tool": 6, "function": 6}
_ARGUMENTS = 160
_INDENT = "     "
_COLOURS = {"user": "\x1b[1;34m", "assistant": "\x1b[1;32m"}
_ANCHOR, _OTHER, _PLAIN = "\x1b[1;33m", "\x1b[1m", "\x1b[0m"


def write_message(message: Message, *, anchor: bool = False, full: bool = False) -> None:
    """Print one message; nothing in it can steer the terminal."""
    output.write("")
    _header(message, anchor)
    if message.reasoning and full:
        _body(f"(thinking) {message.reasoning}", whole=True, role="assistant")
    _body(words_of(message.content), whole=full, role=message.role)
    for call in message.tool_calls:
        name, arguments = called(call)
        shown = arguments if full else one_line(arguments, _ARGUMENTS)
        output.write(f"{_INDENT}→ {name} {shown}".rstrip())


def _header(message: Message, anchor: bool) -> None:
    who = message.role
    if message.role in ("tool", "function"):
        who = f"← {message.tool_name or message.role}"
    hidden = f" · {message.hidden}" if message.hidden else ""
    line = output.visible(f"{'▶' if anchor else ' '}{message.id:>4} {who}{hidden} · {when(message.timestamp)}")
    if output.colours(sys.stdout):
        colour = _ANCHOR if anchor else _COLOURS.get(message.role, _OTHER)
        line = f"{colour}{line}{_PLAIN}"
    sys.stdout.write(line.replace("\n", " ") + "\n")


def _body(text: str, *, whole: bool, role: str) -> None:
    """The text, indented; cut where it is long, with what is missing."""
    text = text.strip("\n").rstrip()
    if not text:
        return
    shown = text if whole else _beginning(text, role)
    for line in shown.splitlines():
        output.write(f"{_INDENT}{line}".rstrip())
    if len(shown) < len(text):
        output.write(f"{_INDENT}… {count(len(text) - len(shown), 'more character')}; --full shows all")


def _beginning(text: str, role: str) -> str:
    longest = LONGEST_RESULT if role in MOST_LINES else LONGEST_TEXT
    shown = text
    if role in MOST_LINES:
        shown = "\n".join(text.split("\n", MOST_LINES[role])[: MOST_LINES[role]])
    if len(shown) > longest + longest // 4:  # a cut that spares the reader nothing is no use
        shown = shown[:longest]
    return shown.rstrip()
