"""`herma curator`: what people type, what they read, and what programs get."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from herma import Author, Herma, Origin, Who
from herma.cli.main import run
from herma.testing import FixedClock

AGENT = Author(Who.TOOL, Origin.AGENT_CONCLUDED)
DAY = 86_400.0


@pytest.fixture
def herma(home: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `herma curator …` on the test's home. → stdout, stderr."""

    def call(*words: str, code: int = 0) -> tuple[str, str]:
        found = run(["--home", str(home), "curator", *words])
        said = capsys.readouterr()
        assert found == code, said
        return said.out, said.err

    return call


def value(herma: Any, *words: str, code: int = 0) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(herma(*words, "--json", code=code)[0])
    assert loaded["ok"] is (code == 0)
    return loaded


@pytest.fixture
def old(home: Path) -> None:
    """Two skills that an agent made and nobody used for long: stale and named, long ago."""
    clock = FixedClock(1_600_000_000.0)
    with Herma.open(home, clock=clock) as h:
        for name in ("bake", "cut"):
            text = f"---\nname: {name}\ndescription: How to {name} properly.\n---\n\n1. Do it.\n"
            assert h.skills.create(name, text, author=AGENT, despite_similar=True).ok
        clock.advance(40 * DAY)
        assert len(h.curator.run().moves) == 2


@pytest.mark.usefixtures("old")
def test_from_a_dry_run_to_the_way_back(herma: Any, home: Path) -> None:
    out, _ = herma("run", "--dry-run")
    assert "2 to the archive" in out
    assert "Nothing was changed." in out
    assert (home / "skills/bake").exists()
    assert "A run would do this now" in herma("status")[0]
    herma("pin", "cut")
    out, _ = herma("run")
    assert "1 to the archive" in out
    assert "-bake: stale" in out
    assert "cut stays: it is pinned." in out
    assert "herma curator rollback" in out
    assert not (home / "skills/bake").exists()
    assert "bake" in herma("list-archived")[0]
    assert "archived" in herma("report")[0]
    assert herma("report", "--list")[0].count("by hand") == 2
    assert "back from the archive" in herma("rollback", "--dry-run")[0]
    assert not (home / "skills/bake").exists()
    assert "back from the archive" in herma("rollback")[0]
    assert (home / "skills/bake/SKILL.md").exists()
    assert "in its place already" in herma("rollback")[0]
    herma("unpin", "cut")
    assert "would go" in herma("archive", "bake", "--dry-run")[0]
    assert "Change" in herma("archive", "bake", "--reason", "enough")[0]
    assert "is back" in herma("restore", "bake")[0]
    assert herma("rollback", "--list")[0].count("before a rollback") == 2


@pytest.mark.usefixtures("old")
def test_what_programs_get(herma: Any) -> None:
    found = value(herma, "status")
    assert (found["enabled"], found["runs"], found["states"], found["archived"]) == (True, 1, {"stale": 2}, 0)
    assert {move["skill"]: move["after"] for move in found["due"]} == {"bake": "archived", "cut": "archived"}
    dry = value(herma, "run", "--dry-run")
    assert (dry["dry_run"], dry["snapshot"]) == (True, "")
    done = value(herma, "run")
    assert [move["result"] for move in done["moves"]] == ["done", "done"]
    assert all(move["change"] and move["reason"] for move in done["moves"])
    assert value(herma, "report")["id"] == done["id"]
    assert value(herma, "report", done["id"])["diff"] == done["diff"]
    assert next(one["id"] for one in value(herma, "report", "--list")["runs"]) == done["id"]
    assert {one["name"] for one in value(herma, "list-archived")["archived"]} == {"bake", "cut"}
    back = value(herma, "rollback", done["snapshot"])
    assert back["before"]
    assert len(back["done"]) == 4  # two folders, two states
    assert next(one["id"] for one in value(herma, "rollback", "--list")["snapshots"]) == back["before"]
    assert value(herma, "pin", "bake")["pinned"] is True
    assert value(herma, "unpin", "bake")["pinned"] is False
    assert value(herma, "archive", "bake")["outcome"] == "SkillWritten"
    assert value(herma, "restore", "bake")["outcome"] == "SkillWritten"


def test_mistakes_get_a_sentence_and_a_next_step(herma: Any) -> None:
    assert "no run yet" in herma("report", code=2)[1]
    assert "no snapshot yet" in herma("rollback", code=2)[1]
    assert "no snapshot" in herma("rollback", "../x", code=2)[1]
    assert "not in the archive" in herma("restore", "bake", code=2)[1]
    assert "no skill" in herma("pin", "bake", code=2)[1]
    assert "The archive is empty" in herma("list-archived")[0]
    assert "There is no snapshot yet" in herma("rollback", "--list")[0]
    assert "There was no run yet" in herma("report", "--list")[0]
    assert "nothing" in herma("status")[0]
    assert json.loads(herma("report", "--json", code=2)[0])["ok"] is False


@pytest.mark.usefixtures("old")
def test_an_agent_may_not_lift_protection_or_go_round_approval(
    herma: Any, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HERMA_SESSION", "s1")
    herma("pin", "bake")
    assert "person" in herma("unpin", "bake", code=2)[1]
    (home / "config.yaml").write_text("skills:\n  write_approval: true\n")
    for words in (("run",), ("rollback",), ("archive", "cut"), ("restore", "cut")):
        assert "write_approval" in herma(*words, code=2)[1]
    assert herma("run", "--dry-run")[0]


@pytest.mark.usefixtures("old")
def test_the_doctor_knows(herma: Any, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    herma("run")
    run(["--home", str(home), "doctor", "--json"])
    checks = {
        check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "curator"
    }
    assert "2 skills in the archive" in checks["curator"]["sentence"]
    (home / "backups/skills/20200101-000000.tar.gz").write_bytes(b"nothing")
    run(["--home", str(home), "doctor"])
    assert "cannot be used: 20200101-000000" in capsys.readouterr().out
