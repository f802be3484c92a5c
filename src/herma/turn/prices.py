"""What tokens cost, by model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from herma.errors import ConfigError
from herma.prompt.ledger import FREE, Prices


@dataclass(frozen=True, slots=True)
class PriceTable:
    """Prices by the beginning of a model's name; `usual` for every other model."""

    usual: Prices = FREE
    by_model: Mapping[str, Prices] = field(default_factory=dict)

    def of(self, model: str) -> Prices:
        """The prices of a model: the longest beginning that fits its name counts."""
        fitting = [start for start in self.by_model if model.startswith(start)]
        return self.by_model[max(fitting, key=len)] if fitting else self.usual

    def knows(self, model: str) -> bool:
        prices = self.of(model)
        return prices.input > 0 or prices.output > 0


def read_prices(usual: Prices, by_model: str) -> PriceTable:
    """A table from configuration: `claude-opus=15/75, gpt-4o=2.5/10`, input and output per million tokens."""
    table: dict[str, Prices] = {}
    for row in filter(None, map(str.strip, by_model.split(","))):
        model, _, money = (part.strip() for part in row.partition("="))
        try:
            paid_in, paid_out = (float(part) for part in money.split("/"))
        except ValueError:
            paid_in = paid_out = -1.0
        if not model or not (0 <= paid_in < float("inf") and 0 <= paid_out < float("inf")):
            raise ConfigError(
                f"prices.by_model has {row!r}, which is not a model with its two prices.",
                hint="For example: herma config set prices.by_model 'claude-opus=15/75, gpt-4o=2.5/10'",
            )
        table[model] = replace(usual, input=paid_in, output=paid_out)
    return PriceTable(usual, table)
