"""How long transcripts are kept: for ever, unless somebody says otherwise, and by source."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.homes import of_files, talk

from herma import Herma, HermaWarning
from herma.errors import ConfigError, StoreError
from herma.testing import FixedClock
from herma.transcript.log import Keeping

DAY = 86_400.0


def begin(h: Herma, source: str) -> str:
    session = h.transcripts.start(source)
    h.transcripts.append(session, [{"role": "user", "content": f"hello from {source}"}])
    return session


def test_what_is_quiet_for_too_long_is_deleted_by_source_and_can_come_back(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        cron, cli, kept = begin(h, "cron"), begin(h, "cli"), begin(h, "cron")
        h.transcripts.archive(kept)
        clock.advance(40 * DAY)
        keeping = Keeping.read(0, "cron=30, subagent=7")
        would = h.transcripts.expire(keeping, dry_run=True)
        assert [session.id for session in would.sessions] == [cron]
        assert h.transcripts.get(cron) is not None
        h.transcripts.expire(keeping)
        assert {session.id for session in h.transcripts.list(archived=None)} == {cli, kept}
        assert [session.id for session in h.transcripts.undelete(cron)] == [cron]
        everything = h.transcripts.expire(Keeping.read(30, ""))
        assert {session.id for session in everything.sessions} == {cron, cli}


def test_a_conversation_is_kept_as_long_as_any_of_its_sources(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        cron = begin(h, "cron")
        cli = h.transcripts.start("cli", parent=cron)
        h.transcripts.append(cli, [{"role": "user", "content": "and then?"}])
        clock.advance(40 * DAY)
        for days, rules in ((0, "cron=7"), (7, "cron=0"), (50, "cron=7"), (7, "cron=50")):
            assert h.transcripts.expire(Keeping.read(days, rules), dry_run=True).sessions == ()
        assert len(h.transcripts.expire(Keeping.read(30, "cron=7"), dry_run=True).sessions) == 2


def test_nothing_is_deleted_by_default(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        session = begin(h, "cron")
        clock.advance(10_000 * DAY)
        assert h.transcripts.expire(Keeping()).sessions == ()
        assert h.transcripts.get(session) is not None


@of_files
def test_what_is_gone_for_good_is_in_no_byte_of_the_file(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        log = h.transcripts
        kept, gone = begin(h, "cli"), log.start("cli", title="Hushed title", system_prompt="Hushed prompt. " * 9)
        for size in (1, 40, 900, 6_000):
            said = {
                "role": "assistant",
                "content": f"hushed words {size} " + "- " * size,
                "reasoning": "hushed thought",
            }
            log.append(gone, [{"role": "user", "content": "a hushed question"}, said])
        large = log.append(gone, [{"role": "tool", "content": random.Random(1).randbytes(90_000).hex()}])
        (packed,) = h.db.rows("SELECT data FROM payloads WHERE size = 180000")[0]
        assert b"hushed words" in stored(home)
        log.delete(gone)
        clock.advance(8 * DAY)
        assert [one.id for one in log.purge_expired()] == [gone]
        assert log.around(large[0]) == []
    left = (home / "herma.db").read_bytes()
    assert not (home / "herma.db-wal").exists()
    assert b"ushed" not in left
    assert not any(packed[at : at + 64] in left for at in range(0, len(packed), 4_000))
    with Herma.open(home, clock=clock) as h:
        assert [one.content for one in h.transcripts.messages(kept)] == ["hello from cli"]


def stored(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in home.glob("herma.db*"))


@pytest.mark.parametrize("rules", ["cron", "cron=", "=3", "cron=soon", "cron=-1", "cron=inf"])
def test_a_rule_that_is_none_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError):
        Keeping.read(0, rules)


def test_a_session_that_is_asked_for_is_not_deleted_in_the_same_breath(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock, flags={"retention.days": 30}) as h:
        old = begin(h, "cli")
        clock.advance(40 * DAY)
        with h.session(resume=old) as session:
            talk(session, "Where were we?", reply="Here.")
        with h.session():
            assert h.transcripts.get(old) is not None, "it is in use again"


def test_a_session_starts_although_nothing_can_be_deleted(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Herma.open(home, flags={"retention.days": 30}) as h:

        def refuse(_: Keeping) -> None:
            raise StoreError("The home cannot be written.")

        monkeypatch.setattr(h.transcripts, "expire", refuse)
        with pytest.warns(HermaWarning, match="cannot be written"), h.session() as session:
            assert session.system_prompt
