"""The index follows the transcript: whatever happened, it is what building it anew would give."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import apsw
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from herma.errors import StoreError
from herma.index.file import SqliteIndexFiles
from herma.index.sync import MOST_BEHIND, Background, Index, Verified
from herma.index.types import Found, Terms
from herma.store.files import exclusive
from herma.transcript.rows import FeedChange, Position, Searchable

SHARD = 1 << 15


class Feed:
    """A transcript in memory, with a change feed."""

    def __init__(self, first: int = 1) -> None:
        self.texts: dict[int, str] = {}
        self.changes: list[FeedChange] = []
        self.epoch = "epoch"
        self.next = first

    def append(self, *texts: str) -> tuple[int, ...]:
        ids = tuple(range(self.next, self.next + len(texts)))
        self.next += len(texts)
        self.texts.update(zip(ids, texts, strict=True))
        self.changes.append(FeedChange(len(self.changes) + 1, "append", ids))
        return ids

    def purge(self, *ids: int) -> None:
        for message_id in ids:
            self.texts.pop(message_id, None)
        self.changes.append(FeedChange(len(self.changes) + 1, "purge", ids))

    def position(self) -> Position:
        return Position("store", self.epoch, len(self.changes))

    def since(self, seq: int, limit: int) -> Sequence[FeedChange]:
        return self.changes[seq : seq + limit]

    def searchable(self, message_ids: Sequence[int]) -> Sequence[Searchable]:
        return [Searchable(i, "session", "user", 0.0, self.texts[i]) for i in message_ids if i in self.texts]

    def message_count(self) -> int:
        return len(self.texts)


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def index(home: Path, feed: Feed) -> Iterator[Index]:
    opened = Index(SqliteIndexFiles(home), feed)
    yield opened
    opened.close()


def found(index: Index, word: str) -> list[int]:
    return [c.message_id for c in index.find(Terms(any_of=((word,),)), 50).candidates]


def content(folder: Path) -> dict[str, object]:
    """Everything an index says about its messages, however it came to say it."""
    connection = apsw.Connection(str(folder / "index.db"))
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
    files = SqliteIndexFiles(folder)
    index = Index(files, feed)
    assert index.wait(30)
    while files.current().tidy():
        pass
    index.close()
    return content(folder)


def until(condition: Callable[[], bool], seconds: float = 20.0) -> bool:
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


# ── following ──


def test_nothing_is_created_for_an_empty_transcript(index: Index, home: Path) -> None:
    assert index.catch_up() == 0
    assert index.find(Terms(any_of=(("word",),)), 5) == Found((), 0, exhausted=True)
    assert index.vocabulary(["word"]) == ()
    assert index.status().messages == 0
    assert not (home / "index.db").exists()


def test_a_search_sees_what_was_just_written(index: Index, feed: Feed) -> None:
    for number in range(5):
        (message,) = feed.append(f"message number{number}")
        assert index.missing() == [message]
        assert index.catch_up() == 0
        assert found(index, f"number{number}") == [message]
        assert index.missing() == []


def test_what_is_purged_is_gone(index: Index, feed: Feed) -> None:
    one, two = feed.append("same word", "same word")
    assert index.catch_up() == 0
    feed.purge(one)
    assert index.catch_up() == 0
    assert found(index, "word") == [two]
    assert index.status().messages == 1


def test_a_long_lag_is_reported_and_worked_off_in_the_background(index: Index, feed: Feed) -> None:
    feed.append(*(f"word{i}" for i in range(50)))
    feed.append("newest of all")
    assert index.catch_up(at_most=10) == 51
    assert index.missing(3) == [51, 50, 49]
    assert until(lambda: index.status().lag == 0)
    assert found(index, "newest") == [51]


def test_one_change_of_very_many_messages_is_indexed_in_parts(index: Index, feed: Feed) -> None:
    feed.append("first")
    assert index.catch_up() == 0
    feed.append(*(f"word{i}" for i in range(1_500)))
    assert index.catch_up() == 0
    assert index.status().messages == 1_501
    assert index.verify().trouble == ""


def test_written_messages_are_indexed_when_writing_pauses(index: Index, feed: Feed) -> None:
    for _ in range(3):
        feed.append("hello")
        index.written()
    assert until(lambda: index.status().lag == 0)
    assert found(index, "hello") == [3, 2, 1]


def test_very_many_messages_are_indexed_without_waiting_for_a_pause() -> None:
    begun = threading.Event()
    background = Background(lambda _: begun.set(), lambda _: None, quiet=3_600.0)
    background.written(MOST_BEHIND)
    assert begun.wait(20)
    background.close(20)


def test_what_was_purged_is_not_missing(index: Index, feed: Feed) -> None:
    first, second, third = feed.append("one", "two", "three")
    feed.purge(second)
    assert list(index.missing()) == [third, first]


def test_another_epoch_means_another_index(index: Index, feed: Feed) -> None:
    feed.append("before")
    assert index.catch_up() == 0
    feed.epoch = "after restore"
    feed.texts = {1: "restored"}
    assert index.status().lag == 1
    assert index.catch_up() == 0
    assert found(index, "before") == []
    assert found(index, "restored") == [1]


def test_a_feed_that_went_back_means_another_index(index: Index, feed: Feed) -> None:
    feed.append("one")
    feed.append("two")
    assert index.catch_up() == 0
    feed.changes.pop()
    del feed.texts[2]
    assert index.catch_up() == 0
    assert found(index, "two") == []


def test_two_indexes_of_one_home_see_each_others_work(home: Path, feed: Feed) -> None:
    one, two = Index(SqliteIndexFiles(home), feed), Index(SqliteIndexFiles(home), feed)
    feed.append("hello")
    assert one.catch_up() == 0
    assert found(two, "hello") == [1]
    two.rebuild()
    feed.append("hello")
    assert one.catch_up() == 0
    assert found(one, "hello") == found(two, "hello") == [2, 1]
    one.close()
    two.close()


def test_an_index_that_is_written_at_this_moment_is_waited_for(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello")
    assert index.catch_up() == 0
    for ask in (lambda one: one.catch_up(), lambda one: one.status().lag, lambda one: len(one.verify().trouble)):
        writer = apsw.Connection(str(home / "index.db"))
        writer.execute("BEGIN EXCLUSIVE")
        done = threading.Timer(0.2, lambda writer=writer: writer.execute("COMMIT"))
        done.start()
        other = Index(SqliteIndexFiles(home), feed)
        assert ask(other) == 0
        assert found(other, "hello") == [1]
        other.close()
        done.join()
        writer.close()


def test_a_search_does_not_wait_long_for_another_indexer(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello")
    assert index.catch_up() == 0
    feed.append("hello again")
    with exclusive(home / "index.db.lock", 1):
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


def test_an_interrupted_build_is_continued(home: Path, feed: Feed) -> None:
    feed.append(*(f"word{i}" for i in range(500)))
    feed.append(*(f"word{i}" for i in range(700)))
    stopped = Index(SqliteIndexFiles(home), feed)
    stop = threading.Event()

    def progress(done: int, total: int) -> None:
        stop.set()

    stopped._follower.rebuild(1, progress, stop.is_set)
    stopped.close()
    assert (home / "index.db.new").exists()
    assert not (home / "index.db").exists()
    index = Index(SqliteIndexFiles(home), feed)
    done: list[int] = []
    index._follower.rebuild(1, lambda n, total: done.append(n), anew=False)
    index.close()
    assert done[0] >= 256
    assert done[-1] == 1_200
    assert not (home / "index.db.new").exists()


@pytest.mark.parametrize("harm", ["deleted", "damaged"])
def test_searches_do_not_undo_what_is_built_meanwhile(index: Index, feed: Feed, home: Path, harm: str) -> None:
    feed.append(*(f"hello word{i}" for i in range(1_200)))
    feed.append(*(f"hello word{i}" for i in range(1_200)))
    assert index.wait(20)
    if harm == "deleted":
        (home / "index.db").unlink()
    else:
        (home / "index.db").write_bytes(b"no index" * 1_000)
    built: list[int] = []

    def progress(done: int, total: int) -> None:
        found(index, "hello")
        built.append(index.status().built)

    index._follower.rebuild(1, progress)
    assert [least <= here for least, here in zip((256, 512, 768), built, strict=False)] == [True] * 3, built
    assert len(found(index, "hello")) == 50
    assert index.status().built == 0


def test_a_search_says_how_far_the_index_is_built(home: Path, feed: Feed) -> None:
    feed.append(*(f"hello word{i}" for i in range(3_000)))
    stopped, stop = Index(SqliteIndexFiles(home), feed), threading.Event()
    stopped._follower.rebuild(1, lambda _done, _total: stop.set(), stop.is_set)
    stopped.close()
    files = SqliteIndexFiles(home)
    with files.hold(1):  # somebody is at it
        index = Index(SqliteIndexFiles(home), feed)
        notes = index.find(Terms(any_of=(("hello",),)), 5).notes
        index.close()
    assert notes == ("The index is being built: 256 of 3,000 messages so far.",)


def test_drop_deletes_and_the_next_search_builds(index: Index, feed: Feed, home: Path) -> None:
    feed.append("hello")
    assert index.catch_up() == 0
    index.drop()
    assert not (home / "index.db").exists()
    assert index.status().lag == 1
    assert index.catch_up() == 0
    assert found(index, "hello") == [1]


# ── checking ──


@pytest.mark.parametrize(
    "harm",
    [
        "DELETE FROM docs WHERE id = 1",
        "UPDATE docs SET digest = digest + 1 WHERE id = 1",
        "DELETE FROM shard_0 WHERE rowid = 1",
        "INSERT INTO shard_0 (rowid, text, names) VALUES (9, 'ghost', '')",
        "UPDATE shards SET messages = 7",
        "DELETE FROM docs WHERE id = 1; DELETE FROM shard_0 WHERE rowid = 1; UPDATE shards SET messages = messages - 1",
        "UPDATE meta SET value = 0 WHERE key = 'format'",
        "DROP TABLE shard_0_data",
    ],
)
def test_whatever_differs_is_found_and_healed(index: Index, feed: Feed, home: Path, harm: str) -> None:
    feed.append("hello there", "second")
    assert index.catch_up() == 0
    assert index.verify().trouble == ""
    before = content(home)
    connection = apsw.Connection(str(home / "index.db"))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.execute(harm)
    connection.close()
    verified = index.verify()
    assert verified.trouble
    assert verified.rebuilt
    assert content(home) == before
    assert index.verify().trouble == ""


def test_a_full_shard_is_checked_by_its_checksum(home: Path) -> None:
    feed = Feed(first=SHARD - 40)
    feed.append(*("common word" for _ in range(45)))
    settled(home, feed)
    index = Index(SqliteIndexFiles(home), feed)
    assert index.verify().trouble == ""
    connection = apsw.Connection(str(home / "index.db"))
    assert connection.execute("SELECT stage, checksum <> 0 FROM shards WHERE id = 0").fetchall() == [(3, 1)]
    connection.execute("UPDATE shards SET checksum = checksum + 1 WHERE id = 0")
    connection.close()
    assert index.verify().rebuilt
    index.close()


@pytest.mark.parametrize(
    "harm",
    [
        "UPDATE rare SET words = CAST(words || x'00' AS BLOB)",
        "DELETE FROM rare WHERE id = (SELECT max(id) FROM rare)",
        "UPDATE lists SET strong = zeroblob(8)",
        "UPDATE frequent SET messages = messages + 1",
        "DELETE FROM frequent",
    ],
)
def test_lists_that_differ_are_found_and_healed(home: Path, harm: str) -> None:
    feed = Feed(first=SHARD - 40)
    feed.append(*(f"common word{i}" for i in range(45)))
    before = settled(home, feed)
    connection = apsw.Connection(str(home / "index.db"))
    connection.execute(harm)
    connection.close()
    index = Index(SqliteIndexFiles(home), feed)
    assert index.verify() == Verified("lists differ", rebuilt=True)
    index.close()
    assert settled(home, feed) == before


def test_a_message_missing_in_the_lists_is_noticed_at_a_glance(home: Path) -> None:
    feed = Feed(first=SHARD - 40)
    feed.append(*(f"common word{i}" for i in range(45)))
    settled(home, feed)
    connection = apsw.Connection(str(home / "index.db"))
    connection.execute("DELETE FROM rare")
    connection.close()
    index = Index(SqliteIndexFiles(home), feed)
    assert index._check(thorough=False).trouble == "lists differ"
    index.close()


def test_an_index_of_an_older_format_is_built_anew(home: Path, feed: Feed) -> None:
    feed.append("hello there")
    settled(home, feed)
    connection = apsw.Connection(str(home / "index.db"))
    connection.execute("UPDATE meta SET value = '1' WHERE key = 'format'; DROP TABLE rare; DROP TABLE lists")
    connection.close()
    index = Index(SqliteIndexFiles(home), feed)
    assert index.catch_up() == 0
    assert found(index, "hello") == [1]
    assert index.verify() == Verified("", rebuilt=False)
    index.close()


def test_two_processes_may_weigh_the_same_shard(home: Path) -> None:
    feed = Feed(first=SHARD - 60)
    feed.append(*(f"common word{i} other{i % 7}" for i in range(70)))
    index = Index(SqliteIndexFiles(home), feed)
    assert index.catch_up() == 0
    one, other = SqliteIndexFiles(home), SqliteIndexFiles(home)
    more = True
    while more:
        with one.hold(5):
            one.current().tidy()
        with other.hold(5):
            more = other.current().tidy()
    one.close()
    other.close()
    assert index.verify().trouble == ""
    index.close()


def test_suspicion_checks_in_the_background_once_a_minute(home: Path, feed: Feed) -> None:
    now = [100.0]
    index = Index(SqliteIndexFiles(home), feed, clock=lambda: now[0])
    feed.append("hello")
    assert index.catch_up() == 0
    before = content(home)
    for minute in range(2):
        connection = apsw.Connection(str(home / "index.db"))
        connection.execute("DELETE FROM shard_0 WHERE rowid = 1")
        connection.close()
        assert found(index, "hello") == []
        index.suspect()
        if minute:
            assert found(index, "hello") == []
            now[0] += 61
            index.suspect()
        assert until(lambda: found(index, "hello") == [1])
    index.close()
    assert content(home) == before


def test_suspicions_within_a_minute_are_one(home: Path, feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    now, begun = [100.0], []
    index = Index(SqliteIndexFiles(home), feed, clock=lambda: now[0])
    monkeypatch.setattr(index._background, "begin", lambda *, check: begun.append((now[0], check)))
    for seconds in (0, 0, 59, 1, 59):
        now[0] += seconds
        index.suspect()
    index.close()
    assert begun == [(100.0, True), (160.0, True)]


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


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(steps, max_size=25))
def test_the_index_is_what_building_it_gives(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, object]]
) -> None:
    folder, feed = tmp_path_factory.mktemp("index"), Feed(first=SHARD - 60)
    feed.append("first")
    index = Index(SqliteIndexFiles(folder), feed)
    for what, value in plan:
        if what == "append" and isinstance(value, list):
            feed.append(*value)
        elif what == "jump" and isinstance(value, int):
            feed.next += value
        elif what == "purge" and isinstance(value, int):
            feed.purge(*[i for i in feed.texts if i % 51 == value])
        elif what == "catch up" and isinstance(value, int):
            index.catch_up(value)
        elif what == "tidy" and isinstance(value, int) and (folder / "index.db").exists():
            for _ in range(value):
                with index._files.hold(5):
                    index._files.current().tidy()
        elif what == "reopen":
            index.close()
            index = Index(SqliteIndexFiles(folder), feed)
    index.close()
    anew = tmp_path_factory.mktemp("anew")
    assert settled(folder, feed) == settled(anew, feed)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.text(), min_size=1, max_size=30))
def test_any_text_is_indexed_as_it_is_checked(tmp_path_factory: pytest.TempPathFactory, given_texts: list[str]) -> None:
    feed, files = Feed(first=SHARD - 10), SqliteIndexFiles(tmp_path_factory.mktemp("index"))
    feed.append(*given_texts)
    index = Index(files, feed)
    assert index.wait(30)
    while files.current().tidy():
        pass
    for thorough in (True, False):
        assert files.current().check(index._follower.rows, thorough=thorough) == ""
    for text in given_texts:
        index.find(Terms(any_of=((text,),), prefix=frozenset({text})), 5)
        index.find(Terms(any_of=((text,),), all_of=(((text, text),),), none_of=((text,),)), 5)
        index.vocabulary([text], [text])
    index.close()


def test_a_folder_that_cannot_be_written_is_no_failure_of_the_search(feed: Feed, tmp_path: Path) -> None:
    missing = tmp_path / "not" / "there"
    index = Index(SqliteIndexFiles(missing), feed)
    feed.append("hello")
    assert index.catch_up() == 1
    assert found(index, "hello") == []
    assert index.missing() == [1]
    assert index.status().trouble
    (note,) = index.find(Terms(any_of=(("hello",),)), 5).notes
    assert note.startswith("There is no index, and none can be built: ")
    with pytest.raises(StoreError):
        index.rebuild()
    index.close()
