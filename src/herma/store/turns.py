"""One at a time, by name: whoever holds a name is alone with it over all processes of a home, until it ends or dies."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from herma.errors import StoreBusy, StoreError
from herma.store.locks import exclusive
from herma.store.sqlite.opening import refuse_foreign

FOLDER = "locks"
_GATE = 5.0
"""Seconds to wait for somebody who is about to take or give back another name."""


@contextmanager
def alone(home: Path, name: str) -> Iterator[bool]:
    """Hold a name while the block runs; yields whether it was free. The file that stands for it is gone afterwards.

    Files are made, locked and removed behind one gate, so that nobody holds a file that is no longer there. One that a
    dying process leaves behind is empty and does no harm.
    """
    folder = home / FOLDER
    if not folder.exists():  # nothing is made in a home whose database is not ours
        refuse_foreign(home / "herma.db")
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(
            f"{folder} cannot be made: {exc.strerror}.", hint="Check the permissions of the home."
        ) from exc
    gate, file = folder / "gate.lock", folder / f"{hashlib.sha256(name.encode()).hexdigest()[:24]}.lock"
    with ExitStack() as held:
        with exclusive(gate, _GATE):
            try:
                held.enter_context(exclusive(file, 0.0))
            except StoreBusy:
                taken = True
            else:
                taken = False
                held.callback(_remove, gate, file)
        yield not taken


def _remove(gate: Path, file: Path) -> None:
    """Still under the lock of the file. What cannot be removed may stay."""
    with suppress(StoreError, OSError), exclusive(gate, _GATE):
        file.unlink()
