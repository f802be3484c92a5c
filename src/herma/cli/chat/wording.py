"""What the chat says about itself, in lines. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from herma.agent.happenings import Called
from herma.cli.sessions.wording import count, one_line
from herma.prompt.budget import Plan
from herma.types import Condensed, LeftAlone

_ARGUMENTS = 100
_RESULT = 100


def tool_line(done: Called) -> str:
    """`→ memory add user: The user drinks tea.  (12 ms)`, and why if it did not work."""
    said = one_line(_arguments(done.call.arguments), _ARGUMENTS)
    took = f"{done.seconds * 1000:.0f} ms" if done.seconds < 1 else f"{done.seconds:.1f} s"
    failed = "" if done.ok else f"  failed: {one_line(_error(done.result), _RESULT)}"
    return f"→ {done.call.name} {said}".rstrip() + f"  ({took}){failed}"


def shortened_line(outcome: Condensed | LeftAlone) -> str:
    if isinstance(outcome, LeftAlone):
        return f"· The conversation was not made shorter: {outcome.reason}"
    how = {
        "pruned": "tool results were shortened",
        "model": "a summary by the model",
        "extract": "a summary in its own words",
    }
    stands = f", standing for {count(outcome.replaced, 'message')}" if outcome.replaced else ""
    sizes = f"{outcome.tokens_before:,} → {outcome.tokens_after:,} tokens"
    return f"· The conversation was made shorter: {how[outcome.how]}{stands} ({sizes}). Every message is still kept."


def status(model: str, plan: Plan | None, cost: float | None, name: str, *, offline: str = "") -> str:
    """The line below the prompt."""
    parts = [model]
    if plan is not None and plan.window:
        parts.append(f"{plan.used / plan.window:.0%} of {_short(plan.window)} tokens")
    if cost is not None:
        parts.append(f"${cost:.4f}" if cost < 1 else f"${cost:.2f}")
    return " · ".join(filter(None, [*parts, one_line(name, 40), offline]))


def _short(tokens: int) -> str:
    if tokens >= 1_000_000:
        return f"{tokens / 1_000_000:.1f}M".replace(".0M", "M")
    return f"{tokens // 1000}k" if tokens >= 1000 else str(tokens)


def _arguments(written: str) -> str:
    """Arguments as a person reads them."""
    try:
        value = json.loads(written or "{}")
    except (ValueError, RecursionError):
        return written
    if not isinstance(value, Mapping):
        return written
    return ", ".join(_pair(name, given) for name, given in value.items())


def _pair(name: str, given: Any) -> str:
    text = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
    return text if name in ("action", "query", "name", "content", "text") else f"{name}={text}"


def _error(result: str) -> str:
    try:
        value = json.loads(result)
    except (ValueError, RecursionError):
        return result
    return str(value.get("error") or value) if isinstance(value, Mapping) else result
