"""Which model the settings mean."""

from __future__ import annotations

from typing import Literal, TypeAlias

from herma.config import Settings
from herma.errors import ConfigError, UsageError
from herma.models.chat.endpoint import Endpoint, locate
from herma.models.chat.keys import read_key

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
