"""Providers that come with Herma, one file each, and what they share: settings, tools, HTTP, text within a budget.

A provider's settings come from the environment, the home's `.env`, and its file in the home, in this order. Its
methods block: Herma calls them in threads of its own, with deadlines, and counts their errors.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

from herma.errors import ProviderError
from herma.models.endpoints import FILE, read_file
from herma.providers.base import MemoryProvider
from herma.providers.discovery import atomic_json_write, cfg_get, home_config, tool_error, tool_result
from herma.store.files import exclusive, make_folder
from herma.worker import BackgroundCall

if TYPE_CHECKING:
    import httpx2

Json: TypeAlias = dict[str, Any]
Method = TypeVar("Method", bound=Callable[..., Json])

HTTPX = "httpx2>=2.16"
_KINDS = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_SHORT = re.compile(
    r"(?:y|yes|yep|no|nope|ok|okay|k|sure|thanks?|thank you|thx|great|good|nice|cool|fine|done|go on|continue|go ahead"
    r"|hi|hello|hey|bye|stop|next|да|нет|好的?|是的?|谢谢|はい|ja|nein|danke|si|oui|non|merci)",
    re.IGNORECASE,
)
_LONGEST_REASON = 300
_WRONG = frozenset({400, 404, 409, 422})
"""Error statuses of a service that are passed to the model: its arguments are wrong."""


# ── settings ──


def field(key: str, default: Any, description: str, **more: Any) -> Json:
    """Describe a setting. Its type is that of the default."""
    kind = _KINDS.get(type(default), "string")
    return {"key": key, "default": default, "description": description, "type": kind, **more}


def secret_field(key: str, variable: str, url: str = "", **more: Any) -> Json:
    """Describe a key of a service."""
    return field(key, "", "the key of the service", secret=True, env_var=variable, url=url, **more)


def convert(setting: Mapping[str, Any], value: Any) -> Any:
    """Return a setting's value with its type; `ProviderError` if it is not allowed."""
    kind, key = setting.get("type"), setting["key"]
    try:
        if kind == "boolean":
            words = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False}
            value = (words | {"off": False, "0": False})[str(value).strip().lower()]
        elif kind in ("integer", "number"):
            if isinstance(value, bool):
                raise ValueError
            value = int(value) if kind == "integer" else float(value)
        elif kind in ("array", "object"):
            value = json.loads(value) if isinstance(value, str) else value
            if not isinstance(value, list if kind == "array" else dict):
                raise TypeError
        elif not isinstance(value, str):
            raise TypeError
    except (KeyError, ValueError, TypeError):
        article = {"integer": "a whole number", "boolean": "true or false", "string": "text", "number": "a number"}
        wanted = article.get(str(kind), f"JSON for an {kind}")
        raise ProviderError(f"{key}: {value!r} is not {wanted}.") from None
    choices = setting.get("choices")
    if choices and value not in choices:
        raise ProviderError(f"{key}: unknown value {value!r}. Allowed: {', '.join(map(str, choices))}.")
    least, most = setting.get("minimum"), setting.get("maximum")
    if (least is not None and value < least) or (most is not None and value > most):
        raise ProviderError(f"{key}: {value} is not between {least} and {most}.")
    return value


# ── tools ──


def tool(description: str, *, reads: bool = False, **parameters: Json) -> Callable[[Method], Method]:
    """Make a method a tool of its name. Parameters without a default are required; `reads`: it changes nothing."""

    def made(method: Method) -> Method:
        needed = {name for name, each in inspect.signature(method).parameters.items() if each.default is each.empty}
        required = [name for name, rule in parameters.items() if name in needed and "default" not in rule]
        shape = {"type": "object", "properties": parameters, "required": required}
        marked: Any = method
        marked.schema = {"name": marked.__name__, "description": description, "parameters": shape}
        marked.reads = reads
        return method

    return made


def text(description: str, *choices: str) -> Json:
    """Describe a parameter that is text."""
    return {"type": "string", "description": description, **({"enum": list(choices)} if choices else {})}


def whole(description: str, default: int | None = None, least: int = 1, most: int = 1_000_000) -> Json:
    """Describe a parameter that is a whole number. A number outside of the range is moved to its nearest end."""
    schema = {"type": "integer", "description": description, "minimum": least, "maximum": most}
    return schema if default is None else {**schema, "default": default}


def fraction(description: str) -> Json:
    """Describe a parameter that is a number."""
    return {"type": "number", "description": description}


def flag(description: str, default: bool | None = None) -> Json:
    """Describe a parameter that is true or false."""
    return {"type": "boolean", "description": description, **({} if default is None else {"default": default})}


def texts(description: str) -> Json:
    """Describe a parameter that is a list of texts."""
    return {"type": "array", "items": {"type": "string"}, "description": description}


# ── the base of every provider ──


class BundledProvider(MemoryProvider):
    """A provider that comes with Herma. A subclass lists its settings, and implements what it supports."""

    file: ClassVar[str] = ""
    """Its settings file, below the home."""
    fallback: ClassVar[str] = ""
    """A settings file of the user that other programs share; the home's file overrides it."""
    section: ClassVar[tuple[str, ...]] = ()
    """Place of the settings in the config.yaml of Hermes Agent; both files override them."""
    fields: ClassVar[Sequence[Json]] = ()
    """Settings that the setup asks for."""
    advanced: ClassVar[Sequence[Json]] = ()
    """Settings that it does not ask for."""
    mode_key: ClassVar[str] = "memory_mode"
    packages: ClassVar[Sequence[str]] = ()
    about: ClassVar[str] = ""
    """Its text in the system prompt."""
    shown: ClassVar[Sequence[str]] = ()
    """Settings that `herma providers status` prints."""
    budget: ClassVar[str] = ""
    """Maximum for a turn, if no setting names one."""
    aliases: ClassVar[Mapping[str, str]] = {}
    """Other names of its tools."""
    settings: ClassVar[Sequence[Json]] = ()
    tools: ClassVar[Sequence[Json]] = ()
    read_tools: ClassVar[Sequence[str]] = ()
    """The tools that change nothing."""

    def __init_subclass__(cls) -> None:
        described = "hybrid: it recalls and has tools; context: it only recalls; tools: it only has tools"
        mode = field(cls.mode_key, "hybrid", described, choices=["hybrid", "context", "tools"])
        cls.settings = (*cls.fields, mode, *({**each, "advanced": True} for each in cls.advanced))
        methods = [each for each in vars(cls).values() if hasattr(each, "schema")]
        cls.tools = tuple(each.schema for each in methods)
        cls.read_tools = tuple(each.__name__ for each in methods if each.reads)

    def __init__(self, home: Path) -> None:
        self.home = home
        self.values: Json = {}
        self.session_id = self.user = self.profile = ""
        self.session_values: Mapping[str, Any] = {}
        self._connection: Any = None

    # ── settings ──

    @property
    def requires(self) -> Sequence[str]:
        """Return the packages that it needs, given its settings."""
        return self.packages

    def load_settings(self) -> Json:
        """Return the value of every setting; `ProviderError` says which one is wrong."""
        own = cfg_get(home_config(self.home), *self.section) if self.section else {}
        stored: Json = dict(own) if isinstance(own, Mapping) else {}
        for path in (Path(self.fallback).expanduser() if self.fallback else None, self.home / self.file):
            if path is not None and path.is_file():
                try:
                    read = json.loads(path.read_bytes())
                except (OSError, ValueError) as exc:
                    raise ProviderError(f"{path} cannot be read as JSON: {exc}") from exc
                if not isinstance(read, dict):
                    raise ProviderError(f"{path} must contain a JSON object.")
                stored.update(self.adapt(read))
        variables = {**read_file(self.home / FILE), **os.environ}
        values: Json = {}
        for setting in self.settings:
            key, named = setting["key"], (setting.get("env_var", ""), setting.get("env_var_of_hermes", ""))
            value = next(filter(None, map(variables.get, named)), stored.get(key, setting["default"]))
            values[key] = setting["default"] if value is None else convert(setting, value)
        return values

    def adapt(self, stored: Json) -> Json:
        """Return what a settings file says, by the keys of `settings`."""
        return stored

    def get_config_schema(self) -> list[Json]:
        return [dict(setting) for setting in self.settings]

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        path = Path(hermes_home) / self.file
        old = json.loads(path.read_bytes()) if path.is_file() else {}
        known = {setting["key"]: setting for setting in self.settings if not setting.get("secret")}
        kept = {key: convert(known[key], value) for key, value in values.items() if key in known}
        atomic_json_write(path, {**old, **kept}, mode=0o600)

    def is_available(self) -> bool:
        return not self.unavailable_reason()

    def unavailable_reason(self) -> str:
        try:
            self.values = self.load_settings()
        except ProviderError as exc:
            return str(exc)
        missing = [each for each in self.requires if not is_installed(each)]
        if missing:
            return f"the package {missing[0]} is not installed; `herma providers setup {self.name}` installs it"
        return self.missing()

    def missing(self) -> str:
        """Say which required setting has no value, or nothing."""
        for setting in self.settings:
            applies = all(self.values.get(key) == value for key, value in setting.get("when", {}).items())
            if setting.get("required") and applies and not self.values[setting["key"]]:
                return f"{setting.get('env_var') or setting['key']} is not set"
        return ""

    def get_status_config(self, config: Mapping[str, Any]) -> Json:  # noqa: ARG002  as Hermes calls it
        """Return the settings that `herma providers status` prints."""
        values = self.load_settings()
        mode = {"mode": values[self.mode_key]} if self.mode_key in values else {}
        budget = {"budget": f"{self.budget} for each turn"} if self.budget else {}
        return {**mode, **budget, **{key: values[key] for key in self.shown}}

    # ── a session ──

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.session_id = session_id
        self.user = str(kwargs.get("user_id") or "")
        self.profile = str(kwargs.get("agent_identity") or "")
        self.session_values = kwargs
        self.values = self.load_settings()
        self.shutdown()
        self._connection = self.connect()
        self.begin()

    def connect(self) -> Any:
        """Return what it asks: an HTTP client, an SDK's client, or a store. It is closed at the end."""

    def begin(self) -> None:
        """Prepare a session."""

    @property
    def client(self) -> Any:
        """Return what `connect` made."""
        if self._connection is None:
            raise ProviderError(f"{self.name} has no session.")
        return self._connection

    def shutdown(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    @property
    def mode(self) -> str:
        return str(self.values.get(self.mode_key, "hybrid"))

    def get_tool_schemas(self) -> Sequence[Json]:
        return [] if self.mode == "context" else list(self.tools)

    def system_prompt_block(self) -> str:
        recalls = " What it recalls comes with the user's message." if self.mode != "tools" else ""
        names = "" if self.mode == "context" else f" Tools: {', '.join(each['name'] for each in self.tools)}."
        return f"# {self.about}{recalls}{names}"

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        schema = next((each for each in self.tools if each["name"] == tool_name), None)
        if schema is None:
            return tool_error(f"{self.name} has no tool {tool_name}.")
        try:
            return tool_result(getattr(self, tool_name)(**checked_arguments(schema["parameters"], args)))
        except ToolProblem as exc:
            return tool_error(str(exc))
        except ServiceRefused as exc:
            if exc.status in _WRONG:
                return tool_error(str(exc))
            raise

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002
        if self.mode == "tools" or is_trivial(query):
            return ""
        return self.recall(clean(query))

    def recall(self, query: str) -> str:  # noqa: ARG002
        """Return what may help with a message of the user."""
        return ""

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",  # noqa: ARG002  the session of this object: a switch comes in its order
        messages: Sequence[Mapping[str, Any]] | None = None,
    ) -> None:
        user, assistant = clean(user_content), clean(assistant_content)
        self.store_turn(user, assistant, messages or ())

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:
        """Store a turn. `messages` are those of the whole conversation."""

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        self.mirror(action, target, clean(content), clean(str((metadata or {}).get("old_text", ""))))

    def mirror(self, action: str, target: str, content: str, old: str) -> None:
        """Follow a change of curated memory."""

    def flush(self) -> None:
        """Send what was kept back."""

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        self.flush()

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",
        reset: bool = False,
        rewound: bool = False,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        if rewound:
            self.take_back()
        else:
            self.go_on(new_session_id, parent_session_id, reset)

    def take_back(self) -> None:
        """Drop the last turn, if it was not stored yet."""

    def go_on(self, session_id: str, parent: str, reset: bool) -> None:  # noqa: ARG002
        """Go on under another id; with `reset`, with another conversation."""
        self.session_id = session_id


class Unsent:
    """The messages that a service does not have yet, in order. Failed ones wait for the next attempt."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.items: list[Any] = []

    def add(self, *items: Any) -> int:
        """Append items; return how many wait."""
        with self._lock:
            self.items += items
            return len(self.items)

    def drop(self, count: int) -> None:
        """Forget the last ones: their turn was taken back."""
        with self._lock:
            del self.items[max(len(self.items) - count, 0) :]

    def send(self, send: Callable[[list[Any]], object]) -> None:
        """Call `send` with the items, if there are any. It may remove those that the service has from the list."""
        with self._lock:
            waiting, self.items = self.items, []
        try:
            if waiting:
                send(waiting)
        except BaseException:
            with self._lock:
                self.items = waiting + self.items
            raise


class ToolProblem(ProviderError):
    """A tool cannot do what the model asks for; the model gets the reason."""


def checked_arguments(schema: Mapping[str, Any], given: Mapping[str, Any]) -> Json:
    """Return the arguments that a schema names, with defaults; `ToolProblem` names a missing or wrong one."""
    found: Json = {}
    for name, rule in schema["properties"].items():
        value = given.get(name, rule.get("default"))
        kind = rule["type"]
        if value is None or (kind == "string" and isinstance(value, str) and not value.strip()):
            if name in schema["required"]:
                raise ToolProblem(f"{name} is required.")
            continue
        if kind == "string" and isinstance(value, str):
            value = clean(value)
        elif kind in ("integer", "number") and isinstance(value, int | float) and not isinstance(value, bool):
            value = min(max(value, rule.get("minimum", value)), rule.get("maximum", value))
            value = int(value) if kind == "integer" else float(value)
        elif kind == "array" and isinstance(value, list) and all(isinstance(each, str) for each in value):
            value = [clean(each) for each in value]
        elif not (isinstance(value, bool) if kind == "boolean" else kind == "object" and isinstance(value, dict)):
            raise ToolProblem(f"{name} must be of type {kind}, got {value!r}."[:_LONGEST_REASON])
        if "enum" in rule and value not in rule["enum"]:
            raise ToolProblem(f"{name}: unknown value {value!r}. Allowed: {', '.join(rule['enum'])}.")
        found[name] = value
    return found


def checked_id(value: str) -> str:
    """Return an id that the model gave, if it can be part of an address."""
    if not re.fullmatch(r"\w[\w.:-]{0,199}", value, re.ASCII):
        raise ToolProblem(f"{value[:80]!r} is not an id. Nothing was changed.")
    return value


# ── text ──


def clean(value: str, most: int = 200_000) -> str:
    """Return text that every service takes: valid UTF-8, no NUL, not too long."""
    return value.encode("utf-8", "replace").decode().replace("\0", "").strip()[:most]


def is_trivial(query: str) -> bool:
    """Say whether a message is not worth a recall: empty, a command, or only a word such as `yes`."""
    bare = query.strip().strip(".!?。！… ")
    return not bare or bare.startswith("/") or _SHORT.fullmatch(bare) is not None


def listed(lines: Iterable[str], budget: int) -> str:
    """Return distinct lines as a list, as many as fit into so many characters."""
    found: dict[str, None] = {}
    room = budget
    for line in lines:
        item = f"- {' '.join(clean(line).split())}"
        if len(item) > 2 and item not in found:
            room -= len(item) + 1
            if room < 0:
                break
            found[item] = None
    return "\n".join(found)


def transcript(messages: Sequence[Mapping[str, Any]], most: int = 100_000) -> list[Json]:
    """Return what user and assistant said, as plain messages."""
    said = [(str(each.get("role")), each.get("content")) for each in messages]
    return [
        {"role": role, "content": clean(content, most)}
        for role, content in said
        if role in ("user", "assistant") and isinstance(content, str) and clean(content)
    ]


def is_installed(requirement: str) -> bool:
    """Say whether the package of a requirement such as `mem0ai>=2` is installed."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement.strip())
    try:
        return bool(name and version(name[0]))
    except PackageNotFoundError:
        return False


# ── HTTP ──


class ServiceRefused(ProviderError):
    """A service answered with an error status."""

    def __init__(self, sentence: str, status: int) -> None:
        super().__init__(sentence)
        self.status = status


class Http:
    """Calls of a service that speaks JSON. Connections are kept open."""

    def __init__(self, name: str, url: str, headers: Mapping[str, str], timeout: float) -> None:
        import httpx2

        if not re.match(r"https?://[^/\s]+", url):
            raise ProviderError(f"{name}: {url!r} is not an http or https address.")
        self._name, self._url, self._timeout = name, url.rstrip("/"), timeout
        secret = [value.split() for key, value in headers.items() if key in ("Authorization", "X-API-Key")]
        self._keys = [words[-1] for words in secret if words and len(words[-1]) > 5]
        self.client: httpx2.Client = httpx2.Client(headers=dict(headers), timeout=timeout)

    def call(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        query: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        raw: bool = False,
        **more: Any,
    ) -> Any:
        """Return the answer, as bytes with `raw`. Raise `ServiceRefused` for an error, `ProviderError` if none."""
        import httpx2

        within = timeout or self._timeout
        if body is not None:
            more["json"] = body
        try:
            answer = self.client.request(method, self._url + path, params=query, timeout=within, **more)
        except httpx2.TimeoutException as exc:
            raise ProviderError(f"{self._name} did not answer within {within:g} s.") from exc
        except httpx2.HTTPError as exc:
            raise ProviderError(f"Cannot reach {self._name} at {self._url}: {exc}") from exc
        if answer.status_code >= 400:
            why = answer.text
            for key in self._keys:  # some services repeat it
                why = why.replace(key, "…")
            why = " ".join(why.split())[:_LONGEST_REASON]
            raise ServiceRefused(f"{self._name} answered {answer.status_code}: {why}", answer.status_code)
        if raw or not answer.content:
            return answer.content if raw else {}
        try:
            return answer.json()
        except ValueError as exc:
            raise ProviderError(f"{self._name} did not answer with JSON.") from exc

    def close(self) -> None:
        """Close the connections. Closing twice does no harm."""
        self.client.close()


# ── a service on this machine ──


class LocalServer:
    """A server that all programs of a home share. It is started when it is needed, and ends when it is unused."""

    def __init__(
        self, command: Sequence[str], health: str, folder: Path, *, environ: Mapping[str, str], idle: float
    ) -> None:
        """`health` is an address that answers once the server is up; `idle` 0: it does not end by itself."""
        self._command, self._health, self._folder = list(command), health, folder
        self._environ, self._idle = {**os.environ, **environ}, idle

    def ensure(self, within: float) -> None:
        """Start the server unless it answers, and wait for it; `ProviderError` if it does not come up in time."""
        make_folder(self._folder)
        used, log = self._folder / "used", self._folder / "server.log"
        used.touch()
        if self._answers():
            return
        until = time.monotonic() + within
        with exclusive(self._folder / "server.lock", within):
            if self._answers():  # another program has started it
                return
            code = "import sys; from herma.providers.bundled import supervise; supervise(sys.argv[1:])"
            words = [sys.executable, "-c", code, str(used), str(self._idle), *self._command]
            with log.open("wb") as output:
                log.chmod(0o600)
                started = subprocess.Popen(
                    words,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=self._environ,
                    start_new_session=True,
                )
            BackgroundCall("server", started.wait).start()  # leaves no zombie
            while not self._answers():
                ended = started.poll() is not None
                if ended or time.monotonic() > until:
                    said = (log.read_text("utf-8", "replace").strip().splitlines() or ["nothing"])[-1]
                    what = "ended" if ended else f"is not ready after {within:g} s"
                    raise ProviderError(f"{self._command[0]} {what}; its log {log} says: {said[:_LONGEST_REASON]}")
                used.touch()
                time.sleep(0.1)

    def _answers(self) -> bool:
        direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with direct.open(self._health, timeout=2) as answer:
                return int(answer.status) == 200
        except OSError:
            return False


def supervise(words: Sequence[str]) -> None:
    """Run a server (`used idle command…`) until its file `used` has not been touched for `idle` seconds."""
    used, idle, *command = words
    with subprocess.Popen(command) as server:
        while server.poll() is None:
            try:
                server.wait(min(float(idle) or 60.0, 5.0))
            except subprocess.TimeoutExpired:
                last = Path(used).stat().st_mtime if Path(used).exists() else 0.0  # without it, the home is gone
                if float(idle) and time.time() - last > float(idle):
                    server.terminate()
