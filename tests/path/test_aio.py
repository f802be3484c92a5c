"""The asynchronous face: the same results, in order, and nothing lost when an await is cancelled."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

import herma
from herma import Add, Applied, aio
from herma.errors import UsageError
from herma.session import Session


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_whole_turn(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h:
            assert h.home == home
            assert isinstance(await h.memory.apply("memory", Add("Tea is in the cupboard.")), Applied)
            assert await h.memory.entries("memory") == ["Tea is in the cupboard."]
            async with h.session(source="cli", title="Kitchen") as s:
                request = await s.before_model("where is the tea?")
                assert request[0] == {"role": "system", "content": s.system_prompt}
                answer = await s.call_tool("memory", {"action": "add", "target": "user", "content": "Likes tea."})
                assert json.loads(answer)["success"] is True
                await s.after_model("In the cupboard.")
                assert "Likes tea." in str((await s.before_model("thanks"))[-1]["content"])
                await s.interrupt("You are")
                assert (await s.working_memory())["conversation"].used > 0
                assert (s.id, s.info.source, len(s.messages), s.warnings) == (s.id, "cli", 4, ())
                assert s.tools == h.tools.schemas()
                assert len(s.prompt_digest) == len(s.tools_digest) == 64
                assert s.snapshot.text in s.system_prompt
                assert s.model == ""
                assert await s.rewind() == "thanks"
                before = s.id
                await s.reload()
                assert s.id != before
            async with h.branch(before) as branch:
                assert len(branch.messages) == 2
            report = await h.search("cupboard")
            assert report.hits
            assert "results" in json.loads(await h.tools.call("session_search", {"query": "tea"}))
            assert (await h.cost()).total.calls == 2
            assert [change.action for change in await h.memory.history()] == ["add", "add"]
            assert isinstance(await h.memory.undo(), Applied)

    run(work())


def test_it_is_opened_as_the_docs_say(home: Path) -> None:
    async def work() -> None:
        async with herma.aio.Herma.open(home, flags={"memory.user_char_limit": 99}) as h:
            assert (h.home, h.settings.memory.user_char_limit) == (home, 99)
            assert isinstance(h, aio.Herma)
            assert await h.model() is None
            async with h.session(source="cli") as s:
                await s.before_model("hello")
                await s.after_model("hi", usage={"prompt_tokens": 9, "completion_tokens": 1})
                with pytest.raises(UsageError, match="usage"):
                    await s.after_model("hi", usage={"tokens": 9})
                assert len(s.messages) == 2
        h = await aio.Herma.open(home)
        assert len(await h.transcripts.list()) == 1
        await h.close()
        with pytest.raises(UsageError):
            await h.search("hello")
        async with aio.open(home) as other:
            assert (await other.search("hello")).hits

    run(work())


def test_errors_come_through_and_leave_the_session_usable(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h:
            s = await h.session()
            with pytest.raises(UsageError):
                await s.before_model()
            await s.before_model("one")
            await s.after_model("ok")
            await s.close()
            await s.close()
            with pytest.raises(UsageError):
                await s.before_model("two")
            with pytest.raises(UsageError):
                async with h.session(resume="nosuch"):
                    pytest.fail("it was not refused")
            failing = h.session()
            inside = await failing.__aenter__()
            await inside.before_model("x")
            await failing.__aexit__(RuntimeError, RuntimeError("mine"), None)
            info = await h.transcripts.get(inside.id)
            assert info is not None
            assert info.end_reason == "error"

    run(work())


def test_calls_of_a_session_keep_their_order(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h, h.session() as s:
            calls: list[Coroutine[Any, Any, Any]] = []
            for number in range(20):
                calls += [s.before_model(f"question {number}"), s.after_model(f"answer {number}")]
            await asyncio.gather(*calls)
            wanted = [f"{kind} {number}" for number in range(20) for kind in ("question", "answer")]
            assert [message.content for message in s.messages] == wanted

    run(work())


def test_sessions_run_beside_each_other(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = threading.Barrier(2, timeout=30)
    real = Session.before_model

    def meets(session: Session, *args: Any, **options: Any) -> Any:
        both.wait()
        return real(session, *args, **options)

    monkeypatch.setattr(Session, "before_model", meets)

    async def work() -> None:
        async with aio.open(home) as h, h.session() as one, h.session() as two:
            first, second = await asyncio.gather(one.before_model("a"), two.before_model("b"))
            assert (first[-1]["content"], second[-1]["content"]) == ("a", "b")
            assert not both.broken, "one waited for the other"

    run(work())


def test_a_cancelled_await_loses_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()
    real = Session.after_model

    def slow(session: Session, *args: Any, **options: Any) -> None:
        begun.set()
        assert go_on.wait(30)
        real(session, *args, **options)

    async def work() -> None:
        async with aio.open(home) as h, h.session() as s:
            await s.before_model("one")
            with monkeypatch.context() as patch:
                patch.setattr(Session, "after_model", slow)
                running = asyncio.create_task(s.after_model("begun"))
                await asyncio.to_thread(begun.wait, 30)
                waiting = asyncio.create_task(s.before_model("never begun"))
                await asyncio.sleep(0)
                for task in (running, waiting):
                    task.cancel()
                    with pytest.raises(asyncio.CancelledError):
                        await task
                go_on.set()
            request = await s.before_model("two")
            assert [message["content"] for message in request[1:]] == ["one", "begun", "two"]
            await s.after_model("fine")
            stored = await h.transcripts.messages(s.id)
            assert [message.content for message in stored] == ["one", "begun", "two", "fine"]

    run(work())


def test_a_session_is_closed_although_nobody_waits(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def slow(session: Session, *args: Any, **options: Any) -> str:
        begun.set()
        assert go_on.wait(30)
        return "{}"

    monkeypatch.setattr(Session, "call_tool", slow)

    async def work() -> None:
        async with aio.open(home) as h:
            s = await h.session()
            await s.before_model("one")
            busy = asyncio.create_task(s.call_tool("memory", {}))
            await asyncio.to_thread(begun.wait, 30)
            closing = asyncio.create_task(s.close())
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            go_on.set()
            await busy
            while (info := await h.transcripts.get(s.id)) is not None and info.end_reason is None:
                await asyncio.sleep(0.01)
            assert info is not None
            assert info.end_reason == "closed"

    run(work())


def test_what_can_be_called_can_be_awaited(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h, h.session() as session:
            parts: list[Any] = [h, session, h.memory, h.memory.archive, h.transcripts, h.tools, h.episodes, h.facts]
            for part in (*parts, h.skills, h.reviews, h.curator, h.index, h.providers):
                for name, kind in vars(type(part._inner)).items():
                    if inspect.isfunction(kind) and not name.startswith("_"):
                        awaited = inspect.iscoroutinefunction(getattr(part, name))
                        assert awaited or name in ("schemas", "view", "session", "branch"), name
            for hidden in ("db", "models", "_threads_", "nonsense"):
                with pytest.raises(AttributeError, match=hidden):
                    getattr(h, hidden)
            assert (await h.tidy(dry_run=True)).dry_run

    asyncio.run(work())


def test_the_types_are_those_of_the_synchronous_classes() -> None:
    script = Path(__file__).parents[2] / "scripts" / "async_types.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_waits_is_decided_and_a_conversation_begins_anew(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h:
            await h.memory.propose("memory", [Add("The port is 8080.")])
            (one,) = await h.memory.pending()
            await h.memory.approve(one.id)
            assert await h.memory.entries("memory") == ["The port is 8080."]
            session = await h.session()
            await session.before_model("hello")
            await session.after_model("Hi.")
            fresh = await session.reset()
            assert "8080" in fresh.system_prompt
            with pytest.raises(UsageError, match="closed"):
                await session.before_model("still there?")
            await fresh.before_model("hello again")
            await fresh.after_model("Hi again.")
            await fresh.close()
            assert (await h.transcripts.stats()).messages == 4

    asyncio.run(work())


def test_former_names_are_awaited_too(home: Path) -> None:
    async def work() -> None:
        async with aio.open(home) as h:
            with pytest.warns(DeprecationWarning, match="now archive"):
                archive: Any = getattr(h.memory, "tail")  # noqa: B009 (the types do not name it)
            assert await archive.search("tea") == []
            with pytest.warns(DeprecationWarning, match="now changes"):
                assert await getattr(h.skills, "history")() == []  # noqa: B009

    run(work())
