"""One wrong bit at the worst place: in a name, a count, a pointer, the change feed, a text, the write-ahead log."""

from __future__ import annotations

import random
import shutil
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from herma import Add, Herma
from herma.doctor.checks import diagnose
from herma.doctor.repair import mend, plan
from herma.errors import StoreError
from herma.store.replace import HEAD
from herma.store.salvage import TreeWalk
from herma.store.salvage_pages import INDEX_LEAF, TABLE_INTERIOR, TABLE_LEAF, PageFile, left_out
from herma.store.sqlite import APPLICATION_ID

from .damage import change, repair, roots, rows

OLD_SCHEMA = Path(__file__).parents[1] / "migrate" / "schema_0001.sql"
DERIVED = ("changes", "payload_uses", "meta")
PLENTY = {"memory.memory_char_limit": 100_000}


def old_file(path: Path) -> None:
    """A database of the first format, with pages of 8 KB: its rows lack the columns that came later."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA page_size = 8192")
        database.executescript(OLD_SCHEMA.read_text())
        facts = [("store_id", "ab" * 16), ("epoch", "cd" * 8), ("created", "1")]
        database.executemany("INSERT INTO meta VALUES (?, ?)", facts)
        for key in range(1, 41):
            database.execute(
                "INSERT INTO sessions (key, id, source, profile, project, user, chat, title, reason, conversation,"
                " started, last_active, message_count) VALUES (?, ?, 'cli', '', '', '', '', ?, 'new', ?, 1, 2, 10)",
                (key, f"old{key}", f"Old talk {key}", f"old{key}"),
            )
            said = [(key, f"[{key}.{at}] " + "words of old " * 30) for at in range(10)]
            database.executemany(
                "INSERT INTO messages (session, role, timestamp, content) VALUES (?, 'user', 1, ?)", said
            )
            database.execute("INSERT INTO changes (gone, first_id, count) VALUES (0, ?, 10)", (key * 10 - 9,))
        database.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        database.execute("PRAGMA user_version = 1")
        database.commit()


def fill(home: Path) -> None:
    chance = random.Random(3)
    with Herma.open(home, flags=PLENTY) as h:
        for number in range(20):
            h.memory.apply("memory", Add(f"Fact {number}: the tide of harbour {number} turns at {number} o'clock."))
        h.memory.apply("user", Add("Timezone: Europe/Rome"))
        for number in range(30):
            session = h.transcripts.start("cli", title=f"Talk {number}")
            said: list[dict[str, Any]] = [
                {"role": ("user", "assistant")[at % 2], "content": f"<{number}.{at}> " + "some words " * 40}
                for at in range(8)
            ]
            call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
            said += [
                {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": f"{chance.getrandbits(240):060x}" * 400},
            ]
            h.transcripts.append(session, said)
        h.episodes.rebuild()
    with closing(sqlite3.connect(home / "herma.db")) as database:
        for number in range(200):
            database.execute(
                "INSERT INTO calls (id, session, at, model, messages, last_message, tools, prompt, reusable, fresh,"
                " output, reason, counts, naive_reusable, naive_fresh)"
                " VALUES (?, 's', 1.5, 'm', 1, 1, ?, '', 1, 1, 1, 'new', 'exact', 1, 1)",
                (number + 1, f"digest {number} " + "x" * 60),
            )
        database.commit()


@pytest.fixture(scope="module", params=["new", "old"])
def sound(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("sound") / "home"
    home.mkdir(mode=0o700)
    if request.param == "old":
        old_file(home / "herma.db")
        (home / "herma.db").chmod(0o600)
    fill(home)
    with closing(sqlite3.connect(home / "herma.db")) as database:
        assert database.execute("PRAGMA page_size").fetchone() == ({"new": 4096, "old": 8192}[request.param],)
    return home


@pytest.fixture
def hurt(sound: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(sound, tmp_path / "home"))


def tables(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as database:
        found = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
        return [name for (name,) in found if name not in DERIVED]


def missed(sound: Path, hurt: Path) -> list[str]:
    """The tables that are not as they were, and what the doctor still objects to."""
    differ = [
        name for name in tables(sound / "herma.db") if rows(hurt / "herma.db", name) != rows(sound / "herma.db", name)
    ]
    return differ + [check.sentence for check in diagnose(hurt, full=True).of("problem")]


Roots = dict[str, int]


def no_first_page(raw: bytearray, size: int, _: Roots) -> None:
    raw[:size] = bytes(size)


def only_leaves(raw: bytearray, size: int, _: Roots) -> None:
    raw[:size] = bytes(size)
    for at in range(size, len(raw), size):
        if raw[at] == TABLE_INTERIOR:
            raw[at : at + size] = bytes(size)


def renamed(old: bytes, new: bytes) -> Callable[[bytearray, int, Roots], None]:
    def rename(raw: bytearray, _: int, __: Roots) -> None:
        assert old in raw
        raw[:] = raw.replace(old, new)

    return rename


def interior_page_that_says_it_holds_rows(raw: bytearray, size: int, roots: Roots) -> None:
    at = (roots["calls"] - 1) * size
    assert raw[at] == TABLE_INTERIOR
    raw[at] = TABLE_LEAF


def page_that_counts_too_few_pages_below_it(raw: bytearray, size: int, roots: Roots) -> None:
    at = (roots["messages"] - 1) * size + 3
    (count,) = struct.unpack_from(">H", raw, at)
    assert count > 4
    struct.pack_into(">H", raw, at, count - 3)


def two_pages_in_each_others_place(raw: bytearray, size: int, roots: Roots) -> None:
    first, second = (slice((roots[name] - 1) * size, roots[name] * size) for name in ("messages", "calls"))
    raw[first], raw[second] = raw[second], raw[first]


def two_leaves_in_each_others_place(raw: bytearray, size: int, roots: Roots) -> None:
    at = (roots["messages"] - 1) * size
    numbers = [struct.unpack_from(">I", raw, at + cell)[0] for cell in struct.unpack_from(">2H", raw, at + 12)]
    first, second = (slice((number - 1) * size, number * size) for number in numbers)
    raw[first], raw[second] = raw[second], raw[first]


@pytest.mark.parametrize(
    "harm",
    [
        *(no_first_page, only_leaves, interior_page_that_says_it_holds_rows, page_that_counts_too_few_pages_below_it),
        *(two_pages_in_each_others_place, two_leaves_in_each_others_place),
        renamed(b"finish_reason TEXT", b"finish_re!son TEXT"),  # a column's name: its values must not be dropped
        renamed(b"tablecallscalls", b"tablecalmscalms"),  # a table's name: the file seems to have no such table
        renamed(b"tablesessionssessions", b"tablesesshonssesshons"),
        renamed(b"CREATE TABLE calls (", b"CREATE TABLE calms ("),
        renamed(b"    naive_fresh    INTEGER NOT NULL,", b"    naive_fresh    INTEGER NOT NULL "),  # one column less
    ],
)
def test_every_row_is_found_and_none_is_made_up(sound: Path, hurt: Path, harm: Callable[..., None]) -> None:
    known = roots(hurt / "herma.db")
    change(hurt, lambda raw, size: harm(raw, size, known))
    repair(hurt)
    assert missed(sound, hurt) == []


def test_a_page_that_counts_too_few_rows_is_said(hurt: Path) -> None:
    root = roots(hurt / "herma.db")["curated_entries"]
    pages = PageFile(hurt / "herma.db")
    leaf, _, _ = list(TreeWalk(pages).leaves(root, INDEX_LEAF))[-1]
    pages.close()

    def fewer(raw: bytearray, size: int) -> None:
        at = (leaf - 1) * size + 3
        struct.pack_into(">H", raw, at, struct.unpack_from(">H", raw, at)[0] - 1)

    change(hurt, fewer)
    made = repair(hurt)
    assert made.salvaged
    assert any("curated_entries may be missing" in note for note in made.salvaged.notes)


@pytest.mark.parametrize("change_to", ["gone = 1", "count = count + (1 << 28)", "gone = 1, count = count + (1 << 20)"])
@pytest.mark.parametrize("leading", [True, False], ids=["with its tree", "without"])
def test_a_wrong_row_of_the_feed_costs_no_message(sound: Path, hurt: Path, change_to: str, leading: bool) -> None:
    with closing(sqlite3.connect(hurt / "herma.db")) as database:
        database.execute(f"UPDATE changes SET {change_to} WHERE seq = 12")
        database.commit()
    root = roots(hurt / "herma.db")["messages"]

    def no_tree(raw: bytearray, size: int) -> None:
        raw[(root - 1) * size : root * size] = bytes(size)

    if not leading:
        change(hurt, no_tree)
    made = repair(hurt)
    assert made.salvaged
    assert made.salvaged.complete
    assert missed(sound, hurt) == []
    with Herma.open(hurt) as h:
        (new,) = h.transcripts.append(h.transcripts.start("cli"), [{"role": "user", "content": "after"}])
        assert new == max(row[0] for row in rows(sound / "herma.db", "messages")) + 1


def test_text_that_is_no_text_and_json_that_is_no_json_are_damage(hurt: Path) -> None:
    def broken(raw: bytearray, _: int) -> None:
        raw[raw.index(b"<7.3> ") + 8] ^= 0x80

    change(hurt, broken)
    with closing(sqlite3.connect(hurt / "herma.db")) as database:
        database.execute("UPDATE messages SET tool_calls = '[{\"id\"' WHERE id = (SELECT max(id) - 1 FROM messages)")
        database.execute("UPDATE episodes SET steps = '[' WHERE id = 3")
        database.commit()
    with Herma.open(hurt) as h:
        session = next(one.id for one in h.transcripts.list(limit=99) if one.title == "Talk 7")
        newest = h.transcripts.list(limit=1)[0].id
        for call in (
            lambda: h.transcripts.messages(session),
            lambda: h.episodes.get(3),
            lambda: h.transcripts.messages(newest),
        ):
            with pytest.raises(StoreError, match="damaged") as caught:
                call()
            assert "doctor --repair" in caught.value.hint
    assert any("cannot be read" in check.sentence for check in diagnose(hurt).of("problem"))
    made = repair(hurt)
    assert made.salvaged
    assert {table.table for table in made.salvaged.tables if table.mended} == {"messages", "episodes"}
    with Herma.open(hurt) as h:
        assert any("<7.3> " in str(one.content) for one in h.transcripts.messages(session))
        assert h.episodes.get(3)
        assert len(h.transcripts.messages(newest)) == 10
    assert diagnose(hurt).healthy


@pytest.mark.parametrize("where", [0, 5, 20, -4])
def test_a_stored_text_that_changed_is_not_given_out(hurt: Path, where: int) -> None:
    with closing(sqlite3.connect(hurt / "herma.db")) as database:
        number, data = database.execute("SELECT id, data FROM payloads ORDER BY id DESC").fetchone()
        wrong = bytearray(data)
        wrong[where] ^= 0x04
        database.execute("UPDATE payloads SET data = ? WHERE id = ?", (bytes(wrong), number))
        session = database.execute(
            "SELECT s.id FROM sessions s JOIN messages m ON m.session = s.key JOIN payload_uses u ON u.message = m.id"
            " WHERE u.payload = ?",
            (number,),
        ).fetchone()[0]
        database.commit()
    with Herma.open(hurt) as h, pytest.raises(StoreError, match="damaged"):
        h.transcripts.messages(session)
    assert not diagnose(hurt).healthy


FRAME = 24 + 4096


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home as a killed process leaves it: most of it is in the log."""
    folder = tmp_path_factory.mktemp("logged")
    with Herma.open(folder / "home") as h:
        session = h.transcripts.start("cli", session_id="s")
        for number in range(60):
            h.transcripts.append(session, [{"role": "user", "content": f"{number} {'words ' * 40}"}])
        shutil.copytree(folder / "home", folder / "copy")
    (folder / "copy" / "herma.db-shm").unlink()
    return folder / "copy"


@pytest.mark.parametrize(
    ("at", "what"),
    [
        (2, "magic"),
        (17, "salt of the log"),
        (25, "checksum of the log"),
        (32 + 100 * FRAME + 2, "number of a page"),
        (32 + 100 * FRAME + 9, "salt of a frame"),
        (32 + 100 * FRAME + 17, "checksum of a frame"),
        (32 + 100 * FRAME + 24 + 3, "count on a page"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_bit_in_the_log_loses_nothing_that_comes_after_it(
    logged: Path, tmp_path: Path, at: int, what: str
) -> None:
    home = Path(shutil.copytree(logged, tmp_path / "home"))
    log = home / "herma.db-wal"
    raw = bytearray(log.read_bytes())
    raw[at] ^= 0x20
    log.write_bytes(raw)
    database = (home / "herma.db").read_bytes()
    with Herma.open(home) as h:
        for call in (
            lambda: h.transcripts.messages("s"),
            lambda: h.transcripts.append("s", [{"role": "user", "content": "more"}]),
        ):
            with pytest.raises(StoreError, match="-wal is damaged") as caught:
                call()
            assert "doctor --repair" in caught.value.hint
    assert any("herma.db-wal is damaged" in check.sentence for check in diagnose(home).of("problem"))
    assert (log.read_bytes(), (home / "herma.db").read_bytes()) == (bytes(raw), database), "trying changed nothing"
    made = repair(home)
    assert made.kept
    assert (made.kept / "herma.db-wal").read_bytes() == raw
    with Herma.open(home) as h:
        assert [str(one.content).split()[0] for one in h.transcripts.messages("s")] == [str(n) for n in range(60)]
    assert diagnose(home).healthy


def test_what_a_power_loss_cut_off_is_no_damage(logged: Path, tmp_path: Path) -> None:
    """The last change was not acknowledged yet: its frames may be there in part, and in any order."""
    home = Path(shutil.copytree(logged, tmp_path / "home"))
    log = home / "herma.db-wal"
    raw = bytearray(log.read_bytes())
    raw[-2 * FRAME : -FRAME] = bytes(FRAME)
    log.write_bytes(raw)
    with Herma.open(home) as h:
        assert len(h.transcripts.messages("s")) == 59
        h.transcripts.append("s", [{"role": "user", "content": "more"}])
        assert len(h.transcripts.messages("s")) == 60
    assert diagnose(home).healthy


def test_a_sound_log_is_no_damaged_one_wherever_sqlite_stands_in_it(logged: Path, tmp_path: Path) -> None:
    """SQLite may know of less than a sound log holds: others go on writing, or it is about to begin the log anew."""
    log = tmp_path / "herma.db-wal"
    shutil.copy(logged / "herma.db-wal", log)
    raw = log.read_bytes()
    frames = (len(raw) - 32) // FRAME
    ends = [n + 1 for n in range(frames) if raw[32 + n * FRAME + 4 : 32 + n * FRAME + 8] != bytes(4)]
    assert len(ends) > 60
    assert [left_out(log, used, 4096) for used in (0, *ends)] == [0] * (len(ends) + 1)
    for hit in (0, 10, 40):  # the transaction behind this one
        at = 32 + ends[hit] * FRAME + 24 + 1000
        log.write_bytes(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        assert left_out(log, ends[hit], 4096) == len(ends) - hit - 1
        assert left_out(log, 0, 4096) == 0, "what SQLite does not use yet is sound"


KILLED = """
import os, signal, sys
from pathlib import Path
from herma.doctor.repair import mend, plan
home = Path(sys.argv[1])
fix, = (fix for fix in plan(home) if fix.kind == "database")
Path.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
mend(home, fix)
"""


def test_after_a_kill_in_the_last_step_nobody_goes_on_without_the_log(logged: Path, tmp_path: Path) -> None:
    """The log is gone by then, and without it the database looks whole: what was written to it would be lost."""
    home = Path(shutil.copytree(logged, tmp_path / "home"))
    log = home / "herma.db-wal"
    raw = bytearray(log.read_bytes())
    raw[32 + 100 * FRAME + 9] ^= 0x20
    log.write_bytes(raw)
    run = subprocess.run([sys.executable, "-c", KILLED, home], capture_output=True, text=True, check=False)
    assert run.returncode == -9, run.stderr
    assert not log.exists()
    with Herma.open(home) as h, pytest.raises(StoreError) as caught:
        h.transcripts.append(h.transcripts.start("cli"), [{"role": "user", "content": "more"}])
    assert "herma doctor" in caught.value.hint
    assert any(check.name == "repair" for check in diagnose(home).of("problem"))
    for fix in plan(home):
        mend(home, fix)
    with Herma.open(home) as h:
        assert len(h.transcripts.messages("s")) == 60
    assert diagnose(home).healthy
    assert plan(home) == []


def test_a_file_of_which_only_messages_are_left_is_still_known_as_ours(sound: Path, hurt: Path) -> None:
    """It was emptied while it was in use: what came afterwards stands in it, and nothing that says whose it is."""
    pages = PageFile(hurt / "herma.db")
    messages = [record.pages for record in TreeWalk(pages).tree(roots(hurt / "herma.db")["messages"], TABLE_LEAF)]
    pages.close()
    left = {number for chain in messages for number in chain}

    def only_messages(raw: bytearray, size: int) -> None:
        for number in set(range(1, len(raw) // size + 1)) - left:
            raw[(number - 1) * size : number * size] = bytes(size)

    change(hurt, only_messages)
    assert any("doctor --repair" in check.next for check in diagnose(hurt).of("problem"))
    repair(hurt)
    assert [row[0] for row in rows(hurt / "herma.db", "messages")] == [
        row[0] for row in rows(sound / "herma.db", "messages")
    ]
    assert diagnose(hurt).healthy


def test_another_program_s_file_without_a_head_is_not_ours(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    with closing(sqlite3.connect(home / "herma.db")) as database:
        database.execute("CREATE TABLE messages (id INTEGER PRIMARY KEY, session TEXT, role TEXT, content TEXT)")
        database.executemany("INSERT INTO messages VALUES (?, 's', 'user', ?)", [(n, "x" * 200) for n in range(99)])
        database.commit()
    raw = (home / "herma.db").read_bytes()
    for wrong in (raw, bytes(100) + raw[100:], bytes(50_000), random.Random(1).randbytes(50_000)):
        (home / "herma.db").write_bytes(wrong)
        assert not [fix for fix in plan(home) if fix.kind == "database"]
        assert (home / "herma.db").read_bytes() == wrong


def test_behind_a_link_the_file_itself_is_repaired_with_its_log(logged: Path, tmp_path: Path) -> None:
    real = Path(shutil.copytree(logged, tmp_path / "elsewhere"))
    raw = bytearray((real / "herma.db-wal").read_bytes())
    raw[32 + 100 * FRAME + 9] ^= 0x20
    (real / "herma.db-wal").write_bytes(raw)
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "herma.db").symlink_to(real / "herma.db")
    made = repair(home)
    assert made.kept
    assert (made.kept / "herma.db-wal").read_bytes() == raw
    assert (home / "herma.db").is_symlink()
    with Herma.open(home) as h:
        assert len(h.transcripts.messages("s")) == 60
    (real / "herma.db").write_bytes(bytes(HEAD) + (real / "herma.db").read_bytes()[HEAD:])
    assert any(check.name == "herma.db" and "damaged" in check.sentence for check in diagnose(home).of("problem"))
    repair(home)
    with Herma.open(home) as h:
        assert len(h.transcripts.messages("s")) == 60
    assert sorted(path.name for path in real.iterdir()) == ["herma.db"]


def test_links_that_go_round_are_told_and_left(home: Path) -> None:
    (home / "herma.db").symlink_to("herma.db")
    assert any("Not regular files: herma.db" in check.sentence for check in diagnose(home).of("warning"))
    with Herma.open(home) as h, pytest.raises(StoreError, match="cannot be written"):
        h.transcripts.start("cli")
    assert (home / "herma.db").is_symlink()
