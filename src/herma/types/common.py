"""Whose memory is meant, who changes it, and what the scanner objects to."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


@dataclass(frozen=True, slots=True)
class Scope:
    """Whose memory is meant. The empty scope is the home's own."""

    profile: str = ""
    project: str = ""
    user: str = ""
    chat: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing the scanner objects to: which rule, where (character offsets), how bad, and why in a few words."""

    rule: str
    span: tuple[int, int]
    severity: Literal["high", "medium"]
    why: str


class Who(StrEnum):
    """Whose hand made a change."""

    USER = "user"
    TOOL = "tool"
    REVIEW = "review"
    IMPORT = "import"
    HAND_EDIT = "hand edit"
    TIDY = "tidy"
    CURATOR = "curator"


class Origin(StrEnum):
    """Where the knowledge came from. Only the first two are trusted as they are."""

    USER_SAID = "user said"
    AGENT_CONCLUDED = "agent concluded"
    TOOL_OUTPUT = "tool output"
    WEB = "web"
    IMPORT = "import"

    @property
    def trusted(self) -> bool:
        return self in (Origin.USER_SAID, Origin.AGENT_CONCLUDED)


@dataclass(frozen=True, slots=True)
class Author:
    """Who makes a change, on what knowledge, and in which session and message."""

    who: Who = Who.USER
    origin: Origin = Origin.USER_SAID
    session: str | None = None
    message: int | None = None
