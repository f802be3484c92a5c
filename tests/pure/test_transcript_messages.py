"""Messages: as models speak them, as search reads them, and as two programs in one session take them in."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.errors import UsageError
from herma.safety import fold as noise
from herma.safety.fold import without_noise
from herma.session import missing_turns, settled
from herma.transcript.messages import (
    PREVIEW,
    ROLES,
    all_from_wire,
    from_wire,
    is_complete,
    item_message,
    preview_of,
    searchable_text,
    sendable,
    text_of,
    to_wire,
)
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
def wire_messages(draw: st.DrawFn) -> dict[str, Any]:
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


@given(wire_messages())
def test_a_model_sees_what_it_was_sent_and_nothing_of_ours(wire: dict[str, Any]) -> None:
    sent = to_wire(from_wire(wire))
    assert {name: value for name, value in wire.items() if name not in OWN or value is None} | {
        "role": wire["role"]
    } == sent


@given(wire_messages())
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


# ── what a search reads ──

BYTES = random.Random(5).randbytes(3000)
ENCODED = base64.b64encode(BYTES).decode()
WRAPPED = "\n".join(ENCODED[at : at + 76] for at in range(0, len(ENCODED), 76))
DUMP = "\n".join(
    f"{at:08x}: {' '.join(f'{byte:02x}' for byte in BYTES[at : at + 16])}  ....." for at in range(0, 320, 16)
)


@pytest.mark.parametrize(
    ("noisy", "gone"),
    [
        (f"see data:image/png;base64,{ENCODED} here", ENCODED[:40]),
        (f"see DATA:image/png;charset=utf-8;BASE64,{ENCODED[:30]} here", ENCODED[:30]),
        (f"see {ENCODED} here", ENCODED[-40:]),
        (f"see {base64.urlsafe_b64encode(BYTES).decode()} here", ENCODED[:20]),
        (f"see\n{WRAPPED}\nhere", ENCODED[76:116]),
        (f"see {BYTES.hex()} here", BYTES.hex()[:40]),
        (f"see\n{DUMP}\nhere", f"{BYTES[0]:02x} {BYTES[1]:02x} {BYTES[2]:02x}"),
        ("see \x1b[1;31mred\x1b[0m here", "\x1b"),
        ("see \x1b]8;;https://x.example\x07link here", "\x1b"),
        ("see \x1b[", "\x1b"),
    ],
)
def test_noise_is_cut_out_and_what_is_around_it_stays(noisy: str, gone: str) -> None:
    clean = without_noise(noisy)
    assert gone not in clean
    assert clean.split()[0] == "see"
    assert clean.split()[-1] in ("here", "see")


@pytest.mark.parametrize(
    "kept",
    [
        "get_compression_tip and getCompressionTip",
        "/home/someone/Projects/Herma2/src/herma/store/sqlite/very/long/path/that/goes/on/and/on/Database",
        "this-is-a-very-long-name-with-Words-and-1-number-that-somebody-made-for-a-branch-in-a-repository",
        "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
        "----------------------------------------------------------------------------------------",
        "一二三四五六七八九十" * 30,
        "call me at 10 20 30 40 50 60",
        "Donaudampfschifffahrtselektrizitaetenhauptbetriebswerkbauunterbeamtengesellschaft",
    ],
)
def test_what_has_a_meaning_stays(kept: str) -> None:
    assert without_noise(kept) == kept


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "unit",
    ["\x1b[", "\x1b]", "data:", "data:;base64", "a" * 59 + " ", "ab ", "ab cd ", "A1b" * 30 + "/", "\x1b[1", "+/"],
)
def test_a_million_characters_are_no_trouble(unit: str) -> None:
    assert len(without_noise(unit * (1_000_000 // len(unit)))) <= 1_000_000


def test_arguments_are_searched_as_they_are_meant() -> None:
    calls: list[dict[str, Any]] = [
        {
            "id": "c",
            "function": {"name": "write_file", "arguments": '{"path": "a/b.py", "text": "\\u4e2d\\n1", "n": [7]}'},
        },
        {"type": "tool_use", "name": "bash", "input": {"command": "ls"}},
        {"function": {"name": "broken", "arguments": '{"path": '}},
    ]
    words = searchable_text([{"type": "text", "text": "see"}, {"type": "image"}], calls, "tool").split()
    assert " ".join(words) == 'see tool write_file path a/b.py text 中 1 n 7 bash command ls broken {"path":'
    assert searchable_text(None, [], None) == ""


pieces = st.sampled_from(["word ", "AbCd12/+", "deadbeef", "00 ff ", "0:1:", "aa:", "é", "\n", "  ", "x" * 23, "ab, "])


@given(st.lists(pieces, max_size=60).map("".join))
def test_what_is_not_looked_at_closely_has_no_noise(text: str) -> None:
    if not noise._may_have_runs(text):
        assert noise._RUN.search(text) is None
        assert noise._DUMP.search(text) is None


# ── two programs in one session ──


def said(number: int, kind: str) -> Message:
    """`u`: the user, `r`: a reply, `c1`: a call, `t1`: what it returned."""
    match kind[0]:
        case "u":
            return Message("user", f"question {number}", id=number)
        case "r":
            return Message("assistant", f"answer {number}", id=number)
        case "c":
            return Message("assistant", None, tool_calls=({"id": kind[1:]},), id=number)
        case _:
            return Message("tool", "done", tool_call_id=kind[1:], id=number)


def talk(kinds: str) -> list[Message]:
    return [said(number, kind) for number, kind in enumerate(kinds.split(), 1)]


def ids(messages: list[Message]) -> list[int]:
    return [message.id for message in messages]


KINDS = st.lists(st.sampled_from(["u", "r", "c1", "c2", "t1", "t2"]), max_size=14).map(" ".join)


@pytest.mark.parametrize(
    ("stored", "mine", "fresh"),
    [
        *((more, (1, 2), []) for more in ("u r", "u r u", "u r u c1", "u r u c1 t1")),
        ("u r u c1 t1 r", (1, 2), [3, 4, 5, 6]),
        ("u r u r u", (1, 2), [3, 4]),
        ("u u r r", (1, 4), [2, 3]),  # what is only known to others may stand anywhere
    ],
)
def test_only_whole_turns_of_others_are_taken_in(stored: str, mine: tuple[int, ...], fresh: list[int]) -> None:
    assert ids(missing_turns(talk(stored), [one for one in talk(stored) if one.id in mine])) == fresh


def test_a_turn_of_one_that_was_killed_comes_with_the_next_that_is_whole() -> None:
    assert settled(talk("u u r")) == 3
    assert settled(talk("u c1 u r")) == 0, "a tool may still answer"
    assert settled(talk("u c1 u r t1 r")) == 6


@pytest.mark.parametrize(
    ("stored", "sent"),
    [
        ("u c1 u r t1 r", [1, 2, 5, 3, 4, 6]),
        ("u c1 u c2 t1 t2 r r", [1, 2, 5, 3, 4, 6, 7, 8]),
        ("u c1 u r", [1, 3, 4]),
        ("u c1", [1, 2]),
        ("u r t1", [1, 2]),
    ],
)
def test_a_result_stands_behind_its_call_and_a_call_without_one_is_left_out(stored: str, sent: list[int]) -> None:
    assert ids(sendable(talk(stored))) == sent


@given(KINDS, st.sets(st.integers(1, 14)))
def test_nothing_is_taken_in_twice_and_all_of_it_once_everybody_has_finished(kinds: str, mine: set[int]) -> None:
    stored = talk(kinds)
    own = [message for message in stored if message.id in mine]
    fresh = missing_turns(stored, own)
    assert not {message.id for message in fresh} & mine
    assert not fresh or is_complete(fresh[-1:]) or fresh[-1].role == "tool"
    assert missing_turns(stored, [*own, *fresh]) == []


@pytest.mark.parametrize(
    ("item", "role", "content"),
    [
        ({"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]}, "system", "Be brief."),
        ({"role": "user", "content": "hi"}, "user", "hi"),
        ({"type": "function_call_output", "call_id": "1", "output": {"port": 1}}, "tool", '{"port": 1}'),
        ({"type": "shell_call_output", "call_id": "1", "output": [{"type": "x", "text": "done"}]}, "tool", "done"),
        ({"type": "message", "role": ["odd"], "content": "x"}, "assistant", "x"),
    ],
)
def test_an_item_of_a_response_is_a_message(item: dict[str, Any], role: str, content: str) -> None:
    message = item_message(item)
    assert (message["role"], message["content"]) == (role, content)
