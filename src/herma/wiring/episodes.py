"""Episodes: their tables under the keeper, and how they follow sessions and are embedded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from herma.episodes import Episodes
from herma.episodes.finding import KIND, scope_key
from herma.episodes.keeper import Tables
from herma.episodes.similar import Language
from herma.episodes.verdict import Verdict
from herma.episodes.watch import EpisodeContributor, EpisodeWatcher
from herma.ports.episodes import EpisodeFilter
from herma.recall.stem import stem
from herma.recall.stopwords import STOP_WORDS
from herma.store.sqlite.episodes import SqliteEpisodes
from herma.store.sqlite.glimpses import SqliteGlimpses
from herma.turn.company import Company, Invite
from herma.types import SessionView
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.ports.vectors import Embeddable, VectorIndex

_AT_A_TIME = 500


def episodes(
    ground: Ground,
    vectors: Callable[[], VectorIndex | None] = lambda: None,
    judged: Callable[[str, Verdict], None] = lambda _name, _verdict: None,
) -> Episodes:
    rows = SqliteEpisodes(ground.database)
    return Episodes(
        Tables(rows, rows, rows, SqliteGlimpses(ground.database)),
        profile=ground.settings.profile,
        most=ground.settings.episodes.max,
        language=Language(STOP_WORDS, stem),
        vectors=vectors,
        clock=ground.clock,
        alive=ground.alive,
        judged=judged,
    )


def with_episodes(ground: Ground, kept: Callable[[], Episodes]) -> Invite:
    """In every session: the best episodes in its prompt, and one more at its end."""
    shown = ground.settings.episodes.shown

    def invite(view: SessionView, rehearsal: bool) -> Company:  # noqa: ARG001
        return Company([EpisodeWatcher(kept)], [EpisodeContributor(kept, ground.clock, shown)])

    return invite


@dataclass(frozen=True, slots=True)
class EpisodeTexts:
    """Live episodes as the vector index takes them: what was wanted and what came of it."""

    rows: SqliteEpisodes
    kind: str = KIND

    def version(self) -> str:
        return self.rows.version()

    def texts(self) -> Iterator[Embeddable]:
        from herma.ports.vectors import Embeddable

        offset = 0
        while some := self.rows.select(EpisodeFilter(), _AT_A_TIME, offset):
            offset += len(some)
            for one in some:
                text = "\n".join(filter(None, (one.task, one.result, one.error)))
                yield Embeddable(str(one.id), text, scope_key(one.scope))


def episode_texts(ground: Ground) -> EpisodeTexts:
    return EpisodeTexts(SqliteEpisodes(ground.database))
