"""Locks where the platform has others, has none, or somebody else is holding them."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import types
from functools import partial
from pathlib import Path

import pytest

from herma import Add, Herma, HermaWarning
from herma.errors import StoreBusy, StoreError
from herma.store import files as locks
from herma.store.files import Locking, exclusive, platform_locking, windows_locking

from .crashing import together


@pytest.fixture(autouse=True)
def nobody_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(locks, "_warned", set())


def without(code: int) -> Locking:
    """A file system that answers every attempt with this error."""

    def take(handle: int) -> None:
        raise OSError(code, os.strerror(code))

    return Locking(take, release=lambda handle: pytest.fail("released what was never taken"))


def windows() -> tuple[types.ModuleType, list[tuple[int, int, int]]]:
    """A stand-in for the module that exists on Windows only: one lock per file, and what was asked of it."""
    asked: list[tuple[int, int, int]] = []
    locked: dict[tuple[int, int], int] = {}
    module = types.ModuleType("msvcrt")

    def locking(handle: int, mode: int, count: int) -> None:
        status = os.fstat(handle)
        key = (status.st_dev, status.st_ino)
        asked.append((os.lseek(handle, 0, os.SEEK_CUR), mode, count))
        if mode == 0:
            if locked.get(key) != handle:
                raise OSError(errno.EACCES, "not yours")
            del locked[key]
        elif key in locked:
            raise OSError(errno.EACCES, "Permission denied")
        else:
            locked[key] = handle

    module.__dict__.update(LK_UNLCK=0, LK_LOCK=1, LK_NBLCK=2, locking=locking)
    return module, asked


@pytest.mark.parametrize("code", [errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EINVAL, 0])
def test_a_place_without_locks_is_said_once_and_written_all_the_same(
    home: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A file system that answers with this error, or a platform that has none. Threads take turns all the same."""
    monkeypatch.setattr(locks, "platform_locking", lambda: without(code) if code else None)
    with Herma.open(home) as h:

        def work(me: int) -> None:
            for number in range(10):
                assert h.memory.apply("memory", Add(f"<{me}.{number}>")).ok

        with pytest.warns(HermaWarning, match="No file locks"):
            assert h.memory.apply("memory", Add("one")).ok
        assert h.memory.apply("memory", Add("two")).ok, "a second warning would be an error here"
        if not code:
            assert together(*(partial(work, me) for me in range(6))) == []
        assert h.memory.entries("memory")[:2] == ["one", "two"]
        assert len(h.memory.history()) == (2 if code else 62)
    assert [path.name for path in (home / "memories").glob(".*")] == []


def test_windows_locks_one_byte_at_the_start_and_lets_go_of_it(tmp_path: Path) -> None:
    module, asked = windows()
    locking = windows_locking(module)
    with exclusive(tmp_path / "x.lock", 0.0, locking) as alone:
        assert alone
        with pytest.raises(StoreBusy), exclusive(tmp_path / "x.lock", 0.01, locking):
            pytest.fail("two held it")
    with exclusive(tmp_path / "x.lock", 0.0, locking):
        pass
    assert asked[0] == (0, 2, 1)
    assert all(position == 0 and count == 1 for position, _, count in asked)
    assert [mode for _, mode, _ in asked].count(0) == 2


def test_where_fcntl_is_missing_msvcrt_is_used(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    module, asked = windows()
    monkeypatch.setitem(sys.modules, "fcntl", None)
    monkeypatch.setitem(sys.modules, "msvcrt", module)
    with Herma.open(home) as h:
        assert h.memory.apply("memory", Add("one")).ok
    assert asked
    monkeypatch.setitem(sys.modules, "msvcrt", None)
    assert platform_locking() is None


def test_a_lock_that_breaks_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="cannot be locked"), exclusive(tmp_path / "x", 1.0, without(errno.EIO)):
        pytest.fail("held a broken lock")


def test_a_lock_that_another_process_holds_is_waited_for_and_not_for_ever(home: Path) -> None:
    with Herma.open(home, flags={"memory.lock_timeout": 0.05}) as h:
        h.memory.apply("memory", Add("one"))
        code = (
            "import fcntl, sys\n"
            "with open(sys.argv[1], 'a') as file:\n"
            "    fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); sys.stdin.read()"
        )
        lock = str(home / "memories" / "MEMORY.md.lock")
        holder = subprocess.Popen(
            [sys.executable, "-c", code, lock], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        with holder:
            assert holder.stdout
            assert holder.stdout.readline() == "held\n"
            with pytest.raises(StoreBusy, match="held") as caught:
                h.memory.apply("memory", Add("two"))
            assert caught.value.hint
            (wrong,) = together(lambda: h.memory.apply("memory", Add("x")))
            assert isinstance(wrong, StoreBusy), "a thread, too"
            assert "held" in h.tools.call("memory", {"action": "add", "content": "two"})
            assert h.memory.apply("user", Add("the other file is free")).ok
            assert h.session().snapshot.text.count("one") == 1, "reading takes no lock"
            assert len(h.memory.history()) == 2
            holder.communicate("")
        assert h.memory.apply("memory", Add("two")).ok
