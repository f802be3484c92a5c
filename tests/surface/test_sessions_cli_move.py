"""`herma sessions export` and `import`: files, standard input and output, and what can be wrong with them."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from herma import Herma
from herma.cli.main import cli

TOKEN = "ghp_" + "k7Qw2Zx9" * 5


def herma(home: Path, *words: str, stdin: bytes | None = None) -> Result:
    return CliRunner().invoke(cli, ["--home", str(home), "sessions", *words], input=stdin)


@pytest.fixture
def full(home: Path) -> Path:
    with Herma.open(home) as h:
        t = h.transcripts
        for n in range(24):
            one = t.start("cli", title=f"Talk {n}" if n % 3 else None, started=1_700_000_000.0 + n)
            t.append(one, [{"role": "user", "content": f"问题 {n} \x1b[2J with {TOKEN}"}])
            helper = t.start("subagent", parent=one, reason="delegation")
            t.append(helper, [{"role": "assistant", "content": "done"}])
    return home


@pytest.fixture
def other(tmp_path: Path) -> Path:
    return tmp_path / "other"


def test_out_of_one_home_and_into_another(full: Path, other: Path, tmp_path: Path) -> None:
    file = tmp_path / "all.jsonl"
    wrote = herma(full, "export", "--all", "-o", str(file))
    assert wrote.exit_code == 0, wrote.stderr
    assert "Wrote 48 conversations (48 sessions)" in wrote.stdout
    assert wrote.stderr == ""
    assert file.stat().st_mode & 0o077 == 0
    rehearsed = herma(other, "import", str(file), "--dry-run")
    assert "would import 48 sessions with 48 messages" in rehearsed.stdout
    assert "Nothing was imported." in rehearsed.stdout
    imported = herma(other, "import", str(file))
    assert imported.stdout == f"{file}: imported 48 sessions with 48 messages.\n"
    again = herma(other, "import", str(file))
    assert "imported 0 sessions" in again.stdout
    assert "48 sessions skipped" in again.stdout
    assert "and 40 more" in again.stdout
    assert herma(other, "export", "--all").stdout_bytes == file.read_bytes()


def test_through_pipes(full: Path, tmp_path: Path) -> None:
    """As a shell makes them: `… | herma sessions import -`, and `import <(zcat sessions.jsonl.gz)`."""
    piped = herma(full, "export", "--all").stdout_bytes
    done = herma(tmp_path / "one", "import", "-", stdin=piped)
    assert "standard input: imported 48 sessions" in done.stdout
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(piped))
    writer.start()
    named = herma(tmp_path / "two", "import", str(pipe))
    writer.join()
    assert named.exit_code == 0, named.stderr
    for home in (tmp_path / "one", tmp_path / "two"):
        assert herma(home, "export", "--all").stdout_bytes == piped


def test_the_format_is_what_the_file_is_called(full: Path, tmp_path: Path) -> None:
    for name, beginning in (("a.md", "# Talk 1\n"), ("a.html", "<!doctype html>"), ("a.jsonl", '{"type":"herma"')):
        herma(full, "export", "Talk 1", "-o", str(tmp_path / name))
        text = (tmp_path / name).read_text("utf-8")
        assert text.startswith(beginning)
        assert "问题 1 " in text
        assert "\x1b" not in text
    assert herma(full, "export", "Talk 1", "--format", "md").stdout.startswith("# Talk 1\n")
    assert herma(full, "export", "Talk 1", "--format", "pdf").exit_code == 2


def test_redacting_names_what_it_took_out(full: Path, tmp_path: Path) -> None:
    for kind in ("jsonl", "md", "html"):
        done = herma(full, "export", "--all", "--redact", "--format", kind)
        assert TOKEN not in done.stdout
        assert done.stdout.count("[redacted: GitHub token]") == 24
        assert done.stderr == "Redacted: 24 × GitHub token.\n"
    value = json.loads(herma(full, "export", "--all", "--redact", "-o", str(tmp_path / "x"), "--json").stdout)
    assert value["redacted"] == {"GitHub token": 24}


def test_a_file_that_exists_is_replaced_only_when_told_so(full: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.jsonl"
    file.write_text("precious")
    refused = herma(full, "export", "--all", "-o", str(file))
    assert refused.exit_code == 2
    assert "--yes" in refused.stderr
    assert file.read_text() == "precious"
    assert herma(full, "export", "--all", "-o", str(file), "--yes").exit_code == 0
    assert file.read_bytes().startswith(b'{"type":"herma"')
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".part")] == []


def test_an_export_that_cannot_be_written(full: Path, tmp_path: Path) -> None:
    for target in (tmp_path, tmp_path / "nowhere" / "x.jsonl"):
        done = herma(full, "export", "--all", "-o", str(target))
        assert done.exit_code != 0
        assert len(done.stderr.splitlines()) == 2
        assert "Internal error" not in done.stderr


def test_which_sessions_must_be_said(full: Path) -> None:
    assert "Which sessions? Give either" in herma(full, "export").stderr
    assert herma(full, "export", "--all", "Talk 1").exit_code == 2
    assert herma(full, "export", "unknown").exit_code == 2
    assert "-o FILE" in herma(full, "export", "--all", "--json").stderr


def test_one_bad_file_does_not_stop_the_good_ones(full: Path, other: Path, tmp_path: Path) -> None:
    good, broken = tmp_path / "good.jsonl", tmp_path / "broken.jsonl"
    herma(full, "export", "--all", "-o", str(good))
    broken.write_bytes(good.read_bytes()[:-20])
    done = herma(other, "import", str(broken), str(good))
    assert done.exit_code == 2
    assert "line 97 ends in the middle" in done.stderr
    assert "imported 48 sessions" in done.stdout
    value = json.loads(herma(other, "import", str(broken), str(good), "--json").stdout)
    assert value["ok"] is False
    assert [one["ok"] for one in value["files"]] == [False, True]
    assert len(value["files"][1]["skipped"]) == 48


@pytest.mark.parametrize("content", [b"", b"\x00\x01\x02", b"{}\n"])
def test_what_is_no_export_is_refused_in_one_sentence(home: Path, tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x.jsonl"
    file.write_bytes(content)
    done = herma(home, "import", str(file))
    assert done.exit_code == 2
    sentence, step = done.stderr.splitlines()
    assert sentence.startswith(f"herma: {file}")
    assert step.startswith("  → ")
    assert not (home / "herma.db").exists()


def test_files_that_are_not_there(home: Path, tmp_path: Path) -> None:
    assert "cannot be read" in herma(home, "import", str(tmp_path / "none")).stderr
    assert "Is a directory" in herma(home, "import", str(tmp_path)).stderr
    assert herma(home, "import").exit_code == 2
    assert "standard input is empty" in herma(home, "import", "-", stdin=b"").stderr


def test_control_characters_in_a_bad_file_do_not_reach_the_terminal(home: Path, tmp_path: Path) -> None:
    file = tmp_path / "x.jsonl"
    header = '{"type":"herma","format":"transcripts","version":1}\n'
    bad = {"type": "session", "id": "a\x1b]0;owned\x07", "source": "cli", "started": 1}
    file.write_text(header + json.dumps(bad) + "\n")
    done = herma(home, "import", str(file))
    assert done.exit_code == 2
    assert "\x1b" not in done.stderr


def test_what_lost_its_parent_is_named(full: Path, other: Path, tmp_path: Path) -> None:
    with Herma.open(full) as h:
        parent = h.transcripts.resolve("Talk 1")
        branch = h.transcripts.start("cli", parent=parent, reason="branch")
    file = tmp_path / "branch.jsonl"
    herma(full, "export", branch, "-o", str(file))
    done = herma(other, "import", str(file))
    assert f"{branch} (from {parent}: it is neither in the file nor here)" in done.stdout
