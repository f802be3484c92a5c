"""Replacing a file when the system does not play along: full disks, single-file mounts, sharing violations."""

from __future__ import annotations

import errno
import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herma import Add, Applied, Herma, HermaWarning, Replace
from herma.errors import StoreError
from herma.store import files as atomic
from herma.store.files import install, prepare, replace_file


def failing(code: int, times: int, real: Callable[..., None]) -> tuple[Callable[..., None], list[int]]:
    """A system call that fails so many times and then works."""
    calls: list[int] = []

    def call(*args: object) -> None:
        calls.append(1)
        if len(calls) <= times:
            raise OSError(code, os.strerror(code))
        real(*args)

    return call, calls


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_a_replaced_file_keeps_its_mode_and_a_new_one_is_private(tmp_path: Path) -> None:
    path = tmp_path / "f"
    replace_file(path, b"one")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    path.chmod(0o640)
    replace_file(path, b"two")
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == {"f"}


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root may give files away")
def test_root_leaves_a_file_to_its_owner(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"one")
    os.chown(path, 1234, 1235)
    replace_file(path, b"two")
    assert (path.stat().st_uid, path.stat().st_gid) == (1234, 1235)


def test_a_planted_link_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".f.tmp").symlink_to(victim)
    with pytest.raises(StoreError):
        replace_file(tmp_path / "f", b"data")
    assert victim.read_text() == "precious"


def test_files_are_opened_without_rewriting_line_ends(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows has a flag for it; here it is a bit that no other flag uses."""
    binary, real, opened = 1 << 40, os.open, {}

    def recording(path: Path | str, flags: int, mode: int = 0o777) -> int:
        opened[Path(path).name] = flags
        return real(path, flags & ~binary, mode)

    with Herma.open(home) as h:
        monkeypatch.setattr(os, "O_BINARY", binary, raising=False)
        monkeypatch.setattr(os, "open", recording)
        atomic.flags.cache_clear()
        assert h.memory.apply("memory", Add("one\ntwo")).ok
        assert h.memory.entries("memory") == ["one\ntwo"]
    atomic.flags.cache_clear()
    assert opened["MEMORY.md"] & opened[".MEMORY.md.tmp"] & binary


def test_a_new_folder_is_made_for_good(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[Path] = []
    real = atomic.sync_folder

    def recording(folder: Path) -> None:
        synced.append(folder)
        real(folder)

    monkeypatch.setattr(atomic, "sync_folder", recording)
    atomic.make_folder(home / "a" / "b")
    assert set(synced) == {home, home / "a"}
    synced.clear()
    atomic.make_folder(home / "a" / "b")
    assert synced == []


@pytest.mark.parametrize(("system", "failures", "calls"), [("nt", 6, 7), ("nt", 10**6, 40), (os.name, 10**6, 1)])
def test_only_on_windows_a_sharing_violation_is_waited_out_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: str, failures: int, calls: int
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    temporary = prepare(path, b"data")
    rename, tried = failing(errno.EACCES, failures, os.replace)
    with monkeypatch.context() as patch:
        patch.setattr(os, "name", system)
        patch.setattr(time, "sleep", lambda _: None)
        if failures < calls:
            install(temporary, path, b"data", rename=rename)
        else:
            with pytest.raises(StoreError, match="could not be replaced"):
                install(temporary, path, b"data", rename=rename)
    assert path.read_bytes() == (b"data" if failures < calls else b"old")
    assert len(tried) == calls


@pytest.fixture
def mounted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that cannot be renamed over, as when each is a mount of its own."""
    real = atomic.install

    def refuse(*_: object) -> None:
        raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))

    def busy(temporary: Path, path: Path, data: bytes) -> None:
        real(temporary, path, data, rename=refuse)

    monkeypatch.setattr("herma.memory.files.install", busy)


@pytest.fixture
def path(home: Path) -> Path:
    (home / "memories").mkdir()
    path = home / "memories" / "MEMORY.md"
    path.write_text("one")
    return path


@pytest.mark.usefixtures("mounted")
def test_a_file_mounted_alone_is_overwritten_in_place(home: Path, path: Path) -> None:
    inode = path.stat().st_ino
    with Herma.open(home) as h:
        with pytest.warns(HermaWarning, match="mounted"):
            assert h.memory.apply("memory", Add("two")).ok
        assert path.read_text() == "one\n§\ntwo"
        assert path.stat().st_ino == inode
        assert len(h.memory.history()) == 2
    assert names(path.parent) == {"MEMORY.md", "MEMORY.md.lock"}


@pytest.mark.parametrize("kept", [0, 5, 9])
@pytest.mark.usefixtures("mounted")
def test_an_overwrite_that_was_cut_off_is_finished_by_the_next(
    home: Path, path: Path, kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut within a letter of several bytes too."""
    whole = "oné\n§\ntwo".encode()
    path.write_text("oné")

    class Killed(BaseException):
        pass

    def cut(target: Path, data: bytes) -> None:
        assert data == whole
        target.write_bytes(data[:kept])
        raise Killed

    with Herma.open(home) as h:
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_overwrite", cut)
            patch.setattr("herma.memory.files.MemoryFiles._settle_open", lambda *_, **__: None)  # the dead do nothing
            with pytest.warns(HermaWarning), pytest.raises(Killed):
                h.memory.apply("memory", Add("two"))
        assert path.read_bytes() == whole[:kept]
        with pytest.warns(HermaWarning):
            assert [change.action for change in h.memory.history()] == ["add", "found"]
        assert path.read_bytes() == whole
        with pytest.warns(HermaWarning):
            assert h.memory.undo().ok
        assert path.read_text() == "oné"


@pytest.mark.usefixtures("mounted")
def test_an_overwrite_that_fails_puts_back_what_was_there(
    home: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, failures = atomic._write, [path]

    def full(target: Path, data: bytes, like: os.stat_result | None) -> None:
        if target in failures:
            failures.remove(target)
            target.write_bytes(data[:5])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(target, data, like)

    with Herma.open(home) as h:
        with monkeypatch.context() as patch:
            patch.setattr(atomic, "_write", full)
            with pytest.warns(HermaWarning), pytest.raises(StoreError, match="No space"):
                h.memory.apply("memory", Add("two"))
        assert path.read_text() == "one"
        assert [change.action for change in h.memory.history()] == ["found"]
    assert names(path.parent) == {"MEMORY.md", "MEMORY.md.lock"}


@pytest.mark.parametrize(
    ("owner", "call", "code", "says"),
    [
        *((os, call, errno.ENOSPC, "No space left on device") for call in ("write", "fsync", "fchmod", "open")),
        (atomic, "_rename", errno.EROFS, "Read-only"),
        (atomic, "sync_folder", errno.EIO, "was replaced, but"),
    ],
)
def test_a_disk_that_fails_is_an_error_that_says_whether_anything_changed(
    home: Path, path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, code: int, says: str
) -> None:
    replaced = call == "sync_folder"
    with Herma.open(home) as h:
        assert h.memory.apply("memory", Add("two")).ok
        path.chmod(0o666)  # more than the umask allows a new file: it must be given explicitly
        before, real = path.read_bytes(), getattr(owner, call)

        def fail(first: object, *rest: object) -> object:
            if call == "open" and not str(first).endswith(".tmp"):
                return real(first, *rest)
            raise OSError(code, os.strerror(code))

        with monkeypatch.context() as patch:
            patch.setattr(owner, call, fail)
            with pytest.raises(StoreError, match=says) as caught:
                h.memory.apply("memory", Add("three"))
            assert caught.value.hint
            assert isinstance(caught.value.__cause__, OSError)
            assert says in h.tools.call("memory", {"action": "add", "content": "four"})
        assert (path.read_bytes() == before) is not replaced
        assert len(h.memory.history()) == (4 if replaced else 2)
        assert h.memory.apply("memory", Replace("one", "five")).ok
    assert names(path.parent) == {"MEMORY.md", "MEMORY.md.lock"}


def test_an_editor_that_saves_at_the_very_moment_is_not_overwritten(
    home: Path, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It saves after our decision, before our rename: its text is kept and ours is added to it."""
    saves = ["one, edited", "one, edited again"]
    from herma.memory.files import MemoryRows

    real = MemoryRows.intend

    def with_editor(self: MemoryRows, *args: object, **kwargs: object) -> int:
        done = real(self, *args, **kwargs)  # type: ignore[arg-type]
        if saves and not kwargs.get("done"):
            path.write_text(saves.pop(0))
        return done

    monkeypatch.setattr(MemoryRows, "intend", with_editor)
    with Herma.open(home) as h:
        outcome = h.memory.apply("memory", Add("two"))
        assert isinstance(outcome, Applied)
        assert path.read_text() == "one, edited again\n§\ntwo"
        actions = [change.action for change in h.memory.history()]
        assert actions == ["add", "edited by hand", "edited by hand", "found"]
    assert names(path.parent) == {"MEMORY.md", "MEMORY.md.lock"}
