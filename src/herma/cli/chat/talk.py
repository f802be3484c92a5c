"""The conversation that goes on in a terminal: a session that begins with the first message, and an agent in it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from herma.agent.loop import Agent
from herma.errors import UsageError
from herma.transcript.replay import is_complete
from herma.types import Compression, Context, Message, SessionFilter, SessionInfo

if TYPE_CHECKING:
    from herma.agent.loop import Show
    from herma.agent.mcp_servers import McpServers
    from herma.app import Herma
    from herma.ports import ChatModel
    from herma.prompt.budget import Plan
    from herma.session import Session
    from herma.tools.registry import Tool

Source: TypeAlias = Literal["cli", "cron", "tool"]
CONTEXTS: dict[Source, Context] = {"cli": "primary", "cron": "cron", "tool": "subagent"}
"""Who works, by who started the program: a person, the clock, or another agent."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    source: Source = "cli"
    project: str | None = None
    tools: bool = True
    resume: str | None = None
    """The id of a session to go on with."""
    title: str | None = None


class Talk:
    """One conversation at a time. Nothing is opened, and nothing is written, before the first message."""

    def __init__(self, h: Herma, model: ChatModel, servers: McpServers, wanted: Wanted, show: Show) -> None:
        self.h = h
        self.model = model
        self.servers = servers
        self.wanted = wanted
        self._show = show
        self._agent: Agent | None = None

    @property
    def begun(self) -> bool:
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent, in a session that is opened now if it was not yet."""
        if self._agent is None:
            self._agent = self._with(self._open())
        return self._agent

    @property
    def session(self) -> Session:
        return self.agent.session

    @property
    def info(self) -> SessionInfo | None:
        """The conversation as it is stored; nothing before the first message."""
        session_id = self._agent.session.id if self._agent else self.wanted.resume
        return self.h.transcripts.get(session_id) if session_id else None

    @property
    def title(self) -> str:
        """Its title, or the one that it gets when it begins."""
        info = self.info
        return (info.title if info else self.wanted.title) or ""

    def stored(self) -> Sequence[Message]:
        """What was said so far."""
        if self._agent is not None:
            return self._agent.session.messages
        info = self.info
        return self.h.transcripts.messages(info.id) if info else ()

    def waits_for_an_answer(self) -> bool:
        """Whether the last message has none: the program that asked ended in the middle of it."""
        messages = self.stored()
        return bool(messages) and not is_complete(messages[-1:])

    def where_it_stood(self) -> str:
        """What was noted when it was last left (next step, open tasks, folder, files), in lines; "" if nothing was."""
        info = self.info
        if info is None:
            return ""
        state = self.h.episodes.state(self.h.episodes.conversation_of(info))
        return self.h.episodes.describe(state) if state is not None else ""

    def tools(self) -> list[Tool] | None:
        """What the model may call besides our own tools; nothing at all if that is wanted."""
        return self.servers.tools() if self.wanted.tools else None

    # ── moving about ──

    def new(self) -> None:
        """End this conversation; the next message begins another."""
        self.leave("reset")
        self.wanted = replace(self.wanted, resume=None, title=None)

    def resume(self, session_id: str) -> None:
        """Go on with another conversation."""
        self.leave("switched")
        self.wanted = replace(self.wanted, resume=session_id, title=None)

    def branch(self, turns: int = 0) -> str:
        """Go on in a copy of this conversation, without its last turns. → the id of the one that it was."""
        info = self.info
        if info is None:
            raise UsageError("There is nothing to branch off yet.", hint="Say something first.")
        old = self.session
        begins = [at for at, message in enumerate(old.messages) if message.role == "user"]
        if turns and turns >= len(begins):
            there = "There is 1 turn" if len(begins) == 1 else f"There are {len(begins)} turns"
            raise UsageError(f"{there}; a branch needs at least one.")
        after = old.messages[begins[-turns] - 1].id if turns else None
        self.leave("branched")
        source = self.wanted.source
        self._agent = self._with(self.h.branch(old.id, after=after, source=source, tools=self.tools()))
        return old.id

    def undo(self, turns: int = 1) -> str:
        """Take back the last turns. → the text of the first of them, to be edited."""
        if self.info is None:
            raise UsageError("There is nothing to take back yet.")
        return self.session.rewind(turns)

    def rename(self, title: str) -> str:
        """Give it a title; one that has not begun gets it when it does."""
        info = self.info
        if info is None:
            self.wanted = replace(self.wanted, title=title)
            return title
        return self.h.transcripts.rename(info.id, title) or title

    def compress(self, topic: str = "") -> Compression:
        if self.info is None:
            raise UsageError("There is nothing to make shorter yet.")
        return self.session.compress(topic)

    def leave(self, reason: str = "closed") -> None:
        """End the session, if one was opened."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.session.close(reason)

    # ── what is shown about it ──

    def plan(self) -> Plan | None:
        return self._agent.session.working_memory() if self._agent else None

    def cost(self) -> float | None:
        """What it cost so far; nothing where prices are not known."""
        info = self.info
        if info is None:
            return None
        total = self.h.cost(info.id).total
        return total.cost if total.calls else None

    # ── steps ──

    def _open(self) -> Session:
        wanted = self.wanted
        place = _here()
        return self.h.session(
            wanted.source,
            project=wanted.project,
            resume=wanted.resume,
            title=wanted.title,
            model=self.model.name,
            folder=place if not wanted.resume else None,
            context=CONTEXTS[wanted.source],
            tools=self.tools(),
        )

    def _with(self, session: Session) -> Agent:
        steps = self.h.settings.chat.max_steps
        return Agent(session, self.model, max_steps=steps, tools=self.wanted.tools, show=self._show)


def latest(h: Herma, source: Source, project: str | None) -> SessionInfo | None:
    """The conversation that was active last: here, if there is one of this folder, else anywhere."""
    place = _here()
    everywhere = SessionFilter(source=source, project=project, archived=False, delegated=False)
    for which in (replace(everywhere, folder=place) if place else everywhere, everywhere):
        found = h.transcripts.list(which, limit=1)
        if found:
            return found[0]
    return None


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was deleted
        return None
