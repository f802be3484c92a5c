"""`herma providers`: the external memory that takes part in sessions."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from herma import config as configuration
from herma.cli.frame import Context, HermaGroup, pass_context
from herma.providers.discovery import Found, find
from herma.providers.roster import ProviderStatus

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

    from herma.cli.sessions.wording import when
    from herma.store.trouble_log import TroubleLog

    since = time.time() - 7 * 86_400
    return [f"{when(one.at)} {one.what}: {one.why}" for one in TroubleLog(home).since(since) if one.guest == name]
