"""How curated memory looks in the prompt: a rule, a header with the usage, a rule, the entries."""

from __future__ import annotations

from collections.abc import Sequence

from herma.safety.scan import scan
from herma.types import DELIMITER, Finding, Scope, Target

RULE = "═" * 46
HEADERS: dict[Target, str] = {
    "memory": "MEMORY (your personal notes)",
    "user": "USER PROFILE (who the user is)",
}


def render_block(target: Target, scope: Scope, entries: Sequence[str], limit: int) -> str:
    """One block, or "" when there is nothing to show.

    Never more than `limit` characters of entries: what is over is counted.
    """
    if not entries:
        return ""
    shown, left_out = within(entries, limit)
    body = DELIMITER.join(shown)
    percent = min(100, len(body) * 100 // limit) if limit else 100
    header = f"{_title(target, scope)} [{percent}% — {len(body):,}/{limit:,} chars]"
    lines = [RULE, header, RULE, body]
    if left_out:
        lines.append(
            f"[{left_out:,} more characters do not fit the limit of {limit:,}; they are in the file but not shown.]"
        )
    return "\n".join(line for line in lines if line)


def placeholder(name: str, findings: Sequence[Finding]) -> str:
    """What stands in the prompt for an entry the scanner objects to."""
    rules = ", ".join(dict.fromkeys(finding.rule for finding in findings))
    return (
        f"[BLOCKED: an entry of {name} is withheld by the scanner ({rules}); it can be removed with the memory tool.]"
    )


def _title(target: Target, scope: Scope) -> str:
    """A project may be named after a folder of somebody's repository: its name is text from outside too."""
    if target == "memory" and scope.project:
        name = " ".join(scope.project.split())[:80]
        return f"PROJECT MEMORY (your notes on {name if not scan(name) else 'this project'})"
    return HEADERS[target]


def within(entries: Sequence[str], limit: int) -> tuple[list[str], int]:
    """Whole entries from the front while they fit; a first entry that is too long alone is cut.

    → what fits, characters left out.
    """
    shown: list[str] = []
    room = limit
    for entry in entries:
        cost = len(entry) + (len(DELIMITER) if shown else 0)
        if cost > room:
            break
        shown.append(entry)
        room -= cost
    if not shown:
        shown = [entries[0][:limit]] if limit > 0 else []
    total = sum(map(len, entries)) + len(DELIMITER) * (len(entries) - 1)
    return shown, total - len(DELIMITER.join(shown))
