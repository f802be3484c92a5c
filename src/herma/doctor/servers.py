"""Whether the MCP servers of the settings could be used. Starts none of them: `/tools` in the chat says more."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Iterator
from pathlib import Path

from herma.config import Settings
from herma.configservers import McpServer
from herma.doctor.check import Check


def check_servers(settings: Settings) -> Iterator[Check]:
    """One line each; nothing where none is set."""
    wanted = [server for server in settings.mcp_servers if server.enabled]
    if wanted and importlib.util.find_spec("mcp") is None:
        sentence = "MCP servers cannot be used: the mcp library is not installed."
        yield Check("mcp servers", "warning", sentence, "pip install 'herma[chat]'")
        return
    for server in wanted:
        yield _check(server)


def _check(server: McpServer) -> Check:
    if not server.command:
        return Check("mcp servers", "ok", f"The MCP server {server.name} is at {server.url.partition('?')[0]}.")
    if shutil.which(server.command) is None and "${" not in server.command:
        sentence = f"The MCP server {server.name} cannot be started: there is no program {server.command}."
        return Check("mcp servers", "warning", sentence, "herma config path")
    if server.cwd and not Path(server.cwd).expanduser().is_dir():
        sentence = f"The MCP server {server.name} cannot be started: there is no folder {server.cwd}."
        return Check("mcp servers", "warning", sentence, "herma config path")
    return Check("mcp servers", "ok", f"The MCP server {server.name} is set: {server.command}.")
