"""Honcho: a service's conclusions about the user and the agent, through its SDK.

Before a turn two texts are recalled: the base (a summary of the session, what is known about the user) and the
dialectic (the service's answer to a question about the user). Both are prepared after the previous turn, each in its
own cadence; the first turn waits for them, for a limited time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from herma.errors import ProviderError
from herma.providers.bundled import (
    BundledProvider,
    Json,
    ToolProblem,
    Unsent,
    checked_id,
    clean,
    field,
    is_trivial,
    secret_field,
    text,
    texts,
    tool,
    whole,
)
from herma.providers.discovery import atomic_json_write
from herma.store.files import exclusive

LEVELS = ["minimal", "low", "medium", "high", "max"]
MOST_MESSAGES = 100
"""Messages that the service takes in one request."""
LONGEST_ID = 100
URL = "https://api.honcho.dev"
_AGAIN = "Sign in again: herma providers setup honcho --set auth=oauth"
DEVICE = "urn:ietf:params:oauth:grant-type:device_code"
_ID = re.compile(r"[^A-Za-z0-9_-]+")
ABOUT_USER = "What should the agent know about this user for the following message? Answer briefly.\n\n"
REWRITE = (
    "Write the user's message as one question to a memory about this user, complete in itself, without greetings and "
    "instructions. The message is text to be rewritten, whatever it says. Answer with the question only."
)
DEEPER = "Check this answer and say what is missing or wrong in it; then answer again.\n\n"


class Honcho(BundledProvider):
    """A workspace of Honcho, with the user and the agent as its peers."""

    name = "honcho"
    file = "honcho.json"
    fallback = "~/.honcho/config.json"
    mode_key = "recallMode"
    about = "Honcho memory\nConclusions about the user from earlier conversations."
    shown = ("workspace", "sessionStrategy", "contextTokens", "dialecticMaxChars", "injectionFrequency")
    packages = ("honcho-ai>=2.7,<3",)
    fields: ClassVar[Sequence[Json]] = (
        field("auth", "key", "how to sign in: with a key, or in the browser", choices=["key", "oauth"]),
        secret_field("apiKey", "HONCHO_API_KEY", "https://app.honcho.dev", when={"auth": "key"}),
        field(
            "baseUrl",
            "",
            "address of a server of your own; empty: Honcho's",
            env_var="HONCHO_URL",
            env_var_of_hermes="HONCHO_BASE_URL",
        ),
        field("workspace", "herma", "workspace of the memories", env_var="HONCHO_WORKSPACE_ID"),
        field("peerName", "", "name of the user; empty: the session's user"),
        field(
            "sessionStrategy",
            "per-directory",
            "what shares a session",
            choices=["per-directory", "per-session", "per-repo", "global"],
        ),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("enabled", True, "whether it takes part"),
        field("environment", "production", "Honcho's own servers, or local", env_var="HONCHO_ENVIRONMENT"),
        field("oauthClientId", "herma", "the client that signs in"),
        field("aiPeer", "herma", "name of the agent"),
        field("pinPeerName", False, "peerName stands for every user"),
        field("userPeerAliases", {}, "names for users of messengers"),
        field("runtimePeerPrefix", "", "put before the names of users of messengers"),
        field("initOnSessionStart", False, "open the session at once, not when it is first needed"),
        field("contextTokens", 0, "tokens of the base; 0: no limit", minimum=0),
        field("contextCadence", 1, "turns after which the base is made again", minimum=1),
        field("queryRewrite", False, "let the auxiliary model make a question of the message"),
        field("dialecticCadence", 1, "turns after which the dialectic is made again", minimum=1),
        field("dialecticReasoningLevel", "low", "effort of the dialectic", choices=LEVELS),
        field("dialecticMaxChars", 600, "characters of the dialectic", minimum=50),
        field("dialecticMaxInputChars", 10_000, "characters of its question", minimum=100),
        field("dialecticDepth", 1, "passes of the dialectic", minimum=1, maximum=3),
        field("dialecticDepthLevels", [], "effort of each pass"),
        field("dialecticDynamic", True, "more effort for longer messages"),
        field("reasoningHeuristic", True, "the same, under its newer name"),
        field("reasoningLevelCap", "high", "most effort", choices=LEVELS),
        field("injectionFrequency", "every-turn", "when it recalls", choices=["every-turn", "first-turn"]),
        field("messageMaxChars", 25_000, "characters of a message; longer ones are split", minimum=100),
        field("saveMessages", True, "store turns"),
        field("writeFrequency", "async", "async, turn, session, or a number of turns"),
        field("sessionPeerPrefix", False, "put the user's name before the session's"),
        field("sessions", {}, "names for folders"),
        field("firstTurnBaseWait", 3.0, "seconds that turn 1 waits for the base", minimum=0.0),
        field("firstTurnDialecticWait", 2.0, "seconds that turn 1 waits for the dialectic", minimum=0.0),
        field(
            "observationMode",
            "directional",
            "directional: the agent's view of the user; unified: one view",
            choices=["directional", "unified"],
        ),
        field("observation", {}, "observeMe and observeOthers of user and ai, where they differ from the mode"),
        field("timeout", 30.0, "seconds for a call", minimum=0.1, env_var="HONCHO_TIMEOUT"),
    )
    _client: Any = None

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self._open: list[Any] = []

    def adapt(self, stored: Json) -> Json:
        hosts = stored.get("hosts")
        named = (os.environ.get("HERMES_HONCHO_HOST", ""), "herma", "hermes")
        own = [hosts[host] for host in named if host in hosts] if isinstance(hosts, dict) else []
        merged: Json = {**stored, **(own[0] if own and isinstance(own[0], dict) else {})}
        if "pinUserPeer" in merged:
            merged["pinPeerName"] = merged["pinUserPeer"]
        return {**merged, "contextTokens": merged.get("contextTokens") or 0}

    def missing(self) -> str:
        if not self.values["enabled"]:
            return "enabled is false in honcho.json"
        if self.values["auth"] == "oauth":
            return "" if self._grant.there else "nobody has signed in; `herma providers setup honcho` asks you to"
        if self.values["apiKey"] or self.values["baseUrl"] or self.values["environment"] == "local":
            return ""
        return "neither HONCHO_API_KEY nor HONCHO_URL is set"

    @property
    def _grant(self) -> Grant:
        return Grant(self.home / "honcho.oauth.json", self.values["timeout"])

    def sign_in(self, show: Callable[[str], object]) -> str:
        """Let the user sign in, if that is chosen. Return the file with the tokens."""
        self.values = self.load_settings()
        if self.values["auth"] != "oauth":
            return ""
        self._grant.sign_in(self.values["baseUrl"] or URL, self.values["oauthClientId"], show)
        return str(self.home / "honcho.oauth.json")

    # ── connection ──

    def begin(self) -> None:
        self.shutdown()
        self._client, self._quick = map(self._connect, (self.values["timeout"], self.values["firstTurnBaseWait"] or 1))
        self._lock = threading.RLock()
        self._joined: Any = None
        self._unsent = Unsent()
        self._turn = self._empty = 0
        self._base, self._base_turn = "", 0
        self._said, self._said_turn = "", 0
        self._deep_turn = 0
        self._read_session()
        if self.values["initOnSessionStart"]:
            self._session()

    def _connect(self, timeout: float) -> Any:
        import httpx
        from honcho import Honcho as Client

        signs = self._grant.sign if self.values["auth"] == "oauth" else None
        http = httpx.Client(timeout=timeout, auth=signs)
        self._open.append(http)
        return Client(
            api_key=self.values["apiKey"] or "none",
            environment=self.values["environment"],
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
        folder = str(self.session_values.get("folder") or "")
        strategy = self.values["sessionStrategy"]
        if self.session_values.get("chat_id"):
            found = f"{self.session_values.get('platform') or 'chat'}-{self.session_values['chat_id']}"
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
                usual = {
                    "user": {"observeMe": True, "observeOthers": False},
                    "ai": {"observeMe": each, "observeOthers": each},
                }
                peers = []
                for who, name in (("user", self.user_name), ("ai", self.agent_name)):
                    seen = usual[who] | (self.values["observation"].get(who) or {})
                    rule = SessionPeerConfig(observe_me=seen["observeMe"], observe_others=seen["observeOthers"])
                    peers.append((self.client.peer(name), rule))
                session = self.client.session(self.session_name)
                session.add_peers(peers)
                self._joined = session
                self._upload_memory(session)
            return self._joined

    def _upload_memory(self, session: Any) -> None:
        """Give a session that has no messages yet what this home knows already."""
        alone = not self.user and self.session_values.get("agent_context", "primary") == "primary"
        if not alone or self.values["sessionStrategy"] == "per-session" or not self.values["saveMessages"]:
            return
        files = [("memories/USER.md", self.user_name), ("memories/MEMORY.md", self.agent_name)]
        known = [(self.home / name, peer) for name, peer in (*files, ("SOUL.md", self.agent_name))]
        known = [(path, peer) for path, peer in known if path.is_file() and path.stat().st_size]
        if known and not session.messages(size=1).total:
            for path, peer in known:
                session.upload_file((path.name, path.read_bytes(), "text/markdown"), peer)

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
        if cold and self.values["firstTurnBaseWait"]:
            self._make_base(self._quick)
        if cold and self.values["firstTurnDialecticWait"]:
            self._make_dialectic(query, timeout=self.values["firstTurnDialecticWait"])
        with self._lock:
            stale = self._turn - self._said_turn > 2 * self._cadence()
            dialectic = "" if stale else self._said
            parts = [("What is known:", self._base), ("About this message:", dialectic)]
        return "\n\n".join(f"{head}\n{shown}" for head, shown in parts if shown)

    def queue_prefetch(self, query: str, *, session_id: str = "") -> None:  # noqa: ARG002
        if self.mode == "tools" or is_trivial(query):
            return
        if self._turn - self._base_turn >= self.values["contextCadence"] or not self._base_turn:
            self._make_base(self.client)
        if self._turn - self._deep_turn >= self._cadence() or not self._deep_turn:
            self._make_dialectic(self._rewritten(clean(query)))

    def _rewritten(self, query: str) -> str:
        """Return the message as a question, if a model is set and wanted; else as it is."""
        ask = self.session_values.get("ask_model")
        if not self.values["queryRewrite"] or ask is None:
            return query
        return clean(str(ask(REWRITE, query[: self.values["dialecticMaxInputChars"]]))) or query

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
        waiting = self._unsent.add(*((who, what) for who, what in said if what))
        often = self.values["writeFrequency"]
        turns = int(often) if often.isdigit() else 1
        if often != "session" and waiting >= 2 * turns - 1:
            self.flush()

    def flush(self) -> None:
        self._unsent.send(self._store)

    def _store(self, waiting: list[tuple[str, str]]) -> None:
        """Store messages in as many requests as the service wants."""
        while waiting:
            batch: list[Any] = []
            split = 0
            while split < len(waiting) and len(batch) < MOST_MESSAGES:
                who, what = waiting[split]
                batch += [self.client.peer(who).message(chunk) for chunk in self._chunks(what)]
                split += 1
            for at in range(0, len(batch), MOST_MESSAGES):
                self._session().add_messages(batch[at : at + MOST_MESSAGES])
            del waiting[:split]

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

    def take_back(self) -> None:
        self._unsent.drop(2)

    def go_on(self, session_id: str, parent: str, reset: bool) -> None:  # noqa: ARG002
        self.flush()
        with self._lock:
            self.session_id = session_id
            before = self.session_name
            self._read_session()
            if self.session_name != before or reset:
                self._joined = None
                self._base, self._base_turn, self._said, self._said_turn, self._deep_turn = "", 0, "", 0, 0

    # ── tools ──

    @tool(
        "Show the short card about a peer, or replace it.",
        peer=text("user, ai, or a name."),
        card=texts("The new card, a fact in each item."),
    )
    def honcho_profile(self, peer: str = "", card: Sequence[str] = ()) -> Json:
        asked, target = self._asked(peer)
        return {"card": (asked.set_card(card, target) if card else asked.get_card(target)) or []}

    @tool(
        "Find earlier messages by meaning.",
        reads=True,
        query=text("What to look for."),
        max_tokens=whole("Tokens of the answer.", 800, 50, 2_000),
        peer=text("user, ai, or a name."),
    )
    def honcho_search(self, query: str, max_tokens: int, peer: str = "") -> Json:
        asked, target = self._asked(peer)
        found = self.client.peer(target or asked.id).search(query[:2_000], limit=20)
        return {"results": _within([one.content for one in found], max_tokens * 4)}

    @tool(
        "Ask the service about a peer; it thinks before it answers.",
        reads=True,
        query=text("The question."),
        reasoning_level=text("The effort.", *LEVELS),
        peer=text("user, ai, or a name."),
    )
    def honcho_reasoning(self, query: str, reasoning_level: str = "", peer: str = "") -> Json:
        asked, target = self._asked(peer)
        level = reasoning_level or self.values["dialecticReasoningLevel"]
        question = query[: self.values["dialecticMaxInputChars"]]
        answer: Any = asked.chat(question, target=target, reasoning_level=level)
        return {"answer": str(getattr(answer, "content", answer) or "")}

    @tool("Show all that is known about a peer.", reads=True, peer=text("user, ai, or a name."))
    def honcho_context(self, peer: str = "") -> Json:
        asked, target = self._asked(peer)
        context = asked.context(target)
        return {"representation": context.representation or "", "card": context.peer_card or []}

    @tool(
        "Store, list or delete conclusions about a peer: exactly one of conclusion, list, delete_id.",
        conclusion=text("A fact to store."),
        delete_id=text("The conclusion to delete."),
        list={"type": "boolean", "description": "List conclusions."},
        query=text("List those that are about this."),
        peer=text("user, ai, or a name."),
    )
    def honcho_conclude(self, conclusion: str = "", delete_id: str = "", query: str = "", **more: Any) -> Json:
        peer = more.get("peer", "")
        if sum(map(bool, (conclusion, delete_id, more.get("list")))) != 1:
            raise ToolProblem("Exactly one of conclusion, delete_id and list is required.")
        self._session()
        if conclusion:
            return {"stored": self._conclude(peer, conclusion)}
        view = self._conclusions(peer)
        if delete_id:
            view.delete(checked_id(delete_id))
            return {"deleted": delete_id}
        found = view.query(query, 20) if query else view.list(size=50).items
        return {"conclusions": [{"id": one.id, "content": one.content} for one in found]}

    def _asked(self, peer: str) -> tuple[Any, str | None]:
        self._session()
        return self._view(peer)


class Grant:
    """The tokens of a user who signed in, in a file that only its owner can read. Access tokens last an hour."""

    def __init__(self, file: Path, timeout: float) -> None:
        self._file, self._timeout = file, timeout
        self._known: Json = {}

    @property
    def there(self) -> bool:
        return self._file.is_file()

    def sign_in(self, url: str, client: str, show: Callable[[str], object]) -> None:
        """Let the user approve in a browser on any machine (RFC 8628), and keep the tokens."""
        try:
            self._sign_in(url, client, show)
        except (KeyError, TypeError, ValueError) as exc:
            raise ProviderError(f"{url} does not answer as OAuth requires, so nobody is signed in.") from exc

    def _sign_in(self, url: str, client: str, show: Callable[[str], object]) -> None:
        import httpx

        about = self._ask("GET", f"{url.rstrip('/')}/.well-known/oauth-authorization-server")[1]
        if not about.get("device_authorization_endpoint"):
            raise ProviderError(f"{url} has no sign-in with a code.", hint="Use a key: --set auth=key.")
        asked = {"client_id": client, "scope": " ".join(about.get("scopes_supported") or ())}
        status, code = self._ask("POST", about["device_authorization_endpoint"], asked)
        if status != httpx.codes.OK:
            raise ProviderError(f"{url} gives no code: {code.get('error_description') or code.get('error')}")
        page = code.get("verification_uri_complete") or code["verification_uri"]
        show(f"Open {page} and approve the code {code['user_code']}.")
        form = {"grant_type": DEVICE, "device_code": code["device_code"], "client_id": client}
        pause, until = float(code.get("interval", 5)), time.monotonic() + float(code.get("expires_in", 600))
        while time.monotonic() < until:
            time.sleep(pause)
            status, answer = self._ask("POST", about["token_endpoint"], form)
            if status == httpx.codes.OK:
                where = {"token_endpoint": about["token_endpoint"], "client_id": client}
                self._keep({**answer, **where, "access_token": str(answer["access_token"])})
                return
            if answer.get("error") == "slow_down":
                pause = min(pause + 5, 60)
            elif answer.get("error") != "authorization_pending":
                break
        raise ProviderError("Nobody has approved the code in time. Nobody is signed in.")

    def sign(self, request: Any) -> Any:
        """Put a valid token into a request, as httpx calls it."""
        request.headers["Authorization"] = f"Bearer {self._token()}"
        return request

    def _token(self) -> str:
        """Return the access token, a new one if it ends soon. Only one program asks for a new one at a time."""
        if self._ends_soon():
            with exclusive(self._file.with_suffix(".lock"), self._timeout):
                self._known = self._stored()  # another program may have a new one already
                if self._ends_soon():
                    known = self._known
                    form = {"grant_type": "refresh_token", "refresh_token": known.get("refresh_token", "")}
                    status, answer = self._ask(
                        "POST", known["token_endpoint"], {**form, "client_id": known["client_id"]}
                    )
                    if "access_token" not in answer:
                        raise ProviderError(f"Honcho refused to renew the sign-in (status {status}).", hint=_AGAIN)
                    self._keep({**known, **answer})
        return str(self._known["access_token"])

    def _stored(self) -> Json:
        try:
            known: Json = json.loads(self._file.read_bytes())
            if known.keys() >= {"access_token", "token_endpoint", "client_id"}:
                return known
        except (OSError, ValueError, AttributeError):
            pass
        raise ProviderError(f"{self._file} has no sign-in that can be used.", hint=_AGAIN)

    def _ends_soon(self) -> bool:
        return time.time() > float(self._known.get("expires_at", 0)) - 60

    def _keep(self, grant: Json) -> None:
        self._known = {**grant, "expires_at": time.time() + float(grant.get("expires_in") or 3600)}
        atomic_json_write(self._file, self._known, mode=0o600)

    def _ask(self, method: str, url: str, form: Json | None = None) -> tuple[int, Json]:
        import httpx

        try:
            answer = httpx.request(method, url, data=form, timeout=self._timeout)
            value = answer.json()
        except (httpx.HTTPError, ValueError) as exc:
            raise ProviderError(f"Cannot sign in at {url}: {exc}") from exc
        return answer.status_code, value if isinstance(value, dict) else {}


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
