"""What is not even of the right type gets one sentence and a next step, like everything else that is wrong."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import apsw
import pytest
from tests.homes import of_files, talk

from herma import Add, Entry, Herma, Remove, Replace, sanitize, scan
from herma.errors import ConfigError, UsageError
from herma.session import Session
from herma.transcript.log import Transcripts
from herma.types import Scope, SessionFilter, Usage

WRONG: Any = 5
CALLS: dict[str, Callable[[Herma], object]] = {
    "scan": lambda _: scan(WRONG),
    "sanitize": lambda _: sanitize(WRONG),
    "a negative limit of changes": lambda h: h.memory.changes(limit=-1),
    "a negative limit of sessions": lambda h: h.transcripts.list(limit=-1),
    "a negative limit of episodes": lambda h: h.episodes.list(limit=-1),
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
def test_a_wrong_type_is_a_usage_error(h: Herma, call: Callable[[Herma], object]) -> None:
    with pytest.raises(UsageError, match=r"text, not|texts, not|Scope, not|1970, not|not of int|whole number|turns"):
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
    "negative tokens": lambda log, one: log.record_usage(one, Usage(input=-5)),
    "tokens": lambda log, one: log.record_usage(one, Usage(input="x")),  # type: ignore[arg-type]
    "usage": lambda log, one: log.record_usage(one, {"inputs": 5}),
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


@of_files
@pytest.mark.parametrize("call", IN_TRANSCRIPTS.values(), ids=IN_TRANSCRIPTS)
def test_transcripts_say_what_they_take_and_change_nothing(
    h: Herma, call: Callable[[Transcripts, str], object]
) -> None:
    one = h.transcripts.start("cli")
    h.transcripts.append(one, [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}])
    before = h.transcripts.stats()
    with pytest.raises(UsageError) as error:
        call(h.transcripts, one)
    assert error.value.hint
    assert h.transcripts.stats() == before


def test_numbers_beyond_reason_mean_everything(h: Herma) -> None:
    one = h.transcripts.start("cli")
    h.transcripts.append(one, [{"role": "user", "content": "x"}])
    assert len(h.transcripts.messages(one, limit=2**70)) == 1
    assert h.transcripts.around(2**70) == []
    assert len(h.transcripts.list(limit=2**70)) == 1
    assert h.transcripts.list(limit=0) == []


@pytest.mark.parametrize("which", ["home", "profile"])
def test_a_home_is_named_by_text(home: Path, which: str) -> None:
    with pytest.raises(ConfigError, match=f"{which} must be text, not int"):
        Herma.open(**{"home": home, which: WRONG})


# ── nothing is written before everything was looked at ──


def everything_in(home: Path) -> dict[str, object]:
    """Every row of herma.db, and every file that people can see."""
    with_rows: dict[str, object] = {}
    connection = apsw.Connection(str(home / "herma.db"), flags=apsw.SQLITE_OPEN_READONLY)
    for (table,) in list(connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")):
        with_rows[str(table)] = list(connection.execute(f'SELECT * FROM "{table}"'))
    connection.close()
    files = [path for folder in ("memories", "skills") for path in (home / folder).rglob("*") if path.is_file()]
    return with_rows | {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture
def lived_in(home: Path) -> Iterator[tuple[Herma, Session]]:
    """A home with something in every part of it, and a session in the middle of a turn."""
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("The build runs on ARM."))
        h.memory.propose("memory", Add("The port is 8080."))
        h.skills.create("demo", "---\nname: demo\ndescription: Does a thing.\n---\n\n1. Do it.\n")
        h.facts.state("user", "time zone", "UTC")
        with h.session() as session:
            talk(session, "hello", reply="hi")
        h.episodes.wait()
        with h.session(resume=session.id) as session:
            session.before_model("and now?")
            yield h, session


class Nothing:
    """Of no type that anything takes."""


NOT_LOOKED_AT = {"values", "more", "usage", "op", "operation", "ops", "options"}
"""Arguments of any type, each looked at by hand: see the tables below."""


def parts_of(h: Herma, session: Session) -> list[Any]:
    services = (h.memory, h.memory.archive, h.transcripts, h.skills, h.episodes, h.facts, h.reviews, h.curator, h.index)
    return [h, session, *services, h.tidy, h.providers, h.tools]


@of_files
def test_every_argument_of_every_public_call_is_checked_before_anything_is_written(
    home: Path, lived_in: tuple[Herma, Session]
) -> None:
    before = everything_in(home)
    tried = 0
    for part in parts_of(*lived_in):
        for name, method in inspect.getmembers(part, inspect.ismethod):
            if name.startswith("_") or inspect.isclass(method.__self__):
                continue
            for argument in inspect.signature(method).parameters.values():
                if argument.name in NOT_LOOKED_AT or argument.kind in (argument.VAR_KEYWORD, argument.VAR_POSITIONAL):
                    continue
                given = {} if argument.kind is argument.POSITIONAL_ONLY else {argument.name: Nothing()}
                with pytest.raises(UsageError) as error:
                    method(*(() if given else (Nothing(),)), **given)
                assert argument.name in str(error.value), f"{name}({argument.name})"
                assert error.value.hint
                tried += 1
    assert tried > 250
    assert everything_in(home) == before


BAD_CALLS: dict[str, tuple[str, Callable[[Herma, Session], object]]] = {
    "usage of no kind": ("usage", lambda _, s: s.after_model("hi", usage=WRONG)),
    "usage misspelt": ("ouput", lambda _, s: s.after_model("hi", usage={"input": 1, "ouput": 2})),
    "usage of two kinds": ("usage", lambda _, s: s.after_model("hi", usage={"input": 1, "prompt_tokens": 2})),
    "usage in two ways": (
        "sent",
        lambda _, s: s.after_model("hi", usage={"prompt_tokens": 1, "input_tokens": 2}),
    ),
    "usage as text": ("prompt_tokens", lambda _, s: s.after_model("hi", usage={"prompt_tokens": "9"})),
    "usage of nothing": ("usage", lambda _, s: s.after_model("hi", usage={})),
    "usage not a number": ("cost_usd", lambda _, s: s.after_model("hi", usage=Usage(cost_usd=NAN))),
    "no reply": ("reply", lambda _, s: s.after_model([])),
    "a part of no type": ("part 1", lambda _, s: s.after_model([{"role": "user", "content": [{"type": "x"}, 5]}])),
    "content of no type": ("without a type", lambda _, s: s.after_model({"role": "assistant", "content": {"a": 1}})),
    "what the user says": ("content", lambda _, s: s.before_model([{"type": "text", "text": b"x"}])),
    "half of it": ("part 0", lambda _, s: s.before_model(["x"])),  # type: ignore[list-item]
    "somebody else's": ("text", lambda _, s: s.before_model({"role": "assistant", "content": "x"})),
    "recall": ("recall", lambda _, s: s.before_model("x", recall=WRONG)),
    "marks": ("cache_marks", lambda _, s: s.before_model("x", cache_marks=["5m"])),  # type: ignore[arg-type]
    "why it ends": ("reason", lambda _, s: s.close(WRONG)),
    "turns": ("turns", lambda _, s: s.rewind(9)),
    "category": ("category", lambda h, _: h.memory.apply("memory", Add("x", category="mood"))),  # type: ignore[arg-type]
    "tags": ("tags", lambda h, _: h.memory.apply("memory", Replace("build", "x", tags="arm"))),  # type: ignore[arg-type]
    "kept": ("kept", lambda h, _: h.memory.apply("memory", [Add("x"), Remove("build", "away")])),  # type: ignore[arg-type]
    "in a batch": ("operation 2", lambda h, _: h.memory.apply("memory", [Add("x"), Add(WRONG)])),
    "proposed": ("category", lambda h, _: h.memory.propose("memory", Add("x", category="mood"))),  # type: ignore[arg-type]
    "no operation": ("ops", lambda h, _: h.memory.propose("memory", ["x"])),  # type: ignore[list-item]
    "noted": ("category", lambda h, _: h.memory.annotate("memory", [Entry("The build runs on ARM.", category=WRONG)])),
    "a skill": ("Create", lambda h, _: h.skills.apply(WRONG)),
}


@of_files
@pytest.mark.parametrize("case", BAD_CALLS.values(), ids=BAD_CALLS)
def test_a_bad_value_is_named_and_nothing_is_written(
    home: Path, lived_in: tuple[Herma, Session], case: tuple[str, Callable[[Herma, Session], object]]
) -> None:
    named, call = case
    before = everything_in(home)
    with pytest.raises(UsageError) as error:
        call(*lived_in)
    assert named in f"{error.value} {error.value.hint}"
    assert error.value.hint
    assert everything_in(home) == before


OF_PROVIDERS: dict[str, tuple[Any, Usage]] = {
    "own names": ({"input": 900, "output": 40, "cost_usd": 0.5}, Usage(900, 40, cost_usd=0.5)),
    "openai": (
        {
            "prompt_tokens": 1000,
            "completion_tokens": 40,
            "total_tokens": 1040,
            "prompt_tokens_details": {"cached_tokens": 800, "audio_tokens": 0},
            "completion_tokens_details": {"reasoning_tokens": 7},
        },
        Usage(200, 40, 800, reasoning=7),
    ),
    "openai responses": (
        {"input_tokens": 1000, "output_tokens": 40, "input_tokens_details": {"cached_tokens": 800}},
        Usage(200, 40, 800),
    ),
    "anthropic": (
        {
            "input_tokens": 100,
            "output_tokens": 40,
            "cache_read_input_tokens": 800,
            "cache_creation_input_tokens": 50,
            "service_tier": "standard",
        },
        Usage(100, 40, 800, 50),
    ),
    "openrouter": ({"prompt_tokens": 10, "completion_tokens": 4, "cost": 0.25}, Usage(10, 4, cost_usd=0.25)),
    "an object": (SimpleNamespace(model_dump=lambda: {"prompt_tokens": 9, "completion_tokens": None}), Usage(9)),
}


@pytest.mark.parametrize("case", OF_PROVIDERS.values(), ids=OF_PROVIDERS)
def test_usage_is_taken_as_providers_say_it(home: Path, case: tuple[Any, Usage]) -> None:
    said, meant = case
    with Herma.open(home) as h, h.session() as session:
        session.before_model("hello")
        session.after_model("hi", usage=said)
        stored = h.transcripts.get(session.id)
        assert stored is not None
        assert stored.usage == meant
        assert stored.message_count == 2
