"""The context engine of Herma, and a small one of a user's, keep the same promises; sessions use either."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from herma import Herma
from herma.compression.engine import Compressor, ContextEngine, EngineNeeds
from herma.compression.summary import Compressed, Compression, NotCompressed
from herma.session import Session
from herma.testing.contracts import EngineContract
from herma.types import Message, Usage


class TestCompressor(EngineContract):
    @pytest.fixture
    def engine(self, needs: EngineNeeds) -> ContextEngine:
        return Compressor(needs)


class LastOnes:
    """Keeps the newest messages and says how many were left out: the smallest engine that is of any use."""

    name = "last ones"

    def __init__(self, needs: EngineNeeds) -> None:
        self.most = needs.window // 2
        self.count = needs.counter.count
        self.heard: list[tuple[str, ...]] = []
        MADE.append(self)

    def on_session_start(self, session_id: str, *, boundary_reason: str, old_session_id: str = "") -> None:
        self.heard.append(("start", session_id, boundary_reason, old_session_id))

    def on_session_end(self, session_id: str, messages: Sequence[Message]) -> None:
        self.heard.append(("end", session_id, str(len(messages))))

    def on_reset(self) -> None:
        self.heard.append(("reset",))

    def update_from_response(self, usage: Usage) -> None:
        self.heard.append(("usage", str(usage.input > 0)))

    def should_compress(self, prompt_tokens: int) -> bool:
        return prompt_tokens > self.most

    def compress(
        self,
        messages: Sequence[Message],
        *,
        current_tokens: int,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Compression:
        asked = max((at for at, message in enumerate(messages) if message.role == "user"), default=0)
        if asked < 2:
            return NotCompressed("There is nothing to leave out.")
        note = Message("user", f"[{asked} earlier messages were left out.]\n\n{messages[asked].content}")
        kept = (note, *messages[asked + 1 :])
        after = sum(self.count(str(message.content)) for message in kept)
        return Compressed(kept, "extract", current_tokens, min(after, current_tokens - 1), asked)


MADE: list[LastOnes] = []


class TestAUsersEngine(EngineContract):
    @pytest.fixture
    def engine(self, needs: EngineNeeds) -> ContextEngine:
        return LastOnes(needs)


# ── in sessions ──


class Fails(LastOnes):
    def compress(self, messages: Sequence[Message], **_: object) -> Compression:
        raise RuntimeError(f"no idea what to do with {len(messages)}")


class Forgets(LastOnes):
    def compress(self, messages: Sequence[Message], *, current_tokens: int, **_: object) -> Compression:
        return Compressed((Message("user", "Forget it."),), "extract", current_tokens, 5, len(messages))


def talk(session: Session, turns: int) -> None:
    for turn in range(turns):
        session.before_model(f"Step {turn}. " + "word " * 200)
        session.after_model("Done. " + "word " * 200)


def flags(name: str) -> dict[str, object]:
    return {"context.window": 12_000, "context.engine": f"{__name__}:{name}"}


def test_a_users_engine_takes_the_place_of_ours(home: Path) -> None:
    with Herma.open(home, flags=flags("LastOnes")) as h:
        session = h.session()
        engine = MADE[-1]
        first = session.id
        talk(session, 15)
        done = session.last_compression
        assert isinstance(done, Compressed)
        assert session.messages[0].content.startswith("[")  # type: ignore[union-attr]
        session.reload()
        session.before_model("go on")
        session.after_model("ok")
        last = session.id
        session.reset().close()
        heard = engine.heard
        assert heard[0] == ("start", first, "new", "")
        assert ("usage", "True") in heard
        at = next(at for at, entry in enumerate(heard) if entry[2:3] == ("compression",))
        assert heard[at - 1][:2] == ("end", first)
        assert heard[at][3] == first
        assert any(entry[0] == "start" and entry[2] == "reload" for entry in heard)
        assert heard[-2][:2] == ("end", last)
        assert heard[-1] == ("reset",)
        with h.session(resume=last):
            assert MADE[-1].heard == [("start", last, "resume", "")]


@pytest.mark.parametrize(("name", "why"), [("Fails", "no idea what to do"), ("Forgets", "last request is not in it")])
def test_one_that_fails_costs_nothing(home: Path, name: str, why: str) -> None:
    with Herma.open(home, flags=flags(name)) as h, h.session() as session:
        with pytest.warns(UserWarning, match="context engine"):
            talk(session, 15)
        assert len(session.messages) == 30
        assert any(why in warning for warning in session.warnings)
        left = session.compress()
        assert isinstance(left, NotCompressed)
        assert why in left.reason


@pytest.mark.parametrize("name", ["no.such.module:Engine", "json:loads_not", "json", "json:JSONDecoder", ":"])
def test_one_that_cannot_be_made_keeps_nobody_from_talking(home: Path, name: str) -> None:
    with Herma.open(home, flags={"context.window": 12_000, "context.engine": name}) as h, h.session() as session:
        talk(session, 15)
        (warning,) = session.warnings
        assert name in warning
        assert isinstance(session.compress(), NotCompressed)


def test_the_doctor_says_that_a_class_can_be_loaded(home: Path) -> None:
    with Herma.open(home, flags={"context.engine": f"{__name__}:LastOnes"}) as h:
        assert any("LastOnes can be loaded." in check.sentence for check in h.doctor().checks)


def test_a_class_that_lacks_something_is_not_used(home: Path) -> None:
    (home / "config.yaml").write_text(f"context: {{engine: '{__name__}:Lacks'}}")
    with Herma.open(home) as h, h.session(source="cli") as s:
        s.before_model("hello")
        s.after_model("hi")
        done = s.compress()
    assert isinstance(done, NotCompressed)
    assert "has no should_compress, compress" in done.reason


class Lacks:
    name = "lacks"

    def __init__(self, needs: EngineNeeds) -> None:
        del needs


def test_the_doctor_says_what_a_class_lacks(home: Path) -> None:
    with Herma.open(home, flags={"context.engine": "json:JSONDecoder"}) as h:
        assert any("JSONDecoder has no should_compress" in check.sentence for check in h.doctor().checks)
