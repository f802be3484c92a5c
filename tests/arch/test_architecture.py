"""The rules that keep the house readable: which way imports point, how long things may be, what may be caught.

Each rule is a function over modules, and is itself tried on a module that breaks it.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import herma

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SOURCE = Path(herma.__file__).parent
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60

# From the top of the house to its ground. A module may import what is below its own line, and its own folder.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"__main__"}),
    frozenset({"cli"}),
    frozenset({"mcp", "web", "integrations", "importers", "evals", "testing", "aio", "agent"}),
    frozenset({"wording"}),
    frozenset({"app"}),
    frozenset({"wiring"}),
    frozenset({"opener"}),
    frozenset({"session", "doctor", "counting", "restoring"}),
    frozenset({"turn"}),
    frozenset({"reflect"}),
    frozenset({"tools"}),
    frozenset({"recall"}),
    frozenset({"curated", "episodes", "facts", "skills", "transcript", "index", "providers"}),  # keepers
    frozenset({"store", "models", "jobs"}),  # adapters
    frozenset({"ports", "prompt"}),
    frozenset({"safety"}),
    frozenset({"config"}),
    frozenset({"configservers"}),
    frozenset({"configfile", "settings"}),
    frozenset({"configkey", "parts"}),
    frozenset({"types"}),
    frozenset({"errors", "late"}),
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}
SURFACES = LAYERS[0] | LAYERS[1] | LAYERS[2]
KEEPERS = next(layer for layer in LAYERS if "curated" in layer)
ADAPTERS = next(layer for layer in LAYERS if "store" in layer)
# Pairs that stand in the right order above and are still forbidden: keepers get adapters injected, and adapters
# know no prompt.
FORBIDDEN = {(keeper, adapter) for keeper in KEEPERS for adapter in ADAPTERS} | {
    (adapter, "prompt") for adapter in ADAPTERS
}

VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common_utils", "misc", "manager", "stuff"}
# The only places where any error at all may be caught and not raised again, each with its reason.
MAY_CATCH_ALL = {
    "herma.search.rank": "a program's own reranker: what it does wrong leaves the order as it was, and is told",
    "herma.cli.main": "the entry point: nothing may reach the user as a traceback",
    "herma.web.access": "the entry point of the web: nothing may reach a browser as a traceback; it is logged",
    "herma.web.app": "work in a thread: each error is handed to the request that waits for it",
    "herma.testing.contracts": "tries a provider: however it refuses nonsense is an answer",
    "herma.providers.guard": "guests: whatever they raise is counted and shown, and the session goes on",
    "herma.index.vectors": "an embedder is a guest: its failure is counted and told, and words go on without it",
    "herma.agent.mcp": "an MCP server is a guest: what goes wrong with it is told, and costs its own tools only",
    "herma.models.client": "the thread that reads an answer: each error is handed to the caller who waits for it",
    "herma.worker": "background work: a job that fails is counted and shown, and ends no other",
    "herma.store.database": "writes that share a commit: each error is handed to the caller whose work it undid",
}


@dataclass(frozen=True)
class Module:
    name: str
    text: str
    package: bool = False

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def top(self) -> str:
        return self.name.partition(".")[2].partition(".")[0]


def modules() -> list[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        package = parts[-1] == "__init__"
        found.append(Module(".".join(parts[:-1] if package else parts), path.read_text("utf-8"), package))
    return found


def imports(module: Module, known: Iterable[str]) -> Iterator[tuple[str, int]]:
    """Every name of this package that the module imports, wherever the import stands. `herma.x`, or `herma` itself."""
    names = set(known)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name.split(".")[0] == "herma":
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = module.name.split(".")[: None if module.package and node.level == 1 else -node.level]
                base = ".".join([*above, *([node.module] if node.module else [])])
            if base.split(".")[0] == "herma":
                for alias in node.names:
                    inner = f"{base}.{alias.name}"
                    yield (
                        inner if inner in names or (base == "herma" and alias.name != "__version__") else base,
                        node.lineno,
                    )
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            target = node.args[0].value
            if called in ("import_module", "__import__") and isinstance(target, str) and target.startswith("herma"):
                yield target, node.lineno


# ── the rules ───────────────────────────────────────────────────────────────────────────────────────────────────


def wrong_ways(all_modules: list[Module]) -> list[str]:
    """Imports that point up, sideways, or to a public name of the package itself."""
    names = [module.name for module in all_modules]
    found = []
    for module in all_modules:
        if module.name == "herma":  # names everything, lazily
            continue
        if module.top not in LEVEL:
            found.append(f"{module.name}: {module.top} belongs to no layer; add it to LAYERS")
            continue
        for target, line in imports(module, names):
            top = target.partition(".")[2].partition(".")[0]
            place = f"{module.name}:{line} imports {target}"
            if target == "herma":
                continue  # __version__
            if top not in LEVEL:  # a public name, or a folder nobody has placed yet
                if target in names or module.top not in SURFACES:
                    found.append(f"{place}: take it from where it is defined, or add {top} to LAYERS")
            elif top != module.top and (LEVEL[top] <= LEVEL[module.top] or (module.top, top) in FORBIDDEN):
                found.append(f"{place}: {module.top} stands below {top} or beside it")
    return found


def cycles(all_modules: list[Module]) -> list[list[str]]:
    """Groups of modules that import each other, found by taking away what imports nothing that is left."""
    names = {module.name for module in all_modules} - {"herma"}
    left = {m.name: {t for t, _ in imports(m, names)} & names - {m.name} for m in all_modules if m.name in names}
    while True:
        free = [name for name, targets in left.items() if not targets & left.keys()]
        free += [name for name in left if name not in free and not any(name in left[other] for other in left)]
        if not free:
            return [sorted(left)] if left else []
        for name in set(free):
            del left[name]


def too_long(all_modules: list[Module]) -> list[str]:
    found = []
    for module in all_modules:
        lines = module.text.count("\n")
        if lines > MAX_FILE_LINES:
            found.append(f"{module.name}: {lines} lines, {MAX_FILE_LINES} are allowed")
        for node in ast.walk(module.tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{module.name}.{node.name}: {length} lines, {MAX_FUNCTION_LINES} are allowed")
    return found


def vague(all_modules: list[Module]) -> list[str]:
    return [module.name for module in all_modules if VAGUE_NAMES & set(module.name.split("."))]


def swallowed(all_modules: list[Module], allowed: Mapping[str, str] = MAY_CATCH_ALL) -> list[str]:
    """Handlers that catch everything and do not raise it again."""
    found = []
    for module in all_modules:
        if module.name in allowed:
            continue
        for node in ast.walk(module.tree):
            if isinstance(node, ast.ExceptHandler) and _catches_all(node.type):
                last = node.body[-1]
                if not (isinstance(last, ast.Raise) and last.exc is None):
                    found.append(f"{module.name}:{node.lineno}")
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "suppress":
                found += [f"{module.name}:{node.lineno}" for argument in node.args if _catches_all(argument)]
    return found


def _catches_all(node: ast.expr | None) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_catches_all(item) for item in node.elts)
    return isinstance(node, ast.Name) and node.id in ("Exception", "BaseException")


# ── kept by the code ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_modules_are_found() -> None:
    assert {"herma", "herma.cli.main", "herma.config", "herma.errors"} <= {module.name for module in modules()}


def test_imports_point_down() -> None:
    assert wrong_ways(modules()) == []


def test_no_module_imports_itself_in_a_circle() -> None:
    assert cycles(modules()) == []


def test_files_and_functions_are_short() -> None:
    assert too_long(modules()) == []


def test_names_say_what_is_in_a_module() -> None:
    assert vague(modules()) == []


def test_nothing_is_swallowed() -> None:
    assert swallowed(modules()) == []


def test_every_exception_to_a_rule_is_still_needed() -> None:
    needed = {place.partition(":")[0] for place in swallowed(modules(), allowed={})}
    assert needed == set(MAY_CATCH_ALL)


# ── and able to find what breaks them ───────────────────────────────────────────────────────────────────────────


def sample(**texts: str) -> list[Module]:
    return [Module("herma." + name.replace("__", "."), text + "\n") for name, text in texts.items()]


def broken(text: str, importer: str = "curated__store") -> list[str]:
    others = dict.fromkeys(
        ("app", "session", "tools__memory", "episodes__log", "store__files", "models__chat", "ports", "cli__main"), ""
    )
    others |= dict.fromkeys(("prompt__fence", "safety__scan", "types", "errors", "config", "mcp__server"), "")
    return wrong_ways(sample(**others | {importer: text}))


def test_imports_that_point_up_or_sideways_are_found() -> None:
    for text in (
        "import herma.app",
        "from herma.app import Herma",
        "from herma import app",
        "from herma import Herma",
        "from herma.tools import memory",
        "from herma.tools.memory import x",
        "from ..tools import memory",
        "from .. import session",
        "from herma.episodes.log import x",
        "from herma.memory.files import x",
        "from herma.models import client as chat",
        "def f():\n    from herma.session import Session",
        "if TYPE_CHECKING:\n    from herma.session import Session",
        "import importlib\nimportlib.import_module('herma.app')",
        "from herma.nowhere import x",
        "import herma.cli.main",
    ):
        assert len(broken(text)) == 1, text
    for importer, text in (
        ("store__sqlite", "from herma.memory import store"),
        ("store__sqlite", "from herma.prompt.fence import x"),
        ("store__sqlite", "from herma.models import client as chat"),
        ("ports", "from herma.prompt import fence"),
        ("types", "from herma.config import x"),
        ("errors", "from herma.types import x"),
        ("prompt__fence", "from herma.ports import x"),
        ("mcp__server", "from herma.cli.main import x"),
        ("new__thing", ""),
    ):
        assert len(broken(text, importer)) == 1, (importer, text)


def test_imports_that_point_down_are_not() -> None:
    for importer, text in (
        ("curated__store", "from herma.memory.entries import x\nfrom herma.ports import y\nimport json"),
        (
            "curated__store",
            "from herma.prompt.fence import x\nfrom herma.safety.scan import s\nfrom herma import types",
        ),
        ("curated__store", "from . import apply\nfrom .apply import x\nfrom herma import __version__\nimport hermatic"),
        ("store__sqlite", "from herma.ports import x\nfrom herma.types import y\nfrom herma.errors import z"),
        ("cli__memory", "from herma.app import Herma\nfrom herma import Herma\nfrom herma.mcp import server"),
        ("app", "from herma.memory.files import x\nfrom herma.memory.store import store"),
    ):
        assert broken(text, importer) == [], (importer, text)


def test_circles_are_found_even_inside_functions() -> None:
    circle = sample(
        a="from herma import b", b="def f():\n    import herma.c", c="from herma.a import x", d="import herma.a", e=""
    )
    assert cycles(circle) == [["herma.a", "herma.b", "herma.c"]]
    assert cycles(sample(a="from herma import b", b="from herma.c import x", c="")) == []


def test_length_is_measured() -> None:
    body = "    x = 1\n"
    short = "def f():\n" + body * 59
    assert too_long(sample(a=short, b="x = 1\n" * 399)) == []
    assert too_long(sample(a="class C:\n  async def f():\n" + body * 60)) == ["herma.a.f: 61 lines, 60 are allowed"]
    assert too_long(sample(a="x = 1\n" * 400)) == ["herma.a: 401 lines, 400 are allowed"]


def test_vague_names_are_found() -> None:
    assert vague(sample(store__utils="", helpers__x="", prompt__fence="")) == ["herma.store.utils", "herma.helpers.x"]


def test_broad_handlers_are_found() -> None:
    template = "try:\n    x\nexcept{}:\n    {}\n"
    for caught in ("", " Exception", " BaseException as e", " (ValueError, Exception)"):
        for body in ("pass", "return", "raise ValueError from None"):
            assert swallowed(sample(a=template.format(caught, body))) == ["herma.a:3"]
        assert swallowed(sample(a=template.format(caught, "clean()\n    raise"))) == []
    assert swallowed(sample(a=template.format(" ValueError", "pass"))) == []
    assert swallowed(sample(a="with contextlib.suppress(Exception):\n    x")) == ["herma.a:1"]
    assert swallowed(sample(a="with suppress(OSError):\n    x")) == []
