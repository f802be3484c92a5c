"""`herma config`, `herma context`, `herma worker` and `herma serve`."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from herma import config as configuration
from herma.cli import output
from herma.cli.context import (
    CommandContext,
    HermaCommand,
    HermaGroup,
    agent_marker,
    for_people_only,
    pass_context,
    with_home,
)
from herma.cli.encode import encode, iso
from herma.cli.output import count, name_of, when
from herma.errors import ConfigError, StoreBusy, UsageError, install_command
from herma.prompt.ledger import recalled_in
from herma.prompt.tokens import Plan, draw
from herma.search.prefetch import Prefetched, Weighed, model_for
from herma.transcript.cli import find_session
from herma.types import Scope, SessionFilter, SessionInfo
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    import socket

    from herma.app import Herma
    from herma.config import McpServer, Value
    from herma.web.access import Rules

# ── config ───────────────────────────────────────────────────────────────────────────────────────────────────────

_PASSWORD = re.compile(r"""(//[^/@:\s]*:)[^/\s]+(@)|(\bpassword=)('[^']*'?|[^&\s]+)""")


def shown(value: Value, *, secrets: bool = False) -> str:
    """Return a value as a person types it; passwords inside addresses are left out unless `secrets`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str) and not secrets:
        return _PASSWORD.sub(r"\1\3…\2", value)
    return str(value)


def _safe(value: Value) -> Value:
    return shown(value) if isinstance(value, str) else value


def _reached_by(server: McpServer) -> str:
    """Return the program or the address, without arguments and headers: those may hold keys."""
    return shown(server.place)


def home_file(context: CommandContext) -> Path:
    return configuration.resolve_home(context.home, context.profile) / configuration.HOME_FILE


def _complete_key(_: click.Context, __: click.Parameter, typed: str) -> list[str]:
    return [key for key in configuration.options() if key.startswith(typed)]


key_argument = click.argument("key", shell_complete=_complete_key)


@click.group(cls=HermaGroup, order="show set unset")
def config() -> None:
    """Show and change settings.

    A flag wins over a HERMA_… variable, which wins over a project's .herma.yaml, which wins over the home's
    config.yaml.

    \b
    Examples:
      herma config show
      herma config set memory.memory_char_limit 3000
      HERMA_MEMORY_MEMORY_CHAR_LIMIT=3000 herma config show memory.memory_char_limit
    """


@config.command()
@click.argument("key", required=False, shell_complete=_complete_key)
@click.option("--path", is_flag=True, help="Print the path of the home's config.yaml.")
@pass_context
def show(context: CommandContext, key: str | None, path: bool) -> None:
    """Print the value of one key, or list every key with its value, source and meaning.

    Ignored keys (unknown, or not allowed in a project's file) stand at the end.

    \b
    Examples:
      herma config show
      herma config show memory.memory_char_limit
      herma config show --json
      $EDITOR "$(herma config show --path)"
    """
    if path:
        _show_path(context)
        return
    if key is not None:
        settings = context.settings()
        value = configuration.get(settings, key)
        if context.json:
            context.print_json({"ok": True, "key": key, "value": value, "source": settings.sources[key]})
        context.line(shown(value, secrets=True))
        return
    settings = context.settings(warn=False)
    rows = [(known, configuration.get(settings, name), settings.sources[name]) for name, known in _options()]
    if context.json:
        keys = [_key_json(known, value, source) for known, value, source in rows]
        servers = [
            {"name": one.name, "reached_by": _reached_by(one), "enabled": one.enabled} for one in settings.mcp_servers
        ]
        problems = [
            {"key": one.key, "where": one.where, "nearest": one.nearest, "message": str(one)}
            for one in settings.problems
        ]
        home = {"home": settings.home, "profile": settings.profile}
        context.print_json({"ok": True, **home, "keys": keys, "mcp_servers": servers, "problems": problems})
        return
    context.line(f"Home {settings.home}, profile {settings.profile}")
    context.line()
    table = [(known.key, shown(value) or '""', source, known.doc) for known, value, source in rows]
    context.table(("key", "value", "from", "description"), table, drop=("from",))
    for title, lines in (
        (
            "MCP servers (mcp_servers in config.yaml):",
            [f"{one.name}: {_reached_by(one)}{'' if one.enabled else ' (off)'}" for one in settings.mcp_servers],
        ),
        ("Ignored:", [str(problem) for problem in settings.problems]),
    ):
        if lines:
            context.line()
            context.line(title)
        for line in lines:
            context.line(f"  {line}")


def _options() -> list[tuple[str, configuration.Option]]:
    return list(configuration.options().items())


def _key_json(known: configuration.Option, value: Value, source: str) -> dict[str, Any]:
    return {
        "key": known.key,
        "value": _safe(value),
        "source": source,
        "default": known.default,
        "expected": known.expected,
        "description": known.doc,
        "variable": known.variable,
        "project": known.project,
    }


@config.command("set", context_settings={"ignore_unknown_options": True})
@key_argument
@click.argument("value")
@pass_context
def set_(context: CommandContext, key: str, value: str) -> None:
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
    _report(context, path, key, f"{key} set to {shown(value)} in {path}." if value else f"{key} cleared in {path}.")


@config.command()
@key_argument
@pass_context
def unset(context: CommandContext, key: str) -> None:
    """Remove one key from the home's config.yaml, so that its default is used.

    \b
    Examples:
      herma config unset memory.memory_char_limit
    """
    path = home_file(context)
    _guard(context, key)
    changed = configuration.unset_value(path, key)
    sentence = f"{key} removed from {path}." if changed else f"{key} is not set in {path}."
    _report(context, path, key, sentence, changed=changed)


def _guard(context: CommandContext, key: str) -> None:
    """Refuse to let an agent whose writes wait for a person end that by itself."""
    if key != "memory.write_approval" or agent_marker() is None:
        return
    if configuration.load(home=context.home, profile=context.profile).memory.write_approval:
        for_people_only("Changing memory.write_approval once it is on")


def _report(context: CommandContext, path: Path, key: str, sentence: str, **more: object) -> None:
    """Print what was changed, and the value now: a variable or a project's file may override config.yaml."""
    report: dict[str, object] = {"ok": True, "key": key, "file": path, **more}
    context.line(sentence)
    try:
        settings = context.settings()
    except ConfigError as exc:  # the change is made; another key is wrong
        context.warn(str(exc))
    else:
        value, source = configuration.get(settings, key), settings.sources[key]
        overridden = source not in ("default", str(path))
        report |= {"value": _safe(value), "source": source, "overridden": overridden}
        if overridden:
            context.warn(f"{source} overrides {path.name}: {key} stays {shown(value) or 'empty'}.")
        elif source == "default":
            context.line(f"Default: {shown(value) or 'empty'}.")
    if context.json:
        context.print_json(report)


def _show_path(context: CommandContext) -> None:
    """Print the path of the home's config.yaml, also before it exists."""
    file = home_file(context)
    if context.json:
        project = configuration.project_file()
        context.print_json({"ok": True, "home": file.parent, "file": file, "exists": file.exists(), "project": project})
    context.line(str(file))


# ── context ──────────────────────────────────────────────────────────────────────────────────────────────────────

_WIDTH = 72
_OUTCOMES = {
    "recalled": "Recalled:",
    "nothing": "Nothing recalled: no past message is relevant enough.",
    "no words": "Nothing recalled: the message has no words to search for.",
    "late": "Nothing recalled: the search took too long.",
}


@click.group(cls=HermaGroup, order="show recall")
def context() -> None:
    """See what fills the model's context window, and what is recalled into it.

    \b
    Examples:
      herma context show
      herma context recall "which hash did we choose?"
    """


@context.command("show")
@click.argument("session", required=False)
@click.option("--empty", is_flag=True, help="A new session, instead of the latest one.")
@click.option("--recalled", is_flag=True, help="List what was recalled into its messages.")
@with_home
def context_show(context: CommandContext, session: str | None, empty: bool, recalled: bool) -> None:
    """Draw the model's window: system prompt, memory, conversation, tool results, and the room for the reply.

    SESSION is an id, the beginning of one, or a title; the latest session if left out. The window's size comes from
    the model's name or from context.window.

    \b
    Examples:
      herma context show
      herma context show "login bug" --recalled
      herma context show --empty
    """
    if empty and (session is not None or recalled):
        raise UsageError("--empty shows a new session, which has no id and no messages.", hint="Leave out one of them.")
    info = find_session(context, session) if session is not None else None if empty else _latest(context)
    if recalled:
        _show_recalled(context, info)
        return
    plan = context.h.working_memory(info.id if info else None)
    if context.json:
        context.print_json({"ok": True, "session": info.id if info else None, **plan.values()})
        return
    context.line(_title(context, info, plan))
    context.line()
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else _WIDTH
    for line in draw(plan, min(width, 2 * _WIDTH)).splitlines():
        context.line(line)


def _latest(context: CommandContext) -> SessionInfo | None:
    found = context.h.transcripts.list(SessionFilter(archived=None), limit=1)
    return context.h.transcripts.get(found[0].id) if found else None


def _title(context: CommandContext, info: SessionInfo | None, plan: Plan) -> str:
    size = f"a window of {plan.window:,} tokens"
    if info is None:
        model = context.h.settings.model.name
        return f"A new session{f' with {model}' if model else ''}, {size}"
    facts = [info.id, count(info.message_count, "message"), when(info.last_active), info.model or ""]
    return f"{name_of(info, 50)} ({', '.join(filter(None, facts))}), {size}"


def _show_recalled(context: CommandContext, info: SessionInfo | None) -> None:
    """List what was recalled into the user's messages of a session: past conversations, memory, providers."""
    messages = context.h.transcripts.messages(info.id) if info else []
    found = [(one, text) for one in messages if one.role == "user" and (text := recalled_in(one.sent))]
    if context.json:
        turns = [{"message_id": one.id, "timestamp": iso(one.timestamp), "recalled": text} for one, text in found]
        context.print_json({"ok": True, "session": info.id if info else None, "turns": turns})
        return
    if not found:
        context.line("Nothing was recalled in this session." if info else "There is no session yet.")
    for one, text in found:
        context.line(f"message {one.id}:")
        for line in output.visible(text).splitlines():
            context.line(f"  {line}")


@context.command()
@click.argument("text", nargs=-1, required=True)
@click.option("--user", help="Recall as for this user.")
@with_home
def recall(context: CommandContext, text: tuple[str, ...], user: str | None) -> None:
    """Show what would be recalled from past conversations for a message, and why; no model is called.

    Each hit has a score, learned from labelled conversations; hits below the limit are left out. Turn recall off with
    search.prefetch.

    \b
    Examples:
      herma context recall "which hash did we choose for passwords?"
    """
    scope = Scope(context.h.settings.profile, user=user) if user else None
    context.h.prefetch.warm()  # as in a session that has run for a while
    found = context.h.prefetch.look(" ".join(text), scope=scope)
    if context.json:
        context.print_json({"ok": True, "enabled": context.h.prefetch.enabled, **_prefetched_json(found)})
        return
    if found.fact is not None:
        context.line(f"Fact: {found.fact.subject}, {found.fact.attribute} = {found.fact.value}")
    context.line(_OUTCOMES[found.outcome])
    for line in output.visible(found.text).splitlines():
        context.line(f"  {line}")
    for one in found.weighed:
        least = model_for(one.evidence).least
        verdict = "included" if one.included else one.why_not
        context.line(f"  message {one.hit.message_id}: score {one.chance:.2f} (needs {least:.2f}): {verdict}")
    took = f"{found.took_ms:g} ms, by {'words and meaning' if found.mode == 'hybrid' else 'words'}"
    off = "" if context.h.prefetch.enabled else " Recall is off: search.prefetch."
    context.line(f"{count(len(found.weighed), 'hit')} scored in {took}.{off}")


def _prefetched_json(found: Prefetched) -> dict[str, Any]:
    fact = found.fact and {"attribute": found.fact.attribute, "value": found.fact.value}
    return encode(found, fact=fact, weighed=[_weighed_json(one) for one in found.weighed])


def _weighed_json(one: Weighed) -> dict[str, Any]:
    return encode(
        one,
        rename={"included": "told"},
        omit=["hit", "body", "answer"],
        session_id=one.hit.session_id,
        message_id=one.hit.message_id,
        chance=round(one.chance, 4),
        least=model_for(one.evidence).least,
    )


# ── worker ──


@click.command(cls=HermaCommand)
@click.option("--once", is_flag=True, help="Do what is due, then end.")
@click.option(
    "--every", type=click.IntRange(1, 86_400), default=60, show_default=True, help="Seconds between two looks."
)
@with_home
def worker(context: CommandContext, once: bool, every: int) -> None:
    """Do background work that programs have left: reviews of sessions, the search index, upkeep of skills.

    Programs do this by themselves while they run; a worker does what short commands and killed programs leave. Any
    number of workers, on any hosts with the same store.url, share the work: each review is done by one. Ctrl-C ends a
    worker; its interrupted work is due again.

    \b
    Examples:
      herma worker --once
      herma worker --every 300
    """
    h, cancel = context.h, threading.Event()
    before = signal.signal(signal.SIGTERM, lambda *_: cancel.set())
    try:
        while True:
            done = _work(h, cancel)
            if context.json:
                context.print_json({"ok": True, "at": iso(h.clock()), **done})
            elif any(done.values()) or once:
                counts = [count(done["reviews"], "review"), count(done["indexed"], "message") + " indexed"]
                context.line("; ".join([*counts, *(["skills looked after"] if done["curated"] else [])]) + ".")
            if once or cancel.wait(every):
                return
    finally:
        signal.signal(signal.SIGTERM, before)


def _work(h: Herma, cancel: threading.Event) -> dict[str, int]:
    """Do what is due now, and say how much that was."""
    lag = h.index.status().lag
    h.index.wait()
    reviews, curated = h.reviews.do_due(cancel), 0
    if not cancel.is_set() and h.curator.due():
        with suppress(StoreBusy):  # another worker does it
            h.curator.run(why="worker", cancel=cancel)
            curated = 1
    return {"reviews": reviews, "indexed": lag - h.index.status().lag, "curated": curated}


# ── serve ──

PORT = 8765


@click.command(cls=HermaCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0: all.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option(
    "--open/--no-open", "open_it", default=None, help="Open a browser, or do not; by default on a desktop only."
)
@click.option("--allow-host", "names", metavar="NAME", multiple=True, help="Extra host name to accept (repeatable).")
@click.option("--new-token", is_flag=True, help="Create a new token; old links and signed-in browsers stop working.")
@pass_context
def serve(
    context: CommandContext, host: str, port: int, open_it: bool | None, names: tuple[str, ...], new_token: bool
) -> None:
    """Show the dashboard in a browser: memory, inbox, search, sessions, cost and health. Ctrl-C ends it.

    It prints a link with the home's token; everybody who has the link can sign in, for a week, and may read and change
    what is stored. Only this machine can reach the server unless you give another --host. Agents can use memory over
    MCP at /mcp, with the token as a bearer token.

    \b
    Programs get the same values as JSON, with the token from the home; /api/v1/openapi.json describes the addresses:
      curl -H "Authorization: Bearer $(cat ~/.herma/web.token)" http://127.0.0.1:8765/api/v1/memory

    \b
    From another machine, through an SSH tunnel:
      ssh -L 8765:127.0.0.1:8765 that-machine

    \b
    Examples:
      herma serve
      herma serve --no-open --port 0 --json
      herma serve --host 0.0.0.0 --allow-host workstation.local
    """
    _check_installed()
    from herma.web.access import Codes, Rules, home_token, host_name
    from herma.web.app import HomeHandle, listen, make_app, run

    home = configuration.resolve_home(context.home, context.profile)
    listening = listen(host, port)
    with listening:
        token = home_token(home, renew=new_token)
        if token.note:
            context.warn(token.note)
        rules = Rules(token.value, listening.getsockname()[1], host, frozenset(map(host_name, names)))
        home_handle, codes = HomeHandle(home, context.open), Codes()
        address = _address(host, listening)

        def ready() -> None:
            home_handle.known_health()  # the first look takes longest
            _print_link(context, rules, address)
            if open_it if open_it is not None else not context.json and _on_a_desktop():
                _open(f"{address}/enter?code={codes.make()}", context.warn)

        try:
            app = make_app(home_handle, rules, codes)
            run(app, listening, ready=ready, tell=context.warn, stop=home_handle.stop, debug=context.debug)
        finally:
            home_handle.close()
    context.line("Ended.")


def _check_installed() -> None:
    for library in ("jinja2", "starlette", "uvicorn"):
        if importlib.util.find_spec(library) is None:
            raise UsageError(
                f"The dashboard needs the package {library}, which is not installed.",
                hint=f"Type: {install_command('web')}",
            )


def _address(host: str, listening: socket.socket) -> str:
    """Return the address for a browser on this machine."""
    name, port = listening.getsockname()[:2]
    if name in ("0.0.0.0", "::"):  # noqa: S104  every address: this is one of them
        name = "127.0.0.1" if name == "0.0.0.0" else "::1"  # noqa: S104
    elif host == "localhost":
        name = host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _print_link(context: CommandContext, rules: Rules, address: str) -> None:
    from herma.web.access import is_loopback

    link = f"{address}/enter?token={rules.token}"
    if context.json:
        home = configuration.resolve_home(context.home, context.profile)
        context.print_json(
            {"ok": True, "url": address, "link": link, "token": rules.token, "port": rules.port, "home": home}
        )
    context.line(f"The dashboard is at {address}. To sign in:")
    context.line(f"  {link}")
    if not is_loopback(rules.bound_to):
        context.warn(
            "Other machines can reach this server, and its traffic is not encrypted. Use it only in a network "
            "that you trust, or listen on 127.0.0.1 and use ssh -L."
        )
    context.line("Ctrl-C ends it.")
    sys.stdout.flush()  # a program that reads the link must not wait for the end


def _on_a_desktop() -> bool:
    """Return whether the person at this terminal would see a browser window."""
    if not sys.stdout.isatty() or os.environ.get("SSH_CONNECTION"):
        return False
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


def _open(address: str, tell: Callable[[str], None]) -> None:
    """Open a browser in a thread: some run in the terminal, and return when they are closed."""
    import webbrowser

    def work() -> None:
        if not webbrowser.open(address):
            tell("No browser could be started; open the link.")

    BackgroundCall("browser", work).start()
