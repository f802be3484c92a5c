"""The end of a session, or a place where an endless chat took a turn: one question to a model, carried out with care.

The model proposes single operations on curated memory, words for the episode, and at most one skill. Each operation is
judged; together they may change a quarter of a text; and they become one change per document, taken back by one undo.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from herma.curated import MemoryStore
from herma.curated.trust import Heard
from herma.episodes import Episodes
from herma.errors import ModelBroken, ModelRefused
from herma.ports import ChatModel
from herma.reflect.book import Book
from herma.reflect.gate import GatedMemory, GatedSkills
from herma.reflect.look_back import Json, Limits, ask
from herma.reflect.loss import within
from herma.reflect.pauses import was_of_no_use, was_of_use
from herma.reflect.proposal import SCHEMA, Proposal, Proposed, SkillProposed, read_proposal
from herma.reflect.wording import again
from herma.skills.compose import compose
from herma.types import (
    TARGETS,
    Add,
    Author,
    CreateSkill,
    Episode,
    MemoryOp,
    Remove,
    Reply,
    ReviewAction,
    Scope,
    Skill,
    Target,
)


@dataclass(frozen=True, slots=True)
class Hands:
    """What a proposal is carried out with."""

    store: MemoryStore
    memory: GatedMemory
    skills: GatedSkills
    episodes: Episodes
    heard: Heard
    author: Author
    book: Book


def ask_for_proposal(
    model: ChatModel,
    request: Sequence[Json],
    tools: Sequence[Any],
    book: Book,
    cancel: threading.Event,
    limits: Limits,
) -> Proposal:
    """What the model proposes. An answer that cannot be read is asked for once more, then with a schema that servers
    can hold a model to; the first time it is left out, as it stands before everything that their cache knows.
    """
    messages = list(request)
    until = time.monotonic() + limits.seconds
    first = ask(model, messages, tools, book, cancel, until)
    read, problem = _read(first)
    if read is None:  # calls of tools are left out: nobody would answer them
        messages.append({"role": "assistant", "content": first.text.strip() or f"({problem})"})
        messages.append({"role": "user", "content": again(problem)})
        try:
            read, problem = _read(ask(model, messages, tools, book, cancel, until, SCHEMA))
        except ModelRefused as exc:  # a server that knows no schemas
            problem = f"{problem}; {exc}"
    if read is not None:
        was_of_use(model)
        return read
    why = f"The model's account of the conversation cannot be read: {problem.rstrip('.')}."
    book.give_up(why, was_of_no_use(model, problem))
    raise ModelBroken(why)


def _read(reply: Reply) -> tuple[Proposal | None, str]:
    read = read_proposal(reply.text)
    if isinstance(read, Proposal):
        return read, ""
    called = ", ".join(call.name for call in reply.tool_calls)
    return None, f"it called {called[:60]} instead" if called else read


def carry_out(proposal: Proposal, conversation: str, scope: Scope, hands: Hands, enabled: Sequence[Target]) -> None:
    """Do what was proposed, as far as it may be done. Everything is noted in the book."""
    for what, why, said in proposal.refused:
        hands.book.refuse(what, why, said)
    for (target, where), changes in _by_place(proposal.changes, scope, hands.store, enabled).items():
        _change(target, where, changes, hands)
    if proposal.episode:
        _say_better(conversation, dict(proposal.episode), hands)
    if proposal.skill is not None:
        _write_skill(proposal.skill, hands)


def _change(target: Target, scope: Scope, changes: Sequence[Proposed], hands: Hands) -> None:
    """One document: judge each operation, choose as many as may go together, write them as one change."""
    kept: list[MemoryOp] = []
    for change in changes:
        op = change.op
        content = [] if isinstance(op, Remove) else [op.content]
        outsider = hands.heard.outsider(content)
        author = hands.author if outsider is None else replace(hands.author, origin=outsider)
        besides = [one.content for one in kept if not isinstance(one, Remove)]
        objection = hands.memory.objection(target, op, scope, author, besides)
        if objection is not None:
            hands.book.refuse(f"memory {type(op).__name__.lower()}", *objection, text="".join(content), target=target)
        else:
            kept.append(op)
    status = hands.store.status(scope=scope)[TARGETS.index(target)]
    allowed = within(hands.store.entries(target, scope=scope), kept, status.limit, target)
    for op, why, said in allowed.refused:
        text = op.old_text if isinstance(op, Remove) else op.content
        hands.book.refuse(f"memory {type(op).__name__.lower()}", why, said, text=text, target=target)
    reason = "; ".join(dict.fromkeys(one.reason for one in changes if one.reason and one.op in allowed.operations))
    theirs = hands.memory.touching_a_persons(target, allowed.operations, scope)
    own = [op for op in allowed.operations if op not in theirs]
    for ops in (own, theirs):
        if ops:
            hands.memory.write(target, ops, scope, hands.author, reason[:500] or "at the end of a session")


def _by_place(
    changes: Sequence[Proposed], scope: Scope, store: MemoryStore, enabled: Sequence[Target]
) -> dict[tuple[Target, Scope], list[Proposed]]:
    """Changes by the document they are about: a project's notes, unless the entry meant is in the home's."""
    found: dict[tuple[Target, Scope], list[Proposed]] = {}
    home = replace(scope, project="")
    for change in changes:
        if change.target not in enabled:
            continue
        where = scope
        if not isinstance(change.op, Add) and change.target == "memory" and scope.project:
            old = change.op.old_text
            if not any(old in entry for entry in store.entries("memory", scope=scope)):
                where = home
        found.setdefault((change.target, where), []).append(change)
    return found


def _say_better(conversation: str, words: dict[str, str], hands: Hands) -> None:
    def by_model(known: Episode) -> Episode:
        return replace(known, **words)  # type: ignore[arg-type]

    better = hands.episodes.improve(conversation, by_model)
    if better is not None:
        hands.book.note(ReviewAction("episode", "applied", better.task, "episode"))


def _write_skill(proposed: SkillProposed, hands: Hands) -> None:
    text = compose(Skill(proposed.name, proposed.description, proposed.body))
    outsider = hands.heard.outsider([proposed.body])
    author = hands.author if outsider is None else replace(hands.author, origin=outsider)
    hands.skills.apply(CreateSkill(proposed.name, text), author=author)
