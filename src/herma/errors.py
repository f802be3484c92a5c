"""The exceptions, and the check of arguments that raises one.

Expected outcomes are return values (`MemoryOutcome`, `SearchReport`); a failure is one of these exceptions. Errors of
other libraries are translated where they are caught, and keep their cause.

    HermaError
    ├── UsageError        the call itself is wrong
    │   └── ConfigError   a configuration file, variable or flag is wrong
    ├── StoreError        a file or a database cannot be read or written
    │   ├── StoreBusy     another process holds it, and the deadline passed
    │   │   └── StoreChanged  another process changed it between reading and writing
    │   └── ForeignStore  the file is not Herma's, or newer than this version
    ├── ProviderError     an external memory provider failed
    └── ModelError        a language or embedding model failed
        ├── EmbedderError     an embedding model is missing, refuses, or gives malformed vectors
        ├── ModelUnreachable  cannot connect, or the server had an error
        ├── ModelRefused      the server rejects the key, the quota, the name or the request
        │   └── ModelOverflow     the request is longer than the model's window
        ├── ModelTimeout      it did not answer in time
        ├── ModelCancelled    the caller cancelled the request
        ├── ModelBroken       the answer is cut off or malformed
        └── SpendRefused      background work has reached its daily cap
"""

from __future__ import annotations

import enum
import functools
import inspect
import json
import math
import re
import types
import typing
import warnings
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, get_args, get_origin


class HermaError(Exception):
    """Something is broken. `str(error)` is one sentence, `hint` is what to do next, `code` is stable for programs.

    The code of a class is its name in lower case: `store_busy`, `model_timeout`.
    """

    exit_code = 1
    code = "error"

    def __init_subclass__(cls) -> None:
        cls.code = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__.removesuffix("Error")).lower()

    def __init__(self, sentence: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint
        self.code = code or type(self).code


class UsageError(HermaError):
    """The call itself is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file, variable or flag is wrong."""


class StoreError(HermaError):
    """A file or a database cannot be read or written."""

    exit_code = 3


class StoreBusy(StoreError):
    """Another process holds the file or the database, and the deadline passed."""


class StoreChanged(StoreBusy):
    """Another process changed the text, or moved the conversation, since it was read; nothing was written."""


class ForeignStore(StoreError):
    """The file was not written by Herma, or by a newer version."""


class ProviderError(HermaError):
    """An external memory provider failed."""

    exit_code = 3


class ModelError(HermaError):
    """A language or embedding model failed. `partial` is the text received so far; `attempts` counts the requests."""

    exit_code = 3

    def __init__(self, sentence: str, *, hint: str = "", partial: str = "", attempts: int = 1) -> None:
        super().__init__(sentence, hint=hint)
        self.partial = partial
        self.attempts = attempts


class EmbedderError(ModelError):
    """An embedding model is missing, refuses, or gives malformed vectors; search uses words alone."""


class ModelUnreachable(ModelError):
    """The model's server cannot be reached, or had an error; a retry may help."""


class ModelRefused(ModelError):
    """The model's server rejects the key, the quota, the model's name or the request. `status` is the HTTP status."""

    def __init__(self, sentence: str, *, hint: str = "", status: int = 0, attempts: int = 1) -> None:
        super().__init__(sentence, hint=hint, attempts=attempts)
        self.status = status


class ModelOverflow(ModelRefused):
    """The request is too long for the model's window; compress the conversation."""


class ModelTimeout(ModelError):
    """The model did not answer in time, or stopped in the middle of its answer."""


class ModelCancelled(ModelError):
    """The caller cancelled the request."""

    exit_code = 130


class ModelBroken(ModelError):
    """The answer of the model's server is cut off or malformed."""


class SpendRefused(ModelError):
    """Background work has reached its daily cap; no request was sent."""

    exit_code = 1


class HermaWarning(UserWarning):
    """Something works less well than it should; reported once."""


# ── arguments of public calls ──

C = TypeVar("C")
_Check: TypeAlias = Callable[[Any], bool]
_UNLIMITED = 2**62
"""Larger whole numbers mean: no limit. SQLite counts to twice as much."""
_FROM_0 = Literal["from 0"]
_WORDS: Mapping[Any, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    Path: "a path",
    _FROM_0: "a whole number from 0",
}


class FormerName:
    """The former name of a public attribute: it warns, and goes with the next version."""

    def __init__(self, new: str) -> None:
        self._new = new

    def __set_name__(self, owner: type, name: str) -> None:
        self._old = f"{owner.__name__}.{name}"

    def __get__(self, instance: object, owner: type) -> Any:
        if instance is None:
            return self
        warnings.warn(f"{self._old} is now {self._new}.", DeprecationWarning, stacklevel=2)
        return getattr(instance, self._new)


def checked(*free: str) -> Callable[[type[C]], type[C]]:
    """Make the public methods of a class, inherited ones too, check their arguments against the annotations before
    anything is written. Raise `UsageError`.

    Arguments named in `free` hold what people and models write, where a lone surrogate is handled elsewhere.
    """

    def made(cls: type[C]) -> type[C]:
        for name in dir(cls):
            method = inspect.getattr_static(cls, name)
            if inspect.isfunction(method) and (not name.startswith("_") or name == "__call__"):
                setattr(cls, name, _checking(method, frozenset(free)))
        return cls

    return made


def _checking(method: Callable[..., Any], free: frozenset[str]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(self: Any, /, *args: Any, **options: Any) -> Any:
        places, checks = _checks(method, free)  # made with the first call: starting is instant
        for name, value in (*zip(places, args, strict=False), *options.items()):
            if name in checks and not checks[name][1](value):
                raise _wrong(self, method.__name__, name, value, checks[name][0])
            if type(value) is int and abs(value) > _UNLIMITED:
                return call(self, *map(_bounded, args), **{key: _bounded(given) for key, given in options.items()})
        return method(self, *args, **options)

    return call


def check_fields(value: object) -> None:
    """Raise `UsageError` if a field of a dataclass is not what its annotation says."""
    kind = type(value)
    for name, (wanted, check) in _checks(kind.__init__, frozenset())[1].items():
        given = getattr(value, name)
        if not check(given) or (type(given) is int and abs(given) > _UNLIMITED):
            raise _wrong(kind, kind.__name__, name, given, wanted)


def _bounded(value: Any) -> Any:
    return max(-_UNLIMITED, min(_UNLIMITED, value)) if type(value) is int else value


@functools.cache
def _checks(method: Callable[..., Any], free: frozenset[str]) -> tuple[list[str], dict[str, tuple[Any, _Check]]]:
    """Return the positional arguments; and for each argument that can be checked, its annotation and the check."""
    found: dict[str, tuple[Any, _Check]] = {}
    places: list[str] = []
    for name, parameter in [*inspect.signature(method).parameters.items()][1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            continue
        if parameter.kind is not parameter.KEYWORD_ONLY:
            places.append(name)
        wanted = parameter.annotation
        if isinstance(wanted, str):
            try:
                wanted = eval(wanted, getattr(inspect.unwrap(method), "__globals__", {}))  # noqa: S307  our own annotations
            except NameError:  # a name for type checkers only
                continue
        if wanted is not parameter.empty and (check := _check_of(wanted, free=name in free)) is not None:
            if name == "limit":
                wanted, check = _FROM_0, lambda value, check=check: check(value) and (value is None or value >= 0)
            found[name] = wanted, check
    return places, found


def _check_of(wanted: Any, *, free: bool = False) -> _Check | None:
    """Return a check for a type, or None if a value cannot be checked by looking at it."""
    kind, inner = get_origin(wanted), get_args(wanted)
    if kind in (types.UnionType, typing.Union):
        each = [_check_of(one, free=free) for one in inner]
        known = [check for check in each if check is not None]
        return (lambda value: any(check(value) for check in known)) if len(known) == len(each) else None
    if kind is Literal:
        return lambda value: any(type(value) is type(one) and value == one for one in inner)
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return lambda value: isinstance(value, Mapping)
    if isinstance(kind, type) and issubclass(kind, Iterable):
        single = bool(inner) and get_origin(inner[0]) is not dict  # the reader of a part reports what is wrong in it
        return _all_of(kind, _check_of(inner[0], free=free) if single else None)
    if kind is not None:
        return callable if kind is Callable else None
    if wanted in (None, type(None)):
        return lambda value: value is None
    if wanted in (bool, int, float, str):
        return functools.partial(_is_plain, wanted, free=free)
    if isinstance(wanted, type) and issubclass(wanted, enum.StrEnum):
        return lambda value: isinstance(value, str) and value in set(wanted)
    unknown = getattr(wanted, "_is_protocol", False) and not getattr(wanted, "_is_runtime_protocol", False)
    if isinstance(wanted, type) and not unknown and wanted is not object:
        return lambda value: isinstance(value, wanted)
    return None


def _is_plain(wanted: type, value: object, *, free: bool) -> bool:
    if wanted is str:
        return isinstance(value, str) and (free or not _has_surrogate(value))
    if wanted is bool or isinstance(value, bool):
        return wanted is bool and isinstance(value, bool)
    return isinstance(value, int) or (wanted is float and isinstance(value, float) and math.isfinite(value))


def _has_surrogate(text: str) -> bool:
    return not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text)


def _all_of(kind: type, each: _Check | None) -> _Check:
    """Check several of a kind. A text is not a list of letters, and an iterator is not consumed."""

    def check(value: object) -> bool:
        if isinstance(value, str | bytes | Mapping) or not isinstance(value, kind):
            return False
        return each is None or not isinstance(value, list | tuple | set | frozenset) or all(map(each, value))

    return check


def _wrong(self: object, method: str, name: str, value: object, wanted: Any) -> UsageError:
    given = type(value).__name__
    if isinstance(value, str):
        given = "text with a lone surrogate" if _has_surrogate(value) else f"{value!r:.60}"
    elif value is None or isinstance(value, int | float):
        given = repr(value)
    elif isinstance(value, list | tuple):
        given += f" of {', '.join(dict.fromkeys(type(one).__name__ for one in value)) or 'nothing'}"
    return UsageError(
        f"{name} of {method}() must be {_words(wanted)}, not {given}. Nothing was changed.",
        hint=f"help({method if isinstance(self, type) else f'{type(self).__name__}.{method}'}) lists its arguments.",
    )


def _words(wanted: Any) -> str:
    """Return a type in words."""
    kind, inner = get_origin(wanted), get_args(wanted)
    if wanted is _FROM_0:
        return _WORDS[wanted]
    if isinstance(wanted, type) and issubclass(wanted, enum.StrEnum):
        inner, kind = tuple(one.value for one in wanted), Literal
    if kind in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(_words(one) for one in inner if one is not type(None)))
    if kind is Literal:
        return f"one of {', '.join(map(str, inner))}"
    if isinstance(kind, type) and issubclass(kind, Mapping):
        return "a mapping"
    if kind is Callable:
        return "a function"
    if kind is not None:
        plural = {str: "texts", int: "whole numbers", dict: "parts"}
        return f"a list of {plural.get(get_origin(inner[0]) or inner[0]) or _words(inner[0])}" if inner else "a list"
    return _WORDS.get(wanted) or str(getattr(wanted, "__name__", wanted))


# ── hints ──


def install_command(extra: str = "") -> str:
    """Return the command that adds an extra to Herma the way it was installed here; without one, that updates it."""
    import shlex
    import sys
    from importlib.metadata import PackageNotFoundError, distribution
    from importlib.util import find_spec
    from urllib.parse import unquote, urlsplit

    wanted = f"herma[{extra}]" if extra else "herma"
    try:
        source = json.loads(distribution("herma").read_text("direct_url.json") or "{}")
    except (PackageNotFoundError, ValueError):
        source = {}
    url, version = source.get("url", ""), source.get("vcs_info", {})
    if source.get("dir_info", {}).get("editable"):
        folder = unquote(urlsplit(url).path)
        if not extra:
            return shlex.join(["git", "-C", folder, "pull"])
        what = ["--editable", f"{folder}[{extra}]"]
    elif url:
        what = [f"{wanted} @ {version['vcs']}+{url}" if version else f"{wanted} @ {url}"]
    else:
        what = [wanted]
    prefix = Path(sys.prefix)
    if (prefix / "pipx_metadata.json").is_file():
        return shlex.join(["pipx", "install", "--force", *what])
    if (prefix / "uv-receipt.toml").is_file():
        return shlex.join(["uv", "tool", "install", "--force", *what])
    if find_spec("pip") is None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *what])
    return shlex.join([sys.executable, "-m", "pip", "install", *([] if extra else ["--upgrade"]), *what])
