"""Measure the source tree: modules, imports, layers, sizes, Protocols, names.

The rules of docs/decisions/0012-the-house.md are functions over a list of modules, so that a test can also try them
on modules that break them.
"""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

import herma

SOURCE = Path(herma.__file__).parent

# From the top to the ground. A module imports from its own level and from those below. The longest name decides: a
# module that other levels share may have another level than its folder.
LAYERS: Mapping[str, Sequence[str]] = {
    "surfaces": (
        *("__main__", "cli", "web", "mcp", "agent", "aio", "integrations", "proxy", "importers", "connect"),
        *("evals", "testing", "privacy"),
    ),
    "app": ("app", "session"),
    "features": (
        *("memory", "search", "skills", "episodes", "facts", "review", "compression", "providers", "doctor"),
        "tools",  # what memory, search and skills offer a model
    ),
    "core": (
        *("features", "transcript", "index", "prompt", "models", "store", "worker"),
        "tools.registry",  # what a tool is
    ),
    "ground": ("types", "config", "text", "safety", "errors", "store.files"),
}
LEVEL = {name: level for level, names in enumerate(LAYERS.values()) for name in names}
# The types of what a feature is given. It may name them, not import them when it runs.
GIVEN = ("herma.app", "herma.session")


def level_of(name: str) -> int | None:
    """Return the place of a module in LAYERS. The command line of a feature is a surface, wherever it is."""
    parts = name.split(".")[1:]
    if is_surface(name):
        return 0
    return next((LEVEL[each] for end in range(len(parts), 0, -1) if (each := ".".join(parts[:end])) in LEVEL), None)


@dataclass(frozen=True)
class Module:
    name: str
    text: str
    package: bool = False

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def folder(self) -> str:
        return self.name if self.package else self.name.rpartition(".")[0]


def is_surface(name: str) -> bool:
    last = name.rpartition(".")[2]
    return name.count(".") > 1 and (last == "cli" or last.startswith("cli_"))


@cache
def modules() -> Sequence[Module]:
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE.parent).with_suffix("").parts
        package = parts[-1] == "__init__"
        found.append(Module(".".join(parts[:-1] if package else parts), path.read_text("utf-8"), package))
    return found


def imports(module: Module, known: Iterable[str], *, typing: bool = True) -> Iterator[tuple[str, int]]:
    """Yield every module of this package that `module` imports, with the line. Imports inside functions count;
    those under TYPE_CHECKING only if `typing`.
    """
    names = set(known)
    skipped = set() if typing else {id(node) for block in _type_checking(module.tree) for node in ast.walk(block)}
    for node in module.nodes:
        if id(node) in skipped:
            continue
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
                    yield (inner if inner in names else base), node.lineno


def _type_checking(tree: ast.Module) -> Iterator[ast.If]:
    for node in tree.body:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            yield node


def upward_imports(found: Sequence[Module]) -> list[str]:
    """Return imports that point to a higher layer. Surfaces are loaded by name and imported by nothing below."""
    names = {module.name for module in found}
    wrong = []
    for module in found:
        if module.name == "herma":
            continue
        own = level_of(module.name)
        if own is None:
            wrong.append(f"{module.name} belongs to no layer")
            continue
        running = set(imports(module, names, typing=False))
        for target, line in imports(module, names):
            if target in GIVEN and (target, line) not in running:
                continue
            level = level_of(target)
            if level is not None and level < own:
                wrong.append(f"{module.name}:{line} imports {target}")
    return sorted(set(wrong))


def cycles(found: Sequence[Module]) -> list[list[str]]:
    """Return the groups of modules that import each other in a circle, imports inside functions included."""
    names = {module.name for module in found} - {"herma"}
    targets = {
        m.name: {target for target, _ in imports(m, names, typing=False)} & names - {m.name}
        for m in found
        if m.name in names
    }
    reach = {name: _reachable(name, targets) for name in targets}
    groups = {tuple(sorted(other for other in reach[name] if name in reach[other])) for name in reach}
    return sorted(list(group) for group in groups if group)


def _reachable(start: str, targets: Mapping[str, set[str]]) -> set[str]:
    seen: set[str] = set()
    waiting = list(targets[start])
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += targets[name]
    return seen


def late_imports(found: Sequence[Module]) -> list[str]:
    """Return imports of this package that stand inside functions."""
    late = set()
    for module in found:
        for function in _functions(module.tree):
            for node in ast.walk(function):
                if isinstance(node, ast.Import | ast.ImportFrom) and "herma" in ast.unparse(node):
                    late.add(f"{module.name}:{node.lineno}")
    return sorted(late)


def satellites(found: Sequence[Module]) -> list[str]:
    """Return modules that exactly one other module imports, from the same folder: they belong into it."""
    names = {module.name for module in found}
    importers = defaultdict(set)
    for module in found:
        for target, _ in imports(module, names):
            if target != module.name:
                importers[target].add(module.name)
    homes = {module.name: module for module in found}
    return sorted(
        module.name
        for module in found
        if not module.package
        and module.name.count(".") > 1
        and len(importers[module.name]) == 1
        and homes[next(iter(importers[module.name]))].folder == module.folder
    )


def protocols(found: Sequence[Module]) -> list[str]:
    return [
        f"{module.name}.{node.name}"
        for module, node in _classes(found)
        if any(ast.unparse(base).partition("[")[0].endswith("Protocol") for base in node.bases)
    ]


def repeated_classes(found: Sequence[Module]) -> list[str]:
    """Return public class names that are used for several things."""
    count = Counter(node.name for _, node in _classes(found) if not node.name.startswith("_"))
    return sorted(name for name, times in count.items() if times > 1)


def single_use_dataclasses(found: Sequence[Module]) -> list[str]:
    """Return dataclasses that one call builds: often a parameter list in disguise."""
    dataclasses = {
        node.name for _, node in _classes(found) if any("dataclass" in ast.unparse(d) for d in node.decorator_list)
    }
    built = Counter(
        node.func.id
        for module in found
        for node in module.nodes
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    )
    return sorted(name for name in dataclasses if built[name] == 1)


def long_files(found: Sequence[Module], limit: int) -> list[str]:
    return [module.name for module in found if module.text.count("\n") > limit]


def long_functions(found: Sequence[Module], limit: int) -> list[str]:
    return [
        f"{module.name}.{node.name}: {length} lines"
        for module in found
        for node in _functions(module.tree)
        if (length := (node.end_lineno or node.lineno) - node.lineno + 1) > limit
    ]


def crowded_folders(found: Sequence[Module], limit: int) -> list[str]:
    """Return folders with too many modules, `__init__` and `__main__` included."""
    count = Counter(module.folder for module in found)
    return sorted(folder for folder, number in count.items() if number > limit)


def vague_names(found: Sequence[Module]) -> list[str]:
    vague = {"util", "utils", "helper", "helpers", "common", "misc", "stuff"}
    return [module.name for module in found if vague & set(module.name.split("."))]


def threads_started(found: Sequence[Module], allowed: Mapping[str, str]) -> list[str]:
    """Return places that start threads or pools of threads."""
    starters = ("Thread", "Timer", "ThreadPoolExecutor")
    return [
        f"{module.name}:{node.lineno}"
        for module in found
        if module.name not in allowed
        for node in module.nodes
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) in starters
    ]


def flushes(found: Sequence[Module]) -> list[str]:
    """Return modules that make a file durable themselves."""
    calls = ("fsync", "fdatasync")
    return [m.name for m in found if any(getattr(n, "attr", getattr(n, "id", "")) in calls for n in m.nodes)]


def knows_sqlite(found: Sequence[Module]) -> list[str]:
    """Return modules outside the store and the index that import SQLite or the engine for it."""
    engines = ("sqlite3", "apsw", "herma.store.sqlite")
    outside = [module for module in found if module.name.split(".")[1:2] not in (["store"], ["index"])]
    return [
        module.name
        for module in outside
        if any(
            (isinstance(node, ast.Import) and {alias.name for alias in node.names} & set(engines))
            or (isinstance(node, ast.ImportFrom) and node.module in engines)
            for node in module.nodes
        )
    ]


def swallowed(found: Sequence[Module], allowed: Mapping[str, str]) -> list[str]:
    """Return handlers that catch every exception and do not raise it again."""
    places = []
    for module in found:
        if module.name in allowed:
            continue
        for node in module.nodes:
            if isinstance(node, ast.ExceptHandler) and _catches_all(node.type):
                last = node.body[-1]
                if not (isinstance(last, ast.Raise) and last.exc is None):
                    places.append(f"{module.name}:{node.lineno}")
            if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == "suppress":
                places += [f"{module.name}:{node.lineno}" for argument in node.args if _catches_all(argument)]
    return places


def _catches_all(node: ast.expr | None) -> bool:
    if node is None:
        return True
    if isinstance(node, ast.Tuple):
        return any(_catches_all(item) for item in node.elts)
    return isinstance(node, ast.Name) and node.id in ("Exception", "BaseException")


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _classes(found: Sequence[Module]) -> Iterator[tuple[Module, ast.ClassDef]]:
    for module in found:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                yield module, node
