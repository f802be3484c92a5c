"""How sessions are shortened: the engine that the settings name, its models and its lock."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from herma.counting import counter_for
from herma.ports import ChatModel, ContextEngine, EngineNeeds, EngineOptions
from herma.prompt.families import window_of
from herma.providers.guard import Guard, Trouble
from herma.reflect.compress.chosen import OWN, engine_class, is_own
from herma.settings import CompressionSettings
from herma.store.sqlite.compression import SqliteCompression
from herma.store.turns import alone
from herma.transcript import Transcripts
from herma.turn.company import Company, Invite
from herma.turn.compressing import Room
from herma.types import Compression, Message, SessionView, Usage
from herma.wiring.ground import Ground
from herma.wiring.troubles import written_down

if TYPE_CHECKING:
    from herma.reflect.compress.engine import Compressor
    from herma.wiring.models import Models


def with_compression(ground: Ground, kept: Transcripts, models: Callable[[], Models]) -> Invite:
    """In every session: what makes room when its window fills."""
    settings = ground.settings
    options = engine_options(settings.compression)

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal:
            return Company()
        window = window_of(view.model or settings.model.name, settings.context.window)
        counter = counter_for(view.model or None)
        needs = EngineNeeds(
            conversation=view.info.conversation,
            window=window.tokens,
            window_known=window.known,
            counter=counter,
            rows=SqliteCompression(ground.database),
            clock=ground.clock,
            models=lambda: summarisers(models()),
            options=options,
        )
        engine, why_not = made_engine(settings.context.engine, needs, written_down(ground), ground.home)
        room = Room(
            engine,
            hold=_hold(ground),
            gone_on=lambda view: _gone_on(kept, view),
            count=counter.count,
            in_place=settings.compression.in_place,
            automatic=window.known and view.circumstances.context != "review",
            why_not=why_not,
            guessed=not window.known and options.enabled,
        )
        return Company(watchers=[room], room=room)

    return invite


def engine_options(settings: CompressionSettings) -> EngineOptions:
    """`compression.*`."""
    return EngineOptions(
        enabled=settings.enabled,
        threshold=settings.threshold,
        tail=settings.tail,
        head=settings.protect_first,
        on_failure=settings.on_failure,
        deadline=settings.deadline,
    )


def made_engine(
    name: str, needs: EngineNeeds, shown: Callable[[Trouble], None], home: Path
) -> tuple[ContextEngine | None, str]:
    """The engine of a session; or none, and why. A user's that cannot be made never keeps a session from opening."""
    if is_own(name):
        return OwnEngine(needs), ""
    guard = Guard(f"the context engine {name}", shown=shown)
    made = guard.ask("making it", lambda: engine_class(name, home)(needs), None)
    last = guard.health.last
    if made is None:
        why = last.why if last else "it made nothing"
        return None, f"context.engine is {name}, and that cannot be used ({why}); nothing is shortened."
    missing = [
        part
        for part in ("name", "should_compress", "compress", "update_from_response", *_TOLD)
        if not hasattr(made, part)
    ]
    if missing:
        guard.count("making it", f"it has no {missing[0]}")
        return None, f"context.engine is {name}, and that has no {', '.join(missing)}; nothing is shortened."
    return made, ""


class OwnEngine:
    """The compressor, loaded when a conversation first fills its window: most never do."""

    name = OWN

    def __init__(self, needs: EngineNeeds) -> None:
        self._needs = needs
        self._made: Compressor | None = None
        self._threshold = needs.options.threshold * needs.window

    @property
    def held_back(self) -> str:
        return self._made.held_back if self._made else ""

    def on_session_start(self, session_id: str, *, boundary_reason: str, old_session_id: str = "") -> None:
        """The conversation stays the same, and with it what was tried."""

    def on_session_end(self, session_id: str, messages: Sequence[Message]) -> None:
        """Nothing is held."""

    def on_reset(self) -> None:
        self._made = None

    def update_from_response(self, usage: Usage) -> None:
        if self._made:
            self._made.update_from_response(usage)

    def should_compress(self, prompt_tokens: int) -> bool:
        return prompt_tokens >= self._threshold and self._compressor.should_compress(prompt_tokens)

    def compress(
        self,
        messages: Sequence[Message],
        *,
        current_tokens: int,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Compression:
        return self._compressor.compress(
            messages,
            current_tokens=current_tokens,
            focus_topic=focus_topic,
            force=force,
            memory_context=memory_context,
        )

    @property
    def _compressor(self) -> Compressor:
        if self._made is None:
            from herma.reflect.compress.engine import Compressor

            self._made = Compressor.of(self._needs)
        return self._made


_TOLD = ("on_session_start", "on_session_end", "on_reset")


def summarisers(models: Models) -> list[ChatModel]:
    """Who may be asked for a summary: the auxiliary model, then the main one if that is another."""
    auxiliary, main = models.endpoint("auxiliary"), models.endpoint("main")
    asked = [models.get("auxiliary", purpose="compress")] if auxiliary else []
    if main is not None and (auxiliary is None or (main.url, main.name) != (auxiliary.url, auxiliary.name)):
        asked.append(models.get("main", purpose="compress"))
    return [model for model in asked if model is not None]


def _hold(ground: Ground) -> Callable[[str], AbstractContextManager[bool]]:
    return lambda conversation: alone(ground.home, f"compress {conversation}")


def _gone_on(kept: Transcripts, view: SessionView) -> bool:
    """Whether others have shortened the conversation: in another session, or in the same place."""
    if kept.get(view.id) is not None and kept.resume_target(view.id) != view.id:
        return True
    last = kept.around(view.messages[-1].id, 0) if view.messages else []
    return bool(last) and last[0].hidden == "compacted"
