"""Which sessions are live, which projects are meant, and what is tried when nothing is found."""

from __future__ import annotations

import pytest

from herma.search.candidates import Filters, live_sessions, same_project, wider
from herma.search.query import Dropped, parse
from herma.transcript.rows import Head
from herma.types import Reason, Scope, SessionInfo


def session(id_: str, parent: str | None = None, reason: Reason = "new") -> SessionInfo:
    return SessionInfo(id_, "cli", Scope(), 0.0, "a", parent=parent, reason=reason)


def test_what_was_compressed_away_is_no_longer_live() -> None:
    members = [session("a"), session("b", "a", "resume"), session("c", "b", "compression"), session("d", "c", "resume")]
    assert live_sessions("d", members) == {"c", "d"}
    assert live_sessions("b", members) == {"a", "b", "c", "d"}
    assert live_sessions("x", members) == {"a", "b", "c", "d", "x"}
    assert live_sessions("a", [session("a", "b", "resume"), session("b", "a", "resume")]) == {"a", "b"}


@pytest.mark.parametrize(
    ("asked", "project", "same"),
    [
        *(("/src/shop", "/src/shop", True), ("shop", "/src/Shop", True), ("/src", "/src/shop/", True)),
        *(("sho", "/src/shop", False), ("/src/shop", "/src/shopping", False)),
    ],
)
def test_projects(asked: str, project: str, same: bool) -> None:
    assert same_project(asked, project) is same


def test_what_is_of_another_profile_is_left_out() -> None:
    head = Head(1, "a", "user", 0.0, "")
    of = {name: SessionInfo("a", "cli", Scope(profile=name), 0.0, "a") for name in ("", "work", "play")}
    assert Filters(scope=Scope(profile="work")).against(head, of["play"]) == "another profile"
    assert not Filters(scope=Scope(profile="work")).against(head, of["work"])
    assert not Filters(scope=Scope(profile="work")).against(head, of[""]), "kept before there were profiles"
    assert not Filters(scope=Scope()).against(head, of["play"])


def test_filters_are_given_up_one_by_one() -> None:
    query = parse("apple role:tool source:web", 0.0)
    filters = Filters(query)
    attempts = list(
        wider(query, filters, [Dropped("role", 3), Dropped("source", 1)], lambda parts, beginnings, limit: ())
    )
    assert [(bool(at.filters.query.roles), bool(at.filters.query.sources)) for at in attempts] == [
        (False, True),
        (True, False),
        (False, False),
    ]


@pytest.mark.parametrize(
    ("asked", "known", "offered"),
    [
        ("kuberntes", ["kubernet", "kubelet", "kiwi"], ["kubernet*"]),
        ("eat", ["great", "heater"], []),  # three letters in the middle of a word
        ("eat", ["great", "heater", "eaten"], ["eaten*"]),
    ],
)
def test_words_alike_are_offered(asked: str, known: list[str], offered: list[str]) -> None:
    attempts = list(wider(parse(asked, 0.0), Filters(), [], lambda *_: known))
    assert [str(term) for attempt in attempts for term in attempt.query.any_of] == offered
    assert all(offered[0] in attempt.note for attempt in attempts)
