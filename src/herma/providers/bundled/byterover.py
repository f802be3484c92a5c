"""ByteRover: a tree of knowledge that the program `brv` keeps in a folder of the home."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from herma.errors import ProviderError
from herma.providers.bundled import (
    BundledProvider,
    Json,
    ToolProblem,
    clean,
    field,
    secret_field,
    text,
    tool,
    transcript,
)

PLACES = ("~/.brv-cli/bin", "/usr/local/bin", "~/.npm-global/bin")
"""Folders with `brv` besides those of PATH."""
QUERY, CURATE, STATUS = 10.0, 120.0, 15.0
LONGEST_QUERY, LONGEST_CURATED, LONGEST_ANSWER = 5_000, 20_000, 8_000
LEAST_QUERY, LEAST_ANSWER = 10, 20
ROOM = 4_000


class ByteRover(BundledProvider):
    """Questions to `brv`, and texts for it to curate."""

    name = "byterover"
    file = "byterover.json"
    about = "ByteRover memory\nKnowledge about the user's projects, curated from earlier work."
    budget = f"{ROOM:,} characters"
    shown = ("auto_extract",)
    section = ("memory", "byterover")
    fields: ClassVar[Sequence[Json]] = (
        secret_field("api_key", "BRV_API_KEY", "https://app.byterover.dev"),
        field("auto_extract", True, "curate turns, memory entries and what a compression leaves out"),
    )
    advanced: ClassVar[Sequence[Json]] = (
        field("query_timeout", QUERY, "seconds for a recall", minimum=1.0, maximum=60.0),
    )

    def program(self) -> str:
        """Return the path of `brv`, or nothing."""
        places = [*os.get_exec_path(), *(str(Path(place).expanduser()) for place in PLACES)]
        return shutil.which("brv", path=os.pathsep.join(places)) or ""

    def missing(self) -> str:
        return "" if self.program() else "the program brv is not installed (npm install -g byterover-cli)"

    @property
    def folder(self) -> Path:
        return self.home / "byterover"

    def begin(self) -> None:
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)

    def ask(self, *words: str, timeout: float) -> str:
        """Run `brv` and return what it prints; `ProviderError` if it fails or takes too long."""
        program = self.program()
        if not program:
            raise ProviderError(self.missing())
        path = os.pathsep.join([str(Path(program).parent), os.environ.get("PATH", "")])  # brv starts brv
        key = {"BRV_API_KEY": self.values["api_key"]} if self.values.get("api_key") else {}
        try:
            done = subprocess.run(
                [program, *words],
                cwd=self.folder,
                env={**os.environ, **key, "PATH": path},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
            )
        except subprocess.TimeoutExpired as exc:
            raise ProviderError(f"brv {words[0]} did not answer within {timeout:g} s.") from exc
        except OSError as exc:
            raise ProviderError(f"brv cannot be run: {exc}") from exc
        if done.returncode:
            why = (done.stderr or done.stdout).decode("utf-8", "replace").split()
            raise ProviderError(f"brv {words[0]} ended with {done.returncode}: {' '.join(why)[:300]}")
        return clean(done.stdout.decode("utf-8", "replace"))

    def recall(self, query: str) -> str:
        if len(query) < LEAST_QUERY:
            return ""
        answer = self.ask("query", "--", query[:LONGEST_QUERY], timeout=self.values["query_timeout"])
        return answer[:ROOM] if len(answer) >= LEAST_ANSWER else ""

    def curate(self, content: str) -> None:
        """Hand text over, if that is wanted."""
        content = clean(content, LONGEST_QUERY)
        if self.values["auto_extract"] and len(content) >= LEAST_QUERY:
            self.ask("curate", "--", content, timeout=CURATE)

    def store_turn(self, user: str, assistant: str, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        half = LONGEST_QUERY // 2 - 20
        if len(user) >= LEAST_QUERY:
            self.curate(f"User: {user[:half]}\nAssistant: {assistant[:half]}")

    def mirror(self, action: str, target: str, content: str, old: str) -> None:  # noqa: ARG002
        if action in ("add", "replace") and content:
            self.curate(f"[{'user profile' if target == 'user' else 'notes'}] {content}")

    def on_pre_compress(self, messages: Sequence[Mapping[str, Any]]) -> str:
        """Curate what is about to be summarised, in the background: `brv` returns at once."""
        said = transcript(messages, 500)[-10:]
        content = clean("\n".join(f"{one['role']}: {one['content']}" for one in said), LONGEST_QUERY)
        if self.values["auto_extract"] and len(content) >= LEAST_QUERY:
            self.ask("curate", "--detach", "--", content, timeout=STATUS)
        return ""

    @tool("Ask the knowledge tree a question.", reads=True, query=text("The question."))
    def brv_query(self, query: str) -> Json:
        return {"result": self.ask("query", "--", query[:LONGEST_QUERY], timeout=CURATE / 3)[:LONGEST_ANSWER]}

    @tool("Add knowledge to the tree.", content=text("What to keep."))
    def brv_curate(self, content: str) -> Json:
        if len(content) > LONGEST_CURATED:
            raise ToolProblem(f"content may have {LONGEST_CURATED:,} characters. Nothing was curated.")
        return {"result": self.ask("curate", "--", content, timeout=CURATE / 3)[:LONGEST_ANSWER]}

    @tool("Show the state of the knowledge tree.", reads=True)
    def brv_status(self) -> Json:
        return {"result": self.ask("status", timeout=STATUS)[:LONGEST_ANSWER]}
