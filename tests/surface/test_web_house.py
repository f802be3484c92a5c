"""What stands behind the pages: one opened home for many threads, and errors that are told."""

from __future__ import annotations

import asyncio
import logging
import stat
import threading
from functools import partial
from pathlib import Path

import apsw
import pytest
from starlette.responses import Response
from tests.homes import conversation

from herma import Add, Herma
from herma.doctor.checks import diagnose
from herma.errors import StoreError, UsageError
from herma.web.access import Codes, answer, home_token
from herma.web.api import OPERATIONS
from herma.web.app import HomeHandle, ThreadLimit


@pytest.fixture
def house(home: Path) -> HomeHandle:
    return HomeHandle(home, lambda: Herma.open(home))


def test_one_memory_for_all_and_another_when_the_configuration_changes(house: HomeHandle, home: Path) -> None:
    with house.opened() as first, house.opened() as again:
        assert first is again
        (home / "config.yaml").write_text("memory: {memory_char_limit: 3000}\n")
        with house.opened() as changed:
            assert changed is not first
            assert changed.settings.memory.memory_char_limit == 3000
        assert first.memory.status()[0].limit == 2200, "who uses it goes on using it"
    with pytest.raises(UsageError, match="closed"):
        first.memory.status()
    with house.opened() as now:
        assert now is changed
    house.close()
    house.close()
    with pytest.raises(UsageError, match="closed"):
        now.memory.status()


def test_a_look_that_is_under_way_is_shared(house: HomeHandle, monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    entered, go_on = threading.Event(), threading.Event()

    def slow(*words: object, **more: object) -> object:
        looks.append(1)
        entered.set()
        assert go_on.wait(60)
        return diagnose(*words, **more)  # type: ignore[arg-type]

    monkeypatch.setattr("herma.web.app.diagnose", slow)
    found: list[object] = []
    threads = [threading.Thread(target=lambda: found.append(house.doctor(at_most=60))) for _ in range(5)]
    for thread in threads:
        thread.start()
    assert entered.wait(60)
    go_on.set()
    for thread in threads:
        thread.join(60)
    assert len(looks) == 1
    assert len(found) == 5
    house.doctor()
    assert len(looks) == 2, "who wants it now gets it now"
    house.close()


def test_an_error_of_our_own_is_told_without_its_insides(house: HomeHandle, caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> Response:
        raise RuntimeError("inside")

    with caplog.at_level(logging.ERROR, "herma.web"):
        shown, told = answer(house, fails, "/"), answer(house, fails, "/api/v1/home")
    assert (shown.status_code, told.status_code) == (500, 500)
    for response in (shown, told):
        text = bytes(response.body).decode()
        assert "Internal error: RuntimeError" in text
        assert "inside" not in text
        assert "Traceback" not in text
    assert len(caplog.records) == 2
    assert all("RuntimeError: inside" in record.getMessage() for record in caplog.records)

    def refused() -> Response:
        raise StoreError("The disk <b>says</b> no.", hint="Ask again.")

    text = bytes(answer(house, refused, "/").body).decode()
    assert "The disk &lt;b&gt;says&lt;/b&gt; no." in text
    assert "Ask again." in text
    house.close()


def test_work_beside_the_loop_comes_back_or_raises_and_can_be_left() -> None:
    gate = threading.Event()

    async def trial() -> None:
        threads = ThreadLimit(most=2)
        assert await threads.run(lambda: 7) == 7
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)
        assert await asyncio.gather(*(threads.run(partial(int, number)) for number in range(9))) == list(range(9))
        waiting = asyncio.create_task(threads.run(gate.wait))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert await threads.run(lambda: 8) == 8, "whoever was left holds up nobody"

    try:
        asyncio.run(trial())
    finally:
        gate.set()


def test_codes_are_good_once_and_not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    codes = Codes()
    code = codes.make()
    assert not codes.use("")
    assert not codes.use(code + "x")
    assert codes.use(code)
    assert not codes.use(code)
    monkeypatch.setattr(Codes, "SECONDS", -1.0)
    assert not codes.use(codes.make())


def test_the_token_is_kept_for_its_owner_alone(home: Path, tmp_path: Path) -> None:
    file, target = home / "web.token", tmp_path / "target"
    first = home_token(home)
    assert (file.read_text().strip(), stat.S_IMODE(file.stat().st_mode), first.note) == (first.value, 0o600, "")
    assert home_token(home) == first, "another server of the home has the same"
    file.chmod(0o644)
    second = home_token(home)
    assert (second.value != first.value, "could read" in second.note) == (True, True)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert home_token(home, renew=True).value not in (first.value, second.value)
    file.write_text("too short")
    assert len(home_token(home).value) >= 32
    file.unlink()
    target.write_text("mine")
    file.symlink_to(target)
    assert home_token(home).value == file.read_text().strip()
    assert target.read_text() == "mine", "it is not written through a link"
    file.unlink()
    file.mkdir()  # stands in the way, for root too
    kept = home_token(home)
    assert len(kept.value) >= 32
    assert "cannot be written, so the link is valid only until this server ends" in kept.note


def test_looking_changes_nothing_that_is_remembered(house: HomeHandle, home: Path) -> None:
    with house.opened() as h:
        h.memory.apply("memory", Add("Tea is in the cupboard."))
    before = {path: path.read_bytes() for path in (home / "memories").iterdir()}
    rows = _rows(house)
    for one in OPERATIONS:
        if one.method == "GET" and not any(each.required for each in one.parameters):
            one.run(house, {})
    assert {path: path.read_bytes() for path in (home / "memories").iterdir()} == before
    assert _rows(house) == rows
    house.close()


def _rows(house: HomeHandle) -> tuple[int, int]:
    with house.opened() as h:
        return len(h.memory.history()), h.transcripts.stats().sessions


STATEMENTS = {
    "home": 45, "memory": 25, "changes": 14, "archive": 3, "inbox": 5, "search": 40, "sessions": 18, "session": 16,
    "sent": 17, "cost": 32, "episodes": 3, "skills": 5, "connections": 30, "imports": 3,
}  # fmt: skip
"""SQL statements that an operation may run, however much is stored."""


def test_an_operation_runs_few_statements_however_much_is_stored(home: Path) -> None:
    counted: dict[str, list[int]] = {}
    ran: list[str] = []

    def note(event: dict[str, str]) -> None:
        if "'main'." not in event["sql"]:  # of the text index itself
            ran.append(event["sql"])

    def count(connection: apsw.Connection) -> None:
        connection.trace_v2(apsw.SQLITE_TRACE_STMT, note)

    apsw.connection_hooks.append(count)
    try:
        for sessions in (3, 40):
            with Herma.open(home, flags={"embedding.model": "none"}) as h:
                for number in range(sessions):
                    session = conversation(h, *(f"Bed {number} message {at}" for at in range(30)), ended=True)
                    h.memory.apply("memory", Add(f"Fact {sessions} {number}."))
                h.index.wait()
                h.episodes.rebuild()
            house = HomeHandle(home, lambda: Herma.open(home, flags={"embedding.model": "none"}))
            house.doctor()  # else it begins in the background
            for one in OPERATIONS:
                if one.name in STATEMENTS:
                    given = (
                        {"session": session}
                        if "{session}" in one.path
                        else {"q": "bed"}
                        if one.name == "search"
                        else {}
                    )
                    one.run(house, given)  # what is read once
                    ran.clear()
                    one.run(house, given)
                    counted.setdefault(one.name, []).append(len(ran))
            house.close()
    finally:
        apsw.connection_hooks.remove(count)
    assert {name: most for name, (_, most) in counted.items() if most > STATEMENTS[name]} == {}
    assert counted.keys() == STATEMENTS.keys()
