"""What providers and engines must keep (store contracts → tests/)."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import pytest

from herma.compression.engine import ContextEngine, EngineNeeds, Tries, unfit
from herma.compression.summary import Condensed, LeftAlone, last_request
from herma.errors import StoreBusy, StoreChanged, UsageError
from herma.memory.entries import CuratedDocuments, CuratedHistory, Inbox, NewChange, Place
from herma.prompt.fence import sanitize
from herma.prompt.tokens import count_message, counter_for
from herma.providers.base import MemoryProvider
from herma.providers.manager import accepted, tool_schemas
from herma.session import Session
from herma.testing.doubles import FixedClock
from herma.transcript.messages import as_sent, text_of
from herma.transcript.rows import ChangeFeed, MessageRows, SessionQueries, SessionRows
from herma.types import (
    Add,
    Author,
    Content,
    Entry,
    MemoryOp,
    Message,
    Origin,
    Pending,
    Remove,
    Replace,
    Scope,
    SessionFilter,
    SessionInfo,
    Usage,
    Who,
)

# ---------- testing.prefix
#
# A check for whole test suites: in every session, what was sent to the model is never changed afterwards.
#
#     @pytest.fixture(autouse=True)
#     def prefixes():
#         with watch_prefixes():
#             yield
#
# Rewinding shortens a conversation, `reload()` builds its prompt anew, and after a compression it goes on with messages
# that stand for it: the only moves besides growing that a session makes. Cache marks are no part of what is sent.


@contextmanager
def watch_prefixes() -> Iterator[None]:
    """Check every request of every session inside the block. `AssertionError` at the first that breaks a rule."""
    sent: WeakKeyDictionary[Session, list[str]] = WeakKeyDictionary()
    before_model, rewind, reload = Session.before_model, Session.rewind, Session.reload
    continue_with = Session.continue_with

    def watched(session: Session, *args: Any, **options: Any) -> Any:
        request = before_model(session, *args, **options)
        now = [_canonical(message) for message in request]
        earlier = sent.get(session, [])
        for index, (was, is_) in enumerate(zip(earlier, now, strict=False)):
            assert was == is_, (
                f"message {index} of session {session.id} was changed after it had been sent:\n{was}\n{is_}"
            )
        assert len(now) >= len(earlier), f"session {session.id} lost messages that had been sent"
        sent[session] = now
        check_stored(session, request)
        return request

    def rewound(session: Session, turns: int = 1) -> str:
        text = rewind(session, turns)
        sent[session] = sent.get(session, [])[: len(session.messages) + 1]
        return text

    def reloaded(session: Session) -> None:
        reload(session)
        if sent.get(session):
            sent[session][0] = _canonical({"role": "system", "content": session.system_prompt})

    def continued(session: Session, *args: Any, **options: Any) -> None:
        prompt, in_place = session.system_prompt, session.id
        continue_with(session, *args, **options)
        sent[session] = []
        assert session.id != in_place or session.system_prompt == prompt, "the prompt was changed in its place"

    setattr(Session, "before_model", watched)  # noqa: B010  a patch, and meant to be one
    setattr(Session, "rewind", rewound)  # noqa: B010
    setattr(Session, "reload", reloaded)  # noqa: B010
    setattr(Session, "continue_with", continued)  # noqa: B010
    try:
        yield
    finally:
        setattr(Session, "before_model", before_model)  # noqa: B010
        setattr(Session, "rewind", rewind)  # noqa: B010
        setattr(Session, "reload", reload)  # noqa: B010
        setattr(Session, "continue_with", continue_with)  # noqa: B010


def check_stored(session: Session, request: list[dict[str, Any]]) -> None:
    """Everything sent can be derived from what is stored, and no stored content holds a fence.

    In the same order; unless another program speaks in the session too: then each has an order of its own, in which its
    prefix only grows, and what the other has not finished is left out.
    """
    stored = {message.id: message for message in session.stored_messages()}
    known = [message.id for message in session.messages]
    kept = list(stored.values()) if len(known) == len(stored) and known == sorted(known) else map(stored.get, known)
    sent = [_canonical(as_sent(message)) if message is not None else "" for message in kept]
    assert sent == [_canonical(message) for message in request[1:]], (
        f"session {session.id} sent something that its transcript does not hold"
    )
    for message in stored.values():
        text = text_of(message.content)
        assert sanitize(text) == text, f"message {message.id} is stored with a fence in it"


def _canonical(message: dict[str, Any]) -> str:
    return json.dumps(_unmarked(message), sort_keys=True, ensure_ascii=False)


def _unmarked(message: dict[str, Any]) -> dict[str, Any]:
    """The message without cache marks; text that was made a part to carry one is text again."""
    parts = message.get("content")
    if not isinstance(parts, list) or not any(isinstance(part, dict) and "cache_control" in part for part in parts):
        return message
    bare = [{key: value for key, value in part.items() if key != "cache_control"} for part in parts]
    text = len(bare) == 1 and bare[0].keys() == {"type", "text"}
    return {**message, "content": bare[0]["text"] if text else bare}


# ---------- testing.engine_contract
#
# What every context engine must keep, as one suite: subclass `EngineContract` and give it an `engine` fixture.
#
#     class TestMyEngine(EngineContract):
#         @pytest.fixture
#         def engine(self, needs):
#             return MyEngine(needs)
#
# It calls the engine as sessions do: with conversations of all shapes, again and again, and in the middle of a turn. It
# knows nothing of how good a summary is: that is for tests of your own.

WINDOW = 8_000
"""Tokens of the window that the engine is made for."""


class RememberedTries:
    """Keeps what was tried in a dictionary; implements `CompressionRows`."""

    def __init__(self) -> None:
        self.kept: dict[str, Tries] = {}

    def tries(self, conversation: str) -> Tries:
        return self.kept.get(conversation, Tries())

    def remember(self, conversation: str, tries: Tries) -> None:
        self.kept[conversation] = tries


class EngineContract:
    """An engine's promises, one test each."""

    @pytest.fixture
    def needs(self) -> EngineNeeds:
        """What an engine is made of, without a model."""
        return EngineNeeds(
            conversation="c-1",
            window=WINDOW,
            window_known=True,
            counter=counter_for(None),
            rows=RememberedTries(),
            clock=lambda: 1_790_000_000.0,
        )

    @pytest.fixture
    def engine(self, needs: EngineNeeds) -> ContextEngine:
        raise NotImplementedError("give the contract an engine to prove")

    def test_it_has_a_name_that_stays(self, engine: ContextEngine) -> None:
        assert isinstance(engine.name, str)
        assert engine.name == engine.name.strip() != ""
        assert engine.name == engine.name

    def test_it_says_whether_it_is_time(self, engine: ContextEngine) -> None:
        engine.on_session_start("s-1", boundary_reason="new")
        assert engine.should_compress(0) is False, "nothing has been said"
        assert isinstance(engine.should_compress(WINDOW * 2), bool)
        assert isinstance(getattr(engine, "held_back", ""), str)

    @pytest.mark.parametrize("seed", range(12))
    def test_what_it_answers_can_stand_for_the_conversation(self, engine: ContextEngine, seed: int) -> None:
        messages = conversation(seed)
        engine.on_session_start("s-1", boundary_reason="new")
        done = answer(engine, messages, force=bool(seed % 2))
        assert isinstance(done, Condensed | LeftAlone)
        if isinstance(done, LeftAlone):
            assert done.reason.strip(), "people are told why"
            return
        assert unfit(done, messages) == ""
        assert last_request(messages) in "\n".join(str(message.content) for message in done.messages)
        assert weigh(done.messages) < weigh(messages), "it is shorter"
        assert done.tokens_after < done.tokens_before

    def test_a_long_conversation_is_made_shorter(self, engine: ContextEngine) -> None:
        messages = conversation(3, turns=80)
        engine.on_session_start("s-1", boundary_reason="new")
        done = answer(engine, messages, force=True)
        assert isinstance(done, Condensed), done

    def test_it_does_not_change_what_it_is_given(self, engine: ContextEngine) -> None:
        messages = conversation(4, turns=40)
        before = list(messages)
        answer(engine, messages, force=True)
        assert messages == before

    def test_again_and_again(self, engine: ContextEngine) -> None:
        """It is given what it answered, with more after it, as long as a conversation lasts."""
        engine.on_session_start("s-1", boundary_reason="new")
        messages: Sequence[Message] = conversation(5, turns=40)
        for round_ in range(4):
            done = answer(engine, messages, force=True)
            if isinstance(done, Condensed):
                assert unfit(done, messages) == ""
                engine.on_session_end(f"s-{round_}", messages)
                engine.on_session_start(f"s-{round_ + 1}", boundary_reason="compression", old_session_id=f"s-{round_}")
                engine.update_from_response(Usage(input=done.tokens_after, output=50))
                messages = stored(done.messages)
            messages = [*messages, *conversation(round_ + 6, turns=20, first=10_000 * (round_ + 1))]

    def test_in_the_middle_of_a_turn(self, engine: ContextEngine) -> None:
        messages = [*conversation(7, turns=3), Message("user", "Now all of it.", id=5_000), *steps(60, first=5_001)]
        engine.on_session_start("s-1", boundary_reason="resume")
        done = answer(engine, messages, force=True)
        if isinstance(done, Condensed):
            assert unfit(done, messages) == ""

    @pytest.mark.parametrize("messages", [[], [Message("user", "Hello.", id=1)]])
    def test_what_is_too_short_is_left_alone(self, engine: ContextEngine, messages: list[Message]) -> None:
        assert isinstance(answer(engine, messages, force=True), LeftAlone)

    def test_it_takes_a_subject_and_what_others_say(self, engine: ContextEngine) -> None:
        for outside in ("", "Remember the weir.", "x" * 100_000, "</memory-context> {} %s \x00"):
            done = engine.compress(
                conversation(8, turns=40),
                current_tokens=WINDOW * 2,
                focus_topic="the weir",
                force=True,
                memory_context=outside,
            )
            assert isinstance(done, Condensed | LeftAlone)

    def test_any_text_will_do(self, engine: ContextEngine) -> None:
        odd = [
            "",
            " \n",
            "x" * 50_000,
            "日本 🙂 \x00",
            "</memory-context>",
            "{}%s{0}",
            "## Goal\n- [#1-99999999999999999999]",
        ]
        messages = [Message("user" if at % 2 == 0 else "assistant", text, id=at + 1) for at, text in enumerate(odd * 4)]
        done = answer(engine, [*messages, Message("user", "And now?", id=999)], force=True)
        assert isinstance(done, Condensed | LeftAlone)

    def test_what_happens_is_told_in_any_order(self, engine: ContextEngine) -> None:
        for reason in ("new", "resume", "reload", "compression"):
            engine.on_session_start("s-1", boundary_reason=reason, old_session_id="s-0")
            engine.update_from_response(Usage())
            engine.update_from_response(Usage(input=WINDOW, cache_read=10, output=5))
            engine.on_session_end("s-1", conversation(9))
        engine.on_reset()
        engine.on_session_end("s-1", [])


def answer(engine: ContextEngine, messages: Sequence[Message], *, force: bool = False) -> Any:
    """As a session asks: with the size of the whole request, prompt and tools included."""
    return engine.compress(messages, current_tokens=weigh(messages) + 500, force=force)


def weigh(messages: Sequence[Message]) -> int:
    count = counter_for(None).count
    return sum(count_message(as_sent(message), count) for message in messages)


def stored(messages: Sequence[Message]) -> list[Message]:
    """As the transcript gives them back: each with a number."""
    return [replace(message, id=at) for at, message in enumerate(messages, 1)]


def conversation(seed: int, *, turns: int | None = None, first: int = 1) -> list[Message]:
    """Turns as agents make them: a request, calls with their results, a reply."""
    dice = random.Random(seed)  # noqa: S311  guards nothing
    messages: list[Message] = []
    for turn in range(dice.randrange(1, 30) if turns is None else turns):
        text = f"Step {turn}: change src/part_{turn % 7}/module.py, {1000 + turn} rows. " + "word " * dice.randrange(80)
        messages.append(Message("user", text, id=first + len(messages)))
        if dice.random() < 0.5:
            messages += steps(dice.randrange(1, 3), first=first + len(messages))
        said = f"Changed run_part_{turn % 7}(). TODO: measure part {turn % 7}. " + "word " * dice.randrange(80)
        messages.append(Message("assistant", said, id=first + len(messages)))
    return messages


def steps(count: int, *, first: int) -> list[Message]:
    """Calls of a tool with their results."""
    messages: list[Message] = []
    for step in range(count):
        name = f"call_{first}_{step}"
        call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append(Message("assistant", None, id=first + len(messages), tool_calls=(call,)))
        messages.append(Message("tool", f"row {step} " * 60, id=first + len(messages), tool_call_id=name))
    return messages


# ---------- testing.provider_contract
#
# What every external memory must keep, as one suite: subclass `ProviderContract` and give it a `provider` fixture.
#
#     class TestMyMemory(ProviderContract):
#         @pytest.fixture
#         def provider(self, tmp_path):
#             return MyMemory(folder=tmp_path)
#
# It calls the provider as Herma does, in the same order and from several threads. It knows nothing of what the provider
# should remember: that is for tests of your own.

KNOWN: dict[str, Any] = {
    "platform": "cli",
    "source": "cli",
    "agent_context": "primary",
    "agent_identity": "default",
    "agent_workspace": "herma",
    "user_id": "u-1",
    "user_name": "Ann",
    "chat_id": "c-1",
    "chat_type": "direct",
    "thread_id": "",
    "parent_session_id": "",
    "session_title": "",
    "system_message": "",
    "project": "",
    "folder": "",
    "model": "",
}
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Where do herons nest?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "function": {"name": "look", "arguments": "{}"}}]},
    {"role": "tool", "tool_call_id": "1", "content": "by the weir"},
    {"role": "assistant", "content": "By the weir."},
]


class ProviderContract:
    """A provider's promises, one test each."""

    @pytest.fixture
    def provider(self) -> MemoryProvider:
        raise NotImplementedError("give the contract a provider to prove")

    @pytest.fixture
    def begun(self, provider: MemoryProvider, tmp_path: Path) -> Any:
        """The provider in a session; it is let go at the end."""
        begin(provider, "s-1", tmp_path)
        yield provider
        provider.shutdown()

    def test_it_has_a_name_that_stays(self, provider: MemoryProvider) -> None:
        assert isinstance(provider.name, str)
        assert provider.name == provider.name.strip() != ""
        assert provider.name == provider.name

    def test_it_says_whether_it_can_work(self, provider: MemoryProvider) -> None:
        assert provider.is_available() is True, provider.unavailable_reason()
        assert isinstance(provider.unavailable_reason(), str)

    def test_it_is_set_up_without_a_session(self, provider: MemoryProvider) -> None:
        assert all(isinstance(field, dict) and field.get("key") for field in provider.get_config_schema())
        assert all(Path(path).is_absolute() for path in provider.backup_paths())

    def test_it_takes_what_it_does_not_know(self, provider: MemoryProvider, tmp_path: Path) -> None:
        provider.initialize("s-1", **KNOWN, hermes_home=str(tmp_path), something_new="later")
        provider.on_turn_start(1, "hello", something_new=1)
        provider.on_session_switch("s-2", parent_session_id="s-1", reset=False, reason="compression", something_new=1)
        provider.shutdown()

    def test_its_tools_are_schemas(self, begun: MemoryProvider) -> None:
        schemas, wrong = tool_schemas(begun.get_tool_schemas())
        assert wrong == []
        assert len(json.dumps(schemas)) < 50_000
        assert not {schema["name"] for schema in schemas} & {"memory", "session_search"}, "these are Herma's own"

    def test_its_tools_answer_with_text(self, begun: MemoryProvider) -> None:
        """Nonsense is answered or refused with an error; it never breaks the provider."""
        for schema in tool_schemas(begun.get_tool_schemas())[0]:
            for arguments in ({}, {"query": "herons"}, {"nonsense": [1, None]}):
                answer = outcome(lambda given=arguments, name=schema["name"]: begun.handle_tool_call(name, given))  # type: ignore[misc]
                assert isinstance(answer, str | Exception)
        assert isinstance(begun.prefetch("herons", session_id="s-1"), str)

    def test_a_tool_it_does_not_have_is_an_error(self, begun: MemoryProvider) -> None:
        answer = outcome(lambda: begun.handle_tool_call("no_such_tool", {}))
        assert isinstance(answer, Exception) or "error" in str(answer).lower()

    def test_its_block_stays_the_same(self, begun: MemoryProvider) -> None:
        block = begun.system_prompt_block()
        assert isinstance(block, str)
        assert begun.system_prompt_block() == block, "it is part of what a model's cache keeps"

    def test_a_whole_session(self, begun: MemoryProvider) -> None:
        begun.on_turn_start(1, "Where do herons nest?")
        assert isinstance(begun.prefetch("Where do herons nest?", session_id="s-1"), str)
        hand_over(begun, "Where do herons nest?", "By the weir.")
        begun.queue_prefetch("Where do herons nest?", session_id="s-1")
        begun.on_memory_write("add", "user", "Likes birds.", {"session_id": "s-1"})
        begun.on_memory_write("replace", "user", "Likes herons.", {"old_text": "birds"})
        begun.on_memory_write("remove", "user", "", {"old_text": "herons"})
        begun.on_delegation("Count them.", "Seven.", child_session_id="s-9")
        assert isinstance(begun.on_pre_compress(MESSAGES), str)
        begun.on_session_end(MESSAGES)
        begun.on_session_switch("s-2", parent_session_id="s-1", reset=False, reason="compression")
        assert isinstance(begun.prefetch("and now?", session_id="s-2"), str)
        hand_over(begun, "and now?", "Nothing new.")
        begun.on_session_switch("s-2", parent_session_id="s-2", rewound=True)
        begun.on_session_end(MESSAGES)

    @pytest.mark.parametrize("text", ["", " \n", "x" * 100_000, "日本 🙂 \x00 \ud800", "</memory-context>", "{}%s{0}"])
    def test_any_text_will_do(self, begun: MemoryProvider, text: str) -> None:
        assert isinstance(begun.prefetch(text, session_id="s-1"), str)
        hand_over(begun, text, text)
        begun.on_memory_write("add", "memory", text, None)

    def test_it_does_not_change_what_it_is_given(self, begun: MemoryProvider) -> None:
        before = json.dumps(MESSAGES)
        begun.on_pre_compress(MESSAGES)
        begun.on_session_end(MESSAGES)
        hand_over(begun, "a", "b")
        assert json.dumps(MESSAGES) == before

    def test_recall_while_turns_are_handed_over(self, begun: MemoryProvider) -> None:
        """Herma asks from one thread while another is still handing over."""
        failed: list[BaseException] = []

        def each(work: Callable[[int], object]) -> Callable[[], None]:
            def run() -> None:
                for number in range(20):
                    answer = outcome(lambda number=number: work(number))  # type: ignore[misc]
                    if isinstance(answer, Exception):
                        failed.append(answer)

            return run

        threads = [
            threading.Thread(target=each(lambda number: hand_over(begun, f"turn {number}", "ok"))),
            threading.Thread(target=each(lambda number: begun.prefetch(f"turn {number}", session_id="s-1"))),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failed == []

    def test_it_lets_go_whenever_it_is_asked_to(self, provider: MemoryProvider, tmp_path: Path) -> None:
        begin(provider, "s-1", tmp_path)
        provider.shutdown()
        provider.shutdown()


def begin(provider: MemoryProvider, session_id: str, home: Path) -> None:
    """As Herma begins it."""
    told = {**KNOWN, "hermes_home": str(home)}
    provider.initialize(session_id, **accepted(provider.initialize, told))


def hand_over(provider: MemoryProvider, user: str, assistant: str) -> None:
    """As Herma hands a turn over."""
    named = accepted(provider.sync_turn, {"session_id": "s-1", "messages": MESSAGES})
    provider.sync_turn(user, assistant, **named)


def outcome(call: Callable[[], object]) -> object:
    """What a call gives, or the error it ends with."""
    try:
        return call()
    except Exception as exc:  # noqa: BLE001  a tool may refuse nonsense in its own way
        return exc


# ---------- testing.store_contract
#
# What every store of curated memory must keep, as one suite: subclass `CuratedStoreContract` and give it a `stores`
# fixture.
#
#     class TestMyStore(CuratedStoreContract):
#         @pytest.fixture
#         def stores(self, tmp_path, clock):
#             yield Stores(documents, history, inbox, reopen=…)

MEMORY = Place("memory")
USER = Place("user")
PROJECT = Place("memory", project="acme/app")
ELSEWHERE = [USER, PROJECT, Place("memory", profile="work"), Place("user", user="u-1")]
AUTHOR = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session="s-1", message=7)


@dataclass(frozen=True, slots=True)
class Stores:
    """One store behind its three ports. `reopen` is another view of the same, as another process has it."""

    documents: CuratedDocuments
    history: CuratedHistory
    inbox: Inbox
    reopen: Callable[[], Stores]


class CuratedStoreContract:
    """The ports' promises, one test each."""

    @pytest.fixture
    def clock(self) -> FixedClock:
        return FixedClock()

    @pytest.fixture
    def stores(self) -> Stores:
        raise NotImplementedError("give the contract a store to prove")

    # ── documents ──

    def test_what_is_not_there_is_empty(self, stores: Stores) -> None:
        document = stores.documents.read(MEMORY)
        assert (document.text, document.trouble, document.raw) == ("", "", None)
        assert stores.history.changes() == stores.history.changes(MEMORY) == []
        assert stores.history.change(1) is None

    def test_a_swap_is_seen_by_everybody_when_it_returns(self, stores: Stores) -> None:
        change = write(stores, MEMORY, "one\n§\ntwö 日本 🙂")
        for view in (stores, stores.reopen()):
            assert view.documents.read(MEMORY).text == "one\n§\ntwö 日本 🙂"
            assert [row.id for row in view.history.changes(MEMORY)] == [change]

    def test_a_version_is_the_same_as_long_as_the_text_is(self, stores: Stores) -> None:
        write(stores, MEMORY, "one")
        first = stores.documents.read(MEMORY).version
        assert stores.reopen().documents.read(MEMORY).version == first
        write(stores, MEMORY, "two")
        assert stores.documents.read(MEMORY).version != first

    def test_a_swap_on_an_outdated_version_changes_nothing(self, stores: Stores) -> None:
        old = stores.documents.read(MEMORY).version
        write(stores, MEMORY, "one")
        with stores.documents.hold(MEMORY), pytest.raises(StoreChanged):
            stores.documents.swap(MEMORY, old, "two", NewChange(AUTHOR, "add", notes=note("two", category="lesson")))
        assert stores.documents.read(MEMORY).text == "one"
        assert [row.after for row in stores.history.changes(MEMORY)] == ["one"]
        assert stores.history.notes(MEMORY, ["two"]) == {}, "nothing is known of what was never written"

    def test_a_swap_without_holding_is_a_usage_error(self, stores: Stores) -> None:
        with pytest.raises(UsageError):
            stores.documents.swap(MEMORY, stores.documents.read(MEMORY).version, "x", NewChange(AUTHOR, "add"))

    def test_holding_gives_the_text_as_it_is_now(self, stores: Stores) -> None:
        write(stores.reopen(), MEMORY, "by another")
        with stores.documents.hold(MEMORY) as document:
            assert document.text == "by another"
            assert document.edited_from is None

    def test_only_one_holds_a_document(self, stores: Stores) -> None:
        other = stores.reopen()
        with stores.documents.hold(MEMORY), pytest.raises(StoreBusy), other.documents.hold(MEMORY):
            pytest.fail("two held the same document")

    def test_another_document_can_be_held_meanwhile(self, stores: Stores) -> None:
        other = stores.reopen()
        with stores.documents.hold(MEMORY):
            for place in ELSEWHERE[:2]:
                write(other, place, "x")
        assert stores.documents.read(MEMORY).text == ""

    def test_an_error_while_holding_lets_go(self, stores: Stores) -> None:
        with pytest.raises(ZeroDivisionError), stores.documents.hold(MEMORY):
            raise ZeroDivisionError
        write(stores.reopen(), MEMORY, "x")

    def test_threads_take_turns(self, stores: Stores) -> None:
        def append(number: int) -> None:
            for step in range(5):
                with stores.documents.hold(MEMORY) as document:
                    text = f"{document.text}|{number}.{step}"
                    stores.documents.swap(MEMORY, document.version, text, NewChange(AUTHOR, "add"))

        threads = [threading.Thread(target=append, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        written = stores.documents.read(MEMORY).text.split("|")[1:]
        assert sorted(written) == sorted(f"{number}.{step}" for number in range(4) for step in range(5))
        assert_chain(stores, MEMORY, 20)

    def test_a_backup_is_kept_once_for_the_same_text(self, stores: Stores) -> None:
        write(stores, MEMORY, "one")
        first = stores.documents.back_up(MEMORY, stores.documents.read(MEMORY))
        assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) == first
        write(stores, MEMORY, "two")
        assert stores.documents.back_up(MEMORY, stores.documents.read(MEMORY)) != first

    def test_every_document_has_a_name_of_its_own(self, stores: Stores) -> None:
        names = {stores.documents.where(place) for place in [MEMORY, USER, PROJECT, Place("user", user="u-1")]}
        assert len(names) == 4

    # ── history ──

    def test_history_is_newest_first_and_without_gaps(self, stores: Stores) -> None:
        texts = ["one", "one\n§\ntwo", "two", ""]
        ids = [write(stores, MEMORY, text) for text in texts]
        rows = stores.history.changes(MEMORY)
        assert [row.id for row in rows] == sorted(ids, reverse=True)
        assert [row.after for row in reversed(rows)] == texts
        assert_chain(stores, MEMORY, 4)
        assert [row.id for row in stores.history.changes(MEMORY, limit=2)] == ids[:1:-1]

    def test_a_change_keeps_who_when_and_why(self, stores: Stores, clock: FixedClock) -> None:
        clock.advance(5)
        change = write(stores, PROJECT, "x", NewChange(AUTHOR, "add", "because"))
        row = stores.history.change(change)
        assert row is not None
        assert (row.at, row.author, row.action, row.reason) == (clock.now, AUTHOR, "add", "because")
        assert (row.scope, row.target, row.before, row.after) == (Scope(project="acme/app"), "memory", "", "x")

    def test_documents_do_not_mix(self, stores: Stores) -> None:
        write(stores, MEMORY, "home", NewChange(AUTHOR, "add", notes=note("home", category="lesson")))
        for place in ELSEWHERE:
            assert stores.history.changes(place) == []
            assert stores.history.notes(place, ["home"]) == {}
        assert [stores.documents.read(place).text for place in [USER, PROJECT, ELSEWHERE[3]]] == ["", "", ""]
        write(stores, USER, "me")
        assert [row.after for row in stores.history.changes()] == ["me", "home"]

    def test_an_undo_marks_what_it_undoes_until_it_is_undone_itself(self, stores: Stores) -> None:
        first = write(stores, MEMORY, "x")
        undo = write(stores, MEMORY, "", NewChange(AUTHOR, "undo", undoes=first))
        assert [(row.id, row.undoes, row.undone_by) for row in stores.history.changes()] == [
            (undo, first, None),
            (first, None, undo),
        ]
        redo = write(stores, MEMORY, "x", NewChange(AUTHOR, "undo", undoes=undo))
        assert {row.id: row.undone_by for row in stores.history.changes()} == {first: None, undo: redo, redo: None}

    # ── notes ──

    def test_notes_come_with_the_change_that_brings_them(self, stores: Stores) -> None:
        entry = Entry("x", "lesson", ("a", "ü"), Origin.WEB, vouched=True, created=1.5, changed=2.5, confirmed=3.5)
        change = write(stores, MEMORY, "x", NewChange(AUTHOR, "add", notes={"x": entry}))
        assert stores.reopen().history.notes(MEMORY, ["x", "y"]) == {"x": replace(entry, change=change)}

    def test_annotating_replaces_what_was_known(self, stores: Stores) -> None:
        stores.history.annotate(MEMORY, [Entry("x", "lesson", created=1.0, change=3), Entry("y")])
        stores.history.annotate(MEMORY, [Entry("x", tags=("t",))])
        assert stores.history.notes(MEMORY, ["x", "y"]) == {"x": Entry("x", tags=("t",)), "y": Entry("y")}
        assert stores.history.notes(MEMORY, []) == {}

    # ── inbox ──

    def test_a_proposal_is_kept_whole(self, stores: Stores) -> None:
        ops: tuple[MemoryOp, ...] = (Add("ü", "lesson", ("a",)), Replace("x", "y", "identity"), Remove("z"))
        kept = stores.inbox.put(proposal(*ops))
        assert kept == replace(proposal(*ops), id=kept.id)
        assert list(stores.reopen().inbox.list(10.0)) == [kept]

    def test_the_same_proposal_waits_once(self, stores: Stores) -> None:
        first = stores.inbox.put(proposal(Add("x")))
        assert stores.inbox.put(replace(proposal(Add("x")), at=20.0, expires=200.0)) == first
        others = [
            stores.inbox.put(proposal(Add("y"))),
            stores.inbox.put(replace(proposal(Add("x")), target="user")),
            stores.inbox.put(replace(proposal(Add("x")), scope=Scope(project="p"))),
            stores.inbox.put(proposal(Add("x", "lesson"))),
        ]
        assert [waiting.id for waiting in stores.inbox.list(20.0)] == [first.id, *(other.id for other in others)]

    def test_what_expired_is_gone_and_may_be_proposed_again(self, stores: Stores) -> None:
        first = stores.inbox.put(proposal(Add("x")))
        assert [waiting.id for waiting in stores.inbox.list(99.9)] == [first.id]
        assert list(stores.inbox.list(100.0)) == []
        assert not stores.inbox.decide(first.id, "approved", 100.0)
        again = stores.inbox.put(replace(proposal(Add("x")), at=100.0, expires=200.0))
        assert again.id != first.id
        assert again.decision == ""

    def test_a_decision_is_made_once(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        assert stores.inbox.decide(kept.id, "approved", 11.0)
        assert list(stores.inbox.list(11.0)) == []
        assert not stores.inbox.decide(kept.id, "rejected", 12.0)
        assert not stores.inbox.decide(kept.id + 1000, "approved", 12.0)

    def test_what_a_person_rejected_does_not_come_back(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        stores.inbox.decide(kept.id, "rejected", 11.0)
        again = stores.inbox.put(replace(proposal(Add("x")), at=5000.0, expires=6000.0))
        assert (again.id, again.decision) == (kept.id, "rejected")
        assert list(stores.inbox.list(5000.0)) == []

    def test_what_was_approved_may_be_proposed_again(self, stores: Stores) -> None:
        kept = stores.inbox.put(proposal(Add("x")))
        stores.inbox.decide(kept.id, "approved", 11.0)
        assert stores.inbox.put(proposal(Add("x"))).id != kept.id


def write(stores: Stores, place: Place, text: str, change: NewChange | None = None) -> int:
    """One swap, as the keeper makes it."""
    with stores.documents.hold(place) as document:
        return stores.documents.swap(place, document.version, text, change or NewChange(AUTHOR, "write"))


def note(text: str, **known: str) -> Mapping[str, Entry]:
    return {text: Entry(text, **known)}  # type: ignore[arg-type]


def proposal(*ops: MemoryOp) -> Pending:
    return Pending(0, 10.0, 100.0, Scope(), "memory", AUTHOR, ops, "seen on a page")


def assert_chain(stores: Stores, place: Place, length: int) -> None:
    """Each change begins with what the one before it left, and the last left what is there."""
    rows = list(reversed(stores.history.changes(place)))
    assert len(rows) == length
    before = ""
    for row in rows:
        assert row.before == before
        before = row.after
    assert before == stores.documents.read(place).text


# ---------- testing.transcript_contract
#
# What every store of transcripts must keep, as one suite: subclass `TranscriptStoreContract`, give it `stores`.
#
# class TestMyStore(TranscriptStoreContract):
#     @pytest.fixture
#     def stores(self, tmp_path):
#         yield TranscriptStores(sessions, queries, messages, feed, reopen=…)

BASE64 = "iVBORw0KGgo" * 400
EVERYTHING = Message(
    role="assistant",
    content=[
        {"type": "text", "text": "sëe 日本 🙂"},
        {"type": "image_url", "image_url": {"url": f"data:;base64,{BASE64}"}},
    ],
    timestamp=12.5,
    tool_calls=({"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{ "a":\t1.0 }'}},),
    tool_call_id="c0",
    tool_name="tool",
    reasoning="because\0of NUL",
    sent=[{"type": "text", "text": "with memory"}],
    told="abc",
    tokens=7,
    finish_reason="stop",
    extra={"unknown": [1, None, {"x": "y"}], "content": None},
)


@dataclass(frozen=True, slots=True)
class TranscriptStores:
    """One store behind its ports. `reopen` is another view of the same, as another process has it."""

    sessions: SessionRows
    queries: SessionQueries
    messages: MessageRows
    feed: ChangeFeed
    reopen: Callable[[], TranscriptStores]


def session(session_id: str, started: float = 1.0, **fields: Any) -> SessionInfo:
    return SessionInfo(session_id, "cli", fields.pop("scope", Scope()), started, "", **fields)


def say(stores: TranscriptStores, session_id: str, *texts: str, role: str = "user", at: float = 10.0) -> Sequence[int]:
    return stores.messages.append(session_id, [Message(role, text, timestamp=at) for text in texts], preview="p")


def transcript_contract_begin(stores: TranscriptStores, *session_ids: str, **fields: Any) -> None:
    stores.sessions.add([session(session_id, **fields) for session_id in session_ids], {})


def contents(messages: Sequence[Message]) -> list[Any]:
    return [message.content for message in messages]


class TranscriptStoreContract:
    """The ports' promises, one test each."""

    @pytest.fixture
    def stores(self) -> TranscriptStores:
        raise NotImplementedError("give the contract a store to prove")

    # ── sessions ──

    def test_an_empty_store_answers(self, stores: TranscriptStores) -> None:
        assert stores.sessions.get(["a"]) == {}
        assert list(stores.queries.recent(SessionFilter(), 5, 0)) == []
        assert list(stores.messages.of_session("a", hidden=True)) == []
        assert list(stores.messages.around(1, 2)) == []
        assert stores.messages.stats().messages == stores.feed.message_count() == 0
        assert stores.feed.position().seq == 0
        assert list(stores.feed.since(0, 5)) == []
        assert list(stores.feed.searchable([1])) == []

    def test_a_session_is_kept_as_it_is(self, stores: TranscriptStores) -> None:
        whole = session(
            "a",
            scope=Scope("p", "project", "u", "c"),
            title="Name",
            model="m",
            parent="gone",
            reason="resume",
            ended=5.0,
            end_reason="done",
            archived=True,
            usage=Usage(1, 2, 3, 4, 5, 0.5),
        )
        (kept,) = stores.sessions.add([whole], {"a": "You are.\0"})
        expected = replace(whole, conversation="a", last_active=1.0)
        assert replace(kept, last_active=1.0) == expected
        view = stores.reopen()
        assert view.sessions.get(["a", "b"]) == {"a": expected}
        assert view.sessions.system_prompt("a") == "You are.\0"
        assert view.sessions.system_prompt("b") is None

    def test_conversations_follow_continuations_only(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        for session_id, parent, reason in (("b", "a", "resume"), ("c", "b", "compression"), ("d", "c", "branch")):
            transcript_contract_begin(stores, session_id, parent=parent, reason=reason)
        transcript_contract_begin(stores, "e", parent="d", reason="delegation")
        transcript_contract_begin(stores, "f", parent="nowhere", reason="resume")
        transcript_contract_begin(stores, "g", parent="g", reason="resume")
        found = stores.sessions.get(list("abcdefg"))
        assert {one.id: one.conversation for one in found.values()} == dict(zip("abcdefg", "aaadefg", strict=True))
        assert sorted(one.id for one in stores.queries.of_conversations(["a", "d"])) == list("abcd")
        assert sorted(one.id for one in stores.queries.children(["c", "d"])) == ["d", "e"]

    def test_ids_and_titles_are_unique_and_all_or_nothing(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", title="Name")
        for taken in (session("a"), session("c", title="Name")):
            with pytest.raises(StoreChanged):
                stores.sessions.add([session("b"), taken], {})
        assert stores.sessions.get(["b", "c"]) == {}
        transcript_contract_begin(stores, "u", title="Name", scope=Scope(user="somebody"))

    def test_a_title_moves_within_its_conversation_only(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", title="Name")
        transcript_contract_begin(stores, "b", parent="a", reason="resume")
        transcript_contract_begin(stores, "c")
        with pytest.raises(StoreChanged):
            stores.sessions.update(["c"], {"title": "Name"})
        assert stores.sessions.update(["b"], {"title": "Name"}) == 1
        found = stores.sessions.get(["a", "b"])
        assert (found["a"].title, found["b"].title) == (None, "Name")

    def test_titles_are_found_with_their_numbers(self, stores: TranscriptStores) -> None:
        for number, title in enumerate(("Name", "Name #2", "Name #10", "Names", "name", "Name & Co")):
            transcript_contract_begin(stores, str(number), title=title)
        transcript_contract_begin(stores, "x", title="Name", scope=Scope(user="somebody"))
        found = stores.queries.titles("Name", Scope())
        assert sorted(found) == [("Name", "0"), ("Name #10", "2"), ("Name #2", "1")]

    def test_the_first_end_stands(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        assert stores.sessions.end("a", 5.0, "done")
        assert not stores.sessions.end("a", 6.0, "again")
        assert not stores.sessions.end("b", 6.0, "unknown")
        assert stores.sessions.get(["a"])["a"].end_reason == "done"

    def test_usage_adds_up(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        for _ in range(2):
            assert stores.sessions.spend("a", Usage(1, 2, 3, 4, 5, 0.25))
        assert stores.sessions.get(["a"])["a"].usage == Usage(2, 4, 6, 8, 10, 0.5)
        assert not stores.sessions.spend("b", Usage())

    def test_ids_are_found_by_their_beginning(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "2026_a", "2026_b", "2027", "20%6", "日本")
        assert sorted(stores.queries.with_prefix("2026", 9)) == ["2026_a", "2026_b"]
        assert list(stores.queries.with_prefix("20%", 9)) == ["20%6"]
        assert list(stores.queries.with_prefix("日", 9)) == ["日本"]
        assert len(stores.queries.with_prefix("2", 2)) == 2
        assert list(stores.queries.with_prefix("2", 9, "somebody")) == []

    def test_filters_choose(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(
            stores, "a", scope=Scope(project="/w/app"), title="Fix the LOGIN", model="Big-1", usage=Usage(input=100)
        )
        transcript_contract_begin(stores, "b", scope=Scope(project="/w/app/sub"), archived=True, started=50.0)
        transcript_contract_begin(stores, "c", scope=Scope(project="/w/apple", user="u"), ended=3.0, end_reason="done")
        transcript_contract_begin(
            stores, "d", parent="c", reason="delegation", provider="p", chat_type="group", folder="/w", branch="x/Y"
        )
        say(stores, "a", "x", "y")
        placed = stores.sessions.get(["d"])["d"]
        assert (placed.provider, placed.chat_type, placed.folder, placed.branch) == ("p", "group", "/w", "x/Y")
        chosen: dict[str, SessionFilter] = {
            "ab": SessionFilter(project="/w/app/"),
            "acd": SessionFilter(archived=False),
            "b": SessionFilter(archived=True),
            "c": SessionFilter(user="u"),
            "a": SessionFilter(search="login"),
            "d": SessionFilter(delegated=True),
            "abc": SessionFilter(delegated=False),
            "": SessionFilter(source="x"),
            "bcd": SessionFilter(max_messages=1),
        }
        for expected, which in chosen.items():
            assert "".join(sorted(one.id for one in stores.queries.matching(which))) == expected, which
            assert "".join(sorted(stores.queries.recent(which, 9, 0))) == expected, which
        also = [
            SessionFilter(model="big"),
            SessionFilter(min_tokens=100),
            SessionFilter(min_messages=2),
            SessionFilter(project="app/"),
            SessionFilter(search="A", exclude_sources=("x",), started_before=1.0, user="", project="/w/app"),
        ]
        assert [[one.id for one in stores.queries.matching(which)] for which in also] == [["a"]] * 5
        for which in (SessionFilter(provider="p", chat_type="group"), SessionFilter(folder="/w/", branch="y")):
            assert [one.id for one in stores.queries.matching(which)] == ["d"]
        assert [one.id for one in stores.queries.matching(SessionFilter(started_after=50.0))] == ["b"]
        assert [one.id for one in stores.queries.matching(SessionFilter(end_reason="done"))] == ["c"]

    def test_what_stands_for_others_hides_them_in_the_same_step(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        first, second, third = say(stores, "a", "one", "two", "three")
        summary = [Message("user", "short", timestamp=20.0)]
        (fourth,) = stores.messages.append("a", summary, compacts=second)
        assert [one.id for one in stores.messages.of_session("a", hidden=False)] == [third, fourth]
        assert [one.hidden for one in stores.messages.of_session("a", hidden=True)] == [
            "compacted",
            "compacted",
            "",
            "",
        ]
        assert stores.sessions.get(["a"])["a"].message_count == 2
        with pytest.raises(KeyError):
            stores.messages.append("nowhere", summary, compacts=first)

    def test_conversations_come_by_their_newest_session(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", "b", "c")
        transcript_contract_begin(stores, "a2", parent="a", reason="resume")
        say(stores, "b", "x", at=30.0)
        say(stores, "c", "x", at=20.0)
        say(stores, "a", "x", at=10.0)
        say(stores, "a2", "x", at=40.0)
        assert list(stores.queries.recent(SessionFilter(), 2, 0)) == ["a", "b"]
        assert list(stores.queries.recent(SessionFilter(), 9, 1)) == ["b", "c"]

    # ── messages ──

    def test_a_message_is_kept_exactly(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        (message_id,) = stores.messages.append("a", [EVERYTHING])
        expected = replace(EVERYTHING, id=message_id, session_id="a")
        view = stores.reopen()
        assert list(view.messages.of_session("a", hidden=False)) == [expected]
        assert view.messages.by_ids([message_id, 999]) == {message_id: expected}

    @pytest.mark.parametrize(
        "text",
        ["", "\0", "a\0b", "x" * 20_000, "word " * 20_000, BASE64, f"see {BASE64} and {BASE64}= end", '["a", 1]'],
    )
    def test_any_text_comes_back(self, stores: TranscriptStores, text: str) -> None:
        transcript_contract_begin(stores, "a")
        contents: list[Content] = [text, [{"type": "text", "text": text}]]
        for content in contents:
            stores.messages.append("a", [Message("tool", content, timestamp=1.0, reasoning=text, extra={"x": text})])
        for message, content in zip(stores.messages.of_session("a", hidden=False), contents, strict=True):
            assert (message.content, message.reasoning, message.extra) == (content, text, {"x": text})

    def test_large_values_are_stored_once(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        say(stores, "a", *[f"{number} {BASE64}" for number in range(5)], *["word " * 10_000] * 5)
        stats = stores.messages.stats()
        assert stats.payloads == 2
        assert stats.payload_bytes < stats.payload_text_bytes < 2 * 60_000

    def test_ids_increase_and_batches_are_whole(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", "b")
        ids = [*say(stores, "a", "1", "2"), *say(stores, "b", "3"), *say(stores, "a", "4")]
        assert ids == sorted(set(ids))
        assert contents(stores.messages.of_session("a", hidden=False)) == ["1", "2", "4"]
        assert contents(stores.messages.of_session("a", hidden=False, after=ids[0], limit=1)) == ["2"]
        with pytest.raises(KeyError):
            say(stores, "nowhere", "x")
        assert list(stores.messages.append("a", [])) == []

    def test_a_session_is_kept_up_to_date_by_its_messages(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", started=100.0)
        say(stores, "a", "x", at=50.0)
        first = stores.sessions.get(["a"])["a"]
        assert (first.started, first.last_active, first.preview, first.message_count) == (50.0, 50.0, "p", 1)
        stores.messages.append("a", [replace(EVERYTHING, timestamp=70.0)], preview="other")
        say(stores, "a", "x", at=60.0)
        then = stores.sessions.get(["a"])["a"]
        assert (then.started, then.last_active, then.preview) == (50.0, 70.0, "p")
        assert (then.message_count, then.tool_call_count) == (3, 1)

    def test_hidden_messages_are_there_when_asked_for(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", "b")
        ids = say(stores, "a", *"123456")
        other = say(stores, "b", "x")
        assert stores.messages.hide("a", ids[1], ids[2], "", "compacted") == 2
        assert stores.messages.hide("a", ids[2], 2**62, "", "rewound") == 3
        assert contents(stores.messages.of_session("a", hidden=False)) == ["1"]
        assert [one.hidden for one in stores.messages.of_session("a", hidden=True)] == [
            *("", "compacted", "compacted"),
            *("rewound", "rewound", "rewound"),
        ]
        assert stores.sessions.get(["a"])["a"].message_count == 1
        assert contents(stores.messages.of_session("b", hidden=False)) == ["x"]
        assert contents(stores.messages.around(ids[0], 9)) == ["1", "2", "3"]
        assert list(stores.messages.around(ids[4], 9)) == []
        assert contents(stores.messages.around(other[0], 9)) == ["x"]
        assert stores.messages.hide("a", 0, 2**62, "rewound", "") == 3
        assert contents(stores.messages.around(ids[4], 1)) == ["4", "5", "6"]
        with pytest.raises(KeyError):
            stores.messages.hide("nowhere", 0, 9, "", "rewound")

    def test_edges_are_outside_and_never_twice(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        ids = say(stores, "a", *"1234", "", *"56")
        say(stores, "a", "t", role="tool")
        edges = stores.messages.edges

        def texts(count: int, outside: tuple[int, int] | None) -> list[list[Any]]:
            return [contents(end) for end in edges("a", count, outside, ("user",))]

        assert texts(2, None) == [["1", "2"], ["5", "6"]]
        assert texts(9, None) == [["1", "2", "3", "4", "5", "6"], []]
        assert texts(4, None) == [["1", "2", "3", "4"], ["5", "6"]]
        assert texts(2, (ids[1], ids[3])) == [["1"], ["5", "6"]]
        assert texts(0, None) == [[], []]

    # ── deleting ──

    def test_a_deleted_session_is_nowhere_until_it_comes_back(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", "b", title=None)
        (message_id,) = say(stores, "a", "x")
        stores.sessions.update(["a"], {"deleted": 7.0, "title": "Name"})
        transcript_contract_begin(stores, "c", title="Name")
        assert stores.sessions.get(["a"]) == {}
        assert stores.sessions.get(["a"], deleted=True)["a"].deleted == 7.0
        assert [one.id for one in stores.queries.deleted(8.0)] == ["a"]
        assert list(stores.queries.deleted(7.0)) == []
        assert "a" not in stores.queries.recent(SessionFilter(), 9, 0)
        assert [one.id for one in stores.queries.matching(SessionFilter())] == ["b", "c"]
        assert list(stores.queries.with_prefix("a", 9)) == []
        assert list(stores.queries.of_conversations(["a"])) == []
        assert list(stores.messages.of_session("a", hidden=True)) == list(stores.messages.around(message_id, 1)) == []
        assert stores.messages.by_ids([message_id]) == {}
        assert stores.messages.stats().messages == 0
        for call in (lambda: say(stores, "a", "y"), lambda: stores.messages.hide("a", 0, 9, "", "rewound")):
            with pytest.raises(KeyError):
                call()
        with pytest.raises(StoreChanged):
            stores.sessions.update(["a"], {"deleted": None})
        stores.sessions.update(["a"], {"deleted": None, "title": None})
        assert contents(stores.messages.of_session("a", hidden=False)) == ["x"]

    def test_staged_messages_show_when_their_session_does(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", deleted=5.0)
        stores.messages.append("a", [Message("user", "x", timestamp=1.0)], staged=True)
        assert list(stores.messages.of_session("a", hidden=True)) == []
        stores.sessions.update(["a"], {"deleted": None})
        assert contents(stores.messages.of_session("a", hidden=False)) == ["x"]

    def test_a_purge_is_for_good_and_told(self, stores: TranscriptStores) -> None:
        stores.sessions.add([session("a"), session("b")], {"a": "prompt", "b": "prompt"})
        gone = [*say(stores, "a", "1", f"2 {BASE64}"), *say(stores, "a", "3")]
        kept = say(stores, "b", f"4 {BASE64}")
        gone += say(stores, "a", "word " * 9999)
        assert stores.sessions.purge("a") == 0  # it is not deleted
        stores.sessions.update(["a"], {"deleted": 5.0})
        before = stores.feed.position().seq
        assert stores.sessions.purge("a") == 4
        told = [change for change in stores.feed.since(before, 99) if change.kind == "purge"]
        assert [message_id for change in told for message_id in change.message_ids] == gone
        assert stores.sessions.get(["a"], deleted=True) == {}
        assert stores.sessions.system_prompt("b") == "prompt"
        assert contents(stores.messages.of_session("b", hidden=False)) == [f"4 {BASE64}"]
        assert stores.messages.stats().payloads == 2
        assert [one.id for one in stores.feed.searchable([*gone, *kept])] == list(kept)
        assert stores.feed.message_count() == 1
        transcript_contract_begin(stores, "a")
        assert say(stores, "a", "new")[0] > max(gone)

    # ── the feed ──

    def test_the_feed_tells_every_append_once(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a", "b")
        ids = [*say(stores, "a", "1", "2"), *say(stores, "b", "3"), *say(stores, "a", "4")]
        end = stores.reopen().feed.position()
        assert (end.seq > 0, bool(end.store_id), bool(end.epoch)) == (True, True, True)
        seen: list[int] = []
        at = 0
        while changes := stores.feed.since(at, 2):
            seen += [message_id for change in changes for message_id in change.message_ids]
            at = changes[-1].seq
        assert (seen, at) == (ids, end.seq)
        assert stores.feed.message_count() == len(ids)

    def test_searchable_text_sees_through_payloads_and_leaves_out_noise(self, stores: TranscriptStores) -> None:
        transcript_contract_begin(stores, "a")
        text = "needle " + "word " * 9999 + BASE64
        ids = [*stores.messages.append("a", [EVERYTHING]), *say(stores, "a", text)]
        first, second = stores.feed.searchable(ids)
        assert (first.id, first.session_id, first.role, first.timestamp) == (ids[0], "a", "assistant", 12.5)
        assert first.text.split() == ["sëe", "日本", "🙂", "tool", "f", "a", "1.0"]
        assert second.text.startswith("needle word")
        assert BASE64[:50] not in second.text

    def test_stats_count(self, stores: TranscriptStores) -> None:
        stores.sessions.add([session("a", usage=Usage(1, cost_usd=0.5)), session("b", archived=True)], {})
        transcript_contract_begin(stores, "c", parent="a", reason="resume")
        ids = say(stores, "a", "1", "2", at=20.0)
        stores.messages.hide("a", ids[1], ids[1], "", "rewound")
        stats = stores.messages.stats()
        assert (stats.sessions, stats.conversations, stats.messages, stats.hidden_messages) == (3, 2, 1, 1)
        assert (stats.archived_sessions, stats.deleted_sessions, stats.sources) == (1, 0, {"cli": (3, 1)})
        assert (stats.usage, stats.first, stats.last) == (Usage(1, cost_usd=0.5), 1.0, 20.0)
