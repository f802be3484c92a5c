"""The dashboard, asked over real HTTP: who is let in, what is shown, and that nothing in memory can act on a page."""

from __future__ import annotations

import json
import socket
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.surface.web import Answer, Served, serving

from herma import Add, Herma, __version__
from herma.cli.main import cli
from herma.errors import SpendRefused
from herma.providers.guard import Noted, TroubleLog
from herma.testing import Answer as Said
from herma.testing import ScriptedModel
from herma.types import Usage

NASTY = "<script>document.title='owned'</script><img src=x onerror=alert(1)> \u202egnp.exe"
PAGES = ("/", "/spending", "/health")
HEADERS = (
    "content-security-policy",
    "x-frame-options",
    "x-content-type-options",
    "referrer-policy",
    "cross-origin-opener-policy",
    "cross-origin-resource-policy",
)


def furnish(home: Path) -> None:
    """Memory, conversations, background work with a cap that was reached, and a guest that failed."""
    with ScriptedModel([Said("x", usage=Usage(100, 20))]) as server:
        config = f"model:\n  url: {server.url}\n  name: m\nprices:\n  by_model: m=1/10\nspend:\n  daily_tokens: 6000\n"
        (home / "config.yaml").write_text(f"{config}review:\n  enabled: false\n", "utf-8")
        with Herma.open(home) as h:
            h.memory.apply("memory", Add("Tea is in the cupboard."))
            with h.session(title=NASTY, tools=None) as session:
                session.before_model(NASTY)
                session.after_model("hi")
            model = h.model("auxiliary", purpose="tidy")
            assert model is not None
            model.reply([{"role": "user", "content": "hi"}])
            with pytest.raises(SpendRefused):
                model.reply([{"role": "user", "content": "hi " * 9_000}])
            TroubleLog(home).add(Noted(h._clock(), NASTY, "prefetch", NASTY))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    home = tmp_path_factory.mktemp("furnished")
    furnish(home)
    with serving(home) as made:
        yield made


@pytest.fixture
def furnished(served: Served) -> Path:
    return Path(served.ask("/api/health").json["home"])


# ── who is let in ──


def test_the_link_lets_in_for_a_cookie(served: Served) -> None:
    path = served.link.partition(str(served.port))[2]
    entered = served.ask(path, key=False)
    assert entered.status == 200
    assert served.token not in entered.text + str({k: v for k, v in entered.headers.items() if k != "set-cookie"})
    assert served.token not in entered.cookie
    attributes = entered.headers["set-cookie"].lower()
    assert 'content="0; url=/"' in entered.text, "goes on by itself, without a script"
    assert 'url=/spending"' in served.ask(f"{path}&to=/spending", key=False).text
    for elsewhere in ("//evil.example", "http://evil.example", "/nosuch"):
        assert "evil" not in served.ask(f"{path}&to={elsewhere}", key=False).text, "only to pages of ours"
    assert "httponly" in attributes
    assert "samesite=strict" in attributes
    assert served.ask("/", key=False, cookie=entered.cookie).status == 200
    changed = entered.cookie[:-1] + ("1" if entered.cookie.endswith("0") else "0")
    assert served.ask("/", key=False, cookie=changed).status == 401


def test_without_a_key_nothing_of_the_home_is_told(served: Served, furnished: Path) -> None:
    for path in (*PAGES, "/nosuch", "/leave"):
        refused = served.ask(path, key=False)
        assert refused.status == 401, path
        assert str(furnished) not in refused.text
        assert 'name="token"' in refused.text, "whoever has it can type it"
    refused = served.ask("/api/spending", key=False)
    assert refused.status == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json["ok"] is False
    assert served.ask("/api/spending", key=False, authorization="Bearer wrong").status == 401
    assert served.ask("/api/spending", key=False, authorization=f"Basic {served.token}").status == 401


def test_the_token_can_be_typed(served: Served) -> None:
    ours = f"http://127.0.0.1:{served.port}"
    form = {"content_type": "application/x-www-form-urlencoded"}

    def typed(body: str, origin: str = ours) -> Answer:
        return served.ask("/enter", method="POST", body=body, key=False, origin=origin, **form)

    entered = typed(f"token={served.token}")
    assert served.ask("/health", key=False, cookie=entered.cookie).status == 200
    for nonsense in ("token=nonsense", "", "token=" + "x" * 100_000, "%ff=%00", f"tokens={served.token}"):
        assert typed(nonsense).status == 401, nonsense[:20]
        assert typed(nonsense).cookie == ""
    assert typed(f"token={served.token}", "http://evil.example").status == 403
    assert served.ask("/enter", key=False).status == 401


def test_another_name_gets_nothing(served: Served) -> None:
    for path in (*PAGES, "/api/health", "/enter", "/files/style.css"):
        refused = served.ask(path, host=f"rebound.example:{served.port}")
        assert refused.status == 421, path
    assert served.ask("/", host=f"localhost:{served.port}").status == 200


def test_only_our_own_pages_can_change_something(served: Served) -> None:
    cookie = served.ask(served.link.partition(str(served.port))[2], key=False).cookie
    ours = f"http://127.0.0.1:{served.port}"
    for origin in ("http://evil.example", "null", "http://127.0.0.1:1"):
        assert served.ask("/leave", method="POST", key=False, cookie=cookie, origin=origin).status == 403
    assert served.ask("/leave", method="POST", key=False, cookie=cookie).status == 403, "a browser says where from"
    left = served.ask("/leave", method="POST", key=False, cookie=cookie, origin=ours)
    assert (left.status, left.headers["location"]) == (303, "/enter")
    assert "max-age=0" in left.headers["set-cookie"].lower()
    for page in PAGES:
        assert served.ask(page, method="POST", origin=ours).status == 405, "nothing can be changed here"


def test_every_answer_says_what_a_browser_may_do_with_it(served: Served) -> None:
    for answer in (
        *(served.ask(path) for path in (*PAGES, "/api/overview", "/nosuch", "/files/style.css", "/files/page.js")),
        served.ask("/", key=False),
        served.ask("/", host="rebound.example"),
        served.ask("/leave", method="POST", origin="http://evil.example"),
    ):
        assert all(name in answer.headers for name in HEADERS)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers


# ── what is shown ──


def test_the_pages_show_what_there_is(served: Served, furnished: Path) -> None:
    overview, spending, health = (served.ask(path).text for path in PAGES)
    assert str(furnished) in overview
    assert "1 %, 23 of 2,200 characters, 1 entry" in overview
    assert "120 of 6,000 tokens" in overview
    assert "Left undone" in spending
    assert "does not allow tidy" in spending
    assert "keeping curated memory in order" in spending
    assert "0.0003 of 0.50 USD" in spending
    assert spending.count("<rect") >= 3, "two bars against the cap, and one day of the chart"
    assert "The beginning never changed" in spending
    assert "herma.db" in health
    assert "prefetch" in health
    assert "herma backup create" in health


@pytest.mark.parametrize("path", PAGES)
def test_text_of_others_cannot_act(served: Served, path: str) -> None:
    page = served.ask(path).text
    assert "&lt;script&gt;document.title" in page or path == "/health"
    assert "<script>" not in page
    assert "<img src=x" not in page
    assert "\u202e" not in page
    assert page.count("<script ") == 1


def test_programs_get_what_the_commands_print(served: Served, furnished: Path) -> None:
    def printed(*words: str) -> dict[str, object]:
        done = CliRunner().invoke(cli, [*words, "--json", "--home", str(furnished)])
        value: dict[str, object] = json.loads(done.stdout)
        return value

    assert served.ask("/api/spending").json == printed("cost")
    theirs, ours = printed("doctor"), served.ask("/api/health").json
    assert ours["guests"] == theirs["guests"] != []
    assert [one["name"] for one in ours["checks"]] == [one["name"] for one in theirs["checks"]]  # type: ignore[attr-defined]
    overview = served.ask("/api/overview").json
    assert overview["memory"] == printed("memory", "status")["files"]
    assert overview["newest_sessions"] == printed("sessions", "list")["sessions"]
    stats = printed("sessions", "stats", "--quick")
    assert overview["transcripts"].items() <= stats.items()
    assert (overview["version"], overview["home"]) == (__version__, str(furnished))


def test_what_is_not_there_is_said(served: Served) -> None:
    assert served.ask("/nosuch").status == 404
    assert 'href="/api/' not in served.ask("/nosuch").text
    assert "There is nothing at /nosuch" in served.ask("/nosuch").text
    assert served.ask("/api/nosuch").json["error"] == "There is nothing at /api/nosuch."
    for path in ("/files/../app.py", "/files/%2e%2e/app.py", "/files/nosuch.css", "/files/"):
        assert served.ask(path).status == 404, path
    assert served.ask("/files/style.css").headers["content-type"].startswith("text/css")


def test_many_tabs_at_once(served: Served) -> None:
    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(served.ask, path) for path in PAGES * 8]
    assert {one.result().status for one in asked} == {200}


# ── a home that is not in order ──


def test_an_empty_home_is_shown_and_not_made(tmp_path: Path) -> None:
    home = tmp_path / "nowhere"
    with serving(home) as served:
        assert all(served.ask(path).status == 200 for path in PAGES)
        assert "No calls yet" in served.ask("/spending").text
        assert served.ask("/api/overview").json["transcripts"]["messages"] == 0
    assert not home.exists()
    assert any("There is nothing at" in line for line in served.errors)


def test_a_broken_configuration_is_said_and_its_mending_seen(home: Path) -> None:
    config = home / "config.yaml"
    with serving(home) as served:
        assert served.ask("/api/spending").json["background"]["model_set"] is False
        config.write_text("memory: [\n", "utf-8")
        page = served.ask("/")
        assert page.status == 503
        assert "What the doctor says" in page.text
        assert "config.yaml" in page.text
        assert served.ask("/api/spending").json["kind"] == "ConfigError"
        health = served.ask("/api/health")
        assert health.status == 200
        assert health.json["healthy"] is False
        config.write_text("store:\n  url: postgresql://nowhere\n", "utf-8")
        assert "store.url" in served.ask("/").text
        assert served.ask("/health").status == 200
        config.write_text("model:\n  url: ollama\n  name: m\n", "utf-8")
        assert served.ask("/api/spending").json["background"]["model_set"] is True
    assert "Traceback" not in "\n".join(served.errors)


@pytest.mark.parametrize("path", ["/", "/spending"])
def test_a_home_that_cannot_be_read_is_said_as_the_doctor_says_it(home: Path, path: str) -> None:
    (home / "herma.db").write_bytes(b"not a database " * 100)
    with serving(home) as served:
        page = served.ask(path)
        assert page.status == 500
        assert "What the doctor says" in page.text
        assert "problem" in page.text
        assert served.ask(f"/api{path.rstrip('/') or '/overview'}").json["ok"] is False
        assert served.ask("/health").status == 200
    assert "Traceback" not in "\n".join(served.errors) + page.text


def test_a_busy_store_is_said(home: Path) -> None:
    import apsw

    (home / "config.yaml").write_text("memory:\n  lock_timeout: 0.2\n", "utf-8")
    with Herma.open(home) as h, h.session(tools=None) as session:
        session.before_model("hello")
    holder = apsw.Connection(str(home / "herma.db"))
    try:
        with serving(home) as served:
            holder.execute("PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE").fetchall()
            busy = served.ask("/spending")
            assert busy.status == 503
            assert busy.headers["retry-after"]
            assert served.ask("/api/spending").json["kind"] == "StoreBusy"
            holder.close()
            assert served.ask("/spending").status == 200
        assert "Traceback" not in busy.text + "\n".join(served.errors)
    finally:
        holder.close()


# ── the token's file ──


def test_the_token_is_kept_for_its_owner_alone(home: Path) -> None:
    file = home / "web.token"
    with serving(home) as served:
        assert file.read_text().strip() == served.token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with serving(home) as again:
        assert again.token == served.token
    file.chmod(0o644)
    with serving(home) as warned:
        assert warned.token != served.token
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert any("could read" in line for line in warned.errors)
    with serving(home, "--new-token") as renewed:
        assert renewed.token not in (served.token, warned.token)
        assert renewed.ask("/", key=False, authorization=f"Bearer {warned.token}").status == 401
    file.write_text("too short")
    with serving(home) as mended:
        assert len(mended.token) >= 32


def test_two_servers_of_one_home_have_one_token(home: Path) -> None:
    with serving(home) as one, serving(home) as other:
        assert one.token == other.token
        assert one.port != other.port
        cookie = one.ask(one.link.partition(str(one.port))[2], key=False).cookie
        assert other.ask("/", key=False, cookie=cookie).status == 401, "each has a cookie of its own"


def test_the_doctor_sees_a_token_that_others_can_read(home: Path) -> None:
    home.chmod(0o755)
    (home / "web.token").write_text("x" * 43)
    (home / "web.token").chmod(0o644)
    found = json.loads(CliRunner().invoke(cli, ["doctor", "--json", "--home", str(home)]).stdout)
    assert any(one["name"] == "permissions" and "web.token" in one["sentence"] for one in found["checks"])


def test_a_socket_can_be_had_again(home: Path) -> None:
    with serving(home) as served:
        port = served.port
        assert served.ask("/").status == 200
        assert served.end() == 0
    with socket.socket() as listening:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
