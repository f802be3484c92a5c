"""Another name for `herma.testing.contracts`."""

from herma.testing.contracts import KNOWN, MESSAGES, ProviderContract, begin, hand_over, outcome

__all__ = ["KNOWN", "MESSAGES", "ProviderContract", "begin", "hand_over", "outcome"]
