"""`h.search` on real files: everything said is found again, and every search says how it went."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.homes import conversation, of_files

from herma import Herma
from herma.errors import UsageError
from herma.search import candidates as gather
from herma.search.query import SearchReport
from herma.testing import FixedClock
from herma.types import Scope


def said(h: Herma, *texts: str, source: str = "cli", **more: Any) -> str:
    return conversation(h, *texts, source=source, **more)


def sessions(report: SearchReport) -> list[str]:
    return [hit.session_id for hit in report.hits]


def rules(report: SearchReport) -> dict[str, int]:
    return {one.rule: one.count for one in report.dropped}


# ── any query finds what was said (reference §15: 1, 2, 3) ──


FOUND = [
    ("The plan is to ship on Friday.", "what's the plan", "plan?"),
    ("Edit settings.yaml first.", "settings."),
    ("Docker reads its config from /etc.", "what's the docker config?"),
    ("We have two dogs.", "cats or dogs"),
    ("The bug is in src/foo/bar.py, line 3.", "foo/bar.py", "bar.py"),
    ("Write to user@example.com today.", "user@example.com"),
    ("The service is written in C# and Go.", "C#", "csharp"),
    ("Coverage is at 100% now.", "100%"),
    ("It expands $HOME twice.", "$HOME"),
    ("See getCompressionTip for that.", "get_compression_tip", "compression tip", "compressionT*"),
    ("Marked as [urgent] by Anna.", "[urgent]"),
    ("The string was a=b;c|d&e.", "a=b;c|d&e"),
    ("A naive approach in the cafe.", "naïve café"),
    ("The connection pool is exhausted.", "connection-pool"),
    ("来週は東京都庁で会議です。", "東京", "庁"),
    ("我们约在总图三楼。", "总图在哪里？", "楼"),
    ("내일 서울역에서 만나요.", "서울"),
    ("The deployment failed.", "deploy*"),
    ("Run it with -v please.", "-v"),
    ("My re\u0301sume\u0301 is attached.", "résumé"),
    ("\u1109\u1165\u110b\u116e\u11af tower is open.", "서울 tower"),
    ("그래 ㅋㅋㅋ 좋아", "ㅋㅋ"),
    ("The o\ufb03cial \ufb01le.", "official file"),
    ("ｶﾞﾗｽが割れた", "ガラス"),
    ("Ο σοφος είπε", "ΣΟΦΟΣ"),
    ("Here we use my foo/baz.py only.", '"we use my foo/baz.py"'),
    ("Call it with --dry-run first.", "dryrun"),
    ("It runs on .NET 8.", "dotnet"),
    ("Released as v1.2.3 today.", "1.2.3"),
    ("हिन्दी में लिखा हुआ", "हिन्दी"),
]


def test_whatever_was_said_is_found_first_however_it_is_written(h: Herma) -> None:
    other = said(h, "Nothing of interest was mentioned at all.")
    for text, *queries in FOUND:
        wanted = said(h, text)
        for query in queries:
            report = h.search(query, mode="words")
            assert sessions(report)[:1] == [wanted], query
            assert other not in sessions(report)
            assert ">>>" in report.hits[0].snippet


def test_no_punctuation_hides_a_word(h: Herma) -> None:
    wanted = said(h, "We agreed on the zeppelin.")
    for symbol in "'/@#,%$?!\\~[]=;|&-+{}():^*<>.\"`":
        for query in (f"zeppelin {symbol}", f"{symbol} zeppelin", f"zeppelin{symbol}"):
            assert sessions(h.search(query)) == [wanted], query


def test_what_ranks_higher(h: Herma) -> None:
    kids = said(h, "At the museum the children liked the dinosaurs.")
    newer = said(h, "At the museum the neighbours looked at fossils.")
    assert sessions(h.search("What did the kids see at the museum?")) == [kids, newer], "another word for what is asked"
    assert sessions(h.search("kids")) == []  # it never finds anything by itself
    for number in range(30):
        said(h, f"The server number {number} is fine.")
    both, rare = said(h, "The server runs postgres."), said(h, "The kitchen runs postgres.")
    assert sessions(h.search("server postgres", limit=2)) == [both, rare], "more and rarer words"
    scheduled = said(h, "zeppelin zeppelin zeppelin", source="cron")
    person = said(h, "We talked about many things, and then about the zeppelin, too.")
    assert sessions(h.search("zeppelin")) == [person, scheduled], "what runs by itself comes last"


def test_operators_hold_in_every_script(h: Herma) -> None:
    both, first, second = said(h, "苹果和香蕉"), said(h, "只有苹果"), said(h, "只有香蕉")
    staging, canary, prod = (said(h, f"deploy on {name}") for name in ("staging", "canary", "prod"))
    nightly = said(h, "deploy by night", source="cron")
    for query, expected in (
        ("苹果 AND 香蕉", {both}),
        ("苹果 -香蕉", {first}),
        ("苹果 OR 香蕉", {both, first, second}),
        ('"苹果和"', {both}),
        ("deploy NOT (staging OR canary)", {prod, nightly}),
        ("(deploy AND staging) OR night", {staging, nightly}),
        ('"deploy by" OR canary', {nightly, canary}),
        ("deploy NOT source:cron", {staging, canary, prod}),
        ("-deploy -苹果", {second}),
    ):
        assert set(sessions(h.search(query))) == expected, query
    report = h.search("deploy", role="nobody")
    assert report.hits
    assert "'nobody' is not a role" in report.notes[0]


def test_rewound_messages_are_never_found(h: Herma) -> None:
    session = said(h, "The zeppelin is red.", "Noted.", "天气很好", "是的")
    first = h.transcripts.messages(session)[0]
    h.transcripts.rewind(session, h.transcripts.messages(session)[2].id)
    report = h.search("天气")
    assert report.hits == ()
    assert rules(report) == {"rewound": 1}
    assert h.search("zeppelin").hits[0].message_id == first.id


def test_a_phrase_must_occur(h: Herma) -> None:
    exact = said(h, "Then the connection reset by peer.")
    said(h, "Reset the counter; the connection is fine.")
    assert sessions(h.search('"connection reset"')) == [exact]
    said(h, "the boat is late again")
    report = h.search('boat -"late again"')
    assert "No message contains boat without “late again”." in report.notes


def test_any_text_is_a_query(h: Herma) -> None:
    said(h, "Hello there.")
    odd = ("", " ", '"', "AND", "NOT x", "\0", "\ud800", "*" * 500, "(((" * 99, "a:b:c", "since:", "👍", "x" * 99_999)
    for text in odd:
        report = h.search(text)
        assert report.understood
        assert report.hits or report.notes


# ── filters ──


def test_filters_ignore_case_and_count_what_they_leave_out(h: Herma) -> None:
    shop = said(h, "zeppelin one", "zeppelin two", scope=Scope(project="/src/Shop"))
    web = said(h, "zeppelin three", source="Telegram")
    rows: list[tuple[str, dict[str, Any], str]] = [
        *((f"project:{name}", {}, shop) for name in ("shop", "/SRC/SHOP")),
        *((f"source:{name}", {}, web) for name in ("telegram", "tELEGRAM")),
        *((f"session:{web}", {}, web), ("role:assistant", {}, shop), ("", {"role": "ASSISTANT"}, shop)),
        *(("", {"source": "TELEGRAM"}, web), ("", {"project": "SHOP"}, shop)),
        *(("-source:TELEGRAM", {}, shop), ("-project:SHOP", {}, web), ("-role:Assistant", {}, web)),
    ]
    for words, more, expected in rows:
        found = set(sessions(h.search(f"zeppelin {words}", **more)))
        assert found == ({shop, web} if "-role" in words else {expected}), words
    assert {hit.role for hit in h.search("zeppelin role:assistant").hits} == {"assistant"}
    assert rules(h.search("zeppelin source:telegram")) == {"source": 2}
    assert rules(h.search("zeppelin -role:USER")) == {"role": 2}


def test_dates(h: Herma) -> None:
    now = h.clock()
    old, new = h.transcripts.start("cli"), h.transcripts.start("cli")
    h.transcripts.append(old, [{"role": "user", "content": "zeppelin", "timestamp": now - 40 * 86_400}])
    h.transcripts.append(new, [{"role": "user", "content": "zeppelin", "timestamp": now - 3600}])
    rows: list[tuple[str, dict[str, Any], list[str]]] = [
        *(("zeppelin since:7d", {}, [new]), ("zeppelin before:7d", {}, [old]), ("since:7d", {}, [new])),
        *(("zeppelin", {"since": now - 86_400}, [new]), ("zeppelin", {"before": "2w"}, [old])),
        *(("zeppelin", {"sort": "oldest"}, [old, new]), ("zeppelin", {"sort": "newest"}, [new, old])),
    ]
    for query, more, expected in rows:
        assert sessions(h.search(query, **more)) == expected, (query, more)
    assert any("soonish" in note for note in h.search("zeppelin since:soonish").notes), "a query is never an error"


def test_a_wrong_argument_is_refused(h: Herma) -> None:
    said(h, "zeppelin")
    rows: list[tuple[dict[str, Any], str]] = [
        *(({"limit": limit}, "limit must be from 1 to 200") for limit in (0, 201)),
        *(({"limit": limit}, "limit of search.. must be a whole number") for limit in (-1, True, "3")),
        *(({"since": when}, r"since: .* is not a date") for when in ("soonish", "2026-13-45", -1e300)),
        *(({"before": when}, r"before of search.. must be") for when in (float("inf"), float("nan"), True)),
        *(({"level": "page"}, "level of"), ({"sort": "best"}, "sort of"), ({"mode": "magic"}, "mode of")),
        *(
            ({"text": None}, "text of"),
            ({"text": 5}, "text of"),
            ({"scope": "anna"}, "scope of"),
            ({"role": 1}, "role of"),
        ),
    ]
    for arguments, told in rows:
        with pytest.raises(UsageError, match=told):
            h.search(**{"text": "zeppelin", **arguments})


# ── what may not be shown is counted ──


def test_every_rule_is_reported_with_its_remedy(h: Herma) -> None:
    bo = Scope(user="bo")
    said(h, "zeppelin at work", source="subagent", scope=bo)
    h.transcripts.archive(said(h, "zeppelin of old", scope=bo))
    h.transcripts.delete(said(h, "zeppelin gone", scope=bo))
    said(h, "zeppelin of Anna", scope=Scope(user="anna"))
    mine = said(h, "zeppelin of Bo", scope=bo)
    report = h.search("zeppelin", scope=bo)
    assert sessions(report) == [mine]
    assert rules(report) == {"hidden source": 1, "archived": 1, "deleted": 1}
    assert all(one.remedy for one in report.dropped)
    assert len(h.search("zeppelin", include_archived=True).hits) == 3
    assert len(h.search("zeppelin source:subagent").hits) == 1


def test_a_turn_beside_a_match_is_shown_only_if_it_passes_the_filters(h: Herma) -> None:
    said(h, "Where does the zeppelin land in autumn?", "On the field behind the lake.")
    every = h.search("zeppelin autumn", level="message")
    assert {hit.role for hit in every.hits} == {"user", "assistant"}
    assert {hit.role for hit in h.search("zeppelin autumn role:user", level="message").hits} == {"user"}


def test_a_search_says_the_same_whether_others_used_the_word_or_not(h: Herma) -> None:
    anna, bo = Scope(user="anna"), Scope(user="bo")
    said(h, "good morning", scope=bo)
    said(h, "zeppelin", scope=anna)
    said(h, "zeppelin at work", source="subagent", scope=anna)
    h.transcripts.archive(said(h, "zeppelin of old", scope=anna))
    h.transcripts.delete(said(h, "zeppelin gone", scope=anna))
    used, unused = h.search("zeppelin", scope=bo), h.search("balloon", scope=bo)
    assert used.dropped == unused.dropped == ()
    assert [note.replace("zeppelin", "balloon") for note in used.notes] == list(unused.notes)
    near = h.search("mornin zeppeli", scope=bo)
    assert len(near.hits) == 1
    assert "zeppelin" not in str(near)


def test_what_is_left_out_does_not_use_up_the_places(h: Herma) -> None:
    """Thousands of better matches that may not be shown must not hide the one that may."""
    for _ in range(4):
        session = h.transcripts.start("subagent")
        h.transcripts.append(session, [{"role": "user", "content": "zeppelin zeppelin"}] * 250)
    wanted = said(h, "There was also some talk about a zeppelin, at length, among many other things.")
    assert sessions(h.search("zeppelin")) == [wanted]


def test_what_filters_leave_of_a_common_word_is_found_however_many_others_have_it(
    h: Herma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "MOST", 40)
    mine = said(h, "once a falcon was seen, said somebody, at some length", scope=Scope(user="ada"))
    shop = said(h, "a falcon was seen in the shop, somebody said there", scope=Scope(project="/src/shop"))
    for _ in range(5):
        said(h, *["falcon was seen"] * 60)
    for query in ("falcon", "falcon seen", "falcon AND seen", '"falcon was seen"'):
        for found, report in (
            (mine, h.search(query, scope=Scope(user="ada"))),
            (shop, h.search(f"{query} project:shop")),
        ):
            assert (sessions(report), report.widened) == ([found], False), report
        assert h.search(f"{query} project:shop -source:cli role:user").widened


def test_what_was_not_looked_at_is_not_denied(h: Herma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gather, "MOST", 40)
    monkeypatch.setattr(gather, "CLOSELY", 5)
    said(h, "the falcon again", *["nothing else"] * 10, scope=Scope(user="ada"))
    said(h, *["falcon"] * 300)
    report = h.search("falcon", scope=Scope(user="ada"))
    assert report.hits == ()
    assert "No message that was searched contains falcon." in report.notes
    assert any("the newest 5 messages were read" in note for note in report.notes)


def test_without_words_the_newest_that_pass_the_filters_are_shown_however_old(
    h: Herma, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gather, "BROWSED", 5)
    old = said(h, "from the phone", source="telegram")
    said(h, *["from the keyboard"] * 20)
    report = h.search("source:telegram")
    assert sessions(report) == [old]
    assert not report.widened


def test_a_title_that_is_given_as_it_stands_comes_first(h: Herma) -> None:
    wanted = said(h, "about something else altogether", title="Deploy plan", scope=Scope(user="ada"))
    for number in range(8):
        said(h, "the deploy plan, the whole deploy plan", title=f"Deploy plan {number}", scope=Scope(user="bob"))
    for query in ("Deploy plan", '"Deploy plan"', "`Deploy plan`"):
        report = h.search(query, limit=3)
        assert (sessions(report)[0], len(report.hits)) == (wanted, 3)
        assert "the title is the query" in report.hits[0].why
    assert sessions(h.search("deploy plan", limit=3, scope=Scope(user="ada"))) == [wanted], "others take no place"


def test_one_long_conversation_does_not_hide_the_others(h: Herma) -> None:
    long = h.transcripts.start("cli")
    h.transcripts.append(long, [{"role": "user", "content": "zeppelin zeppelin"}] * 700)
    other = said(h, "There was also some talk about a zeppelin, at length, among many other things.")
    assert set(sessions(h.search("zeppelin", limit=2))) == {long, other}


# ── conversations ──


def test_one_hit_for_each_conversation(h: Herma) -> None:
    first = said(h, "zeppelin plans")
    second = said(h, "more zeppelin plans", parent=first, reason="compression")
    branch = said(h, "other zeppelin plans", parent=first, reason="branch")
    report = h.search("zeppelin plans")
    assert {hit.conversation for hit in report.hits} == {first, branch}
    assert len(report.hits) == 2
    messages = h.search("zeppelin plans", level="message")
    assert {hit.session_id for hit in messages.hits} == {first, second, branch}


def test_the_current_conversation_is_left_out_but_not_what_left_its_context(h: Herma) -> None:
    first = said(h, "the zeppelin is red")
    h.transcripts.end(first, "compression")
    second = said(h, "the balloon is blue", parent=first, reason="compression")
    assert sessions(h.search("zeppelin", current_session=second)) == [first]
    report = h.search("balloon", current_session=second)
    assert report.hits == ()
    assert rules(report) == {"current conversation": 1}
    assert "in this conversation" in " ".join(report.notes)


def test_turns_compacted_in_place_are_found_from_the_same_session(h: Herma) -> None:
    session = said(h, "the zeppelin is red", "noted", "the zeppelin is late", "so it is")
    ids = [message.id for message in h.transcripts.messages(session)]
    h.transcripts.compact(session, ids[0], ids[1])
    report = h.search("zeppelin", current_session=session, level="message")
    assert [hit.message_id for hit in report.hits if "zeppelin" in hit.snippet] == [ids[0]]


def test_titles_are_found(h: Herma) -> None:
    named = said(h, "Let us begin.", title="Zeppelin maintenance")
    report = h.search("zeppelin")
    assert sessions(report) == [named]
    assert report.hits[0].role == "session_title"
    assert report.hits[0].snippet == ">>>Zeppelin<<< maintenance"
    other = said(h, "The zeppelin is here.")
    assert sessions(h.search("zeppelin")) == [named, other]


def test_an_answer_is_found_beside_its_question(h: Herma) -> None:
    session = said(h, "Where do I keep the zeppelin manual?", "In the blue cupboard, second shelf.", "Thanks!")
    report = h.search("zeppelin manual", level="message")
    ids = [message.id for message in h.transcripts.messages(session)]
    assert [hit.message_id for hit in report.hits[:2]] == ids[:2]
    assert "next to a match" in report.hits[1].why[0]


# ── nothing is silent ──


def test_unknown_words_are_named_and_near_ones_and_parts_are_tried(h: Herma) -> None:
    wanted = said(h, "The kubernetes cluster is down.")
    report = h.search("kuberntes")
    assert (sessions(report), report.widened) == ([wanted], True)
    assert any("kuberntes" in note for note in report.notes)
    nothing = h.search("xylophone")
    assert (nothing.hits, nothing.widened) == ((), False)
    assert "xylophone" in " ".join(nothing.notes)
    part = said(h, "Die Datenbankverbindung ist weg.")
    assert sessions(h.search("verbindung")) == [part]
    assert not h.search("Datenbankverbindung").widened


def test_the_report_tells_how_the_query_was_read(h: Herma) -> None:
    said(h, "zeppelin")
    report = h.search('what about the "zeppelin" -balloon', explain=True)
    assert "“zeppelin”" in report.understood
    assert "balloon" in report.understood
    assert report.searched
    assert report.sessions == 1
    assert report.hits[0].why


def test_names_are_found_with_and_without_their_signs(h: Herma) -> None:
    for query, text, instead in (
        (".NET", "written in ASP.NET", "NET for .NET"),
        ("v1.2.3", "upgrade to 1.2.3", "1.2.3 for v1.2.3"),
        ("#alpha", "alpha and beta", ""),
    ):
        wanted = said(h, text)
        report = h.search(query, mode="words")
        assert sessions(report) == [wanted]
        assert report.widened == bool(instead)
        assert any(instead in note for note in report.notes) or not instead
    an, gpt = said(h, "hello there", title="About the AN-94"), said(h, "hello there", title="About the gpt4")
    said(h, "good morning", title="About the BN-94 and GPT-5")
    for asked, session in (("an94", an), ("AN-94", an), ("GPT-4", gpt), ("about gpt4", gpt)):
        assert sessions(h.search(asked, mode="words")) == [session], asked


def test_what_cannot_be_searched_for_is_not_denied(h: Herma) -> None:
    said(h, "party 🎉 time")
    report = h.search("🎉", mode="words")
    assert report.hits or any("cannot be searched for" in note for note in report.notes)
    assert not any("No message contains" in note for note in report.notes)


def test_a_home_that_cannot_be_written_is_searched_all_the_same(h: Herma, home: Path) -> None:
    wanted = said(h, "the zeppelin")
    assert h.search("zeppelin").hits
    h.close()
    home.chmod(0o500)
    for file in home.iterdir():
        file.chmod(0o400)
    try:
        with Herma.open(home=home) as reader:
            assert sessions(reader.search("zeppelin")) == [wanted]
    finally:
        home.chmod(0o700)


def test_more_than_a_search_indexes_is_reported_and_the_newest_are_read(h: Herma) -> None:
    session = h.transcripts.start("cli")
    for _ in range(5):
        h.transcripts.append(session, [{"role": "user", "content": "nothing to see"}] * 500)
    wanted = said(h, "the zeppelin lands")
    report = h.search("zeppelin")
    assert sessions(report) == [wanted]
    if report.lag:
        assert f"{report.lag:,}" in report.searched


def no_index(home: Path) -> None:
    """Nobody can build one here; that holds for root too."""
    (home / "index.db.lock").mkdir()


@of_files
def test_without_an_index_every_one_of_the_newest_messages_is_read(h: Herma, home: Path) -> None:
    no_index(home)
    wanted = said(h, "the zeppelin lands", *["nothing to see"] * 400)
    first = h.transcripts.messages(wanted)[0]
    for words in ("zeppelin", "zeppelin airship", "zeppelin AND lands", "zeppelin -giraffe"):
        report = h.search(words, level="message")
        assert (report.hits[0].session_id, report.hits[0].message_id) == (wanted, first.id), words
        assert (report.searched, report.lag) == ("All messages and titles of 1 session.", 401)
        assert [note for note in report.notes if "cannot be built" in note]
        assert not [note for note in report.notes if "No message" in note or "near in meaning" in note]
    nothing = h.search("giraffe")
    assert not nothing.hits
    assert "No message contains giraffe." in nothing.notes


@of_files
def test_without_an_index_no_more_is_said_than_was_read(h: Herma, home: Path) -> None:
    (home / "index.db" / "in the way").mkdir(parents=True)
    long = said(h, "filler " * 3_000 + "the falcon")
    assert sessions(h.search("falcon")) == [long]
    said(h, "filler " * 30_000 + "the heron")
    assert "No message that was searched contains heron." in h.search("heron").notes
    h.transcripts.archive(said(h, "the zeppelin lands", "nothing to see", "nothing to see"))
    assert rules(h.search("zeppelin")) == {"archived": 1}
    said(h, "the otter lands", *["nothing to see"] * 600)
    report = h.search("otter")
    assert not report.hits
    assert "No message that was searched contains otter." in report.notes
    assert report.searched.endswith("only the last 500 were read.")


@of_files
def test_an_index_that_cannot_be_kept_up_to_date_says_so(home: Path) -> None:
    with Herma.open(home=home) as h:
        said(h, "the zeppelin lands")
        assert h.search("zeppelin").notes == () or h.index.wait(embedding=False)
    (home / "index.db.lock").unlink()
    no_index(home)
    with Herma.open(home=home) as h:
        newer = said(h, "a second zeppelin")
        report = h.search("second zeppelin")
        assert newer in sessions(report)
        assert [note for note in report.notes if note.startswith("The index cannot be brought up to date:")]


def test_tool_names_and_arguments_are_found(h: Herma) -> None:
    session = h.transcripts.start("cli")
    call = {"id": "1", "type": "function", "function": {"name": "launch_rocket", "arguments": '{"pad": "39A"}'}}
    h.transcripts.append(session, [{"role": "assistant", "content": None, "tool_calls": [call]}])
    assert sessions(h.search("launch_rocket")) == [session]
    assert sessions(h.search("39A")) == [session]


def test_purged_sessions_leave_the_index(h: Herma, clock: FixedClock) -> None:
    keep, drop = said(h, "hello there, odd \ud800 half and \x00 nothing"), said(h, "hello again")
    long = said(h, "beginning " + "filler words all along " * 20_000 + " needle at the end")
    assert (sessions(h.search("needle")), sessions(h.search("half"))) == ([long], [keep])
    assert set(sessions(h.search("hello"))) == {keep, drop}
    h.transcripts.delete(drop)
    clock.advance(365 * 86_400)
    h.transcripts.purge_expired()
    report = h.search("hello")
    assert (sessions(report), report.dropped) == ([keep], ())
    assert h.index.catch_up() == 0
    assert (h.index.verify().trouble, h.index.status().messages) == ("", 2)
