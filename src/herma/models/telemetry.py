"""Report operations to OpenTelemetry, by its conventions for generative AI, if the setting `telemetry.otel` is on.

Spans and durations of memory writes, searches, recall, tools, compression, imports and calls of models; tokens of
models. No text is reported: neither what was written or asked, nor the words of an error. Nothing of OpenTelemetry is
imported before `enable`. Spans and metrics go to the providers of the program, or to the collector that the standard
variables (`OTEL_EXPORTER_OTLP_ENDPOINT`, `OTEL_SERVICE_NAME`) name; without either, nowhere.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any, ParamSpec, TypeAlias, TypeVar

from herma.errors import HermaWarning, install_command

P = ParamSpec("P")
R = TypeVar("R")
Attributes: TypeAlias = dict[str, Any]
OPERATION, MODEL, PROVIDER = "gen_ai.operation.name", "gen_ai.request.model", "gen_ai.provider.name"
STORE, COUNT, CONVERSATION = "gen_ai.memory.store.id", "gen_ai.memory.record.count", "gen_ai.conversation.id"
TOOL, OUTCOME = "gen_ai.tool.name", "herma.outcome"
_MEASURED = (OPERATION, MODEL, PROVIDER, STORE, TOOL, OUTCOME, "error.type", "server.address", "server.port")
"""Attributes of few values, by which durations are counted."""
_TOKENS = {"input": "gen_ai.usage.input_tokens", "output": "gen_ai.usage.output_tokens"}
_reporter: _Reporter | None = None


def traced(
    operation: str, about: Callable[..., Attributes] | None = None, result: Callable[[Any], Attributes] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Report the calls of a function. `about` returns attributes of its arguments, `result` of what it returns."""

    def made(call: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(call)
        def run(*args: P.args, **options: P.kwargs) -> R:
            if _reporter is None:
                return call(*args, **options)
            attributes = {OPERATION: operation, **(about(*args, **options) if about else {})}
            return _reporter.report(attributes, functools.partial(call, *args, **options), result)

        return run

    return made


def enable(tracers: Any = None, meters: Any = None) -> None:
    """Report from now on, in this process: to these providers, or to those of the program or the variables."""
    global _reporter
    if _reporter is not None and tracers is None and meters is None:
        return
    if importlib.util.find_spec("opentelemetry") is None:
        hint = f"Type: {install_command('otel')}"
        warnings.warn(f"telemetry.otel is on, but OpenTelemetry is not installed. {hint}", HermaWarning, stacklevel=2)
        return
    if tracers is None and meters is None:
        _export()
    _reporter = _Reporter(tracers, meters)


def disable() -> None:
    """Report nothing from now on."""
    global _reporter
    _reporter = None


def _export() -> None:
    """Set up the export that the standard variables ask for, unless the program has set up its own."""
    from opentelemetry import metrics, trace

    wanted = any(os.environ.get(f"OTEL_EXPORTER_OTLP_{one}ENDPOINT") for one in ("", "TRACES_", "METRICS_"))
    off = os.environ.get("OTEL_SDK_DISABLED", "").lower() == "true"
    if not wanted or off or importlib.util.find_spec("opentelemetry.sdk") is None:
        return
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    resource = Resource.create({} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": "herma"})
    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        tracers = TracerProvider(resource=resource)
        tracers.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        trace.set_tracer_provider(tracers)
        readers = [PeriodicExportingMetricReader(OTLPMetricExporter())]
        metrics.set_meter_provider(MeterProvider(readers, resource=resource))


class _Reporter:
    def __init__(self, tracers: Any, meters: Any) -> None:
        from opentelemetry import metrics, trace

        self._trace = trace
        self._tracer = trace.get_tracer("herma", tracer_provider=tracers)
        meter = metrics.get_meter("herma", meter_provider=meters)
        self._duration = meter.create_histogram("gen_ai.client.operation.duration", "s", "Duration of operations.")
        self._tokens = meter.create_histogram("gen_ai.client.token.usage", "{token}", "Tokens of calls of models.")

    def report(
        self, attributes: Attributes, call: Callable[[], R], result: Callable[[Any], Attributes] | None = None
    ) -> R:
        name = " ".join(filter(None, (attributes[OPERATION], attributes.get(MODEL) or attributes.get(TOOL))))
        is_remote = attributes[OPERATION] in ("chat", "embeddings")
        kind = self._trace.SpanKind.CLIENT if is_remote else self._trace.SpanKind.INTERNAL
        with self._tracer.start_as_current_span(
            name, kind=kind, attributes=attributes, record_exception=False, set_status_on_exception=False
        ) as span:
            begun = time.perf_counter()
            try:
                value = call()
                attributes |= result(value) if result else {}
            except BaseException as error:
                attributes["error.type"] = type(error).__qualname__
                span.set_status(self._trace.StatusCode.ERROR)
                raise
            finally:
                span.set_attributes(attributes)
                self._measure(attributes, time.perf_counter() - begun)
        return value

    def _measure(self, attributes: Mapping[str, Any], seconds: float) -> None:
        measured = {name: attributes[name] for name in _MEASURED if name in attributes}
        self._duration.record(seconds, measured)
        for kind, name in _TOKENS.items():
            if name in attributes:
                self._tokens.record(attributes[name], {**measured, "gen_ai.token.type": kind})
