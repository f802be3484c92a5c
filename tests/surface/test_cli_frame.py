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
from click.shell_completion import BashComplete
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


def typed(*args: str, **more: Any) -> Result:
    """Run a command line in this process."""
    return CliRunner().invoke(entry.cli, list(args), **more)


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


def test_without_a_command_help_and_the_version() -> None:
    for args in ((), ("--help",)):
        assert typed(*args).stdout.startswith("Usage: herma ")
    assert typed("config").stdout.startswith("Usage: herma config ")
    assert start("--version").stdout == f"herma {herma.__version__}\n"
    for both in (("--json", "--version"), ("--version", "--json")):
        assert json.loads(typed(*both).stdout) == {"ok": True, "version": herma.__version__}


def test_completion(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = start(_HERMA_COMPLETE="bash_source")
    assert "_herma_completion" in script.stdout
    session = filled(home)[0]
    with Herma.open(home) as h:
        h.remember("The shop sells tea.", project="shop")
        h.memory.apply("memory", Add("The shop opens at nine."), author=Author(Who.TOOL, Origin.WEB))
        h.skills.create(Skill("bake", "Bake a loaf of bread.", "1. Mix. 2. Bake."))
    monkeypatch.setenv("HERMA_HOME", str(home))
    backup = json.loads(typed("backup", "create", "--json").stdout)["backup"]["name"]
    complete = BashComplete(entry.cli, {}, "herma", "_HERMA_COMPLETE").get_completions
    for line, begun, value in (
        ("config", "s", "show"),
        ("", "--ho", "--home"),
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
        assert value in [one.value for one in complete(line.split(), begun)], line


def test_every_command_has_examples_and_the_shared_options() -> None:
    for path, command in every_command():
        assert isinstance(command, HermaCommand | HermaGroup), path
        shown = CliRunner().invoke(entry.cli, [*path.split()[1:], "--help"])
        assert shown.exit_code == 0, path
        assert "\n  Examples:\n    " in shown.output, path
        for shared in ("--json", "--home PATH", "--profile NAME", "--debug", "--help"):
            assert shared in shown.output, path
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


# ── shared options ──────────────────────────────────────────────────────────────────────────────────────────────

GIVEN = ("--json", "--home", "h", "--profile", "p", "--debug")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (GIVEN, (), (True, "h", "p", True, False)),
        ((), GIVEN, (True, "h", "p", True, False)),
        (GIVEN[:3], GIVEN[3:], (True, "h", "p", True, False)),
        ((), (), (False, None, None, False, False)),
        (("--home", "outer"), ("--home", "inner", "--yes"), (False, "inner", None, False, True)),
    ],
)
def test_shared_options_stand_before_or_after_the_command(trial: Any, before: Any, after: Any, expected: Any) -> None:
    seen: list[object] = []
    done = trial(lambda c: seen.append((c.json, c.home, c.profile, c.debug, c.yes)), *after, before=before)
    assert (done.exit_code, done.output) == (0, "")
    assert seen == [expected]


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
        (
            NotADirectoryError(20, "Not a directory", "/dev/null/x"),
            "Cannot use /dev/null/x: Not a directory.",
            "Check the path and its permissions.",
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

    for debugged in (trial(fail_with(error), "--debug"), trial(fail_with(error), env={"HERMA_DEBUG": "1"})):
        assert debugged.exit_code == code
        assert "Traceback (most recent call last)" in debugged.stderr
        assert f"herma: {sentence}\n" in debugged.stderr
    assert trial(fail_with(error), env={"HERMA_DEBUG": "off"}).stderr == plain.stderr


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
            "Invalid value for '--limit': 'x' is not a number.",
            "`herma log --help`",
        ),
        (("log", "--limit", "0"), "Invalid value for '--limit': 0 is not between 1 and 1000000.", "`herma log --help`"),
        (
            ("backup", "verify", "pyproject.toml"),
            "pyproject.toml is not a backup: the name of a backup ends with .tar.zst.",
            "`herma backup list` shows them all.",
        ),
        (("providers", "test", "nosuch"), "There is no memory provider 'nosuch'.", "There are: byterover"),
        (("forget",), "Give one of --match, --session and --user; nothing was changed.", "For example: herma forget"),
        (("--home",), "Option '--home' requires an argument.", "`herma --help` shows how it is used."),
        (("--json",), "Missing command.", "`herma --help` shows how it is used."),
    ],
)
def test_wrong_usage_has_the_same_form(args: tuple[str, ...], sentence: str, hint: str) -> None:
    done = typed(*args)
    assert done.exit_code == 2
    assert done.stderr.startswith(f"herma: {sentence}\n  → {hint}")
    as_json = typed(*args, "--json") if args != ("--home",) else typed("--json", *args)
    assert json.loads(as_json.stdout)["error"]["message"] == sentence
    assert as_json.exit_code == 2


def test_arguments_that_are_odd() -> None:
    done = typed("config", "show", "--path", "--", "--json", "--debug")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "Traceback" not in done.stderr
    old = start("confg", PYTHONIOENCODING="ascii", PYTHONUTF8="0")
    assert (old.returncode, old.stderr) == (
        2,
        "herma: herma has no command 'confg'.\n  \\u2192 Did you mean config?\n",
    )
    raw = subprocess.run([*PROGRAM, b"\xff\x1b[2J"], capture_output=True, check=False)
    assert raw.returncode == 2
    assert b"\x1b" not in raw.stderr
    assert b"has no command" in raw.stderr


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


@pytest.mark.parametrize("args", [("config", "show"), ("--json", "confg")])
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
    assert done.exit_code == 1
    assert done.stdout == f"{SHOWN}\na\n{SHOWN}\n"
    assert done.stderr == f"warning: {SHOWN}\nherma: {SHOWN}\n  → {SHOWN}\n"
    debugged = trial(body, "--debug")
    assert not set(debugged.output) & set("\x1b\x07\x9b\x7f\r\u202e")


def test_a_real_terminal_gets_styles_bars_and_questions_but_no_foreign_control() -> None:
    code = f"""if True:
        from herma.cli.context import CommandContext
        context = CommandContext()
        context.line({EVIL!r})
        context.table(["a", "b"], [[{EVIL!r}, "x"]])
        with context.progress({EVIL!r}, 3) as report:
            report(1)
            report(3, 3)
        print('ANSWERS', [context.confirm('Really? \\x1b[2J') for _ in range(5)])
    """
    status, seen = on_terminal(code=code, answer="y\nYes\n\nn\n\x04", COLUMNS="200")
    assert status == 0
    for forbidden in ("\x1b]", "\x1b[2J", "\x9b", "\x7f", "\u202e", "owned\x07"):
        assert forbidden not in seen
    assert seen.count("[bold red]x[/]") >= 3
    assert "3/3" in seen
    assert "Really? \\x1b[2J [y/N] " in seen
    assert "ANSWERS [True, True, False, False, False]" in seen
    assert "\x1b[1m" in on_terminal("config", "show")[1]
    assert "\x1b[1;31mherma:\x1b[0m herma has no" in on_terminal("confg")[1]
    for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        status, seen = on_terminal("config", "show", **env)
        assert (status, "\x1b" in seen, "memory.memory_char_limit" in seen) == (0, False, True)
    assert "\x1b" not in typed("config", "show").stdout + typed("confg").stderr


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
    assert "object has no place in JSON" in trial(lambda c: c.print_json({"x": object()})).stderr


def test_progress_is_lines_in_a_pipe_and_nothing_else_is_beside_json(
    trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(context: CommandContext) -> None:
        context.line("for people")
        context.table(["a"], [["b"]])
        with context.progress("Reading", 100) as report:
            for done in range(0, 96, 5):
                report(done)
        with context.progress("Looking") as report:
            for done in range(1, 1000):
                report(done)
            monkeypatch.setattr(output, "_LINES_EVERY", 0.0)
            report(1000)
            report(1001, 2000)
        context.print_json([1])

    done = trial(body, "--json")
    assert json.loads(done.stdout) == [1]
    tenths = [f"Reading: {n} of 100" for n in (10, 20, 30, 40, 50, 60, 70, 80, 90, 95)]
    assert done.stderr.splitlines() == [*tenths, "Looking: 1000", "Looking: 1001 of 2000"]


def test_a_plain_table_is_aligned_even_with_wide_characters(trial: Any) -> None:
    done = trial(lambda c: c.table(["name", "n", "x"], [["日本", 1, "end"], ["é́", 22, ""], ["a\nb\tc", 3, "z"]]))
    assert done.stdout.splitlines() == [
        "name     n   x",
        "日本     1   end",
        "é́        22",
        "a ⏎ b c  3   z",
    ]


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
    code = """if True:
        import sys, warnings
        from herma.cli import main, settings as config
        config.show.callback = lambda *_, **__: warnings.warn("foreign", UserWarning)
        sys.argv[1:] = ["config", "show"]
        main.main()
    """
    assert "UserWarning: foreign" in run_code(code).stderr


# ── settings and the memory ─────────────────────────────────────────────────────────────────────────────────────


def test_open_hands_over_home_profile_and_flags(trial: Any, home: Path) -> None:
    def body(context: CommandContext) -> None:
        context.flags["memory.inbox_days"] = 3
        with context.open() as opened:
            context.line(f"{opened.home} {opened.settings.profile} {opened.settings.memory.inbox_days}")

    done = trial(body, "--home", str(home), "--profile", "p")
    assert (done.stdout, done.stderr) == (f"{home}/profiles/p p 3\n", "")
    (home / "config.yaml").write_text("memory: {provder: x}\nagent: {x: 1}\n")
    where = f"memory.provder in {home / 'config.yaml'}, line 1"
    said = f"warning: {where} is not a known key; did you mean memory.provider?\n"
    assert trial(body, "--home", str(home)).stderr == said
    (home / "config.yaml").write_text("memory: [")
    assert trial(body, "--home", str(home)).exit_code == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
def test_output_that_does_not_fit_is_said_plainly() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*PROGRAM, "config", "show", "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr.startswith("herma: Cannot write the output: ")
    assert "Internal" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("closed", [">&-", "2>&-"])
def test_a_closed_output_is_no_error(closed: str, home: Path) -> None:
    line = shlex.join([*PROGRAM, "config", "show", "--home", str(home)])
    done = subprocess.run(["sh", "-c", f"{line} {closed}"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
