"""The system prompt, assembled from values in a fixed order: the most lasting first, what changes by the day last.

The same values give the same bytes, so that a provider's cache can reuse them: no time of day, no counters, no ids. The
prompt is made once per session and stored; a resumed session replays it.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from herma.prompt.context import SMALLEST_CAP, ContextFile, show
from herma.prompt.fence import neutralize
from herma.prompt.guidance import GUIDANCE, IDENTITY, TOPICS, Topic, memory_guidance
from herma.types import TARGETS, Snapshot, Target

BINDING = ("identity", "system message")
"""Sections that a resumed session must not ignore when they have changed."""
MOST_MARKS = 4
"""Cache marks that a request may carry."""


@dataclass(frozen=True, slots=True)
class Tiers:
    """Everything a system prompt is made of. What is empty leaves no trace."""

    identity: str = ""
    """SOUL.md, or nothing for the default."""
    system_message: str = ""
    """What the caller adds."""
    guidance: tuple[Topic, ...] = TOPICS
    """Which tools there are to explain."""
    targets: tuple[Target, ...] = TARGETS
    """Which curated files there are."""
    skills: str = ""
    """The index of skills."""
    project: tuple[ContextFile, ...] = ()
    memory: Snapshot = field(default_factory=Snapshot)
    episodes: tuple[str, ...] = ()
    providers: tuple[tuple[str, str], ...] = ()
    """Name and block of each external memory."""
    date: datetime.date | None = None
    source: str = ""
    platform: str = ""
    """How to write for where the answer is read."""
    hints: tuple[str, ...] = ()
    cap: int = SMALLEST_CAP
    """Characters that one project file may take."""


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a prompt, under a name that stays the same from session to session."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """A system prompt: its bytes, their digest, what they are made of, and warnings for people."""

    text: str
    digest: str
    sections: tuple[Section, ...]
    warnings: tuple[str, ...] = ()


def assemble(tiers: Tiers) -> Prompt:
    """The prompt that these values make."""
    warnings: list[str] = []
    sections = tuple(Section(name, text.strip()) for name, text in _sections(tiers, warnings) if text and text.strip())
    text = "\n\n".join(section.text for section in sections)
    return Prompt(text, _digest(text), sections, (*warnings, *tiers.memory.warnings))


def _sections(tiers: Tiers, warnings: list[str]) -> Iterator[tuple[str, str]]:
    """Names and texts, in their order."""
    identity = show(ContextFile("SOUL.md", tiers.identity), tiers.cap)
    warnings += identity.warnings
    withheld = identity.text.startswith("[BLOCKED: SOUL.md")
    yield "identity", f"{IDENTITY}\n\n{identity.text}" if withheld else identity.text or IDENTITY
    yield "system message", tiers.system_message
    for topic in TOPICS:
        if topic in tiers.guidance:
            yield f"guidance on {topic}", memory_guidance(tiers.targets) if topic == "memory" else GUIDANCE[topic]
    yield "skills", tiers.skills
    for file in tiers.project:
        shown = show(file, tiers.cap)
        warnings += shown.warnings
        if shown.text:
            yield f"project file {file.name}", f"# Project file: {' '.join(file.name.split())}\n\n{shown.text}"
    for block in tiers.memory.blocks:
        yield f"memory {block.source or block.target}", neutralize(block.text)
    episodes = [f"- {' '.join(neutralize(episode).split())}" for episode in tiers.episodes if episode.strip()]
    yield "episodes", "\n".join(["# Earlier work that may matter here", "", *episodes]) if episodes else ""
    for name, text in tiers.providers:
        yield f"provider {name}", neutralize(text)
    yield "circumstances", "\n".join(_circumstances(tiers))


def _circumstances(tiers: Tiers) -> Iterator[str]:
    if tiers.date is not None:
        day = tiers.date
        weekday = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")[day.weekday()]
        yield f"This conversation began on {weekday}, {day.year:04}-{day.month:02}-{day.day:02}."
    if tiers.source.strip():
        yield f"It takes place in: {tiers.source.strip()}."
    yield from (line.strip() for line in (tiers.platform, *tiers.hints) if line.strip())


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


# ── cache marks ──


def cache_breakpoints(
    messages: Sequence[dict[str, Any]], *, lifetime: Literal["5m", "1h"] = "5m"
) -> list[dict[str, Any]]:
    """A deep copy of the request with Anthropic's cache marks: on the system message, then on the last messages.

    At most four, marks that are already there included. Empty messages and tool results carry none.
    """
    marked = copy.deepcopy(list(messages))
    mark = {"type": "ephemeral"} if lifetime == "5m" else {"type": "ephemeral", "ttl": lifetime}
    left = MOST_MARKS - sum(map(_marks_in, marked))
    system = [message for message in marked if message.get("role") == "system"][:1]
    others = [message for message in reversed(marked) if message.get("role") not in ("system", "tool")]
    for message in (*system, *others):
        if left <= 0:
            break
        if not _marks_in(message) and _put_mark(message, mark):
            left -= 1
    return marked


def _marks_in(message: dict[str, Any]) -> int:
    content = message.get("content")
    parts = content if isinstance(content, list) else []
    return sum(isinstance(part, dict) and "cache_control" in part for part in parts)


def _put_mark(message: dict[str, Any], mark: dict[str, str]) -> bool:
    """Mark the message's last part. → whether it could carry one."""
    content = message.get("content")
    if isinstance(content, str) and content.strip():
        message["content"] = [{"type": "text", "text": content, "cache_control": dict(mark)}]
        return True
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        part = content[-1]
        if part.get("type") in ("thinking", "redacted_thinking") or part.get("text") == "":
            return False
        part["cache_control"] = dict(mark)
        return True
    return False
