"""The first page: what there is, how full it is, what was done last, and whether all is well."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from herma import __version__
from herma.doctor import Diagnosis
from herma.types import SessionInfo, StoreStatus, TranscriptStats
from herma.web.house import House
from herma.web.html import Html, join, tag
from herma.web.pages.parts import bar, card, figures, moment, nothing, state, table
from herma.wording.cost import Background, background_of, money, spent_json
from herma.wording.health import diagnosis_json, verdict
from herma.wording.memory import percent, status_json
from herma.wording.sessions import Json, count, databases, name_of, one_line, session_json, size, stats_json

_SESSIONS = 8
_HEALTH_SECONDS = 60.0
"""How old the doctor's words may be here; the page on health asks anew."""


@dataclass(frozen=True, slots=True)
class Overview:
    home: Path
    profile: str
    files: dict[str, int]
    memory: tuple[tuple[StoreStatus, bool], ...]
    """Each curated file, and whether sessions see it."""
    pending: int
    total: TranscriptStats
    sessions: tuple[SessionInfo, ...]
    episodes: int
    skills: int
    background: Background
    health: Diagnosis


def gather(house: House) -> Overview:
    health = house.doctor(at_most=_HEALTH_SECONDS)
    with house.opened() as h:
        return Overview(
            home=h.home,
            profile=h.settings.profile,
            files=databases(h.home),
            memory=tuple((one, h.memory.is_enabled(one.target)) for one in h.memory.status()),
            pending=len(h.memory.pending()),
            total=h.transcripts.stats(),
            sessions=tuple(h.transcripts.list(limit=_SESSIONS)),
            episodes=h.episodes.count(),
            skills=len(h.skills.list()),
            background=background_of(h),
            health=health,
        )


def tell(found: Overview) -> Json:
    return {
        "ok": True,
        "version": __version__,
        "home": found.home,
        "profile": found.profile,
        "files": found.files,
        "memory": [status_json(one, enabled=enabled) for one, enabled in found.memory],
        "pending": found.pending,
        "transcripts": stats_json(found.total),
        "newest_sessions": [session_json(one) for one in found.sessions],
        "episodes": found.episodes,
        "skills": found.skills,
        "spent_today": spent_json(found.background.spent.total_today),
        "health": diagnosis_json(found.health),
    }


def show(found: Overview) -> Html:
    return join(
        tag("p", "Home ", tag("code", str(found.home)), f", profile {found.profile}", class_="lead"),
        tag("div", _health(found.health), _spending(found.background), _counts(found), class_="cards three"),
        _memory(found),
        _sessions(found),
    )


def _health(health: Diagnosis) -> Html:
    worst = next((one for one in ("problem", "warning") if health.of(one)), "ok")
    telling = [*health.of("problem"), *health.of("warning")][:3]
    return card(
        "Health",
        tag("p", state(worst), " ", verdict(health)),
        tag("ul", [tag("li", one_line(one.sentence, 110)) for one in telling], class_="plain") if telling else None,
        tag("p", tag("a", "Everything that was looked at", href="/health")),
    )


def _spending(background: Background) -> Html:
    today, cap = background.spent.total_today, background.spent.caps.all
    if not background.has_model:
        said = [nothing("No model is set, so background work spends nothing.")]
    elif background.spent.caps.off:
        said = [nothing("Background work is switched off: its daily cap is 0.")]
    else:
        usd = f"{money(today.usd)} of {cap.usd or 0:.2f} USD"
        tokens = f"{today.tokens:,} of {cap.tokens or 0:,} tokens"
        said = [
            tag("p", usd),
            bar(today.usd, cap.usd or 0, usd),
            tag("p", tokens),
            bar(today.tokens, cap.tokens or 0, tokens),
        ]
    return card("Background work today", said, tag("p", tag("a", "By purpose, by day, by call", href="/spending")))


def _counts(found: Overview) -> Html:
    files = [(name, size(taken) if taken else "not there yet") for name, taken in found.files.items()]
    return card(
        "What is kept",
        figures(
            [
                ("conversations", f"{found.total.conversations:,}"),
                ("messages", f"{found.total.messages:,}"),
                ("episodes", f"{found.episodes:,}"),
                ("skills", f"{found.skills:,}"),
                *files,
            ]
        ),
    )


def _memory(found: Overview) -> Html:
    waiting = f"{count(found.pending, 'proposal')} waiting for a decision" if found.pending else ""
    return card("Curated memory", [_file(one, enabled) for one, enabled in found.memory], note=waiting, wide=True)


def _file(one: StoreStatus, enabled: bool) -> Html:
    name = "MEMORY.md" if one.target == "memory" else "USER.md"
    entries = count(one.entry_count, "entry", "entries")
    words = f"{percent(one.used, one.limit)} %, {one.used:,} of {one.limit:,} characters, {entries}"
    troubles = [
        "" if enabled else "Switched off: no session sees it.",
        f"{one.trouble}." if one.trouble else "",
        f"The scanner objects to {count(one.findings, 'entry', 'entries')}." if one.findings else "",
    ]
    said = [tag("p", state("warning"), " ", trouble) for trouble in troubles if trouble]
    heading = tag("p", tag("strong", name), " ", tag("span", words, class_="quiet"))
    return tag("div", heading, bar(one.used, one.limit, f"{name}: {words}"), said, class_="file")


def _sessions(found: Overview) -> Html:
    if not found.sessions:
        return card(
            "Last conversations", nothing("None yet. They appear here when an agent opens a session."), wide=True
        )
    rows = [
        (
            moment(one.last_active),
            tag("span", name_of(one), dir="auto"),
            one.source,
            f"{one.message_count:,}",
            _id(one.id),
        )
        for one in found.sessions
    ]
    return card(
        "Last conversations", table(("last active", "about", "source", "messages", "id"), rows, numbers=(3,)), wide=True
    )


def _id(session: str) -> Html:
    return tag("code", session)
