"""Find the server and the key of a model in the settings, and probe a model."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeAlias, get_args
from urllib.parse import urlsplit, urlunsplit

from herma.config import is_variable
from herma.errors import ConfigError, HermaWarning, ModelError, UsageError

if TYPE_CHECKING:
    from herma.config import Settings
    from herma.models.client import ChatModel
    from herma.types import Usage

Kind: TypeAlias = Literal["openai", "anthropic"]
OUTPUT_TOKENS = 8_192
"""The longest answer if a server requires a limit and none is set."""


class Preset(NamedTuple):
    """A known server: its address, and the usual variable of its key."""

    url: str
    key_variable: str = ""
    kind: Kind = "openai"


PRESETS: Mapping[str, Preset] = {
    "openai": Preset("https://api.openai.com/v1", "OPENAI_API_KEY"),
    "anthropic": Preset("https://api.anthropic.com", "ANTHROPIC_API_KEY", "anthropic"),
    "openrouter": Preset("https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
    "ollama": Preset("http://127.0.0.1:11434/v1"),
    "llama.cpp": Preset("http://127.0.0.1:8080/v1"),
    "vllm": Preset("http://127.0.0.1:8000/v1"),
}
"""Names that `model.url` may have instead of an address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model at one address."""

    url: str
    name: str
    kind: Kind = "openai"
    key: str = field(default="", repr=False)
    key_variable: str = ""
    """The variable of the key; for messages."""
    timeout: float = 600.0
    """Maximum seconds of a call, retries included."""
    idle_timeout: float = 120.0
    """Maximum seconds between two pieces of an answer."""
    retries: int = 3
    max_tokens: int = 0
    """The longest answer if the caller sets no limit; 0: the server's limit."""
    section: str = "model"
    """The section of the configuration; for messages."""
    long_cache: bool = False
    """True if cache marks ask for an hour instead of five minutes."""

    @property
    def host(self) -> str:
        """The host for messages, without a password in the address."""
        parts = urlsplit(self.url)
        return f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or self.url

    @property
    def loopback(self) -> bool:
        name = urlsplit(self.url).hostname or ""
        return name == "localhost" or name == "::1" or name.startswith("127.")

    @property
    def official(self) -> bool:
        """Return whether this is the server of the API's maker, which rejects unknown fields."""
        own = ("anthropic.com",) if self.kind == "anthropic" else ("openai.com", "openai.azure.com")
        return any(_belongs_to(self.url, domain) for domain in own)

    @property
    def provider(self) -> str:
        """The provider of the model: the name of a known server, else the host."""
        here = urlsplit(self.url).netloc
        return next((word for word, one in PRESETS.items() if urlsplit(one.url).netloc == here), self.host)

    @property
    def openrouter(self) -> bool:
        return _belongs_to(self.url, "openrouter.ai")


def locate(url: str, name: str, kind: str = "") -> tuple[str, Kind, str]:
    """Return the address, the API and the usual variable of the key for a URL or the name of a preset.

    Only known servers have a usual variable, so that a key is not sent to another server.
    """
    word = url.strip()
    preset = PRESETS.get(word.lower())
    address = _cleaned(preset.url if preset else word)
    if kind and kind not in get_args(Kind):
        raise ConfigError(
            f"model.kind cannot be {kind!r}.", hint="Use openai, anthropic, or empty: inferred from the URL."
        )
    known = preset or next(
        (one for one in PRESETS.values() if one.key_variable and urlsplit(address)[:2] == urlsplit(one.url)[:2]), None
    )
    spoken: Kind = "anthropic" if (kind or _guess(address, name, known)) == "anthropic" else "openai"
    if spoken == "anthropic" and address.endswith("/v1"):
        address = address.removesuffix("/v1")  # its client adds the version itself
    return address, spoken, known.key_variable if known else ""


def _guess(address: str, name: str, known: Preset | None) -> str:
    if known is not None:
        return known.kind
    parts = urlsplit(address)
    if parts.path.rstrip("/").endswith("/anthropic") or _belongs_to(address, "anthropic.com"):
        return "anthropic"
    return "anthropic" if not parts.path.strip("/") and name.lower().startswith("claude") else "openai"


def _cleaned(address: str) -> str:
    try:
        parts = urlsplit(address)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            "model.url is neither an address nor the name of a known server.",
            hint=f"Write it like http://127.0.0.1:8080/v1, or as one of {', '.join(PRESETS)}.",
        )
    if parts.username or parts.password:
        raise ConfigError(
            "model.url contains a user name or password; secrets do not belong into the configuration.",
            hint="Name a variable in model.api_key_env, and put the key there or into the home's .env file.",
        )
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/messages"):  # an address as it is often copied
        path = path.removesuffix(ending)
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _belongs_to(address: str, domain: str) -> bool:
    name = urlsplit(address).hostname or ""
    return name == domain or name.endswith("." + domain)


# ── keys: from the environment or the home's `.env`, never from the configuration ──

FILE = ".env"
_MOST = 1_000_000
"""Bytes of the file that are read."""


def read_key(variable: str, home: Path, environ: Mapping[str, str] | None = None) -> str:
    """Return the key in this variable, or "". The environment wins over the file."""
    if not variable:
        return ""
    env = os.environ if environ is None else environ
    return (env.get(variable) or read_file(home / FILE).get(variable, "")).strip()


def read_file(path: Path) -> dict[str, str]:
    """Return the variables of a file; none if there is no file. Warn if others may read it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            raw = file.read(_MOST)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint="It contains the keys of models.") from exc
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"{path} contains keys, and other users of this machine may read it; type: chmod 600 {path}",
            HermaWarning,
            stacklevel=2,
        )
    return parse(raw.decode("utf-8-sig", "replace"))


def parse(text: str) -> dict[str, str]:
    """Read `NAME=value` lines with comments, quotes and `export`, as in a shell; nothing is expanded."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or name.startswith("#"):
            continue
        if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
            value = value[1:end]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name] = value
    return found


# ── the models of the settings ──

Role: TypeAlias = Literal["main", "auxiliary"]


def endpoint_of(settings: Settings, role: Role = "main") -> Endpoint | None:
    """Return the endpoint of a role with its key; `None` if the settings name no model.

    Empty keys of the section `auxiliary` are taken from `model`. A server that only `auxiliary` names never gets the
    key of the main one.
    """
    if role not in ("main", "auxiliary"):
        raise UsageError(f"{role!r} is not a role of a model.", hint="Use main or auxiliary.")
    main, other = settings.model, settings.auxiliary
    own = role == "auxiliary" and bool(other.url)
    url = other.url if own else main.url
    name = (other.name if role == "auxiliary" else "") or main.name
    if not url.strip() or not name.strip():
        return None
    section = "auxiliary" if own else "model"
    address, kind, usual = locate(url, name, other.kind if own else main.kind)
    variable = (other.api_key_env if own else main.api_key_env).strip() or usual
    if variable and not is_variable(variable):
        raise ConfigError(
            f"{section}.api_key_env must be the name of a variable; its value looks like a key.",
            hint="Put the key itself into that variable or into the home's .env file, and its name here.",
        )
    return Endpoint(
        url=address,
        name=name.strip(),
        kind=kind,
        key=read_key(variable, settings.home),
        key_variable=variable,
        timeout=main.timeout,
        retries=main.retries,
        max_tokens=main.max_tokens,
        section=section,
        long_cache=settings.prices.cache_minutes >= 60,
    )


# ── the probe: three short requests: does the model answer, call tools, and return JSON, as background work needs? ──

_HELLO = [{"role": "user", "content": "Count from one to ten in words, and say nothing else."}]
_ASK = [{"role": "user", "content": "What is the time? Use the tool, and say nothing else."}]
_TOOL = {
    "type": "function",
    "function": {
        "name": "current_time",
        "description": "The time of day.",
        "parameters": {"type": "object", "properties": {"zone": {"type": "string", "description": "A time zone."}}},
    },
}
_FORM = [{"role": "user", "content": 'Name two colours. Answer with JSON alone: {"colours": ["...", "..."]}'}]
_SHAPE = {
    "type": "object",
    "properties": {"colours": {"type": "array", "items": {"type": "string"}}},
    "required": ["colours"],
    "additionalProperties": False,
}
_ANSWER_TOKENS = 200
"""Enough for a model that reasons before it answers."""


@dataclass(frozen=True, slots=True)
class Probe:
    """The result. `tools` and `form` are `None` if the model did not answer at all."""

    name: str
    reachable: bool
    answered_as: str = ""
    pieces: int = 0
    first_text: float | None = None
    seconds: float = 0.0
    usage: Usage | None = None
    tools: bool | None = None
    tools_error: str = ""
    form: bool | None = None
    """True if it returns JSON of a given shape."""
    form_error: str = ""
    error: str = ""
    hint: str = ""

    @property
    def streams(self) -> bool:
        return self.pieces > 1


def probe(model: ChatModel, *, deadline: float = 60.0) -> Probe:
    """Send three requests, each with the deadline. Errors of the model become part of the result."""
    pieces: list[str] = []
    try:
        hello = model.reply(_HELLO, max_tokens=_ANSWER_TOKENS, deadline=deadline, on_text=pieces.append)
    except ModelError as exc:
        return Probe(model.name, False, error=str(exc), hint=exc.hint)
    tools, tools_error = False, ""
    try:
        calls = model.reply(_ASK, tools=[_TOOL], max_tokens=_ANSWER_TOKENS, deadline=deadline).tool_calls
        tools = any(call.name == "current_time" for call in calls)
    except ModelError as exc:
        tools_error = str(exc)
    form, form_error = _returns_json(model, deadline)
    return Probe(
        name=model.name,
        reachable=True,
        answered_as=hello.model,
        pieces=len(pieces),
        first_text=hello.first_text,
        seconds=hello.seconds,
        usage=hello.usage if hello.measured else None,
        tools=tools,
        tools_error=tools_error,
        form=form,
        form_error=form_error,
    )


def _returns_json(model: ChatModel, deadline: float) -> tuple[bool, str]:
    try:
        text = model.reply(_FORM, max_tokens=_ANSWER_TOKENS, deadline=deadline, json_schema=_SHAPE).text
    except ModelError as exc:
        return False, str(exc)
    try:
        value = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return False, ""
    return isinstance(value, dict) and isinstance(value.get("colours"), list), ""
