"""Skills under attack and in accidents: links that lead out, processes killed half-way, several writers at once."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest
from tests.faults.crashing import NEEDS_FORK, forked, together
from tests.homes import skill_text as document

from herma import Herma
from herma.errors import StoreError
from herma.skills import files as skill_writing
from herma.skills.rows import SkillHistory, SkillRefused, SkillWritten

needs_links = pytest.mark.skipif(not hasattr(os, "symlink") or os.name == "nt", reason="needs symbolic links")


def forks(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts processes by fork."""
    for mark in NEEDS_FORK:
        test = mark(test)
    return test


def kind(outcome: object) -> str:
    assert isinstance(outcome, SkillRefused), outcome
    return outcome.kind


# ── links ──


@needs_links
def test_nothing_is_read_or_written_through_a_link_that_leads_out(home: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    (secret / "deep").mkdir(parents=True)
    (secret / "key.md").write_text("the key")
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
        folder = home / "skills/bake"
        (folder / "references").symlink_to(secret)
        (folder / "scripts").mkdir()
        (folder / "scripts/key.md").symlink_to(secret / "key.md")
        for file in ("references/key.md", "scripts/key.md"):
            answer = h.tools.call("skill_view", {"name": "bake", "file_path": file})
            assert "the key" not in answer
            assert "leads out" in answer
            assert kind(h.skills.write_file("bake", file, "mine")) == "unsafe path"
        assert kind(h.skills.write_file("bake", "references/new.md", "mine")) == "unsafe path"
        assert kind(h.skills.write_file("bake", "references/deep/new.md", "mine")) == "unsafe path"
        assert sorted(path.name for path in secret.rglob("*")) == ["deep", "key.md"]
        assert (secret / "key.md").read_text() == "the key"
        report = h.skills.scan(h.skills.files("bake"))
        assert report.verdict == "dangerous"


@needs_links
def test_a_linked_skill_or_document_that_leads_out_is_refused_by_name(home: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "SKILL.md").write_text(document("sail"))
    skills = home / "skills"
    (skills / "row").mkdir(parents=True)
    (skills / "sail").symlink_to(outside)
    (skills / "row/SKILL.md").symlink_to(outside / "SKILL.md")
    (skills / "lost").mkdir()
    (skills / "lost/SKILL.md").symlink_to(skills / "lost/nowhere")
    with Herma.open(home) as h:
        assert h.skills.list() == []
        said = {each.path: each.reason for each in h.skills.listing().refused}
        assert "external_dirs" in said["sail"]
        assert "leads out" in said["row"]
        assert "nowhere" in said["lost"]
        assert kind(h.skills.create("sail", document("sail"))) in ("exists", "unsafe path")
        assert (outside / "SKILL.md").read_text() == document("sail")


@needs_links
def test_a_link_inside_the_skill_may_be_read_but_is_not_written_through(home: Path) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
        assert h.skills.write_file("bake", "references/a.md", "text").ok
        (home / "skills/bake/references/b.md").symlink_to("a.md")
        assert h.skills.read_file("bake", "references/b.md") == b"text"
        assert kind(h.skills.write_file("bake", "references/b.md", "new")) == "unsafe path"


@needs_links
def test_a_skills_folder_that_is_a_link_itself_works(home: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    (home / "skills").symlink_to(shared)
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
        assert (shared / "bake/SKILL.md").exists()
        assert h.skills.get("bake").name == "bake"


@needs_links
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs pipes")
def test_a_pipe_or_a_closed_file_in_one_skill_keeps_no_other_from_being_written(home: Path) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
        os.mkfifo(home / "skills/bake/pipe")
        (home / "skills/bake/closed.md").write_text("x")
        (home / "skills/bake/closed.md").chmod(0)
        assert h.skills.create("sail", document("sail")).ok
        assert h.skills.patch("bake", "1. Do it.", "1. Do it now.").ok
        assert h.skills.archive("bake").ok
        assert h.skills.undo().ok
        assert (home / "skills/bake/pipe").is_fifo()


@pytest.mark.parametrize("first", ["look", "write"])
def test_a_folder_renamed_by_hand_is_a_move_and_undo_does_not_bring_a_second_one(home: Path, first: str) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
        assert h.skills.create("sail", document("sail")).ok
        (home / "skills/kitchen").mkdir()
        (home / "skills/bake").rename(home / "skills/kitchen/bake")
        if first == "look":
            assert h.skills.changes("bake")[0].action == "moved by hand"
        assert h.skills.patch("bake", "1. Do it.", "1. Do it now.").ok
        moved = next(change for change in h.skills.changes("bake") if change.action == "moved by hand")
        assert (moved.moved_from, moved.moved_to) == ("bake", "kitchen/bake")
        assert h.skills.undo().ok  # the patch
        assert (home / "skills/kitchen/bake/SKILL.md").read_text() == document("bake")
        assert not (home / "skills/bake").exists()
        (home / "skills/kitchen/bake/SKILL.md").unlink()
        (home / "skills/kitchen/bake").rmdir()
        assert h.skills.changes("bake")[0].action == "removed by hand"
        assert h.skills.undo().ok
        assert (home / "skills/kitchen/bake/SKILL.md").read_text() == document("bake")


# ── killed half-way ──


def killed(
    home: Path, monkeypatch: pytest.MonkeyPatch, work: str, owner: object, name: str, *, after: bool = False
) -> None:
    """Work on the skill in a child that ends before, or after, a function did its work."""
    real = getattr(owner, name)

    def ends(*args: object, **fields: object) -> None:
        if after:
            real(*args, **fields)
        os._exit(1)

    def child() -> None:
        with Herma.open(home) as h:
            monkeypatch.setattr(owner, name, ends)
            if work == "create":
                h.skills.create("bake", document("bake"), category="kitchen")
            elif work == "archive":
                h.skills.archive("bake")
            else:
                h.skills.patch("bake", "1. Do it.", "1. Heat.")

    assert os.waitstatus_to_exitcode(os.waitpid(forked(child), 0)[1]) == 1


@pytest.mark.parametrize(
    ("work", "owner", "name", "after", "actions"),
    [
        ("patch", SkillHistory, "intend", True, ["create"]),
        ("patch", skill_writing, "install", False, ["create"]),
        ("patch", skill_writing, "install", True, ["patch", "create"]),
        ("patch", SkillHistory, "settle", False, ["patch", "create"]),
        ("archive", Path, "rename", False, ["create"]),
        ("archive", Path, "rename", True, ["archive", "create"]),
    ],
)
@forks
def test_a_killed_change_happened_whole_or_not_at_all(
    home: Path, monkeypatch: pytest.MonkeyPatch, work: str, owner: object, name: str, after: bool, actions: list[str]
) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
    killed(home, monkeypatch, work, owner, name, after=after)
    with Herma.open(home) as h:
        assert [change.action for change in h.skills.changes("bake")] == actions
        if "archive" in actions:
            assert h.skills.restore("bake").ok
        body = "1. Heat.\n2. Check it." if "patch" in actions else "1. Do it.\n2. Check it."
        assert (home / "skills/bake/SKILL.md").read_text() == document("bake", body=body)
        assert [path.name for path in (home / "skills/bake").iterdir()] == ["SKILL.md"]
        assert h.skills.patch("bake", "1. ", "2. ").ok


@forks
def test_a_killed_creation_leaves_no_half_skill(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed(home, monkeypatch, "create", skill_writing, "install")
    with Herma.open(home) as h:
        assert h.skills.list() == []
        assert h.skills.create("bake", document("bake"), category="kitchen").ok
        assert [change.action for change in h.skills.changes()] == ["create"]


# ── several at once ──


@forks
def test_processes_that_write_at_once_lose_nothing(home: Path) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok

    def work(me: int) -> None:
        with Herma.open(home) as h:
            for number in range(8):
                assert h.skills.write_file("bake", f"references/{me}-{number}.md", f"{me} {number}").ok
                assert h.skills.patch("bake", "1. Do it.", f"1. Do it.\n- {me}.{number}").ok
                h.skills.record("bake", success=True)
        os._exit(0)

    children = [forked(partial(work, me)) for me in range(3)]
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    with Herma.open(home) as h:
        text = h.skills.view("bake").text
        assert all(f"- {me}.{number}" in text for me in range(3) for number in range(8))
        assert len(h.skills.view("bake").files) == 1 + 24
        assert h.skills.usage()["bake"].successes == 24
        log = [change for change in h.skills.changes() if change.file == "SKILL.md"]
        assert [change.action for change in log] == ["patch"] * 24 + ["create"]
        for newer, older in pairwise(log):
            assert newer.before == older.after, "a gap in the history"


def test_only_one_of_many_threads_creates_a_skill(home: Path) -> None:
    with Herma.open(home) as h:
        outcomes: list[object] = []
        create = lambda: outcomes.append(h.skills.create("bake", document("bake")))  # noqa: E731
        assert together(*[create] * 6) == []
        assert sum(isinstance(outcome, SkillWritten) for outcome in outcomes) == 1
        assert len(h.skills.changes()) == 1


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="needs a user who may not write everywhere")
def test_a_home_that_cannot_be_written_is_still_read(home: Path) -> None:
    with Herma.open(home) as h:
        assert h.skills.create("bake", document("bake")).ok
    (home / "skills").chmod(0o500)
    try:
        with Herma.open(home) as h:
            assert h.skills.get("bake").name == "bake"
            with pytest.raises(StoreError):
                h.skills.create("sail", document("sail"))
    finally:
        (home / "skills").chmod(0o700)
