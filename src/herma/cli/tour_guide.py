"""What the steps of `herma tour` are taken with: a temporary home, and ways to tell, call and expect."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any

from herma.cli.frame import Context
from herma.errors import HermaError

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.session import Session

Facts = dict[str, Any]
SHOWN_HOME = "~/tour"
"""What the temporary home is called in the output."""
WIDTH = 100


class Surprise(HermaError):
    """A step's real result is not what the tour says it is."""


@dataclass
class Guide:
    """What a step works with: an opened temporary home, and ways to tell, call and expect."""

    context: Context
    home: Path
    environ: dict[str, str]
    h: Herma
    calls: list[Facts] = field(default_factory=list)
    _after_call: bool = False

    def begin(self) -> None:
        """A new step starts."""
        self.calls, self._after_call = [], False

    def tell(self, text: str) -> None:
        """Narrate, in short plain sentences."""
        if self._after_call:
            self.context.line()
        for line in text.strip().splitlines():
            self.context.line(f"  {line.strip()}")
        self._after_call = False

    def show(self, call: str, result: str) -> None:
        """Print a call and its real result."""
        self.calls.append({"call": call, "result": result})
        self.context.line()
        for line in wrap(call, WIDTH, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False):
            self.context.line(f"    {line}")
        for line in result.rstrip().splitlines():
            indent = " " * (len(line) - len(line.lstrip()))
            for piece in wrap(line.lstrip(), WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [""]:
                self.context.line(f"    │ {piece}".rstrip())
        self._after_call = True

    def tool(self, session: Session, **arguments: str) -> Facts:
        """Call the memory tool as a model does."""
        answer: Facts = json.loads(session.call_tool("memory", arguments))
        self.show(f"session.call_tool('memory', {json.dumps(arguments)})", json.dumps(answer, ensure_ascii=False))
        return answer

    def type(self, *words: str, code: int = 0, **variables: str) -> str:
        """Run a command line as a person would, in a process of its own; `code` is the exit code it should have."""
        command = [sys.executable, "-m", "herma.cli.main", *words]
        env = self.environ | variables
        done = subprocess.run(command, env=env, cwd=self.home, capture_output=True, encoding="utf-8", check=False)
        typed = [f"{name}={value}" for name, value in variables.items()]
        typed += ["herma", *(word if word.replace("-", "").isalnum() else f'"{word}"' for word in words)]
        result = (done.stdout + done.stderr).replace(str(self.home), SHOWN_HOME)
        self.show(f"$ {' '.join(typed)}", result)
        self.expect(done.returncode == code, f"`{' '.join(typed)}` ended with code {done.returncode}, not {code}")
        return result

    def expect(self, holds: bool, otherwise: str) -> None:
        if not holds:
            raise Surprise(otherwise)

    @property
    def file(self) -> Path:
        return self.home / "memories" / "MEMORY.md"


def opened(home: Path, environ: dict[str, str]) -> Herma:
    from herma.app import Herma
    from herma.config import load

    return Herma(load(home=home, environ=environ, cwd=home))
