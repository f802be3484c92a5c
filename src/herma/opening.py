"""How a session begins: fresh, resumed where it was left, or branched off another.

A fresh one assembles its prompt once. A resumed one replays the stored prompt to the byte, unless something changed
that it must not ignore (who the agent is, what the caller says); then it goes on as a new session of the same
conversation.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from herma.compression.engine import Room
from herma.errors import UsageError
from herma.features import Company, Invite, Watchers, alone, prompt_with
from herma.memory.store import MemoryStore
from herma.prompt.assemble import BINDING, ContextFile, Prompt, Tiers, assemble, cap_for
from herma.prompt.budget import Budget, Plan, hold
from herma.prompt.fence import NOTES
from herma.prompt.ledger import FIVE_MINUTES, CallRows, before
from herma.prompt.tokens import TokenCounter, counter_for
from herma.providers.guard import Trouble
from herma.session import News, Parts, Session, nobody, tells_of_changes
from herma.tools.registry import Tool, Tools
from herma.transcript.log import Transcripts, sanitized
from herma.transcript.messages import new_session_id, sendable, text_of
from herma.types import NOWHERE, TARGETS, Circumstances, Message, Reason, Scope, SessionInfo, SessionView, Snapshot

_FIRST_ONES = 50
"""Messages of a session among which the user's first one is looked for."""


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
    provider: str = ""
    folder: str = ""
    branch: str = ""
    tools: Sequence[Tool] | None = ()
    """What the model may call besides our own tools; `None`: nothing at all."""

    def __post_init__(self) -> None:
        """Refuse what is no text, and a title that is too long, before anything is opened or said."""
        for what, given in (("system message", self.system_message), ("title", self.title), ("model", self.model)):
            if given is not None and not isinstance(given, str):
                said = f"The {what} of a session is text, not {type(given).__name__}."
                raise UsageError(said, hint="Give it as a string.")
        sanitized(self.title)


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
        invite: Invite = alone,
        troubled: Callable[[Trouble], None] = lambda _: None,
        news: News = nobody,
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
        self._invite = invite
        self._troubled = troubled
        self._news = news

    def new(self, wish: Wish) -> Session:
        """A fresh session. Its row is written with its first message. A parent's conversation goes on in it."""
        info = self._info(wish)
        parent = self._transcripts.get(wish.parent) if wish.parent and info.reason == "resume" else None
        if parent is None:
            return Session(self._parts(wish, info))
        info, history = replace(info, conversation=parent.conversation), self._history(parent)
        last = before(self._metering.calls.last([parent.id]), history, "resumed")
        parts = replace(self._parts(wish, info, history), goes_on_from=last)
        return self._gone_on(Session(parts, history, after=parent))

    def resume(self, wanted: str, wish: Wish) -> Session:
        """Go on with a conversation, found by id, the beginning of one, or title; for a user, with one of theirs."""
        found = self._transcripts.resolve(wanted, user=wish.scope.user or None)
        if found is None:
            raise UsageError(f"There is no session {wanted!r}.", hint="`herma sessions list` shows them.")
        info = self._transcripts.get(self._transcripts.resume_target(found))
        if info is None:
            raise UsageError(f"The session {wanted!r} is gone.", hint="`herma sessions list` shows what is there.")
        info = replace(info, model=wish.model or info.model or self._model)
        wish = _as_before(wish, info)
        history = self._history(info)
        stored = self._transcripts.system_prompt(info.id)
        changed = "" if stored is None else _changed(stored, assemble(self._tiers(wish, info, Snapshot())))
        last = self._metering.calls.last([member.id for member in self._transcripts.conversation(info.id)])
        goes_on_from = before(last, history, "resumed")
        if stored is not None and not changed:
            self._transcripts.reopen(info.id)
            shown = self._shown(info)
            parts = self._parts(wish, info, history, prompt=stored)
            session = Session(replace(parts, goes_on_from=goes_on_from, shown=shown), history, stored=True)
            return self._continued(session)
        said = (f"The prompt was rebuilt: {changed} changed.",) if changed else ()
        parts = self._parts(wish, self._follower(wish, info, "resume"), history)
        parts = replace(parts, goes_on_from=goes_on_from, warnings=(*parts.warnings, *said))
        return self._gone_on(Session(parts, history, after=info))

    def branch(self, session_id: str, wish: Wish, *, after: int | None = None) -> Session:
        """A conversation of its own that begins like another, up to and including the message `after`."""
        info = self._transcripts.get(session_id)
        if info is None:
            raise UsageError(f"There is no session {session_id!r}.", hint="`herma sessions list` shows them.")
        kept = [message for message in self._history(info) if after is None or message.id <= after]
        prompt = self._transcripts.system_prompt(session_id)
        model = wish.model or info.model
        wish = replace(_as_before(wish, info), source=wish.source, parent=session_id, model=model)
        parts = self._parts(wish, replace(self._info(wish), reason="branch"), kept, prompt=prompt)
        last = before(self._metering.calls.last([session_id]), kept, "branched")
        shown = self._shown(info) if prompt is not None else None
        session = Session(replace(parts, goes_on_from=last, shown=shown))
        session.begin_with([replace(message, id=0, session_id="") for message in kept])
        return self._continued(session)

    def look(self, session_id: str | None, wish: Wish) -> Plan:
        """The window of a stored session, or of one that would begin now. Opens and writes nothing."""
        info = self._transcripts.get(session_id) if session_id else self._info(wish)
        if info is None:
            raise UsageError(f"There is no session {session_id!r}.", hint="`herma sessions list` shows them.")
        prompt = self._transcripts.system_prompt(info.id) if session_id else None
        if prompt is None:
            prompt = self._rehearsed(replace(wish, scope=info.scope), info)
        history = self._history(info) if session_id else []
        everything = self._transcripts.messages(info.id, include_hidden=True) if session_id else []
        model, how = info.model or self._model, self._metering
        compacted = [message for message in everything if message.hidden == "compacted"]
        return hold(how.budget.of(model), how.counter(model), prompt, self._tools.schemas(), history, compacted)

    # ── steps ──

    def _parts(
        self,
        wish: Wish,
        info: SessionInfo,
        history: Sequence[Message] = (),
        *,
        prompt: str | None = None,
        along: tuple[Company, Watchers] | None = None,
    ) -> Parts:
        """What a session is made of; with a `prompt`, it is replayed and nobody is asked to add to it.

        `along` is who comes along already, because this session goes on from another.
        """
        live = self._memory.follow(info.scope)
        view = self._view(wish, info, history)
        company, watchers = along or self._company(view)
        tools = Tools([]) if wish.tools is None else self._tools.including([*company.tools, *wish.tools])
        made = (
            self._prompt(self._tiers(wish, info, live.snapshot), company, view, tools=wish.tools is not None)
            if prompt is None
            else Prompt(prompt, "", (), (*live.snapshot.warnings, *company.warnings))
        )
        return Parts(
            info=info,
            system_prompt=made.text,
            memory=live,
            transcripts=self._transcripts,
            tools=tools,
            clock=self._clock,
            replayed=self._history,
            anew=lambda: self.new(replace(wish, title=None, parent=None)),
            rebuilt=lambda info, reason: self._rebuilt(wish, info, reason, (company, watchers)),
            watchers=watchers,
            circumstances=wish.circumstances,
            folder=wish.folder,
            room=company.room or Room(),
            calls=self._metering.calls,
            counter=self._metering.counter(info.model),
            budget=self._metering.budget,
            cache_lifetime=self._metering.cache_lifetime,
            live_updates=self._live_updates,
            result_tokens=self._result_tokens,
            written=self._written,
            news=self._news,
            warnings=made.warnings,
            outside=tuple(section.text for section in made.sections if section.name.startswith("provider ")),
        )

    def _company(self, view: SessionView) -> tuple[Company, Watchers]:
        company = self._invite(view, False)
        return company, Watchers(company.watchers, shown=self._troubled)

    def _tiers(self, wish: Wish, info: SessionInfo, memory: Snapshot) -> Tiers:
        """What the prompt is made of, besides what others add."""
        files = wish.files()
        known = () if wish.tools is None else self._tools.names()
        return Tiers(
            identity=files.identity,
            system_message=wish.system_message,
            guidance=tuple(topic for topic in ("memory", "session_search") if topic in known),
            targets=tuple(target for target in TARGETS if self._memory.is_enabled(target)),
            project=tuple(ContextFile(name, text) for name, text in files.project),
            memory=memory,
            date=datetime.date.fromtimestamp(info.started),  # noqa: DTZ012  the user's own day
            source=wish.source,
            platform=wish.circumstances.platform,
            cap=cap_for(self._metering.budget.of(info.model).window),
        )

    def _prompt(
        self, tiers: Tiers, company: Company, view: SessionView, *, tools: bool = True, rehearsal: bool = False
    ) -> Prompt:
        model = view.info.model
        plan = self._metering.budget.of(model).with_usage({})
        room = plan["system"].room if tools else 0, plan["memory"].room  # a skill that cannot be read is no help
        count = self._metering.counter(model).count
        return prompt_with(tiers, company, view, room=room, count=count, rehearsal=rehearsal)

    def _rehearsed(self, wish: Wish, info: SessionInfo) -> str:
        """The prompt of a session that would begin now."""
        view = self._view(wish, info)
        tiers = self._tiers(wish, info, self._memory.follow(info.scope).snapshot)
        return self._prompt(tiers, self._invite(view, True), view, rehearsal=True).text

    def _view(self, wish: Wish, info: SessionInfo, history: Sequence[Message] = ()) -> SessionView:
        return SessionView(info, wish.circumstances, tuple(history), info.model or "", wish.folder)

    def _rebuilt(self, wish: Wish, info: SessionInfo, reason: Reason | None, along: tuple[Company, Watchers]) -> Parts:
        """The parts of a session whose prompt is built anew. What was stored goes on under another id."""
        wish = _as_before(wish, info)
        return self._parts(wish, self._follower(wish, info, reason) if reason else info, along=along)

    def _follower(self, wish: Wish, info: SessionInfo, reason: Reason) -> SessionInfo:
        follower = self._info(replace(wish, parent=info.id, title=info.title))
        return replace(follower, reason=reason, conversation=info.conversation)

    def _shown(self, info: SessionInfo) -> str:
        """The state of curated memory that the stored prompt of a session shows: what its first message knew, unless
        that had to be told of a change; then the model is taken to know nothing."""
        for message in self._transcripts.messages(info.id, include_hidden=True, limit=_FIRST_ONES):
            if message.told:
                return "{}" if NOTES["update"] in text_of(message.sent) else message.told
        return "{}"

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
            reason=_reason(wish),
            provider=wish.provider,
            chat_type=wish.circumstances.chat_type,
            folder=wish.folder,
            branch=wish.branch,
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

    def _gone_on(self, session: Session) -> Session:
        """A new prompt holds memory as it is, so that nothing is left to tell, unless what was told is overtaken."""
        return self._continued(session) if tells_of_changes(session.messages) else session

    def _continued(self, session: Session) -> Session:
        session.remember_what_was_told()
        return session


def _reason(wish: Wish) -> Reason:
    """Why a session follows its parent: to do a part of its work, or to go on with it."""
    if not wish.parent:
        return "new"
    return "resume" if wish.circumstances.context == "primary" else "delegation"


def _as_before(wish: Wish, info: SessionInfo) -> Wish:
    """The wish of somebody who goes on with a session: what they do not say is as it was."""
    around = wish.circumstances
    return replace(
        wish,
        scope=info.scope,
        source=info.source,
        model=info.model,
        provider=wish.provider or info.provider,
        folder=wish.folder or info.folder,
        branch=wish.branch or info.branch,
        circumstances=replace(around, chat_type=around.chat_type or info.chat_type),
    )


def _changed(stored: str, prompt: Prompt) -> str:
    """Which section that counts changed; nothing for none. They stand first, so the beginning of a stored prompt tells,
    up to where the next section begins."""
    binding = [section for section in prompt.sections if section.name in BINDING]
    following = [section.text.partition("\n")[0] for section in prompt.sections[len(binding) :][:1]]
    if stored.startswith("\n\n".join([*(section.text for section in binding), *following])):
        return ""
    identity = binding[0].text
    if stored.startswith(f"{identity}\n\n"):
        return "the system message"
    return "the identity (SOUL.md)"
