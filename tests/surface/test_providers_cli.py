"""`herma providers`: seen, chosen, looked at and put away; and what the doctor says about one."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli
from herma.providers.guard import LARGEST, Noted, TroubleLog

GOOD = """
from herma import MemoryProvider
class Notes(MemoryProvider):
    name = "notes"
    def is_available(self): return {available}
    def unavailable_reason(self): return "NOTES_KEY is not set"
    def initialize(self, session_id, **kwargs): {initialize}
    def get_tool_schemas(self): return []
"""


def herma(home: Path, *words: str, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), *words], env=env)


def as_json(home: Path, *words: str) -> Any:
    done = herma(home, *words, "--json")
    assert done.exit_code == 0, done.stderr
    return json.loads(done.stdout)


def install(home: Path, *, available: str = "True", initialize: str = "pass") -> None:
    folder = home / "plugins" / "notes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(GOOD.format(available=available, initialize=initialize))
    (folder / "plugin.yaml").write_text('description: "Keeps notes."\n')


def test_from_none_to_one_and_back(home: Path) -> None:
    assert "There are none." in herma(home, "providers", "list").stdout
    assert "No external memory is in use" in herma(home, "providers", "status").stdout
    assert as_json(home, "providers", "status") == {
        "ok": True,
        "active": None,
        "provider": None,
        "available": None,
        "why": None,
        "troubles": [],
    }
    install(home)
    listed = herma(home, "providers", "list").stdout
    assert "Keeps notes." in listed
    assert "herma providers use notes" in listed
    assert "takes part in sessions that begin from now on" in herma(home, "providers", "use", "notes").stdout
    assert 'provider: "notes"' in (home / "config.yaml").read_text()
    assert as_json(home, "providers", "list")["providers"][0]["active"]
    assert "notes is available" in herma(home, "providers", "status").stdout
    with Herma.open(home) as h, h.session():
        assert h.providers.status(ask=False).sessions == 1
    done = herma(home, "providers", "off").stdout
    assert "herma providers use notes" in done, "how to take it back"
    assert as_json(home, "providers", "off") == {"ok": True, "before": None, "changed": False}
    with Herma.open(home) as h:
        assert h.providers.active == ""


def test_one_that_is_not_there_is_not_chosen(home: Path) -> None:
    install(home)
    done = herma(home, "providers", "use", "note")
    assert done.exit_code == 2
    assert "There is no memory provider 'note'." in done.stderr
    assert "There are: notes." in done.stderr
    assert not (home / "config.yaml").exists()


def test_one_that_cannot_work_is_chosen_with_a_warning(home: Path) -> None:
    install(home, available="False")
    done = herma(home, "providers", "use", "notes")
    assert done.exit_code == 0
    assert "notes is not available now: NOTES_KEY is not set" in done.stderr
    status = herma(home, "providers", "status").stdout
    assert "notes is not available: NOTES_KEY is not set" in status
    assert "herma providers off" in status
    assert not as_json(home, "providers", "status")["available"]


def test_what_is_stronger_than_the_file_is_named(home: Path) -> None:
    install(home)
    done = herma(home, "providers", "use", "notes", env={"HERMA_MEMORY_PROVIDER": "other"})
    assert "memory.provider stays other" in done.stderr


@pytest.mark.parametrize(
    ("available", "state", "says"),
    [("True", "ok", "is available"), ("False", "warning", "NOTES_KEY is not set"), ("1/0", "warning", "ZeroDivision")],
)
def test_the_doctor_asks_it(home: Path, available: str, state: str, says: str) -> None:
    install(home, available=available)
    herma(home, "providers", "use", "notes")
    with Herma.open(home) as h:
        (check,) = [check for check in h.doctor().checks if check.name == "provider"]
    assert (check.state, says in check.sentence) == (state, True)
    (home / "config.yaml").write_text("memory:\n  provider: nowhere\n")
    with Herma.open(home) as h:
        (check,) = [check for check in h.doctor().checks if check.name == "provider"]
        assert check.state == "problem"
        assert check.next == "herma providers list"


def test_what_went_wrong_in_another_program_is_shown(home: Path) -> None:
    install(home, initialize="raise OSError('the shelf fell')")
    herma(home, "providers", "use", "notes")
    for _ in range(2):
        with Herma.open(home) as h:
            h.session().close()
    assert "initialize: OSError: the shelf fell" in herma(home, "providers", "status").stdout
    assert len(as_json(home, "providers", "status")["troubles"]) == 2
    doctor = herma(home, "doctor").stdout
    assert "notes failed 2 times in the last week, last at initialize: OSError: the shelf fell." in doctor


def test_the_log_of_troubles_is_bounded_and_holds_no_secrets(home: Path) -> None:
    log = TroubleLog(home)
    log.add(Noted(1.0, "notes", "it", "401 for key sk-ant-" + "a1B2c3D4" * 5))
    assert "sk-ant" not in (home / "logs" / "guests.jsonl").read_text()
    for number in range(1_500):
        log.add(Noted(float(number), "notes", "it", "x" * 290))
    assert (home / "logs" / "guests.jsonl").stat().st_size <= LARGEST + 1_000
    assert [noted.at for noted in log.since(1_498.0)] == [1_498.0, 1_499.0]
    with (home / "logs" / "guests.jsonl").open("ab") as file:
        file.write(b'{"at": "x"}\n\xff\xfe\nnull\n[1')
    assert [noted.at for noted in log.since(1_499.0)] == [1_499.0]
    assert (home / "logs" / "guests.jsonl").stat().st_mode & 0o077 == 0


def test_a_home_that_cannot_be_written_has_no_log(tmp_path: Path) -> None:
    (tmp_path / "logs").write_text("a file, not a folder")
    log = TroubleLog(tmp_path)
    log.add(Noted(time.time(), "notes", "it", "why"))
    assert list(log.since(0)) == []
