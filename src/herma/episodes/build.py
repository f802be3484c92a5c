"""Messages → Episode and state (pure)."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from herma.episodes.outcome import (
    COMMANDS,
    FOLDERS,
    INTERRUPTED,
    NEXT,
    NEXT_INLINE,
    Step,
    category_of,
    cleaned,
    cut,
    folded,
    is_writing,
    judge,
    last_word,
    paths_of,
    result_of,
    steps_of,
    task_of,
    text_of,
)
from herma.episodes.types import Episode, SessionState
from herma.types import Message, SessionInfo

# ---------- episodes.build
#
# An episode out of a transcript, without a model. Pure: the same messages give the same episode.

MOST_STEPS = 12
_OWN = frozenset({"memory", "session_search", "todo", "todowrite", "update_plan"})
"""Tools that keep notes: not steps of the work."""


def build(messages: Sequence[Message], info: SessionInfo, steps: Sequence[Step] | None = None) -> Episode | None:
    """The episode of a conversation, or None where there was nothing in it.

    `messages` are of the whole conversation, rewound ones left out; of a long one its beginning and its end. `info` is
    its last session. Nothing in it: nobody asked for anything, or nobody answered.
    """
    task, _ = task_of(messages)
    answered = any(message.role == "assistant" and (message.tool_calls or _says(message)) for message in messages)
    if not task or not answered:
        return None
    steps = steps_of(messages) if steps is None else steps
    judgement = judge(messages, steps, aborted=info.end_reason == "error")
    trouble = judgement.trouble
    return Episode(
        conversation=info.conversation,
        session_id=info.id,
        scope=info.scope,
        source=info.source,
        started=min(message.timestamp for message in messages),
        ended=max(message.timestamp for message in messages),
        task=task,
        category=category_of(task, steps),
        steps=described(steps),
        tools=dict(Counter(step.tool for step in steps).most_common(40)),
        outcome=judgement.outcome,
        why=judgement.why,
        result=result_of(messages),
        error=trouble.error if trouble else "",
        remedy=trouble.remedy if trouble else "",
        skills_applied=_skills(steps, "skill_view"),
        skills_created=_skills(steps, "skill_manage"),
        first_message=messages[0].id,
        last_message=messages[-1].id,
    )


def _says(message: Message) -> bool:
    return bool(text_of(message.content).strip())


def described(steps: Sequence[Step]) -> tuple[str, ...]:
    """The steps in a few words each; runs of the same become one, and of many the first and the last are kept."""
    lines: list[tuple[str, int]] = []
    for step in steps:
        if step.tool.casefold() in _OWN:
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


def _skills(steps: Sequence[Step], tool: str) -> tuple[str, ...]:
    """Names of skills that were looked at, or made."""
    names = [
        str(step.arguments.get("name") or step.arguments.get("skill") or "").strip()[:100]
        for step in steps
        if step.tool == tool and not step.failed and (tool == "skill_view" or step.arguments.get("action") == "create")
    ]
    return tuple(dict.fromkeys(name for name in names if name))


def words_of(episode: Episode) -> str:
    """Everything that is looked for in an episode, folded, what matters most first."""
    parts = (episode.task, episode.error, episode.result, episode.remedy, episode.category)
    names = (*episode.skills_applied, *episode.skills_created, *episode.tools, *episode.steps)
    return folded("\n".join([*parts, *names]))[:4_000]


def merged(new: Episode, old: Episode | None) -> Episode:
    """The new state of an episode that was known before: what was learnt about its use stays."""
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


# ---------- episodes.state
#
# Where the work stood when a session ended: open tasks, folder, files, next step. Without a model. Pure and linear.

MOST_TASKS, MOST_FILES = 10, 20
LONGEST_LINE = 200
_LISTS = ("todos", "todo", "tasks", "items", "plan", "steps")
_DONE = frozenset({"completed", "complete", "done", "cancelled", "canceled", "finished", "skipped"})
_TEXT = ("content", "text", "task", "title", "step", "description", "name")
_OPEN_BOX = re.compile(r"^\s*(?:[-*+]|\d{1,3}[.)])\s+\[ \]\s+(\S[^\n]{0,400})$", re.MULTILINE)
_ITEM = re.compile(r"^\s*(?:[-*+•]|\d{1,3}[.)、])\s*(?:\[ \]\s*)?(\S[^\n]{0,400})$")
_LABEL = re.compile(r"^(?:next steps?|下一步)\s*[:：]\s*", re.IGNORECASE)  # it is shown under this name
_CD = re.compile(r"(?:^|&&|;|\n)\s*cd\s+(\"[^\"\n]{1,300}\"|'[^'\n]{1,300}'|[^\s;&|]{1,300})")


def snapshot(
    messages: Sequence[Message],
    info: SessionInfo,
    *,
    at: float,
    folder: str = "",
    branch: str = "",
    steps: Sequence[Step] | None = None,
) -> SessionState | None:
    """Where the work stands after these messages, or None where nothing was said."""
    users = [message for message in messages if message.role == "user" and text_of(message.content).strip()]
    if not users:
        return None
    steps = steps_of(messages) if steps is None else steps
    content = last_word(messages) == "content"
    finished = _is_finished(messages) or (content and not _AND_NOW.search(text_of(users[-1].content)[:400]))
    last_request = cleaned(text_of(users[-1].content), LONGEST_LINE)
    tasks = _open_tasks(messages, steps)
    settled = content and not tasks
    following = "" if settled else _next_step(messages, tasks)
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


_AND_NOW = re.compile(
    r"(?:^|[\s,.!;])(?:now|next|also|then|please|can you|could you|let's|add|do|make|write|run)\s+\w{2,}"
    r"|接下来|接下來|现在请|然后|然後|再帮|再幫|次に|次は|それと|이제|다음",
    re.IGNORECASE,
)
"""Who thanks waits for no answer, unless they go on: "great, now add the tests"."""


def _is_finished(messages: Sequence[Message]) -> bool:
    last = messages[-1]
    return last.role == "assistant" and not last.tool_calls and last.finish_reason != INTERRUPTED


# ── open tasks ──


def _open_tasks(messages: Sequence[Message], steps: Sequence[Step]) -> list[str]:
    """What the last list of tasks has open: one that a tool keeps counts most, then boxes in the last replies."""
    for step in reversed(steps):
        listed = _listed(step.arguments)
        if listed is not None:
            return listed
    for message in _last_replies(messages):
        text = text_of(message.content)
        boxes = [_line(found[1]) for found in _OPEN_BOX.finditer(text[-20_000:])]
        following = _under_heading(text[-20_000:])
        if boxes or following:
            return list(dict.fromkeys([*boxes, *following]))
    return []


def _last_replies(messages: Sequence[Message]) -> list[Message]:
    """The last reply that says something, and the one before it."""
    said = [one for one in messages if one.role == "assistant" and text_of(one.content).strip()]
    return said[-1:-3:-1]


def _listed(arguments: Mapping[str, Any]) -> list[str] | None:
    """The open ones of a list of tasks that a tool was given, those in hand first; None where there is no such list."""
    for name in _LISTS:
        items = arguments.get(name)
        if not isinstance(items, list) or not items or not all(isinstance(item, dict) for item in items):
            continue
        read = [(str(item.get("status", item.get("state", ""))).casefold(), _text(item)) for item in items[:200]]
        if not any(status for status, _ in read):
            continue
        still = [(status, text) for status, text in read if text and status not in _DONE]
        return [text for _, text in sorted(still, key=lambda pair: "progress" not in pair[0])]
    return None


def _text(item: Mapping[str, Any]) -> str:
    return next((_line(item[name]) for name in _TEXT if isinstance(item.get(name), str) and item[name].strip()), "")


def _under_heading(text: str) -> Iterator[str]:
    """Items of a list below a heading such as "Next steps"."""
    below = False
    for line in text.splitlines():
        if NEXT.match(line[:120].strip().rstrip(":：")):
            below = True
        elif below and (item := _ITEM.match(line[:500])):
            yield _line(item[1])
        elif below and line.strip():
            below = False


def _next_step(messages: Sequence[Message], tasks: Sequence[str]) -> str:
    if tasks:
        return tasks[0]
    for message in _last_replies(messages)[:1]:
        found = None
        for found in NEXT_INLINE.finditer(text_of(message.content)[-4_000:]):  # noqa: B007  the last one counts
            pass
        if found is not None:
            return _line(_LABEL.sub("", found[1]))
    return ""


def _line(text: str) -> str:
    return cut(re.sub(r"[*_`]{1,3}", "", text), LONGEST_LINE)


# ── where ──


def _files(steps: Sequence[Step]) -> tuple[str, ...]:
    """Files that were touched, changed ones first, the last ones of each first."""
    changed = [path for step in reversed(steps) if is_writing(step) and not step.failed for path in paths_of(step)]
    looked_at = [path for step in reversed(steps) if not step.failed for path in paths_of(step)]
    return tuple(dict.fromkeys([*changed, *looked_at]))[:MOST_FILES]


def _folder(steps: Sequence[Step]) -> str:
    """The last folder that a tool was told to work in."""
    for step in reversed(steps):
        for name in FOLDERS:
            value = step.arguments.get(name)
            if isinstance(value, str) and value.startswith(("/", "~")) and "\n" not in value:
                return value[:400]
        for name in COMMANDS:
            value = step.arguments.get(name)
            if isinstance(value, str):
                moved = [found[1].strip("'\"") for found in _CD.finditer(value[:4_000])]
                if moved and moved[-1].startswith(("/", "~")):
                    return moved[-1]
    return ""
