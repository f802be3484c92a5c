"""Herma chat: loop, slash commands, one-shot."""

from __future__ import annotations

import importlib.util
import os
import re
import select
import shlex
import signal
import stat
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast

import click

from herma import __version__
from herma.agent.loop import Agent, Asking
from herma.agent.terminal import (
    HISTORY,
    LiveScreen,
    PlainScreen,
    Reader,
    Screen,
    by_line,
    reader_for,
    shortened_line,
    status,
    unechoed,
)
from herma.cli import output
from herma.cli.frame import Context, HermaCommand, pass_context
from herma.cli.output import count, name_of, one_line, short_when
from herma.compression.summary import Compression
from herma.errors import ConfigError, HermaError, HermaWarning, ModelError, StoreError, UsageError
from herma.memory.entries import parse
from herma.memory.tidy import PREFIX
from herma.transcript.cli import Desk
from herma.transcript.messages import is_complete
from herma.types import Context as TypesContext
from herma.types import Message, Origin, Scope, SessionFilter, SessionInfo, Who

if TYPE_CHECKING:
    from herma.agent.loop import Called, Show, TurnReport
    from herma.agent.mcp import McpServers
    from herma.app import Herma
    from herma.models.client import ChatModel
    from herma.prompt.budget import Plan
    from herma.session import Session
    from herma.tools.registry import Tool


# ---------- cli.chat.command
#
# `herma chat`: the command, and how a conversation is set up for it.


@click.command(cls=HermaCommand)
@click.option("-p", "--prompt", metavar="TEXT", help="Ask this, print the answer, and leave. Reads a pipe, too.")
@click.option("--resume", metavar="WHAT", help="Go on with a conversation: an id, the beginning of one, or a title.")
@click.option(
    "--continue", "latest", is_flag=True, help="Go on with the last conversation, of this folder if it has one."
)
@click.option("--model", metavar="NAME", help="Another model than model.name, at the same place.")
@click.option("--project", metavar="NAME", help="The project that this is about: it has a memory of its own.")
@click.option(
    "--source",
    type=click.Choice(["cli", "cron", "tool"]),
    default="cli",
    show_default=True,
    help="Who asks: a person, a timer, or another program.",
)
@click.option("--no-tools", is_flag=True, help="The model may call nothing: no memory, no search, no skills.")
@pass_context
def chat(
    context: Context,
    prompt: str | None,
    resume: str | None,
    latest: bool,
    model: str | None,
    project: str | None,
    source: str,
    no_tools: bool,
) -> None:
    """Talk with a model that has this memory.

    It may call tools: memory, session_search, skills, those of an external memory, and those of the MCP servers that
    config.yaml names (mcp_servers). Every step is on disk before the next one begins. Ctrl-C stops an answer, not the
    program. /help lists what can be typed besides messages.

    \b
    Examples:
      herma chat
      herma chat --continue
      herma chat -p "What did we decide about the login bug?"
      tail -n 200 server.log | herma chat -p "Why did it stop?" --json
      herma chat -p "Tidy the notes" --source cron --no-tools

    \b
    With -p and --json it prints ok, text, session, tool_calls, usage and how it ended.
    Exit codes: 0 answered, 1 not answered within chat.max_steps, 2 used wrongly, 6 the model failed, 130 stopped.
    """
    if context.json and prompt is None:
        raise UsageError("--json is for one question.", hint='Add it: herma chat --json -p "…"')
    if resume is not None and latest:
        raise UsageError("--resume and --continue exclude each other.", hint="Give one of them.")
    for name, value in (("--resume", resume), ("--model", model), ("--project", project)):
        if value is not None and not value.strip():
            raise UsageError(f"{name} is empty.", hint="Give a value, or leave the option out.")
    if model is not None:
        context.flags["model.name"] = model
    with context.open() as h:
        wanted = Wanted(
            cast("Source", source), project, not no_tools, _meant(context, h, resume, latest, source, project)
        )
        start(context, h, wanted, prompt)


def start(context: Context, h: Herma, wanted: Wanted, prompt: str | None = None) -> None:
    """Answer one question, or talk until the person leaves."""
    from herma.agent.terminal import QuietScreen
    from herma.transcript.cli import Desk

    if not context.debug:
        _keep_the_log_off_the_screen()
    quiet = prompt is not None and (context.json or not sys.stdout.isatty())
    screen: Screen = QuietScreen() if quiet else screen_for(markdown=h.settings.chat.markdown)
    if prompt is None and (sys.stdin is None or not sys.stdin.isatty()):
        raise UsageError("There is no terminal to talk on.", hint='For one question: herma chat -p "…"')
    with _talk(h, wanted, screen) as talk:
        if prompt is not None:
            answer(context, talk, screen, prompt)
        else:
            Converse(talk, Desk(context, h), screen).run()


def _keep_the_log_off_the_screen() -> None:
    """What people should know is told between two turns; a log would write into the prompt, from another thread."""
    import logging

    logging.getLogger("herma").addHandler(logging.NullHandler())


@contextmanager
def _talk(h: Herma, wanted: Wanted, screen: Screen) -> Iterator[Talk]:
    """The conversation, ended in the end whatever happens, and the servers with it."""
    from herma.agent.mcp import McpServers

    model = model_of(h, screen)
    servers = McpServers(h.settings.mcp_servers if wanted.tools else (), h.settings.chat, h.home)
    servers.begin()
    talk = Talk(h, model, servers, wanted, screen)
    try:
        with _ended_by_signals():
            yield talk
    finally:
        try:
            talk.leave()
        finally:
            servers.close()
            with suppress(OSError):  # whoever read it may be gone
                screen.end()


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Inside, whoever ends the program lets it close what it has open: a timer's limit, a window that is closed."""

    def leave(number: int, _: object) -> None:
        raise SystemExit(128 + number)

    wanted = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    before = [(number, signal.signal(number, leave)) for number in wanted] if _is_main() else []
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


def model_of(h: Herma, screen: Screen) -> ChatModel:
    """The model of the settings; a sentence and what to type where there is none."""
    where = h.models.endpoint()
    if where is None:
        raise ConfigError(
            "No model is set, so there is nobody to talk to.",
            hint="For example: herma config set model.url ollama, then herma config set model.name qwen3:8b, then "
            "herma models check; docs/how-to/use-a-model.md has the rest.",
        )
    library = "anthropic" if where.kind == "anthropic" else "openai"
    if importlib.util.find_spec(library) is None:
        raise ConfigError(
            f"Talking with {where.name} needs the {library} library, which is not installed.",
            hint=f"Type: pip install 'herma[{library}]'",
        )
    model = h.models.get("main", on_retry=lambda retry: screen.note(str(retry)))
    assert model is not None
    return model


def _meant(
    context: Context, h: Herma, resume: str | None, latest: bool, source: str, project: str | None
) -> str | None:
    """The id of the session to go on with."""
    from herma.transcript.cli import Desk

    if resume is not None:
        return Desk(context, h).find(resume).id
    if not latest:
        return None
    found = talk_latest(h, cast("Source", source), project)
    if found is None:
        raise UsageError("There is no conversation to go on with.", hint="Begin one: herma chat")
    return found.id


# ---------- cli.chat.news
#
# What happened in the background since the last look, each thing told once.

_MOST = 20
"""Changes that are looked at."""
_NAMES = {"memory": "MEMORY.md", "user": "USER.md"}


class News:
    """What others write into memory, what waits for a decision, and when background work has used up its day."""

    def __init__(self, h: Herma) -> None:
        self._h = h
        self._seen: int | None = None
        self._waiting: int | None = None
        self._capped = False

    def look(self, scope: Scope | None, session: str = "") -> list[str]:
        """News as lines. The first look only remembers what there is. `session` is the one whose own tool calls are
        shown already.
        """
        return [*self._changes(scope, session), *self._pending(), *self._spending()]

    def skip(self, scope: Scope | None) -> None:
        """What a person has just done is no news to them."""
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
                tidied = change.reason.removeprefix(PREFIX) if change.author.who is Who.TIDY else ""
                lines.append(_told(_NAMES[change.target], change.before, change.after, tidied))
        return lines

    def _pending(self) -> list[str]:
        waiting = len(self._h.memory.pending())
        before, self._waiting = self._waiting, waiting
        if before is None or waiting <= before:
            return []
        wait = "waits" if waiting == 1 else "wait"
        return [f"{count(waiting, 'write')} to memory {wait} for your decision: /memory pending"]

    def _spending(self) -> list[str]:
        if self._capped or self._h.models.endpoint("auxiliary") is None:
            return []
        report = self._h.models.spending()
        cap, spent = report.caps.all, report.total_today
        used_up = (cap.tokens is not None and spent.tokens >= cap.tokens) or (
            cap.usd is not None and spent.usd >= cap.usd
        )
        if report.caps.off or not spent.calls or not used_up:
            return []
        self._capped = True
        return ["Background work has used up what it may spend today (spend.daily_usd, spend.daily_tokens): /cost"]


def _told(name: str, before: str, after: str, tidied: str = "") -> str:
    """What a change did: the entries that came, else those that went. `tidied` is what tidying says about it."""
    old, new = parse(before), parse(after)
    came = [entry for entry in new if entry not in old]
    gone = [entry for entry in old if entry not in new]
    if tidied:
        what = one_line("; ".join(came or gone), 160)
        return f"Tidied {name}, {tidied.rstrip('.')}: {what} (/memory undo takes it back)"
    if came:
        return f"Saved to {name}: {one_line('; '.join(came), 160)}"
    return f"Taken out of {name}: {one_line('; '.join(gone), 160)}"


# ---------- cli.chat.slash
#
# What begins with a slash: commands to the program, not messages to the model.
#
# Each command is one function; the table at the end is the help, and what Tab completes.

_COMMAND = re.compile(r"/([A-Za-z]+)(?:\s+(.*))?\s*", re.DOTALL)
_LISTED = 10


@dataclass(slots=True)
class Next:
    """What happens after a command: nothing, or one of these."""

    quit: bool = False
    retry: bool = False
    edit: str = ""
    """Text that stands in the prompt, to be changed and sent."""
    send: str = ""
    held: bool = False
    """Whether it went otherwise than whoever typed ahead could expect: then that is not sent by itself."""


@dataclass(slots=True)
class Bench:
    """What commands work with."""

    talk: Talk
    desk: Desk
    screen: Screen
    listed: list[SessionInfo] = field(default_factory=list)
    """Conversations that were listed last, for `/resume 2`."""

    def herma(self, *words: str) -> None:
        """Run another command of the command line, on the same home. It says for itself what goes wrong."""
        from herma.cli.main import run

        context = self.desk.context
        chosen = [("--home", context.home), ("--profile", context.profile)]
        with by_line():  # some of them ask before they do something
            run([*(word for name, value in chosen if value for word in (name, value)), *words])


def is_command(text: str) -> bool:
    """`/help me` is one, `/etc/hosts is empty` is none; `//x` is how to say `/x` to the model."""
    return _COMMAND.fullmatch(text.strip()) is not None


def obey(bench: Bench, text: str) -> Next:
    """Do what a command says. What goes wrong is told, and nothing else happens."""
    found = _COMMAND.fullmatch(text.strip())
    if found is None:
        return Next(send=text)
    name, rest = found[1].lower(), (found[2] or "").strip()
    try:
        command = COMMANDS.get(ALIASES.get(name, name))
        if command is None:
            raise _unknown(name)
        return command.run(bench, rest) or Next()
    except HermaError as exc:
        bench.screen.line(str(exc))
        if exc.hint:
            bench.screen.line(f"  → {exc.hint}")
        return Next()


def _unknown(name: str) -> UsageError:
    from difflib import get_close_matches

    near = get_close_matches(name, [*COMMANDS, *ALIASES], n=1, cutoff=0.5)
    hint = f"Did you mean /{near[0]}?" if near else "/help lists them; //… says it to the model."
    return UsageError(f"There is no command /{name}.", hint=hint)


# ── conversations ──


def _new(bench: Bench, rest: str) -> None:
    bench.talk.new()
    if rest:
        bench.talk.rename(rest)
    bench.screen.line("A new conversation. Memory is as it is now.")


def _resume(bench: Bench, rest: str) -> None:
    if not rest:
        _list(bench)
        return
    if rest.isdigit() and 1 <= int(rest) <= len(bench.listed):
        info = bench.listed[int(rest) - 1]
    else:
        info = bench.desk.find(rest)
    bench.talk.resume(info.id)
    _welcome_back(bench, info)


def _list(bench: Bench) -> None:
    bench.listed = list(bench.talk.h.transcripts.list(limit=_LISTED))
    if not bench.listed:
        raise UsageError("There is no earlier conversation.")
    for number, info in enumerate(bench.listed, 1):
        facts = f"{short_when(info.last_active)}, {count(info.message_count, 'message')}, {info.source}"
        bench.screen.line(f"{number:>3}  {name_of(info, 60)}  ({facts})")
    bench.screen.line("/resume NUMBER, ID or TITLE goes on with one; /search TEXT looks into them.")


def _welcome_back(bench: Bench, info: SessionInfo) -> None:
    bench.screen.line(f"Going on with: {name_of(info, 60)} ({count(info.message_count, 'message')}).")
    if stood := bench.talk.where_it_stood():
        bench.screen.line(stood)
    last = next((message for message in reversed(bench.talk.stored()) if message.role == "assistant"), None)
    if last is not None and isinstance(last.content, str) and last.content.strip():
        bench.screen.line(f"Last: {one_line(last.content, 200)}")
    if bench.talk.waits_for_an_answer():
        bench.screen.line("The last message has no answer yet: /retry asks for it.")


def _branch(bench: Bench, rest: str) -> None:
    old = bench.talk.branch(_number(rest, 0, "/branch 2"))
    bench.screen.line(f"A copy of the conversation, going its own way. The other one: /resume {old}")


def _undo(bench: Bench, rest: str) -> Next:
    turns = _number(rest, 1, "/undo 2")
    text = bench.talk.undo(turns)
    bench.screen.line(f"Took back {count(turns, 'turn')}. What you had said stands in the prompt.")
    return Next(edit=text)


def _retry(bench: Bench, rest: str) -> Next:  # noqa: ARG001
    if bench.talk.info is None:
        raise UsageError("There is nothing to ask again.")
    if bench.talk.agent.unfinished:
        return Next(retry=True)
    return Next(send=bench.talk.undo(1))


def _title(bench: Bench, rest: str) -> None:
    if not rest:
        title = bench.talk.title
        bench.screen.line(f"Its title: {title}" if title else "It has no title: /title TEXT")
        return
    bench.screen.line(f"Its title: {bench.talk.rename(rest)}")


def _compress(bench: Bench, rest: str) -> None:
    if bench.talk.info is not None:
        bench.screen.line("Making the conversation shorter …")
    bench.screen.line(shortened_line(bench.talk.compress(rest)).removeprefix("· "))


# ── what is known ──


def _memory(bench: Bench, rest: str) -> None:
    """As `herma memory …`; what is added need not be quoted."""
    action, _, text = rest.partition(" ")
    if not rest:
        bench.herma("memory", "list")
    elif action == "add" and text.strip() and not text.lstrip().startswith("-"):
        bench.herma("memory", "add", "--", text.strip())
    else:
        bench.herma("memory", *_words(rest))


def _skills(bench: Bench, rest: str) -> None:
    action, _, text = rest.partition(" ")
    if action == "find" and text.strip():
        bench.herma("skills", "find", "--", text.strip())
    else:
        bench.herma("skills", *(_words(rest) or ["list"]))


def _search(bench: Bench, rest: str) -> None:
    if not rest:
        raise UsageError("What should be looked for?", hint='For example: /search "connection reset" since:last-week')
    bench.herma("search", "--", rest)


def _cost(bench: Bench, rest: str) -> None:
    info = bench.talk.info
    if rest not in ("", "all"):
        raise UsageError(
            f"/cost knows no {rest[:40]!r}.", hint="/cost is about this conversation, /cost all about all."
        )
    if rest == "all" or info is None:
        bench.herma("cost")
    else:
        bench.herma("cost", "--session", info.id)


def _tools(bench: Bench, rest: str) -> None:  # noqa: ARG001
    if not bench.talk.wanted.tools:
        bench.screen.line("The model has no tools here (--no-tools).")
        return
    bench.screen.line("  ".join(schema["function"]["name"] for schema in bench.talk.session.tools))
    for server in bench.talk.servers.states():
        why = f": {server.why}" if server.why else f", {count(len(server.tools), 'tool')}"
        bench.screen.line(f"MCP server {server.name}: {server.state}{why}")


def _help(bench: Bench, rest: str) -> None:
    wanted = rest.removeprefix("/").lower()
    known = COMMANDS.get(ALIASES.get(wanted, wanted))
    if wanted and known is None:
        raise _unknown(wanted)
    for name, command in COMMANDS.items():
        if known is None or command is known:
            bench.screen.line(f"  {f'/{name} {command.usage}'.rstrip():<24} {command.help}")
    bench.screen.line(
        "  Enter sends; Alt-Enter, Ctrl-J or a \\ at the end begins a new line; pasted lines stay together."
    )
    bench.screen.line("  Ctrl-C stops an answer; twice at the prompt, or Ctrl-D, leaves. //… says /… to the model.")


def _quit(bench: Bench, rest: str) -> Next:  # noqa: ARG001
    return Next(quit=True)


def _number(text: str, otherwise: int, example: str) -> int:
    if not text:
        return otherwise
    if not text.isdecimal() or not 1 <= int(text[:9]) <= 100_000:
        raise UsageError(f"{text[:40]!r} is no number of turns.", hint=f"For example: {example}")
    return int(text)


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # an apostrophe, most likely
        return text.split()


@dataclass(frozen=True, slots=True)
class Command:
    run: Callable[[Bench, str], Next | None]
    usage: str
    help: str


COMMANDS: dict[str, Command] = {
    "new": Command(_new, "[TITLE]", "Begin another conversation."),
    "resume": Command(_resume, "[WHAT]", "Go on with an earlier one: its number, id or title; without, a list."),
    "branch": Command(_branch, "[N]", "Go on in a copy of this one, without its last N turns."),
    "undo": Command(_undo, "[N]", "Take back the last turn, or the last N, and edit what you said."),
    "retry": Command(_retry, "", "Ask for the last answer again."),
    "title": Command(_title, "TEXT", "Give this conversation a title."),
    "compress": Command(_compress, "[TOPIC]", "Make the conversation shorter now; the topic gets more room."),
    "memory": Command(_memory, "[add TEXT|undo|…]", "What is remembered; as `herma memory`."),
    "skills": Command(_skills, "[find TEXT|…]", "Written procedures; as `herma skills`."),
    "search": Command(_search, "TEXT", "Look into all conversations."),
    "cost": Command(_cost, "[all]", "What this conversation took, or all of them."),
    "tools": Command(_tools, "", "What the model may call, and how the MCP servers are."),
    "help": Command(_help, "", "This list."),
    "quit": Command(_quit, "", "Leave."),
}
ALIASES = {"exit": "quit", "q": "quit", "continue": "resume", "name": "title", "compact": "compress", "clear": "new"}


# ---------- cli.chat.converse
#
# The conversation at a terminal: read, obey or ask, show, and again.

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


# ---------- cli.chat.talk
#
# The conversation that goes on in a terminal: a session that begins with the first message, and an agent in it.

Source: TypeAlias = Literal["cli", "cron", "tool"]
CONTEXTS: dict[Source, TypesContext] = {"cli": "primary", "cron": "cron", "tool": "subagent"}
"""Who works, by who started the program: a person, the clock, or another agent."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the command line asks for."""

    source: Source = "cli"
    project: str | None = None
    tools: bool = True
    resume: str | None = None
    """The id of a session to go on with."""
    title: str | None = None


class Talk:
    """One conversation at a time. Nothing is opened, and nothing is written, before the first message."""

    def __init__(self, h: Herma, model: ChatModel, servers: McpServers, wanted: Wanted, show: Show) -> None:
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
        """The agent, in a session that is opened now if it was not yet."""
        if self._agent is None:
            self._agent = self._with(self._open())
        return self._agent

    @property
    def session(self) -> Session:
        return self.agent.session

    @property
    def info(self) -> SessionInfo | None:
        """The conversation as it is stored; nothing before the first message."""
        session_id = self._agent.session.id if self._agent else self.wanted.resume
        return self.h.transcripts.get(session_id) if session_id else None

    @property
    def title(self) -> str:
        """Its title, or the one that it gets when it begins."""
        info = self.info
        return (info.title if info else self.wanted.title) or ""

    def stored(self) -> Sequence[Message]:
        """What was said so far."""
        if self._agent is not None:
            return self._agent.session.messages
        info = self.info
        return self.h.transcripts.messages(info.id) if info else ()

    def waits_for_an_answer(self) -> bool:
        """Whether the last message has none: the program that asked ended in the middle of it."""
        messages = self.stored()
        return bool(messages) and not is_complete(messages[-1:])

    def where_it_stood(self) -> str:
        """What was noted when it was last left (next step, open tasks, folder, files), in lines; "" if nothing was."""
        info = self.info
        if info is None:
            return ""
        state = self.h.episodes.state(self.h.episodes.conversation_of(info))
        return self.h.episodes.describe(state) if state is not None else ""

    def tools(self) -> list[Tool] | None:
        """What the model may call besides our own tools; nothing at all if that is wanted."""
        return self.servers.tools() if self.wanted.tools else None

    # ── moving about ──

    def new(self) -> None:
        """End this conversation; the next message begins another."""
        self.leave("reset")
        self.wanted = replace(self.wanted, resume=None, title=None)

    def resume(self, session_id: str) -> None:
        """Go on with another conversation."""
        self.leave("switched")
        self.wanted = replace(self.wanted, resume=session_id, title=None)

    def branch(self, turns: int = 0) -> str:
        """Go on in a copy of this conversation, without its last turns. → the id of the one that it was."""
        info = self.info
        if info is None:
            raise UsageError("There is nothing to branch off yet.", hint="Say something first.")
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
        """Take back the last turns. → the text of the first of them, to be edited."""
        if self.info is None:
            raise UsageError("There is nothing to take back yet.")
        return self.session.rewind(turns)

    def rename(self, title: str) -> str:
        """Give it a title; one that has not begun gets it when it does."""
        info = self.info
        if info is None:
            self.wanted = replace(self.wanted, title=title)
            return title
        return self.h.transcripts.rename(info.id, title) or title

    def compress(self, topic: str = "") -> Compression:
        if self.info is None:
            raise UsageError("There is nothing to make shorter yet.")
        return self.session.compress(topic)

    def leave(self, reason: str = "closed") -> None:
        """End the session, if one was opened."""
        agent, self._agent = self._agent, None
        if agent is not None:
            agent.session.close(reason)

    # ── what is shown about it ──

    def plan(self) -> Plan | None:
        return self._agent.session.working_memory() if self._agent else None

    def cost(self) -> float | None:
        """What it cost so far; nothing where prices are not known."""
        info = self.info
        if info is None:
            return None
        total = self.h.cost(info.id).total
        return total.cost if total.calls else None

    # ── steps ──

    def _open(self) -> Session:
        wanted = self.wanted
        place = _here()
        return self.h.session(
            wanted.source,
            project=wanted.project,
            resume=wanted.resume,
            title=wanted.title,
            model=self.model.name,
            folder=place if not wanted.resume else None,
            context=CONTEXTS[wanted.source],
            tools=self.tools(),
        )

    def _with(self, session: Session) -> Agent:
        steps = self.h.settings.chat.max_steps
        return Agent(session, self.model, max_steps=steps, tools=self.wanted.tools, show=self._show)


def talk_latest(h: Herma, source: Source, project: str | None) -> SessionInfo | None:
    """The conversation that was active last: here, if there is one of this folder, else anywhere."""
    place = _here()
    everywhere = SessionFilter(source=source, project=project, archived=False, delegated=False)
    for which in (replace(everywhere, folder=place) if place else everywhere, everywhere):
        found = h.transcripts.list(which, limit=1)
        if found:
            return found[0]
    return None


def _here() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109
    except OSError:  # it was deleted
        return None


# ---------- cli.chat.oneshot
#
# One question, one answer: for scripts, timers and other programs.

MOST_PIPED = 4_000_000
"""Bytes that are read from a pipe."""
_PATIENCE = 3.0
"""Seconds after which a person is told what is waited for."""
EXIT_OUT_OF_STEPS = 1
EXIT_INTERRUPTED = 130


def answer(context: Context, talk: Talk, screen: Screen, prompt: str) -> None:
    """Ask, and print what comes. The exit code says whether there is an answer."""
    piped = read_piped(context)
    text = "\n\n".join(filter(None, [prompt.strip(), piped]))
    if not text:
        raise UsageError("There is nothing to ask.", hint='For example: herma chat -p "What did we decide?"')
    with shown_by(screen):
        with stopping(talk) as cancel:
            agent = talk.agent
            for warning in talk.servers.warnings:
                screen.note(warning)
            if piped:
                agent.session.heard(piped, Origin.TOOL_OUTPUT)
            done = agent.turn(text, cancel=cancel)
        screen.end()
    if context.json:
        context.print_json(as_json(talk, done))
    elif not sys.stdout.isatty():
        output.write(done.text)
    if done.ended == "interrupted":
        context.exit(EXIT_INTERRUPTED)
    if done.ended == "out of steps":
        context.exit(EXIT_OUT_OF_STEPS)


def read_piped(context: Context) -> str:
    """What comes by a pipe or from a file; nothing where stdin is a terminal, or closed."""
    try:
        handle = sys.stdin.fileno() if sys.stdin is not None else -1
        if handle < 0 or os.isatty(handle):
            return ""
        mode = os.fstat(handle).st_mode
    except (OSError, ValueError):
        return ""
    if not (stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode)):
        return ""  # /dev/null, as timers have it
    if os.name == "posix" and not select.select([handle], [], [], _PATIENCE)[0]:
        context.warn("Waiting for the end of what comes on standard input; `< /dev/null` gives nothing.")
    data = _read(handle)
    if len(data) > MOST_PIPED:
        raise UsageError(
            f"What comes by the pipe has more than {MOST_PIPED:,} bytes.",
            hint="Send the part that matters: … | tail -n 500",
        )
    if b"\0" in data:
        raise UsageError("What comes by the pipe is no text.", hint="Turn it into text first: … | strings")
    return data.decode("utf-8-sig", "replace").strip()


def _read(handle: int) -> bytes:
    pieces: list[bytes] = []
    size = 0
    while size <= MOST_PIPED and (piece := os.read(handle, 1 << 16)):
        pieces.append(piece)
        size += len(piece)
    return b"".join(pieces)


def as_json(talk: Talk, done: TurnReport) -> dict[str, Any]:
    """The answer for programs."""
    info = talk.info
    used = done.usage
    return {
        "ok": done.ended == "answered",
        "text": done.text,
        "ended": done.ended,
        "session": talk.session.id,
        "conversation": info.conversation if info else talk.session.id,
        "source": info.source if info else talk.wanted.source,
        "model": done.model or talk.model.name,
        "steps": done.steps,
        "tool_calls": [_call_json(call) for call in done.calls],
        "usage": {
            "measured": done.measured,
            "input": used.input,
            "output": used.output,
            "cache_read": used.cache_read,
            "cache_write": used.cache_write,
            "reasoning": used.reasoning,
        },
        "cost_usd": talk.cost(),
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
