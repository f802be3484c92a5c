"""Credentials replaced by a marker that names their kind, wherever they stand in a message: text, parts, arguments."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from herma.safety.secrets import find_secrets
from herma.transcript.export import Told
from herma.types import Message, Whereabouts

_TAIL = re.compile(r"[A-Za-z0-9_+/=-]*")
_KEY_END = re.compile(r"-----END [A-Z ]{0,40}-----")
_KEY_BODY = re.compile(r"[A-Za-z0-9+/=:\s,-]*")
_LONGEST_KEY = 64 * 1024
_LONGEST_NAME = 100
_DEEPEST = 50
"""Levels of nested values that are looked into one by one."""
_OPENING = re.compile(r"\s{0,100}[\[{]")
_TEXTS = ("title", "source", "model", "end_reason", *Whereabouts.__annotations__)
_FIELDS = ("content", "tool_calls", "tool_name", "reasoning", "sent", "extra")


class Redactor:
    """Replaces credentials. `found` counts them by kind."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()

    def session(self, one: Told) -> Told:
        """Without its preview: a credential that is cut off there is no longer known as one."""
        changes: dict[str, Any] = {name: self.text(text) for name in _TEXTS if (text := getattr(one.session, name))}
        scope = one.session.scope
        scope = replace(scope, **{name: self.text(text) for name, text in asdict(scope).items() if text})
        prompt = self.text(one.system_prompt) if one.system_prompt else one.system_prompt
        return replace(one, session=replace(one.session, preview="", scope=scope, **changes), system_prompt=prompt)

    def message(self, message: Message) -> Message:
        """The same message without credentials; the very same where there are none."""
        before = self.found.total()
        changes: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(message, name)
            changes[name] = tuple(map(self.value, value)) if name == "tool_calls" else self.value(value)
        return replace(message, **changes) if self.found.total() > before else message

    def value(self, value: Any, name: str = "", depth: int = 0) -> Any:
        """Anything JSON can hold. `name` is the field it stands in, which may say that it is a password."""
        if isinstance(value, str):
            return self._json_text(value, depth) or self.text(value, name)
        if depth > _DEEPEST and isinstance(value, dict | list):
            return self._as_text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self.value(inner, str(key), depth + 1) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.value(inner, name, depth + 1) for inner in value]
        return value

    def _as_text(self, value: Any) -> Any:
        """What is nested so deeply that only its text can be looked at: as it is, or that text without credentials."""
        before = self.found.total()
        text = self.text(json.dumps(value, ensure_ascii=False))
        return text if self.found.total() > before else value

    def text(self, text: str, name: str = "") -> str:
        before = f'{name[-_LONGEST_NAME:]}: "' if name else ""
        pieces: list[str] = []
        at = 0
        for start, end, kind in _spans(f'{before}{text}"' if name else text):
            start, end = max(start - len(before), 0), min(end - len(before), len(text))  # noqa: PLW2901
            if end <= at:
                continue
            self.found[kind] += 1
            pieces += [text[at : max(start, at)], f"[redacted: {kind}]"]
            at = end
        return "".join([*pieces, text[at:]])

    def _json_text(self, text: str, depth: int) -> str | None:
        """Arguments of tools are JSON inside a string: look into it. None when it is no JSON, or has nothing in it."""
        if not _OPENING.match(text) or depth > _DEEPEST:
            return None
        try:
            inside = json.loads(text)
        except (ValueError, RecursionError):
            return None
        before = self.found.copy()
        cleaned = self.value(inside, depth=depth + 1)
        if cleaned == inside:
            self.found = before
            return None
        return json.dumps(cleaned, ensure_ascii=False)


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    """Where credentials stand, in order, each to its very end, which the scanner need not look for."""
    for finding in sorted(find_secrets(text), key=lambda finding: finding.span):
        start, end = finding.span
        kind = finding.why.removeprefix("looks like a real ").removeprefix("a ").removesuffix(" written out")
        if kind == "private key":
            last = _KEY_END.search(text, start, start + _LONGEST_KEY)
            yield start, last.end() if last else _through(_KEY_BODY, text, end), kind
        else:
            yield start, _through(_TAIL, text, end), kind


def _through(pattern: re.Pattern[str], text: str, at: int) -> int:
    more = pattern.match(text, at)
    return more.end() if more else at
