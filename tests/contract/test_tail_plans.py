"""What a turn asks about the long tail is found by an index, however long it is."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from herma.store import database as module
from herma.store.database import queries

WHOLE_BY_PURPOSE = {"everything", "version"}  # embedding all of it; two counts


def statements() -> dict[str, str]:
    every = queries("tail")
    return {
        name: f"{every['columns']} {sql}" if re.match(r"(--.*\n)*\s*WHERE", sql) else sql
        for name, sql in every.items()
        if name not in WHOLE_BY_PURPOSE | {"columns"}
    }


@pytest.mark.parametrize("name", sorted(statements()))
def test_rows_are_found_by_an_index(name: str) -> None:
    sql = statements()[name]
    database = apsw.Connection(":memory:")
    database.execute(Path(module.__file__).with_name("schema.sql").read_text(encoding="utf-8"))
    names = re.findall(r":(\w+)", sql)
    bindings: object = dict.fromkeys(names, "[]") if names else ("[]",) * sql.count("?")
    steps = [str(row[3]) for row in database.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]  # type: ignore[arg-type]
    assert [step for step in steps if re.match(r"SCAN (t|c|e|u|curated_\w+)\b", step)] == []
