"""Skills: written procedures, kept as SKILL.md files, found for a task, and known by how they did.

`library` is the way in. Pure decisions: `document` and `compose` (what a SKILL.md says and may say), `plan`, `patch`,
`fill`, `offer`, `similar`, `guard` (the scanner), `route` and `score` (which one for a task), `prompt_index`.
"""

from herma.skills.library import SkillLibrary, SkillView

__all__ = ["SkillLibrary", "SkillView"]
