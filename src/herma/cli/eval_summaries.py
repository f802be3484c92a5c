"""`herma eval summaries`: how much of what matters is in the summaries of search results, and in the raw ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from herma.cli.frame import Context, HermaCommand, pass_context


@click.command(cls=HermaCommand)
@click.argument("data", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option("--raw", is_flag=True, help="Only the raw results: asks no model, costs nothing.")
@click.option(
    "--deadline",
    type=click.FloatRange(1, 3600),
    default=90.0,
    show_default=True,
    help="Seconds for the summaries of one question.",
)
@pass_context
def summaries(context: Context, data: tuple[Path, ...], raw: bool, deadline: float) -> None:
    """Search labelled questions raw and summed up by the auxiliary model, and count the facts that the answers have.

    DATA are files of JSON lines: question, facts (texts, or lists of texts of which one is enough), messages (role,
    content) of the conversation that answers it; perhaps id and title. A fact is there when its words stand side by
    side, in whatever form; numbers and identifiers must be exact. The model's calls are metered as “eval”.

    \b
    Examples:
      herma eval summaries cases.jsonl
      herma eval summaries cases.jsonl --raw --json
    """
    from herma.evals.data import files
    from herma.evals.summaries import measure, read_cases

    cases = [case for path in files(list(data)) for case in read_cases(path)]
    with context.open() as h:
        why_not = "" if raw else h.models.why_not("auxiliary")
        with context.progress("Asking", len(cases)) as report:
            results, scored = measure(
                cases,
                lambda: None if raw else h.model("auxiliary", purpose="eval"),
                deadline=deadline,
                progress=report,
            )
    if context.json:
        found = {"results": [asdict(one) for one in results], "cases": [asdict(one) for one in scored]}
        context.print_json({"ok": True, "kind": "summaries", "why_not": why_not or None, **found})
        return
    columns = ("answer", "questions", "found", "facts", "characters", "p50 ms", "p95 ms")
    rows = [
        [one.way, one.cases, f"{one.found:.3f}", f"{one.facts:.3f}", f"{one.characters:,.0f}", one.p50_ms, one.p95_ms]
        for one in results
    ]
    context.table(columns, rows)
    for note in (note for one in results for note in one.notes):
        context.line(note)
    if why_not:
        context.line(f"Only raw results: {why_not}")
