"""Whether words name something, or only tell how it is: "Postgres", and not "slow". Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

_HOW = """
able about above active affordable afraid again alive almost alone also alt always angry annoying another approved
asleep available awake away awesome awful awkward back bad based because being best better big billig bit blocked
bored boring broken buggy busy canceled cancelled careful cheap clean clear close closed cloudy cold comfortable
complete completed confused confusing cool correct cosy cozy crazy critical crowded curious cute dangerous dead
deprecated different difficult dirty disabled divorced done down dringend dry due dusty early easy empty enabled
enough excited exhausting expensive fair fancy fast fast-paced fertig fine finished fixed flaky fragile free fresh
friendly frozen full full-time fun funny geschlossen gone good grateful great groß gut happy hard healthy heavy
helpful high hiring horrible hot huge idle ill important impossible in-house inactive injured interesting invalid
just kalt kaputt kind klar klein krank langsam large late later laut lazy leaky leer leicht leise less lieb limited
little live locked long lost lot loud lovely low lucky mad mandatory married mess messy missing more most much müde
near nearby nearly necessary nervous nett neu new nice noisy not nothing now obsolete occupied off offen offline ok
okay old on online only open optional out outdated over overdue part-time pending perfect permanent polite poor
possible pregnant pretty pricey private problem protected proud public quiet quite rainy rather reachable ready real
rejected reliable remote-only required responsible retired right risky rude rusty sad safe same scary schlecht
schnell schwer schön secret separate shaky short sicher sick silly similar simple slow small smart so sold some
something soon sore sorry special stable stale steady still stressful strict strong stuck such sunny sure tall
temporary terrible teuer that there tight tiny tired to today tomorrow too traurig true ugly unable unavailable
unclear uncomfortable under unemployed unhappy unhealthy unklar unknown unlocked unreachable unreliable unsicher
unstable unused up upset urgent useful useless vacant valid very voll warm weak weg weird well wet what when where
whether who why wichtig wide windy wonderful working worse worth wrong young
"""
HOW = frozenset(_HOW.split())
"""Tell how a thing is, and never which."""
_ENDINGS = ("ful", "less", "ous", "able", "ible")
_WHERE = frozenset(
    ("in", "on", "at", "under", "with", "from", "by", "out", "about", "near", "behind", "around", "auf", "im")
)
_NAMING = re.compile(r"[0-9A-Z/_:@#]")
_ARTICLES = frozenset(("a", "an", "the", "ein", "eine", "der", "die", "das"))


def tells_how(words: Sequence[str], *, done: bool = False) -> bool:
    """Whether what is said of a thing describes it. `done`: what somebody does is a name for it ("my job is teaching").

    Words as they were written: what begins with a capital is a name as a rule.
    """
    if not words:
        return False
    first, given = words[0], False
    while first.lower() in _ARTICLES and len(words) > 1:
        words, given = words[1:], True
        first = words[0]
    if first.lower() in HOW:
        return not (first[0].isupper() and len(words) > 1)
    if first[0].isupper() or _NAMING.search(first):
        return False
    if first in _WHERE:
        return not any(_NAMING.search(word) for word in words[1:])
    if first.endswith("ly") and len(words) > 1:
        return True
    if given or done or len(first) <= 5:
        return False
    return first.endswith(("ing", "ed", *_ENDINGS))
