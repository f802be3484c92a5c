"""`herma hook`: payloads of each client in their documented shape, with and without the helper."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.homes import conversation, eventually, herma

from herma import Herma
from herma.config import resolve_home
from herma.mcp.events import answered, respond
from herma.mcp.hook import ENVIRONMENT, SOCKET, parse
from herma.mcp.sessions import SNAPSHOT_TOKENS, last_activity, recognise, shortened
from herma.prompt.fence import fence
from herma.prompt.tokens import estimate

if TYPE_CHECKING:
    from collections.abc import Iterator

START = {"hook_event_name": "SessionStart", "source": "startup"}
NOTES = "The staging database listens on port 5433."


class Hooks:
    """The program as a client runs it, in a home with a helper or without one."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder

    def run(self, event: str, client: str, payload: dict[str, Any] | str, **environment: str) -> str:
        command = [sys.executable, "-m", "herma", "hook", event, "--client", client, "--home", str(self.home)]
        text = payload if isinstance(payload, str) else json.dumps({"cwd": str(self.folder), **payload})
        env = {**os.environ, **environment}
        done = subprocess.run(command, input=text, capture_output=True, text=True, env=env, timeout=60, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    def inside(self, event: str, client: str, payload: dict[str, Any], **environment: str) -> str:
        """Answer in this process, as the helper does."""
        fields = [event, client, str(self.folder), "1", *(environment.get(one, "") for one in ENVIRONMENT)]
        request = b"\0".join([*map(os.fsencode, fields), json.dumps({"cwd": str(self.folder), **payload}).encode()])
        with Herma.open(self.home) as h:
            return respond(h, request).decode()

    def context(self, event: str, client: str, payload: dict[str, Any], **environment: str) -> str:
        out = self.inside(event, client, payload, **environment)
        return str(json.loads(out)["hookSpecificOutput"]["additionalContext"]) if out else ""

    def troubles(self) -> list[str]:
        with Herma.open(self.home) as h:
            return [check.sentence for check in h.doctor().checks if check.name == "plugins"]

    def until(self, text: str, *, source: str) -> None:
        """Wait until this was captured."""

        def captured() -> bool:
            with Herma.open(self.home) as h:
                return any(text in hit.snippet for hit in h.search(text, source=source, level="message").hits)

        eventually(captured)


def helper_of(home: Path) -> int:
    """Return the process that holds the socket of a home, or 0."""
    found = subprocess.run(["pgrep", "-f", f"herma.mcp.events {home}$"], capture_output=True, text=True, check=False)
    return int(found.stdout.split()[0]) if found.stdout.strip() else 0


@contextmanager
def ended_helper(home: Path) -> Iterator[None]:
    try:
        yield
    finally:
        if process := helper_of(home):
            os.kill(process, signal.SIGTERM)


@pytest.fixture
def hooks(home: Path, tmp_path: Path) -> Iterator[Hooks]:
    folder = tmp_path / "project"
    folder.mkdir()
    with Herma.open(home) as h:
        h.memory.add("memory", NOTES)
    with ended_helper(home):
        yield Hooks(home, folder)


def line(session: str, uuid: str, role: str, text: str, parent: str | None = None) -> str:
    content = text if role == "user" else [{"type": "text", "text": text}]
    record = {
        "type": role,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": session,
        "timestamp": "2026-11-19T12:00:00Z",
        "cwd": "/project",
        "message": {"role": role, "content": content},
    }
    return json.dumps(record) + "\n"


def transcript(folder: Path, session: str, *said: tuple[str, str]) -> Path:
    path = folder / ".claude" / "projects" / "-project" / f"{session}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        for role, text in said:
            file.write(line(session, f"{session}-{path.stat().st_size}", role, text))
            file.flush()
    return path


def test_one_session_says_it_and_another_client_knows_it(hooks: Hooks) -> None:
    path = transcript(
        hooks.folder, "a1", ("user", "The kiosk printer answers on 10.4.7.9."), ("assistant", "Noted: 10.4.7.9.")
    )
    said = {"session_id": "a1", "transcript_path": str(path)}
    assert NOTES in hooks.context("session-start", "claude-code", {**START, **said})
    assert hooks.run("stop", "claude-code", {**said, "hook_event_name": "Stop"}) == ""
    hooks.until("kiosk", source="claude-code")
    asked = {
        "session_id": "g1",
        "transcript_path": str(hooks.folder / ".gemini/tmp/x/chats/s.jsonl"),
        "hook_event_name": "BeforeAgent",
        "timestamp": "2026-11-19T13:00:00Z",
        "prompt": "Where does the kiosk printer answer?",
    }
    answer = hooks.context("prompt", "gemini", asked)
    assert "10.4.7.9" in answer
    assert NOTES in answer  # its start was not seen, so the first prompt brings the notes
    assert "<memory-context>" in answer
    transcript(hooks.folder, "a1", ("user", "And the scanner answers on 10.4.7.10."))
    hooks.run("session-end", "claude-code", {**said, "hook_event_name": "SessionEnd", "reason": "other"})
    hooks.until("scanner", source="claude-code")
    with Herma.open(hooks.home) as h:
        assert len(h.transcripts.messages("claude-code-a1")) == 3
    assert hooks.troubles() == []
    assert last_activity(hooks.home, "claude-code", "capture") is not None


# Each client's documented payloads at the start and with a prompt, and where the text stands in what it reads.
_PAYLOADS = Path(__file__).with_name("hook_payloads.jsonl").read_text("utf-8").splitlines()
CLIENTS = {one["client"]: one for one in map(json.loads, _PAYLOADS)}
NEXT = {"codex": {"turn_id": "next"}, "cursor": {"generation_id": "next"}}


@pytest.mark.parametrize("client", CLIENTS)
def test_each_client_reads_the_answer_where_it_looks_for_it(hooks: Hooks, client: str) -> None:
    with Herma.open(hooks.home) as h:
        conversation(h, "Where do backups go?", "The backups go to the bucket orchid-seven.")
    start, prompt, at_start, with_prompt = list(CLIENTS[client].values())[1:]
    asked = prompt if client == "hermes" else {**prompt, "prompt": "Where do backups go?"}
    shown = hooks.inside("session-start", client, start)
    answer = hooks.inside("prompt", client, asked)
    for text, place, inside in ((shown, at_start, NOTES), (answer, with_prompt, "orchid-seven")):
        if not place:
            assert inside not in text
            continue
        found: Any = text if place == "text" else json.loads(text)
        for name in place.split(".") if place != "text" else ():
            found = found[name]
        assert inside in found
    assert (NOTES in answer) == (not at_start), "the notes are shown once"
    assert "orchid-seven" not in hooks.inside("prompt", client, {**asked, **NEXT.get(client, {"prompt_id": "next"})})
    if client in ("cursor", "gemini"):
        assert json.loads(answer) is not None  # nothing but JSON
    assert hooks.troubles() == []


def test_recorded_payloads_are_understood(hooks: Hooks) -> None:
    """`hooks.jsonl`: what Gemini CLI 0.61, Claude Code 2.1.197, Codex 0.169 and Qwen Code 0.15 sent."""
    with Herma.open(hooks.home) as h:
        conversation(h, "The kiosk printer answers on 10.4.7.9 and has the port 9100.")
    started = set()
    for record in map(json.loads, (Path(__file__).parent / "hooks.jsonl").read_text("utf-8").splitlines()):
        client, event, payload = record["client"], record["event"], record["payload"]
        assert recognise("claude-code", payload, record["env"]) == client
        text = hooks.inside(event, client, payload, **record["env"])
        assert (NOTES in text) == (event in ("session-start", "prompt") and client not in started)
        started.add(client)
        assert "10.4.7.9" in text or event != "prompt"
        done = last_activity(hooks.home, client, "hook")
        assert done is not None
        assert done.what == event
    assert hooks.troubles() == []


def test_what_a_hook_of_ours_put_into_a_transcript_is_not_imported(hooks: Hooks) -> None:
    shown = fence("The printer answers on 10.4.7.9.")
    codex = hooks.folder / ".codex" / "rollout-2026-11-19T18-30-33-1.jsonl"
    kinds = [
        ("developer", "input_text", shown),
        ("user", "input_text", "Where?"),
        ("assistant", "output_text", "Here."),
    ]
    lines: list[dict[str, Any]] = [{"type": "session_meta", "payload": {"id": "c1", "cwd": "/w", "source": "exec"}}]
    for role, kind, text in kinds:
        item = {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}
        lines.append({"type": "response_item", "payload": item})
    gemini = hooks.folder / ".gemini" / "session-1.jsonl"
    framed = f"<hook_context>{shown.replace('<', '&lt;').replace('>', '&gt;')}</hook_context>"
    said: list[tuple[str, str, Any]] = [
        ("a", "user", [{"text": "<session_context>\nThe client's own.\n</session_context>"}]),
        ("b", "user", [{"text": f"{framed}\n\nWhere?"}, {"text": framed}]),
        ("c", "gemini", "Here."),
    ]
    begun = {"sessionId": "g1", "projectHash": "x", "startTime": "2026-11-19T12:00:00Z", "kind": "main"}
    asked = [
        {"id": id_, "type": kind, "content": content, "timestamp": "2026-11-19T12:00:01Z"}
        for id_, kind, content in said
    ]
    for client, path, records in (("codex", codex, lines), ("gemini", gemini, [begun, *asked])):
        path.parent.mkdir()
        path.write_text("".join(json.dumps({"timestamp": "2026-11-19T12:00:00Z", **one}) + "\n" for one in records))
        session = path.stem if client == "codex" else "g1"
        hooks.inside("stop", client, {"session_id": session, "transcript_path": str(path)})
        with Herma.open(hooks.home) as h:
            [info] = h.transcripts.list(source=client)
            stored = [(one.role, one.content) for one in h.transcripts.messages(info.id)]
            assert stored == [("user", "Where?"), ("assistant", "Here.")]


def test_a_changed_memory_is_told_once_with_the_next_prompt(hooks: Hooks) -> None:
    said = {"session_id": "1", "permission_mode": "default", "hook_event_name": "UserPromptSubmit"}
    hooks.inside("session-start", "claude-code", {**START, **said})
    assert hooks.context("prompt", "claude-code", {**said, "prompt": "hello", "prompt_id": "1"}) == ""
    with Herma.open(hooks.home) as h:
        h.memory.add("memory", "The release train leaves on Tuesdays.")
    told = hooks.context("prompt", "claude-code", {**said, "prompt": "hello", "prompt_id": "2"})
    assert "The release train leaves on Tuesdays." in told
    assert NOTES not in told
    assert hooks.context("prompt", "claude-code", {**said, "prompt": "hello", "prompt_id": "3"}) == ""
    resumed = {**START, **said, "hook_event_name": "SessionStart", "source": "resume"}
    assert hooks.context("session-start", "claude-code", resumed) == ""  # it has all of it
    compacted = {**resumed, "source": "compact"}
    assert "Tuesdays" in hooks.context("session-start", "claude-code", compacted)


def test_a_second_firing_of_an_event_is_answered_with_nothing(hooks: Hooks) -> None:
    """Cursor runs its own hooks and those of Claude Code's files."""
    payload = {"conversation_id": "c", "generation_id": "g", "cursor_version": "3"}
    first = hooks.inside("session-start", "cursor", {**payload, "hook_event_name": "sessionStart"})
    second = hooks.inside("session-start", "claude-code", {**payload, "hook_event_name": "SessionStart"})
    assert NOTES in json.loads(first)["additional_context"]
    assert json.loads(second) == {}


def test_vs_code_and_copilot_run_each_others_hooks(hooks: Hooks) -> None:
    payload = {"session_id": "5c38073e", "hook_event_name": "SessionStart", "source": "new"}
    assert NOTES in hooks.context("session-start", "copilot", payload)
    assert hooks.context("session-start", "vscode", payload) == ""
    transcript = {**payload, "transcript_path": "/u/.config/Code/User/workspaceStorage/1/chatSessions/5c38073e.json"}
    assert hooks.context("session-start", "copilot", {**transcript, "session_id": "other"})
    done = last_activity(hooks.home, "vscode", "hook")
    assert done is not None


@pytest.mark.parametrize(
    ("declared", "payload", "environment", "client"),
    [
        ("claude-code", {"session_id": "1", "permission_mode": "default"}, {}, "claude-code"),
        ("claude-code", {"transcript_path": "/u/.claude/projects/x/1.jsonl", "timestamp": "t"}, {}, "claude-code"),
        ("claude-code", {"transcript_path": r"C:\Users\u\.codex\sessions\r.jsonl"}, {}, "codex"),
        ("claude-code", {"session_id": "1", "turn_id": "t", "model": "m"}, {}, "codex"),
        ("claude-code", {"session_id": "1", "timestamp": "2026-11-19T12:00:00Z"}, {}, "vscode"),
        ("claude-code", {"conversation_id": "1", "generation_id": "2"}, {}, "cursor"),
        ("claude-code", {"session_id": "1", "permission_mode": "x"}, {"CURSOR_VERSION": "3"}, "cursor"),
        ("claude-code", {"session_id": "1", "permission_mode": "x"}, {"FACTORY_PROJECT_DIR": "/p"}, "droid"),
        ("qwen", {"session_id": "1"}, {"GEMINI_PROJECT_DIR": "/p"}, "qwen"),
        ("", {"session_id": "1"}, {"GEMINI_PROJECT_DIR": "/p"}, "gemini"),
        ("", {"session_id": "1"}, {}, "unknown"),
    ],
)
def test_the_caller_is_recognised(
    declared: str, payload: dict[str, Any], environment: dict[str, str], client: str
) -> None:
    assert recognise(declared, payload, environment) == client


@pytest.mark.parametrize("payload", ["", "{", "[1]", "\x00\xff", '{"session_id": 7, "prompt": {"a": 1}}'])
def test_nothing_that_a_client_sends_breaks_the_helper(hooks: Hooks, payload: str) -> None:
    fields = map(os.fsencode, ("prompt", "claude-code", str(hooks.folder), "1", *[""] * len(ENVIRONMENT)))
    with Herma.open(hooks.home) as h:
        given = b"\0".join([*fields, payload.encode("latin-1")])
        assert answered(h, given, h.worker.lane("capture")) is not None


def test_a_failure_is_silent_and_the_doctor_tells_it(hooks: Hooks) -> None:
    assert hooks.run("prompt", "claude-code", "{broken") == ""
    assert hooks.run("no-such-event", "claude-code", {"prompt": "x" * 300_000}) == ""
    [sentence] = hooks.troubles()
    assert sentence.startswith("hooks failed 2 times in the last week")
    if process := helper_of(hooks.home):
        os.kill(process, signal.SIGTERM)
    (hooks.home / "herma.db").write_bytes(b"this is no database" * 100)
    assert hooks.run("prompt", "claude-code", {"session_id": "9", "prompt": "hello"}) == ""


def test_a_home_that_takes_no_notes_of_sessions_still_shows_its_memory(hooks: Hooks) -> None:
    (hooks.home / "logs").mkdir(exist_ok=True)
    (hooks.home / "logs" / "clients").write_text("not a folder")
    assert NOTES in hooks.context("session-start", "claude-code", START)
    assert "hooks failed" in hooks.troubles()[0]


def test_the_helper_serves_and_leaves_when_its_home_changes(hooks: Hooks) -> None:
    hooks.run("session-start", "claude-code", {**START, "session_id": "1"})
    eventually((hooks.home / SOCKET).exists)
    process = helper_of(hooks.home)
    assert process
    assert (hooks.home / SOCKET).stat().st_mode & 0o077 == 0
    assert NOTES in hooks.context("session-start", "claude-code", {**START, "session_id": "2"})
    assert helper_of(hooks.home) == process
    assert herma(hooks.home, "config", "set", "memory.memory_char_limit", "3000").code == 0
    eventually(lambda: helper_of(hooks.home) != process)
    assert NOTES in hooks.context("session-start", "claude-code", {**START, "session_id": "3"})


def test_the_words_of_a_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(["stop", "--client", "codex", "--home", "x"]) == ("stop", "codex", str(tmp_path / "x"))
    assert parse(["--client=codex", "--home=/y/../z", "prompt"]) == ("prompt", "codex", "/z")
    assert parse(["prompt", "--home", "/y", "--profile", "work"])[2] == str(resolve_home("/y", "work"))
    assert parse(["prompt"])[2] == str(resolve_home())
    monkeypatch.setenv("HERMA_HOME", "~/elsewhere")
    assert parse(["prompt"])[2] == str(resolve_home())
    assert parse(["prompt", "stop"])[0] == "prompt stop"
    assert parse([])[0] == ""


def test_what_is_shown_stays_within_the_limits_of_clients(hooks: Hooks) -> None:
    with Herma.open(hooks.home, flags={"memory.memory_char_limit": 30_000}) as h:
        for number in range(300):
            h.memory.add("memory", f"Fact {number}: 服务器在第{number}号机架上，地址是十点四点七。")
    assert herma(hooks.home, "config", "set", "memory.memory_char_limit", "30000").code == 0
    shown = hooks.context("session-start", "claude-code", {**START, "session_id": "1"})
    assert "Cut here" in shown
    assert estimate(shown) < SNAPSHOT_TOKENS + 200
    assert len(shown) < 9_000
    assert shortened("short", 10) == "short"
    assert len(shortened("word " * 10_000, 100)) <= 400
