"""MCP servers of the configuration: real processes, over stdio and HTTP, well and broken."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files

from herma import Herma
from herma.agent.loop import Agent
from herma.agent.mcp import McpServers
from herma.config import ChatSettings, McpServer
from herma.testing import Answer, ScriptedModel
from herma.tools.registry import Tool, ToolContext
from herma.worker import TroubleLog

SCRIPT = str(Path(__file__).with_name("mcp_server.py"))
WEATHER = McpServer("weather", sys.executable, (SCRIPT, "stdio"))
Connect = Callable[..., McpServers]
pytestmark = of_files


@pytest.fixture
def connect(home: Path) -> Iterator[Connect]:
    with ExitStack() as stack:

        def made(*servers: McpServer, **options: Any) -> McpServers:
            found = McpServers(servers, ChatSettings(**{"connect_timeout": 60.0, **options}), home)
            stack.callback(found.close)
            return found

        yield made


def named(servers: McpServers) -> dict[str, Tool]:
    return {tool.name: tool for tool in servers.tools()}


def run(tool: Tool, **arguments: Any) -> Any:
    from herma.errors import HermaError

    try:
        return tool.run(arguments, ToolContext())
    except HermaError as exc:
        return str(exc)


def noted(home: Path) -> list[tuple[str, str]]:
    """What the doctor and the dashboard are told: who failed, and at what."""
    return [(one.name, one.what) for one in TroubleLog(home).since(0)]


def test_a_server_brings_its_tools(connect: Connect) -> None:
    servers = connect(WEATHER)
    tools = named(servers)
    assert {"weather__forecast", "weather__patient"} <= set(tools)
    assert tools["weather__forecast"].description == "The weather of the next days."
    assert run(tools["weather__forecast"], city="Bonn", days=2) == {"result": "Rain in Bonn for 2 days."}
    assert "weather__evil" not in tools  # what the scanner objects to is not shown to the model
    assert any("evil" in warning for warning in servers.warnings)
    # arguments are checked here
    assert "days" in run(tools["weather__forecast"], city="Bonn", days="many")["error"]
    assert "city" in run(tools["weather__forecast"])["error"]
    # what fails is an answer
    assert "fail" in run(tools["weather__fail"])["error"]
    assert run(tools["weather__picture"])["result"] == "Here:\n[image/png, 3 bytes: not shown]"
    # only what the configuration gives
    assert run(tools["weather__token"])["result"] == "None None"
    (state,) = servers.states()
    assert (state.state, "forecast" in state.tools) == ("connected", True)


def test_results_are_bounded_and_time_is_too(connect: Connect, home: Path) -> None:
    servers = connect(WEATHER, result_chars=100, tool_timeout=2.0)
    tools = named(servers)
    result = run(tools["weather__big"])["result"]
    assert len(result) < 200
    assert "499,900 more characters" in result
    assert run(tools["weather__patient"]) == "weather did not answer within 2 s."
    assert noted(home) == [("MCP server weather", "patient")]
    threading.Timer(0.2, servers.cancel.set).start()
    assert run(tools["weather__patient"]) == "The tool was stopped before it answered."
    servers.cancel.clear()
    assert "failed" in run(tools["weather__die"])
    sun = {"result": "Rain in Bonn for 1 days."}
    assert run(tools["weather__forecast"], city="Bonn") == sun, "a server that ended is connected again"


def test_only_tools_that_are_named(connect: Connect, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTHER_SECRET", "hidden")
    (home / ".env").write_text("WEATHER_KEY=sesame\n")
    (home / ".env").chmod(0o600)
    server = McpServer(
        "weather",
        sys.executable,
        (SCRIPT, "stdio"),
        {"WEATHER_TOKEN": "Bearer ${WEATHER_KEY}"},
        include=("token", "gone"),
    )
    servers = connect(server)
    tools = named(servers)
    assert set(tools) == {"weather__token"}
    assert run(tools["weather__token"])["result"] == "Bearer sesame None"
    assert servers.warnings == ("The MCP server weather has no tool gone.",)


def test_broken_ones_are_told_and_cost_their_own_tools(connect: Connect, tmp_path: Path, home: Path) -> None:
    servers = connect(
        McpServer("hanging", sys.executable, (SCRIPT, "hang"), connect_timeout=1.0),
        McpServer("broken", sys.executable, (SCRIPT, "broken")),
        McpServer("missing", str(tmp_path / "no-such-program")),
        McpServer("keyless", sys.executable, (SCRIPT, "stdio"), {"TOKEN": "${NOBODY_SET_THIS}"}),
        McpServer("nowhere", url="http://127.0.0.1:9/mcp"),
        McpServer("off", "no-such-program", enabled=False),
        WEATHER,
    )
    assert all(name.startswith("weather__") for name in named(servers))
    told = "\n".join(servers.warnings)
    assert "hanging is not used: it did not begin within 1 s" in told, told
    assert "broken is not used" in told, told
    assert "its last line: no such configuration: weather.toml" in told, told
    assert "missing is not used" in told, told
    assert "NOBODY_SET_THIS is not set" in told, told
    assert "nowhere is not used" in told, told
    assert "off" not in told, told
    assert told.count("is not used") == 5, told
    failed = ("hanging", "broken", "missing", "keyless", "nowhere")
    assert noted(home) == [(f"MCP server {name}", "connecting") for name in failed]


def test_over_http(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with subprocess.Popen([sys.executable, SCRIPT, "http", str(port)], stderr=subprocess.DEVNULL) as process:
        try:
            for _ in range(600):
                try:
                    socket.create_connection(("127.0.0.1", port), 0.2).close()
                    break
                except OSError:
                    time.sleep(0.1)
            servers = connect(McpServer("weather", url=f"http://127.0.0.1:{port}/mcp", headers={"X-Key": "k"}))
            assert run(named(servers)["weather__forecast"], city="Ulm") == {"result": "Rain in Ulm for 1 days."}
            servers.close()
        finally:
            process.terminate()


def test_closing_while_it_connects_and_nothing_without_servers(connect: Connect) -> None:
    none = connect()
    none.begin()
    assert not none.tools()
    assert not none.states()
    assert not any(thread.name == "herma: mcp" for thread in threading.enumerate())
    servers = connect(McpServer("hanging", sys.executable, (SCRIPT, "hang")))
    servers.begin()
    servers.close()
    assert not any(thread.name == "herma: mcp" and thread.is_alive() for thread in threading.enumerate())


def test_a_turn_with_such_a_tool(connect: Connect, home: Path) -> None:
    with ScriptedModel([Answer.calling("weather__forecast", {"city": "Bonn"}), "It will rain."]) as model:
        flags = {"model.url": model.url, "model.name": "m"}
        with Herma.open(home, flags=flags) as h, h.session(tools=connect(WEATHER).tools()) as s:
            main = h.model()
            assert main is not None
            done = Agent(s, main).turn("Weather in Bonn?")
            assert done.text == "It will rain."
            assert json.loads(done.calls[0].result) == {"result": "Rain in Bonn for 1 days."}
            names = [schema["function"]["name"] for schema in model.requests[0].tools]
            assert names.index("memory") < names.index("weather__forecast")
            # what a server says is text from outside: it is not remembered by itself
            said = s.call_tool("memory", {"action": "add", "target": "memory", "content": "Rain in Bonn for 1 days."})
            assert json.loads(said).get("staged") or "inbox" in said
