"""Where the messages of a conversation come from: its own sessions, and those of the conversations it branched off."""

from __future__ import annotations

from herma.transcript.log import Transcripts


def origins(transcripts: Transcripts, session_id: str) -> set[str]:
    """The ids of all these sessions. A branch begins with copies, so what a summary in it names lies further back."""
    found: set[str] = set()
    at: str | None = session_id
    while at is not None and at not in found and transcripts.get(at) is not None:
        members = transcripts.conversation(at)
        found |= {member.id for member in members}
        at = next((member.parent for member in members if member.reason == "branch"), None)
    return found
