"""Nothing that was only read becomes an order because it was summed up.

A summary stands where the user and the agent speak, so each of its lines is looked at once more: fences and credentials
are taken out, and a line that reads like an attack is left out, with a note that says where its originals are. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from herma.prompt.fence import sanitize
from herma.reflect.compress.fidelity import Survey
from herma.reflect.compress.summary import Line, Section, Summary, ranges
from herma.safety.scan import scan
from herma.transcript.redact import Redactor
from herma.types import Finding

LONGEST_LINE = 1_200
"""Characters of one line."""
_SHOWN = 5
"""Notes about single lines; more are counted."""


def vetted(summary: Summary) -> tuple[Summary, list[str]]:
    """The summary with its lines cleaned, without those that are not to be trusted; and what people should know."""
    redactor = Redactor()
    cleaned = [
        (section, Line(_clean(redactor, line.text), line.sources))
        for section, every in summary.lines.items()
        for line in every
    ]
    against = _objections([line.text for _, line in cleaned])
    lines: dict[Section, list[Line]] = {}
    for at, (section, line) in enumerate(cleaned):
        if line.text and at not in against:
            lines.setdefault(section, []).append(line)
    notes = [_note(cleaned[at][1], finding) for at, finding in sorted(against.items())]
    if len(notes) > _SHOWN:
        notes[_SHOWN:] = [f"{len(notes) - _SHOWN} more lines of the summary were left out in the same way."]
    return Summary({section: tuple(some) for section, some in lines.items()}, summary.request), notes


def _objections(texts: Sequence[str]) -> dict[int, Finding]:
    """Which of these lines the scanner objects to, alone or together with those beside them."""
    ends = list(accumulate(len(text) + 1 for text in texts))
    found: dict[int, Finding] = {}
    for finding in scan("\n".join(texts)):
        first, last = (bisect_right(ends, at) for at in (finding.span[0], max(finding.span[0], finding.span[1] - 1)))
        found |= {at: finding for at in range(first, min(last, len(texts) - 1) + 1) if at not in found}
    return found


def fit_to_repeat(survey: Survey) -> Survey:
    """What a summary must name, without credentials and without what reads like an attack."""
    names = _passed([each.mark.text for each in survey.weighty])
    tasks = _passed(list(survey.tasks))
    return Survey(
        tuple(each for each in survey.weighty if each.mark.text in names),
        {task: at for task, at in survey.tasks.items() if task in tasks},
    )


def _passed(texts: Sequence[str]) -> set[str]:
    """The texts that the scanner lets through. Mostly that is all of them, and one look will do."""
    every = {text for text in texts if text}
    if not scan("\n\n".join(sorted(every))):
        return every
    return {text for text in every if not scan(text)}


def _clean(redactor: Redactor, text: str) -> str:
    plain = " ".join(redactor.text(sanitize(text)).split())
    return plain if len(plain) <= LONGEST_LINE else f"{plain[: LONGEST_LINE - 1].rstrip()}…"


def _note(line: Line, finding: Finding) -> str:
    where = f"; its messages are {ranges(line.sources)}" if line.sources else ""
    return f"A line of the summary was left out, because it {finding.why} ({finding.rule}){where}."
