"""Filling a template, quoted for its language."""

from __future__ import annotations

import json
import keyword
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from herma.skills.types import Parameter

# ---------- skills.quoting
#
# Putting a value into code so that it stays a value. Pure: code is read as far as quotes go, never run.
#
# A value of plain characters is put in as it is. Any other is written the way the language writes such a value at that
# place: quoted where the code stands bare, escaped where it stands in quotes. Where nobody can tell what will become of
# it (a here-document, a back-quote, a command that is read by another program too), it is refused.

Language = Literal["shell", "python", "json", "text", "other"]
Place = Literal["bare", "single", "double", "odd", "twice"]
"""Where a placeholder stands: in code, in quotes of either kind, or where no quoting helps."""
PLACEHOLDER = re.compile(r"(?<![{$])\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAMES: Mapping[str, Language] = {
    **dict.fromkeys(("shell", "sh", "bash", "zsh", "ksh", "console", "terminal"), "shell"),
    **dict.fromkeys(("python", "python3", "py"), "python"),
    "json": "json",
    **dict.fromkeys(("text", "plain", "none", "markdown", "prose"), "text"),
}
_SHEBANG = re.compile(r"#!\s*\S*?(?:/env\s+(?:-S\s+)?)?([A-Za-z]+)[0-9.]*(?:\s|$)")
_PYTHON = re.compile(r"(?m)^(?:import [\w.]+|from [\w.]+ import |def \w+\(|class \w+|print\()")
_PLAIN = re.compile(r"[\w@%+=:,./-]*", re.ASCII)
_NAME_OR_NUMBER = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*|-?\d+(?:\.\d+)?", re.ASCII)
_KEYWORDS = frozenset(keyword.kwlist) - {"True", "False", "None"}
_NUMBER_OR_WORD = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?|true|false|null", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_READ_TWICE = re.compile(r"(?:^|[\s;|&(`])(?:ssh|eval|xargs|watch|su|parallel|trap)\s|\s-c\s|\s-exec\w*\s")
"""Commands that give their arguments to another shell: quotes of this one do not protect there."""
_PROGRAMS = re.compile(
    r"(?:^|[\s;|&(`])(?:sed|g?awk|perl|ruby|node|php|python[0-9.]*|jq|psql|mysql|sqlite3|osascript|powershell|pwsh)\s"
)
"""Commands to which what stands in quotes may be a program."""
_JSON = re.compile(r"\s*(?:\{\s*[\"{}]|\[\s*[\"{\[\]0-9])")
_STRING = re.compile(r"(?i)(?<!\w)([rbuft]{0,2})('''|\"\"\"|'|\")")
WHY = {
    "control": "it holds control characters",
    "odd": "it is more than plain characters, and stands where no quoting is safe",
    "twice": "it is more than plain characters, and stands in a command that another program reads too",
    "other": "it is more than plain characters, and how this language quotes is not known",
}


class Unsafe(ValueError):
    """A value that cannot be put in; the reason is one of WHY."""


def language_of(template: str, declared: str = "") -> Language:
    """What a template is written in: as it says, or as it begins; a command line, if nothing says otherwise."""
    if declared.strip():
        return _NAMES.get(declared.strip().lower(), "other")
    if match := _SHEBANG.match(template):
        return _NAMES.get(match[1].lower(), "other")
    if _JSON.match(template) and template.rstrip().endswith(("}", "]")):
        return "json"
    return "python" if _PYTHON.search(template) else "shell"


def places(template: str, language: Language) -> dict[int, Place]:
    """Where each placeholder stands, by its offset."""
    readers: Mapping[str, Callable[[str], Iterator[tuple[int, Place]]]] = {
        "shell": _in_shell,
        "python": _in_python,
        "json": _in_json,
    }
    reader = readers.get(language)
    return dict(reader(template)) if reader else {}


def quoted(value: object, language: Language, place: Place) -> str:
    """The value as this language writes it at this place; an `Unsafe` where it cannot."""
    text = _text(value)
    if _CONTROL.search(text):
        raise Unsafe("control")
    if language == "text":
        return text
    if place in ("odd", "twice") or language == "other":
        if _PLAIN.fullmatch(text):
            return text
        raise Unsafe(language if language == "other" else place)
    return {"shell": _as_shell, "python": _as_python, "json": _as_json}[language](value, text, place)


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


# ── a shell ──


def _as_shell(_: object, text: str, place: Place) -> str:
    if place == "single":
        return text.replace("'", "'\\''")
    if place == "double":
        return re.sub(r'([\\$`"])', r"\\\1", text)
    return shlex.quote(text)


def _in_shell(template: str) -> Iterator[tuple[int, Place]]:
    """Follows quotes, substitutions and comments. Everything after a here-document begins is odd."""
    inside = ["code"]
    at, odd_from, before = 0, _here_document(template), "\n"
    while at < len(template):
        if match := PLACEHOLDER.match(template, at):
            yield at, "odd" if at >= odd_from else _shell_place(template, at, inside)
            at, before = match.end(), "x"
            continue
        at += _shell_step(template, at, before, inside)
        before = template[at - 1 : at]


def _shell_place(template: str, at: int, inside: list[str]) -> Place:
    command = _command(template, at)
    if _READ_TWICE.search(command) or (inside[-1] in ("single", "double") and _PROGRAMS.search(command)):
        return "twice"
    if not {"code", "double", "single", "sub"}.issuperset(inside):
        return "odd"
    return {"single": "single", "double": "double"}.get(inside[-1], "bare")  # type: ignore[return-value]


def _shell_step(template: str, at: int, before: str, inside: list[str]) -> int:
    """Reads on by one sign, and keeps account of what it is inside of."""
    top, sign, two = inside[-1], template[at], template[at : at + 2]
    if top == "comment":
        if sign == "\n":
            inside.pop()
        return 1
    if top in ("single", "ansi"):
        if sign == "'":
            inside.pop()
        return 2 if top == "ansi" and sign == "\\" else 1
    if sign == "\\":
        return 2
    if two in ("$(", "${"):
        inside.append("sub" if two == "$(" and template[at : at + 3] != "$((" else "odd")
        return 2
    if sign == "`":
        inside.pop() if top == "back" else inside.append("back")
    elif sign == '"':
        inside.pop() if top == "double" else inside.append("double")
    elif top != "double":
        if two == "$'":
            inside.append("ansi")
            return 2
        if sign == "'":
            inside.append("single")
        elif sign == "#" and before in "\n\t ;|&(":
            inside.append("comment")
        elif sign == "(":
            inside.append("sub")
        elif (sign == ")" and top in ("sub", "odd")) or (sign == "}" and top == "odd"):
            inside.pop()
    return 1


def _here_document(template: str) -> int:
    match = re.search(r"(?<!<)<<(?!<)", template)
    return match.start() if match else len(template)


def _command(template: str, at: int) -> str:
    """The line that a place is in, with those that it goes on from by a backslash."""
    start = template.rfind("\n", 0, at)
    while start > 0 and template[start - 1] == "\\":
        start = template.rfind("\n", 0, start)
    end = template.find("\n", at)
    return template[start + 1 : end if end >= 0 else len(template)]


# ── Python ──


def _as_python(value: object, text: str, place: Place) -> str:
    if place == "bare":
        if isinstance(value, int | float) or value is None:
            return repr(value)
        named = _NAME_OR_NUMBER.fullmatch(text) and not _KEYWORDS.intersection(text.split("."))
        return text if named else repr(text)
    return re.sub(r"([\\'\"])", r"\\\1", text).replace("\n", "\\n")


def _in_python(template: str) -> Iterator[tuple[int, Place]]:
    at = 0
    place: Place = "bare"
    end = ""
    while at < len(template):
        if match := PLACEHOLDER.match(template, at):
            yield at, place
            at = match.end()
        elif place == "bare" and template[at] == "#":
            place, end = "odd", "\n"
        elif place == "bare" and (string := _STRING.match(template, at)):
            plain = not set("rft").intersection(string[1].lower())
            place, end, at = ("single" if plain else "odd"), string[2], string.end()
        elif place != "bare" and end != "\n" and template[at] == "\\":
            at += 2
        elif place != "bare" and template.startswith(end, at):
            place, at = "bare", at + len(end)
        else:
            at += 1


# ── JSON ──


def _as_json(value: object, text: str, place: Place) -> str:
    if place == "bare":
        if isinstance(value, bool | int) or _NUMBER_OR_WORD.fullmatch(text):
            return text
        return json.dumps(text, ensure_ascii=False)
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _in_json(template: str) -> Iterator[tuple[int, Place]]:
    at = 0
    inside = False
    while at < len(template):
        if match := PLACEHOLDER.match(template, at):
            yield at, "double" if inside else "bare"
            at = match.end()
            continue
        if template[at] == "\\" and inside:
            at += 1
        elif template[at] == '"':
            inside = not inside
        at += 1


# ---------- skills.fill
#
# Filling a skill's template. Pure text: nothing is evaluated, looked up or run.
#
# A placeholder is `{name}` for a declared parameter, or for a value that was given. Everything else in braces is code
# and stays as it is, and so do `${name}` (a shell's own) and `{{name}}`. Values are put in once: what looks like a
# placeholder inside a value is not one. A value is quoted as the template's language quotes (see `quoting`); a default
# is the author's own code and is put in as it stands.


@dataclass(frozen=True, slots=True)
class Filled:
    """The text; which given values it has no place for; and which optional placeholders are still open.

    `language` is what the template was taken for; `notes` say what to look at before anybody runs it.
    """

    text: str
    unknown: tuple[str, ...] = ()
    left_open: tuple[str, ...] = ()
    language: Language = "shell"
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MissingParameters:
    """Required parameters without a value: nothing was filled."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class UnsafeValue:
    """A value that cannot be put in so that it stays a value: nothing was filled."""

    name: str
    why: str


def fill(
    template: str, parameters: Sequence[Parameter], values: Mapping[str, object], language: str = ""
) -> Filled | MissingParameters | UnsafeValue:
    """The template with its parameters put in. `language` is what the skill says that its template is written in."""
    given = {name: value for name, value in values.items() if value is not None}
    missing = tuple(p.name for p in parameters if p.required and p.default is None and p.name not in given)
    if missing:
        return MissingParameters(missing)
    defaults = {p.name: p.default for p in parameters if p.default is not None}
    taken = language_of(template, language)
    where = places(template, taken)
    parts: list[str] = []
    notes: dict[str, None] = {}
    end = 0
    for match in PLACEHOLDER.finditer(template):
        name = match[1]
        parts.append(template[end : match.start()])
        end = match.end()
        if name not in given:
            parts.append(defaults.get(name, match[0]))
            continue
        try:
            parts.append(quoted(given[name], taken, where.get(match.start(), "bare")))
        except Unsafe as exc:
            return UnsafeValue(name, WHY[str(exc)])
        if taken == "shell" and _may_be_option(template, match.start(), given[name], where.get(match.start(), "bare")):
            notes[f"{name} begins with a dash: the command may take it for an option"] = None
    text = "".join([*parts, template[end:]])
    declared, there = {p.name for p in parameters}, placeholders(template)
    unknown = tuple(name for name in given if name not in declared and name not in there)
    left_open = tuple(name for name in there if name in declared and name not in given and name not in defaults)
    return Filled(text, unknown, left_open, taken, tuple(notes))


def placeholders(template: str) -> tuple[str, ...]:
    """What could be filled, in order."""
    return tuple(dict.fromkeys(PLACEHOLDER.findall(template)))


def _may_be_option(template: str, at: int, value: object, place: Place) -> bool:
    """At the beginning of a word; what is quoted there is an option all the same."""
    before = template[max(0, at - 1) : at].strip(" \t\n" + ("'\"" if place != "bare" else ""))
    return not before and str(value).startswith("-")
