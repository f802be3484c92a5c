"""`herma models check`: whether the language model of the configuration answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from herma.cli.frame import Context, HermaCommand, pass_context

if TYPE_CHECKING:
    from herma.models.chat.endpoint import Endpoint
    from herma.models.chat.probe import Probe
    from herma.wiring.models import Role

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
    from herma.models.chat.probe import probe

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
