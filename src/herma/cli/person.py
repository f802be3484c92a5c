"""Who sits at the keyboard: a person, or an agent that started this program."""

from __future__ import annotations

import os

from herma.errors import UsageError
from herma.types import Author, Origin, Who

AGENT_MARKERS = ("HERMA_SESSION", "CLAUDECODE", "CODEX_SANDBOX", "CURSOR_AGENT", "GEMINI_CLI", "AI_AGENT")
"""Variables that agents set for the programs they start."""


def agent_marker() -> str | None:
    """The variable that says an agent started this program, if there is one."""
    return next((name for name in AGENT_MARKERS if os.environ.get(name)), None)


def author() -> Author:
    """Who makes a change: a person at a terminal, or the agent that started this program."""
    if agent_marker() is None:
        return Author()
    return Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=os.environ.get("HERMA_SESSION") or None)


def for_people_only(what: str) -> None:
    """Refuse to go on inside an agent: it must not decide on, or vouch for, what it wrote itself."""
    marker = agent_marker()
    if marker is not None:
        raise UsageError(
            f"{what} belongs to a person's own terminal; this one was started by an agent ({marker} is set).",
            hint="Type the command yourself, in a terminal that no agent started.",
        )
