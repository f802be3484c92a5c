"""Take each rule of the ranking away and measure search without it, on the two halves of every set.

python benchmarks/search_ablation.py DATA --homes FOLDER [--set lme_pooled --set beam …] [--half A]

DATA has one folder for each set, as `herma eval retrieval` takes them. Half A are the questions whose id has an even
first byte of its MD5, half B the others: read A while something is made, ask B once when it is done (`--half A` shows
no figure of B). FOLDER keeps the filled homes, so that vectors are made once. The embedder is the one that is set up.
"""

from __future__ import annotations

import argparse
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from herma.evals.data import Answered, figures, read_set
from herma.evals.retrieval import run
from herma.search import candidates, query, rank, search

SETS = (
    *("lme_pooled", "beam", "locomo_turn", "locomo_session"),
    *("zh_tw_event_memory", "memorybank_cn", "cjk_zh", "cjk_ja"),
)
WITHOUT: Mapping[str, Mapping[str, object]] = {
    "(all rules)": {},
    "who is named": {"BY_THEMSELVES": 0.0},
    "speaking of oneself": {"OF_ONESELF": 0.0},
    "standing instructions": {"STANDING": 0.0},
    "a named day or period": {"NAMED_DATE": 0.0, "NAMED_PERIOD": 0.0},
    "the later of two claims": {"outdated": lambda _spoken: {}},
    "words that are alike": {"SIMILAR": 0.0},
    "nearness of an assistant": {"ROLE_WEIGHTS": {}},
    "what is usual": {"APART": 0.0},
    "words of the user": {"SPEAKER": {}},
    "single characters": {"ALONE": 0.0},
    "words beside": {"BESIDE": 0.0, "NEAR": 0.0},
    "words of the conversation": {"CONVERSATION": 0.0},
    "frames": {"framing": lambda _plain: set()},
}
MODULES: tuple[ModuleType, ...] = (rank, candidates, query, search)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--homes", type=Path, required=True)
    parser.add_argument("--set", action="append", choices=SETS, dest="sets")
    parser.add_argument("--half", choices=("A", "B", "both"), default="both")
    given = parser.parse_args()
    halves = ("all", "A", "B") if given.half == "both" else (given.half,)
    for name in given.sets or SETS:
        data = read_set(given.data / name)
        for rule, values in WITHOUT.items():
            with changed(values):
                answers = run(data, ["hybrid"], homes=given.homes)[0].answers
            shown = "  ".join(f"{half} {told(answers, half)}" for half in halves)
            print(f"{name:20} without {rule:30} {shown}", flush=True)


def told(answers: Sequence[Answered], half: str) -> str:
    """hit@1, hit@5, hit@10 and MRR of one half."""
    chosen = [one for one in answers if half in ("all", half_of(one.id))]
    found = figures(chosen)
    return " ".join(f"{found[name]:.3f}" for name in ("hit@1", "hit@5", "hit@10", "mrr"))


def half_of(question: str) -> str:
    return "AB"[hashlib.md5(question.encode()).digest()[0] & 1]


@contextmanager
def changed(values: Mapping[str, object]) -> Iterator[None]:
    """Rules with other weights, wherever a module has taken them over by name."""
    before = [(module, name, vars(module)[name]) for module in MODULES for name in values if name in vars(module)]
    missing = values.keys() - {name for _, name, _ in before}
    if missing:
        raise SystemExit(f"No module has {', '.join(sorted(missing))}.")
    try:
        for module, name, _ in before:
            setattr(module, name, values[name])
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


if __name__ == "__main__":
    main()
