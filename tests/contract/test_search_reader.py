"""What search reads of transcripts at once is what it would read one after the other."""

from __future__ import annotations

import threading
from pathlib import Path

from tests.homes import of_files

from herma import Herma
from herma.store import sqlite
from herma.store.sqlite import SqliteDatabase
from herma.transcript.rows import Standing, TranscriptReader
from herma.types import Scope


@of_files
def test_turns_are_heads_with_their_texts_and_a_standing_is_part_of_the_session(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        scope = Scope("work", "/src/boat", "ada", "room")
        first, second = (h.transcripts.start(source, scope=scope) for source in ("cli", "cron"))
        h.transcripts.append(
            first,
            [
                {"role": "user", "content": "Where is the harbour?"},
                {"role": "assistant", "content": "a long answer, " * 10_000},
                {"role": "user", "content": [{"type": "text", "text": "In parts."}]},
            ],
        )
        h.transcripts.append(second, [{"role": "user", "content": "Hello."}])
        h.transcripts.delete(second)
        database = SqliteDatabase(tmp_path / "herma.db")
        reader = TranscriptReader(database)
        ids = list(reader.newest(10))
        turns = reader.turns([*ids, 999], 8_000)
        assert turns.texts == reader.texts(ids, 8_000)
        assert reader.turns(ids) == turns._replace(texts={})
        assert {head.id for head in turns.heads} == set(ids)
        assert sorted(map(len, turns.texts.values())) == [6, 9, 21, 8_000]
        assert turns.sessions == {
            id_: Standing(id_, one.source, one.scope, one.conversation, one.archived, one.deleted)
            for id_, one in reader.sessions([first, second, "nobody"]).items()
        }
        assert len(turns.sessions) == 2
        database.close()


@of_files
def test_what_is_read_steadily_is_of_one_moment(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": "First."}])
        database = SqliteDatabase(tmp_path / "herma.db")
        reader = TranscriptReader(database)
        with reader.snapshot(), reader.snapshot():
            before = reader.newest(10)
            h.transcripts.append(session, [{"role": "user", "content": "Second."}])
            h.transcripts.start("cli")
            assert reader.newest(10) == before
            assert reader.size() == 1
        assert len(reader.newest(10)) == len(before) + 1
        assert reader.size() == 2
        database.close()


@of_files
def test_what_is_open_is_known_while_another_thread_uses_it(tmp_path: Path) -> None:
    """A reader is opened at that moment, and asks for the files that this process has open."""
    with Herma.open(home=tmp_path) as h:
        h.transcripts.start("cli")
        connection = sqlite.open_reader(tmp_path / "herma.db", 1.0)
        long = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 2000000) SELECT max(i) FROM n"
        busy = threading.Thread(target=lambda: connection.execute(long).fetchall())
        busy.start()
        known = [connection.path in sqlite._open_files()]
        while busy.is_alive():
            known.append(connection.path in sqlite._open_files())
        busy.join()
        connection.close()
        assert all(known)
