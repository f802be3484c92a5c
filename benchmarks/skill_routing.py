"""Route labelled requests to skills; count how often the right skill is named, and how often none is named.

python benchmarks/skill_routing.py DATA [--skills FOLDER] [--mode words …] [--others FILE] [--json]

DATA has corpus.jsonl (doc_id, name, description) and queries.jsonl (qid, query, gold_doc_ids, also_ok; without gold: no
skill is needed). With --skills the SKILL.md files of FOLDER are used instead of names and descriptions. --others is a
text file of requests that have nothing to do with skills (small_talk.txt). A request that needs a skill and gets none
counts as wrong; ranked@k counts it by the nearest skills.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from herma import Herma
from herma.evals.data import percentile
from herma.skills.document import compose, slug
from herma.skills.rows import Skill

Rows = list[dict[str, object]]
MODES = ("words", "hybrid")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--skills", type=Path)
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--others", type=Path)
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    corpus, requests = rows(given.data / "corpus.jsonl"), rows(given.data / "queries.jsonl")
    others = [line for line in given.others.read_text("utf-8").splitlines() if line.strip()] if given.others else []
    for mode in given.mode or MODES:
        with filled(corpus, given.skills, mode) as h:
            found = measured(h, mode, corpus, requests, others)
        print(json.dumps(found) if given.json else "  ".join(f"{name} {value}" for name, value in found.items()))


def rows(path: Path) -> Rows:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.strip()]


@contextmanager
def filled(corpus: Rows, folder: Path | None, mode: str) -> Iterator[Herma]:
    """Open a temporary home with the skills; in mode words it has no embedder."""
    flags: dict[str, object] = {} if mode != "words" else {"embedding.model": "none"}
    if folder is not None:
        flags["skills.external_dirs"] = str(folder.resolve())
    with tempfile.TemporaryDirectory(prefix="herma-skills-") as home:
        for row in corpus if folder is None else []:
            name = slug(str(row.get("name") or ""))
            place = Path(home) / "skills" / slug(str(row["doc_id"]).replace("/", "--"))
            place.mkdir(parents=True, exist_ok=True)
            about = " ".join(str(row.get("description") or name).split())
            (place / "SKILL.md").write_text(compose(Skill(name, about, "See the description.")), encoding="utf-8")
        with Herma.open(home, flags=flags) as h:
            if not h.skills.list(everything=True):
                raise SystemExit(f"There are no skills in {folder or 'the data'}.")
            if mode != "words" and (h.index.vectors is None or not h.index.vectors.wait()):
                raise SystemExit("There is no embedder: herma models install e5-small, or --mode words.")
            yield h


def measured(h: Herma, mode: str, corpus: Rows, requests: Rows, others: Sequence[str]) -> dict[str, object]:
    names = {str(row["doc_id"]): str(row.get("name") or row["doc_id"]) for row in corpus}
    named, ranked, took = list[int](), list[int](), list[float]()
    none_needed = silent_rightly = silent_wrongly = 0
    for row in requests:
        gold, also = row["gold_doc_ids"], row.get("also_ok") or []
        assert isinstance(gold, list)
        assert isinstance(also, list)
        began = time.perf_counter()
        found = h.skills.find(str(row["query"]))
        took.append((time.perf_counter() - began) * 1000)
        matches = [one.name for one in found.matches]
        if not gold:
            none_needed += 1
            silent_rightly += not matches
            continue
        right = {names[id_] for id_ in (*gold, *also) if id_ in names}
        silent_wrongly += not matches
        named.append(place_of(matches, right))
        ranked.append(place_of(matches or [one.name for one in found.nearest], right))
    result: dict[str, object] = {"mode": mode, "requests": len(named)}
    for name, places in (("hit", named), ("ranked", ranked)):
        for k in (1, 5):
            result[f"{name}@{k}"] = round(sum(place <= k for place in places) / max(1, len(places)), 4)
    result |= {"silent_wrongly": silent_wrongly, "none_needed": none_needed, "silent_rightly": silent_rightly}
    if others:
        silent = sum(not h.skills.find(text).matches for text in others)
        result |= {"others": len(others), "others_silent": silent}
    return {**result, "p95_ms": round(percentile(sorted(took), 0.95), 2)}


def place_of(found: Sequence[str], right: set[str]) -> int:
    """The rank of the first right name, from 1; a large number if there is none."""
    return next((place for place, name in enumerate(found, 1) if name in right), 1_000_000)


if __name__ == "__main__":
    main()
