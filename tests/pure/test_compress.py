"""Compression without a model: what must survive is found, kept, and checked before anything is replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from herma.compression.engine import choose
from herma.compression.summary import (
    HEADINGS,
    STANDS,
    Landmark,
    Summary,
    SummaryLine,
    Survey,
    check,
    extract,
    landmarks,
    last_request,
    mend,
    open_tasks,
    parse,
    render,
)
from herma.types import Message


def texts(text: str, kind: str) -> list[str]:
    return [mark.text for mark in landmarks(text) if mark.kind == kind]


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("see src/app/main.py and ~/.config/tool/rc", ["src/app/main.py", "~/.config/tool/rc"]),
        ("in ./run and C:\\work\\notes.txt.", ["./run", "C:\\work\\notes.txt"]),
        ("pyproject.toml, not 3.14 and not e.g. and/or", ["pyproject.toml"]),
        ("at https://example.org/a/b?c=1).", ["https://example.org/a/b?c=1"]),
        ("/etc/hosts", ["/etc/hosts"]),
    ],
)
def test_paths(text: str, paths: list[str]) -> None:
    assert texts(text, "path") == paths


def test_identifiers_and_numbers() -> None:
    text = "`make test` calls get_tip() in SessionStore, ABC-12 at 9f3c2ab1, v1.2.3: 45 ms, 1,200 rows, 2024-05-01, $30"
    assert texts(text, "identifier") == ["make test", "get_tip", "SessionStore", "ABC-12", "9f3c2ab1", "v1.2.3"]
    assert texts(text, "number") == ["45 ms", "1,200", "2024-05-01", "$30"]
    assert landmarks("src/a_b/c.py src/a_b/c.py") == [Landmark("path", "src/a_b/c.py")]


@pytest.mark.parametrize(
    ("text", "tasks"),
    [
        ("- [ ] write the tests\n- [x] fix the bug", ["write the tests"]),
        ("TODO: rename the table", ["rename the table"]),
        ("We still need to migrate the index.", ["We still need to migrate the index."]),
        ("下一步：修复搜索", ["修复搜索"]),
        ("- [ ] a thing to do\n- [x] a thing to do", []),
        ("all done", []),
    ],
)
def test_open_tasks(text: str, tasks: list[str]) -> None:
    assert open_tasks(text) == tasks


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "unit", ["+", "a/", "a.", "/", "\\", "`", "x_", "1,", "- [ ] ", "still ", "[ ", "aA", "9f", "\n"]
)
def test_no_text_makes_it_slow(unit: str) -> None:
    """A pattern that goes back over what it has read would take hours for this."""
    text = unit * (200_000 // len(unit))
    assert len(landmarks(text)) + len(open_tasks(text)) <= 200_000


# ── which messages stay ──

ROLES = st.sampled_from(["user", "assistant", "call", "tool"])


def conversation(roles: list[str]) -> list[Message]:
    """A conversation in which every result follows the call it answers."""
    messages: list[Message] = []
    for number, wanted in enumerate(roles, 1):
        may_answer = bool(messages) and (messages[-1].role == "tool" or bool(messages[-1].tool_calls))
        role = "assistant" if wanted == "tool" and not may_answer else wanted
        if role == "call":
            call = {"id": f"c{number}", "type": "function", "function": {"name": "run", "arguments": "{}"}}
            messages.append(Message("assistant", None, id=number, tool_calls=(call,)))
        else:
            messages.append(Message(role, f"text {number}", id=number, tool_call_id="c" if role == "tool" else None))
    return messages


@given(st.lists(st.tuples(ROLES, st.integers(1, 500)), max_size=40), st.integers(0, 3000), st.integers(0, 6))
def test_a_cut_parts_no_call_from_its_results_and_keeps_the_last_request(
    drawn: list[tuple[str, int]], budget: int, head: int
) -> None:
    messages = conversation([role for role, _ in drawn])
    cut = choose(messages, [weight for _, weight in drawn], budget, head=head)
    assert 0 <= cut.head <= cut.tail <= len(messages)
    for at in (cut.head, cut.tail):
        if 0 < at < len(messages):
            assert messages[at].role != "tool"
    users = [at for at, message in enumerate(messages) if message.role == "user"]
    if users:
        assert cut.tail <= users[-1] or cut.head > users[-1] or cut.request == users[-1]


# ── the summary as text ──

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=20)
SENTENCES = st.lists(WORDS, min_size=1, max_size=6).map(" ".join)
LINES = st.builds(
    SummaryLine, SENTENCES, st.lists(st.integers(1, 500), max_size=5).map(lambda ids: tuple(sorted(set(ids))))
)
SUMMARIES = st.builds(
    Summary,
    st.dictionaries(st.sampled_from(list(HEADINGS)), st.lists(LINES, min_size=1, max_size=4).map(tuple)),
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Zl", "Zp")) | st.just("\n"), max_size=80),
)


@given(SUMMARIES)
def test_a_summary_is_read_as_it_was_written(summary: Summary) -> None:
    again = parse(render(summary))
    assert again.request == summary.request.strip("\n")
    for section in HEADINGS:
        lines = [parse(f"## Goal\n{line}").of("goal")[0] for line in summary.of(section)]
        assert list(again.of(section)) == lines


def test_references_to_messages_that_do_not_exist_are_left_out() -> None:
    summary = parse("## Done\n- fixed it [#3-5, 9]\n* invented [99]", known=lambda number: number in (3, 9))
    assert summary.of("done") == (SummaryLine("fixed it", (3, 9)), SummaryLine("invented"))


# ── without a model ──

TALK = [
    Message("user", "Please make the importer in src/importer.py faster. It must not use more than 200 MB.", id=1),
    Message("assistant", "I decided to read in blocks because the file is large. TODO: measure the memory", id=2),
    Message("tool", "Traceback (most recent call last):\n  File 'x'\nValueError: bad row 17", id=3, tool_call_id="a"),
    Message("assistant", "The error came from an empty row. Fixed in src/importer.py with skip_empty_rows().", id=4),
    Message("user", "Good. Is skip_empty_rows() tested?\nSee tests/test_importer.py", id=5),
]


def test_the_extractive_summary_sorts_what_was_said() -> None:
    summary = extract(TALK)
    assert summary.of("goal")[0] == SummaryLine("Please make the importer in src/importer.py faster.", (1,))
    assert SummaryLine("It must not use more than 200 MB.", (1,)) in summary.of("constraints")
    assert any("read in blocks" in line.text for line in summary.of("decisions"))
    assert SummaryLine("ValueError: bad row 17", (3,)) in summary.of("errors")
    assert any("skip_empty_rows" in line.text and line.sources == (4,) for line in summary.of("done"))
    assert summary.of("next") == (SummaryLine("measure the memory", (2,)),)
    assert summary.of("files")[0].text == "src/importer.py, tests/test_importer.py"
    assert summary.request == TALK[-1].content == last_request(TALK)


def test_a_later_summary_brings_the_earlier_one_up_to_date() -> None:
    first = extract(TALK)
    later = [
        Message("user", render(first), id=6, finish_reason=STANDS),
        Message(
            "assistant", "- [x] measure the memory\nMeasured: 120 MB. Renamed src/importer.py to src/reader.py.", id=7
        ),
        Message("user", "Now the docs.", id=8),
    ]
    second = extract(later, first)
    assert second.of("next") == ()
    assert second.of("goal")[0] == first.of("goal")[0]
    assert second.request == "Now the docs."
    assert "src/reader.py" in second.of("files")[0].text or "src/reader.py" in render(second)
    assert render(first) not in render(second), "a summary is no source of another"


def test_the_gate_names_what_a_summary_lost_and_mending_brings_it_back() -> None:
    poor = Summary({"goal": (SummaryLine("make it faster"),)})
    verdict = check(Survey.of(TALK), poor, "Now the docs.")
    assert not verdict.passed
    assert verdict.lost_request
    assert verdict.lost_tasks == ("measure the memory",)
    assert {each.mark.text for each in verdict.missing if each.required} >= {"src/importer.py", "200 MB"}
    mended, after = mend(Survey.of(TALK), poor, "Now the docs.", fits=lambda _: False)
    assert after.passed
    assert mended.request == "Now the docs."
    roomy, everything = mend(Survey.of(TALK), poor, "Now the docs.", fits=lambda _: True)
    assert everything.share("identifier") == everything.share("path") == everything.share("number") == 1.0
    assert len(render(roomy)) > len(render(mended)) - 1


@given(st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool"]), st.text(max_size=200)), max_size=12))
def test_any_conversation_can_be_extracted_and_mended(said: list[tuple[str, str]]) -> None:
    messages = [Message(role, text, id=at) for at, (role, text) in enumerate(said, 1)]
    request = last_request(messages)
    summary, verdict = mend(Survey.of(messages), extract(messages), request, fits=lambda text: len(text) < 2000)
    assert verdict.passed
    assert parse(render(summary)).request == request.strip("\n")
