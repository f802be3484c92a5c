"""RetainDB: memories and files of a RetainDB server; turns wait on disk until the server has them.

There is no SDK for Python, so its HTTP interface is called. A turn is written to a queue on disk, and deleted from
there once the server has it. Turns that could not be sent are sent with the next one, by this process or another.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import quote

import apsw

from herma.errors import StoreBusy
from herma.prompt.assemble import read_soul
from herma.providers.bundled import (
    HTTPX,
    BundledProvider,
    Http,
    Json,
    ServiceRefused,
    ToolProblem,
    checked_id,
    clean,
    field,
    flag,
    fraction,
    listed,
    secret_field,
    text,
    tool,
    whole,
)
from herma.providers.discovery import raise_if_read_blocked
from herma.store.files import exclusive

PROFILE, FOUND, ROOM = 5, 5, 4_000
REPLAYED = 200
LONGEST, LONGEST_FILE, SHOWN_FILE = 10_000, 10_000_000, 32_000
AGENT = "/v1/memory/agent/herma"
LATER = (408, 425, 429)
"""Error statuses below 500 after which a write is tried again."""
QUEUE = """
CREATE TABLE IF NOT EXISTS pending (
    id INTEGER PRIMARY KEY, path TEXT NOT NULL, body TEXT NOT NULL, created_at TEXT DEFAULT CURRENT_TIMESTAMP,
    refused TEXT);
CREATE TABLE IF NOT EXISTS sent_once (digest TEXT PRIMARY KEY)
"""


def call(http: Http, method: str, path: str, body: Json | None = None, **more: Any) -> Any:
    """Call a route. Older servers have that of memories under another name."""
    try:
        return http.call(method, path, body, **more)
    except ServiceRefused as exc:
        rest = path.removeprefix("/v1/memory")
        if exc.status != 404 or (path != "/v1/memory" and not (method == "DELETE" and rest.count("/") == 1)):
            raise
        return http.call(method, f"/v1/memories{rest}", body, **more)


class WriteQueue:
    """Writes that the server does not have yet, on disk. Several processes may share it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with closing(self._open()) as db:
            db.execute(QUEUE)
        path.chmod(0o600)

    def _open(self) -> Any:
        db = apsw.Connection(str(self._path))
        db.set_busy_timeout(5_000)
        db.execute("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
        return db

    def put(self, path: str, body: Mapping[str, Any], *, once: bool = False) -> None:
        """Store a write; it is on disk when this returns. One that is made `once` is not stored a second time."""
        text = json.dumps(body)
        with closing(self._open()) as db, db:
            if once:
                digest = hashlib.sha256(f"{path} {text}".encode()).hexdigest()
                db.execute("INSERT OR IGNORE INTO sent_once VALUES (?)", (digest,))
                if not db.changes():
                    return
            db.execute("INSERT INTO pending(path, body) VALUES (?, ?)", (path, text))

    def waiting(self) -> int:
        with closing(self._open()) as db:
            return int(db.execute("SELECT count(*) FROM pending WHERE refused IS NULL").fetchone()[0])

    def send(self, http: Http) -> None:
        """Send what waits, in order, until the server fails. Writes that it refuses are kept, and not sent again."""
        try:
            with exclusive(self._path.with_suffix(".lock"), 0.0), closing(self._open()) as db:
                sql = "SELECT id, path, body FROM pending WHERE refused IS NULL ORDER BY id LIMIT ?"
                for number, path, body in db.execute(sql, (REPLAYED,)).fetchall():
                    try:
                        call(http, "POST", path, json.loads(body))
                    except ServiceRefused as exc:
                        if exc.status >= 500 or exc.status in (401, 403, *LATER):
                            raise
                        db.execute("UPDATE pending SET refused=? WHERE id=?", (str(exc), number))
                        raise
                    db.execute("DELETE FROM pending WHERE id=?", (number,))
        except StoreBusy:
            return  # another process sends them


class RetainDB(BundledProvider):
    """Memories and files of a RetainDB project."""

    name = "retaindb"
    file = "retaindb.json"
    about = "RetainDB memory\nMemories and files of this project, kept from earlier conversations."
    budget = f"{ROOM:,} characters"
    shown = ("base_url", "project")
    packages = (HTTPX,)
    fields: ClassVar[Sequence[Json]] = (
        secret_field("api_key", "RETAINDB_API_KEY", "https://www.retaindb.com", required=True),
        field("base_url", "https://api.retaindb.com", "address of the server", env_var="RETAINDB_BASE_URL"),
        field("project", "", "project of the memories; empty: herma-PROFILE", env_var="RETAINDB_PROJECT"),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("dialectic", True, "let the server reason about the user after each turn"),
        field("timeout", 15.0, "seconds for a call", minimum=1.0, maximum=120.0),
    )

    def connect(self) -> Http:
        headers = {"Authorization": f"Bearer {self.values['api_key']}"}
        return Http("RetainDB", self.values["base_url"], headers, self.values["timeout"])

    def begin(self) -> None:
        self.project = self.values["project"] or f"herma-{self.profile or 'default'}"
        self.owner = self.user or "default"
        self.queue = WriteQueue(self.home / "retaindb_queue.db")
        self._lock = threading.Lock()
        self._prepared: list[str] = []
        soul = read_soul(self.home).strip()
        if soul and self.session_values.get("agent_context", "primary") == "primary":
            self.queue.put(AGENT + "/seed", {"project": self.project, "content": soul[:LONGEST]}, once=True)

    # ── recall ──

    def recall(self, query: str) -> str:
        body = {**self._about(), "query": query[:2_000], "top_k": FOUND, "include_memories": True}
        found = self.client.call("POST", "/v1/context/query", body)
        with self._lock:
            prepared = list(self._prepared)
        context = str(found.get("context", "")).splitlines() if isinstance(found, dict) else []
        return listed((line.lstrip("-*• ") for line in (*prepared, *context)), ROOM)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        if self.mode == "tools":
            return
        lines = [str(one.get("content", "")) for one in self._profile()[:PROFILE]]
        if self.values["dialectic"] and query.strip():
            level = "low" if len(query) < 120 else "medium" if len(query) < 400 else "high"
            body = {**self._about(), "question": clean(query, 2_000), "reasoning_level": level}
            lines.append(str(self.client.call("POST", "/v1/memory/dialectic", body).get("answer") or ""))
        model = self.client.call("GET", AGENT + "/model", query={"project": self.project})
        lines.append(str(model.get("summary") or ""))
        with self._lock:
            self._prepared = [line for line in lines if line]

    def _profile(self) -> list[Json]:
        answer = self.client.call(
            "GET", f"/v1/memory/profile/{quote(self.owner, safe='')}", query={"project": self.project}
        )
        return list(answer.get("memories", []))

    def _about(self) -> Json:
        return {"project": self.project, "user_id": self.owner, "session_id": self.session_id}

    # ── writes ──

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        now = datetime.now(UTC).isoformat()
        said = [("user", user[:LONGEST]), ("assistant", assistant[:LONGEST])]
        turn = [{"role": role, "content": content, "timestamp": now} for role, content in said if content]
        if turn:
            self.queue.put("/v1/memory/ingest/session", {**self._about(), "messages": turn})
        self.queue.send(self.client)

    def mirror(self, action: str, target: str, content: str, old: str) -> None:  # noqa: ARG002
        if action == "add" and content:
            kind = "preference" if target == "user" else "factual"
            self.queue.put("/v1/memory", {**self._about(), "content": content[:LONGEST], "memory_type": kind})
            self.queue.send(self.client)

    def flush(self) -> None:
        self.queue.send(self.client)

    # ── tools ──

    @tool("Show what is known about the user.", reads=True)
    def retaindb_profile(self) -> Json:
        found = self._profile()
        return {"memories": found, "count": len(found)}

    @tool(
        "Find memories by meaning.",
        reads=True,
        query=text("What to look for."),
        top_k=whole("At most so many.", 8, 1, 20),
    )
    def retaindb_search(self, query: str, top_k: int) -> Json:
        answer = self.client.call("POST", "/v1/memory/search", {**self._about(), "query": query, "top_k": top_k})
        found = [{**one.get("memory", {}), "similarity": one.get("similarity")} for one in answer.get("results", [])]
        return {"results": found, "count": len(found)}

    @tool("Get what matters for a task.", reads=True, query=text("The task."))
    def retaindb_context(self, query: str) -> Json:
        answer = self.client.call("POST", "/v1/context/query", {**self._about(), "query": query})
        return {"context": answer.get("context", "")}

    @tool(
        "Store a memory.",
        content=text("The memory."),
        memory_type=text("Its kind.", "factual", "preference", "goal", "instruction", "event", "opinion"),
        importance=fraction("From 0 to 1."),
    )
    def retaindb_remember(self, content: str, memory_type: str = "factual", importance: float = 0.7) -> Json:
        about = {"memory_type": memory_type, "importance": min(max(importance, 0.0), 1.0), "write_mode": "sync"}
        done = call(self.client, "POST", "/v1/memory", {**self._about(), "content": content, **about})
        return {"stored": True, "result": done}

    @tool("Delete a memory.", memory_id=text("The id that a search gave."))
    def retaindb_forget(self, memory_id: str) -> Json:
        return self._of_one("DELETE", "/v1/memory/", memory_id)

    @tool(
        "Upload a file for other agents.",
        local_path=text("The file on this machine."),
        remote_path=text("Its name on the server."),
        scope=text("Who may read it.", "USER", "PROJECT", "ORG"),
        ingest=flag("Also make memories of it.", False),
    )
    def retaindb_upload_file(
        self, local_path: str, ingest: bool, remote_path: str = "", scope: str = "PROJECT"
    ) -> Json:
        path = Path(local_path).expanduser()
        try:
            raise_if_read_blocked(path, self.home)
            if path.stat().st_size > LONGEST_FILE:
                raise ToolProblem(f"{path} has more than {LONGEST_FILE:,} bytes. It was not uploaded.")
            content = path.read_bytes()
        except (OSError, ValueError) as exc:
            raise ToolProblem(f"{path} cannot be uploaded: {exc}") from exc
        form = {"path": remote_path or path.name, "scope": scope, "project": self.project}
        made = self.client.call("POST", "/v1/files", data=form, files={"file": (path.name, content)})
        if ingest and made.get("id"):
            made["ingested"] = self._of_one("POST", "/v1/files/", str(made["id"]), "/ingest")
        return dict(made)

    @tool(
        "List the files on the server.",
        reads=True,
        prefix=text("The beginning of their names."),
        limit=whole("At most so many.", 50, 1, 200),
    )
    def retaindb_list_files(self, limit: int, prefix: str = "") -> Json:
        query = {"project": self.project, "prefix": prefix, "limit": limit}
        answer = self.client.call("GET", "/v1/files", query=query)
        return answer if isinstance(answer, dict) else {"files": answer}

    @tool("Read a text file.", reads=True, file_id=text("Its id."))
    def retaindb_read_file(self, file_id: str) -> Json:
        about = self._of_one("GET", "/v1/files/", file_id)
        answer = self.client.call("GET", f"/v1/files/{file_id}/content", raw=True)
        try:
            content = answer.decode("utf-8")
        except UnicodeDecodeError:
            return {**about, "content": None, "why": "it is not text"}
        return {**about, "content": content[:SHOWN_FILE], "cut": len(content) > SHOWN_FILE}

    @tool("Make memories of a file.", file_id=text("Its id."))
    def retaindb_ingest_file(self, file_id: str) -> Json:
        return self._of_one("POST", "/v1/files/", file_id, "/ingest")

    @tool("Delete a file.", file_id=text("Its id."))
    def retaindb_delete_file(self, file_id: str) -> Json:
        return self._of_one("DELETE", "/v1/files/", file_id)

    def _of_one(self, method: str, path: str, name: str, more: str = "") -> Json:
        """Call a route of one memory or file."""
        done = call(self.client, method, f"{path}{checked_id(name)}{more}")
        return done if isinstance(done, dict) else {"result": done}
