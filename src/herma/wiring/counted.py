"""A model is a guest: when it fails, that is written down for the doctor and the dashboard, and raised all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from herma.errors import ModelCancelled, ModelError, ModelOverflow
from herma.ports import ChatModel
from herma.providers.guard import Trouble
from herma.types import Reply


class CountedModel:
    """Implements `ChatModel`. What the caller did (gave up, asked too much) is no failure of the model."""

    def __init__(self, model: ChatModel, troubled: Callable[[Trouble], None], what: str) -> None:
        self._model = model
        self._troubled = troubled
        self._what = what

    @property
    def name(self) -> str:
        return self._model.name

    def reply(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> Reply:
        """The answer; see `ChatModel`."""
        try:
            return self._model.reply(messages, **options)
        except (ModelCancelled, ModelOverflow):
            raise
        except ModelError as error:
            self._troubled(Trouble(f"model {self.name}", self._what, str(error)))
            raise
