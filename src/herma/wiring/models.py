"""Which models there are: the main one, the auxiliary one for background work, and the meter before the latter."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.errors import UsageError
from herma.models.chat.choose import Role, endpoint_of
from herma.models.chat.endpoint import Endpoint
from herma.parts import part
from herma.ports import ChatModel
from herma.prompt.ledger import Prices
from herma.wiring.ground import Ground

if TYPE_CHECKING:
    from herma.models.chat.remote import RemoteModel, Retry
    from herma.reflect.pauses import Pauses
    from herma.reflect.spend import Meter, SpendReport
    from herma.reflect.spend_history import SpendHistory
    from herma.turn.prices import PriceTable
    from herma.wiring.counted import CountedModel

WITHOUT = (
    "Without a model everything is kept and found as usual; with one, `herma chat` answers, long conversations are "
    "summed up in words, and what is worth remembering is learnt from them by itself."
)
"""What a model would add."""
PURPOSES = (
    *("review", "memory_update", "compress", "episodes", "skills", "tidy", "boundary", "title", "curate"),
    *("search_summary", "query_expansion", "eval"),
)
"""What background work there is."""
__all__ = ["PURPOSES", "WITHOUT", "Models", "Role"]


class Models:
    """The models that the settings name. Nothing is opened before one is asked."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._made: dict[Endpoint, RemoteModel] = {}
        self._watched: dict[tuple[RemoteModel, str], CountedModel] = {}

    def get(
        self, role: Role = "main", *, purpose: str | None = None, on_retry: Callable[[Retry], None] | None = None
    ) -> ChatModel | None:
        """The model of a role; `None` if there is none, and `why_not` says why.

        With a `purpose`, it is for work that nobody asked for, and behind the meter; the auxiliary model is for such
        work only. `on_retry` is told before the model is asked again.
        """
        self._ground.alive()
        if role == "auxiliary" and purpose is None:
            raise UsageError(
                "The auxiliary model is for background work, which has a purpose.",
                hint=f"Say which: {', '.join(PURPOSES)}.",
            )
        if purpose is not None and purpose not in PURPOSES:
            raise UsageError(f"{purpose!r} is no purpose of background work.", hint=f"There are {', '.join(PURPOSES)}.")
        where = self.endpoint(role)
        if where is None:
            return None
        model = self._counted(self.client(where, on_retry), purpose or "answering")
        if purpose is None:
            return model
        from herma.reflect.pauses import RestingModel

        return RestingModel(model, self.meter, purpose, self.pauses)

    def why_not(self, role: Role = "main") -> str:
        """Why there is no such model, what it would add and how to set one; "" if there is one."""
        if self.endpoint(role) is not None:
            return ""
        model = self._ground.settings.model
        missing = (
            "model.url" if model.name and not model.url else "model.name" if model.url else "model.url and model.name"
        )
        how = "herma config set model.url ollama, and herma config set model.name NAME"
        return f"No model is set ({missing}: empty). {WITHOUT} To set one: {how}."

    def endpoint(self, role: Role = "main") -> Endpoint | None:
        """Where the model of a role is; `None` if the settings name none."""
        return endpoint_of(self._ground.settings, role)

    @part
    def meter(self) -> Meter:
        """What background work may spend, and has spent."""
        from herma.wiring.spending import meter

        return meter(self._ground, self.price_of)

    @part
    def pauses(self) -> Pauses:
        """Which background work rests, because a model's answers could not be used."""
        from herma.reflect.pauses import Pauses
        from herma.store.pause_file import PauseFile

        return Pauses(PauseFile(self._ground.home), self._ground.clock)

    def spending(self, since: float | None = None) -> SpendReport:
        """What background work took today, and since then."""
        self._ground.alive()
        return self.meter.report(since)

    def spending_history(self, *, days: int = 30, calls: int = 20) -> SpendHistory:
        """What background work took, day by day; its newest calls; and what the cap stopped in these days."""
        self._ground.alive()
        from herma.wiring.spending import spending_history

        return spending_history(self._ground, days=days, calls=calls)

    @part
    def _prices(self) -> PriceTable:
        from herma.turn.prices import read_prices

        given = self._ground.settings.prices
        return read_prices(Prices(given.input, given.output, given.cache_read, given.cache_write), given.by_model)

    def price_of(self, model: str) -> Prices | None:
        """What a model's tokens cost; `None` where that is not known."""
        return self._prices.of(model) if self._prices.knows(model) else None

    def _counted(self, model: RemoteModel, what: str) -> CountedModel:
        """The same, whose failures are written down. What is kept for the next question stays one and the same."""
        from herma.wiring.counted import CountedModel
        from herma.wiring.troubles import written_down

        watched = CountedModel(model, written_down(self._ground), what)
        return self._watched.setdefault((model, what), watched) if model in self._made.values() else watched

    def client(self, where: Endpoint, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
        """What speaks with this place. Not behind the meter: for what somebody asked for."""
        if on_retry is None and where in self._made:
            return self._made[where]
        if where.kind == "anthropic":
            from herma.models.chat.anthropic_messages import anthropic_model

            model = anthropic_model(where, on_retry=on_retry)
        else:
            from herma.models.chat.openai_compatible import openai_model

            model = openai_model(where, on_retry=on_retry)
        if on_retry is None:
            self._made[where] = model
        return model
