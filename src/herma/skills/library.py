"""SkillLibrary: read, write, archive, undo, approve."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TypeAlias

from herma.errors import StoreChanged, StoreError, UsageError
from herma.safety.scan import scan
from herma.skills.document import (
    MOST_FILE_BYTES,
    MOST_TEXT,
    NoPlace,
    SeveralPlaces,
    category_problem,
    compose,
    content_problem,
    counted_up,
    file_problem,
    name_problem,
    parse,
    patch,
)
from herma.skills.find import SkillFinder, alike, offer, success_rate, this_platform
from herma.skills.guard import Installed, InstallWish, decide, described, inspect, inspect_text, take_in
from herma.skills.template import Filled, MissingParameters, UnsafeValue, fill
from herma.skills.types import (
    SKILL_STATES,
    ArchivedSkill,
    Counted,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    FindMode,
    Incoming,
    NewSkillChange,
    PatchSkill,
    RefusalKind,
    RemoveSkillFile,
    Shelf,
    Skill,
    SkillChange,
    SkillFile,
    SkillFolders,
    SkillHistory,
    SkillInbox,
    SkillMatches,
    SkillOffer,
    SkillOp,
    SkillOrigin,
    SkillOutcome,
    SkillPending,
    SkillRefused,
    SkillReport,
    SkillStaged,
    SkillState,
    SkillUnchanged,
    SkillUsage,
    SkillUsageRows,
    SkillWriting,
    SkillWritten,
    Trust,
    UnreadableSkill,
    UnsafePath,
    WriteSkillFile,
)
from herma.types import Author, Finding, Who

# ---------- skills.catalogue
#
# Which skills there are, by name, and whether each can be used here.

_NEAR = 5


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What skills find here: the system, the tools (None: nobody said), the variables that are set."""

    platform: str = field(default_factory=this_platform)
    tools: Collection[str] | None = None
    has_variable: Callable[[str], bool] = lambda name: bool(os.environ.get(name))


class Catalogue:
    """Reads; changes nothing."""

    def __init__(self, folders: SkillFolders, usage: SkillUsageRows, surroundings: Surroundings) -> None:
        self.folders = folders
        self._usage = usage
        self._surroundings = surroundings
        self._reports: dict[str, SkillReport] = {}

    def shelf(self) -> Shelf:
        return self.folders.look()

    def usage(self) -> Mapping[str, SkillUsage]:
        return self._usage.all()

    def usage_of(self, skill: Skill) -> SkillUsage:
        known = self.usage().get(skill.name)
        return known or SkillUsage(skill.name, origin="external" if skill.external else "found")

    def offer(self, skill: Skill, tools: Collection[str] | None = None) -> SkillOffer:
        here = self._surroundings
        return offer(skill, here.platform, here.tools if tools is None else tools, here.has_variable)

    def resolve(self, name: str) -> Skill | SkillRefused:
        """The skill of this name, or `category/name`; what is near, when there is none; all, when there are several."""
        shelf = self.shelf()
        wanted = name.strip().strip("/")
        matches = [skill for skill in shelf.skills if wanted in (skill.name, skill.path)]
        exact = [skill for skill in matches if skill.path == wanted]
        if len(matches) == 1 or (len(exact) == 1 and "/" in wanted):
            return exact[0] if len(exact) == 1 else matches[0]
        if matches:
            paths = tuple(sorted(skill.path for skill in matches))
            message = f"{len(matches)} skills are called {wanted!r}; say which by its path."
            return SkillRefused(name=name, kind="ambiguous", message=message, matches=paths)
        refused = next((each for each in shelf.refused if wanted in (each.path, each.path.rpartition("/")[2])), None)
        if refused is not None:
            return SkillRefused(name=name, kind="invalid", message=f"{refused.path} cannot be read: {refused.reason}.")
        near = tuple(_near(wanted, [skill.name for skill in shelf.skills]))
        hint = f" Did you mean {near[0]}?" if near else ""
        return SkillRefused(name=name, kind="not found", message=f"There is no skill {wanted!r}.{hint}", matches=near)

    def report(self, skill: Skill, text: str) -> SkillReport:
        """What the scanner says of a SKILL.md, read once as long as it stays the same."""
        kept = self._reports.get(skill.hash)
        if kept is None:
            kept = inspect([SkillFile("SKILL.md", len(text), text)])
            if len(self._reports) > 1_000:
                self._reports.clear()
            self._reports[skill.hash] = kept
        return kept


def _near(wanted: str, names: Collection[str]) -> list[str]:
    from rapidfuzz import fuzz, process

    found = process.extract(wanted.lower(), sorted(names), scorer=fuzz.WRatio, limit=_NEAR, score_cutoff=60)
    return [name for name, _, _ in found]


# ---------- skills.plan
#
# What an operation on skills would do, decided on what is there now. Writes nothing.

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


# ---------- skills.writer
#
# Every change to skills: decide (`plan`), then act under the lock, again when somebody else was quicker.

ARCHIVE = ".archive"
_TRIES = 3


class SkillWriter:
    """The one way in which skills are changed."""

    def __init__(
        self,
        catalogue: Catalogue,
        writing: SkillWriting,
        usage: SkillUsageRows,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._catalogue = catalogue
        self._writing = writing
        self._usage = usage
        self._clock = clock
        self._planner = Planner(catalogue)

    def rehearse(self, op: SkillOp, author: Author) -> SkillRefused | None:
        """Why the operation could not be carried out now, if so."""
        planned = self._planner.plan(op, author)
        return planned if isinstance(planned, SkillRefused) else None

    def write(self, op: SkillOp, author: Author, reason: str = "", *, trust: bool = False) -> SkillOutcome:
        def work() -> SkillOutcome:
            planned = self._planner.plan(op, author, trust=trust)
            if not isinstance(planned, Plan):
                return planned
            with self._writing.hold(planned.path):
                planned = self._planner.plan(op, author, trust=trust)
                return self._act(planned, author, reason) if isinstance(planned, Plan) else planned

        return self._retried(op.name, work)

    def archive(
        self, skill: Skill, author: Author, reason: str, action: str = "archive", undoes: int | None = None
    ) -> SkillOutcome:
        """Move a skill to the archive."""

        def work() -> SkillOutcome:
            with self._writing.hold(skill.path):
                plan = Plan(skill.name, skill.path, "", action, f"Skill {skill.name} archived.", archive=True)
                return self._act(plan, author, reason, undoes)

        return self._retried(skill.name, work)

    def restore(self, kept: ArchivedSkill, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        """Bring a skill back to where it was."""

        def work() -> SkillOutcome:
            with self._writing.hold():
                taken = next((each.path for each in self._catalogue.shelf().skills if each.name == kept.name), None)
                if taken is not None:
                    message = f"A skill of this name is there already ({taken}); archive or rename it first."
                    return SkillRefused(name=kept.name, kind="exists", message=message, matches=(taken,))
                change = NewSkillChange(author, kept.name, "restore", reason, undoes)
                change_id = self._writing.move(kept.folder, kept.path, change)
                self._usage.set_states({kept.name: "active"}, self._clock())
                message = f"Skill {kept.name} is back at {kept.path}."
                return SkillWritten(name=kept.name, message=message, path=kept.path, change=change_id)

        return self._retried(kept.name, work)

    def take_in(
        self, skill: Skill, files: Sequence[tuple[str, bytes, bool]], author: Author, reason: str, source: str
    ) -> SkillOutcome:
        """Make a whole skill out of files that were looked at already."""

        def work() -> SkillOutcome:
            with self._writing.hold():
                change = NewSkillChange(author, skill.name, "install", reason)
                change_id = self._writing.take_in(skill.path, files, change)
                self._born(skill.name, "installed", source, skill.hash)
                message = f"Skill {skill.name} installed at {skill.path}."
                return SkillWritten(name=skill.name, message=message, path=skill.path, change=change_id)

        return self._retried(skill.name, work)

    def put_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """Give a file the content it had before a change, if the change's own content is still there."""

        def work() -> SkillOutcome:
            with self._writing.hold(change.path):
                expected = _hash(change.after)
                new = NewSkillChange(author, change.skill, "undo", f"takes back change {change.id}", change.id)
                try:
                    change_id = self._writing.write(change.path, change.file, expected, _bytes(change.before), new)
                except StoreChanged:
                    message = f"Change {change.id} cannot be undone alone: {change.file} was changed again since."
                    return SkillRefused(name=change.skill, kind="overtaken", message=message)
                message = f"Change {change.id} undone: {change.file} of {change.skill} is as it was before."
                return SkillWritten(name=change.skill, message=message, path=change.path, change=change_id)

        return self._retried(change.skill, work)

    def settle(self) -> None:
        """Bring the history up to date with the files: finish what a killed process began, record edits by hand."""
        with self._writing.hold():
            pass

    # ── steps ──

    def _act(self, plan: Plan, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        why = "; ".join(part for part in (plan.reason, reason) if part)
        change = NewSkillChange(author, plan.skill, plan.action, why, undoes)
        if plan.archive:
            change_id = self._writing.move(plan.path, self._free_place(plan.skill), change)
            self._usage.set_states({plan.skill: "archived"}, self._clock())
        else:
            expected = _hash(plan.expected)
            change_id = self._writing.write(plan.path, plan.file, expected, plan.data, change)
            self._noted(plan, author)
        return SkillWritten(name=plan.skill, message=plan.message, path=plan.path, change=change_id)

    def _noted(self, plan: Plan, author: Author) -> None:
        if plan.action == "create":
            origin: SkillOrigin = "user" if author.who is Who.USER else "agent"
            self._born(plan.skill, origin, "", _hash(plan.data) if plan.dangerous else "")
            return
        self._usage.count(plan.skill, Counted(patches=1), self._clock())
        if plan.dangerous and plan.file == DOCUMENT:
            known = self._usage.all()[plan.skill]
            self._usage.put(replace(known, vouched=_hash(plan.data)))

    def _born(self, name: str, origin: SkillOrigin, source: str, vouched: str) -> None:
        """A new skill under this name: its numbers are those of one that was there before, if there was one."""
        known = self._usage.all().get(name) or SkillUsage(name, created=self._clock())
        new = replace(known, origin=origin, source=source, vouched=vouched, state="active", archived_at=None)
        self._usage.put(new)

    def _free_place(self, name: str) -> str:
        taken = {kept.folder for kept in self._catalogue.folders.archived()}
        plain = f"{ARCHIVE}/{name}"
        if plain not in taken:
            return plain
        stamp = time.strftime("%Y%m%d%H%M%S", time.gmtime(self._clock()))
        dated = f"{plain}-{stamp}"
        return next(each for n in range(1000) if (each := dated + (f".{n}" if n else "")) not in taken)

    def _retried(self, name: str, work: Callable[[], SkillOutcome]) -> SkillOutcome:
        try:
            for _ in range(_TRIES - 1):
                try:
                    return work()
                except StoreChanged:
                    continue
            return work()
        except UnsafePath as exc:
            return SkillRefused(name=name, kind="unsafe path", message=f"{exc} {exc.hint}")


def _hash(content: str | bytes | None) -> str:
    data = _bytes(content)
    return "" if data is None else sha256(data).hexdigest()


def _bytes(content: str | bytes | None) -> bytes | None:
    return content.encode() if isinstance(content, str) else content


# ---------- skills.inbox
#
# Writes to skills that wait for a person: proposals under write approval, and text that came from outside.

_DAY = 86_400.0


class SkillApprovals:
    """What is waiting, and the decisions on it. Only a person decides: no tool reaches `approve`."""

    def __init__(self, inbox: SkillInbox, writer: SkillWriter, *, days: float, clock: Callable[[], float]) -> None:
        self._inbox = inbox
        self._writer = writer
        self._days = days
        self._clock = clock

    def stage(self, op: SkillOp, author: Author, reason: str) -> SkillOutcome:
        """Keep a write for later if it could be made now; the same proposal is kept once, and not again after it was
        rejected.
        """
        refused = self._writer.rehearse(op, author)
        if refused is not None:
            return refused
        now = self._clock()
        kept = self._inbox.put(SkillPending(0, now, now + self._days * _DAY, author, op, reason))
        if kept.decision == "rejected":
            day = time.strftime("%Y-%m-%d", time.localtime(kept.at))
            message = f"A person rejected this proposal of {day}; it is not proposed again."
            return SkillRefused(name=op.name, kind="rejected", message=message)
        why = "it needs a person's approval" if author.origin.trusted else f"it comes from outside ({author.origin})"
        return SkillStaged(name=op.name, message=f"Kept in the inbox as {kept.id}: {why}.", pending=kept.id)

    def list(self) -> Sequence[SkillPending]:
        return self._inbox.list(self._clock())

    def approve(self, pending_id: int, *, by: Author) -> SkillOutcome:
        """Write what was proposed; it leaves the inbox when it is on disk, and stays there when it no longer fits."""
        pending = self._waiting(pending_id, by)
        reason = f"approved proposal {pending_id}" + (f": {pending.reason}" if pending.reason else "")
        outcome = self._writer.write(pending.operation, pending.author, reason)
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author) -> SkillPending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._clock())
        return pending

    def _waiting(self, pending_id: int, by: Author) -> SkillPending:
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self.list():
            if pending.id == pending_id:
                return pending
        raise UsageError(
            f"Nothing with the number {pending_id} is waiting.", hint="`herma skills pending` lists what is waiting."
        )


# ---------- skills.reading
#
# Looking at skills: which there are, what one says, which fits a task. Changes nothing, counts nothing.


@dataclass(frozen=True, slots=True)
class SkillView:
    """A skill as it is read: its whole SKILL.md, its files, how it is offered, and what the scanner says of it.

    `withheld` says why its text must not reach a model; the text is empty then.
    """

    skill: Skill
    text: str
    files: tuple[SkillFile, ...]
    offer: SkillOffer
    report: SkillReport
    usage: SkillUsage
    where: str
    withheld: str = ""


class SkillReading:
    """The half of the library that only reads."""

    def __init__(self, catalogue: Catalogue, finder: SkillFinder, alive: Callable[[], None]) -> None:
        self._catalogue = catalogue
        self._finder = finder
        self._alive = alive

    def list(
        self, category: str | None = None, *, everything: bool = False, tools: Collection[str] | None = None
    ) -> Sequence[Skill]:
        """The skills that can be used here, by category and name; `everything` lists the others too."""
        self._alive()
        skills = [s for s in self._catalogue.shelf().skills if everything or self._catalogue.offer(s, tools).offered]
        wanted = [s for s in skills if category is None or s.category == category]
        return sorted(wanted, key=lambda skill: (skill.category, skill.name, skill.path))

    def shelf(self) -> Shelf:
        """Everything that was found, refused files included."""
        self._alive()
        return self._catalogue.shelf()

    def refused(self) -> Sequence[UnreadableSkill]:
        """Files that are no skills, and why."""
        return self.shelf().refused

    def resolve(self, name: str) -> Skill | SkillRefused:
        """The skill of this name or path, or why there is not exactly one."""
        self._alive()
        return self._catalogue.resolve(name)

    def get(self, name: str) -> Skill:
        """The skill of this name or path; an error when there is not exactly one."""
        found = self.resolve(name)
        if isinstance(found, SkillRefused):
            raise UsageError(found.message, hint=self._next_step(name.strip().strip("/"), found))
        return found

    def _next_step(self, name: str, refused: SkillRefused) -> str:
        if refused.kind == "invalid":
            return f"Mend the file, or take back what broke it: herma skills undo --skill {name}"
        if refused.kind == "not found" and any(kept.name == name for kept in self._catalogue.folders.archived()):
            return f"It is in the archive: herma skills restore {name}"
        return "`herma skills list` shows them."

    def view(self, name: str) -> SkillView:
        """A skill with everything that belongs to it. Counts nothing; see `record`."""
        skill = self.get(name)
        data = self._catalogue.folders.read(skill, "SKILL.md") or b""
        text = data.decode("utf-8-sig", "replace").replace("\r\n", "\n")
        report = self._catalogue.report(skill, text)
        usage = self._catalogue.usage_of(skill)
        withheld = ""
        if report.verdict == "dangerous" and usage.vouched != skill.hash:
            first = report.findings[0]
            withheld = f"the scanner calls it dangerous (rule {first.rule}, line {first.line}: it {first.why})"
        return SkillView(
            skill,
            "" if withheld else text,
            tuple(self._catalogue.folders.files(skill, texts=False)),
            self._catalogue.offer(skill),
            report,
            usage,
            self._catalogue.folders.where(skill),
            withheld,
        )

    def read_file(self, name: str, file: str) -> bytes | None:
        """One file of a skill; None when there is none."""
        return self._catalogue.folders.read(self.get(name), file)

    def files(self, name: str) -> Sequence[SkillFile]:
        """The files of a skill with their texts, as the scanner reads them."""
        return self._catalogue.folders.files(self.get(name))

    def offer(self, skill: Skill, tools: Collection[str] | None = None) -> SkillOffer:
        """Whether it can be used here, and if not, why."""
        return self._catalogue.offer(skill, tools)

    def find(
        self, task: str, limit: int = 5, *, tools: Sequence[str] | None = None, mode: FindMode = "hybrid"
    ) -> SkillMatches:
        """The skills that fit a task, best first, with reasons; or none, with the reason for that. By words and, where
        there is an embedder, by meaning; or by one of them only."""
        self._alive()
        return self._finder.find(task, limit=limit, tools=tools, mode=mode)

    def fill(self, name: str, values: Mapping[str, object] | None = None, /, **more: object) -> Filled:
        """A skill's code template with its parameters put in, quoted as its language quotes. Nothing is run."""
        values = {**(values or {}), **more}
        skill = self.get(name)
        if not skill.template:
            raise UsageError(f"{skill.name} has no template.", hint=f"`herma skills show {skill.name}` shows it.")
        filled = fill(skill.template, skill.parameters, values, skill.language)
        if isinstance(filled, MissingParameters):
            names = ", ".join(filled.names)
            raise UsageError(f"The template of {skill.name} needs a value for {names}.", hint=f"Give: {names}.")
        if isinstance(filled, UnsafeValue):
            raise UsageError(
                f"The value for {filled.name} cannot be put in safely: {filled.why}.",
                hint="Use letters, digits and _ @ % + = : , . / - there, or put it in yourself.",
            )
        return filled


# ---------- skills.undo
#
# Taking changes back: a file gets the content it had, a folder goes where it was. Nothing is ever deleted by it.

_TAKEN_IN = ("found", "installed", "moved by hand")
"""Rows that only note what is there: there is nothing to take back."""


class Undoing:
    """Finds what to take back, and how."""

    def __init__(self, catalogue: Catalogue, history: SkillHistory, writer: SkillWriter) -> None:
        self._catalogue = catalogue
        self._history = history
        self._writer = writer

    def undo(self, change_id: int | None, name: str | None, author: Author) -> SkillOutcome:
        change = self.undoable(change_id, name)
        if change.file and not (change.before is None and change.file == "SKILL.md"):
            return self._writer.put_back(change, author)
        return self._move_back(change, author)

    def undoable(self, change_id: int | None, name: str | None) -> SkillChange:
        """What `undo` would take back; an error when there is no such thing."""
        change = self._newest_standing(name) if change_id is None else self._history.change(change_id)
        if change is None:
            what = "There is nothing to undo." if change_id is None else f"There is no change {change_id}."
            raise UsageError(what, hint="`herma skills log` lists the changes.")
        if change.undone_by is not None:
            redo = f"To bring it back, undo the undo: herma skills undo {change.undone_by}"
            raise UsageError(f"Change {change.id} is undone already.", hint=redo)
        if change.action in _TAKEN_IN:
            raise UsageError(
                f"Change {change.id} only notes what was done by hand or was there already.",
                hint="Archive the skill instead, or move it yourself.",
            )
        return change

    def _move_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """A skill that was made, installed or restored goes to the archive; an archived one comes back."""
        reason = f"takes back change {change.id}"
        if change.moved_to.startswith(f"{ARCHIVE}/"):
            kept = next((k for k in self._catalogue.folders.archived() if k.folder == change.moved_to), None)
            if kept is None:
                message = f"Change {change.id} cannot be undone: {change.moved_to} is not in the archive any more."
                return SkillRefused(name=change.skill, kind="overtaken", message=message)
            return self._writer.restore(kept, author, reason, change.id)
        skill = self._catalogue.resolve(change.path)
        if not isinstance(skill, Skill):
            message = f"Change {change.id} cannot be undone: {change.path} is not there any more."
            return SkillRefused(name=change.skill, kind="overtaken", message=message)
        return self._writer.archive(skill, author, reason, "undo", change.id)

    def _newest_standing(self, name: str | None) -> SkillChange | None:
        for limit in (20, None):
            for change in self._history.changes(name, limit=limit):
                if change.undoes is None and change.undone_by is None and change.action not in _TAKEN_IN:
                    return change
        return None


# ---------- skills.library
#
# Skills as everybody uses them: tools, command line, curator and dashboard all come through here.

BY_USER = Author()


class SkillLibrary(SkillReading):
    """The skills of one home, and of the folders that it reads besides."""

    def __init__(
        self,
        catalogue: Catalogue,
        writing: SkillWriting,
        history: SkillHistory,
        inbox: SkillInbox,
        usage: SkillUsageRows,
        finder: SkillFinder,
        *,
        clock: Callable[[], float],
        write_approval: bool = False,
        inbox_days: float = 30,
        read: Callable[[Path], Sequence[Incoming]] = lambda _: (),
        alive: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(catalogue, finder, alive)
        self._history = history
        self._usage = usage
        self._clock = clock
        self._write_approval = write_approval
        self._read = read
        self._writer = SkillWriter(catalogue, writing, usage, clock)
        self._approvals = SkillApprovals(inbox, self._writer, days=inbox_days, clock=clock)
        self._undoing = Undoing(catalogue, history, self._writer)

    # ── writing ──

    def apply(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "", trust: bool = False) -> SkillOutcome:
        """Carry out one operation. When it returns `SkillWritten`, it is on disk.

        `trust` stores a text although the scanner calls it dangerous; only a person may say so.
        """
        self._alive()
        if trust and author.who is not Who.USER:
            raise UsageError("Only a person can vouch for a text that the scanner objects to.")
        if not author.origin.trusted or (self._write_approval and author.who is not Who.USER):
            return self._approvals.stage(op, author, reason)
        return self._writer.write(op, author, reason, trust=trust)

    def propose(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Keep an operation for a person's decision, if it could be carried out now."""
        self._alive()
        return self._approvals.stage(op, author, reason)

    def rehearse(self, op: SkillOp, *, author: Author = BY_USER) -> SkillRefused | None:
        """Why an operation could not be carried out now, if so. Writes nothing."""
        self._alive()
        return self._writer.rehearse(op, author)

    def create(
        self,
        skill: Skill | str,
        content: str = "",
        *,
        category: str = "",
        despite_similar: bool = False,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> SkillOutcome:
        """Write a new skill: a `Skill`, or its name and the whole text of its SKILL.md."""
        name, text = (skill.name, compose(skill)) if isinstance(skill, Skill) else (skill, content)
        where = category or (skill.category if isinstance(skill, Skill) else "")
        op = CreateSkill(name, text, where, despite_similar)
        return self.apply(op, author=author, reason=reason, trust=trust)

    def edit(
        self, name: str, content: str, *, author: Author = BY_USER, reason: str = "", trust: bool = False
    ) -> SkillOutcome:
        """Replace the whole SKILL.md."""
        return self.apply(EditSkill(name, content), author=author, reason=reason, trust=trust)

    def patch(
        self,
        name: str,
        old: str,
        new: str,
        *,
        file: str = "SKILL.md",
        replace_all: bool = False,
        author: Author = BY_USER,
        reason: str = "",
        trust: bool = False,
    ) -> SkillOutcome:
        """Replace one passage of a file."""
        return self.apply(PatchSkill(name, old, new, file, replace_all), author=author, reason=reason, trust=trust)

    def delete(self, name: str, *, absorbed_into: str = "", author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Move a skill to the archive."""
        return self.apply(DeleteSkill(name, absorbed_into), author=author, reason=reason)

    def write_file(
        self, name: str, file: str, content: str, *, author: Author = BY_USER, reason: str = "", trust: bool = False
    ) -> SkillOutcome:
        """Write a file under references/, templates/, scripts/ or assets/."""
        return self.apply(WriteSkillFile(name, file, content), author=author, reason=reason, trust=trust)

    def remove_file(self, name: str, file: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        return self.apply(RemoveSkillFile(name, file), author=author, reason=reason)

    # ── archive ──

    def archive(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Move a skill to the archive, from where `restore` brings it back. For people and the curator."""
        skill = self.get(name)
        if skill.external:
            raise UsageError(f"{skill.name} lies in {skill.root}, which is only read.")
        if self._catalogue.usage_of(skill).pinned:
            raise UsageError(f"{skill.name} is pinned.", hint=f"herma skills unpin {skill.name}")
        return self._writer.archive(skill, author, reason)

    def archived(self) -> Sequence[ArchivedSkill]:
        """What lies in the archive."""
        self._alive()
        return self._catalogue.folders.archived()

    def restore(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Bring a skill back from the archive: by its name the one that was archived last, by its folder there any."""
        archived = self.archived()
        kept = [k for k in archived if name == k.folder] or [k for k in archived if name == k.name]
        kept = kept or [k for k in archived if name == k.folder.removeprefix(".archive/")]
        if not kept:
            raise UsageError(f"{name!r} is not in the archive.", hint="`herma skills archive --list` shows it.")
        kept.sort(key=lambda k: k.at or 0.0, reverse=True)
        return self._writer.restore(kept[0], author, reason)

    # ── from outside ──

    def scan(self, source: str | Path | Incoming | Sequence[SkillFile]) -> SkillReport:
        """What the scanner says of a skill: of a folder or archive that holds one, or of files."""
        self._alive()
        if isinstance(source, str | Path):
            found = self.incoming(source)
            return inspect([file for each in found for file in described(each)])
        return inspect(described(source) if isinstance(source, Incoming) else source)

    def incoming(self, path: str | Path) -> Sequence[Incoming]:
        """The skills in a folder or an archive, read into memory."""
        return self._read(Path(path))

    def install(
        self,
        source: str | Path | Incoming,
        *,
        trust: Trust = "community",
        category: str = "",
        name: str = "",
        force: bool = False,
        rehearsal: bool = False,
        author: Author = BY_USER,
    ) -> Sequence[Installed]:
        """Take in every skill of a folder or an archive, each if the policy for its origin lets it."""
        self._alive()
        found = [source] if isinstance(source, Incoming) else self.incoming(source)
        if name and len(found) > 1:
            raise UsageError(f"{source} holds {len(found)} skills; one name cannot be for all.")
        wish = InstallWish(trust, category, name, force, rehearsal)
        return [take_in(each, wish, self._catalogue, self._writer, author) for each in found]

    # ── history and decisions ──

    def history(self, name: str | None = None, *, limit: int | None = None) -> Sequence[SkillChange]:
        """What happened to skills, newest first. Edits made by hand are recorded on the way."""
        self._alive()
        self.settle()
        return self._history.changes(name, limit=limit)

    def change(self, change_id: int) -> SkillChange | None:
        self._alive()
        return self._history.change(change_id)

    def undo(self, change_id: int | None = None, *, name: str | None = None, author: Author = BY_USER) -> SkillOutcome:
        """Take back the newest change that still stands (of one skill, if named), or the one given."""
        self._alive()
        self.settle()
        return self._undoing.undo(change_id, name, author)

    def undoable(self, change_id: int | None = None, *, name: str | None = None) -> SkillChange:
        """What `undo` would take back."""
        self._alive()
        self.settle()
        return self._undoing.undoable(change_id, name)

    def settle(self) -> None:
        """Record edits by hand where the home can be written; a read-only home has a history all the same."""
        if not self._history.changes(limit=1):
            return
        try:
            self._writer.settle()
        except StoreError:
            return

    def pending(self) -> Sequence[SkillPending]:
        """Writes that wait for a person, oldest first."""
        self._alive()
        return self._approvals.list()

    def approve(self, pending_id: int, *, by: Author = BY_USER) -> SkillOutcome:
        self._alive()
        return self._approvals.approve(pending_id, by=by)

    def reject(self, pending_id: int, *, by: Author = BY_USER) -> SkillPending:
        self._alive()
        return self._approvals.reject(pending_id, by=by)

    # ── how they do ──

    def usage(self, name: str | None = None) -> Mapping[str, SkillUsage]:
        """What is known about the use of skills: of all, or of one."""
        self._alive()
        known = self._catalogue.usage()
        if name is None:
            return known
        skill = self.get(name)
        return {skill.name: self._catalogue.usage_of(skill)}

    def record(self, name: str, success: bool | None = None) -> SkillUsage:
        """A skill was used, and whether it did its work."""
        skill = self.get(name)
        counted = Counted(uses=1, successes=int(success is True), failures=int(success is False), resolves=True)
        return self._usage.count(skill.name, counted, self._clock())

    def judge(self, name: str, successes: int, failures: int) -> None:
        """How the work went in which a skill was read; below 0 takes back what was said before. The use was counted
        when it was read. A skill that is there no longer, or was never, is passed over."""
        skill = self._catalogue.resolve(name)
        if not isinstance(skill, SkillRefused):
            self._usage.count(skill.name, Counted(successes=successes, failures=failures), self._clock())

    def viewed(self, skill: Skill, *, used: bool = True) -> None:
        """An agent read a skill: that is a use, unless it read one of its files only."""
        self._usage.count(skill.name, Counted(uses=int(used), views=1), self._clock())

    def pin(self, name: str, *, pinned: bool = True) -> SkillUsage:
        """Protect a skill from agents and from the curator; or no longer."""
        return self._put(name, pinned=pinned)

    def unpin(self, name: str) -> SkillUsage:
        return self.pin(name, pinned=False)

    def set_state(self, name: str, state: SkillState) -> SkillUsage:
        """Say how healthy a skill is. Archiving is `archive`."""
        if state not in SKILL_STATES or state == "archived":
            raise UsageError(f"{state!r} cannot be set.", hint="active, needs_review, stale or deprecated.")
        return self._put(name, state=state)

    def vouch(self, name: str) -> SkillUsage:
        """A person trusts a skill as it is now, although the scanner calls it dangerous."""
        return self._put(name, vouched=self.get(name).hash)

    def _put(self, name: str, **fields: object) -> SkillUsage:
        skill = self.get(name)
        known = self._catalogue.usage().get(skill.name)
        usage = known or replace(self._catalogue.usage_of(skill), created=self._clock())
        changed = replace(usage, **fields)  # type: ignore[arg-type]
        self._usage.put(changed)
        return changed


# ---------- skills.prompt_index
#
# The list of skills in the prompt: names and what they are for, the most useful first, within a budget. Pure.
#
# The same skills with the same standing give the same bytes; counters never show, and small differences in use do not
# change the order, so that a provider's cache can reuse it from session to session.

_DESCRIPTION = 160
_HEADER = "# Your skills\n\nRead one with `skill_view` before you follow it."
_STANDING = {"active": 0, "stale": 1, "needs_review": 1, "deprecated": 2}


def prompt_index(
    skills: Sequence[Skill],
    usage: Mapping[str, SkillUsage],
    budget: int,
    tokens: Callable[[str], int],
) -> str:
    """The list, or nothing when there are no skills or no room."""
    if not skills or budget <= 0:
        return ""
    ordered = sorted(skills, key=lambda skill: (*_standing(usage.get(skill.name)), skill.name, skill.path))
    lines = [_HEADER, ""]
    room = budget - tokens(_HEADER) - 30
    shown = 0
    for skill in ordered:
        line = _line(skill)
        room -= tokens(line) + 1
        if room < 0:
            break
        lines.append(line)
        shown += 1
    if not shown:
        return f"{_HEADER}\n\n{len(ordered)} skills are not listed for want of room: `skills_list` shows them."
    if left := len(ordered) - shown:
        lines += ["", f"{left} more are not listed here: `skills_list` shows them."]
    return "\n".join(lines)


def _standing(usage: SkillUsage | None) -> tuple[int, int, int]:
    """Pinned first, healthy before ailing, then by the order of magnitude of successful use."""
    if usage is None:
        return (1, 0, 0)
    worth = usage.uses * success_rate(usage)
    return (0 if usage.pinned else 1, _STANDING.get(usage.state, 3), -int(math.log2(worth + 1)))


def _line(skill: Skill) -> str:
    said = " ".join(skill.description.split())
    if scan(said) or scan(skill.name):
        said = "[its description is withheld by the scanner]"
    if len(said) > _DESCRIPTION:
        cut = said[:_DESCRIPTION]
        stop = max(cut.rfind(". "), cut.rfind("; "))
        said = cut[: stop + 1] if stop > _DESCRIPTION // 2 else cut.rsplit(" ", 1)[0] + "…"
    where = f" ({skill.category})" if skill.category else ""
    return f"- {skill.name}{where}: {said}"
