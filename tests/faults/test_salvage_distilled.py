"""What was distilled of conversations comes through a repair, and what was purged with them does not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from herma import Add, Herma, Review
from herma.review.rows import ReviewRows
from herma.store.salvage import salvage
from herma.testing import FixedClock

from .damage import roots, rows


@pytest.fixture
def filled(home: Path) -> Path:
    """Many conversations with episodes, some of them purged, and some facts."""
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        h.memory.apply("user", Add("Timezone: Europe/Rome"))
        assert h.facts.get("time zone") is not None
        ids = []
        for number in range(60):
            session = h.transcripts.start("cli")
            said = [f"write the chapter number {number} of the book", f"Written, chapter {number} is done."]
            h.transcripts.append(
                session, [{"role": r, "content": c} for r, c in zip(("user", "assistant"), said, strict=True)]
            )
            ids.append(session)
        h.episodes.rebuild()
        h.episodes.forget(ids=[3, 4])
        for session in ids:
            noted = Review(session, session, "end", "closed", 1, 2, 1.0, notice=f"about {session}")
            ReviewRows(h.db).owe(noted)
        h.transcripts.delete(ids[20:40])
        clock.advance(400 * 86_400)
        assert len(h.transcripts.purge_expired()) == 20
    return home


TABLES = ("episodes", "session_states", "facts", "facts_read", "episode_terms", "reviews")


def test_a_sound_database_comes_through_whole(filled: Path, tmp_path: Path) -> None:
    salvage(filled / "herma.db", None, tmp_path / "new.db")
    for table in TABLES:
        assert rows(tmp_path / "new.db", table) == rows(filled / "herma.db", table), table
        assert rows(tmp_path / "new.db", table), table
    numbers = {row[0]: row[1] for row in rows(tmp_path / "new.db", "sqlite_sequence")}
    assert numbers["episodes"] == 60, "numbers that were given out are not given out again"


@pytest.mark.parametrize("seed", range(4))
def test_what_was_purged_does_not_come_back(filled: Path, tmp_path: Path, seed: int) -> None:
    damaged = tmp_path / "herma.db"
    before = {table: set(rows(filled / "herma.db", table)) for table in TABLES}
    data = bytearray((filled / "herma.db").read_bytes())
    size = int.from_bytes(data[16:18], "big")
    at = (roots(filled / "herma.db")["episodes"] - 1) * size + (seed * 997) % (size // 2)
    data[at : at + 40] = bytes(40)
    damaged.write_bytes(data)
    salvage(damaged, None, tmp_path / "new.db")
    kept = rows(tmp_path / "new.db", "episodes")
    assert {row[1] for row in kept} <= {row[1] for row in before["episodes"]}
    assert set(rows(tmp_path / "new.db", "session_states")) <= before["session_states"]
    assert set(rows(tmp_path / "new.db", "reviews")) <= before["reviews"]
    there = {row[0] for row in kept}
    assert all(row[1] in there for row in rows(tmp_path / "new.db", "episode_terms"))
