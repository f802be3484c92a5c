"""A person at a real terminal: `herma chat` in a pseudo-terminal, what it draws, and keys that are typed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import shlex
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds until something that should be drawn is given up; a busy machine takes its time."""
_CONTROL = re.compile(rb"\x1b(\[[0-9;?<>=]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78MDEHc])")
CTRL_C, CTRL_D, ALT_ENTER, ENTER = "\x03", "\x04", "\x1b\r", "\r"


class Terminal:
    """Starts a command line in a terminal of its own."""

    def __init__(
        self,
        arguments: Sequence[str],
        env: Mapping[str, str] | None = None,
        *,
        size: tuple[int, int] = (30, 100),
        shell: bool = False,
        program: Sequence[str] = ("-m", "herma.cli.main"),
    ) -> None:
        """`shell`: it is typed at the prompt of a shell, which is there again afterwards."""
        self._screen, own = pty.openpty()
        self.resize(*size)
        environment = {**os.environ, "TERM": "xterm-256color", "PS1": "SHELL:", **(env or {})}
        command = [sys.executable, "-W", "error", *program, *arguments]
        self.process = subprocess.Popen(
            ["/bin/sh", "-i"] if shell else command,
            stdin=own,
            stdout=own,
            stderr=own,
            env=environment,
            start_new_session=True,
            preexec_fn=_take_terminal,  # noqa: PLW1509  Ctrl-C is for whoever has the terminal
        )
        os.close(own)
        self.raw = b""
        self._seen = 0
        self._closed = False
        if shell:
            self.wait_for("SHELL:")
            self.press(f"{shlex.join(command)}\n")

    def resize(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._screen, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    @property
    def text(self) -> str:
        """Everything that was drawn, without what steers the terminal."""
        return _CONTROL.sub(b"", self.raw).decode("utf-8", "replace").replace("\r", "")

    def press(self, keys: str) -> None:
        os.write(self._screen, keys.encode("utf-8", "surrogateescape"))

    def say(self, text: str) -> None:
        """Type a message and send it, once the prompt is there: before, the terminal makes a new line of Enter."""
        self.wait_for_prompt()
        self.press(text)
        self.press(ENTER)

    def wait_for(self, words: str) -> str:
        """Until this is drawn, after what was waited for before. → all that was drawn since."""
        until = time.monotonic() + PATIENCE
        while True:
            found = self.text.find(words, self._seen)
            if found >= 0:
                since, self._seen = self.text[self._seen : found + len(words)], found + len(words)
                if words == ">":
                    self.wait_for_prompt()
                return since
            if not self._read(until - time.monotonic()):
                raise AssertionError(f"{words!r} was not drawn after:\n{self.text[self._seen :][-2_000:]}")

    def wait_for_prompt(self) -> None:
        """Until keys are read one by one. What was drawn before tells less: an answer may have the sign, too."""
        until = time.monotonic() + PATIENCE
        while self._by_lines():
            assert time.monotonic() < until, f"no prompt after:\n{self.text[self._seen :][-2_000:]}"
            self._read(0.01)

    def drain(self, seconds: float = 0) -> None:
        """Take in what was drawn, so that the program can draw on."""
        while self._read(seconds):
            seconds = 0

    @property
    def as_found(self) -> bool:
        """Whether the terminal reads lines, draws keys and hears Ctrl-C, as it did before the program."""
        found = termios.tcgetattr(self._screen)
        wanted = termios.ECHO | termios.ICANON | termios.ISIG
        return found[3] & (wanted | termios.NOFLSH) == wanted and bool(found[0] & termios.ICRNL)

    def leave(self) -> int:
        """Wait until the program has ended. → its exit code."""
        until = time.monotonic() + PATIENCE
        while self.process.poll() is None and time.monotonic() < until:
            self._read(0.1)
        while self._read(0):
            continue
        return self.process.wait(1)

    def _by_lines(self) -> bool:
        """At the prompt Ctrl-C is a key like others."""
        return bool(termios.tcgetattr(self._screen)[3] & termios.ISIG)

    def _read(self, seconds: float) -> bool:
        if seconds < 0 or not select.select([self._screen], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self._screen, 1 << 16)
        except OSError:  # the program has ended
            return False
        self.raw += piece
        for _ in range(piece.count(b"\x1b[6n")):  # where is the cursor?
            os.write(self._screen, b"\x1b[1;1R")
        return bool(piece)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        if not self._closed:
            self._closed = True
            os.close(self._screen)


def _take_terminal() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # what runs in the background ignores it, and so would its children
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
