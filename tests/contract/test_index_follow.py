"""The index follows the transcript: whatever happened, it is what building it anew would give."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.feeds import SHARD, Feed
from tests.homes import of_files

from herma import Herma
from herma.errors import StoreError
from herma.index import IndexAnswer, IndexQuery, sync
from herma.index.file import IndexFiles
from herma.index.postgres import ServerTables
from herma.index.sync import MOST_INDEXED, Index, IndexVerified
from herma.index.vectors import MOST_BEHIND, IndexWorker
from herma.worker import Lane


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def index(home: Path, feed: Feed) -> Iterator[Index]:
    with opened(home, feed) as made:
        yield made


@contextmanager
def opened(home: Path, feed: Feed, **given: Any) -> Iterator[Index]:
    with Herma.open(home) as h:
        index = Index(h, feed=feed, **given)
        try:
            yield index
        finally:
            index.close()


def found(index: Index, word: str) -> list[int]:
    return [c.message_id for c in index.find(IndexQuery(any_of=((word,),)), 50).candidates]


def content(index: Index) -> dict[str, object]:
    """Everything an index says about its messages, however it came to say it."""
    return content_of_file(index._files._path.parent) if isinstance(index._files, IndexFiles) else on_server(index)


def on_server(index: Index) -> dict[str, object]:
    tables = index._files.current()
    assert isinstance(tables, ServerTables)
    filling = {row[0] for row in tables._read("shards") if row[3] == 0}
    rows = tables._db.rows("SELECT term, shard, messages, strong, rest FROM lists ORDER BY term, shard")
    postings = tables._db.rows("SELECT term, id, length, times FROM postings ORDER BY term, id")
    texts = tables._db.rows("SELECT id, digest, length, words FROM texts ORDER BY id")
    return {"lists": [row for row in rows if row[1] not in filling], "postings": postings, "texts": texts}


def content_of_file(folder: Path) -> dict[str, object]:
    connection = apsw.Connection(str(folder / "index.db"))
    connection.set_busy_timeout(10_000)  # the index may be writing
    shards = [row[0] for row in connection.execute("SELECT id FROM shards WHERE messages > 0 ORDER BY id").fetchall()]
    told: dict[str, object] = {"docs": connection.execute("SELECT * FROM docs ORDER BY id").fetchall()}
    for table in ("frequent", "lists", "rare"):
        told[table] = connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall()
    for shard in shards:
        told[f"words {shard}"] = connection.execute(
            f"SELECT term, doc, col, offset FROM shard_{shard}_places ORDER BY term, doc, col, offset"
        ).fetchall()
    connection.close()
    return told


def settled(folder: Path, feed: Feed) -> dict[str, object]:
    """The content after everything that is due was done."""
    with opened(folder, feed) as index:
        return settle(index)


def settle(index: Index) -> dict[str, object]:
    assert index.wait(30)
    while index._files.current().tidy():
        pass
    return content(index)


def interrupt(done: int, total: int) -> None:
    """Stop a build after its first step, as a killed process does."""
    raise InterruptedError


def damage(home: Path, sql: str) -> None:
    connection = apsw.Connection(str(home / "index.db"))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(sql)
    connection.close()


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


# ── following ──


def test_nothing_is_created_for_an_empty_transcript(index: Index, home: Path) -> None:
    assert index.catch_up() == 0
    assert index.find(IndexQuery(any_of=(("word",),)), 5) == IndexAnswer((), 0)
    assert index.vocabulary(["word"]) == ()
    assert index.status().messages == 0
    assert not (home / "index.db").exists()


def test_a_long_lag_is_reported_and_worked_off_in_the_background(index: Index, feed: Feed) -> None:
    feed.append(*(f"word{i}" for i in range(50)))
    feed.append("newest of all")
    assert index.catch_up(at_most=10) == 51
    assert index.missing(3) == [51, 50, 49]
    assert until(lambda: index.status().lag == 0)
    assert found(index, "newest") == [51]


def test_written_messages_are_indexed_when_writing_pauses_or_if_they_are_very_many(index: Index, feed: Feed) -> None:
    for _ in range(3):
        feed.append("hello")
        index.written()
    assert until(lambda: index.status().lag == 0)
    assert found(index, "hello") == [3, 2, 1]
    begun = threading.Event()
    background = IndexWorker(Lane("index"), lambda _: begun.set(), quiet=3_600.0)
    background.written(MOST_BEHIND)
    assert begun.wait(20)
    background.close(20)


def test_a_feed_that_is_another_means_another_index(index: Index, feed: Feed) -> None:
    feed.append("before")
    feed.append("two")
    assert index.catch_up() == 0
    feed.epoch, feed.texts = "after restore", {1: "restored"}
    assert index.catch_up() == 0
    assert (found(index, "two"), found(index, "restored")) == ([], [1])
    feed.changes.pop()  # it went back
    feed.texts = {1: "again"}
    assert index.catch_up() == 0
    assert (found(index, "restored"), found(index, "again")) == ([], [1])


def test_two_indexes_of_one_home_see_each_others_work(home: Path, feed: Feed) -> None:
    with opened(home, feed) as one, opened(home, feed) as two:
        feed.append("hello")
        assert one.catch_up() == 0
        assert found(two, "hello") == [1]
        two.rebuild()
        feed.append("hello")
        assert one.catch_up() == 0
        assert found(one, "hello") == found(two, "hello") == [2, 1]


@of_files
def test_an_index_that_is_written_at_this_moment_is_waited_for(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello")
    assert index.catch_up() == 0
    for ask in (lambda one: one.catch_up(), lambda one: one.status().lag, lambda one: len(one.verify().trouble)):
        writer = apsw.Connection(str(home / "index.db"))
        writer.execute("BEGIN EXCLUSIVE")
        done = threading.Timer(0.2, lambda writer=writer: writer.execute("COMMIT"))
        done.start()
        other = Index(Herma.open(home), feed=feed)
        assert ask(other) == 0
        assert found(other, "hello") == [1]
        other.close()
        done.join()
        writer.close()


def test_a_search_does_not_wait_long_for_another_indexer(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello")
    assert index.catch_up() == 0
    feed.append("hello again")
    with opened(home, feed) as other, other._files.hold(1):
        assert index.catch_up() == 1
        assert found(index, "hello") == [1]
    assert index.catch_up() == 0


# ── building ──


def test_searches_go_on_while_the_index_is_built_anew(index: Index, feed: Feed) -> None:
    feed.append(*(f"hello word{i}" for i in range(1_200)))
    assert index.wait(20)
    seen: list[tuple[int, int]] = []
    answers: list[int] = []

    def progress(done: int, total: int) -> None:
        seen.append((done, total))
        answers.append(len(found(index, "hello")))

    index.rebuild(progress)
    assert seen[-1] == (1_200, 1_200)
    assert set(answers) == {50}
    assert len(found(index, "hello")) == 50


@of_files
def test_searches_do_not_undo_what_is_built_meanwhile(index: Index, feed: Feed, home: Path) -> None:
    feed.append(*(f"hello word{i}" for i in range(1_200)))
    feed.append(*(f"hello word{i}" for i in range(1_200)))
    assert index.wait(20)
    for damaged in (False, True):
        (home / "index.db").unlink()
        if damaged:
            (home / "index.db").write_bytes(b"no index" * 1_000)
        built: list[int] = []

        def progress(done: int, total: int, built: list[int] = built) -> None:
            found(index, "hello")
            built.append(index.status().built)

        index._follower.rebuild(1, progress)
        assert [least <= here for least, here in zip((256, 512, 768), built, strict=False)] == [True] * 3, built
        assert len(found(index, "hello")) == 50
        assert index.status().built == 0


def test_an_interrupted_build_is_continued_and_a_search_says_how_far_it_is(home: Path, feed: Feed) -> None:
    feed.append(*(f"hello word{i}" for i in range(3_000)))  # one change, which is indexed in parts
    with opened(home, feed) as stopped, pytest.raises(InterruptedError):
        stopped.rebuild(interrupt)
    with opened(home, feed) as index, opened(home, feed) as builder:
        with builder._files.hold(1):
            notes = index.find(IndexQuery(any_of=(("hello",),)), 5).notes
        assert notes == ("The index is being built: 256 of 3,000 messages so far.",)
        assert (index.status().built, index.status().messages) == (256, 0)
        assert index.wait(30)
        assert (index.status().messages, index.status().built) == (3_000, 0)
        assert index.verify().trouble == ""


# ── checking ──


HARMS = (
    "DELETE FROM docs WHERE id = 1",
    "UPDATE docs SET digest = digest + 1 WHERE id = 1",
    "DELETE FROM shard_0 WHERE rowid = 1",
    "INSERT INTO shard_0 (rowid, text, names) VALUES (9, 'ghost', '')",
    "UPDATE shards SET messages = 7",
    "DELETE FROM docs WHERE id = 1; DELETE FROM shard_0 WHERE rowid = 1; UPDATE shards SET messages = messages - 1",
    "UPDATE meta SET value = 0 WHERE key = 'format'",
    "DROP TABLE shard_0_data",
)


@of_files
def test_whatever_differs_is_found_and_healed(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello there", "second")
    assert index.catch_up() == 0
    assert index.verify().trouble == ""
    before = content(index)
    for harm in HARMS:
        damage(home, harm)
        verified = index.verify()
        assert verified.trouble, harm
        assert verified.rebuilt
        assert content(index) == before
        assert index.verify().trouble == ""


LISTS = (
    "UPDATE rare SET words = CAST(words || x'00' AS BLOB)",
    "DELETE FROM rare",
    "DELETE FROM rare WHERE id = (SELECT max(id) FROM rare)",
    "UPDATE lists SET strong = zeroblob(8)",
    "UPDATE frequent SET messages = messages + 1",
    "DELETE FROM frequent",
    "UPDATE shards SET checksum = checksum + 1 WHERE id = 0",
)


@of_files
def test_lists_that_differ_are_found_and_healed(home: Path) -> None:
    feed = Feed(first=SHARD - 40)
    feed.append(*(f"common word{i}" for i in range(45)))
    before = settled(home, feed)
    for harm in LISTS:
        damage(home, harm)
        with opened(home, feed) as index:
            if harm == "DELETE FROM rare":
                assert index._check(thorough=False).trouble == "lists differ", "noticed at a glance"
            else:
                trouble = "words differ" if "checksum" in harm else "lists differ"
                assert index.verify() == IndexVerified(trouble, rebuilt=True), harm
        assert settled(home, feed) == before


@of_files
def test_two_processes_may_weigh_the_same_shard(home: Path) -> None:
    feed = Feed(first=SHARD - 60)
    feed.append(*(f"common word{i} other{i % 7}" for i in range(70)))
    with opened(home, feed) as index:
        assert index.catch_up() == 0
        one, other = IndexFiles(home), IndexFiles(home)
        more = True
        while more:
            with one.hold(5):
                one.current().tidy()
            with other.hold(5):
                more = other.current().tidy()
        one.close()
        other.close()
        assert index.verify().trouble == ""


@of_files
def test_suspicion_checks_in_the_background_once_a_minute(home: Path, feed: Feed) -> None:
    now = [100.0]
    with opened(home, feed, clock=lambda: now[0]) as index:
        feed.append("hello")
        assert index.catch_up() == 0
        before = content(index)
        for minute in range(2):
            damage(home, "DELETE FROM shard_0 WHERE rowid = 1")
            assert found(index, "hello") == []
            index.schedule_check()
            if minute:
                assert found(index, "hello") == []
                now[0] += 61
                index.schedule_check()
            assert until(lambda: found(index, "hello") == [1])
        assert content(index) == before


# ── the one rule ──

texts = st.lists(st.sampled_from(["common word", "getTip 東京都", "C# rare", "", "word word"]), min_size=1, max_size=40)
steps = st.one_of(
    st.tuples(st.just("append"), texts),
    st.tuples(st.just("purge"), st.integers(0, 50)),
    st.tuples(st.just("jump"), st.just(SHARD // 2)),
    st.tuples(st.just("catch up"), st.sampled_from([1, 2_000])),
    st.tuples(st.just("tidy"), st.integers(1, 30)),
    st.tuples(st.just("reopen"), st.none()),
)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_the_index_is_what_building_it_gives(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, object]]
) -> None:
    feed = Feed(first=SHARD - 60)
    feed.append("first")
    with Herma.open(tmp_path_factory.mktemp("index")) as h:
        index = Index(h, feed=feed)
        index.drop()
        for what, value in plan:
            if what == "append" and isinstance(value, list):
                feed.append(*value)
            elif what == "jump" and isinstance(value, int):
                feed.next += value
            elif what == "purge" and isinstance(value, int):
                feed.purge(*[i for i in feed.texts if i % 51 == value])
            elif what == "catch up" and isinstance(value, int):
                index.catch_up(value)
            elif what == "tidy" and isinstance(value, int) and index.status().messages:
                for _ in range(value):
                    with index._files.hold(5):
                        index._files.current().tidy()
            elif what == "reopen":
                index.close()
                index = Index(h, feed=feed)
        before = settle(index)
        index.rebuild(embedding=None)
        assert settle(index) == before
        index.close()


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(), min_size=1, max_size=30))
def test_any_text_is_indexed_as_it_is_checked(tmp_path_factory: pytest.TempPathFactory, given_texts: list[str]) -> None:
    feed = Feed(first=SHARD - 10)
    feed.append(*given_texts)
    with opened(tmp_path_factory.mktemp("index"), feed) as index:
        index.drop()
        settle(index)
        for thorough in (True, False):
            assert index._files.current().check(index._follower.rows, thorough=thorough) == ""
        for text in given_texts:
            index.find(IndexQuery(any_of=((text,),), prefix=frozenset({text})), 5)
            index.find(IndexQuery(any_of=((text,),), all_of=(((text, text),),), none_of=((text,),)), 5)
            index.vocabulary([text], [text])


@of_files
def test_a_folder_that_cannot_be_written_is_no_failure_of_the_search(feed: Feed, tmp_path: Path) -> None:
    missing = tmp_path / "not" / "there"
    with opened(missing, feed) as index:
        feed.append("hello")
        assert index.catch_up() == 1
        assert found(index, "hello") == []
        assert index.missing() == [1]
        assert index.status().trouble
        (note,) = index.find(IndexQuery(any_of=(("hello",),)), 5).notes
        assert note.startswith("There is no index, and it cannot be built: ")
        with pytest.raises(StoreError):
            index.rebuild()


@of_files
def test_of_an_endless_message_the_beginning_is_indexed(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work on one message is bounded: counted in identifiers that are taken apart, not in seconds."""
    taken_apart, count = sync._taken_apart, 0

    def counted(word: str) -> tuple[str, str]:
        nonlocal count
        count += 1
        return taken_apart(word)

    monkeypatch.setattr(sync, "_taken_apart", counted)
    feed, piece = Feed(), "userId=12345 "
    feed.append("earliest " + piece * (3 * MOST_INDEXED // len(piece)) + " latest", "latest of all")
    with opened(home, feed) as index:
        assert index.wait(60)
        assert (found(index, "earliest"), found(index, "latest")) == ([1], [2])
        assert count <= MOST_INDEXED // len(piece)
        assert index.verify() == IndexVerified("", rebuilt=False)
