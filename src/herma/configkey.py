"""One known configuration key: what it means, and which values it takes."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Value: TypeAlias = bool | int | float | str
TRUE_WORDS = frozenset({"on", "true", "yes", "1", "approve", "enabled"})
FALSE_WORDS = frozenset({"off", "false", "no", "0", "disabled"})
_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})([eE][+-]?[0-9]{1,3})?")
_NOT_A_LINE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Amounts:
    """What a key takes whose value is a list of names, each with a number: `cron=30, subagent=7`."""

    what: str
    most: float
    mark: str = ""
    """What may stand behind a number, which then counts something else."""

    def read(self, text: str) -> list[tuple[str, float, bool]]:
        """Each name with its number, and whether the mark stood behind it. ValueError with the first that is none."""
        found = []
        for row in filter(None, map(str.strip, text.split(","))):
            name, _, number = (part.strip() for part in row.partition("="))
            bare = number.removesuffix(self.mark)
            if not name or not _NUMBER.fullmatch(bare) or not 0 <= float(bare) <= self.most:
                raise ValueError(row)
            found.append((name, float(bare), bare != number))
        return found


BY_SOURCE = Amounts("sources, each with its days (at most 36500), as in: cron=30, subagent=7", 36_500)
BY_PURPOSE = Amounts("purposes, each with its limit, as in: review=0.10, tidy=50000t (dollars, tokens)", 10**15, "t")


def option(
    default: Value,
    doc: str,
    *,
    low: float | None = None,
    high: float | None = None,
    one_of: tuple[str, ...] = (),
    amounts: Amounts | None = None,
    project: bool = False,
) -> Any:
    """A field of a section: what it means, its range or the words it takes, and whether a project's file may set it."""
    takes = {"low": low, "high": high, "one_of": one_of, "amounts": amounts}
    return field(default=default, metadata={"doc": doc, **takes, "project": project})


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A key with its default, which also gives its type, and the `option` that declared it."""

    key: str
    default: Value
    doc: str
    low: float | None
    high: float | None
    one_of: tuple[str, ...] = ()
    amounts: Amounts | None = None
    project: bool

    @property
    def kind(self) -> type:
        return type(self.default)

    @property
    def variable(self) -> str:
        return "HERMA_" + self.key.upper().replace(".", "_")

    @property
    def expected(self) -> str:
        if self.kind is bool:
            return "true or false"
        if self.one_of:
            return "one of " + ", ".join(word or "(empty)" for word in self.one_of)
        if self.amounts:
            return self.amounts.what
        if self.kind is str:
            return "one line of text"
        what = "a whole number" if self.kind is int else "a number"
        if self.low is not None and self.high is not None:
            return f"{what} from {self.low} to {self.high}"
        if self.low is not None:
            return f"{what}, {self.low} or more"
        return what if self.high is None else f"{what}, {self.high} or less"

    def read(self, raw: object) -> Value:
        """The value that `raw` stands for, text being read as a person writes it; ValueError for none."""
        value = self._from_text(raw) if isinstance(raw, str) else raw
        if self.kind is float and type(value) is int:
            value = float(value)
        if not isinstance(value, bool | int | float | str) or type(value) is not self.kind:
            raise ValueError(f"not {self.expected}")
        if isinstance(value, int | float) and not self._fits(value):
            raise ValueError(f"not {self.expected}")
        return value

    def _fits(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)

    def _chosen(self, word: str) -> str:
        if word not in self.one_of:
            raise ValueError(f"not {self.expected}")
        return word

    def _from_text(self, text: str) -> Value:
        word = text.strip()
        if self.one_of:
            return self._chosen(word.lower())
        if self.amounts:
            self.amounts.read(text)
        if self.kind is str and not _NOT_A_LINE.search(text):
            return text
        if self.kind is bool and word.lower() in TRUE_WORDS | FALSE_WORDS:
            return word.lower() in TRUE_WORDS
        if self.kind is int and _WHOLE.fullmatch(word):
            return int(word)
        if self.kind is float and _NUMBER.fullmatch(word):
            return float(word)
        raise ValueError(f"not {self.expected}")
