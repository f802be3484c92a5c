"""Hindsight: a bank of facts and observations, through its SDK; in the cloud or a server of your own.

With `local_embedded` Herma starts the server on this machine when it is needed, and it ends when it is unused.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.parse import urlsplit

from herma.models.endpoints import FILE, read_file
from herma.providers.bundled import (
    BundledProvider,
    Json,
    LocalServer,
    Unsent,
    clean,
    field,
    listed,
    secret_field,
    text,
    texts,
    tool,
)
from herma.worker import BackgroundCall

T = TypeVar("T")
URLS = {
    "cloud": "https://api.hindsight.vectorize.io",
    "local_embedded": "http://127.0.0.1:8888",
    "local_external": "http://localhost:8888",
}
EMBEDDED = {"mode": "local_embedded"}
_VARIABLES = "HINDSIGHT_API_"
APPENDS = (0, 5, 0)
"""The server's version from which a document can be appended to."""
LONGEST = 50_000


class Hindsight(BundledProvider):
    """A bank of a Hindsight server."""

    name = "hindsight"
    file = "hindsight/config.json"
    fallback = "~/.hindsight/config.json"
    about = "Hindsight memory\nFacts and observations from earlier conversations."
    shown = ("bank_id", "recall_budget", "recall_max_tokens")
    fields: ClassVar[Sequence[Json]] = (
        field("mode", "cloud", "where Hindsight runs", choices=[*URLS], env_var="HINDSIGHT_MODE"),
        secret_field(
            "apiKey",
            "HINDSIGHT_API_KEY",
            "https://ui.hindsight.vectorize.io",
            required=True,
            when={"mode": "cloud"},
        ),
        field("api_url", "", "address of the server; empty: as the mode says", env_var="HINDSIGHT_API_URL"),
        field("bank_id", "herma", "name of the bank", env_var="HINDSIGHT_BANK_ID"),
        field("llm_provider", "none", "language model of the server: openai, ollama, …; none", when=EMBEDDED),
        secret_field("llm_api_key", "HINDSIGHT_API_LLM_API_KEY", when=EMBEDDED),
        field("llm_model", "", "its name", when=EMBEDDED),
        field("llm_base_url", "", "its address", when=EMBEDDED),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field(
            "database_url",
            "",
            "PostgreSQL for local_embedded; empty: one that comes with the server",
            env_var="HINDSIGHT_API_DATABASE_URL",
        ),
        field(
            "idle_timeout", 300.0, "seconds without use after which a local_embedded server ends; 0: never", minimum=0
        ),
        field("port_health_grace_timeout", 60.0, "seconds that it may take to start", minimum=1.0),
        field("bank_id_template", "", "a bank for each {profile}, {workspace}, {platform}, {user} or {session}"),
        field("bank_mission", "", "what the bank is for"),
        field("bank_retain_mission", "", "what to retain"),
        field("recall_budget", "mid", "effort of a recall", choices=["low", "mid", "high"]),
        field("recall_prefetch_method", "recall", "how it recalls", choices=["recall", "reflect"]),
        field("recall_types", ["observation"], "kinds of facts; [] for all"),
        field("recall_tags", [], "only facts with these tags"),
        field(
            "recall_tags_match",
            "any",
            "how tags are compared",
            choices=["any", "all", "any_strict", "all_strict", "exact"],
        ),
        field("recall_max_tokens", 4_096, "tokens of a recall", minimum=64),
        field("recall_max_input_chars", 800, "characters of the message that are used", minimum=16),
        field("recall_prompt_preamble", "", "a line before what is recalled"),
        field("auto_recall", True, "recall before each turn"),
        field("auto_retain", True, "store turns"),
        field("retain_every_n_turns", 1, "turns that are stored together", minimum=1, maximum=100),
        field("retain_async", True, "do not wait until facts are extracted"),
        field("retain_context", "conversation between a user and an agent", "what the text is"),
        field("retain_tags", [], "tags of what is stored"),
        field("retain_source", "", "value of the metadata key source"),
        field("retain_user_prefix", "User", "how the user is called"),
        field("retain_assistant_prefix", "Assistant", "how the agent is called"),
        field("observation_scopes", "", "value of the metadata key observation_scopes"),
        field("timeout", 120.0, "seconds for a call", minimum=1.0),
    )
    _server: LocalServer | None = None

    @property
    def requires(self) -> Sequence[str]:
        client = "hindsight-client>=1.1,<2"
        embedded = self.load_settings()["mode"] == "local_embedded" and not program()
        return (client, "hindsight-api-slim[embedded-db]>=1.1,<2") if embedded else (client,)

    def missing(self) -> str:
        root = os.name == "posix" and os.geteuid() == 0
        if self.values["mode"] == "local_embedded" and root and not self.values["database_url"]:
            return "its PostgreSQL does not run as root; set database_url, or be another user"
        return super().missing()

    def connect(self) -> LoopClient:
        """Return the client; the server of `local_embedded` is started when it is first asked."""
        url = self.values["api_url"] or URLS[self.values["mode"]]
        if self.values["mode"] == "local_embedded":
            environ = {key: value for key, value in read_file(self.home / FILE).items() if key.startswith(_VARIABLES)}
            environ |= {f"{_VARIABLES}HOST": "127.0.0.1", f"{_VARIABLES}PORT": str(urlsplit(url).port or 8888)}
            for key in ("llm_provider", "llm_api_key", "llm_model", "llm_base_url", "database_url"):
                if self.values[key]:
                    environ[_VARIABLES + key.upper()] = self.values[key]
            idle, folder = self.values["idle_timeout"], self.home / "hindsight"
            self._server = LocalServer([program()], f"{url}/health", folder, environ=environ, idle=idle)
        return LoopClient(url, self.values["apiKey"] or None, self.values["timeout"])

    def begin(self) -> None:
        self._lock = threading.Lock()
        self._unsent = Unsent()
        self._reflected = ""
        self._appends: bool | None = None
        self._parent = str(self.session_values.get("parent_session_id") or "")
        parts = {
            "profile": self.profile,
            "workspace": self.session_values.get("agent_workspace"),
            "platform": self.session_values.get("platform"),
            "user": self.user,
            "session": self.session_id,
        }
        self.bank = self.values["bank_id"]
        if self.values["bank_id_template"]:
            self.bank = self.values["bank_id_template"]
            for key, value in parts.items():
                self.bank = self.bank.replace(f"{{{key}}}", str(value or "none"))
        if self.values["bank_mission"] or self.values["bank_retain_mission"]:
            mission, retain = self.values["bank_mission"] or None, self.values["bank_retain_mission"] or None
            self._ask(lambda client: client.acreate_bank(self.bank, mission=mission, retain_mission=retain))

    def _ask(self, question: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        if self._server is not None:
            self._server.ensure(self.values["port_health_grace_timeout"])
        client: LoopClient = self.client
        return client.ask(question)

    def _of_bank(self, question: Callable[[Any], Coroutine[Any, Any, Any]]) -> Any:
        """Ask about the bank; None if there is none yet: the first turn that is stored creates it."""
        from hindsight_client_api.exceptions import NotFoundException

        try:
            return self._ask(question)
        except NotFoundException:
            return None

    # ── recall ──

    def recall(self, query: str) -> str:
        if not self.values["auto_recall"]:
            return ""
        query = query[: self.values["recall_max_input_chars"]]
        if self.values["recall_prefetch_method"] == "reflect":
            with self._lock:
                found, self._reflected = self._reflected, ""
        else:
            found = listed(self._recalled(query), self.values["recall_max_tokens"] * 4)
        preamble = self.values["recall_prompt_preamble"]
        return f"{preamble}\n{found}".strip() if found else ""

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        """Let the bank reflect on the turn: that takes too long to wait for."""
        reflects = self.values["auto_recall"] and self.values["recall_prefetch_method"] == "reflect"
        if reflects and self.mode != "tools" and clean(query):
            answer = self._reflect(clean(query, self.values["recall_max_input_chars"]))
            with self._lock:
                self._reflected = answer

    def _recalled(self, query: str) -> list[str]:
        tags = self.values["recall_tags"]
        named: Json = {"tags": tags, "tags_match": self.values["recall_tags_match"]} if tags else {}
        kinds = self.values["recall_types"] or None
        budget, room = self.values["recall_budget"], self.values["recall_max_tokens"]
        answer = self._of_bank(
            lambda client: client.arecall(self.bank, query, types=kinds, max_tokens=room, budget=budget, **named)
        )
        return [one.text for one in answer.results] if answer else []

    def _reflect(self, query: str) -> str:
        budget = self.values["recall_budget"]
        answer = self._of_bank(lambda client: client.areflect(self.bank, query, budget=budget))
        return str(answer.text) if answer else ""

    # ── writes ──

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        if not self.values["auto_retain"]:
            return
        said = {"retain_user_prefix": user[:LONGEST], "retain_assistant_prefix": assistant[:LONGEST]}
        turn = "\n".join(f"{self.values[who]}: {what}" for who, what in said.items() if what)
        if self._unsent.add(*([turn] if turn else [])) >= self.values["retain_every_n_turns"]:
            self.flush()

    def flush(self) -> None:
        self._unsent.send(self._store)

    def _store(self, waiting: Sequence[str]) -> None:
        item = self._item("\n\n".join(waiting), self.values["retain_context"], [])
        if self._appends is None:
            version = str(self._ask(lambda client: client.aget_version()).api_version)
            numbers = tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
            self._appends = numbers >= APPENDS
        document: str | None = None
        if self._appends:
            item |= {"document_id": self.session_id, "update_mode": "append"}
        else:  # an older server replaces a document, so that each flush is one of its own
            document = f"{self.session_id}-{datetime.now(UTC):%Y%m%d%H%M%S%f}"
        self._retain(item, document)

    def _item(self, content: str, context: str, tags: Sequence[str]) -> Json:
        lineage = [f"session:{self.session_id}", *([f"parent:{self._parent}"] if self._parent else [])]
        about = {"source": self.values["retain_source"], "observation_scopes": self.values["observation_scopes"]}
        return {
            "content": content,
            "context": context,
            "timestamp": datetime.now(UTC),
            "tags": [*self.values["retain_tags"], *lineage, *tags],
            "metadata": {key: value for key, value in about.items() if value},
        }

    def _retain(self, item: Json, document: str | None) -> Any:
        later = self.values["retain_async"]
        return self._ask(
            lambda client: client.aretain_batch(self.bank, [item], document_id=document, retain_async=later)
        )

    def take_back(self) -> None:
        self._unsent.drop(1)

    def go_on(self, session_id: str, parent: str, reset: bool) -> None:
        self.flush()  # under the old id
        with self._lock:
            self._reflected = ""
        self._parent = "" if reset else parent
        self.session_id = session_id

    # ── tools ──

    @tool(
        "Store a fact.",
        content=text("The fact."),
        context=text("What it belongs to."),
        tags=texts("Its tags."),
    )
    def hindsight_retain(self, content: str, context: str = "", tags: Sequence[str] = ()) -> Json:
        return {"stored": bool(self._retain(self._item(content, context, tags), None).success)}

    @tool("Find facts by meaning.", reads=True, query=text("What to look for."))
    def hindsight_recall(self, query: str) -> Json:
        found = self._recalled(query)
        return {"results": found, "count": len(found)}

    @tool("Ask the bank to think about a question.", reads=True, query=text("The question."))
    def hindsight_reflect(self, query: str) -> Json:
        return {"answer": self._reflect(query)}


class LoopClient:
    """The SDK's client, which belongs to one event loop, and the thread in which this loop runs."""

    def __init__(self, url: str, key: str | None, timeout: float) -> None:
        self._named = {"api_key": key, "timeout": timeout, "max_attempts": 1}
        self._url, self._client = url, None
        self._loop = asyncio.new_event_loop()
        self._running = BackgroundCall("hindsight", self._loop.run_forever).start()

    def ask(self, question: Callable[[Any], Coroutine[Any, Any, T]]) -> T:
        """Ask the client, from any thread."""

        async def work() -> T:
            if self._client is None:
                from hindsight_client import Hindsight as Client

                self._client = Client(self._url, **self._named)
            return await question(self._client)

        return asyncio.run_coroutine_threadsafe(work(), self._loop).result()

    def close(self) -> None:
        if self._client is not None:
            self.ask(lambda client: client.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._running.done.wait()
        self._loop.close()


def program() -> str:
    """Return the server's program, or nothing."""
    beside = str(Path(sys.executable).parent)
    return shutil.which("hindsight-api", path=os.pathsep.join([*os.get_exec_path(), beside])) or ""
