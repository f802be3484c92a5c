"""`herma sessions show`: a conversation to read, or the place of one message in it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import click

from herma.cli.sessions.conversation import write_message
from herma.cli.sessions.desk import Desk, emphasised, sessions, with_sessions
from herma.cli.sessions.wording import count, message_json, name_of, session_json, when
from herma.errors import UsageError
from herma.types import Message, SessionInfo

_FIRST, _LAST = 10, 40
"""Messages of a long conversation that are shown without --full."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A session of the conversation, with those of its messages that are to be shown."""

    session: SessionInfo
    messages: Sequence[Message]


@sessions.command(short_help="Read a conversation, or the place of a message")
@click.argument("session", metavar="[ID]", required=False)
@click.option(
    "--around", metavar="MESSAGE", type=click.IntRange(1, 2**63 - 1), help="Only this message and its neighbours."
)
@click.option(
    "--window", type=click.IntRange(0, 1000), default=5, show_default=True, help="How many neighbours on each side."
)
@click.option("--full", is_flag=True, help="Every message, and each of them whole.")
@click.option("--hidden", is_flag=True, help="Also what was rewound, or replaced by a summary.")
@with_sessions
def show(desk: Desk, session: str | None, around: int | None, window: int, full: bool, hidden: bool) -> None:
    """Read a conversation. Long texts and the middle of long conversations are cut; --full shows all.

    The number before each message is what --around takes; it is the same wherever the message is shown.

    \b
    Examples:
      herma sessions show 20261231_2359
      herma sessions show "Login bug" --full
      herma sessions show --around 1234 --window 10
    """
    if session is None and around is None:
        raise UsageError("Which session?", hint=f"`{desk.command('sessions', 'list')}` has their ids.")
    found = desk.find(session) if session is not None else None
    if around is not None:
        parts = [_place(desk, found, around, window, hidden=hidden)]
        found = found or parts[0].session
    else:
        assert found is not None
        members = desk.transcripts.conversation(found.id)
        parts = [_Part(one, desk.transcripts.messages(one.id, include_hidden=hidden)) for one in members]
    if desk.context.json:
        _as_json(desk, found, parts, around)
        return
    _heading(desk, found, parts, around)
    if around is None and not full:
        _cut(desk, found, parts)
    else:
        for at, part in enumerate(parts):
            _messages(desk, part, first=at == 0, anchor=around, full=full)
    _ending(desk, found, parts, around, hidden=hidden)


# ── which messages ──


def _place(desk: Desk, found: SessionInfo | None, message: int, window: int, *, hidden: bool) -> _Part:
    """The surroundings of a message, in the session that it belongs to."""
    near = desk.transcripts.around(message, window)
    home = desk.transcripts.get(near[0].session_id) if near else None
    if home is not None and found is not None and home.conversation != found.conversation:
        raise UsageError(
            f"Message {message} is not in the conversation {found.id}.",
            hint=f"It is here: {desk.command('sessions', 'show', home.id, '--around', str(message))}",
        )
    if home is not None and not hidden:
        return _Part(home, near)
    if found is None and home is None:
        raise UsageError(
            f"There is no message {message}, or it was taken back.",
            hint="If you know its session, give the ID as well, with --hidden.",
        )
    return _among_hidden(desk, home or found, message, window, hidden=hidden)


def _among_hidden(desk: Desk, start: SessionInfo | None, message: int, window: int, *, hidden: bool) -> _Part:
    """The same, hidden messages included."""
    assert start is not None
    for one in desk.transcripts.conversation(start.id):
        messages = desk.transcripts.messages(one.id, include_hidden=True)
        at = next((number for number, this in enumerate(messages) if this.id == message), None)
        if at is None:
            continue
        if not hidden:
            raise UsageError(f"Message {message} was taken back.", hint="Add --hidden to see it.")
        return _Part(one, messages[max(0, at - window) : at + window + 1])
    raise UsageError(
        f"There is no message {message} in the conversation {start.id}.",
        hint=f"`{desk.command('sessions', 'show', start.id)}` has the numbers.",
    )


# ── for people ──


def _heading(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None) -> None:
    emphasised(desk.context, name_of(found))
    first, last = parts[0].session, parts[-1].session
    total = sum(part.session.message_count for part in parts)
    until = f" – {when(last.last_active)}" if when(last.last_active) != when(first.started) else ""
    facts = [
        found.id,
        found.source,
        f"{when(first.started)}{until}",
        "" if around is not None else count(total, "message"),
        found.model or "",
        f"by {found.provider}" if found.provider else "",
        f"project {found.scope.project}" if found.scope.project else "",
        f"user {found.scope.user}" if found.scope.user else "",
        found.chat_type and f"{found.chat_type} chat",
        f"in {found.folder}" if found.folder and found.folder != found.scope.project else "",
        f"branch {found.branch}" if found.branch else "",
        "archived" if found.archived else "",
        f"ended: {last.end_reason}" if last.end_reason else "",
    ]
    desk.context.line(" · ".join(fact for fact in facts if fact))


def _cut(desk: Desk, found: SessionInfo, parts: Sequence[_Part]) -> None:
    """The beginning and the end of a conversation; all of a short one."""
    total = sum(len(part.messages) for part in parts)
    gap = range(_FIRST, max(_FIRST, total - _LAST))
    at = 0
    for number, part in enumerate(parts):
        session, messages = part.session, part.messages
        before = messages[: max(0, gap.start - at)] if gap else messages
        after = messages[max(0, gap.stop - at) :] if gap else ()
        has_gap = bool(gap) and at <= gap.start < at + len(messages)
        if before or not gap:
            _messages(desk, _Part(session, before), first=number == 0)
        if has_gap:
            whole = desk.command("sessions", "show", found.id, "--full")
            desk.context.line()
            desk.context.line(f"     … {count(len(gap), 'message')} in between; all of them: {whole}")
        if after:
            _messages(desk, _Part(session, after), first=number == 0 or has_gap)
        at += len(messages)


def _messages(desk: Desk, part: _Part, *, first: bool, anchor: int | None = None, full: bool = False) -> None:
    if not first:
        desk.context.line()
        why = {"compression": "after a compression"}.get(part.session.reason, part.session.reason)
        desk.context.line(f"── goes on in {part.session.id} ({why}), {when(part.session.started)} ──")
    for message in part.messages:
        write_message(message, anchor=message.id == anchor, full=full)


def _ending(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None, *, hidden: bool) -> None:
    if around is not None:
        desk.context.line()
        desk.context.line(f"The whole conversation: {desk.command('sessions', 'show', found.id)}")
    elif not any(part.messages for part in parts):
        desk.context.line("No messages." if hidden else "No messages to show; perhaps all of them are hidden: --hidden")


def _as_json(desk: Desk, found: SessionInfo, parts: Sequence[_Part], around: int | None) -> None:
    """Everything, whole: what is cut for people is not cut for programs."""
    listed = [message_json(message) for part in parts for message in part.messages]
    for message in listed:
        if message["id"] == around:
            message["anchor"] = True
    desk.context.print_json(
        {
            "ok": True,
            "session": session_json(found),
            "system_prompt": desk.transcripts.system_prompt(found.id),
            "sessions": [session_json(part.session) for part in parts],
            "messages": listed,
        }
    )
