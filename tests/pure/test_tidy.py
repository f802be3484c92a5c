"""What tidying proposes: nothing is lost, nothing is touched that a person wants kept, and twice is as good as once."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.compression.summary import landmarks
from herma.memory import tidy
from herma.memory.entries import apply, least_valuable, used
from herma.memory.tidy import LocalChecks, TidyProposal, content_of, merged, passed, plan, unfaithful
from herma.types import Applied, Entry, Finding, Origin, Remove, Replace, Who

TODAY = datetime.date(2026, 6, 15)
NOW = datetime.datetime(2026, 6, 15, 12).timestamp()  # noqa: DTZ001  the user's own noon
DAY = 86_400.0


class Machine(LocalChecks):
    """What is there, and what a project's files say."""

    def __init__(
        self, gone: Sequence[str] = (), versions: dict[str, str] | None = None, there: Sequence[str] = ()
    ) -> None:
        super().__init__()
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
        Entry(text, origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, created=t, changed=t, confirmed=t)
        for text, t in zip(texts, at, strict=True)
    ]


FILLING = [
    "The deploy key lives in the vault of the platform group.",
    "Reviews need two approvals on the main branch.",
    "Screenshots of broken layouts belong into the ticket, never into chat.",
    "Customers in the northern region are billed quarterly by invoice.",
]


class Plan:
    """A plan, with the entries before it."""

    def __init__(self, file: Sequence[Entry], *, limit: int = 2200, machine: LocalChecks | None = None) -> None:
        self.before = tuple(one.text for one in file)
        self.proposals: tuple[TidyProposal, ...]
        self.proposals, self.after = plan(file, limit=limit, now=NOW, checks=machine)
        self.operations = tuple(op for one in self.proposals for op in one.operations)


def of(*texts: str, limit: int = 2200, machine: Machine | None = None) -> Plan:
    return Plan(entries(*texts, *FILLING), limit=limit, machine=machine)


# ── saying it once ──


@pytest.mark.parametrize(
    ("gone", "kept"),
    [
        ("The tests run with pytest -n 2.", "Tests run with pytest -n 2. CI uses the same command."),
        ("User prefers short answers.", "The user prefers short answers. Reply in German."),
    ],
)
def test_an_entry_that_another_one_says_too_goes_and_the_other_stays_as_it_is(gone: str, kept: str) -> None:
    assert merged(gone, kept) == merged(kept, gone) == kept
    found = of(gone, kept)
    assert [(step.kind, step.operations) for step in found.proposals] == [
        ("merge", (Replace(gone, kept, reworded=True),))
    ]
    assert found.after == (kept, *FILLING)
    assert used(found.before) - used(found.after) == found.proposals[0].frees


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "Reviews code on Monday mornings; wants pull requests of fewer than 300 changed lines before that.",
            "Reviews code on Monday mornings, and wants pull requests with fewer than 300 changed lines.",
        ),
        ("User prefers short answers. No emoji.", "The user prefers short answers. Reply in German."),
        ("Likes tea; no sugar;", "Likes tea; with milk;"),
        ("发布在周二。回滚用脚本。", "发布在周二。先通知运维。"),
    ],
)
def test_sentences_are_never_put_together(one: str, other: str) -> None:
    assert merged(one, other) in (None, one, other)


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
    assert result is None or all(
        word in content_of(result).words for text in (one, other) for word in content_of(text).words
    )
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
    assert Plan([confirmed, second, *entries(*FILLING)]).proposals == ()
    assert Plan([Entry("User lives in Rome"), Entry("User lives in Oslo")]).proposals == ()


# ── what is over ──


OVER = [
    *("Feature freeze until 2026-05-01.", "The certificate expires on 3 March 2026", "报告截止 2026年5月1日"),
    *("Deadline of the grant report: May 2, 2026", "User is on vacation from 2026-05-20 until 2026-06-01"),
]
NOT_OVER = [
    *("Feature freeze until 2026-06-15.", "Valid from 2025-01-01 until 2027-01-01.", "Deadline: 2026-13-45"),
    *("Migrated to PostgreSQL on 2024-03-01.", "The office was closed until 2024-03-01.", "until 5000-99-01"),
    *("User's birthday is 1990-05-01.", "Reports are due every month, next on 2026-05-01"),
    *("Version 2026-05-01 of the schema is in use.", "Freeze until 2026-05-01. Hotfixes need approval."),
]


@pytest.mark.parametrize("text", [*OVER, *NOT_OVER])
def test_only_a_date_that_has_passed_ends_an_entry(text: str) -> None:
    assert (passed(text, TODAY) is not None) == (text in OVER) or "Hotfixes" in text
    ended = [("expired", (Remove(text, kept="expired"),))] if text in OVER else []
    assert [(step.kind, step.operations) for step in of(text).proposals] == ended


# ── room ──


def test_entries_move_only_where_a_file_is_over_its_limit_and_no_further() -> None:
    texts = [f"Fact number {n} about the {word} of the house is written here." for n, word in enumerate("abcdefgh")]
    assert Plan(entries(*texts), limit=used(texts)).proposals == (), "full is not over the limit"
    found = Plan(entries(*texts), limit=used(texts) - 1)
    assert [(step.kind, step.entries) for step in found.proposals] == [("move", (texts[7],))], "the newest"
    assert found.operations == (Remove(texts[7], kept="room"),)


def test_only_as_much_is_proposed_as_a_write_needs() -> None:
    file = entries("Deploys go out on Tuesdays.", "Deploys go out on Tuesdays", *FILLING)
    size = used([one.text for one in file])
    proposals, after = plan(file, limit=2200, now=NOW, size=size - 10)
    assert [step.kind for step in proposals] == ["duplicate"]
    assert used(after) <= size - 10
    proposals, after = plan(file, limit=2200, now=NOW, size=size - 60)
    assert [step.kind for step in proposals] == ["duplicate", "move"]
    assert plan(file, limit=2200, now=NOW, size=size)[0] == ()


def test_value_is_not_age() -> None:
    old = NOW - 4_000 * DAY
    file = [
        Entry("Allergic to peanuts.", origin=Origin.USER_SAID, changed=old),
        Entry("My name is Ada.", origin=Origin.USER_SAID, changed=old),
        Entry("Always answer in French.", origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=old),
        Entry("Likes jazz.", origin=Origin.USER_SAID, changed=NOW),
        Entry("The lobby has a fern.", origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=NOW),
        Entry("b", category="preference", origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=old),
        Entry("c", origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=old),
        Entry("pinned", tags=("pinned",), origin=Origin.AGENT_CONCLUDED, by=Who.TOOL, changed=old),
    ]
    ordered = [one.text for one in least_valuable(file)]
    assert ordered == [
        *("The lobby has a fern.", "c", "b", "Likes jazz."),
        *("Always answer in French.", "My name is Ada.", "Allergic to peanuts.", "pinned"),
    ]


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
    by=st.sampled_from([None, Who.TOOL, Who.USER]),
    vouched=st.sampled_from([False, False, False, True]),
    created=TIME,
    changed=TIME,
    confirmed=TIME,
    findings=st.sampled_from([(), (), (), (Finding("r", (0, 1), "high", "w"),)]),
)
FILE = st.lists(ENTRY, max_size=9, unique_by=lambda one: one.text)
MACHINE = st.builds(Machine, st.sampled_from([(), ("/srv/app/x.py",)]), st.sampled_from([{}, {"python": "3.12"}]))


@given(FILE, st.integers(20, 900), MACHINE)
def test_nothing_disappears_and_nothing_is_made_up(file: list[Entry], limit: int, machine: Machine) -> None:
    found = Plan(file, limit=limit, machine=machine)
    assert set(found.after) <= set(found.before), "no sentence is composed"
    tail = {op.old_text for op in found.operations if isinstance(op, Remove)}
    said = "\n".join([*found.after, *tail])
    for text in set(found.before) - set(found.after) - tail:
        assert set(content_of(text).words) <= set(content_of(said).words), text
        assert all(mark.text in said for mark in landmarks(text))


@given(FILE, st.integers(20, 900), MACHINE)
def test_the_operations_do_what_the_plan_says_one_by_one(file: list[Entry], limit: int, machine: Machine) -> None:
    found = Plan(file, limit=limit, machine=machine)
    texts = [text for step in found.proposals for text in step.entries]
    assert len(texts) == len(set(texts)), "a person decides on each by itself"
    if found.proposals:
        result = apply(found.before, found.operations, limit)
        assert isinstance(result.outcome, Applied)
        assert result.entries == found.after
    for step in found.proposals:
        assert isinstance(apply(found.before, step.operations, limit).outcome, Applied)


@given(FILE, st.integers(20, 900), MACHINE)
def test_moves_are_the_last_resort_and_only_as_many_as_needed(file: list[Entry], limit: int, machine: Machine) -> None:
    found = Plan(file, limit=limit, machine=machine)
    moves = [step for step in found.proposals if step.kind == "move"]
    assert list(found.proposals[len(found.proposals) - len(moves) :]) == moves
    if moves:
        assert used([*found.after, moves[-1].entries[0]]) > limit


@given(FILE, st.integers(20, 900), MACHINE, st.data())
def test_what_a_person_wants_kept_is_never_proposed(
    file: list[Entry], limit: int, machine: Machine, data: st.DataObject
) -> None:
    alone = set(data.draw(st.lists(st.sampled_from([one.text for one in file]), max_size=3))) if file else set()
    proposals, after = plan(file, limit=limit, now=NOW, checks=machine, alone=alone)
    fixed = {one.text for one in file if one.vouched or "pinned" in one.tags or one.findings} | alone
    assert fixed <= set(after)
    assert not fixed & {text for step in proposals for text in step.entries}


# ── what is looked up on this machine: only what is certain, and nothing is done for it ──


def test_what_is_certain_about_a_path(tmp_path: Path, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "app.py").write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    (user_folder / "notes").mkdir()
    anywhere, project = LocalChecks(), LocalChecks(str(tmp_path))
    monkeypatch.chdir(tmp_path.parent)
    for checks, path, there in (
        (anywhere, str(tmp_path / "src"), True),
        (anywhere, str(tmp_path / "gone.txt"), False),
        (anywhere, str(tmp_path / "gone" / "deep" / "x.txt"), False),
        (anywhere, str(tmp_path / "link"), True),
        (anywhere, "~/notes", True),
        (project, "src/app.py", True),
        (project, "src/gone.py", False),
        (project, "read/write/execute", None),  # no folder of the project is called so
        (project, "src/../../etc/passwd", None),
        (LocalChecks(tmp_path.name), "src/gone.py", None),  # a name is no folder
        (anywhere, "/nowhere-of-this-kind/a/b.txt", None),  # another machine's, most likely
        *((anywhere, path, None) for path in ("//server/share/file.txt", "\\\\server\\share\\file.txt")),
        *((anywhere, path, None) for path in ("C:\\Users\\ada\\file.txt", "src/app.py", "x\0y/z", "a" * 2000 + "/b")),
    ):
        assert checks.exists(path) is there, path


def test_network_mounts_are_not_touched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def mounted(_: str, path: object) -> str:
        return "nfs4" if str(path).startswith(str(tmp_path / "share")) else "ext4"

    def touched(path: object) -> None:
        raise AssertionError(f"{path} was touched")

    monkeypatch.setattr(tidy, "file_system", mounted)
    monkeypatch.setattr("herma.memory.tidy.os.lstat", touched)
    assert LocalChecks().exists(str(tmp_path / "share" / "x.txt")) is None


def test_versions_that_a_project_names(tmp_path: Path) -> None:
    checks = LocalChecks(str(tmp_path))
    assert checks.version("python") is None
    for name, text, tool, version in (
        (".python-version", b"3.12.4\n", "python", "3.12.4"),
        ("go.mod", b"module x\n\ngo 1.22\n", "go", "1.22"),
        (".node-version", b"v20.11.1", "node", "20.11.1"),
    ):
        (tmp_path / name).write_bytes(text)
        assert checks.version(tool) == (version, name)
    (tmp_path / ".nvmrc").write_bytes(b"\xff\xfe lts/*")
    assert checks.version("node") == ("20.11.1", ".node-version")
    assert LocalChecks().version("go") is None
    (tmp_path / ".ruby-version").mkdir()
    assert checks.version("ruby") is None
