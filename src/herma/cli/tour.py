"""`herma tour`: the product's cycle on a temporary home. Every step is a real call, and its real result is checked."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import click

from herma.cli import output
from herma.cli.frame import Context, HermaCommand, pass_context
from herma.cli.person import AGENT_MARKERS
from herma.cli.tour_guide import SHOWN_HOME, Facts, Guide, Surprise, opened
from herma.cli.tour_steps import STEPS
from herma.config import resolve_home
from herma.errors import ConfigError, StoreError

NEXT = 'memory add "something your agent should never forget"'


def _environment(home: Path) -> dict[str, str]:
    """The environment without anything that would make the tour differ from one place to another."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("HERMA_", "HERMES_")) and name not in AGENT_MARKERS
    }
    same_everywhere = {"HERMA_EMBEDDING_MODEL": "none"}  # what is near in meaning depends on the models installed here
    return kept | same_everywhere | {"HERMA_HOME": str(home), "PYTHONIOENCODING": "utf-8", "NO_COLOR": "1"}


def _hermes_line(context: Context) -> str:
    """One line for people who already have a Hermes home; it may be the one that Herma uses, too."""
    named = os.environ.get("HERMES_HOME")
    # A folder that may not be looked into, that is none, or nobody's folder is known.
    with suppress(OSError, RuntimeError, ConfigError):
        ours = resolve_home(context.home, context.profile)
        home = Path(named) if named else Path.home() / ".hermes"
        home = ours if (ours / "state.db").is_file() else home
        kept = (home / "state.db").is_file()
        if kept or (home / "memories").is_dir():
            command = f"herma memory list --home {shlex.quote(str(home))}"
            talks = "; its conversations (state.db) are never touched." if kept else ""
            return f"You have a Hermes home; its MEMORY.md and USER.md can be used as they are: {command}{talks}"
    return ""


@click.command(cls=HermaCommand)
@click.option("--keep", is_flag=True, help="Do not delete the temporary home afterwards.")
@pass_context
def tour(context: Context, keep: bool) -> None:
    """See the whole cycle in a few seconds, on a temporary home.

    Nothing of yours is read or changed, and no key is needed. Every call is real; if a result is not what the tour
    says, it stops with an error.

    \b
    Examples:
      herma tour
      herma tour --keep
      herma tour --json
    """
    try:
        home = Path(tempfile.mkdtemp(prefix="herma-tour-")).resolve()
    except OSError as exc:
        raise StoreError(f"No temporary folder can be made: {exc.strerror}.", hint="Set TMPDIR to another.") from exc
    environ = _environment(home)
    try:
        with opened(home, environ) as h:
            steps = _walk(Guide(context, home, environ, h))
    finally:
        if not keep:
            shutil.rmtree(home, ignore_errors=True)
    hermes, turn = _hermes_line(context), f"Your turn: {program()} {NEXT}"
    if context.json:
        value = {"ok": True, "home": home, "kept": keep, "steps": steps, "hermes": hermes or None, "next": turn}
        context.print_json(value)
    context.line()
    context.line("That is the cycle: learn, remember, refuse, ask, record, undo, find again, do better.")
    context.line(f"The tour's home is kept: {home}" if keep else "The tour's home is deleted again.")
    if hermes:
        context.line(hermes)
    context.line(turn)


def program() -> str:
    """What to type for this program: in an environment that is not on the PATH, where it is."""
    here = Path(sys.argv[0])
    return "herma" if shutil.which("herma") or here.name != "herma" else shlex.quote(str(here))


def _walk(guide: Guide) -> list[Facts]:
    """Every step in turn; a result that is not as told ends the tour."""
    context = guide.context
    context.line(f"A tour of Herma on a temporary home ({SHOWN_HOME} below). Every call is real; so is every answer.")
    told = []
    for number, step in enumerate(STEPS, 1):
        title = (step.__doc__ or step.__name__).strip()
        _heading(context, f"{number}  {title}")
        guide.begin()
        try:
            facts = step(guide)
        except Surprise as exc:
            raise Surprise(f"Step {number} ({title}) is not as told: {exc}.", hint="Please report it.") from None
        told.append({"step": step.__name__, "title": title, "calls": guide.calls, "facts": facts})
    return told


def _heading(context: Context, text: str) -> None:
    context.line()
    if not context.json and output.colours(sys.stdout):
        sys.stdout.write(f"\x1b[1m{text}\x1b[0m\n")
    else:
        context.line(text)
