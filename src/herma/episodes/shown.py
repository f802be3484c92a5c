"""Episodes and states as a model or a person reads them. Their text was said by others: it is data, never an order.

Every field is scanned when it is shown. A task that the scanner objects to hides its episode; any other field is left
out. What came out of a tool is put in quotes and named as that.
"""

from __future__ import annotations

import datetime
from collections import Counter
from collections.abc import Callable, Sequence

from herma.prompt.fence import neutralize
from herma.safety.scan import scan
from herma.types import Digest, Episode, SessionState

_DIGEST_LINES = 40


def day(at: float) -> str:
    """The date, in local time; empty where no calendar has it."""
    try:
        return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d")  # noqa: DTZ006  the user's own day
    except (ValueError, OverflowError, OSError):
        return ""


def label(episode: Episode) -> str:
    """How it ended, in the words that are shown to a model."""
    if episode.outcome == "resolved" or (episode.outcome != "successful" and episode.remedy):
        return "failed but resolved"
    return episode.outcome


def safe(text: str) -> str:
    """A field on one line, without tags that could close a fence; nothing where the scanner objects."""
    line = " ".join(neutralize(text).split())
    return "" if scan(line) else line


def quoted(text: str) -> str:
    return f'"{text.replace(chr(34), chr(39)).replace("`", chr(39))}"'


def line_of(episode: Episode, *, brief: bool = False) -> str:
    """On one line: date, how it ended, task, result, pitfall and what helped. Nothing when it must not be shown."""
    task = safe(episode.task)
    if not task:
        return ""
    line = f"{day(episode.ended)}, {label(episode)}: {task}"
    result = safe(episode.result)
    if result and result != task:
        line += f" → {result}"
    error, remedy = safe(episode.error), safe(episode.remedy)
    if error and not brief:
        line += f" | Pitfall met then (as a tool or the user reported it): {quoted(error)}"
        if remedy:
            line += f"; what helped: {quoted(remedy)}"
    return line


def within(
    episodes: Sequence[Episode], budget: int, count: Callable[[str], int], most: int
) -> list[tuple[Episode, str]]:
    """The first ones that fit together, each as long as it may be: whole, else without its pitfall, else not at all."""
    chosen: list[tuple[Episode, str]] = []
    left = budget
    for episode in episodes:
        if len(chosen) == most:
            break
        for line in (line_of(episode), line_of(episode, brief=True)):
            if line and count(line) <= left:
                chosen.append((episode, line))
                left -= count(line)
                break
    return chosen


def state_line(state: SessionState) -> str:
    """One line for whoever begins in the same project. "" when there is nothing to go on with."""
    parts = [f"next: {step}" if (step := safe(state.next_step)) else ""]
    tasks = [task for one in state.open_tasks[:3] if (task := safe(one)) and task != safe(state.next_step)]
    parts.append(f"open: {'; '.join(tasks)}" if tasks else "")
    said = ". ".join(part.rstrip(".") for part in parts if part)
    if not said:
        return ""
    how = "Left open here" if state.ended else "Broken off here, or still open in another program,"
    return f"{how} on {day(state.at)} ({said}). Ask before going on with it; session_search has the rest."


def state_text(state: SessionState) -> str:
    """Where the work stood, in lines for people and models."""
    broken_off = "" if state.ended else ", when it broke off (or it is still open in another program)"
    lines = [f"Where it stood on {day(state.at)}{broken_off}:"]
    named = (
        ("Last request", "" if state.finished and not state.last_request else state.last_request),
        ("Next step", state.next_step),
        ("Folder", f"{state.folder}{f' (branch {state.branch})' if state.branch else ''}" if state.folder else ""),
    )
    lines += [f"{name}: {line}" for name, text in named if (line := safe(text))]
    if tasks := [task for one in state.open_tasks if (task := safe(one))]:
        lines += ["Open tasks:", *(f"- {task}" for task in tasks)]
    if files := [path for one in state.files if (path := safe(one))]:
        lines.append(f"Files: {', '.join(files)}")
    if not state.finished:
        lines.append("The last request was not answered.")
    return "\n".join(lines)


def digest(month: str, episodes: Sequence[Episode]) -> Digest:
    """A month's archived episodes in a few lines: how many, how they ended, and what they were about."""
    ended = ", ".join(f"{count} {name}" for name, count in Counter(map(label, episodes)).most_common())
    kinds = ", ".join(f"{name} {count}" for name, count in Counter(one.category for one in episodes).most_common(5))
    lines = [f"{month}: {len(episodes)} episode{'' if len(episodes) == 1 else 's'} ({ended}); {kinds}."]
    tasks: Counter[str] = Counter()
    for one in episodes:
        tasks[safe(one.task)[:120] or "(withheld)"] += 1
    lines += [f"- {task}{f' ×{count}' if count > 1 else ''}" for task, count in tasks.most_common(_DIGEST_LINES)]
    if len(tasks) > _DIGEST_LINES:
        lines.append(f"- and {len(tasks) - _DIGEST_LINES} other tasks")
    return Digest(month, len(episodes), "\n".join(lines), tuple(one.id for one in episodes))
