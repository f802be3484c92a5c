"""What every test gets: a user's folder of its own, and an environment without anything that Herma would heed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from herma.cli.frame import AGENT_MARKERS
from herma.testing import ScriptedModel
from herma.testing.contracts import watch_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

settings.register_profile("herma", deadline=None)  # no test fails because a machine is busy
settings.load_profile("herma")

TERMINAL = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "_HERMA_COMPLETE")
CACHES = ("XDG_CACHE_HOME", "LOCALAPPDATA")  # where models may be installed


@pytest.fixture(autouse=True)
def user_folder(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The `~` of this test."""
    folder = tmp_path_factory.mktemp("user")
    for name in list(os.environ):
        if name.startswith("HERMA_") or name in ("HERMES_HOME", *AGENT_MARKERS, *TERMINAL, *CACHES):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("USERPROFILE", str(folder))
    return folder


@pytest.fixture(autouse=True)
def prefixes() -> Iterator[None]:
    """In every session of every test, what was sent to the model is never changed afterwards."""
    with watch_prefixes():
        yield


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty Herma home."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    """A model's server, whose answers the test writes."""
    with ScriptedModel() as made:
        yield made
