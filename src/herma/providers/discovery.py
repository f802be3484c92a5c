"""Find and load providers: bundled ones, folders under the home's `plugins/`, and installed packages.

Only the providers that the configuration names are loaded. A plugin is a folder with an `__init__.py` that has a
`MemoryProvider` in it, or a function `register(ctx)` that hands one to `ctx.register_memory_provider(…)`. A package
names its class, its module or such a function under an entry point of `ENTRY_POINTS`.

Providers written for Hermes Agent run unchanged. Their imports of its modules resolve to `HermesModules`, which only
the loaded plugin sees: the rest of the program, `sys.modules` included, does not know these names.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pkgutil
import re
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from herma.config import HOME_FILE
from herma.errors import HermaWarning, ProviderError, UsageError
from herma.models.endpoints import FILE, read_file
from herma.prompt.fence import sanitize
from herma.providers.base import MemoryProvider, RecallStatus
from herma.store.files import make_folder, plain_yaml, read_start, replace_file

ENTRY_POINTS = ("herma.memory_providers", "hermes_agent.plugins")
"""Groups of entry points: of Herma, and of plugins of Hermes."""
BUNDLED = "herma.providers.bundled"
MANIFEST = "plugin.yaml"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_LOOKED_AT = 8_192
_MARKS = ("register_memory_provider", "MemoryProvider")
_DESCRIPTION = re.compile(r"^description:[ \t]*(\S[^\n]*)$", re.MULTILINE)
_LOCK = threading.Lock()
_SHARED = ("config_schema", "query_rewrite")
"""Modules of Hermes beside its providers, which are not a provider's own."""


@dataclass(frozen=True, slots=True)
class FoundProvider:
    """A provider that can be used; it has not been loaded."""

    name: str
    kind: Literal["bundled", "plugin", "package"]
    where: str
    description: str = ""


def discover(home: Path) -> list[FoundProvider]:
    """Return every provider that can be used, each name once: bundled ones win, then the home's, then packages."""
    found: dict[str, FoundProvider] = {}
    for one in (*_bundled(), *_plugins(home), *_packages()):
        found.setdefault(one.name, one)
    return list(found.values())


def find(home: Path, name: str) -> FoundProvider:
    """Return the provider of this name; `UsageError` with the available ones if there is none."""
    for one in (look for kind in (_bundled(), _plugins(home), _packages()) for look in kind):
        if one.name == name:
            return one
    names = ", ".join(one.name for one in discover(home))
    raise UsageError(f"There is no memory provider {name!r}.", hint=f"There are: {names}.")


def load(found: FoundProvider, home: Path) -> MemoryProvider:
    """Make a new provider object. Runs its code, which may raise anything; `ProviderError` says what is missing."""
    export_keys(found, home)
    if found.kind == "bundled":
        made: MemoryProvider = _own_class(importlib.import_module(found.where))(home)
        return made
    provider = _made(_load_package(found, home) if found.kind == "package" else _module(found, home))
    if provider is None:
        raise ProviderError(
            f"{found.where} has neither a MemoryProvider nor a register(ctx) that gives one.",
            hint="The how-to on writing a provider shows both.",
        )
    return provider


def load_commands(found: FoundProvider, home: Path) -> ModuleType | None:
    """Load the module `cli` of a plugin folder: `register_cli(parser)` and `NAME_command(arguments)`."""
    if found.kind != "plugin" or not (Path(found.where) / "cli.py").is_file():
        return None
    export_keys(found, home)
    module = importlib.import_module(f"{_module(found, home).__name__}.cli")
    return module if callable(getattr(module, "register_cli", None)) else None


def manifest(found: FoundProvider) -> Mapping[str, Any]:
    """Read the plugin.yaml of a plugin folder; empty if there is none. `ProviderError` if it is not YAML."""
    if found.kind != "plugin":
        return {}
    text = _beginning(Path(found.where) / MANIFEST)
    from ruamel.yaml.error import YAMLError

    try:
        value = plain_yaml().load(text) if text.strip() else {}
    except YAMLError as exc:
        raise ProviderError(f"{Path(found.where) / MANIFEST} is not YAML: {exc}") from exc
    return value if isinstance(value, Mapping) else {}


def export_keys(found: FoundProvider, home: Path) -> None:
    """Copy variables that a plugin's manifest names from the home's `.env` into the environment, where plugins look.

    The environment wins. Bundled providers read `.env` themselves.
    """
    named = manifest(found).get("requires_env") or ()
    if named:
        stored = read_file(home / FILE)
        for name in filter(stored.get, map(str, named)):
            os.environ.setdefault(name, stored[name])


# ── looking ──


def _bundled() -> Iterator[FoundProvider]:
    package = importlib.import_module(BUNDLED)
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            text = _beginning(Path(package.__path__[0]) / f"{module.name}.py")
            summary = text.removeprefix('"""').partition("\n")[0].partition(": ")[2].rstrip('."')
            yield FoundProvider(module.name, "bundled", f"{BUNDLED}.{module.name}", summary)


def _plugins(home: Path) -> Iterator[FoundProvider]:
    try:
        folders = sorted((home / "plugins").iterdir())
    except OSError:
        return
    for folder in folders:
        start = folder / "__init__.py"
        if _NAME.fullmatch(folder.name) and any(mark in _beginning(start) for mark in _MARKS):
            said = _DESCRIPTION.search(_beginning(folder / MANIFEST))
            yield FoundProvider(folder.name, "plugin", str(folder), said[1].strip("\"' ")[:200] if said else "")


def _packages() -> Iterator[FoundProvider]:
    for point in _points():
        if _NAME.fullmatch(point.name) and point.module.partition(".")[0] != "herma":
            general = point.group == ENTRY_POINTS[-1] and not any(mark in _beginning(_source(point)) for mark in _MARKS)
            if not general:  # a Hermes plugin may be something else than a memory
                package = point.dist.name if point.dist else ""
                yield FoundProvider(
                    point.name, "package", point.value, f"from the package {package}" if package else ""
                )


def _points() -> list[EntryPoint]:
    return [point for group in ENTRY_POINTS for point in entry_points(group=group)]


def _source(point: EntryPoint) -> Path:
    """Return the file of an entry point's module, without importing it."""
    top, *rest = point.module.split(".")
    spec = importlib.util.find_spec(top)
    folder = Path(*(spec.submodule_search_locations or ["/"])[:1]) if spec else Path("/")
    if not rest:
        return Path(spec.origin) if spec and spec.origin else folder
    path = folder.joinpath(*rest)
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _beginning(file: Path) -> str:
    try:
        return read_start(file, _LOOKED_AT).decode("utf-8", "replace")
    except OSError:
        return ""


# ── loading ──


def _module(found: FoundProvider, home: Path) -> ModuleType:
    folder = Path(found.where)
    _check_private(folder)
    scope = _scope(found.where, home)
    scope.own["plugins.memory.*"] = name = f"{scope.name}.{found.name.replace('-', '_')}"
    scope.files[name] = folder / "__init__.py"
    return importlib.import_module(name)


def _load_package(found: FoundProvider, home: Path) -> Any:
    point = next(one for one in _points() if one.name == found.name)
    if point.group != ENTRY_POINTS[-1]:
        return point.load()
    top = point.module.partition(".")[0]
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.origin:
        raise ProviderError(f"The package {top} of the entry point {point.name} is not installed.")
    scope = _scope(spec.origin, home)
    scope.own[top] = f"{scope.name}.{top}"
    scope.files[scope.own[top]] = Path(spec.origin)
    value: Any = importlib.import_module(f"{scope.name}.{point.module}")
    for attribute in filter(None, (point.attr or "").split(".")):
        value = getattr(value, attribute)
    return value


def _check_private(folder: Path) -> None:
    """Refuse code that everybody may change."""
    if os.name != "nt":
        for path in (folder, folder / "__init__.py"):
            if path.stat().st_mode & 0o002:
                raise ProviderError(f"Everybody may write to {path}, so it is not run.", hint=f"chmod o-w {path}")


def _scope(where: str, home: Path) -> PluginScope:
    name = f"_herma_plugins_{hashlib.sha256(f'{where} {home}'.encode()).hexdigest()[:8]}"
    with _LOCK:  # held for no longer: a plugin that hangs while it is imported must not stop others
        if name not in _SCOPES:
            _SCOPES[name] = PluginScope(name, home)
            sys.modules[name] = package = ModuleType(name)
            package.__path__ = []
        if _FINDER not in sys.meta_path:
            sys.meta_path.insert(0, _FINDER)
        return _SCOPES[name]


class PluginScope:
    """Hold how the modules of one plugin import: its own names and the modules of Hermes first, then as usual.

    Each of its modules gets a `__import__` of its own, so that nothing changes for other code.
    """

    def __init__(self, name: str, home: Path) -> None:
        self.name = name
        self.own: dict[str, str] = {}
        """Names by which the plugin imports itself, and what they are called here."""
        self.files: dict[str, Path] = {}
        self.builtins = {**vars(builtins), "__import__": self.import_}
        self._hermes = HermesModules(home).modules

    def import_(
        self,
        name: str,
        globals: Mapping[str, object] | None = None,  # noqa: A002  as Python calls it
        locals: Mapping[str, object] | None = None,  # noqa: A002
        fromlist: Sequence[str] | None = (),
        level: int = 0,
    ) -> ModuleType:
        """Import as the statement in a module of the plugin says."""
        if level == 0 and (own := self._own(name)):
            module = importlib.import_module(own)
            for each in fromlist or ():
                if each != "*" and not hasattr(module, each):
                    importlib.import_module(f"{own}.{each}")
            return module if fromlist else importlib.import_module(".".join(own.split(".")[:2]))
        if level == 0 and name in self._hermes:
            return self._hermes[name if fromlist else name.partition(".")[0]]
        if level == 0 and name.partition(".")[0] in self._hermes:
            raise ModuleNotFoundError(f"Herma has no stand-in for the module {name} of Hermes Agent.", name=name)
        return builtins.__import__(name, globals, locals, fromlist or (), level)

    def _own(self, name: str) -> str:
        for mine, here in self.own.items():
            if mine.endswith(".*"):
                parts, depth = name.split("."), mine.count(".") + 1
                if name.startswith(mine[:-1]) and len(parts) >= depth and parts[depth - 1] not in _SHARED:
                    return ".".join([here, *parts[depth:]])
            elif name == mine or name.startswith(f"{mine}."):
                return here + name[len(mine) :]
        return ""


class _PluginFinder(MetaPathFinder, Loader):
    """Finds the modules of plugins, and gives each the `__import__` of its plugin."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None = None,
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        scope = _SCOPES.get(fullname.partition(".")[0])
        if scope is None:
            return None
        if (file := scope.files.get(fullname)) is not None:
            inside = [str(file.parent)] if file.name == "__init__.py" else None
            spec = importlib.util.spec_from_file_location(fullname, file, submodule_search_locations=inside)
        else:
            spec = PathFinder.find_spec(fullname, path)
        if spec is not None and spec.loader is not None and spec.has_location:
            spec.loader = _ScopedLoader(spec.loader, scope)
        return spec


class _ScopedLoader(Loader):
    def __init__(self, inner: Loader, scope: PluginScope) -> None:
        self._inner = inner
        self._scope = scope

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._inner.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__builtins__"] = self._scope.builtins
        self._inner.exec_module(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)  # get_data, get_source: for tracebacks and resources


_SCOPES: dict[str, PluginScope] = {}
_FINDER = _PluginFinder()


class _Collector:
    """The context that `register(ctx)` gets. Hooks and commands of other programs are ignored."""

    def __init__(self) -> None:
        self.provider: MemoryProvider | None = None

    def register_memory_provider(self, provider: MemoryProvider) -> None:
        """Take the first provider, and warn about a second."""
        if self.provider is None:
            self.provider = provider
        elif provider is not None:
            warnings.warn(
                f"The memory provider {provider.name} is ignored: {self.provider.name} is registered already, and one"
                " external provider takes part at most.",
                HermaWarning,
                stacklevel=2,
            )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("register_"):
            return lambda *_, **__: None
        raise AttributeError(name)


def _made(named: Any) -> MemoryProvider | None:
    """Make a provider from a module, a class, a function or an instance."""
    if inspect.isclass(named):
        return named()  # type: ignore[return-value]
    if isinstance(named, MemoryProvider):
        return named
    if inspect.ismodule(named):
        register = getattr(named, "register", None)
        if callable(register):
            return _registered(register)
        own = _own_class(named)
        return own() if own else None
    return _registered(named) if callable(named) else None


def _own_class(module: ModuleType) -> Any:
    """Return the first provider that a module defines."""
    classes = (value for value in vars(module).values() if inspect.isclass(value) and issubclass(value, MemoryProvider))
    own = (one for one in classes if not inspect.isabstract(one) and one.__module__.startswith(module.__name__))
    return next(own, None)


def _registered(register: Any) -> MemoryProvider | None:
    """Call a function that registers a provider with the context that it gets, or returns one."""
    collector = _Collector()
    takes = inspect.signature(register).parameters
    given = register(collector) if takes else register()
    return collector.provider or (given if isinstance(given, MemoryProvider) else None)


# ── modules of Hermes Agent that its providers import ──


class HermesModules:
    """Stand-ins for the modules of Hermes Agent that memory providers import: this list, and no more."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.modules: dict[str, ModuleType] = {}
        listed: Mapping[str, Mapping[str, object]] = {
            "agent.memory_provider": {"MemoryProvider": MemoryProvider, "RecallStatus": RecallStatus},
            "agent.async_utils": {"safe_schedule_threadsafe": _schedule},
            "agent.memory_manager": {"sanitize_context": sanitize},
            "agent.message_content": {"flatten_message_text": flatten_message_text},
            "agent.skill_commands": {"extract_user_instruction_from_skill_message": lambda content: content},
            "agent.file_safety": {"raise_if_read_blocked": self.raise_if_read_blocked},
            "plugins.memory.query_rewrite": {"rewrite_memory_query": lambda query, *_, **__: query},  # off by default
            "tools.registry": {"tool_error": tool_error, "tool_result": tool_result},
            "hermes_cli.config": {
                "cfg_get": cfg_get,
                "load_config": self.load_config,
                "load_config_readonly": self.load_config,
                "load_env": self.load_env,
                "get_env_value": self.get_env_value,
            },
            "hermes_cli.profiles": {
                "_get_default_hermes_home": lambda: home,
                "get_active_profile_name": lambda: "default",
            },
            "hermes_state": {"apply_wal_with_fallback": _set_wal},
            "plugins.plugin_utils": {"SingletonSlot": SingletonSlot},
            "tools.lazy_deps": {"FeatureUnavailable": RuntimeError, "ensure": lambda *_, **__: None},
            "hermes_constants": {"get_hermes_home": lambda: home, "display_hermes_home": lambda: str(home)},
            "utils": {"atomic_json_write": atomic_json_write, "env_var_enabled": env_var_enabled},
        }
        for name, values in listed.items():
            made = self.modules[name] = ModuleType(name, "A stand-in of Herma for a module of Hermes Agent.")
            vars(made).update(values)
            package, _, last = name.partition(".")
            if last:
                above = self.modules.setdefault(package, ModuleType(package))
                setattr(above, last, made)

    def load_config(self) -> dict[str, Any]:
        return home_config(self._home)

    def load_env(self) -> dict[str, str]:
        """Return the variables of the home's `.env`."""
        return read_file(self._home / FILE)

    def get_env_value(self, key: str) -> str | None:
        """Return a variable of the environment, or of the home's `.env`."""
        return os.environ.get(key) or self.load_env().get(key)

    def raise_if_read_blocked(self, path: str) -> None:
        raise_if_read_blocked(path, self._home)


def home_config(home: Path) -> dict[str, Any]:
    """Return the home's config.yaml as a dict."""
    value = plain_yaml().load(_beginning(home / HOME_FILE) or "{}")
    return dict(value) if isinstance(value, Mapping) else {}


class SingletonSlot:
    """Holds one object, which is made when it is first asked for."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._value: Any = None

    def get(self, factory: Callable[[], Any]) -> Any:
        """Return the object, made by the factory if there is none."""
        with self._lock:
            if self._value is None:
                self._value = factory()
            return self._value

    def peek(self) -> Any:
        """Return the object or None."""
        return self._value

    def reset(self) -> None:
        """Forget the object."""
        self._value = None


def _schedule(work: Any, loop: Any, **_: Any) -> Any:
    """Run a coroutine on a loop of another thread; None if that has ended."""
    try:
        return asyncio.run_coroutine_threadsafe(work, loop)
    except (RuntimeError, AttributeError):
        work.close()
        return None


def _set_wal(connection: Any, **_: Any) -> str:
    """Set the journal mode of a database, and return the one that the file system allows."""
    return str(connection.execute("PRAGMA journal_mode=WAL").fetchone()[0])


_SECRET_ENDS = (".oauth.json", ".pem", ".key", ".token")


def raise_if_read_blocked(path: str | Path, home: Path) -> None:
    """Refuse files that hold secrets, or that are not the user's to send away."""
    real = Path(path).expanduser().resolve()
    secret = real.name == ".env" or real.name.startswith(".env.") or real.name.endswith(_SECRET_ENDS)
    secret = secret or bool({".ssh", ".aws", ".gnupg"} & set(real.parts))
    if secret or real.is_relative_to(home.resolve() / "plugins"):
        raise ValueError(f"{path} may hold secrets, so it is not read.")


def flatten_message_text(content: object, *, sep: str = "\n") -> str:
    """Join the text parts of a message."""
    if isinstance(content, list):
        texts = [part.get("text") if isinstance(part, dict) else part for part in content]
        return sep.join(text for text in texts if isinstance(text, str))
    return content if isinstance(content, str) else ""


def tool_error(message: object, **extra: Any) -> str:
    """Return an error as the JSON of a tool result."""
    return json.dumps({"error": str(message), **extra}, ensure_ascii=False)


def tool_result(data: object = None, **named: Any) -> str:
    """Return the JSON of a tool result."""
    return json.dumps(named if data is None else data, ensure_ascii=False)


def cfg_get(config: Mapping[str, Any] | None, *keys: str, default: Any = None) -> Any:
    """Return a nested value of a configuration, or the default."""
    value: Any = config
    for key in keys:
        if not isinstance(value, Mapping) or key not in value:
            return default
        value = value[key]
    return value


def atomic_json_write(
    path: str | Path, data: object, *, indent: int = 2, mode: int | None = None, **dumped: Any
) -> None:
    """Replace a JSON file in one step."""
    target = Path(path)
    make_folder(target.parent)
    replace_file(target, json.dumps(data, indent=indent, **{"ensure_ascii": False, **dumped}).encode())
    if mode is not None:
        target.chmod(mode)


def env_var_enabled(name: str, default: str = "") -> bool:
    """Say whether a variable is set to a word for yes."""
    return os.environ.get(name, default).strip().lower() in ("1", "true", "yes", "on")
