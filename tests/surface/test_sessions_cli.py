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

import pytest
from click.testing import CliRunner
from tests.surface.ran import Ran

from herma import Herma, Scope
from herma.cli.frame import Context
from herma.cli.main import cli
from herma.cli.output import short_when, when
from herma.transcript.cli import SessionsGroup

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

    def __call__(self, *words: str, stdin: bytes | None = None) -> Ran:
        result = CliRunner().invoke(cli, ["--home", str(self.home), "sessions", *words], input=stdin)
        return Ran(result.exit_code, result.stdout, result.stderr)


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


def test_columns_stand_under_each_other_in_any_script(full: Full) -> None:
    from rich.cells import cell_len

    heading, *rows = full("list", "--limit", "50").out.splitlines()
    at = cell_len(heading[: heading.index("title")])
    for row in rows:
        assert cell_len(row) > at
        before = ""
        for char in row:
            if cell_len(before) >= at:
                break
            before += char
        assert cell_len(before) == at
        assert before.endswith("  ")


def test_lists_can_be_narrowed(full: Full) -> None:
    assert {one["source"] for one in full("list", "--source", "cron", "--json").json["sessions"]} == {"cron"}
    assert {one["project"] for one in full("list", "--project", "/src", "--json").json["sessions"]} == {"/src/shop"}
    found = full("list", "--search", "数据库", "--json").json["sessions"]
    assert found
    assert all("数据库" in one["title"] for one in found)
    some = full("list", "--limit", "3", "--json").json
    assert len(some["sessions"]) == 3
    assert some["more"] is True
    assert "herma sessions list --limit 15" in full("list", "--limit", "3").out


def test_an_empty_list_says_why(full: Full, tmp_path: Path) -> None:
    assert "None of the 32 conversations fits" in full("list", "--source", "nowhere").out
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


def test_a_long_conversation_shows_its_ends_and_where_it_goes_on(full: Full) -> None:
    out = full("show", full.long).out
    assert "turn 0\n" in out
    assert "turn 9\n" in out
    assert "turn 10\n" not in out
    assert "turn 89\n" in out
    assert "41 messages in between" in out
    assert f"goes on in {full.went_on}" in out
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
    unknown = full("show", "--around", "999999")
    assert unknown.code == 2
    assert "There is no message 999999" in unknown.err


def test_a_session_is_found_by_what_one_remembers_of_it(full: Full) -> None:
    for words in ("s003", "s004-676", "deploy pipeline 16", "DEPLOY PIPE", "Long story", full.helper):
        assert full("show", words).code == 0, words
    several = full("show", "s0")
    assert several.code == 2
    assert "Several sessions begin with 's0'" in several.err
    assert "s029" in several.err
    assert "and 22 more" in several.err
    unknown = full("show", "nothing like this")
    assert unknown.code == 2
    assert "There is no session 'nothing like this'" in unknown.err
    assert "herma search" in unknown.err
    inside = full("show", "pipeline 16")
    assert inside.code == 2
    assert "deploy pipeline 16" in inside.err
    for nothing in ("", "  "):
        assert full("show", nothing).code == 2
    assert "Which session?" in full("show").err


# ── rename, archive ──


def test_rename(full: Full) -> None:
    assert "'A new name'" in full("rename", "s003", "A", "new", "name").out
    assert full("show", "A new name").code == 0
    taken = full("rename", "s002", "A new name")
    assert taken.code == 2
    assert "A new name #2" in taken.err
    assert full("rename", "A new name", "--clear", "--json").json["title"] is None
    assert full("rename", "s003").code == 2
    assert full("rename", "s003", "x", "--clear").code == 2
    assert full("rename", "s003", "x" * 101).code == 2


def test_archiving_is_for_the_whole_conversation_and_undoable(full: Full) -> None:
    done = full("archive", full.long)
    assert "(2 sessions)" in done.out
    assert f"herma sessions archive {full.long} --undo --home" in done.out
    assert "Long story" not in full("list", "--limit", "50").out
    assert "Long story" in full("list", "--archived").out
    assert full("archive", full.long, full.went_on, "--undo", "--json").json["conversations"][0]["sessions"] == 2
    assert "Long story" in full("list", "--limit", "50").out


# ── delete, undelete, prune ──


def test_deleting_is_asked_for_shown_and_undoable(full: Full) -> None:
    unasked = full("delete", "s003")
    assert unasked.code == 2
    assert "--yes" in unasked.err
    assert full("show", "s003").code == 0
    assert "Nothing was deleted." in full("delete", full.long, "--dry-run").out
    assert len(full("delete", full.long, "--dry-run", "--json").json["sessions"]) == 3
    done = full("delete", full.long, "s003", "--yes")
    assert "Deleted 4 sessions with 95 messages." in done.out
    gone = full("show", full.long)
    assert gone.code == 2
    assert f"herma sessions undelete {full.long}" in gone.err
    waiting = full("list", "--deleted")
    assert full.long in waiting.out
    assert len(full("list", "--deleted", "--json").json["sessions"]) == 4
    command = done.out.splitlines()[-1].partition("herma sessions ")[2].split(" --home ")[0]
    assert full(*command.split()).code == 0
    assert full("list", "--deleted").out == "Nothing is deleted.\n"
    assert full("show", full.helper).code == 0


def test_deleting_finds_all_before_it_deletes_any(full: Full) -> None:
    assert full("delete", "s003", "unknown", "--yes").code == 2
    assert full("show", "s003").code == 0


def test_undelete_says_what_is_wrong(full: Full) -> None:
    assert "is not deleted" in full("undelete", full.long).err
    assert "There is no deleted session" in full("undelete", "nothing").err
    assert full("undelete").code == 2
    assert full("undelete", "x", "--all").code == 2
    assert full("undelete", "--all").out == "Nothing is deleted.\n"
    full("delete", "s001", "s003", "--yes")
    assert "Several deleted sessions begin with 's00'" in full("undelete", "s00").err
    assert len(full("undelete", "--all", "--json").json["sessions"]) == 2


def test_pruning_shows_first_and_takes_only_what_fits(full: Full) -> None:
    def candidates(*words: str) -> list[str]:
        return [one["id"] for one in full("prune", *words, "--dry-run", "--json").json["sessions"]]

    everything = candidates()
    assert len(everything) == 11
    assert len(candidates("--open")) == 23
    assert candidates("--source", "cron") == [one for one in everything if int(one[1:4]) % 3 == 2]
    assert candidates("--older-than", "1y") == []
    assert candidates("--older-than", "26w", "--open") == candidates("--older-than", "182", "--open")
    assert candidates("--end-reason", "crashed") == []
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
    assert full("prune").code == 2
    done = full("prune", "--yes")
    assert "11 sessions with 33 messages." in done.out
    assert "herma sessions undelete --all" in done.out
    assert candidates() == []
    assert "unless you add --open" in full("prune").out


def test_a_long_conversation_does_not_go_because_its_last_session_is_short(full: Full) -> None:
    shown = full("prune", "--older-than", "0d", "--max-messages", "10", "--open", "--dry-run", "--json").json[
        "sessions"
    ]
    found = {one["id"] for one in shown}
    assert full.long not in found
    assert full.went_on not in found
    assert len(found) == 30 + 1  # the helper's conversation is a short one of its own
    assert full.went_on in str(full("prune", "--older-than", "0d", "--open", "--dry-run", "--json").json)


def test_pruning_by_the_configuration(full: Full) -> None:
    nothing = full("prune", "--retention", "--yes")
    assert nothing.code == 2
    assert "herma config set retention.by_source" in nothing.err
    (full.home / "config.yaml").write_text("retention:\n  by_source: cron=30\n")
    found = full("prune", "--retention", "--dry-run", "--json").json["sessions"]
    assert found
    assert {one["source"] for one in found} == {"cron"}
    assert full("prune", "--retention", "--source", "cli").code == 2
    assert full("prune", "--retention", "--yes").code == 0
    assert "Nothing to delete." in full("prune", "--retention").out


def test_pruning_refuses_what_it_does_not_understand(full: Full) -> None:
    for words in (["--older-than", "soon"], ["--before", "someday"], ["--max-messages", "-1"], ["--older-than", "-3d"]):
        ran = full("prune", *words)
        assert ran.code == 2, words
        assert len(ran.err.splitlines()) == 2


# ── stats ──


def test_stats(full: Full) -> None:
    out = full("stats").out
    assert "32 conversations, 33 sessions, 182 messages" in out
    assert "herma.db" in out
    assert "× the text" in out
    assert "largest" in out
    value = full("stats", "--json").json
    assert value["sources"]["subagent"] == {"sessions": 1, "messages": 1}
    assert value["text_bytes"] > 30 * 2_500
    assert value["files"]["herma.db"] > 0
    assert full("stats", "--quick", "--json").json["text_bytes"] is None
    assert full("stats", "--quick").code == 0


# ── everything ──


def test_bytes_that_are_no_text_and_empty_options_are_refused(full: Full) -> None:
    for words in (
        ("show", "s003\udcff"),
        ("rename", "s003", "\udcff"),
        ("delete", "\udcff", "--yes"),
        ("undelete", "\udcff"),
        ("list", "--source", "\udcff"),
        ("list", "--project", ""),
        ("list", "--search", " "),
        ("prune", "--exclude-source", "", "--yes"),
        ("prune", "--title", "", "--yes"),
        ("show", "--around", "99999999999999999999"),
    ):
        ran = full(*words)
        assert ran.code == 2, words
        assert "Internal error" not in ran.err


def test_every_command_prints_json_and_its_help_has_examples(full: Full, tmp_path: Path) -> None:
    calls: dict[str, list[str]] = {
        "list": [],
        "show": ["s003"],
        "search": ["look"],
        "rename": ["s003", "New"],
        "archive": ["s003"],
        "export": ["--all", "-o", str(tmp_path / "all.jsonl")],
        "import": [str(tmp_path / "all.jsonl")],
        "delete": ["s004", "--yes"],
        "undelete": ["s004"],
        "prune": ["--yes"],
        "stats": [],
    }
    elsewhere = {"resume", "expand"}  # they need a model, or a summary: test_chat_cli and test_sessions_expand_cli
    assert list(calls) == [name for name in SessionsGroup.ORDER.split() if name not in elsewhere]
    for name in elsewhere:
        assert "Examples:" in full(name, "--help").out
    for name, words in calls.items():
        ran = full(name, *words, "--json")
        assert ran.code == 0, (name, ran.err)
        assert ran.json["ok"] is True
        refused = full(name, "--no-such-option", "--json")
        assert refused.code == 2
        assert refused.json["ok"] is False
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


@pytest.mark.parametrize("columns", [80, 60, 40])
@pytest.mark.parametrize("deleted", [False, True])
def test_on_a_narrow_terminal_a_conversation_is_still_one_line(full: Full, columns: int, deleted: bool) -> None:
    from rich.cells import cell_len

    if deleted:
        full("prune", "--older-than", "1h", "--open", "--yes")
    words = ["--deleted"] if deleted else ["--limit", "50", "--all"]
    code, out = typed(full.home, ["sessions", "list", *words], b"", columns=columns)
    assert code == 0
    lines = out.replace("\x1b[1m", "").replace("\x1b[0m", "").splitlines()
    lines = [line for line in lines if "herma sessions" not in line]
    assert len(lines) == 1 + (30 if deleted else 32)
    assert all(cell_len(line) <= columns for line in lines)
    assert all(f"s{n:03}" in out for n in range(30))


def test_what_shows_more_asks_for_the_same(full: Full) -> None:
    words = ("--source", "cli", "--search", "s0", "--all", "--limit", "2")
    line = full("list", *words).out.splitlines()[-1].partition("more: ")[2]
    again = CliRunner().invoke(cli, shlex.split(line)[1:]).stdout
    assert again == full("list", *words[:-1], "10").out
    assert len(again.splitlines()) > 4


def test_a_whole_title_is_enough_in_capitals_or_not(full: Full) -> None:
    full("rename", "s001", "Login bug")
    full("rename", "s002", "Login bug on Safari")
    assert full("show", "login BUG", "--json").json["session"]["id"].startswith("s001")
    assert "Several sessions" in full("show", "login").err


def test_many_that_are_deleted_at_once_come_back_by_what_is_printed(full: Full) -> None:
    before = full("list", "--limit", "50").out
    line = full("prune", "--older-than", "50d", "--yes").out.splitlines()[-1].partition("brought back: ")[2]
    assert line.startswith("herma sessions undelete --all")
    assert CliRunner().invoke(cli, shlex.split(line)[1:]).exit_code == 0
    assert full("list", "--limit", "50").out == before
    full("delete", "s029", "--yes")
    out = full("prune", "--older-than", "50d", "--yes").out
    assert "herma sessions list --deleted" in out, "not all that is deleted is of this command"


def test_colours_are_ours_alone(full: Full) -> None:
    code, out = typed(full.home, ["sessions", "show", "s003"], b"")
    assert code == 0
    assert "\x1b[1;34m" in out
    assert "\x1b[31m" not in out
    assert "\u202e" not in out


def test_what_waits_to_be_purged_is_not_offered_any_more(full: Full) -> None:
    with Herma.open(full.home, clock=lambda: time.time() - 8 * DAY) as h:
        h.transcripts.delete("s003-757")
    full("delete", "s004", "--yes", "--dry-run")
    assert full("list", "--deleted").out == "Nothing is deleted.\n"
    assert full("undelete", "s003").code == 2
    assert "1 session waiting to be purged" in full("stats", "--quick").out


def test_a_short_date_names_the_year_or_the_time() -> None:
    now = time.time()
    assert short_when(now) == when(now)[5:]
    assert short_when(now - 400 * DAY) == when(now - 400 * DAY)[:10]
    assert short_when(None) == "-"


def test_what_wakes_up_while_it_is_asked_about_stays(full: Full, monkeypatch: pytest.MonkeyPatch) -> None:
    def wake_one_up(_: Context, question: str) -> bool:
        assert question == "Delete 11 sessions?"
        with Herma.open(full.home) as h:
            h.transcripts.append("s001-919", [{"role": "user", "content": "Still there?"}])
        return True

    monkeypatch.setattr(Context, "confirm", wake_one_up)
    assert "Deleted 10 sessions" in full("prune").out
    assert full("show", "s001").code == 0


@pytest.mark.parametrize("words", [("delete", "s004", "--yes"), ("prune", "--yes")])
def test_clearing_out_also_takes_out_what_was_deleted_long_ago(full: Full, words: tuple[str, ...]) -> None:
    with Herma.open(full.home, clock=lambda: time.time() - 8 * DAY) as h:
        h.transcripts.delete("s002-838")
    assert "Gone for good, because deleted longer ago: 1 session." in full(*words).out
    assert "waiting to be purged" not in full("stats", "--quick").out
