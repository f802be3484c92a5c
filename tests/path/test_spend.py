"""The meter for background work: a hard cap per day that holds across threads, processes and crashes."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import (
    ConfigError,
    ModelBroken,
    ModelCancelled,
    ModelError,
    ModelRefused,
    ModelTimeout,
    ModelUnreachable,
    SpendRefused,
    StoreError,
)
from herma.models.client import ChatModel
from herma.models.endpoints import Endpoint
from herma.models.openai import openai_model
from herma.prompt.ledger import Prices
from herma.review.spending import (
    Cap,
    Caps,
    Meter,
    MeteredModel,
    Refused,
    Reserved,
    SpendRows,
    Spent,
    SqliteSpend,
    add,
    cost_of,
    decide,
    read_caps,
    spent_by,
    tokens_of,
)
from herma.store.database import Database
from herma.testing import Answer, FixedClock, ScriptedModel
from herma.types import Usage

HI = [{"role": "user", "content": "hi"}]
CHEAP = Prices(input=1.0, output=10.0)
DAY = 24 * 3600.0


@contextmanager
def opened(home: Path) -> Iterator[SqliteSpend]:
    database = Database(home / "herma.db")
    try:
        yield SqliteSpend(database)
    finally:
        database.close()


@pytest.fixture
def rows(home: Path) -> Iterator[SqliteSpend]:
    with opened(home) as made:
        yield made


def meter(rows: SpendRows, usd: float | None = 1.0, tokens: int | None = 100_000, **options: Any) -> Meter:
    return Meter(rows, Caps(Cap(usd, tokens)), clock=options.pop("clock", FixedClock()), **options)


# ── deciding ──


SPENT = st.builds(Spent, st.integers(0, 99), st.integers(0, 10**6), st.floats(0, 100))
CAP = st.builds(Cap, st.one_of(st.none(), st.floats(0, 50)), st.one_of(st.none(), st.integers(0, 10**6)))


def test_what_an_empty_day_has_no_room_for_is_said_so(rows: SqliteSpend) -> None:
    one = meter(rows, tokens=10)
    refused = one.reserve("review", "m", Usage(input=900, output=100))
    assert isinstance(refused, Refused)
    assert refused.notice.endswith("review: it may take 1,000 tokens, and the whole day has 10.")
    assert "tomorrow" not in refused.hint, "waiting does not help"
    dear = decide({"a": Spent(1, 5, 0.2)}, "review", 5, 3.0, Caps(Cap(1.0, None)))
    assert dear is not None
    assert "it may take 3.0000 USD, and the whole day has 1.00" in dear.notice
    full = decide({"a": Spent(1, 5, 0.2)}, "review", 8, None, Caps(Cap(None, 10)))
    assert full is not None
    assert "5 of 10 tokens used" in full.notice
    assert "tomorrow" in full.hint


@given(
    st.dictionaries(st.sampled_from("abc"), SPENT),
    st.integers(0, 10**6),
    st.one_of(st.none(), st.floats(0, 50)),
    CAP,
    CAP,
)
def test_what_is_allowed_fits_under_every_cap(
    spent: dict[str, Spent], tokens: int, usd: float | None, all_: Cap, own: Cap
) -> None:
    refused = decide(spent, "a", tokens, usd, Caps(all_, {"a": own}))
    total, mine = add(spent.values()), spent.get("a", Spent())
    fits = all(
        (cap.tokens is None or used.tokens + tokens <= cap.tokens)
        and (cap.usd is None or usd is None or used.usd + usd <= cap.usd)
        for cap, used in ((all_, total), (own, mine))
    )
    switched_off = all_.usd == 0 or all_.tokens == 0
    assert (refused is None) == (fits and not switched_off)
    if refused is not None:
        assert refused.notice.endswith(".")
        assert refused.hint.endswith(".")
        assert "a" in refused.notice


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


def test_caps_are_read() -> None:
    caps = read_caps(0.5, 1000, " review=0.10, tidy=50t,tidy=1 ")
    assert caps == Caps(Cap(0.5, 1000), {"review": Cap(0.10), "tidy": Cap(1.0, 50)})
    for wrong in ("review", "=1", "review=x", "review=-1", "review=nan", "review=inf"):
        with pytest.raises(ConfigError, match=r"spend\.by_purpose"):
            read_caps(1, 1, wrong)


# ── reserving and settling ──


def test_a_reservation_counts_until_what_was_taken_is_known(rows: SqliteSpend) -> None:
    one = meter(rows, tokens=1000, price_of=lambda _: CHEAP)
    held = one.reserve("review", "m", Usage(input=400, output=200))
    assert isinstance(held, Reserved)
    refused = one.reserve("tidy", "m", Usage(input=401))
    assert isinstance(refused, Refused)
    assert (refused.limit, refused.spent.tokens, refused.spent.open) == ("tokens", 600, 1)
    assert "600 of 1,000 tokens" in refused.notice
    assert one.refusal("tidy", "m", Usage(input=401)) == refused
    one.settle(held, Usage(input=100, output=50, cache_read=10))
    assert isinstance(one.reserve("tidy", "m", Usage(input=401)), Reserved)
    report = one.report()
    review, tidy = report.spent_today["review"], report.spent_today["tidy"]
    assert (review, tidy) == (Spent(1, 160, review.usd), Spent(1, 401, tidy.usd, 0, 1))
    assert review.usd == pytest.approx(100e-6 + 500e-6 + 1e-6)
    assert tidy.usd == pytest.approx(401e-6 * 1.25)
    assert (report.total_today.calls, report.total_since.tokens) == (2, 561)


def test_money_is_capped_too_and_an_unknown_price_is_not(rows: SqliteSpend) -> None:
    priced = meter(rows, usd=0.001, price_of=lambda name: CHEAP if name == "dear" else None)
    refused = priced.reserve("review", "dear", Usage(input=10, output=100))
    assert isinstance(refused, Refused)
    assert refused.limit == "money"
    assert "USD" in refused.notice
    assert isinstance(priced.reserve("review", "unknown", Usage(input=10, output=100)), Reserved)
    assert priced.report().total_today.unpriced == 1


def test_purposes_have_caps_of_their_own(rows: SqliteSpend) -> None:
    one = Meter(rows, Caps(Cap(1.0, 1000), {"tidy": Cap(tokens=10)}), clock=FixedClock())
    refused = one.reserve("tidy", "m", Usage(input=11))
    assert isinstance(refused, Refused)
    assert refused.own
    assert "spend.by_purpose" in refused.hint
    assert isinstance(one.reserve("review", "m", Usage(input=11)), Reserved)


@pytest.mark.parametrize(("usd", "tokens"), [(0.0, 1000), (1.0, 0)])
def test_zero_switches_it_off_and_opens_nothing(home: Path, usd: float, tokens: int) -> None:
    with opened(home) as rows:
        refused = meter(rows, usd, tokens).reserve("review", "m", Usage())
    assert isinstance(refused, Refused)
    assert refused.limit == "off"
    assert list(home.iterdir()) == []


def test_a_new_day_has_room_again(rows: SqliteSpend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Pacific/Auckland")
    time.tzset()
    try:
        clock = FixedClock(time.mktime((2026, 3, 5, 23, 59, 0, 0, 0, -1)))
        one = meter(rows, tokens=100, clock=clock)
        assert isinstance(one.reserve("review", "m", Usage(input=100)), Reserved)
        assert isinstance(one.reserve("review", "m", Usage(input=1)), Refused)
        clock.advance(120)
        assert isinstance(one.reserve("review", "m", Usage(input=100)), Reserved)
        report = one.report()
        assert (report.today, report.since) == ("2026-03-06", "2026-03-05")
        assert (report.total_today.tokens, report.total_since.tokens) == (100, 200)
        assert one.report(clock.now).total_since.tokens == 100
        assert one.report(clock.now + 9 * DAY).total_since.tokens == 0
    finally:
        monkeypatch.undo()
        time.tzset()


def test_it_is_told_once_a_day(rows: SqliteSpend, caplog: pytest.LogCaptureFixture) -> None:
    one = meter(rows, tokens=10)
    with caplog.at_level(logging.INFO, "herma.spend"):
        for _ in range(3):
            one.reserve("review", "m", Usage(input=99))
        held = one.reserve("review", "m", Usage(input=9))
        assert isinstance(held, Reserved)
        one.settle(held, Usage(input=5))
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


# ── behind the meter ──


def behind(meter_: Meter, server: ScriptedModel) -> MeteredModel:
    return MeteredModel(openai_model(Endpoint(server.url, "m", retries=0)), meter_, "review")


def test_a_metered_model_answers_and_is_counted(rows: SqliteSpend, server: ScriptedModel) -> None:
    one = meter(rows)
    model: ChatModel = behind(one, server)
    server.then(Answer("Yes.", usage=Usage(3, 2, 1)), Answer("No.", says_usage=False))
    said: list[str] = []
    assert model.reply(HI, on_text=said.append).text == "".join(said) == "Yes."
    assert server.requests[0].body["max_tokens"] == 4096
    assert one.report().spent_today["review"] == Spent(1, 6, 0.0, 1, 0)
    model.reply(HI, max_tokens=50)  # a server that does not say what it took: the most that it may have
    assert 6 + 50 < one.report().spent_today["review"].tokens < 6 + 50 + 20


def test_at_the_cap_the_model_is_not_asked(rows: SqliteSpend, server: ScriptedModel) -> None:
    model = behind(meter(rows, tokens=100), server)
    assert model.refusal(HI, max_tokens=10) is None
    refused = model.refusal(HI)
    assert refused is not None
    with pytest.raises(SpendRefused, match="Today's limit") as caught:
        model.reply(HI)
    assert (str(caught.value), caught.value.hint) == (refused.notice, refused.hint)
    assert server.requests == []


def test_failures_are_settled(rows: SqliteSpend, server: ScriptedModel) -> None:
    one = meter(rows)
    model = behind(one, server)
    server.then(Answer.failing(401), Answer("abcdefgh" * 9, broken_after=3), Answer(wait=99))
    with pytest.raises(ModelRefused):
        model.reply(HI)
    assert one.report().total_today == Spent(1, 0, 0.0, 1, 0)
    with pytest.raises(ModelBroken):
        model.reply(HI)
    some = one.report().total_today.tokens
    assert 0 < some < 100
    with pytest.raises(ModelTimeout):
        model.reply(HI, deadline=1.0, max_tokens=500)
    assert one.report().total_today.tokens > some + 500


def test_an_answer_is_not_lost_when_its_cost_cannot_be_written(
    rows: SqliteSpend, server: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(SqliteSpend):
        def settle(self, number: int, tokens: int, usd: float | None, usage: Usage) -> None:
            raise StoreError("The disk is full.")

    full = Full(rows._db)
    server.then("Yes.")
    assert behind(meter(full), server).reply(HI).text == "Yes."
    assert "could not be written down" in caplog.text
    assert meter(rows).report().total_today.open == 1


# ── many at once ──


def spend_until_refused(home: Path, done: Any) -> None:
    with opened(home) as rows:
        one = meter(rows, tokens=1000)
        made = 0
        while isinstance(held := one.reserve("review", "m", Usage(input=10)), Reserved):
            one.settle(held, Usage(input=10))
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


def test_rows_are_by_purpose(rows: SqliteSpend) -> None:
    found: Mapping[str, Spent] = rows.by_purpose("2000-01-01", "2100-01-01")
    assert (found, rows.days()) == ({}, [])
