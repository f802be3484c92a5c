"""`herma config`: what is configured, where each value comes from, and how to change it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from herma import config as configuration
from herma.cli.frame import Context, HermaGroup, pass_context
from herma.cli.person import agent_marker, for_people_only
from herma.errors import ConfigError

if TYPE_CHECKING:
    from herma.configkey import Value
    from herma.configservers import McpServer

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
