"""Where a session takes place: folder and branch, who runs the model, what kind of chat. Kept, shown and moved."""

from __future__ import annotations

import io
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from herma import Herma, Message
from herma.cli.main import cli
from herma.prompt.assemble import branch_of
from herma.transcript.transfer import Importer, everything, header, message_line, messages_of, session_line, told
from herma.types import SessionFilter


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


# ── kept ──


def test_a_session_keeps_where_it_took_place(home: Path, tmp_path: Path) -> None:
    head(tmp_path, "ref: refs/heads/main\n")
    with Herma.open(home) as h:
        with h.session(folder=tmp_path, provider="openrouter", chat_type="group") as session:
            session.before_model("one")
            session.after_model("ok")
        kept = h.transcripts.get(session.id)
        assert kept is not None
        assert (kept.folder, kept.branch, kept.provider, kept.chat_type) == (
            str(tmp_path),
            "main",
            "openrouter",
            "group",
        )
        head(tmp_path, "ref: refs/heads/next\n")
        resumed = h.session(resume=session.id)
        assert resumed.view().folder == str(tmp_path), "what a resume does not say is as it was"
        resumed.continue_with([Message("user", "In short.")])
        child = h.transcripts.get(resumed.id)
        assert child is not None
        assert (child.folder, child.branch, child.provider, child.chat_type) == (
            str(tmp_path),
            "main",
            "openrouter",
            "group",
        )
        branched = h.branch(session.id)
        assert branched.info.provider == "openrouter"
        with h.session(project="not a folder") as plain:
            plain.before_model("x")
            plain.after_model("y")
        nowhere = h.transcripts.get(plain.id)
        assert nowhere is not None
        assert (nowhere.folder, nowhere.branch, nowhere.provider) == ("", "", "")
        with h.session(project=str(tmp_path)) as project:
            assert (project.info.folder, project.info.branch) == (str(tmp_path), "next")


def fill(h: Herma) -> None:
    for number, (provider, chat_type, folder, branch) in enumerate(
        [
            ("openai", "group", "/work/a", "main"),
            ("openai", "direct", "/work/a/sub", "feature/Login"),
            ("anthropic", "group", "/work/ab", "feature/search"),
            ("", "", "", ""),
        ]
    ):
        one = h.transcripts.start(
            "cli",
            session_id=f"s{number}",
            started=1.0,
            provider=provider,
            chat_type=chat_type,
            folder=folder,
            branch=branch,
        )
        h.transcripts.append(one, [{"role": "user", "content": "hi", "timestamp": 2.0}])
        h.transcripts.end(one)


def test_sessions_are_chosen_by_it(home: Path) -> None:
    with Herma.open(home) as h:
        fill(h)
        for which, found in (
            (SessionFilter(provider="openai"), ["s0", "s1"]),
            (SessionFilter(chat_type="group"), ["s0", "s2"]),
            (SessionFilter(folder="/work/a"), ["s0", "s1"]),
            (SessionFilter(branch="FEATURE/"), ["s1", "s2"]),
            (SessionFilter(branch="feature", chat_type="group"), ["s2"]),
            (SessionFilter(provider=""), ["s3"]),
        ):
            deletion = h.transcripts.prune(which, dry_run=True)
            assert [one.id for one in deletion.sessions] == found
            assert sorted(one.id for one in h.transcripts.list(which)) == found
        h.transcripts.prune(SessionFilter(provider="openai"))
        assert sorted(one.id for one in h.transcripts.list(SessionFilter())) == ["s2", "s3"]
        h.transcripts.undelete(["s0", "s1"])
        assert len(h.transcripts.list(SessionFilter())) == 4


def test_it_goes_along_when_transcripts_move(home: Path, tmp_path: Path) -> None:
    with Herma.open(home) as h, Herma.open(tmp_path / "other") as other:
        fill(h)
        text = header() + "".join(
            session_line(one) + "".join(message_line(message) for message in messages_of(h.transcripts, one.session.id))
            for one in told(h.transcripts, everything(h.transcripts))
        )
        Importer(other.transcripts).run(io.BytesIO(text.encode()), "file")
        for number in range(4):
            here, there = h.transcripts.get(f"s{number}"), other.transcripts.get(f"s{number}")
            assert here is not None
            assert there is not None
            assert (here.provider, here.chat_type, here.folder, here.branch) == (
                there.provider,
                there.chat_type,
                there.folder,
                there.branch,
            )
        lines = [json.loads(line) for line in text.splitlines()]
        assert "branch" not in next(line for line in lines if line.get("id") == "s3"), "what is empty is left out"


def test_commands_show_it_and_go_by_it(home: Path) -> None:
    def herma(*words: str) -> str:
        done = CliRunner().invoke(cli, ["--home", str(home), "sessions", *words])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    with Herma.open(home) as h:
        fill(h)
    shown = herma("show", "s1")
    for text in ("by openai", "direct chat", "in /work/a/sub", "branch feature/Login"):
        assert text in shown
    value = json.loads(herma("show", "s1", "--json"))["session"]
    assert (value["provider"], value["chat_type"], value["folder"], value["branch"]) == (
        "openai",
        "direct",
        "/work/a/sub",
        "feature/Login",
    )
    assert json.loads(herma("show", "s3", "--json"))["session"]["branch"] is None
    for words, found in (
        (("--provider", "anthropic"), ["s2"]),
        (("--chat-type", "group"), ["s0", "s2"]),
        (("--branch", "feature/"), ["s1", "s2"]),
        (("--folder", "/work/a"), ["s0", "s1"]),
        (("--folder", "/work/a/"), ["s0", "s1"]),
        (("--folder", os.path.relpath("/work/a")), ["s0", "s1"]),
    ):
        done = json.loads(herma("prune", *words, "--dry-run", "--json"))
        assert [one["id"] for one in done["sessions"]] == found
        assert done["dry_run"]
    json.loads(herma("prune", "--branch", "feature/", "--yes", "--json"))
    herma("undelete", "s1")
    assert json.loads(herma("show", "s1", "--json"))["session"]["branch"] == "feature/Login"
