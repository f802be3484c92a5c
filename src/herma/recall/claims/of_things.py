"""What is said of a thing: what it is, where it runs, what it became. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from herma.recall.claims import words as vocabulary
from herma.recall.claims.claim import NONE, Claim, Relation
from herma.recall.claims.parts import NUMBER, Manner, claim_of, counted, from_to, named, no_longer, subject_of


def of_a_thing(words: list[str], role: str, manner: Manner) -> Iterator[Claim]:
    """`THING is VALUE`, `THING moved to VALUE`, `THING runs on VALUE`."""
    at = next((at for at in range(1, min(9, len(words))) if _links(words[at - 1], words[at])), 0)
    if not at or not (thing := subject_of(words[:at], role, manner)):
        return
    verb, rest = words[at], words[at + 1 :]
    if verb in ("does", "do"):
        if rest[:2] == ["not", "use"] and manner.new:
            yield from no_longer(thing, named(" ".join(rest[2:])))
        return
    if verb in ("has", "have", "got"):
        while rest[:1] and rest[0] in ("been", "just", "recently", "since", "meanwhile", "already"):
            rest = rest[1:]
        if rest[:1] and NUMBER.fullmatch(rest[0]):
            yield from counted(thing, rest, manner)
            return
        if rest[:1] and rest[0] in vocabulary.REACHED:
            rest = [rest[0], "to", *rest[1:]]
        if rest[:1] and rest[0] in (vocabulary.CHANGED | vocabulary.GREW | vocabulary.REACHED):
            yield from _became(thing, rest[1:], manner)
        return
    if verb in vocabulary.BE:
        yield from _being(thing, verb, rest, manner)
    elif verb in vocabulary.CHANGED or verb in vocabulary.GREW:
        yield from _became(thing, rest, manner)
    elif verb in vocabulary.STATES:
        yield from _doing(thing, verb, rest, manner)


def _links(before: str, word: str) -> bool:
    """Whether a word is the verb of a thing: "the use case is" has a noun where "the tests use" has a verb."""
    if word in vocabulary.PLURAL:
        return before.endswith("s")
    return word in vocabulary.OF_THINGS


def _being(thing: list[str], verb: str, rest: list[str], manner: Manner) -> Iterator[Claim]:
    if rest[:1] and rest[0] in vocabulary.CHANGED and any(word in ("to", "until") for word in rest[1:]):
        yield from _became(thing, rest[1:], manner)
        return
    if rest[:2] == ["no", "longer"] or (rest[:1] == ["not"] and manner.new):
        old = named(" ".join(rest[2:] if rest[0] == "no" else rest[1:]))
        yield from no_longer(thing, old)
        return
    if "not" in rest:
        return
    if verb in ("was", "were"):
        manner.weak = True
    relation: Relation = "is"
    if rest[:1] == ["to"]:
        return  # what is meant to be done
    if rest[:1] and rest[0] in vocabulary.PUT:
        rest = rest[1:]
    if rest[:1] and rest[0] in vocabulary.LIES:
        relation, rest = "at", rest[1:]
    yield from claim_of(thing, rest, manner, relation)


def _became(thing: list[str], rest: list[str], manner: Manner) -> Iterator[Claim]:
    """`[back] [from A] to B`."""
    old, new = from_to(rest)
    if not new:
        return
    manner.new, manner.former = True, manner.former or (named(old) if old else NONE)
    yield from claim_of(thing, new.split(), manner, "any")


def _doing(thing: list[str], verb: str, rest: list[str], manner: Manner) -> Iterator[Claim]:
    if verb in ("uses", "use"):
        yield from claim_of(thing, rest, manner, "use")
        return
    if verb in ("works", "work"):
        if rest[:1] and rest[0] in ("at", "for", "as"):
            yield from claim_of([*thing, "job" if rest[0] == "as" else "employer"], rest[1:], manner, "is")
        return
    if rest[:1] and rest[0] in vocabulary.LIES:
        rest = rest[1:]
    yield from claim_of(thing, rest, manner, "at")
