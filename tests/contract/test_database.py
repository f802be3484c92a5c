"""What the rows of a feature may ask of `Database`, whatever engine is behind it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from tests.homes import both_engines

from herma import config
from herma.errors import StoreError, UsageError
from herma.store import open_database
from herma.store.database import Database, DatabaseConnection, NotUnique

pytestmark = both_engines
OWN = "key LIKE 'own%'"
ADD = "INSERT INTO meta (key, value) VALUES (:key, :value) RETURNING CAST(substr(key, 5) AS INTEGER)"
FIND = f"SELECT key, value FROM meta WHERE {OWN} ORDER BY key"


@pytest.fixture
def database(home: Path) -> Iterator[Database]:
    with closing(open_database(config.load(home=home))) as opened:
        yield opened


def test_statements_read_write_and_say_how_many_rows_changed(database: Database, home: Path, store: str) -> None:
    assert database.rows(FIND) == []
    assert database.row(FIND) is None
    assert not (home / "herma.db").exists(), "reading creates no database"
    first = database.insert(ADD, {"key": "own.1", "value": "a"})

    def work(connection: DatabaseConnection) -> int:
        connection.run_many("INSERT INTO meta (key, value) VALUES (?, ?)", [("own.2", "b"), ("own.3", "c")])
        assert connection.row(FIND) == ("own.1", "a")
        assert connection.row(FIND, ()) == connection.rows(FIND)[0]
        for key, _ in connection.stream(FIND):
            assert key == "own.1"
            break
        return connection.insert(ADD, {"key": "own.4", "value": "d"})

    assert first == 1
    assert database.write(work) == 4
    assert database.run(f"UPDATE meta SET value = ? WHERE {OWN}", ("z",)) == 4
    assert database.row(FIND) == ("own.1", "z")
    assert database.run("DELETE FROM meta WHERE key = 'own.9'") == 0
    assert database.rows(f"SELECT key FROM meta WHERE {OWN} LIMIT :most", {"most": -1}) == [
        (f"own.{number}",) for number in range(1, 5)
    ]
    assert (home / "herma.db").exists() == (store == "sqlite")


def test_a_value_that_must_be_unique_and_is_taken(database: Database) -> None:
    add = "INSERT INTO payloads (hash, size, kind, codec, data) VALUES (?, 1, 'text', 'plain', ?) RETURNING id"
    assert database.insert(add, (b"1", b"a")) == 1
    with pytest.raises(NotUnique):
        database.insert(add, (b"1", b"b"))
    with pytest.raises(StoreError, match="syntax error") as caught:
        database.run("DELETE FROM nothing WHERE OR")
    assert not isinstance(caught.value, NotUnique)
    assert database.rows("SELECT data FROM payloads") == [(b"a",)]


def test_a_work_that_fails_undoes_itself_alone(database: Database) -> None:
    database.insert(ADD, {"key": "own.1", "value": "0"})
    both = threading.Barrier(8)

    def add_one(number: int) -> bool:
        def work(connection: DatabaseConnection) -> None:
            ((value,),) = connection.rows("SELECT value FROM meta WHERE key = 'own.1'")
            connection.run("UPDATE meta SET value = ? WHERE key = 'own.1'", (str(int(value) + 1),))
            if number % 3 == 0:
                raise UsageError("no")

        both.wait()
        try:
            database.write(work)
        except UsageError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        done = sum(pool.map(add_one, range(64)))
    assert database.row(FIND) == ("own.1", str(done))


def test_a_snapshot_stays_at_one_moment(database: Database) -> None:
    database.insert(ADD, {"key": "own.1", "value": "before"})
    with database.snapshot():
        assert database.row(FIND) == ("own.1", "before")
        with ThreadPoolExecutor(1) as pool:
            pool.submit(database.run, f"UPDATE meta SET value = 'after' WHERE {OWN}").result()
        assert database.row(FIND) == ("own.1", "before")
        assert database.read(lambda connection: connection.row(FIND), None) == ("own.1", "before")
    assert database.row(FIND) == ("own.1", "after")


def test_a_lock_is_held_by_one(database: Database, home: Path) -> None:
    database.insert(ADD, {"key": "own.1", "value": ""})
    with database.lock("tidy") as free, closing(open_database(config.load(home=home))) as other:
        assert free
        with other.lock("tidy") as again, other.lock("else") as different:
            assert (again, different) == (False, True)
    with database.lock("tidy") as free:
        assert free


def test_a_closed_database_says_so(database: Database) -> None:
    database.rows(FIND)
    database.close()
    database.close()
    with pytest.raises(UsageError, match="closed"):
        database.rows(FIND)
