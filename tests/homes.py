"""Set up homes, conversations and command lines for tests.

    h = opened(home, server, memory__nudge_interval=2)     open with a fixed clock, no embedder, this model and setting
    talk(session, "hello", "and now?")                     turns of a session
    conversation(h, "hello", "Hi.", "and now?")            a stored session, without the turn's machinery → its id
    call(session, "memory", action="add", …)               run a tool → its answer, parsed
    tool_turn(session, "look", "read", {"path": "a"}, "…") a turn with one tool call
    filled(home)                                           a home with a bit of everything → the ids of its sessions
    skill_text("bake", body="1. Heat.")                    the text of a SKILL.md
    herma(home, "search", "rose").json                     the command line in this process
    process(home, "search", "rose")                        the same in a process of its own
    eventually(lambda: path.exists())                      wait for another process
    matrix(range(30), ordinary=lambda seed: seed < 6)      cases of which the others run with `pytest -m long`
    table(__file__, "cases.tsv", "safe")                   the rows of a table of cases that begin with this word

Tests of a home in `contract/` and `path/` run on SQLite and on PostgreSQL; `@both_engines` does so elsewhere, and
`@of_files` keeps a test to SQLite: it is about the files of a home, or the engine makes no difference to it.
`conftest.py` has the fixtures `home`, `clock`, `h` (an opened home) and `server` (a scripted model).
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from herma import Add, Herma
from herma.cli.main import cli
from herma.testing import FixedClock

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from herma import Session
    from herma.models.embedder import Embedder
    from herma.testing import ScriptedModel

of_files = pytest.mark.of_files
both_engines = pytest.mark.parametrize("store", ["sqlite", "postgresql"], indirect=True)
PROGRAM = (sys.executable, "-m", "herma.cli.main")


def opened(
    home: Path,
    server: ScriptedModel | None = None,
    *,
    clock: Callable[[], float] | None = None,
    embedder: Embedder | None = None,
    **settings: Any,
) -> Herma:
    """Open a home for a `with` block. A setting `review.at_end` is given as `review__at_end=False`."""
    flags: dict[str, Any] = {} if embedder else {"embedding.model": "none"}
    if server is not None:
        flags |= {"model.url": server.url, "model.name": "scripted", "model.retries": 0}
    flags |= {name.replace("__", "."): value for name, value in settings.items()}
    return Herma.open(home, flags=flags, clock=clock or FixedClock(), embedder=embedder)


def talk(session: Session, *texts: Any, reply: Any = "Fine.") -> list[dict[str, Any]]:
    """Say each text in a turn of its own and answer `reply`. → the last request."""
    request: list[dict[str, Any]] = []
    for text in texts:
        request = session.before_model(text)
        session.after_model(reply)
    return request


def tool_turn(
    session: Session, text: str, tool: str, arguments: Mapping[str, Any], result: str, reply: str = "Done."
) -> None:
    """A turn in which the model calls a tool, reads `result` and replies."""
    session.before_model(text)
    session.after_model([*tool_messages(tool, arguments, result), {"role": "assistant", "content": reply}])


def tool_messages(tool: str, arguments: Mapping[str, Any], result: str, number: str = "c1") -> list[dict[str, Any]]:
    """A tool call and its result, as messages."""
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return [
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": number, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": number, "content": result},
    ]


def conversation(h: Herma, *texts: str, source: str = "cli", ended: bool = False, **start: Any) -> str:
    """Store a session in which user and assistant take turns. → its id. `start`: arguments of `transcripts.start`."""
    session = h.transcripts.start(source, **start)
    roles = ("user", "assistant")
    h.transcripts.append(session, [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])
    if ended:
        h.transcripts.end(session)
    return session


def call(where: Session, tool: str, **arguments: Any) -> Any:
    """Run a tool of a session. → its answer, parsed."""
    return json.loads(where.call_tool(tool, arguments))


def eventually(found: Callable[[], Any], seconds: float = 90.0) -> Any:
    """Wait until another process or thread has done something; → what was found."""
    until = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < until, "it did not happen in time"
        time.sleep(0.05)
    return value


def matrix(cases: Iterable[Any], ordinary: Callable[..., bool]) -> list[Any]:
    """Cases for `parametrize`. The ordinary run takes the `ordinary` ones, `pytest -m long` the others."""
    rows = [case if isinstance(case, tuple) else (case,) for case in cases]
    return [pytest.param(*row, marks=() if ordinary(*row) else pytest.mark.long) for row in rows]


def table(test: str, file: str, kind: str) -> list[tuple[str, ...]]:
    """The rows of a table beside a test that begin with `kind`, without that cell; `\\n` stands for a line end."""
    lines = (Path(test).with_name(file)).read_text("utf-8").splitlines()
    plain = lambda cell: re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), cell)  # noqa: E731
    return [tuple(map(plain, line.split("\t")[1:])) for line in lines if line.startswith(f"{kind}\t")]


def skill_text(name: str, description: str = "", body: str = "1. Do it.\n2. Check it.", more: str = "") -> str:
    """The text of a SKILL.md; `more` goes into its front matter."""
    said = description or f"How to {name} properly."
    return f"---\nname: {name}\ndescription: {said}\n{more}---\n\n# {name}\n\n{body}\n"


def filled(home: Path, sessions: int = 3) -> list[str]:
    """Fill a home with memory entries and short sessions, one of them with a tool call. → the ids of the sessions."""
    ids: list[str] = []
    with opened(home) as h:
        h.memory.apply("memory", Add("The project uses pytest with xdist."))
        h.memory.apply("user", Add("Prefers short answers."))
        for number in range(sessions):
            with h.session(title=f"Garden {number}") as s:
                talk(s, f"Water bed {number} with the roses.", reply=f"Bed {number} is watered.")
                if number == 0:
                    tool_turn(s, "Look at the plan.", "read_file", {"path": "plan.md"}, "Tulips in spring.")
            ids.append(s.id)
    return ids


@dataclass(frozen=True)
class Ran:
    """What a command line did: its exit code, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What `--json` printed, parsed."""
        return json.loads(self.out)


def herma(home: Path, *words: str, stdin: str | bytes | None = None, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command in this process, without a terminal."""
    result = CliRunner().invoke(cli, ["--home", str(home), *words], input=stdin, env=env)
    return Ran(result.exit_code, result.stdout, result.stderr)


def process(home: Path, *words: str, stdin: str | None = None) -> Ran:
    """Run a command in a process of its own, without a terminal."""
    command = [*PROGRAM, *words, "--home", str(home)]
    given: dict[str, Any] = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
    done = subprocess.run(command, capture_output=True, encoding="utf-8", check=False, **given)
    return Ran(done.returncode, done.stdout, done.stderr)
