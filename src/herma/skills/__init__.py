"""The modules of herma.skills:

document     SKILL.md: front matter (one YAML loader), body, compose, patch
template     filling a template, quoted for its language
find         which skills fit a task
guard        scanner and install policy for skills from outside
library      SkillLibrary: read, write, archive, undo, approve
types        Skill, operations, outcomes
files        folders, history, snapshots, archives
rows         history, usage, inbox
curator      stale, needs review, archive, rollback
cli          herma skills …, herma curator
"""
