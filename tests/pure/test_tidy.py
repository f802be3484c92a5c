"""What tidying proposes: nothing is lost, nothing is touched that a person wants kept, and twice is as good as once."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.compression.summary import landmarks
from herma.memory.entries import apply, used
from herma.memory.tidy import FULL, Plan, bare, least_valuable, merged, overtaken, passed, plan, unfaithful, value
from herma.review.gate import check_loss, gist
from herma.types import Applied, Entry, Finding, Origin, Remove

TODAY = datetime.date(2026, 6, 15)
NOW = datetime.datetime(2026, 6, 15, 12).timestamp()  # noqa: DTZ001  the user's own noon
DAY = 86_400.0


class Machine:
    """What is there, and what a project's files say."""

    def __init__(
        self, gone: Sequence[str] = (), versions: dict[str, str] | None = None, there: Sequence[str] = ()
    ) -> None:
        self.gone = set(gone)
        self.there = set(there)
        self.versions = versions or {}

    def exists(self, path: str) -> bool | None:
        return False if path in self.gone else True if path in self.there else None

    def version(self, tool: str) -> tuple[str, str] | None:
        return (self.versions[tool], ".tool-versions") if tool in self.versions else None


def entries(*texts: str, days: float = 10) -> list[Entry]:
    """Written one day after the other, the last `days` ago."""
    count = len(texts)
    at = [NOW - (days + count - n) * DAY for n in range(count)]
    return [
        Entry(text, origin=Origin.AGENT_CONCLUDED, created=t, changed=t, confirmed=t)
        for text, t in zip(texts, at, strict=True)
    ]


FILLING = [
    "The deploy key lives in the vault of the platform group.",
    "Reviews need two approvals on the main branch.",
    "Screenshots of broken layouts belong into the ticket, never into chat.",
    "Customers in the northern region are billed quarterly by invoice.",
]


def of(*texts: str, limit: int = 2200, machine: Machine | None = None) -> Plan:
    return plan(entries(*texts, *FILLING), limit=limit, now=NOW, checks=machine)


# ── saying it once ──


@pytest.mark.parametrize(
    ("one", "other", "both"),
    [
        (
            "The tests run with pytest -n 2.",
            "Tests run with pytest -n 2. CI uses the same command.",
            "Tests run with pytest -n 2. CI uses the same command.",
        ),
        (
            "User prefers short answers. No emoji.",
            "The user prefers short answers. Reply in German.",
            "User prefers short answers. No emoji. Reply in German.",
        ),
        ("Deploys go out on Tuesdays", "Deploys go out on Tuesdays.", "Deploys go out on Tuesdays"),
    ],
)
def test_two_entries_that_say_the_same_become_one(one: str, other: str, both: str) -> None:
    assert merged(one, other) == merged(other, one) == both
    found = of(one, other)
    assert [step.kind for step in found.proposals] == ["merge"]
    assert found.after == (both, *FILLING) or set(found.after) == {both, *FILLING}
    assert used(found.before) - used(found.after) == found.proposals[0].frees


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Backups of staging run nightly at two with restic.", "Backups of production run nightly at two with restic."),
        ("The API listens on port 8080.", "The API listens on port 9090."),
        ("User prefers tabs over spaces.", "User prefers spaces over tabs."),
        ("Never push to main on Fridays.", "Push to main on Fridays."),
        ("Tests run before deploy.", "Deploy runs before tests."),
        ("Config is in /etc/app/a.toml here.", "Config is in /etc/app/b.toml here."),
        ("The user likes tea.", "The user likes tea and coffee"),
    ],
)
def test_entries_that_only_look_alike_are_left_alone(one: str, other: str) -> None:
    result = merged(one, other)
    assert result is None or all(word in gist(result).words for text in (one, other) for word in gist(text).words)
    if "tea" not in one:
        assert result is None


def test_what_a_model_words_must_keep_every_landmark() -> None:
    originals = ("Run `make check` before pushing to main.", "Before a push to main, run `make check`; it takes 90 s.")
    assert unfaithful("Before pushing to main run `make check` (takes 90 s).", originals) == ""
    assert "make check" in unfaithful("Before pushing to main, run the checks; it takes 90 s.", originals)
    assert "90" in unfaithful("Run `make check` before pushing to main.", originals)
    assert "adds" in unfaithful("Before pushing to main run `make check` (takes 90 s, 12 steps).", originals)
    assert unfaithful("Never run `make check` before pushing to main, 90 s.", originals)
    assert unfaithful("`make check` 90 s", originals)
    assert unfaithful("", originals)
    assert unfaithful("x " * 200, originals) == "it saves nothing"


# ── newer facts ──


def test_the_newer_of_two_facts_stands() -> None:
    found = of("Timezone: Europe/Rome", "Timezone: Europe/Oslo")
    assert [step.kind for step in found.proposals] == ["superseded"]
    assert "Timezone: Europe/Rome" not in found.after
    assert "Timezone: Europe/Oslo" in found.after
    assert found.operations == (Remove("Timezone: Europe/Rome", kept="superseded"),)


def test_older_facts_stay_where_that_is_not_certain() -> None:
    assert of("User's language is German", "User's language is English").proposals == ()
    exact = of("User lives in Berlin", "User lives in Berlin, Germany").proposals
    assert [step.kind for step in exact] == ["merge"], "said more exactly, not otherwise"
    assert of("User lives in Rome. Likes tea.", "User lives in Oslo").proposals == ()
    first, second = entries("User lives in Rome", "User lives in Oslo")
    confirmed = Entry(first.text, changed=first.changed, confirmed=NOW)
    assert plan([confirmed, second, *entries(*FILLING)], limit=2200, now=NOW).proposals == ()
    assert plan([Entry("User lives in Rome"), Entry("User lives in Oslo")], limit=2200, now=NOW).proposals == ()


# ── what is over ──


@pytest.mark.parametrize(
    "text",
    [
        "Feature freeze until 2026-05-01.",
        "The certificate expires on 3 March 2026",
        "Deadline of the grant report: May 2, 2026",
        "报告截止 2026年5月1日",
        "User is on vacation from 2026-05-20 until 2026-06-01",
    ],
)
def test_a_date_that_has_passed_ends_an_entry(text: str) -> None:
    assert passed(text, TODAY) is not None
    found = of(text)
    assert [(step.kind, step.operations) for step in found.proposals] == [("expired", (Remove(text, kept="expired"),))]


@pytest.mark.parametrize(
    "text",
    [
        "Feature freeze until 2026-06-15.",
        "Valid from 2025-01-01 until 2027-01-01.",
        "Migrated to PostgreSQL on 2024-03-01.",
        "The office was closed until 2024-03-01.",
        "User's birthday is 1990-05-01.",
        "Reports are due every month, next on 2026-05-01",
        "Version 2026-05-01 of the schema is in use.",
        "Deadline: 2026-13-45",
        "until 5000-99-01",
    ],
)
def test_other_dates_are_left_alone(text: str) -> None:
    assert passed(text, TODAY) is None
    assert of(text).proposals == ()


def test_a_date_in_a_longer_entry_is_marked_and_nothing_is_taken_out() -> None:
    text = "Freeze until 2026-05-01. Hotfixes need approval by the release group."
    found = of(text)
    assert [step.kind for step in found.proposals] == ["mark"]
    assert found.after[0].startswith(text)
    assert bare(found.after[0]) == text


def test_a_path_that_is_gone_is_marked_until_it_is_back() -> None:
    text = "Logs are written to /srv/shop/logs/app.log by the worker."
    gone = Machine(gone=["/srv/shop/logs/app.log"])
    found = of(text, machine=gone)
    assert [step.kind for step in found.proposals] == ["mark"]
    assert found.after[0] == f"{text} [tidy: app.log not found, 2026-06-15]"
    again = of(found.after[0], machine=gone)
    assert again.proposals == ()
    assert of(found.after[0], machine=Machine()).proposals == (), "on another machine nobody can tell"
    back = of(found.after[0], machine=Machine(there=["/srv/shop/logs/app.log"]))
    assert [step.kind for step in back.proposals] == ["unmark"]
    assert back.after[0] == text


def test_a_version_that_the_project_contradicts_is_marked() -> None:
    files = Machine(versions={"python": "3.12.4", "node": "20"})
    assert overtaken("The code needs Python 3.9 to build.", TODAY, files) is not None
    assert overtaken("The code needs Python 3.12 to build.", TODAY, files) is None
    assert overtaken("CI runs Node.js 18.2 on Linux", TODAY, files) is not None
    assert overtaken("CI runs Go 1.22", TODAY, files) is None
    assert overtaken("See https://example.org/python/3.9/x", TODAY, files) is None


# ── room ──


def test_above_four_fifths_the_least_valuable_moves_to_the_tail() -> None:
    texts = [f"Fact number {n} about the {word} of the house is written here." for n, word in enumerate("abcdefgh")]
    known = entries(*texts)
    limit = round(used(texts) / 0.95)
    found = plan(known, limit=limit, now=NOW)
    assert {step.kind for step in found.proposals} == {"move"}
    assert used(found.after) <= FULL * limit
    assert found.before[: len(found.proposals)] == tuple(step.entries[0] for step in found.proposals), "the oldest"
    assert all(step.operations == (Remove(step.entries[0], kept="room"),) for step in found.proposals)


def test_value_prefers_people_and_what_was_confirmed_lately() -> None:
    old = NOW - 400 * DAY
    identity = Entry("a", category="identity", origin=Origin.USER_SAID, changed=old)
    fresh = Entry("b", origin=Origin.AGENT_CONCLUDED, changed=NOW)
    stale = Entry("c", origin=Origin.AGENT_CONCLUDED, changed=old)
    unknown = Entry("d")
    assert value(identity, NOW) > value(fresh, NOW) > value(stale, NOW)
    assert [one.text for one in least_valuable([identity, fresh, stale, unknown], NOW)][-1] == "a"
    assert value(unknown, NOW) > 0


def test_one_pass_changes_at_most_a_quarter() -> None:
    texts = [f"{word} " * 20 + "." for word in ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot")]
    found = plan(entries(*texts), limit=used(texts) // 2, now=NOW)
    assert check_loss(found.before, found.after) is None
    assert found.held
    assert "one pass may change 25 %" in found.held[0][1]


# ── properties ──

_WORDS = (
    "deploy staging port 8080 9090 not never python 3.9 3.12 /srv/app/x.py user prefers tabs spaces until 2026-05-01 "
    "2027-01-01 Timezone: Europe/Rome tea. night; `make check` 数据库 端口。 restic"
)
WORDS = st.sampled_from(_WORDS.split())
TEXT = st.lists(WORDS, min_size=1, max_size=12).map(" ".join)
ORIGIN = st.sampled_from([Origin.USER_SAID, Origin.AGENT_CONCLUDED, None])
TIME = st.none() | st.floats(NOW - 500 * DAY, NOW)
ENTRY = st.builds(
    Entry,
    text=TEXT,
    category=st.sampled_from([None, "identity", "lesson"]),
    tags=st.sampled_from([(), ("pinned",), ("x",)]),
    origin=ORIGIN,
    vouched=st.sampled_from([False, False, False, True]),
    created=TIME,
    changed=TIME,
    confirmed=TIME,
    findings=st.sampled_from([(), (), (), (Finding("r", (0, 1), "high", "w"),)]),
)
FILE = st.lists(ENTRY, max_size=9, unique_by=lambda one: one.text)
MACHINE = st.builds(Machine, st.sampled_from([(), ("/srv/app/x.py",)]), st.sampled_from([{}, {"python": "3.12"}]))


def test_a_command_that_goes_over_the_end_of_a_sentence_is_not_cut_apart() -> None:
    assert merged("tea.", "`make tea. `make") is None


@given(FILE, st.integers(20, 900), MACHINE)
def test_nothing_disappears(file: list[Entry], limit: int, machine: Machine) -> None:
    found = plan(file, limit=limit, now=NOW, checks=machine)
    tail = {
        op.old_text
        for op in found.operations
        if isinstance(op, Remove) and op.kept in ("room", "expired", "superseded")
    }
    said = "\n".join([*found.after, *tail])
    for text in found.before:
        if text in found.after or text in tail:
            continue
        words = set(gist(bare(text)).words)
        assert words <= set(gist(said).words), text
        assert all(mark.text in said for mark in landmarks(bare(text)))


@given(FILE, st.integers(20, 900), MACHINE)
def test_the_operations_do_what_the_plan_says_within_the_limit(file: list[Entry], limit: int, machine: Machine) -> None:
    found = plan(file, limit=limit, now=NOW, checks=machine)
    if not found.proposals:
        assert found.after == found.before
        return
    result = apply(found.before, found.operations, limit)
    assert isinstance(result.outcome, Applied)
    assert result.entries == found.after
    assert used(found.after) <= max(limit, used(found.before))
    assert check_loss(found.before, found.after, {**result.successors, **_merged_into(found)}) is None


def _merged_into(found: Plan) -> dict[str, str]:
    heirs: dict[str, str] = {}
    for step in found.proposals:
        heirs = {old: step.result if new in step.entries else new for old, new in heirs.items()}
        heirs |= {text: step.result for text in step.entries if step.result}
    return {old: new for old, new in heirs.items() if new}


@given(FILE, st.integers(20, 900), MACHINE)
def test_twice_is_as_good_as_once(file: list[Entry], limit: int, machine: Machine) -> None:
    found = plan(file, limit=limit, now=NOW, checks=machine)
    if found.held:
        return  # the next pass goes on from there, by another quarter
    known = {one.text: one for one in file}
    after = [known.get(text, Entry(text, changed=NOW)) for text in found.after]
    again = plan(after, limit=limit, now=NOW, checks=machine)
    assert [step.kind for step in again.proposals if step.kind != "superseded"] == []


@given(FILE, st.integers(20, 900), MACHINE, st.data())
def test_what_a_person_wants_kept_is_never_touched(
    file: list[Entry], limit: int, machine: Machine, data: st.DataObject
) -> None:
    alone = set(data.draw(st.lists(st.sampled_from([one.text for one in file]), max_size=3))) if file else set()
    found = plan(file, limit=limit, now=NOW, checks=machine, alone=alone)
    fixed = {one.text for one in file if one.vouched or "pinned" in one.tags or one.findings} | alone
    assert fixed <= set(found.after)
    assert not fixed & {text for step in found.proposals for text in step.entries}
