"""`herma hook`: start in milliseconds, hand the client's JSON to a helper that is running, print its answer.

Nothing is imported here but what Python has loaded anyway: opening a home takes longer than a client waits for a hook.
The helper (`events.serve`) is started by the first hook and ends when it had no requests for a while. Without one, the
answer to a start or a prompt is made here.

A hook must never break its client: it always ends with 0, and a failure is written down for `herma doctor`.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module

EVENTS = ("session-start", "prompt", "stop", "pre-compact", "session-end")
ENVIRONMENT = ("CURSOR_VERSION", "FACTORY_PROJECT_DIR", "GEMINI_PROJECT_DIR", "CLAUDE_PROJECT_DIR")
"""Variables by which a caller is recognised."""
SOCKET = ".hook.sock"
LONGEST = 4_000_000
"""Bytes of a payload."""
_ANSWER, _ACKNOWLEDGE = 5.0, 0.8
"""Seconds that a start or a prompt waits for the helper, and any other event: some clients end hooks after one."""


def main(arguments: list[str]) -> int:
    """Answer one event. → 0, always."""
    home = ""
    try:
        event, client, home = parse(arguments)
        if event not in EVENTS:
            raise ValueError(f"herma hook needs one event of {', '.join(EVENTS)}; got {event or 'none'}.")
        payload = sys.stdin.buffer.read(LONGEST) if sys.stdin is not None else b""
        here = os.getcwd()  # noqa: PTH109 (pathlib takes as long to load as Python itself)
        fields = [event, client, here, str(os.getppid()), *(os.environ.get(one, "") for one in ENVIRONMENT)]
        request = b"\0".join([os.fsencode(one) for one in fields] + [payload])
        answer = ask_helper(home, request, _ANSWER if event in EVENTS[:2] else _ACKNOWLEDGE)
        if answer is None:
            answer = import_module("herma.mcp.events").without_helper(home, request)
        sys.stdout.buffer.write(answer)
        sys.stdout.buffer.flush()
    except Exception as error:  # noqa: BLE001 (nothing may reach the client)
        _write_down(home, error)
    return 0


def parse(arguments: list[str]) -> tuple[str, str, str]:
    """Return the event, the client and the home that a command line names."""
    named = {"--client": "", "--home": "", "--profile": ""}
    events = []
    words = iter(arguments)
    for word in words:
        name, given, value = word.partition("=")
        if name in named:
            named[name] = value if given else next(words, "")
        elif not word.startswith("-"):
            events.append(word)
    return " ".join(events), named["--client"], _home(named["--home"], named["--profile"])


def _home(given: str, profile: str) -> str:
    """Return the home as `config.resolve_home` does, which takes longer to load than all of this."""
    text = given or os.environ.get("HERMA_HOME") or os.environ.get("HERMES_HOME") or "~/.herma"
    if profile or os.environ.get("HERMA_PROFILE") or "$" in text:
        return str(import_module("herma.config").resolve_home(given or None, profile or None))
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111


def ask_helper(home: str, request: bytes, seconds: float) -> bytes | None:
    """Return the helper's answer; None if none is running. Change the working directory, as a socket's path is short.

    A helper that took the request and does not answer in time is not asked twice: the answer is empty.
    """
    try:
        os.chdir(home)
        from _socket import AF_UNIX, SHUT_WR, SOCK_STREAM, socket

        connection = socket(AF_UNIX, SOCK_STREAM)
        connection.settimeout(seconds)
        connection.connect(SOCKET)
        connection.send(b"")
    except (OSError, ImportError):
        return None
    answer = b""
    try:
        left = memoryview(request)
        while left:
            left = left[connection.send(left) :]
        connection.shutdown(SHUT_WR)
        while piece := connection.recv(65_536):
            answer += piece
    except OSError:
        return answer[1:]
    finally:
        connection.close()
    return answer[1:] if answer.startswith(b"+") else None


def _write_down(home: str, error: Exception) -> None:
    try:
        import_module("herma.mcp.events").record_failure(home, "herma hook", error)
    except Exception:  # noqa: BLE001 (if even that fails, the error cannot be reported)
        return
