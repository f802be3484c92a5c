"""`herma skills`: read, find, write, install and archive skills, and keep them in shape."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from herma.cli import output
from herma.cli.context import (
    EXIT_NOTHING,
    CommandContext,
    HermaGroup,
    author,
    completing,
    dry_run_option,
    for_people_only,
    with_home,
)
from herma.cli.encode import Json, encode, iso
from herma.cli.output import count, one_line, when
from herma.errors import UsageError
from herma.skills.document import compose
from herma.skills.rows import (
    SKILL_STATES,
    TRUSTS,
    CreateSkill,
    CuratorMove,
    CuratorReport,
    DeleteSkill,
    EditSkill,
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
    SkillUsage,
    SkillWritten,
    Trust,
    WriteSkillFile,
)

if TYPE_CHECKING:
    from herma.skills.library import SkillView


@click.group(cls=HermaGroup, order="list show find create edit fill install scan archive mark tidy")
def skills() -> None:
    """Read, find, write and tidy skills: SKILL.md files that tell agents how something is done.

    Every change is in `herma log`, and `herma undo` undoes it. Nothing is deleted: `archive` moves a skill away,
    `archive --undo` brings it back.

    \b
    Examples:
      herma skills list
      herma skills find "cut a release"
      herma skills show release
      herma skills tidy --dry-run

    \b
    With --json a change prints
      ok, outcome, name, message
    and the fields of its outcome:
      SkillWritten   path, change                 SkillUnchanged  (nothing more)
      SkillStaged    pending                      SkillRefused    kind, matches, preview, findings
    """


reason_option = click.option("--reason", default="", help="Why, for the history.")
trust_option = click.option("--trust", is_flag=True, help="Store it although the scanner calls it dangerous.")


def _complete_skill(context: CommandContext, typed: str) -> list[tuple[str, str]]:
    return [(one.name, one.description) for one in context.h.skills.list() if one.name.startswith(typed)]


name_argument = click.argument("name", shell_complete=completing(_complete_skill))


# ── reading ──


@skills.command("list", short_help="List the skills")
@click.option("--category", help="Only skills of this category.")
@click.option("--all", "everything", is_flag=True, help="Also skills that cannot be used here, and refused files.")
@click.option("--archived", is_flag=True, help="The skills in the archive.")
@with_home
def list_skills(context: CommandContext, category: str | None, everything: bool, archived: bool) -> None:
    """List the skills that can be used here, by category and name.

    \b
    Examples:
      herma skills list
      herma skills list --category devops
      herma skills list --all --json
      herma skills list --archived
    """
    library = context.h.skills
    if archived:
        _list_archive(context)
        return
    found, usage, listing = library.list(category, everything=everything), library.usage(), library.listing()
    if context.json:
        listed = [skill_json(context, skill, usage.get(skill.name)) for skill in found]
        refused = [encode(each) for each in listing.refused]
        context.print_json({"ok": True, "skills": listed, "categories": dict(listing.categories), "refused": refused})
        return
    if found:
        rows = [_list_row(context, skill, usage.get(skill.name)) for skill in found]
        columns = ["skill", "category", "state", "uses", "for"]
        context.table(columns, rows, drop=("uses", "category", "state"), cut=True)
    else:
        context.line(f"There are no skills in the category {category!r}." if category else "There are no skills yet.")
    for each in listing.refused if everything else ():
        context.line(f"refused: {each.path or each.root}: {each.reason}")
    hidden = len(listing.skills) - len(library.list())
    others = [count(hidden, "skill that cannot be used here", "skills that cannot be used here")] if hidden else []
    others += [count(len(listing.refused), "refused file")] if listing.refused else []
    if others and not everything:
        context.line(f"Not listed: {' and '.join(others)}. To list them: {context.command('skills', 'list', '--all')}")


def _list_row(context: CommandContext, skill: Skill, usage: SkillUsage | None) -> Sequence[object]:
    offer = context.h.skills.offer(skill)
    state = usage.state if usage else "active"
    remarks = [state, *(["pinned"] if usage and usage.pinned else []), *(["read-only"] if skill.external else [])]
    shown = ", ".join(remarks) if offer.offered else f"not here: {offer.reason}"
    return (skill.name, skill.category or "-", shown, usage.uses if usage else 0, one_line(skill.description, 120))


def _list_archive(context: CommandContext) -> None:
    kept = context.h.skills.archived()
    if context.json:
        context.print_json({"ok": True, "archived": [encode(each) for each in kept]})
    elif kept:
        context.table(["skill", "since", "was at", "is at"], [(k.name, when(k.at), k.path, k.folder) for k in kept])
        context.line(f"To bring one back: {context.command('skills', 'archive', '--undo', 'NAME')}")
    else:
        context.line("The archive is empty.")


def skill_json(context: CommandContext, skill: Skill, usage: SkillUsage | None) -> Json:
    offer = context.h.skills.offer(skill)
    fields = ("name", "description", "category", "path", "root", "version", "tags", "triggers", "warnings")
    return {
        **{name: getattr(skill, name) for name in fields},
        "readiness": offer.readiness,
        "reason": offer.reason,
        "state": usage.state if usage else "active",
        "pinned": bool(usage and usage.pinned),
        "uses": usage.uses if usage else 0,
    }


@skills.command(short_help="Show a skill in full")
@name_argument
@click.option("--file", "file", metavar="PATH", help="One of its files, for example references/details.md.")
@with_home
def show(context: CommandContext, name: str, file: str | None) -> None:
    """Show a skill: its text, pitfalls and files, how often it was used, and the scanner's verdict.

    \b
    Examples:
      herma skills show release
      herma skills show devops/release --file scripts/tag.sh
    """
    if file:
        _show_file(context, name, file)
        return
    view = context.h.skills.view(name)
    if context.json:
        context.print_json({"ok": True, **skill_json(context, view.skill, view.usage), **view_json(view)})
        return
    skill, usage, line = view.skill, view.usage, context.line
    line(f"{skill.name}: {skill.description}")
    line(view.where)
    line(
        f"{usage.state}{', pinned' if usage.pinned else ''}; made by: {usage.origin}; {_counts(usage)}; "
        f"last used {when(usage.last_used)}"
    )
    if view.offer.reason:
        line(f"Here: {view.offer.readiness}: {view.offer.reason}")
    for warning in skill.warnings:
        context.warn(f"{skill.path}: {warning}")
    for pitfall in skill.pitfalls:
        line(f"! {pitfall}")
    if files := [each.path for each in view.files if each.path != "SKILL.md"]:
        line(f"Files: {', '.join(files[:30])}")
    if view.report.findings:
        line(f"Scanner: {view.report.verdict}; the findings: {context.command('skills', 'scan', skill.name)}")
    line()
    line(f"[withheld: {view.withheld}]" if view.withheld else view.text.rstrip("\n"))


def _show_file(context: CommandContext, name: str, file: str) -> None:
    data = context.h.skills.read_file(name, file)
    if data is None:
        hint = f"`{context.command('skills', 'show', name)}` lists its files."
        raise UsageError(f"{name} has no file {file!r}.", hint=hint, code="not_found")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is not text: {len(data):,} bytes.") from None
    if context.json:
        context.print_json({"ok": True, "name": name, "file": file, "content": text})
    context.line(text.rstrip("\n"))


def view_json(view: SkillView) -> Json:
    fields = ("pitfalls", "template", "language", "parameters", "dependencies")
    return {
        "content": view.text,
        "withheld": view.withheld,
        "where": view.where,
        "files": [encode(each, omit=["text", "executable"]) for each in view.files],
        **{name: getattr(view.skill, name) for name in fields},
        "verdict": view.report.verdict,
        "usage": encode(view.usage),
    }


@skills.command(short_help="Find the skills that fit a task")
@click.argument("task", nargs=-1, required=True)
@click.option("--limit", type=click.IntRange(1, 100), default=5, show_default=True, help="Show at most this many.")
@with_home
def find(context: CommandContext, task: Sequence[str], limit: int) -> None:
    """Find the skills that fit a task, best first. Nothing is shown if no skill is similar enough (exit code 1).

    \b
    Examples:
      herma skills find cut a release of the library
      herma skills find --limit 1 --json "resize all pictures in a folder"
    """
    found = context.h.skills.find(" ".join(task), limit)
    if context.json:
        matches, nearest = ([_match_json(match) for match in each] for each in (found.matches, found.nearest))
        context.print_json({"ok": True, **encode(found), "matches": matches, "nearest": nearest})
    for match in found.matches:
        context.line(f"{match.score:.2f}  {match.name}: {one_line(match.skill.description, 90)}")
        for reason in match.reasons:
            context.line(f"      {reason}")
    if found.abstained:
        context.line(f"No skill fits: {found.abstained}.")
    for note in found.notes:
        context.line(note)
    if not found.matches:
        context.exit(EXIT_NOTHING)


def _match_json(match: SkillMatch) -> Json:
    said = {"name": match.name, "path": match.skill.path, "description": match.skill.description}
    return {**said, **encode(match, omit=["skill"])}


@skills.command(short_help="Fill the code template of a skill")
@name_argument
@click.argument("values", nargs=-1, metavar="NAME=VALUE…")
@with_home
def fill(context: CommandContext, name: str, values: Sequence[str]) -> None:
    """Fill the code template of a skill and print it. Nothing is run.

    Values may have letters, digits and _ @ % + : . / - (in commands also , and =). Other values are refused, unless the
    template says that it is prose (language: text).

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
    filled = context.h.skills.fill(name, given)
    if context.json:
        context.print_json({"ok": True, **encode(filled)})
        return
    context.line(filled.text)
    for each in filled.unknown:
        context.warn(f"The template has no place for {each}.")
    for each in filled.left_open:
        context.warn(f"{each} is still open.")


# ── writing ──


@skills.command(short_help="Write a new skill")
@name_argument
@click.option("--from", "source", metavar="FILE", help="The whole SKILL.md; - reads it from the input.")
@click.option("--description", default="", help="What it does and when to use it, without --from.")
@click.option("--body", default="", help="The steps, without --from.")
@click.option("--category", default="", help="The folder to put it in.")
@click.option("--despite-similar", is_flag=True, help="Create it although another skill is nearly the same.")
@trust_option
@reason_option
@dry_run_option
@with_home
def create(
    context: CommandContext,
    name: str,
    source: str | None,
    description: str,
    body: str,
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
    if not source and not (description and body):
        raise UsageError("A skill needs --from, or --description and --body.", hint="`herma skills create --help`")
    content = _read_text(source) if source else compose(Skill(name, description, body))
    _carry_out(context, CreateSkill(name, content, category, despite_similar), reason, trust=trust, dry_run=dry_run)


@skills.command(short_help="Change a skill")
@name_argument
@click.option("--from", "source", metavar="FILE", help="The whole new text; - reads it from the input.")
@click.option("--old", default="", help="A passage to replace, unique in its file.")
@click.option("--new", default=None, help="The text that replaces it.")
@click.option("--all", "replace_all", is_flag=True, help="Replace every occurrence.")
@click.option("--file", "file", default="SKILL.md", show_default=True, help="The file to change.")
@trust_option
@reason_option
@dry_run_option
@with_home
def edit(
    context: CommandContext,
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
    """Change a skill: one passage, a whole file, or a file in your editor.

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
    else:
        if source:
            text = _read_text(source)
        else:
            current = context.h.skills.read_file(name, file) or b""
            text = click.edit(current.decode("utf-8-sig", "replace"), extension=".md") or ""
        if not text:
            context.line("Nothing was changed.")
            return
        op = EditSkill(name, text) if file == "SKILL.md" else WriteSkillFile(name, file, text)
    _carry_out(context, op, reason, trust=trust, dry_run=dry_run)


def _read_text(source: str) -> str:
    """Read a file, or standard input for `-`."""
    try:
        data = sys.stdin.buffer.read() if source == "-" else Path(source).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as exc:
        raise UsageError(f"{source} cannot be read: {exc.strerror}.", hint="Give a file, or - for input.") from exc
    except UnicodeDecodeError as exc:
        raise UsageError(f"{source} is not UTF-8 text (byte {exc.start}).") from exc


def _carry_out(context: CommandContext, op: SkillOp, reason: str, *, trust: bool, dry_run: bool) -> None:
    if trust:
        for_people_only("Vouching for a text that the scanner objects to")
    if not dry_run:
        _report(context, context.h.skills.apply(op, author=author(), reason=reason, trust=trust))
        return
    if refused := context.h.skills.rehearse(op, author=author()):
        _refuse(context, refused)
    if context.json:
        context.print_json({"ok": True, "dry_run": True, "name": op.name})
    context.line(f"{op.name} would be written. Nothing was changed.")


def _report(context: CommandContext, outcome: SkillOutcome) -> None:
    """Print the outcome of a change; a refusal ends the command with exit code 1."""
    if isinstance(outcome, SkillRefused):
        _refuse(context, outcome)
    if context.json:
        context.print_json(outcome_json(outcome))
        return
    following = ""
    if isinstance(outcome, SkillWritten):
        following = f" Change {outcome.change}; to undo it: {context.command('undo', f's{outcome.change}')}"
    elif isinstance(outcome, SkillStaged):
        following = f" To decide: {context.command('inbox', 'approve', f's{outcome.pending}')}"
    context.line(outcome.message + following)


def _refuse(context: CommandContext, outcome: SkillRefused) -> NoReturn:
    if context.json:
        context.print_json(outcome_json(outcome))
    sys.stdout.flush()
    lines = [f"herma: {outcome.message}"]
    lines += [f"    {finding.rule}: {finding.why}" for finding in outcome.findings[:10]]
    lines += [f"    {match}" for match in outcome.matches[:10]]
    if outcome.preview:
        lines += ["  the text there:", *(f"    {line}" for line in outcome.preview.split("\n")[:20])]
    if hint := _HINTS.get(outcome.kind):
        lines.append(f"  → {hint}")
    for line in lines:
        output.write(line, sys.stderr)
    context.exit(EXIT_NOTHING)


_HINTS = {
    "similar": "Improve that one, or add --despite-similar.",
    "blocked": "Change the text. To store it anyway, add --trust.",
    "not found": "`herma skills list` lists the skills.",
    "pinned": "`herma skills mark --unpin` removes the protection.",
    "overtaken": "`herma log --kind skills` lists the changes since; undo those first.",
    "exists": "Choose another name, or edit the existing skill.",
}


def outcome_json(outcome: SkillOutcome) -> Json:
    return {"ok": outcome.ok, "outcome": type(outcome).__name__, **encode(outcome)}


# ── skills from outside ──


@skills.command(short_help="Install skills from a folder or an archive")
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--category", default="", help="The folder to put them in.")
@click.option("--name", default="", help="Install it under another name.")
@click.option(
    "--origin",
    type=click.Choice(TRUSTS),
    default="community",
    show_default=True,
    help="Its author; decides which verdicts of the scanner are accepted.",
)
@click.option("--force", is_flag=True, help="Install it although the scanner advises caution; never if dangerous.")
@dry_run_option
@with_home
def install(
    context: CommandContext, path: Path, category: str, name: str, origin: Trust, force: bool, dry_run: bool
) -> None:
    """Install skills from a folder, a folder of skills, or an archive (.zip, .tar.gz).

    Each is scanned first. Skills from the community are installed only if the scanner calls them safe; those that call
    for caution need --force, and dangerous ones are always refused.

    \b
    Examples:
      herma skills install ./release
      herma skills install skills.zip --category team --dry-run
    """
    if force or origin != "community":
        for_people_only("Vouching for a skill from outside")
    _for_people_under_approval(context, "installing skills")
    done = context.h.skills.install(
        path, trust=origin, category=category, name=name, force=force, rehearsal=dry_run, author=author()
    )
    for each in done:
        if each.outcome.ok:
            context.line(f"{each.outcome.message} Scanner: {each.report.verdict}.")
        else:
            context.warn(each.outcome.message)
        _print_findings(context, each.report, only_grave=each.outcome.ok)
    refused = [each for each in done if not each.outcome.ok]
    if context.json:
        results = [{**outcome_json(one.outcome), **_scan_json(one.source, one.report)} for one in done]
        context.print_json({"ok": not refused, "dry_run": dry_run, "results": results})
    elif not force and any(each.report.verdict == "caution" for each in refused):
        context.line("To install it anyway after reviewing it: --force")
    if refused:
        context.exit(EXIT_NOTHING)


@skills.command(short_help="Show what the scanner finds in a skill")
@click.argument("path")
@click.option("--trust", is_flag=True, help="Trust an installed skill as it is now, although it is called dangerous.")
@with_home
def scan(context: CommandContext, path: str, trust: bool) -> None:
    """Show what the scanner finds in a skill: a folder, an archive, or the name of an installed skill.

    The exit code is 1 if anything is dangerous. Agents are not shown the text of a dangerous skill; with --trust, a
    person vouches for its present text. Any change to it ends that.

    \b
    Examples:
      herma skills scan ./release
      herma skills scan release
      herma skills scan release --trust
    """
    library = context.h.skills
    if trust:
        for_people_only("Vouching for a skill")
        _print_usage(context, library.vouch(path), "is trusted as it is now.")
        return
    if Path(path).exists():
        results = [(incoming.source, library.scan(incoming)) for incoming in library.incoming(path)]
    else:
        skill = library.get(path)
        results = [(skill.path, library.scan(library.files(skill.path)))]
    dangerous = any(report.verdict == "dangerous" for _, report in results)
    if context.json:
        context.print_json({"ok": not dangerous, "results": [_scan_json(*each) for each in results]})
    for source, report in results:
        context.line(f"{source}: {report.verdict} ({count(report.files, 'file')})")
        _print_findings(context, report)
    if dangerous:
        context.exit(EXIT_NOTHING)


def _print_findings(context: CommandContext, report: SkillReport, *, only_grave: bool = False) -> None:
    shown = [each for each in report.findings if not only_grave or each.severity in ("critical", "high")]
    for each in shown[:30]:
        where = f"{each.file}:{each.line}" if each.line else each.file
        context.line(f"  {each.severity:8}  {where}  {each.why} ({each.category}, {each.rule})")
        if each.excerpt:
            context.line(f"            {each.excerpt}")
    if len(shown) > 30:
        context.line(f"  and {len(shown) - 30} more")


def _scan_json(source: str, report: SkillReport) -> Json:
    return {"source": source, **encode(report, rename={"findings": "scan"})}


# ── archive, protection, state ──


@skills.command(short_help="Move a skill to the archive, or bring it back")
@name_argument
@click.option("--undo", is_flag=True, help="Bring it back to where it was.")
@reason_option
@dry_run_option
@with_home
def archive(context: CommandContext, name: str, undo: bool, reason: str, dry_run: bool) -> None:
    """Move a skill to the archive, or bring it back: the one archived last under this name, or that of a folder there.

    \b
    Examples:
      herma skills archive old-release
      herma skills archive old-release --dry-run
      herma skills archive old-release --undo
    """
    if undo:
        _for_people_under_approval(context, "restoring skills")
        _report(context, context.h.skills.restore(name, author=author()))
        return
    if not dry_run:
        _for_people_under_approval(context, "archiving skills")
        _report(context, context.h.skills.archive(name, author=author(), reason=reason))
        return
    skill = context.h.skills.get(name)
    if context.json:
        context.print_json({"ok": True, "dry_run": True, "name": skill.name, "path": skill.path})
    context.line(f"{skill.name} ({skill.path}) would be archived. Nothing was changed.")


_RESULTS = {"success": True, "failure": False, "unknown": None}


@skills.command(short_help="Record how a skill did, set its state, or pin it")
@name_argument
@click.argument(
    "what", required=False, type=click.Choice([*_RESULTS, *(state for state in SKILL_STATES if state != "archived")])
)
@click.option("--pin/--unpin", default=None, help="Protect it from agents and tidying, or end that.")
@with_home
def mark(context: CommandContext, name: str, what: str | None, pin: bool | None) -> None:
    """Record a use outside a session (success, failure or unknown), set the state of a skill, or pin it.

    Uses inside sessions are counted automatically. A deprecated skill is ranked last when skills are searched. Agents
    cannot change a pinned skill, and tidying leaves it where it is.

    \b
    Examples:
      herma skills mark release success
      herma skills mark old-release deprecated
      herma skills mark release --pin
    """
    if (what is None) is (pin is None):
        raise UsageError("Give a result or a state, or --pin or --unpin.", hint="Nothing was changed.")
    if what is None:
        if not pin:
            for_people_only("Removing the protection of a skill")
        usage = context.h.skills.pin(name, pinned=bool(pin))
        _print_usage(context, usage, "is pinned." if pin else "is no longer pinned.")
        return
    if what in _RESULTS:
        usage = context.h.skills.record(name, _RESULTS[what])
        _print_usage(context, usage, f"was used: {_counts(usage)}.")
        return
    _for_people_under_approval(context, "setting the state of a skill")
    (before,) = context.h.skills.usage(name).values()
    back = context.command("skills", "mark", name, before.state) if before.state not in (what, "archived") else ""
    usage = context.h.skills.set_state(name, what)  # type: ignore[arg-type]  # one of SKILL_STATES
    _print_usage(context, usage, f"is {what}." + (f" To undo it: {back}" if back else ""))


def _counts(usage: SkillUsage) -> str:
    outcomes = f"{count(usage.successes, 'success', 'successes')}, {count(usage.failures, 'failure')}"
    return f"{count(usage.uses, 'use')}, {outcomes}"


def _print_usage(context: CommandContext, usage: SkillUsage, said: str) -> None:
    if context.json:
        context.print_json({"ok": True, **usage_json(usage)})
    context.line(f"{usage.name} {said}")


def usage_json(usage: SkillUsage) -> Json:
    return encode(usage, success_rate=round(usage.success_rate, 4))


def _for_people_under_approval(context: CommandContext, what: str) -> None:
    """Refuse an agent that would go round the inbox."""
    if context.settings().skills.write_approval:
        for_people_only(f"With skills.write_approval on, {what}")


# ── keeping skills in shape ──


def _status(context: CommandContext) -> None:
    """Show how skills are used and how they did, when they were and will be tidied, and what tidying would do now."""
    known = sorted(context.h.skills.usage().values(), key=lambda each: (-each.uses, each.name))
    found = context.h.curator.status()
    if context.json:
        tidying = {**encode(found, omit=["plan"]), "due": found.plan.moves}
        kept = {"kept": found.plan.kept, "next_run": iso(found.next_run)}
        context.print_json({"ok": True, "usage": [usage_json(each) for each in known], **tidying, **kept})
        return
    if known:
        counted = ("uses", "views", "successes", "failures", "patches")
        rows = [
            (
                *(each.name, each.state + (", pinned" if each.pinned else "")),
                *(getattr(each, column) for column in counted),
                *(when(each.last_used), each.origin),
            )
            for each in known
        ]
        columns = ["skill", "state", *counted, "last used", "made by"]
        context.table(columns, rows, drop=("patches", "views", "made by", "last used"))
    else:
        context.line("No skill was used yet.")
    counts = ", ".join(f"{count} {state}" for state, count in found.states.items()) or "none"
    context.line(f"Skills: {counts}; {found.pinned} pinned, {found.archived} archived.")
    context.line(f"Tidied: {when(found.last_run) if found.last_run else 'never'} ({count(found.runs, 'time')}).")
    if not found.enabled:
        context.line(f"Automatic tidying is off: {context.command('config', 'set', 'curator.enabled', 'true')}")
    elif found.next_run is None:
        context.line("Next: some time after the end of a session in which Herma first sees a skill.")
    else:
        context.line(f"Next: {when(found.next_run)} or later, when no session is active.")
    if found.last and found.last.state in ("running", "interrupted", "failed"):
        context.line(f"The last run was {found.last.state}: {context.command('skills', 'tidy', '--report')}")
    context.line("Tidying would do this now:" if found.plan.moves else "Tidying would do nothing now.")
    _moves_table(context, found.plan.moves)
    for each, why in sorted(found.plan.kept.items()):
        context.line(f"  {each} stays: {why}.")


@skills.command(short_help="Check every skill; archive unused ones, mark failing ones")
@dry_run_option
@click.option("--status", is_flag=True, help="Show how skills are used and did, and what tidying would do now.")
@click.option("--list", "listing", is_flag=True, help="List earlier runs.")
@click.option("--report", "run", is_flag=False, flag_value="last", metavar="[ID]", help="Show an earlier run.")
@click.option("--rollback", is_flag=False, flag_value="last", metavar="[ID]", help="Undo the newest or the given run.")
@with_home
def tidy(
    context: CommandContext, dry_run: bool, status: bool, listing: bool, run: str | None, rollback: str | None
) -> None:
    """Check every skill, archive unused ones, mark failing ones, and print what was done.

    --rollback undoes a run, and leaves skills that were changed since as they are. This runs once a week by itself.
    Pinned skills, and skills that no agent made, are not archived.

    \b
    Examples:
      herma skills tidy --status
      herma skills tidy --dry-run
      herma skills tidy
      herma skills tidy --report 20260102-030405
      herma skills tidy --rollback
    """
    if status:
        _status(context)
        return
    if listing:
        _list_runs(context, context.h.curator.reports())
        return
    if rollback is not None:
        _roll_back(context, None if rollback == "last" else rollback, dry_run=dry_run)
        return
    if run is not None:
        found = context.h.curator.report(None if run == "last" else run)
    elif dry_run:
        found = context.h.curator.run(dry_run=True)
    else:
        _for_people_under_approval(context, "archiving skills")
        with context.progress("Skills") as progress:
            found = context.h.curator.run(progress=progress)
    if context.json:
        context.print_json({"ok": found.state != "failed", **encode(found)})
    else:
        _print_run(context, found)
    if found.state == "failed" and run is None:
        context.exit(EXIT_NOTHING)


def _list_runs(context: CommandContext, found: Sequence[CuratorReport]) -> None:
    if context.json:
        context.print_json({"ok": True, "runs": [encode(each) for each in found]})
    elif found:
        rows = [(each.id, when(each.begun), each.why, each.state, each.summary) for each in found]
        context.table(["run", "when", "why", "state", "what"], rows, drop=("why", "when"))
    else:
        context.line("Skills were never tidied.")


def _print_run(context: CommandContext, found: CuratorReport) -> None:
    state = "" if found.state == "done" else f" ({found.state})"
    context.line(f"{'Dry run' if found.dry_run else f'Run {found.id}'}{state}: {found.summary}")
    _moves_table(context, found.moves)
    for line in found.diff.splitlines():
        context.line(line)
    for name, why in sorted(found.kept.items()):
        context.line(f"{name} stays: {why}.")
    for pair in found.merges:
        inbox = f" Proposed in the inbox: {', '.join(map(str, pair.pending))}." if pair.pending else ""
        context.line(f"{pair.skills[0]} and {pair.skills[1]}: {pair.why}.{inbox} {pair.said}".rstrip())
    for note in found.notes:
        context.line(note)
    if found.dry_run:
        context.line("Nothing was changed.")
    elif found.done:
        context.line(f"To undo it: {context.command('skills', 'tidy', '--rollback', found.id)}")


def _moves_table(context: CommandContext, moves: Sequence[CuratorMove]) -> None:
    if moves:
        rows = [(m.skill, m.before, m.after, m.reason, m.result + (f": {m.said}" if m.said else "")) for m in moves]
        context.table(["skill", "was", "is", "why", ""], rows)


def _roll_back(context: CommandContext, run: str | None, *, dry_run: bool) -> None:
    """Undo the run with this id, or the newest one that changed anything."""
    if not dry_run:
        _for_people_under_approval(context, "restoring skills")
    done = context.h.curator.rollback(run, dry_run=dry_run, author=author())
    if context.json:
        context.print_json({"ok": done.ok, **encode(done)})
    for skill, what in done.done:
        context.line(f"{skill}: {'would be ' if dry_run else ''}{what}")
    for skill, why in done.left:
        context.line(f"{skill} stays as it is: {why}.")
    if not done.done and not done.failed:
        context.line(f"Nothing to do: everything that run {done.run} did is undone.")
    for skill, why in done.failed:
        output.write(f"herma: {skill} was not restored: {why}", sys.stderr)
    if not done.ok:
        context.exit(EXIT_NOTHING)


# ── as `herma log` and `herma inbox` show changes and proposals ──


def change_json(change: SkillChange) -> Json:
    """Return a change without the texts before and after it."""
    return encode(change, omit=["before", "after"], at=iso(change.at))


def pending_json(item: SkillPending) -> Json:
    return encode(item, omit=["decision"], action=type(item.operation).__name__)


def described(op: SkillOp) -> list[str]:
    """Return what a proposed operation would do, in a few lines."""
    match op:
        case CreateSkill() | EditSkill():
            verb = "create" if isinstance(op, CreateSkill) else "replace by"
            return [f"{verb}:", *(f"  {line}" for line in op.content.split("\n")[:12])]
        case PatchSkill():
            return [f"in {op.file}:", f"  - {one_line(op.old, 90)}", f"  + {one_line(op.new, 90)}"]
        case DeleteSkill():
            return ["archive it" + (f", absorbed into {op.absorbed_into}" if op.absorbed_into else "")]
        case WriteSkillFile():
            return [f"write {op.file}: {one_line(op.content, 80)}"]
        case RemoveSkillFile():
            return [f"remove {op.file}"]
