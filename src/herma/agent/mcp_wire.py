"""What passes between the model and an MCP server: names, schemas, arguments and results. Pure.

All that a server says is text from outside. Its schemas are looked at before the model sees them, arguments are checked
here because no library does it, and results are cut where they are too long.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from herma.errors import HermaError
from herma.providers.calling import tool_schemas

Json = dict[str, Any]
LONGEST_NAME = 64
"""Characters that models accept in a tool's name."""
MOST_TOOLS = 128
"""Tools that are taken of all servers together: more of them some models refuse."""
_UNFIT = re.compile(r"[^A-Za-z0-9_-]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]{0,99})\}")
_MOST_COMPLAINTS = 3
_UNCHECKED = ("pattern", "patternProperties", "propertyNames", "format", "$dynamicRef")
"""What a server could write down so that checking it takes for ever, or leads elsewhere."""


class ToolFailed(HermaError):
    """A tool of an MCP server did not give a result; the model is told why."""


class UnsetError(Exception):
    """A variable that the configuration refers to is not set."""


def tool_name(server: str, tool: str) -> str:
    """`server__tool`, as models accept it; what is too long is told apart by its hash."""
    name = f"{server}__{_UNFIT.sub('_', tool)}"
    if len(name) <= LONGEST_NAME and tool == _UNFIT.sub("_", tool):
        return name
    return f"{name[: LONGEST_NAME - 9]}_{hashlib.sha256(tool.encode()).hexdigest()[:8]}"


def taken_schemas(
    server: str, listed: Sequence[tuple[str, str, object]]
) -> tuple[dict[str, Json], dict[str, str], list[str]]:
    """Of tools as name, description and schema: what the model may be shown, by our name; the server's names of them;
    and what is wrong with the others.
    """
    named = {tool_name(server, name): name for name, _, _ in listed}
    offered = [
        {"name": tool_name(server, name), "description": description, "parameters": parameters}
        for name, description, parameters in listed
    ]
    good, wrong = tool_schemas(offered)
    return {schema["name"]: schema for schema in good}, named, [f"{server}: {sentence}" for sentence in wrong]


def complaints(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    """What is wrong with arguments, by the schema; "" if nothing is. Reads no other documents, and no patterns."""
    jsonschema = import_module("jsonschema")
    registry = import_module("referencing").Registry()
    kind = jsonschema.validators.extend(jsonschema.Draft202012Validator, dict.fromkeys(_UNCHECKED, lambda *_: iter(())))
    try:
        found = sorted(
            kind(dict(schema), registry=registry).iter_errors(dict(arguments)), key=lambda one: list(map(str, one.path))
        )
    except RecursionError:
        return "the arguments are nested too deeply"
    except (
        jsonschema.exceptions._WrappedReferencingError,
        jsonschema.exceptions.UnknownType,
        TypeError,
        ValueError,
        AttributeError,
    ):
        return ""  # the schema itself makes no sense: the server has to decide
    said = [f"{'.'.join(map(str, one.path)) or 'the arguments'}: {_short(one.message)}" for one in found]
    more = len(said) - _MOST_COMPLAINTS
    return "; ".join([*said[:_MOST_COMPLAINTS], *([f"and {more} more"] if more > 0 else [])])


def result_of(content: Sequence[Any], structured: object, failed: bool, longest: int) -> Json:
    """A server's answer as our tools answer: words, and what is no words by name and size."""
    text = "\n".join(filter(None, map(_words, content)))
    if not text and structured is not None:
        text = json.dumps(structured, ensure_ascii=False, default=str)
    cut = len(text) - longest
    if cut > 0:
        text = f"{text[:longest]}\n[… {cut:,} more characters were left out.]"
    return {"success": False, "error": text or "The tool failed and did not say why."} if failed else {"result": text}


def filled(text: str, value_of: Callable[[str], str]) -> str:
    """`${NAME}` replaced by what the variable holds. `UnsetError` where it holds nothing."""

    def value(found: re.Match[str]) -> str:
        held = value_of(found[1])
        if not held:
            raise UnsetError(f"the variable {found[1]} is not set, neither in the environment nor in the home's .env")
        return held

    return _VARIABLE.sub(value, text)


def reason(error: BaseException) -> str:
    """An error in a line: of a group, the first one of them that says something."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    words = " ".join(str(getattr(error, "message", "") or error).split())
    return _short(words) if words else type(error).__name__


def _words(part: Any) -> str:
    kind = getattr(part, "type", "")
    if kind == "text":
        return str(part.text)
    if kind == "resource" and isinstance(getattr(part.resource, "text", None), str):
        return str(part.resource.text)
    if kind == "resource_link":
        return f"[{part.name}: {part.uri}]"
    data = getattr(part, "data", None) or getattr(getattr(part, "resource", None), "blob", "") or ""
    mime = getattr(part, "mime_type", None) or getattr(getattr(part, "resource", None), "mime_type", None) or kind
    return f"[{mime}, {len(data) * 3 // 4:,} bytes: not shown]"


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:299]}…"
