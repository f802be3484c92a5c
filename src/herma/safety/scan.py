"""Whether a text may be kept: the page to read first.

`scan` runs on every write to memory and on every load, and any finding blocks the write. So it must be quick, it must
read all of the text, and it must leave ordinary notes alone, notes about security among them. In turn it looks

1. at the characters themselves: invisible ones, and letters that imitate others (`characters.py`);
2. for credentials, in the text as it stands (`secrets.py`);
3. for the rules (`rules/`), in the text folded to plain letters (`fold.py`);
4. for the same rules in what the text hides: base64, look-alikes, spaced-out letters and so on (`disguise.py`).

Patterns are a first fence, not the only one: where a note came from, and who approved it, is the second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from herma.safety.characters import find_controls, find_hidden, find_lookalikes
from herma.safety.disguise import disguised
from herma.safety.fold import fold
from herma.safety.rule import Rule, compiled
from herma.safety.rules import RULES
from herma.safety.secrets import find_secrets
from herma.types import Finding

_WORDS = re.compile(r"[a-z]+")


def scan(text: str) -> list[Finding]:
    """Everything objectionable in `text`, in reading order. An empty list means clean."""
    findings = set(_findings(text))
    return sorted(findings, key=lambda finding: (finding.span, finding.rule, finding.why))


def _findings(text: str) -> Iterator[Finding]:
    yield from find_controls(text)
    if not text.isascii():
        yield from find_hidden(text)
        yield from find_lookalikes(text)
    yield from find_secrets(text)
    folded = fold(text)
    words = set(_WORDS.findall(folded.text))
    for rule, start, end in match_rules(folded.text, words):
        yield Finding(rule.id, folded.span(start, end), rule.severity, rule.why)
    for plain, span, how in disguised(text, folded.text, words):
        for rule, _, _ in match_rules(plain, set(_WORDS.findall(plain))):
            yield Finding(rule.id, span, "high", f"{rule.why}, hidden as {how}")


def match_rules(plain: str, words: set[str]) -> Iterator[tuple[Rule, int, int]]:
    """Each rule's matches in folded text. `words` are its a-z words: a rule without a trigger among them is skipped."""
    for rule in _candidates(plain, words):
        for match in compiled(rule.pattern).finditer(plain):
            yield rule, match.start(), match.end()


def _candidates(plain: str, words: set[str]) -> list[Rule]:
    by_word, by_piece = _triggers()
    wanted: set[Rule] = set()
    for word in words & by_word.keys():
        wanted.update(by_word[word])
    for piece, rule in by_piece:
        if rule not in wanted and piece in plain:
            wanted.add(rule)
    return [rule for rule in RULES if rule in wanted]


@cache
def _triggers() -> tuple[dict[str, list[Rule]], list[tuple[str, Rule]]]:
    by_word: dict[str, list[Rule]] = {}
    by_piece: list[tuple[str, Rule]] = []
    for rule in RULES:
        for trigger in rule.triggers.split():
            if trigger.isascii() and trigger.isalpha():
                by_word.setdefault(trigger, []).append(rule)
            else:
                by_piece.append((trigger, rule))
    return by_word, by_piece
