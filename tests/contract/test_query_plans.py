"""No query about curated memory reads the whole history: what a write costs does not grow with what was written."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from herma.store import database as module
from herma.store.database import queries

WHOLE_BY_PURPOSE = {"all_changes", "waiting"}
"""These list everything there is, or everything that waits."""


@pytest.mark.parametrize("name", sorted(queries("curated").keys() - WHOLE_BY_PURPOSE))
def test_a_query_finds_its_rows_by_an_index(name: str) -> None:
    database = apsw.Connection(":memory:")
    database.execute(Path(module.__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    sql = queries("curated")[name]
    bindings = dict.fromkeys(re.findall(r":(\w+)", sql), "[]")
    plan = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
    assert [step for step in plan if re.match(r"SCAN curated_\w+\b(?! USING INDEX)", step)] == []
