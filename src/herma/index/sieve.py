"""`Terms` → what the stored index is asked: every alternative prepared as messages were."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from herma.index.prepare import loosened, prepare, sought
from herma.ports import Sieve, Sought, Terms

_SIGNED = re.compile(r"^[A-Za-z](?:#|\+\+)|^\.net", re.IGNORECASE)


def sieve(terms: Terms) -> Sieve:
    """Prepare a query. Alternatives without a letter or digit fall away."""
    return Sieve(
        any_of=tuple(dict.fromkeys(_loosened(terms.any_of, terms.prefix))),
        all_of=tuple(tuple(_exact(one, terms.prefix) for one in group) for group in terms.all_of),
        none_of=tuple(_exact(one, terms.prefix) for one in terms.none_of),
    )


def _loosened(alternatives: Iterable[Sequence[str]], begun: frozenset[str]) -> Iterable[Sought]:
    """Each alternative, and the parts of a word that nothing divides."""
    for words in alternatives:
        yield _exact(words, begun)
        if len(words) == 1:
            for part in loosened(words[0]):
                yield _exact((part,), begun)


def _exact(words: Sequence[str], begun: frozenset[str]) -> Sought:
    text, open_end = sought(" ".join(words))
    names = prepare(words[0]).names if len(words) == 1 else ()
    prefix = open_end or (bool(words) and words[-1] in begun)
    if len(names) == 1 and _SIGNED.search(words[0]):
        return Sought(names[0])  # C# is not every c
    return Sought(text, names[0] if len(names) == 1 else "", prefix)
