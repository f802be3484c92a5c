"""The section `mcp_servers` of the configuration: names, and below each how a server of tools is reached.

The only section with more than two levels. What is wrong with one server costs that server and is told; the others, and
everything else, go on. The file may be shared with other software, so nothing in it is a reason to refuse to start.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias

from herma import configfile

if TYPE_CHECKING:
    from pathlib import Path

    from herma.configfile import Node

NAME = "mcp_servers"
KEYS = ("command", "args", "env", "cwd", "url", "headers", "enabled", "timeout", "connect_timeout", "tools")
MOST = 50
"""Servers that are taken."""
_NOTHING: Mapping[str, str] = MappingProxyType({})
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
Complain: TypeAlias = Callable[[str, int, str, str | None], None]
"""Told a key, its line, why it is ignored ("" for a key that is not known), and the nearest known key."""


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server: a program to start (`command`), or an address (`url`)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    enabled: bool = True
    timeout: float | None = None
    """Seconds that one of its tools may take; `None`: as with all of them."""
    connect_timeout: float | None = None
    include: tuple[str, ...] | None = None
    """The tools that are taken; `None`: all."""
    exclude: tuple[str, ...] = ()

    def takes(self, tool: str) -> bool:
        return (self.include is None or tool in self.include) and tool not in self.exclude


def read_servers(path: Path, complain: Complain) -> tuple[McpServer, ...]:
    """The servers of a configuration file, in its order."""
    text = configfile.read(path)
    if text is None or NAME not in text:
        return ()
    root = configfile.compose(text, path)
    section = next((node for key, node in (root.value if root is not None else ()) if key.value == NAME), None)
    if section is None or _is_null(section):
        return ()
    if section.id != "mapping":
        complain(
            NAME, section.start_mark.line + 1, "it must be a section: a name, and below it how it is reached", None
        )
        return ()
    found: list[McpServer] = []
    for key, node in section.value:
        label, line = f"{NAME}.{key.value}", key.start_mark.line + 1
        if not _NAME.fullmatch(key.value):
            complain(label, line, "a server's name is letters, digits, - and _, at most 40", None)
        elif len(found) >= MOST:
            complain(label, line, f"there are more than {MOST} servers", None)
        elif node.id != "mapping":
            complain(label, line, "below a server's name stand its keys: command or url", None)
        else:
            server = _Reading(key.value, line, complain).server(node)
            if server is not None:
                found.append(server)
    return tuple(found)


class _Wrong(Exception):
    """What a value must be."""


class _Reading:
    """One server of the file."""

    def __init__(self, name: str, line: int, complain: Complain) -> None:
        self._name, self._line, self._complain = name, line, complain

    def server(self, node: Node) -> McpServer | None:
        given: dict[str, object] = {}
        for key, value in node.value:
            if key.value not in KEYS:
                self._unknown(key)
                continue
            if _is_null(value):
                continue
            try:
                given |= _READ[key.value](key.value, value)
            except _Wrong as wrong:
                self._complain(f"{NAME}.{self._name}.{key.value}", key.start_mark.line + 1, str(wrong), None)
                return None
        made = McpServer(self._name, **given)  # type: ignore[arg-type]  # `_READ` has one function per field
        if bool(made.command) == bool(made.url):
            self._complain(f"{NAME}.{self._name}", self._line, "it needs either a command or a url", None)
            return None
        return made

    def _unknown(self, key: Node) -> None:
        from difflib import get_close_matches

        near = get_close_matches(key.value, KEYS, n=1, cutoff=0.7)
        label = f"{NAME}.{self._name}"
        self._complain(f"{label}.{key.value}", key.start_mark.line + 1, "", f"{label}.{near[0]}" if near else None)


def _text(key: str, node: Node) -> dict[str, object]:
    if node.id != "scalar" or not node.value.strip() or _NOT_TEXT.search(node.value):
        raise _Wrong("it must be a text")
    return {key: node.value.strip()}


def _url(key: str, node: Node) -> dict[str, object]:
    found = _text(key, node)
    if not re.match(r"https?://[^/\s]", str(found[key])):
        raise _Wrong("it must be an address that begins with http:// or https://")
    return found


def _texts(key: str, node: Node) -> dict[str, object]:
    if node.id != "sequence" or any(each.id != "scalar" or _NOT_TEXT.search(each.value) for each in node.value):
        raise _Wrong("it must be a list of texts")
    return {key: tuple(each.value for each in node.value)}


def _pairs(key: str, node: Node) -> dict[str, object]:
    if node.id != "mapping" or any(value.id != "scalar" or _NOT_TEXT.search(value.value) for _, value in node.value):
        raise _Wrong("it must be names, each with a text")
    pairs = {name.value: "" if _is_null(value) else value.value for name, value in node.value}
    return {key: MappingProxyType(pairs)}


def _flag(key: str, node: Node) -> dict[str, object]:
    words = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
    if node.id != "scalar" or node.value.lower() not in words:
        raise _Wrong("it must be true or false")
    return {key: words[node.value.lower()]}


def _seconds(key: str, node: Node) -> dict[str, object]:
    if node.id != "scalar" or not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", node.value) or not float(node.value):
        raise _Wrong("it must be a number of seconds")
    return {key: float(node.value)}


def _tools(key: str, node: Node) -> dict[str, object]:
    """A list of the tools that are taken, or `include` and `exclude` below it."""
    if node.id == "sequence":
        return {"include": _texts(key, node)[key]}
    if node.id != "mapping" or any(name.value not in ("include", "exclude") for name, _ in node.value):
        raise _Wrong("it must be a list of tools, or include and exclude with one each")
    found: dict[str, object] = {}
    for name, value in node.value:
        if not _is_null(value):
            found |= _texts(name.value, value)
    return found


_READ: Mapping[str, Callable[[str, Node], dict[str, object]]] = {
    "command": _text,
    "args": _texts,
    "env": _pairs,
    "cwd": _text,
    "url": _url,
    "headers": _pairs,
    "enabled": _flag,
    "timeout": _seconds,
    "connect_timeout": _seconds,
    "tools": _tools,
}


def _is_null(node: Node) -> bool:
    return node.id == "scalar" and str(node.tag).endswith(":null")
