"""`logs/guests.jsonl`: what went wrong with guests, for whoever looks later: the doctor, the dashboard, or a person.

`logs/spending.jsonl` is of the same kind: what background work left undone because the day's cap was reached.

Derived and bounded: it may be deleted at any time, and a home that cannot be written has none.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from herma.safety.scan import scan

LARGEST = 256 * 1024
"""Bytes after which the older half is dropped."""
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Noted:
    """One thing that went wrong."""

    at: float
    guest: str
    what: str
    why: str


class TroubleLog:
    """Appends one line each; several programs may write to it."""

    def __init__(self, home: Path, name: Literal["guests", "spending"] = "guests") -> None:
        self._path = home / "logs" / f"{name}.jsonl"
        self._mutex = threading.Lock()

    def add(self, noted: Noted) -> None:
        """Write it down, without secrets. Where that is not possible, nothing happens: it was shown already."""
        why = "its message holds something that should not be written down" if scan(noted.why) else noted.why
        value = {"at": noted.at, "guest": noted.guest, "what": noted.what, "why": why[:_LONGEST]}
        line = json.dumps(value, ensure_ascii=True) + "\n"
        try:
            with self._mutex:
                self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                opened = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
                try:
                    os.write(opened, line.encode("ascii"))
                    large = os.fstat(opened).st_size > LARGEST
                finally:
                    os.close(opened)
                if large:
                    self._halve()
        except OSError:
            return

    def since(self, at: float) -> Iterator[Noted]:
        """What was noted since then, oldest first. A line that makes no sense is passed over."""
        try:
            lines = self._path.read_bytes()[-2 * LARGEST :].splitlines()
        except OSError:
            return
        for line in lines:
            noted = _read(line)
            if noted is not None and noted.at >= at:
                yield noted

    def _halve(self) -> None:
        kept = self._path.read_bytes()[-LARGEST // 2 :].partition(b"\n")[2]
        temporary = self._path.with_name(f".{self._path.stem}.{os.getpid()}.tmp")
        temporary.write_bytes(kept)
        temporary.chmod(0o600)
        temporary.replace(self._path)


def _read(line: bytes) -> Noted | None:
    try:
        value = json.loads(line)
        return Noted(float(value["at"]), str(value["guest"]), str(value["what"]), str(value["why"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
