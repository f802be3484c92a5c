"""How a person types: with history, several lines and completion where prompt_toolkit is there; plainly where not."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from herma.cli import output
from herma.cli.chat.typing_ahead import as_text, by_key, pasting, pressed
from herma.store.atomic import make_folder

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession

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
