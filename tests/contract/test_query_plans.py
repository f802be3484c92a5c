"""Statements of features find their rows by an index; those that read a whole table or index are listed here."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from herma.episodes.rows import EpisodeFilter, _conditions
from herma.store import database
from herma.store.database import queries
from herma.store.sqlite import our_schema

WHOLE = {
    "transcript.sessions": {"recent"},  # by time, and the caller stops
    "transcript.messages": {"totals", "by_source", "hidden_messages", "payload_totals", "largest"},  # people ask for it
    "transcript.feed": {"message_count", "large"},  # `index status` asks for the latter
    "transcript.reader": {"newest", "kinds", "size"},  # by number, with a limit; the others when something was written
    "memory.files": {"all_changes", "project_keys", "user_keys", "waiting"},
    "memory.archive": {"everything", "version"},
    "skills.rows": {"waiting", "rejected", "last_message"},
    "episodes.rows": {"weights", "live_count", "version", "unended", "months", "archived_in"},
    "facts.facts": {"everything", "clear", "clear_forgotten", "unread"},
    "review.rows": {"give_up", "owed", "newest", "proposed_skills", "prune"},
    "importers.rows": {"list", "session", "forget_files", "sessions_of", "undone_sessions"},
    "models.spending": {"newest", "days"},
    "index.passages": {"places", "titles"},
    "compression.engine": set(),
    "prompt.ledger": set(),
}
"""Statements that look at everything there is, or at all of an index of few rows."""
PIECES = {"columns", "state_columns", "shown", "bytes", "visible", "select"}


def whole_statement(file: str, name: str) -> str:
    """Return a statement with the pieces that the rows put into it."""
    named = {key: re.sub(r"--.*", "", sql).strip() for key, sql in queries(file).items()}
    sql = named[name]
    if sql.startswith(("WHERE", "ORDER")):
        state = file == "episodes.rows" and "state" in name
        sql = f"{named['state_columns' if state else 'shown' if 'shown' in named else 'columns']} {sql}"
    filled = {"{matches}": "", "{bytes}": "1", "{visible}": named.get("visible", "")}
    return re.sub(r"\{\w+\}", lambda match: filled[match[0]], sql)


@pytest.mark.parametrize(
    ("file", "name"),
    [(f, n) for f in WHOLE for n in queries(f) if n not in PIECES and not n.startswith("where_")],
)
def test_rows_are_found_by_an_index(file: str, name: str) -> None:
    sql = whole_statement(file, name)
    names = re.findall(r":(\w+)", sql)
    bindings: object = dict.fromkeys(names, "[]") if names else ("[]",) * sql.count("?")
    plan = our_schema().execute(f"EXPLAIN QUERY PLAN {sql}", bindings)  # type: ignore[arg-type]
    scans = [row[3] for row in plan if re.match(r"SCAN (?!json_each|pragma_|CONSTANT|\(|\w VIRTUAL)", str(row[3]))]
    assert not scans or name in WHOLE[file], scans


@pytest.mark.parametrize(
    "which",
    [
        EpisodeFilter("p", "u", superseded=False),
        EpisodeFilter("p", "u", "project", superseded=False),
        EpisodeFilter("p", "u"),
    ],
)
def test_the_newest_episodes_are_read_in_order(which: EpisodeFilter) -> None:
    named = {key: re.sub(r"--.*", "", sql) for key, sql in queries("episodes.rows").items()}
    sql = f"{named['columns']} {named['select']}".replace("{conditions}", _conditions(which)[0])
    sql = sql.replace("{visible}", named["visible"])
    bindings = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    steps = [str(row[3]) for row in our_schema().execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    assert any("episodes_live" in step or "episodes_of_project" in step for step in steps), steps
    assert not [step for step in steps if step.startswith("SCAN e")], steps


def test_an_engine_has_statements_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One under a plain heading serves every engine; lists are arrays, which SQLite reads as JSON."""
    monkeypatch.setattr(database, "__file__", str(tmp_path / "store" / "database.py"))
    (tmp_path / "engines.sql").write_text(
        "-- one [sqlite] --\nSELECT 1;\n-- one [postgres] --\nSELECT 2;\n-- some --\nWHERE id = ANY(:ids)\n"
        "-- none --\nWHERE id <> ALL(:ids)\n-- own [postgres] --\nSELECT 3;\n-- own --\nSELECT 4;\n"
    )
    assert queries("engines", "sqlite") == {
        "one": "SELECT 1;",
        "some": "WHERE id IN (SELECT value FROM json_each(:ids))",
        "none": "WHERE id NOT IN (SELECT value FROM json_each(:ids))",
        "own": "SELECT 4;",
    }
    others = {"one": "SELECT 2;", "some": "WHERE id = ANY(:ids)", "none": "WHERE id <> ALL(:ids)", "own": "SELECT 3;"}
    assert queries("engines", "postgres") == others
