"""How much the scanner catches, what it wrongly refuses, and how fast it is.

    python benchmarks/scan.py DATA.jsonl [--benign FILE ...] [--json]

A row of DATA has `text`, `label` (1 attack, 0 benign) and `source`. A benign file is JSON lines with `text`, or any
text file, of which each paragraph counts as one row. Rows are also split in two halves by a hash of their text, so that
rules can be written on one half and measured on the other.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from herma.safety.scan import scan


@dataclass(frozen=True, slots=True)
class Row:
    """One text and what it is."""

    text: str
    attack: bool
    source: str

    @property
    def half(self) -> int:
        return hashlib.sha256(self.text.encode()).digest()[-1] % 2


@dataclass(frozen=True, slots=True)
class Score:
    """What became of the rows of one source: flagged is recall for attacks, and a mistake for the rest."""

    source: str
    attack: bool
    rows: int
    flagged: int
    rate: float
    rate_by_half: tuple[float, float]
    megabytes_per_second: float


def read_rows(data: Path) -> Iterator[Row]:
    """Labelled rows."""
    for line in data.read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield Row(row["text"], bool(row["label"]), row["source"])


def read_benign(path: Path) -> Iterator[Row]:
    """Rows that are benign by nature. The folder names the source, because most files are called the same."""
    text = path.read_text(encoding="utf-8", errors="replace")
    if path.suffix == ".jsonl":
        texts: Iterable[str] = (json.loads(line)["text"] for line in text.splitlines())
    else:
        texts = (paragraph for paragraph in text.split("\n\n") if paragraph.strip())
    source = path.parent.name if path.suffix == ".jsonl" else f"{path.suffix.lstrip('.')} paragraphs"
    return (Row(each, attack=False, source=source) for each in texts)


def measure(rows: Iterable[Row]) -> list[Score]:
    """Scan every row; one score for the attacks and one for the benign rows of each source."""
    groups: dict[tuple[str, bool], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.source, row.attack), []).append(row)
    return [_score(source, attack, group) for (source, attack), group in sorted(groups.items())]


def _score(source: str, attack: bool, rows: list[Row]) -> Score:
    size = sum(len(row.text.encode()) for row in rows)
    begin = time.perf_counter()
    flagged = [bool(scan(row.text)) for row in rows]
    spent = time.perf_counter() - begin
    halves = [[hit for hit, row in zip(flagged, rows, strict=True) if row.half == half] for half in (0, 1)]
    rates = tuple(sum(half) / len(half) if half else 0.0 for half in halves)
    return Score(
        source=source,
        attack=attack,
        rows=len(rows),
        flagged=sum(flagged),
        rate=sum(flagged) / len(rows),
        rate_by_half=(rates[0], rates[1]),
        megabytes_per_second=size / spent / 1e6,
    )


def table(scores: list[Score]) -> str:
    """A Markdown table, attacks first."""
    lines = [
        "| source | rows | flagged | rate | half A | half B | MB/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for score in sorted(scores, key=lambda each: (not each.attack, each.source)):
        kind = "attacks" if score.attack else "benign"
        half_a, half_b = (f"{rate:.1%}" for rate in score.rate_by_half)
        lines.append(
            f"| {score.source}, {kind} | {score.rows} | {score.flagged} | {score.rate:.2%} | {half_a} | {half_b} "
            f"| {score.megabytes_per_second:.1f} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--benign", type=Path, nargs="*", default=[])
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    options = parser.parse_args()
    rows = list(read_rows(options.data))
    for path in options.benign:
        rows.extend(read_benign(path))
    scores = measure(rows)
    text = json.dumps([asdict(score) for score in scores], indent=2) if options.json else table(scores)
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    main()
