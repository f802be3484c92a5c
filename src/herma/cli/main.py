"""The entry point: finds the command without loading the others, and turns every error into one clear sentence."""

from __future__ import annotations

import errno
import importlib
import os
import sys
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import click

from herma import __version__
from herma.cli import output
from herma.cli.frame import Context, HermaGroup
from herma.errors import HermaError, HermaWarning, StoreError

if TYPE_CHECKING:
    from collections.abc import Sequence


EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class Lazy(NamedTuple):
    """Where a command lives, and its line in the help: its module is loaded only when it runs."""

    target: str
    help: str


COMMANDS: dict[str, Lazy] = {
    "tour": Lazy("herma.cli.tour:tour", "See the whole cycle in a few seconds, on a temporary home."),
    "chat": Lazy("herma.agent.chat:chat", "Talk with a model that has this memory."),
    "memory": Lazy(
        "herma.memory.cli:memory",
        "See and change what agents remember: MEMORY.md (notes) and USER.md (the user's profile).",
    ),
    "search": Lazy("herma.transcript.cli:search", "Find what was said in past sessions, in any language."),
    "sessions": Lazy("herma.transcript.cli:sessions", "See, find, move and clear out past sessions."),
    "skills": Lazy(
        "herma.skills.cli:skills", "See and change what agents learnt to do: SKILL.md files, one folder each."
    ),
    "curator": Lazy(
        "herma.skills.cli:curator",
        "Keep skills in shape: what nobody uses becomes stale and later goes to the archive, what fails is marked.",
    ),
    "episodes": Lazy(
        "herma.episodes.cli:episodes",
        "See what was done before: one episode per conversation, made at its end without a model.",
    ),
    "facts": Lazy(
        "herma.facts.cli:facts", 'See facts that memory states plainly: "my time zone", and what it was before.'
    ),
    "review": Lazy(
        "herma.review.cli:review", "See what was learnt from conversations by looking back at them, and take it back."
    ),
    "restore": Lazy(
        "herma.episodes.cli:restore_restore",
        "Put together what is known for a task: where the work was left, memory, skills that fit, earlier work.",
    ),
    "cost": Lazy("herma.review.cli:cost", "See what calls to models took, and what a cache could reuse of them."),
    "context": Lazy("herma.cli.settings:context", "See what the model's window holds, and what is recalled into it."),
    "serve": Lazy(
        "herma.cli.maintenance:serve",
        "Show the dashboard in a browser: what is kept, what it costs, whether all is well.",
    ),
    "providers": Lazy(
        "herma.cli.settings:providers", "Choose an external memory that takes part in sessions, besides Herma's own."
    ),
    "index": Lazy("herma.index.cli:index", "Look after the search index, which is made from the transcripts."),
    "models": Lazy(
        "herma.models.cli:models",
        "Install and try models that find by meaning what words do not find, and try the language model out.",
    ),
    "doctor": Lazy("herma.cli.maintenance:doctor", "Look whether everything is all right, and repair what is not."),
    "backup": Lazy("herma.cli.maintenance:backup", "Make, check and restore backups of everything."),
    "eval": Lazy("herma.evals.cli:eval", "Measure how well things are found, routed and caught."),
    "config": Lazy("herma.cli.settings:config", "Look at the configuration, and change it."),
}


class Root(HermaGroup):
    """The `herma` command itself."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module, _, name = COMMANDS[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), name)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl([(name, lazy.help) for name, lazy in COMMANDS.items()])

    def main(self, args: Sequence[str] | None = None, *_: Any, **__: Any) -> NoReturn:
        """Replaces click's own, which prints errors its own way."""
        sys.exit(run(sys.argv[1:] if args is None else args))


def _version(context: click.Context, _: click.Parameter, given: bool) -> None:
    if given:
        if context.ensure_object(Context).json:
            output.write_json({"ok": True, "version": __version__})
        else:
            output.write(f"herma {__version__}")
        context.exit()


@click.group(name="herma", cls=Root)
@click.option("--version", is_flag=True, expose_value=False, callback=_version, help="Print the version.")
def cli() -> None:
    """Memory that any agent can carry across sessions: curated, searchable, undoable, and yours.

    Everything is kept in one folder, the home: --home, else HERMA_HOME, else HERMES_HOME, else ~/.herma.

    \b
    Examples:
      herma tour
      herma memory add "The staging database listens on port 5433."
      herma search staging database --json
      herma --home ./memory serve

    \b
    Completion of commands and options by the Tab key:
      eval "$(_HERMA_COMPLETE=bash_source herma)"        in ~/.bashrc
      eval "$(_HERMA_COMPLETE=zsh_source herma)"         in ~/.zshrc
      _HERMA_COMPLETE=fish_source herma | source         in ~/.config/fish/config.fish
    """


def main() -> NoReturn:
    """The `herma` program."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by whoever started this (`>&-`): nobody wants to hear it
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
    """Run one command line; → its exit code. The one place where errors become output."""
    context = Context()
    context.debug = os.environ.get("HERMA_DEBUG", "").lower() not in ("", "0", "no", "off", "false")
    with warnings.catch_warnings():
        warnings.simplefilter("always", HermaWarning)
        warnings.showwarning = _shown_by(context, warnings.showwarning)
        try:
            with cli.make_context("herma", list(args), obj=context) as click_context:
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


def _tell(context: Context, error: BaseException) -> int:
    """Print the error as a sentence and a next step, as JSON too where that was asked for; → the exit code."""
    sentence, hint, code = _explain(error)
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
            output.write_json({"ok": False, "error": sentence, "hint": hint, "kind": type(error).__name__})
        return _flushed(code)
    except BrokenPipeError:
        return _pipe_closed()
    except OSError:  # what was to be printed does not fit either; the sentence above says why
        _be_silent()
        return code


def _explain(error: BaseException) -> tuple[str, str, int]:
    """An error's sentence, next step and exit code."""
    if isinstance(error, HermaError):
        return str(error), error.hint, error.exit_code
    if isinstance(error, KeyboardInterrupt | click.Abort):
        return "Stopped.", "", EXIT_INTERRUPTED
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "herma"
        sentence, hint = error.format_message(), f"`{path} --help` shows how it is used."
        if isinstance(error, click.NoSuchOption):
            sentence = f"{path} has no option {error.option_name}."
            hint = f"Did you mean {' or '.join(error.possibilities)}?" if error.possibilities else hint
        return sentence, hint, error.exit_code
    if isinstance(error, click.ClickException):
        return error.format_message(), "", error.exit_code
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT) and not error.filename:
        return (
            f"The output could not be written: {error.strerror}.",
            "Free some space, or send it elsewhere.",
            StoreError.exit_code,
        )
    what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"Internal error: {what}", "Run the command again with --debug, and report what it shows.", EXIT_INTERNAL


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


def _shown_by(context: Context, otherwise: Any) -> Any:
    """A `warnings.showwarning` that says ours in one line, and leaves others to whoever showed them before."""

    def show(message: Any, category: Any, *rest: Any) -> None:
        if issubclass(category, HermaWarning):
            context.warn(str(message))
        else:
            otherwise(message, category, *rest)

    return show


if __name__ == "__main__":
    main()
