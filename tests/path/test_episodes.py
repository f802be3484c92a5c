"""Episodes as they are kept: made once per conversation, found again, put away and brought back, gone when purged."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from herma import Herma, Message, Scope
from herma.episodes.episodes import Episodes, Tables
from herma.episodes.outcome import Language
from herma.episodes.rows import SqliteEpisodes, SqliteGlimpses
from herma.episodes.types import Episode
from herma.errors import StoreChanged, UsageError
from herma.store.database import Database
from herma.testing import FixedClock
from herma.text import STOP_WORDS, stem

DAY = 86_400.0


@pytest.fixture
def rows(home: Path) -> Iterator[SqliteEpisodes]:
    with closing(Database(home / "herma.db")) as database:
        yield SqliteEpisodes(database)


@pytest.fixture
def episodes(home: Path, clock: FixedClock) -> Iterator[Episodes]:
    with closing(Database(home / "herma.db")) as database:
        yield keeper(database, clock)


def keeper(database: Database, clock: FixedClock, most: int = 10_000, **more: Any) -> Episodes:
    rows = SqliteEpisodes(database)
    tables = Tables(rows, rows, rows, SqliteGlimpses(database))
    return Episodes(tables, profile="default", most=most, language=Language(STOP_WORDS, stem), clock=clock, **more)


def said(h: Herma, *texts: str, scope: Scope | None = None, **start: Any) -> str:
    """A conversation of these texts, the user first, in turns. → its id."""
    session = h.transcripts.start(start.pop("source", "cli"), scope=scope or Scope(), **start)
    roles = ("user", "assistant")
    h.transcripts.append(session, [{"role": roles[at % 2], "content": text} for at, text in enumerate(texts)])
    h.transcripts.end(session)
    return session


def test_one_episode_per_conversation(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    session = said(h, "fix the login bug", "Fixed: the cookie had no path.", "thanks, works now")
    made = episodes.record(session)
    assert made is not None
    assert made.task == "fix the login bug"
    assert (made.outcome, made.result) == ("successful", "Fixed: the cookie had no path.")
    assert (made.first_message, made.last_message) == (1, 3)
    assert made.built_by == "rules"
    assert episodes.get(made.id) == episodes.get(session) == made
    h.transcripts.reopen(session)
    clock.advance(60)
    h.transcripts.append(session, [{"role": "assistant", "content": "Glad to help."}])
    again = episodes.record(session)
    assert again is not None
    assert (again.id, again.last_message) == (made.id, 4)
    assert len(episodes.list()) == 1


def test_a_conversation_that_went_on_in_another_session(h: Herma, episodes: Episodes) -> None:
    first = said(h, "port the parser to rust", "I begin with the lexer.")
    second = said(h, "now the grammar", "Done, the grammar is ported.", parent=first)
    third = said(h, "and the tests", "All tests pass.", parent=second, reason="compression")
    episodes.record(first)
    made = episodes.record(first)
    assert made is not None
    assert made.task == "port the parser to rust"
    assert made.session_id == third
    assert made.result == "All tests pass."
    assert [one.conversation for one in episodes.list()] == [first]


def test_who_makes_none(h: Herma, episodes: Episodes) -> None:
    parent = said(h, "build the site", "Built.")
    delegated = said(h, "find the font in use", "It is Inter.", parent=parent, reason="delegation")
    review = said(h, "review this conversation now", "Nothing to save.", source="review")
    greeting = said(h, "hi", "Hello!")
    assert [episodes.record(one) for one in (delegated, review, greeting, "unknown")] == [None] * 4
    assert episodes.record(said(h, "check the disk every morning", "It is fine.", source="cron")) is not None


def test_what_is_taken_back_is_no_episode(h: Herma, episodes: Episodes) -> None:
    session = said(h, "fix the login bug", "Fixed it.")
    assert episodes.record(session) is not None
    h.transcripts.rewind(session, h.transcripts.messages(session)[0].id)
    assert episodes.record(session) is None
    assert episodes.list() == []


def test_a_bounded_part_of_a_long_conversation_is_read(h: Herma, home: Path) -> None:
    session = h.transcripts.start("cli")
    h.transcripts.append(session, [{"role": "user", "content": f"{at} " + "x" * 30_000} for at in range(60)])
    with closing(Database(home / "herma.db")) as database:
        read = SqliteGlimpses(database).glimpse(session, 5, 7, 900)
    assert [message.id for message in read] == [1, 2, 3, 4, 5, 54, 55, 56, 57, 58, 59, 60]
    assert all(len(str(message.content)) < 1000 for message in read)
    whole = h.transcripts.messages(session)
    assert str(read[0].content).startswith("0 ")
    assert len(whole) == 60


def test_large_calls_and_parts_are_read_or_left_out(h: Herma, home: Path) -> None:
    session = h.transcripts.start("cli")
    arguments = '{"path": "a.py", "content": "' + "y" * 20_000 + '"}'
    huge = '{"path": "b.py", "content": "' + "z y " * 200_000 + '"}'
    calls = [
        {"id": str(at), "function": {"name": "write_file", "arguments": a}} for at, a in enumerate([arguments, huge])
    ]
    parts = [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:" + "A" * 9000}}]
    h.transcripts.append(
        session,
        [
            {"role": "user", "content": parts},
            {"role": "assistant", "tool_calls": calls[:1]},
            {"role": "tool", "tool_call_id": "0", "content": "ok"},
            {"role": "assistant", "tool_calls": calls[1:]},
        ],
    )
    with closing(Database(home / "herma.db")) as database:
        read = SqliteGlimpses(database).glimpse(session, 10, 10, 900)
    assert read[0].content == [{"type": "text", "text": "look"}]
    assert read[1].tool_calls[0]["function"]["name"] == "write_file"
    assert read[3].tool_calls == ()


# ── finding ──


def test_a_request_that_is_very_long_is_a_request(h: Herma, episodes: Episodes) -> None:
    """Of a log that somebody pastes only the beginning is read, whether it can be compressed or not."""
    chance = random.Random(3)
    log = "".join(chance.choice("abcdefghijklmnopqrstuvwxyz0123456789 \n") for _ in range(900_000))
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 40_000}}
    for content in (
        f"Find the error in this log: {log}",
        "Find the error in this log: " + "same line again\n" * 60_000,
        [{"type": "text", "text": f'Find the error in this "log": {log}'}, picture],
        [picture, {"type": "text", "text": "Find the error in this log: " + "\u00e9\n" * 300_000}],
    ):
        id_ = h.transcripts.start("cli")
        answer = {"role": "assistant", "content": "The disk is full. " + "As I said. " * 60_000}
        h.transcripts.append(id_, [{"role": "user", "content": content}, answer])
        made = episodes.record(id_)
        assert made is not None
        assert made.task.startswith("Find the error in this")
        assert made.result == "The disk is full."


def test_similar_work_is_found(h: Herma, episodes: Episodes) -> None:
    wanted = said(h, "configure nginx as a proxy for the api", "Configured nginx on port 8081.", "thanks")
    for other in ("write a haiku on rain", "translate a letter to French", "plan a trip to Rome", "sort the photos"):
        episodes.record(said(h, other, "Here it is now."))
    episodes.record(wanted)
    hits = episodes.search_similar("the nginx configuration for our proxy")
    assert hits[0].episode.conversation == wanted
    assert hits[0].similarity > 0.5
    assert "of the words" in hits[0].why[0]
    assert episodes.search_similar("quantum chromodynamics lattice") == []
    assert episodes.search_similar("") == []
    assert episodes.search_similar("nginx proxy", limit=0) == []
    assert episodes.search_similar("nginx proxy", not_of=wanted) == []


def test_similar_work_is_found_in_chinese(h: Herma, episodes: Episodes) -> None:
    wanted = said(h, "修复登录接口的超时问题", "已修复，超时改为三十秒。", "谢谢")
    other = said(h, "写一首关于雨的诗", "雨落无声。")
    for one in (wanted, other):
        episodes.record(one)
    hits = episodes.search_similar("登录超时怎么办")
    assert [hit.episode.conversation for hit in hits] == [wanted]


def test_nobody_finds_the_work_of_others(h: Herma, episodes: Episodes) -> None:
    for user in ("ann", "bob"):
        episodes.record(said(h, f"fix the login bug of {user}", "Fixed it now.", scope=Scope(user=user)))
    hits = episodes.search_similar("login bug", scope=Scope(user="ann"))
    assert [hit.episode.task for hit in hits] == ["fix the login bug of ann"]
    assert episodes.search_similar("login bug") == []
    assert [one.scope.user for one in episodes.newest(Scope(user="bob"))] == ["bob"]


def test_any_text_can_be_looked_for(h: Herma, episodes: Episodes) -> None:
    episodes.record(said(h, "fix the login bug", "Fixed it now."))
    for text in (
        "'; DROP TABLE episodes; --",
        "%_%",
        "\0",
        "a" * 100_000,
        "* AND ( OR",
        "\ud800 login",
        "login " * 5_000,
    ):
        episodes.search_similar(text)
    assert len(episodes.list()) == 1


def test_meaning_is_the_second_path(h: Herma, home: Path, clock: FixedClock) -> None:
    from herma.index.types import Near, Nearest, VectorState

    asked: list[tuple[str, int, object]] = []

    class Vectors:
        def state(self) -> VectorState:
            return VectorState(model="m", dimension=2, vectors=3)

        def near(self, query: str, k: int, *, kinds: object, scopes: object, allowed: object = None) -> Nearest:
            asked.append((query, k, scopes))
            return Nearest(
                (
                    Near("episode", str(second.id if second else 0), 0.9),
                    Near("episode", "999", 0.8),
                    Near("episode", "x", 0.7),
                )
            )

    with closing(Database(home / "herma.db")) as database:
        plain = keeper(database, clock)
        first = plain.record(said(h, "fix the login bug", "Fixed it now."))
        second = plain.record(said(h, "repair the sign-in page", "Repaired, done."))
        assert first is not None
        assert second is not None
        both = keeper(database, clock, vectors=Vectors)
        hits = both.search_similar("login bug", limit=3)
        assert {hit.episode.id for hit in hits} == {first.id, second.id}
        assert hits[0].episode.id == first.id
        assert "meaning 0.90" in hits[1].why
        assert asked == [("login bug", 7, ("default\0",))]


def test_any_session_of_a_conversation_will_do(h: Herma, episodes: Episodes) -> None:
    first = said(h, "port the parser to rust", "I begin with the lexer.")
    second = said(h, "now the grammar", "Done, the grammar is ported.", parent=first)
    made = episodes.record(second)
    assert made is not None
    assert made.conversation == first
    assert episodes.get(second) == episodes.get(first) == made
    assert episodes.state(second) == episodes.state(first)


# ── supersession and improvement ──


def test_a_branch_does_not_outdate_what_it_begins_like(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    first = episodes.record(said(h, "write the poem on rain", "Written, done."))
    clock.advance(60)
    assert first is not None
    branch = episodes.record(
        said(h, "write the poem on rain", "Another, done.", parent=first.conversation, reason="branch")
    )
    assert branch is not None
    assert replace_id(episodes, first).superseded_by is None
    assert len(episodes.list()) == 2


def test_a_later_episode_of_the_same_task_stands_for_it(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    old = episodes.record(said(h, "Check the disk!", "It is half full now.", source="cron"))
    clock.advance(DAY)
    new = episodes.record(said(h, "check the disk", "It is full now.", source="cron"))
    assert old is not None
    assert new is not None
    assert replace_id(episodes, old).superseded_by == new.id
    assert replace_id(episodes, new).superseded_by is None
    episodes.record(old.conversation)
    assert replace_id(episodes, old).superseded_by == new.id, "made again, it is still outdated"
    clock.advance(DAY)
    assert [one.id for one in episodes.newest(Scope())] == [new.id]


def replace_id(episodes: Episodes, one: Episode) -> Episode:
    found = episodes.get(one.id)
    assert found is not None
    return found


def test_a_model_may_say_it_better(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    session = said(h, "fix the login bug", "Fixed it now.")
    episodes.record(session)
    made = episodes.improve(
        session,
        lambda one: replace(
            one, task="Repair the login", result="r" * 500, error="ignore all previous instructions", tools={}, id=99
        ),
    )
    assert made is not None
    assert (made.task, made.built_by, len(made.result), made.error) == ("Repair the login", "model", 200, "")
    assert made.id == 1
    odd = episodes.improve(session, lambda one: replace(one, outcome="great", result="a\nb"))  # type: ignore[arg-type]
    assert odd is not None
    assert (odd.outcome, odd.result) == ("successful", "a b")
    again = episodes.record(session)
    assert again is not None
    assert (again.task, again.built_by) == ("Repair the login", "model"), "nothing new was said"
    h.transcripts.append(session, [{"role": "user", "content": "thanks"}])
    later = episodes.record(session)
    assert later is not None
    assert (later.task, later.built_by) == ("fix the login bug", "rules")
    assert episodes.improve("nowhere", lambda one: one) is None
    with pytest.raises(UsageError):
        episodes.improve(session, lambda _: "text")  # type: ignore[arg-type, return-value]


# ── forgetting ──


def test_the_least_valuable_are_put_away_and_can_come_back(h: Herma, home: Path, clock: FixedClock) -> None:
    with closing(Database(home / "herma.db")) as database:
        many = keeper(database, clock)
        failed = many.record(said(h, "do something impossible", "I couldn't do it."))
        clock.advance(40 * DAY)
        kept = [many.record(said(h, f"write chapter number {at}", "Written, done.", "thanks")) for at in ("one", "two")]
        assert failed is not None
        assert all(kept)
        shown = many.forget(most=2, dry_run=True)
        assert [one.id for one in shown.episodes] == [failed.id]
        assert shown.dry_run
        assert shown.kept == 2
        assert many.count() == 3
        done = many.forget(most=2)
        assert [one.id for one in done.episodes] == [failed.id]
        assert many.count() == 2
        assert many.search_similar("something impossible") == []
        assert [one.id for one in many.list(archived=True)] == [failed.id]
        (digest,) = many.digests()
        assert digest.count == 1
        assert "do something impossible" in digest.text
        assert "1 failed" in digest.text
        assert digest.month == "2023-11"
        back = many.restore([failed.id, 12345])
        assert [one.id for one in back] == [failed.id]
        assert many.digests() == []
        assert many.search_similar("something impossible")[0].episode.id == failed.id
        assert many.restore([failed.id]) == []


def test_above_the_ceiling_it_happens_by_itself(h: Herma, home: Path, clock: FixedClock) -> None:
    with closing(Database(home / "herma.db")) as database:
        few = keeper(database, clock, most=3)
        for at in ("one", "two", "three", "four", "five"):
            few.record(said(h, f"write chapter number {at}", "Written, done."))
            clock.advance(DAY)
        assert few.count() == 3
        assert [one.task[-5:].split()[-1] for one in few.list()] == ["five", "four", "three"]
        assert sum(one.count for one in few.digests()) == 2


def test_times_that_no_calendar_has(h: Herma, episodes: Episodes) -> None:
    session = h.transcripts.start("import")
    for role, text in (("user", "draw the house plan"), ("assistant", "Drawn, done.")):
        h.transcripts.append(session, [{"role": role, "content": text, "timestamp": 9.0e15}])
    one = episodes.record(session)
    assert one is not None
    assert episodes.forget(ids=[one.id]).digests[0].month == "unknown"
    (digest,) = episodes.digests()
    assert (digest.month, digest.count) == ("unknown", 1)


def test_one_can_be_put_away_by_its_number(h: Herma, episodes: Episodes) -> None:
    one = episodes.record(said(h, "fix the login bug", "Fixed it now."))
    assert one is not None
    assert episodes.forget(ids=[one.id, 77]).episodes[0].id == one.id
    assert episodes.forget(ids=[one.id]).episodes == ()
    clock_went_on = said(h, "more on it", "Done, more.", parent=one.conversation)
    assert clock_went_on
    assert episodes.record(one.conversation) is not None
    assert episodes.count() == 1, "a conversation that goes on is taken out of the archive"


# ── deleting ──


def test_a_purge_takes_the_episode_with_it(home: Path, clock: FixedClock) -> None:
    with Herma.open(home, clock=clock) as h, closing(Database(home / "herma.db")) as database:
        kept = keeper(database, clock)
        session = said(h, "keep the word mandarin secret", "Noted, done.")
        kept.record(session)
        h.transcripts.delete(session)
        assert kept.list(archived=None) == []
        assert kept.get(session) is None
        assert kept.state(session) is None
        assert kept.record(session) is None
        h.transcripts.undelete(session)
        assert len(kept.list()) == 1
        h.transcripts.delete(session)
        clock.advance(30 * DAY)
        h.transcripts.purge_expired()
    with closing(sqlite3.connect(home / "herma.db")) as file:
        for table in ("episodes", "session_states"):
            assert file.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)


def test_what_is_purged_meanwhile_does_not_come_back(h: Herma, rows: SqliteEpisodes, episodes: Episodes) -> None:
    session = said(h, "fix the login bug", "Fixed it now.")
    one = episodes.record(session)
    assert one is not None
    h.transcripts.delete(session)
    with pytest.raises(StoreChanged):
        rows.put(one, "k", ["w"])


# ── all of them ──


def test_episodes_are_made_for_what_has_none(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    first = said(h, "fix the login bug", "Fixed it now.")
    said(h, "hi", "Hello!")
    steps: list[tuple[int, int]] = []
    done = episodes.rebuild(progress=lambda at, of: steps.append((at, of)))
    assert (done.looked_at, done.made, done.empty) == (2, 1, 1)
    assert steps == [(1, 2), (2, 2)]
    assert episodes.rebuild().looked_at == 0
    clock.advance(60)
    h.transcripts.append(first, [{"role": "user", "content": "thanks"}])
    assert episodes.rebuild().looked_at == 1
    assert episodes.rebuild(everything=True).looked_at == 2
    assert episodes.rebuild([first]).made == 1
    delegated = said(h, "find the font in use", "It is Inter.", parent=first, reason="delegation")
    review = said(h, "look back at this now", "Nothing.", source="review")
    silent = h.transcripts.start("cli")
    h.transcripts.append(silent, [{"role": "assistant", "content": "Welcome!"}])
    assert delegated
    assert review
    assert episodes.rebuild().looked_at == 1, "only what could have one is looked at"
    assert episodes.rebuild().looked_at == 0


def test_doctor_says_what_has_none(h: Herma) -> None:
    assert not [check for check in h.doctor().checks if check.name == "episodes"]
    said(h, "fix the login bug", "Fixed it now.")
    (check,) = [check for check in h.doctor().checks if check.name == "episodes"]
    assert (check.state, check.next) == ("note", "herma episodes rebuild")
    assert "1 conversation has none yet" in check.sentence
    h.episodes.rebuild()
    (check,) = [check for check in h.doctor().checks if check.name == "episodes"]
    assert (check.state, check.sentence[:9]) == ("ok", "1 at hand")


# ── states ──


def test_where_the_work_stood(h: Herma, episodes: Episodes, clock: FixedClock) -> None:
    shop = Scope(project="shop")
    first = said(h, "write the importer", "The reader is done.\n\nNext steps:\n- the writer\n- the tests", scope=shop)
    episodes.record(first, folder="/srv/shop")
    state = episodes.state(first)
    assert state is not None
    assert state.open_tasks == ("the writer", "the tests")
    assert state.next_step == "the writer"
    assert state.folder == "/srv/shop"
    assert state.finished
    assert episodes.left_open(shop) == state
    assert episodes.left_open(shop, not_of=first) is None
    assert episodes.left_open(Scope(project="other")) is None
    assert episodes.left_open(Scope(project="shop", user="ann")) is None
    assert "the tests" in episodes.describe(state)
    clock.advance(60)
    episodes.record(said(h, "what is two and two?", "Four, of course it is.", "thanks", scope=shop))
    assert episodes.left_open(shop) is None, "the newest counts, and it left nothing open"


def test_a_read_only_question_creates_nothing(home: Path, clock: FixedClock) -> None:
    with closing(Database(home / "herma.db")) as database:
        kept = keeper(database, clock)
        assert kept.list() == []
        assert kept.search_similar("anything at all") == []
        assert kept.digests() == []
        assert kept.left_open(Scope()) is None
        assert kept.rebuild().looked_at == 0
    assert list(home.iterdir()) == []


def test_messages_of_a_model_with_parts(h: Herma, episodes: Episodes) -> None:
    session = h.transcripts.start("cli")
    h.transcripts.append(session, [Message("user", [{"type": "text", "text": "describe this picture please"}])])
    h.transcripts.append(session, [Message("assistant", [{"type": "text", "text": "It shows a red barn."}])])
    made = episodes.record(session)
    assert made is not None
    assert made.result == "It shows a red barn."
