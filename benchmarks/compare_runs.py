"""Show what changed between two saved runs of `herma eval … --save FILE`, and whether chance could have done it.

python benchmarks/compare_runs.py before.json after.json [--measure hit@5 …]

The interval holds 95 of 100 resamples of whole groups (conversations), or of single questions if there are fewer than
five groups: the questions of one conversation are not independent. A change is marked if its interval excludes 0.
"""

from __future__ import annotations

import argparse
import json
import random
from collections import defaultdict
from pathlib import Path
from statistics import fmean

from herma.evals.data import MEASURES, Answered, percentile

RESAMPLES = 2_000
FEW_GROUPS = 5
Answers = dict[tuple[str, str], Answered]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=Path)
    parser.add_argument("second", type=Path)
    parser.add_argument("--measure", action="append", choices=MEASURES)
    given = parser.parse_args()
    first, second = read(given.first), read(given.second)
    common = [name for name in first if name in second]
    if not common:
        raise SystemExit("The two runs have no set in the same mode in common.")
    for name in common:
        for measure in given.measure or ("hit@1", "hit@5", "hit@10", "mrr"):
            print(f"{name:32} {measure:8} {difference(first[name], second[name], measure)}")


def read(path: Path) -> dict[str, Answers]:
    """Return the answers of each set and mode, by group and question."""
    try:
        results = json.loads(path.read_text("utf-8"))["results"]
        return {
            f"{one['set']}, {one['mode']}": {
                (group, id_): Answered(id_, group, type_, tuple(places), gold, took)
                for id_, group, type_, places, gold, took in one["answers"]
            }
            for one in results
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"{path} is not a run saved with `herma eval … --save FILE`: {error!r}") from error


def difference(first: Answers, second: Answers, measure: str) -> str:
    pairs = {key: (first[key].measure(measure), second[key].measure(measure)) for key in first if key in second}
    if not pairs:
        return "no question in common"
    grouped = len({group for group, _ in pairs}) >= FEW_GROUPS
    changes: dict[object, list[float]] = defaultdict(list)
    for key, (before, after) in pairs.items():
        changes[key[0] if grouped else key].append(after - before)
    low, high = interval(list(changes.values()))
    before, after = fmean(one for one, _ in pairs.values()), fmean(one for _, one in pairs.values())
    mark = ("better" if after > before else "worse") if low > 0 or high < 0 else ""
    interval_text = f"95 % {low:+.3f} to {high:+.3f}"
    return f"{before:.3f} → {after:.3f}  {after - before:+.3f}  {interval_text}  {len(pairs)} questions {mark}"


def interval(groups: list[list[float]]) -> tuple[float, float]:
    draw = random.Random(0)
    sums = [(sum(one), len(one)) for one in groups]
    means = []
    for _ in range(RESAMPLES):
        picked = draw.choices(sums, k=len(sums))
        means.append(sum(total for total, _ in picked) / sum(count for _, count in picked))
    means.sort()
    return percentile(means, 0.025), percentile(means, 0.975)


if __name__ == "__main__":
    main()
