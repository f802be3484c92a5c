"""Build an episode, and the state of the work, from the messages of a conversation. Pure: no clock, store or model.

The outcome rests on what happened first (exit codes, tests, edits, lists of tasks), then on the user's last word, and
last on what the assistant said. If all of these say little, the outcome is "unclear". The phrases by which people and
programs say how something went are data, in `signs.tsv`: English and Chinese, and the German, Japanese and Korean
phrases that pay on the conversations of tests/pure/outcomes.jsonl.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from herma.episodes.rows import LONGEST_RESULT, Episode, Outcome, SessionState
from herma.prompt.fence import sanitize
from herma.text import HAS_CJK, LazyPattern, folded, stemmed_terms
from herma.transcript.log import IMPORT
from herma.transcript.messages import text_of

if TYPE_CHECKING:
    from herma.types import Message, SessionInfo

INTERRUPTED = "interrupted"
"""The finish reason of a reply that was cut off."""
LONGEST_TASK, LONGEST_ERROR, LONGEST_REMEDY = 300, 200, 300
MOST_STEPS = 12
_NOTE_TOOLS = frozenset({"memory", "session_search", "todo", "todowrite", "update_plan"})
"""Tools that keep notes: they are not steps of the work."""


def build(messages: Sequence[Message], info: SessionInfo, steps: Sequence[ToolStep] | None = None) -> Episode | None:
    """Return the episode of a conversation; None if there was no request, or no answer.

    `messages` are those of the whole conversation without rewound ones; of a long one, its beginning and its end.
    `info` is its last session.
    """
    task = task_of(messages)
    answered = any(message.role == "assistant" and (message.tool_calls or _has_text(message)) for message in messages)
    if not task or not answered:
        return None
    steps = steps_of(messages) if steps is None else steps
    outcome, why, error = judge(messages, steps, aborted=info.end_reason == "error")
    return Episode(
        conversation=info.conversation,
        session_id=info.id,
        scope=info.scope,
        source=IMPORT if info.imported is not None else info.source,
        started=min(message.timestamp for message in messages),
        ended=max(message.timestamp for message in messages),
        task=task,
        category=category_of(task, steps),
        steps=described(steps),
        tools=dict(Counter(step.tool for step in steps).most_common(40)),
        outcome=outcome,
        why=why,
        result=result_of(messages),
        error=error.text,
        remedy=error.remedy,
        skills_applied=_skills(steps, "skill_view"),
        skills_created=_skills(steps, "skill_manage"),
        first_message=messages[0].id,
        last_message=messages[-1].id,
    )


def described(steps: Sequence[ToolStep]) -> tuple[str, ...]:
    """Return a few words for each step. Equal neighbours become one line; of many, keep the first and the last."""
    lines: list[tuple[str, int]] = []
    for step in steps:
        if step.tool.casefold() in _NOTE_TOOLS:
            continue
        words = f"{step.words}{' (failed)' if step.failed else ''}"
        if lines and lines[-1][0] == words:
            lines[-1] = (words, lines[-1][1] + 1)
        else:
            lines.append((words, 1))
    written = [words if count == 1 else f"{words} ×{count}" for words, count in lines]
    if len(written) <= MOST_STEPS:
        return tuple(written)
    half = MOST_STEPS // 2
    return (*written[:half], f"… {len(written) - 2 * half + 1} more …", *written[-half + 1 :])


def _skills(steps: Sequence[ToolStep], tool: str) -> tuple[str, ...]:
    """Return the names of the skills that were read, or created."""
    names = [
        str(step.arguments.get("name") or step.arguments.get("skill") or "").strip()[:100]
        for step in steps
        if step.tool == tool and not step.failed and (tool == "skill_view" or step.arguments.get("action") == "create")
    ]
    return tuple(dict.fromkeys(name for name in names if name))


def merged(new: Episode, old: Episode | None) -> Episode:
    """Return the new episode with what the old one knows of its use."""
    if old is None:
        return new
    return replace(
        new,
        id=old.id,
        uses=old.uses,
        last_used=old.last_used,
        skills_applied=tuple(dict.fromkeys((*old.skills_applied, *new.skills_applied))),
        skills_created=tuple(dict.fromkeys((*old.skills_created, *new.skills_created))),
    )


# ── the state of the work: open tasks, next step, files, folder ──

MOST_TASKS, MOST_FILES, LONGEST_LINE = 10, 20, 200
_TASK_FIELDS = ("content", "text", "task", "title", "step", "description", "name")
_OPEN_BOX = re.compile(r"^\s{0,20}(?:[-*+]|\d{1,3}[.)])\s{1,4}\[ \]\s{1,4}(\S[^\n]{0,400})", re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)、])\s*(?:\[ \]\s*)?(\S[^\n]{0,400})$")
_LABEL = re.compile(r"^(?:next steps?|下一步)\s*[:：]\s*", re.IGNORECASE)
"""A label under which the next step is shown anyway."""
_CD = re.compile(r"(?:^|&&|;|\n)\s*cd\s+(\"[^\"\n]{1,300}\"|'[^'\n]{1,300}'|[^\s;&|]{1,300})")
_NEXT_HEADING = re.compile(
    r"^\W*(?:next steps?|next up|next|remaining(?: work| tasks| steps)?|still (?:to do|open|left|missing)|to ?dos?"
    r"|follow[- ]ups?|open (?:points|questions|tasks|items)|what(?:'s| is) left|nächste schritte|noch offen"
    r"|下一步|接下来|接下來|后续|後續|待办|待辦|剩余|剩餘|未完成|次のステップ|次は|残り|残作業|今後の予定|다음 단계"
    r"|남은 작업|할 일)\W*$",
    re.IGNORECASE,
)
_NEXT_SENTENCE = re.compile(
    r"(?:^|(?<=[.!?。！？\n]))\W*((?:next steps?\s*:|next,|next i(?:'ll| will)|the next step is(?: to)?|i(?:'ll"
    r"| will) (?:now|next)|remaining\s*:|todo\s*:|下一步(?:是|：|:)?|接下来(?:我)?(?:会|将|要)?"
    r"|接下來(?:我)?(?:會|將|要)?|次は|次のステップは|다음으로|다음 단계는|als nächstes)\s*[^\n]{3,300})",
    re.IGNORECASE,
)
_GOES_ON = re.compile(
    r"\b(?:now|next|then|also|and|but|please) (?:please )?(?:add|make|do|write|run|fix|go|continue|change|show|create"
    r"|update|remove|use|try|translate)\b|\bgo ahead\b|\b(?:can|could) you\b"
    r"|接下来|接下來|现在请|然后|然後|再帮|再幫|次に|次は|それと|이제|다음",
    re.IGNORECASE,
)
"""A request that follows thanks: "great, now add the tests"."""


def snapshot(
    messages: Sequence[Message],
    info: SessionInfo,
    *,
    at: float,
    folder: str = "",
    branch: str = "",
    steps: Sequence[ToolStep] | None = None,
) -> SessionState | None:
    """Return the state of the work after these messages; None if the user said nothing."""
    users = [message for message in messages if message.role == "user" and _has_text(message)]
    if not users:
        return None
    steps = steps_of(messages) if steps is None else steps
    last, content = messages[-1], last_word(messages) == "content"
    answered = last.role == "assistant" and not last.tool_calls and last.finish_reason != INTERRUPTED
    finished = answered or (content and not _GOES_ON.search(text_of(users[-1].content)[:400]))
    last_request = cleaned(text_of(users[-1].content), LONGEST_LINE)
    tasks = _open_tasks(messages, steps)
    following = _next_step(messages, tasks) if tasks or not content else ""
    if not following and (still_open := left_open(messages, steps)):
        following = _next_step(messages, tasks) or cut(still_open, LONGEST_LINE)
    return SessionState(
        conversation=info.conversation,
        session_id=info.id,
        scope=info.scope,
        at=at,
        folder=folder or _folder(steps),
        branch=branch,
        open_tasks=tuple(tasks[:MOST_TASKS]),
        files=_files(steps),
        next_step=following or ("" if finished else f"answer: {last_request}"),
        last_request=last_request,
        finished=finished,
    )


def _open_tasks(messages: Sequence[Message], steps: Sequence[ToolStep]) -> list[str]:
    """Return the open tasks of the last list that a tool was given; without one, those in the last two replies."""
    for step in reversed(steps):
        if (listed := list_of_tasks(step.arguments)) is not None:
            named = [(status, text) for status, item in listed if (text := _task_text(item))]
            return [text for _, text in sorted(named, key=lambda pair: "progress" not in pair[0])]
    for message in _replies(messages)[-1:-3:-1]:
        text = text_of(message.content)[-20_000:]
        boxes = [_line(found[1]) for found in _OPEN_BOX.finditer(text)]
        if found := [*boxes, *_under_heading(text)]:
            return list(dict.fromkeys(found))
    return []


def _task_text(item: Mapping[str, Any]) -> str:
    texts = (item[name] for name in _TASK_FIELDS if isinstance(item.get(name), str) and item[name].strip())
    return next((_line(text) for text in texts), "")


def _under_heading(text: str) -> Iterator[str]:
    """Yield the items of a list below a heading such as "Next steps"."""
    below = False
    for line in text.splitlines():
        if _is_next_heading(line):
            below = True
        elif below and (item := _ITEM.match(line[:500])):
            yield _line(item[1])
        elif below and line.strip():
            below = False


def _is_next_heading(line: str) -> bool:
    return _NEXT_HEADING.match(line[:120].strip().rstrip(":：")) is not None


def _next_step(messages: Sequence[Message], tasks: Sequence[str]) -> str:
    if tasks:
        return tasks[0]
    last = [text_of(message.content)[-4_000:] for message in _replies(messages)[-1:]]
    found = [match[1] for text in last for match in _NEXT_SENTENCE.finditer(text)]
    return _line(_LABEL.sub("", found[-1])) if found else ""


def _line(text: str) -> str:
    return cut(re.sub(r"[*_`]{1,3}", "", text), LONGEST_LINE)


def _files(steps: Sequence[ToolStep]) -> tuple[str, ...]:
    """Return the files that were touched: changed ones first, the last ones of each kind first."""
    changed = [path for step in reversed(steps) if is_writing(step) and not step.failed for path in _paths(step)]
    looked_at = [path for step in reversed(steps) if not step.failed for path in _paths(step)]
    return tuple(dict.fromkeys([*changed, *looked_at]))[:MOST_FILES]


def _folder(steps: Sequence[ToolStep]) -> str:
    """Return the last folder in which a tool was called to work."""
    for step in reversed(steps):
        folder = _argument(step.arguments, _FOLDERS)
        moved = [found[1].strip("'\"") for found in _CD.finditer(_argument(step.arguments, _COMMANDS)[:4_000])]
        for path in (folder, *moved[-1:]):
            if path.startswith(("/", "~")) and "\n" not in path:
                return path[:400]
    return ""


# ── the task: the first request with substance, cleaned, and the kind of work ──

_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069]")
"""Characters that only steer a terminal, or the direction of writing."""
_CODE = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_OPENER = re.compile(r"<([a-z][a-z0-9_-]{1,40})(?: [^<>]{0,300})?>", re.IGNORECASE)
_MOST_TAGS = 50
_LINKS = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\s]{0,500}\)")
_MARKS = re.compile(r"^[ \t]*(?:[#>*+-]{1,6}|\d{1,3}[.)])[ \t]+", re.MULTILINE)
_BOLD = re.compile(r"(\*\*|__|`)")
_POLITE = re.compile(
    r"^(?:(?:hi|hello|hey|ok|okay|so|well|please|pls|hallo|bitte)(?: there| again| claude| herma| hermes)?"
    r"(?:[\s,!:;-]+|\.\s+)|(?:can|could|would|will) you (?:please |kindly |help me (?:to )?)?"
    r"|i(?:'d| would) like (?:you )?to |i (?:want|need) (?:you )?to |help me (?:to )?|let's "
    r"|kannst du (?:bitte )?|könntest du (?:bitte )?"
    r"|(?:你好|您好|嗨)[，,。！!\s]*|请问|請問|请帮我|請幫我|帮我|幫我|请你?|請你?|麻烦你?|麻煩你?|能不能|可以帮我"
    r"|可以幫我|(?:すみません|こんにちは)[、。！!\s]*)",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z0-9\"'(])|(?<=[。！？])|\n+")
_WORDS = re.compile(r"[^\W_]+")
_KINDS = ("writing", "planning", "data", "operations", "coding")
"""Kinds of work that a word names, in the order in which they are tried."""
_RUNNING = re.compile(r"terminal|bash|shell|exec|run|command|process", re.IGNORECASE)
_WEB = re.compile(r"web|browser|search|fetch|http|crawl|research", re.IGNORECASE)


def task_of(messages: Sequence[Message]) -> str:
    """Return the first message of the user that asks for something, cleaned; empty if there is none."""
    said = (cleaned(text_of(message.content)) for message in messages if message.role == "user")
    return next((task for task in said if is_substantial(task)), "")


def cleaned(text: str, longest: int = LONGEST_TASK) -> str:
    """Return a message as a short statement, without code, tags, marks and courtesies; whole sentences, if they fit."""
    return cut(_prose(text), longest)


def _prose(text: str) -> str:
    """Return the lines of a message without code, tags, marks and courtesies."""
    text = sanitize(_UNSEEN.sub(" ", text[:40_000]))
    prose = _untagged(_CODE.sub("\n", text)).strip() or _CODE.sub(lambda m: m[0].strip("`"), text)
    prose = _BOLD.sub("", _MARKS.sub("", _LINKS.sub(r"\1", prose))).strip()
    for _ in range(3):
        shorter = _POLITE.sub("", prose, count=1).strip()
        if shorter == prose or not shorter:
            break
        prose = shorter
    return prose


def _untagged(text: str) -> str:
    """Remove what stands between tags: programs add it to messages."""
    pieces, at = [], 0
    for _ in range(_MOST_TAGS):
        opener = _OPENER.search(text, at)
        if opener is None:
            break
        close = text.find(f"</{opener[1]}>", opener.end())
        pieces.append(text[at : opener.start()])
        at = close + len(opener[1]) + 3 if close >= 0 else opener.end()
    return " ".join([*pieces, text[at:]])


def cut(text: str, longest: int) -> str:
    """Return as many whole sentences as fit; if not even the first fits, its beginning."""
    kept = ""
    for sentence in _sentences(text):
        longer = f"{kept} {sentence}" if kept else sentence
        if len(longer) > longest:
            break
        kept = longer
    if kept:
        return kept
    line = " ".join(text[: longest * 4].split())
    return line if len(line) <= longest else line[: longest - 1].rstrip() + "…"


def _sentences(text: str) -> list[str]:
    return [line for piece in _SENTENCE_END.split(text) if (line := " ".join(piece.split()))]


def is_substantial(task: str) -> bool:
    """Return whether a message asks for something: more than a greeting, thanks or "go on"."""
    rest = folded(task).strip(" .,!?~。！？、…")
    for phrases in map(sign, ("small talk", *_CONTENT)):
        while (end := phrases.end(rest)) > 0:
            rest = rest[end:].lstrip(" .,!?~;:-。！？、")
    words = _WORDS.findall(rest)
    letters = sum(map(len, words))
    return letters >= 3 if HAS_CJK.search(rest) else len(words) >= 2 and letters >= 6


def task_key(task: str) -> str:
    """Return the words of a task, equal for two ways of writing the same request."""
    return " ".join(_WORDS.findall(folded(task)))[:200]


def category_of(task: str, steps: Sequence[ToolStep]) -> str:
    """Return the kind of work, by the words of the task, then by the tools."""
    said = folded(task)
    works = any(is_writing(step) or _RUNNING.search(step.tool) for step in steps)
    programs = works or said in sign("about coding") or said in sign("trouble")
    if said in sign("about a bug") or (programs and said in sign("about debugging")):
        return "debugging"
    for kind in _KINDS:
        if said in sign(f"about {kind}"):
            return kind
    if works:
        return "coding" if any(map(is_writing, steps)) else "operations"
    if any(_WEB.search(step.tool) and step.tool != "session_search" for step in steps):
        return "research"
    return "question" if said in sign("asking") or "?" in said or "？" in task else "other"


# ── steps: which tool was called with what, and whether it failed ──

_COMMANDS = ("command", "cmd", "script", "shell_command", "code", "bash")
_PATHS = (
    *("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "absolute_path"),
    "file_name",
)
_FOLDERS = ("cwd", "workdir", "working_directory", "working_dir", "directory")
_SUBJECTS = (
    *(*_COMMANDS, *_PATHS, "url", "query", "q", "pattern", "prompt", "task", "description", "name", "action"),
    "title",
)
_EDGE = 600
"""Characters at each end of an output that show whether the tool failed."""
_LARGEST_JSON = 200_000
_EXIT = LazyPattern(
    r"(?:exit|return)(?:ed)?[ _-]?(?:code|status|with)?[ \"':=]{1,4}(?:code )?(-?\d{1,3})(?!\d)", re.IGNORECASE
)
_FLAG = LazyPattern(r'"(?:success|ok)"\s{0,4}:\s{0,4}(true|false)\b')
_SHELL = LazyPattern(r"^(?:bash|sh|zsh|/bin/bash|/bin/sh)$")
_ASSIGNED = LazyPattern(r"^\w+=\S*$")
_PREFIXES = frozenset({"sudo", "time", "env", "exec", "nohup", "uv", "run", "npx", "poetry"})
_NOT_THE_WORK = frozenset({"cd", "echo", "export", "set", "true", "source"})
_TAKES_VERB = frozenset(
    {"git", "npm", "pnpm", "yarn", "cargo", "go", "docker", "kubectl", "make", "pip", "python", "python3"}
)
_WRITES = LazyPattern(r"write|edit|patch|create|replace|insert|save|append|rename|move|delete|notebook", re.IGNORECASE)
_PATCHED = LazyPattern(r"^(?:\*\*\* (?:Update|Add|Delete) File: |\+\+\+ b/)(\S[^\n]{0,300})$", re.MULTILINE)
_ERROR_LINE = LazyPattern(
    r"^(?:\[?(?:error|fatal|panic|exception|failed|failure)(?:\s*[:：!\]]|\s*$| (?:while|when|executing|running|reading"
    r"|writing|calling|opening|code|status|\d)\b)|(?:failed|unable) to |(?:错误|錯誤|エラー|오류)(?:\s*[:：!！\]]|\s*$)"
    r"|traceback \(most recent"
    r"|\w{1,60}(?:\.\w{1,60}){0,6}(?:error|exception)\b\s*[:(]|error\[|e\s{2,}\w+error"
    r"|found [1-9]\d{0,5} errors?\b|={2,}.*\b[1-9]\d{0,5} (?:failed|errors?)\b|(?:failed|error) [\w./:\[\]-]{1,120} - "
    r"|(?:bash|sh|zsh)[:\w ]{0,20}: .*(?:not found|no such file|denied)|[\w./-]{1,40}: (?:unable to|cannot|could not) "
    r"|.{0,120}: (?:command not found"
    r"|no such file or directory"
    r"|permission denied)|npm err!|make: \*\*\*|[1-9]\d{0,5} failed\b|执行失败|操作失败)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class ToolStep:
    """One tool call. `key` is the same for another try of the same thing; `failed` is None without a result."""

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


def steps_of(messages: Sequence[Message]) -> list[ToolStep]:
    """Return every tool call with its result, in order."""
    found: list[ToolStep] = []
    waiting: dict[str, int] = {}
    for message in messages:
        for call in message.tool_calls if message.role == "assistant" else ():
            name, arguments = _read_call(call)
            if name:
                waiting[str(call.get("id", ""))] = len(found)
                subject = " ".join(_argument(arguments, _SUBJECTS)[:400].split())[:100]
                found.append(ToolStep(name, subject, _key(name, arguments), message.id, arguments))
        if message.role in ("tool", "function"):
            at = waiting.pop(message.tool_call_id or "", None)
            output = text_of(message.content)
            if at is not None:
                step = found[at]
                failed = has_failed(output) and not _found_nothing(step.key, output)
                found[at] = ToolStep(step.tool, step.subject, step.key, step.message, step.arguments, failed, output)
            elif message.tool_name:
                name = message.tool_name
                found.append(ToolStep(name, "", name, message.id, {}, has_failed(output), output))
    return found


def _read_call(call: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the name and the arguments of a tool call, in any of the formats in use."""
    function = call.get("function")
    inner: Mapping[str, Any] = function if isinstance(function, Mapping) else call
    given = inner.get("arguments", inner.get("input"))
    if isinstance(given, str):
        try:
            given = json.loads(given) if len(given) < _LARGEST_JSON else {}
        except (ValueError, RecursionError):
            given = {"command": given}
    name = inner.get("name")
    return name if isinstance(name, str) else "", dict(given) if isinstance(given, Mapping) else {}


def has_failed(output: str) -> bool:
    """Return whether a tool's output says that it failed: by its fields, its exit code, or its first or last line."""
    stripped = output.strip()
    if stripped.startswith("{"):
        said = _failed_by_fields(stripped)
        if said is None:  # probably cut in its middle; the field may still be there
            flag = _FLAG.search(stripped[:_EDGE]) or _FLAG.search(stripped[-_EDGE:])
            said = (flag[1] == "false") if flag else None
        if said is not None:
            return said
    ends = f"{stripped[:_EDGE]}\n{stripped[-_EDGE:]}" if len(stripped) > 2 * _EDGE else stripped
    if codes := [found[1] for found in _EXIT.finditer(ends)]:
        return codes[-1].lstrip("-0") != ""
    return any(map(_is_error_line, (*_edge_line(stripped, 0), *_edge_line(stripped, -1))))


def _found_nothing(key: str, output: str) -> bool:
    """Return whether a search program only says, by exit code 1, that it found nothing."""
    if key.rpartition("\0")[2] not in _table()["says no by exit code 1"]:
        return False
    codes = [found[1] for found in _EXIT.finditer(output[-_EDGE:])]
    lines = [line for line in _edge_line(output, 0) if not _EXIT.search(line)]
    return codes[-1:] == ["1"] and not any(map(_is_error_line, lines))


def _failed_by_fields(text: str) -> bool | None:
    value = _json_object(text)
    if value is None:
        return None
    for name in ("exit_code", "returncode", "exitCode", "status_code", "code"):
        number = value.get(name)
        if isinstance(number, int) and not isinstance(number, bool):
            return number >= 400 if name == "status_code" else number != 0
    for name, good in (("success", True), ("ok", True), ("is_error", False), ("isError", False)):
        if isinstance(value.get(name), bool):
            return value[name] is not good
    return bool(value.get("error")) if "error" in value else None


def _json_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text) if len(text) <= _LARGEST_JSON else None
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _edge_line(text: str, place: int) -> list[str]:
    """Return the first (0) or last (-1) line with text, within the edge of an output."""
    edge = text[:_EDGE] if place == 0 else text[-_EDGE:]
    lines = edge.splitlines()
    found = next((line for line in (lines if place == 0 else reversed(lines)) if line.strip()), None)
    return [] if found is None else [found.strip()[:300]]


def _is_error_line(line: str) -> bool:
    return _ERROR_LINE.match(line) is not None


def error_line(output: str) -> str:
    """Return the last line of a failed output that names an error, else its last line."""
    stripped = output.strip()
    if stripped.startswith("{") and (value := _json_object(stripped)) is not None:
        texts = (value[name] for name in ("error", "stderr", "output", "message") if isinstance(value.get(name), str))
        stripped = next(texts, "").strip() or stripped
    lines = [line.strip() for line in stripped[-4000:].splitlines() if line.strip()]
    named = [line for line in lines if _is_error_line(line)]
    named = named or [line for line in lines if folded(line[:200]) in sign("failed output")]
    return (named or lines or [""])[-1]


def _argument(arguments: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return the first of these arguments that is a text, or a list of words."""
    for name in names:
        value = arguments.get(name)
        if isinstance(value, list):
            value = " ".join(word for word in value if isinstance(word, str))
        if isinstance(value, str) and value.strip():
            return value.strip()
    return ""


def _key(tool: str, arguments: Mapping[str, Any]) -> str:
    """Return what two tries of the same thing have in common: the tool, with its program or its file."""
    command, path = _argument(arguments, _COMMANDS), _argument(arguments, _PATHS)
    what = program(command) if command else path
    return f"{tool}\0{what}" if command or path else tool


def program(command: str) -> str:
    """Return the program that a command line is about: `cd x && FOO=1 sudo pytest -q tests` → `pytest`."""
    pieces = re.split(r"&&|\|\||;|\n", command[:2000])
    for piece in reversed([part for part in pieces if part.strip()]):
        words = [word for word in piece.split("|")[0].split() if not _ASSIGNED.match(word)]
        words = [word for word in words if word not in _PREFIXES and not word.startswith("-")]
        if len(words) > 1 and _SHELL.match(words[0]):
            words = words[1:]
        if words and words[0] not in _NOT_THE_WORK:
            name = words[0].rsplit("/", 1)[-1]
            return f"{name} {words[1].rsplit('/', 1)[-1]}" if name in _TAKES_VERB and len(words) > 1 else name
    return ""


def _paths(step: ToolStep) -> Iterator[str]:
    """Yield the files that a step was given."""
    for name in _PATHS:
        value = step.arguments.get(name)
        if isinstance(value, str) and 0 < len(value.strip()) <= 400 and "\n" not in value:
            yield value.strip()
    patch = step.arguments.get("patch") or step.arguments.get("input") or step.arguments.get("diff")
    if isinstance(patch, str):
        yield from (found[1].strip() for found in _PATCHED.finditer(patch[:_LARGEST_JSON]))


def is_writing(step: ToolStep) -> bool:
    """Return whether a step changes a file, by the name of its tool or of its action."""
    action = step.arguments.get("action") or step.arguments.get("command")
    verb = action if isinstance(action, str) and len(action) < 30 else ""
    return _WRITES.search(step.tool) is not None or _WRITES.match(verb) is not None


_LISTS = ("todos", "todo", "tasks", "items", "plan", "steps")
_DONE = frozenset({"completed", "complete", "done", "cancelled", "canceled", "finished", "skipped"})


def list_of_tasks(arguments: Mapping[str, Any]) -> list[tuple[str, Mapping[str, Any]]] | None:
    """Return status and fields of each open task in a list that a tool was given; None without such a list."""
    for name in _LISTS:
        items = arguments.get(name)
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            continue
        read = [(str(item.get("status", item.get("state", ""))).casefold(), item) for item in items[:200]]
        if any(status for status, _ in read):
            return [(status, item) for status, item in read if status not in _DONE]
    return None


# ── the outcome ──

_SHORT = 400
"""Characters of a user's message; thanks in a longer one may belong to another request."""
_CONTENT = ("confirmed", "pleased", "thanked")
"""Ways to be content, the most telling first: thanks are often only polite."""
_CHECKING = re.compile(r"\b(?:tests?|check|build|verify|lint|compile|compileall|clippy|vet|spec)\b")
_READING_VERB = re.compile(r"^\S+ (?:status|log|show|diff|list|ls|search|info|describe|get|view|--version|version)$")
_QUESTION_END = re.compile(r"[?？]\W*$|(?:ですか|ますか|でしょうか|吗|呢)\W*$")
_PART = re.compile(r"(?<![\d./])(\d{1,9})\s?(?:of|out of|von)\s?(?:the |den )?(\d{1,9})(?![\d./%])")


def judge(
    messages: Sequence[Message], steps: Sequence[ToolStep], *, aborted: bool = False
) -> tuple[Outcome, str, EpisodeError]:
    """Return the outcome, the reason for it, and the error that matters most. The first rule that holds decides.

    `aborted`: the program that ran the conversation reports that it broke off.
    """
    errors = errors_of(messages, steps)
    overcome = next((one for one in reversed(errors) if one.remedy), None)
    stuck = next((one for one in reversed(errors) if not one.remedy), None)
    word, facts, reply = _user_verdict(messages), _facts(messages, steps), _last_answer(messages)
    said = folded(text_of(reply.content)[-4_000:]) if reply is not None else ""
    reported = bool(overcome and facts.checked) or _ends_with_result(reply)
    went_well = reported and not facts.doubtful

    def rules() -> Iterator[tuple[bool, Outcome, str]]:
        waits = word == "" and _is_broken_off(messages) and not _is_remark(messages[-1])
        yield word == "later", "interrupted", "the user wants to continue later"
        yield waits, "interrupted", "it broke off before an answer"
        yield word == "objected" and not facts.worked_since, "failed", "the user objected at the end"
        if word != "confirmed":
            failed = facts.failed and (word == "objected" or said not in sign("open"))
            gave_up = not facts.checked and said in sign("gave up") and said not in sign("needs")
            yield facts.open_tasks, "interrupted", "the list of tasks has open ones"
            yield failed, "failed", "the last error was not overcome"
            yield gave_up, "failed", "the assistant said that it did not succeed"
        yield _left_open(messages, facts, word, reply) != "", "interrupted", "the assistant said that work is left"
        thanked = word == "thanked" and (reported or overcome is not None or not facts.worked)
        yield thanked or word in ("confirmed", "pleased"), "successful", "the user confirmed it"
        yield aborted, "interrupted", "the program broke off"
        yield facts.checked and went_well, "successful", "the last test or build passed"
        sure = word == "" and said not in sign("unsure")
        yield facts.ran and went_well and sure, "successful", "the last steps succeeded, and the user did not object"
        yield True, "unclear", "neither the user nor a tool showed how it went"

    outcome, why = next((outcome, why) for holds, outcome, why in rules() if holds)
    if outcome != "successful":
        return outcome, why, stuck or overcome or EpisodeError("")
    if overcome and word == "":
        why = f"the error was overcome, and {why}"
    return "resolved" if overcome else outcome, why, overcome or stuck or EpisodeError("")


class _Facts(NamedTuple):
    """The results of the tools.

    `worked`: something was changed or run, and the last try succeeded. `ran`: the last of it was run, not only edited.
    `checked`: a test or build passed after the last change. `failed`: the last test or run failed. `doubtful`: a test
    failed, and only other tests were run after it. `worked_since`: something succeeded after the user's last message.
    """

    worked: bool
    ran: bool
    checked: bool
    failed: bool
    doubtful: bool
    worked_since: bool
    open_tasks: bool


def _facts(messages: Sequence[Message], steps: Sequence[ToolStep]) -> _Facts:
    """Return what the steps show. Reading, looking and taking notes show nothing."""
    last_user = next((one.id for one in reversed(messages) if one.role == "user"), 0)
    failing: dict[str, int] = {}
    passed = changed = worked = failed_run = -1
    since = False
    for at, step in enumerate(steps):
        kind = _kind(step)
        if kind in ("", "look") or step.failed is None:
            continue
        if kind == "check":
            failing.pop(step.key, None)
            if step.failed:
                failing[step.key] = at
            else:
                passed = at
        elif not step.failed:
            changed = at
        if step.failed:
            failed_run = at
        elif kind != "edit" or (failed_run >= 0 and steps[failed_run].key == step.key):
            failed_run = -1
        worked = worked if step.failed else at
        since = since or (not step.failed and step.message > last_user)
    unmet = max(failing.values(), default=-1)
    looked_in_vain = bool(steps) and steps[-1].failed is True and _kind(steps[-1]) == "look"
    wrong = (unmet >= 0 and passed < unmet) or failed_run >= 0 or looked_in_vain
    lists = (tasks for step in reversed(steps) if (tasks := list_of_tasks(step.arguments)) is not None)
    return _Facts(
        worked=worked >= 0 and not wrong,
        ran=worked >= 0 and not wrong and _kind(steps[worked]) != "edit",
        checked=passed >= 0 and passed > changed and not failing and not wrong,
        failed=wrong,
        doubtful=bool(failing),
        worked_since=since,
        open_tasks=bool(next(lists, None)),
    )


def _kind(step: ToolStep) -> str:
    """Return "check", "edit", "run", or "look" for a run that only looks; empty for any other tool."""
    if not (words := _argument(step.arguments, _COMMANDS)):
        return "edit" if is_writing(step) and list_of_tasks(step.arguments) is None else ""
    name = step.key.rpartition("\0")[2]
    if name.split(" ")[0] in _table()["program that checks"] or _CHECKING.search(words[:300]):
        return "check"
    if ">" in words:  # it writes a file
        return "run"
    looks = (*_table()["program that looks"], *_table()["says no by exit code 1"])
    return "look" if name in looks or name.split(" ")[0] in looks or _READING_VERB.match(name) else "run"


def _is_broken_off(messages: Sequence[Message]) -> bool:
    """Return whether the last request, or the last tool call, has no complete answer."""
    last = messages[-1]
    if last.role in ("tool", "function") or last.tool_calls or last.finish_reason == INTERRUPTED:
        return True
    spoken = next((one for one in reversed(messages) if one.role in ("user", "assistant")), None)
    return spoken is None or spoken.role == "user" or spoken.finish_reason == INTERRUPTED


def _is_remark(last: Message) -> bool:
    """Return whether the last message of the user asks for nothing, and so needs no answer."""
    said = folded(text_of(last.content)[:_SHORT])
    asks = _is_question(said) or said in sign("request") or sign("request at its start").end(said) > 0
    return last.role == "user" and bool(said) and not asks


def _ends_with_result(reply: Message | None) -> bool:
    """Return whether the last sentence of an answer, without courtesies, names a result."""
    text = _prose(text_of(reply.content)[-4_000:]) if reply else ""
    said = [folded(one) for one in _sentences(text) if not _is_courtesy(one)]
    return bool(said) and said[-1] in sign("result") and said[-1] not in sign("offer")


def _last_answer(messages: Sequence[Message]) -> Message | None:
    """Return the last reply that says more than a courtesy; one of a word or two ("np") only if there is no other."""
    replies = [one for one in reversed(messages) if one.role == "assistant"]
    texts = ((one, text_of(one.content)) for one in replies)
    said = [(one, key_sentence(text, LONGEST_RESULT) or _listed_open(text, checked=True)) for one, text in texts]
    return next((one for one, key in said if _is_whole(key)), next((one for one, key in said if key), None))


def _replies(messages: Sequence[Message]) -> list[Message]:
    return [one for one in messages if one.role == "assistant" and _has_text(one)]


def _has_text(message: Message) -> bool:
    return bool(text_of(message.content).strip())


def left_open(messages: Sequence[Message], steps: Sequence[ToolStep]) -> str:
    """Return what is still to be done as the last answer says it, or the task if the user wants to continue later.

    A closing question that waits for the user is open work; an offer is not.
    """
    return _left_open(messages, _facts(messages, steps), _user_verdict(messages), _last_answer(messages))


def _left_open(messages: Sequence[Message], facts: _Facts, word: str, reply: Message | None) -> str:
    task = task_of(messages)
    answer = text_of(reply.content)[-4_000:] if reply is not None else ""
    if facts.worked or not _is_question(folded(task)):  # "not yet" as the answer to a question leaves nothing open
        sentences = _sentences(_prose(answer))
        if named := next((one for one in sentences if _names_open_work(folded(one), word)), ""):
            return named
        if word in ("", "thanked") and (found := _listed_open(answer, checked=facts.checked or bool(word))):
            return found
        last = sentences[-1] if sentences else ""
        said = folded(last)
        if not word and _QUESTION_END.search(said) and said in sign("question") and said not in sign("offer"):
            return last
    return task if word == "later" else ""


def _names_open_work(said: str, word: str) -> bool:
    """Return whether a sentence says that something is left, in words or as a part: "3 of 120 tables"."""
    if said in sign("offer"):
        return False
    if (
        said in sign("open")
        or said in sign("needs")
        or any(int(part) < int(whole) for part, whole in _PART.findall(said))
    ):
        return True
    return said in sign("promised") and word not in _CONTENT


def _listed_open(text: str, *, checked: bool) -> str:
    """Return an open box, or a heading of next steps if no test showed that the work is done."""
    lines = (line for line in text.splitlines() if _OPEN_BOX.match(line) or (not checked and _is_next_heading(line)))
    return cleaned(next(lines, ""))


def _is_question(said: str) -> bool:
    return _QUESTION_END.search(said) is not None or sign("asking").end(said) > 0


def last_word(messages: Sequence[Message]) -> str:
    """Return "content", "not content", or "" if the user said neither at the end."""
    word = _user_verdict(messages)
    return "content" if word in _CONTENT else "not content" if word == "objected" else ""


def _user_verdict(messages: Sequence[Message]) -> str:
    """Return the user's last word: "confirmed", "pleased", "thanked", "trying", "later", "objected", or "".

    Only the last message of the user counts, and only if it is short.
    """
    users = [message for message in messages if message.role == "user"]
    said = folded(text_of(users[-1].content)[: 2 * _SHORT]) if len(users) > 1 else ""
    if not said or len(said) > _SHORT:
        return ""
    for name, word in (("later", "later"), ("thanked anyway", "objected"), ("trying", "trying")):
        if said in sign(name):
            return word
    question = _is_question(said)
    if said in sign("some time") and said not in sign("confirmed") and not question:
        return "later"
    good = max(sign(name).last(said) for name in _CONTENT)
    if good >= 0 and sign("broken").last(said) > good and said not in sign("over"):
        return "objected"
    bad = max(sign("still").last(said), -1 if question else sign("objected").last(said))
    if bad >= 0 and bad + 12 >= good:
        return "objected"
    if good < 0 or said.endswith(("?", "？")) or _GOES_ON.search(said):  # "thanks, and now …" is not the end
        return ""
    if said in sign("confirmed") or said in sign("broken"):  # "thanks, it no longer crashes"
        return "confirmed"
    return "" if _says_more(said) else next(name for name in _CONTENT if said in sign(name))


def _says_more(said: str) -> bool:
    """Return whether there is more than praise and thanks: "great, see you in a month"."""
    for name in ("pleased", "thanked", "courtesy"):
        said = sign(name).sub(" ", said)
    return sum(len(word) / 2 if HAS_CJK.search(word) else 1 for word in _WORDS.findall(said)) > 3


# ── errors, and what helped ──

_NEAR = 40
"""Steps between an error and what overcame it."""
_ORDER = re.compile(
    r"\W*(?:please |pls )?(?:fix|debug|solve|resolve|repair|find|investigate|look|check|help|add|write|make"
    r"|handle|improve|behebe|修复|修復|解决|解決|调试|調試|检查|排查|直して|修正して|고쳐|수정)",
    re.IGNORECASE,
)


class EpisodeError(NamedTuple):
    """An error, and what helped, if anything did. `step` is the place of the tool call, -1 if the user reported it."""

    text: str
    remedy: str = ""
    step: int = -1


def errors_of(messages: Sequence[Message], steps: Sequence[ToolStep]) -> list[EpisodeError]:
    """Return the errors of tools in their order; without any, the error that the user reported."""
    found: list[EpisodeError] = []
    open_keys: set[str] = set()
    for at, step in enumerate(steps):
        if not step.failed:
            open_keys.discard(step.key)
            continue
        if step.key in open_keys:  # a repeated try: only the last error counts
            found = [one for one in found if steps[one.step].key != step.key or one.remedy]
        open_keys.add(step.key)
        what = step.subject if step.subject and len(step.subject) <= 80 else step.tool
        error = cut(f"{what}: {error_line(step.output)}", LONGEST_ERROR)
        found.append(EpisodeError(error, _remedy(steps, at), at))
    return found or _reported_error(messages)


def _remedy(steps: Sequence[ToolStep], at: int) -> str:
    """Return what was done between a failure and the next success of the same thing."""
    failed = steps[at]
    for later in range(at + 1, min(len(steps), at + 1 + _NEAR)):
        step = steps[later]
        if step.key != failed.key or step.failed is not False:
            continue
        between = [one.words for one in steps[at + 1 : later] if one.failed is False and one.subject]
        another_way = step.subject != failed.subject
        before = dict.fromkeys(between[-2:] if another_way else between[-3:])
        return cut("; ".join([*before, f"{'' if another_way else 'then '}{step.words} worked"]), LONGEST_REMEDY)
    return ""


def _reported_error(messages: Sequence[Message]) -> list[EpisodeError]:
    """Return the error that the user reported, with the answer after which they were content."""
    error, answer = "", ""
    for message in messages:
        text = text_of(message.content)
        if message.role == "user":
            said = folded(text[:_SHORT])
            objected = said in sign("objected") or said in sign("still")
            if error and answer and not objected and any(said in sign(name) for name in _CONTENT):
                return [EpisodeError(error, answer)]
            reported = next((one for one in _sentences(text[:4000]) if _reports_error(one)), "")
            if reported and not (error and objected):  # "still the same error" says less than the first report
                error = cut(reported, LONGEST_ERROR)
        elif message.role == "assistant" and error and not message.tool_calls:
            answer = key_sentence(text, LONGEST_REMEDY) or answer
    return [EpisodeError(error)] if error else []


def _reports_error(sentence: str) -> bool:
    """Return whether a sentence reports an error; "fix the error" and "what if it fails?" only ask something."""
    said = folded(sentence[:500])
    asks = _is_question(said) and (
        sign("hypothetical").end(said) > 0 or (said in sign("hypothetical") and HAS_CJK.search(said))
    )
    return said in sign("trouble") and not asks and _ORDER.match(cleaned(sentence, 500)) is None


# ── the result ──


def result_of(messages: Sequence[Message]) -> str:
    """Return the most telling sentence of the last reply that says anything; not the reply to thanks."""
    last_user = next((at for at, one in reversed(list(enumerate(messages))) if one.role == "user"), 0)
    for message in reversed(messages[: last_user if last_word(messages) == "content" else None]):
        complete = message.role == "assistant" and message.finish_reason != INTERRUPTED
        if complete and (found := key_sentence(text_of(message.content), LONGEST_RESULT)):
            return found
    return ""


def key_sentence(text: str, longest: int) -> str:
    """Return the first sentence with a result, else the first whole sentence; no courtesies, and no next steps."""
    lines = _prose(text)[:8_000].splitlines()
    heading = next((at for at, line in enumerate(lines) if _is_next_heading(line)), None)
    said = [one for one in _sentences("\n".join(lines[:heading])) if not _is_courtesy(one)]
    whole = list(filter(_is_whole, said))
    candidates = [one for one in whole if not sign("courtesy").end(folded(one[:60])) > 0] or whole
    chosen = next((one for one in candidates[:12] if folded(one) in sign("result")), "") or next(iter(candidates), "")
    return cut(chosen or " ".join(said[:1]), longest)


def _is_whole(sentence: str) -> bool:
    return len(sentence) >= (4 if sentence and ord(sentence[0]) > 0x2E7F else 12)


def _is_courtesy(sentence: str) -> bool:
    """Return whether a sentence is only a courtesy: "You're welcome.", "不客气，随时可以问我。"."""
    said = folded(sentence[:200])
    if not sign("courtesy").end(said) > 0:
        return False
    left = _WORDS.findall(sign("courtesy").sub(" ", said))
    said_more = sum(len(word) if HAS_CJK.search(word) else 1 for word in left) > 6
    return not said_more and not any(map(str.isdigit, said)) and said not in sign("result")


# ── phrases ──

_GAP = r"[^.!?。！？]{0,40}?"


class Phrases:
    """A list of phrases, found in linear time in a short, folded text.

    A phrase in letters is matched as whole words, one in a script without spaces anywhere. `…` stands for a few words
    of the same sentence.
    """

    def __init__(self, *phrases: str) -> None:
        spaced = [_expression(phrase) for phrase in phrases if not HAS_CJK.search(phrase)]
        free = [_expression(phrase) for phrase in phrases if HAS_CJK.search(phrase)]
        parts = [rf"(?<![\w'])(?:{'|'.join(sorted(spaced, key=len, reverse=True))})(?![\w'])"] if spaced else []
        self._pattern = re.compile("|".join([*parts, *sorted(free, key=len, reverse=True)]))

    def __contains__(self, text: str) -> bool:
        return self._pattern.search(text) is not None

    def end(self, text: str) -> int:
        """Return where a phrase at the beginning of the text ends; 0 if there is none."""
        found = self._pattern.match(text)
        return found.end() if found else 0

    def last(self, text: str) -> int:
        """Return where the last phrase begins; -1 if there is none."""
        return max((found.start() for found in self._pattern.finditer(text)), default=-1)

    def sub(self, other: str, text: str) -> str:
        return self._pattern.sub(other, text)


def _expression(phrase: str) -> str:
    return re.escape(phrase).replace(r"\ ", " ").replace(" … ", rf"\b{_GAP} ").replace("…", _GAP)


@cache
def sign(name: str) -> Phrases:
    """Return the phrases of one sign, in all languages."""
    return Phrases(*_table()[name])


@cache
def _table() -> Mapping[str, Sequence[str]]:
    """Read `signs.tsv` when something is judged first."""
    found: dict[str, list[str]] = {}
    for line in resources.files(__package__).joinpath("signs.tsv").read_text("utf-8").splitlines():
        if not line.startswith("#"):
            name, _, phrases = line.split("\t")
            found.setdefault(name, []).extend(word for phrase in phrases.split(",") if (word := phrase.strip()))
    return found


# ── the terms by which a text is found ──

MOST_TERMS = 24


def terms_of(text: str, most: int = MOST_TERMS) -> tuple[str, ...]:
    """Return the terms by which a text is found: stems of words without stop words, pairs of CJK characters."""
    return tuple(dict.fromkeys(stemmed_terms(folded(text[:4_000]))))[:most]
