"""The home's token: made once, kept in a file that only its owner can read, so that a browser stays let in."""

from __future__ import annotations

import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

from herma.errors import StoreError
from herma.store.atomic import replace_file
from herma.store.locks import exclusive

FILE = "web.token"
_PATIENCE = 5.0
_TOKEN = re.compile(rb"[A-Za-z0-9_-]{32,128}\n?")


@dataclass(frozen=True, slots=True)
class Token:
    """`note` is a sentence for whoever started the server, where there is something to say."""

    value: str
    note: str = ""


def home_token(home: Path, *, renew: bool = False) -> Token:
    """The token of this home; a new one if there is none, if others could read it, or on request.

    A home that cannot be written gets one that holds until the server ends.
    """
    path = home / FILE
    found = None if renew else _read(path)
    if found is not None and not _exposed(path):
        return Token(found)
    made = secrets.token_urlsafe(32)
    if not home.exists():  # looking makes no home, which may only be mistyped
        return Token(made, f"There is nothing at {home} yet; the link holds only until this server ends.")
    try:
        with exclusive(home / f".{FILE}.lock", _PATIENCE):
            now = _read(path)
            if now is not None and now != found and not renew:  # another server of this home was first
                return Token(now)
            path.unlink(missing_ok=True)  # a file that takes its place would take over its mode
            replace_file(path, f"{made}\n".encode())
    except (OSError, StoreError):
        return Token(made, f"{path} cannot be written, so the link holds only until this server ends.")
    if found is not None:
        return Token(made, f"Others on this machine could read {path}, so a new token was made.")
    return Token(made)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            data = file.read(200)
    except OSError:
        return None
    return data.decode("ascii").strip() if _TOKEN.fullmatch(data) else None


def _exposed(path: Path) -> bool:
    return os.name != "nt" and bool(path.stat().st_mode & 0o077)
