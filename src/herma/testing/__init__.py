"""Doubles and suites for tests of Herma and of what is built on it.

`FixedClock` is a clock that stands still. `HashEmbedder` embeds without a model. `herma.testing.contracts` (needs
pytest) is what every store must keep.
`ScriptedModel` is a language model whose answers are written down beforehand: a real server that speaks OpenAI's and
Anthropic's protocols, slowly or brokenly if it is told to; `herma.testing.scripted_model_fixture` has it as a fixture.
"""

from herma.testing.doubles import FixedClock, HashEmbedder
from herma.testing.scripted_model import Answer, Asked, ScriptedModel, tool_call

__all__ = ["Answer", "Asked", "FixedClock", "HashEmbedder", "ScriptedModel", "tool_call"]
