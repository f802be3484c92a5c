"""Show turns on a terminal or in a pipe, and read what a person types."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from herma.agent.loop import AgentCompressed, AgentEvent, AgentNotice, AgentText, Asking, Called, Calling
from herma.cli import output
from herma.cli.output import count, one_line
from herma.compression.summary import STANDS, Compressed, NotCompressed
from herma.store.files import make_folder
from herma.transcript.messages import text_of

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.segment import Segment

    from herma.prompt.tokens import Plan


_ARGUMENTS = 100
_RESULT = 100


def tool_line(done: Called) -> str:
    """Return `→ memory add, target=user, likes tea  (12 ms)`, with the error if it failed."""
    said = one_line(_arguments(done.call.arguments), _ARGUMENTS)
    took = f"{done.seconds * 1000:.0f} ms" if done.seconds < 1 else f"{done.seconds:.1f} s"
    failed = "" if done.ok else f"  failed: {one_line(_error(done.result), _RESULT)}"
    return f"→ {done.call.name} {said}".rstrip() + f"  ({took}){failed}"


def compressed_line(outcome: Compressed | NotCompressed) -> str:
    if isinstance(outcome, NotCompressed):
        return f"· Not compressed: {outcome.reason}"
    how = {
        "pruned": "tool results shortened",
        "model": "summary by the model",
        "extract": "summary of its own sentences",
    }
    stands = f" of {count(outcome.replaced, 'message')}" if outcome.replaced else ""
    sizes = f"{outcome.tokens_before:,} → {outcome.tokens_after:,} tokens"
    return f"· Compressed: {how[outcome.how]}{stands} ({sizes}). Every message stays in the transcript."


def preview_lines(outcome: Compressed | NotCompressed) -> list[str]:
    """Return what compressing would do. The preview uses sentences of the conversation; a model would write others."""
    if isinstance(outcome, NotCompressed):
        return [f"It would not be compressed: {outcome.reason}"]
    said = compressed_line(replace(outcome, how="extract" if outcome.how == "model" else outcome.how))
    would = said.removeprefix("· Compressed: ").removesuffix(" Every message stays in the transcript.")
    summary = next((text_of(one.content) for one in outcome.messages if one.finish_reason == STANDS), "")
    return [f"Preview: {would}", *summary.splitlines(), "Nothing was changed. To do it: /compress"]


def status(model: str, plan: Plan | None, cost: float | None, name: str) -> str:
    """Return the line below the prompt."""
    parts = [model]
    if plan is not None and plan.window:
        parts.append(f"{plan.used / plan.window:.0%} of {_short(plan.window)} tokens")
    if cost is not None:
        parts.append(f"${cost:.4f}" if cost < 1 else f"${cost:.2f}")
    return " · ".join(filter(None, [*parts, one_line(name, 40)]))


def _short(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M".replace(".0M", "M")
    return f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)


def _arguments(written: str) -> str:
    """Return arguments as a person reads them."""
    try:
        value = json.loads(written or "{}")
    except (ValueError, RecursionError):
        return written
    if not isinstance(value, Mapping):
        return written
    return ", ".join(_pair(name, given) for name, given in value.items())


def _pair(name: str, given: Any) -> str:
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text if name in ("action", "query", "name", "content", "text") else f"{name}={text}"


def _error(result: str) -> str:
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return str(value.get("error") or value) if isinstance(value, Mapping) else result


# ── Markdown that arrives in pieces ──
#
# A settled block is printed once and scrolls away; only the block that still grows is drawn again. So a long answer
# does not flicker, and an answer longer than the window is not lost.

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")


class Blocks:
    """Cuts text into blocks. `feed` returns the settled ones; `rest` is the block that still grows."""

    def __init__(self) -> None:
        self._begin()

    def _begin(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._fence = ""
        self._gap = False

    def feed(self, piece: str) -> list[str]:
        """Add a piece, and return the blocks that it settles."""
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
        """Return the rest, and start again."""
        left = self.rest
        self._begin()
        return left

    def _take(self, line: str) -> list[str]:
        """Take a line. A block ends where text starts at the margin after an empty line, or where code ends."""
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


# ── screens: control characters of a model or a tool never reach the terminal ──

_DIM, _PLAIN = "\x1b[2m", "\x1b[0m"
_REFRESH = 10
"""Redraws per second of the block that grows."""
_TALL = 60
_LONG = 6_000
"""Of a block with more lines or characters only the end is drawn, unformatted, until it is settled."""


class Screen(Protocol):
    """Shows turns."""

    def __call__(self, event: AgentEvent) -> None: ...

    def end(self) -> None:
        """End the turn."""

    def note(self, text: str) -> None:
        """Show a note; the same one only once."""

    def line(self, text: str = "") -> None: ...


class PlainScreen:
    """Writes text as it arrives; notes go to `aside`."""

    def __init__(self, out: TextIO | None = None, aside: TextIO | None = None) -> None:
        self._out = out or sys.stdout
        self._aside = aside or self._out
        self._warned: set[str] = set()
        self._open = False

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case AgentText(text):
                self._out.write(output.visible(text))
                self._out.flush()
                self._open = not text.endswith("\n")
            case Called():
                self._say(tool_line(event))
            case AgentCompressed(outcome):
                self._say(compressed_line(outcome))
            case AgentNotice(text):
                self.note(text)
            case Asking() | Calling():
                pass

    def end(self) -> None:
        if self._open:
            self._out.write("\n")
            self._open = False
        self._out.flush()

    def note(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._say(f"· {text}")

    def line(self, text: str = "") -> None:
        self.end()
        output.write(text, self._out)

    def _say(self, text: str) -> None:
        if self._aside is self._out:
            self.end()
        text = output.visible(text)
        self._aside.write(f"{_DIM}{text}{_PLAIN}\n" if output.colours(self._aside) else f"{text}\n")
        self._aside.flush()


class QuietScreen(PlainScreen):
    """For --json: the caller prints the answer, notes go to `aside`."""

    def __init__(self, aside: TextIO | None = None) -> None:
        super().__init__(aside=aside or sys.stderr)

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, AgentNotice):
            self.note(event.text)
        elif isinstance(event, AgentCompressed):
            self._say(compressed_line(event.outcome))


class PipeScreen(QuietScreen):
    """For pipes and files: writes the answer as it arrives; notes go to `aside`.

    An empty line separates the text of two steps; blanks at the ends of a step are left out. If writing fails, `failed`
    is the error and `gone` is called.
    """

    def __init__(self, out: TextIO | None = None, aside: TextIO | None = None) -> None:
        super().__init__(aside=aside)
        self._out = out or sys.stdout
        self._between = self._blank = ""
        self.gone: Callable[[], object] = lambda: None
        self.failed: OSError | None = None

    def __call__(self, event: AgentEvent) -> None:
        if isinstance(event, Asking):
            self._between, self._blank = "\n\n" if self._open else "", ""
        elif isinstance(event, AgentText):
            self._put(event.text)
        else:
            super().__call__(event)

    def end(self) -> None:
        if self._open:
            self._open = False
            self._write("\n")

    def _put(self, text: str) -> None:
        begun = not self._between and self._open
        text = self._blank + text if begun else text.lstrip()
        kept = text.rstrip()
        self._blank = text[len(kept) :]
        if kept:
            self._write(self._between + output.visible(kept))
            self._between, self._open = "", True

    def _write(self, text: str) -> None:
        if self.failed is not None:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as exc:
            self.failed = exc
            self.gone()


class LiveScreen(PlainScreen):
    """Shows formatted text on a terminal."""

    def __init__(self) -> None:
        super().__init__()
        self._console = output.console(sys.stdout)
        self._blocks = Blocks()
        self._live: Live | None = None
        self._doing = ""
        self._since = 0.0

    def __call__(self, event: AgentEvent) -> None:
        match event:
            case Asking():
                self._wait_for("")
            case AgentText(text):
                for block in self._blocks.feed(output.visible(text)):
                    self._print(block)
            case Calling(call):
                self._settle()
                self._wait_for(call.name)
            case Called():
                super().__call__(event)
                self._wait_for("")
            case _:
                super().__call__(event)

    def end(self) -> None:
        self._settle()
        if self._live is not None:
            self._live.stop()
            self._live = None

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

    def _settle(self) -> None:
        left = self._blocks.flush()
        if left.strip():
            self._print(left)

    def _print(self, block: str) -> None:
        self._console.print(_Trimmed(formatted(block)))
        self._console.print()

    def _say(self, text: str) -> None:
        from rich.text import Text

        self._settle()
        self._console.print(Text(output.visible(text), style="dim"))

    @property
    def growing(self) -> str:
        return self._blocks.rest

    @property
    def waiting(self) -> str:
        """The tool or model that runs, after a moment; "" while text arrives."""
        seconds = time.monotonic() - self._since
        if self.growing or seconds < 0.3:
            return ""
        dots = "." * (1 + int(seconds * 2) % 3)
        return f"{self._doing} {dots:<3} {seconds:.0f} s  (Ctrl-C stops)".strip()


class _Growing:
    """Draws the block that grows, as far as it fits into the window, or what is waited for."""

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
        plain = len(text) > _LONG or len(lines) > _TALL
        shown: Any = Text("\n".join(lines[-_TALL:])) if plain else formatted(text)
        drawn = trimmed_lines(console, shown, options)
        room = max(3, console.size.height - 4)
        for at, line in enumerate(drawn[-room:]):
            if at:
                yield Segment.line()
            yield from line


class _Trimmed:
    """Draws lines without trailing blanks, which would wrap in a narrower window and be copied."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.segment import Segment

        for line in trimmed_lines(console, self._inner, options):
            yield from line
            yield Segment.line()


def trimmed_lines(console: Console, inner: Any, options: ConsoleOptions) -> list[list[Segment]]:
    """Return rendered lines without trailing blanks."""
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
    """Return Markdown without links that hide their address."""
    from rich.markdown import Markdown

    return Markdown(text, code_theme="ansi_dark", hyperlinks=False)


# ── keys typed before the next prompt: not drawn into an answer, and read key by key afterwards ──
#
# A terminal that reads lines turns Enter into a new line, so that three messages typed ahead would become one. Key by
# key, Enter stays Enter, and each message is sent in turn. NOFLSH keeps typed keys when Ctrl-C is pressed.

_PASTING, _PASTED = "\x1b[?2004h", "\x1b[?2004l"
"""Turn the terminal's marks around pasted text on and off."""
_STEERING = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])?")
_RUBBED_OUT = "\x7f\b"


def has_terminal() -> bool:
    """Return whether stdin is a terminal whose mode can be changed."""
    return sys.stdin is not None and sys.stdin.isatty() and importlib.util.find_spec("termios") is not None


@contextmanager
def terminal_mode(*, echo: bool, lines: bool | None = None) -> Iterator[None]:
    """Set the mode of the terminal for a while, if stdin is one: keys are drawn or not, read as lines or one by one.

    Without `lines` that stays as it is. Ctrl-C interrupts as usual, and costs no typed key.
    """
    if not has_terminal():
        yield
        return
    import termios

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    now = [*before]
    now[3] = (now[3] | termios.ECHO if echo else now[3] & ~termios.ECHO) | termios.NOFLSH
    if lines:
        now[0] |= termios.ICRNL
        now[3] |= termios.ICANON
    elif lines is False:
        now[0] &= ~termios.ICRNL
        now[3] &= ~termios.ICANON
        now[6] = [*now[6]]
        now[6][termios.VMIN], now[6][termios.VTIME] = 1, 0
    termios.tcsetattr(handle, termios.TCSANOW, now)
    try:
        yield
    finally:
        if _in_foreground():
            with suppress(termios.error):  # the window was closed
                termios.tcsetattr(handle, termios.TCSANOW, before)


@contextmanager
def held() -> Iterator[None]:
    """Read key by key; afterwards restore the terminal and drop unread keys, which the shell would run as a command."""
    try:
        with terminal_mode(echo=False, lines=False):
            yield
    finally:
        if has_terminal() and _in_foreground():
            import termios

            with suppress(termios.error):  # the window was closed
                termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _in_foreground() -> bool:
    """Return whether this program may change the terminal; the system stops a background program that tries."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return False


@contextmanager
def pasting() -> Iterator[None]:
    """Let the terminal mark pasted text, so that its lines stay together even without a prompt."""
    if not (has_terminal() and sys.stdout.isatty()):
        yield
        return
    sys.stdout.write(_PASTING)
    sys.stdout.flush()
    try:
        yield
    finally:
        with suppress(OSError):  # the window was closed
            sys.stdout.write(_PASTED)
            sys.stdout.flush()


def pressed() -> str:
    """Read the pending keys."""
    taken = b""
    if has_terminal():
        handle = sys.stdin.fileno()
        while select.select([handle], [], [], 0)[0] and (piece := os.read(handle, 1 << 16)):
            taken += piece
    return taken.decode("utf-8", "replace")


def as_text(keys: str) -> str:
    """Return the text of keys: without control sequences, and with deletions applied."""
    written: list[str] = []
    for key in _STEERING.sub("", keys).replace("\r", "\n"):
        if key in _RUBBED_OUT:
            del written[-1:]
        elif key.isprintable() or key in "\n\t":
            written.append(key)
    return "".join(written).strip("\n")


# ── the prompt: with history, several lines and completion ──

HISTORY = "chat_history"
LONGEST_REMEMBERED = 20_000
"""Longer messages are not added to the history of the prompt; the transcript has all."""
_OLDEST = 2_000
"""Messages that the history loads."""


class Reader:
    """Reads messages. Enter sends, Alt-Enter or Ctrl-J starts a new line, pasted lines stay together."""

    keys = "Enter sends, Alt-Enter starts a new line, Ctrl-C stops an answer, Ctrl-D leaves; /help lists the commands."

    def __init__(self, history: Path, commands: Sequence[tuple[str, str]], status: Callable[[], str]) -> None:
        self._session = _session(history, commands, status)

    def read(self, default: str = "") -> str | None:
        """Return the message; `None` at the end of input. Raise `KeyboardInterrupt` for Ctrl-C with nothing typed."""
        try:
            return whole(self._session.prompt("> ", default=default))
        except EOFError:
            return None

    def take_typed(self) -> str:
        """Return the text that was typed ahead, so that it is not sent automatically."""
        from prompt_toolkit.input.typeahead import get_typeahead

        read = "".join(key.data for key in get_typeahead(self._session.app.input))
        return as_text(read + pressed())


def whole(text: str) -> str:
    """Replace bytes that are not text, as terminals pass them on, by question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _session(history: Path, commands: Sequence[tuple[str, str]], status: Callable[[], str]) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.output import ColorDepth
    from prompt_toolkit.styles import Style

    colours = output.colours(sys.stdout)
    session: PromptSession[str] = PromptSession(
        history=_history(history),
        multiline=True,
        key_bindings=_keys(),
        completer=_completer(commands),
        complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
        bottom_toolbar=status,
        prompt_continuation="… ",
        style=Style.from_dict({"bottom-toolbar": "noreverse dim" if colours else "noreverse"}),
        color_depth=None if colours else ColorDepth.DEPTH_1_BIT,
        enable_history_search=False,
        reserve_space_for_menu=4,
        erase_when_done=False,
    )
    return session


def _keys() -> Any:
    from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent

    keys = KeyBindings()

    @keys.add("enter")
    def _(event: KeyPressEvent) -> None:
        buffer = event.current_buffer
        if buffer.document.current_line_before_cursor.endswith("\\"):
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
        else:
            buffer.validate_and_handle()

    @keys.add("escape", "enter")
    @keys.add("c-j")
    def _(event: KeyPressEvent) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add("c-c")
    def _(event: KeyPressEvent) -> None:
        if event.current_buffer.text:
            event.current_buffer.reset(append_to_history=True)  # the up arrow brings it back
        else:
            event.app.exit(exception=KeyboardInterrupt())

    return keys


def _completer(commands: Sequence[tuple[str, str]]) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Slash(Completer):
        """Completes commands at the beginning of a message."""

        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:  # noqa: ARG002
            typed = document.text_before_cursor
            if typed.startswith("/") and " " not in typed and "\n" not in typed:
                for name, help_ in commands:
                    if f"/{name}".startswith(typed):
                        yield Completion(f"/{name}", start_position=-len(typed), display_meta=help_)

    return Slash()


def _history(path: Path) -> Any:
    from prompt_toolkit.history import FileHistory

    class Kept(FileHistory):
        """A private file. If it cannot be read or written, only the history is lost."""

        def load_history_strings(self) -> Iterable[str]:
            try:
                for at, text in enumerate(super().load_history_strings()):
                    if at >= _OLDEST:
                        return
                    yield text
            except OSError:
                return

        def store_string(self, string: str) -> None:
            if len(string) > LONGEST_REMEMBERED:
                return
            try:
                make_folder(path.parent)
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600))
                super().store_string(whole(string))
            except OSError:
                return

    return Kept(str(path))
