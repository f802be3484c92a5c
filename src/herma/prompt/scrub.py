"""Removes fenced spans from text that arrives in pieces.

Whatever the cut, the result is the same, because everything that depends on more than one character is state: the tag
being read, how deep the fences are nested, an escape or the head of a plain tag that has only half arrived. Nothing
but such a half is read twice.

Taking a fence out must not make a new one of what stood round it: `<`, a fence, `memory-context>`. Where the text
before a fence could be the beginning of a tag, a `…` takes the fence's place.
"""

from __future__ import annotations

from enum import Enum

from herma.prompt.tags import FILLER, HALF_PLAIN, PLAIN_HEAD, PLAIN_REST, STARTER, Attempt, Step, patterns, unit_at

_may_begin_a_tag = STARTER.search


class _Phase(Enum):
    TEXT = 0
    """Nothing held: text outside of fences, or dropped inside of one."""
    HEAD = 1
    """After a `<`: this may become a tag."""
    OPENING = 2
    """In the rest of an opening tag, which may turn out to be self-closing."""
    CLOSING = 3
    """Right after a closing tag's name: white space is held, for a `>` may follow."""
    CLOSING_REST = 4
    """In the rest of a closing tag, to its `>` or the end of the line."""


class StreamScrubber:
    """`feed` each piece and show what comes back; `flush` at the end. An unterminated fence is dropped.

    Only what could still become a tag is held back: text without a `<` comes back at once and as it is.
    """

    __slots__ = ("_attempt", "_depth", "_find", "_held", "_idle", "_live", "_phase", "_slash", "_unit")

    def __init__(self) -> None:
        self._find = _may_begin_a_tag
        self._start()

    def _start(self) -> None:
        self._idle = True
        self._phase = _Phase.TEXT
        self._depth = 0
        self._attempt = Attempt()
        self._held: list[str] = []
        self._live = 0  # how many of the held pieces are the beginning of a tag that another `<` cut short
        self._unit = ""
        self._slash = False

    def feed(self, chunk: str) -> str:
        """What can be shown now that `chunk` has arrived."""
        if self._idle and self._find(chunk) is None:
            return "" if self._depth else chunk
        if self._find is _may_begin_a_tag:  # the first sign that might: from now on the whole grammar decides
            self._find = patterns().opener_or_half.search
            return self.feed(chunk)
        out: list[str] = []
        self._read(self._unit + chunk, out, final=False)
        self._idle = self._phase is _Phase.TEXT and not self._unit
        return "".join(out)

    def flush(self) -> str:
        """The stream has ended: what was held back and is no tag. The scrubber is as new afterwards."""
        out: list[str] = []
        self._read(self._unit, out, final=True)
        if self._phase is _Phase.HEAD and not self._attempt.named:
            self._release(out)
        elif self._phase is _Phase.CLOSING:
            self._end_of_closing(out)
        self._start()
        return "".join(out)

    # ── one pass ──

    def _read(self, data: str, out: list[str], *, final: bool) -> None:
        """Read all of `data`, except for half an escape at its end, which waits in `_unit`."""
        at, self._unit = 0, ""
        while at < len(data):
            if self._phase is _Phase.TEXT:
                at = self._text(data, at, out, final=final)
                continue
            if not final and data[at] in "&%\\" and patterns().unfinished.match(data, at):
                self._unit = data[at:]
                return
            if self._phase is _Phase.HEAD and data[at] in "&%\\" and not patterns().escape.match(data, at):
                half = patterns().half_before_opener.match(data, at)
                if half is not None:
                    self._held.append(half.group())
                    at = half.end()
                    continue
            if self._phase is _Phase.OPENING and (rest := PLAIN_REST.match(data, at)):
                self._slash = False
                at = rest.end()
                continue
            filler = FILLER.match(data, at)
            sign, end = (" ", filler.end()) if filler else unit_at(data, at)
            at = self._step(sign, data, at, end, out)

    def _text(self, data: str, at: int, out: list[str], *, final: bool) -> int:
        """Go to the next `<`, showing what is outside of fences. → where to go on."""
        found = (patterns().opener if final else patterns().opener_or_half).search(data, at)
        stop = found.start() if found else len(data)
        if not self._depth and stop > at:
            out.append(data[at:stop])
        if found is None:
            return stop
        if not final and (
            found.group("half") is not None or self._may_grow(data, found.end()) or HALF_PLAIN.match(data, stop)
        ):
            self._unit = data[stop:]
            return len(data)
        plain = PLAIN_HEAD.match(data, found.end())
        self._held, self._live = [found.group()], 0
        if plain is not None:
            self._begin(out, closing="/" in plain["lead"])
            return plain.end()
        self._phase = _Phase.HEAD
        self._attempt = Attempt()
        return found.end()

    @staticmethod
    def _may_grow(data: str, end: int) -> bool:
        """Whether an escape that ends with the data may still get its `;`."""
        return end == len(data) and data[end - 1] in "tT0cC"

    def _step(self, sign: str, data: str, at: int, end: int, out: list[str]) -> int:
        """One unit inside a possible tag. → where to go on."""
        match self._phase:
            case _Phase.HEAD:
                return self._head(sign, data, at, end, out)
            case _Phase.OPENING:
                return self._opening(sign, at, end)
            case _Phase.CLOSING:
                return self._closing(sign, data, at, end, out)
            case _:
                return self._closing_rest(sign, data, at, end)

    def _head(self, sign: str, data: str, at: int, end: int, out: list[str]) -> int:
        step = self._attempt.step(sign)
        if step is Step.MORE:
            self._held.append(data[at:end])
            return end
        if step is Step.NO and sign == "<":
            self._live = len(self._held)
            self._held.append(data[at:end])
            self._attempt = Attempt()
            return end
        if step is Step.NO:
            self._release(out)
            return at
        self._begin(out, closing=self._attempt.closing)
        return at

    def _begin(self, out: list[str], *, closing: bool) -> None:
        """A tag's head is complete: its rest is next."""
        if self._live and not self._depth:
            out += [*self._held[: self._live], "…"]
        self._held = []
        if closing:
            self._depth = max(0, self._depth - 1)
            self._phase = _Phase.CLOSING
        else:
            self._depth += 1
            self._phase = _Phase.OPENING
            self._slash = False

    def _opening(self, sign: str, at: int, end: int) -> int:
        if sign == "<":
            self._phase = _Phase.TEXT
            return at
        if sign == ">":
            self._phase = _Phase.TEXT
            self._depth -= self._slash
        elif sign not in ("", " "):
            self._slash = sign == "/"
        return end

    def _closing(self, sign: str, data: str, at: int, end: int, out: list[str]) -> int:
        if sign in ("", " "):
            self._held.append(data[at:end])
            return end
        if sign == ">":
            self._phase = _Phase.TEXT
            self._held = []
            return end
        if sign == "<" or any("\n" in piece for piece in self._held):
            self._end_of_closing(out)
            return at
        self._phase = _Phase.CLOSING_REST
        self._held = []
        return end

    def _closing_rest(self, sign: str, data: str, at: int, end: int) -> int:
        if sign == "<":
            self._phase = _Phase.TEXT
            return at
        line_end = data.find("\n", at, end)
        if line_end >= 0:
            self._phase = _Phase.TEXT
            return line_end
        if sign == ">":
            self._phase = _Phase.TEXT
        return end

    def _release(self, out: list[str]) -> None:
        """It is no tag after all: what was held is text."""
        self._phase = _Phase.TEXT
        if not self._depth:
            out.extend(self._held)
        self._held = []

    def _end_of_closing(self, out: list[str]) -> None:
        """A closing tag without `>`: it ends with its name, and a line break after it is text."""
        held = "".join(self._held)
        self._phase = _Phase.TEXT
        if not self._depth and "\n" in held:
            out.append(held[held.index("\n") :])
        self._held = []
