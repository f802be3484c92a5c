"""The token estimate next to exact counts: how far off, how often too low, how fast.

python benchmarks/tokens.py                  → JSON, over Python's own source code
python benchmarks/tokens.py FOLDER [MODEL]   → also over every text in FOLDER (*.jsonl with a "text", *.md, *.json)
"""

from __future__ import annotations

import json
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from herma.prompt.tokens import counter_for, estimate, family_of

SHORTEST, LONGEST = 200, 4_000
LOW = 0.97


def texts_in(folder: Path, pattern: str) -> Iterator[str]:
    for path in sorted(folder.rglob(pattern))[:300]:
        text = path.read_text("utf-8", "replace")
        if path.suffix == ".jsonl":
            for line in text.splitlines()[:2_000]:
                row = json.loads(line)
                yield str(row.get("text") or line) if isinstance(row, dict) else line
        else:
            yield from (text[at : at + LONGEST] for at in range(0, min(len(text), 40_000), LONGEST))


def seconds(run: Callable[[str], object], texts: list[str]) -> float:
    start = time.perf_counter()
    for text in texts:
        run(text)
    return time.perf_counter() - start


def measure(texts: list[str], model: str) -> dict[str, object]:
    texts = [text[:LONGEST] for text in texts if len(text) >= SHORTEST]
    if not texts:
        return {"texts": 0}
    counter, family = counter_for(model), family_of(model)
    ratios = sorted(estimate(text, family) / max(1, counter.count(text)) for text in texts)
    megabytes = sum(len(text.encode("utf-8", "replace")) for text in texts) / 1e6
    return {
        "texts": len(texts),
        "exact": counter.exact,
        "mean_ratio": round(sum(ratios) / len(ratios), 3),
        "lowest": round(ratios[0], 3),
        "highest": round(ratios[-1], 3),
        "too_low_percent": round(100 * sum(ratio < LOW for ratio in ratios) / len(ratios), 2),
        "estimate_mb_s": round(megabytes / seconds(lambda text: estimate(text, family), texts), 1),
        "exact_mb_s": round(megabytes / seconds(counter.count, texts), 1),
    }


def main(arguments: list[str]) -> None:
    model = arguments[1] if len(arguments) > 1 else "gpt-4o"
    report = {"python": measure(list(texts_in(Path(sysconfig.get_path("stdlib")), "[a-m]*.py")), model)}
    if arguments:
        root = Path(arguments[0])
        for folder in sorted({path.parent for path in root.rglob("corpus.jsonl")}):
            report[folder.name] = measure(list(texts_in(folder, "corpus.jsonl")), model)
        report["markdown"] = measure(list(texts_in(root, "*.md")), model)
        report["json"] = measure(list(texts_in(root, "*.json")), model)
    print(json.dumps({"model": model, "counter": counter_for(model).name, "sets": report}, indent=2))


if __name__ == "__main__":
    main(sys.argv[1:])
