"""One tree for everything that is broken.

What a user or a model may well cause is a return value (`MemoryOutcome`, `SearchReport`); what is broken is one of
these. Errors of other libraries are translated where they enter, with their cause kept.

    HermaError
    ├── UsageError        the call itself is wrong
    │   └── ConfigError   a configuration file, variable or flag is wrong
    ├── StoreError        a file or a database cannot be read or written
    │   ├── StoreBusy     somebody else holds it, and the deadline passed
    │   │   └── StoreChanged  somebody else changed it between reading and writing
    │   └── ForeignStore  the file is not ours, or newer than this version
    ├── ProviderError     an external memory backend failed
    └── ModelError        a language or embedding model failed
        └── EmbedderError     an embedding model is missing, refuses, or answers nonsense
"""

from __future__ import annotations


class HermaError(Exception):
    """Something is broken. `str(error)` is one sentence; `hint` is what to do next."""

    exit_code = 1

    def __init__(self, sentence: str, *, hint: str = "") -> None:
        super().__init__(sentence)
        self.hint = hint


class UsageError(HermaError):
    """The call itself is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file, variable or flag is wrong."""


class StoreError(HermaError):
    """A file or a database cannot be read or written."""

    exit_code = 3


class StoreBusy(StoreError):
    """Somebody else holds the file or the database, and the deadline passed."""

    exit_code = 4


class StoreChanged(StoreBusy):
    """Somebody else changed the text between reading and writing; nothing was written."""


class ForeignStore(StoreError):
    """The file is not one of ours, or was written by a newer version."""


class ProviderError(HermaError):
    """An external memory backend failed."""

    exit_code = 5


class ModelError(HermaError):
    """A language or embedding model failed."""

    exit_code = 6


class EmbedderError(ModelError):
    """An embedding model is missing, refuses, or answers nonsense; search goes on with words alone."""


class HermaWarning(UserWarning):
    """Something works less well than it should; said once."""
