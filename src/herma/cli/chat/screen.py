"""How a turn is shown: as formatted text that grows on a terminal, as plain text elsewhere.

Whatever a model or a tool says, nothing in it can steer the terminal.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from herma.agent.happenings import Asking, Called, Calling, Happening, Noted, Said, Shortened
from herma.cli import output
from herma.cli.chat.blocks import Blocks
from herma.cli.chat.wording import shortened_line, tool_line
from herma.cli.sessions.wording import one_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.segment import Segment

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_REFRESH = 10
"""Times a second that what is being written is drawn."""
_TALL = 60
_LONG = 6_000
"""Lines and characters of one block from which on only its end is drawn, unformatted, until it is settled."""


class Screen(Protocol):
    """Shows turns."""

    def __call__(self, happening: Happening) -> None: ...

    def end(self) -> None:
        """The turn is over: nothing more comes."""

    def note(self, text: str) -> None:
        """Something that a person should know; the same thing is said once."""

    def line(self, text: str = "") -> None: ...


class PlainScreen:
    """Text as it comes; what is not the answer goes to `aside`."""

    def __init__(self, out: TextIO | None = None, aside: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._aside = aside or self._out
        self._told: set[str] = set()
        self._open = False

    def __call__(self, happening: Happening) -> None:
        match happening:
            case Said(text):
                self._out.write(output.visible(text))
                self._out.flush()
                self._open = not text.endswith("\n")
            case Called():
                self._say(tool_line(happening))
            case Shortened(outcome):
                self._say(shortened_line(outcome))
            case Noted(text):
                self.note(text)
            case Asking() | Calling():
                pass

    def end(self) -> None:
        if self._open:
            self._out.write("\n")
            self._open = False
        self._out.flush()

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._say(f"· {text}")

    def line(self, text: str = "") -> None:
        self.end()
        output.write(text, self._out)

    def _say(self, text: str) -> None:
        self.end()
        text = output.visible(text)
        self._aside.write(f"{_DIM}{text}{_PLAIN}\n" if output.colours(self._aside) else f"{text}\n")
        self._aside.flush()


class QuietScreen(PlainScreen):
    """For programs: the answer is printed by somebody else, the rest goes aside."""

    def __init__(self, aside: TextIO | None = None) -> None:
        super().__init__(aside=aside or sys.stderr)

    def __call__(self, happening: Happening) -> None:
        if isinstance(happening, Noted):
            self.note(happening.text)
        elif isinstance(happening, Shortened):
            self._say(shortened_line(happening.outcome))


class LiveScreen:
    """Formatted text on a terminal."""

    def __init__(self, *, markdown: bool = True) -> None:
        self._console = console()
        self._markdown = markdown
        self._told: set[str] = set()
        self._blocks = Blocks()
        self._live: Live | None = None
        self._doing = ""
        self._since = 0.0

    def __call__(self, happening: Happening) -> None:
        match happening:
            case Asking():
                self._wait_for("")
            case Said(text):
                for block in self._blocks.feed(output.visible(text)):
                    self._print(block)
            case Calling(call):
                self._settle()
                self._wait_for(call.name)
            case Called():
                self._dim(tool_line(happening))
                self._wait_for("")
            case Shortened(outcome):
                self._dim(shortened_line(outcome))
            case Noted(text):
                self.note(text)

    def end(self) -> None:
        self._settle()
        self._stop()

    def note(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._settle()
            self._dim(f"· {text}")

    def line(self, text: str = "") -> None:
        self.end()
        output.write(text)

    def _wait_for(self, what: str) -> None:
        from rich.live import Live

        self._doing, self._since = output.visible(one_line(what, 60)), time.monotonic()
        if self._live is None:
            self._live = Live(
                get_renderable=lambda: _Growing(self),
                console=self._console,
                refresh_per_second=_REFRESH,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start()

    def _stop(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _settle(self) -> None:
        left = self._blocks.flush()
        if left.strip():
            self._print(left)

    def _print(self, block: str) -> None:
        if self._markdown:
            self._console.print(_Trimmed(formatted(block)))
            self._console.print()
        else:
            self._console.print(block.rstrip("\n"), soft_wrap=True)

    def _dim(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(output.visible(text), style="dim"))

    @property
    def growing(self) -> str:
        return self._blocks.rest

    @property
    def waiting(self) -> str:
        """What is waited for, once that takes a while; nothing as long as text comes."""
        seconds = time.monotonic() - self._since
        if self.growing or seconds < 0.3:
            return ""
        dots = "." * (1 + int(seconds * 2) % 3)
        return f"{self._doing} {dots:<3} {seconds:.0f} s  (Ctrl-C stops)".strip()

    @property
    def formats(self) -> bool:
        return self._markdown


class _Growing:
    """The block that is being written, as far as it fits into the window, and what is waited for."""

    def __init__(self, screen: LiveScreen) -> None:
        self._screen = screen

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment
        from rich.text import Text

        text = self._screen.growing
        if not text.strip():
            yield Text(self._screen.waiting, style="dim")
            return
        lines = text[-_LONG:].splitlines()
        plain = len(text) > _LONG or len(lines) > _TALL or not self._screen.formats
        shown: Any = Text("\n".join(lines[-_TALL:])) if plain else formatted(text)
        drawn = trimmed_lines(console, shown, options)
        room = max(3, console.size.height - 4)
        for at, line in enumerate(drawn[-room:]):
            if at:
                yield Segment.line()
            yield from line


class _Trimmed:
    """Without the blanks that fill each line: they would wrap when the window gets narrower, and are copied along."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for line in trimmed_lines(console, self._inner, options):
            yield from line
            yield Segment.line()


def trimmed_lines(console: Console, inner: Any, options: ConsoleOptions) -> list[list[Segment]]:
    """Lines without blanks at their ends."""
    from rich.segment import Segment

    lines = []
    for line in console.render_lines(inner, options.update(height=None), pad=False):
        kept = list(line)
        while kept and not kept[-1].text.strip():
            kept.pop()
        if kept:
            kept[-1] = Segment(kept[-1].text.rstrip(), kept[-1].style)
        lines.append(kept)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def formatted(text: str) -> Any:
    """Markdown without links that hide where they lead."""
    from rich.markdown import Markdown

    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


def console() -> Console:
    from rich.console import Console

    return Console(
        file=sys.stdout,
        markup=False,
        emoji=False,
        highlight=False,
        color_system="auto" if output.colours(sys.stdout) else None,
    )
