"""Find credentials: known key formats (`secrets.txt`), assignments, and passwords in addresses and commands.

A placeholder is not a credential: `sk-...`, `<your-key>`, `${TOKEN}`, `xxxx`, anything that says it is an example.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from math import log2
from pathlib import Path

from herma.types import Finding

# Names of credentials are found by these endings; the text after them decides.
_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token", "key", "bearer")
_ASSIGNED = (
    r"(?:[_-]\w{1,20})?[\"'`]?\s{0,4}(?::=|=>|[=:]|\bis\b)\s{0,4}"
    r"[\"'`]?(?P<value>[^\s\"'`<>{}()\[\],;]{8,200}+)(?=$|[\s\"'`,;)\]}>])"
)
_BEARER = r"\s{1,4}(?P<value>[a-z0-9._~+/-]{20,400}={0,2})"
_ADDRESS = r"\b[a-z][a-z0-9+.-]{1,20}://[A-Za-z0-9._%+-]{0,64}:(?P<value>[^\s/@:<>\"'`{}\[\]]{3,120})@[A-Za-z0-9\[]"

_BASIC = r"\bbasic\s{1,4}(?P<value>[A-Za-z0-9+/_-]{8,400}={0,2})(?![\w+/=-])"

# "\bghp_" is written as "ghp_", not after a letter: Python looks for literal text first, several times as fast.
_LITERAL_FIRST = re.compile(r"^\\b(\w+)(?![\w?*+{|])")

# Lower case, letter by letter: offsets stay the same.
_LOWER = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz")

_PLACEHOLDERS = tuple(
    """example xxx your placeholder changeme change-me change_me redacted dummy password sample insert replace 12345678
    abcdef foobar fake ... *** todo masked hidden env secret_ -here _here mykey my-key my_key notreal goes $ % <
    { …""".split()  # noqa: SIM905
)
_WEAK_PASSWORDS = frozenset(
    ("pass", "password", "pwd", "secret", "user", "postgres", "root", "admin", "test", "guest", "token", "pw")
)


@cache
def _compiled(pattern: str, flags: int = 0) -> re.Pattern[str]:
    return re.compile(pattern, flags)


def read_rules(name: str) -> list[tuple[str, list[str]]]:
    """Return the heading and the entries of each section of a rule file. An indented line continues an entry."""
    sections: list[tuple[str, list[str]]] = []
    for line in Path(__file__).with_name(name).read_text("utf-8").split("\n"):
        if line.startswith("["):
            sections.append((line[1:].removesuffix("]"), []))
        elif line.startswith("    "):
            heading, entries = sections[-1]
            entries[-1] += line[4:] if entries[-1].startswith("= ") or heading == "pieces" else line[3:]
        elif line and not line.startswith("#"):
            sections[-1][1].append(line)
    return sections


@cache
def _formats() -> dict[str, list[tuple[str, tuple[str, str]]]]:
    """Return for formats and places each piece with the name and the expression of its rule."""
    found: dict[str, list[tuple[str, tuple[str, str]]]] = {}
    for heading, entries in read_rules("secrets.txt"):
        for head, expression in zip(entries[::2], entries[1::2], strict=True):
            name, _, pieces = head.partition(": ")
            rule = (name, _LITERAL_FIRST.sub(r"\1(?<!\\w\1)", expression.removeprefix("= ")))
            found.setdefault(heading, []).extend((piece, rule) for piece in pieces.split())
    return found


def _rules_for(heading: str, text: str) -> dict[tuple[str, str], None]:
    """Return the rules of which a text has a piece. One plain loop: a JSON message has a million short texts."""
    return dict.fromkeys([rule for piece, rule in _formats()[heading] if piece in text])


def find_secrets(text: str) -> Iterator[Finding]:
    """Yield every credential in `text`. Formats are case-sensitive, so the text must not be folded."""
    for what, pattern in _rules_for("formats", text):
        for match in _compiled(pattern).finditer(text):
            if not _is_placeholder(match[0]) and _has_mixed_characters(match[0]):
                yield Finding("credential", match.span(), "high", f"looks like a real {what}")
    lower = text.lower()
    if len(lower) != len(text):
        lower = text.translate(_LOWER)
    yield from _find_assigned(text, lower)
    for _, pattern in _rules_for("places", lower):
        for match in _compiled(pattern, re.IGNORECASE).finditer(text):
            if _is_password(match["value"]):
                yield Finding("credential", match.span("value"), "high", "a password written out")
    if "basic" in lower:
        for match in _compiled(_BASIC, re.IGNORECASE).finditer(text):
            if _is_password(_after_colon(match["value"])):
                yield Finding("credential", match.span("value"), "high", "a password written out")
    if "://" in text and "@" in text:
        for match in _compiled(_ADDRESS, re.IGNORECASE).finditer(text):
            value = match["value"].lower()
            if value not in _WEAK_PASSWORDS and not _is_placeholder(value):
                yield Finding("credential", match.span("value"), "high", "password inside an address")


def _after_colon(value: str) -> str:
    """Return the password of a Basic header, or nothing if it holds none."""
    plain = value.rstrip("=").replace("-", "+").replace("_", "/")
    try:
        user, colon, password = b64decode(plain + "=" * (-len(plain) % 4)).decode().partition(":")
    except ValueError:
        return ""
    return password if colon and user.isprintable() and password.isprintable() else ""


def _is_password(value: str) -> bool:
    value = value.rstrip(".,;)")
    lower = value.lower()
    return len(value) >= 3 and lower not in _WEAK_PASSWORDS and "://" not in value and not _is_placeholder(value)


def _find_assigned(text: str, lower: str) -> Iterator[Finding]:
    """Yield values that are given to something called a password, a token, a key."""
    for name in _NAMES:
        at = lower.find(name)
        while at >= 0:
            at += len(name)
            match = _compiled(_BEARER if name == "bearer" else _ASSIGNED).match(lower, at)
            if match:
                start, end = match.span("value")
                if _is_random(text[start:end], quoted=text[start - 1] in "\"'`"):
                    yield Finding("credential", (start, end), "high", f"a {name} written out")
            at = lower.find(name, at)


def _has_mixed_characters(value: str) -> bool:
    """Return whether there is a digit, or letters of both cases in no order: words have one case, or one capital."""
    turns = sum(one.islower() and other.isupper() for one, other in pairwise(value))
    return any(char.isdigit() for char in value) or turns > len(value) // 7


def _is_placeholder(value: str) -> bool:
    lower = value.lower()
    return any(word in lower for word in _PLACEHOLDERS) or (len(set(lower)) < 6 and len(lower) > 8)


def _is_random(value: str, *, quoted: bool) -> bool:
    """Return whether a value looks made by a machine or chosen as a password, not a word, a path or a piece of code."""
    value = value.rstrip(".:!?")
    if len(value) < 8 or _is_placeholder(value):
        return False
    kinds = sum(any(test(char) for char in value) for test in (str.islower, str.isupper, str.isdigit))
    kinds += any(not char.isalnum() and char not in "_-./:" for char in value)
    if not any(char.isdigit() for char in value) and not (quoted and kinds >= 3):
        return False
    if value.isdigit() or "://" in value or value.startswith(("/", "./", "~/", "os.", "process.", "--")):
        return False
    bits = _entropy(value)
    if len(value) < 16:
        return kinds >= 3 and bits >= 2.7
    return kinds >= 2 and bits >= 3.2


def _entropy(value: str) -> float:
    """Return bits per character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * log2(count / len(value)) for count in counts)
