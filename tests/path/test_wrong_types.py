"""What is not even of the right type gets one sentence and a next step, like everything else that is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from herma import Herma, sanitize, scan
from herma.errors import ConfigError, UsageError

WRONG: Any = 5
CALLS: dict[str, Callable[[Herma], object]] = {
    "scan": lambda _: scan(WRONG),
    "sanitize": lambda _: sanitize(WRONG),
    "history": lambda h: h.memory.history(limit="ten"),  # type: ignore[arg-type]
    "system message": lambda h: h.session(system_message=WRONG),
    "title": lambda h: h.session(title=WRONG),
    "model": lambda h: h.session(model=WRONG),
    "rename": lambda h: h.transcripts.rename(h.transcripts.start("cli"), WRONG),
    "rewind": lambda h: h.session().rewind("one"),  # type: ignore[arg-type]
    "episodes": lambda h: h.episodes.search_similar(WRONG),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_wrong_type_is_a_usage_error(home: Path, call: Callable[[Herma], object]) -> None:
    with Herma.open(home) as h, pytest.raises(UsageError, match=r"text, not|not of int|whole number|turns"):
        call(h)


@pytest.mark.parametrize("which", ["home", "profile"])
def test_a_home_is_named_by_text(home: Path, which: str) -> None:
    with pytest.raises(ConfigError, match=f"The {which} is named by text, not by int"):
        Herma.open(**{"home": home, which: WRONG})
