"""`MemoryProvider`: the interface of an external memory. One object serves one conversation.

Four members are required: the name, whether it is available, how it begins, and its tools. All others are optional and
do nothing by default. Methods may be called from different threads: `prefetch` and tools while earlier turns are still
being handed over in the background. An exception is counted and shown, and never fails a turn.

Names and signatures are those of Hermes Agent's class of this name, so that providers run in both. Herma also calls,
if a provider has them: `post_setup(hermes_home, config)`, which replaces the questions of `herma providers setup`;
`get_status_config(config)`, pairs for `herma providers status`; and it reads `read_tools`, the names of tools that
change nothing, which are the ones that subagents get; and `aliases`, other names of its tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RecallStatus:
    """The last recall. `outcome`: recalled, nothing, late (then the text was dropped), unanswered, or in words of the
    provider."""

    outcome: str = ""
    characters: int = 0
    seconds: float = 0.0
    session_id: str = ""
    turn: int = 0
    at: float = 0.0


class MemoryProvider(ABC):
    """The base of every external memory."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Short, and the same for ever: `memory.provider` names it."""

    @abstractmethod
    def is_available(self) -> bool:
        """Return whether it can work here: its packages are installed, and its key is set. Does not use the network."""

    @abstractmethod
    def initialize(self, session_id: str, **kwargs: Any) -> None:
        """A session begins.

        `kwargs` say where and for whom: platform and source (cli, telegram, …), platform_hint, agent_context (primary,
        subagent, cron), user_id, user_name, chat_id, chat_type, thread_id, agent_identity (the profile), hermes_home
        (the folder of this memory), session_title, parent_session_id, system_message, project, folder, model, and
        ask_model: what the auxiliary model answers to instructions and a text, under the daily cap; "" if there is
        none. More may come: take `**kwargs`.
        """

    @abstractmethod
    def get_tool_schemas(self) -> Sequence[Mapping[str, Any]]:
        """Tools for the model, as OpenAI function schemas, with or without their wrapping; [] for none."""

    # ── for the prompt and for a turn ──

    def system_prompt_block(self) -> str:
        """Return what the system prompt should say about this memory. Asked once; it stays for the whole session."""
        return ""

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002
        """Return what may help with this message of the user. It has a deadline: prepare it in `queue_prefetch`."""
        return ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: B027
        """A turn is over: time to prepare what the next one may need. Runs in the background."""

    def sync_turn(  # noqa: B027
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        """Take in one turn. Runs in the background, turns in their order."""

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:
        """Run one of its tools. → text for the model, JSON as a rule."""
        raise NotImplementedError(f"{self.name} has no tool {tool_name}")

    # ── what happens ──

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:  # noqa: B027
        """The user has spoken, for the n-th time."""

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: B027
        """The session is over, or goes on under another id: then `on_session_switch` follows."""

    def on_session_switch(  # noqa: B027
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,
    ) -> None:
        """The conversation goes on under this id, or under the same one with turns taken back (`rewound`)."""

    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]]) -> str:  # noqa: ARG002
        """The conversation is about to be shortened. → what the summary should not miss."""
        return ""

    def on_delegation(self, task: str, result: str, *, child_session_id: str = "", **kwargs: Any) -> None:  # noqa: B027
        """A subagent has finished what it was given."""

    def on_memory_write(  # noqa: B027
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        """Curated memory was changed, and the change is on disk: `add`, `replace` or `remove`."""

    def shutdown(self) -> None:  # noqa: B027
        """The last call: let go of everything."""

    # ── setting it up ──

    def get_config_schema(self) -> list[dict[str, Any]]:
        """Return the values to configure it with: key, description, secret, required, default, choices, …"""
        return []

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:  # noqa: B027
        """Keep what was configured, without secrets."""

    def backup_paths(self) -> list[str]:
        """Files outside the home that a backup should know of. Must work before `initialize`."""
        return []

    def unavailable_reason(self) -> str:
        """Why `is_available` says no, in a few words."""
        return ""

    def recall_status(self) -> RecallStatus | None:
        """Return its own account of the last recall, if it keeps one."""
        return None
