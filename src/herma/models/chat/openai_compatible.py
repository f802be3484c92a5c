"""Servers that speak OpenAI's protocol, through OpenAI's own library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from herma.models.chat import openai_wire
from herma.models.chat.dialect import Collector, Wanted, answered, fault_of
from herma.models.chat.endpoint import Endpoint
from herma.models.chat.faults import Fault
from herma.models.chat.line import Line
from herma.models.chat.remote import RemoteModel, Retry


def openai_model(where: Endpoint, *, on_retry: Callable[[Retry], None] | None = None) -> RemoteModel:
    """A model of an OpenAI-compatible server."""
    return RemoteModel(where, OpenAIDialect(), on_retry=on_retry)


class OpenAIDialect:
    """Chat completions."""

    extra = "openai"

    def request(self, where: Endpoint, wanted: Wanted, unwanted: frozenset[str]) -> dict[str, Any]:
        return openai_wire.request(where, wanted, unwanted)

    def send(self, where: Endpoint, line: Line, request: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        import openai

        library = openai.OpenAI(
            api_key=where.key or "none",  # the library wants one; servers without keys do not look at it
            base_url=where.url,
            max_retries=0,
            timeout=line.client.timeout,
            http_client=line.client,
        )
        yield from answered(library.chat.completions.create, request)

    def collector(self) -> Collector:
        return openai_wire.Pieces()

    def fault(self, where: Endpoint, error: BaseException, partial: str, *, began: bool, now: float) -> Fault | None:
        import openai

        return fault_of(openai, where, error, partial, began=began, now=now)
