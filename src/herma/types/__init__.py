"""Values that everything shares: all frozen, none of them does anything. Import them from here.

A module is loaded with the first name that is asked of it: to make all these classes takes longer than to open a
session, which uses half of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from herma.types.chat import Finish as Finish
    from herma.types.chat import Reply as Reply
    from herma.types.chat import ToolCall as ToolCall
    from herma.types.common import Author as Author
    from herma.types.common import Finding as Finding
    from herma.types.common import Origin as Origin
    from herma.types.common import Scope as Scope
    from herma.types.common import Who as Who
    from herma.types.compression import Compression as Compression
    from herma.types.compression import Condensed as Condensed
    from herma.types.compression import Expansion as Expansion
    from herma.types.compression import How as How
    from herma.types.compression import LeftAlone as LeftAlone
    from herma.types.episodes import BuiltBy as BuiltBy
    from herma.types.episodes import Digest as Digest
    from herma.types.episodes import Episode as Episode
    from herma.types.episodes import EpisodeHit as EpisodeHit
    from herma.types.episodes import Forgotten as Forgotten
    from herma.types.episodes import Outcome as Outcome
    from herma.types.episodes import Restored as Restored
    from herma.types.episodes import RestoredBlock as RestoredBlock
    from herma.types.episodes import SessionState as SessionState
    from herma.types.facts import Fact as Fact
    from herma.types.facts import FactSource as FactSource
    from herma.types.memory import CATEGORIES as CATEGORIES
    from herma.types.memory import DELIMITER as DELIMITER
    from herma.types.memory import TARGETS as TARGETS
    from herma.types.memory import Add as Add
    from herma.types.memory import Ambiguous as Ambiguous
    from herma.types.memory import Applied as Applied
    from herma.types.memory import Block as Block
    from herma.types.memory import Blocked as Blocked
    from herma.types.memory import Category as Category
    from herma.types.memory import Change as Change
    from herma.types.memory import Drifted as Drifted
    from herma.types.memory import Duplicate as Duplicate
    from herma.types.memory import Entry as Entry
    from herma.types.memory import Kept as Kept
    from herma.types.memory import MemoryOp as MemoryOp
    from herma.types.memory import MemoryOutcome as MemoryOutcome
    from herma.types.memory import NoMatch as NoMatch
    from herma.types.memory import OverBudget as OverBudget
    from herma.types.memory import Pending as Pending
    from herma.types.memory import Remove as Remove
    from herma.types.memory import Replace as Replace
    from herma.types.memory import Snapshot as Snapshot
    from herma.types.memory import Staged as Staged
    from herma.types.memory import StoreStatus as StoreStatus
    from herma.types.memory import Suggestion as Suggestion
    from herma.types.memory import Target as Target
    from herma.types.review import DIVIDES as DIVIDES
    from herma.types.review import Divide as Divide
    from herma.types.review import Review as Review
    from herma.types.review import ReviewAction as ReviewAction
    from herma.types.review import ReviewKind as ReviewKind
    from herma.types.review import ReviewState as ReviewState
    from herma.types.review import ReviewWrites as ReviewWrites
    from herma.types.search import ConversationSummary as ConversationSummary
    from herma.types.search import Dropped as Dropped
    from herma.types.search import Hit as Hit
    from herma.types.search import SearchReport as SearchReport
    from herma.types.session import MOVES as MOVES
    from herma.types.session import NOWHERE as NOWHERE
    from herma.types.session import Circumstances as Circumstances
    from herma.types.session import CompletedTurn as CompletedTurn
    from herma.types.session import Context as Context
    from herma.types.session import Contribution as Contribution
    from herma.types.session import MemoryWrite as MemoryWrite
    from herma.types.session import Move as Move
    from herma.types.session import Occasion as Occasion
    from herma.types.session import SessionView as SessionView
    from herma.types.skills import SKILL_STATES as SKILL_STATES
    from herma.types.skills import SUPPORT_FOLDERS as SUPPORT_FOLDERS
    from herma.types.skills import TRUSTS as TRUSTS
    from herma.types.skills import CreateSkill as CreateSkill
    from herma.types.skills import DeleteSkill as DeleteSkill
    from herma.types.skills import EditSkill as EditSkill
    from herma.types.skills import FindMode as FindMode
    from herma.types.skills import Parameter as Parameter
    from herma.types.skills import PatchSkill as PatchSkill
    from herma.types.skills import RemoveSkillFile as RemoveSkillFile
    from herma.types.skills import Severity as Severity
    from herma.types.skills import Skill as Skill
    from herma.types.skills import SkillChange as SkillChange
    from herma.types.skills import SkillFile as SkillFile
    from herma.types.skills import SkillFinding as SkillFinding
    from herma.types.skills import SkillMatch as SkillMatch
    from herma.types.skills import SkillMatches as SkillMatches
    from herma.types.skills import SkillOffer as SkillOffer
    from herma.types.skills import SkillOp as SkillOp
    from herma.types.skills import SkillOrigin as SkillOrigin
    from herma.types.skills import SkillOutcome as SkillOutcome
    from herma.types.skills import SkillPending as SkillPending
    from herma.types.skills import SkillRefused as SkillRefused
    from herma.types.skills import SkillReport as SkillReport
    from herma.types.skills import SkillStaged as SkillStaged
    from herma.types.skills import SkillState as SkillState
    from herma.types.skills import SkillUnchanged as SkillUnchanged
    from herma.types.skills import SkillUsage as SkillUsage
    from herma.types.skills import SkillWritten as SkillWritten
    from herma.types.skills import Trust as Trust
    from herma.types.skills import UnreadableSkill as UnreadableSkill
    from herma.types.skills import Verdict as Verdict
    from herma.types.skills import WriteSkillFile as WriteSkillFile
    from herma.types.tail import TailEntry as TailEntry
    from herma.types.tail import TailHit as TailHit
    from herma.types.tidy import Proposal as Proposal
    from herma.types.tidy import ProposalKind as ProposalKind
    from herma.types.tidy import Tidied as Tidied
    from herma.types.tidy import TidyReport as TidyReport
    from herma.types.transcript import Content as Content
    from herma.types.transcript import Deletion as Deletion
    from herma.types.transcript import Hidden as Hidden
    from herma.types.transcript import Message as Message
    from herma.types.transcript import Reason as Reason
    from herma.types.transcript import SessionFilter as SessionFilter
    from herma.types.transcript import SessionInfo as SessionInfo
    from herma.types.transcript import TranscriptStats as TranscriptStats
    from herma.types.transcript import Usage as Usage
    from herma.types.transcript import Whereabouts as Whereabouts

_HOMES = {
    "chat": (
        "Finish",
        "Reply",
        "ToolCall",
    ),
    "common": (
        "Author",
        "Finding",
        "Origin",
        "Scope",
        "Who",
    ),
    "compression": (
        "Compression",
        "Condensed",
        "Expansion",
        "How",
        "LeftAlone",
    ),
    "episodes": (
        "BuiltBy",
        "Digest",
        "Episode",
        "EpisodeHit",
        "Forgotten",
        "Outcome",
        "Restored",
        "RestoredBlock",
        "SessionState",
    ),
    "facts": (
        "Fact",
        "FactSource",
    ),
    "memory": (
        "CATEGORIES",
        "DELIMITER",
        "TARGETS",
        "Add",
        "Ambiguous",
        "Applied",
        "Block",
        "Blocked",
        "Category",
        "Change",
        "Drifted",
        "Duplicate",
        "Entry",
        "Kept",
        "MemoryOp",
        "MemoryOutcome",
        "NoMatch",
        "OverBudget",
        "Pending",
        "Remove",
        "Replace",
        "Snapshot",
        "Staged",
        "StoreStatus",
        "Suggestion",
        "Target",
    ),
    "review": (
        "DIVIDES",
        "Divide",
        "Review",
        "ReviewAction",
        "ReviewKind",
        "ReviewState",
        "ReviewWrites",
    ),
    "search": (
        "ConversationSummary",
        "Dropped",
        "Hit",
        "SearchReport",
    ),
    "session": (
        "MOVES",
        "NOWHERE",
        "Circumstances",
        "CompletedTurn",
        "Context",
        "Contribution",
        "MemoryWrite",
        "Move",
        "Occasion",
        "SessionView",
    ),
    "skills": (
        "SKILL_STATES",
        "SUPPORT_FOLDERS",
        "TRUSTS",
        "CreateSkill",
        "DeleteSkill",
        "EditSkill",
        "FindMode",
        "Parameter",
        "PatchSkill",
        "RemoveSkillFile",
        "Severity",
        "Skill",
        "SkillChange",
        "SkillFile",
        "SkillFinding",
        "SkillMatch",
        "SkillMatches",
        "SkillOffer",
        "SkillOp",
        "SkillOrigin",
        "SkillOutcome",
        "SkillPending",
        "SkillRefused",
        "SkillReport",
        "SkillStaged",
        "SkillState",
        "SkillUnchanged",
        "SkillUsage",
        "SkillWritten",
        "Trust",
        "UnreadableSkill",
        "Verdict",
        "WriteSkillFile",
    ),
    "tail": (
        "TailEntry",
        "TailHit",
    ),
    "tidy": (
        "Proposal",
        "ProposalKind",
        "Tidied",
        "TidyReport",
    ),
    "transcript": (
        "Content",
        "Deletion",
        "Hidden",
        "Message",
        "Reason",
        "SessionFilter",
        "SessionInfo",
        "TranscriptStats",
        "Usage",
        "Whereabouts",
    ),
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [*_MODULE_OF]  # noqa: PLE0604  the imports above are the same list


if not TYPE_CHECKING:  # else every name would be taken for one that is there

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        if name not in _MODULE_OF:
            raise AttributeError(f"module 'herma.types' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"herma.types.{_MODULE_OF[name]}"), name)
        return value
