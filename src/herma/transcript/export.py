"""Transcripts as JSON lines: a header, then each session followed by its messages. Importing them gives the same back.

What can be counted again is left out (counts, previews, numbers of messages), so two exports of the same sessions are
the same bytes, wherever they were imported to in between. A line never holds a character that could steer a terminal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from herma.transcript.log import Transcripts
from herma.types import Message, SessionFilter, SessionInfo, Usage, Whereabouts

FORMAT = "transcripts"
VERSION = 1
LONGEST_LINE = 50 * 1024 * 1024
"""Bytes of a line that an import reads at most."""
SLICE = 500
"""Messages that are read at a time."""
_UNSAFE = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
_OPTIONAL = ("content", "tool_call_id", "tool_name", "reasoning", "sent", "told", "tokens", "finish_reason")


@dataclass(frozen=True, slots=True)
class Told:
    """One session to be written somewhere. Its profile is named only if it is not the home's own: what is imported
    belongs to the profile that it is imported to.
    """

    session: SessionInfo
    system_prompt: str | None = None
    home_profile: str = ""


def chosen(transcripts: Transcripts, session_ids: Sequence[str]) -> list[SessionInfo]:
    """The whole conversations that these sessions belong to, with everything that was delegated from them."""
    return _in_order(transcripts.delete(session_ids, dry_run=True).sessions)


def everything(transcripts: Transcripts) -> list[SessionInfo]:
    """Every session that is not deleted: archived ones and subagents too."""
    return _in_order(transcripts._queries.matching(SessionFilter()))


def told(transcripts: Transcripts, sessions: Sequence[SessionInfo]) -> Iterator[Told]:
    """Each session as it is to be written. A parent that is nowhere any more is not named."""
    here = {session.id for session in sessions}
    for session in sessions:
        parent = session.parent
        gone = parent is not None and parent not in here and transcripts.get(parent) is None
        kept = replace(session, parent=None) if gone else session
        yield Told(kept, transcripts.system_prompt(session.id), transcripts._profile)


def messages_of(transcripts: Transcripts, session_id: str) -> Iterator[Message]:
    """Every message in order, hidden ones too, a few at a time."""
    after: int | None = None
    while some := transcripts.messages(session_id, include_hidden=True, after=after, limit=SLICE):
        yield from some
        after = some[-1].id


# ── lines ──


def header() -> str:
    return _line({"type": "herma", "format": FORMAT, "version": VERSION})


def session_line(one: Told) -> str:
    session = one.session
    value: dict[str, Any] = {
        "type": "session",
        "id": session.id,
        "source": session.source,
        "started": session.started,
        "reason": session.reason,
    }
    for name in ("parent", "title", "model", "ended", "end_reason"):
        if getattr(session, name) is not None:
            value[name] = getattr(session, name)
    if session.scope.profile != one.home_profile:
        value["profile"] = session.scope.profile
    value |= {name: at for name in ("project", "user", "chat") if (at := getattr(session.scope, name))}
    value |= {name: at for name in Whereabouts.__annotations__ if (at := getattr(session, name))}
    if session.archived:
        value["archived"] = True
    if session.usage != Usage():
        value["usage"] = asdict(session.usage)
    if one.system_prompt is not None:
        value["system_prompt"] = one.system_prompt
    return _line(value)


def message_line(message: Message) -> str:
    value: dict[str, Any] = {
        "type": "message",
        "session": message.session_id,
        "role": message.role,
        "timestamp": message.timestamp,
    }
    value |= {name: given for name in _OPTIONAL if (given := getattr(message, name)) is not None}
    if message.tool_calls:
        value["tool_calls"] = list(message.tool_calls)
    if message.hidden:
        value["hidden"] = message.hidden
    if message.extra:
        value["extra"] = dict(message.extra)
    return _line(value)


def _line(value: dict[str, Any]) -> str:
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text) + "\n"


# ── inside ──


def _in_order(sessions: Iterable[SessionInfo]) -> list[SessionInfo]:
    return sorted(sessions, key=lambda session: (session.started, session.id))
