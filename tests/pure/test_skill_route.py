"""Routing: what the words of a task say about skills, what an embedder adds, and when neither is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.skills.find import (
    WORDS_ONLY,
    Meanings,
    SkillEvidence,
    WordIndex,
    by_path,
    cosine_scale,
    opening,
    reasons,
    similarity,
    sureness,
    texts_for_meaning,
    with_meaning,
)
from herma.skills.library import prompt_index
from herma.skills.rows import Skill, SkillUsage

SHELF = [
    Skill("bake-bread", "Bake a loaf of sourdough bread.", "# Kneading\n\nbody", path="bake-bread"),
    Skill("ship-it", "Release a version of the library.", path="ship-it", triggers=("cut a release", "ship it")),
    Skill("sail-boat", "Sail a small boat in heavy weather.", path="sail-boat", tags=("sea",)),
    Skill("翻訳", "日本語の文章を英語に翻訳する。", path="translate"),
]
INDEX = WordIndex(SHELF)


def best(task: str) -> str:
    found = INDEX.evidence(task)
    return SHELF[max(found, key=lambda at: found[at].wording)].name if found else ""


@pytest.mark.parametrize(
    ("task", "name"),
    [
        ("please bake some sourdough", "bake-bread"),
        ("how is kneading done", "bake-bread"),
        ("ship it", "ship-it"),
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
    assert best(task) == name


def test_a_trigger_that_is_said_weighs_more_than_shared_words() -> None:
    found = INDEX.evidence("cut a release")
    assert found[1].trigger == 1.0
    assert found[1].wording > found[1].words
    assert reasons(found[1])[0] == "the task says its trigger “cut a release”"


def test_a_trigger_of_one_telling_word_needs_its_little_words_too() -> None:
    index = WordIndex([Skill("copy-up", "Copy a file.", path="x", triggers=("put it on the server",))])
    near, far = index.evidence("put this on the server")[0], index.evidence("is the server down")[0]
    assert far.trigger < 0.25 < near.trigger
    assert far.said == ""
    assert index.evidence("put it on the server")[0].trigger == 0.5


def test_one_word_in_common_is_little_however_short_the_task() -> None:
    (alone,) = INDEX.evidence("weather?").values()
    (more,) = INDEX.evidence("sail boat heavy weather").values()
    assert alone.words < 0.5 < more.words


@given(st.text(max_size=120))
def test_no_task_breaks_it_and_every_number_is_in_range(task: str) -> None:
    for evidence in INDEX.evidence(task).values():
        assert 0.0 <= evidence.words <= 1.0
        assert 0.0 <= evidence.trigger <= 1.0
        assert evidence.words <= evidence.wording <= 1.0
        assert similarity(evidence) == evidence.wording


@given(st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(-1, 1))
def test_nearer_in_meaning_is_never_worse(words: float, trigger: float, low: float, high: float) -> None:
    low, high = sorted((low, high))
    evidence = SkillEvidence(words, trigger)

    def near(cosine: float) -> float:
        return similarity(with_meaning(evidence, Meanings({"x": cosine}, cosine_scale("e5-small:abc", ())), "x"))

    assert 0.0 <= near(low) <= near(high) <= 1.0


def test_what_is_not_embedded_is_judged_by_its_words() -> None:
    evidence = SkillEvidence(0.4, 0.0)
    for known in (
        Meanings({"other": 0.8}, cosine_scale("e5-small:abc", ())),
        Meanings({"x": 0.3, "y": 0.1}, cosine_scale("another", (0.3, 0.1))),  # two cosines say nothing about a model
    ):
        assert similarity(with_meaning(evidence, known, "x")) == evidence.wording


def test_cosines_of_any_model_are_read_against_their_spread() -> None:
    for shift, width in ((0.0, 1.0), (0.7, 0.2)):
        cosines = {str(n): shift + width * (0.01 * (n % 7)) for n in range(40)} | {"near": shift + width * 0.6}
        meanings = Meanings(cosines, cosine_scale("some model", cosines.values()))
        assert (with_meaning(SkillEvidence(), meanings, "near").meaning or 0.0) > 0.5
        assert (with_meaning(SkillEvidence(), meanings, "3").meaning or 0.0) < 0.1
    assert cosine_scale("flat", [0.5] * 30) is None


def test_a_skill_with_triggers_is_held_to_them() -> None:
    with_triggers, without = SHELF[1], SHELF[0]
    assert WORDS_ONLY.of(without, 0.5) > WORDS_ONLY.of(without, 0.05) > WORDS_ONLY.of(without, 0.0)
    assert WORDS_ONLY.of(with_triggers, 0.5) == WORDS_ONLY.of(with_triggers, 0.0)
    assert sureness(with_triggers, 0.4, 0.0, 8) < sureness(without, 0.4, 0.0, 8), "much talk makes no trigger"


def test_a_word_of_the_same_meaning_counts_less_than_the_word() -> None:
    (same,) = (each for at, each in INDEX.evidence("release").items() if at == 1)
    (like,) = (each for at, each in INDEX.evidence("publish").items() if at == 1)
    assert 0.0 < like.words < same.words
    assert like.shared == ("publish (ship)",)


def test_a_name_that_is_said_word_for_word_is_a_trigger_where_there_is_none() -> None:
    shelf = [Skill("look-before-asking", "Search first.", path="a"), Skill("draft", "Draft a reply.", path="b")]
    index = WordIndex(shelf)
    assert index.evidence("draft a reply, and look before asking")[0].trigger == 1.0
    assert index.evidence("look at the draft before asking")[0].trigger == 0.0
    assert 1 not in index.evidence("look before asking"), "one word alone is no name that somebody says by chance"
    other = WordIndex([Skill("look-before-asking", "Search first.", path="a", triggers=("dig",))])
    assert other.evidence("look before asking")[0].trigger == 0.0


@given(st.floats(0, 1), st.floats(-1, 1), st.integers(0, 300))
def test_who_leads_and_who_is_told_more_can_be_surer_but_never_less_sure(near: float, lead: float, said: int) -> None:
    plain, held = SHELF[0], SHELF[1]
    assert near <= sureness(held, near, lead, said) <= sureness(plain, near, lead, said)
    assert sureness(plain, near, lead, said) <= sureness(plain, near, max(lead, 0.0) + 0.1, said + 1)
    assert sureness(held, near, 1.0, said) < near + 0.1, "on a short shelf the best always leads by far"


def test_a_skill_is_embedded_whole_and_by_its_sentences() -> None:
    skill = Skill("keep-bees", "Keep bees in a small garden. Use it in spring, when they swarm.", path="farm/keep-bees")
    texts = texts_for_meaning(skill)
    assert list(texts) == ["farm/keep-bees", "farm/keep-bees\n0", "farm/keep-bees\n1"]
    assert texts["farm/keep-bees\n1"] == "keep bees: Use it in spring, when they swarm."
    assert list(texts_for_meaning(Skill("x", "One sentence only.", path="x"))) == ["x"], "the whole says it already"
    assert len(texts_for_meaning(Skill("x", "This is one of many sentences. " * 500, path="x"))) < 20
    assert opening(skill.description) == "Keep bees in a small garden."
    cosines = by_path([("a", 0.5), ("a\n0", 0.6), ("a\n1", 0.9), ("b", 0.4), ("gone\n1", 0.9)])
    assert cosines == {"a": pytest.approx(0.7), "b": 0.4}


# ── the list in the prompt ──


def count(text: str) -> int:
    return len(text) // 4


def listed(usage: dict[str, SkillUsage], budget: int = 1_000, tokens: Callable[[str], int] = count) -> list[str]:
    text = prompt_index(SHELF, usage, budget, tokens)
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
    text = prompt_index(SHELF, {}, budget, count)
    shown = len([line for line in text.split("\n") if line.startswith("- ")])
    assert text == prompt_index(list(reversed(SHELF)), {}, budget, count)
    if shown:
        assert count(text) <= budget
        assert (f"{len(SHELF) - shown} more are not listed" in text) == (shown < len(SHELF))
    assert (text == "") == (budget == 0)
