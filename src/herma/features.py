"""Attach optional parts to a session: the class `Feature`, and the dispatcher that calls features safely."""

from __future__ import annotations

import re
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from herma.errors import HermaWarning, StoreError
from herma.models.telemetry import CONVERSATION, COUNT, STORE, traced
from herma.prompt.assemble import ContextFile, Prompt, Tiers, assemble, memory_of, show
from herma.prompt.fence import TAG
from herma.prompt.ledger import recalled_in
from herma.types import (
    CompletedTurn,
    MemoryWrite,
    Message,
    Origin,
    PromptContribution,
    PromptRequest,
    SessionView,
)
from herma.worker import Guard, Health, Trouble

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.tools.registry import Tool


T = TypeVar("T")
F = TypeVar("F", bound="Feature")


class lazy_property(Generic[T]):  # noqa: N801  used like `property`
    """Like `functools.cached_property`, but made once even when several threads want it first.

    From Python 3.12 on that takes no lock: each thread would get a part of its own, and all but one would never be
    closed.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.__doc__ = make.__doc__
        self._make = make
        self._name = make.__name__
        self._making = threading.RLock()

    @overload
    def __get__(self, whole: None, owner: type) -> lazy_property[T]: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: object | None, owner: type) -> lazy_property[T] | T:
        if whole is None:
            return self
        with self._making:
            made: dict[str, T] = whole.__dict__  # the next time it is found there, before this is asked
            if self._name not in made:
                made[self._name] = self._make(whole)
            return made[self._name]


Attach: TypeAlias = "Callable[..., Sequence[Feature]]"
"""`Feature.attach` of a class, or a function with its parameters `app`, `view` and `preview`."""
LOCAL_DEADLINE = 0.15
"""Seconds that a feature of our own may take to recall something for a turn."""


class Feature:
    """The hooks of an optional part of Herma in one session. Override what you need; the rest does nothing.

    A feature never fails a turn: the dispatcher catches what it raises, counts it and shows it, and questions to it
    have a deadline. Only `turn_began`, `compressing` and `contribute` are questions; the rest reports events.
    """

    name = ""
    """The name in warnings; the class name if empty."""
    deadline = LOCAL_DEADLINE
    """Seconds that a question may take."""
    contribution_deadline: float | None = None
    """Seconds that `contribute` may take, in a thread of its own; None: it runs in the session's thread."""
    notices: Sequence[str] = ()
    """Sentences for people, shown among the warnings of the session; they may grow at any time."""
    outside = True
    """True if it recalls text of others, so that a memory write that repeats it waits for a person's decision."""
    origin = Origin.RECALL
    """The source of that text."""
    at_once = False
    """True if `turn_began` answers quickly or keeps its deadline itself; then it runs in the session's thread. For our
    own features only: nothing can stop one that hangs there."""

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool) -> Sequence[Feature]:  # noqa: ARG003
        """Return what takes part in this session. With `preview` only the prompt is assembled and nothing may start."""
        return ()

    def may_recall(self, view: SessionView, text: str) -> bool:  # noqa: ARG002
        """Say quickly whether `turn_began` may find something for this text. Called in the session's thread."""
        return True

    def opened(self, view: SessionView) -> None:
        """A session began, or was resumed: then it has messages."""

    def turn_began(self, view: SessionView, text: str) -> str:  # noqa: ARG002
        """Return text that may help with this user message. It is fenced into the message, which `view` lacks yet."""
        return ""

    def turn_completed(self, view: SessionView, turn: CompletedTurn) -> None:
        """A reply without tool calls is on disk. Interrupted turns are not announced."""

    def memory_written(self, view: SessionView, write: MemoryWrite) -> None:
        """The session's tool changed curated memory, durably."""

    def compressing(self, view: SessionView) -> str:  # noqa: ARG002
        """Return what the summary of a conversation that is about to be compressed should not miss."""
        return ""

    def switched(self, old: SessionView, new: SessionView, reason: str, reset: bool) -> None:
        """The same conversation goes on with another prompt, other messages or another id.

        `reason` is `reload`, `compression` or `rewind`; with `reset`, a new conversation begins in its place.
        """

    def closing(self, view: SessionView, reason: str) -> None:
        """The session ends. With a reason of `types.MOVES` its conversation goes on and `switched` follows."""

    def contribute(self, request: PromptRequest) -> PromptContribution | None:  # noqa: ARG002
        """Return what to add to the system prompt, when it is assembled at the start and after a reload."""
        return None

    @property
    def tools(self) -> Sequence[Tool]:
        """Tools that the model may call in this session."""
        return ()


@dataclass(frozen=True, slots=True)
class Recalled:
    """Text that one feature recalls for a turn. `origin`: its source, if others wrote it."""

    by: str
    text: str
    origin: Origin | None = Origin.RECALL


class FeatureDispatcher:
    """The features of one session: each is called, and none can fail a turn or hold it up for long."""

    def __init__(
        self,
        features: Sequence[Feature] = (),
        *,
        shown: Callable[[Trouble], None] = lambda _: None,
        notices: Sequence[str] = (),
    ) -> None:
        self._guarded = [(feature, guard_of(feature)) for feature in features]
        self._notices = tuple(notices)
        self._known: set[tuple[str, str]] = set()
        self._unsaid: deque[str] = deque()
        self._troubles: list[str] = []
        for feature, guard in self._guarded:
            if guard is getattr(feature, "guard", None):  # the guard of an external memory writes its failures down
                guard.listen(self._note)
            else:
                # timeouts of Herma's own features are logged, not shown
                guard.listen(lambda trouble: None if trouble.late else self._note(trouble))
                guard.listen(shown)

    @classmethod
    def attach(cls, app: Herma, view: SessionView, *, preview: bool = False) -> FeatureDispatcher:
        """Attach the features of `app`. One whose store cannot be read is left out, and a notice says so."""
        features: list[Feature] = []
        problems: list[str] = []
        for attach_one in app.features:
            try:
                features += attach_one(app, view, preview=preview)
            except StoreError as exc:  # the session matters more
                problems.append(str(exc))
        return cls(features, shown=app.record_trouble, notices=problems)

    def __bool__(self) -> bool:
        return bool(self._guarded)

    def of(self, kind: type[F]) -> F | None:
        """Return the feature of a class, if there is one."""
        return next((feature for feature, _ in self._guarded if isinstance(feature, kind)), None)

    @property
    def contributors(self) -> list[Feature]:
        """The features that add to the prompt."""
        return [feature for feature, _ in self._guarded if _overrides(feature, "contribute")]

    @property
    def tools(self) -> list[Tool]:
        """The tools that features bring."""
        return [tool for feature, _ in self._guarded for tool in feature.tools]

    @property
    def troubles(self) -> list[str]:
        """Sentences for people: failures, and the `notices` of features."""
        said = [*self._notices, *(notice for feature, _ in self._guarded for notice in feature.notices)]
        return [*dict.fromkeys(said), *self._troubles]

    def health(self) -> dict[str, Health]:
        """Return the health of each feature, by name."""
        return {guard.name: guard.health for _, guard in self._guarded}

    # ── questions: asked at the same time, each with its own deadline ──

    @traced(
        "search_memory",
        lambda _, view, __: {STORE: "recall", CONVERSATION: view.info.id},
        lambda found: {COUNT: len(found)},
    )
    def recall(self, view: SessionView, text: str) -> list[Recalled]:
        """Return what each feature recalls for this text, without those that fail or are late."""
        asked = [
            (feature, guard)
            for feature, guard in self._guarded
            if _overrides(feature, "turn_began")
            and guard.ask("may_recall", lambda feature=feature: bool(feature.may_recall(view, text)), False)  # type: ignore[misc]
        ]
        answers = self._ask(asked, "turn_began", lambda feature: feature.turn_began(view, text))
        return [Recalled(by, text, origin) for by, text, origin in answers]

    def compressing(self, view: SessionView) -> str:
        """Return what the summary should not miss."""
        asked = [(feature, guard) for feature, guard in self._guarded if _overrides(feature, "compressing")]
        answers = self._ask(asked, "compressing", lambda feature: feature.compressing(view))
        return "\n\n".join(text for _, text, _ in answers)

    def _ask(
        self, asked: Sequence[tuple[Feature, Guard]], what: str, question: Callable[[Feature], object]
    ) -> list[tuple[str, str, Origin | None]]:
        """Ask slow features in threads of their own, and meanwhile those that answer at once in this thread."""
        begun = time.monotonic()
        aside = {
            at: guard.begin(what, partial(question, feature))
            for at, (feature, guard) in enumerate(asked)
            if not getattr(feature, "at_once", False)
        }
        here = {
            at: guard.begin(what, partial(question, feature), wait=False)
            for at, (feature, guard) in enumerate(asked)
            if at not in aside and not guard.left_out(what)
        }
        found = []
        for at, (feature, guard) in enumerate(asked):
            call = aside.get(at) or here.get(at)
            if call is None:
                continue
            deadline = getattr(feature, "deadline", Feature.deadline)
            text = guard.answer(call, "", max(deadline - (time.monotonic() - begun), 0.0), of=deadline)
            if not isinstance(text, str):
                guard.count(what, f"answered with {type(text).__name__}, not with text")
            elif text.strip():
                origin = getattr(feature, "origin", Origin.RECALL) if getattr(feature, "outside", True) else None
                found.append((guard.name, text, origin))
        self._warn()
        return found

    # ── events: one feature after the other, in this thread ──

    def opened(self, view: SessionView) -> None:
        self._notify("opened", lambda feature: feature.opened(view))

    def completed(self, view: SessionView, turn: CompletedTurn) -> None:
        self._notify("turn_completed", lambda feature: feature.turn_completed(view, turn))

    def written(self, view: SessionView, write: MemoryWrite) -> None:
        self._notify("memory_written", lambda feature: feature.memory_written(view, write))

    def switched(self, old: SessionView, new: SessionView, reason: str, *, reset: bool = False) -> None:
        self._notify("switched", lambda feature: feature.switched(old, new, reason, reset))

    def closing(self, view: SessionView, reason: str) -> None:
        self._notify("closing", lambda feature: feature.closing(view, reason))

    def _notify(self, what: str, event: Callable[[Feature], None]) -> None:
        """Report an event to each feature, even if Ctrl-C or a signal interrupts one of them."""
        stopped: BaseException | None = None
        for feature, guard in self._guarded:
            if _overrides(feature, what):
                try:
                    guard.ask(what, lambda feature=feature: event(feature), None)  # type: ignore[misc]
                except (KeyboardInterrupt, SystemExit) as exc:
                    stopped = exc
        self._warn()
        if stopped is not None:
            raise stopped

    def _note(self, trouble: Trouble) -> None:
        """Show each kind of failure once per session. Called from any thread."""
        kind = (trouble.name, trouble.what)
        if kind in self._known:
            return
        self._known.add(kind)
        sentence = f"{trouble.name} failed at {trouble.what} ({trouble.why}); the session goes on without it."
        self._troubles.append(sentence)
        self._unsaid.append(sentence)

    def _warn(self) -> None:
        """Raise warnings in the thread of the session, where the caller can catch them."""
        while self._unsaid:
            warnings.warn(self._unsaid.popleft(), HermaWarning, stacklevel=3)


def guard_of(feature: object) -> Guard:
    """Return a plugin's own guard, or a new one for a feature of Herma."""
    own = getattr(feature, "guard", None)
    return own if isinstance(own, Guard) else Guard(str(getattr(feature, "name", "") or type(feature).__name__))


def _overrides(feature: Feature, what: str) -> bool:
    """Return whether the feature overrides a method of `Feature`."""
    return getattr(type(feature), what, None) is not getattr(Feature, what)


# ── what features add to the prompt ──


def prompt_with(
    tiers: Tiers,
    dispatcher: FeatureDispatcher,
    view: SessionView,
    *,
    room: tuple[int, int],
    count: Callable[[str], int],
    rehearsal: bool = False,
) -> Prompt:
    """Assemble the prompt with what features add. `room`: tokens for the system prompt, and for memory within it."""
    contributors = dispatcher.contributors
    if not contributors:
        return assemble(tiers)
    bare = assemble(tiers).text
    memory = memory_of(bare)
    taken = count(memory)
    request = PromptRequest(
        view,
        system_tokens=max(0, room[0] - count(bare) + taken),
        memory_tokens=max(0, room[1] - taken),
        count=count,
        rehearsal=rehearsal,
    )
    gathered, troubles = contributions(contributors, request)
    with_them = replace(
        tiers,
        skills="\n\n".join(filter(None, (tiers.skills, *(one.skills for one in gathered)))),
        episodes=(*tiers.episodes, *(line for one in gathered for line in one.episodes)),
        providers=(*tiers.providers, *(block for one in gathered for block in one.providers)),
        hints=(*tiers.hints, *(hint for one in gathered for hint in one.hints)),
    )
    if with_them.skills and "skills" not in with_them.guidance:
        with_them = replace(with_them, guidance=(*with_them.guidance, "skills"))
    said = [warning for one in gathered for warning in one.warnings]
    prompt = assemble(with_them)
    return replace(prompt, warnings=(*prompt.warnings, *said, *troubles))


def contributions(features: Sequence[Feature], request: PromptRequest) -> tuple[list[PromptContribution], list[str]]:
    """Return the contributions, and failures in words.

    Features with a `contribution_deadline` run in threads of their own, at the same time; others in this thread.
    """
    begun = time.monotonic()
    asked = []
    for feature in features:
        guard, deadline = guard_of(feature), feature.contribution_deadline
        question = partial(feature.contribute, request)
        asked.append((deadline, guard, guard.begin("contribute", question, wait=deadline is not None)))
    found: list[PromptContribution] = []
    troubles: list[str] = []
    for deadline, guard, call in asked:
        failures = guard.health.failures
        left = None if deadline is None else max(deadline - (time.monotonic() - begun), 0.0)
        given = None if call is None else guard.answer(call, None, left)
        if given is None:
            given = PromptContribution()
        if isinstance(given, PromptContribution):
            found.append(given)
        else:
            guard.count("contribute", f"answered with {type(given).__name__}")
        health = guard.health
        if health.failures > failures and health.last is not None:
            troubles.append(f"{guard.name} added nothing to the prompt ({health.last.why}).")
    return found, troubles


# ── what features recall for a turn ──

LARGEST = 12_000
"""Characters that one feature may add to a message."""
_READ = 200_000
"""Characters of recalled text that are read."""
_ITEM = re.compile(r"[-*•] |\d{1,3}[.)] ")
_SOURCE = re.compile(r"\[from [\w, -]{1,200}\] ")
"""Marks the provider that recalled an item."""
_PARAGRAPH = re.compile(r"\n[ \t]*\n")


def fit(recalled: Iterable[Recalled], said: set[str]) -> tuple[list[Recalled], list[str]]:
    """Scan recalled text, cut it to size and drop what was sent before. Return the rest and warnings; `said` grows."""
    kept: list[Recalled] = []
    warnings: list[str] = []
    for one in recalled:
        shown = show(ContextFile(one.by, one.text[:_READ]), LARGEST)
        warnings += shown.warnings
        text = without_repeats(shown.text, said)
        if text:
            kept.append(Recalled(one.by, text, one.origin))
    return kept, warnings


def without_repeats(text: str, said: set[str]) -> str:
    """Return `text` without the paragraphs and list items in `said`, and add the rest to it."""
    left: list[str] = []
    fresh: set[str] = set()
    for paragraph in _PARAGRAPH.split(text):
        kept, keys = _fresh_lines(paragraph.split("\n"), said)
        fresh |= keys
        if kept:
            left.append("\n".join(kept))
    said |= fresh
    return "\n\n".join(left).strip() if fresh else ""


def recalled_units(messages: Sequence[Message]) -> set[str]:
    """Return the paragraphs and list items that a conversation was sent as recalled text."""
    said: set[str] = set()
    for message in messages:
        if message.sent is not None:
            without_repeats(recalled_in(message.sent).removesuffix(f"\n</{TAG}>"), said)
    return said


def _fresh_lines(lines: Sequence[str], said: set[str]) -> tuple[list[str], set[str]]:
    """Return the lines of a paragraph that are new, with their keys. A list is compared item by item."""
    if not any(map(is_item, lines)):
        key = unit_key("\n".join(lines))
        if not key or (len(lines) == 1 and key.startswith("#")):
            return list(lines) if key else [], set()
        return ([], set()) if key in said else (list(lines), {key})
    kept: list[str] = []
    keys: set[str] = set()
    dropped = False
    for line in lines:
        if is_item(line):
            dropped = unit_key(line) in said
            keys |= set() if dropped else {unit_key(line)}
        elif not line[:1].isspace():
            dropped = False
        if not dropped:
            kept.append(line)
    return (kept, keys) if keys else ([], set())


def is_item(line: str) -> bool:
    """Say whether a line begins an item of a list."""
    return bool(item_mark(line.lstrip()))


def item_mark(line: str) -> str:
    """Return what a list item begins with; "" for other lines."""
    found = _ITEM.match(line)
    return found[0] if found else ""


def unit_key(text: str) -> str:
    """Return what two recalled items have in common if they say the same, whichever provider recalled them."""
    bare = text.lstrip()
    return " ".join(_SOURCE.sub("", bare[len(item_mark(bare)) :], count=1).split())
