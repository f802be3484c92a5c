"""The programs of the pages on clients and frameworks run as they are, and keep what was said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.other_apis import other_apis

from herma import Herma
from herma.testing import Answer, ScriptedModel

PAGES = [
    Path(__file__).parents[2] / "docs" / "how-to" / name for name in ("wrap-a-client.md", "use-with-frameworks.md")
]
PROGRAMS = [text for page in PAGES for text in re.findall(r"```py\n(.*?)```", page.read_text("utf-8"), re.DOTALL)]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda text: re.findall(r"herma\.\w[\w.]+|from herma", text)[0])
def test_a_program_of_the_page_runs(tmp_path: Path, program: str) -> None:
    home = tmp_path / "home"
    with Herma.open(home) as h:
        h.memory.add("user", "Prefers green tea.")
        session = h.transcripts.start("cli")
        h.transcripts.append(session, [{"role": "user", "content": "The staging database has the port 5433."}])
    look = Answer.calling("memory", {"command": "view", "path": "/memories/USER.md"})
    with (
        ScriptedModel([*([look] if "HermaMemoryTool" in program else []), "It is noted."]) as model,
        other_apis() as (url, asked),
    ):
        env = {
            "HERMA_HOME": str(home),
            "OPENAI_API_KEY": "none",
            "OPENAI_BASE_URL": f"{url}/v1" if "from agents" in program else model.url,
            "OPENAI_AGENTS_DISABLE_TRACING": "1",
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": model.root,
            "GOOGLE_API_KEY": "none",
            "GOOGLE_GEMINI_BASE_URL": url,
        }
        words = [sys.executable, "-W", "ignore", "-c", program]
        told = {**os.environ, **env}
        done = subprocess.run(words, env=told, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        sent = f"{asked} {[one.body for one in model.requests]} {done.stdout}"
    assert any(text in sent for text in ("green tea", "5433", "Hello")), sent
    only_reads = any(name in program for name in ("HermaMemoryTool", "HermaMemoryBlock"))
    with Herma.open(home) as h:
        assert len(h.transcripts.list()) == (1 if only_reads else 2)
