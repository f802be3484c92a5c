"""Each format: everything in order, with what calls what; twice adds nothing; what is unknown or broken is reported."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.homes import of_files

from herma import Herma
from herma.importers.base import FormatReader
from herma.importers.pipeline import Imports, readers
from herma.testing.contracts import ImporterContract

AT = "2024-02-03T10:00:00Z"
Rows = list[dict[str, Any]]


class Sample(NamedTuple):
    """A transcript in one format: how it is written, and what must come of it, one line for each message."""

    source: str
    write: Callable[[Path], Path]
    said: list[str]
    about: dict[str, Any] = {}  # noqa: RUF012  a table of tests


def lines(name: str, *records: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        texts = [one if isinstance(one, str) else json.dumps(one) for one in records]
        file.write_text("\n".join(texts) + "\n", encoding="utf-8")
        return file

    return write


def files(**named: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        for name, value in named["all"].items():
            lines(name, value)(folder)
        return folder

    return write


def database(name: str, schema: str, *rows: tuple[str, tuple[Any, ...]]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        connection = sqlite3.connect(folder / name)
        connection.executescript(schema)
        for table, values in rows:
            connection.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", values)
        connection.commit()
        connection.close()
        return folder / name

    return write


def zipped(name: str, value: Any) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        file = folder / "export.zip"
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"data/{name}", json.dumps(value))
            archive.writestr("users.json", "[]")
        return file

    return write


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": AT, "type": kind, "payload": payload}


def claw(number: int, parent: int, role: str, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": role, "content": content, **more}
    return {"type": "message", "id": f"m{number}", "parentId": f"m{parent}", "timestamp": AT, "message": message}


def node(key: str, parent: str | None, role: str, *parts: Any, **more: Any) -> dict[str, Any]:
    content = {"content_type": "text", "parts": list(parts)}
    message = {"id": key, "author": {"role": role}, "create_time": 1_700_000_000, "content": content, **more}
    return {key: {"id": key, "parent": parent, "children": [], "message": message}}


def oc_message(key: str, role: str, at: int, **more: Any) -> str:
    return json.dumps({"role": role, "time": {"created": at}, "providerID": "acme", "modelID": "big", **more})


HERMES = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, model TEXT, model_config TEXT, system_prompt{hash} TEXT,
  parent_session_id TEXT, started_at REAL, ended_at REAL, end_reason TEXT, title TEXT, cwd TEXT, git_branch TEXT,
  input_tokens INT, output_tokens INT, actual_cost_usd REAL);
CREATE TABLE messages (id INTEGER PRIMARY KEY, session_id TEXT, role TEXT, content TEXT, tool_call_id TEXT,
  tool_calls TEXT, tool_name TEXT, timestamp REAL, reasoning TEXT, active INT, compacted INT);
"""
HERMES_ROWS = (
    ("messages", (1, "h1", "user", "Fix the build", None, None, None, 1.7e9, None, 0, 1)),
    ("messages", (2, "h1", "user", "Never mind", None, None, None, 1.7e9 + 1, None, 0, 0)),
    ("messages", (3, "h1", "assistant", None, None, '[{"id": "c1", "function": {"name": "sh", "arguments": "{}"}}]',
                  None, 1.7e9 + 2, "Look.", 1, 0)),
    ("messages", (4, "h1", "tool", "ok", "c1", None, "sh", 1.7e9 + 3, None, 1, 0)),
    ("messages", (5, "h2", "user", '\0json:[{"type": "text", "text": "Go on"}]', None, None, None, 1.7e9 + 9, None, 1,
                  0)),
)  # fmt: skip


def hermes_session(key: str, parent: str | None, prompt: str, end: str | None) -> tuple[str, tuple[Any, ...]]:
    title = "Build" if parent is None else None
    at = 1.7e9 if parent is None else 1.7e9 + 8
    return "sessions", (key, "cli", "big", None, prompt, parent, at, at + 5, end, title, "/srv/x", "main", 10, 2, 0.5)


SAMPLES = {
    "codex": Sample(
        "codex",
        lines(
            "rollout-2024-02-03T10-00-00-0198a1b2-0000-7000-8000-000000000001.jsonl",
            codex("session_meta", id="c1", cwd="/srv/x", git={"branch": "main"}, source="cli", model_provider="acme"),
            codex("turn_context", model="big", cwd="/srv/x"),
            codex("response_item", type="message", role="user",
                  content=[{"type": "input_text", "text": "<environment_context>linux</environment_context>"}]),
            codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": "List files"}]),
            codex("event_msg", type="user_message", message="List files"),
            codex("response_item", type="reasoning", summary=[{"type": "summary_text", "text": "Use ls."}]),
            codex("response_item", type="function_call", call_id="k1", name="shell", arguments='{"cmd": "ls"}'),
            codex("response_item", type="function_call_output", call_id="k1", output="a.txt"),
            codex("event_msg", type="token_count", info={"total_token_usage": {"input_tokens": 9},
                  "last_token_usage": {"input_tokens": 9, "cached_input_tokens": 4, "output_tokens": 2}}),
            codex("response_item", type="message", role="assistant",
                  content=[{"type": "output_text", "text": "There is a.txt."}]),
            codex("event_msg", type="thread_name_updated", thread_name="Files"),
            codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": "Delete it"}]),
            codex("response_item", type="message", role="assistant",
                  content=[{"type": "output_text", "text": "Gone."}]),
            codex("event_msg", type="thread_rolled_back", num_turns=1),
            codex("response_item", type="message", role="user", content=[{"type": "input_text", "text": "Keep it"}]),
            codex("response_item", type="strange_thing"),
        ),
        ["system <environment_context>linux</environment_context>", "user List files", "assistant (Use ls.)",
         "assistant shell", "tool a.txt ← shell", "assistant There is a.txt.", "user Delete it (rewound)",
         "assistant Gone. (rewound)", "user Keep it"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "branch": "main", "input": 5, "output": 2,
         "unknown": "item strange_thing"},
    ),
    "codex of 2025": Sample(
        "codex",
        lines(
            "rollout-2025-02-03T10-00-00-0198a1b2-0000-7000-8000-000000000001.jsonl",
            {"timestamp": AT, "role": "user", "content": "Which branch?", "model": "small"},
            {"timestamp": AT, "type": "tool_call", "function": {"name": "git"}, "arguments": "status"},
            {"timestamp": AT, "type": "tool_result", "name": "git", "result": "On main"},
            {"timestamp": AT, "role": "assistant", "content": "main"},
        ),
        ["user Which branch?", "assistant git", "tool On main ← git", "assistant main"],
        {"model": "small"},
    ),
    "gemini": Sample(
        "gemini",
        lines(
            "session-2024-02-03T10-00-ab.jsonl",
            {"sessionId": "g1", "projectHash": "x", "startTime": AT, "kind": "main"},
            {"id": "1", "timestamp": AT, "type": "user", "content": [{"text": "Say hi"}]},
            {"id": "2", "timestamp": AT, "type": "gemini", "content": "", "model": "big",
             "tokens": {"input": 7, "output": 1},
             "thoughts": [{"description": "Greet."}],
             "toolCalls": [{"id": "t", "name": "wave", "args": {}, "result": [
                 {"functionResponse": {"id": "t", "name": "wave", "response": {"output": "waved"}}}]}]},
            {"id": "3", "timestamp": AT, "type": "gemini", "content": "Hi"},
            {"id": "3", "timestamp": AT, "type": "gemini", "content": "Hi!"},
            {"id": "4", "timestamp": AT, "type": "user", "content": "Bad idea"},
            {"$rewindTo": "4"},
            {"id": "5", "timestamp": AT, "type": "user", "content": "Good idea"},
            {"id": "6", "timestamp": AT, "type": "odd", "content": "?"},
        ),
        ["user Say hi", "assistant wave (Greet.)", "tool waved ← wave", "assistant Hi!", "user Bad idea (rewound)",
         "user Good idea"],
        {"model": "big", "input": 7, "unknown": "odd"},
    ),
    "gemini before 0.40": Sample(
        "gemini",
        files(all={"session-a.json": {"sessionId": "g2", "startTime": AT, "messages": [
            {"id": "1", "type": "user", "content": "Hello"}, {"id": "2", "type": "gemini", "content": "Hi"}]}}),
        ["user Hello", "assistant Hi"],
    ),
    "antigravity": Sample(
        "antigravity",
        lines(
            "a1.jsonl",
            {"step_index": 0, "source": "USER_EXPLICIT", "type": "USER_INPUT", "created_at": AT,
             "content": "<USER_REQUEST>\nList\n</USER_REQUEST>\n<X>y</X>"},
            {"step_index": 1, "source": "MODEL", "type": "PLANNER_RESPONSE", "created_at": AT, "thinking": "ls",
             "tool_calls": [{"name": "list_dir", "args": {}}]},
            {"step_index": 2, "source": "MODEL", "type": "LIST_DIRECTORY", "created_at": AT, "content": "a.txt"},
        ),
        ["user List", "assistant list_dir (ls)", "tool a.txt ← list_directory"],
    ),
    "cursor agent": Sample(
        "cursor",
        lines(
            "projects/x/agent-transcripts/cu1/cu1.jsonl",
            {"role": "user", "message": {"content": [{"type": "text", "text": "<user_query>\nRun ls\n</user_query>"}]}},
            {"role": "assistant", "message": {"content": [{"type": "text", "text": "Running."},
             {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}]}},
            {"type": "turn_ended", "status": "success"},
        ),
        ["user Run ls", "assistant Running. Shell"],
    ),
    "cursor editor": Sample(
        "cursor",
        database(
            "state.vscdb",
            "CREATE TABLE ItemTable (key TEXT, value BLOB); CREATE TABLE cursorDiskKV (key TEXT, value BLOB);",
            ("cursorDiskKV", ("composerData:q1", json.dumps({
                "composerId": "q1", "name": "A chat", "createdAt": 1_700_000_000_000,
                "fullConversationHeadersOnly": [{"bubbleId": "b1", "type": 1}, {"bubbleId": "b2", "type": 2},
                                                {"bubbleId": "lost", "type": 2}]}))),
            ("cursorDiskKV", ("bubbleId:q1:b1", json.dumps({"type": 1, "text": "Fix it"}))),
            ("cursorDiskKV", ("bubbleId:q1:b2", json.dumps({
                "type": 2, "text": "Done", "thinking": {"text": "Hm"}, "toolFormerData": {
                    "name": "edit", "toolCallId": "t", "rawArgs": "{}", "result": "edited"}}))),
        ),
        ["user Fix it", "assistant Done edit (Hm)", "tool edited ← edit"],
        {"title": "A chat", "broken": "message that the chat names, but the database does not have"},
    ),
    "opencode": Sample(
        "opencode",
        database(
            "opencode.db",
            "CREATE TABLE session (id TEXT, parent_id TEXT, directory TEXT, title TEXT, time_created INT);"
            "CREATE TABLE message (id TEXT, session_id TEXT, time_created INT, data TEXT);"
            "CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT);",
            ("session", ("ses_1", None, "/srv/x", "Files", 1_700_000_000_000)),
            ("message", ("msg_1", "ses_1", 1, oc_message("msg_1", "user", 1_700_000_000_000))),
            ("message", ("msg_2", "ses_1", 2, oc_message("msg_2", "assistant", 1_700_000_001_000, tokens={
                "input": 5, "output": 3, "cache": {"read": 2, "write": 1}}))),
            ("part", ("prt_1", "msg_1", "ses_1", '{"type": "text", "text": "Show a.txt"}')),
            ("part", ("prt_2", "msg_1", "ses_1", '{"type": "text", "text": "injected", "synthetic": true}')),
            ("part", ("prt_3", "msg_2", "ses_1", '{"type": "reasoning", "text": "Use cat."}')),
            ("part", ("prt_4", "msg_2", "ses_1", json.dumps({"type": "tool", "callID": "c", "tool": "bash", "state": {
                "status": "completed", "input": {"command": "cat"}, "output": "hello"}}))),
            ("part", ("prt_5", "msg_2", "ses_1", '{"type": "text", "text": "It says hello."}')),
            ("part", ("prt_6", "msg_2", "ses_1", '{"type": "hologram"}')),
        ),
        ["user Show a.txt", "assistant It says hello. bash (Use cat.)", "tool hello ← bash"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "input": 5, "unknown": "part hologram"},
    ),
    "opencode before 1.2": Sample(
        "opencode",
        files(all={
            "storage/session/p/ses_2.json": {"id": "ses_2", "title": "Old", "directory": "/srv/y"},
            "storage/message/ses_2/msg_1.json": {"id": "msg_1", "role": "user", "time": {"created": 1_700_000_000_000}},
            "storage/part/msg_1/prt_1.json": {"type": "text", "text": "Hello"}}),
        ["user Hello"],
        {"title": "Old", "folder": "/srv/y"},
    ),
    "copilot": Sample(
        "copilot",
        lines(
            "s/events.jsonl",
            {"type": "session.start", "id": "1", "timestamp": AT, "data": {
                "sessionId": "p1", "selectedModel": "big", "context": {"cwd": "/srv/x", "branch": "main"}}},
            {"type": "user.message", "id": "2", "timestamp": AT, "data": {"content": "List",
                "transformedContent": "X"}},
            {"type": "assistant.message", "id": "3", "timestamp": AT, "data": {
                "content": "", "outputTokens": 4,
                "toolRequests": [{"toolCallId": "k", "name": "bash", "arguments": {}}]}},
            {"type": "tool.execution_complete", "id": "4", "timestamp": AT, "data": {
                "toolCallId": "k", "result": {"content": "a.txt"}}},
            {"type": "quantum.event", "id": "5", "timestamp": AT, "data": {}},
        ),
        ["user List", "assistant bash", "tool a.txt ← bash"],
        {"model": "big", "folder": "/srv/x", "branch": "main", "output": 4, "unknown": "quantum.event"},
    ),
    "goose": Sample(
        "goose",
        database(
            "sessions.db",
            "CREATE TABLE sessions (id TEXT, name TEXT, session_type TEXT, working_dir TEXT, created_at TEXT,"
            " model_config_json TEXT, accumulated_input_tokens INT, accumulated_output_tokens INT);"
            "CREATE TABLE messages (id INTEGER PRIMARY KEY, message_id TEXT, session_id TEXT, role TEXT,"
            " content_json TEXT, created_timestamp INT);",
            ("sessions", ("1", "Files", "user", "/srv/x", AT, '{"model_name": "big"}', 8, 3)),
            ("sessions", ("2", "Inner", "sub_agent", "/srv/x", AT, None, 0, 0)),
            ("messages", (1, "a", "1", "user", '[{"type": "text", "text": "List"}]', 1_700_000_000)),
            ("messages", (2, "b", "1", "assistant", json.dumps([{"type": "toolRequest", "id": "k", "toolCall": {
                "status": "success", "value": {"name": "shell", "arguments": {"command": "ls"}}}}]), 1_700_000_001)),
            ("messages", (3, "c", "1", "user", json.dumps([{"type": "toolResponse", "id": "k", "toolResult": {
                "status": "success", "value": [{"type": "text", "text": "a.txt"}]}}]), 1_700_000_002)),
        ),
        ["user List", "assistant shell", "tool a.txt ← shell"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "input": 8, "output": 3},
    ),
    "qwen": Sample(
        "qwen",
        lines(
            "q1.jsonl",
            {"uuid": "1", "parentUuid": None, "sessionId": "q1", "timestamp": AT, "type": "user", "cwd": "/srv/x",
             "gitBranch": "main", "systemPayload": {"displayText": "Read it", "hookContext": "x"},
             "message": {"role": "user", "parts": [{"text": "Read it"}, {"text": "<hook>x</hook>"}]}},
            {"uuid": "2", "parentUuid": "1", "sessionId": "q1", "timestamp": AT, "type": "assistant", "model": "big",
             "message": {"role": "model", "parts": [{"text": "Open it.", "thought": True},
              {"functionCall": {"id": "k", "name": "read", "args": {}}}]}, "usageMetadata": {"promptTokenCount": 6}},
            {"uuid": "3", "parentUuid": "2", "sessionId": "q1", "timestamp": AT, "type": "tool_result", "message": {
                "role": "user", "parts": [{"functionResponse": {"id": "k", "response": {"output": "text"}}}]}},
            {"uuid": "4", "parentUuid": "1", "sessionId": "q1", "timestamp": AT, "type": "system", "subtype": "rewind"},
            {"uuid": "5", "parentUuid": "4", "sessionId": "q1", "timestamp": AT, "type": "user",
             "message": {"role": "user", "parts": [{"text": "Write it"}]}},
            {"uuid": "6", "parentUuid": "5", "sessionId": "q1", "timestamp": AT, "type": "system",
             "subtype": "custom_title", "systemPayload": {"customTitle": "Writing"}},
        ),
        ["user Read it", "assistant read (Open it.) (rewound)", "tool text ← read (rewound)", "user Write it"],
        {"title": "Writing", "model": "big", "folder": "/srv/x", "branch": "main", "input": 6},
    ),
    "kimi": Sample(
        "kimi",
        files(all={
            "wd_x/session_1/state.json": {"title": "Files", "workDir": "/srv/x", "createdAt": AT},
            "wd_x/session_1/agents/main/wire.jsonl": "\n".join(map(json.dumps, [
                {"type": "metadata", "protocol_version": "1.4"},
                {"type": "turn.prompt", "input": [{"type": "text", "text": "List"}]},
                {"type": "context.append_message", "time": 1_700_000_000_000, "message": {
                    "role": "user", "content": [{"type": "text", "text": "List"}], "origin": {"kind": "user"}}},
                {"type": "context.append_loop_event", "event": {"type": "content.part",
                                                                "part": {"type": "think", "think": "ls"}}},
                {"type": "context.append_loop_event", "event": {"type": "tool.call", "toolCallId": "k", "name": "Bash",
                                                                "args": {}}},
                {"type": "context.append_loop_event", "event": {"type": "tool.result", "toolCallId": "k",
                                                                "result": {"output": "a.txt"}}},
                {"type": "context.append_loop_event", "event": {"type": "step.end", "usage": {"inputOther": 3}}},
                {"type": "teleport"}])),
        }),
        ["user List", "assistant (ls)", "assistant Bash", "tool a.txt ← Bash"],
        {"title": "Files", "folder": "/srv/x", "input": 3, "unknown": "teleport"},
    ),
    "kimi-cli": Sample(
        "kimi",
        lines("md5/old/context.jsonl", {"role": "_system_prompt", "content": "You are"},
              {"role": "user", "content": "Hi"},
              {"role": "assistant", "content": [{"type": "text", "text": "Hello"}], "tool_calls": [
                  {"id": "k", "function": {"name": "ls", "arguments": "{}"}}]},
              {"role": "tool", "tool_call_id": "k", "content": "a.txt"}),
        ["user Hi", "assistant Hello ls", "tool a.txt ← ls"],
    ),
    "droid": Sample(
        "droid",
        lines(
            "d1.jsonl",
            {"type": "session_start", "id": "d1", "title": "Run", "cwd": "/srv/x"},
            {"type": "message", "id": "1", "timestamp": AT, "message": {"role": "user", "content": [
                {"type": "text", "text": "Run it"}]}},
            {"type": "message", "id": "2", "timestamp": AT, "message": {"role": "assistant", "content": [
                {"type": "tool_use", "id": "k", "name": "Execute", "input": {}}]}},
            {"type": "message", "id": "3", "timestamp": AT, "message": {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "k", "content": "failed"}]}},
        ),
        ["user Run it", "assistant Execute", "tool failed ← Execute"],
        {"title": "Run", "folder": "/srv/x"},
    ),
    "droid stream": Sample(
        "droid",
        lines(
            "log.jsonl",
            {"type": "message", "session_id": "d2", "timestamp": AT, "role": "user", "text": "Go"},
            {"type": "tool_call", "session_id": "d2", "toolCallId": "k", "toolName": "Shell", "parameters": {}},
            {"type": "tool_result", "session_id": "d2", "toolCallId": "k", "value": {"stdout": "hi", "exitCode": 0}},
            {"type": "completion", "session_id": "d2", "finalText": "Done", "id": "end"},
        ),
        ["user Go", "assistant Shell", 'tool {"stdout": "hi", "exitCode": 0} ← Shell', "assistant Done"],
    ),
    "openclaw": Sample(
        "openclaw",
        lines(
            "o1.jsonl",
            {"type": "session", "id": "o1", "version": 3, "timestamp": AT, "cwd": "/srv/x"},
            {"type": "model_change", "id": "mc", "modelId": "big", "provider": "acme"},
            claw(1, 0, "user", [{"type": "text", "text": "List"}]),
            claw(2, 1, "assistant", [{"type": "thinking", "thinking": "ls"},
                 {"type": "toolCall", "id": "k", "name": "exec", "arguments": {}}], usage={"input": 4, "output": 1}),
            claw(3, 2, "toolResult", "a.txt", toolCallId="k", toolName="exec"),
            claw(4, 3, "user", "Read HEARTBEAT.md if it exists"),
            claw(5, 1, "user", "List again"),
        ),
        ["user List", "assistant exec (ls)", "tool a.txt ← exec", "system Read HEARTBEAT.md if it exists",
         "user List again"],
        {"model": "big", "folder": "/srv/x", "input": 4, "output": 1},
    ),
    "openclaw database": Sample(
        "openclaw",
        database(
            "openclaw-agent.sqlite",
            "CREATE TABLE transcript_events (session_id TEXT, seq INT, event_json TEXT, created_at INT);"
            "CREATE TABLE session_windows (session_id TEXT, previous_session_id TEXT, reason TEXT, model TEXT);"
            "CREATE TABLE auth_profile_store (secret TEXT);",
            ("session_windows", ("w1", None, "new", "big")),
            ("transcript_events", ("w1", 1, json.dumps(claw(1, 0, "user", "Hello")), 1)),
            ("transcript_events", ("w1", 2, json.dumps(claw(2, 1, "assistant", "Hi")), 2)),
            ("transcript_events", ("w1", 3, "{broken", 3)),
        ),
        ["user Hello", "assistant Hi"],
        {"model": "big", "broken": "not JSON"},
    ),
    "hermes 0.19": Sample(
        "hermes",
        database("state.db", HERMES.format(hash=""), hermes_session("h1", None, "Be kind.", "compression"),
                 hermes_session("h2", "h1", "Be kind.", None), *HERMES_ROWS),
        ["user Fix the build (compacted)", "user Never mind (rewound)", "assistant sh (Look.)", "tool ok ← sh",
         "user Go on"],
        {"title": "Build", "model": "big", "folder": "/srv/x", "branch": "main", "input": 10, "prompt": "Be kind."},
    ),
    "hermes 0.20": Sample(
        "hermes",
        database("state.db", HERMES.format(hash="_hash") + "CREATE TABLE system_prompts (hash TEXT, content TEXT);",
                 ("system_prompts", ("abc", "Be brief.")), hermes_session("h1", None, "abc", "compression"),
                 hermes_session("h2", "h1", "abc", None), *HERMES_ROWS),
        ["user Fix the build (compacted)", "user Never mind (rewound)", "assistant sh (Look.)", "tool ok ← sh",
         "user Go on"],
        {"title": "Build", "prompt": "Be brief.", "output": 2},
    ),
    "hermes export": Sample(
        "hermes",
        lines("export.jsonl", {"id": "e1", "source": "cli", "title": "Kept", "model": "big", "started_at": 1.7e9,
              "input_tokens": 3, "messages": [{"id": 1, "role": "user", "content": "Hi", "timestamp": 1.7e9},
                                              {"id": 2, "role": "assistant", "content": "Hello", "timestamp": 1.7e9}]}),
        ["user Hi", "assistant Hello"],
        {"title": "Kept", "model": "big", "input": 3},
    ),
    "hermes session file": Sample(
        "hermes",
        files(all={"session_1.json": {"session_id": "j1", "model": "big", "platform": "cli", "session_start": AT,
                                      "messages": [{"role": "user", "content": "Hi"}]}}),
        ["user Hi"],
        {"model": "big"},
    ),
    "chatgpt": Sample(
        "chatgpt",
        zipped("conversations.json", [{"title": "broken"}, {
            "id": "g1", "title": "A question", "create_time": 1_700_000_000, "current_node": "4b", "mapping": {
                "root": {"id": "root", "parent": None, "children": [], "message": None},
                **node("1", "root", "system", ""),
                **node("2", "1", "user", "What is it?", {"content_type": "image_asset_pointer"}),
                **node("3", "2", "assistant", "A thing.", metadata={"model_slug": "gpt-x"}),
                **node("4a", "3", "user", "Why?"),
                **node("4b", "3", "user", "How?")}}]),
        ["user What is it?", "assistant A thing.", "user Why? (rewound)", "user How?"],
        {"title": "A question", "model": "gpt-x", "broken": "not a conversation"},
    ),
    "claude.ai": Sample(
        "claude-ai",
        zipped("conversations.json", [{"uuid": "a1", "name": "Plans", "created_at": AT, "chat_messages": [
            {"uuid": "1", "sender": "human", "created_at": AT, "text": "Plan", "content": [],
             "attachments": [{"file_name": "a.txt", "extracted_content": "Sea"}]},
            {"uuid": "2", "sender": "assistant", "created_at": AT, "content": [
                {"type": "thinking", "thinking": "Look."},
                {"type": "tool_use", "id": "k", "name": "search", "input": {}},
                {"type": "tool_result", "tool_use_id": "k", "content": [{"type": "text", "text": "found"}]},
                {"type": "text", "text": "Go there."}]}]}]),
        ["user Plan\n[a.txt]\nSea", "assistant search (Look.)", "tool found ← search", "assistant Go there."],
        {"title": "Plans"},
    ),
    "messages": Sample(
        "messages",
        lines("m.jsonl", {"role": "user", "content": "Hi", "timestamp": AT, "model": "big"},
              {"role": "assistant", "content": None, "tool_calls": [{"id": "k", "type": "function", "function": {
                  "name": "ls", "arguments": "{}"}}]},
              {"role": "tool", "tool_call_id": "k", "content": "a.txt"},
              {"type": "error", "text": "x"}),
        ["user Hi", "assistant ls", "tool a.txt ← ls"],
        {"model": "big", "unknown": "error"},
    ),
    "markdown": Sample(
        "markdown",
        lines("talk.md", "---\ntitle: Deploying\ndate: 2024-03-15\n---\n# Notes", "## User", "How do I deploy?", "",
              "## Assistant", "```sh\n## User\nmake\n```", "## User", "Thanks."),
        ["user How do I deploy?", "assistant ```sh\n## User\nmake\n```", "user Thanks."],
        {"title": "Deploying"},
    ),
}  # fmt: skip


def line(message: Any) -> str:
    content = message.content
    if isinstance(content, list):
        content = " ".join(part.get("text", "") for part in content)
    pieces = [message.role, content, *(call["function"]["name"] for call in message.tool_calls)]
    pieces += [f"({message.reasoning})"] if message.reasoning else []
    pieces += [f"← {message.tool_name}"] if message.tool_name else []
    pieces += [f"({message.hidden})"] if message.hidden else []
    return " ".join(filter(None, pieces))


@of_files
@pytest.mark.parametrize("name", SAMPLES)
def test_a_format_is_read_whole_in_order_and_once(h: Herma, tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    folder = tmp_path / "original"
    folder.mkdir()
    place = sample.write(folder)
    before = {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}
    imports = Imports(h)
    assert imports.recognise(place)[0] == sample.source
    report = imports.run(sample.source, place)
    sessions = sorted(h.transcripts.list(), key=lambda one: one.started)
    everything = [h.transcripts.get(row[0]) for row in h.db.rows("SELECT id FROM sessions ORDER BY key", {})]
    said = [line(m) for one in everything if one for m in h.transcripts.messages(one.id, include_hidden=True)]
    assert said == sample.said
    assert (report.messages, len(sessions)) == (len(sample.said), 1)
    (info, *_), about = [one for one in everything if one], dict(sample.about)
    problems = {kind for one in report.problems for kind in (*one.unknown, *one.broken)}
    assert problems == {about.pop(kind) for kind in ("unknown", "broken") if kind in about}
    if prompt := about.pop("prompt", None):
        assert h.transcripts.system_prompt(info.id) == prompt
    usage = {name: about.pop(name) for name in ("input", "output") if name in about}
    assert {name: getattr(info.usage, name) for name in usage} == usage
    assert {name: getattr(info, name) for name in about} == about
    h.db.run("DELETE FROM import_files", {})  # read again from the beginning
    assert imports.run(sample.source, place).messages == 0
    assert before == {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_lineage_of_hermes_is_kept(h: Herma, tmp_path: Path) -> None:
    place = SAMPLES["hermes 0.19"].write(tmp_path)
    Imports(h).run("hermes", place)
    child = h.transcripts.get("hermes-h2")
    assert child is not None
    assert (child.parent, child.reason, child.conversation) == ("hermes-h1", "compression", "hermes-h1")
    with sqlite3.connect(place) as connection:
        connection.execute("INSERT INTO messages VALUES (6, 'h2', 'user', 'More', 0, 0, 0, 1700000020, 0, 1, 0)")
        connection.execute("UPDATE sessions SET input_tokens = 70 WHERE id = 'h2'")
    connection.close()
    assert Imports(h).run("hermes", place).messages == 1
    child = h.transcripts.get("hermes-h2")
    assert child is not None
    assert child.usage.input == 70


def test_a_message_that_is_written_again_takes_the_place_of_the_first(h: Herma, tmp_path: Path) -> None:
    begun = {"id": "2", "timestamp": AT, "type": "gemini", "content": "Hi"}
    call = {"id": "t", "name": "wave", "args": {}}
    texts = ({**begun}, {**begun, "content": "Hi there", "toolCalls": [call]})
    for end in (1, 2):
        file = lines("session-a.jsonl", {"sessionId": "g", "projectHash": "x"}, *texts[:end])(tmp_path)
        Imports(h).run("gemini", file)
    (message,) = h.transcripts.messages("gemini-g")
    assert (message.content, len(message.tool_calls)) == ("Hi there", 1)
    assert Imports(h).run("gemini", file).messages == 0
    Imports(h).undo(2)
    assert [message.content for message in h.transcripts.messages("gemini-g")] == ["Hi"]


def test_what_a_fork_of_codex_repeats_stays_in_the_session_it_was_forked_from(h: Herma, tmp_path: Path) -> None:
    def said(role: str, text: str, at: str) -> dict[str, Any]:
        message = codex("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])
        return {**message, "timestamp": at}

    def spent(total: int) -> dict[str, Any]:
        info = {"total_token_usage": {"input_tokens": total}, "last_token_usage": {"input_tokens": 9}}
        return codex("event_msg", type="token_count", info=info)

    first, forked = codex("session_meta", id="p1"), codex("session_meta", id="f1", forked_from_id="p1")
    history = [said("user", "List files", AT), said("assistant", "a.txt", AT), spent(9)]
    lines("2024/rollout-1-p1.jsonl", first, *history, said("user", "Read it", AT))(tmp_path / "sessions")
    later = "2024-02-04T10:00:00Z"
    copies = [{**one, "timestamp": later} for one in history]
    fork = lines("2025/rollout-2-f1.jsonl", forked, first, *copies, said("user", "List files", later), spent(18))
    file = fork(tmp_path / "sessions")
    assert Imports(h).run("codex", tmp_path / "sessions").messages == 4
    assert [message.content for message in h.transcripts.messages("codex-f1")] == ["List files"]
    session = h.transcripts.get("codex-f1")
    assert session is not None
    assert (session.parent, session.reason, session.usage.input) == ("codex-p1", "branch", 9)
    with file.open("a") as grown:
        grown.write(json.dumps(said("assistant", "a.txt", later)) + "\n")
    assert Imports(h).run("codex", tmp_path / "sessions").messages == 1


@of_files
@pytest.mark.parametrize("copied", [0, 1 << 26])
def test_rows_that_are_still_in_the_log_of_a_database_are_read(
    h: Herma, tmp_path: Path, copied: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("herma.importers.base._COPIED", copied)
    place = SAMPLES["hermes 0.19"].write(tmp_path)
    writer = sqlite3.connect(place)
    writer.execute("PRAGMA journal_mode = WAL")
    assert Imports(h).run("hermes", place).messages == 5
    writer.execute("INSERT INTO messages VALUES (6, 'h2', 'user', 'More', 0, 0, 0, 1700000020, 0, 1, 0)")
    writer.commit()
    before = {file: file.read_bytes() for file in tmp_path.glob("state.db*") if file.suffix != ".db-shm"}
    assert Imports(h).run("hermes", place).messages == 1
    assert before == {file: file.read_bytes() for file in tmp_path.glob("state.db*") if file.suffix != ".db-shm"}
    writer.close()


@of_files
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("**You:** a?\n\n**ChatGPT:** b\n\nc", [("user", "a?"), ("assistant", "b\n\nc")]),
        ("**Ann Lee** (2024-03-15 9:00 AM): a\n**Bo Ray** (2024-03-15 9:01 PM): b",
         [("user", "Ann Lee: a"), ("user", "Bo Ray: b")]),
        ("[15/03/24, 18:37:00] Ann Lee: a\n[15/03/24, 18:37:30] Bo Ray: b",
         [("user", "Ann Lee: a"), ("user", "Bo Ray: b")]),
        ("3/15/24, 6:37 PM - Ann Lee: a\nstill a\n3/15/24, 6:38 PM - Bo Ray: b",
         [("user", "Ann Lee: a\nstill a"), ("user", "Bo Ray: b")]),
        ("18:37 <ann> a\n18:38 <bo> b", [("user", "ann: a"), ("user", "bo: b")]),
        ("User: a\nAssistant: b", [("user", "a"), ("assistant", "b")]),
    ],
)  # fmt: skip
def test_saved_chats_are_divided_into_turns(h: Herma, tmp_path: Path, text: str, said: list[tuple[str, str]]) -> None:
    (tmp_path / "chat.txt").write_text(text)
    Imports(h).run("markdown", tmp_path / "chat.txt")
    (session,) = h.transcripts.list()
    assert [(message.role, message.content) for message in h.transcripts.messages(session.id)] == said


@of_files
def test_a_text_that_is_not_a_conversation_is_reported(h: Herma, tmp_path: Path) -> None:
    (tmp_path / "readme.md").write_text("# Shop\n\n## Install\n\nRun make.\n\n**Note:** it is slow.\n")
    (problem,) = Imports(h).run("markdown", tmp_path).problems
    assert problem.broken == {"no conversation was found in it": 1}


@of_files
def test_a_compressed_file_is_read(h: Herma, tmp_path: Path) -> None:
    import zstandard

    file = SAMPLES["codex"].write(tmp_path)
    frames = [zstandard.compress(one) for one in file.read_bytes().splitlines(keepends=True)]
    file.with_name(file.name + ".zst").write_bytes(b"".join(frames))
    file.unlink()
    assert Imports(h).run("codex", tmp_path).messages == 9


@of_files
def test_one_file_that_cannot_be_read_stops_no_other(h: Herma, tmp_path: Path) -> None:
    SAMPLES["hermes 0.19"].write(tmp_path)
    (tmp_path / "profiles" / "x").mkdir(parents=True)
    (tmp_path / "profiles" / "x" / "state.db").write_bytes(b"SQLite format 3\0" + b"garbage" * 900)
    report = Imports(h).run("hermes", tmp_path)
    assert report.messages == 5
    (problem,) = report.problems
    assert "database: file is not a database" in problem.broken
    assert Imports(h).run("hermes", tmp_path).unchanged == 1  # the other one is tried again


class TestEveryReader(ImporterContract):
    """Our own readers keep what is asked of others; the samples with a single file serve."""

    @pytest.fixture(params=[name for name, one in SAMPLES.items() if one.source not in ("markdown",)])
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture
    def reader(self, name: str) -> FormatReader:
        return readers()[SAMPLES[name].source]

    @pytest.fixture
    def sample(self, name: str, tmp_path: Path) -> Path:
        place = SAMPLES[name].write(tmp_path)
        return place if place.is_file() else next(readers()[SAMPLES[name].source].files(place))
