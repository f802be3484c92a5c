"""Answer the hooks of clients: the snapshot at the start of a session, recall with a prompt, capture of transcripts.

`serve` is the helper that keeps a home open for hooks; `python -m herma.mcp.events HOME` runs it. It has a socket in
the home, serves one request at a time, captures transcripts in the background, and ends when it was idle for a while,
when the configuration changes, or when another version of Herma calls.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herma.app import Herma
from herma.config import HOME_FILE
from herma.errors import HermaError, StoreBusy, StoreError, UsageError
from herma.importers.base import typed
from herma.importers.pipeline import Imports, readers
from herma.mcp.hook import ENVIRONMENT, EVENTS, SOCKET
from herma.mcp.sessions import (
    ClientSession,
    drop_old,
    find_session,
    folder_of,
    memory_changes,
    note_activity,
    owner_of,
    recognise,
    session_of,
    snapshot,
    turn_recall,
    view_of,
)
from herma.prompt.fence import fence
from herma.store.files import exclusive, make_folder
from herma.worker import Trouble, TroubleLog

if TYPE_CHECKING:
    from herma.worker import Lane

Payload = Mapping[str, Any]
IDLE = 15 * 60.0
_LOOK = 2.0
"""Seconds between two looks whether the helper is still wanted."""
_LAGGING = 0.4
"""Seconds that a client's transcript may lag behind its event."""
_BEFORE = 600.0
"""Seconds by which the first message of a session may be older than its first event."""
_TEXT = 200_000
"""Characters of a prompt that are read."""

# Whether a client takes text at the start of a session, and with a prompt.
INJECTS = {
    "cursor": (True, False),
    "vscode": (True, False),
    "copilot": (True, False),
    "hermes": (False, True),
    "kimi": (False, True),
    "windsurf": (False, False),
}
_PLAIN = ("kimi", "opencode", "openclaw")
"""Clients, or plug-ins of ours in them, that take the text as it is."""
_JSON_ONLY = ("gemini", "cursor")
_NO_PATHS = ("cursor", "hermes", "kimi", "openclaw", "opencode")
"""Clients whose hooks do not say where the transcript is: it is looked for in the usual places."""
_EVENT_NAMES = {"session-start": "SessionStart", "prompt": "UserPromptSubmit"}


def respond(h: Herma, request: bytes, lane: Lane | None = None) -> bytes:
    """Return what a hook prints. Transcripts are captured in `lane`, or before this returns."""
    *given, body = request.split(b"\0", 4 + len(ENVIRONMENT))
    event, declared, folder, process, *values = map(os.fsdecode, given)
    payload = json.loads(body or b"{}")
    if not isinstance(payload, dict):
        raise UsageError(f"A hook's input must be a JSON object, not {type(payload).__name__}.")
    client = recognise(declared, payload, dict(zip(ENVIRONMENT, values, strict=True)))
    folder = _folder(payload) or folder
    id_ = _id(payload, folder)
    client = owner_of(h.home, client, id_)
    now = h.clock()
    before = None
    try:
        with session_of(h.home, client, id_) as session:
            before = find_session(h.home, client, folder=folder, at=now) if event == "session-start" else None
            session.folder, session.process, session.seen = folder, int(process), now
            session.started = session.started or now
            session.transcript = _text(payload, "transcript_path") or session.transcript
            text = ""
            if event == "session-start":
                text = _start(h, session, payload)
            elif event == "prompt":
                text = _prompt(h, session, payload)
    except (OSError, StoreError) as error:
        if event != "session-start":
            raise
        # The home is read-only or full: nothing can be kept of the session, but memory can be shown.
        session = ClientSession(client, id_)
        text = _start(h, session, payload)
        record_failure(str(h.home), event, error)
    note_activity(h.home, client, "hook", event, now)
    if event == "session-start":
        drop_old(h.home, now)
        session = before or session  # its last message may have come too late for its own events
    if event != "prompt":
        _capture_later(h, session, lane, event)
    return formatted(client, event, payload, text).encode("utf-8", "replace")


def _start(h: Herma, session: ClientSession, payload: Payload) -> str:
    source = _text(payload, "source")
    if session.is_repeated("session-start", source, h.clock(), own_id=False):
        return ""
    if not INJECTS.get(session.client, (True, True))[0]:
        return ""
    note_activity(h.home, session.client, "start", source, h.clock())
    if source == "resume" and session.memory_version:
        return fence(memory_changes(h, session), kind="update")
    return _begin(h, session)


def _begin(h: Herma, session: ClientSession) -> str:
    """Return the snapshot, and take note that the session knows it, and nothing else."""
    session.said, session.memory_version = [], ""
    memory_changes(h, session)
    return fence(snapshot(h, view_of(h, session)))


def _prompt(h: Herma, session: ClientSession, payload: Payload) -> str:
    text = _text(payload, "prompt") or _text(_mapping(payload.get("extra")), "user_message")
    text = typed(text)
    own = next((value for name in ("turn_id", "generation_id", "prompt_id") if (value := _text(payload, name))), "")
    at_start, with_prompt = INJECTS.get(session.client, (True, True))
    repeated = session.is_repeated("prompt", own or text, h.clock(), own_id=bool(own) or session.client == "qwen")
    if repeated or not with_prompt or not text.strip():
        return ""
    # Where no start was seen, or the client takes nothing at the start, the first prompt brings the snapshot.
    shown = _begin(h, session) if not session.memory_version else ""
    if shown and not at_start:
        note_activity(h.home, session.client, "start", "prompt", h.clock())
    return "\n\n".join(filter(None, (shown, turn_recall(h, session, text[:_TEXT]))))


def formatted(client: str, event: str, payload: Payload, text: str) -> str:
    """Return what the client reads on stdout."""
    if client == "cursor" and event == "prompt":
        return '{"continue": true}'
    if not text:
        return "{}" if client in _JSON_ONLY else ""
    if client in _PLAIN:
        return text
    name = _text(payload, "hook_event_name")
    if client == "cursor" and name[:1].islower():
        return json.dumps({"additional_context": text})
    if client == "hermes":
        return json.dumps({"context": text})
    name = name or _EVENT_NAMES[event]
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text}})


# ── capture ──


def _capture_later(h: Herma, session: ClientSession, lane: Lane | None, event: str) -> None:
    """Capture in the background; without a lane at once, except at a start, because the user waits for it."""

    def work(cancel: threading.Event) -> None:
        cancel.wait(_LAGGING if event == "stop" else 0.0)
        capture(h, session)

    if lane is not None:
        lane.submit(f"{session.client} {session.id}", work, replacing=True)
    elif event != "session-start":
        capture(h, session)


def capture(h: Herma, session: ClientSession) -> int:
    """Import what is new in the transcript of a session. → how many messages."""
    imports, found = Imports(h), 0
    if session.transcript:
        path = Path(session.transcript)
        if not path.is_file():
            return 0
        source = session.client if session.client in readers() else imports.recognise(path)[0]
        found = imports.run(source, path).messages
        below = path.with_suffix("")  # the transcripts of sub-agents
        if below.is_dir():
            with suppress(UsageError):  # there are none
                found += imports.run(source, below).messages
    elif session.client in _NO_PATHS and session.client in readers():
        with suppress(UsageError):  # nothing is written yet
            found = imports.run(session.client, since=session.started - _BEFORE).messages
    if found:
        note_activity(h.home, session.client, "capture", f"{found} messages", h.clock())
    return found


# ── what a payload says ──


def _id(payload: Payload, folder: str) -> str:
    names = ("session_id", "conversation_id", "sessionId", "sessionID", "trajectory_id", "task_id")
    return next((value for name in names if (value := _text(payload, name))), f"in {folder}")


def _folder(payload: Payload) -> str:
    roots = payload.get("workspace_roots")
    first = roots[0] if isinstance(roots, list) and roots and isinstance(roots[0], str) else ""
    return _text(payload, "cwd") or first


def _text(payload: Payload, name: str) -> str:
    value = payload.get(name)
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Payload:
    return value if isinstance(value, dict) else {}


# ── without and with a helper ──


def without_helper(home: str, request: bytes) -> bytes:
    """Start a helper for the next hooks, and answer this one here if the client waits for an answer."""
    event = os.fsdecode(request.partition(b"\0")[0])
    waits = event in EVENTS[:2]
    if start_helper(home, b"" if waits else request) and not waits:
        return b""
    with Herma.open(home) as h:
        return respond(h, request)


def start_helper(home: str, request: bytes = b"") -> bool:
    """Start a helper, with a first request; return whether it could be started."""
    if not hasattr(socket, "AF_UNIX") or not Path(home).is_dir():
        return False
    # -P: a file of the project in which the client works must not be imported
    command = [sys.executable, "-P", "-m", "herma.mcp.events", home]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with suppress(OSError):
        process = subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True, cwd=home, **quiet)  # type: ignore[call-overload]
        process.stdin.write(request)
        process.stdin.close()
        process.returncode = 0  # the process is not awaited
        return True
    return False


def serve(home: Path, first: bytes = b"", *, idle: float = IDLE) -> None:
    """Answer `first`, then serve hooks until no more come, unless another helper already does."""
    make_folder(folder_of(home))
    with Herma.open(home) as h, socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        lane = h.worker.lane("capture", daemon=False)
        if first:
            answered(h, first, lane)
        try:
            with exclusive(folder_of(home) / "helper.lock", 0.0):
                _listen(listening, home)
                _accept(h, listening, lane, idle)
        except StoreBusy:
            pass  # another helper runs
        lane.close(30.0)


def _listen(listening: socket.socket, home: Path) -> None:
    os.chdir(home)  # the path of a socket may be 108 bytes long
    Path(SOCKET).unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        listening.bind(SOCKET)
    finally:
        os.umask(before)
    listening.listen(16)
    listening.settimeout(_LOOK)


def _accept(h: Herma, listening: socket.socket, lane: Lane, idle: float) -> None:
    ours, configured, last = _stamp(Path(SOCKET)), _configuration(h.home), time.monotonic()
    while time.monotonic() - last < idle and ours == _stamp(Path(SOCKET)) and configured == _configuration(h.home):
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            continue
        last = time.monotonic()
        with connection, suppress(OSError):
            connection.settimeout(5.0)
            request = b""
            while piece := connection.recv(65_536):
                request += piece
            answer = answered(h, request, lane)
            if answer is None:
                return  # the store cannot be used any more: the hook opens it again
            connection.sendall(b"+" + answer)
    if ours == _stamp(Path(SOCKET)):
        Path(SOCKET).unlink(missing_ok=True)


def answered(h: Herma, request: bytes, lane: Lane) -> bytes | None:
    """Return the answer to a request, empty if it failed, which is written down; None if the home must be reopened."""
    try:
        return respond(h, request, lane)
    except HermaError as error:
        record_failure(str(h.home), os.fsdecode(request.partition(b"\0")[0]), error)
        return b"" if isinstance(error, UsageError | StoreBusy) else None
    except Exception as error:  # noqa: BLE001 (one bad request must not end the helper)
        record_failure(str(h.home), os.fsdecode(request.partition(b"\0")[0]), error)
        return b""


def record_failure(home: str, what: str, error: Exception) -> None:
    """Write down for the doctor why a hook did nothing."""
    if home and Path(home).is_dir():
        why = str(error) or type(error).__name__
        TroubleLog(Path(home)).add(Trouble("hooks", what, why), time.time())


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def _configuration(home: Path) -> tuple[object, ...]:
    return _stamp(home / HOME_FILE), _stamp(home / ".env")


if __name__ == "__main__":
    serve(Path(sys.argv[1]), sys.stdin.buffer.read())
