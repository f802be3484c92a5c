"""The class that `context.engine` names: one that can be imported, or one in the home's `plugins/`."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from herma.errors import ConfigError
from herma.ports import ContextEngine, EngineNeeds

OWN = "compressor"
"""The engine that is part of Herma, as `context.engine` calls it."""


def is_own(name: str) -> bool:
    return name.strip() in ("", OWN)


def engine_class(name: str, home: Path) -> Callable[[EngineNeeds], ContextEngine]:
    """The class of `package.module:Class`. Raises whatever importing it raises."""
    module, colon, attribute = name.strip().partition(":")
    if not module or not colon or not attribute:
        raise ConfigError("it must be compressor, or a class as in package.module:Class")
    made: Callable[[EngineNeeds], ContextEngine] = getattr(_module(module, home), attribute)
    return made


def _module(name: str, home: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as exc:
        file = _plugin(name, home) if exc.name == name else None  # else something that it imports is missing
        if file is None:
            raise
        return _loaded(name, file)


def _plugin(name: str, home: Path) -> Path | None:
    if not name.isidentifier():
        return None
    places = (home / "plugins" / name / "__init__.py", home / "plugins" / f"{name}.py")
    return next((file for file in places if file.is_file()), None)


def _loaded(name: str, file: Path) -> ModuleType:
    """A file of the home as a module of its own, once for each place and only if nobody else may change it."""
    inside = file.name == "__init__.py"
    for path in (file, *([file.parent] if inside else [])):
        if os.name != "nt" and path.stat().st_mode & 0o002:
            raise ConfigError(f"everybody may write to {path}, so it is not run", hint=f"chmod o-w {path}")
    known = f"_herma_engine_{hashlib.sha256(str(file).encode()).hexdigest()[:8]}_{name}"
    if known in sys.modules:
        return sys.modules[known]
    folders = [str(file.parent)] if inside else None
    spec = importlib.util.spec_from_file_location(known, file, submodule_search_locations=folders)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    sys.modules[known] = module  # before it runs, so that it can import from itself
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[known]
        raise
    return module
