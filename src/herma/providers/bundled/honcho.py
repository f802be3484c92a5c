"""Honcho: what a service concludes about the user and the agent, through its SDK.

Before a turn two texts are recalled: the base (a summary of the session, what is known about the user) and the
dialectic (the service's answer to a question about the user). Both are prepared after the previous turn, each in its
own cadence; the first turn waits for them, for a limited time.
"""

from __future__ import annotations

import hashlib
import re
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from herma.errors import ProviderError
from herma.providers.bundled import (
    BundledProvider,
    Json,
    ToolProblem,
    checked_id,
    clean,
    field,
    is_trivial,
    mode_field,
    secret_field,
    text,
    texts,
    tool,
    whole,
)

LEVELS = ["minimal", "low", "medium", "high", "max"]
MOST_MESSAGES = 100
"""Messages that the service takes in one request."""
LONGEST_ID = 100
_ID = re.compile(r"[^A-Za-z0-9_-]+")
_HOSTS = ("herma", "hermes")
ABOUT_USER = "What should the agent know about this user for the following message? Answer briefly.\n\n"
DEEPER = "Check this answer and say what is missing or wrong in it; then answer again.\n\n"


class Honcho(BundledProvider):
    """A workspace of Honcho, with the user and the agent as its peers."""

    name = "honcho"
    file = "honcho.json"
    fallback = "~/.honcho/config.json"
    mode_key = "recallMode"
    about = "Honcho memory\nConclusions about the user from earlier conversations."
    shown = ("workspace", "sessionStrategy", "contextTokens", "dialecticMaxChars", "injectionFrequency")
    reads = ("honcho_search", "honcho_reasoning", "honcho_context")
    fields: ClassVar[Sequence[Json]] = (
        secret_field("apiKey", "HONCHO_API_KEY", "https://app.honcho.dev"),
        field(
            "baseUrl",
            "",
            "address of a server of your own; empty: Honcho's",
            env_var="HONCHO_URL",
            env_var_of_hermes="HONCHO_BASE_URL",
        ),
        field("workspace", "herma", "workspace of the memories", env_var="HONCHO_WORKSPACE_ID"),
        field("peerName", "", "name of the user; empty: the session's user"),
        mode_field("recallMode"),
        field("enabled", True, "whether it takes part", advanced=True),
        field("aiPeer", "herma", "name of the agent", advanced=True),
        field("pinPeerName", False, "peerName stands for every user", advanced=True),
        field("userPeerAliases", {}, "names for users of messengers", advanced=True),
        field("runtimePeerPrefix", "", "put before the names of users of messengers", advanced=True),
        field("contextTokens", 0, "tokens of the base; 0: no limit", minimum=0, advanced=True),
        field("contextCadence", 1, "turns after which the base is made again", minimum=1, advanced=True),
        field("dialecticCadence", 1, "turns after which the dialectic is made again", minimum=1, advanced=True),
        field("dialecticReasoningLevel", "low", "effort of the dialectic", choices=LEVELS, advanced=True),
        field("dialecticMaxChars", 600, "characters of the dialectic", minimum=50, advanced=True),
        field("dialecticMaxInputChars", 10_000, "characters of its question", minimum=100, advanced=True),
        field("dialecticDepth", 1, "passes of the dialectic", minimum=1, maximum=3, advanced=True),
        field("dialecticDepthLevels", [], "effort of each pass", advanced=True),
        field("dialecticDynamic", True, "more effort for longer messages", advanced=True),
        field("reasoningHeuristic", True, "the same, under its newer name", advanced=True),
        field("reasoningLevelCap", "high", "most effort", choices=LEVELS, advanced=True),
        field("injectionFrequency", "every-turn", "", choices=["every-turn", "first-turn"], advanced=True),
        field("messageMaxChars", 25_000, "characters of a message; longer ones are split", minimum=100, advanced=True),
        field("saveMessages", True, "store turns", advanced=True),
        field("writeFrequency", "async", "async, turn, session, or a number of turns", advanced=True),
        field(
            "sessionStrategy",
            "per-directory",
            "what shares a session",
            choices=["per-directory", "per-session", "per-repo", "global"],
        ),
        field("sessionPeerPrefix", False, "put the user's name before the session's", advanced=True),
        field("sessions", {}, "names for folders", advanced=True),
        field("firstTurnBaseWait", 3.0, "seconds that turn 1 waits for the base", minimum=0.0, advanced=True),
        field("firstTurnDialecticWait", 2.0, "seconds that turn 1 waits for the dialectic", minimum=0.0, advanced=True),
        field(
            "observationMode",
            "directional",
            "directional: the agent's view of the user; unified: one view",
            choices=["directional", "unified"],
            advanced=True,
        ),
        field("timeout", 30.0, "seconds for a call", minimum=0.1, env_var="HONCHO_TIMEOUT", advanced=True),
    )
    tools = (
        tool(
            "honcho_profile",
            "Show the short card about a peer, or replace it.",
            "",
            peer=text("user, ai, or a name."),
            card=texts("The new card, a fact in each item."),
        ),
        tool(
            "honcho_search",
            "Find earlier messages by meaning.",
            "query",
            query=text("What to look for."),
            max_tokens=whole("Tokens of the answer.", 800, 50, 2_000),
            peer=text("user, ai, or a name."),
        ),
        tool(
            "honcho_reasoning",
            "Ask the service about a peer; it thinks before it answers.",
            "query",
            query=text("The question."),
            reasoning_level=text("The effort.", *LEVELS),
            peer=text("user, ai, or a name."),
        ),
        tool("honcho_context", "Show all that is known about a peer.", "", peer=text("user, ai, or a name.")),
        tool(
            "honcho_conclude",
            "Store, list or delete conclusions about a peer: exactly one of conclusion, list, delete_id.",
            "",
            conclusion=text("A fact to store."),
            delete_id=text("The conclusion to delete."),
            list={"type": "boolean", "description": "List conclusions."},
            query=text("List those that are about this."),
            peer=text("user, ai, or a name."),
        ),
    )
    _client: Any = None

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._open: list[Any] = []

    @property
    def requires(self) -> Sequence[str]:
        return ("honcho-ai>=2.7,<3",)

    def adapt(self, stored: Json) -> Json:
        hosts = stored.get("hosts")
        own = [hosts[host] for host in _HOSTS if host in hosts] if isinstance(hosts, dict) else []
        merged: Json = {**stored, **(own[0] if own and isinstance(own[0], dict) else {})}
        if "pinUserPeer" in merged:
            merged["pinPeerName"] = merged["pinUserPeer"]
        return {**merged, "contextTokens": merged.get("contextTokens") or 0}

    def missing(self) -> str:
        if not self.values["enabled"]:
            return "enabled is false in honcho.json"
        if self.values["apiKey"] or self.values["baseUrl"]:
            return ""
        return "neither HONCHO_API_KEY nor HONCHO_URL is set"

    # ── connection ──

    def begin(self) -> None:
        self.shutdown()
        self._client, self._quick = map(self._connect, (self.values["timeout"], self.values["firstTurnBaseWait"] or 1))
        self._lock = threading.RLock()
        self._joined: Any = None
        self._buffer: list[tuple[str, str]] = []
        self._turn = self._empty = 0
        self._base, self._base_turn = "", 0
        self._said, self._said_turn = "", 0
        self._deep_turn = 0
        self._read_session()

    def _connect(self, timeout: float) -> Any:
        import httpx
        from honcho import Honcho as Client

        http = httpx.Client(timeout=timeout)
        self._open.append(http)
        return Client(
            api_key=self.values["apiKey"] or "none",
            base_url=self.values["baseUrl"] or None,
            workspace_id=_id(self.values["workspace"]),
            timeout=timeout,
            max_retries=1,
            http_client=http,
        )

    def shutdown(self) -> None:
        self._client = self._quick = None
        while self._open:
            self._open.pop().close()

    def _read_session(self) -> None:
        """Decide who the peers are, and which session of the service the conversation belongs to."""
        pinned = self.values["pinPeerName"] or not self.user
        alias = self.values["userPeerAliases"].get(self.user)
        runtime = alias or f"{self.values['runtimePeerPrefix']}{self.user}"
        self.user_name = _id((self.values["peerName"] or "user") if pinned else runtime)
        self.agent_name = _id(self.values["aiPeer"])
        folder = str(self.told.get("folder") or "")
        strategy = self.values["sessionStrategy"]
        if self.told.get("chat_id"):
            found = f"{self.told.get('platform') or 'chat'}-{self.told['chat_id']}"
        elif folder in self.values["sessions"]:
            found = str(self.values["sessions"][folder])
        elif strategy == "global":
            found = "global"
        elif strategy == "per-session" or not folder:
            found = self.session_id
        else:
            found = _repository(folder) if strategy == "per-repo" else folder
        self.session_name = _id(f"{self.user_name}-{found}" if self.values["sessionPeerPrefix"] else found)

    @property
    def client(self) -> Any:
        if self._client is None:
            raise ProviderError("honcho has no session.")
        return self._client

    def _session(self) -> Any:
        """Return the session of the service, which the peers join at first use."""
        with self._lock:
            if self._joined is None:
                from honcho.session import SessionPeerConfig

                each = self.values["observationMode"] == "directional"
                session = self.client.session(self.session_name)
                session.add_peers(
                    [
                        (self.client.peer(self.user_name), SessionPeerConfig(observe_me=True, observe_others=False)),
                        (self.client.peer(self.agent_name), SessionPeerConfig(observe_me=each, observe_others=each)),
                    ]
                )
                self._joined = session
            return self._joined

    def _view(self, named: str) -> tuple[Any, str | None]:
        """Return who is asked about a peer, and the peer, if it is another one."""
        name = {"": self.user_name, "user": self.user_name, "ai": self.agent_name}.get(named) or _id(named)
        if self.values["observationMode"] == "unified" or name == self.agent_name:
            return self.client.peer(name), None
        return self.client.peer(self.agent_name), name

    # ── recall ──

    def on_turn_start(self, turn_number: int, message: str, **kwargs: Any) -> None:  # noqa: ARG002
        self._turn = turn_number

    def recall(self, query: str) -> str:
        if self.values["injectionFrequency"] == "first-turn" and self._turn > 1:
            return ""
        with self._lock:
            cold = not self._base_turn and not self._said_turn
        if cold:
            self._prepare_first(query)
        with self._lock:
            stale = self._turn - self._said_turn > 2 * self._cadence()
            dialectic = "" if stale else self._said
            parts = [("What is known:", self._base), ("About this message:", dialectic)]
        return "\n\n".join(f"{head}\n{shown}" for head, shown in parts if shown)

    def _prepare_first(self, query: str) -> None:
        """Get both texts while the first turn waits."""
        base, dialectic = self.values["firstTurnBaseWait"], self.values["firstTurnDialecticWait"]
        if base:
            self._make_base(self._quick)
        if dialectic:
            self._make_dialectic(query, timeout=dialectic)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        if self.mode == "tools" or is_trivial(query):
            return
        if self._turn - self._base_turn >= self.values["contextCadence"] or not self._base_turn:
            self._make_base(self.client)
        if self._turn - self._deep_turn >= self._cadence() or not self._deep_turn:
            self._make_dialectic(clean(query))

    def _cadence(self) -> int:
        """Return the turns between two dialectics: more if the last ones had no answer."""
        return int(self.values["dialecticCadence"] * min(2**self._empty, 8))

    def _make_base(self, client: Any) -> None:
        self._session()
        named: Json = {"peer_target": self.user_name}
        if self.values["observationMode"] == "directional":
            named["peer_perspective"] = self.agent_name
        room = self.values["contextTokens"]
        found = client.session(self.session_name).context(summary=True, tokens=room or None, **named)
        summary = getattr(found.summary, "content", "") if found.summary else ""
        card = "\n".join(f"- {line}" for line in found.peer_card or ())
        base = "\n\n".join(filter(None, (summary, found.peer_representation or "", card)))
        with self._lock:
            self._base, self._base_turn = base[: room * 4] if room else base, max(self._turn, 1)

    def _make_dialectic(self, query: str, timeout: float | None = None) -> None:
        if not query:
            return
        peer, target = self._view("user")
        self._deep_turn = max(self._turn, 1)
        asked, answer = ABOUT_USER + query, ""
        for at in range(self.values["dialecticDepth"]):
            level = self._level(query, at)
            given: Any = peer.chat(
                asked[: self.values["dialecticMaxInputChars"]], target=target, reasoning_level=level, timeout=timeout
            )
            answer = str(getattr(given, "content", given) or "").strip()
            asked = f"{DEEPER}{answer}\n\n{query}"
        with self._lock:
            self._empty = 0 if answer else min(self._empty + 1, 3)
            if answer:
                self._said, self._said_turn = answer[: self.values["dialecticMaxChars"]], max(self._turn, 1)

    def _level(self, query: str, at: int) -> str:
        """Return the effort for a message: more for longer ones, up to the cap."""
        named = self.values["dialecticDepthLevels"]
        if at < len(named) and named[at] in LEVELS:
            return str(named[at])
        more = 0
        if self.values["dialecticDynamic"] and self.values["reasoningHeuristic"]:
            more = 2 if len(query) >= 400 else 1 if len(query) >= 120 else 0
        level = LEVELS.index(self.values["dialecticReasoningLevel"])
        return LEVELS[max(level, min(level + more, LEVELS.index(self.values["reasoningLevelCap"])))]

    # ── writes ──

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        if not self.values["saveMessages"]:
            return
        said = ((self.user_name, user), (self.agent_name, assistant))
        with self._lock:
            self._buffer += [(who, what) for who, what in said if what]
            often = self.values["writeFrequency"]
            turns = int(often) if often.isdigit() else 1
            due = often != "session" and len(self._buffer) >= 2 * turns - 1
        if due:
            self._flush()

    def _flush(self) -> None:
        """Store the messages that wait. Messages that cannot be stored wait for the next attempt."""
        with self._lock:
            waiting, self._buffer = self._buffer, []
        try:
            while waiting:
                batch: list[Any] = []
                split = 0
                while split < len(waiting) and len(batch) < MOST_MESSAGES:
                    who, what = waiting[split]
                    batch += [self.client.peer(who).message(chunk) for chunk in self._chunks(what)]
                    split += 1
                for at in range(0, len(batch), MOST_MESSAGES):
                    self._session().add_messages(batch[at : at + MOST_MESSAGES])
                waiting = waiting[split:]
        except BaseException:
            with self._lock:
                self._buffer = waiting + self._buffer
            raise

    def _chunks(self, content: str) -> list[str]:
        room = self.values["messageMaxChars"]
        parts = [content[at : at + room] for at in range(0, len(content), room)]
        return [part if at == 0 else f"[continued] {part}" for at, part in enumerate(parts)]

    def mirror(self, action: str, target: str, content: str, old: str) -> None:  # noqa: ARG002
        if action == "add" and target == "user" and content:
            self._conclude("user", content[:5_000])

    def _conclude(self, peer: str, content: str) -> str:
        made = self._conclusions(peer).create([{"content": content, "session_id": self._session().id}])
        return str(made[0].id) if made else ""

    def _conclusions(self, peer: str) -> Any:
        observer, target = self._view(peer)
        return observer.conclusions_of(target or observer.id)

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        self._flush()

    def take_back(self) -> None:
        with self._lock:
            self._buffer = self._buffer[:-2]

    def go_on(self, session_id: str, parent: str, reset: bool) -> None:  # noqa: ARG002
        self._flush()
        with self._lock:
            self.session_id = session_id
            before = self.session_name
            self._read_session()
            if self.session_name != before or reset:
                self._joined = None
                self._base, self._base_turn, self._said, self._said_turn, self._deep_turn = "", 0, "", 0, 0

    # ── tools ──

    def run(self, tool_name: str, given: Json) -> Json:
        self._session()
        named = given.get("peer", "")
        peer, target = self._view(named)
        match tool_name:
            case "honcho_profile":
                card = peer.set_card(given["card"], target) if given.get("card") else peer.get_card(target)
                return {"card": card or []}
            case "honcho_search":
                found = self.client.peer(target or peer.id).search(given["query"][:2_000], limit=20)
                return {"results": _within([one.content for one in found], given["max_tokens"] * 4)}
            case "honcho_reasoning":
                level = given.get("reasoning_level", self.values["dialecticReasoningLevel"])
                question = given["query"][: self.values["dialecticMaxInputChars"]]
                answer: Any = peer.chat(question, target=target, reasoning_level=level)
                return {"answer": str(getattr(answer, "content", answer) or "")}
            case "honcho_context":
                told = peer.context(target)
                return {"representation": told.representation or "", "card": told.peer_card or []}
        return self._conclude_tool(named, given)

    def _conclude_tool(self, named: str, given: Json) -> Json:
        chosen = [key for key in ("conclusion", "delete_id", "list") if given.get(key)]
        if len(chosen) != 1:
            raise ToolProblem("Exactly one of conclusion, delete_id and list is required.")
        if chosen == ["conclusion"]:
            return {"stored": self._conclude(named, given["conclusion"])}
        if chosen == ["delete_id"]:
            self._conclusions(named).delete(checked_id(given["delete_id"]))
            return {"deleted": given["delete_id"]}
        view = self._conclusions(named)
        found = view.query(given["query"], 20) if given.get("query") else view.list(size=50).items
        return {"conclusions": [{"id": one.id, "content": one.content} for one in found]}


def _id(name: str) -> str:
    """Return a name as the service takes it. A long one ends with its hash."""
    safe = _ID.sub("-", name).strip("-") or "default"
    return safe if len(safe) <= LONGEST_ID else f"{safe[:80]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"


def _repository(folder: str) -> str:
    """Return the root of the repository that a folder belongs to."""
    places = (Path(folder), *Path(folder).parents)
    return next((str(place) for place in places if (place / ".git").exists()), folder)


def _within(texts: Sequence[str], room: int) -> list[str]:
    found: list[str] = []
    for each in texts:
        if room <= 0:
            break
        found.append(each[:room])
        room -= len(each)
    return found
