"""`herma chat`: the command, and how a conversation is set up for it."""

from __future__ import annotations

import importlib.util
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, cast

import click

from herma.cli.frame import Context, HermaCommand, pass_context
from herma.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.cli.chat.screen import Screen
    from herma.cli.chat.talk import Source, Talk, Wanted
    from herma.ports import ChatModel


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
        from herma.cli.chat.talk import Wanted

        wanted = Wanted(
            cast("Source", source), project, not no_tools, _meant(context, h, resume, latest, source, project)
        )
        start(context, h, wanted, prompt)


def start(context: Context, h: Herma, wanted: Wanted, prompt: str | None = None) -> None:
    """Answer one question, or talk until the person leaves."""
    from herma.cli.chat.converse import Converse, screen_for
    from herma.cli.chat.oneshot import answer
    from herma.cli.chat.screen import QuietScreen
    from herma.cli.sessions.desk import Desk

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
    from herma.agent.mcp_servers import McpServers
    from herma.cli.chat.talk import Talk

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
    from herma.cli.chat.talk import latest as last_one
    from herma.cli.sessions.desk import Desk

    if resume is not None:
        return Desk(context, h).find(resume).id
    if not latest:
        return None
    found = last_one(h, cast("Source", source), project)
    if found is None:
        raise UsageError("There is no conversation to go on with.", hint="Begin one: herma chat")
    return found.id
