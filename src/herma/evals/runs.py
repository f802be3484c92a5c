"""Runs as files, so that two of them can be compared."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from herma import __version__
from herma.errors import StoreError, UsageError
from herma.evals.measures import NAMES, Answered, Difference, by_type, difference, figures
from herma.evals.retrieval import Result

FORMAT = "herma-eval/1"


@dataclass(frozen=True, slots=True)
class Run:
    """What was measured, with every single answer."""

    kind: str
    results: tuple[Result, ...]
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Under what circumstances: model, level, settings."""


def as_json(run: Run, *, answers: bool = True) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "version": __version__,
        "kind": run.kind,
        "facts": dict(run.facts),
        "results": [_result_json(one, answers=answers) for one in run.results],
    }


def save(run: Run, path: Path) -> None:
    try:
        path.write_text(json.dumps(as_json(run), ensure_ascii=False) + "\n", "utf-8")
    except OSError as exc:
        raise StoreError(f"{path} cannot be written: {exc.strerror}.", hint="Choose another place.") from exc


def load(path: Path) -> Run:
    try:
        value = json.loads(path.read_text("utf-8"))
    except OSError as exc:
        raise UsageError(f"{path} cannot be read: {exc.strerror}.", hint="Check the path.") from exc
    except ValueError as exc:
        raise UsageError(f"{path} is no saved run.", hint="Save one with `herma eval … --save FILE`.") from exc
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise UsageError(f"{path} is no saved run.", hint="Save one with `herma eval … --save FILE`.")
    try:
        return Run(str(value["kind"]), tuple(map(_result, value["results"])), value["facts"])
    except (KeyError, TypeError, ValueError) as exc:
        raise UsageError(f"{path} is damaged: {exc}.", hint="Measure and save it again.") from exc


@dataclass(frozen=True, slots=True)
class Compared:
    """One set in two runs."""

    set: str
    first: str
    second: str
    differences: tuple[Difference, ...]


def compare(first: Run, second: Run, measures: Sequence[str] = NAMES) -> list[Compared]:
    """Every set that both have, mode by mode; a run of one mode only is compared with every mode of the other."""
    found = []
    for before, after in _pairs(first.results, second.results):
        made = [difference(before.answers, after.answers, name) for name in measures]
        differences = tuple(one for one in made if one is not None)
        if differences:
            found.append(Compared(before.set, before.mode, after.mode, differences))
    if not found:
        raise UsageError(
            "The two runs have no question in common.", hint="Compare runs over the same data, and of the same kind."
        )
    return found


def _pairs(first: Sequence[Result], second: Sequence[Result]) -> Iterator[tuple[Result, Result]]:
    for after in second:
        same = [before for before in first if before.set == after.set]
        alike = [before for before in same if before.mode == after.mode]
        for before in alike or (same if len(same) == 1 else []):
            yield before, after


def _result_json(one: Result, *, answers: bool) -> dict[str, Any]:
    value: dict[str, Any] = {
        "set": one.set,
        "mode": one.mode,
        **figures(one.answers),
        "types": by_type(one.answers),
        "left_out": dict(one.left_out),
        "notes": list(one.notes),
    }
    if answers:
        value["answers"] = [[a.id, a.group, a.type, list(a.places), a.gold, a.took_ms] for a in one.answers]
    return value


def _result(value: Mapping[str, Any]) -> Result:
    answers = tuple(
        Answered(str(id_), str(group), str(type_), tuple(map(int, places)), int(gold), float(took))
        for id_, group, type_, places, gold, took in value["answers"]
    )
    return Result(str(value["set"]), str(value["mode"]), answers, dict(value["left_out"]), tuple(value["notes"]))
