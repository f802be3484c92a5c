"""An episode out of a transcript: the task, how it ended, what went wrong and what helped. No store, no model."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.episodes.build import build, described, merged, words_of
from herma.episodes.outcome import (
    category_of,
    cleaned,
    error_line,
    has_failed,
    is_substantial,
    judge,
    key_sentence,
    last_word,
    program,
    steps_of,
    task_key,
    task_of,
)
from herma.episodes.types import LONGEST_RESULT, Episode
from herma.types import Message, Scope, SessionInfo

INFO = SessionInfo("s1", "cli", Scope(), 0.0, "s1")


def talk(*said: tuple[str, str] | Message) -> list[Message]:
    """Messages with numbers and times; a pair is a role and a text."""
    messages = [one if isinstance(one, Message) else Message(one[0], one[1]) for one in said]
    return [replace(one, id=at, timestamp=100.0 + at) for at, one in enumerate(messages, 1)]


def call(tool: str, number: str = "c", **arguments: Any) -> Message:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    return Message("assistant", None, tool_calls=({"id": number, "type": "function", "function": function},))


def result(text: str, number: str = "c") -> Message:
    return Message("tool", text, tool_call_id=number)


def episode_of(*said: tuple[str, str] | Message, info: SessionInfo = INFO) -> Episode:
    made = build(talk(*said), info)
    assert made is not None
    return made


# ── the task ──


@pytest.mark.parametrize(
    ("text", "task"),
    [
        ("Hi, can you please fix the login bug?", "fix the login bug?"),
        ("hello there! I want you to write a parser", "write a parser"),
        ("# Task\n\nPort the **parser** to `rust`", "Task Port the parser to rust"),
        ("看一下\n```python\nprint(1)\n```\n为什么报错", "看一下 为什么报错"),
        ("你好，请帮我重构登录模块", "重构登录模块"),
        ("Fix it <system-reminder>be nice</system-reminder> now", "Fix it now"),
        ("See [the docs](https://example.org/x) first", "See the docs first"),
        ("```\nonly code\n```", "only code"),
        ("hello.py prints nothing", "hello.py prints nothing"),
    ],
)
def test_a_request_is_cleaned(text: str, task: str) -> None:
    assert cleaned(text) == task


@pytest.mark.parametrize(
    "text", ["hi", "Hello!", "thanks!", "ok", "你好", "ありがとう", "go on", "", "  ", "…", "hello hi hey"]
)
def test_greetings_and_thanks_ask_for_nothing(text: str) -> None:
    assert not is_substantial(text)


@pytest.mark.parametrize(
    "text", ["fix login", "修复登录问题", "ログインを直して", "로그인 오류 수정", "hello, deploy the site"]
)
def test_requests_ask_for_something(text: str) -> None:
    assert is_substantial(text)


def test_the_task_is_the_first_substantial_request() -> None:
    messages = talk(("user", "hi"), ("assistant", "Hello! How can I help?"), ("user", "Rename the module to core"))
    assert task_of(messages) == ("Rename the module to core", 3)


def test_a_long_request_keeps_whole_sentences() -> None:
    task = cleaned("First do this. " + "Then that, and so on with it. " * 30)
    assert task.startswith("First do this. Then that")
    assert task.endswith(".")
    assert len(task) <= 300


@given(st.text(max_size=2000))
def test_cleaning_is_bounded_one_line_and_stable(text: str) -> None:
    task = cleaned(text)
    assert len(task) <= 300
    assert "\n" not in task
    assert task_key(task) == task_key(task.upper().lower()) or not task.isascii()


def test_cleaning_takes_linear_time_on_hostile_text() -> None:
    for text in ("<a>" * 20_000, "[" * 50_000, "```" * 20_000, "<x y='" * 9_000, "- " * 40_000, "a.b" * 20_000):
        assert len(cleaned(text)) <= 300


@pytest.mark.parametrize(
    ("task", "tools", "category"),
    [
        ("fix the failing test in auth", ["terminal"], "debugging"),
        ("add a function that parses dates", [], "coding"),
        ("translate this letter to French", [], "writing"),
        ("plan a trip to Rome", [], "planning"),
        ("deploy the site with docker", ["terminal"], "operations"),
        ("修复登录报错", ["terminal"], "debugging"),
        ("what is the capital of Peru?", [], "question"),
        ("look at prices of bikes", ["web_search"], "research"),
        ("the usual", ["write_file"], "coding"),
        ("hmm indeed", [], "other"),
    ],
)
def test_the_kind_of_work(task: str, tools: list[str], category: str) -> None:
    assert category_of(task, steps_of(talk(*[call(tool, f"{at}") for at, tool in enumerate(tools)]))) == category


# ── tools ──


@pytest.mark.parametrize(
    "output",
    [
        '{"exit_code": 1, "output": ""}',
        '{"success": false}',
        '{"error": "no such file"}',
        '{"ok": false, "x": 1}',
        '{"is_error": true}',
        "Traceback (most recent call last):\n  File x\nValueError: bad",
        "bash: foo: command not found",
        "Error: it broke",
        "=========== 2 failed, 3 passed in 0.1s ===========",
        "building…\nmake: *** [all] Error 2",
        "ok so far\nexit code: 2",
        '{"output": "' + "x" * 3000 + '\n…\n", "success": false}',
        "错误: 找不到文件",
        "Failed to open the file",
        "Error while reading x",
    ],
)
def test_outputs_that_failed(output: str) -> None:
    assert has_failed(output)


@pytest.mark.parametrize(
    "output",
    [
        "",
        "42 passed in 1.2s",
        '{"exit_code": 0, "output": "Error handling is documented"}',
        '{"success": true, "error": ""}',
        "The error handling chapter is done.",
        "exit code: 0",
        '{"results": []}',
        "0 failed, 12 passed",
        "def on_error(self): ...",
        "Error codes of the API\n\n404 means not found.",
        "Failed states are shown in red",
    ],
)
def test_outputs_that_did_not(output: str) -> None:
    assert not has_failed(output)


@given(st.text(max_size=500))
def test_any_output_can_be_judged(output: str) -> None:
    assert has_failed(output) in (True, False)
    assert "\n" not in error_line(output)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("pytest -q tests", "pytest"),
        ("cd /x && FOO=1 sudo pytest -q", "pytest"),
        ("git push origin main", "git push"),
        ("uv run python manage.py migrate", "python manage.py"),
        ("cat x | grep y", "cat"),
        ("", ""),
        ("bash -c", "bash"),
    ],
)
def test_the_program_of_a_command(command: str, name: str) -> None:
    assert program(command) == name


def test_steps_are_described_in_few_words() -> None:
    many = [call("terminal", str(at), command=f"make step{at}") for at in range(30)]
    lines = described(steps_of(talk(*many, call("todo", "t", todos=[]))))
    assert len(lines) == 12
    assert lines[0] == "terminal: make step0"
    assert lines[-1] == "terminal: make step29"
    assert lines[6].startswith("… 19 more")
    same = described(steps_of(talk(*[call("terminal", str(at), command="make") for at in range(3)])))
    assert same == ("terminal: make ×3",)


# ── how it ended ──


def test_thanks_are_a_success() -> None:
    made = episode_of(
        ("user", "write a haiku about rain"), ("assistant", "Here it is now: rain."), ("user", "perfect, thanks!")
    )
    assert made.outcome == "successful"
    assert made.success is True
    assert made.why == "the user confirmed it"


def test_an_objection_at_the_end_is_a_failure() -> None:
    for word in ("no, it still doesn't work", "不行，还是报错", "まだエラーです", "그래도 안 돼"):
        made = episode_of(
            ("user", "fix the login bug"), ("assistant", "Fixed it."), ("user", word), ("assistant", "Hm.")
        )
        assert made.outcome == "failed", word
        assert made.success is False


def test_thanks_that_lead_to_the_next_request_are_not_the_end() -> None:
    assert last_word(talk(("user", "a b c"), ("user", "thanks, could you also do the same for the other file?"))) == ""
    assert last_word(talk(("user", "thanks"))) == ""
    assert last_word(talk(("user", "do it"), ("user", "太好了，谢谢"))) == "content"


def test_breaking_off_is_seen() -> None:
    assert (
        episode_of(("user", "do the thing"), ("assistant", "Yes."), ("user", "and the other thing")).outcome
        == "interrupted"
    )
    cut = Message("assistant", "I will", finish_reason="interrupted")
    assert episode_of(("user", "do the thing"), cut).outcome == "interrupted"
    running = episode_of(("user", "do the thing"), call("terminal", command="make"))
    assert running.outcome == "interrupted"
    stopped = episode_of(("user", "do the thing"), ("assistant", "Well."), info=replace(INFO, end_reason="error"))
    assert stopped.outcome == "interrupted"


def test_giving_up_is_a_failure() -> None:
    for words in (
        "I couldn't find the file.",
        "抱歉，我无法完成这个任务。",
        "申し訳ありません、完了できませんでした。",
    ):
        assert episode_of(("user", "find the file"), ("assistant", words)).outcome == "failed", words


def test_an_error_and_what_helped() -> None:
    made = episode_of(
        ("user", "run the tests and make them pass"),
        call("terminal", "1", command="pytest -q"),
        result("ModuleNotFoundError: No module named 'yaml'", "1"),
        call("terminal", "2", command="pip install pyyaml"),
        result("Successfully installed", "2"),
        call("terminal", "3", command="pytest -q"),
        result("12 passed", "3"),
        ("assistant", "All tests pass now; PyYAML was missing."),
    )
    assert made.outcome == "resolved"
    assert made.error == "pytest -q: ModuleNotFoundError: No module named 'yaml'"
    assert made.remedy == "terminal: pip install pyyaml; then terminal: pytest -q worked"
    assert made.result == "All tests pass now; PyYAML was missing."
    assert made.tools == {"terminal": 3}
    assert made.category == "coding"


def test_another_way_that_worked_is_the_remedy() -> None:
    made = episode_of(
        ("user", "install the tool"),
        call("terminal", "1", command="pip install tool"),
        result("error: externally-managed-environment", "1"),
        call("terminal", "2", command="pip install --user tool"),
        result("Successfully installed tool", "2"),
        ("assistant", "Installed."),
    )
    assert made.outcome == "resolved"
    assert made.remedy == "terminal: pip install --user tool worked"


def test_an_error_nobody_overcame() -> None:
    made = episode_of(
        ("user", "deploy the site"),
        call("terminal", "1", command="make deploy"),
        result("make: *** [deploy] Error 1", "1"),
        ("assistant", "The deployment stopped at the upload."),
    )
    assert made.outcome == "failed"
    assert made.remedy == ""
    assert "Error 1" in made.error


def test_an_early_error_that_did_not_matter() -> None:
    made = episode_of(
        ("user", "clean up the folder"),
        call("read_file", "1", path="gone.txt"),
        result('{"error": "not found"}', "1"),
        call("terminal", "2", command="rm -r build"),
        result("", "2"),
        ("assistant", "Cleaned up."),
    )
    assert made.outcome == "successful"


def test_an_error_that_the_user_told_of() -> None:
    made = episode_of(
        ("user", "My server won't start: error 502 since the update. What can I do?"),
        ("assistant", "The upstream port changed. Set proxy_pass to 8081 and reload; that fixed it for others."),
        ("user", "that works, thank you"),
    )
    assert made.outcome == "resolved"
    assert "502" in made.error
    assert "8081" in made.remedy


def test_chinese_all_through() -> None:
    made = episode_of(
        ("user", "你好，请帮我修复登录接口的报错"),
        call("terminal", "1", command="npm test"),
        result("错误: 找不到模块", "1"),
        call("terminal", "2", command="npm install"),
        result("added 3 packages", "2"),
        call("terminal", "3", command="npm test"),
        result("12 passing", "3"),
        ("assistant", "已修复登录接口。原因是缺少依赖。"),
        ("user", "太好了，谢谢！"),
    )
    assert made.task == "修复登录接口的报错"
    assert made.outcome == "resolved"
    assert made.category == "debugging"
    assert made.result == "已修复登录接口。"
    assert made.remedy == "terminal: npm install; then terminal: npm test worked"


def test_skills_are_noted() -> None:
    made = episode_of(
        ("user", "make slides from the notes"),
        call("skill_view", "1", name="slides"),
        result("{}", "1"),
        call("skill_manage", "2", action="create", name="notes-to-slides", content="…"),
        result('{"success": true}', "2"),
        call("skill_manage", "3", action="patch", name="other"),
        result('{"success": true}', "3"),
        ("assistant", "Done, the slides are written."),
    )
    assert made.skills_applied == ("slides",)
    assert made.skills_created == ("notes-to-slides",)


@pytest.mark.parametrize(
    "said",
    [
        [("user", "hi"), ("assistant", "Hello!")],
        [("user", "fix the login bug")],
        [("assistant", "Welcome!")],
        [("user", "fix the login bug"), ("assistant", "  ")],
        [("system", "be good")],
    ],
)
def test_nothing_in_it_makes_none(said: list[tuple[str, str]]) -> None:
    assert build(talk(*said), INFO) is None


def test_the_key_sentence_says_what_came_of_it() -> None:
    text = "Sure! Let me summarise.\n\nI looked at the log. The cause was a stale lock; I fixed it.\n\n```\ncode\n```"
    assert key_sentence(text, 200) == "The cause was a stale lock; I fixed it."
    assert len(key_sentence("a very long line " * 100, LONGEST_RESULT)) <= LONGEST_RESULT
    assert key_sentence("", 200) == ""
    assert key_sentence("The reader is done.\n\nNext steps:\n- now the writer", 200) == "The reader is done."
    assert key_sentence("You're welcome! It is deployed as of today.", 200) == "It is deployed as of today."


def test_what_is_answered_to_thanks_is_no_result() -> None:
    made = episode_of(
        ("user", "deploy the shop"),
        ("assistant", "Deployed, it works."),
        ("user", "thanks"),
        ("assistant", "Glad to help!"),
    )
    assert made.result == "Deployed, it works."


ROLES = st.sampled_from(["user", "assistant", "tool", "system"])
TEXTS = st.one_of(
    st.text(max_size=200), st.sampled_from(["thanks", "it fails", "修复 bug", "Error: x", '{"exit_code": 1}', "hi"])
)


@st.composite
def messages(draw: st.DrawFn) -> list[Message]:
    found = []
    for number in range(draw(st.integers(0, 12))):
        role = draw(ROLES)
        calls: tuple[dict[str, Any], ...] = ()
        if role == "assistant" and draw(st.booleans()):
            arguments = draw(
                st.sampled_from(['{"command": "make"}', "broken", "{}", '{"path": 3}', "[]", '{"command": ["a", 1]}'])
            )
            calls = ({"id": str(number), "function": {"name": "terminal", "arguments": arguments}},)
        answers = str(draw(st.integers(0, 12))) if role == "tool" else None
        found.append(Message(role, draw(TEXTS), tool_calls=calls, tool_call_id=answers))
    return talk(*found)


@given(messages())
def test_any_conversation_can_be_read(said: list[Message]) -> None:
    made = build(said, INFO)
    assert made == build(said, INFO), "the same messages give the same episode"
    if made is not None:
        assert made.task
        assert len(made.result) <= LONGEST_RESULT
        assert len(made.error) <= 200
        assert len(made.remedy) <= 300
        assert made.duration >= 0
        assert made.built_by == "rules"
        assert made.why
        assert len(words_of(made)) <= 4_000


@given(messages())
def test_a_judgement_always_says_what_it_rests_on(said: list[Message]) -> None:
    if said:
        judged = judge(said, steps_of(said))
        assert judged.why
        assert (judged.outcome == "resolved") <= bool(judged.trouble and judged.trouble.remedy)


def test_what_was_learnt_about_use_stays() -> None:
    new = episode_of(("user", "do the thing"), ("assistant", "Done with it."))
    old = replace(new, id=7, uses=3, last_used=5.0, skills_applied=("x",))
    both = merged(new, old)
    assert (both.id, both.uses, both.last_used, both.skills_applied) == (7, 3, 5.0, ("x",))
    assert merged(new, None) is new


def test_what_is_asked_for_after_thanks_is_not_the_end() -> None:
    one = episode_of(
        ("user", "Write a poem about rivers"),
        ("assistant", "Rivers run through the whole land."),
        ("user", "thanks, now make it shorter please"),
        ("assistant", "Rivers run."),
    )
    assert (one.outcome, one.why) == ("successful", "it was answered, and nobody objected")
    assert one.result == "Rivers run."
    assert (
        last_word(talk(("user", "Fix it for me"), ("assistant", "Done."), ("user", "thanks, now it works")))
        == "content"
    )


def test_the_same_error_again_tells_less_than_what_it_was() -> None:
    one = episode_of(
        ("user", "My docker build fails with no space left on device"),
        ("assistant", "Try docker system prune."),
        ("user", "still the same error"),
    )
    assert (one.outcome, one.error) == ("failed", "My docker build fails with no space left on device")


def test_a_test_that_failed_is_an_error_that_was_met() -> None:
    one = episode_of(
        ("user", "帮我修复登录超时的问题"),
        call("bash", "1", command="pytest"),
        result("FAILED tests/test_login.py::test_login - TimeoutError", "1"),
        call("edit", "2", path="login.py"),
        result("ok", "2"),
        call("bash", "3", command="pytest"),
        result("3 passed", "3"),
        ("assistant", "已修复：超时时间改为60秒。"),
        ("user", "谢谢"),
    )
    assert one.outcome == "resolved"
    assert "TimeoutError" in one.error
    assert "login.py" in one.remedy


def test_signs_that_nobody_sees_are_no_part_of_a_task() -> None:
    assert cleaned("Fix\x00 the \u202eweird\x1b text") == "Fix the weird text"


def test_a_bug_is_one_without_tools_too() -> None:
    assert category_of("Fix the login bug", []) == "debugging"


def test_what_was_looked_for_and_is_not_there_is_no_error() -> None:
    one = episode_of(
        ("user", "Is foo used anywhere?"),
        call("bash", command="grep -rn foo src"),
        result("exit code 1"),
        ("assistant", "No, foo is used nowhere."),
    )
    assert (one.outcome, one.error) == ("successful", "")
    broken = episode_of(
        ("user", "Is foo used anywhere?"),
        call("bash", command="grep -rn foo nowhere"),
        result("grep: nowhere: No such file or directory\nexit code 2"),
        ("assistant", "There is no folder of that name."),
    )
    assert broken.outcome == "failed"


@pytest.mark.parametrize(
    ("last", "word"),
    [
        ("great, now everything is broken", "not content"),
        ("thanks, it no longer crashes", "content"),
        ("perfect, nothing fails any more", "content"),
        ("thanks, the error is gone", "content"),
        ("thanks, the problem is gone", "content"),
        ("it was broken before, great now", "content"),
    ],
)
def test_thanks_may_be_meant_otherwise(last: str, word: str) -> None:
    assert last_word(talk(("user", "Write the tests"), ("assistant", "Here they are."), ("user", last))) == word
