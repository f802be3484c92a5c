"""`herma config` and the MCP servers in it, and `herma context show`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.surface.web import serving

from herma import Add, Herma, config
from herma.agent.mcp import McpServers
from herma.cli.main import cli
from herma.tools.registry import ToolContext

KEY, VARIABLE = "memory.memory_char_limit", "HERMA_MEMORY_MEMORY_CHAR_LIMIT"


def herma(home: Path, *args: str, **env: str) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "config", *args], env=env)


def as_json(home: Path, *args: str, **env: str) -> Any:
    done = herma(home, *args, "--json", **env)
    told = json.loads(done.stdout)
    assert told["ok"] is (done.exit_code == 0)
    return told


@pytest.fixture(autouse=True)
def outside_any_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "work"
    (place / ".git").mkdir(parents=True)
    monkeypatch.chdir(place)


def test_show_lists_every_key_with_value_source_and_meaning(home: Path) -> None:
    (home / "config.yaml").write_text("memory: {memory_char_limit: 7}\n")
    lines = herma(home, "show", HERMA_MEMORY_INBOX_DAYS="9").stdout.splitlines()
    assert lines[0] == f"Home {home}, profile default"
    assert lines[2].split() == ["key", "value", "from", "description"]
    rows = {line.split()[0]: line for line in lines[3:]}
    assert list(rows) == list(config.options())
    for key, known in config.options().items():
        assert rows[key].endswith(known.doc)
    assert rows[KEY].split()[1:3] == ["7", str(home / "config.yaml")]
    assert rows["memory.inbox_days"].split()[1:3] == ["9", "HERMA_MEMORY_INBOX_DAYS"]
    assert rows["memory.live_updates"].split()[1:3] == ["true", "default"]
    assert rows["memory.provider"].split()[1:3] == ['""', "default"]
    told = as_json(home, "show", "--profile", "p")
    assert (told["profile"], [item["key"] for item in told["keys"]]) == ("p", list(config.options()))
    assert next(item for item in told["keys"] if item["key"] == KEY) == {
        "key": KEY,
        "value": 2200,
        "source": "default",
        "default": 2200,
        "expected": "a whole number from 1 to 1000000",
        "description": "Maximum characters of MEMORY.md.",
        "variable": VARIABLE,
        "project": True,
    }
    assert [herma(home, "show", key).stdout for key in (KEY, "memory.live_updates", "memory.provider")] == [
        *("7\n", "true\n", "\n")
    ]
    assert as_json(home, "show", KEY, **{VARIABLE: "5"}) == {"ok": True, "key": KEY, "value": 5, "source": VARIABLE}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("show", "memory.memry_char_limit"), f"is not a known configuration key.\n  → Did you mean {KEY}?\n"),
        (("show", "x.y"), "`herma config show` lists the known keys."),
        (
            ("set", "review.boundaries", "x"),
            "review.boundaries cannot be 'x': it must be words separated by commas, of: idle",
        ),
        (("set", "curator.origins", "agent, nobody"), "curator.origins cannot be 'agent, nobody'"),
        (("set", KEY, "-5"), f"{KEY} cannot be '-5': it must be a whole number from 1 to 1000000.\n  → Maximum"),
        (("unset", "memory.nonsense"), "is not a known configuration key"),
    ],
)
def test_wrong_use_is_refused(home: Path, words: tuple[str, ...], said: str) -> None:
    done = herma(home, *words)
    assert (done.exit_code, done.stdout) == (2, "")
    assert said in done.stderr
    assert not (home / "config.yaml").exists()


def test_show_lists_what_is_ignored_and_warns_of_nothing_twice(home: Path) -> None:
    (home / "config.yaml").write_text("memory: {provder: x}\nagent: {x: 1}\n")
    Path(".herma.yaml").write_text("store: {url: x}\n")
    done = herma(home, "show")
    assert done.stderr == ""
    ignored = done.stdout.partition("Ignored:\n")[2].splitlines()
    assert [line.split()[0] for line in ignored] == ["memory.provder", "agent", "store.url"]
    told = as_json(home, "show")
    assert told["home"] == str(home)
    assert [(item["key"], item["nearest"]) for item in told["problems"]] == [
        ("memory.provder", "memory.provider"),
        ("agent", None),
        ("store.url", None),
    ]


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://me:s3cret@host/db", "postgresql://me:…@host/db"),
        ("postgresql://me:s3@cret@host/db", "postgresql://me:…@host/db"),
        ("postgresql://host/db?user=me&password=s3cret&x=1", "postgresql://host/db?user=me&password=…&x=1"),
        ("host=h password=s3cret dbname=d", "host=h password=… dbname=d"),
        ("host=h password='s3 cret' dbname=d", "host=h password=… dbname=d"),
        ("postgresql://me@host:5432/db", "postgresql://me@host:5432/db"),
    ],
)
def test_passwords_are_not_shown_unless_asked_for(home: Path, url: str, shown: str) -> None:
    set_ = herma(home, "set", "store.url", url)
    assert f"store.url set to {shown} in " in set_.stdout
    assert "cret" not in set_.output + herma(home, "show").output + herma(home, "show", "--json").output
    assert "cret" not in herma(home, "set", "store.url", url, "--json").output
    assert herma(home, "show", "store.url").stdout == f"{url}\n"


def test_set_says_what_it_did(tmp_path: Path) -> None:
    home = tmp_path / "new" / "home"
    file = home / "config.yaml"
    done = herma(home, "set", KEY, "3000")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.stdout == f"{KEY} set to 3000 in {file}.\n"
    assert file.read_text() == "memory:\n  memory_char_limit: 3000\n"
    assert as_json(home, "set", "memory.write_approval", "on") == {
        "ok": True,
        "key": "memory.write_approval",
        "file": str(file),
        "value": True,
        "source": str(file),
        "overridden": False,
    }
    assert herma(home, "set", "memory.provider", "").stdout == f"memory.provider cleared in {file}.\n"
    assert file.read_text() == 'memory:\n  memory_char_limit: 3000\n  write_approval: true\n  provider: ""\n'
    done = herma(home, "set", KEY, "4000", **{VARIABLE: "5"})
    assert done.stderr == f"warning: {VARIABLE} overrides config.yaml: {KEY} stays 5.\n"
    project = Path(".herma.yaml").absolute()
    project.write_text("memory: {memory_char_limit: 6}\n")
    told = as_json(home, "set", KEY, "4000")
    assert (told["value"], told["source"], told["overridden"]) == (6, str(project), True)
    project.unlink()
    assert herma(home, "set", KEY, "5", "--profile", "work").exit_code == 0
    shown = [herma(home, "show", KEY, **env).stdout for env in ({}, {"HERMA_PROFILE": "work"})]
    assert shown == ["4000\n", "5\n"]
    assert herma(home, "unset", KEY).stdout == f"{KEY} removed from {file}.\nDefault: 2200.\n"
    assert herma(home, "unset", KEY).stdout.startswith(f"{KEY} is not set in {file}.\n")
    assert as_json(home, "unset", KEY)["changed"] is False


def test_path_works_even_with_a_broken_file(home: Path, user_folder: Path) -> None:
    file = home / "config.yaml"
    assert herma(home, "path").stdout == f"{file}\n"
    told = as_json(home, "path")
    assert told == {"ok": True, "home": str(home), "file": str(file), "exists": False, "project": None}
    file.write_text("memory: [")
    Path(".herma.yaml").write_text("")
    told = as_json(home, "path")
    assert (told["exists"], told["project"]) == (True, str(Path(".herma.yaml").absolute()))
    shown = ["config", "show", "--path"]
    assert CliRunner().invoke(cli, shown).stdout == f"{user_folder}/.herma/config.yaml\n"
    assert CliRunner().invoke(cli, shown, env={"HERMES_HOME": str(home)}).stdout == f"{file}\n"
    assert not (user_folder / ".herma").exists()


def test_set_mends_a_wrong_value_and_still_tells_of_the_next(home: Path) -> None:
    file = home / "config.yaml"
    file.write_text("memory:\n  memory_char_limit: many\n  inbox_days: few\n")
    assert herma(home, "show").exit_code == 2
    done = herma(home, "set", KEY, "5")
    assert done.exit_code == 0
    assert done.stdout == f"{KEY} set to 5 in {file}.\n"
    assert done.stderr.startswith("warning: memory.inbox_days cannot be 'few' in ")
    assert as_json(home, "set", KEY, "6") == {"ok": True, "key": KEY, "file": str(file)}
    assert herma(home, "unset", "memory.inbox_days").exit_code == 0
    assert herma(home, "show", KEY).stdout == "6\n"


@pytest.mark.parametrize("key", [key for key in config.options() if key.endswith("_env")])
def test_set_refuses_a_key_where_a_variable_is_named(home: Path, key: str) -> None:
    keys = ("sk-" + "a1B2" * 10, "gsk_" + "a1B2" * 12, "AIza" + "x-1" * 12, "b7f3a9c2" * 4, "QpLmZrKdvWtHsYfNcUeG")
    for secret in (*keys, "NAME=value", "two words"):
        done = herma(home, "set", key, secret)
        assert done.exit_code != 0
        assert "the name of a variable" in done.stderr
        assert secret not in done.stderr
        assert not (home / "config.yaml").exists()
    for name in ("OPENAI_API_KEY", "a_rather_long_name_of_a_variable", "MISTRAL_KEY_2"):
        assert herma(home, "set", key, name).exit_code == 0
    assert herma(home, "set", key, "").exit_code == 0


# ── MCP servers ──


def servers(home: Path) -> None:
    (home / "config.yaml").write_text(
        f"""
mcp_servers:
  good:
    command: {sys.executable}
    args: [--token, sesame]
  gone: {{command: no-such-program-anywhere}}
  nowhere: {{command: {sys.executable}, cwd: /no/such/folder}}
  web: {{url: "https://tools.example/mcp?key=sesame"}}
  off: {{command: no-such-program-anywhere, enabled: false}}
"""
    )


def test_the_doctor_looks_for_them(home: Path) -> None:
    servers(home)
    ran = CliRunner().invoke(cli, ["doctor", "--json", "--home", str(home)])
    checks = [check for check in json.loads(ran.stdout)["checks"] if check["name"] == "mcp servers"]
    assert [check["state"] for check in checks] == ["ok", "warning", "warning", "ok"]
    assert "sesame" not in ran.stdout


def test_when_each_last_worked(home: Path) -> None:
    script = Path(__file__).parent.parent / "path" / "mcp_server.py"
    (home / "config.yaml").write_text(
        f"mcp_servers:\n  weather: {{command: {sys.executable}, args: [{script}, stdio], connect_timeout: 60}}\n"
        "  nowhere: {url: 'http://127.0.0.1:9/mcp'}\n"
    )
    with Herma.open(home) as h:
        connected = McpServers(h.settings.mcp_servers, h.settings.chat, h.home)
    try:
        tools = {tool.name: tool for tool in connected.tools()}
        stamp = home / "logs" / "mcp" / "weather"
        os.utime(stamp, (0, 0))
        tools["weather__forecast"].run({"city": "Bonn"}, ToolContext())
        assert stamp.stat().st_mtime > 0
    finally:
        connected.close()
    ran = CliRunner().invoke(cli, ["doctor", "--json", "--home", str(home)])
    worked, unused = [one["sentence"] for one in json.loads(ran.stdout)["checks"] if one["name"] == "mcp servers"]
    assert f"{sys.executable}: last worked 20" in worked
    assert unused.endswith("mcp: not used yet.")
    with serving(home) as served:
        shown = served.ask("/api/v1/connections").json["servers"]
        assert [bool(one["last_worked"]) for one in shown] == [True, False]
        assert shown[0]["last_worked"] in served.ask("/connections").text


def test_the_configuration_shows_them(home: Path) -> None:
    servers(home)
    ran = CliRunner().invoke(cli, ["config", "show", "--home", str(home)])
    assert "  web: https://tools.example/mcp" in ran.stdout
    assert "off: no-such-program-anywhere (off)" in ran.stdout
    said = CliRunner().invoke(cli, ["config", "show", "--json", "--home", str(home)]).stdout
    assert [one["name"] for one in json.loads(said)["mcp_servers"]] == ["good", "gone", "nowhere", "web", "off"]
    assert "sesame" not in ran.stdout + said


# ── context show ──

Type = Callable[..., Result]
CALL = {"id": "call_1", "type": "function", "function": {"name": "run", "arguments": "{}"}}


@pytest.fixture
def typed(home: Path) -> Type:
    return lambda *words: CliRunner().invoke(cli, ["--home", str(home), "context", "show", *words])


@pytest.fixture
def stored(home: Path) -> str:
    with Herma.open(home) as h:
        h.memory.apply("user", Add("Likes tea."))
        with h.session(title="Garden", model="claude-sonnet-4") as session:
            session.before_model("look", recall="Roses need sun.")
            result = {"role": "tool", "tool_call_id": "call_1", "content": "row 1 of many\n" * 4000}
            session.after_model([{"role": "assistant", "content": None, "tool_calls": [CALL]}, result])
            session.before_model()
            session.after_model("done")
    return session.id


def test_a_stored_session(typed: Type, stored: str) -> None:
    done = typed("Garden")
    assert done.exit_code == 0, done.stderr
    title, _, bar, *lines = done.stdout.splitlines()
    assert stored in title
    assert "200,000 tokens" in title
    assert bar.startswith("[S")
    assert bar.endswith("]")
    for name in ("system prompt", "injected memory", "conversation", "tool results", "reply"):
        assert any(name in line for line in lines)
    assert "shortened; the transcript has the full results" in done.stdout
    assert "estimated" in done.stdout


def test_for_programs(typed: Type, stored: str) -> None:
    for words in ([stored], [stored[:-2]], []):
        value = json.loads(typed(*words, "--json").stdout)
        assert value["session"] == stored
    slots = value["slots"]
    assert value["used"] == sum(slot["used"] for slot in slots.values())
    assert value["used"] + value["free"] == value["window"] == 200_000
    assert slots["tools"]["room"] == 70_000
    assert all(slots[name]["used"] > 0 for name in ("system", "memory", "conversation", "tools"))
    assert slots["reply"] == {"name": "reply", "room": 30_000, "used": 0, "over": 0}


def test_an_unknown_window_is_said(typed: Type, home: Path) -> None:
    done = typed()
    assert done.exit_code == 0
    assert "A new session" in done.stdout
    assert "no model is set: taken as 32,768 tokens" in done.stdout
    assert not (home / "herma.db").exists()
    (home / "config.yaml").write_text("model:\n  name: homemade-7b\n")
    assert "the window of 'homemade-7b' is not known" in typed("--empty").stdout


def test_configuration(typed: Type, stored: str, home: Path) -> None:
    (home / "config.yaml").write_text("context:\n  window: 1000\n  profile: coding\n  shares: reply=5\n")
    value = json.loads(typed("--json").stdout)
    assert value["window"] == 1000
    assert {name: slot["room"] for name, slot in value["slots"].items()} == {
        "system": 250,
        "memory": 80,
        "conversation": 220,
        "tools": 300,
        "reply": 50,
    }
    assert "as configured" in value["note"]
    assert value["slots"]["system"]["over"] > 0
    assert {one["slot"] for one in value["overflows"]} >= {"system", "tools"}
    assert " over" in typed().stdout


def test_bad_input(typed: Type, stored: str, home: Path) -> None:
    for words in (["nosuch"], [""], ["x", "--empty"], ["a", "b"], []):
        if not words:
            (home / "config.yaml").write_text('context: {shares: "memory=90, system=50"}\n')
        done = typed(*words)
        assert (done.exit_code, done.stdout) == (2, "")
        assert done.stderr.startswith("herma: ")
        assert "→" in done.stderr
    (home / "config.yaml").write_text("context: {profile: poker}\n")
    assert typed().exit_code == 2
    assert stored
