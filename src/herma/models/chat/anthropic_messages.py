"""Anthropic's models, and servers that speak its protocol, through its own library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from herma.models.chat import anthropic_wire
from herma.models.chat.dialect import Collector, Wanted, answered, fault_of
from herma.models.chat.endpoint import Endpoint
from herma.models.chat.faults import Fault
from herma.models.chat.line import Line
from herma.models.chat.remote import RemoteModel, Retry


def anthropic_model(where: Endpoint, *, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
    """A model that is asked with Anthropic's messages."""
    return RemoteModel(where, AnthropicDialect(), on_retry=on_retry)


class AnthropicDialect:
    """Messages."""

    extra = "anthropic"

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        return anthropic_wire.request(where, wanted, unwanted)

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import anthropic

        library = anthropic.Anthropic(
            api_key=where.key or "none",  # given, so that no other one is looked for
            base_url=where.url,
            max_retries=0,
            timeout=line.client.timeout,
            http_client=line.client,
        )
        yield from answered(library.messages.create, _as_the_library_has_it(request))

    def collector(self) -> Collector:
        return anthropic_wire.Pieces()

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        import anthropic

        return fault_of(anthropic, where, error, partial, began=began, now=now)


def _as_the_library_has_it(request: Mapping[str, Any]) -> dict[str, Any]:
    """Anthropic's own models choose their temperature, so its library has no word for it; others still take one."""
    made = dict(request)
    if "temperature" in made:
        made["extra_body"] = {"temperature": made.pop("temperature")}
    return made
