"""`herma providers`: seen, chosen, looked at and put away; and what the doctor says about one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.homes import herma

from herma import Herma
from herma.worker import LARGEST_LOG, Trouble, TroubleLog

GOOD = """
from herma import MemoryProvider
class Notes(MemoryProvider):
    name = "notes"
    def is_available(self): return {available}
    def unavailable_reason(self): return "NOTES_KEY is not set"
    def initialize(self, session_id, **kwargs): {initialize}
    def get_tool_schemas(self): return []
"""


def as_json(home: Path, *words: str) -> Any:
    done = herma(home, *words, "--json")
    assert done.code == 0, done.err
    return done.json


def install(home: Path, *, available: str = "True", initialize: str = "pass") -> None:
    folder = home / "plugins" / "notes"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "__init__.py").write_text(GOOD.format(available=available, initialize=initialize))
    (folder / "plugin.yaml").write_text('description: "Keeps notes."\n')


def listed(home: Path) -> dict[str, Any]:
    return {one["name"]: one for one in as_json(home, "providers", "list")["providers"]}


def test_from_none_to_one_and_back(home: Path) -> None:
    assert as_json(home, "providers", "list")["active"] is None
    assert as_json(home, "providers", "status")["providers"] == []
    install(home)
    shown = herma(home, "providers", "list").out
    assert "Keeps notes." in shown
    assert "herma providers setup" in shown
    assert "New sessions use notes." in herma(home, "providers", "setup", "notes").out
    assert 'provider: "notes"' in (home / "config.yaml").read_text()
    assert listed(home)["notes"]["active"]
    assert "available    yes" in herma(home, "providers", "status").out
    with Herma.open(home) as h, h.session():
        assert h.providers.status(ask=False).sessions == 1
    done = herma(home, "providers", "use", "none")
    assert "herma providers setup notes" in done.out, "how to take it back"
    assert "is now `herma providers setup" in done.err, "the old spelling"
    assert as_json(home, "providers", "off")["before"] is None
    with Herma.open(home) as h:
        assert h.providers.active == ""


def test_one_that_is_not_there_or_cannot_work(home: Path) -> None:
    install(home, available="False")
    done = herma(home, "providers", "setup", "note")
    assert (done.code, "There is no memory provider 'note'." in done.err, "notes" in done.err) == (2, True, True)
    done = herma(home, "providers", "setup")
    assert (done.code, "Herma cannot ask" in done.err) == (2, True)
    assert not (home / "config.yaml").exists()
    done = herma(home, "providers", "setup", "notes")
    assert (done.code, "notes is not available now: NOTES_KEY is not set" in done.err) == (0, True)
    state = herma(home, "providers", "status").out
    assert "no: NOTES_KEY is not set" in state
    assert "herma providers setup notes" in state
    assert not as_json(home, "providers", "status")["providers"][0]["available"]
    done = herma(home, "providers", "setup", "notes", env={"HERMA_MEMORY_PROVIDER": "other"})
    assert "memory.provider stays other" in done.err


ASKS = """
import json, pathlib
from herma import MemoryProvider
class Notes(MemoryProvider):
    name = "notes"
    def __init__(self): self.said = []
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): self.said = []
    def get_tool_schemas(self): return []
    def sync_turn(self, user, assistant, *, session_id="", messages=None): self.said.append(user)
    def prefetch(self, query, *, session_id=""): return "\\n".join(self.said)
    def get_status_config(self, config): return {"mode": "hybrid"}
    def get_config_schema(self):
        return [
            {"key": "mode", "choices": ["cloud", "local"], "default": "cloud"},
            {"key": "api_key", "secret": True, "required": True, "env_var": "NOTES_KEY", "when": {"mode": "cloud"},
             "url": "https://notes.example"},
            {"key": "token", "secret": True},
            {"key": "size", "default_from": {"field": "mode", "map": {"local": "small", "cloud": "big"}}},
            {"key": "folder", "env_var": "NOTES_FOLDER", "default": ""},
        ]
"""


def asking(home: Path, more: str = "") -> None:
    install(home)
    (home / "plugins" / "notes" / "__init__.py").write_text(ASKS + more)


def test_answers_go_where_they_belong(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NOTES_KEY", "NOTES_TOKEN", "NOTES_FOLDER"):
        monkeypatch.setenv(name, "x")  # so that it is taken back after the test
        monkeypatch.delenv(name)
    asking(home)
    for words in ((), ("--set", "api_key=")):
        done = herma(home, "providers", "setup", "notes", "--defaults", *words)
        assert (done.code, "needs api_key" in done.err) == (2, True)
        assert "https://notes.example" in done.err
    assert not (home / "config.yaml").exists()
    (home / ".env").write_text("# keys\nOTHER=1\nexport NOTES_KEY=old # mine\n")
    given = ("--set", "api_key=a key's", "--set", "token=-", "--set", "folder=/notes")
    done = herma(home, "providers", "setup", "notes", *given, stdin="t-1\n")
    assert done.code == 0, done.err
    assert "a key" not in done.out + done.err
    assert (home / ".env").read_text() == (
        '# keys\nOTHER=1\nNOTES_KEY="a key\'s"\nNOTES_TOKEN=t-1\nNOTES_FOLDER=/notes\n'
    )
    assert (home / ".env").stat().st_mode & 0o777 == 0o600
    assert json.loads((home / "notes.json").read_text()) == {"mode": "cloud", "size": "big", "folder": "/notes"}
    assert herma(home, "providers", "setup", "notes", "--defaults").code == 0, "a stored key is enough"
    done = herma(home, "providers", "setup", "notes", "--set", "mode=local", "--defaults")
    assert done.code == 0, "without the cloud no key is asked for"
    assert json.loads((home / "notes.json").read_text())["size"] == "small"


def test_a_secret_is_the_first_thing_in_a_new_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEM0_API_KEY", "x")  # so that it is taken back after the test
    monkeypatch.delenv("MEM0_API_KEY")
    home = tmp_path / "new"
    done = herma(home, "providers", "setup", "mem0", "--set", "api_key=k", "--defaults")
    assert (done.code, (home / ".env").read_text()) == (0, "MEM0_API_KEY=k\n"), done.err


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("mode=moon", "mode: unknown value 'moon'. Allowed: cloud, local."),
        ("nothing=1", "notes has no setting 'nothing'"),
        ("mode", "--set takes KEY=VALUE"),
        ("token=a\"b'c", "both kinds of quotes"),
    ],
)
def test_wrong_answers_change_nothing(home: Path, given: str, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOTES_KEY", "k")
    asking(home)
    done = herma(home, "providers", "setup", "notes", "--set", given)
    assert (done.code, says in done.err) == (2, True), done.err
    assert not (home / "notes.json").exists()
    assert not (home / "config.yaml").exists()


def test_missing_packages_are_named(home: Path) -> None:
    asking(home)
    with (home / "plugins" / "notes" / "plugin.yaml").open("a") as file:
        file.write("pip_dependencies: [no-such-package-at-all>=1, click]\n")
        file.write("external_dependencies: [{name: no-such-program, install: 'get it'}]\n")
    done = herma(home, "providers", "setup", "notes", "--set", "mode=local", "--no-install")
    assert "packages that are not installed: no-such-package-at-all>=1" in done.err
    assert "needs the program no-such-program. To install it: get it" in done.err


def test_a_round_trip(home: Path) -> None:
    asking(home)
    done = as_json(home, "providers", "test", "notes")
    assert done["recalled"]
    assert [each["call"] for each in done["calls"]][:3] == ["load", "is_available", "initialize"]
    assert "The test turn was recalled." in herma(home, "providers", "test", "notes").out


def test_a_round_trip_that_fails(home: Path) -> None:
    install(home, initialize="raise OSError('down')")
    failed = herma(home, "providers", "test", "notes", "--wait", "0")
    assert (failed.code, "OSError: down" in failed.out) == (3, True)


def test_compared_with_the_own_search(home: Path) -> None:
    asking(home)
    plants = (
        *("granite quarries beside turquoise lagoons", "walnut orchards behind crumbling abbeys"),
        *("copper kettles under thatched awnings", "linen weavers opposite marble fountains"),
    )
    with Herma.open(home) as h:
        for number, what in enumerate(plants):
            with h.session() as session:
                session.before_model(f"Yesterday somebody visited the {what} near village {number} with seven cousins")
                session.after_model("Thanks for telling me about that.")
        h.index.wait()
    found = as_json(home, "providers", "compare", "notes", "--count", "3")
    own, notes = found["results"]
    assert (own["name"], notes["name"], notes["found"], notes["failed"]) == ("herma", "notes", 0.0, 0)
    assert own["found"] > 0.5
    assert own["tokens"] > 0


def test_the_commands_of_a_plugin_are_there_while_it_is_in_use(home: Path) -> None:
    asking(home)
    (home / "plugins" / "notes" / "cli.py").write_text(
        "def register_cli(parser):\n    parser.add_argument('what')\n    parser.add_argument('--loud')\n"
        "def notes_command(given):\n    print('notes:', given.what, given.loud)\n"
    )
    assert herma(home, "providers", "notes", "peers").code == 2
    herma(home, "providers", "setup", "notes", "--set", "mode=local")
    assert herma(home, "providers", "notes", "peers", "--loud", "yes").out == "notes: peers yes\n"
    assert herma(home, "providers", "notes").code == 2


@pytest.mark.parametrize(
    ("available", "state", "says"),
    [("True", "ok", "is available"), ("False", "warning", "NOTES_KEY is not set"), ("1/0", "warning", "ZeroDivision")],
)
def test_the_doctor_asks_it(home: Path, available: str, state: str, says: str) -> None:
    install(home, available=available)
    herma(home, "providers", "setup", "notes")
    with Herma.open(home) as h:
        (check,) = [check for check in h.doctor().checks if check.name == "provider"]
    assert (check.state, says in check.sentence) == (state, True)
    (home / "config.yaml").write_text("memory:\n  provider: nowhere\n")
    with Herma.open(home) as h:
        (check,) = [check for check in h.doctor().checks if check.name == "provider"]
        assert check.state == "problem"
        assert check.next == "herma providers status"


def test_what_went_wrong_in_another_program_is_shown(home: Path) -> None:
    install(home, initialize="raise OSError('the shelf fell')")
    herma(home, "providers", "setup", "notes")
    for _ in range(2):
        with Herma.open(home) as h:
            h.session().close()
    shown = herma(home, "providers", "status").out
    assert "failed 2 times" in shown
    assert "initialize: OSError: the shelf fell" in shown
    assert len(as_json(home, "providers", "status")["providers"][0]["failures"]) == 2
    doctor = herma(home, "doctor").out
    assert "notes failed 2 times in the last week, most recently at initialize: OSError: the shelf fell." in doctor


def test_the_log_of_troubles_is_bounded_and_holds_no_secrets(home: Path) -> None:
    log = TroubleLog(home)
    log.add(Trouble("notes", "it", "401 for key sk-ant-" + "a1B2c3D4" * 5), 1.0)
    assert "sk-ant" not in (home / "logs" / "plugins.jsonl").read_text()
    for number in range(1_500):
        log.add(Trouble("notes", "it", "x" * 290), float(number))
    assert (home / "logs" / "plugins.jsonl").stat().st_size <= LARGEST_LOG + 1_000
    assert [noted.at for noted in log.since(1_498.0)] == [1_498.0, 1_499.0]
    with (home / "logs" / "plugins.jsonl").open("ab") as file:
        file.write(b'{"at": "x"}\n\xff\xfe\nnull\n[1')
    assert [noted.at for noted in log.since(1_499.0)] == [1_499.0]
    assert (home / "logs" / "plugins.jsonl").stat().st_mode & 0o077 == 0
    (home / "empty").mkdir()
    (home / "empty" / "logs").write_text("a file, not a folder")
    log = TroubleLog(home / "empty")
    log.add(Trouble("notes", "it", "why"), 1.0)
    assert list(log.since(0)) == [], "a home that cannot be written has no log"
