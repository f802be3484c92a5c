"""Looking back at conversations: `h.reviews`.

After a reply, at the end of a session, and where an endless chat takes a turn. Always in the background, never while a
turn runs, one process at a time, and written down: what was due and not done is made up for by whoever comes next.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from herma.errors import HermaError, ModelCancelled, SpendRefused, UsageError
from herma.jobs.worker import Worker, WorkerHealth
from herma.parts import part
from herma.reflect.book import Book
from herma.reflect.cadence import Due
from herma.reflect.needs import Needs, Policy
from herma.reflect.pauses import at_a_persons_wish
from herma.reflect.spend import local_day
from herma.types import Review, ReviewKind, ReviewState, SessionView

if TYPE_CHECKING:
    from herma.reflect.passes import Passes

MOST_TRIES = 3
"""How often one look back is begun at most, crashes and new turns included."""
_GRACE = 30.0
"""Seconds beyond its deadline for which a review counts as running."""
_PRUNED_EVERY = 50
"""After so many reviews it is looked what of the old ones can go."""
_DAY = 86_400.0
_AT_ONCE = 2
"""How many that were left undone are made up for at a time."""
URGENT, SOON, LATER, SOMETIME = range(4)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class ReviewStatus:
    """How looking back stands."""

    enabled: bool
    model: str
    """Its name; empty where none is set, and then `without` says what one would add."""
    without: str
    policy: Policy
    owed: int
    health: WorkerHealth
    last: Review | None


class Reviews:
    """One per opened memory. Nothing happens before the first review is due."""

    def __init__(self, needs: Needs, policy: Policy) -> None:
        self._needs = needs
        self.policy = policy
        self._worker = Worker("herma: looking back", failed=needs.failed)
        self._hurries: set[threading.Event] = set()
        self._told = ""

    @part
    def _passes(self) -> Passes:
        """How it is done; made when something is due."""
        from herma.reflect.passes import Passes

        return Passes(self._needs, self.policy)

    # ── asked by sessions ──

    @property
    def has_model(self) -> bool:
        return self.policy.enabled and self._needs.model("review") is not None

    def after_turn(self, view: SessionView, what: Due, tell: Tell, ended: Callable[[], None]) -> None:
        """Look back at the conversation so far. `ended` is told when that was done, or cannot be done; not when a new
        turn was quicker."""

        def work(cancel: threading.Event) -> None:
            stopped = False
            try:
                done = self._run(
                    self._review(view, "turn", _why(what)),
                    lambda book: self._passes.turn(view, what, book, cancel),
                    tell,
                )
                stopped = done is not None and done.state == "cancelled"
            finally:
                if not stopped:
                    ended()

        self._submit("looking back after a reply", work, SOON, view.id)

    def remember(self, view: SessionView, what: Due, tell: Tell) -> threading.Event:
        """See to it that what the user asked for is kept. → an event that makes it hurry: then their own words do."""
        hurry = threading.Event()
        owed = self._needs.rows.owe(self._review(view, "remember", "the user asked to remember something"))
        self._hurries.add(hurry)

        def work(_: threading.Event) -> None:
            try:
                self._run(owed, lambda book: self._passes.remember(view, what, book, hurry), tell)
            finally:
                self._hurries.discard(hurry)

        self._submit("remembering what the user asked for", work, URGENT, f"{view.id} remembers")
        return hurry

    def owe(self, view: SessionView, kind: ReviewKind, why: str, last: int, tell: Tell) -> None:
        """Note that a piece of a conversation is to be looked back at as a whole, and do it when there is time."""
        review = replace(self._review(view, kind, why), last_message=last)
        owed = self._needs.rows.owe(review)

        def work(cancel: threading.Event) -> None:
            self._run(owed, lambda book: self._passes.whole(view, owed, book, cancel), tell)

        self._submit(f"looking back at a {kind}", work, LATER, view.id if kind == "boundary" else "")

    def when_idle(self, seconds: float, view: SessionView, then: Callable[[], None]) -> None:
        """Do something when nobody has said anything for so long; a new turn calls it off."""
        self._worker.submit("waiting", lambda _: then(), priority=LATER, owner=_idle(view.id), after=seconds)

    def aside(self, what: str, then: Callable[[], None]) -> None:
        """Do something small in the background."""
        self._worker.submit(what, lambda _: then(), priority=SOON)

    def make_up(self, session: str) -> None:
        """Do what was left undone: because a new turn came, or a program ended too soon or was killed.

        It may be about another user's session, so that nobody is told here; the log has it.
        """

        def work(cancel: threading.Event) -> None:
            for review in self._needs.rows.owed(self._needs.clock(), MOST_TRIES, _AT_ONCE):
                if not cancel.is_set():
                    self._make_up(review, cancel)

        self._submit("making up for what was left undone", work, SOMETIME, session)

    def stop(self, session: str) -> None:
        """Stop what is done on behalf of a session; what must be done is done later."""
        self._worker.cancel(session)
        self._worker.cancel(_idle(session))

    def calm(self, session: str) -> None:
        """A session is over: it is not waited for any more."""
        self._worker.cancel(_idle(session))

    # ── asked by programs ──

    def run(self, session: str) -> Review:
        """Look back at a stored session now, as at its end, and wait for it. Raises what the model raises."""
        self._needs.alive()
        view = self._needs.load(session)
        if view is None or not view.messages:
            raise UsageError(f"There is no session {session!r} to look back at.", hint="herma sessions list")
        model = self._needs.model("memory_update")
        if model is None:
            raise UsageError("Looking back needs a model.", hint=self._needs.why_no_model())
        at_a_persons_wish(model)
        review = self._review(view, "end", "asked for")
        owed = self._needs.rows.owe(review)
        done = self._run(owed, lambda book: self._passes.whole(view, owed, book, threading.Event()), _nobody)
        if done is None:
            raise UsageError("It is being looked back at, or was already.", hint="herma review log")
        return done

    def log(self, limit: int = 20, *, conversation: str | None = None) -> list[Review]:
        """What was looked back at, the newest first."""
        self._needs.alive()
        return list(self._needs.rows.log(max(limit, 0), conversation))

    def get(self, number: int) -> Review | None:
        """One review by its number."""
        self._needs.alive()
        return self._needs.rows.get(number)

    def status(self) -> ReviewStatus:
        """How it stands: which model, what is owed, what came of the last one."""
        self._needs.alive()
        model = self._needs.model("review")
        newest = self._needs.rows.log(1)
        return ReviewStatus(
            self.policy.enabled,
            model.name if model else "",
            "" if model else self._needs.why_no_model(),
            self.policy,
            len(self._needs.rows.owed(self._needs.clock(), MOST_TRIES, 1000)),
            self._worker.health,
            newest[0] if newest else None,
        )

    def wait(self, timeout: float = 60.0) -> bool:
        """Until nothing is being looked back at. → whether that was so in time."""
        return self._worker.wait(timeout)

    def close(self) -> list[str]:
        """Let what is under way end, within `review.drain` seconds. → what was given up; it is made up for later."""
        if not self._worker.wait(self.policy.drain):
            for hurry in list(self._hurries):
                hurry.set()
        return self._worker.close(0.2)

    # ── steps ──

    def _submit(self, what: str, work: Callable[[threading.Event], None], priority: int, owner: str) -> None:
        self._worker.submit(what, work, priority=priority, owner=owner, deadline=self.policy.limits.seconds + 5)

    def _review(self, view: SessionView, kind: ReviewKind, why: str) -> Review:
        covered = self._needs.rows.covered(view.info.conversation)
        ids = [one.id for one in view.messages]
        first = next((number for number in ids if number > covered), ids[0] if ids else 0)
        return Review(view.info.conversation, view.id, kind, why, first, ids[-1] if ids else 0, self._needs.clock())

    def _run(self, review: Review, work: Callable[[Book], None], tell: Tell) -> Review | None:
        """Claim it, do it, and write down how it went. What fails is raised again once that is done."""
        needs = self._needs
        claimed = needs.rows.claim(review, needs.clock(), self.policy.limits.seconds + _GRACE)
        if claimed is None:
            return None
        book, state, error = Book(needs.price_of), "done", None
        try:
            work(book)
        except ModelCancelled:
            state = "cancelled"
        except SpendRefused as exc:
            state = "refused"
            book.refuse_to_spend(f"{exc} {exc.hint}".strip())
        except HermaError as exc:
            state, error = "failed", exc
            book.notice = book.notice if book.gave_up else str(exc)
        finally:
            ended = _ended(claimed, book, state, needs.clock())
            needs.rows.end(ended)
        if book.notice and (state != "failed" or book.gave_up) and not (book.unspent and self._said_today()):
            tell(book.notice)
        if error is not None:
            raise error
        if ended.id % _PRUNED_EVERY == 0 and self.policy.keep_days:
            needs.rows.prune(needs.clock() - self.policy.keep_days * _DAY)
        return ended

    def _said_today(self) -> bool:
        """Whether people were told already that nothing may be spent: the numbers differ, the matter does not."""
        before, self._told = self._told, local_day(self._needs.clock())
        return before == self._told

    def _make_up(self, review: Review, cancel: threading.Event) -> None:
        view = self._needs.load(review.session_id)
        if view is None:
            self._needs.rows.end(replace(review, state="cancelled", notice="The session is gone."))
            return
        view = replace(view, messages=tuple(one for one in view.messages if one.id <= review.last_message))
        if review.kind == "remember":
            from herma.reflect.remember import wanted_in

            if wanted_in(view.messages) is None:
                self._needs.rows.end(replace(review, state="cancelled"))
            else:
                at_once = threading.Event()
                at_once.set()
                self._run(review, lambda book: self._passes.remember(view, Due(), book, at_once), _nobody)
        elif self._needs.model("memory_update") is not None:
            self._run(review, lambda book: self._passes.whole(view, review, book, cancel), _nobody)


def _ended(review: Review, book: Book, state: str, now: float) -> Review:
    """How it went. What should have been looked at as a whole, and was stopped or failed, is due again; not where the
    model's answers made no sense, as they would make none the next time."""
    final: ReviewState = _STATES.get(state, "failed")
    again = review.kind in ("boundary", "end") and final in ("cancelled", "failed") and not book.gave_up
    if again and review.tries < MOST_TRIES:
        final = "due"
    return replace(
        review,
        state=final,
        ended=now,
        model=book.model,
        steps=book.steps,
        usage=book.usage,
        usd=book.usd,
        actions=tuple(book.actions),
        notice=book.notice,
    )


_STATES: Mapping[str, ReviewState] = {"done": "done", "cancelled": "cancelled", "refused": "refused"}


def _why(what: Due) -> str:
    return " and ".join([name for name, on in (("memory", what.memory), ("skills", what.skills)) if on])


def _nobody(notice: str) -> None:
    """Tells nobody."""


def _idle(session: str) -> str:
    return f"{session} is idle"
