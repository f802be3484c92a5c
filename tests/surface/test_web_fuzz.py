"""The API, fuzzed from its own OpenAPI description: whatever is sent, the server answers, and as it says it will."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from tests.homes import conversation, filled, skill_text
from tests.surface.test_web import signed_in
from tests.surface.web import serving

from herma import Add, Author, Herma, Origin, Who

CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"
EXAMPLES = "4"
"""Made-up requests for each operation, besides those at the bounds of each parameter."""


@pytest.mark.slow
@pytest.mark.skipif(find_spec("schemathesis") is None and not os.environ.get("CI"), reason="needs schemathesis (pip)")
def test_no_request_breaks_the_server(home: Path, tmp_path: Path) -> None:
    filled(home)
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("Deploys happen on Friday."), author=Author(Who.TOOL, Origin.WEB))
        h.skills.create("bake", skill_text("bake"))
        session = conversation(h, "Where is the rose bed?", "By the wall.", ended=True)
    known = {"session": session, "id": "m1", "number": "1", "name": "bake", "run": "20260101-000000"}
    config = "".join(f'"path.{name}" = "{value}"\n' for name, value in known.items())
    (tmp_path / "schemathesis.toml").write_text(f"[parameters]\n{config}", "utf-8")
    (tmp_path / "user").mkdir()
    with serving(home, env={"HOME": str(tmp_path / "user")}) as served:
        said = [f"--header={name.title()}: {value}" for name, value in signed_in(served).items()]
        command = [sys.executable, "-m", "schemathesis.cli", "run", "--no-color", "--generation-deterministic", *said]
        command += ["--checks", CHECKS, "--max-examples", EXAMPLES, "--phases", "coverage,fuzzing"]
        command += ["--exclude-path", "/api/v1/events"]  # it never ends
        done = subprocess.run(
            [*command, f"http://127.0.0.1:{served.port}/api/v1/openapi.json"],
            capture_output=True, encoding="utf-8", cwd=tmp_path, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
        answers = dict(re.findall(r'requests_total\{status="(\d+)"\} (\d+)', served.ask("/metrics").text))
        assert int(answers["200"]) > 100, "the operations themselves ran"
        assert not [status for status in answers if status.startswith("5")]
    assert "Traceback" not in "\n".join(served.errors)
