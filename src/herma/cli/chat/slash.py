"""What begins with a slash: commands to the program, not messages to the model.

Each command is one function; the table at the end is the help, and what Tab completes.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from herma.cli.chat.typing_ahead import by_line
from herma.cli.chat.wording import shortened_line
from herma.cli.sessions.wording import count, name_of, one_line, short_when
from herma.errors import HermaError, UsageError

if TYPE_CHECKING:
    from herma.cli.chat.screen import Screen
    from herma.cli.chat.talk import Talk
    from herma.cli.sessions.desk import Desk
    from herma.types import SessionInfo

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
