"""What a process keeps between packs of questions, up to some bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

T = TypeVar("T")


class Kept(Generic[T]):
    """Values by key; those that were not used for longest go first.

    Parameters
    ----------
    limit_bytes : int
        Of all values but the last.
    """

    def __init__(self, limit_bytes: int):
        self._limit_bytes = limit_bytes
        self._values: OrderedDict[Hashable, tuple[T, int]] = OrderedDict()

    def get(self, key: Hashable, make: Callable[[], T], size: Callable[[T], int]) -> T:
        """Return the value of a key, made now if it is not there."""
        if key not in self._values:
            made = make()
            self._values[key] = made, size(made)
        self._values.move_to_end(key)
        while len(self._values) > 1 and sum(nbytes for _, nbytes in self._values.values()) > self._limit_bytes:
            self._values.popitem(last=False)
        return self._values[key][0]
