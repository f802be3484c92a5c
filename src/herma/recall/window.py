"""A match in its surroundings: the turns around it, and how the conversation began and ended. Bounded in characters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from herma.ports import Spot, Surroundings, TranscriptReader
from herma.ports.search import Shown
from herma.recall.match import Unit, fold
from herma.recall.snippet import matches
from herma.safety.noise import without_noise
from herma.transcript import Transcripts
from herma.transcript.wire import text_of
from herma.types import Hit, Message, SessionInfo

WINDOW = 5
"""Turns on each side of a match."""
BOOKEND = 3
"""Messages with text that begin and end a conversation."""
FULL, BRIEF = 4_000, 1_200
"""Characters of a message in the first hit, and in the others."""
LEAST = 120
"""Characters that a message keeps however little room there is."""


class Line(NamedTuple):
    """A message as it is shown: its text perhaps shortened, in which case `left_out` characters are missing."""

    message: Message | Shown
    text: str
    left_out: int = 0
    anchor: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """A window and its bookends. `before` and `after` are the neighbours shown on each side of the anchor."""

    messages: tuple[Line, ...]
    start: tuple[Line, ...] = ()
    end: tuple[Line, ...] = ()
    before: int = 0
    after: int = 0
    anchor: Message | None = None
    """Where one message was asked for: all of it."""

    @property
    def shortened(self) -> bool:
        return any(line.left_out for line in (*self.messages, *self.start, *self.end))


def around(transcripts: Transcripts, message_id: int, window: int) -> View | None:
    """The message with its neighbours; rewound ones are never among them. None when there is no such message."""
    messages = transcripts.around(message_id, window)
    place = next((at for at, message in enumerate(messages) if message.id == message_id), None)
    if place is None:
        return None
    lines = tuple(_line(message, message.id == message_id) for message in messages)
    return View(lines, before=place, after=len(messages) - place - 1, anchor=messages[place])


@dataclass(frozen=True, slots=True)
class Context:
    """A hit in its surroundings, and the sessions of its conversation, oldest first."""

    view: View
    members: Sequence[SessionInfo] = ()


def in_context(
    reader: TranscriptReader, hits: Sequence[Hit], known: Mapping[str, Sequence[SessionInfo]], window: int = WINDOW
) -> list[Context]:
    """For each hit its neighbours, and what user and assistant said first and last in the whole conversation, outside
    of these. Everything is read at once for all of them. `known`: the sessions of conversations, if they were read.
    """
    unread = [hit.conversation for hit in hits if hit.conversation not in known]
    members = {**known, **reader.members(unread)} if unread else known
    spots = [Spot(hit.message_id, *_ends(hit.session_id, members[hit.conversation])) for hit in hits]
    return [
        Context(_view(hit.message_id, found), members[hit.conversation])
        for hit, found in zip(hits, reader.surroundings(spots, window, BOOKEND), strict=True)
    ]


def _ends(here: str, members: Sequence[SessionInfo]) -> tuple[str, str]:
    """The sessions in which a conversation begins and ends; those without messages say nothing."""
    parts = [member.id for member in members if member.message_count or member.id == here] or [here]
    return parts[0], parts[-1]


def _view(anchor: int, found: Surroundings) -> View:
    place = next((at for at, message in enumerate(found.messages) if message.id == anchor), None)
    if place is None:
        return View(())
    messages = tuple(_line(message, message.id == anchor) for message in found.messages)
    return View(messages, lines(found.start), lines(found.end), before=place, after=len(messages) - place - 1)


def lines(messages: Sequence[Message | Shown]) -> tuple[Line, ...]:
    return tuple(map(_line, messages))


def fit(view: View, units: Sequence[Unit], each: int, total: int, own: int = 0) -> View:
    """The view within so many characters a message and in all; the anchor keeps its own room (`each`, if it is not
    said), the rest share.
    """
    anchor, own = next((line for line in view.messages if line.anchor), None), own or each
    left = total - min(len(anchor.text), own) if anchor else total
    others = [len(line.text) for line in (*view.messages, *view.start, *view.end) if not line.anchor]
    if sum(others) <= left and max(others, default=0) <= each and (anchor is None or len(anchor.text) <= own):
        return view
    share = _fair(others, each, left)

    def cut(line: Line) -> Line:
        return shorten(line, own if line.anchor else share, units if line.anchor else ())

    return replace(
        view,
        messages=tuple(map(cut, view.messages)),
        start=tuple(map(cut, view.start)),
        end=tuple(map(cut, view.end)),
    )


def from_offset(view: View, offset: int) -> View:
    """The view with the anchor's text from there on."""
    lines = tuple(line._replace(text=line.text[offset:]) if line.anchor else line for line in view.messages)
    return replace(view, messages=lines)


def shorten(line: Line, most: int, units: Sequence[Unit] = ()) -> Line:
    """At most so many characters: the beginning, or the part round the first match."""
    text = line.text
    if len(text) <= most:
        return line
    places = matches(text, fold(text), units) if units else []
    start = max(0, min(places[0][0][0] - most // 3, len(text) - most)) if places else 0
    kept = ("…" if start else "") + text[start : start + most] + ("…" if start + most < len(text) else "")
    return line._replace(text=kept, left_out=len(text) - most)


def _fair(lengths: Sequence[int], each: int, total: int) -> int:
    """The largest limit per message (at most `each`) with which all of them together stay within `total`."""
    left, waiting = total, sorted(lengths)
    for at, length in enumerate(waiting):
        share = left // (len(waiting) - at)
        if min(length, each) > share:
            return max(LEAST, min(each, share))
        left -= min(length, each)
    return each


def _line(message: Message | Shown, anchor: bool = False) -> Line:
    return Line(message, without_noise(text_of(message.content)), 0, anchor)
