"""A home of the previous format opens unchanged: everything in it is found, and the doctor has nothing to object to.

`home_0002/` was written by the last version that wrote format 2: `herma.sql` is its database as text, `expected.json`
what that version found in it.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.homes import herma, opened

from herma import Herma, Scope

EARLIER = Path(__file__).with_name("home_0002")
EXPECTED: dict[str, Any] = json.loads((EARLIER / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def earlier(tmp_path: Path) -> Path:
    """A copy of the earlier home, as private as Herma leaves one."""
    home = tmp_path / "earlier"
    shutil.copytree(EARLIER, home, ignore=shutil.ignore_patterns("*.sql", "*.json"))
    with closing(sqlite3.connect(home / "herma.db")) as database:
        database.executescript((EARLIER / "herma.sql").read_text(encoding="utf-8"))
    for path in (home, *home.rglob("*")):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return home


def test_everything_in_a_home_of_the_previous_format_is_found(earlier: Path) -> None:
    with opened(earlier) as h:
        assert memory(h) == {name: EXPECTED[name] for name in ("memory", "changes", "archive", "inbox")}
        assert learned(h) == {name: EXPECTED[name] for name in ("facts", "older_facts", "episodes")}
        assert skills(h) == {
            name: EXPECTED[name]
            for name in ("skills", "archived_skills", "proposed_skills", "skill_usage", "skill_changes")
        }
        assert {id_: session(h, id_) for id_ in EXPECTED["sessions"]} == EXPECTED["sessions"]
        assert [each.id for each in h.transcripts.deleted()] == EXPECTED["deleted"]
        spent = h.cost().total
        assert (spent.calls, spent.fresh, spent.output) == tuple(
            EXPECTED[each] for each in ("calls", "fresh", "output")
        )
        for words, ids in EXPECTED["searches"].items():
            assert {hit.session_id for hit in h.search(words).hits} >= set(ids), words


def test_it_can_be_written_to_and_the_doctor_is_content(earlier: Path) -> None:
    (roses,) = (id_ for id_, each in EXPECTED["sessions"].items() if each["title"] == "Roses")
    stored = [sent or content for _, content, sent in EXPECTED["sessions"][roses]["contents"]]
    with opened(earlier) as h, h.session(resume=roses) as s:
        request = s.before_model("And the peonies?")
        assert [each["content"] for each in request[1 : 1 + len(stored)]] == stored, "the model sees the same bytes"
        s.after_model("In June.")
        assert h.memory.add("memory", "Peonies flower in June.").ok
        assert h.memory.undo().ok
        assert h.memory.archive.restore(h.memory.archive.list()[0].id).ok
        assert {hit.session_id for hit in h.search("peonies").hits} == {roses}
    assert herma(earlier, "doctor", "--full").code == 0


def memory(h: Herma) -> dict[str, Any]:
    files = (("memory", "memory", None), ("user", "user", None), ("shop", "memory", Scope("", "shop")))
    entries = {name: h.memory.entries(target, scope=scope) for name, target, scope in files}  # type: ignore[arg-type]
    return {
        "memory": {**entries, "ana": h.memory.entries("user", scope=Scope("", "", "ana"))},
        "changes": [[each.id, each.before, each.after] for each in h.memory.history()],
        "archive": [each.text for each in h.memory.archive.list()],
        "inbox": [each.id for each in h.memory.pending()],
    }


def learned(h: Herma) -> dict[str, Any]:
    answers = {question: h.facts.answer(question) for question in EXPECTED["facts"]}
    return {
        "facts": {question: answer and answer.value for question, answer in answers.items()},
        "older_facts": [each.value for each in h.facts.history("location")],
        "episodes": [[each.task, each.outcome, each.conversation] for each in h.episodes.list()],
    }


def skills(h: Herma) -> dict[str, Any]:
    usage = h.skills.usage()
    return {
        "skills": [each.name for each in h.skills.list()],
        "archived_skills": [each.name for each in h.skills.archived()],
        "proposed_skills": [each.operation.name for each in h.skills.pending()],
        "skill_usage": {name: [one.uses, one.successes, one.failures, one.patches] for name, one in usage.items()},
        "skill_changes": [[each.id, each.action] for each in h.skills.changes()],
    }


def session(h: Herma, id_: str) -> dict[str, Any]:
    info = h.transcripts.get(id_)
    assert info is not None
    return {
        "title": info.title,
        "source": info.source,
        "archived": id_ in {each.id for each in h.transcripts.list(archived=True)},
        "prompt": hashlib.sha256((h.transcripts.system_prompt(id_) or "").encode()).hexdigest(),
        "contents": [[each.role, each.content, each.sent] for each in h.transcripts.messages(id_)],
        "hidden": len(h.transcripts.messages(id_, include_hidden=True)),
    }
