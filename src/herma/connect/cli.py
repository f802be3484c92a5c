"""`herma connect`, and what it writes into the configuration of agents: `herma mcp` and `herma hook`."""

from __future__ import annotations

import importlib.util
import plistlib
import shlex
import shutil
import sys
import time
from importlib import import_module
from pathlib import Path

import click

from herma.cli import output
from herma.cli.context import CommandContext, HermaCommand, dry_run_option, pass_context, with_home, yes_option
from herma.config import resolve_home
from herma.connect.clients import Program
from herma.connect.connect import ClientPlan, ClientStatus, ConnectedClients, write_bundle
from herma.errors import UsageError, install_command
from herma.importers.base import Machine
from herma.store.files import make_folder, replace_file

STATUS = "status"
IMPORT = "import"
_UNIT = """\
[Unit]
Description=Import new messages of other agents into Herma

[Service]
ExecStart={command}
Restart=on-failure
Nice=10

[Install]
WantedBy=default.target
"""


@click.command("connect", cls=HermaCommand)
@click.argument("words", nargs=-1, metavar="[CLIENT]… | status | import")
@click.option("--remove", is_flag=True, help="Take back what was written.")
@click.option(
    "--plugin", type=click.Choice(["common", "claude-code", "openclaw"]), help="Write a plug-in bundle instead."
)
@click.option("--to", "folder", type=click.Path(path_type=Path), help="The folder of the bundle; an empty one.")
@dry_run_option
@yes_option
@pass_context
def connect(
    context: CommandContext,
    words: tuple[str, ...],
    remove: bool,
    plugin: str | None,
    folder: Path | None,
    dry_run: bool,
) -> None:
    """Connect agents on this machine to this memory.

    Without CLIENT, every agent that is found. It shows what changes in the agent's own configuration and asks first:
    an MCP server and, where the agent has hooks, the snapshot at the start, recall with each prompt, and capture of
    the conversation. Everything else in the files stays as it is, comments too. `herma connect status` says whether
    memory really arrives. `herma connect import` writes a service file that keeps imported conversations current.

    \b
    Examples:
      herma connect
      herma connect claude-code codex --dry-run
      herma connect status
      herma connect import
      herma connect cursor --remove
      herma connect --plugin claude-code --to ./herma-plugin
    """
    home = resolve_home(context.home, context.profile)
    machine, program = Machine.here(), Program.here(home)
    if plugin or folder:
        _write_plugin(context, plugin, folder, program)
        return
    connections = ConnectedClients(home, machine, program)
    if words == (IMPORT,):
        _service(context, home, machine, remove=remove, dry_run=dry_run)
        return
    if words[:1] == (STATUS,):
        _show_status(context, connections, connections.chosen(words[1:]))
        return
    names = connections.chosen(words) or connections.installed()
    if not names:
        context.fail(
            "No agent was found on this machine.",
            hint="Name one: herma connect claude-code. The names: " + ", ".join(connections.clients),
            code="not_found",
        )
    if remove:
        _remove(context, connections, names, dry_run=dry_run)
    else:
        _connect(context, connections, names, dry_run=dry_run)


def _connect(context: CommandContext, connections: ConnectedClients, names: list[str], *, dry_run: bool) -> None:
    plans = [connections.plan(name) for name in names]
    _show(context, plans)
    due = [plan for plan in plans if plan.changes]
    done = bool(due) and not dry_run
    if done:
        files = sum(one.changes for plan in due for one in plan.files)
        if not context.confirm(f"Change {output.count(files, 'file')}?"):
            context.fail("Nothing was changed.", code="declined")
        for plan in due:
            connections.apply(plan)
    for plan in plans:
        if not plan.trouble and not dry_run:
            context.line(f"{plan.client.title} is connected. {plan.client.trust}".rstrip())
    if context.json:
        clients = [_as_json(plan, done=done) for plan in plans]
        context.print_json({"ok": not any(plan.trouble for plan in plans), "dry_run": dry_run, "clients": clients})
    elif done:
        context.line("Then see whether it arrives: herma connect status")
    if any(plan.trouble for plan in plans):
        context.exit(1)


def _show(context: CommandContext, plans: list[ClientPlan]) -> None:
    for plan in plans:
        found = f" (found: {plan.found})" if plan.found else " (not found on this machine)"
        context.heading(f"{plan.client.title}{found}")
        if plan.trouble:
            context.warn(plan.trouble)
        elif not plan.changes:
            context.line("Connected already; nothing to change.")
        for file in plan.files:
            if file.changes:
                context.line(file.diff())


def _remove(context: CommandContext, connections: ConnectedClients, names: list[str], *, dry_run: bool) -> None:
    planned = {name: connections.remove(name, dry_run=True) for name in names}
    for name, files in planned.items():
        if files:
            context.heading(connections.clients[name].title)
        for file in files:
            context.line(file.diff())
    count = sum(map(len, planned.values()))
    if count and not dry_run:
        if not context.confirm(f"Change {output.count(count, 'file')}?"):
            context.fail("Nothing was changed.", code="declined")
        for name in names:
            connections.remove(name)
    if context.json:
        clients = [{"name": name, "files": [str(one.path) for one in files]} for name, files in planned.items()]
        context.print_json({"ok": True, "dry_run": dry_run, "clients": clients})
    elif not count:
        context.line("Nothing of Herma is in their configuration.")
    elif not dry_run:
        context.line(f"{output.count(count, 'file')} changed back.")


def _as_json(plan: ClientPlan, *, done: bool) -> dict[str, object]:
    return {
        "name": plan.client.name,
        "title": plan.client.title,
        "found": plan.found,
        "changed": done and plan.changes,
        "files": [{"path": str(one.path), "diff": one.diff()} for one in plan.files if one.changes],
        "trust": plan.client.trust,
        "trouble": plan.trouble,
    }


def _show_status(context: CommandContext, connections: ConnectedClients, names: list[str]) -> None:
    with context.open() as h:
        found = connections.status(h, names)
    if context.json:
        context.print_json({"ok": True, "clients": [client_json(one) for one in found]})
        return
    if not found:
        context.line("No agent was found on this machine, and none is connected.")
        return
    rows = [
        (
            one.client.name,
            one.state,
            _when(one.hook and one.hook.at),
            _when(one.tool and one.tool.at),
            _when(one.captured),
        )
        for one in found
    ]
    context.table(("client", "state", "last hook", "last tool call", "last captured turn"), rows)
    for one in found:
        context.line(f"{one.client.name}: {one.verdict}")


def client_json(one: ClientStatus) -> dict[str, object]:
    return {
        "name": one.client.name,
        "found": one.found,
        "state": one.state,
        "hooks": bool(one.client.hooks),
        "last_hook": {"at": _when(one.hook.at), "event": one.hook.what} if one.hook else None,
        "last_tool_call": {"at": _when(one.tool.at), "tool": one.tool.what} if one.tool else None,
        "last_captured": _when(one.captured) or None,
        "verdict": one.verdict,
    }


def _when(at: float | None) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else ""


def _write_plugin(context: CommandContext, plugin: str | None, folder: Path | None, program: Program) -> None:
    if plugin is None or folder is None:
        raise UsageError("--plugin and --to belong together.", hint="herma connect --plugin common --to ./herma-plugin")
    written = write_bundle(plugin, folder, program)
    if context.json:
        context.print_json({"ok": True, "files": [str(path) for path in written]})
        return
    for path in written:
        context.line(str(path))
    if plugin == "openclaw":
        context.line("Now run:")
        context.line(
            f"  openclaw plugins install --link {shlex.quote(str(folder.absolute()))} --force --accept-capabilities"
        )
        context.line("  openclaw config set plugins.entries.herma.hooks.allowConversationAccess true")


def _service(context: CommandContext, home: Path, machine: Machine, *, remove: bool, dry_run: bool) -> None:
    """Write the service file of this user that runs `herma import --watch`, or remove it."""
    command = [shutil.which("herma") or sys.argv[0], "import", "--watch", "--yes", "--home", str(home)]
    if machine.platform == "darwin":
        file = machine.home / "Library" / "LaunchAgents" / "org.herma-import.plist"
        label = {"Label": "org.herma-import", "ProgramArguments": command, "KeepAlive": True}
        text, start, stop = plistlib.dumps(label), f"launchctl load {file}", f"launchctl unload {file}"
    elif machine.platform.startswith("linux"):
        file = machine.home / ".config" / "systemd" / "user" / "herma-import.service"
        text = _UNIT.format(command=shlex.join(command).replace("%", "%%")).encode()
        start, stop = (f"systemctl --user {word} --now herma-import" for word in ("enable", "disable"))
    else:
        context.fail("A service file can be written on Linux and macOS only.", "Use your scheduler: herma import")
    there = file.read_bytes() if file.exists() else None
    changes = there is not None if remove else there != text
    if changes and there is not None and not dry_run:
        question = f"{'Remove' if remove else 'Replace'} {file}?"
        if not context.confirm(question):
            context.fail("Nothing was changed.", code="declined")
    if changes and remove and not dry_run:
        file.unlink()
    elif changes and not dry_run:
        make_folder(file.parent)
        replace_file(file, text)
    if context.json:
        shown = {"file": str(file), "changed": changes and not dry_run, "start": start, "stop": stop}
        context.print_json({"ok": True, "dry_run": dry_run, **shown})
    if not changes:
        context.line(f"{file} {'does not exist' if remove else 'is there already'}; nothing was changed.")
    else:
        context.line(
            f"{('Would remove' if remove else 'Would write') if dry_run else 'Removed' if remove else 'Wrote'} {file}."
        )
    context.line(f"To stop it: {stop}" if remove else f"To start it: {start}")


@click.command("mcp", cls=HermaCommand)
@click.option("--client", metavar="NAME", default="", help="The client that connects; `herma connect` fills this in.")
@with_home
def mcp(context: CommandContext, client: str) -> None:
    """Serve memory to one agent over MCP, on stdin and stdout.

    Agents start this themselves: `herma connect` writes it into their configuration. Over HTTP, `herma serve` offers
    the same at /mcp, for programs that send the token of the home.

    \b
    Examples:
      herma connect claude-code
      npx @modelcontextprotocol/inspector --cli herma mcp --method tools/list
    """
    if importlib.util.find_spec("mcp") is None:
        raise UsageError(
            "The MCP server needs the mcp library, which is not installed.", hint=f"Type: {install_command('mcp')}"
        )
    if sys.stdin is not None and sys.stdin.isatty():
        context.warn("This speaks MCP with a program, not with a person; Ctrl-C ends it. See: herma connect")
    import_module("herma.mcp.server").run_stdio(context.h, client)


@click.command("hook", cls=HermaCommand, context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="EVENT [--client NAME]")
@pass_context
def hook(context: CommandContext, words: tuple[str, ...]) -> None:
    """Answer a hook of an agent: its JSON on stdin, what to show the model on stdout.

    `herma connect` writes this into an agent's configuration. EVENT is session-start, prompt, stop, pre-compact or
    session-end. It never fails: `herma doctor` reports errors.

    \b
    Examples:
      echo '{"session_id": "1", "prompt": "which port?"}' | herma hook prompt --client claude-code
    """
    home = ["--home", context.home] if context.home else []
    profile = ["--profile", context.profile] if context.profile else []
    context.exit(import_module("herma.mcp.hook").main([*words, *home, *profile]))
