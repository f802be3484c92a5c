"""The meter of a home's background work, and what it has written down."""

from __future__ import annotations

from herma.reflect.spend import Meter, PriceOf, Refused, read_caps
from herma.reflect.spend_history import DAY, SpendHistory, Stopped, history
from herma.store.sqlite.spend import SqliteSpend
from herma.store.trouble_log import Noted, TroubleLog
from herma.wiring.ground import Ground


def meter(ground: Ground, price_of: PriceOf) -> Meter:
    spend = ground.settings.spend
    caps = read_caps(spend.daily_usd, spend.daily_tokens, spend.by_purpose)
    log = TroubleLog(ground.home, "spending")

    def stopped(at: float, refused: Refused) -> None:
        if refused.limit != "off":  # who switched it off knows
            log.add(Noted(at, refused.purpose, refused.limit, f"{refused.notice} {refused.hint}"))

    return Meter(SqliteSpend(ground.database), caps, price_of=price_of, clock=ground.clock, stopped=stopped)


def spending_history(ground: Ground, *, days: int, calls: int) -> SpendHistory:
    now = ground.clock()
    noted = TroubleLog(ground.home, "spending").since(now - days * DAY)
    stopped = [Stopped(one.at, one.guest, one.why) for one in noted]
    return history(SqliteSpend(ground.database), stopped, now, days=days, calls=calls)
