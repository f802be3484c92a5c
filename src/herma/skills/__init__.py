"""Skills: procedures in SKILL.md files, ranked by use and success. Here: what attaches them to sessions and the index.

document     SKILL.md: front matter, body, compose, patch, template (pure)
find         which skills fit a task; scores, offers, near-duplicates
guard        scanner and install policy for skills from outside
library      SkillLibrary: read, write, archive, undo, approve, install
curator      stale, needs review, archive, report, rollback
files        folders, history, archives on disk
rows         skills, operations, outcomes, reports; history, usage, inbox in herma.db
cli          herma skills …
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from herma.features import Feature
from herma.index import Embeddable, Embeddables
from herma.types import MOVES, CompletedTurn, PromptContribution, PromptRequest, SessionView

if TYPE_CHECKING:
    from herma.app import Herma

KIND = "skill"
"""The kind of skills in the vector index."""
_WORKING = ("primary", "cron")
_FORM = "by sentences"
"""Version of the form in which skills become texts; a new one embeds them again."""
_LOOKED_AGAIN = 2.0


class SkillContributor(Feature):
    """Add the list of skills to the prompt of every session."""

    def __init__(self, app: Herma) -> None:
        self._app = app

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:  # noqa: ARG003
        settings = app.settings.skills
        there = app.settings.store.url or settings.external_dirs.strip() or (app.home / "skills").is_dir()
        some = settings.index_tokens and there
        return [cls(app)] if some else []

    def contribute(self, request: PromptRequest) -> PromptContribution:
        self._app.ensure_open()
        budget = min(self._app.settings.skills.index_tokens, request.system_tokens)
        return PromptContribution(skills=self._app.skills.prompt_index(budget, request.count))


class CuratorWatcher(Feature):
    """Run the curator in the background when a run is due and no session is active."""

    name = "the curator"

    def __init__(self, app: Herma) -> None:
        self._app = app

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:
        wanted = not preview and app.settings.curator.enabled and view.environment.context in _WORKING
        return [cls(app)] if wanted else []

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        self._later(view, ended=False)

    def closing(self, view: SessionView, reason: str) -> None:
        if reason not in MOVES and view.messages:
            self._later(view, ended=True)

    def _later(self, view: SessionView, *, ended: bool) -> None:
        if (self._app.home / "skills").is_dir():
            self._app.curator.later(view.id, ended=ended)


def skill_texts(app: Herma) -> Embeddables:
    """Embed skills: name, what it is for, and when; the whole and its sentences."""
    looked, stamp = -_LOOKED_AGAIN, ""

    def version() -> str:
        """Return a text that differs when the skills do. Look again every few seconds only: the index asks with every
        message.
        """
        nonlocal looked, stamp
        if time.monotonic() - looked >= _LOOKED_AGAIN:
            stamp, looked = f"{app.skills.listing().stamp} {_FORM}", time.monotonic()
        return stamp

    def texts() -> Iterator[Embeddable]:
        for key, text in app.skills.texts():
            yield Embeddable(key, text)

    return Embeddables(KIND, version, texts)
