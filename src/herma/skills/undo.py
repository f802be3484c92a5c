"""Taking changes back: a file gets the content it had, a folder goes where it was. Nothing is ever deleted by it."""

from __future__ import annotations

from herma.errors import UsageError
from herma.ports.skills import SkillHistory
from herma.skills.catalogue import Catalogue
from herma.skills.writer import ARCHIVE, SkillWriter
from herma.types import Author, Skill, SkillChange, SkillOutcome, SkillRefused

_TAKEN_IN = ("found", "installed", "moved by hand")
"""Rows that only note what is there: there is nothing to take back."""


class Undoing:
    """Finds what to take back, and how."""

    def __init__(self, catalogue: Catalogue, history: SkillHistory, writer: SkillWriter) -> None:
        self._catalogue = catalogue
        self._history = history
        self._writer = writer

    def undo(self, change_id: int | None, name: str | None, author: Author) -> SkillOutcome:
        change = self.undoable(change_id, name)
        if change.file and not (change.before is None and change.file == "SKILL.md"):
            return self._writer.put_back(change, author)
        return self._move_back(change, author)

    def undoable(self, change_id: int | None, name: str | None) -> SkillChange:
        """What `undo` would take back; an error when there is no such thing."""
        change = self._newest_standing(name) if change_id is None else self._history.change(change_id)
        if change is None:
            what = "There is nothing to undo." if change_id is None else f"There is no change {change_id}."
            raise UsageError(what, hint="`herma skills log` lists the changes.")
        if change.undone_by is not None:
            redo = f"To bring it back, undo the undo: herma skills undo {change.undone_by}"
            raise UsageError(f"Change {change.id} is undone already.", hint=redo)
        if change.action in _TAKEN_IN:
            raise UsageError(
                f"Change {change.id} only notes what was done by hand or was there already.",
                hint="Archive the skill instead, or move it yourself.",
            )
        return change

    def _move_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """A skill that was made, installed or restored goes to the archive; an archived one comes back."""
        reason = f"takes back change {change.id}"
        if change.moved_to.startswith(f"{ARCHIVE}/"):
            kept = next((k for k in self._catalogue.folders.archived() if k.folder == change.moved_to), None)
            if kept is None:
                message = f"Change {change.id} cannot be undone: {change.moved_to} is not in the archive any more."
                return SkillRefused(name=change.skill, kind="overtaken", message=message)
            return self._writer.restore(kept, author, reason, change.id)
        skill = self._catalogue.resolve(change.path)
        if not isinstance(skill, Skill):
            message = f"Change {change.id} cannot be undone: {change.path} is not there any more."
            return SkillRefused(name=change.skill, kind="overtaken", message=message)
        return self._writer.archive(skill, author, reason, "undo", change.id)

    def _newest_standing(self, name: str | None) -> SkillChange | None:
        for limit in (20, None):
            for change in self._history.changes(name, limit=limit):
                if change.undoes is None and change.undone_by is None and change.action not in _TAKEN_IN:
                    return change
        return None
