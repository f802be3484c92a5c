"""What is not even of the right type gets one sentence and a next step, like everything else that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herma import Herma, sanitize, scan
from herma.errors import ConfigError, UsageError
from herma.transcript.log import Transcripts
from herma.types import Scope, SessionFilter, Usage

WRONG: Any = 5
CALLS: dict[str, Callable[[Herma], object]] = {
    "scan": lambda _: scan(WRONG),
    "sanitize": lambda _: sanitize(WRONG),
    "history": lambda h: h.memory.history(limit="ten"),  # type: ignore[arg-type]
    "system message": lambda h: h.session(system_message=WRONG),
    "title": lambda h: h.session(title=WRONG),
    "model": lambda h: h.session(model=WRONG),
    "rename": lambda h: h.transcripts.rename(h.transcripts.start("cli"), WRONG),
    "rewind": lambda h: h.session().rewind("one"),  # type: ignore[arg-type]
    "search by role": lambda h: h.search("x", role=WRONG),
    "search by sources": lambda h: h.search("x", source=["cli", WRONG]),
    "search since": lambda h: h.search("x", since=[]),  # type: ignore[arg-type]
    "search by whom": lambda h: h.search("x", scope=WRONG),
    "search from": lambda h: h.search("x", current_session=WRONG),
    "episodes": lambda h: h.episodes.search_similar(WRONG),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_type_is_a_usage_error(home: Path, call: Callable[[Herma], object]) -> None:
    with (
        Herma.open(home) as h,
        pytest.raises(UsageError, match=r"text, not|texts, not|Scope, not|1970, not|not of int|whole number|turns"),
    ):
        call(h)


HALF: Any = "\ud800"
NAN = float("nan")
IN_TRANSCRIPTS: dict[str, Callable[[Transcripts, str], object]] = {
    "started": lambda log, _: log.start("cli", started=NAN),
    "started text": lambda log, _: log.start("cli", started="now"),  # type: ignore[arg-type]
    "no user": lambda log, _: log.start("cli", scope=Scope(user=None)),  # type: ignore[arg-type]
    "no scope": lambda log, _: log.start("cli", scope={"user": "x"}),  # type: ignore[arg-type]
    "no folder": lambda log, _: log.start("cli", folder=None),  # type: ignore[arg-type]
    "no place": lambda log, _: log.start("cli", room="12"),  # type: ignore[call-arg]
    "half a source": lambda log, _: log.start(HALF),
    "half a model": lambda log, _: log.start("cli", model=HALF),
    "prompt": lambda log, _: log.start("cli", system_prompt=WRONG),
    "id": lambda log, _: log.start("cli", session_id=WRONG),
    "parent": lambda log, _: log.start("cli", parent=WRONG),
    "reason": lambda log, _: log.start("cli", reason=["new"]),  # type: ignore[arg-type]
    "to nobody": lambda log, _: log.append(HALF, [{"role": "user", "content": "x"}]),
    "standing for": lambda log, one: log.append(one, [{"role": "user", "content": "x"}], standing_for="a"),  # type: ignore[arg-type]
    "end": lambda log, one: log.end(one, WRONG),
    "cost": lambda log, one: log.record_usage(one, Usage(cost_usd=NAN)),
    "tokens": lambda log, one: log.record_usage(one, Usage(input="x")),  # type: ignore[arg-type]
    "usage": lambda log, one: log.record_usage(one, {"input": 5}),  # type: ignore[arg-type]
    "compact": lambda log, one: log.compact(one, "a", "b"),  # type: ignore[arg-type]
    "rewind": lambda log, one: log.rewind(one, "a"),  # type: ignore[arg-type]
    "around": lambda log, _: log.around("a"),  # type: ignore[arg-type]
    "limit": lambda log, one: log.messages(one, limit="all"),  # type: ignore[arg-type]
    "list": lambda log, _: log.list(limit="all"),  # type: ignore[arg-type]
    "filter": lambda log, _: log.list({"source": "cli"}),  # type: ignore[arg-type]
    "bound": lambda log, _: log.prune(SessionFilter(min_messages=10**20)),
    "no bound": lambda log, _: log.prune(SessionFilter(max_cost=NAN)),
    "text as a bound": lambda log, _: log.prune(SessionFilter(max_messages="4")),  # type: ignore[arg-type]
    "sources": lambda log, _: log.prune(SessionFilter(exclude_sources=["cron"])),  # type: ignore[arg-type]
    "archived": lambda log, _: log.list(archived="yes"),  # type: ignore[arg-type]
    "half a filter": lambda log, _: log.list(source=HALF),
    "resolve": lambda log, _: log.resolve(HALF),
    "delete": lambda log, _: log.delete(WRONG),
    "undelete": lambda log, _: log.undelete({"id": 1}),  # type: ignore[arg-type]
    "prune": lambda log, _: log.prune(older_than_days=NAN),
    "expire": lambda log, _: log.expire(WRONG),
}


@pytest.mark.parametrize("call", IN_TRANSCRIPTS.values(), ids=IN_TRANSCRIPTS)
def test_transcripts_say_what_they_take_and_change_nothing(
    home: Path, call: Callable[[Transcripts, str], object]
) -> None:
    with Herma.open(home) as h:
        one = h.transcripts.start("cli")
        h.transcripts.append(one, [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
        before = h.transcripts.stats()
        with pytest.raises(UsageError) as error:
            call(h.transcripts, one)
        assert error.value.hint
        assert h.transcripts.stats() == before


def test_numbers_beyond_reason_mean_everything(home: Path) -> None:
    with Herma.open(home) as h:
        one = h.transcripts.start("cli")
        h.transcripts.append(one, [{"role": "user", "content": "x"}])
        assert len(h.transcripts.messages(one, limit=2**70)) == 1
        assert h.transcripts.around(2**70) == []
        assert len(h.transcripts.list(limit=2**70)) == 1
        assert h.transcripts.list(limit=0) == []


@pytest.mark.parametrize("which", ["home", "profile"])
def test_a_home_is_named_by_text(home: Path, which: str) -> None:
    with pytest.raises(ConfigError, match=f"The {which} is named by text, not by int"):
        Herma.open(**{"home": home, which: WRONG})
