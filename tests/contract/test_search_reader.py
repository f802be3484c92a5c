"""What search reads of transcripts at once is what it would read one after the other."""

from __future__ import annotations

from pathlib import Path

from herma import Herma
from herma.store.database import Database
from herma.transcript.rows import Admitted, SqliteReader, Standing
from herma.types import Scope


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
        database = Database(tmp_path / "herma.db")
        reader = SqliteReader(database)
        ids = list(reader.newest(10))
        turns = reader.turns([*ids, 999], 8_000)
        assert turns.texts == reader.texts(ids, 8_000)
        assert reader.turns(ids) == turns._replace(texts={})
        assert {head.id for head in turns.heads} == set(ids)
        assert sorted(map(len, turns.texts.values())) == [9, 21, 8_000]
        database.close()


def test_a_standing_is_part_of_the_session(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        scope = Scope("work", "/src/boat", "ada", "room")
        first = h.transcripts.start("cli", scope=scope)
        second = h.transcripts.start("cron", scope=scope)
        ids = [h.transcripts.append(one, [{"role": "user", "content": "Hello."}])[0] for one in (first, second)]
        h.transcripts.delete(second)
        database = Database(tmp_path / "herma.db")
        reader = SqliteReader(database)
        asked = [str(first), str(second), "nobody"]
        standings = reader.turns([*ids, 999]).sessions
        assert standings == {
            id_: Standing(id_, one.source, one.scope, one.conversation, one.archived, one.deleted)
            for id_, one in reader.sessions(asked).items()
        }
        assert len(standings) == 2
        database.close()


def test_what_is_read_steadily_is_of_one_moment(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": "First."}])
        database = Database(tmp_path / "herma.db")
        reader = SqliteReader(database)
        with reader.steady(), reader.steady():
            before = reader.newest(10)
            h.transcripts.append(session, [{"role": "user", "content": "Second."}])
            h.transcripts.start("cli")
            assert reader.newest(10) == before
            assert reader.size() == 1
        assert len(reader.newest(10)) == len(before) + 1
        assert reader.size() == 2
        database.close()


def test_steady_reading_creates_nothing(tmp_path: Path) -> None:
    database = Database(tmp_path / "herma.db")
    reader = SqliteReader(database)
    with reader.steady():
        assert reader.newest(10) == []
    assert not (tmp_path / "herma.db").exists()
    database.close()


def test_the_newest_of_what_is_admitted(tmp_path: Path) -> None:
    with Herma.open(home=tmp_path) as h:
        first, second, gone = (h.transcripts.start(source) for source in ("cli", "telegram", "telegram"))
        turn = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello there."}]
        ids = {one: h.transcripts.append(one, turn) for one in (first, second, gone)}
        h.transcripts.delete(gone)
        database = Database(tmp_path / "herma.db")
        reader = SqliteReader(database)
        everything = Admitted(lambda *_: True)
        assert reader.newest(10, everything) == [*reversed(ids[second]), *reversed(ids[first])]
        assert reader.newest(1, everything) == ids[second][1:]
        assert reader.newest(10, Admitted(lambda source, *_: source == "cli", roles=("user",))) == ids[first][:1]
        assert reader.newest(10, Admitted(lambda *_: True, before=0.0)) == []
        assert reader.newest(10, Admitted(lambda *_: True, sessions=(first,))) == ids[first][::-1]
        assert reader.newest(10, Admitted(lambda *_: False)) == []
        database.close()
