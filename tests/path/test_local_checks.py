"""What is looked up on this machine: only what can be told for certain, and nothing is done for it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from herma.memory import tidy as local_checks
from herma.memory.tidy import LocalChecks


def test_a_path_is_there_or_not(tmp_path: Path, user_folder: Path) -> None:
    (tmp_path / "there.txt").write_text("")
    (user_folder / "notes").mkdir()
    checks = LocalChecks()
    assert checks.exists(str(tmp_path / "there.txt")) is True
    assert checks.exists(str(tmp_path / "gone.txt")) is False
    assert checks.exists(str(tmp_path / "gone" / "deep" / "x.txt")) is False
    assert checks.exists("~/notes") is True


@pytest.mark.parametrize(
    "path",
    [
        "/nowhere-of-this-kind/a/b.txt",  # another machine's, most likely
        "//server/share/file.txt",
        "\\\\server\\share\\file.txt",
        "C:\\Users\\ada\\file.txt",
        "src/app.py",  # of which project?
        "x\0y/z",
        "a" * 2000 + "/b",
    ],
)
def test_what_cannot_be_told_is_not_told(path: str) -> None:
    if os.name == "nt":
        return
    assert LocalChecks().exists(path) is None


def test_a_broken_link_is_there(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    assert LocalChecks().exists(str(tmp_path / "link")) is True


def test_paths_of_a_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("")
    checks = LocalChecks(str(tmp_path))
    assert checks.exists("src/app.py") is True
    assert checks.exists("src/gone.py") is False
    assert checks.exists("read/write/execute") is None, "no folder of the project is called so"
    assert checks.exists("src/../../etc/passwd") is None
    monkeypatch.chdir(tmp_path.parent)
    assert LocalChecks(tmp_path.name).exists("src/gone.py") is None, "a name is no folder"


def test_network_mounts_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mounted(_: str, path: object) -> str:
        return "nfs4" if str(path).startswith(str(tmp_path / "share")) else "ext4"

    def touched(path: object) -> None:
        raise AssertionError(f"{path} was touched")

    monkeypatch.setattr(local_checks, "file_system", mounted)
    monkeypatch.setattr("herma.memory.tidy.os.lstat", touched)
    assert LocalChecks().exists(str(tmp_path / "share" / "x.txt")) is None


def test_versions_that_a_project_names(tmp_path: Path) -> None:
    checks = LocalChecks(str(tmp_path))
    assert checks.version("python") is None
    for name, text, tool, version in (
        (".python-version", b"3.12.4\n", "python", "3.12.4"),
        ("go.mod", b"module x\n\ngo 1.22\n", "go", "1.22"),
        (".node-version", b"v20.11.1", "node", "20.11.1"),
    ):
        (tmp_path / name).write_bytes(text)
        assert checks.version(tool) == (version, name)
    (tmp_path / ".nvmrc").write_bytes(b"\xff\xfe lts/*")
    assert checks.version("node") == ("20.11.1", ".node-version")
    assert LocalChecks().version("go") is None
    (tmp_path / ".ruby-version").mkdir()
    assert checks.version("ruby") is None
