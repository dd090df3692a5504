"""Values created once for a session or an application, by whichever thread comes first."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

_T = TypeVar("_T")


class MadeOnce(Generic[_T]):
    """One value for each key, however many threads are the first to ask for it; it goes with its key."""

    def __init__(self) -> None:
        self._made: WeakKeyDictionary[Any, _T] = WeakKeyDictionary()
        self._lock = Lock()

    def of(self, key: Any, make: Callable[[], _T]) -> _T:
        """The value of ``key``: the result of the first call of ``make`` that succeeded."""
        with self._lock:
            if key not in self._made:
                self._made[key] = make()
            return self._made[key]
