"""The three ways of looking back, put together for one conversation: after a turn, to remember, and as a whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from herma.errors import ModelCancelled, ModelError, SpendRefused
from herma.ports import ChatModel
from herma.reflect.book import Book
from herma.reflect.cadence import Due
from herma.reflect.ending import Hands, ask_for_proposal, carry_out
from herma.reflect.gate import GatedMemory, GatedSkills
from herma.reflect.hearing import Overheard, Shelf, listen
from herma.reflect.look_back import Only, look_back, prefix_of, request_of, since_of
from herma.reflect.needs import Needs, Policy
from herma.reflect.remember import keep, wanted_in
from herma.reflect.wording import end_task, turn_task
from herma.tools.memory import memory_tool
from herma.tools.registry import ToolContext, Tools
from herma.tools.skill_manage import skill_manage_tool
from herma.tools.skills import skill_view_tool, skills_list_tool
from herma.types import Author, Origin, Review, SessionView, Who

ALLOWED = ("memory", "skills_list", "skill_view", "skill_manage")


@dataclass(frozen=True, slots=True)
class Desk:
    """What one review of one conversation works with."""

    memory: GatedMemory
    skills: GatedSkills
    heard: Overheard
    author: Author
    call: Only
    schemas: tuple[Mapping[str, Any], ...]


class Passes:
    """One per opened memory."""

    def __init__(self, needs: Needs, policy: Policy) -> None:
        self._needs = needs
        self._policy = policy
        self._shelf = Shelf(needs.memory, needs.elsewhere)

    def turn(self, view: SessionView, what: Due, book: Book, cancel: threading.Event) -> None:
        """The quiet pass after a reply."""
        model = self._needs.model("review")
        if model is not None:
            self._look_back(model, view, turn_task(what), book, cancel)

    def remember(self, view: SessionView, what: Due, book: Book, hurry: threading.Event) -> None:
        """The same for something that the user asked for; what the model does not save is saved in the user's words."""
        wanted = wanted_in(view.messages)
        if wanted is None:
            return
        model = None if hurry.is_set() else self._needs.model("review")
        if model is not None:
            task = turn_task(what, [wanted.words or "(they point at what was said before)"])
            try:
                self._look_back(model, view, task, book, hurry)
            except ModelCancelled:
                pass  # a new turn was quicker: there is another way
            except SpendRefused as exc:
                book.refuse_to_spend(str(exc))
            except ModelError as exc:
                book.notice = f"The model could not be asked: {exc}"
        if not any(one.target in ("memory", "user") and one.result != "refused" for one in book.actions):
            keep(
                wanted,
                view.scope,
                view.id,
                self._needs.memory,
                self._needs.propose,
                self._shelf.entries(view.scope),
                book,
            )

    def whole(self, view: SessionView, review: Review, book: Book, cancel: threading.Event) -> None:
        """A session, or a piece of an endless chat, as a whole."""
        model = self._needs.model("memory_update")
        if model is None:
            return
        episodes = self._needs.episodes()
        if review.kind == "boundary":
            episodes.record(review.conversation, folder=view.folder)
        said = replace(view, messages=tuple(one for one in view.messages if one.id <= review.last_message))
        task = end_task(since=since_of(said.messages, review.first_message))
        request = request_of(prefix_of(said), task, view.tools, self._needs.window(model.name))
        proposal = ask_for_proposal(model, request, view.tools, book, cancel, self._policy.limits)
        desk = self._desk(said, book)
        hands = Hands(self._needs.memory, desk.memory, desk.skills, episodes, desk.heard.by, desk.author, book)
        carry_out(proposal, review.conversation, view.scope, hands, self._shelf.enabled(view.scope))

    def _look_back(self, model: ChatModel, view: SessionView, task: str, book: Book, cancel: threading.Event) -> None:
        """With the tools that the session has, as they are part of what its cache knows; where the model had none to
        save with, with ours."""
        desk = self._desk(view, book)
        has_memory = any(one.get("function", {}).get("name") == "memory" for one in view.tools)
        tools = view.tools if has_memory else desk.schemas
        request = request_of(prefix_of(view), task, tools, self._needs.window(model.name))
        look_back(model, request, tools, desk.call, book, cancel, self._policy.limits)

    def _desk(self, view: SessionView, book: Book) -> Desk:
        library = self._needs.skills()
        heard = listen(view, self._shelf.entries(view.scope))
        memory = GatedMemory(
            self._needs.memory, self._needs.propose, self._shelf.known(heard), book, writes=self._policy.writes
        )
        skills = GatedSkills(library, book, self._policy.skill_writes)
        last = next((one.id for one in reversed(view.messages) if one.role == "user"), None)
        author = Author(Who.REVIEW, Origin.AGENT_CONCLUDED, view.id, last)
        tools = Tools(
            [memory_tool(memory), skills_list_tool(library), skill_view_tool(library), skill_manage_tool(skills)],
            self._needs.alive,
        )
        context = ToolContext(view.scope, author, heard=heard.by)

        def call(name: str, arguments: str) -> str:
            answer = tools.call(name, arguments, context)
            if name == "skill_view":
                _note_view(skills.viewed, answer, arguments)
            return answer

        return Desk(memory, skills, heard, author, Only(call, ALLOWED), tuple(tools.schemas()))


def _note_view(viewed: Callable[[str, str], None], answer: str, arguments: str) -> None:
    """What the model has read of a skill, by what the tool answered."""
    shown: Mapping[str, Any] = json.loads(answer)
    if shown.get("success") is True:
        given = json.loads(arguments or "{}")
        viewed(str(shown.get("name", "")), str(given.get("file_path") or "SKILL.md"))
