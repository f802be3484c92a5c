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
from tests.surface.web import Served, serving

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


def test_a_port_that_is_taken_is_one_sentence(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = typed(home, "--port", port)
    assert done.exit_code == 1
    assert done.stderr.splitlines()[0] == f"herma: Port {port} is taken: another program listens there."
    assert "--port 0" in done.stderr
    assert list(home.iterdir()) == [], "nothing was made"
    assert json.loads(typed(home, "--port", "65536", "--json").stdout)["ok"] is False


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "", "nosuch.invalid", "\udcff"])
def test_an_address_that_is_not_ours_is_one_sentence(home: Path, host: str) -> None:
    done = typed(home, "--host", host, "--port", "0")
    assert done.exit_code == 2
    assert done.stderr.startswith("herma: ")
    assert "Traceback" not in done.stderr


def test_a_home_that_is_a_file_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    done = typed(tmp_path / "file", "--port", "0")
    assert done.exit_code == 2
    assert "is a file" in done.stderr


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_cleanly_even_with_a_tab_that_keeps_its_connection(home: Path, how: signal.Signals) -> None:
    with serving(home) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request("GET", "/api/v1/health", headers={"Authorization": f"Bearer {served.token}"})
        assert connection.getresponse().read()
        assert served.end(how) == 0
        connection.close()
    assert served.errors == []


def test_it_ends_while_it_answers(home: Path) -> None:
    with serving(home) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        connection.request("GET", "/", headers={"Authorization": f"Bearer {served.token}"})
        assert served.end(signal.SIGINT) == 0
        connection.close()
    assert "Traceback" not in "\n".join(served.errors)


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


def test_nothing_secret_is_logged(home: Path) -> None:
    with serving(home, "--debug") as served:
        served.ask(served.link.partition(str(served.port))[2], key=False)
        served.ask("/enter?token=wrong-but-nearly", key=False)
        served.ask("/nosuch?token=" + served.token)
        with socket.create_connection(("127.0.0.1", served.port)) as raw:
            raw.sendall(b"nonsense " + served.token.encode() + b"\r\n\r\n")
            raw.recv(1000)
    said = "\n".join(served.errors)
    assert served.token not in said
    assert "wrong-but-nearly" not in said


def test_other_machines_only_on_request_and_with_a_warning(home: Path) -> None:
    with serving(home, "--host", "0.0.0.0", "--allow-host", "Workstation.local") as served:
        assert served.link.startswith("http://127.0.0.1:")
        assert served.ask("/", host=f"192.0.2.7:{served.port}").status == 200
        assert served.ask("/", host="workstation.local").status == 200
        assert served.ask("/", host="rebound.example").status == 421
        assert served.ask("/", host=f"192.0.2.7:{served.port}", key=False).status == 401
    assert any("Other machines can reach this server" in line for line in served.errors)
    with serving(home) as alone:
        assert alone.ask("/", host=f"192.0.2.7:{alone.port}").status == 421
    assert alone.errors == []


def opened(home: Path, tmp_path: Path) -> tuple[Served, str]:
    """What a browser was started with."""
    noted = tmp_path / "address"
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > {noted}.new && mv {noted}.new {noted}\n')
    browser.chmod(0o755)
    with serving(home, "--open", env={"BROWSER": f"{browser} %s"}) as served:
        until = time.monotonic() + 60
        while not noted.exists() and time.monotonic() < until:
            time.sleep(0.05)
        address = noted.read_text().strip()
        path = address.partition(str(served.port))[2]
        first, second = served.ask(path, key=False), served.ask(path, key=False)
        assert (first.status, bool(first.cookie)) == (200, True)
        assert served.ask("/", key=False, cookie=first.cookie).status == 200
        assert (second.status, second.cookie) == (401, ""), "good once"
    return served, address


def test_a_browser_is_started_with_a_code_that_is_good_once(home: Path, tmp_path: Path) -> None:
    served, address = opened(home, tmp_path)
    assert served.token not in address, "other users of the machine can read what a program is started with"


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
