"""Shared by the tests of the command line: a person who types `herma memory …` at a home of their own."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from tests.homes import Ran

from herma import Add, Author, Herma, Origin, Who
from herma.cli.main import cli

if TYPE_CHECKING:
    from pathlib import Path

    from herma.types import Target

SESSION = "20260101_000000_abcdef01"


@dataclass(frozen=True)
class Person:
    """Types `herma memory …` at one home."""

    home: Path

    def __call__(self, *words: str, stdin: bytes | None = None, env: dict[str, str] | None = None) -> Ran:
        """In this process."""
        result = CliRunner().invoke(cli, ["--home", str(self.home), "memory", *words], input=stdin, env=env)
        return Ran(result.exit_code, result.stdout, result.stderr)

    def process(self, *words: str) -> subprocess.CompletedProcess[str]:
        """In a process of its own, without a terminal."""
        command = [sys.executable, "-m", "herma.cli.main", "memory", *words, "--home", str(self.home)]
        return subprocess.run(command, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, check=False)

    def stage(self, text: str, *, target: Target = "memory") -> int:
        """Let an agent propose what it read on a page; → the number in the inbox."""
        with Herma.open(home=self.home) as h:
            outcome = h.memory.apply(target, Add(text), author=Author(Who.TOOL, Origin.WEB, session=SESSION))
            return int(getattr(outcome, "pending", 0))

    @property
    def file(self) -> Path:
        return self.home / "memories" / "MEMORY.md"


@pytest.fixture
def person(home: Path) -> Person:
    return Person(home)
