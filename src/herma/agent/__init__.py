"""The reference agent: a model, a session and its tools, turn by turn. `herma chat` is one face of it."""

from herma.agent.loop import Agent

__all__ = ["Agent"]
