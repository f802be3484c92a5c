"""Count the gold facts in search results, raw and summarised by the auxiliary model, with length and time.

python benchmarks/summaries.py CASES.jsonl [--home HOME] [--raw] [--deadline 90]

Each line is one case: question, facts (texts, or lists of texts of which one is enough), messages (role, content) of
the conversation that answers it; optionally id and title. A fact counts if its words stand side by side in the answer,
in any form; numbers and identifiers must be exact. All conversations go into one temporary home. The model is the one
configured in HOME (default: the usual home), and its calls are metered there.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
import time
import unicodedata
from pathlib import Path
from typing import Any

from herma import Herma
from herma.evals.data import percentile
from herma.models.client import ChatModel
from herma.search.expand import USUAL, summarize
from herma.text import stem

_TOKEN = re.compile(r"\w+(?:[./:_@#+\\-]+\w+)*")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_EXACT = re.compile(r"[\d_./:@#+\\]")
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", type=Path)
    parser.add_argument("--home", type=Path)
    parser.add_argument("--raw", action="store_true")
    parser.add_argument("--deadline", type=float, default=90.0)
    given = parser.parse_args()
    cases = [json.loads(line) for line in given.cases.read_text("utf-8").splitlines() if line.strip()]
    with Herma.open(given.home) as owner:
        model = None if given.raw else owner.model("auxiliary", purpose="eval")
        if model is None and not given.raw:
            print(f"Only raw results: {owner.models.why_not('auxiliary')}")
        for way in ("raw", "summaries") if model is not None else ("raw",):
            print(way, measured(cases, model if way == "summaries" else None, given.deadline))


def measured(cases: list[dict[str, Any]], model: ChatModel | None, deadline: float) -> dict[str, object]:
    found, present, facts, lengths, took = 0, 0, 0, list[int](), list[float]()
    with tempfile.TemporaryDirectory(prefix="herma-summaries-") as folder, Herma.open(folder) as h:
        sessions = [h.transcripts.start("import", title=case.get("title")) for case in cases]
        for case, session in zip(cases, sessions, strict=True):
            h.transcripts.append(session, case["messages"])
        for case, session in zip(cases, sessions, strict=True):
            began = time.perf_counter()
            asked = {"query": case["question"], "limit": USUAL}
            results = json.loads(h.tools.call("session_search", asked)).get("results", [])
            text = "\n".join(map(shown, results))
            if model is not None:
                hits, units = h.search(case["question"], limit=USUAL).hits, h.searcher.looked_for(case["question"])
                made, _ = summarize(model, h.transcripts, case["question"], hits, units, deadline=deadline)
                text = "\n".join(one.text for one in made)
            took.append((time.perf_counter() - began) * 1000)
            wordings = [[fact] if isinstance(fact, str) else fact for fact in case["facts"]]
            present += sum(any(says(text, one) for one in these) for these in wordings)
            facts += len(wordings)
            lengths.append(len(text))
            found += any(result["session_id"] == session for result in results)
    return {
        "questions": len(cases),
        "found": round(found / len(cases), 3),
        "facts": round(present / max(1, facts), 3),
        "characters": round(sum(lengths) / len(lengths)),
        "p50 ms": round(percentile(sorted(took), 0.5), 1),
        "p95 ms": round(percentile(sorted(took), 0.95), 1),
    }


def shown(result: dict[str, Any]) -> str:
    """What a model reads of a result: the quoted messages."""
    quoted = [*result.get("bookend_start", ()), *result.get("messages", ()), *result.get("bookend_end", ())]
    return "\n".join(str(line.get("content") or "") for line in quoted)


def says(text: str, wording: str) -> bool:
    if _UNSPACED.search(wording):
        return squeezed(wording) in squeezed(text)
    wanted, words = tokens(wording), tokens(text)
    size = len(wanted)
    return bool(wanted) and any(words[at : at + size] == wanted for at in range(len(words) - size + 1))


def tokens(text: str) -> list[str]:
    plain = _THOUSANDS.sub("", unicodedata.normalize("NFKC", text).casefold())
    return [token if _EXACT.search(token) else stem(token) for token in _TOKEN.findall(plain)]


def squeezed(text: str) -> str:
    return "".join(_TOKEN.findall(unicodedata.normalize("NFKC", text).casefold()))


if __name__ == "__main__":
    main()
