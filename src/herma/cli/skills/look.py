"""`herma skills list`, `show`, `find` and `fill`: what there is, what one says, and which fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import click

from herma.cli.memory.wording import preview
from herma.cli.skills.desk import Desk, Json, name_argument, skills, with_skills
from herma.errors import UsageError
from herma.skills import SkillView
from herma.types import FindMode, Skill, SkillMatch, SkillUsage
from herma.wording.sessions import count, when


@skills.command("list", short_help="List the skills")
@click.option("--category", help="Only those of this category.")
@click.option("--all", "everything", is_flag=True, help="Those too that cannot be used here, and refused files.")
@with_skills
def list_skills(desk: Desk, category: str | None, everything: bool) -> None:
    """List the skills that can be used here, by category and name.

    \b
    Examples:
      herma skills list
      herma skills list --category devops
      herma skills list --all --json
    """
    found = desk.library.list(category, everything=everything)
    usage = desk.library.usage()
    shelf = desk.library.shelf()
    if desk.context.json:
        refused = [{"path": each.path, "root": each.root, "reason": each.reason} for each in shelf.refused]
        listed = [skill_json(desk, skill, usage.get(skill.name)) for skill in found]
        desk.context.print_json(
            {"ok": True, "skills": listed, "categories": dict(shelf.categories or {}), "refused": refused}
        )
        return
    if not found:
        desk.context.line("There are no skills yet." if not category else f"There are none in {category!r}.")
    else:
        rows = [_row(desk, skill, usage.get(skill.name), everything=everything) for skill in found]
        desk.context.table(["skill", "category", "state", "uses", "for"], rows)
    hidden = len(shelf.skills) - len(desk.library.list())
    if hidden and not everything:
        desk.context.line(f"{count(hidden, 'more skill')} cannot be used here: {desk.command('list', '--all')}")
    for each in shelf.refused if everything else ():
        desk.context.line(f"refused: {each.path or each.root}: {each.reason}")
    if shelf.refused and not everything:
        desk.context.line(f"{count(len(shelf.refused), 'file')} refused: {desk.command('list', '--all')}")


def _row(desk: Desk, skill: Skill, usage: SkillUsage | None, *, everything: bool) -> Sequence[object]:
    state: str = usage.state if usage else "active"
    offer = desk.library.offer(skill)
    if usage and usage.pinned:
        state += ", pinned"
    if skill.external:
        state += ", only read"
    if everything and not offer.offered:
        state = f"not here: {offer.reason}"
    return (skill.name, skill.category or "-", state, usage.uses if usage else 0, preview(skill.description, 72))


def skill_json(desk: Desk, skill: Skill, usage: SkillUsage | None) -> Json:
    offer = desk.library.offer(skill)
    return {
        "name": skill.name,
        "description": skill.description,
        "category": skill.category,
        "path": skill.path,
        "root": skill.root,
        "version": skill.version,
        "tags": skill.tags,
        "triggers": skill.triggers,
        "readiness": offer.readiness,
        "reason": offer.reason,
        "state": usage.state if usage else "active",
        "pinned": bool(usage and usage.pinned),
        "uses": usage.uses if usage else 0,
        "warnings": skill.warnings,
    }


@skills.command(short_help="Show a skill in full")
@name_argument
@click.option("--file", "file", metavar="PATH", help="One of its files, as in references/details.md.")
@with_skills
def show(desk: Desk, name: str, file: str | None) -> None:
    """Show a skill: its text, its pitfalls and files, how it did, and what the scanner says of it.

    \b
    Examples:
      herma skills show release
      herma skills show devops/release --file scripts/tag.sh
    """
    if file:
        _show_file(desk, name, file)
        return
    view = desk.library.view(name)
    if desk.context.json:
        desk.context.print_json({"ok": True, **skill_json(desk, view.skill, view.usage), **_view_json(view)})
        return
    skill, line = view.skill, desk.context.line
    line(f"{skill.name}: {skill.description}")
    line(f"{view.where}")
    usage = view.usage
    line(
        f"{usage.state}{', pinned' if usage.pinned else ''}; made by: {usage.origin}; {count(usage.uses, 'use')}, "
        f"{count(usage.successes, 'success', 'successes')}, {count(usage.failures, 'failure')}; "
        f"last used {when(usage.last_used)}"
    )
    if view.offer.reason:
        line(f"Here: {view.offer.readiness}: {view.offer.reason}")
    for warning in skill.warnings:
        desk.context.warn(f"{skill.path}: {warning}")
    for pitfall in skill.pitfalls:
        line(f"! {pitfall}")
    files = [each.path for each in view.files if each.path != "SKILL.md"]
    if files:
        line(f"Files: {', '.join(files[:30])}")
    if view.report.findings:
        line(f"Scanner: {view.report.verdict}; {desk.command('scan', view.skill.name)} shows why")
    line()
    line(f"[withheld: {view.withheld}]" if view.withheld else view.text.rstrip("\n"))


def _show_file(desk: Desk, name: str, file: str) -> None:
    data = desk.library.read_file(name, file)
    if data is None:
        raise UsageError(f"{name} has no file {file!r}.", hint=f"`{desk.command('show', name)}` lists its files.")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text: {len(data):,} bytes.") from None
    if desk.context.json:
        desk.context.print_json({"ok": True, "name": name, "file": file, "content": text})
    desk.context.line(text.rstrip("\n"))


def _view_json(view: SkillView) -> Json:
    return {
        "content": view.text,
        "withheld": view.withheld,
        "where": view.where,
        "files": [{"path": each.path, "size": each.size, "link": each.link} for each in view.files],
        "pitfalls": view.skill.pitfalls,
        "template": view.skill.template,
        "language": view.skill.language,
        "parameters": view.skill.parameters,
        "dependencies": view.skill.dependencies,
        "verdict": view.report.verdict,
        "usage": view.usage,
    }


@skills.command(short_help="Find the skills that fit a task")
@click.argument("task", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="How many at most.")
@click.option(
    "--mode",
    type=click.Choice(("words", "vectors", "hybrid")),
    default="hybrid",
    show_default=True,
    help="By words, by meaning, or by both.",
)
@with_skills
def find(desk: Desk, task: Sequence[str], limit: int, mode: FindMode) -> None:
    """Find the skills that fit a task, best first; none, when none is near enough.

    \b
    Examples:
      herma skills find cut a release of the library
      herma skills find --limit 1 --json "resize all pictures in a folder"
    """
    found = desk.library.find(" ".join(task), limit, mode=mode)
    if desk.context.json:
        value = {
            "ok": True,
            "task": found.task,
            "matches": [_match_json(match) for match in found.matches],
            "abstained": found.abstained,
            "nearest": [_match_json(match) for match in found.nearest],
            "notes": found.notes,
        }
        desk.context.print_json(value)
        return
    for match in found.matches:
        desk.context.line(f"{match.score:.2f}  {match.name}: {preview(match.skill.description, 90)}")
        for reason in match.reasons:
            desk.context.line(f"      {reason}")
    if found.abstained:
        desk.context.line(f"None: {found.abstained}.")
    for note in found.notes:
        desk.context.line(note)


def _match_json(match: SkillMatch) -> Json:
    return {
        "name": match.name,
        "path": match.skill.path,
        "description": match.skill.description,
        "score": match.score,
        "similarity": match.similarity,
        "reasons": match.reasons,
    }


@skills.command(short_help="Fill the code template of a skill")
@name_argument
@click.argument("values", nargs=-1, metavar="NAME=VALUE…")
@with_skills
def fill(desk: Desk, name: str, values: Sequence[str]) -> None:
    """Fill the code template of a skill and print it. Nothing is run.

    Values are quoted as the template's language quotes (shell, unless the skill says otherwise, or it looks like Python
    or JSON), so that each stays one value. What cannot be made safe is refused.

    \b
    Examples:
      herma skills fill copy-up file=a.txt host=box
    """
    given: dict[str, object] = {}
    for pair in values:
        key, equals, value = pair.partition("=")
        if not equals or not key:
            raise UsageError(f"{pair!r} is not NAME=VALUE.", hint="For example: host=box")
        given[key] = value
    filled = desk.library.fill(name, given)
    if desk.context.json:
        desk.context.print_json({"ok": True, **asdict(filled)})
        return
    desk.context.line(filled.text)
    for each in filled.unknown:
        desk.context.warn(f"The template has no place for {each}.")
    for each in filled.left_open:
        desk.context.warn(f"{each} is still open.")
    for note in filled.notes:
        desk.context.warn(f"{note}.")
