"""What a doctor found, in one line and as JSON: `herma doctor` and the dashboard."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from herma.wording.sessions import Json, count, iso

if TYPE_CHECKING:
    from herma.doctor import Diagnosis


def verdict(diagnosis: Diagnosis) -> str:
    """`Healthy; 1 warning.`"""
    problems, warnings = len(diagnosis.of("problem")), len(diagnosis.of("warning"))
    if problems:
        return f"{count(problems, 'problem')}, {count(warnings, 'warning')}."
    return f"Healthy; {count(warnings, 'warning')}." if warnings else "Healthy."


def diagnosis_json(diagnosis: Diagnosis) -> Json:
    return {
        "ok": diagnosis.healthy,
        "healthy": diagnosis.healthy,
        "home": diagnosis.home,
        "checks": [asdict(check) for check in diagnosis.checks],
        "guests": [
            {"name": one.name, "failures": one.times, "last": iso(one.at), "at": one.what, "why": one.why}
            for one in diagnosis.guests
        ],
    }
