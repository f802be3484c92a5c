"""What every part stands on: the settings, the clock, the database, and whether the memory is still open."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.parts import part

if TYPE_CHECKING:
    from pathlib import Path

    from herma.config import Settings
    from herma.ports import Embedder
    from herma.store.sqlite.database import Database


class Ground:
    """Given to each function of this folder."""

    def __init__(
        self,
        settings: Settings,
        clock: Callable[[], float],
        alive: Callable[[], None],
        embedder: Embedder | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.alive = alive
        self._given_embedder = embedder

    @property
    def home(self) -> Path:
        return self.settings.home

    @property
    def embedder_given(self) -> bool:
        """Whether the embedder is the caller's own."""
        return self._given_embedder is not None

    @part
    def database(self) -> Database:
        """`herma.db`; opened with its first statement."""
        from herma.store.sqlite.database import Database

        return Database(self.home / "herma.db", busy_timeout=self.settings.memory.lock_timeout)

    @part
    def embedder(self) -> Embedder | None:
        """What turns texts into vectors: what was given, else what the settings name, if that is anything. Raises
        `EmbedderError` where one is asked for by name and is not there.
        """
        if self._given_embedder is not None:
            return self._given_embedder
        from herma.errors import EmbedderError
        from herma.models.embedding.choose import make_embedder

        choice = make_embedder(self.settings.embedding, home=self.home)
        if choice.embedder is None and choice.wanted:
            raise EmbedderError(f"{choice.reason}.")
        return choice.embedder

    def close(self) -> None:
        if "database" in self.__dict__:
            self.database.close()
