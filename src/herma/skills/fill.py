"""Filling a skill's template. Pure text: nothing is evaluated, looked up or run.

A placeholder is `{name}` for a declared parameter, or for a value that was given. Everything else in braces is code and
stays as it is, and so do `${name}` (a shell's own) and `{{name}}`. Values are put in once: what looks like a
placeholder inside a value is not one. A value is quoted as the template's language quotes (see `quoting`); a default is
the author's own code and is put in as it stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from herma.skills.quoting import PLACEHOLDER, WHY, Language, Place, Unsafe, language_of, places, quoted
from herma.types import Parameter


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
