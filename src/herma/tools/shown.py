"""What the model is shown of the tools that search and that know skills: purpose and parameters.

They are part of every prompt; what a tool does is in the module of its name, and loaded with its first call.
"""

from __future__ import annotations

from herma.tools.registry import Json, Run, Tool

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
