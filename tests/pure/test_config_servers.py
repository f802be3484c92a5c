"""The section mcp_servers: what a server may be, and what is said about one that makes no sense."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.config import KEYS, McpServer, Settings, load


def settings_of(home: Path, text: str) -> Settings:
    (home / "config.yaml").write_text(text, "utf-8")
    return load(home=home, environ={}, cwd=home)


def test_a_server_is_a_program_or_an_address(home: Path) -> None:
    found = settings_of(
        home,
        """
chat:
  max_steps: 7
mcp_servers:
  files:
    command: npx
    args: [-y, server-filesystem, /tmp]
    env: {PORT: 8080, TOKEN: "${FILES_TOKEN}", EMPTY: }
    cwd: /srv
    tools: [read_file, list_directory]
  web:
    url: https://tools.example/mcp
    headers:
      Authorization: Bearer ${WEB_TOKEN}
    enabled: false
    timeout: 30
    connect_timeout: 2.5
    tools:
      exclude: [delete]
""",
    )
    assert found.problems == ()
    assert found.chat.max_steps == 7
    files, web = found.mcp_servers
    assert files == McpServer(
        "files",
        "npx",
        ("-y", "server-filesystem", "/tmp"),
        {"PORT": "8080", "TOKEN": "${FILES_TOKEN}", "EMPTY": ""},
        "/srv",
        include=("read_file", "list_directory"),
    )
    assert (web.url, web.enabled, web.timeout, web.connect_timeout) == ("https://tools.example/mcp", False, 30, 2.5)
    assert web.headers == {"Authorization": "Bearer ${WEB_TOKEN}"}
    assert files.takes("read_file")
    assert not files.takes("delete")
    assert web.takes("read_file")
    assert not web.takes("delete")


@pytest.mark.parametrize(
    ("below", "said"),
    [
        ("command: x\n    url: http://h/mcp", "it needs either a command or a url"),
        ("args: [a]", "it needs either a command or a url"),
        ("url: ftp://h", "begins with http"),
        ("command: [a]", "it must be a text"),
        ("command: x\n    args: -y", "a list of texts"),
        ("command: x\n    env: [a]", "names, each with a text"),
        ("command: x\n    env: {A: [b]}", "names, each with a text"),
        ("command: x\n    enabled: perhaps", "true or false"),
        ("command: x\n    timeout: soon", "a number of seconds"),
        ("command: x\n    timeout: 0", "a number of seconds"),
        ("command: x\n    tools: {only: [a]}", "include and exclude"),
    ],
)
def test_what_is_wrong_with_one_costs_that_one_only(home: Path, below: str, said: str) -> None:
    found = settings_of(home, f"mcp_servers:\n  broken:\n    {below}\n  good:\n    command: x\n")
    assert [server.name for server in found.mcp_servers] == ["good"]
    (problem,) = found.problems
    assert said in str(problem)
    assert problem.key.startswith("mcp_servers.broken")
    assert problem.pressing
    assert ", line " in problem.where


def test_keys_that_are_not_known_are_told_with_the_nearest(home: Path) -> None:
    found = settings_of(home, "mcp_servers:\n  a:\n    comand: x\n    command: y\n    oauth: {}\n")
    assert [server.command for server in found.mcp_servers] == ["y"]
    near, far = found.problems
    assert str(near).endswith(
        "mcp_servers.a.comand in " + near.where + " is not a known key; did you mean mcp_servers.a.command?"
    )
    assert (far.key, far.nearest, far.pressing) == ("mcp_servers.a.oauth", None, False)


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        *((text, 0) for text in ("mcp_servers:", "mcp_servers: {}", "# mcp_servers\n", "")),
        *((f"mcp_servers: {odd}", 1) for odd in ("[a]", "yes", "\n  a b: {command: x}", "\n  a: x")),
    ],
)
def test_none_is_none_and_other_shapes_are_told(home: Path, text: str, problems: int) -> None:
    found = settings_of(home, text)
    assert (found.mcp_servers, len(found.problems)) == ((), problems)
    assert settings_of(home, "mcp_server: {}").problems[0].nearest == "mcp_servers"


def test_a_projects_file_may_not_start_programs(home: Path, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / ".herma.yaml").write_text("mcp_servers:\n  evil:\n    command: rm\n", "utf-8")
    found = load(home=home, environ={}, cwd=project)
    assert found.mcp_servers == ()
    assert found.problems[0].forbidden


leaves = st.one_of(st.text("ab:{}[]-#'\" \n", max_size=6), st.integers(), st.booleans(), st.none())
trees = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "x"]), inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.text("ab-_ .", min_size=1, max_size=5), trees, max_size=3))
def test_whatever_stands_there_is_a_server_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    import json

    home = tmp_path_factory.mktemp("home")
    found = settings_of(home, "mcp_servers: " + json.dumps(tree))
    for server in found.mcp_servers:
        assert bool(server.command) != bool(server.url)
    told = {problem.key.split(".")[1] for problem in found.problems if problem.key.count(".")}
    assert {name for name in tree if "." not in name} <= told | {server.name for server in found.mcp_servers}
    assert all(str(problem) for problem in found.problems)
