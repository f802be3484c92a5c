"""What every external memory must keep, as one suite: subclass `ProviderContract` and give it a `provider` fixture.

    class TestMyMemory(ProviderContract):
        @pytest.fixture
        def provider(self, tmp_path):
            return MyMemory(folder=tmp_path)

It calls the provider as Herma does, in the same order and from several threads. It knows nothing of what the provider
should remember: that is for tests of your own.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herma.providers.base import MemoryProvider
from herma.providers.calling import accepted, tool_schemas

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
