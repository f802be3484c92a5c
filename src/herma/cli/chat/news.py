"""What happened in the background since the last look, each thing told once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from herma.cli.sessions.wording import count, one_line
from herma.curated.entries import parse
from herma.reflect.tidying import PREFIX
from herma.types import Scope, Who

if TYPE_CHECKING:
    from herma.app import Herma

_MOST = 20
"""Changes that are looked at."""
_NAMES = {"memory": "MEMORY.md", "user": "USER.md"}


class News:
    """What others write into memory, what waits for a decision, and when background work has used up its day."""

    def __init__(self, h: Herma) -> None:
        self._h = h
        self._seen: int | None = None
        self._waiting: int | None = None
        self._capped = False

    def look(self, scope: Scope | None, session: str = "") -> list[str]:
        """News as lines. The first look only remembers what there is. `session` is the one whose own tool calls are
        shown already.
        """
        return [*self._changes(scope, session), *self._pending(), *self._spending()]

    def skip(self, scope: Scope | None) -> None:
        """What a person has just done is no news to them."""
        self._changes(scope, "")
        self._pending()

    def _changes(self, scope: Scope | None, session: str) -> list[str]:
        changes = self._h.memory.history(scope=scope, limit=_MOST)
        newest = max((change.id for change in changes), default=0)
        seen, self._seen = self._seen, max(newest, self._seen or 0)
        if seen is None:
            return []
        lines = []
        for change in sorted(changes, key=lambda one: one.id):
            own = change.author.session == session and change.author.who is Who.TOOL
            if change.id > seen and not own:
                tidied = change.reason.removeprefix(PREFIX) if change.author.who is Who.TIDY else ""
                lines.append(_told(_NAMES[change.target], change.before, change.after, tidied))
        return lines

    def _pending(self) -> list[str]:
        waiting = len(self._h.memory.pending())
        before, self._waiting = self._waiting, waiting
        if before is None or waiting <= before:
            return []
        wait = "waits" if waiting == 1 else "wait"
        return [f"{count(waiting, 'write')} to memory {wait} for your decision: /memory pending"]

    def _spending(self) -> list[str]:
        if self._capped or self._h.models.endpoint("auxiliary") is None:
            return []
        report = self._h.models.spending()
        cap, spent = report.caps.all, report.total_today
        used_up = (cap.tokens is not None and spent.tokens >= cap.tokens) or (
            cap.usd is not None and spent.usd >= cap.usd
        )
        if report.caps.off or not spent.calls or not used_up:
            return []
        self._capped = True
        return ["Background work has used up what it may spend today (spend.daily_usd, spend.daily_tokens): /cost"]


def _told(name: str, before: str, after: str, tidied: str = "") -> str:
    """What a change did: the entries that came, else those that went. `tidied` is what tidying says about it."""
    old, new = parse(before), parse(after)
    came = [entry for entry in new if entry not in old]
    gone = [entry for entry in old if entry not in new]
    if tidied:
        what = one_line("; ".join(came or gone), 160)
        return f"Tidied {name}, {tidied.rstrip('.')}: {what} (/memory undo takes it back)"
    if came:
        return f"Saved to {name}: {one_line('; '.join(came), 160)}"
    return f"Taken out of {name}: {one_line('; '.join(gone), 160)}"
