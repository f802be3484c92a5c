"""Which skill fits a task: words, meaning, when neither is enough, offers, scores, near-duplicates, and the list."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.skills.find import (
    WORDS_ONLY,
    Meanings,
    SkillEvidence,
    WordIndex,
    alike,
    by_path,
    cosine_scale,
    offer,
    reasons,
    score,
    similarity,
    success_rate,
    sureness,
    texts_for_meaning,
    this_platform,
    with_meaning,
)
from herma.skills.library import prompt_index
from herma.skills.rows import SKILL_STATES, Skill, SkillUsage

SHELF = [
    Skill("bake-bread", "Bake a loaf of sourdough bread.", "# Kneading\n\nbody", path="bake-bread"),
    Skill("ship-it", "Release a version of the library.", path="ship-it", triggers=("cut a release", "ship it")),
    Skill("sail-boat", "Sail a small boat in heavy weather.", path="sail-boat", tags=("sea",)),
    Skill("翻訳", "日本語の文章を英語に翻訳する。", path="translate"),
]
INDEX = WordIndex(SHELF)


# ── words ──


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("please bake some sourdough", "bake-bread"),
        ("how is kneading done", "bake-bread"),
        ("we should cut the release today", "ship-it"),
        ("boats at sea", "sail-boat"),
        ("この文章を翻訳して", "翻訳"),
        ("publish the new one", "ship-it"),
        ("どうか ship-it", "ship-it"),
        ("what is the matter", ""),
        ("", ""),
    ],
)
def test_words_lead_to_the_skill(task: str, name: str) -> None:
    found = INDEX.evidence(task)
    assert (SHELF[max(found, key=lambda at: found[at].wording)].name if found else "") == name


def test_a_trigger_weighs_more_than_shared_words_and_a_synonym_less_than_the_word() -> None:
    found = INDEX.evidence("cut a release")
    assert (found[1].trigger, found[1].wording > found[1].words) == (1.0, True)
    assert reasons(found[1])[0] == "the task says its trigger “cut a release”"
    same, like = INDEX.evidence("release")[1], INDEX.evidence("publish")[1]
    assert 0.0 < like.words < same.words
    assert like.shared == ("publish (ship)",)
    (alone,), (more,) = INDEX.evidence("weather?").values(), INDEX.evidence("sail boat heavy weather").values()
    assert alone.words < 0.5 < more.words, "one word in common is little, however short the task is"


def test_a_trigger_of_one_telling_word_needs_its_little_words_too() -> None:
    index = WordIndex([Skill("copy-up", "Copy a file.", path="x", triggers=("put it on the server",))])
    near, far = index.evidence("put this on the server")[0], index.evidence("is the server down")[0]
    assert far.trigger < 0.25 < near.trigger
    assert (far.said, index.evidence("put it on the server")[0].trigger) == ("", 0.5)


@given(st.text(max_size=120))
def test_no_task_breaks_it_and_every_number_is_in_range(task: str) -> None:
    for evidence in INDEX.evidence(task).values():
        assert 0.0 <= evidence.words <= evidence.wording <= 1.0
        assert 0.0 <= evidence.trigger <= 1.0


# ── meaning ──


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_nearer_in_meaning_is_never_worse(words: float, trigger: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    evidence = SkillEvidence(words, trigger)

    def near(cosine: float, path: str = "x") -> float:
        return similarity(with_meaning(evidence, Meanings({"x": cosine}, cosine_scale("e5-small:abc", ())), path))

    assert 0.0 <= near(low) <= near(high) <= 1.0
    assert near(high, "not embedded") == evidence.wording


def test_cosines_of_any_model_are_read_against_their_spread() -> None:
    for shift, width in ((0.0, 1.0), (0.7, 0.2)):
        cosines = {str(n): shift + width * (0.01 * (n % 7)) for n in range(40)} | {"near": shift + width * 0.6}
        meanings = Meanings(cosines, cosine_scale("some model", cosines.values()))
        assert (with_meaning(SkillEvidence(), meanings, "near").meaning or 0.0) > 0.5
        assert (with_meaning(SkillEvidence(), meanings, "3").meaning or 0.0) < 0.1
    assert cosine_scale("flat", [0.5] * 30) is cosine_scale("another", (0.3, 0.1)) is None


def test_a_skill_is_embedded_whole_and_by_its_sentences() -> None:
    skill = Skill("keep-bees", "Keep bees in a small garden. Use it in spring, when they swarm.", path="farm/keep-bees")
    texts = texts_for_meaning(skill)
    assert list(texts) == ["farm/keep-bees", "farm/keep-bees\n0", "farm/keep-bees\n1"]
    assert texts["farm/keep-bees\n1"] == "keep bees: Use it in spring, when they swarm."
    assert list(texts_for_meaning(Skill("x", "One sentence only.", path="x"))) == ["x"], "the whole says it already"
    assert len(texts_for_meaning(Skill("x", "This is one of many sentences. " * 500, path="x"))) < 20
    cosines = by_path([("a", 0.5), ("a\n0", 0.6), ("a\n1", 0.9), ("b", 0.4), ("gone\n1", 0.9)])
    assert cosines == {"a": pytest.approx(0.7), "b": 0.4}


# ── when it is sure, and whether it can be used here ──


@given(st.floats(0, 1), st.floats(-1, 1), st.integers(0, 300))
def test_who_leads_and_who_is_told_more_is_surer(near: float, lead: float, said: int) -> None:
    plain, held = SHELF[0], SHELF[1]
    assert near <= sureness(held, near, lead, said) <= sureness(plain, near, lead, said)
    assert sureness(plain, near, lead, said) <= sureness(plain, near, max(lead, 0.0) + 0.1, said + 1)
    assert sureness(held, near, 1.0, said) < near + 0.1, "with few skills the best always leads by far"
    assert WORDS_ONLY.of(plain, 0.5) > WORDS_ONLY.of(plain, 0.0)
    assert WORDS_ONLY.of(held, 0.5) == WORDS_ONLY.of(held, 0.0), "a skill with triggers is held to them"


@pytest.mark.parametrize(
    ("needs", "tools", "offered", "reason"),
    [
        ({"platforms": ("macos",)}, None, False, "it is for macos, and this is linux"),
        ({"platforms": ("linux", "macos")}, None, True, ""),
        ({"requires_tools": ("terminal", "browser")}, None, True, ""),
        ({"requires_tools": ("terminal", "browser")}, ["terminal"], False, "it needs the tool browser"),
        ({"fallback_for_tools": ("web_search",)}, [], True, ""),
        ({"fallback_for_tools": ("web_search",)}, ["web_search"], False, "it replaces web_search"),
        ({"environment": ("A_KEY", "B_KEY", "C_KEY")}, None, True, "it needs B_KEY and C_KEY, which are not set"),
    ],
)
def test_offers(needs: dict[str, tuple[str, ...]], tools: list[str] | None, offered: bool, reason: str) -> None:
    skill = Skill("x", "Does x.", **needs)  # type: ignore[arg-type]
    found = offer(skill, "linux", tools, lambda name: name == "A_KEY")
    assert (found.offered, found.reason.startswith(reason)) == (offered, True)
    assert found.readiness == ("unsupported" if not offered else "setup_needed" if reason else "available")


def test_systems_are_named_as_skills_name_them() -> None:
    assert [this_platform(name) for name in ("linux", "darwin", "win32", "aix")] == ["linux", "macos", "windows", "aix"]


# ── scores ──


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 0.5),
        ({"uses": 10}, 0.6),
        ({"uses": 500}, 0.7),
        ({"successes": 1, "failures": 1}, 0.5 * 2 / 3),
        ({"state": "deprecated"}, 0.2),
    ],
)
def test_the_score_has_the_documented_defaults(fields: dict[str, object], expected: float) -> None:
    assert score(0.5, SkillUsage("x", **fields)) == pytest.approx(expected)  # type: ignore[arg-type]


COUNT = st.integers(0, 1000)


@given(st.floats(0, 1), st.floats(0, 1), COUNT, COUNT, COUNT, st.sampled_from(SKILL_STATES))
def test_more_similar_more_successful_and_more_used_is_never_worse(
    low: float, high: float, uses: int, good: int, bad: int, state: str
) -> None:
    low, high = sorted((low, high))
    usage = SkillUsage("x", uses=uses, successes=good, failures=bad, state=state)  # type: ignore[arg-type]
    assert -0.3 <= score(low, usage) <= score(high, usage) <= 1.2
    used_more = SkillUsage("x", uses=uses + 1, successes=good + 1, failures=bad, state=state)  # type: ignore[arg-type]
    assert score(high, used_more) >= score(high, usage) - 1e-9
    assert 0.0 < success_rate(usage) <= 1.0, "no failure is the last word"
    assert usage.success_rate == success_rate(usage, 0.0)


def test_a_skill_that_says_nearly_the_same_is_found() -> None:
    long = " ".join(f"word{n}" for n in range(60))
    ((_, why, _),) = alike(Skill("a", "One thing here.", long), [Skill("b", "Quite another matter.", long)])
    assert why.startswith("its body")
    assert alike(Skill("bake-bread", "Bake a loaf of bread at home."), [Skill("b", "Deploy a service.")]) == []


# ── the list in the prompt ──


def listed(usage: dict[str, SkillUsage]) -> list[str]:
    text = prompt_index(SHELF, usage, 1_000, lambda text: len(text) // 4)
    return [line.split(":")[0].removeprefix("- ") for line in text.split("\n") if line.startswith("- ")]


def test_the_most_useful_come_first() -> None:
    assert listed({}) == ["bake-bread", "sail-boat", "ship-it", "翻訳"]
    usage = {
        "ship-it": SkillUsage("ship-it", uses=40, successes=10),
        "sail-boat": SkillUsage("sail-boat", uses=3, pinned=True),
        "bake-bread": SkillUsage("bake-bread", uses=90, state="deprecated"),
    }
    assert listed(usage) == ["sail-boat", "ship-it", "翻訳", "bake-bread"]
    assert listed(usage | {"ship-it": SkillUsage("ship-it", uses=41, successes=10)}) == listed(usage)


@given(st.integers(0, 400))
def test_the_list_keeps_its_budget_and_counts_what_is_left_out(budget: int) -> None:
    text = prompt_index(SHELF, {}, budget, lambda text: len(text) // 4)
    shown = len([line for line in text.split("\n") if line.startswith("- ")])
    assert text == prompt_index(list(reversed(SHELF)), {}, budget, lambda text: len(text) // 4)
    if shown:
        assert len(text) // 4 <= budget
        assert (f"{len(SHELF) - shown} more are not listed" in text) == (shown < len(SHELF))
    assert (text == "") == (budget == 0)
