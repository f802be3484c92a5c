"""The write-ahead log, read without SQLite, which silently leaves out everything from the first wrong bit on.

The format is the published one: https://sqlite.org/fileformat2.html. A log is a head of 32 bytes, then frames: a head
of 24 bytes and a page. Frames that belong together have the salts of the log's head. Where a log began anew, what it
held before still stands behind, with other salts.

Reading the log itself does no harm. The database and its `-shm` must never be opened beside SQLite in one process: when
such a file is closed, POSIX lets go of every lock that the process has on it.
"""

from __future__ import annotations

import struct
from os import SEEK_CUR
from pathlib import Path

HEAD, FRAME = 32, 24
_MAGIC = 0x377F0682
_OTHERS = 16
"""Frames in a row with other salts after which nothing of this log is expected: damage to a disk is no larger."""


def page_size_of(log: bytes) -> int:
    """What the log's head says; 0 when it says nothing that can be believed."""
    return int.from_bytes(log[8:12], "big") if len(log) >= HEAD and _head_is_sound(log) else 0


def _head_is_sound(log: bytes) -> bool:
    if int.from_bytes(log[:4], "big") & ~1 != _MAGIC:
        return False
    return checksum(_order(log), log[:24]) == struct.unpack(">II", log[24:HEAD])


def _order(log: bytes) -> str:
    return ">" if log[3] & 1 else "<"


def checksum(order: str, data: bytes, state: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    first, second = state
    for one, two in struct.iter_unpack(f"{order}II", data):
        first = (first + one + second) & 0xFFFFFFFF
        second = (second + two + first) & 0xFFFFFFFF
    return first, second


# ── everything that can be used ──


def committed_pages(log: bytes, size: int) -> tuple[dict[int, bytes], int]:
    """The newest content of each page in the log's finished transactions. → and how many frames are damaged.

    Checksums run through the whole log. Where one does not fit, the next frame tells whether the damage is that one's
    only: its checksum goes on from the stored one. Such a page is taken too, as most of it is right.
    """
    order, salts, state = _beginning(log, size)
    done: dict[int, bytes] = {}
    open_: dict[int, bytes] = {}
    damaged, suspects, others, pages = 0, 0, 0, 0
    ended = False  # by a frame that is itself suspect
    for at in range(HEAD, len(log) - size - FRAME + 1, size + FRAME):
        head, page = log[at : at + FRAME], log[at + FRAME : at + FRAME + size]
        stored: tuple[int, int] = struct.unpack(">II", head[16:24])
        others = 0 if head[8:16] == salts else others + 1
        if others == _OTHERS:
            break
        fits = not others and checksum(order, page, checksum(order, head[:8], state)) == stored
        state = stored
        number, commit = struct.unpack(">II", head[:8])
        if fits:
            if ended:
                done, open_, ended = done | open_, {}, False
            damaged, suspects = damaged + suspects, 0
        else:
            suspects += 1
            ended = ended or bool(commit)
        open_[number] = page
        if fits and commit:
            done, open_, pages = done | open_, {}, max(pages, commit)
    return {number: page for number, page in done.items() if 0 < number <= pages}, damaged


def _beginning(log: bytes, size: int) -> tuple[str, bytes, tuple[int, int]]:
    """The order of bytes, the salts, and the checksum to go on from; from the first frames if the head is damaged."""
    state: tuple[int, int] = struct.unpack(">II", log[24:HEAD])
    if _head_is_sound(log):
        return _order(log), log[16:24], state
    second = HEAD + FRAME + size
    first_sum: tuple[int, int] = struct.unpack(">II", log[HEAD + 16 : HEAD + 24].ljust(8, b"\0"))
    head, page = log[second : second + FRAME], log[second + FRAME : second + FRAME + size]
    follows = len(page) == size and checksum(">", page, checksum(">", head[:8], first_sum)) == struct.unpack(
        ">II", head[16:24]
    )
    return ">" if follows else "<", log[HEAD + 8 : HEAD + 16], state


# ── what SQLite leaves out ──


def left_out(path: Path, used: int, size: int) -> int:
    """How many finished transactions stand in the log behind the frames that SQLite uses, and behind a wrong bit.

    One alone is no sign of damage: it may be just being written, or a power loss cut it off before it was
    acknowledged. A second one was begun only when the first was on disk. And a first one whose checksums fit is not
    left out for damage: it is just being finished, or SQLite has left the log behind and is about to write over it.
    """
    found, others, fits = 0, 0, True
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
            sound = len(head) == HEAD and _head_is_sound(head)
            salts, order = (head[16:24], _order(head)) if sound else (b"", "<")
            file.seek(HEAD + (used - 1) * (FRAME + size) + 16 if used else 24)
            state = _pair(file.read(8))
            file.seek(HEAD + used * (FRAME + size))
            while others < _OTHERS and len(frame := file.read(FRAME)) == FRAME:
                salts = salts or frame[8:16]
                others = 0 if frame[8:16] == salts else others + 1
                fits = fits and not others
                if not found and sound and fits:
                    state = checksum(order, file.read(size), checksum(order, frame[:8], state))
                    fits = state == _pair(frame[16:24])
                else:
                    file.seek(size, SEEK_CUR)
                found += not others and frame[4:8] != bytes(4)
                if found and sound and fits:
                    return 0
    except (OSError, struct.error):
        return 0
    return found if found > 1 else 0


def _pair(data: bytes) -> tuple[int, int]:
    one, two = struct.unpack(">II", data)
    return one, two
