"""What the curator writes down: `skills/.curator.json` (what it knows), `logs/curator/<run>/` (its reports)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

from herma.errors import StoreError
from herma.store.atomic import make_folder, replace_file
from herma.store.skill_snapshots import ID
from herma.store.sqlite.database import Database
from herma.store.sqlite.queries import queries
from herma.store.turns import alone
from herma.types.curator import CuratorMemory, CuratorMove, CuratorReport, Flag, MergeCandidate

MEMORY = ".curator.json"
_KEPT_REPORTS = 100
_BROKEN = (ValueError, TypeError, KeyError, AttributeError, RecursionError)


class CuratorFiles:
    """Implements `CuratorBook`."""

    def __init__(self, home: Path, database: Database | None = None, profile: str = "") -> None:
        self._home = home
        self._db = database
        self._profile = {"profile": profile}
        self._memory = home / "skills" / MEMORY
        self._logs = home / "logs" / "curator"

    def alone(self) -> AbstractContextManager[bool]:
        return alone(self._home, "curator")

    def memory(self) -> CuratorMemory:
        """What is known; nothing, where the file is missing or makes no sense: then everything begins anew."""
        try:
            value = json.loads(self._memory.read_bytes())
            noticed = {str(name): float(at) for name, at in value["noticed"].items()}
            flagged = {str(name): Flag(**flag) for name, flag in value["flagged"].items()}
            times = [None if value[name] is None else float(value[name]) for name in ("seen", "last_run")]
            asked = {str(pair): str(texts) for pair, texts in value.get("asked", {}).items()}
            clean = tuple(map(str, value.get("clean", ())))
            scanner = str(value.get("scanner", ""))
            return CuratorMemory(times[0], times[1], int(value["runs"]), noticed, flagged, asked, clean, scanner)
        except (OSError, *_BROKEN):
            return CuratorMemory()

    def remember(self, memory: CuratorMemory) -> None:
        _make(self._memory.parent)
        replace_file(self._memory, json.dumps(asdict(memory), ensure_ascii=False, indent=1).encode())

    def write(self, report: CuratorReport, text: str) -> str:
        folder = self._logs / report.id
        _make(folder)
        replace_file(folder / "report.json", json.dumps(asdict(report), ensure_ascii=False, indent=1).encode())
        replace_file(folder / "REPORT.md", text.encode("utf-8", "backslashreplace"))
        for old in self._ids()[_KEPT_REPORTS:]:
            shutil.rmtree(self._logs / old, ignore_errors=True)
        return str(folder / "REPORT.md")

    def reports(self, limit: int | None = None) -> Sequence[CuratorReport]:
        found: list[CuratorReport] = []
        for each in self._ids():
            if limit is not None and len(found) >= limit:
                break
            report = _report(self._logs / each / "report.json")
            if report is not None:
                found.append(replace(report, id=each))
        return found

    def changed(self) -> Mapping[str, float]:
        if self._db is None:
            return {}
        return dict(self._db.rows(queries("curator")["last_changes"], self._profile))

    def last_said(self, besides: str = "") -> float | None:
        rows = self._db.rows(queries("curator")["last_message"], {"session": besides}) if self._db else []
        return float(rows[0][0]) if rows else None

    def _ids(self) -> list[str]:
        """Newest first."""
        try:
            names = [path.name for path in self._logs.iterdir() if ID.fullmatch(path.name)]
        except OSError:
            return []
        return sorted(names, key=lambda name: (name[:15], len(name), name), reverse=True)


def _make(folder: Path) -> None:
    try:
        make_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be made: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc


def _report(path: Path) -> CuratorReport | None:
    """A report as it was written; None where the file is missing or makes no sense."""
    try:
        value = json.loads(path.read_bytes())
        known: dict[str, Any] = {each.name: value[each.name] for each in fields(CuratorReport)}
        known["moves"] = tuple(CuratorMove(**move) for move in value["moves"])
        merges = [{**one, "skills": tuple(one["skills"]), "pending": tuple(one["pending"])} for one in value["merges"]]
        known["merges"] = tuple(MergeCandidate(**one) for one in merges)
        return CuratorReport(**{**known, "notes": tuple(value["notes"]), "kept": dict(value["kept"])})
    except (OSError, *_BROKEN):
        return None
