"""Edit a configuration file: one key changes, and everything else stays; and the section mcp_servers."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma import config
from herma.config import KEYS, McpServer, Settings
from herma.errors import ConfigError, StoreBusy, StoreError
from herma.store.files import exclusive

PATH = Path("config.yaml")


def set_(text: str, value: str | float = 500, key: str = "memory_char_limit") -> str:
    return config.with_value(text, PATH, "memory", key, value)


def unset(text: str, key: str = "memory_char_limit") -> str:
    return config.with_value(text, PATH, "memory", key, None)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "memory:\n  memory_char_limit: 500\n"),
        ("# mine\n", "# mine\nmemory:\n  memory_char_limit: 500\n"),
        ("a: 1", "a: 1\nmemory:\n  memory_char_limit: 500\n"),
        ("  a: 1\n", "  a: 1\n  memory:\n    memory_char_limit: 500\n"),
        ("{}", "{memory: {memory_char_limit: 500}}"),
        ("{a: 1}\n", "{memory: {memory_char_limit: 500}, a: 1}\n"),
        ("memory:\n", "memory:\n  memory_char_limit: 500\n"),
        ("memory: # notes\n  # more\na: 1\n", "memory: # notes\n  memory_char_limit: 500\n  # more\na: 1\n"),
        ("memory: null # none\na: 1\n", "memory: # none\n  memory_char_limit: 500\na: 1\n"),
        ("memory: {}\n", "memory: {memory_char_limit: 500}\n"),
        ("memory: {provider: x}\n", "memory: {memory_char_limit: 500, provider: x}\n"),
        ("memory:\n  memory_char_limit: 1 # why\n", "memory:\n  memory_char_limit: 500 # why\n"),
        ("memory:\n  memory_char_limit:  # why\n", "memory:\n  memory_char_limit: 500  # why\n"),
        ('memory:\n  "memory_char_limit": 1\n', 'memory:\n  "memory_char_limit": 500\n'),
        (
            "memory:\n    # limit\n    provider: x # c\n\nb: 1\n",
            "memory:\n    # limit\n    provider: x # c\n    memory_char_limit: 500\n\nb: 1\n",
        ),
        (
            "memory:\n  provider: |\n    x\n  deep:\n    a: 1\nb: 2\n",
            "memory:\n  memory_char_limit: 500\n  provider: |\n    x\n  deep:\n    a: 1\nb: 2\n",
        ),
        (
            "memory:\n  provider: x\n  deep:\n    a: 1\n  # end\nb: 2\n",
            "memory:\n  provider: x\n  memory_char_limit: 500\n  deep:\n    a: 1\n  # end\nb: 2\n",
        ),
        ("a: 1\r\nmemory:\r\n  provider: x\r\n", "a: 1\r\nmemory:\r\n  provider: x\r\n  memory_char_limit: 500\r\n"),
        ("memory:\n  ? memory_char_limit\n  : 1\n  b: 2\n", "memory:\n  ? memory_char_limit\n  : 500\n  b: 2\n"),
        ("\ufeffmemory: {}\n", "\ufeffmemory: {memory_char_limit: 500}\n"),
        ("x: &x 1\nmemory:\n  provider: *x\n", "x: &x 1\nmemory:\n  memory_char_limit: 500\n  provider: *x\n"),
    ],
)
def test_setting_changes_one_place(before: str, after: str) -> None:
    assert set_(before) == after
    assert set_(after) == after


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", ""),
        ("memory:\n  provider: x\n", "memory:\n  provider: x\n"),
        ("memory:\n  memory_char_limit: 1", "memory:\n"),
        ("memory:\n  memory_char_limit: 1 # why\n  # about b\n  b: 2\n", "memory:\n  # about b\n  b: 2\n"),
        ("memory:\n  # a\n  memory_char_limit:\n\n  b: 2\n", "memory:\n  # a\n\n  b: 2\n"),
        ("memory: {memory_char_limit: 1}\n", "memory: {}\n"),
        ("memory: {memory_char_limit: 1, b: 2}\n", "memory: {b: 2}\n"),
        ("memory: {a: 1, memory_char_limit: 1}\n", "memory: {a: 1}\n"),
        ("memory:\r\n  memory_char_limit: 1\r\n  b: 2\r\n", "memory:\r\n  b: 2\r\n"),
        ("\ufeffmemory:\n  memory_char_limit: 1\n", "\ufeffmemory:\n"),
        ("memory:\n  ? memory_char_limit\n  : 1\n  b: 2\n", "memory:\n  b: 2\n"),
    ],
)
def test_unsetting_removes_one_place(before: str, after: str) -> None:
    assert unset(before) == after


UNSAFE = [
    "memory:\n  memory_char_limit: &x 1\nb: *x\n",
    "x: &x 1\nmemory:\n  memory_char_limit: *x\n",
    "x: &x {memory_char_limit: 1}\nmemory: *x\n",
    "a: {b: {c: &x 1}}\nmemory: {memory_char_limit: *x}\n",
    "a: {b: {c: &x {}}}\nmemory: *x\n",
    "a: {b: {c: &x {provider: y}}}\nmemory: *x\n",
    "a: {b: &x }\nmemory: *x\n",
    "a: 1\n...\n",
    "memory: 5\n",
    "memory: [1]\n",
]
UNREMOVABLE = ["a: {b: {c: &x {memory_char_limit: 1, y: 2}}}\nmemory: *x\n"]
UNREMOVABLE += ["a: {b: {c: &x 1}}\nmemory: {y: *x, memory_char_limit: 1}\n", UNSAFE[0], UNSAFE[3]]


@pytest.mark.parametrize(
    ("change", "text"), [*((set_, text) for text in UNSAFE), *((unset, text) for text in UNREMOVABLE)]
)
def test_what_cannot_be_changed_safely_is_refused(change: Callable[[str], str], text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        assert change(text) == "something safe"
    assert "cannot be changed automatically" in str(caught.value) or "is not a section" in str(caught.value)


# ── properties ──────────────────────────────────────────────────────────────────────────────────────────────────

ANY_LINE = st.text(alphabet=st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")), max_size=12)
WORDS = st.text(alphabet=st.characters(codec="utf-8", categories=("L", "N", "P", "S", "Zs")), max_size=12)
COMMENT = WORDS.map(lambda text: f"# {text}")
VALUES = {
    "memory.memory_enabled": st.booleans(),
    "memory.memory_char_limit": st.integers(1, 1_000_000),
    "memory.provider": ANY_LINE,
    "memory.lock_timeout": st.floats(0, 3600),
    "store.url": ANY_LINE,
}


@st.composite
def files(draw: st.DrawFn) -> str:
    """A file as people write them: sections in any order, comments anywhere, foreign things between."""
    lines = draw(st.lists(COMMENT, max_size=2))
    sections = {"memory": ["provider", "memory_char_limit"], "store": ["url"], "agent": ["max", "name"], "": []}
    for section in draw(st.lists(st.sampled_from(sorted(sections)), unique=True)):
        keys = draw(st.lists(st.sampled_from(sections[section] or ["x"]), unique=True))
        indent = " " * draw(st.integers(1, 4))
        if not section:
            lines.append("list:\n- a\n- b")
        elif draw(st.booleans()) and keys:
            pairs = ", ".join(f"{key}: {'p' if key in ('provider', 'url') else 7}" for key in keys)
            lines.append(f"{section}: {{{pairs}}}")
        else:
            lines.append(f"{section}:{draw(st.sampled_from(['', ' ', '  # tail']))}")
            for key in keys:
                lines += [indent + text for text in draw(st.lists(COMMENT, max_size=2))]
                value = draw(st.sampled_from(["", " 12", ' "12"', " 12 # why"]))
                if key in ("provider", "url"):
                    value = value.replace(" 12", " 'p'")
                lines.append(f"{indent}{key}:{value}")
        lines += draw(st.lists(st.sampled_from(["", "# between"]), max_size=2))
    text = "\n".join(lines) + draw(st.sampled_from(["", "\n"]))
    text = text.replace("\n", draw(st.sampled_from(["\n", "\r\n"])))
    return draw(st.sampled_from(["", "\ufeff"])) + text


def comments(text: str) -> list[str]:
    return [line.strip() for line in text.splitlines() if line.strip("\ufeff ").startswith("#")]


@given(text=files(), key=st.sampled_from(sorted(VALUES)), data=st.data())
def test_set_then_load_gives_the_value_and_keeps_everything_else(text: str, key: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[key])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_bytes(text.encode())
        before = config.load(home=folder, cwd=folder, environ={})
        config.set_value(path, key, str(value))
        after = config.load(home=folder, cwd=folder, environ={})
        written = path.read_bytes().decode()
        assert config.get(after, key) == value
        for other in config.options():
            if other != key:
                assert config.get(after, other) == config.get(before, other)
        assert [(item.key, item.nearest) for item in after.problems] == [
            (item.key, item.nearest) for item in before.problems
        ]
        assert comments(written) == comments(text)
        assert ("\r\n" in text) <= ("\n" not in written.replace("\r\n", ""))
        config.unset_value(path, key)
        assert config.load(home=folder, cwd=folder, environ={}).sources[key] == "default"
        assert comments(path.read_bytes().decode()) == comments(text)


@given(text=st.one_of(st.text(max_size=60), st.binary(max_size=60)))
def test_no_file_content_breaks_anything(text: str | bytes) -> None:
    """Every content is either read or refused as a ConfigError; an edit never makes a readable file unreadable."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.yaml")
        path.write_bytes(text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass"))
        try:
            config.load(home=folder, cwd=folder, environ={})
            config.set_value(path, "memory.inbox_days", "5")
        except ConfigError:
            return
        assert config.load(home=folder, cwd=folder, environ={}).memory.inbox_days == 5


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_failed_write_leaves_the_old_file_and_no_litter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("memory: {}\n")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match=r"config\.yaml could not be written: No space left on device"):
        config.set_value(path, "memory.inbox_days", "5")
    assert path.read_text() == "memory: {}\n"
    assert sorted(item.name for item in tmp_path.iterdir()) == [".config.yaml.lock", "config.yaml"]
    with pytest.raises(StoreError, match="cannot be written"):
        config.set_value(path / "config.yaml", "memory.inbox_days", "5")


def test_a_second_editor_waits_and_then_gives_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config, "LOCK_SECONDS", 0.1)
    with (
        exclusive(tmp_path / ".config.yaml.lock", 1),
        pytest.raises(StoreBusy, match="Another process is changing"),
    ):
        config.set_value(tmp_path / "config.yaml", "memory.inbox_days", "5")
    config.set_value(tmp_path / "config.yaml", "memory.inbox_days", "5")


def test_processes_at_once_lose_no_change(tmp_path: Path) -> None:
    keys = ("memory.inbox_days", "memory.nudge_interval", "memory.lock_timeout")
    code = """if True:
        import sys, pathlib
        from herma import config
        for number in range(1, 16):
            config.set_value(pathlib.Path(sys.argv[1]), sys.argv[2], str(number))
    """
    command = [sys.executable, "-c", code, str(tmp_path / "config.yaml")]
    workers = [subprocess.Popen([*command, key]) for key in keys]
    assert [worker.wait() for worker in workers] == [0, 0, 0]
    settings = config.load(home=tmp_path, cwd=tmp_path, environ={})
    assert [config.get(settings, key) for key in keys] == [15, 15, 15.0]


# ── mcp_servers ──


def settings_of(home: Path, text: str) -> Settings:
    (home / "config.yaml").write_text(text, "utf-8")
    return config.load(home=home, environ={}, cwd=home)


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
    near, far = settings_of(home, "mcp_servers:\n  a:\n    comand: x\n    command: y\n    oauth: {}\n").problems
    assert str(near).endswith(" is not a known key; did you mean mcp_servers.a.command?")
    assert (far.key, far.nearest, far.pressing) == ("mcp_servers.a.oauth", None, False)
    (home / ".herma.yaml").write_text("mcp_servers:\n  evil:\n    command: rm\n", "utf-8")
    found = settings_of(home, "")
    assert (found.mcp_servers, found.problems[0].forbidden) == ((), True), "a project's file starts no programs"


leaves = st.one_of(st.text("ab:{}[]-#'\" \n", max_size=6), st.integers(), st.booleans(), st.none())


def nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    keys = st.sampled_from([*KEYS, "x"])
    return inner | st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4)


@given(st.dictionaries(st.text("ab-_ .", min_size=1, max_size=5), nested(nested(leaves)), max_size=3))
def test_whatever_stands_there_is_a_server_or_a_problem(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, object]
) -> None:
    home = tmp_path_factory.mktemp("home")
    found = settings_of(home, "mcp_servers: " + json.dumps(tree))
    for server in found.mcp_servers:
        assert bool(server.command) != bool(server.url)
    told = {problem.key.split(".")[1] for problem in found.problems if problem.key.count(".")}
    assert {name for name in tree if "." not in name} <= told | {server.name for server in found.mcp_servers}
    assert all(str(problem) for problem in found.problems)
