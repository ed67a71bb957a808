"""Values derived from the last few objects: describing many small steps takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any, Generic, TypeVar

T = TypeVar("T")

REMEMBERED = 8
"""Plans, reduced models and tables of prices that a process remembers: a run alternates between a few of them."""


class Remembered(Generic[T]):
    """Values by the objects from which they are derived, such as steps or a plan, and by other dependencies.

    Parameters
    ----------
    most : int
        The number of values that are kept; the oldest are dropped.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: dict[tuple[Hashable, ...], tuple[tuple[object, ...], T]] = {}

    def of(self, objects: Sequence[object], more: Hashable, make: Callable[[], T]) -> T:
        """Return the result of an earlier ``make`` for the same objects and ``more``, or call ``make`` now."""
        key = more, *map(id, objects)
        known = self._known.get(key)
        if known is None:
            # the objects are held as long as their numbers are
            known = self._known[key] = tuple(objects), make()
            for oldest in tuple(self._known)[: -self._most]:  # threads share this
                self._known.pop(oldest, None)
        return known[1]

    def forget(self) -> None:
        """Let all go."""
        self._known.clear()


# Values that were computed once, up to a total size.


def _nothing() -> None:
    """Do nothing."""


class Memo(Generic[T]):
    """Values by key, which threads share; all values are dropped before their total size exceeds a limit.

    Parameters
    ----------
    limit : int
        Largest total size, in the unit of the sizes that `put` gets: bytes of values and keys, or a number of values.
    before_forgetting : callable, optional
        Called before all values are dropped.
    """

    def __init__(self, limit: int, before_forgetting: Callable[[], Any] = _nothing) -> None:
        self._limit, self._before_forgetting = limit, before_forgetting
        self._values: dict[Hashable, T] = {}
        self.size = 0
        self._lock = Lock()
        self.get = self._values.get

    def put(self, key: Hashable, value: T, size: int) -> T:
        """Keep a value and return it; a value that is larger than the limit is not kept."""
        with self._lock:
            if self.size + size > self._limit:
                self._forget()
            if key not in self._values and size <= self._limit:
                self.size += size  # rather too many than too few, if the next line is interrupted
                self._values[key] = value
        return value

    def forget(self) -> None:
        """Let all go."""
        with self._lock:
            self._forget()

    def _forget(self) -> None:
        if self._values:
            self._before_forgetting()
        self._values.clear()
        self.size = 0
