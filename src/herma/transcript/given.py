"""What callers hand to transcripts, checked at the door: what cannot be meant is one sentence, and changes nothing.

Python would take most of it further, and SQLite takes almost anything: a text compares as larger than every number, so
that "up to message 'a'" would be all messages.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar, cast, get_args

from herma.errors import UsageError
from herma.transcript.wire import MOST
from herma.types import Reason, SessionFilter, SessionInfo, Usage, Whereabouts

T = TypeVar("T")
LONGEST_ID = 200
MOST_ID = 2**62
"""Larger than the number of any message; SQLite counts to twice as much."""


def new_session_id(now: float) -> str:
    """Readable, sorted by time, unique: 20261231_235959_1a2b3c4d."""
    return f"{time.strftime('%Y%m%d_%H%M%S', time.localtime(now))}_{secrets.token_hex(4)}"


def text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{what} is text, not {type(value).__name__}.", hint="Give it as a string.")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise UsageError(f"{what} has half a character in it.", hint="Give it as whole Unicode text.") from None
    return value


def number(what: str, value: object, least: int = 0) -> int:
    """A whole number that no database has trouble with; the very large ones mean: no limit."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise UsageError(f"{what} is a whole number, not {type(value).__name__}.", hint="For example: 20.")
    return min(max(value, least), MOST_ID)


def moment(what: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
        raise UsageError(f"{what} is seconds since 1970, not {value!r:.40}.", hint="For example: time.time().")
    return float(value)


def length(what: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
        raise UsageError(f"{what} is a number of days, not {value!r:.40}.", hint="For example: 90.")
    return float(value)


def ids(session_ids: str | Sequence[str]) -> list[str]:
    """One id, or several."""
    if isinstance(session_ids, str):
        return [text("The id of a session", session_ids)]
    if not isinstance(session_ids, Iterable) or isinstance(session_ids, Mapping | bytes):
        raise UsageError(
            f"Sessions are named by their ids, not by {type(session_ids).__name__}.", hint="Give a string, or a list."
        )
    return [text("The id of a session", session_id) for session_id in session_ids]


def kind(what: str, value: object, wanted: type[T]) -> T:
    if not isinstance(value, wanted):
        raise UsageError(
            f"{what} is a {wanted.__name__}, not {type(value).__name__}.",
            hint=f"It is made by {wanted.__module__}.{wanted.__name__}(…).",
        )
    return value


def session_filter(which: SessionFilter | None) -> SessionFilter:
    """Each field of a type that compares as it is meant."""
    chosen = SessionFilter() if which is None else kind("What is looked for", which, SessionFilter)
    for name in (item.name for item in fields(chosen)):
        value, what = getattr(chosen, name), f"{name} in a SessionFilter"
        if value is None:
            continue
        if name.startswith(("min_", "max_", "started_", "active_")):
            if not isinstance(value, int | float) or isinstance(value, bool) or not -MOST <= value <= MOST:
                raise UsageError(f"{what} cannot be {value!r:.40}.", hint="It is a number; leave it out for no bound.")
        elif name in ("archived", "delegated"):
            kind(what, value, bool)
        elif name == "exclude_sources":
            for source in kind(what, value, tuple):
                text(what, source)
        else:
            text(what, value)
    return chosen


def session_id(value: object) -> str:
    """An id that a caller chose for a new session."""
    given = text("The id of a session", value) if not isinstance(value, str) else value
    if not given or len(given) > LONGEST_ID or not given.isprintable() or given.strip() != given:
        raise UsageError(
            f"{given[:LONGEST_ID]!r} cannot be the id of a session.",
            hint=f"An id is 1 to {LONGEST_ID} printable characters without spaces at its ends.",
        )
    return given


def reason(value: object, parent: str | None) -> Reason:
    if value is None:
        return "resume" if parent else "new"
    for known in get_args(Reason):
        if value == known:
            return known  # type: ignore[no-any-return]
    raise UsageError(f"{value!r:.40} is no reason for a session.", hint=f"One of: {', '.join(get_args(Reason))}.")


def beginning(session: SessionInfo, system_prompt: str | None) -> SessionInfo:
    """A session that is about to be kept."""
    text("The source of a session", session.source)
    for name in ("profile", "project", "user", "chat"):
        text(f"The {name} of a session", getattr(session.scope, name))
    for name in Whereabouts.__annotations__:
        text(f"The {name.replace('_', ' ')} of a session", getattr(session, name))
    for what, value in (("model", session.model), ("parent", session.parent), ("system prompt", system_prompt)):
        if value is not None:
            text(f"The {what} of a session", value)
    return session


def place(whereabouts: Mapping[str, Any]) -> Whereabouts:
    for name in whereabouts:
        if name not in Whereabouts.__annotations__:
            raise UsageError(
                f"A session has no {name!r}.", hint=f"Where it takes place: {', '.join(Whereabouts.__annotations__)}."
            )
    return cast(Whereabouts, whereabouts)


def usage(value: object) -> Usage:
    """Tokens and money that can be added to what was spent before."""
    given = kind("What a session cost", value, Usage)
    for item in fields(given):
        amount = getattr(given, item.name)
        wanted = int | float if item.name == "cost_usd" else int
        if not isinstance(amount, wanted) or isinstance(amount, bool) or not -MOST <= amount <= MOST:
            raise UsageError(
                f"A session cannot cost {amount!r:.40} as {item.name}; nothing was counted.",
                hint="Tokens are whole numbers, cost_usd is dollars.",
            )
    return given


def unknown(session_id: object) -> UsageError:
    return UsageError(f"There is no session {session_id!r:.220}.", hint="`herma sessions list` shows them.")
