"""The external memory of sessions: found by its name, guarded, and invited to each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herma.tools.registry import Json, Tool, ToolContext
from herma.turn.company import Company, Invite
from herma.types import SessionView
from herma.wiring.ground import Ground
from herma.wiring.troubles import written_down

if TYPE_CHECKING:
    from herma.providers.roster import Providers
    from herma.providers.seat import Seat


def providers(ground: Ground) -> Providers:
    from herma.providers.roster import Providers
    from herma.providers.seat import Deadlines

    options = ground.settings.providers
    return Providers(
        ground.home,
        ground.settings.memory.provider,
        profile=ground.settings.profile,
        deadlines=Deadlines(options.timeout, options.tool_timeout, options.drain),
        failures=options.failures,
        pause=options.pause,
        shown=written_down(ground),
        alive=ground.alive,
    )


def with_provider(ground: Ground, roster: Callable[[], Providers], reserved: Callable[[], Sequence[str]]) -> Invite:
    """Invites the configured provider; where none is configured, nothing is loaded. `reserved`: names of our tools."""

    def invite(view: SessionView, rehearsal: bool) -> Company:
        if rehearsal or not ground.settings.memory.provider.strip():
            return Company()
        seat, warnings = roster().seat(view, reserved())
        watchers = [roster().watcher()]
        if seat is None:
            return Company(watchers, warnings=warnings)
        return Company([seat, *watchers], [seat], [_tool(seat, schema) for schema in seat.tools], warnings)

    return invite


def _tool(seat: Seat, schema: Json) -> Tool:
    name = schema["name"]

    def run(arguments: Json, context: ToolContext) -> Json:  # noqa: ARG001
        return seat.call_tool(name, arguments)

    return Tool(name, schema["description"], schema["parameters"], run)
