"""OpenTelemetry: spans and metrics of operations, without any text; nothing of it is loaded while it is off."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from tests.homes import herma, of_files

from herma import Add, Herma
from herma.errors import HermaWarning, ModelError
from herma.models import telemetry
from herma.testing import Answer, ScriptedModel

pytestmark = of_files
SECRET = "The vault code is orchid-seven."


class Reported:
    """What was reported: spans by name, and metrics by name and attributes."""

    def __init__(self) -> None:
        self._spans, self._reader = InMemorySpanExporter(), InMemoryMetricReader()
        tracers = TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        telemetry.enable(tracers, MeterProvider([self._reader]))

    @property
    def spans(self) -> list[tuple[str, dict[str, Any]]]:
        return [(one.name, dict(one.attributes or {})) for one in self._spans.get_finished_spans()]

    def text(self) -> str:
        return "".join(str(one.to_json()) for one in self._spans.get_finished_spans()) + self.metrics()

    def metrics(self) -> str:
        data = self._reader.get_metrics_data()
        return str(data.to_json()) if data else ""


@pytest.fixture
def reported() -> Iterator[Reported]:
    yield Reported()
    telemetry.disable()


def test_operations_are_reported_by_the_conventions(home: Path, reported: Reported) -> None:
    with (
        ScriptedModel(["Yes.", Answer.failing(401, "no")]) as server,
        Herma.open(home, flags={"model.url": server.url, "model.name": "m"}) as h,
    ):
        h.memory.apply("memory", Add(SECRET))
        h.memory.apply("memory", [Add("Tests run with xdist."), Add("Deploys go out on Tuesdays.")])
        h.memory.remove("memory", "xdist")
        h.search("vault")
        with h.session(source="test") as s:
            s.before_model("hello")
            s.call_tool("session_search", {"query": "vault"})
            s.after_model("Done.")
        model = h.model()
        assert model is not None
        model.reply([{"role": "user", "content": SECRET}])
        with pytest.raises(ModelError):
            model.reply([{"role": "user", "content": SECRET}])
    spans = reported.spans
    assert [name for name, _ in spans] == [
        "create_memory", "create_memory", "delete_memory", "search_memory", "search_memory",
        "search_memory", "execute_tool session_search", "chat m", "chat m",
    ]  # fmt: skip
    written = {"gen_ai.operation.name": "create_memory", "gen_ai.memory.store.id": "memory"}
    assert spans[1][1] == {**written, "gen_ai.memory.record.count": 2, "herma.outcome": "Applied"}
    assert spans[3][1]["gen_ai.memory.record.count"] == 0
    assert spans[4][1]["gen_ai.conversation.id"]
    asked, failed = spans[-2][1], spans[-1][1]
    assert (asked["gen_ai.request.model"], asked["server.port"]) == ("m", int(server.url.split(":")[2].split("/")[0]))
    assert asked["gen_ai.usage.input_tokens"] > 0
    assert failed["error.type"] == "ModelRefused"
    metrics = {one["name"]: one for one in _metrics(reported.metrics())}
    points = metrics["gen_ai.client.operation.duration"]["data"]["data_points"]
    assert sum(one["count"] for one in points) == len(spans)
    tokens = metrics["gen_ai.client.token.usage"]["data"]["data_points"]
    assert {one["attributes"]["gen_ai.token.type"] for one in tokens} == {"input", "output"}
    for word in ("orchid", "xdist", "hello", "vault"):
        assert word not in reported.text()


def _metrics(text: str) -> list[Any]:
    return [
        one
        for part in json.loads(text)["resource_metrics"]
        for scope in part["scope_metrics"]
        for one in scope["metrics"]
    ]


def test_nothing_is_loaded_while_it_is_off(home: Path) -> None:
    code = f"""
import sys, herma
with herma.Herma.open({str(home)!r}) as h:
    h.remember("I live in Ghent."); h.search("Ghent")
assert not [name for name in sys.modules if name.startswith("opentelemetry")]
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_command_line_reports_to_the_collector_that_the_variables_name(home: Path) -> None:
    paths: list[str] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Collector)
    threading.Thread(target=server.serve_forever, args=(0.05,)).start()
    env = {"OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{server.server_address[1]}"}
    words = [sys.executable, "-m", "herma", "remember", "I live in Ghent.", "--home", str(home)]
    try:
        subprocess.run(words, check=True, env={**os.environ, **env}, capture_output=True)
        assert paths == []
        assert herma(home, "config", "set", "telemetry.otel", "true").code == 0
        subprocess.run([*words[:4], "I live in Turin.", *words[5:]], check=True, env={**os.environ, **env})
        assert {"/v1/traces", "/v1/metrics"} <= set(paths)
    finally:
        server.shutdown()
        server.server_close()


def test_a_missing_library_is_told(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.warns(HermaWarning, match=r"pip install .*\[otel\]'"):
        telemetry.enable()
