"""How long transcripts are kept: for ever, unless somebody says otherwise, and by source."""

from __future__ import annotations

from pathlib import Path

import pytest

from herma import Herma
from herma.errors import ConfigError
from herma.testing import FixedClock
from herma.transcript.retention import Keeping

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


def test_nothing_is_deleted_by_default(home: Path) -> None:
    clock = FixedClock()
    with Herma.open(home, clock=clock) as h:
        session = begin(h, "cron")
        clock.advance(10_000 * DAY)
        assert h.transcripts.expire(Keeping()).sessions == ()
        assert h.transcripts.get(session) is not None


@pytest.mark.parametrize("rules", ["cron", "cron=", "=3", "cron=soon", "cron=-1", "cron=inf"])
def test_a_rule_that_is_none_is_refused(rules: str) -> None:
    with pytest.raises(ConfigError):
        Keeping.read(0, rules)
