"""How well search finds again what was said: python benchmarks/recall.py DATA_DIR [--json] [--only NAME].

DATA_DIR holds folders with corpus.jsonl (doc_id, group, text; perhaps session, role, date) and queries.jsonl (qid,
group, type, query, gold_doc_ids). Each group becomes a home of its own with its sessions in order; every question is
searched at the level of messages, words only. A hit: one of the right messages is among the first k.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from herma import Herma

SETS = {
    "locomo_turn": 10,
    "lme_pooled": 5,
    "beam": 10,
    "zh_tw_event_memory": 5,
    "cjk_zh": 1,
    "cjk_ja": 1,
}
"""Data set → the k of its headline figure."""
LEFT_OUT = {"locomo_turn": {5}}
"""Types of questions that no message answers."""
DEPTH = 10


@dataclass(slots=True)
class Score:
    """Ranks of the first right message (0: not among the first ten), and times."""

    k: int
    ranks: list[int] = field(default_factory=list)
    recalls: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)

    def hit(self, k: int) -> float:
        return sum(0 < rank <= k for rank in self.ranks) / max(1, len(self.ranks))

    def figures(self) -> dict[str, float]:
        return {
            "questions": len(self.ranks),
            "k": self.k,
            "hit@k": round(self.hit(self.k), 4),
            "hit@1": round(self.hit(1), 4),
            "hit@5": round(self.hit(5), 4),
            "hit@10": round(self.hit(10), 4),
            "recall@10": round(statistics.fmean(self.recalls), 4) if self.recalls else 0.0,
            "mrr": round(sum(1 / rank for rank in self.ranks if rank) / max(1, len(self.ranks)), 4),
            "p50_ms": round(statistics.median(self.took), 2) if self.took else 0.0,
        }


def measure(folder: Path, k: int, left_out: set[Any]) -> Score:
    score = Score(k)
    questions = defaultdict(list)
    for row in _rows(folder / "queries.jsonl"):
        if row["gold_doc_ids"] and row.get("type") not in left_out:
            questions[row["group"]].append(row)
    documents = defaultdict(list)
    for row in _rows(folder / "corpus.jsonl"):
        documents[row["group"]].append(row)
    for group, asked in questions.items():
        with tempfile.TemporaryDirectory() as home, Herma.open(home=home) as h:
            names = _fill(h, documents[group])
            h.index.wait(embedding=False)  # words alone
            for question in asked:
                report = h.search(question["query"], limit=DEPTH, level="message")
                found = [names[hit.message_id] for hit in report.hits]
                right = set(question["gold_doc_ids"])
                score.ranks.append(next((at for at, name in enumerate(found, 1) if name in right), 0))
                score.recalls.append(len(right.intersection(found)) / len(right))
                score.took.append(report.took_ms)
    return score


def _fill(h: Herma, documents: list[dict[str, Any]]) -> dict[int, str]:
    """One session for each session of the data, one for each document that names none. → message id to document."""
    sessions: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for number, document in enumerate(documents):
        sessions[document.get("session") or f"#{number}"].append(document)
    names = {}
    for turns in sessions.values():
        session = h.transcripts.start("import")
        messages = [{"role": turn.get("role") or "user", "content": turn["text"]} for turn in turns]
        for message_id, turn in zip(h.transcripts.append(session, messages), turns, strict=True):
            names[message_id] = turn["doc_id"]
    return names


def _rows(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("data", type=Path)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", choices=list(SETS), action="append")
    options = parser.parse_args()
    results = {}
    if not options.json:
        print(f"{'set':22}{'questions':>10}{'k':>4}{'hit@k':>8}{'hit@1':>8}{'recall@10':>11}{'mrr':>8}{'p50 ms':>8}")
    for name, k in SETS.items():
        if options.only and name not in options.only:
            continue
        figures = measure(options.data / name, k, LEFT_OUT.get(name, set())).figures()
        results[name] = figures
        if not options.json:
            line = f"{name:22}{figures['questions']:>10}{k:>4}{figures['hit@k']:>8.3f}{figures['hit@1']:>8.3f}"
            print(f"{line}{figures['recall@10']:>11.3f}{figures['mrr']:>8.3f}{figures['p50_ms']:>8.1f}", flush=True)
    if options.json:
        print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
