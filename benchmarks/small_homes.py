"""How often a new home recalls what was told in it when it is plainly asked for, and how often it speaks out of turn.

python benchmarks/small_homes.py [--show]

The homes are in small_homes.txt: 4 to 12 messages each, plain questions that one of these answers, and messages that
must recall nothing; all of small_talk.txt is said to each of them too, and the questions of all others.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from herma import Herma

HERE = Path(__file__).parent


@dataclass
class Home:
    name: str
    talks: list[list[dict[str, str]]] = field(default_factory=list)
    asked: list[tuple[str, str]] = field(default_factory=list)
    unrelated: list[str] = field(default_factory=list)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--show", action="store_true", help="Show every text that was not answered as it should be.")
    given = parser.parse_args()
    homes = read_homes((HERE / "small_homes.txt").read_text("utf-8"))
    talk = [line for line in (HERE / "small_talk.txt").read_text("utf-8").splitlines() if line]
    for mode in ("words", "hybrid"):
        counts: Counter[str] = Counter()
        for home in homes:
            others = [text for other in homes if other is not home for text, _ in other.asked]
            for kind, text, right in looked(home, talk, others, mode):
                counts[kind] += 1
                counts[f"{kind} {right}"] += 1
                if given.show and right != (kind == "answered"):
                    print(f"{mode}, {home.name}, {kind}: {text}")
        shares = [f"{kind} {counts[f'{kind} True']}/{counts[kind]}" for kind in dict.fromkeys(KINDS)]
        print(f"{mode}: {len(homes)} homes; " + ", ".join(shares))


KINDS = ("answered", "unrelated", "small talk", "other home")


def looked(home: Home, talk: list[str], others: list[str], mode: str) -> Iterator[tuple[str, str, bool]]:
    """Each text with what it is, and whether the right thing was recalled, or anything where nothing should be."""
    with (
        tempfile.TemporaryDirectory() as folder,
        Herma.open(Path(folder), flags={"search.prefetch_ms": 10_000, "search.mode": mode}) as h,
    ):
        for messages in home.talks:
            h.transcripts.append(h.transcripts.start("cli"), messages)
        h.index.wait()
        h.prefetch.warm()
        look = h.prefetch.look
        for text, piece in home.asked:
            yield "answered", text, piece in look(text).text
        for kind, texts in zip(KINDS[1:], (home.unrelated, talk, others), strict=True):
            for text in texts:
                yield kind, text, bool(look(text).text)


def read_homes(text: str) -> list[Home]:
    homes: list[Home] = []
    for line in text.splitlines():
        sign, _, rest = line.partition(" ")
        if sign == "==":
            homes.append(Home(rest))
        elif sign == "--":
            homes[-1].talks.append([])
        elif sign in ("u:", "a:"):
            homes[-1].talks[-1].append({"role": "user" if sign == "u:" else "assistant", "content": rest})
        elif sign == "?":
            asked, _, piece = rest.rpartition(" => ")
            homes[-1].asked.append((asked, piece))
        elif sign == "!":
            homes[-1].unrelated.append(rest)
    return homes


if __name__ == "__main__":
    main()
