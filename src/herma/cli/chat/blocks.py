"""Markdown that arrives in pieces, cut into blocks that will not change any more. Pure.

What is settled is printed once and scrolls away like any other text; only the block that is still being written is
drawn again and again. So a long answer does not flicker, and none of it is lost when it is longer than the window.
"""

from __future__ import annotations

import re

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """`feed` pieces; what comes back is settled. `rest` is what is not."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._fence = ""
        self._gap = False

    def feed(self, piece: str) -> list[str]:
        """Blocks that are settled now that this piece has come."""
        settled: list[str] = []
        *whole, last = piece.split("\n")
        for text in whole:
            line = "".join([*self._line, text, "\n"])
            self._line = []
            settled += self._take(line)
        if last:
            self._line.append(last)
        return settled

    @property
    def rest(self) -> str:
        return "".join([*self._lines, *self._line])

    def flush(self) -> str:
        """What is left; then it is as new."""
        left = self.rest
        self._begin()
        return left

    def _take(self, line: str) -> list[str]:
        """A whole line. A block ends where text begins at the margin after an empty line, or where code ends."""
        settled = []
        if self._gap and not self._fence and line.strip() and not line[0].isspace():
            settled.append(self._cut())
        self._lines.append(line)
        found = _FENCE.match(line)
        if self._fence:
            closes = found and found[1].startswith(self._fence) and not line[found.end() :].strip()
            if closes:
                self._fence = ""
                settled.append(self._cut())
        elif found and "`" not in line[found.end() :]:
            self._fence = found[1]
        self._gap = not self._fence and not line.strip() and bool(self._lines)
        return settled

    def _cut(self) -> str:
        block = "".join(self._lines)
        self._lines, self._gap = [], False
        return block
