"""`herma chat`: the command, one question and its answer, the conversation at a terminal, and its slash commands."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import select
import shlex
import signal
import stat
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, NoReturn, TypeAlias, cast

import click

from herma import __version__
from herma.agent.loop import Agent, Asking
from herma.agent.terminal import (
    HISTORY,
    LiveScreen,
    PipeScreen,
    PlainScreen,
    QuietScreen,
    Reader,
    Screen,
    compressed_line,
    held,
    pasting,
    status,
    terminal_mode,
)
from herma.cli import output
from herma.cli.context import CommandContext, HermaCommand, pass_context
from herma.cli.encode import encode
from herma.cli.output import count, name_of, one_line, short_when
from herma.errors import ConfigError, HermaError, HermaWarning, ModelError, StoreError, UsageError, install_command
from herma.memory.entries import parse
from herma.transcript.messages import is_complete
from herma.types import Attachment, Message, Origin, Scope, SessionFilter, SessionInfo, Who
from herma.types import Context as TypesContext
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    from herma.agent.loop import Called, Show, TurnReport
    from herma.agent.mcp import McpServers
    from herma.app import Herma
    from herma.compression.summary import Compression
    from herma.models.client import ChatModel
    from herma.prompt.tokens import Plan
    from herma.session import Session
    from herma.tools.registry import Tool


@click.command(cls=HermaCommand)
@click.option(
    "-p", "--prompt", metavar="TEXT", help="Send this, print the answer, and exit. Also reads standard input."
)
@click.option("--resume", metavar="WHAT", help="Continue a conversation: an id, the beginning of one, or a title.")
@click.option(
    "--continue", "latest", is_flag=True, help="Continue the latest conversation, of this folder if it has one."
)
@click.option("--model", metavar="NAME", help="Use this model of the same server instead of model.name.")
@click.option("--project", metavar="NAME", help="Use the memory of this project, too.")
@click.option(
    "--source",
    type=click.Choice(["cli", "cron", "tool"]),
    default="cli",
    show_default=True,
    help="The sender: a person, a timer, or another program.",
)
@click.option("--no-tools", is_flag=True, help="Offer no tools: no memory, no search, no skills.")
@pass_context
def chat(
    context: CommandContext,
    prompt: str | None,
    resume: str | None,
    latest: bool,
    model: str | None,
    project: str | None,
    source: str,
    no_tools: bool,
) -> None:
    """Talk with a model that has this memory.

    It may call tools: memory, session_search, skills, those of the memory provider, and those of the MCP servers in
    config.yaml (mcp_servers). Every step is on disk before the next one begins. Ctrl-C stops an answer, not the
    program. /help lists the slash commands.

    \b
    Examples:
      herma chat
      herma chat --continue
      herma chat -p "What did we decide about the login bug?"
      tail -n 200 server.log | herma chat -p "Why did it stop?" --json
      herma chat -p "Tidy the notes" --source cron --no-tools

    \b
    Into a pipe the answer is written as it arrives. With -p and --json it prints ok, text, session, tool_calls, usage
    and how it ended. Exit codes: 0 answered, 1 not answered (an empty answer, or not within chat.max_steps), 2 wrong
    use (also if standard input stays open and empty for a minute), 3 the model failed, 130 stopped, 141 the pipe was
    closed by its reader.
    """
    if context.json and prompt is None:
        raise UsageError("--json needs a message.", hint='Add it: herma chat --json -p "…"')
    if resume is not None and latest:
        raise UsageError("--resume and --continue exclude each other.", hint="Give one of them.")
    for name, value in (("--resume", resume), ("--model", model), ("--project", project)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty.", hint="Give a value, or leave the option out.")
    if model is not None:
        context.flags["model.name"] = model
    with context.open() as h:
        chosen = _session_to_continue(context, h, resume, latest, source, project)
        wanted = ChatOptions(cast("Source", source), project, not no_tools, chosen)
        _start(context, h, wanted, prompt)


def _start(context: CommandContext, h: Herma, wanted: ChatOptions, prompt: str | None) -> None:
    if not context.debug:
        logging.getLogger("herma").addHandler(logging.NullHandler())  # a record would be drawn into the prompt
    screen = screen_for()
    if prompt is not None and (context.json or not sys.stdout.isatty()):
        screen = QuietScreen() if context.json else PipeScreen()
    if prompt is None and (sys.stdin is None or not sys.stdin.isatty()):
        raise UsageError("Standard input is not a terminal.", hint='For one message: herma chat -p "…"')
    if prompt is None and importlib.util.find_spec("prompt_toolkit") is None:
        raise UsageError(
            "Talking at a terminal needs the package prompt_toolkit, which is not installed.",
            hint=f'Type: {install_command("chat")}. For one message: herma chat -p "…"',
        )
    with _ended_by_signals():
        if prompt is None:
            _converse(context, h, wanted, screen)
        with _open_conversation(h, wanted, screen) as conversation:
            answer(context, conversation, screen, prompt)


def _converse(context: CommandContext, h: Herma, wanted: ChatOptions, screen: Screen) -> NoReturn:
    """Talk until the person leaves, and end the program.

    `os._exit` ends it at once: Python's own clean-up takes a tenth of a second, in which keys would reach the shell.
    """
    code: object = 0
    with held():
        try:
            with _open_conversation(h, wanted, screen) as conversation:
                try:
                    reader = TerminalChat(conversation, context, screen).run()
                finally:
                    _leave(h, conversation, screen)
            if typed := reader.take_typed():
                screen.line(f"Not sent: {one_line(typed, 200)}")
        except KeyboardInterrupt:
            code = EXIT_INTERRUPTED
            if "episodes" in vars(h):
                h.episodes.wait(1.0)
        except SystemExit as exc:
            code = exc.code
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):  # the window was closed
                stream.flush()
    os._exit(code if isinstance(code, int) else 1)


def _leave(h: Herma, conversation: ChatSession, screen: Screen) -> None:
    """Close everything at once. Background work is stopped and noted as due; the next program that opens this home does
    it.

    Only the memory provider and MCP servers are waited for. If that takes long, a line says so, and Ctrl-C ends it; an
    earlier Ctrl-C may still be the one that left.
    """
    begun = time.monotonic()

    def stop(*_: object) -> None:
        if time.monotonic() - begun > _AT_ONCE:
            raise KeyboardInterrupt

    def tell() -> None:
        with suppress(OSError):  # the window was closed
            screen.line("Closing the memory provider and MCP servers … Press Ctrl-C to leave now.")

    timer = threading.Timer(_AT_ONCE, tell)
    timer.daemon = True
    before = signal.signal(signal.SIGINT, stop)
    timer.start()
    try:
        used = vars(h)
        if "reviews" in used:
            h.reviews.put_off(conversation.session.id if conversation.begun else "")
        if "curator" in used:
            h.curator.close(0.0)
        conversation.leave()
        conversation.servers.close()
        h.close()
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)


@contextmanager
def _open_conversation(h: Herma, wanted: ChatOptions, screen: Screen) -> Iterator[ChatSession]:
    """Open the conversation and the MCP servers; close both in the end."""
    from herma.agent.mcp import McpServers

    model = model_of(h, screen)
    servers = McpServers(h.settings.mcp_servers if wanted.tools else (), h.settings.chat, h.home)
    servers.begin()
    conversation = ChatSession(h, model, servers, wanted, screen)
    try:
        yield conversation
    finally:
        try:
            conversation.leave()
        finally:
            servers.close()
            with suppress(OSError):  # the reader may be gone
                screen.end()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Turn SIGTERM and SIGHUP into SystemExit, so that everything open is closed."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = [(number, signal.signal(number, leave)) for number in wanted]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def model_of(h: Herma, screen: Screen) -> ChatModel:
    """Return the model of the settings. Raise an error that says what to type if there is none."""
    where = h.models.endpoint()
    if where is None:
        raise ConfigError(
            "No model is configured.",
            hint="For example: herma config set model.url ollama, then herma config set model.name qwen3:8b, then "
            "herma models check; see docs/how-to/use-a-model.md.",
        )
    library = "anthropic" if where.kind == "anthropic" else "openai"
    if importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"{where.name} needs the package {library}, which is not installed.",
            hint=f"Type: {install_command(library)}",
        )
    if where.key_variable and not where.key:
        from herma.models.client import without_key

        raise without_key(where)
    model = h.models.get("main", on_retry=lambda retry: screen.note(str(retry)))
    assert model is not None
    return model


def _session_to_continue(
    context: CommandContext, h: Herma, resume: str | None, latest: bool, source: str, project: str | None
) -> str | None:
    """Return the id of the session to continue; `None` for a new one."""
    from herma.transcript.cli import find_session

    if resume is not None:
        return find_session(context, resume).id
    if not latest:
        return None
    found = latest_session(h, cast("Source", source), project)
    if found is None:
        raise UsageError("There is no conversation to continue.", hint="Start one: herma chat")
    return found.id


# ── notes about what happened in the background ──

_MOST = 20
"""Changes that are read."""
_NAMES = {"memory": "MEMORY.md", "user": "USER.md"}


class Notices:
    """Memory changes by others, new proposals in the inbox, and a reached cap of background work; each once."""

    def __init__(self, h: Herma) -> None:
        self._h = h
        self._seen: int | None = None
        self._waiting: int | None = None
        self._capped = False

    def look(self, scope: Scope | None, session: str = "") -> list[str]:
        """Return the news as lines. The first call only records the present state. Changes by tools of `session` are
        left out, because they were shown already.
        """
        return [*self._changes(scope, session), *self._pending(), *self._spending()]

    def skip(self, scope: Scope | None) -> None:
        """Record the present state: the person has just changed it."""
        self._changes(scope, "")
        self._pending()

    def _changes(self, scope: Scope | None, session: str) -> list[str]:
        changes = self._h.memory.history(scope=scope, limit=_MOST)
        newest = max((change.id for change in changes), default=0)
        seen, self._seen = self._seen, max(newest, self._seen or 0)
        if seen is None:
            return []
        lines = []
        for change in sorted(changes, key=lambda one: one.id):
            own = change.author.session == session and change.author.who is Who.TOOL
            if change.id > seen and not own:
                lines.append(_changed_line(_NAMES[change.target], change.before, change.after))
        return lines

    def _pending(self) -> list[str]:
        waiting = len(self._h.memory.pending())
        before, self._waiting = self._waiting, waiting
        if before is None or waiting <= before:
            return []
        wait = "waits" if waiting == 1 else "wait"
        return [f"{count(waiting, 'memory write')} {wait} for your decision: /memory pending"]

    def _spending(self) -> list[str]:
        if self._capped or self._h.models.endpoint("auxiliary") is None:
            return []
        report = self._h.models.spending()
        cap, spent = report.caps, report.total_today
        used_up = (cap.tokens is not None and spent.tokens >= cap.tokens) or (
            cap.usd is not None and spent.usd >= cap.usd
        )
        if report.caps.off or not spent.calls or not used_up:
            return []
        self._capped = True
        return ["Background work has reached its daily cap (spend.daily_usd, spend.daily_tokens): /cost"]


def _changed_line(name: str, before: str, after: str) -> str:
    """Describe a change: the entries that were added, else those that were removed."""
    old, new = parse(before), parse(after)
    came = [entry for entry in new if entry not in old]
    gone = [entry for entry in old if entry not in new]
    if came:
        return f"Saved to {name}: {one_line('; '.join(came), 160)}"
    return f"Removed from {name}: {one_line('; '.join(gone), 160)}"


# ── slash commands: one function each; the table COMMANDS is the help and what Tab completes ──

_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?\s*", re.DOTALL)
_LISTED = 10


@dataclass(slots=True)
class Next:
    """The step after a command: nothing, or one of these."""

    quit: bool = False
    retry: bool = False
    edit: str = ""
    """Text to put into the prompt, to be edited and sent."""
    send: str = ""
    held: bool = False
    """True if the turn failed or was stopped: then text typed ahead is put into the prompt instead of being sent."""


def is_command(text: str) -> bool:
    """`/help me` is a command, `/etc/hosts is empty` is not; `//x` sends `/x` to the model."""
    return _COMMAND.fullmatch(text.strip()) is not None


def obey(chat: TerminalChat, text: str) -> Next:
    """Run a command. Print its error, if it fails."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return Next(send=text)
    name, rest = found[1].lower(), (found[2] or "").strip()
    try:
        command = COMMANDS.get(ALIASES.get(name, name))
        if command is None:
            raise _unknown(name)
        return command.run(chat, rest) or Next()
    except HermaError as exc:
        chat.screen.line(str(exc))
        if exc.hint:
            chat.screen.line(f"  → {exc.hint}")
        return Next()


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1, cutoff=0.5)
    hint = f"Did you mean /{near[0]}?" if near else "/help lists them; //… sends it to the model."
    return UsageError(f"There is no command /{name}.", hint=hint)


def _new(chat: TerminalChat, rest: str) -> None:
    chat.conversation.new()
    if rest:
        chat.conversation.rename(rest)
    chat.screen.line("New conversation, with memory as it is now.")


def _resume(chat: TerminalChat, rest: str) -> None:
    if not rest:
        _list(chat)
        return
    if rest.isdigit() and 1 <= int(rest) <= len(chat.listed):
        info = chat.listed[int(rest) - 1]
    else:
        from herma.transcript.cli import find_session

        info = find_session(chat.context, rest)
    chat.conversation.resume(info.id)
    _welcome_back(chat, info)


def _list(chat: TerminalChat) -> None:
    chat.listed = list(chat.conversation.h.transcripts.list(limit=_LISTED))
    if not chat.listed:
        raise UsageError("There is no earlier conversation.")
    for number, info in enumerate(chat.listed, 1):
        facts = f"{short_when(info.last_active)}, {count(info.message_count, 'message')}, {info.source}"
        chat.screen.line(f"{number:>3}  {name_of(info, 60)}  ({facts})")
    chat.screen.line("/resume NUMBER, ID or TITLE continues one; /search TEXT searches them.")


def _welcome_back(chat: TerminalChat, info: SessionInfo) -> None:
    chat.screen.line(f"Continuing: {name_of(info, 60)} ({count(info.message_count, 'message')}).")
    if stood := chat.conversation.where_it_stood():
        chat.screen.line(stood)
    last = next((message for message in reversed(chat.conversation.stored()) if message.role == "assistant"), None)
    if last is not None and isinstance(last.content, str) and last.content.strip():
        chat.screen.line(f"Last: {one_line(last.content, 200)}")
    if chat.conversation.waits_for_an_answer():
        chat.screen.line("The last message has no answer yet: /retry")


def _branch(chat: TerminalChat, rest: str) -> None:
    old = chat.conversation.branch(_number(rest, 0, "/branch 2"))
    chat.screen.line(f"Branched. The original: /resume {old}")


def _undo(chat: TerminalChat, rest: str) -> Next:
    turns = _number(rest, 1, "/undo 2")
    text = chat.conversation.undo(turns)
    chat.screen.line(
        f"Removed the last {'turn' if turns == 1 else f'{turns} turns'}. Your message is back in the prompt."
    )
    return Next(edit=text)


def _retry(chat: TerminalChat, rest: str) -> Next:  # noqa: ARG001
    if chat.conversation.info is None:
        raise UsageError("There is no message to retry.")
    if chat.conversation.agent.unfinished:
        return Next(retry=True)
    return Next(send=chat.conversation.undo(1))


def _title(chat: TerminalChat, rest: str) -> None:
    if not rest:
        title = chat.conversation.title
        chat.screen.line(f"Title: {title}" if title else "No title. To set one: /title TEXT")
        return
    chat.screen.line(f"Title: {chat.conversation.rename(rest)}")


def _compress(chat: TerminalChat, rest: str) -> None:
    """`here N` or `--keep N`: keep the last N turns; `--preview`: only show the result; the rest is the topic."""
    from herma.agent.terminal import preview_lines

    words = [word for word in rest.split() if word != "--preview"]
    preview, keep = len(words) < len(rest.split()), 0
    if words[:1] in (["here"], ["--keep"]) and (len(words) == 1 or words[1].isdigit()):
        keep = _number(words[1] if len(words) > 1 else "", 2, "/compress here 3")
        words = words[2:]
    elif words and words[0].startswith("--"):
        raise UsageError(f"{words[0]} is not an option of /compress.", hint="/compress [here N] [--preview] [TOPIC]")
    if preview:
        for line in preview_lines(chat.conversation.compress(" ".join(words), keep=keep, preview=True)):
            chat.screen.line(line)
        return
    if chat.conversation.info is not None:
        chat.screen.line("Compressing …")
    chat.screen.line(compressed_line(chat.conversation.compress(" ".join(words), keep=keep)).removeprefix("· "))


def _memory(chat: TerminalChat, rest: str) -> None:
    """As `herma memory …`; the text of `add` needs no quotes."""
    action, _, text = rest.partition(" ")
    if not rest:
        chat.herma("memory", "list")
    elif action == "add" and text.strip() and not text.lstrip().startswith("-"):
        chat.herma("memory", "add", "--", text.strip())
    else:
        chat.herma("memory", *_words(rest))


def _skills(chat: TerminalChat, rest: str) -> None:
    action, _, text = rest.partition(" ")
    if action == "find" and text.strip():
        chat.herma("skills", "find", "--", text.strip())
    else:
        chat.herma("skills", *(_words(rest) or ["list"]))


def _search(chat: TerminalChat, rest: str) -> None:
    if not rest:
        raise UsageError(
            "There is nothing to search for.", hint='For example: /search "connection reset" since:last-week'
        )
    chat.herma("search", "--", rest)


def _cost(chat: TerminalChat, rest: str) -> None:
    info = chat.conversation.info
    if rest not in ("", "all"):
        raise UsageError(
            f"{rest[:40]!r} is not an option of /cost.", hint="/cost: this conversation; /cost all: all of them."
        )
    if rest == "all" or info is None:
        chat.herma("cost")
    else:
        chat.herma("cost", "--session", info.id)


def _tools(chat: TerminalChat, rest: str) -> None:  # noqa: ARG001
    if not chat.conversation.wanted.tools:
        chat.screen.line("The model has no tools here (--no-tools).")
        return
    chat.screen.line("  ".join(schema["function"]["name"] for schema in chat.conversation.session.tools))
    for server in chat.conversation.servers.states():
        why = f": {server.why}" if server.why else f", {count(len(server.tools), 'tool')}"
        chat.screen.line(f"MCP server {server.name}: {server.state}{why}")


def _help(chat: TerminalChat, rest: str) -> None:
    wanted = rest.removeprefix("/").lower()
    known = COMMANDS.get(ALIASES.get(wanted, wanted))
    if wanted and known is None:
        raise _unknown(wanted)
    for name, command in COMMANDS.items():
        if known is None or command is known:
            chat.screen.line(f"  {f'/{name} {command.usage}'.rstrip():<24} {command.help}")
    chat.screen.line(
        "  Enter sends; Alt-Enter, Ctrl-J or a \\ at the end starts a new line; pasted lines stay together."
    )
    chat.screen.line("  Ctrl-C stops an answer; twice at the prompt, or Ctrl-D, leaves. //… sends /… to the model.")


def _quit(chat: TerminalChat, rest: str) -> Next:  # noqa: ARG001
    return Next(quit=True)


def _number(text: str, otherwise: int, example: str) -> int:
    if not text:
        return otherwise
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 100_000:
        raise UsageError(f"{text[:40]!r} is not a number of turns.", hint=f"For example: {example}")
    return int(text)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe, most likely
        return text.split()


class Command(NamedTuple):
    run: Callable[[TerminalChat, str], Next | None]
    usage: str
    help: str


COMMANDS: dict[str, Command] = {
    "new": Command(_new, "[TITLE]", "Start a new conversation."),
    "resume": Command(_resume, "[WHAT]", "Continue an earlier one: its number, id or title; without, list them."),
    "branch": Command(_branch, "[N]", "Continue in a copy of this one, without its last N turns."),
    "undo": Command(_undo, "[N]", "Remove the last turn, or the last N, and edit your message."),
    "retry": Command(_retry, "", "Ask for the last answer again."),
    "title": Command(_title, "TEXT", "Set the title of this conversation."),
    "compress": Command(
        _compress,
        "[here N] [--preview] [TOPIC]",
        "Compress the conversation now; the topic gets more room. here N: keep the last N turns.",
    ),
    "memory": Command(_memory, "[add TEXT|undo|…]", "Show and change memory; as `herma memory`."),
    "skills": Command(_skills, "[find TEXT|…]", "Show and change skills; as `herma skills`."),
    "search": Command(_search, "TEXT", "Search all conversations."),
    "cost": Command(_cost, "[all]", "Show the cost of this conversation, or of all."),
    "tools": Command(_tools, "", "List the model's tools and the state of the MCP servers."),
    "help": Command(_help, "", "Show this list."),
    "quit": Command(_quit, "", "Leave."),
}
ALIASES = {"exit": "quit", "q": "quit", "continue": "resume", "name": "title", "compact": "compress", "clear": "new"}


# ── the conversation at a terminal: read, run or send, show, and again ──

LONGEST = 4_000_000
"""Characters that one message may have."""
_AT_ONCE = 0.3
"""Seconds of closing that need no notice."""


def screen_for() -> Screen:
    """Return a formatted screen if the terminal can show it."""
    dumb = os.environ.get("TERM", "") in ("dumb", "unknown")
    return LiveScreen() if sys.stdout.isatty() and not dumb else PlainScreen()


class TerminalChat:
    """One person at one terminal."""

    def __init__(self, conversation: ChatSession, context: CommandContext, screen: Screen) -> None:
        self.conversation = conversation
        self.context = context
        self.screen = screen
        self.listed: list[SessionInfo] = []
        """Conversations of the last list, for `/resume 2`."""
        self._notices = Notices(conversation.h)
        self._status = status(conversation.model.name, None, None, "")

    def run(self) -> Reader:
        """Talk until the person leaves. Return the reader, which may hold more keys."""
        first = not (self.conversation.h.home / HISTORY).exists()
        commands = [(name, command.help) for name, command in COMMANDS.items()]
        reader = Reader(self.conversation.h.home / HISTORY, commands, lambda: self._status)
        self._greet(reader.keys if first else "")
        BackgroundCall("loading", partial(_load, self.conversation.model)).start()
        self._notices.look(None)
        with shown_by(self.screen), terminal_mode(echo=False, lines=False):
            self._loop(reader)
        return reader

    def herma(self, *words: str) -> None:
        """Run another command of `herma` on the same home. It prints its own errors."""
        from herma.cli.main import run

        chosen = [("--home", self.context.home), ("--profile", self.context.profile)]
        with terminal_mode(echo=True, lines=True):  # some of them ask for a confirmation
            run([*(word for name, value in chosen if value for word in (name, value)), *words])

    def _greet(self, keys: str) -> None:
        info = self.conversation.info
        what = f"continuing: {name_of(info, 60)}" if info else "new conversation"
        self.screen.line(f"herma {__version__} · {self.conversation.model.name} · {what}")
        if stood := self.conversation.where_it_stood():
            self.screen.line(stood)
        if keys:
            self.screen.line(keys)
        if self.conversation.waits_for_an_answer():
            self.screen.line("The last message has no answer yet: /retry")

    def _loop(self, reader: Reader) -> None:
        edit, leaving = "", False
        while True:
            try:
                self._show_notices()
                text = reader.read(edit)
            except KeyboardInterrupt:
                if leaving:
                    return
                leaving = True
                self.screen.line("Press Ctrl-C again, Ctrl-D or /quit to leave.")
                continue
            if text is None:
                return
            edit, leaving = "", False
            if text.strip():
                try:
                    with pasting():
                        done = self._obey(text)
                except KeyboardInterrupt:  # a command that takes long
                    self.screen.line("Stopped.")
                    edit = reader.take_typed()
                    continue
                if done.quit:
                    return
                edit = "\n".join(filter(None, [done.edit, reader.take_typed() if done.held else ""]))

    def _obey(self, text: str) -> Next:
        if is_command(text):
            self._show_notices()
            done = obey(self, text)
            self._seen_already()
            self._refresh()
        else:
            done = Next(send=text.strip().removeprefix("/") if text.strip().startswith("//") else text)
        if done.send or done.retry:
            done.edit = self._turn(done)
        return done

    def _turn(self, what: Next) -> str:
        """Run one turn; after an error the conversation goes on. Return the message if it was not stored."""
        not_stored = ""
        if len(what.send) > LONGEST:
            self.screen.line(f"The message has {len(what.send):,} characters; the maximum is {LONGEST:,}.")
            return ""
        try:
            with stopping(self.conversation) as cancel:
                self.screen(Asking(0))  # MCP servers may still start, and the conversation may be compressed first
                agent = self.conversation.agent
                for warning in self.conversation.servers.warnings:
                    self.screen.note(warning)
                done = agent.go_on(cancel=cancel) if what.retry else agent.turn(what.send, cancel=cancel)
            self.screen.end()
            if done.ended == "interrupted":
                self.screen.line("Stopped. The text so far is kept; send another message, or /retry.")
            what.held = done.ended != "answered" or cancel.is_set()
        except HermaError as exc:
            self.screen.end()
            self.screen.line(f"{exc}")
            if exc.hint:
                self.screen.line(f"  → {exc.hint}")
            if isinstance(exc, ModelError):
                self.screen.line("  Your message is stored: /retry sends it again, /undo removes it.")
            what.held = True
            not_stored = "" if isinstance(exc, ModelError) else what.send
        except KeyboardInterrupt:
            what.held = True
            self.screen.end()
            self.screen.line("Stopped.")
        self._refresh()
        return not_stored

    def _show_notices(self) -> None:
        try:
            info = self.conversation.info
            for line in self._notices.look(info.scope if info else None, info.id if info else ""):
                self.screen.note(line)
            for warning in self.conversation.session.warnings if self.conversation.begun else ():
                self.screen.note(warning)
        except StoreError:  # another process holds it: try again at the next prompt
            return
        finally:
            self.screen.end()

    def _seen_already(self) -> None:
        """Skip changes that a command has reported itself."""
        with suppress(StoreError):
            info = self.conversation.info
            self._notices.skip(info.scope if info else None)

    def _refresh(self) -> None:
        """Update the line below the prompt."""
        try:
            info = self.conversation.info
            name = name_of(info, 40) if info and info.title else ""
            self._status = output.visible(
                status(self.conversation.model.name, self.conversation.plan(), self.conversation.cost(), name)
            )
        except StoreError:  # another process holds it: the line stays as it is
            return


def _load(model: ChatModel) -> None:
    """Import what the first answer needs, while the person types."""
    from importlib import import_module

    where = getattr(model, "where", None)
    library = "anthropic" if getattr(where, "kind", "") == "anthropic" else "openai"
    for name in (library, "rich.live", "rich.markdown"):
        import_module(name)


@contextmanager
def stopping(conversation: ChatSession) -> Iterator[threading.Event]:
    """Let Ctrl-C set the event; a second Ctrl-C interrupts as usual."""
    cancel = threading.Event()
    conversation.servers.cancel = cancel

    def stop(*_: Any) -> None:
        if cancel.is_set():
            raise KeyboardInterrupt
        cancel.set()

    before = signal.signal(signal.SIGINT, stop)
    try:
        with terminal_mode(echo=False):
            yield cancel
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def shown_by(screen: Screen) -> Iterator[None]:
    """Show Herma's warnings on the screen, which may be drawing at that moment."""
    with warnings.catch_warnings():
        otherwise: Any = warnings.showwarning

        def show(message: Any, category: Any, *rest: Any) -> None:
            if issubclass(category, HermaWarning):
                screen.note(str(message))
            else:
                otherwise(message, category, *rest)

        warnings.showwarning = show  # type: ignore[assignment]  # the rest is passed on as it comes
        yield


# ── the session of a chat: opened with the first message, with an agent in it ──

Source: TypeAlias = Literal["cli", "cron", "tool"]
CONTEXTS: dict[Source, TypesContext] = {"cli": "primary", "cron": "cron", "tool": "subagent"}
"""The context of a session, by its source."""


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options of the command line."""

    source: Source = "cli"
    project: str | None = None
    tools: bool = True
    resume: str | None = None
    """The id of a session to continue."""
    title: str | None = None


class ChatSession:
    """One conversation at a time. Nothing is opened or written before the first message."""

    def __init__(self, h: Herma, model: ChatModel, servers: McpServers, wanted: ChatOptions, show: Show) -> None:
        self.h = h
        self.model = model
        self.servers = servers
        self.wanted = wanted
        self._show = show
        self._agent: Agent | None = None

    @property
    def begun(self) -> bool:
        return self._agent is not None

    @property
    def agent(self) -> Agent:
        """The agent; its session is opened when it is first used."""
        if self._agent is None:
            self._agent = self._with(self._open())
        return self._agent

    @property
    def session(self) -> Session:
        return self.agent.session

    @property
    def info(self) -> SessionInfo | None:
        """The stored session; `None` before the first message."""
        session_id = self._agent.session.id if self._agent else self.wanted.resume
        return self.h.transcripts.get(session_id) if session_id else None

    @property
    def title(self) -> str:
        """The title, or the one that the session gets when it is stored."""
        info = self.info
        return (info.title if info else self.wanted.title) or ""

    def stored(self) -> Sequence[Message]:
        """Return the messages so far."""
        if self._agent is not None:
            return self._agent.session.messages
        info = self.info
        return self.h.transcripts.messages(info.id) if info else ()

    def waits_for_an_answer(self) -> bool:
        """Return whether the last message has no answer, because a program ended before it came."""
        messages = self.stored()
        return bool(messages) and not is_complete(messages[-1:])

    def where_it_stood(self) -> str:
        """Return where the work was left (next step, open tasks, files), in lines; "" if that is not recorded."""
        info = self.info
        if info is None:
            return ""
        state = self.h.episodes.state(self.h.episodes.conversation_of(info))
        return self.h.episodes.describe(state) if state is not None else ""

    def tools(self) -> list[Tool] | None:
        """Return tools besides Herma's own; `None` for no tools at all."""
        return self.servers.tools() if self.wanted.tools else None

    def new(self) -> None:
        """End this conversation; the next message starts another."""
        self.leave("reset")
        self.wanted = replace(self.wanted, resume=None, title=None)

    def resume(self, session_id: str) -> None:
        """Continue another conversation."""
        self.leave("switched")
        self.wanted = replace(self.wanted, resume=session_id, title=None)

    def branch(self, turns: int = 0) -> str:
        """Continue in a copy of this conversation, without its last turns. Return the id of the original."""
        info = self.info
        if info is None:
            raise UsageError("There is nothing to branch yet.", hint="Send a message first.")
        old = self.session
        begins = [at for at, message in enumerate(old.messages) if message.role == "user"]
        if turns and turns >= len(begins):
            there = "There is 1 turn" if len(begins) == 1 else f"There are {len(begins)} turns"
            raise UsageError(f"{there}; a branch needs at least one.")
        after = old.messages[begins[-turns] - 1].id if turns else None
        self.leave("branched")
        source = self.wanted.source
        self._agent = self._with(self.h.branch(old.id, after=after, source=source, tools=self.tools()))
        return old.id

    def undo(self, turns: int = 1) -> str:
        """Remove the last turns. Return the first message of them, to be edited."""
        if self.info is None:
            raise UsageError("There is nothing to undo yet.")
        return self.session.rewind(turns)

    def rename(self, title: str) -> str:
        """Set the title; a session that is not stored yet gets it when it is."""
        info = self.info
        if info is None:
            self.wanted = replace(self.wanted, title=title)
            return title
        return self.h.transcripts.rename(info.id, title) or title

    def compress(self, topic: str = "", *, keep: int = 0, preview: bool = False) -> Compression:
        if self.info is None:
            raise UsageError("There is nothing to compress yet.")
        return self.session.compress(topic, keep=keep, preview=preview)

    def leave(self, reason: str = "closed") -> None:
        """End the session, if one was opened."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.session.close(reason)

    def plan(self) -> Plan | None:
        return self._agent.session.working_memory() if self._agent else None

    def cost(self) -> float | None:
        """Return the cost so far; `None` if prices are not known."""
        info = self.info
        if info is None:
            return None
        total = self.h.cost(info.id).total
        return total.cost if total.calls else None

    def _open(self) -> Session:
        wanted = self.wanted
        place = _here()
        return self.h.session(
            wanted.source,
            project=wanted.project,
            resume=wanted.resume,
            title=wanted.title,
            model=self.model.name,
            provider=where.provider if (where := self.h.models.endpoint()) else "",
            folder=place,
            context=CONTEXTS[wanted.source],
            tools=self.tools(),
        )

    def _with(self, session: Session) -> Agent:
        steps = self.h.settings.chat.max_steps
        return Agent(session, self.model, max_steps=steps, tools=self.wanted.tools, show=self._show)


def latest_session(h: Herma, source: Source, project: str | None) -> SessionInfo | None:
    """Return the latest conversation of this folder, else of any folder."""
    place = _here()
    everywhere = SessionFilter(source=source, project=project, archived=False, imported=False, delegated=False)
    imported = replace(everywhere, imported=True)  # only if Herma has none of its own
    for which in (replace(everywhere, folder=place) if place else everywhere, everywhere, imported):
        found = h.transcripts.list(which, limit=1)
        if found:
            return found[0]
    return None


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was deleted
        return None


# ── one message and its answer: for scripts, timers and other programs ──

MOST_PIPED = 4_000_000
"""Maximum bytes of standard input."""
_PIPE_WAIT = 3.0
"""Seconds after which a warning says what is waited for."""
FIRST_BYTE = 60.0
"""Seconds that an open pipe may stay empty. Then nothing is sent: half of the message may be missing."""
EXIT_NOT_ANSWERED = 1
EXIT_INTERRUPTED = 130


def answer(context: CommandContext, conversation: ChatSession, screen: Screen, prompt: str) -> None:
    """Send the message and print the answer. The exit code says whether there is one."""
    piped = read_piped(context)
    text, attachments = prompt.strip(), [Attachment(piped, Origin.PIPE)] if piped else []
    if not text and not attachments:
        raise UsageError("The message is empty.", hint='For example: herma chat -p "What did we decide?"')
    with shown_by(screen):
        with stopping(conversation) as cancel:
            if isinstance(screen, PipeScreen):
                screen.gone = cancel.set  # the reader is gone, so the rest must not cost anything
            agent = conversation.agent
            for warning in conversation.servers.warnings:
                screen.note(warning)
            done = agent.turn(text, attachments=attachments, cancel=cancel)
        screen.end()
    if context.json:
        context.print_json(as_json(conversation, done))
    if isinstance(screen, PipeScreen) and screen.failed is not None:
        raise screen.failed
    if done.ended == "interrupted":
        context.exit(EXIT_INTERRUPTED)
    if done.ended in ("out of steps", "empty"):
        context.exit(EXIT_NOT_ANSWERED)


def read_piped(context: CommandContext) -> str:
    """Return what comes by a pipe or from a file; "" if stdin is a terminal, or closed."""
    try:
        handle = sys.stdin.fileno() if sys.stdin is not None else -1
        if handle < 0 or os.isatty(handle):
            return ""
        mode = os.fstat(handle).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""  # /dev/null, as timers have it
    if os.name == "posix" and not select.select([handle], [], [], _PIPE_WAIT)[0]:
        context.warn("Reading standard input until it ends; use `< /dev/null` to send nothing.")
        if not select.select([handle], [], [], FIRST_BYTE - _PIPE_WAIT)[0]:
            raise UsageError(
                f"Standard input stayed empty for {FIRST_BYTE:g} seconds and is still open. Nothing was sent.",
                hint="If there is nothing to send: herma chat -p … < /dev/null. If it takes longer, send a file.",
            )
    data = _read(handle)
    if len(data) > MOST_PIPED:
        raise UsageError(
            f"Standard input has more than {MOST_PIPED:,} bytes.",
            hint="Send a part of it: … | tail -n 500",
        )
    if b"\0" in data:
        raise UsageError("Standard input is not text.", hint="Convert it to text first: … | strings")
    return data.decode("utf-8-sig", "replace").strip()


def _read(handle: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_PIPED and (piece := os.read(handle, 1 << 16)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def as_json(conversation: ChatSession, done: TurnReport) -> dict[str, Any]:
    """Return the answer for programs."""
    info = conversation.info
    return {
        "ok": done.ended == "answered",
        "text": done.text,
        "ended": done.ended,
        "session": conversation.session.id,
        "conversation": info.conversation if info else conversation.session.id,
        "source": info.source if info else conversation.wanted.source,
        "model": done.model or conversation.model.name,
        "steps": done.steps,
        "tool_calls": [_call_json(call) for call in done.calls],
        "usage": encode(done.usage, omit=["cost_usd"], measured=done.measured),
        "cost_usd": conversation.cost(),
        "notes": list(done.notes),
    }


def _call_json(call: Called) -> dict[str, Any]:
    return {
        "id": call.call.id,
        "name": call.call.name,
        "arguments": call.call.arguments,
        "result": call.result,
        "ok": call.ok,
        "seconds": round(call.seconds, 3),
    }
