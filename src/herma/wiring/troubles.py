"""What goes wrong with guests and with parts that follow sessions is written down, for the doctor."""

from __future__ import annotations

from collections.abc import Callable

from herma.providers.guard import Trouble
from herma.store.trouble_log import Noted, TroubleLog
from herma.wiring.ground import Ground


def written_down(ground: Ground) -> Callable[[Trouble], None]:
    log = TroubleLog(ground.home)

    def shown(trouble: Trouble) -> None:
        log.add(Noted(ground.clock(), trouble.guest, trouble.what, trouble.why))

    return shown
