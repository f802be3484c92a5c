"""`herma serve` as a command: how it begins, how it ends, and what it says when it cannot."""

from __future__ import annotations

import http.client
import importlib.util
import json
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw
import pytest
from click.testing import CliRunner, Result
from tests.surface.web import serving

from herma import Herma
from herma.cli.main import cli


def typed(home: Path, *words: str) -> Result:
    return CliRunner().invoke(cli, ["serve", "--home", str(home), *words])


def test_a_missing_library_is_one_sentence(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else find(name))
    done = typed(home)
    assert done.exit_code == 2
    sentence, hint = done.stderr.splitlines()
    assert sentence == "herma: The dashboard needs the package uvicorn, which is not installed."
    assert "install" in hint
    assert "[web]" in hint
    assert list(home.iterdir()) == []


def test_a_port_an_address_or_a_home_that_cannot_be_is_one_sentence(home: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = typed(home, "--port", port)
    assert (done.exit_code, "--port 0" in done.stderr) == (1, True)
    assert done.stderr.splitlines()[0] == f"herma: Port {port} is taken: another program listens there."
    assert json.loads(typed(home, "--port", "65536", "--json").stdout)["ok"] is False
    (tmp_path / "file").write_text("not a folder")
    hosts = ("192.0.2.1", "no such host", "", "nosuch.invalid", "\udcff")
    tried = [*((home, "--host", host, "--port", "0") for host in hosts), (tmp_path / "file", "--port", "0")]
    for place, *words in tried:
        done = typed(Path(place), *map(str, words))
        assert (done.exit_code, done.stderr[:7], "Traceback" in done.stderr) == (2, "herma: ", False), words
    assert list(home.iterdir()) == [], "nothing was made"


@pytest.mark.parametrize(("how", "answered"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_it_ends_cleanly_while_a_tab_keeps_its_connection_or_waits(
    home: Path, how: signal.Signals, answered: bool
) -> None:
    with serving(home) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {served.token}"})
        if answered:
            assert connection.getresponse().read()
        assert served.end(how) == 0
        connection.close()
    assert "Traceback" not in "\n".join(served.errors)
    assert not answered or served.errors == []


def test_its_end_does_not_wait_for_a_store_that_is_busy(home: Path) -> None:
    (home / "config.yaml").write_text("memory:\n  lock_timeout: 600\n", "utf-8")
    with Herma.open(home) as h:
        h.transcripts.start(source="test")
    holder = apsw.Connection(str(home / "herma.db"))
    connection: http.client.HTTPConnection | None = None
    try:
        with serving(home) as served:
            holder.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").fetchall()
            connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
            connection.request("GET", "/api/v1/cost", headers={"Authorization": f"Bearer {served.token}"})
            assert served.ask("/enter", key=False).status == 401, "others are answered meanwhile"
            assert served.end() == 0
        told = connection.getresponse()
        assert (told.status, json.loads(told.read())["error"]["code"]) == (503, "stopping")
        assert served.errors == []
    finally:
        holder.close()
        if connection is not None:
            connection.close()


def test_other_machines_only_on_request_and_with_a_warning(home: Path) -> None:
    with serving(home, "--host", "0.0.0.0", "--allow-host", "Workstation.local", "--debug") as served:
        assert served.link.startswith("http://127.0.0.1:")
        assert served.ask("/", host=f"192.0.2.7:{served.port}").status == 200
        assert served.ask("/", host="workstation.local").status == 200
        assert served.ask("/", host="rebound.example").status == 421
        assert served.ask("/", host=f"192.0.2.7:{served.port}", key=False).status == 401
        served.ask(served.link.partition(str(served.port))[2], key=False)
        served.ask("/enter?token=wrong-but-nearly", key=False)
        served.ask("/nosuch?token=" + served.token)
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            raw.sendall(b"nonsense " + served.token.encode() + b"\r\n\r\n")
            raw.recv(1000)
    said = "\n".join(served.errors)
    assert "Other machines can reach this server" in said
    assert served.token not in said, "nothing secret is logged"
    assert "wrong-but-nearly" not in said


def test_a_browser_is_started_with_a_code_that_is_good_once(home: Path, tmp_path: Path) -> None:
    noted, browser = tmp_path / "address", tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {noted}.new && mv {noted}.new {noted}\n')
    browser.chmod(0o755)
    with serving(home, "--open", env={"BROWSER": f"{browser} %s"}) as served:
        until = time.monotonic() + 60
        while not noted.exists() and time.monotonic() < until:
            time.sleep(0.05)
        address = noted.read_text().strip()
        assert served.token not in address, "other users of the machine can read what a program is started with"
        path = address.partition(str(served.port))[2]
        first, second = served.ask(path, key=False), served.ask(path, key=False)
        assert (first.status, bool(first.cookie)) == (200, True)
        assert served.ask("/", key=False, cookie=first.cookie).status == 200
        assert (second.status, second.cookie) == (401, ""), "good once"
        assert served.ask("/", host=f"192.0.2.7:{served.port}").status == 421, "this machine only"


def test_people_get_a_link(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from herma.web import app as server

    def run(*_: Any, ready: Callable[[], None], **__: Any) -> None:
        ready()

    monkeypatch.setattr(server, "run", run)
    done = typed(home, "--port", "0", "--host", "localhost")
    assert done.exit_code == 0
    token = (home / "web.token").read_text().strip()
    assert f"/enter?token={token}" in done.stdout
    assert "http://localhost:" in done.stdout
    assert "Ctrl-C" in done.stdout
    assert done.stdout.splitlines()[-1] == "Ended."
