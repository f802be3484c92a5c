"""`herma eval skills`: how often a task finds its skill, and how often nothing is found where nothing is needed."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, pass_context

if TYPE_CHECKING:
    from herma.evals.skill_homes import SkillMode
    from herma.evals.skills import SkillsResult


@click.command(cls=HermaCommand)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--skills",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The SKILL.md files themselves; without it, the names and descriptions of the data.",
)
@click.option("--mode", "modes", type=click.Choice(("words", "hybrid")), multiple=True, help="May be given twice.")
@pass_context
def skills(context: Context, data: Path, folder: Path | None, modes: tuple[SkillMode, ...]) -> None:
    """Route labelled requests to skills, and count how often the right one is named, and how often none is.

    DATA is a folder with corpus.jsonl (doc_id, name, description) and queries.jsonl (qid, query, gold_doc_ids, also_ok;
    no gold: none is needed). A request that needs a skill and gets none counts as wrong.

    \b
    Examples:
      herma eval skills data/skills_routing --skills data/skills
      herma eval skills data/skills_routing --mode words --mode hybrid --json
    """
    from herma.evals import data as files
    from herma.evals.skill_homes import routing
    from herma.evals.skills import measure

    known, questions = files.read_skills(data)
    found: list[tuple[SkillMode, SkillsResult]] = []
    for mode in modes or ("words",):
        label = f"{data.name}, {mode}"
        with routing(data, folder, mode, context.flags) as route, context.progress(label, len(questions)) as report:
            found.append((mode, measure(known, questions, route, report)))
    if context.json:
        context.print_json({"ok": True, "kind": "skills", "results": [_json(mode, one) for mode, one in found]})
        return
    columns = ("mode", "requests", "hit@1", "hit@5", "none needed", "silent there", "wrongly silent", "p95 ms")
    rows = [
        [
            *(mode, len(one.answers), f"{hit(one, 1):.3f}", f"{hit(one, 5):.3f}"),
            *(one.none_needed, _share(one.abstains), one.wrongly_silent, one.p95_ms),
        ]
        for mode, one in found
    ]
    context.table(columns, rows)


def hit(result: SkillsResult, k: int) -> float:
    """The share of requests whose skill is among the first k."""
    answers = result.answers
    return sum(any(place <= k for place in one.places) for one in answers) / max(len(answers), 1)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _json(mode: str, result: SkillsResult) -> dict[str, Any]:
    shares = {"hit@1": round(hit(result, 1), 4), "hit@5": round(hit(result, 5), 4), "abstains": result.abstains}
    return {"mode": mode, **shares, **{key: value for key, value in asdict(result).items() if key != "answers"}}
