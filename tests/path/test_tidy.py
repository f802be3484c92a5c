"""Tidying curated memory: asked for, and by itself after a reply; one change per file, undone like any other."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from herma import Add, Applied, Author, Herma, Origin, Scope, Who
from herma.errors import ConfigError, StoreBusy
from herma.memory.archive import CuratedWatcher
from herma.memory.tidy import Tidied
from herma.store.files import exclusive
from herma.testing import FixedClock
from herma.testing.scripted_model import Answer, ScriptedModel

DAY = 86_400.0
TREES = "amber birch cedar dune ember fjord grove heath isle juniper kelp larch moss nettle oak"
TWICE = ("The tests run with pytest -n 2.", "Tests run with pytest -n 2. CI uses the same command.")
REST = (
    "Screenshots of broken layouts belong into the ticket and not into the chat.",
    "Customers in the northern region are billed quarterly by invoice.",
    "The vault of the platform group holds the deploy key of the shop.",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test fails because a machine is busy."""
    monkeypatch.setattr(CuratedWatcher, "deadline", 30.0)


def fill(h: Herma, *texts: str, scope: Scope | None = None) -> None:
    for text in texts:
        assert h.memory.apply("memory", Add(text), scope=scope, author=Author(Who.TOOL, Origin.AGENT_CONCLUDED)).ok


def crowd(h: Herma, count: int = 14, scope: Scope | None = None) -> list[str]:
    """As many different entries as make the file nearly full."""
    words = TREES.split()
    texts = [
        f"The {word} office keeps its {word} ledger in room {n} of the {word} wing. " + "…" * 75
        for n, word in enumerate(words)
    ]
    fill(h, *texts[:count], scope=scope)
    return texts[:count]


def talk(h: Herma, *texts: str, **options: str) -> None:
    with h.session(**options) as s:  # type: ignore[arg-type]
        for text in texts or ("hello",):
            s.before_model(text)
            s.after_model("Fine.")
    assert h.tidy.wait()


def memory_of(h: Herma, **options: bool) -> Tidied:
    return next(one for one in h.tidy(**options).files if one.target == "memory")  # type: ignore[arg-type]


# ── asked for ──


def test_a_dry_run_says_what_would_be_done_and_does_nothing(h: Herma) -> None:
    fill(h, *TWICE, *REST)
    found = memory_of(h, dry_run=True)
    assert [step.kind for step in found.proposals] == ["merge"]
    assert found.outcome is None
    assert found.frees == found.proposals[0].frees > 0
    assert h.memory.entries("memory") == [*TWICE, *REST]


def test_it_is_one_change_that_can_be_undone(h: Herma) -> None:
    fill(h, *TWICE, "Feature freeze until 2020-05-01.", *REST)
    found = memory_of(h)
    assert isinstance(found.outcome, Applied)
    assert tuple(h.memory.entries("memory")) == found.after == (TWICE[1], *REST)
    change = h.memory.history()[0]
    assert (change.id, change.reason, change.author.who) == (found.outcome.change, "tidy: 1 merged, 1 over", Who.USER)
    assert [one.why for one in h.memory.tail.list()] == ["expired"]
    assert memory_of(h).proposals == (), "twice is as good as once"
    h.memory.undo()
    assert h.memory.entries("memory") == [*TWICE, "Feature freeze until 2020-05-01.", *REST]
    assert h.memory.tail.list() == []


def test_what_a_person_took_back_is_not_done_again(h: Herma) -> None:
    fill(h, *TWICE, *REST)
    assert memory_of(h).outcome is not None
    h.memory.undo()
    assert memory_of(h, dry_run=True).proposals == ()


def test_what_was_shown_is_what_is_done_or_nothing(h: Herma) -> None:
    fill(h, *TWICE, *REST)
    shown = h.tidy(dry_run=True)
    h.memory.apply("memory", Add("Something new."))
    done = h.tidy.apply(shown)
    assert done.changed
    assert h.memory.entries("memory") == [TWICE[1], *REST, "Something new."]
    again = h.tidy.apply(shown)
    assert not again.changed, "its entries are gone"


def test_a_merge_keeps_what_was_known(h: Herma, clock: FixedClock) -> None:
    began = clock()
    h.memory.apply("memory", Add(TWICE[1], category="convention", tags=("ci",)))
    fill(h, TWICE[0], *REST)
    clock.advance(DAY)
    h.tidy()
    entry = h.memory.describe("memory")[0]
    assert (entry.text, entry.category, entry.tags, entry.created) == (TWICE[1], "convention", ("ci",), began)
    assert entry.confirmed == began, "tidying confirms nothing"
    assert entry.origin is Origin.USER_SAID


def test_pinned_and_vouched_entries_stay(h: Herma) -> None:
    fill(h, *REST)
    h.memory.apply("memory", Add(TWICE[0], tags=("pinned",)))
    fill(h, TWICE[1])
    assert memory_of(h, dry_run=True).proposals == ()


def test_a_project_is_checked_against_its_folder(home: Path, tmp_path: Path, clock: FixedClock) -> None:
    folder = tmp_path / "shop"
    (folder / "src").mkdir(parents=True)
    (folder / "src" / "there.py").write_text("")
    (folder / ".python-version").write_text("3.12.4\n")
    scope = Scope(project=str(folder))
    with Herma.open(home, clock=clock) as h:
        fill(
            h,
            "The cart lives in src/there.py and is small.",
            "The till lives in src/gone.py and is large.",
            scope=scope,
        )
        fill(h, "The code is built with Python 3.9 on Linux.", *REST, scope=scope)
        found = next(one for one in h.tidy(scope=scope, dry_run=True).files if one.target == "memory")
        assert {step.entries[0][:10] for step in found.proposals} == {"The till l", "The code i"}
        assert {step.kind for step in found.proposals} == {"mark"}
        h.tidy(scope=scope)
        (folder / "src" / "gone.py").write_text("")
        back = next(one for one in h.tidy(scope=scope, dry_run=True).files if one.target == "memory")
        assert [step.kind for step in back.proposals] == ["unmark"]


def test_a_file_that_cannot_be_read_is_left_alone(h: Herma, home: Path) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_bytes(b"\xff\xfe\x00bad")
    found = memory_of(h)
    assert found.proposals == ()
    assert "UTF-8" in found.notes[0]


def test_a_policy_that_is_none_is_said(home: Path) -> None:
    with pytest.raises(ConfigError, match=r"'sometimes'.* one of apply, propose, off"):
        Herma.open(home, flags={"memory.tidy": "sometimes"})


# ── by itself ──


def test_a_full_file_is_tidied_after_the_reply(h: Herma) -> None:
    before = crowd(h)
    status = h.memory.status()[0]
    assert status.used > 0.8 * status.limit
    with h.session() as s:
        s.before_model("hello")
        assert h.tidy.wait()
        assert h.memory.entries("memory") == before, "not inside a turn"
        s.after_model("Hi.")
        assert h.tidy.wait()
    status = h.memory.status()[0]
    assert status.used <= 0.8 * status.limit
    change = h.memory.history()[0]
    assert (change.author.who, change.author.origin) == (Who.TIDY, Origin.AGENT_CONCLUDED)
    assert change.reason.startswith("tidy: ")
    assert sorted([*h.memory.entries("memory"), *(one.text for one in h.memory.tail.list())]) == sorted(before)


def test_a_turn_that_begins_stops_it(h: Herma) -> None:
    before = crowd(h)
    stopped = threading.Event()
    stopped.set()
    assert h.tidy.by_itself(Scope("default"), stopped).files == ()
    assert h.memory.entries("memory") == before
    assert h.tidy.by_itself(Scope("default")).changed


def test_what_is_not_due_is_left_alone(h: Herma, clock: FixedClock) -> None:
    fill(h, *TWICE, *REST)
    talk(h)
    assert h.memory.entries("memory") == [*TWICE, *REST]
    clock.advance(6 * DAY)
    talk(h)
    assert h.memory.entries("memory") == [*TWICE, *REST]
    clock.advance(2 * DAY)
    talk(h)
    assert h.memory.entries("memory") == [TWICE[1], *REST]


def test_a_full_file_with_nothing_to_do_is_looked_at_once(home: Path, clock: FixedClock) -> None:
    with Herma.open(home, clock=clock, flags={"memory.memory_char_limit": 100}) as h:
        h.memory.apply("memory", Add("x" * 95, tags=("pinned",)))
        assert h.tidy.is_due("memory", Scope("default"))
        talk(h)
        assert not h.tidy.is_due("memory", Scope("default"))


def test_proposals_wait_for_a_person_where_the_settings_say_so(home: Path, clock: FixedClock) -> None:
    with Herma.open(home, clock=clock, flags={"memory.tidy": "propose"}) as h:
        before = crowd(h)
        talk(h)
        assert h.memory.entries("memory") == before
        waiting = h.memory.pending()
        assert waiting
        assert all(one.author.who is Who.TIDY and one.reason.startswith("tidy: ") for one in waiting)
        assert h.memory.approve(waiting[0].id).ok
        assert len(h.memory.tail.list()) == 1
        talk(h)
        assert len(h.memory.pending()) >= len(waiting) - 1


def test_off_means_off(home: Path, clock: FixedClock) -> None:
    with Herma.open(home, clock=clock, flags={"memory.tidy": "off"}) as h:
        before = crowd(h)
        talk(h)
        assert h.memory.entries("memory") == before
        assert memory_of(h).outcome is not None, "a person may still ask for it"


def test_what_is_not_certain_is_proposed(h: Herma, clock: FixedClock) -> None:
    fill(h, "Staging port: 8080", *REST)
    talk(h)
    clock.advance(DAY)
    fill(h, "Staging port: 9090")
    clock.advance(8 * DAY)
    talk(h)
    assert "Staging port: 8080" in h.memory.entries("memory")
    (waiting,) = h.memory.pending()
    assert "newer entry" in waiting.reason


def test_only_one_process_tidies(h: Herma, home: Path) -> None:
    before = crowd(h)
    with exclusive(home / ".tidy.lock", 1.0):
        assert h.tidy.by_itself(Scope("default")).files == ()
        with pytest.raises(StoreBusy):
            h.tidy()
    assert h.memory.entries("memory") == before
    assert h.tidy.by_itself(Scope("default")).changed


def test_a_project_and_the_home_are_both_seen_to(h: Herma) -> None:
    scope = Scope(project="shop")
    crowd(h)
    crowd(h, scope=scope)
    talk(h, project="shop")
    assert len(h.memory.tail.list()) > 0
    assert len(h.memory.tail.list(scope=scope)) > 0


def test_reviews_and_subagents_tidy_nothing(h: Herma) -> None:
    before = crowd(h)
    talk(h, context="subagent")
    assert h.memory.entries("memory") == before


def test_trouble_is_written_down_and_ends_no_turn(h: Herma, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from herma.memory import tidy

    def broken(*_: object, **__: object) -> None:
        raise OSError("disk on fire")

    monkeypatch.setattr(tidy, "plan", broken)
    crowd(h)
    talk(h)
    assert h.tidy.worker.health.failed == 1
    assert "disk on fire" in (home / "logs" / "guests.jsonl").read_text()


# ── with a model ──


def with_model(home: Path, clock: FixedClock, model: ScriptedModel) -> Herma:
    flags = {"model.url": model.url, "model.name": "scripted", "model.stream": False, "review.enabled": False}
    return Herma.open(home, clock=clock, flags=flags)


def answer(notes: list[int], text: str) -> str:
    return json.dumps({"merges": [{"notes": notes, "text": text}]})


ONE, OTHER = "Run `make check` before pushing to main.", "Before a push to main, run `make check`; it takes 90 s."
BOTH = "Before pushing to main run `make check` (takes 90 s)."


def test_a_model_words_a_merge(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([answer([1, 2], BOTH)]) as model, with_model(home, clock, model) as h:
        fill(h, ONE, OTHER, *REST)
        found = memory_of(h)
        assert [(step.kind, step.result, step.by_model) for step in found.proposals] == [("merge", BOTH, True)]
        assert h.memory.entries("memory") == [BOTH, *REST]
        assert "tidy" in h.models.spending().spent_today
        assert "make check" in str(model.requests[0].last)


@pytest.mark.parametrize(
    "reply",
    [
        answer([1, 2], "Run the checks before pushing to main; it takes 90 s."),
        answer([1, 2], "Run `make check` before pushing to main."),
        answer([1, 9], BOTH),
        answer([1], BOTH),
        "I would merge the first two.",
        '{"merges": "all"}',
        "",
    ],
)
def test_a_wording_that_loses_something_is_not_used(home: Path, clock: FixedClock, reply: str) -> None:
    with ScriptedModel([reply]) as model, with_model(home, clock, model) as h:
        fill(h, ONE, OTHER, *REST)
        assert memory_of(h).proposals == ()
        assert h.memory.entries("memory") == [ONE, OTHER, *REST]


def test_where_a_model_fails_the_rules_stand(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([Answer.failing(400)]) as model, with_model(home, clock, model) as h:
        fill(h, *TWICE, *REST)
        found = memory_of(h)
        assert [step.kind for step in found.proposals] == ["merge"]
        assert "Without a model's wording" in found.notes[0]
        assert h.memory.entries("memory") == [TWICE[1], *REST]


def test_a_model_is_not_asked_where_nothing_is_alike_or_nobody_wants_it(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([]) as model, with_model(home, clock, model) as h:
        fill(h, *REST)
        h.tidy()
        fill(h, *TWICE)
        h.tidy(model=False)
        assert model.requests == []


def test_the_cap_on_spending_holds(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([]) as model:
        flags = {"model.url": model.url, "model.name": "scripted", "spend.daily_tokens": 0, "review.enabled": False}
        with Herma.open(home, clock=clock, flags=flags) as h:
            fill(h, *TWICE, *REST)
            assert "switched off" in memory_of(h).notes[0]
            assert model.requests == []
            assert h.memory.entries("memory") == [TWICE[1], *REST]


def test_a_model_says_nothing_about_the_same_file_twice(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([answer([], ""), answer([], "")]) as model, with_model(home, clock, model) as h:
        fill(h, ONE, OTHER, *REST)
        talk(h)
        clock.advance(8 * DAY)
        talk(h)
        asked = len(model.requests)
        clock.advance(8 * DAY)
        talk(h)
        assert len(model.requests) == asked <= 1, "nothing in it has changed since"
