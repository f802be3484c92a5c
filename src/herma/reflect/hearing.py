"""What a conversation rests on: who said what in it, and what there is to compare a new entry with."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from herma.curated import MemoryStore
from herma.curated.entries import parse, unique
from herma.curated.trust import Heard
from herma.errors import UsageError
from herma.prompt.snapshot import RULE
from herma.reflect.ear import Ear
from herma.reflect.grounds import Grounds
from herma.reflect.precision import Known
from herma.reflect.tombstones import Tombstone, tombstones
from herma.transcript.wire import text_of
from herma.types import TARGETS, Message, Origin, Remove, Scope, SessionView, Target

_PIECE, _PIECES = 2_000, 100
_CHANGES = 400
"""Newest changes of a document in which removed entries are looked for."""
_MEMORY_BEGINS = f"\n\n{RULE}\n"
_MEMORY_ENDS = "\n\nThis conversation began on "


@dataclass(frozen=True, slots=True)
class Overheard:
    """Who said what: for repetitions to the letter, and as texts."""

    by: Heard
    outside: tuple[str, ...]
    said: tuple[Message, ...]
    grounds: Grounds | None = None
    """Everything that stood in it."""


def listen(view: SessionView, entries: Sequence[str]) -> Overheard:
    """Everything that was heard in a conversation. What memory itself says is nobody's word: it is known already."""
    ear = Ear()
    ear.listen(view.messages)
    tools = [text_of(one.content) for one in view.messages if one.role == "tool" and one.tool_name != "memory"]
    injected = [_without(text, entries) for text in (*_injected(view), *_said_in_prompt(view))]
    for text in injected:
        ear.heard.add(text, Origin.TOOL_OUTPUT)
    pieces = [text[at : at + _PIECE] for text in (*tools, *injected) for at in range(0, len(text), _PIECE)]
    said = tuple(one for one in view.messages if one.role == "user")
    grounds = Grounds(_everything(view, entries), [text_of(one.content) for one in said])
    return Overheard(ear.heard, tuple(pieces[-_PIECES:]), said, grounds)


def _everything(view: SessionView, entries: Sequence[str]) -> Iterator[str]:
    """Whatever the model had before it: the prompt, what was said and sent, its calls and their results."""
    yield view.system_prompt
    yield from entries
    for message in view.messages:
        yield text_of(message.content)
        if message.sent is not None:
            yield text_of(message.sent)
        for call in message.tool_calls:
            yield str(call.get("function", ""))


def _injected(view: SessionView) -> list[str]:
    """What others recalled into the user's messages."""
    found = []
    for message in view.messages:
        content, sent = text_of(message.content), text_of(message.sent)
        if message.role == "user" and sent.startswith(content) and len(sent) > len(content):
            found.append(sent[len(content) :])
    return found


def _said_in_prompt(view: SessionView) -> list[str]:
    """The part of the prompt that is memory: earlier work, and what external memories say."""
    start = view.system_prompt.find(_MEMORY_BEGINS)
    end = view.system_prompt.rfind(_MEMORY_ENDS)
    return [view.system_prompt[start:end]] if 0 <= start < end else []


def _without(text: str, entries: Sequence[str]) -> str:
    for entry in entries:
        text = text.replace(entry, " ")
    return text


def standing(store: MemoryStore, target: Target, scope: Scope) -> list[str]:
    """The entries of a document; none where it is switched off."""
    try:
        return store.entries(target, scope=scope)
    except UsageError:
        return []


class Shelf:
    """Curated memory as a session of this scope knows it: what stands, what waits, what is gone."""

    def __init__(self, store: MemoryStore, elsewhere: Callable[[Target, Scope], Sequence[str]] = lambda *_: ()) -> None:
        self._store = store
        self._elsewhere = elsewhere

    def entries(self, scope: Scope) -> list[str]:
        """Of every document that such a session is shown."""
        places = [("memory", replace(scope, project="")), ("user", scope)]
        if scope.project:
            places.append(("memory", scope))
        return unique(entry for target, where in places for entry in standing(self._store, target, where))  # type: ignore[arg-type]

    def known(self, heard: Overheard) -> Callable[[Target, Scope], Known]:
        """What a new entry has to be compared with."""

        def of(target: Target, scope: Scope) -> Known:
            standing = [*self.entries(scope), *self._waiting(target), *self._elsewhere(target, scope)]
            return Known(standing, self._gone(target, scope), heard.said, heard.outside, heard.grounds)

        return of

    def _waiting(self, target: Target) -> list[str]:
        pending = [one for one in self._store.pending() if one.target == target]
        return [op.content for one in pending for op in one.operations if not isinstance(op, Remove)]

    def _gone(self, target: Target, scope: Scope) -> list[Tombstone]:
        found: list[Tombstone] = []
        for where in dict.fromkeys((scope, replace(scope, project=""))):
            changes = self._store.history(target, scope=where, limit=_CHANGES)
            found += tombstones(changes, lambda text: unique(parse(text)))
        return found

    def enabled(self, scope: Scope) -> list[Target]:
        """Which documents there are."""
        on: list[Target] = []
        for target in TARGETS:
            try:
                self._store.entries(target, scope=scope)
            except UsageError:
                continue
            on.append(target)
        return on
