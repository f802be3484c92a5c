"""What differs between the families of servers: how a request is written, sent and answered."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from herma.models.chat.endpoint import Endpoint
from herma.models.chat.faults import Fault, broken, in_the_middle, refused, unreachable
from herma.models.chat.line import Line
from herma.types import Finish, ToolCall, Usage


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `ChatModel.reply` was asked for."""

    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] = ()
    temperature: float | None = None
    max_tokens: int | None = None
    json_schema: Mapping[str, Any] | None = None
    cache_marks: Sequence[int] | None = None


@dataclass(frozen=True, slots=True)
class Collected:
    """An answer put together from its pieces. `usage` is `None` where the server did not say."""

    message: Mapping[str, Any]
    text: str
    tool_calls: tuple[ToolCall, ...]
    finish: Finish
    usage: Usage | None
    model: str


class Unfinished(Exception):
    """The pieces make no whole answer; the text says how, as the end of a sentence about the answer."""


class Collector(Protocol):
    """Takes the events of one answer in turn."""

    def add(self, event: Mapping[str, Any]) -> str:
        """→ the text that came with it. `Unfinished` for what cannot be part of an answer."""

    def whole(self) -> Collected:
        """The answer; `Unfinished` if it is not complete."""


class Dialect(Protocol):
    """One family."""

    @property
    def extra(self) -> str:
        """The extra of this package, and the library, that it needs."""

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        """The request's body, without parameters that this server was found to refuse."""

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        """Send it, and give the events of the answer as plain values; runs in the reading thread."""

    def collector(self) -> Collector: ...

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        """What an error of the library means; `None` if it is none of a server's."""


def fault_of(
    library: Any, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float
) -> Fault | None:
    """Both libraries have the same names for the same errors. `began`: something of the answer had come."""
    import httpx2

    if isinstance(error, Unfinished):
        return broken(where, str(error), partial)
    if isinstance(error, library.APIStatusError) and not began and error.response.status_code >= 300:
        response = error.response
        return refused(where, response.status_code, error.body, response.headers, now)
    if isinstance(error, library.APIConnectionError | httpx2.TransportError):
        cause = error.__cause__ or error
        if began:
            return broken(where, "was cut off in the middle", partial)
        connecting = isinstance(cause, httpx2.ConnectError | httpx2.ConnectTimeout)
        return unreachable(where, str(cause) if connecting else "", connecting=connecting)
    if isinstance(error, library.APIError):
        return in_the_middle(where, getattr(error, "body", None), str(error), partial)
    if isinstance(error, httpx2.HTTPError | json.JSONDecodeError | UnicodeDecodeError):
        return broken(where, "cannot be read", partial)
    return None


def answered(create: Any, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Call a library's function, and give what it answers as plain values: the events of a stream, or one whole."""
    if not request.get("stream"):
        yield _plain(create(**request))
        return
    with create(**request) as stream:
        kind = stream.response.headers.get("content-type", "")
        if kind.startswith("application/json"):  # a server that cannot stream
            stream.response.read()
            yield _as_object(stream.response.json())
            return
        if kind and not kind.startswith("text/event-stream"):
            raise Unfinished(f"is {kind.partition(';')[0]} and not what was asked for")
        coming = iter(stream)
        while True:
            try:
                event = _plain(next(coming))
            except StopIteration:
                return
            except (ValueError, TypeError, LookupError, AttributeError) as exc:
                # the libraries take a server's word for it: events of another shape make them stumble in many ways
                raise Unfinished("cannot be read") from exc
            yield event


def _plain(event: Any) -> Mapping[str, Any]:
    """An event of a library as the JSON it came from."""
    if not hasattr(event, "to_dict"):
        raise Unfinished("is not of the expected shape")
    return _as_object(event.to_dict(mode="json", exclude_unset=True, warnings=False))


def _as_object(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise Unfinished("is not of the expected shape")
    return value


def count_of(values: object, *names: str) -> int:
    """A number of tokens in a nested mapping; 0 if it is missing, or no number."""
    for name in names:
        values = values.get(name) if isinstance(values, Mapping) else None
    return max(0, int(values)) if isinstance(values, int | float) and not isinstance(values, bool) else 0
