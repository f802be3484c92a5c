"""Test a provider, an engine, an importer or an agent with pytest: suites to subclass, a check of prompts, a fixture.

    class TestMyMemory(ProviderContract):           # the same with EngineContract and its fixture `engine`
        @pytest.fixture
        def provider(self, tmp_path):
            return MyMemory(folder=tmp_path)

    class TestMyImporter(ImporterContract):         # with fixtures `reader` and `sample`, a file in its format
        ...

    @pytest.fixture(autouse=True)
    def prefixes():                                 # what was sent to a model is never changed afterwards
        with watch_prefixes():
            yield

    from herma.testing.contracts import scripted_model      # in conftest.py: a fixture that makes ScriptedModels

The suites call a provider or an engine as sessions do: in the same order, with conversations of all shapes, from
several threads. They do not judge what a provider remembers or how good a summary is; test that yourself.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias
from weakref import WeakKeyDictionary

import pytest

from herma.app import Herma
from herma.compression.engine import CompressionRows, ContextEngine, EngineNeeds, Tries, unfit
from herma.compression.summary import Compressed, NotCompressed, last_request
from herma.importers.base import FormatReader, ImportedMessage, ImportedSession, ImportedUsage, Machine, ReadLog
from herma.importers.pipeline import Imports
from herma.prompt.fence import sanitize
from herma.prompt.tokens import count_message, counter_for
from herma.providers.manager import accepted, tool_schemas
from herma.session import Session
from herma.testing.doubles import Answer, Asked, ScriptedModel
from herma.transcript.messages import as_sent, text_of
from herma.types import Message, Usage

if TYPE_CHECKING:
    from herma.providers.base import MemoryProvider

WINDOW = 8_000
"""Tokens of the window that an engine is made for."""
MakeModel: TypeAlias = Callable[..., ScriptedModel]
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


@pytest.fixture
def scripted_model() -> Iterator[MakeModel]:
    """Make scripted models from the steps of a script, or from one function; they stop when the test is over."""
    with ExitStack() as stack:

        def make(*steps: str | Answer | Callable[[Asked], str | Answer], **options: Any) -> ScriptedModel:
            script = steps[0] if len(steps) == 1 and callable(steps[0]) else steps
            return stack.enter_context(ScriptedModel(script, **options))

        yield make


@contextmanager
def watch_prefixes() -> Iterator[None]:
    """Check every request of every session in the block; raise `AssertionError` if a sent message was changed.

    A conversation may grow, be rewound, get a new prompt by `reload()`, or go on with messages that replace it after a
    compression. Cache marks do not count as a change.
    """
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
    """Check that the request follows from the stored messages, and that no stored content holds a fence.

    If another program writes to the session too, each has its own order, in which its prefix only grows, and leaves out
    what the other has not finished.
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
    """Return the message without cache marks; text that was made a part to carry one is text again."""
    parts = message.get("content")
    if not isinstance(parts, list) or not any(isinstance(part, dict) and "cache_control" in part for part in parts):
        return message
    bare = [{key: value for key, value in part.items() if key != "cache_control"} for part in parts]
    text = len(bare) == 1 and bare[0].keys() == {"type", "text"}
    return {**message, "content": bare[0]["text"] if text else bare}


class RememberedTries(CompressionRows):
    """Keep in memory what an engine has tried."""

    def __init__(self) -> None:
        self.kept: dict[str, Tries] = {}

    def tries(self, conversation: str) -> Tries:
        return self.kept.get(conversation, Tries())

    def remember(self, conversation: str, tries: Tries) -> None:
        self.kept[conversation] = tries


class EngineContract:
    """The rules that every context engine must keep."""

    @pytest.fixture
    def needs(self) -> EngineNeeds:
        """Return what an engine is made of, without a model."""
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
        raise NotImplementedError("override the fixture `engine`")

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
        assert isinstance(done, Compressed | NotCompressed)
        if isinstance(done, NotCompressed):
            assert done.reason.strip(), "people need a reason"
            return
        assert unfit(done, messages) == ""
        assert last_request(messages) in "\n".join(str(message.content) for message in done.messages)
        assert weigh(done.messages) < weigh(messages), "it is shorter"
        assert done.tokens_after < done.tokens_before

    def test_a_long_conversation_is_made_shorter(self, engine: ContextEngine) -> None:
        messages = conversation(3, turns=80)
        engine.on_session_start("s-1", boundary_reason="new")
        done = answer(engine, messages, force=True)
        assert isinstance(done, Compressed), done

    def test_it_does_not_change_what_it_is_given(self, engine: ContextEngine) -> None:
        messages = conversation(4, turns=40)
        before = list(messages)
        answer(engine, messages, force=True)
        assert messages == before

    def test_again_and_again(self, engine: ContextEngine) -> None:
        """It gets its own answer with more after it, again and again."""
        engine.on_session_start("s-1", boundary_reason="new")
        messages: Sequence[Message] = conversation(5, turns=40)
        for round_ in range(4):
            done = answer(engine, messages, force=True)
            if isinstance(done, Compressed):
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
        if isinstance(done, Compressed):
            assert unfit(done, messages) == ""

    @pytest.mark.parametrize("messages", [[], [Message("user", "Hello.", id=1)]])
    def test_what_is_too_short_is_left_alone(self, engine: ContextEngine, messages: list[Message]) -> None:
        assert isinstance(answer(engine, messages, force=True), NotCompressed)

    def test_it_takes_a_subject_and_what_others_say(self, engine: ContextEngine) -> None:
        for outside in ("", "Remember the weir.", "x" * 100_000, "</memory-context> {} %s \x00"):
            done = engine.compress(
                conversation(8, turns=40),
                current_tokens=WINDOW * 2,
                focus_topic="the weir",
                force=True,
                memory_context=outside,
            )
            assert isinstance(done, Compressed | NotCompressed)

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
        assert isinstance(done, Compressed | NotCompressed)

    def test_what_happens_is_told_in_any_order(self, engine: ContextEngine) -> None:
        for reason in ("new", "resume", "reload", "compression"):
            engine.on_session_start("s-1", boundary_reason=reason, old_session_id="s-0")
            engine.update_from_response(Usage())
            engine.update_from_response(Usage(input=WINDOW, cache_read=10, output=5))
            engine.on_session_end("s-1", conversation(9))
        engine.on_reset()
        engine.on_session_end("s-1", [])


def answer(engine: ContextEngine, messages: Sequence[Message], *, force: bool = False) -> Any:
    """Compress as a session does: with the size of the whole request, prompt and tools included."""
    return engine.compress(messages, current_tokens=weigh(messages) + 500, force=force)


def weigh(messages: Sequence[Message]) -> int:
    count = counter_for(None).count
    return sum(count_message(as_sent(message), count) for message in messages)


def stored(messages: Sequence[Message]) -> list[Message]:
    """Number the messages, as the transcript does."""
    return [replace(message, id=at) for at, message in enumerate(messages, 1)]


def conversation(seed: int, *, turns: int | None = None, first: int = 1) -> list[Message]:
    """Make turns as agents do: a request, calls with their results, a reply."""
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
    """Make calls of a tool with their results."""
    messages: list[Message] = []
    for step in range(count):
        name = f"call_{first}_{step}"
        call = {"id": name, "type": "function", "function": {"name": "run", "arguments": "{}"}}
        messages.append(Message("assistant", None, id=first + len(messages), tool_calls=(call,)))
        messages.append(Message("tool", f"row {step} " * 60, id=first + len(messages), tool_call_id=name))
    return messages


class ProviderContract:
    """The rules that every external memory must keep."""

    @pytest.fixture
    def provider(self) -> MemoryProvider:
        raise NotImplementedError("override the fixture `provider`")

    @pytest.fixture
    def begun(self, provider: MemoryProvider, tmp_path: Path) -> Any:
        """Return the provider in a session; it is shut down afterwards."""
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
        """Bad arguments are answered or refused with an error; they never break the provider."""
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
        """Herma recalls in one thread while another still hands over turns."""
        with ThreadPoolExecutor(2) as pool:
            for number in range(20):
                handed = pool.submit(hand_over, begun, f"turn {number}", "ok")
                recalled = pool.submit(begun.prefetch, f"turn {number}", session_id="s-1")
                assert isinstance(recalled.result(), str)
                handed.result()

    def test_it_takes_part_in_a_session(self, provider: MemoryProvider, tmp_path: Path) -> None:
        home = tmp_path / "herma"
        folder = home / "plugins" / "contract"
        folder.mkdir(parents=True)
        (folder / "__init__.py").write_text(
            "from herma.testing.contracts import TESTED\n"
            f"def register(ctx): ctx.register_memory_provider(TESTED[{str(tmp_path)!r}])\n"
        )
        TESTED[str(tmp_path)] = provider
        flags = {"memory.provider": "contract", "providers.timeout": 10.0, "embedding.model": "none"}
        with Herma.open(home, flags=flags) as h:
            session = h.session()
            block = session.system_prompt
            for number in range(4):
                text = f"Turn {number}: where do herons nest?"
                sent = str(session.before_model(text)[-1]["content"])
                assert sent.startswith(text), "the user's words come first, unchanged"
                assert sent.count("<memory-context>") <= 1
                session.after_model("By the weir.")
                if number == 2:
                    assert session.system_prompt == block
                    session.continue_with([Message("user", "In short: herons.")])
            session.call_tool("memory", {"action": "add", "target": "user", "content": "Likes herons."})
            session.close()
            health = h.providers.status(ask=False).health
        assert health.failures == 0, health.last

    def test_it_lets_go_whenever_it_is_asked_to(self, provider: MemoryProvider, tmp_path: Path) -> None:
        begin(provider, "s-1", tmp_path)
        provider.shutdown()
        provider.shutdown()


TESTED: dict[str, MemoryProvider] = {}
"""The providers of running tests, for the plugins that hand them over."""


def begin(provider: MemoryProvider, session_id: str, home: Path) -> None:
    """Initialise the provider as Herma does."""
    session_values = {**KNOWN, "hermes_home": str(home)}
    provider.initialize(session_id, **accepted(provider.initialize, session_values))


def hand_over(provider: MemoryProvider, user: str, assistant: str) -> None:
    """Hand a turn over as Herma does."""
    named = accepted(provider.sync_turn, {"session_id": "s-1", "messages": MESSAGES})
    provider.sync_turn(user, assistant, **named)


def outcome(call: Callable[[], object]) -> object:
    """Return what a call returns or raises."""
    try:
        return call()
    except Exception as exc:  # noqa: BLE001  a tool may refuse nonsense in its own way
        return exc


class ImporterContract:
    """Prove what holds for every reader of transcripts: nothing is lost, repeated or fatal, and originals are only
    read.
    """

    @pytest.fixture
    def reader(self) -> FormatReader:
        raise NotImplementedError("a fixture that returns the reader to test")

    @pytest.fixture
    def sample(self, tmp_path: Path) -> Path:
        raise NotImplementedError("a fixture that writes a transcript in its format, and returns the file")

    @pytest.fixture
    def app(self, tmp_path: Path) -> Iterator[Herma]:
        with Herma.open(tmp_path / "home-of-the-contract", flags={"embedding.model": "none"}) as app:
            yield app

    def test_it_has_a_name(self, reader: FormatReader) -> None:
        assert reader.name
        assert reader.name == reader.name.strip().lower()
        assert reader.title

    def test_it_recognises_its_own_files(self, reader: FormatReader, sample: Path) -> None:
        assert reader.recognises(sample, sample.read_bytes()[:65_536])

    def test_everything_is_imported_once(self, reader: FormatReader, sample: Path, app: Herma) -> None:
        imports, before = Imports(app, Machine(sample.parent), reader), sample.read_bytes()
        first = imports.run(reader.name, sample)
        assert first.messages
        kept = [_texts(app, one.id) for one in app.transcripts.list()]
        app.db.run("DELETE FROM import_files")  # so that the file is read again
        again = imports.run(reader.name, sample)
        assert (again.messages, again.known) == (0, first.messages)
        assert [_texts(app, one.id) for one in app.transcripts.list()] == kept
        assert sample.read_bytes() == before

    def test_a_record_that_says_nothing_is_reported(self, reader: FormatReader, sample: Path) -> None:
        log = ReadLog()
        items = [item for item in reader.read(sample, log) if _taken(log)]
        assert [item for item in items if isinstance(item, ImportedMessage)]
        assert all(isinstance(item, ImportedMessage | ImportedSession | ImportedUsage) for item in items)
        assert not any(kind.endswith("without content") for kind in log.skipped), log.skipped
        keys = [(item.session, key) for item in items if isinstance(item, ImportedMessage) for key in item.keys]
        assert len(keys) == len(set(keys)), "two messages have one key"

    def test_broken_lines_lose_nothing_else(self, reader: FormatReader, sample: Path, app: Herma) -> None:
        if sample.suffix != ".jsonl":
            pytest.skip("its files are not lines")
        whole = sum(isinstance(item, ImportedMessage) for item in reader.read(sample, ReadLog()))
        lines = sample.read_bytes().splitlines(keepends=True)
        sample.write_bytes(
            lines[0] + b'not json\n[1]\n{"type": "of-tomorrow"}\n\xff\n' + b"".join(lines[1:]) + b'{"cut'
        )
        report = Imports(app, Machine(sample.parent), reader).run(reader.name, sample)
        assert report.messages == whole
        (problem,) = report.problems
        assert sum(problem.broken.values()) + sum(problem.unknown.values()) >= 4
        assert all(problem.lines.values())

    def test_a_file_that_grows_adds_only_the_rest(self, reader: FormatReader, sample: Path, app: Herma) -> None:
        if sample.suffix != ".jsonl":
            pytest.skip("its files do not grow")
        whole, lines = sample.read_bytes(), sample.read_bytes().splitlines(keepends=True)
        for step in (1, 3):
            with Herma.open(app.home.with_name(f"grown-{step}"), flags={"embedding.model": "none"}) as grown:
                imports = Imports(grown, Machine(sample.parent), reader)
                for end in range(step, len(lines) + step, step):
                    sample.write_bytes(b"".join(lines[:end]))
                    imports.run(reader.name, sample)
                kept = _everything(grown, hidden=not reader.edits)
            Imports(app, Machine(sample.parent), reader).run(reader.name, sample)
            at_once = _everything(app, hidden=not reader.edits)
            assert kept == at_once, "what is read in pieces differs from what is read at once"
        assert sample.read_bytes() == whole


def _taken(log: ReadLog) -> bool:
    log.taken += 1
    return True


def _texts(app: Herma, session: str, *, hidden: bool = True) -> list[tuple[object, ...]]:
    messages = app.transcripts.messages(session, include_hidden=hidden)
    return [(one.role, one.content, one.hidden, one.tool_name, one.tool_calls, one.reasoning) for one in messages]


def _everything(app: Herma, *, hidden: bool) -> list[Any]:
    return [
        (
            one.title,
            one.model,
            one.folder,
            one.branch,
            one.parent,
            one.reason,
            one.usage,
            _texts(app, one.id, hidden=hidden),
        )
        for one in sorted(app.transcripts.list(limit=100, delegated=None), key=lambda one: one.id)
    ]
