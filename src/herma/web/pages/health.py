"""What the doctor found, with what to type, and how guests have been."""

from __future__ import annotations

from herma.doctor import Check, Diagnosis
from herma.web.house import House
from herma.web.html import Html, join, tag
from herma.web.pages.parts import card, command, moment, nothing, state, table
from herma.wording.health import diagnosis_json, verdict
from herma.wording.sessions import Json

_ORDER = ("problem", "warning", "note", "ok")
_SECONDS = 5.0
"""Several tabs share one look."""
_TYPED = ("herma ", "chmod ", "ls ", "pip ")
"""How what can be typed begins; other next steps are sentences."""


def gather(house: House) -> Diagnosis:
    return house.doctor(at_most=_SECONDS)


def tell(found: Diagnosis) -> Json:
    return diagnosis_json(found)


def show(found: Diagnosis) -> Html:
    return join(
        tag("p", tag("strong", verdict(found)), " ", tag("code", str(found.home)), class_="lead"),
        card("What was looked at", checks(found.checks), wide=True),
        _guests(found),
    )


def checks(found: tuple[Check, ...]) -> Html:
    """The worst first, otherwise in the order of the round."""
    ordered = sorted(found, key=lambda check: _ORDER.index(check.state))
    rows = [(state(one.state), one.name, join(one.sentence, _next(one))) for one in ordered]
    return table(("state", "what", "found"), rows)


def _next(check: Check) -> Html | None:
    if not check.next or check.state == "ok":
        return None
    typed = check.next.startswith(_TYPED)
    return join(" ", command(check.next) if typed else tag("em", check.next))


def _guests(found: Diagnosis) -> Html:
    title, note = "Guests", "providers, models, servers and watchers that failed in the last week"
    if not found.guests:
        return card(title, nothing("None failed."), note=note, wide=True)
    rows = [(one.name, f"{one.times:,}", moment(one.at), one.what, one.why) for one in found.guests]
    return card(title, table(("guest", "failures", "last", "at what", "why"), rows, numbers=(1,)), note=note, wide=True)
