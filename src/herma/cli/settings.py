"""Herma config, context, providers."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma import config as configuration
from herma.cli import output
from herma.cli.frame import Context, HermaCommand, HermaGroup, agent_marker, for_people_only, pass_context
from herma.cli.output import count, iso, name_of, when
from herma.errors import ConfigError
from herma.prompt.budget import LABELS, Plan, draw
from herma.providers.manager import Found, ProviderStatus, find
from herma.search.prefetch import Prefetched, Weighed, model_for
from herma.transcript.cli import Desk, with_sessions
from herma.types import Scope, SessionFilter, SessionInfo

if TYPE_CHECKING:
    from herma.config import McpServer, Value


# ---------- cli.config
#
# `herma config`: what is configured, where each value comes from, and how to change it.

_PASSWORD = re.compile(r"""(//[^/@:\s]*:)[^/\s]+(@)|(\bpassword=)('[^']*'?|[^&\s]+)""")


def shown(value: Value, *, secrets: bool = False) -> str:
    """A value as one would type it; passwords inside addresses are left out unless `secrets`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not secrets:
        return _PASSWORD.sub(r"\1\3…\2", value)
    return str(value)


def _reached_by(server: McpServer) -> str:
    """The program or the address, without arguments and headers: those may hold keys."""
    return shown(server.command or server.url.partition("?")[0])


def home_file(context: Context) -> Path:
    return configuration.resolve_home(context.home, context.profile) / configuration.HOME_FILE


@click.group(cls=HermaGroup)
def config() -> None:
    """Look at the configuration, and change it.

    A flag wins over a HERMA_… variable, that over a project's .herma.yaml, that over the home's config.yaml.

    \b
    Examples:
      herma config show
      herma config set memory.memory_char_limit 3000
      HERMA_MEMORY_MEMORY_CHAR_LIMIT=3000 herma config get memory.memory_char_limit
    """


@config.command()
@pass_context
def show(context: Context) -> None:
    """List every key with its value, source and meaning.

    Keys that are ignored (unknown, or not allowed in a project's file) are listed at the end.

    \b
    Examples:
      herma config show
      herma config show --json
    """
    settings = context.settings(warn=False)
    values = {key: configuration.get(settings, key) for key in configuration.known_keys()}
    if context.json:
        context.print_json(
            {
                "ok": True,
                "home": settings.home,
                "profile": settings.profile,
                "keys": [
                    {
                        "key": key,
                        "value": _safe(value),
                        "source": settings.sources[key],
                        "default": known.default,
                        "expected": known.expected,
                        "description": known.doc,
                        "variable": known.variable,
                        "project": known.project,
                    }
                    for (key, value), known in zip(values.items(), configuration.options().values(), strict=True)
                ],
                "mcp_servers": [
                    {"name": one.name, "reached_by": _reached_by(one), "enabled": one.enabled}
                    for one in settings.mcp_servers
                ],
                "problems": [
                    {"key": item.key, "where": item.where, "nearest": item.nearest, "message": str(item)}
                    for item in settings.problems
                ],
            }
        )
    context.line(f"Home {settings.home}, profile {settings.profile}")
    context.line()
    table = configuration.options()
    context.table(
        ("key", "value", "from", "description"),
        [(key, shown(value) or '""', settings.sources[key], table[key].doc) for key, value in values.items()],
    )
    if settings.mcp_servers:
        context.line()
        context.line("MCP servers (mcp_servers, in an editor):")
        for server in settings.mcp_servers:
            context.line(f"  {server.name}: {_reached_by(server)}{'' if server.enabled else ' (off)'}")
    if settings.problems:
        context.line()
        context.line("Ignored:")
        for problem in settings.problems:
            context.line(f"  {problem}")


@config.command()
@click.argument("key")
@pass_context
def get(context: Context, key: str) -> None:
    """Print the value of one key.

    \b
    Examples:
      herma config get memory.memory_char_limit
      herma config get store.url --json
    """
    settings = context.settings()
    value = configuration.get(settings, key)
    if context.json:
        context.print_json({"ok": True, "key": key, "value": value, "source": settings.sources[key]})
    context.line(shown(value, secrets=True))


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("key")
@click.argument("value")
@pass_context
def set_(context: Context, key: str, value: str) -> None:
    """Write one key into the home's config.yaml; comments and order stay.

    \b
    Examples:
      herma config set memory.memory_char_limit 3000
      herma config set memory.write_approval on
      herma config set memory.provider ""
    """
    path = home_file(context)
    _guard(context, key)
    configuration.set_value(path, key, value)
    _report(context, path, key, f"{key} is set to {shown(value) or 'nothing'} in {path}.")


@config.command()
@click.argument("key")
@pass_context
def unset(context: Context, key: str) -> None:
    """Take one key out of the home's config.yaml.

    \b
    Examples:
      herma config unset memory.memory_char_limit
    """
    path = home_file(context)
    _guard(context, key)
    was_there = configuration.unset_value(path, key)
    _report(context, path, key, f"{key} is {'no longer' if was_there else 'not'} set in {path}.", changed=was_there)


def _guard(context: Context, key: str) -> None:
    """An agent whose writes wait for a person must not be able to end that by itself."""
    if key != "memory.write_approval" or agent_marker() is None:
        return
    if configuration.load(home=context.home, profile=context.profile).memory.write_approval:
        for_people_only("Changing memory.write_approval once it is on")


def _report(context: Context, path: Path, key: str, sentence: str, **more: object) -> None:
    """Say what was done, and what holds now: something else may be stronger than the file."""
    told: dict[str, object] = {"ok": True, "key": key, "file": path, **more}
    context.line(sentence)
    try:
        settings = context.settings()
    except ConfigError as exc:  # the change is made; something else in the configuration is wrong
        context.warn(str(exc))
    else:
        value, source = configuration.get(settings, key), settings.sources[key]
        overridden = source not in ("default", str(path))
        told |= {"value": _safe(value), "source": source, "overridden": overridden}
        if overridden:
            context.warn(f"{source} is stronger than {path.name}: {key} stays {shown(value) or 'empty'}.")
        elif source == "default":
            context.line(f"The default holds: {shown(value) or 'empty'}.")
    if context.json:
        context.print_json(told)


def _safe(value: Value) -> Value:
    return shown(value) if isinstance(value, str) else value


@config.command()
@pass_context
def path(context: Context) -> None:
    """Print where the home's config.yaml is, or would be.

    \b
    Examples:
      herma config path
      $EDITOR "$(herma config path)"
    """
    file = home_file(context)
    if context.json:
        project = configuration.project_file()
        context.print_json({"ok": True, "home": file.parent, "file": file, "exists": file.exists(), "project": project})
    context.line(str(file))


# ---------- cli.context_recall
#
# `herma context recall` and `recalled`: what is looked up before a turn, and what was put into turns.

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
        desk.context.print_json({"ok": True, "enabled": desk.h.prefetch.enabled, **_context_recall_as_json(found)})
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


def _context_recall_as_json(found: Prefetched) -> dict[str, Any]:
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
    from herma.prompt.ledger import recalled_in

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


# ---------- cli.context
#
# `herma context`: the model's window, and what is in it.

_WIDTH = 72


@click.group(cls=HermaGroup)
def context() -> None:
    """See what the model's window holds, and what is recalled into it.

    \b
    Examples:
      herma context show
      herma context recall "which hash did we choose?"
      herma context show 20261231_2359
    """


context.add_command(recall)
context.add_command(recalled)


@context.command("show")
@click.argument("session", required=False)
@click.option("--empty", is_flag=True, help="A session that would begin now, instead of the latest one.")
@with_sessions
def context_show(desk: Desk, session: str | None, empty: bool) -> None:
    """Draw the model's window: system prompt, memory, conversation, tool results, and what is kept for the reply.

    SESSION is an id, the beginning of one, or a title; without it, the latest session. Every part has a share of the
    window. What does not fit goes elsewhere, and where is said. The window's size comes from the model's name, or from
    context.window; how it is divided, from context.profile and the shares beside it.

    \b
    Examples:
      herma context show
      herma context show "login bug" --json
      herma context show --empty
    """
    if session is not None and empty:
        raise click.UsageError("A session that would begin now has no id.")
    info = desk.find(session) if session is not None else None if empty else _latest(desk)
    plan = desk.h.working_memory(info.id if info else None)
    if desk.context.json:
        desk.context.print_json({"ok": True, "session": info.id if info else None, **_context_as_json(plan)})
        return
    desk.context.line(_title(desk, info, plan))
    desk.context.line()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in draw(plan, min(width, 2 * _WIDTH)).splitlines():
        desk.context.line(line)


def _latest(desk: Desk) -> SessionInfo | None:
    found = desk.transcripts.list(SessionFilter(archived=None), limit=1)
    return desk.transcripts.get(found[0].id) if found else None


def _title(desk: Desk, info: SessionInfo | None, plan: Plan) -> str:
    size = f"a window of {plan.window:,} tokens"
    if info is None:
        model = desk.h.settings.model.name
        return f"A session that would begin now{f' with {model}' if model else ''}, {size}"
    facts = [info.id, count(info.message_count, "message"), when(info.last_active), info.model or ""]
    return f"{name_of(info, 50)} ({', '.join(filter(None, facts))}), {size}"


def _context_as_json(plan: Plan) -> dict[str, object]:
    return {
        "window": plan.window,
        "used": plan.used,
        "free": plan.free,
        "slots": {
            use.slot: {"name": LABELS[use.slot], "room": use.room, "used": use.used, "over": use.over}
            for use in plan.uses
        },
        "overflows": [{"slot": one.slot, "tokens": one.tokens, "where": one.where} for one in plan.overflows],
        "note": plan.note,
    }


# ---------- cli.providers
#
# `herma providers`: the external memory that takes part in sessions.

KEY = "memory.provider"


@click.group(cls=HermaGroup)
def providers() -> None:
    """Choose an external memory that takes part in sessions, besides Herma's own.

    It is told every turn, may recall something for the next one, and may bring tools. What it says is fenced and
    scanned like all text from outside; when it fails or hangs, sessions go on without it.

    \b
    Examples:
      herma providers list
      herma providers use notes
      herma providers status
      herma providers off
    """


@providers.command("list")
@pass_context
def list_(context: Context) -> None:
    """List the external memories that could be used. None of them is loaded for that.

    They come with Herma, lie in the home's folder plugins/, or are installed as Python packages.

    \b
    Examples:
      herma providers list
      herma providers list --json
    """
    with context.open() as h:
        found, active = h.providers.list(), h.providers.active
    if context.json:
        context.print_json({"ok": True, "active": active or None, "providers": [_json(one, active) for one in found]})
        return
    if not found:
        context.line("There are none. Put one into plugins/NAME under the home, or install its package.")
        context.line("Herma's own memory works without them.")
        return
    rows = [["*" if one.name == active else "", one.name, one.kind, one.description or one.where] for one in found]
    context.table(["", "name", "kind", "what it is"], rows)
    if not active:
        context.line(f"None is in use. To use one: {context.command('providers', 'use', found[0].name)}")


@providers.command()
@pass_context
def status(context: Context) -> None:
    """Show the external memory that is in use: whether it is available, and how it has been.

    \b
    Examples:
      herma providers status
      herma providers status --json
    """
    with context.open() as h:
        found = h.providers.status()
        troubles = _troubles(h.home, found.name)
    if context.json:
        context.print_json({"ok": _fine(found), **_status_json(found, troubles)})
        return
    if not found.name:
        context.line("No external memory is in use; Herma's own memory works without one.")
        return
    if found.available:
        where = f" ({found.found.kind}: {found.found.where})" if found.found else ""
        context.line(f"{found.name} is available{where}.")
    else:
        context.line(f"{found.name} is not available{f': {found.why}' if found.why else '.'}")
        context.line(f"Sessions go on without it. To use none: {context.command('providers', 'off')}")
    for line in troubles[-5:]:
        context.line(f"! {line}")


@providers.command()
@click.argument("name")
@pass_context
def use(context: Context, name: str) -> None:
    """Let the external memory NAME take part in sessions from now on. It is loaded once, to see whether it works.

    This is written to the home's config.yaml as memory.provider; `herma providers off` takes it back.

    \b
    Examples:
      herma providers use notes
    """
    settings = context.settings()
    before = settings.memory.provider
    found = find(settings.home, name)
    configuration.set_value(settings.home / configuration.HOME_FILE, KEY, name)
    with _reopened(context).open() as h:
        now = h.providers.status()
    _overridden(context, now.name, name)
    if context.json:
        context.print_json({"ok": True, "before": before or None, "provider": _json(found, name), **_availability(now)})
        return
    context.line(f"{name} takes part in sessions that begin from now on.")
    if now.name == name and not now.available:
        context.warn(f"{name} is not available now{f': {now.why}' if now.why else ''}; sessions go on without it.")


@providers.command()
@pass_context
def off(context: Context) -> None:
    """Use no external memory. What it has kept stays with it.

    \b
    Examples:
      herma providers off
    """
    settings = context.settings()
    before = settings.memory.provider
    if before:
        configuration.set_value(settings.home / configuration.HOME_FILE, KEY, "")
    now = _reopened(context).settings(warn=False).memory.provider
    _overridden(context, now, "")
    if context.json:
        context.print_json({"ok": True, "before": before or None, "changed": bool(before)})
        return
    if not before:
        context.line("No external memory was in use.")
    elif not now:
        context.line(f"{before} takes no part in sessions that begin from now on.")
        context.line(f"To use it again: {context.command('providers', 'use', before)}")


def _reopened(context: Context) -> Context:
    """The same, with the configuration as it is now."""
    again = Context()
    again.home, again.profile, again.flags = context.home, context.profile, context.flags
    return again


def _overridden(context: Context, now: str, wanted: str) -> None:
    if now != wanted:
        context.warn(f"Something else is stronger than config.yaml: {KEY} stays {now or 'empty'}.")


def _fine(found: ProviderStatus) -> bool:
    return not found.name or bool(found.available)


def _json(one: Found, active: str) -> dict[str, Any]:
    return {**asdict(one), "description": one.description or None, "active": one.name == active}


def _availability(found: ProviderStatus) -> dict[str, Any]:
    return {"available": found.available, "why": found.why or None}


def _status_json(found: ProviderStatus, troubles: list[str]) -> dict[str, Any]:
    provider = _json(found.found, found.name) if found.found else None
    return {"active": found.name or None, "provider": provider, **_availability(found), "troubles": troubles}


def _troubles(home: Path, name: str) -> list[str]:
    """What went wrong lately, in any program."""
    import time

    from herma.cli.output import when
    from herma.providers.guard import TroubleLog

    since = time.time() - 7 * 86_400
    return [f"{when(one.at)} {one.what}: {one.why}" for one in TroubleLog(home).since(since) if one.guest == name]
