"""Screen and reader."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TextIO

from herma.agent.loop import Asking, Called, Calling, Happening, Noted, Said, Shortened
from herma.cli import output
from herma.cli.output import count, one_line
from herma.compression.summary import Condensed, LeftAlone
from herma.prompt.budget import Plan
from herma.store.files import make_folder

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.live import Live
    from rich.segment import Segment


# ---------- cli.chat.wording
#
# What the chat says about itself, in lines. Pure.

_ARGUMENTS = 100
_RESULT = 100


def tool_line(done: Called) -> str:
    """`→ memory add user: The user drinks tea.  (12 ms)`, and why if it did not work."""
    said = one_line(_arguments(done.call.arguments), _ARGUMENTS)
    took = f"{done.seconds * 1000:.0f} ms" if done.seconds < 1 else f"{done.seconds:.1f} s"
    failed = "" if done.ok else f"  failed: {one_line(_error(done.result), _RESULT)}"
    return f"→ {done.call.name} {said}".rstrip() + f"  ({took}){failed}"


def shortened_line(outcome: Condensed | LeftAlone) -> str:
    if isinstance(outcome, LeftAlone):
        return f"· The conversation was not made shorter: {outcome.reason}"
    how = {
        "pruned": "tool results were shortened",
        "model": "a summary by the model",
        "extract": "a summary in its own words",
    }
    stands = f", standing for {count(outcome.replaced, 'message')}" if outcome.replaced else ""
    sizes = f"{outcome.tokens_before:,} → {outcome.tokens_after:,} tokens"
    return f"· The conversation was made shorter: {how[outcome.how]}{stands} ({sizes}). Every message is still kept."


def status(model: str, plan: Plan | None, cost: float | None, name: str, *, offline: str = "") -> str:
    """The line below the prompt."""
    parts = [model]
    if plan is not None and plan.window:
        parts.append(f"{plan.used / plan.window:.0%} of {_short(plan.window)} tokens")
    if cost is not None:
        parts.append(f"${cost:.4f}" if cost < 1 else f"${cost:.2f}")
    return " · ".join(filter(None, [*parts, one_line(name, 40), offline]))


def _short(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M".replace(".0M", "M")
    return f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)


def _arguments(written: str) -> str:
    """Arguments as a person reads them."""
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


# ---------- cli.chat.blocks
#
# Markdown that arrives in pieces, cut into blocks that will not change any more. Pure.
#
# What is settled is printed once and scrolls away like any other text; only the block that is still being written is
# drawn again and again. So a long answer does not flicker, and none of it is lost when it is longer than the window.

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


# ---------- cli.chat.screen
#
# How a turn is shown: as formatted text that grows on a terminal, as plain text elsewhere.
#
# Whatever a model or a tool says, nothing in it can steer the terminal.

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


# ---------- cli.chat.typing_ahead
#
# What is typed before the prompt is there again: not drawn into an answer, and read key by key afterwards.
#
# A terminal that reads by lines makes a new line of Enter, so that three messages typed ahead would stand in the prompt
# as one. Key by key, Enter stays Enter: each of them is sent when its turn comes.

_PASTING, _PASTED = "\x1b[?2004h", "\x1b[?2004l"
"""Asks the terminal to say where pasted text begins and ends, and not to."""
_STEERING = re.compile(r"\x1b(?:\[[0-9;?]*[ -/]*[@-~]|O[A-Za-z])?")
_RUBBED_OUT = "\x7f\b"


def has_terminal() -> bool:
    """Whether there is one whose keys can be asked for in another way."""
    return sys.stdin is not None and sys.stdin.isatty() and importlib.util.find_spec("termios") is not None


@contextmanager
def unechoed() -> Iterator[None]:
    """Inside, keys are not drawn."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    with _set([*before[:3], before[3] & ~termios.ECHO, *before[4:]]):
        yield


@contextmanager
def by_key() -> Iterator[None]:
    """Inside, keys are kept as they were pressed, and not drawn. Ctrl-C interrupts as usual."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    special = [*before[6]]
    special[termios.VMIN], special[termios.VTIME] = 1, 0
    keys = [before[0] & ~termios.ICRNL, *before[1:3], before[3] & ~(termios.ECHO | termios.ICANON), *before[4:6]]
    with _set([*keys, special]):
        yield


@contextmanager
def by_line() -> Iterator[None]:
    """Inside, the terminal reads lines and draws what is typed, as programs that ask a question expect it."""
    if not has_terminal():
        yield
        return
    import termios

    before = termios.tcgetattr(sys.stdin.fileno())
    shown = before[3] | termios.ECHO | termios.ICANON
    with _set([before[0] | termios.ICRNL, *before[1:3], shown, *before[4:]]):
        yield


@contextmanager
def pasting() -> Iterator[None]:
    """Inside, the terminal marks what is pasted, so that its lines stay together also if no prompt was there."""
    if not (has_terminal() and sys.stdout.isatty()):
        yield
        return
    sys.stdout.write(_PASTING)
    sys.stdout.flush()
    try:
        yield
    finally:
        sys.stdout.write(_PASTED)
        sys.stdout.flush()


@contextmanager
def _set(attributes: list[object]) -> Iterator[None]:
    import termios

    handle = sys.stdin.fileno()
    before = termios.tcgetattr(handle)
    termios.tcsetattr(handle, termios.TCSANOW, attributes)  # type: ignore[arg-type]  # as they were read
    try:
        yield
    finally:
        termios.tcsetattr(handle, termios.TCSANOW, before)


def pressed() -> str:
    """The keys that the terminal has and nobody has read yet. They are taken."""
    taken = b""
    if has_terminal():
        handle = sys.stdin.fileno()
        while select.select([handle], [], [], 0)[0] and (piece := os.read(handle, 1 << 16)):
            taken += piece
    return taken.decode("utf-8", "replace")


def as_text(keys: str) -> str:
    """What a person meant by keys that nobody reacted to: the text, with what was rubbed out rubbed out."""
    written: list[str] = []
    for key in _STEERING.sub("", keys).replace("\r", "\n"):
        if key in _RUBBED_OUT:
            del written[-1:]
        elif key.isprintable() or key in "\n\t":
            written.append(key)
    return "".join(written).strip("\n")


# ---------- cli.chat.reader
#
# How a person types: with history, several lines and completion where prompt_toolkit is there; plainly where not.

HISTORY = "chat_history"
LONGEST_REMEMBERED = 20_000
"""Characters of a message that the history of the prompt still keeps; the transcript keeps all."""
_OLDEST = 2_000
"""Messages that the history gives back."""
WITHOUT_LIBRARY = (
    "Lines are read plainly: without prompt_toolkit there is no history and no completion. "
    "Type: pip install 'herma[chat]'"
)


class Reader(Protocol):
    """Asks for the next message."""

    keys: str
    """What a person should know about the keys, in a line."""

    def read(self, default: str = "") -> str | None:
        """What was typed; nothing at the end of the input. `KeyboardInterrupt` for Ctrl-C with nothing typed."""

    def between(self) -> AbstractContextManager[None]:
        """For as long as it is used: how the terminal treats keys between two prompts."""

    def meanwhile(self) -> AbstractContextManager[None]:
        """For as long as something is done about what was typed."""

    def take_typed(self) -> str:
        """What was typed ahead, so that it can be looked at first and is not sent by itself."""


class PlainReader:
    """`input()`. A line that ends with a backslash goes on in the next one."""

    keys = (
        "Enter sends, a \\ at the end goes on in a new line, Ctrl-C stops an answer, Ctrl-D leaves; /help lists more."
    )

    def __init__(self, prompt: str = "> ") -> None:
        self._prompt = prompt

    def read(self, default: str = "") -> str | None:
        if default:
            output.write(f"(was: {default})")
        lines: list[str] = []
        while True:
            try:
                line = input(self._prompt if not lines else "… ")
            except EOFError:
                return whole("\n".join(lines)) if lines else None
            if not line.endswith("\\"):
                return whole("\n".join([*lines, line]))
            lines.append(line[:-1])

    def between(self) -> AbstractContextManager[None]:
        return nullcontext()

    def meanwhile(self) -> AbstractContextManager[None]:
        return nullcontext()

    def take_typed(self) -> str:
        """Lines cannot be shown for editing here, and throwing them away would be worse than sending them."""
        return ""


class PromptReader:
    """prompt_toolkit. Enter sends, Alt-Enter or Ctrl-J begins a new line, pasted lines stay together."""

    keys = "Enter sends, Alt-Enter begins a new line, Ctrl-C stops an answer, Ctrl-D leaves; /help lists the commands."

    def __init__(
        self, history: Path, commands: Sequence[tuple[str, str]], status: Callable[[], str], *, colours: bool = True
    ) -> None:
        self._session = _session(history, commands, status, colours=colours)

    def read(self, default: str = "") -> str | None:
        try:
            return whole(self._session.prompt("> ", default=default))
        except EOFError:
            return None

    def between(self) -> AbstractContextManager[None]:
        return by_key()

    def meanwhile(self) -> AbstractContextManager[None]:
        return pasting()

    def take_typed(self) -> str:
        from prompt_toolkit.input.typeahead import get_typeahead

        read = "".join(key.data for key in get_typeahead(self._session.app.input))
        return as_text(read + pressed())


def whole(text: str) -> str:
    """Text only: bytes that are none, as terminals pass them on, become question marks."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def fits(stdin: Any, stdout: Any) -> bool:
    """Whether this terminal can be drawn on."""
    return bool(stdin.isatty() and stdout.isatty()) and os.environ.get("TERM", "") not in ("dumb", "unknown")


def reader_for(
    home: Path, commands: Sequence[tuple[str, str]], status: Callable[[], str], tell: Callable[[str], None]
) -> Reader:
    """The best reader that there is."""
    if fits(sys.stdin, sys.stdout):
        try:
            return PromptReader(home / HISTORY, commands, status, colours=output.colours(sys.stdout))
        except ImportError:
            tell(WITHOUT_LIBRARY)
    return PlainReader()


def _session(
    history: Path, commands: Sequence[tuple[str, str]], status: Callable[[], str], *, colours: bool
) -> PromptSession[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.filters import Condition
    from prompt_toolkit.output import ColorDepth
    from prompt_toolkit.styles import Style

    def line() -> str:
        return status()

    session: PromptSession[str] = PromptSession(
        history=_history(history),
        multiline=True,
        key_bindings=_keys(),
        completer=_completer(commands),
        complete_while_typing=Condition(lambda: session.default_buffer.text.startswith("/")),
        bottom_toolbar=line,
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
            event.current_buffer.reset()
        else:
            event.app.exit(exception=KeyboardInterrupt())

    return keys


def _completer(commands: Sequence[tuple[str, str]]) -> Any:
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion
    from prompt_toolkit.document import Document

    class Slash(Completer):
        """Commands at the beginning of a message."""

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
        """A private file. What cannot be written or read there costs the history, never a message."""

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
