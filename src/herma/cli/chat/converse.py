"""The conversation at a terminal: read, obey or ask, show, and again."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from herma import __version__
from herma.agent.happenings import Asking
from herma.cli import output
from herma.cli.chat.news import News
from herma.cli.chat.reader import HISTORY, Reader, reader_for
from herma.cli.chat.screen import LiveScreen, PlainScreen, Screen
from herma.cli.chat.slash import COMMANDS, Bench, Next, is_command, obey
from herma.cli.chat.typing_ahead import unechoed
from herma.cli.chat.wording import status
from herma.cli.sessions.desk import Desk
from herma.cli.sessions.wording import name_of
from herma.errors import HermaError, HermaWarning, ModelError, StoreError

if TYPE_CHECKING:
    from herma.agent.happenings import TurnReport
    from herma.cli.chat.talk import Talk
    from herma.ports import ChatModel

LONGEST = 4_000_000
"""Characters that one message may have."""
_AT_ONCE = 0.3
"""Seconds that nobody notices on the way out."""


def screen_for(*, markdown: bool) -> Screen:
    """Formatted where that can be seen."""
    if sys.stdout.isatty() and not _dumb():
        return LiveScreen(markdown=markdown)
    return PlainScreen()


def _dumb() -> bool:
    return os.environ.get("TERM", "") in ("dumb", "unknown")


class Converse:
    """One person at one terminal."""

    def __init__(self, talk: Talk, desk: Desk, screen: Screen) -> None:
        self._talk = talk
        self._desk = desk
        self._screen = screen
        self._bench = Bench(talk, desk, screen)
        self._news = News(talk.h)
        self._status = status(talk.model.name, None, None, "")

    def run(self) -> None:
        """Until the person leaves."""
        first = not (self._talk.h.home / HISTORY).exists()
        commands = [(name, command.help) for name, command in COMMANDS.items()]
        reader = reader_for(self._talk.h.home, commands, lambda: self._status, self._screen.note)
        self._greet(reader.keys if first else "")
        threading.Thread(target=_load, args=(self._talk.model,), name="herma: loading", daemon=True).start()
        self._news.look(None)
        with shown_by(self._screen), reader.between():
            self._loop(reader)
        self._talk.leave()
        self._say_what_is_waited_for()

    def _say_what_is_waited_for(self) -> None:
        """Closing lets a look back end that is under way, which takes its time with a slow model."""
        looking = vars(self._talk.h).get("reviews")  # there is none where nothing was ever due
        seconds = self._talk.h.settings.review.drain
        if looking is not None and seconds > _AT_ONCE and not looking.wait(_AT_ONCE):
            self._screen.line(
                f"Looking back at the conversation, for {seconds:g} seconds at most. Ctrl-C leaves at once; it is made "
                "up for later."
            )

    def _greet(self, keys: str) -> None:
        info = self._talk.info
        what = f"going on with: {name_of(info, 60)}" if info else "a new conversation"
        self._screen.line(f"herma {__version__} · {self._talk.model.name} · {what}")
        if stood := self._talk.where_it_stood():
            self._screen.line(stood)
        if keys:
            self._screen.line(keys)
        if self._talk.waits_for_an_answer():
            self._screen.line("The last message has no answer yet: /retry asks for it.")

    def _loop(self, reader: Reader) -> None:
        edit, leaving = "", False
        while True:
            try:
                self._tell_news()
                text = reader.read(edit)
            except KeyboardInterrupt:
                if leaving:
                    return
                leaving = True
                self._screen.line("Ctrl-C again, Ctrl-D or /quit leaves.")
                continue
            if text is None:
                return
            edit, leaving = "", False
            if text.strip():
                try:
                    with reader.meanwhile():
                        done = self._obey(text)
                except KeyboardInterrupt:  # a command that takes long
                    self._screen.line("Stopped.")
                    edit = reader.take_typed()
                    continue
                if done.quit:
                    return
                edit = "\n".join(filter(None, [done.edit, reader.take_typed() if done.held else ""]))

    def _obey(self, text: str) -> Next:
        if is_command(text):
            self._tell_news()
            done = obey(self._bench, text)
            self._seen_already()
            self._refresh()
        else:
            done = Next(send=text.strip().removeprefix("/") if text.strip().startswith("//") else text)
        if done.send or done.retry:
            done.edit = self._turn(done)
        return done

    def _turn(self, what: Next) -> str:
        """One turn; whatever goes wrong with it, the conversation goes on. → the message, if it could not be kept."""
        unsaid = ""
        if len(what.send) > LONGEST:
            self._screen.line(f"That is {len(what.send):,} characters; a message may have {LONGEST:,}.")
            return ""
        try:
            with stopping(self._talk) as cancel:
                self._screen(Asking(0))  # servers may still begin, and room may have to be made first
                agent = self._talk.agent
                for warning in self._talk.servers.warnings:
                    self._screen.note(warning)
                done = agent.go_on(cancel=cancel) if what.retry else agent.turn(what.send, cancel=cancel)
            self._screen.end()
            self._conclude(done)
            what.held = done.ended != "answered"
        except HermaError as exc:
            self._screen.end()
            self._complain(exc)
            what.held = True
            unsaid = "" if isinstance(exc, ModelError) else what.send
        except KeyboardInterrupt:
            what.held = True
            self._screen.end()
            self._screen.line("Stopped.")
        self._refresh()
        return unsaid

    def _conclude(self, done: TurnReport) -> None:
        if done.ended == "interrupted":
            self._screen.line("Stopped. What had come is kept; say something else, or /retry.")

    def _complain(self, exc: HermaError) -> None:
        self._screen.line(f"{exc}")
        if exc.hint:
            self._screen.line(f"  → {exc.hint}")
        if isinstance(exc, ModelError):
            self._screen.line("  Your message is kept: /retry sends it again, /undo takes it back.")

    def _tell_news(self) -> None:
        try:
            info = self._talk.info
            for line in self._news.look(info.scope if info else None, info.id if info else ""):
                self._screen.note(line)
            for warning in self._talk.session.warnings if self._talk.begun else ():
                self._screen.note(warning)
        except StoreError:  # somebody else is busy with it: there is a next time
            return
        finally:
            self._screen.end()

    def _seen_already(self) -> None:
        """What a command did to memory, it has said itself."""
        with suppress(StoreError):
            info = self._talk.info
            self._news.skip(info.scope if info else None)

    def _refresh(self) -> None:
        """The line below the prompt, as things stand now."""
        try:
            info = self._talk.info
            name = name_of(info, 40) if info and info.title else ""
            self._status = output.visible(status(self._talk.model.name, self._talk.plan(), self._talk.cost(), name))
        except StoreError:  # somebody else is busy with it: it stays as it was
            return


def _load(model: ChatModel) -> None:
    """What the first answer needs, while the person types the question."""
    from importlib import import_module

    where = getattr(model, "where", None)
    library = "anthropic" if getattr(where, "kind", "") == "anthropic" else "openai"
    for name in (library, "rich.live", "rich.markdown"):
        import_module(name)


@contextmanager
def stopping(talk: Talk) -> Iterator[threading.Event]:
    """Inside, Ctrl-C sets the event that is given; a second time it interrupts, as everywhere else."""
    cancel = threading.Event()
    talk.servers.cancel = cancel

    def stop(*_: Any) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    if threading.current_thread() is not threading.main_thread():
        yield cancel
        return
    before = signal.signal(signal.SIGINT, stop)
    try:
        with unechoed():
            yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def shown_by(screen: Screen) -> Iterator[None]:
    """Inside, warnings of ours are said by the screen, which may be drawing at that moment."""
    with warnings.catch_warnings():
        otherwise: Any = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any) -> None:
            if issubclass(category, HermaWarning):
                screen.note(str(message))
            else:
                otherwise(message, category, *rest)

        warnings.showwarning = show  # type: ignore[assignment]  # the rest is passed on as it comes
        yield
