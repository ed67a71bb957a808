"""What follows from some objects, for the last few: describing many small steps takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Remembered(Generic[T]):
    """Values by the objects that they follow from, such as steps or a plan, and by what else they depend on.

    Parameters
    ----------
    most : int
        So many are kept, the last ones.
    """

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._known: dict[tuple[Hashable, ...], tuple[tuple[object, ...], T]] = {}

    def of(self, objects: Sequence[object], more: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned for the same objects and ``more``, or returns now."""
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
