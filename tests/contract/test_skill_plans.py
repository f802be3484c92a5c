"""No query about skills reads a whole table, except those that list everything by purpose."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from herma.store import database as module
from herma.store.database import queries

WHOLE_BY_PURPOSE = {"columns", "all_changes", "archived_from", "known_paths"}
"""These list everything there is."""


@pytest.mark.parametrize("name", sorted(queries("skills").keys() - WHOLE_BY_PURPOSE))
def test_a_query_finds_its_rows_by_an_index(name: str) -> None:
    database = apsw.Connection(":memory:")
    database.execute(Path(module.__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    named = queries("skills")
    sql = re.sub(r"--.*", "", named[name])
    if sql.strip().startswith("WHERE"):
        sql = f"{named['columns']} {sql}"
    bindings = dict.fromkeys(re.findall(r":(\w+)", sql), 1)
    plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    assert [step for step in plan if re.match(r"SCAN skill_\w+\b(?! USING)", step)] == []
