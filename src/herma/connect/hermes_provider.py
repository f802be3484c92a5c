"""Hermes Agent: Herma as its external memory provider.

    pip install herma                                   # into the Python that runs Hermes
    python -m herma.connect.hermes_provider           # writes plugins/herma of the Hermes home
    hermes memory setup herma

Hermes finds memory providers in folders, not by entry points, so that folder names this module. Conversations are
stored in Herma's home, and searched before each turn; writes of Hermes to its curated memory go to Herma's as well,
unless both programs share a home.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from herma.app import Herma
from herma.errors import HermaError, UsageError
from herma.integrations.items import ItemLog, recall, scope_of
from herma.prompt.fence import sanitize
from herma.store.files import make_folder, replace_file
from herma.types import Add, Applied, Author, Duplicate, Origin, Remove, Replace, Staged, Who

if TYPE_CHECKING:
    from herma.providers.base import MemoryProvider
    from herma.types import MemoryOp
else:
    try:
        from agent.memory_provider import MemoryProvider
    except ImportError:  # outside of Hermes: its class has the same shape
        from herma.providers.base import MemoryProvider

SOURCE = "hermes"
RECALLED = 5
FILE = "herma.json"
PLUGIN = {
    "__init__.py": '''"""Herma, the memory that other agents share."""

from herma.connect.hermes_provider import HermesProvider


def register(ctx):
    ctx.register_memory_provider(HermesProvider())
''',
    "plugin.yaml": """name: herma
version: 1.0.0
description: "Memory that agents share: transcripts, search, curated notes"
pip_dependencies:
  - herma
""",
}
_QUERY = {"type": "string", "description": "Words or a question."}
TOOLS = [
    {
        "name": "herma_search",
        "description": "Search earlier conversations of all agents that use Herma, by words and by meaning.",
        "parameters": {
            "type": "object",
            "properties": {"query": _QUERY, "limit": {"type": "integer", "minimum": 1, "maximum": 20}},
            "required": ["query"],
        },
    },
    {
        "name": "herma_remember",
        "description": "Keep a short fact for all agents: about the user (user) or about the work (memory).",
        "parameters": {
            "type": "object",
            "properties": {
                "content": {"type": "string", "description": "The fact, one sentence."},
                "target": {"type": "string", "enum": ["memory", "user"]},
            },
            "required": ["content"],
        },
    },
]


class HermesProvider(MemoryProvider):
    """A home of Herma in a session of Hermes."""

    name = "herma"

    def __init__(self) -> None:
        self._app: Herma | None = None
        self._last: int | None = None

    def is_available(self) -> bool:
        return True

    def get_config_schema(self) -> list[dict[str, Any]]:
        return [{"key": "home", "description": "Herma's home", "default": "~/.herma", "env_var": "HERMA_HOME"}]

    def save_config(self, values: Mapping[str, Any], hermes_home: str) -> None:
        kept = {key: str(values[key]) for key in ("home",) if values.get(key)}
        replace_file(Path(hermes_home) / FILE, (json.dumps(kept) + "\n").encode())

    def initialize(self, session_id: str, **kwargs: Any) -> None:
        self.shutdown()
        hermes = Path(kwargs.get("hermes_home") or os.environ.get("HERMES_HOME") or "~/.hermes").expanduser()
        self._app = Herma.open(_home_of(hermes))
        self._shared = self._app.home.resolve() == hermes.resolve()
        self._reads_only = kwargs.get("agent_context", "primary") != "primary"
        self._scope = scope_of(self._app, str(kwargs.get("user_id") or ""))
        self._begin(session_id)

    def _begin(self, session_id: str) -> None:
        self._log = ItemLog(self.app, SOURCE, session_id, self._scope)
        self._last = None

    @property
    def app(self) -> Herma:
        if self._app is None:
            raise UsageError("The provider has no session.")
        return self._app

    def get_tool_schemas(self) -> list[dict[str, Any]]:
        return TOOLS

    def system_prompt_block(self) -> str:
        known = "" if self._shared else self.app.memory.load(self._scope).text
        return f"# Herma memory\nherma_search finds earlier conversations of all agents.\n\n{known}".strip()

    def prefetch(self, query: str, *, session_id: str = "") -> str:  # noqa: ARG002
        return "\n".join(f"- {sanitize(' '.join(one.text.split()))}" for one in self._found(query, RECALLED))

    def _found(self, query: str, limit: int) -> list[Any]:
        return recall(self.app, query, scope=self._scope, limit=limit, current=self._log.session_id)

    def sync_turn(
        self,
        user_content: str,
        assistant_content: str,
        *,
        session_id: str = "",  # noqa: ARG002
        messages: Sequence[Mapping[str, Any]] | None = None,  # noqa: ARG002
    ) -> None:
        if self._reads_only:
            return
        said = [("user", user_content), ("assistant", assistant_content)]
        turn = [(None, {"role": role, "content": content}) for role, content in said if content.strip()]
        self._last = next(iter(self._log.append(turn)), self._last)

    def handle_tool_call(self, tool_name: str, args: dict[str, Any], **kwargs: Any) -> str:  # noqa: ARG002
        tools: dict[str, Callable[[dict[str, Any]], Any]] = {
            "herma_search": self._search,
            "herma_remember": self._remember,
        }
        if tool_name not in tools:
            return json.dumps({"error": f"There is no tool {tool_name}."})
        try:
            return json.dumps(tools[tool_name](args), ensure_ascii=False)
        except HermaError as exc:
            return json.dumps({"error": str(exc)})

    def _search(self, args: dict[str, Any]) -> Any:
        limit = args.get("limit")
        found = self._found(str(args.get("query") or ""), min(max(limit, 1), 20) if isinstance(limit, int) else 5)
        results = [{"text": sanitize(one.text), "role": one.role, "session": one.session} for one in found]
        return {"results": results, "count": len(results)}

    def _remember(self, args: dict[str, Any]) -> Any:
        target, content = args.get("target") or "memory", str(args.get("content") or "").strip()
        if target not in ("memory", "user") or not content:
            return {"error": "content is required; target is memory or user."}
        if self._reads_only:
            return {"error": "Memory is read-only here."}
        return self._apply(target, Add(content))

    def _apply(self, target: Any, change: MemoryOp) -> Any:
        author = Author(Who.TOOL, Origin.AGENT_CONCLUDED, session=self._log.session_id)
        outcome = self.app.memory.apply(target, change, scope=self._scope, author=author)
        if isinstance(outcome, Applied | Duplicate | Staged):
            return {"success": True, "staged": isinstance(outcome, Staged)}
        return {"success": False, "error": outcome.message}

    def on_memory_write(
        self, action: str, target: str, content: str, metadata: Mapping[str, Any] | None = None
    ) -> None:
        if self._shared or self._reads_only or target not in ("memory", "user"):
            return
        old = str((metadata or {}).get("old_text") or "")
        if action == "remove" or (action == "replace" and old):
            if old:
                self._apply(target, Remove(old) if action == "remove" else Replace(old, content))
        elif content.strip():
            self._apply(target, Add(content))

    def on_session_switch(
        self,
        new_session_id: str,
        *,
        parent_session_id: str = "",  # noqa: ARG002
        reset: bool = False,  # noqa: ARG002
        rewound: bool = False,
        **kwargs: Any,  # noqa: ARG002
    ) -> None:
        if rewound and self._last is not None and not self._reads_only:
            self._log.cut(self._last)
        self._begin(new_session_id)

    def on_session_end(self, messages: Sequence[Mapping[str, Any]]) -> None:  # noqa: ARG002
        if not self._reads_only and self.app.transcripts.get(self._log.session_id) is not None:
            self.app.transcripts.end(self._log.session_id)

    def backup_paths(self) -> list[str]:
        return [str(_home_of(Path(os.environ.get("HERMES_HOME") or "~/.hermes").expanduser()))]

    def shutdown(self) -> None:
        app, self._app = self._app, None
        if app is not None:
            app.close()


def _home_of(hermes: Path) -> Path:
    """Return Herma's home: as it was set up, else HERMA_HOME, else ~/.herma."""
    file = hermes / FILE
    try:
        stored = json.loads(file.read_bytes()).get("home", "") if file.is_file() else ""
    except (OSError, ValueError, AttributeError) as exc:
        raise UsageError(f"{file} is not a JSON object: {exc}") from exc
    return Path(stored or os.environ.get("HERMA_HOME") or "~/.herma").expanduser()


def install(hermes_home: Path) -> Path:
    """Write the plugin folder of a Hermes home, and return it."""
    folder = hermes_home / "plugins" / "herma"
    make_folder(folder)
    for name, text in PLUGIN.items():
        replace_file(folder / name, text.encode())
    return folder


if __name__ == "__main__":
    chosen = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HERMES_HOME") or "~/.hermes"
    print(f"Written: {install(Path(chosen).expanduser())}. Now run: hermes memory setup herma")
