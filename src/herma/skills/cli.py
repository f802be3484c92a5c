"""Herma skills …, herma curator."""

from __future__ import annotations

import functools
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, fields
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, NoReturn, ParamSpec

import click

from herma.cli import frame as person
from herma.cli import output
from herma.cli.frame import Context, HermaGroup, for_people_only, pass_context
from herma.cli.output import count, iso, when
from herma.errors import UsageError
from herma.memory.cli import by, preview, span
from herma.memory.cli_upkeep import chosen, tell_approved, tell_how_to_decide, tell_rejected
from herma.skills.document import compose
from herma.skills.library import SkillView
from herma.skills.types import (
    SKILL_STATES,
    TRUSTS,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    FindMode,
    PatchSkill,
    RemoveSkillFile,
    Skill,
    SkillChange,
    SkillMatch,
    SkillOp,
    SkillOutcome,
    SkillPending,
    SkillRefused,
    SkillReport,
    SkillStaged,
    SkillState,
    SkillUsage,
    SkillWritten,
    Trust,
    WriteSkillFile,
)
from herma.types import Author

if TYPE_CHECKING:
    from herma.config import Settings
    from herma.skills.curator import Curator, CuratorReport
    from herma.skills.library import SkillLibrary


# ---------- cli.skills.desk
#
# What the skills commands share: the group, the opened library, who is at the keyboard, and how outcomes are told.

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


# ---------- cli.skills.decide
#
# `herma skills pending`, `approve` and `reject`: the inbox, and a person's decisions on it.


@skills.command(short_help="List the writes that wait for a person")
@with_skills
def pending(desk: Desk) -> None:
    """List the writes that wait for a person, oldest first.

    With skills.write_approval on, everything that agents write waits here; what repeats text from outside always does.

    \b
    Examples:
      herma skills pending
      herma skills pending --json
    """
    waiting = desk.library.pending()
    if desk.context.json:
        desk.context.print_json({"ok": True, "pending": [pending_json(item) for item in waiting]})
        return
    if not waiting:
        desk.context.line("Nothing is waiting.")
        return
    now = time.time()
    for item in waiting:
        desk.context.line(
            f"{item.id:>3}  {item.operation.name}, proposed by {by(item.author)}, {span(now - item.at)} ago; "
            f"expires in {span(item.expires - now)}"
        )
        for line in _described(item.operation):
            desk.context.line(f"     {line}")
    tell_how_to_decide(desk.context, waiting, count(len(waiting), "write"), desk.command)


@skills.command(short_help="Carry out what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_skills
def approve(desk: Desk, ids: Sequence[str]) -> None:
    """Carry out what was proposed. Only a person may: it is refused inside an agent.

    \b
    Examples:
      herma skills approve 3
      herma skills approve all
    """
    for_people_only("Approving what an agent wrote")
    results: list[Json] = []
    for item in chosen(desk.library.pending(), ids, desk.command):
        outcome = desk.library.approve(item.id)
        results.append({"id": item.id, **outcome_json(outcome)})
        if outcome.ok:
            desk.context.line(f"{item.id}: {outcome.message}")
        else:
            desk.context.warn(f"{item.id} stays in the inbox: {outcome.message}")
    tell_approved(desk.context, results)


@skills.command(short_help="Drop what was proposed")
@click.argument("ids", nargs=-1, required=True, metavar="ID…|all")
@with_skills
def reject(desk: Desk, ids: Sequence[str]) -> None:
    """Drop what was proposed, for good: the same proposal is not shown again.

    \b
    Examples:
      herma skills reject 3
      herma skills reject all
    """
    for_people_only("Rejecting what an agent wrote")
    rejected = [desk.library.reject(item.id) for item in chosen(desk.library.pending(), ids, desk.command)]
    tell_rejected(desk.context, rejected, pending_json)


def pending_json(item: SkillPending) -> Json:
    return {
        "id": item.id,
        "at": iso(item.at),
        "expires": iso(item.expires),
        "who": item.author.who,
        "origin": item.author.origin,
        "session": item.author.session,
        "action": type(item.operation).__name__,
        "operation": item.operation,
        "reason": item.reason,
    }


def _described(op: SkillOp) -> list[str]:
    match op:
        case CreateSkill() | EditSkill():
            verb = "create" if isinstance(op, CreateSkill) else "replace by"
            return [f"{verb}:", *(f"  {line}" for line in op.content.split("\n")[:12])]
        case PatchSkill():
            return [f"in {op.file}:", f"  - {preview(op.old, 90)}", f"  + {preview(op.new, 90)}"]
        case DeleteSkill():
            return ["archive it" + (f", absorbed into {op.absorbed_into}" if op.absorbed_into else "")]
        case WriteSkillFile():
            return [f"write {op.file}: {preview(op.content, 80)}"]
        case RemoveSkillFile():
            return [f"remove {op.file}"]


# ---------- cli.skills.look
#
# `herma skills list`, `show`, `find` and `fill`: what there is, what one says, and which fits.


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
        rows = [_look_row(desk, skill, usage.get(skill.name), everything=everything) for skill in found]
        desk.context.table(["skill", "category", "state", "uses", "for"], rows)
    hidden = len(shelf.skills) - len(desk.library.list())
    if hidden and not everything:
        desk.context.line(f"{count(hidden, 'more skill')} cannot be used here: {desk.command('list', '--all')}")
    for each in shelf.refused if everything else ():
        desk.context.line(f"refused: {each.path or each.root}: {each.reason}")
    if shelf.refused and not everything:
        desk.context.line(f"{count(len(shelf.refused), 'file')} refused: {desk.command('list', '--all')}")


def _look_row(desk: Desk, skill: Skill, usage: SkillUsage | None, *, everything: bool) -> Sequence[object]:
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


# ---------- cli.skills.outside
#
# `herma skills install` and `scan`: skills from outside.


@skills.command(short_help="Take skills in from a folder or an archive")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--category", default="", help="The folder to put them in.")
@click.option("--name", default="", help="Another name than the skill's own.")
@click.option(
    "--origin",
    type=click.Choice(TRUSTS),
    default="community",
    show_default=True,
    help="Whose it is: it decides what the scanner's verdict means.",
)
@click.option("--force", is_flag=True, help="Take it in although the scanner calls for caution; never if dangerous.")
@dry_run_option
@with_skills
def install(desk: Desk, path: Path, category: str, name: str, origin: Trust, force: bool, dry_run: bool) -> None:
    """Take skills in from a folder, a folder of skills, or an archive (.zip, .tar.gz).

    Each is scanned first. From the community only what is safe comes in, and with --force what calls for caution;
    what is dangerous never does.

    \b
    Examples:
      herma skills install ./release
      herma skills install skills.zip --category team --dry-run
    """
    if force or origin != "community":
        for_people_only("Vouching for a skill from outside")
    desk.for_people_under_approval("installing skills")
    results: list[Json] = []
    for each in desk.library.install(
        path, trust=origin, category=category, name=name, force=force, rehearsal=dry_run, author=desk.author
    ):
        results.append({**outcome_json(each.outcome), **_findings_json(each.source, each.report)})
        if each.outcome.ok:
            desk.context.line(f"{each.outcome.message} Scanner: {each.report.verdict}.")
        else:
            desk.context.warn(each.outcome.message)
        _print_findings(desk, each.report, only_grave=each.outcome.ok)
    refused = any(not result["ok"] for result in results)
    if desk.context.json:
        desk.context.print_json({"ok": not refused, "dry_run": dry_run, "results": results})
    if refused:
        careful = any(not result["ok"] and result["verdict"] == "caution" for result in results)
        if careful and not desk.context.json and not force:
            desk.context.line("To take in what calls for caution after a look at it: add --force")
        desk.context.exit(1)


@skills.command(short_help="See what the scanner says of a skill")
@click.argument("path")
@with_skills
def scan(desk: Desk, path: str) -> None:
    """See what the scanner says of a skill: a folder, an archive, or the name of one that is here.

    Ends with code 1 when anything is dangerous.

    \b
    Examples:
      herma skills scan ./release
      herma skills scan release
    """
    results: list[tuple[str, SkillReport, Json]] = []
    if Path(path).exists():
        for incoming in desk.library.incoming(path):
            report = desk.library.scan(incoming)
            results.append((incoming.source, report, _findings_json(incoming.source, report)))
    else:
        skill = desk.library.get(path)
        report = desk.library.scan(desk.library.files(skill.path))
        results.append((skill.path, report, _findings_json(skill.path, report)))
    dangerous = any(report.verdict == "dangerous" for _, report, _ in results)
    if desk.context.json:
        desk.context.print_json({"ok": not dangerous, "results": [value for _, _, value in results]})
    for source, report, _ in results:
        desk.context.line(f"{source}: {report.verdict} ({count(report.files, 'file')})")
        _print_findings(desk, report)
    if dangerous:
        desk.context.exit(1)


def _print_findings(desk: Desk, report: SkillReport, *, only_grave: bool = False) -> None:
    shown = [each for each in report.findings if not only_grave or each.severity in ("critical", "high")]
    for each in shown[:30]:
        where = f"{each.file}:{each.line}" if each.line else each.file
        desk.context.line(f"  {each.severity:8}  {where}  {each.why} ({each.category}, {each.rule})")
        if each.excerpt:
            desk.context.line(f"            {each.excerpt}")
    if len(shown) > 30:
        desk.context.line(f"  and {len(shown) - 30} more")


def _findings_json(source: str, report: SkillReport) -> Json:
    findings: Sequence[object] = report.findings
    return {"source": source, "verdict": report.verdict, "files": report.files, "scan": findings}


# ---------- cli.skills.standing
#
# `herma skills archive`, `restore`, `pin`, `unpin`, `trust`, `state`, `record` and `usage`: how skills stand.


@skills.command(short_help="Move a skill to the archive")
@click.argument("name", required=False)
@click.option("--list", "listing", is_flag=True, help="List what is in the archive.")
@reason_option
@dry_run_option
@with_skills
def archive(desk: Desk, name: str | None, listing: bool, reason: str, dry_run: bool) -> None:
    """Move a skill to the archive, from where `restore` brings it back; or list what is there.

    \b
    Examples:
      herma skills archive old-release
      herma skills archive --list
    """
    if listing:
        kept = desk.library.archived()
        if desk.context.json:
            listed = [{"name": k.name, "folder": k.folder, "path": k.path, "at": iso(k.at)} for k in kept]
            desk.context.print_json({"ok": True, "archived": listed})
            return
        if kept:
            desk.context.table(
                ["skill", "since", "was at", "is at"], [(k.name, when(k.at), k.path, k.folder) for k in kept]
            )
        else:
            desk.context.line("The archive is empty.")
        return
    if not name:
        raise UsageError("Which skill?", hint="`herma skills list` shows them; --list shows the archive.")
    desk.for_people_under_approval("archiving skills")
    if dry_run:
        desk.would_archive(name)
        return
    desk.report(desk.library.archive(name, author=desk.author, reason=reason))


@skills.command(short_help="Bring a skill back from the archive")
@name_argument
@reason_option
@with_skills
def restore(desk: Desk, name: str, reason: str) -> None:
    """Bring a skill back from the archive, to where it was. Of several with its name, the one archived last; an earlier
    one by where it is now.

    \b
    Examples:
      herma skills restore old-release
      herma skills restore .archive/old-release
    """
    desk.for_people_under_approval("restoring skills")
    desk.report(desk.library.restore(name, author=desk.author, reason=reason))


@skills.command(short_help="Protect a skill from agents and the curator")
@name_argument
@with_skills
def pin(desk: Desk, name: str) -> None:
    """Protect a skill: agents cannot change it, and the curator leaves it where it is.

    \b
    Examples:
      herma skills pin release
    """
    _say(desk, desk.library.pin(name), f"{name} is pinned.")


@skills.command(short_help="Lift the protection of a skill")
@name_argument
@with_skills
def unpin(desk: Desk, name: str) -> None:
    """Lift the protection of a skill.

    \b
    Examples:
      herma skills unpin release
    """
    for_people_only("Lifting the protection of a skill")
    _say(desk, desk.library.unpin(name), f"{name} is no longer pinned.")


@skills.command(short_help="Vouch for a skill that the scanner calls dangerous")
@name_argument
@with_skills
def trust(desk: Desk, name: str) -> None:
    """Vouch for a skill as it is now, although the scanner calls it dangerous; any change ends that.

    \b
    Examples:
      herma skills scan release
      herma skills trust release
    """
    for_people_only("Vouching for a skill")
    _say(desk, desk.library.vouch(name), f"{name} is trusted as it is now.")


@skills.command(short_help="Say how healthy a skill is")
@name_argument
@click.argument("state", type=click.Choice([each for each in SKILL_STATES if each != "archived"]))
@dry_run_option
@with_skills
def state(desk: Desk, name: str, state: SkillState, dry_run: bool) -> None:
    """Say how healthy a skill is. A deprecated one is found last and named with its state; what you said before is
    taken back by saying it again.

    \b
    Examples:
      herma skills state old-release deprecated
      herma skills state old-release active
    """
    desk.for_people_under_approval("saying how healthy a skill is")
    before = next(iter(desk.library.usage(name).values())).state
    if dry_run:
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": True, "name": name, "before": before, "state": state})
        desk.context.line(f"{name} is {before} and would be {state}. Nothing was changed.")
        return
    back = desk.command("state", name, before) if before not in (state, "archived") else ""
    _say(
        desk, desk.library.set_state(name, state), f"{name} is {state}." + (f" To take it back: {back}" if back else "")
    )


@skills.command(short_help="Say how the work with a skill went")
@name_argument
@click.argument("outcome", type=click.Choice(("success", "failure", "unknown")))
@with_skills
def record(desk: Desk, name: str, outcome: str) -> None:
    """Count a use of a skill outside a session, and how it went. Inside sessions that is counted by itself.

    \b
    Examples:
      herma skills record release success
      herma skills record release failure --json
    """
    success = {"success": True, "failure": False}.get(outcome)
    usage = desk.library.record(name, success)
    counts = f"{usage.uses} uses, {usage.successes} successes, {usage.failures} failures"
    _say(desk, usage, f"{usage.name}: {counts}.")


def _say(desk: Desk, usage: SkillUsage, sentence: str) -> None:
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(sentence)


@skills.command(short_help="See how skills are used and how they did")
@click.argument("name", required=False)
@with_skills
def usage(desk: Desk, name: str | None) -> None:
    """See how skills are used and how they did: of all that were, or of one.

    \b
    Examples:
      herma skills usage
      herma skills usage release --json
    """
    known = sorted(desk.library.usage(name).values(), key=lambda each: (-each.uses, each.name))
    if desk.context.json:
        desk.context.print_json({"ok": True, "usage": [usage_json(each) for each in known]})
        return
    if not known:
        desk.context.line("No skill was used yet.")
        return
    columns = ["skill", "state", "uses", "views", "successes", "failures", "patches", "last used", "made by"]
    rows = [
        (
            each.name,
            each.state + (", pinned" if each.pinned else ""),
            each.uses,
            each.views,
            each.successes,
            each.failures,
            each.patches,
            when(each.last_used),
            each.origin,
        )
        for each in known
    ]
    desk.context.table(columns, rows)


def usage_json(usage: SkillUsage) -> dict[str, object]:
    times = ("created", "last_used", "last_viewed", "last_patched", "archived_at")
    value = asdict(usage) | {name: iso(getattr(usage, name)) for name in times}
    return value | {"success_rate": round(usage.success_rate, 4)}


# ---------- cli.skills.trace
#
# `herma skills log`, `diff` and `undo`: what happened, and how to take it back.

_TRACE_RED, _TRACE_GREEN, _TRACE_PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


@skills.command(short_help="List the changes, newest first")
@click.argument("name", required=False)
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="How many.")
@with_skills
def log(desk: Desk, name: str | None, limit: int) -> None:
    """List the changes, newest first: of all skills, or of one. Edits made by hand are among them.

    \b
    Examples:
      herma skills log
      herma skills log release --limit 5
    """
    changes = list(desk.library.history(_plain(name), limit=limit + 1))
    more, changes = len(changes) > limit, changes[:limit]
    if desk.context.json:
        desk.context.print_json({"ok": True, "changes": [change_json(each) for each in changes], "more": more})
        return
    if not changes:
        desk.context.line("Nothing has changed yet.")
        return
    desk.context.table(
        ["change", "when", "skill", "what", "file", "who", "reason"], [_trace_row(each) for each in changes]
    )
    if more:
        words = ["log", *([name] if name else []), "--limit", str(limit * 5)]
        desk.context.line(f"There are more: {desk.command(*words)}")


def _plain(name: str | None) -> str | None:
    return name.rpartition("/")[2] if name else None


def _trace_row(change: SkillChange) -> tuple[object, ...]:
    what = change.action + (f" of {change.undoes}" if change.undoes else "")
    if change.undone_by:
        what += f" (undone by {change.undone_by})"
    where = change.file or f"{change.moved_from} → {change.moved_to}".removeprefix(" ")
    return (change.id, when(change.at), change.skill, what, where, by(change.author), preview(change.reason, 50))


def change_json(change: SkillChange) -> Json:
    return {
        "id": change.id,
        "at": iso(change.at),
        "skill": change.skill,
        "path": change.path,
        "file": change.file,
        "action": change.action,
        "who": change.author.who,
        "origin": change.author.origin,
        "session": change.author.session,
        "message": change.author.message,
        "reason": change.reason,
        "moved_from": change.moved_from,
        "moved_to": change.moved_to,
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


@skills.command(short_help="Show what a change did")
@click.argument("change", required=False, type=click.IntRange(1))
@with_skills
def diff(desk: Desk, change: int | None) -> None:
    """Show what a change did, line by line; without a number, the newest one.

    \b
    Examples:
      herma skills diff
      herma skills diff 12
    """
    found = _change(desk, change)
    if desk.context.json:
        value = {**change_json(found), "before": _text(found.before), "after": _text(found.after)}
        desk.context.print_json({"ok": True, **value})
        return
    desk.context.line(f"Change {found.id} of {found.skill}: {found.action} by {by(found.author)}, {when(found.at)}")
    if found.reason:
        desk.context.line(f"Reason: {found.reason}")
    if not found.file:
        desk.context.line(f"{found.moved_from or 'from outside'} → {found.moved_to}")
        return
    before, after = (_text(side) or "" for side in (found.before, found.after))
    colours = output.colours(sys.stdout)
    for line in unified_diff(before.splitlines(), after.splitlines(), found.file, found.file, lineterm=""):
        colour = {"+": _TRACE_GREEN, "-": _TRACE_RED}.get(line[:1]) if colours else None
        text = output.visible(line)
        sys.stdout.write(f"{colour}{text}{_TRACE_PLAIN}\n" if colour else f"{text}\n")


def _change(desk: Desk, number: int | None) -> SkillChange:
    newest = desk.library.history(limit=1)
    found = desk.library.change(number) if number is not None else (newest[0] if newest else None)
    if found is None:
        what = "Nothing has changed yet." if number is None else f"There is no change {number}."
        raise UsageError(what, hint=f"`{desk.command('log')}` lists the changes.")
    return found


def _text(content: str | bytes | None) -> str | None:
    return f"[{len(content):,} bytes that are not text]" if isinstance(content, bytes) else content


@skills.command(short_help="Take a change back")
@click.argument("change", required=False, type=click.IntRange(1))
@click.option("--skill", "name", help="The newest change of this skill.")
@dry_run_option
@with_skills
def undo(desk: Desk, change: int | None, name: str | None, dry_run: bool) -> None:
    """Take back the newest change that still stands, or the one given. An undo can be undone too.

    \b
    Examples:
      herma skills undo
      herma skills undo 12
      herma skills undo --skill release
    """
    desk.for_people_under_approval("taking changes back")
    if dry_run:
        found = desk.library.undoable(change, name=_plain(name))
        if desk.context.json:
            desk.context.print_json({"ok": True, "dry_run": True, "change": change_json(found)})
        where = found.file or found.moved_to
        desk.context.line(f"Change {found.id} ({found.action} of {where}, {found.skill}) would be taken back.")
        return
    desk.report(desk.library.undo(change, name=_plain(name), author=desk.author))


# ---------- cli.skills.write
#
# `herma skills create` and `edit`: writing skills by hand.


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


# ---------- cli.curator
#
# `herma curator`: skills kept in shape, what was done and why, and the way back.

_CURATOR_RED, _CURATOR_GREEN, _CURATOR_PLAIN = "\x1b[31m", "\x1b[32m", "\x1b[0m"


class CuratorGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "status run report rollback list-archived restore archive pin unpin"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=CuratorGroup)
def curator() -> None:
    """Keep skills in shape: what nobody uses becomes stale and later goes to the archive, what fails is marked.

    Nothing is deleted. Every run makes a snapshot first and a report afterwards; it comes by itself once a week
    (curator.interval_hours), or when you say so. Pinned skills, and those that no agent made, stay where they are.

    \b
    Examples:
      herma curator status
      herma curator run --dry-run
      herma curator rollback
    """


def with_curator(function: Callable[Concatenate[Desk, Curator, P], None]) -> Callable[..., None]:
    """Open the curator for a command."""

    @pass_context
    @functools.wraps(function)
    def run(context: Context, /, **options: Any) -> None:
        with context.open() as opened:
            desk = Desk(context, opened.skills, opened.settings)
            function(desk, opened.curator, **options)  # type: ignore[call-arg]

    return run


@curator.command(short_help="See when it ran, when it will, and what is due")
@with_curator
def status(desk: Desk, made: Curator) -> None:
    """See when the curator ran and will run, how skills stand, and what a run would do now. Changes nothing.

    \b
    Examples:
      herma curator status
      herma curator status --json
    """
    found = made.status()
    context = desk.context
    if context.json:
        value = {
            "enabled": found.enabled,
            "last_run": iso(found.last_run),
            "next_run": iso(found.next_run),
            "runs": found.runs,
            "states": dict(found.states),
            "pinned": found.pinned,
            "archived": found.archived,
            "snapshots": found.snapshots,
            "last": report_json(found.last) if found.last else None,
            "due": [asdict(move) for move in found.plan.moves],
            "kept": dict(found.plan.kept),
        }
        context.print_json({"ok": True, **value})
        return
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items()) or "none"
    context.line(f"Skills: {counts}; {found.pinned} pinned, {found.archived} in the archive.")
    context.line(f"Last run: {when(found.last_run) if found.last_run else 'never'} ({found.runs} in all).")
    if not found.enabled:
        context.line(f"By itself it does not run: {context.command('config', 'set', 'curator.enabled', 'true')}")
    elif found.next_run is None:
        context.line("Next run: a while after it has first seen a skill at the end of a session.")
    else:
        context.line(f"Next run: {when(found.next_run)} or later, when nobody is at work.")
    context.line(f"Snapshots: {found.snapshots}.")
    if found.last and found.last.state in ("running", "interrupted", "failed"):
        context.line(f"The last run was {found.last.state}: {context.command('curator', 'report')}")
    _moves_table(context, found.plan.moves, "A run would do this now:", "A run would do nothing now.")
    for name, why in sorted(found.plan.kept.items()):
        context.line(f"  {name} stays: {why}.")


@curator.command(short_help="Look at every skill now, and do what is due")
@dry_run_option
@with_curator
def run(desk: Desk, made: Curator, dry_run: bool) -> None:
    """Look at every skill now, do what is due, and say what was done. A snapshot is made first.

    \b
    Examples:
      herma curator run --dry-run
      herma curator run
    """
    if dry_run:
        _tell(desk, made.run(dry_run=True))
        return
    desk.for_people_under_approval("putting skills away")
    with desk.context.progress("Skills") as progress:
        found = made.run(progress=lambda done, _: progress(done))
    _tell(desk, found)
    if found.state == "failed":
        desk.context.exit(1)


@curator.command(short_help="See what a run did, and why")
@click.argument("run", required=False, metavar="[ID]")
@click.option("--list", "listing", is_flag=True, help="List the runs.")
@with_curator
def report(desk: Desk, made: Curator, run: str | None, listing: bool) -> None:
    """See what a run did, and why: the newest one, or the one given.

    \b
    Examples:
      herma curator report
      herma curator report --list
      herma curator report 20260102-030405
    """
    if not listing:
        _tell(desk, made.report(run))
        return
    from herma.skills.curator import summary

    found = made.reports()
    if desk.context.json:
        desk.context.print_json({"ok": True, "runs": [report_json(each) for each in found]})
    elif found:
        rows = [(each.id, when(each.begun), each.why, each.state, summary(each)) for each in found]
        desk.context.table(["run", "when", "why", "state", "what"], rows)
    else:
        desk.context.line("There was no run yet.")


@curator.command(short_help="Bring skills back as they were before a run")
@click.argument("snapshot", required=False, metavar="[ID]")
@click.option("--exact", is_flag=True, help="Also what was changed or made since; that goes to the archive first.")
@click.option("--list", "listing", is_flag=True, help="List the snapshots.")
@dry_run_option
@with_curator
def rollback(desk: Desk, made: Curator, snapshot: str | None, exact: bool, listing: bool, dry_run: bool) -> None:
    """Bring skills back as they were before a run: the newest that did anything, or the one given.

    Skills that were changed or made since stay as they are, unless you say --exact. A snapshot of how things are now
    is made first, and every step is in the history of skills.

    \b
    Examples:
      herma curator rollback --list
      herma curator rollback --dry-run
      herma curator rollback 20260102-030405
    """
    context = desk.context
    if listing:
        found = made.snapshots()
        if context.json:
            listed = [{**asdict(each), "at": iso(each.at) if each.at else None} for each in found]
            context.print_json({"ok": True, "snapshots": listed})
        elif found:
            rows = [(each.id, when(each.at), each.skills, each.size, each.trouble or each.why) for each in found]
            context.table(["snapshot", "when", "skills", "bytes", "why"], rows)
        else:
            context.line("There is no snapshot yet.")
        return
    if not dry_run:
        desk.for_people_under_approval("bringing skills back")
    done = made.rollback(snapshot, exact=exact, dry_run=dry_run, author=desk.author)
    if context.json:
        context.print_json({**asdict(done), "ok": done.ok})
    would = "would be " if dry_run else ""
    for path, what in done.done:
        context.line(f"{path}: {would}{what}")
    for path, why in done.left:
        context.line(f"{path} stays as it is: {why}.")
    if not done.done and not done.failed:
        context.line(f"Everything that {done.snapshot} has is in its place already.")
    elif done.before:
        context.line(f"As it was before: {context.command('curator', 'rollback', done.before, '--exact')}")
    for path, why in done.failed:
        output.write(f"herma: {path} could not be brought back: {why}", sys.stderr)
    if not done.ok:
        context.exit(1)


@curator.command("list-archived", short_help="List what is in the archive")
@with_curator
def list_archived(desk: Desk, made: Curator) -> None:
    """List the skills in the archive, since when they are there, and where they were.

    \b
    Examples:
      herma curator list-archived
    """
    kept = made.archived()
    if desk.context.json:
        listed = [{"name": k.name, "folder": k.folder, "path": k.path, "at": iso(k.at)} for k in kept]
        desk.context.print_json({"ok": True, "archived": listed})
    elif kept:
        desk.context.table(["skill", "since", "was at"], [(k.name, when(k.at), k.path) for k in kept])
        desk.context.line(f"To bring one back: {desk.context.command('curator', 'restore', 'NAME')}")
    else:
        desk.context.line("The archive is empty.")


@curator.command("restore", short_help="Bring a skill back from the archive")
@name_argument
@reason_option
@with_curator
def curator_restore(desk: Desk, made: Curator, name: str, reason: str) -> None:
    """Bring a skill back from the archive, to where it was. Its age counts from now on.

    \b
    Examples:
      herma curator restore old-release
    """
    desk.for_people_under_approval("restoring skills")
    desk.report(made.restore(name, author=desk.author, reason=reason))


@curator.command("archive", short_help="Move a skill to the archive now")
@name_argument
@reason_option
@dry_run_option
@with_curator
def curator_archive(desk: Desk, made: Curator, name: str, reason: str, dry_run: bool) -> None:
    """Move a skill to the archive now, whatever its age.

    \b
    Examples:
      herma curator archive old-release
    """
    if dry_run:
        desk.would_archive(name)
        return
    desk.for_people_under_approval("archiving skills")
    desk.report(made.archive(name, author=desk.author, reason=reason))


@curator.command("pin", short_help="Leave a skill as it is, whatever happens")
@name_argument
@with_curator
def curator_pin(desk: Desk, made: Curator, name: str) -> None:
    """Leave a skill as it is: the curator does not touch it, and agents cannot change it.

    \b
    Examples:
      herma curator pin release
    """
    usage = made.pin(name)
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(f"{usage.name} is pinned.")


@curator.command("unpin", short_help="Let a skill be looked after again")
@name_argument
@with_curator
def curator_unpin(desk: Desk, made: Curator, name: str) -> None:
    """Let a skill be looked after again.

    \b
    Examples:
      herma curator unpin release
    """
    for_people_only("Lifting the protection of a skill")
    usage = made.unpin(name)
    if desk.context.json:
        desk.context.print_json({"ok": True, **usage_json(usage)})
    desk.context.line(f"{usage.name} is no longer pinned.")


# ── how it is told ──


def _tell(desk: Desk, found: CuratorReport) -> None:
    from herma.skills.curator import summary

    context = desk.context
    if context.json:
        context.print_json({"ok": found.state != "failed", **report_json(found)})
        return
    state = "" if found.state == "done" else f" ({found.state})"
    context.line(f"{'Dry run' if found.dry_run else f'Run {found.id}'}{state}: {summary(found)}")
    _moves_table(context, found.moves, "", "")
    colours = output.colours(sys.stdout)
    for line in found.diff.splitlines():
        colour = {"+": _CURATOR_GREEN, "-": _CURATOR_RED}.get(line[:1]) if colours else None
        text = output.visible(line)
        sys.stdout.write(f"{colour}{text}{_CURATOR_PLAIN}\n" if colour else f"{text}\n")
    for name, why in sorted(found.kept.items()):
        context.line(f"{name} stays: {why}.")
    for pair in found.merges:
        inbox = f" Proposed in the inbox: {', '.join(map(str, pair.pending))}." if pair.pending else ""
        context.line(f"{pair.skills[0]} and {pair.skills[1]}: {pair.why}.{inbox} {pair.said}".rstrip())
    for note in found.notes:
        context.line(note)
    if found.dry_run:
        context.line("Nothing was changed.")
    elif found.snapshot and found.done:
        context.line(f"To take it back: {context.command('curator', 'rollback', found.snapshot)}")


def _moves_table(context: Context, moves: Any, before: str, nothing: str) -> None:
    if not moves:
        if nothing:
            context.line(nothing)
        return
    if before:
        context.line(before)
    rows = [(m.skill, m.before, m.after, m.reason, m.result + (f": {m.said}" if m.said else "")) for m in moves]
    context.table(["skill", "was", "is", "why", ""], rows)


def report_json(found: CuratorReport) -> Json:
    """A report with everything in it, times as text."""
    return {**asdict(found), "begun": iso(found.begun), "ended": iso(found.ended)}
