"""The entry point: find the command without loading the others, and turn every error into one sentence."""

from __future__ import annotations

import errno
import importlib
import os
import re
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from herma import __version__
from herma.cli import output
from herma.cli.context import EXIT_BROKEN_PIPE, CommandContext, HermaCommand, HermaGroup, exit_code
from herma.errors import HermaError, HermaWarning, UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence


class Lazy(NamedTuple):
    """The place of a command, and its line in the help. The module is loaded when the command runs."""

    target: str
    help: str


FIRST: dict[str, Lazy] = {
    "chat": Lazy("herma.agent.chat:chat", "Talk with a model that has this memory."),
    "remember": Lazy("herma.cli.changes:remember", "Store a text in memory."),
    "search": Lazy("herma.transcript.cli_search:search", "Find what was said in past sessions, in any language."),
    "memory": Lazy("herma.memory.cli:memory", "See and change what agents remember: MEMORY.md and USER.md."),
    "sessions": Lazy("herma.transcript.cli:sessions", "List, read, export and delete past sessions."),
    "skills": Lazy("herma.skills.cli:skills", "See and change what agents learned to do: SKILL.md files."),
    "inbox": Lazy("herma.cli.changes:inbox", "Approve or reject what agents propose to store."),
    "log": Lazy("herma.cli.changes:log", "List the changes of memory, skills and sessions."),
    "undo": Lazy("herma.cli.changes:undo", "Undo the newest change, or any change."),
    "import": Lazy("herma.importers.cli:import_", "Import conversations of other programs."),
    "connect": Lazy("herma.connect.cli:connect", "Connect agents on this machine to this memory."),
    "mcp": Lazy("herma.connect.cli:mcp", "Serve memory to an agent over MCP."),
    "serve": Lazy("herma.cli.settings:serve", "Show the dashboard in a browser."),
    "doctor": Lazy("herma.cli.maintenance:doctor", "Check that everything works, and repair what does not."),
    "backup": Lazy("herma.cli.maintenance:backup", "Create, verify and restore backups."),
    "config": Lazy("herma.cli.settings:config", "Show and change settings."),
}
"""The commands that `herma --help` shows."""

MORE: dict[str, Lazy] = {
    "tour": Lazy("herma.cli.tour:tour", "See what Herma does in a few seconds, on a temporary home."),
    "brief": Lazy("herma.episodes.cli:brief", "Collect what is known for a task, for any agent."),
    "learned": Lazy("herma.review.cli:learned", "See what was learned from finished sessions, and undo it."),
    "episodes": Lazy("herma.episodes.cli:episodes", "See earlier work: one episode per finished conversation."),
    "export": Lazy("herma.privacy.export:export_", "Write everything into one file that another home reads back."),
    "forget": Lazy("herma.privacy.forget:forget_", "Remove a text, a session or a person from every layer, for good."),
    "cost": Lazy("herma.review.cli:cost", "See the tokens and money that model calls used."),
    "context": Lazy("herma.cli.settings:context", "See what fills the model's context window."),
    "providers": Lazy("herma.providers.cli:providers", "Choose an external memory provider."),
    "models": Lazy("herma.models.cli:models", "Install models for search by meaning; test the chat model."),
    "index": Lazy("herma.index.cli:index", "Check and rebuild the search index."),
    "worker": Lazy("herma.cli.settings:worker", "Do background work: due reviews, index, upkeep of skills."),
    "db": Lazy("herma.cli.maintenance:db", "Keep the memory of many hosts on a PostgreSQL server."),
    "claw": Lazy("herma.importers.migration:claw", "Move from OpenClaw: memory, skills, sessions, keys."),
    "eval": Lazy("herma.evals.cli:eval", "Measure how well search finds things."),
    "help": Lazy("herma.cli.main:help_", "Show help; `herma help --all` lists every command."),
}
"""The commands that only `herma help --all` shows."""

HIDDEN: dict[str, Lazy] = {
    "hook": Lazy("herma.connect.cli:hook", "Answer a hook of an agent; `herma connect` sets it up.")
}
"""The commands that only programs call."""

COMMANDS = FIRST | MORE | HIDDEN

OLD_SPELLINGS: dict[str, str] = {
    "config get": "config show",
    "context recalled": "context show --recalled",
    "memory log": "log --kind memory",
    "memory diff": "log --kind memory",
    "memory undo": "undo --kind memory",
    "memory pending": "inbox list",
    "memory approve": "inbox approve --kind memory",
    "memory reject": "inbox reject --kind memory",
    "sessions search": "search",
    "sessions resume": "chat --resume",
    "sessions expand": "sessions show --summary-line",
    "sessions undelete": "sessions delete --undo",
    "sessions prune": "sessions delete --older-than 90d",
    "db init": "db migrate",
    "skills log": "log --kind skills",
    "skills diff": "log --kind skills",
    "skills undo": "undo --kind skills",
    "skills pending": "inbox list",
    "skills approve": "inbox approve --kind skills",
    "skills reject": "inbox reject --kind skills",
    "skills pin": "skills mark --pin",
    "skills unpin": "skills mark --unpin",
    "skills trust": "skills scan --trust",
    "skills usage": "skills tidy --status",
    "skills state": "skills mark",
    "skills record": "skills mark",
    "index verify": "index status --verify",
    "index drop": "index rebuild --drop",
    "facts": "memory facts",
    "facts rebuild": "index rebuild --facts",
    "facts history": "memory facts list",
    "facts unforget": "memory facts forget --undo",
    "memory blame": "memory list --changes",
    "memory reset": "memory remove --all",
    "memory status": "memory list --status",
    "memory tail": "memory archive",
    "memory tail list": "memory archive list",
    "memory tail search": "memory archive list",
    "memory tail unforget": "memory archive forget --undo",
    "memory archive search": "memory archive list",
    "memory archive unforget": "memory archive forget --undo",
    "models path": "models list",
    "config path": "config show --path",
    "learned undo": "learned show --undo",
    "review undo": "learned show --undo",
    "sessions stats": "sessions list --stats",
    "skills status": "skills tidy --status",
    "skills rollback": "skills tidy --rollback",
    "inbox pending": "inbox list",
    "providers use": "providers setup --defaults",
    "skills restore": "skills archive --undo",
    "episodes search": "episodes list",
    "episodes rebuild": "index rebuild --episodes",
    "models resume": "models check --resume",
    "facts show": "memory facts list",
    "restore": "brief",
    "review": "learned",
    "review status": "learned list",
    "review log": "learned list",
    "episodes digests": "episodes list --by-month",
    "episodes forget": "episodes archive",
    "episodes restore": "episodes archive --undo",
    "curator": "skills tidy --status",
    "curator status": "skills tidy --status",
    "curator run": "skills tidy",
    "curator report": "skills tidy --report",
    "curator rollback": "skills tidy --rollback",
    "curator list-archived": "skills list --archived",
    "curator archive": "skills archive",
    "curator restore": "skills archive --undo",
    "curator pin": "skills mark --pin",
    "curator unpin": "skills mark --unpin",
}
"""Old spellings and the words that replace them. They work for one version and print a note."""


class Root(HermaGroup):
    """The `herma` command itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return list(FIRST | MORE)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        everything = ctx.meta.get("herma.help_all", False)
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in FIRST.items()])
        if everything:
            with formatter.section("More commands"):
                formatter.write_dl([(name, lazy.help) for name, lazy in MORE.items()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Replace click's own, which prints errors in another form."""
        sys.exit(run(sys.argv[1:] if args is None else args))


def _version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        if context.ensure_object(CommandContext).json:
            output.write_json({"ok": True, "version": __version__})
        else:
            output.write(f"herma {__version__}")
        context.exit()


@click.group(name="herma", cls=Root)
@click.option("--version", is_flag=True, expose_value=False, callback=_version, help="Print the version.")
def cli() -> None:
    """Memory that any agent can carry across sessions.

    \b
    Examples:
      herma remember "Staging listens on port 5433."
      herma search staging database

    Everything is stored in ~/.herma, unless --home or HERMA_HOME names another
    folder. `herma help --all` lists every command, `herma help NAME` explains one.
    """


_COMPLETION = """\
Completion with the Tab key:
  ~/.bashrc                    eval "$(_HERMA_COMPLETE=bash_source herma)"
  ~/.zshrc                     eval "$(_HERMA_COMPLETE=zsh_source herma)"
  ~/.config/fish/config.fish   _HERMA_COMPLETE=fish_source herma | source

Ways to make something go away:
  archive   it is no longer shown or recalled; --undo or `restore` brings it back
  delete    sessions go for good after some days; `herma undo` restores them until then
            (`memory remove` for an entry; `herma undo` restores it at any time)
  forget    facts and archived entries: no longer recalled; --undo takes it back.
            `herma forget` removes a text, session or person everywhere, for good

Exit codes:
  0  done                        2  wrong use
  1  nothing found, or refused   3  broken: a file, a model, or a bug"""


@click.command("help", cls=HermaCommand)
@click.argument("words", nargs=-1, metavar="[COMMAND]…")
@click.option("--all", "everything", is_flag=True, help="List every command.")
@click.pass_context
def help_(context: click.Context, words: tuple[str, ...], everything: bool) -> None:
    """Show the help of a command, or with --all every command, completion and the exit codes.

    \b
    Examples:
      herma help --all
      herma help memory add
    """
    command: click.Command = cli
    at = context.parent or context
    at.meta["herma.help_all"] = everything
    for word in words:
        if not isinstance(command, click.Group):
            raise UsageError(f"{at.command_path} has no subcommands.", hint=f"Try: {at.command_path} --help")
        name, found, _ = command.resolve_command(at, [word])
        if found is None:
            raise UsageError(f"{at.command_path} has no command {word!r}.", hint="Try: herma help --all")
        at, command = click.Context(found, info_name=name, parent=at), found
    output.write(command.get_help(at))
    if everything:
        output.write_wrapped("\n" + _COMPLETION)


def main() -> NoReturn:
    """Run the `herma` program."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller (`>&-`)
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115, PTH123  used until the end
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # not a real stream, or closed
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    completion = os.environ.get("_HERMA_COMPLETE")
    if completion:
        from click.shell_completion import shell_complete

        sys.exit(shell_complete(cli, {}, "herma", "_HERMA_COMPLETE", completion))
    cli.main()


def run(args: Sequence[str]) -> int:
    """Run one command line and return its exit code. Errors become output only here."""
    context = CommandContext()
    context.debug = os.environ.get("HERMA_DEBUG", "").lower() not in ("", "0", "no", "off", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("always", HermaWarning)
        warnings.showwarning = _shown_by(context, warnings.showwarning)
        try:
            words = current_spelling(args, context)
            with cli.make_context("herma", words, obj=context) as click_context:
                cli.invoke(click_context)
            sys.stdout.flush()
        except click.exceptions.Exit as exc:
            return _flushed(exc.exit_code)
        except BrokenPipeError:
            return _pipe_closed()
        except (Exception, KeyboardInterrupt) as exc:  # noqa: BLE001 (nothing may reach the user as a traceback)
            options = args[: args.index("--")] if "--" in args else args
            context.json = context.json or "--json" in options  # an error in parsing comes before it was read
            context.debug = context.debug or "--debug" in options
            return _tell(context, exc)
    return 0


def current_spelling(args: Sequence[str], context: CommandContext) -> list[str]:
    """Return the arguments with an old spelling of a command replaced, and warn about it."""
    at: list[int] = []  # the places of the first words that are not options
    for number, word in enumerate(args):
        if not word.startswith("-") and (number == 0 or args[number - 1] not in ("--home", "--profile")):
            at.append(number)
    for length in (3, 2, 1):
        old = " ".join(args[number] for number in at[:length])
        if len(at) >= length and old in OLD_SPELLINGS and not _exists(old.split()):
            new = OLD_SPELLINGS[old]
            context.warn(f"`herma {old}` is now `herma {new}`; the old spelling will be removed in the next version.")
            rest = [word for number, word in enumerate(args) if number not in at[:length]]
            first = at[0]
            return [*rest[:first], *new.split(), *rest[first:]]
    return list(args)


def _exists(words: Sequence[str]) -> bool:
    """Return whether a command has this spelling."""
    command: click.Command | None = cli
    for word in words:
        command = command.get_command(click.Context(command), word) if isinstance(command, click.Group) else None
    return command is not None


def _tell(context: CommandContext, error: BaseException) -> int:
    """Print the error as a sentence and a next step, with --json as JSON too. Return the exit code."""
    sentence, hint, reason = _explain(error)
    code = exit_code(error)
    try:
        sys.stdout.flush()
        if context.debug:
            import traceback

            output.write("".join(traceback.format_exception(error)).rstrip(), sys.stderr)
        name = "\x1b[1;31mherma:\x1b[0m" if output.colours(sys.stderr) else "herma:"
        sys.stderr.write(f"{name} {output.visible(sentence)}\n")
        if hint:
            output.write(f"  → {hint}", sys.stderr)
        if context.json:
            about = {"code": reason, "message": sentence, "hint": hint}
            output.write_json({"ok": False, "error": about, "hint": hint, "kind": type(error).__name__})
        return _flushed(code)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError:  # what was to be printed does not fit either; the sentence above says why
        _be_silent()
        return code


def _explain(error: BaseException) -> tuple[str, str, str]:
    """Return an error's sentence, next step and stable code."""
    if isinstance(error, HermaError):
        return str(error), error.hint, error.code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "Stopped.", "", "interrupted"
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "herma"
        sentence, hint = error.format_message(), f"`{path} --help` shows how it is used."
        if isinstance(error, click.NoSuchOption):
            sentence = f"{path} has no option {error.option_name}."
            hint = f"Did you mean {' or '.join(error.possibilities)}?" if error.possibilities else hint
        return _in_words(sentence), hint, "usage"
    if isinstance(error, click.ClickException):
        message = error.format_message()
        editor, failed, _ = message.partition(": Editing failed")
        if failed:
            return f"The editor {editor} failed; nothing was changed.", "Set EDITOR to another one.", "refused"
        return message, "", "refused"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and not error.filename:
        return f"Cannot write the output: {error.strerror}.", "Free some space, or send it elsewhere.", "store"
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"Cannot use {error.filename}: {error.strerror}.", "Check the path and its permissions.", "store"
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"Internal error: {what}", "Run the command again with --debug, and report what it shows.", "internal"


def _in_words(sentence: str) -> str:
    """Say in plain words what click says of a number."""
    sentence = re.sub(r"is not in the range (-?[\d.]+)<=x<=(-?[\d.]+)", r"is not between \1 and \2", sentence)
    sentence = re.sub(r"is not in the range x>=(-?[\d.]+)", r"is less than \1", sentence)
    return re.sub(r"is not a valid (integer|float)( range)?\b", "is not a number", sentence)


def _flushed(code: int) -> int:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        return _pipe_closed()
    return code


def _pipe_closed() -> int:
    """The reader has gone (`herma … | head`)."""
    _be_silent()
    return EXIT_BROKEN_PIPE


def _be_silent() -> None:
    """Say nothing more on stdout, now or when the interpreter flushes at its end."""
    with suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())


def _shown_by(context: CommandContext, otherwise: Any) -> Any:
    """Return a `warnings.showwarning` that prints Herma's warnings in one line, and passes on others."""

    def show(message: Any, category: Any, *rest: Any) -> None:
        if issubclass(category, HermaWarning):
            context.warn(str(message))
        else:
            otherwise(message, category, *rest)

    return show


if __name__ == "__main__":
    main()
