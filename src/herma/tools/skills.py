"""The tools `skills_list` and `skill_view`: names and purposes first, the whole text when one is needed."""

from __future__ import annotations

from herma.ports.skills import UnsafePath
from herma.safety.scan import scan
from herma.skills import SkillLibrary, SkillView
from herma.tools.registry import Json, Tool
from herma.tools.shown import skill_view_shown, skills_list_shown
from herma.types import SUPPORT_FOLDERS, Skill, SkillFile, SkillRefused

MOST_SHOWN = 100_000
"""Characters of a text that an answer holds at most."""
_DESCRIPTION = 300


def skills_list_tool(library: SkillLibrary) -> Tool:
    """`skills_list` over this library."""
    return skills_list_shown(lambda arguments, _: _list(library, arguments))


def skill_view_tool(library: SkillLibrary) -> Tool:
    """`skill_view` over this library."""
    return skill_view_shown(lambda arguments, _: _view(library, arguments))


# ── the list ──


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
        "skills": [{"name": s.name, "description": _said_of(s), "category": s.category or None} for s in chosen],
        "categories": categories,
        "count": len(chosen),
        "hint": "skill_view(name) reads one in full." if chosen else "There are no skills yet; skill_manage makes one.",
    }
    not_offered = len(library.list(everything=True)) - len(everything)
    if not_offered:
        answer["not_offered"] = not_offered
    return answer


def _said_of(skill: Skill) -> str:
    """Its description; what the scanner objects to reaches no model, as in the prompt."""
    if scan(skill.description):
        return "[its description is withheld by the scanner]"
    return _short(skill.description, _DESCRIPTION)


# ── one of them ──


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
        return {
            "success": False,
            "error": f"{skill.name} cannot be used here: {offer.reason}.",
            "readiness_status": offer.readiness,
        }
    view = library.view(skill.path)
    if view.withheld:
        error = f"The text of {skill.name} is withheld: {view.withheld}. A person can look at it and vouch for it."
        return {"success": False, "error": error, "readiness_status": "unsupported"}
    answer = _file(library, view, file) if file and file != "SKILL.md" else _document(view)
    missing = [name for name in skill.dependencies if isinstance(library.resolve(name), SkillRefused)]
    if missing and "content" in answer and not file:
        answer["missing_dependencies"] = missing
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
        "linked_files": linked_files(view),
        "readiness_status": view.offer.readiness,
        "setup_needed": bool(view.offer.missing_environment),
    }
    answer |= _beyond(skill)
    if view.offer.missing_environment:
        answer["missing_environment_variables"] = list(view.offer.missing_environment)
        answer["setup_note"] = f"Before it is used: {view.offer.reason}."
    if view.usage.state in ("deprecated", "needs_review", "stale"):
        answer["state"] = view.usage.state
    if view.report.verdict == "caution":
        said = [f"{f.file}:{f.line}: {f.why}" for f in view.report.findings if f.severity == "high"]
        answer["caution"] = said[:5]
    if skill.external:
        answer["read_only"] = True
    return answer


def _beyond(skill: Skill) -> Json:
    """What goes beyond the plain format: said only where it is there."""
    said: Json = {}
    if skill.version is not None:
        said["version"] = skill.version
    if skill.triggers:
        said["triggers"] = list(skill.triggers)
    if skill.pitfalls:
        said["pitfalls"] = list(skill.pitfalls)
    if skill.dependencies:
        said["dependencies"] = list(skill.dependencies)
    if skill.template:
        said["template"] = skill.template
        if skill.language:
            said["template_language"] = skill.language
        said["parameters"] = [
            {"name": p.name, "description": p.description, "required": p.required}
            | ({} if p.default is None else {"default": p.default})
            for p in skill.parameters
        ]
    return said


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
        answer["content"] = f"[{file} is not text: {len(data):,} bytes.]"
        answer["is_binary"] = True
        return answer
    report = library.scan([SkillFile(file, len(text), text)])
    if report.verdict == "dangerous":
        first = report.findings[0]
        error = f"{file} is withheld: the scanner calls it dangerous (line {first.line}: it {first.why})."
        return {"success": False, "error": error}
    return {**answer, "content": _cut(text)}


def linked_files(view: SkillView) -> dict[str, list[str]]:
    """The files of a skill by folder."""
    listed = {
        folder: [each.path for each in view.files if each.path.startswith(f"{folder}/") and not each.link]
        for folder in SUPPORT_FOLDERS
    }
    return {folder: paths for folder, paths in listed.items() if paths}


def _unresolved(library: SkillLibrary, refused: SkillRefused) -> Json:
    answer: Json = {"success": False, "error": refused.message}
    archived = refused.kind == "not found" and any(kept.name == refused.name.strip() for kept in library.archived())
    if archived:
        answer["error"] = f"{refused.name.strip()} is in the archive: nobody used it for long, or it was replaced."
        answer["hint"] = f"A person can bring it back: herma curator restore {refused.name.strip()}"
    if refused.kind == "ambiguous":
        answer["matches"] = list(refused.matches)
    elif refused.kind == "not found":
        answer["did_you_mean"] = list(refused.matches)
        answer["available_skills"] = _names(library)
    return answer


def _names(library: SkillLibrary) -> list[str]:
    return [skill.name for skill in library.list()][:200]


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _cut(text: str) -> str:
    if len(text) <= MOST_SHOWN:
        return text
    return f"{text[:MOST_SHOWN]}\n[{len(text) - MOST_SHOWN:,} more characters are in the file but not shown.]"
