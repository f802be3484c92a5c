"""★ one conversation, turn by turn: before_model → call_tool → after_model → close; rewind, reload, continue."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, TypeAlias

from herma.compression.engine import Room
from herma.compression.summary import Compression
from herma.errors import StoreChanged, UsageError
from herma.features import Recalled, Watchers
from herma.memory.live import LiveMemory
from herma.prompt.assemble import ContextFile, cache_breakpoints, show
from herma.prompt.budget import Budget, Plan, hold
from herma.prompt.fence import NOTES, TAG, fence, sanitize
from herma.prompt.ledger import FIVE_MINUTES, ONE_HOUR, Account, Before, CallRows, Frame, Meter, before, recalled_in
from herma.prompt.tokens import TokenCounter
from herma.prompt.tool_results import compress_result, digest
from herma.review.gate import Ear
from herma.tools.registry import Json, ToolContext, Tools, Turn
from herma.transcript.log import Transcripts
from herma.transcript.messages import (
    INTERRUPTED,
    all_from_wire,
    as_sent,
    is_complete,
    sendable,
    text_of,
    unanswered,
    with_addition,
)
from herma.transcript.rows import SessionNews
from herma.types import (
    NOWHERE,
    Author,
    Circumstances,
    CompletedTurn,
    Content,
    Hidden,
    MemoryWrite,
    Message,
    Move,
    Origin,
    Reason,
    SessionInfo,
    SessionView,
    Usage,
    Who,
)

# ---------- turn.others
#
# Another program in the same session: what it said is taken in at the end, and what it did to it is told.
#
# A session is held by whoever has it open, and nobody locks it: two programs may go on with the same one. Each keeps
# the order in which it has sent messages, so that its prefix only grows; what the other said comes after that, whole
# turns only, as it was sent there. Where the other has shortened the conversation, taken something back or gone on
# elsewhere, there is no way on from here but to resume it.

News = Callable[[str], SessionNews | None]
Stored = Callable[[str], Sequence[Message]]
"""Every message of a session in order, hidden ones too."""


def nobody(session_id: str) -> None:  # noqa: ARG001
    """No other program is looked for."""
    return


class Others:
    """What one session knows of the messages that are stored under its id."""

    def __init__(self, news: News, stored: Stored) -> None:
        self._news = news
        self._stored = stored
        self._visible = 0
        """How many messages were stored, besides those of the history, when that was last read."""
        self._newest = 0

    def look(self, session: SessionInfo, history: Sequence[Message], *, branches: bool = False) -> list[Message]:
        """What others have said that this history does not have. `StoreChanged` where they have moved the conversation;
        who `branches` off it minds no other that does. One row is read, as long as nobody else was here.
        """
        news = self._news(session.id)
        if news is None:
            return []
        if news.follower and not branches:
            raise _gone_on(news)
        begins = next((at for at, message in enumerate(history) if message.session_id == session.id), len(history))
        newest = max(history[-1].id if begins < len(history) else 0, self._newest)
        if (news.visible, news.newest) == (len(history) - begins + self._visible, newest):
            return []
        everything = self._stored(session.id)
        stored = [message for message in everything if not message.hidden]
        hidden = {message.id: message.hidden for message in everything if message.hidden}
        gone = [message for message in history[begins:] if message.id in hidden]
        if gone:
            raise _changed(session, gone, hidden[gone[-1].id])
        fresh = unheard(stored, history[begins:])
        self._visible = len(stored) - (len(history) - begins) - len(fresh)
        self._newest = stored[-1].id if stored else 0
        return fresh


def unheard(stored: Sequence[Message], mine: Sequence[Message]) -> list[Message]:
    """Whole turns that are stored and not among mine, in order. Pure."""
    known = {message.id for message in mine}
    unknown = [message for message in stored if message.id not in known]
    return sendable(unknown[: settled(unknown)])


def settled(messages: Sequence[Message]) -> int:
    """How many of these are whole turns: they end with a reply, and no tool that was called is still to answer."""
    waiting: set[str] = set()
    end = 0
    for at, message in enumerate(messages, 1):
        waiting |= {str(call.get("id", "")) for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
        if not waiting and is_complete([message]):
            end = at
    return end


def _gone_on(news: SessionNews) -> StoreChanged:
    how = "has shortened" if news.reason == "compression" else "goes on with"
    return StoreChanged(
        f"Another program {how} this conversation; it goes on as session {news.follower}.",
        hint=f"Go on there: {_ways(news.follower)}",
    )


def _changed(session: SessionInfo, gone: Sequence[Message], hidden: Hidden) -> StoreChanged:
    turns = sum(message.role == "user" for message in gone)
    what = (
        "shortened this conversation in its place"
        if hidden == "compacted"
        else f"taken back the last {'turn' if turns == 1 else f'{turns} turns'} of this conversation"
    )
    return StoreChanged(
        f"Another program has {what}, so that what was sent here before does not hold any more.",
        hint=f"Take it up as it is now: {_ways(session.id)}",
    )


def _ways(id_: str) -> str:
    return f"/resume {id_} in the chat, herma chat --resume {id_}, or h.session(resume={id_!r})."


# ---------- turn.handed
#
# What callers hand to a session and get from it: checked, cleaned, and copied so that ours stays as it was. Pure.


def replies_of(reply: Any) -> list[Mapping[str, Any]]:
    """A reply as messages."""
    if isinstance(reply, str):
        return [{"role": "assistant", "content": reply}]
    if isinstance(reply, Mapping):
        return [reply]
    if not isinstance(reply, Iterable):
        raise UsageError(
            f"A reply is text or messages, not {type(reply).__name__}.",
            hint='A model that only calls tools: after_model({"role": "assistant", "tool_calls": […]}).',
        )
    return list(reply)


def user_content(given: object) -> Content:
    """What the user says, without any fence: recalled text is never taken for something that was said."""
    if isinstance(given, str):
        return cleaned(given)
    if not isinstance(given, list) or not all(isinstance(part, dict) for part in given):
        raise UsageError("A user's message is text, or a list of parts.", hint='For example: "Why?"')
    return cleaned(given)


def as_kept(message: Message, limit: int, seen: dict[str, str]) -> Message:
    """What came back as it is kept: of a tool's result, the model gets the short form again and again.

    The whole of it is in the transcript. `seen` are results that came before, by their digests; it grows.
    """
    if message.role != "tool" or not isinstance(message.content, str) or message.sent is not None:
        return replace(message, content=cleaned(message.content)) if message.role == "assistant" else message
    call_id = message.tool_call_id
    short = compress_result(message.content, limit_tokens=limit, reference=call_id, seen=seen)
    if call_id:
        seen.setdefault(digest(message.content), call_id)
    return replace(message, sent=short.text) if short.text != message.content else message


def handed_out(message: Message) -> dict[str, Any]:
    """The message as it is sent, for a caller who may change it: ours stays as it was."""
    return {key: _copied(value) for key, value in as_sent(message).items()}


def cleaned(content: Content) -> Content:
    """What came back or in, without any fence."""
    if isinstance(content, list):
        return [
            {**part, "text": sanitize(part["text"])} if isinstance(part.get("text"), str) else part for part in content
        ]
    return sanitize(content) if content is not None else None


def afresh(messages: Sequence[Message], told: str) -> list[Message]:
    """Messages as a conversation begins with them that stands for another one.

    Updates of memory that were put into them are left out: the prompt that goes before them now holds what is current,
    and `told` says so.
    """
    return [_afresh(message, told) for message in messages]


def tells_of_changes(messages: Iterable[Message]) -> bool:
    """Whether the model was told of a change of memory in one of them: a prompt built anew does not take that back."""
    return any(NOTES["update"] in text_of(message.sent) for message in messages if message.sent is not None)


def shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """How many messages both begin with, as they are sent."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if as_sent(old) != as_sent(new):
            return at
    return min(len(before), len(after))


def _afresh(message: Message, told: str) -> Message:
    message = replace(message, id=0, session_id="", hidden="", told=told)
    if message.sent is None:
        return replace(message, content=cleaned(message.content)) if message.role != "tool" else message
    if message.role != "user":
        return message
    sent = with_addition(message.content, recalled_in(message.sent))
    if sent == message.sent:
        return message
    return replace(message, sent=sent if sent != message.content else None, tokens=None)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


# ---------- turn.moving
#
# Moves of a conversation besides growing: which messages they touch, and how other messages come to stand for it.

_CUT_OFF = "[This reply was interrupted.]"
_NOT_RUN = "[Interrupted before this tool had run.]"


def last_turn(history: Sequence[Message]) -> CompletedTurn:
    """The turn that ends here."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    messages = tuple(history[begins[-1] :] if begins else history)
    return CompletedTurn(len(begins), text_of(messages[0].content), text_of(messages[-1].content), messages)


def cut_off(history: Sequence[Message], partial: str) -> list[Message]:
    """What makes an unfinished turn whole: results for tools that did not run, and the reply as far as it came."""
    missing = [Message("tool", _NOT_RUN, tool_call_id=call_id) for call_id in unanswered(history)]
    text = sanitize(partial).strip()
    return [*missing, Message("assistant", f"{text}\n\n{_CUT_OFF}".lstrip(), finish_reason=INTERRUPTED)]


def turn_begins(history: Sequence[Message], turns: int) -> int:
    """Where the last so many turns begin."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    if not isinstance(turns, int) or not 1 <= turns <= len(begins):
        there = "There is 1 turn" if len(begins) == 1 else f"There are {len(begins)} turns"
        raise UsageError(f"{there}; {turns} cannot be taken back.")
    return begins[-turns]


def spoken_in(history: Sequence[Message], session_id: str) -> dict[str, int]:
    """Where the user first speaks, in each session that the conversation went through."""
    begins: dict[str, int] = {}
    for message in history:
        if message.role == "user":
            begins.setdefault(message.session_id or session_id, message.id)
    return begins


def start_session(transcripts: Transcripts, info: SessionInfo, system_prompt: str) -> None:
    """Write the row of a session."""
    transcripts.start(
        info.source,
        title=info.title,
        parent=info.parent,
        reason=info.reason,
        scope=info.scope,
        model=info.model,
        system_prompt=system_prompt,
        session_id=info.id,
        started=info.started,
        provider=info.provider,
        chat_type=info.chat_type,
        folder=info.folder,
        branch=info.branch,
    )


def lies_in(history: Sequence[Message], session_id: str) -> bool:
    """Whether all of the conversation is in one session, so that it can be shortened in its place."""
    return all(message.session_id == session_id for message in history)


def stand_in(
    transcripts: Transcripts,
    account: Account,
    history: Sequence[Message],
    instead: Sequence[Message],
    info: SessionInfo,
    told: str,
    system_prompt: str | None,
) -> tuple[list[Message], Before | None]:
    """Write messages that stand for a conversation: into a session of their own, or in its place, which hides it.

    With a `system_prompt` the session `info` is begun. What another program has added to the conversation meanwhile
    goes along. → the messages as they are kept now, and what the next call is compared with.
    """
    at = history[-1]
    later = transcripts.messages(at.session_id, after=at.id)
    given = [account.weighed(message) for message in afresh(sendable([*instead, *later]), told)]
    if system_prompt is not None:
        start_session(transcripts, info, system_prompt)
        ids = transcripts.append(info.id, given)
        while fresh := transcripts.messages(at.session_id, after=(later or [at])[-1].id):  # came in this moment
            later = fresh
            more = [account.weighed(message) for message in afresh(fresh, told)]
            given, ids = given + more, ids + transcripts.append(info.id, more)
    else:
        ids = transcripts.append(info.id, given, standing_for=(later or [at])[-1].id)
    kept = [replace(message, id=id_, session_id=info.id) for message, id_ in zip(given, ids, strict=True)]
    last = account.last
    if last is None:
        return kept, None
    return kept, Before(last, min(shared(history, kept), last.messages), "compression")


# ---------- turn.recalled
#
# What parts recall for a turn, made fit for the user's message: scanned, cut to size, and nothing said twice. Pure.
#
# It comes from elsewhere, so a paragraph that the scanner takes for an attack is withheld and named. What the
# conversation was already sent is left out: it is still there, and would only cost again.

LARGEST = 12_000
"""Characters that one part may add to a message."""
_READ = 200_000
"""Characters that are looked at; more would not be shown anyway."""
_ITEM = re.compile(r"[-*•] |\d{1,3}[.)] ")
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def fit(recalled: Iterable[Recalled], said: set[str]) -> tuple[list[Recalled], list[str]]:
    """What is left to be put into the message, and what people should know. `said` is what has been sent; it grows."""
    kept: list[Recalled] = []
    warnings: list[str] = []
    for one in recalled:
        shown = show(ContextFile(one.by, one.text[:_READ]), LARGEST)
        warnings += shown.warnings
        text = unsaid(shown.text, said)
        if text:
            kept.append(Recalled(one.by, text, one.outside))
    return kept, warnings


def unsaid(text: str, said: set[str]) -> str:
    """`text` without the paragraphs and list items that were said before. What is left counts as said."""
    left: list[str] = []
    fresh: set[str] = set()
    for paragraph in _PARAGRAPH.split(text):
        kept, keys = _unsaid_lines(paragraph.split("\n"), said)
        fresh |= keys
        if kept:
            left.append("\n".join(kept))
    said |= fresh
    return "\n\n".join(left).strip() if fresh else ""


def said_in(messages: Sequence[Message]) -> set[str]:
    """What a conversation was sent of earlier recall."""
    said: set[str] = set()
    for message in messages:
        if message.sent is not None:
            unsaid(recalled_in(message.sent).removesuffix(f"\n</{TAG}>"), said)
    return said


def _unsaid_lines(lines: Sequence[str], said: set[str]) -> tuple[list[str], set[str]]:
    """The lines of a paragraph that are new, and what they say. A list is looked at item by item, headings go along."""
    if not any(map(_is_item, lines)):
        key = _key("\n".join(lines))
        if not key or (len(lines) == 1 and key.startswith("#")):
            return list(lines) if key else [], set()
        return ([], set()) if key in said else (list(lines), {key})
    kept: list[str] = []
    keys: set[str] = set()
    dropped = False
    for line in lines:
        if _is_item(line):
            dropped = _key(line) in said
            keys |= set() if dropped else {_key(line)}
        elif not line[:1].isspace():
            dropped = False
        if not dropped:
            kept.append(line)
    return (kept, keys) if keys else ([], set())


def _is_item(line: str) -> bool:
    return _ITEM.match(line.lstrip()) is not None


def _key(text: str) -> str:
    return " ".join(text.split())


# ---------- session
#
# ★ Start here: one conversation with a model, turn by turn.
#
#     open → before_model → call_tool → after_model → close
#
# The prefix only grows: `system_prompt` and `tools` are fixed when the session opens, and what was sent is stored as it
# was sent, so that the next request (also of a resumed session) begins with the same bytes. The user's message is on
# disk before the model is called; the replies are on disk before `after_model` returns.

CacheMarks: TypeAlias = Literal["5m", "1h"]
"""How long a provider that wants to be told should keep the prefix."""
_LIVES: Mapping[str, float] = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}
_REMEMBERED = 1_000  # messages of a resumed conversation that are looked at for words from outside


@dataclass(frozen=True, slots=True)
class Parts:
    """What a session works with; `app` puts it together."""

    info: SessionInfo
    system_prompt: str
    memory: LiveMemory
    transcripts: Transcripts
    tools: Tools
    clock: Callable[[], float]
    replayed: Callable[[SessionInfo], list[Message]]
    rebuilt: Callable[[SessionInfo, Reason | None], Parts]
    """The same with its prompt built anew: of this session or, with a reason, of one that follows it."""
    anew: Callable[[], Session]
    calls: CallRows
    counter: TokenCounter
    watchers: Watchers = field(default_factory=Watchers)
    room: Room = field(default_factory=Room)
    circumstances: Circumstances = NOWHERE
    folder: str = ""
    shown: str | None = None
    """The state of curated memory that the prompt shows, where that is not how it is now."""
    budget: Budget = field(default_factory=Budget)
    cache_lifetime: float = FIVE_MINUTES
    goes_on_from: Before | None = None
    live_updates: bool = True
    result_tokens: int = 500
    written: Callable[[int], None] = lambda _: None
    """Told how many messages were committed, once a turn has got further: the index follows in the background."""
    news: News = nobody
    """How a session stands in the store: another program may have it open too."""
    warnings: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()  # what others say in the prompt


class Session:
    """Opened by `Herma.session()`; a context manager. Not for several threads at once: a conversation has one order."""

    def __init__(
        self, parts: Parts, history: Sequence[Message] = (), *, stored: bool = False, after: SessionInfo | None = None
    ) -> None:
        self._history = list(history)
        self._stored = stored
        self._open = True
        self._seen: dict[str, str] = {}
        self._goes_on_from = after
        self._ear = Ear()
        self._in_turn = bool(history) and not is_complete(history[-1:])
        self._take(parts)
        self._ear.listen(self._history[-_REMEMBERED:])
        self._watchers.opened(self.view())

    def _take(self, parts: Parts) -> None:
        """What is fixed from here on."""
        self._parts = parts
        self.info = parts.info
        self.id = parts.info.id
        self.model = parts.info.model or ""
        self.circumstances = parts.circumstances
        self.system_prompt = parts.system_prompt
        self.snapshot = parts.memory.snapshot
        self.tools: list[Json] = parts.tools.schemas()
        self._watchers = parts.watchers
        self._others = Others(parts.news, lambda id_: parts.transcripts.messages(id_, include_hidden=True))
        self._warnings = list(parts.warnings)
        self._recalled = said_in(self._history)
        for text in parts.outside:
            self._ear.heard.add(text, Origin.TOOL_OUTPUT)
        frame = Frame(self.id, self.system_prompt, self.tools, self.model, parts.counter, parts.cache_lifetime)
        self.prompt_digest, self.tools_digest = frame.prompt_digest, frame.tools_digest
        self._meter = Meter(Account(frame, parts.goes_on_from), parts.calls)
        self._meter.account.carry_on(self._history)
        self._anchored = False
        self._told_at_start = parts.memory.told if parts.shown is None else parts.shown
        who = Who.REVIEW if parts.circumstances.context == "review" else Who.TOOL
        author = Author(who, Origin.AGENT_CONCLUDED, session=self.id)
        self._context = ToolContext(parts.info.scope, author, heard=self._ear.heard, written=self._wrote)

    # ── one turn ──

    def before_model(
        self, text: Content = None, *, recall: str = "", cache_marks: CacheMarks | None = None
    ) -> list[Json]:
        """The request to send: with a text, the user's message that begins a turn; without one, its next step.

        The message is committed first. `recall` is text from elsewhere that may help: it is fenced into this message.
        `cache_marks` puts Anthropic's marks on the copy that is returned.
        """
        self._check_open()
        if cache_marks is not None and cache_marks not in _LIVES:
            raise UsageError(f"Cache marks last {' or '.join(_LIVES)}, not {cache_marks!r}.")
        if text is not None:
            self._begin_turn(user_content(text), recall)
        elif not self._history:
            raise UsageError("There is nothing to send yet.", hint="Begin with before_model(text).")
        else:
            self._parts.room.see_to(self)
        self._meter.called(self._history, self._parts.clock(), _LIVES.get(cache_marks or ""))
        request: list[Json] = [{"role": "system", "content": self.system_prompt}, *map(handed_out, self._history)]
        return cache_breakpoints(request, lifetime=cache_marks) if cache_marks else request

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run a tool for the model. → a JSON string; a write is on disk before this returns. Stores no message."""
        self._check_open()
        return self._parts.tools.call(name, arguments, self._context)

    def after_model(
        self, reply: str | Mapping[str, Any] | Sequence[Mapping[str, Any]], *, usage: Usage | None = None
    ) -> None:
        """Store what came back, in one transaction: a text, or messages (tool calls with the results they got).

        `usage` is what the provider measured: `input` without what was read from or written to its cache.
        """
        self._check_open()
        came = all_from_wire(replies_of(reply), self._parts.clock())
        self._parts.room.answered(usage, self.tokens)
        replies = self._append([as_kept(message, self._parts.result_tokens, self._seen) for message in came])
        if not self._meter.answered(replies, usage) and usage is not None:
            self._parts.transcripts.record_usage(self.id, usage)
        self._parts.written(len(replies) + 1)
        if self._in_turn and is_complete(replies):
            self._in_turn = False
            self._watchers.completed(self.view(), last_turn(self._history))

    def interrupt(self, partial: str = "") -> None:
        """The turn was cut off: keep what came so far, marked, so that the conversation can go on."""
        self._check_open()
        if self._history and not is_complete(self._history[-1:]):
            self._in_turn = False
            self._meter.answered(self._append(all_from_wire(cut_off(self._history, partial), self._parts.clock())))

    def heard(self, text: str, origin: Origin = Origin.TOOL_OUTPUT) -> None:
        """The model was shown text from outside: what it repeats of it waits for a person's decision."""
        self._ear.told(text, origin)

    @property
    def tokens(self) -> int:
        """What a request takes as the conversation stands."""
        return self._meter.account.tokens

    @property
    def last_compression(self) -> Compression | None:
        """What came of the last try to make room, by itself or not."""
        return self._parts.room.last

    def working_memory(self) -> Plan:
        """The model's window as it stands: what each part of it holds, and what went elsewhere."""
        parts = self._parts
        return hold(parts.budget.of(self.model), parts.counter, self.system_prompt, self.tools, self._history)

    def view(self) -> SessionView:
        """The session as it stands, for those who follow it."""
        parts, messages = self._parts, tuple(self._history)
        return SessionView(
            self.info, self.circumstances, messages, self.model, parts.folder, self.system_prompt, tuple(self.tools)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What people should know about this session: text that was withheld, parts that failed."""
        return (*self._warnings, *self._parts.room.said, *self._watchers.troubles)

    # ── moving about ──

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it stands, hidden messages left out."""
        return tuple(self._history)

    def stored_messages(self) -> list[Message]:
        """The conversation read back from the transcript: what a resumed session would send."""
        stored = self.info if self._stored else self._goes_on_from
        return self._parts.replayed(stored) if stored else []

    def begin_with(self, messages: Sequence[Message]) -> None:
        """Take over the beginning of another conversation."""
        self._append(all_from_wire(messages, self._parts.clock()))

    def remember_what_was_told(self) -> None:
        """Go back to what the model knows after the last message: the next one tells it what changed since."""
        told = next((message.told for message in reversed(self._history) if message.told), None)
        self._parts.memory.recall(told or self._told_at_start)

    def rewind(self, turns: int = 1) -> str:
        """Take back the last turns. → the text of the first one taken back, to be edited. Nothing is deleted."""
        self._check_open()
        if not self._in_turn:
            self._catch_up()
        first = turn_begins(self._history, turns)
        message = self._history[first]
        for session_id, target in spoken_in(self._history[first:], self.id).items():
            self._parts.transcripts.rewind(session_id, target)
        self._meter.account.cut(first, self._history[first:])
        old = self.view()
        del self._history[first:]
        self._in_turn = False
        self._recalled = said_in(self._history)
        self.remember_what_was_told()
        self._watchers.switched(old, self.view(), "rewind")
        return text_of(message.content)

    def reload(self) -> None:
        """Build the prompt anew, with memory and files as they are now. The provider's cache loses all of it.

        The conversation goes on as a new session with another `id`, whose row is written with its next message; what
        was sent before stays on record.
        """
        self._check_open()
        self.interrupt()
        self._go_on("reload", lambda: self._parts.rebuilt(self.info, "resume" if self._stored else None))

    def compress(self, topic: str = "", *, force: bool = True) -> Compression:
        """Make room now, as it happens by itself when the window fills: go on with a summary, see `continue_with`.

        For a person who asks for it, and after `ModelOverflow`. `topic` gets more room in the summary.
        """
        self._check_open()
        return self._parts.room.make(self, topic=topic, force=force)

    def before_compression(self) -> str:
        """What external memories want a summary not to miss. It is text from outside: material, not instructions."""
        self._check_open()
        return self._watchers.compressing(self.view())

    def continue_with(self, messages: Sequence[Message], *, in_place: bool = False) -> None:
        """Go on with messages that stand for the conversation so far. An unfinished turn goes on after them.

        As a new session of the same conversation, with its prompt built anew; or `in_place`, with the prompt as it is
        and all earlier messages hidden. Every message stays in the transcript. When this fails, nothing has changed.
        """
        self._check_open()
        stored = self.info if self._stored else self._goes_on_from
        if stored is None or not messages:
            raise UsageError("There is no conversation yet that these messages could stand for.")
        stays = in_place and self._stored and lies_in(self._history, self.id)
        same = replace(self._parts, shown=self._told_at_start)
        self._go_on("compression", lambda: same if stays else self._parts.rebuilt(stored, "compression"), messages)

    def reset(self) -> Session:
        """End this conversation and begin another in the same place. → the new one, with memory as it is now."""
        self.close("reset")
        return self._parts.anew()

    def close(self, reason: str = "closed") -> None:
        """End the session; closing twice does no harm. An unfinished turn is kept, marked as interrupted."""
        if not self._open:
            return
        self.interrupt()
        self._meter.answered(())
        self._open = False
        try:
            if self._stored:
                self._parts.transcripts.end(self.id, reason)
        finally:
            self._watchers.closing(self.view(), reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("error" if kind is not None else "closed")

    # ── steps ──

    def _begin_turn(self, clean: Content, recall: str) -> None:
        self._catch_up()
        self._parts.room.see_to(self, clean)
        self._context = replace(self._context, turn=Turn())
        additions = [fence(self._recall(clean, recall), kind="recall"), self._memory_update()]
        sent = with_addition(clean, "\n\n".join(filter(None, additions)))
        message = Message("user", clean, sent=sent if sent != clean else None, told=self._parts.memory.told)
        try:
            self._append(all_from_wire([message], self._parts.clock()))
        except BaseException:
            self.remember_what_was_told()  # the model was not told after all
            raise
        self._in_turn = True

    def _catch_up(self) -> None:
        """Go on from what another program has said in this session, too; an unfinished turn of ours ends before it."""
        stored = self.info if self._stored else self._goes_on_from
        fresh = self._others.look(stored, self._history, branches=not self._stored) if stored else []
        self.interrupt()
        if fresh:
            self._history += fresh
            self._ear.listen(fresh)
            self._meter.account.add(fresh)
            self._recalled |= said_in(fresh)
            self.remember_what_was_told()

    def _recall(self, clean: Content, given: str) -> str:
        """What the caller and the parts that follow the session have found for this turn."""
        found = self._watchers.recall(self.view(), text_of(clean)) if self._watchers else []
        kept, warnings = fit(found, self._recalled)
        self._warnings += (warning for warning in warnings if warning not in self._warnings)
        return self._ear.recalled(given, kept)

    def _wrote(self, write: MemoryWrite) -> None:
        self._watchers.written(self.view(), write)

    def _go_on(self, how: Move, made: Callable[[], Parts], instead: Sequence[Message] = ()) -> None:
        """The one way in which a conversation gets another prompt or other messages: these are on disk first."""
        old = self.view()
        self._meter.answered(())
        self._watchers.closing(old, how)
        parts = made()  # after that: who adds to the prompt knows all that was said
        new = parts.info.id != self.id
        if instead:
            told = parts.memory.told if parts.shown is None else parts.shown
            prompt = parts.system_prompt if new else None
            self._history, last = stand_in(
                self._parts.transcripts, self._meter.account, self._history, instead, parts.info, told, prompt
            )
            self._seen.clear()  # what a result would be said to equal may be out of sight now
        else:
            last = before(self._meter.account.last, self._history, "reload")
        ends = self._stored and new
        if ends and not instead:
            self._goes_on_from = self.info
        self._stored = bool(instead) or (self._stored and not new)
        self._take(replace(parts, goes_on_from=last))
        if instead or tells_of_changes(self._history):
            self.remember_what_was_told()
        if ends:
            self._parts.transcripts.end(old.id, how)
        self._watchers.switched(old, self.view(), how)

    def _memory_update(self) -> str:
        """What changed in curated memory since the model was last told."""
        memory = self._parts.memory
        if not self._anchored:
            memory.anchor()
            self._anchored = True
        return fence(memory.update(), kind="update") if self._parts.live_updates else ""

    def _append(self, messages: list[Message]) -> list[Message]:
        """Commit messages and go on from them."""
        account = self._meter.account
        weighed = [account.weighed(message) for message in messages]
        if not self._stored:
            start_session(self._parts.transcripts, self.info, self.system_prompt)
            self._stored = True
        ids = self._parts.transcripts.append(self.id, weighed)
        stored = [replace(message, id=id_, session_id=self.id) for message, id_ in zip(weighed, ids, strict=True)]
        self._history += stored
        self._ear.listen(stored)
        account.add(stored)
        return stored

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("This session is closed.", hint="Open a new one: Herma.session().")
