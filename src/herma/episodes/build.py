"""An episode out of a transcript, without a model. Pure: the same messages give the same episode."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from herma.episodes.outcome import judge, result_of
from herma.episodes.phrases import folded
from herma.episodes.steps import Step, steps_of, text_of
from herma.episodes.task import category_of, task_of
from herma.types import Episode, Message, SessionInfo

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
