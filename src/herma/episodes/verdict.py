"""What an episode says of the skills that were read in it: each one's share in how it ended. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from herma.types.episodes import Episode


class Verdict(NamedTuple):
    """What is to be added to a skill's numbers; less than 0 where an earlier verdict is taken back."""

    successes: int = 0
    failures: int = 0


def verdicts(before: Episode | None, now: Episode) -> Mapping[str, Verdict]:
    """By skill, what changes with the new state of an episode. Made again from the same conversation, nothing does:
    every conversation counts once for each skill, as it ended last."""
    names = dict.fromkeys((*(before.skills_applied if before is not None else ()), *now.skills_applied))
    found = {}
    for name in names:
        old = _of(before, name) if before is not None else Verdict()
        new = _of(now, name)
        change = Verdict(new.successes - old.successes, new.failures - old.failures)
        if change != Verdict():
            found[name] = change
    return found


def _of(episode: Episode, skill: str) -> Verdict:
    """What was broken off, or ended nobody knows how, says nothing of a skill."""
    if skill not in episode.skills_applied:
        return Verdict()
    return Verdict(int(episode.outcome in ("successful", "resolved")), int(episode.outcome == "failed"))
