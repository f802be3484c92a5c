"""What the curator says of a run: a page for people, and the list of skills before and after. Pure."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from difflib import unified_diff

from herma.types.curator import CuratorMove, CuratorReport


def listing_diff(states: Mapping[str, str], moves: Iterable[CuratorMove]) -> str:
    """The list of skills with their states, before and after these moves, line by line."""
    after = dict(states)
    for move in moves:
        after[move.skill] = move.after
    was, now = ([f"{name}: {state}" for name, state in sorted(side.items())] for side in (states, after))
    return "\n".join(unified_diff(was, now, "before", "after", lineterm="", n=0))


def page(report: CuratorReport) -> str:
    """A report as Markdown."""
    return "\n".join(_lines(report)) + "\n"


def summary(report: CuratorReport) -> str:
    """A run in one sentence."""
    moves = [move for move in report.moves if move.result in ("done", "planned")]
    counts = {state: sum(move.after == state for move in moves) for state in dict.fromkeys(m.after for m in moves)}
    said = ", ".join(f"{count} {_WORDS[state]}" for state, count in counts.items()) or "nothing to do"
    others = {what: sum(move.result == what for move in report.moves) for what in ("staged", "skipped", "failed")}
    more = "".join(f", {count} {what}" for what, count in others.items() if count)
    merges = f", {len(report.merges)} pairs nearly repeat each other" if report.merges else ""
    return f"{report.checked} skills looked at: {said}{more}{merges}."


_WORDS = {
    "active": "active again",
    "stale": "stale",
    "needs_review": "in need of review",
    "deprecated": "deprecated",
    "archived": "to the archive",
}


def _lines(report: CuratorReport) -> Iterator[str]:
    yield f"# Skills, {_when(report.begun)}"
    yield ""
    yield f"Run {report.id} ({report.why}), {report.state}. {summary(report)}"
    if report.snapshot:
        yield f"To take everything back: `herma curator rollback {report.snapshot}`"
    if report.moves:
        yield from ("", "## What was done", "")
        yield from ("| skill | was | is | why | |", "|---|---|---|---|---|")
        for move in report.moves:
            cells = (move.skill, move.before, move.after, move.reason, _result(move))
            yield f"| {' | '.join(map(_cell, cells))} |"
    if report.diff:
        yield from ("", "```diff", report.diff.replace("```", "'''"), "```")
    if report.kept:
        yield from ("", "## What stays, although nobody uses it", "")
        yield from (f"- {_cell(name)}: {_cell(why)}" for name, why in sorted(report.kept.items()))
    if report.merges:
        yield from ("", "## What could be merged", "")
        for one in report.merges:
            inbox = (
                f" In the inbox: {', '.join(map(str, one.pending))} (`herma skills pending`)." if one.pending else ""
            )
            said = f" {_cell(one.said)}" if one.said else ""
            yield f"- {_cell(one.skills[0])} and {_cell(one.skills[1])}: {_cell(one.why)}.{inbox}{said}"
    if report.notes:
        yield from ("", "## Notes", "")
        yield from (f"- {_cell(note)}" for note in report.notes)


def _result(move: CuratorMove) -> str:
    change = f" (change {move.change})" if move.change else ""
    return f"{move.result}{change}" + (f": {move.said}" if move.said else "")


def _cell(text: str) -> str:
    """A text in a table: on one line, and without what would end the cell."""
    return " ".join(text.split()).replace("|", "\\|")


def _when(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(at))
