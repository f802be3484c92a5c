"""Credentials that should not be written down: known key formats, assignments, and passwords inside addresses.

A placeholder is not a credential: `sk-...`, `<your-key>`, `${TOKEN}`, `xxxx`, anything that says it is an example.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from math import log2

from herma.types import Finding

# (a literal that must be there before the pattern is tried, pattern, what it is)
_FORMATS: tuple[tuple[tuple[str, ...], str, str], ...] = (
    (("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", "AWS access key"),
    (("ghp_", "gho_", "ghu_", "ghs_", "ghr_"), r"\bgh[pousr]_[A-Za-z0-9]{30,255}", "GitHub token"),
    (("github_pat_",), r"\bgithub_pat_[A-Za-z0-9_]{22,255}", "GitHub token"),
    (("glpat-",), r"\bglpat-[A-Za-z0-9_-]{20,64}", "GitLab token"),
    (("sk-ant-",), r"\bsk-ant-[A-Za-z0-9_-]{20,255}", "Anthropic key"),
    (("sk-",), r"\bsk-(?:proj-|svcacct-|or-v1-)?[A-Za-z0-9_-]{20,255}", "API key"),
    (("xox",), r"\bxox[abeoprs]-[A-Za-z0-9-]{10,255}", "Slack token"),
    (
        ("hooks.slack.com/services/T",),
        r"hooks\.slack\.com/services/T\w{6,12}/B\w{6,12}/\w{16,32}",
        "Slack webhook",
    ),
    (("AIza",), r"\bAIza[0-9A-Za-z_-]{35}", "Google API key"),
    (("ya29.",), r"\bya29\.[0-9A-Za-z_-]{20,400}", "Google access token"),
    (("_live_", "_test_"), r"\b[sr]k_(?:live|test)_[0-9A-Za-z]{16,255}", "Stripe key"),
    (("whsec_",), r"\bwhsec_[0-9A-Za-z+/=]{24,255}", "webhook secret"),
    (("npm_",), r"\bnpm_[A-Za-z0-9]{36}\b", "npm token"),
    (("pypi-",), r"\bpypi-[A-Za-z0-9_-]{40,400}", "PyPI token"),
    (("hf_",), r"\bhf_[A-Za-z0-9]{30,64}\b", "Hugging Face token"),
    (("SG.",), r"\bSG\.[A-Za-z0-9_-]{16,32}\.[A-Za-z0-9_-]{30,64}", "SendGrid key"),
    (("dop_v1_",), r"\bdop_v1_[0-9a-f]{64}\b", "DigitalOcean token"),
    (
        ("eyJ",),
        r"\beyJ[A-Za-z0-9_-]{10,2000}\.eyJ[A-Za-z0-9_-]{10,4000}\.[A-Za-z0-9_-]{10,1000}",
        "JSON web token",
    ),
    (
        ("PRIVATE KEY",),
        r"-----BEGIN (?:[A-Z]{2,9} ){0,2}PRIVATE KEY(?: BLOCK)?-----\s{0,8}[A-Za-z0-9+/=:\s,-]{24,200}",
        "private key",
    ),
    (("bot",), r"\bbot[0-9]{8,10}:[A-Za-z0-9_-]{35}\b", "Telegram bot token"),
    (("AccountKey=",), r"AccountKey=[A-Za-z0-9+/]{60,100}={0,2}", "Azure storage key"),
)

# Names of credentials are found by these endings; what follows decides.
_NAMES = ("password", "passwd", "passphrase", "pwd", "secret", "token", "key", "bearer")
_ASSIGNED = (
    r"(?:[_-]\w{1,20})?[\"'`]?\s{0,4}(?::=|=>|[=:]|\bis\b)\s{0,4}"
    r"[\"'`]?(?P<value>[^\s\"'`<>{}()\[\],;]{8,200})(?=$|[\s\"'`,;)\]}>])"
)
_BEARER = r"\s{1,4}(?P<value>[a-z0-9._~+/-]{20,400}={0,2})"
_ADDRESS = r"\b[a-z][a-z0-9+.-]{1,20}://[A-Za-z0-9._%+-]{1,64}:(?P<value>[^\s/@:<>\"'`{}\[\]]{3,120})@[A-Za-z0-9\[]"

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


def find_secrets(text: str) -> Iterator[Finding]:
    """Every credential in `text`, as it stands: formats are case-sensitive, so this looks at unfolded text."""
    for literals, pattern, what in _FORMATS:
        for literal in literals:
            if literal in text:
                for match in _compiled(pattern).finditer(text):
                    if not _is_placeholder(match.group()):
                        yield Finding("credential", match.span(), "high", f"looks like a real {what}")
                break
    yield from _find_assigned(text)
    if "://" in text and "@" in text:
        for match in _compiled(_ADDRESS, re.IGNORECASE).finditer(text):
            value = match["value"].lower()
            if value not in _WEAK_PASSWORDS and not _is_placeholder(value):
                yield Finding("credential", match.span("value"), "high", "password inside an address")


def _find_assigned(text: str) -> Iterator[Finding]:
    """Values that are given to something called a password, a token, a key."""
    lower = text.lower()
    if len(lower) != len(text):
        lower = text.translate(_LOWER)
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


def _is_placeholder(value: str) -> bool:
    lower = value.lower()
    return any(word in lower for word in _PLACEHOLDERS) or (len(set(lower)) < 6 and len(lower) > 8)


def _is_random(value: str, *, quoted: bool) -> bool:
    """Whether a value looks made by a machine or chosen as a password, not a word, a path or a piece of code."""
    value = value.rstrip(".:!?")
    if len(value) < 8 or _is_placeholder(value):
        return False
    kinds = sum(any(test(char) for char in value) for test in (str.islower, str.isupper, str.isdigit, _is_symbol))
    if not any(char.isdigit() for char in value) and not (quoted and kinds >= 3):
        return False
    if value.isdigit() or "://" in value or value.startswith(("/", "./", "~/", "os.", "process.", "--")):
        return False
    bits = _entropy(value)
    if len(value) < 16:
        return kinds >= 3 and bits >= 2.7
    return kinds >= 2 and bits >= 3.2


def _is_symbol(char: str) -> bool:
    return not char.isalnum() and char not in "_-./:"


def _entropy(value: str) -> float:
    """Bits per character."""
    counts = Counter(value).values()
    return -sum(count / len(value) * log2(count / len(value)) for count in counts)
