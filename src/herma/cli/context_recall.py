"""`herma context recall` and `recalled`: what is looked up before a turn, and what was put into turns."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from herma.cli import output
from herma.cli.frame import HermaCommand
from herma.cli.sessions.desk import Desk, with_sessions
from herma.cli.sessions.wording import count, iso
from herma.recall.prefetch import Prefetched, Weighed
from herma.recall.worth import model_for
from herma.types import Scope, SessionFilter

_OUTCOMES = {
    "recalled": "This would be told:",
    "nothing": "Nothing would be told: nothing that was said before is relevant enough.",
    "no words": "Nothing would be told: there is nothing in it to look for.",
    "late": "Nothing would be told: it took too long.",
}


@click.command(cls=HermaCommand)
@click.argument("text", nargs=-1, required=True)
@click.option("--user", help="As this user would be told.")
@with_sessions
def recall(desk: Desk, text: tuple[str, ...], user: str | None) -> None:
    """Show what would be looked up in past conversations for a message, and why; asks no model.

    Each hit has the chance that it helps, learnt from labelled conversations. What is below the limit is not told.
    Turn it off with search.prefetch; search.prefetch_ms is how long it may take.

    \b
    Examples:
      herma context recall "which hash did we choose for passwords?"
      herma context recall thanks --json
    """
    said = " ".join(text)
    scope = Scope(desk.h.settings.profile, user=user) if user else None
    desk.h.prefetch.warm()  # as in a session that has gone on for a while
    found = desk.h.prefetch.look(said, scope=scope)
    if desk.context.json:
        desk.context.print_json({"ok": True, "enabled": desk.h.prefetch.enabled, **_as_json(found)})
        return
    if found.fact is not None:
        desk.context.line(f"A fact: {found.fact.subject}, {found.fact.attribute} = {found.fact.value}")
    desk.context.line(_OUTCOMES[found.outcome])
    for line in output.visible(found.text).splitlines():
        desk.context.line(f"  {line}")
    for one in found.weighed:
        desk.context.line(_why(one))
    took = f"{found.took_ms:g} ms, by {'words and meaning' if found.mode == 'hybrid' else 'words'}"
    off = "" if desk.h.prefetch.enabled else " It is turned off: search.prefetch."
    desk.context.line(f"{count(len(found.weighed), 'hit')} weighed in {took}.{off}")


def _why(one: Weighed) -> str:
    evidence = one.evidence
    least = model_for(evidence).least
    near = "" if evidence.near is None else f", meaning {evidence.near:+.1f} deviations"
    verdict = "told" if one.told else one.why_not
    return (
        f"  message {one.hit.message_id}: chance {one.chance:.2f} of {least:.2f}; {evidence.beside:.0%} of what is "
        f"asked, worth {evidence.rare:.1f} rare words, {evidence.unknown:.0%} never said{near}: {verdict}"
    )


def _as_json(found: Prefetched) -> dict[str, Any]:
    weighed = [
        {
            "session_id": one.hit.session_id,
            "message_id": one.hit.message_id,
            "chance": round(one.chance, 4),
            "least": model_for(one.evidence).least,
            "evidence": asdict(one.evidence),
            "line": one.line,
            "told": one.told,
            "why_not": one.why_not,
        }
        for one in found.weighed
    ]
    fact = None if found.fact is None else {"attribute": found.fact.attribute, "value": found.fact.value}
    return {
        "outcome": found.outcome,
        "text": found.text,
        "fact": fact,
        "mode": found.mode,
        "took_ms": found.took_ms,
        "weighed": weighed,
        "notes": list(found.notes),
    }


@click.command(cls=HermaCommand)
@click.argument("session", required=False)
@with_sessions
def recalled(desk: Desk, session: str | None) -> None:
    """List what was put into the user's messages of a session: recall from past conversations, memory, providers.

    SESSION is an id, the beginning of one, or a title; without it, the latest session.

    \b
    Examples:
      herma context recalled
      herma context recalled "login bug" --json
    """
    from herma.turn.account import recalled_in

    latest = desk.transcripts.list(SessionFilter(archived=None), limit=1)
    info = desk.find(session) if session is not None else latest[0] if latest else None
    messages = desk.transcripts.messages(info.id) if info else []
    told = [(one, text) for one in messages if one.role == "user" and (text := recalled_in(one.sent))]
    if desk.context.json:
        rows = [{"message_id": one.id, "timestamp": iso(one.timestamp or 0.0), "recalled": text} for one, text in told]
        desk.context.print_json({"ok": True, "session": info.id if info else None, "turns": rows})
        return
    if not told:
        desk.context.line("Nothing was recalled in this session." if info else "There is no session yet.")
    for one, text in told:
        desk.context.line(f"message {one.id}:")
        for line in output.visible(text).splitlines():
            desk.context.line(f"  {line}")
