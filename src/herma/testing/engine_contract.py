"""Another name for `herma.testing.contracts`."""

from herma.testing.contracts import WINDOW, EngineContract, RememberedTries, answer, conversation, steps, stored, weigh

__all__ = ["WINDOW", "EngineContract", "RememberedTries", "answer", "conversation", "steps", "stored", "weigh"]
