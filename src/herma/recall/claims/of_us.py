"""What people say of themselves, and what they did to things. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from herma.recall.claims import words as vocabulary
from herma.recall.claims.claim import NONE, Claim, key_of
from herma.recall.claims.parts import (
    NUMBER,
    Manner,
    claim_of,
    counted,
    cut,
    for_what,
    from_to,
    named,
    no_longer,
    subject_of,
    versioned,
)


def of_us(words: list[str], manner: Manner) -> Iterator[Claim]:
    """What people say of themselves, and what they did to things."""
    who, at = words[0], 1
    while (
        at < len(words) - 1
        and words[at] in ("have", "had", "just", "recently", "finally", "since", "already")
        and not (words[at] == "have" and NUMBER.fullmatch(words[at + 1]))
    ):
        at += 1
    verb, rest = words[at], words[at + 1 :]
    manner.own = True
    if verb in ("no", "do") and rest[:1] and rest[0] in ("longer", "not"):
        if rest[1:2] in (["use"], ["using"], ["run"]) and (verb == "no" or manner.new):
            manner.new = True
            old, thing = for_what(rest[2:])
            yield from no_longer(thing, named(" ".join(old)))
        return
    if "not" in rest:
        return
    if verb in ("am", "are"):
        yield from _we_are(rest, manner)
    elif verb in ("live", "reside") and rest[:1] in (["in"], ["at"], ["near"]):
        yield from claim_of(["location"], rest[1:], manner, "is", single=True)
    elif verb in ("work", "works", "working") and rest[:1] and rest[0] in ("at", "for", "as"):
        yield from claim_of(["job" if rest[0] == "as" else "employer"], rest[1:], manner, "is", single=who == "i")
    elif verb == "joined" and rest[:1] and rest[0] not in ("a", "an", "the", "my", "our", "in"):
        manner.new = True
        yield from claim_of(["employer"], rest, manner, "is")
    elif verb in ("use", "using", "run"):
        yield from _we_use(rest, manner)
    elif verb == "prefer":
        yield from _we_prefer(rest, manner)
    elif verb in vocabulary.LEFT and (claim := _instead(verb, rest)) is not None:
        yield claim
    elif verb in vocabulary.CHANGED or verb in ("migrated", "went"):
        yield from _we_changed(who, verb, rest, manner)
    elif verb in vocabulary.OURS:
        yield from _we_do(verb, rest, manner)
    elif (verb in vocabulary.HAVE or verb in vocabulary.DID) and rest[:1] and NUMBER.fullmatch(rest[0]):
        yield from counted([f"@{verb}"], rest, manner)


def _we_are(rest: list[str], manner: Manner) -> Iterator[Claim]:
    if rest[:2] in (["based", "in"], ["living", "in"], ["located", "in"]):
        yield from claim_of(["location"], rest[2:], manner, "is", single=True)
    elif rest[:2] in (["working", "at"], ["working", "for"], ["working", "as"]):
        yield from claim_of(["job" if rest[1] == "as" else "employer"], rest[2:], manner, "is")
    elif rest[:1] == ["on"]:
        yield from versioned(rest[1:], manner)
    elif rest[:1] == ["using"]:
        yield from _we_use(rest[1:], manner)


def _we_use(rest: list[str], manner: Manner) -> Iterator[Claim]:
    """`B for THING`, `B as THING`, `Python 3.12`; perhaps `instead of A`."""
    text = " ".join(rest)
    for mark in (" instead of ", " rather than "):
        if mark in text:
            text, _, rest_of_it = text.partition(mark)
            old, used_for = for_what(rest_of_it.split())
            manner.new, manner.former = True, named(" ".join(old))
            text = f"{text} for {' '.join(used_for)}" if used_for else text
    value, thing = for_what(text.split())
    if thing:
        yield from claim_of(thing, value, manner, "use")
    elif manner.former:
        yield Claim(NONE, named(" ".join(value)), relation="use", new=True, former=manner.former)
    else:
        yield from versioned(value, manner)


def _we_prefer(rest: list[str], manner: Manner) -> Iterator[Claim]:
    for at, word in enumerate(rest):
        if word in ("over", "to") and at:
            one, other = named(" ".join(rest[:at])), named(" ".join(rest[at + 1 :]))
            if one and other:
                yield Claim(
                    one | other | {"@prefer"}, frozenset(("@", *one)), single=True, new=manner.new, weak=manner.weak
                )
            return
        if word == "for" and at:
            yield from claim_of(rest[at + 1 :], rest[:at], manner, "use")
            return
    words = [word for word in cut(rest) if word not in vocabulary.ARTICLES]
    if len(words) == 2:  # "dark mode": of modes, the dark one
        yield Claim(key_of(words[1:]) | {"@prefer"}, frozenset(words[:1]), new=manner.new, weak=manner.weak)


def _we_changed(who: str, verb: str, rest: list[str], manner: Manner) -> Iterator[Claim]:
    at = next((at for at, word in enumerate(rest) if word in ("from", "to", "until", "over", "back")), len(rest))
    old, new = from_to(rest[at:])
    if not new:
        return
    manner.new, manner.former = True, named(old) if old else NONE
    if at:
        if not (thing := subject_of(rest[:at], "user", manner)):
            return
        yield from claim_of(thing, new.split(), manner, "any")
        return
    value, thing = for_what(new.split())
    if thing:
        yield from claim_of(thing, value, manner, "any")
    elif verb in ("moved", "relocated") and not old:
        if who == "i":
            yield from claim_of(["location"], value, manner, "is", single=True)
    elif old:
        yield Claim(NONE, named(new), relation="any", new=True, former=manner.former)
    else:
        yield from versioned(value, manner)


def _we_do(verb: str, rest: list[str], manner: Manner) -> Iterator[Claim]:
    """`deploy to B`, `store THING in B`."""
    at = next((at for at, word in enumerate(rest[:6]) if word in vocabulary.LIES), None)
    if at is None:
        if rest[:1] == ["every"]:
            yield from claim_of([verb], rest, manner, "is")
        return
    thing = [] if not at else subject_of(rest[:at], "user", manner)
    if thing or not at:
        yield from claim_of([verb, *thing], rest[at + 1 :], manner, "is")


def _instead(verb: str, rest: list[str]) -> Claim | None:
    """`replaced A with B`, `dropped A for B`, `renamed A to B`."""
    text = " ".join(rest)
    marks = {"replaced": (" with ", " by "), "renamed": (" to ",)}.get(
        verb, (" in favour of ", " in favor of ", " for ")
    )
    for mark in marks:
        old, found, new = text.partition(mark)
        if found and (former := named(old)) and (value := named(new)):
            return Claim(NONE, value, relation="any", new=True, former=former)
    return None
