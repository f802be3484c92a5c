"""The compressor: prune, choose, summarise, check. It decides; the session commits.

A model that fails never costs a message: the next one is asked, then the conversation's own words do, or nothing is
changed; each is reported. What was tried is remembered, so that a failing model is left alone for a while and a
conversation that does not get shorter is not compressed over and over.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Self, TypeVar

from herma.errors import ModelBroken, ModelError, ModelRefused, ModelTimeout, SpendRefused
from herma.ports import ChatModel, CompressionRows, EngineNeeds, EngineOptions, TokenCounter
from herma.prompt.families import window_of
from herma.prompt.weight import count_message
from herma.reflect.compress.ask import portions, request
from herma.reflect.compress.boundaries import Cut, choose
from herma.reflect.compress.extract import extract, last_request, plain_text
from herma.reflect.compress.fidelity import Survey, Verdict, check, mend
from herma.reflect.compress.prune import prune
from herma.reflect.compress.summary import STANDS, Summary, parse, render, stands_in
from herma.reflect.compress.vetting import fit_to_repeat, vetted
from herma.reflect.pauses import at_a_persons_wish, was_of_no_use, was_of_use
from herma.transcript.replay import as_sent
from herma.types import Compression, Condensed, How, LeftAlone, Message, Usage

T = TypeVar("T")
_ENOUGH = 0.6
"""Of the threshold: pruning that comes down to this spares the summary."""
_WAITS = (60.0, 300.0, 900.0)
"""Seconds for which a model that failed is left alone, each time longer."""
_REFUSED_WAIT = 600.0
_MOST_INEFFECTIVE = 2
_IN_VAIN = (
    f"The conversation was shortened {_MOST_INEFFECTIVE} times and still fills the window, so it is not shortened by "
    "itself any more. Begin a new one, or call compress()."
)
_REPEATED = 1_500
"""Characters of a last request that the summary repeats; the tail has it in any case."""
_SMALLEST, _LARGEST = 400, 10_000
_SHORTER = 0.95
"""Of what there was: a conversation that would not become shorter than this stays as it is."""


class Compressor:
    """Implements `ContextEngine`."""

    name = "compressor"

    def __init__(
        self,
        conversation: str,
        window: int,
        counter: TokenCounter,
        rows: CompressionRows,
        *,
        models: Callable[[], Sequence[ChatModel]] = tuple,
        options: EngineOptions | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._conversation = conversation
        self._counter = counter
        self._rows = rows
        self._models = models
        self._options = options or EngineOptions()
        self._clock = clock
        self._window = window
        self._judged = True
        self.held_back = ""
        """Why nothing is done although the window fills, for people."""
        self.threshold = max(1, int(window * self._options.threshold))

    @classmethod
    def of(cls, needs: EngineNeeds) -> Self:
        return cls(
            needs.conversation,
            needs.window,
            needs.counter,
            needs.rows,
            models=needs.models,
            options=needs.options,
            clock=needs.clock,
        )

    # ── what the session tells ──

    def on_session_start(self, session_id: str, *, boundary_reason: str, old_session_id: str = "") -> None:
        """The conversation stays the same, and with it what was tried."""

    def on_session_end(self, session_id: str, messages: Sequence[Message]) -> None:
        """Nothing is held."""

    def on_reset(self) -> None:
        self._judged = True

    def update_from_response(self, usage: Usage) -> None:
        """The first call after a compression shows whether it helped."""
        took = usage.input + usage.cache_read + usage.cache_write
        if self._judged or not took:
            return
        self._judged = True
        tries = self._rows.tries(self._conversation)
        ineffective = tries.ineffective + 1 if took >= self.threshold else 0
        self._rows.remember(self._conversation, replace(tries, ineffective=ineffective))

    # ── what it is asked ──

    def should_compress(self, prompt_tokens: int) -> bool:
        if not self._options.enabled or prompt_tokens < self.threshold:
            return False
        self.held_back = _IN_VAIN if self._rows.tries(self._conversation).ineffective >= _MOST_INEFFECTIVE else ""
        return not self.held_back

    def compress(
        self,
        messages: Sequence[Message],
        *,
        current_tokens: int,
        focus_topic: str = "",
        force: bool = False,
        memory_context: str = "",
    ) -> Compression:
        weights = [self._weight(message) for message in messages]
        fixed = max(0, current_tokens - sum(weights))
        room = max(self.threshold - fixed, self.threshold // 4)
        if force:  # a person wants it shorter than it is, however much would fit
            room = min(room, sum(weights))
        cut = choose(messages, weights, int(room * self._options.tail), head=self._head(messages))
        if cut.empty:
            return LeftAlone("There is too little between the first request and the last one to make it shorter.")
        pruned = prune(messages, cut.tail, self._counter.count)
        after = fixed + sum(map(self._weight, pruned))
        if not force and after <= self.threshold * _ENOUGH:
            return Condensed(tuple(pruned), "pruned", current_tokens, after)
        cut = _alternating(pruned, cut)
        budget = self._budget(weights, cut)
        survey = fit_to_repeat(Survey.of(_between(pruned, cut)))
        work = _Work(pruned, cut, survey, last_request(messages), focus_topic, memory_context, budget)
        notes: list[str] = []
        for made in self._summaries(work, notes, force=force):
            stand_in = _assembled(pruned, cut, render(made.summary))
            after = fixed + sum(map(self._weight, stand_in))
            if after < current_tokens * _SHORTER:
                self._judged = False
                kept = {kind: round(made.verdict.share(kind), 4) for kind in made.verdict.there}
                told = tuple(dict.fromkeys(notes))
                return Condensed(tuple(stand_in), made.how, current_tokens, after, cut.replaced, kept, told, made.model)
            notes.append("What has to be kept would be as long as the conversation itself.")
        if notes and self._options.on_failure == "abort":
            return LeftAlone("No model could summarise it, and compression.on_failure is abort.", tuple(notes))
        return LeftAlone("What has to be kept would be as long as the conversation itself.", tuple(notes))

    # ── steps ──

    def _summaries(self, work: _Work, notes: list[str], *, force: bool) -> Iterator[_Made]:
        """By a model, then of the conversation's own words: each mended until it names what it must."""
        written = self._written(work, notes, force=force)
        if written is not None:
            summary, model = written
            made = self._mended(work, summary, notes, "model", model)
            if made.verdict.passed:
                yield made
            else:
                notes.append(f"{model}: the summary lacks what the work hangs on, so it was not used.")
        if notes and written is None and self._options.on_failure == "abort":
            return
        own: list[str] = []
        for scale in (1.0, 0.6, 0.35, 0.2):
            own.clear()
            extracted = extract(work.middle, work.previous, scale=scale, paths=work.survey.paths())
            made = self._mended(work, extracted, own, "extract")
            if work.fits(render(made.summary), self._counter.count):
                break
        if notes:
            notes.append("The summary was put together from the conversation's own words.")
        notes += own
        yield made

    def _mended(self, work: _Work, summary: Summary, notes: list[str], how: How, model: str = "") -> _Made:
        asked = work.last_request if len(work.last_request) <= _REPEATED else ""
        clean, dropped = vetted(Summary(summary.lines, asked))
        mended, verdict = mend(work.survey, clean, asked, lambda text: work.fits(text, self._counter.count))
        final, also_dropped = vetted(mended)
        if also_dropped:
            verdict = check(work.survey, final, asked)
        notes += dropped + also_dropped
        return _Made(final, verdict, how, model)

    def _written(self, work: _Work, notes: list[str], *, force: bool) -> tuple[Summary, str] | None:
        """What the first model makes of it that answers with a summary."""
        tries = self._rows.tries(self._conversation)
        now = self._clock()
        models = self._models()
        if not models:
            return None
        if now < tries.not_before and not force:
            wait = int(tries.not_before - now)
            notes.append(f"The model failed before and is not asked again for {wait} seconds.")
            return None
        longest = 0.0
        for model in models:
            if force:
                at_a_persons_wish(model)
            try:
                summary = self._asked(model, work, notes)
            except ModelError as exc:
                notes.append(f"{model.name}: {exc}")
                step = _WAITS[min(tries.failures, len(_WAITS) - 1)]
                if not isinstance(exc, SpendRefused):  # then it was not asked, and did not fail
                    longest = max(longest, _REFUSED_WAIT if isinstance(exc, ModelRefused) else step)
                continue
            self._rows.remember(self._conversation, replace(tries, failures=0, not_before=0.0))
            return summary, model.name
        if longest:
            failed = replace(tries, failures=tries.failures + 1, not_before=now + longest)
            self._rows.remember(self._conversation, failed)
        return None

    def _asked(self, model: ChatModel, work: _Work, notes: list[str]) -> Summary:
        """The middle, piece by piece, each bringing the notes up to date."""
        known = {message.id for message in work.middle}
        if work.previous:
            known |= {number for lines in work.previous.lines.values() for line in lines for number in line.sources}
        summary = work.previous
        ends = time.monotonic() + self._options.deadline
        own = window_of(model.name)  # that of a smaller model may be smaller
        most = int(min(self._window, own.tokens if own.known else self._window) * 0.5)
        for piece in portions(work.middle, most, self._counter.count):
            left = ends - time.monotonic()
            if left <= 0:
                raise ModelTimeout(f"{model.name} did not finish the summary within {self._options.deadline:g} s.")
            asked = request(piece, work.tokens, previous=summary, focus=work.focus, outside=work.outside)
            reply = model.reply(asked, temperature=0.1, max_tokens=work.tokens * 2, deadline=left)
            summary = parse(reply.text, known.__contains__)
            if not summary.lines:
                why = "The model did not answer in the form that was asked for."
                rests = was_of_no_use(model, "there are no lines under the headings of a summary")
                raise ModelBroken(f"{why} {rests}".strip(), partial=reply.text)
            was_of_use(model)
            if reply.finish_reason == "length":
                notes.append(f"{model.name}: the summary was cut off at its longest; what it lacked was added.")
        return summary or Summary()

    def _budget(self, weights: Sequence[int], cut: Cut) -> int:
        middle = sum(_between(weights, cut))
        return max(_SMALLEST, min(middle // 5, int(self._window * 0.05), _LARGEST))

    def _head(self, messages: Sequence[Message]) -> int:
        """The beginning is kept the first time; later, what the summary says of it will do, itself not kept again."""
        if messages and stands_in(messages[0]):
            return 0
        again = any(map(stands_in, messages))
        return 1 if again else max(1, self._options.head)

    def _weight(self, message: Message) -> int:
        return message.tokens if message.tokens is not None else count_message(as_sent(message), self._counter.count)


@dataclass(frozen=True, slots=True)
class _Made:
    """A summary, what it keeps, and who wrote it."""

    summary: Summary
    verdict: Verdict
    how: How
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Work:
    """One conversation that is being shortened."""

    messages: Sequence[Message]
    cut: Cut
    survey: Survey
    last_request: str
    focus: str
    outside: str
    tokens: int
    """How long the summary may be."""

    @property
    def middle(self) -> Sequence[Message]:
        return _between(self.messages, self.cut)

    @property
    def previous(self) -> Summary | None:
        """The summary that is in the conversation already."""
        return next((parse(plain_text(message)) for message in self.middle if stands_in(message)), None)

    def fits(self, text: str, count: Callable[[str], int]) -> bool:
        return count(text) <= self.tokens * 1.5


def _between(items: Sequence[T], cut: Cut) -> list[T]:
    """What is summarised."""
    return [item for at, item in enumerate(items[cut.head : cut.tail], cut.head) if at != cut.request]


def _alternating(messages: Sequence[Message], cut: Cut) -> Cut:
    """A shorter head, or a longer tail where there is none, so that user and agent take turns round the summary."""
    head = cut.head
    if not head and _role(messages, cut) is None and cut.tail > 1:
        before = cut.tail - 1
        while before > 0 and messages[before].role == "tool":  # results stay with their call
            before -= 1
        return replace(cut, tail=before) if before and messages[before].role == "assistant" else cut
    while head > 0 and _role(messages, replace(cut, head=head)) is None:
        head -= 1
        while head > 0 and messages[head].role == "tool":
            head -= 1
    return replace(cut, head=head)


def _role(messages: Sequence[Message], cut: Cut) -> str | None:
    """Who may be taken to say the summary, so that nobody speaks twice in a row."""
    before = messages[cut.head - 1].role if cut.head else ""
    after = messages[cut.tail].role if cut.tail < len(messages) else ""
    before, after = "assistant" if before == "tool" else before, after if cut.request is None else "user"
    for role in ("user", "assistant"):
        if role not in (before, after) and (before or role == "user"):
            return role
    return None


def _assembled(messages: Sequence[Message], cut: Cut, summary: str) -> list[Message]:
    role = _role(messages, cut) or "user"
    stands = Message(role, summary, timestamp=messages[cut.tail - 1].timestamp, finish_reason=STANDS)
    request = [] if cut.request is None else [messages[cut.request]]
    return [*messages[: cut.head], stands, *request, *messages[cut.tail :]]
