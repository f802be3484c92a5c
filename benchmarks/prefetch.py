"""Learn from which evidence on a past message is told unasked, and see how well that does on conversations not seen.

python benchmarks/prefetch.py DATA_DIR --homes DIR [--only NAME]... [--json] [--fit]

DATA_DIR holds labelled sets (corpus.jsonl, queries.jsonl). Of each set, every second group is learnt from and the
others are asked. What should recall something: questions that a message of their history answers. What should not:
small talk, thanks, commands and general requests (small_talk.txt), and questions of other groups, put to a
history that does not know them. `helps`: one of the lines told is a right message, or stands next to one.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
from collections import defaultdict
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from herma import Herma
from herma.evals import retrieval
from herma.evals.data import DataSet, EvalQuestion, read_set
from herma.search import prefetch as worth
from herma.search.prefetch import Model, Prefetched, RecallEvidence, features

SETS = ("locomo_turn", "lme_pooled", "beam", "zh_tw_event_memory", "memorybank_cn")
ASKED_WRONGLY, SMALL_TALK = 40, 120
"""Questions of others, and pieces of small talk, that each history is asked."""
SMALL_TALK_RATE = 0.0075
"""Of small talk, so much may recall something, on the groups that are learnt from."""
WRONG_RATE = 0.10
"""The same of questions to the wrong history: they are often about the like."""


@dataclass(frozen=True)
class Row:
    """One text put to one history, what speaks for the hits, and which of these are right."""

    set: str
    group: str
    kind: str
    text: str
    found: Prefetched
    right: tuple[bool, ...]
    learnt: bool


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--homes", type=Path, required=True)
    parser.add_argument("--only", action="append")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--fit", action="store_true", help="Learn the weights anew instead of using those in the code.")
    given = parser.parse_args()
    talk = [line for line in (Path(__file__).parent / "small_talk.txt").read_text("utf-8").splitlines() if line]
    sets = [read_set(given.data / name) for name in given.only or SETS]
    result: dict[str, Any] = {}
    for mode in ("words", "hybrid"):
        rows = [row for one in sets for row in gathered(one, sets, talk, given.homes, mode)]
        model = learnt([row for row in rows if row.learnt]) if given.fit else None
        used = model or (worth.BY_WORDS if mode == "words" else worth.BY_BOTH)
        result[mode] = {"model": asdict(used), **table([row for row in rows if not row.learnt], used)}
        if given.fit:
            result[mode]["learnt from"] = table([row for row in rows if row.learnt], used)
    print(json.dumps(result, indent=2) if given.json else shown(result))


# ── asking ──


def gathered(one: DataSet, sets: list[DataSet], talk: list[str], homes: Path, mode: str) -> list[Row]:
    rows: list[Row] = []
    chance = random.Random(7)
    flags = {"search.prefetch_ms": 10_000, "search.mode": mode}
    for number, (group, questions) in enumerate(sorted(one.questions.items())):
        with retrieval.home_for(homes, one.name, group) as home, Herma.open(home=home, flags=flags) as h:
            names = retrieval.fill(h, one.documents[group], "message")
            h.index.wait()
            h.prefetch.warm()
            look = h.prefetch.look
            learn = len(one.questions) > 1 and number % 2 == 0
            others = [
                question
                for other in sets
                for name, these in other.questions.items()
                for question in these
                if (other.name, name) != (one.name, group)
            ]
            asked: list[tuple[str, str, EvalQuestion | None]] = [("answerable", q.text, q) for q in questions]
            asked += [("small talk", text, None) for text in chance.sample(talk, SMALL_TALK)]
            asked += [("other history", q.text, None) for q in chance.sample(others, min(ASKED_WRONGLY, len(others)))]
            for kind, text, question in asked:
                found = look(text)
                right = tuple(_is_right(weighed.hit.message_id, names, question) for weighed in found.weighed)
                rows.append(Row(one.name, group, kind, text, found, right, learn))
    return rows


def _is_right(message: int, names: dict[object, str], question: EvalQuestion | None) -> bool:
    if question is None:
        return False
    return any(names.get(near) in question.gold for near in (message - 1, message, message + 1))


# ── learning ──


def learnt(rows: list[Row]) -> Model:
    """Weights by logistic regression over the best hits of each text; the threshold by the rates above."""
    values, labels, weights = [], [], []
    counts: dict[str, int] = defaultdict(int)
    for row in rows:
        counts[row.kind] += 1
    for row in rows:
        for weighed, right in list(zip(row.found.weighed, row.right, strict=True))[:3]:
            if row.kind == "answerable" and not right:
                continue  # it may be right all the same: only some of what answers is labelled
            values.append([1.0, *features(weighed.evidence)])
            labels.append(float(right))
            weights.append(1.0 / counts[row.kind])
    x, y, w = np.array(values), np.array(labels), np.array(weights)
    w /= w.mean()
    beta = np.zeros(x.shape[1])
    ridge = np.diag([0.0, *([1.0] * (x.shape[1] - 1))])
    for _ in range(50):
        p = 1 / (1 + np.exp(-np.clip(x @ beta, -30, 30)))
        hessian = (x * (w * p * (1 - p))[:, None]).T @ x + ridge + 1e-6 * np.eye(x.shape[1])
        beta += np.linalg.solve(hessian, x.T @ (w * (y - p)) - ridge @ beta)
    constant, beside, rare, unknown, words, near = (round(float(value), 2) for value in beta)
    model = Model(constant, beside, rare, unknown, words, near, least=1.0)
    best = {
        kind: sorted((_best(row, model) for row in rows if row.kind == kind), reverse=True)
        for kind in ("small talk", "other history")
    }
    least = max(
        best["small talk"][int(SMALL_TALK_RATE * len(best["small talk"]))],
        best["other history"][int(WRONG_RATE * len(best["other history"]))],
    )
    return Model(**{**asdict(model), "least": round(least + 0.005, 2)})


def _chance(evidence: RecallEvidence, model: Model) -> float:
    if not evidence.words or (not evidence.rare and evidence.near is None):
        return 0.0
    model = worth.eased(model, evidence)
    beta = (model.beside, model.rare, model.unknown, model.words, model.near)
    total = model.constant + sum(b * v for b, v in zip(beta, features(evidence), strict=True))
    return float(1 / (1 + np.exp(-np.clip(total, -30, 30))))


def _best(row: Row, model: Model) -> float:
    return max((_chance(one.evidence, model) for one in row.found.weighed), default=0.0)


# ── telling ──


def table(rows: list[Row], model: Model) -> dict[str, Any]:
    told_rows = [(row, _told(row, model)) for row in rows]
    kinds: dict[str, Any] = {}
    for kind in ("answerable", "small talk", "other history"):
        these = [(row, shown_) for row, shown_ in told_rows if row.kind == kind]
        kinds[kind] = _figures(these)
    sets = {
        name: {
            kind: _figures([(row, got) for row, got in told_rows if row.set == name and row.kind == kind])
            for kind in ("answerable", "small talk", "other history")
        }
        for name in dict.fromkeys(row.set for row in rows)
    }
    spoke = [(row, got) for row, got in told_rows if any(got)]
    helped = sum(any(r for r, g in zip(row.right, got, strict=True) if g) for row, got in spoke)
    return {
        "all": kinds,
        "sets": sets,
        "precision": round(helped / max(1, len(spoke)), 3),
        "took p50 ms": round(statistics.median(row.found.took_ms for row in rows), 1),
        "took p95 ms": round(float(np.percentile([row.found.took_ms for row in rows], 95)), 1),
    }


def _told(row: Row, model: Model) -> tuple[bool, ...]:
    """Which of the hits would be told with this model: the best three."""
    chances = [_chance(one.evidence, model) for one in row.found.weighed]
    least = [worth.eased(model, one.evidence).least for one in row.found.weighed]
    order = sorted(range(len(chances)), key=lambda at: -chances[at])[:3]
    return tuple(at in order and chances[at] >= least[at] for at in range(len(chances)))


def _figures(these: list[tuple[Row, tuple[bool, ...]]]) -> dict[str, Any]:
    spoke = [one for one in these if any(one[1])]
    helps = sum(any(r for r, g in zip(row.right, got, strict=True) if g) for row, got in spoke)
    found = sum(any(row.right[:3]) for row, _ in these)
    size = max(1, len(these))
    return {
        "texts": len(these),
        "recalls": round(len(spoke) / size, 3),
        "helps": round(helps / size, 3),
        "could help": round(found / size, 3),
    }


def shown(result: dict[str, Any]) -> str:
    lines = []
    for mode, found in result.items():
        lines += [f"== {mode}: {found['model']}", f"{'':24}{'texts':>7}{'recalls':>9}{'helps':>8}{'could':>8}"]
        for name, kinds in {"all": found["all"], **found["sets"]}.items():
            for kind, figures in kinds.items():
                cells = f"{figures['texts']:>7}{figures['recalls']:>9.3f}{figures['helps']:>8.3f}"
                lines.append(f"{name[:10] + ' ' + kind:24}{cells}{figures['could help']:>8.3f}")
        lines.append(f"precision {found['precision']}, ms {found['took p50 ms']} / {found['took p95 ms']}")
        if "learnt from" in found:
            lines += [f"learnt from: {found['learnt from']['all']}"]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
