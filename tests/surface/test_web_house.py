"""What stands behind the pages: one opened home for many threads, and errors that are told."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from herma import Add, Herma
from herma.doctor.checks import diagnose
from herma.errors import StoreError, UsageError
from herma.web.access import Codes, answer, home_token
from herma.web.app import House, Threads
from herma.web.pages import PAGES


@pytest.fixture
def house(home: Path) -> House:
    return House(home, lambda: Herma.open(home))


def test_one_memory_for_all_and_another_when_the_configuration_changes(house: House, home: Path) -> None:
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


def test_a_look_that_is_under_way_is_shared(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_an_error_of_our_own_is_told_without_its_insides(house: House, caplog: pytest.LogCaptureFixture) -> None:
    def fails(_: House) -> object:
        raise RuntimeError("inside")

    page = replace(PAGES[0], gather=fails)
    with caplog.at_level(logging.ERROR, "herma.web"):
        shown, told = answer(house, page, "/"), answer(house, page, "/api/overview")
    assert (shown.status_code, told.status_code) == (500, 500)
    for response in (shown, told):
        text = bytes(response.body).decode()
        assert "Internal error: RuntimeError" in text
        assert "inside" not in text
        assert "Traceback" not in text
    assert len(caplog.records) == 2
    assert all("RuntimeError: inside" in record.getMessage() for record in caplog.records)


def test_an_error_of_the_store_is_a_page_with_the_doctor(house: House) -> None:
    def fails(_: House) -> object:
        raise StoreError("The disk <b>says</b> no.", hint="Ask again.")

    page = replace(PAGES[0], gather=fails)
    text = bytes(answer(house, page, "/").body).decode()
    assert "The disk &lt;b&gt;says&lt;/b&gt; no." in text
    assert "Ask again." in text
    assert "What the doctor says" in text
    house.close()


def test_work_beside_the_loop_comes_back_or_raises_and_can_be_left() -> None:
    gate = threading.Event()

    async def trial() -> None:
        threads = Threads(most=2)
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


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="nothing is closed to root")
def test_a_home_that_cannot_be_written_has_a_token_for_now(home: Path) -> None:
    home.chmod(0o500)
    token = home_token(home)
    home.chmod(0o700)
    assert "cannot be written" in token.note
    assert list(home.iterdir()) == []


def test_a_token_that_cannot_be_kept_holds_for_now(home: Path) -> None:
    (home / "web.token").mkdir()  # stands in the way, for root too
    token = home_token(home)
    assert len(token.value) >= 32
    assert "until this server ends" in token.note


def test_a_token_is_not_written_through_a_link(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    (home / "web.token").symlink_to(target)
    token = home_token(home)
    assert target.read_text() == "mine"
    assert (home / "web.token").read_text().strip() == token.value


def test_looking_changes_nothing_that_is_remembered(house: House, home: Path) -> None:
    with house.opened() as h:
        h.memory.apply("memory", Add("Tea is in the cupboard."))
    before = {path: path.read_bytes() for path in (home / "memories").iterdir()}
    rows = _rows(house)
    for page in PAGES:
        page.show(page.gather(house))
        page.tell(page.gather(house))
    assert {path: path.read_bytes() for path in (home / "memories").iterdir()} == before
    assert _rows(house) == rows
    house.close()


def _rows(house: House) -> tuple[int, int]:
    with house.opened() as h:
        return len(h.memory.history()), h.transcripts.stats().sessions
