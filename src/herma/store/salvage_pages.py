"""Read the pages and the write-ahead log of an SQLite database as bytes.

SQLite stops at the first damaged page, and silently leaves out everything in the log from the first wrong bit on.
Nothing here trusts a number that it read; an impossible one raises `Unreadable`, and costs the page or the row that it
stands in, nothing else. The format is the published one: https://sqlite.org/fileformat2.html.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import NamedTuple, TypeAlias

# A log is a head of 32 bytes, then frames: a head of 24 bytes and a page. Frames that belong together have the salts of
# the log's head. Where a log began again, its earlier frames still follow, with other salts.
#
# Reading the log itself does no harm. The database and its `-shm` must never be opened beside SQLite in one process:
# when such a file is closed, POSIX lets go of every lock that the process has on it.

HEAD, FRAME = 32, 24
_SHARED = 100
"""Bytes at the beginning of the shared memory: two copies of its head, and how much of the log is in the file."""
_MAGIC = 0x377F0682
_OTHERS = 16
"""Frames in a row with other salts after which nothing of this log is expected: damage to a disk is no larger."""


def page_size_of(log: bytes) -> int:
    """Return what the log's head says; 0 when it says nothing that can be believed."""
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


def committed_pages(log: bytes, size: int) -> tuple[dict[int, bytes], int]:
    """Return the newest content of each page in the log's finished transactions, and how many frames are damaged.

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
    """Return the order of bytes, the salts, and the first checksum; from the first frames if the head is damaged."""
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


def left_out(path: Path, used: int, size: int) -> int:
    """Return how many finished transactions stand in the log behind the frames that SQLite uses, and behind a wrong
    bit.

    One alone is not a sign of damage: it may be just being written, or a power loss cut it off before it was
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


def missing_frames(log: Path, shared: Path) -> int:
    """Return how many frames that were finished, and are not in the file yet, the log lacks at its end, by what the
    memory that processes share says about it. 0 also where it says nothing about this log.
    """
    try:
        before = shared.read_bytes()[:_SHARED]
        size, head = 0, b""
        if log.exists():
            with log.open("rb") as file:
                head = file.read(HEAD)
                size = file.seek(0, SEEK_END)
        if shared.read_bytes()[:_SHARED] != before:  # others are at work
            return 0
    except OSError:
        return 0
    native = "<" if sys.byteorder == "little" else ">"
    first, second = before[:48], before[48:96]
    if len(before) < _SHARED or first != second or not first[12]:
        return 0
    if checksum(native, first[:40]) != struct.unpack(f"{native}II", first[40:48]):
        return 0
    page, frames = struct.unpack(f"{native}HI", first[14:20])
    page = 65536 if page == 1 else page
    (moved,) = struct.unpack(f"{native}I", before[96:_SHARED])
    if page not in _SIZES or moved >= frames or (size > HEAD and head[16:24] != first[32:40]):
        return 0
    there = (size - HEAD) // (FRAME + page) if size > HEAD else 0
    return max(0, int(frames) - max(int(moved), there))


def _pair(data: bytes) -> tuple[int, int]:
    one, two = struct.unpack(">II", data)
    return one, two


INDEX_INTERIOR, TABLE_INTERIOR, INDEX_LEAF, TABLE_LEAF = 2, 5, 10, 13
_SIZES = {512 << shift for shift in range(8)}
_FIXED = {0: 0, 1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8, 7: 8, 8: 0, 9: 0}
_SAMPLE = 16 * 2**20

Value: TypeAlias = int | float | str | bytes | None


class Unreadable(Exception):
    """These bytes are not what they should be."""


class Miscounted(Unreadable):
    """All of these can be read, but there are fewer than there should be."""


class Record(NamedTuple):
    """One row as it lies in the file. Of a row whose chain of pages breaks off, the values up to there: `cut`."""

    values: list[Value]
    rowid: int
    cut: bool
    garbled: bool
    pages: list[int]
    room: int
    """Bytes that it takes on its first page."""


class PageFile:
    """A database file together with its write-ahead log."""

    def __init__(self, path: Path, log: Path | None = None) -> None:
        self._file = path.open("rb")
        self._length = path.stat().st_size
        head = self._file.read(100)
        self._newest: dict[int, bytes] = {}
        self.lost_frames = 0
        data = log.read_bytes() if log is not None and log.exists() else b""
        self.size = _page_size(head, data) or self._likeliest_size()
        if len(data) >= 32:
            self._newest, self.lost_frames = committed_pages(data, self.size)
        self.count = max([-(-self._length // self.size), *self._newest])
        self.reserved = 0
        self.header_ok = self.page(1)[:16] == b"SQLite format 3\0" and _declared_size(self.page(1)) == self.size
        if self.header_ok:
            self.reserved = self.page(1)[20]

    def page(self, number: int) -> bytes:
        """Return the newest committed content of a page; zeros for what the file no longer has."""
        if number in self._newest:
            return self._newest[number]
        if not 1 <= number <= self.count:
            raise Unreadable(f"there is no page {number}")
        try:
            self._file.seek((number - 1) * self.size)
            data = self._file.read(self.size)
        except OSError as exc:  # a bad sector
            raise Unreadable(f"page {number}: {exc}") from exc
        return data.ljust(self.size, b"\0")

    def _likeliest_size(self) -> int:
        """Guess the size at which most pages, and most of all places, begin like one of a table."""
        self._file.seek(0)
        data = self._file.read(_SAMPLE)
        scores: dict[int, float] = {}
        for size in sorted(_SIZES, reverse=True):
            places = range(size, len(data) - 8, size)
            hits = sum(_begins_like_a_page(data[at : at + 8], size) for at in places)
            scores[size] = hits * hits / max(1, len(places))
        return max(scores, key=lambda size: scores[size])

    def free(self) -> set[int]:
        """Return pages that hold nothing any more, as far as their list can be read: deleted rows."""
        found: set[int] = set()
        trunk = int.from_bytes(self.page(1)[32:36], "big") if self.header_ok else 0
        while 1 < trunk <= self.count and trunk not in found:
            found.add(trunk)
            data = self.page(trunk)
            following, leaves = struct.unpack_from(">II", data)
            if leaves > self.size // 4 - 2:
                break
            found.update(n for n in struct.unpack_from(f">{leaves}I", data, 8) if 1 < n <= self.count)
            trunk = following
        return found

    def close(self) -> None:
        self._file.close()

    def kind(self, number: int) -> int:
        return self.page(number)[100 if number == 1 else 0]

    def children(self, number: int) -> list[tuple[int, int | None]]:
        """Return the pages below an interior page, in order; of a table, with the largest key that each may hold."""
        data, base, cells = self._cells(number, 12)
        is_table = data[base] == TABLE_INTERIOR
        found: list[tuple[int, int | None]] = []
        taken = 0
        for at in cells:
            if at < 0:
                raise Unreadable(f"page {number} leads nowhere")
            key, end = varint(data, at + 4) if is_table else (0, at)
            taken += end - at
            found.append((int.from_bytes(data[at : at + 4], "big"), _signed(key) if is_table else None))
        if is_table and not self._adds_up(data, base, 12 + 2 * len(cells), taken):
            raise Unreadable(f"page {number} has other rows than it counts")
        return [*found, (int.from_bytes(data[base + 8 : base + 12], "big"), None)]

    def rows(self, number: int, kind: int = 0) -> Iterator[Record | Unreadable]:
        """Yield what a leaf of a table, or any page of an index, holds; a row that makes no sense comes as the reason.

        `kind` is what the page is taken for, whatever it says itself.
        """
        kind = kind or self.kind(number)
        header = 8 if kind in (TABLE_LEAF, INDEX_LEAF) else 12
        data, base, cells = self._cells(number, header)
        left = 4 if kind == INDEX_INTERIOR else 0
        taken, whole = 0, True
        for at in cells:
            try:
                if at < 0:
                    raise Unreadable(f"page {number}: a row that is nowhere")
                record = self._row(data, at + left, kind == TABLE_LEAF, number)
                taken += max(4, record.room + left)
                yield record
            except (Unreadable, IndexError, struct.error) as exc:
                whole = False
                yield Unreadable(str(exc))
        if whole and not self._adds_up(data, base, header + 2 * len(cells), taken):
            yield Miscounted(f"page {number} has other rows than it counts")

    def _cells(self, number: int, header: int) -> tuple[bytes, int, list[int]]:
        data = self.page(number)
        base = 100 if number == 1 else 0
        count = int.from_bytes(data[base + 3 : base + 5], "big")
        start = base + header
        usable = self.size - self.reserved
        if start + 2 * count > usable:
            raise Unreadable(f"page {number} cannot hold {count} rows")
        places = struct.unpack_from(f">{count}H", data, start)
        return data, base, [at if start + 2 * count <= at < usable else -1 for at in places]

    def _adds_up(self, data: bytes, base: int, head: int, taken: int) -> bool:
        """Return whether head, rows and unused room make up the whole page: a damaged count hides rows."""
        usable = self.size - self.reserved
        first, _, content, loose = struct.unpack_from(">HHHB", data, base + 1)
        unused, seen = loose, 0
        while first and seen < usable // 4 and first + 4 <= usable:
            following, size = struct.unpack_from(">HH", data, first)
            unused, seen, first = unused + size, seen + 1, following
        return base + head <= (content or 65536) <= usable and taken + unused == usable - (content or 65536)

    def _row(self, data: bytes, at: int, is_table: bool, number: int) -> Record:
        begin = at
        length, at = varint(data, at)
        rowid = 0
        if is_table:
            number_, at = varint(data, at)
            rowid = _signed(number_)
        if not 2 <= length <= self.count * self.size:
            raise Unreadable(f"page {number}: a row of {length} bytes")
        payload, pages, cut, local = self._payload(data, at, length, is_table)
        values, whole, garbled = parse_record(payload, cut)
        return Record(values, rowid, not whole, garbled, [number, *pages], at + local - begin)

    def _payload(self, data: bytes, at: int, length: int, is_table: bool) -> tuple[bytes, list[int], bool, int]:
        """Return the bytes of a row, from its page and from the chain that goes on; the chain; whether it breaks off;
        and how many bytes are on the page.
        """
        usable = self.size - self.reserved
        most = usable - 35 if is_table else (usable - 12) * 64 // 255 - 23
        if length <= most:
            if at + length > usable:
                raise Unreadable("a row reaches beyond its page")
            return data[at : at + length], [], False, length
        least = (usable - 12) * 32 // 255 - 23
        local = least + (length - least) % (usable - 4)
        local = local if local <= most else least
        if at + local + 4 > usable:
            raise Unreadable("a row reaches beyond its page")
        parts, left = [data[at : at + local]], length - local
        following = int.from_bytes(data[at + local : at + local + 4], "big")
        pages: list[int] = []
        while left > 0:
            if not 1 < following <= self.count or following in pages:
                return b"".join(parts), pages, True, local + 4
            page = self.page(following)
            pages.append(following)
            parts.append(page[4 : 4 + min(left, usable - 4)])
            left -= usable - 4
            following = int.from_bytes(page[:4], "big")
        return b"".join(parts), pages, following != 0, local + 4


def _begins_like_a_page(head: bytes, size: int) -> bool:
    count, start = struct.unpack_from(">HH", head, 3)
    return head[0] in (TABLE_INTERIOR, TABLE_LEAF) and 0 < count < size // 4 and 8 + 2 * count <= start < size


def varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a number of one to nine bytes. Return it, and where it ends."""
    value = 0
    for offset in range(8):
        byte = data[at + offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + offset + 1
    return value << 8 | data[at + 8], at + 9


def _signed(value: int) -> int:
    return value - ((value >> 63) << 64)


def parse_record(payload: bytes, cut: bool = False) -> tuple[list[Value], bool, bool]:
    """Return the values of a row, whether they are all there, and whether text had to be mended."""
    header, at = varint(payload, 0)
    if not at <= header <= len(payload):
        raise Unreadable("a row's head is too long")
    body, garbled = header, False
    values: list[Value] = []
    while at < header:
        kind, at = varint(payload, at)
        if kind in (10, 11) or at > header:
            raise Unreadable("a row with an unknown type")
        size = _FIXED[kind] if kind < 10 else (kind - 12) // 2
        raw = payload[body : body + size]
        if len(raw) < size:
            if not cut:
                raise Unreadable("a row's head does not fit its length")
            if kind >= 13 and kind % 2 and raw:
                values.append(raw.decode("utf-8", "ignore"))
            return values, False, garbled
        value, mended = _value(kind, raw)
        values.append(value)
        garbled = garbled or mended
        body += size
    if body != len(payload) and not cut:
        raise Unreadable("a row's head does not fit its length")
    return values, True, garbled or cut


def _value(kind: int, raw: bytes) -> tuple[Value, bool]:
    if kind == 0:
        return None, False
    if kind == 7:
        return float(struct.unpack(">d", raw)[0]), False
    if kind < 10:
        return (kind - 8 if kind >= 8 else int.from_bytes(raw, "big", signed=True)), False
    if kind % 2 == 0:
        return raw, False
    try:
        return raw.decode(), False
    except UnicodeDecodeError:
        return raw.decode("utf-8", "replace"), True


def _declared_size(head: bytes) -> int:
    size = int.from_bytes(head[16:18], "big")
    return 65536 if size == 1 else size


def _page_size(head: bytes, log: bytes) -> int:
    """Return the page size of the log, or of the file; 0 if neither names one."""
    size = page_size_of(log)
    if size in _SIZES:
        return size
    size = _declared_size(head)
    return size if size in _SIZES and head[:16] == b"SQLite format 3\0" else 0
