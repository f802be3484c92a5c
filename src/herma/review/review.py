"""Review conversations in the background: when a review is due, the queue, and the three kinds of review.

After a reply, at the end of a session, and where a long chat pauses or changes its topic. Never while a turn runs, and
one process at a time. Due work is stored first, so that work that a crash or a new turn stopped is done later.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from herma.config import BOUNDARIES
from herma.errors import HermaError, ModelCancelled, ModelError, SpendRefused, UsageError, checked
from herma.features import Feature
from herma.memory.tidy import content_of, likeness
from herma.models.models import lift_pause, local_day
from herma.prompt.assemble import guess_outside, show_imported
from herma.prompt.tokens import counter_for, window_of
from herma.review.gate import (
    GatedMemory,
    GatedSkills,
    KnownEntries,
    allowed_together,
    keep,
    remember_request,
    seen_in,
    wanted_in,
)
from herma.review.proposal import (
    Proposed,
    ReviewProposal,
    ask_for_proposal,
    end_task,
    prefix_of,
    request_of,
    run_tools,
    since_of,
    turn_task,
)
from herma.review.rows import (
    Counters,
    Due,
    Review,
    ReviewAction,
    ReviewKind,
    ReviewRecord,
    ReviewRows,
    ReviewState,
    SplitReason,
    after,
    due,
    hydrated,
    reviewed,
)
from herma.skills.document import compose
from herma.skills.rows import CreateSkill, Skill
from herma.tools.memory import memory_tool
from herma.tools.registry import ToolContext, Tools
from herma.tools.skills import skill_tools
from herma.transcript.log import resumed_chain
from herma.transcript.messages import imported_turns, sendable, text_of, typed_text
from herma.transcript.provenance import SeenText
from herma.types import (
    MOVES,
    Add,
    Author,
    CompletedTurn,
    MemoryOp,
    MemoryWrite,
    Message,
    Origin,
    Remove,
    Scope,
    SessionView,
    Target,
    Who,
)
from herma.worker import WorkerHealth

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.config import ReviewSettings, Settings
    from herma.models.client import ChatModel


MOST_TRIES = 3
"""Maximum starts of a review, crashes and new turns included."""
_GRACE = 30.0
"""Seconds beyond its deadline for which a review counts as running."""
_PRUNED_EVERY = 50
"""Reviews after which old ones are pruned."""
_DAY = 86_400.0
_AT_ONCE = 2
"""Unfinished reviews that are resumed at a time."""
URGENT, SOON, LATER, SOMETIME = range(4)
Tell = Callable[[str], None]


class ReviewStatus(NamedTuple):
    """The state of reviews: whether they run, and which are due."""

    enabled: bool
    model: str
    """Its name; "" if none is configured, and then `without` says what one would add."""
    without: str
    settings: ReviewSettings
    memory_every: int
    """Turns of the user after which a review looks for memories; 0: never."""
    boundaries: tuple[SplitReason, ...]
    owed: int
    health: WorkerHealth
    last: Review | None


@checked()
class Reviews:
    """`h.reviews`: the reviews of one home. Nothing happens before the first one is due."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self.settings = app.settings.review
        self.memory_every = memory_interval(app.settings)
        self.boundaries = split_reasons(app.settings.review)
        self._rows = ReviewRows(app.db)
        self._modes = ReviewModes(app)
        self._lane = app.worker.lane("review")
        self._hurries: set[threading.Event] = set()
        self._notified = ""

    # ── asked by sessions ──

    @property
    def has_model(self) -> bool:
        return self.settings.enabled and background_model(self._app, "review") is not None

    def after_turn(self, view: SessionView, what: Due, tell: Tell, ended: Callable[[], None]) -> None:
        """Review the conversation so far. `ended` is called when that is done, or cannot be done; not when a new turn
        stopped it."""

        def work(cancel: threading.Event) -> None:
            stopped = False
            try:
                due = " and ".join(name for name, on in (("memory", what.memory), ("skills", what.skills)) if on)
                review = self._review(view, "turn", due)
                done = self._run(review, lambda record: self._modes.turn(view, what, record, cancel), tell)
                stopped = done is not None and done.state == "cancelled"
            finally:
                if not stopped:
                    ended()

        self._submit("reviewing after a reply", work, SOON, view.id)

    def remember(self, view: SessionView, what: Due, tell: Tell) -> threading.Event:
        """Keep what the user asked to be remembered. → an event that makes it hurry: then their own words are kept."""
        hurry = threading.Event()
        owed = self._rows.owe(self._review(view, "remember", "the user asked to remember something"))
        self._hurries.add(hurry)

        def work(_: threading.Event) -> None:
            try:
                self._run(owed, lambda record: self._modes.remember(view, what, record, hurry), tell)
            finally:
                self._hurries.discard(hurry)

        self._submit("remembering what the user asked for", work, URGENT, f"{view.id} remembers")
        return hurry

    def credit(self, view: SessionView, write: MemoryWrite) -> None:
        """Credit the user with an entry that says only what they just asked to be remembered, in whatever words."""
        said = next((one for one in reversed(view.messages) if one.role == "user"), None)
        asked = remember_request(typed_text(said)) if said is not None else None
        if not asked or write.author.origin is not Origin.AGENT_CONCLUDED:
            return
        added = [op.content for op in write.operations if isinstance(op, Add)]
        texts = {text for text in added if likeness(text, asked) == "same"}
        memory = self._app.memory
        theirs = [one for one in memory.describe(write.target, scope=write.scope) if one.text in texts] if texts else []
        if theirs:
            memory.annotate(write.target, [replace(one, origin=Origin.USER_SAID) for one in theirs], scope=write.scope)

    def owe(self, view: SessionView, kind: ReviewKind, why: str, last: int, tell: Tell) -> None:
        """Record that a part of a conversation is to be reviewed as a whole, and do it when there is time."""
        review = replace(self._review(view, kind, why), last_message=last)
        owed = self._rows.owe(review)

        def work(cancel: threading.Event) -> None:
            self._run(owed, lambda record: self._modes.whole(view, owed, record, cancel), tell)

        self._submit(
            f"reviewing {'a part of a chat' if kind == 'boundary' else 'a finished session'}",
            work,
            LATER,
            view.id if kind == "boundary" else "",
        )

    def when_idle(self, seconds: float, view: SessionView, then: Callable[[], None]) -> None:
        """Call `then` after so many seconds without a turn; a new turn cancels it."""
        owner = f"{view.id} is idle"
        self._lane.submit("waiting", lambda _: then(), priority=LATER, owner=owner, after=seconds)

    def do_due(self, cancel: threading.Event) -> int:
        """Do the reviews that programs on any host have left, now. Return how many were done."""
        self._app.ensure_open()
        done, here = 0, 1
        while here and not cancel.is_set():
            owed = self._rows.owed(self._app.clock(), MOST_TRIES, _AT_ONCE)
            here = sum(self._resume(review, cancel) for review in owed if not cancel.is_set())
            done += here
        return done

    def resume_unfinished(self, session: str) -> None:
        """Resume reviews that a new turn, a crash or the end of a program stopped.

        They may be about another user's session, so there is no notice; the log has them.
        """

        def work(cancel: threading.Event) -> None:
            for review in self._rows.owed(self._app.clock(), MOST_TRIES, _AT_ONCE):
                if not cancel.is_set():
                    self._resume(review, cancel)

        self._submit("resuming unfinished reviews", work, SOMETIME, session)

    def stop(self, session: str) -> None:
        """Stop the work for a session; it is done later."""
        self._lane.cancel(session)
        self._lane.cancel(f"{session} is idle")

    def put_off(self, session: str) -> None:
        """Stop reviewing in this program: due work stays due. Text that the user asked to remember is kept in their
        own words."""
        for hurry in list(self._hurries):
            hurry.set()
        self.stop(session)
        self._lane.cancel("")
        self._lane.close(1.0)

    def stop_waiting(self, session: str) -> None:
        """Stop waiting for a pause of a session that is over."""
        self._lane.cancel(f"{session} is idle")

    # ── asked by programs ──

    def run(self, session: str) -> Review:
        """Review a stored session now, as at its end, and wait for it. Raise what the model raises."""
        self._app.ensure_open()
        view = self._load(session)
        if view is None or not view.messages:
            raise UsageError(f"There is no session {session!r} to review.", hint="herma sessions list")
        model = background_model(self._app, "memory_update")
        if model is None:
            raise UsageError("A review needs a model.", hint=self._why_no_model())
        lift_pause(model)
        review = self._review(view, "end", "asked for")
        owed = self._rows.owe(review)
        no_cancel = threading.Event()
        done = self._run(owed, lambda record: self._modes.whole(view, owed, record, no_cancel), _ignore)
        if done is None:
            raise UsageError("This session is being reviewed, or was already.", hint="herma learned list")
        return done

    def log(self, limit: int = 20, *, conversation: str | None = None) -> list[Review]:
        """Return the reviews, the newest first."""
        self._app.ensure_open()
        return list(self._rows.log(max(limit, 0), conversation))

    def get(self, number: int) -> Review | None:
        """Return one review by its number."""
        self._app.ensure_open()
        return self._rows.get(number)

    def status(self) -> ReviewStatus:
        """Return which model reviews, what is due, and the last review."""
        self._app.ensure_open()
        model = background_model(self._app, "review")
        newest = self._rows.log(1)
        return ReviewStatus(
            self.settings.enabled,
            model.name if model else "",
            "" if model else self._why_no_model(),
            self.settings,
            self.memory_every,
            self.boundaries,
            len(self._rows.owed(self._app.clock(), MOST_TRIES, 1000)),
            self._lane.health,
            newest[0] if newest else None,
        )

    def wait(self, timeout: float = 60.0) -> bool:
        """Wait until nothing is being reviewed. → whether that was so in time."""
        return self._lane.wait(timeout)

    def close(self) -> list[str]:
        """Let running reviews end, within `review.drain` seconds. → what was stopped; it is done later."""
        if not self._lane.wait(self.settings.drain):
            for hurry in list(self._hurries):
                hurry.set()
        return self._lane.close(0.2)

    # ── steps ──

    def _why_no_model(self) -> str:
        models = self._app.models
        if models.meter.caps.off:
            return "Background work may spend nothing: spend.daily_usd or spend.daily_tokens is 0."
        return models.why_not("auxiliary")

    def _load(self, session: str) -> SessionView | None:
        """Return a stored session as it would be sent, with the sessions that it continues without a summary."""
        kept = self._app.transcripts
        info = kept.get(session)
        if info is None:
            return None
        messages = sendable(message for one in resumed_chain(kept, info) for message in kept.messages(one.id))
        if info.imported is not None:
            return SessionView(info, messages=tuple(imported_turns(messages, show_imported)), model=info.model or "")
        prompt = kept.system_prompt(info.id) or ""
        spans = kept.prompt_outside(info.id)
        return SessionView(
            info,
            messages=tuple(messages),
            model=info.model or "",
            folder=info.folder,
            system_prompt=prompt,
            tools=tuple(self._app.tools.schemas()),
            prompt_outside=guess_outside(prompt) if spans is None else spans,
        )

    def _submit(self, what: str, work: Callable[[threading.Event], None], priority: int, owner: str) -> None:
        self._lane.submit(what, work, priority=priority, owner=owner, deadline=self.settings.deadline + 5)

    def _review(self, view: SessionView, kind: ReviewKind, why: str) -> Review:
        covered = self._rows.covered(view.info.conversation)
        ids = [one.id for one in view.messages]
        first = next((number for number in ids if number > covered), ids[0] if ids else 0)
        return Review(view.info.conversation, view.id, kind, why, first, ids[-1] if ids else 0, self._app.clock())

    def _run(self, review: Review, work: Callable[[ReviewRecord], None], tell: Tell) -> Review | None:
        """Claim a review, do it, and store how it ended; then raise what failed."""
        now = self._app.clock
        claimed = self._rows.claim(review, now(), self.settings.deadline + _GRACE)
        if claimed is None:
            return None
        record, error = ReviewRecord(self._app.models.price_of), None
        state: ReviewState = "done"
        try:
            work(record)
        except ModelCancelled:
            state = "cancelled"
        except SpendRefused as exc:
            state = "refused"
            record.refuse_to_spend(f"{exc} {exc.hint}".strip())
        except HermaError as exc:
            state, error = "failed", exc
            record.notice = record.notice if record.gave_up else str(exc)
        except BaseException:
            state = "failed"
            raise
        finally:
            ended = _ended(claimed, record, state, now())
            self._rows.end(ended)
        if record.notice and (state != "failed" or record.gave_up) and not (record.unspent and self._said_today()):
            tell(record.notice)
        if error is not None:
            raise error
        if ended.id % _PRUNED_EVERY == 0 and self.settings.keep_days:
            self._rows.prune(now() - self.settings.keep_days * _DAY)
        return ended

    def _said_today(self) -> bool:
        """Return whether people were notified today that nothing may be spent."""
        before, self._notified = self._notified, local_day(self._app.clock())
        return before == self._notified

    def _resume(self, review: Review, cancel: threading.Event) -> bool:
        """Do a review that is due, unless another process does it. → whether it ended here."""
        view = self._load(review.session_id)
        if view is None:
            self._rows.end(replace(review, state="cancelled", notice="The session is gone."))
            return True
        view = replace(view, messages=tuple(one for one in view.messages if one.id <= review.last_message))
        ended: Review | None = None
        if review.kind == "remember":
            if wanted_in(view.messages) is None:
                self._rows.end(replace(review, state="cancelled"))
                return True
            at_once = threading.Event()
            at_once.set()
            ended = self._run(review, lambda record: self._modes.remember(view, Due(), record, at_once), _ignore)
        elif background_model(self._app, "memory_update") is not None:
            ended = self._run(review, lambda record: self._modes.whole(view, review, record, cancel), _ignore)
        return ended is not None and ended.state != "due"


def _ended(review: Review, record: ReviewRecord, state: ReviewState, now: float) -> Review:
    """Return how a review ended. A whole session that was stopped or failed is due again, unless the model's answers
    made no sense: they would make none the next time."""
    again = review.kind in ("boundary", "end") and state in ("cancelled", "failed") and not record.gave_up
    tries = review.tries - (state == "cancelled")  # one that was stopped has not failed
    due_again = again and tries < MOST_TRIES
    return replace(
        review,
        state="due" if due_again else state,
        tries=tries if due_again else review.tries,
        ended=now,
        model=record.model,
        steps=record.steps,
        usage=record.usage,
        usd=record.usd,
        actions=tuple(record.actions),
        notice=record.notice,
    )


def _ignore(notice: str) -> None:
    """Do not notify."""


def background_model(app: Herma, purpose: str) -> ChatModel | None:
    """Return the model for background work; None if that is switched off."""
    return None if app.models.meter.caps.off else app.models.get("auxiliary", purpose=purpose)


def memory_interval(settings: Settings) -> int:
    """Return the turns of the user after which a review looks for memories; 0 means never."""
    memory = settings.memory
    return memory.nudge_interval if memory.memory_enabled or memory.user_profile_enabled else 0


def split_reasons(settings: ReviewSettings) -> tuple[SplitReason, ...]:
    """Return what splits a chat, as `review.boundaries` says it."""
    return cast("tuple[SplitReason, ...]", BOUNDARIES.read(settings.boundaries))


MOST_STOPPED = 3
"""Maximum retries in a row of a review that a new turn stopped."""


class ReviewFeature(Feature):
    """Follow a session of the user's own agent: count, and decide when to review.

    A new turn stops what runs. Nothing is decided inside a turn: a split by time or topic is handled after the reply.
    """

    name = "review"
    outside = False
    at_once = True  # it stops what runs, and reads the clock

    def __init__(self, app: Herma, waiting: Sequence[str] = ()) -> None:
        self._app = app
        self._settings = app.settings.review
        self._memory_every = memory_interval(app.settings)
        self._splits = split_reasons(app.settings.review)
        self._began_with: Sequence[Message] = ()
        self._counted: Counters | None = None
        self._underway: Due | None = None
        self._stopped = 0
        self._covered: int | None = None
        self._split_at: Split | None = None
        self._hurry: threading.Event | None = None
        self._resumed = False
        self.notices: list[str] = [*waiting]
        """Sentences for people, shown among the warnings of the session."""

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:
        if preview or not app.settings.review.enabled or view.environment.context != "primary":
            return ()  # other sessions are not with the user
        return [cls(app, waiting_proposals(app, view.scope))]

    @property
    def _counters(self) -> Counters:
        if self._counted is None:
            self._counted = hydrated(self._began_with, self._memory_every)
        return self._counted

    @_counters.setter
    def _counters(self, counters: Counters) -> None:
        self._counted = counters

    def opened(self, view: SessionView) -> None:
        self._began_with = view.messages

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        if self._counted is None and not view.messages:
            return ""
        self._stop(view)
        if view.messages and self._enough(view):
            last, now = view.messages[-1], self._app.clock()
            why = pause_between(last.timestamp, now, self._settings.idle_minutes, self._splits)
            if why is not None:
                self._split_at = Split(why, last.id)
        return ""

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        self._app.reviews.credit(view, write)

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._counters = after(self._counters, turn)
        wanted = remember_request(turn.user) is not None and wanted_in(view.messages) is not None
        if not self._app.reviews.has_model:
            if wanted:
                self._hurry = self._app.reviews.remember(view, Due(), self._tell)
            if not self._resumed:  # facts that a killed program was asked to remember
                self._resumed = True
                self._app.reviews.resume_unfinished(view.id)
            return
        what = self._due()
        if wanted:
            self._hurry = self._app.reviews.remember(view, what, self._tell)
        elif what:
            self._underway = what
            self._app.reviews.after_turn(view, what, self._tell, self._ended)
        self._split(view)
        self._app.reviews.resume_unfinished(view.id)
        self._when_idle(view)

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:  # noqa: ARG002
        if self._counted is None:
            return
        if reset or reason == "rewind":  # the reviewed text is no longer the conversation
            self._stop(old)
        if reset:
            self._counters = Counters()

    def closing(self, view: SessionView, reason: str) -> None:
        if self._counted is None and not view.messages:
            return
        if reason == "reload" or not self._app.reviews.has_model:
            return
        if self._settings.at_end and self._enough(view):
            self._stop(view)
            kind: ReviewKind = (
                "boundary" if reason in MOVES else "end"
            )  # summarised messages are not available afterwards
            self._owe(view, kind, reason, view.messages[-1].id)
        elif reason not in MOVES:
            self._app.reviews.stop_waiting(view.id)

    # ── steps ──

    def _due(self) -> Due:
        """Return what is due now, and what a new turn stopped before. It counts as done from here on, whatever its
        result: a failing review must not be tried every turn."""
        what = due(self._counters, self._memory_every, self._settings.skill_interval)
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
        """Called in the worker's thread."""
        self._underway = None
        self._stopped = 0

    def _split(self, view: SessionView) -> None:
        """Review the part before a pause, another day or another topic as a whole."""
        found, self._split_at = self._split_at, None
        if found is None and "topic" in self._splits:
            found = topic_change(view.messages, self._since(view))
        if found is not None:
            self._owe(view, "boundary", *found)

    def _owe(self, view: SessionView, kind: ReviewKind, why: str, last: int) -> None:
        self._covered = last
        self._app.reviews.owe(view, kind, why, last, self._tell)

    def _when_idle(self, view: SessionView) -> None:
        """Review the part before a long enough pause, even if no message follows."""
        if "idle" not in self._splits or not self._settings.idle_minutes or not self._enough(view):
            return

        def then() -> None:
            if self._enough(view):
                self._owe(view, "boundary", "idle", view.messages[-1].id)

        self._app.reviews.when_idle(self._settings.idle_minutes * 60, view, then)

    def _enough(self, view: SessionView) -> bool:
        """Return whether the user said enough since the last split for something to be learned."""
        since, missing = self._since(view), max(self._settings.min_turns, 1)
        for message in reversed(view.messages):  # earlier messages need not be read
            if message.id <= since:
                return False
            missing -= message.role == "user"
            if not missing:
                return True
        return False

    def _since(self, view: SessionView) -> int:
        if self._covered is None:
            self._covered = ReviewRows(self._app.db).covered(view.info.conversation)
        return self._covered

    def _stop(self, view: SessionView) -> None:
        self._app.reviews.stop(view.id)
        if self._hurry is not None:
            self._hurry.set()
            self._hurry = None

    def _tell(self, notice: str) -> None:
        if notice not in self.notices:
            self.notices.append(notice)


def waiting_proposals(app: Herma, scope: Scope) -> tuple[str, ...]:
    """Return a sentence if changes that reviews proposed wait for a person: of this scope's memory, and of skills."""
    of_reviews = [one for one in app.memory.pending() if one.author.who is Who.REVIEW]
    mine = [one for one in of_reviews if one.scope.user == scope.user and one.scope.project in ("", scope.project)]
    skills = ReviewRows(app.db).proposed_skills(app.settings.profile, app.clock())
    number = len(mine) + skills
    what = "proposal of a review waits" if number == 1 else "proposals of reviews wait"
    return (f"{number} {what} for you: herma inbox",) if number else ()


class ReviewRun(NamedTuple):
    """The input of one review of one conversation."""

    memory: GatedMemory
    skills: GatedSkills
    seen: SeenText
    author: Author
    call: Callable[[str, str], str]
    schemas: Sequence[Mapping[str, Any]]

    def author_of(self, texts: Sequence[str], known: Sequence[str] = ()) -> Author:
        """Return the author of these texts: with the origin of what they repeat, if they repeat text from outside."""
        outsider = self.seen.outsider(texts, known)
        return self.author if outsider is None else replace(self.author, origin=outsider)


class ReviewModes:
    """The three kinds of review."""

    def __init__(self, app: Herma) -> None:
        self._app = app
        self._settings = app.settings.review

    def turn(self, view: SessionView, what: Due, record: ReviewRecord, cancel: threading.Event) -> None:
        """Review after a reply: the model keeps what it finds with the memory and skill tools."""
        model = background_model(self._app, "review")
        if model is not None:
            self._run_tools(model, view, turn_task(what), record, cancel)

    def remember(self, view: SessionView, what: Due, record: ReviewRecord, hurry: threading.Event) -> None:
        """Do the same for what the user asked to remember; save what the model does not save in the user's words."""
        wanted = wanted_in(view.messages, seen_in(view, self._app.transcripts))
        if wanted is None:
            return
        model = None if hurry.is_set() else background_model(self._app, "review")
        if model is not None:
            task = turn_task(what, [wanted.words or "(they point at what was said before)"])
            try:
                self._run_tools(model, view, task, record, hurry, asked=wanted.words)
            except ModelCancelled:
                pass  # a new turn came; the user's own words are kept below
            except SpendRefused as exc:
                record.refuse_to_spend(str(exc))
            except ModelError as exc:
                record.notice = f"The model could not be asked: {exc}"
        if not any(one.target in ("memory", "user") and one.result != "refused" for one in record.actions):
            keep(wanted, view.scope, view.id, self._app.memory, record)

    def whole(self, view: SessionView, review: Review, record: ReviewRecord, cancel: threading.Event) -> None:
        """Review a session, or a part of a long chat, as a whole: the model proposes, code carries it out."""
        model = background_model(self._app, "memory_update")
        if model is None:
            return
        if review.kind == "boundary":
            self._app.episodes.record(review.conversation, folder=view.folder)
        said = replace(view, messages=tuple(one for one in view.messages if one.id <= review.last_message))
        task = end_task(since_of(said.messages, review.first_message))
        request = self._request(model, said, task, view.tools)
        proposal = ask_for_proposal(model, request, view.tools, record, cancel, self._settings)
        self._carry_out(proposal, review.conversation, view.scope, self._begin(said, record), record)

    # ── steps ──

    def _run_tools(
        self,
        model: ChatModel,
        view: SessionView,
        task: str,
        record: ReviewRecord,
        cancel: threading.Event,
        asked: str = "",
    ) -> None:
        """Run with the tools that the session has, as its cache has them; if it has no memory tool, with our own."""
        run = self._begin(view, record)
        run.memory.asked = asked
        has_memory = any(one.get("function", {}).get("name") == "memory" for one in view.tools)
        tools = view.tools if has_memory else run.schemas
        request = self._request(model, view, task, tools)
        run_tools(model, request, tools, run.call, record, cancel, self._settings)

    def _request(
        self, model: ChatModel, view: SessionView, task: str, tools: Sequence[Mapping[str, Any]]
    ) -> list[dict[str, Any]]:
        window = window_of(model.name, self._app.settings.context.window).tokens
        return request_of(prefix_of(view), task, tools, window, counter_for(model.name).count)

    def _begin(self, view: SessionView, record: ReviewRecord) -> ReviewRun:
        seen = seen_in(view, self._app.transcripts)
        known = KnownEntries(self._app.memory, view.scope).compared_in(view, seen)
        memory = GatedMemory(self._app.memory, known, record, self._settings.writes)
        skills = GatedSkills(self._app.skills, record, self._settings.skill_writes)
        last = next((one.id for one in reversed(view.messages) if one.role == "user"), None)
        author = Author(Who.REVIEW, Origin.AGENT_CONCLUDED, view.id, last)
        tools = Tools([memory_tool(memory), *skill_tools(self._app, skills)], self._app.ensure_open)
        context = ToolContext(view.scope, author, seen=seen)

        def call(name: str, arguments: str) -> str:
            answer = tools.call(name, arguments, context)
            if name == "skill_view":
                _note_view(skills.viewed, answer, arguments)
            return answer

        return ReviewRun(memory, skills, seen, author, call, tools.schemas())

    def _carry_out(
        self, proposal: ReviewProposal, conversation: str, scope: Scope, run: ReviewRun, record: ReviewRecord
    ) -> None:
        """Do what was proposed, as far as it is allowed, and record it: one change per file, undone by one undo."""
        for refused in proposal.refused:
            record.refuse(*refused)
        for (target, where), changes in self._by_file(proposal.changes, scope).items():
            self._change(target, where, changes, run)
        if words := proposal.episode:
            better = self._app.episodes.improve(conversation, lambda known: replace(known, **words))  # type: ignore[arg-type]
            if better is not None:
                record.note(ReviewAction("episode", "applied", better.task, "episode"))
        if (new := proposal.skill) is not None:
            text = compose(Skill(new.name, new.description, new.body))
            run.skills.apply(CreateSkill(new.name, text), author=run.author_of([new.body]))

    def _by_file(self, changes: Sequence[Proposed], scope: Scope) -> dict[tuple[Target, Scope], list[Proposed]]:
        """Group changes by file: a project's notes, unless only the home's notes have the entry meant."""
        memory = self._app.memory
        found: dict[tuple[Target, Scope], list[Proposed]] = {}
        for change in changes:
            if not memory.is_enabled(change.target):
                continue
            where = scope
            if change.target == "memory" and scope.project and not isinstance(change.op, Add):
                old = change.op.old_text
                if not any(old in entry for entry in memory.entries("memory", scope=scope)):
                    where = replace(scope, project="")
            found.setdefault((change.target, where), []).append(change)
        return found

    def _change(self, target: Target, scope: Scope, changes: Sequence[Proposed], run: ReviewRun) -> None:
        """Judge each operation on one file, choose those that may go together, and write them as one change."""
        memory = run.memory
        entries = memory.entries(target, scope=scope)
        kept: list[MemoryOp] = []
        for _, op, _ in changes:
            author = run.author_of([] if isinstance(op, Remove) else [op.content], entries)
            besides = [one.content for one in kept if not isinstance(one, Remove)]
            if objection := memory.objection(target, op, scope, author, besides):
                memory.refuse(op, target, *objection)
            else:
                kept.append(op)
        allowed, refused = allowed_together(entries, kept, memory.limit(target, scope), target)
        for op, why, said in refused:
            memory.refuse(op, target, why, said)
        reason = "; ".join(dict.fromkeys(one.reason for one in changes if one.reason and one.op in allowed))
        theirs = memory.touching_a_persons(target, allowed, scope)
        for ops in ([op for op in allowed if op not in theirs], theirs):
            if ops:
                memory.write(target, ops, scope, run.author, reason[:500] or "at the end of a session")


def _note_view(viewed: Callable[[str, str], None], answer: str, arguments: str) -> None:
    """Record what the model has read of a skill, by the answer of the tool."""
    shown: Mapping[str, Any] = json.loads(answer)
    if shown.get("success") is True:
        given = json.loads(arguments or "{}")
        viewed(str(shown.get("name", "")), str(given.get("file_path") or "SKILL.md"))


# ── where a long chat is split ───────────────────────────────────────────────────────────────────────────────────────

WINDOW, FEWEST = 3, 6
"""Turns of the user that make a new topic, and turns that the old one must have had."""
FAR = 0.97
"""Distance of the words of two windows, 0 to 1, from which they are about different things."""
_WORDS = 12
"""Words that a window must have to be judged: short remarks have no topic."""


class Split(NamedTuple):
    """Everything up to this message is a part of its own."""

    why: SplitReason
    last_message: int


def pause_between(last: float, now: float, idle_minutes: float, watched: Collection[SplitReason]) -> SplitReason | None:
    """Return whether time splits the chat between the last message and now."""
    if now <= last:
        return None
    if "idle" in watched and idle_minutes > 0 and now - last >= idle_minutes * 60:
        return "idle"
    if "day" in watched and _day(last) != _day(now):
        return "day"
    return None


def topic_change(messages: Sequence[Message], since: int) -> Split | None:
    """Return the place before the latest turns of the user, if they are about something else than those before.

    Only messages after `since`, the last split, count.
    """
    turns = [at for at, one in enumerate(messages) if one.role == "user" and one.id > since]
    if len(turns) < FEWEST + WINDOW:
        return None
    said = [text_of(messages[at].content) for at in turns]
    first = turns[-WINDOW]
    if first == 0 or distance(said[-WINDOW - FEWEST : -WINDOW], said[-WINDOW:]) < FAR:
        return None
    return Split("topic", messages[first - 1].id)


def distance(before: Sequence[str], after: Sequence[str]) -> float:
    """Return how far the words of two windows are from each other, 0 to 1; 0 if too little was said to judge."""
    one, other = _counted(before), _counted(after)
    if sum(one.values()) < _WORDS or sum(other.values()) < _WORDS:
        return 0.0
    dot = sum(weight * other[word] for word, weight in one.items())
    return max(0.0, 1.0 - dot / (_length(one) * _length(other)))


def _counted(texts: Sequence[str]) -> Counter[str]:
    return Counter(word for text in texts for word in content_of(text).words)


def _length(counts: Counter[str]) -> float:
    return math.sqrt(sum(weight * weight for weight in counts.values()))


def _day(at: float) -> str:
    return time.strftime("%Y-%m-%d", time.localtime(at))
