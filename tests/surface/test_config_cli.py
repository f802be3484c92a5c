"""`herma config`: what it shows, what it changes, and what it says about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import config
from herma.cli.main import cli

KEY = "memory.memory_char_limit"


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


# ── show ────────────────────────────────────────────────────────────────────────────────────────────────────────


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


def test_show_as_json_says_all_there_is_to_know_about_a_key(home: Path) -> None:
    told = as_json(home, "show", "--profile", "p")
    assert told["profile"] == "p"
    assert [item["key"] for item in told["keys"]] == list(config.options())
    assert next(item for item in told["keys"] if item["key"] == KEY) == {
        "key": KEY,
        "value": 2200,
        "source": "default",
        "default": 2200,
        "expected": "a whole number from 1 to 1000000",
        "description": "Maximum characters of MEMORY.md.",
        "variable": "HERMA_MEMORY_MEMORY_CHAR_LIMIT",
        "project": True,
    }


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


# ── get ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_get(home: Path) -> None:
    assert herma(home, "show", KEY).stdout == "2200\n"
    assert herma(home, "show", "memory.live_updates").stdout == "true\n"
    assert herma(home, "show", "memory.provider").stdout == "\n"
    assert as_json(home, "show", KEY, HERMA_MEMORY_MEMORY_CHAR_LIMIT="5") == {
        "ok": True,
        "key": KEY,
        "value": 5,
        "source": "HERMA_MEMORY_MEMORY_CHAR_LIMIT",
    }


def test_get_of_an_unknown_key(home: Path) -> None:
    done = herma(home, "show", "memory.memry_char_limit")
    assert done.exit_code == 2
    assert done.stdout == ""
    assert done.stderr == (
        f"herma: memory.memry_char_limit is not a known configuration key.\n  → Did you mean {KEY}?\n"
    )
    assert as_json(home, "show", "x.y")["hint"] == "`herma config show` lists the known keys."


# ── set and unset ───────────────────────────────────────────────────────────────────────────────────────────────


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


def test_set_says_what_is_stronger(home: Path) -> None:
    done = herma(home, "set", KEY, "3000", HERMA_MEMORY_MEMORY_CHAR_LIMIT="5")
    assert done.exit_code == 0
    assert done.stderr == f"warning: HERMA_MEMORY_MEMORY_CHAR_LIMIT overrides config.yaml: {KEY} stays 5.\n"
    project = Path(".herma.yaml").absolute()
    project.write_text("memory: {memory_char_limit: 6}\n")
    told = as_json(home, "set", KEY, "3000")
    assert (told["value"], told["source"], told["overridden"]) == (6, str(project), True)
    assert "3000" in (home / "config.yaml").read_text()


def test_set_of_a_negative_number_is_a_value_and_not_an_option(home: Path) -> None:
    done = herma(home, "set", KEY, "-5")
    assert done.exit_code == 2
    assert done.stderr == (
        f"herma: {KEY} cannot be '-5': it must be a whole number from 1 to 1000000.\n"
        "  → Maximum characters of MEMORY.md.\n"
    )
    assert not (home / "config.yaml").exists()


def test_set_into_a_profile(home: Path) -> None:
    assert herma(home, "set", KEY, "5", "--profile", "work").exit_code == 0
    assert (home / "profiles" / "work" / "config.yaml").exists()
    assert herma(home, "show", KEY).stdout == "2200\n"
    assert herma(home, "show", KEY, HERMA_PROFILE="work").stdout == "5\n"


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


def test_unset(home: Path) -> None:
    file = home / "config.yaml"
    file.write_text("memory:\n  # mine\n  memory_char_limit: 5\n")
    done = herma(home, "unset", KEY)
    assert done.stdout == f"{KEY} removed from {file}.\nDefault: 2200.\n"
    assert file.read_text() == "memory:\n  # mine\n"
    assert herma(home, "unset", KEY).stdout.startswith(f"{KEY} is not set in {file}.\n")
    assert as_json(home, "unset", KEY)["changed"] is False
    assert herma(home, "unset", "memory.nonsense").exit_code == 2


# ── path ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_path_works_even_with_a_broken_file(home: Path) -> None:
    file = home / "config.yaml"
    assert herma(home, "path").stdout == f"{file}\n"
    told = as_json(home, "path")
    assert told == {"ok": True, "home": str(home), "file": str(file), "exists": False, "project": None}
    file.write_text("memory: [")
    Path(".herma.yaml").write_text("")
    told = as_json(home, "path")
    assert (told["exists"], told["project"]) == (True, str(Path(".herma.yaml").absolute()))


def test_the_home_by_the_environment(home: Path, user_folder: Path) -> None:
    runner = CliRunner()
    assert runner.invoke(cli, ["config", "show", "--path"]).stdout == f"{user_folder}/.herma/config.yaml\n"
    assert (
        runner.invoke(cli, ["config", "show", "--path"], env={"HERMES_HOME": str(home)}).stdout
        == f"{home}/config.yaml\n"
    )
    assert not (user_folder / ".herma").exists()


# ── a key is no name of a variable ──────────────────────────────────────────────────────────────────────────────


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
