"""How an answer is told: what was searched, and of every hit why it is here."""

from __future__ import annotations

from collections.abc import Sequence

from herma.ports import Head
from herma.recall.gather import SCANS
from herma.recall.match import Place
from herma.recall.query import Query
from herma.recall.rank import Candidate
from herma.types import Hit, SessionInfo


def searched(sessions: int, lag: int) -> str:
    if not sessions:
        return "Nothing is stored yet."
    where = f"All messages and titles of {sessions:,} session{'s' if sessions != 1 else ''}"
    if lag > SCANS:
        where += f", except that of the newest {lag:,} messages only the last {SCANS:,} were read"
    return where + "."


def why(
    one: Candidate,
    folded: str,
    places: Sequence[tuple[Place, str]],
    query: Query,
    *,
    cosine: float | None,
    explain: bool,
) -> tuple[str, ...]:
    words = list(dict.fromkeys(folded[start:end] for (start, end), _ in places))
    said = ["passes the filters"]
    if query.any_of:
        said = [f"has {', '.join(words[:8])}"] if words else []
        if cosine is not None:
            said.append("is near in meaning")
        said = said or ["stands next to a match"]
    if any(span.covers(one.timestamp) for span in query.soft_dates):
        said.append("is from the time that was named")
    if explain:
        words_part = one.score - one.meaning
        near = f"meaning {one.meaning:.2f}" + (f" (cosine {cosine:.3f})" if cosine is not None else "")
        parts = f"index {one.found:.2f}, beside {one.beside:.2f}, conversation {one.around:.2f}, bonus {one.bonus:.2f}"
        said.append(f"words {words_part:.2f} ({parts}), {near}")
    return tuple(said)


def hit(head: Head, session: SessionInfo, line: str, score: float, why: tuple[str, ...]) -> Hit:
    return Hit(
        session_id=head.session_id,
        message_id=head.id,
        role=head.role,
        snippet=line,
        score=round(score, 4),
        timestamp=head.timestamp,
        conversation=session.conversation,
        session=session,
        why=why,
    )
