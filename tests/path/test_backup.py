"""Backups: everything that cannot be rebuilt, in one file; restoring replaces and never merges."""

from __future__ import annotations

import json
import os
import stat
import tempfile
from pathlib import Path

import pytest
from tests.homes import of_files

from herma import Add, Herma
from herma.errors import StoreBusy, UsageError
from herma.store import archive, backup
from herma.store.archive import members
from herma.store.backup import restore


def live(home: Path, *, day: int = 0) -> None:
    """A home with something of everything."""
    with Herma.open(home) as h:
        h.memory.apply("memory", Add(f"note of day {day}"))
        h.memory.apply("user", Add(f"user on day {day}"))
        session = h.transcripts.start("test", title=f"Day {day}")
        h.transcripts.append(session, [{"role": "user", "content": f"zephyr {day}.{n}"} for n in range(20)])
        h.search("zephyr")
    (home / "skills" / "tools" / "sail").mkdir(parents=True, exist_ok=True)
    (home / "skills" / "tools" / "sail" / "SKILL.md").write_text(f"# Sail, day {day}")
    (home / "notes" / "memories").mkdir(parents=True, exist_ok=True)
    (home / "notes" / "memories" / "plan.md").write_text(f"plan of day {day}")
    (home / "config.yaml").write_text(f"memory:\n  memory_char_limit: {3000 + day}\n")
    (home / ".env").write_text(f"KEY={day}")


def state(home: Path) -> dict[str, object]:
    """Everything that should come back."""
    with Herma.open(home) as h:
        said = [m.content for info in h.transcripts.list() for m in h.transcripts.messages(info.id)]
        found: dict[str, object] = {
            "notes": h.memory.entries("memory"),
            "user": h.memory.entries("user"),
            "history": [(change.id, change.after) for change in h.memory.history()],
            "said": said,
        }
    for path in sorted(home.rglob("*")):
        name = path.relative_to(home).as_posix()
        if (
            path.is_file()
            and name.startswith(("skills/", "memories/", "notes/", "config", "SOUL"))
            and not name.endswith(".lock")
        ):
            found[name] = path.read_text()
    return found


@of_files
def test_a_round_trip_brings_back_exactly_what_was_there(home: Path) -> None:
    live(home)
    before = state(home)
    made = backup.create(home)
    assert made.manifest
    assert made.manifest.counts["messages"] == 20
    assert made.verified
    assert stat.S_IMODE(made.path.stat().st_mode) == 0o600
    live(home, day=1)
    (home / "skills" / "new").mkdir()
    (home / "skills" / "new" / "SKILL.md").write_text("later")
    (home / "SOUL.md").write_text("later")
    assert state(home) != before
    done = restore(home, made)
    assert state(home) == before, "nothing is merged: what came later is gone"
    assert not (home / "SOUL.md").exists()
    assert done.removed == ("SOUL.md",)
    assert (home / ".env").read_text() == "KEY=1", "secrets were not in it and are left alone"
    assert done.safety
    assert done.safety.name.endswith("before-restore")
    again = restore(home, done.safety)
    assert again.safety
    assert (home / "SOUL.md").read_text() == "later", "and what was there can be had back"
    assert not [path for path in home.iterdir() if path.name.startswith(".restore")]


@of_files
def test_the_latest_is_looked_at_restored_indexed_and_stays_the_latest(home: Path) -> None:
    live(home)
    made = backup.create(home)
    live(home, day=1)
    before = state(home)
    would = restore(home, made, dry_run=True)
    assert (would.dry_run, would.replaced) == (True, ("herma.db", "memories", "notes", "skills", "config.yaml"))
    assert state(home) == before, "looking changes nothing"
    assert len(archive.listing(home)) == 1
    with Herma.open(home) as h:
        assert len(h.search("zephyr", level="message", limit=50).hits) == 40
    safety = restore(home, backup.find(home, "latest")).safety
    assert safety
    with Herma.open(home) as h:
        assert len(h.search("zephyr", level="message", limit=50).hits) == 20
        assert h.doctor().healthy
    assert backup.find(home, "latest").path == made.path
    made.path.unlink()
    assert backup.find(home, "latest").path == safety.path, "better than none"


@of_files
def test_what_is_in_a_backup(home: Path) -> None:
    live(home)
    (home / "memories" / "MEMORY.md.bak.1").write_text("older")
    (home / "memories" / ".MEMORY.md.tmp").write_text("unfinished")
    for secrets in (set(), {".env"}):
        with members(backup.create(home, with_secrets=bool(secrets)).path) as each:
            texts = {member.name: stream.read() for member, stream in each}
        assert texts.keys() == secrets | {
            *("manifest.json", "herma.db", "config.yaml", "memories/MEMORY.md", "memories/USER.md"),
            *("memories/MEMORY.md.bak.1", "notes/memories/plan.md", "skills/tools/sail/SKILL.md"),
        }
    assert next(iter(texts)) == "manifest.json"
    fields = json.loads(texts["manifest.json"])
    assert {"format", "herma", "store_id", "epoch", "counts", "files", "created", "database"} <= fields.keys()
    assert all(len(digest) == 64 for _, digest in fields["files"].values())


def test_names_listing_and_finding(home: Path, tmp_path: Path) -> None:
    live(home)
    times = iter((1_800_000_000.0, 1_800_000_000.0, 1_800_086_400.0))
    first = backup.create(home, clock=lambda: next(times))
    second = backup.create(home, clock=lambda: next(times), name="before-upgrade")
    third = backup.create(home, clock=lambda: next(times))
    assert [each.name for each in archive.listing(home)] == [third.name, second.name, first.name]
    assert backup.find(home, "latest").path == third.path
    assert backup.find(home, "before-upgrade").path == second.path
    assert backup.find(home, third.name[:8]).path == third.path
    elsewhere = backup.create(home, tmp_path / "copy.tar.zst")
    assert backup.find(home, str(elsewhere.path)).manifest == elsewhere.manifest
    assert backup.create(home, tmp_path).path.parent == tmp_path
    for wrong in ("nothing", "../../etc", "", first.name[:4]):
        with pytest.raises(UsageError):
            backup.find(home, wrong)
    with pytest.raises(UsageError, match="exists already"):
        backup.create(home, tmp_path / "copy.tar.zst")
    with pytest.raises(UsageError, match="is not a name"):
        backup.create(home, name="../up")
    with pytest.raises(UsageError, match="nothing"):
        backup.create(tmp_path / "empty")


def test_pruning_leaves_the_newest_and_those_with_a_name(home: Path) -> None:
    live(home)
    clock = iter(1_800_000_000.0 + number * 86_400 for number in range(10))
    made = [backup.create(home, clock=lambda: next(clock), name="keep" if n == 0 else "") for n in range(5)]
    gone = backup.prune(home, 2)
    assert {each.path for each in gone} == {made[1].path, made[2].path}
    assert {each.path for each in archive.listing(home)} == {made[0].path, made[3].path, made[4].path}
    assert len(list((home / "backups").iterdir())) == 6, "three backups and three marks"


@of_files
def test_a_restore_into_an_empty_home(home: Path, tmp_path: Path) -> None:
    live(home)
    made = backup.create(home, tmp_path / "all.tar.zst", with_secrets=True)
    other = tmp_path / "other"
    done = restore(other, made)
    assert done.safety is None
    assert state(other) == state(home)
    assert (other / ".env").read_text() == "KEY=0"
    assert stat.S_IMODE((other / "herma.db").stat().st_mode) == 0o600


@of_files
def test_while_somebody_has_the_home_open_nothing_is_restored(home: Path) -> None:
    live(home)
    made = backup.create(home)
    live(home, day=1)
    with Herma.open(home) as h:
        h.memory.history()
        with pytest.raises(StoreBusy, match="open"):
            restore(home, made, lock_timeout=0.1)
        assert len(h.memory.history()) == 4
    assert not list(home.glob(".restore*"))


@of_files
def test_a_restore_over_a_damaged_database_keeps_the_damaged_one(home: Path) -> None:
    live(home)
    made = backup.create(home)
    raw = bytes(100) + (home / "herma.db").read_bytes()[100:]
    (home / "herma.db").write_bytes(raw)
    done = restore(home, made)
    assert done.kept
    assert (done.kept / "herma.db").read_bytes() == raw
    assert state(home)["notes"] == ["note of day 0"]


def test_links_to_folders_are_named_and_their_place_is_kept(home: Path, tmp_path: Path) -> None:
    live(home)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "SKILL.md").write_text("linked")
    (home / "skills" / "linked").symlink_to(tmp_path / "elsewhere")
    made = backup.create(home)
    assert made.manifest
    assert made.manifest.skipped == ("skills/linked",)
    restore(home, made)
    assert (tmp_path / "elsewhere" / "SKILL.md").read_text() == "linked"
    (kept,) = (home / "backups").glob("before-restore-*")
    assert (kept / "skills" / "linked").is_symlink()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="needs a second file system")
def test_behind_a_link_to_another_disk_the_file_itself_is_replaced(home: Path, tmp_path: Path) -> None:
    live(home)
    made = backup.create(home)
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        elsewhere = Path(folder)
        if elsewhere.stat().st_dev == tmp_path.stat().st_dev:
            pytest.skip("it is the same file system")
        with Herma.open(elsewhere) as h:
            h.transcripts.start("cli", session_id="other")
        linked = tmp_path / "linked"
        linked.mkdir(mode=0o700)
        (linked / "herma.db").symlink_to(elsewhere / "herma.db")
        restore(linked, made)
        assert (linked / "herma.db").is_symlink()
        assert [path.name for path in elsewhere.iterdir()] == ["herma.db"]
        with Herma.open(home) as h, Herma.open(linked) as other:
            assert [one.id for one in other.transcripts.list()] == [one.id for one in h.transcripts.list()]
            assert other.doctor().healthy
