"""Write the reference pages from the code: commands, configuration keys, tools, outcomes and errors, addresses.

The page of each client of `herma connect` is written by running its commands.

python scripts/reference.py            write docs/reference/ and docs/how-to/connect/
python scripts/reference.py --check    say what is out of date, and fail
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import sys
import typing
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import click
import client_pages

FOLDER = Path(__file__).resolve().parent.parent / "docs"
NOTE = "<!-- Written by scripts/reference.py from the code. Change the code, then run `./run docs`. -->"


def commands() -> Iterator[str]:
    """Every command as its own help shows it."""
    from herma.cli.main import cli

    yield "# Commands\n\nThe output of `--help`, command by command.\n"
    yield (
        "Every command ends with one of these exit codes. With `--json`, an error is "
        '`{"ok": false, "error": {"code", "message", "hint"}}`; `code` is stable.\n'
    )
    yield (
        "| exit code | meaning |\n|---|---|\n| 0 | done |\n| 1 | nothing found, or refused |\n"
        "| 2 | wrong use: an unknown command, option, value, id or configuration |\n"
        "| 3 | broken: a file, a database, a model or a provider failed, or Herma has a bug |\n"
        "| 130, 141 | interrupted; the reader of a pipe has gone |\n"
    )
    yield from _command(cli, "herma", click.Context(cli, info_name="herma", terminal_width=100))


def _command(command: click.Command, path: str, context: click.Context) -> Iterator[str]:
    depth = "#" * min(4, path.count(" ") + 2)
    yield f"{depth} {path}\n\n```\n{command.get_help(context).rstrip()}\n```\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _command(child, f"{path} {name}", click.Context(child, parent=context, info_name=name))


def configuration() -> Iterator[str]:
    """Every key, with its default, range and variable."""
    from herma import config
    from herma.config import KEYS

    yield "# Configuration keys\n"
    yield (
        "Precedence: flag, then environment, then a project's `.herma.yaml`, then the home's `config.yaml`, then the "
        "default. A project's file may set only the keys marked so. `herma config show` shows the current values and "
        "their sources.\n"
    )
    for section, kind in config.sections().items():
        yield f"## {section}\n\n{inspect.getdoc(kind)}\n"
        yield "| key | default | must be | variable | project | meaning |\n|---|---|---|---|---|---|"
        for key, item in config.options().items():
            if key.startswith(f"{section}."):
                project = "yes" if item.project else ""
                default = json.dumps(item.default)
                yield f"| `{key}` | `{default}` | {item.expected} | `{item.variable}` | {project} | {item.doc} |"
        yield ""

    yield "## mcp_servers\n\nServers whose tools `herma chat` may call, by name; only in the home's `config.yaml`.\n"
    yield "Below each name: " + ", ".join(f"`{key}`" for key in KEYS) + "; see [how to](../how-to/chat.md).\n"


def tools() -> Iterator[str]:
    """The function schemas as a model gets them."""
    import tempfile

    from herma import Herma

    yield "# Tools\n"
    yield "What `h.tools.schemas()` returns: OpenAI function schemas. `h.tools.call(name, arguments)` runs one.\n"
    with tempfile.TemporaryDirectory() as home, Herma.open(home) as h:
        for schema in h.tools.schemas():
            function = schema["function"]
            yield f"## {function['name']}\n\n{function['description']}\n"
            yield f"```json\n{json.dumps(function['parameters'], indent=2, ensure_ascii=False)}\n```\n"


def outcomes() -> Iterator[str]:
    """What a write may come to, and what may be broken."""
    from herma import errors, types

    yield "# Outcomes and errors\n"
    yield "An outcome that a user or a model can cause is a value; a failure is an exception.\n"
    yield "## Outcomes of a write\n"
    yield "| outcome | ok | fields beyond target, message, entry_count, used, limit | meaning |\n|---|---|---|---|"
    for kind in typing.get_args(types.MemoryOutcome):
        own = [f.name for f in dataclasses.fields(kind) if f.name not in _COMMON]
        yield f"| `{kind.__name__}` | {'yes' if kind.ok else 'no'} | {', '.join(own) or '–'} | {_first(kind)} |"
    yield "\n## Errors\n"
    yield "Each has a sentence (`str(error)`), a next step (`error.hint`) and an exit code for the command line.\n"
    yield "| error | is a | exit code | meaning |\n|---|---|---|---|"
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, errors.HermaError):
            yield f"| `{kind.__name__}` | `{kind.__mro__[1].__name__}` | {kind.exit_code} | {_first(kind)} |"
    yield ""


def http() -> Iterator[str]:
    """Every address of `herma serve`, from its table of operations."""
    from herma.web import app as _  # noqa: F401  (declares the operations)
    from herma.web.api import LARGEST_BODY, OPERATIONS, V1

    yield "# Addresses of `herma serve`\n"
    yield (
        "Send `Authorization: Bearer TOKEN`; the token is in `web.token` in the home. A browser signs in with the "
        "link; see [the dashboard](../how-to/dashboard.md). Every address returns JSON, as the commands print it with "
        f"`--json`; `{V1}/openapi.json` describes them for programs (OpenAPI 3.1).\n"
    )
    for method, title, names in (("GET", "Reading", "query"), ("POST", "Changing", "fields")):
        yield f"## {title}\n"
        yield f"| address below `{V1}` | {'page | ' if method == 'GET' else ''}what it does | {names} |"
        yield f"|---|---|---|{'---|' if method == 'GET' else ''}"
        for one in OPERATIONS:
            if one.method == method:
                given = [
                    f"`{each.name}`{'' if each.required else ' ?'}" for each in one.parameters if each.place != "path"
                ]
                page = f"`{one.page}` | " if method == "GET" else ""
                yield f"| `{method} {one.path}` | {page}{one.about} | {', '.join(given) or '–'} |"
        yield ""
    yield "`?` marks what may be left out.\n"
    yield "## Other addresses\n"
    yield "| address | what it does |\n|---|---|"
    for path, about in (
        (
            f"{V1}/events",
            "Server-sent events: `change` whenever something is written to the home, by whatever program.",
        ),
        ("/metrics", "Figures of the home and of the server for Prometheus."),
        ("/healthz", "Whether the home can be read; open to everybody, and says nothing else."),
        ("/v1/chat/completions", "Answers like OpenAI's API, as does `GET /v1/models` ([how](../how-to/proxy.md))."),
        ("/mcp", "[MCP](../how-to/connect-agents.md) over HTTP."),
    ):
        yield f"| `{path}` | {about} |"
    yield (
        "\nA list has `next`: give it as `offset` (messages: as `after`) for the next page; `null` at the end. "
        "An answer has an `ETag`; with `If-None-Match` the same answer is `304` without a body. A change may be sent "
        f"as JSON or as a form, of at most {LARGEST_BODY:,} bytes; its answer has `message`, and `undo` where it can "
        "be undone.\n\n"
        'An error is `{"ok": false, "error": {"code", "message", "hint"}}` with a status: 400 for a wrong value, 401 '
        "without the token, 403 for a change that no page of the server sent, and for one that only a person signed in "
        "with a browser may make, 404 and 405 for a wrong address or "
        "method, 409 for a change that was refused (with its `outcome`), 413 and 415 for a wrong body, 421 for an "
        "unknown host name, 429 for too many requests (with `Retry-After`), 503 while the store is busy (with "
        "`Retry-After`) or the configuration cannot be read, 500 otherwise. `code` is stable.\n"
    )


_COMMON = {"target", "message", "entry_count", "used", "limit"}


def _first(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").split())


PAGES: dict[str, Callable[[], Iterator[str]]] = {
    "reference/commands.md": commands,
    "reference/configuration.md": configuration,
    "reference/tools.md": tools,
    "reference/outcomes.md": outcomes,
    "reference/http.md": http,
    **{name: partial(client_pages.client_page, client) for name, client in client_pages.PAGES.items()},
}


def render(name: str) -> str:
    return f"{NOTE}\n\n" + "\n".join(PAGES[name]()).rstrip() + "\n"


def main() -> int:
    stale = [
        name for name in PAGES if not (FOLDER / name).exists() or (FOLDER / name).read_text("utf-8") != render(name)
    ]
    for name in stale:
        if "--check" in sys.argv:
            print(f"docs/{name} is out of date; run ./run docs")
            continue
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(render(name), encoding="utf-8")
        print(f"wrote docs/{name}")
    return 1 if stale and "--check" in sys.argv else 0


if __name__ == "__main__":
    sys.exit(main())
