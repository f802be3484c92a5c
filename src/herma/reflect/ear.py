"""Who said what in one conversation, so that what the model repeats is known by its speaker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from herma.curated.trust import Heard
from herma.errors import UsageError
from herma.reflect.compress.summary import is_summary
from herma.transcript.wire import text_of
from herma.types import Message, Origin


class Found(Protocol):
    """Something that was recalled for a turn, and whether others said it."""

    @property
    def text(self) -> str: ...

    @property
    def outside(self) -> bool: ...


class Ear:
    """Hears the user and the tools; what our own memory tool answers is known already, other tools are outside."""

    def __init__(self) -> None:
        self.heard = Heard()
        self._asked: dict[str, str] = {}

    def listen(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._asked |= {str(call.get("id")): str(_function(call).get("name")) for call in message.tool_calls}
            text = text_of(message.content)
            if is_summary(text):  # it repeats the user and everybody else alike
                self.heard.add(text, Origin.TOOL_OUTPUT)
            elif message.role == "user":
                self.heard.add(text, Origin.USER_SAID)
            elif message.role == "tool" and self._asked.get(message.tool_call_id or "") != "memory":
                self.heard.add(text, Origin.TOOL_OUTPUT)

    def recalled(self, given: str, found: Sequence[Found]) -> str:
        """What the caller and others recall for a turn, as one text; what is others' words is heard as such."""
        for text in [given, *(one.text for one in found if one.outside)]:
            if text:
                self.heard.add(text, Origin.TOOL_OUTPUT)
        return "\n\n".join(filter(None, [given, *(one.text for one in found)]))

    def told(self, text: object, origin: Origin) -> None:
        """Somebody says that the model was shown this."""
        if not isinstance(text, str):
            raise UsageError(f"What was heard is text, not {type(text).__name__}.", hint="Give it as a string.")
        try:
            self.heard.add(text, Origin(origin))
        except ValueError as exc:
            known = ", ".join(each.value for each in Origin)
            raise UsageError(f"{origin!r} is no origin.", hint=f"There are {known}.") from exc


def _function(call: Mapping[str, Any]) -> Mapping[str, Any]:
    function = call.get("function")
    return function if isinstance(function, Mapping) else {}
