"""One configuration file: read with line numbers, edited without touching a byte that was not asked for.

A file is two levels, sections and their keys. Values stay text here; `config.py` knows what they mean.
An edit replaces, inserts or deletes exactly one span, so that comments, order, quotes and line ends stay the
user's. The result is read again before it is written: an edit that would change anything else is refused.
"""

from __future__ import annotations

import os
import stat
import sys
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from herma.errors import ConfigError, StoreBusy, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

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
