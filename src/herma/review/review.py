"""When to look back, the queue, the passes."""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from herma.errors import HermaError, ModelCancelled, ModelError, SpendRefused, UsageError
from herma.features import Watcher, part
from herma.models.client import ChatModel
from herma.review.gate import GatedMemory, GatedSkills, Overheard, Shelf, listen
from herma.review.proposal import (
    Hands,
    Limits,
    Only,
    Window,
    ask_for_proposal,
    carry_out,
    end_task,
    look_back,
    prefix_of,
    request_of,
    since_of,
    turn_task,
)
from herma.review.remember import keep, remember_request, wanted_in
from herma.review.rows import (
    Book,
    Counters,
    Divide,
    Due,
    Review,
    ReviewKind,
    ReviewState,
    ReviewWrites,
    after,
    due,
    hydrated,
    reviewed,
)
from herma.review.spending import at_a_persons_wish, local_day
from herma.tools.memory import memory_tool
from herma.tools.registry import ToolContext, Tools
from herma.tools.skills import skill_manage_tool, skill_view_tool, skills_list_tool
from herma.transcript.messages import text_of
from herma.types import MOVES, Author, CompletedTurn, Message, Origin, Scope, SessionView, Target, Who
from herma.worker import Worker, WorkerHealth

if TYPE_CHECKING:
    from herma.episodes.episodes import Episodes
    from herma.memory.store import MemoryStore
    from herma.prompt.ledger import Prices
    from herma.review.gate import Propose
    from herma.review.rows import ReviewRows
    from herma.skills.library import SkillLibrary


# ---------- reflect.needs
#
# What looking back is given: how it goes, and what it works with.


@dataclass(frozen=True, slots=True)
class Policy:
    """How looking back goes; see `review.*` in the configuration."""

    enabled: bool = True
    memory_every: int = 10
    skills_every: int = 10
    writes: ReviewWrites = "apply"
    skill_writes: ReviewWrites = "stage"
    at_end: bool = True
    min_turns: int = 3
    idle_minutes: float = 60.0
    boundaries: tuple[str, ...] = ("idle", "day", "topic")
    limits: Limits = field(default_factory=Limits)
    drain: float = 5.0
    keep_days: float = 90.0


@dataclass(frozen=True, slots=True)
class Needs:
    """What looking back works with; `app` puts it together."""

    rows: ReviewRows
    memory: MemoryStore
    propose: Propose
    skills: Callable[[], SkillLibrary]
    episodes: Callable[[], Episodes]
    model: Callable[[str], ChatModel | None]
    """For a purpose of background work, behind the meter; None if no model is set."""
    why_no_model: Callable[[], str]
    window: Callable[[str], Window]
    load: Callable[[str], SessionView | None]
    """A stored session as it would be sent."""
    clock: Callable[[], float] = time.time
    alive: Callable[[], None] = lambda: None
    price_of: Callable[[str], Prices | None] = lambda _: None
    elsewhere: Callable[[Target, Scope], Sequence[str]] = lambda *_: ()
    """Entries that are kept outside the files."""
    failed: Callable[[str, str], None] = lambda *_: None


# ---------- reflect.reviews
#
# Looking back at conversations: `h.reviews`.
#
# After a reply, at the end of a session, and where an endless chat takes a turn. Always in the background, never while
# a turn runs, one process at a time, and written down: what was due and not done is made up for by whoever comes next.

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
            from herma.review.remember import wanted_in

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


# ---------- reflect.boundary
#
# Where an endless chat takes a turn: after a pause, on another day, or to another topic. Pure.
#
# Learning happens at the end of a session; a chat that never ends has virtual ends, between two turns.

WINDOW, FEWEST = 3, 6
"""Turns of the user that make a new topic, and turns that the old one must have had."""
FAR = 0.97
"""Distance of the words of two windows, 0 to 1, from which they are about different things."""
FAR_MEANING = 0.15
"""The same for the cosine distance of their vectors, where there is an embedder."""
_WORDS = 12
"""Words that a window must have to be judged: short remarks have no topic."""


@dataclass(frozen=True, slots=True)
class Boundary:
    """Everything up to this message is a piece of its own."""

    why: Divide
    last_message: int
    windows: tuple[tuple[str, ...], tuple[str, ...]] | None = None
    """Of a topic: what was said before and after it."""


def pause_between(last: float, now: float, idle_minutes: float, watched: Collection[Divide]) -> Divide | None:
    """Whether time makes a boundary between the last message and now."""
    if now <= last:
        return None
    if "idle" in watched and idle_minutes > 0 and now - last >= idle_minutes * 60:
        return "idle"
    if "day" in watched and _day(last) != _day(now):
        return "day"
    return None


def topic_change(messages: Sequence[Message], since: int) -> Boundary | None:
    """The place before the latest turns of the user, if they are about something else than those before.

    Only messages after `since` count, which is where the last boundary was.
    """
    turns = [at for at, one in enumerate(messages) if one.role == "user" and one.id > since]
    if len(turns) < FEWEST + WINDOW:
        return None
    said = [text_of(messages[at].content) for at in turns]
    before, after = tuple(said[-WINDOW - FEWEST : -WINDOW]), tuple(said[-WINDOW:])
    first = turns[-WINDOW]
    if first == 0 or distance(before, after) < FAR:
        return None
    return Boundary("topic", messages[first - 1].id, (before, after))


def distance(before: Sequence[str], after: Sequence[str]) -> float:
    """How far the words of two windows are from each other, 0 to 1; 0 where too little was said to judge."""
    one, other = _counted(before), _counted(after)
    if sum(one.values()) < _WORDS or sum(other.values()) < _WORDS:
        return 0.0
    dot = sum(weight * other[word] for word, weight in one.items())
    return max(0.0, 1.0 - dot / (_length(one) * _length(other)))


def apart(one: Sequence[float], other: Sequence[float]) -> float:
    """The cosine distance of two vectors; 0 where one has no direction."""
    lengths = math.sqrt(sum(x * x for x in one)) * math.sqrt(sum(x * x for x in other))
    return 1.0 - sum(x * y for x, y in zip(one, other, strict=True)) / lengths if lengths else 0.0


def _counted(texts: Sequence[str]) -> Counter[str]:
    from herma.review.gate import gist  # nobody compares words before a chat has had some turns

    return Counter(word for text in texts for word in gist(text).words)


def _length(counts: Counter[str]) -> float:
    return math.sqrt(sum(weight * weight for weight in counts.values()))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))


# ---------- reflect.watch
#
# How looking back follows a session: it counts, and decides when; `reviews` does it, in the background.
#
# A new turn stops what runs. Nothing is decided inside a turn: what time or topic divided is seen to after the reply.

MOST_STOPPED = 3
"""How often in a row a review is tried again because a new turn came in between."""
Embed = Callable[[Sequence[str]], Sequence[Sequence[float]] | None]
"""Vectors of texts; None where there is nothing to make them."""


class ReviewWatcher(Watcher):
    """One per session of the user's own agent."""

    name = "review"
    outside = False

    def __init__(
        self,
        reviews: Reviews,
        covered: Callable[[str], int],
        clock: Callable[[], float],
        embed: Embed | None = None,
    ) -> None:
        self._reviews = reviews
        self._policy = reviews.policy
        self._covered_of = covered
        self._clock = clock
        self._embed = embed
        self._counters = Counters()
        self._underway: Due | None = None
        self._stopped = 0
        self._covered: int | None = None
        self._boundary: Boundary | None = None
        self._hurry: threading.Event | None = None
        self._made_up = False
        self.notices: list[str] = []
        """What people should know; shown among the warnings of the session."""

    def opened(self, view: SessionView) -> None:
        self._counters = hydrated(view.messages, self._policy.memory_every)

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        self._stop(view)
        if view.messages and self._enough(view):
            why = pause_between(view.messages[-1].timestamp, self._clock(), self._policy.idle_minutes, self._watched())
            if why is not None:
                self._boundary = Boundary(why, view.messages[-1].id)
        return ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._counters = after(self._counters, turn)
        wanted = remember_request(turn.user) is not None and _is_wanted(view)
        if not self._reviews.has_model:
            if wanted:
                self._hurry = self._reviews.remember(view, Due(), self._tell)
            if not self._made_up:  # what a killed program was asked to remember
                self._made_up = True
                self._reviews.make_up(view.id)
            return
        what = self._due()
        if wanted:
            self._hurry = self._reviews.remember(view, what, self._tell)
        elif what:
            self._underway = what
            self._reviews.after_turn(view, what, self._tell, self._ended)
        self._divide(view)
        self._reviews.make_up(view.id)
        self._when_idle(view)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:  # noqa: ARG002
        if reset or reason == "rewind":  # what was looked back at is not what was said any more
            self._stop(old)
        if reset:
            self._counters = Counters()

    def closing(self, view: SessionView, reason: str) -> None:
        if reason == "reload" or not self._reviews.has_model:
            return
        if self._policy.at_end and self._enough(view):
            self._stop(view)
            kind = "boundary" if reason in MOVES else "end"  # what is summed up is not at hand any more afterwards
            self._owe(view, kind, reason, view.messages[-1].id)
        elif reason not in MOVES:
            self._reviews.calm(view.id)

    # ── steps ──

    def _due(self) -> Due:
        """What is due now, and what a new turn stopped before. It counts as done from here on, whatever comes of it: a
        failing one must not be tried every turn."""
        what = due(self._counters, self._policy.memory_every, self._policy.skills_every)
        left, self._underway = self._underway, None
        if left is not None:
            self._stopped += 1
            if self._stopped <= MOST_STOPPED:
                what = Due(what.memory or left.memory, what.skills or left.skills)
            else:
                self._stopped = 0
        self._counters = reviewed(self._counters, what)
        return what

    def _ended(self) -> None:
        """Told in the worker's thread."""
        self._underway = None
        self._stopped = 0

    def _divide(self, view: SessionView) -> None:
        """A virtual end, where a pause, another day or another topic lies between two turns."""
        found, self._boundary = self._boundary, None
        if found is None and "topic" in self._policy.boundaries:
            found = topic_change(view.messages, self._since(view))
        if found is None:
            return
        if self._embed is None or found.windows is None:
            self._owe(view, "boundary", found.why, found.last_message)
            return
        far, embed = found, self._embed

        def compare() -> None:
            """Words are apart; so should the meanings be."""
            vectors = embed(["\n".join(window) for window in far.windows or ()])
            if vectors is None or apart(*vectors) >= FAR_MEANING:
                self._owe(view, "boundary", far.why, far.last_message)

        self._reviews.aside("telling topics apart", compare)

    def _owe(self, view: SessionView, kind: str, why: str, last: int) -> None:
        self._covered = last
        self._reviews.owe(view, "boundary" if kind == "boundary" else "end", why, last, self._tell)

    def _when_idle(self, view: SessionView) -> None:
        """Nobody may ever say anything again: then a pause is a boundary when it is long enough."""
        if "idle" not in self._policy.boundaries or not self._policy.idle_minutes or not self._enough(view):
            return

        def then() -> None:
            if self._enough(view):
                self._owe(view, "boundary", "idle", view.messages[-1].id)

        self._reviews.when_idle(self._policy.idle_minutes * 60, view, then)

    def _enough(self, view: SessionView) -> bool:
        """Whether the user said enough since the last boundary for something to be learnt."""
        since, missing = self._since(view), max(self._policy.min_turns, 1)
        for message in reversed(view.messages):  # what was said before need not be looked at
            if message.id <= since:
                return False
            missing -= message.role == "user"
            if not missing:
                return True
        return False

    def _since(self, view: SessionView) -> int:
        if self._covered is None:
            self._covered = self._covered_of(view.info.conversation)
        return self._covered

    def _watched(self) -> Sequence[Divide]:
        return cast("Sequence[Divide]", self._policy.boundaries)

    def _stop(self, view: SessionView) -> None:
        self._reviews.stop(view.id)
        if self._hurry is not None:
            self._hurry.set()
            self._hurry = None

    def _tell(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def _is_wanted(view: SessionView) -> bool:
    """Whether what the user asks to be remembered is not remembered yet."""
    from herma.review.remember import wanted_in  # few ask for anything

    return wanted_in(view.messages) is not None


# ---------- reflect.passes
#
# The three ways of looking back, put together for one conversation: after a turn, to remember, and as a whole.

ALLOWED = ("memory", "skills_list", "skill_view", "skill_manage")


@dataclass(frozen=True, slots=True)
class Desk:
    """What one review of one conversation works with."""

    memory: GatedMemory
    skills: GatedSkills
    heard: Overheard
    author: Author
    call: Only
    schemas: tuple[Mapping[str, Any], ...]


class Passes:
    """One per opened memory."""

    def __init__(self, needs: Needs, policy: Policy) -> None:
        self._needs = needs
        self._policy = policy
        self._shelf = Shelf(needs.memory, needs.elsewhere)

    def turn(self, view: SessionView, what: Due, book: Book, cancel: threading.Event) -> None:
        """The quiet pass after a reply."""
        model = self._needs.model("review")
        if model is not None:
            self._look_back(model, view, turn_task(what), book, cancel)

    def remember(self, view: SessionView, what: Due, book: Book, hurry: threading.Event) -> None:
        """The same for something that the user asked for; what the model does not save is saved in the user's words."""
        wanted = wanted_in(view.messages)
        if wanted is None:
            return
        model = None if hurry.is_set() else self._needs.model("review")
        if model is not None:
            task = turn_task(what, [wanted.words or "(they point at what was said before)"])
            try:
                self._look_back(model, view, task, book, hurry)
            except ModelCancelled:
                pass  # a new turn was quicker: there is another way
            except SpendRefused as exc:
                book.refuse_to_spend(str(exc))
            except ModelError as exc:
                book.notice = f"The model could not be asked: {exc}"
        if not any(one.target in ("memory", "user") and one.result != "refused" for one in book.actions):
            keep(
                wanted,
                view.scope,
                view.id,
                self._needs.memory,
                self._needs.propose,
                self._shelf.entries(view.scope),
                book,
            )

    def whole(self, view: SessionView, review: Review, book: Book, cancel: threading.Event) -> None:
        """A session, or a piece of an endless chat, as a whole."""
        model = self._needs.model("memory_update")
        if model is None:
            return
        episodes = self._needs.episodes()
        if review.kind == "boundary":
            episodes.record(review.conversation, folder=view.folder)
        said = replace(view, messages=tuple(one for one in view.messages if one.id <= review.last_message))
        task = end_task(since=since_of(said.messages, review.first_message))
        request = request_of(prefix_of(said), task, view.tools, self._needs.window(model.name))
        proposal = ask_for_proposal(model, request, view.tools, book, cancel, self._policy.limits)
        desk = self._desk(said, book)
        hands = Hands(self._needs.memory, desk.memory, desk.skills, episodes, desk.heard.by, desk.author, book)
        carry_out(proposal, review.conversation, view.scope, hands, self._shelf.enabled(view.scope))

    def _look_back(self, model: ChatModel, view: SessionView, task: str, book: Book, cancel: threading.Event) -> None:
        """With the tools that the session has, as they are part of what its cache knows; where the model had none to
        save with, with ours."""
        desk = self._desk(view, book)
        has_memory = any(one.get("function", {}).get("name") == "memory" for one in view.tools)
        tools = view.tools if has_memory else desk.schemas
        request = request_of(prefix_of(view), task, tools, self._needs.window(model.name))
        look_back(model, request, tools, desk.call, book, cancel, self._policy.limits)

    def _desk(self, view: SessionView, book: Book) -> Desk:
        library = self._needs.skills()
        heard = listen(view, self._shelf.entries(view.scope))
        memory = GatedMemory(
            self._needs.memory, self._needs.propose, self._shelf.known(heard), book, writes=self._policy.writes
        )
        skills = GatedSkills(library, book, self._policy.skill_writes)
        last = next((one.id for one in reversed(view.messages) if one.role == "user"), None)
        author = Author(Who.REVIEW, Origin.AGENT_CONCLUDED, view.id, last)
        tools = Tools(
            [memory_tool(memory), skills_list_tool(library), skill_view_tool(library), skill_manage_tool(skills)],
            self._needs.alive,
        )
        context = ToolContext(view.scope, author, heard=heard.by)

        def call(name: str, arguments: str) -> str:
            answer = tools.call(name, arguments, context)
            if name == "skill_view":
                _note_view(skills.viewed, answer, arguments)
            return answer

        return Desk(memory, skills, heard, author, Only(call, ALLOWED), tuple(tools.schemas()))


def _note_view(viewed: Callable[[str, str], None], answer: str, arguments: str) -> None:
    """What the model has read of a skill, by what the tool answered."""
    shown: Mapping[str, Any] = json.loads(answer)
    if shown.get("success") is True:
        given = json.loads(arguments or "{}")
        viewed(str(shown.get("name", "")), str(given.get("file_path") or "SKILL.md"))
