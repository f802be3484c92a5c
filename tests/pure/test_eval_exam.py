"""Questions out of one's own history: the same every time, and each about a message that is really there."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.evals.evals import KINDS, Said, questions

TOPICS = (
    "The harbour crane needs a replacement gearbox before the autumn storms arrive",
    "Grandmother's plum dumplings want curd cheese, semolina and brown butter crumbs",
    "The seismometer logs drift whenever the basement boiler cycles overnight",
    "Nightly exports fail because the warehouse collation rejects Turkish capitals",
    "京都の古い喫茶店で珈琲豆の焙煎を習い始めたので週末は早起きします",
)


def history(repeat: int = 1) -> list[Said]:
    return [
        Said(number, f"s{number % 3}", text, 1_700_000_000.0 + 86_400 * number)
        for number, text in enumerate(TOPICS * repeat, 1)
    ]


def test_every_kind_is_asked_of_every_message() -> None:
    asked = questions(history(), 10)
    assert {one.type for one in asked} == set(KINDS)
    assert len(asked) == len(KINDS) * len(TOPICS)


def test_the_same_seed_makes_the_same_exam_and_another_makes_another() -> None:
    assert questions(history(), 5, seed=1) == questions(history(), 5, seed=1)
    assert questions(history(), 5, seed=1) != questions(history(), 5, seed=2)


def test_messages_that_say_the_same_are_all_right() -> None:
    asked = questions(history(repeat=2), 20)
    assert all(len(one.gold) == 2 for one in asked)


def test_a_question_uses_words_of_its_message() -> None:
    texts = {str(one.id): one.text.lower() for one in history()}
    for one in questions(history(), 5):
        if one.type == "content":
            assert all(word in texts[one.gold[0]] for word in one.text.split())


def test_a_paraphrase_differs_from_what_was_said() -> None:
    asked = {one.id: one.text for one in questions(history(), 5)}
    english = [one for one in history() if one.text.isascii()]
    assert any(asked[f"paraphrase-{one.id}"] not in one.text.lower() for one in english)


def test_nothing_to_ask_makes_no_exam() -> None:
    assert questions([], 5) == []
    assert questions([Said(1, "s", "ok then, yes")], 5) == []


@given(st.lists(st.text(max_size=200), max_size=12), st.integers(0, 5))
def test_any_history_can_be_asked_about(texts: list[str], seed: int) -> None:
    said = [Said(number, "s", text, 1.0) for number, text in enumerate(texts, 1)]
    for one in questions(said, 3, seed):
        assert one.text.strip()
        assert set(one.gold) <= {str(message.id) for message in said}
