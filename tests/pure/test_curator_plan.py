"""What the curator decides: with reasons, once and not twice, whatever the order; and never about what is protected."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.config import CuratorSettings
from herma.skills.curator import CuratorPlan, SkillStanding, plan, remembered
from herma.skills.rows import (
    SKILL_STATES,
    CuratorMemory,
    CuratorMove,
    Flag,
    Skill,
    SkillOrigin,
    SkillState,
    SkillUsage,
)

NOW = 1_800_000_000.0
DAY = 86_400.0
RULES = CuratorSettings()
Shelf = tuple[list[SkillStanding], dict[str, SkillUsage], list[str], CuratorMemory, CuratorSettings]


def usage(
    name: str,
    days: float | None,
    state: SkillState = "active",
    *,
    origin: SkillOrigin = "agent",
    pinned: bool = False,
    successes: int = 0,
    failures: int = 0,
) -> SkillUsage:
    """Last used so many days ago."""
    at = None if days is None else NOW - days * DAY
    row = SkillUsage(name, created=at, last_used=at, state=state, origin=origin, pinned=pinned)
    return replace(row, successes=successes, failures=failures)


def standing(
    name: str, days: float | None = 0, state: SkillState = "active", *, needs: tuple[str, ...] = (), broken: str = "",
    changed: float | None = None, root: str = "", **more: object,
) -> SkillStanding:  # fmt: skip
    skill = Skill(name, f"How to {name}", path=name, dependencies=needs, root=root)
    return SkillStanding(skill, usage(name, days, state, **more), changed, broken)  # type: ignore[arg-type]


def long_ago(*names: str) -> CuratorMemory:
    return CuratorMemory(noticed=dict.fromkeys(names, NOW - 30 * DAY))


def decided(
    *standings: SkillStanding,
    memory: CuratorMemory | None = None,
    archived: Iterable[str] = (),
    rules: CuratorSettings = RULES,
) -> CuratorPlan:
    rows = {each.skill.name: each.usage for each in standings if each.usage}
    return plan(standings, tuple(archived), rows, memory or CuratorMemory(), NOW, rules)


def states(found: CuratorPlan) -> dict[str, str]:
    return {move.skill: move.after for move in found.moves}


# ── single rules ──


@pytest.mark.parametrize(
    ("days", "before", "after"),
    [
        (0, "active", None),
        (29.9, "active", None),
        (30, "active", "stale"),
        (200, "active", "stale"),
        (30, "stale", None),
        (29, "stale", "active"),
        (90, "stale", "archived"),
        (89, "stale", None),
        (90, "needs_review", "archived"),
        (90, "deprecated", "archived"),
        (89, "deprecated", None),
        (0, "deprecated", None),
        (0, "archived", "active"),
        (-5, "stale", "active"),
    ],
)
def test_states_follow_age(days: float, before: SkillState, after: str | None) -> None:
    found = decided(standing("bake", days, before), memory=long_ago("bake"))
    assert states(found) == ({"bake": after} if after else {})


def test_nothing_goes_without_notice() -> None:
    old = standing("bake", 200, "stale")
    assert states(decided(old)) == {}
    fresh = CuratorMemory(noticed={"bake": NOW - 6 * DAY})
    assert states(decided(old, memory=fresh)) == {}
    assert "named" in decided(old, memory=fresh).kept["bake"]
    assert states(decided(old, memory=long_ago("bake"))) == {"bake": "archived"}


def test_what_a_person_made_or_others_need_or_lies_elsewhere_stays() -> None:
    memory = long_ago("mine", "found", "base", "outside", "kept")
    found = decided(
        standing("mine", 300, "stale", origin="user"),
        standing("found", 300, "stale", origin="found"),
        standing("base", 300, "stale"),
        standing("outside", 300, "stale", root="/elsewhere"),
        standing("kept", 300, "stale", pinned=True),
        standing("top", 1, needs=("base",)),
        memory=memory,
    )
    assert states(found) == {}
    assert found.kept == {
        "mine": "it was not made by an agent",
        "found": "it was not made by an agent",
        "base": "top needs it",
        "kept": "it is pinned",
    }
    everybody = replace(RULES, origins="agent, user")
    assert states(decided(standing("mine", 300, "stale", origin="user"), memory=memory, rules=everybody)) == {
        "mine": "archived"
    }


def test_not_too_many_go_at_once() -> None:
    names = [f"skill-{n}" for n in range(25)]
    many = [standing(name, 100 + n, "stale") for n, name in enumerate(names)]
    found = decided(*many, memory=long_ago(*names))
    assert set(states(found)) == set(names[-10:])  # the oldest
    gone = {move.skill: replace(usage(move.skill, 200), archived_at=NOW) for move in found.moves}
    rest = [each for each in many if each.skill.name not in gone]
    rows = {**gone, **{each.skill.name: each.usage for each in rest if each.usage}}
    assert plan(rest, tuple(gone), rows, long_ago(*names), NOW, RULES).moves == tuple(
        CuratorMove(name, "", "active", "archived", "it is in the archive") for name in sorted(gone)
    )
    assert len(plan(rest, (), rows, long_ago(*names), NOW + 8 * DAY, RULES).moves) == 10


def test_failures_and_breakage_call_for_review_and_repair_is_noticed() -> None:
    bad = standing("bake", 1, failures=4, successes=1)
    assert decided(bad).moves[0].reason == "it failed 4 of 5 times"
    assert states(decided(standing("bake", 1, failures=3, successes=1))) == {}  # too little is known
    assert states(decided(standing("bake", 1, failures=3, successes=3))) == {}
    broken = standing("bake", 1, origin="user", broken="it needs flour, which is not there")
    assert decided(broken).moves[0].after == "needs_review"
    assert states(decided(standing("bake", 1, "needs_review"))) == {}  # a person said so
    flagged = CuratorMemory(flagged={"bake": Flag(NOW - 5 * DAY, "", 1, 4)})
    ill = standing("bake", 1, "needs_review", failures=4, successes=1)
    assert states(decided(ill, memory=flagged)) == {}
    mended = ill._replace(changed=NOW - DAY)
    assert states(decided(mended, memory=flagged)) == {"bake": "active"}
    unused = standing("bake", 40, "needs_review")  # its dependency is back, and nobody used it
    assert states(decided(unused, memory=flagged)) == {"bake": "stale"}
    lifted = CuratorMemory(flagged={"bake": Flag(NOW - 5 * DAY, "", 1, 4, lifted=True)})
    again = standing("bake", 1, failures=9, successes=1, changed=NOW - DAY)
    assert states(decided(again, memory=lifted)) == {"bake": "needs_review"}
    assert states(decided(standing("bake", 1, failures=5, successes=4, changed=NOW - DAY), memory=lifted)) == {}


def test_two_of_one_name_are_left_alone_and_of_the_unknown_the_age_counts_from_now() -> None:
    one, other = standing("bake", 300, "stale"), standing("bake", 300, "stale")
    other = other._replace(skill=replace(other.skill, path="kitchen/bake"))
    assert states(decided(one, other, memory=long_ago("bake"))) == {}
    new = SkillStanding(Skill("bake", "x", path="bake"))
    found = plan([new], (), {}, CuratorMemory(), NOW, replace(RULES, origins="agent, found"))
    assert (found.moves, found.seeds) == ((), ("bake",))
    assert plan([new], (), {}, CuratorMemory(), NOW, RULES).seeds == ()


# ── properties ──

NAMES = ["ask", "bake", "cut", "dig", "eat"]
moments = st.one_of(st.none(), st.floats(NOW - 300 * DAY, NOW + 5 * DAY))


@st.composite
def shelves(draw: st.DrawFn) -> Shelf:
    def some() -> list[str]:
        return draw(st.lists(st.sampled_from(NAMES), unique=True))

    standings: list[SkillStanding] = []
    archived: list[str] = []
    rows: dict[str, SkillUsage] = {}
    for name in some():
        row = SkillUsage(
            name,
            state=draw(st.sampled_from(SKILL_STATES)),
            origin=draw(st.sampled_from(("agent", "user", "installed", "found"))),
            pinned=draw(st.booleans()),
            successes=draw(st.integers(0, 6)),
            failures=draw(st.integers(0, 6)),
            created=draw(moments),
            last_used=draw(moments),
        )
        if draw(st.integers(0, 9)):
            rows[name] = row
        if draw(st.integers(0, 5)) == 0:
            archived.append(name)
            continue
        path, root = draw(st.sampled_from((name, f"home/{name}"))), draw(st.sampled_from(("", "", "", "/out")))
        needs = tuple(draw(st.lists(st.sampled_from(NAMES), max_size=2)))
        changed = draw(st.one_of(st.none(), st.floats(NOW - 300 * DAY, NOW)))
        skill = Skill(name, "x", path=path, root=root, dependencies=needs)
        standings.append(SkillStanding(skill, rows.get(name), changed, draw(st.sampled_from(("", "", "", "broken")))))
    noticed = {name: NOW - draw(st.floats(0, 30)) * DAY for name in some()}
    flags = {name: Flag(NOW - draw(st.floats(0, 99)) * DAY, "", 1, 3, draw(st.booleans())) for name in some()}
    origins = draw(st.sampled_from(("agent", "agent, user, found", "")))
    rules = replace(RULES, most_archived=draw(st.integers(0, 6)), origins=origins)
    return standings, rows, archived, CuratorMemory(noticed=noticed, flagged=flags), rules


def after(
    standings: list[SkillStanding], rows: Mapping[str, SkillUsage], archived: list[str], found: CuratorPlan
) -> tuple[list[SkillStanding], dict[str, SkillUsage], list[str]]:
    """Everything as it is once the plan was carried out."""
    new = dict(rows)
    for name in found.seeds:
        new[name] = replace(new.get(name) or SkillUsage(name), created=NOW)
    for move in found.moves:
        known = new.get(move.skill) or SkillUsage(move.skill, created=NOW)
        new[move.skill] = replace(known, state=move.after, archived_at=NOW if move.after == "archived" else None)
    gone = [move.skill for move in found.moves if move.after == "archived" and move.path]
    left = [each._replace(usage=new.get(each.skill.name)) for each in standings if each.skill.name not in gone]
    return left, new, [*archived, *gone]


@given(shelves(), st.randoms(use_true_random=False))
def test_twice_is_as_good_as_once_and_the_order_does_not_matter(given_: Shelf, dice: random.Random) -> None:
    standings, rows, archived, memory, rules = given_
    found = plan(standings, archived, rows, memory, NOW, rules)
    then = remembered(memory, found, found.moves, rows, NOW)
    left, new, put_away = after(standings, rows, archived, found)
    again = plan(left, put_away, new, then, NOW, rules)
    assert (again.moves, again.seeds) == ((), ())
    shuffled = dice.sample(standings, len(standings))
    other = dict(dice.sample(list(rows.items()), len(rows)))
    assert plan(shuffled, dice.sample(archived, len(archived)), other, memory, NOW, rules) == found


@given(shelves())
def test_what_is_protected_is_never_touched_and_every_move_has_a_reason(
    given_: Shelf,
) -> None:
    standings, rows, archived, memory, rules = given_
    found = plan(standings, archived, rows, memory, NOW, rules)
    by_name = {each.skill.name: each for each in standings}
    needed = {name for each in standings for name in each.skill.dependencies if name != each.skill.name}
    leaving = {move.skill for move in found.moves if move.after == "archived" and move.path}
    for move in found.moves:
        assert move.reason
        assert move.before != move.after
        row = rows.get(move.skill)
        assert row is None or not row.pinned
        if move.skill in leaving:
            each = by_name[move.skill]
            assert not each.skill.external
            assert (row.origin if row else "found") in rules.origins.split(", ")
            assert move.skill in memory.noticed
    assert not leaving & needed
    assert len(leaving) <= rules.most_archived
    assert len({move.skill for move in found.moves}) == len(found.moves)


# ── what could be merged, and what is said ──
