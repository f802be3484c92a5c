"""Keys of model servers: from the environment, or from the home's `.env`. Never from the configuration."""

from __future__ import annotations

import os
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path

from herma.errors import ConfigError, HermaWarning

FILE = ".env"
_MOST = 1_000_000
"""Bytes of a file that is still read as one of variables."""


def read_key(variable: str, home: Path, environ: Mapping[str, str] | None = None) -> str:
    """The key in this variable; "" where there is none. The environment wins over the file."""
    if not variable:
        return ""
    env = os.environ if environ is None else environ
    return (env.get(variable) or read_file(home / FILE).get(variable, "")).strip()


def read_file(path: Path) -> dict[str, str]:
    """The variables of a file; none if there is no file. Warns if others may read it."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            raw = file.read(_MOST)
    except FileNotFoundError:
        return {}
    except OSError as exc:
        raise ConfigError(f"{path} cannot be read: {exc.strerror}.", hint="It holds the keys of models.") from exc
    if os.name == "posix" and mode & 0o077:
        warnings.warn(
            f"{path} holds keys, and others on this machine may read it; type: chmod 600 {path}",
            HermaWarning,
            stacklevel=2,
        )
    return parse(raw.decode("utf-8-sig", "replace"))


def parse(text: str) -> dict[str, str]:
    """`NAME=value` lines: comments, quotes and a leading `export` as shells have them; nothing is expanded."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not name or name.startswith("#"):
            continue
        if value[:1] in ("'", '"') and (end := value.find(value[0], 1)) > 0:
            value = value[1:end]
        else:
            value = value.partition(" #")[0].rstrip()
        found[name] = value
    return found
