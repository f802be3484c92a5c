"""Values and rows that gate, proposal, remember and review share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, TypeAlias

import apsw

from herma.prompt.ledger import Prices
from herma.review.spending import cost_of
from herma.store.database import Database, insert_returning_id, parsed, queries
from herma.types import CompletedTurn, Message, Reply, Usage

# ---------- types.review
#
# Looking back at conversations: what was looked at, why, and what came of it.

ReviewKind: TypeAlias = Literal["turn", "remember", "boundary", "end"]
"""After a reply; because the user asked that something be remembered; where a long chat took a turn; at the end."""
ReviewState: TypeAlias = Literal["due", "running", "done", "cancelled", "failed", "refused"]
"""`refused`: the day had no money or tokens left for it."""
ReviewWrites: TypeAlias = Literal["apply", "stage"]
"""What becomes of a review's writes: `apply` writes them, `stage` keeps them for a person."""
Divide: TypeAlias = Literal["idle", "day", "topic"]
"""What divides an endless chat: a pause, another day, another topic."""
DIVIDES: tuple[Divide, ...] = ("idle", "day", "topic")
Result: TypeAlias = Literal["applied", "staged", "known", "refused"]


@dataclass(frozen=True, slots=True)
class ReviewAction:
    """One thing that a review wrote, or was kept from writing. `change` and `pending` are numbers of the history and
    of the inbox, by which it is taken back or decided.
    """

    what: str
    """As in `memory add`, `skill create`, `episode`."""
    result: Result
    text: str = ""
    target: str = ""
    why: str = ""
    """Of a refusal: which check, in one word, as `Review.refusals` counts them."""
    said: str = ""
    """The same in a sentence."""
    change: int | None = None
    pending: int | None = None


@dataclass(frozen=True, slots=True)
class Review:
    """One look back at a conversation, from one message to another. Nothing of it is in the transcript."""

    conversation: str
    session_id: str
    kind: ReviewKind
    why: str
    """What made it due, in a few words."""
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
    """What people should know of it."""

    @property
    def refusals(self) -> dict[str, int]:
        """How often each check said no."""
        reasons = [action.why for action in self.actions if action.result == "refused"]
        return {reason: reasons.count(reason) for reason in dict.fromkeys(reasons)}

    @property
    def written(self) -> tuple[ReviewAction, ...]:
        return tuple(action for action in self.actions if action.result in ("applied", "staged"))


# ---------- ports.reviews
#
# Where looking back is written down, for every process of a home.


class ReviewRows(Protocol):
    """One row per review. A review that runs holds a lease: until it ends, no other of its conversation begins."""

    def claim(self, review: Review, now: float, lease: float) -> Review | None:
        """Begin a review: a new one, or one that is due (it has an id).

        → it, now running, with one more try. None where another of the same conversation runs and its lease still
        holds, or where one of the same kind has looked at these messages already. In one transaction.
        """
        ...

    def owe(self, review: Review) -> Review:
        """Note one that is due and not begun; one of the same kind that is due for the conversation is extended."""
        ...

    def end(self, review: Review) -> None:
        """Write down how it went; it runs no longer. One that is `due` again may be claimed once more."""
        ...

    def owed(self, now: float, most_tries: int, limit: int) -> Sequence[Review]:
        """What is due and does not run, oldest first; what was tried too often is given up on the way."""
        ...

    def prune(self, before: float) -> int:
        """Delete what ended before then, wrote nothing, and is not the last of its kind in its conversation.

        → how many. What can be taken back is never deleted.
        """
        ...

    def covered(self, conversation: str) -> int:
        """The last message that a boundary or an end has covered; 0 where there was none."""
        ...

    def log(self, limit: int, conversation: str | None = None) -> Sequence[Review]:
        """The newest first."""
        ...

    def get(self, number: int) -> Review | None: ...


# ---------- reflect.book
#
# What one review does, while it does it: its writes, its refusals, and what it takes.

LONGEST = 600
"""Characters of a text that the log keeps."""


@dataclass(slots=True)
class Book:
    """One per review."""

    price_of: Callable[[str], Prices | None] = lambda _: None
    actions: list[ReviewAction] = field(default_factory=list)
    steps: int = 0
    usage: Usage = field(default_factory=Usage)
    usd: float | None = None
    model: str = ""
    notice: str = ""
    gave_up: bool = False
    """The model's answers cannot be used: trying the same again would cost the same, and come to the same."""

    unspent: bool = False

    def note(self, action: ReviewAction) -> None:
        self.actions.append(action)

    def refuse(self, what: str, why: str, said: str, *, text: str = "", target: str = "") -> None:
        self.note(ReviewAction(what, "refused", text[:LONGEST], target, why, said))

    def answered(self, reply: Reply, name: str) -> None:
        """Count one answer of a model."""
        self.steps += 1
        self.model = name
        self.usage += reply.usage
        cost = cost_of(reply.usage, self.price_of(name))
        if cost is not None:
            self.usd = (self.usd or 0.0) + cost

    def refuse_to_spend(self, why: str) -> None:
        """The model was not asked, as nothing may be spent on it now. People are told that once a day."""
        self.unspent = True
        self.notice = why

    def give_up(self, why: str, besides: str = "") -> None:
        """The pass comes to nothing; people are told why, and what follows from it."""
        self.gave_up = True
        self.notice = " ".join(filter(None, [why, besides]))


# ---------- reflect.cadence
#
# When looking back is due: after so many turns of the user without a memory saved, after so much work with tools.
#
# Pure: counters in, counters out. A resumed session counts on from what its messages show.

MEMORY_TOOL, SKILL_TOOL = "memory", "skill_manage"


@dataclass(frozen=True, slots=True)
class Counters:
    """Since memory, or a skill, was last written or reviewed."""

    turns: int = 0
    """Turns of the user."""
    iterations: int = 0
    """Steps in which the model called tools."""


@dataclass(frozen=True, slots=True)
class Due:
    """What a review should look for."""

    memory: bool = False
    skills: bool = False

    def __bool__(self) -> bool:
        return self.memory or self.skills


def hydrated(messages: Iterable[Message], every: int) -> Counters:
    """The counters of a conversation that is taken up again: as if it had gone on without a pause."""
    counters = Counters()
    for message in messages:
        if message.role == "user":
            turns = counters.turns + 1
            counters = replace(counters, turns=turns % every if every else turns)
        elif message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def after(counters: Counters, turn: CompletedTurn) -> Counters:
    """One turn later. A write of the model's own in it begins the count anew."""
    counters = replace(counters, turns=counters.turns + 1)
    for message in turn.messages:
        if message.role == "assistant":
            counters = _worked(counters, message)
    return counters


def due(counters: Counters, memory_every: int, skills_every: int) -> Due:
    """What is due; an interval of 0 means never."""
    return Due(
        memory=0 < memory_every <= counters.turns,
        skills=0 < skills_every <= counters.iterations,
    )


def reviewed(counters: Counters, what: Due) -> Counters:
    """The counters once a review has begun, whatever comes of it: a failing one must not be tried every turn."""
    return Counters(0 if what.memory else counters.turns, 0 if what.skills else counters.iterations)


def calls(message: Message, name: str) -> bool:
    return any(_name(call) == name for call in message.tool_calls)


def _worked(counters: Counters, message: Message) -> Counters:
    if calls(message, MEMORY_TOOL):
        counters = replace(counters, turns=0)
    if calls(message, SKILL_TOOL):
        return replace(counters, iterations=0)
    return replace(counters, iterations=counters.iterations + bool(message.tool_calls))


def _name(call: Mapping[str, Any]) -> str:
    function = call.get("function")
    return str(function.get("name", "")) if isinstance(function, Mapping) else ""


# ---------- store.sqlite.reviews
#
# Looking back at conversations in `herma.db`: implements `ReviewRows`.


class SqliteReviews:
    """Rows of the table `reviews`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._sql = queries("reviews")

    def claim(self, review: Review, now: float, lease: float) -> Review | None:
        known = {name: getattr(review, name) for name in ("id", "conversation", "kind", "last_message")}

        def work(connection: apsw.Connection) -> Review | None:
            if connection.execute(self._sql["running"], {**known, "now": now}).fetchone() is not None:
                return None
            if connection.execute(self._sql["looked_at"], known).fetchone() is not None:
                if review.id:  # nobody needs to try it again
                    connection.execute(self._sql["overtaken"], {"id": review.id, "now": now})
                return None
            if review.id:
                begun: Any = connection.execute(
                    self._sql["begin"], {"id": review.id, "now": now, "lease": now + lease}
                ).fetchall()
                return replace(review, state="running", tries=begun[0][0], begun=now) if begun else None
            claimed = replace(review, state="running", tries=1, begun=now)
            number = insert_returning_id(connection, self._sql["insert"], _bindings(claimed, now + lease))
            return replace(claimed, id=number)

        return self._db.write(work)

    def owe(self, review: Review) -> Review:
        def work(connection: apsw.Connection) -> Review:
            bindings = _bindings(replace(review, state="due"), 0.0)
            known: Any = connection.execute(self._sql["due_of"], bindings).fetchone()
            if known is not None:
                connection.execute(self._sql["extend"], {**bindings, "id": known[0]})
                return replace(review, id=known[0], state="due")
            return replace(review, id=insert_returning_id(connection, self._sql["insert"], bindings), state="due")

        return self._db.write(work)

    def proposed_skills(self, profile: str, now: float) -> int:
        """How many changes of skills reviews have proposed that wait for a person."""
        counted = self._db.rows(self._sql["proposed_skills"], {"profile": profile, "now": now})
        return int(counted[0][0]) if counted else 0  # there is no database yet

    def end(self, review: Review) -> None:
        bindings = {
            "id": review.id,
            "state": review.state,
            "ended": review.ended,
            "model": review.model,
            "steps": review.steps,
            "usd": review.usd,
            "notice": review.notice,
            "actions": json.dumps([asdict(action) for action in review.actions], ensure_ascii=True),
            **{name: value for name, value in asdict(review.usage).items() if name != "cost_usd"},
        }
        self._db.write(lambda connection: connection.execute(self._sql["end"], bindings) and None)

    def owed(self, now: float, most_tries: int, limit: int) -> Sequence[Review]:
        if not self._db.rows(self._sql["owed"], {"now": now, "limit": 1}):
            return []  # as a rule: no write only to look
        self._db.write(
            lambda connection: connection.execute(self._sql["give_up"], {"now": now, "most": most_tries}) and None
        )
        return self._read(self._db.rows(self._sql["owed"], {"now": now, "limit": limit}))

    def prune(self, before: float) -> int:
        def work(connection: apsw.Connection) -> int:
            connection.execute(self._sql["prune"], {"before": before})
            return connection.changes()

        return self._db.write(work)

    def covered(self, conversation: str) -> int:
        rows = self._db.rows(self._sql["covered"], {"conversation": conversation})
        return int(rows[0][0]) if rows else 0

    def log(self, limit: int, conversation: str | None = None) -> Sequence[Review]:
        query = "newest" if conversation is None else "newest_of"
        return self._read(self._db.rows(self._sql[query], {"limit": limit, "conversation": conversation}))[::-1]

    def get(self, number: int) -> Review | None:
        found = self._read([(number,)])
        return found[0] if found else None

    def _read(self, ids: Sequence[tuple[Any, ...]]) -> list[Review]:
        if not ids:
            return []
        return [_review(row) for row in self._db.rows(self._sql["by_id"], {"ids": json.dumps([one for (one,) in ids])})]


def _bindings(review: Review, lease: float) -> dict[str, Any]:
    names = (
        *("conversation", "session_id", "kind", "why", "first_message", "last_message", "at", "state", "tries"),
        "begun",
    )
    return {**{name: getattr(review, name) for name in names}, "lease": lease}


def _review(row: Sequence[Any]) -> Review:
    (id_, conversation, session, kind, why, first, last, at, state, tries, begun, ended, model, steps) = row[:14]
    *taken, usd, actions, notice = row[14:]
    return Review(
        id=id_,
        conversation=conversation,
        session_id=session,
        kind=kind,
        why=why,
        first_message=first,
        last_message=last,
        at=at,
        state=state,
        tries=tries,
        begun=begun,
        ended=ended,
        model=model,
        steps=steps,
        usage=Usage(*taken),
        usd=usd,
        actions=tuple(ReviewAction(**action) for action in parsed(actions)),
        notice=notice,
    )
