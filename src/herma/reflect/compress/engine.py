"""The compressor: prune, choose, summarise, check. It decides; the session commits.

A model that fails never costs a message: the next one is asked, then the conversation's own words do, or nothing is
changed; each is reported. What was tried is remembered, so that a failing model is left alone for a while and a
conversation that does not get shorter is not compressed over and over.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from herma.errors import ModelBroken, ModelError, ModelRefused
from herma.ports import ChatModel, CompressionRows, TokenCounter
from herma.prompt.weight import count_message
from herma.reflect.compress.ask import portions, request
from herma.reflect.compress.boundaries import Cut, choose
from herma.reflect.compress.extract import extract, last_request, plain_text
from herma.reflect.compress.fidelity import Survey, Verdict, mend
from herma.reflect.compress.prune import prune
from herma.reflect.compress.summary import Summary, is_summary, parse, render
from herma.transcript.replay import as_sent
from herma.types import Compression, Condensed, How, LeftAlone, Message, Usage

_ENOUGH = 0.6
"""Of the threshold: pruning that comes down to this spares the summary."""
_WAITS = (60.0, 300.0, 900.0)
"""Seconds for which a model that failed is left alone, each time longer."""
_REFUSED_WAIT = 600.0
_MOST_INEFFECTIVE = 2
_REPEATED = 1_500
"""Characters of a last request that the summary repeats; the tail has it in any case."""
_SMALLEST, _LARGEST = 400, 10_000


@dataclass(frozen=True, slots=True)
class Options:
    """`compression.*` of the configuration."""

    enabled: bool = True
    threshold: float = 0.75
    tail: float = 0.3
    """Of the threshold: what stays as it is at the end."""
    head: int = 2
    on_failure: Literal["extract", "abort"] = "extract"
    deadline: float = 90.0


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
        models: Sequence[ChatModel] = (),
        options: Options | None = None,
        clock: Callable[[], float],
    ) -> None:
        self._conversation = conversation
        self._counter = counter
        self._rows = rows
        self._models = models
        self._options = options or Options()
        self._clock = clock
        self._window = window
        self._judged = True
        self.threshold = max(1, int(window * self._options.threshold))

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
        return self._rows.tries(self._conversation).ineffective < _MOST_INEFFECTIVE

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
        cut = choose(messages, weights, int(room * self._options.tail), head=self._head(messages))
        if cut.empty:
            return LeftAlone("There is too little between the first request and the last one to make it shorter.")
        pruned = prune(messages, cut.tail, self._counter.count)
        after = fixed + sum(map(self._weight, pruned))
        if not force and after <= self.threshold * _ENOUGH:
            return Condensed(tuple(pruned), "pruned", current_tokens, after)
        cut = _alternating(pruned, cut)
        budget = self._budget(weights, cut)
        survey = Survey.of(pruned[cut.head : cut.tail])
        work = _Work(pruned, cut, survey, last_request(messages), focus_topic, memory_context, budget)
        notes: list[str] = []
        made = self._summarised(work, notes, force=force)
        if made is None:
            return LeftAlone("No model could summarise it, and compression.on_failure is abort.", tuple(notes))
        summary, verdict, how, model = made
        stand_in = _assembled(pruned, cut, render(summary))
        after = fixed + sum(map(self._weight, stand_in))
        if after >= current_tokens * 0.95:
            return LeftAlone("What has to be kept would be as long as the conversation itself.", tuple(notes))
        self._judged = False
        kept = {kind: round(verdict.share(kind), 4) for kind in verdict.there}
        return Condensed(tuple(stand_in), how, current_tokens, after, cut.tail - cut.head, kept, tuple(notes), model)

    # ── steps ──

    def _summarised(self, work: _Work, notes: list[str], *, force: bool) -> tuple[Summary, Verdict, How, str] | None:
        """By a model, else of its own words: mended until it names what it must."""
        written = self._written(work, notes, force=force)
        if written is not None:
            summary, model = written
            return *self._mended(work, summary), "model", model
        if notes and self._options.on_failure == "abort":
            return None
        for scale in (1.0, 0.6, 0.35, 0.2):
            summary, verdict = self._mended(
                work, extract(work.middle, work.previous, scale=scale, paths=work.survey.paths())
            )
            if work.fits(render(summary), self._counter.count):
                break
        if notes:
            notes.append("The summary was put together from the conversation's own words.")
        return summary, verdict, "extract", ""

    def _mended(self, work: _Work, summary: Summary) -> tuple[Summary, Verdict]:
        asked = work.last_request if len(work.last_request) <= _REPEATED else ""
        return mend(
            work.survey,
            Summary(summary.lines, asked),
            asked,
            lambda text: work.fits(text, self._counter.count),
        )

    def _written(self, work: _Work, notes: list[str], *, force: bool) -> tuple[Summary, str] | None:
        """What the first model makes of it that answers with a summary."""
        tries = self._rows.tries(self._conversation)
        now = self._clock()
        if not self._models:
            return None
        if now < tries.not_before and not force:
            wait = int(tries.not_before - now)
            notes.append(f"The model failed before and is not asked again for {wait} seconds.")
            return None
        longest = 0.0
        for model in self._models:
            try:
                summary = self._asked(model, work)
            except ModelError as exc:
                notes.append(f"{model.name}: {exc}")
                step = _WAITS[min(tries.failures, len(_WAITS) - 1)]
                longest = max(longest, _REFUSED_WAIT if isinstance(exc, ModelRefused) else step)
                continue
            self._rows.remember(self._conversation, replace(tries, failures=0, not_before=0.0))
            return summary, model.name
        failed = replace(tries, failures=tries.failures + 1, not_before=now + longest)
        self._rows.remember(self._conversation, failed)
        return None

    def _asked(self, model: ChatModel, work: _Work) -> Summary:
        """The middle, piece by piece, each bringing the notes up to date."""
        known = {message.id for message in work.middle}
        if work.previous:
            known |= {number for lines in work.previous.lines.values() for line in lines for number in line.sources}
        summary = work.previous
        ends = self._clock() + self._options.deadline
        for piece in portions(work.middle, int(self._window * 0.5), self._counter.count):
            asked = request(piece, work.tokens, previous=summary, focus=work.focus, outside=work.outside)
            reply = model.reply(
                asked, temperature=0.1, max_tokens=work.tokens * 2, deadline=max(1.0, ends - self._clock())
            )
            summary = parse(reply.text, known.__contains__)
            if not summary.lines:
                raise ModelBroken("The model did not answer in the form that was asked for.", partial=reply.text)
        return summary or Summary()

    def _budget(self, weights: Sequence[int], cut: Cut) -> int:
        middle = sum(weights[cut.head : cut.tail])
        return max(_SMALLEST, min(middle // 5, int(self._window * 0.05), _LARGEST))

    def _head(self, messages: Sequence[Message]) -> int:
        """The beginning is kept the first time; later, what the summary says of it will do."""
        return 1 if any(is_summary(plain_text(message)) for message in messages) else self._options.head

    def _weight(self, message: Message) -> int:
        return message.tokens if message.tokens is not None else count_message(as_sent(message), self._counter.count)


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
        return self.messages[self.cut.head : self.cut.tail]

    @property
    def previous(self) -> Summary | None:
        """The summary that is in the conversation already."""
        texts = (plain_text(message) for message in self.middle)
        return next((parse(text) for text in texts if is_summary(text)), None)

    def fits(self, text: str, count: Callable[[str], int]) -> bool:
        return count(text) <= self.tokens * 1.5


def _alternating(messages: Sequence[Message], cut: Cut) -> Cut:
    """A shorter head where that lets user and agent take turns with the summary between them."""
    head = cut.head
    while head > 0 and _role(messages, Cut(head, cut.tail)) is None:
        head -= 1
        while head > 0 and messages[head].role == "tool":
            head -= 1
    return Cut(head, cut.tail)


def _role(messages: Sequence[Message], cut: Cut) -> str | None:
    """Who may be taken to say the summary, so that nobody speaks twice in a row."""
    before = messages[cut.head - 1].role if cut.head else ""
    after = messages[cut.tail].role if cut.tail < len(messages) else ""
    before = "assistant" if before == "tool" else before
    for role in ("user", "assistant"):
        if role not in (before, after) and (before or role == "user"):
            return role
    return None


def _assembled(messages: Sequence[Message], cut: Cut, summary: str) -> list[Message]:
    role = _role(messages, cut) or "user"
    timestamp = messages[cut.tail - 1].timestamp
    return [*messages[: cut.head], Message(role, summary, timestamp=timestamp), *messages[cut.tail :]]
