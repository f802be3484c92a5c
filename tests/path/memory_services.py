"""Memory services on loopback: each speaks the part of a service's documented HTTP interface that a provider uses.

with MemoryService(MEM0) as service:
    service.url, service.calls            # where it is, and what it was asked: (method, path, body)
    service.status, service.delay = 500, 0.5          # from now on it fails, or is slow
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qsl, unquote, urlsplit

KEY = "test-key"
NOW = "2026-01-02T03:04:05Z"
Routes = Mapping[str, Callable[["MemoryService", Any, dict[str, str], Any], Any]]


class MemoryService:
    """A server with routes `METHOD /path/{name}`; a route gets the service, the body, the query and the names."""

    def __init__(self, routes: Routes, key: str = KEY, port: int = 0) -> None:
        self.calls: list[tuple[str, str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.stored: dict[str, str] = {}
        self.kept: dict[str, Any] = {}
        self.status, self.delay, self.key = 200, 0.0, key
        self._routes = [
            (method, re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", path)), route)
            for (method, _, path), route in ((key.partition(" "), route) for key, route in routes.items())
        ]
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65_536  # an answer is one packet

            def handle_one(self) -> None:
                service.answer(self)

            do_GET = do_POST = do_PUT = do_DELETE = handle_one  # noqa: N815

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer(self, http: BaseHTTPRequestHandler) -> None:
        raw = http.rfile.read(int(http.headers.get("Content-Length") or 0))
        where = urlsplit(http.path)
        body = json.loads(raw) if raw and "json" in http.headers.get("Content-Type", "") else raw
        self.calls.append((http.command, unquote(where.path), body))
        self.headers.append({name.lower(): value for name, value in http.headers.items()})
        time.sleep(self.delay)
        status, value = self._find(http.command, where.path, body, dict(parse_qsl(where.query)))
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        http.send_response(status)
        http.send_header("Content-Type", "application/json")
        http.send_header("Content-Length", str(len(data)))
        http.end_headers()
        http.wfile.write(data)

    def _find(self, method: str, path: str, body: Any, query: dict[str, str]) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"error": "broken on purpose", "detail": "broken on purpose"}
        free = path.startswith(("/oauth/", "/.well-known/", "/health"))
        if self.key and not free and not any(self.key in value for value in self.headers[-1].values()):
            return 401, {"error": "no key", "detail": "no key"}
        for wanted, pattern, route in self._routes:
            match = pattern.fullmatch(path)
            if wanted == method and match:
                found = route(self, body, query, {key: unquote(value) for key, value in match.groupdict().items()})
                return found if isinstance(found, tuple) else (200, found)
        return 404, {"error": f"no route {method} {path}", "detail": "not found"}

    def paths(self, method: str = "POST") -> list[str]:
        return [path for each, path, _ in self.calls if each == method]

    def bodies(self, part: str) -> list[Any]:
        return [body for _, path, body in self.calls if part in path]

    def store(self, text: str) -> str:
        name = f"m-{len(self.stored) + 1}"
        self.stored[name] = text
        return name

    def find(self, query: str, most: int = 10) -> list[tuple[str, str]]:
        """Return what shares a word with the query, the newest first."""
        words = set(re.findall(r"\w{3,}", query.lower()))
        found = [(name, text) for name, text in self.stored.items() if words & set(re.findall(r"\w{3,}", text.lower()))]
        return found[::-1][:most]


def said(messages: list[dict[str, Any]]) -> str:
    return "\n".join(str(each.get("content")) for each in messages)


def removed(service: MemoryService, names: list[str]) -> int:
    return sum(service.stored.pop(name, None) is not None for name in names)


# ── Mem0 ──


def _mem0_search(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    if set(body) - {"query", "filters", "top_k", "rerank"} or not body["filters"].get("user_id"):
        return 400, {"error": "filters with an entity id are required"}
    return {"results": [{"id": name, "memory": text, "score": 0.9} for name, text in s.find(body["query"])]}


def _mem0_add(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    assert body["user_id"]
    return {"results": [{"id": s.store(said(body["messages"])), "event": "ADD"}]}


def _mem0_update(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    if names["id"] not in s.stored:
        return 404, {"error": "not found"}
    s.stored[names["id"]] = body["text"]
    return {"message": "updated"}


def _mem0_delete(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    return {"message": "deleted"} if removed(s, [names["id"]]) else (404, {"error": "not found"})


MEM0: Routes = {
    "POST /v3/memories/search/": _mem0_search,
    "POST /v3/memories/add/": _mem0_add,
    "PUT /v1/memories/{id}/": _mem0_update,
    "DELETE /v1/memories/{id}/": _mem0_delete,
}
MEM0_SERVER: Routes = {
    "POST /search": _mem0_search,
    "POST /memories": _mem0_add,
    "PUT /memories/{id}": _mem0_update,
    "DELETE /memories/{id}": _mem0_delete,
}

# ── Supermemory 5 ──


def _supermemory_found(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    assert body["searchMode"] in ("hybrid", "memories", "chunks")
    system = {"type": "memory", "createdAt": NOW, "updatedAt": NOW}
    rest = {"metadata": {}, "similarity": 0.8, "isLatest": True, "isInference": False, "system": system}
    return {"results": [{"id": name, "memory": text, **rest} for name, text in s.find(body["query"])], "searchTime": 3}


def _supermemory_profile(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    facts = [{"id": "p-1", "memory": "Likes birds."}]
    return {"profile": {"static": facts, "dynamic": [], "buckets": {}}}


SUPERMEMORY: Routes = {
    "POST /ns/{ns}/document": lambda s, body, query, names: {"id": s.store(body["content"]), "status": "queued"},
    "POST /ns/{ns}/search": _supermemory_found,
    "POST /ns/{ns}/profile": _supermemory_profile,
    "DELETE /ns/{ns}/memories": lambda s, body, query, names: {
        "count": removed(s, body["ids"]),
        "errors": [],
        "matches": [],
    },
    "DELETE /ns/{ns}/memories/semantic": lambda s, body, query, names: {
        "count": removed(s, [name for name, _ in s.find(body["query"])]),
        "errors": [],
        "matches": [],
    },
}

# ── Hindsight ──

_FEATURES = [
    "observations",
    "mcp",
    "worker",
    "bank_config_api",
    "bank_llm_health",
    "file_upload_api",
    "document_export_api",
    "document_import_api",
    "audit_log",
    "llm_trace",
    "store_document_text",
]


def _hindsight_retain(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    for item in body["items"]:
        s.store(item["content"])
    return {"success": True, "bank_id": names["bank"], "items_count": len(body["items"]), "async": body["async"]}


HINDSIGHT: Routes = {
    "GET /health": lambda s, body, query, names: {"status": "healthy"},
    "GET /version": lambda s, body, query, names: {
        "api_version": s.kept.get("version", "1.1.0"),
        "features": dict.fromkeys(_FEATURES, True),
    },
    "POST /v1/default/banks/{bank}/memories": _hindsight_retain,
    "POST /v1/default/banks/{bank}/memories/recall": lambda s, body, query, names: (
        {"results": [{"id": name, "text": text, "type": "observation"} for name, text in s.find(body["query"])]}
        if s.stored
        else (404, {"detail": f"Bank '{names['bank']}' not found"})
    ),
    "POST /v1/default/banks/{bank}/reflect": lambda s, body, query, names: (
        {"text": "They like birds."} if s.stored else (404, {"detail": "Bank not found"})
    ),
    "PUT /v1/default/banks/{bank}": lambda s, body, query, names: {
        "bank_id": names["bank"],
        "name": names["bank"],
        "disposition": {"skepticism": 3, "literalism": 3, "empathy": 3},
        "mission": body.get("mission") or "",
    },
}

# ── OpenViking ──


def _ok(value: Any) -> dict[str, Any]:
    return {"status": "ok", "result": value}


def _viking_found(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    unknown = set(body) - {"query", "limit", "score_threshold", "target_uri", "session_id"}
    if unknown:
        return 400, {"status": "error", "error": {"code": "INVALID_ARGUMENT", "message": f"unknown {unknown}"}}
    found = [{"uri": uri, "abstract": text[:80], "score": 0.7} for uri, text in s.find(body["query"])]
    return _ok({"memories": found, "resources": [], "skills": [], "total": len(found)})


def _viking_batch(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    for message in body["messages"]:
        for part in message["parts"]:
            s.stored[f"viking://session/{len(s.stored)}.md"] = part.get("text") or part["tool_output"]
    return _ok({"session_id": names["id"], "added": len(body["messages"])})


def _viking_write(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    s.stored[body["uri"]] = body["content"]
    return _ok({"uri": body["uri"], "vector_status": "queued"})


def _viking_read(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    if query["uri"] not in s.stored:
        return 404, {"status": "error", "error": {"code": "NOT_FOUND", "message": "no such file"}}
    return _ok(f"---\nkind: memory\n---\n{s.stored[query['uri']]}")


OPENVIKING: Routes = {
    "GET /health": lambda s, body, query, names: {"status": "ok", "healthy": True},
    "POST /api/v1/search/{how}": _viking_found,
    "POST /api/v1/sessions/{id}/messages/batch": _viking_batch,
    "POST /api/v1/sessions/{id}/commit": lambda s, body, query, names: _ok({"status": "accepted", "archived": True}),
    "POST /api/v1/content/write": _viking_write,
    "GET /api/v1/content/{level}": _viking_read,
    "GET /api/v1/fs/{what}": lambda s, body, query, names: _ok([{"uri": uri, "isDir": False} for uri in s.stored]),
    "DELETE /api/v1/fs": lambda s, body, query, names: _ok({"uri": query["uri"], "n": removed(s, [query["uri"]])}),
    "POST /api/v1/resources": lambda s, body, query, names: _ok({"root_uri": "viking://resources/x"}),
}

# ── RetainDB ──


def _retain_content(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    return s.kept.get(names["id"], (404, {"error": "File not found"}))


def _retain_upload(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    s.kept["f-1"] = body.partition(b"filename=")[2].partition(b"\r\n\r\n")[2].partition(b"\r\n--")[0]
    return {"id": "f-1", "uri": "rdb://f-1"}


RETAINDB: Routes = {
    "POST /v1/memory/agent/{id}/seed": lambda s, body, query, names: {"success": True},
    "POST /v1/memory": lambda s, body, query, names: (201, {"success": True, "id": s.store(body["content"])}),
    "POST /v1/memory/search": lambda s, body, query, names: {
        "results": [
            {"memory": {"id": name, "content": text}, "similarity": 0.8}
            for name, text in s.find(body["query"], body["top_k"])
        ]
    },
    "POST /v1/memory/ingest/session": lambda s, body, query, names: (
        202,
        {"success": True, "job_id": s.store(said(body["messages"]))},
    ),
    "GET /v1/memory/profile/{user}": lambda s, body, query, names: {
        "memories": [{"id": "p-1", "content": "Likes birds."}],
        "count": 1,
    },
    "POST /v1/context/query": lambda s, body, query, names: {
        "context": "\n".join(f"- {' '.join(text.split())}" for _, text in s.find(body["query"]))
    },
    "POST /v1/memory/dialectic": lambda s, body, query, names: {"answer": "They count herons."},
    "GET /v1/memory/agent/{id}/model": lambda s, body, query, names: {"summary": ""},
    "DELETE /v1/memory/{id}": lambda s, body, query, names: (
        {"success": True} if removed(s, [names["id"]]) else (404, {"error": "Memory not found"})
    ),
    "GET /v1/files": lambda s, body, query, names: {"files": [{"id": name} for name in s.kept]},
    "POST /v1/files": _retain_upload,
    "GET /v1/files/{id}": lambda s, body, query, names: {"id": names["id"]} if names["id"] in s.kept else (404, {}),
    "GET /v1/files/{id}/content": _retain_content,
    "POST /v1/files/{id}/ingest": lambda s, body, query, names: {"success": True},
    "DELETE /v1/files/{id}": lambda s, body, query, names: {"success": s.kept.pop(names["id"], None) is not None},
}

RETAINDB_OLD: Routes = {
    "GET /v1/memory/profile/{user}": RETAINDB["GET /v1/memory/profile/{user}"],
    "POST /v1/memories": RETAINDB["POST /v1/memory"],
    "DELETE /v1/memories/{id}": RETAINDB["DELETE /v1/memory/{id}"],
}
"""A server that has another name for memories."""

# ── Honcho ──

_WS = "/v3/workspaces/{ws}"


def _peer(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    given = body if isinstance(body, dict) else {}
    return {
        "id": given.get("id", "x"),
        "workspace_id": names.get("ws", ""),
        "created_at": NOW,
        "metadata": {},
        "configuration": {},
        "is_active": True,
    }


def _honcho_message(name: str, text: str) -> dict[str, Any]:
    about = {"peer_id": "user", "session_id": "s", "metadata": {}, "created_at": NOW, "workspace_id": "w"}
    return {"id": name, "content": text, "token_count": 1, **about}


def _honcho_messages(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    assert 0 < len(body["messages"]) <= 100
    return [_honcho_message(s.store(each["content"]), each["content"]) for each in body["messages"]]


def _honcho_context(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    known = "\n".join(list(s.stored.values())[-3:])
    return {"id": names["id"], "messages": [], "peer_representation": known, "peer_card": ["Likes birds."]}


def _conclusion(name: str, text: str) -> dict[str, Any]:
    return {"id": name, "content": text, "observer_id": "herma", "observed_id": "user", "created_at": NOW}


def _honcho_conclude(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    return [_conclusion(s.store(each["content"]), each["content"]) for each in body["conclusions"]]


def _honcho_conclusions(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    items = [_conclusion(*each) for each in s.stored.items()]
    return {"items": items, "page": 1, "size": 50, "total": len(items), "pages": 1}


def _honcho_card(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    if body:
        s.kept["card"] = body["peer_card"]
    return {"peer_card": s.kept.get("card", [])}


def _honcho_uploaded(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    name = body.partition(b'filename="')[2].partition(b'"')[0].decode()
    return [_honcho_message(s.store(name), name)]


def _oauth_about(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    where = {"device_authorization_endpoint": f"{s.url}/oauth/device", "token_endpoint": f"{s.url}/oauth/token"}
    return s.kept.get("about", where)


def _oauth_device(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    lives = s.kept.get("code lives", 30)
    if lives > 100:
        return 400, {"error": "invalid_client", "error_description": "Who are you?"}
    where = {"verification_uri": f"{s.url}/activate", "interval": 0.01, "expires_in": lives}
    return {"device_code": "d-1", "user_code": "ABCD-EFGH", **where}


def _oauth_token(s: MemoryService, body: Any, query: Any, names: Any) -> Any:
    """The second question for the code gets tokens; each refresh token works once."""
    form = dict(parse_qsl(body.decode()))
    if form["grant_type"] == "refresh_token":
        if form["refresh_token"] != s.kept["refresh"]:
            return 400, {"error": "invalid_grant"}
    elif not s.kept.setdefault("asked", False):
        s.kept["asked"] = s.kept.get("code lives", 30) > 1
        return 400, {"error": "authorization_pending"}
    number = s.kept["number"] = s.kept.get("number", 0) + 1
    s.kept["refresh"], s.key = f"refresh-{number}", f"access-{number}"
    return s.kept.get("token", {"access_token": s.key, "refresh_token": s.kept["refresh"], "expires_in": 3600})


HONCHO: Routes = {
    "GET /.well-known/oauth-authorization-server": _oauth_about,
    "POST /oauth/device": _oauth_device,
    "POST /oauth/token": _oauth_token,
    f"POST {_WS}/sessions/{{id}}/messages/upload": _honcho_uploaded,
    f"POST {_WS}/sessions/{{id}}/messages/list": lambda s, body, query, names: {
        "items": [],
        "page": 1,
        "size": 1,
        "total": len(s.stored),
        "pages": 1,
    },
    "POST /v3/workspaces": _peer,
    f"POST {_WS}/peers": _peer,
    f"POST {_WS}/sessions": _peer,
    f"POST {_WS}/sessions/{{id}}/peers": _peer,
    f"POST {_WS}/sessions/{{id}}/messages": _honcho_messages,
    f"GET {_WS}/sessions/{{id}}/context": _honcho_context,
    f"POST {_WS}/peers/{{id}}/chat": lambda s, body, query, names: {
        "content": s.kept.get("chat", "They count herons.")
    },
    f"GET {_WS}/peers/{{id}}/card": _honcho_card,
    f"PUT {_WS}/peers/{{id}}/card": _honcho_card,
    f"GET {_WS}/peers/{{id}}/context": lambda s, body, query, names: {
        "peer_id": names["id"],
        "target_id": "user",
        "representation": "Counts herons.",
        "peer_card": ["Likes birds."],
    },
    f"POST {_WS}/peers/{{id}}/search": lambda s, body, query, names: [
        _honcho_message(*each) for each in s.find(body["query"])
    ],
    f"POST {_WS}/conclusions": _honcho_conclude,
    f"POST {_WS}/conclusions/list": _honcho_conclusions,
    f"POST {_WS}/conclusions/query": lambda s, body, query, names: [
        _conclusion(*each) for each in s.find(body["query"])
    ],
    f"DELETE {_WS}/conclusions/{{id}}": lambda s, body, query, names: {"n": removed(s, [names["id"]])},
}

# ── ByteRover ──

BRV = r"""#!/bin/sh
if [ -f fault.txt ]; then sleep "$(cat fault.txt)"; echo "brv: the daemon is not there" >&2; exit 1; fi
case "$1 $2 $3" in
  "status  ") echo "Context tree: $(cat tree.txt 2>/dev/null | wc -l) entries" ;;
  "curate -- "*) printf '%s\n' "$3" | tr '\n' ' ' >> tree.txt; echo >> tree.txt; echo "Curated into the tree." ;;
  "curate --detach --") printf '%s\n' "$4" | tr '\n' ' ' >> tree.txt; echo >> tree.txt ;;
  "query -- "*) words=$(printf '%s' "$3" | tr -cs '[:alnum:]' '\n' | grep '.....')
    [ -f tree.txt ] && [ -n "$words" ] && printf '%s\n' "$words" | grep -i -a -F -f - tree.txt; exit 0 ;;
  *) echo "brv: unknown command $*" >&2; exit 2 ;;
esac
"""
