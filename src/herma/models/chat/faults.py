"""What went wrong with a model, as one of our errors: by the server's number and words, the same for every library.

Nothing of a key may reach a message: where the key itself is the matter the server is not quoted, and anywhere else
the key is taken out of what it says.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

from herma.errors import (
    ModelBroken,
    ModelError,
    ModelOverflow,
    ModelRefused,
    ModelUnreachable,
)
from herma.models.chat.endpoint import Endpoint

_QUOTED = 300
"""Characters of a server's own words that a message repeats."""
_LATER = frozenset({408, 409, 425, 502, 503, 504, 520, 522, 524, 529})
"""Answers that mean: not now."""
_TOO_LONG = re.compile(
    r"context.?(length|window|size)|maximum context|prompt is too long|too many (input )?tokens|"
    r"input is too long|reduce the length|exceeds? the (available|model)",
    re.IGNORECASE,
)
_NO_MONEY = re.compile(r"insufficient.?(quota|credit|funds|balance)|billing|exceeded your current quota", re.IGNORECASE)
_CANNOT = re.compile(r"not (supported|implemented)|unsupported", re.IGNORECASE)
"""Some servers say with 500 what they will never do."""
_BUSY = re.compile(r"overloaded|rate.?limit|unavailable|capacity", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Fault:
    """A failed attempt: the error, whether another one may help, and when the server wants to be asked again."""

    error: ModelError
    again: bool = False
    after: float | None = None
    parameter: str = ""
    """The part of the request that the server does not know; without it, it may work."""


def refused(where: Endpoint, status: int, body: object, headers: Mapping[str, str], now: float) -> Fault:
    """The fault for an answer with an HTTP status other than success."""
    said, code, parameter = _said(body)
    quoted = quote(said, where.key)
    after = retry_after(headers, now)
    if status in (401, 403):
        return Fault(_about_the_key(where, status))
    if status == 413 or (status in (400, 422) and _TOO_LONG.search(f"{code} {said}")):
        return Fault(
            ModelOverflow(
                f"The request is longer than what {where.name} can take{quoted}.",
                hint="A shorter history, or a summary of it, would fit; context.window says how much may be sent.",
                status=status,
            )
        )
    if status == 402 or (status in (400, 429) and _NO_MONEY.search(f"{code} {said}")):
        hint = "Look at the account that the key belongs to, or choose another model."
        return Fault(ModelRefused(f"{where.host} wants to be paid first{quoted}.", hint=hint, status=status))
    if status == 429:
        wait = f", and asks for {after:.0f} s of patience" if after else ""
        error = ModelRefused(
            f"{where.host} has had too many requests{wait}.", hint="Try again later, or less often.", status=status
        )
        return Fault(error, again=_may_retry(headers), after=after)
    if status in _LATER or (status >= 500 and not (status == 501 or _CANNOT.search(said))):
        error_ = ModelUnreachable(
            f"{where.host} cannot answer now (status {status}){quoted}.",
            hint="Try again later; it is not your request.",
        )
        return Fault(error_, again=_may_retry(headers), after=after)
    if status == 404:
        return Fault(
            ModelRefused(
                f"{where.host} has no model {where.name!r}, or nothing at this address{quoted}.",
                hint=f"Compare {where.section}.url and {where.section}.name with what the server offers.",
                status=status,
            )
        )
    if 300 <= status < 400:
        hint = f"Set {where.section}.url to the address that it names; a key is not sent after somebody who moved."
        return Fault(ModelRefused(f"{where.host} says that it moved (status {status}).", hint=hint, status=status))
    error = ModelRefused(
        f"{where.host} does not accept the request (status {status}){quoted}.",
        hint="If the model cannot do what was asked (tools, images, a schema), choose another one.",
        status=status,
    )
    return Fault(error, parameter=parameter or ("temperature" if "temperature" in said else ""))


def unreachable(where: Endpoint, why: str, *, connecting: bool = True) -> Fault:
    """Nobody answered, or the connection was lost before anything came."""
    reason = quote(why, where.key)
    if connecting:
        sentence, hint = (
            f"Nobody answers at {where.host}{reason}.",
            f"Is the server running? Is {where.section}.url right?",
        )
        if where.loopback:
            hint = f"Start the server, or set {where.section}.url to where it runs."
    else:
        sentence, hint = f"{where.host} hung up before it answered{reason}.", "Try again; look into the server's log."
    return Fault(ModelUnreachable(sentence, hint=hint), again=True)


def broken(where: Endpoint, what: str, partial: str = "", *, again: bool = True) -> Fault:
    """It answered, but what it says is cut off or makes no sense. Text that had come makes it final."""
    sentence = f"The answer of {where.name} {what}."
    hint = f"Try again; if it stays so, look whether {where.section}.url and {where.section}.kind are right."
    return Fault(ModelBroken(sentence, hint=hint, partial=partial), again=again and not partial)


def in_the_middle(where: Endpoint, body: object, message: str, partial: str) -> Fault:
    """The server reported an error inside an answer that had begun."""
    said, code, _ = _said(body)
    if _TOO_LONG.search(f"{code} {said}"):
        return refused(where, 400, body, {}, 0.0)
    fault = broken(where, f"was broken off by its server{quote(said or message, where.key)}", partial)
    if not partial and _BUSY.search(f"{code} {said}"):
        return refused(where, 503, body, {}, 0.0)
    return fault


def _about_the_key(where: Endpoint, status: int) -> ModelError:
    place = (
        f"the variable {where.key_variable}"
        if where.key_variable
        else f"a variable that {where.section}.api_key_env names"
    )
    hint = f"Put the right key into {place}, or into the home's .env file (mode 0600)."
    if where.key:
        return ModelRefused(
            f"{where.host} does not accept the key for {where.name} (status {status}).", hint=hint, status=status
        )
    return ModelRefused(
        f"{where.host} wants a key, and none is set (status {status}).",
        hint=hint.replace("the right", "your"),
        status=status,
    )


def quote(said: str, key: str) -> str:
    """A server's own words in brackets, short and without the key; "" if it said nothing."""
    words = " ".join(said.split())
    if key:
        words = words.replace(key, "…")
    words = words.rstrip(".")
    return f" ({words if len(words) <= _QUOTED else words[: _QUOTED - 1] + '…'})" if words else ""


def _said(body: object) -> tuple[str, str, str]:
    """The words, the code and the parameter that an error's body names, in any of the usual shapes."""
    found = body.get("error", body) if isinstance(body, Mapping) else body
    if isinstance(found, Mapping):
        words = found.get("message") or found.get("detail") or found.get("msg") or ""
        code = f"{found.get('code') or ''} {found.get('type') or ''}".strip()
        return _text(words), code, _text(found.get("param") or "")
    text = _text(found or "")
    return ("" if text.lstrip().startswith("<") else text), "", ""  # a page for people is no message


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _may_retry(headers: Mapping[str, str]) -> bool:
    return headers.get("x-should-retry", "").lower() != "false"


def retry_after(headers: Mapping[str, str], now: float) -> float | None:
    """Seconds that the server asks to wait: a number, a date, or milliseconds; `None` if it does not say."""
    milliseconds = _number(headers.get("retry-after-ms", ""))
    if milliseconds is not None:
        return milliseconds / 1000
    given = headers.get("retry-after", "").strip()
    seconds = _number(given)
    if seconds is not None or not given:
        return seconds
    try:
        return max(0.0, parsedate_to_datetime(given).timestamp() - now)
    except (ValueError, TypeError, OverflowError):
        return None


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e9 else None
