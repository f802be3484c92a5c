"""Taking one skill in from outside: scanned, judged by the policy for its origin, then written whole."""

from __future__ import annotations

from dataclasses import dataclass, replace

from herma.ports.skills import Incoming
from herma.skills.catalogue import Catalogue
from herma.skills.guard import decide, inspect
from herma.skills.incoming import DOCUMENT, described, read_incoming, renamed
from herma.skills.writer import SkillWriter
from herma.types import Author, Skill, SkillOutcome, SkillRefused, SkillReport, SkillUnchanged, Trust


@dataclass(frozen=True, slots=True)
class InstallWish:
    """How somebody wants skills taken in. `rehearsal`: only to be told what would happen."""

    trust: Trust = "community"
    category: str = ""
    name: str = ""
    force: bool = False
    rehearsal: bool = False


@dataclass(frozen=True, slots=True)
class Installed:
    """What became of one skill from outside, and what the scanner said of it."""

    source: str
    outcome: SkillOutcome
    report: SkillReport


def take_in(
    incoming: Incoming, wish: InstallWish, catalogue: Catalogue, writer: SkillWriter, author: Author
) -> Installed:
    """Take it in, unless the scanner and the policy, or what is there already, stand against it."""
    if wish.name:
        files = [
            (path, renamed(data, wish.name) if path == DOCUMENT else data, run) for path, data, run in incoming.files
        ]
        incoming = replace(incoming, files=files)
    report = inspect(described(incoming))
    skill = read_incoming(incoming, wish.category, wish.name)
    if isinstance(skill, SkillRefused):
        return Installed(incoming.source, skill, report)
    if against := _against(skill, report, wish, catalogue):
        return Installed(incoming.source, against, report)
    if wish.rehearsal:
        message = f"{skill.name} would be installed at {skill.path}."
        return Installed(incoming.source, SkillUnchanged(name=skill.name, message=message), report)
    reason = f"from {incoming.source}; scanner: {report.verdict}"
    return Installed(incoming.source, writer.take_in(skill, incoming.files, author, reason, incoming.source), report)


def _against(skill: Skill, report: SkillReport, wish: InstallWish, catalogue: Catalogue) -> SkillRefused | None:
    if decide(report.verdict, wish.trust, force=wish.force) != "allow":
        message = f"{skill.name} is not installed: the scanner says {report.verdict}, and it comes from {wish.trust}."
        return SkillRefused(name=skill.name, kind="blocked", message=message)
    shelf = catalogue.shelf()
    taken = next((each.path for each in shelf.skills if each.name.casefold() == skill.name.casefold()), None)
    if taken is not None:
        message = f"A skill named {skill.name} is there already ({taken}); archive it first, or give another name."
        return SkillRefused(name=skill.name, kind="exists", message=message, matches=(taken,))
    return None
