"""The words by which claims are told apart from everything else that is said."""

from __future__ import annotations

from typing import Final

Words = frozenset[str]


def _words(text: str) -> Words:
    return frozenset(text.split())


ELSEWHERE: Final = _words(
    """
    if whether would suppose supposing imagine pretend wish hypothetically assuming unless otherwise said says
    told wrote writes claims claimed asked asks according quote quoted story novel fiction dream dreamt dreamed
    example fictional character scenario let let's
    """
)
"""Make a whole sentence somebody else's, or not so."""
DOUBTS: Final = _words(
    """
    maybe perhaps might could should will shall want wants wanted planning going gonna thinking considering hope
    hopes hoping please can cannot never nearly almost try trying probably possibly presumably
    """
)
NO_START: Final = _words(
    """
    what which who whom whose where why how when while after before until once though although as is are am do
    does did can could should would will has have was were
    """
)
"""A sentence that begins so asks, or tells of another time."""
OPENERS: Final = {
    **dict.fromkeys(("actually", "correction", "update", "turns", "wait", "edit"), True),
    **dict.fromkeys(
        _words(
            """
            ok okay so and oh well hey hi hello yes yeah no fyi btw sorry reminder anyway then again though out it quick
            heads up just think
            """
        ),
        False,
    ),
}
"""Words before the sentence proper; True where they say that it was thought otherwise before."""
LABELS: Final = frozenset(OPENERS) | _words(
    "done noted note notes todo ps nb summary result fixed changed new reminder important info hinweis korrektur status"
)
"""Before a colon these are no name of who speaks."""
PASSING: Final = _words("actually just recently currently finally")
"""Say nothing about what is claimed."""
ADDING: Final = _words("another also too additional extra both either besides plus")
"""What is claimed with these comes besides something else."""
FLEETING: Final = _words("today tonight tomorrow temporarily sometimes occasionally usually often still")
"""What is claimed with these may be so for a day."""
NOBODY: Final = _words(
    """
    it this that these those there here he she they you his her their its everything everyone everybody someone
    somebody something anything nothing nobody people others one some any each every all many most which what
    who a an another other and or not no so
    """
)
"""Name nothing that another message could name."""
EMPTY: Final = _words(
    """
    problem issue question thing idea point reason answer result way rest error bug fact truth weather food part
    step trick catch difference advantage downside output message text line code function concern focus
    """
)
"""Every message may mean another one by these."""
PLACES: Final = _words("first second third next last following best worst")
BE: Final = _words("is are was were")
CHANGED: Final = _words(
    """
    changed switched moved updated rescheduled postponed pushed shifted renamed extended raised lowered
    increased reduced upgraded downgraded migrated bumped relocated transferred set brought adjusted cut
    """
)
GREW: Final = _words("went dropped rose grew fell climbed jumped decreased improved grown risen fallen gone")
REACHED: Final = _words("reached hit")
LIES: Final = _words("on at in under with to by via")
PUT: Final = _words(
    """
    hosted deployed located based running stored kept scheduled set planned due called named listening served
    saved placed booked written built implemented made
    """
)
STATES: Final = _words(
    """
    runs run listens lives live sits resides uses use costs points starts begins opens works work leaves departs
    arrives ends closes
    """
)
OURS: Final = _words("deploy ship store keep host meet publish park bank")
"""What people do with things somewhere."""
PLURAL: Final = _words("run use live work have do set cut")
"""Verbs of many things, and nouns."""
HAVE: Final = _words("have own has")
DID: Final = _words("finished read watched completed written visited collected")
LEFT: Final = _words("replaced dropped ditched renamed")
OF_THINGS: Final = BE | CHANGED | GREW | STATES | _words("has got does")
LINKS: Final = BE | CHANGED | GREW | STATES | OURS | HAVE | LEFT | _words("joined prefer prefers using am")
"""Without any of these English claims nothing."""
MOVED_ABROAD: Final = _words(
    """
    verschoben verlegt geandert erhoht gesenkt umgestellt umbenannt gewechselt umgezogen verlangert verkurzt
    aktualisiert angehoben gesetzt
    """
)
GERMAN: Final = _words(
    """
    ist sind lauft laufen steht liegt wohne lebe arbeite wurde wurden haben habe bin betragt heisst heißt lautet nutzen
    nutze verwenden verwende benutze benutzen
    """
)
"""Verbs one of which is in whatever is read of German."""
TELLING: Final = (
    CHANGED
    | GREW
    | REACHED
    | LEFT
    | MOVED_ABROAD
    | frozenset(word for word, otherwise in OPENERS.items() if otherwise)
    | _words("now nowadays longer anymore new joined far total instead")
    | _words("jetzt nun inzwischen mittlerweile neuer neue neues neuen statt umgestiegen gezogen umgezogen")
)
"""Without any of these nothing says that it was otherwise before."""
SPEAKING: Final = _words("my our i we mein meine unser unsere ich wir the der die das")
ARTICLES: Final = _words(
    """
    a an the my our your new own current der die das den dem ein eine einen mein meine unser unsere
    """
)
SMALL: Final = _words("of for in on at with to from by and der des fur von im am")
CLASSES: Final = _words("target server service environment instance machine application app")
"""Say what kind of thing it is; left out where there is another word: "staging" and "the staging server" are one."""
TIMES: Final = _words("date time day")
SINGLE: Final = _words(
    """
    port version url host hostname branch address deadline budget timeout limit ip domain region size password
    editor shell username email birthday dose rent salary capacity theme
    """
)
"""Has one value at a time, whoever says it."""
LIVING: Final = _words("live reside based living work working favorite favourite prefer wohne lebe arbeite")
"""Tell of what a person has one of."""
ONE_NAME: Final = {
    "db": "database",
    "env": "environment",
    "prod": "production",
    "repo": "repository",
    "config": "configuration",
    "favourite": "favorite",
    "favourites": "favorite",
    "favorites": "favorite",
    "colour": "color",
    "deploys": "deploy",
    "deployment": "deploy",
    "deployments": "deploy",
    "postgresql": "postgres",
    "k8s": "kubernetes",
}
ABROAD_NOT_THINGS: Final = _words("这 這 那 他 她 它 你 您 因为 因為 但 所以 如果 就 还 還 都 也 不 只 或")
