"""Later statements before the ones they contradict."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from herma.search import contradictions_languages as vocabulary
from herma.search.contradictions_languages import (
    LABELS,
    NONE,
    SINGLE_WORDS,
    TELLS_ABROAD,
    Claim,
    Kind,
    Relation,
    Words,
    abroad,
    is_single,
    key_of,
    says_otherwise,
    says_the_same,
    signs_of,
    value_of,
)
from herma.text import Late

# ---------- recall.claims.parts
#
# Parts of an English sentence: of whom, of what, what for, from what to what. Pure.

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


# ---------- recall.claims.of_things
#
# What is said of a thing: what it is, where it runs, what it became. Pure.


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


# ---------- recall.claims.of_us
#
# What people say of themselves, and what they did to things. Pure.


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


# ---------- recall.claims.english
#
# What one English sentence claims: its parts, and how each is meant. Pure and linear.

_SAID = (
    *(("isn't", "is not"), ("aren't", "are not"), ("doesn't", "does not"), ("don't", "do not"), ("i'm ", "i am ")),
    *(
        ("we're ", "we are "),
        ("i've ", "i have "),
        ("we've ", "we have "),
        ("it's ", "it is "),
        ("they're ", "they are "),
    ),
    *(("that's ", "that is "), ("wasn't", "was not"), ("can't", "can not"), ("won't", "will not")),
)
_MOST_PARTS = 8
_PARTS = Late(
    r"; | [—–-] |: |\b(?:by the way|just so you know|for the record|in the meantime)\b,? ?|,? because |, since "
    r"| and (?=(?:i|we|my|our|the) )|,? but (?=(?:i|we|my|our|the|it) )"
    r"|,? so (?:that )?(?=(?:i|we|my|our|the|it) )|, (?=(?:i|we|my|our|the|so|then) )"
    r"|\b(?:know|note|remember|mind|realised|realized|decided) that "
)
_WHICH = Late(
    r"\b(?:my|our|the) (?P<thing>[\w/ -]{2,40}?), which (?P<said>(?:has|is|was|now|moved|changed|went) [^,]{3,80})"
)
"""What is told in passing of a thing that is named last."""
_CONTRAST = Late(
    r"^(?P<head>.{2,80}? (?:is|are|was|were)) (?:not|no longer) (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?"
    r"(?:,? but(?: rather| now)?|,? (?:it|they|that) (?:is|are)(?: now)?|,? instead(?: it is)?) (?P<rest>.{1,80})$"
)
_NOT = Late(
    r"^(?P<head>.{2,80}? (?:is|are)) (?P<rest>[^,]{1,60}), not (?P<old>[^,]{1,60}?)(?: any ?more| any longer)?$"
)
"""`THING is B, not A`."""
_IT = Late(
    r"(?:\b(?:i|we) (?:have )?(?:just )?(?:changed|rotated|updated|replaced|renamed|moved|switched|reset|swapped) "
    r"(?P<thing>(?:the|my|our) [\w' -]{2,40}?)|(?P<too>(?:the|my|our) [\w' -]{2,40}?) (?:has |have )?(?:just )?changed)"
    r",? (?:and |so )?(?:it|they) (?:is|are) (?P<rest>[^,]{1,60})"
)
"""What changed is named, and then what it is."""
_MAY = Late(
    r"(?<!\d )(?<!of )(?<!in )(?<!by )(?<!is )(?<!to )(?<!until )\bmay(?! \d)\b(?= \w)"
    r"|(?<!my )(?<!our )(?<!the )\bplans? (?:to|on)\b|\bplan is to\b"
)
_LATER = Late(
    r",? ?\b(?<!right )(?:from now on|as of (?:today|now|this \w+)|these days|since then|by now|nowadays|now"
    r"|any ?more|any longer)\b"
)


def english(sentence: str, role: str) -> Iterator[Claim]:
    words = set(sentence.replace(",", " ").split())
    if not words & vocabulary.LINKS and "'" not in sentence:
        return
    if words & vocabulary.ELSEWHERE:
        return
    if "'" in sentence:
        for short, long in _SAID:
            sentence = sentence.replace(short, long)
    if ", which " in sentence and (passing := _WHICH.search(sentence)):
        yield from _part(
            f"the {passing['thing'].split(' the ')[-1].split(' my ')[-1]} {passing['said']}", role, Manner()
        )
    if (" it is " in sentence or " they are " in sentence) and (it := _IT.search(sentence)):
        yield from _part(f"{it['thing'] or it['too']} is {it['rest']}", role, Manner(new=True))
    opened = False
    for part in _PARTS.split(sentence, maxsplit=_MOST_PARTS):
        manner = Manner(new=opened)
        rest = _opened(part.strip(" -*•\t"), manner)
        if not rest:
            opened = opened or manner.new
            continue
        yield from _part(rest, role, manner)


def _opened(part: str, manner: Manner) -> str:
    """The part without the words that only open it."""
    words = part.split(" ")
    at = 0
    while at < len(words) and (word := words[at].strip(",.:!")) in vocabulary.OPENERS:
        if vocabulary.OPENERS[word] and not (word == "turns" and words[at + 1 : at + 2] != ["out"]):
            manner.new = True
        at += 1
    return " ".join(words[at:])


def _part(part: str, role: str, manner: Manner) -> Iterator[Claim]:
    if found := _CONTRAST.match(part) or (", not " in part and _NOT.match(part)):
        manner.new = True
        manner.former = named(found["old"])
        part = f"{found['head']} {found['rest']}"
    later = _LATER.sub(" ", part)
    if later != part:
        part, manner.new = later, True
    words = [word for word in part.strip(" ,").replace(",", " ,").split() if word not in vocabulary.PASSING]
    manner.new = manner.new or " actually " in part
    if len(words) < 3 or words[0] in vocabulary.NO_START:
        return
    if (told := set(words)) & vocabulary.DOUBTS or _MAY.search(part):
        return
    manner.weak = bool(told & (vocabulary.ADDING | vocabulary.FLEETING)) or " as well" in part
    if words[0] in vocabulary.CHANGED - vocabulary.PLURAL:
        words = ["we", *words]  # "bumped the timeout to 60"
    if words[0] in ("i", "we"):
        yield from of_us(words, manner)
    else:
        yield from of_a_thing(words, role, manner)


# ---------- recall.claims.read
#
# What a message claims: which thing is said to be, to have become, or to be no longer what. Pure and linear.
#
# A claim is read where a sentence plainly says so: "the staging db runs on port 5432", "I live in Lyon now", "we
# switched from MySQL to Postgres". Questions, plans, doubts, quotations and what somebody else is said to have said
# claim nothing, and neither does what only tells how something is ("the build is slow"): rather silent than wrong.

READ = 2_000
READ_OF_ASSISTANTS = 600
"""Characters of a message that are looked at. What an assistant did it says first; then it explains."""
_MOST = 20
"""Claims of one message."""
_LONGEST = 300
_SENTENCE = re.compile(r"[.。！？!?\n](?:(?<!\.)|(?<=\w\.)(?=\s|$))")
_QUOTED = re.compile(
    r"```.{0,2000}?(?:```|\Z)|(?m:^)>[^\n]*|[\"“„«「『][^\"“”»」』\n]{1,400}[\"”“»」』]",
    re.DOTALL,
)
_MARKS = ('"', "“", "„", "«", "「", "『", "```", ">")
_TITLES = re.compile(r"\b(dr|mr|mrs|ms|prof|st)\. ")
_SIGNS = ',.;:!?()*"'
_BLANKED = str.maketrans(dict.fromkeys(_SIGNS, " "))
_SIGN = re.compile(f"[{re.escape(_SIGNS)}]")
_TELLING_PHRASES = ("any more", "these days", "nicht mehr")
Gate = Callable[[str], bool]


def claims(text: str, role: str = "user", gate: Gate = bool) -> list[Claim]:
    """What a folded text claims, each thing once: what it says last. `gate` says which sentences are worth reading,
    and first whether the whole text is.
    """
    found: dict[tuple[Words, Kind, Words], Claim] = {}
    text = text[: READ_OF_ASSISTANTS if role == "assistant" else READ]
    if not gate(text):
        return []
    text = text.replace("’", "'")
    if any(mark in text for mark in _MARKS):
        text = _QUOTED.sub(_unless_a_name, text)
    if ". " in text:
        text = _TITLES.sub(r"\1 ", text)
    for sentence, asked in _sentences(text):
        if asked or not 4 < len(sentence) <= _LONGEST or not gate(sentence):
            continue
        for claim in (*abroad(sentence), *english(sentence, role)):
            if claim.value or claim.former:
                found[claim.thing, claim.kind, claim.former] = claim
        if len(found) > _MOST:
            break
    return list(found.values())


def tells(text: str) -> bool:
    """Whether a text may say that something is otherwise now, or what has but one value. Quick: most text does not."""
    if not text.isascii() and TELLS_ABROAD.search(text):
        return True
    words = _words(text)
    if not vocabulary.TELLING.isdisjoint(words) or any(map(text.__contains__, _TELLING_PHRASES)):
        return True
    return not SINGLE_WORDS.isdisjoint(words) and not vocabulary.SPEAKING.isdisjoint(words)


def tells_of_a_change(text: str) -> bool:
    """The same of what an assistant says: what has but one value it only repeats."""
    return not vocabulary.TELLING.isdisjoint(_words(text)) or bool(not text.isascii() and TELLS_ABROAD.search(text))


def _words(text: str) -> list[str]:
    """Beyond ASCII, `translate` takes eight times as long, and longer than the expression."""
    return (text.translate(_BLANKED) if text.isascii() else _SIGN.sub(" ", text)).split()


def _unless_a_name(found: re.Match[str]) -> str:
    """A quotation is somebody else's words; one of a few words is a name."""
    inside = found[0][1:-1]
    return inside if len(inside.split()) < 4 and not found[0].startswith((">", "```")) else " "


def _sentences(text: str) -> Iterator[tuple[str, bool]]:
    """Sentences, each with whether it is a question."""
    start = 0
    for end in _SENTENCE.finditer(text):
        yield text[start : end.start()].strip(), end[0] in "?？"
        start = end.end()
    yield text[start:].strip(), False


# ---------- recall.outdated
#
# Which of several messages says what another, later one says otherwise. Pure, and rather silent than wrong.
#
# What each message claims, and when two claims disagree, is the business of `claims`. An earlier claim about the same
# thing with another value is possibly outdated: by a claim that says so ("now", "changed to", "no longer"), or where
# the thing can have one value only ("my time zone"). Nothing is hidden: the later one comes first, the earlier is
# marked.

_PAST = re.compile(
    r"\b(?:originally|original|at first|initial(?:ly)?|first|used to|before|previous(?:ly)?|earlier|former(?:ly)?|old"
    r"|chang(?:e|ed|es)|histor(?:y|ical)|over time|evolv\w*|was|were)\b"
    r"|一开始|一開始|原本|原来|原來|最初|以前|之前|当初|當初|曾经|曾經|过去|過去|先後|先后|变化|變化|元々|もともと|当時|원래|예전|처음",
)
_CHANGES = 24
"""Changes whose earlier claims are looked for."""
_NAMED = re.compile(r"(\w[\w .'-]{1,24}): ")


@dataclass(frozen=True, slots=True)
class Spoken:
    """A message: folded text, when it was said, whose it is as far as that is known, and who of the two spoke."""

    id: int
    text: str
    at: float
    who: str = ""
    role: str = "user"


@dataclass(frozen=True, slots=True)
class _Made:
    """A claim, and the message that made it."""

    at: float
    id: int
    claim: Claim


def outdated(spoken: Sequence[Spoken]) -> dict[int, int]:
    """Message → the latest one that says otherwise."""
    found: dict[int, int] = {}
    for made in _by_speaker(spoken).values():
        made.sort(key=lambda one: (one.at, one.id))
        same: dict[Words, list[_Made]] = defaultdict(list)
        for one in made:
            same[one.claim.thing].append(one)
        nameless = same.pop(NONE, [])
        for thing in same.values():
            for one in thing:
                later = _latest_word(one, [*thing, *nameless] if nameless else thing)
                if later is not None:
                    found[one.id] = max(found.get(one.id, later), later)
    return found


def asks_for_the_past(question: str) -> bool:
    """Whether a question is about how something was, so that the earlier message may be the right one."""
    return _PAST.search(question.casefold()) is not None


def latest_first(order: Sequence[int], by: dict[int, int]) -> list[int]:
    """The same order, with each message that makes another outdated before that one."""
    arranged = list(order)
    for older, newer in by.items():
        if older in arranged and newer in arranged:
            at, later = arranged.index(older), arranged.index(newer)
            if at < later:
                arranged.insert(at, arranged.pop(later))
    return arranged


def _by_speaker(spoken: Sequence[Spoken]) -> dict[str, list[_Made]]:
    """What is claimed, by whom. Only sentences that may tell of a change are read at first, and then those about what
    changed: most of what is said is neither.
    """
    telling = {
        one.id: claims(one.text, one.role, tells_of_a_change if one.role == "assistant" else tells) for one in spoken
    }
    later = [claim for made in telling.values() for claim in made if claim.new and not claim.weak][:_CHANGES]
    if not later and sum(any(claim.single for claim in made) for made in telling.values()) < 2:
        return {}
    about = tuple(
        {signs_of(claim.thing) for claim in later if claim.thing}
        | {_signs(claim.former) for claim in later if claim.former}
    )
    found: dict[str, list[_Made]] = defaultdict(list)
    for one in spoken:
        more = claims(one.text, one.role, lambda text: _is_about(text, about)) if about else []
        named = _NAMED.match(one.text)
        speaker = named[1] if named and named[1].split()[-1] not in LABELS else ""
        for claim in dict.fromkeys((*telling[one.id], *more)):
            # an assistant repeats what it was told: only a change that it tells of makes anything outdated
            told = replace(claim, weak=True) if one.role == "assistant" and not claim.new else claim
            found[f"{one.who}/{speaker}"].append(_Made(one.at, one.id, told))
    return found


def _is_about(text: str, about: Sequence[tuple[tuple[str, ...], ...]]) -> bool:
    return any(all(any(map(text.__contains__, pieces)) for pieces in thing) for thing in about)


def _signs(value: Words) -> tuple[tuple[str, ...], ...]:
    return tuple((word,) for word in value)


def _latest_word(one: _Made, others: Sequence[_Made]) -> int | None:
    """The message that has the last word on what `one` claims, where it says otherwise."""
    later = [other for other in others if (other.at, other.id) > (one.at, one.id) and other.id != one.id]
    for other in sorted(later, key=lambda other: (other.at, other.id), reverse=True):
        if says_otherwise(other.claim, one.claim):
            return other.id
        if says_the_same(other.claim, one.claim):
            return None
    return None
