"""How sessions are opened: what they are made of, and how their calls are counted."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from herma.curated import MemoryStore
from herma.opener import Metering, Opener
from herma.settings import ContextSettings
from herma.store.sqlite.calls import SqliteCalls
from herma.store.sqlite.sessions import SqliteSessions
from herma.tools import Tools
from herma.transcript import Transcripts
from herma.turn.company import Invite, alone
from herma.turn.window import Budget
from herma.wiring.ground import Ground
from herma.wiring.troubles import written_down

if TYPE_CHECKING:
    from herma.turn.cost import CostReport


def calls(ground: Ground) -> SqliteCalls:
    return SqliteCalls(ground.database)


def opener(
    ground: Ground,
    memory: MemoryStore,
    kept: Transcripts,
    tools: Tools,
    rows: SqliteCalls,
    *,
    written: Callable[[int], None],
    invite: Invite = alone,
) -> Opener:
    settings = ground.settings
    lifetime = settings.prices.cache_minutes * 60.0
    return Opener(
        memory,
        kept,
        tools,
        clock=ground.clock,
        metering=Metering(rows, budget=window_budget(settings.context), cache_lifetime=lifetime),
        model=settings.model.name,
        live_updates=settings.memory.live_updates,
        result_tokens=settings.context.tool_result_tokens,
        written=written,
        invite=invite,
        troubled=written_down(ground),
        news=SqliteSessions(ground.database).news,
    )


def cost_report(
    ground: Ground, rows: SqliteCalls, kept: Transcripts, session: str | None, since: float | None
) -> CostReport:
    from herma.prompt.ledger import Prices
    from herma.turn.cost import report
    from herma.turn.prices import read_prices

    prices = ground.settings.prices
    return report(
        rows,
        kept,
        read_prices(Prices(prices.input, prices.output, prices.cache_read, prices.cache_write), prices.by_model),
        session=session,
        since=since,
        lifetime=prices.cache_minutes * 60.0,
    )


def window_budget(settings: ContextSettings) -> Budget:
    shares = {
        "system": settings.system_share,
        "memory": settings.memory_share,
        "conversation": settings.conversation_share,
        "tools": settings.results_share,
        "reply": settings.reply_share,
    }
    return Budget(settings.window, settings.profile, shares)
