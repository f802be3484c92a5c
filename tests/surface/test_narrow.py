"""Every list fits a terminal of 80 and of 60 columns: whole dates and ids, no line too long."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from rich.cells import cell_len
from tests.homes import filled, herma

from herma import Herma, Scope

if TYPE_CHECKING:
    from pathlib import Path

LISTS = [
    "log",
    "log m1",
    "inbox",
    "memory list",
    "memory status",
    "sessions list",
    "sessions stats",
    "skills list",
    "episodes list",
    "search tea",
    "config show",
    "doctor",
    "backup list",
    "cost",
    "models list",
    "providers list",
    "context show",
    "index status",
]
_CUT_DATE = re.compile(r"(?<![\d:-])\d{4}-\d{2}-?\n|\d{2}-\d{2} \d{1,2}:?\n|\d{4}-\d{2}-\d{2} \d{1,2}:?\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("narrow") / "home"
    filled(made)
    with Herma.open(home=made) as h:
        long = "The deployment of the shop waits for the nightly export, which takes about forty minutes on Mondays."
        h.memory.add("memory", long, scope=Scope(project="a-project-with-a-long-name"))
        h.memory.replace(
            "memory", "nightly", long.replace("Mondays", "Tuesdays"), scope=Scope(project="a-project-with-a-long-name")
        )
    herma(made, "backup", "create", "--name", "before-the-move")
    return made


@pytest.mark.parametrize("width", [80, 60])
@pytest.mark.parametrize("words", LISTS)
def test_a_list_fits(home: Path, monkeypatch: pytest.MonkeyPatch, words: str, width: int) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    done = herma(home, *words.split())
    assert done.code in (0, 1), done.err
    assert done.out
    for line in done.out.splitlines():
        pasted = re.search(r"(^|: |`)\s*(herma |_HERMA|bash |zsh |fish )", line) or "/" in line
        assert cell_len(line) <= width or pasted, line
    assert not _CUT_DATE.search(done.out), "a date is cut"
