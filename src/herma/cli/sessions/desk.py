"""What the commands on sessions share: the group, finding a session by what a person remembers of it, next steps."""

from __future__ import annotations

import functools
import re
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec

import click

from herma.cli import output
from herma.cli.frame import Context, HermaGroup, pass_context
from herma.cli.sessions.wording import name_of, when
from herma.errors import UsageError
from herma.transcript.importing import UNFINISHED
from herma.transcript.retention import DAY
from herma.types import SessionFilter, SessionInfo

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.transcript import Transcripts

P = ParamSpec("P")
PATHS = ("target", "file")
"""Parameters that are names of files, which may be any bytes."""
_MANY = 5_000
"""Messages from which on it takes a while."""
_CANDIDATES = 8
"""Sessions that a refusal names at most."""
_SPANS = {"h": 1 / 24, "d": 1.0, "w": 7.0, "mo": 30.0, "m": 30.0, "y": 365.0}


class SessionsGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "list show search resume expand rename archive export import delete undelete prune stats"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=SessionsGroup)
def sessions() -> None:
    """See, find, move and clear out past sessions.

    Sessions that go on from one another are one conversation, and one line. An ID may be shortened to a beginning that
    only one session has; a title, or the beginning of one, does as well.

    \b
    Examples:
      herma sessions list
      herma sessions show 20261231_2359
      herma sessions search "login bug" since:last-week
      herma sessions export --all -o sessions.jsonl

    \b
    With --json a list prints ok and sessions or messages; a change prints ok and what it did.
    Times are ISO 8601 in UTC.
    """


@dataclass(frozen=True, slots=True)
class Desk:
    """What a command works with: the frame's context and the opened memory."""

    context: Context
    h: Herma

    @property
    def transcripts(self) -> Transcripts:
        return self.h.transcripts

    def command(self, *words: str) -> str:
        """A command line to type next, on the same home."""
        return self.context.command(*words)

    def progress(self, label: str, total: int) -> AbstractContextManager[output.Report]:
        """How far work on so many messages is; nothing is said about work that is done at once."""
        return self.context.progress(label, total) if total > _MANY else nullcontext(_silent)

    @property
    def grace(self) -> float:
        """Seconds in which a deletion can be undone."""
        return self.h.settings.retention.grace_days * DAY

    def deleted(self) -> list[SessionInfo]:
        """What a person deleted and can bring back; not what an import is still writing, or what waits to be purged."""
        expired = time.time() - self.grace
        waiting = self.transcripts.deleted()
        return [one for one in waiting if one.end_reason != UNFINISHED and (one.deleted or 0.0) >= expired]

    def find(self, text: str) -> SessionInfo:
        """The session meant by an id, a title, or the beginning of either. `UsageError` that lists them if several.

        A whole title counts before those that only begin so, in capitals or not.
        """
        if not text.strip():
            raise UsageError("The id is empty.", hint=f"`{self.command('sessions', 'list')}` has the ids.")
        try:
            found = self.transcripts.resolve(text)
        except UsageError:
            raise self._ambiguous(text, self._like(text)) from None
        session = self.transcripts.get(found) if found else None
        if session is not None:
            return session
        like = self._like(text)
        titled = [one for one in like if (one.title or "").casefold().startswith(text.casefold())]
        titled = [one for one in titled if (one.title or "").casefold() == text.casefold()] or titled
        if len(titled) == 1:
            return titled[0]
        if titled:
            raise self._ambiguous(text, titled)
        raise self._unknown(text, like)

    def find_all(self, texts: Sequence[str]) -> list[SessionInfo]:
        """Each of them once, all found before anything is done to any of them."""
        return list({session.id: session for session in map(self.find, texts)}.values())

    def _like(self, text: str) -> list[SessionInfo]:
        return self.transcripts.list(SessionFilter(search=text), limit=50)

    def _ambiguous(self, text: str, sessions: Sequence[SessionInfo]) -> UsageError:
        return UsageError(
            f"Several sessions begin with {text!r}.", hint=_listed("Say more of the one you mean:", sessions)
        )

    def _unknown(self, text: str, like: Sequence[SessionInfo]) -> UsageError:
        if like:
            return UsageError(
                f"There is no session {text!r}.", hint=_listed("These have it in their title or id:", like)
            )
        deleted = [one for one in self.deleted() if one.id.startswith(text) or one.title == text]
        if deleted:
            undelete = self.command("sessions", "undelete", deleted[0].id)
            return UsageError(f"Session {deleted[0].id} is deleted.", hint=f"To bring it back: {undelete}")
        search = self.command("search", text)
        lists = self.command("sessions", "list")
        return UsageError(f"There is no session {text!r}.", hint=f"`{lists}` shows them; `{search}` looks into them.")


def _silent(done: int, total: int | None = None) -> None:
    """Nobody waits."""


def _listed(title: str, sessions: Sequence[SessionInfo]) -> str:
    lines = [f"{one.id}  {when(one.last_active)}  {name_of(one, 60)}" for one in sessions[:_CANDIDATES]]
    if len(sessions) > _CANDIDATES:
        lines.append(f"and {len(sessions) - _CANDIDATES:,} more")
    return "\n      ".join([title, *lines])


def with_sessions(function: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Open the memory for a command, once what was typed makes sense."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, **options: Any) -> None:
        for parameter in click.get_current_context().command.params:
            _check_typed(parameter, options.get(parameter.name or ""))
        with context.open() as opened:
            function(Desk(context, opened), **options)  # type: ignore[call-arg]  # click hands over what is declared

    return run


def _check_typed(parameter: click.Parameter, value: object) -> None:
    """Refuse bytes that are not text, except in names of files, and options that are empty (an unset variable, say)."""
    for word in value if isinstance(value, tuple) else (value,):
        if not isinstance(word, str) or parameter.name in PATHS:
            continue
        if isinstance(parameter, click.Option) and not word.strip(" ,"):
            raise UsageError(f"{parameter.opts[-1]} is empty.", hint="Give a value, or leave the option out.")
        if any("\ud800" <= char <= "\udfff" for char in word):
            raise UsageError(
                f"{parameter.human_readable_name} has bytes in it that are not text.",
                hint="Is this terminal set to UTF-8? If not, begin the line with: LC_ALL=C.UTF-8",
            )


def emphasised(context: Context, text: str) -> None:
    """A heading: bold where the terminal can."""
    if context.json:
        return
    if output.colours(sys.stdout):
        sys.stdout.write(f"\x1b[1m{output.visible(text)}\x1b[0m\n")
    else:
        output.write(text)


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def read_moment(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A time as in a query: `2026-03-05`, `7d`, `yesterday`, `last week`. The beginning of what is named."""
    if value is None:
        return None
    from herma.recall.dates import read_value

    span = read_value(value, time.time())
    if span is None or span.since is None:
        raise click.BadParameter(
            f"{value[:40]!r} is no time; say 2026-03-05, 2026-03, 7d, yesterday or 'last week'.", param=parameter
        )
    return span.since


def read_days(_: click.Context, parameter: click.Parameter, value: str | None) -> float | None:
    """A length of time in days: `90d`, `12h`, `6mo`, `90`."""
    if value is None:
        return None
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,3})?)\s*(h|d|w|mo|m|y)?", value.strip().lower())
    if found is None:
        raise click.BadParameter(f"{value[:40]!r} is no length of time; say 90d, 12h, 6w, 3mo or 1y.", param=parameter)
    return float(found[1]) * _SPANS[found[2] or "d"]


limit_option = click.option(
    "--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many at most."
)
dry_run_option = click.option("--dry-run", is_flag=True, help="Only show what would be done.")
