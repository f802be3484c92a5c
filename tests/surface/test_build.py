"""The wheel and the source archive: the same bytes each time, everything in the wheel that is needed, nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from herma.errors import install_command

ROOT = Path(__file__).resolve().parents[2]
KINDS = {".py", ".sql", ".tsv", ".toml", ".svg", ".js", ".css", ".html", ".typed", ".txt", ".pyi"}


def build(folder: Path) -> dict[str, bytes]:
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    env = {**os.environ, "SOURCE_DATE_EPOCH": "1767225600"}
    made = subprocess.run(command, capture_output=True, text=True, check=False, env=env)
    assert made.returncode == 0, made.stdout + made.stderr
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_build_is_reproducible_and_complete(tmp_path: Path) -> None:
    first = build(tmp_path / "first")
    assert first == build(tmp_path / "second")
    (wheel,) = [tmp_path / "first" / name for name in first if name.endswith(".whl")]

    package = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src/herma").rglob("*") if path.is_file()}
    expected = {name for name in package if "__pycache__" not in name}
    assert {Path(name).suffix for name in expected} <= KINDS
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert packed == expected
        archive.extractall(tmp_path / "installed")

    home = tmp_path / "home"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "installed")}
    program = [sys.executable, "-c", "import herma.cli.main as m; print(m.__file__); m.main()", "--home", str(home)]
    for arguments in (["memory", "add", "Tests run with make."], ["memory", "list"]):
        run = subprocess.run([*program, *arguments], capture_output=True, text=True, check=False, env=env)
        assert (run.returncode, run.stdout.startswith(str(tmp_path))) == (0, True), run.stdout + run.stderr
    assert "Tests run with make." in run.stdout


@pytest.mark.parametrize(
    ("source", "manager", "command"),
    [
        ({}, "", f"{sys.executable} -m pip install 'herma[web]'"),
        ({}, "pipx_metadata.json", "pipx install --force 'herma[web]'"),
        ({}, "uv-receipt.toml", "uv tool install --force 'herma[web]'"),
        ({"url": "file:///d/h.whl"}, "pipx_metadata.json", "pipx install --force 'herma[web] @ file:///d/h.whl'"),
        ({"url": "https://x.example/h", "vcs_info": {"vcs": "git"}}, "uv-receipt.toml", "git+https://x.example/h"),
        ({"url": "file:///my%20dir", "dir_info": {"editable": True}}, "", "pip install --editable '/my dir[web]'"),
    ],
)
def test_a_hint_names_the_command_of_this_installation(
    source: dict[str, object], manager: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "herma-0.1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Name: herma\nVersion: 0.1.0\n")
    (about / "direct_url.json").write_text(json.dumps(source))
    if manager:
        (tmp_path / manager).touch()
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.syspath_prepend(tmp_path)
    assert command in install_command("web")
