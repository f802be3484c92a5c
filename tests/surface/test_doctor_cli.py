"""`herma doctor` and `herma backup` as a person types them."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from herma import Add, Herma
from herma.cli.main import cli


def herma(home: Path, *words: str, env: dict[str, str] | None = None) -> tuple[int, str, str]:
    result = CliRunner().invoke(cli, ["--home", str(home), *words], env=env)
    return result.exit_code, result.stdout, result.stderr


def answer(home: Path, *words: str) -> tuple[int, Any]:
    code, out, _ = herma(home, *words, "--json")
    return code, json.loads(out)


@pytest.fixture
def used(home: Path) -> Path:
    with Herma.open(home, flags={"memory.memory_char_limit": 100_000}) as h:
        for number in range(30):
            h.memory.apply("memory", Add(f"entry {number}"))
        session = h.transcripts.start("test")
        h.transcripts.append(session, [{"role": "user", "content": f"message {n} " + "x" * 500} for n in range(400)])
    return home


def harm(home: Path) -> bytes:
    path = home / "herma.db"
    raw = bytearray(path.read_bytes())
    size = int.from_bytes(raw[16:18], "big")
    page = raw.index(b"message 200 ") // size * size
    raw[page : page + size] = bytes(size)
    path.write_bytes(raw)
    return bytes(raw)


def test_a_healthy_home(used: Path) -> None:
    code, out, err = herma(used, "doctor")
    assert code == 0
    assert "Everything works." in out
    assert "400 messages" in out
    assert err == ""
    code, told = answer(used, "doctor", "--full")
    assert code == 0
    assert told["healthy"]
    assert {"name", "state", "sentence", "next"} == set(told["checks"][0])
    code, out, _ = herma(used, "doctor", "--repair")
    assert code == 0
    assert "nothing to repair" in out


def test_a_damaged_database_from_the_first_look_to_the_last(used: Path) -> None:
    raw = harm(used)
    code, out, _ = herma(used, "doctor")
    assert code == 1
    assert "PROBLEM" in out
    assert "herma doctor --repair" in out
    assert "Everything works" not in out
    code, out, _ = herma(used, "doctor", "--repair", "--dry-run")
    assert code == 0
    assert "Nothing was changed." in out
    code, _, err = herma(used, "doctor", "--repair")
    assert code == 2
    assert "--yes" in err, "nobody to ask"
    assert (used / "herma.db").read_bytes() == raw
    code, out, _ = herma(used, "doctor", "--repair", "--yes")
    assert code == 0
    assert "lost" in out
    assert "session" in out
    (kept,) = (used / "backups").glob("damaged-*/herma.db")
    assert kept.read_bytes() == raw
    assert str(kept.parent) in out
    assert herma(used, "doctor")[0] == 0


def test_what_a_repair_did_as_json(used: Path) -> None:
    harm(used)
    code, told = answer(used, "doctor", "--repair", "--yes")
    assert code == 0
    assert told["healthy"]
    (done,) = told["done"]
    assert done["kind"] == "database"
    assert not done["salvaged"]["complete"]
    table = next(each for each in done["salvaged"]["tables"] if each["table"] == "messages")
    assert table["kept"] + table["lost"] == 400
    assert sum(last - first + 1 for first, last in table["missing"]) == table["lost"]
    assert sum(each["missing"] for each in done["salvaged"]["sessions"]) == table["lost"]


def test_a_broken_configuration_does_not_keep_the_doctor_away(used: Path) -> None:
    (used / "config.yaml").write_text("memory: [")
    code, told = answer(used, "doctor")
    assert code == 1
    assert [check["name"] for check in told["checks"] if check["state"] == "problem"] == ["configuration"]


def test_a_foreign_file_is_not_repaired(home: Path) -> None:
    (home / "herma.db").write_bytes(b"something else" * 100)
    code, out, _ = herma(home, "doctor", "--repair", "--yes")
    assert code == 1
    assert "not a Herma database" in out
    assert (home / "herma.db").read_bytes() == b"something else" * 100


def test_backups_from_the_first_to_the_last(used: Path) -> None:
    code, out, _ = herma(used, "backup", "list")
    assert (code, "no backup yet" in out) == (0, True)
    code, out, _ = herma(used, "backup", "create", "--name", "first")
    assert code == 0
    assert "400 messages" in out
    code, told = answer(used, "backup", "create", "--keep", "1")
    assert (code, told["ok"], told["pruned"]) == (0, True, [])
    code, told = answer(used, "backup", "create", "--keep", "1")
    assert len(told["pruned"]) == 1
    code, out, _ = herma(used, "backup", "list")
    assert len(out.splitlines()) == 3
    assert herma(used, "backup", "verify", "first")[0] == 0
    with Herma.open(used) as h:
        h.memory.apply("user", Add("later"))
    code, out, _ = herma(used, "backup", "restore", "first", "--dry-run")
    assert (code, "Would restore" in out) == (0, True)
    code, _, err = herma(used, "backup", "restore", "first")
    assert (code, "--yes" in err) == (2, True)
    code, told = answer(used, "backup", "restore", "first", "--yes")
    assert (code, told["ok"]) == (0, True)
    with Herma.open(used) as h:
        assert h.memory.entries("user") == []
    code, out, _ = herma(used, "backup", "restore", told["safety"], "--yes")
    assert code == 0
    with Herma.open(used) as h:
        assert h.memory.entries("user") == ["later"]


def test_the_way_back_after_a_restore_can_be_pasted(used: Path, tmp_path: Path) -> None:
    home = used.rename(tmp_path / "a home")
    herma(home, "backup", "create", "--name", "first")
    with Herma.open(home) as h:
        h.memory.apply("user", Add("later"))
    _, out, _ = herma(home, "backup", "restore", "first", "--yes")
    line = out.splitlines()[-1].partition("restore: ")[2]
    assert CliRunner().invoke(cli, [*shlex.split(line)[1:], "--yes"]).exit_code == 0
    with Herma.open(home) as h:
        assert h.memory.entries("user") == ["later"]


def test_keeping_some_in_another_folder_leaves_what_is_not_ours(used: Path, tmp_path: Path) -> None:
    folder, other = tmp_path / "usb", tmp_path / "other"
    folder.mkdir()
    with Herma.open(other) as h:
        h.memory.apply("user", Add("another home"))
    assert herma(other, "backup", "create", str(folder))[0] == 0
    assert herma(used, "backup", "create", str(folder / "mine.tar.zst"))[0] == 0
    assert herma(used, "backup", "create", str(folder), "--name", "named")[0] == 0
    first, *_ = (answer(used, "backup", "create", str(folder))[1]["backup"]["name"] for _ in range(2))
    code, told = answer(used, "backup", "create", str(folder), "--keep", "2")
    assert (code, told["pruned"]) == (0, [first])
    assert len(list(folder.glob("*.tar.zst"))) == 5
    code, _, err = herma(used, "backup", "create", str(folder / "new.tar.zst"), "--keep", "2")
    assert (code, "a folder" in err) == (2, True)


def test_what_is_missing_is_said_with_what_to_do(used: Path, tmp_path: Path) -> None:
    _, _, err = herma(used, "backup", "verify", "latest")
    assert "There is no backup yet." in err
    assert "herma backup create" in err
    code, _, err = herma(used, "backup", "create", str(tmp_path / "usb"))
    assert (code, f"There is no folder {tmp_path / 'usb'}" in err) == (2, True)


def test_times_in_json_are_those_of_everywhere_else(used: Path) -> None:
    made = answer(used, "backup", "create")[1]["backup"]
    for moment in (made["verified"], made["manifest"]["created"]):
        assert datetime.fromisoformat(moment).tzinfo is not None


def test_next_steps_of_the_doctor_are_for_the_same_home(used: Path) -> None:
    assert f"herma backup create --home {used}" in herma(used, "doctor")[1]


def test_a_bad_backup_is_said_with_a_code(used: Path) -> None:
    herma(used, "backup", "create", "--name", "one")
    (path,) = (used / "backups").glob("*.tar.zst")
    path.write_bytes(path.read_bytes()[:-200])
    code, told = answer(used, "backup", "verify", "one")
    assert (code, told["ok"]) == (1, False)
    assert told["trouble"]
    assert "not yet" in herma(used, "backup", "list")[1]
    code, _, err = herma(used, "backup", "restore", "one", "--yes")
    assert code == 3
    assert "→" in err or err
    code, _, err = herma(used, "backup", "verify", "nothing")
    assert (code, "herma backup list" in err) == (2, True)


def test_a_backup_of_a_damaged_database_is_not_called_good(used: Path) -> None:
    harm(used)
    code, out, err = herma(used, "backup", "create")
    assert code == 1
    assert "cannot be restored" in out
    assert "herma doctor --repair" in err
    assert "damaged" in herma(used, "backup", "list")[1]


def test_an_agent_may_make_backups_but_not_restore_them(used: Path) -> None:
    env = {"CLAUDECODE": "1"}
    assert herma(used, "backup", "create", "--name", "one", env=env)[0] == 0
    code, _, err = herma(used, "backup", "restore", "one", "--yes", env=env)
    assert (code, "person" in err) == (2, True)


def test_stdout_is_json_and_nothing_else(used: Path) -> None:
    command = [sys.executable, "-m", "herma.cli.main", "--home", str(used), "backup", "create", "--json"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert json.loads(run.stdout)["ok"]
    assert "Copying" in run.stderr
