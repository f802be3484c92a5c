"""Conversations as the dashboard and the API show them: search, list, reader, what was sent, and what it cost."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from herma.cli.encode import Json, iso, session_json
from herma.cli.output import name_of
from herma.errors import UsageError
from herma.prompt.assemble import RULE
from herma.prompt.ledger import Call, where
from herma.prompt.tokens import counter_for
from herma.review.cli import background_json, background_of, call_json, cost_json
from herma.transcript.cli_search import report_json
from herma.transcript.messages import called, is_summary, words_of
from herma.transcript.rows import SessionRows
from herma.types import Message, SessionFilter, SessionInfo
from herma.web.api import Limit, Offset, action, later, rows_of, view, without_secrets

if TYPE_CHECKING:
    from herma.app import Herma

Span = Literal["", "7d", "30d", "90d", "365d"]
_CALLS = 400
_LONGEST_SECRET = 4_000
"""Calls of a chart over time."""


# ── search ───────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/search", page="/search", title="Search")
def search(
    h: Herma,
    q: str = "",
    limit: Limit = 20,
    level: Literal["session", "message"] = "session",
    role: Literal["", "user", "assistant", "tool"] = "",
    source: str = "",
    project: str = "",
    since: str = "",
    before: str = "",
    sort: Literal["", "newest", "oldest"] = "",
    archived: bool = False,
    mode: Literal["", "hybrid", "words", "vectors"] = "",
) -> Json:
    """Find what was said in past sessions: why each hit is there, how the query was read, and what was left out."""
    if not q.strip():
        return {"ok": True, "query": "", "hits": [], "facets": {}}
    report = h.search(
        q,
        limit=limit,
        level=level,
        role=role or None,
        source=source or None,
        project=project or None,
        since=since or None,
        before=before or None,
        sort=sort or None,
        include_archived=archived,
        explain=True,
        mode=mode or None,
    )
    value = report_json(report)
    for shown, hit in zip(value["hits"], report.hits, strict=True):
        shown["snippet"] = hit.snippet
        shown["session"] = listed(hit.session) if hit.session else None
        shown["name"] = shown["session"]["name"] if hit.session else hit.session_id
    return {**value, "ok": True, "exact": value["ok"], "facets": _facets(value["hits"])}


def _facets(hits: Sequence[Json]) -> Json:
    """Count the sources, projects and roles among the hits."""
    counts: dict[str, Counter[str]] = {"source": Counter(), "project": Counter(), "role": Counter()}
    for hit in hits:
        session = hit["session"] or {}
        for name, value in (("source", session.get("source")), ("project", session.get("project"))):
            counts[name][value or ""] += 1
        counts["role"][hit["role"]] += 1
    return {
        name: [{"value": value, "count": number} for value, number in counter.most_common(8) if value]
        for name, counter in counts.items()
    }


# ── the list ─────────────────────────────────────────────────────────────────────────────────────────────────────


def listed(session: SessionInfo) -> Json:
    """Return one line of a list of conversations."""
    texts = {"name": name_of(session), "title": session.title, "preview": session.preview}
    return session_json(session) | texts


@view("/sessions", page="/sessions", title="Sessions")
def sessions(
    h: Herma,
    limit: Limit = 30,
    offset: Offset = 0,
    source: str = "",
    project: str = "",
    search: str = "",  # noqa: A002,RUF100  (the name of the option of `herma sessions list`)
    archived: bool = False,
    delegated: bool = False,
) -> Json:
    """List conversations, the last active first, one line each."""
    which = SessionFilter(
        source=source or None,
        project=project or None,
        search=search or None,
        archived=archived,
        delegated=None if delegated or archived or source else False,
    )
    found, more = rows_of(h.transcripts.list(which, limit=limit + 1, offset=offset), limit)
    sources = [
        {"value": name, "count": number}
        for name, (number, _) in sorted(h.transcripts.stats().sources.items(), key=lambda item: -item[1][0])
    ]
    return {
        "ok": True,
        "sessions": [listed(one) for one in found],
        "sources": sources[:12],
        "next": later(more, offset, limit),
    }


# ── the reader ───────────────────────────────────────────────────────────────────────────────────────────────────


def known(h: Herma, session: str) -> SessionInfo:
    """Return a session by its id, or the beginning of one, or a title."""
    found = h.transcripts.resolve(session)
    info = h.transcripts.get(found) if found else None
    if info is None:
        raise UsageError(f"There is no session {session[:60]!r}.", hint="It may be deleted.", code="not_found")
    return info


@view("/sessions/{session}", page="/sessions/{session}", title="Session")
def session(
    h: Herma,
    session: str,
    after: Offset = 0,
    around: Offset = 0,
    limit: Limit = 100,
    most: Offset = 4_000,
    rewound: bool = False,
) -> Json:
    """Read a session: its messages, the parts of its conversation, and its branches and delegations."""
    info = known(h, session)
    more = False
    if around:
        near = h.transcripts.around(around, 0 if most == 0 else 20)
        if not near:
            raise UsageError(f"There is no message {around}, or it was rewound.", hint="", code="not_found")
        info = h.transcripts.get(near[0].session_id) or info
        found: Sequence[Message] = near
    else:
        found, more = rows_of(
            h.transcripts.messages(info.id, include_hidden=True, after=after or None, limit=limit + 1), limit
        )
    hidden = sum(one.hidden == "rewound" for one in found)
    shown = [one for one in found if rewound or one.hidden != "rewound"]
    _, last = h.transcripts.bookends(info.id, 1)
    members = h.transcripts.conversation(info.id)
    return {
        "ok": True,
        "session": listed(info),
        "parts": [listed(one) for one in members],
        "lineage": _lineage(h, info, members),
        "messages": [message_json(one, most) for one in shown],
        "rewound": hidden,
        "next": found[-1].id if more else None,
        "last": last[-1].id if last else None,
        "anchor": around or None,
    }


def message_json(message: Message, most: int = 0) -> Json:
    """Return a message for readers: texts cut to `most` characters, credentials taken out."""
    text, left = _cut(words_of(message.content), most)
    thought, _ = _cut(message.reasoning or "", most)
    calls = []
    for each in message.tool_calls:
        name, arguments = called(each, indent=2)
        shown, more = _cut(arguments, most)
        calls.append({"name": name, "arguments": shown, "more": more})
    return {
        "id": message.id,
        "session": message.session_id,
        "role": message.role,
        "at": iso(message.timestamp),
        "text": text,
        "more": left,
        "hidden": message.hidden or None,
        "summary": is_summary(text),
        "tool_name": message.tool_name,
        "tool_calls": calls,
        "reasoning": thought or None,
        "tokens": message.tokens,
        "outside": sorted({str(one.origin) for one in message.outside or ()}),
    }


def _cut(text: str, most: int) -> tuple[str, int]:
    if not most or len(text) <= most:
        return text, 0
    return without_secrets(text[: most + _LONGEST_SECRET])[:most], len(text) - most  # half of one is not recognised


def _lineage(h: Herma, info: SessionInfo, members: Sequence[SessionInfo]) -> list[Json]:
    """Return the sessions around this one as a tree, in order of depth: what it continues or branches from, the parts
    of its conversation, and what was branched or delegated from them.
    """
    rows = SessionRows(h.db)
    family = {one.id: one for one in members}
    first = family.get(info.conversation, members[0])
    if first.parent and (above := rows.get([first.parent]).get(first.parent)):
        family = {above.id: above, **family}
    family |= {one.id: one for one in rows.children([one.id for one in members]) if one.id not in family}
    below: dict[str, list[SessionInfo]] = defaultdict(list)
    for one in sorted(family.values(), key=lambda each: (each.started, each.id)):
        below[one.parent if one.parent in family and one.parent != one.id else ""].append(one)
    found: list[Json] = []
    waiting = [(one, 0) for one in reversed(below[""])]
    while waiting and len(found) < 200:
        one, depth = waiting.pop()
        found.append(
            {
                "id": one.id,
                "name": name_of(one, 60),
                "reason": one.reason,
                "messages": one.message_count,
            }
            | {"started": iso(one.started), "depth": depth, "here": one.id == info.id, "source": one.source}
            | {"parent": one.parent}
        )
        waiting += [(child, depth + 1) for child in reversed(below[one.id])]
    return found


@view("/sessions/{session}/sent", page="/sessions/{session}/sent", title="Sent to the model")
def sent(h: Herma, session: str, after: Offset = 0, limit: Limit = 100, most: Offset = 4_000) -> Json:
    """Show what the model is sent for a session: system prompt, messages with what was added to them, and how much of
    each call the provider could take from its cache.
    """
    info = known(h, session)
    found, more = rows_of(h.transcripts.messages(info.id, after=after or None, limit=limit + 1), limit)
    report = h.cost(info.id)
    calls = [one for one in report.calls(_CALLS) if one.session == info.id]
    cached = _cached(calls)
    messages = []
    for one in found:
        whole, own = words_of(one.sent if one.sent is not None else one.content), words_of(one.content)
        added = whole[len(own) :].strip() if one.sent is not None and whole.startswith(own) else ""
        messages.append(message_json(one, most) | {"added": _cut(added, most)[0] or None})
    prompt, left = _cut(h.transcripts.system_prompt(info.id) or "", 20_000 if most else 0)
    return {
        "ok": True,
        "session": listed(info),
        "system_prompt": prompt,
        "prompt_parts": _parts_of(info, prompt),
        "more": left,
        "messages": messages,
        "next": found[-1].id if more else None,
        "calls": [call_json(report, one) for one in calls],
        "cached_messages": cached,
        "cached_until": found[cached - 1].id if cached and not after and cached <= len(found) else None,
        "sent_until": calls[-1].last_message or None if calls else None,
    }


_PART = re.compile(rf"\n\n(?=# |{RULE}\n|This conversation began on )")
_TITLES = {"# Memory": "how to use memory", "# Earlier conversations": "how to search", "# Skills": "how to use skills"}


def _parts_of(info: SessionInfo, prompt: str) -> list[Json]:
    """Return the parts of a system prompt with their sizes. `changes` says when a part differs from that of an earlier
    session: everything after the first difference cannot come from a provider's cache.
    """
    counter, changes = counter_for(info.model), "with the settings"
    found: list[Json] = []
    for text in _PART.split(prompt) if prompt else ():
        title = next(line for line in [*text.split("\n"), ""] if line != RULE)
        if text.startswith((RULE, "# Earlier work")):
            changes, title = "with memory", title.partition(" [")[0]
        elif text.startswith("This conversation"):
            changes, title = "each day", "date and client"
        elif not found:
            title = "identity"
        name = _TITLES.get(title, title.removeprefix("# "))
        found.append({"name": name, "tokens": counter.count(text), "characters": len(text), "changes": changes})
    return found


def _cached(calls: Sequence[Call]) -> int:
    """Return how many messages of the last call began like the call before it."""
    if not calls or not calls[-1].reusable:
        return 0
    last = calls[-1]
    if last.at_message is not None:
        return max(0, last.at_message - 1)
    return calls[-2].messages if len(calls) > 1 else 0


@action("/sessions/{session}/rename")
def rename_session(h: Herma, session: str, title: str = "") -> Json:
    """Give a conversation a title that no other has; without one, take its title away."""
    kept = h.transcripts.rename(known(h, session).id, title.strip() or None)
    return {"ok": True, "title": kept, "message": f"It is now called {kept!r}." if kept else "It has no title now."}


@action("/sessions/{session}/archive")
def archive_session(h: Herma, session: str, undo: bool = False) -> Json:
    """Hide a conversation from lists and searches; with `undo`, show it again."""
    count = h.transcripts.archive(known(h, session).id, not undo)
    return {"ok": True, "sessions": count, "message": "It is shown again." if undo else "Archived."}


@action("/sessions/{session}/delete")
def delete_session(h: Herma, session: str) -> Json:
    """Delete a conversation. For some days it can be restored."""
    gone = h.transcripts.delete(known(h, session).id)
    undo = f"d{gone.sessions[0].id[-6:]}" if gone.sessions else ""
    return {"ok": True, "sessions": len(gone.sessions), "until": iso(gone.until), "message": "Deleted.", "undo": undo}


# ── context and cost ─────────────────────────────────────────────────────────────────────────────────────────────


@view("/cost", page="/cost", title="Cost")
def cost(h: Herma, session: str = "", since: Span = "30d", limit: Limit = 10) -> Json:
    """Show what fills the model's window, what a cache reused, what calls cost, and background work and its cap."""
    info = known(h, session) if session else _latest(h)
    found = h.cost(info.id if session and info else None, since or None)
    calls = found.calls(_CALLS)
    value = cost_json(replace(found, sessions=found.sessions[:limit]))
    return {
        "ok": True,
        **value,
        "breaks": [call_json(found, one) | {"from": where(one)} for one in found.breaks],
        "days": _days(calls),
        "background": background_json(background_of(h)),
        "window": h.working_memory(info.id if info else None).values(),
        "prompt_parts": _parts_of(info, h.transcripts.system_prompt(info.id) or "") if info else [],
        "of": listed(info) if info else None,
        "since": since,
    }


def _latest(h: Herma) -> SessionInfo | None:
    """Return the session of the latest call to a model, else the latest session."""
    newest = h.calls.newest(None, float("-inf"), 1)
    found = h.transcripts.get(newest[-1].session) if newest else None
    return found or next(iter(h.transcripts.list(SessionFilter(imported=False), limit=1)), None)


def _days(calls: Sequence[Call]) -> list[Json]:
    """Return the tokens of the newest calls by day: reused and new."""
    days: dict[str, Any] = {}
    for one in calls:
        day = (iso(one.at) or "")[:10]
        sums = days.setdefault(day, {"day": day, "reusable": 0, "new": 0, "calls": 0})
        sums["reusable"] += one.reusable
        sums["new"] += one.fresh
        sums["calls"] += 1
    return list(days.values())[-31:]
