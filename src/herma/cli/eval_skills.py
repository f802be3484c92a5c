"""`herma eval skills`: how often a task finds its skill, and how often nothing is found where nothing is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, pass_context
from herma.errors import UsageError

if TYPE_CHECKING:
    from herma.evals.measures import Answered
    from herma.evals.skills import SkillsResult
    from herma.types import FindMode

    Row = tuple[str, FindMode, SkillsResult]

_ALL: tuple[FindMode, ...] = ("words", "vectors", "hybrid")


@click.command(cls=HermaCommand)
@click.argument("data", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--skills",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The SKILL.md files themselves; measured besides the names and descriptions of the data.",
)
@click.option(
    "--mode",
    "modes",
    type=click.Choice(_ALL),
    multiple=True,
    help="By words, by meaning, or by both; may be given several times. Default: all that are possible here.",
)
@click.option(
    "--others",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="A text file of requests that need no skill, one in each line.",
)
@click.option(
    "--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep the run in this file, to be compared later."
)
@pass_context
def skills(
    context: Context,
    data: Path,
    folder: Path | None,
    modes: tuple[FindMode, ...],
    others: Path | None,
    save: Path | None,
) -> None:
    """Route labelled requests to skills, and count how often the right one is named, and how often none is.

    DATA is a folder with corpus.jsonl (doc_id, name, description) and queries.jsonl (qid, query, gold_doc_ids, also_ok;
    no gold: none is needed). The skills are tried as DATA has them, names and descriptions only, and with --skills also
    as the files are. A request that needs a skill and gets none counts as wrong; ranked@k counts it by what came
    nearest.

    \b
    Examples:
      herma eval skills data/skills_routing --skills data/skills
      herma eval skills data/skills_routing --mode words --json
      herma eval skills data/skills_routing --others small_talk.txt --save before.json
    """
    from herma.evals import data as files

    if save is not None and not save.parent.is_dir():  # said before the work, not after it
        raise UsageError(f"{save.parent} is no folder.", hint="Choose another place for --save.")
    known, questions = files.read_skills(data)
    lines = _lines(others)
    chosen = list(dict.fromkeys(modes)) or _possible(context)
    found: list[Row] = []
    for case, place in [("names and descriptions", None), *([("files", folder)] if folder else [])]:
        found += _measured(context, data, (case, place), chosen, known, questions, lines)
    if save is not None:
        _save(data.name, found, save)
    if context.json:
        context.print_json({"ok": True, "kind": "skills", "results": [_json(row) for row in found], "saved": save})
        return
    _table(context, found)
    if not modes and chosen == ["words"]:
        context.line("Words only: there is no embedder (herma models install e5-small).")
    if save is not None:
        context.line(f"Saved in {save}.")


def _possible(context: Context) -> list[FindMode]:
    from herma.models.embedding.choose import make_embedder

    settings = context.settings()
    return list(_ALL) if make_embedder(settings.embedding, home=settings.home).embedder is not None else ["words"]


def _lines(path: Path | None) -> list[str]:
    try:
        return [line.strip() for line in path.read_text("utf-8").splitlines() if line.strip()] if path else []
    except (OSError, UnicodeDecodeError) as exc:
        raise UsageError(f"{path} cannot be read as text.", hint="One request in each line, in UTF-8.") from exc


def _measured(
    context: Context,
    data: Path,
    case: tuple[str, Path | None],
    modes: Sequence[FindMode],
    known: Any,
    questions: Any,
    others: Sequence[str],
) -> list[Row]:
    """One way the skills are known, mode by mode. Words come alone, so that they need no embedder."""
    from herma.evals.skill_homes import routing
    from herma.evals.skills import measure

    found: list[Row] = []
    for embedded in (False, True):
        these = [mode for mode in modes if (mode != "words") == embedded]
        if not these:
            continue
        with routing(data, case[1], context.flags, embedded=embedded) as routes:
            for mode in these:
                with context.progress(f"{case[0]}, {mode}", len(questions) + len(others)) as report:
                    found.append((case[0], mode, measure(known, questions, routes(mode), report, others)))
    return found


def _save(name: str, found: Sequence[Row], path: Path) -> None:
    from herma.evals.retrieval import Result
    from herma.evals.runs import Run
    from herma.evals.runs import save as write

    results = [Result(f"{name}, {case}", mode, one.answers) for case, mode, one in found]
    write(Run("skills", tuple(results)), path)


# ── what is printed ──


def _table(context: Context, found: Sequence[Row]) -> None:
    asked_others = any(one.others for _, _, one in found)
    columns = ["skills known by", "mode", "requests", "hit@1", "hit@5", "ranked@1", "ranked@5", "wrongly silent"]
    columns += ["none needed", "silent there", *(["others", "silent there"] if asked_others else []), "p95 ms"]
    rows: list[list[object]] = []
    for case, mode, one in found:
        shares = [f"{share:.3f}" for share in (hit(one.answers, 1), hit(one.answers, 5))]
        shares += [f"{share:.3f}" for share in (hit(one.ranked, 1), hit(one.ranked, 5))]
        none = [one.none_needed, _share(one.abstains)]
        none += [one.others, _share(one.abstains_on_others)] if asked_others else []
        rows.append([case, mode, len(one.answers), *shares, one.wrongly_silent, *none, one.p95_ms])
    context.table(columns, rows)


def hit(answers: Sequence[Answered], k: int) -> float:
    """The share of requests whose skill is among the first k."""
    return sum(any(place <= k for place in one.places) for one in answers) / max(len(answers), 1)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _json(row: Row) -> dict[str, Any]:
    case, mode, one = row
    counts = {key: value for key, value in asdict(one).items() if key not in ("answers", "ranked")}
    return {
        "skills": case,
        "mode": mode,
        "requests": len(one.answers),
        **{f"hit@{k}": round(hit(one.answers, k), 4) for k in (1, 5)},
        **{f"ranked@{k}": round(hit(one.ranked, k), 4) for k in (1, 5)},
        "abstains": one.abstains,
        "abstains_on_others": one.abstains_on_others,
        **counts,
    }
