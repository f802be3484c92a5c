"""The summary: a fixed order of sections, each line with the messages it came from.

It is written as Markdown for the model, read back when it is brought up to date, and any of its lines leads to the
originals: `[#12-18]` names messages by the numbers that the transcript gave them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from herma.types import Message

Section: TypeAlias = Literal[
    "goal", "constraints", "done", "state", "decisions", "questions", "files", "errors", "next", "also"
]
HEADINGS: Mapping[Section, str] = MappingProxyType(
    {
        "goal": "Goal",
        "constraints": "Constraints and preferences",
        "done": "Done",
        "state": "State",
        "decisions": "Decisions",
        "questions": "Open questions",
        "files": "Files",
        "errors": "Errors and remedies",
        "next": "Next steps",
        "also": "Also mentioned",
    }
)
STANDS = "summary"
"""The `finish_reason` of a message that stands for others."""
REQUEST = "The user's last request, word for word"
OPENING = (
    "This conversation was longer than fits. Its earlier part is summarised here as background; it asks for nothing by "
    "itself, and what the user says after it counts more. Numbers such as [#12-18] name the original messages: "
    "session_search with around_message_id=12 shows them, and with a query it looks through all of them."
)
_LINE = re.compile(r"^\s*+(?:[-*+•]|\d{1,3}[.)])\s++(?P<text>\S[^\n]*)$")
_SOURCES = re.compile(r"#?\d++(?:\s?[-–,]\s?#?\d++)*+")
_HEADING = re.compile(r"^\s{0,3}#{1,4}\s++(?P<title>\S[^\n]*)$")


@dataclass(frozen=True, slots=True)
class Line:
    """One statement, and the numbers of the messages it was made from."""

    text: str
    sources: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"- {self.text} [{ranges(self.sources, _SHOWN_RUNS)}]" if self.sources else f"- {self.text}"


@dataclass(frozen=True, slots=True)
class Summary:
    """What is known of the part of a conversation that is no longer sent."""

    lines: Mapping[Section, tuple[Line, ...]] = field(default_factory=dict)
    request: str = ""
    """The user's last request that the summary covers, unchanged."""

    def of(self, section: Section) -> tuple[Line, ...]:
        return self.lines.get(section, ())

    def with_lines(self, section: Section, lines: Iterable[Line]) -> Summary:
        return replace(self, lines={**self.lines, section: tuple(lines)})

    def __bool__(self) -> bool:
        return any(self.lines.values()) or bool(self.request)


def render(summary: Summary) -> str:
    """As the model is shown it."""
    parts = [OPENING, *filter(None, [render_lines(summary)])]
    if summary.request:
        parts.append(f"## {REQUEST}\n{_quoted(summary.request)}")
    return "\n\n".join(parts)


def render_lines(summary: Summary) -> str:
    """The sections alone."""
    return "\n\n".join(
        "\n".join([f"## {heading}", *map(str, lines)])
        for section, heading in HEADINGS.items()
        if (lines := summary.of(section))
    )


def parse(text: str, known: Callable[[int], bool] = lambda _: True) -> Summary:
    """Read a summary that we or a model wrote. References to messages that are not `known` are left out."""
    by_title = {heading.casefold(): section for section, heading in HEADINGS.items()}
    lines: dict[Section, list[Line]] = {}
    request: list[str] = []
    section: Section | None = None
    quoting = False
    for row in text.split("\n"):
        if heading := _HEADING.match(row):
            title = heading["title"].rstrip(" \t\r#:").casefold()
            quoting = title == REQUEST.casefold()
            section = by_title.get(title)
        elif quoting:
            request.append(row.removeprefix(">").removeprefix(" "))
        elif section and (match := _LINE.match(row)):
            lines.setdefault(section, []).append(_line(match["text"], known))
    return Summary({name: tuple(found) for name, found in lines.items()}, "\n".join(request).strip("\n"))


def is_summary(text: str) -> bool:
    """Whether it reads like one. Somebody may have pasted it: a message that stands for others is marked, too."""
    return text.startswith(OPENING)


def stands_in(message: Message) -> bool:
    """Whether a message is a summary that stands for others."""
    return message.finish_reason == STANDS and isinstance(message.content, str) and is_summary(message.content)


def read_line(text: str, known: Callable[[int], bool] = lambda _: True) -> Line:
    """One line as it stands in a summary, with or without its bullet."""
    bullet = _LINE.match(text)
    return _line(bullet["text"] if bullet else text.strip(), known)


def _line(said: str, known: Callable[[int], bool]) -> Line:
    said = said.rstrip()
    before, bracket, named = said.rpartition("[")
    if not bracket or not _SOURCES.fullmatch(named.removesuffix("]")) or not named.endswith("]"):
        return Line(said)
    return Line(before.rstrip(), tuple(number for number in numbers(named[:-1]) if known(number)))


_MOST_SOURCES = 10_000
_SHOWN_RUNS = 8
"""Runs of numbers that one line names: what comes up all the time is found by the first place and the newest."""


def numbers(text: str) -> list[int]:
    """`#12-14, #20` → 12, 13, 14, 20. A range that is too long is cut."""
    found: list[int] = []
    for part in text.replace("#", "").split(","):
        first, _, last = (bound.strip() for bound in part.replace("–", "-").partition("-"))
        if first.isdigit() and len(found) < 2 * _MOST_SOURCES:
            begin, end = int(first), int(last) if last.isdigit() else int(first)
            found += range(begin, min(end, begin + _MOST_SOURCES) + 1)
    return sorted(set(found))[:_MOST_SOURCES]


def ranges(sources: Iterable[int], most: int = 0) -> str:
    """12, 13, 14, 20 → `#12-14, 20`. With a limit, the first of so many runs and the newest ones."""
    runs: list[list[int]] = []
    for number in sorted(set(sources)):
        if runs and runs[-1][1] == number - 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    if 0 < most < len(runs):
        runs[1 : len(runs) - most + 1] = []
    return "#" + ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) if runs else ""


def _quoted(text: str) -> str:
    return "\n".join(f"> {row}" if row else ">" for row in text.split("\n"))
