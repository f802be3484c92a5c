"""MCP servers in `herma config` and `herma doctor`: named, looked for, and without what may be secret."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from click.testing import CliRunner

from herma.cli.main import cli


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


def test_the_configuration_shows_them(home: Path) -> None:
    config(home)
    ran = CliRunner().invoke(cli, ["config", "show", "--home", str(home)])
    assert "  web: https://tools.example/mcp" in ran.stdout
    assert "off: no-such-program-anywhere (off)" in ran.stdout
    said = CliRunner().invoke(cli, ["config", "show", "--json", "--home", str(home)]).stdout
    assert [one["name"] for one in json.loads(said)["mcp_servers"]] == ["good", "gone", "nowhere", "web", "off"]
    assert "sesame" not in ran.stdout + said
