"""`herma serve`: the dashboard in a browser, and the same values as JSON."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from herma.cli.frame import Context, HermaCommand, pass_context
from herma.config import resolve_home
from herma.errors import UsageError

if TYPE_CHECKING:
    import socket

    from herma.web.access import Rules

PORT = 8765


@click.command(cls=HermaCommand)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on; 0.0.0.0 is every one.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port to listen on; 0: a free one."
)
@click.option("--open", "open_it", is_flag=True, help="Open it in the browser.")
@click.option(
    "--allow-host", "names", metavar="NAME", multiple=True, help="Another name that it may be called by; repeatable."
)
@click.option("--new-token", is_flag=True, help="Make a new token: links and browsers of before are not let in.")
@pass_context
def serve(context: Context, host: str, port: int, open_it: bool, names: tuple[str, ...], new_token: bool) -> None:
    """Show the dashboard in a browser: what is kept, what it costs, whether all is well. Ctrl-C ends it.

    It prints a link with the home's token in it; whoever has the link can look, and a browser that came in with it
    stays in for a week. Only this machine can reach the server unless you give another --host. Nothing can be changed
    through it.

    \b
    Programs get the same values as JSON, with the token that is kept in the home:
      curl -H "Authorization: Bearer $(cat ~/.herma/web.token)" http://127.0.0.1:8765/api/spending

    \b
    From another machine, without opening it to the network:
      ssh -L 8765:127.0.0.1:8765 that-machine

    \b
    Examples:
      herma serve --open
      herma serve --port 0 --json
      herma serve --host 0.0.0.0 --allow-host workstation.local
    """
    _check_installed()
    from herma.web.access import Rules, host_name
    from herma.web.app import make_app
    from herma.web.gate import Codes
    from herma.web.house import House
    from herma.web.server import listen, run
    from herma.web.token import home_token

    home = resolve_home(context.home, context.profile)
    listening = listen(host, port)
    with listening:
        token = home_token(home, renew=new_token)
        if token.note:
            context.warn(token.note)
        rules = Rules(token.value, listening.getsockname()[1], host, frozenset(map(host_name, names)))
        house, codes = House(home, context.open), Codes()
        address = _address(host, listening)

        def ready() -> None:
            _announce(context, rules, address)
            if open_it:
                _open(f"{address}/enter?code={codes.make()}", context.warn)

        try:
            run(make_app(house, rules, codes), listening, ready=ready, tell=context.warn, debug=context.debug)
        finally:
            house.close()
    context.line("Ended.")


def _check_installed() -> None:
    for library in ("starlette", "uvicorn"):
        if importlib.util.find_spec(library) is None:
            raise UsageError(
                f"The dashboard needs the {library} library, which is not installed.",
                hint="Type: pip install 'herma[web]'",
            )


def _address(host: str, listening: socket.socket) -> str:
    """Where a browser on this machine finds it."""
    name, port = listening.getsockname()[:2]
    if name in ("0.0.0.0", "::"):  # noqa: S104  every address: this is one of them
        name = "127.0.0.1" if name == "0.0.0.0" else "::1"  # noqa: S104
    elif host == "localhost":
        name = host
    return f"http://[{name}]:{port}" if ":" in name else f"http://{name}:{port}"


def _announce(context: Context, rules: Rules, address: str) -> None:
    from herma.web.access import is_loopback

    link = f"{address}/enter?token={rules.token}"
    if context.json:
        home = resolve_home(context.home, context.profile)
        context.print_json(
            {"ok": True, "url": address, "link": link, "token": rules.token, "port": rules.port, "home": home}
        )
    context.line(f"The dashboard is at {address}; this link lets you in:")
    context.line(f"  {link}")
    if not is_loopback(rules.bound_to):
        context.warn(
            "Other machines can reach this server, and what it sends is not encrypted. Use it only in a network "
            "that you trust, or keep it to this machine and use ssh -L."
        )
    context.line("Ctrl-C ends it.")
    _flush()


def _flush() -> None:
    import sys

    sys.stdout.flush()  # a program that reads the link must not wait for the end


def _open(address: str, tell: Callable[[str], None]) -> None:
    """In a thread: some browsers run in the terminal, and come back when they are closed."""
    import webbrowser

    def work() -> None:
        if not webbrowser.open(address):
            tell("No browser could be started; open the link yourself.")

    threading.Thread(target=work, name="herma: browser", daemon=True).start()
