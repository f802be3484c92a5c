"""What the skills commands share: the group, the opened library, who is at the keyboard, and how outcomes are told."""

from __future__ import annotations

import functools
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import click

from herma.cli import output, person
from herma.cli.frame import Context, HermaGroup, pass_context
from herma.cli.person import for_people_only
from herma.errors import UsageError
from herma.types import Author, SkillOutcome, SkillRefused, SkillStaged, SkillWritten

if TYPE_CHECKING:
    from herma.config import Settings
    from herma.skills import SkillLibrary

P = ParamSpec("P")
Json = dict[str, Any]


class SkillsGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = (
        "list show find fill create edit install scan log diff undo pending approve reject archive restore pin unpin"
        " trust state record usage"
    )

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=SkillsGroup)
def skills() -> None:
    """See and change what agents learnt to do: SKILL.md files, one folder each.

    Every change is recorded and can be undone; nothing is deleted, it goes to the archive.

    \b
    Examples:
      herma skills list
      herma skills find "cut a release"
      herma skills show release
      herma skills undo

    \b
    With --json a change prints
      ok, outcome, name, message
    and what belongs to its outcome:
      SkillWritten   path, change, warnings       SkillUnchanged  (nothing more)
      SkillStaged    pending                      SkillRefused    kind, matches, preview, findings
    """


@dataclass(frozen=True, slots=True)
class Desk:
    """What a skills command works with."""

    context: Context
    library: SkillLibrary
    settings: Settings

    @property
    def author(self) -> Author:
        return person.author()

    def for_people_under_approval(self, what: str) -> None:
        """With write approval on, an agent may not go round the inbox either."""
        if self.settings.skills.write_approval:
            for_people_only(f"With skills.write_approval on, {what}")

    def would_archive(self, name: str) -> None:
        """Say what moving a skill to the archive would do."""
        skill = self.library.get(name)
        if self.context.json:
            self.context.print_json({"ok": True, "dry_run": True, "name": skill.name, "path": skill.path})
        self.context.line(f"{skill.name} ({skill.path}) would go to the archive. Nothing was changed.")

    def command(self, *words: str) -> str:
        """A command line to type next, on the same home."""
        chosen = [("--home", self.context.home), ("--profile", self.context.profile)]
        extra = [word for name, value in chosen if value for word in (name, shlex.quote(value))]
        return " ".join(["herma skills", *words, *extra])

    def report(self, outcome: SkillOutcome, *, extra: Json | None = None) -> None:
        """Say what came of a change; a refusal ends the command with exit code 1."""
        if isinstance(outcome, SkillRefused):
            self.refuse(outcome, extra=extra)
        if self.context.json:
            self.context.print_json({**outcome_json(outcome), **(extra or {})})
            return
        match outcome:
            case SkillWritten(change=change):
                self.context.line(
                    f"{outcome.message} Change {change}; to take it back: {self.command('undo', str(change))}"
                )
            case SkillStaged(pending=pending):
                self.context.line(f"{outcome.message} To decide: {self.command('approve', str(pending))}")
            case _:
                self.context.line(outcome.message)

    def refuse(self, outcome: SkillRefused, *, extra: Json | None = None) -> NoReturn:
        if self.context.json:
            self.context.print_json({**outcome_json(outcome), **(extra or {})})
        sys.stdout.flush()
        output.write(f"herma: {outcome.message}", sys.stderr)
        for finding in outcome.findings[:10]:
            output.write(f"    {finding.rule}: {finding.why}", sys.stderr)
        for match in outcome.matches[:10]:
            output.write(f"    {match}", sys.stderr)
        if outcome.preview:
            output.write("  the text there:", sys.stderr)
            for line in outcome.preview.split("\n")[:20]:
                output.write(f"    {line}", sys.stderr)
        if hint := _HINTS.get(outcome.kind):
            output.write(f"  → {hint}", sys.stderr)
        self.context.exit(1)


_HINTS = {
    "similar": "Improve that one, or add --despite-similar.",
    "blocked": "Change the text; if it is meant, add --trust.",
    "not found": "`herma skills list` shows what is there.",
    "pinned": "`herma skills unpin` lifts the protection.",
    "overtaken": "`herma skills log` shows what happened since; undo that first.",
    "exists": "Choose another name, or edit the one that is there.",
}


def outcome_json(outcome: SkillOutcome) -> Json:
    """An outcome with everything it carries."""
    value: Json = {"ok": outcome.ok, "outcome": type(outcome).__name__}
    return value | {item.name: getattr(outcome, item.name) for item in fields(outcome)}


def with_skills(function: Callable[Concatenate[Desk, P], None]) -> Callable[..., None]:
    """Open the library for a command."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, **options: Any) -> None:
        with context.open() as opened:
            function(Desk(context, opened.skills, opened.settings), **options)  # type: ignore[call-arg]

    return run


def read_text(source: str) -> str:
    """The text of a file, or of standard input for `-`."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
    except OSError as exc:
        raise UsageError(f"{source} cannot be read: {exc.strerror}.", hint="Give a file, or - for input.") from exc
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise UsageError(f"{source} is not UTF-8 text (byte {exc.start}).") from exc


dry_run_option = click.option("--dry-run", is_flag=True, help="Say what would happen, and change nothing.")
reason_option = click.option("--reason", default="", help="Why, for the history.")
trust_option = click.option("--trust", is_flag=True, help="Store it although the scanner calls it dangerous.")
name_argument = click.argument("name")
