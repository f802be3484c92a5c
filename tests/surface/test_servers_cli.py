"""MCP servers in `herma config` and `herma doctor`: named, looked for, and without what may be secret."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from click.testing import CliRunner

from herma import Herma
from herma.agent.mcp import McpServers
from herma.cli.main import cli
from herma.tools.registry import ToolContext
from tests.surface.web import serving


def config(home: Path) -> None:
    (home / "config.yaml").write_text(
        f"""
mcp_servers:
  good:
    command: {sys.executable}
    args: [--token, sesame]
  gone: {{command: no-such-program-anywhere}}
  nowhere: {{command: {sys.executable}, cwd: /no/such/folder}}
  web: {{url: "https://tools.example/mcp?key=sesame"}}
  off: {{command: no-such-program-anywhere, enabled: false}}
"""
    )


def test_the_doctor_looks_for_them(home: Path) -> None:
    config(home)
    ran = CliRunner().invoke(cli, ["doctor", "--json", "--home", str(home)])
    checks = [check for check in json.loads(ran.stdout)["checks"] if check["name"] == "mcp servers"]
    assert [check["state"] for check in checks] == ["ok", "warning", "warning", "ok"]
    assert "sesame" not in ran.stdout


def test_when_each_last_worked(home: Path) -> None:
    script = Path(__file__).parent.parent / "path" / "mcp_server.py"
    (home / "config.yaml").write_text(
        f"mcp_servers:\n  weather: {{command: {sys.executable}, args: [{script}, stdio], connect_timeout: 60}}\n"
        "  nowhere: {url: 'http://127.0.0.1:9/mcp'}\n"
    )
    with Herma.open(home) as h:
        servers = McpServers(h.settings.mcp_servers, h.settings.chat, h.home)
    try:
        tools = {tool.name: tool for tool in servers.tools()}
        stamp = home / "logs" / "mcp" / "weather"
        os.utime(stamp, (0, 0))
        tools["weather__forecast"].run({"city": "Bonn"}, ToolContext())
        assert stamp.stat().st_mtime > 0
    finally:
        servers.close()
    ran = CliRunner().invoke(cli, ["doctor", "--json", "--home", str(home)])
    worked, unused = [one["sentence"] for one in json.loads(ran.stdout)["checks"] if one["name"] == "mcp servers"]
    assert f"{sys.executable}: last worked 20" in worked
    assert unused.endswith("mcp: not used yet.")
    with serving(home) as served:
        shown = served.ask("/api/v1/connections").json["servers"]
        assert [bool(one["last_worked"]) for one in shown] == [True, False]
        assert shown[0]["last_worked"] in served.ask("/connections").text


def test_the_configuration_shows_them(home: Path) -> None:
    config(home)
    ran = CliRunner().invoke(cli, ["config", "show", "--home", str(home)])
    assert "  web: https://tools.example/mcp" in ran.stdout
    assert "off: no-such-program-anywhere (off)" in ran.stdout
    said = CliRunner().invoke(cli, ["config", "show", "--json", "--home", str(home)]).stdout
    assert [one["name"] for one in json.loads(said)["mcp_servers"]] == ["good", "gone", "nowhere", "web", "off"]
    assert "sesame" not in ran.stdout + said
