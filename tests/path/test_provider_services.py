"""The bundled providers, each against a server on loopback that speaks its service's protocol, or a program `brv`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from tests.homes import herma, of_files, talk
from tests.path import memory_services as services
from tests.path.memory_services import KEY, MemoryService, Routes

from herma import Herma, HermaWarning, MemoryProvider, Message
from herma.errors import ProviderError
from herma.providers.bundled import Http, supervise
from herma.providers.discovery import discover, find, load
from herma.testing import ScriptedModel
from herma.testing.contracts import ProviderContract

pytestmark = of_files

Json = dict[str, Any]


class Case(NamedTuple):
    """A provider, its service, and the settings with which it finds it."""

    name: str
    routes: Routes = MappingProxyType({})
    url: str = ""
    key: str = ""
    package: str = ""
    settings: Mapping[str, Any] = MappingProxyType({})


CASES = {
    "holographic": Case("holographic"),
    "mem0": Case("mem0", services.MEM0, "host", "MEM0_API_KEY", "httpx2"),
    "mem0-self-hosted": Case("mem0", services.MEM0_SERVER, "host", "MEM0_API_KEY", "httpx2", {"mode": "self-hosted"}),
    "honcho": Case("honcho", services.HONCHO, "baseUrl", "HONCHO_API_KEY", "honcho"),
    "supermemory": Case("supermemory", services.SUPERMEMORY, "base_url", "SUPERMEMORY_API_KEY", "supermemory"),
    "hindsight": Case(
        "hindsight", services.HINDSIGHT, "api_url", "HINDSIGHT_API_KEY", "hindsight_client", {"recall_types": []}
    ),
    "openviking": Case("openviking", services.OPENVIKING, "endpoint", "OPENVIKING_API_KEY", "httpx2"),
    "retaindb": Case("retaindb", services.RETAINDB, "base_url", "RETAINDB_API_KEY", "httpx2"),
    "byterover": Case("byterover"),
}
OLD = {"retaindb-old": CASES["retaindb"]._replace(routes=services.RETAINDB_OLD)}
REMOTE = [name for name, case in CASES.items() if case.routes]
KEPT_UNSENT = ["honcho", "supermemory", "hindsight", "retaindb"]


@dataclass
class Place:
    """A home in which a provider is set up."""

    case: Case
    home: Path
    service: Any = None
    begun: list[Any] = field(default_factory=list)

    def make(self, **more: Any) -> Any:
        """Load the provider, with more settings."""
        if more:
            provider: Any = load(find(self.home, self.case.name), self.home)
            provider.save_config(more, str(self.home))
        return load(find(self.home, self.case.name), self.home)

    def begin(self, session_id: str = "s-1", **more: Any) -> Any:
        """Load it, and begin a session."""
        provider = self.make(**more)
        assert provider.is_available(), provider.unavailable_reason()
        self.begun.append(provider)
        provider.initialize(session_id, hermes_home=str(self.home), platform="cli", agent_identity="default")
        return provider

    def shut(self) -> None:
        for provider in self.begun:
            provider.shutdown()

    def use(self) -> None:
        """Choose it for sessions."""
        (self.home / "config.yaml").write_text(f"memory:\n  provider: {self.case.name}\n")

    def fault(self, on: bool) -> None:
        """Let the service fail, or work again."""
        if self.service is not None:
            self.service.status = 500 if on else 200
        elif on:
            (self.home / "byterover" / "fault.txt").write_text("0")
        else:
            (self.home / "byterover" / "fault.txt").unlink()


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("MEM0_", "HONCHO_", "SUPERMEMORY_", "HINDSIGHT_", "OPENVIKING_", "RETAINDB_", "BRV_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


def placed(name: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    case = (CASES | OLD)[name]
    if case.package and not find_spec(case.package):
        pytest.skip(f"the package {case.package} is not installed (it is one of herma[dev])")
    if case.name == "byterover":
        folder = home / "bin"
        folder.mkdir(parents=True)
        (folder / "brv").write_text(services.BRV)
        (folder / "brv").chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    if not case.routes:
        place = Place(case, home)
        yield place
        place.shut()
        return
    with MemoryService(case.routes) as service:
        place = Place(case, home, service)
        (home / ".env").write_text(f"{case.key}={KEY}\n")
        (home / ".env").chmod(0o600)
        place.make(**{case.url: service.url, **case.settings})
        yield place
        service.status = 200
        place.shut()


@pytest.fixture
def place(request: pytest.FixtureRequest, home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    yield from placed(request.param, home, monkeypatch)


def every(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("place", names or list(CASES), indirect=True)


@pytest.mark.parametrize("name", list(CASES))
class TestContract(ProviderContract):
    @pytest.fixture
    def provider(self, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryProvider]:
        for place in placed(name, tmp_path, monkeypatch):
            yield place.make()


def call(provider: Any, tool: str, **arguments: Any) -> Any:
    return json.loads(provider.handle_tool_call(tool, arguments))


def test_all_of_them_are_listed_and_none_is_imported(home: Path) -> None:
    listed = {one.name: one for one in discover(home) if one.kind == "bundled"}
    assert set(listed) == {case.name for case in CASES.values()}
    assert all(one.description for one in listed.values())
    program = (
        "import sys\nfrom herma import Herma\n"
        f"h = Herma.open({str(home)!r}, flags={{'embedding.model': 'none'}})\n"
        "s = h.session(); s.before_model('hello'); s.after_model('hi'); s.close(); h.providers.list(); h.close()\n"
        "print([m for m in sys.modules if m.split('.')[0] in "
        "('httpx', 'httpx2', 'honcho', 'supermemory', 'mem0', 'hindsight_client') or '.bundled.' in m])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@every()
def test_modes(place: Place) -> None:
    key = place.make().mode_key
    provider = place.begin(**{key: "tools"})
    assert provider.prefetch("Where does the heron nest?") == ""
    assert provider.get_tool_schemas()
    assert provider.get_status_config({})
    provider.shutdown()
    provider = place.begin(**{key: "context"})
    assert provider.get_tool_schemas() == []
    assert provider.prefetch("ok") == "", "a word is not worth a recall"
    assert "Tools:" not in provider.system_prompt_block()


TOOLS: list[tuple[str, str, Json, str]] = [
    ("mem0", "mem0_add", {"content": "Likes tea."}, "m-1"),
    ("mem0", "mem0_search", {"query": "tea"}, "Likes tea."),
    ("mem0", "mem0_search", {}, "query is required"),
    ("mem0", "mem0_update", {"memory_id": "m-1", "text": "Likes coffee."}, "m-1"),
    ("mem0", "mem0_update", {"memory_id": "m-9", "text": "x"}, "Mem0 answered 404"),
    ("mem0", "mem0_delete", {"memory_id": "../users"}, "is not an id. Nothing was changed."),
    ("mem0", "mem0_delete", {"memory_id": "m-1"}, "deleted"),
    ("honcho", "honcho_conclude", {"conclusion": "Counts herons."}, "m-1"),
    ("honcho", "honcho_conclude", {"list": True}, "Counts herons."),
    ("honcho", "honcho_conclude", {"list": True, "query": "herons"}, "Counts herons."),
    ("honcho", "honcho_conclude", {"conclusion": "x", "list": True}, "Exactly one of"),
    ("honcho", "honcho_conclude", {"delete_id": "m-1"}, "deleted"),
    ("honcho", "honcho_conclude", {"delete_id": ".."}, "is not an id. Nothing was changed."),
    ("honcho", "honcho_profile", {"card": ["Likes tea."]}, "Likes tea."),
    ("honcho", "honcho_profile", {}, "Likes tea."),
    ("honcho", "honcho_reasoning", {"query": "What do they do?", "reasoning_level": "high"}, "They count herons."),
    ("honcho", "honcho_reasoning", {"query": "x", "reasoning_level": "huge"}, "unknown value 'huge'"),
    ("honcho", "honcho_context", {"peer": "ai"}, "Counts herons."),
    ("honcho", "honcho_search", {"query": "herons"}, "results"),
    ("supermemory", "supermemory_store", {"content": "Likes tea.", "metadata": {"by": "me"}}, "m-1"),
    ("supermemory", "supermemory_search", {"query": "tea", "limit": 99}, "Likes tea."),
    ("supermemory", "supermemory_profile", {"query": "tea"}, "Likes birds."),
    ("supermemory", "supermemory_forget", {}, "id or query is required"),
    ("supermemory", "supermemory_forget", {"query": "tea"}, '"forgotten": 1'),
    ("hindsight", "hindsight_retain", {"content": "Likes tea.", "tags": ["drinks"]}, '"stored": true'),
    ("hindsight", "hindsight_recall", {"query": "tea"}, "Likes tea."),
    ("hindsight", "hindsight_reflect", {"query": "What?"}, "They like birds."),
    ("openviking", "viking_remember", {"content": "Likes tea.", "category": "preference"}, "memories/preferences/mem_"),
    ("openviking", "viking_search", {"query": "tea", "mode": "deep"}, "Likes tea."),
    ("openviking", "viking_read", {"uri": "viking://user/default/x.md"}, "NOT_FOUND"),
    ("openviking", "viking_read", {}, "uri or uris is required"),
    ("openviking", "viking_browse", {"action": "list"}, "viking://user/default/memories"),
    ("openviking", "viking_forget", {"uri": "viking://user/default"}, "Nothing was deleted"),
    ("openviking", "viking_forget", {"uri": "viking://user/default/memories/a/m.md"}, "deleted"),
    ("openviking", "viking_add_resource", {"url": "https://example.org/a", "reason": "why"}, "viking://resources/x"),
    ("openviking", "viking_add_resource", {"url": "/etc/passwd"}, "Nothing was added"),
    ("retaindb", "retaindb_remember", {"content": "Likes tea.", "importance": 7}, '"stored": true'),
    ("retaindb", "retaindb_search", {"query": "tea"}, "Likes tea."),
    ("retaindb", "retaindb_context", {"query": "tea"}, "Likes tea."),
    ("retaindb", "retaindb_profile", {}, "Likes birds."),
    ("retaindb", "retaindb_forget", {"memory_id": "m-1"}, "success"),
    ("retaindb", "retaindb_forget", {"memory_id": "m-1"}, "RetainDB answered 404"),
    ("retaindb", "retaindb_upload_file", {"local_path": "{home}/.env"}, "may hold secrets"),
    ("retaindb", "retaindb_upload_file", {"local_path": "{home}/honcho.oauth.json"}, "may hold secrets"),
    ("retaindb", "retaindb_upload_file", {"local_path": "{home}/web.token"}, "may hold secrets"),
    ("retaindb", "retaindb_upload_file", {"local_path": "{home}/plan.txt", "ingest": True}, "ingested"),
    ("retaindb", "retaindb_read_file", {"file_id": "f-1"}, "Tulips in spring."),
    ("retaindb", "retaindb_list_files", {"prefix": "p"}, "f-1"),
    ("retaindb", "retaindb_ingest_file", {"file_id": "f-1"}, "success"),
    ("retaindb", "retaindb_delete_file", {"file_id": "f-1"}, "success"),
    ("retaindb", "retaindb_read_file", {"file_id": "f-9"}, "RetainDB answered 404"),
    ("retaindb", "retaindb_delete_file", {"file_id": "../memory/m-1"}, "is not an id. Nothing was changed."),
    ("byterover", "brv_curate", {"content": "The mill uses walnut gears."}, "Curated"),
    ("byterover", "brv_query", {"query": "which walnut gears"}, "The mill uses walnut gears."),
    ("byterover", "brv_status", {}, "1 entries"),
    ("byterover", "brv_curate", {"content": "x" * 20_001}, "Nothing was curated."),
]


@every("mem0", "honcho", "supermemory", "hindsight", "openviking", "retaindb", "byterover")
def test_tools(place: Place) -> None:
    (place.home / "plan.txt").write_text("Tulips in spring.")
    provider = place.begin()
    used = set()
    for name, tool, arguments, wanted in TOOLS:
        if name == place.case.name:
            given = {
                key: value.format(home=place.home) if key == "local_path" else value for key, value in arguments.items()
            }
            answer = provider.handle_tool_call(tool, given)
            assert wanted in answer, (tool, arguments)
            used.add(tool)
    assert used == {schema["name"] for schema in provider.get_tool_schemas()}, "every tool is tried"


@every("mem0", "mem0-self-hosted", "honcho", "supermemory", "hindsight", "openviking", "retaindb", "byterover")
def test_a_service_that_fails_is_an_error_and_works_again(place: Place) -> None:
    provider = place.begin()
    tool = next(name for name in provider.read_tools if "status" not in name)
    place.fault(True)

    def sync() -> None:
        provider.sync_turn("The grey heron nests by the weir.", "Noted.")
        provider.on_session_end([])

    attempts: list[Callable[[], Any]] = [
        lambda: provider.prefetch("Where does the heron nest?"),
        sync,
        lambda: provider.handle_tool_call(tool, {"query": "heron"}),
    ]
    for attempt in attempts:
        with pytest.raises(Exception) as caught:
            attempt()
        assert KEY not in str(caught.value)
    place.fault(False)
    if place.case.name in KEPT_UNSENT:
        provider.on_session_end([])
        assert "nests by the weir" in "".join(place.service.stored.values()), "what could not be sent was kept"
    assert isinstance(provider.prefetch("Where does the heron nest?"), str)


@every(*REMOTE)
def test_a_wrong_key_and_a_service_that_is_gone(place: Place) -> None:
    place.service.key = "another"
    provider = place.begin()
    with pytest.raises(Exception):  # noqa: B017
        provider.prefetch("Where does the heron nest?")
    provider.shutdown()
    provider = place.begin(**{place.case.url: "http://127.0.0.1:9"})
    with pytest.raises(Exception) as caught:
        provider.prefetch("Where does the heron nest?")
    assert KEY not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "timeouts"),
    [
        ("supermemory", {"api_timeout": 0.5}),
        ("openviking", {"recall_timeout": 0.1}),
        ("retaindb", {"timeout": 1.0}),
        ("honcho", {"timeout": 0.2, "firstTurnBaseWait": 0.1, "firstTurnDialecticWait": 0.1}),
    ],
    indirect=["place"],
)
def test_a_slow_service_is_given_up(place: Place, timeouts: Json) -> None:
    provider = place.begin(**timeouts)
    place.service.delay = 2 * max(timeouts.values()) + 0.2
    with pytest.raises(Exception):  # noqa: B017
        provider.prefetch("Where does the heron nest?")


@every()
def test_fifty_turns_with_resume_and_compression(place: Place) -> None:
    """What was sent is never changed afterwards: `prefixes` of conftest.py watches every request."""
    place.use()
    recalled = 0

    def turns(session: Any, first: int, last: int) -> None:
        nonlocal recalled
        for number in range(first, last):
            request = talk(session, f"Turn {number}: heron number {number} nests by weir {number}.", reply="Noted.")
            assert [message["role"] for message in request].count("system") == 1
            assert request[-1]["content"].count("<memory-context>") <= 1
            recalled += f"[from {place.case.name}]" in request[-1]["content"]
            h.providers.flush(30)

    with Herma.open(place.home, flags={"embedding.model": "none"}) as h:
        session = h.session()
        if place.case.name == "holographic":
            for number in range(50):
                call_in(session, "fact_store", action="add", content=f"Heron {number} nests by weir {number}.")
        block = session.system_prompt
        assert place.make().about.splitlines()[0] in block
        turns(session, 0, 20)
        session.close("switched")
        session = h.session(resume=session.id)
        assert session.system_prompt == block
        turns(session, 20, 35)
        session.before_compression()
        session.continue_with([Message("user", "In short: herons nest by weirs.")])
        turns(session, 35, 50)
        session.close()
        health = h.providers.status(ask=False).health
    assert (health.failures, health.timeouts) == (0, 0), health.last
    assert recalled >= 3, "not everything is recalled again, but something is"


def call_in(session: Any, tool: str, **arguments: Any) -> Any:
    return json.loads(session.call_tool(tool, arguments))


@every()
def test_set_up_and_tried_on_the_command_line(place: Place) -> None:
    for file in (".env", f"{place.case.name}.json"):
        (place.home / file).unlink(missing_ok=True)
    words = [f"--set={key}={value}" for key, value in place.case.settings.items()]
    if place.service is not None:
        key = "apiKey" if place.case.name in ("honcho", "hindsight") else "api_key"
        words += [f"--set={place.case.url}={place.service.url}", f"--set={key}={KEY}"]
    done = herma(place.home, "providers", "setup", place.case.name, "--defaults", "--no-install", *words)
    assert done.code == 0, done.err
    assert "is not available" not in done.err
    stored = place.make().load_settings()
    assert {key: stored[key] for key in place.case.settings} == place.case.settings
    if place.service is not None:
        assert (place.home / ".env").stat().st_mode & 0o777 == 0o600
        assert KEY in (place.home / ".env").read_text()
        assert KEY not in (place.home / place.make().file).read_text()
        assert KEY not in done.out + done.err
    tried = herma(place.home, "providers", "test", place.case.name, "--wait", "2", "--json").json
    assert tried["recalled"], tried["calls"]
    state = herma(place.home, "providers", "status", "--json").json["providers"][0]
    assert (state["available"], state["why"]) == (True, None)
    assert state["details"]["mode"] or state["details"]


@pytest.mark.parametrize(
    ("place", "given", "says"),
    [
        ("mem0", "mode=moon", "unknown value 'moon'"),
        ("mem0", "timeout=soon", "timeout: 'soon' is not a number"),
        ("honcho", "dialecticDepth=9", "dialecticDepth: 9 is not between 1 and 3"),
        ("hindsight", "recall_tags=x", "recall_tags: 'x' is not JSON for an array"),
        ("holographic", "auto_extract=maybe", "auto_extract: 'maybe' is not true or false"),
    ],
    indirect=["place"],
)
def test_wrong_settings_change_nothing(place: Place, given: str, says: str) -> None:
    file = place.home / place.make().file
    before = file.read_bytes() if file.exists() else None
    done = herma(place.home, "providers", "setup", place.case.name, "--defaults", "--no-install", "--set", given)
    assert done.code != 0
    assert says in done.err
    assert (file.read_bytes() if file.exists() else None) == before
    assert not (place.home / "config.yaml").exists()
    key, _, value = given.partition("=")
    file.parent.mkdir(exist_ok=True)
    file.write_text(json.dumps({key: value}))
    assert says in place.make().unavailable_reason(), "the same in a file that was edited by hand"
    file.write_text("{")
    assert "cannot be read as JSON" in place.make().unavailable_reason()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mem0", "MEM0_API_KEY is not set"),
        ("honcho", "neither HONCHO_API_KEY nor HONCHO_URL is set"),
        ("supermemory", "SUPERMEMORY_API_KEY is not set"),
        ("hindsight", "HINDSIGHT_API_KEY is not set"),
        ("retaindb", "RETAINDB_API_KEY is not set"),
        ("byterover", "the program brv is not installed"),
    ],
)
def test_one_that_lacks_something_says_what(
    name: str, says: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if CASES[name].package and not find_spec(CASES[name].package):
        pytest.skip(f"the package {CASES[name].package} is not installed (it is one of herma[dev])")
    assert says in load(find(home, name), home).unavailable_reason()


# ── one service's own ways ──


@every("honcho")
def test_honcho_asks_in_its_cadence(place: Place) -> None:
    provider = place.begin(contextCadence=3, dialecticCadence=2, injectionFrequency="every-turn")
    for number in range(1, 8):
        provider.on_turn_start(number, "Tell me about the herons.")
        shown = provider.prefetch("Tell me about the herons.")
        assert "They count herons." in shown
        provider.sync_turn(f"Turn {number}", "ok")
        provider.queue_prefetch("Tell me about the herons.")
    paths = [path for _, path, _ in place.service.calls]
    assert sum("/chat" in path for path in paths) == 4, "turns 1, 3, 5 and 7"
    assert sum("/context" in path for path in paths) == 3, "turns 1, 4 and 7"


@every("honcho")
def test_honcho_drops_old_answers_and_asks_less_often_if_there_are_none(place: Place) -> None:
    provider = place.begin(observationMode="unified")
    provider.on_turn_start(1, "Tell me about the herons.")
    assert "They count herons." in provider.prefetch("Tell me about the herons.")
    place.service.kept["chat"] = ""
    for number in range(2, 40):
        provider.on_turn_start(number, "Tell me about the herons.")
        provider.queue_prefetch("Tell me about the herons.")
    assert "They count herons." not in provider.prefetch("Tell me about the herons.")
    asked = sum("/chat" in path for path in place.service.paths())
    assert asked < 12, "the cadence grows up to eight times"


@pytest.mark.parametrize(
    ("settings", "told", "session", "peer"),
    [
        ({}, {"folder": "/work/garden"}, "work-garden", "user"),
        ({"sessionStrategy": "global", "peerName": "Ann"}, {}, "global", "Ann"),
        ({"sessionStrategy": "per-session"}, {"folder": "/x"}, "s-1", "user"),
        ({"sessions": {"/x": "plans"}, "sessionPeerPrefix": True}, {"folder": "/x"}, "user-plans", "user"),
        ({"userPeerAliases": {"u7": "Bob"}}, {"user_id": "u7", "chat_id": "c1"}, "chat-c1", "Bob"),
        ({"runtimePeerPrefix": "tg-"}, {"user_id": "u 7"}, "s-1", "tg-u-7"),
        ({"peerName": "Ann", "pinPeerName": True}, {"user_id": "u7"}, "s-1", "Ann"),
        ({"hosts": {"herma": {"peerName": "Zoe"}}, "peerName": "Ann"}, {}, "s-1", "Zoe"),
    ],
)  # fmt: skip
@every("honcho")
def test_honcho_names(place: Place, settings: Json, told: Json, session: str, peer: str) -> None:
    file = place.home / "honcho.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **settings}))
    provider = place.make()
    place.begun.append(provider)
    provider.initialize("s-1", **told)
    assert (provider.session_name, provider.user_name) == (session, peer)


@every("honcho")
def test_honcho_writes_as_often_as_it_is_told(place: Place) -> None:
    provider = place.begin(writeFrequency="3", messageMaxChars=100)
    for number in range(1, 8):
        provider.sync_turn(f"Turn {number}", "x" * 250)
    sent = place.service.bodies("/messages")
    assert [len(body["messages"]) for body in sent] == [12, 12], "three turns of one and three parts"
    assert sent[0]["messages"][2]["content"].startswith("[continued] xx")
    provider.on_session_switch("s-2", parent_session_id="s-1")
    assert len(place.service.bodies("/messages")) == 3


@every("honcho")
def test_honcho_signs_in_with_a_code(place: Place) -> None:
    (place.home / ".env").unlink()
    words = ("--set", "auth=oauth", "--set", f"baseUrl={place.service.url}", "--defaults", "--no-install")
    for kept, says in (
        ({"about": {}}, "has no sign-in with a code"),
        ({"code lives": 999}, "gives no code: Who are you?"),
        ({"code lives": 0.1}, "Nobody is signed in"),
        ({"asked": True, "token": {"token_type": "bearer"}}, "does not answer as OAuth requires"),
    ):
        place.service.kept = kept
        refused = herma(place.home, "providers", "setup", "honcho", *words)
        assert (refused.code, says in refused.err) == (3, True), refused.err
    assert "nobody has signed in" in place.make().unavailable_reason()
    place.service.kept = {"code lives": 30}
    done = herma(place.home, "providers", "setup", "honcho", *words)
    assert "/activate and approve the code ABCD-EFGH" in done.err
    file = place.home / "honcho.oauth.json"
    assert file.stat().st_mode & 0o777 == 0o600
    assert "access-1" not in done.out + done.err + (place.home / "honcho.json").read_text()
    provider, other = place.begin(), place.begin()
    for each in (provider, other):
        each.sync_turn("The grey heron nests by the weir.", "Noted.")
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "expires_at": 0}))
    provider.shutdown()
    provider = place.begin()
    for each in (provider, other, provider):
        each.begin()
        each.sync_turn("It left.", "Noted.")
    assert place.service.kept["number"] == 2, "one asks for a new token, the others take it"
    assert place.service.headers[-1]["authorization"] == "Bearer access-2"
    place.service.kept["refresh"] = "withdrawn"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), "expires_at": 0}))
    provider.begin()
    with pytest.raises(Exception, match="refused to renew the sign-in"):
        provider.prefetch("Where does the heron nest?")
    file.write_text("{")
    provider.begin()
    with pytest.raises(Exception, match="no sign-in that can be used"):
        provider.prefetch("Where does the heron nest?")


@every("honcho")
def test_honcho_knows_what_the_home_knows(place: Place) -> None:
    """A session without messages gets the home's files; it is opened when it is needed, or at once."""
    (place.home / "memories").mkdir(exist_ok=True)
    (place.home / "memories" / "USER.md").write_text("Likes birds.")
    (place.home / "SOUL.md").write_text("Be brief.")
    place.begin(recallMode="tools").shutdown()
    assert place.service.calls == []
    rules = {"user": {"observeMe": False}, "ai": {"observeOthers": False}}
    place.begin(initOnSessionStart=True, sessionStrategy="global", observation=rules).shutdown()
    assert list(place.service.stored.values()) == ["USER.md", "SOUL.md"]
    assert place.service.bodies("/sessions/global/peers") == [
        {
            "user": {"observe_me": False, "observe_others": False},
            "herma": {"observe_me": True, "observe_others": False},
        }
    ]
    place.begin().shutdown()
    assert len(place.service.stored) == 2, "it has them now"


@every("honcho")
def test_honcho_asks_a_question_that_the_auxiliary_model_wrote(place: Place) -> None:
    place.use()
    place.make(queryRewrite=True)
    with ScriptedModel(lambda request: "Which birds does the user watch?") as model:
        flags = {"embedding.model": "none", "model.url": model.url, "model.name": "scripted", "review.enabled": False}
        with Herma.open(place.home, flags=flags) as h, h.session() as session:
            for text in ("And those from before, again?", "And the others by the weir?"):
                talk(session, text, reply="Herons.")
                assert h.providers.flush(30)
    asked = [body["query"] for body in place.service.bodies("/chat")]
    assert asked[0].endswith("And those from before, again?"), "the first turn does not wait for a model"
    assert asked[1].endswith("Which birds does the user watch?")


FAKE_SERVER = """#!{python}
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.path.memory_services import {routes}, MemoryService
at = int(os.environ.get("HINDSIGHT_API_PORT") or sys.argv[-1])
with open({home!r} + "/started", "a") as log:
    print(os.environ.get("HINDSIGHT_API_LLM_MODEL", ""), file=log)
with MemoryService({routes}, key="", port=at):
    while not Path({home!r}, "stop").exists():
        time.sleep(0.05)
"""


def fake_server(home: Path, name: str, routes: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Install a program that is a server; return the address that it is to have."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{found.getsockname()[1]}"
    root = str(Path(__file__).parents[2])
    (home / "bin").mkdir(parents=True)
    program = home / "bin" / name
    program.write_text(FAKE_SERVER.format(python=sys.executable, root=root, routes=routes, home=str(home)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
    return url


def answers(url: str) -> bool:
    try:
        return bool(urllib.request.urlopen(f"{url}/health", timeout=5).status == 200)
    except OSError:
        return False


def test_hindsight_starts_its_own_server(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("hindsight_client")
    url = fake_server(home, "hindsight-api", "HINDSIGHT", monkeypatch)
    place = Place(CASES["hindsight"], home)
    embedded: Json = {"mode": "local_embedded", "api_url": url, "llm_model": "small", "idle_timeout": 1.0}
    refused = place.make(**embedded).unavailable_reason()
    assert ("does not run as root" in refused) == (os.geteuid() == 0)
    provider = place.begin(**embedded, database_url="postgresql://db/x")
    assert not answers(url), "it is started when it is needed"
    provider.sync_turn("The grey heron nests by the weir.", "Noted.")
    assert "nests by the weir" in place.begin().prefetch("Where does the heron nest?")
    assert (home / "started").read_text() == "small\n", "one server for all"
    while answers(url):
        time.sleep(0.1)  # unused for a second
    (home / "bin" / "hindsight-api").write_text("#!/bin/sh\necho no model; exit 3\n")
    with pytest.raises(ProviderError, match=r"ended.*no model"):
        place.begin().prefetch("Where does the heron nest?")
    place.shut()


def test_a_key_that_a_service_repeats_is_not_shown() -> None:
    pytest.importorskip("httpx2")
    with MemoryService({"GET /x": lambda s, body, query, names: (400, {"error": s.headers[-1]})}, key="") as service:
        for header, value in (("Authorization", "Bearer sk-1234"), ("X-API-Key", "sk-1234")):
            http = Http("A", service.url, {header: value}, 5.0)
            with closing(http), pytest.raises(ProviderError, match="answered 400") as refused:
                http.call("GET", "/x")
            assert "sk-1234" not in str(refused.value)


def test_a_server_ends_with_its_home(home: Path) -> None:
    lived_on = home / "lived on"
    server = f"import pathlib, time; time.sleep(10); pathlib.Path({str(lived_on)!r}).touch()"
    supervise([str(home / "gone"), "0.1", sys.executable, "-c", server])
    assert not lived_on.exists()


def test_openviking_starts_a_server_and_reads_the_settings_of_its_program(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("httpx2")
    url = fake_server(home, "openviking-server", "OPENVIKING", monkeypatch)
    file = home / "ovcli.conf"
    file.write_text(json.dumps({"url": url, "agent_id": "gardener", "api_key": "k", "timeout": 9}))
    monkeypatch.setenv("OPENVIKING_CLI_CONFIG_FILE", str(file))
    provider = Place(CASES["openviking"], home).begin(autostart=True)
    try:
        assert (provider.values["endpoint"], provider.values["agent"], provider.values["api_key"]) == (
            url,
            "gardener",
            "k",
        )
        assert call(provider, "viking_remember", content="Likes tea.")["stored"]
        provider.shutdown()
    finally:
        (home / "stop").touch()


@every("openviking")
def test_openviking_that_asks_for_a_trusted_identity_gets_it(place: Place) -> None:
    provider = place.begin(account="garden")
    found = place.service._find

    def trusted(method: str, path: str, body: Any, query: dict[str, str]) -> tuple[int, Any]:
        if "x-openviking-account" not in place.service.headers[-1]:
            return 403, {"status": "error", "error": {"message": "A trusted identity is required."}}
        answered: tuple[int, Any] = found(method, path, body, query)
        return answered

    place.service._find = trusted
    assert call(provider, "viking_remember", content="Likes tea.")["stored"]
    assert place.service.headers[-1]["x-openviking-account"] == "garden"


@every("retaindb")
def test_retaindb_learns_who_the_agent_is_once(place: Place) -> None:
    (place.home / "SOUL.md").write_text("Be brief.")
    for soul in ("", "", "Be kind."):
        (place.home / "SOUL.md").write_text(soul) if soul else None
        provider = place.begin()
        provider.sync_turn("The grey heron nests by the weir.", "Noted.")
        provider.shutdown()
    seeds = place.service.bodies("/agent/herma/seed")
    assert [seed["content"] for seed in seeds] == ["Be brief.", "Be kind."]


@every("retaindb-old")
def test_retaindb_of_an_older_server(place: Place) -> None:
    provider = place.begin()
    assert call(provider, "retaindb_remember", content="Likes tea.")["stored"]
    assert call(provider, "retaindb_forget", memory_id="m-1") == {"success": True}
    provider.on_memory_write("add", "user", "Likes herons.")
    assert list(place.service.stored.values()) == ["Likes herons."]


@every("supermemory")
def test_supermemory_answers_to_other_names(place: Place) -> None:
    place.use()
    with Herma.open(place.home, flags={"embedding.model": "none"}) as h, h.session() as session:
        assert "supermemory-" not in json.dumps(session.tools), "they cost nothing"
        assert call_in(session, "supermemory-save", content="Likes tea.")["stored"]
        assert call_in(session, "supermemory-search", query="tea")["count"] == 1
        assert call_in(session, "supermemory-profile")["static"] == ["Likes birds."]
        assert call_in(session, "supermemory-forget", query="tea")["forgotten"] == 1


@every("hindsight")
@pytest.mark.parametrize(("version", "appends"), [("1.1.0", True), ("0.5.0", True), ("0.4.9", False)])
def test_hindsight_appends_where_the_server_can(place: Place, version: str, appends: bool) -> None:
    place.service.kept["version"] = version
    provider = place.begin(retain_every_n_turns=2, retain_tags=["garden"], bank_id_template="{profile}-{platform}")
    for number in range(3):
        provider.sync_turn(f"Turn {number}", "ok")
    provider.on_session_switch("s-2", parent_session_id="s-1")
    provider.sync_turn("Turn 3", "ok")
    provider.on_session_end([])
    items = [body["items"][0] for body in place.service.bodies("/default-cli/memories")]
    assert [item["content"].count("User:") for item in items] == [2, 1, 1]
    assert [item.get("update_mode") == "append" for item in items] == [appends] * 3
    assert items[1]["tags"] == ["garden", "session:s-1"]
    assert items[2]["tags"] == ["garden", "session:s-2", "parent:s-1"]


@every("supermemory")
def test_supermemory_stores_conversations_in_its_namespace(place: Place) -> None:
    provider = place.begin(container_tag="agent {identity}", profile_frequency=3)
    shown = []
    for number in range(1, 6):
        provider.on_turn_start(number, "Where do herons nest?")
        shown.append("Likes birds." in provider.prefetch("Where do herons nest?"))
        provider.sync_turn(f"Turn {number} about herons", "ok")
    assert shown == [True, False, False, True, False]
    provider.sync_turn("fine", "ok")
    assert not place.service.bodies("/document"), "a conversation is stored when it ends"
    provider.on_session_switch("s-1", rewound=True)
    provider.on_session_end([])
    (body,) = place.service.bodies("/ns/agent_default/document")
    assert body["content"].count("user:") == 4, "one-word turns and turns that were taken back are left out"
    assert {headers["x-sm-source"] for headers in place.service.headers} == {"herma"}


@every("supermemory")
def test_supermemory_lets_tools_name_the_namespaces_that_are_allowed(place: Place) -> None:
    provider = place.begin(enable_custom_container_tags=True, custom_containers=["work"])
    assert "container_tag" in json.dumps(provider.get_tool_schemas())
    call(provider, "supermemory_store", content="Likes tea.", container_tag="work")
    assert place.service.paths()[-1] == "/ns/work/document"
    assert "Allowed: work" in call(provider, "supermemory_store", content="x", container_tag="home")["error"]


@every("openviking")
def test_openviking_gets_the_turn_with_its_tools(place: Place) -> None:
    provider = place.begin()
    own, other = (
        {"id": name, "type": "function", "function": {"name": name, "arguments": '{"a": 1}'}}
        for name in ("viking_search", "read_file")
    )
    turn = [
        {"role": "user", "content": "before"},
        {"role": "assistant", "content": "ok"},
        {"role": "user", "content": "Read it."},
        {"role": "assistant", "content": "", "tool_calls": [own, other]},
        {"role": "tool", "tool_call_id": "viking_search", "content": "secret"},
        {"role": "tool", "tool_call_id": "read_file", "content": "Tulips."},
        {"role": "assistant", "content": "Tulips in spring."},
    ]
    provider.sync_turn("Read it.", "Tulips in spring.", session_id="s/1", messages=turn)
    (body,) = place.service.bodies("/messages/batch")
    assert [[part["type"] for part in message["parts"]] for message in body["messages"]] == [
        ["text"],
        ["tool"],
        ["text"],
    ]
    assert body["messages"][1]["parts"][0]["tool_input"] == {"a": 1}
    assert "secret" not in json.dumps(body)
    provider.on_session_end([])
    provider.on_session_end([])
    assert sum("/commit" in path for path in place.service.paths()) == 1, "there is nothing more to commit"


@every("retaindb")
def test_retaindb_keeps_turns_on_disk_until_the_server_has_them(place: Place) -> None:
    provider = place.begin()
    place.service.status = 503
    for number in range(3):
        with pytest.raises(Exception, match="503"):
            provider.sync_turn(f"Turn {number} about herons", "ok")
    provider.shutdown()  # the process ends; another one sends what waits
    place.service.status = 200
    provider = place.begin("s-2")
    assert provider.queue.waiting() == 3
    provider.sync_turn("Turn 3 about herons", "ok")
    texts = [body["messages"][0]["content"] for body in place.service.bodies("/ingest/session")[-4:]]
    assert texts == [f"Turn {number} about herons" for number in range(4)], "in their order"
    assert provider.queue.waiting() == 0
    place.service.status = 400
    with pytest.raises(Exception, match="400"):
        provider.sync_turn("Something that it refuses", "ok")
    assert provider.queue.waiting() == 0, "it is not sent again and again"


@every("byterover")
def test_byterover_that_hangs_is_ended(place: Place) -> None:
    provider = place.begin(query_timeout=1.0)
    (place.home / "byterover" / "fault.txt").write_text("30")
    with pytest.raises(Exception, match="did not answer within 1 s"):
        provider.prefetch("Where does the heron nest?")
    assert provider.on_pre_compress([]) == ""


@every("mem0")
def test_one_that_fails_costs_a_session_nothing_but_a_warning(place: Place) -> None:
    place.use()
    place.fault(True)
    with Herma.open(place.home, flags={"embedding.model": "none"}) as h:
        with pytest.warns(HermaWarning, match="Mem0 answered 500"), h.session() as session:
            assert talk(session, "Where do the herons nest?")[-1]["content"] == "Where do the herons nest?"
        assert h.providers.status(ask=False).health.failures >= 2, "the recall, and the turn that was handed over"
