"""Where providers come from: bundled ones, folders under the home's `plugins/`, and installed packages.

Nothing is loaded because it lies somewhere: only the one that `memory.provider` names is. A plugin is a folder with an
`__init__.py` that has a `MemoryProvider` in it, or a function `register(ctx)` that hands one to
`ctx.register_memory_provider(…)`. A package names its class or such a function under the entry point `herma.providers`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import inspect
import os
import pkgutil
import re
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from herma.errors import ProviderError, UsageError
from herma.providers.base import MemoryProvider

ENTRY_POINTS = "herma.providers"
BUNDLED = "herma.providers.bundled"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOOKED_AT = 8_192
_MARKS = ("register_memory_provider", "MemoryProvider")
_DESCRIPTION = re.compile(r"^description:[ \t]*(\S[^\n]*)$", re.MULTILINE)
_LOADING = threading.RLock()


@dataclass(frozen=True, slots=True)
class Found:
    """A provider that is there to be used; it has not been loaded."""

    name: str
    kind: Literal["bundled", "plugin", "package"]
    where: str
    description: str = ""


def discover(home: Path) -> list[Found]:
    """Everything that could be used, each name once: bundled ones first, then the home's, then packages."""
    found: dict[str, Found] = {}
    for one in (*_bundled(), *_plugins(home), *_packages()):
        found.setdefault(one.name, one)
    return list(found.values())


def find(home: Path, name: str) -> Found:
    """The provider of this name. `UsageError` with those that are there."""
    for one in (look for kind in (_bundled(), _plugins(home), _packages()) for look in kind):
        if one.name == name:
            return one
    names = ", ".join(one.name for one in discover(home))
    hint = f"There are: {names}." if names else f"Put it into {home / 'plugins' / 'NAME'}, or install its package."
    raise UsageError(f"There is no memory provider {name!r}.", hint=hint)


def load(found: Found) -> MemoryProvider:
    """A fresh provider. Runs its code: `ProviderError` says what is missing, anything else is the provider's own."""
    if found.kind == "package":
        named: Any = next(one for one in _points() if one.name == found.name).load()
    else:
        with _LOADING:
            named = _module(found)
    provider = _made(named)
    if provider is None:
        raise ProviderError(
            f"{found.where} has neither a MemoryProvider nor a register(ctx) that gives one.",
            hint="The how-to on writing a provider shows both.",
        )
    return provider


# ── looking ──


def _bundled() -> Iterator[Found]:
    package = importlib.import_module(BUNDLED)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            yield Found(module.name, "bundled", f"{BUNDLED}.{module.name}")


def _plugins(home: Path) -> Iterator[Found]:
    try:
        folders = sorted((home / "plugins").iterdir())
    except OSError:
        return
    for folder in folders:
        start = folder / "__init__.py"
        if _NAME.fullmatch(folder.name) and any(mark in _beginning(start) for mark in _MARKS):
            said = _DESCRIPTION.search(_beginning(folder / "plugin.yaml"))
            yield Found(folder.name, "plugin", str(folder), said[1].strip("\"' ")[:200] if said else "")


def _packages() -> Iterator[Found]:
    for point in _points():
        if _NAME.fullmatch(point.name):
            package = point.dist.name if point.dist else ""
            yield Found(point.name, "package", point.value, f"from the package {package}" if package else "")


def _points() -> list[EntryPoint]:
    return list(entry_points(group=ENTRY_POINTS))


def _beginning(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(_LOOKED_AT).decode("utf-8", "replace")
    except OSError:
        return ""


# ── loading ──


def _module(found: Found) -> ModuleType:
    if found.kind == "bundled":
        return importlib.import_module(found.where)
    folder = Path(found.where)
    _check_private(folder)
    name = f"_herma_plugins_{hashlib.sha256(found.where.encode()).hexdigest()[:8]}.{found.name.replace('-', '_')}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(
        name, folder / "__init__.py", submodule_search_locations=[found.where]
    )
    if spec is None or spec.loader is None:
        raise ProviderError(f"{folder} cannot be loaded.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs, so that it can import from itself
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _check_private(folder: Path) -> None:
    """Code that others may change is not run."""
    if os.name != "nt":
        for path in (folder, folder / "__init__.py"):
            if path.stat().st_mode & 0o002:
                raise ProviderError(f"Everybody may write to {path}, so it is not run.", hint=f"chmod o-w {path}")


class _Collector:
    """What `register(ctx)` is given. Hooks and commands of other programs have no place here."""

    def __init__(self) -> None:
        self.provider: MemoryProvider | None = None

    def register_memory_provider(self, provider: MemoryProvider) -> None:
        self.provider = self.provider or provider

    def __getattr__(self, name: str) -> Any:
        if name.startswith("register_"):
            return lambda *_, **__: None
        raise AttributeError(name)


def _made(named: Any) -> MemoryProvider | None:
    """A provider out of a module, a class, a function or an instance."""
    if inspect.isclass(named):
        return named()  # type: ignore[return-value]
    if inspect.ismodule(named):
        register = getattr(named, "register", None)
        if callable(register):
            return _registered(register)
        for value in vars(named).values():
            own = inspect.isclass(value) and issubclass(value, MemoryProvider) and not inspect.isabstract(value)
            if own and value.__module__.startswith(named.__name__):
                return value()  # type: ignore[no-any-return]
        return None
    return _registered(named) if callable(named) else None


def _registered(register: Any) -> MemoryProvider | None:
    """What a function gives: to the collector it is handed, or back."""
    collector = _Collector()
    takes = inspect.signature(register).parameters
    given = register(collector) if takes else register()
    return collector.provider or (given if isinstance(given, MemoryProvider) else None)
