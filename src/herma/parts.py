"""Parts of an object that are made when they are first used."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


class part(Generic[T]):  # noqa: N801  used like `property`
    """Like `functools.cached_property`, but made once even when several threads want it first.

    From Python 3.12 on that takes no lock: each thread would get a part of its own, and all but one would never be
    closed.
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.__doc__ = make.__doc__
        self._make = make
        self._name = make.__name__
        self._making = threading.RLock()

    @overload
    def __get__(self, whole: None, owner: type) -> part[T]: ...
    @overload
    def __get__(self, whole: object, owner: type) -> T: ...
    def __get__(self, whole: object | None, owner: type) -> part[T] | T:
        if whole is None:
            return self
        with self._making:
            made: dict[str, T] = whole.__dict__  # the next time it is found there, before this is asked
            if self._name not in made:
                made[self._name] = self._make(whole)
            return made[self._name]
