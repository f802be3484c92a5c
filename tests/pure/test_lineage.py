"""Families of sessions, sound and broken: circles, missing parents, several continuations."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unicodedata import category

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.transcript import log as lineage
from herma.transcript.log import LONGEST, base_of, next_title, sanitized
from herma.types import Scope, SessionInfo

IDS = [f"s{n}" for n in range(7)]


def session(
    id_: str, parent: str | None = None, reason: str = "new", *, at: float = 0.0, messages: int = 0
) -> SessionInfo:
    more: dict[str, Any] = {"parent": parent, "reason": reason, "last_active": at, "message_count": messages}
    return SessionInfo(id_, "cli", Scope(), at, id_, **more)


def family(*members: SessionInfo) -> dict[str, SessionInfo]:
    return {one.id: one for one in members}


@st.composite
def families(draw: st.DrawFn) -> dict[str, SessionInfo]:
    """Anything at all: parents that are not there, that are oneself, that go round in circles."""
    reasons = st.sampled_from(["new", "resume", "branch", "compression", "delegation"])
    members = [
        session(
            id_,
            draw(st.none() | st.sampled_from([*IDS, "gone"])),
            draw(reasons),
            at=draw(st.integers(0, 3)),
            messages=draw(st.integers(0, 1)),
        )
        for id_ in draw(st.lists(st.sampled_from(IDS), min_size=1, unique=True))
    ]
    return family(*members)


@given(families(), st.sampled_from(IDS))
def test_the_tip_of_a_sound_family_is_below_the_start_and_has_nothing_below(
    sessions: dict[str, SessionInfo], start: str
) -> None:
    tip = lineage.tip(sessions, start)
    below = _below(sessions, start)
    assert tip in below
    if start in sessions and not _circular(sessions):
        assert not [one for one in sessions.values() if lineage.goes_on(one) and one.parent == tip]


def _below(sessions: dict[str, SessionInfo], start: str) -> set[str]:
    """A session and everything that goes on from it."""
    below = {start}
    while more := {one.id for one in sessions.values() if lineage.goes_on(one) and one.parent in below} - below:
        below |= more
    return below


def _circular(sessions: dict[str, SessionInfo]) -> bool:
    return any(
        lineage.goes_on(sessions[chain[-1]]) and sessions[chain[-1]].parent in sessions
        for chain in (lineage.ancestors(sessions, id_) for id_ in sessions)
    )


@pytest.mark.parametrize(
    ("members", "tips"),
    [
        (
            [
                *(session("a", at=1), session("b", "a", "branch", at=9), session("c", "a", "delegation", at=9)),
                *(session("d", "a", "compression", at=2), session("e", "d", "resume", at=3)),
            ],
            {"a": "e"},
        ),
        ([session("a"), session("b", "a", "resume", at=1), session("c", "a", "resume", at=2)], {"a": "c", "b": "b"}),
        (
            [
                *(session("a"), session("b", "a", "compression", at=1), session("c", "a", "resume", at=2)),
                session("d", "b", "compression", at=3),
            ],
            {"a": "d", "c": "c"},
        ),
    ],
)
def test_the_most_recent_continuation_is_followed(members: list[SessionInfo], tips: dict[str, str]) -> None:
    assert {start: lineage.tip(family(*members), start) for start in tips} == tips


def test_an_empty_tip_is_not_resumed() -> None:
    sessions = family(
        session("a", messages=2),
        session("b", "a", "compression", at=1, messages=1),
        session("c", "b", "resume", at=2),
    )
    assert lineage.resume_target(sessions, "a") == "b"
    assert lineage.resume_target(family(session("x")), "x") == "x"


@given(families(), st.sampled_from(IDS))
def test_nothing_below_the_start_is_newer_than_what_is_below_the_way_to_the_tip(
    sessions: dict[str, SessionInfo], start: str
) -> None:
    tip = lineage.tip(sessions, start)
    below = _below(sessions, start)
    if start in sessions and not _circular(sessions) and len(below) > 1:
        newest = max((sessions[id_] for id_ in below - {start}), key=lineage.newness)
        assert newest.id in lineage.ancestors(sessions, tip)


def test_a_conversation_with_a_gap_goes_on_behind_it() -> None:
    members = [
        replace(session(id_, parent, reason, at=at, messages=1), conversation="a")
        for id_, parent, reason, at in (("a", None, "new", 0.0), ("c", "b", "resume", 2.0), ("d", "c", "resume", 3.0))
    ]
    assert lineage.one_line(members).id == "d"
    assert lineage.resume_target(lineage.whole(members), "a") == "d"
    assert lineage.one_line(members[1:]).id == "d", "also where the first is gone"


@given(families(), st.sampled_from(IDS))
def test_delegations_are_found_once_and_without_end(sessions: dict[str, SessionInfo], start: str) -> None:
    found = [one.id for one in lineage.delegated(sessions.values(), [start])]
    assert len(found) == len(set(found))
    assert start not in found
    assert {one.id for one in sessions.values() if one.reason == "delegation" and one.parent == start} - {start} <= set(
        found
    )
    for one in sessions:
        above = lineage.delegators(sessions, one)
        assert len(above) == len(set(above))


# ── titles ──


def test_titles_are_numbered() -> None:
    assert next_title("Name", []) == "Name"
    assert next_title("Name", ["Name"]) == "Name #2"
    assert next_title("Name #2", ["Name", "Name #2", "Name #7", "Name #x"]) == "Name #8"
    assert next_title("Name", ["Names", "Name #"]) == "Name"
    assert base_of("C #1 #2") == "C #1"


@given(st.text(max_size=LONGEST).map(sanitized), st.lists(st.text(max_size=12), max_size=5))
def test_the_next_title_is_free_and_short(title: str | None, taken: list[str]) -> None:
    if title is not None:
        proposed = next_title(title, [*taken, base_of(title)])
        assert proposed not in (*taken, base_of(title)) or len(base_of(title)) > LONGEST - 12
        assert len(proposed) <= LONGEST


@given(st.text(max_size=LONGEST))
def test_a_clean_title_stays_clean(title: str) -> None:
    clean = sanitized(title)
    assert sanitized(clean) == clean
    assert clean is None or (clean == clean.strip() and not {category(char) for char in clean} & {"Cc", "Cf"})
    assert sanitized(" Fix\n\tthe\u200b \u202elogin\x07 ") == "Fix the login"
    assert sanitized("Cafe\u0301") == sanitized("Cafe\u200b\u0301") == "Caf\u00e9"
