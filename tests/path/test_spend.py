"""The meter for background work: a hard cap per day that holds across threads, processes and crashes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import (
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    SpendRefused,
    StoreError,
)
from herma.models.apis import remote_model
from herma.models.client import ChatModel
from herma.models.endpoints import Endpoint
from herma.models.models import (
    DAY,
    Caps,
    MeteredModel,
    Refused,
    SpendingMeter,
    SpendRows,
    Spent,
    cost_of,
    decide,
    spent_by,
    tokens_of,
)
from herma.prompt.ledger import Prices
from herma.store.sqlite import SqliteDatabase
from herma.testing import Answer, FixedClock, ScriptedModel
from herma.types import Usage

HI = [{"role": "user", "content": "hi"}]
CHEAP = Prices(input=1.0, output=10.0)


@contextmanager
def opened(home: Path) -> Iterator[SpendRows]:
    database = SqliteDatabase(home / "herma.db")
    try:
        yield SpendRows(database)
    finally:
        database.close()


@pytest.fixture
def rows(home: Path) -> Iterator[SpendRows]:
    with opened(home) as made:
        yield made


def meter(rows: SpendRows, usd: float | None = 1.0, tokens: int | None = 100_000, **options: Any) -> SpendingMeter:
    return SpendingMeter(rows, Caps(usd, tokens), clock=options.pop("clock", FixedClock()), **options)


# ── deciding ──


@pytest.mark.parametrize(
    ("spent", "tokens", "usd", "caps", "said", "wait"),
    [
        (Spent(), 1000, None, Caps(None, 10), "review may need 1,000, the whole day has 10 tokens", False),
        (Spent(1, 5, 0.2), 5, 3.0, Caps(1.0), "review may need 3.0000, the whole day has 1.00 USD", False),
        (Spent(1, 5, 0.2), 8, None, Caps(None, 10), "5 of 10 tokens used, review may need 8", True),
        (Spent(1, 5, 0.9), 8, 0.2, Caps(1.0, 100), "0.9000 of 1.00 USD used, review may need 0.2000", True),
        (Spent(), 1, None, Caps(0.0, 10), "switched off", True),
    ],
)
def test_a_refusal_says_what_was_used_and_what_helps(
    spent: Spent, tokens: int, usd: float | None, caps: Caps, said: str, wait: bool
) -> None:
    refused = decide(spent, "review", tokens, usd, caps)
    assert refused is not None
    assert said in refused.notice
    assert ("tomorrow" in refused.hint) == wait


@given(
    st.builds(Spent, st.integers(0, 99), st.integers(0, 10**6), st.floats(0, 100)),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.floats(0, 50)),
    st.builds(Caps, st.one_of(st.none(), st.floats(0, 50)), st.one_of(st.none(), st.integers(0, 10**6))),
)
def test_what_is_allowed_fits_under_the_cap(spent: Spent, tokens: int, usd: float | None, caps: Caps) -> None:
    refused = decide(spent, "a", tokens, usd, caps)
    fits = (caps.tokens is None or spent.tokens + tokens <= caps.tokens) and (
        caps.usd is None or usd is None or spent.usd + usd <= caps.usd
    )
    assert (refused is None) == (fits and not caps.off)
    if refused is not None:
        assert refused.notice.endswith(".")
        assert refused.hint.endswith(".")


def test_money() -> None:
    usage = Usage(input=1_000_000, output=100_000, cache_read=1_000_000, cache_write=1_000_000, reasoning=9)
    assert cost_of(usage, Prices(2.0, 10.0, 0.1, 1.25)) == pytest.approx(2.0 + 0.2 + 2.5 + 1.0)
    assert cost_of(Usage(input=1, cost_usd=0.5), CHEAP) == 0.5
    assert cost_of(usage, None) is None
    assert tokens_of(usage) == 3_100_000


@pytest.mark.parametrize(
    ("error", "taken"),
    [
        (ModelRefused("x"), Usage()),
        (ModelUnreachable("x"), Usage()),
        (ModelCancelled("x", partial="four"), Usage(10, 4)),
        (ModelBroken("x", partial="x" * 99), Usage(10, 20)),
        (ModelBroken("x"), Usage(10, 20)),
        (ModelTimeout("x", partial="four"), Usage(10, 20)),
        (ModelCancelled("x"), Usage(10, 20)),
    ],
)
def test_what_failures_take(error: ModelError, taken: Usage) -> None:
    assert spent_by(error, Usage(10, 20), len) == taken


# ── reserving and settling ──


def test_a_reservation_counts_until_the_real_cost_is_known(rows: SpendRows) -> None:
    one = meter(rows, tokens=1000, price_of=lambda _: CHEAP)
    held = one.reserve("review", "m", Usage(input=400, output=200))
    assert isinstance(held, int)
    refused = one.reserve("tidy", "m", Usage(input=401))
    assert isinstance(refused, Refused)
    assert (refused.limit, refused.spent.tokens, refused.spent.open) == ("tokens", 600, 1)
    one.settle(held, "m", Usage(input=100, output=50, cache_read=10))
    assert isinstance(one.reserve("tidy", "m", Usage(input=401)), int)
    report = one.report()
    review, tidy = report.spent_today["review"], report.spent_today["tidy"]
    assert (review, tidy) == (Spent(1, 160, review.usd), Spent(1, 401, tidy.usd, 0, 1))
    assert review.usd == pytest.approx(100e-6 + 500e-6 + 1e-6)
    assert tidy.usd == pytest.approx(401e-6 * 1.25)
    assert (report.total_today.calls, report.total_since.tokens) == (2, 561)


def test_money_is_capped_too_and_an_unknown_price_is_not(rows: SpendRows, home: Path) -> None:
    for usd, tokens in ((0.0, 1000), (1.0, 0)):
        off = meter(rows, usd, tokens).reserve("review", "m", Usage())
        assert isinstance(off, Refused)
        assert (off.limit, list(home.iterdir())) == ("off", []), "zero switches it off and opens nothing"
    priced = meter(rows, usd=0.001, price_of=lambda name: CHEAP if name == "dear" else None)
    refused = priced.reserve("review", "dear", Usage(input=10, output=100))
    assert isinstance(refused, Refused)
    assert refused.limit == "money"
    assert isinstance(priced.reserve("review", "unknown", Usage(input=10, output=100)), int)
    assert priced.report().total_today.unpriced == 1


def test_a_new_day_has_room_again(rows: SpendRows, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        clock = FixedClock(time.mktime((2026, 3, 5, 23, 59, 0, 0, 0, -1)))
        one = meter(rows, tokens=100, clock=clock)
        assert isinstance(one.reserve("review", "m", Usage(input=100)), int)
        assert isinstance(one.reserve("review", "m", Usage(input=1)), Refused)
        clock.advance(120)
        assert isinstance(one.reserve("review", "m", Usage(input=100)), int)
        report = one.report()
        assert (report.today, report.since) == ("2026-03-06", "2026-03-05")
        assert (report.total_today.tokens, report.total_since.tokens) == (100, 200)
        assert one.report(clock.now).total_since.tokens == 100
        assert one.report(clock.now + 9 * DAY).total_since.tokens == 0
    finally:
        monkeypatch.undo()
        time.tzset()


# ── behind the meter ──


def behind(meter_: SpendingMeter, server: ScriptedModel) -> MeteredModel:
    return MeteredModel(remote_model(Endpoint(server.url, "m", retries=0)), meter_, "review")


def test_a_metered_model_answers_and_is_counted(rows: SpendRows, server: ScriptedModel) -> None:
    one = meter(rows)
    model: ChatModel = behind(one, server)
    server.then(Answer("Yes.", usage=Usage(3, 2, 1)), Answer("No.", says_usage=False))
    said: list[str] = []
    assert model.reply(HI, on_text=said.append).text == "".join(said) == "Yes."
    assert server.requests[0].body["max_tokens"] == 4096
    assert one.report().spent_today["review"] == Spent(1, 6, 0.0, 1, 0)
    model.reply(HI, max_tokens=50)  # a server that does not say what it took: the most that it may have
    assert 6 + 50 < one.report().spent_today["review"].tokens < 6 + 50 + 20
    assert one.report().spent_today["review"].estimated == 1


def test_a_failed_call_is_estimated_unless_it_cost_nothing(rows: SpendRows, server: ScriptedModel) -> None:
    one = meter(rows)
    model = behind(one, server)
    server.then(Answer.failing(401, "no"), Answer("Half an answer", piece=2, broken_after=3), Answer("Yes."))
    for _ in range(2):
        with pytest.raises(ModelError):
            model.reply(HI)
    model.reply(HI)
    today = one.report().total_today
    assert (today.calls, today.estimated, today.open) == (3, 1, 0)
    assert [call.estimated for call in rows.newest(9)] == [False, True, False]


def test_at_the_cap_the_model_is_not_asked(rows: SpendRows, server: ScriptedModel) -> None:
    model = behind(meter(rows, tokens=100), server)
    with pytest.raises(SpendRefused, match="daily cap") as caught:
        model.reply(HI)
    assert "spend.daily_tokens" in caught.value.hint
    assert server.requests == []


def test_an_answer_is_not_lost_when_its_cost_cannot_be_written(
    rows: SpendRows, server: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(SpendRows):
        def settle(self, number: int, tokens: int, usd: float | None, usage: Usage, *, estimated: bool = False) -> None:
            raise StoreError("The disk is full.")

    full = Full(rows._db)
    server.then("Yes.")
    assert behind(meter(full), server).reply(HI).text == "Yes."
    assert "was not recorded" in caplog.text
    assert meter(rows).report().total_today.open == 1


# ── many at once ──


def spend_until_refused(home: Path, done: Any) -> None:
    with opened(home) as rows:
        one = meter(rows, tokens=1000)
        made = 0
        while isinstance(held := one.reserve("review", "m", Usage(input=10)), int):
            one.settle(held, "m", Usage(input=10))
            made += 1
        done.put(made)


def test_processes_and_threads_share_one_cap(home: Path) -> None:
    context = multiprocessing.get_context("spawn")
    done = context.Queue()
    work: list[Any] = [context.Process(target=spend_until_refused, args=(home, done)) for _ in range(2)]
    work += [threading.Thread(target=spend_until_refused, args=(home, done)) for _ in range(2)]
    for one in work:
        one.start()
    made = [done.get(timeout=60) for _ in range(4)]
    for one in work:
        one.join()
    done.close()
    assert sum(made) == 100
    with opened(home) as rows:
        assert meter(rows).report().total_today.tokens == 1000


def reserve_and_die(home: Path) -> None:
    with opened(home) as rows:
        meter(rows).reserve("review", "m", Usage(input=700))
        os.kill(os.getpid(), signal.SIGKILL)


def test_a_crash_between_reserving_and_settling_counts_the_reservation(home: Path) -> None:
    process = multiprocessing.get_context("spawn").Process(target=reserve_and_die, args=(home,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    with opened(home) as rows:
        one = meter(rows, tokens=1000)
        assert one.report().spent_today["review"] == Spent(1, 700, 0.0, 1, 1)
        assert isinstance(one.reserve("review", "m", Usage(input=301)), Refused)
