"""Each test here needs the packages of `herma[frameworks]`, which have an environment of their own: `./run test`
installs it and runs these tests in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from herma import Herma

collect_ignore_glob = [] if find_spec("agents") else ["test_*.py"]


@pytest.fixture
def h(tmp_path: Path) -> Iterator[Herma]:
    with Herma.open(tmp_path / "home") as opened:
        yield opened
