"""The dashboard in a real browser (Chromium): main paths, keys, hostile content, tabs, restarts, accessibility."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.homes import conversation, tool_turn
from tests.surface.web import Served, furnish, serving, small

from herma import Add, Author, Herma, Origin, Who

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
READY = BROWSER is not None and find_spec("playwright") is not None
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not READY and not os.environ.get("CI"), reason="needs chromium (apt-get) and playwright (pip)"),
]
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PROPOSED = ("Likes שלום עולם", "Likes 登录页面", "Likes 🌈 and 🏳️")
SCRIPTS = ("שלום עולם \u202egnp.exe", "登录页面的错误 ログイン 로그인", "👩‍👩‍👧‍👦🏳️‍🌈 zero\u200bwidth")
WAIT = 20_000
"""Milliseconds until something that should happen has not."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    assert BROWSER is not None, "the browser tests run in CI, and there is no chromium"
    with sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield made
        made.close()


class Tab:
    """A page of one signed-in browser, which keeps what went wrong on it."""

    def __init__(self, context: BrowserContext, served: Served) -> None:
        self.page: Page = context.new_page()
        self.page.set_default_timeout(WAIT)
        self.wrong: list[str] = []
        self.elsewhere: list[str] = []
        self._base = f"http://127.0.0.1:{served.port}"
        self.page.on("console", lambda message: self.wrong.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: self.wrong.append(f"dialog {dialog.message}"))
        self.page.on("request", lambda asked: None if asked.url.startswith(self._base) else self._left(asked.url))

    def _left(self, url: str) -> None:
        self.elsewhere.append(url)

    def open(self, path: str) -> Page:
        self.page.goto(self._base + path)
        return self.page


@pytest.fixture
def tab(browser: Browser, served: Served) -> Iterator[Tab]:
    yield from tabs(browser, served)


def tabs(browser: Browser, served: Served, **options: Any) -> Iterator[Tab]:
    context = browser.new_context(viewport={"width": 1280, "height": 900}, **options)
    made = Tab(context, served)
    made.page.goto(served.link)
    made.page.wait_for_url("**/")
    yield made
    context.close()
    assert made.wrong == [], "nothing was refused by the policy, and nothing failed"
    assert made.elsewhere == [], "no request leaves the server"


@pytest.fixture(scope="module")
def sessions() -> dict[str, str]:
    return {}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, sessions: dict[str, str]) -> Iterator[Served]:
    home, user = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("user")
    sessions |= furnish(home) | {"home": str(home)}
    (user / ".claude" / "projects").mkdir(parents=True)
    with serving(home, env={"HOME": str(user)}) as made:
        yield made


@pytest.fixture(scope="module")
def hostile(served: Served, sessions: dict[str, str]) -> dict[str, str]:
    """Add text that would like to act, and messages in many scripts and of any length."""
    with Herma.open(sessions["home"]) as h:
        for text in (*PROPOSED, NASTY):
            h.memory.apply("user", Add(text), author=Author(Who.TOOL, Origin.WEB))
        with h.session(title=NASTY, tools=None) as session:
            tool_turn(session, NASTY, "read_file", {"path": NASTY}, "x" * 200_000, NASTY * 50)
        for number, text in enumerate(SCRIPTS):
            conversation(h, f"{text} rose {number}", text * 20, ended=True)
        huge = conversation(h, "huge " + "word " * 100_000, "no" + "spaces" * 5_000)
        h.index.wait()
    return sessions | {"hostile": session.id, "huge": huge}


PICTURES = (
    *(("home", "/", 1280, 720), ("session", "/sessions/{shop}", 1280, 800), ("search", "/search?q=rollout", 1280, 480)),
    *(("cost", "/cost", 1280, 800), ("memory", "/memory", 390, 780), ("inbox", "/inbox", 390, 780)),
)
DOCS = Path(__file__).resolve().parents[2] / "docs"
LARGEST = 60_000
"""Bytes of a picture."""


def test_the_docs_have_pictures_of_the_pages(browser: Browser, served: Served, sessions: dict[str, str]) -> None:
    """WRITE_PICTURES=1 writes them into docs/."""
    page = (DOCS / "how-to" / "dashboard.md").read_text("utf-8")
    for tab in tabs(browser, served):
        tab.open("/health")  # the home page shows what the doctor found
        for name, path, width, height in PICTURES:
            file = DOCS / f"dashboard-{name}.png"
            if os.environ.get("WRITE_PICTURES"):
                tab.page.set_viewport_size({"width": width, "height": height})
                tab.open(path.format_map(sessions)).locator("h1").wait_for()
                file.write_bytes(small(tab.page.screenshot(), tab.page.context.new_page()))
            size = width.to_bytes(4, "big") + height.to_bytes(4, "big")
            assert file.read_bytes()[16:24] == size, f"{file.name} has another size: WRITE_PICTURES=1"
            assert file.stat().st_size < LARGEST, file.name
            assert f"../{file.name}" in page


PAGES = (
    *("/", "/memory", "/memory?project=/src/shop", "/memory/changes", "/memory/changes/m7", "/memory/archive"),
    *("/inbox", "/search", "/search?q=rose", "/search?q=zzzyyyxxx", "/sessions", "/sessions?source=delegation"),
    *("/sessions/{shop}", "/sessions/{shop}/sent", "/sessions/{orders}", "/sessions/{after}", "/sessions/{hostile}"),
    *("/sessions/{huge}", "/sessions/{hostile}/sent", "/episodes", "/episodes/1", "/skills", "/skills/rollout"),
    *("/cost", "/connections", "/import", "/import?look=1", "/health", "/nosuch"),
)
AXE = """async () => (await axe.run()).violations
    .filter((one) => ['serious', 'critical'].includes(one.impact)).map((one) => [one.id, one.nodes[0].html])"""


@pytest.mark.parametrize(
    ("scheme", "width", "looked_at"),
    [
        ("light", 1280, PAGES[::2]),
        ("dark", 390, PAGES[1::2]),
        *(pytest.param(*one, PAGES, marks=pytest.mark.long) for one in (("light", 390), ("dark", 1280))),
    ],
    ids=["light-1280", "dark-390", "light-390", "dark-1280"],
)
def test_no_page_has_a_serious_barrier_and_none_lets_text_act(
    browser: Browser, served: Served, hostile: dict[str, str], scheme: Any, width: int, looked_at: tuple[str, ...]
) -> None:
    axe = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
    for tab in tabs(browser, served, color_scheme=scheme):
        tab.page.set_viewport_size({"width": width, "height": 844})
        for path in PAGES:
            page = tab.open(path.format_map(hostile))
            page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true; })")
            if path in looked_at:
                page.evaluate(axe)
                assert page.evaluate(AXE) == [], path
            assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is too wide"
            assert page.evaluate("document.documentElement.dataset.script") == "on", "our own script runs"
            assert page.title() != "owned", "no text acts"
            ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) == (scheme == "dark"), path
        tab.open("/sessions/{after}".format_map(hostile)).get_by_text("which a summary replaced").wait_for()
        assert tab.page.locator(".message.summary").count() == 1
        tab.open("/skills/rollout").get_by_role("img", name="Conversations that used this skill").wait_for()
        tab.wrong = [one for one in tab.wrong if "404" not in one]


def test_an_entry_is_added_edited_removed_and_brought_back(tab: Tab) -> None:
    page = tab.open("/memory")
    page.get_by_label("New entry of MEMORY.md").fill("Coffee is on the shelf.")
    page.locator("#memory").get_by_role("button", name="Add").click()
    page.get_by_text("Entry added").wait_for()
    page.locator("li", has_text="Coffee is on the shelf.").get_by_text("Edit").click()
    page.locator("li", has_text="Coffee").locator("textarea").fill("Coffee is in the drawer.")
    page.locator("li", has_text="Coffee").get_by_role("button", name="Save").click()
    page.locator("li", has_text="Coffee is in the drawer.").get_by_role("button", name="Remove").click()
    page.get_by_role("status").get_by_role("button", name="Undo").click()
    page.locator("li", has_text="Coffee is in the drawer.").first.wait_for()
    page.get_by_role("link", name="Timeline").click()
    page.locator("del", has_text="Coffee is on the shelf.").first.wait_for()


def test_a_person_decides_in_the_inbox(tab: Tab, hostile: dict[str, str]) -> None:
    page = tab.open("/inbox")
    first, second, third = (page.locator("section.card", has_text=text) for text in PROPOSED)
    assert first.get_by_text("Why it is here").count() == 1
    first.get_by_role("button", name="Approve", exact=True).click()
    page.get_by_text("Entry added").wait_for()
    second.get_by_text("Edit").click()
    second.locator("textarea").fill("Likes short words.")
    second.get_by_role("button", name="Approve this text").click()
    page.get_by_text("Entry added").wait_for()
    third.get_by_role("button", name="Reject").click()
    page.get_by_text("Rejected").wait_for()
    entries = tab.open("/memory").locator("#user .text").all_inner_texts()
    assert any("Likes short words." in one for one in entries)
    assert any("שלום" in one for one in entries)


def test_search_answers_while_one_types_and_keys_lead_to_the_message(tab: Tab) -> None:
    page = tab.open("/")
    page.locator("h1").click()
    page.keyboard.press("g")
    page.keyboard.press("f")
    page.wait_for_url("**/search")
    tab.open("/health").keyboard.press("/")
    assert page.evaluate("document.activeElement.name") == "q"
    tab.open("/search").keyboard.type("rollout shop fail")
    page.locator(".hits mark").first.wait_for()
    assert "q=rollout" in page.url
    page.keyboard.press("Escape")
    page.keyboard.press("j")
    assert page.evaluate("document.activeElement.closest('.hits') !== null")
    page.keyboard.press("Enter")
    page.wait_for_url("**/sessions/**")
    assert page.locator(".message.anchor").count() == 1
    assert page.locator(".tree li").count() == 3, "the branch and the delegation"
    tab.open("/search?q=zzzyyyxxx").get_by_text("Nothing found").wait_for()


def test_tool_calls_are_folded_and_a_huge_message_is_cut(tab: Tab, hostile: dict[str, str]) -> None:
    page = tab.open(f"/sessions/{hostile['hostile']}")
    folded = page.locator(".message.tool details")
    assert folded.get_attribute("open") is None
    folded.locator("summary").focus()
    page.keyboard.press("Enter")
    assert folded.get_attribute("open") is not None
    huge = tab.open(f"/sessions/{hostile['huge']}")
    assert len(huge.content()) < 60_000
    huge.get_by_text("more characters").first.click()
    huge.wait_for_url("**most=0**")
    assert len(huge.content()) > 500_000


def test_two_tabs_show_the_same_and_the_page_works_without_a_script(browser: Browser, served: Served) -> None:
    for watching in tabs(browser, served):
        watching.open("/memory").wait_for_selector("main[data-listening]")
        for plain in tabs(browser, served, java_script_enabled=False):
            page = plain.open("/memory")
            page.get_by_label("New entry of MEMORY.md").fill("Typed in another tab.")
            page.locator("#memory").get_by_role("button", name="Add").click()
            page.get_by_text("Entry added").wait_for()
            page.goto(page.url.partition("/memory")[0] + "/search")
            page.get_by_label("Search all conversations").fill("rollout")
            page.get_by_role("button", name="Search").click()
            assert page.locator(".hits li").count() >= 1
        watching.page.locator("li", has_text="Typed in another tab.").first.wait_for()


def test_a_page_outlives_its_server_and_a_stranger_sees_the_door(browser: Browser, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    context = browser.new_context()
    with serving(home) as first:
        tab = Tab(context, first)
        tab.page.goto(first.link)
        tab.page.wait_for_url("**/")
        for path in ("/", "/memory", "/inbox", "/search", "/sessions", "/episodes", "/skills", "/cost", "/import"):
            assert tab.open(path).locator(".nothing").count() >= 1, f"{path} says that there is nothing yet"
        tab.page.wait_for_selector("main[data-listening]")
        port = str(first.port)
    tab.page.get_by_text("Not reachable").wait_for()
    with serving(home, "--port", port) as again:
        tab.page.get_by_text("Live", exact=True).wait_for()
        tab.page.get_by_role("link", name="Memory").click()
        tab.page.get_by_role("heading", name="Memory", exact=True).wait_for()
        stranger = browser.new_context().new_page()
        stranger.goto(f"http://127.0.0.1:{again.port}/memory")
        assert stranger.locator("h1").inner_text() == "Sign in"
        assert "MEMORY.md" not in stranger.content()
        stranger.context.close()
    context.close()
