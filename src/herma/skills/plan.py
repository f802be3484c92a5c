"""What an operation on skills would do, decided on what is there now. Writes nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from herma.skills.catalogue import Catalogue
from herma.skills.compose import (
    MOST_FILE_BYTES,
    category_problem,
    content_problem,
    counted_up,
    file_problem,
    name_problem,
)
from herma.skills.document import MOST_TEXT, parse
from herma.skills.guard import decide, inspect_text
from herma.skills.patch import NoPlace, SeveralPlaces, patch
from herma.skills.similar import alike
from herma.types import (
    Author,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    Finding,
    PatchSkill,
    RemoveSkillFile,
    Skill,
    SkillFile,
    SkillOp,
    SkillRefused,
    SkillUnchanged,
    Who,
    WriteSkillFile,
)
from herma.types.skills import RefusalKind

DOCUMENT = "SKILL.md"


@dataclass(frozen=True, slots=True)
class Plan:
    """One file to be written (`data`), or removed (None); or the whole skill to be archived."""

    skill: str
    path: str
    file: str
    action: str
    message: str
    expected: bytes | None = None
    data: bytes | None = None
    archive: bool = False
    reason: str = ""
    dangerous: bool = False
    """The scanner calls it dangerous, and a person vouched for it."""


Planned: TypeAlias = Plan | SkillRefused | SkillUnchanged


class Planner:
    """Decides; see `writer` for who acts."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def plan(self, op: SkillOp, author: Author, *, trust: bool = False) -> Planned:
        if isinstance(op, CreateSkill):
            return self._create(op, trust=trust)
        skill = self._catalogue.resolve(op.name)
        if isinstance(skill, SkillRefused):
            return skill
        if refused := self._untouchable(skill, op, author):
            return refused
        match op:
            case EditSkill():
                return self._edit(skill, op.content, "edit", trust=trust)
            case PatchSkill():
                return self._patch(skill, op, trust=trust)
            case DeleteSkill():
                return self._delete(skill, op)
            case WriteSkillFile(file=file) if file == DOCUMENT:
                return self._edit(skill, op.content, "edit", trust=trust)
            case WriteSkillFile():
                return self._write_file(skill, op.file, op.content, "write_file", trust=trust)
            case RemoveSkillFile():
                return self._remove_file(skill, op.file)

    # ── each of them ──

    def _create(self, op: CreateSkill, *, trust: bool) -> Planned:
        category = op.category.strip().strip("/")
        problem = name_problem(op.name) or category_problem(category) or content_problem(op.content, op.name)
        if problem:
            return _refused(op.name, "invalid", problem)
        shelf = self._catalogue.shelf()
        taken = {each.name.casefold(): each.path for each in shelf.skills}
        paths = [each.path for each in shelf.skills] + [each.path for each in shelf.refused]
        taken |= {path.rpartition("/")[2].casefold(): path for path in paths}
        if (same := taken.get(op.name.casefold())) is not None:
            message = f"A skill of this name is there already ({same}); patch or edit it."
            return _refused(op.name, "exists", message, matches=(same,))
        blocked, dangerous = _scanned(op.name, DOCUMENT, op.content, trust=trust)
        if blocked:
            return blocked
        skill = parse(op.content, op.name)
        near = [] if op.despite_similar or isinstance(skill, str) else alike(skill, shelf.skills)
        if near:
            listed = "; ".join(f"{each.skill.name} ({each.why})" for each in near[:3])
            message = f"This nearly repeats {listed}. Patch that skill instead, or say that it is meant."
            return _refused(op.name, "similar", message, matches=tuple(each.skill.name for each in near[:5]))
        path = f"{category}/{op.name}" if category else op.name
        data = _data(op.content)
        return Plan(op.name, path, DOCUMENT, "create", f"Skill {op.name} created.", data=data, dangerous=dangerous)

    def _edit(self, skill: Skill, content: str, action: str, *, trust: bool, message: str = "") -> Planned:
        if problem := content_problem(content, skill.name):
            return _refused(skill.name, "invalid", problem)
        if skill.version is not None and _data(content) != self._catalogue.folders.read(skill, DOCUMENT):
            content = counted_up(content, skill.version)
        return self._replace(skill, DOCUMENT, content, action, message or f"Skill {skill.name} replaced.", trust=trust)

    def _patch(self, skill: Skill, op: PatchSkill, *, trust: bool) -> Planned:
        file = op.file or DOCUMENT
        if file != DOCUMENT and (problem := file_problem(file)):
            return _refused(skill.name, "unsafe path", problem)
        data = self._catalogue.folders.read(skill, file)
        if data is None:
            return self._no_file(skill, file)
        text = _text(data)
        if text is None:
            return _refused(skill.name, "invalid", f"{file} is not text.")
        if op.old == op.new:
            return _refused(skill.name, "invalid", "The old and the new text are the same.")
        result = patch(text, op.old, op.new, replace_all=op.replace_all)
        if isinstance(result, NoPlace):
            message = f"The passage is nowhere in {file}; copy it from there."
            return _refused(skill.name, "no match", message, preview=result.preview)
        if isinstance(result, SeveralPlaces):
            message = f"The passage is in {file} {result.count} times; quote more of it, or replace all."
            return _refused(skill.name, "several matches", message, matches=result.previews)
        places = "" if result.places == 1 else f" in {result.places} places"
        loosely = " (found by its words; the blanks differ)" if result.loose else ""
        message = f"{file} of {skill.name} patched{places}{loosely}."
        if file == DOCUMENT:
            return self._edit(skill, result.text, "patch", trust=trust, message=message)
        return self._replace(skill, file, result.text, "patch", message, trust=trust)

    def _delete(self, skill: Skill, op: DeleteSkill) -> Planned:
        into = op.absorbed_into.strip()
        if into:
            heir = self._catalogue.resolve(into)
            if isinstance(heir, SkillRefused):
                return _refused(skill.name, "not found", f"absorbed_into: {heir.message}", matches=heir.matches)
            if heir.path == skill.path:
                return _refused(skill.name, "invalid", "absorbed_into must name another skill.")
        message = f"Skill {skill.name} moved to the archive; it can be restored."
        reason = f"absorbed into {into}" if into else ""
        return Plan(skill.name, skill.path, "", "delete", message, archive=True, reason=reason)

    def _write_file(self, skill: Skill, file: str, content: str, action: str, *, trust: bool) -> Planned:
        if problem := file_problem(file):
            return _refused(skill.name, "unsafe path", problem)
        return self._replace(skill, file, content, action, f"{file} of {skill.name} written.", trust=trust)

    def _remove_file(self, skill: Skill, file: str) -> Planned:
        if file == DOCUMENT:
            return _refused(skill.name, "invalid", "SKILL.md is the skill itself; delete the skill instead.")
        if problem := file_problem(file):
            return _refused(skill.name, "unsafe path", problem)
        data = self._catalogue.folders.read(skill, file)
        if data is None:
            return self._no_file(skill, file)
        message = f"{file} of {skill.name} removed."
        return Plan(skill.name, skill.path, file, "remove_file", message, expected=data)

    # ── what they share ──

    def _replace(self, skill: Skill, file: str, content: str, action: str, message: str, *, trust: bool) -> Planned:
        if not isinstance(content, str):
            return _refused(skill.name, "invalid", "The content is text.")
        if any("\ud800" <= character <= "\udfff" for character in content):
            return _refused(skill.name, "invalid", "The text holds halves of surrogate pairs, which no file can keep.")
        data = _data(content)
        if len(content) > MOST_TEXT or len(data) > MOST_FILE_BYTES:
            return _refused(skill.name, "too large", f"{len(content):,} characters; {MOST_TEXT:,} are the limit.")
        before = self._catalogue.folders.read(skill, file)
        if before == data:
            return SkillUnchanged(name=skill.name, message=f"{file} of {skill.name} is like that already.")
        blocked, dangerous = _scanned(skill.name, file, content, trust=trust)
        if blocked:
            return blocked
        return Plan(skill.name, skill.path, file, action, message, expected=before, data=data, dangerous=dangerous)

    def _untouchable(self, skill: Skill, op: SkillOp, author: Author) -> SkillRefused | None:
        if skill.external:
            message = f"{skill.name} lies in {skill.root}, which is only read. Create a skill of your own."
            return _refused(skill.name, "read only", message)
        usage = self._catalogue.usage_of(skill)
        if usage.pinned and (isinstance(op, DeleteSkill) or author.who is not Who.USER):
            message = f"{skill.name} is pinned; a person can unpin it (herma skills unpin {skill.name})."
            return _refused(skill.name, "pinned", message)
        if author.who is Who.REVIEW and usage.origin != "agent":
            message = f"{skill.name} was not made by an agent, so a review leaves it as it is."
            return _refused(skill.name, "not allowed", message)
        return None

    def _no_file(self, skill: Skill, file: str) -> SkillRefused:
        files = tuple(each.path for each in self._catalogue.folders.files(skill, texts=False))
        return _refused(skill.name, "not found", f"{skill.name} has no file {file!r}.", matches=files)


def _scanned(name: str, file: str, content: str, *, trust: bool) -> tuple[SkillRefused | None, bool]:
    """What the policy for skills made here says: danger is a person's decision."""
    critical = [each for each in inspect_text(SkillFile(file, len(content), content)) if each.severity == "critical"]
    if not critical or trust or decide("dangerous", "agent-created") == "allow":
        return None, bool(critical)
    first = critical[0]
    message = f"Blocked by the scanner, rule {first.rule}, line {first.line}: it {first.why}."
    findings = tuple(Finding(each.rule, (0, 0), "high", f"line {each.line}: {each.why}") for each in critical)
    return _refused(name, "blocked", message, findings=findings), True


def _refused(
    name: str,
    kind: RefusalKind,
    message: str,
    *,
    matches: tuple[str, ...] = (),
    preview: str = "",
    findings: tuple[Finding, ...] = (),
) -> SkillRefused:
    return SkillRefused(name=name, kind=kind, message=message, matches=matches, preview=preview, findings=findings)


def _data(content: str) -> bytes:
    return content.encode()


def _text(data: bytes) -> str | None:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None
