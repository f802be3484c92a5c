"""Which sessions are live, which projects are meant, and what is tried when nothing is found."""

from __future__ import annotations

from herma.search.candidates import wider
from herma.search.query import Dropped, parse
from herma.search.rank import REMEDIES, Filters, live_sessions, same_project
from herma.transcript.rows import Head
from herma.types import Reason, Scope, SessionInfo


def session(id_: str, parent: str | None = None, reason: Reason = "new") -> SessionInfo:
    return SessionInfo(id_, "cli", Scope(), 0.0, "a", parent=parent, reason=reason)


def test_what_was_compressed_away_is_no_longer_live() -> None:
    members = [session("a"), session("b", "a", "resume"), session("c", "b", "compression"), session("d", "c", "resume")]
    assert live_sessions("d", members) == {"c", "d"}
    assert live_sessions("b", members) == {"a", "b", "c", "d"}
    assert live_sessions("x", members) == {"a", "b", "c", "d", "x"}


def test_circles_do_no_harm() -> None:
    assert live_sessions("a", [session("a", "b", "resume"), session("b", "a", "resume")]) == {"a", "b"}


def test_projects() -> None:
    assert same_project("/src/shop", "/src/shop")
    assert same_project("shop", "/src/Shop")
    assert same_project("/src", "/src/shop/")
    assert not same_project("sho", "/src/shop")
    assert not same_project("/src/shop", "/src/shopping")


def test_what_is_of_another_profile_is_left_out() -> None:
    head = Head(1, "a", "user", 0.0, "")
    of = {name: SessionInfo("a", "cli", Scope(profile=name), 0.0, "a") for name in ("", "work", "play")}
    assert Filters(scope=Scope(profile="work")).against(head, of["play"]) == "another profile"
    assert not Filters(scope=Scope(profile="work")).against(head, of["work"])
    assert not Filters(scope=Scope(profile="work")).against(head, of[""]), "kept before there were profiles"
    assert not Filters(scope=Scope()).against(head, of["play"])


def test_every_rule_has_a_remedy() -> None:
    head = Head(1, "a", "user", 0.0, "rewound")
    assert Filters().against(head, session("a")) in REMEDIES
    assert Filters().against(head, None) in REMEDIES


def test_filters_are_given_up_one_by_one() -> None:
    query = parse("apple role:tool source:web", 0.0)
    filters = Filters(roles=query.roles, sources=query.sources)
    attempts = list(
        wider(query, filters, [Dropped("role", 3), Dropped("source", 1)], lambda parts, beginnings, limit: ())
    )
    assert [(bool(attempt.filters.roles), bool(attempt.filters.sources)) for attempt in attempts] == [
        (False, True),
        (True, False),
        (False, False),
    ]


def test_words_alike_are_offered() -> None:
    query = parse("kuberntes", 0.0)
    known = ["kubernet", "kubelet", "kiwi"]
    (attempt,) = wider(query, Filters(), [], lambda *_: known)
    assert [str(term) for term in attempt.query.any_of] == ["kubernet*"]
    assert "kubernet*" in attempt.note


def test_three_letters_in_the_middle_of_a_word_are_no_word_alike() -> None:
    known = ["great", "heater"]
    assert not list(wider(parse("eat", 0.0), Filters(), [], lambda *_: known))
    known.append("eaten")
    (attempt,) = wider(parse("eat", 0.0), Filters(), [], lambda *_: known)
    assert [str(term) for term in attempt.query.any_of] == ["eaten*"]
