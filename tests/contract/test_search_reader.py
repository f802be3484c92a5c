"""What search reads of transcripts at once is what it would read one after the other."""

from __future__ import annotations

from pathlib import Path

from tests.homes import of_files

from herma import Herma
from herma.store.sqlite import SqliteDatabase
from herma.transcript.rows import Standing, TranscriptReader
from herma.types import Scope


@of_files
def test_turns_are_heads_with_their_texts_however_these_are_kept(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(
            session,
            [
                {"role": "user", "content": "Where is the harbour?"},
                {"role": "assistant", "content": "a long answer, " * 10_000},
                {"role": "user", "content": [{"type": "text", "text": "In parts."}]},
            ],
        )
        database = SqliteDatabase(tmp_path / "herma.db")
        reader = TranscriptReader(database)
        ids = list(reader.newest(10))
        turns = reader.turns([*ids, 999], 8_000)
        assert turns.texts == reader.texts(ids, 8_000)
        assert reader.turns(ids) == turns._replace(texts={})
        assert {head.id for head in turns.heads} == set(ids)
        assert sorted(map(len, turns.texts.values())) == [9, 21, 8_000]
        database.close()


@of_files
def test_a_standing_is_part_of_the_session(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        scope = Scope("work", "/src/boat", "ada", "room")
        first = h.transcripts.start("cli", scope=scope)
        second = h.transcripts.start("cron", scope=scope)
        ids = [h.transcripts.append(one, [{"role": "user", "content": "Hello."}])[0] for one in (first, second)]
        h.transcripts.delete(second)
        database = SqliteDatabase(tmp_path / "herma.db")
        reader = TranscriptReader(database)
        asked = [str(first), str(second), "nobody"]
        standings = reader.turns([*ids, 999]).sessions
        assert standings == {
            id_: Standing(id_, one.source, one.scope, one.conversation, one.archived, one.deleted)
            for id_, one in reader.sessions(asked).items()
        }
        assert len(standings) == 2
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
