"""Whether the language models of the settings could be asked. Asks nobody: `herma models check` does."""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from herma.config import Settings
from herma.doctor.check import Check
from herma.errors import ConfigError
from herma.models.chat.choose import Role, endpoint_of
from herma.models.chat.endpoint import Endpoint
from herma.reflect.pauses import Pauses
from herma.store.pause_file import PauseFile


def check_models(settings: Settings) -> Iterator[Check]:
    """One line per server; nothing where no model is set."""
    seen: set[tuple[str, str]] = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a file of keys that others may read is another check's matter
        for role in get_args(Role):
            try:
                where = endpoint_of(settings, role)
            except ConfigError as exc:
                yield Check("model", "problem", str(exc), exc.hint)
                return
            if where is not None and (where.url, where.name) not in seen:
                seen.add((where.url, where.name))
                yield _check(where, role)


def check_pauses(home: Path, now: float) -> Iterator[Check]:
    """Background work that rests, because a model's answers could not be used."""
    for one in Pauses(PauseFile(home), lambda: now).list():
        yield Check("model", "warning", one.notice, one.hint)


def _check(where: Endpoint, role: str) -> Check:
    name = f"The {role} model, {where.name} at {where.host}"
    if importlib.util.find_spec(where.kind) is None:
        install = f"pip install 'herma[{where.kind}]'"
        return Check(
            "model", "warning", f"{name}, cannot be asked: the {where.kind} library is not installed.", install
        )
    if where.key_variable and not where.key:
        sentence = (
            f"{name}, has no key: the variable {where.key_variable} is set neither in the environment nor in .env."
        )
        return Check("model", "warning", sentence, "")
    return Check("model", "ok", f"{name}, is set; herma models check asks it.")
