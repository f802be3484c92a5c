"""`herma search`: hits to act on, how the query was read, what was left out, and reasons where nothing is found."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma, Scope
from herma.cli.main import cli


def search(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "search", *words])


def as_json(home: Path, *words: str) -> Any:
    return json.loads(search(home, *words, "--json").stdout)


@pytest.fixture
def full(home: Path) -> Path:
    with Herma.open(home) as h:
        t = h.transcripts
        for n in range(24):
            one = t.start("cli" if n % 2 else "telegram", scope=Scope(project="shop" if n % 3 else ""))
            t.append(
                one,
                [
                    {"role": "user", "content": f"Question {n} about the gearbox", "timestamp": 1_700_000_000.0 + n},
                    {"role": "assistant", "content": f"Answer {n}", "timestamp": 1_700_000_100.0 + n},
                ],
            )
        login = t.start("cli", title="Login trouble")
        t.append(
            login,
            [
                {"role": "user", "content": "The login fails with \x1b[31mconnection reset\x1b[0m on staging"},
                {"role": "assistant", "content": "登录失败是因为令牌过期。 \u202eevil"},
                {"role": "user", "content": "And the login page on production?"},
            ],
        )
        away = t.start("cli")
        t.append(away, [{"role": "user", "content": "zanzibar notes"}])
        t.archive(away)
    return home


def test_a_hit_can_be_acted_on(full: Path) -> None:
    found = search(full, "login", "connection")
    assert found.exit_code == 0
    assert found.stderr == ""
    first, facts, snippet, command, *_ = found.stdout.splitlines()
    assert first == "1  Login trouble"
    assert "· cli · user" in facts
    assert snippet == "   The login fails with connection reset on staging"
    assert "[login] fails with [connection] reset" in search(full, "login", "connection", "--mark").stdout
    words = command.split()
    assert words[:3] == ["herma", "sessions", "show"]
    shown = CliRunner().invoke(cli, words[1:])
    assert shown.exit_code == 0
    assert "connection reset" in shown.stdout
    assert "▶" in shown.stdout
    for number in ("1", "#1"):
        assert "connection reset" in CliRunner().invoke(cli, ["--home", str(full), "sessions", "show", number]).stdout
    assert "There is no session '7'" in CliRunner().invoke(cli, ["--home", str(full), "sessions", "show", "7"]).stderr
    assert "Read as" not in found.stdout
    explained = search(full, "login", "connection", "--explain").stdout
    assert all(part in explained for part in ("Read as: messages with any of login", "why: has ", "score"))
    assert "Read as: messages with gearbox" in search(full, "gearbox", "--source", "cli").stdout  # others were left out


def test_text_from_transcripts_cannot_steer_the_terminal(full: Path) -> None:
    out = search(full, "login", "--level", "message", "--limit", "50").stdout + search(full, "登录").stdout
    assert not set(out) & set("\x1b\u202e")


def test_nothing_found_says_why_and_is_exit_code_1(full: Path, tmp_path: Path) -> None:
    nothing = search(full, "qqqqzzzz")
    assert nothing.exit_code == 1
    assert nothing.stdout.startswith("Nothing found.\n")
    assert "No message contains qqqqzzzz." in nothing.stdout
    assert "Read as:" in nothing.stdout
    assert as_json(full, "qqqqzzzz")["ok"] is True
    archived = search(full, "zanzibar")
    assert archived.exit_code == 1
    assert "“archived”" in archived.stdout
    assert "--all" in archived.stdout
    assert "include_archived" not in archived.stdout
    assert search(full, "zanzibar", "--all").exit_code == 0
    empty = search(tmp_path / "empty", "anything")
    assert empty.exit_code == 1
    assert empty.stdout.count("No conversation is stored yet") == 1
    assert not (tmp_path / "empty").exists()


def test_where_no_index_can_be_built_none_is_offered(full: Path) -> None:
    for file in full.glob("index.db*"):
        file.unlink()
    (full / "index.db.lock").mkdir()
    done = search(full, "zeppelin")
    assert "cannot be built" in done.stdout
    assert "were read one by one.\n" in done.stdout
    assert "index rebuild" not in done.stdout


def test_what_only_a_wider_search_finds_is_not_what_was_asked_for(full: Path) -> None:
    for words in (("gearbox", "--since", "2020-01", "--before", "2021"), ("gearbix",), ("gearbox AND login",)):
        wider = search(full, *words)
        assert wider.exit_code == 1, words
        assert wider.stdout.startswith("No exact match. Similar results:\n"), words
        assert "\n1  " in wider.stdout
        value = as_json(full, *words)
        assert (value["ok"], value["widened"]) == (True, True)
        assert value["hits"]


def test_options_narrow(full: Path) -> None:
    for words, hits in (
        *(
            (("gearbox", "--limit", "50"), 24),
            (("gearbox", "--limit", "3"), 3),
            (("source:telegram", "--limit", "50"), 12),
        ),
        (("gearbox", "--project", "shop", "--limit", "50"), 16),
        (("gearbox", "--since", "2023-01", "--before", "2024", "--limit", "50"), 24),
        *((("login",), 1), (("login", "--level", "message"), 2)),
    ):
        assert len(as_json(full, *words)["hits"]) == hits, words
    cli_only = as_json(full, "gearbox", "--source", "cli", "--limit", "50")
    assert {hit["session"]["source"] for hit in cli_only["hits"]} == {"cli"}
    assert any(one["rule"] == "source" for one in cli_only["dropped"])
    assert set(cli_only) >= {"ok", "query", "understood", "searched", "hits", "dropped", "notes", "lag"}
    assert {hit["role"] for hit in as_json(full, "login", "--role", "user", "--level", "message")["hits"]} == {"user"}
    newest = [hit["timestamp"] for hit in as_json(full, "gearbox", "--sort", "newest", "--limit", "5")["hits"]]
    oldest = [hit["timestamp"] for hit in as_json(full, "gearbox", "--sort", "oldest", "--limit", "5")["hits"]]
    assert newest == sorted(newest, reverse=True)
    assert oldest == sorted(oldest) != newest
    chinese = search(full, "登录")
    assert "   登录失败" in chinese.stdout
    again = CliRunner().invoke(cli, ["sessions", "search", "登录", "--home", str(full)])
    assert again.stdout.splitlines()[0] == chinese.stdout.splitlines()[0]


def test_a_dash_means_without(full: Path) -> None:
    for words in (("login", "-staging"), ("-staging", "login"), ("login -staging",), ("--", "login", "-staging")):
        done = CliRunner().invoke(cli, ["search", "--json", "--level", "message", "--home", str(full), *words])
        hits = json.loads(done.stdout)["hits"]
        assert [hit["snippet"] for hit in hits] == ["And the >>>login<<< page on production?"], words


def test_no_text_is_a_mistake(full: Path) -> None:
    for text in ('"', "(((", "AND", "a:b:c", "*", "-", "- -", "'; DROP TABLE", "NEAR(", "🙂", "\u202e", "x" * 30_000):
        done = search(full, text, "--explain")
        assert done.exit_code in (0, 1), (text, done.stderr)
        assert done.stderr == ""
        assert "Read as:" in done.stdout


def test_what_is_a_mistake_is_said(full: Path) -> None:
    wrong = ["--since someday", "--limit 0", "--limit -3", "--level word", "--sort best", "--role nobody", "--sorted"]
    for words in (*(("x", *one.split()) for one in wrong), ("x", "--role", ""), ()):
        done = search(full, *words)
        assert done.exit_code == 2, words
        assert len(done.stderr.splitlines()) == 2, done.stderr


def test_a_match_is_coloured_on_a_terminal(full: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "herma.cli.main", "search", "connection", "--home", str(full)]
    env = os.environ | {"TERM": "xterm"}
    with subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=env) as process:
        os.close(slave)
        out = b""
        try:
            while piece := os.read(master, 65_536):
                out += piece
        except OSError:  # the other side has gone
            pass
    os.close(master)
    assert process.returncode == 0
    assert b"\x1b[1;33mconnection\x1b[0m" in out
    assert b">>>" not in out
    assert b"\x1b[31m" not in out


def test_meaning_that_is_asked_for_by_name_and_cannot_be_had_is_said(
    full: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMA_EMBEDDING_MODEL", "none")
    for mode in ("vectors", "hybrid"):
        assert "no embedding model is installed" in search(full, "login", "--mode", mode).stdout
        assert any("Only words" in note for note in as_json(full, "login", "--mode", mode)["notes"])
    assert "embedding model" not in search(full, "login", "--mode", "words").stdout
    assert "embedding model" not in search(full, "login").stdout


def test_memory_is_named_where_no_conversation_has_the_word(home: Path) -> None:
    with Herma.open(home) as h:
        h.remember("The staging database is read-only on Fridays.")
    found = search(home, "staging")
    assert found.exit_code == 1
    assert "MEMORY.md has: The staging database is read-only on Fridays." in found.stdout
    assert "MEMORY.md" not in search(home, "production").stdout
