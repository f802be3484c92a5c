"""Named SQL: `-- name --` on a line of its own starts a statement, which runs to the next such line."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

_HEADING = re.compile(r"^-- (\w+) --$", re.MULTILINE)


@cache
def queries(name: str) -> dict[str, str]:
    """The statements of `<name>.sql` in this folder, by name."""
    parts = _HEADING.split(Path(__file__).with_name(f"{name}.sql").read_text(encoding="utf-8"))
    return {key: sql.strip() for key, sql in zip(parts[1::2], parts[2::2], strict=True)}
