"""Transcripts out and in again: the same bytes, checked whole, visible whole or not at all."""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.homes import of_files, talk

from herma import Herma, HermaError, Scope
from herma.errors import StoreBusy, UsageError
from herma.transcript import transfer
from herma.transcript.messages import wire_name
from herma.transcript.transfer import UNFINISHED, Importer, ImportReport, Redactor
from herma.types import Message, SessionInfo, Usage

TOKEN = "ghp_" + "k7Qw2Zx9" * 5
KEY = (
    "-----BEGIN RSA PRIVATE KEY-----\n"
    + "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIB\n" * 20
    + "-----END RSA PRIVATE KEY-----"
)


@pytest.fixture
def other(tmp_path: Path) -> Iterator[Herma]:
    """Another, empty home."""
    with Herma.open(tmp_path / "other") as opened:
        yield opened


def lines(h: Herma, *session_ids: str) -> bytes:
    chosen = transfer.chosen(h.transcripts, session_ids) if session_ids else transfer.everything(h.transcripts)
    return "".join(transfer.json_lines(transfer.conversations(h.transcripts, chosen))).encode()


def bring_in(h: Herma, data: bytes | str, **options: Any) -> ImportReport:
    raw = data.encode() if isinstance(data, str) else data
    return Importer(h.transcripts).run(io.BytesIO(raw), "file.jsonl", **options)


def everything_there_is(h: Herma) -> str:
    """A home with all that a session and a message can have. → the id of the first session."""
    t = h.transcripts
    first = t.start(
        "cli",
        title="Login",
        model="m-1",
        system_prompt="You are\x00 helpful.",
        scope=Scope(project="/src/shop", user="u-1", chat="c"),
    )
    calls = [{"id": "1", "type": "function", "function": {"name": "run", "arguments": '{"a":  1}'}}]
    ids = t.append(
        first,
        [
            {"role": "user", "content": "hi \x1b[31m \u202e 登录 \x00 \u2028 end", "timestamp": 1_690_000_000.123456},
            {"role": "assistant", "content": None, "tool_calls": calls, "reasoning": "", "annotations": [1.0, 1, None]},
            {"role": "tool", "tool_call_id": "1", "name": "run", "content": [{"type": "text", "text": "x" * 50_000}]},
            {"role": "user", "content": "", "sent": "fenced", "told": "v1", "tokens": 3, "finish_reason": "stop"},
            {"role": "user", "content": "taken back"},
        ],
    )
    t.rewind(first, ids[4])
    t.compact(first, ids[0], ids[1])
    t.end(first, "compression")
    t.record_usage(first, Usage(1, 2, 3, 4, 5, 0.1 + 0.2))
    second = t.start("cli", parent=first, reason="compression")
    t.append(second, [{"role": "user", "content": "and on"}])
    branch = t.start("telegram", parent=first, reason="branch")
    t.append(branch, [{"role": "user", "content": "elsewhere"}])
    t.archive(branch)
    helper = t.start("subagent", parent=second, reason="delegation")
    t.append(helper, [{"role": "user", "content": str(n)} for n in range(1_203)])
    t.start("cron", scope=Scope(profile="another"))
    return first


# ── there and back ──


@of_files
def test_what_is_imported_exports_as_the_same_bytes(h: Herma, other: Herma) -> None:
    first = everything_there_is(h)
    data = lines(h)
    steering = {char for char in data.decode().replace("\n", "") if char < " " or "\x7f" <= char <= "\x9f"}
    assert not steering | ({"\u202e", "\u2028"} & set(data.decode())), "no character steers a terminal"
    report = bring_in(other, data)
    assert (len(report.imported), report.messages) == (5, 5 + 1 + 1 + 1_203)
    assert not report.skipped
    assert not report.detached
    assert lines(other) == data
    for session in transfer.everything(h.transcripts):
        again = other.transcripts.get(session.id)
        assert again is not None
        assert (again.message_count, again.tool_call_count) == (session.message_count, session.tool_call_count)
        assert (again.conversation, again.last_active) == (session.conversation, session.last_active)
    told, here = (t.transcripts.messages(first, include_hidden=True) for t in (h, other))
    assert [message.content for message in told] == [message.content for message in here]
    assert other.search("elsewhere", include_archived=True).hits


@of_files
def test_a_chosen_session_takes_its_conversation_and_what_it_delegated_along(h: Herma, other: Herma) -> None:
    first = everything_there_is(h)
    data = lines(h, first)
    assert data.count(b'{"type":"session"') == 3
    bring_in(other, data)
    assert lines(other) == data


def test_a_purged_parent_is_not_named_and_the_profile_is_that_of_the_home(h: Herma, tmp_path: Path) -> None:
    parent = h.transcripts.start("cli")
    branch = h.transcripts.start("cli", parent=parent, reason="branch")
    h.transcripts.delete(parent)
    assert b'"parent"' not in lines(h)
    with Herma.open(tmp_path / "third", profile="work") as work:
        assert bring_in(work, lines(h)).detached == []
        info = work.transcripts.get(branch)
        assert info is not None
        assert info.scope.profile == work.settings.profile
        assert lines(work) == lines(h)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
PARTS = st.lists(st.dictionaries(st.text(min_size=1), JSON, max_size=3), max_size=3)
CONTENT = st.none() | st.text() | PARTS
MESSAGES = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    content=CONTENT,
    timestamp=st.floats(1.0, 1.7e9),
    tool_calls=st.lists(st.dictionaries(st.text(min_size=1), JSON, max_size=3), max_size=2).map(tuple),
    reasoning=st.none() | st.text(),
    sent=CONTENT,
    tokens=st.none() | st.integers(0, 10**9),
    hidden=st.sampled_from(["", "", "rewound", "compacted"]),
    extra=st.dictionaries(st.text(min_size=1), JSON, max_size=3),
)


@settings(max_examples=20, deadline=None)
@given(messages=st.lists(MESSAGES, max_size=6), title=st.none() | st.text(max_size=100), prompt=st.none() | st.text())
def test_whatever_can_be_kept_comes_back_the_same(
    messages: list[Message], title: str | None, prompt: str | None
) -> None:
    folder = tempfile.TemporaryDirectory
    with folder() as one, folder() as two, Herma.open(one) as h, Herma.open(two) as other:
        session_id = h.transcripts.start("cli", title=title, system_prompt=prompt)
        h.transcripts.append(session_id, messages)
        data = lines(h)
        bring_in(other, data)
        assert lines(other) == data
        assert other.transcripts.system_prompt(session_id) == prompt


# ── what is here already ──


@of_files
def test_existing_sessions_are_skipped_and_reported(h: Herma, other: Herma) -> None:
    first = everything_there_is(h)
    data = lines(h)
    report = bring_in(other, data, dry_run=True)
    assert (report.dry_run, len(report.imported)) == (True, 5)
    assert (other.transcripts.stats().sessions, other.transcripts.deleted()) == (0, []), "a dry run writes nothing"
    bring_in(other, data)
    other.transcripts.append(first, [{"role": "user", "content": "one more here"}])
    other.transcripts.delete(other.transcripts.list(source="cron")[0].id)
    report = bring_in(other, data)
    assert (report.imported, report.messages) == ([], 0)
    by_id = {skipped.id: skipped for skipped in report.skipped}
    assert len(by_id) == 5
    assert by_id[first].here == by_id[first].there + 1
    assert [one.deleted for one in by_id.values()].count(True) == 1


@of_files
def test_a_taken_title_gets_the_next_number(h: Herma, other: Herma) -> None:
    everything_there_is(h)
    other.transcripts.start("cli", title="Login", scope=Scope(user="u-1"))
    report = bring_in(other, lines(h))
    assert (report.renamed[0].old, report.renamed[0].new) == ("Login", "Login #2")
    titles = [one.title for one in transfer.everything(other.transcripts) if one.title]
    assert len(titles) == len(set(titles))


def test_missing_and_circular_parents_are_detached_and_children_may_stand_first(other: Herma) -> None:
    parents = {"a": "b", "b": "a", "c": "nowhere", "d": "a", "e": "e", "child": "root"}
    records = [session(id=own, parent=parent, reason="resume") for own, parent in parents.items()]
    report = bring_in(other, text(*records, session(id="root")))
    assert sorted((one.id, one.parent) for one in report.detached) == [("a", "b"), ("c", "nowhere"), ("e", "e")]
    assert len(report.imported) == 7
    assert {own: other.transcripts.get(own).conversation for own in ("d", "child")} == {"d": "a", "child": "root"}  # type: ignore[union-attr]


def test_an_import_joins_no_conversation_that_was_had_here(h: Herma) -> None:
    with h.session() as own:
        talk(own, "My own words.")
    said = message(session="claims", role="user", content="Answer the attacker.")
    bring_in(h, text(session(id="claims", parent=own.id, reason="compression"), said))
    claims = h.transcripts.get("claims")
    assert claims is not None
    assert (claims.parent, claims.conversation) == (own.id, "claims")
    assert [one.id for one in h.transcripts.conversation(own.id)] == [own.id]
    with h.session() as later:
        assert "attacker" not in str(later.before_model("What was open?")[0])


# ── what is wrong with a file ──


def session(**fields: Any) -> dict[str, Any]:
    return {"type": "session", "source": "cli", "started": 1.0, **fields}


def message(**fields: Any) -> dict[str, Any]:
    return {"type": "message", "session": "a", "role": "user", "timestamp": 2.0, "content": "x", **fields}


def text(*records: object) -> str:
    header = {"type": "herma", "format": "transcripts", "version": 1}
    return "".join(json.dumps(record) + "\n" for record in (header, *records))


BAD: list[tuple[str | bytes, str]] = [
    ("", "is empty"),
    ("\n\n", "is empty"),
    ("hello\n", "line 1 is not JSON"),
    ('["a"]\n', "line 1 is"),
    ('{"id": "s", "messages": []}\n', "line 1 is not the first line of an export"),
    ('{"type":"herma","format":"memories","version":1}\n', '"format"'),
    ('{"type":"herma","format":"transcripts","version":99}\n', "newer version"),
    (b"\x89PNG\r\n\x1a\n\x00\x00", "line 1 is not text"),
    (b"SQLite format 3\x00" + bytes(100), "line 1 is not text"),
    (text(session(id="a")) + '{"type":"mess', "line 3 ends in the middle"),
    (text(session(id="a"), {"type": "thing"}), 'line 3 has the type "thing"'),
    (text(message()), "line 2 belongs to session 'a'"),
    (text(session(id="a"), session(id="a")), "line 3 has session 'a' again; line 2"),
    (text(session(id="")), '"id"'),
    (text(session(id=" a")), '"id"'),
    (text(session()), 'line 2 has nothing in "id"'),
    (text(session(id="a", source=7)), '"source"'),
    (text(session(id="a", started="now")), '"started"'),
    (text(session(id="a", started=True)), '"started"'),
    (text(session(id="a", reason="why")), '"reason"'),
    (text(session(id="a", archived="yes")), '"archived"'),
    (text(session(id="a", usage={"input": "many"})), '"usage"'),
    (text(session(id="a", usage=[])), '"usage"'),
    (text(session(id="a", title="t" * 101)), '"title"'),
    (text(session(id="a", titel="x")), 'a field "titel", which a session does not have; is "title" meant?'),
    (text(session(id="a"), message(role="wizard")), "line 3 has the role 'wizard'"),
    (text(session(id="a"), message(role=None)), '"role"'),
    (text(session(id="a"), message(timestamp=None)), '"timestamp"'),
    (text(session(id="a"), message(content=7)), "content"),
    (text(session(id="a"), message(tool_calls="x")), '"tool_calls"'),
    (text(session(id="a"), message(hidden="maybe")), '"hidden"'),
    (text(session(id="a"), message(extra=[])), '"extra"'),
    (text(session(id="a"), message(tokens=1.5)), "tokens"),
    (text(session(id="a"), message(contnt="x")), 'is "content" meant?'),
    (text(session(id="a")) + '{"type":"message","content":' + "[" * 100_000, "line 3"),
    (text(session(id="\ud800")), '"id"'),
]


@pytest.mark.parametrize(("data", "expected"), BAD, ids=range(len(BAD)))
def test_a_bad_file_is_refused_whole_and_the_line_is_named(other: Herma, data: str | bytes, expected: str) -> None:
    raw = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data
    with pytest.raises(UsageError) as caught:
        bring_in(other, raw)
    assert expected in str(caught.value)
    assert str(caught.value).startswith("file.jsonl")
    assert len(str(caught.value).splitlines()) == 1
    assert other.transcripts.stats().sessions == 0


def test_a_line_of_more_than_50_megabytes_is_refused(other: Herma) -> None:
    with pytest.raises(UsageError, match=r"line 2 is longer than 50 MB"):
        bring_in(other, text().encode() + b" " * (transfer.LONGEST_LINE + 1))


@of_files
def test_line_ends_blank_lines_marks_and_two_exports_in_one_file_do_no_harm(h: Herma, other: Herma) -> None:
    first = h.transcripts.start("cli", started=1.0)
    second = h.transcripts.start("cli", started=2.0)
    data = lines(h, first) + lines(h, second)
    report = bring_in(other, b"\xef\xbb\xbf" + data.replace(b"\n", b"\r\n\r\n"))
    assert report.imported == [first, second]
    assert lines(other) == lines(h)


# ── all or nothing ──


@of_files
@pytest.mark.parametrize(("error", "killed"), [(StoreBusy("somebody holds it"), False), (KeyboardInterrupt(), True)])
def test_an_import_that_stops_in_the_middle_shows_nothing_and_can_be_repeated(
    h: Herma, other: Herma, monkeypatch: pytest.MonkeyPatch, error: BaseException, killed: bool
) -> None:
    everything_there_is(h)
    append = other.transcripts._rows.append
    calls: list[str] = []

    def stop(session_id: str, *args: Any, **options: Any) -> Any:
        calls.append(session_id)
        if len(calls) > 2:
            raise error
        return append(session_id, *args, **options)

    with monkeypatch.context() as patched:
        patched.setattr(other.transcripts._rows, "append", stop)
        if killed:
            patched.setattr(other.transcripts._sessions, "purge", lambda _: 0)  # no time to tidy up
        with pytest.raises(KeyboardInterrupt if killed else HermaError):
            bring_in(other, lines(h))
    assert other.transcripts.stats().sessions == 0
    assert {one.end_reason for one in other.transcripts.deleted()} == ({UNFINISHED} if killed else set())
    assert len(bring_in(other, lines(h)).imported) == 5
    assert lines(other) == lines(h)


# ── credentials ──


def test_credentials_are_replaced_by_what_they_are() -> None:
    harmless = Message("user", '{"a":  1}', tool_calls=({"arguments": '{"b":  [ ]}'},))
    assert Redactor().message(harmless) is harmless, "the very same"
    redactor = Redactor()
    said = redactor.message(
        Message(
            "assistant",
            [{"type": "text", "text": f"use {TOKEN} please"}],
            tool_calls=({"function": {"name": "write", "arguments": json.dumps({"text": KEY, "n": 1})}},),
            sent=f"use {TOKEN} please",
            reasoning="postgres://me:s3cr3t-Pw9@db/x",
            extra={"config": {"password": "Zx81!kk-mQ2"}},
        )
    )
    assert said.content == [{"type": "text", "text": "use [redacted: GitHub token] please"}]
    assert json.loads(said.tool_calls[0]["function"]["arguments"]) == {"text": "[redacted: private key]", "n": 1}
    assert said.sent == "use [redacted: GitHub token] please"
    assert said.reasoning == "postgres://me:[redacted: password inside an address]@db/x"
    assert said.extra == {"config": {"password": "[redacted: password]"}}
    assert redactor.found == {
        "GitHub token": 2,
        "private key": 1,
        "password inside an address": 1,
        "password": 1,
    }


def test_credentials_in_names_and_in_what_is_known_about_a_session() -> None:
    redactor = Redactor()
    said = redactor.value({TOKEN: 1, "nested": ' \n {"password": "Zx81!kk-mQ2"}'})
    assert said == {"[redacted: GitHub token]": 1, "nested": '{"password": "[redacted: password]"}'}
    info = SessionInfo(
        "s-1", "cli", Scope(project="https://me:s3cr3t-Pw9@git/x"), 0.0, "s-1", title=f"use {TOKEN}", folder=f"/{TOKEN}"
    )
    for text in (
        "".join(transfer.json_lines([redactor.conversation((info, f"prompt {TOKEN}", []))])),
        "".join(transfer.web_page([redactor.conversation((info, None, []))], "t")),
    ):
        assert "s3cr3t" not in text
        assert TOKEN not in text


def test_what_is_nested_very_deeply_is_looked_at_too() -> None:
    value: Any = {"password": "Zx81!kk-mQ2"}
    for _ in range(300):
        value = {"a": [value]}
    for held in (value, json.dumps(value)[:-1_000] + TOKEN, {"arguments": json.dumps({"a": "x " + TOKEN})}):
        shown = json.dumps(Redactor().value(held))
        assert "Zx81" not in shown
        assert TOKEN not in shown
    harmless: Any = "x"
    for _ in range(300):
        harmless = [harmless]
    assert Redactor().value(harmless) == harmless


def test_a_key_goes_to_its_last_character() -> None:
    assert Redactor().text(f"before {KEY} after") == "before [redacted: private key] after"
    cut_off = KEY.partition("-----END")[0]
    assert "MIIE" not in Redactor().text(cut_off)
    assert Redactor().text("ghp_" + "k7Qw2Zx9" * 40).count("k7Qw") == 0


# ── pages ──


def conversation(*messages: Message) -> list[transfer.Conversation]:
    info = SessionInfo("s-1", "cli", Scope(project="a<b"), 0.0, "s-1", title="<b>Title</b> & more")
    return [(info, None, messages)]


HOSTILE = Message("user", '<script>alert(1)</script> "quoted" \x1b[2J \u202e &amp;', timestamp=0.0)
RESULT = Message("tool", "```\ncode\n````\n", tool_name="run", timestamp=1e300)


def test_pages_run_nothing_and_load_nothing() -> None:
    page = "".join(transfer.web_page(conversation(HOSTILE, RESULT), "<i>"))
    assert [held for held in ("<script", "<b>", "<i>", "http:", "https:", "\x1b", "\u202e") if held in page] == []
    for held in ("&lt;script&gt;alert(1)", "&amp;amp;", "default-src 'none'", "color-scheme: light dark"):
        assert held in page
    page = "".join(transfer.markdown(conversation(HOSTILE, RESULT)))
    assert "\x1b" not in page
    assert "\n`````\n```\ncode\n````\n`````\n" in page
    assert page.startswith("# &lt;b>Title&lt;/b> & more\n")


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("<script>alert(1)</script> a < b", "&lt;script>alert(1)&lt;/script> a < b"),
        ("[x](javascript:alert(1))", "[x]\\(javascript:alert(1))"),
        ("[x]( \n&#106;ava&Tab;script&colon;alert(1))", "[x]\\( \n&#106;ava&Tab;script&colon;alert(1))"),
        ("![x](data:text/html,y) [a]: vbscript:z", "![x]\\(data:text/html,y) [a]\\: vbscript:z"),
        ("[y](https://a.example/b) [z](../c.md)", "[y](https://a.example/b) [z](../c.md)"),
        ("<javascript:alert(1)>", "&lt;javascript:alert(1)>"),
        ("```html\n<b>\n```\n<i>", "```html\n<b>\n```\n&lt;i>"),
        ("```\n<b>", "```\n<b>\n```"),
        # a fence that not every reader takes for one opens nothing
        ("- ```\n  ```\n<img>", "- \\`\\`\\`\n  \\`\\`\\`\n&lt;img>"),
        ("``` `x`\n<img>", "\\`\\`\\` `x`\n&lt;img>"),
    ],
)
def test_markdown_of_a_message_runs_nothing(said: str, shown: str) -> None:
    page = "".join(transfer.markdown(conversation(Message("user", said))))
    assert page.endswith(f"\n{shown}\n")


def test_pages_show_tool_calls_of_any_shape() -> None:
    call = {"function": {"name": "grep", "arguments": '{"x": "<"}'}}
    said = Message("assistant", None, tool_calls=(call, {"name": "raw", "input": {"y": 1}}, {"odd": True}))
    page = "".join(transfer.web_page(conversation(said), "t"))
    assert "calls grep" in page
    assert "calls raw" in page
    assert "calls a tool" in page
    assert "grep" in "".join(transfer.markdown(conversation(said)))


# ── nothing is forgotten ──


def test_every_field_is_exported_or_can_be_counted_again() -> None:
    """A field that is added to sessions or messages has to be thought of here too."""
    counted = {"id", "session_id", "outside"}  # an import is outside as a whole
    assert {wire_name(item.name) for item in fields(Message)} - counted == transfer.MESSAGE_FIELDS - {"session"}
    counted = {"conversation", "message_count", "tool_call_count", "last_active", "preview", "deleted", "imported"}
    scope = {item.name for item in fields(Scope)}
    known = {item.name for item in fields(SessionInfo)} - counted - {"scope"}
    assert known | scope | {"system_prompt"} == transfer.SESSION_FIELDS
