"""A summary without a model: sentences of the conversation itself, sorted into the sections by what they say.

It says nothing that was not said. What it leaves out is chosen by age and weight: the newest of each kind stays.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from herma.prompt.results import trouble_lines
from herma.reflect.compress.landmarks import Landmark, bounded, finished_tasks, landmarks, open_tasks, same_task
from herma.reflect.compress.summary import Line, Section, Summary, stands_in
from herma.types import Message

_SENTENCE = re.compile(r"[^.!?。！？\n]++(?:[.!?。！？]++(?!\s|$)[^.!?。！？\n]*+)*+[.!?。！？]*+")
_MARKS: Mapping[Section, re.Pattern[str]] = {
    "constraints": re.compile(
        r"\b(?:must(?: not|n't)?|never|always|only|don't|do not|avoid|instead of|prefers?|make sure|required?"
        r"|should not|at most|at least|no more than|keep)\b"
        r"|必须|不要|务必|只能|禁止|总是|不得|してはいけない|必ず|しないで",
        re.IGNORECASE,
    ),
    "decisions": re.compile(
        r"\b(?:decided|decision|we(?:'ll| will) (?:use|go)|let's (?:use|go)|chose|choose|agreed|settled on|go with"
        r"|going with|switched (?:to|from)|because|so that|rather than)\b|决定|选择|采用|改用|因为|决定しました|採用",
        re.IGNORECASE,
    ),
    "done": re.compile(
        r"\b(?:done|fixed|added|created|implemented|updated|removed|renamed|moved|wrote|written|installed|deployed|passes?"
        r"|passed|works? now|finished|completed|merged|committed|refactored|changed|solved|resolved)\b"
        r"|完成|已经|修复|添加|创建|更新|删除|通过|完了|修正|追加",
        re.IGNORECASE,
    ),
    "errors": re.compile(
        r"\b(?:error|exception|traceback|failed|fails|failure|crash(?:ed|es)?|broken|bug|timed out|denied|refused)\b"
        r"|错误|失败|异常|报错|崩溃|エラー|失敗",
        re.IGNORECASE,
    ),
}
_MOST: Mapping[Section, int] = {
    "goal": 3,
    "constraints": 12,
    "done": 16,
    "state": 6,
    "decisions": 10,
    "questions": 8,
    "files": 24,
    "errors": 10,
    "next": 16,
    "also": 6,
}
_LONGEST = 280
_FILES_A_LINE = 6


@dataclass(frozen=True, slots=True)
class _Said:
    section: Section
    line: Line


def extract(
    messages: Sequence[Message],
    previous: Summary | None = None,
    *,
    scale: float = 1.0,
    paths: Mapping[str, Sequence[int]] | None = None,
) -> Summary:
    """The summary of these messages, on top of an earlier one. `scale` below 1 keeps fewer lines of each kind.

    `paths`: where each path is named, for a caller who knows that already.
    """
    paths = paths_in(messages) if paths is None else paths
    said = [each for message in messages if not _summary_of(message) for each in _sayings(message)]
    finished = {task for message in messages for task in finished_tasks(plain_text(message))}
    summary = previous or Summary()
    for section in _MOST:
        if section in ("files", "also"):
            continue
        old = list(summary.of(section))
        if section == "next":
            old = [line for line in old if not same_task(line.text, finished)]
        fresh = [each.line for each in said if each.section == section]
        if section == "next":
            fresh = [line for line in fresh if not same_task(line.text, finished)]
        most = max(1, round(_MOST[section] * scale))
        merged = _merged([*old, *fresh])
        kept = merged[:most] if section == "goal" else merged[-most:]
        summary = summary.with_lines(section, kept)
    summary = summary.with_lines("files", _files(paths, summary.of("files"), max(2, round(_MOST["files"] * scale))))
    request = last_request(messages)
    return Summary(summary.lines, request or summary.request)


def last_request(messages: Iterable[Message]) -> str:
    """The user's last message, unchanged."""
    requests = (plain_text(each) for each in messages if each.role == "user" and not _summary_of(each))
    return next((text for text in reversed(list(requests)) if text.strip()), "")


def plain_text(message: Message) -> str:
    """What a message says in words, as it was said; not what was injected into it."""
    content = message.content
    if isinstance(content, list):
        return "\n".join(str(part["text"]) for part in content if isinstance(part.get("text"), str))
    return content or ""


def seen_text(message: Message) -> str:
    """The same as the model saw it: of a long tool result, what was sent of it, without the name of its call."""
    if message.role != "tool" or not isinstance(message.sent, str):
        return plain_text(message)
    return message.sent.replace(message.tool_call_id, "") if message.tool_call_id else message.sent


def marks_of(message: Message) -> list[Landmark]:
    """What a message names by which work is found again; tool calls included, an earlier summary not."""
    calls = " ".join(called(call) for call in message.tool_calls)
    return [] if _summary_of(message) else landmarks(f"{seen_text(message)}\n{calls}")


def _summary_of(message: Message) -> bool:
    return stands_in(message)


def _sayings(message: Message) -> Iterator[_Said]:
    """What one message contributes, sentence by sentence."""
    text, source = bounded(plain_text(message)), (message.id,) if message.id else ()
    if message.role == "tool":
        for row in trouble_lines(bounded(seen_text(message)))[:2]:
            yield _Said("errors", Line(_cut(row), source))
        return
    for task in open_tasks(text):
        yield _Said("next", Line(_cut(task), source))
    if message.role == "assistant":
        for call in message.tool_calls:
            yield _Said("state", Line(_cut(called(call)), source))
    for sentence in _sentences(text):
        section = _section(sentence, message.role)
        if section is not None:
            yield _Said(section, Line(_cut(sentence), source))


def _section(sentence: str, role: str) -> Section | None:
    asks = sentence.rstrip().endswith(("?", "？"))
    if role == "user":
        if asks:
            return "questions"
        return "constraints" if _MARKS["constraints"].search(sentence) else "goal"
    if asks:
        return "questions"
    for section in ("decisions", "errors", "done"):
        if _MARKS[section].search(sentence):
            return section
    return None


def _sentences(text: str) -> Iterator[str]:
    fenced = False
    for row in text.split("\n"):
        if row.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
            continue
        if fenced or not row.strip():
            continue
        for match in _SENTENCE.finditer(row.strip().lstrip("#>*- \t")):
            sentence = " ".join(match.group().split())
            if len(sentence) >= 8:
                yield sentence


def called(call: Mapping[str, Any]) -> str:
    """A tool call on one line."""
    function = call.get("function")
    name = function.get("name", "?") if isinstance(function, Mapping) else "?"
    given = function.get("arguments", "") if isinstance(function, Mapping) else ""
    try:
        arguments = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        arguments = given
    if isinstance(arguments, Mapping):
        arguments = ", ".join(f"{key}={' '.join(str(value).split())[:80]}" for key, value in arguments.items())
    return f"called {name}({' '.join(str(arguments).split())})"


def paths_in(messages: Iterable[Message]) -> dict[str, list[int]]:
    """Every path, with the messages that name it."""
    where: dict[str, list[int]] = {}
    for message in messages:
        for mark in marks_of(message):
            if mark.kind == "path":
                where.setdefault(mark.text, []).append(message.id)
    return where


def _files(paths: Mapping[str, Sequence[int]], old: Sequence[Line], most: int) -> list[Line]:
    """Paths with the messages that name them, most often named first, several to a line."""
    where: dict[str, list[int]] = {}
    for line in old:
        for path in line.text.split(", "):
            where.setdefault(path, []).extend(line.sources)
    for path, ids in paths.items():
        where.setdefault(path, []).extend(ids)
    newest = sorted(where, key=lambda path: (-len(where[path]), -max(where[path], default=0)))[: most * _FILES_A_LINE]
    return [
        Line(", ".join(some), tuple(sorted({number for path in some for number in where[path] if number})))
        for some in (newest[at : at + _FILES_A_LINE] for at in range(0, len(newest), _FILES_A_LINE))
    ]


def _merged(lines: Iterable[Line]) -> list[Line]:
    """Each statement once, where it was last made, with all its sources."""
    seen: dict[str, Line] = {}
    for line in lines:
        key = "".join(char for char in line.text.casefold() if char.isalnum())
        before = seen.pop(key, None)
        sources = sorted({*(before.sources if before else ()), *line.sources})
        seen[key] = Line(line.text, tuple(sources))
    return list(seen.values())


def _cut(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"
