"""A `SessionFilter` as SQL: fixed conditions, every value bound."""

from __future__ import annotations

import json
from typing import Any

from herma.types import SessionFilter

_TOKENS = (
    "({t}.input_tokens + {t}.output_tokens + {t}.cache_read_tokens + {t}.cache_write_tokens + {t}.reasoning_tokens)"
)
_CONDITIONS = {
    "source": "{t}.source = :source",
    "exclude_sources": "{t}.source NOT IN (SELECT value FROM json_each(:exclude_sources))",
    "profile": "{t}.profile = :profile",
    "project": "(rtrim({t}.project, '/\\') = :project"
    " OR substr({t}.project, 1, length(:project) + 1) IN (:project || '/', :project || '\\')"
    " OR (NOT instr(:project, '/') AND NOT instr(:project, '\\')"
    " AND substr(rtrim({t}.project, '/\\'), -length(:project) - 1) IN ('/' || :project, '\\' || :project)))",
    "user": "{t}.user = :user",
    "chat": "{t}.chat = :chat",
    "archived": "{t}.archived = :archived",
    "delegated": "((SELECT r.reason FROM sessions r WHERE r.id = {t}.conversation) IS 'delegation') = :delegated",
    "search": "(instr(lower(coalesce({t}.title, '')), lower(:search)) OR instr(lower({t}.id), lower(:search)))",
    "model": "instr(lower(coalesce({t}.model, '')), lower(:model))",
    "provider": "{t}.provider = :provider",
    "chat_type": "{t}.chat_type = :chat_type",
    "folder": "({t}.folder = :folder"
    " OR substr({t}.folder, 1, length(:folder) + 1) IN (:folder || '/', :folder || '\\'))",
    "branch": "instr(lower({t}.branch), lower(:branch))",
    "end_reason": "{t}.end_reason = :end_reason",
    "started_after": "{t}.started >= :started_after",
    "started_before": "{t}.started <= :started_before",
    "active_before": "{t}.last_active <= :active_before",
    "min_messages": "{t}.message_count >= :min_messages",
    "max_messages": "{t}.message_count <= :max_messages",
    "min_tool_calls": "{t}.tool_call_count >= :min_tool_calls",
    "max_tool_calls": "{t}.tool_call_count <= :max_tool_calls",
    "min_tokens": _TOKENS + " >= :min_tokens",
    "max_tokens": _TOKENS + " <= :max_tokens",
    "min_cost": "{t}.cost_usd >= :min_cost",
    "max_cost": "{t}.cost_usd <= :max_cost",
}


def conditions(which: SessionFilter, table: str) -> tuple[str, dict[str, Any]]:
    """Conditions to add to a WHERE that has one already, and what they bind."""
    sql, bindings = "", {}
    for name, condition in _CONDITIONS.items():
        value = getattr(which, name)
        if value is None or value == () or (name == "search" and not value):
            continue
        sql += "\n   AND " + condition.format(t=table)
        if name in ("project", "folder"):  # a shell that completes a path puts a slash behind it
            value = value.rstrip("/\\") or value
        bindings[name] = json.dumps(value) if isinstance(value, tuple) else value
    return sql, bindings
