"""One rule of the skill scanner, and what several of them look for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from herma.types import Severity

PRIVATE_FILE = (
    r"(?:\.ssh/|\bid_(?:rsa|ed25519|ecdsa)\b|\.aws/credentials|\.netrc\b|/etc/(?:passwd|shadow)\b|\.kube/config"
    r"|\.gnupg/|\.git-credentials|\.npmrc\b|\.pypirc\b|\.env\b(?!\.)|Login Data|wallet\.dat)"
)
NET = r"(?:curl|wget|nc|ncat|socat|telnet|Invoke-WebRequest|Invoke-RestMethod)"


@dataclass(frozen=True)
class GuardRule:
    """`hint`: a piece that must be in the line, in small letters, before the expression is worth trying."""

    id: str
    category: str
    severity: Severity
    why: str
    hint: tuple[str, ...]
    pattern: str

    @cached_property
    def expression(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.IGNORECASE)


def rule(id_: str, category: str, severity: Severity, why: str, hint: str, pattern: str) -> GuardRule:
    return GuardRule(id_, category, severity, why, tuple(hint.split("|")), pattern)
