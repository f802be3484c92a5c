"""What opening a session must not load, and the names that are loaded when they are first asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

OPENED = """
import sys
from herma import Herma
with Herma.open(sys.argv[1]) as h:
    session = h.session()
    print(*sorted(sys.modules))
    session.close()
"""
A_TURN_NEEDS = {
    *("herma.search.search", "herma.search.query", "herma.search.prefetch", "herma.facts", "herma.index"),
    *("herma.review.review", "herma.review.gate", "herma.memory.tidy", "herma.review.spending"),
    *("herma.skills", "herma.skills.types", "herma.index.types", "herma.episodes.build", "herma.episodes.build"),
    *("herma.providers.manager", "herma.models.client", "importlib.metadata", "concurrent.futures", "numpy"),
}
"""Loaded by the turn, the call or the guest that needs it."""


def test_opening_a_session_loads_nothing_that_only_a_turn_needs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", OPENED, str(tmp_path / "home")], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert {"herma.session", "herma.memory.store", "herma.transcript.rows"} <= loaded
    assert A_TURN_NEEDS & loaded == set()
    assert {name for name in A_TURN_NEEDS if name.startswith("herma.")} <= _modules(), "a module was renamed"


@pytest.mark.parametrize("package", ["herma.types", "herma.ports"])
def test_what_a_package_names_is_what_its_modules_have(package: str) -> None:
    """The list for readers and type checkers, and the one by which names are found, are the same."""
    module = import_module(package)
    tree = ast.parse(Path(str(module.__file__)).read_text("utf-8"))
    checked = next(node for node in tree.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
    imported = {
        (str(node.module).rpartition(".")[2], alias.name, alias.asname)
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == {(home, name, name) for home, names in module._HOMES.items() for name in names}
    assert [name for name in module.__all__ if not hasattr(module, name)] == []
    assert len(module.__all__) == len(set(module.__all__))
    assert not hasattr(module, "nonsense")


def _modules() -> set[str]:
    import herma

    source = Path(herma.__file__).parent
    parts = [path.relative_to(source.parent).with_suffix("").parts for path in source.rglob("*.py")]
    return {".".join(part for part in each if part != "__init__") for each in parts}
