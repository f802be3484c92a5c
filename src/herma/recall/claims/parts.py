"""Parts of an English sentence: of whom, of what, what for, from what to what. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from herma.late import Late
from herma.recall.claims import words as vocabulary
from herma.recall.claims.claim import NONE, Claim, Relation, Words, is_single, key_of, value_of

_STOPS = Late(
    r",(?! but\b)|;|\(| (?:because|since|so|and (?:i|we|it|the|my|our|that|also|will)|after|when|while|until|which|who"
    r"|where|as of|due to|last|this|yesterday|today|recently|instead|again|if)\b"
)


NUMBER = Late(r"\d[\d.,]*|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|twenty|thirty")


@dataclass(slots=True)
class Manner:
    """How something is said, as far as single words tell."""

    new: bool = False
    weak: bool = False
    own: bool = False
    former: Words = NONE


def subject_of(words: list[str], role: str, manner: Manner) -> list[str]:
    """The thing that words before a verb name; nothing where that is not plain."""
    at = 0
    mine = ("your",) if role == "assistant" else ("my", "our")
    if words[0] in ("my", "your") and words[0] not in mine:
        return []
    while at < len(words) and words[at] in (*mine, "the", "our", "new", "current"):
        manner.own = manner.own or words[at] in (*mine, "our")
        manner.new = manner.new or (words[at] == "new" and at > 0)
        at += 1
    thing = [word.removesuffix("'s") for word in words[at:] if word != ","]
    if not thing or len(thing) > 6 or "old" in thing or _is_empty(thing):
        return []
    if set(thing) & (vocabulary.NOBODY | {"i", "we"}) or not thing[0][0].isalnum():
        return []
    return thing


def _is_empty(thing: list[str]) -> bool:
    """Whether every sentence may mean another one by it: the problem, the first one, the day."""
    return thing[0] in vocabulary.PLACES or thing[-1] in vocabulary.EMPTY or thing == ["day"]


def claim_of(
    thing: Sequence[str], words: Sequence[str], manner: Manner, relation: Relation, *, single: bool = False
) -> Iterator[Claim]:
    value_words = cut(words)
    value_words, what_for = for_what(value_words) if "for" in value_words else (value_words, [])
    value, kind, more = value_of(value_words, versions=relation != "is")
    if not value:
        return
    named = [*thing, *what_for, *(word for word in more if word not in thing)]
    yield Claim(
        key_of(named, kind),
        value,
        kind,
        relation,
        new=manner.new,
        weak=manner.weak,
        single=single or (relation != "at" and is_single(named, own=manner.own)),
        former=manner.former,
    )


def versioned(words: list[str], manner: Manner) -> Iterator[Claim]:
    """A name and its version claim something of that name."""
    value, kind, more = value_of(cut(words))
    if more and kind == "number":
        yield Claim(key_of(more), value, kind, "any", new=manner.new, weak=manner.weak)


def no_longer(thing: list[str], old: Words) -> Iterator[Claim]:
    if old:
        key = key_of([*thing, "port"] if "port" in old and "port" not in thing else thing)
        yield Claim(key, NONE, relation="any", new=True, former=old - {"port"})


def counted(thing: Sequence[str], rest: list[str], manner: Manner) -> Iterator[Claim]:
    """`[THING has] 7 engineers`, `[I read] 9 chapters so far`: how many there are."""
    what = cut(rest)[1:]
    for end in (["so", "far"], ["in", "total"], ["already"]):
        if what[-len(end) :] == end:
            what, manner.new = what[: -len(end)], True
    if "far" in rest and "so" in rest:
        manner.new = True
    if 0 < len(what) < 5 and not set(what) & vocabulary.NOBODY:
        kept = frozenset(word for word in thing if word.startswith("@"))
        key = key_of([*(word for word in thing if word not in kept), *what]) | kept
        yield Claim(key, frozenset(rest[:1]), "number", new=manner.new, weak=manner.weak)


def for_what(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """`B for THING`, `B as THING` → B and the thing."""
    for at, word in enumerate(words):
        if word in ("for", "as") and at:
            return list(words[:at]), cut(words[at + 1 :])
    return cut(words), []


def from_to(words: Sequence[str]) -> tuple[str, str]:
    """`[back|up|down|over] [from A] to B` → A and B."""
    text = " ".join(words)
    head, found, new = text.partition("to ") if text.startswith("to ") else text.partition(" to ")
    if not found:
        head, found, new = text.partition("until ")
    if not found or len(head.split()) > 6:
        return "", ""
    left = [word for word in head.split() if word not in ("back", "up", "down", "over", "forward", "ahead")]
    if left and left[0] != "from":
        return "", ""
    return " ".join(left[1:]), " ".join(cut(new.split()))


def cut(words: Sequence[str]) -> list[str]:
    """Words up to where a sentence turns to something else."""
    text = " ".join(words).replace(" ,", ",")
    return [word.strip(".,:!'`*") for word in _STOPS.split(f"{text} ", maxsplit=1)[0].split()]


def named(text: str) -> Words:
    value, _, more = value_of(cut(text.split()))
    return value | frozenset(more)
