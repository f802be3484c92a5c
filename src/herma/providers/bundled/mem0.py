"""Mem0: memories that the service extracts from conversations; hosted, self-hosted, or in this process.

The hosted platform and the self-hosted server are called over their documented HTTP interfaces; the SDK (`mem0ai`) is
needed for `oss` only, where it runs in this process with a vector store and a model of its own. Memories of a user are
shared by all agents.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from herma.providers.bundled import (
    HTTPX,
    BundledProvider,
    Http,
    Json,
    ToolProblem,
    checked_id,
    field,
    flag,
    listed,
    secret_field,
    text,
    tool,
    whole,
)

RECALLED, ROOM, RECALL_TIMEOUT = 10, 4_000, 3.0
PLATFORM = {
    "search": ("POST", "/v3/memories/search/"),
    "add": ("POST", "/v3/memories/add/"),
    "update": ("PUT", "/v1/memories/{id}/"),
    "delete": ("DELETE", "/v1/memories/{id}/"),
}
SELF_HOSTED = {
    "search": ("POST", "/search"),
    "add": ("POST", "/memories"),
    "update": ("PUT", "/memories/{id}"),
    "delete": ("DELETE", "/memories/{id}"),
}


class Mem0Http:
    """The platform or a self-hosted server."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        hosted = values["mode"] == "platform"
        self._routes = PLATFORM if hosted else SELF_HOSTED
        headers = {"Authorization": f"Token {values['api_key']}"} if hosted else {"X-API-Key": values["api_key"]}
        url = values["host"] or "https://api.mem0.ai"
        self._http = Http("Mem0", url, headers if values["api_key"] else {}, values["timeout"])
        self.close = self._http.close

    def search(self, query: str, user: str, top_k: int, rerank: bool) -> Any:
        body: Json = {"query": query, "filters": {"user_id": user}, "top_k": top_k}
        if rerank and self._routes is PLATFORM:
            body["rerank"] = True
        return self._call("search", body, timeout=RECALL_TIMEOUT)

    def add(self, messages: list[Json], about: Json, infer: bool) -> Any:
        return self._call("add", {"messages": messages, **about, "infer": infer})

    def update(self, memory_id: str, content: str) -> Any:
        return self._call("update", {"text": content}, memory_id)

    def delete(self, memory_id: str) -> Any:
        return self._call("delete", None, memory_id)

    def _call(self, what: str, body: Json | None, memory_id: str = "", **more: Any) -> Any:
        method, path = self._routes[what]
        return self._http.call(method, path.format(id=memory_id), body, **more)


class Mem0InProcess:
    """The open-source library, with a vector store and models of its own."""

    def __init__(self, config: Json) -> None:
        os.environ.setdefault("MEM0_TELEMETRY", "False")  # the library reports its use by default
        from mem0 import Memory

        self._memory: Any = Memory.from_config(config)

    def search(self, query: str, user: str, top_k: int, rerank: bool) -> Any:  # noqa: ARG002
        return self._memory.search(query, filters={"user_id": user}, top_k=top_k)

    def add(self, messages: list[Json], about: Json, infer: bool) -> Any:
        return self._memory.add(messages, **about, infer=infer)

    def update(self, memory_id: str, content: str) -> Any:
        return self._known(memory_id, lambda: self._memory.update(memory_id, text=content))

    def delete(self, memory_id: str) -> Any:
        return self._known(memory_id, lambda: self._memory.delete(memory_id))

    def _known(self, memory_id: str, call: Any) -> Any:
        try:
            return call()
        except ValueError as exc:
            raise ToolProblem(f"There is no memory {memory_id}.") from exc

    def close(self) -> None:
        self._memory.close()


class Mem0(BundledProvider):
    """Memories of a Mem0 service or library."""

    name = "mem0"
    file = "mem0.json"
    about = "Mem0 memory\nFacts about the user, extracted from earlier conversations."
    budget = f"{RECALLED} memories, {ROOM:,} characters"
    shown = ("mode", "user_id")
    fields: ClassVar[Sequence[Json]] = (
        field("mode", "platform", "where Mem0 runs", choices=["platform", "self-hosted", "oss"], env_var="MEM0_MODE"),
        secret_field("api_key", "MEM0_API_KEY", "https://app.mem0.ai", required=True, when={"mode": "platform"}),
        field("host", "", "address of a self-hosted server", env_var="MEM0_HOST", when={"mode": "self-hosted"}),
        field("oss", {}, "the library's configuration: llm, embedder, vector_store", when={"mode": "oss"}),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("user_id", "", "whose memories; empty: the session's user", env_var="MEM0_USER_ID"),
        field("agent_id", "herma", "who stores them", env_var="MEM0_AGENT_ID"),
        field("rerank", False, "let the platform rank results again: better and slower"),
        field("timeout", 60.0, "seconds for a write", minimum=1.0, maximum=300.0),
    )

    @property
    def requires(self) -> Sequence[str]:
        return ("mem0ai>=2.2,<3",) if self.load_settings()["mode"] == "oss" else (HTTPX,)

    def missing(self) -> str:
        if self.values["mode"] == "self-hosted" and not self.values["host"]:
            return "MEM0_HOST is not set"
        if self.values["mode"] == "oss" and not self.values["oss"]:
            return "oss in mem0.json is empty: it needs llm, embedder and vector_store"
        return super().missing()

    def connect(self) -> Mem0Http | Mem0InProcess:
        return Mem0InProcess(self.values["oss"]) if self.values["mode"] == "oss" else Mem0Http(self.values)

    def begin(self) -> None:
        named = self.values["user_id"]
        configured = named if named != "hermes-user" or not self.user else ""
        self.owner = configured or self.user or "herma-user"

    def recall(self, query: str) -> str:
        return listed((one["memory"] for one in self._search(query[:2_000], RECALLED, self.values["rerank"])), ROOM)

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        said = [("user", user), ("assistant", assistant)]
        turn = [{"role": role, "content": content} for role, content in said if content]
        if turn:
            self.client.add(turn, self._about(), infer=True)

    @tool(
        "Find memories about the user by meaning.",
        reads=True,
        query=text("What to look for."),
        top_k=whole("At most so many.", 10, 1, 50),
        rerank=flag("Rank again: better and slower."),
    )
    def mem0_search(self, query: str, top_k: int, rerank: bool = False) -> Json:
        found = self._search(query, top_k, rerank or self.values["rerank"])
        return {"results": found, "count": len(found)}

    @tool("Store a fact word for word.", content=text("The fact."))
    def mem0_add(self, content: str) -> Json:
        message = {"role": "user", "content": content}
        return {"stored": True, "result": self.client.add([message], self._about(), infer=False)}

    @tool(
        "Replace the text of a memory.",
        memory_id=text("The id that mem0_search gave."),
        text=text("The new text."),
    )
    def mem0_update(self, memory_id: str, text: str) -> Json:
        self.client.update(checked_id(memory_id), text)
        return {"updated": memory_id}

    @tool("Delete a memory.", memory_id=text("The id that mem0_search gave."))
    def mem0_delete(self, memory_id: str) -> Json:
        self.client.delete(checked_id(memory_id))
        return {"deleted": memory_id}

    def _search(self, query: str, top_k: int, rerank: bool) -> list[Json]:
        answer = self.client.search(query, self.owner, top_k, rerank)
        found = answer.get("results", []) if isinstance(answer, dict) else answer
        return [
            {"id": one.get("id"), "memory": one["memory"], "score": one.get("score")}
            for one in found
            if isinstance(one, dict) and isinstance(one.get("memory"), str)
        ]

    def _about(self) -> Json:
        channel = str(self.session_values.get("platform") or "library")
        return {"user_id": self.owner, "agent_id": self.values["agent_id"], "metadata": {"channel": channel}}
