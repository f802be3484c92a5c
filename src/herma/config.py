"""Read and change settings: defaults, the home's file, a project's file, the environment and flags make one `Settings`.

A later source wins over an earlier one, key by key, and `Settings.sources` names the source of each value. A section is
a dataclass and a field of `Settings`; a field made with `option` is a key. Validation, `herma config` and the reference
page derive from the fields. A project's file comes with a repository of others, so it may set only keys that are marked
`project=True`.

An edit replaces, inserts or deletes one span of the file, so comments, order, quotes and line ends stay as they were.
ruamel.yaml's round trip would lose comments beside a removed key and rewrite indentation.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, Literal, NamedTuple, NoReturn, TypeAlias, TypeVar

from herma.errors import ConfigError, StoreBusy, StoreError
from herma.store.files import exclusive, make_folder, plain_yaml, read_start, replace_file

T = TypeVar("T")
HOME_FILE = "config.yaml"
PROJECT_FILE = ".herma.yaml"
DEFAULT_PROFILE = "default"
RESERVED_VARIABLES = frozenset({"HERMA_HOME", "HERMA_PROFILE", "HERMA_SESSION", "HERMA_MODELS", "HERMA_DEBUG"})
LOCK_SECONDS = 10.0  # to wait for another process that edits the same file
Node: TypeAlias = Any  # of ruamel.yaml, which declares none of its attributes
MAX_BYTES, PROJECT_BYTES = 1 << 20, 1 << 16  # of the home's file, and of one that comes with a repository of others
_BOM = "\ufeff"


class Item(NamedTuple):
    """A value as it stands in the file. `kind` is YAML's: str, int, null, map, seq …"""

    kind: str
    text: str
    line: int


# ── reading a file ──────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path, limit: int = MAX_BYTES) -> str | None:
    """Return the file's text with its byte-order mark; `None` if there is no such file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ConfigError(f"{path} is not a file.", hint="Move it away, or make it a YAML file.")
        data = read_start(path, limit + 1)
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read: {exc.strerror or exc}.",
            hint="Check the permissions of the file and of its folder.",
        ) from exc
    if len(data) > limit:
        size = f"{limit >> 20} MiB" if limit >= 1 << 20 else f"{limit >> 10} KiB"
        raise ConfigError(f"{path} is larger than {size}, the maximum for a configuration.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}, line {line}, is not UTF-8 text.", hint="Save the file as UTF-8.") from exc


def compose(text: str, path: Path, *, plain: bool = False) -> Node | None:
    """Return the checked nodes of the text. With `plain`, refuse anchors, merge keys and tags: the file is not the
    user's own. Errors name the file and the line.
    """
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        reader = plain_yaml() if plain else YAML(typ="safe", pure=True)
        root = reader.compose(text.removeprefix(_BOM))
    except MarkedYAMLError as exc:
        mark = exc.problem_mark or exc.context_mark
        at = f", line {mark.line + 1}," if mark else ""
        _broken(path, at, str(exc.problem or exc.context), exc)
    except ReaderError as exc:
        line = text.count("\n", 0, exc.position) + 1
        _broken(path, f", line {line},", "it has a character that YAML forbids", exc)
    except YAMLError as exc:
        _broken(path, "", str(exc).partition("\n")[0], exc)
    except RecursionError as exc:
        _broken(path, "", "it is nested too deeply", exc)
    if root is None or _is_null(root):
        return None
    if root.id != "mapping":
        found = "a list" if root.id == "sequence" else "a single value"
        raise ConfigError(f"{path} holds {found}; sections of keys are expected.", hint="For example: memory:")
    _check_keys(root, path)
    return root


def _broken(path: Path, at: str, problem: str, cause: Exception) -> NoReturn:
    raise ConfigError(f"{path}{at} is not valid YAML: {problem}.", hint="Correct the file and try again.") from cause


def _check_keys(root: Node, path: Path) -> None:
    """Refuse a key that stands twice in one mapping, at any depth: one of the two would be lost silently."""
    todo: list[Node] = [root]
    seen: set[int] = set()
    while todo:
        node = todo.pop()
        if id(node) in seen or node.id == "scalar":
            continue
        seen.add(id(node))
        if node.id == "sequence":
            todo.extend(node.value)
            continue
        lines: dict[str, int] = {}
        for key, value in node.value:
            todo.append(value)
            line = _line(key)
            if key.id != "scalar":
                raise ConfigError(f"{path}, line {line}: a key's name must be plain text.")
            if key.value in lines and key.value != "<<":
                raise ConfigError(
                    f"{path}, line {line}: the key {key.value!r} is already on line {lines[key.value]}.",
                    hint="Keep one of the two.",
                )
            lines[key.value] = line


def _items(root: Node | None) -> dict[tuple[str, str], Item]:
    """Return the values by section and key; a value of the top level has the key ""."""
    found: dict[tuple[str, str], Item] = {}
    for key, node in root.value if root is not None else ():
        found[key.value, ""] = _item(key, node)
        for inner, value in node.value if node.id == "mapping" else ():
            found[key.value, inner.value] = _item(inner, value)
    return found


def _item(key: Node, node: Node) -> Item:
    kind = str(node.tag).rpartition(":")[2].rpartition("!")[2]
    return Item(kind, node.value if node.id == "scalar" else "", _line(key))


def _line(node: Node) -> int:
    return int(node.start_mark.line) + 1


def _is_null(node: Node) -> bool:
    return node.id == "scalar" and str(node.tag).endswith(":null")


def _find(mapping: Node | None, name: str) -> tuple[Node, Node] | tuple[None, None]:
    pairs = mapping.value if mapping is not None else ()
    return next(((key, node) for key, node in pairs if key.value == name), (None, None))


# ── editing a file ──────────────────────────────────────────────────────────────────────────────────────────


def set_value(path: Path, key: str, text: str) -> None:
    """Write one key into a configuration file, after checking it; comments, order and mode stay."""
    known = _known(key)
    value = _value(known, text, "")
    section, _, name = key.partition(".")
    if name.endswith("_env") and value and not is_variable(str(value)):
        raise ConfigError(
            f"{key} must be the name of a variable; the given value looks like a key. Nothing was changed.",
            hint=f"Put the key into the home's .env file, for example MY_API_KEY=…, then: herma config set {key}"
            " MY_API_KEY",
        )
    _edit(path, lambda old: with_value(old, path, section, name, value))


def unset_value(path: Path, key: str) -> bool:
    """Remove one key from a configuration file. Return whether it was there."""
    _known(key)
    section, _, name = key.partition(".")
    return path.exists() and _edit(path, lambda old: with_value(old, path, section, name, None))


_VARIABLE = re.compile(r"(?!(?:sk|pk|gsk|key|hf|xai|pplx|gh[a-z])_[A-Za-z0-9_]*\d)[A-Za-z_][A-Za-z0-9_]{0,63}")


def is_variable(text: str) -> bool:
    """Return whether a text can name a variable. Many keys could; long ones with mixed case or many digits are keys."""
    key = len(text) >= 20 and (sum(map(str.isdigit, text)) >= 5 or (text != text.upper() and text != text.lower()))
    return not key and _VARIABLE.fullmatch(text) is not None


def _edit(path: Path, change: Callable[[str], str]) -> bool:
    """Rewrite the file through `change`; a missing file counts as empty. Return whether anything changed."""
    try:
        make_folder(path.parent)
        with exclusive(path.with_name(f".{path.name}.lock"), LOCK_SECONDS):
            target = Path(os.path.realpath(path))
            make_folder(target.parent)
            before = read(target) or ""
            after = change(before)
            if after == before:
                return False
            replace_file(target, after.encode("utf-8"))
    except StoreBusy as exc:
        raise StoreBusy(f"Another process is changing {path}.", hint="Try again.") from exc
    except OSError as exc:
        raise StoreError(
            f"{path} could not be written: {exc.strerror or exc}.",
            hint="Check free space, and the permissions of the file and of its folder.",
        ) from exc
    return True


def with_value(text: str, path: Path, section: str, key: str, value: str | float | None) -> str:
    """Return the text with `section.key` set to `value`, or removed (`None`), and nothing else changed."""
    body = text.removeprefix(_BOM)
    root = compose(body, path)
    header, node = _find(root, section)
    if value is None and (header is None or node is None or node.id != "mapping" or _find(node, key)[0] is None):
        return text
    if header is not None and node is not None and _item(header, node).kind not in ("map", "null"):
        raise ConfigError(
            f"{path}, line {_line(header)}: {section} is not a section, so {key} cannot be set in it.",
            hint="Correct the line in an editor; the file was not changed.",
        )
    try:
        edited = _unset(body, header, node, key) if value is None else _set(body, root, section, key, _yaml(value))
    except _AliasError as exc:
        raise _refusal(path, section, key) from exc
    return _checked(text, edited, path, section, key, _yaml(value) if isinstance(value, int | float) else value)


class _AliasError(Exception):
    """The value is an alias: the text to edit stands in another place, and counts there too."""


def _set(text: str, root: Node | None, section: str, key: str, value: str) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    pair = f"{key}: {value}"
    header, node = _find(root, section)
    if header is None or node is None:
        return _append_section(text, root, section, pair, end)
    start, stop = _span(text, header, node)
    if node.id == "mapping":
        own, old = _find(node, key)
        if own is None or old is None:
            return _insert_pair(text, node, pair, end)
        start, stop = _span(text, own, old)
        return text[:start] + (" " if text[start - 1] == ":" else "") + value + text[stop:]
    rest = _line_end(text, stop)
    indent = " " * (header.start_mark.column + 2)
    return f"{text[:start].rstrip(' ')}{text[stop:rest]}{end}{indent}{pair}{text[rest:]}"


def _unset(text: str, header: Node, section: Node, key: str) -> str:
    _span(text, header, section)
    at = [own.value for own, _ in section.value].index(key)
    own, old = section.value[at]
    start, stop = own.start_mark.index, _span(text, own, old)[1]
    if not section.flow_style:
        start = text.rfind("\n", 0, start) + 1
        stop = _line_end(text, stop)
        stop += 2 if text.startswith("\r\n", stop) else 1
    elif at + 1 < len(section.value):
        stop = section.value[at + 1][0].start_mark.index
    elif at > 0:
        start = _span(text, *section.value[at - 1])[1]
    return text[:start] + text[stop:]


def _append_section(text: str, root: Node | None, section: str, pair: str, end: str) -> str:
    if root is not None and root.flow_style:
        at = root.start_mark.index + 1
        return f"{text[:at]}{section}: {{{pair}}}{', ' if root.value else ''}{text[at:]}"
    indent = " " * root.value[0][0].start_mark.column if root is not None else ""
    if text and not text.endswith("\n"):
        text += end
    return f"{text}{indent}{section}:{end}{indent}  {pair}{end}"


def _insert_pair(text: str, section: Node, pair: str, end: str) -> str:
    """Insert after the section's last plain value: before its first key, that key would lose its comment."""
    if section.flow_style:
        at = section.start_mark.index + 1
        return f"{text[:at]}{pair}{', ' if section.value else ''}{text[at:]}"
    first: Node = section.value[0][0]
    indent = " " * first.start_mark.column
    for key, node in reversed(section.value):
        alias = node.start_mark.index < key.end_mark.index
        if not alias and (node.flow_style if node.id != "scalar" else node.style not in ("|", ">")):
            at = _line_end(text, _span(text, key, node)[1])
            return f"{text[:at]}{end}{indent}{pair}{text[at:]}"
    at = first.start_mark.index - first.start_mark.column
    return f"{text[:at]}{indent}{pair}{end}{text[at:]}"


def _span(text: str, key: Node, node: Node) -> tuple[int, int]:
    """Return where the value of `key` stands. An empty value stands right behind the colon."""
    if node.start_mark.index < key.end_mark.index:
        raise _AliasError
    if node.start_mark.index == node.end_mark.index:
        behind = text.index(":", key.end_mark.index) + 1
        return behind, behind
    return node.start_mark.index, node.end_mark.index


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    if at < 0:
        return len(text)
    return at - 1 if at > start and text[at - 1] == "\r" else at


def _yaml(value: str | float) -> str:
    """Return a scalar as YAML. Text is always quoted: a bare `1` or `~` would come back as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    return '"' + "".join(map(_quoted, value)) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    return character if character.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _checked(before: str, after: str, path: Path, section: str, key: str, value: str | None) -> str:
    """Return `after` with the byte-order mark of `before`, if the new value (`None`: none) is the only change."""
    try:
        old, new = _items(compose(before, path)), _items(compose(after, path))
    except ConfigError as exc:
        raise _refusal(path, section, key) from exc
    item = new.pop((section, key), None)
    kept = {place: known[:2] for place, known in new.items() if place != (section, "")}
    if (item.text if item else None) != value or kept != {
        place: known[:2] for place, known in old.items() if place not in ((section, ""), (section, key))
    }:
        raise _refusal(path, section, key)
    return before[: len(before) - len(before.removeprefix(_BOM))] + after


def _refusal(path: Path, section: str, key: str) -> ConfigError:
    return ConfigError(
        f"{path} is written in a way that {section}.{key} cannot be changed automatically.",
        hint="Change the key in an editor; the file was not changed.",
    )


# ── keys and their values ───────────────────────────────────────────────────────────────────────────────────

Value: TypeAlias = bool | int | float | str
TRUE_WORDS = frozenset({"on", "true", "yes", "1", "approve", "enabled"})
FALSE_WORDS = frozenset({"off", "false", "no", "0", "disabled"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
_NOT_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Pairs(NamedTuple, Generic[T]):
    """The values of a key that is a list of names, each with a value: `cron=30, subagent=7`."""

    what: str
    value: Callable[[str], T]
    """Reads one value. Raises ValueError if it is wrong."""

    def read(self, text: str) -> list[tuple[str, T]]:
        """Return each name with its value. Raise ValueError with the first item that is wrong."""
        found = []
        for row in filter(None, map(str.strip, text.split(","))):
            name, _, value = (part.strip() for part in row.partition("="))
            try:
                found.append((name, self.value(value if name else "")))
            except ValueError:
                raise ValueError(row) from None
        return found


def _amount(text: str, most: float) -> float:
    if not _NUMBER.fullmatch(text) or not 0 <= float(text) <= most:
        raise ValueError(text)
    return float(text)


def _tool_sets(text: str) -> tuple[str, ...]:
    chosen = tuple(map(str.strip, text.split("+")))
    if not set(chosen) <= {"memory", "provider", "search", "skills"}:
        raise ValueError(text)
    return chosen


TOOLS_OFF = Pairs(
    "sources, each with memory, provider, search or skills, as in: telegram=memory, cron=provider+skills", _tool_sets
)
BY_SOURCE = Pairs(
    "sources, each with its days (at most 36500), as in: cron=30, subagent=7", partial(_amount, most=36_500)
)
SHARES = Pairs("parts of the window, each with its percentage, as in: system=10, tools=30", partial(_amount, most=100))


@dataclass(frozen=True, slots=True)
class Choices:
    """Some of several words, separated by commas: `idle, day`."""

    allowed: tuple[str, ...]

    @property
    def what(self) -> str:
        return f"words separated by commas, of: {', '.join(self.allowed)}"

    def read(self, text: str) -> tuple[str, ...]:
        """Return the words. Raise ValueError with the first that is not allowed."""
        found = tuple(filter(None, map(str.strip, text.split(","))))
        for word in found:
            if word not in self.allowed:
                raise ValueError(word)
        return found


BOUNDARIES = Choices(("idle", "day", "topic"))
ORIGINS = Choices(("agent", "installed", "user", "found"))


def option(
    default: Value,
    doc: str,
    low: float | None = None,
    high: float | None = None,
    *,
    pairs: Pairs[Any] | Choices | None = None,
    project: bool = False,
) -> Any:
    """Declare a key: its meaning, its range, and whether a project's file may set it. A `Literal` names its words."""
    return field(default=default, metadata={"doc": doc, "low": low, "high": high, "pairs": pairs, "project": project})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A key with its default, which also gives its type, and the `option` that declared it."""

    key: str
    default: Value
    doc: str
    low: float | None
    high: float | None
    one_of: tuple[str, ...] = ()
    pairs: Pairs[Any] | Choices | None = None
    project: bool

    @property
    def kind(self) -> type:
        return type(self.default)

    @property
    def variable(self) -> str:
        return "HERMA_" + self.key.upper().replace(".", "_")

    @property
    def expected(self) -> str:
        """Describe the allowed values, after "must be"."""
        if self.kind is bool:
            return "true or false"
        if self.one_of:
            return "one of " + ", ".join(word or "(empty)" for word in self.one_of)
        if self.pairs:
            return self.pairs.what
        if self.kind is str:
            return "one line of text"
        what = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{what}, {self.low} or more"
        return what if self.high is None else f"{what}, {self.high} or less"

    def read(self, raw: object) -> Value:
        """Return the value of `raw`; text is read as a person types it. Raise ValueError if it is not allowed."""
        value = self._from_text(raw) if isinstance(raw, str) else raw
        if self.kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, bool | int | float | str) or type(value) is not self.kind:
            raise ValueError(f"not {self.expected}")
        if isinstance(value, int | float) and not (
            math.isfinite(value)
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
        ):
            raise ValueError(f"not {self.expected}")
        return value

    def _from_text(self, text: str) -> Value:
        word = text.strip()
        if self.one_of and word.lower() in self.one_of:
            return word.lower()
        if self.pairs:
            self.pairs.read(text)
        if self.kind is str and not self.one_of and not _NOT_A_LINE.search(text):
            return text
        if self.kind is bool and word.lower() in TRUE_WORDS | FALSE_WORDS:
            return word.lower() in TRUE_WORDS
        if self.kind is int and _WHOLE.fullmatch(word):
            return int(word)
        if self.kind is float and _NUMBER.fullmatch(word):
            return float(word)
        raise ValueError(f"not {self.expected}")


# ── mcp_servers: names, and below each how a server of tools is reached ─────────────────────────────────────
#
# The only section with more than two levels. An error in one server costs that server and is reported; the others are
# used. The file may be shared with other software, so nothing in this section keeps Herma from starting.

NAME = "mcp_servers"
KEYS = ("command", "args", "env", "cwd", "url", "headers", "enabled", "timeout", "connect_timeout", "tools")
_SERVER_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")
_SERVER_WORDS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True, slots=True)
class McpServer:
    """One server: a program to start (`command`), or an address (`url`)."""

    name: str
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    enabled: bool = True
    timeout: float | None = None
    """Seconds that one of its tools may take; `None`: the default of all servers."""
    connect_timeout: float | None = None
    include: tuple[str, ...] | None = None
    """The tools to use; `None`: all."""
    exclude: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The program, or the address without its user, password and query."""
        return self.command or re.sub(r"//[^/@]*@", "//", self.url.partition("?")[0])

    def takes(self, tool: str) -> bool:
        return (self.include is None or tool in self.include) and tool not in self.exclude


def _servers(section: Node | None, path: Path, problems: list[Problem]) -> tuple[McpServer, ...]:
    """Return the servers of the section, in its order, and add what is wrong to `problems`."""
    if section is None or _is_null(section):
        return ()
    if section.id != "mapping":
        where = f"{path}, line {_line(section)}"
        problems.append(Problem(NAME, where, why="it must be a section: a name, and below it command or url"))
        return ()
    found: list[McpServer] = []
    for key, node in section.value:
        label, where = f"{NAME}.{key.value}", f"{path}, line {_line(key)}"
        if not _SERVER_NAME.fullmatch(key.value):
            problems.append(Problem(label, where, why="a server's name is letters, digits, - and _, at most 40"))
        elif node.id != "mapping":
            problems.append(Problem(label, where, why="a server's name needs keys below it: command or url"))
        elif server := _server(key.value, where, node, path, problems):
            found.append(server)
    return tuple(found)


def _server(name: str, where: str, node: Node, path: Path, problems: list[Problem]) -> McpServer | None:
    label = f"{NAME}.{name}"
    fields: dict[str, Any] = {}
    for key, value in node.value:
        place = f"{label}.{key.value}", f"{path}, line {_line(key)}"
        if key.value not in KEYS:
            near = _near(key.value, KEYS, 0.7)
            problems.append(Problem(*place, nearest=f"{label}.{near}" if near else None))
        elif not _is_null(value):
            try:
                fields |= _server_fields(key.value, value)
            except ValueError as wrong:
                problems.append(Problem(*place, why=f"it must be {wrong}"))
                return None
    server = McpServer(name, **fields)
    if bool(server.command) == bool(server.url):
        problems.append(Problem(label, where, why="it needs either a command or a url"))
        return None
    return server


def _server_fields(key: str, node: Node) -> dict[str, object]:
    """Return the fields of `McpServer` that a key sets. Raise ValueError with the allowed values."""
    text = node.value if node.id == "scalar" and not _NOT_TEXT.search(node.value) else ""
    match key:
        case "command" | "cwd" | "url":
            if not text.strip():
                raise ValueError("a text")
            if key == "url" and not re.match(r"https?://[^/\s]", text.strip()):
                raise ValueError("an address that begins with http:// or https://")
            return {key: text.strip()}
        case "args" | "include" | "exclude":
            if node.id != "sequence" or any(one.id != "scalar" or _NOT_TEXT.search(one.value) for one in node.value):
                raise ValueError("a list of texts")
            return {key: tuple(one.value for one in node.value)}
        case "env" | "headers":
            pairs = node.value if node.id == "mapping" else None
            if pairs is None or any(value.id != "scalar" or _NOT_TEXT.search(value.value) for _, value in pairs):
                raise ValueError("names, each with a text")
            return {key: {name.value: "" if _is_null(value) else value.value for name, value in pairs}}
        case "enabled":
            if text.lower() not in _SERVER_WORDS:
                raise ValueError("true or false")
            return {key: _SERVER_WORDS[text.lower()]}
        case "timeout" | "connect_timeout":
            if not re.fullmatch(r"[0-9]{1,6}(\.[0-9]{1,3})?", text) or not float(text):
                raise ValueError("a number of seconds")
            return {key: float(text)}
    if node.id == "sequence":  # tools
        return _server_fields("include", node)
    if node.id != "mapping" or any(name.value not in ("include", "exclude") for name, _ in node.value):
        raise ValueError("a list of tools, or include and exclude with one each")
    found: dict[str, object] = {}
    for name, value in node.value:
        found |= {} if _is_null(value) else _server_fields(name.value, value)
    return found


# ── the sections ────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class MemorySettings:
    """Curated memory: MEMORY.md and USER.md."""

    memory_enabled: bool = option(True, "Show the agent's notes (MEMORY.md) to the model.", project=True)
    user_profile_enabled: bool = option(True, "Show the user profile (USER.md) to the model.", project=True)
    memory_char_limit: int = option(2200, "Maximum characters of MEMORY.md.", 1, 1_000_000, project=True)
    user_char_limit: int = option(1375, "Maximum characters of USER.md.", 1, 1_000_000, project=True)
    provider: str = option("", "External memory provider of sessions; empty: none.")
    nudge_interval: int = option(
        10,
        "Review the conversation after this many user messages without a memory saved; 0: never.",
        0,
        100_000,
        project=True,
    )
    write_approval: bool = option(False, "Hold memory writes in the inbox until a person approves them.")
    live_updates: bool = option(True, "Tell a running session about memory changes made elsewhere.", project=True)
    inbox_days: int = option(30, "Days that an undecided write waits in the inbox.", 1, 36_500)
    lock_timeout: float = option(10.0, "Seconds to wait for another process that holds a file.", 0, 3600)
    tidy: Literal["apply", "propose", "off"] = option(
        "apply",
        "When a write needs room: apply (drop an agent's exact duplicates, propose the rest), propose (all), or off.",
    )
    tail_recall: int = option(3, "Archived entries that one turn may recall; 0: none.", 0, 20)
    tail_uses: int = 3
    """Conversations that must recall an archived entry before it is proposed for the prompt."""


@dataclass(frozen=True)
class ProviderSettings:
    """External memory providers."""

    timeout: float = option(8.0, "Seconds that a session waits for a provider's answer.", 0.05, 600)
    recall_from: str = option(
        "", "More providers that only recall, separated by commas; memory.provider names the one that is written."
    )


@dataclass(frozen=True)
class ToolSettings:
    """Tools of the model."""

    off: str = option(
        "",
        "Sets of tools that sessions of a source or context do not have: memory (with the provider), provider, search, "
        "skills; as in: telegram=memory, cron=provider+skills.",
        pairs=TOOLS_OFF,
    )


@dataclass(frozen=True)
class StoreSettings:
    """The database."""

    url: str = option("", "Address of a PostgreSQL server (postgresql://…); empty: SQLite in the home.")
    tenant: str = option("", "Tenant on the server; no tenant can read the memory of another.")


@dataclass(frozen=True)
class ModelSettings:
    """The language model of sessions."""

    name: str = option("", "Name of the model; it also decides the window and the tokenizer.")
    url: str = option(
        "", "Address of the model server, or openai, anthropic, openrouter, ollama, llama.cpp, vllm; empty: no model."
    )
    kind: Literal["", "openai", "anthropic"] = option(
        "", "API of the server: openai or anthropic; empty: inferred from the URL."
    )
    api_key_env: str = option(
        "", "Variable with the API key, in the environment or the home's .env; empty: the usual one of the server."
    )
    timeout: float = option(600.0, "Maximum seconds of a call, retries included.", 1, 86_400)
    retries: int = option(3, "Retries after a failure that may pass.", 0, 20)
    max_tokens: int = option(0, "Maximum tokens of an answer; 0: the server's limit.", 0, 10_000_000)


@dataclass(frozen=True)
class AuxiliarySettings:
    """The language model for background work. An empty key is taken from the section `model`."""

    name: str = option("", "Name of the model, usually a smaller one; empty: model.name.")
    url: str = option("", "Address as in model.url; empty: that of model.url, with its API and key.")
    kind: Literal["", "openai", "anthropic"] = option("", "With auxiliary.url: openai or anthropic; empty: inferred.")
    api_key_env: str = option("", "With auxiliary.url: variable with the API key.")


@dataclass(frozen=True)
class SpendSettings:
    """The daily cap on background work."""

    daily_usd: float = option(
        0.5, "US dollars per day, for models with known prices; 0: no background work.", 0, 1_000_000
    )
    daily_tokens: int = option(1_000_000, "Tokens per day, sent and received; 0: no background work.", 0, 10**15)


@dataclass(frozen=True)
class EmbeddingSettings:
    """The embedding model, for search by meaning."""

    model: str = option(
        "auto", "auto (e5-small if it is installed), none, an installed model, the folder of a model, or endpoint."
    )
    url: str = option("", "For endpoint: base URL, as in https://host/v1.")
    endpoint_model: str = option("", "For endpoint: name of the model.")
    api_key_env: str = option("", "For endpoint: variable with the API key; empty: no key is sent.")


@dataclass(frozen=True)
class ContextSettings:
    """The model's context window, and how it is divided."""

    window: int = option(0, "Tokens of the model's window; 0: known from its name.", 0, 100_000_000)
    engine: str = option(
        "compressor", "Engine that compresses conversations: compressor, or your class as in package.module:Class."
    )
    profile: Literal["default", "coding", "chat"] = option(
        "default", "How the window is divided: default, coding or chat."
    )
    shares: str = option(
        "",
        "Percentages that differ from the profile, for system, memory, conversation, tools and reply.",
        pairs=SHARES,
    )
    tool_result_tokens: int = option(
        500, "Maximum tokens of one tool result in a request; the transcript keeps all.", 20, 1_000_000
    )


@dataclass(frozen=True)
class PriceSettings:
    """Prices of the model and its cache."""

    input: float = option(0.0, "US dollars per million input tokens; 0: unknown.", 0, 1_000_000)
    output: float = option(0.0, "US dollars per million output tokens; 0: unknown.", 0, 1_000_000)
    by_model: str = option("", "Input and output prices by model, as in: claude-opus=15/75, gpt-4o=2.5/10.")
    cache_read: float = option(0.1, "Price of a cached token, relative to the input price.", 0, 100)
    cache_write: float = option(1.25, "Price of writing to the cache, relative to the input price.", 0, 100)
    cache_minutes: int = option(5, "Minutes that the cache keeps an unused prefix: 5, or 60.", 1, 1440)


@dataclass(frozen=True)
class RetentionSettings:
    """Retention of transcripts."""

    days: float = option(0.0, "Delete a conversation after this many days without activity; 0: never.", 0, 36_500)
    by_source: str = option("", "Days for single sources, instead of retention.days; 0: never.", pairs=BY_SOURCE)
    grace_days: float = option(7.0, "Days in which a deletion can be undone.", 0, 36_500)


@dataclass(frozen=True)
class SearchSettings:
    """Search over past sessions."""

    mode: Literal["hybrid", "words", "vectors"] = option(
        "hybrid", "hybrid (by words and by meaning), words, or vectors; without an embedding model, words."
    )
    model_wait: float = option(
        1.0, "Seconds that a search waits for the embedding of its question, and for a reranker.", 0.01, 60
    )
    prefetch: bool = option(True, "Search past conversations before each turn and recall what is relevant.")
    prefetch_ms: int = option(150, "Milliseconds that this may take; a late answer is left out.", 1, 10_000)


@dataclass(frozen=True)
class EpisodeSettings:
    """Episodes: earlier work, one per conversation."""

    max: int = option(10_000, "Episodes that are kept; the least valuable go to the archive.", 10, 10_000_000)
    shown: int = option(2, "Episodes in the prompt of a new session at most; 0: none.", 0, 10)


@dataclass(frozen=True)
class CompressionSettings:
    """Compression of a conversation that fills the window."""

    enabled: bool = option(True, "Compress a conversation automatically when it fills the window.")
    threshold: float = option(0.75, "Fraction of the window at which compression starts.", 0.1, 0.98)
    tail: float = 0.3
    """Fraction of the threshold that is kept verbatim at the end."""
    protect_first: int = 2
    """Messages that are kept verbatim at the beginning."""
    in_place: bool = option(False, "Keep the session's id instead of continuing in a new session.")
    on_failure: Literal["extract", "abort"] = option(
        "extract", "When no model can summarise: extract (sentences of the conversation) or abort."
    )
    deadline: float = option(90.0, "Maximum seconds of a summary by a model.", 1, 3600)


@dataclass(frozen=True)
class SkillSettings:
    """Skills: procedures that agents follow and improve."""

    write_approval: bool = option(False, "Hold skill writes of agents in the inbox until a person approves them.")
    external_dirs: str = option("", "Folders with more skills, read-only, separated by commas.")
    index_tokens: int = option(1500, "Maximum tokens of the list of skills in the prompt; 0: no list.", 0, 100_000)
    tools: str = option(
        "", "Tools that agents have, separated by commas; empty: unknown, so no skill is hidden for lack of a tool."
    )


@dataclass(frozen=True)
class CuratorSettings:
    """Maintenance of skills."""

    enabled: bool = option(True, "Maintain skills automatically in the background.")
    stale_days: float = option(30.0, "Days without use after which a skill is stale.", 1, 36_500)
    archive_days: float = option(90.0, "Days without use after which a skill is archived.", 1, 36_500)
    origins: str = option(
        "agent", "Skills that may be archived: agent, installed, user, found, separated by commas.", pairs=ORIGINS
    )
    consolidate: bool = option(
        False, "Let the auxiliary model propose one text for near-duplicate skills; a person decides."
    )
    interval_hours: float = 168.0
    """Hours between two runs."""
    min_idle_hours: float = 2.0
    """Hours without a message in any session before a run starts by itself."""
    notice_days: float = 7.0
    """Days for which reports name an unused skill before it is archived."""
    most_archived: int = 10
    """Skills that are archived in one run at most."""
    review_uses: int = 5
    """Outcomes that must be known before failures count."""
    review_rate: float = 0.5
    """Fraction of successes below which a skill needs review."""


@dataclass(frozen=True)
class ChatSettings:
    """The agent in the terminal."""

    max_steps: int = option(50, "Maximum steps with tools in one turn; then the model must answer.", 1, 10_000)
    tool_timeout: float = 120.0
    """Seconds that a tool of an MCP server may take, unless its `timeout` says otherwise."""
    connect_timeout: float = 15.0
    """Seconds that an MCP server may take to start."""
    result_chars: int = 200_000
    """Characters of the result of an MCP server's tool at most."""


@dataclass(frozen=True)
class TelemetrySettings:
    """Reports to OpenTelemetry. Off, nothing of it is loaded."""

    otel: bool = option(False, "Report durations and counts of operations, without any text, to OpenTelemetry.")


@dataclass(frozen=True)
class ReviewSettings:
    """Review of conversations in the background, to learn from them."""

    enabled: bool = option(True, "Review conversations, and keep what the user asks to remember.")
    skill_interval: int = option(
        10, "Review the work after this many steps with tools without a skill written; 0: never.", 0, 100_000
    )
    max_steps: int = 8
    """Steps that one review may take."""
    writes: Literal["apply", "stage"] = option(
        "apply", "Memories found: apply them, or stage them for a person's decision."
    )
    skill_writes: Literal["stage", "apply"] = option(
        "stage", "Skills found: stage them for a person's decision, or apply them."
    )
    at_end: bool = option(True, "Review a session as a whole when it ends.")
    min_turns: int = option(3, "User messages that a session must have for that.", 1, 1000)
    idle_minutes: float = option(60.0, "Minutes of silence that split a long chat; 0: never.", 0, 100_000)
    boundaries: str = option(
        "idle, day, topic", "Events that split a long chat: idle, day, topic; empty: none.", pairs=BOUNDARIES
    )
    deadline: float = option(120.0, "Maximum seconds of one review.", 1, 3600)
    drain: float = option(5.0, "Seconds that closing waits for a running review; the rest is done later.", 0, 600)
    keep_days: float = 90.0
    """Days for which the log keeps reviews that wrote nothing."""


# ── Settings ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Problem:
    """A key that was ignored: unknown (with the nearest known one), not allowed in this file, or wrong (`why`)."""

    key: str
    where: str
    nearest: str | None = None
    forbidden: bool = False
    why: str = ""

    @property
    def pressing(self) -> bool:
        """Return whether every command reports it. A home shared with other software is full of foreign keys."""
        return self.forbidden or self.nearest is not None or bool(self.why)

    def __str__(self) -> str:
        if self.forbidden:
            return f"{self.key} in {self.where} is ignored: a project's file may not set it."
        if self.why:
            return f"{self.key} in {self.where} is ignored: {self.why}."
        if self.nearest == self.key:
            return f"{self.key} in {self.where} is ignored: write it as a section with a key in it."
        ask = f"; did you mean {self.nearest}?" if self.nearest else "."
        return f"{self.key} in {self.where} is not a known key{ask}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured. A field with a dataclass as its factory is a section."""

    home: Path
    profile: str = DEFAULT_PROFILE
    memory: MemorySettings = field(default_factory=MemorySettings)
    providers: ProviderSettings = field(default_factory=ProviderSettings)
    tools: ToolSettings = field(default_factory=ToolSettings)
    store: StoreSettings = field(default_factory=StoreSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    auxiliary: AuxiliarySettings = field(default_factory=AuxiliarySettings)
    spend: SpendSettings = field(default_factory=SpendSettings)
    embedding: EmbeddingSettings = field(default_factory=EmbeddingSettings)
    context: ContextSettings = field(default_factory=ContextSettings)
    prices: PriceSettings = field(default_factory=PriceSettings)
    retention: RetentionSettings = field(default_factory=RetentionSettings)
    search: SearchSettings = field(default_factory=SearchSettings)
    skills: SkillSettings = field(default_factory=SkillSettings)
    curator: CuratorSettings = field(default_factory=CuratorSettings)
    compression: CompressionSettings = field(default_factory=CompressionSettings)
    episodes: EpisodeSettings = field(default_factory=EpisodeSettings)
    review: ReviewSettings = field(default_factory=ReviewSettings)
    chat: ChatSettings = field(default_factory=ChatSettings)
    telemetry: TelemetrySettings = field(default_factory=TelemetrySettings)
    mcp_servers: tuple[McpServer, ...] = ()
    """Servers whose tools `herma chat` may call. Read from the home's own file only: they are programs."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[Problem, ...] = ()

    @property
    def tenant(self) -> str:
        """The owner of the home's rows on a server: each profile of a tenant has its own rows."""
        return self.store.tenant + (f"/{self.profile}" if self.profile != DEFAULT_PROFILE else "")


@functools.cache
def sections() -> Mapping[str, Any]:
    """Return the dataclass of each section."""
    factories = ((item.name, item.default_factory) for item in dataclasses.fields(Settings))
    return {name: made for name, made in factories if isinstance(made, type) and dataclasses.is_dataclass(made)}


@functools.cache
def options() -> Mapping[str, Option]:
    """Return every key, in the order of the dataclasses. Fields made without `option` have fixed values."""
    table: dict[str, Option] = {}
    for section, made in sections().items():
        for item in dataclasses.fields(made):
            if item.metadata:
                default: Any = item.default
                key, kind = f"{section}.{item.name}", str(item.type)
                words = tuple(ast.literal_eval(kind.removeprefix("Literal"))) if kind.startswith("Literal") else ()
                table[key] = Option(key=key, default=default, one_of=words, **item.metadata)
    return MappingProxyType(table)


def get(settings: Settings, key: str) -> Value:
    """Return the value of a dotted key. Raise a ConfigError with the nearest known key for an unknown one."""
    _known(key)
    section, _, name = key.partition(".")
    value: Value = getattr(getattr(settings, section), name)
    return value


def _known(key: str) -> Option:
    found = options().get(key)
    if found is None:
        near = _nearest(key)
        hint = f"Did you mean {near}?" if near and near != key else "`herma config show` lists the known keys."
        raise ConfigError(f"{key} is not a known configuration key.", hint=hint)
    return found


def _nearest(key: str) -> str | None:
    """Return the known key that was probably meant, if one is close enough."""
    section, _, name = key.rpartition(".")
    if section in sections():
        names = [known.partition(".")[2] for known in options() if known.startswith(f"{section}.")]
        near = _near(name, names, 0.7)
        return f"{section}.{near}" if near else None
    if "." in key:
        return _near(key, options(), 0.8)
    by_name = {known.partition(".")[2]: known for known in options()}
    near = _near(key, [*sections(), NAME], 0.75)
    return near or by_name.get(_near(key, [known for known in by_name if "_" in known], 0.85) or "")


def _near(word: str, known: Iterable[str], cutoff: float) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(word, list(known), n=1, cutoff=cutoff)), None)


# ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────


def load(
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    flags: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Settings:
    """Return the settings as they are now. Read two files at most, and create nothing. A flag of `None` is not set."""
    env = os.environ if environ is None else environ
    folder = resolve_home(home, profile, env)
    values: dict[str, Value] = {key: item.default for key, item in options().items()}
    sources = dict.fromkeys(values, "default")
    problems: list[Problem] = []

    def take(found: Mapping[str, Value], source: str | None = None) -> None:
        values.update(found)
        sources.update({key: source or options()[key].variable for key in found})

    home_file, own = folder / HOME_FILE, project_file(cwd, env)
    root = _root(home_file)
    take(_from_file(root, home_file, problems), str(home_file))
    if own is not None:
        take(_from_file(_root(own, project=True), own, problems, project=True), str(own))
    take(_from_environment(env, problems))
    take({key: _value(_known(key), raw, "a flag") for key, raw in flags.items() if raw is not None}, "flag")

    made = {
        name: kind(**{key.partition(".")[2]: values[key] for key in values if key.startswith(f"{name}.")})
        for name, kind in sections().items()
    }
    return Settings(
        home=folder,
        profile=_profile(profile, env) or DEFAULT_PROFILE,
        sources=MappingProxyType(sources),
        mcp_servers=_servers(_find(root, NAME)[1], home_file, problems),
        problems=tuple(problems),
        **made,
    )


def resolve_home(
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """Return the argument, HERMA_HOME, HERMES_HOME, or ~/.herma. A profile has its own home inside that."""
    env = os.environ if environ is None else environ
    for what, given, kinds in (("home", home, (str, os.PathLike)), ("profile", profile, str)):
        if given is not None and not isinstance(given, kinds):
            raise ConfigError(f"{what} must be text, not {type(given).__name__}.", hint="Give a string.")
    text = os.fspath(home) if home is not None else env.get("HERMA_HOME") or env.get("HERMES_HOME") or "~/.herma"
    if not text or "\0" in text:
        raise ConfigError(
            "The home's path is empty." if not text else "The home's path has a zero byte in it.",
            hint="Name a folder with --home or HERMA_HOME, or leave both out for ~/.herma.",
        )
    try:
        folder = _expand(text, env).absolute()
        name = _profile(profile, env)
        if name:
            folder = folder / "profiles" / name
        existing = next((place for place in (folder, *folder.parents) if place.exists()), folder)
        if existing.exists() and not existing.is_dir():
            raise ConfigError(
                f"The home {folder} cannot be a folder: {existing} is a file.", hint="Choose another --home."
            )
    except (OSError, RuntimeError) as exc:
        raise ConfigError(f"The home {text} cannot be used: {exc}.", hint="Choose another --home.") from exc
    return folder


def _expand(text: str, env: Mapping[str, str]) -> Path:
    own = env.get("HOME")
    if own and (text == "~" or text.startswith("~/")):
        return Path(own, text[2:])
    return Path(text).expanduser()


_PROFILE = re.compile(r"(?![.\s])[^/\\:]{1,64}(?<!\s)")


def _profile(profile: str | None, env: Mapping[str, str]) -> str:
    """Return the profile's name, which becomes a folder; "" for none."""
    name = profile if profile is not None else env.get("HERMA_PROFILE") or DEFAULT_PROFILE
    if not _PROFILE.fullmatch(name) or not name.isprintable():
        raise ConfigError(
            f"{name!r} cannot be a profile's name.",
            hint="Use letters, digits, - and _; no slashes, and no dot in front.",
        )
    return "" if name == DEFAULT_PROFILE else name


def project_file(cwd: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """Return the nearest `.herma.yaml`, looking up to the repository's root, the user's own folder or the top."""
    env = os.environ if environ is None else environ
    try:
        start = Path(cwd).absolute() if cwd is not None else Path.cwd()
        own = _expand("~", env)
    except (OSError, RuntimeError):  # the working directory was deleted, or there is no user's folder
        return None
    for folder in (start, *start.parents):
        try:
            if (folder / PROJECT_FILE).is_file():
                return folder / PROJECT_FILE
            if folder == own or (folder / ".git").exists():
                return None
        except OSError:  # a folder that cannot be read has no project file for us
            return None
    return None


def _root(path: Path, *, project: bool = False) -> Node | None:
    text = read(path, PROJECT_BYTES if project else MAX_BYTES)
    return None if text is None else compose(text, path, plain=project)


def _from_file(root: Node | None, path: Path, problems: list[Problem], *, project: bool = False) -> dict[str, Value]:
    found: dict[str, Value] = {}
    items = _items(root)
    for (section, name), item in items.items():
        where = f"{path}, line {item.line}"
        if section == NAME:
            if project and not name:
                problems.append(Problem(NAME, where, forbidden=True))
        elif section not in sections():
            if not name:
                problems.append(Problem(section, where, _nearest(section)))
        elif name:
            _take_key(f"{section}.{name}", item, where, problems, found, project=project)
        elif item.kind == "str" and f"{section}.name" in options() and not project:
            found[f"{section}.name"] = _value_of(options()[f"{section}.name"], item, where)
        elif item.kind not in ("map", "null"):
            raise ConfigError(
                f"{where}: {section} must be a section with keys in it.",
                hint="Remove the line, or put keys below it; `herma config show` lists them.",
            )
    return found


def _take_key(
    key: str, item: Item, where: str, problems: list[Problem], found: dict[str, Value], *, project: bool
) -> None:
    known = options().get(key)
    if key.endswith(".<<"):
        raise ConfigError(f"{where}: merged sections (<<) are not supported.", hint="Write the keys out.")
    if known is None:
        problems.append(Problem(key, where, _nearest(key)))
    elif project and not known.project:
        problems.append(Problem(key, where, forbidden=True))
    elif item.kind != "null":
        found[key] = _value_of(known, item, where)


def _value_of(known: Option, item: Item, where: str) -> Value:
    if item.kind in ("map", "seq", "omap", "set"):
        raise _wrong(known, "a list" if item.kind == "seq" else "a section", where)
    if known.kind is str and item.kind != "str":
        raise _wrong(known, f"{item.text} (put it in quotes)", where)
    return _value(known, item.text, where)


def _from_environment(env: Mapping[str, str], problems: list[Problem]) -> dict[str, Value]:
    by_variable = {item.variable: item for item in options().values()}
    found: dict[str, Value] = {}
    for name, text in sorted(env.items()):
        if not name.startswith("HERMA_") or name in RESERVED_VARIABLES:
            continue
        known = by_variable.get(name)
        if known is None:
            near = _near(name, [*by_variable, *sorted(RESERVED_VARIABLES)], 0.8)
            problems.append(Problem(name, "the environment", near))
        elif text or known.kind is str:  # in a shell, an empty variable means: not set
            found[known.key] = _value(known, text, f"the variable {name}")
    return found


def _value(known: Option, raw: object, where: str) -> Value:
    try:
        return known.read(raw)
    except ValueError as exc:
        raise _wrong(known, repr(raw), where) from exc


def _wrong(known: Option, shown: str, where: str) -> ConfigError:
    shown = shown if len(shown) <= 60 else shown[:59] + "…"
    at = f" in {where}" if where else ""
    return ConfigError(f"{known.key} cannot be {shown}{at}: it must be {known.expected}.", hint=known.doc)
