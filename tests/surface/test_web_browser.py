"""The dashboard in a real browser: the script runs under the policy, text of others does not, light, dark and phone."""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.surface.web import Served, serving

from herma import Add, Herma

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--hide-scrollbars"),
    "--enable-logging=stderr",
)
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        BROWSER is None and not os.environ.get("CI"), reason="there is no chromium: apt-get install chromium"
    ),
]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    assert BROWSER is not None, "the browser tests run in CI, and there is no chromium"
    home = tmp_path_factory.mktemp("home")
    with Herma.open(home) as h:
        h.memory.apply("memory", Add("Tea is in the cupboard."))
        with h.session(title=NASTY, tools=None) as session:
            session.before_model(NASTY)
            session.after_model("hi")
    with serving(home) as made:
        yield made


def browse(folder: Path, address: str, *options: str, seconds: int = 5) -> tuple[str, str]:
    """Open an address in a browser that knows nothing yet, and look at it for so many seconds of the browser's own
    clock, which does not wait. → what it printed, and its console's complaints.
    """
    assert BROWSER is not None
    clock = f"--virtual-time-budget={seconds * 1000}"
    command = [BROWSER, *OPTIONS, clock, f"--user-data-dir={folder / 'profile'}", *options, address]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, "\n".join(line for line in done.stderr.splitlines() if "CONSOLE" in line)


@pytest.mark.parametrize(("path", "title"), [("/", "Overview"), ("/spending", "Spending"), ("/health", "Health")])
def test_the_link_leads_to_a_page_whose_script_runs_and_no_other(
    served: Served, tmp_path: Path, path: str, title: str
) -> None:
    page, complaints = browse(tmp_path, f"{served.link}&to={path}", "--dump-dom")
    assert f"<title>{title} · Herma</title>" in page, "text of others did not act"
    assert 'data-script="on"' in page, "our own script did"
    assert 'type="checkbox"' in page
    assert complaints == "", "nothing was refused by the policy, and nothing failed"
    assert served.token not in page
    if path == "/health":
        assert re.search(r'<code class="command"[^>]*>herma backup create</code><button', page), "can be copied"
    else:
        assert "&lt;script&gt;" in page


def test_a_page_keeps_itself_up_to_date(served: Served, tmp_path: Path) -> None:
    page, complaints = browse(tmp_path, served.link, "--dump-dom", seconds=70)
    assert 'data-refreshed="' in page
    assert "<title>Overview · Herma</title>" in page
    assert page.count("MEMORY.md") == 2, "in the place of what was there: a heading, and the words of its bar"
    assert complaints == ""


def test_a_browser_without_the_link_sees_the_door(served: Served, tmp_path: Path) -> None:
    page, complaints = browse(tmp_path, f"http://127.0.0.1:{served.port}/", "--dump-dom")
    assert "Who is there?" in page
    assert "MEMORY.md" not in page
    assert "Content Security Policy" not in complaints


@pytest.mark.parametrize("width", [1200, 500])
def test_light_and_dark(served: Served, tmp_path: Path, width: int) -> None:
    ground = {}
    for name, scheme in (("light", 1), ("dark", 0)):
        folder = tmp_path / name
        folder.mkdir()
        shot = folder / "page.png"
        look = (f"--window-size={width},900", f"--blink-settings=preferredColorScheme={scheme}", f"--screenshot={shot}")
        browse(folder, served.link, *look)
        ground[name], size = first_pixel(shot.read_bytes())
        assert size[0] == width
    assert min(ground["light"]) > 230
    assert max(ground["dark"]) < 60


def first_pixel(png: bytes) -> tuple[tuple[int, ...], tuple[int, int]]:
    """The colour of the upper left corner, which no filter of the format changes, and the picture's size."""
    size = struct.unpack(">II", png[16:24])
    data, at = b"", 8
    while at < len(png):
        length, kind = struct.unpack(">I4s", png[at : at + 8])
        data += png[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
        at += length + 12
    return tuple(zlib.decompressobj().decompress(data, 4)[1:4]), (size[0], size[1])
