"""What the curator should do: skills with what is known of them in, changes of state with reasons out. Pure.

A skill that nobody uses becomes stale, is named in reports, and later goes to the archive, from where it comes back at
any time. One that fails, that the scanner objects to, or that needs what is not there, is marked for review. Pinned
skills are never touched; those of others, and those that others need, never go to the archive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from herma.types.curator import CuratorMemory, CuratorMove, CuratorPlan, CuratorRules, Flag, SkillStanding
from herma.types.skills import SkillState, SkillUsage

_DAY = 86_400.0


def plan(
    standings: Iterable[SkillStanding],
    archived: Collection[str],
    usage: Mapping[str, SkillUsage],
    memory: CuratorMemory,
    now: float,
    rules: CuratorRules,
) -> CuratorPlan:
    """Everything that is due now. `archived`: names in the archive; `usage`: all rows, of skills elsewhere too."""
    all_of_them = sorted(standings, key=lambda each: (each.skill.name, each.skill.path, each.skill.root))
    names = Counter(each.skill.name for each in all_of_them)
    ours = [each for each in all_of_them if _is_free(each) and names[each.skill.name] == 1]
    aged = {each.skill.name: _age(each, now) for each in ours}
    aging = {name for name, age in aged.items() if age is not None and age >= rules.stale}
    aging &= {each.skill.name for each in ours if _looked_after(each, rules)}
    leaving, kept = _leaving(all_of_them, ours, aged, memory, now, rules, usage.values())
    moves = []
    for each in ours:
        name = each.skill.name
        before: SkillState = each.usage.state if each.usage else "active"
        if name in leaving:
            moves.append(CuratorMove(name, each.skill.path, before, "archived", leaving[name]))
        elif (found := _next_state(each, before, aged[name], memory, rules)) is not None:
            moves.append(CuratorMove(name, each.skill.path, before, *found))
    moves += _strayed(archived, names, usage)
    seeds = [each.skill.name for each in ours if _looked_after(each, rules) and aged[each.skill.name] is None]
    return CuratorPlan(tuple(sorted(moves, key=lambda move: move.skill)), kept, tuple(seeds), frozenset(aging))


def remembered(
    memory: CuratorMemory,
    found: CuratorPlan,
    moves: Iterable[CuratorMove],
    usage: Mapping[str, SkillUsage],
    now: float,
) -> CuratorMemory:
    """What to know at the next run: since when each skill is named as unused, and what was said to need review."""
    noticed = {name: memory.noticed.get(name, now) for name in sorted(found.aging)}
    flagged = dict(memory.flagged)
    for move in moves:
        known = usage.get(move.skill)
        if move.after == "needs_review":
            flagged[move.skill] = Flag(
                now, move.reason, known.successes if known else 0, known.failures if known else 0
            )
        elif move.after == "archived":
            flagged.pop(move.skill, None)
        elif move.before == "needs_review" and move.skill in flagged:
            flagged[move.skill] = replace(flagged[move.skill], lifted=True)
        if move.after != "archived" and move.skill in noticed:
            noticed[move.skill] = now  # what was said of it in another state is no notice
    return replace(memory, noticed=noticed, flagged=flagged)


# ── one skill ──


def _is_free(each: SkillStanding) -> bool:
    return not each.skill.external and not (each.usage and each.usage.pinned)


def _looked_after(each: SkillStanding, rules: CuratorRules) -> bool:
    return (each.usage.origin if each.usage else "found") in rules.origins


def _age(each: SkillStanding, now: float) -> float | None:
    """Seconds since anybody had to do with it; None where nothing is known: then it counts from the first look on."""
    if each.usage is None:
        return None
    known = [at for at in (each.usage.last_touched, each.changed) if at is not None]
    return now - max(known) if known else None


def _next_state(
    each: SkillStanding, state: SkillState, age: float | None, memory: CuratorMemory, rules: CuratorRules
) -> tuple[SkillState, str] | None:
    """The state that a skill should have if it stays, and why; None when it has it."""
    if state == "archived":  # somebody moved its folder back
        return _next_state(each, "active", age, memory, rules) or ("active", "it is back in its place")
    if state == "deprecated":
        return None  # a person said so
    flag = memory.flagged.get(each.skill.name)
    ailing = each.broken or _failing(each, flag, rules)
    if ailing:
        return None if state == "needs_review" else ("needs_review", ailing)
    if state == "needs_review":
        return ("active", "what was wrong with it is put right") if flag and not flag.lifted else None
    if not _looked_after(each, rules):
        return None
    if age is None:
        return ("active", "nothing is known of its use; its age counts from now on") if state == "stale" else None
    if age >= rules.stale:
        return None if state == "stale" else ("stale", _unused(age))
    return ("active", f"it was of use {_days(age)} ago") if state == "stale" else None


def _failing(each: SkillStanding, flag: Flag | None, rules: CuratorRules) -> str:
    """What it did before it was put right counts no more."""
    if each.usage is None:
        return ""
    successes, failures = each.usage.successes, each.usage.failures
    if flag and max(each.usage.last_patched or 0.0, each.changed or 0.0) > flag.at:
        successes, failures = max(0, successes - flag.successes), max(0, failures - flag.failures)
    known = successes + failures
    if known < max(rules.uses, 1) or successes / known >= rules.rate:
        return ""
    return f"it failed {failures} times of {known}"


# ── all of them ──


def _leaving(
    all_of_them: Sequence[SkillStanding],
    ours: Sequence[SkillStanding],
    aged: Mapping[str, float | None],
    memory: CuratorMemory,
    now: float,
    rules: CuratorRules,
    usage: Iterable[SkillUsage],
) -> tuple[dict[str, str], dict[str, str]]:
    """The skills that go to the archive, with reasons; and those that would, and what keeps them."""
    kept: dict[str, str] = {}
    due: dict[str, float] = {}
    for each in ours:
        name, age = each.skill.name, aged[each.skill.name]
        if age is None or age < rules.archive:
            continue
        since = memory.noticed.get(name)
        if not _looked_after(each, rules):
            kept[name] = "it was not made by an agent"
        elif since is None or now - since < rules.notice or _says_active(each):
            kept[name] = "it goes only after reports have named it for a while"
        else:
            due[name] = age
    for each in all_of_them:  # said, so that nobody wonders
        if each.usage and each.usage.pinned and (age := _age(each, now)) is not None and age >= rules.archive:
            kept[each.skill.name] = "it is pinned"
    needed_by = _needed_by(all_of_them)
    leaving = _without_needed(due, needed_by)
    kept |= {name: f"{_other(needed_by[name], name)} needs it" for name in due if name not in leaving}
    recent = sum(1 for one in usage if one.archived_at is not None and one.archived_at > now - rules.interval)
    room = max(0, rules.most - recent)
    chosen = _within(room, sorted(leaving, key=lambda name: (-due[name], name)), needed_by)
    kept |= dict.fromkeys(leaving - chosen, f"at most {rules.most} go at a time")
    return {name: _unused(due[name]) for name in chosen}, kept


def _says_active(each: SkillStanding) -> bool:
    """Whether a report would first have to call it stale."""
    return each.usage is None or each.usage.state in ("active", "archived")


def _needed_by(standings: Iterable[SkillStanding]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for each in standings:
        for name in each.skill.dependencies:
            if name != each.skill.name:
                found.setdefault(name, set()).add(each.skill.name)
    return found


def _without_needed(due: Collection[str], needed_by: Mapping[str, set[str]]) -> set[str]:
    """Those that nobody needs who stays. Skills that need only each other go together."""
    leaving = set(due)
    while True:
        needed = {name for name in leaving if not needed_by.get(name, set()) <= leaving}
        if not needed:
            return leaving
        leaving -= needed


def _within(room: int, leaving: Sequence[str], needed_by: Mapping[str, set[str]]) -> set[str]:
    """As many as there is room for, in this order; each with those that need it, or not at all."""
    chosen: set[str] = set()
    while True:
        before = len(chosen)
        for name in leaving:
            group, more = set[str](), {name}
            while more:
                group |= more
                more = {other for each in more for other in needed_by.get(each, ())} - group
            if len(chosen | group) <= room:
                chosen |= group
        if len(chosen) == before:
            return chosen


def _strayed(archived: Collection[str], names: Mapping[str, int], usage: Mapping[str, SkillUsage]) -> list[CuratorMove]:
    """Skills that lie in the archive and are not said to: moved by hand, or by a process that was killed."""
    return [
        CuratorMove(name, "", usage[name].state, "archived", "it lies in the archive")
        for name in sorted(set(archived))
        if name not in names and name in usage and usage[name].state != "archived" and not usage[name].pinned
    ]


def _other(names: set[str], not_this: str) -> str:
    return min(names - {not_this})


def _unused(age: float) -> str:
    return f"nobody used it for {_days(age)}"


def _days(age: float) -> str:
    days = int(max(age, 0.0) // _DAY)
    return "less than a day" if days < 1 else "a day" if days == 1 else f"{days} days"
