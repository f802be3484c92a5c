"""Whether a skill can be used here: on this system, with these tools, with these variables set. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection

from herma.types import Skill, SkillOffer

_NAMES = {"linux": "linux", "darwin": "macos", "win32": "windows", "cygwin": "windows"}


def this_platform(system: str = sys.platform) -> str:
    """This system as skills name it."""
    return _NAMES.get(system, system)


def offer(
    skill: Skill,
    platform: str,
    tools: Collection[str] | None,
    has_variable: Callable[[str], bool] = lambda _: True,
) -> SkillOffer:
    """Offered or not, with the reason. `tools` None means that nobody said which there are: none is missed then."""
    if skill.platforms and platform not in skill.platforms:
        return SkillOffer(False, f"it is for {_listed(skill.platforms)}, and this is {platform}")
    if tools is not None:
        missing = [tool for tool in skill.requires_tools if tool not in tools]
        if missing:
            return SkillOffer(False, f"it needs the tool {_listed(missing)}, which is not here")
        better = [tool for tool in skill.fallback_for_tools if tool in tools]
        if better:
            return SkillOffer(False, f"it stands in for {_listed(better)}, which is here")
    unset = tuple(name for name in skill.environment if not has_variable(name))
    reason = f"it needs {_listed(unset)}, which {'is' if len(unset) == 1 else 'are'} not set" if unset else ""
    return SkillOffer(True, reason, unset)


def _listed(names: Collection[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
