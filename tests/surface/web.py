"""A real `herma serve` in a process of its own, a client that speaks plain HTTP to it, and a home to show."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from struct import pack
from typing import TYPE_CHECKING, Any

from tests.homes import call, opened, skill_text, talk, tool_turn

from herma import Add, Author, Origin, Who
from herma.skills.rows import PatchSkill
from herma.testing import Answer as Said
from herma.testing import ScriptedModel
from herma.types import Category, Scope, Target, Usage

if TYPE_CHECKING:
    from playwright.sync_api import Page

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


# ── a home to look at ──


FACTS: tuple[tuple[Target, str, Category | None, tuple[str, ...]], ...] = (
    ("memory", "The staging database listens on port 5433.", "environment", ("staging",)),
    ("memory", "Tests run with `make test`; the slow ones need PostgreSQL.", "convention", ("tests",)),
    ("memory", "Deploys go out on Tuesdays, after the backup at 06:00.", "convention", ("deploy",)),
    ("memory", "Never retry a payment without an idempotency key: it charged 40 customers twice.", "lesson", ()),
    ("user", "Prefers short answers with the command first.", "preference", ()),
    ("user", "Works in the time zone of Lisbon.", "identity", ()),
)
PROJECT = "/src/shop"
HOURS = 3_600.0
SUMMARY = "## Goal\n- Migrate the orders [#{0}]\n\n## Next steps\n- Compare the totals [#{0}]\n"


def furnish(home: Path) -> dict[str, str]:
    """Fill a home with eight days of work, of everything something. → ids of sessions by name."""
    now = [time.time() - 8 * 24 * HOURS]
    outside = Author(Who.TOOL, Origin.WEB)
    (home / "config.yaml").write_text("context: {window: 16000}\nprices: {input: 2.5, output: 10}\n", "utf-8")
    with (
        ScriptedModel() as model,
        opened(home, model, clock=lambda: now[0], review__enabled=False) as h,
    ):
        for target, text, category, tags in FACTS:
            h.memory.apply(target, Add(text, category, tags))
        h.memory.replace("memory", "port 5433", "The staging database listens on port 5434.")
        h.memory.apply("memory", Add("Feature flags live in flags.yaml."), scope=Scope(project=PROJECT))
        h.memory.apply("user", Add("Ana is on call in odd weeks."), scope=Scope(user="ana"))
        h.skills.create("rollout", skill_text("rollout", "Roll out a service and watch it."))
        h.skills.create("upload", skill_text("upload", "Upload the files of a site."), despite_similar=True)
        h.skills.archive("upload")
        for title in ("Rotate the logs of staging", "A rollout plan for the new search", "Flaky test in the importer"):
            now[0] += 30 * HOURS
            with h.session("cli", title=title) as session:
                talk(session, f"Let us look at this: {title.lower()}.", "And now?", reply="Here is what I found.")
        now[0] += 30 * HOURS
        with h.session("telegram", title="The rollout of the shop fails", project=PROJECT) as shop:
            read = {"name": "rollout"}
            tool_turn(
                shop, "See how we roll out.", "skill_view", read, shop.call_tool("skill_view", read), "I have read it."
            )
            pods = "NAME       READY  STATUS\nshop-7d9   0/1    CrashLoopBackOff\n" + "log line\n" * 40
            why = (
                "The pod has no `DATABASE_URL`. Set it:\n\n```\nkubectl set env deploy/shop --from=secret/shop-db\n```"
            )
            tool_turn(
                shop, "Why did the rollout of the shop fail?", "terminal", {"command": "kubectl get pods"}, pods, why
            )
            text = "kubectl rollout status waits until a rollout is done."
            call(shop, "memory", action="add", target="memory", content=text)
            again = {"command": "kubectl rollout restart deploy/shop"}
            tool_turn(shop, "Set it and try again.", "terminal", again, "restarted", "It runs: 3 of 3 pods are ready.")
            talk(shop, "Great, that works now, thanks!", reply="You are welcome.")
        ids = {"shop": shop.id}
        for reason, text in (("branch", "What if we used Helm?"), ("delegation", "Read the logs of shop-7d9.")):
            ids[reason] = h.transcripts.start(reason, parent=shop.id, reason=reason, title=text.rstrip("?."))  # type: ignore[arg-type]
            h.transcripts.append(ids[reason], [{"role": "user", "content": text}])
        now[0] += 40 * HOURS
        with h.session("cli", title="Migrate the orders", project=PROJECT) as session:
            ids["orders"] = session.id
            for shard in range(9):
                alter = {"command": f"ALTER TABLE orders_{shard} ADD COLUMN total int"}
                tool_turn(session, f"Migrate shard {shard} of orders.", "psql", alter, "ALTER TABLE\n" * 120)
            first = session.messages[0].id
            model.then(Said(SUMMARY.format(f"{first}-{first + 3}"), usage=Usage(900, 120)))
            session.compress()
            talk(session, "Now compare the totals.", reply="All totals are equal.")
            ids["after"] = session.id
        author = Author(Who.TOOL, Origin.WEB, session=shop.id)
        h.memory.apply("memory", Add("Helm 4 drops the flag --atomic."), author=author)
        h.memory.apply("memory", Add("The API allows 60 requests a minute."), author=outside)
        h.skills.propose(PatchSkill("rollout", "2. Check it.", "2. Watch the pods for five minutes."), author=author)
        model.then("Done.")
        background = h.model("auxiliary", purpose="tidy")
        assert background is not None
        background.reply([{"role": "user", "content": "Merge these."}])
        h.curator.run()
        h.index.wait()
        h.episodes.rebuild()
    return ids


# ── pictures of pages ──

PIXELS = """async (url) => {
    const image = new Image(); image.src = url; await image.decode();
    const drawing = new OffscreenCanvas(image.width, image.height).getContext("2d");
    drawing.drawImage(image, 0, 0);
    const data = drawing.getImageData(0, 0, image.width, image.height).data;
    const counts = new Map(), near = new Map(), key = (at) => (data[at] << 16) | (data[at + 1] << 8) | data[at + 2];
    for (let at = 0; at < data.length; at += 4) counts.set(key(at), (counts.get(key(at)) || 0) + 1);
    const colours = [...counts.keys()].sort((a, b) => counts.get(b) - counts.get(a)).slice(0, 128);
    const far = (a, b) => [16, 8, 0].reduce((sum, by) => sum + ((a >> by & 255) - (b >> by & 255)) ** 2, 0);
    const nearer = (one) => (best, each, at) => far(one, each) < far(one, colours[best]) ? at : best;
    for (const one of counts.keys()) near.set(one, colours.reduce(nearer(one), 0));
    let text = "";
    for (let at = 0; at < data.length; at += 4) text += String.fromCharCode(near.get(key(at)));
    return [image.width, image.height, colours, btoa(text)];
}"""


def small(picture: bytes, page: Page) -> bytes:
    """Return a screenshot as a PNG of at most 128 colours, half its size. The browser counts the pixels."""
    wide, high, colours, text = page.evaluate(PIXELS, "data:image/png;base64," + b64encode(picture).decode())
    pixels = b64decode(text)
    rows = b"".join(b"\0" + pixels[at : at + wide] for at in range(0, wide * high, wide))
    parts = (
        (b"IHDR", pack(">IIBBBBB", wide, high, 8, 3, 0, 0, 0)),
        (b"PLTE", b"".join(one.to_bytes(3, "big") for one in colours)),
        (b"IDAT", zlib.compress(rows, 9)),
        (b"IEND", b""),
    )
    chunks = (pack(">I", len(data)) + kind + data + pack(">I", zlib.crc32(kind + data)) for kind, data in parts)
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)
