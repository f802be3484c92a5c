"""Text and JSON that cannot steer where they are shown. Loaded at every start, so it loads nothing itself."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import PurePath

# Control characters (escape sequences begin with one) except tab and line feed, bidirectional overrides, which
# reorder what is read, line separators, and lone surrogates, which cannot be encoded at all.
_UNSAFE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_UNSAFE_IN_JSON = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: str) -> str:
    """The text with control characters spelt out, so that they cannot act."""
    return _UNSAFE.sub(lambda match: _spelt(match[0]), text)


def _spelt(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def json_text(value: object) -> str:
    """A value as JSON, with dataclasses, paths, sets and mappings in it, and nothing that could act."""
    text = json.dumps(value, ensure_ascii=False, indent=2, default=_plain)
    return _UNSAFE_IN_JSON.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def _plain(value: object) -> object:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, AbstractSet):
        return sorted(value)
    if isinstance(value, PurePath):
        return str(value)
    raise TypeError(f"{type(value).__name__} has no place in JSON")
