"""Supermemory: a profile of the user and memories of a namespace, through its SDK (version 5).

A conversation is stored as a document when it ends or goes on under another id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from herma.providers.bundled import (
    BundledProvider,
    Json,
    ToolProblem,
    Unsent,
    field,
    listed,
    secret_field,
    text,
    tool,
    transcript,
    whole,
)

ROOM, LONGEST = 4_000, 100_000
_NAMESPACE = re.compile(r"[^\w-]+")


class Supermemory(BundledProvider):
    """Memories and a profile in one or several namespaces of Supermemory."""

    name = "supermemory"
    file = "supermemory.json"
    about = "Supermemory\nA profile of the user and memories of earlier conversations."
    budget = f"{ROOM:,} characters"
    shown = ("container_tag", "max_recall_results")
    packages = ("supermemory>=5,<6",)
    aliases: ClassVar[Mapping[str, str]] = {
        "supermemory-save": "supermemory_store",
        **{f"supermemory-{each}": f"supermemory_{each}" for each in ("search", "forget", "profile")},
    }
    fields: ClassVar[Sequence[Json]] = (
        secret_field("api_key", "SUPERMEMORY_API_KEY", "https://console.supermemory.ai", required=True),
        field(
            "container_tag",
            "herma",
            "namespace of the memories; {identity} stands for the profile",
            env_var="SUPERMEMORY_CONTAINER_TAG",
        ),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("auto_recall", True, "recall before each turn"),
        field("auto_capture", True, "store conversations"),
        field("max_recall_results", 10, "memories that a turn may get", minimum=1, maximum=20),
        field("profile_frequency", 50, "turns after which the profile is recalled again", minimum=1),
        field("capture_mode", "all", "all: skip one-word turns; everything", choices=["all", "everything"]),
        field("search_mode", "hybrid", "what is searched", choices=["hybrid", "memories", "documents"]),
        field("entity_context", "", "what the service should know about the user (1,500 characters)"),
        field("api_timeout", 5.0, "seconds for a recall", minimum=0.5, maximum=15.0),
        field("base_url", "", "address of another server"),
        field("enable_custom_container_tags", False, "let tools name another namespace"),
        field("custom_containers", [], "the namespaces that tools may name"),
        field("custom_container_instructions", "", "when to use which namespace"),
    )

    def connect(self) -> Any:
        from supermemory import Supermemory as Client

        return Client(
            api_key=self.values["api_key"],
            base_url=self.values["base_url"] or None,
            timeout=self.values["api_timeout"],
            max_retries=1,
            default_headers={"x-sm-source": "herma"},
        )

    def begin(self) -> None:
        tag = self.values["container_tag"].replace("{identity}", self.profile or "default")
        self.namespace = _NAMESPACE.sub("_", tag) or "herma"
        self._turns = self._profile_turn = 0
        self._said = Unsent()

    def shutdown(self) -> None:
        if self._connection is not None:
            self.flush()
        super().shutdown()

    def get_tool_schemas(self) -> Sequence[Json]:
        schemas = super().get_tool_schemas()
        if self.values.get("enable_custom_container_tags"):
            return schemas
        shorter = []
        for schema in schemas:
            kept = {key: value for key, value in schema["parameters"]["properties"].items() if key != "container_tag"}
            shorter.append({**schema, "parameters": {**schema["parameters"], "properties": kept}})
        return shorter

    def system_prompt_block(self) -> str:
        instructions = (
            self.values["custom_container_instructions"] if self.values["enable_custom_container_tags"] else ""
        )
        return f"{super().system_prompt_block()}\n{instructions}".strip()

    # ── recall ──

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:  # noqa: ARG002
        self._turns = turn_number

    def recall(self, query: str) -> str:
        if not self.values["auto_recall"]:
            return ""
        parts = []
        if not self._profile_turn or self._turns - self._profile_turn >= self.values["profile_frequency"]:
            profile = self._profile(self.namespace)
            self._profile_turn = max(self._turns, 1)
            parts = [(key, listed(profile[key], ROOM // 4)) for key in ("static", "dynamic")]
        found = self._search(query[:2_000], self.values["max_recall_results"], self.namespace)
        parts.append(("found", listed((one["memory"] for one in found), ROOM // 2)))
        heads = {"static": "About the user:", "dynamic": "Lately:", "found": "Earlier:"}
        return "\n\n".join(f"{heads[key]}\n{shown}" for key, shown in parts if shown)

    def _profile(self, namespace: str) -> dict[str, list[str]]:
        answer = self.client.profile(namespace).profile
        return {key: [one.memory for one in getattr(answer, key, None) or []] for key in ("static", "dynamic")}

    def _search(self, query: str, limit: int, namespace: str) -> list[Json]:
        mode = {"documents": "chunks"}.get(self.values["search_mode"], self.values["search_mode"])
        answer = self.client.search(namespace, query=query, limit=limit, search_mode=mode)
        return [
            {"id": one.id, "memory": one.memory or one.chunk or "", "similarity": one.similarity}
            for one in answer.results
        ]

    # ── writes ──

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        short = self.values["capture_mode"] == "all" and len(user) < 10
        if self.values["auto_capture"] and not short:
            turn = [{"role": "user", "content": user}, {"role": "assistant", "content": assistant}]
            self._said.add(*transcript(turn, LONGEST))

    def flush(self) -> None:
        """Store the conversation so far as one document."""
        self._said.send(self._store)

    def _store(self, said: Sequence[Json]) -> None:
        content = "\n\n".join(f"{one['role']}: {one['content']}" for one in said)[-LONGEST:]
        more = {"supporting_context": self.values["entity_context"][:1_500]} if self.values["entity_context"] else {}
        session = _NAMESPACE.sub("_", self.session_id)[:90]
        about = {"type": "conversation", "session": session}
        name = f"{session}-{hashlib.sha256(content.encode()).hexdigest()[:8]}"  # a retry replaces the document
        self.client.add(self.namespace, content=content, id=name, metadata=about, **more)

    def take_back(self) -> None:
        self._said.drop(2)

    def go_on(self, session_id: str, parent: str, reset: bool) -> None:  # noqa: ARG002
        self.flush()  # under the old id
        self._profile_turn = 0 if reset else self._profile_turn
        self.session_id = session_id

    def mirror(self, action: str, target: str, content: str, old: str) -> None:  # noqa: ARG002
        if action == "add" and content:
            self.client.add(self.namespace, content=content, metadata={"type": "curated", "target": target})

    # ── tools ──

    @tool(
        "Store a memory.",
        content=text("The memory."),
        metadata={"type": "object", "description": "Keys and values to store with it."},
        container_tag=text("Another namespace."),
    )
    def supermemory_store(self, content: str, metadata: Json | None = None, container_tag: str = "") -> Json:
        plain = {key: value for key, value in (metadata or {}).items() if isinstance(value, str | int | bool)}
        done = self.client.add(self._chosen(container_tag), content=content, metadata={"type": "tool", **plain})
        return {"stored": True, "id": done.id}

    @tool(
        "Find memories by meaning.",
        reads=True,
        query=text("What to look for."),
        limit=whole("At most so many.", 5, 1, 20),
        container_tag=text("Another namespace."),
    )
    def supermemory_search(self, query: str, limit: int, container_tag: str = "") -> Json:
        found = self._search(query, limit, self._chosen(container_tag))
        return {"results": found, "count": len(found)}

    @tool(
        "Forget a memory, by its id or by what it says.",
        id=text("The id that a search gave."),
        query=text("What the memory says."),
        container_tag=text("Another namespace."),
    )
    def supermemory_forget(self, id: str = "", query: str = "", container_tag: str = "") -> Json:  # noqa: A002
        namespace = self._chosen(container_tag)
        if id:
            done = self.client.memories.forget(namespace, ids=[id])
        elif query:
            done = self.client.memories.forget_matching(namespace, query=query, dry_run=False)
        else:
            raise ToolProblem("id or query is required.")
        return {"forgotten": done.count, "errors": [str(each) for each in done.errors]}

    @tool(
        "Show what is known about the user.",
        reads=True,
        query=text("Also look for this."),
        container_tag=text("Another namespace."),
    )
    def supermemory_profile(self, query: str = "", container_tag: str = "") -> Json:
        namespace = self._chosen(container_tag)
        profile: Json = dict(self._profile(namespace))
        return {**profile, "results": self._search(query, 5, namespace)} if query else profile

    def _chosen(self, tag: str) -> str:
        if not tag or not self.values["enable_custom_container_tags"]:
            return self.namespace
        allowed = self.values["custom_containers"]
        if allowed and tag not in allowed:
            raise ToolProblem(f"container_tag: unknown namespace {tag!r}. Allowed: {', '.join(allowed)}.")
        return _NAMESPACE.sub("_", tag)
