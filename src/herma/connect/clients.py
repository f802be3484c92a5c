"""Describe the clients of `herma connect`: where each keeps its configuration, and what is written into it.

`CLIENTS` is the table: a client has a file for its MCP servers, the place in it, and the form of its hooks.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from typing import NamedTuple, TypeAlias

from herma.connect.edits import Keys, format_of, get, put, put_item, take_out
from herma.importers.base import Machine

SERVER = "herma"
"""The name of the MCP server: clients put it before the names of tools, which together may have 60 characters."""


class Setting(NamedTuple):
    """One place in a configuration file: a value, or an item of a list."""

    path: Path
    keys: Keys
    value: object
    is_item: bool = False
    is_shared: bool = False
    """Text that the file keeps when the client is disconnected."""

    def applied(self, text: str) -> str:
        kind = format_of(self.path.name)
        if self.is_item:
            return put_item(text, kind, self.keys, self.value, self._is_same_hook)
        return put(text, kind, self.keys, self.value)

    def _is_same_hook(self, value: object) -> bool:
        """Return whether a hook in the list is ours and, where one list has all events, of the same event."""
        events = [one.get("event") if isinstance(one, dict) else None for one in (value, self.value)]
        return is_hook(value) and events[0] == events[1]

    def removed(self, text: str) -> str:
        if self.is_shared:
            return text
        return take_out(text, format_of(self.path.name), self.keys, is_hook if self.is_item else None)

    def is_in(self, text: str) -> bool:
        held = get(text, format_of(self.path.name), self.keys)
        return self.value in held if self.is_item and isinstance(held, list) else held == self.value


class OwnFile(NamedTuple):
    """A file that only Herma writes."""

    path: Path
    text: str

    def applied(self, text: str) -> str:
        del text
        return self.text

    def removed(self, text: str) -> str:
        return "" if text == self.text else text

    def is_in(self, text: str) -> bool:
        return text == self.text


Part: TypeAlias = Setting | OwnFile


def is_hook(value: object) -> bool:
    """Return whether a hook, or a group of hooks, runs this program."""
    if isinstance(value, dict):
        return any(map(is_hook, value.values()))
    if isinstance(value, list):
        return any(map(is_hook, value))
    return isinstance(value, str) and "herma" in value and " hook " in value and " --client " in value


@dataclass(frozen=True)
class Program:
    """The command with which clients start this program from any folder: its words, and those that name the home."""

    words: tuple[str, ...]
    home: tuple[str, ...] = ()

    @classmethod
    def here(cls, home: Path) -> Program:
        """Return the program that runs now, or the one of its environment.

        A home that is not ~/.herma is named: clients that a desktop starts have no HERMA_HOME.
        """
        usual = Path(os.path.expanduser("~/.herma"))  # noqa: PTH111 (without a user's folder, it stays as it is)
        named = ("--home", str(home)) if home != usual else ()
        begun = Path(sys.argv[0]).absolute()
        beside = shutil.which("herma", path=str(Path(sys.executable).absolute().parent))
        if begun.stem == "herma" and begun.is_file() and os.access(begun, os.X_OK):
            return cls((str(begun),), named)
        # -P: a file of the project in which the client works must not be imported
        return cls((beside,) if beside else (sys.executable, "-P", "-m", "herma"), named)

    def mcp(self, client: str) -> list[str]:
        """Return the command that serves MCP to a client."""
        return [*self.words, "mcp", "--client", client, *self.home]

    def hook(self, client: str, event: str) -> str:
        """Return a shell command that answers a hook."""
        words = [*self.words, "hook", event, "--client", client, *self.home]
        if os.name == "nt":
            from subprocess import list2cmdline

            return list2cmdline(words)
        return shlex.join(words)


def _folder(*names: str, variable: str = "") -> Callable[[Machine], Path]:
    """Return where a folder below the user's is, or the one that a variable names."""
    return lambda machine: machine.folder(variable, *names)


def _stdio(words: list[str]) -> dict[str, object]:
    return {"command": words[0], "args": words[1:]}


@dataclass(frozen=True, kw_only=True)
class Client:
    """Describe one client. The file names are those of its user scope."""

    name: str
    title: str
    programs: tuple[str, ...]
    """Its programs, by which it is found on the PATH."""
    folder: Callable[[Machine], Path]
    trust: str
    """The step that is left to the person."""
    note: str = ""
    """Features that this client does not get."""
    servers: str | Callable[[Client, Machine], Path] = "mcp.json"
    """The file with its MCP servers."""
    keys: Keys = ("mcpServers",)
    """The place of the servers in the file."""
    entry: Mapping[str, object] = field(default_factory=dict)
    """Values of the server's entry besides the command."""
    shape: Callable[[list[str]], dict[str, object]] = _stdio
    """The form of the command in an entry."""
    hooks: Mapping[str, str] = field(default_factory=dict)
    """Our events by the client's names of them; empty for a client without hooks."""
    hook_parts: Callable[[Client, Machine, Program], Iterator[Part]] | None = None
    """Yields the parts that are written for the hooks."""

    def installed(self, machine: Machine) -> str:
        """Return what shows that the client is on this machine; "" if nothing does."""
        path = machine.environment.get("PATH", "")
        found = next((word for word in self.programs if shutil.which(word, path=path)), "")
        folder = self.folder(machine)
        return found or (str(folder) if folder.is_dir() else "")

    def parts(self, machine: Machine, program: Program) -> Iterator[Part]:
        """Yield what is written for this client."""
        given = self.servers
        path = self.folder(machine) / given if isinstance(given, str) else given(self, machine)
        yield Setting(path, (*self.keys, SERVER), {**self.entry, **self.shape(program.mcp(self.name))})
        if self.hook_parts is not None:
            yield from self.hook_parts(self, machine, program)


# ── the forms of hooks ──


def _groups(
    file: str, *, unit: int = 1, at_end: int = 10, **more: object
) -> Callable[[Client, Machine, Program], Iterator[Part]]:
    """Return hooks in Claude Code's form: lists of groups. `at_end`: the seconds of the session's end."""

    def parts(client: Client, machine: Machine, program: Program) -> Iterator[Part]:
        path = client.folder(machine) / file
        for name, event in client.hooks.items():
            limit = (at_end if event == "session-end" else 10) * unit
            one = {"type": "command", **more, "command": program.hook(client.name, event), "timeout": limit}
            yield Setting(path, ("hooks", name), {"hooks": [one]}, is_item=True)

    return parts


def _items(file: str, *, version: int | None = None) -> Callable[[Client, Machine, Program], Iterator[Part]]:
    """Return hooks as a list of commands for each event."""

    def parts(client: Client, machine: Machine, program: Program) -> Iterator[Part]:
        path = client.folder(machine) / file
        if version is not None:
            yield Setting(path, ("version",), version, is_shared=True)
        for name, event in client.hooks.items():
            one = {"command": program.hook(client.name, event), "timeout": 10}
            yield Setting(path, ("hooks", name), one, is_item=True)

    return parts


def _one_list(client: Client, machine: Machine, program: Program) -> Iterator[Part]:
    """Yield the hooks of Kimi Code: one list, whose items name their event."""
    for name, event in client.hooks.items():
        one = {"event": name, "command": program.hook(client.name, event), "timeout": 10}
        yield Setting(client.folder(machine) / "config.toml", ("hooks",), one, is_item=True)


def _copilot_file(client: Client, machine: Machine, program: Program) -> Iterator[Part]:
    """Yield the file of hooks of VS Code or Copilot CLI: both read all files in `~/.copilot/hooks`."""
    entries: dict[str, object] = {}
    for name, event in client.hooks.items():
        command = program.hook(client.name, event)
        shells = {"bash": command, "powershell": f"& {command}", "timeoutSec": 10}
        entries[name] = [
            {"type": "command", **(shells if client.name == "copilot" else {"command": command, "timeout": 10})}
        ]
    value = {**({"version": 1} if client.name == "copilot" else {}), "hooks": entries}
    path = _COPILOT(machine) / "hooks" / f"herma-{client.name}.json"
    yield OwnFile(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")


def _opencode_plugin(client: Client, machine: Machine, program: Program) -> Iterator[Part]:
    """Yield a plug-in of ours that runs the hooks, because OpenCode runs no commands."""
    yield OwnFile(client.folder(machine) / "plugins" / "herma.js", script("opencode.js", program))


def script(name: str, program: Program) -> str:
    """Return a plug-in of ours in JavaScript, which runs the hooks with this program."""
    words = json.dumps([*program.words, "hook", *program.home], ensure_ascii=False)
    return resources.files(__package__).joinpath(name).read_text("utf-8").replace("__COMMAND__", words)


def _claude_json(client: Client, machine: Machine) -> Path:
    moved = "CLAUDE_CONFIG_DIR" in machine.environment
    return (client.folder(machine) if moved else machine.home) / ".claude.json"


def _opencode_json(client: Client, machine: Machine) -> Path:
    commented = client.folder(machine) / "opencode.jsonc"
    return commented if commented.exists() else commented.with_suffix(".json")


_EVENTS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "prompt",
    "Stop": "stop",
    "PreCompact": "pre-compact",
    "SessionEnd": "session-end",
}
_COPILOT = _folder(".copilot", variable="COPILOT_HOME")
_NO_RECALL = "It takes no text with a prompt, so recall needs the tool recall."
_STDIO = {"type": "stdio"}
_MILLISECONDS = 1000
_VSCODE_EVENTS = {name: event for name, event in _EVENTS.items() if event != "session-end"}

CLIENTS = (
    Client(
        name="claude-code",
        title="Claude Code",
        programs=("claude",),
        folder=_folder(".claude", variable="CLAUDE_CONFIG_DIR"),
        servers=_claude_json,
        entry=_STDIO,
        hooks=_EVENTS,
        # All hooks of a session's end have 1.5 seconds together unless a hook of this file has a longer time limit.
        hook_parts=_groups("settings.json", at_end=5),
        trust="Start claude again in a trusted folder; /mcp and /hooks show what is active.",
    ),
    Client(
        name="codex",
        title="Codex",
        programs=("codex",),
        folder=_folder(".codex", variable="CODEX_HOME"),
        servers="config.toml",
        keys=("mcp_servers",),
        hooks=_EVENTS,
        # Codex ends the hook of a session's end after three seconds at the most.
        hook_parts=_groups("hooks.json", at_end=3),
        trust="Start codex and approve the new hooks when it asks, or with /hooks: it runs none before.",
    ),
    Client(
        name="cursor",
        title="Cursor",
        programs=("cursor", "cursor-agent"),
        folder=_folder(".cursor"),
        hooks={
            "sessionStart": "session-start",
            "beforeSubmitPrompt": "prompt",
            "stop": "stop",
            "preCompact": "pre-compact",
            "sessionEnd": "session-end",
        },
        hook_parts=_items("hooks.json", version=1),
        trust="Turn on the server herma in Settings, MCP; for the command line: agent mcp enable herma",
        note=_NO_RECALL,
    ),
    Client(
        name="gemini",
        title="Gemini CLI",
        programs=("gemini",),
        folder=_folder(".gemini"),
        servers="settings.json",
        hooks={
            "SessionStart": "session-start",
            "BeforeAgent": "prompt",
            "AfterAgent": "stop",
            "PreCompress": "pre-compact",
            "SessionEnd": "session-end",
        },
        hook_parts=_groups("settings.json", unit=_MILLISECONDS, name=SERVER),
        trust="Start gemini again; /mcp list and /hooks panel show what is active.",
    ),
    Client(
        name="antigravity",
        title="Antigravity",
        programs=("agy", "antigravity"),
        folder=_folder(".gemini", "config"),
        servers="mcp_config.json",
        trust="Start agy again; /mcp shows what is active.",
        note="It runs no hooks of Herma: its conversations come with `herma import antigravity`.",
    ),
    Client(
        name="opencode",
        title="OpenCode",
        programs=("opencode",),
        folder=lambda machine: machine.folder("XDG_CONFIG_HOME", ".config") / "opencode",
        servers=_opencode_json,
        keys=("mcp",),
        shape=lambda words: {"type": "local", "command": words, "enabled": True},
        hooks={"plug-in": "session-start"},
        hook_parts=_opencode_plugin,
        trust="Start opencode again.",
    ),
    Client(
        name="vscode",
        title="VS Code (Copilot chat)",
        programs=("code",),
        folder=lambda machine: machine.application("Code"),
        servers="User/mcp.json",
        keys=("servers",),
        entry=_STDIO,
        hooks=_VSCODE_EVENTS,
        hook_parts=_copilot_file,
        trust="Run “MCP: List Servers” in VS Code and start herma; it asks once whether you trust it.",
        note=_NO_RECALL,
    ),
    Client(
        name="copilot",
        title="Copilot CLI",
        programs=("copilot",),
        folder=_COPILOT,
        servers="mcp-config.json",
        entry={"type": "local", "tools": ["*"]},
        hooks=_EVENTS,
        hook_parts=_copilot_file,
        trust="Start copilot again; /mcp show herma says whether it runs.",
        note=_NO_RECALL,
    ),
    Client(
        name="zed",
        title="Zed",
        programs=("zed", "zeditor"),
        folder=lambda machine: (
            machine.application("Zed") if machine.platform == "win32" else machine.home / ".config" / "zed"
        ),
        servers="settings.json",
        keys=("context_servers",),
        entry={"env": {}},
        trust="Zed starts the server when the settings are saved.",
        note="Zed shows no server instructions and has no hooks: ask the agent to call recall, or use /start_session.",
    ),
    Client(
        name="goose",
        title="Goose",
        programs=("goose",),
        folder=lambda machine: (
            machine.application("Block", "goose", "config")
            if machine.platform == "win32"
            else machine.home / ".config" / "goose"
        ),
        servers="config.yaml",
        keys=("extensions",),
        shape=lambda words: {
            "name": SERVER,
            "type": "stdio",
            "cmd": words[0],
            "args": words[1:],
            "envs": {},
            "enabled": True,
            "timeout": 300,
        },
        trust="The next goose session loads the extension.",
    ),
    Client(
        name="openclaw",
        title="OpenClaw",
        programs=("openclaw",),
        folder=_folder(".openclaw", variable="OPENCLAW_STATE_DIR"),
        servers="openclaw.json",
        keys=("mcp", "servers"),
        trust="openclaw mcp doctor --probe says whether it runs.",
        note="Its conversations come with `herma import openclaw`, or at once with Herma as its memory plug-in.",
    ),
    Client(
        name="hermes",
        title="Hermes Agent",
        programs=("hermes",),
        folder=lambda machine: (
            machine.folder("LOCALAPPDATA", "AppData", "Local") / "hermes"
            if machine.platform == "win32"
            else machine.folder("HERMES_HOME", ".hermes")
        ),
        servers="config.yaml",
        keys=("mcp_servers",),
        entry={"timeout": 60},
        hooks={"pre_llm_call": "prompt", "post_llm_call": "stop", "on_session_finalize": "session-end"},
        hook_parts=_items("config.yaml"),
        trust="Approve the hooks when hermes asks for the first time, or start it once with --accept-hooks.",
    ),
    Client(
        name="qwen",
        title="Qwen Code",
        programs=("qwen",),
        folder=_folder(".qwen", variable="QWEN_HOME"),
        servers="settings.json",
        hooks=_EVENTS,
        hook_parts=_groups("settings.json", unit=_MILLISECONDS, name=SERVER),
        trust="Start qwen again; /mcp shows what is active.",
    ),
    Client(
        name="droid",
        title="Factory Droid",
        programs=("droid",),
        folder=_folder(".factory"),
        entry=_STDIO,
        hooks=_EVENTS,
        hook_parts=_groups("hooks.json"),
        trust="Start droid again; /mcp and /hooks show what is active.",
    ),
    Client(
        name="kimi",
        title="Kimi Code",
        programs=("kimi",),
        folder=_folder(".kimi-code", variable="KIMI_CODE_HOME"),
        hooks=_EVENTS,
        hook_parts=_one_list,
        trust="Start kimi again; /mcp shows what is active.",
    ),
    Client(
        name="windsurf",
        title="Windsurf",
        programs=("windsurf",),
        folder=_folder(".codeium", "windsurf"),
        servers="mcp_config.json",
        trust="Refresh the servers in Windsurf's MCP settings.",
        note="Its hooks take no text, so recall needs the tool recall.",
    ),
    Client(
        name="cline",
        title="Cline (command line)",
        programs=("cline",),
        folder=_folder(".cline"),
        trust="Start cline again.",
        note="In the editor, add the server with Cline's own MCP settings: herma mcp --client cline",
    ),
)
"""All clients, in the order in which they are shown."""
