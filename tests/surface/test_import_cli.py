"""`herma import`: what is on this machine, one batch, one undo."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tests.homes import Ran, herma

from herma import Herma
from herma.importers.cli import _changes

Type = Callable[..., Ran]


def claude(file: Path, *texts: str, session: str = "s1") -> Path:
    """Write a transcript of Claude Code in which a person says these things."""
    file.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        {
            "type": "user",
            "uuid": f"{session}-{number}",
            "parentUuid": None,
            "sessionId": session,
            "timestamp": f"2024-01-01T10:00:{number:02}Z",
            "cwd": "/srv/shop",
            "message": {"role": "user", "content": text},
        }
        for number, text in enumerate(texts)
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder of a person who uses Claude Code."""
    folder = tmp_path / "person"
    monkeypatch.setenv("HOME", str(folder))
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    claude(folder / ".claude/projects/-srv-shop/s1.jsonl", "The cart loses items.", "It is the cache.")
    return folder


@pytest.fixture
def type_(home: Path) -> Type:
    return partial(herma, home)


def test_everything_on_this_machine_is_imported_after_a_yes(type_: Type, machine: Path) -> None:
    asked = type_("import")
    assert asked.code == 2
    assert "claude-code  1         2" in asked.out
    assert "add --yes" in asked.err
    assert "nothing" in type_("import", "--dry-run").out.lower()
    assert "claude-code: added 2 messages in 1 new session." in type_("import", "--yes").out
    assert "The cart loses items." in type_("search", "cart loses").out
    assert "Everything is imported already." in type_("import").out
    claude(machine / ".claude/projects/-srv-shop/s2.jsonl", "Another", session="s2")
    assert "1 of 2 files imported" in type_("import", "--dry-run").out
    assert "added 1 message in 1 new session" in type_("import", "--yes").out


def test_an_import_is_one_line_of_the_log_and_one_undo(type_: Type, machine: Path) -> None:
    type_("import", "--yes")
    assert "i1" in type_("log").out
    assert type_("log", "i1", "--json").json["change"]["messages"] == 2
    assert "Would undo i1" in type_("undo", "--dry-run").out
    assert "Removed what import i1 added" in type_("undo").out
    assert type_("sessions", "list", "--json").json["sessions"] == []
    assert [(one["id"], one["kind"]) for one in type_("log", "--json").json["changes"]] == [("i1", "imports")]
    assert "undone already" in type_("undo", "i1").err
    assert type_("undo").code == 1
    assert "added 1 session and no new messages" in type_("import", "claude-code").out
    assert "cart" in type_("search", "cart").out


def test_a_file_is_imported_by_its_path(type_: Type, tmp_path: Path, machine: Path) -> None:
    token = "ghp_" + "a1B2" * 9
    file = claude(tmp_path / "kept" / "old.jsonl", f"Kept from an old laptop: {token}", session="old")
    with file.open("a") as more:
        more.write('{"type": "strange"}\nnot json\n')
    done = type_("import", str(file), "--redact", "--json").json
    assert token not in type_("sessions", "show", "claude-code-old").out
    (result,) = done["imports"]
    assert (result["source"], result["messages"], done["undo"]) == ("claude-code", 1, "i1")
    assert result["problems"][0]["lines"] == {"unknown strange": [2], "not JSON": [3]}
    again = type_("import", "claude-code", str(file.parent), "--dry-run")
    assert "nothing new" in again.out
    assert "no such file" in type_("import", str(tmp_path / "gone.jsonl")).err
    assert "Unknown source 'nobody'" in type_("import", "nobody").err
    assert "Unknown source ''" in type_("import", "").err
    assert "do not apply to notes" in type_("import", "notes", "--watch").err
    assert "is not in a format that Herma imports" in type_("import", str(Path(__file__))).err


def test_watching_adds_what_is_written_meanwhile(home: Path, machine: Path) -> None:
    command = [sys.executable, "-m", "herma.cli.main", "import", "claude-code", "--watch", "--home", str(home)]
    file = machine / ".claude/projects/-srv-shop/s1.jsonl"
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any("Watching" in line for line in process.stdout), process.communicate()[1]
        claude(file, "The cart loses items.", "It is the cache.", "And now the prices.")
        deadline = time.monotonic() + 60
        with Herma.open(home=home) as h:
            while len(h.transcripts.messages("claude-code-s1")) < 3 and time.monotonic() < deadline:
                time.sleep(0.2)
            assert len(h.transcripts.messages("claude-code-s1")) == 3
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    with Herma.open(home=home) as h:
        assert [hit.session_id for hit in h.search("prices").hits] == ["claude-code-s1"]


def test_watching_goes_on_where_the_system_allows_no_more_watches(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("watchfiles.watch", refused)
    monkeypatch.setattr("herma.importers.cli.WATCH_EVERY", 0.0)
    changes = _changes([machine])
    assert [next(changes), next(changes)] == [None, None]
    assert capsys.readouterr().out.count("Looking every 0 s instead.") == 1


def test_watching_runs_as_a_service(type_: Type, machine: Path, home: Path) -> None:
    file = machine / ".config/systemd/user/herma-import.service"
    preview = type_("connect", "import", "--dry-run").out
    assert (f"Would write {file}" in preview, file.exists()) == (True, False)
    assert "systemctl --user enable --now herma-import" in type_("connect", "import").out
    assert f"import --watch --yes --home {home}" in file.read_text()
    assert "is there already" in type_("connect", "import").out
    file.write_text("mine")
    assert (type_("connect", "import").code, file.read_text()) == (2, "mine")  # it cannot ask
    assert type_("connect", "import", "--remove", "--yes").code == 0
    assert not file.exists()
    assert "does not exist" in type_("connect", "import", "--remove").out


def test_a_package_adds_a_program(type_: Type, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    (site / "x-1.dist-info").mkdir(parents=True)
    (site / "x-1.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: x\nVersion: 1\n")
    (site / "x-1.dist-info" / "entry_points.txt").write_text("[herma.importers]\nnotebook = notebook_reader:Notebook\n")
    (site / "notebook_reader.py").write_text(
        "from herma.importers.base import FormatReader, ImportedMessage\n"
        "class Notebook(FormatReader):\n"
        "    name, title = 'notebook', 'Notebook'\n"
        "    def recognises(self, file, head): return head.startswith(b'{\"notebook\"')\n"
        "    def read(self, file, log):\n"
        "        for one in log.json_lines(file):\n"
        "            if 'said' in one: yield ImportedMessage('n', (str(log.line),), 'user', one['said'])\n"
    )
    monkeypatch.syspath_prepend(str(site))
    (tmp_path / "a.jsonl").write_text('{"notebook": 1}\n{"said": "Water the herons."}\n')
    done = type_("import", str(tmp_path / "a.jsonl"), "--json").json["imports"][0]
    assert (done["source"], done["messages"], done["skipped"]) == ("notebook", 1, {"record without content": 1})
    assert "herons" in type_("search", "herons").out
