"""★ Start here: one conversation with a model, turn by turn.

    open → before_model → call_tool → after_model → close

The prefix only grows: `system_prompt` and `tools` are fixed when the session opens, and each message is stored as it
was sent, so that the next request (also of a resumed session) begins with the same bytes. The user's message is on disk
before the model is called; the replies are on disk before `after_model` returns.

To read a whole turn, follow the calls through these files:

    session             the steps of a turn
    app                 opens everything, and a session: new, resumed, branched
    features            what optional parts add to a session
    prompt/assemble     the system prompt
    search/prefetch     what past conversations say about the user's message
    prompt/fence        recalled text, wrapped so that it is not taken for the user's own words
    tools/memory        the memory tool, and under it
    memory/store        the one writer of MEMORY.md and USER.md,
    memory/entries      what an operation does to the entries (pure),
    memory/files        and the files
    transcript/log      append messages
    transcript/rows     their tables
    store/database      the commit
    index/sync          the index follows in the background
    compression/engine  a summary when the window is full
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias

from herma.compression.engine import SessionCompression
from herma.errors import FormerName, StoreChanged, UsageError, checked
from herma.features import fit, recalled_units
from herma.memory.files import with_prompt
from herma.prompt.assemble import cache_breakpoints
from herma.prompt.fence import NOTES, fence, neutralize, sanitize
from herma.prompt.ledger import (
    FIVE_MINUTES,
    ONE_HOUR,
    CallRecorder,
    PrefixTracker,
    PreviousCall,
    PromptFrame,
    before,
    recalled_in,
)
from herma.prompt.tokens import Plan, counter_for, hold
from herma.prompt.tool_results import compress_result, digest
from herma.tools.registry import Json, ToolContext, Turn
from herma.transcript import messages as given
from herma.transcript.messages import (
    INTERRUPTED,
    all_from_wire,
    as_sent,
    attach,
    is_complete,
    sendable,
    text_of,
    unanswered,
    with_addition,
)
from herma.transcript.provenance import SeenText, check_origin, merged, sources_of
from herma.transcript.rows import SessionHead, SessionRows
from herma.types import (
    AnyMessage,
    Attachment,
    Author,
    CompletedTurn,
    Content,
    Hidden,
    Message,
    Move,
    Origin,
    OutsideSpan,
    Reason,
    SdkMessage,
    SessionInfo,
    SessionView,
    Usage,
    Who,
)

if TYPE_CHECKING:
    from herma.app import Herma, PreparedSession
    from herma.compression.summary import Compression
    from herma.transcript.log import Transcripts

CacheMarks: TypeAlias = Literal["5m", "1h"]
"""Lifetime of the marked prefix in the provider's cache."""
_LIVES: Mapping[str, float] = {"5m": FIVE_MINUTES, "1h": ONE_HOUR}


@checked("text", "reply", "recall", "partial", "arguments", "topic")
class Session:
    """Opened by `Herma.session()`; a context manager. Not for several threads at once: a conversation has one order."""

    def __init__(
        self,
        app: Herma,
        prepared: PreparedSession,
        history: Sequence[Message] = (),
        *,
        stored: bool = False,
        after: SessionInfo | None = None,
        copied: bool = False,
    ) -> None:
        """With `copied`, `history` is that of an imported session; the first turn copies it into this one."""
        self._app = app
        self._to_copy = copied
        self._history = list(history)
        self._stored = stored
        self._open = True
        self._seen: dict[str, str] = {}
        self._continues = after
        self._provenance = SeenText(self._earlier)
        self._in_turn = bool(history) and not is_complete(history[-1:])
        self._apply(prepared)
        self._features.opened(self.view())

    def _apply(self, prepared: PreparedSession) -> None:
        """Set what stays fixed until the prompt is rebuilt."""
        self._prepared = prepared
        self.info = prepared.info
        self.id = prepared.info.id
        self.model = prepared.info.model or ""
        self.environment = prepared.request.environment
        self.system_prompt = prepared.system_prompt
        self.snapshot = prepared.memory.snapshot
        self.tools: list[Json] = prepared.tools.schemas()
        self._features = prepared.features
        self._compression = prepared.features.of(SessionCompression) or SessionCompression()
        self._changes = SessionChangeCheck(self._app)
        self._warnings = list(prepared.warnings)
        self._recalled = recalled_units(self._history)
        self._provenance.add_prompt(self.system_prompt, prepared.prompt_outside)
        frame = PromptFrame(
            self.id,
            self.system_prompt,
            self.tools,
            self.model,
            counter_for(prepared.info.model),
            self._app.settings.prices.cache_minutes * 60.0,
            prepared.info.provider,
            prepared.info.folder,
            prepared.info.branch,
        )
        self.prompt_digest, self.tools_digest = frame.prompt_digest, frame.tools_digest
        self._recorder = CallRecorder(PrefixTracker(frame, prepared.previous_call), self._app.calls)
        self._recorder.prefix.carry_on(self._history)
        self._recorded = False
        self._version_at_start = prepared.memory.memory_version if prepared.shown is None else prepared.shown
        who = Who.REVIEW if self.environment.context == "review" else Who.TOOL
        author = Author(who, Origin.AGENT_CONCLUDED, session=self.id)
        self._context = ToolContext(
            prepared.info.scope,
            author,
            seen=self._provenance,
            written=lambda write: self._features.written(self.view(), write),
            warn=self._warnings.append,
        )

    # ── one turn ──

    def before_model(
        self,
        text: Content | Mapping[str, Any] | SdkMessage = None,
        *,
        attachments: Sequence[Attachment] = (),
        recall: str = "",
        cache_marks: CacheMarks | None = None,
    ) -> list[Json]:
        """Return the request to send: with a text, the user's message that begins a turn; without one, its next step.

        The message is committed first. `text` is what the person typed; `attachments` are texts from outside, added
        after it, each in a visible frame. `recall` is other text that may help: it is fenced into this message.
        `cache_marks` adds Anthropic's cache marks to the returned copy.
        """
        self._check_open()
        attached = _attached(attachments)
        if text is not None or attached:
            self._begin_turn(user_content("" if text is None else text), attached, recall)
        elif not self._history:
            raise UsageError("There is nothing to send yet.", hint="Begin with before_model(text).")
        else:
            self._compression.compress_if_needed(self)
        self._recorder.called(self._history, self._app.clock(), _LIVES.get(cache_marks or ""))
        request: list[Json] = [{"role": "system", "content": self.system_prompt}, *map(to_request, self._history)]
        return cache_breakpoints(request, lifetime=cache_marks) if cache_marks else request

    def call_tool(self, name: str, arguments: Mapping[str, Any] | str) -> str:
        """Run a tool and return a JSON string. A write is on disk before this returns; no message is stored."""
        self._check_open()
        return self._prepared.tools.call(name, arguments, self._context)

    def after_model(
        self,
        reply: str | Mapping[str, Any] | SdkMessage | Sequence[Mapping[str, Any] | SdkMessage],
        *,
        usage: Usage | Mapping[str, Any] | object | None = None,
    ) -> None:
        """Store the reply in one transaction: a text, or messages (tool calls with their results).

        Message objects of the OpenAI and Anthropic SDKs are accepted as well as dictionaries.
        `usage` is what the provider reported: a `Usage` (`input` excludes what was read from or written to the cache),
        or the mapping or object of OpenAI or Anthropic. Both arguments are validated before anything is written.
        """
        self._check_open()
        if isinstance(reply, str):
            reply = {"role": "assistant", "content": reply}
        came = all_from_wire([reply] if isinstance(reply, Mapping | SdkMessage) else reply, self._app.clock())
        if not came:
            raise UsageError("A reply needs at least one message. Nothing was written.", hint='For example: "Done."')
        measured = None if usage is None else given.usage(usage)
        self._compression.answered(measured, self.tokens)
        limit = self._app.settings.context.tool_result_tokens
        replies = self._append([to_stored(message, limit, self._seen) for message in came])
        if not self._recorder.answered(replies, measured) and measured is not None:
            self._app.transcripts.record_usage(self.id, measured)
        self._app.index.written(len(replies) + 1)
        if self._in_turn and is_complete(replies):
            self._in_turn = False
            self._features.completed(self.view(), last_turn(self._history))

    def interrupt(self, partial: str = "") -> None:
        """Store the part of the reply that arrived before the turn was interrupted, marked as such."""
        self._check_open()
        if self._history and not self._to_copy and not is_complete(self._history[-1:]):
            self._in_turn = False
            self._recorder.answered(self._append(all_from_wire(cut_off(self._history, partial), self._app.clock())))

    def unsent(self) -> None:
        """Withdraw the last request, which did not reach the model or was refused. The user's message stays.

        Otherwise a request without a reply counts as sent, and its cost is estimated.
        """
        self._check_open()
        self._recorder.unsent()

    def mark_untrusted(self, text: str, origin: Origin | str = Origin.TOOL_OUTPUT) -> None:
        """Mark text from outside that the model is sent. A memory write that repeats it waits for a person's decision;
        a message that repeats it does not count as the person's own words."""
        self._check_open()
        try:
            self._provenance.mark(text, check_origin(origin))
        except ValueError as exc:
            raise UsageError(f"{exc} Nothing was marked.") from exc

    heard = FormerName("mark_untrusted")
    circumstances = FormerName("environment")

    @property
    def tokens(self) -> int:
        """Tokens of a request as the conversation stands."""
        return self._recorder.prefix.tokens

    @property
    def last_compression(self) -> Compression | None:
        """The result of the last compression, automatic or not."""
        return self._compression.last

    def working_memory(self) -> Plan:
        """Return the use of the model's window: the contents of each part, and the text that was left out."""
        counter = counter_for(self.info.model)
        return hold(self._app.budget.of(self.model), counter, self.system_prompt, self.tools, self._history)

    def view(self) -> SessionView:
        """Return the session as it stands, for features."""
        return SessionView(
            self.info,
            self.environment,
            tuple(self._history),
            self.model,
            self._prepared.request.folder,
            self.system_prompt,
            tuple(self.tools),
            self._prepared.prompt_outside,
            tuple(self._provenance.marked.all),
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """Sentences for people about this session: text that was withheld, features that failed."""
        return (*self._warnings, *self._compression.said, *self._features.troubles)

    # ── moves ──

    @property
    def messages(self) -> tuple[Message, ...]:
        """The conversation as it stands, without hidden messages."""
        return tuple(self._history)

    def stored_messages(self) -> list[Message]:
        """Read the conversation back from the transcript: what a resumed session would send."""
        stored = self.info if self._stored else self._continues
        return self._app.session_factory.history(stored) if stored else []

    def begin_with(self, messages: Sequence[AnyMessage]) -> None:
        """Take over the beginning of another conversation."""
        taken = all_from_wire(messages, self._app.clock())
        for at, one in enumerate(taken):
            if one.memory_version:
                announced = has_memory_updates([one])
                version = with_prompt(one.memory_version, self._version_at_start, announced=announced)
                taken[at] = replace(one, memory_version=version)
        self._append(taken)

    def restore_memory_version(self) -> None:
        """Set the known memory version to that of the last message, so that the next one reports changes since.

        Messages of an earlier session are older than the prompt: only those that announced a change count beside it.
        """
        last = next((message for message in reversed(self._history) if message.memory_version), None)
        shown = self._version_at_start
        known = (last.memory_version if last else None) or shown
        if last is None or last.session_id == self.id:
            self._prepared.memory.recall(known)
        else:
            self._prepared.memory.recall(known if has_memory_updates(self._history) else shown, prompt=shown)

    def rewind(self, turns: int = 1) -> str:
        """Remove the last turns and return the user's text of the first of them, to be edited. Nothing is deleted."""
        self._check_open()
        self._copy()
        if not self._in_turn:
            self._catch_up()
        first = turn_begins(self._history, turns)
        message = self._history[first]
        users = [one for one in self._history[first:] if one.role == "user"]
        # of each session that the conversation went through, the first user message that goes
        for session_id, target in {one.session_id or self.id: one.id for one in reversed(users)}.items():
            self._app.transcripts.rewind(session_id, target)
        self._recorder.prefix.cut(first, self._history[first:])
        old = self.view()
        del self._history[first:]
        self._in_turn = False
        self._recalled = recalled_units(self._history)
        self.restore_memory_version()
        self._features.switched(old, self.view(), "rewind")
        return text_of(message.content)

    def reload(self) -> None:
        """Rebuild the prompt with memory and files as they are now. The provider's cache does not apply to it.

        The conversation continues as a new session with another `id`, whose row is written with its next message.
        """
        self._check_open()
        self.interrupt()
        reason: Reason | None = "resume" if self._stored else None
        self._switch("reload", lambda: self._app.session_factory.rebuild(self._prepared, self.info, reason))

    def compress(self, topic: str = "", *, force: bool = True, keep: int = 0, preview: bool = False) -> Compression:
        """Compress the conversation now, as happens automatically when the window fills; see `continue_with`.

        `topic` gets more room in the summary. The last `keep` turns stay verbatim. With `preview` nothing is changed
        and no model is called: the result has a summary made of sentences of the conversation.
        """
        self._check_open()
        if keep < 0:
            raise UsageError(
                f"keep must be a number of turns, not {keep}. Nothing was changed.", hint="For example: keep=2."
            )
        if preview:
            return self._compression.preview(self, topic=topic, keep=keep)
        self._copy()
        return self._compression.make(self, topic=topic, force=force, keep=keep)

    def before_compression(self) -> str:
        """Ask external memories what a summary must not miss. The answer is text from outside, not instructions."""
        self._check_open()
        return self._features.compressing(self.view())

    def continue_with(self, messages: Sequence[AnyMessage], *, in_place: bool = False) -> None:
        """Replace the conversation so far with other messages. An unfinished turn goes on after them.

        As a new session of the same conversation, with its prompt rebuilt; or `in_place`, with the prompt as it is
        and all earlier messages hidden. Every message stays in the transcript. When this fails, nothing has changed.
        """
        self._check_open()
        self._copy()
        stored = self.info if self._stored else self._continues
        if stored is None or not messages:
            raise UsageError("There is no conversation yet that these messages could replace.")
        instead = all_from_wire(messages, self._app.clock())
        prepared, factory = self._prepared, self._app.session_factory
        if in_place and self._stored and all(message.session_id == self.id for message in self._history):
            same = replace(prepared, shown=self._version_at_start)
            self._switch("compression", lambda: same, instead)
        else:
            self._switch("compression", lambda: factory.rebuild(prepared, stored, "compression"), instead)

    def reset(self) -> Session:
        """End this conversation and return a new one in the same place, with memory as it is now."""
        self.close("reset")
        return self._app.session_factory.new(replace(self._prepared.request, title=None, parent=None))

    def close(self, reason: str = "closed") -> None:
        """End the session; closing twice does no harm. An unfinished turn is kept, marked as interrupted."""
        if not self._open:
            return
        self.interrupt()
        self._recorder.answered(())
        self._open = False
        try:
            self._features.closing(self.view(), reason)
        finally:  # the end comes last: a program that is killed before it left a review to be done
            if self._stored:
                self._app.transcripts.end(self.id, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close("error" if kind is not None else "closed")

    # ── steps ──

    def _begin_turn(self, typed: Content, attachments: Sequence[Attachment], recall: str) -> None:
        clean, spans = attach(typed, attachments)
        self._copy()
        self._catch_up()
        self._compression.compress_if_needed(self, clean)
        self._context = replace(self._context, turn=Turn())
        found = self._recall(clean, recall)
        recalled = fence("\n\n".join(text for text, _ in found), kind="recall")
        update = self._memory_update()
        sent = with_addition(clean, "\n\n".join(filter(None, [recalled, update])))
        spans += self._provenance.marked.find(text_of(clean))
        spans += _recalled_spans(recalled, found, len(text_of(with_addition(clean, recalled))) - len(recalled))
        message = Message(
            "user",
            clean,
            sent=sent if sent != clean else None,
            memory_version=with_prompt(
                self._prepared.memory.memory_version, self._version_at_start, announced=bool(update)
            ),
            outside=tuple(merged(spans)),
        )
        try:
            self._append(all_from_wire([message], self._app.clock()))
        except BaseException:
            self.restore_memory_version()  # the update was not sent
            raise
        self._in_turn = True

    def _catch_up(self) -> None:
        """Append the turns that another program stored in this session; an unfinished turn of this one ends first."""
        stored = self.info if self._stored else self._continues
        fresh = self._changes.new_turns(stored, self._history, branches=not self._stored) if stored else []
        self.interrupt()
        if fresh:
            self._history += fresh
            self._provenance.add_messages(fresh)
            self._recorder.prefix.add(fresh)
            self._recalled |= recalled_units(fresh)
            self.restore_memory_version()

    def _recall(self, clean: Content, given: str) -> list[tuple[str, Origin | None]]:
        """Return what the caller and the features recall for this turn, each with its origin."""
        found = self._features.recall(self.view(), text_of(clean)) if self._features else []
        kept, warnings = fit(found, self._recalled)
        self._warnings += (warning for warning in warnings if warning not in self._warnings)
        return [(given, Origin.RECALL)] * bool(given) + [(one.text, one.origin) for one in kept]

    def _earlier(self) -> Iterator[tuple[Message, bool]]:
        """Yield every stored message of this conversation, then those that it holds now."""
        transcripts = self._app.transcripts
        near = (self.info, self._continues)
        ids = [id_ for one in near if one is not None for id_ in (one.id, one.parent) if id_]
        begin = next((id_ for id_ in ids if transcripts.get(id_) is not None), "")
        if begin:
            yield from sources_of(transcripts, begin)
        yield from ((message, False) for message in self._history)

    def _copy(self) -> None:
        """Copy the turns of an imported session into this one, once, as they are sent."""
        if self._to_copy:
            self._to_copy = False
            history, self._history = self._history, []
            self._recorder.prefix.cut(0, history)
            self._append(all_from_wire(history, self._app.clock()))

    def _switch(self, how: Move, prepare: Callable[[], PreparedSession], instead: Sequence[Message] = ()) -> None:
        """Give the conversation another prompt, or the messages `instead`, which are committed first."""
        old = self.view()
        self._recorder.answered(())
        self._features.closing(old, how)
        prepared = prepare()  # after `closing`, so that features that add to the prompt know the whole conversation
        new = prepared.info.id != self.id
        if instead:
            self._history, last = replace_history(
                self._app.transcripts, self._recorder.prefix, self._history, instead, prepared, new=new
            )
            self._seen.clear()  # an earlier equal result may not be sent any more
        else:
            last = before(self._recorder.prefix.last, self._history, "reload")
        ends = self._stored and new
        if ends and not instead:
            self._continues = self.info
        self._stored = bool(instead) or (self._stored and not new)
        self._apply(replace(prepared, previous_call=last))
        if instead or has_memory_updates(self._history):
            self.restore_memory_version()
        if ends:
            self._app.transcripts.end(old.id, how)
        self._features.switched(old, self.view(), how)

    def _memory_update(self) -> str:
        """Return what changed in curated memory since the last update that the model was sent."""
        memory = self._prepared.memory
        if not self._recorded:
            memory.ensure_recorded()
            self._recorded = True
        return fence(memory.update(), kind="update") if self._app.settings.memory.live_updates else ""

    def _append(self, messages: list[Message]) -> list[Message]:
        """Commit messages and append them to the history."""
        prefix = self._recorder.prefix
        weighed = [prefix.weighed(message) for message in messages]
        if not self._stored:
            start_session(self._app.transcripts, self.info, self.system_prompt, self._prepared.prompt_outside)
            self._stored = True
        ids = self._app.transcripts.append(self.id, weighed)
        stored = [replace(message, id=id_, session_id=self.id) for message, id_ in zip(weighed, ids, strict=True)]
        self._history += stored
        self._provenance.add_messages(stored)
        prefix.add(stored)
        return stored

    def _check_open(self) -> None:
        if not self._open:
            raise UsageError("This session is closed.", hint="Open a new one: Herma.session().")


# ── what callers give ──


def user_content(said: object) -> Content:
    """Return the user's message without fences, so that recalled text does not count as the user's words.

    `said` is a text, parts, one part, or the user's message itself. Refuse what cannot be stored.
    """
    if (isinstance(said, Mapping) and said.get("role") == "user") or isinstance(said, SdkMessage):
        said = given.openai_style(said)[-1].get("content")
    content = [said] if given.is_part(said) else said
    if not isinstance(content, str | list):
        raise UsageError(
            f"A user's message must be text or a list of parts, not {type(said).__name__}. Nothing was written.",
            hint='For example: "Why?", or [{"type": "text", "text": "Why?"}].',
        )
    try:
        return cleaned(given.from_wire(Message("user", content)).content)
    except ValueError as exc:
        wrong = f"The user's message {exc}. Nothing was written."
        raise UsageError(wrong, hint='For example: "Why?", or [{"type": "text", "text": "Why?"}].') from exc


def _attached(attachments: Sequence[Attachment]) -> list[Attachment]:
    """Return attachments without fences. Refuse what is not an attachment, and an origin that is not outside."""
    given: list[Attachment] = []
    for one in attachments:
        if not isinstance(one.text, str) or not isinstance(one.name, str):
            raise UsageError(
                "attachments must be a list of Attachment, with text and name as str. Nothing was written.",
                hint='For example: Attachment("<page text>", origin="web").',
            )
        try:
            if one.text.strip():
                given.append(Attachment(neutralize(one.text), check_origin(one.origin), neutralize(one.name)))
        except ValueError as exc:
            raise UsageError(f"{exc} Nothing was written.") from exc
    return given


# ── messages to requests, and back ──


def to_stored(message: Message, limit: int, seen: dict[str, str]) -> Message:
    """Return a message that came back as it is stored. A long tool result also gets the short form that is sent.

    `seen` has earlier results by their digests; it grows.
    """
    if message.role != "tool" or not isinstance(message.content, str) or message.sent is not None:
        return replace(message, content=cleaned(message.content)) if message.role == "assistant" else message
    content, call_id = message.content, message.tool_call_id
    outside = message.outside or (OutsideSpan(0, len(content), Origin.TOOL_OUTPUT),)
    short = compress_result(content, limit_tokens=limit, reference=call_id, seen=seen)
    if call_id:
        seen.setdefault(digest(content), call_id)
    return replace(message, sent=short if short != content else None, outside=outside)


def to_request(message: Message) -> dict[str, Any]:
    """Return a message as it is sent, copied: the caller may change it."""
    return {key: _copied(value) for key, value in as_sent(message).items()}


def cleaned(content: Content) -> Content:
    """Return content without any fence."""
    if isinstance(content, list):
        return [
            {**part, "text": sanitize(part["text"])} if isinstance(part.get("text"), str) else part for part in content
        ]
    return sanitize(content) if content is not None else None


def for_new_prompt(messages: Sequence[Message], memory_version: str) -> list[Message]:
    """Prepare messages for the session that replaces a compressed one: drop old memory updates, which the new prompt
    holds, and set the known memory version to `memory_version`.
    """
    return [_for_new_prompt(message, memory_version) for message in messages]


def has_memory_updates(messages: Iterable[Message]) -> bool:
    """Return whether a message announced a change of memory to the model; a new prompt does not take that back."""
    return any(NOTES["update"] in text_of(message.sent) for message in messages if message.sent is not None)


def shared(before: Sequence[Message], after: Sequence[Message]) -> int:
    """Return how many messages both begin with, as they are sent."""
    for at, (old, new) in enumerate(zip(before, after, strict=False)):
        if as_sent(old) != as_sent(new):
            return at
    return min(len(before), len(after))


def _for_new_prompt(message: Message, memory_version: str) -> Message:
    message = replace(message, id=0, session_id="", hidden="", memory_version=memory_version)
    if message.sent is None:
        return replace(message, content=cleaned(message.content)) if message.role != "tool" else message
    if message.role != "user":
        return message
    recalled = recalled_in(message.sent)
    sent = with_addition(message.content, recalled)
    if sent == message.sent:
        return message
    length = len(text_of(message.content))
    spans = [span for span in message.outside or () if span.end <= length]
    if recalled:
        spans.append(OutsideSpan(len(text_of(sent)) - len(recalled), len(text_of(sent)), Origin.RECALL))
    outside = None if message.outside is None else tuple(spans)
    return replace(message, sent=sent if sent != message.content else None, tokens=None, outside=outside)


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    return [_copied(inner) for inner in value] if isinstance(value, list) else value


def _recalled_spans(fenced: str, found: Sequence[tuple[str, Origin | None]], begins: int) -> list[OutsideSpan]:
    """Return where recalled texts stand in a fence that begins at this character of a message."""
    spans: list[OutsideSpan] = []
    at = 0
    for text, origin in found:
        body = neutralize(text).strip("\n")
        start = fenced.find(body, at)
        if start < 0:
            start, body = 0, fenced
        else:
            at = start + len(body)
        if origin is not None and body:
            spans.append(OutsideSpan(begins + start, begins + start + len(body), origin))
    return spans


# ── moves: rewind, compress, continue ──

_CUT_OFF = "[This reply was interrupted.]"
_NOT_RUN = "[Interrupted before this tool had run.]"


def last_turn(history: Sequence[Message]) -> CompletedTurn:
    """Return the turn that ends here."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    messages = tuple(history[begins[-1] :] if begins else history)
    return CompletedTurn(len(begins), text_of(messages[0].content), text_of(messages[-1].content), messages)


def cut_off(history: Sequence[Message], partial: str) -> list[Message]:
    """Return messages that complete an unfinished turn: results for tools that did not run, and the partial reply."""
    missing = [Message("tool", _NOT_RUN, tool_call_id=call_id) for call_id in unanswered(history)]
    text = sanitize(partial).strip()
    return [*missing, Message("assistant", f"{text}\n\n{_CUT_OFF}".lstrip(), finish_reason=INTERRUPTED)]


def turn_begins(history: Sequence[Message], turns: int) -> int:
    """Return where the last `turns` turns begin."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    if not 1 <= turns <= len(begins):
        there = "There is 1 turn" if len(begins) == 1 else f"There are {len(begins)} turns"
        raise UsageError(f"{there}; {turns} cannot be removed.", hint="For example: rewind(turns=1).")
    return begins[-turns]


def start_session(
    transcripts: Transcripts, info: SessionInfo, system_prompt: str, outside: Sequence[OutsideSpan] | None = None
) -> None:
    """Write the row of a session. `outside`: the parts of its prompt that came from outside."""
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
        prompt_outside=outside,
        imported=False,
    )


def replace_history(
    transcripts: Transcripts,
    prefix: PrefixTracker,
    history: Sequence[Message],
    instead: Sequence[Message],
    prepared: PreparedSession,
    *,
    new: bool,
) -> tuple[list[Message], PreviousCall | None]:
    """Commit the messages that replace a conversation: into a new session, or in place, which hides the old ones.

    Messages that another program appends meanwhile are kept after them. Return the stored messages, and the call that
    the next one is compared with.
    """
    info, at = prepared.info, history[-1]
    memory_version = prepared.memory.memory_version if prepared.shown is None else prepared.shown
    later = transcripts.messages(at.session_id, after=at.id)
    instead = _with_spans(instead, history)
    given = [prefix.weighed(message) for message in for_new_prompt(sendable([*instead, *later]), memory_version)]
    if new:
        start_session(transcripts, info, prepared.system_prompt, prepared.prompt_outside)
        ids = transcripts.append(info.id, given)
        while fresh := transcripts.messages(at.session_id, after=(later or [at])[-1].id):  # came in this moment
            later = fresh
            more = [prefix.weighed(message) for message in for_new_prompt(fresh, memory_version)]
            given, ids = given + more, ids + transcripts.append(info.id, more)
    else:
        ids = transcripts.append(info.id, given, standing_for=(later or [at])[-1].id)
    kept = [replace(message, id=id_, session_id=info.id) for message, id_ in zip(given, ids, strict=True)]
    last = prefix.last
    if last is None:
        return kept, None
    return kept, PreviousCall(last, min(shared(history, kept), last.messages), "compression")


def _with_spans(instead: Sequence[Message], history: Sequence[Message]) -> list[Message]:
    """Mark text from outside in messages that replace a conversation: as before in those that it had word for word;
    other user messages were written by a program, so all of their text is marked."""
    known = {text_of(message.content): message.outside for message in history if message.role == "user"}
    known |= {text_of(one.sent): one.outside for one in history if one.role == "user" and one.sent is not None}
    found: list[Message] = []
    for message in instead:
        text = text_of(message.content)
        if message.role == "user" and message.outside is None and message.id == 0:
            whole = (OutsideSpan(0, len(text), Origin.TOOL_OUTPUT),)
            found.append(replace(message, outside=known.get(text, whole)))
        else:
            found.append(message)
    return found


# ── another program in the same session ──


class SessionChangeCheck:
    """Find what another program did to a session that is open here: nothing locks a session between two turns.

    Each program keeps the order in which it sent messages, so that its prefix only grows. Whole turns that the other
    program stored are appended after them. If the other program compressed the conversation, rewound it or continued it
    in another session, this one cannot go on; it must be resumed.
    """

    def __init__(self, app: Herma) -> None:
        self._sessions = SessionRows(app.db)
        self._transcripts = app.transcripts
        self._visible = 0
        """Number of stored messages, besides the history, when they were last read."""
        self._newest = 0

    def new_turns(self, session: SessionInfo, history: Sequence[Message], *, branches: bool = False) -> list[Message]:
        """Return whole turns that another program stored. Read one row as long as there are none.

        Raise `StoreChanged` if another program moved the conversation; with `branches`, a session that continues it
        does not matter.
        """
        head = self._sessions.head(session.id)
        if head is None:
            return []
        if head.follower and not branches:
            raise _continued_elsewhere(head)
        begins = next((at for at, message in enumerate(history) if message.session_id == session.id), len(history))
        newest = max(history[-1].id if begins < len(history) else 0, self._newest)
        if (head.visible, head.newest) == (len(history) - begins + self._visible, newest):
            return []
        everything = self._transcripts.messages(session.id, include_hidden=True)
        stored = [message for message in everything if not message.hidden]
        hidden = {message.id: message.hidden for message in everything if message.hidden}
        gone = [message for message in history[begins:] if message.id in hidden]
        if gone:
            raise _changed_elsewhere(session, gone, hidden[gone[-1].id])
        fresh = missing_turns(stored, history[begins:])
        self._visible = len(stored) - (len(history) - begins) - len(fresh)
        self._newest = stored[-1].id if stored else 0
        return fresh


def missing_turns(stored: Sequence[Message], mine: Sequence[Message]) -> list[Message]:
    """Return the whole turns that are stored and not among `mine`, in order."""
    known = {message.id for message in mine}
    unknown = [message for message in stored if message.id not in known]
    return sendable(unknown[: settled(unknown)])


def settled(messages: Sequence[Message]) -> int:
    """Return how many of the messages are whole turns: those end with a reply, and each tool call has its result."""
    waiting: set[str] = set()
    end = 0
    for at, message in enumerate(messages, 1):
        waiting |= {str(call.get("id", "")) for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
        if not waiting and is_complete([message]):
            end = at
    return end


def _continued_elsewhere(head: SessionHead) -> StoreChanged:
    how = "compressed" if head.reason == "compression" else "continued"
    return StoreChanged(
        f"Another program {how} this conversation; it continues as session {head.follower}.",
        hint=f"Continue there: {_how_to_resume(head.follower)}",
    )


def _changed_elsewhere(session: SessionInfo, gone: Sequence[Message], hidden: Hidden) -> StoreChanged:
    turns = sum(message.role == "user" for message in gone)
    what = (
        "compressed this conversation"
        if hidden == "compacted"
        else f"removed the last {'turn' if turns == 1 else f'{turns} turns'} of this conversation"
    )
    return StoreChanged(
        f"Another program has {what}, so it cannot be continued here.",
        hint=f"Resume it: {_how_to_resume(session.id)}",
    )


def _how_to_resume(id_: str) -> str:
    return f"/resume {id_} in the chat, herma chat --resume {id_}, or h.session(resume={id_!r})."
