"""`herma chat` at a real terminal, with a model over real HTTP."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.homes import talk

from herma import Add, Herma
from herma.testing import Answer, Asked, ScriptedModel

if sys.platform == "win32":
    pytest.skip("there are no pseudo-terminals", allow_module_level=True)

from tests.surface.terminal import ALT_ENTER, CTRL_C, CTRL_D, PATIENCE, Terminal

Chat = Callable[..., Terminal]
PASTE, PASTED = "\x1b[200~", "\x1b[201~"
pytestmark = pytest.mark.slow


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    with ScriptedModel() as made:
        yield made


@pytest.fixture
def chat(home: Path, model: ScriptedModel, tmp_path: Path) -> Iterator[Chat]:
    """Starts a chat, and waits until it is ready."""
    (home / "config.yaml").write_text(f"model:\n  url: {model.url}\n  name: m\n  retries: 0\n")
    with ExitStack() as stack:

        def start(*words: str, **options: Any) -> Terminal:
            made: Terminal = stack.enter_context(
                Terminal(["chat", *words, "--home", str(home)], {"NO_COLOR": "1"}, **options)
            )
            made.wait_for("herma 0")
            made.wait_for(">")
            return made

        yield start


def ask(t: Terminal, said: str, *expected: str, sign: str = ">") -> None:
    """Say something, wait for what is shown, and for the next prompt."""
    t.say(said)
    for text in (*expected, sign):
        t.wait_for(text)


def leave(t: Terminal) -> None:
    t.press(CTRL_D)
    assert t.leave() == 0


def messages(home: Path) -> list[list[tuple[str, str]]]:
    """Every conversation as it is stored, the latest first: who said what."""
    with Herma.open(home) as h:
        return [
            [(one.role, str(one.content)) for one in h.transcripts.messages(info.id)]
            for info in h.transcripts.list(limit=10)
        ]


def test_a_turn_a_tool_and_leaving(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(
        Answer("# Welcome\n\nHello **there**.\n\n```\nx = 1\n```\n", piece=5),
        Answer.calling("memory", {"action": "add", "target": "user", "content": "The user drinks tea."}),
        "Noted.",
        "\x1b]0;owned\x07 \x1b[2J bell\x07 [link](http://evil.example/x)",
    )
    with chat() as t:
        t.wait_for("m")  # the line below the prompt
        t.say("Hi!")
        t.wait_for("Hello there.")
        t.wait_for("x = 1")
        t.wait_for("of 32k tokens")
        ask(t, "I drink tea.", "→ memory add", "Noted.")
        ask(t, "Steer.", "\\x1b[2J", "http://evil.example/x")
        leave(t)
    assert "**" not in t.text
    assert "\x1b[3" not in t.raw.decode()  # no colours: NO_COLOR
    assert b"owned\x07" not in t.raw
    assert b"\x1b]8" not in t.raw
    (conversation,) = messages(home)
    assert [role for role, _ in conversation][:6] == ["user", "assistant", "user", "assistant", "tool", "assistant"]
    assert "The user drinks tea." in (home / "memories" / "USER.md").read_text()
    assert (home / "chat_history").stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("chat")
def test_without_the_library_it_says_what_to_type(home: Path) -> None:
    code = "import sys; sys.modules['prompt_toolkit'] = None; from herma.cli.main import main; main()"
    with Terminal(["chat", "--home", str(home)], program=("-c", code)) as t:
        t.wait_for("pip install")
        assert t.leave() == 2


def test_commands_before_the_first_message(chat: Chat, model: ScriptedModel, home: Path) -> None:
    with chat() as t:
        t.press("/he")
        t.wait_for("Show this list.")
        t.press("\t")
        ask(t, "", "Remove the last turn")
        for typed, drawn in (
            ("/serch x", "Did you mean /search?"),
            ("/memory add The user's cat is called Möhre.", "Entry added."),
            ("/memory", "Möhre"),
            ("/search cat", "Read as"),
            ("/tools", "session_search"),
            ("/cost", "No calls yet"),
            ("/cost everything", "'everything' is not an option of /cost"),
            ("/compress", "nothing to compress"),
            ("/help nonsense", "There is no command /nonsense"),
            ("/branch", "nothing to branch"),
            ("/undo", "nothing to undo"),
            ("/retry", "no message to retry"),
            ("/search", "nothing to search for"),
            ("/new A talk about tea", "New conversation"),
            ("/title", "Title: A talk about tea"),
            ("/memory reset", "[y/N]"),
        ):
            ask(t, typed, drawn, sign="" if "[y/N]" in drawn else ">")
        t.press("y\r")  # a command that asks reads a line
        t.wait_for(">")
        leave(t)
    assert "Saved to MEMORY.md" not in t.text  # the command has said it
    assert model.requests == []
    assert messages(home) == []
    with Herma.open(home) as h:
        assert h.memory.entries("memory") == h.memory.entries("user") == []


def test_commands_in_a_conversation(chat: Chat, home: Path) -> None:
    (home / "skills" / "deploy").mkdir(parents=True)
    (home / "skills" / "deploy" / "SKILL.md").write_text(
        "---\nname: deploy\ndescription: How to deploy the shop.\n---\nPush the button.\n"
    )

    def script(asked: Asked) -> str:
        return "A long answer. " + "word " * 300 if asked.stream else "Goal: talk.\nDone: much."

    with ScriptedModel(script) as long:
        (home / "config.yaml").write_text(f"model:\n  url: {long.url}\n  name: m\n  retries: 0\n")
        with chat() as t:
            for number in range(6):
                t.say(f"Question {number}: " + "please " * 40)
                t.wait_for("A long answer.")
                t.wait_for("of 32k tokens")
            for command, drawn in (
                ("/skills", "deploy"),
                ("/skills find deploy the shop", "deploy"),
                ("/cost", "calls"),
                ("/compress --preview here 2", "Nothing was changed."),
                ("/compress --all", "--all is not an option"),
                ("/compress here 99", "nothing before the turns"),
                ("/compress here 2 the shop", "ompressed"),
                ("/title", "No title"),
                ("/nonsense", "There is no command /nonsense."),
                ("/undo x", "is not a number of turns"),
                ("/branch 0", "For example: /branch 2"),
                ("/branch 99", "a branch needs"),
                ("/undo 99", "cannot be removed"),
                ("/resume nothing-like-it", "nothing-like-it"),
            ):
                t.say(command)
                t.wait_for(drawn)
                t.wait_for("of 32k tokens")
            leave(t)
    assert "Internal error" not in t.text


def test_what_is_typed_ahead_of_a_failure_is_not_sent_by_itself(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(
        Answer.failing(500, wait=1.0),
        "Now it works.",
        Answer("one two three four. ", piece=4, pause=0.05, endless=True),
        "Fine.",
    )
    with chat() as t:
        t.say("one")
        t.press("two\rthree\r")
        t.wait_for("Your message is stored")
        t.wait_for("three")
        t.wait_for_prompt()
        t.press(CTRL_C)  # away with it
        ask(t, "/retry", "Now it works.")
        t.say("four")
        t.wait_for("two three")
        t.press("five\rsix\r")
        t.press(CTRL_C)
        t.wait_for("Stopped.")
        t.wait_for("six")  # Ctrl-C costs nothing of what was typed
        ask(t, "!", "Fine.")
        leave(t)
    (conversation,) = messages(home)
    assert conversation[:2] == [("user", "one"), ("assistant", "Now it works.")]
    assert [text for role, text in conversation if role == "user"] == ["one", "four", "five\nsix!"]


def test_the_window_changes_and_bytes_that_are_no_text(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(Answer("word " * 200, piece=20, pause=0.01), "Fine.")
    with chat(size=(12, 60)) as t:
        t.say("Talk.")
        t.wait_for("word")
        t.resize(30, 40)
        os.kill(t.process.pid, signal.SIGWINCH)
        t.wait_for("of 32k tokens")
        t.press("caf\udce9 ")
        ask(t, "?", "Fine.")
        leave(t)
    (conversation,) = messages(home)
    assert conversation[0] == ("user", "Talk.")
    assert conversation[2][1].startswith("caf")


def test_ctrl_c_stops_the_answer_and_not_the_program(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(Answer("one two three four five. ", piece=5, pause=0.02, endless=True), "Fine.")
    with chat() as t:
        t.say("Count.")
        t.wait_for("three")
        t.press(CTRL_C)
        t.wait_for("Stopped.")
        assert model.requests[0].hung_up.wait(10)
        t.wait_for(">")
        ask(t, "Are you there?", "Fine.")
        t.press(CTRL_C)
        t.wait_for("again")
        t.wait_for(">")
        t.press(CTRL_C)
        assert t.leave() == 0
    (conversation,) = messages(home)
    assert conversation[1][1].startswith("one two three")
    assert conversation[1][1].endswith("[This reply was interrupted.]")
    assert conversation[-1] == ("assistant", "Fine.")


def test_taking_back_and_editing(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("First.", "Second.", "Third.")
    with chat() as t:
        ask(t, "one", "First.")
        ask(t, "twwo", "Second.")
        t.say("/undo")
        t.wait_for("Removed the last turn.")
        t.wait_for("twwo")
        t.press("\x7f" * 4 + "two")
        ask(t, "", "Third.")
        ask(t, "/undo 7", "cannot be removed")
        t.say("/quit")
        assert t.leave() == 0
    (conversation,) = messages(home)
    assert [text for _, text in conversation] == ["one", "First.", "two", "Third."]


def test_going_on_with_an_earlier_one(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("Blue.", "Yes, blue.", "A new one.", "Back again.")
    with chat() as t:
        ask(t, "My colour is blue.", "Blue.")
        t.press("\x1b[A")  # what was typed before stands there again
        t.wait_for("My colour is blue.")
        t.press(CTRL_C)
        ask(t, "/title Colours", "Title: Colours")
        leave(t)
    with chat("--continue") as t:
        assert "Colours" in t.text
        t.press("\x1b[A\x1b[A")  # and in the next run
        t.wait_for("My colour is blue.")
        t.press(CTRL_C)
        t.say("Which colour?")
        t.wait_for("Yes, blue.")
        assert "My colour is blue." in str(model.requests[-1].messages)
        t.wait_for(">")
        ask(t, "/new", "New conversation,")
        t.say("Hello")
        t.wait_for("A new one.")
        assert "colour" not in str(model.requests[-1].messages[1:])
        t.wait_for(">")
        ask(t, "/resume", "Colours", "/search")
        ask(t, "/resume 2", "Continuing: Colours")
        ask(t, "And now?", "Back again.")
        ask(t, "/branch 1", "Branched. The original")
        t.say("/exit")
        assert t.leave() == 0
    assert len(messages(home)) == 3


def test_several_lines_and_pasted_text(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("Got it.", "Both.", "Huge.")
    pasted = "".join(f"line {number}\r" for number in range(20_000))
    with chat() as t:
        t.press(f"first{ALT_ENTER}second\\\rthird")
        ask(t, "", "Got it.")
        t.press(f"{PASTE}a\rb\r{PASTED}")
        ask(t, "c", "Both.")
        t.press(PASTE)
        for at in range(0, len(pasted), 1000):  # a terminal holds no more at once
            t.press(pasted[at : at + 1000])
            t.drain()
        t.press(PASTED)
        ask(t, "end", "Huge.")
        leave(t)
    (conversation,) = messages(home)
    assert [text for role, text in conversation if role == "user"][:2] == ["first\nsecond\nthird", "a\nb\nc"]
    huge = [text for role, text in conversation if role == "user"][2]
    assert huge.count("\n") == 20_000
    assert (home / "chat_history").stat().st_size < 10_000


def test_resume_by_the_sessions_command(home: Path, model: ScriptedModel, chat: Chat) -> None:
    with Herma.open(home) as h, h.session(title="Login bug", source="cli") as s:
        talk(s, "It fails.", reply="Why?\n\nNext steps:\n- look into cookies.py")
    model.then("I see.")
    with Terminal(["sessions", "resume", "login", "--home", str(home)]) as t:
        t.wait_for("Login bug")
        t.wait_for("State of the work on")  # before anything else is said
        t.wait_for("look into cookies.py")
        t.wait_for(">")
        ask(t, "Because of the cookie.", "I see.")
        ask(t, "/new", "New conversation,")
        ask(t, "/resume login", "Continuing: Login bug", "State of the work on")
        leave(t)
    assert len(messages(home)) == 1


def test_after_a_crash_the_question_is_still_there(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(Answer("never comes", wait=600), "There you are.")
    with chat() as t:
        t.say("Hello?")
        t.wait_for("(Ctrl-C stops)")
        while not model.requests:
            t.drain(0.05)
        t.process.kill()
        t.leave()
    with chat("--continue") as t:
        assert "has no answer yet" in t.text
        ask(t, "/retry", "There you are.")
        leave(t)
    (conversation,) = messages(home)
    assert conversation == [("user", "Hello?"), ("assistant", "There you are.")]


def test_tools_of_servers_and_what_others_write(chat: Chat, home: Path, model: ScriptedModel) -> None:
    script = Path(__file__).parent.parent / "path" / "mcp_server.py"
    with (home / "config.yaml").open("a") as file:
        file.write(
            f"mcp_servers:\n  weather:\n    command: {sys.executable}\n    args: [{script}, stdio]\n"
            f"    connect_timeout: 60\n  gone:\n    command: no-such-program-anywhere\n"
        )
    model.then(
        Answer.calling("weather__forecast", {"city": "Bonn"}),
        "Rain.",
        Answer.calling("weather__patient", {}),
        "Still here.",
    )
    with chat() as t:
        t.say("Weather?")
        t.wait_for("gone is not used")
        t.wait_for("→ weather__forecast city=Bonn")
        t.wait_for("Rain.")
        t.wait_for_prompt()  # nothing new is looked for until the next one
        with Herma.open(home) as h:
            h.memory.apply("memory", Add("The station is closed on Mondays."))
        t.say("Wait for it.")  # the first thing that is said after it
        t.wait_for("weather__patient")
        t.press(CTRL_C)
        t.wait_for("Stopped.")
        t.wait_for("Saved to MEMORY.md: The station is closed on Mondays.")
        t.wait_for(">")
        ask(t, "/tools", "MCP server weather: connected", "MCP server gone: failed")
        ask(t, "And?", "Still here.")
        leave(t)


def test_what_is_typed_ahead_is_sent_message_by_message(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then(Answer("Thinking about it. ", piece=4, pause=0.1), "About two.", "About three.", "About four.")
    with chat() as t:
        t.say("one")
        t.wait_for("Think")
        t.press("two\rthree\r")
        t.press(f"{PASTE}four\nand its second line{PASTED}\r")
        t.wait_for("About four.")
        t.wait_for(">")
        leave(t)
    (conversation,) = messages(home)
    asked = [text for role, text in conversation if role == "user"]
    assert asked == ["one", "two", "three", "four\nand its second line"]


SLOW = """
import time
from herma import MemoryProvider

class Slow(MemoryProvider):
    name = "slow"
    def is_available(self): return True
    def initialize(self, session_id, **kwargs): pass
    def get_tool_schemas(self): return []
    def on_session_end(self, messages):
        while not (PATH).exists(): time.sleep(0.05)
""".replace("PATH", "__import__('pathlib').Path(__file__).with_name('go-on')")


def slow_to_leave(home: Path) -> Path:
    """An external memory that takes its time at the end, until the file is there that is returned."""
    folder = home / "plugins" / "slow"
    folder.mkdir(parents=True)
    (folder / "__init__.py").write_text(SLOW)
    with (home / "config.yaml").open("a") as file:
        file.write("memory:\n  provider: slow\nproviders:\n  drain: 60\n")
    return folder / "go-on"


def test_keys_that_are_typed_while_it_leaves_do_not_reach_the_shell(
    chat: Chat, home: Path, model: ScriptedModel, tmp_path: Path
) -> None:
    model.then("Hello.")
    go_on = slow_to_leave(home)
    with chat(shell=True) as t:
        ask(t, "Hi!", "Hello.")
        t.say(f"/quit\rtouch {tmp_path / 'ahead'}")
        t.wait_for("Closing the memory provider")
        t.press(f"touch {tmp_path / 'meanwhile'}\r")
        go_on.touch()
        t.wait_for("Not sent: touch ")
        t.wait_for("SHELL:")
        assert t.as_found
        t.press("echo back-$((40 + 2))\r")
        t.wait_for("back-42")
        t.press("exit\r")
        assert t.leave() == 0
    assert not (tmp_path / "ahead").exists()
    assert not (tmp_path / "meanwhile").exists()
    with Herma.open(home) as h:
        assert h.transcripts.list()[0].ended is not None


def test_ctrl_c_ends_the_wait_for_others_and_loses_nothing(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("One.", "Two.", "Three.")
    slow_to_leave(home)
    with chat() as t:
        for word in ("one", "two", "three"):
            ask(t, f"Please write part {word} of the report about the harbour.", f"{word.title()}.")
        t.press(CTRL_D)
        t.wait_for("Press Ctrl-C to leave now")
        t.press(CTRL_C)
        assert t.leave() == 130
        assert t.as_found
    with Herma.open(home) as h:
        (info,) = h.transcripts.list()
        assert info.ended is not None
        assert h.reviews.status().owed == 1
        assert [one.conversation for one in h.episodes.list()] == [info.conversation]


def test_leaving_waits_for_no_work_in_the_background(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("One.", "Two.", "Three.")
    for _ in range(2):  # what is put off has not failed
        with chat("--continue") if messages(home) else chat() as t:
            for word in ("one", "two", "three") if not messages(home) else ():
                ask(t, f"Please write part {word} of the report about the harbour.", f"{word.title()}.")
            leave(t)
            assert "Closing the memory" not in t.text
    assert len(model.requests) == 3, "the model is not asked on the way out"
    with Herma.open(home) as h:
        (info,) = h.transcripts.list()
        assert info.ended is not None
        assert h.reviews.status().owed == 1
        assert [one.conversation for one in h.episodes.list()] == [info.conversation]
        model.then("Again.", "Nothing to keep.", "Nothing to keep.", "Nothing to keep.")
        with h.session() as session:  # whoever comes next makes up for it
            talk(session, "Hello again.", reply="Again.")
            assert h.reviews.wait(60)
        assert h.reviews.status().owed == 0


@pytest.mark.parametrize(("how", "answering"), [(signal.SIGTERM, True), (signal.SIGHUP, False)])
def test_a_signal_keeps_the_partial_answer_and_gives_the_terminal_back(
    chat: Chat, home: Path, model: ScriptedModel, how: signal.Signals, answering: bool
) -> None:
    model.then(Answer("one two three. ", piece=5, pause=0.02, endless=True) if answering else "Fine.")
    with chat() as t:
        t.say("Count.")
        t.wait_for("two" if answering else "Fine.")
        if not answering:
            t.wait_for(">")
        t.process.send_signal(how)
        assert t.leave() == 128 + how
        assert t.as_found
    with Herma.open(home) as h:
        (info,) = h.transcripts.list()
        assert info.ended is not None
        last = h.transcripts.messages(info.id)[-1]
        assert str(last.content).startswith("one two" if answering else "Fine.")
        assert (last.finish_reason == "interrupted") is answering


def test_the_cap_is_told_between_two_turns_and_once(chat: Chat, home: Path, model: ScriptedModel) -> None:
    model.then("One.", "Two.", "Three.")

    def refused() -> int:
        with Herma.open(home) as h:
            return [review.state for review in h.reviews.log()].count("refused")

    with chat() as t:
        with (home / "config.yaml").open("a") as file:
            file.write("memory:\n  nudge_interval: 1\nspend:\n  daily_tokens: 3000\n")
        t.say("/quit")
        t.leave()
    with chat() as t:
        for number, word in enumerate(("one", "two", "three"), 1):
            ask(t, word, f"{word.title()}.")
            until = time.monotonic() + PATIENCE
            while number < 3 and refused() < number and time.monotonic() < until:  # nobody types so fast
                t.drain(0.05)
        leave(t)
    assert t.text.count("does not allow") == 1
    assert "· The daily cap" in t.text  # as a note, and not as a log writes it into the prompt


def test_another_program_moves_the_conversation_and_the_chat_goes_on(
    chat: Chat, home: Path, model: ScriptedModel
) -> None:
    model.then("First.", "Second.", "Third.")
    with chat() as t:
        for said, answer in (("one", "First."), ("two", "Second.")):
            ask(t, said, answer)
        with Herma.open(home) as h:
            (info,) = h.transcripts.list()
            other = h.session(resume=info.id)
            other.rewind()
            other.close()
        t.say("three")
        t.wait_for("Another program has removed the last turn")
        t.wait_for(f"/resume {info.id}")
        t.wait_for("three")  # what could not be sent is in the prompt again
        t.press("\x7f" * 5)
        ask(t, f"/resume {info.id}", "Continuing")
        ask(t, "three", "Third.")
        t.say("/quit")
        assert t.leave() == 0
    (conversation,) = messages(home)
    assert [text for _, text in conversation] == ["one", "First.", "three", "Third."]
