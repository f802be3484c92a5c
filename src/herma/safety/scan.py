"""Whether a text may be kept: the page to read first.

`scan` runs on every write to memory and on every load, and any finding blocks the write. So it must be quick, it must
read all of the text, and it must leave ordinary notes alone, notes about security among them. In turn it looks

1. at the characters themselves: invisible ones, and letters that imitate others (`characters.py`);
2. for credentials, in the text as it stands (`secrets.py`);
3. for the rules (`rules/`), in the text folded to plain letters (`fold.py`);
4. for veiled words about a model's insides (`veiled.py`);
5. for the same rules in what the text hides: base64, look-alikes, spaced-out letters and so on (`disguise.py`).

Patterns are a first fence, not the only one: where a note came from, and who approved it, is the second.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from herma.errors import UsageError
from herma.safety.controls import find_controls
from herma.safety.disguise import disguised
from herma.safety.fold import fold
from herma.safety.matching import match_rules, read
from herma.safety.secrets import find_secrets
from herma.safety.veiled import find_veiled
from herma.types import Finding


def scan(text: str) -> list[Finding]:
    """Everything objectionable in `text`, in reading order. An empty list means clean."""
    if not isinstance(text, str):
        raise UsageError(f"What is scanned is text, not {type(text).__name__}.", hint='For example: scan("a note").')
    return list(_remembered(text) if len(text) <= _SHORT else _scan(text))


def _scan(text: str) -> tuple[Finding, ...]:
    kept: list[Finding] = []
    reached: dict[str, int] = {}
    for finding in sorted(set(_findings(text)), key=_reading_order):
        if finding.span[1] > reached.get(finding.rule, -1):  # else a longer one of the same rule covers it
            reached[finding.rule] = finding.span[1]
            kept.append(finding)
    return tuple(kept)


# Entries are scanned at every load and seldom change; a process that loads often need not read them again.
_SHORT = 4_000
_remembered = lru_cache(maxsize=1_024)(_scan)


def _reading_order(finding: Finding) -> tuple[int, int, str, str]:
    start, end = finding.span
    return start, -end, finding.rule, finding.why


def _findings(text: str) -> Iterator[Finding]:
    yield from find_controls(text)
    if not text.isascii():
        from herma.safety.characters import find_hidden, find_lookalikes

        yield from find_hidden(text)
        yield from find_lookalikes(text)
    yield from find_secrets(text)
    folded = fold(text)
    page = read(folded.text)
    in_the_open: set[str] = set()
    for rule, start, end in match_rules(page):
        in_the_open.add(rule.id)
        yield Finding(rule.id, folded.span(start, end), rule.severity, rule.why)
    for start, end in find_veiled(page):
        yield Finding("veiled_request", folded.span(start, end), "medium", "works on a model's rules in veiled words")
    for plain, span, how in disguised(text, page):
        for rule, _, _ in match_rules(read(plain)):
            if rule.id not in in_the_open:  # a place is more use than "somewhere in here"
                yield Finding(rule.id, span, "high", f"{rule.why}, hidden as {how}")
