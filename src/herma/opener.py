"""How a session begins: fresh, resumed where it was left, or branched off another.

A fresh one assembles its prompt once. A resumed one replays the stored prompt to the byte, unless something changed
that it must not ignore (who the agent is, what the caller says); then it goes on as a new session of the same
conversation.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from herma.counting import counter_for
from herma.curated import MemoryStore
from herma.errors import UsageError
from herma.ports import CallRows, TokenCounter
from herma.prompt.budget import Plan
from herma.prompt.context import ContextFile, cap_for
from herma.prompt.ledger import FIVE_MINUTES
from herma.prompt.tiers import BINDING, Prompt, Tiers, assemble
from herma.session import NOWHERE, Circumstances, Parts, Session
from herma.tools import Tools
from herma.transcript import Transcripts
from herma.transcript.log import new_session_id
from herma.transcript.replay import sendable
from herma.turn.account import before
from herma.turn.window import Budget, hold
from herma.types import Message, Scope, SessionInfo


@dataclass(frozen=True, slots=True)
class Files:
    """What files say about the agent and the project: SOUL.md, and AGENTS.md and the like by name."""

    identity: str = ""
    project: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Metering:
    """How calls are counted and written down, and how the window is divided."""

    calls: CallRows
    counter: Callable[[str | None], TokenCounter] = counter_for
    budget: Budget = field(default_factory=Budget)
    cache_lifetime: float = FIVE_MINUTES


@dataclass(frozen=True, slots=True)
class Wish:
    """What a caller asks for when it opens a session."""

    source: str
    scope: Scope
    system_message: str = ""
    title: str | None = None
    parent: str | None = None
    model: str | None = None
    circumstances: Circumstances = NOWHERE
    files: Callable[[], Files] = Files


class Opener:
    """Opens sessions over one set of stores."""

    def __init__(
        self,
        memory: MemoryStore,
        transcripts: Transcripts,
        tools: Tools,
        *,
        clock: Callable[[], float],
        metering: Metering,
        model: str = "",
        live_updates: bool = True,
        result_tokens: int = 500,
        written: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._memory = memory
        self._transcripts = transcripts
        self._tools = tools
        self._clock = clock
        self._metering = metering
        self._model = model or None
        self._live_updates = live_updates
        self._result_tokens = result_tokens
        self._written = written

    def new(self, wish: Wish) -> Session:
        """A fresh session. Its row is written with its first message."""
        parts, _ = self._parts(wish, self._info(wish))
        return Session(parts)

    def resume(self, wanted: str, wish: Wish) -> Session:
        """Go on with a conversation, found by id, the beginning of one, or title; for a user, with one of theirs."""
        found = self._transcripts.resolve(wanted, user=wish.scope.user or None)
        if found is None:
            raise UsageError(f"There is no session {wanted!r}.", hint="`herma sessions list` shows them.")
        info = self._transcripts.get(self._transcripts.resume_target(found))
        if info is None:
            raise UsageError(f"The session {wanted!r} is gone.", hint="`herma sessions list` shows what is there.")
        info = replace(info, model=wish.model or info.model or self._model)
        wish = replace(wish, scope=info.scope, source=info.source, model=info.model)
        parts, prompt = self._parts(wish, info)
        history = self._history(info)
        stored = self._transcripts.system_prompt(info.id)
        changed = stored is not None and _must_rebuild(stored, prompt)
        last = self._metering.calls.last([member.id for member in self._transcripts.conversation(info.id)])
        parts = replace(parts, goes_on_from=before(last, history, "resumed"))
        if stored is not None and not changed:
            self._transcripts.reopen(info.id)
            return self._continued(Session(replace(parts, system_prompt=stored), history, stored=True))
        said = (f"The prompt was rebuilt: {' or '.join(BINDING)} changed.",) if changed else ()
        parts = replace(parts, info=self._follower(wish, info), warnings=(*parts.warnings, *said))
        return Session(parts, history)  # the new prompt holds memory as it is: nothing is left to tell

    def branch(self, session_id: str, wish: Wish, *, after: int | None = None) -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        info = self._transcripts.get(session_id)
        if info is None:
            raise UsageError(f"There is no session {session_id!r}.", hint="`herma sessions list` shows them.")
        kept = [message for message in self._history(info) if after is None or message.id <= after]
        prompt = self._transcripts.system_prompt(session_id)
        wish = replace(wish, scope=info.scope, parent=session_id, model=wish.model or info.model)
        parts, _ = self._parts(wish, replace(self._info(wish), reason="branch"))
        last = before(self._metering.calls.last([session_id]), kept, "branched")
        session = Session(replace(parts, system_prompt=prompt or parts.system_prompt, goes_on_from=last))
        session.begin_with([replace(message, id=0, session_id="") for message in kept])
        return self._continued(session)

    def look(self, session_id: str | None, wish: Wish) -> Plan:
        """The window of a stored session, or of one that would begin now. Opens and writes nothing."""
        info = self._transcripts.get(session_id) if session_id else self._info(wish)
        if info is None:
            raise UsageError(f"There is no session {session_id!r}.", hint="`herma sessions list` shows them.")
        prompt = self._transcripts.system_prompt(info.id) if session_id else None
        if prompt is None:
            parts, _ = self._parts(replace(wish, scope=info.scope), info)
            prompt = parts.system_prompt
        history = self._history(info) if session_id else []
        everything = self._transcripts.messages(info.id, include_hidden=True) if session_id else []
        model, how = info.model or self._model, self._metering
        compacted = [message for message in everything if message.hidden == "compacted"]
        return hold(how.budget.of(model), how.counter(model), prompt, self._tools.schemas(), history, compacted)

    # ── steps ──

    def _parts(self, wish: Wish, info: SessionInfo) -> tuple[Parts, Prompt]:
        live = self._memory.follow(info.scope)
        files = wish.files()
        tiers = Tiers(
            identity=files.identity,
            system_message=wish.system_message,
            guidance=tuple(topic for topic in ("memory", "session_search") if topic in self._tools.names()),
            project=tuple(ContextFile(name, text) for name, text in files.project),
            memory=live.snapshot,
            date=datetime.date.fromtimestamp(info.started),  # noqa: DTZ012  the user's own day
            source=wish.source,
            platform=wish.circumstances.platform,
            cap=cap_for(self._metering.budget.of(info.model).window),
        )
        prompt = assemble(tiers)
        parts = Parts(
            info=info,
            system_prompt=prompt.text,
            memory=live,
            transcripts=self._transcripts,
            tools=self._tools,
            clock=self._clock,
            replayed=self._history,
            anew=lambda: self.new(replace(wish, title=None, parent=None)),
            rebuilt=lambda info, stored: self._rebuilt(wish, info, stored=stored),
            circumstances=wish.circumstances,
            calls=self._metering.calls,
            counter=self._metering.counter(info.model),
            budget=self._metering.budget,
            cache_lifetime=self._metering.cache_lifetime,
            live_updates=self._live_updates,
            result_tokens=self._result_tokens,
            written=self._written,
            warnings=prompt.warnings,
        )
        return parts, prompt

    def _rebuilt(self, wish: Wish, info: SessionInfo, *, stored: bool) -> Parts:
        """The parts of a session whose prompt is built anew. What was stored goes on under another id."""
        wish = replace(wish, scope=info.scope, source=info.source, model=info.model)
        return self._parts(wish, self._follower(wish, info) if stored else info)[0]

    def _follower(self, wish: Wish, info: SessionInfo) -> SessionInfo:
        return replace(self._info(replace(wish, parent=info.id, title=info.title)), reason="resume")

    def _info(self, wish: Wish) -> SessionInfo:
        now = self._clock()
        session_id = new_session_id(now)
        return SessionInfo(
            id=session_id,
            source=wish.source,
            scope=wish.scope,
            started=now,
            conversation=session_id,
            title=wish.title,
            model=wish.model or self._model,
            parent=wish.parent,
            reason="resume" if wish.parent else "new",
        )

    def _history(self, info: SessionInfo) -> list[Message]:
        """What the model has been sent: of this session, and of those it went on from without a summary."""
        chain = [info]
        while chain[-1].reason == "resume" and chain[-1].parent:
            before = self._transcripts.get(chain[-1].parent)
            if before is None or before in chain:
                break
            chain.append(before)
        messages = [one for session in reversed(chain) for one in self._transcripts.messages(session.id)]
        return sendable(messages)

    def _continued(self, session: Session) -> Session:
        session.remember_what_was_told()
        return session


def _must_rebuild(stored: str, prompt: Prompt) -> bool:
    """Whether a section that counts changed. They stand first, so the beginning tells, up to where the next begins."""
    binding = [section.text for section in prompt.sections if section.name in BINDING]
    following = [section.text.partition("\n")[0] for section in prompt.sections[len(binding) :][:1]]
    return not stored.startswith("\n\n".join([*binding, *following]))
