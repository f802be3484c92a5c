"""How curated memory is put into words for people, and into JSON for programs. Pure."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from typing import Protocol

from herma.types import Add, Author, Change, Entry, Finding, MemoryOp, Pending, Remove, Replace
from herma.wording.memory import percent, scope_json
from herma.wording.sessions import Json, count, iso

BAR = 24


class Sized(Protocol):
    """A file or an outcome that says how full the file is."""

    @property
    def used(self) -> int: ...
    @property
    def limit(self) -> int: ...
    @property
    def entry_count(self) -> int: ...


def usage(sized: Sized) -> str:
    """`12 % — 260/2,200 characters, 4 entries`."""
    full = percent(sized.used, sized.limit)
    return f"{full} % — {sized.used:,}/{sized.limit:,} characters, {count(sized.entry_count, 'entry')}"


def bar(sized: Sized) -> str:
    full = min(BAR, -(-sized.used * BAR // sized.limit)) if sized.limit else BAR
    return "█" * full + "░" * (BAR - full)


def preview(text: str, width: int = 72) -> str:
    """One line of a text, cut where it is long."""
    line = " ⏎ ".join(part.strip() for part in text[: width * 4].splitlines() if part.strip())
    return line if len(line) <= width and len(text) <= width * 4 else line[: width - 1].rstrip() + "…"


def excerpt(text: str, span: tuple[int, int], around: int = 32) -> str:
    """The offending piece in its context: …before »piece« after…"""
    start, end = span
    piece = preview(text[start:end], 80) or ascii(text[start:end])
    before, after = text[max(0, start - around) : start], text[end : end + around]
    head = "…" if start > around else ""
    tail = "…" if end + around < len(text) else ""
    return f"{head}{_flat(before)}»{piece}«{_flat(after)}{tail}"


def _flat(text: str) -> str:
    return text.replace("\r", "").replace("\n", " ⏎ ")


def handle(entry: str, entries: Sequence[str]) -> str:
    """A piece of an entry that no other entry has, quoted for the shell: enough to locate it."""
    line = entry.splitlines()[0] if entry else ""
    for width in (32, 64, len(line)):
        piece = line[:width].strip()
        if piece and not any(piece in other for other in entries if other != entry):
            return shlex.quote(piece)
    return shlex.quote(entry)


# ── times ──


def day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


def span(seconds: float) -> str:
    """A length of time, rounded in its largest unit."""
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= length:
            return count(round(seconds / length), unit)
    return "less than a minute"


# ── entries, changes, proposals ──


def by(author: Author) -> str:
    """Who made a change, and where the knowledge came from when that says more."""
    known = {("user", "user said"), ("tool", "agent concluded"), ("hand edit", "user said")}
    who = {"tool": "agent", "hand edit": "hand edit"}.get(author.who, str(author.who))
    return who if (author.who, author.origin) in known else f"{who} ({author.origin})"


def remarks(entry: Entry) -> str:
    """What is known about an entry, in one line."""
    parts = [entry.category or "", *(f"#{tag}" for tag in entry.tags), str(entry.origin or "written by hand")]
    if entry.created is not None:
        parts.append(f"created {day(entry.created)}")
    if entry.changed is not None and (entry.created is None or day(entry.changed) != day(entry.created)):
        parts.append(f"changed {day(entry.changed)}")
    if entry.confirmed is not None and (entry.changed is None or day(entry.confirmed) != day(entry.changed)):
        parts.append(f"confirmed {day(entry.confirmed)}")
    if entry.vouched and entry.findings:
        parts.append("vouched for by a person")
    return " · ".join(part for part in parts if part)


def rules(findings: Sequence[Finding]) -> str:
    """Each rule once, with its reason."""
    return "; ".join(dict.fromkeys(f"{finding.rule} ({finding.why})" for finding in findings))


def operation(op: MemoryOp) -> str:
    match op:
        case Add(content):
            return f"add: {content}"
        case Replace(old, content):
            return f"replace the entry with “{preview(old, 60)}” by: {content}"
        case Remove(old, "" | "merged"):
            return f"remove the entry with “{preview(old, 60)}”"
        case Remove(old):
            return f"move the entry “{preview(old, 60)}” to the long tail"


# ── JSON ──


def author_json(author: Author) -> Json:
    return {"who": author.who, "origin": author.origin, "session": author.session, "message": author.message}


def finding_json(finding: Finding, text: str) -> Json:
    start, end = finding.span
    return {
        "rule": finding.rule,
        "start": start,
        "end": end,
        "severity": finding.severity,
        "why": finding.why,
        "text": text[start:end],
    }


def entry_json(number: int, entry: Entry) -> Json:
    return {
        "number": number,
        "text": entry.text,
        "size": len(entry.text),
        "category": entry.category,
        "tags": list(entry.tags),
        "origin": entry.origin,
        "created": iso(entry.created),
        "changed": iso(entry.changed),
        "confirmed": iso(entry.confirmed),
        "change": entry.change,
        "vouched": entry.vouched,
        "withheld": not entry.trusted,
        "findings": [finding_json(finding, entry.text) for finding in entry.findings],
    }


def change_json(change: Change) -> Json:
    return {
        "change": change.id,
        "at": iso(change.at),
        "target": change.target,
        **scope_json(change.scope),
        **author_json(change.author),
        "action": change.action,
        "reason": change.reason,
        "undoes": change.undoes,
        "undone_by": change.undone_by,
    }


def operation_json(op: MemoryOp) -> Json:
    fields: Json = {"action": type(op).__name__.lower()}
    if not isinstance(op, Add):
        fields["old_text"] = op.old_text
    if isinstance(op, Remove) and op.kept:
        fields["kept"] = op.kept
    if not isinstance(op, Remove):
        fields |= {"content": op.content, "category": op.category, "tags": list(op.tags)}
    return fields


def pending_json(pending: Pending) -> Json:
    return {
        "id": pending.id,
        "at": iso(pending.at),
        "expires": iso(pending.expires),
        "target": pending.target,
        **scope_json(pending.scope),
        **author_json(pending.author),
        "reason": pending.reason,
        "operations": [operation_json(op) for op in pending.operations],
    }
