"""Write a how-to page for each client of `herma connect`, by running its commands in an empty home.

The folder of the client is the only thing in the user's folder, so the page shows everything that is written.
`scripts/reference.py` calls this, and its `--check` compares the pages with what the commands print now.
"""

from __future__ import annotations

import os
import tempfile
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner

from herma.cli.main import cli
from herma.connect.clients import CLIENTS, Client, OwnFile, Program
from herma.importers.base import Machine
from herma.importers.pipeline import readers
from herma.mcp.events import INJECTS

USER = "/home/you"
PROGRAM = f"{USER}/.local/bin/herma"
SHOWN_LINES = 16
"""Lines that a page shows of what is written into one file."""

MORE = {
    "claude-code": """\
- The tools alone, without hooks: `claude mcp add --scope user herma -- herma mcp --client claude-code`
- The same as a plug-in: `herma connect --plugin claude-code --to ./herma-plugin`, then
  `claude --plugin-dir ./herma-plugin`.
""",
    "codex": """\
- `codex exec` does not wait for MCP servers: a run with one prompt has the notes and recall, but not the tools.
- The tools alone, without hooks: `codex mcp add herma -- herma mcp --client codex`
""",
    "gemini": """\
- `gemini -p` leaves out tools that need an approval: add `--approval-mode yolo`, or `"trust": true` to the entry.
""",
    "cursor": """\
- The editor sometimes drops the notes of the start, because it does not wait for its hooks; the command line does not.
""",
    "antigravity": "- The editor and the command line `agy` read the same file.\n",
    "opencode": "- OpenCode runs no commands as hooks: `herma.js` is a plug-in that runs `herma hook`.\n",
    "copilot": "- VS Code reads the same folder of hooks. An event that fires twice is answered once.\n",
    "vscode": "- Copilot CLI reads the same folder of hooks. An event that fires twice is answered once.\n",
    "zed": "- The prompt `/start_session` brings the notes into a thread.\n",
    "goose": '- For one session only: `goose session --with-extension "herma mcp --client goose"`\n',
    "openclaw": """\
- Recall with each message and capture at once: [Herma as OpenClaw's
  memory](../memory-providers.md#herma-as-the-memory-of-hermes-or-openclaw).
""",
    "hermes": """\
- Instead of hooks: [Herma as Hermes' memory
  provider](../memory-providers.md#herma-as-the-memory-of-hermes-or-openclaw).
""",
    "droid": '- The tools alone, without hooks: `droid mcp add herma "herma mcp --client droid"`\n',
}
"""What else is worth knowing about a client."""


def client_page(client: Client) -> Iterator[str]:
    """Yield the page of one client."""
    name, title = client.name, client.title
    with _empty_machine(client) as user:
        connected = _ran(user, "connect", name, "--yes")
        status = _ran(user, "connect", "status", name)
        removed = _ran(user, "connect", name, "--remove", "--yes")
        written = [f"| `{_told(user, str(path))}` | {what} |" for path, what in _written(client)]
    yield f"# Connect {title}\n"
    yield _console("pip install 'herma[mcp]'", f"$ herma connect {name} --yes", _short(connected))
    yield _wrapped(
        "Without `--yes` it asks before it writes; with `--dry-run` it only shows. Comments and everything else in the "
        "files stay as they are."
    )
    yield "\n".join(["| file | what is written |", "|---|---|", *written, ""])
    yield f"**Left to you:** {client.trust}\n"
    yield f"## What {title} gets\n"
    yield "\n".join(_gets(client)) + "\n" + MORE.get(name, "")
    yield "## Check\n"
    yield _console(f"herma connect status {name}", status)
    yield _wrapped(
        f"After the next session with {title} the last line begins with `{name}: Memory arrives.`, and the table has "
        'the times. To see it work, type `herma remember "The kiosk printer answers on 10.4.7.9."` and ask '
        f"{title} where the printer answers."
    )
    yield "## Remove\n"
    yield _console(f"herma connect {name} --remove --yes", _short(removed, 4))
    yield "The files are as they were before, to the byte. [All agents](../connect-agents.md)"


def _gets(client: Client) -> Iterator[str]:
    """Yield what reaches a client and what it gives, a line each."""
    at_start, with_prompt = INJECTS.get(client.name, (True, True)) if client.hooks else (False, False)
    yield "- **Tools** over MCP: `memory`, `session_search`, `recall`, `skills_list`, `skill_view`, `skill_manage`."
    if at_start:
        yield "- **Your notes** at the start of each session."
    elif with_prompt:
        yield "- **Your notes** with the first prompt of each session."
    else:
        yield f"- **Your notes**, if {client.title} shows the server's instructions to its model."
    if with_prompt:
        yield "- **Recall**: what past sessions say about a prompt, with each prompt."
    else:
        yield f"- **Recall** when the agent calls the tool `recall`: {client.title} takes no text with a prompt."
    if client.name not in readers():
        yield "- **Capture**: only what the agent writes with `memory`; Herma cannot read its conversations."
    elif client.hooks:
        yield f"- **Capture**: each turn is found at once: `herma search WORDS --source {client.name}`"
    else:
        yield f"- **Capture**: `herma import {client.name}` reads its conversations; `--watch` keeps them current."


def _written(client: Client) -> Iterator[tuple[Path, str]]:
    """Yield each file that is written for a client, with what goes into it."""
    found: dict[Path, list[str]] = {}
    for part in client.parts(Machine.here(), Program(("herma",))):
        whats = found.setdefault(part.path, [])
        if isinstance(part, OwnFile):
            whats.append("a file of Herma's own, with the hooks")
        elif not part.is_item and not part.is_shared:
            whats.append(f"`{'.'.join(part.keys)}`, the MCP server")
        elif part.is_item and not any("hooks" in what for what in whats):
            whats.append("hooks: " + ", ".join(f"`{name}`" for name in client.hooks))
    for path, whats in found.items():
        yield path, "; ".join(whats)


@contextmanager
def _empty_machine(client: Client) -> Iterator[Path]:
    """Make the user's folder one with nothing in it but the client's own folder."""
    before = dict(os.environ)
    with tempfile.TemporaryDirectory() as folder:
        os.environ.clear()
        os.environ.update(HOME=folder, USERPROFILE=folder, PATH=os.pathsep.join(["/usr/bin", "/bin"]), TZ="UTC")
        try:
            client.folder(Machine.here()).mkdir(parents=True)
            yield Path(folder)
        finally:
            os.environ.clear()
            os.environ.update(before)


def _ran(user: Path, *words: str) -> str:
    """Run a command and return what it printed, as on the machine of the reader."""
    done = CliRunner().invoke(cli, list(words))
    if done.exit_code:
        raise SystemExit(f"herma {' '.join(words)}: {done.output}")
    return _told(user, done.stdout)


def _told(user: Path, text: str) -> str:
    [program] = Program.here(user).words
    return text.replace(program, PROGRAM).replace(str(user), USER)


def _short(printed: str, most: int = SHOWN_LINES) -> str:
    """Shorten the changes of each file to so many lines."""
    kept: list[str] = []
    at = 0
    for line in printed.splitlines():
        at = 1 if line.startswith("--- ") else at + 1 if at and line[:1] in "+-@ " else 0
        if at <= most:
            kept.append(line)
        elif kept[-1] != "…":
            kept.append("…")
    return "\n".join(kept)


def _console(command: str, *printed: str) -> str:
    return "\n".join(["```console", f"$ {command}", *map(str.strip, printed), "```\n"])


def _wrapped(text: str) -> str:
    return textwrap.fill(text, 118, break_on_hyphens=False, break_long_words=False) + "\n"


PAGES = {f"how-to/connect/{client.name}.md": client for client in CLIENTS}
