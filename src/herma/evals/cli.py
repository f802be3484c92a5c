"""Herma eval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, HermaGroup, pass_context
from herma.errors import UsageError

if TYPE_CHECKING:
    from herma.evals.data import Answered, Difference
    from herma.evals.evals import Mode, Result, Run, SkillsResult
    from herma.skills.types import FindMode


# ---------- cli.eval_skills
#
# `herma eval skills`: how often a task finds its skill, and how often nothing is found where nothing is needed.

if TYPE_CHECKING:
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
    lines = _eval_skills_lines(others)
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
    from herma.models.embedder import make_embedder

    settings = context.settings()
    return list(_ALL) if make_embedder(settings.embedding, home=settings.home).embedder is not None else ["words"]


def _eval_skills_lines(path: Path | None) -> list[str]:
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
    from herma.evals.evals import measure, routing

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
    from herma.evals.evals import Result, Run
    from herma.evals.evals import save as write

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


# ---------- cli.eval_summaries
#
# `herma eval summaries`: how much of what matters is in the summaries of search results, and in the raw ones.


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
    from herma.evals.evals import read_cases
    from herma.evals.evals import summaries_measure as measure

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


# ---------- cli.eval
#
# `herma eval`: how well memory does, on labelled data and on the user's own history.

MODES = ("words", "vectors", "hybrid")
_COLUMNS = ("hit@1", "hit@5", "hit@10", "recall@10", "mrr", "ndcg@10")


class EvalGroup(HermaGroup):
    """Lists its commands in the order in which people come to need them."""

    ORDER = "self retrieval skills safety summaries compare"

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 (click names it)
        return sorted(self.commands, key=self.ORDER.split().index)


@click.group(cls=EvalGroup)
def eval() -> None:  # noqa: A001 (the name of the command)
    """Measure how well things are found, routed and caught.

    Nothing is changed: data is put into temporary homes, and your own history is copied first.

    \b
    Examples:
      herma eval self
      herma eval retrieval data/retrieval --mode words --mode hybrid
      herma eval retrieval data/locomo --save before.json
      herma eval compare before.json after.json
    """


eval.add_command(skills)
eval.add_command(summaries)


def _paths(_: click.Context, __: click.Parameter, value: tuple[str, ...]) -> list[Path]:
    return [Path(one) for one in value]


data_argument = click.argument("data", nargs=-1, required=True, callback=_paths)
mode_option = click.option(
    "--mode",
    "modes",
    type=click.Choice(MODES),
    multiple=True,
    help="Search by words, by vectors, or by both; may be given several times. Default: the mode that is set.",
)


def _place(_context: click.Context, _option: click.Parameter, path: Path | None) -> Path | None:
    """Where a run is to be saved, looked at before the work and not after it."""
    if path is not None and not path.parent.is_dir():
        raise UsageError(f"{path.parent} is no folder.", hint="Choose another place for --save.")
    return path


save_option = click.option(
    "--save",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=_place,
    help="Keep the run in this file, to be compared later.",
)
types_option = click.option("--types", is_flag=True, help="Show every type of question on its own.")


# ── search ──


@eval.command()
@data_argument
@mode_option
@click.option(
    "--level",
    type=click.Choice(("message", "session")),
    default="message",
    show_default=True,
    help="What has to be found: the message that answers, or its session.",
)
@click.option(
    "--homes", type=click.Path(file_okay=False, path_type=Path), help="Keep the filled homes here, and use them again."
)
@save_option
@types_option
@pass_context
def retrieval(
    context: Context,
    data: list[Path],
    modes: tuple[Mode, ...],
    level: Any,
    homes: Path | None,
    save: Path | None,
    types: bool,
) -> None:
    """Ask labelled questions and count how often the right message is found.

    DATA are folders with corpus.jsonl (doc_id, group, text; perhaps date, session, role) and queries.jsonl (qid, group,
    type, query, gold_doc_ids), or folders of such folders. Every group gets a temporary home, filled and searched the
    way a program would. hit@k: a right message is among the first k; recall@k: the share of right ones; ndcg is
    normalised over all right ones. Questions that nothing answers are left out and counted.

    \b
    Examples:
      herma eval retrieval data/retrieval
      herma eval retrieval data/locomo_turn --mode words --mode hybrid --types
      herma eval retrieval data/beam --json --save beam.json
    """
    from herma.evals import data as files
    from herma.evals import evals as search
    from herma.evals.evals import Run

    folders = [folder for folder in files.folders(data) if not files.is_about_skills(folder)]
    if not folders:
        raise UsageError("These are skills, not messages.", hint="Use `herma eval skills`.")
    sets = [files.read_set(folder) for folder in folders]
    results: list[Result] = []
    for one in sets:
        with context.progress(one.name, one.size) as report:
            results += search.run(
                one, _modes(context, modes), level=level, flags=_flags(context), homes=homes, progress=report
            )
    _report(context, Run("retrieval", tuple(results), {"level": level, **_facts(context)}), save, types=types)


@eval.command("self")
@mode_option
@click.option("--questions", type=click.IntRange(1, 5_000), default=100, show_default=True, help="Of each kind.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another number makes another exam.")
@click.option("--models", default="", help="Embedding models to compare, with commas between.")
@click.option(
    "--with",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Take the exam with this setting too; may be given several times.",
)
@save_option
@types_option
@pass_context
def self_(
    context: Context,
    modes: tuple[Mode, ...],
    questions: int,
    seed: int,
    models: str,
    settings: tuple[str, ...],
    save: Path | None,
    types: bool,
) -> None:
    """Make questions out of your own history, and see how much of it can be found again.

    The questions are made without a model, from words of messages that are neither everywhere nor unique: as they
    stand, in another form and order, and with the day on which it was said. Everything happens on a copy, so that
    trying other models or settings changes nothing. The same seed makes the same exam.

    \b
    Examples:
      herma eval self
      herma eval self --mode words --mode hybrid --types
      herma eval self --models e5-small,text-embedding-3-small
      herma eval self --with search.common_cap=5000
    """
    from herma.evals.evals import Run, take

    chosen = _modes(context, modes)
    variants = _variants(context, models, settings)
    with context.progress("Asking") as report:
        results = take(context.settings().home, chosen, variants, count=questions, seed=seed, progress=report)
    _report(context, Run("self", tuple(results), {"seed": seed, **_facts(context)}), save, types=types)


def _variants(context: Context, models: str, settings: Sequence[str]) -> list[Any]:
    from herma.evals.evals import Variant

    flags = _flags(context)
    names = [name for name in map(str.strip, models.split(",")) if name]
    found = [Variant(name, {**flags, "embedding.model": name}, of_vectors=True) for name in names]
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"{setting!r} is no setting.", hint="Write KEY=VALUE, for example search.common_cap=5000.")
        found.append(Variant(setting, {**flags, key.strip(): value.strip()}))
    return found if models else [Variant("", flags), *found]


def _modes(context: Context, chosen: Sequence[Mode]) -> list[Mode]:
    """What was chosen; else as a search would go about it here."""
    if chosen:
        return list(dict.fromkeys(chosen))
    from herma.models.embedder import make_embedder

    settings = context.settings()
    there = make_embedder(settings.embedding, home=settings.home).embedder is not None
    return [settings.search.mode if there else "words"]


def _flags(context: Context) -> dict[str, object]:
    """Settings that the homes made here share with the user's own: how text is embedded and searched."""
    return {**_sections(context, "search", "embedding"), **context.flags}


def _facts(context: Context) -> dict[str, Any]:
    return _sections(context, "search", "embedding")


def _sections(context: Context, *names: str) -> dict[str, Any]:
    settings = context.settings()
    return {f"{name}.{key}": value for name in names for key, value in asdict(getattr(settings, name)).items()}


# ── what is printed ──


def _report(context: Context, run: Run, save: Path | None, *, types: bool) -> None:
    from herma.evals.evals import as_json
    from herma.evals.evals import save as write

    if save is not None:
        write(run, save)
    if context.json:
        context.print_json({"ok": True, **as_json(run, answers=False), "saved": save})
        return
    context.table(
        ("set", "mode", "questions", *_COLUMNS, "p50 ms", "p95 ms"), list(_eval_lines(run.results, types=types))
    )
    for text in _remarks(run.results):
        context.line(text)
    if save is not None:
        context.line(f"Saved in {save}.")


def _eval_lines(results: Sequence[Result], *, types: bool) -> list[list[object]]:
    from herma.evals.data import by_type, figures

    rows: list[list[object]] = []
    for one in results:
        rows.append([one.set, one.mode, *_cells(figures(one.answers))])
        if types:
            rows += [[f"  {name}", one.mode, *_cells(found)] for name, found in by_type(one.answers).items()]
    return rows


def _cells(found: dict[str, float]) -> list[object]:
    shares = [f"{found[name]:.3f}" if name in found else "-" for name in _COLUMNS]
    times = [f"{found[name]:.1f}" if name in found else "-" for name in ("p50_ms", "p95_ms")]
    return [int(found["questions"]), *shares, *times]


def _remarks(results: Sequence[Result]) -> list[str]:
    said: dict[str, None] = {}
    for one in results:
        if one.left_out:
            reasons = ", ".join(f"{count} ({reason})" for reason, count in one.left_out.items())
            said[f"{one.set}: left out {reasons}."] = None
        said.update((f"{one.set}, {one.mode}: {note}", None) for note in one.notes)
    return list(said)


# ── safety ──


@eval.command()
@data_argument
@pass_context
def safety(context: Context, data: list[Path]) -> None:
    """Scan labelled texts, and count the attacks that are found and the harmless texts that are blocked.

    DATA are files of JSON lines with text, label (1: attack, 0: harmless) and perhaps source. It is the same scan that
    runs on every write to memory, where any finding blocks.

    \b
    Examples:
      herma eval safety data/injection/dev.jsonl
      herma eval safety data/injection --json
    """
    from herma.evals import data as files
    from herma.evals.evals import safety_measure as measure

    rows = [row for path in files.files(data) for row in files.read_labelled(path)]
    with context.progress("Scanning", len(rows)) as report:
        results = measure(rows, report)
    if context.json:
        found = [
            {**asdict(one), "recall": one.recall, "false_positives": one.false_positives, "rules": dict(one.rules)}
            for one in results
        ]
        context.print_json({"ok": True, "kind": "safety", "results": found})
        return
    columns = ("source", "attacks", "found", "recall", "harmless", "blocked", "false positives", "p95 ms", "blocked by")
    context.table(
        columns,
        [
            [
                *(one.source, one.attacks, one.found, _cell(one.recall), one.benign, one.blocked),
                *(_cell(one.false_positives), one.p95_ms, ", ".join(f"{rule} {n}" for rule, n in one.rules)),
            ]
            for one in results
        ],
    )


def _cell(value: object) -> object:
    return "-" if value is None else f"{value:.3f}" if isinstance(value, float) else value


# ── comparing ──


@eval.command()
@click.argument("first", type=click.Path(path_type=Path))
@click.argument("second", type=click.Path(path_type=Path))
@click.option("--all", "every", is_flag=True, help="Every measure, not only the main ones.")
@pass_context
def compare(context: Context, first: Path, second: Path, every: bool) -> None:
    """Show what changed between two saved runs, and whether chance could have done it.

    The interval holds 95 of 100 resamples of whole groups (conversations), or of single questions where there are
    fewer than five groups; a change whose interval does not contain 0 is marked.

    \b
    Examples:
      herma eval compare words.json hybrid.json
      herma eval compare before.json after.json --all --json
    """
    from herma.evals import evals as runs
    from herma.evals.data import NAMES

    found = runs.compare(runs.load(first), runs.load(second), NAMES if every else ("hit@1", "hit@5", "hit@10", "mrr"))
    if context.json:
        context.print_json({"ok": True, "compared": [_compared_json(one) for one in found]})
        return
    rows: list[list[object]] = []
    for one in found:
        modes = one.first if one.first == one.second else f"{one.first} → {one.second}"
        rows += [[one.set, modes, *_difference_cells(change)] for change in one.differences]
    context.table(("set", "mode", "measure", "first", "second", "change", "95 % interval", "questions", ""), rows)


def _difference_cells(one: Difference) -> list[object]:
    interval = f"{one.low:+.3f} to {one.high:+.3f}"
    mark = ("better" if one.change > 0 else "worse") if one.sure else ""
    return [one.measure, f"{one.first:.3f}", f"{one.second:.3f}", f"{one.change:+.3f}", interval, one.pairs, mark]


def _compared_json(one: Any) -> dict[str, Any]:
    changes = [{**asdict(change), "change": change.change, "sure": change.sure} for change in one.differences]
    return {"set": one.set, "first": one.first, "second": one.second, "differences": changes}
