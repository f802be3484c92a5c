"""Tidying curated memory: it proposes, a person decides, and nothing that a person wrote moves without a yes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.homes import call as tool
from tests.homes import of_files, talk

from herma import Add, Applied, Author, Herma, Origin, OverBudget, Remove, Replace, Scope, Staged, Who
from herma.memory.archive import ArchiveRecall
from herma.memory.tidy import Tidied
from herma.testing import FixedClock
from herma.testing.doubles import Answer, ScriptedModel, tool_call

DAY = 86_400.0
AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
TWICE = ("The tests run with pytest -n 2.", "Tests run with pytest -n 2. CI uses the same command.")
REST = (
    "Screenshots of broken layouts belong into the ticket and not into the chat.",
    "Customers in the northern region are billed quarterly by invoice.",
    "The vault of the platform group holds the deploy key of the shop.",
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No test fails because a machine is busy."""
    monkeypatch.setattr(ArchiveRecall, "deadline", 30.0)


def fill(h: Herma, *texts: str, scope: Scope | None = None) -> None:
    for text in texts:
        assert h.memory.apply("memory", Add(text), scope=scope, author=AGENT).ok


def memory_of(h: Herma) -> Tidied:
    """Everything that tidying would do to MEMORY.md, done: a person saw it and said yes."""
    report = h.tidy(dry_run=True)
    return next(one for one in h.tidy.apply(report).files if one.target == "memory")


def planned(h: Herma) -> Tidied:
    return next(one for one in h.tidy(dry_run=True).files if one.target == "memory")


# ── asked for ──


def test_it_is_one_change_that_can_be_undone_and_a_dry_run_does_nothing(h: Herma) -> None:
    before = [*TWICE, "Feature freeze until 2020-05-01.", *REST]
    fill(h, *before)
    found = planned(h)
    assert [step.kind for step in found.proposals] == ["merge", "expired"]
    assert found.outcome is None
    assert found.frees == sum(step.frees for step in found.proposals) > 0
    assert h.memory.entries("memory") == before
    found = memory_of(h)
    assert isinstance(found.outcome, Applied)
    assert tuple(h.memory.entries("memory")) == found.after == (TWICE[1], *REST)
    change = h.memory.history()[0]
    assert (change.id, change.author.who) == (found.outcome.change, Who.USER)
    assert change.reason == "tidy: 1 merged, 1 expired"
    assert [one.why for one in h.memory.archive.list()] == ["expired"]
    assert memory_of(h).proposals == (), "twice is as good as once"
    h.memory.undo()
    assert h.memory.entries("memory") == before
    assert h.memory.archive.list() == []
    assert planned(h).proposals == (), "what a person took back is not done again"


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
    memory_of(h)
    entry = h.memory.describe("memory")[0]
    assert (entry.text, entry.category, entry.tags, entry.created) == (TWICE[1], "convention", ("ci",), began)
    assert entry.confirmed == clock(), "a person saw that it stays"
    assert entry.origin is Origin.USER_SAID


def test_a_project_is_checked_against_its_folder(h: Herma, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "there.py").write_text("")
    (tmp_path / ".python-version").write_text("3.12.4\n")
    scope = Scope(project=str(tmp_path))
    sentences = ("The cart lives in src/there.py and is small.", "The till lives in src/gone.py and is large.")
    fill(h, *sentences, "The code is built with Python 3.9 on Linux.", *REST, scope=scope)
    fill(h, "CI runs Python 3.12 on Linux.", "See https://example.org/python/3.9/x for more.", scope=scope)

    def expired() -> set[str]:
        found = next(one for one in h.tidy(scope=scope, dry_run=True).files if one.target == "memory")
        assert {step.kind for step in found.proposals} == {"expired"}
        return {step.entries[0][:10] for step in found.proposals}

    assert expired() == {"The till l", "The code i"}
    (tmp_path / "src" / "gone.py").write_text("")
    assert expired() == {"The code i"}


@of_files
def test_a_file_that_cannot_be_read_is_left_alone(h: Herma, home: Path) -> None:
    (home / "memories").mkdir()
    (home / "memories" / "MEMORY.md").write_bytes(b"\xff\xfe\x00bad")
    found = memory_of(h)
    assert found.proposals == ()
    assert "UTF-8" in found.notes[0]


# ── by itself: nothing ──

TREES = "amber birch cedar dune ember fjord grove heath isle juniper kelp larch moss nettle oak"
TRIVIA = [f"Once read a long article about {word}, and liked the pictures in it so much." for word in TREES.split()]
THEIRS = ["My name is Ada Okafor.", "Allergic to peanuts."]


def profile(h: Herma) -> list[str]:
    """USER.md as a person filled it long ago: name and allergy first, then fifteen lines of trivia, 88 % full."""
    for text in [*THEIRS, *TRIVIA]:
        assert h.memory.apply("user", Add(text)).ok
    status = next(one for one in h.memory.status() if one.target == "user")
    assert round(100 * status.used / status.limit) == 88
    return h.memory.entries("user")


def chat(home: Path, model: ScriptedModel, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HERMA_", "HERMES_"))}
    env |= {"HERMA_HOME": str(home), "HERMA_MODEL_URL": model.url, "HERMA_MODEL_NAME": "scripted", **variables}
    env |= {"HERMA_EMBEDDING_MODEL": "none", "HERMA_MODEL_STREAM": "false", "HERMA_REVIEW_ENABLED": "false"}
    command = [sys.executable, "-m", "herma.cli.main", "chat", "-p", "hello", *words]
    return subprocess.run(
        command, env=env, capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL, timeout=300, check=True
    )


@of_files
def test_a_greeting_moves_nothing_that_the_user_told(home: Path) -> None:
    with Herma.open(home) as h:
        before = profile(h)
    with ScriptedModel(["Hi!", "Hi again!"]) as model:
        for _ in range(2):
            ran = chat(home, model)
            assert "Hi" in ran.stdout
        for asked in model.requests:
            assert "Allergic to peanuts." in str(asked.messages)
            assert "My name is Ada Okafor." in str(asked.messages)
    with Herma.open(home) as h:
        assert h.memory.entries("user") == before
        assert (h.memory.archive.list("user"), h.memory.pending()) == ([], [])
        assert {change.author.who for change in h.memory.history()} == {Who.USER}


def test_below_its_limit_a_file_is_left_alone_for_ever(h: Herma, clock: FixedClock) -> None:
    fill(h, *TWICE, "Feature freeze until 2020-05-01.", "Deploys are on Tuesdays.", "Deploys are on Tuesdays")
    before = h.memory.entries("memory")
    for _ in range(3):
        with h.session() as s:
            talk(s, "hello")
        clock.advance(30 * DAY)
    assert h.memory.entries("memory") == before
    assert h.memory.pending() == []


# ── by itself: where a write needs the room ──

SMALL = {"memory.memory_char_limit": 200, "memory.user_char_limit": 200}
TWIN = ("Deploys go out on Tuesdays at noon, after the tests.", "deploys go out on Tuesdays at noon, after the tests")
SHORT = "The staging server is called basalt."
NEW = "The staging server is called basalt and runs in Oslo, on ARM."


def call(h: Herma, content: str, target: str = "memory") -> tuple[dict[str, object], tuple[str, ...]]:
    with h.session() as s:
        s.before_model("hello")
        answer = json.loads(s.call_tool("memory", {"action": "add", "target": target, "content": content}))
        return answer, s.warnings


def test_an_exact_duplicate_of_the_agents_goes_for_a_write_and_it_is_said(home: Path) -> None:
    with Herma.open(home, flags=SMALL) as h:
        fill(h, TWIN[0], REST[0], TWIN[1])
        answer, warnings = call(h, SHORT)
        assert answer["success"] is True
        assert TWIN[1] in str(answer["message"])
        assert any(TWIN[1] in warning for warning in warnings)
        assert h.memory.entries("memory") == [TWIN[0], REST[0], SHORT]
        assert "exact duplicates taken out" in h.memory.history()[0].reason
        assert h.memory.undo().ok
        assert h.memory.entries("memory") == [TWIN[0], REST[0], TWIN[1]], "one undo takes all of it back"


@of_files
@pytest.mark.parametrize("words", [(), ("--json",)])
def test_the_chat_says_before_the_answer_that_a_duplicate_went(home: Path, words: tuple[str, ...]) -> None:
    with Herma.open(home, flags=SMALL) as h:
        fill(h, TWIN[0], REST[0], TWIN[1])
    wanted = tool_call("memory", {"action": "add", "target": "memory", "content": SHORT})
    with ScriptedModel([Answer(calls=(wanted,)), "Noted."]) as model:
        ran = chat(home, model, *words, HERMA_MEMORY_MEMORY_CHAR_LIMIT="200")
    assert "exact duplicate" in ran.stderr
    assert TWIN[1] in ran.stderr
    if words:
        assert any(TWIN[1] in note for note in json.loads(ran.stdout)["notes"])
    else:
        assert "Noted." in ran.stdout


@pytest.mark.parametrize("policy", ["apply", "propose", "off"])
def test_a_duplicate_that_a_person_wrote_or_approved_stays(home: Path, policy: str) -> None:
    with Herma.open(home, flags={**SMALL, "memory.tidy": policy}) as h:
        fill(h, TWIN[0], REST[0])
        if policy == "apply":
            staged = h.memory.propose("memory", [Add(TWIN[1])], author=AGENT)
            assert isinstance(staged, Staged)
            assert h.memory.approve(staged.pending).ok
            h.memory.apply("memory", Add(TWIN[0]))  # said by the person, too
        else:
            fill(h, TWIN[1])
        before = h.memory.entries("memory")
        answer, _ = call(h, SHORT)
        assert answer["success"] is False
        assert h.memory.entries("memory") == before
        assert bool(h.memory.pending()) == (policy != "off")


def test_what_would_make_room_is_proposed_with_what_goes_and_what_stays(home: Path) -> None:
    with Herma.open(home, flags=SMALL) as h:
        h.memory.apply("user", [Add("Allergic to peanuts."), Add("Likes jazz, and old maps of harbours in the north.")])
        h.memory.apply("user", [Add(TWIN[0]), Add(f"{TWIN[0]} And on Fridays.")])
        before = h.memory.entries("user")
        answer, warnings = call(h, NEW, "user")
        assert answer["success"] is False
        assert h.memory.entries("user") == before
        merge, move = h.memory.pending()
        assert f"m{merge.id}, m{move.id}" in str(answer["error"])
        assert any("wait for a person" in warning for warning in warnings)
        assert merge.operations == (Replace(TWIN[0], f"{TWIN[0]} And on Fridays.", reworded=True),)
        assert move.operations == (Remove(before[1], kept="room"),), "not the allergy, which is as old"
        call(h, NEW, "user")
        assert len(h.memory.pending()) == 2, "proposed once"
        assert h.memory.approve(merge.id).ok
        assert h.memory.approve(move.id).ok
        assert h.memory.entries("user") == ["Allergic to peanuts.", f"{TWIN[0]} And on Fridays."]
        assert call(h, NEW, "user")[0]["success"] is True


def test_what_a_person_rejected_is_not_proposed_again(home: Path) -> None:
    with Herma.open(home, flags=SMALL) as h:
        h.memory.apply("user", [Add(text) for text in ("Allergic to peanuts.", *REST[:2])])
        call(h, NEW, "user")
        (first,) = h.memory.pending()
        h.memory.reject(first.id)
        call(h, NEW, "user")
        (second,) = h.memory.pending()
        assert second.operations != first.operations
        h.memory.reject(second.id)
        call(h, NEW, "user")
        call(h, NEW, "user")
        (last,) = h.memory.pending()
        assert last.operations == (Remove("Allergic to peanuts.", kept="room"),)
        h.memory.reject(last.id)
        call(h, NEW, "user")
        assert h.memory.pending() == []


def test_an_agent_moves_its_own_entries_and_asks_for_a_persons(home: Path) -> None:
    with Herma.open(home, flags=SMALL) as h:
        fill(h, REST[0])
        h.memory.apply("memory", Add(REST[1]))
        ops = [{"action": "remove", "old_text": REST[1]}, {"action": "add", "content": NEW}]
        answer = json.loads(h.tools.call("memory", {"target": "memory", "operations": ops}))
        assert answer["staged"] is True
        assert h.memory.entries("memory") == list(REST[:2])
        ops[0]["old_text"] = REST[0]
        assert json.loads(h.tools.call("memory", {"target": "memory", "operations": ops}))["success"] is True
        assert h.memory.entries("memory") == [REST[1], NEW]
        assert [one.text for one in h.memory.archive.list()] == [REST[0]]


@pytest.mark.parametrize(
    ("old", "new", "staged"),
    [
        ("peanuts", "Plays the tenor saxophone in a band called Blue Door.", True),
        ("peanuts", "Allergic to peanuts and soy.", False),
        ("Berlin", "Lives in Lisbon.", False),
    ],
)
def test_an_agent_asks_before_something_else_takes_the_place_of_a_persons_entry(
    h: Herma, old: str, new: str, staged: bool
) -> None:
    h.memory.apply("user", [Add("Allergic to peanuts."), Add("Lives in Berlin.")])
    with h.session() as session:
        session.before_model("hello")
        answer = tool(session, "memory", action="replace", target="user", old_text=old, content=new)
    assert bool(answer.get("staged")) is staged
    assert (new in h.memory.entries("user")) is not staged
    assert not staged or "Allergic to peanuts." in h.memory.entries("user")


def test_a_person_is_told_that_an_agent_removed_their_entry(h: Herma) -> None:
    h.memory.apply("user", [Add("Allergic to peanuts."), Add("Lives in Berlin.")])
    with h.session() as session:
        session.before_model("hello")
        assert tool(session, "memory", action="add", target="user", content="Likes tea.")["success"]
        assert tool(session, "memory", action="remove", target="user", old_text="tea")["success"]
        assert not session.warnings, "it was the agent's own"
        assert tool(session, "memory", action="remove", target="user", old_text="peanuts")["success"]
        (told,) = session.warnings
        assert "“Allergic to peanuts.”" in told
        change = h.memory.history("user")[0].id
        assert f"herma undo m{change}" in told


@of_files
@pytest.mark.parametrize("who", [Who.TIDY, Who.REVIEW, Who.CURATOR, Who.IMPORT])
@pytest.mark.parametrize(
    "op",
    [
        Remove(REST[0]),
        Remove(REST[0], kept="room"),
        Remove(REST[0], kept="merged"),
        Replace(REST[0], "Screenshots go into the ticket.", reworded=True),
        Replace("Screenshots", "Screenshots go into the ticket."),
    ],
)
def test_nothing_in_the_background_touches_what_a_person_wrote(
    h: Herma, home: Path, who: Who, op: Remove | Replace
) -> None:
    author = Author(who, Origin.AGENT_CONCLUDED)
    h.memory.apply("memory", Add(REST[0]))
    assert isinstance(h.memory.apply("memory", op, author=author), Staged)
    h.memory.apply("memory", Remove(REST[0]))
    fill(h, REST[0].replace("broken", "bad"))
    (home / "memories" / "MEMORY.md").write_text(REST[0])  # a person rewords what the agent had concluded
    assert isinstance(h.memory.apply("memory", op, author=author), Staged)
    assert h.memory.entries("memory") == [REST[0]]


def test_a_write_that_can_never_fit_proposes_nothing(home: Path) -> None:
    with Herma.open(home, flags=SMALL) as h:
        fill(h, REST[0])
        outcome = h.memory.apply("memory", Add("x" * 300), author=AGENT)
        assert isinstance(outcome, OverBudget)
        assert outcome.proposed == ()
        mine = h.memory.apply("memory", Add("x" * 180))
        assert isinstance(mine, OverBudget)
        assert mine.proposed == (), "a person reads the suggestions"
        assert h.memory.pending() == []


def test_called_by_a_program_tidying_only_proposes(h: Herma) -> None:
    fill(h, *TWICE, *REST)
    report = h.tidy()
    assert not report.changed
    assert h.memory.entries("memory") == [*TWICE, *REST]
    (waiting,) = h.memory.pending()
    assert [one.staged for one in report.files] == [(waiting.id,), ()]
    assert (waiting.author.who, waiting.operations) == (Who.TIDY, (Replace(*TWICE, reworded=True),))
    assert h.memory.approve(waiting.id).ok
    assert h.memory.entries("memory") == [TWICE[1], *REST]
    assert h.memory.describe("memory")[0].of_a_person, "it stands for what a person approved"


# ── with a model ──


def with_model(home: Path, clock: FixedClock, model: ScriptedModel) -> Herma:
    flags = {"model.url": model.url, "model.name": "scripted", "review.enabled": False}
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


def test_a_model_is_asked_only_where_it_can_help_and_may_fail(home: Path, clock: FixedClock) -> None:
    with ScriptedModel([Answer.failing(400)]) as model, with_model(home, clock, model) as h:
        fill(h, *REST)
        h.tidy(dry_run=True)
        fill(h, *TWICE)
        h.tidy(model=False)
        assert model.requests == [], "nothing is alike, or nobody wants it"
        fill(h, ONE, OTHER)
        found = planned(h)
        assert [step.kind for step in found.proposals] == ["merge"], "the rules stand"
        assert "Without a model's wording" in found.notes[0]
    with ScriptedModel([]) as model:
        flags = {"model.url": model.url, "model.name": "scripted", "spend.daily_tokens": 0, "review.enabled": False}
        with Herma.open(home, clock=clock, flags=flags) as h:
            assert "switched off" in planned(h).notes[0]
        assert model.requests == []
