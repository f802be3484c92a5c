"""Where each curated document lies under the home."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from hashlib import sha256
from pathlib import Path

from herma.ports import Place

FILES = {"memory": "MEMORY.md", "user": "USER.md"}


@lru_cache(maxsize=256)
def path_of(home: Path, place: Place) -> Path:
    """`memories/MEMORY.md`, `memories/projects/<folder>/MEMORY.md`, `memories/users/<folder>/USER.md`."""
    folder = home / "memories"
    if place.project:
        folder = folder / "projects" / folder_name(place.project)
    elif place.user:
        folder = folder / "users" / folder_name(place.user)
    return folder / FILES[place.target]


def folder_name(key: str) -> str:
    """A readable name for any key (a path, an address, any script), unique by 8 hex digits of its hash."""
    last = re.split(r"[/\\]", key.rstrip("/\\"))[-1]
    plain = unicodedata.normalize("NFKD", last).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].rstrip("-")
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{slug}-{digest}" if slug else digest
