"""`logs/pauses.json`: which background work rests because of which model. Derived: it may be deleted at any time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

from herma.errors import StoreError
from herma.ports.pauses import Missed, PauseKey
from herma.store.atomic import make_folder, replace_file

_MOST = 100
_LARGEST = 256 * 1024
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class PauseFile:
    """Implements `PauseRows`."""

    def __init__(self, home: Path) -> None:
        self._path = home / "logs" / "pauses.json"

    def read(self) -> dict[PauseKey, Missed]:
        try:
            with self._path.open("rb") as file:
                rows = json.loads(file.read(_LARGEST))
            return {(str(row["purpose"]), str(row["model"])): _missed(row) for row in rows}
        except (OSError, *_BROKEN):
            return {}

    def write(self, known: Mapping[PauseKey, Missed]) -> None:
        newest = sorted(known.items(), key=lambda row: row[1].at)[-_MOST:]
        rows = [{"purpose": purpose, "model": model, **asdict(each)} for (purpose, model), each in newest]
        try:
            make_folder(self._path.parent)
            replace_file(self._path, json.dumps(rows, ensure_ascii=True, indent=1).encode("ascii"))
        except (OSError, StoreError):  # a home that cannot be written: it is asked once more, that is all
            return


def _missed(row: Mapping[str, object]) -> Missed:
    passes, at, until = (float(str(row[name])) for name in ("passes", "at", "until"))
    return Missed(int(passes), at, str(row["why"]), until)
