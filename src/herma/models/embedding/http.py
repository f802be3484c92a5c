"""One HTTP request with a deadline, with what the standard library has.

Redirects are not followed: they would carry the key to somebody else.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

_LARGEST_ANSWER = 256 * 1024 * 1024
_PIECE = 64 * 1024


class Unreachable(Exception):
    """No whole answer came; the message says why."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    body: bytes
    retry_after: float = 0.0


def post(
    url: str, body: bytes, headers: Mapping[str, str], seconds: float, clock: Callable[[], float] = time.monotonic
) -> Answer:
    """Send JSON; → whatever is answered within so many seconds, whether it is good news or not."""
    import http.client
    import urllib.error
    import urllib.request

    deadline = clock() + seconds
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **headers}, method="POST")  # noqa: S310
    try:
        with _open(request, seconds) as response:
            kept = b"".join(_pieces(response, deadline, clock))
            return Answer(response.status, kept, _retry_after(response.headers.get("Retry-After")))
    except (OSError, http.client.HTTPException, ValueError) as exc:
        raise Unreachable(_why(exc)) from exc


def download(url: str, seconds: float) -> Any:
    """An opened answer to read from; HTTP errors are raised as `urllib.error.HTTPError`."""
    import urllib.request

    return urllib.request.urlopen(urllib.request.Request(url), timeout=seconds)  # noqa: S310 (callers check the scheme)


def _open(request: Any, seconds: float) -> Any:
    import urllib.request

    class Plain(urllib.request.HTTPErrorProcessor):
        """Hands every status to the caller, redirects and refusals included."""

        def http_response(self, request: Any, response: Any) -> Any:  # noqa: ARG002 (urllib names it)
            return response

        https_response = http_response

    return urllib.request.build_opener(Plain).open(request, timeout=max(seconds, 0.001))


def _pieces(response: Any, deadline: float, clock: Callable[[], float]) -> Iterator[bytes]:
    """What comes, until its end; a server that only drips does not hold the caller beyond the deadline."""
    size = 0
    while piece := response.read1(_PIECE):
        yield piece
        size += len(piece)
        if size > _LARGEST_ANSWER:
            raise Unreachable("its answer is far too large")
        if clock() > deadline:
            raise Unreachable("its answer took too long")
    if response.length:
        raise Unreachable("its answer was cut off")


def _retry_after(value: str | None) -> float:
    """Seconds that the server asks to wait; a date, as HTTP allows, is taken as a few seconds."""
    if not value:
        return 0.0
    try:
        return min(max(0.0, float(value)), 3600.0)  # in this order, "nan" is 0
    except ValueError:
        return 5.0


def _why(error: Exception) -> str:
    reason = getattr(error, "reason", None) or error
    if isinstance(reason, TimeoutError):
        return "it took too long"
    said = getattr(reason, "strerror", None) or str(reason) or type(reason).__name__
    return str(said).rstrip(".")
