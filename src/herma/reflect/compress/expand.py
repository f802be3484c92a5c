"""From a line of a summary back to the messages it was made from."""

from __future__ import annotations

from collections.abc import Iterator

from herma.errors import UsageError
from herma.ports import MessageRows
from herma.reflect.compress.extract import plain_text
from herma.reflect.compress.summary import Line, numbers, parse, ranges, read_line, stands_in
from herma.transcript import Transcripts
from herma.transcript.origins import origins
from herma.types import Expansion, SessionInfo

MOST = 1_000
"""Messages that one line is expanded to."""
_NAMED = 4
"""Lines that a refusal names at most."""
_NUMBERS = frozenset("#0123456789-–, ")


def expand(text: str, rows: MessageRows, transcripts: Transcripts, session: SessionInfo | None = None) -> Expansion:
    """The originals behind a line, given as it stands, by its numbers, or by words of it.

    With a session, those of its conversation; words alone need one.
    """
    line = _numbered(text) or _remembered(text, transcripts, session)
    wanted = line.sources[:MOST]
    found = rows.by_ids(wanted)
    if session is not None:
        members = origins(transcripts, session.id)
        found = {number: message for number, message in found.items() if message.session_id in members}
    if not found:
        where = f" in the conversation {session.id}" if session else ""
        raise UsageError(
            f"None of the messages that this line names is there{where}.",
            hint="They may have been deleted, or belong to another conversation: `herma sessions list` shows them.",
        )
    there = tuple(found[number] for number in sorted(found))
    shown = str(line) if line.text else f"[{ranges(line.sources)}]"
    return Expansion(shown, there, tuple(number for number in line.sources if number not in found))


def _numbered(text: str) -> Line | None:
    """A line with its numbers, or the numbers alone: `[#12-18]`, `#12-18`, `12`."""
    bare = text.strip().removeprefix("[").removesuffix("]")
    if bare and _NUMBERS.issuperset(bare):
        return Line("", tuple(numbers(bare))) if numbers(bare) else None
    line = read_line(text.strip())
    return line if line.sources else None


def _remembered(text: str, transcripts: Transcripts, session: SessionInfo | None) -> Line:
    """The line of the conversation's newest summary that has these words."""
    words = _key(text)
    if not words:
        raise UsageError("Which line?", hint='Give it as it stands, or its numbers: "#12-18".')
    if session is None:
        raise UsageError(
            "This line names no messages.", hint='Give its numbers, as in "#12-18", or the session that it stands in.'
        )
    for lines in _summaries(transcripts, session):
        fitting = list(dict.fromkeys(line for line in lines if words in _key(str(line)) and line.sources))
        if len(fitting) > 1:
            some = "; ".join(str(line) for line in fitting[:_NAMED])
            raise UsageError(f"Several lines of the summary have these words: {some}.", hint="Give more of the line.")
        if fitting:
            return fitting[0]
    raise UsageError(
        f"No summary of the conversation {session.id} has a line with these words.",
        hint="`herma sessions show` shows its summaries; session_search and `herma search` find any message.",
    )


def _summaries(transcripts: Transcripts, session: SessionInfo) -> Iterator[list[Line]]:
    """The lines of each summary in the conversation, the newest first."""
    for member in reversed(transcripts.conversation(session.id)):
        for message in reversed(transcripts.messages(member.id, include_hidden=True)):
            if stands_in(message):
                yield [line for lines in parse(plain_text(message)).lines.values() for line in lines]


def _key(text: str) -> str:
    return " ".join(text.casefold().strip().removeprefix("- ").split())
