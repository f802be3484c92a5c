"""What no one searches for is cut out, what has a meaning stays, and long inputs take no longer than they must."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.safety import fold as noise
from herma.safety.fold import without_noise
from herma.transcript.messages import searchable_text

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
