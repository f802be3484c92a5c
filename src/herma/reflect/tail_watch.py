"""How curated memory follows a session: what the long tail has for a turn, and tidying after the reply.

A turn that begins stops tidying; nothing is tidied inside a turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from herma.curated import MemoryStore
from herma.errors import StoreError
from herma.ports.observer import LOCAL_DEADLINE, Watcher
from herma.prompt.tokens import estimate
from herma.types import Add, CompletedTurn, SessionView, Staged, TailEntry, TailHit

if TYPE_CHECKING:
    from herma.reflect.tidying import Tidying

HEADING = "Notes kept outside the prompt that may help here:"
TOKENS = 300
"""What one turn may take of the long tail."""
_MEANING = LOCAL_DEADLINE * 0.6
"""Seconds that comparing meanings may take; words alone answer in a few milliseconds."""
_WORKING = ("primary", "cron")
Submit = Callable[[str, Callable[[threading.Event], None], str], None]
"""Do this in the background: what it is, how, and on whose behalf."""


class CuratedWatcher(Watcher):
    """One per session."""

    name = "long tail"
    outside = False
    at_once = True  # words take a few milliseconds; meanings are compared aside, for as long as they may take

    def __init__(
        self,
        memory: Callable[[], MemoryStore],
        tidying: Callable[[], Tidying],
        submit: Submit,
        stop: Callable[[str], object],
        *,
        recalled: int = 3,
        uses: int = 3,
        meaning: Callable[[], bool] = lambda: True,
    ) -> None:
        """`recalled`: entries per turn at most; `uses`: conversations after which one is proposed for the prompt."""
        self._memory = memory
        self._tidying = tidying
        self._submit = submit
        self._stop = stop
        self._most = recalled
        self._uses = uses
        self._meaning = meaning
        self._fresh: list[int] = []
        """Recalled in this turn."""
        self._uncounted: list[int] = []
        """Recalled in turns that were completed; a new turn may have stopped the counting."""

    def turn_began(self, view: SessionView, text: str) -> str:
        self._stop(view.info.conversation)
        self._fresh = []
        if not self._most or view.circumstances.context not in _WORKING or self._memory().tail.is_empty(view.scope):
            return ""
        hits = self._recall(view, text)
        shown = within(hits, TOKENS)
        self._fresh = [hit.entry.id for hit in shown]
        return "\n".join([HEADING, *(f"- {_indented(hit.entry.text)}" for hit in shown)]) if shown else ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:  # noqa: ARG002
        if view.circumstances.context not in _WORKING:
            return
        self._uncounted += self._fresh
        self._fresh = []
        conversation, scope = view.info.conversation, view.scope

        def work(cancel: threading.Event) -> None:
            if recalled := list(self._uncounted):
                used = self._memory().tail.used(recalled, conversation)
                del self._uncounted[: len(recalled)]
                welcome_back(used, self._memory(), self._tidying().policy, self._uses)
            self._tidying().by_itself(scope, cancel)

        self._submit("tidying memory", work, conversation)

    def _recall(self, view: SessionView, text: str) -> Sequence[TailHit]:
        """By words and meaning; by words alone where meaning takes too long, as it does the first time."""
        tail, scope, known = self._memory().tail, view.scope, view.system_prompt
        if not self._meaning():
            return tail.recall(text, scope=scope, known=known, limit=self._most, meaning=False)
        found: list[Sequence[TailHit]] = []

        def compare() -> None:
            try:
                found.append(tail.recall(text, scope=scope, known=known, limit=self._most))
            except StoreError:
                return  # asked again by words, in the thread that may fail

        thread = threading.Thread(target=compare, name="herma: long tail", daemon=True)
        thread.start()
        thread.join(_MEANING)
        return found[0] if found else tail.recall(text, scope=scope, known=known, limit=self._most, meaning=False)


def within(hits: Sequence[TailHit], tokens: int) -> list[TailHit]:
    """The best that fit."""
    shown: list[TailHit] = []
    left = tokens - estimate(HEADING)
    for hit in hits:
        left -= estimate(hit.entry.text) + 2
        if left < 0:
            break
        shown.append(hit)
    return shown


def welcome_back(entries: Sequence[TailEntry], memory: MemoryStore, policy: str, uses: int) -> None:
    """What keeps being recalled belongs into the prompt again: put back where there is room and the settings let it,
    else proposed to a person, once.
    """
    from herma.reflect.tidying import BY_ITSELF, PREFIX  # loaded when tidying is, after a reply

    for entry in entries:
        if policy == "off" or not uses or entry.uses < uses or entry.proposed is not None or not entry.holds:
            continue
        reason = f"{PREFIX}recalled in {entry.uses} conversations"
        if policy == "apply" and _has_room(memory, entry):
            memory.tail.restore(entry.id, author=BY_ITSELF, reason=reason)
            memory.tail.proposed(entry)
            continue
        op = Add(entry.text, entry.category, entry.tags)
        outcome = memory.propose(entry.target, [op], scope=entry.scope, author=BY_ITSELF, reason=reason)
        if isinstance(outcome, Staged):  # else there is no room for it even then; it is tried again
            memory.tail.proposed(entry)


def _has_room(memory: MemoryStore, entry: TailEntry) -> bool:
    """Whether it fits without making the file so full that something would have to leave again."""
    from herma.reflect.tidy_value import FULL

    status = next(one for one in memory.status(scope=entry.scope) if one.target == entry.target)
    return status.used + len(entry.text) + 3 <= FULL * status.limit


def _indented(entry: str) -> str:
    return entry.replace("\n", "\n  ")
