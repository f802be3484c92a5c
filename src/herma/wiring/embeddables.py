"""What is embedded besides transcripts: one line for every keeper whose texts are to be found by meaning."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from herma.curated.entries import parse
from herma.ports import Place
from herma.ports.vectors import Embeddable, Embeddables
from herma.store.files import CuratedFiles
from herma.store.sqlite.curated import CuratedRows
from herma.store.sqlite.passages import SqlitePassages
from herma.wiring.episodes import episode_texts
from herma.wiring.ground import Ground
from herma.wiring.skills import SkillTexts, skill_library
from herma.wiring.tidy import tail_texts

ENTRY = "entry"
"""The kind of curated entries: their keys are target, project, user and text, their scope is that of episodes."""
SEAM = "\x1f"


def embeddables(ground: Ground) -> list[Embeddables]:
    library = skill_library(ground)
    return [curated_texts(ground), episode_texts(ground), SkillTexts(lambda: library), tail_texts(ground)]


@dataclass(frozen=True, slots=True)
class CuratedTexts:
    """Entries of every document of this home that was ever written to, and of the home's own."""

    files: CuratedFiles
    passages: SqlitePassages
    profile: str
    kind: str = ENTRY

    def version(self) -> str:
        return repr([(place, self.files.stamp(place)) for place in self._places()])

    def texts(self) -> Iterator[Embeddable]:
        for place in self._places():
            for entry in dict.fromkeys(parse(self.files.read(place).text)):
                key = SEAM.join((place.target, place.project, place.user, entry))
                yield Embeddable(key, entry, f"{place.profile}\0{place.user}")

    def _places(self) -> list[Place]:
        own = [Place("memory", self.profile), Place("user", self.profile)]
        return list(dict.fromkeys((*own, *self.passages.places())))


def curated_texts(ground: Ground) -> CuratedTexts:
    files = CuratedFiles(ground.home, CuratedRows(ground.database), clock=ground.clock)
    return CuratedTexts(files, SqlitePassages(ground.database), ground.settings.profile)
