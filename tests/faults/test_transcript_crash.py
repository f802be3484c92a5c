"""kill -9 at random points of writing: every acknowledged message is there, and the database is sound."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest
from tests.homes import matrix

from herma import Herma

ROUNDS = 300
HOMES = 10

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def write_until_killed(home: Path, told: int, seed: int) -> None:
    """Append turns of all sizes; every acknowledgement is written to `told` only after `append` has returned."""
    dice = random.Random(seed)
    with Herma.open(home) as h:
        session = h.transcripts.start("crash", system_prompt="p" * dice.randrange(5000))
        number = 0
        while True:
            texts = [f"{seed}.{number + n} " + "x" * dice.choice((5, 500, 20_000)) for n in range(dice.randrange(1, 5))]
            ids = h.transcripts.append(session, [{"role": "user", "content": text} for text in texts])
            number += len(texts)
            lines = [json.dumps([session, id_, text[:20], len(text)]) for id_, text in zip(ids, texts, strict=True)]
            os.write(told, ("\n".join(lines) + "\n").encode())
            if dice.random() < 0.1:
                h.transcripts.rewind(session, ids[0])
                h.transcripts.restore_rewound(session)


def one_round(home: Path, seed: int) -> list[tuple[str, int, str, int]]:
    """Fork a writer, kill it after a random moment. → what it acknowledged."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            os.close(reader)
            write_until_killed(home, writer, seed)
        finally:
            os._exit(1)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        first = pipe.readline() if seed % 3 else ""  # sometimes killed while it opens
        time.sleep(random.Random(seed).uniform(0, 0.02))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        told = first + pipe.read()
    return [tuple(json.loads(line)) for line in told.splitlines() if line.endswith("]")]


@pytest.mark.slow
@pytest.mark.parametrize("part", matrix(range(HOMES), lambda part: part == 0))
def test_what_was_acknowledged_is_there(home: Path, part: int) -> None:
    told: list[tuple[str, int, str, int]] = []
    for number in range(ROUNDS // HOMES):
        told += one_round(home, part * 1000 + number)
        with Herma.open(home) as h:  # the first to look at what was left is one of ours
            h.transcripts.list(limit=1)
        with closing(sqlite3.connect(home / "herma.db")) as database:
            assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert database.execute("PRAGMA foreign_key_check").fetchall() == []
    assert told
    with Herma.open(home) as h:
        sessions = h.transcripts.list(limit=1000)
        there = {
            (one.session_id, one.id, str(one.content)[:20], len(str(one.content)))
            for session in sessions
            for one in h.transcripts.messages(session.id, include_hidden=True)
        }
        assert set(told) - there == set()
        counted = h.transcripts.stats()
        assert counted.messages + counted.hidden_messages == len(there)
    with closing(sqlite3.connect(home / "herma.db")) as database:
        assert database.execute("SELECT coalesce(sum(count), 0) FROM changes").fetchone() == (len(there),)
        lost = "SELECT count(*) FROM payloads p WHERE NOT EXISTS (SELECT 1 FROM payload_uses u WHERE u.payload = p.id)"
        assert database.execute(
            f"{lost} AND p.id NOT IN (SELECT prompt FROM sessions WHERE prompt IS NOT NULL)"
        ).fetchone() == (0,)
