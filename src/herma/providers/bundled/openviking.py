"""OpenViking: memories and resources of an OpenViking server, addressed by `viking://` URIs.

The server's HTTP interface (0.5) is called; its client package does not state a licence. A turn goes into a session of
the server with its tool calls, and the session is committed when the conversation ends: then the server extracts
memories from it.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar
from urllib.parse import quote, urlsplit

from herma.errors import ProviderError
from herma.providers.bundled import (
    HTTPX,
    BundledProvider,
    Http,
    Json,
    LocalServer,
    ServiceRefused,
    ToolProblem,
    clean,
    field,
    flag,
    listed,
    secret_field,
    text,
    texts,
    tool,
    whole,
)

LONGEST_PART = 4_000
MOST_READ = 3
WHOLE = 2
"""The level of a file; 0 and 1 are the abstract and the overview of a folder."""
FOLDERS = {"preference": "preferences", "entity": "entities", "event": "events", "case": "cases", "pattern": "patterns"}
_MEMORY = re.compile(r"viking://user/[^/]+/memories/.+\.md")
_SESSION = re.compile(r"[^\w-]+")
_FRONT_MATTER = re.compile(r"\A---\n.*?\n---\n", re.DOTALL)


class OpenViking(BundledProvider):
    """Memories of an OpenViking server."""

    name = "openviking"
    file = "openviking.json"
    about = "OpenViking memory\nA tree of memories and resources, addressed by viking:// URIs."
    shown = ("endpoint", "user", "recall_limit", "max_injected_chars")
    packages = (HTTPX,)
    fields: ClassVar[Sequence[Json]] = (
        field("endpoint", "http://127.0.0.1:1933", "address of the server", env_var="OPENVIKING_ENDPOINT"),
        secret_field("api_key", "OPENVIKING_API_KEY"),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("account", "default", "account, for a server without keys", env_var="OPENVIKING_ACCOUNT"),
        field("user", "default", "user, for a server without keys", env_var="OPENVIKING_USER"),
        field("agent", "herma", "name of this agent", env_var="OPENVIKING_AGENT"),
        field("autostart", False, "start openviking-server if the endpoint is on this machine and does not answer"),
        field("recall_limit", 6, "memories that a turn may get", minimum=1, maximum=50),
        field("score_threshold", 0.15, "leave out memories below", minimum=0.0, maximum=1.0),
        field("max_injected_chars", 4_000, "characters that a turn may get", minimum=200),
        field("recall_timeout", 4.0, "seconds for a recall", minimum=0.1, maximum=60.0),
        field("request_timeout", 30.0, "seconds for other calls", minimum=0.1, maximum=300.0),
        field("full_read_limit", 2, "memories that are read in full", minimum=0, maximum=10),
        field("prefer_abstract", False, "recall abstracts only"),
        field("resources", False, "also recall resources"),
    )

    @property
    def fallback(self) -> str:  # type: ignore[override]
        return os.environ.get("OPENVIKING_CLI_CONFIG_FILE") or "~/.openviking/ovcli.conf"

    def adapt(self, stored: Json) -> Json:
        """Take over what ovcli.conf calls otherwise."""
        names = {"url": "endpoint", "agent_id": "agent", "actor_peer_id": "agent"}
        return {names.get(key, key): value for key, value in stored.items()}

    def connect(self) -> Http:
        key, url = self.values["api_key"], self.values["endpoint"]
        self._trusted = {"X-OpenViking-Account": self.values["account"], "X-OpenViking-User": self.values["user"]}
        headers = {"X-OpenViking-Actor-Peer": self.values["agent"]}
        headers |= {"X-API-Key": key, "Authorization": f"Bearer {key}"} if key else self._trusted
        where = urlsplit(url)
        if self.values["autostart"] and where.hostname in ("127.0.0.1", "localhost"):
            words = ["openviking-server", "--host", where.hostname, "--port", str(where.port or 1933)]
            server = LocalServer(words, f"{url}/health", self.home / "openviking", environ={}, idle=0.0)
            server.ensure(60.0)
        return Http("OpenViking", url, headers, self.values["request_timeout"])

    def begin(self) -> None:
        self._uncommitted = 0

    def call(self, method: str, path: str, body: Json | None = None, **more: Any) -> Any:
        """Call a route and return its result."""
        try:
            answer = self.client.call(method, path, body, **more)
        except ServiceRefused as exc:
            if exc.status not in (400, 401, 403) or "trusted" not in str(exc).lower():
                raise
            answer = self.client.call(method, path, body, headers=self._trusted, **more)
        if isinstance(answer, dict) and answer.get("status") == "error":
            problem = answer.get("error") or {}
            raise ProviderError(f"OpenViking: {problem.get('message') or problem.get('code') or 'an error'}")
        return answer.get("result") if isinstance(answer, dict) and "result" in answer else answer

    # ── recall ──

    def recall(self, query: str) -> str:
        body = {
            "query": query[:2_000],
            "limit": self.values["recall_limit"],
            "score_threshold": self.values["score_threshold"],
        }
        found = self.call("POST", "/api/v1/search/find", body, timeout=self.values["recall_timeout"]) or {}
        kinds = ("memories", "resources") if self.values["resources"] else ("memories",)
        hits = sorted((one for kind in kinds for one in found.get(kind, [])), key=lambda one: -one.get("score", 0.0))
        hits = [one for one in hits if one.get("level", WHOLE) == WHOLE]  # summaries of folders say nothing of the user
        lines, reads = [], 0 if self.values["prefer_abstract"] else self.values["full_read_limit"]
        for one in hits:
            shown = str(one.get("abstract") or "")
            if reads > 0 and str(one.get("uri", "")).endswith(".md"):
                reads -= 1
                shown = self._read(str(one["uri"]), "read", timeout=self.values["recall_timeout"]) or shown
            lines.append(shown[: self.values["max_injected_chars"] // 2])
        return listed(lines, self.values["max_injected_chars"])

    def _read(self, uri: str, level: str, **more: Any) -> str:
        content = self.call("GET", f"/api/v1/content/{level}", query={"uri": uri}, **more)
        return _FRONT_MATTER.sub("", content).strip() if isinstance(content, str) else ""

    # ── writes ──

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:
        batch = parts_of(messages, {each["name"] for each in self.tools})
        if not batch or batch[0]["role"] != "user":
            said = [("user", user[:LONGEST_PART]), ("assistant", assistant[:LONGEST_PART])]
            batch = [{"role": role, "parts": [_text(content)]} for role, content in said if content]
        if batch:
            path = f"/api/v1/sessions/{self._session(self.session_id)}/messages/batch"
            for at in range(0, len(batch), 100):
                self.call("POST", path, {"messages": batch[at : at + 100]})
            self._uncommitted += len(batch)

    def _session(self, session_id: str) -> str:
        return quote(_SESSION.sub("_", session_id) or "session", safe="")

    def flush(self) -> None:
        if self._uncommitted:
            self.call("POST", f"/api/v1/sessions/{self._session(self.session_id)}/commit", {"keep_recent_count": 0})
            self._uncommitted = 0

    def mirror(self, action: str, target: str, content: str, old: str) -> None:  # noqa: ARG002
        if action == "add" and content:
            self._remember(content, "preference" if target == "user" else "pattern")

    def _remember(self, content: str, category: str) -> str:
        folder = f"viking://user/{quote(self.values['user'], safe='')}/memories/{FOLDERS[category]}"
        uri = f"{folder}/mem_{uuid.uuid4().hex[:12]}.md"
        self.call("POST", "/api/v1/content/write", {"uri": uri, "content": content, "mode": "create"})
        return uri

    # ── tools ──

    @tool(
        "Find memories and resources by meaning.",
        reads=True,
        query=text("What to look for."),
        mode=text("deep also uses this conversation.", "auto", "fast", "deep"),
        scope=text("Only below this viking:// URI."),
        limit=whole("At most so many.", 8, 1, 50),
    )
    def viking_search(self, query: str, limit: int, mode: str = "auto", scope: str = "") -> Json:
        body: Json = {"query": query, "limit": limit}
        body |= {"target_uri": scope} if scope else {}
        body |= {"session_id": self._session(self.session_id)} if mode == "deep" else {}
        found = self.call("POST", f"/api/v1/search/{'search' if mode == 'deep' else 'find'}", body) or {}
        return {key: found.get(key, []) for key in ("memories", "resources", "skills")}

    @tool(
        "Read up to three URIs.",
        reads=True,
        uri=text("The URI."),
        uris=texts("Or several."),
        level=text("How much.", "abstract", "overview", "full"),
    )
    def viking_read(self, uri: str = "", uris: Sequence[str] = (), level: str = "full") -> Json:
        wanted = uris or ([uri] if uri else [])
        if not wanted:
            raise ToolProblem("uri or uris is required.")
        route = "read" if level == "full" else level
        return {"contents": [{"uri": each, "content": self._read(each, route)} for each in wanted[:MOST_READ]]}

    @tool(
        "Look around in the tree.",
        reads=True,
        action=text("What to show.", "tree", "list", "stat"),
        path=text("A viking:// URI."),
    )
    def viking_browse(self, action: str, path: str = "viking://") -> Json:
        route = {"list": "ls"}.get(action, action)
        return {"result": self.call("GET", f"/api/v1/fs/{route}", query={"uri": path})}

    @tool("Store a memory.", content=text("The memory."), category=text("Its kind.", *FOLDERS))
    def viking_remember(self, content: str, category: str = "pattern") -> Json:
        return {"stored": self._remember(content, category)}

    @tool("Delete a memory.", uri=text("The URI of its .md file."))
    def viking_forget(self, uri: str) -> Json:
        if not _MEMORY.fullmatch(uri) or ".." in uri:
            raise ToolProblem(f"{uri} is not the .md file of a memory. Nothing was deleted.")
        return {"deleted": self.call("DELETE", "/api/v1/fs", query={"uri": uri, "recursive": "false"})}

    @tool(
        "Let the server read a web page, a repository or a document.",
        url=text("Its address."),
        reason=text("Why it matters."),
        to=text("The URI that it gets."),
        parent=text("Or the URI below which it is put."),
        instruction=text("How to read it."),
        wait=flag("Wait until it is read.", False),
        timeout=whole("Seconds to wait.", 30, 1, 50),
    )
    def viking_add_resource(self, url: str, wait: bool, timeout: int, **more: str) -> Json:
        if not re.match(r"https?://|git@", url):
            raise ToolProblem(f"{url} is not an address on the web. Nothing was added.")
        body = {"path": url, "wait": wait, "timeout": timeout, **more}
        return {"added": self.call("POST", "/api/v1/resources", body, timeout=55.0)}


def _text(content: str) -> Json:
    return {"type": "text", "text": content}


def parts_of(messages: Sequence[Mapping[str, Any]], own: set[str]) -> list[Json]:
    """Return the last turn as messages with parts: text and tool calls with their results, without tools of its own."""
    last = max((at for at, one in enumerate(messages) if one.get("role") == "user"), default=None)
    if last is None:
        return []
    turn = messages[last:]
    results = {one.get("tool_call_id"): one.get("content") for one in turn if one.get("role") == "tool"}
    batch: list[Json] = []
    for one in turn:
        parts: list[Json] = []
        content = one.get("content")
        if isinstance(content, list):
            content = "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
        if one.get("role") in ("user", "assistant") and isinstance(content, str) and clean(content):
            parts.append(_text(clean(content, LONGEST_PART)))
        for call in one.get("tool_calls") or ():
            function = call.get("function", {})
            if function.get("name") in own:
                continue
            output = results.get(call.get("id"))
            parts.append(
                {
                    "type": "tool",
                    "tool_id": str(call.get("id")),
                    "tool_name": str(function.get("name")),
                    "tool_input": _arguments(function.get("arguments")),
                    "tool_output": clean(output if isinstance(output, str) else "", LONGEST_PART),
                    "tool_status": "completed" if output is not None else "error",
                }
            )
        if parts:
            batch.append({"role": str(one["role"]), "parts": parts})
    return batch


def _arguments(given: Any) -> Json:
    try:
        value = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        value = {"text": clean(given, LONGEST_PART)}
    return value if isinstance(value, dict) else {}
