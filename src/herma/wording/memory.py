"""Curated memory at a glance, as JSON: `herma memory status --json` and the dashboard."""

from __future__ import annotations

from herma.types import Scope, StoreStatus
from herma.wording.sessions import Json


def percent(used: int, limit: int) -> int:
    return used * 100 // limit if limit else 100


def scope_json(scope: Scope) -> Json:
    return {"project": scope.project or None, "user": scope.user or None}


def status_json(status: StoreStatus, *, enabled: bool) -> Json:
    return {
        "target": status.target,
        **scope_json(status.scope),
        "path": status.path,
        "enabled": enabled,
        "entry_count": status.entry_count,
        "used": status.used,
        "limit": status.limit,
        "percent": percent(status.used, status.limit),
        "changes": status.changes,
        "pending": status.pending,
        "flagged": status.findings,
        "trouble": status.trouble,
    }
