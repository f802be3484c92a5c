"""What is typed before the prompt is there again: not drawn into an answer, and read key by key afterwards.

A terminal that reads by lines makes a new line of Enter, so that three messages typed ahead would stand in the prompt
as one. Key by key, Enter stays Enter: each of them is sent when its turn comes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_PASTING, _PASTED = "\x1b[?2004h", "\x1b[?2004l"
"""Asks the terminal to say where pasted text begins and ends, and not to."""
_STEERING = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])?")
_RUBBED_OUT = "\x7f\b"


def has_terminal() -> bool:
    """Whether there is one whose keys can be asked for in another way."""
    return sys.stdin is not None and sys.stdin.isatty() and importlib.util.find_spec("termios") is not None


@contextmanager
def unechoed() -> Iterator[None]:
    """Inside, keys are not drawn."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    with _set([*before[:3], before[3] & ~termios.ECHO, *before[4:]]):
        yield


@contextmanager
def by_key() -> Iterator[None]:
    """Inside, keys are kept as they were pressed, and not drawn. Ctrl-C interrupts as usual."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    special = [*before[6]]
    special[termios.VMIN], special[termios.VTIME] = 1, 0
    keys = [before[0] & ~termios.ICRNL, *before[1:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:6]]
    with _set([*keys, special]):
        yield


@contextmanager
def by_line() -> Iterator[None]:
    """Inside, the terminal reads lines and draws what is typed, as programs that ask a question expect it."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    shown = before[3] | termios.ECHO | termios.ICANON
    with _set([before[0] | termios.ICRNL, *before[1:3], shown, *before[4:]]):
        yield


@contextmanager
def pasting() -> Iterator[None]:
    """Inside, the terminal marks what is pasted, so that its lines stay together also if no prompt was there."""
    if not (has_terminal() and sys.stdout.isatty()):
        yield
        return
    sys.stdout.write(_PASTING)
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(_PASTED)
        sys.stdout.flush()


@contextmanager
def _set(attributes: list[object]) -> Iterator[None]:
    import termios

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    termios.tcsetattr(handle, termios.TCSANOW, attributes)  # type: ignore[arg-type]  # as they were read
    try:
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSANOW, before)


def pressed() -> str:
    """The keys that the terminal has and nobody has read yet. They are taken."""
    taken = b""
    if has_terminal():
        handle = sys.stdin.fileno()
        while select.select([handle], [], [], 0)[0] and (piece := os.read(handle, 1 << 16)):
            taken += piece
    return taken.decode("utf-8", "replace")


def as_text(keys: str) -> str:
    """What a person meant by keys that nobody reacted to: the text, with what was rubbed out rubbed out."""
    written: list[str] = []
    for key in _STEERING.sub("", keys).replace("\r", "\n"):
        if key in _RUBBED_OUT:
            del written[-1:]
        elif key.isprintable() or key in "\n\t":
            written.append(key)
    return "".join(written).strip("\n")
