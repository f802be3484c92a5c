"""Which server, which key, a probe."""

from __future__ import annotations

import json
import os
import stat
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit, urlunsplit

from herma.config import Settings
from herma.errors import ConfigError, HermaWarning, ModelError, UsageError
from herma.models.client import ChatModel
from herma.types import Reply, Usage

# ---------- models.chat.endpoint
#
# Where a model is, how to speak with it, and how patient to be. Pure.

Kind: TypeAlias = Literal["openai", "anthropic"]
OUTPUT_TOKENS = 8_192
"""How long an answer may become where a server wants to be told and nobody said."""


@dataclass(frozen=True, slots=True)
class Preset:
    """A known place: its address, and the variable in which its users keep their key."""

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
"""Words that `model.url` may be in place of an address."""


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One model at one address."""

    url: str
    name: str
    kind: Kind = "openai"
    key: str = field(default="", repr=False)
    key_variable: str = ""
    """The variable in which the key is, or would be; for messages."""
    timeout: float = 600.0
    """Seconds that a call may take in all."""
    idle_timeout: float = 120.0
    """Seconds that may pass between two pieces of an answer."""
    retries: int = 3
    max_tokens: int = 0
    """How long an answer may become if the caller does not say; 0: as long as the server likes."""
    stream: bool = True
    section: str = "model"
    """The section of the configuration that it comes from; for messages."""
    long_cache: bool = False
    """Whether what is marked should be kept for an hour and not for five minutes."""

    @property
    def host(self) -> str:
        """The host as a message names it: without a password that somebody wrote into the address."""
        parts = urlsplit(self.url)
        return f"{parts.hostname or ''}:{parts.port}" if parts.port else parts.hostname or self.url

    @property
    def loopback(self) -> bool:
        name = urlsplit(self.url).hostname or ""
        return name == "localhost" or name == "::1" or name.startswith("127.")

    @property
    def official(self) -> bool:
        """Whether this is the maker of the protocol, who refuses fields that it does not know."""
        own = ("anthropic.com",) if self.kind == "anthropic" else ("openai.com", "openai.azure.com")
        return any(_belongs_to(self.url, domain) for domain in own)

    @property
    def openrouter(self) -> bool:
        return _belongs_to(self.url, "openrouter.ai")


def locate(url: str, name: str, kind: str = "") -> tuple[str, Kind, str]:
    """The address, the protocol and the usual variable of the key, from what the configuration says.

    The address is a preset's word or a URL. A key's variable is known for known places only, so that nobody's key is
    sent anywhere else.
    """
    word = url.strip()
    preset = PRESETS.get(word.lower())
    address = _cleaned(preset.url if preset else word)
    if kind and kind not in get_args(Kind):
        raise ConfigError(f"model.kind cannot be {kind!r}.", hint="It is openai, anthropic, or empty: by the address.")
    known = preset or next(
        (one for one in PRESETS.values() if one.key_variable and _same_place(address, one.url)), None
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
            "model.url is neither an address nor the name of a known place.",
            hint=f"Write it like http://127.0.0.1:8080/v1, or as one of {', '.join(PRESETS)}.",
        )
    if parts.username or parts.password:
        raise ConfigError(
            "model.url has a user name or password in it, and the configuration is no place for secrets.",
            hint="Name a variable in model.api_key_env, and put the key there or into the home's .env file.",
        )
    path = parts.path.rstrip("/")
    for ending in ("/chat/completions", "/messages"):  # an address as it is often copied
        path = path.removesuffix(ending)
    return urlunsplit((parts.scheme, parts.netloc, path, parts.query, ""))


def _same_place(one: str, other: str) -> bool:
    return urlsplit(one).hostname == urlsplit(other).hostname and urlsplit(one).scheme == urlsplit(other).scheme


def _belongs_to(address: str, domain: str) -> bool:
    name = urlsplit(address).hostname or ""
    return name == domain or name.endswith("." + domain)


# ---------- models.chat.keys
#
# Keys of model servers: from the environment, or from the home's `.env`. Never from the configuration.

FILE = ".env"
_MOST = 1_000_000
"""Bytes of a file that is still read as one of variables."""


def read_key(variable: str, home: Path, environ: Mapping[str, str] | None = None) -> str:
    """The key in this variable; "" where there is none. The environment wins over the file."""
    if not variable:
        return ""
    env = os.environ if environ is None else environ
    return (env.get(variable) or read_file(home / FILE).get(variable, "")).strip()


def read_file(path: Path) -> dict[str, str]:
    """The variables of a file; none if there is no file. Warns if others may read it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            raw = file.read(_MOST)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint="It holds the keys of models.") from exc
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"{path} holds keys, and others on this machine may read it; type: chmod 600 {path}",
            HermaWarning,
            stacklevel=2,
        )
    return parse(raw.decode("utf-8-sig", "replace"))


def parse(text: str) -> dict[str, str]:
    """`NAME=value` lines: comments, quotes and a leading `export` as shells have them; nothing is expanded."""
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


# ---------- models.chat.choose
#
# Which model the settings mean.

Role: TypeAlias = Literal["main", "auxiliary"]


def endpoint_of(settings: Settings, role: Role = "main") -> Endpoint | None:
    """Where the model of a role is; `None` if the settings name none. Its key is read on the way.

    What the auxiliary section leaves out is as with the main one. A server that only the auxiliary section names never
    gets the main one's key.
    """
    if role not in ("main", "auxiliary"):
        raise UsageError(f"{role!r} is no role of a model.", hint="There are main and auxiliary.")
    main, other = settings.model, settings.auxiliary
    own = role == "auxiliary" and bool(other.url)
    url = other.url if own else main.url
    name = (other.name if role == "auxiliary" else "") or main.name
    if not url.strip() or not name.strip():
        return None
    section = "auxiliary" if own else "model"
    address, kind, usual = locate(url, name, other.kind if own else main.kind)
    variable = (other.api_key_env if own else main.api_key_env).strip() or usual
    if "=" in variable or any(mark.isspace() for mark in variable) or variable.startswith(("sk-", "sk_")):
        raise ConfigError(
            f"{section}.api_key_env must be the name of a variable, and what stands there is none.",
            hint="Put the key itself into that variable or into the home's .env file, and its name here.",
        )
    return Endpoint(
        url=address,
        name=name.strip(),
        kind=kind,
        key=read_key(variable, settings.home),
        key_variable=variable,
        timeout=(other.timeout if role == "auxiliary" else 0) or main.timeout,
        idle_timeout=main.idle_timeout,
        retries=main.retries,
        max_tokens=main.max_tokens,
        stream=main.stream,
        section=section,
        long_cache=settings.prices.cache_minutes >= 60,
    )


# ---------- models.chat.probe
#
# Trying a model out with three tiny questions: whether it answers, in pieces, how fast, whether it calls tools, and
# whether it keeps to a form, as background work wants it.

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
"""Enough for a model that thinks before it speaks."""


@dataclass(frozen=True, slots=True)
class Probe:
    """What came of it. `tools` and `form` are `None` where nothing was learnt about them."""

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
    """Whether it answers with JSON of a given shape."""
    form_error: str = ""
    error: str = ""
    hint: str = ""

    @property
    def streams(self) -> bool:
        return self.pieces > 1


def probe(model: ChatModel, *, deadline: float = 60.0) -> Probe:
    """Ask three times, each within the deadline. Never raises for what the model does."""
    pieces: list[str] = []
    try:
        hello = model.reply(_HELLO, max_tokens=_ANSWER_TOKENS, deadline=deadline, on_text=pieces.append)
    except ModelError as exc:
        return Probe(model.name, False, error=str(exc), hint=exc.hint)
    try:
        asked: Reply | None = model.reply(_ASK, tools=[_TOOL], max_tokens=_ANSWER_TOKENS, deadline=deadline)
        tools_error = ""
    except ModelError as exc:
        asked, tools_error = None, str(exc)
    form, form_error = _keeps_to_a_form(model, deadline)
    return Probe(
        name=model.name,
        reachable=True,
        answered_as=hello.model,
        pieces=len(pieces),
        first_text=hello.first_text,
        seconds=hello.seconds,
        usage=hello.usage if hello.measured else None,
        tools=asked is not None and any(call.name == "current_time" for call in asked.tool_calls),
        tools_error=tools_error,
        form=form,
        form_error=form_error,
    )


def _keeps_to_a_form(model: ChatModel, deadline: float) -> tuple[bool, str]:
    try:
        text = model.reply(_FORM, max_tokens=_ANSWER_TOKENS, deadline=deadline, json_schema=_SHAPE).text
    except ModelError as exc:
        return False, str(exc)
    try:
        value = json.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return False, ""
    return isinstance(value, dict) and isinstance(value.get("colours"), list), ""
