"""`schema.sql` and the migrations lead to the same database, and any SQLite can read it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import apsw
import pytest
from tests.faults.crashing import with_own_mounts

from herma import Add, Author, Herma, Origin, Who
from herma.store.database import MIGRATIONS, VERSION, migrations
from herma.store.sqlite import APPLICATION_ID, migrate, user_version

SCHEMA = MIGRATIONS.with_name("schema.sql")
FIRST = Path(__file__).with_name("schema_0001.sql")
"""The schema of format 1, kept as it was when 0002 is written; until then it is `schema.sql` itself."""


def shape(connection: apsw.Connection) -> list[tuple[str, str, str]]:
    """What a database consists of, whatever the spacing and the comments of the script that made it."""
    found = []
    for kind, name, sql in connection.execute("SELECT type, name, sql FROM sqlite_master ORDER BY type, name"):
        lines = (line.split("--")[0] for line in str(sql).splitlines())
        found.append((str(kind), str(name), " ".join(" ".join(lines).split()).replace("( ", "(").replace(" )", ")")))
    return found


def columns(connection: apsw.Connection) -> dict[str, list[tuple[object, ...]]]:
    """Columns by name: a migration can add one only at the end."""
    tables = [name for kind, name, _ in shape(connection) if kind == "table"]
    return {
        table: sorted(
            connection.execute('SELECT name, type, "notnull", dflt_value, pk FROM pragma_table_info(?)', (table,))
        )
        for table in tables
    }


def made_by(script: Path, version: int) -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(script.read_text(encoding="utf-8"))
    connection.execute(f"PRAGMA user_version = {version}")
    return connection


def test_migrating_the_first_format_gives_what_a_new_database_is() -> None:
    new = made_by(SCHEMA, VERSION)
    old = made_by(FIRST if FIRST.exists() else SCHEMA, 1)
    migrate(old, VERSION)
    assert user_version(old) == VERSION
    assert columns(old) == columns(new)
    assert {(kind, name) for kind, name, _ in shape(old)} == {(kind, name) for kind, name, _ in shape(new)}


def test_there_is_a_migration_for_every_format_since_the_first() -> None:
    assert [number for number, _ in migrations()] == list(range(2, VERSION + 1))
    assert FIRST.exists() == (VERSION > 1), "keep the schema of format 1 beside this test when you write 0002"


@pytest.fixture
def steps(tmp_path: Path) -> Path:
    """Two migrations from format 1: a column, then an index on it."""
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0003_by_colour.sql").write_text("CREATE INDEX by_colour ON meta (colour);")
    (folder / "0002_colour.sql").write_text(
        "-- why\nALTER TABLE meta ADD COLUMN colour TEXT;\nUPDATE meta SET colour = 'red';"
    )
    (folder / "notes.txt").write_text("no migration")
    return folder


@pytest.mark.parametrize("begins", [1, 2])
def test_migrations_run_in_order_and_once_from_where_the_database_is(steps: Path, begins: int) -> None:
    connection = made_by(SCHEMA, begins)
    connection.execute("INSERT INTO meta (key, value) VALUES ('kept', 'yes')")
    if begins == 2:
        connection.execute("ALTER TABLE meta ADD COLUMN colour TEXT DEFAULT 'red'")
    migrate(connection, 3, steps)
    migrate(connection, 3, steps)
    assert user_version(connection) == 3
    assert connection.execute("SELECT key, value, colour FROM meta").fetchall() == [("kept", "yes", "red")]


def test_a_migration_that_fails_leaves_the_format_before_it(steps: Path) -> None:
    (steps / "0003_by_colour.sql").write_text("CREATE TABLE half (a); CREATE INDEX by_colour ON nowhere (colour);")
    connection = made_by(SCHEMA, 1)
    before = shape(connection)
    with pytest.raises(apsw.SQLError):
        migrate(connection, 3, steps)
    assert user_version(connection) == 2
    assert not connection.in_transaction
    assert "half" not in columns(connection)
    assert shape(connection) != before, "the step that worked stays"


def test_any_sqlite_can_read_what_we_write(home: Path) -> None:
    """By Python's own SQLite, in a database that has something of everything."""
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("one", "lesson", ("a", "b")))
        h.memory.apply("memory", Add("two"), author=Author(Who.TOOL, Origin.WEB))
        h.memory.undo()
    assert sqlite3.sqlite_version_info >= (3, 37)
    with closing(sqlite3.connect(f"{(home / 'herma.db').as_uri()}?mode=ro", uri=True)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert database.execute("PRAGMA foreign_key_check").fetchall() == []
        assert database.execute("PRAGMA application_id").fetchone() == (APPLICATION_ID,)
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
        tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        assert {"meta", "curated_changes", "curated_entries", "curated_inbox"} <= set(tables)
        for table in tables:
            database.execute(f'SELECT * FROM "{table}"').fetchall()
        assert database.execute("SELECT after_text, state FROM curated_changes ORDER BY id").fetchall()[0][0] == "one"
        assert dict(database.execute("SELECT key, value FROM meta")).keys() >= {"store_id", "epoch", "created"}


def test_a_new_database_is_exactly_the_schema(home: Path) -> None:
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("one"))
    made = apsw.Connection(str(home / "herma.db"))
    wanted = made_by(SCHEMA, VERSION)
    assert [each for each in shape(made) if not each[1].startswith("sqlite_stat")] == shape(wanted)
    made.close()


def of_format(home: Path, version: int) -> None:
    """Make the database of an earlier format, with one message."""
    old = apsw.Connection(str(home / "herma.db"))
    old.execute(f"{FIRST.read_text(encoding='utf-8')}; PRAGMA user_version = 1")
    migrate(old, version)
    old.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    old.execute("INSERT INTO meta VALUES ('store_id', 'a'), ('epoch', 'b')")
    old.execute(
        "INSERT INTO sessions (key, id, source, profile, project, user, chat, title, reason, conversation, started,"
        " last_active, message_count) VALUES (1, 'old', 'cli', '', '', '', '', 'Old', 'new', 'old', 1, 2, 1);"
        "INSERT INTO messages (session, role, timestamp, content) VALUES (1, 'user', 1, 'zephyr');"
        "INSERT INTO changes (gone, first_id, count) VALUES (0, 1, 1)"
    )
    old.close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_who_only_reads_brings_an_older_home_up_to_date(home: Path, version: int) -> None:
    """The first question must not fail because nothing was written yet. What an older format did not record is
    unknown, which is not the same as nothing.
    """
    of_format(home, version)
    with Herma.open(home) as h:
        (message,) = h.transcripts.messages("old")
        assert (message.content, message.outside) == ("zephyr", None)
        (session,) = h.transcripts.list()
        assert (session.title, session.imported) == ("Old", None)
        assert h.session(resume="old").messages == (message,)
        assert h.episodes.list() == []
        assert h.facts.list() == []
        assert h.session().warnings == ()
        assert [check for check in h.doctor().checks if check.state == "problem"] == []
    made = apsw.Connection(str(home / "herma.db"))
    assert user_version(made) == VERSION
    made.close()


READ_ONLY = """
set -e
mount --bind "$1" "$1"
mount -o remount,ro,bind "$1"
"$2" -m herma.cli.main --home "$1" sessions list 2>&1 || true
"""


def test_an_older_format_on_a_read_only_disk_is_said(home: Path) -> None:
    of_format(home, 1)
    assert f"from format 1 to {VERSION}" in with_own_mounts(READ_ONLY, home, "")
