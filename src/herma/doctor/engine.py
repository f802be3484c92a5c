"""The context engine that the settings name: can it be loaded?"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from herma.config import Settings
from herma.doctor.check import Check
from herma.providers.guard import Guard
from herma.reflect.compress.chosen import engine_class, is_own

_NEEDED = ("should_compress", "compress", "update_from_response", "on_session_start", "on_session_end", "on_reset")


def check_engine(home: Path, settings: Settings) -> Iterator[Check]:
    """Nothing, where it is our own. Loads a user's, and makes none."""
    name = settings.context.engine
    if is_own(name):
        return
    guard = Guard(f"the context engine {name}")
    found = guard.ask("loading it", lambda: engine_class(name, home), None)
    hint = "herma config unset context.engine takes Herma's own; docs/how-to/replace-the-context-engine.md has more."
    if found is None:
        why = guard.health.last.why if guard.health.last else "it is none"
        yield Check("context engine", "warning", f"{name} cannot be used ({why}); nothing is shortened.", hint)
        return
    missing = [part for part in _NEEDED if not hasattr(found, part)]
    if missing:
        said = f"{name} has no {', '.join(missing)}; nothing is shortened."
        yield Check("context engine", "warning", said, hint)
    else:
        yield Check("context engine", "ok", f"{name} can be loaded.")
