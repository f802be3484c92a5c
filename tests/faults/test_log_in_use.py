"""A write-ahead log that others write to looks unfinished at every moment. That is no damage."""

from __future__ import annotations

import multiprocessing
from multiprocessing.synchronize import Event
from pathlib import Path

from herma.store.sqlite import open_reader, open_writer

WRITERS = 3
OPENED = 1_000


def _write(path: Path, stop: Event) -> None:
    connection = open_writer(path, 10)
    connection.pragma("synchronous", "OFF")  # as many changes as possible, whatever the disk
    while not stop.is_set():
        connection.execute("BEGIN IMMEDIATE; INSERT INTO changes (gone, first_id, count) VALUES (0, 1, 1); COMMIT")
    connection.close()


def test_who_opens_it_meanwhile_is_not_refused(home: Path) -> None:
    path = home / "herma.db"
    open_writer(path, 10).close()
    spawn = multiprocessing.get_context("spawn")
    stop = spawn.Event()
    writers = [spawn.Process(target=_write, args=(path, stop)) for _ in range(WRITERS)]
    for writer in writers:
        writer.start()
    try:
        for _ in range(OPENED):
            open_reader(path, 10).close()
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    assert [writer.exitcode for writer in writers] == [0] * WRITERS
