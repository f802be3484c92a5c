"""`herma doctor` and `herma backup` as a person types them."""

from __future__ import annotations

import shlex
from datetime import datetime
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.faults.damage import zeroed
from tests.homes import herma, opened, process

from herma import Add
from herma.cli.main import cli


@pytest.fixture
def used(home: Path) -> Path:
    with opened(home) as h:
        session = h.transcripts.start("test")
        h.transcripts.append(session, [{"role": "user", "content": f"message {n} " + "x" * 500} for n in range(400)])
    return home


def users(home: Path) -> list[str]:
    with opened(home) as h:
        return h.memory.entries("user")


def add(home: Path, text: str) -> None:
    with opened(home) as h:
        h.memory.apply("user", Add(text))


def test_a_healthy_home(used: Path) -> None:
    said = herma(used, "doctor")
    assert (said.code, said.err) == (0, "")
    assert "Everything works." in said.out
    assert "400 messages" in said.out
    assert f"herma backup create --home {used}" in said.out, "next steps are for the same home"
    told = herma(used, "doctor", "--full", "--json").json
    assert told["healthy"]
    assert {"name", "state", "sentence", "next"} == set(told["checks"][0])
    assert "nothing to repair" in herma(used, "doctor", "--repair").out


@pytest.mark.parametrize("as_json", [False, True])
def test_a_damaged_database_from_the_first_look_to_the_last(used: Path, as_json: bool) -> None:
    raw = zeroed(used, b"message 200 ")
    said = herma(used, "doctor")
    assert said.code == 1
    assert "PROBLEM" in said.out
    assert "herma doctor --repair" in said.out
    assert "Everything works" not in said.out
    assert "Nothing was changed." in herma(used, "doctor", "--repair", "--dry-run").out
    refused = herma(used, "doctor", "--repair")
    assert (refused.code, "--yes" in refused.err) == (2, True), "nobody to ask"
    created = herma(used, "backup", "create")
    assert (created.code, "cannot be restored" in created.out) == (1, True)
    assert "herma doctor --repair" in created.err
    assert "damaged" in herma(used, "backup", "list").out
    assert (used / "herma.db").read_bytes() == raw
    done = herma(used, "doctor", "--repair", "--yes", *(["--json"] if as_json else []))
    (kept,) = (used / "backups").glob("damaged-*/herma.db")
    assert (done.code, kept.read_bytes()) == (0, raw)
    if as_json:
        (step,) = done.json["done"]
        assert (done.json["healthy"], step["kind"], step["salvaged"]["complete"]) == (True, "database", False)
        table = next(each for each in step["salvaged"]["tables"] if each["table"] == "messages")
        assert table["kept"] + table["lost"] == 400
        assert sum(last - first + 1 for first, last in table["missing"]) == table["lost"]
        assert sum(each["missing"] for each in step["salvaged"]["sessions"]) == table["lost"]
    else:
        assert all(word in done.out for word in ("lost", "session", str(kept.parent)))
    assert herma(used, "doctor").code == 0


def test_a_broken_configuration_does_not_keep_the_doctor_away(used: Path) -> None:
    (used / "config.yaml").write_text("memory: [")
    told = herma(used, "doctor", "--json")
    assert told.code == 1
    assert [check["name"] for check in told.json["checks"] if check["state"] == "problem"] == ["configuration"]


def test_a_foreign_file_is_not_repaired(home: Path) -> None:
    (home / "herma.db").write_bytes(b"something else" * 100)
    said = herma(home, "doctor", "--repair", "--yes")
    assert (said.code, "not a Herma database" in said.out) == (1, True)
    assert (home / "herma.db").read_bytes() == b"something else" * 100


def test_backups_from_the_first_to_the_last(used: Path, tmp_path: Path) -> None:
    home = used.rename(tmp_path / "a home")
    assert "no backup yet" in herma(home, "backup", "list").out
    missing = herma(home, "backup", "verify", "latest").err
    assert "There is no backup yet." in missing
    assert "herma backup create" in missing
    assert "400 messages" in herma(home, "backup", "create", "--name", "first").out
    for pruned in (0, 1):
        told = herma(home, "backup", "create", "--keep", "1", "--json").json
        assert (told["ok"], len(told["pruned"])) == (True, pruned)
    for moment in (told["backup"]["verified"], told["backup"]["manifest"]["created"]):
        assert datetime.fromisoformat(moment).tzinfo is not None
    assert len(herma(home, "backup", "list").out.splitlines()) == 3
    assert herma(home, "backup", "verify", "first").code == 0
    add(home, "later")
    assert "Would restore" in herma(home, "backup", "restore", "first", "--dry-run").out
    refused = herma(home, "backup", "restore", "first")
    assert (refused.code, "--yes" in refused.err) == (2, True)
    agent = {"CLAUDECODE": "1"}
    assert herma(home, "backup", "create", "--name", "agents", env=agent).code == 0
    refused = herma(home, "backup", "restore", "first", "--yes", env=agent)
    assert (refused.code, "person" in refused.err) == (2, True)
    restored = herma(home, "backup", "restore", "first", "--yes").out
    assert users(home) == []
    way_back = restored.splitlines()[-1].partition("restore: ")[2]
    assert CliRunner().invoke(cli, [*shlex.split(way_back)[1:], "--yes"]).exit_code == 0, "it can be pasted"
    assert users(home) == ["later"]
    assert herma(home, "backup", "restore", "first", "--yes", "--json").json["safety"]


def test_keeping_some_in_another_folder_leaves_what_is_not_ours(used: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "usb", tmp_path / "other"
    missing = herma(used, "backup", "create", str(folder))
    assert (missing.code, f"There is no folder {folder}" in missing.err) == (2, True)
    folder.mkdir()
    add(other, "another home")
    assert herma(other, "backup", "create", str(folder)).code == 0
    assert herma(used, "backup", "create", str(folder / "mine.tar.zst")).code == 0
    assert herma(used, "backup", "create", str(folder), "--name", "named").code == 0
    first, _ = (herma(used, "backup", "create", str(folder), "--json").json["backup"]["name"] for _ in range(2))
    assert herma(used, "backup", "create", str(folder), "--keep", "2", "--json").json["pruned"] == [first]
    assert len(list(folder.glob("*.tar.zst"))) == 5
    refused = herma(used, "backup", "create", str(folder / "new.tar.zst"), "--keep", "2")
    assert (refused.code, "a folder" in refused.err) == (2, True)


def test_a_bad_backup_is_said_with_a_code(used: Path) -> None:
    made = process(used, "backup", "create", "--name", "one", "--json")
    assert made.json["ok"], "stdout is JSON and nothing else"
    assert "Copying" in made.err
    (path,) = (used / "backups").glob("*.tar.zst")
    path.write_bytes(path.read_bytes()[:-200])
    told = herma(used, "backup", "verify", "one", "--json")
    assert (told.code, told.json["ok"], bool(told.json["trouble"])) == (1, False, True)
    assert "not yet" in herma(used, "backup", "list").out
    refused = herma(used, "backup", "restore", "one", "--yes")
    assert (refused.code, bool(refused.err)) == (3, True)
    unknown = herma(used, "backup", "verify", "nothing")
    assert (unknown.code, "herma backup list" in unknown.err) == (2, True)
