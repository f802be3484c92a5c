"""`herma mcp`, with the official client in this process, over stdio and over HTTP, and with the official inspector."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from contextlib import asynccontextmanager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from mcp.types import Implementation
from tests.homes import conversation, skill_text

from herma import Herma
from herma.mcp.server import LONGEST_RESULT, MemoryServer, complaint, offered
from herma.mcp.sessions import find_session, note_activity, session_of
from herma.prompt.tokens import estimate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Iterator

CODE = Implementation(name="claude-code", version="2.1")


def served(home: Path) -> StdioServerParameters:
    """The program as a client starts it."""
    arguments = ["-m", "herma", "mcp", "--home", str(home)]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ), cwd=home.parent)


def inside(h: Herma, client: str = "") -> MemoryServer:
    """The same server in this process."""
    return MemoryServer(lambda: nullcontext(h), client=client)


@asynccontextmanager
async def connected(target: Any, mode: str = "auto", info: Implementation = CODE) -> AsyncIterator[Client]:
    async with Client(target, mode=mode, client_info=info) as client:
        yield client


async def called(client: Client, name: str, **arguments: Any) -> tuple[str, bool]:
    result = await client.call_tool(name, arguments)
    [content] = result.content
    assert content.type == "text"
    return content.text, bool(result.is_error)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 100))


@contextmanager
def web_server(home: Path) -> Iterator[dict[str, Any]]:
    command = [sys.executable, "-m", "herma", "serve", "--port", "0", "--json", "--home", str(home)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        text = ""
        while not text.rstrip().endswith("}") or text.count("{") != text.count("}"):
            text += process.stdout.readline()
        yield json.loads(text)
        process.terminate()


@asynccontextmanager
async def over_http(url: str, token: str, mode: str) -> AsyncIterator[Client]:
    import httpx2

    async with (
        httpx2.AsyncClient(headers={"Authorization": f"Bearer {token}"}) as http,
        connected(streamable_http_client(f"{url}/mcp", http_client=http), mode) as client,
    ):
        yield client


def test_the_tool_list_is_small_and_says_what_writes(h: Herma) -> None:
    tools = offered(h)
    assert [tool.name for tool in tools] == [
        *("memory", "session_search", "skills_list", "skill_view", "skill_manage", "recall")
    ]
    sent = json.dumps([tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in tools])
    assert estimate(sent) < 2_000
    reads = {tool.name for tool in tools if tool.annotations and tool.annotations.read_only_hint}
    assert reads == {"session_search", "skills_list", "skill_view", "recall"}
    known = {one["function"]["name"]: one["function"]["parameters"] for one in h.tools.schemas()}
    for tool in tools[:-1]:
        for name, field in tool.input_schema["properties"].items():
            assert field["type"] == known[tool.name]["properties"][name]["type"]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"task": "x"}, ""),
        ({"task": "x", "budget_tokens": 200}, ""),
        ({}, "task is required."),
        ({"task": ""}, "task is required."),
        ({"task": 3}, "task must be of type string, not int."),
        ({"task": "x", "budget_tokens": True}, "budget_tokens must be of type integer, not bool."),
        ({"task": "x", "budget_tokens": 5}, "budget_tokens must be between 100 and 6000, not 5."),
        ({"task": "x", "depth": 1}, "Unknown argument 'depth'. Allowed: task, budget_tokens."),
    ],
)
def test_arguments_are_checked(h: Herma, arguments: dict[str, Any], wrong: str) -> None:
    assert complaint(arguments, offered(h)[-1].input_schema) == wrong


@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_a_client_reads_and_writes_over_stdio(home: Path, mode: str) -> None:
    with Herma.open(home) as h:
        h.memory.add("memory", "The staging database listens on port 5433.")
        conversation(h, "Which region do the backups go to?", "The backups go to eu-central-1.")

    async def work() -> None:
        async with connected(served(home), mode) as client:
            assert client.instructions is not None
            assert "port 5433" in client.instructions
            steps: list[float] = []

            async def note(progress: float, total: float | None, message: str | None) -> None:
                steps.append(progress)

            result = await client.call_tool("recall", {"task": "the staging backups"}, progress_callback=note)
            text = getattr(result.content[0], "text", "")
            assert text.startswith("<memory-context>")
            assert "- The staging database listens on port 5433. [memory]" in text
            assert "eu-central-1" in text
            assert "around_message_id=" in text
            assert steps == [0, 1, 2, 3, 4]
            answer, failed = await called(client, "memory", action="add", target="user", content="Prefers tabs.")
            assert (json.loads(answer)["success"], failed) == (True, False)
            assert await called(client, "memory", action="add", target="nope", content="x") == (
                "{\"success\": false, \"error\": \"Invalid target 'nope'. Use 'memory' or 'user'.\"}",
                True,
            )
            assert (await called(client, "nothing"))[1]
            found, failed = await called(client, "session_search", query="backups region")
            assert "eu-central-1" in found
            assert not failed

    run(work())
    with Herma.open(home) as h:
        [change, _] = h.memory.changes()
        assert change.author.session is not None
        session = h.transcripts.get(change.author.session)
        assert session is not None
        assert (session.source, session.imported is not None) == ("claude-code", True)


def test_resources_and_prompts(h: Herma) -> None:
    h.memory.add("user", "Lives in Turin.")
    h.skills.create("deploy", skill_text("deploy", body="1. Run make deploy."))
    session = conversation(h, "Hello there", "Hi.")

    async def work() -> None:
        async with connected(inside(h)) as client:

            async def read(uri: str) -> str:
                [content] = (await client.read_resource(uri)).contents
                return str(getattr(content, "text", ""))

            uris = [str(one.uri) for one in (await client.list_resources()).resources]
            assert "Lives in Turin." in await read("herma://snapshot")
            assert "Lives in Turin." in await read("herma://memory/USER.md")
            assert await read("herma://memory/MEMORY.md") == ""
            assert [one["id"] for one in json.loads(await read("herma://sessions"))["sessions"]] == [session]
            assert "**user**: Hello there" in await read(f"herma://sessions/{session}")
            assert "make deploy" in await read("herma://skills/deploy")
            for uri in uris:
                await read(uri)
            templates = (await client.list_resource_templates()).resource_templates
            assert [one.uri_template for one in templates] == ["herma://sessions/{id}", "herma://skills/{name}"]
            for missing in ("herma://sessions/none", "herma://skills/none", "herma://x"):
                with pytest.raises(MCPError, match="There is no resource"):
                    await read(missing)
            # The snapshot stays as it was when the session began; the file does not.
            await called(client, "memory", action="add", target="user", content="Moved to Genoa.")
            assert "Genoa" not in await read("herma://snapshot")
            assert "Genoa" in await read("herma://memory/USER.md")
            assert [one.name for one in (await client.list_prompts()).prompts] == ["start_session", "review"]
            started = await client.get_prompt("start_session", {"task": "the trip to Turin"})
            said = getattr(started.messages[0].content, "text", "")
            assert "Lives in Turin." in said
            assert "What is known for the task" in said
            review = await client.get_prompt("review")
            assert "Review this conversation" in getattr(review.messages[0].content, "text", "")
            with pytest.raises(MCPError, match="There is no prompt"):
                await client.get_prompt("other")

    run(work())


def test_several_clients_at_once_lose_nothing(home: Path) -> None:
    async def writes(name: str) -> None:
        async with connected(served(home), info=Implementation(name=name, version="1")) as client:
            for number in range(5):
                answer, _ = await called(
                    client, "memory", action="add", target="memory", content=f"Fact {number} of {name}."
                )
                assert json.loads(answer)["success"]

    async def work() -> None:
        async with anyio.create_task_group() as group:
            for name in ("codex-mcp-client", "gemini-cli-mcp-client", "Zed"):
                group.start_soon(writes, name)

    run(work())
    with Herma.open(home) as h:
        assert len(h.memory.entries("memory")) == 15
        sources = {h.transcripts.get(str(one.author.session)).source for one in h.memory.changes()}  # type: ignore[union-attr]
        assert sources == {"codex", "gemini", "zed"}


def test_a_cancelled_call_leaves_the_server_usable(h: Herma) -> None:
    for number in range(100):
        conversation(h, f"Question {number} about the staging database", "Answer.")

    async def work() -> None:
        async with connected(inside(h)) as client:
            for _ in range(3):
                with anyio.move_on_after(0.01):
                    await client.call_tool("recall", {"task": "the staging database"})
            answer, failed = await called(client, "memory", action="add", target="memory", content="Still here.")
            assert json.loads(answer)["success"]
            assert not failed

    run(work())


def test_long_results_are_cut(h: Herma) -> None:
    session = conversation(h, "word " * 40_000, "Fine.")

    async def work() -> None:
        async with connected(inside(h)) as client:
            text, _ = await called(client, "session_search", session_id=session)
            assert len(text) <= LONGEST_RESULT + 100
            [content] = (await client.read_resource(f"herma://sessions/{session}")).contents
            assert len(getattr(content, "text", "")) <= LONGEST_RESULT + 100

    run(work())


def test_writes_belong_to_the_session_that_the_clients_hook_named(h: Herma, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLAUDE_PROJECT_DIR", str(h.home))
    with session_of(h.home, "claude-code", "5f0c-77") as session:
        session.folder, session.seen = str(h.home), h.clock()
        assert find_session(h.home, "claude-code", folder=str(h.home), at=h.clock()) is None  # not written yet

    async def work() -> None:
        async with connected(inside(h)) as client:
            await called(client, "memory", action="add", target="memory", content="Tests run with xdist.")

    run(work())
    [change] = h.memory.changes()
    assert change.author.session == "claude-code-5f0c-77"
    assert h.transcripts.get("claude-code-5f0c-77") is None  # its transcript brings it


def test_a_session_that_a_call_names_is_the_one_of_the_hook(h: Herma) -> None:
    """Codex names its thread in each call; the transcript of the thread brings the call."""
    with session_of(h.home, "codex", "thread-7"):
        pass

    async def work() -> None:
        async with connected(inside(h), info=Implementation(name="codex-mcp-client", version="1")) as client:
            for thread in ("thread-7", "thread-8"):
                arguments = {"action": "add", "target": "memory", "content": f"Note of {thread}."}
                meta: Any = {"x-codex-turn-metadata": {"session_id": thread}}
                await client.call_tool("memory", arguments, meta=meta)

    run(work())
    assert {change.author.session for change in h.memory.changes()} == {"codex-thread-7", "codex-thread-8"}
    assert h.transcripts.get("codex-thread-7") is None
    assert h.transcripts.get("codex-thread-8") is not None


def test_what_repeats_another_conversation_waits_for_a_person(h: Herma) -> None:
    content = "The vault answers at https://vault.example.net:8200 in rack seven."
    conversation(h, "What is the address?", content)

    async def work() -> None:
        async with connected(inside(h)) as client:
            await called(client, "session_search", query="vault address rack")
            answer, _ = await called(client, "memory", action="add", target="memory", content=content)
            assert json.loads(answer)["staged"]

    run(work())


def test_a_client_whose_hook_showed_the_notes_is_not_shown_them_twice(h: Herma) -> None:
    h.memory.add("memory", "The staging database listens on port 5433.")
    assert "5433" in inside(h, "claude-code").instructions
    note_activity(h.home, "claude-code", "start", "session-start", h.clock())
    assert "5433" not in inside(h, "claude-code").instructions


def test_the_same_over_http_for_who_has_the_token(home: Path) -> None:
    with web_server(home) as server:

        async def work() -> None:
            for mode in ("auto", "legacy"):
                async with over_http(server["url"], server["token"], mode) as client:
                    assert len((await client.list_tools()).tools) == 6
                    content = f"Deploys go out by {mode}."
                    answer, failed = await called(client, "memory", action="add", target="memory", content=content)
                    assert json.loads(answer)["success"], answer
                    assert not failed
                    assert content in (await called(client, "recall", task="deploys"))[0]
            async with over_http(server["url"], server["token"], "legacy") as client:
                assert "Deploys go out by auto." in (client.instructions or "")

        run(work())
        import httpx2

        url, right = f"{server['url']}/mcp", {"Authorization": f"Bearer {server['token']}"}
        ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
        with httpx2.Client() as http:
            assert http.post(url, json=ping).status_code == 403
            assert http.post(url, json=ping, headers={"Authorization": "Bearer wrong"}).status_code == 401
            assert http.post(url, json=ping, headers={**right, "Origin": "http://evil.example"}).status_code == 403
            assert http.post(url, json=ping, headers={**right, "Host": "evil.example"}).status_code == 421


@pytest.mark.slow
def test_the_official_inspector_uses_it(home: Path, inspector: Path) -> None:
    def asked(*words: str) -> dict[str, Any]:
        command = [str(inspector), "--cli", sys.executable, "-m", "herma", "mcp", "--home", str(home), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    assert len(asked("--method", "tools/list")["tools"]) == 6
    given = ["--method", "tools/call", "--tool-name", "memory"]
    for name, value in (("action", "add"), ("target", "memory"), ("content", "Written by the inspector.")):
        given += ["--tool-arg", f"{name}={value}"]
    assert "Entry added" in asked(*given)["content"][0]["text"]
    assert "resources" in asked("--method", "resources/list")


@pytest.fixture
def inspector() -> Path:
    """The inspector, installed with the clients of `test_real_clients`."""
    found = Path(sys.prefix) / "clients" / "node_modules" / ".bin" / "mcp-inspector"
    if not found.exists():
        pytest.skip(f"the MCP inspector is not installed: {found}")
    return found
