"""How to make room in a full file: near-duplicates to merge first, then the stalest entries. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from herma.types import DELIMITER, Suggestion

SIMILAR = 72.0
"""Token-set similarity, 0 to 100, from which two entries are taken to say the same thing."""

MOST = 3
_COMPARED = 200
"""So many of the stalest entries are compared with each other: the work grows with the square."""


def suggest(entries: Sequence[str], last_touched: Mapping[str, float], excess: int) -> tuple[Suggestion, ...]:
    """At most three suggestions, the most useful first; together they free `excess` characters where they can.

    `last_touched` is when an entry was last written or confirmed; one that nobody recorded counts as the oldest.
    """
    stale = sorted(entries, key=lambda entry: last_touched.get(entry, 0.0))
    merges = _merges(stale[:_COMPARED])
    spoken_for = {entry for merge in merges for entry in merge.entries}
    delimiter = len(DELIMITER) if len(entries) > 1 else 0
    drops = [
        Suggestion("drop", (entry,), len(entry) + delimiter, "written longest ago and not confirmed since")
        for entry in stale
        if entry not in spoken_for
    ]
    chosen: list[Suggestion] = []
    for suggestion in [*merges, *drops]:
        if len(chosen) == MOST or (chosen and sum(s.frees for s in chosen) >= excess):
            break
        chosen.append(suggestion)
    return tuple(chosen)


def _merges(entries: Sequence[str]) -> list[Suggestion]:
    """Pairs that say nearly the same, most alike first, no entry in two pairs. Merging keeps the longer one."""
    from rapidfuzz import fuzz

    pairs = [
        (fuzz.token_set_ratio(a, b), a, b)
        for i, a in enumerate(entries)
        for b in entries[i + 1 :]
        if min(len(a), len(b)) > 15
    ]
    merges: list[Suggestion] = []
    taken: set[str] = set()
    for score, a, b in sorted(pairs, reverse=True):
        if score < SIMILAR or len(merges) == MOST:
            break
        if a not in taken and b not in taken:
            taken |= {a, b}
            frees = min(len(a), len(b)) + len(DELIMITER)
            merges.append(Suggestion("merge", (a, b), frees, f"{score:.0f} % alike"))
    return merges
