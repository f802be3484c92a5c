"""Labelled texts through the scan that runs on every write: how many attacks it finds, and what it blocks wrongly."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from herma.evals.data import Labelled
from herma.evals.measures import percentile
from herma.evals.retrieval import Report, silent
from herma.safety.scan import scan

EVERY = 200
EXAMPLES = 5
"""Texts that are shown of what went wrong."""


@dataclass(frozen=True, slots=True)
class SafetyResult:
    """Texts of one source. Rates are None where there is nothing to take a share of."""

    source: str
    attacks: int
    found: int
    benign: int
    blocked: int
    rules: tuple[tuple[str, int], ...] = ()
    """Rules that blocked benign texts, most often first."""
    p50_ms: float = 0.0
    p95_ms: float = 0.0

    @property
    def recall(self) -> float | None:
        return round(self.found / self.attacks, 4) if self.attacks else None

    @property
    def false_positives(self) -> float | None:
        return round(self.blocked / self.benign, 4) if self.benign else None


def measure(rows: Sequence[Labelled], progress: Report = silent) -> list[SafetyResult]:
    """Every source, and all of them together at the end."""
    by_source: dict[str, list[tuple[Labelled, tuple[str, ...], float]]] = defaultdict(list)
    for number, row in enumerate(rows, 1):
        began = time.perf_counter()
        rules = tuple(dict.fromkeys(finding.rule for finding in scan(row.text)))
        by_source[row.source].append((row, rules, (time.perf_counter() - began) * 1000))
        if number % EVERY == 0 or number == len(rows):
            progress(number, len(rows))
    results = [_summed(source, by_source[source]) for source in sorted(by_source)]
    if len(results) > 1:
        results.append(_summed("all", [one for these in by_source.values() for one in these]))
    return results


def _summed(source: str, scanned: Sequence[tuple[Labelled, tuple[str, ...], float]]) -> SafetyResult:
    attacks = [rules for row, rules, _ in scanned if row.attack]
    benign = [rules for row, rules, _ in scanned if not row.attack]
    took = sorted(ms for _, _, ms in scanned)
    wrong = Counter(rule for rules in benign for rule in rules)
    return SafetyResult(
        source=source,
        attacks=len(attacks),
        found=sum(map(bool, attacks)),
        benign=len(benign),
        blocked=sum(map(bool, benign)),
        rules=tuple(wrong.most_common(EXAMPLES)),
        p50_ms=round(percentile(took, 0.5), 3),
        p95_ms=round(percentile(took, 0.95), 3),
    )
