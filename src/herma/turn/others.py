"""Another program in the same session: what it said is taken in at the end, and what it did to it is told.

A session is held by whoever has it open, and nobody locks it: two programs may go on with the same one. Each keeps the
order in which it has sent messages, so that its prefix only grows; what the other said comes after that, whole turns
only, as it was sent there. Where the other has shortened the conversation, taken something back or gone on elsewhere,
there is no way on from here but to resume it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from herma.errors import StoreChanged
from herma.ports import SessionNews
from herma.transcript.replay import is_complete, sendable
from herma.types import Hidden, Message, SessionInfo

News = Callable[[str], SessionNews | None]
Stored = Callable[[str], Sequence[Message]]
"""Every message of a session in order, hidden ones too."""


def nobody(session_id: str) -> None:  # noqa: ARG001
    """No other program is looked for."""
    return


class Others:
    """What one session knows of the messages that are stored under its id."""

    def __init__(self, news: News, stored: Stored) -> None:
        self._news = news
        self._stored = stored
        self._visible = 0
        """How many messages were stored, besides those of the history, when that was last read."""
        self._newest = 0

    def look(self, session: SessionInfo, history: Sequence[Message], *, branches: bool = False) -> list[Message]:
        """What others have said that this history does not have. `StoreChanged` where they have moved the conversation;
        who `branches` off it minds no other that does. One row is read, as long as nobody else was here.
        """
        news = self._news(session.id)
        if news is None:
            return []
        if news.follower and not branches:
            raise _gone_on(news)
        begins = next((at for at, message in enumerate(history) if message.session_id == session.id), len(history))
        newest = max(history[-1].id if begins < len(history) else 0, self._newest)
        if (news.visible, news.newest) == (len(history) - begins + self._visible, newest):
            return []
        everything = self._stored(session.id)
        stored = [message for message in everything if not message.hidden]
        hidden = {message.id: message.hidden for message in everything if message.hidden}
        gone = [message for message in history[begins:] if message.id in hidden]
        if gone:
            raise _changed(session, gone, hidden[gone[-1].id])
        fresh = unheard(stored, history[begins:])
        self._visible = len(stored) - (len(history) - begins) - len(fresh)
        self._newest = stored[-1].id if stored else 0
        return fresh


def unheard(stored: Sequence[Message], mine: Sequence[Message]) -> list[Message]:
    """Whole turns that are stored and not among mine, in order. Pure."""
    known = {message.id for message in mine}
    unknown = [message for message in stored if message.id not in known]
    return sendable(unknown[: settled(unknown)])


def settled(messages: Sequence[Message]) -> int:
    """How many of these are whole turns: they end with a reply, and no tool that was called is still to answer."""
    waiting: set[str] = set()
    end = 0
    for at, message in enumerate(messages, 1):
        waiting |= {str(call.get("id", "")) for call in message.tool_calls}
        waiting.discard(message.tool_call_id or "")
        if not waiting and is_complete([message]):
            end = at
    return end


def _gone_on(news: SessionNews) -> StoreChanged:
    how = "has shortened" if news.reason == "compression" else "goes on with"
    return StoreChanged(
        f"Another program {how} this conversation; it goes on as session {news.follower}.",
        hint=f"Go on there: {_ways(news.follower)}",
    )


def _changed(session: SessionInfo, gone: Sequence[Message], hidden: Hidden) -> StoreChanged:
    turns = sum(message.role == "user" for message in gone)
    what = (
        "shortened this conversation in its place"
        if hidden == "compacted"
        else f"taken back the last {'turn' if turns == 1 else f'{turns} turns'} of this conversation"
    )
    return StoreChanged(
        f"Another program has {what}, so that what was sent here before does not hold any more.",
        hint=f"Take it up as it is now: {_ways(session.id)}",
    )


def _ways(id_: str) -> str:
    return f"/resume {id_} in the chat, herma chat --resume {id_}, or h.session(resume={id_!r})."
