"""The tools `skills_list`, `skill_view` and `skill_manage`: names and purposes first, the whole text on demand."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from herma.safety.scan import scan
from herma.skills.rows import (
    SUPPORT_FOLDERS,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    PatchSkill,
    RemoveSkillFile,
    Skill,
    SkillFile,
    SkillOp,
    SkillOutcome,
    SkillRefused,
    SkillStaged,
    SkillUnchanged,
    SkillWritten,
    UnsafePath,
    WriteSkillFile,
)
from herma.tools.registry import Json, Tool, ToolContext

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.skills.library import SkillLibrary, SkillView
    from herma.types import Author

MOST_SHOWN = 100_000
"""Characters of a text that an answer holds at most."""
PREVIEW = 1_500
_DESCRIPTION = 300
ACTIONS = ("create", "patch", "edit", "delete", "write_file", "remove_file")
LIST = """\
List the skills there are: written procedures for tasks that come up again, by name and purpose. Look here before a \
task of some size; when one fits, read it with skill_view and follow it."""
VIEW = """\
Read a skill: its whole text, its pitfalls, and which files belong to it. With file_path, read one of those files. Do \
this before following a skill, and before changing it."""
MANAGE = """\
Write down how something is done, or correct it. create: content is the whole SKILL.md: front matter with name and \
description, then steps, pitfalls, how to check. patch: put new_string in the place of old_string, in SKILL.md or \
file_path; the usual way to improve a skill. edit: replace all of SKILL.md. delete: archive it; absorbed_into takes \
over. write_file, remove_file: under references/, templates/, scripts/, assets/.
Worth a skill: what took several attempts, what the user corrected, what comes up again; not single commands or facts \
about the user. A skill that proved wrong is patched at once; one that is nearly the same is patched, not repeated."""


class Skills(Protocol):
    """The part of the library that `skill_manage` needs. A review has one that checks every write first."""

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome: ...


def skill_tools(app: Herma, skills: Skills | None = None) -> list[Tool]:
    """Return the three tools for a home. `skills` takes the writes instead of `app.skills`."""
    manage: Json = {
        "action": {"type": "string", "enum": list(ACTIONS)},
        "name": _string("Small letters, digits, dashes."),
        "content": _string(),
        "category": _string(),
        "old_string": _string("Unique in its file."),
        "new_string": _string(),
        "replace_all": {"type": "boolean"},
        "file_path": _string("As in references/api.md."),
        "file_content": _string(),
        "absorbed_into": _string(),
        "despite_similar": {"type": "boolean", "description": "Create it although a similar one was named."},
    }
    view: Json = {
        "name": _string("The skill's name, or category/name."),
        "file_path": _string("A file of the skill, as in references/details.md."),
    }
    shown: Json = {"category": _string("Only the skills of this category.")}
    return [
        Tool("skills_list", LIST, _object(shown), lambda arguments, _: _list(app.skills, arguments)),
        Tool("skill_view", VIEW, _object(view, "name"), lambda arguments, _: _view(app.skills, arguments)),
        Tool(
            "skill_manage",
            MANAGE,
            _object(manage, "action", "name"),
            lambda arguments, context: _manage(skills or app.skills, arguments, context),
        ),
    ]


def _string(description: str = "") -> Json:
    return {"type": "string", **({"description": description} if description else {})}


def _object(properties: Json, *required: str) -> Json:
    return {"type": "object", "properties": properties, "required": list(required)}


# ── skills_list ──


def _list(library: SkillLibrary, arguments: Json) -> Json:
    category = arguments.get("category")
    if category is not None and not isinstance(category, str):
        return {"success": False, "error": "category must be a string."}
    everything = library.list()
    chosen = [skill for skill in everything if not category or skill.category == category.strip().strip("/")]
    categories = sorted({skill.category for skill in everything if skill.category})
    if category and not chosen:
        return {"success": False, "error": f"There is no category {category!r}.", "categories": categories}
    answer: Json = {
        "success": True,
        "skills": [{"name": s.name, "description": _described(s), "category": s.category or None} for s in chosen],
        "categories": categories,
        "count": len(chosen),
        "hint": "skill_view(name) reads one in full." if chosen else "There are no skills yet; skill_manage makes one.",
    }
    not_offered = len(library.list(everything=True)) - len(everything)
    return answer | ({"not_offered": not_offered} if not_offered else {})


def _described(skill: Skill) -> str:
    """Return the description, unless the scanner objects to it."""
    text = skill.description
    if scan(text):
        return "[its description is withheld by the scanner]"
    return text if len(text) <= _DESCRIPTION else text[: _DESCRIPTION - 1] + "…"


# ── skill_view ──


def _view(library: SkillLibrary, arguments: Json) -> Json:
    name, file = arguments.get("name"), arguments.get("file_path")
    if not isinstance(name, str) or not name.strip():
        return {"success": False, "error": "name is required.", "available_skills": _names(library)}
    if file is not None and not isinstance(file, str):
        return {"success": False, "error": "file_path must be a string."}
    skill = library.resolve(name)
    if isinstance(skill, SkillRefused):
        return _unresolved(library, skill)
    offer = library.offer(skill)
    if not offer.offered:
        error = f"{skill.name} cannot be used here: {offer.reason}."
        return {"success": False, "error": error, "readiness_status": offer.readiness}
    view = library.view(skill.path)
    if view.withheld:
        error = f"The text of {skill.name} is withheld: {view.withheld}. A person can look at it and vouch for it."
        return {"success": False, "error": error, "readiness_status": "unsupported"}
    if file and file != "SKILL.md":
        answer = _file(library, view, file)
    else:
        answer = _document(view)
        missing = [name for name in skill.dependencies if isinstance(library.resolve(name), SkillRefused)]
        answer |= {"missing_dependencies": missing} if missing and not file else {}
    if answer["success"]:
        library.viewed(skill, used=not file)
    return answer


def _document(view: SkillView) -> Json:
    skill = view.skill
    answer: Json = {
        "success": True,
        "name": skill.name,
        "description": skill.description,
        "content": _cut(view.text),
        "category": skill.category or None,
        "tags": list(skill.tags),
        "related_skills": list(skill.related),
        "path": f"{skill.path}/SKILL.md",
        "skill_dir": view.where,
        "linked_files": _linked_files(view),
        "readiness_status": view.offer.readiness,
        "setup_needed": bool(view.offer.missing_environment),
    }
    if skill.version is not None:
        answer["version"] = skill.version
    lists = {"triggers": skill.triggers, "pitfalls": skill.pitfalls, "dependencies": skill.dependencies}
    answer |= {name: list(values) for name, values in lists.items() if values}
    if skill.template:
        answer["template"] = skill.template
        if skill.language:
            answer["template_language"] = skill.language
        answer["parameters"] = [
            {"name": p.name, "description": p.description, "required": p.required}
            | ({} if p.default is None else {"default": p.default})
            for p in skill.parameters
        ]
    if view.offer.missing_environment:
        answer["missing_environment_variables"] = list(view.offer.missing_environment)
        answer["setup_note"] = f"Before it is used: {view.offer.reason}."
    if view.usage.state in ("deprecated", "needs_review", "stale"):
        answer["state"] = view.usage.state
    if view.report.verdict == "caution":
        answer["caution"] = [f"{f.file}:{f.line}: {f.why}" for f in view.report.findings if f.severity == "high"][:5]
    if skill.external:
        answer["read_only"] = True
    return answer


def _file(library: SkillLibrary, view: SkillView, file: str) -> Json:
    skill = view.skill
    try:
        data = library.read_file(skill.path, file)
    except UnsafePath as exc:
        return {"success": False, "error": str(exc), "hint": exc.hint}
    if data is None:
        available = [each.path for each in view.files]
        return {"success": False, "error": f"{skill.name} has no file {file!r}.", "available_files": available}
    kind = f".{file.rpartition('.')[2].lower()}" if "." in file.rpartition("/")[2] else ""
    answer: Json = {"success": True, "name": skill.name, "file": file, "file_type": kind}
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text:
        return {**answer, "content": f"[{file} is not text: {len(data):,} bytes.]", "is_binary": True}
    report = library.scan([SkillFile(file, len(text), text)])
    if report.verdict == "dangerous":
        first = report.findings[0]
        error = f"{file} is withheld: the scanner calls it dangerous (line {first.line}: it {first.why})."
        return {"success": False, "error": error}
    return {**answer, "content": _cut(text)}


def _linked_files(view: SkillView) -> dict[str, list[str]]:
    listed = {
        folder: [each.path for each in view.files if each.path.startswith(f"{folder}/") and not each.link]
        for folder in SUPPORT_FOLDERS
    }
    return {folder: paths for folder, paths in listed.items() if paths}


def _unresolved(library: SkillLibrary, refused: SkillRefused) -> Json:
    name = refused.name.strip()
    if refused.kind == "ambiguous":
        return {"success": False, "error": refused.message, "matches": list(refused.matches)}
    if refused.kind != "not found":
        return {"success": False, "error": refused.message}
    answer: Json = {"success": False, "error": refused.message}
    if any(kept.name == name for kept in library.archived()):
        answer["error"] = f"{name} is in the archive: it was unused for long, or replaced."
        answer["hint"] = f"A person can bring it back: herma skills archive {name} --undo"
    return answer | {"did_you_mean": list(refused.matches), "available_skills": _names(library)}


def _names(library: SkillLibrary) -> list[str]:
    return [skill.name for skill in library.list()][:200]


def _cut(text: str) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}\n[{len(text) - MOST_SHOWN:,} more characters are in the file but not shown.]"


# ── skill_manage ──


class _Invalid(Exception):
    """Invalid arguments."""


def _manage(skills: Skills, arguments: Json, context: ToolContext) -> Json:
    try:
        op = _operation(arguments)
    except _Invalid as exc:
        return {"success": False, "error": str(exc)}
    texts = {CreateSkill: "content", EditSkill: "content", WriteSkillFile: "content", PatchSkill: "new"}
    written = getattr(op, texts.get(type(op), ""), "")
    outsider = context.seen.outsider([written] if written else [])
    author = context.author if outsider is None else replace(context.author, origin=outsider)
    return _answer(skills.apply(op, author=author))


def _operation(arguments: Json) -> SkillOp:
    action = arguments.get("action")
    if action not in ACTIONS:
        raise _Invalid(f"Unknown action {action!r}. Use one of: {', '.join(ACTIONS)}.")
    name = _needed(arguments, "name", "").strip()
    match action:
        case "create":
            content, category = _needed(arguments, "content", action), _text(arguments, "category")
            return CreateSkill(name, content, category, _flag(arguments, "despite_similar"))
        case "edit":
            return EditSkill(name, _needed(arguments, "content", action))
        case "patch":
            old = _needed(arguments, "old_string", action)
            if "new_string" not in arguments:
                raise _Invalid("new_string is required for 'patch'; it may be empty.")
            file = _text(arguments, "file_path") or "SKILL.md"
            return PatchSkill(name, old, _text(arguments, "new_string"), file, _flag(arguments, "replace_all"))
        case "delete":
            return DeleteSkill(name, _text(arguments, "absorbed_into"))
        case "write_file":
            if "file_content" not in arguments:
                raise _Invalid("file_content is required for 'write_file'.")
            return WriteSkillFile(name, _needed(arguments, "file_path", action), _text(arguments, "file_content"))
        case _:
            return RemoveSkillFile(name, _needed(arguments, "file_path", "remove_file"))


def _text(arguments: Json, name: str) -> str:
    value = arguments.get(name)
    if value is not None and not isinstance(value, str):
        raise _Invalid(f"{name} must be a string.")
    return value or ""


def _needed(arguments: Json, name: str, action: str) -> str:
    value = _text(arguments, name)
    if not value.strip():
        raise _Invalid(f"{name} is required{f' for {action!r}' if action else ''}.")
    return value


def _flag(arguments: Json, name: str) -> bool:
    value = arguments.get(name)
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def _answer(outcome: SkillOutcome) -> Json:
    match outcome:
        case SkillWritten():
            answer: Json = {"success": True, "message": outcome.message, "name": outcome.name, "path": outcome.path}
            return {**answer, "change": outcome.change}
        case SkillUnchanged():
            return {"success": True, "message": outcome.message, "name": outcome.name, "unchanged": True}
        case SkillStaged():
            return {"success": True, "staged": True, "pending_id": outcome.pending, "message": outcome.message}
        case SkillRefused():
            return _refusal(outcome)


def _refusal(outcome: SkillRefused) -> Json:
    answer: Json = {"success": False, "error": outcome.message, "reason": outcome.kind}
    if outcome.preview:
        answer["file_preview"] = outcome.preview[:PREVIEW]
    if outcome.findings:
        answer["findings"] = [f"{finding.rule}: {finding.why}" for finding in outcome.findings[:10]]
        answer["hint"] = "Leave that out. Only a person can decide otherwise."
    if outcome.kind == "similar":
        answer["hint"] = "Read it with skill_view; patch it, or call again with despite_similar if this one differs."
    return answer | ({"matches": list(outcome.matches)} if outcome.matches else {})
