"""Define a review and when one is due, and keep its rows in the database."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from herma.models.models import cost_of
from herma.store.database import Database, DatabaseConnection, parsed
from herma.types import CompletedTurn, Message, Reply, Usage

if TYPE_CHECKING:
    from herma.prompt.ledger import Prices

ReviewKind: TypeAlias = Literal["turn", "remember", "boundary", "end"]
"""After a reply; because the user asked to remember something; where a long chat was split; at the end."""
ReviewState: TypeAlias = Literal["due", "running", "done", "cancelled", "failed", "refused"]
"""`refused`: the daily spending cap had nothing left for it."""
ReviewWrites: TypeAlias = Literal["apply", "stage"]
"""`apply` writes what a review keeps, `stage` proposes it in the inbox."""
SplitReason: TypeAlias = Literal["idle", "day", "topic"]
"""Reasons to split a long chat: a pause, another day, another topic."""
SPLIT_REASONS: tuple[SplitReason, ...] = ("idle", "day", "topic")
Result: TypeAlias = Literal["applied", "staged", "known", "refused"]
LONGEST = 600
"""Characters of a text that the record keeps."""
MEMORY_TOOL, SKILL_TOOL = "memory", "skill_manage"


@dataclass(frozen=True, slots=True)
class ReviewAction:
    """One thing that a review wrote or was refused. `change` is its number in the history, `pending` in the inbox."""

    what: str
    """As in `memory add`, `skill create`, `episode`."""
    result: Result
    text: str = ""
    target: str = ""
    why: str = ""
    """The check that refused it, in one word, as `Review.refusals` counts them."""
    said: str = ""
    """The reason in a sentence."""
    change: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """One review of a conversation, from one message to another. Nothing of it is in the transcript."""

    conversation: str
    session_id: str
    kind: ReviewKind
    why: str
    """Why it was due, in a few words."""
    first_message: int
    last_message: int
    at: float
    id: int = 0
    state: ReviewState = "due"
    tries: int = 0
    begun: float | None = None
    ended: float | None = None
    model: str = ""
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    actions: tuple[ReviewAction, ...] = ()
    notice: str = ""
    """A sentence for people."""

    @property
    def refusals(self) -> dict[str, int]:
        """Return how often each check refused something."""
        reasons = [action.why for action in self.actions if action.result == "refused"]
        return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}

    @property
    def written(self) -> tuple[ReviewAction, ...]:
        """Return what it wrote or proposed."""
        return tuple(action for action in self.actions if action.result in ("applied", "staged"))


class ReviewRecord:
    """The record of a running review: its writes, its refusals and its cost."""

    def __init__(self, price_of: Callable[[str], Prices | None]) -> None:
        self.actions: list[ReviewAction] = []
        self.steps = 0
        self.usage = Usage()
        self.usd: float | None = None
        self.model = ""
        self.notice = ""
        self.gave_up = False
        """The model's answers cannot be used: trying again would cost the same and end the same."""
        self.unspent = False
        """The spending cap refused it."""
        self._price_of = price_of

    def note(self, action: ReviewAction) -> None:
        self.actions.append(action)

    def refuse(self, what: str, why: str, said: str, *, text: str = "", target: str = "") -> None:
        self.note(ReviewAction(what, "refused", text[:LONGEST], target, why, said))

    def answered(self, reply: Reply, name: str) -> None:
        """Count one answer of a model."""
        self.steps += 1
        self.model = name
        self.usage += reply.usage
        cost = cost_of(reply.usage, self._price_of(name))
        if cost is not None:
            self.usd = (self.usd or 0.0) + cost

    def refuse_to_spend(self, why: str) -> None:
        """Record that the model was not asked because nothing may be spent on it now."""
        self.unspent = True
        self.notice = why

    def give_up(self, why: str, besides: str = "") -> None:
        """Record that the review came to nothing, and why."""
        self.gave_up = True
        self.notice = " ".join(filter(None, [why, besides]))


# ── when a review is due: counters in, counters out (pure) ───────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Counters:
    """The activity since memory, or a skill, was last written or reviewed."""

    turns: int = 0
    """Turns of the user."""
    iterations: int = 0
    """Steps in which the model called tools."""


@dataclass(frozen=True, slots=True)
class Due:
    """The subjects of a review."""

    memory: bool = False
    skills: bool = False

    def __bool__(self) -> bool:
        return self.memory or self.skills


def hydrated(messages: Iterable[Message], every: int) -> Counters:
    """Return the counters of a resumed conversation, as if it had never paused."""
    counters = Counters()
    for message in messages:
        if message.role == "user":
            turns = counters.turns + 1
            counters = replace(counters, turns=turns % every if every else turns)
        elif message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def after(counters: Counters, turn: CompletedTurn) -> Counters:
    """Return the counters after a turn. A write by the model itself restarts the count."""
    counters = replace(counters, turns=counters.turns + 1)
    for message in turn.messages:
        if message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def due(counters: Counters, memory_every: int, skills_every: int) -> Due:
    """Return what is due; an interval of 0 means never."""
    return Due(memory=0 < memory_every <= counters.turns, skills=0 < skills_every <= counters.iterations)


def reviewed(counters: Counters, what: Due) -> Counters:
    """Return the counters once a review has begun, whatever its result: a failing one must not be tried every turn."""
    return Counters(0 if what.memory else counters.turns, 0 if what.skills else counters.iterations)


def _worked(counters: Counters, message: Message) -> Counters:
    functions = [call.get("function") for call in message.tool_calls]
    names = {function.get("name") for function in functions if isinstance(function, Mapping)}
    if MEMORY_TOOL in names:
        counters = replace(counters, turns=0)
    return replace(counters, iterations=0 if SKILL_TOOL in names else counters.iterations + bool(functions))


class ReviewRows:
    """Rows of the table `reviews`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = database.queries("review.rows")

    def claim(self, review: Review, now: float, lease: float) -> Review | None:
        """Begin a review, a new one or one that is due (it has an id), in one transaction. → it, now running.

        None if another review of the conversation runs and its lease holds, or if one of the same kind has covered
        these messages already.
        """
        known = {name: getattr(review, name) for name in ("id", "conversation", "kind", "last_message")}

        def work(connection: DatabaseConnection) -> Review | None:
            if connection.row(self._sql["running"], {**known, "now": now}) is not None:
                return None
            if connection.row(self._sql["looked_at"], known) is not None:
                if review.id:  # it need not be tried again
                    connection.run(self._sql["overtaken"], {"id": review.id, "now": now})
                return None
            if review.id:
                begun = connection.rows(self._sql["begin"], {"id": review.id, "now": now, "lease": now + lease})
                return replace(review, state="running", tries=begun[0][0], begun=now) if begun else None
            claimed = replace(review, state="running", tries=1, begun=now)
            number = connection.insert(self._sql["insert"], _bindings(claimed, now + lease))
            return replace(claimed, id=number)

        return self._db.write(work)

    def owe(self, review: Review) -> Review:
        """Record a review as due; one of the same kind that is due for the conversation is extended."""

        def work(connection: DatabaseConnection) -> Review:
            bindings = _bindings(replace(review, state="due"), 0.0)
            known: Any = connection.row(self._sql["due_of"], bindings)
            if known is not None:
                connection.run(self._sql["extend"], {**bindings, "id": known[0]})
                return replace(review, id=known[0], state="due")
            return replace(review, id=connection.insert(self._sql["insert"], bindings), state="due")

        return self._db.write(work)

    def proposed_skills(self, profile: str, now: float) -> int:
        """Count the changes of skills that reviews proposed and that wait for a person."""
        counted = self._db.rows(self._sql["proposed_skills"], {"profile": profile, "now": now})
        return int(counted[0][0]) if counted else 0  # there is no database yet

    def end(self, review: Review) -> None:
        """Store how a review ended. One that is `due` again may be claimed once more."""
        bindings = {
            "id": review.id,
            "state": review.state,
            "tries": review.tries,
            "ended": review.ended,
            "model": review.model,
            "steps": review.steps,
            "usd": review.usd,
            "notice": review.notice,
            "actions": json.dumps([asdict(action) for action in review.actions], ensure_ascii=True),
            **{name: value for name, value in asdict(review.usage).items() if name != "cost_usd"},
        }
        self._db.run(self._sql["end"], bindings)

    def owed(self, now: float, most_tries: int, limit: int) -> Sequence[Review]:
        """Return due work that does not run, oldest first; give up work that was tried too often."""
        if not self._db.rows(self._sql["owed"], {"now": now, "limit": 1}):
            return []  # the usual case: do not write only to look
        self._db.run(self._sql["give_up"], {"now": now, "most": most_tries})
        return self._read(self._db.rows(self._sql["owed"], {"now": now, "limit": limit}))

    def prune(self, before: float) -> int:
        """Delete reviews that ended before then, wrote nothing, and are not the last of their kind. → how many."""
        return self._db.run(self._sql["prune"], {"before": before})

    def covered(self, conversation: str) -> int:
        """Return the last message that a review of a part or of the whole session covered; 0 if there was none."""
        rows = self._db.rows(self._sql["covered"], {"conversation": conversation})
        return int(rows[0][0]) if rows else 0

    def log(self, limit: int, conversation: str | None = None) -> Sequence[Review]:
        """Return the newest reviews first."""
        query = "newest" if conversation is None else "newest_of"
        return self._read(self._db.rows(self._sql[query], {"limit": limit, "conversation": conversation}))[::-1]

    def get(self, number: int) -> Review | None:
        found = self._read([(number,)])
        return found[0] if found else None

    def _read(self, ids: Sequence[tuple[Any, ...]]) -> list[Review]:
        if not ids:
            return []
        return [_review(row) for row in self._db.rows(self._sql["by_id"], {"ids": [one for (one,) in ids]})]


_COLUMNS = "conversation session_id kind why first_message last_message at state tries begun"
_USAGE = "input output cache_read cache_write reasoning"


def _bindings(review: Review, lease: float) -> dict[str, Any]:
    return {**{name: getattr(review, name) for name in _COLUMNS.split()}, "lease": lease}


def _review(row: Sequence[Any]) -> Review:
    names = f"id {_COLUMNS} ended model steps {_USAGE} usd actions notice".split()
    found = dict(zip(names, row, strict=True))
    usage = Usage(**{name: found.pop(name) for name in _USAGE.split()})
    actions = tuple(ReviewAction(**action) for action in parsed(found.pop("actions")))
    return Review(**found, usage=usage, actions=actions)
