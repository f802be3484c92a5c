"""A transcript as steps: which tool was given what, and whether it went well. Pure and linear."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herma.episodes.phrases import FAILED_OUTPUT, folded
from herma.late import Late
from herma.types import Content, Message

COMMANDS = ("command", "cmd", "script", "shell_command", "code", "bash")
PATHS = (
    "path",
    "file_path",
    "filepath",
    "filename",
    "file",
    "notebook_path",
    "target_file",
    "absolute_path",
    "file_name",
)
FOLDERS = ("cwd", "workdir", "working_directory", "working_dir", "directory")
SUBJECTS = (
    *COMMANDS,
    *PATHS,
    "url",
    "query",
    "q",
    "pattern",
    "prompt",
    "task",
    "description",
    "name",
    "action",
    "title",
)
_LOOKED_AT = 600
"""Characters at each end of an output that tell whether it went well."""
_EXIT = Late(
    r"(?:exit|return)(?:ed)?[ _-]?(?:code|status|with)?[ \"':=]{1,4}(?:code )?(-?\d{1,3})(?!\d)", re.IGNORECASE
)
_FLAG = Late(r'"(?:success|ok)"\s{0,4}:\s{0,4}(true|false)\b')
_LOOKING = frozenset(
    ("grep", "egrep", "fgrep", "rg", "ag", "git grep", "git diff", "diff", "cmp", "test", "which", "pgrep")
)
"""Programs that say "no" by an exit code of 1."""
_WRAPPED = Late(r"^(?:bash|sh|zsh|/bin/bash|/bin/sh)$")
_ASSIGNED = Late(r"^\w+=\S*$")


@dataclass(frozen=True, slots=True)
class Step:
    """One use of a tool. `failed` is None where it has no result; `key` is the same for another try of the same."""

    tool: str
    subject: str
    key: str
    message: int
    arguments: Mapping[str, Any]
    failed: bool | None = None
    output: str = ""

    @property
    def words(self) -> str:
        return f"{self.tool}: {self.subject}" if self.subject else self.tool


def steps_of(messages: Sequence[Message]) -> list[Step]:
    """Every use of a tool, in order, with what came of it."""
    found: list[Step] = []
    waiting: dict[str, int] = {}
    for message in messages:
        for call in message.tool_calls if message.role == "assistant" else ():
            name, arguments = read_call(call)
            if not name:
                continue
            subject = _subject(arguments)
            waiting[str(call.get("id", ""))] = len(found)
            found.append(Step(name, subject, _key(name, arguments), message.id, arguments))
        if message.role in ("tool", "function"):
            at = waiting.pop(message.tool_call_id or "", None)
            output = text_of(message.content)
            if at is not None:
                step = found[at]
                failed = has_failed(output) and not _found_nothing(step.key, output)
                found[at] = Step(step.tool, step.subject, step.key, step.message, step.arguments, failed, output)
            elif message.tool_name:
                found.append(Step(message.tool_name, "", message.tool_name, message.id, {}, has_failed(output), output))
    return found


def read_call(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Name and arguments of a call, in the ways they are written."""
    function = call.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else call
    given = inner.get("arguments", inner.get("input"))
    if isinstance(given, str):
        try:
            given = json.loads(given) if len(given) < 200_000 else {}
        except (ValueError, RecursionError):
            given = {"command": given}
    name = inner.get("name")
    return str(name) if isinstance(name, str) else "", dict(given) if isinstance(given, Mapping) else {}


def text_of(content: Content) -> str:
    """The words of a content."""
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if isinstance(part.get("text"), str))
    return content or ""


def has_failed(output: str) -> bool:
    """Whether a tool's output says that it did not do what it was asked to.

    What it says in fields (exit code, success, error) counts; else how it begins and ends.
    """
    stripped = output.strip()
    if stripped.startswith("{"):
        said = _said_in_fields(stripped)
        if said is None:  # cut in its middle, most likely: the field itself may still be there
            flag = _FLAG.search(stripped[:_LOOKED_AT]) or _FLAG.search(stripped[-_LOOKED_AT:])
            said = (flag[1] == "false") if flag else None
        if said is not None:
            return said
    ends = f"{stripped[:_LOOKED_AT]}\n{stripped[-_LOOKED_AT:]}" if len(stripped) > 2 * _LOOKED_AT else stripped
    code = None
    for found in _EXIT.finditer(ends):
        code = found[1]
    if code is not None:
        return code.lstrip("-0") != ""
    first, last = _edge_lines(stripped)
    return any(_is_error_line(line) for line in (*first, *last))


def _found_nothing(key: str, output: str) -> bool:
    """Whether a program that looks for something says no more than that it is not there."""
    if key.rpartition("\0")[2] not in _LOOKING:
        return False
    codes = [found[1] for found in _EXIT.finditer(output[-_LOOKED_AT:])]
    lines = [line for line in _edge_lines(output)[0] if not _EXIT.search(line)]
    return codes[-1:] == ["1"] and not any(_is_error_line(line) for line in lines)


def _said_in_fields(text: str) -> bool | None:
    if len(text) > 200_000:
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    for name in ("exit_code", "returncode", "exitCode", "status_code", "code"):
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number >= 400 if name == "status_code" else number != 0
    for name in ("success", "ok"):
        if isinstance(value.get(name), bool):
            return not value[name]
    for name in ("is_error", "isError"):
        if isinstance(value.get(name), bool):
            return bool(value[name])
    return bool(value.get("error")) if "error" in value else None


def _edge_lines(text: str) -> tuple[list[str], list[str]]:
    """The first and the last lines with something in them."""
    first = [line.strip()[:300] for line in text[:_LOOKED_AT].splitlines() if line.strip()][:1]
    last = [line.strip()[:300] for line in text[-_LOOKED_AT:].splitlines() if line.strip()][-1:]
    return first, last


_ERROR_LINE = Late(
    r"^(?:\[?(?:error|fatal|panic|exception|failed|failure)(?:\s*[:：!\]]|\s*$| (?:while|when|executing|running|reading"
    r"|writing|calling|opening|code|status|\d)\b)|(?:failed|unable) to |(?:错误|錯誤|エラー|오류)(?:\s*[:：!！\]]|\s*$)"
    r"|traceback \(most recent"
    r"|\w{1,60}(?:\.\w{1,60}){0,6}(?:error|exception)\b\s*[:(]|error\[|e\s{2,}\w+error"
    r"|={2,}.*\b[1-9]\d{0,5} (?:failed|errors?)\b|(?:failed|error) [\w./:\[\]-]{1,120} - "
    r"|(?:bash|sh|zsh)[:\w ]{0,20}: .*(?:not found|no such file|denied)|.{0,120}: (?:command not found"
    r"|no such file or directory"
    r"|permission denied)|npm err!|make: \*\*\*|[1-9]\d{0,5} failed\b|执行失败|操作失败)",
    re.IGNORECASE,
)


def _is_error_line(line: str) -> bool:
    return _ERROR_LINE.match(line) is not None


def error_line(output: str) -> str:
    """The line of a failed output that says most: the last one that names an error, or else the last one."""
    stripped = output.strip()
    if stripped.startswith("{"):
        try:
            value = json.loads(stripped) if len(stripped) < 200_000 else None
        except (ValueError, RecursionError):
            value = None
        if isinstance(value, dict):
            inner = next(
                (value[n] for n in ("error", "stderr", "output", "message") if isinstance(value.get(n), str)), ""
            )
            stripped = inner.strip() or stripped
    lines = [line.strip() for line in stripped[-4000:].splitlines() if line.strip()]
    named = [line for line in lines if _is_error_line(line)] or [
        line for line in lines if folded(line[:200]) in FAILED_OUTPUT
    ]
    return (named or lines or [""])[-1]


def _subject(arguments: Mapping[str, Any]) -> str:
    """What a tool was used on, in a few words."""
    for name in SUBJECTS:
        value = arguments.get(name)
        if isinstance(value, list) and value and all(isinstance(word, str) for word in value):
            value = " ".join(value)
        if isinstance(value, str) and value.strip():
            return " ".join(value[:400].split())[:100]
    return ""


def _key(tool: str, arguments: Mapping[str, Any]) -> str:
    """What makes two uses tries of the same thing: the tool with the program it runs, or with the file it works on."""
    for name in COMMANDS:
        value = arguments.get(name)
        if isinstance(value, list):
            value = " ".join(word for word in value if isinstance(word, str))
        if isinstance(value, str) and value.strip():
            return f"{tool}\0{program(value)}"
    for name in PATHS:
        value = arguments.get(name)
        if isinstance(value, str) and value.strip():
            return f"{tool}\0{value.strip()}"
    return tool


def program(command: str) -> str:
    """The program that a command line is about: `cd x && FOO=1 sudo pytest -q tests` → `pytest`."""
    last = re.split(r"&&|\|\||;|\n", command[:2000])
    for piece in reversed([part for part in last if part.strip()]):
        words = [word for word in piece.split("|")[0].split() if not _ASSIGNED.match(word)]
        words = [
            word for word in words if word not in ("sudo", "time", "env", "exec", "nohup", "uv", "run", "npx", "poetry")
        ]
        words = [word for word in words if not word.startswith("-")]
        if len(words) > 1 and _WRAPPED.match(words[0]):
            words = words[1:]
        if words and words[0] not in ("cd", "echo", "export", "set", "true", "source"):
            name = words[0].rsplit("/", 1)[-1]
            takes_verb = name in (
                "git",
                "npm",
                "pnpm",
                "yarn",
                "cargo",
                "go",
                "docker",
                "kubectl",
                "make",
                "pip",
                "python",
                "python3",
            )
            return f"{name} {words[1].rsplit('/', 1)[-1]}" if takes_verb and len(words) > 1 else name
    return ""


def paths_of(step: Step) -> Iterator[str]:
    """Files that a step was given."""
    for name in PATHS:
        value = step.arguments.get(name)
        if isinstance(value, str) and 0 < len(value.strip()) <= 400 and "\n" not in value:
            yield value.strip()
    patch = step.arguments.get("patch") or step.arguments.get("input") or step.arguments.get("diff")
    if isinstance(patch, str):
        for found in re.finditer(
            r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b/)(\S[^\n]{0,300})$", patch[:200_000], re.MULTILINE
        ):
            yield found[1].strip()


_WRITES = Late(r"write|edit|patch|create|replace|insert|save|append|rename|move|delete|notebook", re.IGNORECASE)


def is_writing(step: Step) -> bool:
    """Whether a step changes a file, by the name of its tool or what it was asked to do."""
    action = step.arguments.get("action") or step.arguments.get("command")
    verb = str(action) if isinstance(action, str) and len(action) < 30 else ""
    return _WRITES.search(step.tool) is not None or (bool(verb) and _WRITES.match(verb) is not None)
