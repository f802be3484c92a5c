"""Sections and keys as dataclasses; load from file, environment, flags; edit with ruamel round trip."""

from __future__ import annotations

import dataclasses
import functools
import math
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias

from herma.errors import ConfigError, StoreBusy, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator


# ---------- configfile
#
# One configuration file: read with line numbers, edited without touching a byte that was not asked for.
#
# A file is two levels, sections and their keys. Values stay text here; `config.py` knows what they mean.
# An edit replaces, inserts or deletes exactly one span, so that comments, order, quotes and line ends stay the
# user's. The result is read again before it is written: an edit that would change anything else is refused.

Node: TypeAlias = Any  # ruamel's nodes declare none of their attributes
MAX_BYTES = 1 << 20
LOCK_SECONDS = 10.0
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class Item:
    """One value as it stands in the file. `kind` is YAML's: str, int, null, map, seq …"""

    kind: str
    text: str
    line: int = field(compare=False)


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed file: every top-level key, and the keys of those that are sections."""

    top: Mapping[str, Item]
    sections: Mapping[str, Mapping[str, Item]]


# ── reading ─────────────────────────────────────────────────────────────────────────────────────────────────


def read(path: Path) -> str | None:
    """The file's text, a byte-order mark included; `None` when there is no such file."""
    try:
        if not path.exists():
            return None
        if not path.is_file():
            raise ConfigError(f"{path} is not a file.", hint="Move it away, or make it a YAML file.")
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except OSError as exc:
        raise ConfigError(
            f"{path} cannot be read: {exc.strerror or exc}.",
            hint="Check the permissions of the file and of its folder.",
        ) from exc
    if len(data) > MAX_BYTES:
        raise ConfigError(f"{path} is larger than {MAX_BYTES >> 20} MiB, which no configuration needs.")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as exc:
        line = data.count(b"\n", 0, exc.start) + 1
        raise ConfigError(f"{path}, line {line}, is not UTF-8 text.", hint="Save the file as UTF-8.") from exc


def parse(text: str, path: Path) -> Document:
    """Check the whole text and list its keys. Errors name the file and the line."""
    root = compose(text, path)
    if root is None:
        return Document({}, {})
    top: dict[str, Item] = {}
    sections: dict[str, dict[str, Item]] = {}
    for key, node in root.value:
        top[key.value] = _item(key, node)
        if node.id == "mapping":
            sections[key.value] = {inner.value: _item(inner, value) for inner, value in node.value}
    return Document(top, sections)


def _item(key: Node, node: Node) -> Item:
    return Item(
        kind=str(node.tag).rpartition(":")[2].rpartition("!")[2],
        text=node.value if node.id == "scalar" else "",
        line=key.start_mark.line + 1,
    )


def compose(text: str, path: Path) -> Node | None:
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        root = YAML(typ="safe", pure=True).compose(text.removeprefix(_BOM))
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
    if root is None or (root.id == "scalar" and str(root.tag).endswith(":null")):
        return None
    if root.id != "mapping":
        found = "a list" if root.id == "sequence" else "a single value"
        raise ConfigError(f"{path} holds {found}; sections of keys are expected.", hint="For example: memory:")
    _check_keys(root, path)
    return root


def _broken(path: Path, at: str, problem: str, cause: Exception) -> NoReturn:
    raise ConfigError(f"{path}{at} is not valid YAML: {problem}.", hint="Correct the file and try again.") from cause


def _check_keys(root: Node, path: Path) -> None:
    """Refuse a key that stands twice in one mapping, however deep: one of the two would be lost silently."""
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
            line = key.start_mark.line + 1
            if key.id != "scalar":
                raise ConfigError(f"{path}, line {line}: a key's name must be plain text.")
            if key.value in lines and key.value != "<<":
                raise ConfigError(
                    f"{path}, line {line}: the key {key.value!r} is already on line {lines[key.value]}.",
                    hint="Keep one of the two.",
                )
            lines[key.value] = line


# ── editing ─────────────────────────────────────────────────────────────────────────────────────────────────


def with_value(text: str, path: Path, section: str, key: str, value: str | float) -> str:
    """The text with `section.key` set to `value`, and nothing else changed."""
    body = text.removeprefix(_BOM)
    root = compose(body, path)
    header, node = _find(root, section)
    if header is not None and node is not None and _item(header, node).kind not in ("map", "null"):
        line = header.start_mark.line + 1
        raise ConfigError(
            f"{path}, line {line}: {section} is not a section, so {key} has no place in it.",
            hint="Put the line right in an editor; the file was left as it is.",
        )
    plain = value if isinstance(value, str) else _yaml(value)
    try:
        edited = _set(body, root, section, key, _yaml(value))
        return text[: len(text) - len(body)] + _checked(body, edited, path, section, key, plain)
    except _ElsewhereError as exc:
        raise _refusal(path, section, key) from exc


def without_value(text: str, path: Path, section: str, key: str) -> str:
    """The text without `section.key`; unchanged when it is not there."""
    body = text.removeprefix(_BOM)
    header, node = _find(compose(body, path), section)
    if header is None or node is None or node.id != "mapping" or _find(node, key)[0] is None:
        return text
    try:
        _span(body, header, node)
        edited = _unset(body, node, key)
        return text[: len(text) - len(body)] + _checked(body, edited, path, section, key, None)
    except _ElsewhereError as exc:
        raise _refusal(path, section, key) from exc


class _ElsewhereError(Exception):
    """A value is an alias: what would be edited stands in another place, and counts there too."""


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


def _unset(text: str, section: Node, key: str) -> str:
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


def _yaml(value: str | float) -> str:
    """A scalar as YAML. Text is always quoted: a bare `1` or `~` would come back as something else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if not isinstance(value, str):
        return repr(value)
    return '"' + "".join(_quoted(character) for character in value) + '"'


def _quoted(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    return character if character.isprintable() else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _find(mapping: Node | None, name: str) -> tuple[Node, Node] | tuple[None, None]:
    pairs = mapping.value if mapping is not None else ()
    return next(((key, node) for key, node in pairs if key.value == name), (None, None))


def _span(text: str, key: Node, node: Node) -> tuple[int, int]:
    """Where the value of `key` stands. Nothing at all stands right behind the colon."""
    if node.start_mark.index < key.end_mark.index:
        raise _ElsewhereError
    if node.start_mark.index == node.end_mark.index:
        behind = text.index(":", key.end_mark.index) + 1
        return behind, behind
    return node.start_mark.index, node.end_mark.index


def _line_end(text: str, start: int) -> int:
    at = text.find("\n", start)
    if at < 0:
        return len(text)
    return at - 1 if at > start and text[at - 1] == "\r" else at


def _append_section(text: str, root: Node | None, section: str, pair: str, end: str) -> str:
    if root is not None and root.flow_style:
        at = root.start_mark.index + 1
        return f"{text[:at]}{section}: {{{pair}}}{', ' if root.value else ''}{text[at:]}"
    indent = " " * root.value[0][0].start_mark.column if root is not None else ""
    if text and not text.endswith("\n"):
        text += end
    return f"{text}{indent}{section}:{end}{indent}  {pair}{end}"


def _insert_pair(text: str, section: Node, pair: str, end: str) -> str:
    """Behind the section's last plain value: before the first key it would part that key from its comment."""
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


def _checked(before: str, after: str, path: Path, section: str, key: str, value: str | None) -> str:
    """`after`, once it is certain that it has the new value (`None`: none) and differs in nothing else."""
    try:
        old, new = _flat(before, path), _flat(after, path)
    except ConfigError as exc:
        raise _refusal(path, section, key) from exc
    item = new.pop((section, key), None)
    old.pop((section, key), None)
    new.pop((section, ""), None)
    old.pop((section, ""), None)
    if (item.text if item is not None else None) != value or old != new:
        raise _refusal(path, section, key)
    return after


def _flat(text: str, path: Path) -> dict[tuple[str, str], Item]:
    document = parse(text, path)
    flat = {(section, key): item for section, keys in document.sections.items() for key, item in keys.items()}
    return flat | {(name, ""): item for name, item in document.top.items()}


def _refusal(path: Path, section: str, key: str) -> ConfigError:
    return ConfigError(
        f"{path} is written in a way that {section}.{key} cannot be changed automatically.",
        hint="Change the key in an editor; the file was left as it is.",
    )


# ── writing ─────────────────────────────────────────────────────────────────────────────────────────────────


def edit(path: Path, change: Callable[[str], str]) -> bool:
    """Rewrite the file through `change`; → whether anything changed. A missing file counts as empty."""
    target = Path(os.path.realpath(path))
    try:
        _make_private(target.parent)
        with _only_editor(target.parent):
            before = read(target)
            after = change(before or "")
            if after == (before or ""):
                return False
            _replace(target, after)
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be written: {exc.strerror or exc}.",
            hint="Check free space, and the permissions of the file and of its folder.",
        ) from exc
    return True


def _make_private(folder: Path) -> None:
    """The folder and those above it that are missing; `parents=True` would let others into the latter."""
    for each in reversed([each for each in (folder, *folder.parents) if not each.exists()]):
        each.mkdir(exist_ok=True, mode=0o700)


@contextmanager
def _only_editor(folder: Path) -> Iterator[None]:
    """Hold the folder itself: no editor loses another's change, and no lock file is left behind."""
    if sys.platform == "win32":
        yield
        return
    import fcntl

    handle = os.open(folder, os.O_RDONLY)
    try:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > deadline:
                raise StoreBusy(f"Another process is changing the configuration in {folder}.", hint="Try again.")
            time.sleep(0.02)
        yield
    finally:
        os.close(handle)


def _replace(target: Path, text: str) -> None:
    """Atomically and durably; a new file is private, an old one keeps its mode."""
    import tempfile

    handle, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as stream:
            if target.exists():
                os.chmod(name, stat.S_IMODE(target.stat().st_mode))  # noqa: PTH101 (the name is what mkstemp gave)
            stream.write(text.encode("utf-8"))
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(name, target)  # noqa: PTH105
    except BaseException:
        with suppress(OSError):
            os.unlink(name)  # noqa: PTH108
        raise
    if sys.platform != "win32":
        folder = os.open(target.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


# ---------- configkey
#
# One known configuration key: what it means, and which values it takes.

Value: TypeAlias = bool | int | float | str
TRUE_WORDS = frozenset({"on", "true", "yes", "1", "approve", "enabled"})
FALSE_WORDS = frozenset({"off", "false", "no", "0", "disabled"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
_NOT_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a key takes whose value is a list of names, each with a number: `cron=30, subagent=7`."""

    what: str
    most: float
    mark: str = ""
    """What may stand behind a number, which then counts something else."""

    def read(self, text: str) -> list[tuple[str, float, bool]]:
        """Each name with its number, and whether the mark stood behind it. ValueError with the first that is none."""
        found = []
        for row in filter(None, map(str.strip, text.split(","))):
            name, _, number = (part.strip() for part in row.partition("="))
            bare = number.removesuffix(self.mark)
            if not name or not _NUMBER.fullmatch(bare) or not 0 <= float(bare) <= self.most:
                raise ValueError(row)
            found.append((name, float(bare), bare != number))
        return found


BY_SOURCE = Amounts("sources, each with its days (at most 36500), as in: cron=30, subagent=7", 36_500)
BY_PURPOSE = Amounts("purposes, each with its limit, as in: review=0.10, tidy=50000t (dollars, tokens)", 10**15, "t")


def option(
    default: Value,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[str, ...] = (),
    amounts: Amounts | None = None,
    project: bool = False,
) -> Any:
    """A field of a section: what it means, its range or the words it takes, and whether a project's file may set it."""
    takes = {"low": low, "high": high, "one_of": one_of, "amounts": amounts}
    return field(default=default, metadata={"doc": doc, **takes, "project": project})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A key with its default, which also gives its type, and the `option` that declared it."""

    key: str
    default: Value
    doc: str
    low: float | None
    high: float | None
    one_of: tuple[str, ...] = ()
    amounts: Amounts | None = None
    project: bool

    @property
    def kind(self) -> type:
        return type(self.default)

    @property
    def variable(self) -> str:
        return "HERMA_" + self.key.upper().replace(".", "_")

    @property
    def expected(self) -> str:
        if self.kind is bool:
            return "true or false"
        if self.one_of:
            return "one of " + ", ".join(word or "(empty)" for word in self.one_of)
        if self.amounts:
            return self.amounts.what
        if self.kind is str:
            return "one line of text"
        what = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{what}, {self.low} or more"
        return what if self.high is None else f"{what}, {self.high} or less"

    def read(self, raw: object) -> Value:
        """The value that `raw` stands for, text being read as a person writes it; ValueError for none."""
        value = self._from_text(raw) if isinstance(raw, str) else raw
        if self.kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, bool | int | float | str) or type(value) is not self.kind:
            raise ValueError(f"not {self.expected}")
        if isinstance(value, int | float) and not self._fits(value):
            raise ValueError(f"not {self.expected}")
        return value

    def _fits(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _chosen(self, word: str) -> str:
        if word not in self.one_of:
            raise ValueError(f"not {self.expected}")
        return word

    def _from_text(self, text: str) -> Value:
        word = text.strip()
        if self.one_of:
            return self._chosen(word.lower())
        if self.amounts:
            self.amounts.read(text)
        if self.kind is str and not _NOT_A_LINE.search(text):
            return text
        if self.kind is bool and word.lower() in TRUE_WORDS | FALSE_WORDS:
            return word.lower() in TRUE_WORDS
        if self.kind is int and _WHOLE.fullmatch(word):
            return int(word)
        if self.kind is float and _NUMBER.fullmatch(word):
            return float(word)
        raise ValueError(f"not {self.expected}")


# ---------- configservers
#
# The section `mcp_servers` of the configuration: names, and below each how a server of tools is reached.
#
# The only section with more than two levels. What is wrong with one server costs that server and is told; the others,
# and everything else, go on. The file may be shared with other software, so nothing in it is a reason to refuse to
# start.

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
    text = read(path)
    if text is None or NAME not in text:
        return ()
    root = compose(text, path)
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


# ---------- settings
#
# The sections of the configuration: each field is a key, with its default, its range and what it means.
#
# `config` loads them; the reference page, `herma config` and the environment's variables derive from them.


@dataclass(frozen=True, slots=True)
class MemorySettings:
    """Curated memory."""

    memory_enabled: bool = option(True, "Show the agent's notes (MEMORY.md) to the model.", project=True)
    user_profile_enabled: bool = option(True, "Show the user profile (USER.md) to the model.", project=True)
    memory_char_limit: int = option(2200, "Characters that MEMORY.md may hold.", low=1, high=1_000_000, project=True)
    user_char_limit: int = option(1375, "Characters that USER.md may hold.", low=1, high=1_000_000, project=True)
    provider: str = option("", "External memory that takes part in sessions; empty means none.")
    nudge_interval: int = option(
        10,
        "Turns of the user without a memory saved after which the conversation is looked back at; 0: never.",
        low=0,
        high=100_000,
        project=True,
    )
    write_approval: bool = option(False, "Hold memory writes in the inbox until a person approves them.")
    live_updates: bool = option(True, "Tell a running session about changes made to memory elsewhere.", project=True)
    inbox_days: int = option(30, "Days that an undecided write waits in the inbox.", low=1, high=36_500)
    lock_timeout: float = option(10.0, "Seconds to wait for another process that holds a file.", low=0, high=3600)
    tidy: Literal["apply", "propose", "off"] = option(
        "apply",
        "What tidying by itself may do: apply what is certain, propose (a person decides), or off.",
        one_of=("apply", "propose", "off"),
    )
    tidy_days: float = option(
        7.0, "Days after which a file is tidied although it is not full; 0: only when it is.", low=0, high=36_500
    )
    tail_recall: int = option(3, "Entries of the long tail that one turn may recall; 0: none.", low=0, high=20)
    tail_uses: int = option(
        3, "Conversations that must recall an entry before it is proposed for the prompt; 0: never.", low=0, high=1000
    )


@dataclass(frozen=True, slots=True)
class ProviderSettings:
    """How long an external memory may take, and when it is left out."""

    timeout: float = option(8.0, "Seconds that a session waits for it to begin and to recall.", low=0.05, high=600)
    tool_timeout: float = option(60.0, "Seconds that one of its tools may take.", low=0.05, high=3600)
    drain: float = option(
        5.0, "Seconds that the end of a session waits for what it has yet to take in.", low=0, high=600
    )
    failures: int = option(5, "Failures in a row after which it is left out for a while.", low=1, high=1000)
    pause: float = option(120.0, "Seconds that it is then left out.", low=0, high=86_400)


@dataclass(frozen=True, slots=True)
class StoreSettings:
    """Where things are kept."""

    url: str = option("", "Database address; empty means SQLite in the home.")


@dataclass(frozen=True, slots=True)
class ModelSettings:
    """The model that sessions talk to."""

    name: str = option("", "The model of sessions that do not name one: its window, its tokenizer.")
    url: str = option(
        "",
        "Where it is asked: an address, or openai, anthropic, openrouter, ollama, llama.cpp, vllm; empty: nowhere.",
    )
    kind: Literal["", "openai", "anthropic"] = option(
        "", "How it is spoken with: openai or anthropic; empty: by the address.", one_of=("", "openai", "anthropic")
    )
    api_key_env: str = option(
        "", "The variable that holds its key, in the environment or in the home's .env; empty: the place's usual one."
    )
    timeout: float = option(600.0, "Seconds that a call may take in all.", low=1, high=86_400)
    idle_timeout: float = option(120.0, "Seconds of silence in the middle of an answer.", low=1, high=86_400)
    retries: int = option(3, "How often it is asked again after a failure that may pass.", low=0, high=20)
    max_tokens: int = option(0, "Tokens of an answer at most; 0: as many as the model gives.", low=0, high=10_000_000)
    stream: bool = option(True, "Take answers piece by piece, as they come.")


@dataclass(frozen=True, slots=True)
class AuxiliarySettings:
    """The model for background work. What is empty here is as with the main model."""

    name: str = option("", "A smaller model, perhaps; empty: model.name.")
    url: str = option("", "Where it is asked, as in model.url; empty: where the main one is, with its kind and key.")
    kind: Literal["", "openai", "anthropic"] = option(
        "", "With a url of its own: openai or anthropic; empty: by the address.", one_of=("", "openai", "anthropic")
    )
    api_key_env: str = option("", "With a url of its own: the variable that holds its key.")
    timeout: float = option(0.0, "Seconds that a call may take in all; 0: model.timeout.", low=0, high=86_400)


@dataclass(frozen=True, slots=True)
class SpendSettings:
    """What background work may spend on models, per day."""

    daily_usd: float = option(
        0.5, "US dollars per day, where prices are known; 0: no background work.", low=0, high=1_000_000
    )
    daily_tokens: int = option(
        1_000_000, "Tokens per day, sent and received; 0: no background work.", low=0, high=10**15
    )
    by_purpose: str = option("", "Limits of single purposes per day, within those for all.", amounts=BY_PURPOSE)


@dataclass(frozen=True, slots=True)
class EmbeddingSettings:
    """The model that finds by meaning what words do not find."""

    model: str = option(
        "auto", "auto (e5-small where it is installed), none, e5-small, a folder with a model in it, or endpoint."
    )
    threads: int = option(0, "Processors that a local model may use; 0: all, up to 8.", low=0, high=1024)
    url: str = option("", "For endpoint: the base of its address, as in https://host/v1.")
    endpoint_model: str = option("", "For endpoint: the name of its model.")
    api_key_env: str = option(
        "", "For endpoint: the variable that holds the key, as model.api_key_env; empty: no key is sent."
    )
    dimensions: int = option(0, "For endpoint: numbers per vector to ask for; 0: the model's own.", low=0, high=65_536)
    batch: int = option(64, "For endpoint: texts per request.", low=1, high=2048)
    timeout: float = option(
        30.0, "For endpoint: seconds that one request may take, with its repetitions.", low=0.05, high=3600
    )
    query_prefix: str = option("", "For endpoint: what its model wants before a question.")
    passage_prefix: str = option("", "For endpoint: what its model wants before a text.")
    multilingual: bool = option(True, "For endpoint: whether its model understands more than English.")


@dataclass(frozen=True, slots=True)
class ContextSettings:
    """The model's window, and who may take how much of it."""

    window: int = option(0, "Tokens that fit into the model's window; 0 means: by its name.", low=0, high=100_000_000)
    engine: str = option(
        "compressor", "What shortens a conversation: compressor, or a class of yours as in package.module:Class."
    )
    profile: Literal["default", "coding", "chat"] = option(
        "default", "How the window is divided: default, coding or chat.", one_of=("default", "coding", "chat")
    )
    tool_result_tokens: int = option(
        500, "Tokens of one tool result that the model is sent; the transcript keeps all.", low=20, high=1_000_000
    )
    system_share: float = option(0.0, "Per cent for the system prompt; 0: as the profile says.", low=0, high=100)
    memory_share: float = option(0.0, "Per cent for injected memory; 0: as the profile says.", low=0, high=100)
    conversation_share: float = option(0.0, "Per cent for what was said; 0: as the profile says.", low=0, high=100)
    results_share: float = option(0.0, "Per cent for tool results; 0: as the profile says.", low=0, high=100)
    reply_share: float = option(0.0, "Per cent kept free for the reply; 0: as the profile says.", low=0, high=100)


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """What the model's tokens cost, and how its cache charges."""

    input: float = option(0.0, "US dollars per million input tokens; 0 means unknown.", low=0, high=1_000_000)
    output: float = option(0.0, "US dollars per million output tokens; 0 means unknown.", low=0, high=1_000_000)
    by_model: str = option("", "Input and output prices by model, as in: claude-opus=15/75, gpt-4o=2.5/10.")
    cache_read: float = option(0.1, "Price of reading from the cache, times the input price.", low=0, high=100)
    cache_write: float = option(1.25, "Price of writing to the cache, times the input price.", low=0, high=100)
    cache_minutes: int = option(5, "Minutes that the cache keeps what nobody uses: 5, or 60.", low=1, high=1440)


@dataclass(frozen=True, slots=True)
class RetentionSettings:
    """How long transcripts are kept."""

    days: float = option(
        0.0, "Days without activity after which a conversation is deleted; 0: never.", low=0, high=36_500
    )
    by_source: str = option(
        "", "The same for single sources; 0: never. Those that are not named go by retention.days.", amounts=BY_SOURCE
    )
    grace_days: float = option(7.0, "Days in which a deletion can be undone.", low=0, high=36_500)


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Search over past sessions."""

    mode: Literal["hybrid", "words", "vectors"] = option(
        "hybrid",
        "hybrid (by words and by meaning), words or vectors; without a model, by words.",
        one_of=("hybrid", "words", "vectors"),
    )
    model_wait: float = option(
        1.0, "Seconds that a search waits for its question to be embedded, and for a reranker.", low=0.01, high=60
    )
    common_cap: int = option(20_000, "How many matches of very common words are ranked.", low=100, high=100_000_000)
    prefetch: bool = option(True, "Look into past conversations before each turn, and tell the model what helps.")
    prefetch_ms: int = option(150, "Milliseconds that this may take; what is late is left out.", low=1, high=10_000)


@dataclass(frozen=True, slots=True)
class EpisodeSettings:
    """What was done before, conversation by conversation."""

    max: int = option(
        10_000, "Episodes that are kept at hand; the least valuable go to the archive.", low=10, high=10_000_000
    )
    shown: int = option(2, "Episodes that the prompt of a new session shows at most; 0: none.", low=0, high=10)


@dataclass(frozen=True, slots=True)
class CompressionSettings:
    """What happens when the model's window fills."""

    enabled: bool = option(True, "Shorten a conversation by itself when it fills the window.")
    threshold: float = option(0.75, "Part of the window from which on a conversation is shortened.", low=0.1, high=0.98)
    tail: float = option(0.3, "Part of the threshold that stays as it is at the end.", low=0.05, high=0.8)
    protect_first: int = option(2, "Messages that stay as they are at the beginning.", low=0, high=1000)
    in_place: bool = option(False, "Keep the session's id instead of going on in a new session.")
    on_failure: Literal["extract", "abort"] = option(
        "extract", "When no model can summarise: extract (own words of the talk) or abort.", one_of=("extract", "abort")
    )
    deadline: float = option(90.0, "Seconds that a summary by a model may take.", low=1, high=3600)


@dataclass(frozen=True, slots=True)
class SkillSettings:
    """Written procedures that agents follow and improve."""

    write_approval: bool = option(False, "Hold writes of agents to skills in the inbox until a person approves them.")
    external_dirs: str = option("", "Folders with more skills, which are only read, separated by commas.")
    index_tokens: int = option(
        1500, "Tokens that the list of skills in the prompt may take; 0: no list.", low=0, high=100_000
    )
    tools: str = option(
        "",
        "The tools that agents have, separated by commas; empty: unknown, and no skill is held back for want of one.",
    )


@dataclass(frozen=True, slots=True)
class CuratorSettings:
    """How skills are kept in shape."""

    enabled: bool = option(True, "Look after skills by itself, in the background, when that is due.")
    interval_hours: float = option(168.0, "Hours from one run to the next.", low=1, high=100_000)
    min_idle_hours: float = option(
        2.0, "Hours without a word before a run begins by itself; at the end of a session, in others.", low=0, high=1000
    )
    stale_days: float = option(30.0, "Days without use after which a skill is stale.", low=1, high=36_500)
    archive_days: float = option(90.0, "Days without use after which it goes to the archive.", low=1, high=36_500)
    notice_days: float = option(
        7.0, "Days for which reports name a skill as unused, at least, before it goes.", low=0, high=36_500
    )
    most_archived: int = option(10, "Skills that go to the archive in one interval at most.", low=0, high=100_000)
    origins: str = option(
        "agent", "Whose skills may become stale and go: agent, installed, user, found, separated by commas."
    )
    review_uses: int = option(5, "Outcomes that must be known before failures count.", low=1, high=1_000_000)
    review_rate: float = option(0.5, "Part of successes below which a skill needs review.", low=0, high=1)
    keep_snapshots: int = option(5, "Snapshots of all skills that are kept.", low=1, high=1000)
    consolidate: bool = option(
        False, "Let the auxiliary model propose one text for skills that nearly repeat each other; a person decides."
    )


@dataclass(frozen=True, slots=True)
class ChatSettings:
    """The agent in the terminal."""

    max_steps: int = option(
        50, "Steps with tools in one turn at most; then the model has to answer.", low=1, high=10_000
    )
    markdown: bool = option(True, "Show answers as formatted text on a terminal.")
    tool_timeout: float = option(120.0, "Seconds that a tool of an MCP server may take.", low=0.1, high=86_400)
    connect_timeout: float = option(15.0, "Seconds that an MCP server may take to begin.", low=0.1, high=3600)
    result_chars: int = option(
        200_000, "Characters that the result of one tool of an MCP server may have.", low=100, high=10_000_000
    )


@dataclass(frozen=True, slots=True)
class ReviewSettings:
    """Looking back at conversations in the background, to learn from them."""

    enabled: bool = option(True, "Look back at conversations, and keep what the user asks to be remembered.")
    skill_interval: int = option(
        10,
        "Steps with tools without a skill written after which the work is looked back at; 0: never.",
        low=0,
        high=100_000,
    )
    max_steps: int = option(8, "Steps that one look back may take.", low=1, high=100)
    writes: Literal["apply", "stage"] = option(
        "apply", "What becomes of memories found: apply, or stage (they wait for a person).", one_of=("apply", "stage")
    )
    skill_writes: Literal["stage", "apply"] = option(
        "stage", "What becomes of skills found: stage (they wait for a person), or apply.", one_of=("stage", "apply")
    )
    at_end: bool = option(True, "Look back at a session as a whole when it ends.")
    min_turns: int = option(
        3, "Turns of the user that a session, or a piece of one, must have for that.", low=1, high=1000
    )
    idle_minutes: float = option(
        60.0,
        "Minutes of silence after which a piece of an endless chat is taken to have ended; 0: never.",
        low=0,
        high=100_000,
    )
    boundaries: str = option("idle, day, topic", "What divides an endless chat: idle, day, topic; empty: nothing.")
    deadline: float = option(120.0, "Seconds that one look back may take.", low=1, high=3600)
    drain: float = option(
        5.0, "Seconds that closing waits for one; what is not done then is made up for later.", low=0, high=600
    )
    keep_days: float = option(
        90.0,
        "Days for which the log keeps those that wrote nothing; 0: always. Those that wrote can always be undone.",
        low=0,
        high=36_500,
    )


# ---------- config
#
# Configuration: defaults, the home's file, a project's file, the environment and flags make one `Settings`.
#
# A later source wins over an earlier one, key by key, and `Settings.sources` remembers which one it was.
# A section is one dataclass in `settings` and one line in `Settings`; the table of known keys, validation,
# `herma config` and the reference page derive from the fields. A project's file comes with somebody's
# repository, so it may set only what is marked `project=True`.

HOME_FILE = "config.yaml"
PROJECT_FILE = ".herma.yaml"
DEFAULT_PROFILE = "default"
RESERVED_VARIABLES = frozenset({"HERMA_HOME", "HERMA_PROFILE", "HERMA_SESSION", "HERMA_MODELS", "HERMA_DEBUG"})


@dataclass(frozen=True, slots=True)
class Problem:
    """A key that was ignored: unknown (with the nearest known one), or not allowed where it stands."""

    key: str
    where: str
    nearest: str | None = None
    forbidden: bool = False
    why: str = ""

    @property
    def pressing(self) -> bool:
        """Whether to say it at every command. A home shared with other software is full of foreign keys."""
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
    mcp_servers: tuple[McpServer, ...] = ()
    """Servers whose tools the agent in the terminal may call. Of the home's own file only: they are programs."""
    sources: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    problems: tuple[Problem, ...] = ()


# ── the table of known keys ─────────────────────────────────────────────────────────────────────────────────


@functools.cache
def sections() -> Mapping[str, Any]:
    """Section name → its dataclass."""
    factories = ((item.name, item.default_factory) for item in dataclasses.fields(Settings))
    return {name: made for name, made in factories if isinstance(made, type) and dataclasses.is_dataclass(made)}


@functools.cache
def options() -> Mapping[str, Option]:
    """Dotted key → what is known about it, in the order of the dataclasses."""
    table: dict[str, Option] = {}
    for section, made in sections().items():
        for item in dataclasses.fields(made):
            default: Any = item.default
            key = f"{section}.{item.name}"
            table[key] = Option(key=key, default=default, **item.metadata)
    return MappingProxyType(table)


def known_keys() -> tuple[str, ...]:
    return tuple(options())


def get(settings: Settings, key: str) -> Value:
    """The value of a dotted key; an unknown one is a ConfigError with the nearest known one."""
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
    """The known key that was probably meant, if one is close enough."""
    from difflib import get_close_matches

    section, _, name = key.rpartition(".")
    if section in sections():
        names = [known.partition(".")[2] for known in options() if known.startswith(f"{section}.")]
        near = get_close_matches(name, names, n=1, cutoff=0.7)
        return f"{section}.{near[0]}" if near else None
    by_name = {known.partition(".")[2]: known for known in options()}
    if "." not in key:
        near = get_close_matches(key, [*sections(), NAME], n=1, cutoff=0.75)
        if near:
            return near[0]
        near = get_close_matches(key, [known for known in by_name if "_" in known], n=1, cutoff=0.85)
        return by_name[near[0]] if near else None
    near = get_close_matches(key, options(), n=1, cutoff=0.8)
    return near[0] if near else None


# ── loading ─────────────────────────────────────────────────────────────────────────────────────────────────


def load(
    *,
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    flags: Mapping[str, object] = MappingProxyType({}),
    environ: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
) -> Settings:
    """Settings as they hold now. Reads two files at most, creates nothing. A flag of `None` was not given."""
    env = os.environ if environ is None else environ
    folder = resolve_home(home, profile, env)
    values: dict[str, Value] = {key: item.default for key, item in options().items()}
    sources = dict.fromkeys(values, "default")
    problems: list[Problem] = []

    def take(found: Mapping[str, Value], source: str | None = None) -> None:
        values.update(found)
        sources.update({key: source or options()[key].variable for key in found})

    home_file, own = folder / HOME_FILE, project_file(cwd, env)
    take(_from_file(home_file, problems), str(home_file))
    if own is not None:
        take(_from_file(own, problems, project=True), str(own))
    take(_from_environment(env, problems))
    take({key: _value(_known(key), raw, "a flag") for key, raw in flags.items() if raw is not None}, "flag")

    made = {
        name: kind(**{item.name: values[f"{name}.{item.name}"] for item in dataclasses.fields(kind)})
        for name, kind in sections().items()
    }
    return Settings(
        home=folder,
        profile=_profile(profile, env) or DEFAULT_PROFILE,
        sources=MappingProxyType(sources),
        mcp_servers=_servers(home_file, problems),
        problems=tuple(problems),
        **made,
    )


def resolve_home(
    home: str | os.PathLike[str] | None = None,
    profile: str | None = None,
    environ: Mapping[str, str] | None = None,
) -> Path:
    """The argument, HERMA_HOME, HERMES_HOME, else ~/.herma; a profile has a home of its own inside that."""
    env = os.environ if environ is None else environ
    for what, given, kinds in (("home", home, (str, os.PathLike)), ("profile", profile, str)):
        if given is not None and not isinstance(given, kinds):
            raise ConfigError(f"The {what} is named by text, not by {type(given).__name__}.", hint="Give a string.")
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


def _profile(profile: str | None, env: Mapping[str, str]) -> str:
    """The profile's name; "" for none. The name becomes a folder, so it must be one."""
    name = profile if profile is not None else env.get("HERMA_PROFILE") or DEFAULT_PROFILE
    if (
        not name
        or name.startswith(".")
        or name != name.strip()
        or len(name) > 64
        or not name.isprintable()
        or any(mark in name for mark in ("/", "\\", ":"))
    ):
        raise ConfigError(
            f"{name!r} cannot be a profile's name.",
            hint="Use letters, digits, - and _; no slashes, and no dot in front.",
        )
    return "" if name == DEFAULT_PROFILE else name


def project_file(cwd: str | os.PathLike[str] | None = None, environ: Mapping[str, str] | None = None) -> Path | None:
    """The nearest `.herma.yaml`, looking up to the repository's root, the user's own folder or the top."""
    env = os.environ if environ is None else environ
    try:
        start = Path(cwd).absolute() if cwd is not None else Path.cwd()
        own = _expand("~", env)
    except (OSError, RuntimeError):  # the working directory was deleted, or nobody's folder is known
        return None
    for folder in (start, *start.parents):
        try:
            if (folder / PROJECT_FILE).is_file():
                return folder / PROJECT_FILE
            if folder == own or (folder / ".git").exists():
                return None
        except OSError:  # a folder that may not be looked into has no project file for us
            return None
    return None


def _from_file(path: Path, problems: list[Problem], *, project: bool = False) -> dict[str, Value]:
    text = read(path)
    if text is None:
        return {}
    document = parse(text, path)
    found: dict[str, Value] = {}
    for name, top in document.top.items():
        if name == NAME:
            if project:
                problems.append(Problem(name, f"{path}, line {top.line}", forbidden=True))
        elif name not in sections():
            problems.append(Problem(name, f"{path}, line {top.line}", _nearest(name)))
        elif name not in document.sections and top.kind == "str" and f"{name}.name" in options() and not project:
            found[f"{name}.name"] = _value_of(options()[f"{name}.name"], top, f"{path}, line {top.line}")
        elif name not in document.sections and top.kind != "null":
            raise ConfigError(
                f"{path}, line {top.line}: {name} must be a section with keys in it.",
                hint="Take the line out, or put keys below it; `herma config show` says which there are.",
            )
        for inner, item in document.sections.get(name, {}).items() if name in sections() else ():
            key, where = f"{name}.{inner}", f"{path}, line {item.line}"
            known = options().get(key)
            if inner == "<<":
                raise ConfigError(f"{where}: merged sections (<<) are not supported.", hint="Write the keys out.")
            if known is None:
                problems.append(Problem(key, where, _nearest(key)))
            elif project and not known.project:
                problems.append(Problem(key, where, forbidden=True))
            elif item.kind != "null":
                found[key] = _value_of(known, item, where)
    return found


def _servers(path: Path, problems: list[Problem]) -> tuple[McpServer, ...]:
    def complain(key: str, line: int, why: str, nearest: str | None) -> None:
        problems.append(Problem(key, f"{path}, line {line}", nearest, why=why))

    return read_servers(path, complain)


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
            from difflib import get_close_matches

            near = get_close_matches(name, [*by_variable, *sorted(RESERVED_VARIABLES)], n=1, cutoff=0.8)
            problems.append(Problem(name, "the environment", near[0] if near else None))
        elif text or known.kind is str:  # an empty variable is the shell's way to say "not set"
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


# ── changing the file ───────────────────────────────────────────────────────────────────────────────────────


def set_value(path: Path, key: str, text: str) -> None:
    """Write one key into a configuration file, after checking it; comments, order and mode stay."""
    known = _known(key)
    value = _value(known, text, "")
    section, _, name = key.partition(".")
    edit(path, lambda old: with_value(old, path, section, name, value))


def unset_value(path: Path, key: str) -> bool:
    """Take one key out of a configuration file; → whether it was there."""
    _known(key)
    section, _, name = key.partition(".")
    return path.exists() and edit(path, lambda old: without_value(old, path, section, name))
