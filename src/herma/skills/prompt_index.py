"""The list of skills in the prompt: names and what they are for, the most useful first, within a budget. Pure.

The same skills with the same standing give the same bytes; counters never show, and small differences in use do not
change the order, so that a provider's cache can reuse it from session to session.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from herma.safety.scan import scan
from herma.skills.score import success_rate
from herma.types import Skill, SkillUsage

_DESCRIPTION = 160
_HEADER = "# Your skills\n\nRead one with `skill_view` before you follow it."
_STANDING = {"active": 0, "stale": 1, "needs_review": 1, "deprecated": 2}


def prompt_index(
    skills: Sequence[Skill],
    usage: Mapping[str, SkillUsage],
    budget: int,
    tokens: Callable[[str], int],
) -> str:
    """The list, or nothing when there are no skills or no room."""
    if not skills or budget <= 0:
        return ""
    ordered = sorted(skills, key=lambda skill: (*_standing(usage.get(skill.name)), skill.name, skill.path))
    lines = [_HEADER, ""]
    room = budget - tokens(_HEADER) - 30
    shown = 0
    for skill in ordered:
        line = _line(skill)
        room -= tokens(line) + 1
        if room < 0:
            break
        lines.append(line)
        shown += 1
    if not shown:
        return f"{_HEADER}\n\n{len(ordered)} skills are not listed for want of room: `skills_list` shows them."
    if left := len(ordered) - shown:
        lines += ["", f"{left} more are not listed here: `skills_list` shows them."]
    return "\n".join(lines)


def _standing(usage: SkillUsage | None) -> tuple[int, int, int]:
    """Pinned first, healthy before ailing, then by the order of magnitude of successful use."""
    if usage is None:
        return (1, 0, 0)
    worth = usage.uses * success_rate(usage)
    return (0 if usage.pinned else 1, _STANDING.get(usage.state, 3), -int(math.log2(worth + 1)))


def _line(skill: Skill) -> str:
    said = " ".join(skill.description.split())
    if scan(said) or scan(skill.name):
        said = "[its description is withheld by the scanner]"
    if len(said) > _DESCRIPTION:
        cut = said[:_DESCRIPTION]
        stop = max(cut.rfind(". "), cut.rfind("; "))
        said = cut[: stop + 1] if stop > _DESCRIPTION // 2 else cut.rsplit(" ", 1)[0] + "…"
    where = f" ({skill.category})" if skill.category else ""
    return f"- {skill.name}{where}: {said}"
