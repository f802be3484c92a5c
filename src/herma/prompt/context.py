"""Files of a project (AGENTS.md, CLAUDE.md, …) on their way into the prompt: cut to size, scanned, and named.

They come with somebody's repository. A paragraph that the scanner takes for an attack is withheld, and the rule is
named in its place; the rest of the file stays, for a file that only quotes an attack is still the project's file.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass

from herma.prompt.fence import neutralize
from herma.safety.scan import scan
from herma.types import Finding

SMALLEST_CAP, LARGEST_CAP = 20_000, 500_000
_PARAGRAPH = re.compile(r"\n[ \t]*\n\s*")
_TOO_MANY = 5


@dataclass(frozen=True, slots=True)
class ContextFile:
    """A file that the prompt shows: its name and its text."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Shown:
    """What the prompt shows of a file, and what people should know about it."""

    text: str
    warnings: tuple[str, ...] = ()


def cap_for(window: int) -> int:
    """Characters that one file may take in a window of so many tokens."""
    return max(SMALLEST_CAP, min(window * 4 * 6 // 100, LARGEST_CAP))


def show(file: ContextFile, cap: int = SMALLEST_CAP) -> Shown:
    """The file as the prompt shows it: at most `cap` characters, nothing that the scanner takes for an attack."""
    name = " ".join(file.name.split())
    text = neutralize(file.text.removeprefix("\ufeff")).strip()
    text, warnings = _capped(name, text, cap)
    findings = [finding for finding in scan(text) if is_injection(finding)]
    if not findings:
        return Shown(text, warnings)
    text, rules = _withheld(name, text, findings)
    return Shown(text, (*warnings, f"{name}: the scanner withheld text ({', '.join(rules)})"))


def is_injection(finding: Finding) -> bool:
    """Whether a finding is about taking over the model or its tools. A secret in a project's file is the project's."""
    return finding.rule not in ("credential", "control_character")


def _capped(name: str, text: str, cap: int) -> tuple[str, tuple[str, ...]]:
    """The first 70 and the last 20 per cent of what is allowed, and between them how much is missing."""
    if len(text) <= cap:
        return text, ()
    head, tail = text[: cap * 7 // 10], text[len(text) - cap * 2 // 10 :]
    missing = len(text) - len(head) - len(tail)
    marker = (
        f"\n\n[… {missing:,} of {len(text):,} characters of {name} are left out here; read the file for them. …]\n\n"
    )
    return f"{head}{marker}{tail}", (f"{name}: {missing:,} of {len(text):,} characters are not shown",)


def _withheld(name: str, text: str, findings: list[Finding]) -> tuple[str, list[str]]:
    """`text` with every paragraph that a finding touches replaced; with too many of them, nothing of it."""
    rules = list(dict.fromkeys(finding.rule for finding in findings))
    edges = [(gap.start(), gap.end()) for gap in _PARAGRAPH.finditer(text)] + [(len(text), len(text))]
    ends = [end for end, _ in edges]
    hits: dict[int, list[str]] = {}
    for finding in findings:
        at = bisect_right(ends, finding.span[0])
        while at < len(ends) and (at == 0 or edges[at - 1][1] < finding.span[1]) and len(hits) < _TOO_MANY:
            hits.setdefault(at, []).append(finding.rule)
            at += 1
    if len(hits) >= _TOO_MANY:
        return f"[BLOCKED: {name} is withheld by the scanner ({', '.join(rules)}).]", rules
    out: list[str] = []
    start = 0
    for at, (end, after) in enumerate(edges):
        named = ", ".join(dict.fromkeys(hits.get(at, ())))
        paragraph = (
            f"[BLOCKED: a paragraph of {name} is withheld by the scanner ({named}).]" if named else text[start:end]
        )
        out += [paragraph, text[end:after]]
        start = after
    return "".join(out), rules
