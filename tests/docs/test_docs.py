"""The docs fail when they are wrong: links lead somewhere, examples run, reference pages are what the code says."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from herma.cli.context import HermaCommand
from herma.cli.main import HIDDEN, cli
from herma.connect.clients import CLIENTS

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
FOLDERS = ("connect", "frameworks")
"""Folders of `how-to` with a page for each client and each framework."""
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    return [body for kind, body in _BLOCK.findall(page.read_text("utf-8")) if kind == language]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page: Path) -> list[str]:
    return _LINK.findall(page.read_text("utf-8"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path) if path else page
        assert target.exists(), f"{name_of(page)} links to {link}"
        if anchor:
            assert anchor in anchors(target), f"{name_of(page)} links to {link}"


def test_every_page_is_reachable_from_the_index() -> None:
    found, new = set(), {ROOT / "docs" / "README.md"}
    while new:
        found |= new
        linked = {(page.parent / link.partition("#")[0]).resolve() for page in new for link in links(page)}
        new = linked & set(PAGES) - found
    assert [name_of(page) for page in PAGES if page.is_relative_to(ROOT / "docs") and page not in found] == []
    decisions = ROOT / "docs" / "decisions"
    listed = set(links(decisions / "index.md"))
    assert listed == {page.name for page in decisions.glob("0*.md")}, "docs/decisions/index.md lists every decision"


def test_every_client_and_framework_has_a_page() -> None:
    pages = {folder: {page.stem for page in (ROOT / "docs/how-to" / folder).glob("*.md")} for folder in FOLDERS}
    assert pages["connect"] == {client.name for client in CLIENTS}
    modules = {path.stem.replace("_", "-") for path in (ROOT / "src/herma/integrations").glob("[a-z]*.py")}
    assert pages["frameworks"] == modules - {"items"}


SHORT = [page for page in PAGES if page.parent.name != "reference" and page.name != "CHANGELOG.md"]


@pytest.mark.parametrize("page", SHORT, ids=name_of)
def test_a_page_fits_two_screens(page: Path) -> None:
    lines = page.read_text("utf-8").splitlines()
    assert len(lines) <= 112
    prose = re.sub(r"^```.*?^```$", "", "\n".join(lines), flags=re.MULTILINE | re.DOTALL).splitlines()
    too_long = [line for line in prose if len(line) > 120 and not line.startswith(("|", "!"))]
    assert too_long == [], "wrap prose at 120 characters"


def test_reference_pages_are_what_the_code_says() -> None:
    check = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference.py", "--check"], capture_output=True, text=True, check=False
    )
    assert check.returncode == 0, check.stdout + check.stderr


PYTHON = [(page, number, code) for page in PAGES for number, code in enumerate(blocks(page, "python"), 1)]


@pytest.mark.parametrize(("page", "number", "code"), PYTHON, ids=[f"{name_of(p)}-{n}" for p, n, _ in PYTHON])
def test_python_examples_run(page: Path, number: int, code: str, home: Path) -> None:
    """An example that opens a Herma is run as it stands; one that goes on from another gets what that one had."""
    source = code
    if "Herma.open" not in code:
        source = "from herma import *\nh = Herma.open()\nsession = h.session()\npage_text = 'A page.'\n" + code
    run = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False, cwd=home)
    assert run.returncode == 0, f"{name_of(page)}, example {number}:\n{run.stderr}"


def commands(page: Path) -> list[str]:
    """The commands of a page: in blocks without a language, and behind the prompt of a terminal."""
    lines = [line for kind in ("", "console") for block in blocks(page, kind) for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in lines if line.startswith(("herma ", "$ herma "))]


FIRST_PAGES = [ROOT / "README.md", ROOT / "README.zh.md", ROOT / "docs/quickstart.md", ROOT / "docs/quickstart.zh.md"]


@pytest.mark.parametrize("page", FIRST_PAGES, ids=name_of)
def test_commands_of_the_first_pages_run_in_order(page: Path, home: Path) -> None:
    program = Path(sys.executable).with_name("herma")
    assert commands(page)
    for command in commands(page):
        run = subprocess.run(
            [program, *shlex.split(command, comments=True)[1:]], capture_output=True, text=True, check=False, cwd=home
        )
        assert run.returncode == 0, f"{command}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_command_named_exists(page: Path) -> None:
    """`herma x y` in running text or a block is a command that has a help page."""
    text = page.read_text("utf-8")
    known = set(
        re.findall(r"^#+ (herma(?: [a-z-]+)*)$", (ROOT / "docs/reference/commands.md").read_text("utf-8"), re.MULTILINE)
    )
    known |= {f"herma {name}" for name in HIDDEN}
    for named in re.findall(r"(?:^|`)(?:HERMA_HOME=\S+ )?(herma(?: [a-z]+)+)", text, re.MULTILINE):
        words = named.split()
        assert any(" ".join(words[:n]) in known for n in range(len(words), 1, -1)), f"{name_of(page)}: {named}"


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_every_option_named_exists(page: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command line is taken in whole, without being carried out. The ids and files in it are examples."""
    monkeypatch.setattr(HermaCommand, "invoke", lambda *_: None)
    for command in commands(page):
        words = shlex.split(command, comments=True)[1:]
        done = CliRunner().invoke(cli, ["--home", str(home), *words])
        assert not re.search("has no (command|option)|unexpected extra argument", done.stderr), (
            f"{command}\n{done.stderr}"
        )
