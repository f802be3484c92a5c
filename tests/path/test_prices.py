"""What tokens cost, by model."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.homes import talk

from herma import Herma
from herma.errors import ConfigError
from herma.prompt.ledger import Prices, read_prices


def test_the_longest_beginning_of_a_models_name_counts() -> None:
    table = read_prices(Prices(1, 2), "gpt=3/4, gpt-4o=5/6")
    assert [table.of(model).input for model in ("gpt-4o-mini", "gpt-5", "other")] == [5, 3, 1]
    assert table.of("gpt-4o").cache_read == 0.1
    assert not read_prices(Prices(), "gpt=3/4").knows("other")


@pytest.mark.parametrize("rows", ["gpt", "gpt=3", "gpt=a/b", "=3/4", "gpt=-1/2", "gpt=1/inf", "gpt=1/2/3"])
def test_a_row_that_is_none_is_refused(rows: str) -> None:
    with pytest.raises(ConfigError):
        read_prices(Prices(), rows)


def test_money_is_added_up_by_model_and_unknown_where_one_is(home: Path) -> None:
    (home / "config.yaml").write_text("prices:\n  by_model: cheap=1/1, dear=100/100\n")
    with Herma.open(home) as h:
        for model in ("cheap-1", "dear-1"):
            with h.session(model=model) as session:
                talk(session, "hello", reply="hello")
        cheap, dear = (h.cost(session=one.session).total.cost for one in reversed(h.cost().sessions))
        assert cheap is not None
        assert dear == pytest.approx(100 * cheap, rel=0.3)
        assert h.cost().total.cost == pytest.approx(cheap + (dear or 0))
        with h.session(model="unknown") as session:
            talk(session, "hello", reply="hello")
        assert h.cost().total.cost is None
