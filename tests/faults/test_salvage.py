"""Real damage to a real `herma.db`: what stands on pages that were not hit comes back, all of it, and nothing else."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.homes import matrix

from herma import Add, Herma, HermaError, Review
from herma.doctor.checks import diagnose
from herma.doctor.repair import Mended, mend, plan
from herma.errors import StoreBusy, StoreError
from herma.review.rows import ReviewRows
from herma.store.salvage import CUT, TreeWalk, salvage
from herma.store.salvage_pages import INDEX_INTERIOR, TABLE_INTERIOR, TABLE_LEAF, PageFile, Record

from .damage import change, repair, roots, rows

WORDS = ["the", "harbour", "light", "kept", "turning", "über", "café", "中文", "данные", "ships", "port"]
DISTILLED = ("episodes", "session_states", "facts", "facts_read", "episode_terms", "reviews")
TABLES = ("curated_changes", "curated_entries", "sessions", "messages", "payloads", "payload_uses", *DISTILLED)
BIG = {"memory.memory_char_limit": 100_000}
DAY = 86_400.0


def fill(home: Path) -> None:
    """Some thousand rows of every kind: short and long messages, stored texts, tool calls, history, what was distilled
    of them, purged sessions.
    """
    chance = random.Random(7)
    clock = [1_800_000_000.0]
    with Herma.open(home, flags=BIG, clock=lambda: clock[0]) as h:
        for number in range(60):
            h.memory.apply("memory", Add(f"Fact {number}: " + " ".join(chance.choices(WORDS, k=20))))
        h.memory.apply("user", Add("Timezone: Europe/Rome"))
        assert h.facts.get("time zone") is not None
        gone = []
        for number in range(90):
            session = h.transcripts.start("test", title=f"Talk {number}")
            lengths = [chance.choice((5, 40, 40, 300)) if at % 12 else chance.choice((900, 5000)) for at in range(30)]
            said: list[dict[str, Any]] = [
                {
                    "role": ("user", "assistant")[at % 2],
                    "content": f"<{number}.{at}> " + " ".join(chance.choices(WORDS, k=k)),
                }
                for at, k in enumerate(lengths)
            ]
            said.append({"role": "tool", "tool_call_id": "c", "content": f"{chance.getrandbits(120):030x}" * 700})
            h.transcripts.append(session, said)
            if number % 9 == 4:
                gone.append(session)
            ReviewRows(h.db).owe(Review(session, session, "end", "closed", 1, 2, 1.0, notice=f"about {session}"))
        h.episodes.rebuild()
        h.episodes.forget(ids=[3, 4])
        h.transcripts.delete(gone)
        h.db.write(lambda connection: connection.run("PRAGMA secure_delete = False"))  # as older versions did
        clock[0] += 400 * DAY
        assert len(h.transcripts.purge_expired()) == 10


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("filled") / "home"
    fill(home)
    assert not (home / "herma.db-wal").exists()
    return home


@pytest.fixture
def hurt(filled: Path, tmp_path: Path) -> Path:
    """A copy of the filled home, to be damaged."""
    return Path(shutil.copytree(filled, tmp_path / "home"))


def integrity(path: Path) -> bool:
    try:
        with closing(sqlite3.connect(path)) as database:
            return database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    except sqlite3.DatabaseError:
        return False


def rows_of(pages: PageFile, root: int) -> dict[int, Record]:
    return {record.rowid: record for record in TreeWalk(pages).tree(root, TABLE_LEAF)}


def test_reading_pages_gives_what_sqlite_gives(filled: Path) -> None:
    path = filled / "herma.db"
    pages = PageFile(path)
    for table in ("messages", "sessions", "payloads", "curated_changes", "changes"):
        found = rows_of(pages, roots(path)[table])
        assert [(key, *found[key].values[1:]) for key in sorted(found)] == rows(path, table), table
    pages.close()


def test_a_sound_database_is_copied_whole(filled: Path, tmp_path: Path) -> None:
    source = tmp_path / "copy.db"
    shutil.copy(filled / "herma.db", source)
    made = salvage(source, None, tmp_path / "new.db")
    assert made.complete
    assert made.notes == ()
    for table in TABLES:
        assert rows(tmp_path / "new.db", table) == rows(source, table) != [], table
    old, new = dict(rows(source, "meta")), dict(rows(tmp_path / "new.db", "meta"))
    assert old.pop("epoch") != new.pop("epoch")
    assert old == new
    assert dict(rows(source, "sqlite_sequence")) == dict(rows(tmp_path / "new.db", "sqlite_sequence"))


def test_tables_that_the_file_does_not_have_are_not_looked_for(filled: Path, tmp_path: Path) -> None:
    """A file of before a table was added, or after an index was dropped, is no damaged one."""
    source = tmp_path / "copy.db"
    shutil.copy(filled / "herma.db", source)
    with closing(sqlite3.connect(source)) as database:
        database.executescript("DROP TABLE curated_inbox; DROP INDEX messages_by_session; CREATE TABLE theirs (x)")
    made = salvage(source, None, tmp_path / "new.db")
    assert made.complete
    assert made.notes == ()
    assert rows(tmp_path / "new.db", "messages") == rows(filled / "herma.db", "messages")


def flip(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    hit = set(chance.sample(range(2, len(raw) // size + 1), 12))
    for page in hit:
        for _ in range(25):
            raw[(page - 1) * size + chance.randrange(size)] ^= 1 << chance.randrange(8)
    return hit


def zero(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    hit = set(chance.sample(range(2, len(raw) // size + 1), 12))
    for page in hit:
        raw[(page - 1) * size : page * size] = bytes(size)
    return hit


def truncate(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    count = len(raw) // size
    del raw[chance.randrange(len(raw) // 3, len(raw)) :]
    return set(range(len(raw) // size + 1, count + 1))


def head(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    raw[:100] = chance.randbytes(100)
    return {1}


def first_page(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    raw[:size] = bytes(size)
    return {1}


def interior(raw: bytearray, size: int, chance: random.Random) -> set[int]:
    """Every page that only leads to others: SQLite finds nothing below them any more."""
    kinds = (TABLE_INTERIOR, INDEX_INTERIOR)
    hit = {at // size + 1 for at in range(size, len(raw), size) if raw[at] in kinds}
    for page in hit:
        raw[(page - 1) * size : page * size] = chance.randbytes(size)
    return hit


KINDS = (flip, zero, truncate, head, first_page, interior)
CASES = [(kind, seed) for kind in KINDS for seed in range(4 if kind in (flip, zero, truncate) else 1)]


def unhurt(path: Path, hit: set[int], table: str) -> set[int]:
    """Rows of the sound file of which no page was hit."""
    pages = PageFile(path)
    found = rows_of(pages, roots(path)[table])
    pages.close()
    return {key for key, record in found.items() if not hit & set(record.pages)}


@pytest.mark.parametrize(
    ("kind", "seed"), matrix(CASES, lambda _, seed: seed < 2), ids=[f"{kind.__name__}-{seed}" for kind, seed in CASES]
)
def test_every_row_that_was_not_hit_comes_back(filled: Path, hurt: Path, kind: Any, seed: int) -> None:
    sound, path = filled / "herma.db", hurt / "herma.db"
    raw = bytearray(path.read_bytes())
    hit = kind(raw, int.from_bytes(raw[16:18], "big"), random.Random(seed))
    path.write_bytes(raw)
    diagnosis = diagnose(hurt)
    if integrity(path):
        assert kind is flip  # inside a text nothing tells
        return
    assert not diagnosis.healthy
    # a reading connection's integrity check looks at no CHECK: such a hit may show in the hash of a stored text only
    assert any("doctor --repair" in check.next for check in diagnosis.of("problem"))
    assert path.read_bytes() == raw, "looking changes nothing"
    made = repair(hurt)
    assert made.kept is not None
    assert made.salvaged is not None
    assert (made.kept / "herma.db").read_bytes() == raw, "the damaged file is kept as it was"
    _compare(sound, path, hit, made)
    assert integrity(path)
    after = diagnose(hurt)
    assert after.healthy, after.of("problem")


def _compare(sound: Path, path: Path, hit: set[int], made: Mended) -> None:
    assert made.salvaged is not None
    texts = unhurt(sound, hit, "payloads")
    used: dict[int, set[int]] = {}
    for payload, message in rows(sound, "payload_uses"):
        used.setdefault(message, set()).add(payload)
    for table in ("messages", "payloads", "curated_changes", "sessions"):
        expected = {row[0]: row for row in rows(sound, table)}
        found = {row[0]: row for row in rows(path, table)}
        whole = unhurt(sound, hit, table)
        if table == "messages":
            whole = {key for key in whole if used.get(key, set()) <= texts}
        for key in whole:
            old, new = expected[key], found.get(key)
            if table == "sessions" and new is not None:
                old, new = (*old[:17], *old[19:]), (*new[:17], *new[19:])  # prompt and count may have lost messages
            assert new == old, f"{table} {key}"
        report = next(each for each in made.salvaged.tables if each.table == table)
        stand_ins = sum(loss.stand_in for loss in made.salvaged.sessions) if table == "sessions" else 0
        assert report.kept + stand_ins == len(found)
    lost = {row[0] for row in rows(sound, "messages")} - {row[0] for row in rows(path, "messages")}
    named = {
        n
        for table in made.salvaged.tables
        if table.table == "messages"
        for a, b in table.missing
        for n in range(a, b + 1)
    }
    assert lost <= named or any("messages may be missing" in note for note in made.salvaged.notes)


def failure(call: Callable[[], object]) -> HermaError | None:
    try:
        call()
    except HermaError as exc:
        return exc
    return None


@pytest.mark.parametrize("kind", [zero, head, interior], ids=lambda kind: str(kind.__name__))
def test_until_then_every_call_works_or_says_what_is_wrong(hurt: Path, kind: Any) -> None:
    change(hurt, lambda raw, size: kind(raw, size, random.Random(1)))
    told = 0
    with Herma.open(hurt) as h:
        for call in (
            lambda: h.search("harbour"),
            h.transcripts.list,
            lambda: h.transcripts.append(h.transcripts.start("test"), [{"role": "user", "content": "x"}]),
            lambda: h.memory.apply("memory", Add("x")),
            h.memory.history,
        ):
            if error := failure(call):
                told += 1
                assert isinstance(error, StoreError)
                assert error.hint
                assert "herma.db" in str(error)
        assert not h.doctor().healthy
    assert told
    assert repair(hurt).salvaged


def test_after_a_repair_everything_goes_on(hurt: Path) -> None:
    with Herma.open(hurt) as h:
        assert h.search("harbour").hits
        h.index.wait()
        before = max(row[0] for row in rows(hurt / "herma.db", "messages"))
    path = hurt / "herma.db"
    change(hurt, lambda raw, size: zero(raw, size, random.Random(2)))
    identity = dict(rows(hurt / "herma.db", "meta"))
    made = repair(hurt)
    now = dict(rows(path, "meta"))
    assert now["store_id"] == identity["store_id"]
    assert now["epoch"] != identity["epoch"], "so that the index is built anew"
    with Herma.open(hurt, flags=BIG) as h:
        assert h.search("harbour").hits
        assert h.index.wait()
        assert h.index.status().messages == len(rows(path, "messages"))
        session = h.transcripts.start("test")
        (new,) = h.transcripts.append(session, [{"role": "user", "content": "after the repair"}])
        assert new > before, "numbers are not given out twice"
        assert h.memory.apply("memory", Add("after")).ok
        assert h.memory.undo().ok
        for info in h.transcripts.list():
            assert h.transcripts.messages(info.id) is not None
        assert h.doctor(full=True).healthy
    assert made.salvaged
    assert made.salvaged.sessions


def test_what_was_deleted_for_good_stays_deleted(filled: Path, hurt: Path) -> None:
    """Its pages are still there, unused; damage to the trees must not bring it back."""
    path = hurt / "herma.db"
    assert b"<4.0> " in path.read_bytes(), "the test needs something to find"
    change(hurt, lambda raw, size: interior(raw, size, random.Random(0)))
    repair(hurt)
    here = {row[0] for row in rows(path, "messages")}
    assert here <= {row[0] for row in rows(filled / "herma.db", "messages")}
    assert len(here) > 2000
    assert not any("<4." in str(row[4]) for row in rows(path, "messages"))


@pytest.mark.parametrize("seed", range(4))
def test_what_was_purged_with_its_conversation_does_not_come_back(filled: Path, tmp_path: Path, seed: int) -> None:
    raw = bytearray((filled / "herma.db").read_bytes())
    size = int.from_bytes(raw[16:18], "big")
    at = (roots(filled / "herma.db")["episodes"] - 1) * size + (seed * 997) % (size // 2)
    raw[at : at + 40] = bytes(40)
    (tmp_path / "herma.db").write_bytes(raw)
    salvage(tmp_path / "herma.db", None, tmp_path / "new.db")
    before, after = (
        {table: rows(path, table) for table in DISTILLED} for path in (filled / "herma.db", tmp_path / "new.db")
    )
    assert {row[1] for row in after["episodes"]} <= {row[1] for row in before["episodes"]}
    assert set(after["session_states"]) <= set(before["session_states"])
    assert set(after["reviews"]) <= set(before["reviews"])
    assert {row[1] for row in after["episode_terms"]} <= {row[0] for row in after["episodes"]}


def test_what_is_still_in_the_log_is_salvaged_too(tmp_path: Path, home: Path) -> None:
    with Herma.open(home) as h:
        session = h.transcripts.start("test")
        h.transcripts.append(session, [{"role": "user", "content": f"message {n}"} for n in range(50)])
        for name in ("herma.db", "herma.db-wal"):
            shutil.copy(home / name, tmp_path / name)
    made = salvage(tmp_path / "herma.db", tmp_path / "herma.db-wal", tmp_path / "new.db")
    assert made.complete
    assert [row[4] for row in rows(tmp_path / "new.db", "messages")] == [f"message {n}" for n in range(50)]
    log = bytearray((tmp_path / "herma.db-wal").read_bytes())
    log[len(log) // 2] ^= 0xFF
    (tmp_path / "herma.db-wal").write_bytes(log)
    made = salvage(tmp_path / "herma.db", tmp_path / "herma.db-wal", tmp_path / "newer.db")
    assert any("log" in note for note in made.notes)
    assert integrity(tmp_path / "newer.db")


def test_of_a_session_whose_row_is_gone_the_messages_remain(filled: Path, hurt: Path) -> None:
    path = hurt / "herma.db"
    pages = PageFile(path)
    leaves = {record.pages[0] for record in rows_of(pages, roots(path)["sessions"]).values()}
    size = pages.size
    pages.close()
    raw = bytearray(path.read_bytes())
    for page in leaves:
        raw[(page - 1) * size : page * size] = bytes(size)
    path.write_bytes(raw)
    made = repair(hurt)
    assert made.salvaged
    assert rows(path, "messages") == rows(filled / "herma.db", "messages")
    ids = {row[1] for row in rows(filled / "herma.db", "sessions")}
    assert {row[1] for row in rows(path, "sessions")} == ids, "an index remembers how they were called"
    assert {loss.session_id for loss in made.salvaged.sessions if loss.stand_in} == ids


def test_nothing_readable_is_said_and_nothing_is_replaced(hurt: Path) -> None:
    path = hurt / "herma.db"
    raw = path.read_bytes()[:100] + bytes(20_000)
    path.write_bytes(raw)
    assert not diagnose(hurt).healthy
    with pytest.raises(StoreError, match="Nothing in the damaged file could be read") as caught:
        repair(hurt)
    assert "backup" in caught.value.hint
    assert path.read_bytes() == raw
    assert not list(hurt.glob(".herma.db*"))


def test_a_list_of_tables_that_cannot_be_read_is_damage(filled: Path, hurt: Path) -> None:
    path = hurt / "herma.db"
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE sessions", b"CREATE TABLE \0\0\0\0\0\0\0\0"))
    assert not diagnose(hurt).healthy
    made = repair(hurt)
    assert made.salvaged
    assert made.salvaged.complete
    for table in TABLES:
        assert rows(path, table) == rows(filled / "herma.db", table), table


OPEN = (
    "import apsw, sys; c = apsw.Connection(sys.argv[1] + '/herma.db'); c.pragma('user_version')\n"
    "print('ready', flush=True); sys.stdin.read()"
)
UNREAD = (
    "import apsw, sys; c = apsw.Connection(sys.argv[1] + '/herma.db'); c.set_busy_timeout(20000)\n"
    "print('ready', flush=True); sys.stdin.readline()\n"
    "try: c.execute('INSERT INTO meta VALUES (1, 2)'); print('written')\n"
    "except apsw.Error as exc: print('refused')"
)


def harm(home: Path) -> bytes:
    return change(home, lambda raw, size: zero(raw, size, random.Random(5)))


def test_while_another_process_has_it_open_nothing_is_repaired(hurt: Path) -> None:
    raw = harm(hurt)
    child = subprocess.Popen(
        [sys.executable, "-c", OPEN, hurt], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        (fix,) = (fix for fix in plan(hurt) if fix.kind == "database")
        with pytest.raises(StoreBusy, match="Another process has") as caught:
            mend(hurt, fix, lock_timeout=0.1)
        assert "Stop" in caught.value.hint
        assert (hurt / "herma.db").read_bytes() == raw
        child.communicate("")
    assert repair(hurt).salvaged


def test_who_opened_the_damaged_file_before_cannot_write_into_it_afterwards(hurt: Path) -> None:
    raw = harm(hurt)
    child = subprocess.Popen(
        [sys.executable, "-c", UNREAD, hurt], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with child:
        assert child.stdout
        assert child.stdout.readline() == "ready\n"
        made = repair(hurt)
        out, _ = child.communicate("\n")
    assert out == "refused\n"
    assert made.kept
    assert (made.kept / "herma.db").read_bytes() == raw
    assert integrity(hurt / "herma.db")


KILLED = """
import os, signal, sys
from pathlib import Path
from herma.doctor.repair import mend, plan
from herma.store import replace, salvage, salvage as salvage_file
home, where = Path(sys.argv[1]), sys.argv[2]
def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
if where == "copying": salvage_file.Alone.copy_to = die
if where == "reading": salvage_file.salvage = die
if where == "ready": salvage_file.Alone.replace = die
if where == "replacing": Path.replace = die
if where == "replaced":
    real = replace.sync_folder
    replace.sync_folder = lambda folder: die() if folder == home else real(folder)
fix, = (fix for fix in plan(home) if fix.kind == "database")
mend(home, fix)
"""


@pytest.mark.parametrize("where", ["copying", "reading", "ready", "replacing", "replaced"])
def test_a_repair_that_is_killed_is_repeated_or_finished(hurt: Path, where: str) -> None:
    raw = harm(hurt)
    run = subprocess.run([sys.executable, "-c", KILLED, hurt, where], capture_output=True, text=True, check=False)
    assert run.returncode == -9, run.stderr
    if where != "replaced":
        whole = raw if where != "replacing" else bytes(100) + raw[100:]  # made unusable, as its log is gone by then
        assert (hurt / "herma.db").read_bytes() == whole
        assert not diagnose(hurt).healthy
    for fix in plan(hurt):
        mend(hurt, fix)
    assert diagnose(hurt).healthy
    assert len(rows(hurt / "herma.db", "messages")) > 2000
    assert raw in [path.read_bytes() for path in (hurt / "backups").glob("damaged-*/herma.db")]
    assert plan(hurt) == []
    assert {path.name for path in hurt.iterdir()} <= {"herma.db", "backups", "memories", "herma.db-wal", "herma.db-shm"}


def test_a_message_of_which_only_the_beginning_is_left_says_so(filled: Path, hurt: Path) -> None:
    path = hurt / "herma.db"
    pages = PageFile(path)
    long = {
        key: record.pages for key, record in rows_of(pages, roots(path)["messages"]).items() if len(record.pages) > 1
    }
    pages.close()
    assert long

    def without_ends(raw: bytearray, size: int) -> None:
        for leaf, *rest in long.values():
            at = raw.index(rest[0].to_bytes(4, "big"), (leaf - 1) * size, leaf * size)
            raw[at : at + 4] = bytes(4)  # where the page with the end was named

    change(hurt, without_ends)
    made = repair(hurt)
    assert made.salvaged
    texts = {row[0]: str(row[4]) for row in rows(path, "messages")}
    whole = {row[0]: str(row[4]) for row in rows(filled / "herma.db", "messages")}
    for key in long:
        assert texts[key].endswith(CUT)
        assert whole[key].startswith(texts[key].removesuffix(CUT).rstrip("\ufffd"))
    assert all(texts[key] == whole[key] for key in whole.keys() - long.keys())
    assert diagnose(hurt).healthy
