"""Commands: herma eval retrieval, herma eval self."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import click

from herma import __version__
from herma.cli.context import CommandContext, HermaCommand, HermaGroup, pass_context
from herma.errors import StoreError, UsageError
from herma.evals import data as labelled
from herma.evals.retrieval import EvalResult, Level, run, take
from herma.models.embedder import make_embedder
from herma.search.query import MODES, Mode

_COLUMNS = ("hit@1", "hit@5", "hit@10", "recall@10", "mrr", "ndcg@10")


@click.group(cls=HermaGroup)
def eval() -> None:  # noqa: A001 (the name of the command)
    """Measure how well search finds things.

    Nothing is changed: data is put into temporary homes, and your own history is copied first.

    \b
    Examples:
      herma eval self
      herma eval retrieval data/retrieval --mode words --mode hybrid
      herma eval retrieval data/locomo --save before.json
    """


def _paths(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[Path]:
    return [Path(one) for one in value]


def _place(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Check the file to save to before the work starts."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{path.parent} is not a folder.", hint="Choose another place for --save.")
    return path


mode_option = click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="Search by words, by vectors, or by both; repeatable. Default: the configured mode.",
)
save_option = click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_place,
    help="Save every answer to this file; benchmarks/compare_runs.py compares two of them.",
)
types_option = click.option("--types", is_flag=True, help="Show every question type separately.")


@eval.command(cls=HermaCommand)
@click.argument("data", nargs=-1, required=True, callback=_paths)
@mode_option
@click.option(
    "--level",
    type=click.Choice(get_args(Level)),
    default="message",
    show_default=True,
    help="The expected hit: the message that answers, or its session.",
)
@click.option(
    "--homes", type=click.Path(file_okay=False, path_type=Path), help="Keep the filled homes here and use them again."
)
@save_option
@types_option
@pass_context
def retrieval(
    context: CommandContext,
    data: list[Path],
    modes: tuple[Mode, ...],
    level: Level,
    homes: Path | None,
    save: Path | None,
    types: bool,
) -> None:
    """Ask labelled questions and count how often the right message is found.

    DATA are folders with corpus.jsonl (doc_id, group, text; optionally date, session, role) and queries.jsonl (qid,
    group, type, query, gold_doc_ids), or folders of such folders. Every group gets a temporary home, filled and
    searched the way a program would. hit@k: a right message is among the first k; recall@k: the share of right ones;
    ndcg is normalised over all right ones. Questions that nothing answers are left out and counted.

    \b
    Examples:
      herma eval retrieval data/retrieval
      herma eval retrieval data/locomo_turn --mode words --mode hybrid --types
      herma eval retrieval data/beam --json --save beam.json
    """
    folders = [folder for folder in labelled.folders(data) if not labelled.is_about_skills(folder)]
    if not folders:
        raise UsageError("These are skills, not messages.", hint="Use benchmarks/skill_routing.py.")
    sets = [labelled.read_set(folder) for folder in folders]
    shared = {**_settings(context), **context.flags}
    results: list[EvalResult] = []
    for one in sets:
        with context.progress(one.name, one.size) as report:
            results += run(one, _modes(context, modes), level=level, flags=shared, homes=homes, progress=report)
    _report(context, "retrieval", results, {"level": level}, save, types=types)


@eval.command("self", cls=HermaCommand)
@mode_option
@click.option("--questions", type=click.IntRange(1, 5_000), default=100, show_default=True, help="Of each kind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another number makes another exam.")
@click.option(
    "--with", "settings", multiple=True, metavar="KEY=VALUE", help="Take the exam with this setting too; repeatable."
)
@save_option
@types_option
@pass_context
def self_(
    context: CommandContext,
    modes: tuple[Mode, ...],
    questions: int,
    seed: int,
    settings: tuple[str, ...],
    save: Path | None,
    types: bool,
) -> None:
    """Make questions from your own history, and measure how much of it can be found again.

    The questions are made without a model, from words of messages that are neither common nor unique: as they stand,
    in another form and order, and with the day of the message. Everything happens on a copy, so that trying other
    models or settings changes nothing. The same seed makes the same exam.

    \b
    Examples:
      herma eval self
      herma eval self --mode words --mode hybrid --types
      herma eval self --with embedding.model=my-model --with search.model_wait=2
    """
    variants, chosen = _variants(context, settings), _modes(context, modes)
    with context.progress("Asking") as report:
        results = take(context.settings().home, chosen, variants, count=questions, seed=seed, progress=report)
    _report(context, "self", results, {"seed": seed}, save, types=types)


def _variants(context: CommandContext, settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    flags = {**_settings(context), **context.flags}
    found = {"": flags}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(
                f"--with {setting!r} is not a setting.", hint="Write KEY=VALUE, for example search.model_wait=2."
            )
        found[setting] = {**flags, key.strip(): value.strip()}
    return found


def _modes(context: CommandContext, chosen: Sequence[Mode]) -> list[Mode]:
    """The chosen modes, or the one that a search would use here."""
    if chosen:
        return list(dict.fromkeys(chosen))
    settings = context.settings()
    embedder = make_embedder(settings.embedding, home=settings.home).embedder
    return [settings.search.mode if embedder is not None else "words"]


def _settings(context: CommandContext) -> dict[str, Any]:
    """The user's settings that decide how text is embedded and searched; the homes made here share them."""
    settings = context.settings()
    search = {f"search.{key}": value for key, value in asdict(settings.search).items()}
    return {**search, **{f"embedding.{key}": value for key, value in asdict(settings.embedding).items()}}


def _report(
    context: CommandContext,
    kind: str,
    results: Sequence[EvalResult],
    facts: dict[str, Any],
    save: Path | None,
    *,
    types: bool,
) -> None:
    """Print and save results."""
    head = {
        "format": "herma-eval/1",
        "version": __version__,
        "kind": kind,
        "facts": {**facts, **_settings(context)},
    }
    shown = [_as_json(one) for one in results]
    if save is not None:
        whole = [
            {**shown, "answers": [[a.id, a.group, a.type, list(a.places), a.gold, a.took_ms] for a in one.answers]}
            for one, shown in zip(results, shown, strict=True)
        ]
        try:
            save.write_text(json.dumps({**head, "results": whole}, ensure_ascii=False) + "\n", "utf-8")
        except OSError as exc:
            raise StoreError(f"Cannot write {save}: {exc.strerror}.", hint="Choose another place.") from exc
    if context.json:
        context.print_json({"ok": True, **head, "results": shown, "saved": save})
        return
    rows: list[list[object]] = []
    for one in shown:
        rows.append([one["set"], one["mode"], *_cells(one)])
        if types:
            rows += [[f"  {name}", one["mode"], *_cells(found)] for name, found in one["types"].items()]
    context.table(("set", "mode", "questions", *_COLUMNS, "p50 ms", "p95 ms"), rows)
    for text in dict.fromkeys(line for one in results for line in _remarks(one)):
        context.line(text)
    if save is not None:
        context.line(f"Saved in {save}.")


def _as_json(one: EvalResult) -> dict[str, Any]:
    return {
        "set": one.set,
        "mode": one.mode,
        **labelled.figures(one.answers),
        "types": labelled.by_type(one.answers),
        "left_out": dict(one.left_out),
        "notes": list(one.notes),
    }


def _cells(found: dict[str, Any]) -> list[object]:
    shares = [f"{found[name]:.3f}" if name in found else "-" for name in _COLUMNS]
    times = [f"{found[name]:.1f}" if name in found else "-" for name in ("p50_ms", "p95_ms")]
    return [int(found["questions"]), *shares, *times]


def _remarks(one: EvalResult) -> list[str]:
    reasons = ", ".join(f"{count} ({reason})" for reason, count in one.left_out.items())
    left_out = [f"{one.set}: left out {reasons}."] if reasons else []
    return [*left_out, *(f"{one.set}, {one.mode}: {note}" for note in one.notes)]
