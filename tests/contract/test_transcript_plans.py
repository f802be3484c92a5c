"""Every query over transcripts goes through an index: none reads a table from end to end."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from herma.store import database as package
from herma.store.database import queries
from herma.transcript.rows import conditions
from herma.types import SessionFilter

FOLDER = Path(package.__file__).parent
PARTS = {"columns"}
"""What is not a statement by itself."""
COUNTING = {"totals", "by_source", "waiting", "hidden_messages", "payload_totals", "message_count"}
"""What has to look at everything, and is asked for by people only, or when an index is built anew."""


def statements() -> Iterator[tuple[str, str]]:
    for file in ("sessions", "messages", "feed"):
        named = queries(file)
        for name, sql in named.items():
            if name in PARTS | COUNTING:
                continue
            whole = f"{named['columns']} {sql}" if re.search(r"^\s*WHERE", re.sub(r"--.*", "", sql)) else sql
            matches, _ = conditions(SessionFilter(archived=False, delegated=False), "m")
            yield f"{file}.{name}", whole.replace("{matches}", matches)


@pytest.mark.parametrize(("name", "sql"), list(statements()))
def test_no_table_is_read_from_end_to_end(name: str, sql: str) -> None:
    connection = apsw.Connection(":memory:")
    connection.execute((FOLDER / "schema.sql").read_text(encoding="utf-8"))
    bindings: object = dict.fromkeys(re.findall(r":(\w+)", sql), 1) or (1,) * sql.count("?")
    plan = [str(row[3]) for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]  # type: ignore[arg-type]
    scans = [step for step in plan if re.match(r"SCAN (?!json_each|CONSTANT)", step)]
    assert scans == (["SCAN s USING INDEX sessions_by_activity"] if name == "sessions.recent" else [])
