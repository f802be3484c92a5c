"""`herma connect`: each client's own files, to the byte and back."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from mcp import Client, StdioServerParameters
from ruamel.yaml import YAML
from tests.homes import herma

from herma import Herma
from herma.connect.clients import CLIENTS, Program
from herma.connect.connect import bundle
from herma.connect.edits import read_json
from herma.mcp.hook import EVENTS
from herma.mcp.sessions import note_activity
from herma.skills.document import parse

if TYPE_CHECKING:
    from collections.abc import Mapping

# The files of each client below the user's folder, as a person may have them.
FILES: Mapping[str, Mapping[str, str]] = {
    "claude-code": {
        ".claude.json": '{\n  "starts": 7,\n  "mcpServers": {\n    "other": {\n      "command": "x"\n    }\n  }\n}',
        ".claude/settings.json": (
            '{\n  "hooks": {\n    "Stop": [{"hooks": [{"type": "command", "command": "say done"}]}]\n  }\n}\n'
        ),
    },
    "codex": {".codex/config.toml": '# mine\nmodel = "gpt-9" # fast\n\n[tui]\ntheme = "a"\n', ".codex/hooks.json": ""},
    "cursor": {".cursor/mcp.json": '{"mcpServers": {}}', ".cursor/hooks.json": '{"version": 1, "hooks": {}}'},
    "gemini": {".gemini/settings.json": '{\r\n    // mine\r\n    "theme": "dark",\r\n}\r\n'},
    "antigravity": {".gemini/config/mcp_config.json": '{\n  "mcpServers": {}\n}\n'},
    "opencode": {".config/opencode/opencode.jsonc": '{\n\t"theme": "x", // mine\n}\n'},
    "vscode": {".config/Code/User/mcp.json": '{\n\t"servers": {},\n\t"inputs": []\n}\n'},
    "copilot": {".copilot/mcp-config.json": '{"mcpServers": {"other": {"type": "local"}}}\n'},
    "zed": {".config/zed/settings.json": '// Zed settings\n{\n  "vim_mode": true, // yes\n}\n'},
    "goose": {".config/goose/config.yaml": "# mine\nGOOSE_MODEL: gpt\nextensions:\n  developer:\n    enabled: true\n"},
    "openclaw": {".openclaw/openclaw.json": "{\n  // mine\n  agents: { list: ['main'] },\n}\n"},
    "hermes": {".hermes/config.yaml": "model: gpt # mine\nmcp_servers:\n  other: {command: x}\n"},
    "qwen": {".qwen/settings.json": "{}"},
    "droid": {".factory/mcp.json": "{}\n"},
    "windsurf": {".codeium/windsurf/mcp_config.json": "{}"},
    "cline": {".cline/mcp.json": "{}"},
    "kimi": {
        ".kimi-code/mcp.json": '{"mcpServers": {}}',
        ".kimi-code/config.toml": '# mine\n[[hooks]]\nevent = "Stop"\ncommand = "say done"\n\n[other]\na = 1 # b\n',
    },
}
PLACES = {
    **dict.fromkeys(("claude-code", "cursor", "gemini", "copilot", "qwen", "droid"), ("mcpServers", "herma")),
    **dict.fromkeys(("antigravity", "windsurf", "cline", "kimi"), ("mcpServers", "herma")),
    "codex": ("mcp_servers", "herma"),
    "opencode": ("mcp", "herma"),
    "vscode": ("servers", "herma"),
    "zed": ("context_servers", "herma"),
    "goose": ("extensions", "herma"),
    "openclaw": ("mcp", "servers", "herma"),
    "hermes": ("mcp_servers", "herma"),
}


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.endswith(("_HOME", "_DIR"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")


def filled(folder: Path, client: str) -> dict[Path, bytes]:
    for name, text in FILES[client].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text.encode())
    return tree(folder)


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def read(path: Path) -> Any:
    text = path.read_bytes().decode()
    if path.suffix == ".toml":
        return tomllib.loads(text)
    return YAML(typ="safe").load(text) if path.suffix == ".yaml" else read_json(text)


def entry(folder: Path, client: str) -> Any:
    found = read(folder / next(iter(FILES[client])))
    for key in PLACES[client]:
        found = found[key]
    return found


def command_of(folder: Path, client: str) -> list[str]:
    found = entry(folder, client)
    if client == "opencode":
        return list(found["command"])
    return [found.get("command") or found["cmd"], *found["args"]]


def hook_commands(value: Any) -> list[str]:
    """Return every command of ours in a configuration."""
    if isinstance(value, dict | list):
        within = value.values() if isinstance(value, dict) else value
        return [one for inner in within for one in hook_commands(inner)]
    return [value] if isinstance(value, str) and " hook " in value and "herma" in value else []


def test_every_client_is_in_these_tests() -> None:
    assert {one.name for one in CLIENTS} == set(FILES) == set(PLACES)


@pytest.mark.parametrize("client", FILES)
def test_a_client_is_connected_and_disconnected_to_the_byte(home: Path, user_folder: Path, client: str) -> None:
    for words in ((), ("--remove",)):  # on a machine without any of its files
        assert herma(home, "connect", client, "--yes", *words).code == 0
        assert bool(list(user_folder.iterdir())) == (not words)
    before = filled(user_folder, client)
    planned = herma(home, "connect", client, "--dry-run")
    assert planned.code == 0
    assert "+" in planned.out
    assert tree(user_folder) == before
    done = herma(home, "connect", client, "--yes")
    assert done.code == 0, done.err
    command = command_of(user_folder, client)
    assert Path(command[0]).is_absolute()
    assert command[-5:] == ["mcp", "--client", client, "--home", str(home)]
    after = tree(user_folder)
    for path, data in before.items():
        lines = [line for line in data.decode().splitlines() if "//" in line or "#" in line]
        assert [line for line in lines if line.rstrip(" ,") not in after[path].decode()] == []
        assert (b"\r\n" in data) == (b"\r\n" in after[path])
        assert data.count(b"\r\n") == data.count(b"\n") or b"\r\n" not in data
    again = herma(home, "connect", client, "--json").json
    assert [one["changed"] for one in again["clients"]] == [False]
    assert tree(user_folder) == after
    gone = herma(home, "connect", client, "--remove", "--yes")
    assert gone.code == 0, gone.err
    assert tree(user_folder) == before


@pytest.mark.parametrize("client", FILES)
def test_what_a_person_changed_meanwhile_stays(home: Path, user_folder: Path, client: str) -> None:
    filled(user_folder, client)
    herma(home, "connect", client, "--yes")
    path = user_folder / next(iter(FILES[client]))
    text = path.read_bytes().decode()
    addition = {".toml": "\n[extra]\na = 1\n", ".yaml": "extra:\n  a: 1\n"}.get(path.suffix)
    if addition:
        path.write_bytes((text + addition).encode())
    else:
        at = text.index("{") + 1
        path.write_bytes((text[:at] + '"extra": {"a": 1},' + text[at:]).encode())
    assert herma(home, "connect", client, "--remove", "--yes").code == 0
    left = read(path)
    assert left["extra"] == {"a": 1}
    assert "herma" not in json.dumps(left)
    assert hook_commands(left) == []


def test_hooks_are_written_once_each_and_take_the_place_of_older_ones(home: Path, user_folder: Path) -> None:
    filled(user_folder, "claude-code")
    assert herma(home, "connect", "claude-code", "--yes").code == 0
    path = user_folder / ".claude/settings.json"
    hooks = read(path)["hooks"]
    assert hooks["Stop"][0]["hooks"][0]["command"] == "say done"
    commands = hook_commands(hooks)
    assert [command.split(" hook ")[1].split()[0] for command in commands] == [
        *("stop", "session-start", "prompt", "pre-compact", "session-end")
    ]
    path.write_text(path.read_text().replace(commands[0].split(" hook ")[0], "/old/place/herma"))
    state = herma(home, "connect", "status", "--json").json["clients"][0]["state"]
    assert state == "outdated"
    assert herma(home, "connect", "claude-code", "--yes").code == 0
    assert hook_commands(read(path)["hooks"]) == commands
    assert herma(home, "connect", "claude-code", "--remove", "--yes").code == 0
    assert hook_commands(read(path)) == []
    assert read(path)["hooks"]["Stop"][0]["hooks"][0]["command"] == "say done"


def test_what_is_written_works_from_anywhere(home: Path, user_folder: Path, tmp_path: Path) -> None:
    with Herma.open(home) as h:
        h.memory.add("memory", "The staging database listens on port 5433.")
    assert herma(home, "connect", "claude-code", "--yes").code == 0
    command = next(one for one in hook_commands(read(user_folder / ".claude/settings.json")) if "session-start" in one)
    elsewhere = tmp_path / "a folder" / "with herma"
    elsewhere.mkdir(parents=True)
    (elsewhere / "herma.py").write_text("raise SystemExit('a file of the project was imported')")
    payload = json.dumps({"session_id": "1", "hook_event_name": "SessionStart", "source": "startup"})
    env = {"PATH": "/usr/bin:/bin", "HOME": str(user_folder)}
    done = subprocess.run(
        ["sh", "-c", command], input=payload, capture_output=True, text=True, cwd=elsewhere, env=env, check=True
    )
    assert "5433" in done.stdout, done.stderr
    words = command_of(user_folder, "claude-code")

    async def tools() -> int:
        server = StdioServerParameters(command=words[0], args=words[1:], cwd=elsewhere, env=env)
        async with Client(server) as client:
            return len((await client.list_tools()).tools)

    assert asyncio.run(asyncio.wait_for(tools(), 60)) == 6
    subprocess.run(["pkill", "-f", f"herma.mcp.events {home}$"], check=False)


def test_a_link_stays_a_link(home: Path, user_folder: Path) -> None:
    dotfiles = user_folder / "dotfiles"
    dotfiles.mkdir()
    (dotfiles / "mcp.json").write_text("{}")
    (user_folder / ".cursor").mkdir()
    (user_folder / ".cursor" / "mcp.json").symlink_to(dotfiles / "mcp.json")
    assert herma(home, "connect", "cursor", "--yes").code == 0
    assert (user_folder / ".cursor" / "mcp.json").is_symlink()
    assert "herma" in (dotfiles / "mcp.json").read_text()
    assert herma(home, "connect", "cursor", "--remove", "--yes").code == 0
    assert (dotfiles / "mcp.json").read_text() == "{}"


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"a": ', "mcp.json cannot be read: line 1: a value is missing. It was not changed."),
        (b"\xff\xfe{}", "mcp.json is not UTF-8 text. Nothing was changed."),
        (b'{"mcpServers": 3}', "mcpServers is not an object. It was not changed."),
    ],
)
def test_a_file_that_cannot_be_read_is_left_alone(home: Path, user_folder: Path, data: bytes, sentence: str) -> None:
    filled(user_folder, "gemini")
    path = user_folder / ".cursor" / "mcp.json"
    path.parent.mkdir()
    path.write_bytes(data)
    done = herma(home, "connect", "cursor", "gemini", "--yes")
    assert done.code == 1
    assert sentence in done.err
    assert path.read_bytes() == data
    assert entry(user_folder, "gemini")
    assert "Traceback" not in done.err


def test_without_names_the_installed_ones_are_connected(home: Path, user_folder: Path) -> None:
    nothing = herma(home, "connect")
    assert (nothing.code, "No agent was found" in nothing.err) == (1, True)
    (user_folder / ".codex").mkdir()
    program = user_folder / "bin" / "gemini"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    os.environ["PATH"] += os.pathsep + str(program.parent)
    found = herma(home, "connect", "--dry-run", "--json").json["clients"]
    assert [one["name"] for one in found] == ["codex", "gemini"]
    asked = herma(home, "connect")
    assert asked.code != 0  # there is no terminal to ask on
    assert tree(user_folder / ".codex") == {}
    unknown = herma(home, "connect", "banana")
    assert (unknown.code, "Unknown client 'banana'. Clients: claude-code" in unknown.err) == (2, True)


def test_status_says_whether_memory_really_arrives(home: Path, user_folder: Path) -> None:
    def verdict() -> dict[str, Any]:
        [found] = herma(home, "connect", "status", "--json", "codex").json["clients"]
        return dict(found)

    assert verdict()["state"] == "not connected"
    herma(home, "connect", "codex", "--yes")
    assert (verdict()["state"], verdict()["last_hook"]) == ("connected", None)
    assert "Nothing has arrived yet. Start codex and approve the new hooks" in verdict()["verdict"]
    with Herma.open(home) as h:
        note_activity(home, "codex", "tool", "recall", h.clock())
    assert "no hook has run yet" in verdict()["verdict"]
    with Herma.open(home) as h:
        note_activity(home, "codex", "hook", "prompt", h.clock())
        session = h.transcripts.start("codex", imported=True)
        h.transcripts.append(session, [{"role": "user", "content": "hello"}])
    found = verdict()
    assert found["verdict"] == "Memory arrives."
    assert found["last_hook"]["event"] == "prompt"
    assert found["last_tool_call"]["tool"] == "recall"
    assert found["last_captured"]
    shown = herma(home, "connect", "status")
    assert "codex: Memory arrives." in shown.out
    assert "claude-code" not in shown.out  # neither installed nor connected


def test_a_default_home_is_not_named(user_folder: Path) -> None:
    default = user_folder / ".herma"
    assert Program.here(default).home == ()
    assert Program.here(default / "x").home == ("--home", str(default / "x"))


# ── bundles ──


@pytest.mark.parametrize("kind", ["common", "claude-code"])
def test_a_bundle_is_complete(home: Path, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "plugin"
    done = herma(home, "connect", "--plugin", kind, "--to", str(folder))
    assert done.code == 0, done.err
    assert {str(path.relative_to(folder)) for path in tree(folder)} == set(bundle(kind, Program.here(home)))
    manifest = json.loads((folder / ("plugin.json" if kind == "common" else ".claude-plugin/plugin.json")).read_text())
    assert manifest["name"] == "herma"
    if kind == "common":
        assert set(manifest) <= {
            *("$schema", "name", "version", "description", "author", "homepage", "repository", "license", "keywords"),
            "extensions",
        }
    servers = json.loads((folder / ("mcp.json" if kind == "common" else ".mcp.json")).read_text())["mcpServers"]
    assert servers["herma"] == {"type": "stdio", "command": "herma", "args": ["mcp"]}
    document = parse((folder / "skills/herma-memory/SKILL.md").read_text())
    assert not isinstance(document, str), document
    assert (document.name, document.warnings) == ("herma-memory", ())
    if kind == "claude-code":
        hooks = json.loads((folder / "hooks/hooks.json").read_text())["hooks"]
        assert [command.split()[2] for command in hook_commands(hooks)] == list(EVENTS)
    refused = herma(home, "connect", "--plugin", kind, "--to", str(folder))
    assert "is not an empty folder. Nothing was written." in refused.err
    assert herma(home, "connect", "--plugin", kind).code == 2


def test_the_plugin_for_openclaw_runs_this_program(home: Path, tmp_path: Path) -> None:
    """`test_provider_openclaw.py` runs it in OpenClaw."""
    folder = tmp_path / "a plugin"
    done = herma(home, "connect", "--plugin", "openclaw", "--to", str(folder))
    assert f"openclaw plugins install --link '{folder}'" in done.out, done.err
    manifest = json.loads((folder / "openclaw.plugin.json").read_text())
    assert manifest["mcpServers"]["herma"]["args"][-4:] == ["--client", "openclaw", "--home", str(home)]
    assert json.dumps(["hook", "--home", str(home)])[1:-1] in (folder / "index.js").read_text()
