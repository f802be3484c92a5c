"""What every command shares: context, options, groups, the person at the terminal."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from herma.cli import output
from herma.errors import HermaError, UsageError
from herma.types import Author, Origin, Who

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractContextManager

    from herma.app import Herma
    from herma.config import Settings


# ---------- cli.frame
#
# What every command is built on: the options they all share, and the `Context` they are handed.
#
# A command module declares its commands with `HermaCommand` and `HermaGroup`, takes the context by `@pass_context`,
# and prints through it. It catches nothing: `main` turns errors into output.


class Context:
    """What a command may use: settings, the opened memory, and ways to print.

    What is for people (`line`, `table`) is silent with `--json`, so that stdout is one JSON value and nothing else.
    """

    def __init__(self) -> None:
        self.json = False
        self.debug = False
        self.yes = False
        self.home: str | None = None
        self.profile: str | None = None
        self.flags: dict[str, object] = {}
        self._settings: Settings | None = None
        self._warned: set[str] = set()

    def settings(self, *, warn: bool = True) -> Settings:
        """The configuration, read once. What looks like a mistake in it is said on stderr, once."""
        if self._settings is None:
            from herma.config import load

            self._settings = load(home=self.home, profile=self.profile, flags=self.flags)
        if warn:
            for problem in self._settings.problems:
                if problem.pressing:
                    self.warn(str(problem))
        return self._settings

    def open(self) -> Herma:
        """The opened memory, to be used in a `with` block."""
        from herma.app import Herma

        self.settings()
        return Herma.open(home=self.home, profile=self.profile, flags=self.flags)

    def command(self, *words: str) -> str:
        """A command line to type next, on the same home; fit to be pasted."""
        import shlex

        return shlex.join(["herma", *words, *self._same_home])

    def here(self, command: str) -> str:
        """A command that the library named, which knows nothing of `--home`, on the same home. Other text stays."""
        import re

        return self.command(*command.split()[1:]) if re.fullmatch(r"herma(?: [\w.-]+)+", command) else command

    @property
    def _same_home(self) -> list[str]:
        chosen = (("--home", self.home), ("--profile", self.profile))
        return [word for name, value in chosen if value for word in (name, value)]

    def print_json(self, value: object) -> None:
        output.write_json(value)

    def line(self, text: str = "") -> None:
        if not self.json:
            output.write(text)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
        if not self.json:
            output.write_table(columns, rows)

    def progress(self, label: str, total: int | None = None) -> AbstractContextManager[output.Report]:
        """`with context.progress("Reading", 10) as report: report(3)`: absolute counts; fits any progress callback."""
        return output.progress(label, total)

    def warn(self, text: str) -> None:
        """Say something on stderr, once."""
        if text not in self._warned:
            self._warned.add(text)
            output.write(f"warning: {text}", sys.stderr)

    def confirm(self, question: str) -> bool:
        """Ask for a yes on the terminal; `--yes` (see `yes_option`) answers beforehand."""
        if self.yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(f"{question} There is no terminal to ask on.", hint="Add --yes to say yes beforehand.")
        sys.stderr.write(f"{output.visible(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def fail(self, sentence: str, hint: str = "") -> NoReturn:
        raise HermaError(sentence, hint=hint)

    def exit(self, code: int) -> NoReturn:
        """End the command with this code when everything has been said already."""
        raise click.exceptions.Exit(code)


pass_context = click.make_pass_decorator(Context, ensure=True)


# ── options that every command has ──────────────────────────────────────────────────────────────────────────────


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Keep what was given on the shared context; not given here leaves what was given further left."""
    if value is not None and value is not False and parameter.name is not None:
        setattr(context.ensure_object(Context), parameter.name, value)


def _shared(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, is_eager=True, callback=_remember, **attributes)


SHARED_OPTIONS: tuple[click.Option, ...] = (
    _shared("--json", is_flag=True, help="Print JSON."),
    _shared("--home", metavar="PATH", help="Folder that everything is kept in."),
    _shared("--profile", metavar="NAME", help="Use the home of this profile."),
    _shared("--debug", is_flag=True, help="Show the traceback of an error."),
)

yes_option = click.option(
    "--yes", is_flag=True, expose_value=False, callback=_remember, help="Do not ask; the answer is yes."
)


class HermaCommand(click.Command):
    """A command that takes the shared options wherever they stand."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *SHARED_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)


class HermaGroup(click.Group):
    """A group of such commands. Without a command it shows its help; a mistyped one gets the nearest."""

    command_class = HermaCommand
    group_class = type

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *SHARED_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing:
            output.write(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args[0] not in known and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"`{ctx.command_path} --help` lists them."
            raise UsageError(f"{ctx.command_path} has no command {args[0]!r}.", hint=hint)
        return super().resolve_command(ctx, args)


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """The command's own options first, then those that every command has."""
    everywhere = (*SHARED_OPTIONS, command.get_help_option(ctx))
    own: list[tuple[str, str]] = []
    shared: list[tuple[str, str]] = []
    for parameter in command.get_params(ctx):
        if isinstance(parameter, click.Argument):
            continue  # the usage line names it, the text above explains it
        record = parameter.get_help_record(ctx)
        if record is not None and isinstance(parameter, click.Option):
            (shared if parameter in everywhere else own).append(record)
    for title, records in (("Options", own), ("Options of every command", shared)):
        if records:
            with formatter.section(title):
                formatter.write_dl(records)


# ---------- cli.person
#
# Who sits at the keyboard: a person, or an agent that started this program.

AGENT_MARKERS = ("HERMA_SESSION", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "AI_AGENT")
"""Variables that agents set for the programs they start."""


def agent_marker() -> str | None:
    """The variable that says an agent started this program, if there is one."""
    return next((name for name in AGENT_MARKERS if os.environ.get(name)), None)


def author() -> Author:
    """Who makes a change: a person at a terminal, or the agent that started this program."""
    if agent_marker() is None:
        return Author()
    return Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=os.environ.get("HERMA_SESSION") or None)


def for_people_only(what: str) -> None:
    """Refuse to go on inside an agent: it must not decide on, or vouch for, what it wrote itself."""
    marker = agent_marker()
    if marker is not None:
        raise UsageError(
            f"{what} belongs to a person's own terminal; this one was started by an agent ({marker} is set).",
            hint="Type the command yourself, in a terminal that no agent started.",
        )
