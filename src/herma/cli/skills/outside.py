"""`herma skills install` and `scan`: skills from outside."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from herma.cli.person import for_people_only
from herma.cli.skills.desk import Desk, Json, dry_run_option, outcome_json, skills, with_skills
from herma.types import TRUSTS, SkillReport, Trust
from herma.wording.sessions import count


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
