"""Backups under attack: writers meanwhile, kill -9, full disks, archives that were tampered with."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import subprocess
import sys
import tarfile
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import zstandard

from herma import Add, Herma
from herma.doctor.checks import diagnose
from herma.doctor.repair import mend, plan
from herma.errors import ForeignStore, HermaError, StoreBusy, StoreError
from herma.store import archive, backup
from herma.store.archive import look_at, members
from herma.store.backup import DatabaseCopy, restore

from .damage import change, zeroed


def fill(home: Path, text: str, count: int = 300) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add(text))
        session = h.transcripts.start("test")
        h.transcripts.append(session, [{"role": "user", "content": f"{text} {n}"} for n in range(count)])
    (home / "skills" / "one").mkdir(parents=True, exist_ok=True)
    (home / "skills" / "one" / "SKILL.md").write_text(text)


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home that every test leaves as it is."""
    home = tmp_path_factory.mktemp("old") / "home"
    fill(home, "old", 5)
    return home


def seen(home: Path) -> tuple[list[str], set[str], str]:
    with Herma.open(home) as h:
        sources = {str(m.content).split()[0] for info in h.transcripts.list() for m in h.transcripts.messages(info.id)}
        return h.memory.entries("memory"), sources, (home / "skills" / "one" / "SKILL.md").read_text()


WRITER = """
import sys
from herma import Add, Herma
with Herma.open(sys.argv[1], flags={"memory.memory_char_limit": 1000000}) as h:
    session = h.transcripts.start("test")
    print("ready", flush=True)
    for number in range(1000000):
        turn = [("user", f"a{number}"), ("assistant", f"b{number}")]
        h.transcripts.append(session, [{"role": role, "content": text} for role, text in turn])
        h.memory.apply("memory", Add(f"<{number}>"))
"""


def test_a_backup_while_others_write_is_one_consistent_state(home: Path, tmp_path: Path) -> None:
    fill(home, "old")
    with subprocess.Popen([sys.executable, "-c", WRITER, home], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout
        assert writer.stdout.readline() == "ready\n"
        try:
            made = [backup.create(home, tmp_path / f"{n}.tar.zst") for n in range(4)]
            assert writer.poll() is None
        finally:
            writer.kill()
    for number, each in enumerate(made):
        other = tmp_path / f"restored-{number}"
        restore(other, each)
        with closing(sqlite3.connect(other / "herma.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            said = [row[0] for row in database.execute("SELECT content FROM messages WHERE id > 300 ORDER BY id")]
            last = database.execute("SELECT after_text FROM curated_changes ORDER BY id DESC LIMIT 1").fetchone()[0]
        assert len(said) % 2 == 0, "whole turns"
        assert said == [f"{letter}{n}" for n in range(len(said) // 2) for letter in "ab"]
        assert (other / "memories" / "MEMORY.md").read_text() == last, "the file is what its history says"
        assert diagnose(other).healthy


def test_no_skill_changes_between_the_moment_of_the_database_and_the_copy_of_its_files(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home, "old", 5)
    text = "---\nname: {}\ndescription: Do a thing.\n---\n\n1. Do it.\n"
    with Herma.open(home, flags={"memory.lock_timeout": 0.2}) as h:
        h.skills.create("first", text.format("first"))
        begin, tried = DatabaseCopy.begin, []

        def begin_and_write(copy: DatabaseCopy) -> None:
            begin(copy)
            with pytest.raises(StoreBusy):
                h.skills.create("second", text.format("second"), despite_similar=True)
            tried.append(copy)

        monkeypatch.setattr(DatabaseCopy, "begin", begin_and_write)
        made = backup.create(home)
        assert tried
        assert made.manifest
        assert "skills/first/SKILL.md" in made.manifest.files
        h.skills.create("second", text.format("second"), despite_similar=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from herma.store import archive, backup
home, where = Path(sys.argv[1]), sys.argv[2]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if where == "copying": backup.DatabaseCopy.copy = die
elif where == "packing": archive._member = die
elif where == "naming": Path.replace = die
backup.create(home)
"""


@pytest.mark.parametrize("where", ["copying", "packing", "naming"])
def test_a_backup_that_is_killed_leaves_none(home: Path, where: str) -> None:
    fill(home, "old")
    run = subprocess.run([sys.executable, "-c", KILLED, home, where], capture_output=True, text=True, check=False)
    assert run.returncode == -9, run.stderr
    assert archive.listing(home) == []
    assert diagnose(home).healthy
    for fix in plan(home):
        mend(home, fix)
    assert list((home / "backups").iterdir()) == []
    assert backup.create(home).verified
    assert seen(home) == (["old"], {"old"}, "old")


def test_what_was_useless_when_it_was_planned_is_looked_at_again(home: Path) -> None:
    """Between a plan and the yes to it, a restore may come to the point from which it only goes forward."""
    fill(home, "good", 5)
    stage = home / ".restore-0a0b0c0d"
    (stage / "old").mkdir(parents=True)
    (fix,) = (fix for fix in plan(home) if fix.kind == "leftovers")
    (stage / "old" / "memories").mkdir()
    (stage / "old" / "memories" / "MEMORY.md").write_text("the only one")
    (stage / "moves.json").write_text('{"moves": {"memories": true}, "copies": []}')
    mend(home, fix)
    assert (stage / "old" / "memories" / "MEMORY.md").read_text() == "the only one"


FULL = """
import resource, signal, sys
from pathlib import Path
from herma.doctor.repair import mend, plan
from herma.errors import StoreError
from herma.store import backup
home, what, limits = Path(sys.argv[1]), sys.argv[2], map(int, sys.argv[3:])
fixes, good = plan(home), backup.find(home, "good")
acts = {"create": lambda: backup.create(home), "restore": lambda: backup.restore(home, good)}
acts["repair"] = lambda: mend(home, fixes[0])
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
for limit in limits:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        acts[what]()
    except StoreError as exc:
        print("refused:", exc, "/", exc.hint)
"""


@pytest.mark.parametrize("what", ["create", "restore", "repair"])
def test_a_full_disk_leaves_everything_as_it_was(home: Path, what: str) -> None:
    """A limit on the size of files stands for the full disk."""
    fill(home, "good", 3000)
    backup.create(home, name="good")
    fill(home, "later", 10)
    before = seen(home)
    path = home / "herma.db"
    if what == "repair":
        change(home, lambda raw, _: raw.__setitem__(slice(100), bytes(100)))
    data = path.read_bytes()
    command = [sys.executable, "-c", FULL, str(home), what, "1000", "30000", "80000"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.stdout.count("refused:") == 3, run.stdout + run.stderr
    assert all(line.endswith(".") for line in run.stdout.splitlines()), "with a next step"
    assert path.read_bytes() == data
    assert not list(home.glob(".restore*"))
    assert not list(home.glob(".herma.db*"))
    assert [each.name for each in (home / "backups").iterdir() if "good" not in each.name] == []
    for fix in plan(home):
        mend(home, fix)
    assert seen(home) == before


# ── archives that are not what they seem ──


def forged(path: Path, manifest: dict[str, Any], content: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        text = json.dumps(manifest).encode().replace(b'"deep"', b"[" * 100_000 + b"]" * 100_000)
        for member, data in [(tarfile.TarInfo("manifest.json"), text), *content]:
            if member.isreg():
                member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    path.write_bytes(zstandard.compress(plain.getvalue()))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


BASE = {"format": 1, "herma": "0.1.0", "created": 1.0, "files": {}}
HASH = "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824"  # of "hello"


FILES = {"memories/MEMORY.md": [5, HASH]}
ENTRY = (member("memories/MEMORY.md"), b"hello")
ELSEWHERE = ("../outside", "/outside", "memories/../../outside", "memories/./x", "C:\\x", "memories\\..\\x", "index.db",
             "logs/x", "memories", "herma.db/x", "memories//x", "state.db")  # fmt: skip
NO_FILES = (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE, tarfile.DIRTYPE)


@pytest.mark.parametrize(
    ("manifest", "content"),
    [
        *(({"files": {name: [5, HASH]}}, [(member(name), b"hello")]) for name in ELSEWHERE),
        *(({"files": FILES}, [(member("memories/MEMORY.md", kind, "/etc/passwd"), b"")]) for kind in NO_FILES),
        ({"files": FILES}, []),
        ({"files": FILES}, [(member("memories/MEMORY.md"), b"HELLO")]),
        ({"files": {"memories/MEMORY.md": [4, HASH]}}, [ENTRY]),
        ({"files": {}}, [ENTRY]),
        ({"files": FILES}, [ENTRY, ENTRY]),
        ({"format": 99}, []),
        ({"database": 99}, []),
        ({"files": "nonsense"}, []),
        ({"files": {"config.yaml": 7}}, []),
        ({"counts": "many"}, []),
        ({"counts": "deep"}, []),
        ({"created": "yesterday"}, []),
        ({"herma": None, "format": "1"}, []),
        ({"damage": "it was damaged"}, []),
        ({"files": {"herma.db": [5, HASH]}}, [(member("herma.db"), b"hello")]),
    ],
)
def test_an_archive_that_is_not_what_it_seems_is_refused(
    old: Path, tmp_path: Path, manifest: dict[str, Any], content: list[tuple[tarfile.TarInfo, bytes]]
) -> None:
    strange = look_at(forged(tmp_path / "strange.tar.zst", {**BASE, **manifest}, content))
    before = {path for path in old.rglob("*") if "herma.db-" not in path.name}
    with pytest.raises(HermaError):
        restore(old, strange)
    assert backup.verify(strange) or "damage" in manifest
    assert {path for path in old.rglob("*") if "herma.db-" not in path.name} == before
    assert seen(old) == (["old"], {"old"}, "old")
    assert [path.name for path in tmp_path.glob("[!.]*")] == ["strange.tar.zst"]


def unpacked(archive: bytes) -> bytes:
    return zstandard.ZstdDecompressor().decompressobj().decompress(archive)


def test_a_backup_that_was_changed_or_cut_is_found_out(home: Path) -> None:
    fill(home, "old")
    made = backup.create(home, name="good")
    raw = made.path.read_bytes()
    cut = (raw[: len(raw) // 2], raw[:-9], raw[:-4], raw[:-1])
    for number, wrong in enumerate((*cut, raw + b"x", raw + raw, b"", b"nonsense", bytes(len(raw)))):
        broken = home / "backups" / f"broken{number}.tar.zst"
        broken.write_bytes(wrong)
        assert backup.verify(look_at(broken))
        with pytest.raises(HermaError):
            restore(home, look_at(broken))
    for at in (*range(20, 200, 17), *range(200, len(raw), len(raw) // 40)):
        made.path.write_bytes(raw[:at] + bytes([raw[at] ^ 0x10]) + raw[at + 1 :])
        os.utime(made.path)
        again = look_at(made.path)
        assert again.verified is None, "the mark was for another file"
        if not backup.verify(again):  # some bits of a frame's header mean nothing: then what comes out is the same
            assert unpacked(made.path.read_bytes()) == unpacked(raw)
            continue
        with pytest.raises(HermaError):
            restore(home, again)
    assert seen(home) == (["old"], {"old"}, "old")
    assert any(check.name == "backups" for check in diagnose(home).of("warning"))


def test_a_foreign_database_in_the_home_is_not_replaced(home: Path, tmp_path: Path) -> None:
    fill(home, "old", 5)
    made = backup.create(home, tmp_path / "b.tar.zst")
    other = tmp_path / "other"
    other.mkdir()
    with closing(sqlite3.connect(other / "herma.db")) as database:
        database.execute("CREATE TABLE theirs (x)")
    before = (other / "herma.db").read_bytes()
    with pytest.raises(ForeignStore):
        restore(other, made)
    assert (other / "herma.db").read_bytes() == before
    assert {path.name for path in other.iterdir()} == {"herma.db"}


def test_a_damaged_database_is_not_backed_up_as_if_it_were_sound(home: Path) -> None:
    fill(home, "old", 2000)
    raw = zeroed(home, b"old 500", b"old 1000", b"old 1500")
    made = backup.create(home)
    assert made.manifest
    assert made.manifest.damage
    assert made.verified is None
    with pytest.raises(StoreError, match="damaged"):
        restore(home, made)
    (home / "herma.db").write_bytes(bytes(100) + raw[100:])
    with pytest.raises(StoreError, match="damaged") as caught:
        backup.create(home)
    assert "doctor --repair" in caught.value.hint
    with members(made.path) as each:
        assert next(each)[0].name == "manifest.json"
