"""Each format: everything in order, with what calls what; twice adds nothing; what is unknown or broken is reported."""

from __future__ import annotations

import json
import shutil
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
MORE = "INSERT INTO messages (session_id, role, content, timestamp) VALUES ('h2', 'user', 'More', 1700000020)"
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


def copied(name: str, file: str = ".") -> Callable[[Path], Path]:
    """A transcript as its program wrote it, from the folder `transcripts/NAME`; databases are there as SQL."""

    def write(folder: Path) -> Path:
        shutil.copytree(Path(__file__).with_name("transcripts") / name, folder, dirs_exist_ok=True)
        for script in folder.rglob("*.sql"):
            connection = sqlite3.connect(script.with_suffix(""))
            connection.executescript(script.read_text("utf-8"))
            connection.close()
            script.unlink()
        return folder / file

    return write


def zipped(name: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        with zipfile.ZipFile(folder / "export.zip", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.write(copied(name, "conversations.json")(folder / "export"), "data/conversations.json")
            archive.writestr("users.json", "[]")
        shutil.rmtree(folder / "export")
        return folder / "export.zip"

    return write


def codex(kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": AT, "type": kind, "payload": payload}


SAMPLES = {
    "codex": Sample(
        "codex",
        copied("codex", "rollout-2024-02-03T10-00-00-0198a1b2-0000-7000-8000-000000000001.jsonl"),
        ["system <environment_context>linux</environment_context>", "user List files", "assistant (Use ls.)",
         "assistant shell", "tool a.txt ← shell", "assistant There is a.txt.", "user Delete it (rewound)",
         "assistant Gone. (rewound)", "user Keep it"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "branch": "main", "input": 5, "output": 2,
         "unknown": "item strange_thing"},
    ),
    "codex of 2025": Sample(
        "codex",
        copied("codex_of_2025", "rollout-2025-02-03T10-00-00-0198a1b2-0000-7000-8000-000000000001.jsonl"),
        ["user Which branch?", "assistant git", "tool On main ← git", "assistant main"],
        {"model": "small"},
    ),
    "gemini": Sample(
        "gemini",
        copied("gemini", "tmp/shop/chats/session-2024-02-03T10-00-ab.jsonl"),
        ["user Say hi", "assistant wave (Greet.)", "tool waved ← wave", "assistant Hi!", "user Bad idea (rewound)",
         "user Good idea"],
        {"model": "big", "folder": "/srv/x", "input": 7, "unknown": "odd"},
    ),
    "gemini before 0.40": Sample(
        "gemini",
        copied("gemini_before_0_40"),
        ["user Hello", "assistant Hi"],
    ),
    "antigravity": Sample(
        "antigravity",
        copied("antigravity", "a1.jsonl"),
        ["user List", "assistant list_dir (ls)", "tool a.txt ← list_directory"],
    ),
    "cursor agent": Sample(
        "cursor",
        copied("cursor_agent", "projects/x/agent-transcripts/cu1/cu1.jsonl"),
        ["user Run ls", "assistant Running. Shell"],
        {"title": "Run it", "model": "big"},
    ),
    "cursor editor": Sample(
        "cursor",
        copied("cursor_editor", "globalStorage/state.vscdb"),
        ["user Fix it", "assistant Done edit (Hm)", "tool edited ← edit"],
        {"title": "A chat", "folder": "/srv/my shop",
         "broken": "message that the chat names, but the database does not have"},
    ),
    "opencode": Sample(
        "opencode",
        copied("opencode", "opencode.db"),
        ["user Show a.txt", "assistant It says hello. bash (Use cat.)", "tool hello ← bash"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "input": 5, "unknown": "part hologram"},
    ),
    "opencode before 1.2": Sample(
        "opencode",
        copied("opencode_before_1_2"),
        ["user Hello"],
        {"title": "Old", "folder": "/srv/y"},
    ),
    "copilot": Sample(
        "copilot",
        copied("copilot", "s/events.jsonl"),
        ["user List", "assistant bash", "tool a.txt ← bash"],
        {"model": "big", "folder": "/srv/x", "branch": "main", "output": 4, "unknown": "quantum.event"},
    ),
    "goose": Sample(
        "goose",
        copied("goose", "sessions.db"),
        ["user List", "assistant shell", "tool a.txt ← shell"],
        {"title": "Files", "model": "big", "folder": "/srv/x", "input": 8, "output": 3},
    ),
    "qwen": Sample(
        "qwen",
        copied("qwen", "q1.jsonl"),
        ["user Read it", "assistant read (Open it.) (rewound)", "tool text ← read (rewound)", "user Write it"],
        {"title": "Writing", "model": "big", "folder": "/srv/x", "branch": "main", "input": 6},
    ),
    "kimi": Sample(
        "kimi",
        copied("kimi"),
        ["user List", "assistant (ls)", "assistant Bash", "tool a.txt ← Bash"],
        {"title": "Files", "folder": "/srv/x", "input": 3, "unknown": "teleport"},
    ),
    "kimi-cli": Sample(
        "kimi",
        copied("kimi_cli", "md5/old/context.jsonl"),
        ["user Hi", "assistant Hello ls", "tool a.txt ← ls"],
    ),
    "droid": Sample(
        "droid",
        copied("droid", "d1.jsonl"),
        ["user Run it", "assistant Execute", "tool failed ← Execute"],
        {"title": "Run", "folder": "/srv/x"},
    ),
    "droid stream": Sample(
        "droid",
        copied("droid_stream", "log.jsonl"),
        ["user Go", "assistant Shell", 'tool {"stdout": "hi", "exitCode": 0} ← Shell', "assistant Done"],
    ),
    "openclaw": Sample(
        "openclaw",
        copied("openclaw", "o1.jsonl"),
        ["user List", "assistant exec (ls)", "tool a.txt ← exec", "system Read HEARTBEAT.md if it exists",
         "user List again"],
        {"model": "big", "folder": "/srv/x", "input": 4, "output": 1},
    ),
    "openclaw database": Sample(
        "openclaw",
        copied("openclaw_database", "openclaw-agent.sqlite"),
        ["user Hello", "assistant Hi"],
        {"title": "Chat", "model": "big", "broken": "not JSON"},
    ),
    "hermes 0.19": Sample(
        "hermes",
        copied("hermes_0_19", "state.db"),
        ["user Fix the build (compacted)", "user Never mind (rewound)", "assistant sh (Look.)", "tool ok ← sh",
         "user Go on"],
        {"title": "Build", "model": "big", "folder": "/srv/x", "branch": "main", "input": 10, "prompt": "Be kind."},
    ),
    "hermes 0.20": Sample(
        "hermes",
        copied("hermes_0_20", "state.db"),
        ["user Fix the build (compacted)", "user Never mind (rewound)", "assistant sh (Look.)", "tool ok ← sh",
         "user Go on"],
        {"title": "Build", "prompt": "Be brief.", "output": 2},
    ),
    "hermes export": Sample(
        "hermes",
        copied("hermes_export", "export.jsonl"),
        ["user Hi", "assistant Hello"],
        {"title": "Kept", "model": "big", "input": 3},
    ),
    "hermes session file": Sample(
        "hermes",
        copied("hermes_session_file"),
        ["user Hi"],
        {"model": "big"},
    ),
    "chatgpt": Sample(
        "chatgpt",
        zipped("chatgpt"),
        ["user What is it?", "assistant A thing.", "user Why? (rewound)", "user How?"],
        {"title": "A question", "model": "gpt-x", "broken": "not a conversation"},
    ),
    "claude.ai": Sample(
        "claude-ai",
        zipped("claude_ai"),
        ["user Plan\n[a.txt]\nSea", "assistant search (Look.)", "tool found ← search", "assistant Go there."],
        {"title": "Plans"},
    ),
    "messages": Sample(
        "messages",
        copied("messages", "m.jsonl"),
        ["user Hi", "assistant ls", "tool a.txt ← ls"],
        {"model": "big", "unknown": "error"},
    ),
    "markdown": Sample(
        "markdown",
        copied("markdown", "talk.md"),
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
        connection.execute(MORE)
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
    for number, parent in enumerate(("*", "../../x", "[", "gone")):  # nobody's: the whole file is its own
        meta = codex("session_meta", id=f"odd{number}", forked_from_id=parent)
        lines(f"2026/rollout-3-odd{number}.jsonl", meta, *copies)(tmp_path / "sessions")
    report = Imports(h).run("codex", tmp_path / "sessions")
    assert (report.messages, report.problems) == (8, [])


def test_a_message_of_claude_code_in_an_unknown_form_is_reported(h: Herma, tmp_path: Path) -> None:
    record = {"type": "user", "uuid": "u", "sessionId": "s", "parentUuid": None, "message": {"role": "user"}}
    file = lines("s.jsonl", {**record, "toolUseResult": {"stdout": "done"}})(tmp_path)
    report = Imports(h).run("claude-code", file)
    assert [problem.unknown for problem in report.problems] == [{"message without content": 1}]
    assert [message.content for message in h.transcripts.messages("claude-code-s")] == ['{"stdout": "done"}']


def test_what_a_parent_said_after_a_fork_takes_nothing_from_the_fork(h: Herma, tmp_path: Path) -> None:
    def said(role: str, text: str, at: str) -> dict[str, Any]:
        message = codex("response_item", type="message", role=role, content=[{"type": "input_text", "text": text}])
        return {**message, "timestamp": at}

    forked = {**codex("session_meta", id="f1", forked_from_id="p1"), "timestamp": "2024-02-04T10:00:00Z"}
    history, after = [said("user", "List files", AT), said("assistant", "a.txt", AT)], "2024-02-05T10:00:00Z"
    on = said("user", "Go on", after)
    lines("rollout-1-p1.jsonl", codex("session_meta", id="p1"), *history, on)(tmp_path / "sessions")
    lines("rollout-2-f1.jsonl", forked, *history, on, said("assistant", "b", after))(tmp_path / "sessions")
    Imports(h).run("codex", tmp_path / "sessions")
    assert [message.content for message in h.transcripts.messages("codex-f1")] == ["Go on", "b"]


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
    writer.execute(MORE)
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


@of_files
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
