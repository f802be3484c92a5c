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
from herma.types import Scope, SessionFilter, Usage

WRONG: Any = 5
HALF: Any = "\ud800"
NAN = float("nan")
X: Any = {"role": "user", "content": "x"}
CALLS: dict[str, Callable[[Herma, str], object]] = {
    "scan": lambda *_: scan(WRONG),
    "sanitize": lambda *_: sanitize(WRONG),
    "a negative limit of changes": lambda h, _: h.memory.changes(limit=-1),
    "a negative limit of sessions": lambda h, _: h.transcripts.list(limit=-1),
    "a negative limit of episodes": lambda h, _: h.episodes.list(limit=-1),
    "a source among others": lambda h, _: h.search("x", source=["cli", WRONG]),
    "started": lambda h, _: h.transcripts.start("cli", started=NAN),
    "no user": lambda h, _: h.transcripts.start("cli", scope=Scope(user=WRONG)),
    "no place": lambda h, _: h.transcripts.start("cli", room="12"),  # type: ignore[call-arg]
    "half a source": lambda h, _: h.transcripts.start(HALF),
    "half a model": lambda h, _: h.transcripts.start("cli", model=HALF),
    "to nobody": lambda h, _: h.transcripts.append(HALF, [X]),
    "cost": lambda h, one: h.transcripts.record_usage(one, Usage(cost_usd=NAN)),
    "negative tokens": lambda h, one: h.transcripts.record_usage(one, Usage(input=-5)),
    "tokens": lambda h, one: h.transcripts.record_usage(one, Usage(input=HALF)),
    "usage": lambda h, one: h.transcripts.record_usage(one, {"inputs": 5}),
    "bound": lambda h, _: h.transcripts.prune(SessionFilter(min_messages=10**20)),
    "no bound": lambda h, _: h.transcripts.prune(SessionFilter(max_cost=NAN)),
    "text as a bound": lambda h, _: h.transcripts.prune(SessionFilter(max_messages=HALF)),
    "sources": lambda h, _: h.transcripts.prune(SessionFilter(exclude_sources=["cron"])),  # type: ignore[arg-type]
    "archived": lambda h, _: h.transcripts.list(archived=HALF),
    "half a filter": lambda h, _: h.transcripts.list(source=HALF),
    "resolve": lambda h, _: h.transcripts.resolve(HALF),
    "prune": lambda h, _: h.transcripts.prune(older_than_days=NAN),
}
"""Values that are wrong although their type may be right: types are tried below, on every public call."""


@of_files
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_value_is_a_usage_error_and_changes_nothing(h: Herma, call: Callable[[Herma, str], object]) -> None:
    one = h.transcripts.start("cli")
    h.transcripts.append(one, [X, {"role": "assistant", "content": "y"}])
    before = h.transcripts.stats()
    with pytest.raises(UsageError) as error:
        call(h, one)
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
@pytest.mark.filterwarnings("ignore:.* is now:DeprecationWarning")
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
