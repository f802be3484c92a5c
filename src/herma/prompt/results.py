"""Shortens what a tool returned, without a model: the shape and the errors stay, the bulk goes.

The full text stays in the transcript; the placeholder says how to get it. Each kind of text is tried with less and less
detail until it fits; what does not fit in any way is cut in the middle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from herma.prompt.kinds import Kind, kind_of, parse_json, parse_table
from herma.prompt.shapes import DETAILS, json_shape, table_shape
from herma.prompt.tokens import estimate

LIMIT = 500
LONG = 50
"""Code and logs with more lines than this are shortened even if they would fit."""

_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])")
_OVERWRITTEN = re.compile(r"^(?:[^\r\n]*+\r(?!\n))++", re.MULTILINE)
_TROUBLE = re.compile(
    r"\b(?i:error|errors|err!|warn|warning|warnings|fatal|panic|panicked|critical|exception|traceback|failed|failure|fail"
    r"|denied|refused|segfault|aborted|unhandled|not found|no such file|cannot|undefined reference|timed out|killed"
    r"|oomkilled|assertion)\b|\b[A-Z]\w*(?:Error|Exception|Warning)\b|^E {2,}|\bE\d{3,4}\b"
)
_NO_TROUBLE = re.compile(r"\b(?:0|no|without) (?:errors?|warnings?|failures?|failed)\b", re.IGNORECASE)
_FRAME = re.compile(r"\s|$")


@dataclass(frozen=True, slots=True)
class Compressed:
    """What is left of a result: its text, how many tokens were kept and dropped, and how it was done."""

    text: str
    kept: int
    dropped: int
    how: str

    @property
    def shortened(self) -> bool:
        return self.dropped > 0


@dataclass(frozen=True, slots=True)
class _Lines:
    """How much of a text in lines to show."""

    first: int
    last: int
    trouble: int
    around: int
    width: int


_LINES = (
    _Lines(25, 10, 40, 1, 400),
    _Lines(25, 10, 20, 1, 160),
    _Lines(15, 8, 16, 1, 140),
    _Lines(10, 6, 12, 0, 120),
    _Lines(6, 4, 8, 0, 100),
    _Lines(3, 3, 5, 0, 80),
    _Lines(1, 1, 2, 0, 60),
)


def digest(text: str) -> str:
    """What identifies a result among those already seen."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def compress_result(
    text: str,
    *,
    limit_tokens: int = LIMIT,
    kind: Kind | None = None,
    reference: str | None = None,
    seen: Mapping[str, str] = MappingProxyType({}),
    count: Callable[[str], int] = estimate,
) -> Compressed:
    """At most `limit_tokens` of `text`, and never more characters than it has.

    `reference` is the id of the tool call that this is the result of; `seen` maps the digests of earlier results to
    theirs.
    """
    clean = _ANSI.sub("", text) if "\x1b" in text else text
    clean = _OVERWRITTEN.sub("", clean) if "\r" in clean else clean
    total = count(text)
    fits = _fits(len(text), limit_tokens, count)
    earlier = seen.get(digest(text))
    if earlier is not None:
        same = f"[The same result as that of {_call(earlier)}; session_search with {_call(earlier)} shows it in full.]"
        if fits(same) and len(same) < len(clean):
            return _done(same, total, count, "the same as an earlier result")
    kind = kind or kind_of(clean)
    long = kind in ("code", "log") and len(clean.splitlines()) > LONG
    if not long and fits(clean):
        return _done(clean, total, count, "unchanged" if clean == text else "colours removed")
    note = _note(total, reference)
    for shown, how in _shorter(clean, kind):
        candidate = f"{shown}\n{note}"
        if fits(candidate):
            return _done(candidate, total, count, how)
    if fits(clean):
        return _done(clean, total, count, "unchanged" if clean == text else "colours removed")
    return _done(_cut_middle(clean, note, fits, limit_tokens), total, count, "cut in the middle")


def _fits(characters: int, limit_tokens: int, count: Callable[[str], int]) -> Callable[[str], bool]:
    return lambda candidate: len(candidate) <= characters and count(candidate) <= limit_tokens


def _done(text: str, total: int, count: Callable[[str], int], how: str) -> Compressed:
    kept = count(text)
    return Compressed(text, kept, max(0, total - kept), how)


def _note(total: int, reference: str | None) -> str:
    if reference is None:
        return f"[Shortened from about {total:,} tokens; the transcript has it in full: session_search finds it.]"
    return f"[Shortened from about {total:,} tokens; session_search with {_call(reference)} shows it in full.]"


def _call(reference: str) -> str:
    return f'tool_call_id "{reference}"'


def _shorter(text: str, kind: Kind) -> Iterator[tuple[str, str]]:
    """Shorter and shorter versions of a text of this kind, and what was done."""
    if kind == "json":
        parsed = parse_json(text)
        if parsed is not None:
            for detail in DETAILS:
                yield json_shape(parsed[0], detail), "structure of JSON"
    elif kind == "table":
        table = parse_table(text)
        if table is not None:
            for detail in DETAILS:
                yield table_shape(table, detail), "shape of a table"
    elif kind in ("code", "log"):
        lines = text.splitlines()
        trouble = list(_trouble(lines))
        for levels in _LINES:
            yield (
                _pick(lines, trouble, levels),
                f"first and last lines and errors of {'code' if kind == 'code' else 'a log'}",
            )


# ── lines ──


def _trouble(lines: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Where errors are: each as its line and the first line after it that is not part of it."""
    after = 0
    for at, line in enumerate(lines):
        head = line[:500]
        if at < after or not _TROUBLE.search(head) or _NO_TROUBLE.search(head):
            continue
        after = at + 1
        if head.lstrip().startswith("Traceback"):
            while after < len(lines) and after < at + 30 and _FRAME.match(lines[after]):
                after += 1
            after = min(after + 1, len(lines))
        yield at, after


def trouble_lines(text: str) -> list[str]:
    """What went wrong, one line each: of a traceback, its last."""
    lines = text.split("\n")
    return [lines[after - 1].strip() for _, after in _trouble(lines)]


def _pick(lines: Sequence[str], trouble: Sequence[tuple[int, int]], levels: _Lines) -> str:
    """The first and last lines, and the errors between them with their line numbers. The last errors matter most."""
    chosen = set(range(min(levels.first, len(lines)))) | set(range(max(0, len(lines) - levels.last), len(lines)))
    errors: set[int] = set()
    for at, after in reversed(trouble):
        span = range(max(0, at - levels.around), min(len(lines), after + levels.around))
        wanted = set(span) if len(span) <= 12 else {*span[:3], *span[-6:]}
        if len(errors | wanted) > levels.trouble * (1 + 2 * levels.around):
            break
        errors |= wanted
    out: list[str] = []
    last = -1
    for at in sorted(chosen | errors):
        if at > last + 1:
            out.append(f"… {at - last - 1:,} lines left out …")
        line = lines[at] if len(lines[at]) <= levels.width else f"{lines[at][: levels.width - 1]}…"
        out.append(line if at in chosen else f"{at + 1}: {line}")
        last = at
    return "\n".join(out)


# ── anything ──


def _cut_middle(text: str, note: str, fits: Callable[[str], bool], limit_tokens: int) -> str:
    """The beginning and the end, as much as fits, with the note between them."""
    for marker in (f"\n{note}\n", "\n[…]\n", "…"):
        size = min(len(text), limit_tokens * 8)
        while size >= 8:
            head, tail = text[: size * 3 // 5], text[-(size - size * 3 // 5) :]
            candidate = f"{_whole_lines(head)}{marker}{_whole_lines(tail[::-1])[::-1]}"
            if fits(candidate):
                return candidate
            size = size * 4 // 5
        if fits(marker.strip()):
            return marker.strip()
    return ""


def _whole_lines(text: str) -> str:
    """`text` up to its last line break, if that does not cost more than a fifth of it."""
    cut = text.rfind("\n")
    return text[:cut] if cut > len(text) * 4 // 5 else text
