"""Find what other programs learned, and propose it: CLAUDE.md, AGENTS.md, GEMINI.md, auto memory, Cursor rules, mem0,
basic-memory, the MCP memory server, the memory files of Hermes or another Herma.

    for file in found_notes(Machine.here(), Path.cwd()):
        propose(h, file)                 # each entry becomes a proposal in the inbox, which names the file

Nothing here reaches memory by itself: text from outside is a proposal until a person approves it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from herma.errors import UsageError
from herma.importers.base import Machine, items, mapping, parsed, reachable, string
from herma.memory import entries
from herma.types import DELIMITER, Add, Author, Blocked, Duplicate, Origin, Scope, Staged, Target, Who

if TYPE_CHECKING:
    from herma.app import Herma

LIMIT = 1_000
"""Characters of one entry; longer text is divided."""
_LARGEST = 4 << 20
_PROJECT_FILES = ("CLAUDE.md", "CLAUDE.local.md", ".claude/CLAUDE.md", "AGENTS.md", "GEMINI.md", ".cursorrules")
_FRONT = re.compile(r"\A\ufeff?---\r?\n(.{0,20000}?)\r?\n---\r?\n", re.DOTALL)
_HEADING = re.compile(r"(#{1,6})[ \t]+(.*?)[ \t#]*$")
_NAMES = re.compile(
    r"(long-term |curated )?(memory|user|claude|agents?|gemini|soul|tools|notes)(\.md|\.local\.md)?\b", re.I
)
_BULLET = re.compile(r"[ \t]*(?:[-*+•]|\d{1,3}[.)])[ \t]+(?:\[[ xX]\][ \t]+)?(.*)$")
_RULE = re.compile(r"[ \t]*([-*_=])(?:[ \t]*\1){2,}[ \t]*$")
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)


class NoteFile(NamedTuple):
    """A file in which another program keeps what it learned."""

    path: Path
    kind: str
    target: Target = "memory"
    project: str = ""


class ProposedNotes(NamedTuple):
    """The outcome for the entries of a file."""

    file: NoteFile
    new: int = 0
    known: int = 0
    refused: tuple[str, ...] = ()
    """Why, for each entry that the scanner or a person's earlier decision keeps out."""


def found_notes(machine: Machine, project: Path) -> list[NoteFile]:
    """Return the files in the usual places, and those of a project."""
    home = machine.home
    claude, codex = machine.folder("CLAUDE_CONFIG_DIR", ".claude"), machine.folder("CODEX_HOME", ".codex")
    hermes = machine.folder("HERMES_HOME", ".hermes")
    places: list[tuple[Path, str, str, Target]] = [
        (claude, "CLAUDE.md", "Claude Code", "memory"),
        (claude, "projects/*/memory/*.md", "Claude Code's auto memory", "memory"),
        (codex, "AGENTS.md", "Codex", "memory"),
        (codex, "memories/MEMORY.md", "Codex's memories", "memory"),
        (home / ".gemini", "GEMINI.md", "Gemini CLI", "memory"),
        (home / ".qwen", "QWEN.md", "Qwen Code", "memory"),
        (home / ".qwen", "memories/*.md", "Qwen Code's memories", "memory"),
        (home / ".factory", "AGENTS.md", "Droid", "memory"),
        (home / ".cursor", "rules/*.mdc", "Cursor", "memory"),
        (home / "basic-memory", "**/*.md", "basic-memory", "memory"),
        (hermes, "memories/MEMORY.md", "Hermes", "memory"),
        (hermes, "memories/USER.md", "Hermes", "user"),
    ]
    found = [
        NoteFile(file, kind, target)
        for folder, pattern, kind, target in places
        for file in (sorted(folder.glob(pattern)) if reachable(folder) else ())
        if reachable(file) and file.is_file()
    ]
    return [*found, *_of_project(project)] if project != home else found


def notes_at(path: Path) -> list[NoteFile]:
    """Return the files at a path: a file of any of the kinds, a project, a folder of notes, or another home."""
    if path.is_file():
        return [NoteFile(path, _kind(path), "user" if path.name == "USER.md" else "memory")]
    home = [NoteFile(path / "memories" / f"{name.upper()}.md", "Herma", name) for name in ("memory", "user")]
    found = [file for file in home if file.path.is_file()] or _of_project(path)
    if not found:
        found = [NoteFile(file, _kind(file)) for file in sorted(path.rglob("*.md")) if file.is_file()]
    if not found:
        raise UsageError(
            f"{path}: no notes were found there.", hint="Name a file: CLAUDE.md, AGENTS.md, memory.jsonl, …"
        )
    return found


def _of_project(project: Path) -> list[NoteFile]:
    places = [project / name for name in _PROJECT_FILES]
    places += sorted((project / ".cursor" / "rules").glob("*.mdc"))
    return [NoteFile(file, _kind(file), project=str(project)) for file in places if file.is_file()]


def _kind(file: Path) -> str:
    named = {".mdc": "Cursor", ".jsonl": "MCP memory server", ".json": "mem0"}
    return named.get(file.suffix, "Cursor" if file.name == ".cursorrules" else file.name)


def propose(app: Herma, file: NoteFile, *, dry_run: bool = False) -> ProposedNotes:
    """Put every entry of a file into the inbox, with where it came from."""
    scope = Scope(project=file.project) if file.target == "memory" else Scope()
    author = Author(Who.IMPORT, Origin.IMPORT)
    waiting = {pending.id for pending in app.memory.pending()}
    known = set(app.memory.entries(file.target, scope=scope))
    new = seen = 0
    refused: list[str] = []
    for text in note_entries(file):
        if text in known:
            seen += 1
            continue
        if dry_run:
            new += 1
            continue
        outcome = app.memory.propose(
            file.target, Add(text), scope=scope, author=author, reason=f"from {file.path}", although_full=True
        )
        if isinstance(outcome, Staged) and outcome.pending not in waiting:
            waiting.add(outcome.pending)
            new += 1
        elif isinstance(outcome, Staged | Duplicate):
            seen += 1
        else:
            what = outcome.findings[0].why if isinstance(outcome, Blocked) and outcome.findings else outcome.message
            refused.append(f"{text[:60]}: {what}")
    return ProposedNotes(file, new, seen, tuple(refused))


# ── entries ──


def note_entries(file: NoteFile) -> list[str]:
    """Return the entries of a file, in its own format."""
    with file.path.open("rb") as stream:
        text = stream.read(_LARGEST).decode("utf-8", "replace")
    if file.path.suffix in (".json", ".jsonl"):
        return _unique(_json_entries(text))
    return markdown_entries(text, file.path.name)


def markdown_entries(text: str, name: str = "") -> list[str]:
    """Divide Markdown into entries: bullets and paragraphs, each with the headings above it.

    Text that is divided by `§` keeps its entries. Blocks of code, tables, rules and comments are left out, and headings
    that only name the file.
    """
    text = text.replace("\r\n", "\n")
    if DELIMITER in text:
        return entries.parse(text)
    front = _FRONT.match(text)
    body = _COMMENT.sub("", text[front.end() :] if front else text)
    title = re.search(r"^(?:title|name): *(.+)$", front[1], re.MULTILINE) if front else None
    above = [(0, title[1].strip("\"' "))] if title else []
    found: list[str] = []
    paragraph: list[str] = []
    fenced = False

    def finish() -> None:
        if paragraph:
            path = " > ".join(heading for _, heading in above)
            said = "\n".join(paragraph).strip()
            found.append(f"{path}: {said}" if path else said)
            paragraph.clear()

    for line in body.split("\n"):
        if line.lstrip().startswith(("```", "~~~")):
            finish()
            fenced = not fenced
        elif fenced or line.lstrip().startswith("|") or _RULE.match(line) or not line.strip():
            finish()
        elif heading := _HEADING.match(line):
            finish()
            level = len(heading[1])
            above = [one for one in above if one[0] < level]
            if not _NAMES.match(heading[2].strip("*` ")) and heading[2] != name:
                above.append((level, heading[2].strip("*` ")))
        elif bullet := _BULLET.match(line):
            finish()
            paragraph.append(bullet[1])
        else:
            paragraph.append(line.strip().removeprefix("> "))
    finish()
    return _unique(part for one in found for part in (entries.split(one, LIMIT) if len(one) > LIMIT else [one]))


def _unique(texts: Iterable[str]) -> list[str]:
    """Return texts without repetitions, where white space and case do not count."""
    kept: dict[str, str] = {}
    for text in texts:
        if text.strip():
            kept.setdefault(" ".join(text.split()).casefold(), text.strip())
    return list(kept.values())


def _json_entries(text: str) -> Iterator[str]:
    """Yield entries of the MCP memory server's lines, or of a listing of mem0."""
    try:
        values: list[Any] = [json.loads(text)]
    except ValueError:
        values = [parsed(line) for line in text.splitlines()]
    for value in values:
        yield from _of_json(value)


def _of_json(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for one in value:
            yield from _of_json(one)
    one = mapping(value)
    for name in ("results", "memories", "entities", "relations", "data"):
        for each in items(one.get(name)):
            yield from _of_json({"type": {"entities": "entity", "relations": "relation"}.get(name)} | mapping(each))
    if memory := string(one.get("memory")) or string(one.get("text")):
        yield memory
    if one.get("type") == "entity" or "observations" in one:
        kind = string(one.get("entityType"))
        about = string(one.get("name")) + (f" ({kind})" if kind else "")
        for observation in items(one.get("observations")):
            yield f"{about}: {string(observation) or string(mapping(observation).get('content'))}"
    elif one.get("type") == "relation":
        yield f"{string(one.get('from'))} {string(one.get('relationType'))} {string(one.get('to'))}"
