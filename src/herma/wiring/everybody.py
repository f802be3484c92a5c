"""Who comes along in every session of an opened memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from herma.turn.company import Invite
from herma.wiring.company import together
from herma.wiring.compression import with_compression
from herma.wiring.curated import with_curated
from herma.wiring.curator import with_curator
from herma.wiring.episodes import with_episodes
from herma.wiring.ground import Ground
from herma.wiring.prefetch import with_prefetch
from herma.wiring.providers import with_provider
from herma.wiring.reflect import with_reviews
from herma.wiring.skills import with_skills

if TYPE_CHECKING:
    from herma.curated import MemoryStore
    from herma.episodes import Episodes
    from herma.facts import Facts
    from herma.providers.roster import Providers
    from herma.recall.prefetching import Prefetch
    from herma.reflect.curator import Curator
    from herma.reflect.reviews import Reviews
    from herma.skills import SkillLibrary
    from herma.tools import Tools
    from herma.transcript import Transcripts
    from herma.wiring.models import Models
    from herma.wiring.tidy import Tidy


class Whole(Protocol):
    """The opened memory; each part is made when it is needed."""

    @property
    def curator(self) -> Curator: ...

    @property
    def episodes(self) -> Episodes: ...

    @property
    def facts(self) -> Facts: ...

    @property
    def memory(self) -> MemoryStore: ...

    @property
    def models(self) -> Models: ...

    @property
    def prefetch(self) -> Prefetch: ...

    @property
    def providers(self) -> Providers: ...

    @property
    def reviews(self) -> Reviews: ...

    @property
    def skills(self) -> SkillLibrary: ...

    @property
    def tidy(self) -> Tidy: ...

    @property
    def tools(self) -> Tools: ...

    @property
    def transcripts(self) -> Transcripts: ...


def everybody(ground: Ground, whole: Whole) -> Invite:
    """Each of them, in this order."""
    return together(
        with_skills(ground, lambda: whole.skills),
        with_episodes(ground, lambda: whole.episodes),
        with_prefetch(ground, lambda: whole.prefetch, lambda: whole.facts),
        with_provider(ground, lambda: whole.providers, whole.tools.names),
        with_compression(ground, whole.transcripts, lambda: whole.models),
        with_reviews(ground, whole),
        with_curator(ground, lambda: whole.curator),
        with_curated(ground, lambda: whole.memory, lambda: whole.tidy),
    )
