"""Whatever happens to index.db.vectors costs nothing but making vectors again: no search fails, nothing stays wrong."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import apsw
from tests.homes import talk

from herma import Herma
from herma.errors import EmbedderError
from herma.testing import HashEmbedder

if TYPE_CHECKING:
    from herma.models.embedder import Vectors as Rows

WORDS = ["alpha", "beta", "gamma", "delta", "omega", "harbour", "kitchen", "violin", "mountain", "ledger"]
EMBED = """
import sys, time
from herma import Herma
from herma.testing import HashEmbedder

class Slow(HashEmbedder):
    def passages(self, texts):
        time.sleep({pause})
        with open(sys.argv[2], "a") as log:
            log.writelines(f"{{hash(text)}}\\n" for text in texts)
        return super().passages(texts)

with Herma.open(sys.argv[1], embedder=Slow(64)) as h:
    print("ready", flush=True)
    h.index.wait()
    print("done", flush=True)
"""


def filled(home: Path, messages: int = 400, seed: int = 1) -> None:
    chance = random.Random(seed)
    with Herma.open(home) as h:
        left = messages
        while left > 0:
            size = min(left, chance.randint(1, 40))
            session = h.transcripts.start("test")
            h.transcripts.append(
                session,
                [
                    {
                        "role": ("user", "assistant")[n % 2],
                        "content": " ".join(chance.choices(WORDS, k=9)) + f" {left - n}",
                    }
                    for n in range(size)
                ],
            )
            left -= size


def stored(home: Path) -> set[tuple[object, ...]]:
    connection = apsw.Connection(str(home / "index.db.vectors"))
    try:
        sql = """SELECT v.kind, v.key, v.part, coalesce(s.session, ''), v.digest, v.vector
                 FROM vectors v LEFT JOIN sessions s ON s.id = v.session"""
        rows: list[tuple[object, ...]] = connection.execute(sql).fetchall()
    finally:
        connection.close(True)
    assert len(rows) == len(set(rows))
    return set(rows)


def whole(home: Path) -> set[tuple[object, ...]]:
    """What is stored after everything is embedded, here."""
    with Herma.open(home, embedder=HashEmbedder(64)) as h:
        assert h.index.wait()
        assert h.index.status().vectors.left == 0
    return stored(home)


def expected(home: Path) -> set[tuple[object, ...]]:
    with Herma.open(home, embedder=HashEmbedder(64)) as h:
        h.index.drop()
    return whole(home)


def worker(home: Path, log: Path, pause: float) -> subprocess.Popen[str]:
    code = textwrap.dedent(EMBED).format(pause=pause)
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.Popen(
        [sys.executable, "-c", code, str(home), str(log)], stdout=subprocess.PIPE, text=True, env=environment
    )


def test_killed_at_any_moment_it_goes_on_where_it_was(home: Path, tmp_path: Path) -> None:
    filled(home)
    log = tmp_path / "log"
    chance = random.Random(5)
    log.touch()
    for _ in range(4):
        before = log.stat().st_size
        process = worker(home, log, 0.02)
        while log.stat().st_size == before and process.poll() is None:
            time.sleep(0.002)
        time.sleep(chance.uniform(0.0, 0.06))
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert 0 < len(log.read_text().splitlines()) < 400  # it was killed in the middle
    found = whole(home)
    embedded = log.read_text().splitlines()
    assert len(embedded) - len(set(embedded)) <= 4 * 64  # at most what was in hand is done twice
    assert found == expected(home)


def test_several_processes_embed_nothing_twice(home: Path, tmp_path: Path) -> None:
    filled(home, 200)
    log = tmp_path / "log"
    processes = [worker(home, log, 0.002) for _ in range(3)]
    for process in processes:
        out, _ = process.communicate(timeout=120)
        assert out == "ready\ndone\n"
    embedded = log.read_text().splitlines()
    assert len(embedded) == len(set(embedded))
    assert stored(home) == expected(home)


def test_a_damaged_file_costs_a_rebuild(home: Path) -> None:
    filled(home, 120)
    before = whole(home)
    path, chance = home / "index.db.vectors", random.Random(3)
    for harm in ("empty", "cut", "garbled", "text", "gone", "flipped"):
        data = bytearray(path.read_bytes())
        garbled = bytes(chance.randrange(256) if at % 97 == 0 else value for at, value in enumerate(data))
        if harm == "gone":
            path.unlink()
        elif harm == "flipped":  # inside a vector, where SQLite does not look
            connection = apsw.Connection(str(path))
            connection.execute("UPDATE vectors SET vector = zeroblob(64) WHERE id % 7 = 0")
            connection.close(True)
        else:
            made = {"empty": b"", "cut": bytes(data[:9_000]), "garbled": garbled, "text": b"hello" * 500}
            path.write_bytes(made[harm])
        with Herma.open(home, embedder=HashEmbedder(64)) as h:
            assert h.search("violin").hits
            assert isinstance(h.index.vectors.near("violin", 5).hits, tuple)
            assert h.doctor() is not None
            h.index.rebuild()
            assert h.index.vectors.near("violin", 5).hits
        assert stored(home) == before, harm
    path.write_bytes(path.read_bytes()[:5_000])
    assert whole(home) == before, "damage that is met while embedding is repaired by itself"


def test_a_long_lived_process_follows_what_others_do_to_the_file(home: Path) -> None:
    filled(home, 60)
    with Herma.open(home, embedder=HashEmbedder(64)) as watching, Herma.open(home, embedder=HashEmbedder(64)) as other:
        near = watching.index.vectors
        assert near is not None
        assert other.index.wait()
        before = near.near("violin", 100).hits
        assert len(before) == 60
        other.index.drop()
        assert near.near("violin", 100).hits == ()
        assert other.index.wait()
        assert {(hit.key, round(hit.score, 4)) for hit in near.near("violin", 100).hits} == {
            (hit.key, round(hit.score, 4)) for hit in before
        }


def test_a_home_that_cannot_be_written_is_searched_by_words(home: Path) -> None:
    filled(home, 20)
    whole(home)
    with Herma.open(home) as h:
        h.transcripts.append(h.transcripts.start("test"), [{"role": "user", "content": "a violin for sale"}])
    lock = home / "index.db.vectors.lock"
    lock.unlink()
    lock.mkdir()
    with Herma.open(home, embedder=HashEmbedder(64)) as h:
        assert h.search("violin sale").hits
        assert not h.index.wait(2)
        assert h.index.status().vectors.trouble
    lock.rmdir()


class Dead(HashEmbedder):
    calls = 0

    def passages(self, texts: Sequence[str]) -> Rows:
        self.calls += 1
        raise EmbedderError("nobody answers")


def test_the_background_embeds_and_does_not_ask_a_dead_embedder_again_and_again(home: Path) -> None:
    dead = Dead()
    with Herma.open(home, embedder=dead) as h, h.session() as session:
        for number in range(3):
            talk(session, f"question {number}", reply="answer")
        deadline = time.monotonic() + 20
        while not h.index.status().vectors.trouble and time.monotonic() < deadline:
            time.sleep(0.02)
        assert 1 <= dead.calls <= 4
        assert h.index.status().vectors.trouble == "nobody answers"
        assert any(check.name == "embedder" for check in h.doctor().checks)
        assert h.search("question").hits
    with Herma.open(home, embedder=HashEmbedder(64)) as h, h.session() as session:
        talk(session, "where is the violin", reply="in the kitchen")
        while h.index.status().vectors.done < 8 and time.monotonic() < deadline + 20:
            time.sleep(0.02)
        found = h.index.status().vectors
        assert (found.done, found.left, found.trouble) == (8, 0, "")


def test_searching_goes_on_while_others_embed(home: Path) -> None:
    filled(home, 300)
    with Herma.open(home, embedder=HashEmbedder(64)) as h, Herma.open(home, embedder=HashEmbedder(64)) as other:
        assert h.index.vectors is not None
        done = threading.Thread(target=other.index.wait)
        done.start()
        counts = []
        while done.is_alive():
            counts.append(len(h.index.vectors.near("violin", 500).hits))
        done.join()
        assert counts == sorted(counts)
        assert len(h.index.vectors.near("violin", 500).hits) == 300
