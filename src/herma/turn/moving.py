"""Moves of a conversation besides growing: which messages they touch, and how other messages come to stand for it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from herma.errors import UsageError
from herma.prompt.fence import sanitize
from herma.transcript import Transcripts
from herma.transcript.replay import INTERRUPTED, sendable, unanswered
from herma.transcript.wire import text_of
from herma.turn.account import Account, Before
from herma.turn.handed import afresh, shared
from herma.types import CompletedTurn, Message, SessionInfo

_CUT_OFF = "[This reply was interrupted.]"
_NOT_RUN = "[Interrupted before this tool had run.]"


def last_turn(history: Sequence[Message]) -> CompletedTurn:
    """The turn that ends here."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    messages = tuple(history[begins[-1] :] if begins else history)
    return CompletedTurn(len(begins), text_of(messages[0].content), text_of(messages[-1].content), messages)


def cut_off(history: Sequence[Message], partial: str) -> list[Message]:
    """What makes an unfinished turn whole: results for tools that did not run, and the reply as far as it came."""
    missing = [Message("tool", _NOT_RUN, tool_call_id=call_id) for call_id in unanswered(history)]
    text = sanitize(partial).strip()
    return [*missing, Message("assistant", f"{text}\n\n{_CUT_OFF}".lstrip(), finish_reason=INTERRUPTED)]


def turn_begins(history: Sequence[Message], turns: int) -> int:
    """Where the last so many turns begin."""
    begins = [at for at, message in enumerate(history) if message.role == "user"]
    if not isinstance(turns, int) or not 1 <= turns <= len(begins):
        there = "There is 1 turn" if len(begins) == 1 else f"There are {len(begins)} turns"
        raise UsageError(f"{there}; {turns} cannot be taken back.")
    return begins[-turns]


def spoken_in(history: Sequence[Message], session_id: str) -> dict[str, int]:
    """Where the user first speaks, in each session that the conversation went through."""
    begins: dict[str, int] = {}
    for message in history:
        if message.role == "user":
            begins.setdefault(message.session_id or session_id, message.id)
    return begins


def start_session(transcripts: Transcripts, info: SessionInfo, system_prompt: str) -> None:
    """Write the row of a session."""
    transcripts.start(
        info.source,
        title=info.title,
        parent=info.parent,
        reason=info.reason,
        scope=info.scope,
        model=info.model,
        system_prompt=system_prompt,
        session_id=info.id,
        started=info.started,
        provider=info.provider,
        chat_type=info.chat_type,
        folder=info.folder,
        branch=info.branch,
    )


def lies_in(history: Sequence[Message], session_id: str) -> bool:
    """Whether all of the conversation is in one session, so that it can be shortened in its place."""
    return all(message.session_id == session_id for message in history)


def stand_in(
    transcripts: Transcripts,
    account: Account,
    history: Sequence[Message],
    instead: Sequence[Message],
    info: SessionInfo,
    told: str,
    system_prompt: str | None,
) -> tuple[list[Message], Before | None]:
    """Write messages that stand for a conversation: into a session of their own, or in its place, which hides it.

    With a `system_prompt` the session `info` is begun. What another program has added to the conversation meanwhile
    goes along. → the messages as they are kept now, and what the next call is compared with.
    """
    at = history[-1]
    later = transcripts.messages(at.session_id, after=at.id)
    given = [account.weighed(message) for message in afresh(sendable([*instead, *later]), told)]
    if system_prompt is not None:
        start_session(transcripts, info, system_prompt)
        ids = transcripts.append(info.id, given)
        while fresh := transcripts.messages(at.session_id, after=(later or [at])[-1].id):  # came in this moment
            later = fresh
            more = [account.weighed(message) for message in afresh(fresh, told)]
            given, ids = given + more, ids + transcripts.append(info.id, more)
    else:
        ids = transcripts.append(info.id, given, standing_for=(later or [at])[-1].id)
    kept = [replace(message, id=id_, session_id=info.id) for message, id_ in zip(given, ids, strict=True)]
    last = account.last
    if last is None:
        return kept, None
    return kept, Before(last, min(shared(history, kept), last.messages), "compression")
