"""Transcripts of other programs: everything once, in order, whatever is broken in them, and taken back as one."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

import pytest

from herma import Herma
from herma.errors import UsageError
from herma.importers.base import Machine, ReadLog, moment
from herma.importers.pipeline import Imports


def line(number: int, kind: str, content: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "uuid": f"u{number}",
        "parentUuid": f"u{number - 1}" if number > 1 else None,
        "sessionId": "s1",
        "timestamp": f"2023-05-01T10:00:{number:02}Z",
        "cwd": "/work/shop",
        "gitBranch": "main",
        "message": {"role": kind, "content": content},
        **more,
    }


def answer(number: int, *parts: dict[str, Any], call: str = "m1") -> dict[str, Any]:
    record = line(number, "assistant", list(parts))
    usage = {"input_tokens": 10, "output_tokens": 2, "cache_read_input_tokens": 100}
    record["message"] |= {"id": call, "model": "claude-sonnet-5", "usage": usage}
    return record


TALK: list[dict[str, Any]] = [
    {"type": "custom-title", "sessionId": "s1", "customTitle": "Fix the cart"},
    {"type": "ai-title", "sessionId": "s1", "aiTitle": "Some title"},
    line(1, "user", "The cart loses items."),
    answer(2, {"type": "thinking", "thinking": "Look first.", "signature": "x"}),
    answer(3, {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls"}}),
    line(4, "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "cart.py"}]),
    {"type": "attachment", "uuid": "a1", "parentUuid": "u4", "sessionId": "s1"},
    answer(5, {"type": "text", "text": "It is the cache."}, call="m2"),
    line(6, "user", "The summary of before.", isCompactSummary=True),
]


@pytest.fixture
def projects(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "-work-shop"
    folder.mkdir(parents=True)
    return folder


def write(file: Path, records: list[Any], end: str = "\n") -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    texts = [record if isinstance(record, str) else json.dumps(record) for record in records]
    file.write_text("\n".join(texts) + end, encoding="utf-8")
    return file


def said(h: Herma, session: str = "claude-code-s1") -> list[tuple[str, Any]]:
    return [(message.role, message.content) for message in h.transcripts.messages(session)]


def test_everything_is_imported_once_and_in_order(h: Herma, projects: Path) -> None:
    write(projects / "s1.jsonl", TALK)
    importer = Imports(h)
    preview = importer.run("claude-code", projects, dry_run=True)
    assert (preview.sessions, preview.messages, preview.batch) == (1, 5, 0)
    assert h.transcripts.list() == []
    report = importer.run("claude-code", projects)
    assert (report.sessions, report.messages, report.known) == (1, 5, 0)
    assert report.skipped == {"attachment": 1, "compaction summary": 1}
    assert said(h) == [
        ("user", "The cart loses items."),
        ("assistant", None),
        ("assistant", None),
        ("tool", "cart.py"),
        ("assistant", "It is the cache."),
    ]
    kept = h.transcripts.messages("claude-code-s1")
    assert kept[1].reasoning == "Look first."
    assert kept[2].tool_calls[0]["function"] == {"name": "Bash", "arguments": '{"command": "ls"}'}
    assert (kept[3].tool_call_id, kept[3].tool_name) == ("t1", "Bash")
    assert kept[0].timestamp == moment("2023-05-01T10:00:01Z")
    info = h.transcripts.get("claude-code-s1")
    assert info is not None
    assert (info.title, info.model, info.folder, info.branch) == (
        "Fix the cart",
        "claude-sonnet-5",
        "/work/shop",
        "main",
    )
    assert info.imported is not None
    assert (info.usage.input, info.usage.output, info.usage.cache_read) == (20, 4, 200)  # once for each call
    for _ in range(2):
        again = importer.run("claude-code", projects)
        assert (again.messages, again.batch, again.unchanged) == (0, 0, 1)
    assert [hit.session_id for hit in h.search("cart loses items").hits] == ["claude-code-s1"]


def test_a_file_that_grew_adds_only_what_is_new(h: Herma, projects: Path) -> None:
    file = write(projects / "s1.jsonl", TALK[:4], end='\n{"type": "user", "uu')
    importer = Imports(h)
    first = importer.run("claude-code", projects)
    assert (first.messages, first.problems[0].broken) == (2, {"half-written last line": 1})
    write(file, TALK)
    assert importer.run("claude-code", projects).messages == 3
    copy = shutil.copy(file, projects / "s2.jsonl")  # a fork repeats the lines before it
    with Path(copy).open("a") as grown:
        grown.write(json.dumps(line(7, "user", "And now?")) + "\n")
    assert importer.run("claude-code", projects).messages == 1
    info = h.transcripts.get("claude-code-s1")
    assert info is not None
    assert (info.message_count, info.usage.output) == (6, 4)


def test_a_prompt_that_was_asked_again_begins_another_branch(h: Herma, projects: Path) -> None:
    records = [*TALK[:8], line(7, "user", "First try", parentUuid="u5"), line(8, "user", "Second try", parentUuid="u5")]
    write(projects / "s1.jsonl", records)
    Imports(h).run("claude-code", projects)
    assert said(h)[-2:] == [("assistant", "It is the cache."), ("user", "Second try")]
    write(projects / "s1.jsonl", [*records, line(9, "user", "Third try", parentUuid="u5")])
    Imports(h).run("claude-code", projects)
    third = Imports(h).run("claude-code", projects)
    assert said(h)[-2:] == [("assistant", "It is the cache."), ("user", "Third try")]
    assert (third.messages, third.batch) == (0, 0)
    Imports(h).undo(2)
    assert said(h)[-2:] == [("assistant", "It is the cache."), ("user", "Second try")]  # the undo shows it again


def test_what_was_read_earlier_is_completed(h: Herma, projects: Path) -> None:
    """A file that is read in pieces: the name of a tool that was called before, and a title that came later."""
    file = write(projects / "s1.jsonl", [*TALK[1:5]])
    Imports(h).run("claude-code", projects)
    write(file, [*TALK[1:], {"type": "custom-title", "sessionId": "s1", "customTitle": "The cart " + "x" * 200}])
    Imports(h).run("claude-code", projects)
    assert h.transcripts.messages("claude-code-s1")[3].tool_name == "Bash"
    info = h.transcripts.get("claude-code-s1")
    assert info is not None
    assert info.title == "The cart " + "x" * 90 + "…"
    h.transcripts.rename("claude-code-s1", "Mine")
    write(file, [*TALK[1:], {"type": "custom-title", "sessionId": "s1", "customTitle": "Theirs"}, line(9, "user", "x")])
    Imports(h).run("claude-code", projects)
    assert [one.title for one in h.transcripts.list()] == ["Mine"]


def test_sub_agents_follow_their_session(h: Herma, projects: Path) -> None:
    write(projects / "s1.jsonl", [*TALK, line(20, "user", "Look there.", isSidechain=True)])
    write(projects / "s1" / "subagents" / "agent-abc.jsonl", [line(1, "user", "Find it.", agentId="abc")])
    Imports(h).run("claude-code", projects)
    for name in ("abc", "s1-sidechain"):
        info = h.transcripts.get(f"claude-code-{name}")
        assert info is not None
        assert (info.parent, info.reason) == ("claude-code-s1", "delegation")
    assert [one.id for one in h.transcripts.list()] == ["claude-code-s1"]


def test_what_the_program_wrote_is_not_what_a_person_typed(h: Herma, projects: Path) -> None:
    reminder = "<system-reminder>\nBe brief.\n</system-reminder>"
    texts = ["<local-command-stdout>x</local-command-stdout>", reminder, f"{reminder}\nAnd the prices?"]
    write(projects / "s1.jsonl", [line(number, "user", text) for number, text in enumerate(texts, 1)])
    report = Imports(h).run("claude-code", projects)
    assert said(h) == [("system", texts[0]), ("user", "And the prices?")]
    assert report.skipped == {"text of the client's own": 1}


def test_broken_lines_are_counted_with_their_numbers(h: Herma, projects: Path) -> None:
    glued = json.dumps(TALK[2]) + json.dumps(TALK[3])
    write(projects / "s1.jsonl", ["not json", "[1]", {"type": "new-kind"}, {"type": "user"}, "", glued, '{"a":' * 9000])
    report = Imports(h).run("claude-code", projects)
    (problem,) = report.problems
    assert report.messages == 2
    assert problem.unknown == {"new-kind": 1}
    assert problem.broken == {
        "not JSON": 1,
        "nested too deep": 1,
        "not an object": 1,
        "message without a uuid or a body": 1,
    }
    assert (problem.lines["not JSON"], problem.lines["nested too deep"]) == ([1], [7])


def test_an_import_is_undone_as_one_and_can_be_done_again(h: Herma, projects: Path) -> None:
    file = write(projects / "s1.jsonl", TALK[:4])
    importer = Imports(h)
    first = importer.run("claude-code", projects)
    write(file, TALK)
    write(projects / "s2.jsonl", [line(1, "user", "Else", sessionId="s2")])
    second = importer.run("claude-code", projects)
    assert importer.undo(second.batch) == 1
    assert [one.id for one in h.transcripts.list()] == ["claude-code-s1"]
    assert len(said(h)) == 2
    again = importer.run("claude-code", projects)
    assert (again.messages, len(said(h)), len(h.transcripts.list())) == (3, 5, 2)
    for batch in (again.batch, first.batch):
        importer.undo(batch)
    assert h.transcripts.list() == []
    assert [batch.undone is not None for batch in importer.batches()] == [True, True, True]
    importer.run("claude-code", projects)
    assert len(said(h)) == 5
    with pytest.raises(UsageError, match="no import 99"):
        importer.undo(99)


def test_what_a_person_deleted_does_not_come_back(h: Herma, projects: Path) -> None:
    file = write(projects / "s1.jsonl", TALK[:4])
    importer = Imports(h)
    importer.run("claude-code", projects)
    h.transcripts.delete("claude-code-s1")
    write(file, TALK)
    report = importer.run("claude-code", projects)
    assert (report.messages, report.deleted) == (0, 1)
    assert h.transcripts.list() == []


def test_titles_that_are_taken_get_the_next_number(h: Herma, projects: Path) -> None:
    write(projects / "s1.jsonl", TALK)
    other = [json.loads(json.dumps(record).replace("s1", "s2")) for record in TALK]
    write(projects / "s2.jsonl", other)
    Imports(h).run("claude-code", projects)
    assert {one.title for one in h.transcripts.list()} == {"Fix the cart", "Fix the cart #2"}


def test_only_what_is_newer_and_without_credentials(h: Herma, projects: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    write(projects / "s1.jsonl", [*TALK, line(9, "user", f"Use {token} there.")])
    since = moment("2023-05-01T10:00:05Z")
    Imports(h).run("claude-code", projects, since=since, redact=True)
    texts = [content for _, content in said(h)]
    assert texts[0] == "It is the cache."
    assert token not in texts[1]
    assert Imports(h).run("claude-code", projects).messages == 4  # the rest, later


def test_what_is_on_this_machine_is_found(h: Herma, tmp_path: Path) -> None:
    write(tmp_path / ".claude" / "projects" / "-a" / "s1.jsonl", TALK)
    found = Imports(h, Machine(tmp_path)).discover()
    assert [(one.source, one.files) for one in found] == [("claude-code", 1)]
    no_place = {"CODEX_HOME": "/x" * 3_000, "QWEN_HOME": "x" * 300}  # no system call takes these
    assert Imports(h, Machine(tmp_path / "nobody", no_place)).discover() == []
    with pytest.raises(UsageError, match="No transcripts of Claude Code"):
        Imports(h, Machine(tmp_path / "nobody")).run("claude-code")
    with pytest.raises(UsageError, match="Unknown source 'x'"):
        Imports(h).run("x")


def test_a_file_is_recognised(h: Herma, projects: Path) -> None:
    file = write(projects / "s1.jsonl", TALK)
    importer = Imports(h)
    assert importer.recognise(file) == importer.recognise(projects.parent) == ["claude-code"]
    write(projects / "a.jsonl", [{"role": "user", "content": "Hello"}])
    write(projects / "noise.json", ["{}"])
    assert set(importer.recognise(projects)) == {"claude-code", "messages"}  # each file by the reader that knows it
    assert [file.name for file in importer.files("messages", projects)] == ["a.jsonl"]
    assert importer.files("claude-code", projects) == [file]
    with pytest.raises(UsageError, match="not in a format that Herma imports"):
        importer.recognise(write(projects / "other.txt", ["hello"]))


def test_a_line_without_end_costs_no_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("herma.importers.base.MAX_LINE", 100)
    log = ReadLog()
    records = list(log.json_lines(write(tmp_path / "x.jsonl", [{"a": "b" * 500}, {"c": 1}])))
    assert records == [{"c": 1}]
    assert log.broken == {"line over 64 MB": 1}


def test_episodes_of_imported_conversations_are_made_in_the_background(h: Herma, projects: Path) -> None:
    write(projects / "s1.jsonl", TALK)
    Imports(h).run("claude-code", projects)
    deadline = time.monotonic() + 30
    while not (found := h.episodes.list()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert [(one.task, one.source) for one in found] == [("The cart loses items.", "import")]
