"""Keep the rows in PostgreSQL 15 or newer: connections, schema and migrations, one writer per tenant, retries.

The tables are those of `schema.sql`, translated: every row has a `tenant`, which leads every key and index, and
row-level security hides the rows of other tenants. docs/decisions/0018-one-writer-per-tenant.md says why writers of a
tenant take turns. A statement that is cut off by a lost connection is run again until the deadline; of a commit that
was cut off, the server is asked whether it happened.
"""

from __future__ import annotations

import base64
import json
import os
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any, cast

from herma.errors import ForeignStore, StoreBusy, StoreError, UsageError, install_command
from herma.store.database import (
    MIGRATIONS,
    VERSION,
    Bindings,
    Blob,
    Database,
    DatabaseConnection,
    GroupCommit,
    NotUnique,
    Row,
    T,
    Work,
    migrations,
    queries,
)

try:
    import psycopg
    from psycopg import errors as sql_errors
    from psycopg.conninfo import conninfo_to_dict
    from psycopg.pq import TransactionStatus
except ImportError as exc:
    raise UsageError(
        f"store.url names a PostgreSQL server, and the package for it is not installed ({exc}).",
        hint=install_command("postgres"),
    ) from exc

OLDEST_SERVER = 15
STATEMENT_TIMEOUT = 30
"""Seconds, unless the address or the role sets another."""
IDLE_TIMEOUT = 300
"""Seconds after which the server ends a transaction in which nothing happens."""
IDLE_CONNECTIONS = 8
SHARE_VECTORS = "CREATE EXTENSION vector (0.8 or newer, by a superuser, in this database), then herma db migrate"
GRAPHS = (256, 384, 512, 768, 1024, 1536, 3072)
"""Sizes of vectors that pgvector finds without comparing all."""
_AGAIN, _ASK_AGAIN = 0.05, 0.005
_FINAL = ("authentication", "password", "does not exist", "pg_hba", "role ", "invalid", "certificate")
"""Errors of the server that connecting again would not solve."""
_SQL = queries("store.postgres", "postgres")


class LostConnection(StoreBusy):
    """The server went away, or gave up the transaction; the same work may succeed a moment later."""


# ── statements: from the shared dialect to PostgreSQL's ──

_PIECE = re.compile(
    r"""'(?:[^']|'')*'|"[^"]*"|--[^\n]*|::|\$\d+"""  # left as they are
    r"""|\bLIMIT\s+(?::(?P<limit>\w+)|\?)|:(?P<null>\w+)(?=\s+IS\s+(?:NOT\s+)?NULL)|:(?P<name>\w+)|\?"""
    r"""|\bON\s+CONFLICT\s*\(|(?<![\w.])user\b|\blower\(:(?P<lower>\w+)\)|\bINDEXED\s+BY\s+\w+|\bCROSS\s+JOIN(?=.*\sON\b)"""
)


@lru_cache(maxsize=2048)
def translated(sql: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with `$1`, `$2` … for its values, and their names ("" for `?`).

    The values travel as text without a type, so that each takes the type of its place.
    """
    names: list[str] = []

    def bound(name: str | None) -> str:
        names.append(name or "")
        return f"${len(names)}"

    def one(match: re.Match[str]) -> str:
        piece = match[0]
        if piece.startswith("LIMIT"):  # -1: no limit
            return f"LIMIT nullif(CAST({bound(match['limit'])} AS BIGINT), -1)"
        if match["null"]:
            return f"CAST({bound(match['null'])} AS TEXT)"
        if match["lower"]:  # only ASCII letters change, as in the columns
            return f'lower({bound(match["lower"])} COLLATE "C")'
        if match["name"] or piece == "?":
            return bound(match["name"])
        if piece.startswith("ON"):
            return "ON CONFLICT (tenant, "
        if piece.startswith(("INDEXED", "CROSS")):  # a hint for SQLite's planner
            return "JOIN" if piece.startswith("CROSS") else ""
        return '"user"' if piece == "user" else piece

    return _PIECE.sub(one, sql), tuple(names)


def _value(value: Any) -> Any:
    """Return a value as it travels: text, bytes or nothing."""
    match value:
        case None:
            return None
        case bool():
            return "1" if value else "0"
        case str():
            return str.__str__(value)
        case int() | float():
            return repr(value)
        case Blob():
            return blob_text(value)
        case bytes():
            return value
        case _ if value and isinstance(value[0], (list, tuple)):
            return json.dumps(value)
        case _:
            return "{" + ",".join(map(_element, value)) + "}"


def _element(value: Any) -> str:
    text = _value(value)
    return "NULL" if text is None else '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


# A column that holds text or bytes is VARCHAR here. Bytes are text after a mark with which no text begins: `Blob` says
# which of the two follows, UTF-8 or base64.


def blob_text(value: bytes) -> str:
    with suppress(UnicodeDecodeError):
        text = value.decode()
        if "\0" not in text:
            return f"{Blob.MARK}t{text}"
    return f"{Blob.MARK}b{base64.b64encode(value).decode()}"


class _TextOrBlob(psycopg.adapt.Loader):
    def load(self, data: Any) -> str | Blob:
        text = bytes(data).decode()
        if text[:1] != Blob.MARK:
            return text
        return Blob(text[2:].encode() if text[1] == "t" else base64.b64decode(text[2:]))


class _Number(psycopg.adapt.Loader):
    """Sums of whole numbers are whole numbers."""

    def load(self, data: Any) -> int | float:
        text = bytes(data).decode()
        return int(text) if text.lstrip("-").isdigit() else float(text)


# ── the schema ──

_TYPES = {"TEXT": 'TEXT COLLATE "C"', "INTEGER": "BIGINT", "REAL": "DOUBLE PRECISION", "BLOB": "BYTEA",
          "ANY": 'VARCHAR COLLATE "C"'}  # fmt: skip
_TENANT = "tenant TEXT COLLATE \"C\" NOT NULL DEFAULT current_setting('herma.tenant')"
_BOOLEAN = re.compile(r" *CHECK \(\w+ IN \(0, 1\)\)")
_FLAGS = {"answered"}
"""A column of 0 and 1 that has no CHECK."""


def schema(sql: str) -> str:
    """Translate the definitions of tables and indexes."""
    sql = re.sub(r"--.*", "", sql)
    sql = re.sub(r"CREATE TABLE (\w+) \((.*?)\n\) STRICT(?:, WITHOUT ROWID)?;", _table, sql, flags=re.DOTALL)
    sql = re.sub(r"ALTER TABLE (\w+) ADD COLUMN ([^;]+);", _added, sql)
    sql = "\n".join(sorted(sql.split("\n"), key=lambda line: " ADD FOREIGN KEY " in line))  # of tables that follow
    sql = re.sub(r"(CREATE (?:UNIQUE )?INDEX \w+ ON \w+ \()", r"\1tenant, ", sql)
    return re.sub(r"(?<![\w.'\"])user(?![\w'\"])", '"user"', sql)


def _table(match: re.Match[str]) -> str:
    name, lines, keys = match[1], [_TENANT], list[str]()
    for line in filter(None, (each.strip().rstrip(",") for each in match[2].split("\n"))):
        if line.startswith(("PRIMARY KEY", "UNIQUE")):
            keys.append(line.replace("(", "(tenant, ", 1))
        else:
            column, more = _column(line, name)
            lines.append(column)
            keys += more
    guard = _SQL["guard"].replace("{table}", name)
    own = [key for key in keys if not key.startswith("FOREIGN")]
    others = [f"\nALTER TABLE {name} ADD {key};" for key in keys if key not in own]
    return f"CREATE TABLE {name} (\n" + ",\n".join([*lines, *own]) + f"\n);\n{guard}" + "".join(others)


def _column(line: str, table: str) -> tuple[str, list[str]]:
    """Return a column, and the constraints of the table that it needs."""
    name, kind, rest = (*line.split(None, 2), "")[:3]
    keys = []
    if "PRIMARY KEY" in rest:
        rest = f"NOT NULL DEFAULT next_id('{table}')" if kind == "INTEGER" else "NOT NULL"
        keys.append(f"PRIMARY KEY (tenant, {name})")
    if rest.endswith(" UNIQUE"):
        rest = rest.removesuffix(" UNIQUE")
        keys.append(f"UNIQUE (tenant, {name})")
    if found := re.search(r" *REFERENCES (\w+) \((\w+)\)", f" {rest}"):
        rest = f" {rest}".replace(found[0], "").strip()
        keys.append(f"FOREIGN KEY (tenant, {name}) REFERENCES {found[1]} (tenant, {found[2]})")
    if _BOOLEAN.search(rest) or name in _FLAGS:
        kind, rest = "BOOLEAN", re.sub(r"DEFAULT ([01])", r"DEFAULT '\1'", _BOOLEAN.sub("", rest))
    return f"{name} {_TYPES.get(kind, kind)} {rest}", keys


def _added(match: re.Match[str]) -> str:
    column, keys = _column(match[2], match[1])
    return f"ALTER TABLE {match[1]} ADD COLUMN {', ADD '.join([column, *keys])};"


class PostgresConnection(DatabaseConnection):
    """A connection. The rows of a feature call the methods of `DatabaseConnection` only."""

    engine = "postgres"

    def __init__(self, link: psycopg.Connection[Row], key: int, settled: Callable[[str], bool]) -> None:
        self.link = link
        self._key = key
        self._settled = settled
        self._number = ""
        self._streams = 0

    def stream(self, sql: str, bindings: Bindings = ()) -> Iterator[Row]:
        if not self.in_transaction:
            yield from self.rows(sql, bindings)
            return
        self._streams += 1
        with psycopg.RawServerCursor(self.link, f"rows_{self._streams}") as cursor:
            cursor.itersize = 200
            cursor.execute(*_ready(sql, bindings))
            yield from cursor

    def rows(self, sql: str, bindings: Bindings = ()) -> list[Row]:
        return self._execute(sql, bindings).fetchall()

    def row(self, sql: str, bindings: Bindings = ()) -> Row | None:
        return self._execute(sql, bindings).fetchone()

    def run(self, sql: str, bindings: Bindings = ()) -> int:
        return max(0, self._execute(sql, bindings).rowcount)

    def run_many(self, sql: str, bindings: Iterable[Bindings]) -> None:
        ready = [_ready(sql, each) for each in bindings]
        if ready:
            self.link.cursor().executemany(ready[0][0], [values for _, values in ready])

    @property
    def in_transaction(self) -> bool:
        return self.link.info.transaction_status in (TransactionStatus.INTRANS, TransactionStatus.INERROR)

    def begin(self) -> None:
        try:
            cursor = self.link.execute(_SQL["begin"].replace("{key}", str(self._key)))
            while cursor.nextset():
                pass
            self._number = str((cursor.fetchone() or [""])[0])
        except psycopg.Error as exc:
            raise translation(exc) from exc

    def commit(self) -> None:
        try:
            self.link.execute("COMMIT")
        except psycopg.OperationalError as exc:
            if not (self.link.closed and self._settled(self._number)):
                raise translation(exc) from exc

    def roll_back(self) -> None:
        with suppress(psycopg.Error):  # a lost connection has rolled back
            self.link.execute("ROLLBACK")

    def _execute(self, sql: str, bindings: Bindings) -> psycopg.Cursor[Row]:
        return self.link.execute(*_ready(sql, bindings))


def _ready(sql: str, bindings: Bindings) -> tuple[str, list[Any]]:
    text, names = translated(sql)
    given = [bindings[name] for name in names] if isinstance(bindings, Mapping) else bindings
    return text, [_value(value) for value in given]


def translation(error: psycopg.Error) -> StoreError:
    """Return the error for callers, with one sentence about what happened."""
    says = (error.diag.message_primary or str(error)).strip().split("\n")[0].rstrip(".")
    match error:
        case sql_errors.UniqueViolation():
            return NotUnique(f"The database refused a value that is taken: {says}.")
        case sql_errors.LockNotAvailable():
            return StoreBusy("Another process wrote for too long; nothing was written.", hint="Try again.")
        case sql_errors.QueryCanceled():
            return StoreBusy(f"The database took too long ({says}).", hint="Try again, or raise statement_timeout.")
        case sql_errors.SerializationFailure() | sql_errors.DeadlockDetected() | sql_errors.ReadOnlySqlTransaction():
            return LostConnection(f"The database gave up the transaction: {says}.", hint="Try again.")
        case sql_errors.UndefinedTable() | sql_errors.InvalidSchemaName() | sql_errors.UndefinedFunction():
            return StoreError(f"The database lacks what Herma needs: {says}.", hint="Run: herma db status")
        case sql_errors.DiskFull() | sql_errors.InsufficientPrivilege():
            return StoreError(f"The database refused: {says}.")
        case psycopg.DataError() if "NUL" in says:
            return StoreError(
                "A name or title has a NUL character, which PostgreSQL cannot store; nothing was written."
            )
        case psycopg.OperationalError() | psycopg.InterfaceError():
            return LostConnection(f"The connection to the database was lost: {says}.", hint="Check the server.")
        case _:
            return StoreError(f"The database refused a statement: {says}.", hint="Run it again with --debug.")


@contextmanager
def translating() -> Iterator[None]:
    try:
        yield
    except psycopg.Error as exc:
        raise translation(exc) from exc


class _Pinned(threading.local):
    """The connection of a thread that reads one consistent state."""

    connection: PostgresConnection | None = None


class PostgresDatabase(Database):
    """The rows of one tenant on a server. Nothing connects before the first statement."""

    engine = "postgres"

    def __init__(self, url: str, tenant: str = "", *, busy_timeout: float = 10.0, unfinished: bool = False) -> None:
        """`unfinished`: open a tenant that an interrupted copy has left, too."""
        super().__init__()
        self.url = url
        self.tenant = tenant
        self.shown = shown(url)
        self._unfinished = unfinished
        self._busy_timeout = busy_timeout
        self._key = lock_key(tenant, "")
        self._commits = GroupCommit(self._writer, translating)
        self._writing: PostgresConnection | None = None  # used only by the caller that leads a commit
        self._mutex = threading.Lock()  # guards the next line
        self._idle: list[PostgresConnection] = []
        self._pinned = _Pinned()
        self._store_id = ""
        self._has_vectors = False

    def write(self, work: Work[T]) -> T:
        return self.retrying(lambda: self._commits.run(work))

    def read(self, work: Work[T], otherwise: T) -> T:  # noqa: ARG002  there is always a database
        def at_one_time(connection: PostgresConnection) -> T:
            with _one_snapshot(connection.link):
                return work(connection)

        return self._using(work if self._pinned.connection else at_one_time)

    def read_one(self, work: Work[T], otherwise: T) -> T:  # noqa: ARG002
        return self._using(work)

    def apart(self, work: Work[T], *, writing: bool = False) -> T:
        """Run `work` on a connection of its own: on what is committed now, whatever the thread's snapshot, or, to write
        what can be derived again, without waiting for the tenant's writer or the disk.
        """

        def transaction(connection: PostgresConnection) -> T:
            if not writing:
                with _one_snapshot(connection.link):
                    return work(connection)
            with connection.link.transaction():
                connection.link.execute("SET LOCAL synchronous_commit = off")
                return work(connection)

        return self.retrying(lambda: self._with_connection(transaction))

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        if self._pinned.connection is not None:
            self._check()
            yield
            return
        connection = self.retrying(self._take)
        try:
            with translating(), _one_snapshot(connection.link):
                self._pinned.connection = connection
                yield
        finally:
            self._pinned.connection = None
            self._give_back(connection)

    @contextmanager
    def lock(self, name: str) -> Iterator[bool]:
        connection, key = self.retrying(self._take), (lock_key(self.tenant, name),)
        try:
            with translating():
                free = bool((connection.row(_SQL["try_lock"], key) or [False])[0])
            yield free
            if free:
                with suppress(psycopg.Error):  # a lost connection holds no locks
                    connection.row(_SQL["unlock"], key)
        except BaseException:
            connection.link.close()
            raise
        finally:
            self._give_back(connection)

    @contextmanager
    def hold(self, name: str, timeout: float) -> Iterator[bool]:
        """Hold a name across all hosts during the block; wait for it. `StoreBusy` after the deadline."""
        deadline = time.monotonic() + timeout
        while True:
            with self.lock(name) as free:
                if free:
                    yield True
                    return
            if time.monotonic() > deadline:
                raise StoreBusy("Another host has the lock.", hint="Try again.")
            time.sleep(_ASK_AGAIN)

    def has_vectors(self) -> bool:
        """Return whether vectors can be kept here: the tables were made where the extension pgvector was."""
        self.refuse_foreign()
        return self._has_vectors

    def identity(self) -> object:
        return (self.url, self.tenant, self._store_id)

    def refuse_foreign(self) -> None:
        self._give_back(self.retrying(self._take))

    def close(self) -> None:
        if self._process != os.getpid() or self._closed:
            return
        self._closed = True
        drained = self._commits.drain(self._busy_timeout + 5)
        with self._mutex:
            connections, self._idle = self._idle, []
        if self._writing is not None and drained:
            connections.append(self._writing)
        for connection in connections:
            connection.link.close()

    def delete_everything(self) -> None:
        """Delete all rows of this tenant."""

        def work(connection: DatabaseConnection) -> None:
            left = [name for (name,) in connection.rows(_SQL["tables_of_tenant"])]
            while left:  # a table that others refer to goes after them
                gone = [name for name in left if _deleted(connection, name)]
                left = [name for name in left if name not in gone]
                if not gone:
                    raise StoreError(f"Rows of {', '.join(left)} cannot be deleted; nothing was changed.")

        self.write(work)

    # ── retries ──

    def retrying(self, attempt: Callable[[], T]) -> T:
        """Run something again while the server is away, until the deadline."""
        deadline, wait = time.monotonic() + self._busy_timeout, 0.0
        while True:
            self._check()
            try:
                return attempt()
            except LostConnection:
                if time.monotonic() + wait > deadline:
                    raise
            time.sleep(wait)
            wait = min(1.0, wait * 2 or _AGAIN)

    def _using(self, work: Callable[[PostgresConnection], T]) -> T:
        if self._pinned.connection is not None:
            with translating():
                return work(self._pinned.connection)
        return self.retrying(lambda: self._with_connection(work))

    def _with_connection(self, work: Callable[[PostgresConnection], T]) -> T:
        connection = self._take()
        try:
            with translating():
                return work(connection)
        finally:
            self._give_back(connection)

    # ── connections ──

    def _writer(self) -> PostgresConnection:
        if self._writing is not None and self._writing.link.closed:
            self._writing = None
        if self._writing is None:
            self._writing = self._connected()
        return self._writing

    def _take(self) -> PostgresConnection:
        while True:
            with self._mutex:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connected()
            if not connection.link.closed:
                return connection

    def _give_back(self, connection: PostgresConnection) -> None:
        if connection.in_transaction:
            connection.roll_back()
        with self._mutex:
            if not self._closed and len(self._idle) < IDLE_CONNECTIONS and not connection.link.closed:
                self._idle.append(connection)
                return
        connection.link.close()

    def _connected(self) -> PostgresConnection:
        """Return a new connection to this tenant's rows, whose format is known."""
        link = self._linked()
        try:
            with translating():
                self._greet(link)
        except BaseException:
            link.close()
            raise
        return PostgresConnection(link, self._key, self._was_committed)

    def _linked(self) -> psycopg.Connection[Row]:
        try:
            link = psycopg.connect(
                self.url,
                autocommit=True,
                cursor_factory=psycopg.RawCursor,
                connect_timeout=max(2, int(self._busy_timeout)),
                application_name="herma",
            )
        except psycopg.Error as exc:
            says = str(exc).strip().split("\n")[-1].removeprefix("connection failed: ")
            final = not self._store_id or any(word in says for word in _FINAL)
            raise (StoreError if final else LostConnection)(
                f"Cannot connect to {self.shown}: {says}.", hint="Check store.url and the server."
            ) from exc
        link.adapters.register_loader("varchar", _TextOrBlob)
        link.adapters.register_loader("numeric", _Number)
        return cast("psycopg.Connection[Row]", link)

    def _greet(self, link: psycopg.Connection[Row]) -> None:
        """Set a connection up; raise if it is not to a database of ours, or could read other tenants' rows."""
        milliseconds = [str(int(seconds * 1000)) for seconds in (self._busy_timeout, STATEMENT_TIMEOUT, IDLE_TIMEOUT)]
        row = link.execute(_SQL["greet"], [self.tenant, *milliseconds]).fetchone() or ()
        if self._store_id:
            return
        server, bypasses, ours, indexed, self._has_vectors = row[-5:]
        version, compatible = (link.execute(_SQL["format"]).fetchone() if ours else None) or (0, 0)
        if found := _trouble(int(server), bypasses, version, compatible, indexed):
            kind = ForeignStore if compatible > VERSION else StoreError
            raise kind(f"{self.shown}: {found[0]} Nothing was changed.", hint=f"Run: {found[1]}")
        new = [secrets.token_hex(16), secrets.token_hex(8), str(time.time())]
        link.execute(_SQL["tenants"], new)
        if not self._unfinished and link.execute(_SQL["copying"]).fetchone():
            raise StoreError(
                f"{self.shown} holds an unfinished copy.", hint="Finish it: run the same herma db copy again."
            )
        self._store_id = str((link.execute(_SQL["store_id"]).fetchone() or [""])[0])

    def _was_committed(self, number: str) -> bool:
        """Ask, on a new connection, whether a transaction was committed whose connection was lost."""

        def ask() -> bool:
            with self._linked() as link, translating():
                try:
                    found = link.execute(_SQL["settled"], [number]).fetchone()
                except sql_errors.InvalidParameterValue:  # a server that never saw it
                    return False
                if found and found[0] == "in progress":
                    raise LostConnection("The server is still ending a transaction.")
                return bool(found and found[0] == "committed")

        return self.retrying(ask)


def _deleted(connection: DatabaseConnection, table: str) -> bool:
    """Delete a tenant's rows of a table; return False if rows of other tables refer to them."""
    connection.run("SAVEPOINT rows")
    try:
        connection.run(f"DELETE FROM {table}")
    except sql_errors.ForeignKeyViolation:
        connection.run("ROLLBACK TO SAVEPOINT rows")
        return False
    return True


@contextmanager
def _one_snapshot(link: psycopg.Connection[Row]) -> Iterator[None]:
    """Read one state in the block."""
    link.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
    try:
        yield
    finally:
        if not link.closed:
            link.execute("ROLLBACK")


def shown(url: str) -> str:
    """Return an address without its password."""
    try:
        parts = conninfo_to_dict(url)
    except psycopg.Error as exc:
        raise UsageError(f"store.url is not an address of a PostgreSQL server ({str(exc).strip()}).") from exc
    place = ":".join(str(parts[name]) for name in ("host", "port") if parts.get(name))
    return f"postgresql://{place}/{parts.get('dbname', '')}"


def lock_key(tenant: str, name: str) -> int:
    digest = blake2b(json.dumps(["herma", tenant, name]).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


# ── init, migrate, status ──


def initialise(url: str) -> bool:
    """Make the tables; return whether they were missing."""
    with _owner(url) as link:
        if link.execute("SELECT to_regclass('herma.format')").fetchone() != (None,):
            return False
        tables = queries_text("schema.sql")
        script = [_SQL["base"], schema(_SQL["tables"]), _SQL["next_id"], schema(tables)]
        link.execute("\n".join(script))
        link.execute(f"INSERT INTO format (version, compatible) VALUES ({VERSION}, {VERSION})")
        _make_index(link)
        return True


def _make_index(link: psycopg.Connection[Any]) -> None:
    """Make the tables that only a server has, of skills, the search index and vectors, if they are missing."""
    has_index, has_vectors, extension = link.execute(_SQL["has"]).fetchone() or (False, False, None)
    if not has_index:
        link.execute("SET LOCAL search_path = herma;" + schema(_SQL["skill_files"]))
        link.execute(_SQL["index_base"] + schema(queries("index.postgres", "postgres")["tables"]))
    if extension and not has_vectors:
        named = queries("index.pgvector", "postgres")
        graphs = [named["graph"].replace("{dimension}", str(numbers)) for numbers in GRAPHS]
        link.execute(f"SET LOCAL search_path = herma_index, herma, {extension};" + schema(named["tables"]))
        link.execute("\n".join(graphs))
    link.execute("SET LOCAL search_path = herma")


def migrate(url: str, *, version: int = VERSION, folder: Path = MIGRATIONS) -> list[int]:
    """Apply the scripts up to `version`, each in one transaction; return the formats that were reached.

    A script only adds: columns of the previous release stay until the release after the next. One that cannot
    begins with `-- compatible: N`, the oldest format whose release can use what it leaves.
    """
    reached: list[int] = []
    while True:
        with _owner(url) as link:
            link.execute("SET LOCAL search_path = herma")
            found = link.execute("SELECT version FROM format FOR UPDATE").fetchone()
            if found is None:
                raise StoreError("There are no tables of Herma yet.", hint="Run: herma db migrate")
            _make_index(link)
            due = [(number, script) for number, script in migrations(folder) if found[0] < number <= version]
            if not due:
                return reached
            number, script = due[0]
            text = script.read_text(encoding="utf-8")
            oldest = re.match(r"-- compatible: (\d+)", text)
            tables = [row[0] for row in link.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'herma'")]
            guarded = [table for table in tables if table != "format"]
            for state in ("NO FORCE", "FORCE"):  # the script changes the rows of every tenant
                if state == "FORCE":
                    link.execute(schema(text))
                for table in guarded:
                    link.execute(f"ALTER TABLE {table} {state} ROW LEVEL SECURITY")
            link.execute("UPDATE format SET version = $1", [str(number)])
            if oldest:
                link.execute("UPDATE format SET compatible = $1", [oldest[1]])
            reached.append(number)


def status(url: str) -> dict[str, Any]:
    """Return the server at an address and the format of the tables there."""
    with _owner(url) as link:
        server = (link.execute("SHOW server_version").fetchone() or ("",))[0]
        ours = link.execute("SELECT to_regclass('herma.format')").fetchone() != (None,)
        found = link.execute("SELECT version, compatible FROM herma.format").fetchone() if ours else None
        size = (link.execute("SELECT pg_database_size(current_database())").fetchone() or (0,))[0]
        indexed, has_vectors, extension = link.execute(_SQL["has"]).fetchone() or (False, False, None)
        ((number, bypasses),) = link.execute(
            "SELECT current_setting('server_version_num'), rolsuper OR rolbypassrls FROM pg_roles "
            "WHERE rolname = current_user"
        ).fetchall()
    version, compatible = found or (0, 0)
    trouble, remedy = _trouble(int(number), bypasses, version, compatible, indexed) or ("", "")
    return {
        "url": shown(url),
        "server": server.split()[0],
        "format": version or None,
        "needed": VERSION,
        "bytes": size,
        "pgvector": extension is not None,
        "vectors": "server" if has_vectors else "host",
        "share_vectors": "" if has_vectors else "herma db migrate" if extension else SHARE_VECTORS,
        "trouble": trouble,
        "remedy": remedy,
    }


def _trouble(server: int, bypasses: bool, version: int, compatible: int, indexed: bool) -> tuple[str, str] | None:
    """Return why Herma cannot work there, and the command that helps; None if it can."""
    if server < OLDEST_SERVER * 10_000:
        return (
            f"This is PostgreSQL {server // 10_000}; Herma needs {OLDEST_SERVER} or newer.",
            "an upgrade of the server",
        )
    if bypasses:
        sentence = "The role is a superuser, or bypasses row-level security: it would read every tenant's memory."
        return sentence, "CREATE ROLE herma LOGIN PASSWORD '…'; CREATE DATABASE herma OWNER herma;"
    if not version:
        return "There are no tables of Herma yet.", "herma db migrate"
    if compatible > VERSION:
        return f"The tables have format {version}; this Herma knows {VERSION}.", install_command()
    if version < VERSION:
        return f"The tables have format {version}; this Herma needs {VERSION}.", "herma db migrate"
    if not indexed:
        return "The tables of the search index are missing.", "herma db migrate"
    return None


def queries_text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


@contextmanager
def _owner(url: str) -> Iterator[psycopg.Connection[Any]]:
    """One transaction, alone among those that change the schema."""
    with translating():
        try:
            link = psycopg.connect(url, cursor_factory=psycopg.RawCursor, application_name="herma db")
        except psycopg.Error as exc:
            raise StoreError(f"Cannot connect to {shown(url)}: {str(exc).strip()}", hint="Check store.url.") from exc
        with link:
            key = str(lock_key("", "schema"))
            link.execute("SELECT pg_advisory_xact_lock($1), set_config('herma.tenant', '', TRUE)", [key])
            yield link
