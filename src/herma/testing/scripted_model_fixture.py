"""A pytest fixture that makes scripted models, and stops them when the test is over.

from herma.testing.scripted_model_fixture import scripted_model  # in conftest.py

def test_something(scripted_model):
    model = scripted_model("Hello.")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any, TypeAlias

import pytest

from herma.testing.scripted_model import Answer, Asked, ScriptedModel

MakeModel: TypeAlias = Callable[..., ScriptedModel]


@pytest.fixture
def scripted_model() -> Iterator[MakeModel]:
    """Call it with the steps of a script, or with one function of the request."""
    with ExitStack() as stack:

        def make(*steps: str | Answer | Callable[[Asked], str | Answer], **options: Any) -> ScriptedModel:
            script = steps[0] if len(steps) == 1 and callable(steps[0]) else steps
            return stack.enter_context(ScriptedModel(script, **options))

        yield make
