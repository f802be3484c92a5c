"""The rest of the dashboard and the API: home, episodes, skills, connections, import, health, metrics."""

from __future__ import annotations

from collections import Counter, defaultdict
from functools import partial
from typing import TYPE_CHECKING, Literal

from herma import __version__
from herma.cli.changes import waiting
from herma.cli.encode import Json, diagnosis_json, encode, iso, stats_json, status_json
from herma.cli.output import count, databases, name_of, verdict
from herma.connect.cli import client_json
from herma.connect.clients import Program
from herma.connect.connect import ConnectedClients
from herma.episodes.cli import episode_json, state_json
from herma.errors import HermaError, UsageError
from herma.importers.base import Machine
from herma.importers.pipeline import Imports, readers
from herma.models.endpoints import Role
from herma.review.cli import background_of, spent_json
from herma.skills.cli import skill_json, usage_json, view_json
from herma.store.database import parsed
from herma.web.api import Limit, Number, Offset, Seconds, action, later, rows_of, view
from herma.web.memory_views import changes, context_of, proposals, skill_done
from herma.web.session_views import listed
from herma.worker import BackgroundCall, last_worked

if TYPE_CHECKING:
    from herma.app import Herma
    from herma.web.app import HomeHandle

_RECENT = 8
_NEWEST = 20
_WEEK, _WEEKS = 7 * 86_400.0, 26
_KINDS: dict[str, str] = {
    "successful": "successful",
    "resolved": "successful",
    "unclear": "unclear",
    "failed": "failed",
    "interrupted": "failed",
}
"""The part of a bar in which an outcome is counted."""
OneOutcome = Literal["", "successful", "resolved", "failed", "interrupted", "unclear"]


# ── home ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/home", page="/", title="Home", seen=True)
def home(handle: HomeHandle, since: Seconds = 0) -> Json:
    """Show what changed since a time (seconds since 1970), what waits, the latest conversations, and whether
    everything works.
    """
    with handle.opened() as h:
        written = changes(h, limit=_NEWEST)["changes"]
        fresh = [one for one in written if not since or one["at"] is None or one["at"] > (iso(float(since)) or "")]
        items = waiting(context_of(h))
        recent = h.transcripts.list(limit=_RECENT)
        background = background_of(h)
        value = {
            "ok": True,
            "version": __version__,
            "home": h.home,
            "profile": h.settings.profile,
            "since": iso(float(since)) if since else None,
            "changes": fresh,
            "conversations_since": sum(one.last_active > since for one in recent) if since else None,
            "pending": proposals(h, items[:3]),
            "pending_count": len(items),
            "sessions": [listed(one) for one in recent],
            "memory": [status_json(one, enabled=h.memory.is_enabled(one.target)) for one in h.memory.status()],
            "transcripts": stats_json(h.transcripts.stats()),
            "episodes": h.episodes.count(),
            "skills": len(h.skills.list()),
            "files": databases(h.home),
            "spent_today": spent_json(background.spent.total_today),
            "daily_usd": background.spent.caps.usd if background.has_model else 0.0,
            "model_set": background.has_model,
        }
    found = handle.known_health()
    return value | {"health": diagnosis_json(found) | {"verdict": verdict(found)} if found else None}


# ── episodes ─────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/episodes", page="/episodes", title="Episodes")
def episodes(
    h: Herma, q: str = "", outcome: OneOutcome = "", archived: bool = False, limit: Limit = 30, offset: Offset = 0
) -> Json:
    """List earlier work, the newest first, or that which is similar to a task."""
    if q.strip():
        hits = h.episodes.search_similar(q, limit)
        found = [episode_json(hit.episode) | {"similarity": hit.similarity, "why": list(hit.why)} for hit in hits]
        return {"ok": True, "episodes": found, "next": None, "weeks": []}
    listing, more = rows_of(
        h.episodes.list(outcome=outcome or None, archived=archived, limit=limit + 1, offset=offset), limit
    )
    found = [episode_json(one) for one in listing]
    return {"ok": True, "episodes": found, "next": later(more, offset, limit), "weeks": _weeks(h)}


def _weeks(h: Herma, skill: str = "") -> list[Json]:
    """Return how the episodes of the last half year ended, week by week: all, or those that used a skill."""
    now, counts = h.clock(), defaultdict[int, Counter[str]](Counter)
    given = {"profile": h.settings.profile, "since": now - _WEEKS * _WEEK}
    for ended, outcome, applied in h.db.rows(h.db.queries("web.pages")["outcomes"], given):
        if not skill or skill in parsed(applied):
            counts[int((now - ended) // _WEEK)][_KINDS[outcome]] += 1
    return [
        {"from": iso(now - (ago + 1) * _WEEK)} | {kind: counts[ago][kind] for kind in _KINDS.values()}
        for ago in range(max(counts, default=-1), -1, -1)
    ]


@view("/episodes/{number}", page="/episodes/{number}", title="Episode")
def episode(h: Herma, number: Number) -> Json:
    """Show one episode: the task, how it ended and why Herma thinks so, and where the work stood."""
    one = h.episodes.get(number)
    if one is None:
        raise UsageError(f"There is no episode {number}.", code="not_found")
    info = h.transcripts.get(one.session_id)
    return {
        "ok": True,
        "episode": episode_json(one),
        "conversation": name_of(info) if info else "",
        "state": state_json(h.episodes.state(one.conversation)),
    }


@action("/episodes/{number}/archive")
def archive_episode(h: Herma, number: Number, undo: bool = False) -> Json:
    """Archive an episode, so that nothing recalls it; with `undo`, take it out of the archive."""
    episode(h, number)
    done = h.episodes.restore([number]) if undo else h.episodes.forget(ids=[number]).episodes
    words = "It is recalled again." if undo else "Archived; it is not recalled any more."
    return {"ok": True, "message": words if done else "Nothing had to be changed."}


# ── skills ───────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/skills", page="/skills", title="Skills")
def skills(h: Herma) -> Json:
    """List the skills with how they are used and how they did, the archive, and the latest runs of tidying."""
    library, context = h.skills, context_of(h)
    usage = library.usage()
    found = [
        skill_json(context, one, usage.get(one.name))
        | ({"usage": usage_json(usage[one.name])} if one.name in usage else {"usage": None})
        for one in library.list(everything=True)
    ]
    reports = h.curator.reports(5)
    return {
        "ok": True,
        "skills": sorted(found, key=lambda one: (-one["uses"], one["name"])),
        "archived": [encode(one) for one in library.archived()],
        "refused": [encode(one) for one in library.listing().refused],
        "reports": [encode(one, omit=["diff", "kept"], summary=one.summary) for one in reports],
    }


@view("/skills/{name}", page="/skills/{name}", title="Skill")
def skill(h: Herma, name: str) -> Json:
    """Show a skill: its text, its files, how often it was used and how it did, and its changes."""
    if not h.skills.resolve(name) or not hasattr(h.skills.resolve(name), "body"):
        raise UsageError(f"There is no skill {name[:60]!r}.", hint="It may be in the archive.", code="not_found")
    found = h.skills.view(name)
    history = [encode(one, omit=["before", "after"]) for one in h.skills.changes(found.skill.name, limit=20)]
    return {
        "ok": True,
        **skill_json(context_of(h), found.skill, found.usage),
        **view_json(found),
        "usage": usage_json(found.usage),
        "weeks": _weeks(h, found.skill.name),
        "changes": history,
    }


@action("/skills/{name}/archive")
def archive_skill(h: Herma, name: str) -> Json:
    """Move a skill to the archive. Nothing is deleted."""
    return skill_done(h.skills.archive(name))


@action("/skills/{name}/restore")
def restore_skill(h: Herma, name: str) -> Json:
    """Bring a skill back from the archive."""
    return skill_done(h.skills.restore(name))


@action("/skills/rollback/{run}", person=True)
def rollback_skills(h: Herma, run: str) -> Json:
    """Undo a run of tidying. Skills that changed since stay as they are."""
    done = h.curator.rollback(run)
    restored = f"Restored {count(len(done.done), 'skill')}." if done.done else "Every skill is in its place already."
    left = "".join(f" {path} stays as it is: {why}." for path, why in done.left)
    failed = "".join(f" {path} was not restored: {why}." for path, why in done.failed)
    return {**encode(done), "ok": done.ok, "message": restored + left + failed}


@action("/skills/{name}/pin")
def pin_skill(h: Herma, name: str, pinned: bool = True) -> Json:
    """Protect a skill from agents and tidying; with `pinned` false, do not."""
    skill(h, name)
    h.skills.pin(name, pinned=pinned)
    return {"ok": True, "message": f"{name} is pinned." if pinned else f"{name} is not pinned any more."}


# ── connections ──────────────────────────────────────────────────────────────────────────────────────────────────


@view("/connections", page="/connections", title="Connections")
def connections(handle: HomeHandle) -> Json:
    """Show the agents, models, providers and MCP servers that are set up, when each last worked, and what to type."""
    with handle.opened() as h:
        program = Program.here(h.home)
        clients = [client_json(one) for one in ConnectedClients(h.home, Machine.here(), program).status(h)]
        active = h.providers.active
        found = h.providers.list()
        status = h.providers.status(ask=False)
        servers = [
            {"name": one.name, "reached_by": one.place, "enabled": one.enabled}
            | {"last_worked": iso(last_worked(h.home, one.name))}
            for one in h.settings.mcp_servers
        ]
        models = [_model(h, role) for role in ("main", "auxiliary")]
        vectors = h.index.status().vectors
        value: Json = {
            "ok": True,
            "clients": clients,
            "models": models,
            "embedder": {"name": vectors.model or None, "trouble": vectors.trouble or None, "left": vectors.left},
            "providers": [
                {**encode(one), "active": one.name == active, "recalls": one.name in h.providers.sources}
                for one in found
            ],
            "provider": encode(status.last, at=iso(status.last.at)) if status.last else None,
            "servers": servers,
        }
    known = handle.known_health()
    return value | {"failures": diagnosis_json(known)["failures"] if known else []}


def _model(h: Herma, role: Role) -> Json:
    """Return a model of the settings without its key, and when it last answered."""
    where = h.models.endpoint(role)
    last: float | None = None
    if role == "main":
        newest = h.calls.newest(None, float("-inf"), 1)
        last = newest[-1].at if newest else None
    elif calls := h.models.spending_history(calls=1).calls:
        last = calls[0].at
    return {
        "role": role,
        "name": where.name if where else None,
        "host": where.host if where else None,
        "key": bool(where and where.key),
        "why_not": None if where else h.models.why_not(role),
        "last_call": iso(last),
    }


# ── import ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ImportJob:
    """An import that runs beside the requests."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.state: Literal["running", "done", "failed"] = "running"
        self.done = self.total = 0
        self.message = ""
        self.undo = ""

    def progress(self, done: int, total: int) -> None:
        self.done, self.total = done, total

    def run(self, handle: HomeHandle) -> None:
        try:
            with handle.opened() as h:
                result = Imports(h).run(self.source, progress=self.progress)
        except HermaError as error:
            self.state, self.message = "failed", str(error)
            return
        added = f"{count(result.messages, 'message')} in {count(result.sessions, 'new session')}"
        problems = f" {count(len(result.problems), 'file')} could not be read in full." if result.problems else ""
        self.message = f"Added {added}.{problems}" if result.messages else f"Nothing new.{problems}"
        self.undo = f"i{result.batch}" if result.batch and result.messages else ""
        self.state = "done"


@view("/import", page="/import", title="Import")
def imports(handle: HomeHandle, look: bool = False) -> Json:
    """List the imports and those that run; with `look`, the transcripts of other programs on this machine."""
    with handle.opened() as h:
        made = Imports(h)
        found = made.discover() if look else []
        batches = [encode(one, at=iso(one.at), undone=iso(one.undone), id=f"i{one.id}") for one in made.batches()]
    jobs = [
        {name: getattr(job, name) for name in ("source", "state", "done", "total", "message", "undo")}
        for job in handle.imports.values()
    ]
    return {
        "ok": True,
        "looked": look,
        "found": [encode(one, oldest=iso(one.oldest), newest=iso(one.newest)) for one in found],
        "batches": batches,
        "jobs": jobs,
        "sources": sorted(readers()),
    }


@action("/import/{source}")
def start_import(handle: HomeHandle, source: str) -> Json:
    """Import the transcripts of a program on this machine. It runs in the background; the list shows how far it is."""
    if source not in readers():
        raise UsageError(f"Unknown source {source[:60]!r}.", hint=", ".join(sorted(readers())), code="not_found")
    running = handle.imports.get(source)
    if running is None or running.state != "running":
        job = handle.imports[source] = ImportJob(source)
        BackgroundCall("import", partial(job.run, handle)).start()
    return {"ok": True, "message": f"The import of {source} is running."}


# ── health ───────────────────────────────────────────────────────────────────────────────────────────────────────


@view("/health", page="/health", title="Health")
def health(handle: HomeHandle, fresh: bool = False) -> Json:
    """Show what the doctor found at most five minutes ago, or finds now, and the command that repairs each problem."""
    found = None if fresh else handle.known_health()
    found = found or handle.doctor()
    return diagnosis_json(found) | {"ok": True, "verdict": verdict(found), "checked": iso(handle.checked)}


def prometheus(h: Herma) -> str:
    """Return figures of a home in the text format of Prometheus: each with what it is about, and values by label."""
    total = h.transcripts.stats()
    files = [(f'{{file="{one.target}"}}', one) for one in h.memory.status()]
    sizes = [(f'{{file="{name}"}}', one) for name, one in databases(h.home).items()]
    today = background_of(h).spent.total_today
    figures: list[tuple[str, str, list[tuple[str, float]]]] = [
        ("messages", "Stored messages.", [("", total.messages)]),
        ("sessions", "Stored sessions.", [("", total.sessions)]),
        ("conversations", "Stored conversations.", [("", total.conversations)]),
        ("memory_characters", "Used of a memory file.", [(label, one.used) for label, one in files]),
        ("memory_limit_characters", "Limit of a memory file.", [(label, one.limit) for label, one in files]),
        ("inbox_proposals", "Waiting proposals.", [("", len(waiting(context_of(h))))]),
        ("file_bytes", "Size of a database.", [(label, one) for label, one in sizes]),
        ("background_usd_today", "US dollars of background work today.", [("", today.usd)]),
        ("background_tokens_today", "Tokens of background work today.", [("", today.tokens)]),
    ]
    lines = []
    for name, about, values in figures:
        lines += [f"# HELP herma_{name} {about}", f"# TYPE herma_{name} gauge"]
        lines += [f"herma_{name}{label} {value:g}" for label, value in values]
    return "\n".join(lines) + "\n"


def change_stamp(h: Herma) -> object:
    """Return a value that changes when a message, an entry, a skill, a proposal or an import comes or goes."""
    return h.db.row(h.db.queries("web.pages")["stamp"])
