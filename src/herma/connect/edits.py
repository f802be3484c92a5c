"""Change one place in a configuration file and keep every other byte: JSON with comments, TOML, YAML.

    put(text, "json", ("mcpServers", "herma"), {...})       a value in nested objects
    put_item(text, "json", ("hooks", "Stop"), {...}, is_ours)   an item in a list, in place of the one that is ours
    take_out(text, "json", ("mcpServers", "herma"), is_ours)

JSON is edited as text, by the positions of its values, because no library keeps comments. JSON5 is read as well.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, MutableMapping, MutableSequence, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Literal, TypeAlias

from herma.errors import UsageError, install_command

Format: TypeAlias = Literal["json", "toml", "yaml"]
Keys: TypeAlias = Sequence[str]
Make: TypeAlias = Callable[[object, Any], Any]
"""Makes of a plain value what a library puts into a holder."""
_BLANK = re.compile(r"(?:\s|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_STRING = re.compile(r'"(?:[^"\\\n]|\\.)*"' + r"|'(?:[^'\\\n]|\\.)*'", re.DOTALL)
_WORD = re.compile(r"[^\s,:{}\[\]\"'/]+")
_DEEPEST = 200


class BadFile(ValueError):
    """A file is not in its format; the text says where."""


def format_of(name: str) -> Format:
    """Return the format of a file by its name."""
    return "toml" if name.endswith(".toml") else "yaml" if name.endswith((".yaml", ".yml")) else "json"


def put(text: str, kind: Format, keys: Keys, value: object) -> str:
    """Return a text with a value at a place, and the objects around it if they are missing."""
    if kind == "json":
        return _put_json(text, keys, value)

    def change(root: Any, make: Make) -> None:
        holder = _inside(root, keys[:-1], make)
        holder[keys[-1]] = make(value, holder)

    if _get(_plain(text, kind), keys) == value:
        return text
    return (_put_yaml(text, keys, value) if kind == "yaml" else None) or _rewritten(text, kind, change)


def put_item(text: str, kind: Format, keys: Keys, item: object, is_ours: Callable[[object], bool]) -> str:
    """Return a text with an item in the list at a place: instead of the item that is ours, else at the end."""
    if kind == "json":
        return _put_json_item(text, keys, item, is_ours)
    held = _get(_plain(text, kind), keys)
    if held is None:
        return put(text, kind, keys, [item])
    if not isinstance(held, list):
        raise BadFile(f"{'.'.join(keys)} is not a list")
    if item in held:
        return text

    def change(root: Any, make: Make) -> None:
        listed = _inside(root, keys[:-1], make)[keys[-1]]
        at = next((number for number, one in enumerate(listed) if is_ours(_unwrapped(one))), None)
        if at is None:
            listed.append(make(item, listed))
        else:
            listed[at] = make(item, listed)

    return _rewritten(text, kind, change)


def take_out(text: str, kind: Format, keys: Keys, is_ours: Callable[[object], bool] | None = None) -> str:
    """Return a text without the value at a place or, with `is_ours`, without our items in the list there."""
    if kind == "json":
        return _take_out_json(text, keys, is_ours)
    held = _get(_plain(text, kind), keys)
    if held is None or (is_ours is not None and not (isinstance(held, list) and any(map(is_ours, held)))):
        return text

    def change(root: Any, make: Make) -> None:
        holder = _inside(root, keys[:-1], make)
        if is_ours is None:
            del holder[keys[-1]]
        else:
            for at in [number for number, one in enumerate(holder[keys[-1]]) if is_ours(_unwrapped(one))][::-1]:
                del holder[keys[-1]][at]

    return _rewritten(text, kind, change)


def get(text: str, kind: Format, keys: Keys) -> Any:
    """Return the value at a place, as plain values; None if there is none."""
    return _get(read_json(text) if kind == "json" else _plain(text, kind), keys)


def _get(root: Any, keys: Keys) -> Any:
    for key in keys:
        if not isinstance(root, dict) or key not in root:
            return None
        root = root[key]
    return root


# ── TOML and YAML, with libraries that keep comments ──


def _load(text: str, kind: Format) -> tuple[Any, Callable[[Any], str]]:
    """Return the document, and what writes it."""
    if kind == "toml":
        try:
            tomlkit = import_module("tomlkit")
        except ImportError:
            hint = f"Type: {install_command('mcp')}"
            raise UsageError("This file needs the tomlkit library, which is not installed.", hint=hint) from None
        try:
            return tomlkit.parse(text), tomlkit.dumps
        except tomlkit.exceptions.ParseError as exc:
            raise BadFile(str(exc)) from exc
    from ruamel.yaml import YAML
    from ruamel.yaml.error import YAMLError

    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 4096
    indented = re.search(r"^[^\s#-].*:[ \t]*(?:#.*)?\n(?:[ \t]*(?:#.*)?\n)*( +)[^\s#-]", text, re.MULTILINE)
    offset = 0 if re.search(r"^( *)[^\s#-].*:[ \t]*(?:#.*)?\n\1- ", text, re.MULTILINE) else 2  # of the dash of an item
    yaml.indent(mapping=len(indented[1]) if indented else 2, sequence=offset + 2, offset=offset)

    def write(document: Any) -> str:
        out = io.StringIO()
        yaml.dump(document, out)
        return out.getvalue()

    try:
        return yaml.load(text) or yaml.map(), write
    except YAMLError as exc:
        raise BadFile(" ".join(str(exc).split())) from exc


def _plain(text: str, kind: Format) -> Any:
    return _unwrapped(_load(text, kind)[0])


def _unwrapped(value: Any) -> Any:
    """Return a value of a library as plain values."""
    if hasattr(value, "unwrap"):
        return value.unwrap()
    if isinstance(value, MutableMapping):
        return {str(key): _unwrapped(one) for key, one in value.items()}
    return [_unwrapped(one) for one in value] if isinstance(value, MutableSequence) else value


def _rewritten(text: str, kind: Format, change: Callable[[Any, Make], None]) -> str:
    """Return the text after a change, which is checked: the library must have written what was meant."""
    document, write = _load(text, kind)
    if not isinstance(document, MutableMapping):
        raise BadFile("it does not hold a mapping")
    meant = _unwrapped(document)
    change(meant, lambda value, _: value)
    try:
        change(document, _native if kind == "toml" else lambda value, _: value)
        made = write(document)
        if _filled(_plain(made, kind)) == _filled(meant):
            return made
    except ValueError:  # the next lines say more
        pass
    raise BadFile("it is written in a way that cannot be changed here; add the entry by hand")


def _filled(value: Any) -> Any:
    """Return a value without its empty mappings: TOML writes none that only held a table."""
    if not isinstance(value, dict):
        return value
    return {key: inner for key, one in value.items() if (inner := _filled(one)) != {}}


def _inside(root: Any, keys: Keys, make: Make) -> Any:
    """Return the mapping at a place, made where it is missing."""
    for at, key in enumerate(keys, 1):
        if root.get(key) is None:
            root[key] = make({}, root)
        root = root[key]
        if not isinstance(root, MutableMapping):
            raise BadFile(f"{'.'.join(keys[:at])} is not a mapping")
    return root


def _native(value: object, holder: Any) -> Any:
    """Return a value as TOML has it best in this holder: a mapping as a table of its own, unless all is on one line."""
    tomlkit = import_module("tomlkit")
    if not isinstance(value, dict):
        return tomlkit.item(value)
    if isinstance(holder, tomlkit.items.InlineTable | tomlkit.items.Array):
        table = tomlkit.inline_table()
        table.update(value)
        return table
    table = tomlkit.table(is_super_table=not value)
    for key, inner in value.items():
        table.add(key, _native(inner, tomlkit.array()))
    return table


def _put_yaml(text: str, keys: Keys, value: object) -> str | None:
    """Return a text with a new value, every other byte kept; None where the place does not allow that."""
    block = _nested(keys[1:], value)
    before = _plain(text, "yaml")
    top = re.search(rf"^{re.escape(keys[0])}:[ \t]*(?:#[^\n]*)?$", text, re.MULTILINE)
    if top is None and keys[0] not in before:
        gap = "" if not text or text.endswith("\n") else "\n"
        made = text + gap + _yaml_lines({keys[0]: block}, "")
    elif top is None or len(keys) < 2 or keys[1] in (before[keys[0]] or {}):
        return None
    else:
        below = re.compile(r"\n(?:[ \t]*(?:#[^\n]*)?\n)*([ \t]+)[^\s#]").match(text, top.end())
        made = (
            text[: top.end()] + "\n" + _yaml_lines(block, below[1] if below else "  ").rstrip("\n") + text[top.end() :]
        )
    try:
        after = _plain(made, "yaml")
    except BadFile:
        return None
    rest: Any = dict(before)
    holder = rest
    for key in keys[:-1]:
        holder[key] = dict(holder.get(key) or {})
        holder = holder[key]
    holder[keys[-1]] = value
    return made if after == rest else None


def _yaml_lines(value: object, column: str) -> str:
    from ruamel.yaml import YAML

    yaml, out = YAML(), io.StringIO()
    yaml.width = 4096
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(value, out)
    return "".join(f"{column}{line}" for line in out.getvalue().splitlines(keepends=True))


# ── JSON with comments, as text ──


@dataclass(slots=True)
class JsonNode:
    """A value in a text: where it stands, and the values in it, by name or in order."""

    start: int
    end: int
    kind: Literal["object", "array", "scalar"]
    members: dict[str, JsonNode] = field(default_factory=dict)
    items: list[JsonNode] = field(default_factory=list)
    begins: int = 0
    """Start of a member's name; of an item, of the item."""

    @property
    def parts(self) -> list[JsonNode]:
        return [*self.members.values(), *self.items]


def parse_json(text: str) -> JsonNode:
    """Return the value of a text and where its parts stand. `BadFile` if it is neither JSON nor JSON5."""
    node, end = _value(text, _skip(text, 0), 0)
    if (rest := _skip(text, end)) != len(text):
        raise BadFile(_where(text, rest, "unexpected text"))
    return node


def read_json(text: str) -> Any:
    """Return the plain value of a text; an empty one is an empty object."""
    if not text.strip().lstrip("\ufeff"):
        return {}
    return _plain_json(text, parse_json(text))


def _plain_json(text: str, node: JsonNode) -> Any:
    if node.kind == "object":
        return {name: _plain_json(text, one) for name, one in node.members.items()}
    if node.kind == "array":
        return [_plain_json(text, one) for one in node.items]
    return _scalar(text[node.start : node.end])


def _scalar(raw: str) -> Any:
    if raw[:1] == "'":
        raw = json.dumps(re.sub(r"\\(.)", r"\1", raw[1:-1], flags=re.DOTALL))
    try:
        return json.loads(raw)
    except ValueError:
        return raw  # a number as only JSON5 has it, or a text with an escape of its own


def _value(text: str, at: int, depth: int) -> tuple[JsonNode, int]:
    if depth > _DEEPEST:
        raise BadFile("it is nested too deeply")
    if text[at : at + 1] in ("{", "["):
        return _container(text, at, depth)
    if found := _STRING.match(text, at) or _WORD.match(text, at):
        return JsonNode(at, found.end(), "scalar", begins=at), found.end()
    raise BadFile(_where(text, at, "a value is missing"))


def _container(text: str, start: int, depth: int) -> tuple[JsonNode, int]:
    is_object = text[start] == "{"
    node = JsonNode(start, start, "object" if is_object else "array", begins=start)
    closing = "}" if is_object else "]"
    at = _skip(text, start + 1)
    while text[at : at + 1] != closing:
        begins = at
        name = ""
        if is_object:
            found = _STRING.match(text, at) or _WORD.match(text, at)
            if found is None:
                raise BadFile(_where(text, at, "a name is missing"))
            name = str(_scalar(found.group()))
            at = _skip(text, found.end())
            if text[at : at + 1] != ":":
                raise BadFile(_where(text, at, "a colon is missing"))
            at = _skip(text, at + 1)
        inner, at = _value(text, at, depth + 1)
        inner.begins = begins
        if is_object:
            node.members.pop(name, None)
            node.members[name] = inner
        else:
            node.items.append(inner)
        at = _skip(text, at)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != closing:
            raise BadFile(_where(text, at, f"a comma or {closing} is missing"))
    node.end = at + 1
    return node, node.end


def _skip(text: str, at: int) -> int:
    if at == 0 and text.startswith("\ufeff"):
        at = 1
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _where(text: str, at: int, what: str) -> str:
    return f"line {text.count(chr(10), 0, at) + 1}: {what}"


def _put_json(text: str, keys: Keys, value: object) -> str:
    if not text.strip().lstrip("\ufeff"):
        return text + json.dumps(_nested(keys, value), ensure_ascii=False, indent=2) + "\n"
    root = parse_json(text)
    node = root
    for depth, key in enumerate(keys):
        if node.kind != "object":
            raise BadFile(f"{'.'.join(keys[:depth]) or 'the file'} is not an object")
        inner = node.members.get(key)
        if inner is None:
            return _inserted(text, root, node, _nested(keys[depth + 1 :], value), key)
        node = inner
    if _plain_json(text, node) == value:
        return text
    return text[: node.start] + _dumped(text, root, value, _column(text, node.begins)) + text[node.end :]


def _put_json_item(text: str, keys: Keys, item: object, is_ours: Callable[[object], bool]) -> str:
    found = _get(read_json(text), keys)
    if found is None:
        return _put_json(text, keys, [item])
    if not isinstance(found, list):
        raise BadFile(f"{'.'.join(keys)} is not a list")
    if item in found:
        return text
    root = node = parse_json(text)
    for key in keys:
        node = node.members[key]
    for one in node.items:
        if is_ours(_plain_json(text, one)):
            return text[: one.start] + _dumped(text, root, item, _column(text, one.begins)) + text[one.end :]
    return _inserted(text, root, node, item)


def _take_out_json(text: str, keys: Keys, is_ours: Callable[[object], bool] | None) -> str:
    while True:
        if not text.strip().lstrip("\ufeff"):
            return text
        holder = None
        node: JsonNode | None = parse_json(text)
        for key in keys:
            holder, node = node, node.members.get(key) if node is not None else None
        if node is None or holder is None:
            return text
        if is_ours is not None:
            holder = node
            node = next((one for one in node.items if is_ours(_plain_json(text, one))), None)
            if node is None:
                return text
        text = _without(text, holder, node)


def _without(text: str, holder: JsonNode, node: JsonNode) -> str:
    """Remove a part of an object or array with one comma, and keep every comment."""
    parts = holder.parts
    at = parts.index(node)
    after = _skip(text, node.end)
    has_comma = text[after : after + 1] == ","
    if at < len(parts) - 1:
        return text[: node.begins] + text[after + 1 :].lstrip()
    if has_comma or at == 0:
        return text[: node.begins].rstrip() + text[after + 1 if has_comma else node.end :]
    comma = _skip(text, parts[at - 1].end)
    return text[:comma] + text[comma + 1 : node.begins].rstrip() + text[node.end :]


def _inserted(text: str, root: JsonNode, holder: JsonNode, value: object, name: str | None = None) -> str:
    """Insert a part at the end of an object or array, after the comments there, indented as the file is."""
    unit = _unit(text, root)
    parts = holder.parts
    closing = holder.end - 1
    column = _column(text, parts[-1].begins) if parts else _column(text, _line_start(text, holder.begins)) + unit
    written = _dumped(text, root, value, column)
    if name is not None:
        written = f"{json.dumps(name, ensure_ascii=False)}: {written}"
    if not parts:
        inside = text[holder.start + 1 : closing].rstrip()
        outer = column.removesuffix(unit)
        return f"{text[: holder.start + 1]}{inside}\n{column}{written}\n{outer}{text[closing:]}"
    last = parts[-1].end
    has_comma = text[_skip(text, last) : _skip(text, last) + 1] == ","
    end = closing - (len(text[last:closing]) - len(text[last:closing].rstrip()))
    between = text[last:end]
    if "\n" not in text[holder.start : closing]:  # written on one line
        return f"{text[:last]}{'' if has_comma else ','}{between} {written}{text[end:]}"
    tail = text[end:closing] if "\n" in text[end:closing] else "\n" + column.removesuffix(unit)
    return f"{text[:last]}{'' if has_comma else ','}{between}\n{column}{written}{tail}{text[closing:]}"


def _dumped(text: str, root: JsonNode, value: object, column: str) -> str:
    """Return a value as JSON over several lines, of which the first stands in this column."""
    lines = json.dumps(value, ensure_ascii=False, indent=_unit(text, root)).split("\n")
    return "\n".join([lines[0], *(column + line for line in lines[1:])])


def _nested(keys: Keys, value: object) -> object:
    for key in reversed(keys):
        value = {key: value}
    return value


def _unit(text: str, root: JsonNode) -> str:
    """Return how the file indents: by the first part of its first object."""
    column = _column(text, root.parts[0].begins) if root.parts else ""
    return column or "  "


def _line_start(text: str, at: int) -> int:
    """Return where the first thing on the line of a position stands."""
    begins = text.rfind("\n", 0, at) + 1
    return begins + len(text[begins:at]) - len(text[begins:at].lstrip())


def _column(text: str, at: int) -> str:
    """Return the blanks before a position, if nothing else is before it on its line."""
    begins = text.rfind("\n", 0, at) + 1
    before = text[begins:at]
    return before if not before.strip() else before[: len(before) - len(before.lstrip())]
