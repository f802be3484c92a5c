"""Give every command one context: options, the opened home, printing, confirmation and exit codes.

A feature's `cli.py` declares its commands like this (`facts/cli.py` is a complete example):

    @click.group(cls=HermaGroup, order="list show forget")
    def facts() -> None: ...

    @facts.command()
    @click.argument("number", type=int)
    @scope_options                                  # only if the command takes --project and --user
    @with_home                                      # opens the home; use @pass_context if it is not needed
    def show(context: CommandContext, number: int) -> None:
        fact = context.h.facts.find(number)         # context.h is the opened Herma, context.scope the chosen scope
        if fact is None:
            context.fail(f"There is no fact {number}.", hint=context.command("facts", "list"), code="not_found")
        if context.json:
            context.print_json({"ok": True, "fact": encode(fact, omit=["rank"])})   # herma.cli.encode
            return
        context.fields([("fact", fact.text), ("since", when(fact.valid_from))])

- `line`, `fields`, `table` and `heading` print for people; they are silent with `--json`, so that stdout holds one
  JSON value. Text wraps at words. `table(…, drop=("source",))` leaves out columns, in that order, on a narrow
  terminal; `cut=True` keeps each row on one line.
- `confirm(question)` asks on the terminal; add `@yes_option` to the command, and call `declined()` after a no.
  `progress(label, total)` shows a bar.
- `number_list(kind, keys)` after a printed list makes its numbers usable: `numbered(kind, "3", keys)`, and for ids
  `listed(kind, "3")`, return the third key of the last printed list of that kind, or None if the text is not a number.
- A command catches nothing: `main` turns errors into output. A search that finds nothing prints
  `{"ok": True, "results": []}` and ends with `context.exit(EXIT_NOTHING)`.
- Old spellings of commands are listed in `main.OLD_SPELLINGS`.

Exit codes:

    0    done
    1    nothing found, or refused
    2    wrong use: an unknown command, option, value or configuration
    3    broken: a file, a database, a model or a provider failed, or Herma has a bug
    130  interrupted; 141: the reader of a pipe is gone
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
import shlex
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import click
from click.shell_completion import CompletionItem

from herma.cli import output
from herma.errors import HermaError, UsageError
from herma.types import Author, Origin, Scope, Who

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from herma.app import Herma
    from herma.config import Settings

P = ParamSpec("P")

EXIT_NOTHING = 1
EXIT_BROKEN = 3
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141
PATHS = ("target", "file", "path", "data", "folder")
"""Parameters that hold file names, which may be any bytes."""


class CommandContext:
    """The shared options, the settings and the opened home of one command, and its output."""

    h: Herma
    """The opened home, once `open` was called; `with_home` does."""

    def __init__(self) -> None:
        self.json = False
        self.debug = False
        self.yes = False
        self.home: str | None = None
        self.profile: str | None = None
        self.flags: dict[str, object] = {}
        self.scope = Scope()
        self._settings: Settings | None = None
        self._warned: set[str] = set()

    def settings(self, *, warn: bool = True) -> Settings:
        """Read the configuration once, and warn about mistakes in it once."""
        if self._settings is None:
            from herma.config import load

            self._settings = load(home=self.home, profile=self.profile, flags=self.flags)
        if warn:
            for problem in self._settings.problems:
                if problem.pressing:
                    self.warn(str(problem))
        return self._settings

    def open(self) -> Herma:
        """Open the home, to be used in a `with` block. `with_home` does this for a command."""
        from herma.app import Herma

        self.settings()
        self.h = Herma.open(home=self.home, profile=self.profile, flags=self.flags)
        return self.h

    def command(self, *words: str, scoped: bool = False) -> str:
        """Return a command line that can be pasted, for the same home; `scoped` adds --project and --user."""
        chosen = [("--home", self.home), ("--profile", self.profile)]
        if scoped:
            chosen = [("--project", self.scope.project), ("--user", self.scope.user), *chosen]
        return shlex.join(["herma", *words, *(word for name, value in chosen if value for word in (name, value))])

    def here(self, command: str) -> str:
        """Add this home to a command that the library named; other text is returned as it is."""
        return self.command(*command.split()[1:]) if re.fullmatch(r"herma(?: [\w.-]+)+", command) else command

    # ── printing ──

    def print_json(self, value: object) -> None:
        output.write_json(value)

    def line(self, text: str = "") -> None:
        """Print text for people, wrapped at words on a terminal."""
        if not self.json:
            output.write_wrapped(text)

    def heading(self, text: str) -> None:
        """Print a line in bold where the terminal can."""
        if not self.json:
            shown = output.visible(text)
            sys.stdout.write(f"\x1b[1m{shown}\x1b[0m\n" if output.colours(sys.stdout) else f"{shown}\n")

    def fields(self, fields: Iterable[tuple[str, str | None]]) -> None:
        """Print a line for each field that has a value, with the names in one column."""
        filled = [(name, text) for name, text in fields if text]
        width = max((len(name) for name, _ in filled), default=0) + 2
        for name, text in filled:
            if not self.json:
                output.write_wrapped(f"{name:{width}}{text}", indent=width)

    def table(
        self, columns: Sequence[str], rows: Sequence[Sequence[object]], *, drop: Sequence[str] = (), cut: bool = False
    ) -> None:
        """Print rows under their headings.

        On a narrow terminal the columns named in `drop` are left out first, in that order. The last column wraps at
        words, or is cut to one line with `cut`. In a pipe nothing is dropped or cut.
        """
        if not self.json:
            output.write_table(columns, rows, drop=drop, cut=cut)

    def progress(self, label: str, total: int | None = None, *, least: int = 0) -> AbstractContextManager[Any]:
        """`with context.progress("Reading", 10) as report: report(3)` (absolute counts).

        Nothing is shown for a total below `least`.
        """
        return output.progress(label, total) if total is None or total >= least else nullcontext(_silent)

    def warn(self, text: str) -> None:
        """Print a warning on stderr, once."""
        if text not in self._warned:
            self._warned.add(text)
            output.write(f"warning: {text}", sys.stderr)

    # ── asking and ending ──

    def confirm(self, question: str) -> bool:
        """Ask for a yes on the terminal; `--yes` (see `yes_option`) answers it beforehand."""
        if self.yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            raise UsageError(
                question,
                hint="Not running in a terminal, so Herma cannot ask; add --yes to confirm.",
                code="no_terminal",
            )
        sys.stderr.write(f"{output.visible(question)} [y/N] ")
        sys.stderr.flush()
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def declined(self, sentence: str = "Nothing was changed.") -> NoReturn:
        """End the command with exit code 1 after a no to `confirm`."""
        self.line(sentence)
        if self.json:
            self.print_json({"ok": False, "outcome": "Declined", "message": sentence})
        self.exit(EXIT_NOTHING)

    def fail(self, sentence: str, hint: str = "", *, code: str = "refused") -> NoReturn:
        """End the command with exit code 1, a sentence and a next step."""
        raise HermaError(sentence, hint=hint, code=code)

    def exit(self, code: int) -> NoReturn:
        """End the command with this exit code, when everything is printed already."""
        raise click.exceptions.Exit(code)

    # ── numbers of the last list ──

    def number_list(self, kind: str, keys: Sequence[str], *, plain: bool = False) -> None:
        """Keep what the numbers of a printed list stand for: ids as they are (`plain`), texts as digests.

        Without effect in a read-only home.
        """
        from herma.store.files import replace_file

        if not self._list_file.parent.is_dir():
            return
        lists = self._lists() | {self._list_name(kind): list(keys) if plain else [_digest(key) for key in keys]}
        try:
            replace_file(self._list_file, json.dumps(lists).encode())
        except (OSError, HermaError):
            return

    def numbered(self, kind: str, text: str, keys: Sequence[str]) -> str | None:
        """Return the key among `keys` that had this number in the last printed list; None if it is not a number.

        Without a printed list, numbers count `keys` as they are.
        """
        number = text.removeprefix("#")
        if not (number.isascii() and number.isdigit() and len(number) < 7):
            return None
        listed = self._lists().get(self._list_name(kind)) or [_digest(key) for key in keys]
        if not 1 <= int(number) <= len(listed):
            raise UsageError(
                f"There is no number {number} in the last list; it has {output.count(len(listed), 'line')}.",
                hint="Nothing was changed. Print the list again to see the numbers.",
                code="not_found",
            )
        found = next((key for key in keys if _digest(key) == listed[int(number) - 1]), None)
        if found is None:
            raise UsageError(
                f"Number {number} of the last list is not there any more.",
                hint="Nothing was changed. Print the list again to see the numbers.",
                code="not_found",
            )
        return found

    def listed(self, kind: str, text: str) -> str | None:
        """Return the id that had this number in the last printed list of that kind."""
        number, ids = text.removeprefix("#"), self._lists().get(self._list_name(kind), [])
        small = number.isascii() and number.isdigit() and len(number) < 4
        return ids[int(number) - 1] if small and 1 <= int(number) <= len(ids) else None

    def _list_name(self, kind: str) -> str:
        return f"{kind}/{self.scope.project}/{self.scope.user}"

    def _lists(self) -> dict[str, list[str]]:
        try:
            lists = json.loads(self._list_file.read_bytes()[:1_000_000])
        except (OSError, ValueError):
            return {}
        return lists if isinstance(lists, dict) else {}

    @property
    def _list_file(self) -> Any:
        return self.settings(warn=False).home / ".last-lists.json"


def _digest(key: str) -> str:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _silent(done: int, total: int | None = None) -> None:
    """Report no progress."""


def exit_code(error: BaseException) -> int:
    """Return the exit code of an error; the module's docstring has the table."""
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return EXIT_INTERRUPTED
    return error.exit_code if isinstance(error, HermaError | click.ClickException) else EXIT_BROKEN


# ── what a command is declared with ──────────────────────────────────────────────────────────────────────────────

pass_context = click.make_pass_decorator(CommandContext, ensure=True)


def with_home(function: Callable[Concatenate[CommandContext, P], None]) -> Callable[..., None]:
    """Open the home for a command (`context.h`), after its arguments are checked."""

    @pass_context
    @functools.wraps(function)
    def run(context: CommandContext, /, **options: Any) -> None:
        for parameter in click.get_current_context().command.params:
            _check_typed(parameter, options.get(parameter.name or ""))
        with context.open():
            function(context, **options)  # type: ignore[call-arg]  # click passes what the options declare

    return run


def _check_typed(parameter: click.Parameter, value: object) -> None:
    """Refuse bytes that are not text, except in file names, and empty options (an unset variable, for example)."""
    for word in value if isinstance(value, tuple) else (value,):
        if not isinstance(word, str) or parameter.name in PATHS:
            continue
        if isinstance(parameter, click.Option) and not word.strip(" ,") and word != parameter.default:
            raise UsageError(f"{parameter.opts[-1]} is empty.", hint="Give a value, or leave the option out.")
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise UsageError(
                f"{parameter.human_readable_name} has bytes in it that are not text.",
                hint="Is this terminal set to UTF-8? If not, begin the line with: LC_ALL=C.UTF-8",
            )


Candidates = Callable[["CommandContext", str], "Iterable[tuple[str, str]]"]


def completing(candidates: Candidates) -> Callable[..., list[CompletionItem]]:
    """Return a `shell_complete` for values with a description, which `candidates(context, typed)` finds in the home."""

    def complete(context: click.Context, _: click.Parameter, typed: str) -> list[CompletionItem]:
        ours = context.ensure_object(CommandContext)
        try:
            with ours.open():
                return [CompletionItem(value, help=about) for value, about in candidates(ours, typed)]
        except (HermaError, OSError):
            return []

    return complete


def _known_scopes(name: str) -> Candidates:
    def candidates(context: CommandContext, typed: str) -> Iterable[tuple[str, str]]:
        scopes = [one.scope for one in context.h.memory.changes(limit=1000)]
        scopes += [one.scope for one in context.h.transcripts.list(limit=200)]
        found = {getattr(scope, name) for scope in scopes}
        return [(value, "") for value in sorted(found) if value and value.startswith(typed)]

    return candidates


def scope_options(function: Callable[P, None]) -> Callable[P, None]:
    """Add --project and --user to a command; `context.scope` has them."""
    for name, metavar, text in (
        ("user", "ID", "The profile of this user."),
        ("project", "NAME", "The notes of this project."),
    ):
        option = click.option(
            f"--{name}",
            metavar=metavar,
            expose_value=False,
            callback=_scope_key,
            shell_complete=completing(_known_scopes(name)),
            help=text,
        )
        function = option(function)
    return function


def _scope_key(context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """Put a project or user into the scope. An empty one is a mistake, not the home itself."""
    if value is None:
        return
    key = value.strip()
    if not key:
        raise UsageError(f"--{parameter.name} is empty.", hint="Give a name, or leave the option out.")
    if not key.isprintable():
        raise UsageError(f"--{parameter.name} has unprintable characters.", hint="Use printable text.")
    ours = context.ensure_object(CommandContext)
    project, user = (key, ours.scope.user) if parameter.name == "project" else (ours.scope.project, key)
    ours.scope = Scope(project=project, user=user)


def _remember(context: click.Context, parameter: click.Parameter, value: object) -> None:
    """Keep a shared option's value; an option that is not given keeps the value given further left."""
    if value is not None and value is not False and parameter.name is not None:
        setattr(context.ensure_object(CommandContext), parameter.name, value)


def _shared(*names: str, **attributes: Any) -> click.Option:
    return click.Option(names, expose_value=False, is_eager=True, callback=_remember, **attributes)


SHARED_OPTIONS: tuple[click.Option, ...] = (
    _shared("--json", is_flag=True, help="Print JSON."),
    _shared("--home", metavar="PATH", help="Use this home folder."),
    _shared("--profile", metavar="NAME", help="Use the home of this profile."),
    _shared("--debug", is_flag=True, help="Show the traceback of an error."),
)

yes_option = click.option(
    "--yes", is_flag=True, expose_value=False, callback=_remember, help="Answer yes to the confirmation."
)
limit_option = click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Show at most this many."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")


class HermaCommand(click.Command):
    """A command that accepts the shared options anywhere."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *SHARED_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        _write_options(self, ctx, formatter)


class HermaGroup(click.Group):
    """A group of commands: shows its help without a command, and suggests the nearest name for a mistyped one.

    `order` lists the commands as the help shows them.
    """

    command_class = HermaCommand
    group_class = type

    def __init__(self, *args: Any, order: str = "", **attributes: Any) -> None:
        super().__init__(*args, **attributes)
        self.order = order.split()

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        shown = [name for name, command in self.commands.items() if not command.hidden]
        return sorted(shown, key=lambda name: self.order.index(name) if name in self.order else len(self.order))

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        return [*super().get_params(ctx), *SHARED_OPTIONS]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        self.format_commands(ctx, formatter)
        _write_options(self, ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands with their whole short help, wrapped instead of cut."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        lines = [
            (name, command.short_help or command.get_short_help_str(limit=400))
            for name, command in commands
            if command is not None and not command.hidden
        ]
        if lines:
            with formatter.section("Commands"):
                formatter.write_dl(lines)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if not args and not ctx.resilient_parsing and not self.invoke_without_command:
            output.write(ctx.get_help())
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if self.get_command(ctx, args[0]) is None and not args[0].startswith("-") and not ctx.resilient_parsing:
            from difflib import get_close_matches

            near = get_close_matches(args[0], known, n=1, cutoff=0.5)
            hint = f"Did you mean {near[0]}?" if near else f"`{ctx.command_path} --help` lists them."
            raise UsageError(f"{ctx.command_path} has no command {args[0]!r}.", hint=hint, code="unknown_command")
        return super().resolve_command(ctx, args)


def _write_options(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the command's own options first, then the shared ones."""
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


# ── who types ────────────────────────────────────────────────────────────────────────────────────────────────────

AGENT_MARKERS = ("HERMA_SESSION", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "AI_AGENT")
"""Variables that agents set for the programs they start."""


def agent_marker() -> str | None:
    """Return the variable that shows that an agent started this program, if one is set."""
    return next((name for name in AGENT_MARKERS if os.environ.get(name)), None)


def author() -> Author:
    """Return the author of a change: a person at a terminal, or the agent that started this program."""
    if agent_marker() is None:
        return Author()
    return Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=os.environ.get("HERMA_SESSION") or None)


def for_people_only(what: str) -> None:
    """Refuse a command inside an agent: an agent must not approve or vouch for what it wrote itself."""
    marker = agent_marker()
    if marker is not None:
        raise UsageError(
            f"{what} belongs to a person's own terminal; an agent started this one ({marker} is set).",
            hint="Type the command yourself, in a terminal that no agent started.",
            code="people_only",
        )
