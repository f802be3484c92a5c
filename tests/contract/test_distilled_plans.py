"""What a session asks about episodes, states and facts is found by an index, however many there are."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from herma.episodes.rows import _conditions, _statement
from herma.episodes.types import EpisodeFilter
from herma.store import database as module
from herma.store.database import queries

WHOLE_BY_PURPOSE = {
    *("weights", "live_count", "version", "months", "archived_in"),  # forgetting and digests look at all of them
    *("without_episode",),  # a rebuild
    *("everything", "clear", "clear_forgotten", "unread"),  # commands on facts, and their rebuild
    *("owed", "give_up", "newest"),  # reviews: an index of the few that are unfinished; the newest by their numbers
    *("prune",),  # every fiftieth review, in the background
}
PIECES = {"visible", "columns", "state_columns", "select"}


def plan(sql: str) -> list[str]:
    database = apsw.Connection(":memory:")
    database.execute(Path(module.__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    names = re.findall(r":(\w+)", sql)
    bindings: object = dict.fromkeys(names, "[]") if names else ("[]",) * sql.count("?")
    return [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]  # type: ignore[arg-type]


def statements() -> dict[str, str]:
    found = {}
    for file in ("episodes", "facts", "reviews"):
        every = queries(file)
        for name, sql in every.items():
            if name in PIECES | WHOLE_BY_PURPOSE:
                continue
            columns = "state_columns" if "state" in name and file == "episodes" else "columns"
            whole = f"{every[columns]} {sql}" if re.match(r"(--.*\n)*\s*WHERE", sql) else sql
            found[f"{file}.{name}"] = whole.replace("{visible}", _statement(queries("episodes")["visible"]))
    return found


@pytest.mark.parametrize("name", sorted(statements()))
def test_rows_are_found_by_an_index(name: str) -> None:
    steps = plan(statements()[name])
    tables = "e|episodes|facts|session_states|episode_terms|reviews"
    assert [step for step in steps if re.match(rf"SCAN ({tables})\b", step)] == []


@pytest.mark.parametrize(
    "which",
    [
        EpisodeFilter("p", "u", superseded=False),
        EpisodeFilter("p", "u", "project", superseded=False),
        EpisodeFilter("p", "u"),
    ],
)
def test_the_newest_are_read_in_order(which: EpisodeFilter) -> None:
    every = queries("episodes")
    conditions, _ = _conditions(which)
    sql = f"{every['columns']} {every['select']}".replace("{conditions}", conditions)
    steps = plan(sql.replace("{visible}", _statement(every["visible"])))
    inner = [step for step in steps if "episodes_live" in step or "episodes_of_project" in step]
    assert inner, steps
    assert not [step for step in steps if step.startswith("SCAN e")], steps
