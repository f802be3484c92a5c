"""How something is said or asked, as far as that says what matters: for all times, preferred, at present. Pure.

"Always answer with metric units" is short, names little of what it is about, and matters whenever that comes up. By its
words alone it loses to every message that dwells on the subject.
"""

from __future__ import annotations

import re

STANDING = 0.3
"""What an instruction for all times is worth: ten points on BEAM's questions about such, none lost elsewhere."""
PREFERENCE = 0.1
"""What a preference is worth."""
RECENT = 0.15
"""What the newest of the candidates gains over the oldest where the present is asked for; nothing elsewhere."""
_SHORT = 400
"""Characters of an instruction; what goes on for longer is about something else too."""
_BEGINNING = 600
_HINTS = ("prefer", "rather", "always", "never", "like", "want you", "bevorzug", "préf", "prefie")
_FAR_HINTS = ("喜", "好き", "好", "좋")
"""A search for a few letters is many times faster than one for a pattern, and most messages have none of them."""
_STANDING = re.compile(
    r"\W*(?:always|never|from now on|whenever|please (?:always|never|remember)|remember (?:to|that)|when i ask"
    r"|immer wenn|ab jetzt|ab sofort|toujours|dorénavant|siempre|a partir de ahora)\b"
    r"|\W*(?:从现在|從現在|今后|今後|以后|以後|每次|永远|永遠|务必|務必|请记住|請記住|必ず|これから|今後は|앞으로|항상)",
)
_PREFERENCE = re.compile(
    r"\b(?:i (?:really |much )?prefer|my preference|i'd prefer|i would prefer|i'd rather|i (?:always|never)"
    r"|i like to|i don't like|i want you to|ich bevorzuge|je préfère|prefiero)\b"
    r"|我更喜欢|我更喜歡|我比较喜欢|我比較喜歡|我偏好|我不喜欢|我不喜歡|方が好き|ほうが好き|더 좋아",
)
_PRESENT = re.compile(
    r"\b(?:current(?:ly)?|now|latest|newest|most recent(?:ly)?|these days|nowadays|at the moment|up to date|still"
    r"|aktuell\w*|derzeit|jetzt|actuellement|actualmente|ahora)\b"
    r"|目前|現在|现在|最新|最近|如今|今の|今は|지금|현재|요즘",
    re.IGNORECASE,
)


def asks_for_the_present(question: str) -> bool:
    return _PRESENT.search(question) is not None


def lasting(folded: str) -> float:
    """What a user's message gains by how it is said. `folded` is lower case, with plain apostrophes or curly ones."""
    beginning = folded[:_BEGINNING]
    if len(folded) < _SHORT and _STANDING.match(beginning):
        return STANDING
    if not any(hint in beginning for hint in _HINTS) and (
        beginning.isascii() or not any(hint in beginning for hint in _FAR_HINTS)
    ):
        return 0.0
    return PREFERENCE if _PREFERENCE.search(beginning.replace("’", "'")) else 0.0
