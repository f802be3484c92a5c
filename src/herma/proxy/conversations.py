"""Give memory to a program that sends the whole conversation with each request, and keep what was said.

    client = herma.wrap(OpenAI())

From then on `create`, `parse` and `stream` of `chat.completions`, `responses` and `messages` send curated memory and
recall with each request, and keep what was said. Sync, async and streaming.
`client.herma.close()` ends the conversations; it is called at exit too.

The client's messages stay its own. Memory is added to its system message, and recall to the end of each user message,
byte for byte as it was first sent, so that each request begins with the one before it. Which conversation a request
belongs to is known by its first messages, or by a key that the client gives.
"""

from __future__ import annotations

import asyncio
import atexit
import inspect
import json
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Self, TypeVar

from herma.app import Herma
from herma.errors import UsageError
from herma.models.apis import AnthropicCollector, OpenAICollector
from herma.models.client import Unfinished
from herma.prompt.assemble import memory_of
from herma.transcript.messages import item_message, joined_text, openai_style, plain, text_of, words_of
from herma.types import SessionFilter

if TYPE_CHECKING:
    from herma.session import Session
    from herma.types import Message

Json = dict[str, Any]
MOST_LIVE = 64
"""Conversations that are kept open; the one that was not used for longest is closed."""
_MOST_EARLIER = 50
_KEPT_WITHIN = 5.0
"""Seconds that a request waits until the answer before it is kept."""
SYSTEM = ("system", "developer")


class Exchange:
    """One request of a client and its answer."""

    def __init__(
        self, owner: Conversations, session: Session, digest: str, additions: Sequence[Any], thread: str = ""
    ) -> None:
        self.session = session
        self.memory = memory_of(session.system_prompt).strip("\n")
        """Text for the system message: the same for the whole conversation."""
        self.additions = additions
        """For each message of the request, the text to add at its end; "" for none."""
        self._owner = owner
        self._digest = digest
        self._thread = thread

    def answered(self, reply: Mapping[str, Any] | None, usage: object = None, answer: str = "") -> None:
        """Keep the model's message; `None` if nothing came. Its cost is recorded if the client received it.

        `answer` is the id by which a request may name it instead of sending it back.
        """
        if reply is None:
            self.failed()
            return
        if self.session.messages and self.session.messages[-1].role != "assistant":
            self.session.after_model(dict(reply), usage=usage)
        self._owner.keep(_rolled(self._digest, reply), self.session, self._digest, (answer, self._thread))

    def failed(self) -> None:
        """Note that the request was not sent. The user's message is kept; a retry continues with it."""
        self.session.unsent()
        self._owner.keep(self._digest, self.session, self._digest)


class Conversations:
    """The conversations of one client program."""

    def __init__(self, app: Herma, source: str, *, user: str | None = None, project: str | None = None) -> None:
        self._app = app
        self._source = source
        self._user = user
        self._project = project
        self._changed = threading.Condition()  # guards the next three lines
        self._live: OrderedDict[str, Session] = OrderedDict()
        self._answers: OrderedDict[str, str] = OrderedDict()
        self._asked: set[str] = set()
        """Requests whose answer is not kept yet."""

    def begin(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        system: str = "",
        model: str | None = None,
        key: str = "",
        after: str = "",
        thread: str = "",
    ) -> Exchange:
        """Store what is new in a request and look up what may help. `messages` are OpenAI-style, without the system
        message; `key` is the client's own id of the conversation. Where the server keeps the history and the request
        has only what is new, `after` is the id of the answer that they follow, or `thread` that of the conversation.
        """
        digests = [self._answers.get(thread or after) or _rolled("", {"role": "key", "content": thread or key})]
        for message in messages:
            digests.append(_rolled(digests[-1], message))
        with self._changed:
            # A client that was sent an answer may go on before the answer is kept here.
            self._changed.wait_for(lambda: self._asked.isdisjoint(digests[1:-1]), _KEPT_WITHIN)
            self._asked -= set(digests[1:-1])
            session, known = self._known(digests)
            self._asked.add(digests[-1])
        try:
            if session is None:
                chat = thread or key or digests[min(1, len(messages))]
                session, known = self._stored(chat, digests, system, model, any_history=bool(thread))
            self._take(session, messages[known:])
        except BaseException:
            with self._changed:
                self._asked.discard(digests[-1])
            raise
        return Exchange(self, session, digests[-1], _additions(messages, session.messages), thread)

    def keep(self, digest: str, session: Session, asked: str, names: Sequence[str] = ()) -> None:
        """Remember with which messages, or with which name instead of them, the next request of a conversation begins.

        `asked`: the request that ended.
        """
        with self._changed:
            self._live[digest] = session
            self._live.move_to_end(digest)
            closing = [self._live.popitem(last=False)[1]] if len(self._live) > MOST_LIVE else []
            self._asked.discard(asked)
            for name in filter(None, names):
                self._answers[name] = digest
                self._answers.move_to_end(name)
            while len(self._answers) > MOST_LIVE:
                self._answers.popitem(last=False)
            self._changed.notify_all()
        for one in closing:
            one.close()

    def close(self) -> None:
        """End all conversations; each can be gone on with."""
        with self._changed:
            sessions = list(self._live.values())
            self._live.clear()
        for session in sessions:
            session.close()

    def _known(self, digests: Sequence[str]) -> tuple[Session | None, int]:
        """Return the open session whose messages a request begins with, and how many those are."""
        for count in range(len(digests) - 1, -1, -1):
            if session := self._live.pop(digests[count], None):
                return session, count
        return None, 0

    def _stored(
        self, chat: str, digests: Sequence[str], system: str, model: str | None, *, any_history: bool
    ) -> tuple[Session, int]:
        """Go on with a conversation of an earlier run of the program, or begin one. With `any_history`, it is known by
        its id alone: the server has its messages.
        """
        options: Json = {"source": self._source, "user": self._user, "project": self._project, "chat": chat}
        options |= {"system_message": system, "model": model, "tools": None}
        which = SessionFilter(
            source=self._source, profile=self._app.settings.profile, user=self._user or "", chat=chat, archived=False
        )
        earlier = self._app.transcripts.list(which, limit=_MOST_EARLIER) if any_history or len(digests) > 2 else []
        for info in earlier:
            if any_history:
                return self._app.session(**options, resume=info.id), 0
            digest = digests[0]
            stored = self._app.session_factory.history(info)
            for message in stored:
                digest = _rolled(digest, _as_client_sent(message))
            if stored and len(stored) < len(digests) and digests[len(stored)] == digest:
                return self._app.session(**options, resume=info.id), len(stored)
        return self._app.session(**options), 0

    def _take(self, session: Session, new: Sequence[Mapping[str, Any]]) -> None:
        """Store the new messages: earlier ones as they are, the user's last one as the beginning of a turn."""
        last = new[-1] if new else None
        before = list(new[:-1]) if last else []
        if before:
            session.begin_with([dict(message) for message in before])
        if last is None:
            session.before_model()
        elif last["role"] == "user":
            session.before_model(last.get("content") or "")
        else:
            session.begin_with([dict(last)])
            session.before_model()


def begin_chat(
    talks: Conversations, messages: Sequence[Any], *, model: str | None = None, key: str = ""
) -> tuple[Exchange, list[Json]]:
    """Begin an exchange of the chat completions API. → it, and the messages to send: memory is added to the first
    system message, which is made if there is none.
    """
    given = [plain(message) for message in messages]
    said = [message for message in given if message["role"] not in SYSTEM]
    words = "\n\n".join(words_of(message.get("content")) for message in given if message["role"] in SYSTEM)
    exchange = talks.begin(said, system=words, model=model, key=key)
    additions, memory = iter(exchange.additions), exchange.memory
    made = []
    for message in given:
        if message["role"] in SYSTEM:
            made.append(with_text(message, memory))
            memory = ""
        else:
            made.append(with_text(message, next(additions)))
    return exchange, [{"role": "system", "content": memory}, *made] if memory else made


def with_text(message: Json, text: str) -> Json:
    """Return a message with text at its end."""
    if not text:
        return message
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        return {**message, "content": [*content, {"type": "text", "text": text}]}
    return {**message, "content": f"{content}\n\n{text}" if content else text}


def _rolled(digest: str, message: Mapping[str, Any]) -> str:
    """Return the digest of a conversation and one more message: of what a client sends back, without its decoration."""
    calls = [
        [call.get("id"), function.get("name"), _by_value(function.get("arguments"))]
        for call in message.get("tool_calls") or ()
        if isinstance(call, Mapping) and isinstance(function := call.get("function") or {}, Mapping)
    ]
    said = words_of(message.get("content")).strip()
    whole = json.dumps([digest, message.get("role"), said, calls, message.get("tool_call_id")], ensure_ascii=False)
    return blake2b(whole.encode("utf-8", "replace"), digest_size=16).hexdigest()


def _by_value(arguments: object) -> object:
    """Return arguments so that it does not matter how a client writes them."""
    try:
        return json.dumps(json.loads(arguments), sort_keys=True) if isinstance(arguments, str) else arguments
    except (ValueError, RecursionError):
        return arguments


def _as_client_sent(message: Message) -> Json:
    return {
        "role": message.role,
        "content": message.content,
        "tool_calls": list(message.tool_calls),
        "tool_call_id": message.tool_call_id,
    }


def _additions(messages: Sequence[Mapping[str, Any]], history: Sequence[Message]) -> list[str]:
    """Return what was added to each user message when it was first sent. The newest messages stand at the end of both;
    where a summary stands for earlier ones, those had their additions with them.
    """
    added = [_addition(message) for message in history if message.role == "user"]
    places = [number for number, message in enumerate(messages) if message.get("role") == "user"]
    additions = [""] * len(messages)
    for number, text in zip(reversed(places), reversed(added), strict=False):
        additions[number] = text
    return additions


def _addition(message: Message) -> str:
    if message.sent is None:
        return ""
    return text_of(message.sent)[len(text_of(message.content)) :].lstrip("\n")


def joined(events: Sequence[Any], kind: type[OpenAICollector | AnthropicCollector]) -> tuple[Json | None, object, str]:
    """Return the message that the events of a stream make, its usage and its id. Of one that was cut off, return the
    text that came, or `None`.
    """
    pieces, text, answer = kind(), "", ""
    try:
        for event in map(plain, events):
            text += pieces.add(event)
            answer = answer or str((event.get("message") or {}).get("id", ""))
        reply = pieces.whole()
    except Unfinished:
        return {"role": "assistant", "content": text} if text else None, None, ""
    return dict(reply.message), reply.usage if reply.measured else None, answer


# ── inside a client of an SDK ──

Client = TypeVar("Client")
Begin = Callable[[Json], tuple[Exchange, Json]]
"""Reads the arguments of a call. → the exchange, and the arguments to call with."""
Join = Callable[[list[Any]], tuple[Json | None, object, str]]
"""Reads the events of a stream, as `Read` does a response."""
Read = Callable[[Any], tuple[Json, object, str]]
"""Reads a response. → the model's message, OpenAI-style, its usage and its id."""


class ClientMemory:
    """The memory that `wrap` adds to a client, as `client.herma`."""

    def __init__(self, app: Herma, conversations: Conversations, own: bool) -> None:
        self.app = app
        self._conversations = conversations
        self._own = own

    def close(self) -> None:
        """End the conversations, and close the home if `wrap` opened it."""
        self._conversations.close()
        if self._own:
            self.app.close()
        atexit.unregister(self.close)


def wrap(
    client: Client,
    app: Herma | None = None,
    *,
    user: str | None = None,
    project: str | None = None,
    source: str | None = None,
) -> Client:
    """Give a client a memory and return it. `app` is an opened Herma; without it the usual home is opened."""
    kind = type(client).__module__.partition(".")[0]
    if kind not in ("openai", "anthropic") or hasattr(client, "herma"):
        known = "already has a memory" if hasattr(client, "herma") else "is not a client of the OpenAI or Anthropic SDK"
        raise UsageError(f"{type(client).__name__} {known}.", hint="For example: herma.wrap(OpenAI())")
    opened = app or Herma.open()
    talks = Conversations(opened, source or kind, user=user, project=project)
    served: Any = client
    if kind == "openai":  # its `stream` methods call `create`
        chat = partial(_begin_chat, talks)
        for name in ("create", "parse"):
            _patch(served.chat.completions, name, chat, read_completion, partial(joined, kind=OpenAICollector))
            _patch(served.responses, name, partial(_begin_response, talks), read_response, join_response)
    else:
        begin = partial(_begin_message, talks)
        for messages in (served.messages, served.beta.messages):
            _patch(messages, "create", begin, read_message, partial(joined, kind=AnthropicCollector))
            _patch(messages, "parse", begin, read_message, partial(joined, kind=AnthropicCollector))
            _patch_stream(messages, begin, lambda stream: read_message(stream.current_message_snapshot))
    served.herma = ClientMemory(opened, talks, own=app is None)
    atexit.register(served.herma.close)
    return client


def _patch(owner: Any, name: str, begin: Begin, read: Read, join: Join) -> None:
    """Replace a method: memory goes in before the call, and what comes back is kept."""
    original = getattr(owner, name)

    def sent(response: Any, exchange: Exchange, call: Json) -> Any:
        if call.get("stream"):
            return _Streamed(response, exchange, join)
        exchange.answered(*read(response))
        return response

    def create(**call: Any) -> Any:
        exchange, changed = begin(call)
        try:
            response = original(**changed)
        except BaseException:
            exchange.failed()
            raise
        return sent(response, exchange, changed)

    async def acreate(**call: Any) -> Any:
        exchange, changed = await asyncio.to_thread(begin, call)
        try:
            response = await original(**changed)
        except BaseException:
            exchange.failed()
            raise
        return await asyncio.to_thread(sent, response, exchange, changed)

    setattr(owner, name, acreate if inspect.iscoroutinefunction(inspect.unwrap(original)) else create)


class _Streamed:
    """A stream of the SDK; its events are kept when it ends, also when the reader stops early."""

    def __init__(self, stream: Any, exchange: Exchange, join: Join) -> None:
        self._stream = stream
        self._exchange = exchange
        self._join = join
        self._events: list[Any] = []
        self._ended = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def __iter__(self) -> Iterator[Any]:
        try:
            for event in self._stream:
                self._events.append(event)
                yield event
        finally:
            self._end()

    async def __aiter__(self) -> AsyncIterator[Any]:
        try:
            async for event in self._stream:
                self._events.append(event)
                yield event
        finally:
            self._end()

    def __enter__(self) -> Self:
        self._stream.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._end()
        self._stream.__exit__(*error)

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        self._end()
        await self._stream.__aexit__(*error)

    def _end(self) -> None:
        if not self._ended:
            self._ended = True
            self._exchange.answered(*self._join(self._events))


# ── OpenAI: chat completions


def _begin_chat(talks: Conversations, call: Json) -> tuple[Exchange, Json]:
    exchange, messages = begin_chat(talks, call.get("messages", ()), model=call.get("model"))
    return exchange, {**call, "messages": messages}


def read_completion(response: Any) -> tuple[Json, object, str]:
    """Return the message of a chat completion, its usage and its id."""
    return _plain_answer(response.choices[0].message), response.usage, response.id


def _plain_answer(value: Any) -> Json:
    """Return a message of `create` or `parse` as a dictionary, without the object that was parsed."""
    message: Json = value.model_dump(exclude_none=True, warnings=False)
    message.pop("parsed", None)
    return message


# ── OpenAI: responses


def _begin_response(talks: Conversations, call: Json) -> tuple[Exchange, Json]:
    given = call.get("input", "")
    items = [{"role": "user", "content": given}] if isinstance(given, str) else [plain(item) for item in given]
    said = [item_message(item) for item in items]
    thread = call.get("conversation") or ""
    exchange = talks.begin(
        said,
        system=str(call.get("instructions") or ""),
        model=call.get("model"),
        after=str(call.get("previous_response_id") or ""),
        thread=thread if isinstance(thread, str) else str(plain(thread).get("id") or ""),
    )
    added = [
        _with_input_text(item, text) if item.get("role") == "user" else item
        for item, text in zip(items, exchange.additions, strict=True)
    ]
    instructions = "\n\n".join(filter(None, (call.get("instructions"), exchange.memory)))
    changed = {**call, "input": added}
    if instructions:
        changed["instructions"] = instructions
    return exchange, changed


def _with_input_text(item: Json, text: str) -> Json:
    if not text:
        return item
    content = item["content"]
    if isinstance(content, str):
        return {**item, "content": f"{content}\n\n{text}"}
    return {**item, "content": [*content, {"type": "input_text", "text": text}]}


def read_response(response: Any) -> tuple[Json, object, str]:
    """Return what a response says and calls, as one message, its usage and its id."""
    text, calls = "", []
    for item in map(_plain_answer, response.output):
        message = item_message(item)
        text += message["content"] or ""
        calls += message.get("tool_calls", [])
    said: Json = {"role": "assistant", "content": text or ("" if not calls else None)}
    return said | ({"tool_calls": calls} if calls else {}), response.usage, response.id


def join_response(events: list[Any]) -> tuple[Json | None, object, str]:
    """Return the message of a streamed response; of one that was cut off, the text that came, or `None`."""
    for event in reversed(events):
        if event.type in ("response.completed", "response.incomplete"):
            return read_response(event.response)
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    return {"role": "assistant", "content": text} if text else None, None, ""


# ── Anthropic


def _begin_message(talks: Conversations, call: Json) -> tuple[Exchange, Json]:
    given = [plain(message) for message in call.get("messages", ())]
    split = [openai_style(message) for message in given]
    system, thread = call.get("system") or "", call.get("thread")
    exchange = talks.begin(
        [one for some in split for one in some],
        after=str(thread.get("previous_message_id") or "") if isinstance(thread, Mapping) else "",
        system=system if isinstance(system, str) else joined_text([plain(part) for part in system]),
        model=call.get("model"),
    )
    additions = iter(exchange.additions)
    added = [
        with_text(message, "\n\n".join(filter(None, [next(additions) for _ in some])))
        for message, some in zip(given, split, strict=True)
    ]
    changed = {**call, "messages": added}
    if exchange.memory:
        block = {"type": "text", "text": exchange.memory}
        if isinstance(system, str):
            changed["system"] = "\n\n".join(filter(None, (system, exchange.memory)))
        else:
            changed["system"] = [*system, block]
    return exchange, changed


def read_message(response: Any) -> tuple[Json, object, str]:
    """Return a message of Anthropic's as an OpenAI-style one, its usage and its id."""
    return openai_style(response)[-1], response.usage, response.id


def _patch_stream(owner: Any, begin: Begin, read: Read) -> None:
    """Replace a method that returns a context manager, which yields a stream with helpers."""
    original = owner.stream
    owner.stream = lambda **call: _Helper(original, begin, read, call)


class _Helper:
    """The context manager that `stream` returns. `read` reads what the stream has brought."""

    def __init__(self, original: Callable[..., Any], begin: Begin, read: Read, call: Json) -> None:
        self._original = original
        self._begin = begin
        self._read = read
        self._call = call
        self._stream: Any = None

    def _open(self, begun: tuple[Exchange, Json]) -> Any:
        self._exchange, changed = begun
        self._manager = self._original(**changed)
        return self._manager

    def __enter__(self) -> Any:
        manager = self._open(self._begin(self._call))
        try:
            self._stream = manager.__enter__()
        except BaseException:
            self._exchange.failed()
            raise
        return self._stream

    def __exit__(self, *error: object) -> Any:
        self._keep()
        return self._manager.__exit__(*error)

    async def __aenter__(self) -> Any:
        manager = self._open(await asyncio.to_thread(self._begin, self._call))
        try:
            self._stream = await manager.__aenter__()
        except BaseException:
            self._exchange.failed()
            raise
        return self._stream

    async def __aexit__(self, *error: object) -> Any:
        await asyncio.to_thread(self._keep)
        return await self._manager.__aexit__(*error)

    def _keep(self) -> None:
        try:
            answer = self._read(self._stream)
        except AssertionError:  # nothing came
            self._exchange.failed()
        else:
            self._exchange.answered(*answer)
