"""A home whose time stands still until a test moves it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from herma import Herma
from herma.testing import FixedClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def h(home: Path, clock: FixedClock) -> Iterator[Herma]:
    with Herma.open(home, clock=clock) as opened:
        yield opened
