"""Read, find, write, archive, undo, approve and install skills: `h.skills`.

Tools, command line, curator and dashboard all use `SkillLibrary`; `SkillWriter` plans every write on what is there now
and carries it out under the lock.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, replace
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec, TypeAlias

from herma.errors import FormerName, StoreChanged, StoreError, UsageError, checked
from herma.safety.scan import scan
from herma.skills.document import (
    MOST_BYTES,
    MOST_TEXT,
    Filled,
    category_problem,
    compose,
    content_problem,
    counted_up,
    file_problem,
    fill,
    name_problem,
    parse,
    patch,
    read_skill,
    split,
    text_problem,
)
from herma.skills.files import (
    DOCUMENT,
    SkillFiles,
    SkillFileWriter,
    as_text,
    external_folders,
    read_incoming,
)
from herma.skills.find import SkillFinder, alike, offer, success_rate, texts_for_meaning, this_platform
from herma.skills.guard import decide, inspect, inspect_text
from herma.skills.rows import (
    ARCHIVE,
    SKILL_STATES,
    ArchivedSkill,
    CreateSkill,
    DeleteSkill,
    EditSkill,
    Incoming,
    NewSkillChange,
    PatchSkill,
    RefusalKind,
    RemoveSkillFile,
    SharedSkills,
    Skill,
    SkillChange,
    SkillFile,
    SkillHistory,
    SkillInbox,
    SkillListing,
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
    SkillWritten,
    Trust,
    UnreadableSkill,
    UnsafePath,
    WriteSkillFile,
)
from herma.transcript.provenance import says_the_same, tokens
from herma.types import Author, Finding, Origin, Who

if TYPE_CHECKING:
    from herma.app import Herma

BY_USER = Author()
_DAY = 86_400.0
_WHOLE = (CreateSkill, EditSkill)
_NOTED = ("found", "installed", "moved by hand")
"""Actions of rows that only note what is there: there is nothing to undo."""


class SkillView(NamedTuple):
    """A skill as it is read: its whole SKILL.md, its files, whether it can be used, and the scanner's verdict.

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


class SkillInstalled(NamedTuple):
    """The outcome for one skill from outside, and the scanner's verdict on it."""

    source: str
    outcome: SkillOutcome
    report: SkillReport


@checked("content", "old", "new", "task")
class SkillLibrary:
    """The skills of one home, and of the folders that it reads besides: `h.skills`."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._history = SkillHistory(app.db, app.settings.profile)
        self._inbox = SkillInbox(app.db, app.settings.profile)
        settings = app.settings
        self.shared = SharedSkills(app.db, app.home / "skills", app.settings.memory.lock_timeout)
        self.folders = SkillFiles(app.home, self._history, external_folders(app.home, settings.skills.external_dirs))
        self.rows = SkillUsageRows(app.db, settings.profile)
        tools = frozenset(name.strip() for name in settings.skills.tools.split(",") if name.strip())
        self._tools = tools or None  # None: it is not known which tools there are
        self._reports: dict[str, SkillReport] = {}
        self.writer = SkillWriter(app, self, self._history)
        self._finder = SkillFinder(app, self)

    # ── reading ──

    def list(
        self, category: str | None = None, *, everything: bool = False, tools: Collection[str] | None = None
    ) -> Sequence[Skill]:
        """Return the skills that can be used here, by category and name; with `everything`, the others too."""
        skills = [s for s in self.listing().skills if everything or self.offer(s, tools).offered]
        wanted = [s for s in skills if category is None or s.category == category]
        return sorted(wanted, key=lambda skill: (skill.category, skill.name, skill.path))

    def listing(self) -> SkillListing:
        """Return everything that was found, refused files included."""
        self._app.ensure_open()
        listing = self.folders.look()
        if self._app.settings.store.url and not self.shared.is_current(listing.stamp):
            with self.shared.alone():
                self.shared.compare()
                listing = self.folders.look()
                self.shared.compare(listing.stamp)
        return listing

    def resolve(self, name: str) -> Skill | SkillRefused:
        """Return the skill of this name, or `category/name`; or why there is not exactly one, with similar names."""
        listing = self.listing()
        wanted = name.strip().strip("/")
        matches = [skill for skill in listing.skills if wanted in (skill.name, skill.path)]
        exact = [skill for skill in matches if skill.path == wanted]
        if len(matches) == 1 or (len(exact) == 1 and "/" in wanted):
            return exact[0] if len(exact) == 1 else matches[0]
        if matches:
            paths = tuple(sorted(skill.path for skill in matches))
            message = f"There are {len(matches)} skills named {wanted!r}. Give the path of the one you mean."
            return _refused(name, "ambiguous", message, matches=paths)
        refused = next((each for each in listing.refused if wanted in (each.path, each.path.rpartition("/")[2])), None)
        if refused is not None:
            return _refused(name, "invalid", f"{refused.path} cannot be read: {refused.reason}.")
        from rapidfuzz import fuzz, process

        names = sorted(skill.name for skill in listing.skills)
        found = process.extract(wanted.lower(), names, scorer=fuzz.WRatio, limit=5, score_cutoff=60)
        near = tuple(name for name, _, _ in found)
        hint = f" Did you mean {near[0]}?" if near else ""
        return _refused(name, "not found", f"There is no skill {wanted!r}.{hint}", matches=near)

    def get(self, name: str) -> Skill:
        """Return the skill of this name or path. Raise `UsageError` if there is not exactly one."""
        found = self.resolve(name)
        if isinstance(found, Skill):
            return found
        wanted = name.strip().strip("/")
        hint = "`herma skills list` shows the skills."
        if found.kind == "invalid":
            hint = "Repair the file, or undo the change that broke it: herma log --kind skills"
        elif found.kind == "not found" and any(kept.name == wanted for kept in self.folders.archived()):
            hint = f"It is in the archive: herma skills archive {wanted} --undo"
        raise UsageError(found.message, hint=hint)

    def view(self, name: str) -> SkillView:
        """Return a skill with everything that belongs to it. Count nothing; see `record`."""
        skill = self.get(name)
        text = document_text(self.folders, skill)
        report = self.report(skill, text)
        usage = self.usage_of(skill)
        withheld = ""
        if report.verdict == "dangerous" and usage.vouched != skill.hash:
            first = report.findings[0]
            withheld = f"the scanner calls it dangerous (rule {first.rule}, line {first.line}: it {first.why})"
            text = ""
        files = tuple(self.folders.files(skill, texts=False))
        where = str(self.folders.folder(skill))
        return SkillView(skill, text, files, self.offer(skill), report, usage, where, withheld)

    def read_file(self, name: str, file: str) -> bytes | None:
        """Return the content of one file of a skill, None if there is none."""
        return self.folders.read(self.get(name), file)

    def files(self, name: str) -> Sequence[SkillFile]:
        """Return the files of a skill with their texts, as the scanner reads them."""
        return self.folders.files(self.get(name))

    def offer(self, skill: Skill, tools: Collection[str] | None = None) -> SkillOffer:
        """Return whether a skill can be used here, and if not, why."""
        has_variable = lambda name: bool(os.environ.get(name))  # noqa: E731
        return offer(skill, this_platform(), self._tools if tools is None else tools, has_variable)

    def usable(
        self, listing: SkillListing, usage: Mapping[str, SkillUsage], tools: Collection[str] | None
    ) -> Sequence[Skill]:
        """Return the skills that can be used here and are not in the archive."""
        archived = {name for name, known in usage.items() if known.state == "archived"}
        return [each for each in listing.skills if each.name not in archived and self.offer(each, tools).offered]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the texts of all skills that are embedded, with their keys."""
        for skill in self.listing().skills:
            yield from texts_for_meaning(skill).items()

    def prompt_index(self, budget: int, tokens: Callable[[str], int]) -> str:
        """Return the list of skills for the system prompt; see `prompt_index`."""
        usage = self.usage()
        return prompt_index(self.usable(self.listing(), usage, None), usage, budget, tokens)

    def report(self, skill: Skill, text: str) -> SkillReport:
        """Return the scanner's verdict on a SKILL.md; scan it again only if it changed."""
        kept = self._reports.get(skill.hash)
        if kept is None:
            kept = inspect([SkillFile(DOCUMENT, len(text), text)])
            if len(self._reports) > 1_000:
                self._reports.clear()
            self._reports[skill.hash] = kept
        return kept

    def find(self, task: str, limit: int = 5, *, tools: Sequence[str] | None = None) -> SkillMatches:
        """Return the skills that fit a task, best first, with reasons; or none, and why."""
        self._app.ensure_open()
        return self._finder.find(task, limit=limit, tools=tools)

    def fill(self, name: str, values: Mapping[str, object] | None = None, /, **more: object) -> Filled:
        """Return a skill's code template with its parameters put in. Refuse values that need quoting; run nothing."""
        skill = self.get(name)
        if not skill.template:
            raise UsageError(f"{skill.name} has no template.", hint=f"`herma skills show {skill.name}` shows it.")
        return fill(skill, {**(values or {}), **more})

    # ── writing ──

    def apply(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "", trust: bool = False) -> SkillOutcome:
        """Carry out one operation. If it returns `SkillWritten`, the change is on disk.

        `trust` stores a text although the scanner calls it dangerous; only a person may.
        """
        self._app.ensure_open()
        if trust and author.who is not Who.USER:
            raise UsageError("Only a person can vouch for a text that the scanner objects to.")
        if (rejected := self._rejected(op, author)) is not None:
            return rejected
        if not author.origin.trusted or (self._app.settings.skills.write_approval and author.who is not Who.USER):
            return self._stage(op, author, reason)
        return self.writer.write(op, author, reason, trust=trust)

    def propose(self, op: SkillOp, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Put an operation into the inbox, if it could be carried out now."""
        self._app.ensure_open()
        return self._rejected(op, author) or self._stage(op, author, reason)

    def rehearse(self, op: SkillOp, *, author: Author = BY_USER) -> SkillRefused | None:
        """Return why an operation would be refused now, if so. Write nothing."""
        self._app.ensure_open()
        return self.writer.rehearse(op, author)

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
        """Remove a file under references/, templates/, scripts/ or assets/."""
        return self.apply(RemoveSkillFile(name, file), author=author, reason=reason)

    # ── archive ──

    def archive(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Move a skill to the archive; `restore` brings it back. For people and the curator."""
        skill = self.get(name)
        if skill.external:
            raise UsageError(f"{skill.name} is in {skill.root}, which is read-only. It was not archived.")
        if self.usage_of(skill).pinned:
            raise UsageError(
                f"{skill.name} is pinned. It was not archived.", hint=f"herma skills mark --unpin {skill.name}"
            )
        return self.writer.archive(skill, author, reason)

    def archived(self) -> Sequence[ArchivedSkill]:
        """Return what is in the archive."""
        self._app.ensure_open()
        return self.folders.archived()

    def restore(self, name: str, *, author: Author = BY_USER, reason: str = "") -> SkillOutcome:
        """Bring a skill back from the archive: by its name the one archived last, by its folder there any."""
        archived = self.archived()
        kept = [k for k in archived if name == k.folder] or [k for k in archived if name == k.name]
        kept = kept or [k for k in archived if name == k.folder.removeprefix(f"{ARCHIVE}/")]
        if not kept:
            raise UsageError(f"{name!r} is not in the archive.", hint="`herma skills list --archived` shows it.")
        return self.writer.restore(max(kept, key=lambda k: k.at or 0.0), author, reason)

    # ── skills from outside ──

    def scan(self, source: str | Path | Incoming | Sequence[SkillFile]) -> SkillReport:
        """Return the scanner's verdict on a folder or an archive with a skill, or on files."""
        self._app.ensure_open()
        if isinstance(source, str | Path):
            return inspect([file for each in self.incoming(source) for file in _scannable(each)])
        return inspect(_scannable(source) if isinstance(source, Incoming) else source)

    def incoming(self, path: str | Path) -> Sequence[Incoming]:
        """Return the skills in a folder or an archive, read into memory."""
        return read_incoming(Path(path))

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
    ) -> Sequence[SkillInstalled]:
        """Install every skill of a folder or an archive that the policy for its origin allows.

        `force` installs what calls for caution, never what is dangerous. `rehearsal` writes nothing.
        """
        self._app.ensure_open()
        found = [source] if isinstance(source, Incoming) else self.incoming(source)
        if name and len(found) > 1:
            raise UsageError(f"{source} holds {len(found)} skills; name= works for one skill only.")
        done = []
        for each in found:
            files = [
                (path, _renamed(data, name) if name and path == DOCUMENT else data, run)
                for path, data, run in each.files
            ]
            incoming = each._replace(files=files)
            report = inspect(_scannable(incoming))
            skill = _incoming_skill(incoming, category, name)
            outcome: SkillOutcome
            if isinstance(skill, SkillRefused):
                outcome = skill
            elif refused := self._not_installable(skill, report, trust, force=force):
                outcome = refused
            elif rehearsal:
                message = f"{skill.name} would be installed at {skill.path}."
                outcome = SkillUnchanged(name=skill.name, message=message)
            else:
                reason = f"from {each.source}; scanner: {report.verdict}"
                outcome = self.writer.install(skill, files, author, reason, each.source)
            done.append(SkillInstalled(each.source, outcome, report))
        return done

    def _not_installable(self, skill: Skill, report: SkillReport, trust: Trust, *, force: bool) -> SkillRefused | None:
        if decide(report.verdict, trust, force=force) != "allow":
            message = (
                f"{skill.name} was not installed: the scanner calls it {report.verdict}, and its origin is {trust}."
            )
            return _refused(skill.name, "blocked", message)
        same = (each.path for each in self.listing().skills if each.name.casefold() == skill.name.casefold())
        if (taken := next(same, None)) is not None:
            message = f"A skill named {skill.name} exists already ({taken}). Archive it first, or give another name."
            return _refused(skill.name, "exists", message, matches=(taken,))
        return None

    # ── history and inbox ──

    history = FormerName("changes")
    shelf = FormerName("listing")

    def changes(self, name: str | None = None, *, limit: int | None = None) -> Sequence[SkillChange]:
        """Return the changes of skills, newest first. Edits made by hand are recorded on the way."""
        self._app.ensure_open()
        self.settle()
        return self._history.changes(name, limit=limit)

    def change(self, change_id: int) -> SkillChange | None:
        """Return one change, None if there is none of this number."""
        self._app.ensure_open()
        return self._history.change(change_id)

    def undo(self, change_id: int | None = None, *, name: str | None = None, author: Author = BY_USER) -> SkillOutcome:
        """Undo the newest change that still stands (of one skill, if named), or the one given."""
        change = self.undoable(change_id, name=name)
        if change.file and not (change.before is None and change.file == DOCUMENT):
            return self.writer.put_back(change, author)
        return self._move_back(change, author)

    def undoable(self, change_id: int | None = None, *, name: str | None = None) -> SkillChange:
        """Return what `undo` would undo. Raise `UsageError` if there is nothing."""
        self._app.ensure_open()
        self.settle()
        change = self._newest_standing(name) if change_id is None else self._history.change(change_id)
        if change is None:
            what = "There is nothing to undo." if change_id is None else f"There is no change {change_id}."
            raise UsageError(what, hint="`herma log --kind skills` lists the changes.")
        if change.undone_by is not None:
            redo = f"To redo it, undo the undo: herma undo s{change.undone_by}"
            raise UsageError(f"Change {change.id} is undone already.", hint=redo)
        if change.action in _NOTED:
            raise UsageError(
                f"Change {change.id} only notes what was done by hand or was there already.",
                hint="Archive the skill instead, or move it yourself.",
            )
        return change

    def settle(self) -> None:
        """Record edits by hand, if the home can be written; a read-only home has a history all the same."""
        if self._history.changes(limit=1):
            with suppress(StoreError), self.writer.hold():
                pass

    def pending(self) -> Sequence[SkillPending]:
        """Return the inbox, oldest first: proposals under write approval, and text from outside."""
        self._app.ensure_open()
        return self._inbox.list(self._app.clock())

    def approve(self, pending_id: int, *, by: Author = BY_USER) -> SkillOutcome:
        """Carry out a proposal. It leaves the inbox when it is on disk, and stays there if it no longer fits."""
        pending = self._waiting(pending_id, by)
        reason = f"approved proposal {pending_id}" + (f": {pending.reason}" if pending.reason else "")
        outcome = self.writer.write(pending.operation, pending.author, reason)
        if outcome.ok:
            self._inbox.decide(pending_id, "approved", self._app.clock())
        return outcome

    def reject(self, pending_id: int, *, by: Author = BY_USER) -> SkillPending:
        """Drop a proposal for good."""
        pending = self._waiting(pending_id, by)
        self._inbox.decide(pending_id, "rejected", self._app.clock())
        return pending

    # ── use and state ──

    def usage(self, name: str | None = None) -> Mapping[str, SkillUsage]:
        """Return what is known about the use of all skills, or of one."""
        self._app.ensure_open()
        if name is None:
            return self.rows.all()
        skill = self.get(name)
        return {skill.name: self.usage_of(skill)}

    def usage_of(self, skill: Skill) -> SkillUsage:
        known = self.rows.all().get(skill.name)
        return known or SkillUsage(skill.name, origin="external" if skill.external else "found")

    def record(self, name: str, success: bool | None = None) -> SkillUsage:
        """Count a use of a skill, and whether it worked."""
        counts = {"uses": 1, "successes": int(success is True), "failures": int(success is False)}
        return self.rows.count(self.get(name).name, self._app.clock(), resolves=True, **counts)

    def judge(self, name: str, successes: int, failures: int) -> None:
        """Count the outcome of work in which a skill was read; less than 0 takes an earlier one back. Its use was
        counted when it was read. Do nothing if the skill is gone."""
        skill = self.resolve(name)
        if not isinstance(skill, SkillRefused):
            self.rows.count(skill.name, self._app.clock(), successes=successes, failures=failures)

    def viewed(self, skill: Skill, *, used: bool = True) -> None:
        """Count that an agent read a skill. That is a use, unless it read one of its files only."""
        self.rows.count(skill.name, self._app.clock(), uses=int(used), views=1)

    def pin(self, name: str, *, pinned: bool = True) -> SkillUsage:
        """Protect a skill from agents and from the curator."""
        return self._put(name, pinned=pinned)

    def set_state(self, name: str, state: SkillState) -> SkillUsage:
        """Set the state of a skill. For "archived", call `archive`."""
        if state not in SKILL_STATES or state == "archived":
            raise UsageError(f"{state!r} cannot be set.", hint="Use active, needs_review, stale or deprecated.")
        return self._put(name, state=state)

    def vouch(self, name: str) -> SkillUsage:
        """Trust a skill as it is now, although the scanner calls it dangerous. For people."""
        return self._put(name, vouched=self.get(name).hash)

    def _put(self, name: str, **fields: object) -> SkillUsage:
        skill = self.get(name)
        known = self.usage().get(skill.name)
        usage = known or replace(self.usage_of(skill), created=self._app.clock())
        changed = replace(usage, **fields)  # type: ignore[arg-type]
        self.rows.put(changed)
        return changed

    def _stage(self, op: SkillOp, author: Author, reason: str) -> SkillOutcome:
        """Put an operation into the inbox once, if it could be carried out now; not again after it was rejected."""
        refused = self.writer.rehearse(op, author)
        if refused is not None:
            return refused
        now = self._app.clock()
        expires = now + self._app.settings.memory.inbox_days * _DAY
        kept = self._inbox.put(SkillPending(0, now, expires, author, op, reason))
        if kept.decision == "rejected":
            return _turned_down(op, kept)
        why = "it needs a person's approval" if author.origin.trusted else f"it came from outside ({author.origin})"
        return SkillStaged(name=op.name, message=f"Saved to the inbox (#{kept.id}): {why}.", pending=kept.id)

    def _rejected(self, op: SkillOp, author: Author) -> SkillRefused | None:
        """Refuse a text that a person rejected, in any session and under any name; None if there is no such rejection.

        A person may write it all the same.
        """
        text = _written(op)
        if author.who is Who.USER or author.origin is Origin.USER_SAID or not text:
            return None
        for pending in self._inbox.rejected():
            before = pending.operation
            same_place = (type(before), before.name) == (type(op), op.name)
            whole = isinstance(before, _WHOLE) and isinstance(op, _WHOLE)
            if (whole or same_place) and _nearly_same(text, _written(before)):
                return _turned_down(op, pending)
        return None

    def _waiting(self, pending_id: int, by: Author) -> SkillPending:
        self._app.ensure_open()
        if by.who is not Who.USER:
            raise UsageError("An agent cannot decide on a proposal; only a person can.")
        for pending in self._inbox.list(self._app.clock()):
            if pending.id == pending_id:
                return pending
        raise UsageError(
            f"There is no proposal {pending_id} in the inbox.",
            hint="`herma inbox` lists the proposals.",
            code="not_found",
        )

    def _move_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """Archive a skill that was made, installed or restored; bring an archived one back."""
        reason = f"takes back change {change.id}"
        if change.moved_to.startswith(f"{ARCHIVE}/"):
            kept = next((k for k in self.folders.archived() if k.folder == change.moved_to), None)
            if kept is None:
                message = f"Change {change.id} cannot be undone: {change.moved_to} is no longer in the archive."
                return _refused(change.skill, "overtaken", message)
            return self.writer.restore(kept, author, reason, change.id)
        skill = self.resolve(change.path)
        if not isinstance(skill, Skill):
            message = f"Change {change.id} cannot be undone: {change.path} is gone."
            return _refused(change.skill, "overtaken", message)
        return self.writer.archive(skill, author, reason, "undo", change.id)

    def _newest_standing(self, name: str | None) -> SkillChange | None:
        for limit in (20, None):
            for change in self._history.changes(name, limit=limit):
                if change.undoes is None and change.undone_by is None and change.action not in _NOTED:
                    return change
        return None


def _written(op: SkillOp) -> str:
    """Return the text that an operation writes, without front matter: a name does not make it another text."""
    if isinstance(op, _WHOLE):
        return split(op.content)[1]
    return op.new if isinstance(op, PatchSkill) else op.content if isinstance(op, WriteSkillFile) else ""


def _nearly_same(one: str, other: str) -> bool:
    """Return whether two texts share four fifths of their content words, or all of few."""
    mine, theirs = set(tokens(one)), set(tokens(other))
    return says_the_same(one, other) or len(mine & theirs) >= max(4, 0.8 * len(mine | theirs))


def _turned_down(op: SkillOp, pending: SkillPending) -> SkillRefused:
    day = time.strftime("%Y-%m-%d", time.localtime(pending.at))
    return _refused(op.name, "rejected", f"A person rejected this proposal of {day}. It was not saved again.")


def document_text(folders: SkillFiles, skill: Skill) -> str:
    """Return the text of a SKILL.md."""
    return (folders.read(skill, DOCUMENT) or b"").decode("utf-8-sig", "replace").replace("\r\n", "\n")


# ── writing ──

_TRIES = 3
P = ParamSpec("P")


def _retried(work: Callable[P, SkillOutcome]) -> Callable[P, SkillOutcome]:
    """Try a write again if another process was faster. Return an unsafe path as a refusal."""

    @wraps(work)
    def call(*args: P.args, **options: P.kwargs) -> SkillOutcome:
        try:
            for _ in range(_TRIES - 1):
                with suppress(StoreChanged):
                    return work(*args, **options)
            return work(*args, **options)
        except UnsafePath as exc:
            subject: Any = args[1]
            return _refused(getattr(subject, "name", None) or subject.skill, "unsafe path", f"{exc} {exc.hint}")

    return call


@dataclass(frozen=True, slots=True)
class SkillPlan:
    """Write one file (`data`) or remove it (None), or archive the whole skill. `expected` is its content now.
    `dangerous`: the scanner calls it so, and a person vouched for it."""

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


_Planned: TypeAlias = SkillPlan | SkillRefused | SkillUnchanged


class SkillWriter:
    """Plan a change of skills on what is there now, and carry it out under the lock."""

    def __init__(self, app: Herma, library: SkillLibrary, history: SkillHistory) -> None:
        self._library = library
        self._clock = app.clock
        shared = library.shared if app.settings.store.url else None
        timeout = app.settings.memory.lock_timeout
        self._disk = SkillFileWriter(app.home, history, lock_timeout=timeout, clock=app.clock, shared=shared)

    def hold(self) -> AbstractContextManager[None]:
        """Take the lock on all skills. First finish what a killed process began, and record edits by hand."""
        return self._disk.hold()

    def rehearse(self, op: SkillOp, author: Author) -> SkillRefused | None:
        """Return why the operation would be refused now, if so."""
        planned = self._plan(op, author)
        return planned if isinstance(planned, SkillRefused) else None

    @_retried
    def write(self, op: SkillOp, author: Author, reason: str = "", *, trust: bool = False) -> SkillOutcome:
        """Carry out an operation."""
        planned = self._plan(op, author, trust=trust)
        if not isinstance(planned, SkillPlan):
            return planned
        with self._disk.hold(planned.path):
            planned = self._plan(op, author, trust=trust)
            return self._act(planned, author, reason) if isinstance(planned, SkillPlan) else planned

    @_retried
    def archive(
        self, skill: Skill, author: Author, reason: str, action: str = "archive", undoes: int | None = None
    ) -> SkillOutcome:
        """Move a skill to the archive."""
        with self._disk.hold(skill.path):
            plan = SkillPlan(skill.name, skill.path, "", action, f"Skill {skill.name} archived.", archive=True)
            return self._act(plan, author, reason, undoes)

    @_retried
    def restore(self, kept: ArchivedSkill, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        """Bring a skill back to where it was."""
        with self._disk.hold():
            taken = next((each.path for each in self._library.listing().skills if each.name == kept.name), None)
            if taken is not None:
                message = f"A skill of this name exists already ({taken}). Archive or rename it first."
                return _refused(kept.name, "exists", message, matches=(taken,))
            change = NewSkillChange(author, kept.name, "restore", reason, undoes)
            change_id = self._disk.move(kept.folder, kept.path, change)
            self._library.rows.set_states({kept.name: "active"}, self._clock())
            message = f"Skill {kept.name} is back at {kept.path}."
            return SkillWritten(name=kept.name, message=message, path=kept.path, change=change_id)

    @_retried
    def install(
        self, skill: Skill, files: Sequence[tuple[str, bytes, bool]], author: Author, reason: str, source: str
    ) -> SkillOutcome:
        """Write a whole skill of files that were scanned already."""
        with self._disk.hold():
            change_id = self._disk.add(skill.path, files, NewSkillChange(author, skill.name, "install", reason))
            self._put_new(skill.name, "installed", source, skill.hash)
            message = f"Skill {skill.name} installed at {skill.path}."
            return SkillWritten(name=skill.name, message=message, path=skill.path, change=change_id)

    @_retried
    def put_back(self, change: SkillChange, author: Author) -> SkillOutcome:
        """Give a file the content it had before a change, if it still has the content of the change."""
        with self._disk.hold(change.path):
            new = NewSkillChange(author, change.skill, "undo", f"takes back change {change.id}", change.id)
            before = change.before.encode() if isinstance(change.before, str) else change.before
            try:
                change_id = self._disk.write(change.path, change.file, _hash(change.after), before, new)
            except StoreChanged:
                message = f"Change {change.id} cannot be undone alone: {change.file} was changed again since."
                return _refused(change.skill, "overtaken", message)
            message = f"Change {change.id} undone: {change.file} of {change.skill} is as it was before."
            return SkillWritten(name=change.skill, message=message, path=change.path, change=change_id)

    def _act(self, plan: SkillPlan, author: Author, reason: str, undoes: int | None = None) -> SkillOutcome:
        why = "; ".join(part for part in (plan.reason, reason) if part)
        change = NewSkillChange(author, plan.skill, plan.action, why, undoes)
        if plan.archive:
            change_id = self._disk.move(plan.path, self._free_place(plan.skill), change)
            self._library.rows.set_states({plan.skill: "archived"}, self._clock())
        else:
            change_id = self._disk.write(plan.path, plan.file, _hash(plan.expected), plan.data, change)
            if plan.action == "create":
                origin: SkillOrigin = "user" if author.who is Who.USER else "agent"
                self._put_new(plan.skill, origin, "", _hash(plan.data) if plan.dangerous else "")
            else:
                usage = self._library.rows.count(plan.skill, self._clock(), patches=1)
                if plan.dangerous and plan.file == DOCUMENT:
                    self._library.rows.put(replace(usage, vouched=_hash(plan.data)))
        return SkillWritten(name=plan.skill, message=plan.message, path=plan.path, change=change_id)

    def _put_new(self, name: str, origin: SkillOrigin, source: str, vouched: str) -> None:
        """Store the usage row of a new skill; numbers of an earlier one of this name stay."""
        known = self._library.rows.all().get(name) or SkillUsage(name, created=self._clock())
        new = replace(known, origin=origin, source=source, vouched=vouched, state="active", archived_at=None)
        self._library.rows.put(new)

    def _free_place(self, name: str) -> str:
        taken = {kept.folder for kept in self._library.folders.archived()}
        plain = f"{ARCHIVE}/{name}"
        if plain not in taken:
            return plain
        dated = f"{plain}-{time.strftime('%Y%m%d%H%M%S', time.gmtime(self._clock()))}"
        return next(each for n in range(1000) if (each := dated + (f".{n}" if n else "")) not in taken)

    # ── planning: what an operation would do now ──

    def _plan(self, op: SkillOp, author: Author, *, trust: bool = False) -> _Planned:
        if isinstance(op, CreateSkill):
            return self._create(op, trust=trust)
        skill = self._library.resolve(op.name)
        if isinstance(skill, SkillRefused):
            return skill
        if refused := self._protected(skill, op, author):
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
                if problem := file_problem(op.file):
                    return _refused(skill.name, "unsafe path", problem)
                message = f"{op.file} of {skill.name} written."
                return self._replace(skill, op.file, op.content, "write_file", message, trust=trust)
            case RemoveSkillFile():
                return self._remove_file(skill, op.file)

    def _create(self, op: CreateSkill, *, trust: bool) -> _Planned:
        category = op.category.strip().strip("/")
        problem = name_problem(op.name) or category_problem(category) or content_problem(op.content, op.name)
        if problem:
            return _refused(op.name, "invalid", problem)
        listing = self._library.listing()
        taken = {each.name.casefold(): each.path for each in listing.skills}
        paths = [each.path for each in listing.skills] + [each.path for each in listing.refused]
        taken |= {path.rpartition("/")[2].casefold(): path for path in paths}
        if (same := taken.get(op.name.casefold())) is not None:
            message = f"A skill of this name exists already ({same}). Patch or edit it."
            return _refused(op.name, "exists", message, matches=(same,))
        blocked, dangerous = _scanned(op.name, DOCUMENT, op.content, trust=trust)
        if blocked:
            return blocked
        skill = parse(op.content, op.name)
        near = [] if op.despite_similar or isinstance(skill, str) else alike(skill, listing.skills)
        if near:
            listed = "; ".join(f"{other.name} ({why})" for other, why, _ in near[:3])
            message = f"This nearly repeats {listed}. Patch that skill instead, or confirm that you want both."
            return _refused(op.name, "similar", message, matches=tuple(other.name for other, _, _ in near[:5]))
        path = f"{category}/{op.name}" if category else op.name
        data = op.content.encode()
        return SkillPlan(op.name, path, DOCUMENT, "create", f"Skill {op.name} created.", data=data, dangerous=dangerous)

    def _edit(self, skill: Skill, content: str, action: str, *, trust: bool, message: str = "") -> _Planned:
        if problem := content_problem(content, skill.name):
            return _refused(skill.name, "invalid", problem)
        if skill.version is not None and content.encode() != self._library.folders.read(skill, DOCUMENT):
            content = counted_up(content, skill.version)
        return self._replace(skill, DOCUMENT, content, action, message or f"Skill {skill.name} replaced.", trust=trust)

    def _patch(self, skill: Skill, op: PatchSkill, *, trust: bool) -> _Planned:
        file = op.file or DOCUMENT
        if file != DOCUMENT and (problem := file_problem(file)):
            return _refused(skill.name, "unsafe path", problem)
        data = self._library.folders.read(skill, file)
        if data is None:
            return self._no_file(skill, file)
        text = as_text(data)
        if text is None:
            return _refused(skill.name, "invalid", f"{file} is not text.")
        if op.old == op.new:
            return _refused(skill.name, "invalid", "The old and the new text are the same.")
        result = patch(text, op.old, op.new, replace_all=op.replace_all)
        if not result.places:
            message = f"The passage is not in {file}. Copy it from there."
            return _refused(skill.name, "no match", message, preview=result.previews[0])
        if result.text is None:
            message = f"The passage is in {file} {result.places} times. Quote more of it, or replace all."
            return _refused(skill.name, "several matches", message, matches=result.previews)
        places = "" if result.places == 1 else f" in {result.places} places"
        loosely = " (found with other blanks)" if result.loose else ""
        message = f"{file} of {skill.name} patched{places}{loosely}."
        if file == DOCUMENT:
            return self._edit(skill, result.text, "patch", trust=trust, message=message)
        return self._replace(skill, file, result.text, "patch", message, trust=trust)

    def _delete(self, skill: Skill, op: DeleteSkill) -> _Planned:
        into = op.absorbed_into.strip()
        if into:
            heir = self._library.resolve(into)
            if isinstance(heir, SkillRefused):
                return _refused(skill.name, "not found", f"absorbed_into: {heir.message}", matches=heir.matches)
            if heir.path == skill.path:
                return _refused(skill.name, "invalid", "absorbed_into must name another skill.")
        message = f"Skill {skill.name} moved to the archive; it can be restored."
        reason = f"absorbed into {into}" if into else ""
        return SkillPlan(skill.name, skill.path, "", "delete", message, archive=True, reason=reason)

    def _remove_file(self, skill: Skill, file: str) -> _Planned:
        if file == DOCUMENT:
            return _refused(skill.name, "invalid", "SKILL.md is the skill itself; delete the skill instead.")
        if problem := file_problem(file):
            return _refused(skill.name, "unsafe path", problem)
        data = self._library.folders.read(skill, file)
        if data is None:
            return self._no_file(skill, file)
        message = f"{file} of {skill.name} removed."
        return SkillPlan(skill.name, skill.path, file, "remove_file", message, expected=data)

    def _replace(self, skill: Skill, file: str, content: str, action: str, message: str, *, trust: bool) -> _Planned:
        if problem := text_problem(content):
            kind: RefusalKind = "too large" if isinstance(content, str) and len(content) > MOST_TEXT else "invalid"
            return _refused(skill.name, kind, problem)
        data = content.encode()
        if len(data) > MOST_BYTES:
            return _refused(skill.name, "too large", f"The text has {len(data):,} bytes; the limit is {MOST_BYTES:,}.")
        before = self._library.folders.read(skill, file)
        if before == data:
            return SkillUnchanged(name=skill.name, message=f"{file} of {skill.name} is like that already.")
        blocked, dangerous = _scanned(skill.name, file, content, trust=trust)
        if blocked:
            return blocked
        return SkillPlan(skill.name, skill.path, file, action, message, expected=before, data=data, dangerous=dangerous)

    def _protected(self, skill: Skill, op: SkillOp, author: Author) -> SkillRefused | None:
        if skill.external:
            message = f"{skill.name} is in {skill.root}, which is read-only. Create a skill of your own."
            return _refused(skill.name, "read only", message)
        usage = self._library.usage_of(skill)
        if usage.pinned and (isinstance(op, DeleteSkill) or author.who is not Who.USER):
            message = f"{skill.name} is pinned. A person can unpin it: herma skills mark --unpin {skill.name}"
            return _refused(skill.name, "pinned", message)
        if author.who is Who.REVIEW and usage.origin != "agent":
            message = f"{skill.name} was not made by an agent, so a review does not change it."
            return _refused(skill.name, "not allowed", message)
        return None

    def _no_file(self, skill: Skill, file: str) -> SkillRefused:
        files = tuple(each.path for each in self._library.folders.files(skill, texts=False))
        return _refused(skill.name, "not found", f"{skill.name} has no file {file!r}.", matches=files)


def _scanned(name: str, file: str, content: str, *, trust: bool) -> tuple[SkillRefused | None, bool]:
    """Return the refusal of a dangerous text, and whether it is dangerous. Only a person may store one (`trust`)."""
    critical = [each for each in inspect_text(SkillFile(file, len(content), content)) if each.severity == "critical"]
    if not critical or trust:
        return None, bool(critical)
    first = critical[0]
    message = f"Blocked by the scanner (rule {first.rule}, line {first.line}): it {first.why}."
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


def _hash(content: str | bytes | None) -> str:
    data = content.encode() if isinstance(content, str) else content
    return "" if data is None else sha256(data).hexdigest()


# ── skills from outside ──


def _scannable(incoming: Incoming) -> list[SkillFile]:
    """Return the files as the scanner reads them."""
    files = [SkillFile(path, len(data), as_text(data), run) for path, data, run in incoming.files]
    return [*files, *incoming.odd]


def _incoming_skill(incoming: Incoming, category: str, name: str) -> Skill | SkillRefused:
    """Return the skill that the files make, at the place it would have."""

    def refused(message: str) -> SkillRefused:
        return _refused(name or incoming.folder, "invalid", message)

    document = next((data for path, data, _ in incoming.files if path == DOCUMENT), None)
    if document is None:
        return refused(f"{incoming.source} has no SKILL.md.")
    skill = read_skill(document, name or incoming.folder)
    if isinstance(skill, UnreadableSkill):
        return refused(f"The SKILL.md of {incoming.source} is refused: {skill.reason}.")
    called = name or skill.name
    problem = name_problem(called) or category_problem(category)
    if problem:
        return refused(problem)
    for path, _, _ in incoming.files:
        if not _is_inside(path):
            return refused(f"{path!r} is not a path inside a skill.")
    if len({path.casefold() for path, _, _ in incoming.files}) != len(incoming.files):
        return refused(f"{incoming.source} has files whose names differ in upper and lower case only.")
    return replace(skill, name=called, path=f"{category}/{called}" if category else called, category=category)


def _is_inside(path: str) -> bool:
    """Return whether a file may be beside a SKILL.md. It may have any name (LICENSE), but must not lead out."""
    if path == DOCUMENT or not file_problem(path):
        return True
    parts = path.split("/")
    strange = any(part in ("", ".", "..") or part.startswith(".") for part in parts) or "\\" in path or ":" in path
    return not strange and len(parts) <= 8


def _renamed(document: bytes, name: str) -> bytes:
    """Return a SKILL.md whose front matter gives another name; change nothing else."""
    lines = document.split(b"\n")
    for at, line in enumerate(lines[1:], 1):
        if line.rstrip() == b"---":
            break
        if line.startswith(b"name:"):
            end = b"\r" if line.endswith(b"\r") else b""
            return b"\n".join([*lines[:at], b"name: " + name.encode() + end, *lines[at + 1 :]])
    return b"\n".join([lines[0], b"name: " + name.encode(), *lines[1:]])


# ── the list of skills in the prompt ──

_DESCRIPTION = 160
_HEADER = "# Your skills\n\nRead one with `skill_view` before you follow it."
_STANDING = {"active": 0, "stale": 1, "needs_review": 1, "deprecated": 2}


def prompt_index(
    skills: Sequence[Skill],
    usage: Mapping[str, SkillUsage],
    budget: int,
    tokens: Callable[[str], int],
) -> str:
    """Return the list of skills for the system prompt, the most useful first; empty without skills or budget.

    It shows no counters, and small differences in use do not change the order, so that the bytes stay the same from
    session to session and a provider's cache can reuse the prompt.
    """
    if not skills or budget <= 0:
        return ""
    ordered = sorted(skills, key=lambda skill: (*_standing(usage.get(skill.name)), skill.name, skill.path))
    lines = [_HEADER, ""]
    left_tokens = budget - tokens(_HEADER) - 30
    shown = 0
    for skill in ordered:
        line = _line(skill)
        left_tokens -= tokens(line) + 1
        if left_tokens < 0:
            break
        lines.append(line)
        shown += 1
    if not shown:
        return f"{_HEADER}\n\n{len(ordered)} skills are not listed for want of room: `skills_list` shows them."
    if left := len(ordered) - shown:
        lines += ["", f"{left} more are not listed here: `skills_list` shows them."]
    return "\n".join(lines)


def _standing(usage: SkillUsage | None) -> tuple[int, int, int]:
    """Order pinned skills first, healthy ones before others, then by the order of magnitude of successful use."""
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
