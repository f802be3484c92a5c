"""Routing: what the words of a task say about skills, what an embedder adds, and when neither is enough."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.recall.stem import stem
from herma.recall.stopwords import STOP_WORDS
from herma.skills.prompt_index import prompt_index
from herma.skills.route import WORDS_ONLY, Evidence, Meanings, WordIndex, reasons, similarity, with_meaning
from herma.skills.terms import Terms
from herma.types import Skill, SkillUsage

TERMS = Terms(stem, STOP_WORDS)
SHELF = [
    Skill("bake-bread", "Bake a loaf of sourdough bread.", "# Kneading\n\nbody", path="bake-bread"),
    Skill("ship-it", "Release a version of the library.", path="ship-it", triggers=("cut a release", "ship it")),
    Skill("sail-boat", "Sail a small boat in heavy weather.", path="sail-boat", tags=("sea",)),
    Skill("翻訳", "日本語の文章を英語に翻訳する。", path="translate"),
]
INDEX = WordIndex(SHELF, TERMS)


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
    evidence = Evidence(words, trigger)

    def near(cosine: float) -> float:
        return similarity(with_meaning(evidence, Meanings({"x": cosine}, model="e5-small:abc"), "x"))

    assert 0.0 <= near(low) <= near(high) <= 1.0


def test_what_is_not_embedded_is_judged_by_its_words() -> None:
    evidence = Evidence(0.4, 0.0)
    known = Meanings({"other": 0.8}, model="e5-small:abc")
    assert similarity(with_meaning(evidence, known, "x")) == evidence.wording
    few = Meanings({"x": 0.3, "y": 0.1}, model="another")
    assert similarity(with_meaning(evidence, few, "x")) == evidence.wording, "two cosines say nothing about a model"


def test_cosines_of_any_model_are_read_against_their_spread() -> None:
    for shift, width in ((0.0, 1.0), (0.7, 0.2)):
        cosines = {str(n): shift + width * (0.01 * (n % 7)) for n in range(40)} | {"near": shift + width * 0.6}
        meanings = Meanings(cosines, model="some model")
        assert with_meaning(Evidence(), meanings, "near").meaning == 1.0
        assert (with_meaning(Evidence(), meanings, "3").meaning or 0.0) < 0.1
        assert meanings.nearest(1) == ["near"]
    assert Meanings(dict.fromkeys(map(str, range(30)), 0.5), model="flat").scale is None


def test_a_skill_with_triggers_is_held_to_them() -> None:
    with_triggers, without = SHELF[1], SHELF[0]
    assert WORDS_ONLY.of(with_triggers, 0.5) > WORDS_ONLY.of(without, 0.5) > WORDS_ONLY.of(without, 0.0)


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
