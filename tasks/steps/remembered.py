"""What follows from some steps, for the last few: describing many small steps takes longer than running them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Final, Generic, TypeVar

from .step import Step

T = TypeVar("T")

_MOST: Final = 4


class Remembered(Generic[T]):
    """Values by steps, as objects, and by what else they depend on."""

    def __init__(self) -> None:
        self._known: dict[tuple[Hashable, ...], tuple[tuple[Step, ...], T]] = {}

    def of(self, steps: Sequence[Step], more: Hashable, make: Callable[[], T]) -> T:
        """Return what ``make`` returned for the same steps and ``more``, or returns now."""
        key = more, *map(id, steps)
        known = self._known.get(key)
        if known is None:
            # the steps are held as long as their numbers are
            known = self._known[key] = tuple(steps), make()
            for oldest in tuple(self._known)[:-_MOST]:  # threads share this
                self._known.pop(oldest, None)
        return known[1]
