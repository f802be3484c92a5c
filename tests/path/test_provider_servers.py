"""Providers with the real software that fits on one machine: Mem0's library, the servers of Hindsight and OpenViking.

    pip install 'mem0ai>=2.2,<3'                                    # 120 MB; into Herma's own environment
    python -m venv hs && hs/bin/pip install 'hindsight-api-slim[embedded-db]'        # 1 GB; not as root
    python -m venv ov && ov/bin/pip install openviking==0.5.2                        # 650 MB
    TEST_HINDSIGHT=hs/bin/hindsight-api TEST_OPENVIKING=ov/bin/openviking-server \
        pytest -m long tests/path/test_provider_servers.py

Hindsight's own PostgreSQL does not run as root. As root, start it as another user and name it: `setpriv --reuid nobody
--regid nogroup --clear-groups env HOME=/tmp/pg …/site-packages/pg0/bin/pg0 start --name t --port 54329`, and
HINDSIGHT_API_DATABASE_URL=postgresql://postgres:postgres@127.0.0.1:54329/postgres.

Their models are Herma's scripted one. A test whose software is not there is skipped, and says so.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.homes import of_files, opened, talk

from herma.providers.discovery import find, load
from herma.testing import ScriptedModel

pytestmark = [pytest.mark.long, pytest.mark.timeout(400), pytest.mark.filterwarnings("ignore"), of_files]
SAID = "The grey heron nests by the old weir."
ASKED = "Where does the grey heron nest?"


@pytest.fixture(autouse=True)
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def model() -> Iterator[ScriptedModel]:
    """Embeds words, and answers every request for extraction with nothing."""
    with ScriptedModel(lambda request: '{"memory": [], "facts": []}') as server:
        yield server


def until(found: Any, seconds: float) -> Any:
    """Call until something true is returned."""
    end = time.monotonic() + seconds
    while True:
        try:
            value = found()
        except (OSError, urllib.error.URLError):
            value = None
        if value or time.monotonic() > end:
            return value
        time.sleep(0.5)


@contextmanager
def server(command: Sequence[str], health: str, log: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Run a server until the end of the block, once its health address answers."""
    environ = {**os.environ, **more}
    with log.open("wb") as output:
        running = subprocess.Popen(command, stdout=output, stderr=output, env=environ)
    try:
        up = until(lambda: urllib.request.urlopen(health, timeout=2).status == 200, 150)
        assert up, log.read_text(errors="replace")[-3_000:]
        yield
    finally:
        running.terminate()
        try:
            running.wait(20)
        except subprocess.TimeoutExpired:
            running.kill()


def port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def program(variable: str) -> str:
    path = os.environ.get(variable, "")
    if not path:
        pytest.skip(f"{variable} is not set: it names the server's program")
    return str(Path(path).absolute())


def round_trip(home: Path, name: str, settings: Mapping[str, Any], wait: float = 30) -> Any:
    """Store a turn in one session of Herma, and recall it in the next. → the provider, in a session."""
    made: Any = load(find(home, name), home)
    made.save_config(settings, str(home))
    (home / "config.yaml").write_text(f"memory:\n  provider: {name}\nproviders:\n  timeout: 60\n")
    with opened(home) as h:
        with h.session() as session:
            assert not session.warnings
            talk(session, SAID, reply="Noted.")
            assert h.providers.flush(120)

        def recalled() -> bool:
            with h.session() as session:
                request = session.before_model(ASKED)
                session.after_model("By the weir.")
            return "[from" in str(request[-1]["content"]) and "nests by the old weir" in str(request[-1]["content"])

        assert until(recalled, wait), h.providers.status(ask=False)
        assert h.providers.status(ask=False).health.failures == 0
    provider: Any = load(find(home, name), home)
    provider.initialize("s-9", hermes_home=str(home), platform="cli")
    return provider


def call(provider: Any, tool: str, **arguments: Any) -> Any:
    return json.loads(provider.handle_tool_call(tool, arguments))


def test_mem0_in_this_process(home: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    if not find_spec("mem0"):  # it is not imported here: the provider turns its telemetry off first
        pytest.skip("mem0ai is not installed")
    monkeypatch.setenv("MEM0_DIR", str(home / "mem0"))
    openai = {"api_key": "k", "openai_base_url": model.url}
    size = len(model.embed("x"))
    oss = {
        "llm": {"provider": "openai", "config": {**openai, "model": "scripted"}},
        "embedder": {"provider": "openai", "config": {**openai, "model": "scripted", "embedding_dims": size}},
        "vector_store": {
            "provider": "qdrant",
            "config": {"path": str(home / "qdrant"), "embedding_model_dims": size, "on_disk": True},
        },
        "history_db_path": str(home / "history.db"),
    }
    provider: Any = load(find(home, "mem0"), home)
    provider.save_config({"mode": "oss", "oss": oss}, str(home))
    assert provider.is_available(), provider.unavailable_reason()
    provider.initialize("s-1", hermes_home=str(home), platform="cli")
    provider.sync_turn("Hello.", "Hello.")  # the scripted model extracts nothing
    stored = call(provider, "mem0_add", content=SAID)["result"]["results"][0]["id"]
    assert "nests by the old weir" in provider.prefetch(ASKED)
    assert call(provider, "mem0_search", query=ASKED)["results"][0]["id"] == stored
    assert call(provider, "mem0_update", memory_id=stored, text="The heron left.") == {"updated": stored}
    assert call(provider, "mem0_search", query="heron")["results"][0]["memory"] == "The heron left."
    assert call(provider, "mem0_delete", memory_id=stored) == {"deleted": stored}
    assert "There is no memory" in call(provider, "mem0_delete", memory_id=stored)["error"]
    assert call(provider, "mem0_search", query="heron")["count"] == 0
    provider.shutdown()


def test_hindsight_server(home: Path, model: ScriptedModel, tmp_path: Path) -> None:
    command = program("TEST_HINDSIGHT")
    at = port()
    more = {
        "HINDSIGHT_API_LLM_PROVIDER": "none",
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER": "openai",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY": "k",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL": "scripted",
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL": model.url,
        "HINDSIGHT_API_RERANKER_PROVIDER": "rrf",
        "HINDSIGHT_API_HOST": "127.0.0.1",
        "HINDSIGHT_API_PORT": str(at),
    }
    url = f"http://127.0.0.1:{at}"
    with server([command], f"{url}/health", tmp_path / "log", more):
        settings = {"mode": "local_external", "api_url": url, "recall_types": [], "retain_async": False}
        provider = round_trip(home, "hindsight", settings)
        assert call(provider, "hindsight_retain", content="The boat is green.", tags=["boats"])["stored"]
        assert "The boat is green." in str(call(provider, "hindsight_recall", query="green boat")["results"])
        provider.shutdown()


def test_hindsight_that_herma_starts(home: Path, model: ScriptedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(Path(program("TEST_HINDSIGHT")).parent)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    (home / ".env").write_text(
        "HINDSIGHT_API_EMBEDDINGS_PROVIDER=openai\nHINDSIGHT_API_EMBEDDINGS_OPENAI_API_KEY=k\n"
        "HINDSIGHT_API_EMBEDDINGS_OPENAI_MODEL=scripted\nHINDSIGHT_API_RERANKER_PROVIDER=rrf\n"
        f"HINDSIGHT_API_EMBEDDINGS_OPENAI_BASE_URL={model.url}\n"
    )
    (home / ".env").chmod(0o600)
    url = f"http://127.0.0.1:{port()}"
    settings = {"mode": "local_embedded", "api_url": url, "recall_types": [], "retain_async": False}
    provider = round_trip(home, "hindsight", {**settings, "idle_timeout": 5.0, "port_health_grace_timeout": 120.0})
    provider.shutdown()

    def ended() -> bool:
        try:
            return bool(urllib.request.urlopen(f"{url}/health", timeout=2).status != 200)
        except OSError:
            return True

    assert until(ended, 60), "nobody uses it"


def test_openviking_server(home: Path, model: ScriptedModel, tmp_path: Path) -> None:
    command = program("TEST_OPENVIKING")
    at = port()
    openai = {"provider": "openai", "model": "scripted", "api_key": "k", "api_base": model.url}
    settings = {
        "storage": {"workspace": str(tmp_path / "viking")},
        "embedding": {"dense": {**openai, "dimension": len(model.embed("x")), "input": "text"}},
        "vlm": openai,
    }
    file = tmp_path / "ov.conf"
    file.write_text(json.dumps(settings))
    url = f"http://127.0.0.1:{at}"
    words = [command, "--config", str(file), "--host", "127.0.0.1", "--port", str(at)]
    with server(words, f"{url}/health", tmp_path / "log", {}):
        made: Any = load(find(home, "openviking"), home)
        made.save_config({"endpoint": url, "score_threshold": 0.0}, str(home))
        made.initialize("s-1", hermes_home=str(home))
        uri = call(made, "viking_remember", content=SAID, category="preference")["stored"]
        made.sync_turn(SAID, "Noted.", session_id="s-1")
        made.on_session_end([])
        shown = until(lambda: "nests by the old weir" in made.prefetch(ASKED), 60)
        assert shown, (tmp_path / "log").read_text(errors="replace")[-2_000:]
        found = call(made, "viking_search", query=ASKED, limit=20)["memories"]
        assert uri in [one["uri"] for one in found]
        assert "Contains memory types" not in made.prefetch(ASKED), "summaries of folders are not recalled"
        assert call(made, "viking_read", uri=uri)["contents"] == [{"uri": uri, "content": SAID}]
        assert call(made, "viking_browse", action="list", path="viking://user/default/memories")["result"]
        assert "deleted" in call(made, "viking_forget", uri=uri)
        assert "Nothing was deleted" in call(made, "viking_forget", uri="viking://user/default")["error"]
        made.shutdown()
