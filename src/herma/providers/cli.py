"""`herma providers`: choose, set up, test and compare external memories."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from herma import config as configuration
from herma.cli.context import CommandContext, HermaGroup, pass_context, with_home, yes_option
from herma.cli.output import when, write
from herma.errors import HermaError, ProviderError, UsageError
from herma.evals.data import percentile
from herma.evals.retrieval import history, questions
from herma.models.endpoints import FILE, read_file
from herma.prompt.tokens import counter_for
from herma.providers.base import MemoryProvider
from herma.providers.bundled import convert, is_installed
from herma.providers.discovery import FoundProvider, atomic_json_write, find, load, load_commands, manifest
from herma.providers.manager import Providers, ProviderStatus, accepted, tool_schemas, units
from herma.store.files import exclusive, make_folder, replace_file
from herma.text import STOP_WORDS
from herma.worker import BackgroundCall, TroubleLog

KEY = "memory.provider"
NONE = "none"
_WEEK = 7 * 86_400
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_WORD = re.compile(r"\w{4,}")
HIT = 0.6
"""Part of a message's longer words that must be in the recalled text, so that the message counts as found."""


class ProviderGroup(HermaGroup):
    """The commands of `herma providers`, and those that the active provider brings."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name) or self._of_plugin(ctx, cmd_name)

    def _of_plugin(self, ctx: click.Context, name: str) -> click.Command | None:
        context = ctx.ensure_object(CommandContext)
        if ctx.resilient_parsing or context.settings(warn=False).memory.provider != name:
            return None
        home = context.settings(warn=False).home
        try:
            module = load_commands(find(home, name), home)
        except UsageError:
            return None
        if module is None:
            return None

        @click.command(name, context_settings={"ignore_unknown_options": True, "help_option_names": []})
        @click.argument("words", nargs=-1, type=click.UNPROCESSED)
        def run(words: tuple[str, ...]) -> None:
            parser = argparse.ArgumentParser(prog=f"herma providers {name}")
            module.register_cli(parser)
            try:
                given = parser.parse_args(list(words))
            except SystemExit as exc:
                raise click.exceptions.Exit(int(exc.code or 0)) from exc
            handler = getattr(given, "func", None) or getattr(module, f"{name.replace('-', '_')}_command")
            handler(given)

        return run


@click.group(cls=ProviderGroup, order="list setup status off test compare")
def providers() -> None:
    """Choose an external memory provider, in addition to Herma's own memory.

    A provider receives every turn, may recall text for the next one, and may add tools. Its text is fenced and scanned
    like all text from outside. If it fails or hangs, sessions continue without it.

    A provider's own commands are here too while it is in use: herma providers NAME.

    \b
    Examples:
      herma providers list
      herma providers setup holographic
      herma providers status
    """


@providers.command("list")
@pass_context
def list_(context: CommandContext) -> None:
    """List the providers that come with Herma, lie in the home's plugins/, or are installed packages.

    \b
    Examples:
      herma providers list
      herma providers list --json
    """
    with context.open() as h:
        found, active, sources = h.providers.list(), h.providers.active, h.providers.sources
    if context.json:
        listed = [
            {
                **asdict(one),
                "description": one.description or None,
                "active": one.name == active,
                "recalls": one.name in sources,
            }
            for one in found
        ]
        context.print_json({"ok": True, "active": active or None, "providers": listed})
        return
    marks = {active: "*", **dict.fromkeys(sources, "r")}
    rows = [[marks.get(one.name, ""), one.name, one.kind, one.description or one.where] for one in found]
    context.table(["", "name", "kind", "description"], rows)
    if active:
        context.line(f"* is in use. Its state: {context.command('providers', 'status')}")
    else:
        context.line(f"None is in use. To use one: {context.command('providers', 'setup')}")


# ── setup ──


@providers.command()
@click.argument("name", required=False)
@click.option("--set", "given", multiple=True, metavar="KEY=VALUE", help="Answer a question; VALUE - reads a line.")
@click.option("--defaults", is_flag=True, help="Ask nothing: take the defaults for everything that --set leaves open.")
@click.option("--install/--no-install", default=None, help="Install missing packages without asking, or never.")
@yes_option
@pass_context
def setup(
    context: CommandContext, name: str | None, given: tuple[str, ...], defaults: bool, install: bool | None
) -> None:
    """Use the provider NAME in new sessions, and answer its questions; `none` for none.

    Installs the packages that it needs, after asking. Secrets go to the home's .env, which only you can read, other
    answers to the provider's own file, and memory.provider to config.yaml.

    \b
    Examples:
      herma providers setup
      herma providers setup mem0 --set api_key=- --defaults
      herma providers setup holographic --defaults
    """
    settings = context.settings()
    home, before = settings.home, settings.memory.provider
    wanted = name or _picked(context)
    if wanted == NONE:
        _turn_off(context)
        return
    found = find(home, wanted)
    answers = _answers_given(given)
    _check_outside(context, found)
    _install(context, found.name, manifest(found).get("pip_dependencies") or (), install)
    provider = load(found, home)
    written: list[str] = []
    own: Any = getattr(provider, "post_setup", None) if not (given or defaults) and _asks() else None
    if own:
        try:
            own(str(home), {"memory": {"provider": wanted}})
        except ModuleNotFoundError as exc:
            context.warn(f"The setup of {wanted} needs {exc.name}, which is not here: Herma asks its questions.")
            own = None
    if not own:
        written = _configure(provider, home, answers, ask=not defaults and _asks())
    _install(context, found.name, getattr(provider, "requires", ()), install)
    if (sign_in := getattr(provider, "sign_in", None)) and (file := sign_in(lambda line: write(line, sys.stderr))):
        written.append(f"{file}: the sign-in")
    configuration.set_value(home / configuration.HOME_FILE, KEY, wanted)
    now = _state(context)
    if now.name != wanted:
        context.warn(f"Another setting overrides config.yaml: {KEY} stays {now.name or 'empty'}.")
    elif not now.available:
        context.warn(f"{wanted} is not available now{f': {now.why}' if now.why else ''}; sessions continue without it.")
    if context.json:
        state = {"active": now.name or None, "available": now.available, "why": now.why or None}
        context.print_json({"ok": True, "before": before or None, **state, "written": written})
    for place in written:
        context.line(f"Written: {place}")
    context.line(f"New sessions use {wanted}.")
    if before and before != wanted:
        context.line(f"To use the earlier one again: {context.command('providers', 'setup', before)}")


@providers.command()
@pass_context
def off(context: CommandContext) -> None:
    """Use no external provider in new sessions. Its configuration and its data stay.

    \b
    Examples:
      herma providers off
    """
    _turn_off(context)


def _turn_off(context: CommandContext) -> None:
    settings = context.settings()
    before = settings.memory.provider
    if before:
        configuration.set_value(settings.home / configuration.HOME_FILE, KEY, "")
    now = _state(context, ask=False)
    if now.name:
        context.warn(f"Another setting overrides config.yaml: {KEY} stays {now.name}.")
    if context.json:
        context.print_json({"ok": True, "before": before or None, "active": now.name or None})
    context.line("New sessions use no provider.")
    if before:
        context.line(f"To use it again: {context.command('providers', 'setup', before)}")


def _state(context: CommandContext, *, ask: bool = True) -> ProviderStatus:
    """Return the state after config.yaml has changed."""
    again = CommandContext()
    again.home, again.profile, again.flags = context.home, context.profile, context.flags
    with again.open() as h:
        return h.providers.status(ask=ask)


def _asks() -> bool:
    return sys.stdin is not None and sys.stdin.isatty()


def _picked(context: CommandContext) -> str:
    """Ask which provider to use."""
    with context.open() as h:
        found = h.providers.list()
    if not _asks():
        names = ", ".join(one.name for one in found)
        raise UsageError(
            "Which provider? Not running in a terminal, so Herma cannot ask.", hint=f"Name one of: {names}."
        )
    rows = [[str(at), one.name, one.description] for at, one in enumerate(found, 1)]
    context.table(["", "name", "description"], [["0", NONE, "Herma's own memory only"], *rows])
    number = click.prompt("Number", type=click.IntRange(0, len(found)), err=True)
    return found[number - 1].name if number else NONE


def _answers_given(given: Sequence[str]) -> dict[str, str]:
    answers = {}
    for each in given:
        key, equals, value = each.partition("=")
        if not equals or not key:
            raise UsageError(
                f"--set takes KEY=VALUE, got {each!r}. Nothing was changed.",
                hint="For example: --set memory_mode=context",
            )
        answers[key] = sys.stdin.readline().rstrip("\n") if value == "-" else value
    return answers


def _check_outside(context: CommandContext, found: FoundProvider) -> None:
    """Say which programs a plugin needs besides Python packages."""
    for each in manifest(found).get("external_dependencies") or ():
        if isinstance(each, Mapping) and not shutil.which(str(each.get("name", ""))):
            context.warn(f"{found.name} needs the program {each.get('name')}. To install it: {each.get('install', '')}")


def _install(context: CommandContext, name: str, needed: Sequence[Any], wanted: bool | None) -> None:
    """Install the packages that a provider needs and that are missing, if the user agrees."""
    missing = [str(each) for each in needed if not is_installed(str(each))]
    if not missing:
        return
    packages = ", ".join(missing)
    if wanted is None:
        wanted = context.yes or (_asks() and context.confirm(f"Install {packages} into this Python environment?"))
    if not wanted:
        context.warn(f"{name} needs packages that are not installed: {packages}")
        return
    pip = [sys.executable, "-m", "pip", "install"]
    if subprocess.run([*pip[:3], "--version"], capture_output=True, check=False).returncode and shutil.which("uv"):
        pip = ["uv", "pip", "install", "--python", sys.executable]
    done = subprocess.run([*pip, *missing], capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ProviderError(
            f"{packages} could not be installed: {last}", hint=f"Try it by hand: pip install {packages}"
        )
    context.line(f"Installed {packages}.")


def _configure(provider: MemoryProvider, home: Path, given: Mapping[str, str], *, ask: bool) -> list[str]:
    """Ask the questions of a provider's schema, write the answers, and return where."""
    fields = [field for field in provider.get_config_schema() if isinstance(field, Mapping) and field.get("key")]
    unknown = sorted(given.keys() - {str(field["key"]) for field in fields})
    if unknown:
        known = ", ".join(str(field["key"]) for field in fields) or "none"
        raise UsageError(
            f"{provider.name} has no setting {unknown[0]!r}. Nothing was changed.", hint=f"Known: {known}."
        )
    stored = {**read_file(home / FILE), **os.environ}
    answers: dict[str, Any] = {}
    variables: dict[str, str] = {}
    for field in fields:
        key, variable = str(field["key"]), str(field.get("env_var") or "")
        if field.get("type") and not field.get("secret"):
            variable = ""  # the file of a bundled provider holds it
        if field.get("secret") and not variable:
            variable = f"{provider.name}_{key}".upper().replace("-", "_")
        conditions = (field.get("when") or {}).items()
        if key not in given and any(str(answers.get(name, "")) != str(value) for name, value in conditions):
            continue
        value = given.get(key)
        if value is None and field.get("advanced"):
            continue
        if value is None:
            value = _asked(field, _default(field, answers), bool(stored.get(variable))) if ask else None
        if value is None:
            value = "" if stored.get(variable) else _default(field, answers)
        if field.get("required") and value == "" and not stored.get(variable):
            where = f" Get it from {field['url']}." if field.get("url") else ""
            raise UsageError(
                f"{provider.name} needs {key}. Nothing was changed.{where}",
                hint=f"Add --set {key}={'-, which reads a line' if field.get('secret') else '…'}.",
            )
        choices = [str(choice) for choice in field.get("choices") or ()]
        if choices and str(value) not in choices:
            raise UsageError(f"{key}: unknown value {value!r}. Allowed: {', '.join(choices)}. Nothing was changed.")
        if field.get("type"):
            try:
                value = convert(field, value)
            except ProviderError as exc:
                hint = f"Give another value: --set {key}=…"
                raise UsageError(f"{exc} Nothing was changed.", hint=hint) from exc
        answers[key] = value
        if variable:
            if value != "":
                variables[variable] = str(value)
            answers.pop(key) if field.get("secret") else None
    kept = {key: value for key, value in answers.items() if key in given or value not in ("", {}, [])}
    return _write(provider, home, kept, variables)


def _default(field: Mapping[str, Any], answers: Mapping[str, Any]) -> Any:
    """Return the default of a field, which may depend on another answer."""
    source = field.get("default_from") or {}
    chosen = (source.get("map") or {}).get(answers.get(source.get("field", "")))
    return chosen if chosen is not None else field.get("default", "")


def _asked(field: Mapping[str, Any], default: Any, stored: bool) -> str | None:
    """Ask one question; an empty answer keeps what is stored."""
    text = str(field.get("description") or field["key"])
    if field.get("url"):
        text += f" ({field['url']})"
    if field.get("secret"):
        note = " [set; Enter keeps it]" if stored else ""
        return click.prompt(f"{text}{note}", default="", hide_input=True, show_default=False, err=True) or None
    choices = [str(choice) for choice in field.get("choices") or ()]
    kind = click.Choice(choices) if choices else str
    return str(click.prompt(text, default=default, type=kind, err=True))


def _write(provider: MemoryProvider, home: Path, kept: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    written = []
    if variables:
        write_variables(home / FILE, variables)
        os.environ.update(variables)  # the check afterwards runs in this process
        written.append(f"{home / FILE}: {', '.join(variables)}")
    if kept and type(provider).save_config is not MemoryProvider.save_config:
        provider.save_config(kept, str(home))
        file = getattr(provider, "file", "")
        written.append(f"{home / file if file else f'the settings of {provider.name}'}: {', '.join(kept)}")
    elif kept:
        atomic_json_write(home / f"{provider.name}.json", kept, mode=0o600)
        written.append(f"{home / f'{provider.name}.json'}: {', '.join(kept)}")
    return written


def write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Set variables in a `.env` file that only its owner can read; other lines stay as they are."""
    lines = {}
    for name, value in variables.items():
        quote = (
            "" if re.fullmatch(r"[\w./:@%+,=-]*", value) else next((each for each in "\"'" if each not in value), None)
        )
        if not _VARIABLE.fullmatch(name) or quote is None or any(mark in value for mark in "\r\n\0"):
            raise UsageError(
                f"The value of {name} cannot be stored in {path}: it has line ends or both kinds of quotes."
            )
        lines[name] = f"{name}={quote}{value}{quote}"
    make_folder(path.parent)
    with exclusive(path.with_name(".env.lock"), 5.0):
        old = path.read_text("utf-8-sig").splitlines() if path.exists() else []
        kept = []
        for line in old:
            name = line.strip().removeprefix("export ").partition("=")[0].strip()
            kept.append(lines.pop(name, line) if name in variables else line)
        if path.exists():
            path.chmod(0o600)
        replace_file(path, ("\n".join([*kept, *lines.values()]) + "\n").encode())
        path.chmod(0o600)


# ── status ──


@providers.command()
@pass_context
def status(context: CommandContext) -> None:
    """Show the state of the providers in use, and why a session may have recalled nothing.

    \b
    Examples:
      herma providers status
      herma providers status --json
    """
    settings = context.settings()
    off = configuration.TOOLS_OFF.read(settings.tools.off)
    with context.open() as h:
        names = [name for name in (h.providers.active, *h.providers.sources) if name]
        states = [h.providers.status(name=name) for name in names]
        failures = list(TroubleLog(h.home).since(time.time() - _WEEK))
    own = [
        name
        for name, on in (
            ("MEMORY.md", settings.memory.memory_enabled),
            ("USER.md", settings.memory.user_profile_enabled),
        )
        if on
    ]
    if context.json:
        value = [_state_json(one, [each for each in failures if each.name == one.name]) for one in states]
        context.print_json({"ok": True, "built_in": own, "active": names[0] if names else None, "providers": value})
        return
    context.fields([("built in", ", ".join(own) or "off"), ("provider", names[0] if names else NONE)])
    if not names:
        context.line(f"To use one: {context.command('providers', 'setup')}")
    for one in states:
        context.line()
        context.heading(one.name)
        role = "receives turns, recalls, brings tools" if one.name == h.providers.active else "only recalls"
        available = "yes" if one.available else f"no{f': {one.why}' if one.why else ''}"
        context.fields(
            [
                ("role", role),
                ("installed", one.found.kind if one.found else "no"),
                ("available", available),
                ("deadline", f"{settings.providers.timeout:g} s for each turn"),
                ("not in", ", ".join(name for name, sets in off if {"memory", "provider"} & {*sets})),
                *one.details.items(),
                ("last recall", _last(one)),
            ]
        )
        failed = Counter(f"{each.what}: {each.why}" for each in failures if each.name == one.name)
        newest = {f"{each.what}: {each.why}": each.at for each in failures if each.name == one.name}
        for what in sorted(failed, key=lambda what: newest[what])[-5:]:
            context.line(f"  failed {failed[what]} times, last {when(newest[what])}: {what}")
        if not one.available:
            context.line(
                f"Sessions continue without it. To set it up: {context.command('providers', 'setup', one.name)}"
            )


def _last(state: ProviderStatus) -> str:
    last = state.last
    if last is None:
        return "none yet; many providers recall nothing in the first turn, because they prepare it after a turn"
    outcomes = {
        "recalled": f"{last.characters:,} characters",
        "nothing": "nothing matched",
        "late": "too late, dropped",
        "unanswered": "it was asked and has not answered",
    }
    took = f", in {last.seconds:.2f} s" if last.seconds else ""
    return f"{when(last.at)}, turn {last.turn}: {outcomes.get(last.outcome, last.outcome)}{took}"


def _state_json(state: ProviderStatus, failures: Sequence[Any]) -> dict[str, Any]:
    return {
        "name": state.name,
        "available": state.available,
        "why": state.why or None,
        "kind": state.found.kind if state.found else None,
        "details": dict(state.details),
        "last_recall": asdict(state.last) if state.last else None,
        "failures": [{"at": each.at, "what": each.what, "why": each.why} for each in failures],
    }


# ── test ──


@providers.command()
@click.argument("name", required=False)
@click.option("--wait", type=click.FloatRange(0, 600), default=20.0, show_default=True, help="Seconds to look for it.")
@with_home
def test(context: CommandContext, name: str | None, wait: float) -> None:
    """Store a made-up turn and a note in a provider, look for them, and print how long each call takes.

    Services that process turns later may recall them only after some minutes.

    \b
    Examples:
      herma providers test
      herma providers test holographic --wait 5
    """
    h = context.h
    name = name or h.providers.active
    if not name:
        raise UsageError("No provider is in use.", hint=context.command("providers", "test", "NAME"))
    find(h.home, name)  # an unknown name is wrong use, not a failing provider
    steps, found = _round_trip(h.providers, name, str(h.home), h.settings.providers.timeout, wait)
    failed = [what for what, _, why in steps if why]
    if context.json:
        rows = [{"call": what, "ms": round(took * 1000, 1), "error": why or None} for what, took, why in steps]
        context.print_json({"ok": not failed, "provider": name, "recalled": found, "calls": rows})
    context.table(
        ["call", "time", "result"], [[what, f"{took * 1000:.0f} ms", why or "ok"] for what, took, why in steps]
    )
    context.line("The test turn was recalled." if found else f"The test turn was not recalled within {wait:g} s.")
    if failed:
        context.exit(3)


def _round_trip(
    roster: Providers, name: str, home: str, deadline: float, wait: float
) -> tuple[list[tuple[str, float, str]], bool]:
    """Return each call with its seconds and its error, and whether the test turn was recalled."""
    steps: list[tuple[str, float, str]] = []
    word = f"heron{uuid.uuid4().hex[:8]}"
    session = f"test-{word}"
    said = f"This is a test of the memory. The code word is {word}."
    session_values = {"session_id": session}
    messages = [{"role": "user", "content": said}, {"role": "assistant", "content": f"Noted: {word}."}]

    def call(what: str, question: Callable[[], object], within: float = deadline) -> object:
        began, why = time.monotonic(), ""
        answer: object = None
        try:
            answer = BackgroundCall(name, question, what).start().answer(within)
        except TimeoutError:
            why = f"did not answer within {within:g} s"
        except Exception as exc:  # noqa: BLE001  a plugin's failure is what the test reports
            why = f"{type(exc).__name__}: {exc}"
        steps.append((what, time.monotonic() - began, " ".join(why.split())[:200]))
        return answer

    provider = call("load", lambda: roster.make(name))
    if not isinstance(provider, MemoryProvider):
        return steps, False
    if not call("is_available", provider.is_available):
        what, took, why = steps[-1]
        steps[-1] = (what, took, why or f"not available: {provider.unavailable_reason()}")
        return steps, False
    about = {"hermes_home": home, "platform": "cli", "source": "cli", "agent_context": "primary", "user_id": ""}
    call("initialize", lambda: provider.initialize(session, **accepted(provider.initialize, about)))
    call("get_tool_schemas", lambda: tool_schemas(provider.get_tool_schemas()))
    call("system_prompt_block", provider.system_prompt_block)
    sync = accepted(provider.sync_turn, {**session_values, "messages": messages})
    call("sync_turn", lambda: provider.sync_turn(said, messages[1]["content"], **sync), max(deadline, 60.0))
    call("on_memory_write", lambda: provider.on_memory_write("add", "memory", said))
    query = f"What is the code word {word}?"
    queue = accepted(provider.queue_prefetch, session_values)
    until, found = time.monotonic() + wait, False
    while True:
        call("queue_prefetch", lambda: provider.queue_prefetch(query, **queue))
        recalled = call("prefetch", lambda: provider.prefetch(query, **accepted(provider.prefetch, session_values)))
        found = isinstance(recalled, str) and word in recalled
        if found or time.monotonic() > until or steps[-1][2]:
            break
        del steps[-2:]
        time.sleep(0.5)
    call("on_memory_write (remove)", lambda: provider.on_memory_write("remove", "memory", "", {"old_text": said}))
    call("shutdown", provider.shutdown, max(deadline, 10.0))
    return steps, found


# ── compare ──


@providers.command()
@click.argument("names", nargs=-1)
@click.option("--count", type=click.IntRange(1, 1000), default=30, show_default=True, help="Questions to ask.")
@click.option("--seed", type=int, default=0, show_default=True, help="Another seed makes other questions.")
@with_home
def compare(context: CommandContext, names: tuple[str, ...], count: int, seed: int) -> None:
    """Ask the configured providers, or NAMES, the questions of `herma eval self`, next to Herma's own search.

    A question counts as answered if the recalled text has most of the words of the message that it was made from. A
    provider can only know the conversations that it took part in. Tokens are what its answers would add to a request.

    \b
    Examples:
      herma providers compare
      herma providers compare holographic mem0 --count 100
    """
    h = context.h
    chosen = list(names) or [name for name in (h.providers.active, *h.providers.sources) if name]
    messages = history(h, seed)
    known = {str(message.id): message.text for message in messages}
    asked = [(one.text, known[one.gold[0]]) for one in questions(messages, count, seed)]
    if not asked:
        context.fail("There is not enough history to make questions from.", hint=context.command("chat"))
    weigh = counter_for(h.settings.model.name or None).count
    rows: list[dict[str, Any]] = []
    with context.progress("Asking", (len(chosen) + 1) * len(asked)) as report:
        for at, name in enumerate(("herma", *chosen)):
            try:
                recall, shut = _recaller(context, name)
            except (HermaError, TimeoutError) as exc:
                rows.append({"name": name, "error": str(exc)})
                continue
            hits, times, tokens, failed = 0, [], 0, 0
            for number, (question, text) in enumerate(asked):
                began = time.monotonic()
                try:
                    answer = recall(question)
                except Exception:  # noqa: BLE001  a plugin's failure is counted, and the next question is asked
                    answer, failed = "", failed + 1
                times.append((time.monotonic() - began) * 1000)
                hits += has(answer, text)
                tokens += weigh(answer)
                report(at * len(asked) + number + 1)
            with suppress(Exception):
                shut()
            rows.append(_compared(h, name, len(asked), hits, sorted(times), tokens, failed))
    if context.json:
        context.print_json({"ok": True, "questions": len(asked), "results": rows})
    context.table(
        ["provider", "found", "median", "p95", "tokens each", "cost each", "failed"], [_cells(r) for r in rows]
    )


def _recaller(context: CommandContext, name: str) -> tuple[Callable[[str], str], Callable[[], object]]:
    h = context.h
    if name == "herma":
        return lambda query: "\n".join(
            hit.snippet for hit in h.search(query, limit=5, level="message").hits
        ), h.ensure_open
    provider = h.providers.make(name)
    if not provider.is_available():
        raise ProviderError(f"{name} is not available: {provider.unavailable_reason()}")
    about = {"hermes_home": str(h.home), "agent_context": "subagent", "platform": "cli", "source": "cli"}
    session = f"compare-{uuid.uuid4().hex[:8]}"
    within = h.settings.providers.timeout
    begin = BackgroundCall(name, lambda: provider.initialize(session, **accepted(provider.initialize, about)))
    begin.start().answer(within)
    named = accepted(provider.prefetch, {"session_id": session})

    def recall(query: str) -> str:
        def question() -> str:
            provider.queue_prefetch(query, **accepted(provider.queue_prefetch, {"session_id": session}))
            return provider.prefetch(query, **named) or ""

        return BackgroundCall(name, question).start().answer(within)

    return recall, provider.shutdown


def has(answer: str, text: str) -> bool:
    """Say whether the answer has most of the words of a message, in one of its units."""
    wanted = {word for word in _WORD.findall(text.lower()) if word not in STOP_WORDS}
    return any(len(wanted & set(_WORD.findall(unit.lower()))) >= HIT * len(wanted) for unit in units(answer) if wanted)


def _compared(h: Any, name: str, asked: int, hits: int, times: list[float], tokens: int, failed: int) -> dict[str, Any]:
    prices = h.models.price_of(h.settings.model.name) if h.settings.model.name else None
    each = tokens / asked
    return {
        "name": name,
        "found": round(hits / asked, 3),
        "median_ms": round(percentile(times, 0.5), 1),
        "p95_ms": round(percentile(times, 0.95), 1),
        "tokens": round(each, 1),
        "usd": None if prices is None else round(each * prices.input / 1e6, 6),
        "failed": failed,
    }


def _cells(row: Mapping[str, Any]) -> list[str]:
    if "error" in row:
        return [row["name"], row["error"], "", "", "", "", ""]
    cost = "" if row["usd"] is None else f"${row['usd']:.6f}"
    return [
        *(row["name"], f"{row['found']:.0%}", f"{row['median_ms']:.0f} ms", f"{row['p95_ms']:.0f} ms"),
        *(f"{row['tokens']:.0f}", cost, str(row["failed"])),
    ]
