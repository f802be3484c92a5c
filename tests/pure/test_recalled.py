"""What is recalled for a turn: nothing twice, nothing lost, nothing that could break out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from herma.features import LARGEST, Recalled, fit, recalled_units, without_repeats
from herma.prompt.fence import fence
from herma.types import Message

LINES = st.text(alphabet="ab# -1.\n\t", max_size=60)


def test_items_of_a_list_and_paragraphs_are_said_once() -> None:
    said: set[str] = set()
    assert (
        without_repeats("# Facts\n\n- tea\n- milk\n  from the farm", said)
        == "# Facts\n\n- tea\n- milk\n  from the farm"
    )
    assert without_repeats("# Facts\n\n- tea\n- milk\n  from the farm\n- sugar", said) == "# Facts\n\n- sugar"
    assert without_repeats("# Facts\n\n- sugar", said) == "", "a heading alone says nothing"
    assert without_repeats("One and\ntwo.\n\nThree.", said) == "One and\ntwo.\n\nThree."
    assert without_repeats("Three.\n\nOne  and two.\n\nFour.", said) == "Four.", "whatever their spacing"


@given(LINES, LINES)
def test_nothing_new_is_lost_and_the_second_time_nothing_is_left(first: str, second: str) -> None:
    """What the second says alone, it also says after the first, unless the first said so."""
    before: set[str] = set()
    without_repeats(first, before)
    both, alone = set(before), set[str]()
    left = without_repeats(second, both)
    without_repeats(second, alone)
    assert both == before | alone
    assert bool(left) == bool(alone - before)
    assert without_repeats(second, both) == ""


@given(st.lists(LINES, max_size=4))
def test_what_was_sent_is_known_again(texts: list[str]) -> None:
    said: set[str] = set()
    messages = []
    for text in texts:
        kept, _ = fit([Recalled("x", text)], said)
        body = "\n\n".join(one.text for one in kept)
        messages.append(Message("user", "hi", sent=f"hi\n\n{fence(body)}" if body else None))
    again = recalled_units(messages)
    for text in texts:
        assert fit([Recalled("x", text)], set(again))[0] == []


def test_long_text_is_cut_and_that_is_said() -> None:
    text = "\n\n".join(f"Paragraph number {n} says something." for n in range(2_000))
    kept, warnings = fit([Recalled("shelf", text)], set())
    assert len(kept[0].text) < LARGEST + 500
    assert "shelf" in warnings[0]
