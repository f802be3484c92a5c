"""OpenAI-style messages go in and come out the same, and what cannot be one is refused by its number."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import UsageError
from herma.transcript.messages import PREVIEW, ROLES, all_from_wire, from_wire, preview_of, text_of, to_wire
from herma.types import Message

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)
CONTENT = st.none() | TEXT | st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3)
CALLS = st.lists(st.dictionaries(TEXT, JSON, max_size=3), max_size=3)
OWN = {"timestamp", "sent", "told", "tokens", "finish_reason", "reasoning", "tool_name"}


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    known = {
        "content": CONTENT,
        "tool_calls": st.none() | CALLS,
        "tool_call_id": st.none() | TEXT,
        "name": JSON,
        "reasoning": st.none() | TEXT,
        "reasoning_content": JSON,
        "tool_name": st.none() | TEXT,
        "sent": CONTENT,
        "told": st.none() | TEXT,
        "tokens": st.none() | st.integers(0, 10**9),
        "finish_reason": st.none() | TEXT,
        "timestamp": st.floats(1, 4e9),
        "hidden": JSON,
        "id": JSON,
    }
    wire = draw(st.dictionaries(TEXT, JSON, max_size=2))
    for name in draw(st.sets(st.sampled_from(sorted(known)))):
        wire[name] = draw(known[name])
    return {**wire, "role": draw(st.sampled_from(sorted(ROLES)))}


@given(messages())
def test_a_model_sees_what_it_was_sent_and_nothing_of_ours(wire: dict[str, Any]) -> None:
    sent = to_wire(from_wire(wire))
    assert {name: value for name, value in wire.items() if name not in OWN or value is None} | {
        "role": wire["role"]
    } == sent


@given(messages())
def test_every_field_comes_back(wire: dict[str, Any]) -> None:
    message = from_wire(wire)
    assert from_wire(message) == message, "a kept message is kept unchanged"
    back = to_wire(message, kept=True)
    if "timestamp" not in wire:
        back.pop("timestamp")
    if wire.get("tool_name") is None and wire.get("name") == back.get("tool_name"):  # noticed besides, for search
        back.pop("tool_name", None)
        back.update({"tool_name": None} if "tool_name" in wire else {})
    assert back == wire


def test_nothing_takes_the_place_of_what_is_shown() -> None:
    stored = Message("user", "x", extra={"role": "system", "content": "y", "name": "z"})
    assert to_wire(stored) == {"role": "user", "content": "x", "name": "z"}


def test_lone_surrogates_are_replaced_wherever_they_stand_and_nobody_can_change_a_message_afterwards() -> None:
    parts, calls = [{"type": "text", "text": "a\ud800"}], [{"function": {"arguments": "\udc00"}}]
    wire = {"role": "user", "content": parts, "sent": "\udfffb", "x": {"\ud912": "c"}, "tool_calls": calls}
    message = from_wire(wire)
    parts[0]["text"] = "b"
    assert text_of(message.content) == "a\ufffd"
    assert message.sent == "\ufffdb"
    assert message.extra == {"x": {"\ufffd": "c"}}
    assert message.tool_calls == ({"function": {"arguments": "\ufffd"}},)


WRONG: dict[str, list[Any]] = {
    "content": [3, {"text": "x"}, ["x"]],
    "role": [["user"], "robot"],
    "timestamp": ["yesterday", True, float("nan"), float("inf")],
    "tokens": [1.5, 10**30],
    "x": [{1, 2}, float("nan")],
    "tool_calls": ["f()", ["f"]],
    "tool_call_id": [7],
    "reasoning": [["a"]],
}
BAD: list[Any] = [
    *(None, "hello", {}, {"role": "user", "content": "x", 7: "x"}),
    *({"role": "user", "content": "x", name: value} for name, values in WRONG.items() for value in values),
    *(Message("user", "x", extra=extra) for extra in (["a"], {7: "x"}, {"role": "system"}, {"sent": "y"})),  # type: ignore[arg-type]
    Message("user", "x", hidden="away"),  # type: ignore[arg-type]
    Message("user", extra={"tool_calls": [{"id": "1"}]}),
    *(Message("assistant", tool_calls=calls) for calls in (("f",), 5)),  # type: ignore[arg-type]
]


@pytest.mark.parametrize("bad", BAD, ids=repr)
def test_the_first_bad_message_is_named(bad: object) -> None:
    good = {"role": "user", "content": "x"}
    with pytest.raises(UsageError, match=r"^Message 1 .*; nothing was written\.$"):
        all_from_wire([good, bad, {"role": "nobody"}], 5.0)  # type: ignore[list-item]


def test_what_is_no_list_of_messages_is_refused() -> None:
    for one in ({"role": "user"}, Message("user", "x"), "x", None, 5):
        with pytest.raises(UsageError, match="a list of messages"):
            all_from_wire(one, 5.0)  # type: ignore[arg-type]
    deep: Any = "x"
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(UsageError, match="JSON cannot hold"):
        all_from_wire([{"role": "user", "content": "x", "x": deep}], 5.0)
    times = [one.timestamp for one in all_from_wire([{"role": "user"}, {"role": "user", "timestamp": 3}], 5.0)]
    assert times == [5.0, 3.0], "messages without a time get the present one"


def test_a_preview_is_the_first_words_of_the_user() -> None:
    said = [
        Message("system", "be kind"),
        Message("user", " \n "),
        Message("user", "no", hidden="rewound"),
        Message("user", [{"type": "image"}, {"type": "text", "text": "fix\n the\tlogin\0"}]),
        Message("user", "later"),
    ]
    assert preview_of(said) == "fix the login"
    assert preview_of([Message("assistant", "x")]) == ""
    long = preview_of([Message("user", "word " * 1000)])
    assert len(long) <= PREVIEW
    assert long.endswith("…")
