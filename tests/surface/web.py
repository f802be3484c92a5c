"""A real `herma serve` in a process of its own, and a client that speaks plain HTTP to it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_PATIENCE = 60.0


@dataclass(frozen=True)
class Answer:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def cookie(self) -> str:
        """The cookie that it sets, as a browser sends it back."""
        return self.headers.get("set-cookie", "").partition(";")[0]


@dataclass
class Served:
    """A server that runs, and how to ask it."""

    process: subprocess.Popen[str]
    link: str
    token: str
    port: int
    errors: list[str] = field(default_factory=list)

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: str | None = None,
        key: bool = True,
        host: str | None = None,
        **headers: str,
    ) -> Answer:
        """One request; with the token unless told otherwise. A header is `sec_fetch_site=`."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        if key:
            sent["Authorization"] = f"Bearer {self.token}"
        if host is not None:
            sent["Host"] = host
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE)
        try:
            connection.request(method, path, body, sent)
            got = connection.getresponse()
            return Answer(got.status, {k.lower(): v for k, v in got.getheaders()}, got.read().decode("utf-8"))
        finally:
            connection.close()

    def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """→ its exit code. What it said on stderr is in `errors` then."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        _, err = self.process.communicate(timeout=_PATIENCE)
        self.errors += err.splitlines()
        return self.process.returncode


@contextmanager
def serving(home: Path, *words: str, env: Mapping[str, str] | None = None) -> Iterator[Served]:
    """`herma serve --port 0` on a home; ended afterwards."""
    command = [sys.executable, "-m", "herma.cli.main", "serve", "--port", "0", "--json", "--home", str(home), *words]
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        env={**os.environ, "PYTHONUNBUFFERED": "1", **(env or {})},
    )
    assert process.stdout is not None
    lines: list[str] = []
    while line := process.stdout.readline():
        lines.append(line)
        if line.rstrip() == "}":
            break
    if not lines:
        _, err = process.communicate(timeout=_PATIENCE)
        raise AssertionError(f"It did not start: {err}")
    said = json.loads("".join(lines))
    served = Served(process, said["link"], said["token"], said["port"])
    try:
        yield served
    finally:
        served.end()
