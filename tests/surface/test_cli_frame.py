"""The command line's frame: start-up, shared options, what is printed where, and how errors look."""

from __future__ import annotations

import json
import os
import pty
import select
import shlex
import subprocess
import sys
import time
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner, Result
from tests.homes import filled

import herma
from herma import Add, Author, Herma, Origin, Skill, Who
from herma.cli import main as entry
from herma.cli import output
from herma.cli.context import CommandContext, HermaCommand, HermaGroup, pass_context, yes_option
from herma.errors import ConfigError, HermaError, HermaWarning, StoreBusy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = (sys.executable, "-m", "herma.cli.main")


def start(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *args],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=os.environ | env,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def run_code(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def on_terminal(*args: str, answer: str = "", code: str = "", **env: str) -> tuple[int, str]:
    """Run the program, or some code, on a pseudo-terminal; → exit code and everything it showed."""
    master, slave = pty.openpty()
    command = [sys.executable, "-c", code, *args] if code else [*PROGRAM, *args]
    environ = os.environ | {"TERM": "xterm-256color", "COLUMNS": "100"} | env
    process = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=environ)
    os.close(slave)
    os.write(master, answer.encode())
    seen = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 0.1)[0]:
            try:
                part = os.read(master, 65536)
            except OSError:  # the other end is closed
                break
            if not part:
                break
            seen += part
    os.close(master)
    return process.wait(10), seen.decode()


# ── a command to try things with ────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def trial(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """`trial(function, *args)` runs `herma group try ARGS` with the function as the command's body."""

    def run(body: Callable[[CommandContext], object], *args: str, before: tuple[str, ...] = (), **more: Any) -> Result:
        @click.group(cls=HermaGroup)
        def group() -> None:
            """A group."""

        @group.command("try")
        @click.option("--number", type=int)
        @yes_option
        @pass_context
        def command(context: CommandContext, number: int | None) -> None:
            """Try."""
            body(context)

        module = type(sys)("herma_trial")
        module.group = group  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "herma_trial", module)
        monkeypatch.setitem(entry.COMMANDS, "group", entry.Lazy("herma_trial:group", "A group"))
        return CliRunner().invoke(entry.cli, [*before, "group", "try", *args], **more)

    return run  # type: ignore[return-value]


def fail_with(error: BaseException) -> Callable[[CommandContext], None]:
    def body(_: CommandContext) -> None:
        raise error

    return body


# ── starting ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_help_lists_every_command_and_loads_none() -> None:
    code = """if True:
        import sys
        from herma.cli import main
        sys.argv = ["herma", "--help"]
        try:
            main.main()
        finally:
            targets = {lazy.target.partition(":")[0] for lazy in main.COMMANDS.values()}
            print("LOADED", sorted((targets - {"herma.cli.main"}) & set(sys.modules)))
            print("HEAVY", sorted({"rich", "ruamel", "ruamel.yaml", "apsw", "herma.app"} & set(sys.modules)))
    """
    done = run_code(code)
    assert done.stderr == ""
    assert "LOADED []" in done.stdout
    assert "HEAVY []" in done.stdout
    *lines, _, _ = done.stdout.splitlines()
    assert len(lines) <= 40, "the help does not fit on one screen"
    for name, lazy in entry.FIRST.items():
        assert f"  {name:9} {lazy.help}" in lines
    assert not [line for line in lines if line.split()[:1] and line.split()[0] in entry.MORE]


def test_help_shows_every_command_or_one() -> None:
    everything = start("help", "--all").stdout
    for name, lazy in (entry.FIRST | entry.MORE).items():
        assert f" {name} {lazy.help}" in " ".join(everything.split())
    for text in ("_HERMA_COMPLETE", "0  done", "archive ", "delete ", "forget "):
        assert text in everything
    assert start("help", "config", "set").stdout == start("config", "set", "--help").stdout
    assert start("help", "config", "sett").returncode == 2


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (["old"], ["config", "unset"]),
        (["--home", "h", "--json", "old", "--debug"], ["--home", "h", "--json", "config", "unset", "--debug"]),
        (["old", "two", "x", "--y"], ["config", "set", "x", "--y"]),
        (["config", "old"], ["config", "old"]),
        ([], []),
    ],
)
def test_an_old_spelling_is_replaced(typed: list[str], meant: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry, "OLD_SPELLINGS", {"old": "config unset", "old two": "config set", "config unset": "x"})
    assert entry.current_spelling(typed, CommandContext()) == meant


def every_command() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []

    def walk(command: click.Command, path: str) -> None:
        found.append((path, command))
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                assert inner is not None
                walk(inner, f"{path} {name}")

    walk(entry.cli, "herma")
    return found


def test_every_command_has_examples_and_the_shared_options() -> None:
    for path, command in every_command():
        assert isinstance(command, HermaCommand | HermaGroup), path
        shown = CliRunner().invoke(entry.cli, [*path.split()[1:], "--help"])
        assert shown.exit_code == 0, path
        assert "\n  Examples:\n    " in shown.output, path
        for option in ("--json", "--home PATH", "--profile NAME", "--debug", "--help"):
            assert option in shown.output, path


def test_every_option_is_explained() -> None:
    for path, command in every_command():
        for option in command.params:
            assert not isinstance(option, click.Option) or option.help, (path, option.opts)


def test_every_example_is_taken_in_whole(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Parsed, not carried out. The ids and files in them are examples."""
    monkeypatch.setattr(HermaCommand, "invoke", lambda *_: None)
    for path, command in every_command():
        lines = [line.strip() for line in (command.help or "").splitlines()]
        for line in lines:
            if not line.startswith("herma "):
                continue
            words = shlex.split(line.partition(" | ")[0], comments=True)[1:]
            done = CliRunner().invoke(entry.cli, ["--home", str(home), *words])
            assert done.exit_code == 0 or "does not exist" in done.stderr, (path, line, done.stderr)


@pytest.mark.parametrize("args", [(), ("--help",)])
def test_without_a_command_the_help_is_shown(args: tuple[str, ...]) -> None:
    done = start(*args)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: herma ")
    assert start("config").stdout.startswith("Usage: herma config ")


def test_version() -> None:
    assert start("--version").stdout == f"herma {herma.__version__}\n"
    for words in (("--json", "--version"), ("--version", "--json")):
        assert json.loads(start(*words).stdout) == {"ok": True, "version": herma.__version__}


def test_completion() -> None:
    script = start(_HERMA_COMPLETE="bash_source")
    assert "_herma_completion" in script.stdout
    assert script.returncode == 0
    words = start(_HERMA_COMPLETE="bash_complete", COMP_WORDS="herma config s", COMP_CWORD="2").stdout
    assert words.split() == ["plain,show", "plain,set"]
    options = start(_HERMA_COMPLETE="bash_complete", COMP_WORDS="herma --ho", COMP_CWORD="1").stdout
    assert options.split() == ["plain,--home"]


def test_values_are_completed(home: Path) -> None:
    session = filled(home)[0]
    with Herma.open(home) as h:
        h.remember("The shop sells tea.", project="shop")
        h.memory.apply("memory", Add("The shop opens at nine."), author=Author(Who.TOOL, Origin.WEB))
        h.skills.create(Skill("bake", "Bake a loaf of bread.", "1. Mix. 2. Bake."))
    at = {"HERMA_HOME": str(home)}
    backup = json.loads(start("backup", "create", "--json", **at).stdout)["backup"]["name"]
    for line, typed, value in (
        ("undo", "", "m1"),
        ("log", "m", "m2"),
        ("inbox approve", "", "m1"),
        ("skills show", "b", "bake"),
        ("sessions show", "Garden", session),
        ("sessions delete", session[:8], session),
        ("memory list --project", "sh", "shop"),
        ("backup restore", "", backup),
        ("config set", "memory.wr", "memory.write_approval"),
    ):
        words = ["herma", *line.split(), typed]
        env = {"_HERMA_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
        assert f"plain,{value}" in start(**at, **env).stdout.split(), line


# ── shared options ──────────────────────────────────────────────────────────────────────────────────────────────

GIVEN = ("--json", "--home", "h", "--profile", "p", "--debug")


@pytest.mark.parametrize(("before", "after"), [(GIVEN, ()), ((), GIVEN), (GIVEN[:3], GIVEN[3:])])
def test_shared_options_stand_before_or_after_the_command(trial: Any, before: Any, after: Any) -> None:
    seen: list[object] = []
    done = trial(lambda c: seen.append((c.json, c.home, c.profile, c.debug, c.yes)), *after, before=before)
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [(True, "h", "p", True, False)]


def test_nothing_given_is_nothing_set_and_the_last_one_counts(trial: Any) -> None:
    seen: list[object] = []
    trial(lambda c: seen.append((c.json, c.home, c.profile, c.debug, c.yes)))
    trial(lambda c: seen.append((c.home, c.yes)), "--home", "inner", "--yes", before=("--home", "outer"))
    assert seen == [(False, None, None, False, False), ("inner", True)]


def test_debug_by_the_environment(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERMA_DEBUG", "1")
    assert "Traceback" in trial(fail_with(HermaError("No."))).stderr
    for off in ("", "0", "off"):
        monkeypatch.setenv("HERMA_DEBUG", off)
        assert "Traceback" not in trial(fail_with(HermaError("No."))).stderr


# ── errors ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("error", "sentence", "hint", "code"),
    [
        (HermaError("It broke.", hint="Mend it."), "It broke.", "Mend it.", 1),
        (HermaError("It broke."), "It broke.", "", 1),
        (ConfigError("Wrong.", hint="Right."), "Wrong.", "Right.", 2),
        (StoreBusy("Busy.", hint="Wait."), "Busy.", "Wait.", 3),
        (click.BadParameter("no good"), "Invalid value: no good", "`herma group try --help` shows how it is used.", 2),
        (click.ClickException("Hm."), "Hm.", "", 1),
        (
            click.ClickException("vi: Editing failed"),
            "The editor vi failed; nothing was changed.",
            "Set EDITOR to another one.",
            1,
        ),
        (KeyboardInterrupt(), "Stopped.", "", 130),
        (click.Abort(), "Stopped.", "", 130),
        (
            ZeroDivisionError("oh"),
            "Internal error: ZeroDivisionError: oh",
            "Run the command again with --debug, and report what it shows.",
            3,
        ),
        (AssertionError(), "Internal error: AssertionError", "Run the command again with --debug", 3),
    ],
)
def test_an_error_is_a_sentence_and_a_next_step(
    trial: Any, error: BaseException, sentence: str, hint: str, code: int
) -> None:
    plain = trial(fail_with(error))
    assert plain.exit_code == code
    assert plain.stdout == ""
    assert plain.stderr.startswith(f"herma: {sentence}\n" + (f"  → {hint}" if hint else ""))
    assert plain.stderr.count("\n") == (2 if hint else 1)
    assert "Traceback" not in plain.stderr

    as_json = trial(fail_with(error), "--json")
    assert as_json.exit_code == code
    assert as_json.stderr == plain.stderr
    told = json.loads(as_json.stdout)
    assert told["error"]["code"].replace("_", "").isalpha()
    assert (told["ok"], told["error"]["message"], told["kind"]) == (False, sentence, type(error).__name__)
    assert told["hint"].startswith(hint)

    debugged = trial(fail_with(error), "--debug")
    assert debugged.exit_code == code
    assert "Traceback (most recent call last)" in debugged.stderr
    assert f"herma: {sentence}\n" in debugged.stderr


@pytest.mark.parametrize(
    ("args", "sentence", "hint"),
    [
        (("confg",), "herma has no command 'confg'.", "Did you mean config?"),
        (("zzzzz",), "herma has no command 'zzzzz'.", "`herma --help` lists them."),
        (("config", "shwo"), "herma config has no command 'shwo'.", "Did you mean show?"),
        (("--jsno", "config"), "herma has no option --jsno.", "Did you mean --json?"),
        (("config", "show", "--hom", "x"), "herma config show has no option --hom.", "Did you mean --home?"),
        (("config", "unset"), "Missing argument 'KEY'.", "`herma config unset --help` shows how it is used."),
        (("config", "show", "x", "y"), "Got unexpected extra argument (y)", "`herma config show --help` shows"),
        (
            ("log", "--limit", "x"),
            "Invalid value for '--limit': 'x' is not a valid integer range.",
            "`herma log --help`",
        ),
        (("--home",), "Option '--home' requires an argument.", "`herma --help` shows how it is used."),
        (("--json",), "Missing command.", "`herma --help` shows how it is used."),
    ],
)
def test_wrong_usage_has_the_same_form(args: tuple[str, ...], sentence: str, hint: str) -> None:
    done = start(*args)
    assert done.returncode == 2
    assert done.stderr.startswith(f"herma: {sentence}\n  → {hint}")
    as_json = start(*args, "--json") if args != ("--home",) else start("--json", *args)
    assert json.loads(as_json.stdout)["error"]["message"] == sentence
    assert as_json.returncode == 2


def test_what_stands_behind_two_dashes_is_no_option() -> None:
    done = start("config", "show", "--path", "--", "--json", "--debug")
    assert done.returncode == 2
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_command_may_end_with_its_own_code(trial: Any) -> None:
    assert trial(lambda c: c.exit(3)).exit_code == 3
    assert trial(lambda c: c.fail("Not now.", "Later.")).stderr == "herma: Not now.\n  → Later.\n"


def test_interrupt_from_the_keyboard(home: Path) -> None:
    code = """if True:
        import os, signal, sys
        from herma.cli import main, settings as config
        signal.signal(signal.SIGINT, signal.default_int_handler)  # a program in the background ignores it
        config.show.callback = lambda *_, **__: os.kill(os.getpid(), signal.SIGINT)
        sys.argv[1:] = ["config", "show"]
        main.main()
    """
    done = run_code(code)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "herma: Stopped.\n")


@pytest.mark.parametrize("args", [("config", "show"), ("config", "show", "--json"), ("--help",), ("--json", "confg")])
def test_a_reader_that_has_gone_is_no_error(args: tuple[str, ...]) -> None:
    read, write = os.pipe()
    os.close(read)
    buffered = os.environ | {"PYTHONUNBUFFERED": ""}  # the interpreter flushes once more at its end
    done = subprocess.run([*PROGRAM, *args], stdout=write, stderr=subprocess.PIPE, text=True, check=False, env=buffered)
    os.close(write)
    assert done.returncode == 141
    assert done.stderr in ("", "herma: herma has no command 'confg'.\n  → Did you mean config?\n")


# ── printing ────────────────────────────────────────────────────────────────────────────────────────────────────

EVIL = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r[bold red]x[/] \u202eabc \ud83d :smile:"
SHOWN = "\\x1b]0;owned\\x07\\x1b[2J\\x9b31m\\x7f\\x0d[bold red]x[/] \\u202eabc \\ud83d :smile:"


def test_text_cannot_steer_the_terminal(trial: Any) -> None:
    def body(context: CommandContext) -> None:
        context.line(EVIL)
        context.table(["a"], [[EVIL]])
        context.warn(EVIL)
        context.fail(EVIL, EVIL)

    done = trial(body)
    assert done.stdout == f"{SHOWN}\na\n{SHOWN}\n"
    assert done.stderr == f"warning: {SHOWN}\nherma: {SHOWN}\n  → {SHOWN}\n"
    debugged = trial(body, "--debug")
    assert not set(debugged.output) & set("\x1b\x07\x9b\x7f\r\u202e")


def test_text_cannot_steer_a_real_terminal_either() -> None:
    code = f"""if True:
        from herma.cli.context import CommandContext
        context = CommandContext()
        context.line({EVIL!r})
        context.table(["a", "b"], [[{EVIL!r}, "x"]])
        with context.progress({EVIL!r}, 2) as report:
            report(2)
    """
    status, seen = on_terminal(code=code, COLUMNS="200")
    assert status == 0
    for forbidden in ("\x1b]", "\x1b[2J", "\x9b", "\x7f", "\u202e", "owned\x07"):
        assert forbidden not in seen
    assert seen.count("[bold red]x[/]") >= 3


def test_json_says_everything_and_stays_harmless(trial: Any) -> None:
    @dataclass(frozen=True, slots=True)
    class Thing:
        path: Path
        who: Who
        rest: tuple[int, ...]

    value = {
        "evil": EVIL,
        "thing": Thing(Path("/x"), Who.USER, (1,)),
        "set": {2, 1},
        "text": "日本語",
        "map": os.environ,
    }
    done = trial(lambda c: c.print_json(value))
    assert "日本語" in done.stdout
    assert not set(done.stdout) & set("\x1b\x07\x9b\x7f\r\u202e\ud83d")
    told = json.loads(done.stdout)
    assert told["evil"] == EVIL
    assert told["thing"] == {"path": "/x", "who": "user", "rest": [1]}
    assert told["set"] == [1, 2]
    assert told["map"] == dict(os.environ)


def test_json_refuses_what_it_cannot_say(trial: Any) -> None:
    assert "object has no place in JSON" in trial(lambda c: c.print_json({"x": object()})).stderr


def test_with_json_nothing_else_is_on_stdout(trial: Any) -> None:
    def body(context: CommandContext) -> None:
        context.line("for people")
        context.table(["a"], [["b"]])
        with context.progress("Working", 1) as report:
            report(1)
        context.warn("careful")
        context.print_json([1])

    done = trial(body, "--json")
    assert json.loads(done.stdout) == [1]
    assert done.stderr == "Working: 1 of 1\nwarning: careful\n"


def test_a_plain_table_is_aligned_even_with_wide_characters(trial: Any) -> None:
    done = trial(lambda c: c.table(["name", "n", "x"], [["日本", 1, "end"], ["é́", 22, ""], ["a\nb\tc", 3, "z"]]))
    assert done.stdout.splitlines() == [
        "name     n   x",
        "日本     1   end",
        "é́        22",
        "a ⏎ b c  3   z",
    ]


def test_a_terminal_gets_styles_and_no_color_takes_them_away() -> None:
    status, seen = on_terminal("config", "show")
    assert status == 0
    assert "\x1b[1m" in seen
    assert "memory.memory_char_limit" in seen
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        status, seen = on_terminal("config", "show", **env)
        assert status == 0
        assert "\x1b" not in seen
        assert "memory.memory_char_limit" in seen
    assert "\x1b" not in start("config", "show").stdout


def test_an_error_is_red_on_a_terminal_only() -> None:
    assert "\x1b[1;31mherma:\x1b[0m herma has no" in on_terminal("confg")[1]
    assert "\x1b" not in on_terminal("confg", NO_COLOR="1")[1]
    assert "\x1b" not in start("confg").stderr


def test_an_old_encoding_is_no_reason_to_fail() -> None:
    done = start("confg", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert done.returncode == 2
    assert done.stderr == "herma: herma has no command 'confg'.\n  \\u2192 Did you mean config?\n"


def test_arguments_that_are_not_text_are_reported() -> None:
    done = subprocess.run([*PROGRAM, b"\xff\x1b[2J"], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"\x1b" not in done.stderr
    assert b"has no command" in done.stderr


def test_progress_as_lines(trial: Any) -> None:
    def body(context: CommandContext) -> None:
        with context.progress("Reading", 100) as report:
            for done in range(0, 96, 5):
                report(done)

    lines = trial(body).stderr.splitlines()
    assert lines == [f"Reading: {n} of 100" for n in (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)]


def test_progress_without_a_total_is_said_now_and_then(trial: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def body(context: CommandContext) -> None:
        with context.progress("Reading") as report:
            for done in range(1, 1000):
                report(done)
            monkeypatch.setattr(output, "_LINES_EVERY", 0.0)
            report(1000)
            report(1001, 2000)

    assert trial(body).stderr.splitlines() == ["Reading: 1000", "Reading: 1001 of 2000"]


def test_progress_as_a_bar() -> None:
    code = """if True:
        from herma.cli.context import CommandContext
        with CommandContext().progress("Reading", 3) as report:
            report(1)
            report(3, 3)
    """
    status, seen = on_terminal(code=code)
    assert status == 0
    assert "Reading" in seen
    assert "3/3" in seen


# ── asking ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_without_a_terminal_only_yes_is_an_answer(trial: Any) -> None:
    seen: list[bool] = []
    done = trial(lambda c: seen.append(c.confirm("Really?")), input="y\n")
    assert done.exit_code == 2
    assert done.stderr == (
        "herma: Really?\n  → Not running in a terminal, so Herma cannot ask; add --yes to confirm.\n"
    )
    assert trial(lambda c: seen.append(c.confirm("Really?")), "--yes").exit_code == 0
    assert seen == [True]


@pytest.mark.parametrize(
    ("answer", "expected"), [("y\n", True), ("Yes\n", True), ("\n", False), ("n\n", False), ("\x04", False)]
)
def test_on_a_terminal_the_question_is_asked(answer: str, expected: bool) -> None:
    code = "from herma.cli.context import CommandContext; print('ANSWER', CommandContext().confirm('Really? \\x1b[2J'))"
    status, seen = on_terminal(code=code, answer=answer)
    assert status == 0
    assert "Really? \\x1b[2J [y/N] " in seen
    assert f"ANSWER {expected}" in seen


# ── warnings ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_our_warnings_are_one_line_each_and_others_are_left_alone(trial: Any) -> None:
    before = warnings.showwarning, list(warnings.filters)

    def body(_: CommandContext) -> None:
        for text in ("slow disk", "slow disk", "old index"):
            warnings.warn(text, HermaWarning, stacklevel=1)
        with pytest.raises(UserWarning, match="foreign"):  # this suite turns warnings into errors
            warnings.warn("foreign", UserWarning, stacklevel=1)

    done = trial(body)
    assert done.exit_code == 0
    assert done.stderr == "warning: slow disk\nwarning: old index\n"
    assert (warnings.showwarning, list(warnings.filters)) == before


def test_foreign_warnings_are_shown_as_ever() -> None:
    code = """if True:
        import sys, warnings
        from herma.cli import main, settings as config
        config.show.callback = lambda *_, **__: warnings.warn("foreign", UserWarning)
        sys.argv[1:] = ["config", "show"]
        main.main()
    """
    done = run_code(code)
    assert done.returncode == 0
    assert "UserWarning: foreign" in done.stderr


# ── settings and the memory ─────────────────────────────────────────────────────────────────────────────────────


def test_settings_are_read_once_and_mistakes_said_once(trial: Any, home: Path) -> None:
    (home / "config.yaml").write_text("memory: {provder: x}\nagent: {x: 1}\n")

    def body(context: CommandContext) -> None:
        assert context.settings() is context.settings()
        assert context.settings().home == home

    done = trial(body, "--home", str(home))
    assert done.exit_code == 0
    assert done.stderr == (
        f"warning: memory.provder in {home / 'config.yaml'}, line 1 is not a known key; did you mean memory.provider?\n"
    )


def test_open_hands_over_home_profile_and_flags(trial: Any, home: Path) -> None:
    def body(context: CommandContext) -> None:
        context.flags["memory.inbox_days"] = 3
        with context.open() as opened:
            context.line(f"{opened.home} {opened.settings.profile} {opened.settings.memory.inbox_days}")

    done = trial(body, "--home", str(home), "--profile", "p")
    assert (done.stdout, done.stderr) == (f"{home}/profiles/p p 3\n", "")
    (home / "config.yaml").write_text("memory: {provder: x}\n")
    assert "did you mean memory.provider?" in trial(body, "--home", str(home)).stderr
    (home / "config.yaml").write_text("memory: [")
    assert trial(body, "--home", str(home)).exit_code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("more", [(), ("--json",)])
def test_output_that_does_not_fit_is_said_plainly(more: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "config", "show", *more], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr.startswith("herma: Cannot write the output: ")
    assert "Internal" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_a_closed_output_is_no_error(closed: str, home: Path) -> None:
    line = shlex.join([*PROGRAM, "config", "show", "--home", str(home)])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
