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
        ├── EmbedderError     an embedding model is missing, refuses, or answers nonsense
        ├── ModelUnreachable  nobody answers there, or only to say that it cannot work now
        ├── ModelRefused      it answers, and says no: the key, the quota, the name, the request
        │   └── ModelOverflow     the request is longer than the model's window
        ├── ModelTimeout      it did not answer in time
        ├── ModelCancelled    the caller does not want the answer any more
        ├── ModelBroken       what it says is cut off or makes no sense
        └── SpendRefused      background work has used up what it may spend today
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
    """Somebody else changed the text, or moved the conversation, since it was read; nothing was written."""


class ForeignStore(StoreError):
    """The file is not one of ours, or was written by a newer version."""


class ProviderError(HermaError):
    """An external memory backend failed."""

    exit_code = 5


class ModelError(HermaError):
    """A language or embedding model failed. `partial` is the text that had come; `attempts` how often it was asked."""

    exit_code = 6

    def __init__(self, sentence: str, *, hint: str = "", partial: str = "", attempts: int = 1) -> None:
        super().__init__(sentence, hint=hint)
        self.partial = partial
        self.attempts = attempts


class EmbedderError(ModelError):
    """An embedding model is missing, refuses, or answers nonsense; search goes on with words alone."""


class ModelUnreachable(ModelError):
    """Nobody answers at the model's address, or only to say that it cannot work now."""


class ModelRefused(ModelError):
    """The model's server says no: to the key, the quota, the model's name or the request. `status` is its number."""

    def __init__(self, sentence: str, *, hint: str = "", status: int = 0, attempts: int = 1) -> None:
        super().__init__(sentence, hint=hint, attempts=attempts)
        self.status = status


class ModelOverflow(ModelRefused):
    """The request is longer than the model's window; less history, or a summary of it, would fit."""


class ModelTimeout(ModelError):
    """The model did not answer in time, or fell silent in the middle of its answer."""


class ModelCancelled(ModelError):
    """The caller does not want the answer any more."""

    exit_code = 130


class ModelBroken(ModelError):
    """What the model's server says is cut off in the middle, or makes no sense."""


class SpendRefused(ModelError):
    """Background work has used up what it may spend today; the model was not asked."""


class HermaWarning(UserWarning):
    """Something works less well than it should; said once."""
