"""What the model's window holds for one conversation: which part is prompt, memory, talk and tool results. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from herma.ports import TokenCounter
from herma.prompt.budget import SLOTS, WHERE, Overflow, Plan, Slot, WorkingMemory, shares_of
from herma.prompt.families import window_of
from herma.prompt.snapshot import RULE
from herma.prompt.weight import PER_MESSAGE, count_content, count_message, count_tools
from herma.transcript.replay import as_sent
from herma.types import Content, Message

_MEMORY_BEGINS = (f"\n\n{RULE}\n", "\n\n# Earlier work that may matter here\n")
BORROWED = "more than its share, taken from what is free in the window; nothing was cut for it"
"""What was sent was sent whole: a slot that is over its share has borrowed, and has lost nothing."""
_MEMORY_ENDS = "\n\nThis conversation began on "


@dataclass(frozen=True, slots=True)
class Budget:
    """How windows are divided, as configured. A share of 0 is the profile's."""

    window: int = 0
    profile: str = "default"
    shares: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))

    def of(self, model: str | None) -> WorkingMemory:
        """The budget for a model: its window by its name, unless one is configured."""
        window = window_of(model, self.window)
        changes = {slot: share for slot, share in self.shares.items() if share}
        return WorkingMemory(window.tokens, shares_of(self.profile, changes), window.note)


def hold(
    budget: WorkingMemory,
    counter: TokenCounter,
    system_prompt: str,
    tools: Sequence[Mapping[str, Any]],
    history: Sequence[Message],
    hidden: Sequence[Message] = (),
) -> Plan:
    """The window with a conversation in it; `hidden` are messages that a summary stands for."""
    count = counter.count
    memory = memory_of(system_prompt)
    usage: dict[Slot, int] = {
        "system": PER_MESSAGE + count(system_prompt.replace(memory, "", 1)) + count_tools(tools, count),
        "memory": count(memory),
        "conversation": 0,
        "tools": 0,
    }
    left_out = 0
    for message in history:
        tokens = message.tokens if message.tokens is not None else count_message(as_sent(message), count)
        if message.role == "tool":
            usage["tools"] += tokens
            if message.sent is not None:
                left_out += max(0, count_content(message.content, count) - count_content(message.sent, count))
            continue
        injected = count(injected_in(message.content, message.sent))
        usage["memory"] += injected
        usage["conversation"] += max(0, tokens - injected)
    exactly = "exact" if counter.exact else "estimated, rather too high than too low"
    note = "; ".join(filter(None, [budget.note, f"tokens are {exactly} ({counter.name})"]))
    plan = replace(budget, note=note).with_usage(usage, where=dict.fromkeys(SLOTS, BORROWED))
    compressed = sum(message.tokens or count_message(as_sent(message), count) for message in hidden)
    gone = [Overflow("tools", left_out, WHERE["tools"]), Overflow("conversation", compressed, WHERE["conversation"])]
    return replace(plan, overflows=(*plan.overflows, *(one for one in gone if one.tokens)))


def memory_of(system_prompt: str) -> str:
    """The part of a prompt that is memory: the blocks, earlier work, and what external memories say."""
    begins = [at for mark in _MEMORY_BEGINS if (at := system_prompt.find(mark)) >= 0]
    if not begins:
        return ""
    ends = system_prompt.rfind(_MEMORY_ENDS)
    start = min(begins)
    return system_prompt[start : ends if ends > start else len(system_prompt)]


def injected_in(content: Content, sent: Content) -> str:
    """What was added to a message when it was sent."""
    if isinstance(content, str) and isinstance(sent, str) and sent.startswith(content):
        return sent[len(content) :]
    if isinstance(content, list) and isinstance(sent, list) and len(sent) > len(content):
        return "\n".join(str(part.get("text", "")) for part in sent[len(content) :])
    return str(sent) if content is None and isinstance(sent, str) else ""
