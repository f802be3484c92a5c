"""Names and folders as sessions are given them."""

from __future__ import annotations

import os
from pathlib import Path

from herma.errors import UsageError


def folder_of(given: str | Path | None) -> str:
    """Where the work takes place, as a path that means the same tomorrow; nothing where there is no such folder."""
    if not given or not os.path.isdir(given):  # noqa: PTH112  a project's name may be no path
        return ""
    return os.path.abspath(given).encode("utf-8", "backslashreplace").decode()  # noqa: PTH100


def name_of(given: str | None, what: str) -> str:
    """A name as every store can keep it: half a surrogate pair, as undecodable file names have it, is written out."""
    if given is not None and not isinstance(given, str):
        raise UsageError(f"The {what} of a session is text, not {type(given).__name__}.", hint="Give it as a string.")
    return (given or "").strip().encode("utf-8", "backslashreplace").decode()
