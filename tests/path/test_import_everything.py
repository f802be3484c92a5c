"""`herma export` and the way back: the same home again, or beside what is there; nothing is half imported."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.homes import both_engines, conversation, filled, herma, of_files, skill_text

from herma import Add, Herma, Scope
from herma.privacy.export import tables

CONFIG = """# mine
memory:
  nudge_interval: 7  # often
mcp_servers:
  tickets:
    command: tickets
    env:
      API_KEY: not-for-others
"""


@pytest.fixture
def archive(home: Path, tmp_path: Path) -> Path:
    """An archive of a home with memory, its history, sessions with long and odd texts, a skill and settings."""
    ids = filled(home)
    (home / "config.yaml").write_text(CONFIG, encoding="utf-8")
    (home / ".env").write_text("API_KEY=not-for-others\n", encoding="utf-8")
    with Herma.open(home) as h:
        h.memory.apply("user", Add("Reads in the evening."))
        h.memory.undo()
        h.skills.create("bake", skill_text("bake"))
        conversation(h, "long " * 9_000 + "A" * 5_000 + "\0 end", "Fine.", scope=Scope("default", user="guest"))
        h.transcripts.delete(ids[2])
    file = tmp_path / "all.zip"
    assert herma(home, "export", str(file)).code == 0
    return file


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != "manifest.json"}


@of_files
def test_an_empty_home_becomes_the_same_home(archive: Path, tmp_path: Path, home: Path) -> None:
    other = tmp_path / "other"
    assert "would read everything" in herma(other, "import", str(archive), "--dry-run").out
    assert not (other / "herma.db").exists()
    done = herma(other, "import", str(archive), "--json").json
    assert done["exact"], done
    again = tmp_path / "again.zip"
    herma(other, "export", str(again))
    assert members(again) == members(archive)
    assert set(tables()) == {Path(name).stem for name in members(archive) if name.startswith("tables/")}
    assert herma(other, "search", "roses").code == herma(other, "doctor").code == 0
    assert "bake" in herma(other, "skills", "list").out
    written = b"".join(members(archive).values())
    assert b"not-for-others" not in written
    assert b"# often" in written
    assert b"Garden 2" not in written  # a deleted session
    report = herma(home, "export", str(tmp_path / "x.zip"), "--dry-run", "--json").json
    assert "deleted sessions (1)" in report["left_out"]
    assert ".env (secrets)" in report["left_out"]


@of_files
def test_a_home_with_rows_keeps_them(archive: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    with Herma.open(other) as h:
        h.memory.apply("memory", Add("Mine."))
    before = herma(other, "import", str(archive), "--dry-run", "--json").json
    done = herma(other, "import", str(archive), "--json").json
    assert (done["exact"], done["sessions"], done["skills"], done["undo"]) == (False, 3, 1, "i1")
    assert {name: before[name] for name in ("sessions", "messages", "skills", "proposals")} == {
        name: done[name] for name in ("sessions", "messages", "skills", "proposals")
    }
    with Herma.open(other) as h:
        assert h.memory.entries("memory") == ["Mine."]
        proposed = [op.content for one in h.memory.pending() for op in one.operations if isinstance(op, Add)]
        assert proposed == ["The project uses pytest with xdist.", "Prefers short answers."]
    again = herma(other, "import", str(archive), "--json").json
    assert (again["sessions"], again["skills"], again["proposals"]) == (0, 0, 0)
    assert herma(other, "undo", "i1").code == 0
    assert herma(other, "sessions", "list", "--json").json["sessions"] == []


def newer(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data.replace(b'"version": 1', b'"version": 9') if name == "manifest.json" else data


def cut(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data[:-50] if name == "tables/messages.jsonl" else data


def fewer(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data[data.index(b"\n") + 1 :] if name == "tables/sessions.jsonl" else data


def wrong(name: str, data: bytes) -> tuple[str, bytes]:
    return name, data.replace(b'"role":"user"', b'"role":null') if name == "tables/messages.jsonl" else data


def elsewhere(name: str, data: bytes) -> tuple[str, bytes]:
    return ("files/../../evil" if name == "files/config.yaml" else name), data


@of_files
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (newer, "written by a newer Herma"),
        (cut, "of messages is not an object"),
        (fewer, "sessions has 2 rows, not 3"),
        (wrong, "is damaged"),
        (elsewhere, "is not a file of a home"),
    ],
)
def test_a_damaged_archive_changes_nothing(
    archive: Path, tmp_path: Path, change: Callable[[str, bytes], tuple[str, bytes]], said: str
) -> None:
    bad, other = tmp_path / "bad.zip", tmp_path / "other"
    with zipfile.ZipFile(archive) as given, zipfile.ZipFile(bad, "w") as made:
        for name in given.namelist():
            made.writestr(*change(name, given.read(name)))
    ran = herma(other, "import", str(bad))
    assert (ran.code, said in ran.err, "nothing was imported" in ran.err) == (2, True, True), ran.err
    assert list(other.rglob("*.md")) == []
    assert herma(other, "import", str(archive), "--json").json["exact"]


@of_files
def test_what_cannot_be_written_is_refused(archive: Path, home: Path, tmp_path: Path) -> None:
    assert "exists already" in herma(home, "export", str(archive)).err
    assert "no folder" in herma(home, "export", str(tmp_path / "no" / "x.zip")).err
    assert "nothing in" in herma(tmp_path / "empty", "export", str(tmp_path / "x.zip")).err


@both_engines
def test_a_server_and_a_file_read_each_other(
    archive: Path, tmp_path: Path, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMA_STORE_TENANT", "somebody else")
    other, again = tmp_path / "other", tmp_path / "again.zip"
    assert herma(other, "import", str(archive), "--json").json["exact"]
    herma(other, "export", str(again))
    assert members(again) == members(archive)
    with Herma.open(other) as h:
        conversation(h, "One more.", "Good.")
