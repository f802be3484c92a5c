"""`herma skills create` and `edit`: writing skills by hand."""

from __future__ import annotations

from collections.abc import Sequence

import click

from herma.cli.person import for_people_only
from herma.cli.skills.desk import (
    Desk,
    dry_run_option,
    name_argument,
    read_text,
    reason_option,
    skills,
    trust_option,
    with_skills,
)
from herma.errors import UsageError
from herma.skills.compose import compose
from herma.types import CreateSkill, EditSkill, PatchSkill, Skill, SkillOp, WriteSkillFile


@skills.command(short_help="Write a new skill")
@name_argument
@click.option("--from", "source", metavar="FILE", help="The whole SKILL.md; - reads it from the input.")
@click.option("--description", default="", help="What it does and when to use it, where there is no --from.")
@click.option("--body", default="", help="The steps, where there is no --from.")
@click.option("--trigger", "triggers", multiple=True, help="What a task says that needs it; may be repeated.")
@click.option("--pitfall", "pitfalls", multiple=True, help="What to beware of; may be repeated.")
@click.option("--category", default="", help="The folder to put it in.")
@click.option("--despite-similar", is_flag=True, help="Although another is nearly the same.")
@trust_option
@reason_option
@dry_run_option
@with_skills
def create(
    desk: Desk,
    name: str,
    source: str | None,
    description: str,
    body: str,
    triggers: Sequence[str],
    pitfalls: Sequence[str],
    category: str,
    despite_similar: bool,
    trust: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Write a new skill, from a file or from a few words.

    \b
    Examples:
      herma skills create release --from release.md --category devops
      herma skills create tidy --description "Tidy a folder up." --body "1. Sort by type."
    """
    if source:
        content = read_text(source)
    elif description and body:
        content = compose(Skill(name, description, body, triggers=tuple(triggers), pitfalls=tuple(pitfalls)))
    else:
        raise UsageError("A skill needs --from, or --description and --body.", hint="`herma skills create --help`")
    op = CreateSkill(name, content, category, despite_similar)
    _carry_out(desk, op, reason, trust=trust, dry_run=dry_run)


@skills.command(short_help="Change a skill")
@name_argument
@click.option("--from", "source", metavar="FILE", help="The new text, whole; - reads it from the input.")
@click.option("--old", default="", help="A passage to replace, unique in its file.")
@click.option("--new", default=None, help="What takes its place.")
@click.option("--all", "replace_all", is_flag=True, help="Replace every occurrence.")
@click.option("--file", "file", default="SKILL.md", show_default=True, help="Which of its files.")
@trust_option
@reason_option
@dry_run_option
@with_skills
def edit(
    desk: Desk,
    name: str,
    source: str | None,
    old: str,
    new: str | None,
    replace_all: bool,
    file: str,
    trust: bool,
    reason: str,
    dry_run: bool,
) -> None:
    """Change a skill: one passage, a whole file, or SKILL.md in your editor.

    \b
    Examples:
      herma skills edit release
      herma skills edit release --old "make tag" --new "make tag push"
      herma skills edit release --file references/notes.md --from notes.md
    """
    op: SkillOp
    if old:
        if new is None:
            raise UsageError("--old needs --new.", hint="--new '' removes the passage.")
        op = PatchSkill(name, old, new, file, replace_all)
    elif source:
        text = read_text(source)
        op = EditSkill(name, text) if file == "SKILL.md" else WriteSkillFile(name, file, text)
    else:
        current = desk.library.read_file(name, file)
        text = click.edit((current or b"").decode("utf-8-sig", "replace"), extension=".md") or ""
        if not text:
            desk.context.line("Nothing was changed.")
            return
        op = EditSkill(name, text) if file == "SKILL.md" else WriteSkillFile(name, file, text)
    _carry_out(desk, op, reason, trust=trust, dry_run=dry_run)


def _carry_out(desk: Desk, op: SkillOp, reason: str, *, trust: bool, dry_run: bool) -> None:
    if trust:
        for_people_only("Vouching for a text that the scanner objects to")
    if dry_run:
        refused = desk.library.rehearse(op, author=desk.author)
        if refused is not None:
            desk.refuse(refused)
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": True, "name": op.name})
        desk.context.line(f"{op.name} would be written. Nothing was changed.")
        return
    desk.report(desk.library.apply(op, author=desk.author, reason=reason, trust=trust))
