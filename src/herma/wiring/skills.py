"""Skills: folders and rows under the keeper, what they add to prompts, and how they are embedded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herma.turn.company import Company, Invite
from herma.types import Contribution, Occasion, SessionView
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.ports.vectors import Embeddable, VectorIndex
    from herma.skills import SkillLibrary
    from herma.skills.catalogue import Surroundings
    from herma.skills.find import Nearest
    from herma.skills.meaning import Meanings
    from herma.store.skill_files import SkillFiles
    from herma.store.sqlite.skills import SkillRows

KIND = "skill"
_ALL = 20_000
_FORM = "by sentences"
"""How skills are made into texts; another form is embedded anew though no file changed."""
_LOOKED_AGAIN = 2.0


def skill_library(ground: Ground, vectors: Callable[[], VectorIndex | None] = lambda: None) -> SkillLibrary:
    from herma.recall.stem import stem
    from herma.recall.stopwords import STOP_WORDS
    from herma.skills import SkillLibrary
    from herma.skills.catalogue import Catalogue
    from herma.skills.find import SkillFinder
    from herma.skills.terms import Terms
    from herma.store.skill_incoming import read_incoming
    from herma.store.skill_writing import SkillFileWriting
    from herma.store.sqlite.skills import SkillRows, SqliteSkillInbox, SqliteSkillUsage

    settings, profile = ground.settings, ground.settings.profile
    rows = SkillRows(ground.database, profile)
    usage = SqliteSkillUsage(ground.database, profile)
    catalogue = Catalogue(_folders(ground, rows), usage, _surroundings(settings.skills.tools))
    return SkillLibrary(
        catalogue,
        SkillFileWriting(ground.home, rows, lock_timeout=settings.memory.lock_timeout, clock=ground.clock),
        rows,
        SqliteSkillInbox(ground.database, profile),
        usage,
        SkillFinder(catalogue, Terms(stem, STOP_WORDS), _nearest(vectors)),
        clock=ground.clock,
        write_approval=settings.skills.write_approval,
        inbox_days=settings.memory.inbox_days,
        read=read_incoming,
        alive=ground.alive,
    )


def with_skills(ground: Ground, library: Callable[[], SkillLibrary]) -> Invite:
    """In every session: the list of skills in its prompt."""
    settings = ground.settings.skills

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        some = settings.index_tokens and (settings.external_dirs.strip() or (ground.home / "skills").is_dir())
        return Company(contributors=[SkillContributor(library, settings.index_tokens)] if some else [])

    return invite


@dataclass(frozen=True, slots=True)
class SkillContributor:
    """Adds the list of skills to a prompt."""

    library: Callable[[], SkillLibrary]
    budget: int

    def contribute(self, occasion: Occasion) -> Contribution:
        from herma.skills.prompt_index import prompt_index

        library = self.library()
        usage = library.usage()
        usable = [s for s in library.list() if (known := usage.get(s.name)) is None or known.state != "archived"]
        budget = min(self.budget, occasion.system_tokens)
        return Contribution(skills=prompt_index(usable, usage, budget, occasion.count))


class SkillTexts:
    """Skills as the vector index takes them: name, what it is for, and when; the whole and its sentences."""

    kind = KIND

    def __init__(self, library: Callable[[], SkillLibrary]) -> None:
        self._library = library
        self._looked = (-_LOOKED_AGAIN, "")

    def version(self) -> str:
        """Looked at anew every few seconds: it is asked for with every message that is indexed."""
        at, stamp = self._looked
        if time.monotonic() - at >= _LOOKED_AGAIN:
            stamp = f"{self._library().shelf().stamp} {_FORM}"
            self._looked = (time.monotonic(), stamp)
        return stamp

    def texts(self) -> Iterator[Embeddable]:
        from herma.ports.vectors import Embeddable
        from herma.skills.meaning import texts_for_meaning

        for skill in self._library().shelf().skills:
            for key, text in texts_for_meaning(skill).items():
                yield Embeddable(key, text)


def _folders(ground: Ground, rows: SkillRows) -> SkillFiles:
    from herma.skills.document import read_skill
    from herma.store.skill_files import SkillFiles, external_folders

    return SkillFiles(
        ground.home, rows, read_skill, external_folders(ground.home, ground.settings.skills.external_dirs)
    )


def _surroundings(tools: str) -> Surroundings:
    from herma.skills.catalogue import Surroundings

    named = frozenset(part.strip() for part in tools.split(",") if part.strip())
    return Surroundings(tools=named or None)


def _nearest(vectors: Callable[[], VectorIndex | None]) -> Nearest:
    def nearest(task: str, count: int) -> Meanings | None:
        from herma.skills.meaning import Meanings, by_path

        index = vectors()
        state = index.state() if index is not None else None
        if index is None or state is None or not state.ready:
            return None
        found = index.near(task, max(count, _ALL), kinds=(KIND,))
        cosines = by_path((hit.key, hit.score) for hit in found.hits)
        return Meanings(cosines, found.notes, state.model) if cosines else None

    return nearest
