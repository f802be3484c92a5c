"""`herma sessions`: looking at conversations, marking them, clearing them out. Real homes, real commands."""

from __future__ import annotations

import os
import pty
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import apsw
import pytest
from click.testing import CliRunner
from tests.homes import Ran, herma

from herma import Herma, Scope
from herma.cli.context import CommandContext
from herma.cli.main import cli
from herma.cli.output import short_when, when
from herma.transcript.cli import sessions

DAY = 86_400.0
TOPICS = ("login bug", "deploy pipeline", "数据库迁移", "キャッシュ", "invoice export")
HOSTILE = "red \x1b[31malert\x1b[0m \u202ereversed \x07 ｗｉｄｅ"


@dataclass(frozen=True)
class Full:
    """A home with a few dozen sessions, and somebody who types commands at it."""

    home: Path
    long: str
    went_on: str
    helper: str

    def __call__(self, *words: str) -> Ran:
        return herma(self.home, "sessions", *words)


@pytest.fixture
def full(home: Path) -> Full:
    now = time.time()
    with Herma.open(home) as h:
        t = h.transcripts
        for n in range(30):
            at = now - (203 - n * 5) * DAY
            one = t.start(
                ("cli", "telegram", "cron")[n % 3],
                title=f"{TOPICS[n % 5]} {n}" if n % 4 == 0 else None,
                scope=Scope(project="/src/shop" if n % 2 else ""),
                model="large-1" if n % 2 else "small-1",
                started=at,
                session_id=f"s{n:03}-{n * 7919 % 1000:03}",
            )
            call = {"id": "1", "function": {"name": "terminal", "arguments": '{"command": "make test"}'}}
            t.append(
                one,
                [
                    {"role": "user", "content": f"Look at the {TOPICS[n % 5]}, {n}.", "timestamp": at},
                    {"role": "assistant", "content": HOSTILE, "tool_calls": [call], "timestamp": at + 1},
                    {"role": "tool", "tool_name": "terminal", "content": "line\n" * 500, "timestamp": at + 2},
                ],
            )
            if n % 2:
                t.end(one, "closed")
        long = t.start("cli", title="Long story")
        t.append(long, [{"role": ("user", "assistant")[n % 2], "content": f"turn {n}"} for n in range(90)])
        went_on = t.start("cli", parent=long, reason="compression")
        t.append(went_on, [{"role": "user", "content": "and on"}])
        helper = t.start("subagent", parent=went_on, reason="delegation")
        t.append(helper, [{"role": "user", "content": "help me"}])
    return Full(home, long, went_on, helper)


# ── list ──


def test_one_conversation_is_one_line(full: Full) -> None:
    out = full("list", "--limit", "50").out
    assert len(out.splitlines()) == 1 + 31
    assert full.went_on in out
    assert full.long not in out
    assert "Long story #2" in out
    assert "91" in out
    assert full.helper not in out
    assert full.helper in full("list", "--limit", "50", "--all").out


def test_lists_can_be_narrowed(full: Full) -> None:
    assert {one["source"] for one in full("list", "--source", "CRON", "--json").json["sessions"]} == {"cron"}
    for place in ("/src", "/SRC/Shop", "SHOP"):
        assert {one["project"] for one in full("list", "--project", place, "--json").json["sessions"]} == {"/src/shop"}
    found = full("list", "--search", "数据库", "--json").json["sessions"]
    assert found
    assert all("数据库" in (one["title"] or one["preview"]) for one in found)
    some = full("list", "--limit", "3", "--json").json
    assert len(some["sessions"]) == 3
    assert some["more"] is True
    assert "herma sessions list --limit 15" in full("list", "--limit", "3").out


def test_an_empty_list_says_why(full: Full, tmp_path: Path) -> None:
    assert "No conversation matches (of 32)." in full("list", "--source", "nowhere").out
    empty = Full(tmp_path / "empty", "", "", "")
    assert "No sessions yet" in empty("list").out
    assert empty("list", "--json").json == {"ok": True, "sessions": [], "more": False}
    assert not (tmp_path / "empty").exists()


# ── show ──


def test_a_conversation_is_shown_with_its_tools_in_brief(full: Full) -> None:
    out = full("show", "s003").out
    assert "Look at the キャッシュ, 3." in out
    assert '→ terminal {"command": "make test"}' in out
    assert "← terminal" in out
    assert "--full shows all" in out
    assert out.count("     line\n") == 6
    assert full("show", "s003", "--full").out.count("     line\n") == 500


def test_text_cannot_steer_the_terminal(full: Full) -> None:
    out = full("show", "s003", "--full").out
    assert not set(out) & set("\x1b\u202e\x07")
    assert r"\x1b[31malert" in out
    assert r"\u202ereversed" in out
    code, out = typed(full.home, ["sessions", "show", "s003"], b"")
    assert code == 0
    assert "\x1b[1;34m" in out, "colours are ours alone"
    assert not [bad for bad in ("\x1b[31m", "\u202e") if bad in out]


def test_a_long_conversation_shows_its_ends_and_where_it_goes_on(full: Full) -> None:
    out = full("show", full.long).out
    assert "turn 0\n" in out
    assert "turn 9\n" in out
    assert "turn 10\n" not in out
    assert "turn 89\n" in out
    assert "41 messages in between" in out
    assert f"continues in {full.went_on}" in out
    assert out.rstrip().endswith("and on")
    whole = full("show", full.long, "--full").out
    assert all(f"turn {n}\n" in whole for n in range(90))
    assert full("show", full.went_on).out == out.replace("Long story\n", "Long story #2\n").replace(
        f"{full.long} · ", f"{full.went_on} · "
    ).replace(f"show {full.long}", f"show {full.went_on}")


def test_around_a_message(full: Full) -> None:
    messages = full("show", full.long, "--json").json["messages"]
    anchor = next(one["id"] for one in messages if one["content"] == "turn 40")
    out = full("show", "--around", str(anchor), "--window", "2").out
    assert [f"turn {n}\n" in out for n in range(37, 44)] == [False, True, True, True, True, True, False]
    assert f"▶{anchor:>4} user" in out
    shown = full("show", full.went_on, "--around", str(anchor), "--window", "0", "--json").json["messages"]
    assert [(one["id"], one["anchor"]) for one in shown] == [(anchor, True)]
    elsewhere = full("show", "s003", "--around", str(anchor))
    assert elsewhere.code == 2
    assert f"herma sessions show {full.long} --around {anchor}" in elsewhere.err


def test_hidden_messages_are_shown_when_asked_for(full: Full) -> None:
    with Herma.open(full.home) as h:
        target = next(one for one in h.transcripts.messages(full.long) if one.content == "turn 80")
        h.transcripts.rewind(full.long, target.id)
    assert "turn 80" not in full("show", full.long, "--full").out
    shown = full("show", full.long, "--full", "--hidden").out
    assert "turn 80" in shown
    assert "user · rewound" in shown
    taken_back = full("show", full.long, "--around", str(target.id))
    assert taken_back.code == 2
    assert "--hidden" in taken_back.err
    assert "turn 80" in full("show", full.long, "--around", str(target.id), "--hidden").out


def test_a_session_is_found_by_what_one_remembers_of_it(full: Full) -> None:
    for words in ("s003", "s004-676", "deploy pipeline 16", "DEPLOY PIPE", "Long story", full.helper):
        assert full("show", words).code == 0, words


REFUSED = (
    ("show", "Which session?"),
    ("show ''",),
    ("show '  '",),
    ("show s0", "Several sessions begin with 's0'", "s029", "and 22 more"),
    ("show 'nothing like this'", "There is no session 'nothing like this'", "herma search"),
    ("show 'pipeline 16'", "deploy pipeline 16"),
    ("show s003\udcff",),
    ("show --around 999999", "There is no message 999999"),
    ("show --around 99999999999999999999",),
    ("rename s003",),
    ("rename s003 x --clear",),
    (f"rename s003 {'x' * 101}",),
    ("rename s003 \udcff",),
    ("delete s003", "--yes"),
    ("delete s003 unknown --yes",),
    ("delete \udcff --yes",),
    ("delete --undo",),
    ("delete --undo s000-000", "is not deleted"),
    ("delete --undo nothing", "There is no deleted session"),
    ("delete --undo x --all",),
    ("delete --undo \udcff",),
    ("list --source \udcff",),
    ("list --project ''",),
    ("list --search ' '",),
    ("delete",),
    ("delete x --older-than 90d",),
    ("delete --older-than soon",),
    ("delete --older-than -3d",),
    ("delete --before someday",),
    ("delete --max-messages -1",),
    ("delete --title '' --yes",),
    ("delete --retention --yes", "herma config set retention.by_source"),
    ("delete --retention --source cli",),
)


def test_what_is_refused_changes_nothing_and_says_what_to_do(full: Full) -> None:
    before = full("list", "--all", "--limit", "99").out
    for words, *said in REFUSED:
        ran = full(*shlex.split(words))
        assert ran.code == 2, words
        assert not [part for part in said if part not in ran.err], (words, ran.err)
        assert "Internal error" not in ran.err, words
    assert full("list", "--all", "--limit", "99").out == before


# ── rename, archive ──


def test_rename(full: Full) -> None:
    assert "'A new name'" in full("rename", "s003", "A", "new", "name").out
    assert full("show", "A new name").code == 0
    taken = full("rename", "s002", "A new name")
    assert taken.code == 2
    assert "A new name #2" in taken.err
    assert full("rename", "A new name", "--clear", "--json").json["title"] is None
    full("rename", "s001", "Login bug")
    full("rename", "s002", "Login bug on Safari")
    assert full("show", "login BUG", "--json").json["session"]["id"].startswith("s001"), "a whole title is enough"
    assert "Several sessions" in full("show", "login").err


def test_archiving_is_for_the_whole_conversation_and_undoable(full: Full) -> None:
    done = full("archive", full.long)
    assert "(2 sessions)" in done.out
    assert f"herma sessions archive {full.long} --undo --home" in done.out
    assert "Long story" not in full("list", "--limit", "50").out
    assert "Long story" in full("list", "--archived").out
    assert full("archive", full.long, full.went_on, "--undo", "--json").json["conversations"][0]["sessions"] == 2
    assert "Long story" in full("list", "--limit", "50").out


# ── delete ──


def test_deleting_is_shown_and_undoable(full: Full) -> None:
    assert "Nothing was deleted." in full("delete", full.long, "--dry-run").out
    assert len(full("delete", full.long, "--dry-run", "--json").json["sessions"]) == 3
    done = full("delete", full.long, "s003", "--yes")
    assert "Deleted 4 sessions with 95 messages." in done.out
    gone = full("show", full.long)
    assert gone.code == 2
    assert f"herma sessions delete --undo {full.long}" in gone.err
    assert full.long in full("list", "--deleted").out
    assert len(full("list", "--deleted", "--json").json["sessions"]) == 4
    command = done.out.splitlines()[-1].partition("herma sessions ")[2].split(" --home ")[0]
    assert full(*command.split()).code == 0
    assert full("list", "--deleted").out == full("delete", "--undo", "--all").out == "Nothing is deleted.\n"
    assert full("show", full.helper).code == 0
    full("delete", "s001", "s003", "--yes")
    assert "Several deleted sessions begin with 's00'" in full("delete", "--undo", "s00").err
    assert len(full("delete", "--undo", "--all", "--json").json["sessions"]) == 2


def test_pruning_shows_first_and_takes_only_what_fits(full: Full) -> None:
    def candidates(*words: str) -> list[str]:
        return [
            one["id"] for one in full("delete", "--older-than", "90d", *words, "--dry-run", "--json").json["sessions"]
        ]

    everything = candidates()
    assert len(everything) == 11
    assert len(candidates("--open")) == 23
    assert candidates("--source", "cron") == [one for one in everything if int(one[1:4]) % 3 == 2]
    assert candidates("--older-than", "1y") == []
    assert candidates("--older-than", "26w", "--open") == candidates("--older-than", "182", "--open")
    assert candidates("--model", "LARGE") == everything
    assert candidates("--project", "/src/shop") == candidates("--project", "shop") == everything
    assert candidates("--project", "/src/shop/") == everything
    assert candidates("--min-messages", "4", "--open") == []
    assert len(candidates("--max-messages", "3", "--open")) == 23
    assert candidates("--before", "2001", "--open") == []
    assert candidates("--after", "2001") == everything
    assert candidates("--title", "deploy pipeline 16", "--open") == ["s016-704"]
    assert candidates("--archived") == []
    assert candidates("--user", "nobody") == []
    assert full("delete", "--older-than", "90d").code == 2
    done = full("delete", "--older-than", "90d", "--yes")
    assert "11 sessions with 33 messages." in done.out
    assert "herma sessions delete --undo --all" in done.out
    assert candidates() == []
    assert "--open includes them" in full("delete", "--older-than", "90d").out


def test_pruning_by_the_configuration(full: Full) -> None:
    (full.home / "config.yaml").write_text("retention:\n  by_source: cron=30\n")
    found = full("delete", "--retention", "--dry-run", "--json").json["sessions"]
    assert {one["source"] for one in found} == {"cron"}
    assert full("delete", "--retention", "--yes").code == 0
    assert "Nothing to delete." in full("delete", "--retention").out


# ── stats ──


def test_stats_take_as_many_statements_for_many_sessions_as_for_few(full: Full, home: Path) -> None:
    executed: list[str] = []

    def noted(_cursor: object, sql: str, _bindings: object) -> bool:
        executed.append(sql)
        return True

    def count(connection: apsw.Connection) -> None:
        connection.exec_trace = noted

    def asked() -> int:
        executed.clear()
        assert full("list", "--stats").code == 0
        return len(executed)

    apsw.connection_hooks.append(count)
    try:
        few = asked()
        with Herma.open(home) as h:
            for number in range(100):
                h.transcripts.append(h.transcripts.start("cli"), [{"role": "user", "content": f"one more, {number}"}])
        assert asked() == few
    finally:
        apsw.connection_hooks.remove(count)


def test_stats_measure_all_that_was_said(full: Full, home: Path) -> None:
    before = full("list", "--stats", "--json").json["text_bytes"]
    long = "ä" * 40_000 + " " + "A" * 5_000 + " \0 end"
    with Herma.open(home) as h:
        large = h.transcripts.start("cli", title="The largest")
        h.transcripts.append(large, [{"role": "user", "content": long}, {"role": "assistant", "reasoning": long}])
        h.transcripts.delete(next(one.id for one in h.transcripts.list(source="telegram")))
        hidden = h.transcripts.stats().hidden_messages
    value = full("list", "--stats", "--json").json
    assert value["largest"][0] == {"id": large, "title": "The largest", "text_bytes": 2 * len(long.encode())}
    assert before < value["text_bytes"] < before + 2 * len(long.encode())
    assert hidden == 0


def test_stats(full: Full) -> None:
    out = full("list", "--stats").out
    assert "32 conversations, 33 sessions, 182 messages" in out
    assert "herma.db" in out
    assert "× the text" in out
    assert "largest" in out
    value = full("list", "--stats", "--json").json
    assert value["sources"]["subagent"] == {"sessions": 1, "messages": 1}
    assert value["text_bytes"] > 30 * 2_500
    assert value["files"]["herma.db"] > 0


# ── everything ──


def test_every_command_prints_json_and_its_help_has_examples(full: Full, tmp_path: Path) -> None:
    calls = {
        "list": "list",
        "show": "show s003",
        "rename": "rename s003 New",
        "archive": "archive s003",
        "export": f"export --all -o {tmp_path}/all.jsonl",
        "import": f"import {tmp_path}/all.jsonl",
        "delete": "delete s004 --yes",
    }
    assert calls.keys() == sessions.commands.keys()
    for name, words in calls.items():
        ran = full(*words.split(), "--json")
        assert (ran.code, ran.json["ok"]) == (0, True), (name, ran.err)
        refused = full(name, "--no-such-option", "--json")
        assert (refused.code, refused.json["ok"]) == (2, False), name
        assert "Examples:" in full(name, "--help").out
    refused = full("show", "no such session", "--json")
    assert refused.json["ok"] is False
    assert refused.json["hint"]


def typed(home: Path, words: list[str], answer: bytes, columns: int = 120) -> tuple[int, str]:
    """Run a command on a terminal of its own, and answer its question."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "herma.cli.main", *words, "--home", str(home)]
    env = os.environ | {"TERM": "xterm", "COLUMNS": str(columns)}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        os.write(master, answer)
        out = b"".join(_until_closed(master))
    os.close(master)
    return process.returncode, out.decode()


def _until_closed(master: int) -> Iterator[bytes]:
    while True:
        try:
            piece = os.read(master, 65_536)
        except OSError:  # the other side has gone
            return
        if not piece:
            return
        yield piece


def test_on_a_terminal_it_asks_and_takes_no_for_an_answer(full: Full) -> None:
    code, out = typed(full.home, ["sessions", "delete", "s003"], b"n\n")
    assert code == 1
    assert "Delete this conversation? [y/N]" in out
    assert "Nothing was deleted." in out
    code, out = typed(full.home, ["sessions", "delete", "s003"], b"y\n")
    assert code == 0
    assert "Deleted 1 session" in out


@pytest.mark.parametrize(("columns", "deleted"), [(80, False), (40, True)])
def test_on_a_narrow_terminal_a_conversation_is_still_one_line(full: Full, columns: int, deleted: bool) -> None:
    from rich.cells import cell_len

    if deleted:
        full("delete", "--older-than", "1h", "--open", "--yes")
    words = ["--deleted"] if deleted else ["--limit", "50", "--all"]
    code, out = typed(full.home, ["sessions", "list", *words], b"", columns=columns)
    assert code == 0
    lines = out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    lines = [line for line in lines if "herma sessions" not in line and not line.startswith("To restore")]
    assert len(lines) == 1 + (30 if deleted else 32)
    assert all(cell_len(line) <= columns for line in lines)
    assert all(f"s{n:03}" in out for n in range(30))


def test_what_shows_more_asks_for_the_same(full: Full) -> None:
    words = ("--source", "cli", "--search", "s0", "--all", "--limit", "2")
    line = full("list", *words).out.splitlines()[-1].partition("more: ")[2]
    again = CliRunner().invoke(cli, shlex.split(line)[1:]).stdout
    assert again == full("list", *words[:-1], "10").out
    assert len(again.splitlines()) > 4


def test_many_that_are_deleted_at_once_come_back_by_what_is_printed(full: Full) -> None:
    before = full("list", "--limit", "50").out
    line = full("delete", "--older-than", "50d", "--yes").out.splitlines()[-1].partition("restore it: ")[2]
    assert line.startswith("herma sessions delete --undo --all")
    assert CliRunner().invoke(cli, shlex.split(line)[1:]).exit_code == 0
    assert full("list", "--limit", "50").out == before
    full("delete", "s029", "--yes")
    out = full("delete", "--older-than", "50d", "--yes").out
    assert "herma sessions list --deleted" in out, "not all that is deleted is of this command"


def test_a_short_date_names_the_year_or_the_time() -> None:
    now = time.time()
    assert short_when(now) == when(now)[5:]
    assert short_when(now - 400 * DAY) == when(now - 400 * DAY)[:10]
    assert short_when(None) == "-"


def test_what_wakes_up_while_it_is_asked_about_stays(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    def wake_one_up(_: CommandContext, question: str) -> bool:
        assert question == "Delete 11 sessions?"
        with Herma.open(full.home) as h:
            h.transcripts.append("s001-919", [{"role": "user", "content": "Still there?"}])
        return True

    monkeypatch.setattr(CommandContext, "confirm", wake_one_up)
    assert "Deleted 10 sessions" in full("delete", "--older-than", "90d").out
    assert full("show", "s001").code == 0


def test_what_was_deleted_long_ago_is_not_offered_and_goes_with_the_next_deletion(full: Full) -> None:
    with Herma.open(full.home, clock=lambda: time.time() - 8 * DAY) as h:
        h.transcripts.delete("s002-838")
    full("delete", "s004", "--yes", "--dry-run")
    assert full("list", "--deleted").out == "Nothing is deleted.\n"
    assert full("delete", "--undo", "s002").code == 2
    assert "1 session waiting to be purged" in full("list", "--stats").out
    assert "Purged, because deleted longer ago: 1 session." in full("delete", "s004", "--yes").out
    assert "waiting to be purged" not in full("list", "--stats").out


def test_the_list_searches_the_column_that_it_shows(full: Full, home: Path) -> None:
    def found(text: str) -> list[str]:
        return [one["title"] or "" for one in full("list", "--search", text, "--json").json["sessions"]]

    with Herma.open(home) as h:
        for title, said in (("The AN-94 order", "hello"), (None, "Where is the GPT4 bill?"), ("Rent", "Where is Ann?")):
            h.transcripts.append(h.transcripts.start("cli", title=title), [{"role": "user", "content": said}])
    assert found("an94") == found("AN94") == found("an-94") == found("order") == ["The AN-94 order"]
    assert found("gpt-4") == found("gpt4 BILL") == [""], "first words, where there is no title"
    assert found("hello") == found("where is ann") == [], "first words are not shown beside a title"
