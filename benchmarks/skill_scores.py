"""Which success rate makes the score of skills choose well: counted plainly, or from a success that a new one has.

A made-up shelf, because what is compared is arithmetic: tasks come one after the other, the skill with the highest
score is taken, and whether it worked is counted. Each situation says how near its skills are to the task, how often
each works, and how often a result is put down wrongly (a task fails for reasons that are not the skill's). Printed is
the share of tasks done, as JSON and as a table, beside the best skill's own share and what never counting would reach.

    python benchmarks/skill_scores.py [--tasks 40] [--runs 2000]
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass

from herma.skills.find import score
from herma.skills.rows import SkillUsage

PRIORS = (0.0, 1.0, 2.0, 3.0, 5.0, 8.0, 1e9)
"""Successes that a skill is thought to have had before it was ever used; the last never learns."""


@dataclass(frozen=True)
class Situation:
    """Skills as (similarity to the task, share of tasks in which it works)."""

    name: str
    skills: tuple[tuple[float, float], ...]
    misjudged: float


SITUATIONS = tuple(
    Situation(f"{name}, {misjudged:.0%} misjudged", skills, misjudged)
    for misjudged in (0.0, 0.15)
    for name, skills in (
        ("a good one and a wrong one", ((0.6, 0.9), (0.35, 0.3))),
        ("a good one and three wrong ones", ((0.6, 0.85), (0.4, 0.2), (0.35, 0.2), (0.3, 0.2))),
        ("a broken one and a good one", ((0.6, 0.1), (0.5, 0.9))),
        ("a broken one and a good one far off", ((0.6, 0.1), (0.35, 0.9))),
        ("two that are alike", ((0.55, 0.75), (0.5, 0.9))),
        ("three that work at times", ((0.6, 0.6), (0.55, 0.6), (0.5, 0.6))),
    )
)


def done(situation: Situation, prior: float, tasks: int, chance: random.Random) -> float:
    """The share of tasks that were done."""
    usage = [SkillUsage(str(at)) for at in range(len(situation.skills))]
    worked = 0
    for _ in range(tasks):
        scores = [
            score(near, used, virtual_successes=prior) for (near, _), used in zip(situation.skills, usage, strict=True)
        ]
        at = max(range(len(scores)), key=scores.__getitem__)
        success = chance.random() < situation.skills[at][1]
        worked += success
        seen = success if chance.random() >= situation.misjudged else not success
        used = usage[at]
        usage[at] = SkillUsage(
            used.name,
            uses=used.uses + 1,
            successes=used.successes + seen,
            failures=used.failures + (not seen),
        )
    return worked / tasks


def table(tasks: int, runs: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for situation in SITUATIONS:
        row: dict[str, object] = {"situation": situation.name, "best": max(rate for _, rate in situation.skills)}
        for prior in PRIORS:
            chance = random.Random(7)  # the same luck for all
            row[_name(prior)] = round(sum(done(situation, prior, tasks, chance) for _ in range(runs)) / runs, 3)
        rows.append(row)
    return rows


def _name(prior: float) -> str:
    return "never learns" if prior > 1e6 else f"{prior:g} before"


def main(arguments: Sequence[str] | None = None) -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--tasks", type=int, default=40)
    options.add_argument("--runs", type=int, default=2_000)
    given = options.parse_args(arguments)
    rows = table(given.tasks, given.runs)
    names = [_name(prior) for prior in PRIORS]
    mean = {name: round(sum(float(str(row[name])) for row in rows) / len(rows), 3) for name in names}
    print(json.dumps({"tasks": given.tasks, "runs": given.runs, "rows": rows, "mean": mean}))
    print(f"{'':52}{'best':>6}" + "".join(f"{name:>14}" for name in names))
    for row in rows:
        print(f"{row['situation']!s:52}{row['best']!s:>6}" + "".join(f"{row[name]!s:>14}" for name in names))
    print(f"{'mean':58}" + "".join(f"{mean[name]!s:>14}" for name in names))


if __name__ == "__main__":
    main()
