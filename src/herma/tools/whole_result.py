"""What a tool returned, in full: the model was sent a short version, the transcript has all of it."""

from __future__ import annotations

from herma.prompt.fence import neutralize
from herma.tools.registry import Json
from herma.tools.session_answers import error
from herma.transcript import Transcripts
from herma.transcript.wire import text_of

PAGE = 12_000
"""Characters of one answer."""


def whole_result(transcripts: Transcripts, session_id: str | None, call_id: str, offset: int) -> Json:
    """A page of the result of one tool call of this conversation."""
    if not session_id:
        return error("tool_call_id is for tool calls of the conversation at hand; there is none here.")
    for session in reversed(transcripts.conversation(session_id)):
        for message in reversed(transcripts.messages(session.id, include_hidden=True)):
            if message.role == "tool" and message.tool_call_id == call_id:
                text = text_of(message.content)
                page = text[max(0, offset) : max(0, offset) + PAGE]
                answer: Json = {
                    "success": True,
                    "mode": "result",
                    "tool_call_id": call_id,
                    "session_id": session.id,
                    "message_id": message.id,
                    "characters": len(text),
                    "offset": max(0, offset),
                    "content": neutralize(page),
                }
                if max(0, offset) + PAGE < len(text):
                    answer["next_offset"] = max(0, offset) + PAGE
                return answer
    return error(f"No tool call {call_id!r} has a result in this conversation.")
