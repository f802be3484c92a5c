"""What messages claim, and when one claim denies another. `read` is the page to read first."""

from herma.recall.claims.claim import NONE, Claim, Words, says_otherwise, says_the_same, signs_of
from herma.recall.claims.read import claims, tells, tells_of_a_change
from herma.recall.claims.words import LABELS

__all__ = [
    "LABELS",
    "NONE",
    "Claim",
    "Words",
    "claims",
    "says_otherwise",
    "says_the_same",
    "signs_of",
    "tells",
    "tells_of_a_change",
]
