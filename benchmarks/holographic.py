"""Compare the bank of the holographic provider with one made anew at each write: holographic.py [FACTS]."""

from __future__ import annotations

import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import numpy as np

from herma.providers.bundled.holographic import FactStore

WORDS = [
    "heron",
    "weir",
    "mill",
    "boat",
    "lake",
    "barn",
    "owl",
    "garden",
    "rose",
    "tulip",
    "river",
    "stone",
    "bridge",
    "kettle",
    "linen",
    "walnut",
    "copper",
]


def main(facts: int) -> None:
    """Print milliseconds of a bank's update, of the whole committed write, and of a bank made from stored vectors."""
    dice = random.Random(1)
    with tempfile.TemporaryDirectory() as folder:
        store = FactStore(Path(folder) / "facts.db")

        def add(number: int) -> object:
            name = f"Place {chr(65 + number % 26)}{number % 50}"
            return store.add(f"Fact {number} of {name}: the {' '.join(dice.choices(WORDS, k=8))}.")

        def rebuild() -> None:
            total = np.zeros(store.dim, np.complex128)
            for (blob,) in store._db.execute("SELECT hrr_vector FROM facts WHERE category='general'"):
                total += np.exp(1j * np.frombuffer(blob, np.float32).astype(np.float64))
            store._put_bank("general", total, facts)

        with store._transaction():  # one commit for all
            for number in range(facts):
                add(number)
            phases = store._vector_of(1)
            update = timed(lambda _: store._count_in("general", phases, 1), 50)
            made = timed(lambda _: rebuild(), 3)
        write = timed(lambda at: add(facts + at), 50)
        store.close()
    told = {"facts": facts, "bank_update_ms": update, "bank_rebuild_ms": made, "committed_write_ms": write}
    print(json.dumps({**told, "update_faster": round(made / update), "write_faster": round((made + write) / write)}))


def timed(work: Callable[[int], object], times: int) -> float:
    """Return the median of the milliseconds that it takes."""
    found = []
    for at in range(times):
        began = time.perf_counter()
        work(at)
        found.append((time.perf_counter() - began) * 1000)
    return round(median(found), 3)


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 5_000)
