"""Where a model is, how to speak with it, and how patient to be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args
from urllib.parse import urlsplit, urlunsplit

from herma.errors import ConfigError

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
