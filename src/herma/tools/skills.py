"""Skills_list, skill_view, skill_manage."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol

from herma.safety.scan import scan
from herma.skills.library import SkillLibrary, SkillView
from herma.skills.types import (
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
from herma.tools.registry import Json, Run, Tool, ToolContext
from herma.types import Author

# ---------- tools.shown
#
# What the model is shown of the tools that search and that know skills: purpose and parameters.
#
# They are part of every prompt; what a tool does is in the module of its name, and loaded with its first call.

MOST_RESULTS, USUAL_RESULTS = 10, 3
WIDEST, USUAL_WINDOW = 20, 5
ACTIONS = ("create", "patch", "edit", "delete", "write_file", "remove_file")


def _string(description: str = "") -> Json:
    return {"type": "string", **({"description": description} if description else {})}


# ── session_search ──

SEARCH = """\
Search everything that was said in earlier sessions; nothing is summarised and no model is asked. Use it when the \
user refers to something from before, when you need a decision, a command or a fact that was settled once, or before \
asking what the user may have told you already.
No arguments: the latest conversations. query: the best matches, one for each conversation, with the turns around \
them and how the conversation began and ended. session_id with around_message_id: more around a message; without \
session_id, a message of this conversation that a summary names, as 12 in [#12-18]. session_id alone: the whole session.
A query is words (any of them; more and rarer ones rank higher), "exact phrases", AND, OR, -without, begin*, and \
filters: role:user, source:cli, project:NAME, since:2026-03, before:7d, on:yesterday. Dates like "last week" are \
understood.
What is found is what was said then. It is no evidence of how files, services or facts are now: check those."""

_SEARCH_FOR = {
    "query": ("string", "What to look for. Leave it out to see the latest conversations."),
    "limit": ("integer", f"Conversations to return, 1 to {MOST_RESULTS}; {USUAL_RESULTS} if left out."),
    "sort": ("string", "By time instead of by relevance."),
    "session_id": ("string", "A session to read, or to scroll in."),
    "around_message_id": ("integer", "The message whose surroundings to show, as numbered in a result or a summary."),
    "window": ("integer", f"Messages on each side of it, 1 to {WIDEST}; {USUAL_WINDOW} if left out."),
    "tool_call_id": ("string", "A tool call of this conversation whose shortened result you need in full."),
    "offset": ("integer", "With tool_call_id or around_message_id: where to go on in a long text."),
    "role_filter": ("string", "Only messages of these roles, with commas between."),
    "explain": ("boolean", "Say why each result is there."),
}
_SEARCH: Json = {
    "type": "object",
    "properties": {name: {"type": kind, "description": text} for name, (kind, text) in _SEARCH_FOR.items()},
}
_SEARCH["properties"]["sort"]["enum"] = ["newest", "oldest"]


_ASSISTED = {
    "expand": ("boolean", "Have a model propose other words, and search for these too. Use it when a search missed."),
    "summarize": (
        "boolean",
        "Have a model sum up what each conversation says about the query, instead of quoting it; takes seconds.",
    ),
}
"""Offered where a model is set."""
_ALONE, _ON_REQUEST = "no model is asked.", "no model is asked, unless you want that (expand, summarize)."


def session_search_shown(run: Run, *, assisted: bool) -> Tool:
    """`assisted`: a model is set, which may be asked for more words and for summaries."""
    if not assisted:
        return Tool("session_search", SEARCH, _SEARCH, run)
    more = {name: {"type": kind, "description": text} for name, (kind, text) in _ASSISTED.items()}
    parameters = {**_SEARCH, "properties": {**_SEARCH["properties"], **more}}
    return Tool("session_search", SEARCH.replace(_ALONE, _ON_REQUEST), parameters, run)


# ── skills ──

LIST = """\
List the skills there are: written procedures for tasks that come up again, by name and purpose. Look here before a \
task of some size; when one fits, read it with skill_view and follow it."""

VIEW = """\
Read a skill: its whole text, what to beware of, and which files belong to it. With file_path, read one of those \
files. Do this before following a skill, and before changing it."""

MANAGE = """\
Write down how something is done, or correct it. create: content is the whole SKILL.md: front matter with name and \
description, then steps, pitfalls, how to check. patch: put new_string in the place of old_string, in SKILL.md or \
file_path; the usual way to improve a skill. edit: replace all of SKILL.md. delete: archive it; absorbed_into takes \
over. write_file, remove_file: under references/, templates/, scripts/, assets/.
Worth a skill: what took several attempts, what the user corrected, what comes up again; not single commands or facts \
about the user. A skill that proved wrong is patched at once; one that is nearly the same is patched, not repeated."""


_MANAGE: Json = {
    "type": "object",
    "properties": {
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
    },
    "required": ["action", "name"],
}


def skills_list_shown(run: Run) -> Tool:
    parameters: Json = {
        "type": "object",
        "properties": {"category": _string("Only the skills of this category.")},
        "required": [],
    }
    return Tool("skills_list", LIST, parameters, run)


def skill_view_shown(run: Run) -> Tool:
    parameters: Json = {
        "type": "object",
        "properties": {
            "name": _string("The skill's name, or category/name."),
            "file_path": _string("A file of the skill, as in references/details.md."),
        },
        "required": ["name"],
    }
    return Tool("skill_view", VIEW, parameters, run)


def skill_manage_shown(run: Run) -> Tool:
    return Tool("skill_manage", MANAGE, _MANAGE, run)


# ---------- tools.skills
#
# The tools `skills_list` and `skill_view`: names and purposes first, the whole text when one is needed.

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


# ---------- tools.skill_manage
#
# The tool `skill_manage`: how the model writes down what it learnt to do, and corrects it.

PREVIEW = 1_500


class Skills(Protocol):
    """What the tool needs of the library; a review has one that looks at every write first."""

    def apply(self, op: SkillOp, *, author: Author) -> SkillOutcome: ...


def skill_manage_tool(library: Skills) -> Tool:
    """The tool over this library."""
    return skill_manage_shown(lambda arguments, context: _run(library, arguments, context))


class _Invalid(Exception):
    """Arguments that ask for nothing we can do."""


def _run(library: Skills, arguments: Json, context: ToolContext) -> Json:
    try:
        op = _operation(arguments)
    except _Invalid as exc:
        return {"success": False, "error": str(exc)}
    return _answer(library.apply(op, author=_author(op, context)))


def _operation(arguments: Json) -> SkillOp:
    action = arguments.get("action")
    if action not in ACTIONS:
        raise _Invalid(f"Unknown action {action!r}. Use one of: {', '.join(ACTIONS)}.")
    name = _text(arguments, "name").strip()
    if not name:
        raise _Invalid("name is required.")
    match action:
        case "create":
            content = _needed(arguments, "content", action)
            flag = _flag(arguments, "despite_similar")
            return CreateSkill(name, content, _text(arguments, "category"), flag)
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
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Invalid(f"{name} must be a string.")
    return value


def _needed(arguments: Json, name: str, action: str) -> str:
    value = _text(arguments, name)
    if not value.strip():
        raise _Invalid(f"{name} is required for {action!r}.")
    return value


def _flag(arguments: Json, name: str) -> bool:
    value = arguments.get(name)
    return value is True or (isinstance(value, str) and value.strip().lower() == "true")


def _author(op: SkillOp, context: ToolContext) -> Author:
    """The model's own conclusion, unless it says again what somebody outside said."""
    texts: list[str] = [value for value in _written(op) if value]
    outsider = context.heard.outsider(texts)
    return context.author if outsider is None else replace(context.author, origin=outsider)


def _written(op: SkillOp) -> tuple[str, ...]:
    match op:
        case CreateSkill() | EditSkill() | WriteSkillFile():
            return (op.content,)
        case PatchSkill():
            return (op.new,)
        case _:
            return ()


def _answer(outcome: SkillOutcome) -> Json:
    match outcome:
        case SkillWritten():
            answer: Json = {"success": True, "message": outcome.message, "name": outcome.name, "path": outcome.path}
            return {**answer, "change": outcome.change, **_said("warnings", outcome.warnings)}
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
    return answer | _said("matches", outcome.matches)


def _said(name: str, values: tuple[Any, ...]) -> Json:
    return {name: list(values)} if values else {}
