"""What the memory commands share: the group, the choice of scope, and who is sitting at the keyboard."""

from __future__ import annotations

import functools
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from herma.cli import person
from herma.cli.frame import Context, HermaCommand, HermaGroup, pass_context
from herma.cli.person import for_people_only
from herma.errors import UsageError
from herma.types import TARGETS, Author, Scope, StoreStatus, Target

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.config import Settings
    from herma.curated import MemoryStore

P = ParamSpec("P")


class MemoryGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list add replace remove mark status log diff blame undo pending approve reject tidy tail adopt reset"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.index)


@click.group(cls=MemoryGroup)
def memory() -> None:
    """See and change what agents remember: MEMORY.md (notes) and USER.md (the user's profile).

    Every change is recorded and can be undone. Without --project and --user the home's own files are meant.

    \b
    Examples:
      herma memory add "The tests run with pytest -n 2."
      herma memory list
      herma memory replace "pytest -n 2" "The tests run with make test."
      herma memory undo

    \b
    With --json a change prints
      ok, outcome, target, message, entry_count, used, limit
    and what belongs to its outcome:
      Applied     change, backup           Duplicate   (nothing more)
      OverBudget  entries, needed, suggestions [action, entries, frees, why]
      NoMatch     entries                  Ambiguous   matches
      Blocked     findings [rule, start, end, severity, why, text]
      Drifted     reason, remedy, backup   Staged      pending
    Lists print ok and files, changes, entries or pending. Times are ISO 8601 in UTC.
    """


@dataclass(frozen=True, slots=True)
class Desk:
    """What a memory command works with: the frame's context, the opened store, and whose memory is meant."""

    context: Context
    store: MemoryStore
    settings: Settings
    scope: Scope
    h: Herma

    def statuses(self, target: Target | None = None) -> list[StoreStatus]:
        """The files of the scope: both, or the one asked for."""
        return [status for status in self.store.status(scope=self.scope) if target in (None, status.target)]

    def enabled(self, target: Target) -> bool:
        options = self.settings.memory
        return options.memory_enabled if target == "memory" else options.user_profile_enabled

    def name(self, target: Target, scope: Scope | None = None) -> str:
        """A file as people call it."""
        scope = scope or self.scope
        if target == "memory":
            return f"MEMORY.md of project {scope.project}" if scope.project else "MEMORY.md"
        return f"USER.md of user {scope.user}" if scope.user else "USER.md"

    def command(self, *words: str, scoped: bool = False) -> str:
        """A command line to type next, on the same home."""
        chosen = [("--project", self.scope.project), ("--user", self.scope.user)] if scoped else []
        return " ".join(["herma memory", *words, *_flags(chosen), *self._home])

    def setting(self, key: str, value: object) -> str:
        """A command line that changes the configuration of the same home."""
        return " ".join([f"herma config set {key} {value}", *self._home])

    @property
    def _home(self) -> list[str]:
        return _flags([("--home", self.context.home), ("--profile", self.context.profile)])

    @property
    def author(self) -> Author:
        return person.author()

    def for_people_under_approval(self, what: str) -> None:
        """With write approval on, an agent may not go round the inbox either."""
        if self.settings.memory.write_approval:
            for_people_only(f"With memory.write_approval on, {what}")


def _flags(chosen: Sequence[tuple[str, str | None]]) -> list[str]:
    return [word for name, value in chosen if value for word in (name, shlex.quote(value))]


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _key(_: click.Context, parameter: click.Parameter, value: str | None) -> str:
    """A project or user as it is kept. An empty one is a mistake (an unset variable, say), not the home."""
    key = (value or "").strip()
    if value is not None and not key:
        raise UsageError(f"--{parameter.name} is empty.", hint="Give a name, or leave the option out.")
    if not key.isprintable():
        raise UsageError(
            f"--{parameter.name} has characters in it that cannot be printed.", hint="Leave out what is not text."
        )
    return key


def with_memory(function: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Open the memory for a command, and give it --project and --user."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, project: str, user: str, **options: Any) -> None:
        with context.open() as opened:
            desk = Desk(context, opened.memory, opened.settings, Scope(project=project, user=user), opened)
            function(desk, **options)  # type: ignore[call-arg]  # click hands over what the options declare

    scope = [
        click.Option(["--user"], metavar="ID", callback=_key, help="The profile of this user instead of the home's."),
        click.Option(["--project"], metavar="NAME", callback=_key, help="The notes of this project."),
    ]
    run.__click_params__ = [*scope, *getattr(function, "__click_params__", ())]  # type: ignore[attr-defined]
    return run


_DASHED = "\ue000"
_DASHED_TEXT = re.compile(r"(-[^=\s]*)\s")


class TextCommand(HermaCommand):
    """A command that takes texts: one that begins with a dash and has a blank in it cannot be an option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        end = args.index("--") if "--" in args else len(args)
        return super().parse_args(ctx, [*map(self._guarded, args[:end]), *args[end:]])

    def _guarded(self, word: str) -> str:
        found = _DASHED_TEXT.match(word)
        known = {name for parameter in self.params for name in (*parameter.opts, *parameter.secondary_opts)}
        return _DASHED + word if found and found[1] not in known else word


def text_argument(name: str, **attributes: Any) -> Callable[[Any], Any]:
    """An argument of a `TextCommand`: any text that can be written as UTF-8."""
    return click.argument(name, callback=_read_text, **attributes)


def _read_text(_: click.Context, parameter: click.Parameter, value: Any) -> Any:
    if not isinstance(value, str):
        return tuple(_read_text(_, parameter, word) for word in value)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise click.BadParameter("it has bytes in it that are not text.", param=parameter) from None
    return value.removeprefix(_DASHED)


reason_option = click.option("--reason", default="", callback=_read_text, help="Why, for the history.")


def _read_change(_: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    text = (value or "").removeprefix("#")
    if value is not None and not (text.isascii() and text.isdigit() and len(text) < 19):
        raise click.BadParameter(f"{text[:40]!r} is not the number of a change; the log has them.", param=parameter)
    return None if value is None else int(text)


change_argument = click.argument("change", required=False, callback=_read_change)
TARGET = click.Choice(TARGETS, case_sensitive=False)
target_option = click.option("--target", type=TARGET, default="memory", show_default=True, help="MEMORY.md or USER.md.")
either_target_option = click.option("--target", type=TARGET, help="Only MEMORY.md or only USER.md.")


def read_tags(_: click.Context, parameter: click.Parameter, values: Sequence[str]) -> tuple[str, ...]:
    """Tags as given, several in one option being separated by commas."""
    tags = [tag.strip().removeprefix("#") for value in values for tag in value.split(",")]
    for tag in tags:
        if not tag or not tag.isprintable() or len(tag) > 40:
            raise click.BadParameter(f"{tag[:60]!r} is not a tag: use 1 to 40 printable characters.", param=parameter)
    return tuple(dict.fromkeys(tags))
