"""Asking a language model."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from herma.types import Reply


class ChatModel(Protocol):
    """A model that answers conversations. Safe to use from several threads.

    What fails raises one of `ModelUnreachable`, `ModelRefused` (`ModelOverflow`: the request is too long),
    `ModelTimeout`, `ModelCancelled`, `ModelBroken`, and with background work `SpendRefused`: each of them a
    `ModelError` with one sentence, the next step in `hint`, and the text that had come by then in `partial`.
    """

    @property
    def name(self) -> str:
        """The model's name, as requests and prices know it."""

    def reply(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        temperature: float | None = None,
        max_tokens: int | None = None,
        deadline: float | None = None,
        on_text: Callable[[str], None] | None = None,
        cancel: threading.Event | None = None,
        json_schema: Mapping[str, Any] | None = None,
        cache_marks: Sequence[int] | None = None,
    ) -> Reply:
        """The model's answer to OpenAI-style messages, which are not changed.

        `deadline` is how many seconds it may take in all, with every new attempt; `None`: as configured. `on_text` is
        given each piece of text as it comes, in the caller's thread; once it has been given one, a failure is final.
        Setting `cancel` ends the call within a tenth of a second. `json_schema` asks for a text that is JSON of this
        shape. `cache_marks` are the places of messages up to which the provider should keep the request for the next
        one; `None`: where the model's kind usually has them, `()`: nowhere.
        """
        ...
