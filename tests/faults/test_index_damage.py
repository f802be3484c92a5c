"""Whatever happens to index.db costs nothing but building it again: no search fails, and nothing stays wrong."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest
from tests.feeds import SHARD, Feed
from tests.homes import matrix

from herma import Herma
from herma.errors import StoreError
from herma.index import IndexQuery
from herma.index.sync import Index
from herma.transcript.rows import FeedChange

WORDS = ["alpha", "beta", "gamma", "getTip", "東京都庁", "delta", "C#", "omega"]


class FileFeed(Feed):
    """A transcript in a file that other processes read too. Each line is a change: ids with texts, or ids gone."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.refresh()

    def refresh(self) -> None:
        self.changes, self.texts = [], {}
        for line in self.path.read_text(encoding="utf-8").splitlines():
            added, gone = json.loads(line)
            if gone:
                self.purge(*gone)
            else:
                self.texts.update((message_id, text) for message_id, text in added)
                ids = tuple(message_id for message_id, _ in added)
                self.changes.append(FeedChange(len(self.changes) + 1, "append", ids))


def transcript(path: Path, changes: int, seed: int = 1) -> FileFeed:
    chance, first, lines = random.Random(seed), SHARD - 300, []
    for _ in range(changes):
        size = chance.randint(1, 20)
        added = [(first + i, " ".join(chance.choices(WORDS, k=12)) + f" only{first + i}") for i in range(size)]
        first += size
        lines.append(json.dumps([added, []]))
        if chance.random() < 0.1:
            lines.append(json.dumps([[], [chance.randint(SHARD - 300, first - 1)]]))
    path.write_text("\n".join(lines), encoding="utf-8")
    return FileFeed(path)


def opened(home: Path, feed: FileFeed) -> Index:
    return Index(Herma.open(home), feed=feed)


def assert_right(index: Index, feed: FileFeed) -> None:
    """Every message is found by the word that only it has, and nothing else is found."""
    assert index.wait(60)
    for message_id in random.Random(2).sample(sorted(feed.texts), 20):
        found = index.find(IndexQuery(any_of=((f"only{message_id}",),)), 5)
        assert [c.message_id for c in found.candidates] == [message_id]
    assert index.status().messages == feed.message_count()


HARMS = ["delete", "empty", "header", "cut", "random bytes", "foreign", "journal"]


def harm(path: Path, kind: str, chance: random.Random) -> None:
    if kind == "journal":  # as a killed process may leave it
        path.with_name(path.name + "-journal").write_bytes(chance.randbytes(4_000))
        return
    if kind == "foreign":
        path.write_text("not a database, and longer than a header " * 100, encoding="utf-8")
        return
    data = bytearray(path.read_bytes())
    if kind == "delete":
        path.unlink()
    elif kind == "empty":
        path.write_bytes(b"")
    elif kind == "header":
        path.write_bytes(chance.randbytes(100) + data[100:])
    elif kind == "cut":
        path.write_bytes(data[: chance.randrange(100, len(data))])
    else:
        path.write_bytes(chance.randbytes(len(data)))


@pytest.mark.parametrize("kind", HARMS)
def test_a_harmed_file_is_built_anew(home: Path, tmp_path: Path, kind: str) -> None:
    feed = transcript(tmp_path / "feed", 60)
    index = opened(home, feed)
    assert_right(index, feed)
    for while_open in (True, False):
        if not while_open:
            index.close()
        harm(home / "index.db", kind, random.Random(kind))
        if not while_open:
            index = opened(home, feed)
        index.find(IndexQuery(any_of=(("alpha",),)), 5)  # may find nothing, must not fail
        index.catch_up()
        index.verify()
        assert_right(index, feed)
    index.close()


@pytest.mark.parametrize("seed", matrix(range(30), lambda seed: seed < 6))
def test_flipped_bits_are_found_and_healed(home: Path, tmp_path: Path, seed: int) -> None:
    """Each bit belongs to something: a page, a word, a number. Unless it is unused space, it is noticed."""
    feed = transcript(tmp_path / "feed", 80)
    index = opened(home, feed)
    assert_right(index, feed)
    index.close()
    path, chance = home / "index.db", random.Random(seed)
    data = bytearray(path.read_bytes())
    for _ in range(chance.choice([1, 5, 200])):
        data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
    path.write_bytes(data)
    index = opened(home, feed)
    for word in ("alpha", "get", "absent"):
        index.find(IndexQuery(any_of=((word,),)), 5)
    index.find(IndexQuery(any_of=(("alpha",),), all_of=((("beta",),),), none_of=(("gamma",),)), 5)
    index.vocabulary(["lph"])
    index.verify()
    assert_right(index, feed)
    assert index.verify().trouble == ""
    index.close()


CHILD = """
    import importlib.util, sys, time
    from pathlib import Path
    spec = importlib.util.spec_from_file_location("damage", sys.argv[1])
    damage = importlib.util.module_from_spec(spec)
    sys.modules["damage"] = damage
    spec.loader.exec_module(damage)
    index = damage.opened(Path(sys.argv[2]), damage.FileFeed(Path(sys.argv[3])))
    print("go", flush=True)
    if sys.argv[4] == "rebuild":
        while True:
            index.rebuild()
    while True:
        index.drop()
        index.catch_up(1)
        index.wait()
        time.sleep(0.001)
"""


@pytest.mark.slow
@pytest.mark.parametrize("doing", ["rebuild", "follow"])
def test_a_killed_indexer_leaves_nothing_wrong(home: Path, tmp_path: Path, doing: str) -> None:
    feed = transcript(tmp_path / "feed", 150)
    chance = random.Random(doing)
    for _ in range(4):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(CHILD), __file__, str(home), str(feed.path), doing],
            stdout=subprocess.PIPE,
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.uniform(0.0, 0.25))
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()
        index = opened(home, feed)
        assert_right(index, feed)
        assert index.verify().trouble == ""
        index.close()


def test_what_cannot_be_replaced_is_told(home: Path, tmp_path: Path) -> None:
    (home / "index.db" / "something of somebody").mkdir(parents=True)
    index = opened(home, transcript(tmp_path / "feed", 5))
    assert "move it away" in index.status().trouble
    assert index.catch_up() > 0
    found = index.find(IndexQuery(any_of=(("alpha",),)), 5)
    assert found.candidates == ()
    assert "move it away" in found.notes[0]
    assert "move it away" in index.status().trouble
    for work in (index.rebuild, index.verify, index.drop):
        with pytest.raises(StoreError, match="move it away") as told:
            work()
        assert told.value.hint.startswith("mv ")
    index.close()
    assert (home / "index.db" / "something of somebody").is_dir()


def test_an_empty_folder_in_its_place_costs_a_rebuild(home: Path, tmp_path: Path) -> None:
    for name in ("index.db", "index.db.new"):
        (home / name).mkdir(parents=True)
    feed = transcript(tmp_path / "feed", 5)
    index = opened(home, feed)
    assert_right(index, feed)
    assert index.status().trouble == ""
    index.close()


def test_a_full_disk_is_told_and_searches_go_on(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import apsw

    from herma.index import file as index_tables

    feed = transcript(tmp_path / "feed", 20)
    index = opened(home, feed)
    assert_right(index, feed)
    newest = max(feed.texts) + 1
    feed.path.write_text(feed.path.read_text(encoding="utf-8") + "\n" + json.dumps([[(newest, "alpha")], []]))
    feed.refresh()

    def full(*_: object) -> None:
        raise apsw.FullError("disk full")

    with monkeypatch.context() as patched:
        patched.setattr(index_tables.IndexTables, "_insert", full)
        assert index.catch_up() == 1
        assert "full" in index.status().trouble
        assert index.find(IndexQuery(any_of=(("alpha",),)), 5).candidates
        assert index.missing() == [newest]
    assert index.catch_up() == 0
    assert index.status().trouble == ""
    index.close()
