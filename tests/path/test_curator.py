"""The curator from end to end: runs, reports, rollback, and a run that comes by itself."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from tests.homes import skill_text as document

from herma import Author, Herma, Origin, Who
from herma.errors import ConfigError, StoreBusy, UsageError
from herma.skills.rows import SkillWritten
from herma.store.files import named_lock
from herma.testing import FixedClock, ScriptedModel

AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
DAY = 86_400.0


def make(h: Herma, *names: str, author: Author = AGENT, category: str = "") -> None:
    for name in names:
        assert h.skills.create(name, document(name), author=author, category=category, despite_similar=True).ok


def aged(h: Herma, clock: FixedClock, *, runs: int = 3) -> None:
    """A hundred days later, with as many runs as it takes."""
    clock.advance(95 * DAY)
    for _ in range(runs):
        clock.advance(8 * DAY)
        h.curator.run()


def test_unused_skills_become_stale_are_named_and_go_and_come_back(h: Herma, clock: FixedClock, home: Path) -> None:
    make(h, "bake", "cut", category="kitchen")
    make(h, "mine", author=Author())
    clock.advance(31 * DAY)
    h.skills.record("cut", True)
    first = h.curator.run()
    assert [(m.skill, m.before, m.after, m.result) for m in first.moves] == [("bake", "active", "stale", "done")]
    assert first.diff.splitlines()[-2:] == ["-bake: active", "+bake: stale"]
    assert h.curator.run().moves == ()
    clock.advance(60 * DAY)
    h.skills.record("cut", True)
    second = h.curator.run()
    (gone,) = second.moves
    assert (gone.skill, gone.after, gone.reason) == ("bake", "archived", "unused for 91 days")
    assert not (home / "skills/kitchen/bake").exists()
    assert (home / "skills/.archive/bake/SKILL.md").exists()
    change = h.skills.change(gone.change or 0)
    assert change is not None
    assert change.author.who is Who.CURATOR
    assert change.reason == f"curator {second.id}: unused for 91 days"
    assert second.kept == {"mine": "it was not made by an agent"}
    text = (home / f"logs/curator/{second.id}/REPORT.md").read_text()
    assert "| bake | stale | archived |" in text
    assert f"herma skills tidy --rollback {second.id}" in text
    assert json.loads((home / f"logs/curator/{second.id}/report.json").read_text())["state"] == "done"
    assert h.curator.report() == second
    assert h.curator.report(first.id) == first
    assert h.skills.restore("bake").ok
    assert (home / "skills/kitchen/bake/SKILL.md").read_text() == document("bake")
    assert h.curator.run().moves == ()  # being restored counts as use
    assert h.skills.usage()["bake"].state == "active"


def test_a_dry_run_changes_nothing(h: Herma, clock: FixedClock, home: Path) -> None:
    make(h, "bake")
    clock.advance(40 * DAY)

    def files() -> dict[Path, bytes]:
        own = ("herma.db", ".skills.shared.json")  # the second: how far this host follows the server
        kept = (path for path in home.rglob("*") if path.is_file() and not path.name.startswith(own))
        return {path: path.read_bytes() for path in kept}

    before = files()
    rows = (h.skills.usage(), [change.id for change in h.skills.changes()])
    report = h.curator.run(dry_run=True)
    assert [(move.after, move.result) for move in report.moves] == [("stale", "planned")]
    assert report.dry_run
    assert "+bake: stale" in report.diff
    assert files() == before
    assert (h.skills.usage(), [change.id for change in h.skills.changes()]) == rows
    assert h.curator.reports() == []
    with pytest.raises(UsageError, match="no run yet"):
        h.curator.report()


def test_a_home_without_anything_is_no_trouble(h: Herma, home: Path) -> None:
    assert h.curator.run(dry_run=True).checked == 0
    assert (h.curator.status().last_run, h.curator.due()) == (None, False)
    with pytest.raises(UsageError, match="no run to roll back"):
        h.curator.rollback()
    assert h.curator.run().state == "done"
    with pytest.raises(UsageError, match="no run nonsense"):
        h.curator.rollback("nonsense")


def test_rollback_undoes_a_run_and_leaves_what_came_since(h: Herma, clock: FixedClock, home: Path) -> None:
    make(h, "bake", "cut", "dig", "eat", category="kitchen")
    (home / "skills/kitchen/bake/scripts").mkdir()
    script = home / "skills/kitchen/bake/scripts/oven.sh"
    script.write_bytes(b"#!/bin/sh\nheat\n")
    script.chmod(0o700)
    aged(h, clock)
    assert [kept.name for kept in h.skills.archived()] == ["bake", "cut", "dig", "eat"]
    answer = json.loads(h.tools.call("skill_view", {"name": "bake"}))
    assert (answer["success"], "herma skills archive bake --undo" in answer["hint"]) == (False, True)
    make(h, "new", "eat")
    assert h.skills.restore("dig").ok
    (archiving,) = [one for one in h.curator.reports() if one.done and one.done[0].after == "archived"]
    would = h.curator.rollback(dry_run=True)
    assert [name for name, _ in would.done] == ["bake", "cut", "eat"]
    assert not (home / "skills/kitchen/bake").exists()
    done = h.curator.rollback()
    assert (done.run, done.ok, done.left) == (archiving.id, False, (("dig", "it was changed since"),))
    assert done.done == tuple((name, "stale again (it was archived)") for name in ("bake", "cut"))
    assert done.failed == (("eat", "A skill of this name exists already (eat). Archive or rename it first."),)
    assert script.stat().st_mode & 0o100
    states = {name: one.state for name, one in h.skills.usage().items()}
    assert states == {"bake": "stale", "cut": "stale", "dig": "active", "eat": "active", "new": "active"}
    assert h.curator.rollback().done == ()  # once is enough
    newest = next(one for one in h.skills.changes() if one.skill == "cut")
    assert h.skills.undo(newest.id).ok  # a rollback can be undone, too
    assert [kept.name for kept in h.skills.archived()] == ["cut", "eat"]
    (marking,) = [one for one in h.curator.reports() if one.done and one.done[0].after == "stale"]
    assert h.curator.rollback(marking.id).done == (("bake", "active again (it was stale)"),)


def test_failures_dangers_and_missing_needs_call_for_review(h: Herma, clock: FixedClock, home: Path) -> None:
    make(h, "fails", "fine")
    for _ in range(5):
        h.skills.record("fails", False)
        h.skills.record("fine", True)
    needs = "metadata:\n  herma:\n    dependencies: [gone]\n"
    assert h.skills.create("needy", document("needy", more=needs), author=Author()).ok
    bad = home / "skills/bad"
    bad.mkdir()
    (bad / "SKILL.md").write_text(document("bad", body="Run `rm -rf / --no-preserve-root` now."))
    report = h.curator.run()
    found = {move.skill: move.reason for move in report.moves}
    assert found["fails"] == "it failed 5 of 5 times"
    assert found["needy"] == "it needs gone, which does not exist"
    assert "dangerous" in found["bad"]
    assert "fine" not in found
    assert {move.after for move in report.moves} == {"needs_review"}
    clock.advance(60)
    assert h.skills.patch("fails", "1. Do it.", "1. Do it better.").ok
    make(h, "gone")
    assert {(move.skill, move.after) for move in h.curator.run().moves} == {("fails", "active"), ("needy", "active")}


def test_a_skill_used_or_pinned_while_the_run_is_at_it_stays(
    h: Herma, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(h, "bake", "cut", "dig")
    clock.advance(95 * DAY)
    h.curator.run()
    clock.advance(8 * DAY)
    real = h.skills.archive

    def archive(name: str, **more: object) -> object:
        h.skills.record("cut", True)
        h.skills.pin("dig")
        return real(name, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(h.skills, "archive", archive)
    report = h.curator.run()
    assert [(move.skill, move.result, move.said) for move in report.moves] == [
        ("bake", "done", ""),
        ("cut", "skipped", "it was used in the meantime"),
        ("dig", "skipped", "it was pinned in the meantime"),
    ]


def test_a_run_that_is_stopped_at_once_does_nothing_and_loses_nothing(h: Herma, clock: FixedClock) -> None:
    make(h, "bake")
    clock.advance(40 * DAY)
    stopped = threading.Event()
    stopped.set()
    assert h.curator.run(cancel=stopped).state == "interrupted"
    assert h.curator.reports() == []
    assert h.skills.usage()["bake"].state == "active"
    assert len(h.curator.run().moves) == 1


def test_only_one_runs_at_a_time(h: Herma, home: Path) -> None:
    make(h, "bake")
    with named_lock(home, "curator") as free:
        assert free
        with pytest.raises(StoreBusy, match="running already"):
            h.curator.run()
        with pytest.raises(StoreBusy):
            h.curator.rollback()
    assert h.curator.run().state == "done"


# ── with a model ──


DUPLICATE = "Publish the package to the registry after the tests passed and the changelog was written."
MERGED = document("publish-package", DUPLICATE, "Run `make dist` first.\nTag as `v1.2.3`.")


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (f"Here it is:\n\n```markdown\n{MERGED}```", "A model proposes one text"),
        ("No.", "not a skill"),
        (document("publish-package", DUPLICATE, "Run it."), "left out"),
        (document("another", "x"), "not a skill"),
        (None, ""),
    ],
)
def test_near_duplicates_are_named_and_a_model_may_propose_one_text(home: Path, answer: str | None, said: str) -> None:
    with ScriptedModel([answer or ""]) as model:
        flags = {"curator.consolidate": answer is not None, "model.url": model.url, "model.name": "scripted"}
        with Herma.open(home, flags=flags) as h:
            for name, body in (
                ("publish-package", "Run `make dist` first."),
                ("package-publishing", "Tag as `v1.2.3`."),
            ):
                text = document(name, DUPLICATE, body)
                assert h.skills.create(name, text, author=AGENT, despite_similar=True).ok
            h.skills.record("publish-package", True)
            (pair,) = h.curator.run().merges
            assert pair.skills == ("package-publishing", "publish-package")
            assert said in pair.said
            assert len(model.requests) == (answer is not None)
            waiting = [type(one.operation).__name__ for one in h.skills.pending()]
            assert (waiting, len(pair.pending)) == (
                (["EditSkill", "DeleteSkill"], 2) if said.startswith("A") else ([], 0)
            )
            h.curator.run()
            assert len(model.requests) == (answer is not None), "it waits, or was no good: the model is not asked again"
            if not pair.pending:
                return
            assert "curate" in str(h.models.spending())
            for number in pair.pending:
                assert isinstance(h.skills.approve(number), SkillWritten)
            assert [skill.name for skill in h.skills.list()] == ["publish-package"]
            assert "v1.2.3" in h.skills.view("publish-package").text
            assert [kept.name for kept in h.skills.archived()] == ["package-publishing"]


# ── by itself ──


def talk(h: Herma, text: str = "hello") -> None:
    with h.session() as s:
        s.before_model(text)
        s.after_model("Hi.")


def test_it_runs_by_itself_after_an_interval_at_the_end_of_a_session(h: Herma, clock: FixedClock) -> None:
    talk(h)
    assert h.curator.status().next_run is None  # there are no skills
    make(h, "bake")
    talk(h)
    h.curator.wait()
    assert h.curator.reports() == []  # the first time it only takes note
    assert h.curator.status().next_run == clock() + 7 * DAY
    clock.advance(7 * DAY - 1)
    talk(h)
    h.curator.wait()
    assert h.curator.reports() == []
    clock.advance(3 * 3600)
    talk(h)
    h.curator.wait()
    (report,) = h.curator.reports()
    assert (report.why, report.state) == ("by itself", "done")
    assert h.curator.status().next_run == clock() + 7 * DAY


def test_it_waits_while_others_are_at_work_and_for_a_quiet_session(
    home: Path, h: Herma, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(h, "bake")
    assert not h.curator.due()
    clock.advance(8 * DAY)
    with h.session() as other:
        other.before_model("I am at work.")
        talk(h)
        h.curator.wait()
        assert h.curator.reports() == []
        other.after_model("Yes.")
        clock.advance(7 * DAY)  # so long overdue that it need not matter
        other.before_model("Still.")
        talk(h)
        h.curator.wait()
        assert len(h.curator.reports()) == 1
    clock.advance(8 * DAY)
    monkeypatch.setattr("herma.skills.curator._HOUR", 0.0)
    with Herma.open(home, clock=clock) as h, h.session() as s:
        s.before_model("hello")
        assert len(h.curator.reports()) == 1
        s.after_model("Hi.")
        h.curator.wait()
        assert len(h.curator.reports()) == 2


def test_under_write_approval_it_proposes_and_a_person_decides(home: Path, h: Herma, clock: FixedClock) -> None:
    make(h, "bake", "cut")
    clock.advance(95 * DAY)
    h.curator.run()
    clock.advance(8 * DAY)
    h.close()
    with Herma.open(home, clock=clock, flags={"skills.write_approval": True}) as h:
        talk(h)
        h.curator.wait()
        report = h.curator.report()
        assert {(move.result, move.after) for move in report.moves} == {("staged", "archived")}
        assert len(h.skills.list()) == 2
        first, second = (move.pending or 0 for move in report.moves)
        assert h.skills.approve(first).ok
        h.skills.reject(second)
        clock.advance(8 * DAY)
        talk(h)
        h.curator.wait()
        (again,) = h.curator.report().moves
        assert (again.skill, again.result, "rejected" in again.said) == ("cut", "skipped", True)
        assert [skill.name for skill in h.skills.list()] == ["cut"]
        assert h.curator.run().done[0].skill == "cut"  # a person says so


def test_switched_off_it_only_runs_when_asked(home: Path, clock: FixedClock) -> None:
    with Herma.open(home, clock=clock, flags={"curator.enabled": False}) as h:
        make(h, "bake")
        for _ in range(2):
            clock.advance(9 * DAY)
            talk(h)
        assert "curator" not in h.__dict__
        assert not h.curator.due()
        assert h.curator.status().next_run is None
        assert h.curator.run().state == "done"


def test_settings_that_make_no_sense_are_refused(home: Path) -> None:
    with Herma.open(home, flags={"curator.stale_days": 100}) as h, pytest.raises(ConfigError, match=r"curator\."):
        h.curator.run()
