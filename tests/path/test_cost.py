"""The prefix ledger: what each call could reuse, why not more, and what that costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.homes import tool_messages

from herma import Add, Herma, HermaWarning
from herma.errors import ConfigError, StoreError, UsageError
from herma.prompt.ledger import Call, Prices, read_prices, where, why
from herma.prompt.tokens import count_message, count_messages, count_tools, counter_for, plain_json
from herma.session import Session
from herma.testing import FixedClock
from herma.testing.contracts import watch_prefixes
from herma.types import Usage

HOUR = 3_600.0


def turn(session: Session, text: str = "next", **options: Any) -> list[dict[str, Any]]:
    request = session.before_model(text, **options)
    session.after_model("ok")
    return request


def tokens(session: Session, request: list[dict[str, Any]]) -> int:
    counter = counter_for(session.model)
    return count_messages(request, counter.count) + count_tools(session.tools, counter.count)


def calls(h: Herma) -> list[Call]:
    return h.cost().calls()


def test_a_conversation_that_only_grows(h: Herma, home: Path) -> None:
    report = h.cost()
    assert (report.sessions, report.total.calls, report.total.share, report.breaks) == ((), 0, 0.0, ())
    assert (report.calls(), (home / "herma.db").exists()) == ([], False)
    with h.session() as session:
        sent = [tokens(session, turn(session, f"message {number}")) for number in range(4)]
    made = calls(h)
    assert [call.reason for call in made] == ["first call", "grew only", "grew only", "grew only"]
    assert [call.input for call in made] == sent
    assert [call.reusable for call in made] == [0, *sent[:-1]]
    assert all(call.output > 0 and call.counts == "estimated" for call in made)
    assert h.cost().total.breaks == 0


def test_reasons(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        session = h.session()
        turn(session)
        turn(session)
        session.rewind()
        turn(session, "something else")
        clock.advance(301)
        turn(session)
        session.reload()
        turn(session)
        h.memory.apply("memory", Add("News."))
        session.reload()
        turn(session)
        session.close()
        clock.advance(60)
        turn(h.session(resume=session.id))
        clock.advance(7 * HOUR)
        turn(h.session(resume=session.id))
        (home / "SOUL.md").write_text("You are a gardener.")
        turn(h.session(resume=session.id))
        clock.advance(7 * HOUR)
        turn(h.session(resume=session.id, model="gpt-4o"))
        made = calls(h)
    told = [(call.reason, where(call)) for call in made]
    assert told == [
        ("first call", ""),
        ("grew only", ""),
        ("rewound", "message 3"),
        ("idle", "everything"),
        ("grew only", ""),
        ("reload", "the system prompt"),
        ("grew only", ""),
        ("resumed", "everything"),
        ("system prompt changed", "the system prompt"),
        ("model changed", "everything"),
    ]
    assert "5 min" in why(made[3])
    assert "7 h" in why(made[7])
    assert "lapsed" in why(made[9])
    assert made[3].reusable == made[7].reusable == made[9].reusable == 0
    assert made[9].counts == ("exact" if counter_for("gpt-4o").exact else "estimated")
    rewound = made[2]
    assert rewound.reusable == made[0].input + made[0].output


@pytest.mark.parametrize("by", ["setting", "mark"])
def test_a_longer_cache_does_not_expire_so_soon(home: Path, clock: FixedClock, by: str) -> None:
    flags: dict[str, Any] = {"prices.cache_minutes": 60} if by == "setting" else {}
    with Herma.open(home, clock=clock, flags=flags) as h, h.session() as session:
        turn(session, **({} if by == "setting" else {"cache_marks": "1h"}))
        clock.advance(30 * 60)
        turn(session, **({} if by == "setting" else {"cache_marks": "5m"}))
        clock.advance(61 * 60)
        turn(session)
        assert [call.reason for call in calls(h)] == ["first call", "grew only", "idle"]


def test_a_branch_reuses_what_it_has_in_common(h: Herma) -> None:
    session = h.session()
    turn(session, "one")
    turn(session, "two")
    branch = h.branch(session.id, after=session.messages[1].id)
    turn(branch, "another way")
    first, _, branched = calls(h)
    assert (branched.reason, branched.session) == ("branched", branch.id)
    assert branched.reusable == first.input + first.output
    turn(h.branch(session.id), "on from the end")
    assert calls(h)[-1].reason == "grew only"


def test_what_the_provider_measured_wins(h: Herma) -> None:
    with h.session() as session:
        session.before_model("one")
        session.after_model("ok", usage=Usage(input=7, output=5, cache_write=993, cost_usd=0.25))
        session.before_model("two")
        session.after_model("ok", usage=Usage(input=10, output=5, cache_read=1000, cache_write=40))
        session.before_model("three")
        session.after_model("ok", usage=Usage(input=2000, output=5))
        first, second, third = calls(h)
        assert (first.reusable, first.fresh, first.output, first.cost_usd) == (0, 1000, 5, 0.25)
        assert (second.reusable, second.fresh, second.cost_usd) == (1000, 50, None)
        assert third.input == 2000
        assert 0 < third.reusable < 2000, "a provider that does not speak of its cache: the shares are counted here"
        assert {call.counts for call in (first, second, third)} == {"measured"}
        info = h.transcripts.get(session.id)
        assert info is not None
        assert (info.usage.input, info.usage.cache_read, info.usage.cost_usd) == (2017, 1000, 0.25)
        session.after_model("more of it", usage=Usage(output=9))
        again = h.transcripts.get(session.id)
        assert again is not None
        assert again.usage.output == 24, "a reply without a request of its own counts too"
        assert len(calls(h)) == 3


def test_memory_in_the_system_prompt_would_break_the_prefix(h: Herma) -> None:
    with h.session() as session:
        turn(session, "one")
        turn(session, "two")
        h.memory.apply("memory", Add("News."))
        turn(session, "three")
        turn(session, "four", recall="An old note.")
        turn(session, "five")
        turn(session, "six")
        one, two, three, four, five, six = calls(h)
        assert one.naive_fresh == one.fresh
        assert (two.naive_reusable, two.naive_fresh) == (two.reusable, two.fresh)
        for call in (three, four, five):
            assert 0 < call.naive_reusable < call.reusable, "only the tools stand before the prompt"
        old = count_message({"role": "user", "content": ""})
        assert six.naive_fresh == six.fresh
        assert six.naive_reusable + six.naive_fresh < six.input - old, "what was recalled once would be gone"
        total = h.cost().total
        assert total.saved_tokens > 0
        assert total.share > total.naive_share


def test_money(home: Path) -> None:
    with Herma.open(home) as h:
        with h.session() as session:
            turn(session)
            h.memory.apply("memory", Add("News."))
            turn(session)
        assert h.cost().total.cost is None
        assert h.cost().price(calls(h)[0]) is None
    (home / "config.yaml").write_text("prices:\n  input: 3\n  output: 15\n")
    with Herma.open(home) as h:
        report = h.cost()
        first, second = report.calls()
        wanted = (3 * (1.25 * (first.fresh + second.fresh) + 0.1 * second.reusable)) / 1e6
        wanted += 15 * (first.output + second.output) / 1e6
        assert report.total.cost == pytest.approx(wanted)
        assert report.price(first) == pytest.approx((3 * 1.25 * first.fresh + 15 * first.output) / 1e6)
        assert report.total.naive_cost is not None
        assert report.total.saved == pytest.approx(report.total.naive_cost - wanted)
        with h.session() as session:
            session.before_model("paid")
            session.after_model("ok", usage=Usage(input=1, cost_usd=2.5))
        assert h.cost(session.id).total.cost == 2.5
        assert h.cost().total.cost == pytest.approx(wanted + 2.5)


def test_by_session_and_by_time(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        with h.session(title="Garden") as first:
            turn(first)
            h.memory.apply("memory", Add("News."))
            first.reload()
            clock.advance(10)
            turn(first)
        clock.advance(HOUR)
        with h.session() as second:
            turn(second, "hello")
        report = h.cost()
        assert [one.name for one in report.sessions] == ["hello", "Garden #2", "Garden"]
        assert report.sessions[0].session == second.id
        assert report.total.calls == 3
        assert h.cost(first.id).total.calls == 2, "a conversation is one, however often its prompt was reloaded"
        assert h.cost("Garden").total.calls == 2
        assert h.cost(since=clock() - 60).total.calls == 1
        assert h.cost(since=clock() + 60).sessions == ()
        assert [call.reason for call in report.breaks] == ["reload"]
        with pytest.raises(UsageError):
            h.cost("nosuch")


def test_what_was_spent_stays_known_when_a_session_is_gone(h: Herma, clock: FixedClock) -> None:
    with h.session() as session:
        turn(session)
    h.transcripts.delete(session.id)
    clock.advance(400 * 86_400)
    h.transcripts.purge_expired()
    assert h.transcripts.get(session.id) is None
    assert [(one.session, one.name) for one in h.cost().sessions] == [(session.id, "")]
    assert h.cost(session.id).total.calls == 1


def test_an_interrupted_call_was_a_call(h: Herma) -> None:
    session = h.session()
    session.before_model("one")
    session.interrupt("I was")
    session.before_model("two")
    session.before_model()  # tried again
    session.close()
    made = calls(h)
    assert [call.reason for call in made] == ["first call", "grew only", "grew only"]
    assert [bool(call.output) for call in made] == [True, False, True]


def test_a_ledger_that_cannot_be_written_fails_no_turn(h: Herma, monkeypatch: pytest.MonkeyPatch) -> None:
    with h.session() as session:
        broken = True
        add = h.calls.add

        def sometimes(call: Call, usage: Usage | None = None) -> None:
            if broken:
                raise StoreError("The disk is full.")
            add(call, usage)

        monkeypatch.setattr(h.calls, "add", sometimes)
        with pytest.warns(HermaWarning, match="disk is full"):
            turn(session)
        turn(session)
        assert calls(h) == []
        broken = False
        turn(session)
        assert [call.reason for call in calls(h)] == ["first call", "grew only", "grew only"]


def compared(requests: list[tuple[float, list[dict[str, Any]]]], session: Session) -> list[tuple[int, int]]:
    """What a cache that keeps requests for five minutes could reuse, and the size, found by comparing requests."""
    count = counter_for(session.model).count
    tools = count_tools(session.tools, count)
    found: list[tuple[int, int]] = []
    last, before = 0.0, [""]
    for at, messages in requests:
        parts = list(map(plain_json, messages))
        weights = [count_message(message, count) for message in messages]
        shared = 0
        while shared < min(len(before), len(parts)) and before[shared] == parts[shared]:
            shared += 1
        reusable = tools + sum(weights[:shared]) if found and at - last <= 300 else 0
        found.append((reusable, tools + sum(weights)))
        last, before = at, parts
    return found


def moved(step: str, h: Herma, session: Session) -> Session:
    match step:
        case "write":
            h.memory.apply("memory", Add(f"fact {len(h.memory.entries('memory'))}"))
        case "reload":
            session.reload()
        case "rewind" if any(message.role == "user" for message in session.messages):
            session.rewind()
        case "resume" if session.messages:
            session.close()
            stored = h.transcripts.get(session.id) or h.transcripts.get(session.info.parent or "")
            return h.session(resume=stored.id) if stored else session
    return session


MOVES = ("write", "reload", "rewind", "resume")


@given(steps=st.lists(st.sampled_from(["turn", "step", "recall", "wait", *MOVES]), max_size=14))
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
def test_for_any_order_of_moves_the_ledger_is_what_comparing_requests_gives(
    steps: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    clock = FixedClock()
    requests: list[tuple[float, list[dict[str, Any]]]] = []
    with watch_prefixes(), Herma.open(tmp_path_factory.mktemp("any"), clock=clock) as h:
        session = h.session()
        for step in [*steps, "turn"]:
            if step == "wait":
                clock.advance(301)
            elif step in MOVES:
                session = moved(step, h, session)
            else:
                recall = f"note {len(requests)}" if step == "recall" else ""
                requests.append((clock(), session.before_model(f"next {len(requests)}", recall=recall)))
                if step == "step":
                    session.after_model(tool_messages("run", {}, "")[:1])
                else:
                    session.after_model("ok")
        made = h.cost().calls()
        assert [(call.reusable, call.input) for call in made] == compared(requests, session)
        assert all(call.naive_reusable + call.naive_fresh <= call.input for call in made)
        assert all(call.naive_reusable <= call.reusable for call in made)


# ── prices ──


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
                turn(session)
        cheap, dear = (h.cost(session=one.session).total.cost for one in reversed(h.cost().sessions))
        assert cheap is not None
        assert dear == pytest.approx(100 * cheap, rel=0.3)
        assert h.cost().total.cost == pytest.approx(cheap + (dear or 0))
        with h.session(model="unknown") as session:
            turn(session)
        assert h.cost().total.cost is None
