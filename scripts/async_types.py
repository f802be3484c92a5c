"""Write src/herma/aio.pyi, the types of the asynchronous face, from the synchronous classes.

.venv/bin/python scripts/async_types.py [--check]
"""

from __future__ import annotations

import ast
import builtins
import functools
import inspect
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from herma import aio, app
from herma.episodes.episodes import Episodes
from herma.facts.facts import Facts
from herma.index.sync import Index
from herma.memory.archive import Archive
from herma.memory.store import MemoryStore
from herma.memory.tidy import Tidying
from herma.providers.manager import Providers
from herma.review.review import Reviews
from herma.session import Session
from herma.skills.curator import Curator
from herma.skills.library import SkillLibrary
from herma.tools.registry import Tools
from herma.transcript.log import Transcripts

STUB = Path(app.__file__).with_name("aio.pyi")
SESSION = """id: str
info: SessionInfo
model: str
environment: SessionEnvironment
system_prompt: str
prompt_digest: str
tools: list[Json]
tools_digest: str
snapshot: Snapshot
async def reset(self) -> AsyncSession: ..."""
HERMA = """home: Path
settings: config.Settings
memory: AsyncMemory
transcripts: AsyncTranscripts
tools: AsyncTools
episodes: AsyncEpisodes
facts: AsyncFacts
skills: AsyncSkills
reviews: AsyncReviews
curator: AsyncCurator
index: AsyncIndex
providers: AsyncProviders"""
AT_ONCE: set[str] = vars(aio)["AT_ONCE"]
FACES: dict[str, tuple[type, str]] = {
    "AsyncArchive": (Archive, ""),
    "AsyncMemory": (MemoryStore, "archive: AsyncArchive"),
    "AsyncTranscripts": (Transcripts, ""),
    "AsyncTools": (Tools, ""),
    "AsyncEpisodes": (Episodes, ""),
    "AsyncFacts": (Facts, ""),
    "AsyncSkills": (SkillLibrary, ""),
    "AsyncReviews": (Reviews, ""),
    "AsyncCurator": (Curator, ""),
    "AsyncIndex": (Index, ""),
    "AsyncProviders": (Providers, ""),
    "AsyncSession": (Session, SESSION),
    "AsyncHerma": (app.Herma, HERMA),
}
"""Each asynchronous class, the class that it awaits, and the members that are not methods of it."""
LEFT_OUT = frozenset(("ensure_open", "record_trouble", "begin_with", "restore_memory_version", "close"))
"""Methods for Herma's own parts. `close` is awaited for what is opened, and is not for others."""
HEADER = '''"""The types of `herma.aio`. Written by scripts/async_types.py; do not edit."""

'''
OPENING = """
O = TypeVar("O")

class Opening(Generic[O]):
    def __await__(self) -> Generator[Any, None, O]: ...
    async def __aenter__(self) -> O: ...
    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None: ...
"""


class Names:
    """The names of annotations, and the imports that bring them."""

    def __init__(self) -> None:
        self.imports: dict[str, str] = {}

    def take(self, annotation: ast.expr, module: str, own: frozenset[str]) -> str:
        """Return an annotation as text. `own`: names that a class uses for methods, so that builtins need a prefix."""
        if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
            annotation = ast.parse(annotation.value, mode="eval").body
        known = bindings(module)
        for node in ast.walk(annotation):
            if isinstance(node, ast.Name):
                if node.id in own and hasattr(builtins, node.id):
                    node.id = f"builtins.{node.id}"
                    self.imports["builtins"] = "import builtins"
                elif node.id in known:
                    line = known[node.id]
                    if self.imports.setdefault(node.id, line) != line:  # another module has the name too
                        _, origin, _, name = line.split()
                        self.imports[origin] = f"import {origin}"
                        node.id = f"{origin}.{name}"
        return ast.unparse(annotation)


@functools.cache
def bindings(module: str) -> dict[str, str]:
    """Return the import that brings each name which a module imports or defines."""
    tree = ast.parse(Path(sys.modules[module].__file__ or "").read_text("utf-8"))
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            for alias in node.names:
                as_ = f" as {alias.asname}" if alias.asname else ""
                found[alias.asname or alias.name] = f"from {node.module} import {alias.name}{as_}"
        elif isinstance(node, ast.Import):
            for alias in node.names:
                found[alias.name] = f"import {alias.name}"
    for node in tree.body:
        names = [node.name] if isinstance(node, ast.ClassDef) else []
        if isinstance(node, ast.Assign | ast.AnnAssign):
            names = [
                ast.unparse(target) for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
            ]
        found |= {name: f"from {module} import {name}" for name in names}
    return found


def functions(kind: type) -> Iterator[tuple[ast.FunctionDef, str]]:
    """Yield the public methods and properties of a class, each with the module that defines it."""
    seen: set[str] = set()
    for base in kind.__mro__[:-1]:
        (definition,) = ast.parse(inspect.getsource(base)).body
        assert isinstance(definition, ast.ClassDef)
        for node in definition.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name not in seen:
                seen.add(node.name)
                yield node, base.__module__


def method(node: ast.FunctionDef, module: str, names: Names, own: frozenset[str], *, returns: str = "") -> str:
    """Return a method as a line of the stub."""
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
        if argument is not None and argument.annotation is not None:
            text = names.take(argument.annotation, module, own)
            argument.annotation = ast.parse(text, mode="eval").body
    arguments.defaults = [ast.Constant(...) for _ in arguments.defaults]
    arguments.kw_defaults = [None if each is None else ast.Constant(...) for each in arguments.kw_defaults]
    assert node.returns is not None
    result = names.take(node.returns, module, own)
    decorators = {ast.unparse(decorator).partition("(")[0] for decorator in node.decorator_list}
    if decorators & {"property", "lazy_property"}:
        return f"@property\ndef {node.name}(self) -> {result}: ..."
    static = "@staticmethod\n" if "staticmethod" in decorators else ""
    start = static + "def" if returns or node.name in AT_ONCE else f"{static}async def"
    return f"{start} {node.name}({ast.unparse(arguments)}) -> {returns or result}: ..."


def render() -> str:
    """Return the stub."""
    names = Names()
    classes = [OPENING]
    for face, (kind, given) in FACES.items():
        found = list(functions(kind))
        own = frozenset(node.name for node, _ in found)
        lines = [*given.split("\n")] if given else []
        declared = {line.partition(":")[0] for line in lines}
        for node, module in found:
            decorators = {ast.unparse(decorator) for decorator in node.decorator_list}
            lazy = "lazy_property" in decorators or (kind is not Session and "property" in decorators)
            if node.name in declared | LEFT_OUT or lazy or "classmethod" in decorators or node.name == "reset":
                continue
            opens = kind is app.Herma and node.name in ("session", "branch")
            lines += method(node, module, names, own, returns="Opening[AsyncSession]" if opens else "").split("\n")
        if kind is Session:
            lines.append("async def close(self, reason: str = ...) -> None: ...")
        if kind is app.Herma:
            (call,) = [node for node, _ in calls(Tidying)]
            call.name = "tidy"
            lines.append(method(call, Tidying.__module__, names, own))
            (opened,) = [node for node, _ in found if node.name == "open"]
            opened.args.args = opened.args.args[1:]
            text = method(opened, app.__name__, names, own, returns="Opening[AsyncHerma]")
            lines += ["async def close(self) -> None: ...", "@staticmethod", *text.split("\n")]
        classes.append(f"class {face}:\n" + "".join(f"    {line}\n" for line in lines))
    brought = {
        *(
            "from collections.abc import Generator",
            "from types import TracebackType",
            "from typing import Any, Generic, TypeVar",
        ),
        *("from pathlib import Path", "from herma import config", "from herma.tools.registry import Json"),
        *(f"from herma.types import {name}" for name in ("SessionEnvironment", "SessionInfo", "Snapshot")),
        *names.imports.values(),
    }
    end = "\nHerma = AsyncHerma\nopen = AsyncHerma.open\n"
    return HEADER + "\n".join(_joined(brought)) + "\n" + "\n".join(classes) + end


def _joined(lines: Iterable[str]) -> Iterator[str]:
    """Yield import lines, one for each module."""
    found: defaultdict[str, set[str]] = defaultdict(set)
    for line in lines:
        module, _, name = line.partition(" import ")
        found[module] |= set(name.split(", ")) if name else set()
    for module, imported in sorted(found.items()):
        yield f"{module} import {', '.join(sorted(imported))}" if imported else module


def calls(kind: type) -> Iterator[tuple[ast.FunctionDef, str]]:
    (definition,) = ast.parse(inspect.getsource(kind)).body
    assert isinstance(definition, ast.ClassDef)
    for node in definition.body:
        if isinstance(node, ast.FunctionDef) and node.name == "__call__":
            yield node, kind.__module__


def main() -> int:
    made = render()
    if "--check" in sys.argv:
        if STUB.read_text("utf-8") != made:
            print("src/herma/aio.pyi is not what the code says: .venv/bin/python scripts/async_types.py")
            return 1
        return 0
    STUB.write_text(made, "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
