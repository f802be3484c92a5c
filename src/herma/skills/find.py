"""Skills for a task: candidates from words and from meaning, fused, scored by how they did, or none at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import get_args

from herma.errors import UsageError
from herma.skills.catalogue import Catalogue
from herma.skills.meaning import Meanings
from herma.skills.route import (
    MEANING_ONLY,
    WITH_MEANING,
    WORDS_ONLY,
    Bar,
    Evidence,
    WordIndex,
    as_meant,
    reasons,
    similarity,
    sureness,
    with_meaning,
)
from herma.skills.score import score
from herma.skills.terms import Terms
from herma.types import FindMode, Skill, SkillMatch, SkillMatches, SkillUsage

NEW = SkillUsage("")
_LIMIT = 5
_WORTH = 0.35
"""What is not even this near, compared with the best, is no alternative to it."""
Nearest = Callable[[str, int], Meanings | None]
"""What an embedder says: task, number wanted → cosines by path; None where there is none."""


class SkillFinder:
    """Keeps the words of the skills it looked at last."""

    def __init__(self, catalogue: Catalogue, terms: Terms, nearest: Nearest | None = None) -> None:
        self._catalogue = catalogue
        self._terms = terms
        self._nearest = nearest
        self._index: tuple[str, WordIndex] | None = None

    def find(
        self, task: str, *, limit: int = _LIMIT, tools: Sequence[str] | None = None, mode: FindMode = "hybrid"
    ) -> SkillMatches:
        if not isinstance(task, str):
            raise UsageError(f"A task is text, not {type(task).__name__}.", hint='For example: find("fix the build").')
        if mode not in get_args(FindMode):
            raise UsageError(f"Nothing can be found by {mode!r}.", hint=f"One of: {', '.join(get_args(FindMode))}.")
        if limit < 1:
            raise UsageError("At least one skill must be wanted.", hint="Leave limit out for five.")
        shelf = self._catalogue.shelf()
        usage = self._catalogue.usage()
        offered = [skill for skill in shelf.skills if self._usable(skill, usage, tools)]
        if not offered:
            why = "there are no skills yet" if not shelf.skills else "no skill can be used here"
            return SkillMatches(task, abstained=why)
        index = self._words(shelf.stamp, offered)
        by_words = index.evidence(task) if mode != "vectors" else {}
        meanings = self._meanings(task, 2 * limit) if mode != "words" else None
        notes = meanings.notes if meanings is not None else ()
        found = self._candidates(index, by_words, meanings, 2 * limit)
        if not found:
            why = "no skill shares a word with the task" if mode != "vectors" else "nothing is embedded yet"
            return SkillMatches(task, abstained=why, notes=notes)
        if mode == "vectors":
            found = {at: as_meant(evidence) for at, evidence in found.items()}
        ranked = _ranked(index, found, usage)
        bar = MEANING_ONLY if mode == "vectors" else WITH_MEANING if meanings and meanings.scale else WORDS_ONLY
        if unsure := _too_far(ranked, limit, index, task, bar):
            return SkillMatches(task, abstained=unsure, nearest=tuple(ranked[:limit]), notes=notes)
        near = [match for match in ranked[:limit] if match.similarity >= _WORTH * ranked[0].similarity]
        return SkillMatches(task, matches=tuple(near), notes=notes)

    # ── steps ──

    def _usable(self, skill: Skill, usage: Mapping[str, SkillUsage], tools: Sequence[str] | None) -> bool:
        known = usage.get(skill.name)
        return (known is None or known.state != "archived") and self._catalogue.offer(skill, tools).offered

    def _meanings(self, task: str, count: int) -> Meanings | None:
        return self._nearest(task, count) if self._nearest is not None and task.strip() else None

    def _words(self, stamp: str, offered: Sequence[Skill]) -> WordIndex:
        key = f"{stamp} {len(offered)} {hash(tuple(skill.path for skill in offered))}"
        if self._index is None or self._index[0] != key:
            self._index = (key, WordIndex(offered, self._terms))
        return self._index[1]

    def _candidates(
        self, index: WordIndex, by_words: Mapping[int, Evidence], meanings: Meanings | None, count: int
    ) -> dict[int, Evidence]:
        """As many as wanted from each path; what one path has not seen is judged by it all the same."""
        best = sorted(by_words, key=lambda at: (-by_words[at].wording, at))[:count]
        if meanings is None:
            return {at: by_words[at] for at in best}
        places = {skill.path: at for at, skill in enumerate(index.skills)}
        nearest = [places[path] for path in meanings.nearest(count) if path in places]
        chosen = dict.fromkeys([*best, *nearest])
        return {at: with_meaning(by_words.get(at, Evidence()), meanings, index.skills[at].path) for at in chosen}


def _ranked(index: WordIndex, found: Mapping[int, Evidence], usage: Mapping[str, SkillUsage]) -> list[SkillMatch]:
    matches = []
    for at, evidence in found.items():
        skill = index.skills[at]
        near = similarity(evidence)
        worth = score(near, usage.get(skill.name, NEW))
        matches.append(SkillMatch(skill, round(worth, 4), round(near, 4), reasons(evidence)))
    return sorted(matches, key=lambda match: (-match.score, -match.similarity, match.skill.path))


def _too_far(ranked: Sequence[SkillMatch], limit: int, index: WordIndex, task: str, bar: Bar) -> str:
    """Why nothing is offered; empty when something is near enough."""
    said = len(index.said(task))
    by_nearness = sorted(ranked, key=lambda match: -match.similarity)
    nearest = by_nearness[0]
    next_best = next((match.similarity for match in by_nearness if match.name != nearest.name), 0.0)

    def short_of(match: SkillMatch) -> tuple[float, float]:
        lead = match.similarity - next_best if match is nearest else 0.0
        return sureness(match.skill, match.similarity, lead, said), bar.of(match.skill, index.share_with_triggers)

    if any(sure >= needed for sure, needed in map(short_of, ranked[:limit])):
        return ""
    sure, needed = short_of(ranked[0])
    return f"no skill is near enough: {ranked[0].name} comes nearest, sure to {sure:.2f}, and {needed:.2f} is needed"
