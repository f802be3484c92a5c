"""Where a session takes place: folder and branch, who runs the model, what kind of chat. Kept, shown and moved."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from tests.homes import herma, of_files, talk

from herma import Herma, Message
from herma.errors import UsageError
from herma.prompt.assemble import branch_of
from herma.types import SessionFilter, SessionInfo


def head(folder: Path, text: str) -> None:
    (folder / ".git").mkdir(exist_ok=True)
    (folder / ".git" / "HEAD").write_text(text)


# ── git, without git ──


@pytest.mark.parametrize(
    ("text", "branch"),
    [
        ("ref: refs/heads/main\n", "main"),
        ("ref: refs/heads/feature/log-in#2\n", "feature/log-in#2"),
        ("0123456789abcdef0123456789abcdef01234567\n", "0123456789ab"),
        ("ref: refs/heads/a b\n", ""),
        ("ref: refs/heads/\n", ""),
        ("nonsense", ""),
        ("", ""),
        ("ref: refs/heads/" + "x" * 5_000, ""),
    ],
)
def test_the_branch_is_read_from_the_head(tmp_path: Path, text: str, branch: str) -> None:
    head(tmp_path, text)
    (tmp_path / "deep" / "down").mkdir(parents=True)
    assert branch_of(tmp_path) == branch_of(tmp_path / "deep" / "down") == branch


def test_worktrees_and_folders_without_git(tmp_path: Path) -> None:
    assert branch_of(tmp_path) == ""
    assert branch_of(tmp_path / "nowhere") == ""
    main, tree = tmp_path / "main", tmp_path / "tree"
    main.mkdir()
    done = subprocess.run(["git", "-C", str(main), "init", "-q", "-b", "trunk"], check=False, capture_output=True)
    if done.returncode == 0:
        assert branch_of(main) == "trunk"
    tree.mkdir()
    (main / "worktrees").mkdir()
    (main / "worktrees" / "HEAD").write_text("ref: refs/heads/side\n")
    (tree / ".git").write_text("gitdir: ../main/worktrees\n")
    assert branch_of(tree) == "side"
    (tree / ".git").write_text("gitdir: nowhere\n")
    assert branch_of(tree) == ""
    (tree / ".git").write_bytes(b"gitdir: \x00\xff\n")
    assert branch_of(tree) == ""


@of_files
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders")
@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", [".git/HEAD", ".git", "AGENTS.md", ".herma.md"])
@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_session_starts_beside_files_that_cannot_be_read(home: Path, tmp_path: Path, name: str, kind: str) -> None:
    project = tmp_path / "project"
    odd = project / name
    odd.parent.mkdir(parents=True)
    if kind == "pipe":
        os.mkfifo(odd)
    elif kind == "device":
        odd.symlink_to("/dev/zero")
    else:
        odd.mkdir()
    with Herma.open(home) as h, h.session(folder=project) as session:
        talk(session, "hello", reply="ok")
    with Herma.open(home) as h:
        info = h.transcripts.list()[0]
        assert (info.folder, info.branch) == (str(project), "")


# ── kept ──


def where(info: SessionInfo | None) -> tuple[str, str, str, str]:
    assert info is not None
    return info.folder, info.branch, info.provider, info.chat_type


def test_a_session_keeps_where_it_took_place(h: Herma, tmp_path: Path) -> None:
    head(tmp_path, "ref: refs/heads/main\n")
    with h.session(folder=tmp_path, provider="openrouter", chat_type="group") as session:
        talk(session, "one")
    assert where(h.transcripts.get(session.id)) == (str(tmp_path), "main", "openrouter", "group")
    head(tmp_path, "ref: refs/heads/next\n")
    resumed = h.session(resume=session.id)
    assert resumed.view().folder == str(tmp_path), "what a resume does not say is as it was"
    resumed.continue_with([Message("user", "In short.")])
    assert where(h.transcripts.get(resumed.id)) == (str(tmp_path), "next", "openrouter", "group")
    assert h.branch(session.id).info.provider == "openrouter"
    with h.session(project="not a folder") as plain:
        talk(plain, "x")
    assert where(h.transcripts.get(plain.id))[:3] == ("", "", "")
    with h.session(project=str(tmp_path)) as project:
        assert where(project.info)[:2] == (str(tmp_path), "next")


def fill(h: Herma) -> None:
    rows = (
        ("openai", "group", "/work/a", "main"),
        ("openai", "direct", "/work/a/sub", "feature/Login"),
        ("anthropic", "group", "/work/ab", "feature/search"),
        ("", "", "", ""),
    )
    for number, row in enumerate(rows):
        place: dict[str, Any] = dict(zip(("provider", "chat_type", "folder", "branch"), row, strict=True))
        one = h.transcripts.start("cli", session_id=f"s{number}", started=1.0, **place)
        h.transcripts.append(one, [{"role": "user", "content": "hi", "timestamp": 2.0}])
        h.transcripts.end(one)


def test_a_session_that_goes_on_is_where_it_is_now_and_the_ledger_has_where_each_call_was(
    h: Herma, tmp_path: Path
) -> None:
    places = [tmp_path / name for name in ("first", "second")]
    for place in places:
        place.mkdir()
        head(place, f"ref: refs/heads/{place.name}\n")
    with h.session(folder=places[0], provider="ollama", model="qwen3") as session:
        talk(session, "one")
    with h.session(resume=session.id, folder=places[1], provider="anthropic", model="claude") as session:
        talk(session, "two")
    head(places[1], "ref: refs/heads/third\n")
    with h.session(resume=session.id, model="other") as session:
        talk(session, "three")
    now = h.transcripts.get(session.id)
    assert where(now) == (str(places[1]), "third", "", "")
    assert [(call.model, call.provider, call.folder, call.branch) for call in h.cost().calls()] == [
        ("qwen3", "ollama", str(places[0]), "first"),
        ("claude", "anthropic", str(places[1]), "second"),
        ("other", "", str(places[1]), "third"),
    ]
    filled = h.transcripts.update(session.id, provider="openrouter", chat_type="group")
    assert (filled.model, filled.provider, filled.chat_type) == ("other", "openrouter", "group")
    assert h.transcripts.update(session.id) == filled
    assert h.transcripts.list(SessionFilter(provider="openrouter"))[0].id == session.id
    for wrong in ({"provider": 5}, {"room": "12"}, {"model": "\ud800"}):
        with pytest.raises(UsageError):
            h.transcripts.update(session.id, **wrong)
    with pytest.raises(UsageError, match="no session"):
        h.transcripts.update("nosuch", model="m")
    assert h.transcripts.get(session.id) == filled


def test_commands_show_it_and_go_by_it(h: Herma, home: Path) -> None:
    fill(h)

    def shown(session: str) -> dict[str, object]:
        found: dict[str, object] = herma(home, "sessions", "show", session, "--json").json["session"]
        return found

    text = herma(home, "sessions", "show", "s1").out
    for part in ("by openai", "direct chat", "in /work/a/sub", "branch feature/Login"):
        assert part in text
    assert shown("s1").items() >= {"provider": "openai", "chat_type": "direct", "branch": "feature/Login"}.items()
    assert (shown("s1")["folder"], shown("s3")["branch"]) == ("/work/a/sub", None)
    for option, value, found in (
        ("--provider", "openai", ["s0", "s1"]),
        ("--provider", "anthropic", ["s2"]),
        ("--chat-type", "group", ["s0", "s2"]),
        ("--branch", "feature/", ["s1", "s2"]),
        ("--folder", "/work/a", ["s0", "s1"]),
        ("--folder", "/work/a/", ["s0", "s1"]),
        ("--folder", os.path.relpath("/work/a"), ["s0", "s1"]),
    ):
        done = herma(home, "sessions", "delete", option, value, "--dry-run", "--json").json
        assert (done["dry_run"], [one["id"] for one in done["sessions"]]) == (True, found)
    for words in (("delete", "--branch", "feature/", "--yes"), ("undelete", "s1")):
        assert herma(home, "sessions", *words).code == 0
    assert shown("s1")["branch"] == "feature/Login"
