"""`herma models resume`: let background work go on that rests because a model's answers could not be used."""

from __future__ import annotations

import click

from herma.cli.frame import Context, HermaCommand, pass_context
from herma.errors import UsageError


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
    from herma.wiring.models import PURPOSES
    from herma.wording.sessions import iso

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
