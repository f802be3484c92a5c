"""Doubles for tests of Herma and of what is built on it: a clock, an embedder without a model, a scripted model.

`ScriptedModel` is a real HTTP server that speaks OpenAI's and Anthropic's protocols and gives the answers of a script.
`herma.testing.contracts`, which needs pytest, has suites for providers and context engines, and fixtures.
"""

from herma.testing.doubles import Answer, Asked, FixedClock, HashEmbedder, ScriptedModel, tool_call

__all__ = ["Answer", "Asked", "FixedClock", "HashEmbedder", "ScriptedModel", "tool_call"]
